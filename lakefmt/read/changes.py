"""Read the changes between two moments: inserted, updated and deleted rows with before and after images.

Tables with change capture give their change files; for others the file groups before and after each
commit are compared (docs/format.md, Change files). Memory: one file group of one commit, and the
result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.arrays import from_numpy
from lakefmt.config.table_config import merge_rule
from lakefmt.data_classes import dataclass, replace
from lakefmt.errors import CorruptFile, InvalidInputError, SnapshotExpired, UnsupportedFeature
from lakefmt.filegroups.cdc import (
    DELETE,
    INSERT,
    UPDATE,
    ChangedRows,
    compare_rows,
    images,
    match_keys,
    operations,
    read_change_file,
)
from lakefmt.filegroups.model import FileSlice
from lakefmt.filegroups.reader import reading
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.formats.log.cdc import AFTER, BEFORE, KEY, OP, TS_MS
from lakefmt.read._changes_files import FileHistory
from lakefmt.read.change_sources import ChangeSource, InferenceCase, changing_sources
from lakefmt.read.filters import Filter, keep_rows
from lakefmt.read.incremental import is_rewrite, select_commits
from lakefmt.read.mor_scan import merged_tables
from lakefmt.read.scan import Query, plan_query, prune_partitions, scan_table
from lakefmt.read.snapshot import NEXT_START, bound_of, planned_clusterings, with_archived_instants
from lakefmt.schema import reconcile
from lakefmt.timeline.instant import Instant
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY, InstantTime, PartitionPath

if TYPE_CHECKING:
    from lakefmt.schema.column_ids import ColumnPlaces

__all__ = ["ChangesPlan", "plan_changes_read", "read_changes", "read_planned_changes"]

Mask = npt.NDArray[np.bool_]
_Work = Sequence[tuple[Instant, Sequence[ChangeSource]]]
_META = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY)


def read_changes(
    client: TableClient,
    state: TableState,
    start: str | datetime,
    end: str | datetime | None = None,
    columns: Sequence[str] | None = None,
    filter: Filter = None,
) -> pa.Table:
    """Return the changes of the commits after `start` up to `end`; see ``Table.changes``."""
    first = _first(client, state, start)
    last = None if end is None else bound_of(client, state, end)
    state = with_archived_instants(client, state, first)
    work = _Changes(client, state, *_plan(client, state, columns, filter))
    commits = select_commits(state.timeline, first, last, planned_clusterings(client, state))
    with _explaining(client, first):
        table = work.table(commits)
    next_start = max((i.order_time for i in commits), default=InstantTime(first))
    return table.replace_schema_metadata({NEXT_START: next_start.encode()})


@dataclass(frozen=True)
class ChangesPlan:
    """The sources of the changes of a range; it pickles, so that several tasks read parts of them.

    Attributes:
        state: the table.
        start: the resolved start.
        next_start: the start of the next range.
        work: every commit with its sources, in commit order.
        files: the files of the touched file groups.
    """

    state: TableState
    start: str
    next_start: str
    work: tuple[tuple[Instant, tuple[ChangeSource, ...]], ...]
    files: FileHistory


def plan_changes_read(
    client: TableClient, state: TableState, start: str | datetime, end: str | datetime | None = None
) -> ChangesPlan:
    """Return what the changes of a range are read from.

    Raises:
        UnsupportedFeature: the table has no meta columns.
    """
    first = _first(client, state, start)
    last = None if end is None else bound_of(client, state, end)
    state = with_archived_instants(client, state, first)
    commits = select_commits(state.timeline, first, last, planned_clusterings(client, state))
    work = _Changes(client, state, *_plan(client, state, None, None)).planned(commits)
    with _explaining(client, first):
        files = _history(client, state, work)
    next_start = max((i.order_time for i in commits), default=InstantTime(first))
    return ChangesPlan(state, first, next_start, tuple((commit, tuple(sources)) for commit, sources in work), files)


def read_planned_changes(
    client: TableClient,
    plan: ChangesPlan,
    columns: Sequence[str] | None = None,
    filter: Filter = None,
) -> pa.Table:
    """Return the changes of planned sources.

    Raises:
        SnapshotExpired: a file was cleaned away.
    """
    reader = _Changes(client, plan.state, *_plan(client, plan.state, columns, filter))
    with _explaining(client, plan.start):
        return reader.of_sources(plan.work, plan.files)


def _first(client: TableClient, state: TableState, start: str | datetime) -> str:
    """Return the start as an instant time.

    Raises:
        UnsupportedFeature: the table has no meta columns.
    """
    if not state.config.populate_meta_fields:
        raise UnsupportedFeature("changes need meta columns, and this table does not fill them")
    return bound_of(client, state, start)


@contextmanager
def _explaining(client: TableClient, start: str) -> Iterator[None]:
    """Say of a file that is gone which changes can be read."""
    try:
        yield
    except SnapshotExpired as error:
        oldest = client.retained_from(client.load())
        hint = f"; the changes of commits from {oldest} on can be read" if oldest else ""
        raise SnapshotExpired(f"the changes after {start} need what was cleaned away: {error}{hint}") from None


def _history(
    client: TableClient, state: TableState, work: _Work, partitions: Collection[PartitionPath] | None = None
) -> FileHistory:
    """Return the files of the partitions of some sources; None: of all of them."""
    touched = {source.partition for _, sources in work for source in sources} if partitions is None else partitions
    if not work:
        return FileHistory(state.timeline, {})
    return FileHistory.load(client, state, min(commit.time for commit, _ in work), sorted(touched))


def _plan(
    client: TableClient, state: TableState, columns: Sequence[str] | None, filter: Filter
) -> tuple[Query, tuple[str, ...]]:
    """Return the query for the rows of both images, and the image columns of the result."""
    asked = plan_query(client.schema(state), columns, filter, meta_columns=False)
    if not asked.columns:
        raise InvalidInputError("columns=[]: an image without columns tells nothing; leave columns out for all of them")
    wanted = {*_META, *asked.columns, *asked.filter_columns}
    names = tuple(name for name in asked.schema.names if name in wanted)
    return Query(names, asked.condition, asked.schema), asked.columns


@dataclass(frozen=True)
class _Changes:
    """Reads changes; `query` has the row columns and the filter, `columns` the image columns."""

    client: TableClient
    state: TableState
    query: Query
    columns: tuple[str, ...]

    def table(self, commits: Sequence[Instant]) -> pa.Table:
        """Return the changes of commits."""
        work = self.planned(commits)
        touched = sorted({source.partition for _, sources in work for source in sources})
        kept = set(prune_partitions(self.client, self.state, touched, self.query)) if work else set()
        files = _history(self.client, self.state, work, kept)
        return self.of_sources(
            [(commit, [s for s in sources if s.partition in kept]) for commit, sources in work], files
        )

    def planned(self, commits: Sequence[Instant]) -> list[tuple[Instant, list[ChangeSource]]]:
        """Return the commits that changed rows, with the sources of the changes."""
        planned = [(commit, self._sources(commit)) for commit in commits]
        return [(commit, sources) for commit, sources in planned if sources]

    def of_sources(self, work: _Work, files: FileHistory) -> pa.Table:
        """Return the changes of sources; within a commit deletes come first, so that a moved key stays."""
        image = pa.struct([self.query.schema.field(name) for name in self.columns])
        schema = pa.schema([(OP, pa.string()), (TS_MS, pa.string()), (BEFORE, image), (AFTER, image)])
        parts = [schema.empty_table()]
        for commit, sources in work:
            deletes, others = [], []
            for changes in self._changed(commit, sources, files):
                whole = self._answer(changes, commit, image)
                deletes.append(whole.slice(0, changes.deleted.num_rows))
                others.append(whole.slice(changes.deleted.num_rows))
            parts += [part for part in (*deletes, *others) if part.num_rows]
        return pa.concat_tables(parts)

    def _sources(self, commit: Instant) -> list[ChangeSource]:
        metadata = self.client.commit_metadata(self.state, commit)
        if is_rewrite(metadata):
            return []
        return changing_sources(self.state.timeline, commit, metadata, self._replaced)

    @cached_property
    def _replaced(self) -> Mapping[tuple[str, str], InstantTime]:
        """The replaced file groups; only in version 6 the sources depend on them."""
        return self.client.replaced(self.state) if self.state.timeline.layout == 1 else {}

    def _changed(self, commit: Instant, sources: Sequence[ChangeSource], files: FileHistory) -> Iterator[ChangedRows]:
        for source in sources:
            changes = self._of_source(commit, source, files)
            if self.query.condition is not None:
                changes = _filtered(changes, self.query)
            if changes.num_rows:
                yield changes

    def _answer(self, changes: ChangedRows, commit: Instant, image: pa.DataType) -> pa.Table:
        columns = {
            OP: operations(changes),
            TS_MS: pa.repeat(pa.scalar(str(commit.time), pa.string()), changes.num_rows),
            BEFORE: images([changes.deleted, changes.before, changes.inserted.num_rows], image),
            AFTER: images([changes.deleted.num_rows, changes.after, changes.inserted], image),
        }
        return pa.table(columns)

    def _of_source(self, commit: Instant, source: ChangeSource, files: FileHistory) -> ChangedRows:
        none = self._schema.empty_table()
        match source.case:
            case InferenceCase.AS_IS:
                return self._as_is(commit, source, files)
            case InferenceCase.BASE_FILE_INSERT:
                return ChangedRows(none, none, none, self._rows(files.base(source, commit.time)))
            case InferenceCase.BASE_FILE_DELETE:
                return ChangedRows(self._rows(files.base(source, source.former)), none, none, none)
            case InferenceCase.REPLACE_COMMIT:
                file_slice, timeline = files.slice_at(source, commit, after=False)
                if file_slice is None:
                    raise SnapshotExpired(f"the replaced file group {source.file_id} is gone: a clean removed it")
                return ChangedRows(self._rows(file_slice, timeline), none, none, none)
            case InferenceCase.BASE_FILE_COMPARE:
                before = self._rows(files.base(source, source.former))
                return self._compared(before, self._rows(files.base(source, commit.time)))
            case InferenceCase.LOG_FILE:
                states = [files.slice_at(source, commit, after=after) for after in (False, True)]
                _check_logs(source, states[1][0])
                tables = [
                    none if file_slice is None else self._rows(file_slice, timeline) for file_slice, timeline in states
                ]
                return self._compared(*tables)

    @property
    def _schema(self) -> pa.Schema:
        return pa.schema([self.query.schema.field(name) for name in self.query.columns])

    def _compared(self, before: pa.Table, after: pa.Table) -> ChangedRows:
        try:
            rule = merge_rule(self.state.config)
        except UnsupportedFeature:  # a merger of another engine: its base files are readable
            return compare_rows(before, after)
        return compare_rows(before, after, by_value=rule.partial is not None or rule.custom is not None)

    def _rows(self, file_slice: FileSlice, timeline: Timeline | None = None) -> pa.Table:
        """Return all rows of a slice without the filter: changed rows are determined first."""
        query = replace(self.query, condition=None)
        if file_slice.logs:
            state = self.state if timeline is None else replace(self.state, timeline=timeline)
            rows = pa.concat_tables(merged_tables(self.client, state, [file_slice], query, self.state))
        else:
            rows = scan_table(self.client, self.state, [file_slice.base] if file_slice.base else [], query)
        return reconcile(rows, self._schema)

    # --------------------------------------------------------------------------------------------------- change files

    def _as_is(self, commit: Instant, source: ChangeSource, files: FileHistory) -> ChangedRows:
        """Return the changes in change files; missing images come from the states before and after the commit."""
        parts = [part for path in source.files for part in read_change_file(self.client.store, path)]
        ids = self.client.column_ids(self.state)
        places = None if ids is None else ids.at(commit.time)
        keyed = [part for part in parts if KEY in part.column_names]
        none = self._schema.empty_table()
        former = none if not keyed or source.former == "null" else self._rows(files.base(source, source.former))
        latter = none
        if keyed:
            rows = self._rows(files.base(source, commit.time))
            new = pc.equal(rows.column(COMMIT_TIME), str(commit.time))
            # A key may be stored twice: the rows of this commit come first.
            latter = pa.concat_tables([rows.filter(new), rows.filter(pc.invert(new))])
        images = [self._images(part, former, latter, ", ".join(source.files), places) for part in parts]
        joined = [
            pa.concat_tables([getattr(image_rows, name) for image_rows in images])
            for name in ("deleted", "before", "after", "inserted")
        ]
        return ChangedRows(*joined)

    def _images(
        self, part: pa.Table, former: pa.Table, latter: pa.Table, what: str, places: ColumnPlaces | None
    ) -> ChangedRows:
        by_op = {op: part.filter(pc.equal(part.column(OP), op)) for op in (DELETE, UPDATE, INSERT)}
        old = pa.concat_tables([by_op[DELETE], by_op[UPDATE]])
        new = pa.concat_tables([by_op[UPDATE], by_op[INSERT]])
        has_before, has_after = BEFORE in part.column_names, AFTER in part.column_names
        before = self._stored(old, BEFORE, what, places) if has_before else self._found(old, former, what)
        after = self._stored(new, AFTER, what, places) if has_after else self._found(new, latter, what)
        deletes, updates = by_op[DELETE].num_rows, by_op[UPDATE].num_rows
        return ChangedRows(
            before.slice(0, deletes), before.slice(deletes), after.slice(0, updates), after.slice(updates)
        )

    def _stored(self, part: pa.Table, name: str, what: str, places: ColumnPlaces | None) -> pa.Table:
        """Return images of one kind as rows in the table schema, without meta columns."""
        column = part.column(name).combine_chunks()
        if column.null_count:
            raise CorruptFile(f"{what}: {column.null_count} changes lack the image {name!r}")
        rows = pa.table(column.flatten(), names=[field.name for field in column.type])
        with reading(what):
            return reconcile(rows if places is None else places.current(rows), self._images_schema)

    @property
    def _images_schema(self) -> pa.Schema:
        return pa.schema([field for field in self._schema if field.name not in _META])

    def _found(self, part: pa.Table, rows: pa.Table, what: str) -> pa.Table:
        match = match_keys(part.column(KEY), rows.column(RECORD_KEY))
        if match.null_count:
            raise CorruptFile(f"{what}: {match.null_count} changes are of keys that are not in the file group")
        return rows.take(match).select(self._images_schema.names)


def _check_logs(source: ChangeSource, file_slice: FileSlice | None) -> None:
    here = set() if file_slice is None else {log.path for log in file_slice.logs}
    lost = [path for path in source.files if path not in here]
    if lost:
        raise SnapshotExpired(f"{lost[0]} is gone: a clean removed it")


def _filtered(changes: ChangedRows, query: Query) -> ChangedRows:
    """Return the changes whose row passes the filter before or after."""
    either = from_numpy(_matches(changes.before, query) | _matches(changes.after, query))
    return ChangedRows(
        keep_rows(changes.deleted, query.condition),
        changes.before.filter(either),
        changes.after.filter(either),
        keep_rows(changes.inserted, query.condition),
    )


def _matches(rows: pa.Table, query: Query) -> Mask:
    numbered = rows.append_column("_lakefmt_row", from_numpy(np.arange(rows.num_rows)))
    matches = np.zeros(rows.num_rows, dtype=bool)
    matches[keep_rows(numbered, query.condition).column("_lakefmt_row").to_numpy()] = True
    return matches
