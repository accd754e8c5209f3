"""Read the changes between two moments: inserted, updated and deleted rows with before and after images.

Tables with change capture give their change files; for others the file groups before and after each commit are compared
(docs/format.md, Change files). The cases are those of Hudi's CDC inference, and one more: a base file that replaces
another in a table without change capture; both are compared. Memory: one file group of one commit, and the result.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy
from lakefmt._core.config.table_config import merge_rule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.cdc import (
    DELETE,
    INSERT,
    UPDATE,
    ChangedRows,
    cdc_paths,
    compare_rows,
    images,
    match_keys,
    operations,
    read_change_file,
)
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile, all_slices
from lakefmt._core.filegroups.pending_plans import is_copied_log
from lakefmt._core.filegroups.reader import reading
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.log_data_block import AFTER, BEFORE, KEY, OP, TS_MS
from lakefmt._core.formats.names import parse_base_file, parse_log_file
from lakefmt._core.read.filters import Filter, keep_rows
from lakefmt._core.read.incremental import is_rewrite, select_commits
from lakefmt._core.read.mor_scan import SliceStates, merged_tables, slice_states
from lakefmt._core.read.scan import Query, plan_query, prune_partitions, scan_table
from lakefmt._core.read.snapshot import NEXT_START, bound_of, planned_clusterings, with_archived_instants
from lakefmt._core.read.snapshot_files import cleaned_files, cleans_beyond_promise
from lakefmt._core.schema import reconcile
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.instant import Instant
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    RECORD_KEY,
    FileId,
    InstantTime,
    Moment,
    PartitionPath,
    WriteStat,
)
from lakefmt.errors import CorruptFile, InvalidInputError, SnapshotExpired, UnsupportedFeature

if TYPE_CHECKING:
    from lakefmt._core.schema.column_ids import ColumnPlaces

__all__ = [
    "ChangeSource",
    "ChangesPlan",
    "FileHistory",
    "GroupFiles",
    "InferenceCase",
    "SliceMemory",
    "changing_sources",
    "plan_changes_read",
    "plan_sources",
    "read_changes",
    "read_planned_changes",
]

_GroupKey = tuple[str, str]
Mask = npt.NDArray[np.bool_]


class InferenceCase(enum.Enum):
    """How the changes of a file group are determined."""

    BASE_FILE_INSERT = "BASE_FILE_INSERT"
    BASE_FILE_DELETE = "BASE_FILE_DELETE"
    BASE_FILE_COMPARE = "BASE_FILE_COMPARE"
    LOG_FILE = "LOG_FILE"
    REPLACE_COMMIT = "REPLACE_COMMIT"
    AS_IS = "AS_IS"


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """The changes of one commit in one file group.

    Attributes:
        case: how the changes are determined.
        partition: partition path.
        path: base file of the commit, relative to the table; "" without one.
        former: instant of the previous base file; "null" without one.
        files: change files (``AS_IS``), or the logs of the commit.
    """

    case: InferenceCase
    partition: PartitionPath
    file_id: FileId
    path: str = ""
    former: InstantTime | str = "null"
    files: tuple[str, ...] = ()


def changing_sources(
    timeline: Timeline, instant: Instant, commit: CommitMetadata, replaced: Mapping[tuple[str, str], InstantTime]
) -> list[ChangeSource]:
    """Return the sources of a commit, where rows went to old and to new buckets of a clustering those of one.

    These are the old buckets. In version 6 the timeline does not say whether the clustering completed before the commit: once it
    has completed, it counts as older, and the new buckets tell.

    Args:
        timeline: the table's.
        instant: the commit.
        commit: its metadata.
        replaced: the file groups that are replaced, with the instants that did it.
    """

    def tells(source: ChangeSource) -> bool:
        if source.case is not InferenceCase.LOG_FILE:
            return True
        if timeline.layout == 1 and replaced.get((source.partition, source.file_id), instant.time) < instant.time:
            return False
        return not all(is_copied_log(timeline, instant, path.rpartition("/")[2]) for path in source.files)

    return [source for source in plan_sources(commit) if tells(source)]


def plan_sources(commit: CommitMetadata) -> list[ChangeSource]:
    """Return the change sources of a commit, one per file group, replaced groups first.

    Args:
        commit: its metadata.

    Source: docs/format.md, Change files.

    Example:
        >>> from lakefmt._core.values import WriteOperation
        >>> stat = WriteStat("f-0", "", "f-0_1-0-0_20260101000000000.parquet", num_writes=2, num_inserts=2)
        >>> [source.case.name for source in plan_sources(CommitMetadata(WriteOperation.INSERT, (stat,)))]
        ['BASE_FILE_INSERT']
    """
    sources = [
        ChangeSource(InferenceCase.REPLACE_COMMIT, partition, file_id)
        for partition, ids in commit.replaced_file_ids.items()
        for file_id in ids
    ]
    logs: dict[tuple[PartitionPath, FileId], list[str]] = {}
    for stat in commit.stats:
        if not stat.path:
            continue
        if parse_base_file(stat.file_name) is None:
            logs.setdefault((stat.partition_path, stat.file_id), []).append(stat.path)
        else:
            sources.append(_source_of_base_file(stat))
    sources += [ChangeSource(InferenceCase.LOG_FILE, *key, files=tuple(paths)) for key, paths in logs.items()]
    return sources


def _source_of_base_file(stat: WriteStat) -> ChangeSource:
    change_files = cdc_paths(stat)
    former = stat.prev_commit or "null"
    if change_files:
        case = InferenceCase.AS_IS
    elif former == "null":
        case = InferenceCase.BASE_FILE_INSERT
    elif not stat.num_writes:
        case = InferenceCase.BASE_FILE_DELETE
    else:
        case = InferenceCase.BASE_FILE_COMPARE
    return ChangeSource(case, stat.partition_path, stat.file_id, stat.path, former, change_files)


@dataclass(frozen=True, slots=True)
class _Chain:
    """Commits that wrote logs to one slice, the slice behind the last of them, and the ranks of all its logs' instants."""

    file_slice: FileSlice
    order: Mapping[str, int]
    commits: Sequence[tuple[Instant, ChangeSource]]


