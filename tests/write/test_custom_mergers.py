"""Tables that merge by a function of one's own: a dictionary that applies it in order, whatever the road."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.config import merge_rule
from lakefmt._core.config.merge_rule import FUNCTION, MergeFunction, register_merger, strategy_id
from lakefmt.errors import InvalidInputError, MergerFailed, MergerMissing, UnsupportedFeature
from tests.example_counts import examples
from tests.judges.hudi_rs import HudiRsJudge

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64()), ("w", pa.int64())])
NAME = f"{__name__}:double_and_add"
NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {"hoodie.parquet.small.file.limit": 0, "lakefmt.durability": "none"}
TYPES = pytest.mark.parametrize("table_type", ["cow", "mor"])


def double_and_add(older: pa.Table, newer: pa.Table) -> tuple[pa.Table, pa.ChunkedArray]:
    """2·older + newer, so that order and grouping matter; a null of `w` keeps the older one; rows of 0 mod 5 go."""
    v = pc.add(pc.multiply(older["v"], 2), newer["v"])
    w = pc.coalesce(newer["w"], older["w"])
    return newer.set_column(2, "v", v).set_column(3, "w", w), pc.equal(pc.bit_wise_and(v, 7), 5)


Row = dict[str, Any]


def model_of(older: Row | None, newer: Row) -> Row | None:
    if older is None:
        return newer
    v = 2 * older["v"] + newer["v"]
    return None if v & 7 == 5 else {**newer, "v": v, "w": older["w"] if newer["w"] is None else newer["w"]}


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Every test begins as a process that knows no merger."""
    known = dict(merge_rule._registered)
    merge_rule._registered.clear()
    yield
    merge_rule._registered.clear()
    merge_rule._registered.update(known)


def make(table_type: str, merge: str | MergeFunction = NAME, path: str = "", **arguments: Any) -> lakefmt.Table:
    given: dict[str, Any] = {
        "schema": SCHEMA,
        "record_key": "id",
        "partition_by": "city",
        "table_type": table_type,
        "options": OPTIONS,
        "merge": merge,
        **arguments,
    }
    return lakefmt.create_table(path or f"memory://custom-{next(NUMBERS)}", **given)


def row(key: str, v: int, w: int | None = None) -> Row:
    return {"id": key, "city": "sf" if key < "c" else "rio", "v": v, "w": w}


def content(table: lakefmt.Table) -> dict[str, Row]:
    found = table.read().to_pylist()
    assert len(found) == len({r["id"] for r in found})
    return {r["id"]: r for r in found}


# --- the law ----------------------------------------------------------------------------------------------------------

keys = st.sampled_from("abcd")
rows = st.builds(row, keys, st.integers(0, 3), st.one_of(st.none(), st.integers(0, 9)))
step = st.one_of(
    st.tuples(st.just("upsert"), st.lists(rows, min_size=1, max_size=6)),
    st.tuples(st.just("upsert"), st.lists(rows, min_size=1, max_size=6)),
    st.tuples(st.just("partial"), st.lists(rows, min_size=1, max_size=4, unique_by=lambda r: r["id"])),
    st.tuples(st.just("delete"), st.lists(keys, min_size=1, max_size=2)),
    st.tuples(st.just("compact"), st.just([])),
)


@TYPES
@pytest.mark.parametrize("verb", ["insert", "bulk_insert"])
def test_rows_of_one_key_are_merged_before_an_insert(table_type: str, verb: str) -> None:
    """Two rows make one, two make none, and one stays as it is."""
    table = make(table_type)
    given = [("a", "x", 1, 1), ("a", "x", 2, None), ("b", "x", 2, 2), ("b", "x", 1, 1), ("c", "x", 7, 7)]
    batches = [pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True))], SCHEMA) for row in given]
    options = {"hoodie.combine.before.insert": "true", "lakefmt.write.window.bytes": 1_024}
    getattr(table, verb)(iter(batches), options=options)
    assert sorted(table.read().to_pylist(), key=repr) == [
        {"id": "a", "city": "x", "v": 4, "w": 1},
        {"id": "c", "city": "x", "v": 7, "w": 7},
    ]


