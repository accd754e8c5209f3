"""Where a key lives on a merge-on-read table: random writes around planned, run, killed and withdrawn services.

After every step each key is there once (in its partition; with a global index in the table), what was deleted is gone, and the
row is that of the last write, whatever the index, the table version and the merge rule are.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import lakefmt
import lakefmt._core.write.transaction as transaction
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.listing import ListingByMetadata
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt._core.write import assign
from lakefmt._core.write.assign import Logs
from lakefmt._core.write.context import FileAssignment
from lakefmt.errors import CommitConflict, WriterActive
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at
from tests.concurrency.green_threads import MANY
from tests.example_counts import examples
from tests.judges.hudi_rs import HudiRsJudge

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("ts", pa.int64()), ("v", pa.int64()), ("w", pa.int64())])
NUMBERS = itertools.count()
KEYS, PLACES = "abc", "xy"
WRITES = (
    "upsert",
    "partial",
    "insert_new",
    "upsert_in_logs",
    "straddle",
    "update",
    "delete",
    "delete_in",
    "delete_where",
)
ONE_BUCKET = {"hoodie.bucket.index.num.buckets": "1"}
CONSISTENT = {**ONE_BUCKET, "hoodie.index.bucket.engine": "CONSISTENT_HASHING"}

Step = tuple[Any, ...]


@dataclass(frozen=True)
class Scene:
    """A table; `by_metadata`: a bloom index asks the metadata table for ranges and filters; `beside`: writers expect others."""

    index: str
    version: int = 8
    ordering: str | None = "ts"
    moves: bool = True
    by_metadata: bool = False
    consistent: bool = False
    beside: bool = False

    @property
    def is_global(self) -> bool:
        return self.index.startswith("global") or self.index == "record"

    def options(self) -> dict[str, object]:
        moves = {f"hoodie.{kind}.index.update.partition.path": self.moves for kind in ("bloom", "simple", "record")}
        metadata = {"hoodie.bloom.index.use.metadata": True} if self.by_metadata else {}
        beside = {**MANY, "hoodie.write.num.retries.on.conflict.failures": 0} if self.beside else {}
        return {
            **moves,
            **metadata,
            **beside,
            "lakefmt.durability": "none",
            "lakefmt.write.threads": 1,
            "hoodie.clean.automatic": False,
            "hoodie.archive.automatic": False,
            "hoodie.log.compaction.blocks.threshold": 2,
            "hoodie.clustering.updates.strategy": "SparkAllowUpdateStrategy",
        }


SCENES = st.builds(
    Scene,
    st.sampled_from(["bloom", "simple", "global_bloom", "global_simple", "record", "bucket"]),
    st.sampled_from([6, 8, 9]),
    st.sampled_from(["ts", None]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
SOME = st.lists(st.sampled_from(KEYS), min_size=1, max_size=2, unique=True).map("".join)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["upsert", "upsert", "upsert", "partial", "insert_new"]), SOME, st.sampled_from(PLACES)),
    st.tuples(st.just("delete"), SOME),
    st.tuples(st.sampled_from(["update", "delete_where"]), st.sampled_from(KEYS)),
    st.tuples(st.just("delete_in"), SOME, st.sampled_from(PLACES)),
    st.tuples(st.sampled_from(["plan", "plan", "plan_log", "plan_cluster"])),
    st.tuples(st.sampled_from(["run", "run", "withdraw"])),
    st.tuples(st.just("die"), st.integers(1, 20)),
    st.tuples(st.sampled_from(["clean", "archive", "undo", "upgrade"])),
    st.tuples(st.sampled_from(["straddle", "upsert_in_logs"]), SOME, st.sampled_from(PLACES)),
)


class Clock:
    """Goes on by a millisecond each time it is read, and by an hour after a death."""

    def __init__(self, begin: datetime) -> None:
        self.moment = begin

    def now(self) -> datetime:
        self.moment += timedelta(milliseconds=1)
        return self.moment


@dataclass
class History:
    """A table, and what it should hold: key and partition of each row, and its values `ts`, `v` and `w`."""

    scene: Scene
    rows: dict[tuple[str, str], tuple[int, int, int | None]] = field(default_factory=dict)
    written: int = 0
    #: After the table is made, whenever the test runs; other engines read the clock of the machine.
    begin: datetime = datetime(2030, 1, 1, tzinfo=UTC)
    #: Instants that can be undone, with the rows before them.
    states: dict[str | None, dict[tuple[str, str], tuple[int, int, int | None]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scene, self.clock = self.scene, Clock(self.begin)
        self.store = MemoryStore(f"keys-{next(NUMBERS)}", now=lambda: self.clock.now().timestamp())
        properties = CONSISTENT if scene.consistent else ONE_BUCKET
        indexes = ["column_stats", "bloom_filters"] if scene.by_metadata else []
        lakefmt.create_table(
            self.store.url,
            schema=SCHEMA,
            record_key="id",
            partition_by="p",
            ordering=scene.ordering,
            table_type="mor",
            table_version=scene.version,
            index=scene.index,
            properties=properties if scene.index == "bucket" else {},
            options=scene.options(),
            **({"indexes": indexes} if indexes else {}),
        )
        self.table = self.opened(self.store)

    def opened(self, store: Any) -> Table:
        return Table(TableClient(store, self.scene.options(), self.clock, metadata_listing=ListingByMetadata()))

    # --- writes

    def home(self, key: str, place: str) -> str:
        """Return the partition where a row of a key goes."""
        stored = self.places(key)
        return stored[0] if self.scene.is_global and stored and not self.scene.moves else place

    def places(self, key: str) -> list[str]:
        return [place for stored, place in self.rows if stored == key]

    def batch(self, keys: str, place: str) -> pa.Table:
        self.written += 1
        n, count = self.written, len(keys)
        columns = {"id": [*keys], "p": [place] * count, "ts": [n] * count, "v": [n] * count, "w": [n] * count}
        return pa.table(columns, schema=SCHEMA)

    def put(self, keys: str, place: str, *, whole: bool = True) -> None:
        for key in keys:
            home, n = self.home(key, place), self.written
            before = [self.rows.pop((key, old)) for old in self.places(key) if self.scene.is_global or old == home]
            kept = before[0][2] if before else None
            self.rows[key, home] = (n, n, n if whole else kept)

    def upsert(self, keys: str, place: str) -> None:
        self.table.upsert(self.batch(keys, place))
        self.put(keys, place)

    def upsert_in_logs(self, keys: str, place: str) -> None:
        """Another engine's index puts new keys into logs, which open file groups."""
        layout = 1 if self.scene.version == 6 else 2
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(assign, "new_file", partial(new_log, layout))
            self.upsert(keys, place)

    def straddle(self, keys: str, place: str) -> None:
        """A compaction is planned after a write has looked its keys up, and before it commits."""
        before = {**self.rows}
        real = transaction.complete_instant

        def after_the_plan(*given: Any, **named: Any) -> Any:
            patch.setattr(transaction, "complete_instant", real)
            self.plan()
            return real(*given, **named)

        with pytest.MonkeyPatch.context() as patch:
            if self.scene.beside:
                patch.setattr(transaction, "complete_instant", after_the_plan)
            try:
                self.upsert(keys, place)
            except CommitConflict:  # version 6: the plan would leave the log behind
                self.rows = before

    def partial(self, keys: str, place: str) -> None:
        self.table.upsert(self.batch(keys, place).drop_columns(["w"]), partial=True)
        self.put(keys, place, whole=False)

    def insert_new(self, keys: str, place: str) -> None:
        self.table.insert(self.batch(keys, place), drop_duplicates=True)
        fresh = [key for key in keys if not (self.places(key) if self.scene.is_global else (key, place) in self.rows)]
        self.put("".join(fresh), place)

    def update(self, key: str) -> None:
        self.written += 1
        self.table.update([("id", "=", key)], {"v": self.written, "ts": self.written})
        for place in self.places(key):
            self.rows[key, place] = (self.written, self.written, self.rows[key, place][2])

    def delete(self, keys: str) -> None:
        gone = [pair for pair in self.rows if pair[0] in keys]
        done = self.table.delete([*keys])
        assert done.num_deletes == len(gone), "a delete counts the rows that it removes"
        for pair in gone:
            del self.rows[pair]

    def delete_in(self, keys: str, place: str) -> None:
        self.table.delete(pa.table({"id": [*keys], "p": [place] * len(keys)}))
        for pair in [(k, p) for k, p in self.rows if k in keys and (p == place or self.scene.is_global)]:
            del self.rows[pair]

    def delete_where(self, key: str) -> None:
        self.table.delete(f"id = '{key}'")
        for place in self.places(key):
            del self.rows[key, place]

    # --- services

    def plan(self) -> None:
        with suppress(WriterActive):  # version 6: no plan beside a write, or a clustering that waits
            self.table.compact(schedule=True)

    def plan_log(self) -> None:
        self.table.compact(schedule=True, log=True)

    def plan_cluster(self) -> None:
        if self.scene.index == "bucket" and not self.scene.consistent:
            return
        with suppress(WriterActive):
            self.table.cluster(schedule=True)

    def run(self) -> None:
        self.end(self.table, "run")

    def withdraw(self) -> None:
        self.end(self.table, "abandon")

    def die(self, effect: int) -> None:
        """A process begins to run a plan, and is killed at an effect."""
        mode = list(FaultMode)[effect % 3]
        with suppress(SimulatedCrash):
            self.end(self.opened(FaultStore(self.store, fail_at(effect, mode))), "run")
        self.clock.moment += timedelta(hours=1)
        self.table = self.opened(self.store)

    def end(self, table: Table, how: str) -> None:
        timeline = self.table.client.load().timeline
        for pending in timeline.pending[:1]:
            clusters = pending.time in timeline.pending_clusterings
            with suppress(CommitConflict):  # version 6: a log came on top of a log compaction, which is withdrawn
                (table.cluster if clusters else table.compact)(**{how: pending.time})

    def clean(self) -> None:
        self.table.clean(options={"hoodie.clean.commits.retained": 1})

    def archive(self) -> None:
        if self.scene.version > 6:
            self.table.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3})

    def upgrade(self) -> None:
        with suppress(WriterActive):  # version 6: a clustering waits
            self.table.upgrade(9)

    def undo(self) -> None:
        """The newest commit is rolled back, if it is a write and nothing was built on it."""
        timeline = self.table.client.load().timeline
        newest = timeline.latest_commit
        if newest is not None and newest.time in self.states and not timeline.pending:
            self.table.rollback(newest.time)
            self.rows = self.states.pop(newest.time)

    # --- the law

    def go(self, steps: Sequence[Step]) -> None:
        for name, *given_ in steps:
            if name == "plan_log" and self.scene.version == 6:
                continue
            before, newest = {**self.rows}, self.newest()
            getattr(self, name)(*given_)
            if name in WRITES and self.newest() != newest:
                self.states[self.newest()] = before
            elif name in ("clean", "archive", "run", "die", "upgrade"):
                self.states.clear()
            self.check(f"after {name}")
        for key in KEYS:  # files without it are passed over
            found = sorted(tuple(row.values()) for row in self.table.read(filter=[("id", "=", key)]).to_pylist())
            assert found == [row for row in self.expected() if row[0] == key], f"read by the key {key}"

    def newest(self) -> str | None:
        newest = self.table.client.load().timeline.latest_commit
        return None if newest is None else newest.time

    def expected(self) -> list[tuple[Any, ...]]:
        return sorted((key, place, *values) for (key, place), values in self.rows.items())

    def check(self, when: str) -> None:
        found = sorted(tuple(row.values()) for row in self.table.read().to_pylist())
        assert [row[:2] for row in found] == [row[:2] for row in self.expected()], when
        assert found == self.expected(), when


