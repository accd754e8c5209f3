"""lakefmt: Apache Hudi tables from Python, without a cluster.

Three audiences: everyone uses ``lakefmt``; engines that spread work use ``lakefmt.lowlevel``; people who test against
tables use ``lakefmt.testing``.
"""

from lakefmt import errors
from lakefmt.errors import LakefmtError
from lakefmt.read.snapshot import Snapshot
from lakefmt.table import Table, create_table, open_table
from lakefmt.values import CommitResult

__version__ = "0.1.0"

__all__ = ["CommitResult", "LakefmtError", "Snapshot", "Table", "create_table", "errors", "open_table"]
