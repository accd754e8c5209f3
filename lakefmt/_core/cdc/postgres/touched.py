"""Rows that changed between two snapshots of a table whose rows were read in part."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lakefmt._core.cdc.events import Event, RowChanges, RowKind
from lakefmt._core.cdc.postgres.pgoutput import UNSENT, Delete, Insert, Update, Values
from lakefmt._core.cdc.postgres.rows import ColumnTypes, snapshot_changes, table_of_texts
from lakefmt._core.cdc.postgres.snapshot import TableReader
from lakefmt._core.cdc.postgres.types import OddValues
from lakefmt.errors import SourceRefused

__all__ = ["TouchedRows"]


class TouchedRows:
    """Keys that changes name; each becomes a deletion, and the row that the newer snapshot has, if any."""

    def __init__(self, reader: TableReader, odd: OddValues, position: str) -> None:
        self._reader = reader
        #: The columns that the newer snapshot has.
        self.shape = reader.shape
        self._odd: OddValues = odd
        self._position = position
        self._keys: dict[tuple[str, ...], None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def clear(self) -> None:
        """Forget the keys: the table was emptied."""
        self._keys.clear()

    def add(self, shape: ColumnTypes, change: Insert | Update | Delete) -> None:
        """Note the keys of a change."""
        keys = self.shape.table.keys
        names = shape.table.columns.names
        if any(key not in names for key in keys):
            raise SourceRefused(f"{shape.table.name}: its key changed while its rows were read for the first time")
        places = [names.index(key) for key in keys]
        for values in (getattr(change, "old", None), getattr(change, "new", None)):
            key = _key_of(values, places)
            if key is not None:
                self._keys[key] = None

    def take(self) -> Iterator[Event]:
        """Yield the events of the keys noted so far, and begin anew."""
        if not self._keys:
            return
        keys = list(self._keys)
        self._keys.clear()
        yield self._deletions(keys)
        texts = self._reader.rows_of(keys)
        if len(texts[0]):
            yield snapshot_changes(self.shape, texts, self._odd, self._position)

    def _deletions(self, keys: list[tuple[str, ...]]) -> RowChanges:
        shape, count = self.shape, len(keys)
        by_name = dict(zip(shape.table.keys, zip(*keys, strict=True), strict=True))
        texts = [
            pa.array(by_name[name], pa.string()) if name in by_name else pa.nulls(count, pa.string())
            for name in shape.table.columns.names
        ]
        return RowChanges(
            shape.table.name,
            table_of_texts(shape, texts, self._odd),
            pa.repeat(pa.scalar(RowKind.DELETE.value, pa.int8()), count),
            positions=pa.repeat(pa.scalar(self._position), count),
            is_snapshot=True,
        )


def _key_of(values: Values | None, places: list[int]) -> tuple[str, ...] | None:
    """Return the key of an image; None: the server did not send it, for it is that of the other image."""
    if values is None:
        return None
    key = [values[place] for place in places]
    if any(value is None or value is UNSENT for value in key):
        return None
    return tuple(value.decode("utf-8") for value in key if isinstance(value, bytes))
