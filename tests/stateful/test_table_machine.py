"""Random verbs against a dictionary: snapshot, time travel and increments after every step; hudi-rs now and then."""

from __future__ import annotations

import collections
import itertools
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import lakefmt
from lakefmt.testing.invariants import check_invariants
from lakefmt.testing.model import ModelTable
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
RUN: collections.Counter[str] = collections.Counter()
NAMES = itertools.count()

keys = st.sampled_from([f"k{n}" for n in range(8)])
cities = st.sampled_from(["sf", "oslo", "são/paulo"])
row = st.fixed_dictionaries(
    {"id": keys, "city": cities, "ts": st.one_of(st.none(), st.integers(0, 3)), "v": st.integers(0, 9)}
)
batches = st.lists(row, min_size=1, max_size=6)


def as_table(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


class TableMachine(RuleBasedStateMachine):
    version = 8
    store = "local"

    @initialize(partitioned=st.booleans(), ordered=st.booleans(), index=st.sampled_from(["bloom", "simple"]))
    def create(self, partitioned: bool, ordered: bool, index: str) -> None:
        self.partitioned = partitioned
        self.root = Path(tempfile.mkdtemp()) / "t"
        url = str(self.root) if self.store == "local" else f"memory://machine-{next(NAMES)}"
        self.table = lakefmt.create_table(
            url,
            schema=SCHEMA,
            record_key="id",
            partition_by="city" if partitioned else None,
            ordering="ts" if ordered else None,
            table_version=self.version,
            index=index,
            options={"lakefmt.durability": "none", "lakefmt.write.threads": 1},
        )
        self.model = ModelTable("id", "city" if partitioned else None, "ts" if ordered else None)
        self.instants: list[str] = []
        self.steps = 0

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root.parent, ignore_errors=True)

    def committed(self, verb: str, result: lakefmt.CommitResult) -> None:
        RUN[verb] += 1
        self.steps += 1
        if result.instant is None:
            self.model.history.pop()
        else:
            self.instants.append(result.instant)
        assert_same_multiset(self.table.read(), as_table(self.model.rows()), what=f"after {verb}")
        check_invariants(self.table, keys_unique=False)
        if self.steps % 3 == 0 and self.instants:
            self.look_back(self.steps % len(self.instants))
        if self.steps % 10 == 0 and self.store == "local":
            assert_same_multiset(HudiRsJudge().snapshot(self.root), as_table(self.model.rows()), what="hudi-rs")

    def look_back(self, at: int) -> None:
        then = as_table(self.model.history[at])
        assert_same_multiset(self.table.read(as_of=self.instants[at]), then, what="time travel")

    @rule(rows=batches)
    def upsert(self, rows: list[dict[str, object]]) -> None:
        self.model.upsert(rows)
        self.committed("upsert", self.table.upsert(as_table(rows)))

    @rule(rows=batches)
    def insert(self, rows: list[dict[str, object]]) -> None:
        self.model.insert(rows)
        self.committed("insert", self.table.insert(as_table(rows)))

    @rule(rows=batches)
    def insert_new(self, rows: list[dict[str, object]]) -> None:
        self.model.insert_new(rows)
        self.committed("insert_new", self.table.insert(as_table(rows), drop_duplicates=True))

    @rule(rows=batches, sort=st.sampled_from(["none", "partition", "global"]))
    def bulk_insert(self, rows: list[dict[str, object]], sort: str) -> None:
        self.model.insert(rows)
        self.committed("bulk_insert", self.table.bulk_insert(iter([as_table([r]) for r in rows]), sort=sort))

    @rule(gone=st.lists(keys, min_size=1, max_size=4))
    def delete(self, gone: list[str]) -> None:
        self.model.delete(gone)
        self.committed("delete", self.table.delete(gone))

    @rule(v=st.integers(0, 9))
    def delete_where(self, v: int) -> None:
        self.model.delete_where(lambda r: r["v"] == v)
        self.committed("delete_where", self.table.delete(f"v = {v}"))

    @rule(v=st.integers(0, 9))
    def update(self, v: int) -> None:
        # A key that is stored several times would be combined to one row first: update means rows with one image.
        rows = self.model.rows()
        if len({(r["id"], r["city"] if self.partitioned else None) for r in rows}) != len(rows):
            return
        self.model.update(lambda r: r["v"] == v, {"v": v + 100})
        self.committed("update", self.table.update([("v", "=", v)], {"v": v + 100}))

    @rule(rows=batches)
    def insert_overwrite(self, rows: list[dict[str, object]]) -> None:
        self.model.overwrite(rows)
        self.committed("insert_overwrite", self.table.insert_overwrite(as_table(rows)))

    @rule(rows=st.lists(row, max_size=4))
    def insert_overwrite_table(self, rows: list[dict[str, object]]) -> None:
        self.model.overwrite_table(rows)
        self.committed("insert_overwrite_table", self.table.insert_overwrite_table(as_table(rows)))

    @precondition(lambda self: self.partitioned)
    @rule(city=cities)
    def delete_partitions(self, city: str) -> None:
        path = f"city={city.replace('/', '%2F')}"
        if path not in self.table.partitions():
            return
        self.model.delete_partitions([city])
        self.committed("delete_partitions", self.table.delete_partitions([path]))

    @precondition(lambda self: self.instants and self.model.history)
    @rule()
    def rollback(self) -> None:
        self.table.rollback(self.instants.pop())
        self.model.history.pop()
        self.model._rows = [dict(r) for r in self.model.history[-1]] if self.model.history else []
        RUN["rollback"] += 1
        assert_same_multiset(self.table.read(), as_table(self.model.rows()), what="after rollback")


@pytest.mark.parametrize(("version", "store"), [(8, "local"), (8, "memory"), (6, "local"), (9, "local")])
def test_random_verbs_equal_a_dictionary(version: int, store: str) -> None:
    machine = type(f"Machine{version}{store}", (TableMachine,), {"version": version, "store": store})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=12, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
    assert set(RUN) >= {"upsert", "insert", "delete", "bulk_insert", "insert_overwrite", "update", "rollback"}