@TYPES
@settings(max_examples=examples(12))
@given(steps=st.lists(step, min_size=2, max_size=7), version=st.sampled_from([8, 9]), parquet=st.booleans())
def test_a_table_is_what_a_dictionary_says(
    table_type: str, steps: list[tuple[str, list[Any]]], version: int, parquet: bool
) -> None:
    blocks = {"hoodie.logfile.data.block.format": "parquet"} if parquet else {}
    table = make(table_type, table_version=version, options=OPTIONS | blocks)
    model: dict[str, Row] = {}

    def put(batch: list[Row], partial: bool) -> None:
        combined: dict[str, Row | None] = {}
        for new in batch:
            combined[new["id"]] = model_of(combined.get(new["id"]), new)
        for key, made in combined.items():
            old = model.get(key)
            if made is not None and partial:
                made = {**made, "w": old["w"] if old else None}
            result = None if made is None else model_of(old, made)
            model.pop(key, None)
            if result is not None:
                model[key] = result

    for verb, what in steps:
        if verb == "upsert":
            table.upsert(pa.Table.from_pylist(what, schema=SCHEMA))
            put(what, partial=False)
        elif verb == "partial":
            table.upsert(pa.Table.from_pylist(what, schema=SCHEMA).drop_columns(["w"]), partial=True)
            put(what, partial=True)
        elif verb == "delete":
            table.delete(what)
            for key in what:
                model.pop(key, None)
        elif table_type == "mor":
            table.compact(verify=True)
            assert {r["id"]: r for r in table.read(query="read_optimized").to_pylist()} == model
        assert content(table) == model, (verb, what)
    assert table.read(["w"], "v > 3").num_rows == sum(r["v"] > 3 for r in model.values()), "columns the function needs"


@TYPES
def test_the_function_is_called_once_a_round_not_once_a_key(table_type: str) -> None:
    calls: list[int] = []

    def counted(older: pa.Table, newer: pa.Table) -> pa.Table:
        calls.append(newer.num_rows)
        return newer

    register_merger("counted", counted)
    table = make(table_type, "counted", partition_by=None)
    table.upsert(pa.Table.from_pylist([row(f"k{n % 50}", n) for n in range(150)], schema=SCHEMA))
    assert calls == [50, 50]
    table.upsert(pa.Table.from_pylist([row(f"k{n}", n) for n in range(50)], schema=SCHEMA))
    assert sorted(content(table)) == sorted(f"k{n}" for n in range(50))
    assert calls == [50, 50, 50], "with the stored rows: on writing, or on reading"


# --- answers that cannot be written -----------------------------------------------------------------------------------


def wrong(older: pa.Table, newer: pa.Table) -> Any:
    """What the rows' `v` asks for."""
    asked = newer["v"][0].as_py()
    answers: dict[int, Any] = {
        1: newer.slice(0, 0),
        2: newer.drop_columns(["w"]),
        3: newer.set_column(2, "v", pc.cast(newer["v"], pa.int32())),
        4: newer.set_column(0, "id", pa.array(["z"] * newer.num_rows)),
        5: newer.set_column(1, "city", pa.array(["z"] * newer.num_rows)),
        6: (newer, [1]),
        7: (newer, np.array([True, False])),
        8: None,
        9: newer.append_column("more", newer["v"]),
        11: (newer, pa.array([None], pa.bool_())),
    }
    if asked == 10:
        raise RuntimeError("no idea")
    return answers[asked]


@pytest.mark.parametrize("asked", range(1, 12))
def test_a_wrong_answer_is_an_error_and_nothing_changes(asked: int) -> None:
    for table_type in ("cow", "mor"):
        table = make(table_type, wrong)
        table.upsert([row("a", 0)])
        before = table.snapshot().state.timeline.commits
        with pytest.raises(MergerFailed, match=f"merger {__name__}:wrong"):
            table.upsert([row("b", 0), row("b", asked)])  # in the batch
        if table_type == "cow":
            with pytest.raises(MergerFailed):
                table.upsert([row("a", asked)])
            assert table.snapshot().state.timeline.commits == before
        else:
            table.upsert([row("a", asked)])  # a log takes it; nobody can merge it
            for fails in (table.read, table.compact):
                with pytest.raises(MergerFailed):
                    fails()
            assert table.read(query="read_optimized").num_rows == 1
        assert [r["v"] for r in table.read(query="read_optimized").to_pylist()] == [0]


