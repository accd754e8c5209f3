"""Partial rows in any order of arrival: every reader, every change and every increment tells the same story."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakefmt
from tests.example_counts import examples
from tests.judges.compare import assert_same_multiset
from tests.read.partial_rows import SCHEMA, Model, Step, as_table, make, run, stories
from tests.read.pulling import Pulled

NUMBERS = itertools.count()


def next_start(found: pa.Table) -> str:
    return str(found.schema.metadata[b"lakefmt.next_start"].decode())


def follow(table: lakefmt.Table, model: Model, steps: list[Step]) -> None:
    """Play a story on table and model; look at every instant, in every way, then again from the end."""
    pulled, seen, rows_seen = Pulled(), "000", "000"
    moments: list[tuple[str, str, pa.Table]] = []
    for number, step in enumerate(steps):
        before, known = model.commits, len(table.timeline.timeline.commits)
        run(table, step)
        model.play(step)
        what = f"after step {number}, {step.kind} {step.columns}"
        expected = as_table(model.rows(), table.schema)
        assert_same_multiset(table.read(), expected, what=what)
        found = table.changes(seen)
        pulled.apply(found)
        pulled.check(table.read(), f"changes {what}")
        grown = table.incremental(rows_seen)
        assert_same_multiset(grown, as_table(_grown(model, step, before), table.schema), what=f"increment {what}")
        seen, rows_seen = next_start(found), next_start(grown)
        commits = table.timeline.timeline.commits
        if len(commits) > known:
            moments.append((commits[-1].time, seen, expected))
    for instant, end, expected in moments:
        assert_same_multiset(table.read(as_of=instant), expected, what=f"as of {instant}")
        late = Pulled()
        late.apply(table.changes("000", end))
        late.check(expected, f"changes up to {end}")
    some = table.changes("000", columns=["id", "b"])
    whole = table.changes("000")
    assert [(row["op"], row["ts_ms"]) for row in some.to_pylist()] == [
        (row["op"], row["ts_ms"]) for row in whole.to_pylist()
    ], "which rows changed does not depend on the columns that are asked for"


def _grown(model: Model, step: Step, before: int) -> list[dict[str, object]]:
    return [] if step.kind == "compact" else model.rows(before)


@pytest.mark.slow
@settings(max_examples=examples(16), deadline=None, suppress_health_check=list(HealthCheck))
@given(stories(), st.sampled_from([8, 9]), st.sampled_from([True, True, False]))
def test_partial_rows_tell_one_story(steps: list[Step], version: int, ordered: bool) -> None:
    table = make(f"memory://partial-laws-{next(NUMBERS)}", version, ordered=ordered)
    follow(table, Model(ordered), steps)


@pytest.mark.slow
@settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(stories(marked=True), st.sampled_from([8, 9]))
def test_partial_rows_of_a_table_that_marks_deletes(steps: list[Step], version: int) -> None:
    table = make(f"memory://partial-laws-{next(NUMBERS)}", version, marked=True)
    follow(table, Model(marked=True), steps)


def step(kind: str, ts: int | None = None, **values: int) -> Step:
    row = {"id": "k", **({} if ts is None else {"ts": ts}), **values}
    return Step(kind, tuple(name for name in row if name != "id") if kind == "partial" else (), (row,))


BASE = step("full", 100, a=1, b=1, c=1)
#: What came, and the row that Spark 1.2.0 reads.
CASES: dict[str, tuple[list[Step], dict[str, object] | None]] = {
    "a late row fills what the partial row has not": (
        [BASE, step("partial", 200, a=2), step("full", 150, a=3, b=3, c=3)],
        {"ts": 200, "a": 2, "b": 3, "c": 3},
    ),
    "a partial row older than the newest one fills, then stays": (
        [BASE, step("partial", 300, a=2), step("partial", 150, b=3), step("partial", 250, b=4)],
        {"ts": 300, "a": 2, "b": 3, "c": 1},
    ),
    "older than the base file's row, behind a newer one": (
        [BASE, step("partial", 300, a=2), step("partial", 50, b=3)],
        {"ts": 300, "a": 2, "b": 3, "c": 1},
    ),
    "older than the base file's row, alone": ([BASE, step("partial", 50, b=3)], {"ts": 100, "a": 1, "b": 1, "c": 1}),
    "of equal event times the later one": (
        [BASE, step("partial", 200, a=2), step("partial", 200, a=3, b=3)],
        {"ts": 200, "a": 3, "b": 3, "c": 1},
    ),
    "a late partial row behind a delete": ([BASE, step("delete"), step("full", 50, a=2, b=2, c=2)], None),
    "compaction between them: the late row loses whole": (
        [BASE, step("partial", 200, a=2), Step("compact"), step("full", 150, a=3, b=3, c=3)],
        {"ts": 200, "a": 2, "b": 1, "c": 1},
    ),
}


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("name", list(CASES))
def test_what_becomes_of_rows_in_part(name: str, version: int) -> None:
    steps, expected = CASES[name]
    table = make(f"memory://partial-laws-{next(NUMBERS)}", version)
    follow(table, Model(), steps)
    assert table.read().to_pylist() == ([] if expected is None else [{"id": "k", **expected}])


def test_the_model_can_say_no() -> None:
    model = Model()
    table = make(f"memory://partial-laws-{next(NUMBERS)}", 9)
    for one in CASES["a late row fills what the partial row has not"][0]:
        run(table, one)
    for one in [BASE, step("partial", 200, a=2)]:
        model.play(one)
    with pytest.raises(AssertionError):
        assert_same_multiset(table.read(), as_table(model.rows(), SCHEMA), what="a row too few")


COMPLETED = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("a", pa.int64()), ("b", pa.int64())])
GIVE_WAY = {
    "payload class": (8, {"hoodie.compaction.payload.class": "org.apache.hudi.common.model.PartialUpdateAvroPayload"}),
    "mode of version 9": (9, {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}),
}


@pytest.mark.parametrize("name", GIVE_WAY)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_late_row_that_completes_another_is_in_the_increment(table_type: str, name: str) -> None:
    """In logs it filled the newer row of a log, whose commit time stayed: who pulled increments never got the value."""
    version, properties = GIVE_WAY[name]
    table = lakefmt.create_table(
        f"memory://partial-laws-{next(NUMBERS)}",
        schema=COMPLETED,
        record_key="id",
        ordering="ts",
        table_type=table_type,
        table_version=version,
        properties=properties,
        options={"lakefmt.durability": "none", "hoodie.clean.automatic": False},
    )
    start, pulled = "000", {}
    values: list[tuple[int, int | None, int | None]] = [
        (5, 1, None),
        (6, 2, None),
        (4, None, 3),
        (3, 9, 9),
        (7, None, 8),
    ]
    for event_time, a, b in values:
        table.upsert(pa.table({"id": ["k"], "ts": [event_time], "a": [a], "b": [b]}, schema=COMPLETED))
        increment = table.incremental(start)
        start = next_start(increment)
        pulled |= {row["id"]: row for row in increment.to_pylist()}
        assert [*pulled.values()] == table.read().to_pylist()
    assert pulled == {"k": {"id": "k", "ts": 7, "a": 2, "b": 8}}
