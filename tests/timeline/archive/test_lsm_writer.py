"""The archive of layout 2: plans as values, files as Hudi makes them, and dying at any effect of writing and merging."""

from __future__ import annotations

import contextlib
import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.timeline.archive import HistoryStore
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.lsm_timeline import (
    HISTORY_SCHEMA,
    HistoryEntry,
    HistoryFile,
    HistoryPart,
    HistoryWriter,
    decode_manifest,
    encode_manifest,
    entry_batch,
    history_file_name,
    obsolete_names,
    plan_merge,
    plan_of,
    plan_parts,
)
from lakefmt._core.values import InstantTime
from lakefmt.errors import CorruptFile, InvalidInputError, LakefmtError, ObjectNotFound, StateError
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at
from tests.example_counts import in_turn

REAL = Path(__file__).parents[2] / "data" / "read" / "v8_mor_archived_120.zip"
FOLDER = "v8_mor_archived_120/.hoodie/timeline/history/"


def real_files() -> dict[str, bytes]:
    """The archive that Hudi 1.2.0 wrote, by file name."""
    with zipfile.ZipFile(REAL) as packed:
        names = [name for name in packed.namelist() if name.startswith(FOLDER) and not name.endswith("/")]
        return {name.removeprefix(FOLDER): packed.read(name) for name in names}


def done(number: int, size: int = 0, action: Action = Action.COMMIT) -> Instant:
    time, completion = (InstantTime(f"20260101{10 * number + more:09d}") for more in (0, 5))
    return Instant(time, action, State.COMPLETED, completion, f"{time}_{completion}.{action.value}", size)


