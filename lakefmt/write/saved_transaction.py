"""Writes whose steps are called one by one, in one process or in several: begun, found again, resumed, aborted.

A context is a plain value. The process that keeps the heartbeat of a write alive finds its transaction here; any other
process rebuilds the transaction from the context and from what the write has saved.
"""

from __future__ import annotations

from threading import Lock

import pyarrow as pa

from lakefmt.errors import CorruptFile, InstantNotPending
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.timeline.instant import Action
from lakefmt.timeline.markers import saved_write_name
from lakefmt.transactions.client import write_client_of
from lakefmt.transactions.instant import InstantTransaction
from lakefmt.write.bound_context import BoundContext
from lakefmt.write.commit.saved_write import SavedWrite, load_saved_write
from lakefmt.write.commit.transaction import PendingWrite, abort_instant, concurrency_of, take_over_write
from lakefmt.write.context import WriteContext, WriteRequest
from lakefmt.write.transaction import WriteTransaction

__all__ = ["abort_context", "begin_saved", "find_transaction", "resume_transaction"]

#: The transactions that this process keeps alive, by owner.
_running: dict[str, WriteTransaction] = {}
_running_lock = Lock()


def begin_saved(client: TableClient, request: WriteRequest, incoming: pa.Schema | None = None) -> WriteTransaction:
    """Begin a write that any process may commit or abort which has its context.

    Args:
        client: the table.
        request: what is asked for.
        incoming: the schema of the data; it may widen the table's.
    """
    transaction = WriteTransaction.begin(client, request, incoming)
    with transaction.aborted_on_error():
        transaction.save_for_others(SavedWrite(transaction.state.timeline, client.clock.now().timestamp()))
    _register(transaction)
    return transaction


def find_transaction(context: WriteContext) -> WriteTransaction | None:
    """Return the running write of a context, None when this process does not keep it alive."""
    with _running_lock:
        transaction = _running.get(context.owner)
    return transaction if transaction is not None and transaction.is_alive else None


def _register(transaction: WriteTransaction) -> None:
    with _running_lock:
        for owner in [owner for owner, other in _running.items() if not other.is_alive]:
            del _running[owner]  # it has ended, here or in another process
        if transaction.is_alive:
            _running[transaction.context.owner] = transaction


def resume_transaction(client: TableClient, context: WriteContext) -> WriteTransaction:
    """Rebuild a write that another process began; the heartbeat of a process that died is taken over.

    Args:
        client: the table of the context.
        context: the write.

    Raises:
        InstantNotPending: the write was committed, aborted or rolled back.
        WriterActive: the instant belongs to another writer.
        CorruptFile: what the write saved is damaged.
    """
    bound = BoundContext(client.store, context)
    write_client = write_client_of(client, bound.settings, context.owner)
    with take_over_write(write_client, context) as instant:
        saved = load_saved_write(client.store, context, bound.config.version.layout)
        if saved is None:
            raise CorruptFile(f"{saved_write_name(context.instant)} is missing: abort the write and begin it again")
        state = TableState(bound.config, saved.timeline)
        pending = PendingWrite(write_client, bound, state, concurrency_of(write_client), instant)
        transaction = WriteTransaction(pending, saved)
    _register(transaction)
    return transaction


def abort_context(client: TableClient, context: WriteContext) -> None:
    """Undo the write of a context, whichever process began it; may be repeated.

    Raises:
        WriterActive: the instant belongs to another writer.
    """
    running = find_transaction(context)
    if running is not None:
        running.abort()
        return
    bound = BoundContext(client.store, context)
    write_client = write_client_of(client, bound.settings, context.owner)
    try:
        instant = take_over_write(write_client, context)
    except InstantNotPending:
        instant = InstantTransaction(write_client, context.instant, Action(context.action))
    abort_instant(instant, is_saved=True)
