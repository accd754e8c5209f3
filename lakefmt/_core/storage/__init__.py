"""Object stores: objects by name, on local disks, in memory and through fsspec.

Only this package knows operating systems and fsspec. Start with :func:`open_store`; the protocols
are in :mod:`lakefmt._core.storage.api`.
"""

from lakefmt._core.storage.api import Capabilities, ObjectInfo, ObjectStore, ObjectWriter, PutOutcome, check_name
from lakefmt._core.storage.local.store import LocalStore
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
    "check_name",
    "open_store",
]
