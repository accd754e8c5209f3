"""Make and remove the metadata table and its indexes (docs/format.md, Metadata table).

Indexing is the action that makes indexes while other writers go on. A plan is put on the timeline first. Its runner holds
the table lock twice for a moment: to let writers keep the new indexes, and to publish them. A run that died is run again
from the beginning by the next one. All other functions that make or remove an index are called under the table lock, outside
of a commit. Requests of users are parsed and checked against the table before (:func:`parse_index_request`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa

from lakefmt._core.arguments import flag_argument, foreign, mapping_argument, shown, text_argument, texts_argument
from lakefmt._core.config.settings import Settings
from lakefmt._core.config.table_config import TableConfig, check_writable, parse_table_config
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.metadata.layout import (
    BUILD_ORDER,
    WITHOUT_FILES,
    IndexDefinition,
    PartitionKind,
    check_secondary_column,
    column_stats_definition,
    expression_index_definition,
    kind_of_partition,
    record_index_definition,
    secondary_index_definition,
)
from lakefmt._core.metadata.manage import (
    MetadataTableManager,
    PartitionBuild,
    begin_building,
    finish_building,
    inflight_partitions,
    load_definitions,
    partitions_by_settings,
)
from lakefmt._core.metadata.reader import ready_partitions
from lakefmt._core.metadata.records import PartitionUpdate
from lakefmt._core.metadata.statistics import indexed_columns, is_indexable
from lakefmt._core.metadata.updates import FirstKeys
from lakefmt._core.schema.types import field_at
from lakefmt._core.timeline.heartbeat import heartbeat_name
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant, State
from lakefmt._core.timeline.locks.api import Lease
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt._core.timeline.store import recover_properties
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.transactions.client import WriteClient, open_write_client
from lakefmt._core.transactions.instant import InstantTransaction
from lakefmt._core.values import InstantTime, TableVersion
from lakefmt.errors import (
    CorruptFile,
    InstantNotFound,
    InvalidInputError,
    MetadataTablePresent,
    ObjectNotFound,
    SnapshotExpired,
    UnsupportedFeature,
    WriterActive,
)

__all__ = [
    "IndexRequest",
    "change_metadata_table",
    "create_metadata_indexes",
    "definition_of",
    "drop_metadata_index",
    "in_build_order",
    "indexes_to_make_again",
    "parse_index_request",
    "parse_index_requests",
    "pending_indexing",
    "requests_of_definitions",
    "requests_of_new_table",
    "run_indexing",
    "schedule_indexing",
    "withdraw_indexing",
]

#: What an index rests on: it is made with it when it is missing.
_NEEDED_INDEX = {
    PartitionKind.PARTITION_STATS: PartitionKind.COLUMN_STATS,
    PartitionKind.SECONDARY_INDEX: PartitionKind.RECORD_INDEX,
}
#: The names that users write for indexes whose partition name has a suffix.
_USER_NAMES = {PartitionKind.SECONDARY_INDEX: "secondary_index", PartitionKind.EXPRESSION_INDEX: "expression_index"}
_KINDS_BY_USER_NAME = {_USER_NAMES.get(kind) or kind.value: kind for kind in BUILD_ORDER}
_REQUEST_FIELDS = ("kind", "columns", "name", "partitioned", "function", "index_type", "function_options")


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """What an expression index is of.

    Attributes:
        name: one of Spark's functions.
        index_type: ``column_stats`` or ``bloom_filters``.
        options: of the function, such as ``format``, and sizes of filters.
    """

    name: str
    index_type: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """An index that is to be made.

    Attributes:
        kind: what it is.
        columns: those it is on; empty: the kind's own choice.
        name: what a secondary or expression index is called behind its beginning; empty: as its column.
        partitioned: whether a record index has file groups of its own for each data partition.
        function: of an expression index.
    """

    kind: PartitionKind
    columns: tuple[str, ...] = ()
    name: str = ""
    partitioned: bool = False
    function: FunctionCall | None = None

    @property
    def partition(self) -> str:
        """The name of the metadata table's partition."""
        if self.kind not in _USER_NAMES:
            return str(self.kind.value)
        label: str = self.name or self.columns[0]
        return f"{self.kind.value}{label}"

    @property
    def needs(self) -> tuple[str, ...]:
        """The partitions that must be there with it, its own included."""
        below = _NEEDED_INDEX.get(self.kind)
        under = () if below is None else (below.value,)
        return tuple(dict.fromkeys((PartitionKind.FILES.value, *under, self.partition)))


