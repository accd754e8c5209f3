"""Spark's processes that fork its Python workers import what takes longest, once for all workers.

Python runs this at its start, for the folder is on the path. The newest release forks a worker for every step of a data
source in Python, and each would import pyarrow anew; the workers still find and import lakefmt on their own.
"""

from __future__ import annotations

import sys

if "pyspark.daemon" in sys.orig_argv:
    import numpy  # noqa: F401
    import pyarrow
    import pyarrow.compute
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401
