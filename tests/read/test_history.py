"""The archived timeline: the past stays readable after its instants have left the active timeline."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import MemoryStore, open_store
from lakefmt._core.table import Table, open_table
from lakefmt._core.timeline.archive import HistoryStore
from lakefmt._core.timeline.commit import decode_commit
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant, State
from lakefmt._core.values import InstantTime, WriteOperation, WriteStat
from lakefmt.errors import CorruptFile, InstantNotFound, LakefmtError, ObjectNotFound, SnapshotExpired
from lakefmt.testing.stores import CountingStore
from tests.compat.fixture_tables import real_tables
from tests.judges.compare import assert_same_multiset
from tests.read.archiving import archive, archive_sorted, completed_files, entry, pack_entries, real_entry_schema
from tests.read.blocks import pack_block

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
VERSIONS = (6, 8, 9)


def rows(first: int, last: int, n: int) -> pa.Table:
    ids = range(first, last)
    return pa.table(
        {"id": [f"k{i}" for i in ids], "city": [f"c{i % 2}" for i in ids], "n": [n] * len(ids)}, schema=SCHEMA
    )


@dataclass
class Past:
    """A table, and what was read of it while its timeline was whole."""

    root: Path
    as_of: dict[str, pa.Table] = field(default_factory=dict)
    increments: dict[tuple[str, str], pa.Table] = field(default_factory=dict)

    def open(self) -> Table:
        return open_table(str(self.root))


def make_past(root: Path, version: int) -> Past:
    """Six commits: inserts, updates, a delete, a new column, an overwritten partition."""
    table = lakefmt.create_table(
        str(root), schema=SCHEMA, record_key="id", partition_by="city", table_version=version, ordering="n"
    )
    past = Past(root)
    wider = [
        rows(*span).append_column("extra", pa.array(["x"] * (span[1] - span[0]))) for span in ((2, 6, 5), (6, 12, 6))
    ]
    steps = [
        lambda: table.insert(rows(0, 8, 1)),
        lambda: table.upsert(rows(4, 10, 2)),
        lambda: table.delete(["k1", "k2"]),
        lambda: table.upsert(wider[0]),
        lambda: table.upsert(wider[1]),
        # Last, because an overwrite may not be archived before what it replaced was cleaned.
        lambda: table.insert_overwrite(wider[0].slice(0, 1)),
    ]
    ends = ["000"]
    for step in steps:
        result = step()
        read = table.read(meta_columns=True)
        for time in {result.instant, result.completion_time or result.instant}:
            past.as_of[time] = read
        ends.append(result.instant if version == 6 else result.completion_time)
    for start in ends:
        for end in ends:
            if start < end:
                past.increments[start, end] = table.incremental(start, end, meta_columns=True)
    return past


@pytest.fixture(scope="module")
def pasts(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Past]:
    return {version: make_past(tmp_path_factory.mktemp("past") / f"v{version}", version) for version in VERSIONS}


@pytest.fixture
def past(pasts: dict[int, Past], tmp_path: Path, request: pytest.FixtureRequest) -> Past:
    made = pasts[request.param]
    shutil.copytree(made.root, tmp_path / "t")
    return Past(tmp_path / "t", made.as_of, made.increments)


every_version = pytest.mark.parametrize("past", VERSIONS, indirect=True)
sorted_only = pytest.mark.parametrize("past", [8, 9], indirect=True)


def archive_of(past: Past) -> list[Path]:
    return [path for name in ("archived", "history") for path in past.root.rglob(f".hoodie/**/{name}/*")]


@every_version
@pytest.mark.parametrize("count", [1, 3, 5])
def test_every_instant_and_every_range_reads_as_before(past: Past, count: int) -> None:
    archive(past.root, count - 1)
    archive(past.root, 1)
    table = past.open()
    assert len(table.client.load().timeline) == 6 - count
    for time, expected in past.as_of.items():
        assert_same_multiset(table.read(as_of=time, meta_columns=True), expected, what=f"as of {time}")
    for (start, end), expected in past.increments.items():
        found = table.incremental(start, end, meta_columns=True)
        assert_same_multiset(found, expected, what=f"increment {start}..{end}")
        assert found.schema.metadata == expected.schema.metadata


def without_news(stat: WriteStat) -> WriteStat:
    return replace(stat, prev_base_file=None, extra={key: value for key, value in stat.extra.items() if key in OLD})


OLD = {"minEventTime", "maxEventTime"}


@every_version
def test_the_archive_gives_back_what_was_archived(past: Past) -> None:
    before = past.open().client.load().timeline.completed
    bodies = [path.read_bytes() for path in completed_files(past.root)]
    archive(past.root, 4)
    state = past.open().client
    history = HistoryStore(
        state.store, state.load_config().history_directory, state.load_config().version.layout
    ).load()
    assert [(i.time, i.action, i.completion) for i in history.instants] == [
        (i.time, i.action, i.completion) for i in before[:4]
    ]
    for instant, body in zip(history.instants, bodies[:4], strict=True):
        assert history.holds(instant)
        found, expected = decode_commit(history.body(instant), "archived"), decode_commit(body, "active")
        if instant.completion is None:
            # The archive of layout 1 has the fields of its time: no maker, no name of the file before.
            expected = replace(expected, compacted=None, stats=tuple(without_news(s) for s in expected.stats))
        assert found == expected
    with pytest.raises(InstantNotFound, match=before[5].time):
        history.body(before[5])


@every_version
def test_the_newest_snapshot_never_looks_at_the_archive(past: Past) -> None:
    archive(past.root, 4)
    for path in archive_of(past):
        path.write_bytes(b"not to be read")
    store = CountingStore(open_store(str(past.root)))
    table = Table(TableClient(store))
    newest = max(past.as_of)
    assert_same_multiset(table.read(meta_columns=True), past.as_of[newest])
    assert table.read(as_of=newest).num_rows == past.as_of[newest].num_rows
    assert table.incremental(newest).num_rows == 0
    assert not [one for one in store.log if "/archived" in one.name or "/history" in one.name]


@every_version
def test_an_instant_is_found_by_either_time_once_the_archive_is_known(past: Past) -> None:
    times = sorted(past.as_of)
    archive(past.root, 5)
    client = past.open().client
    state = client.load()
    with pytest.raises(InstantNotFound, match="active timeline"):
        state.timeline.find(times[0])
    known = client.at(state).with_history().state
    assert client.at(known).with_history().state is known
    assert {known.timeline.find(time).state for time in times} == {State.COMPLETED}
    with pytest.raises(InstantNotFound, match="on the timeline"):
        known.timeline.find("20000101000000000")


@every_version
def test_without_its_archive_the_past_is_an_error_and_no_guess(past: Past) -> None:
    oldest, *_, newest = sorted(past.as_of)
    archive(past.root, 4)
    for path in archive_of(past):
        path.unlink()
    table = past.open()
    with pytest.raises(InstantNotFound, match="reaches back to"):
        table.read(as_of=oldest)
    assert_same_multiset(table.read(as_of=newest, meta_columns=True), past.as_of[newest])


@every_version
def test_before_its_first_commit_a_table_is_empty(past: Past) -> None:
    archive(past.root, 3)
    found = past.open().read(as_of="20000101000000000")
    assert (found.num_rows, found.column_names) == (0, SCHEMA.names)


@sorted_only
def test_where_no_version_is_named_the_newest_manifest_counts(past: Past) -> None:
    archive(past.root, 2)
    archive(past.root, 2)
    version = past.root / ".hoodie/timeline/history/_version_"
    for change in (version.unlink, lambda: version.write_text("x")):
        change()
        client = past.open().client
        assert len(client.at(client.load()).with_history().timeline.archived) == 4


@sorted_only
def test_an_archive_that_is_merged_meanwhile_is_read_again(past: Past) -> None:
    archive(past.root, 2)
    client = past.open().client
    history = client.at(client.load()).with_history().history
    assert history is not None
    (old,) = past.root.rglob("history/*_0.parquet")
    merged = old.with_name(old.name.replace("_0.parquet", "_1.parquet"))
    shutil.move(old, merged)
    manifest = {"files": [{"fileName": merged.name, "fileLen": merged.stat().st_size}]}
    (merged.parent / "manifest_2").write_text(json.dumps(manifest))
    (merged.parent / "_version_").write_text("2")
    with pytest.raises(ObjectNotFound, match="merged meanwhile"):
        history.body(history.instants[0])
    again = client.at(client.load()).with_history().history
    assert again is not None
    assert again.instants == history.instants
    assert again.body(again.instants[0])


@every_version
def test_a_commit_that_is_archived_while_it_is_needed_is_found(past: Past) -> None:
    client = past.open().client
    state = client.load()
    first = state.timeline.commits[0]
    archive(past.root, 2)
    assert client.at(state).commit_metadata(first).operation is WriteOperation.INSERT
    for path in archive_of(past):
        path.unlink()
    with pytest.raises(SnapshotExpired, match="undone"):
        client.at(state).commit_metadata(state.timeline.commits[1])


# --- real archives ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "layout", "directory", "actions"),
    [
        ("v6_cow_archived_0150", 1, ".hoodie/archived", {"commit": 9, "clean": 6}),
        ("v8_mor_archived_120", 2, ".hoodie/timeline/history", {"deltacommit": 13, "commit": 4, "clean": 5}),
    ],
)
def test_real_archives(name: str, layout: int, directory: str, actions: dict[str, int], tmp_path: Path) -> None:
    real = next(table for table in real_tables() if table.name == name)
    history = HistoryStore(open_store(str(real.unpack(tmp_path))), directory, layout).load()
    counted = {action: sum(i.action.value == action for i in history.instants) for action in actions}
    assert counted == actions
    assert len(history.instants) == sum(actions.values())
    assert all((i.completion is not None) == (layout == 2) for i in history.instants)
    commits = [decode_commit(history.body(i), str(i)) for i in history.instants if i.action in COMMIT_ACTIONS]
    assert sum(commit.num_inserts for commit in commits) == 8
    assert {commit.operation for commit in commits} <= {WriteOperation.UPSERT, WriteOperation.COMPACT}
    assert all(commit.schema_text and commit.stats for commit in commits)


# --- hostile ------------------------------------------------------------------------------------------------------


def history_of(files: dict[str, bytes], layout: int) -> HistoryStore:
    store = MemoryStore()
    for name, data in files.items():
        store.put(f"h/{name}", data)
    return HistoryStore(store, "h", layout)


def test_no_archive_is_an_empty_one() -> None:
    for layout in (1, 2):
        assert history_of({}, layout).load().instants == ()


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"{",
        b"[]",
        b'{"files": 1}',
        b'{"files": [{}]}',
        b'{"files": [{"fileName": "../x.parquet", "fileLen": 1}]}',
        b'{"files": [{"fileName": "/1_2_0.parquet", "fileLen": 1}]}',
        b'{"files": [{"fileName": "1_2_0.parquet", "fileLen": -1}]}',
        b'{"files": [{"fileName": "1_2_0.parquet", "fileLen": "1"}]}',
        b'{"files": [{"fileName": 3, "fileLen": 1}]}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_damaged_manifest_is_named(manifest: bytes) -> None:
    with pytest.raises(CorruptFile, match="h/manifest_1"):
        history_of({"_version_": b"1", "manifest_1": manifest}, 2).load()


def test_a_manifest_that_names_what_is_not_there_is_told() -> None:
    for files in ({"_version_": b"7"}, {"manifest_7": b'{"files": [{"fileName": "1_2_0.parquet", "fileLen": 9}]}'}):
        with pytest.raises(ObjectNotFound):
            history_of(files, 2).load()


def test_sizes_are_checked_before_anything_is_read() -> None:
    manifest = b'{"files": [{"fileName": "1_2_0.parquet", "fileLen": 99999999999}]}'
    with pytest.raises(CorruptFile, match="99,999,999,999 bytes"):
        history_of({"_version_": b"1", "manifest_1": manifest}, 2).load()


def one_of_each(tmp: Path) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """A small archive of each layout, as names and bytes."""
    timeline = tmp / ".hoodie" / "timeline"
    timeline.mkdir(parents=True)
    file = timeline / "20260101000000000_20260101000000500.commit"
    file.write_bytes(b"Obj\x01 no matter")
    packed = archive_sorted(tmp, [file])
    of_two = {path.name: path.read_bytes() for path in packed.parent.iterdir()}
    body = {"partitionToWriteStats": {}, "extraMetadata": {"schema": "{}"}, "operationType": "UPSERT"}
    entries = [entry("20260101000000000", "commit", "COMPLETED", body)]
    return {".commits_.archive.1_1-0-1": pack_entries(entries, real_entry_schema())}, of_two


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], dict[str, bytes]]:
    return one_of_each(tmp_path_factory.mktemp("small"))


def use(files: dict[str, bytes], layout: int) -> list[bytes]:
    history = history_of(files, layout).load()
    return [history.body(instant) for instant in history.instants]


def test_the_small_archives_are_sound(small: tuple[dict[str, bytes], dict[str, bytes]]) -> None:
    (logged,), (sorted_body,) = use(small[0], 1), use(small[1], 2)
    assert decode_commit(logged, "x").schema_text == "{}"
    assert sorted_body == b"Obj\x01 no matter"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_a_typed_error(small: tuple[dict[str, bytes], dict[str, bytes]], data: st.DataObject) -> None:
    layout = data.draw(st.sampled_from([1, 2]))
    files = dict(small[layout - 1])
    name = data.draw(st.sampled_from(sorted(files)))
    raw = bytearray(files[name])
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    files[name] = bytes(raw[: data.draw(st.integers(0, len(raw)))]) if data.draw(st.booleans()) else bytes(raw)
    try:
        found = use(files, layout)
    except LakefmtError:
        return
    assert len(found) <= 1


@pytest.mark.parametrize("cut", [1, 5, 20, 400])
def test_a_truncated_archive_is_named_with_the_place(
    small: tuple[dict[str, bytes], dict[str, bytes]], cut: int
) -> None:
    ((name, raw),) = small[0].items()
    with pytest.raises(CorruptFile, match=r"commits_\.archive\.1_1-0-1 is damaged between bytes 0 and"):
        use({name: raw[:-cut]}, 1)


def test_other_blocks_do_not_belong_into_an_archive() -> None:
    with pytest.raises(CorruptFile, match="damaged between"):
        use({".commits_.archive.1_1-0-1": pack_block(0, {0: "20260101000000000"})}, 1)


def test_other_files_in_the_folder_are_ignored(small: tuple[dict[str, bytes], dict[str, bytes]]) -> None:
    others = {"mergeArchivePlan": b"x", ".commits_.archive.1_1-0-1.crc": b"x", "readme": b""}
    assert len(use({**small[0], **others}, 1)) == 1


@pytest.mark.parametrize("time", ["2026", "../../etc/passwd", None])
def test_an_entry_with_a_wrong_time_is_refused(time: str | None) -> None:
    raw = pack_entries([{**entry("x", "commit", "COMPLETED"), "commitTime": time}], real_entry_schema())
    with pytest.raises(CorruptFile, match="no instant time"):
        use({".commits_.archive.1_1-0-1": raw}, 1)


def test_pending_entries_and_unknown_actions_do_not_count_and_a_missing_body_is_told() -> None:
    time = "20260101000000000"
    entries = [entry(time, "commit", "INFLIGHT"), entry(time, "dance", "COMPLETED")]
    name = ".commits_.archive.1_1-0-1"
    assert use({name: pack_entries(entries, real_entry_schema())}, 1) == []
    with pytest.raises(CorruptFile, match="no content for instant"):
        use({name: pack_entries([entry(time, "commit", "COMPLETED")], real_entry_schema())}, 1)
    with pytest.raises(CorruptFile, match=r"no content for instant .* restore"):
        use({name: pack_entries([entry(time, "restore", "COMPLETED")], real_entry_schema())}, 1)


def test_an_active_instant_is_not_taken_twice() -> None:
    active = Instant(InstantTime("20260101000000000"), Action.COMMIT, State.COMPLETED, None, "active")
    archived = Instant(InstantTime("20260101000000000"), Action.COMMIT, State.COMPLETED, None, "archived")
    from lakefmt._core.timeline.timeline import build_timeline

    assert build_timeline([active], 1).with_history([archived]).commits == (active,)
