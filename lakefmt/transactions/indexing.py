"""Indexing: the action that makes indexes of the metadata table while other writers go on (docs/format.md, Metadata table).

A plan is put on the timeline first. Its runner holds the table lock twice for a moment: to let writers keep the new
indexes, and to publish them. A run that died is run again from the beginning by the next one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from lakefmt.config.table_config import check_writable, parse_table_config
from lakefmt.data_classes import replace
from lakefmt.errors import (
    CorruptFile,
    InstantNotFound,
    InvalidInputError,
    ObjectNotFound,
    SnapshotExpired,
    UnsupportedFeature,
    WriterActive,
)
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.metadata.building import PartitionBuild, begin_building, finish_building
from lakefmt.metadata.first_keys import FirstKeys
from lakefmt.metadata.index_definitions import IndexDefinition
from lakefmt.metadata.layout import WITHOUT_FILES, PartitionKind, kind_of_partition
from lakefmt.metadata.manage import MetadataTableManager
from lakefmt.metadata.reading.reader import ready_partitions
from lakefmt.metadata.records import PartitionUpdate
from lakefmt.timeline.heartbeat import heartbeat_name
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant, State
from lakefmt.timeline.locks.api import Lease
from lakefmt.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt.timeline.properties_store import recover_properties
from lakefmt.timeline.timeline import Timeline
from lakefmt.transactions.client import WriteClient, open_write_client
from lakefmt.transactions.index_request import IndexRequest, definition_of, in_build_order
from lakefmt.transactions.instant import InstantTransaction
from lakefmt.values import InstantTime

__all__ = ["pending_indexing", "run_indexing", "schedule_indexing", "withdraw_indexing"]

_VERSION = 1
#: How often a build is begun again because a clean removed what it was reading.
_ATTEMPTS = 3
#: Where a plan keeps what an index is on, behind the names of Hudi's own fields.
_COLUMNS, _PARTITIONED = "lakefmt.columns", "lakefmt.partitioned"


def schedule_indexing(
    client: TableClient, requests: Sequence[IndexRequest], options: Mapping[str, object] | None = None
) -> InstantTime:
    """Put the plan of an indexing on the timeline; nothing is made until it is run.

    The file listing is made at once if the table has no metadata table.

    Parameters:
        client: the table.
        requests: the indexes.
        options: settings of the call.

    Returns:
        The instant of the plan.

    Raises:
        InvalidInputError: an index is there already or planned, or the table has no such column.
        UnsupportedFeature: the table's version cannot have it.
    """
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        manager = _manager(write_client, lease)
        planned = {
            name for pending in pending_indexing(manager.timeline) for name in _names(_plan(client, manager, pending))
        }
        for request in requests:
            if request.kind is PartitionKind.EXPRESSION_INDEX:
                raise UnsupportedFeature(f"{request.partition} cannot be planned: make it at once, with create")
            if request.partition in (*manager.config.metadata_partitions, *planned):
                raise InvalidInputError(f"the metadata table has {request.partition} already, or a plan of it")
        _definitions(manager, requests)  # refuses what the table cannot have
        if PartitionKind.FILES.value not in ready_partitions(manager.config):
            manager = replace(manager, config=manager.add([PartitionKind.FILES.value]))
        there = ready_partitions(manager.config)
        by_name = {request.partition: request for request in requests}
        names = in_build_order({name for request in requests for name in request.needs if name not in there})
        plan = {"version": _VERSION, "indexPartitionInfos": [_info(name, by_name.get(name), manager) for name in names]}
        body = encode_body(BodyKind.INDEX_PLAN, plan)
        state = TableState(manager.config, manager.timeline)
        claimed = InstantTransaction.claim(write_client, state, Action.INDEXING, lease, body, start=False)
        claimed.finish(has_markers=False)
    return claimed.time


def run_indexing(
    client: TableClient, time: str | None = None, options: Mapping[str, object] | None = None
) -> tuple[str, ...]:
    """Run the pending plans of indexing, those of dead processes too; writers go on meanwhile.

    Parameters:
        client: the table.
        time: only the plan of this instant; None: every one that is not being run.
        options: settings of the call.

    Returns:
        The partitions of the metadata table that are ready for readers now.

    Raises:
        InstantNotFound: there is no such plan.
        WriterActive: another process is running the plan `time`.
        InvalidInputError: an index was dropped while it was built.
        UnsupportedFeature: the plan has an index that lakefmt does not make.
    """
    write_client = open_write_client(client, options)
    config = client.load_config()
    waiting = [
        pending.time
        for pending in pending_indexing(write_client.timeline(config).load())
        if time is None or pending.time == time
    ]
    if time is not None and not waiting:
        raise InstantNotFound(f"no indexing is pending at {time}")
    for each in waiting:
        try:
            _run(write_client, each)
        except WriterActive:
            if time is not None:
                raise
    return ready_partitions(client.load_config())


def pending_indexing(timeline: Timeline) -> list[Instant]:
    """Return the pending instants of indexing, oldest first. Pure."""
    return [instant for instant in timeline.pending if instant.action is Action.INDEXING]


def withdraw_indexing(manager: MetadataTableManager, name: str) -> set[str]:
    """Remove the pending plans that name an index; a process that runs one of them finds it gone. Under the table lock.

    Parameters:
        manager: of the metadata table.
        name: the metadata table's partition.

    Returns:
        All partitions that these plans name; empty: there was no such plan.
    """
    client = manager.client
    timeline_store = client.timeline_store(manager.config, durable=manager.durable)
    withdrawn: set[str] = set()
    for pending in pending_indexing(manager.timeline):
        names = _names(_plan(client, manager, pending))
        if name in names:
            withdrawn |= {*names}
            timeline_store.remove_pending(pending.time, Action.INDEXING)
            client.store.delete([heartbeat_name(pending.time)])
    return withdrawn


# --------------------------------------------------------------------------------------------------------------- a run


def _run(write_client: WriteClient, time: InstantTime) -> None:
    with write_client.lock.hold() as lease:
        manager = _manager(write_client, lease)
        pending = next((each for each in pending_indexing(manager.timeline) if each.time == time), None)
        if pending is None:
            return  # run or dropped meanwhile
        plan = _plan(write_client.client, manager, pending)
        life = write_client.writer_liveness(manager.config, manager.timeline, pending)
        if pending.state is State.INFLIGHT and life.alive:
            raise WriterActive(f"{pending} may be at work in another process ({life.reason}); try again later")
        transaction = InstantTransaction.take_over(write_client, pending, lease)
        transaction.start(manager.config)
    with transaction:
        updates = _first_records(write_client, transaction, plan)
        with write_client.lock.hold() as lease:
            manager = _manager(write_client, lease)
            transaction.check_inflight(manager.timeline)
            config = finish_building(manager, updates)
            body = encode_body(BodyKind.INDEX_COMMIT_METADATA, _result(plan, manager.timeline))
            transaction.complete(lease, config, manager.timeline, body)
    transaction.finish(has_markers=False)


def _first_records(
    write_client: WriteClient, transaction: InstantTransaction, plan: Mapping[str, Any]
) -> dict[str, PartitionUpdate | FirstKeys]:
    """Return the first records of the indexes; begun again when a file was cleaned meanwhile."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(ObjectNotFound, SnapshotExpired):
            return _begin(write_client, transaction, plan).first_records()
    return _begin(write_client, transaction, plan).first_records()