def parse_index_request(
    kind: object,
    columns: object = None,
    *,
    name: object = None,
    partitioned: object = False,
    function: object = None,
    index_type: object = None,
    function_options: object = None,
) -> IndexRequest:
    """Return the index that arguments ask for.

    Parameters:
        kind: ``files``, ``column_stats``, ``partition_stats``, ``bloom_filters``, ``record_index``, ``secondary_index`` or
            ``expression_index``.
        columns: names; needed for a secondary or expression index, which is on one, and possible for ``column_stats``.
        name: of a secondary or expression index.
        partitioned: for ``record_index``.
        function: of an expression index.
        index_type: of an expression index: ``column_stats`` (None) or ``bloom_filters``.
        function_options: of an expression index, such as ``{"format": "yyyy-MM-dd"}``.

    Raises:
        InvalidInputError: the kind is unknown, or the arguments do not fit it.

    Example:
        >>> parse_index_request("secondary_index", ["city"]).partition
        'secondary_index_city'
    """
    parsed = _parse_kind(text_argument(kind, "kind"))
    if columns is None:
        names: tuple[str, ...] = ()
    else:
        names = tuple(dict.fromkeys(texts_argument([columns] if isinstance(columns, str) else columns, "columns")))
    called = "" if name is None else text_argument(name, "name")
    is_partitioned = flag_argument(partitioned, "partitioned")
    is_named = parsed in _USER_NAMES
    if is_named and len(names) != 1:
        what = "a secondary" if parsed is PartitionKind.SECONDARY_INDEX else "an expression"
        raise InvalidInputError(f"{what} index is on one column: name it, columns=['city']")
    if names and not is_named and parsed is not PartitionKind.COLUMN_STATS:
        raise InvalidInputError(f"{parsed.value} takes no columns")
    if called and not is_named:
        raise InvalidInputError(f"{parsed.value} takes no name: a table has one")
    if is_partitioned and parsed is not PartitionKind.RECORD_INDEX:
        raise InvalidInputError(f"partitioned=True is for record_index, not for {parsed.value}")
    label = called or (names[0] if is_named else "")
    if not all(char.isalnum() or char == "_" for char in label):
        raise InvalidInputError(f"name={label!r}: letters, digits and _ make the name of an index; give name=")
    call = _parse_function(parsed, function, index_type, function_options)
    return IndexRequest(parsed, names, called, is_partitioned, call)


def _parse_function(
    kind: PartitionKind, function: object, index_type: object, function_options: object
) -> FunctionCall | None:
    if kind is not PartitionKind.EXPRESSION_INDEX:
        if not (function is index_type is function_options is None):
            raise InvalidInputError("function, index_type and function_options are for expression_index")
        return None
    if function is None:
        raise InvalidInputError("an expression index is of a function: name it, function='upper'")
    stated = {str(key): str(value) for key, value in mapping_argument(function_options, "function_options").items()}
    typed = "column_stats" if index_type is None else text_argument(index_type, "index_type")
    return FunctionCall(text_argument(function, "function"), typed, stated)


def _parse_kind(name: str) -> PartitionKind:
    if name not in _KINDS_BY_USER_NAME:
        raise InvalidInputError(
            f"lakefmt makes no index of kind {name!r}: the kinds are {', '.join(_KINDS_BY_USER_NAME)}"
        )
    return _KINDS_BY_USER_NAME[name]


