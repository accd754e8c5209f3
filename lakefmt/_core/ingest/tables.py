"""A lakefmt or Hudi table as a source: all its rows first, then what its commits changed, deletes among it (effects)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.cdc.events import RowKind
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.ingest.api import SOURCE, Checkpoint, RoundRows, SourceBatch, check_kind, check_source
from lakefmt._core.read.changes import plan_changes_read, read_planned_changes
from lakefmt._core.read.incremental import EARLIEST, ReadPosition, select_commits, visible_at_end
from lakefmt._core.read.snapshot import Snapshot, planned_clusterings, with_archived_instants
from lakefmt._core.read.splits import changes_of_split, pack_changes
from lakefmt._core.table import Table, open_table
from lakefmt._core.timeline.instant import Action, Instant
from lakefmt._core.values import TableVersion
from lakefmt.errors import PositionLost, SnapshotExpired, SourceUnavailable, StorageError, TableNotFound

__all__ = ["TableSource"]

#: The completion time of the last commit, where the checkpoint is its requested time.
_COMPLETION: Final = "completion"
#: The requested time up to which commits were taken when the table had version 6: some of them may be behind the completion time.
_REQUESTED: Final = "requested"
#: When the table was last restored.
_RESTORED: Final = "restored"
_BY_REQUEST: Final = "resumeFromInstantRequestTime:"
_BY_COMPLETION: Final = "resumeFromInstantCompletionTime:"
_COMMITS: Final = (
    "hoodie.streamer.source.hoodieincr.num_instants",
    "hoodie.deltastreamer.source.hoodieincr.num_instants",
)
_FALLS_BACK: Final = "hoodie.datasource.read.incr.fallback.fulltablescan.enable"
#: Of the changes of a commit: which rows come first, and what they are.
_IMAGES: Final = (
    ("u", "before", RowKind.UPDATE_BEFORE),
    ("d", "before", RowKind.DELETE),
    ("i", "after", RowKind.INSERT),
    ("u", "after", RowKind.UPDATE_AFTER),
)
#: Rows that are there after a commit.
_COMING: Final = (RowKind.INSERT, RowKind.UPDATE_AFTER)
#: Bytes of files whose changes are read at a time.
_PART_BYTES: Final = 32 << 20
#: Changed rows of a round; one commit is never parted.
_MOST_ROWS: Final = 1_000_000


class _TableRound:
    """All rows of a table, or those that some commits changed.

    Args:
        table: that is read.
        start: the time behind which its commits are; None: all rows.
        commits: in the order in which they became visible, each with the time of the commit before it.
        checkpoint: behind them.
        falls_back: all rows are read where files with changes are gone.
    """

    def __init__(
        self,
        table: Table,
        start: str | None,
        commits: list[tuple[str, Instant]],
        checkpoint: Checkpoint,
        falls_back: bool,
    ) -> None:
        self._table, self._start, self._commits, self.checkpoint = table, start, commits, checkpoint
        self._last, self._falls_back = commits[-1][1], falls_back

    @property
    def summary(self) -> str:
        """Return the range of commits."""
        return (
            f"changes behind {self._start} up to {self._last.time}"
            if self._start
            else f"all rows as of {self._last.time}"
        )

    @property
    def expected_rows(self) -> int | None:
        """Return None: only reading tells."""
        return None

    def batches(self) -> Iterator[SourceBatch]:
        """Read the rows.

        Raises:
            PositionLost: the commits of the range were cleaned away.
        """
        if self._start is None:
            yield from self._all_rows()
            return
        for begin, commit in self._commits:
            try:
                yield from _rows_of_commit(self._changes(begin, commit.order_time))
            except SnapshotExpired as error:
                if self._falls_back:
                    yield from self._all_rows()
                    return
                raise PositionLost(
                    f"{self._table.client.store.url}: what came behind {begin} was cleaned away ({error}); begin anew with "
                    f"--ignore-checkpoint (deletes of that time are not seen), or always then, with {_FALLS_BACK}=true"
                ) from error

    def _changes(self, begin: str, end: str) -> Iterator[pa.Table]:
        """Yield the changes of a commit, those of some file groups at a time."""
        client = self._table.client
        plan = plan_changes_read(client.at(client.load()), begin, end)
        for split in pack_changes(plan, _PART_BYTES):
            yield read_planned_changes(client, changes_of_split(plan, split))

    def _all_rows(self) -> Iterator[SourceBatch]:
        # Up to the checkpoint: not by requested times, of which one before it may be larger than that of the last commit.
        client, until = self._table.client, self._last.order_time
        state = client.load()
        then = replace(state, timeline=visible_at_end(state.timeline, until).as_of(until))
        for batch in Snapshot(client, then).scan():
            yield SourceBatch(batch)


def _rows_of_commit(parts: Iterable[pa.Table]) -> Iterator[SourceBatch]:
    """Yield what a commit changed: first the rows that are no longer, then those that are, which wait in a temporary file.

    A key that moves to another file is deleted and inserted by one commit, in any order. The row before an update is deleted, too: in the
    table that follows it may lie in another partition, and a query may let only one of both through.
    """
    with ExitStack() as stack:
        waiting = {row_kind: stack.enter_context(closing(RoundRows(_PART_BYTES))) for row_kind in _COMING}
        for changes in parts:
            for op, image, row_kind in _IMAGES:
                mask = pc.and_(pc.equal(changes["op"], op), pc.is_valid(changes[image]))
                part = changes.filter(mask).select([image]).combine_chunks()
                for batch in part.to_batches(max_chunksize=65_536):
                    rows = pa.RecordBatch.from_struct_array(batch.column(0))
                    if row_kind in waiting:
                        waiting[row_kind].add(rows)
                    else:
                        yield _batch_of_kind(rows, row_kind)
        for row_kind, rows_of_kind in waiting.items():
            for rows in rows_of_kind.batches():
                yield _batch_of_kind(rows, row_kind)


def _batch_of_kind(rows: pa.RecordBatch, row_kind: RowKind) -> SourceBatch:
    """Return rows of one kind: SQL is run over rows of one kind at a time."""
    return SourceBatch(rows, None if row_kind is RowKind.INSERT else np.full(rows.num_rows, row_kind.value, np.int8))


def _newest_restore(table_at: TableAt) -> Instant | None:
    """Return the last time that the table was restored to an older state: what was taken before may be no more."""
    return max(
        table_at.timeline.completed_of(Action.RESTORE),
        key=lambda restore: (restore.order_time, restore.time),
        default=None,
    )


def _undone(table_at: TableAt, after: Checkpoint, position: ReadPosition, restore: Instant | None) -> str | None:
    """Return what was undone of the commits up to a checkpoint; None: nothing.

    A rollback takes the newest commit first: it has left the commit at the checkpoint, or nothing that was taken is gone.
    """
    # The checkpoint of version 6 has requested times, also of the restore, and may be one behind an upgrade.
    is_by_request = bool(position.requested) and _COMPLETION not in after.details
    last = position.requested if is_by_request else position.time
    if restore is not None:
        time, known = restore.time if is_by_request else restore.order_time, after.details.get(_RESTORED, "")
        if known != restore.time and time > max(last, known):
            return f"it was restored to an older state at {time}, behind the checkpoint {last}"
    # Of a checkpoint that was given nobody knows whether a commit ever had that time.
    is_ours = SOURCE in after.details
    if is_ours and not _has_commit(table_at, last) and not _has_commit(table_at.with_history(), last):
        return f"the commit {last}, up to which it was taken, was rolled back"
    return None


def _has_commit(table_at: TableAt, time: str) -> bool:
    return any(time in (each.time, each.order_time) for each in table_at.timeline.commits)


class TableSource:
    """The changes of a table.

    Args:
        path: of the table.
        options: Hudi's properties of an incremental source.
        storage_options: credentials of the store.
    """

    def __init__(
        self, path: str, options: Mapping[str, str] | None = None, storage_options: Mapping[str, object] | None = None
    ) -> None:
        self._path, self._options, self._storage_options = path, dict(options or {}), storage_options
        self._opened: Table | None = None

    @property
    def name(self) -> str:
        """Return the path or URL."""
        return self._path

    @property
    def _table(self) -> Table:
        if self._opened is None:
            try:
                self._opened = open_table(self._path, storage_options=self._storage_options)
            except (TableNotFound, StorageError) as error:
                raise SourceUnavailable(f"{self._path}: {error}") from error
        return self._opened

    def schema(self) -> pa.Schema | None:
        """Return the columns of the table."""
        return self._table.schema

    def close(self) -> None:
        """Forget the table."""
        self._opened = None

    def checkpoint_version(self, table_version: int) -> int:
        """Return the generation of Hudi's keys: the second one from version 8 on."""
        return 2 if table_version >= TableVersion.EIGHT.value else 1

    def plan(self, after: Checkpoint | None, limit: int | None) -> _TableRound | None:
        """Choose the commits that come next.

        Args:
            after: of the newest commit that has one; None: all rows first.
            limit: about how many changed rows a round has; a commit is never parted. ``hoodie.streamer.source.hoodieincr.num_instants``
                limits commits.

        Raises:
            SourceRefused: the checkpoint is of another kind of source, or of another table.
            SourceUnavailable: the table is not there.
            PositionLost: the table was restored, or rolled back, to a state before the checkpoint.
        """
        table = self._table
        table_at = table.client.at(table.client.load())
        position = None if after is None else self._position(table_at, after)
        falls_back = self._options.get(_FALLS_BACK, "").lower() == "true"
        restore = _newest_restore(table_at)
        undone = None if after is None or position is None else _undone(table_at, after, position, restore)
        if undone is not None:
            if not falls_back:
                raise PositionLost(
                    f"{table.client.store.url}: {undone}: begin anew with --ignore-checkpoint (rows that are gone are not deleted), or "
                    f"always then, with {_FALLS_BACK}=true"
                )
            position = None
        start = EARLIEST if position is None else position.time
        if position is not None:
            # Commits that were archived since the last round are read one by one, too.
            table_at = table.client.at(with_archived_instants(table_at, start))
        # Of version 6 nothing behind a commit that is not done yet: when it is, its time lies before theirs.
        behind = select_commits(table_at.timeline, start, None, planned_clusterings(table_at))
        begins = [start, *(each.order_time for each in behind)]
        commits = [
            (begin, each)
            for begin, each in zip(begins, behind, strict=False)
            if position is None or not position.has(each)
        ]
        if not commits:
            return None
        if position is not None:
            commits = commits[: self._count_of_round(table_at, [each for _, each in commits], limit)]
        last = commits[-1][1]
        details = {SOURCE: table.client.store.url.rstrip("/")}
        if last.completion is not None:
            details[_COMPLETION] = last.completion
        if position is not None and any(position.has(each) for each in behind[behind.index(last) :]):
            details[_REQUESTED] = position.requested
        if restore is not None:
            details[_RESTORED] = restore.order_time
        point = Checkpoint(last.order_time, details)
        return _TableRound(table, None if position is None else start, commits, point, falls_back)

    def _count_of_round(self, table_at: TableAt, commits: list[Instant], limit: int | None) -> int:
        """Return how many of the next commits a round takes."""
        most = next((self._options[name] for name in _COMMITS if name in self._options), None)
        if most is not None:
            commits = commits[: max(1, int(most))]
        rows, most_rows = 0, _MOST_ROWS if limit is None else limit
        for number, each in enumerate(commits):
            stats = table_at.commit_metadata(each).stats
            rows += sum(stat.num_inserts + stat.num_update_writes + stat.num_deletes for stat in stats)
            if rows > most_rows and number:
                return number
        return len(commits)

    def _position(self, table_at: TableAt, after: Checkpoint) -> ReadPosition:
        """Return which commits are new behind a checkpoint."""
        check_kind(after.text, "a Hudi table", self.name)
        check_source(after, self._table.client.store.url.rstrip("/"))
        stated = after.details.get(_COMPLETION)
        if stated is not None:
            return ReadPosition(stated, after.details.get(_REQUESTED, ""))
        if after.text.startswith(_BY_COMPLETION):
            return ReadPosition(after.text.removeprefix(_BY_COMPLETION))
        instant = after.text.removeprefix(_BY_REQUEST)
        if SOURCE in after.details and table_at.timeline.layout > 1:
            return ReadPosition(instant, instant)
        commit = next((each for each in table_at.timeline.commits if each.time == instant), None)
        return ReadPosition(instant if commit is None else commit.completion or commit.time)
