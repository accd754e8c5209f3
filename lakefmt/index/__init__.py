"""Where a key lives: one protocol, several answers."""

from lakefmt.index.api import Index, IndexKeys, KeyReader, Located, LookUpStep
from lakefmt.index.opening import open_index

__all__ = ["Index", "IndexKeys", "KeyReader", "Located", "LookUpStep", "open_index"]