_File = TypeVar("_File", BaseFile, LogFile)


def _age_of_base(base: BaseFile) -> tuple[str, str]:
    return base.instant, base.write_token


def _newer_base(one: BaseFile, other: BaseFile) -> BaseFile:
    return max(one, other, key=_age_of_base)


@dataclass(slots=True)
class GroupFiles:
    """All files that a file group has or had; ``gone`` has the paths of removed ones."""

    bases: list[BaseFile] = field(default_factory=list)
    logs: list[LogFile] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    _by_instant: dict[str, BaseFile] = field(default_factory=dict, compare=False, repr=False)

    def base_at(self, instant: str) -> BaseFile | None:
        """Return the base file of an instant, of several attempts the latest; asked once all files are known."""
        if not self._by_instant:
            self._by_instant = {base.instant: base for base in sorted(self.bases, key=_age_of_base)}
        return self._by_instant.get(instant)


@dataclass(frozen=True)
class FileHistory:
    """The file groups of a table at any commit.

    Files that a clean removed are known by name, so that a state that needs one is an error instead of a smaller state.

    Attributes:
        timeline: all commits, with the relevant archived ones.
        groups: (partition, file id) → its files.
    """

    timeline: Timeline
    groups: dict[_GroupKey, GroupFiles]

    @classmethod
    def load(cls, table_at: TableAt, first: InstantTime, partitions: Sequence[PartitionPath]) -> FileHistory:
        """List the partitions, and the files that cleans removed from them since the commit `first`."""
        bases, logs = table_at.client.listing(table_at.config).files(partitions)
        bases = table_at.without_lost_attempts(bases)
        groups: dict[_GroupKey, GroupFiles] = {}
        for base in bases:
            groups.setdefault((base.partition, base.file_id), GroupFiles()).bases.append(base)
        for log in logs:
            groups.setdefault((log.partition, log.file_id), GroupFiles()).logs.append(log)
        present, listed_partitions = {base.path for base in bases} | {log.path for log in logs}, set(partitions)
        for removed in _files_removed_by_cleans(table_at, first):
            if removed.partition in listed_partitions and removed.path not in present:
                group = groups.setdefault((removed.partition, removed.file_id), GroupFiles())
                if removed.path not in group.gone:
                    group.gone.add(removed.path)
                    if isinstance(removed, BaseFile):
                        group.bases.append(removed)
                    else:
                        group.logs.append(removed)
        timeline = table_at.timeline
        if not all(timeline.tells_completion_of(log.instant) for group in groups.values() for log in group.logs):
            timeline = table_at.with_history().timeline  # it decides what a commit saw
        return cls(timeline, groups)

    def base(self, source: ChangeSource, instant: str) -> FileSlice:
        """Return a group's base file at an instant, as a slice.

        Raises:
            SnapshotExpired: the file was cleaned.
        """
        group = self.groups.get((source.partition, source.file_id), GroupFiles())
        base = group.base_at(instant)
        if base is None or base.path in group.gone:
            where = f"{source.partition}/{source.file_id}".lstrip("/")
            raise SnapshotExpired(f"the base file of {where} at {instant} is gone: a clean removed it")
        return FileSlice(source.partition, source.file_id, InstantTime(instant), base)

    def slice_at(self, source: ChangeSource, commit: Instant, *, after: bool) -> tuple[FileSlice | None, Timeline]:
        """Return a group's slice just before or just after a commit, and the timeline to read it with.

        Raises:
            SnapshotExpired: a file of the slice was cleaned.
        """
        group = self.groups.get((source.partition, source.file_id), GroupFiles())
        by_request = self.timeline.layout == 1 or _has_shared_logs(source, commit)
        timeline = self._timeline_at(commit, after=after) if by_request else self.timeline
        bases, logs = group.bases, group.logs
        if not by_request:
            bases = [b for b in bases if self._is_seen(b.instant, commit, after=after)]
            logs = [log for log in logs if self._is_seen(log.instant, commit, after=after)]
        slices = all_slices(bases, logs, timeline)
        latest = max(slices, key=lambda file_slice: file_slice.instant, default=None)
        lost = [] if latest is None else [path for path in latest.paths if path in group.gone]
        if lost:
            raise SnapshotExpired(f"{lost[0]} is gone: a clean removed it")
        return latest, timeline

    def chains(self, key: _GroupKey, commits: Sequence[tuple[Instant, ChangeSource]]) -> Iterator[_Chain]:
        """Yield runs of commits that wrote logs to one slice of a group, and the slice behind the last one of each run.

        What is not in a run has to be read commit by commit: a state needs a file that is gone, or is told by requested times.

        Args:
            key: of the group.
            commits: in their order, each with its source of this group, which is one of logs.
        """
        group = self.groups.get(key)
        if (
            group is None
            or self.timeline.layout == 1
            or any(_has_shared_logs(source, commit) for commit, source in commits)
        ):
            return
        bases = self._by_completion(group.bases)
        logs = self._by_completion(group.logs)
        newest = [*accumulate((base for _, base in bases), _newer_base)]
        base_marks, log_marks = [mark for mark, _ in bases], [mark for mark, _ in logs]
        runs: list[tuple[BaseFile | None, list[tuple[Instant, ChangeSource]]]] = []
        for commit, source in commits:
            index = bisect_left(base_marks, (commit.order_time, commit.time))
            if index < len(bases) and bases[index][1].instant == commit.time:
                continue  # it wrote a base file, too
            base = newest[index - 1] if index else None
            if not runs or runs[-1][0] != base:
                runs.append((base, []))
            runs[-1][1].append((commit, source))
        for base, run in runs:
            begin = 0 if base is None else bisect_left(log_marks, (base.instant, ""))
            end = bisect_right(log_marks, (run[-1][0].order_time, run[-1][0].time))
            marks = dict.fromkeys(mark[1] for mark, _ in logs[begin:end])
            slices = all_slices([] if base is None else [base], [log for _, log in logs[begin:end]], self.timeline)
            paths = {path for each in slices for path in each.paths}
            if len(slices) == 1 and paths.isdisjoint(group.gone) and all(paths.issuperset(s.files) for _, s in run):
                yield _Chain(slices[0], {time: rank for rank, time in enumerate(marks)}, run)

    def _by_completion(self, files: Sequence[_File]) -> list[tuple[tuple[InstantTime, InstantTime], _File]]:
        """Return the committed files with their marks, which sort as they became visible."""
        marked = [
            ((self.timeline.completion_of(file.instant), file.instant), file)
            for file in files
            if self.timeline.is_committed(file.instant)
        ]
        return sorted(marked, key=lambda each: each[0])

    def _is_seen(self, time: InstantTime, commit: Instant, *, after: bool) -> bool:
        """Return whether an instant's files were visible around a commit, by completion order."""
        if time == commit.time:
            return after
        done = self.timeline.completion_of(time)
        return (done, time) < (commit.order_time, commit.time)

    def _timeline_at(self, commit: Instant, *, after: bool) -> Timeline:
        """Return the timeline up to a commit or just before it, by requested times."""
        if after:
            return self.timeline.as_of(commit.time)
        return self.timeline.as_of(_time_before(commit.time))


