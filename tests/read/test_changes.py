"""What a range of changes has in it, where it ends, what it costs to come too late; change files come and go with slices."""

from __future__ import annotations

import contextlib
import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.memory import MemoryStore
from lakefmt.errors import CorruptFile, InvalidInputError, SnapshotExpired, UnsupportedFeature
from lakefmt.testing.invariants import check_no_orphans
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at
from tests.compat.fixture_tables import real_tables
from tests.read.pulling import Pulled

NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {"lakefmt.durability": "none", "hoodie.clean.automatic": False}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("city", pa.string()),
        pa.field("ts", pa.int64(), nullable=False),
        pa.field("deep", pa.struct([pa.field("xs", pa.list_(pa.int32())), pa.field("n", pa.int64())])),
    ]
)
MODES = ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER")


def rows(*ids: str, ts: int = 1, city: str = "sf") -> pa.Table:
    found = [{"id": one, "city": city, "ts": ts, "deep": {"xs": [ts, 7], "n": ts} if ts % 2 else None} for one in ids]
    return pa.Table.from_pylist(found, schema=SCHEMA)


def make(mode: str | None = None, **how: Any) -> lakefmt.Table:
    told = {"hoodie.table.cdc.enabled": "true", "hoodie.table.cdc.supplemental.logging.mode": mode} if mode else {}
    url = how.pop("url", f"memory://test-changes-{next(NUMBERS)}")
    how = {"ordering": "ts", "partition_by": "city", **how}
    return lakefmt.create_table(url, schema=SCHEMA, record_key="id", properties=told, options=OPTIONS, **how)


def short(changes: pa.Table) -> list[tuple[str, str, int]]:
    return [
        (row["op"], (row["after"] or row["before"])["id"], (row["after"] or row["before"])["ts"])
        for row in changes.to_pylist()
    ]


def change_files(table: lakefmt.Table) -> list[str]:
    return sorted(item.name for item in table.client.store.list() if item.name.endswith(".cdc"))


# ------------------------------------------------------------------------------------------------------ what is in it


@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_every_operation_of_every_mode(version: int, mode: str | None) -> None:
    table = make(mode, table_version=version)
    table.upsert(rows("a", "b", "c"))
    table.upsert(rows("b", "d", ts=2))
    table.upsert(rows("b", ts=1))  # late as a whole: no change, and the file is rewritten all the same
    table.delete(["a"])
    found = table.changes("000")
    assert found.schema.names == ["op", "ts_ms", "before", "after"]
    assert found.schema.field("after").type == pa.struct(list(SCHEMA))
    inserts = [("i", "a", 1), ("i", "b", 1), ("i", "c", 1)]
    assert short(found) == [*inserts, ("u", "b", 2), ("i", "d", 2), ("d", "a", 1)]
    update = found.to_pylist()[3]
    assert update["before"] == {"id": "b", "city": "sf", "ts": 1, "deep": {"xs": [1, 7], "n": 1}}
    assert update["after"] == {"id": "b", "city": "sf", "ts": 2, "deep": None}
    assert [len(name) > 0 for name in change_files(table)] == [True] * (3 if mode else 0)
    assert set(found["ts_ms"].to_pylist()) <= {entry.time for entry in table.timeline.entries}


def test_a_range_is_half_open_and_goes_on() -> None:
    table = make("DATA_BEFORE_AFTER")
    first, second, third = (table.upsert(rows("a", ts=ts)) for ts in (1, 2, 3))
    assert short(table.changes(first.completion_time, second.completion_time)) == [("u", "a", 2)]
    assert short(table.changes("000", second.completion_time)) == [("i", "a", 1), ("u", "a", 2)]
    nothing = table.changes(third.completion_time)
    assert nothing.num_rows == 0
    assert nothing.schema.metadata[b"lakefmt.next_start"].decode() == third.completion_time


