"""Where a key lives: one protocol, several answers."""

from lakefmt.index.api import (
    Index,
    IndexCapabilities,
    IndexCommit,
    IndexContext,
    IndexFactory,
    IndexKeys,
    KeyFileGroups,
    KeyPlacement,
    KeyReader,
    Located,
    LookUpStep,
    PlacingIndex,
    announce_commit,
    capabilities_of,
    places_new_keys,
)
from lakefmt.index.bucket import check_no_buckets
from lakefmt.index.bucket_files import save_table_buckets
from lakefmt.index.bucket_settings import bucket_properties
from lakefmt.index.context import index_commit
from lakefmt.index.explain import IndexView, LookUpReport
from lakefmt.index.key_reader import key_files
from lakefmt.index.locations import locate_everywhere, partitions_of_keys, partitions_to_list
from lakefmt.index.record import record_index_name
from lakefmt.index.registry import (
    INDEX_NAMES,
    TABLE_INDEX_NAMES,
    choose_index,
    moves_between_partitions,
    open_index,
)

__all__ = [
    "INDEX_NAMES",
    "TABLE_INDEX_NAMES",
    "Index",
    "IndexCapabilities",
    "IndexCommit",
    "IndexContext",
    "IndexFactory",
    "IndexKeys",
    "IndexView",
    "KeyFileGroups",
    "KeyPlacement",
    "KeyReader",
    "Located",
    "LookUpReport",
    "LookUpStep",
    "PlacingIndex",
    "announce_commit",
    "bucket_properties",
    "capabilities_of",
    "check_no_buckets",
    "choose_index",
    "index_commit",
    "key_files",
    "locate_everywhere",
    "moves_between_partitions",
    "open_index",
    "partitions_of_keys",
    "partitions_to_list",
    "places_new_keys",
    "record_index_name",
    "save_table_buckets",
]
