"""``table.compact``: the verb of compaction on a table (effects)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from lakefmt.compaction.compact_pending import abandon_compaction
from lakefmt.compaction.compact_plan import CompactionPlan
from lakefmt.compaction.compact_run import CompactionResult, plan_compaction_of, run_compaction
from lakefmt.errors import InvalidInputError
from lakefmt.filegroups.access import TableAccess

__all__ = ["CompactionVerbs"]


class CompactionVerbs:
    """What a table can be asked about its logs."""

    access: TableAccess
    #: Held while a verb of this handle writes.
    _writing: AbstractContextManager[object]

    def compact(
        self,
        *,
        schedule: bool = False,
        run: str | None = None,
        abandon: str | None = None,
        dry_run: bool = False,
        verify: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> CompactionResult:
        """Merge logs into base files: carry out what waits, then plan a compaction and carry it out.

        Args:
            schedule: only request the plan; the next compaction, or another engine's, carries it out.
            run: only carry out the pending compaction of this requested time, whichever engine planned it.
            abandon: only withdraw the pending compaction of this requested time.
            dry_run: True returns the plan and touches nothing.
            verify: compare every new file with its slice before anything becomes visible.
            options: settings of the call, such as ``hoodie.compaction.strategy``.

        Raises:
            UnsupportedFeature: the table is copy-on-write.
            WriterActive: another compaction is at work.
            InstantNotFound: no compaction is pending at `run` or `abandon`.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-compact", schema=pa.schema([("id", pa.string())]),
            ...     record_key="id", table_type="mor")
            >>> for _ in range(2): _ = t.upsert(pa.table({"id": ["a"]}))
            >>> len(t.compact().files)
            1
        """
        if sum((schedule, run is not None, abandon is not None, dry_run)) > 1:
            raise InvalidInputError("compact takes one of schedule, run, abandon and dry_run")
        if dry_run:
            return CompactionResult(None, plan_compaction_of(self.access, options))
        with self._writing:
            if abandon is not None:
                abandon_compaction(self.access, abandon, options)
                return CompactionResult(None, CompactionPlan(None))
            return run_compaction(self.access, options, schedule=schedule, run=run, verify=verify)
