"""Rows of a table as they come from the log, gathered into columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Final

import pyarrow as pa

from lakefmt._core.cdc.events import RowChanges, RowKind, SourceName, SourceTable
from lakefmt._core.cdc.postgres.pgoutput import UNSENT, Value, Values
from lakefmt._core.cdc.postgres.types import OddValues, ValueType, schema_of, to_arrow
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import FormatError, SourceRefused

__all__ = ["ChangeBuffer", "ColumnTypes", "snapshot_changes", "table_of_texts"]

_BEFORE: Final = RowKind.UPDATE_BEFORE.value
_AFTER: Final = RowKind.UPDATE_AFTER.value
_DELETE: Final = RowKind.DELETE.value
_INSERT: Final = RowKind.INSERT.value
#: Bytes that a row takes beside its values.
_ROW_BYTES: Final = 64
_MOST_BYTES: Final = 8 << 20
_MOST_ROWS: Final = 20_000


@dataclass(frozen=True, slots=True)
class ColumnTypes:
    """A table as a part of the log has it.

    Attributes:
        table: what its events say of it.
        types: how the texts of its columns become values.
        key_places: where its key columns are.
        filled: the values that columns have in rows that are older than they.
    """

    table: SourceTable
    types: tuple[ValueType, ...]
    key_places: tuple[int, ...]
    filled: Mapping[str, pa.Scalar] = field(default_factory=dict)

    @classmethod
    def of(cls, name: SourceName, names: list[str], types: list[ValueType], keys: tuple[str, ...]) -> ColumnTypes:
        """Describe a table by its columns and its key."""
        table = SourceTable(name, schema_of(names, types, keys), keys)
        return cls(table, tuple(types), tuple(names.index(key) for key in keys))


class ChangeBuffer:
    """The changes of a table between two borders, or of a part of a large transaction."""

    def __init__(self, shape: ColumnTypes, odd: OddValues) -> None:
        self.shape = shape
        self._odd: OddValues = odd
        self._columns: list[list[bytes | None]] = [[] for _ in shape.types]
        self._kinds: list[int] = []
        self._sent: list[str | None] = []
        self._has_unsent = False
        self._positions: list[str] = []
        self._micros: list[int] = []
        self._xids: list[str] = []
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kinds)

    @property
    def is_full(self) -> bool:
        """It has enough for a batch."""
        return self.bytes > _MOST_BYTES or len(self._kinds) >= _MOST_ROWS

    def insert(self, new: Values, at: tuple[str, int, str]) -> None:
        """Add a new row; `at` is its position, its time and its transaction."""
        self._add(_INSERT, new, at)

    def update(self, old: Values | None, is_key_only: bool, new: Values, at: tuple[str, int, str]) -> None:
        """Add a changed row, and the row before where the server sent it."""
        if old is not None and not is_key_only:
            new = [was if value is UNSENT else value for was, value in zip(old, new, strict=True)]
        if old is not None and (not is_key_only or self._has_other_key(old, new)):
            self._add(_BEFORE, old, at)
        self._add(_AFTER, new, at)

    def delete(self, old: Values, at: tuple[str, int, str]) -> None:
        """Add a row that is gone."""
        self._add(_DELETE, old, at)

    def _has_other_key(self, old: Values, new: Values) -> bool:
        return any(new[place] is not UNSENT and old[place] != new[place] for place in self.shape.key_places)

    def _add(self, kind: int, values: Values, at: tuple[str, int, str]) -> None:
        if len(values) != len(self._columns):
            raise FormatError(
                f"a row of {self.shape.table.name} has {len(values)} values for {len(self._columns)} columns"
            )
        size, unsent = _ROW_BYTES, False
        for column, value in zip(self._columns, values, strict=True):
            if value is UNSENT:
                unsent = True
                column.append(None)
            else:
                column.append(value)
                size += len(value) if value is not None else 0
        self._sent.append(self._names_of_sent(values) if unsent else None)
        self._has_unsent = self._has_unsent or unsent
        self._kinds.append(kind)
        position, micros, xid = at
        self._positions.append(position)
        self._micros.append(micros)
        self._xids.append(xid)
        self.bytes += size

    def _names_of_sent(self, values: list[Value]) -> str:
        names = self.shape.table.columns.names
        return json.dumps(
            [name for name, value in zip(names, values, strict=True) if value is not UNSENT], ensure_ascii=False
        )

    def take(self) -> RowChanges:
        """Return the changes, and begin anew."""
        texts = [_strings(column, self.shape.table.name) for column in self._columns]
        changes = RowChanges(
            self.shape.table.name,
            table_of_texts(self.shape, texts, self._odd),
            pa.array(self._kinds, pa.int8()),
            sent=pa.array(self._sent, pa.string()) if self._has_unsent else None,
            times=pa.array(self._micros, pa.timestamp("us", "UTC")),
            positions=pa.array(self._positions, pa.string()),
            transactions=pa.array(self._xids, pa.string()),
        )
        self.__init__(self.shape, self._odd)  # type: ignore[misc]
        return changes


def _strings(values: list[bytes | None], name: SourceName) -> pa.Array:
    try:
        return pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise SourceRefused(f"{name}: a value is not UTF-8: {error}") from error


def table_of_texts(shape: ColumnTypes, texts: list[pa.Array], odd: OddValues) -> pa.Table:
    """Return texts as the table's columns with their types."""
    name = shape.table.name
    # Rows of a key alone have nulls in columns that the source never leaves null: the schema of a batch says it.
    columns = [
        to_arrow(column, value_type, odd, f"{name}.{field.name}")
        for column, value_type, field in zip(texts, shape.types, shape.table.columns, strict=True)
    ]
    return pa.table(columns, schema=shape.table.columns)


def snapshot_changes(shape: ColumnTypes, texts: list[pa.Array], odd: OddValues, position: str) -> RowChanges:
    """Return rows that were read from the table as insertions."""
    rows = table_of_texts(shape, texts, odd)
    count = rows.num_rows
    return RowChanges(
        shape.table.name,
        rows,
        pa.repeat(pa.scalar(_INSERT, pa.int8()), count),
        positions=pa.repeat(pa.scalar(position), count),
        is_snapshot=True,
    )