def new_log(
    layout: int, partition: PartitionPath, instant: InstantTime, sequence: int, new_uuid: Any, *, rows: int | None
) -> FileAssignment:
    """Return the assignment of a file group that begins with a log."""
    opened = assign.open_file_group(partition, FileId(f"f{new_uuid()[1:]}-0"), instant, sequence, rows, Logs(layout))
    return replace(opened, may_bring_keys=True)


def copy_out(store: MemoryStore, root: Path) -> None:
    """Copy a table to the disk, where judges can read it."""
    for found in store.list():
        path = root / found.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.read(found.name))


WRITTEN_AGAIN: list[Step] = [("upsert", "ab", "x"), ("delete", "a"), ("plan",), ("upsert", "a", "x"), ("run",)]
#: The write has looked its keys up before the compaction was planned: the key is in a log alone in the end.
IN_A_LOG_ALONE: list[Step] = [("upsert", "ab", "x"), ("delete", "a"), ("straddle", "a", "x"), ("run",)]
IN_TWO_PLACES: list[Step] = [("upsert", "a", "x"), ("upsert", "b", "y"), ("upsert", "a", "y"), ("delete", "a")]
ELSEWHERE: list[Step] = [
    ("upsert", "a", "x"),
    ("delete", "a"),
    ("upsert", "a", "y"),
    ("plan",),
    ("run",),
    ("delete", "a"),
]
LOGS_ALONE: list[Step] = [
    ("upsert_in_logs", "ab", "x"),
    ("plan",),
    ("upsert", "a", "x"),
    ("upsert", "b", "y"),
    ("run",),
]


