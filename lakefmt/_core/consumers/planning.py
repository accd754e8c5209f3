"""Find the commits that a stream hands out next, and read the rows or changes of their parts (effects: reads, threads).

Lists of parts are read side by side. Each list is read in its order, with a bounded number of batches ahead.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.consumers.position import (
    WHOLE_PART,
    BucketFilter,
    StreamPart,
    StreamPosition,
    StreamStep,
    changed_parts,
    gives_rows,
    ordered_parts,
    partition_order,
    shard_of,
    slice_parts,
    with_watermarks,
    written_parts,
)
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.cdc import DELETE, INSERT, UPDATE
from lakefmt._core.filegroups.model import FileSlice, join_path
from lakefmt._core.filegroups.reader import read_small_file
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.log_data_block import AFTER, BEFORE, OP
from lakefmt._core.formats.names import PARTITION_METADATA, queue_position_of
from lakefmt._core.formats.properties import decode_properties
from lakefmt._core.keys import parse_partition_values
from lakefmt._core.read.changes import ChangesPlan, SliceMemory, plan_changes_read, read_planned_changes
from lakefmt._core.read.filters import Filter, keep_rows
from lakefmt._core.read.incremental import is_rewrite, select_commits, visible_at_end
from lakefmt._core.read.mor_scan import merged_tables
from lakefmt._core.read.scan import BATCH_ROWS, Query, plan_query, scan_batches
from lakefmt._core.read.snapshot import planned_clusterings, with_archived_instants, written_by
from lakefmt._core.read.snapshot_files import pinned_slices
from lakefmt._core.read.splits import ChangesSplit, changes_of_split
from lakefmt._core.schema import cast_rows
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.consumers import newest_watermark
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Instant, State
from lakefmt.errors import InvalidInputError, LakefmtError, UnsupportedFeature

__all__ = [
    "ROW_KIND",
    "CommitFinder",
    "NextCommits",
    "PartReader",
    "ReadBatch",
    "in_queue_order",
    "is_keyed",
    "read_lanes",
]

#: Commits of the first plan; a stream that lags plans again without waiting.
_FIRST_COMMITS: Final = 256
#: Every plan loads the timeline, lists files and reads earlier logs again. So a stream that lags plans this many times as many
#: commits each time, up to a maximum number of parts.
_GROWTH, _MOST_PARTS = 4, 1 << 14
_MAX_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class NextCommits:
    """What a look at the timeline found.

    Attributes:
        state: the table.
        steps: the next commits, in completion order, those that hand out nothing included.
        is_all: no further commit is there now.
        newest: the completion time of the newest commit that can be read; "" for none.
    """

    state: TableState
    steps: tuple[StreamStep, ...]
    is_all: bool
    newest: str


class CommitFinder:
    """Finds the commits after a position.

    Args:
        client: the table.
        overwrites: hand out what overwrites wrote; None: for tables with record keys.
        by_value: partitions of a commit come by their values.
        buckets: which buckets are read; None: all.
        shard: which part of the buckets is read; None: all.
        by_bucket: buckets are read side by side.
        after_watermark: commits up to this watermark hand out nothing; None: no such limit.
    """

    def __init__(
        self,
        client: TableClient,
        *,
        overwrites: bool | None = None,
        by_value: bool = False,
        buckets: BucketFilter | None = None,
        shard: tuple[int, int] | None = None,
        by_bucket: bool = False,
        after_watermark: int | None = None,
    ) -> None:
        self._client = client
        self._overwrites, self._by_value, self._buckets, self._shard = overwrites, by_value, buckets, shard
        self._apart = by_bucket or buckets is not None or shard is not None
        self._after_watermark = after_watermark
        #: How buckets are dealt out to shards; see :func:`lakefmt._core.consumers.position.shard_of`.
        self.in_turn = True
        self._created: dict[str, str] = {}
        self._seen: frozenset[str] | None = None
        self._watermark: tuple[str, int | None] | None = None
        #: How many commits the next plan has at most.
        self._at_once = _FIRST_COMMITS

    def load(self, position: str) -> TableState:
        """Return the table as it is now, with its archive where commits after `position` may be in it.

        A stream that follows has seen the active timeline before: while nothing has left it, nothing new is archived.
        """
        state = self._client.load()
        times = frozenset(instant.time for instant in state.timeline)
        watched = self._seen is not None and self._seen <= times
        self._seen = times
        return state if watched else with_archived_instants(self._client.at(state), position)

    def load_again(self, position: str) -> TableState:
        """Return the table as it is now, with its archive, whatever was seen before."""
        self._seen = None
        return self.load(position)

    def find(self, position: str, end: str | None = None) -> NextCommits:
        """Return the commits after a completion time.

        Args:
            position: exclusive.
            end: inclusive; None: no bound.
        """
        state = self.load(position)
        commits = select_commits(state.timeline, position, end, planned_clusterings(self._client.at(state)))
        newest = commits[-1].order_time if commits else ""
        next_commits = commits[: self._at_once]
        steps = tuple(self._steps(state, next_commits, position))
        if len(commits) > len(next_commits):
            self._seen = None  # the rest may be in the archive
            parts = max(1, sum(len(step.parts) for step in steps))
            self._at_once = min(
                _GROWTH * len(next_commits), max(_FIRST_COMMITS, len(next_commits) * _MOST_PARTS // parts)
            )
        else:
            self._at_once = _FIRST_COMMITS
        return NextCommits(state, steps, len(next_commits) == len(commits), newest)

    def after_upgrade(self, position: StreamPosition) -> StreamPosition:
        """Convert the position of a version 6 stream after the table was upgraded; return other positions unchanged.

        Version 6 goes by requested times, the newer ones by completion times, in which its commits may have another order.
        """
        if position.whole or position.instant != position.done:
            return position
        state = self.load_again(position.done)
        self._seen = None  # the next look is from another place
        if state.timeline.layout == 1:
            return position
        commits = state.timeline.commits_by_completion
        border = next((each.order_time for each in commits if each.time > position.done), "")
        read = [each for each in commits if each.time <= position.done]
        before = [each for each in read if not border or each.order_time < border]
        # A stream may have begun behind a time of which nothing is read yet, also one to come.
        done, instant = max([(position.done, ""), *((each.order_time, each.time) for each in before[-1:])])
        steps = self._steps(state, read[len(before) :], done)
        parts = {part.key: WHOLE_PART for step in steps for part in step.parts}
        return replace(position, done=done, instant=instant, parts={**position.parts, **parts})

    def newest(self, state: TableState) -> str:
        """Return the completion time of the newest commit that can be read; the earliest position without one."""
        commits = select_commits(state.timeline, "", None, planned_clusterings(self._client.at(state)))
        return commits[-1].order_time if commits else ""

    def waits_for(self, state: TableState, end: str) -> bool:
        """Return whether a commit up to `end` may still complete: in version 6 a pending one, by its requested time."""
        if state.timeline.layout > 1:
            return False
        idle = planned_clusterings(self._client.at(state))
        return any(i.action in COMMIT_ACTIONS and i.time <= end and i.time not in idle for i in state.timeline.pending)

    def snapshot(self, time: str) -> tuple[TableState, StreamStep]:
        """Return the table as of a completion time as one step.

        Raises:
            SnapshotExpired: its files were cleaned away.
        """
        state = with_archived_instants(self._client.at(self._client.load()), time)
        # A commit that was requested before and completed after comes as a step of its own.
        then = replace(state, timeline=visible_at_end(state.timeline, time).as_of(time))
        table_at = self._client.at(then)
        slices = in_queue_order(table_at, pinned_slices(table_at, end=time))
        parts = self._select_parts(slice_parts(time, slices))
        instant = next((i for i in reversed(then.timeline.commits_by_completion) if i.order_time == time), None)
        if instant is None:
            instant = Instant._make((time, next(iter(COMMIT_ACTIONS)), State.COMPLETED, time, "", 0, 0.0))
        size = sum(part.file_slice.size_bytes for part in parts if part.file_slice is not None)
        mark = self._watermark_at(then, time)
        return then, StreamStep(instant, tuple(self._in_order(then, parts)), mark, size)

    def oldest_readable(self, state: TableState, steps: Sequence[StreamStep]) -> tuple[str, str | None]:
        """Return the position from which on every commit can be read, and the requested time of the first one.

        Args:
            state: the table.
            steps: commits of which at least one was cleaned away.
        """
        keyed = is_keyed(state)
        retained = self._client.at(state).retained_from() or ""
        lost = -1
        for number, step in enumerate(steps):
            if keyed:
                # The changes of a commit need the state before it.
                is_lost = bool(step.parts) and step.instant.time <= retained
            else:
                is_lost = any(self._is_gone(part) for part in step.parts)
            lost = number if is_lost else lost
        position = steps[lost].instant.order_time if lost >= 0 else ""
        readable = steps[lost + 1 :]
        return position, next((step.instant.time for step in (*(s for s in readable if s.parts), *readable)), None)

    def _is_gone(self, part: StreamPart) -> bool:
        paths = () if part.file_slice is None else part.file_slice.paths
        return any(self._client.store.info(path) is None for path in paths)

    def lag(self, position: str) -> tuple[int, int, str]:
        """Return how many commits with rows come after a position, their bytes, and the completion time of the first."""
        state = with_archived_instants(self._client.at(self._client.load()), position)
        table_at = self._client.at(state)
        count, size, first = 0, 0, ""
        for instant in select_commits(state.timeline, position, None, planned_clusterings(table_at)):
            commit = table_at.commit_metadata(instant)
            if self._gives(state, instant, commit):
                count, size, first = count + 1, size + commit.bytes_written, first or instant.order_time
        return count, size, first

    def _gives(self, state: TableState, instant: Instant, commit: CommitMetadata) -> bool:
        overwrites = is_keyed(state) if self._overwrites is None else self._overwrites
        return gives_rows(instant, commit, overwrites=overwrites)

    def _steps(self, state: TableState, commits: Sequence[Instant], position: str) -> list[StreamStep]:
        read = [(instant, self._client.at(state).commit_metadata(instant)) for instant in commits]
        if not read:
            return []
        marked = with_watermarks(read, self._watermark_at(state, position))
        self._watermark = (marked[-1][0].order_time, marked[-1][2])
        return [self._step(state, instant, commit, mark) for instant, commit, mark in marked]

    def _step(self, state: TableState, instant: Instant, commit: CommitMetadata, mark: int | None) -> StreamStep:
        too_early = self._after_watermark is not None and (mark is None or mark <= self._after_watermark)
        if too_early or not self._gives(state, instant, commit):
            return StreamStep(instant, (), mark, 0, is_hidden=not is_rewrite(commit))
        if is_keyed(state):
            # Only in version 6 the parts depend on what was replaced.
            replaced = self._client.at(state).replaced() if state.timeline.layout == 1 else {}
            parts = changed_parts(state.timeline, instant, commit, replaced, apart=self._apart)
        else:
            parts = written_parts(instant, commit)
        return StreamStep(instant, tuple(self._in_order(state, self._select_parts(parts))), mark, commit.bytes_written)

    def _select_parts(self, parts: Sequence[StreamPart]) -> list[StreamPart]:
        return [part for part in parts if self._is_kept(part)]

    def _is_kept(self, part: StreamPart) -> bool:
        if self._buckets is not None and not self._buckets(part.bucket):
            return False
        if self._shard is None:
            return True
        number, count = self._shard
        return shard_of(part.partition, part.bucket, part.file_id, count, in_turn=self.in_turn) == number

    def _watermark_at(self, state: TableState, position: str) -> int | None:
        """Return the watermark of the last commit up to a completion time."""
        if self._watermark is not None and self._watermark[0] == position:
            return self._watermark[1]
        commits = (i for i in reversed(state.timeline.commits_by_completion) if i.order_time <= position)
        return newest_watermark(self._client.at(state).commit_metadata(instant).extra_metadata for instant in commits)

    # ---------------------------------------------------------------------------------------------- order of partitions

    def _in_order(self, state: TableState, parts: Sequence[StreamPart]) -> list[StreamPart]:
        paths = {part.partition: None for part in parts}
        if len(paths) < 2:
            return ordered_parts(parts, {})
        values: Mapping[str, tuple[Any, ...] | None] = paths
        created: dict[str, str] = {}
        if self._by_value:
            values = {path: self._values(state, path) for path in paths}
        else:
            created = {path: self._created_at(state, path) for path in paths}
        return ordered_parts(parts, partition_order(values, created, by_value=self._by_value))

    def _values(self, state: TableState, path: str) -> tuple[Any, ...] | None:
        spec = self._client.key_spec(state.config)
        by_name = parse_partition_values(spec, path, self._client.at(state).schema())
        names = [field.name for field in spec.partition_fields]
        return (
            None if by_name is None or any(name not in by_name for name in names) else tuple(by_name[n] for n in names)
        )

    def _created_at(self, state: TableState, path: str) -> str:
        """Return when the first commit of a partition completed; its metadata file names that commit."""
        if path not in self._created:
            name = join_path(path, PARTITION_METADATA)
            try:
                content = decode_properties(self._client.store.read(name, _MAX_BYTES), what=name)
            except LakefmtError:  # of another engine, in another format, or lost: the path decides
                return "9" * 17
            time = content.get("commitTime", "")
            commit = next((i for i in state.timeline.commits if i.time == time), None)
            self._created[path] = time if commit is None else commit.order_time
        return self._created[path]


def in_queue_order(table_at: TableAt, slices: Iterable[FileSlice]) -> list[FileSlice]:
    """Return slices so that the rows of each bucket come in their order; of a table that is no queue as they are.

    A file id tells when the commit of its first rows was requested. Commits that were requested earlier may complete later.

    Args:
        table_at: the table, at one moment.
        slices: of any partitions and buckets.
    """
    all_slices = list(slices)
    firsts = [queue_position_of(each.file_id) for each in all_slices]
    if not any(firsts):
        return all_slices
    timeline = table_at.timeline
    if not all(first is None or timeline.tells_completion_of(first[0]) for first in firsts):
        timeline = table_at.with_history().timeline
    queue_positions = [
        (timeline.completion_of(each.instant), 0) if first is None else (timeline.completion_of(first[0]), first[1])
        for each, first in zip(all_slices, firsts, strict=True)
    ]
    return [all_slices[number] for number in sorted(range(len(all_slices)), key=queue_positions.__getitem__)]


#: The column of row kinds, as Paimon names them.
ROW_KIND: Final = "_row_kind"
_ADDED_KIND: Final = "+I"
Lane: TypeAlias = Sequence[tuple[StreamStep, StreamPart]]
Read: TypeAlias = Callable[[StreamStep, StreamPart], Iterator[pa.RecordBatch]]


def is_keyed(state: TableState) -> bool:
    """Return whether a table has record keys: then a stream hands out changes."""
    return bool(state.config.record_key_fields)


@dataclass(frozen=True)
class PartReader:
    """Reads parts of a table as a stream has planned them; may be used by several threads.

    Attributes:
        client: the table.
        state: the table when the parts were planned.
        columns: the columns to read; None: all.
        filter: of rows.
        kinds: add the column ``_row_kind``.
        changes: where the changes of the planned commits are; None: rows are read.
    """

    client: TableClient
    state: TableState
    columns: Sequence[str] | None = None
    filter: Filter = None
    kinds: bool = False
    changes: ChangesPlan | None = None

    @property
    def table_at(self) -> TableAt:
        """The table as it is read."""
        return self.client.at(self.state)

    def with_changes(self, start: str, steps: Sequence[StreamStep]) -> PartReader:
        """Return the reader that knows the changes of some commits.

        Args:
            start: a completion time before them.
            steps: the commits.

        Raises:
            SnapshotExpired: files were cleaned away.
        """
        last = max(step.instant.order_time for step in steps)
        return replace(self, changes=plan_changes_read(self.table_at, start, last))

    def batches(self, step: StreamStep, part: StreamPart, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part without the first `skip` ones; never an empty batch.

        Raises:
            SnapshotExpired: a file was cleaned away.
        """
        for batch in self._all(step, part):
            if batch.num_rows > skip:
                yield batch.slice(skip) if skip else batch
            skip = max(0, skip - batch.num_rows)

    def _all(self, step: StreamStep, part: StreamPart) -> Iterator[pa.RecordBatch]:
        if part.sources:
            yield from self._changes(step, part)
            return
        for batch in self._rows(step, part):
            if self.kinds:
                yield _with_first_column(batch, ROW_KIND, pa.repeat(pa.scalar(_ADDED_KIND), batch.num_rows))
            elif is_keyed(self.state):
                yield _with_first_column(batch, OP, pa.repeat(pa.scalar(INSERT), batch.num_rows))
            else:
                yield batch

    @cached_property
    def _memory(self) -> SliceMemory | None:
        return None if self.changes is None else SliceMemory(self.changes, threading.Lock())

    @cached_property
    def _plan_query(self) -> Query:
        query = plan_query(self.state.config, self.table_at.schema(), self.columns, self.filter, meta_columns=False)
        _check_name_is_free(query, kinds=self.kinds, keyed=is_keyed(self.state))
        return query

    @cached_property
    def _fields(self) -> list[pa.Field]:
        """The columns of the result and of the filter; to find those takes longer than to read a small file."""
        query = self._plan_query
        return [query.schema.field(name) for name in dict.fromkeys([*query.columns, *sorted(query.filter_columns)])]

    def _rows(self, step: StreamStep, part: StreamPart) -> Iterator[pa.RecordBatch]:
        query = self._plan_query
        schema, file_slice = query.result_schema, part.file_slice
        if file_slice is None:
            return
        if not part.adds_only:
            if not self.state.config.populate_meta_fields:
                raise UnsupportedFeature(
                    f"{file_slice.paths[0]} has rows of several commits, and without meta columns nothing tells them apart"
                )
            query = replace(query, condition=written_by([step.instant.time], query))
        small = self._small_rows(file_slice) if part.adds_only else None
        if small is not None:
            rows = pa.Table.from_arrays(keep_rows(small, query.condition).select(schema.names).columns, schema=schema)
            yield from (batch for batch in rows.to_batches(max_chunksize=BATCH_ROWS) if batch.num_rows)
        elif file_slice.logs:
            for table in merged_tables(self.table_at, [file_slice], query):
                yield from cast_rows(table, schema).combine_chunks().to_batches(max_chunksize=BATCH_ROWS)
        elif file_slice.base is not None:
            for batch in scan_batches(self.table_at, [file_slice.base], query):
                if batch.num_rows:
                    yield batch if batch.schema.equals(schema) else batch.cast(schema)

    def _small_rows(self, file_slice: FileSlice) -> pa.Table | None:
        """Return the rows of a small file with the columns that the stream and its filter need, as it has them.

        None: it is not small, has logs, or has some column otherwise than it is asked for, by name, by type or by id.
        """
        file, fields = file_slice.base, self._fields
        if file is None or file_slice.logs or not fields or self.state.config.drop_partition_columns:
            return None
        ids = self.table_at.column_ids() if self.client.cache.has_seen_column_ids else None
        if ids is not None and not ids.keeps((field.name for field in fields), file.instant):
            return None
        return read_small_file(self.client.store, file, fields)

    def _changes(self, step: StreamStep, part: StreamPart) -> Iterator[pa.RecordBatch]:
        if self.changes is None:
            raise UnsupportedFeature("the changes of the commit were not planned")
        query = plan_query(self.state.config, self.table_at.schema(), self.columns, None, meta_columns=False)
        _check_name_is_free(query, kinds=self.kinds, keyed=True)
        file_group_keys = {(source.partition, source.file_id) for source in part.sources}
        groups = tuple(
            (file_group_key, self.changes.files.groups[file_group_key])
            for file_group_key in file_group_keys
            if file_group_key in self.changes.files.groups
        )
        split = ChangesSplit(((step.instant, part.sources),), groups, 0)
        plan = changes_of_split(self.changes, split)
        table = read_planned_changes(self.client, plan, self.columns, self.filter, self._memory)
        rows = _kind_rows(table) if self.kinds else _op_rows(table)
        yield from rows.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


