"""Deletes with event times in several columns, or in a field of a struct: logs decide as rewritten files do."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.table import Table

NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {"lakefmt.durability": "none", "lakefmt.write.threads": 1}
#: A field that must have a value stands beside the event time.
STRUCT = pa.struct([pa.field("name", pa.string(), nullable=False), ("ts", pa.int64())])

Times = tuple[int | None, int]


def rows(times: Times, v: int, *, deleted: bool = False) -> pa.Table:
    columns = {"id": ["a"], "s": [{"name": "x", "ts": times[0]}], "n": [times[1]], "v": [v]}
    kinds = [
        ("id", pa.string()),
        ("s", STRUCT),
        ("n", pa.int32()),
        ("v", pa.int64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
    return pa.table({**columns, "_hoodie_is_deleted": [deleted]}, pa.schema(kinds))


def made(ordering: str | list[str], version: int, times: Times, kind: str = "mor") -> Table:
    table = lakefmt.create_table(
        f"memory://ordered-deletes-{next(NUMBERS)}",
        data=rows(times, 1),
        record_key="id",
        ordering=ordering,
        table_type=kind,
        table_version=version,
        options=OPTIONS,
    )
    table.upsert(rows(times, 1))
    return table


def values(table: Table) -> list[int]:
    found: list[int] = table.read()["v"].to_pylist()
    return found


def rank(times: Times, ordering: str | list[str]) -> list[tuple[bool, int]]:
    """Return what two rows compare by: null is smaller than every value."""
    by_name = {"s.ts": times[0], "n": times[1]}
    names = [ordering] if isinstance(ordering, str) else ordering
    return [(by_name[name] is not None, by_name[name] or 0) for name in names]


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize(("ordering", "version"), [("s.ts", 6), ("s.ts", 8), (["s.ts", "n"], 9), (["n", "s.ts"], 9)])
def test_a_row_that_marks_itself_deleted_loses_and_wins_by_its_event_time(
    ordering: str | list[str], version: int, kind: str
) -> None:
    stored: list[Times] = [(10, 0), (10, -1), (0, 0)]
    came: list[Times] = [(5, 20), (20, -5), (10, 0), (10, -1), (0, 0), (None, 0)]
    for have, new in itertools.product(stored, came):
        table = made(ordering, version, have, kind)
        table.upsert(rows(new, 2, deleted=True))
        # A delete without any event time deletes whatever is stored, as in Hudi.
        has_time = ordering != "s.ts" or new[0] is not None
        stays = has_time and rank(new, ordering) < rank(have, ordering)
        assert values(table) == ([1] if stays else []), (have, new)
        if kind == "mor":
            table.compact()
            assert values(table) == ([1] if stays else []), (have, new)


@pytest.mark.parametrize("by_key", [True, False])
@pytest.mark.parametrize(("ordering", "version"), [("s.ts", 6), ("s.ts", 9), (["s.ts", "n"], 9), (["n", "s.ts"], 9)])
def test_a_late_row_does_not_bring_back_what_a_log_deleted(
    ordering: str | list[str], version: int, by_key: bool
) -> None:
    def deleted() -> Table:
        table = made(ordering, version, (10, 0))
        delete: Any = (lambda: table.delete(["a"])) if by_key else lambda: table.upsert(rows((10, 0), 2, deleted=True))
        delete()
        return table

    for folds in (False, True):
        table = deleted()
        if folds:
            table.upsert(rows((9, -1), 3))
            table.compact(log=True)
        table.upsert(rows((9, -1), 4))
        assert values(table) == []
        table.upsert(rows((11, 1), 5))
        assert values(table) == [5]
