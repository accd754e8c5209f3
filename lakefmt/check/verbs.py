"""The method ``vacuum`` of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefmt.arguments import check_flags
from lakefmt.errors import InvalidInputError
from lakefmt.filegroups.table_client import TableVerbs

if TYPE_CHECKING:
    from lakefmt.check.vacuum import VacuumResult

__all__ = ["VacuumVerbs"]


class VacuumVerbs(TableVerbs):
    """Removal of files that nothing needs."""

    def vacuum(self, *, orphans: bool = False, older_than: str | float = "1d", dry_run: bool = False) -> VacuumResult:
        """Remove files that failed writes and dead processes left, and that nothing names.

        Args:
            orphans: remove orphan files; has to be said.
            older_than: the least age of a file: seconds, or a text such as ``"1d"``, ``"90m"``.
            dry_run: True returns the plan and removes nothing.

        Raises:
            StateError: something that may name a file cannot be read; nothing was removed.
            InvalidInputError: `older_than` is no age, or nothing was asked for.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-vacuum", data=pa.table({"id": ["a"]}), record_key="id")
            >>> print(t.vacuum(orphans=True, dry_run=True))
            vacuum: remove 0 files, 0 bytes
        """
        # Imported here: few programs remove files, and all wait for the import.
        from lakefmt.check.vacuum import parse_age, vacuum_table

        check_flags(orphans=orphans, dry_run=dry_run)
        seconds = parse_age(older_than)
        if not orphans:
            raise InvalidInputError("vacuum removes orphan files only: say orphans=True")
        if dry_run:
            return vacuum_table(self.client, seconds, dry_run=True)
        with self._writing:
            return vacuum_table(self.client, seconds)
