"""Object stores: objects by name, on local disks, in memory and through fsspec.

Only this package knows operating systems and fsspec. Start with :func:`open_store`; the protocols
are in :mod:`lakefmt._core.storage.api`.

``local`` has objects as files, ``atomic_files`` writes them in one step, ``process_lock`` excludes other processes of the machine.
``remote`` is the common part of stores over fsspec: ``remote_fsspec`` has the objects of any of its file systems, and those of Azure and
Google Cloud with conditional puts; ``remote_s3`` those of S3; ``remote_clients`` what they share: names of options, the bytes of an
upload, and what errors mean.
"""

from lakefmt._core.storage.api import Capabilities, ObjectInfo, ObjectStore, ObjectWriter, PutOutcome, check_name
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
    "check_name",
    "open_store",
]
