"""Where a key lives: one protocol, several answers."""

from lakefmt.index.api import Index, IndexKeys, KeyReader, Located, LookUpStep
from lakefmt.index.explain import IndexView, LookUpReport
from lakefmt.index.key_reader import key_files
from lakefmt.index.lookup import locate_everywhere
from lakefmt.index.registry import INDEX_NAMES, choose_index, moves_between_partitions, open_index

__all__ = [
    "INDEX_NAMES",
    "Index",
    "IndexKeys",
    "IndexView",
    "KeyReader",
    "Located",
    "LookUpReport",
    "LookUpStep",
    "choose_index",
    "key_files",
    "locate_everywhere",
    "moves_between_partitions",
    "open_index",
]
