"""Merge-on-read tables of versions 8 and 9 whose rows come whole or in part, late or not: what they do, as dictionaries.

A log's rows of one key are folded in the order of arrival, as Hudi folds them: the columns of the newer one over those of
the older one. What comes out meets the base file's row. Here this is said key by key and row by row.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import lakefmt

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64())])
MARKED = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.parquet.small.file.limit": 0,  # new keys open new files, so that changes stay in logs
    "hoodie.clean.automatic": False,
}
ANY_LOG: dict[str, object] = {"hoodie.compact.inline.max.delta.commits": 1}
#: What a partial upsert brings beside the key; without `ts` the stored row's event time is taken.
BROUGHT = (("ts", "a"), ("ts", "b"), ("ts", "a", "b"), ("ts", "c"), ("a",), ("ts",))
Row = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One write: ``full``, ``partial`` (with the columns that come), ``delete`` or ``compact``; `rows` are numbered keys."""

    kind: str
    columns: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()


@dataclass
class Place:
    """Where a key lives: the base file's row, and what the log has made of its rows."""

    base: Row | None = None
    log: Row | None = None
    dead: bool = False
    time: int = 0
    changed: int = 0
    base_changed: int = 0


@dataclass
class Model:
    """The table as dictionaries. `marked`: it has the column that marks deletes, and so no partial rows in its logs."""

    ordered: bool = True
    marked: bool = False
    places: dict[str, Place] = field(default_factory=dict)
    commits: int = 0

    def play(self, step: Step) -> None:
        self.commits += 1
        if step.kind == "compact":
            for key, place in list(self.places.items()):
                row, changed = self._seen(place)
                self.places[key] = Place(row, time=0, base_changed=changed)
                if row is None:
                    del self.places[key]
        elif step.kind == "delete":
            for row in step.rows:
                place = self.places.get(row["id"])
                seen = None if place is None else self._seen(place)[0]
                if place is not None and seen is not None:
                    self._fold(place, {"id": row["id"], "ts": seen["ts"]}, dead=True)
        else:
            for row in self._combined(step.rows):
                self._upsert(row, step)

    def _combined(self, rows: tuple[Row, ...]) -> list[Row]:
        best: dict[str, Row] = {}
        for row in rows:
            known = best.get(row["id"])
            if known is None or not self.ordered or "ts" not in row or row["ts"] >= known["ts"]:
                best[row["id"]] = row
        return list(best.values())

    def _upsert(self, row: Row, step: Step) -> None:
        key, place = row["id"], self.places.get(row["id"])
        seen = None if place is None else self._seen(place)[0]
        dead = bool(row.get("_hoodie_is_deleted"))
        if place is None or (step.kind == "partial" and seen is None):
            if not dead:
                names = MARKED.names if self.marked else SCHEMA.names
                self.places[key] = Place({**dict.fromkeys(names), **row}, base_changed=self.commits)
            return
        if step.kind == "partial":
            assert seen is not None
            row = {**seen, **row} if self.marked else {"ts": seen["ts"], **row}
        self._fold(place, row, dead=dead)

    def _fold(self, place: Place, row: Row, *, dead: bool) -> None:
        """Two rows of a log become one."""
        time = row["ts"] if self.ordered and row["ts"] is not None else -1
        if place.log is None and not place.dead:
            place.log, place.dead, place.time, place.changed = row, dead, time, self.commits
        elif time >= place.time:
            kept = {} if dead or place.dead or place.log is None else place.log
            place.log, place.dead, place.time, place.changed = {**kept, **row}, dead, time, self.commits
        elif not dead and not place.dead and not set(row) <= set(place.log or {}):
            place.log, place.changed = {**row, **(place.log or {})}, self.commits

    def _seen(self, place: Place) -> tuple[Row | None, int]:
        """The row that a reader sees, and the commit that changed it last."""
        base_time = place.base["ts"] if place.base and self.ordered and place.base["ts"] is not None else -1
        if place.log is None and not place.dead:
            return place.base, place.base_changed
        if place.base is not None and base_time > place.time:
            return place.base, place.base_changed
        return (None, 0) if place.dead else ({**(place.base or {}), **(place.log or {})}, place.changed)

    def rows(self, since: int = 0) -> list[Row]:
        """The rows that a reader sees, those that were changed after the commit `since`."""
        found = [self._seen(place) for place in self.places.values()]
        return [row for row, changed in found if row is not None and changed > since]


def make(name: str, version: int, *, ordered: bool = True, marked: bool = False) -> lakefmt.Table:
    return lakefmt.create_table(
        name,
        schema=MARKED if marked else SCHEMA,
        record_key="id",
        ordering="ts" if ordered else None,
        table_type="mor",
        table_version=version,
        options=OPTIONS,
    )


def run(table: lakefmt.Table, step: Step) -> None:
    if step.kind == "compact":
        table.compact(options=ANY_LOG)
    elif step.kind == "delete":
        table.delete([row["id"] for row in step.rows])
    else:
        names = table.schema.names if step.kind == "full" else ["id", *step.columns]
        data = pa.Table.from_pylist(list(step.rows), schema=table.schema).select(names)
        table.upsert(data, partial=step.kind == "partial")


def as_table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)


@st.composite
def stories(
    draw: st.DrawFn,
    *,
    marked: bool = False,
    keys: int = 4,
    kinds: tuple[str, ...] = ("compact", "delete"),
    most: int = 8,
) -> list[Step]:
    """Steps over a few keys; the first one makes them all, values are never equal, event times often."""
    values = itertools.count(1)
    names = MARKED.names if marked else SCHEMA.names

    def some(columns: tuple[str, ...], chosen: list[int]) -> tuple[Row, ...]:
        rows = []
        for number in chosen:
            row: Row = {name: next(values) for name in columns if name not in ("id", "ts")}
            if "ts" in columns:
                row["ts"] = draw(st.integers(1, 4))
            if "_hoodie_is_deleted" in columns:
                row["_hoodie_is_deleted"] = draw(st.sampled_from([False, False, True]))
            rows.append({"id": f"k{number}", **row})
        return tuple(rows)

    first = tuple({**row, "_hoodie_is_deleted": False} if marked else row for row in some(tuple(names), [*range(keys)]))
    steps = [Step("full", rows=first)]
    for _ in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from(["full", "partial", "partial", "partial", *kinds]))
        chosen = draw(st.lists(st.integers(0, keys), min_size=1, max_size=keys, unique=kind != "full"))
        columns = draw(st.sampled_from(BROUGHT)) if kind == "partial" else tuple(names)
        steps.append(Step(kind, columns if kind == "partial" else (), some(columns, chosen)))
    return steps