def entry(number: int, size: int = 40) -> HistoryEntry:
    return HistoryEntry(done(number), b"%020d" % number * (size // 20), b"plan" if number % 3 == 0 else None)


def read_back(store: MemoryStore) -> dict[str, bytes]:
    history = HistoryStore(store, "h", 2).load()
    return {instant.file_name: history.body(instant) for instant in history.instants}


def wanted(count: int) -> dict[str, bytes | None]:
    return {entry(n).instant.file_name: entry(n).metadata for n in range(count)}


# ---------------------------------------------------------------------------------------------------------------- plans


def simulated(instants: list[Instant], per_file: int, fan_in: int) -> list[tuple[str, int]]:
    """The files after archiving a few at a time, each merge carried out when it is due."""
    files: list[HistoryFile] = []
    rows: dict[str, int] = {}
    for at in range(0, len(instants), per_file):
        part = instants[at : at + per_file]
        name = history_file_name(part[0].time, part[-1].time, 0)
        files, rows[name] = [*files, HistoryFile(name, 1)], len(part)
        level = 0
        while merge := plan_merge(files, level, fan_in=fan_in):
            rows[merge.target] = sum(rows[source.name] for source in merge.sources)
            files = [file for file in files if file not in merge.sources] + [HistoryFile(merge.target, 1)]
            level += 1
    return sorted((file.name, rows[file.name]) for file in files)


@given(st.integers(0, 700), st.integers(1, 4), st.integers(2, 4))
def test_the_plan_of_an_upgrade_is_what_archiving_step_by_step_leads_to(count, per_file, fan_in):
    instants = [done(n) for n in range(count)]
    parts = plan_parts(instants, per_file=per_file, fan_in=fan_in)
    assert [i for part in parts for i in part.instants] == instants
    found = sorted((part.name, len(part.instants)) for part in parts)
    assert found == simulated(instants, per_file, fan_in)


def test_a_file_that_would_be_larger_than_a_merge_makes_one_is_cut():
    instants = [done(n, size=100 * 1024 * 1024) for n in range(100)]
    parts = plan_parts(instants)
    assert [(part.name[-9:], len(part.instants)) for part in parts] == [("0.parquet", 10)] * 10
    assert [i for part in parts for i in part.instants] == instants
    assert plan_parts([done(1, size=1 << 40)]) == (
        HistoryPart("20260101000000010_20260101000000010_0.parquet", (done(1, size=1 << 40),)),
    )


def file(first: int, last: int, level: int = 0, size: int = 1) -> HistoryFile:
    return HistoryFile(f"{first}_{last}_{level}.parquet", size)


def test_merges():
    ten = [file(n, n + 5) for n in range(100, 200, 10)]
    assert plan_merge(ten[:9], 0) is None
    merge = plan_merge([*reversed(ten), file(200, 205), file(101, 199, level=1)], 0)
    assert merge is not None
    assert (merge.sources, merge.target) == (tuple(ten), "100_195_1.parquet")
    assert plan_merge(ten, 1) is None
    large = [file(n, n, size=600 * 1024 * 1024) for n in range(10, 20)]
    merge = plan_merge(large, 0)
    assert merge is not None
    assert merge.sources == tuple(large[:2])
    huge = file(100, 100, size=2_000_000_000)
    merge = plan_merge([huge, *ten[1:], file(200, 205)], 0)
    assert merge is not None
    assert merge.sources == (*ten[1:], file(200, 205))
    assert plan_merge([file(n, n, size=2_000_000_000) for n in range(10, 20)], 0) is None
    assert plan_merge([file(n, n, level=9) for n in range(10, 20)], 9) is None


def test_an_upgrade_by_hudi_names_files_in_any_order_and_they_are_merged_all_the_same():
    turned = [file(90 - n, 10 + n) for n in range(10)]
    merge = plan_merge(turned, 0)
    assert merge is not None
    assert merge.target == "10_90_1.parquet"


def test_what_readers_may_still_need_stays():
    manifests = {n: [file(n, n), file(n + 1, n + 1)] for n in range(10, 16)}
    names = {f"manifest_{n}" for n in manifests} | {f.name for files in manifests.values() for f in files}
    names |= {"_version_", "99_99_0.parquet", "readme"}
    gone = obsolete_names(names, manifests, merged_levels=1)
    assert gone == ("manifest_10", "manifest_11", "10_10_0.parquet", "11_11_0.parquet", "99_99_0.parquet")
    assert obsolete_names(names, {n: manifests[n] for n in (13, 14, 15)}) == ()


def test_plans_that_are_kept():
    for action in Action:
        kept = plan_of(action, b"requested", b"inflight")
        if action in (Action.CLEAN, Action.COMPACTION, Action.LOG_COMPACTION):
            assert kept == b"requested"
        elif action in (Action.REPLACE_COMMIT, Action.CLUSTERING):
            assert kept == b"inflight"
            assert plan_of(action, b"requested", b"") == b"requested"
        else:
            assert kept is None
        assert plan_of(action, b"", b"") is None


def test_names_that_are_none():
    for first, last, level in [("2", "1", 0), ("1", "2", 10), ("1", "2", -1)]:
        with pytest.raises(InvalidInputError):
            history_file_name(first, last, level)
    with pytest.raises(InvalidInputError, match="no name of an archived file"):
        plan_merge([HistoryFile("manifest_1", 1)], 0)


def test_pending_instants_are_not_archived():
    for wrong in (
        Instant(InstantTime("1"), Action.COMMIT, State.INFLIGHT),
        Instant(InstantTime("1"), Action.COMMIT, State.COMPLETED),
    ):
        with pytest.raises(InvalidInputError, match="not completed"):
            entry_batch([HistoryEntry(wrong, b"x")])


# ------------------------------------------------------------------------------------------------------- as Hudi has it


def test_a_manifest_is_hudis_byte_for_byte():
    files = real_files()
    for name in ("manifest_3", "manifest_4", "manifest_5"):
        assert encode_manifest(decode_manifest(files[name], name)) == files[name]


@given(st.lists(st.tuples(st.integers(0, 10**16), st.integers(0, 10**16), st.integers(0, 9), st.integers(0, 1 << 40))))
def test_a_manifest_comes_back(rows):
    files = [file(*row) for row in rows]
    assert decode_manifest(encode_manifest(files), "m") == files


def real_entries(data: bytes) -> list[HistoryEntry]:
    return [
        HistoryEntry(
            Instant(row["instantTime"], Action(row["action"]), State.COMPLETED, row["completionTime"]),
            row["metadata"],
            row["plan"],
        )
        for row in pq.read_table(io.BytesIO(data)).to_pylist()
    ]


def test_a_file_is_like_hudis():
    name, real = next((n, d) for n, d in sorted(real_files().items()) if n.endswith(".parquet"))
    store = MemoryStore()
    written = HistoryWriter(store, "h", durable=False).write(name, real_entries(real))
    ours = store.read(f"h/{name}")
    assert written == HistoryFile(name, len(ours))
    assert pq.read_table(io.BytesIO(ours)).equals(pq.read_table(io.BytesIO(real)))
    left, right = (pq.ParquetFile(io.BytesIO(data)) for data in (ours, real))
    assert left.schema_arrow.equals(HISTORY_SCHEMA)
    assert left.metadata.metadata == right.metadata.metadata
    assert left.metadata.format_version == right.metadata.format_version
    for number in range(left.metadata.num_columns):
        one, other = (f.metadata.row_group(0).column(number) for f in (left, right))
        assert left.schema.column(number).physical_type == right.schema.column(number).physical_type
        assert left.schema.column(number).logical_type.type == right.schema.column(number).logical_type.type
        assert left.schema.column(number).max_definition_level == right.schema.column(number).max_definition_level
        assert (one.path_in_schema, one.compression) == (other.path_in_schema, other.compression)
        minmax = [
            (s.min, s.max) if s is not None and s.has_min_max else None for s in (one.statistics, other.statistics)
        ]
        assert minmax[0] == minmax[1], one.path_in_schema


# -------------------------------------------------------------------------------------------------------------- effects


def archived(store: MemoryStore, count: int, batch: int = 10) -> HistoryWriter:
    writer = HistoryWriter(store, "h", durable=False)
    for at in range(0, count, batch):
        writer.append([entry(n) for n in range(at, min(at + batch, count))])
        writer.merge()
    return writer


@pytest.mark.parametrize("count", [1, 95, 100, 234])
def test_archiving_and_merging_keeps_every_instant_in_few_files(count):
    store = MemoryStore()
    number, files = archived(store, count).load()
    assert read_back(store) == wanted(count)
    parts = plan_parts([entry(n).instant for n in range(count)])
    assert {f.name for f in files} == {part.name for part in parts}
    assert number >= -(-count // 10)
    left = [o.name for o in store.list("h")]
    assert len([n for n in left if "manifest_" in n]) <= 13
    assert {f.name for f in files} <= {n.removeprefix("h/") for n in left}


def test_the_plan_comes_back_too():
    store = MemoryStore()
    archived(store, 30)
    rows = [
        row
        for o in store.list("h")
        if o.name.endswith(".parquet")
        for row in pq.read_table(io.BytesIO(store.read(o.name))).to_pylist()
    ]
    assert {row["instantTime"]: row["plan"] for row in rows} == {
        entry(n).instant.time: entry(n).plan for n in range(30)
    }


def test_archiving_the_same_again_changes_nothing():
    store = MemoryStore()
    writer = archived(store, 20)
    before = {o.name: store.read(o.name) for o in store.list("h")}
    writer.append([entry(n) for n in range(10)])
    assert {o.name: store.read(o.name) for o in store.list("h")} == before


def test_other_instants_of_the_same_range_are_not_taken_for_archived():
    store = MemoryStore()
    writer = HistoryWriter(store, "h", durable=False)
    writer.append([entry(1), entry(3)])
    with pytest.raises(StateError, match="holds 2 instants, and not 3"):
        writer.append([entry(1), entry(2), entry(3)])


def test_a_large_file_is_written_and_merged_in_pieces():
    store = MemoryStore()
    writer = HistoryWriter(store, "h", durable=False)
    size = 1_000_000
    files = []
    for at in range(0, 40, 4):
        part = plan_parts([entry(n).instant for n in range(at, at + 4)])[0]
        files.append(writer.write(part.name, (entry(n, size) for n in range(at, at + 4))))
    big = writer.write("20260101000001000_20260101000001300_0.parquet", (entry(n, size) for n in range(100, 131)))
    groups = pq.ParquetFile(io.BytesIO(store.read(f"h/{big.name}"))).metadata
    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [9, 9, 9, 4]
    writer.publish(1, [*files, big])
    (merge,) = writer.merge()
    merged = pq.ParquetFile(io.BytesIO(store.read(f"h/{merge.target}")))
    assert (merged.metadata.num_row_groups, merged.metadata.num_rows) == (10, 40)
    assert len(read_back(store)) == 71


def test_a_merged_file_that_counts_is_not_written_over():
    store = MemoryStore()
    writer = HistoryWriter(store, "h", durable=False)
    files = [writer.write(f"{n}_{n}_0.parquet", [entry(n)]) for n in range(10, 20)]
    first = writer.write("10_19_1.parquet", [entry(1)])
    writer.publish(1, [*files, first])
    with pytest.raises(StateError, match="written over"):
        writer.merge()
    assert writer.load() == (1, [*files, first])


def test_a_damaged_source_stops_a_merge_and_nothing_is_lost():
    store = MemoryStore()
    writer = HistoryWriter(store, "h", durable=False)
    for at in range(10):
        writer.append([entry(at)])
    victim = writer.load()[1][4]
    store.put(f"h/{victim.name}", b"PAR1 no more")
    before = writer.load()
    with pytest.raises(CorruptFile):
        writer.merge()
    assert writer.load() == before


def test_the_manifests_of_readers_on_their_way_stay_readable_after_a_merge():
    store = MemoryStore()
    archived(store, 100)
    kept = [o.name for o in store.list("h") if "manifest_" in o.name]
    assert len(kept) == 4
    for name in kept:
        for named in decode_manifest(store.read(name), name):
            assert store.info(f"h/{named.name}") is not None


ENDINGS = [
    *((mode, False) for mode in FaultMode),
    *((mode, True) for mode in FaultMode if mode not in (FaultMode.ANSWER_LOST, FaultMode.REQUEST_LOST)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "crash"), ENDINGS, ids=[f"{m.value}-{'dies' if c else 'error'}" for m, c in ENDINGS])
def test_dying_anywhere_loses_nothing(mode, crash):
    def prepared() -> MemoryStore:
        store = MemoryStore()
        for at in range(9):
            HistoryWriter(store, "h", durable=False).append([entry(2 * at), entry(2 * at + 1)])
        return store

    def run(store) -> None:  # type: ignore[no-untyped-def]
        writer = HistoryWriter(store, "h", durable=False)
        writer.append([entry(18), entry(19)])
        writer.merge()

    counted = FaultStore(prepared())
    run(counted)
    assert len(counted.effects) > 8
    for number in in_turn(range(1, len(counted.effects) + 1), 2):
        inner = prepared()
        store = FaultStore(inner, fail_at(number, mode, crash=crash))
        with contextlib.suppress(LakefmtError, SimulatedCrash):
            run(store)
        story = f"effect {number} ({store.effects[number - 1]})"
        assert read_back(inner).items() >= wanted(18).items(), story
        run(inner)
        assert read_back(inner) == wanted(20), story


def test_a_writer_that_finds_no_manifest_says_so():
    store = MemoryStore()
    store.put("h/_version_", b"7")
    with pytest.raises(ObjectNotFound):
        HistoryWriter(store, "h", durable=False).append([entry(1)])


def test_an_empty_sink_error_is_typed(monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_batch", fail)
    store = MemoryStore()
    with pytest.raises(LakefmtError, match="No space left"):
        HistoryWriter(store, "h", durable=False).append([entry(1)])
    assert not list(store.list("h"))


def test_the_schema_is_the_one_of_the_specification():
    assert [f.name for f in HISTORY_SCHEMA] == [
        "instantTime",
        "completionTime",
        "action",
        "metadata",
        "plan",
        "version",
    ]
    assert HISTORY_SCHEMA.field("version").type == pa.int32()