@pytest.mark.parametrize("mode", [None, "OP_KEY_ONLY"])
def test_columns_and_a_filter_on_either_image(mode: str | None) -> None:
    table = make(mode)
    table.upsert(rows("a", "b"))
    table.upsert(rows("a", ts=2))
    table.upsert(rows("c", ts=2, city="oslo"))
    found = table.changes("000", columns=["ts"], filter="ts = 1 and id = 'a'")
    images = [(row["op"], row["before"], row["after"]) for row in found.to_pylist()]
    assert images == [("i", None, {"ts": 1}), ("u", {"ts": 1}, {"ts": 2})]
    assert short(table.changes("000", filter=[("city", "=", "oslo")])) == [("i", "c", 2)]
    with pytest.raises(InvalidInputError, match="no column 'x'"):
        table.changes("000", columns=["x"])
    with pytest.raises(InvalidInputError, match="columns="):
        table.changes("000", columns=[])


@pytest.mark.parametrize("mode", [None, "DATA_BEFORE_AFTER"])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_compaction_changes_nothing(version: int, mode: str | None) -> None:
    table = make(mode, table_type="mor", table_version=version)
    table.upsert(rows("a", "b"))
    before = table.upsert(rows("a", ts=2))
    compacted = table.compact()
    assert compacted.instant is not None
    table.delete(["b"])
    assert short(table.changes("000")) == [("i", "a", 1), ("i", "b", 1), ("u", "a", 2), ("d", "b", 1)]
    start = before.completion_time if version > 6 else before.instant
    assert short(table.changes(str(start))) == [("d", "b", 1)]
    # Hudi's compactions write change files, and so do ours; nobody reads them.
    assert len(change_files(table)) == (1 if mode else 0)


def test_a_log_names_the_slice_below_it() -> None:
    table = make("DATA_BEFORE", table_type="mor")
    table.upsert(rows("a"))
    results = [table.upsert(rows("a", ts=2)), table.upsert(rows("a", ts=3))]
    first, second = (result.files[0] for result in results)
    (base,) = (group.base for group in table.file_groups())
    assert base is not None
    assert (second.base_file, second.prev_commit) == (base.name, base.instant)
    assert second.log_files == (first.file_name, second.file_name)


def test_a_key_that_moves_is_deleted_there_and_inserted_here() -> None:
    table = make("DATA_BEFORE_AFTER", index="global_bloom")
    table.upsert(pa.concat_tables([rows("a"), rows("z", city="oslo")]))
    start = table.upsert(rows("a", ts=2, city="oslo")).completion_time
    table.upsert(rows("a", ts=3))
    moves = [("d", "a", 1), ("i", "a", 2), ("d", "a", 2), ("i", "a", 3)]
    assert short(table.changes("000"))[2:] == moves
    assert short(table.changes(str(start))) == moves[2:]


def test_archived_commits_count() -> None:
    table = make("DATA_BEFORE_AFTER", table_version=8)
    for ts in range(1, 7):
        table.upsert(rows("a", ts=ts))
    everything = short(table.changes("000"))
    table.archive(options={"hoodie.keep.min.commits": 1, "hoodie.keep.max.commits": 2})
    assert len(table.timeline.entries) < 6
    assert short(table.changes("000")) == everything


def test_an_upgraded_table_tells_the_same() -> None:
    table = make("OP_KEY_ONLY", table_version=6)
    table.upsert(rows("a", "b"))
    table.upsert(rows("a", ts=2))
    before = table.changes("000").to_pylist()
    for version in (8, 9):
        table.upgrade(version)
        assert table.changes("000").to_pylist() == before
    table.upsert(rows("b", ts=2))
    assert short(table.changes("000"))[-1] == ("u", "b", 2)


# --------------------------------------------------------------------------------------------- files come, files go


@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_range_that_was_cleaned_away_says_so(kind: str, mode: str | None) -> None:
    table = make(mode, table_type=kind)
    results = []
    for ts in range(1, 7):
        results.append(table.upsert(rows("a", ts=ts)))
        if kind == "mor" and ts % 2 == 0:
            table.compact()
    cleaned = table.clean(options={"hoodie.clean.commits.retained": 2})
    assert cleaned.plan.num_files
    oldest = cleaned.plan.floor
    with pytest.raises(SnapshotExpired, match=f"commits from {oldest} on"):
        table.changes("000")
    assert short(table.changes(str(results[-2].completion_time))) == [("u", "a", 6)]