def parse_index_requests(indexes: object) -> tuple[IndexRequest, ...]:
    """Return the indexes that an argument ``indexes`` asks for.

    Parameters:
        indexes: kinds as texts, or mappings with ``kind``, ``columns``, ``name`` and the other arguments of
            :func:`parse_index_request`.

    Raises:
        InvalidInputError: one of them cannot be made, or comes twice.

    Example:
        >>> asked = parse_index_requests(["column_stats", {"kind": "secondary_index", "columns": "city"}])
        >>> [one.partition for one in asked]
        ['column_stats', 'secondary_index_city']
    """
    if isinstance(indexes, str | Mapping) or not isinstance(indexes, Iterable):
        raise InvalidInputError(f"indexes takes a list of kinds such as ['column_stats'], not {shown(indexes)}")
    parsed = []
    for each in foreign(lambda: list(indexes), "indexes takes a list of kinds"):
        if not isinstance(each, Mapping):
            parsed.append(parse_index_request(each))
            continue
        fields = mapping_argument(each, "indexes")
        unknown = [key for key in fields if key not in _REQUEST_FIELDS]
        if unknown or "kind" not in fields:
            raise InvalidInputError(f"an index is told by {', '.join(_REQUEST_FIELDS)}, not by {shown(list(fields))}")
        parsed.append(parse_index_request(**fields))
    names = [each.partition for each in parsed]
    if len(set(names)) < len(names):
        raise InvalidInputError(f"indexes names one of {', '.join(names)} twice")
    return tuple(parsed)


def requests_of_definitions(
    config: TableConfig, definitions: Mapping[str, IndexDefinition], schema: pa.Schema
) -> tuple[IndexRequest, ...]:
    """Return the indexes that a metadata table has, to make them again.

    Parameters:
        config: the table's properties.
        definitions: of its indexes.
        schema: its columns, without meta columns.

    Raises:
        MetadataTablePresent: there is one that lakefmt cannot make.
    """
    requests = []
    for name in config.metadata_partitions:
        partition_kind, definition = kind_of_partition(name), definitions.get(name)
        if partition_kind is None or (partition_kind in _USER_NAMES and definition is None):
            raise MetadataTablePresent(
                f"the metadata table has {name}, which lakefmt cannot make again: drop it first "
                f"(table.index.drop({name!r})), or the whole metadata table with options={{'hoodie.metadata.enable': 'false'}}"
            )
        columns = () if definition is None else definition.columns
        if partition_kind is PartitionKind.COLUMN_STATS:
            known = set(schema.names)
            columns = tuple(each for each in columns if each in known and is_indexable(schema.field(each).type))
        label = name.removeprefix(partition_kind.value) if partition_kind in _USER_NAMES else ""
        call = None
        if partition_kind is PartitionKind.EXPRESSION_INDEX and definition is not None:
            options = {key: value for key, value in definition.options.items() if key != "expr"}
            call = FunctionCall(definition.function, definition.index_type, options)
        is_partitioned = definition is not None and definition.is_partitioned
        requests.append(IndexRequest(partition_kind, columns, label, is_partitioned, call))
    return tuple(requests)


#: Indexes by which writes find keys that are in the metadata table.
_RECORD_INDEXES = {
    "record": IndexRequest(PartitionKind.RECORD_INDEX),
    "partitioned_record": IndexRequest(PartitionKind.RECORD_INDEX, partitioned=True),
}


def requests_of_new_table(
    requests: Sequence[IndexRequest] | None,
    index: str,
    config: TableConfig,
    schema: pa.Schema,
    settings: Settings,
) -> tuple[IndexRequest, ...]:
    """Return the indexes with which a table begins, checked against its columns.

    Parameters:
        requests: by the caller; None: those of the settings.
        index: the one by which writes find keys; the metadata table has record indexes.
        config: the properties of the table.
        schema: its columns.
        settings: of the call.

    Raises:
        InvalidInputError, UnsupportedFeature: see :func:`definition_of`.
    """
    if requests is None:
        requests = [IndexRequest(_parse_kind(name)) for name in partitions_by_settings(config, settings)]
    needed = _RECORD_INDEXES.get(index)
    if needed is not None:
        requests = [*(each for each in requests if each.kind is not needed.kind), needed]
    for request in requests:
        definition_of(request, config, schema, 1)
    return tuple(requests)