def _has_shared_logs(source: ChangeSource, commit: Instant) -> bool:
    """Return whether a commit wrote logs of version 6: named by their slice, they outlive an upgrade and its layout.

    Such a log may hold blocks of other commits, too, and is found by the commit's requested time. So were the commits:
    an upgrade gives them completion times in that order.
    """
    names = (parse_log_file(path.rpartition("/")[2]) for path in source.files)
    return any(name is not None and not name.is_cdc and name.instant != commit.time for name in names)


def _time_before(time: str) -> str:
    """Return a bound below an instant time and above every earlier one.

    Example:
        >>> _time_before("20260101000000000"), _time_before("20260101000000001")
        ('20260100999999999', '20260101000000000')
    """
    return str(int(time) - 1).rjust(len(time), "0")


def _files_removed_by_cleans(table_at: TableAt, first: InstantTime) -> Iterable[BaseFile | LogFile]:
    """Yield the base files and logs that cleans removed since a commit; none if the cleans promise to have kept them all.

    What a commit met is told by completion: a service that was requested before it and completed after it does not count.
    """
    now = TableState(table_at.config, table_at.client.timeline_store(table_at.config).load())
    begun = next((i.order_time for i in table_at.timeline.commits if i.time == first), first)
    earliest = min((i.time for i in now.timeline.commits if i.order_time >= begun), default=first)
    for _, record in cleans_beyond_promise(table_at.client.at(now), first, min(first, earliest)):
        bases, logs = cleaned_files(record)
        yield from bases
        yield from logs


