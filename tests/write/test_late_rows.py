"""The number of late rows is the model's: of rewritten files at the commit, of logs at the compaction that merges them.

A row is late when it changes nothing because the stored row of its key has a larger ordering value. hudi-rs reads the same
rows as the model after every story, so what the model counts as late is what the table left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakefmt
import lakefmt.events
from tests.example_counts import examples
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.int64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
CITIES = ("sf", "oslo")
#: Indexes that look keys up, keep them in the table, compute their place; two of them move a row to its new partition.
INDEXES = ("bloom", "simple", "global_bloom", "global_simple", "bucket", "record")
ENTRY = "lakefmt.rows.late"
Row = dict[str, object]


@dataclass
class Model:
    """Rows by identity; of a log a deleted key keeps the event time of its delete."""

    across_partitions: bool
    remembers_deletes: bool
    rows: dict[object, tuple[Row | None, int]] = field(default_factory=dict)

    def identity(self, row: Row) -> object:
        return row["id"] if self.across_partitions else (row["id"], row["city"])

    def upsert(self, rows: list[Row]) -> int:
        """Return how many rows are late."""
        best: dict[object, Row] = {}
        for row in rows:
            known = best.get(self.identity(row))
            if known is None or int(str(row["ts"])) >= int(str(known["ts"])):
                best[self.identity(row)] = row
        late = 0
        for key, row in best.items():
            stored = self.rows.get(key)
            if stored is not None and int(str(row["ts"])) < stored[1]:
                late += 1
            elif not row["_hoodie_is_deleted"]:
                self.rows[key] = (row, int(str(row["ts"])))
            elif stored is not None:
                self._forget(key, int(str(row["ts"])))
        return late

    def update(self, stored: Row, values: Row) -> int:
        """Return 1 if the changed row is late."""
        return self.upsert([{**stored, **values}])

    def delete(self, keys: list[str]) -> None:
        for key in [key for key, (row, _) in self.rows.items() if row is not None and row["id"] in keys]:
            self._forget(key, self.rows[key][1])

    def _forget(self, key: object, ts: int) -> None:
        if self.remembers_deletes:
            self.rows[key] = (None, ts)
        else:
            del self.rows[key]

    def live(self) -> list[Row]:
        return [row for row, _ in self.rows.values() if row is not None]


def a_row(draw: st.DrawFn, *, moves: bool) -> Row:
    number = draw(st.integers(0, 11))
    return {
        "id": f"k{number}",
        "city": draw(st.sampled_from(CITIES)) if moves else CITIES[number % 2],
        "ts": draw(st.integers(1, 9)),
        "v": draw(st.integers(0, 99)),
        "_hoodie_is_deleted": draw(st.sampled_from([False, False, False, True])),
    }


@st.composite
def stories(draw: st.DrawFn, table_type: str) -> tuple[dict[str, object], list[tuple[str, object]]]:
    index = draw(st.sampled_from(INDEXES if table_type == "cow" else INDEXES[:2] + INDEXES[4:5]))
    shape = {
        "table_version": draw(st.sampled_from([6, 8, 9])),
        "index": index,
        "options": {
            "lakefmt.durability": "none",
            "lakefmt.write.threads": draw(st.sampled_from([1, 2])),
            "lakefmt.write.window.bytes": draw(st.sampled_from([1 << 16, 1 << 28])),
            "hoodie.parquet.small.file.limit": draw(st.sampled_from([0, 100 << 20])) if table_type == "cow" else 0,
            **({"hoodie.bucket.index.num.buckets": 2} if index == "bucket" else {}),
        },
    }
    kinds = ["upsert", "upsert", "upsert", "stream", "stream", "delete", "update", "merge", "insert_new"]
    steps: list[tuple[str, object]] = []
    for number in range(draw(st.integers(2, 6))):
        kind = draw(st.sampled_from(kinds)) if number else "upsert"
        rows = [a_row(draw, moves="global" in index) for _ in range(draw(st.integers(1, 8)))]
        steps.append((kind, rows))
    return shape, steps


def batches(rows: list[Row]) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches that are larger than a window of 64 KiB: each is one of them and copies that are older."""
    for row in rows:
        older = [{**row, "ts": int(str(row["ts"])) - 1}] * 700
        yield from pa.Table.from_pylist([*older, row], schema=SCHEMA).to_batches()


