"""The values of a write: its request, its context, its assignments, and what its commit says of streams and applications.

:class:`BoundContext` is the context together with the table's store; it announces files by markers before they are written.

They pass between the process that begins a write and its workers. :class:`WriteContext`, :class:`FileAssignment` and
:class:`WriteStatus` are frozen; they pickle, and hold neither open files nor secrets.

What a commit says of streams, applications and the watermark is decided by a function (:class:`CommitEntries`). It is
called when the table lock is held and the write is about to complete, so it sees the newest commit of every process. It
returns the entries of this commit, or that an earlier commit has done the same: then the write is undone, and its result
names the earlier one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final, Protocol

from lakefmt._core.arguments import flag_argument, is_encodable, mapping_argument, shown, text_argument
from lakefmt._core.config.merge_rule import adopt_merger
from lakefmt._core.config.settings import Settings, resolve_settings
from lakefmt._core.config.table_config import TableConfig, cdc_mode, merge_rule, parse_table_config
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import BaseFile, join_path
from lakefmt._core.filegroups.reader import virtual_columns_of
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.names import PARTITION_METADATA, MarkerType
from lakefmt._core.formats.properties import encode_properties
from lakefmt._core.schema import avro_to_arrow
from lakefmt._core.schema.history import LATEST_SCHEMA, parse_history
from lakefmt._core.storage.api import ObjectStore, remove_abandoned
from lakefmt._core.storage.parallel import BegunRequest
from lakefmt._core.timeline.commit import (
    ENTRY_PREFIXES,
    SCHEMA_KEY,
    WATERMARK,
    CommitMetadata,
    combine_entries,
    milliseconds_of,
)
from lakefmt._core.timeline.instant import Action
from lakefmt._core.timeline.markers import OwnMarkers, create_marker, create_markers
from lakefmt._core.timeline.observer import WrittenKeys
from lakefmt._core.timeline.store import put_if_absent_confirmed
from lakefmt._core.transactions.client import is_beside
from lakefmt._core.transactions.instant import find_entries, with_stored_entries
from lakefmt._core.values import (
    CommitResult,
    FileId,
    InstantTime,
    PartitionPath,
    WriteOperation,
    WriteStat,
    check_instant_time,
)
from lakefmt.errors import CommitConflict, InvalidInputError, UnknownSetting
from lakefmt.options import WriteOptions

if TYPE_CHECKING:
    from lakefmt._core.schema.alter import Alteration
    from lakefmt._core.schema.column_ids import ColumnIds

__all__ = [
    "APPENDING",
    "ARGUMENTS",
    "MOVED_AWAY",
    "OVERWRITES",
    "REPLACING",
    "AlreadyDone",
    "Announcements",
    "BoundContext",
    "CommitEntries",
    "EntryView",
    "FileAssignment",
    "LogTarget",
    "OnCommit",
    "WriteContext",
    "WritePlan",
    "WriteRequest",
    "WriteStatus",
    "add_entries",
    "honour_spark_options",
    "marker_of",
    "parse_call",
    "prepare",
    "skipped_result",
    "view_entries",
]

OnCommit = Callable[[CommitResult], object]


@dataclass(frozen=True, slots=True)
class EntryView:
    """What a write sees of the entries of a table.

    Attributes:
        table_at: the table, at one moment.
        entries: the entries of the newest commit that has any (:mod:`lakefmt._core.timeline.commit`).
        now_ms: the time of the table's clock, in milliseconds since 1970.
        instant: requested time of the write; None before it has begun.
    """

    client: TableClient
    state: TableState
    entries: Mapping[str, str]
    now_ms: int
    instant: InstantTime | None = None


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """An earlier commit has what a write brings.

    Attributes:
        instant: requested time of that commit; None: it is not known any more.
    """

    instant: InstantTime | None


class CommitEntries(Protocol):
    """What a commit says of streams, applications and the watermark."""

    def __call__(self, view: EntryView) -> Mapping[str, str] | AlreadyDone:
        """Return the entries of the commit, or that an earlier one has done the same.

        Called under the table lock; raising refuses the write, and nothing is changed. May be called several times for
        one write, since a write that conflicts is repeated.
        """
        ...


def view_entries(table_at: TableAt, instant: InstantTime | None = None) -> EntryView:
    """Return what is stored of streams, applications and the watermark."""
    return EntryView(
        table_at.client, table_at.state, find_entries(table_at), milliseconds_of(table_at.client.clock.now()), instant
    )


def add_entries(
    table_at: TableAt,
    metadata: CommitMetadata,
    entries_of: CommitEntries | None,
    instant: InstantTime,
    watermark: int | None = None,
) -> CommitMetadata | CommitResult:
    """Return the metadata of a commit with its entries, or the result of an earlier commit that has its rows.

    Call under the table lock.

    Args:
        table_at: the table, at one moment.
        metadata: what the commit says so far.
        entries_of: what the write was given; None: the commit repeats what the one before it says.
        instant: requested time of the write.
        watermark: what the event times of its rows promise, where it is not given another one.
    """
    if entries_of is None and watermark is None:
        return with_stored_entries(table_at, metadata)
    view = view_entries(table_at, instant)
    new = {} if entries_of is None else entries_of(view)
    if isinstance(new, AlreadyDone):
        return skipped_result(table_at.state, new, metadata.operation)
    if table_at.timeline.layout == 1:
        _check_not_hidden(table_at, new, instant)
    if watermark is not None:
        new = {WATERMARK: str(watermark), **new}
    entries = combine_entries(view.entries, new, view.now_ms)
    return replace(metadata, extra_metadata={**metadata.extra_metadata, **entries})


def _check_not_hidden(table_at: TableAt, entries: Mapping[str, str], instant: InstantTime) -> None:
    """Refuse entries that nobody would find: in version 6 the newest commit is the one that began last, whenever it ended.

    Raises:
        CommitConflict: a commit that began later repeats what was said before.
    """
    repeats = any(name.startswith(ENTRY_PREFIXES) for name in entries)
    for other in reversed(table_at.timeline.commits):
        if other.time <= instant:
            return
        commit = table_at.commit_metadata(other)
        if (repeats and commit.entries) or not entries.keys().isdisjoint(commit.extra_metadata):
            raise CommitConflict(
                f"the commit {other.time} began later than this one ({instant}), has ended, and repeats older entries of streams, applications or jobs: "
                "this one has to begin anew, or its own would not be found",
                other_instant=other.time,
            )


def skipped_result(state: TableState, done: AlreadyDone, operation: WriteOperation) -> CommitResult:
    """Return the result of a write that was left out, since an earlier commit has its rows."""
    earlier = next((each for each in state.timeline.commits if each.time == done.instant), None)
    if earlier is None:
        return CommitResult(done.instant, operation=operation, skipped=True)
    return CommitResult(done.instant, earlier.completion, earlier.action.value, operation, skipped=True)


#: A column of routed rows, never stored: True takes the key out of the file, because it has moved to another partition or
#: the table's own function has deleted it.
MOVED_AWAY = "_lakefmt_moved_away"


#: Operations that replace file groups by rows.
OVERWRITES: Final = frozenset({WriteOperation.INSERT_OVERWRITE, WriteOperation.INSERT_OVERWRITE_TABLE})
#: Operations that hide file groups.
REPLACING: Final = frozenset({*OVERWRITES, WriteOperation.DELETE_PARTITION})
#: Operations that add rows without looking for their keys.
APPENDING: Final = frozenset({WriteOperation.INSERT, WriteOperation.BULK_INSERT, *REPLACING})
_COMMIT_ACTIONS: Final = frozenset(
    action.value for action in (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)
)
_OPERATION_NAMES: Final = frozenset(operation.value for operation in WriteOperation)
_CONTEXT_VERSION: Final = 1
_TEXT_FIELDS: Final = ("url", "owner", "instant", "action", "schema_text", "file_schema_text")


@dataclass(frozen=True, slots=True)
class WriteContext:
    """A write that has begun: its instant is inflight, nothing is visible. Its holder may commit or abort the write.

    Attributes:
        url: the location of the table, without secrets.
        owner: the id of this write, a UUID; its heartbeat file repeats it.
        instant: requested time.
        action: the timeline action, such as ``commit``.
        schema_text: Avro schema of the table after this write, without meta columns.
        file_schema_text: the same with meta columns, for the files' footers.
        properties: the table's properties when the write began.
        options: settings of the call and of the handle.
        commit_metadata: texts that the commit repeats.
        partial: rows may lack columns; stored values stay.
        drop_duplicates: rows whose key is stored, or comes twice, are left out.
        schema_history: the schemas with column ids, the table's after this write first; empty: its columns have no ids.
    """

    url: str
    owner: str
    instant: InstantTime
    action: str
    operation: WriteOperation
    schema_text: str
    file_schema_text: str
    properties: Mapping[str, str] = field(repr=False)
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    commit_metadata: Mapping[str, str] = field(default_factory=dict)
    partial: bool = False
    drop_duplicates: bool = False
    schema_history: str = field(default="", repr=False)

    def to_json(self) -> str:
        """Return the context as JSON text; :meth:`from_json` takes it back, in any process.

        Example:
            >>> context = WriteContext(
            ...     "/t", "o", "20260101000000000", "commit", WriteOperation.INSERT, "{}", "{}", {"hoodie.table.name": "t"}
            ... )
            >>> WriteContext.from_json(context.to_json()) == context
            True
        """
        plain = {name: getattr(self, name) for name in (*_TEXT_FIELDS, "partial", "drop_duplicates", "schema_history")}
        mappings = {name: dict(getattr(self, name)) for name in ("properties", "options", "commit_metadata")}
        body = {"version": _CONTEXT_VERSION, "operation": self.operation.value, **plain, **mappings}
        return json.dumps(body, default=str)

    @classmethod
    def from_json(cls, text: str | bytes) -> WriteContext:
        """Return the context that :meth:`to_json` gave.

        Raises:
            InvalidInputError: the text is not such a context.
        """
        try:
            body = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            raise InvalidInputError(f"a write context is the text that to_json() gave, not {shown(text)}") from None
        if not isinstance(body, dict) or body.get("version") != _CONTEXT_VERSION:
            raise InvalidInputError(f"this is not a write context of version {_CONTEXT_VERSION}: {shown(body)}")
        texts = {name: _stored_text(body, name) for name in _TEXT_FIELDS}
        operation, flags = body.get("operation"), [body.get(name) for name in ("partial", "drop_duplicates")]
        if (
            texts["action"] not in _COMMIT_ACTIONS
            or not isinstance(operation, str)
            or operation not in _OPERATION_NAMES
        ):
            raise InvalidInputError(
                f"write context: unknown action or operation: {shown((texts['action'], operation))}"
            )
        if not all(isinstance(flag, bool) for flag in flags):
            raise InvalidInputError(f"write context: partial and drop_duplicates are true or false, not {shown(flags)}")
        properties = _stored_mapping(body, "properties")
        return cls(
            url=texts["url"],
            owner=texts["owner"],
            instant=check_instant_time(texts["instant"]),
            action=texts["action"],
            operation=WriteOperation(operation),
            schema_text=texts["schema_text"],
            file_schema_text=texts["file_schema_text"],
            properties={name: str(value) for name, value in properties.items()},
            options=_stored_mapping(body, "options"),
            commit_metadata={name: str(value) for name, value in _stored_mapping(body, "commit_metadata").items()},
            partial=bool(flags[0]),
            drop_duplicates=bool(flags[1]),
            schema_history=_stored_text(body, "schema_history") if body.get("schema_history") else "",
        )

    @property
    def keeps_empty(self) -> bool:
        """True when a commit without rows still says something."""
        # An overwrite with no rows empties what it overwrites; metadata may carry a checkpoint.
        return bool(self.commit_metadata) or self.operation in REPLACING


def _stored_text(body: Mapping[str, object], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value or not is_encodable(value):
        raise InvalidInputError(f"write context: {name} is not a text: {shown(value)}")
    return value


def _stored_mapping(body: Mapping[str, object], name: str) -> dict[str, object]:
    value = body.get(name)
    if not isinstance(value, dict) or not all(isinstance(each, str | int | float | None) for each in value.values()):
        raise InvalidInputError(f"write context: {name} is not a mapping of names to plain values: {shown(value)}")
    return value


@dataclass(frozen=True, slots=True)
class LogTarget:
    """Where an assigned log file stands in its file slice.

    Attributes:
        base_instant: the slice's instant.
        version: the number in the log's name.
        older: names of the slice's logs, oldest first.
    """

    base_instant: InstantTime
    version: int
    older: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileAssignment:
    """One file to write: its name is fixed here, so that a second attempt finds what the first one wrote.

    Attributes:
        base: the file that is rewritten, or on top of which a log goes; None opens a new file group, or the log's group
            has none.
        match_keys: True when incoming rows replace stored rows of the same key; False appends them.
        num_rows: rows routed to this file, None when the sender does not know yet (a stream).
        sequence: the number that the rows' sequence numbers and the write token begin with.
        new_partition: True when the partition may not exist yet.
        log: where the log stands, when the rows go to one; None: to a base file.
        may_bring_keys: rows of a log may have keys that the file group does not have yet: they were not looked up.
        is_copy: the rows of this log are in another file group, too, from which a pending clustering takes them to this one.
        digest: tells its rows from others; a base file of an earlier attempt with other rows is not adopted. None: unknown.
        path: the file to write, relative to the table.
    """

    partition: PartitionPath
    file_id: FileId
    file_name: str
    base: BaseFile | None
    match_keys: bool
    num_rows: int | None
    sequence: int
    new_partition: bool = False
    log: LogTarget | None = None
    may_bring_keys: bool = False
    is_copy: bool = False
    digest: str | None = None
    path: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", join_path(self.partition, self.file_name))

    @property
    def opens_file_group(self) -> bool:
        """True when the file is the first one of its file group."""
        return self.base is None and (self.log is None or not self.log.older)

    @property
    def shown_file(self) -> str:
        """What ``_hoodie_file_name`` of its rows says: in logs the file id (docs/format.md, Meta columns)."""
        return self.file_name if self.log is None else self.file_id


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """What became of an assignment.

    Attributes:
        stat: the entry for the commit.
        rows_in: rows that were handed in; each was inserted, updated, deleted, late, or a delete of nothing.
        num_late: rows that lost against a stored row with a larger ordering value; None: of a log it is not known.
        num_ignored: deletes of keys that were not there.
        adopted: True when an earlier attempt had written the file already.
        rolled: the entries of the files that follow, when a log rolled over.
        keys: the smallest and the largest key of a base file, in the order of Java's strings; None: not known.
        hashes: sorted hashes of a base file's keys, when they are few; None: not known.
        counts_new_keys: its counts tell new keys from stored ones; False: a log's new keys count as updates.
        is_copy: its rows are counted in another file.
    """

    instant: InstantTime
    stat: WriteStat
    rows_in: int
    num_late: int | None = 0
    num_ignored: int = 0
    adopted: bool = False
    rolled: tuple[WriteStat, ...] = ()
    keys: tuple[str, str] | None = None
    hashes: bytes | None = field(default=None, repr=False)
    counts_new_keys: bool = True
    is_copy: bool = False

    @property
    def stats(self) -> tuple[WriteStat, ...]:
        """The entries for the commit, one for each file."""
        return (self.stat, *self.rolled)


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan(CommitResult):
    """What a writing verb would do: a result that has not happened (``instant`` is None). Prints a line per file.

    Attributes:
        assignments: the files it would write.
        replaced: file groups that it would hide, by partition.
        rows: rows (or keys) that it would take.
    """

    assignments: tuple[FileAssignment, ...]
    replaced: Mapping[PartitionPath, tuple[FileId, ...]]
    rows: int

    def __str__(self) -> str:
        hidden = sum(len(ids) for ids in self.replaced.values())
        verb = self.operation.value.lower()
        lines = [f"{verb}: {self.rows:,} rows into {len(self.assignments)} files, {hidden} file groups hidden"]
        for file in self.assignments:
            how = "log    " if file.log is not None else "new    " if file.base is None else "rewrite"
            size = "" if file.base is None else f" ({file.base.size:,} bytes)"
            lines.append(f"  {how} {file.partition or '.'}/{file.file_id}{size}: {file.num_rows:,} rows")
        return "\n".join(lines)


#: The arguments that every writing verb takes beside its own.
ARGUMENTS: Final = WriteOptions.__optional_keys__

#: The payload class by which an upsert becomes a delete of its keys.
_EMPTY_PAYLOAD: Final = "EmptyHoodieRecordPayload"

_SORT_MODES = ("none", "partition", "global")
#: Orders by columns, which follow behind a colon.
_COLUMN_ORDERS = ("linear", "zorder", "hilbert")


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """One call of a writing verb.

    Attributes:
        operation: what it does.
        options: settings of the call.
        commit_metadata: texts to keep in the commit.
        schema_change: ``"add"`` or ``"strict"``.
        partial: rows may lack columns; stored values stay.
        drop_duplicates: rows whose key is stored, or comes twice, are left out.
        sort: the order of a bulk insert.
        alteration: what becomes of the table's columns; None: what the rows bring.
        entries: what the commit says of streams, applications and the watermark; a write with it commits without rows, too.
        replaces: of an overwrite: the partitions that are replaced, whichever the rows are for; none: those of the rows.
        columns: the internal schema by which the rows were made, empty where the table had none: the write begins upon no
            other one. None: whichever there is.
    """

    operation: WriteOperation
    options: Mapping[str, object] = field(default_factory=dict)
    commit_metadata: Mapping[str, str] = field(default_factory=dict)
    schema_change: str = "add"
    partial: bool = False
    drop_duplicates: bool = False
    sort: str = "none"
    alteration: Alteration | None = None
    entries: CommitEntries | None = field(default=None, compare=False)
    replaces: tuple[PartitionPath, ...] = ()
    columns: str | None = None

    def __post_init__(self) -> None:
        if text_argument(self.schema_change, "schema_change") not in ("add", "strict"):
            raise InvalidInputError(f"unknown schema_change {self.schema_change!r}: expected 'add' or 'strict'")
        layout, _, columns = text_argument(self.sort, "sort").partition(":")
        if self.sort not in _SORT_MODES and (layout not in _COLUMN_ORDERS or not columns.strip(" ,")):
            expected = ", ".join(map(repr, _SORT_MODES))
            raise InvalidInputError(f"unknown sort {self.sort!r}: expected {expected} or an order such as 'zorder:a,b'")
        taken = sorted({SCHEMA_KEY, LATEST_SCHEMA} & set(self.commit_metadata))
        taken += sorted(name for name in map(str, self.commit_metadata) if name.startswith(ENTRY_PREFIXES))
        if taken:
            raise InvalidInputError(f"commit_metadata: the name {taken[0]!r} is taken")
        for name, value in mapping_argument(self.commit_metadata, "commit_metadata").items():
            text_argument(value, f"commit_metadata[{name!r}]")

    @property
    def action(self) -> Action:
        """The timeline action of a copy-on-write table."""
        replaces = self.operation in REPLACING or self.operation is WriteOperation.CLUSTER
        return Action.REPLACE_COMMIT if replaces else Action.COMMIT

    @property
    def keeps_empty(self) -> bool:
        """True when a write without rows still has something to say."""
        # An overwrite with no rows empties what it overwrites; metadata may carry a checkpoint.
        return bool(self.commit_metadata) or self.entries is not None or self.operation in REPLACING

    @property
    def streams(self) -> bool:
        """True when rows are written as they come, never held whole."""
        return self.operation is WriteOperation.BULK_INSERT and not self.drop_duplicates


def honour_spark_options(request: WriteRequest) -> WriteRequest:
    """Return the request with what Hudi's own option names ask for in place of arguments.

    Raises:
        UnknownSetting: the options name another operation than the verb.

    Example:
        >>> asked = WriteRequest(WriteOperation.INSERT, {"hoodie.datasource.write.insert.drop.duplicates": "true"})
        >>> honour_spark_options(asked).drop_duplicates
        True
    """
    options = request.options
    stated = str(options.get("hoodie.datasource.write.operation", request.operation.value)).upper()
    if stated != request.operation.value:
        raise UnknownSetting(f"hoodie.datasource.write.operation={stated.lower()} contradicts the verb that was called")
    drop = str(options.get("hoodie.datasource.write.insert.drop.duplicates", "false")).lower() == "true"
    if drop and request.operation in (WriteOperation.INSERT, WriteOperation.BULK_INSERT):
        request = replace(request, drop_duplicates=True)
    payload = str(options.get("hoodie.datasource.write.payload.class", "")).rsplit(".", 1)[-1]
    if payload == _EMPTY_PAYLOAD and request.operation is WriteOperation.UPSERT:
        request = replace(request, operation=WriteOperation.DELETE, partial=True)
    return request


def parse_call(
    operation: WriteOperation,
    call: WriteOptions,
    entries: CommitEntries | None = None,
    *,
    partial: bool = False,
    drop_duplicates: bool = False,
    sort: str = "none",
) -> tuple[WriteRequest, OnCommit | None]:
    """Return what the keyword arguments of a writing verb ask for, and its callback.

    Args:
        operation: what the verb does.
        call: the arguments that every writing verb takes.
        entries: what the commit says of streams, applications and the watermark.
        partial: of an upsert: rows may lack columns.
        drop_duplicates: of an insert: rows whose key is stored, or comes twice, are left out.
        sort: of a bulk insert: the order of the rows.

    Raises:
        TypeError: an argument that no writing verb takes.
        InvalidInputError: a value that an argument does not take.
    """
    if unknown := call.keys() - ARGUMENTS:
        raise TypeError(f"unexpected arguments {', '.join(sorted(unknown))}: a writing verb takes {sorted(ARGUMENTS)}")
    partial = flag_argument(partial, "partial")
    drop_duplicates = flag_argument(drop_duplicates, "drop_duplicates")
    request = WriteRequest(
        operation,
        mapping_argument(call.get("options"), "options"),
        mapping_argument(call.get("commit_metadata"), "commit_metadata"),
        call.get("schema_change", "add"),
        entries=entries,
        partial=partial,
        drop_duplicates=drop_duplicates,
        sort=sort,
    )
    observer = call.get("on_commit")
    if observer is not None and not callable(observer):
        raise InvalidInputError(f"on_commit takes a function of the result, not {shown(observer)}")
    flag_argument(call.get("dry_run"), "dry_run")
    return honour_spark_options(request), observer


# --------------------------------------------------------- the context together with the table's store
#
# What the context's texts mean is parsed once per process. Any engine's rollback finds a file by its marker.


#: With this number of files or more, their markers are written together: two requests, or two small files, not one each.
_MANY_MARKERS, _MANY_NEAR_MARKERS = 3, 16
#: Threads that write files of few rows to a store that is far away. Its client has ten connections.
_THREADS_FAR = 8


class BoundContext:
    """What every step of a write in this process needs.

    Args:
        store: the store of the table.
        context: the write.
        config: the table's properties, when they are parsed already.
        settings: the settings of the write, when this process has resolved them, and adopted their merge function.

    Attributes:
        rule: how the table merges records that share a key.
        schema: columns of the table after this write, without meta columns.
        file_schema: columns of its files, meta columns first.
        own_markers: the markers of base files that this process has created.
        virtual_columns: what the table's files do not store, or store in another form; None: they store every column.
        cdc: what the table's change files record; None: it captures no changes.
        durable: files must reach the disk before a call returns.
        threads: how many threads the write may use in this process.
        codec: how column chunks of base files are compressed, and `codec_level`, how much.
        beside: the writer expects others at work.
        writes_filters: base files get a bloom filter of their keys.
        written_keys: which keys the files written in this process gained and lost; None: no index of the table asks for it.
        inflight: the request that makes the instant inflight, which is waited for before a file is written and at the end of the
            write; None: it is inflight.

    Raises:
        MergerMissing: this process does not have the function by which the table merges.
    """

    __slots__ = (
        "beside",
        "cdc",
        "codec",
        "codec_level",
        "config",
        "context",
        "durable",
        "file_schema",
        "inflight",
        "instant",
        "operation",
        "own_markers",
        "rule",
        "schema",
        "settings",
        "small_file_threads",
        "store",
        "threads",
        "virtual_columns",
        "writes_filters",
        "written_keys",
    )

    def __init__(
        self,
        store: ObjectStore,
        context: WriteContext,
        config: TableConfig | None = None,
        settings: Settings | None = None,
    ) -> None:
        if settings is None:
            adopt_merger(context.options)
        self.store = store
        self.context = context
        self.instant = context.instant
        self.operation = context.operation
        self.config = parse_table_config(context.properties) if config is None else config
        self.settings = resolve_settings(context.options, None, context.properties) if settings is None else settings
        self.own_markers = OwnMarkers()
        self.inflight: BegunRequest[None] | None = None
        self.rule = merge_rule(self.config)
        self.cdc = cdc_mode(self.config.properties)
        self.schema = avro_to_arrow(context.schema_text)
        self.file_schema = avro_to_arrow(context.file_schema_text)
        ids = _column_ids(context.schema_history) if context.schema_history else None
        in_files = self.config.stores_every_column and ids is None
        self.virtual_columns = None if in_files else virtual_columns_of(self.config, self.schema, ids)
        values = self.settings
        self.durable = values.text("lakefmt.durability") == "fsync"
        self.threads = values.integer("lakefmt.write.threads") or min(8, os.cpu_count() or 1)
        #: Threads that write files of few rows: those of a store that is far away mostly wait.
        asks_far = not values.integer("lakefmt.write.threads") and not store.capabilities.low_latency
        self.small_file_threads = max(self.threads, _THREADS_FAR) if asks_far else self.threads
        self.codec = values.text("hoodie.parquet.compression.codec") or "zstd"
        self.codec_level = values.integer("lakefmt.parquet.compression.level")
        self.beside = is_beside(values)
        has_index = "record_index" in self.config.metadata_partitions
        self.written_keys = WrittenKeys() if has_index else None
        self.writes_filters = values.flag("hoodie.parquet.bloom.filter.enabled")

    def wait_until_inflight(self) -> None:
        """Wait until the instant is inflight.

        Raises:
            StorageError: the store does not say whether it is.
        """
        if self.inflight is not None:
            self.inflight()


def _column_ids(history: str) -> ColumnIds:
    # Imported here: few tables have column ids.
    from lakefmt._core.schema.column_ids import ColumnIds

    return ColumnIds(parse_history(history, "the context of a write"))


class Announcements:
    """Announces the files of one write before they are written, in one call or several: all of its markers have one form.

    Args:
        bound: the write.

    Attributes:
        each_alone: each file has to be announced by itself.
    """

    def __init__(self, bound: BoundContext) -> None:
        self._bound = bound
        self.each_alone = self._together = False

    def announce(self, assignments: Sequence[FileAssignment]) -> bool | None:
        """Announce files together, where that takes less than a marker for each, or those before were.

        Returns:
            None where each file has to be announced by itself; else whether this is certainly the first attempt at them.

        Raises:
            StorageError: the store does not confirm the markers.
        """
        if self.each_alone or not assignments:
            return None
        bound, store = self._bound, self._bound.store
        least = _MANY_NEAR_MARKERS if store.capabilities.low_latency else _MANY_MARKERS
        # The files of changes have markers of their own.
        self.each_alone = bound.cdc is not None or (len(assignments) < least and not self._together)
        if self.each_alone:
            return None
        new = {each.partition for each in assignments if each.new_partition}
        if bound.durable and store.capabilities.directories and len(new) >= least:
            # Many new directories are synced together; else each file syncs all that are above it.
            store.make_directories(sorted(new), durable=True)
        marked = [(each.path, marker_of(bound, each)) for each in assignments]
        is_first = create_markers(store, bound.instant, marked, more=self._together, own=bound.own_markers)
        self._together = True
        return is_first


def prepare(bound: BoundContext, assignment: FileAssignment, *, announced: bool | None = None) -> bool:
    """Announce the file by its marker, and make its partition one; False when an earlier attempt may have written it.

    Args:
        bound: the write.
        assignment: the file.
        announced: what :class:`Announcements` said of the write's files.
    """
    store = bound.store
    is_first = announced
    if is_first is None:
        own, marker = bound.own_markers, marker_of(bound, assignment)
        own.is_complete &= bound.cdc is None  # the files of changes have markers that are not told here
        is_first = create_marker(store, bound.instant, assignment.path, marker, own)
    if not is_first:
        # The earlier attempt may have died with its file half written.
        remove_abandoned(store, assignment.partition, recursive=False)
    bound.wait_until_inflight()  # a rollback removes no file of an instant that was only requested
    if assignment.new_partition:
        name = join_path(assignment.partition, PARTITION_METADATA)
        if store.capabilities.low_latency and store.info(name) is not None:
            return is_first  # a look costs less than a file that is written only to be refused
        depth = assignment.partition.count("/") + 1 if assignment.partition else 0
        content = {"commitTime": bound.instant, "partitionDepth": str(depth)}
        # Readers skip files in a directory without this one; another writer may have put it already.
        put_if_absent_confirmed(store, name, encode_properties(content, ["partition metadata"]), durable=False)
    return is_first


def marker_of(bound: BoundContext, assignment: FileAssignment) -> MarkerType:
    """Return the type of a file's marker."""
    if assignment.log is not None:
        # From version 8 on a log has one instant, in its name, and counts as a new file (docs/format.md, Markers).
        return "APPEND" if bound.config.version.layout == 1 else "CREATE"
    return "CREATE" if assignment.base is None else "MERGE"
