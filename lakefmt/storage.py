"""The protocol of an object store, and the stores of this machine; ``lakefmt.testing.suites.StoreSuite`` tests one of your own."""

from lakefmt._core.storage.api import (
    Capabilities,
    ObjectInfo,
    ObjectStore,
    ObjectWriter,
    PutOutcome,
    SupportsVersions,
    with_versions,
)
from lakefmt._core.storage.local import LocalStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.storage.open import open_store

__all__ = [
    "Capabilities",
    "LocalStore",
    "MemoryStore",
    "ObjectInfo",
    "ObjectStore",
    "ObjectWriter",
    "PutOutcome",
    "SupportsVersions",
    "open_store",
    "with_versions",
]
