"""Find the commits that a stream hands out next (effects: reads only)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from lakefmt._core.consumers.part_reading import is_keyed
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
from lakefmt._core.filegroups.model import FileSlice, join_path
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.names import PARTITION_METADATA, queue_position_of
from lakefmt._core.formats.properties import decode_properties
from lakefmt._core.keys import parse_partition_values
from lakefmt._core.read.incremental import is_rewrite, select_commits, visible_at_end
from lakefmt._core.read.snapshot import planned_clusterings, with_archived_instants
from lakefmt._core.read.snapshot_files import pinned_slices
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.consumers import newest_watermark
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Instant, State
from lakefmt.errors import LakefmtError

__all__ = ["CommitFinder", "NextCommits", "in_queue_order"]

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
