"""The row with the largest ordering value is there, in whatever order rows of a key arrive; deletes of it work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt.errors import SchemaMismatch, UnsupportedFeature
from tests.compat.ordering_tables import (
    IN_BASE_FILES_ONLY,
    KINDS,
    arrivals,
    arriving,
    delete_in_every_way,
    found,
    java_key,
    make_table,
    rows_of,
    schema_of,
    winners,
)
from tests.example_counts import examples
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.spark import JudgeError

FLOATS = ("float32", "float64")
#: Of the kinds that are no floats one table each: what a version does to rows is not a matter of their type.
TABLES = [
    *((name, table_type, version) for name in FLOATS for table_type in ("cow", "mor") for version in (6, 8, 9)),
    *((name, "cow", 8) for name in KINDS if name not in FLOATS),
    *((name, "mor", (6, 8, 9)[n % 3]) for n, name in enumerate(KINDS) if name not in (*FLOATS, *IN_BASE_FILES_ONLY)),
]
ON_LOGS = [one for one in TABLES if one[1] == "mor"]
#: Where hudi-rs 0.5 merges logs in another way than Hudi, and how this shows.
HUDI_RS_DIFFERS = {
    "time32": "it takes every time of day for equal: the later row wins",
    "time64": "it takes every time of day for equal: the later row wins",
}


def net_changes(table: lakefmt.Table) -> dict[str, int]:
    """Return the rows that a reader has who applies all changes in order."""
    state: dict[str, int] = {}
    for change in table.changes("000").to_pylist():
        state.pop((change["before"] or change["after"])["id"], None)
        if change["after"] is not None:
            state[change["after"]["id"]] = change["after"]["v"]
    return state


@pytest.mark.slow
@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("name", "table_type", "version"), TABLES)
def test_every_order_of_arrival_leaves_the_largest(tmp_path: Path, name: str, table_type: str, version: int) -> None:
    """Up to three arrivals of every value and null: among stored rows and batches, among logs, and in one batch."""
    sequences = arrivals(len(KINDS[name][1]), nulls=True, length=3 if len(KINDS[name][1]) < 6 else 2)
    expected = winners(sequences)
    batches = arriving(name, sequences)
    one = make_table(tmp_path / "one", name, table_type, version)
    one.upsert(pa.concat_tables(batches))
    assert found(one.read()) == expected, "in one batch"
    table = make_table(tmp_path / "table", name, table_type, version)
    for batch in batches:
        table.upsert(batch)
    assert found(table.read()) == expected
    assert net_changes(table) == expected
    if table_type == "mor":
        table.compact()
        assert found(table.read(query="read_optimized")) == expected
        table.upsert(batches[-1])
        assert table.read().num_rows == len(expected)


@pytest.mark.slow
@pytest.mark.in_turn(2)
@pytest.mark.judge_rs
@pytest.mark.parametrize(("name", "table_type", "version"), ON_LOGS)
def test_hudi_rs_merges_logs_alike(
    tmp_path: Path, hudi_rs_judge: HudiRsJudge, name: str, table_type: str, version: int
) -> None:
    sequences = arrivals(len(KINDS[name][1]), length=3)
    table = make_table(tmp_path / "table", name, table_type, version)
    for batch in arriving(name, sequences):
        table.upsert(batch)
    assert (found(hudi_rs_judge.snapshot(tmp_path / "table")) == winners(sequences)) is (name not in HUDI_RS_DIFFERS)


@pytest.mark.judge_rs
def test_hudi_rs_takes_null_for_a_value_that_wins(tmp_path: Path, hudi_rs_judge: HudiRsJudge) -> None:
    """An exemption: a null that comes after a value replaces it there, and the next value replaces the null."""
    table = make_table(tmp_path / "table", "float64", "mor", 8)
    for batch in arriving("float64", [(4, -1), (4, -1, 3), (-1, 4)]):
        table.upsert(batch)
    assert found(table.read()) == {"k4n": 0, "k4n3": 0, "kn4": 1}
    assert found(hudi_rs_judge.snapshot(tmp_path / "table")) != found(table.read())


@pytest.mark.slow
@pytest.mark.in_turn(2)
@pytest.mark.judge_rs
@pytest.mark.parametrize(("name", "table_type", "version"), TABLES)
def test_deletes_work_whatever_the_ordering_type(
    tmp_path: Path, hudi_rs_judge: HudiRsJudge, name: str, table_type: str, version: int
) -> None:
    table = make_table(tmp_path / "table", name, table_type, version)
    left = delete_in_every_way(table, name)
    assert found(table.read()) == left
    assert net_changes(table) == left
    if name not in (*HUDI_RS_DIFFERS, "date"):  # a late delete of the first of 1970 is late there
        assert found(hudi_rs_judge.snapshot(tmp_path / "table")) == left
    if table_type == "mor":
        table.compact()
        assert found(table.read(query="read_optimized")) == left
        assert found(hudi_rs_judge.snapshot(tmp_path / "table")) == left


@pytest.mark.slow
@pytest.mark.judge_rs
@pytest.mark.parametrize(("name", "at", "version"), [("int64", None, 8), ("float64", None, 6), ("decimal large", 2, 9)])
def test_deletes_with_and_without_an_event_time_go_together(
    tmp_path: Path, hudi_rs_judge: HudiRsJudge, name: str, at: int | None, version: int
) -> None:
    """hudi-rs reads no delete block in which both are: each has a block of its own, and rows keep their positions."""
    kind, values = KINDS[name]
    table = make_table(tmp_path / "table", name, "mor", version)
    stored = [(f"k{n}", None if at is None else values[at], 0, False) for n in range(0, 8, 2)]
    stored += [(f"k{n}", values[0], 0, False) for n in range(1, 8, 2)]
    table.upsert(rows_of(kind, sorted(stored)))
    assert table.delete([f"k{n}" for n in (6, 1, 5, 2, 0)]).num_deletes == 5
    assert found(table.read()) == {"k3": 0, "k4": 0, "k7": 0}
    assert found(hudi_rs_judge.snapshot(tmp_path / "table")) == {"k3": 0, "k4": 0, "k7": 0}
    late = rows_of(kind, [("k1", values[0], 1, False), ("k0", values[0], 1, False), ("k3", values[0], 1, False)])
    table.upsert(late)
    table.compact()
    assert found(table.read()) == {"k0": 1, "k1": 1, "k3": 1, "k4": 0, "k7": 0}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_delete_by_key_takes_every_copy_whatever_its_event_time(tmp_path: Path, order: tuple[int, ...]) -> None:
    """Plain inserts store a key twice; the delete carries the largest event time of the two, NaN."""
    rows = [("a", 1.0, 0, False), ("a", float("nan"), 1, False), ("b", 2.0, 0, False)]
    table = make_table(tmp_path / "table", "float64", "mor", 8)
    table.insert(rows_of(pa.float64(), [rows[at] for at in (*order, 2)]))
    table.delete(["a"])
    assert found(table.read()) == {"b": 0}


# ------------------------------------------------------------------------------------------------ any history of floats


POOL = st.one_of(st.none(), st.sampled_from([0.0, -0.0, float("nan"), float("inf"), 1e-45]), st.floats(width=32))


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, str, int, list[list[tuple[str, float | None]] | str]]:
    name = draw(st.sampled_from(FLOATS))
    table_type = draw(st.sampled_from(["cow", "mor", "mor"]))
    rows = st.lists(st.tuples(st.sampled_from("abcd"), POOL), min_size=1, max_size=8)
    steps = draw(st.lists(st.one_of(rows, rows, rows, st.sampled_from(["compact", "delete"])), min_size=2, max_size=6))
    return name, table_type, draw(st.sampled_from([6, 8, 9])), steps


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(histories())
def test_any_history_of_floats_leaves_the_largest(
    tmp_path_factory: pytest.TempPathFactory, history: tuple[str, str, int, list[Any]]
) -> None:
    """Rows that come after a delete by key meet a delete of the same event time, until a compaction forgets it."""
    name, table_type, version, steps = history
    table = make_table(tmp_path_factory.mktemp("history") / "table", name, table_type, version)
    rows: dict[str, tuple[Any, int | None]] = {}
    for number, step in enumerate(steps):
        if step == "compact":
            if table_type == "mor":
                table.compact()
                rows = {key: row for key, row in rows.items() if row[1] is not None}
        elif step == "delete":
            gone = [key for key in "ab" if key in rows and rows[key][1] is not None]
            assert table.delete(["a", "b"]).num_deletes == len(gone)
            for key in gone:
                # Without an event time, and in a base file, nothing of the row is left.
                if table_type == "cow" or rows[key][0] is None:
                    del rows[key]
                else:
                    rows[key] = (rows[key][0], None)
        else:
            batch = [(key, ts, 100 * number + at) for at, (key, ts) in enumerate(step)]
            table.upsert(rows_of(KINDS[name][0], [(key, ts, v, False) for key, ts, v in batch]))
            for key, ts, v in batch:
                if key not in rows or java_key(ts) >= java_key(rows[key][0]):
                    rows[key] = (ts, v)
    assert found(table.read()) == {key: v for key, (_, v) in rows.items() if v is not None}


# ---------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("name", IN_BASE_FILES_ONLY)
def test_no_merge_on_read_table_is_made_that_hudi_cannot_merge(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedFeature, match="Hudi does not compare bytes when it merges logs"):
        make_table(tmp_path / "table", name, "mor", 8)
    assert not (tmp_path / "table").exists()
    by_arrival = lakefmt.create_table(
        str(tmp_path / "table"),
        schema=schema_of(KINDS[name][0]),
        record_key="id",
        ordering="ts",
        merge="commit_time",
        table_type="mor",
    )
    by_arrival.upsert(rows_of(KINDS[name][0], [("a", KINDS[name][1][0], 1, False)]))
    assert by_arrival.delete(["a"]).num_deletes == 1


@pytest.mark.parametrize(
    ("ordering", "why"), [("l", "which has no order"), ("s", "which has no order"), ("s.z", "not in the schema")]
)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_an_ordering_column_without_an_order_is_refused(
    tmp_path: Path, table_type: str, ordering: str, why: str
) -> None:
    schema = pa.schema([("id", pa.string()), ("l", pa.list_(pa.int64())), ("s", pa.struct([("a", pa.int64())]))])
    with pytest.raises(SchemaMismatch, match=why):
        lakefmt.create_table(
            str(tmp_path / "t"), schema=schema, record_key="id", ordering=ordering, table_type=table_type
        )
    made = lakefmt.create_table(
        str(tmp_path / "t"), schema=schema, record_key="id", ordering="s.a", table_type=table_type
    )
    made.upsert([{"id": "a", "l": [1], "s": {"a": 2}}])
    made.upsert([{"id": "a", "l": [2], "s": {"a": 1}}])
    assert made.read(["l"]).to_pylist() == [{"l": [1]}]


def test_the_judge_can_say_no(tmp_path: Path, hudi_rs_judge: HudiRsJudge) -> None:
    """One wrong winner among all keys is seen."""
    sequences = arrivals(3, length=2)
    table = make_table(tmp_path / "table", "int64", "mor", 8)
    for batch in arriving("int64", sequences):
        table.upsert(batch)
    table.delete(["k0"])
    with pytest.raises((AssertionError, JudgeError)):
        assert found(hudi_rs_judge.snapshot(tmp_path / "table")) == winners(sequences)