def definition_of(
    request: IndexRequest, config: TableConfig, schema: pa.Schema, most_columns: int
) -> dict[str, IndexDefinition]:
    """Return the definition of a new index by its name; none where the kind and the version have none.

    Parameters:
        request: the index.
        config: the table's properties.
        schema: its columns, without meta columns.
        most_columns: with statistics, when none are named.

    Raises:
        InvalidInputError: the table has no such column, or no statistics of its type are kept.
        UnsupportedFeature: tables of this version cannot have the index, or it cannot hold values of the column's type.
    """
    _check_version(request, config)
    for name in request.columns:
        nested = request.kind is PartitionKind.SECONDARY_INDEX and field_at(schema, name) is not None
        if name not in schema.names and not nested:
            raise InvalidInputError(f"the table has no column {name!r}; it has {', '.join(schema.names)}")
        if request.kind is PartitionKind.COLUMN_STATS and not is_indexable(schema.field(name).type):
            raise InvalidInputError(
                f"column {name!r} has type {schema.field(name).type}, of which no statistics are kept"
            )
    name = request.partition
    if request.kind is PartitionKind.SECONDARY_INDEX:
        definition = secondary_index_definition(name, request.columns[0], config.version)
        check_secondary_column(definition, schema)
        return {name: definition}
    if (call := request.function) is not None:
        column, version = request.columns[0], config.version
        return {name: expression_index_definition(name, call.index_type, call.name, column, call.options, version)}
    if config.version is TableVersion.SIX:
        return {}
    if request.kind is PartitionKind.COLUMN_STATS and request.columns:
        columns = indexed_columns(schema, request.columns, meta_columns=config.populate_meta_fields, most=most_columns)
        return {name: column_stats_definition(columns, config.version)}
    if request.kind is PartitionKind.RECORD_INDEX:
        return {name: record_index_definition(partitioned=request.partitioned)}
    return {}


def _check_version(request: IndexRequest, config: TableConfig) -> None:
    if request.kind is PartitionKind.PARTITION_STATS and not config.is_partitioned:
        raise InvalidInputError("partition_stats needs partitions: the table has none; column_stats are by file")
    if config.version is not TableVersion.SIX:
        return
    if request.kind in (*_USER_NAMES, PartitionKind.PARTITION_STATS) or request.partitioned:
        what = (
            "partitioned record index" if request.partitioned else _USER_NAMES.get(request.kind) or request.kind.value
        )
        raise UnsupportedFeature(f"tables of version 6 have no {what}: upgrade the table")
    if request.columns:
        raise UnsupportedFeature(
            "statistics of chosen columns need table version 8 or 9: version 6 keeps no list of them"
        )


def in_build_order(names: Iterable[str]) -> list[str]:
    """Return partitions of the metadata table in the order in which Hudi makes them.

    Example:
        >>> in_build_order(["secondary_index_c", "record_index", "files"])
        ['files', 'record_index', 'secondary_index_c']
    """

    def place(name: str) -> tuple[int, str]:
        partition_kind = kind_of_partition(name)
        return (len(BUILD_ORDER) if partition_kind is None else BUILD_ORDER.index(partition_kind), name)

    return sorted(names, key=place)


