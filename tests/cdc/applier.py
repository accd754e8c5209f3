"""The simplest reader of events: what a table must be after them, in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakefmt._core.cdc.events import (
    Border,
    Event,
    RowChanges,
    RowKind,
    SourceName,
    SourceTable,
    TableChanged,
    TableGone,
    TableLoaded,
    TableTruncated,
)


@dataclass
class Applied:
    """Tables as their events say, uncommitted; a border commits what came before.

    Attributes:
        rows: of each table, key → row.
        log: of each table, every change as (kind, row, position).
        positions: what each table's newest commit stores.
    """

    rows: dict[SourceName, dict[tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)
    log: dict[SourceName, list[tuple[RowKind, dict[str, Any], str | None]]] = field(default_factory=dict)
    positions: dict[SourceName, Any] = field(default_factory=dict)
    tables: dict[SourceName, SourceTable] = field(default_factory=dict)
    changed: list[TableChanged] = field(default_factory=list)
    truncated: list[SourceName] = field(default_factory=list)
    gone: list[TableGone] = field(default_factory=list)
    read: list[SourceName] = field(default_factory=list)
    borders: int = 0
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def apply(self, event: Event) -> None:
        if isinstance(event, RowChanges):
            self._apply_rows(event)
        elif isinstance(event, TableChanged):
            self.changed.append(event)
            had = self.tables.get(event.table.name)
            for row in self.rows.setdefault(event.table.name, {}).values():
                for column, value in event.filled.items():
                    if had is not None and column not in had.columns.names:
                        row[column] = value.as_py()
            self.tables[event.table.name] = event.table
            self.log.setdefault(event.table.name, [])
        elif isinstance(event, TableTruncated):
            self.truncated.append(event.name)
            self.rows.setdefault(event.name, {}).clear()
        elif isinstance(event, TableGone):
            self.gone.append(event)
        elif isinstance(event, TableLoaded):
            self.read.append(event.name)
        elif isinstance(event, Border):
            self.borders += 1
            for name in self.tables:
                self.positions[name] = json.loads(json.dumps(event.position_of(name)))

    def apply_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.apply(event)

    def committed(self) -> Applied:
        """A copy: what a process that dies now would find."""
        return Applied(
            {name: {key: dict(row) for key, row in rows.items()} for name, rows in self.rows.items()},
            {name: list(rows) for name, rows in self.log.items()},
            dict(self.positions),
            dict(self.tables),
            list(self.changed),
            list(self.truncated),
            list(self.gone),
            list(self.read),
            self.borders,
            self.keys,
        )

    def _apply_rows(self, event: RowChanges) -> None:
        table = self.tables[event.name]
        assert event.rows.schema.equals(table.columns), "rows have the columns of the newest TableChanged"
        rows, log = self.rows[event.name], self.log[event.name]
        keys = self.keys.get(event.name.table, table.keys)
        sent = event.sent.to_pylist() if event.sent is not None else [None] * event.rows.num_rows
        positions = event.positions.to_pylist() if event.positions is not None else [None] * event.rows.num_rows
        moved: dict[str, Any] | None = None
        for row, code, names, position in zip(
            event.rows.to_pylist(), event.kinds.to_pylist(), sent, positions, strict=True
        ):
            kind = RowKind(code)
            log.append((kind, row, position))
            key = tuple(row[name] for name in keys)
            if kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE):
                moved = rows.pop(key, None)
                moved = moved if kind is RowKind.UPDATE_BEFORE else None
                continue
            if names is not None:
                before = moved if moved is not None else rows.get(key)
                assert before is not None, "a value that was not sent is in the row before"
                row = {name: row[name] if name in json.loads(names) else before.get(name) for name in row}
            rows[key] = row
            moved = None


def rows_in(applied: Applied, name: SourceName) -> list[tuple[Any, ...]]:
    """The rows of a table, in the order of their keys."""
    columns = applied.tables[name].columns.names
    return sorted((tuple(row.get(column) for column in columns) for row in applied.rows[name].values()), key=repr)


def is_rows(event: Event, name: SourceName) -> bool:
    """Say whether an event has rows of a table."""
    return isinstance(event, RowChanges) and event.name == name


__all__ = ["Applied", "is_rows", "rows_in"]