def _with_first_column(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    schema = pa.schema([pa.field(name, pa.string()), *batch.schema])
    return pa.RecordBatch.from_arrays([column, *batch.columns], schema=schema)


def _check_name_is_free(query: Query, *, kinds: bool, keyed: bool) -> None:
    """Raise where a column of the table has the name of the column that a stream adds.

    Raises:
        InvalidInputError: it has.
    """
    name = ROW_KIND if kinds else OP if keyed else None
    if name in query.columns:
        other = "leave it out with columns=" if kinds else "leave it out with columns=, or give include_row_kind=True"
        raise InvalidInputError(f"the table has a column {name!r}, which a stream adds: {other}")


def _op_rows(table: pa.Table) -> pa.Table:
    """Return one row for each change: after it, of a delete before it."""
    deleted = pc.equal(table.column(OP), DELETE)
    before, after = table.column(BEFORE), table.column(AFTER)
    columns = [
        pc.if_else(deleted, pc.struct_field(before, [number]), pc.struct_field(after, [number]))
        for number in range(after.type.num_fields)
    ]
    schema = pa.schema([pa.field(OP, pa.string()), *after.type])
    return pa.table([table.column(OP), *columns], schema=schema)


def _kind_rows(table: pa.Table) -> pa.Table:
    """Return one row for each image: an update gives ``-U`` and ``+U``."""
    op, count = table.column(OP), table.num_rows
    updates = pc.equal(op, UPDATE).to_numpy()
    twice = np.repeat(np.arange(count), np.where(updates, 2, 1))
    is_before = np.zeros(len(twice), dtype=bool)
    # Of the two rows of an update the first is the row before it.
    is_before[1:] = twice[1:] != twice[:-1]
    is_before[:1] = True
    is_before &= updates[twice]
    is_delete = pc.equal(op, DELETE).to_numpy()[twice]
    rows = pa.array(twice)
    kinds = np.where(updates[twice], np.where(is_before, "-U", "+U"), np.where(is_delete, "-D", _ADDED_KIND))
    old = pa.array(is_before | is_delete)
    before, after = table.column(BEFORE).take(rows), table.column(AFTER).take(rows)
    columns = [
        pc.if_else(old, pc.struct_field(before, [number]), pc.struct_field(after, [number]))
        for number in range(after.type.num_fields)
    ]
    schema = pa.schema([pa.field(ROW_KIND, pa.string()), *after.type])
    return pa.table([pa.array(kinds.astype(object), pa.string()), *columns], schema=schema)


# --------------------------------------------------------------------------------------------------------- side by side


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Rows of a part.

    Attributes:
        step: the commit.
        part: its part.
        rows: some of its rows; None: it has none that were asked for.
        is_last: nothing of the part is left.
    """

    step: StreamStep
    part: StreamPart
    rows: pa.RecordBatch | None
    is_last: bool


def read_lanes(lanes: Sequence[Lane], read: Read, *, threads: int, ahead: int) -> Iterator[ReadBatch]:
    """Yield the batches of all lists; those of one list come in its order.

    Args:
        lanes: lists of parts.
        read: reads one part.
        threads: how many lists are read side by side.
        ahead: the most batches that are read and not yet taken; 0: read in the calling thread.

    Example:
        >>> step, part = StreamStep(None), StreamPart("k", "", "f-0")
        >>> rows = pa.record_batch({"a": [1]})
        >>> [batch.is_last for batch in read_lanes([[(step, part)]], lambda s, p: iter([rows, rows]), threads=2, ahead=1)]
        [False, True]
    """
    if ahead == 0:
        for lane in lanes:
            for step, part in lane:
                yield from _batches_of_part(step, part, read)
        return
    buffer = _LaneBuffer(ahead, lanes)
    count = max(1, min(threads, len(lanes)))
    workers = [
        threading.Thread(target=buffer.fill, args=(read,), name="lakefmt-stream", daemon=True) for _ in range(count)
    ]
    try:
        for worker in workers:
            worker.start()
        while (batch := buffer.take()) is not None:
            yield batch
    finally:
        buffer.stop()
        for worker in workers:
            if worker.ident is not None:
                worker.join()


def _batches_of_part(step: StreamStep, part: StreamPart, read: Read) -> Iterator[ReadBatch]:
    """Yield the batches of a part; the last one says so."""
    waiting: pa.RecordBatch | None = None
    for rows in read(step, part):
        if waiting is not None:
            yield ReadBatch(step, part, waiting, False)
        waiting = rows
    yield ReadBatch(step, part, waiting, True)


class _LaneBuffer:
    """Hands lists to threads and batches to the caller."""

    def __init__(self, ahead: int, lanes: Sequence[Lane]) -> None:
        self._ahead, self._lanes = ahead, deque(lanes)
        self._changed = threading.Condition()
        self._ready: deque[ReadBatch] = deque()
        self._left = len(self._lanes)
        self._failure: BaseException | None = None
        self._stopped = False

    def fill(self, read: Read) -> None:
        """Read lists until none is left; what fails is raised where batches are taken."""
        try:
            while (lane := self._next_lane()) is not None:
                for step, part in lane:
                    for batch in _batches_of_part(step, part, read):
                        if not self._put(batch):
                            return
                self._ended()
        except BaseException as error:  # noqa: BLE001 - raised by take()
            with self._changed:
                self._failure = self._failure or error
                self._stopped = True
                self._changed.notify_all()

    def _next_lane(self) -> Lane | None:
        with self._changed:
            return None if self._stopped or not self._lanes else self._lanes.popleft()

    def _put(self, batch: ReadBatch) -> bool:
        with self._changed:
            while len(self._ready) >= self._ahead and not self._stopped:
                self._changed.wait()
            if not self._stopped:
                self._ready.append(batch)
                self._changed.notify_all()
            return not self._stopped

    def _ended(self) -> None:
        with self._changed:
            self._left -= 1
            self._changed.notify_all()

    def take(self) -> ReadBatch | None:
        """Return the next batch; None: nothing is left."""
        with self._changed:
            while not self._ready and self._left and self._failure is None:
                self._changed.wait()
            if self._ready:
                batch = self._ready.popleft()
                self._changed.notify_all()
                return batch
            if self._failure is not None:
                raise self._failure
            return None

    def stop(self) -> None:
        """Let the threads end."""
        with self._changed:
            self._stopped = True
            self._ready.clear()
            self._changed.notify_all()
