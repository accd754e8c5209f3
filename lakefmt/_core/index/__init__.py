"""Where a key is stored: one protocol of capabilities, several indexes.

``api`` is the protocol and ``registry`` chooses the index of a write. ``bloom`` has the indexes that look into base
files (``lookup``, ``key_reader``), ``bucket_index`` computes the file group from the key's hash, by a number of
buckets (``bucket_counts``) or a ring of nodes (``bucket_ring``, stored in ``bucket_ring_files``); ``record`` asks the metadata table;
``custom`` are a user's own.
"""

from lakefmt._core.index.api import (
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
    PlacementKeeper,
    PlacingIndex,
    announce_commit,
    capabilities_of,
    keeps_placement,
    locate_everywhere,
    partitions_of_keys,
    partitions_to_list,
    places_new_keys,
)
from lakefmt._core.index.key_reader import key_files
from lakefmt._core.index.registry import (
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
    "KeyFileGroups",
    "KeyPlacement",
    "KeyReader",
    "Located",
    "LookUpStep",
    "PlacementKeeper",
    "PlacingIndex",
    "announce_commit",
    "capabilities_of",
    "choose_index",
    "keeps_placement",
    "key_files",
    "locate_everywhere",
    "moves_between_partitions",
    "open_index",
    "partitions_of_keys",
    "partitions_to_list",
    "places_new_keys",
]
