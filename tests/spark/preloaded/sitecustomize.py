"""Spark's processes that fork its Python workers import what takes longest, once for all workers.

Python runs this at its start, for the folder is on the path. The newest release forks a worker for every step of a data
source in Python, and each would import pyarrow anew; the workers still find and import lakefmt on their own.
"""

from __future__ import annotations

import sys

if "pyspark.daemon" in sys.orig_argv:
    import gc
    import zipimport

    import numpy  # noqa: F401
    import pyarrow
    import pyarrow.compute
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401

    # At every task a worker has Python forget what it knows of folders. It would then read the names in PySpark's archive
    # anew, once for each of its folders, for a tenth of a second; that archive does not change while a session runs.
    zipimport.zipimporter.invalidate_caches = lambda _: None
    # After every task a worker looks for garbage among all objects, half a million of them from modules, for as long again.
    # It still does so when it has made many.
    gc.collect = lambda *_: 0
