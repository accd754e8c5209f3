"""Commits as values: real ones of every release, round trips in every table version, and paths that lead away."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.timeline.commit import CommitMetadata, decode_commit, encode_commit
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body, encode_body, encode_json_commit
from lakefmt._core.values import TableVersion, WriteOperation, WriteStat
from lakefmt.errors import CorruptFile, InvalidInputError, UnsafePath

VECTORS = Path(__file__).resolve().parents[1] / "data" / "timeline"


def commit_of(name):
    return decode_commit((VECTORS / name).read_bytes(), name)


def test_a_commit_of_hudi_1_0():
    commit = commit_of("v8-1.0.2-commit-completed.avro")
    assert commit.compacted is False
    assert [field["name"] for field in json.loads(commit.schema_text)["fields"]][:2] == ["id", "part"]
    assert {stat.partition_path for stat in commit.stats} == set(commit.stats_by_partition)
    for stat in commit.stats:
        assert stat.path == f"{stat.partition_path}/{stat.file_name}"
        assert stat.file_name.startswith(stat.file_id)
        assert stat.total_write_bytes == stat.file_size_in_bytes > 0
        assert stat.log_files is None
        assert set(stat.extra) == {"runtimeStats"}


def test_a_deltacommit_of_hudi_0_15():
    commit = commit_of("v6-0.15.0-deltacommit-completed.json")
    assert commit.operation is WriteOperation.UPSERT
    (stat, *_) = (one for one in commit.stats if one.log_files)
    assert stat.log_files[-1] == stat.file_name
    assert stat.log_version == len(stat.log_files)
    assert stat.log_offset == 0
    assert stat.base_file.endswith(f"_{stat.prev_commit}.parquet")
    assert stat.num_update_writes > 0 == stat.num_inserts
    assert "recordsStats" not in stat.extra


def test_a_clustering_of_hudi_1_0():
    commit = commit_of("v8-1.0.2-replacecommit-completed-clustering.avro")
    assert commit.operation is WriteOperation.CLUSTER
    replaced = {(partition, one) for partition, ids in commit.replaced_file_ids.items() for one in ids}
    written = {(stat.partition_path, stat.file_id) for stat in commit.stats}
    assert replaced
    assert not replaced & written
    assert commit.file_ids() == replaced | written


def test_change_files_are_kept():
    commit = commit_of("v9-1.2.0-commit-completed-cdc.avro")
    changes = [stat.extra["cdcStats"] for stat in commit.stats if "cdcStats" in stat.extra]
    assert changes
    assert all(path.endswith(".cdc") and size > 0 for of in changes for path, size in of.items())


def test_a_profile_names_no_files():
    commit = commit_of("v6-0.15.0-commit-inflight.json")
    assert {stat.path for stat in commit.stats} == {""}
    assert {stat.file_id == "" for stat in commit.stats} == {True, False}
    assert all(file_id for _, file_id in commit.file_ids())


NAMES = sorted(path.name for path in VECTORS.iterdir() if path.name.split("-")[2] in {"commit", "deltacommit"})


@pytest.mark.parametrize("name", NAMES)
def test_a_real_commit_is_the_same_record_when_written_again(name):
    data = (VECTORS / name).read_bytes()
    written = encode_commit(decode_commit(data, name), TableVersion.EIGHT, replace=False)
    ours, theirs = decode_body(BodyKind.COMMIT, written), decode_body(BodyKind.COMMIT, data)
    if name.endswith(".avro") and "inflight" not in name:
        assert ours == theirs
    for partition, stats in theirs["partitionToWriteStats"].items():
        for mine, stat in zip(ours["partitionToWriteStats"][partition], stats, strict=True):
            # In a profile Java leaves the partition out of the stats.
            differing = {key for key, value in stat.items() if value != mine[key]}
            assert differing <= ({"partitionPath"} if "inflight" in name else set())


# -------------------------------------------------------------------------------------------------------- round trips

names = st.text("abcé東_-.= ", min_size=1, max_size=8).filter(lambda name: name not in {".", ".."})
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
counts = st.integers(0, 2**63 - 1)
partitions = st.just("") | st.lists(names, min_size=1, max_size=3).map("/".join)
extras = st.fixed_dictionaries(
    {},
    optional={
        "totalLogRecords": st.integers(1, 9),
        "minEventTime": st.integers(-(2**63), -1),
        "runtimeStats": st.just({"totalScanTime": 0, "totalCreateTime": 5, "totalUpsertTime": 0}),
        "cdcStats": st.dictionaries(names, counts, min_size=1, max_size=2),
        "tempPath": names,
    },
)


@st.composite
def stats_of(draw, partition):
    file_id = draw(names)
    return WriteStat(
        file_id=file_id,
        partition_path=partition,
        path=f"{partition}/{file_id}".lstrip("/"),
        prev_commit=draw(st.sampled_from(["null", "20260101000000000"])),
        num_writes=draw(counts),
        num_inserts=draw(counts),
        num_update_writes=draw(counts),
        num_deletes=draw(counts),
        total_write_bytes=draw(counts),
        file_size_in_bytes=draw(counts),
        total_write_errors=draw(counts),
        prev_base_file=draw(st.none() | names),
        base_file=draw(st.none() | st.just("") | names),
        log_files=draw(st.none() | st.lists(names, max_size=2).map(tuple)),
        log_version=draw(st.none() | st.integers(0, 2**31 - 1)),
        log_offset=draw(st.none() | counts),
        extra=draw(extras),
    )


@st.composite
def commits(draw):
    where = draw(st.lists(partitions, unique=True, max_size=3))
    return CommitMetadata(
        operation=draw(st.sampled_from(WriteOperation)),
        stats=tuple(stat for partition in where for stat in draw(st.lists(stats_of(partition), max_size=3))),
        replaced_file_ids=draw(st.dictionaries(partitions, st.lists(names, max_size=2).map(tuple), max_size=2)),
        extra_metadata=draw(st.dictionaries(texts, texts, max_size=3)),
        compacted=draw(st.none() | st.booleans()),
    )


@pytest.mark.slow
@given(commits(), st.sampled_from(TableVersion))
def test_what_is_written_is_read(commit, version):
    assert decode_commit(encode_commit(commit, version, replace=True), "c") == commit
    assert encode_commit(commit, version, replace=True) == encode_commit(commit, version, replace=True)


@pytest.mark.parametrize("name", NAMES)
def test_counts_are_sums_over_the_stats(name):
    commit = commit_of(name)
    grouped = commit.stats_by_partition
    assert tuple(stat for stats in grouped.values() for stat in stats) == commit.stats
    assert commit.num_writes == sum(stat.num_writes for stat in commit.stats)
    assert commit.num_inserts == sum(stat.num_inserts for stat in commit.stats)
    assert commit.num_updates == sum(stat.num_update_writes for stat in commit.stats)
    assert commit.num_deletes == sum(stat.num_deletes for stat in commit.stats)
    assert commit.bytes_written == sum(stat.total_write_bytes for stat in commit.stats)
    assert pickle.loads(pickle.dumps(commit)) == commit


def test_an_empty_commit():
    for version in TableVersion:
        commit = decode_commit(encode_commit(CommitMetadata(WriteOperation.ALTER_SCHEMA), version, replace=False), "c")
        assert commit == CommitMetadata(WriteOperation.ALTER_SCHEMA)
        assert commit.schema_text is None
        assert commit.file_ids() == frozenset()


def test_what_a_stat_says_beyond_hudis_fields_is_left_out():
    stat = WriteStat("f-0", "p", "p/f", extra={"totalLogBlocks": 2, "numWrites": 9, "mine": object(), "numUpdates": 0})
    found = decode_commit(
        encode_commit(CommitMetadata(WriteOperation.UPSERT, (stat,)), TableVersion.NINE, replace=False), "c"
    )
    assert found.stats[0].extra == {"totalLogBlocks": 2}
    assert found.stats[0].num_writes == 0


def test_only_a_replace_commit_replaces():
    commit = CommitMetadata(WriteOperation.INSERT_OVERWRITE, replaced_file_ids={"p": ("f-0",)})
    with pytest.raises(InvalidInputError, match="only a replace commit"):
        encode_commit(commit, TableVersion.EIGHT, replace=False)


@pytest.mark.parametrize("version", TableVersion)
def test_a_number_that_is_none_is_refused_in_avro(version):
    commit = CommitMetadata(WriteOperation.INSERT, (WriteStat("f-0", "p", "p/f", num_writes="3"),))
    if version is TableVersion.SIX:
        with pytest.raises(CorruptFile):
            decode_commit(encode_commit(commit, version, replace=False), "c")
    else:
        with pytest.raises(InvalidInputError, match="numWrites"):
            encode_commit(commit, version, replace=False)


@pytest.mark.parametrize(
    ("written", "operation"),
    [
        ("UPSERT", WriteOperation.UPSERT),
        ("UPSERT_PREPPED", WriteOperation.UPSERT),
        ("BULK_INSERT_PREPPED", WriteOperation.BULK_INSERT),
        ("BOOTSTRAP", WriteOperation.BOOTSTRAP),
        ("BUCKET_RESCALE", WriteOperation.UNKNOWN),
        ("", WriteOperation.UNKNOWN),
        (None, WriteOperation.UNKNOWN),
    ],
)
def test_operations(written, operation):
    record = {"partitionToWriteStats": {}, "operationType": written}
    assert decode_commit(encode_body(BodyKind.COMMIT, record), "c").operation is operation
    assert decode_commit(encode_json_commit(record), "c").operation is operation


# ------------------------------------------------------------------------------------------------------ hostile paths

AWAY = ["../x", "p/../../x", "/etc/passwd", "p//x", "p/", "./x", "p/.", "a\0b", "file:///x", "s3://b/x"]


def stored(stat=None, partition="p", replaced=None):
    """Return a commit in both forms, as somebody else might write it."""
    record = {
        "partitionToWriteStats": {} if stat is None else {partition: [stat]},
        "partitionToReplaceFileIds": replaced or {},
    }
    return [encode_body(BodyKind.REPLACE_COMMIT, record), encode_json_commit(record)]


@pytest.mark.parametrize("path", AWAY)
@pytest.mark.parametrize("field", ["path", "baseFile", "prevBaseFile", "logFiles", "cdcStats"])
def test_a_path_that_leads_away_is_refused(field, path):
    value = {"logFiles": ["ok.log", path], "cdcStats": {path: 1}}.get(field, path)
    for data in stored({"fileId": "f-0", "path": "p/f", field: value}):
        with pytest.raises(UnsafePath, match=r"^c\.commit: "):
            decode_commit(data, "c.commit")


@pytest.mark.parametrize("partition", AWAY)
def test_a_partition_that_leads_away_is_refused(partition):
    stat = {"fileId": "f-0", "path": "p/f"}
    for data in (*stored(stat, partition), *stored(replaced={partition: ["f-0"]})):
        with pytest.raises(UnsafePath):
            decode_commit(data, "c")


@pytest.mark.parametrize("file_id", ["..", ".", "a/b", "/a", "a\0"])
def test_a_file_id_that_leads_away_is_refused(file_id):
    for data in (*stored({"fileId": file_id, "path": "p/f"}), *stored(replaced={"p": [file_id]})):
        with pytest.raises(UnsafePath):
            decode_commit(data, "c")


def test_an_empty_path_belongs_to_profiles():
    for stat in ({"fileId": "", "path": ""}, {"fileId": "", "path": None}, {"fileId": "f-0", "path": None}):
        for data in stored(stat):
            assert decode_commit(data, "c").stats[0].path == ""
    for data in stored({"fileId": "f-0", "path": ""}):
        with pytest.raises(UnsafePath):
            decode_commit(data, "c")


def test_the_partition_is_the_one_a_stat_is_listed_under():
    for data in stored({"fileId": "f-0", "path": "p/f", "partitionPath": "q"}):
        assert decode_commit(data, "c").stats[0].partition_path == "p"
    for data in stored({"fileId": "f-0", "path": "f"}, partition=""):
        assert decode_commit(data, "c").stats[0].partition_path == ""


def test_bytes_that_are_no_commit_name_the_file():
    for data in (b"", b"x", b"Obj\x01", b"{", b"{}", encode_body(BodyKind.ROLLBACK_PLAN, {})):
        with pytest.raises(CorruptFile, match=r"2026\.commit"):
            decode_commit(data, "2026.commit")
