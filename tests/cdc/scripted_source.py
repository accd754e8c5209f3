"""A database of the tests: tables in memory, a log of transactions, and a source that reads both as a real one would."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakefmt._core.cdc.events import (
    Border,
    Event,
    RowChanges,
    RowKind,
    SourceFinding,
    SourceName,
    SourceTable,
    TableChanged,
    TableLoaded,
    TableTruncated,
)
from lakefmt.errors import PositionLost, SourceUnavailable

ORDERS = SourceName("shop", "orders")
ITEMS = SourceName("shop", "items")
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("big", pa.string())])
CHUNK = 2

Row = dict[str, Any]


@dataclass
class Change:
    """A change of a row in the log; `sent` has the columns that the row after an update brings, None: all."""

    name: SourceName
    kind: RowKind
    row: Row
    sent: tuple[str, ...] | None = None


@dataclass
class Database:
    """Tables that transactions change; every transaction is in the log."""

    tables: dict[SourceName, dict[int, Row]] = field(default_factory=lambda: {ORDERS: {}, ITEMS: {}})
    columns: dict[SourceName, pa.Schema] = field(default_factory=lambda: {ORDERS: COLUMNS, ITEMS: COLUMNS})
    log: list[list[Any]] = field(default_factory=list)
    purged: int = 0
    #: Sends rows after updates without the column `big` where it did not change.
    sends_part: bool = False
    #: Of columns that were added; columns of all tables have different names.
    defaults: dict[str, pa.Scalar] = field(default_factory=dict)
    #: Of the sources that read it.
    batch_rows: int = 100
    #: Rows have values in all columns, also in those that were added.
    fills_columns: bool = False
    #: Of columns that were added: no name comes twice.
    names_given: list[str] = field(default_factory=list)
    #: Which columns a change of a table's columns renamed: the table as it was told → the old name → the new one.
    renamed: list[tuple[SourceTable, dict[str, str]]] = field(default_factory=list)
    #: Every image of every row, as a log keeps them; under the names that the columns have now.
    history: dict[SourceName, list[tuple[str, Row]]] = field(default_factory=lambda: {ORDERS: [], ITEMS: []})

    def table(self, name: SourceName) -> SourceTable:
        """Return a table as it is now."""
        return SourceTable(name, self.columns[name], ("id",))

    def commit(self, steps: Sequence[tuple[Any, ...]]) -> None:
        """Run a transaction: ``("put", name, id, v)``, ``("delete", name, id)``, ``("move", name, id, new id)``, ``("alter", name, id)``,
        ``("rename", name, id)``, ``("drop", name, id)``.
        """
        changes: list[Any] = []
        alterations = {"alter": self._alter, "rename": self._rename, "drop": self._drop}
        for step in steps:
            new = alterations[step[0]](step[1]) if step[0] in alterations else self._run(*step)
            for change in new:
                if isinstance(change, Change):
                    self.history[change.name].append((change.kind.name, change.row))
            changes += new
        self.log.append(changes)

    def _run(self, verb: str, name: SourceName, key: int, value: Any = None) -> list[Change]:
        rows = self.tables[name]
        if verb == "put":
            before = rows.get(key)
            big = f"big {key}" if before is None else before.get("big")
            text = f"{len(self.log)} {value}" if self.fills_columns else None
            after = {**dict.fromkeys(self._added(name), text), "id": key, "v": value, "big": big}
            rows[key] = after
            if before is None:
                return [Change(name, RowKind.INSERT, after)]
            return self._update(name, before, after)
        if verb == "delete":
            gone = rows.pop(key, None)
            return [] if gone is None else [Change(name, RowKind.DELETE, gone)]
        before = rows.get(key)
        if before is None or value in rows or verb != "move":
            return []
        del rows[key]
        rows[value] = {**before, "id": value, "v": (before["v"] or 0) + 1}
        return self._update(name, before, rows[value])

    def _update(self, name: SourceName, before: Row, after: Row) -> list[Change]:
        sent = tuple(each for each in self.columns[name].names if each != "big") if self.sends_part else None
        return [Change(name, RowKind.UPDATE_BEFORE, before), Change(name, RowKind.UPDATE_AFTER, after, sent)]

    def add_column(self, name: SourceName, column: str, default: str | None = None) -> None:
        """Alter a table, as a transaction of its own; rows that are there get the default, and no event tells."""
        self.log.append(self._alter(name, column, default))

    def _alter(self, name: SourceName, column: str = "", default: str | None = "d") -> list[Any]:
        column = column or f"d{len(self.columns[name])}"
        if column in self.names_given:
            column = f"{column}_{len(self.names_given)}"
        self.names_given.append(column)
        if not self.sends_part:
            default = None  # this database's rows are read in chunks, and older rows may come after a column
        self.columns[name] = self.columns[name].append(pa.field(column, pa.string()))
        if default is not None:
            self.defaults[column] = pa.scalar(default)
        # Images in the log stay as they are.
        self.tables[name] = {key: {**row, column: default} for key, row in self.tables[name].items()}
        return [("columns", self.table(name))]

    def _added(self, name: SourceName) -> list[str]:
        return [each for each in self.columns[name].names if each not in COLUMNS.names]

    def _rename(self, name: SourceName) -> list[Any]:
        """Give the first column that was added a name that no column had."""
        added = self._added(name)
        if not added:
            return []
        old, new = added[0], f"r{len(self.renamed)}"
        fields = [each.with_name(new) if each.name == old else each for each in self.columns[name]]
        self.columns[name] = pa.schema(fields)

        def renamed(row: Row) -> Row:
            return {new if column == old else column: value for column, value in row.items()}

        self.tables[name] = {key: renamed(row) for key, row in self.tables[name].items()}
        self.history[name] = [(kind, renamed(row)) for kind, row in self.history[name]]
        self.renamed.append((self.table(name), {old: new}))
        return [("columns", self.renamed[-1][0])]

    def _drop(self, name: SourceName) -> list[Any]:
        """Drop the newest of several columns that were added."""
        added = self._added(name)
        if len(added) < 2:
            return []
        self.columns[name] = pa.schema([each for each in self.columns[name] if each.name != added[-1]])
        self.tables[name] = {
            key: {column: value for column, value in row.items() if column != added[-1]}
            for key, row in self.tables[name].items()
        }
        return [("columns", self.table(name))]

    def truncate(self, name: SourceName) -> None:
        """Remove all rows of a table."""
        self.tables[name].clear()
        self.log.append([("truncate", name)])


@dataclass
class ScriptedSource:
    """Reads a database; after some events the connection is lost, if the test says so."""

    database: Database
    lost_after: int | None = None
    dies: Callable[[], BaseException] = lambda: SourceUnavailable("the connection is lost")
    findings: tuple[SourceFinding, ...] = ()
    confirmed: list[Mapping[SourceName, Any]] = field(default_factory=list)
    #: A batch has so many rows, and a row before an update is not its last.
    batch_rows: int = 100
    during_snapshot: Callable[[], None] = lambda: None

    #: What is confirmed is purged at once.
    forgets: bool = False

    places: Iterator[int] = field(default_factory=itertools.count)

    identity = "scripted://tests"

    def preflight(self) -> Sequence[SourceFinding]:
        return self.findings

    def tables(self) -> Sequence[SourceTable]:
        return [self.database.table(name) for name in self.database.tables]

    def latest(self) -> Any:
        return {"log": len(self.database.log)}

    def confirm(self, positions: Mapping[SourceName, Any]) -> None:
        self.confirmed.append(dict(positions))
        if self.forgets:
            self.database.purged = max(self.database.purged, min(each["log"] for each in positions.values()))

    def lag(self) -> Mapping[str, float]:
        return {}

    def close(self) -> None:
        pass

    def events(self, positions: Mapping[SourceName, Any], *, logs: bool, until_now: bool) -> Iterator[Event]:
        end = len(self.database.log)
        for count, event in enumerate(self._events(dict(positions), end, logs=logs)):
            if self.lost_after is not None and count >= self.lost_after:
                raise self.dies()
            yield event

    def _events(self, state: dict[SourceName, Any], end: int, *, logs: bool) -> Iterator[Event]:
        begin = min((position["log"] for position in state.values()), default=end)
        if begin < self.database.purged:
            raise PositionLost("the log was purged")
        shown = dict[SourceName, SourceTable]()
        for name in self.database.tables:
            if name not in state or "after" in state[name]:
                yield from self._rows_of_now(name, state, shown, exact=logs or self.database.sends_part)
        begin = min((position["log"] for position in state.values()), default=end)
        columns = dict.fromkeys(self.database.tables, COLUMNS)
        for number, transaction in enumerate(self.database.log):
            batch: list[Change] = []
            for change in transaction:
                if isinstance(change, tuple) and batch:
                    yield self._changes(batch, columns[batch[0].name], number)
                    batch = []
                if isinstance(change, tuple) and change[0] == "columns":
                    columns[change[1].name] = change[1].columns
                name = (
                    change.name
                    if isinstance(change, Change)
                    else change[1].name
                    if change[0] == "columns"
                    else change[1]
                )
                if number < max(begin, state[name]["log"]):
                    continue
                if isinstance(change, Change):
                    full = len(batch) >= self.batch_rows and batch[-1].kind is not RowKind.UPDATE_BEFORE
                    if batch and (batch[-1].name != name or full):
                        yield self._changes(batch, columns[batch[0].name], number)
                        batch = []
                    if name not in shown:
                        shown[name] = SourceTable(name, columns[name], ("id",))
                        yield self._changed(shown[name])
                    batch.append(change)
                elif change[0] == "columns":
                    shown[name] = change[1]
                    yield self._changed(change[1])
                else:
                    yield TableTruncated(name)
            if batch:
                yield self._changes(batch, columns[batch[0].name], number)
            if number >= begin:
                for name in state:
                    state[name] = {"log": max(state[name]["log"], number + 1)}
                now = dict(state)
                yield Border(lambda name, now=now: now[name], at=float(number))
        now = dict(state)
        yield Border(lambda name: now.get(name, {"log": end}), caught_up=True)

    def _changed(self, table: SourceTable) -> TableChanged:
        defaults = self.database.defaults
        filled = {name: defaults[name] for name in table.columns.names if name in defaults}
        renamed = next((names for told, names in self.database.renamed if told is table), {})
        return TableChanged(table, renamed=renamed, filled=filled)

    def _rows_of_now(
        self, name: SourceName, state: dict[SourceName, Any], shown: dict[SourceName, SourceTable], *, exact: bool
    ) -> Iterator[Event]:
        """Read a table in chunks; what the log has from the first chunk on comes again, unless every change counts.

        A log that sends parts of rows continues exactly where the rows were read, too: a part needs the row that it changes.
        """
        database = self.database
        shown[name] = database.table(name)
        yield self._changed(shown[name])
        done = state.get(name, {"log": len(database.log), "after": -1})
        while True:
            # Every change counts: all rows at one position, and the log goes on exactly there.
            if exact:
                done = {"log": len(database.log), "after": -1}
            left = sorted(key for key in database.tables[name] if key > done["after"])
            keys = left if exact else left[:CHUNK]
            rows = [Change(name, RowKind.INSERT, dict(database.tables[name][key])) for key in keys]
            if rows:
                yield self._changes(rows, database.columns[name], done["log"], is_snapshot=True)
            if exact or len(keys) < CHUNK:
                break
            done = {"log": done["log"], "after": keys[-1]}
            now = {**state, name: done}
            yield Border(lambda each, now=now: now.get(each))
            self.during_snapshot()
        state[name] = {"log": done["log"]}
        yield TableLoaded(name)
        now = dict(state)
        yield Border(lambda each, now=now: now.get(each))

    def _changes(
        self, batch: Sequence[Change], columns: pa.Schema, number: int, *, is_snapshot: bool = False
    ) -> RowChanges:
        rows = [
            {
                name: None if each.sent is not None and name not in each.sent else each.row.get(name)
                for name in columns.names
            }
            for each in batch
        ]
        sent = [None if each.sent is None else json.dumps(list(each.sent)) for each in batch]
        return RowChanges(
            batch[0].name,
            pa.Table.from_pylist(rows, schema=columns),
            pa.array([each.kind.value for each in batch], pa.int8()),
            sent=pa.array(sent, pa.string()) if any(text is not None for text in sent) else None,
            positions=pa.array([f"{number:08d}-{next(self.places):08d}" for _ in batch]),
            transactions=pa.array([str(number)] * len(batch)),
            is_snapshot=is_snapshot,
        )
