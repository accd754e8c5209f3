"""The methods ``rollback``, ``savepoint``, ``savepoints``, ``delete_savepoint`` and ``restore`` of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakefmt._core.arguments import check_flags, check_texts, text_argument
from lakefmt._core.filegroups.table_client import TableVerbs
from lakefmt._core.values import CommitResult, instant_of

if TYPE_CHECKING:
    from lakefmt._core.timeline.savepoint import Savepoint
    from lakefmt._core.undo.rollback import RollbackResult
    from lakefmt._core.undo.savepoint import RestoreResult

__all__ = ["UndoVerbs"]


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
        from lakefmt._core.undo.rollback import RollbackResult, plan_undo, rollback_instant

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
        from lakefmt._core.undo.savepoint import create_savepoint, plan_savepoint_of

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
        from lakefmt._core.undo.savepoint import list_savepoints

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
        from lakefmt._core.undo.savepoint import delete_savepoint

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
        from lakefmt._core.undo.savepoint import RestoreResult, plan_restore_of, restore_table

        instant = _time_of(instant)
        check_flags(force=force, dry_run=dry_run)
        if dry_run:
            return RestoreResult(None, plan_restore_of(self.client, instant, options))
        with self._writing:
            return restore_table(self.client, instant, options, force=force)


def _time_of(instant: str | CommitResult) -> str:
    """Return the requested time of an instant."""
    return text_argument(instant_of(instant), "instant")
