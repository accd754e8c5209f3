"""Splits and merges of buckets: rows stay, keys are found, beside other writers and after a death at every effect."""

from __future__ import annotations

import functools
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.table import Table
from lakefmt.errors import CommitConflict, UnsupportedFeature
from lakefmt.testing.stores import FaultStore
from tests.crash.repeatable import Repeatable
from tests.crash.sweep import Ending, endings_of_run, numbers_of_run, sweep
from tests.example_counts import examples
from tests.index.ring_tables import ENGINE, FAST, NUM, check, make, rings_of, rows

MOST, LEAST, SIZE = (
    "hoodie.bucket.index.max.num.buckets",
    "hoodie.bucket.index.min.num.buckets",
    "hoodie.parquet.max.file.size",
)
SPLIT_ALL = {MOST: 16, "hoodie.bucket.index.split.threshold": 0}
MERGE_ALL = {LEAST: 1, MOST: 16, SIZE: 1 << 30}


def test_buckets_are_split_and_merged() -> None:
    table = make("resized")
    table.upsert(rows(0, 60, 1))
    table.upsert(rows(30, 90, 2))
    model = {f"k{n}": 1 + (n >= 30) for n in range(90)}
    planned = table.index.resize_buckets(options=SPLIT_ALL, dry_run=True)
    assert (planned.instant, planned.splits, planned.merges) == (None, 8, 0)
    check(table, model)
    done = table.index.resize_buckets(options=SPLIT_ALL)
    assert (done.splits, done.merges, done.rows) == (8, 0, 90)
    assert {len(ring.nodes) for ring in rings_of(table).values()} == {8}
    check(table, model)
    table.upsert(rows(60, 120, 3))
    model |= {f"k{n}": 3 for n in range(60, 120)}
    check(table, model)
    table.delete(["k0", "k61"])
    del model["k0"], model["k61"]
    done = table.index.resize_buckets(["p=p0"], options={**MERGE_ALL, LEAST: 2})
    assert (done.splits, done.merges) == (0, 1)
    assert {partition: len(ring.nodes) for partition, ring in rings_of(table).items()} == {"p=p0": 2, "p=p1": 8}
    check(table, model)
    table.upsert(rows(0, 130, 4))
    check(table, {f"k{n}": 4 for n in range(130)})
    assert table.index.resize_buckets().merges > 0, "small neighbours, down to the number that a partition begins with"
    check(table, {f"k{n}": 4 for n in range(130)})
    assert table.index.resize_buckets(["p=p0"]).instant is None


def test_an_increment_does_not_return_rows_that_only_moved() -> None:
    table = make("increment")
    first = table.upsert(rows(0, 30, 1))
    second = table.upsert(rows(20, 40, 2))
    assert first.completion_time is not None
    before = table.incremental(first.completion_time)
    table.index.resize_buckets(options=SPLIT_ALL)
    after = table.incremental(first.completion_time)
    assert sorted(after["id"].to_pylist()) == sorted(before["id"].to_pylist())
    assert second.instant is not None
    times = set(table.read(meta_columns=True)["_hoodie_commit_time"].to_pylist())
    assert times == {first.instant, second.instant}


def test_what_cannot_be_resized_is_refused() -> None:
    fixed = make("fixed", properties={NUM: "4"})
    with pytest.raises(UnsupportedFeature, match="CONSISTENT_HASHING"):
        fixed.index.resize_buckets()
    captured = make("captured", properties={NUM: "4", ENGINE: "CONSISTENT_HASHING", "hoodie.table.cdc.enabled": "true"})
    captured.upsert(rows(0, 9, 1))
    with pytest.raises(UnsupportedFeature, match="capture changes"):
        captured.index.resize_buckets(options=SPLIT_ALL)


# ------------------------------------------------------------------------------------------------ beside others