@given(SCENES, st.lists(STEPS, min_size=4, max_size=12))
@example(Scene("bloom"), [*WRITTEN_AGAIN, ("upsert", "a", "x")])
@example(Scene("global_simple", 6, None), [*WRITTEN_AGAIN, ("delete", "a")])
@example(Scene("bloom", 9, by_metadata=True, beside=True), [*IN_A_LOG_ALONE, ("upsert", "a", "x")])
@example(Scene("simple", beside=True), [*IN_A_LOG_ALONE, ("delete", "a")])
@example(Scene("bucket", 9), IN_TWO_PLACES)
@example(Scene("bucket", consistent=True), IN_TWO_PLACES)
@example(Scene("global_bloom", moves=False), ELSEWHERE)
@example(Scene("bloom", 6, None), LOGS_ALONE)
@example(Scene("global_simple"), LOGS_ALONE)
@settings(max_examples=examples(10))
def test_a_key_is_found_wherever_it_lives(scene: Scene, steps: list[Step]) -> None:
    History(scene).go(steps)


@pytest.mark.slow
@pytest.mark.timeout(600)
@given(scene=SCENES, steps=st.lists(STEPS, min_size=8, max_size=20))
@settings(max_examples=examples(60), phases=[Phase.generate])
def test_other_readers_find_it_there_alone(scene: Scene, steps: list[Step], hudi_rs_judge: HudiRsJudge) -> None:
    history = History(scene)
    history.go(steps)
    while history.table.client.load().timeline.pending:
        history.go([("run",)])
    if any(file_slice.base is None for file_slice in history.table.file_groups()):
        history.go([("plan",), ("run",)])  # it reads no slice of logs alone
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "t"
        copy_out(history.store, root)
        rows = hudi_rs_judge.snapshot(root).select(SCHEMA.names).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == history.expected()
