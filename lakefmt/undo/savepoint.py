"""``table.savepoint``: keep the state of a commit until the savepoint is deleted (docs/format.md, Savepoint)."""

from __future__ import annotations

from collections.abc import Mapping

from lakefmt.config.table_config import check_writable
from lakefmt.data_classes import replace
from lakefmt.errors import AlreadyExistsError, InstantNotFound, StateError
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant
from lakefmt.timeline.locks.api import Lease
from lakefmt.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt.timeline.savepoint import (
    Savepoint,
    parse_savepoint,
    savepoint_record,
    savepoints_of,
    select_instants_to_undo,
)
from lakefmt.transactions.client import WriteClient, open_write_client
from lakefmt.transactions.instant import InstantTransaction
from lakefmt.transactions.recovery import finish_dead_restores
from lakefmt.undo._historical_state import check_whole, state_without
from lakefmt.values import PartitionPath, TableType

__all__ = ["create_savepoint", "delete_savepoint", "list_savepoints", "plan_savepoint_of"]


def list_savepoints(client: TableClient) -> tuple[Savepoint, ...]:
    """Return the savepoints of a table, by the time of their commits.

    Raises:
        CorruptFile: the body of one is damaged.
    """
    state = client.load()
    return tuple(_read(client, state, instant) for instant in savepoints_of(state.timeline))


def _read(client: TableClient, state: TableState, instant: Instant) -> Savepoint:
    body = client.read_body(state, instant)
    record = decode_body(BodyKind.SAVEPOINT_METADATA, body, what=instant.file_name)
    return parse_savepoint(instant.time, record, instant.file_name)


def plan_savepoint_of(client: TableClient, instant: str | None, comment: str, user: str) -> Savepoint:
    """Return the savepoint that :func:`create_savepoint` would make; nothing is changed."""
    return _plan(client, client.load(), instant, comment, user)[1]


def create_savepoint(
    client: TableClient,
    instant: str | None = None,
    comment: str = "",
    user: str = "",
    options: Mapping[str, object] | None = None,
) -> Savepoint:
    """Keep the state of a commit.

    Args:
        client: the table.
        instant: the commit's requested or completion time; None: the newest.
        comment: why.
        user: name kept in the savepoint.
        options: settings of the call.

    Raises:
        InstantNotFound: the timeline has no such instant, or no commit at all.
        AlreadyExistsError: a savepoint keeps it already.
        StateError: it is no completed commit, or a clean has removed files of its state.
        LockUnavailable: the table lock could not be had in time.
    """
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        state = _settled(write_client, lease)
        target, savepoint, record = _plan(client, state, instant, comment, user)
        lease.check()
        with InstantTransaction(write_client, target.time, Action.SAVEPOINT) as transaction:
            transaction.start(state.config)
            timeline = write_client.timeline(state.config).load()
            transaction.complete(lease, state.config, timeline, encode_body(BodyKind.SAVEPOINT_METADATA, record))
    return savepoint


def _settled(write_client: WriteClient, lease: Lease) -> TableState:
    """Finish dead restores and return the table; call under the table lock."""
    config = write_client.client.load_config()
    check_writable(replace(config, metadata_partitions=()))  # a savepoint changes no file that a metadata table lists
    timeline_store = write_client.timeline(config)
    timeline = timeline_store.load()
    if finish_dead_restores(write_client, config, timeline, lease):
        timeline = timeline_store.load()
    return TableState(config, timeline)


def _plan(
    client: TableClient, state: TableState, instant: str | None, comment: str, user: str
) -> tuple[Instant, Savepoint, dict[str, object]]:
    target = _find_commit(state, instant)
    if any(i.time == target.time for i in savepoints_of(state.timeline)):
        raise AlreadyExistsError(f"a savepoint keeps {target.time} already")
    on_read = state.config.table_type is TableType.MERGE_ON_READ
    undone = select_instants_to_undo(state.timeline, target, merge_on_read=on_read)
    earlier = state_without(client, state, undone)
    slices = check_whole(client, state, earlier, f"the state of {target.time} cannot be kept")
    files: dict[PartitionPath, tuple[str, ...]] = {}
    for file_slice in slices:
        names = tuple(path.rpartition("/")[2] for path in file_slice.paths)
        files[file_slice.partition] = (*files.get(file_slice.partition, ()), *names)
    record = savepoint_record(user, comment, client.clock.now(), files)
    return target, parse_savepoint(target.time, record, "the savepoint"), record


def _find_commit(state: TableState, instant: str | None) -> Instant:
    if instant is None:
        newest = state.timeline.latest_commit
        if newest is None:
            raise InstantNotFound("the table has no commit yet: there is nothing to keep")
        return newest
    target = state.timeline.find(instant)
    if target.action not in COMMIT_ACTIONS or not target.is_completed:
        raise StateError(f"{target} is no completed commit: only the state of one can be kept")
    return target


def delete_savepoint(client: TableClient, instant: str, options: Mapping[str, object] | None = None) -> None:
    """Delete a savepoint: the next clean may delete its files, the next archive step may move its commit.

    Args:
        client: the table.
        instant: the requested or completion time of its commit, or the completion time of the savepoint.
        options: settings of the call.

    Raises:
        InstantNotFound: there is no such savepoint.
        LockUnavailable: the table lock could not be had in time.
    """
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        state = _settled(write_client, lease)
        timeline_store = write_client.timeline(state.config)
        commits = {i.time for i in state.timeline.commits if instant in (i.time, i.completion)}
        savepoints = [
            i for i in savepoints_of(state.timeline) if i.time in commits or instant in (i.time, i.completion)
        ]
        if not savepoints:
            raise InstantNotFound(f"no savepoint keeps {instant}; table.savepoints() names those there are")
        lease.check()
        timeline_store.reopen(savepoints[0])
        timeline_store.remove_pending(savepoints[0].time, Action.SAVEPOINT)