BESIDE = {**FAST, "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}


def test_a_write_beside_a_resize_is_made_again() -> None:
    """Its logs would be on file groups that the resize replaces; the other way round the resize gives up."""
    table = make("beside")
    table.upsert(rows(0, 60, 1))
    one, other = (lakefmt.open_table(table.client.store.url, options=BESIDE) for _ in range(2))
    context = lowlevel.begin_write(one, "upsert")
    done = [lowlevel.write_files(context, file, part) for file, part in lowlevel.assign(context, rows(0, 60, 2))]
    assert other.index.resize_buckets(options=SPLIT_ALL).splits == 8
    with pytest.raises(CommitConflict):
        lowlevel.commit(context, done)
    lowlevel.abort(context)
    check(table, {f"k{n}": 1 for n in range(60)})
    one.upsert(rows(0, 60, 3))
    check(table, {f"k{n}": 3 for n in range(60)})


def test_a_resize_beside_a_write_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from lakefmt._core.write import bucket_resize

    table = make("gives-up")
    table.upsert(rows(0, 60, 1))
    one, other = (lakefmt.open_table(table.client.store.url, options=BESIDE) for _ in range(2))
    before = bucket_resize._move_rows

    def overtaken(*given: object) -> object:
        other.upsert(rows(0, 70, 2))
        return before(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(bucket_resize, "_move_rows", overtaken)
    with pytest.raises(CommitConflict):
        one.index.resize_buckets(options=SPLIT_ALL)
    check(table, {f"k{n}": 2 for n in range(70)})
    assert {len(ring.nodes) for ring in rings_of(table).values()} == {4}
    monkeypatch.undo()
    one.index.resize_buckets(options=SPLIT_ALL)
    check(table, {f"k{n}": 2 for n in range(70)})


# ------------------------------------------------------------------------------------------------------- deaths

OPTIONS = {**FAST, "lakefmt.write.threads": 1, "hoodie.client.heartbeat.tolerable.misses": 0}
NUMBERS = itertools.count()
VERBS = {
    "new partitions": lambda t: t.upsert(rows(12, 24, 2, partitions=4)),
    "overwrite": lambda t: t.insert_overwrite(rows(0, 6, 2)),
    "split": lambda t: t.index.resize_buckets(options=SPLIT_ALL),
    "merge": lambda t: t.index.resize_buckets(options=MERGE_ALL),
}


def found_in(table: Table) -> dict[str, int]:
    stored = table.read()
    return dict(zip(stored["id"].to_pylist(), stored["v"].to_pylist(), strict=True))


@functools.cache
def dying() -> Repeatable:
    made = make(f"dies-{next(NUMBERS)}", options=OPTIONS)
    made.upsert(rows(0, 9, 1))
    return Repeatable(made.client.store)


@pytest.mark.slow
@pytest.mark.xdist_group("resizing-dies")  # one process asks all endings: it knows the states that it has checked
@pytest.mark.parametrize("verb", list(VERBS))
@pytest.mark.parametrize("ending", endings_of_run(), ids=str)
def test_after_a_death_at_any_effect_rows_and_rings_agree(verb: str, ending: Ending) -> None:
    origin = dying()
    whole = FaultStore(origin.copy())
    table = origin.table(whole, OPTIONS)
    before = found_in(table)
    VERBS[verb](table)
    after, asked = found_in(table), numbers_of_run(whole.effects, ending)
    call = lambda store: VERBS[verb](origin.table(store, OPTIONS))  # noqa: E731
    for left in sweep(origin, call, asked, ending, what=lambda left: verb):
        healthy = origin.table(left.store, OPTIONS, process=1)
        assert found_in(healthy) in (before, after), left.story
        healthy.upsert(rows(0, 12, 9, partitions=2))
        others = {(f"k{n}", 2) for n in range(12, 24)} & found_in(healthy).items()
        check(healthy, dict(others) | {f"k{n}": 9 for n in range(12)})


# -------------------------------------------------------------------------------------------------------- a model

actions = st.tuples(
    st.sampled_from(["upsert", "upsert", "delete", "overwrite", "drop", "split", "merge", "compact", "cluster"])
)
histories = st.lists(st.tuples(actions, st.integers(0, 40), st.integers(1, 15)), max_size=8)


@settings(max_examples=examples(10), deadline=None)
@given(histories)
def test_any_history_keeps_every_row_once(history: list[tuple[tuple[str], int, int]]) -> None:
    table = make(f"history-{next(NUMBERS)}")
    model: dict[str, int] = {}
    for turn, ((action,), first, count) in enumerate(history):
        batch = rows(first, first + count, turn)
        keys = batch["id"].to_pylist()
        if action == "upsert":
            table.upsert(batch)
            model |= dict.fromkeys(keys, turn)
        elif action == "delete":
            table.delete(keys)
            model = {key: value for key, value in model.items() if key not in keys}
        elif action in ("overwrite", "drop"):
            parts = {f"p{n // 3 % 2}" for n in range(first, first + count)}
            model = {key: value for key, value in model.items() if f"p{int(key[1:]) // 3 % 2}" not in parts}
            if action == "overwrite":
                table.insert_overwrite(batch)
                model |= dict.fromkeys(keys, turn)
            else:
                table.delete_partitions([f"p={part}" for part in parts if f"p={part}" in table.partitions()])
        elif action == "compact":
            table.compact()
        elif action == "cluster":
            table.cluster("v", schedule=True, options=SPLIT_ALL if turn % 2 else MERGE_ALL)
            table.cluster(options=SPLIT_ALL)
        else:
            table.index.resize_buckets(options=SPLIT_ALL if action == "split" else MERGE_ALL)
        check(table, model)