_PLAN_VERSION = 1
#: How often a build is begun again because a clean removed what it was reading.
_BUILD_ATTEMPTS = 3
#: Where a plan keeps what an index is on, behind the names of Hudi's own fields.
_COLUMNS_PARAMETER, _PARTITIONED_PARAMETER = "lakefmt.columns", "lakefmt.partitioned"


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
        manager = _fresh_manager(write_client, lease)
        planned = {
            name
            for pending in pending_indexing(manager.timeline)
            for name in _planned_partitions(_load_plan(client, manager, pending))
        }
        for request in requests:
            if request.kind is PartitionKind.EXPRESSION_INDEX:
                raise UnsupportedFeature(f"{request.partition} cannot be planned: make it at once, with create")
            if request.partition in (*manager.config.metadata_partitions, *planned):
                raise InvalidInputError(f"the metadata table has {request.partition} already, or a plan of it")
        _requested_definitions(manager, requests)  # refuses what the table cannot have
        if PartitionKind.FILES.value not in ready_partitions(manager.config):
            manager = replace(manager, config=manager.add([PartitionKind.FILES.value]))
        there = ready_partitions(manager.config)
        by_name = {request.partition: request for request in requests}
        names = in_build_order({name for request in requests for name in request.needs if name not in there})
        plan = {
            "version": _PLAN_VERSION,
            "indexPartitionInfos": [_partition_info(name, by_name.get(name), manager) for name in names],
        }
        body = encode_body(BodyKind.INDEX_PLAN, plan)
        state = TableState(manager.config, manager.timeline)
        claimed = InstantTransaction.claim(write_client.at(state), Action.INDEXING, lease, body, start=False)
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
            _run_pending(write_client, each)
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
        names = _planned_partitions(_load_plan(client, manager, pending))
        if name in names:
            withdrawn |= {*names}
            timeline_store.remove_pending(pending.time, Action.INDEXING)
            client.store.delete([heartbeat_name(pending.time)])
    return withdrawn


# --------------------------------------------------------------------------------------------------------------- a run


def _run_pending(write_client: WriteClient, time: InstantTime) -> None:
    with write_client.lock.hold() as lease:
        manager = _fresh_manager(write_client, lease)
        pending = next((each for each in pending_indexing(manager.timeline) if each.time == time), None)
        if pending is None:
            return  # run or dropped meanwhile
        plan = _load_plan(write_client.client, manager, pending)
        life = write_client.writer_liveness(manager.config, manager.timeline, pending)
        if pending.state is State.INFLIGHT and life.alive:
            raise WriterActive(f"{pending} may be at work in another process ({life.reason}); try again later")
        transaction = InstantTransaction.take_over(write_client, pending, lease)
        transaction.start(manager.config)
    with transaction:
        updates = _first_records(write_client, transaction, plan)
        with write_client.lock.hold() as lease:
            manager = _fresh_manager(write_client, lease)
            transaction.check_inflight(manager.timeline)
            config = finish_building(manager, updates)
            body = encode_body(BodyKind.INDEX_COMMIT_METADATA, _indexing_record(plan, manager.timeline))
            transaction.complete(lease, config, manager.timeline, body)
    transaction.finish(has_markers=False)


def _first_records(
    write_client: WriteClient, transaction: InstantTransaction, plan: Mapping[str, Any]
) -> dict[str, PartitionUpdate | FirstKeys]:
    """Return the first records of the indexes; begun again when a file was cleaned meanwhile."""
    for _ in range(_BUILD_ATTEMPTS - 1):
        with suppress(ObjectNotFound, SnapshotExpired):
            return _begin_build(write_client, transaction, plan).first_records()
    return _begin_build(write_client, transaction, plan).first_records()


def _begin_build(write_client: WriteClient, transaction: InstantTransaction, plan: Mapping[str, Any]) -> PartitionBuild:
    with write_client.lock.hold() as lease:
        manager = _fresh_manager(write_client, lease)
        transaction.check_inflight(manager.timeline)
        requests = _planned_requests(plan)
        there = ready_partitions(manager.config)
        names = in_build_order(name for name in _planned_partitions(plan) if name not in there)
        return begin_building(manager, names, _requested_definitions(manager, requests))


def _fresh_manager(write_client: WriteClient, lease: Lease) -> MetadataTableManager:
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


def _requested_definitions(
    manager: MetadataTableManager, requests: Sequence[IndexRequest]
) -> dict[str, IndexDefinition]:
    most = manager.settings.integer("hoodie.metadata.index.column.stats.max.columns.to.index")
    definitions: dict[str, IndexDefinition] = {}
    for request in requests:
        definitions |= definition_of(request, manager.config, manager.schema(), most)
    return definitions


# --------------------------------------------------------------------------------------------------------------- plans


