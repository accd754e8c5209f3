"""The methods of a table whose work is done in other packages: compaction and services, undo, streams, catalogs, merges.

``table.merge(source, on).when_matched(...)….execute()`` is here, too (docs/merge.md).

The methods check their arguments and import what does the work when they are called, because a process rarely calls more than a few of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, Unpack

import pyarrow as pa

from lakefmt._core.arguments import (
    check_flags,
    check_keywords,
    check_texts,
    flag_argument,
    mapping_argument,
    shown,
    text_argument,
)
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.config.table_config import KIND
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableClient, TableVerbs
from lakefmt._core.schema.cast import plain_columns
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import CommitResult, Filter, Partitions, TableType, WriteOperation, instant_of
from lakefmt.errors import InvalidInputError
from lakefmt.options import WriteOptions

if TYPE_CHECKING:
    from lakefmt._core.catalogs.entries import Metastore
    from lakefmt._core.catalogs.sync import SyncResult
    from lakefmt._core.compaction.cluster_run import ClusteringResult
    from lakefmt._core.compaction.compact_run import CompactionResult
    from lakefmt._core.compaction.scheduler import BackgroundServices
    from lakefmt._core.consumers.position import (
        EndLike,
        StartLike,
    )
    from lakefmt._core.consumers.registry import TableConsumers
    from lakefmt._core.consumers.stream import TableStream, WatermarkAlignment
    from lakefmt._core.producers.stream.opening import Recovered
    from lakefmt._core.producers.stream.options import StreamOptions, StreamSettings
    from lakefmt._core.producers.stream.stream import AsyncStream, Stream
    from lakefmt._core.timeline.metadata_codec import Savepoint
    from lakefmt._core.undo import RestoreResult, RollbackResult
    from lakefmt._core.write.context import OnCommit, WriteRequest
    from lakefmt._core.write.merge_rows import Clause, Values

__all__ = [
    "CatalogVerbs",
    "CompactionVerbs",
    "ConsumerVerbs",
    "MergeValues",
    "ProducerVerbs",
    "TableMerge",
    "UndoVerbs",
]

_OPERATIONS: Final = ("upsert", "append")

_log = logging.getLogger("lakefmt.streams")


class CompactionVerbs(TableVerbs):
    """Compaction of a table, and table services in the background."""

    _background: BackgroundServices | None = None

    def compact(
        self,
        *,
        partitions: Partitions | None = None,
        where: Filter = None,
        full: bool = False,
        schedule: bool = False,
        run: str | None = None,
        abandon: str | None = None,
        dry_run: bool = False,
        verify: bool = False,
        log: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> CompactionResult | ClusteringResult:
        """Merge logs into base files: execute pending compactions, then plan one and execute it.

        An append table has no logs: its small files are packed into larger ones, as :meth:`cluster` does it.

        Args:
            partitions: of an append table only these, paths or values (docs/partitions.md).
            where: of an append table only file slices that may have rows of this filter, as :meth:`read` takes it.
            full: of an append table also files that are not small: all that are not full.
            schedule: only request the plan; the next compaction, or another engine's, executes it.
            run: only execute the pending compaction, or log compaction, of this requested time, whichever engine planned
                it.
            abandon: only withdraw the pending compaction, or log compaction, of this requested time.
            dry_run: True returns the plan and changes nothing.
            verify: compare every new base file with its file slice before the compaction completes.
            log: run a log compaction instead: merge the logs of a file slice into one log; base files are not changed.
            options: settings of the call, such as ``hoodie.compaction.strategy``.

        Raises:
            UnsupportedFeature: the table is copy-on-write, and no append table.
            InvalidInputError: an argument is for the other kind of table.
            WriterActive: another process executes a compaction.
            InstantNotFound: no compaction is pending at `run` or `abandon`.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-compact", schema=pa.schema([("id", pa.string())]),
            ...     record_key="id", table_type="mor")
            >>> for _ in range(2): _ = t.upsert(pa.table({"id": ["a"]}))
            >>> len(t.compact().files)
            1
        """
        from lakefmt._core.compaction.compact_plan import CompactionPlan, abandon_compaction
        from lakefmt._core.compaction.compact_run import CompactionResult, plan_compaction_of, run_compaction
        from lakefmt._core.compaction.log_compact import (
            abandon_log_compaction,
            plan_log_compaction_of,
            run_log_compaction,
        )

        check_flags(schedule=schedule, dry_run=dry_run, verify=verify, log=log, full=full)
        check_texts(run=run, abandon=abandon)
        if sum((bool(schedule), run is not None, abandon is not None, bool(dry_run))) > 1:
            raise InvalidInputError("compact takes one of schedule, run, abandon and dry_run")
        config = self.client.load_config()
        if config.properties.get(KIND) == "append" and config.table_type is TableType.COPY_ON_WRITE:
            from lakefmt._core.compaction.cluster_run import options_for_all_files

            if log or verify:
                raise InvalidInputError("log= and verify= are for tables with logs, and an append table has none")
            cluster_options = options_for_all_files(self.client, options) if full else options
            named_plan = {"schedule": schedule, "run": run, "abandon": abandon, "dry_run": dry_run}
            return self.cluster(partitions=partitions, where=where, options=cluster_options, **named_plan)  # type: ignore[arg-type]
        if full or partitions is not None or where is not None:
            raise InvalidInputError("partitions=, where= and full= are for append tables, whose small files are packed")
        if dry_run:
            plan = plan_log_compaction_of if log else plan_compaction_of
            return CompactionResult(None, plan(self.client, options))
        with self._writing:
            instant = run or abandon
            log = log if instant is None else self._folds_logs(instant)
            if abandon is not None:
                withdraw = abandon_log_compaction if log else abandon_compaction
                withdraw(self.client, abandon, options)
                return CompactionResult(None, CompactionPlan(None, log=log))
            if log:
                return run_log_compaction(self.client, options, schedule=schedule, run=run)
            return run_compaction(self.client, options, schedule=schedule, run=run, verify=verify)

    def cluster(
        self,
        columns: Sequence[str] | str | None = None,
        *,
        order: str | None = None,
        where: Filter = None,
        partitions: Partitions | None = None,
        schedule: bool = False,
        run: str | None = None,
        abandon: str | None = None,
        dry_run: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> ClusteringResult:
        """Pack small files into larger ones and put their rows in an order: execute pending clusterings, then a new one.

        Args:
            columns: what rows are ordered by; None: ``hoodie.clustering.plan.strategy.sort.columns``, or not at all.
            order: ``"linear"``, ``"zorder"`` or ``"hilbert"``: how, when there are several columns; None:
                ``hoodie.layout.optimize.strategy``.
            where: only file slices that may have rows of this filter, as :meth:`read` takes it.
            partitions: only these, paths or values (docs/partitions.md); None: those that the settings name.
            schedule: only request the plan; the next clustering, or another engine's, executes it.
            run: only execute the pending clustering of this requested time, whichever engine planned it.
            abandon: only withdraw the pending clustering of this requested time.
            dry_run: True returns the plan and changes nothing.
            options: settings of the call, such as ``hoodie.clustering.plan.strategy.small.file.limit``.

        Raises:
            UnsupportedFeature: the table has a bucket index.
            InvalidInputError: rows cannot be ordered so.
            WriterActive: another process executes a clustering.
            CommitConflict: another engine changed a file group of the plan meanwhile.
            InstantNotFound: no clustering is pending at `run` or `abandon`.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-cluster", schema=pa.schema([("id", pa.string())]), record_key="id")
            >>> for key in "bca": _ = t.bulk_insert(pa.table({"id": [key]}))
            >>> len(t.cluster("id").files), t.read()["id"].to_pylist()
            (1, ['a', 'b', 'c'])
        """
        # Imported here: few programs cluster, and all wait for the import.
        from lakefmt._core.compaction.cluster_run import ClusterCall, cluster_table

        check_flags(schedule=schedule, dry_run=dry_run)
        check_texts(run=run, abandon=abandon, order=order)
        call = ClusterCall(columns, order, where, partitions, schedule, run, abandon, dry_run)
        with self._writing:
            return cluster_table(self.client, call, options)

    def _background_services(self) -> BackgroundServices:
        """Return the background services of this handle, which compact, clean and archive; start them if necessary.

        Commits of the handle only plan services; a thread executes them, as the settings say. The end of a ``with`` block
        waits for what is due. ``lakefmt.write.services.background=true`` does the same without a block.

        Raises:
            ServicesFailed: at the end of the block: a service failed, and no commit has reported it.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-services", schema=pa.schema([("id", pa.string())]),
            ...     record_key="id", table_type="mor", options={"hoodie.compact.inline.max.delta.commits": 2})
            >>> with t.services():
            ...     for _ in range(3): _ = t.upsert(pa.table({"id": ["a"]}))
            >>> t.read(query="read_optimized").num_rows
            1
        """
        from lakefmt._core.compaction.scheduler import BackgroundServices

        with self._writing:
            if self._background is None or self._background.is_closed:
                self._background = BackgroundServices(self.client)
            return self._background

    def _folds_logs(self, instant: str) -> bool:
        """Return whether the pending instant is a log compaction."""
        timeline = self.client.load().timeline
        return any(i.time == instant and i.action is Action.LOG_COMPACTION for i in timeline.pending)


class UndoVerbs(TableVerbs):
    """Rollback, savepoint and restore of a table."""

    def rollback(
        self, instant: str | CommitResult, *, force: bool = False, withdraw: bool | None = None, dry_run: bool = False
    ) -> RollbackResult:
        """Undo a pending instant, or the newest completed one.

        Args:
            instant: its requested time, or what the commit returned.
            force: also when its writer may be alive, or when it is a compaction that holds the only copy of its rows.
            withdraw: whether the plan of a pending compaction or clustering is removed, too. None: as in Hudi, the plan of
                a compaction is kept and that of a clustering is removed.
            dry_run: True returns the plan and changes nothing.

        Raises:
            InstantNotFound: the timeline has no such instant.
            StateError: it is completed and not the newest, or the state before it was cleaned.
            WriterActive: its writer may be alive.
            CompletedFileMissing: it is a compaction that was complete, and the files that it merged were cleaned.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a"]})
            >>> t = lakefmt.create_table("memory://doc-rollback", data=data, record_key="id")
            >>> first, second = t.upsert(data), t.upsert(pa.table({"id": ["b"]}))
            >>> t.rollback(second).plan.num_files, t.read().num_rows
            (1, 1)
        """
        from lakefmt._core.undo import RollbackResult, plan_undo, rollback_instant

        instant = _time_of(instant)
        check_flags(force=force, withdraw=withdraw, dry_run=dry_run)
        if dry_run:
            return RollbackResult(None, plan=plan_undo(self.client, instant))
        with self._writing:
            return rollback_instant(self.client, instant, force=force, withdraw=withdraw)

    def savepoint(
        self,
        instant: str | CommitResult | None = None,
        *,
        comment: str = "",
        user: str = "",
        dry_run: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> Savepoint:
        """Keep the state of a commit: cleans do not delete its files, and a restore can bring it back.

        Args:
            instant: the commit's time, or what it returned; None: the newest.
            comment: why; kept in the savepoint.
            user: name kept in the savepoint.
            dry_run: True returns what would be kept and changes nothing.
            options: settings of the call.

        Raises:
            InstantNotFound: the timeline has no such instant.
            AlreadyExistsError: it is kept already.
            StateError: it is no completed commit, or a clean has removed files of its state.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a"]})
            >>> t = lakefmt.create_table("memory://doc-savepoint", data=data, record_key="id")
            >>> _ = t.upsert(data)
            >>> len(t.savepoint(comment="before the move").files), [s.comment for s in t.savepoints()]
            (1, ['before the move'])
        """
        from lakefmt._core.undo import create_savepoint, plan_savepoint_of

        check_texts(comment=comment, user=user)
        instant = None if instant is None else _time_of(instant)
        check_flags(dry_run=dry_run)
        if dry_run:
            return plan_savepoint_of(self.client, instant, comment or "", user or "")
        with self._writing:
            return create_savepoint(self.client, instant, comment or "", user or "", options)

    def savepoints(self) -> tuple[Savepoint, ...]:
        """Return the savepoints of this table, oldest commit first.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-savepoints", data=pa.table({"id": ["a"]}), record_key="id")
            >>> kept = t.upsert(pa.table({"id": ["a"]})).instant
            >>> _ = t.savepoint(comment="before the move")
            >>> [(each.instant == kept, each.comment) for each in t.savepoints()]
            [(True, 'before the move')]
        """
        from lakefmt._core.undo import list_savepoints

        return list_savepoints(self.client)

    def delete_savepoint(self, instant: str | CommitResult, *, options: Mapping[str, object] | None = None) -> None:
        """Delete a savepoint; the next clean may delete its files.

        Args:
            instant: the time of the commit that is kept, or what it returned.
            options: settings of the call.

        Raises:
            InstantNotFound: there is no such savepoint.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-savepoint-gone", data=pa.table({"id": ["a"]}), record_key="id")
            >>> _ = t.upsert(pa.table({"id": ["a"]}))
            >>> t.delete_savepoint(t.savepoint().instant)
            >>> t.savepoints()
            ()
        """
        from lakefmt._core.undo import delete_savepoint

        instant = _time_of(instant)
        with self._writing:
            delete_savepoint(self.client, instant, options)

    def restore(
        self,
        instant: str | CommitResult,
        *,
        force: bool = False,
        dry_run: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> RestoreResult:
        """Bring back the state of a savepoint, or of any commit whose files are all there; later commits are undone.

        Args:
            instant: the time of the commit, or what it returned.
            force: also roll back pending instants whose writers may be alive.
            dry_run: True returns the plan and changes nothing.
            options: settings of the call; ``hoodie.metadata.enable=false`` drops a metadata table.

        Raises:
            InstantNotFound: the timeline has no such instant.
            StateError: the state cannot be brought back; the message says why.
            WriterActive: a writer may be alive.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-restore", data=pa.table({"id": ["a"]}), record_key="id")
            >>> kept = [t.upsert(pa.table({"id": [name]})) for name in "abc"][0]
            >>> len(t.restore(kept).plan.instants), t.read().num_rows
            (2, 1)
        """
        from lakefmt._core.undo import RestoreResult, plan_restore_of, restore_table

        instant = _time_of(instant)
        check_flags(force=force, dry_run=dry_run)
        if dry_run:
            return RestoreResult(None, plan_restore_of(self.client, instant, options))
        with self._writing:
            return restore_table(self.client, instant, options, force=force)


def _time_of(instant: str | CommitResult) -> str:
    """Return the requested time of an instant."""
    return text_argument(instant_of(instant), "instant")


class ConsumerVerbs(TableVerbs):
    """Reading a table as a stream, and who reads it so."""

    def stream(
        self,
        start: StartLike = "earliest",
        *,
        end: EndLike = None,
        follow: bool = True,
        columns: Sequence[str] | None = None,
        filter: Filter = None,
        order: str | None = None,
        buckets: Iterable[int] | Callable[[int | None], bool] | None = None,
        shard: tuple[int, int] | None = None,
        consumer_id: str | None = None,
        mode: str | None = None,
        takeover: bool = False,
        ignore_progress: bool = False,
        on_expired: str = "fail",
        include_boundary: bool = False,
        include_row_kind: bool = False,
        streaming_read_overwrite: bool | None = None,
        plan_sort_partition: bool | None = None,
        alignment: WatermarkAlignment | None = None,
        poll_interval: float | None = None,
        max_batches: int = 4,
        threads: int = 4,
    ) -> TableStream:
        """Read the table as a stream: the rows of its commits as they complete, batch by batch.

        A table without record keys gives rows; a table with record keys gives changes, with the column ``op`` (``i``, ``u``
        or ``d``; the row after it, of a delete before it). Commits of compactions and clusterings give nothing, so that no
        row comes twice. The result is an iterator, an async iterator and a context manager (docs/consumers.md).

        Args:
            start: ``"earliest"``: the oldest commit that can be read; ``"latest"``: what comes from now on; ``"full"``: the
                whole table, then what comes; an instant, aware datetime or ISO text: the commits completed after it;
                ``{"watermark": ms}``: the commits with a larger watermark; ``{"offset": …}``: a stream's ``position``.
            end: an instant or time, included; ``"latest"``: what is there now; ``{"watermark": ms}``: before the first
                commit with a larger watermark; None: no end.
            follow: False: end when everything that is there now was read.
            columns: names in the requested order; None: all.
            filter: as for :meth:`read`.
            order: ``"commit"``: one commit after the other; ``"bucket"``: buckets are read side by side, each in order;
                None: ``"bucket"`` for tables that keep an order in each bucket, else ``"commit"``.
            buckets: which buckets are read: numbers, or a function of one.
            shard: (i, n): the i-th of n parts of the buckets, from 0; without buckets of the file groups.
            consumer_id: keep the progress in the table under this id, and go on from there.
            mode: ``"exactly_once"``: the progress is kept by ``commit()`` only; ``"at_least_once"``: by itself, after a
                commit was handed out to its end; None: as the table says, else ``"exactly_once"``.
            takeover: read as a consumer that another reader, who is alive, reads as.
            ignore_progress: begin at `start` although the consumer has a progress.
            on_expired: what to do where rows were cleaned away: ``"fail"``, ``"earliest"``: go on with the oldest commit
                that is left; ``"full"``: read the whole table, then go on.
            include_boundary: with a watermark as `end`: hand out the commit that ends the stream, too.
            include_row_kind: add the column ``_row_kind``: ``+I``, ``-U``, ``+U``, ``-D``.
            streaming_read_overwrite: hand out what overwrites wrote; None: as the table says, else for tables with record
                keys.
            plan_sort_partition: of one commit the smaller partition value comes first, null before all; else the partition
                that was created earlier. None: as the table says, else False.
            alignment: wait for other streams of this group that are behind.
            poll_interval: how long to wait for new commits, in seconds; None: as the table says, else 10.
            max_batches: the most batches that are read ahead; 0: none.
            threads: how many buckets are read side by side.

        Raises:
            InvalidInputError: an argument that no stream takes.
            ConsumerActive: another reader uses `consumer_id`.
            DataExpired: rows were cleaned away (while iterating).

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-stream", schema=pa.schema([("id", pa.int64())]))
            >>> for n in range(2): _ = t.insert(pa.table({"id": [n, n + 10]}))
            >>> with t.stream(follow=False) as stream:
            ...     [batch.rows["id"].to_pylist() for batch in stream]
            [[0, 10], [1, 11]]
        """
        # Imported here: few programs read a table as a stream, and all wait for the import.
        from lakefmt._core.consumers.stream import StreamCall, stream_of

        call = StreamCall(
            start=start,
            end=end,
            follow=follow,
            columns=columns,
            filter=filter,
            order=order,
            buckets=buckets,
            shard=shard,
            consumer_id=consumer_id,
            mode=mode,
            takeover=takeover,
            ignore_progress=ignore_progress,
            on_expired=on_expired,
            include_boundary=include_boundary,
            include_row_kind=include_row_kind,
            streaming_read_overwrite=streaming_read_overwrite,
            plan_sort_partition=plan_sort_partition,
            alignment=alignment,
            poll_interval=poll_interval,
            max_batches=max_batches,
            threads=threads,
        )
        return stream_of(self.client, call)

    @property
    def consumers(self) -> TableConsumers:
        """Who reads this table as a stream and keeps progress in it: ``list``, ``reset``, ``delete``."""
        from lakefmt._core.consumers.registry import TableConsumers

        return TableConsumers(self.client)


class ProducerVerbs(TableVerbs):
    """Streams of rows into a table."""

    if TYPE_CHECKING:
        _finished: Callable[[CommitResult | None, WriteRequest, OnCommit | None], CommitResult]
        alter: Any

    def open_stream(
        self,
        operation: str | None = None,
        writer_id: str | None = None,
        *,
        options: StreamOptions | Mapping[str, object] | None = None,
        **settings: Unpack[StreamSettings],
    ) -> Stream:
        """Open a stream of rows into this table; what other streams left behind is committed first.

        Args:
            operation: ``"upsert"`` for tables with keys, ``"append"`` for tables without; None: what the table takes.
            writer_id: a name that is the same at every start of the program: rows are then written exactly once, and
                ``last_committed`` tells where to go on. A second process with the same name replaces the first. None: a
                name of its own for each stream.
            options: a :class:`StreamOptions`, or its fields.
            **settings: single fields of the options, such as ``flush_interval=1000``.

        Raises:
            InvalidInputError: the operation does not fit the table, or an option is not valid.
            StreamUnavailable: other processes open a stream of this name again and again.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-open-stream", schema=pa.schema([("v", pa.int64())]))
            >>> with t.open_stream(writer_id="w", commit_interval=0) as stream:
            ...     stream.extend([{"v": 1}, {"v": 2}])
            ...     stream.mark({"line": 2})
            >>> with t.open_stream(writer_id="w") as stream:
            ...     t.read().num_rows, stream.last_committed.offset
            (2, {'line': 2})
        """
        # Imported here: few programs open streams.
        from lakefmt._core.producers.stream.stream import open_row_stream

        stream_options = _options(options, settings)
        requested_operation = None if operation is None else text_argument(operation, "operation").lower()
        if requested_operation is not None and requested_operation not in _OPERATIONS:
            raise InvalidInputError(f"unknown operation {requested_operation!r}: expected 'upsert' or 'append'")
        return open_row_stream(
            self.client, requested_operation, writer_id, stream_options, self._run_commit, self._add_columns
        )

    def open_stream_async(
        self,
        operation: str | None = None,
        writer_id: str | None = None,
        *,
        options: StreamOptions | Mapping[str, object] | None = None,
        **settings: Unpack[StreamSettings],
    ) -> AsyncStream:
        """Return a stream whose methods are awaited; ``async with`` opens it.

        Args:
            operation: as for :meth:`open_stream`.
            writer_id: as for :meth:`open_stream`.
            options: as for :meth:`open_stream`.
            **settings: as for :meth:`open_stream`.

        Raises:
            InvalidInputError: the operation does not fit the table, or an option is not valid (when it is opened).
            StreamUnavailable: other processes open a stream of this name again and again (when it is opened).

        Example:
            >>> import asyncio, lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-async", schema=pa.schema([("v", pa.int64())]))
            >>> async def main():
            ...     async with t.open_stream_async() as stream:
            ...         await stream.insert({"v": 1})
            >>> asyncio.run(main()); t.read().num_rows
            1
        """
        from lakefmt._core.producers.stream.stream import AsyncStream

        return AsyncStream(lambda: self.open_stream(operation, writer_id, options=options, **settings))

    def recover_streams(self, options: Mapping[str, object] | None = None) -> list[Recovered]:
        """Commit what streams have flushed whose writers are dead; streams of living writers are left alone.

        Args:
            options: settings of the commits.

        Raises:
            LakefmtError: the first failure, when all other streams are done; nothing that was flushed is lost.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-recover", schema=pa.schema([("v", pa.int64())]))
            >>> t.recover_streams()
            []
        """
        from lakefmt._core.producers.stream.committing import commit_options
        from lakefmt._core.producers.stream.opening import recover_others

        settings = commit_options(self.client, mapping_argument(options, "options"))
        return recover_others(self.client, settings, self._run_commit)

    def _run_commit(self, run: Callable[[], CommitResult | None], request: WriteRequest) -> CommitResult:
        with self._writing:
            return self._finished(run(), request, None)

    def _add_columns(self, schema: pa.Schema) -> None:
        for field in schema:
            self.alter.add_column(field.name, field.type)


def _options(options: StreamOptions | Mapping[str, object] | None, settings: Mapping[str, Any]) -> StreamOptions:
    from lakefmt._core.producers.stream.options import FlushMode, StreamOptions

    mode = settings.get("flush_mode")
    if isinstance(mode, str) and mode.upper() in FlushMode.__members__:
        settings = {**settings, "flush_mode": FlushMode[mode.upper()]}
    try:
        if isinstance(options, StreamOptions):
            return replace(options, **settings) if settings else options
        return StreamOptions(**{**mapping_argument(options, "options"), **settings})
    except TypeError as error:
        raise InvalidInputError(f"options of a stream: {str(error).rpartition('()')[2].strip()}") from None


class CatalogVerbs(TableVerbs):
    """The verb of a table that concerns catalogs."""

    def sync(
        self,
        catalog: str | Metastore,
        *,
        database: str | None = None,
        name: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> SyncResult:
        """Make the table's entries in a catalog say what the table says now; repeated, it changes nothing.

        Args:
            catalog: ``thrift://host:9083`` of a Hive metastore, ``glue:`` or ``glue://region``, or a catalog of your own.
            database: the database of the entries; default: the table's, or ``default``.
            name: the name of the entries; default: the table's.
            options: ``hoodie.datasource.hive_sync.*`` and ``hoodie.meta.sync.*`` (docs/catalogs.md).

        Raises:
            AlreadyExistsError: the catalog has something else under that name; it was not changed.
            NotFoundError: there is no such database, and none is to be made.
            InvalidInputError: the options contradict the table.
            StorageError: the catalog failed; the next sync goes on.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> from lakefmt.catalogs import MemoryCatalog
            >>> data = pa.table({"id": ["a", "b"], "city": ["sf", "oslo"]})
            >>> t = lakefmt.create_table("memory://doc-sync", data=data, record_key="id", partition_by="city")
            >>> _ = t.insert(data)
            >>> print(t.sync(MemoryCatalog(), database="trips", name="rides"))
            trips.rides: created, partitions +2
        """
        from lakefmt._core.catalogs.sync import sync_to  # few tables have an entry in a catalog

        check_texts(database=database, name=name)
        if not isinstance(catalog, str) and not hasattr(catalog, "replace_partitions"):
            raise InvalidInputError(
                f"{shown(catalog)} is no catalog: give an address, or an object of the protocol Metastore"
            )
        return sync_to(self.client, catalog, database, name, mapping_argument(options, "options"))


Finished: TypeAlias = "Callable[[CommitResult | None, WriteRequest, OnCommit | None, float], CommitResult]"
#: What an update or insert stores: every column of the source, or column → SQL expression or value.
MergeValues = Literal["all"] | bool | Mapping[str, object]


@dataclass(frozen=True, slots=True)
class TableMerge:
    """A merge that is put together clause by clause, and runs with :meth:`execute`.

    Each method returns a new merge. In every clause ``t.<column>`` is the table's row and ``s.<column>`` the source's. A
    stored row and a source row that belong together are a match; the first clause whose condition holds decides about it.

    Values are ``"all"`` or True (every column that the source has), or a mapping of columns: a text is an SQL expression
    such as ``"t.fare * 2"`` (a text value is written ``"'sf'"``), an Arrow scalar, a number, a date or None is a value.

    Attributes:
        client: the open table.
        source: anything that holds Arrow data.
        on: names of columns, an SQL condition, or None: the record key.
        clauses: what was asked for so far.
    """

    client: TableClient
    writing: AbstractContextManager[object]
    finished: Finished
    source: object
    on: str | Sequence[str] | None = None
    clauses: tuple[Clause, ...] = ()

    def __repr__(self) -> str:
        return f"TableMerge({self.client.store.url!r}, {len(self.clauses)} clauses)"

    def when_matched(self, update: MergeValues = "all", *, where: Filter = None) -> TableMerge:
        """Update the stored row of a match.

        Args:
            update: what it gets: ``"all"``, or column → SQL expression or value; other columns stay.
            where: a condition over ``t`` and ``s``; None: always.

        Raises:
            InvalidInputError: `update` is neither.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a", "b"], "v": [1, 2]})
            >>> t = lakefmt.write_table("memory://doc-merge-update", data, record_key="id") and lakefmt.open_table(
            ...     "memory://doc-merge-update")
            >>> t.merge(pa.table({"id": ["a"], "v": [5]})).when_matched({"v": "t.v + s.v"}).execute().num_updates
            1
        """
        from lakefmt._core.write.merge_rows import Clause, When

        return self._with(Clause(When.MATCHED, False, _values(update, "update"), where))

    def when_matched_delete(self, *, where: Filter = None) -> TableMerge:
        """Delete the stored row of a match.

        Args:
            where: a condition over ``t`` and ``s``; None: always.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a", "b"]})
            >>> t = lakefmt.create_table("memory://doc-merge-delete", data=data, record_key="id")
            >>> _ = t.insert(data)
            >>> t.merge(pa.table({"id": ["a"]})).when_matched_delete().execute().num_deletes
            1
        """
        from lakefmt._core.write.merge_rows import Clause, When

        return self._with(Clause(When.MATCHED, True, None, where))

    def when_not_matched(self, insert: MergeValues = "all", *, where: Filter = None) -> TableMerge:
        """Insert a source row that no stored row belongs to.

        Args:
            insert: what is stored: ``"all"``, or column → SQL expression or value; other columns are null.
            where: a condition over ``s``; None: always.

        Raises:
            InvalidInputError: `insert` is neither.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a", "b"]})
            >>> t = lakefmt.create_table("memory://doc-merge-insert", data=data, record_key="id")
            >>> _ = t.insert(data)
            >>> t.merge(pa.table({"id": ["b", "c"]})).when_not_matched().execute().num_inserts
            1
        """
        from lakefmt._core.write.merge_rows import Clause, When

        return self._with(Clause(When.NOT_MATCHED, False, _values(insert, "insert"), where))

    def when_not_matched_by_source(
        self, *, update: Mapping[str, object] | None = None, delete: bool = False, where: Filter = None
    ) -> TableMerge:
        """Update or delete a stored row that no source row belongs to.

        Args:
            update: column → SQL expression over ``t``, or value.
            delete: True deletes the row.
            where: a condition over ``t``; None: always.

        Raises:
            InvalidInputError: neither `update` nor `delete`, or both.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a", "b"]})
            >>> t = lakefmt.create_table("memory://doc-merge-by-source", data=data, record_key="id")
            >>> _ = t.insert(data)
            >>> t.merge(pa.table({"id": ["b"]})).when_not_matched_by_source(delete=True).execute().num_deletes
            1
        """
        from lakefmt._core.write.merge_rows import Clause, When

        deletes = flag_argument(delete, "delete")
        if deletes == (update is not None):
            raise InvalidInputError("when_not_matched_by_source takes either update= or delete=True")
        values = None if update is None else mapping_argument(update, "update")
        return self._with(Clause(When.NOT_MATCHED_BY_SOURCE, deletes, values, where))

    def _with(self, clause: Clause) -> TableMerge:
        return replace(self, clauses=(*self.clauses, clause))

    def execute(self, **call: Unpack[WriteOptions]) -> CommitResult:
        """Run the merge as one commit.

        Args:
            **call: as for ``table.upsert``.

        Raises:
            InvalidInputError: there is no clause, or a column is not there.
            InvalidFilter: a condition cannot be understood.
            DuplicateKey: two source rows change one stored row, or two rows would have one record key.
            SchemaMismatch: a value does not fit its column.
            ConflictError: another writer is or was at work; nothing was changed.
            UnsupportedFeature: rows of an append table would be changed.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a", "b"], "v": [1, 2]})
            >>> t = lakefmt.create_table("memory://doc-merge", data=data, record_key="id")
            >>> _ = t.insert(data)
            >>> source = pa.table({"id": ["b", "c"], "v": [20, 30]})
            >>> result = t.merge(source).when_matched().when_not_matched().execute()
            >>> result.num_updates, result.num_inserts
            (1, 1)
        """
        from lakefmt._core.write.commit.retry import retried
        from lakefmt._core.write.context import parse_call
        from lakefmt._core.write.merge import Merge, plan_merge_write, run_merge

        check_keywords(self.execute, call, WriteOptions.__optional_keys__)
        if not self.clauses:
            raise InvalidInputError(
                "the merge has no clause: say what happens, such as when_matched() and when_not_matched()"
            )
        started = perf_counter()
        request, observer = parse_call(WriteOperation.UPSERT, call)
        merge = Merge(self._source_rows(request), self.on, self.clauses)
        with self.writing:
            if call.get("dry_run"):
                return plan_merge_write(self.client, request, merge)
            result = retried(self.client, request, lambda: run_merge(self.client, request, merge))
        return self.finished(result, request, observer, perf_counter() - started)

    def _source_rows(self, request: WriteRequest) -> pa.Table:
        """Return the source's rows; of a stream no more than the settings allow are held."""
        from lakefmt._core.write.ingest import open_stream, read_all

        schema, tables = open_stream(self.source, table_schema=lambda: self.client.at(self.client.load()).schema())
        most = resolve_settings(request.options, self.client.options).integer("lakefmt.merge.source.bytes")
        held, size = list[pa.Table](), 0
        for table in tables:
            held.append(table)
            size += table.nbytes
            if size > most and not isinstance(self.source, pa.Table | pa.RecordBatch):
                raise InvalidInputError(
                    f"the source of the merge has more than {most:,} bytes, and is held in memory: merge it part by part, or "
                    "raise lakefmt.merge.source.bytes"
                )
        return plain_columns(read_all(schema, held))


def _values(given: MergeValues, name: str) -> Values:
    if given is True or given == "all":
        return None
    if isinstance(given, Mapping):
        return mapping_argument(given, name)
    raise InvalidInputError(f"{name} is 'all' or a mapping of columns to SQL expressions or values, not {shown(given)}")
