"""A model of a keyed table with history: what every operation must do.

The model has no files. It keeps the state after every commit, and for every row the commit that
wrote it last, so that time travel, increments and rollbacks can be compared, too. Commits are
numbered from 1; 0 is the empty table. A missing column is null.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from lakefmt._core.data_classes import dataclass

__all__ = ["ModelTable", "Row"]

Row = Mapping[str, object]


_SIGN_TURNED = bytes(byte ^ 0x80 for byte in range(256))


@dataclass(frozen=True, slots=True)
class _Stored:
    """A row, its partition, and the number of the commit that wrote it last."""

    row: Row
    place: object
    written: int


@dataclass
class ModelTable:
    """The expected content of a table.

    Attributes:
        key: the key column.
        partition: the partition column; None for an unpartitioned table.
        ordering: the ordering column; None: the later write wins.
        global_keys: keys are unique in the table instead of the partition (a global index).
        moves: with global keys, whether a row moves when its partition value changes; else it takes over the stored value.

    Example:
        >>> model = ModelTable("id", None, "ts")
        >>> model.upsert([{"id": 1, "ts": 5}]); model.upsert([{"id": 1, "ts": 4}, {"id": 2, "ts": 4}])
        >>> model.rows()
        [{'id': 1, 'ts': 5}, {'id': 2, 'ts': 4}]
        >>> model.as_of(1), model.incremental(1)
        ([{'id': 1, 'ts': 5}], [{'id': 2, 'ts': 4}])
    """

    key: str
    partition: str | None
    ordering: str | None
    global_keys: bool = False
    moves: bool = True
    _states: list[tuple[_Stored, ...]] = field(default_factory=lambda: [()], repr=False)

    # --- looking -------------------------------------------------------------------------------------------------

    @property
    def commits(self) -> int:
        """The number of the newest commit; 0 for an empty table."""
        return len(self._states) - 1

    @property
    def history(self) -> list[list[Row]]:
        """The rows after each commit, oldest first."""
        return [self.as_of(number) for number in range(1, len(self._states))]

    def rows(self) -> list[Row]:
        """Return the rows, unordered."""
        return self.as_of(self.commits)

    def as_of(self, commit: int) -> list[Row]:
        """Return the rows after commit number `commit`; 0: before the first."""
        return [dict(stored.row) for stored in self._states[commit]]

    def incremental(self, start: int, end: int | None = None) -> list[Row]:
        """Return the rows written after commit `start` up to commit `end` (None: now), as of then."""
        until = self._states[self.commits if end is None else end]
        return [dict(stored.row) for stored in until if stored.written > start]

    def next_start(self, start: int, end: int | None = None) -> int:
        """Return the commit number after which the next pull starts."""
        return max(start, self.commits if end is None else end)

    def places(self) -> set[object]:
        """Return the partition values with rows; None stands for an unpartitioned table."""
        return {stored.place for stored in self._now}

    def partitions_of(self, key: object) -> set[object]:
        """Return the partitions where a key is stored."""
        return {stored.place for stored in self._now if stored.row[self.key] == key}

    @property
    def has_duplicates(self) -> bool:
        """Whether plain inserts stored a unique key twice."""
        return len({self._stored_identity(stored) for stored in self._now}) != len(self._now)

    # --- writing -------------------------------------------------------------------------------------------------

    def upsert(self, rows: Iterable[Row], *, partial: bool = False) -> None:
        """Insert new keys, update stored ones by the merge rule; duplicates are all updated.

        Args:
            rows: the incoming rows.
            partial: columns that a row lacks keep their stored values.
        """
        rows_after: dict[int, _Stored | None] = dict(enumerate(self._now))
        added: list[_Stored] = []
        for identity, row in self._combined(rows).items():
            stored_rows = [index for index, old in enumerate(self._now) if self._stored_identity(old) == identity]
            late = False
            for index in stored_rows:
                old = self._now[index]
                leaves = self.global_keys and self.moves and old.place != self._place(row)
                if not self._wins(row, old.row):
                    late = late or leaves
                elif leaves:
                    rows_after[index] = None
                else:
                    rows_after[index] = self._written({**old.row, **row} if partial else row, old.place)
            stays = any(rows_after[index] is not None for index in stored_rows)
            if not stays and not late:
                replaced = self._now[stored_rows[0]].row if stored_rows and partial else {}
                added.append(self._written({**replaced, **row}))
        self._commit([*(stored for stored in rows_after.values() if stored is not None), *added])

    def insert(self, rows: Iterable[Row]) -> None:
        """Add rows without a look-up (``insert`` and ``bulk_insert``)."""
        self._commit([*self._now, *map(self._written, rows)])

    def insert_new(self, rows: Iterable[Row]) -> None:
        """Add rows with new keys, one per key (``drop_duplicates=True``)."""
        stored_keys = {self._stored_identity(stored) for stored in self._now}
        fresh = [row for identity, row in self._combined(rows).items() if identity not in stored_keys]
        self._commit([*self._now, *map(self._written, fresh)])

    def delete(self, keys: Iterable[object]) -> None:
        """Delete keys in all partitions; a delete by key has no event time."""
        deleted = set(keys)
        self._commit([stored for stored in self._now if stored.row[self.key] not in deleted])

    def delete_where(self, selected: Callable[[Row], bool]) -> None:
        """Delete the keys of the selected rows, each in its own partition."""
        deleted = {(stored.row[self.key], stored.place) for stored in self._now if selected(stored.row)}
        self._commit([stored for stored in self._now if (stored.row[self.key], stored.place) not in deleted])

    def update(self, selected: Callable[[Row], bool], values: Row) -> None:
        """Set columns of the selected rows, whose keys must be unique."""
        self._commit(
            [self._written({**s.row, **values}, s.place) if selected(s.row) else s for s in self._now],
        )

    def soft_delete(self, keys: Iterable[object], columns: Sequence[str]) -> None:
        """Keep keys and set columns to null."""
        deleted = set(keys)
        self.update(lambda row: row[self.key] in deleted, dict.fromkeys(columns))

    def overwrite(self, rows: Sequence[Row]) -> None:
        """Replace the partitions of the rows (``insert_overwrite``)."""
        touched = {self._place(row) for row in rows}
        self._commit([*(s for s in self._now if s.place not in touched), *map(self._written, rows)])

    def overwrite_table(self, rows: Sequence[Row]) -> None:
        """Replace all rows (``insert_overwrite_table``)."""
        self._commit([*map(self._written, rows)])

    def delete_partitions(self, partitions: Iterable[object]) -> None:
        """Delete whole partitions."""
        deleted = set(partitions)
        self._commit([stored for stored in self._now if stored.place not in deleted])

    def rollback(self) -> None:
        """Remove the newest commit, also one of an operation that made no instant."""
        if self.commits:
            self._states.pop()

    # --- the rules -----------------------------------------------------------------------------------------------

    @property
    def _now(self) -> tuple[_Stored, ...]:
        return self._states[-1]

    def _commit(self, state: Iterable[_Stored]) -> None:
        self._states.append(tuple(state))

    def _written(self, row: Row, partition: object = ...) -> _Stored:
        if partition is ... or self.partition is None:
            return _Stored(dict(row), self._place(row), self.commits + 1)
        return _Stored({**row, self.partition: partition}, partition, self.commits + 1)

    def _place(self, row: Row) -> object:
        return None if self.partition is None else row[self.partition]

    def _identity(self, row: Row) -> object:
        return row[self.key] if self.global_keys else (row[self.key], self._place(row))

    def _stored_identity(self, stored: _Stored) -> object:
        return stored.row[self.key] if self.global_keys else (stored.row[self.key], stored.place)

    def _wins(self, new: Row, old: Row) -> bool:
        if self.ordering is None or self.ordering not in new:
            return True
        new_value, old_value = new[self.ordering], old.get(self.ordering)
        if new_value is None or old_value is None:
            return old_value is None
        return bool(_place_in_order(new_value) >= _place_in_order(old_value))  # type: ignore[operator]

    def _combined(self, rows: Iterable[Row]) -> dict[object, Row]:
        best: dict[object, Row] = {}
        for row in rows:
            identity = self._identity(row)
            if identity not in best or self._wins(row, best[identity]):
                best[identity] = row
        return best


def _place_in_order(value: object) -> object:
    """Return a value that compares in Hudi's order: NaN is the largest float, -0.0 precedes 0.0, bytes are signed."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value, math.isnan(value) or math.copysign(1.0, value))
    if isinstance(value, bytes):
        return value.translate(_SIGN_TURNED)
    return value.encode() if isinstance(value, str) else value