def _load_plan(client: TableClient, manager: MetadataTableManager, pending: Instant) -> dict[str, Any]:
    """Return the plan of a pending indexing.

    Raises:
        CorruptFile: its requested file is damaged.
    """
    files = manager.timeline.files_of(pending)
    requested = next((file for file in files if file.state is State.REQUESTED), pending)
    body = client.timeline_store(manager.config).read_body(requested)
    return decode_body(BodyKind.INDEX_PLAN, body, what=requested.file_name)


def _planned_partitions(plan: Mapping[str, Any]) -> list[str]:
    return [str(info["metadataPartitionPath"]) for info in plan.get("indexPartitionInfos") or ()]


def _partition_info(name: str, request: IndexRequest | None, manager: MetadataTableManager) -> dict[str, object]:
    """Return what a plan says of one partition, as values."""
    extra: dict[str, str] = {}
    if request is not None and request.columns:
        extra[_COLUMNS_PARAMETER] = json.dumps(request.columns)
    if request is not None and request.partitioned:
        extra[_PARTITIONED_PARAMETER] = "true"
    return {
        "version": _PLAN_VERSION,
        "metadataPartitionPath": name,
        "indexUptoInstant": _last_before_pending(manager.timeline),
        "extraMetadata": extra,
    }


def _planned_requests(plan: Mapping[str, Any]) -> list[IndexRequest]:
    """Return the indexes whose definitions a plan tells; those of other engines' plans are stored with the table.

    Raises:
        UnsupportedFeature: lakefmt does not make one of them.
        CorruptFile: a name is no partition of a metadata table.
    """
    requests = []
    for info in plan.get("indexPartitionInfos") or ():
        name, extra = str(info["metadataPartitionPath"]), info.get("extraMetadata") or {}
        partition_kind = kind_of_partition(name)
        if partition_kind is None:
            raise CorruptFile(f"a plan of indexing names {name!r:.80}, which is no partition of a metadata table")
        if partition_kind is PartitionKind.EXPRESSION_INDEX:
            raise UnsupportedFeature(f"lakefmt does not make {name}: run the plan with the engine that made it")
        columns = _planned_columns(extra.get(_COLUMNS_PARAMETER), name)
        if columns or extra.get(_PARTITIONED_PARAMETER):
            label = name.removeprefix(partition_kind.value) if partition_kind is PartitionKind.SECONDARY_INDEX else ""
            requests.append(IndexRequest(partition_kind, columns, label, bool(extra.get(_PARTITIONED_PARAMETER))))
    return requests


def _planned_columns(json_text: object, name: str) -> tuple[str, ...]:
    """Return the columns that a plan tells of an index; none where it tells of none."""
    if json_text is None:
        return ()
    try:
        columns = json.loads(str(json_text))
    except (ValueError, RecursionError):
        columns = None
    if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
        raise CorruptFile(f"a plan of indexing tells the columns of {name} as {str(json_text)!r:.80}")
    return tuple(columns)


def _indexing_record(plan: Mapping[str, Any], timeline: Timeline) -> dict[str, object]:
    """Return the record of a completed indexing: the indexes hold everything that is complete."""
    latest = max((i.time for i in timeline.completed_of(*COMMIT_ACTIONS)), default=None)
    infos = [{**info, "indexUptoInstant": latest} for info in plan.get("indexPartitionInfos") or ()]
    return {"version": _PLAN_VERSION, "operationType": None, "indexPartitionInfos": infos}


def _last_before_pending(timeline: Timeline) -> InstantTime | None:
    """Return the last commit before the first write that is pending."""
    first = min((i.time for i in timeline.pending if i.action not in WITHOUT_FILES), default="~")
    return max((i.time for i in timeline.completed_of(*COMMIT_ACTIONS) if i.time < first), default=None)


