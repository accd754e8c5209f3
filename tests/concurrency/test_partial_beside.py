"""Writers of parts of rows beside each other, whatever finds the keys: the table has what a dictionary has after the same commits."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.errors import CommitConflict, LakefmtError
from tests.concurrency.green_threads import MANY, take_turns
from tests.example_counts import examples

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64()), ("w", pa.string())]
)
NUMBERS = itertools.count()
MOVES: dict[str, object] = {
    "hoodie.record.index.update.partition.path": "true",
    "hoodie.bloom.index.update.partition.path": "true",
    "hoodie.simple.index.update.partition.path": "true",
}
GLOBAL = ("record", "global_bloom")
KEYS = st.sets(st.sampled_from(["a", "b", "c", "d", "e"]), min_size=1, max_size=3).map(sorted)
CITIES = st.sampled_from(["sf", "oslo"])
VERB = st.one_of(
    st.tuples(st.sampled_from(["v", "w", "v", "w", "upsert", "delete"]), KEYS, CITIES),
    st.tuples(st.sampled_from(["compact", "cluster"]), st.just(["a"]), st.just("sf")),
)
SCRIPT = st.text("ABC", min_size=3, max_size=9)
ROUND = st.tuples(st.lists(VERB, min_size=2, max_size=3), SCRIPT)

Verb = tuple[str, list[str], str]
Model = dict[Any, dict[str, Any]]


def call(table: Table, verb: Verb, number: int, ordering: str | None, *, is_global: bool) -> Any:
    name, keys, city = verb
    if name == "compact":
        return table.compact()
    if name == "cluster":
        return table.cluster()
    if name == "delete":
        return table.delete(keys if is_global else [{"id": key, "city": city} for key in keys])
    values = {"v": [number] * len(keys), "w": [f"w{number}"] * len(keys)}
    values = values if name == "upsert" else {name: values[name]}
    ts = {"ts": [1] * len(keys)} if ordering or name == "upsert" else {}
    rows = pa.table({"id": keys, "city": [city] * len(keys), **ts, **values})
    return table.upsert(rows, partial=name != "upsert")


def apply(model: Model, verb: Verb, number: int, ordering: str | None, *, is_global: bool) -> None:
    name, keys, city = verb
    for key in keys if name not in ("compact", "cluster") else ():
        place = key if is_global else (key, city)
        if name == "delete":
            model.pop(place, None)
            continue
        row = model.setdefault(place, dict.fromkeys(SCHEMA.names))
        ts = {"ts": 1} if ordering or name == "upsert" else {}
        values = {"v": number, "w": f"w{number}"}
        row |= {"id": key, "city": city, **ts, **(values if name == "upsert" else {name: values[name]})}


def in_order(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in SCHEMA.names) for row in rows), key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("version", [6, 8, 9])
@settings(max_examples=examples(20), deadline=None)
@given(
    index=st.sampled_from(["record", "record", "partitioned_record", "global_bloom", "bucket", "bloom"]),
    ordering=st.sampled_from([None, "ts"]),
    rounds=st.lists(ROUND, min_size=1, max_size=3),
)
def test_parts_of_rows_that_several_writers_bring_are_all_there(
    table_type: str, version: int, index: str, ordering: str | None, rounds: list[tuple[list[Verb], str]]
) -> None:
    if index == "partitioned_record" and version < 9:
        index = "record"
    store, is_global = MemoryStore(f"partial-beside-{next(NUMBERS)}"), index in GLOBAL
    properties = {"hoodie.bucket.index.num.buckets": "2"} if index == "bucket" else {}
    lakefmt.create_table(
        store.url,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering=ordering,
        index=index,
        table_type=table_type,
        table_version=version,
        properties=properties,
        options=MANY,
    )
    model, numbers = Model(), itertools.count()
    how = {"ordering": ordering, "is_global": is_global}
    for verbs, script in rounds:
        numbered = [(next(numbers), verb) for verb in verbs]
        letters = "".join(letter for letter in script if "ABC".index(letter) < len(verbs))
        calls = [lambda t, n=n, verb=verb: call(t, verb, n, **how) for n, verb in numbered]
        writers = take_turns(store, calls, letters, MOVES if is_global else {})
        # A write beside a clustering that waits is refused.
        waits = any(verb[0] == "cluster" for verb in verbs)
        for writer, (_, verb) in zip(writers, numbered, strict=True):
            refusal = LakefmtError if verb[0] in ("compact", "cluster") else CommitConflict
            is_allowed = waits or refusal is LakefmtError
            assert writer.error is None or (is_allowed and isinstance(writer.error, refusal)), writer.error
        # A delete that found nothing has no commit: it came before whoever ended before it.
        done = [(w.finished, each) for w, each in zip(writers, numbered, strict=True) if w.result and w.result.instant]
        for _, (number, verb) in sorted(done):
            apply(model, verb, number, **how)
        table = Table(TableClient(store, MANY))
        assert in_order(table.read().to_pylist()) == in_order(model.values()), (index, verbs, letters)
