"""A row that a program fills value by value, checked and converted as it does (pure)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from lakefmt._core.arguments import shown
from lakefmt._core.producers.stream.options import DELETES, WHOLE_ROWS, RowOperator
from lakefmt._core.producers.stream.rows import RowChecker
from lakefmt.errors import InvalidInputError
from lakefmt.realtime.converters import ConversionRules, Converter, column_converter
from lakefmt.realtime.errors import CastFailed, RowRefused
from lakefmt.realtime.statements import SqlField

__all__ = ["UNSET", "Row", "RowLayout"]


class _Unset:
    """The place of a value that was not set; None is a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset()
_LONGEST: Final = 60


class RowLayout:
    """What every row of a stream shares: columns, converters and keys. Made once per stream and schema.

    Args:
        table: the table's name, for messages.
        fields: its columns.
        checker: of the same columns as the table stores them; its keys identify a row, partition columns among them.
        rules: of conversions.
        later: columns that the table has got since the stream was opened, and that may be null: rows need not set them.
        look_again: returns the layout of the table's columns as they are now; None: they stay as they are.
    """

    def __init__(
        self,
        table: str,
        fields: Sequence[SqlField],
        checker: RowChecker,
        rules: ConversionRules,
        later: Collection[str] = (),
        look_again: Callable[[], RowLayout] | None = None,
    ) -> None:
        schema = checker.schema
        self.table = table
        self.checker = checker
        self.rules = rules
        self.later = frozenset(later)
        self.look_again = look_again
        self.names: tuple[str, ...] = tuple(field.name for field in fields)
        self.fields = tuple(fields)
        #: Positions by name and by position, so that a row has one look-up for both.
        self.positions: dict[str | int, int] = {n: n for n in range(len(fields))} | {
            field.name: n for n, field in enumerate(fields)
        }
        self.converters: tuple[Converter, ...] = tuple(
            column_converter(field, schema.field(n).type, rules) for n, field in enumerate(fields)
        )
        self.required: tuple[bool, ...] = tuple(not field.nullable for field in fields)
        self.key_positions: tuple[int, ...] = tuple(self.positions[name] for name in checker.keys)
        self.empty: list[Any] = [UNSET] * len(fields)
        #: Of a row that has every column.
        self.empty_whole: list[Any] = [None if field.name in self.later else UNSET for field in fields]

    def unknown(self, column: object) -> InvalidInputError:
        """Return the error of a column that the table does not have."""
        return InvalidInputError(
            f"table {self.table!r} has no column {shown(column)}: it has {', '.join(self.names[:20])}"
            + (", …" if len(self.names) > 20 else "")
        )

    def cast_failed(self, position: int, value: object, why: object) -> CastFailed:
        """Return the error of a value that does not fit its column."""
        text = shown(value)
        short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
        return CastFailed(
            f"Failed to cast value for column {self.names[position]!r} of table {self.table!r}, "
            f"type {self.fields[position].type}: {why}; the value is {short}"
        )