def _begin(write_client: WriteClient, transaction: InstantTransaction, plan: Mapping[str, Any]) -> PartitionBuild:
    with write_client.lock.hold() as lease:
        manager = _manager(write_client, lease)
        transaction.check_inflight(manager.timeline)
        requests = _requests(plan)
        there = ready_partitions(manager.config)
        names = in_build_order(name for name in _names(plan) if name not in there)
        return begin_building(manager, names, _definitions(manager, requests))


def _manager(write_client: WriteClient, lease: Lease) -> MetadataTableManager:
    """Return the manager of the metadata table as it is under this hold of the lock."""
    client = write_client.client
    config = parse_table_config(recover_properties(client.store, durable=write_client.durable))
    check_writable(config)
    timeline = write_client.timeline(config).load()
    next_time = write_client.instant_time_generator(config, timeline)

    def proved_time() -> InstantTime:
        lease.check()
        return next_time()

    lease.check()
    return MetadataTableManager(client, config, timeline, write_client.settings, proved_time)


def _definitions(manager: MetadataTableManager, requests: Sequence[IndexRequest]) -> dict[str, IndexDefinition]:
    most = manager.settings.integer("hoodie.metadata.index.column.stats.max.columns.to.index")
    definitions: dict[str, IndexDefinition] = {}
    for request in requests:
        definitions |= definition_of(request, manager.config, manager.schema(), most)
    return definitions