def test_partial_rows_of_one_key_come_once() -> None:
    table = make("cow")
    twice = pa.Table.from_pylist([row("a", 1), row("a", 2)], schema=SCHEMA).drop_columns(["w"])
    with pytest.raises(InvalidInputError, match="bring each once"):
        table.upsert(twice, partial=True)
    assert table.read().num_rows == 0


# --- the name, not the code -------------------------------------------------------------------------------------------


@TYPES
def test_a_process_without_the_function_says_so(table_type: str, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table = make(table_type, path=path)
    table.upsert([row("a", 1)])
    table.upsert([row("a", 2)])
    stored = json.loads((tmp_path / "t/.hoodie/.lakefmt/table.json").read_text())
    assert stored["merge"] == NAME
    assert table.properties.properties["hoodie.record.merge.strategy.id"] == strategy_id(NAME)
    assert "hoodie.compaction.payload.class" not in table.properties.properties

    merge_rule._registered.clear()
    without = lakefmt.open_table(path)
    assert without.read(query="read_optimized").num_rows == 1
    refused = [lambda: without.upsert([row("a", 2)])]
    refused += [without.read, without.compact] if table_type == "mor" else []
    for call in refused:
        with pytest.raises(MergerMissing, match=FUNCTION):
            call()
    # What is stored is never imported.
    (tmp_path / "t/.hoodie/.lakefmt/table.json").write_text('{"index": "bloom", "merge": "tests.no_such:function"}')
    with pytest.raises(MergerMissing, match=r"table\.json"):
        without.upsert([row("a", 2)])
    again = lakefmt.open_table(path, options={FUNCTION: NAME})
    assert content(again) == {"a": row("a", 4)}
    merge_rule._registered.clear()
    assert content(pickle.loads(pickle.dumps(again))) == {"a": row("a", 4)}, "a handle brings its options"
    with pytest.raises(InvalidInputError, match="the table merges by merger"):
        lakefmt.open_table(path, merge=wrong)
    merge_rule._registered.clear()
    register_merger(NAME, double_and_add)
    assert content(lakefmt.open_table(path)) == {"a": row("a", 4)}


def test_names_that_no_table_can_remember() -> None:
    with pytest.raises(InvalidInputError, match="no name of its own"):
        make("cow", lambda older, newer: newer)
    for name in ("no_such_mode", "tests.no_such_module:f", f"{__name__}:no_such", f"{__name__}:SCHEMA"):
        with pytest.raises(InvalidInputError, match="unknown merge"):
            make("cow", name)
    with pytest.raises(UnsupportedFeature, match="table_version 8 or 9"):
        make("cow", table_version=6)
    table = lakefmt.create_table("memory://plain-merge", schema=SCHEMA, record_key="id", merge="commit_time")
    with pytest.raises(InvalidInputError, match="by COMMIT_TIME_ORDERING"):
        lakefmt.open_table(table.client.store.url, options={FUNCTION: NAME})
    for name, function in (("", double_and_add), ("x", None), ("a\nb", double_and_add)):
        with pytest.raises(InvalidInputError):
            register_merger(name, function)  # type: ignore[arg-type]


def test_a_key_that_would_move_is_refused() -> None:
    table = make("cow")
    table.upsert([row("a", 1)])
    with pytest.raises(UnsupportedFeature, match="move to another partition"):
        table.upsert([{**row("a", 1), "city": "rio"}], options={"hoodie.index.type": "GLOBAL_BLOOM"})
    assert content(table) == {"a": row("a", 1)}


@pytest.mark.judge_rs
@pytest.mark.parametrize("version", [8, 9])
@TYPES
def test_hudi_rs_does_not_merge_such_logs(
    tmp_path: Path, hudi_rs_judge: HudiRsJudge, table_type: str, version: int
) -> None:
    table = make(table_type, path=str(tmp_path / "t"), table_version=version)
    table.upsert([row("a", 1)])
    table.upsert([row("a", 2)])
    assert content(table) == {"a": row("a", 4)}
    if table_type == "cow":
        assert hudi_rs_judge.snapshot(tmp_path / "t").select(["id", "v"]).to_pylist() == [{"id": "a", "v": 4}]
        return
    with pytest.raises(Exception, match=r"(?i)merge"):
        hudi_rs_judge.snapshot(tmp_path / "t")