_CommitSources = Sequence[tuple[Instant, Sequence[ChangeSource]]]
#: The most bytes of a slice whose states are kept between two calls, and of all of them.
_MOST_SLICE_BYTES: Final = 16 << 20
_MOST_KEPT_BYTES: Final = 64 << 20
_ChangesOfLogs = dict[tuple[InstantTime, PartitionPath, FileId], ChangedRows]
_IMAGE_META_COLUMNS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY)


def read_changes(
    table_at: TableAt,
    start: Moment,
    end: Moment | None = None,
    columns: Sequence[str] | None = None,
    filter: Filter = None,
) -> pa.Table:
    """Return the changes of the commits after `start` up to `end`; see ``Table.changes``."""
    first = _first_instant(table_at, start)
    last = None if end is None else bound_of(table_at, end, visible=True)
    table_at = table_at.client.at(with_archived_instants(table_at, first))
    work = _ChangesReader(table_at.client, table_at.state, *_plan_images(table_at, columns, filter))
    commits = select_commits(table_at.timeline, first, last, planned_clusterings(table_at))
    with _explain_expired_files(table_at.client, first):
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


def plan_changes_read(table_at: TableAt, start: Moment, end: Moment | None = None) -> ChangesPlan:
    """Return what the changes of a range are read from.

    Raises:
        UnsupportedFeature: the table has no meta columns.
    """
    first = _first_instant(table_at, start)
    last = None if end is None else bound_of(table_at, end, visible=True)
    table_at = table_at.client.at(with_archived_instants(table_at, first))
    commits = select_commits(table_at.timeline, first, last, planned_clusterings(table_at))
    work = _ChangesReader(table_at.client, table_at.state, *_plan_images(table_at, None, None)).planned(commits)
    with _explain_expired_files(table_at.client, first):
        files = _file_history(table_at, work)
    next_start = max((i.order_time for i in commits), default=InstantTime(first))
    return ChangesPlan(
        table_at.state, first, next_start, tuple((commit, tuple(sources)) for commit, sources in work), files
    )


