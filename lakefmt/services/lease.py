"""One process at a time serves a table: a lease in ``.hoodie/.lakefmt/services.lease`` (effects).

The lease is the object of Hudi's storage lock under a name of its own: replaced only as it was found, renewed while a round
runs, marked as given back at its end. The lease of a process that died ends by the clock, and the next process takes it.

The lease saves work and is not needed for safety: every service takes the table lock and a heartbeat, as it does
anywhere. So a store without compare-and-swap is served without a lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from lakefmt.filegroups.table_client import TableClient
from lakefmt.storage.api import remove_abandoned, with_versions
from lakefmt.timeline.locks.lease import TimedLease
from lakefmt.timeline.locks.storage import StorageLockBackend

__all__ = ["LEASE_NAME", "hold_table"]

LEASE_NAME: Final = ".hoodie/.lakefmt/services.lease"
#: A lease is renewed this many times before it would end.
_BEATS: Final = 4


@contextmanager
def hold_table(client: TableClient, owner: str, seconds: float) -> Iterator[Callable[[], None] | None]:
    """Hold the lease of a table inside the block; the call does not wait for it.

    Args:
        client: the table.
        owner: id of the process.
        seconds: how long the lease lasts unless it is renewed.

    Yields:
        A function that raises LeaseLost when the lease is lost; None: another process serves the table.

    Raises:
        CorruptFile: the lease is damaged.
        StorageError: the store did not answer.
    """
    store = client.store
    swapping = with_versions(store)
    if swapping is None:
        yield lambda: None
        return
    backend = StorageLockBackend(
        store,
        swapping,
        owner,
        lambda: client.clock.now().timestamp(),
        valid_seconds=seconds,
        beat_seconds=seconds / _BEATS,
        name=LEASE_NAME,
    )
    asked = client.time_source.monotonic()
    handle = backend.acquire()
    if handle is None:
        yield None
        return
    # A process that was killed while it renewed the lease left the temporary file of that write.
    remove_abandoned(store, LEASE_NAME.rpartition("/")[0], recursive=False)
    lease = TimedLease(handle, backend.what, client.time_source, asked)
    stop = lease.start()
    try:
        yield lease.check
    finally:
        stop()
        lease.end()