# --------------------------------------------------------------------------------------------------------------- plans


def _plan(client: TableClient, manager: MetadataTableManager, pending: Instant) -> dict[str, Any]:
    """Return the plan of a pending indexing.

    Raises:
        CorruptFile: its requested file is damaged.
    """
    files = manager.timeline.files_of(pending)
    requested = next((file for file in files if file.state is State.REQUESTED), pending)
    body = client.timeline_store(manager.config).read_body(requested)
    return decode_body(BodyKind.INDEX_PLAN, body, what=requested.file_name)


def _names(plan: Mapping[str, Any]) -> list[str]:
    return [str(info["metadataPartitionPath"]) for info in plan.get("indexPartitionInfos") or ()]


def _info(name: str, request: IndexRequest | None, manager: MetadataTableManager) -> dict[str, object]:
    """Return what a plan says of one partition, as values."""
    extra: dict[str, str] = {}
    if request is not None and request.columns:
        extra[_COLUMNS] = json.dumps(request.columns)
    if request is not None and request.partitioned:
        extra[_PARTITIONED] = "true"
    return {
        "version": _VERSION,
        "metadataPartitionPath": name,
        "indexUptoInstant": _last_before_pending(manager.timeline),
        "extraMetadata": extra,
    }


def _requests(plan: Mapping[str, Any]) -> list[IndexRequest]:
    """Return the indexes whose definitions a plan tells; those of other engines' plans are stored with the table.

    Raises:
        UnsupportedFeature: lakefmt does not make one of them.
        CorruptFile: a name is no partition of a metadata table.
    """
    requests = []
    for info in plan.get("indexPartitionInfos") or ():
        name, extra = str(info["metadataPartitionPath"]), info.get("extraMetadata") or {}
        kind = kind_of_partition(name)
        if kind is None:
            raise CorruptFile(f"a plan of indexing names {name!r:.80}, which is no partition of a metadata table")
        if kind is PartitionKind.EXPRESSION_INDEX:
            raise UnsupportedFeature(f"lakefmt does not make {name}: run the plan with the engine that made it")
        columns = _columns(extra.get(_COLUMNS), name)
        if columns or extra.get(_PARTITIONED):
            label = name.removeprefix(kind.value) if kind is PartitionKind.SECONDARY_INDEX else ""
            requests.append(IndexRequest(kind, columns, label, bool(extra.get(_PARTITIONED))))
    return requests


def _columns(text: object, name: str) -> tuple[str, ...]:
    """Return the columns that a plan tells of an index; none where it tells of none."""
    if text is None:
        return ()
    try:
        columns = json.loads(str(text))
    except (ValueError, RecursionError):
        columns = None
    if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
        raise CorruptFile(f"a plan of indexing tells the columns of {name} as {str(text)!r:.80}")
    return tuple(columns)


def _result(plan: Mapping[str, Any], timeline: Timeline) -> dict[str, object]:
    """Return the record of a completed indexing: the indexes hold everything that is complete."""
    latest = max((i.time for i in timeline.completed_of(*COMMIT_ACTIONS)), default=None)
    infos = [{**info, "indexUptoInstant": latest} for info in plan.get("indexPartitionInfos") or ()]
    return {"version": _VERSION, "operationType": None, "indexPartitionInfos": infos}


def _last_before_pending(timeline: Timeline) -> InstantTime | None:
    """Return the last commit before the first write that is pending."""
    first = min((i.time for i in timeline.pending if i.action not in WITHOUT_FILES), default="~")
    return max((i.time for i in timeline.completed_of(*COMMIT_ACTIONS) if i.time < first), default=None)
