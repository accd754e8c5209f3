"""Identify the columns of a PostgreSQL table by their numbers, independent of their names (pure).

The log tells names alone. The catalog tells the number that a column has for as long as it lives, and never gives to another one; but it
tells them of now, and the log is of then. So much is certain of the columns of an event: those that were there before it and are there now are
among them; they stand in the order of their numbers; and of columns that were added since, the event has the earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["AttributeRow", "ColumnRow", "KnownColumns", "changes_of_names", "numbers_of"]


class ColumnRow(NamedTuple):
    """A column as an event or the catalog has it."""

    name: str
    type_id: int
    modifier: int


class AttributeRow(NamedTuple):
    """A column as the catalog has it now.

    Attributes:
        number: its own for ever.
        column: what it is.
        is_dropped: it is gone.
        is_sent: it is in the log: neither gone nor generated.
    """

    number: int
    column: ColumnRow
    is_dropped: bool
    is_sent: bool


class KnownColumns(NamedTuple):
    """The columns that a table had at a place of the log.

    Attributes:
        numbers: of the columns, in their order.
        columns: what they are.
        attributes: numbers up to this one had been given then; those that no column here has are of columns that were gone.
        storage: the number of the file that had the rows, and one that differs once a column is altered; zeros: not known.
    """

    numbers: tuple[int, ...]
    columns: tuple[ColumnRow, ...]
    attributes: int
    storage: tuple[int, int] = (0, 0)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)


def numbers_of(
    columns: Sequence[ColumnRow], known: KnownColumns | None, catalog: Sequence[AttributeRow]
) -> tuple[int, ...] | None:
    """Return the numbers of the columns of an event; None: it cannot be told for sure.

    Args:
        columns: that the event has.
        known: the columns before it; None: they are not known.
        catalog: all columns at some time after the event, in the order of their numbers; empty: the table is gone.

    Example:
        >>> id, a, b, c, d = (ColumnRow(name, 23, -1) for name in ("id", "a", "b", "c", "d"))
        >>> known = KnownColumns((1, 2), (id, a), 2)
        >>> catalog = [AttributeRow(number, column, False, True) for number, column in ((1, id), (2, c), (3, d))]
        >>> numbers_of([id, b], known, catalog)  # renamed to b, and later to c
        (1, 2)
    """
    live = [each for each in catalog if each.is_sent]
    numbers = tuple(each.number for each in live)
    if known is None:
        if len(live) == len(catalog) >= len(columns):
            return numbers[: len(columns)]
        return numbers if [each.column for each in live] == list(columns) else None
    if not catalog:
        return known.numbers if [each.name for each in columns] == list(known.names) else None
    stayed = [number for number in numbers if number in known.numbers]
    new = [number for number in numbers if number not in known.numbers]
    dropped = [number for number in known.numbers if number not in numbers]
    dropped += [each.number for each in catalog if each.is_dropped and each.number > known.attributes]
    count = len(columns) - len(stayed)
    if count == 0:
        return tuple(stayed)
    if count == len(dropped) + len(new):
        return tuple(sorted([*stayed, *dropped, *new]))
    # Numbers grow: who has a column has all that were added before it. One that was generated before has an older number.
    if count > 0 and not dropped and all(number > known.attributes for number in new):
        return (*stayed, *new[:count])
    return None


def changes_of_names(
    known: KnownColumns | None,
    columns: Sequence[ColumnRow],
    numbers: tuple[int, ...] | None,
    storage: tuple[int, int] = (0, 0),
) -> tuple[Mapping[str, str], str]:
    """Return the renamed columns, and why the rows of the table have to be read again; "" if they have not.

    Args:
        known: the columns before; None: they are not known, and all are taken for those of their names.
        columns: that there are.
        numbers: of the columns; None: they are not known.
        storage: of the rows; zeros: not known.

    Example:
        >>> a, b, c = (ColumnRow(name, 23, -1) for name in ("a", "b", "c"))
        >>> changes_of_names(KnownColumns((1, 2), (a, b), 2), [c, b], (1, 2))
        ({'a': 'c'}, '')
        >>> changes_of_names(KnownColumns((1, 2), (a, b), 2), [a, b], (1, 3))
        ({}, "'b' is the name of a column that was dropped")
        >>> changes_of_names(KnownColumns((1, 2), (a, b), 2), [a, ColumnRow("b", 20, -1)], (1, 2))
        ({}, "'b' has another type, and may have other values")
    """
    if known is None:
        return {}, ""
    if numbers is None:
        was, now = ", ".join(map(repr, known.names)), ", ".join(repr(column.name) for column in columns)
        return (
            {},
            f"the columns were {was} and are {now}, and others came or went since: which of them are the same is not known",
        )
    columns_before = dict(zip(known.numbers, known.columns, strict=True))
    columns_now = dict(zip(numbers, columns, strict=True))
    renamed = {
        was.name: columns_now[number].name
        for number, was in columns_before.items()
        if columns_now.get(number, was).name != was.name
    }
    dropped = {was.name for number, was in columns_before.items() if number not in columns_now}
    again = [now.name for now in columns_now.values() if now.name in dropped]
    if again:
        return renamed, f"{again[0]!r} is the name of a column that was dropped"
    computed = [
        now.name for number, now in columns_now.items() if number not in columns_before and number <= known.attributes
    ]
    if computed:
        return renamed, f"{computed[0]!r} was generated, and is in the log now"
    # ALTER ... TYPE ... USING computes values of which no event tells.
    retyped = [
        now.name
        for number, now in columns_now.items()
        if number in columns_before and columns_before[number][1:] != now[1:]
    ]
    if retyped:
        return renamed, f"{retyped[0]!r} has another type, and may have other values"
    # The type may be the same, or a new column may have a default that differs from row to row: the rows are in another file then. So they
    # are after a TRUNCATE or VACUUM FULL, which alter no column.
    is_written_anew = all(was and now and was != now for was, now in zip(known.storage, storage, strict=True))
    return renamed, "its rows were written anew when a column was altered" if is_written_anew else ""
