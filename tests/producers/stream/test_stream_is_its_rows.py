"""A stream is its rows applied by the verbs of the table one after the other, whatever is committed when (law).

Two tables are made alike. One gets the rows by ``upsert``, ``update`` and ``delete``, a call for each; the other by a stream
that is flushed and committed anywhere between them.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.table import Table
from tests.example_counts import examples
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge

NUMBERS = itertools.count()
KEYS = ("a", "b", "c")
OPTIONS = {"lakefmt.durability": "none", "hoodie.compact.inline": "false", "hoodie.clean.automatic": "false"}
TIMES = st.one_of(st.none(), st.integers(-2, 4))
VALUES = st.one_of(st.none(), st.integers(0, 9))
STEPS = st.one_of(
    st.tuples(
        st.sampled_from(["upsert", "upsert", "insert", "insert_ignore", "update", "update_ignore", "delete"]),
        st.sampled_from(KEYS),
        TIMES,
        VALUES,
        VALUES,
        st.sets(st.sampled_from(["ts", "v", "w"]), min_size=1),
    ),
    st.sampled_from(["flush", "commit"]),
)


def add_up(older: pa.Table, newer: pa.Table) -> pa.Table:
    """Associative, and neither the newer row nor the same when it is called twice."""
    total = pc.add(pc.fill_null(older["v"], 0), pc.fill_null(newer["v"], 0))
    return newer.set_column(newer.schema.get_field_index("v"), "v", total)


lakefmt.register_merger("stream-law:add_up", add_up)

#: What a table is made of; the ordering column is nullable where the rule says nothing else.
RULES: dict[str, dict[str, Any]] = {
    "commit time": {},
    "event time": {"ordering": "ts"},
    "required event time": {"ordering": "ts", "required": True},
    "two event times": {"ordering": ("ts", "w"), "table_version": 9},
    "partial, event time": {
        "ordering": "ts",
        "properties": {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
        "table_version": 9,
        "table_type": "cow",  # logs fill one another before they meet the base file, in Hudi, too
    },
    "partial, commit time": {
        "properties": {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
        "table_version": 9,
    },
    "function": {"merge": "stream-law:add_up"},
}
SHAPES = st.fixed_dictionaries(
    {
        "table_type": st.sampled_from(["cow", "mor"]),
        "table_version": st.sampled_from([6, 8, 9]),
        "index": st.sampled_from(["BLOOM", "BUCKET", "GLOBAL_BLOOM", "SIMPLE", "RECORD_INDEX"]),
        "partitioned": st.booleans(),
    }
)


def schema_of(required: bool) -> pa.Schema:
    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("ts", pa.int64(), nullable=not required),
            ("v", pa.int64()),
            ("w", pa.int64()),
            pa.field("p", pa.string(), nullable=False),
        ]
    )


def made(rule: str, shape: dict[str, Any]) -> tuple[Table, dict[str, Any]]:
    """Return a table and its schema's fields that rows bring."""
    given = {**shape, **RULES[rule]}
    required, partitioned, index = given.pop("required", False), given.pop("partitioned"), given.pop("index")
    if "merge" in given and given["table_version"] == 6:
        given["table_version"] = 8
    options = {**OPTIONS, "hoodie.index.type": index}
    if index == "BUCKET":
        options["hoodie.bucket.index.num.buckets"] = "2"
    table = lakefmt.create_table(
        f"memory://stream-law-{next(NUMBERS)}",
        schema=schema_of(required),
        record_key="id",
        partition_by="p" if partitioned else None,
        options=options,
        **given,
    )
    return table, {"required": required}


def applied_by_verbs(table: Table, step: tuple[Any, ...], row: dict[str, Any]) -> str | None:
    """Apply a row by a verb of the table; return the operator by which a stream does the same, None: it is refused."""
    operator, key = step[0], step[1]
    there = table.read(filter=[("id", "=", key)]).num_rows > 0
    rows = pa.Table.from_pylist([row], schema=table.schema)
    if operator == "delete":
        table.delete([key])
    elif operator.startswith("update"):
        if not there:
            return None if operator == "update" else str(operator)
        sets = {name: row[name] for name in sorted(step[5])}
        table.update([("id", "=", key)], {name: pa.scalar(value, pa.int64()) for name, value in sets.items()})
    elif operator == "insert" and there:
        return None
    elif operator != "insert_ignore" or not there:
        table.upsert(rows)
    return str(operator)


