"""Changes of a table with keys, read bucket by bucket, and states that are undone between two readers: against a dictionary."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.consumers.stream import StreamBatch
from lakefmt.errors import DataExpired, LakefmtError
from tests.example_counts import examples

NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64())])
BY_HAND: dict[str, object] = {
    "lakefmt.durability": "none",
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.parquet.small.file.limit": 0,
}
Row = dict[str, Any]
State = dict[tuple[str, str], Row]

ROW = st.fixed_dictionaries({"id": st.sampled_from("abcdef"), "p": st.sampled_from("xy"), "v": st.integers(0, 9)})
ROWS = st.lists(ROW, min_size=1, max_size=5, unique_by=lambda row: (row["id"], row["p"]))
VERBS = ["upsert", "upsert", "insert_overwrite", "insert_overwrite_table", "delete", "merge", "delete_partitions"]
STEPS = st.lists(st.tuples(st.sampled_from(VERBS), ROWS), min_size=1, max_size=6)


def make(**how: Any) -> lakefmt.Table:
    return lakefmt.create_table(
        f"memory://changes-apart-{next(NUMBERS)}", schema=SCHEMA, partition_by="p", options=BY_HAND, **how
    )


def play(table: lakefmt.Table, verb: str, rows: list[Row]) -> None:
    given = pa.Table.from_pylist(rows, schema=SCHEMA)
    if verb == "delete":
        table.delete(sorted({row["id"] for row in rows}))
    elif verb == "delete_partitions":
        if (path := f"p={rows[0]['p']}") in table.partitions():
            table.delete_partitions([path])
    elif verb == "merge":
        unique = {row["id"]: row for row in rows}
        source = pa.Table.from_pylist(list(unique.values()), schema=SCHEMA)
        merge = table.merge(source, ["id", "p"]).when_matched({"v": "s.v"}).when_not_matched()
        merge.when_not_matched_by_source(delete=True, where="t.v > 6").execute()
    else:
        getattr(table, verb)(given)


def applied(batches: Iterable[StreamBatch]) -> State:
    """The rows that changes leave, in the order in which one reader gets them."""
    state: State = {}
    for batch in batches:
        for row in batch.rows.to_pylist():
            op, key = row.pop("op"), (row["id"], row["p"])
            assert (key in state) == (op != "i"), (op, row)
            state[key] = row
            if op == "d":
                del state[key]
    return state


READERS: dict[str, list[dict[str, Any]]] = {
    "each bucket": [{"buckets": [number]} for number in range(3)],
    "two shards": [{"shard": (number, 2)} for number in range(2)],
    "side by side": [{"order": "bucket"}],
    "together": [{}],
}


@pytest.mark.parametrize("readers", READERS)
@settings(max_examples=examples(20), deadline=None)
@given(steps=STEPS, kind=st.sampled_from([("cow", 6), ("cow", 8), ("mor", 6), ("mor", 9)]))
def test_readers_of_buckets_get_every_change_of_their_keys_in_order(
    readers: str, steps: list[tuple[str, list[Row]]], kind: tuple[str, int]
) -> None:
    """Also deletes and overwrites of several partitions at once."""
    table = make(
        record_key="id",
        table_type=kind[0],
        table_version=kind[1],
        index="bucket",
        properties={"hoodie.bucket.index.num.buckets": "3"},
    )
    for verb, rows in steps:
        play(table, verb, rows)
    together: State = {}
    for how in READERS[readers]:
        with table.stream("000", follow=False, **how) as stream:
            part = applied(stream)
        assert not together.keys() & part.keys()
        together |= part
    assert together == {(row["id"], row["p"]): row for row in table.read().to_pylist()}


@pytest.mark.parametrize("kind", ["cow", "mor"])
@settings(max_examples=examples(10), deadline=None)
@given(steps=STEPS)
def test_changes_without_buckets_come_in_order_side_by_side(kind: str, steps: list[tuple[str, list[Row]]]) -> None:
    """An overwrite takes keys to other file groups: those are no lanes of their own."""
    table = make(record_key="id", table_type=kind)
    for verb, rows in steps:
        play(table, verb, rows)
    with table.stream("000", follow=False, order="bucket") as stream:
        assert applied(stream) == {(row["id"], row["p"]): row for row in table.read().to_pylist()}


EVENTS = st.lists(st.sampled_from(["write", "cluster", "clean", "rollback", "restore"]), max_size=3)
SHAPES: list[dict[str, Any]] = [
    {"kind": "append"},
    {"kind": "append", "table_version": 6},
    {"record_key": "id"},
    {"record_key": "id", "table_type": "mor", "table_version": 9},
]


def written(table: lakefmt.Table, ids: Iterable[int]) -> lakefmt.CommitResult:
    rows = [{"id": str(number), "p": "xyz"[number % 3], "v": number} for number in ids]
    data = pa.Table.from_pylist(rows, schema=SCHEMA)
    return table.append(data) if table.properties.record_key_fields == () else table.upsert(data)


@settings(max_examples=examples(60), deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    start=st.sampled_from(["earliest", "full"]),
    commits=st.integers(1, 3),
    served=st.booleans(),
    taken=st.integers(0, 5),
    events=EVENTS,
    by_consumer=st.booleans(),
)
def test_a_reader_that_goes_on_gets_no_row_twice_and_leaves_out_none(
    shape: dict[str, Any], start: str, commits: int, served: bool, taken: int, events: list[str], by_consumer: bool
) -> None:
    """Whatever is undone, clustered or cleaned between two readers; or it is told that what it had begun is gone."""
    table, numbers = make(**shape), itertools.count()
    results = [written(table, itertools.islice(numbers, 6)) for _ in range(commits)]
    if served:
        table.cluster()
        table.clean(options={"hoodie.clean.commits.retained": 1})
    how: dict[str, Any] = {"follow": False, "max_batches": 0}
    if by_consumer:
        how["consumer_id"] = "reader"
    stream = table.stream(start, **how)
    batches = list(itertools.islice(stream, taken))
    if by_consumer:
        stream.commit()
    position = stream.position
    stream.close()
    undone = False
    for event in events:
        try:
            if event == "write":
                results.append(written(table, itertools.islice(numbers, 6)))
            elif event == "cluster":
                table.cluster()
            elif event == "clean":
                table.clean(options={"hoodie.clean.commits.retained": 1})
            elif event == "rollback" and results:
                table.rollback(results[-1])
                results.pop()
                undone = True
            elif event == "restore" and len(results) > 2:
                table.restore(results[-3])
                del results[-2:]
                undone = True
        except LakefmtError:
            continue  # what is below is archived, or something lies above
    try:
        with table.stream(start if by_consumer else {"offset": position}, **how) as again:
            batches += list(again)
    except DataExpired:
        assert undone or not by_consumer
        return
    found = [row["v"] for batch in batches for row in batch.rows.to_pylist()]
    there = set(table.read(["v"]).column("v").to_pylist())
    assert len(found) == len(set(found))
    assert there <= set(found)
    assert undone or there == set(found)


@pytest.mark.parametrize("by_consumer", [False, True])
def test_a_state_that_was_undone_while_it_was_read_is_told(by_consumer: bool) -> None:
    """The files before a clustering have the same rows as those after it: read on, they would come a second time."""
    table = make(kind="append")
    results = [written(table, range(6 * number, 6 * number + 6)) for number in range(3)]
    table.cluster()
    how: dict[str, Any] = {"follow": False, "max_batches": 0} | ({"consumer_id": "reader"} if by_consumer else {})
    with table.stream("full", **how) as stream:
        next(stream)
        if by_consumer:
            stream.commit()
    table.restore(results[0])
    again: dict[str, Any] = {"start": "full"} if by_consumer else {"start": {"offset": stream.position}}
    with table.stream(**again, **how) as stream, pytest.raises(DataExpired, match="undone"):
        list(stream)
    with table.stream(**again, **how, on_expired="full") as stream:
        assert sorted(row["v"] for batch in stream for row in batch.rows.to_pylist()) == list(range(6))