@pytest.mark.parametrize("ending", [".parquet", ".log.1_0-0-0"])
def test_a_clean_that_died_halfway_leaves_no_smaller_state(ending: str) -> None:
    table = make(table_type="mor")
    start = table.upsert(rows("a", "b")).completion_time
    table.upsert(rows("a", ts=2))
    table.upsert(rows("b", ts=2))
    table.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
    table.upsert(rows("a", ts=3))
    assert short(table.changes(str(start))) == [("u", "a", 2), ("u", "b", 2), ("u", "a", 3)]
    plan = table.clean(options={"hoodie.clean.commits.retained": 1}, schedule=True).plan
    doomed = sorted(name for name in plan.paths if name.endswith(ending))
    table.client.store.delete(doomed[:1])
    with pytest.raises(SnapshotExpired, match="is gone"):
        table.changes(str(start))


def test_change_files_go_with_their_slices() -> None:
    table = make("DATA_BEFORE_AFTER")
    for ts in range(1, 6):
        table.upsert(rows("a", ts=ts))
    assert len(change_files(table)) == 4
    plan = table.clean(options={"hoodie.clean.commits.retained": 1}).plan
    assert any(name.endswith(".cdc") for name in plan.paths)
    assert 0 < len(change_files(table)) < 4
    instants = {f"{name.split('_')[-1].split('.')[0]}" for name in _bases(table)}
    assert all(name.rsplit("/", 1)[-1].split("_")[1].split(".")[0] in instants for name in change_files(table))


def _bases(table: lakefmt.Table) -> list[str]:
    return [item.name for item in table.client.store.list() if item.name.endswith(".parquet")]


def test_a_rollback_takes_change_files_along() -> None:
    table = make("DATA_BEFORE_AFTER")
    table.upsert(rows("a"))
    last = table.upsert(rows("a", ts=2))
    assert len(change_files(table)) == 1
    table.rollback(str(last.instant))
    assert change_files(table) == []
    assert short(table.changes("000")) == [("i", "a", 1)]


def test_a_second_attempt_takes_over_and_a_lost_one_is_swept() -> None:
    table = make("DATA_BEFORE_AFTER")
    table.upsert(rows("a", "b"))
    context = lowlevel.begin_write(table, "upsert")
    ((assignment, batches),) = lowlevel.assign(context, rows("a", ts=2))
    first = lowlevel.write_files(context, assignment, batches)
    again = lowlevel.write_files(context, assignment, batches)
    assert again.adopted
    assert again.stat == first.stat
    assert again.stat.extra["cdcStats"] == {name: table.client.store.info(name).size for name in change_files(table)}
    # The base file of a first attempt never appeared: its change file is taken over as it is.
    table.client.store.delete([assignment.path])
    third = lowlevel.write_files(context, assignment, batches)
    assert third.stat.extra == first.stat.extra
    # An announced change file that the commit does not name goes.
    stray = change_files(table)[0].replace(".log.1_", ".log.1_9")
    table.client.store.put(f".hoodie/.temp/{context.instant}/{stray}.marker.CREATE", b"")
    table.client.store.put(stray, b"x")
    lowlevel.commit(context, [first, third])
    assert len(change_files(table)) == 1
    check_no_orphans(table)
    assert short(table.changes("000"))[-1] == ("u", "a", 2)


def test_somebody_elses_change_file_is_not_taken_over() -> None:
    table = make("DATA_BEFORE_AFTER")
    table.upsert(rows("a", "b"))
    context = lowlevel.begin_write(table, "upsert")
    ((assignment, batches),) = lowlevel.assign(context, rows("a", ts=2))
    lowlevel.write_files(context, assignment, batches)
    (name,) = change_files(table)
    data = bytes(table.client.store.read(name, 1 << 20))
    table.client.store.delete([assignment.path])
    for other in (data.replace(context.instant.encode(), b"20200101000000000"), data + data):
        table.client.store.put(name, other)
        with pytest.raises(CorruptFile, match="not written by"):
            lowlevel.write_files(context, assignment, batches)


