"""A keyed table with history as a dictionary: what every verb must do, said in the simplest way.

The model knows nothing of files. It remembers the state after every commit, and with every row the commit that wrote
it last, so that time travel, increments and rollbacks can be compared too. Commits are numbered from 1; 0 is the empty
table. A column that a row does not have is a null.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["ModelTable", "Row"]

Row = Mapping[str, object]


_SIGN_TURNED = bytes(byte ^ 0x80 for byte in range(256))


@dataclass(frozen=True, slots=True)
class _Stored:
    """A row, where it lies, and the number of the commit that wrote it last."""

    row: Row
    place: object
    written: int


@dataclass
class ModelTable:
    """What a table should hold.

    Attributes:
        key: the key column.
        partition: the partition column, None for an unpartitioned table.
        ordering: the ordering column; None: the later write wins.
        global_keys: True when a key is unique in the table, not only in its partition (a global index).
        moves: with global keys, whether a row whose partition has changed moves there, or stays where its key is.

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
        """The rows after each commit, the first one first."""
        return [self.as_of(number) for number in range(1, len(self._states))]

    def rows(self) -> list[Row]:
        """Return the rows, in no order."""
        return self.as_of(self.commits)

    def as_of(self, commit: int) -> list[Row]:
        """Return the rows after commit number `commit`; 0: before the first one."""
        return [dict(stored.row) for stored in self._states[commit]]

    def incremental(self, start: int, end: int | None = None) -> list[Row]:
        """Return the rows that were written after commit `start`, up to commit `end` (None: now), as they were then."""
        until = self._states[self.commits if end is None else end]
        return [dict(stored.row) for stored in until if stored.written > start]

    def next_start(self, start: int, end: int | None = None) -> int:
        """Return the number of the commit behind which the next pull begins."""
        return max(start, self.commits if end is None else end)

    def places(self) -> set[object]:
        """Return the partition values under which rows lie; None stands for the only place of an unpartitioned table."""
        return {stored.place for stored in self._now}

    def homes(self, key: object) -> set[object]:
        """Return the places where a key is stored."""
        return {stored.place for stored in self._now if stored.row[self.key] == key}

    @property
    def has_duplicates(self) -> bool:
        """Whether plain inserts have left a key twice where it may live once."""
        return len({self._stored_identity(stored) for stored in self._now}) != len(self._now)

    # --- writing -------------------------------------------------------------------------------------------------

    def upsert(self, rows: Iterable[Row], *, partial: bool = False) -> None:
        """Insert new keys, update known ones by the table's rule; a key that is stored twice is updated twice.

        Args:
            rows: what comes in.
            partial: columns that a row does not have keep their stored values.
        """
        kept: dict[int, _Stored | None] = dict(enumerate(self._now))
        added: list[_Stored] = []
        for identity, row in self._combined(rows).items():
            known = [at for at, old in enumerate(self._now) if self._stored_identity(old) == identity]
            late = False
            for at in known:
                old = self._now[at]
                leaves = self.global_keys and self.moves and old.place != self._place(row)
                if not self._wins(row, old.row):
                    late = late or leaves
                elif leaves:
                    kept[at] = None
                else:
                    kept[at] = self._written({**old.row, **row} if partial else row, old.place)
            stays = any(kept[at] is not None for at in known)
            if not stays and not late:
                gone = self._now[known[0]].row if known and partial else {}
                added.append(self._written({**gone, **row}))
        self._commit([*(stored for stored in kept.values() if stored is not None), *added])

    def insert(self, rows: Iterable[Row]) -> None:
        """Add rows whatever is stored (``insert`` and ``bulk_insert``)."""
        self._commit([*self._now, *map(self._written, rows)])

    def insert_new(self, rows: Iterable[Row]) -> None:
        """Add rows whose key is not stored, one per key (``drop_duplicates=True``)."""
        known = {self._stored_identity(stored) for stored in self._now}
        fresh = [row for identity, row in self._combined(rows).items() if identity not in known]
        self._commit([*self._now, *map(self._written, fresh)])

    def delete(self, keys: Iterable[object]) -> None:
        """Remove keys wherever they are; a delete by key has no event time."""
        gone = set(keys)
        self._commit([stored for stored in self._now if stored.row[self.key] not in gone])

    def delete_where(self, selected: Callable[[Row], bool]) -> None:
        """Remove the keys of the rows selected, each in its own partition."""
        gone = {(stored.row[self.key], stored.place) for stored in self._now if selected(stored.row)}
        self._commit([stored for stored in self._now if (stored.row[self.key], stored.place) not in gone])

    def update(self, selected: Callable[[Row], bool], values: Row) -> None:
        """Set columns of the rows selected, whose keys must not be stored twice."""
        self._commit(
            [self._written({**s.row, **values}, s.place) if selected(s.row) else s for s in self._now],
        )

    def soft_delete(self, keys: Iterable[object], columns: Sequence[str]) -> None:
        """Keep keys and set the columns named to null."""
        gone = set(keys)
        self.update(lambda row: row[self.key] in gone, dict.fromkeys(columns))

    def overwrite(self, rows: Sequence[Row]) -> None:
        """Replace the partitions that the rows touch (``insert_overwrite``)."""
        touched = {self._place(row) for row in rows}
        self._commit([*(s for s in self._now if s.place not in touched), *map(self._written, rows)])

    def overwrite_table(self, rows: Sequence[Row]) -> None:
        """Replace everything (``insert_overwrite_table``)."""
        self._commit([*map(self._written, rows)])

    def delete_partitions(self, places: Iterable[object]) -> None:
        """Remove whole partitions."""
        gone = set(places)
        self._commit([stored for stored in self._now if stored.place not in gone])

    def rollback(self) -> None:
        """Undo the newest commit, as if it had never been; also what a verb did that made no instant."""
        if self.commits:
            self._states.pop()

    # --- the rules -----------------------------------------------------------------------------------------------

    @property
    def _now(self) -> tuple[_Stored, ...]:
        return self._states[-1]

    def _commit(self, state: Iterable[_Stored]) -> None:
        self._states.append(tuple(state))

    def _written(self, row: Row, place: object = ...) -> _Stored:
        return _Stored(dict(row), self._place(row) if place is ... else place, self.commits + 1)

    def _place(self, row: Row) -> object:
        return None if self.partition is None else row[self.partition]

    def _identity(self, row: Row) -> object:
        return row[self.key] if self.global_keys else (row[self.key], self._place(row))

    def _stored_identity(self, stored: _Stored) -> object:
        return stored.row[self.key] if self.global_keys else (stored.row[self.key], stored.place)

    def _wins(self, new: Row, old: Row) -> bool:
        if self.ordering is None or self.ordering not in new:
            return True
        mine, theirs = new[self.ordering], old.get(self.ordering)
        if mine is None or theirs is None:
            return theirs is None
        return bool(_place_in_order(mine) >= _place_in_order(theirs))  # type: ignore[operator]

    def _combined(self, rows: Iterable[Row]) -> dict[object, Row]:
        best: dict[object, Row] = {}
        for row in rows:
            identity = self._identity(row)
            if identity not in best or self._wins(row, best[identity]):
                best[identity] = row
        return best


def _place_in_order(value: object) -> object:
    """Return what compares as an ordering value does: NaN is the largest float, -0.0 precedes 0.0, bytes are signed."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value, math.isnan(value) or math.copysign(1.0, value))
    if isinstance(value, bytes):
        return value.translate(_SIGN_TURNED)
    return value.encode() if isinstance(value, str) else value