def read_planned_changes(
    client: TableClient,
    plan: ChangesPlan,
    columns: Sequence[str] | None = None,
    filter: Filter = None,
    memory: SliceMemory | None = None,
) -> pa.Table:
    """Return the changes of planned sources.

    Args:
        client: the table.
        plan: the sources.
        columns: those of the images; None: all.
        filter: of rows before and after.
        memory: of calls with these columns and this filter for parts of one plan.

    Raises:
        SnapshotExpired: a file was cleaned away.
    """
    reader = _ChangesReader(client, plan.state, *_plan_images(client.at(plan.state), columns, filter), memory)
    with _explain_expired_files(client, plan.start):
        return reader.of_sources(plan.work, plan.files)


def _first_instant(table_at: TableAt, start: Moment) -> str:
    """Return the start as an instant time.

    Raises:
        UnsupportedFeature: the table has no meta columns.
    """
    if not table_at.config.populate_meta_fields:
        raise UnsupportedFeature("changes need meta columns, and this table does not fill them")
    return bound_of(table_at, start, visible=True)


@contextmanager
def _explain_expired_files(client: TableClient, start: str) -> Iterator[None]:
    """Say of a file that is gone which changes can be read."""
    try:
        yield
    except SnapshotExpired as error:
        oldest = client.at(client.load()).retained_from()
        hint = f"; the changes of commits from {oldest} on can be read" if oldest else ""
        raise SnapshotExpired(f"the changes after {start} need what was cleaned away: {error}{hint}") from None


def _file_history(
    table_at: TableAt, work: _CommitSources, partitions: Collection[PartitionPath] | None = None
) -> FileHistory:
    """Return the files of the partitions of some sources; None: of all of them."""
    touched = {source.partition for _, sources in work for source in sources} if partitions is None else partitions
    if not work:
        return FileHistory(table_at.timeline, {})
    return FileHistory.load(table_at, min(commit.time for commit, _ in work), sorted(touched))


def _plan_images(table_at: TableAt, columns: Sequence[str] | None, filter: Filter) -> tuple[Query, tuple[str, ...]]:
    """Return the query for the rows of both images, and the image columns of the result."""
    image_query = plan_query(table_at.config, table_at.schema(), columns, filter, meta_columns=False)
    if not image_query.columns:
        raise InvalidInputError("columns=[]: an image without columns tells nothing; leave columns out for all of them")
    needed_columns = {*_IMAGE_META_COLUMNS, *image_query.columns, *image_query.filter_columns}
    names = tuple(name for name in image_query.schema.names if name in needed_columns)
    return Query(names, image_query.condition, image_query.schema), image_query.columns


