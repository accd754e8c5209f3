"""Where a key is stored: one protocol of capabilities, several indexes.

``api`` is the protocol and ``registry`` chooses the index of a write. ``bloom`` and ``simple`` look into base files
(``lookup``, ``key_reader``), ``bucket`` computes the file group, ``record`` asks the metadata table; ``sqlite`` and
``custom`` keep their own. ``explain`` says how a key was found.
"""

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
from lakefmt.index.bucket.consistent import ConsistentBucketIndex
from lakefmt.index.bucket.fixed import check_no_buckets
from lakefmt.index.bucket.settings import INDEX_TYPE, asked_bucket_properties, bucket_properties
from lakefmt.index.bucket.table_index import save_table_buckets
from lakefmt.index.context import index_commit
from lakefmt.index.explain import IndexView, LookUpReport
from lakefmt.index.key_reader import key_files
from lakefmt.index.locations import locate_everywhere, partitions_of_keys, partitions_to_list
from lakefmt.index.record import RecordIndex, bringing_instants, record_index_name
from lakefmt.index.registry import (
    INDEX_NAMES,
    TABLE_INDEX_NAMES,
    choose_index,
    moves_between_partitions,
    open_index,
)

__all__ = [
    "INDEX_NAMES",
    "INDEX_TYPE",
    "TABLE_INDEX_NAMES",
    "ConsistentBucketIndex",
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
    "RecordIndex",
    "announce_commit",
    "asked_bucket_properties",
    "bringing_instants",
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
