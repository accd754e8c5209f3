"""The protocol of a table lock of your own: docs/locks.md; ``lakefmt.testing.locks.LockSuite`` tests it."""

from lakefmt._core.timeline.locks.api import Lease, LockBackend, LockHandle, LockOptions, RetryPolicy
from lakefmt._core.timeline.locks.objects import StorageLock

__all__ = ["Lease", "LockBackend", "LockHandle", "LockOptions", "RetryPolicy", "StorageLock"]