class Played:
    """A table and its model; every step is one commit, of which the model says how many rows are late."""

    def __init__(self, root: Path, shape: dict[str, object], table_type: str) -> None:
        self.root = root
        self.table = lakefmt.create_table(
            str(root),
            schema=SCHEMA,
            record_key="id",
            partition_by="city",
            ordering="ts",
            table_type=table_type,
            **shape,
        )
        self.by_bucket = shape["index"] == "bucket"
        self.model = Model("global" in str(shape["index"]), remembers_deletes=table_type == "mor")

    def play(self, kind: str, rows: list[Row]) -> tuple[lakefmt.CommitResult, int]:
        """Return what the table and the model say."""
        table, model = self.table, self.model
        if self.by_bucket and kind in ("upsert", "stream"):
            # Nobody looks keys up there: where its bucket has a file, a log remembers the delete of a key that was never stored.
            rows = [row for row in rows if not row["_hoodie_is_deleted"] or model.identity(row) in model.rows] or [
                {**rows[0], "_hoodie_is_deleted": False}
            ]
        if kind == "upsert":
            return table.upsert(pa.Table.from_pylist(rows, schema=SCHEMA)), model.upsert(rows)
        if kind == "stream":
            return table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, batches(rows))), model.upsert(rows)
        if kind == "delete":
            keys = [str(row["id"]) for row in rows]
            done = table.delete(keys)
            model.delete(keys)
            return done, 0
        if kind == "insert_new":
            rows = [{**row, "_hoodie_is_deleted": False} for row in rows]
            fresh = [row for row in rows if (model.rows.get(model.identity(row)) or (None,))[0] is None]
            # A key that a log has deleted is new to the look-up; its row competes with the delete when it is merged.
            done = table.insert(pa.Table.from_pylist(rows, schema=SCHEMA), drop_duplicates=True)
            return done, model.upsert(fresh)
        if kind == "update":
            value, ts = int(str(rows[0]["v"])), int(str(rows[0]["ts"]))
            changed = [row for row in model.live() if int(str(row["v"])) >= value]
            done = table.update(f"v >= {value}", {"ts": ts})
            return done, sum(model.update(row, {"ts": ts}) for row in changed)
        source = {str(row["id"]): row for row in rows}
        matched = [row for row in model.live() if row["id"] in source]
        table_rows = pa.Table.from_pylist(list(source.values()), schema=SCHEMA)
        done = table.merge(table_rows, on=["id"]).when_matched({"ts": "s.ts", "v": "s.v"}).execute()
        late = sum(model.update(row, {name: source[str(row["id"])][name] for name in ("ts", "v")}) for row in matched)
        return done, late

    def judge(self, judge: HudiRsJudge) -> None:
        rows = pa.Table.from_pylist(self.model.live(), schema=SCHEMA)
        assert_same_multiset(self.table.read(), rows)
        assert_same_multiset(judge.snapshot(self.root), rows)


@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck), deadline=None)
@given(story=stories("cow"))
def test_a_commit_counts_the_late_rows_of_the_files_it_rewrites(hudi_rs_judge: HudiRsJudge, story) -> None:
    shape, steps = story
    with tempfile.TemporaryDirectory() as folder:
        played = Played(Path(folder) / "t", shape, "cow")
        for kind, rows in steps:
            done, late = played.play(kind, rows)
            assert done.num_late == late, kind
            if done.instant is not None:
                commit = played.table.timeline.timeline.commits[-1]
                entries = played.table.client.at().commit_metadata(commit).extra_metadata
                assert entries.get(ENTRY) == (str(late) if late else None)
        played.judge(hudi_rs_judge)


@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck), deadline=None)
@given(story=stories("mor"))
def test_a_compaction_counts_the_late_rows_of_the_logs_it_merges(hudi_rs_judge: HudiRsJudge, story) -> None:
    shape, steps = story
    with tempfile.TemporaryDirectory() as folder:
        played = Played(Path(folder) / "t", shape, "mor")
        total = 0
        for kind, rows in steps:
            done, late = played.play(kind, rows)
            assert done.num_late in (late, None), kind
            total += late if done.num_late is None else 0
        played.judge(hudi_rs_judge)
        heard: list[lakefmt.events.Event] = []
        end = lakefmt.events.subscribe(heard.append)
        result = played.table.compact()
        end()
        if result.completion_time is None:
            assert total == 0
            return
        assert result.num_late == total
        assert [event.facts["num_late"] for event in heard if event.facts.get("operation") == "compact"] == [total]
        assert (f", {total} late," in str(result)) == (total > 0)
        played.judge(hudi_rs_judge)
