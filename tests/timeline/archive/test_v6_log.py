"""The archive of layout 1: written as Hudi writes it, read back entry by entry, and merges that died."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.formats.avro.container import encode_container
from lakefmt._core.formats.log_blocks import HeaderKey, scan_blocks, split_avro_records
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.metadata_codec import BodyKind, body_kind, decode_body, encode_body
from lakefmt._core.timeline.v6_archive import (
    LogArchive,
    LogRecord,
    archive_schema,
    encode_archive,
    next_archive_name,
)
from lakefmt._core.values import InstantTime
from lakefmt.errors import CorruptFile, StorageError
from lakefmt.testing.stores import FaultMode, FaultStore, fail_at
from tests.read.archiving import REAL_ARCHIVE, entry, pack_entries, real_entry_schema

VECTORS = Path(__file__).parents[2] / "data" / "timeline"
FOLDER = "v6_cow_archived_0150/.hoodie/archived/"


def real_archive() -> tuple[MemoryStore, LogArchive]:
    """The archive that Hudi 0.15.0 wrote."""
    store = MemoryStore()
    with zipfile.ZipFile(REAL_ARCHIVE) as packed:
        for name in packed.namelist():
            if name.startswith(FOLDER) and not name.endswith("/"):
                store.put(f"a/{name.removeprefix(FOLDER)}", packed.read(name))
    return store, LogArchive(store, "a")


def stored(data: bytes) -> list[dict[str, object]]:
    """The entries of an archive file, by another reader."""
    found = []
    for block in scan_blocks(lambda at, size: data[at : at + size], len(data), "x"):
        schema = fastavro.parse_schema(json.loads(block.header[HeaderKey.SCHEMA]))
        content = data[block.content_start : block.content_start + block.content_size]
        for datum in split_avro_records(content, "x"):
            found.append(fastavro.schemaless_reader(io.BytesIO(datum), schema))
    return found


def without_nulls(value: object) -> object:
    """A value without what is null, and without the version, which each writer sets as it likes."""
    if isinstance(value, dict):
        cleaned = {k: without_nulls(v) for k, v in value.items() if k != "version"}
        return {k: v for k, v in cleaned.items() if v is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


def test_what_hudi_archived_comes_out_as_it_went_in() -> None:
    store, archive = real_archive()
    records = [
        LogRecord(one.instant, archive.body(one), InstantTime(one.transition))
        for name, size in archive.files()
        for one in archive.entries(name, size)
    ]
    assert len(records) == 45
    ours = stored(b"".join(encode_archive(records)))
    theirs = [one for name, _ in archive.files() for one in stored(store.read(f"a/{name}"))]
    for mine, real in zip(ours, theirs, strict=True):
        plain = real["actionState"] != "COMPLETED" and real["actionType"] == "commit"
        # What a pending commit expects of its files is not needed by anybody, and is not kept by layout 2 either.
        left = {"hoodieCommitMetadata"} if plain else set()
        wanted = {name: value for name, value in real.items() if name not in left}
        found = {name: value for name, value in mine.items() if name not in left}
        assert without_nulls(found) == without_nulls(wanted)


def test_the_schema_is_hudis_field_by_field() -> None:
    def named(schema: str) -> dict[str, dict[str, list[str]]]:
        records: dict[str, list[str]] = {}

        def walk(node: object) -> None:
            if isinstance(node, list):
                for part in node:
                    walk(part)
            elif isinstance(node, dict):
                if node.get("type") == "record":
                    records[node["name"]] = [field["name"] for field in node["fields"]]
                for key in ("type", "items", "values", "fields"):
                    walk(node.get(key))

        walk(json.loads(schema))
        return records  # type: ignore[return-value]

    ours, theirs = named(archive_schema()), named(real_entry_schema())
    missing = {name for name in theirs if name not in ours}
    # What the first releases kept of compactions; nobody writes it any more.
    assert missing <= {"HoodieCompactionMetadata", "HoodieCompactionWriteStat"}
    for name, fields in ours.items():
        old = theirs.get(name, [])
        assert [field for field in fields if field in old] == [f for f in old if f in fields], name
        assert set(old) - set(fields) <= {"hoodieCompactionMetadata"}, name
    assert fastavro.parse_schema(json.loads(archive_schema()))


def state(number: int, action: Action, state: State, body: bytes = b"") -> LogRecord:
    time = InstantTime(f"20260101{number:09d}")
    return LogRecord(Instant(time, action, state), body, InstantTime(f"20260101{number + 1:09d}"))


PLAN = (VECTORS / "v6-0.15.0-clean-requested.avro").read_bytes()
CLEAN = (VECTORS / "v6-0.15.0-clean-completed.avro").read_bytes()
COMMIT = (VECTORS / "v6-0.15.0-commit-completed.json").read_bytes()
REPLACED = (VECTORS / "v6-0.x-replacecommit-completed.json").read_bytes()
COMPACTION = (VECTORS / "v6-0.15.0-compaction-requested.avro").read_bytes()
ROLLBACK = (VECTORS / "v6-0.15.0-rollback-completed.avro").read_bytes()
EVERY_KIND = [
    state(1, Action.COMMIT, State.REQUESTED),
    state(1, Action.COMMIT, State.COMPLETED, COMMIT),
    state(2, Action.CLEAN, State.REQUESTED, PLAN),
    state(2, Action.CLEAN, State.INFLIGHT, PLAN),
    state(2, Action.CLEAN, State.COMPLETED, CLEAN),
    state(3, Action.COMPACTION, State.REQUESTED, COMPACTION),
    state(3, Action.COMMIT, State.COMPLETED, COMMIT),
    state(4, Action.REPLACE_COMMIT, State.INFLIGHT, COMMIT),
    state(4, Action.REPLACE_COMMIT, State.COMPLETED, REPLACED),
    state(5, Action.ROLLBACK, State.REQUESTED, b""),
    state(5, Action.ROLLBACK, State.COMPLETED, ROLLBACK),
    state(6, Action.CLEAN, State.COMPLETED, b""),
]


def test_every_kind_of_entry_comes_back() -> None:
    store = MemoryStore()
    archive = LogArchive(store, "a")
    assert archive.append(EVERY_KIND, durable=False) == "a/.commits_.archive.1_1-0-1"
    (found,) = archive.files()
    entries = archive.entries(*found)
    assert [(e.instant.time, e.instant.action, e.instant.state, e.transition) for e in entries] == [
        (r.instant.time, r.instant.action, r.instant.state, r.transition) for r in EVERY_KIND
    ]
    for one, record in zip(entries, EVERY_KIND, strict=True):
        kind = body_kind(record.instant.action, record.instant.state)
        if record.body and kind is not None:
            assert without_nulls(decode_body(kind, archive.body(one))) == without_nulls(decode_body(kind, record.body))
        else:
            assert archive.body(one) == b""
    completed = archive.load()
    assert [one.completed.instant.action for one in completed] == [
        Action.COMMIT, Action.CLEAN, Action.COMMIT, Action.REPLACE_COMMIT, Action.ROLLBACK, Action.CLEAN,
    ]  # fmt: skip
    assert completed[2].requested is not None
    assert completed[2].requested.instant.action is Action.COMPACTION


@given(st.integers(1, 35))
def test_blocks_hold_ten_entries_and_files_are_numbered(count: int) -> None:
    store = MemoryStore()
    archive = LogArchive(store, "a")
    records = [state(n, Action.CLEAN, State.COMPLETED, CLEAN) for n in range(count)]
    archive.append(records[: count // 2], durable=False) if count > 1 else None
    archive.append(records[count // 2 :], durable=False)
    assert [one.completed.instant.time for one in archive.load()] == [one.instant.time for one in records]
    data = b"".join(encode_archive(records))
    blocks = list(scan_blocks(lambda at, size: data[at : at + size], len(data), "x"))
    assert len(blocks) == -(-count // 10)
    assert all(block.kind.name == "AVRO_DATA" for block in blocks)


def test_a_name_that_is_taken_is_not_written_over() -> None:
    assert next_archive_name([]) == ".commits_.archive.1_1-0-1"
    for mode in (FaultMode.ANSWER_LOST, FaultMode.REQUEST_LOST):
        inner = MemoryStore()
        archive = LogArchive(FaultStore(inner, fail_at(1, mode)), "a")
        if mode is FaultMode.ANSWER_LOST:
            archive.append(EVERY_KIND, durable=False)
            assert len(LogArchive(inner, "a").load()) == 6
        else:
            with pytest.raises(StorageError, match="unknown"):
                archive.append(EVERY_KIND, durable=False)
            assert LogArchive(inner, "a").load() == []


MERGE_PLAN = {
    "type": "record",
    "name": "HoodieMergeArchiveFilePlan",
    "fields": [
        {"name": "version", "type": ["int", "null"], "default": 1},
        {"name": "candidate", "type": ["null", {"type": "array", "items": "string"}], "default": None},
        {"name": "mergedArchiveFileName", "type": ["null", "string"], "default": None},
    ],
}


def test_the_file_of_a_merge_that_died_is_no_damage() -> None:
    store = MemoryStore()
    archive = LogArchive(store, "a")
    archive.append(EVERY_KIND, durable=False)
    whole = store.read("a/.commits_.archive.1_1-0-1")
    store.put("a/.commits_.archive.2_1-0-1", whole[: len(whole) // 2])
    with pytest.raises(CorruptFile, match=r"archive\.2"):
        LogArchive(store, "a").load()
    for named, sound in ((".commits_.archive.2_1-0-1", True), (".commits_.archive.1_1-0-1", False)):
        plan = {"candidate": [".commits_.archive.1_1-0-1"], "mergedArchiveFileName": named}
        store.put("a/mergeArchivePlan", encode_container(json.dumps(MERGE_PLAN), plan))
        if sound:
            assert len(LogArchive(store, "a").load()) == 6
        else:
            with pytest.raises(CorruptFile):
                LogArchive(store, "a").load()
    store.put("a/mergeArchivePlan", b"")
    with pytest.raises(CorruptFile):
        LogArchive(store, "a").load()


def test_a_body_of_another_kind_is_not_archived() -> None:
    with pytest.raises(CorruptFile):
        list(encode_archive([state(1, Action.CLEAN, State.COMPLETED, encode_body(BodyKind.COMMIT, {}))]))


def test_an_entry_that_hudi_wrote_and_one_of_ours_count_once() -> None:
    store = MemoryStore()
    time = EVERY_KIND[1].instant.time
    body = {"partitionToWriteStats": {}, "extraMetadata": {}, "operationType": "INSERT"}
    store.put(
        "a/.commits_.archive.1_1-0-1", pack_entries([entry(time, "commit", "COMPLETED", body)], real_entry_schema())
    )
    archive = LogArchive(store, "a")
    archive.append(EVERY_KIND, durable=False)
    (first, *_) = archive.load()
    found = decode_body(BodyKind.COMMIT, archive.body(first.completed))
    assert without_nulls(found) == without_nulls(decode_body(BodyKind.COMMIT, COMMIT))
