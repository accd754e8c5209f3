"""Loads whose rows are more than a window of memory come to what they come to in memory, and to what a dictionary says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt.testing.stores import FaultMode, SimulatedCrash
from tests.example_counts import examples
from tests.loads.loads_kit import Base, Client, Faults
from tests.loads.test_writes import options

ROWS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("city", pa.string()),
        ("v", pa.string()),
        ("n", pa.float64()),
    ]
)
ROW = st.tuples(
    st.integers(1, 12),
    st.sampled_from(["sf", "oslo"]),
    st.sampled_from(["a", "b", None]),
    st.sampled_from([None, 1.0, 2.0, 3.0]),
    st.booleans(),
)
INDEXES: dict[str, dict[str, Any]] = {
    "bloom": {"index": "bloom"},
    "bucket": {"index": "bucket"},
    "global": {"index": "global_simple", "properties": {"hoodie.simple.index.update.partition.path": "true"}},
    "global that stays": {
        "index": "global_simple",
        "properties": {"hoodie.simple.index.update.partition.path": "false"},
    },
    "record": {"index": "record"},
}
WAYS: dict[str, dict[str, str]] = {
    "deletes": {"columns": "id,city,v,n,__op"},
    "parts and deletes": {"columns": "id,city,v,__op", "partial_update": "true"},
    "condition": {"columns": "id,city,v,n,more", "merge_condition": "n"},
    "parts": {"columns": "id,city,v,more", "partial_update": "true"},
}


@pytest.fixture(autouse=True, scope="module")
def small_sorts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakefmt._core.loads.commit._LEAST_SORT_BYTES", 1024)
        patch.setattr("lakefmt._core.loads.journal.PART_BYTES", 300)
        patch.setattr("lakefmt._core.loads.csv_rows._BLOCK_BYTES", 60)
        yield


def text(value: object) -> str:
    return "\\N" if value is None else str(value)


def body(rows: list[tuple[Any, ...]], way: str) -> bytes:
    lines = []
    for key, city, v, n, deletes in rows:
        fields = [key, city, v, *([] if "parts" in way else [n]), int(deletes and "deletes" in way)]
        lines.append(",".join(map(text, fields)) + "\n")
    return "".join(lines).encode()


def outcome(
    first: list[tuple[Any, ...]], rows: list[tuple[Any, ...]], how: dict[str, Any], way: str, *, is_large: bool
) -> list[tuple[Any, ...]]:
    """The rows of a table after a load of whole rows, and one by another way."""
    base = Base(t={"schema": ROWS, "record_key": "id", **how})
    plain = {"column_separator": ",", "db": "db", "table": "t"}
    client = Client(base.service(options()))
    begun = "".join(",".join(map(text, row[:4])) + "\n" for row in first).encode()
    client.transaction("begin", "first")
    client.transaction("load", "first", begun, **plain)
    assert client.transaction("commit", "first")["Status"] == "OK"
    client.service.stop()
    base.clock.pass_seconds(60)
    if is_large:
        base.settings["lakefmt.write.window.bytes"] = 1024
    client = Client(base.service(options()))
    client.transaction("begin", "l")
    for some in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        reply = client.transaction("load", "l", body(some, way), **plain, **WAYS[way])
        assert reply["Status"] == "OK", reply
    reply = client.transaction("commit", "l")
    assert reply["Status"] == "OK", reply
    assert client.state("l") == "VISIBLE"
    client.service.stop()
    return base.rows()


def model(
    first: list[tuple[Any, ...]], rows: list[tuple[Any, ...]], way: str, *, is_global: bool, stays: bool
) -> list[tuple[Any, ...]]:
    """What a dictionary comes to: rows of a table without event times act in their order.

    With `stays` a stored key stays in its partition, and keeps its city.
    """
    there: dict[object, tuple[Any, ...]] = {}

    def identity(row: tuple[Any, ...]) -> object:
        return row[0] if is_global else row[:2]

    for row in first:
        there[identity(row)] = row[:4]
    newest: dict[object, tuple[Any, ...]] = {}
    for row in rows:
        key = identity(row)
        if way == "condition":
            if key not in newest or (row[3] or 0) >= (newest[key][3] or 0):
                newest[key] = row[:4]
        elif row[4] and "deletes" in way:
            there.pop(key, None)
        else:
            n = there.get(key, (None,) * 4)[3] if "parts" in way else row[3]
            there[key] = (*row[:3], n)
    for key, row in newest.items():
        if key not in there or there[key][3] is None or (row[3] or 0) >= there[key][3]:
            there[key] = row
    cities = {row[0]: row[1] for row in first} if stays else {}
    return sorted(((row[0], cities.get(row[0], row[1]), *row[2:]) for row in there.values()), key=repr)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(ROW, min_size=1, max_size=15),
    st.lists(ROW, min_size=45, max_size=70),
    st.sampled_from(["cow", "mor"]),
    st.sampled_from(list(INDEXES)),
    st.sampled_from([None, "n"]),
    st.sampled_from([None, "city"]),
    st.sampled_from(list(WAYS)),
)
def test_rows_that_are_more_than_memory_come_to_the_same(
    first: list[tuple[Any, ...]],
    rows: list[tuple[Any, ...]],
    table_type: str,
    index: str,
    ordering: str | None,
    partition: str | None,
    way: str,
) -> None:
    how = {"table_type": table_type, **INDEXES[index]}
    is_global = index not in ("bloom", "bucket") or partition is None
    how |= {} if ordering is None else {"ordering": ordering}
    how |= {} if partition is None else {"partition_by": partition}
    first = list({row[0] if is_global else row[:2]: row for row in first}.values())
    large = outcome(first, rows, how, way, is_large=True)
    assert large == outcome(first, rows, how, way, is_large=False)
    if ordering is None:
        stays = index in ("global that stays", "record") and partition is not None
        assert large == model(first, rows, way, is_global=is_global, stays=stays)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [FaultMode.BEFORE, FaultMode.AFTER])
@pytest.mark.parametrize("way", ["deletes", "parts and deletes", "condition"])
def test_death_at_every_effect_of_a_commit_that_is_more_than_memory(way: str, mode: FaultMode) -> None:
    """A row that is deleted and comes back with a smaller event time takes two commits."""
    first = [(key, "sf", "a", 3.0, False) for key in range(1, 9)]
    rows = [(key, "sf", "b", n, n == 2.0) for key in range(1, 9) for n in (3.0, 2.0, 1.0)]
    how = {"table_type": "mor", "ordering": "n"}
    wanted = outcome(first, rows, how, way, is_large=True)
    for number in range(1, 1_000):
        base, faults = Base(t={"schema": ROWS, "record_key": "id", **how}), Faults()
        plain = {"column_separator": ",", "db": "db", "table": "t"}
        client = Client(base.service(options()))
        client.transaction("begin", "first")
        begun = "".join(",".join(map(text, row[:4])) + "\n" for row in first).encode()
        client.transaction("load", "first", begun, **plain)
        assert client.transaction("commit", "first")["Status"] == "OK"
        client.service.stop()
        base.settings["lakefmt.write.window.bytes"] = 1024
        client = Client(base.service(options(), faults))
        client.transaction("begin", "l")
        client.transaction("load", "l", body(rows, way), **plain, **WAYS[way])
        assert client.transaction("prepare", "l")["Status"] == "OK"
        faults.left, faults.mode = number * 2, mode
        try:
            assert client.transaction("commit", "l")["Status"] == "OK"
            died = False
        except SimulatedCrash:
            died = True
        base.clock.pass_seconds(600)
        if died:
            client = Client(base.service(options()))
            assert client.transaction("commit", "l")["Status"] == "OK"
        assert client.state("l") == "VISIBLE"
        assert base.rows() == wanted
        if not died:
            break
    assert number > 3
