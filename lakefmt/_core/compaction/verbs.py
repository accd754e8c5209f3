"""The methods ``compact`` and ``services`` of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lakefmt._core.arguments import check_flags, check_texts
from lakefmt._core.config.table_config import KIND
from lakefmt._core.filegroups.table_client import TableVerbs
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import Filter, Partitions, TableType
from lakefmt.errors import InvalidInputError

if TYPE_CHECKING:
    from lakefmt._core.compaction.cluster.run import ClusteringResult
    from lakefmt._core.compaction.compact.run import CompactionResult
    from lakefmt._core.compaction.scheduler import BackgroundServices

__all__ = ["CompactionVerbs"]


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
        from lakefmt._core.compaction.compact.plan import CompactionPlan
        from lakefmt._core.compaction.compact.records import abandon_compaction
        from lakefmt._core.compaction.compact.run import CompactionResult, plan_compaction_of, run_compaction
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
            from lakefmt._core.compaction.cluster.run import options_for_all_files

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
        from lakefmt._core.compaction.cluster.run import ClusterCall, cluster_table

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