@dataclass(frozen=True)
class _ChangesReader:
    """Reads changes; `query` has the row columns and the filter, `columns` the image columns."""

    client: TableClient
    state: TableState
    query: Query
    columns: tuple[str, ...]
    memory: SliceMemory | None = None

    @property
    def table_at(self) -> TableAt:
        """The table as it is read."""
        return self.client.at(self.state)

    def table(self, commits: Sequence[Instant]) -> pa.Table:
        """Return the changes of commits."""
        work = self.planned(commits)
        touched = sorted({source.partition for _, sources in work for source in sources})
        remaining_partitions = set(prune_partitions(self.table_at, touched, self.query)) if work else set()
        files = _file_history(self.table_at, work, remaining_partitions)
        return self.of_sources(
            [(commit, [s for s in sources if s.partition in remaining_partitions]) for commit, sources in work], files
        )

    def planned(self, commits: Sequence[Instant]) -> list[tuple[Instant, list[ChangeSource]]]:
        """Return the commits that changed rows, with the sources of the changes."""
        planned = [(commit, self._sources(commit)) for commit in commits]
        return [(commit, sources) for commit, sources in planned if sources]

    def of_sources(self, work: _CommitSources, files: FileHistory) -> pa.Table:
        """Return the changes of sources; within a commit deletes come first, so that a moved key stays."""
        image = pa.struct([self.query.schema.field(name) for name in self.columns])
        schema = pa.schema([(OP, pa.string()), (TS_MS, pa.string()), (BEFORE, image), (AFTER, image)])
        parts = [schema.empty_table()]
        of_logs = self._changes_of_logs(work, files)
        for commit, sources in work:
            deletes, others = [], []
            for changes in self._changed(commit, sources, files, of_logs):
                whole = self._answer(changes, commit, image)
                deletes.append(whole.slice(0, changes.deleted.num_rows))
                others.append(whole.slice(changes.deleted.num_rows))
            parts += [part for part in (*deletes, *others) if part.num_rows]
        return pa.concat_tables(parts)

    def _sources(self, commit: Instant) -> list[ChangeSource]:
        metadata = self.table_at.commit_metadata(commit)
        if is_rewrite(metadata):
            return []
        return changing_sources(self.state.timeline, commit, metadata, self._replaced)

    @cached_property
    def _replaced(self) -> Mapping[tuple[str, str], InstantTime]:
        """The replaced file groups; only in version 6 the sources depend on them."""
        return self.table_at.replaced() if self.state.timeline.layout == 1 else {}

    def _changed(
        self, commit: Instant, sources: Sequence[ChangeSource], files: FileHistory, of_logs: _ChangesOfLogs
    ) -> Iterator[ChangedRows]:
        for source in sources:
            changes = of_logs.pop((commit.time, source.partition, source.file_id), None)
            if changes is None:
                changes = self._filtered(self._of_source(commit, source, files))
            if changes.num_rows:
                yield changes

    def _filtered(self, changes: ChangedRows) -> ChangedRows:
        return changes if self.query.condition is None else _filtered_changes(changes, self.query)

    def _changes_of_logs(self, work: _CommitSources, files: FileHistory) -> _ChangesOfLogs:
        """Return the changes that logs tell, group by group: each slice is read once for all of its commits."""
        found: _ChangesOfLogs = {}
        query = replace(self.query, condition=None)
        table_at = self.client.at(replace(self.state, timeline=files.timeline))

        def states_of(chain: _Chain) -> SliceStates | None:
            return slice_states(table_at, chain.file_slice, query, chain.order, self.state)

        for key, commits in _log_sources(work).items():
            for chain, states in self._states(key, commits, files, states_of):
                for commit, source in chain.commits:
                    before, after = (
                        reconcile(rows.select(list(query.columns)), self._schema) for rows in states.around(commit.time)
                    )
                    change_key = (commit.time, source.partition, source.file_id)
                    found[change_key] = self._filtered(self._compared(before, after))
        return found

    def _states(
        self,
        key: _GroupKey,
        commits: Sequence[tuple[Instant, ChangeSource]],
        files: FileHistory,
        states_of: Callable[[_Chain], SliceStates | None],
    ) -> Iterator[tuple[_Chain, SliceStates]]:
        """Yield runs of a group's commits with the states of their slice; others are read commit by commit."""
        memory = self.memory
        cached_chains = None if memory is None else memory.chains(key, commits)
        for chain in files.chains(key, commits) if cached_chains is None else cached_chains:
            states = (
                states_of(chain) if memory is None or cached_chains is None else memory.states(key, chain, states_of)
            )
            if states is not None:
                yield chain, states

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
                _check_logs_are_there(source, states[1][0])
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
            rows = pa.concat_tables(merged_tables(self.client.at(state), [file_slice], query, self.state))
        else:
            rows = scan_table(self.table_at, [file_slice.base] if file_slice.base else [], query)
        return reconcile(rows, self._schema)

    # --------------------------------------------------------------------------------------------------- change files

    def _as_is(self, commit: Instant, source: ChangeSource, files: FileHistory) -> ChangedRows:
        """Return the changes in change files; missing images come from the states before and after the commit."""
        parts = [part for path in source.files for part in read_change_file(self.client.store, path)]
        ids = self.table_at.column_ids()
        column_places = None if ids is None else ids.at(commit.time)
        keyed = [part for part in parts if KEY in part.column_names]
        none = self._schema.empty_table()
        former = none if not keyed or source.former == "null" else self._rows(files.base(source, source.former))
        latter = none
        if keyed:
            rows = self._rows(files.base(source, commit.time))
            new = pc.equal(rows.column(COMMIT_TIME), str(commit.time))
            # A key may be stored twice: the rows of this commit come first.
            latter = pa.concat_tables([rows.filter(new), rows.filter(pc.invert(new))])
        images = [self._images(part, former, latter, ", ".join(source.files), column_places) for part in parts]
        joined = [
            pa.concat_tables([getattr(image_rows, name) for image_rows in images])
            for name in ("deleted", "before", "after", "inserted")
        ]
        return ChangedRows(*joined)

    def _images(
        self, part: pa.Table, former: pa.Table, latter: pa.Table, what: str, column_places: ColumnPlaces | None
    ) -> ChangedRows:
        by_op = {op: part.filter(pc.equal(part.column(OP), op)) for op in (DELETE, UPDATE, INSERT)}
        old = pa.concat_tables([by_op[DELETE], by_op[UPDATE]])
        new = pa.concat_tables([by_op[UPDATE], by_op[INSERT]])
        has_before, has_after = BEFORE in part.column_names, AFTER in part.column_names
        before = self._stored(old, BEFORE, what, column_places) if has_before else self._found(old, former, what)
        after = self._stored(new, AFTER, what, column_places) if has_after else self._found(new, latter, what)
        deletes, updates = by_op[DELETE].num_rows, by_op[UPDATE].num_rows
        return ChangedRows(
            before.slice(0, deletes), before.slice(deletes), after.slice(0, updates), after.slice(updates)
        )

    def _stored(self, part: pa.Table, name: str, what: str, column_places: ColumnPlaces | None) -> pa.Table:
        """Return images of one kind as rows in the table schema, without meta columns."""
        column = part.column(name).combine_chunks()
        if column.null_count:
            raise CorruptFile(f"{what}: {column.null_count} changes lack the image {name!r}")
        rows = pa.table(column.flatten(), names=[field.name for field in column.type])
        with reading(what):
            return reconcile(rows if column_places is None else column_places.current(rows), self._images_schema)

    @property
    def _images_schema(self) -> pa.Schema:
        return pa.schema([field for field in self._schema if field.name not in _IMAGE_META_COLUMNS])

    def _found(self, part: pa.Table, rows: pa.Table, what: str) -> pa.Table:
        match = match_keys(part.column(KEY), rows.column(RECORD_KEY))
        if match.null_count:
            raise CorruptFile(f"{what}: {match.null_count} changes are of keys that are not in the file group")
        return rows.take(match).select(self._images_schema.names)


