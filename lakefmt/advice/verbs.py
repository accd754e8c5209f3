"""The method ``advise`` of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakefmt.arguments import number_argument, texts_argument
from lakefmt.filegroups.table_client import TableVerbs

if TYPE_CHECKING:
    from lakefmt.advice.advise import TableAdvice

__all__ = ["AdviceVerbs"]


class AdviceVerbs(TableVerbs):
    """Advice on a table."""

    def advise(self, *, reads_per_commit: float = 1.0, filter_columns: Sequence[str] | None = None) -> TableAdvice:
        """Return which index, table type, services and file sizes are expected to cost least; nothing is changed.

        The table's commits, file names and some footers are read, no row. Costs are those that ``lakefmt bench`` has
        measured on this machine, else shipped ones (docs/choices.md).

        Args:
            reads_per_commit: full reads between two commits.
            filter_columns: columns that filters of readers name: what rows could be clustered by.

        Raises:
            InvalidInputError: the table has no rows or no such column, or a number is out of range.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": [str(n) for n in range(100)]})
            >>> t = lakefmt.create_table("memory://doc-advise", data=data, record_key="id")
            >>> _ = t.upsert(data), t.upsert(data.slice(0, 10))
            >>> advice = t.advise(reads_per_commit=2)
            >>> advice.profile.rows, advice.profile.batch_rows, len(advice.reasons)
            (100, 10, 3)
        """
        # Imported here: few programs ask for advice, and all wait for the import.
        from lakefmt.advice.advise import advise_choice
        from lakefmt.advice.kept_curves import load_curves
        from lakefmt.advice.profiling import profile_table

        reads = number_argument(reads_per_commit, "reads_per_commit", 0.0, 1e6)
        columns = [] if filter_columns is None else texts_argument(filter_columns, "filter_columns")
        return advise_choice(profile_table(self.client, reads_per_commit=reads, filter_columns=columns), load_curves())


# -------------------------------------------------------------------------------------------------------------- reasons
