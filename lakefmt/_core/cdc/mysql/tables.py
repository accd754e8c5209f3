"""A followed table: what its events look like, the rows of the log that wait for their batch, and how far its rows have been read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.cdc.events import RowChanges, RowKind, SourceName, SourceTable, TableChanged
from lakefmt._core.cdc.mysql.columns import HINTS, SourceColumn, source_table
from lakefmt._core.cdc.mysql.log_events import RowsEvent
from lakefmt._core.cdc.mysql.positions import Gtids, TablePosition
from lakefmt._core.cdc.mysql.row_bytes import RowBuffer
from lakefmt._core.cdc.mysql.snapshot import Chunk
from lakefmt._core.cdc.mysql.table_map import LogColumn, TableMap
from lakefmt.errors import InternalError

__all__ = ["FollowedTable", "LogPlace", "Shape"]

#: The columns of a table, and the names of its key.
Shape = tuple[tuple[SourceColumn, ...], tuple[str, ...]]
_KINDS: Final = {
    "insert": (RowKind.INSERT.value,),
    "update": (RowKind.UPDATE_BEFORE.value, RowKind.UPDATE_AFTER.value),
    "delete": (RowKind.DELETE.value,),
}


class LogPlace(NamedTuple):
    """Where an event of rows is: its transaction, when that was committed, the file's number and the event's end in it."""

    transaction: str
    time: int
    file: int
    end: int


class _Event(NamedTuple):
    rows: int
    kind: str
    place: LogPlace


class FollowedTable:
    """A table and its state.

    Attributes:
        name: of the table.
        floor: transactions that its sink has: they are left out.
        is_read: all rows were read from the table.
        last_key: of the rows that were read; None: none was.
        epoch: see :class:`~lakefmt._core.cdc.mysql.positions.TablePosition`.
        stored: the position it began with.
        hints: columns that the log shows as bytes, and are something else.
        shape: what its events look like; None: not known yet.
        announced: the table of its newest :class:`TableChanged`.
        chunk: rows that are being read.
        is_missing: the server does not have it; the log will tell when it went.
        reads_again: its sink has the rows, and all are read once more: no change is left out meanwhile.
        is_begun: its sink began without a position: it is told when all rows have been read.
    """

    def __init__(self, name: SourceName, epoch: int, stored: TablePosition | None = None) -> None:
        self.name, self.epoch, self.stored = name, epoch, stored
        self.floor: Gtids = stored.gtids if stored else {}
        self.is_read = stored is not None and stored.is_read
        self.last_key = stored.last_key if stored else None
        self.reads_again = stored is not None and stored.reads_again
        self.is_begun = stored is None or not (stored.is_read or stored.reads_again)
        self.shape: Shape | None = (stored.columns, stored.keys) if stored and stored.columns else None
        self.hints: dict[str, str] = {}
        self.announced: SourceTable | None = None
        self.chunk: Chunk | None = None
        self.is_missing = False
        self._renamed: dict[str, str] = {}
        self._described: TableMap | None = None
        self._layout: tuple[LogColumn, ...] | None = None
        self._buffer: RowBuffer | None = None
        self._events: list[_Event] = []
        if stored:
            self.take_hints(stored.columns)

    # --- its shape ------------------------------------------------------------------------------------------------

    def take_hints(self, columns: Sequence[SourceColumn]) -> None:
        """Take note of columns whose type only the server knows."""
        self.hints |= {column.name: column.type for column in columns if column.type in HINTS}

    def rename_columns(self, renamed: Mapping[str, str]) -> None:
        """Take note of columns that a statement renamed, until rows show it."""
        for old, new in renamed.items():
            first = next((name for name, later in self._renamed.items() if later == old), old)
            self._renamed[first] = new
            if old in self.hints:
                self.hints[new] = self.hints.pop(old)

    def changed(self, shape: Shape) -> Iterator[TableChanged]:
        """Return that the table looks like this from here on, if it did not so far."""
        if self.announced is not None and shape == self.shape:
            return
        before = self.announced
        names = {column.name for column in shape[0]}
        had = set() if before is None else set(before.columns.names)
        renamed = {old: new for old, new in self._renamed.items() if new in names and old in had}
        self._renamed.clear()
        self._described = None
        self.shape = shape
        self.announced = source_table(self.name, *shape)
        yield TableChanged(self.announced, before, renamed)

    # --- rows of the log ------------------------------------------------------------------------------------------

    @property
    def waiting_rows(self) -> int:
        """How many rows wait."""
        return len(self._buffer) if self._buffer is not None else 0

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of the log wait."""
        return self._buffer.bytes if self._buffer is not None else 0

    def fits(self, described: TableMap) -> bool:
        """Return whether rows of this description may wait beside those that do."""
        if described is not self._described:
            is_same = self._layout == described.columns and self.announced is not None and described.shape == self.shape
            self._described = described if is_same else None
        return self._described is not None

    def fit(self, described: TableMap, charsets: dict[int, str]) -> None:
        """Take rows of this description from here on; none may wait."""
        self._described = described
        self._layout, self._buffer = described.columns, RowBuffer(described.columns, charsets)

    def add(self, event: RowsEvent, place: LogPlace) -> None:
        """Let the rows of an event wait."""
        if self._buffer is None:
            raise InternalError(f"rows of {self.name} before their description")
        self._events.append(_Event(self._buffer.add(event.body, event.begin), event.kind, place))

    def take(self) -> RowChanges | None:
        """Return the rows that wait, in one batch."""
        if self._buffer is None or self.announced is None or not self._events:
            return None
        events, self._events = self._events, []
        counts = np.array([event.rows for event in events])
        indices = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        kinds = [np.resize(np.array(_KINDS[event.kind], np.int8), event.rows) for event in events]
        times = np.repeat(np.array([event.place.time for event in events], np.int64), counts) * 1_000_000
        places = [self.place_text(event.place.file, event.place.end) for event in events]
        within = pc.utf8_lpad(pa.array(indices).cast(pa.string()), 8, "0")
        return RowChanges(
            self.name,
            pa.Table.from_arrays(self._buffer.take(), schema=self.announced.columns),
            pa.array(np.concatenate(kinds)),
            times=pa.array(times).cast(pa.timestamp("us", "UTC")),
            positions=pc.binary_join_element_wise(_repeated(places, counts), within, "."),
            transactions=_repeated([event.place.transaction for event in events], counts),
            precedes_snapshot=not self.is_read,
        )

    def place_text(self, file: int, end: int) -> str:
        """Return a place of the log as a text that sorts."""
        return f"{self.epoch:010d}.{file:010d}.{end:012d}"

    # --- rows of now ----------------------------------------------------------------------------------------------

    def drop_chunk(self) -> None:
        """Forget rows that are being read."""
        if self.chunk is not None:
            self.chunk.close()
            self.chunk = None

    def selected(self, rows: pa.Table, file: int, place: int) -> RowChanges:
        """Return rows that were read from the table."""
        count = rows.num_rows
        return RowChanges(
            self.name,
            rows,
            pa.array(np.zeros(count, np.int8)),
            positions=_repeated([self.place_text(file, place) + ".00000000"], np.array([count])),
            is_snapshot=True,
        )


def _repeated(texts: Sequence[str], counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    places = np.repeat(np.arange(len(texts)), counts)
    return pc.take(pa.array(texts, pa.string()), pa.array(places))
