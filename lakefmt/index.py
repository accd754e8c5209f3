"""The protocol of an index of your own: docs/index.md, "An index of your own"; ``lakefmt.testing.indexes.IndexSuite`` tests it."""

from lakefmt._core.index.api import (
    Index,
    IndexCapabilities,
    IndexCommit,
    IndexContext,
    IndexKeys,
    KeyFileGroups,
    KeyPlacement,
    KeyReader,
    Located,
    PlacingIndex,
    SupportsCommit,
    SupportsGlobalLookup,
    SupportsKeyLocations,
)

__all__ = [
    "Index",
    "IndexCapabilities",
    "IndexCommit",
    "IndexContext",
    "IndexKeys",
    "KeyFileGroups",
    "KeyPlacement",
    "KeyReader",
    "Located",
    "PlacingIndex",
    "SupportsCommit",
    "SupportsGlobalLookup",
    "SupportsKeyLocations",
]