class Row:
    """One row; made by ``stream.create_row``, filled by :meth:`set_value`, handed to ``stream.apply``."""

    __slots__ = ("_layout", "_positions", "_values", "operator")

    def __init__(self, layout: RowLayout, operator: RowOperator) -> None:
        self._layout = layout
        self._positions = layout.positions
        self._values = (layout.empty_whole if operator in WHOLE_ROWS else layout.empty)[:]
        self.operator = operator

    def __repr__(self) -> str:
        values = dict(zip(self._layout.names, map(shown, self._values), strict=True))
        return f"Row({self.operator.name}, {values})"

    def set_value(self, column: str | int, value: object) -> None:
        """Set a column by its exact name or its position from 0; convert the value (docs/realtime.md, Types).

        Args:
            column: name or position.
            value: None for null.

        Raises:
            CastFailed: the value does not fit; its text begins with ``Failed to cast value for column``.
            InvalidInputError: the table has no such column.
        """
        try:
            position = self._positions[column]
        except (KeyError, TypeError):
            position = self._position_after(column)
        if value is None:
            if self._layout.required[position]:
                raise self._layout.cast_failed(position, value, "the column is NOT NULL")
            self._values[position] = None
            return
        try:
            self._values[position] = self._layout.converters[position](value)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise self._layout.cast_failed(position, value, error) from error

    def _position_after(self, column: object) -> int:
        """Return the position of a column that another writer has added meanwhile.

        Raises:
            InvalidInputError: there is none.
        """
        looks = self._layout.look_again
        layout = self._layout if looks is None or not isinstance(column, str) else looks()
        if layout is self._layout or not isinstance(column, str) or column not in layout.positions:
            raise self._layout.unknown(column)
        row = self.moved(layout)
        self._layout, self._positions, self._values = layout, layout.positions, row._values
        return layout.positions[column]

    def is_null_at(self, index: int) -> bool:
        """Return whether the column at a position is null or was not set."""
        value = self._values[index]
        return value is None or value is UNSET

    def get_memory_size(self) -> int:
        """Return the bytes of the values, estimated."""
        return sum(8 if value is None or value is UNSET else _size(value) for value in self._values)

    def validate(self) -> None:
        """Raise unless the row has the columns that its operator needs.

        Raises:
            RowRefused: names the columns.
        """
        values, layout = self._values, self._layout
        if self.operator in WHOLE_ROWS:
            if any(value is UNSET for value in values):
                missing = [name for name, value in zip(layout.names, values, strict=True) if value is UNSET]
                raise RowRefused(
                    f"Failed to apply row to table {layout.table!r}: {self.operator.name} needs all columns to be set, null "
                    f"included, and {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not"
                )
            return
        for position in layout.key_positions:
            value = values[position]
            if value is UNSET or value is None:
                raise RowRefused(
                    f"Failed to apply row to table {layout.table!r}: {self.operator.name} needs the key column "
                    f"{layout.names[position]!r}"
                )

    def taken(self) -> tuple[list[Any], tuple[str, ...] | None]:
        """Return a copy of the values with None where not set, and the columns that were set; None: all of them."""
        values, layout = self._values, self._layout
        if self.operator in WHOLE_ROWS:
            return values[:], None
        if self.operator in DELETES:
            chosen = frozenset(layout.key_positions)
        else:
            chosen = frozenset(n for n, value in enumerate(values) if value is not UNSET)
        return (
            [value if n in chosen else None for n, value in enumerate(values)],
            tuple(name for n, name in enumerate(layout.names) if n in chosen),
        )

    def moved(self, layout: RowLayout) -> Row:
        """Return this row for another state of the table's columns, matched by name.

        Raises:
            RowRefused: a column that was set is gone, or a new column must not be null.
        """
        if self._layout is layout:
            return self
        row = Row(layout, self.operator)
        for name, value in zip(self._layout.names, self._values, strict=True):
            if name not in layout.positions:
                if value is not UNSET and (value is not None or name not in self._layout.later):
                    raise RowRefused(f"Failed to apply row: table {layout.table!r} has no column {name!r} any more")
            elif value is not UNSET:
                row._take(self._layout, name, value)
        if self.operator in WHOLE_ROWS:
            listed = frozenset(self._layout.names)
            for n, name in enumerate(layout.names):
                if name not in listed and not layout.required[n]:
                    row._values[n] = None
        return row

    def _take(self, old: RowLayout, name: str, value: object) -> None:
        """Set a value that was converted under the layout `old`."""
        position = self._layout.positions[name]
        if old.fields[old.positions[name]].type == self._layout.fields[position].type:
            self._values[position] = value
        else:
            self.set_value(name, value)

    def as_dict(self) -> Mapping[str, Any]:
        """Return what was set, converted, by column."""
        return {name: value for name, value in zip(self._layout.names, self._values, strict=True) if value is not UNSET}

    @property
    def layout(self) -> RowLayout:
        """What the rows of the stream shared when this one was made."""
        return self._layout


def _size(value: object) -> int:
    if isinstance(value, (str, bytes)):
        return len(value) + 8
    if isinstance(value, (list, tuple)):
        return 8 + sum(map(_size, value))
    if isinstance(value, Mapping):
        return 8 + sum(map(_size, value.values()))
    return 16
