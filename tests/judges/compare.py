"""Do two tables hold the same rows? Exact, typed, duplicates counted; rules in `lakefmt.testing.multiset`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakefmt.errors import SchemaMismatch
from lakefmt.testing.multiset import multiset_difference, multiset_digest

__all__ = ["assert_same_multiset", "digest"]

SHOWN = 5


def digest(table: pa.Table) -> str:
    """The order-independent SHA-256 of the table's typed rows."""
    return multiset_digest(table)


def assert_same_multiset(
    actual: pa.Table, expected: pa.Table, ignore_columns: Sequence[str] = (), what: str = "the rows"
) -> None:
    """Both tables hold the same typed rows, each as often.

    Parameters:
        actual: what was found.
        expected: what should be there.
        ignore_columns: names left out on either side.
        what: names the comparison in the message.

    Raises:
        AssertionError: columns, types or rows differ; up to five differing rows of each side are shown.
    """
    left, right = (
        table.drop_columns([n for n in ignore_columns if n in table.column_names]) for table in (actual, expected)
    )
    try:
        found = multiset_difference(left, right)
    except SchemaMismatch as error:
        raise AssertionError(f"{what}: {error} (left is actual, right expected)") from None
    if found:
        raise AssertionError(
            "\n".join([f"{what} differ", *_lines("actual", found.left_only), *_lines("expected", found.right_only)])
        )


def _lines(side: str, rows: pa.Table) -> list[str]:
    shown = [f"    {row}" for row in rows.slice(0, SHOWN).to_pylist()]
    return [f"  {rows.num_rows} rows only in {side}" + (":" if shown else ""), *shown]