@pytest.mark.slow
@pytest.mark.parametrize("abandon", [False, True])
def test_a_compaction_that_dies_anywhere_leaves_no_change_file_behind(abandon: bool) -> None:
    made = make("DATA_BEFORE_AFTER", table_type="mor")
    made.upsert(rows("a", "b"))
    made.upsert(rows("a", ts=2))
    expected, due = made.changes("000").to_pylist(), {"hoodie.compact.inline.max.delta.commits": 1}
    dead = {**OPTIONS, "hoodie.client.heartbeat.tolerable.misses": 0, "lakefmt.write.threads": 1}
    number = effects = 1
    while number <= effects:
        store = MemoryStore(f"test-changes-{next(NUMBERS)}")
        for item in made.client.store.list():
            store.put(item.name, made.client.store.read(item.name))
        faulty = FaultStore(store, fail_at(number, FaultMode.AFTER, crash=True))
        with contextlib.suppress(SimulatedCrash):
            lakefmt._core.table.Table(TableClient(faulty, dead)).compact(options=due)
        effects = max(effects, len(faulty.effects) + (number == len(faulty.effects)))
        healthy = lakefmt._core.table.Table(TableClient(store, dead))
        pending = [i.time for i in healthy.client.load().timeline.pending] if abandon else []
        if pending:
            healthy.compact(abandon=pending[0])
            assert change_files(healthy) == []
        healthy.compact(options=due)
        healthy.upsert(rows("b", ts=2))
        assert healthy.changes("000").to_pylist()[:-1] == expected
        check_no_orphans(healthy)
        assert len(change_files(healthy)) == 1
        number += 1
    assert number > 8


# ------------------------------------------------------------------------------------------------------------ refusals


def test_damage_is_an_error_and_never_fewer_changes() -> None:
    table = make("DATA_BEFORE_AFTER")
    table.upsert(rows("a"))
    table.upsert(rows("a", ts=2))
    (name,) = change_files(table)
    data = bytes(table.client.store.read(name, 1 << 20))
    for bad in (b"", data[:-1], data + b"rest", b"x" + data[1:]):
        table.client.store.put(name, bad)
        if bad == b"":
            continue  # no block says that nothing changed
        with pytest.raises(CorruptFile):
            table.changes("000")
    table.client.store.delete([name])
    with pytest.raises(SnapshotExpired, match="is gone"):
        table.changes("000")


def test_unknown_modes_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="expected one of OP_KEY_ONLY"):
        make("EVERYTHING")
    assert make("op_key_only").properties.properties["hoodie.table.cdc.supplemental.logging.mode"] == "OP_KEY_ONLY"
    assert make(None).properties.properties["hoodie.table.cdc.enabled"] == "false"


# --------------------------------------------------------------------------------------------- what Spark has written


def golden() -> Any:
    return next(table for table in real_tables() if table.name == "v9_cow_cdc_120")


def as_texts(changes: pa.Table) -> list[tuple[str, str, str, str]]:
    found = []
    for row in changes.to_pylist():
        images = [json.loads(image) if isinstance(image, str) else image for image in (row["before"], row["after"])]
        bare = [image and {k: v for k, v in image.items() if not k.startswith("_hoodie_")} for image in images]
        found.append((row["op"], row["ts_ms"], *(json.dumps(image, sort_keys=True) for image in bare)))
    return sorted(found)


def test_a_table_of_spark_tells_what_spark_recorded(tmp_path: Path) -> None:
    real = golden()
    table = lakefmt.open_table(str(real.unpack(tmp_path)))
    asked = [query for query in real.queries() if query["query"] == "cdc"]
    assert len(asked) == 3
    for query in asked:
        ours = table.changes(query["begin"])
        theirs = real.answer(query)
        assert as_texts(ours) == as_texts(theirs)
        wrong = ours.set_column(0, "op", pa.array(["u"] * ours.num_rows))
        assert as_texts(wrong) != as_texts(theirs), "the comparison can say no"


def test_a_table_of_spark_is_written_on(tmp_path: Path) -> None:
    table = lakefmt.open_table(
        str(golden().unpack(tmp_path)), options={"hoodie.metadata.enable": "false", "lakefmt.durability": "none"}
    )
    before = table.changes("000").num_rows
    table.upsert(pa.table({"id": ["k09", "k10"], "part": ["p1", "p0"], "ts": [4, 4], "val": ["x", "y"], "num": [1, 2]}))
    table.delete(["k09"])
    added = table.changes("000").slice(before).to_pylist()
    assert [(row["op"], (row["before"] or {}).get("val")) for row in added] == [("u", "only"), ("i", None), ("d", "x")]
    pulled = Pulled()
    pulled.apply(table.changes("000"))
    pulled.check(table.read(), "Spark's changes and ours")