def _log_sources(work: _CommitSources) -> dict[_GroupKey, list[tuple[Instant, ChangeSource]]]:
    """Return the sources of logs by file group, in the order of their commits."""
    by_group: dict[_GroupKey, list[tuple[Instant, ChangeSource]]] = {}
    for commit, sources in work:
        for source in sources:
            if source.case is InferenceCase.LOG_FILE:
                by_group.setdefault((source.partition, source.file_id), []).append((commit, source))
    return by_group


class SliceMemory:
    """Keeps the states of slices while the changes of a plan are read commit by commit, by one thread for each file group.

    Small slices only, and of no more bytes than a bound; those used last go last.

    Args:
        plan: what is read.
        lock: one that these threads share.
    """

    def __init__(self, plan: ChangesPlan, lock: AbstractContextManager[object]) -> None:
        self._files = plan.files
        self._commits = _log_sources(plan.work)
        self._chains: dict[_GroupKey, list[_Chain]] = {}
        self._states: OrderedDict[tuple[_GroupKey, str], tuple[int, SliceStates | None]] = OrderedDict()
        self._bytes = 0
        self._lock = lock

    def chains(self, key: _GroupKey, commits: Sequence[tuple[Instant, ChangeSource]]) -> list[_Chain] | None:
        """Return the runs of the plan that have some commits, with these alone; None: nothing of them is kept."""
        with self._lock:
            if key not in self._chains:
                self._chains[key] = list(self._files.chains(key, self._commits.get(key, ())))
            chains = self._chains[key]
        times = {commit.time for commit, _ in commits}
        runs = [replace(each, commits=[pair for pair in each.commits if pair[0].time in times]) for each in chains]
        runs = [each for each in runs if each.commits]
        return runs if all(each.file_slice.size_bytes <= _MOST_SLICE_BYTES for each in runs) else None

    def states(
        self, key: _GroupKey, chain: _Chain, states_of: Callable[[_Chain], SliceStates | None]
    ) -> SliceStates | None:
        """Return the states of a chain's slice, made when they are asked for first."""
        slice_key = (key, chain.file_slice.instant)
        with self._lock:
            sized_states = self._states.get(slice_key)
        if sized_states is None:
            sized_states = (chain.file_slice.size_bytes, states_of(chain))
        with self._lock:
            self._bytes += 0 if slice_key in self._states else sized_states[0]
            self._states[slice_key] = sized_states
            self._states.move_to_end(slice_key)
            while self._bytes > _MOST_KEPT_BYTES:
                self._bytes -= self._states.popitem(last=False)[1][0]
        return sized_states[1]


def _check_logs_are_there(source: ChangeSource, file_slice: FileSlice | None) -> None:
    here = set() if file_slice is None else {log.path for log in file_slice.logs}
    lost = [path for path in source.files if path not in here]
    if lost:
        raise SnapshotExpired(f"{lost[0]} is gone: a clean removed it")


def _filtered_changes(changes: ChangedRows, query: Query) -> ChangedRows:
    """Return the changes whose row passes the filter before or after."""
    either = from_numpy(_rows_that_match(changes.before, query) | _rows_that_match(changes.after, query))
    return ChangedRows(
        keep_rows(changes.deleted, query.condition),
        changes.before.filter(either),
        changes.after.filter(either),
        keep_rows(changes.inserted, query.condition),
    )


def _rows_that_match(rows: pa.Table, query: Query) -> Mask:
    numbered = rows.append_column("_lakefmt_row", from_numpy(np.arange(rows.num_rows)))
    matches = np.zeros(rows.num_rows, dtype=bool)
    matches[keep_rows(numbered, query.condition).column("_lakefmt_row").to_numpy()] = True
    return matches