def create_metadata_indexes(
    client: TableClient, requests: Sequence[IndexRequest], options: Mapping[str, object] | None = None
) -> tuple[str, ...]:
    """Make indexes of the metadata table from what is committed; the metadata table too if there is none.

    Writers that are at work go on: what they complete afterwards is in the indexes as well. What an index rests on is
    made with it; indexes that are there already stay as they are if others need them.

    Parameters:
        client: the table.
        requests: the indexes.
        options: settings of the call.

    Returns:
        The partitions that the metadata table has now.

    Raises:
        InvalidInputError: an index is there already, or the table has no such column.
        UnsupportedFeature: the table's version cannot have it.
    """
    return change_metadata_table(client, options, partial(_with_indexes, requests)).metadata_partitions


def indexes_to_make_again(client: TableClient, config: TableConfig) -> tuple[IndexRequest, ...]:
    """Return the indexes of a metadata table that is about to be dropped and made again.

    Parameters:
        client: the table.
        config: its properties.

    Raises:
        MetadataTablePresent: there is one that lakefmt cannot make.
    """
    if not config.metadata_partitions:
        return ()
    definitions = load_definitions(client, config)
    return requests_of_definitions(config, definitions, client.at(client.load()).schema())


def _with_indexes(requests: Sequence[IndexRequest], manager: MetadataTableManager) -> TableConfig:
    config, settings = manager.config, manager.settings
    there = [each.partition for each in requests if each.partition in config.metadata_partitions]
    if there:
        raise InvalidInputError(f"the metadata table has {', '.join(there)} already: drop it before you make it anew")
    by_option = settings.flag("hoodie.metadata.record.level.index.enable") and config.version is not TableVersion.SIX
    schema = manager.schema()
    definitions: dict[str, IndexDefinition] = {}
    for request in requests:
        is_record_index = request.kind is PartitionKind.RECORD_INDEX
        effective_request = (
            replace(request, partitioned=request.partitioned or by_option) if is_record_index else request
        )
        most = settings.integer("hoodie.metadata.index.column.stats.max.columns.to.index")
        new_definitions = definition_of(effective_request, config, schema, most)
        if request.kind is PartitionKind.EXPRESSION_INDEX:
            manager.check_expression(new_definitions[request.partition])
        definitions |= new_definitions
    names = {name for each in requests for name in each.needs if name not in config.metadata_partitions}
    return manager.add(in_build_order(names), definitions)


def drop_metadata_index(client: TableClient, name: str, options: Mapping[str, object] | None = None) -> tuple[str, ...]:
    """Remove an index of the metadata table, with those that rest on it; without ``files`` all of it goes.

    A plan that would make the index is withdrawn, with the other indexes that it has begun.

    Parameters:
        client: the table.
        name: the metadata table's partition; also one that lakefmt does not keep.
        options: settings of the call.

    Returns:
        The partitions that the metadata table has now.

    Raises:
        InvalidInputError: the table advertises no such index.
    """
    return change_metadata_table(client, options, partial(_without_index, name), writable=False).metadata_partitions


def _without_index(name: str, manager: MetadataTableManager) -> TableConfig:
    planned = withdraw_indexing(manager, name)
    for other in planned - {name}:  # what was begun with it would never be finished
        if other in inflight_partitions(manager.config):
            manager = replace(manager, config=manager.drop(other))
    if name in planned and name not in manager.config.metadata_partitions:
        return manager.config
    return manager.drop(name)


def change_metadata_table(
    client: TableClient,
    options: Mapping[str, object] | None,
    change: Callable[[MetadataTableManager], TableConfig],
    *,
    writable: bool = True,
) -> TableConfig:
    """Change the metadata table under the table lock; return the table's properties afterwards.

    Parameters:
        client: the table.
        options: settings of the call.
        change: what is done, given a manager with what the table is under the lock.
        writable: whether lakefmt must be able to keep every partition that is there.
    """
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        config = parse_table_config(recover_properties(client.store, durable=write_client.durable))
        check_writable(config if writable else replace(config, metadata_partitions=()))
        timeline = write_client.timeline(config).load()
        next_time = write_client.instant_time_generator(config, timeline)
        lease.check()
        return change(MetadataTableManager(client, config, timeline, write_client.settings, next_time))