def rows_of(table: Table, **more: Any) -> list[dict[str, Any]]:
    return sorted(table.read(**more).to_pylist(), key=lambda row: row["id"])


def check(rule: str, shape: dict[str, Any], steps: list[Any], stored: list[tuple[str, int]]) -> None:
    """Compare both tables after some steps."""
    by_verbs, more = made(rule, shape)
    streamed, _ = made(rule, shape)
    first = [{"id": key, "ts": time, "v": 5, "w": 5, "p": "p"} for key, time in dict(stored).items()]
    for table in (by_verbs, streamed):
        if first:
            table.upsert(pa.Table.from_pylist(first, schema=table.schema))
    alive = {row["id"] for row in first}
    deleted = set[str]()
    in_logs = set[str]()  # what a delete in a log remembers is seen by the merge of that log only
    with streamed.open_stream(flush_interval=0, commit_interval=3_600_000) as stream:
        for step in steps:
            if step == "flush":
                stream.flush()
                seen = [("id", "not in", sorted(in_logs))] if in_logs else None
                assert rows_of(streamed, filter=seen, include_uncommitted=True) == rows_of(by_verbs, filter=seen)
                continue
            if step == "commit":
                stream.commit()
                assert rows_of(streamed) == rows_of(by_verbs)
                in_logs |= deleted if shape["table_type"] == "mor" else set()
                continue
            operator, key, time, v, w, sets = step
            row = {"id": key, "ts": 0 if time is None and more["required"] else time, "v": v, "w": w, "p": "p"}
            # What is told late by its event time only is no duplicate to a strict operator.
            if (operator == "insert" and key in alive) or (operator == "update" and key not in alive):
                continue
            operator = applied_by_verbs(by_verbs, step, row)
            if operator is None:
                continue
            if operator != "update_ignore":
                alive = alive - {key} if operator == "delete" else alive | {key}
            if operator == "delete":
                deleted.add(key)
                stream.delete({"id": key, "p": "p"})
            elif operator.startswith("update"):
                stream.extend([{"id": key, "p": "p", **{name: row[name] for name in sets}}], operator)
            else:
                stream.apply_rows(operator, [row])
    assert rows_of(streamed) == rows_of(by_verbs)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=examples(6), derandomize=True, deadline=None)
@given(
    shape=SHAPES,
    steps=st.lists(STEPS, min_size=1, max_size=8),
    stored=st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-1, 3)), max_size=3),
)
def test_a_stream_is_its_rows_one_by_one(
    rule: str, shape: dict[str, Any], steps: list[Any], stored: list[tuple[str, int]]
) -> None:
    check(rule, shape, steps, stored)


BESIDE: dict[str, Any] = {
    "nothing": None,
    "update": ("update", {"id": "b", "ts": 8, "v": 1}),
    "insert_ignore": ("insert_ignore", {"id": "b", "ts": 8, "v": 1, "w": 1, "p": "p"}),
}


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_delete_beside_other_operators_deletes_whatever_the_event_time(table_type: str, beside: str) -> None:
    shape = {"table_type": table_type, "table_version": 8, "index": "BLOOM", "partitioned": False}
    table, _ = made("required event time", shape)
    table.upsert([{"id": key, "ts": 7, "v": 0, "w": 0, "p": "p"} for key in "ab"])
    with table.open_stream() as stream:
        stream.delete({"id": "a", "p": "p"})
        if BESIDE[beside] is not None:
            stream.apply_rows(BESIDE[beside][0], [BESIDE[beside][1] | {"p": "p"}])
        stream.flush()
        assert table.read(include_uncommitted=True)["id"].to_pylist() == ["b"]
    assert table.read()["id"].to_pylist() == ["b"]


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize(("table_type", "left"), [("cow", [5]), ("mor", [])])
def test_a_late_row_behind_a_delete_does_what_it_does_to_the_table(
    table_type: str, left: list[int], commits: bool
) -> None:
    """A delete in a log remembers the event time of what it deleted, and a base file forgets both."""
    shape = {"table_type": table_type, "table_version": 9, "index": "BLOOM", "partitioned": False}
    table, _ = made("event time", shape)
    table.upsert([{"id": "z", "ts": 1, "v": 0, "w": 0, "p": "p"}])
    with table.open_stream() as stream:
        stream.upsert({"id": "a", "ts": 10, "v": 1, "p": "p"})
        stream.delete({"id": "a", "p": "p"})
        if commits:
            stream.commit()
        stream.upsert({"id": "a", "ts": 5, "v": 2, "p": "p"})
        stream.flush()
        if not commits:  # what a delete in a log remembers is seen by the merge of that log only
            assert table.read(["ts"], [("id", "=", "a")], include_uncommitted=True)["ts"].to_pylist() == left
    assert table.read(["ts"], [("id", "=", "a")])["ts"].to_pylist() == left


