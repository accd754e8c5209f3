"""A keyed table with history as a dictionary: what every verb must do, said in the simplest way.

The model knows nothing of files. It remembers the state after every commit, so that time travel and increments can be
compared too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["ModelTable", "Row"]

Row = Mapping[str, object]


@dataclass
class ModelTable:
    """What a table should hold.

    Attributes:
        key: the key column.
        partition: the partition column, None for an unpartitioned table.
        ordering: the ordering column; None: the later write wins.
        global_keys: True when a key is unique in the table, not only in its partition.

    Example:
        >>> model = ModelTable("id", None, "ts")
        >>> model.upsert([{"id": 1, "ts": 5}]); model.upsert([{"id": 1, "ts": 4}])
        >>> model.rows()
        [{'id': 1, 'ts': 5}]
    """

    key: str
    partition: str | None
    ordering: str | None
    global_keys: bool = False
    history: list[list[Row]] = field(default_factory=list)
    _rows: list[dict[str, object]] = field(default_factory=list)

    def rows(self) -> list[Row]:
        """Return the rows, in no order."""
        return [dict(row) for row in self._rows]

    def _place(self, row: Row) -> object:
        return None if self.partition is None else row[self.partition]

    def _identity(self, row: Row) -> object:
        return row[self.key] if self.global_keys else (row[self.key], self._place(row))

    def _wins(self, new: Row, old: Row) -> bool:
        if self.ordering is None:
            return True
        mine, theirs = new.get(self.ordering), old.get(self.ordering)
        if mine is None or theirs is None:
            return theirs is None
        return bool(mine >= theirs)  # type: ignore[operator]

    def _combined(self, rows: Iterable[Row]) -> dict[object, Row]:
        best: dict[object, Row] = {}
        for row in rows:
            identity = self._identity(row)
            if identity not in best or self._wins(row, best[identity]):
                best[identity] = row
        return best

    def _done(self) -> None:
        self.history.append(self.rows())

    def upsert(self, rows: Iterable[Row]) -> None:
        """Insert new keys, update known ones by the table's rule; a key stored twice is updated twice."""
        for identity, row in self._combined(rows).items():
            stored = [at for at, old in enumerate(self._rows) if self._identity(old) == identity]
            for at in stored:
                if self._wins(row, self._rows[at]):
                    self._rows[at] = dict(row)
            if not stored:
                self._rows.append(dict(row))
        self._done()

    def insert(self, rows: Iterable[Row]) -> None:
        """Add rows whatever is stored."""
        self._rows += [dict(row) for row in rows]
        self._done()

    def insert_new(self, rows: Iterable[Row]) -> None:
        """Add rows whose key is not stored, one per key."""
        known = {self._identity(row) for row in self._rows}
        self._rows += [dict(row) for identity, row in self._combined(rows).items() if identity not in known]
        self._done()

    def delete(self, keys: Iterable[object]) -> None:
        """Remove keys wherever they are."""
        gone = set(keys)
        self._rows = [row for row in self._rows if row[self.key] not in gone]
        self._done()

    def delete_where(self, selected: Callable[[Row], bool]) -> None:
        """Remove the keys of the rows selected, each in its own partition."""
        gone = {self._identity(row) for row in self._rows if selected(row)}
        self._rows = [row for row in self._rows if self._identity(row) not in gone]
        self._done()

    def update(self, selected: Callable[[Row], bool], values: Row) -> None:
        """Set columns of the rows selected."""
        self._rows = [{**row, **values} if selected(row) else row for row in self._rows]
        self._done()

    def overwrite(self, rows: Sequence[Row]) -> None:
        """Replace the partitions that the rows touch."""
        touched = {self._place(row) for row in rows}
        self._rows = [row for row in self._rows if self._place(row) not in touched] + [dict(row) for row in rows]
        self._done()

    def overwrite_table(self, rows: Sequence[Row]) -> None:
        """Replace everything."""
        self._rows = [dict(row) for row in rows]
        self._done()

    def delete_partitions(self, places: Iterable[object]) -> None:
        """Remove whole partitions."""
        gone = set(places)
        self._rows = [row for row in self._rows if self._place(row) not in gone]
        self._done()
