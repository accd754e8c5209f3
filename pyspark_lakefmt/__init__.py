"""Found by PySpark 4 on its own: a top-level module of this kind of name offers the data source ``lakefmt``."""

from lakefmt.spark.data_source import LakefmtDataSource as DefaultSource

__all__ = ["DefaultSource"]