@pytest.mark.judge_rs
@pytest.mark.slow
@pytest.mark.parametrize("table_version", [6, 8])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_hudi_rs_reads_what_a_stream_came_to(
    table_type: str, table_version: int, tmp_path: Path, hudi_rs_judge: HudiRsJudge
) -> None:
    """Late rows, deletes without and with an update beside them, and a key that came and went."""
    url = str(tmp_path / "t")
    schema = schema_of(required=True)
    table = lakefmt.create_table(
        url, schema=schema, record_key="id", ordering="ts", table_type=table_type, table_version=table_version
    )
    table.upsert([{"id": key, "ts": 7, "v": 0, "w": 0, "p": "p"} for key in "abcd"])
    with table.open_stream() as stream:
        stream.upsert({"id": "a", "ts": 10, "v": 1, "p": "p"})
        stream.upsert({"id": "a", "ts": 9, "v": 2, "p": "p"})
        stream.delete({"id": "b", "p": "p"})
        stream.update({"id": "c", "ts": 8, "v": 3, "p": "p"})
        stream.upsert({"id": "e", "ts": 1, "v": 4, "p": "p"})
        stream.delete({"id": "e", "p": "p"})
    expected = {"a": (10, 1), "c": (8, 3), "d": (7, 0)}
    for rows in (table.read(), hudi_rs_judge.snapshot(tmp_path / "t")):
        assert {row["id"]: (row["ts"], row["v"]) for row in rows.to_pylist()} == expected
    wrong = table.read().set_column(2, table.schema.field(2), pa.array([9, 9, 9], pa.int64()))
    with pytest.raises(AssertionError):  # the judge can say no
        assert_same_multiset(hudi_rs_judge.snapshot(tmp_path / "t"), wrong, what="sabotage")


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("index", ["bloom", "record"])
def test_a_late_row_behind_a_delete_beside_a_new_key_does_what_it_does_to_the_table(index: str, version: int) -> None:
    """A new key fills the small file of the deleted one, whose base file would forget the delete."""
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), ("t", pa.int64()), ("v", pa.int64())])
    found = []
    for how in ("verbs", "one commit", "a commit between"):
        url = f"memory://forgets-{index}{version}{how.replace(' ', '-')}"
        table = lakefmt.create_table(
            url, schema=schema, record_key="id", ordering="t", table_type="mor", table_version=version, index=index
        )
        table.upsert(pa.table({"id": ["b"], "t": [5], "v": [0]}))
        if how == "verbs":
            table.delete(["b"])
            for row in (("c", 9, 1), ("b", 1, 2)):
                table.upsert([dict(zip(schema.names, row, strict=True))])
        else:
            with table.open_stream(commit_interval=10**9) as stream:
                stream.delete("b")
                stream.upsert({"id": "c", "t": 9, "v": 1})
                if how == "a commit between":
                    stream.commit()
                stream.upsert({"id": "b", "t": 1, "v": 2})
        found.append(sorted(map(tuple, (row.values() for row in table.read().to_pylist()))))
    assert found[0] == found[1] == found[2]


def test_the_commit_that_goes_before_promises_nothing() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.int64())])
    table = lakefmt.create_table(
        "memory://goes-before",
        schema=schema,
        record_key="id",
        ordering="at",
        table_type="mor",
        properties={"lakefmt.event.time.column": "at"},
    )
    table.upsert(pa.table({"id": [1], "at": [10]}))
    with table.open_stream() as stream:
        for row in ({"id": 8, "at": 60}, {"id": 9, "at": 70}):
            stream.upsert(row)
        stream.delete(9)
    assert (
        sorted(table.as_of(watermark=70).read()["id"].to_pylist()) == sorted(table.read()["id"].to_pylist()) == [1, 8]
    )
