"""What a handle keeps of the metadata table: bounded, and without throwing out what the next look-up needs."""

from __future__ import annotations

from hashlib import md5
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
import lakefmt._core.metadata.metadata_files as metadata_files
from lakefmt._core.formats.hfile_container import HFileReader, encode_hfile
from lakefmt._core.metadata.metadata_files import MetadataFileCache, WrittenGroups, _ListedFile

KEYS = pa.array([f"key-{number:05}".encode() for number in range(2_000)])


def reader_of(path: str) -> HFileReader:
    values = pa.array([b"value"] * len(KEYS))
    return HFileReader.from_bytes(encode_hfile(KEYS, values), path)


def names(count: int) -> list[_ListedFile]:
    return [_ListedFile(f".hoodie/metadata/record_index/f{number}.hfile", 1, 1.0) for number in range(count)]


def use(cache: MetadataFileCache, files: list[_ListedFile]) -> list[bool]:
    """Look every key up in every file; return which files have their block kept afterwards."""
    readers = []
    for version in files:
        reader = cache.get(version)
        if reader is None:
            reader = reader_of(version.path)
            cache.put(version, reader)
        assert isinstance(reader, HFileReader)
        assert len(reader.lookup(KEYS)) == len(KEYS)
        readers.append(reader)
    return [bool(reader._decoded) for reader in readers]


def test_decoded_blocks_are_bounded_and_files_used_in_turn_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, files = MetadataFileCache(), names(5)
    assert use(cache, files[:1]) == [True]
    monkeypatch.setattr(metadata_files, "_KEPT_DECODED_BYTES", 3 * cache._decoded)
    for _ in range(3):
        assert use(cache, files) == [True, True, True, False, False]
    assert use(cache, files[3:]) == [True, True], "the others were not used since"
    assert cache._decoded <= metadata_files._KEPT_DECODED_BYTES


def test_a_file_that_goes_takes_its_decoded_blocks_along(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, files = MetadataFileCache(), names(3)
    monkeypatch.setattr(metadata_files, "_KEPT_BYTES", 2)
    assert use(cache, files) == [False, True, True]
    one = cache._decoded
    assert cache.get(files[0]) is None
    use(cache, files[2:])
    assert cache._decoded == one
    cache.put(files[2], reader_of("new"))
    assert cache._decoded < one


def test_bytes_that_were_written_count_where_the_mark_is_their_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = MetadataFileCache()
    cache.keep_bytes("a", b"one")
    mark = f'"{md5(b"one").hexdigest()}"'
    assert (cache.bytes_of("a", mark), cache.bytes_of("a", '"other"'), cache.bytes_of("b", mark)) == (
        b"one",
        None,
        None,
    )
    cache.keep_bytes("a", b"two")
    assert cache.bytes_of("a", mark) is None
    monkeypatch.setattr(metadata_files, "_KEPT_STORED_BYTES", 4)
    cache.keep_bytes("c", b"one")
    assert (cache.bytes_of("c", mark), "a" in cache._bytes_of) == (b"one", False)


@pytest.mark.parametrize("version", [6, 9])
def test_a_handle_reads_each_commit_of_the_metadata_table_once(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of first records are read again in version 6: a metadata table that is made anew may use their names again."""
    index = (
        "hoodie.metadata.record.index.enable" if version == 6 else "hoodie.metadata.global.record.level.index.enable"
    )
    options = {"lakefmt.durability": "none", "hoodie.metadata.enable": "true", index: "true"}
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    path = str(tmp_path / "t")
    writer = lakefmt.create_table(path, schema=schema, record_key="id", table_version=version, options=options)
    for number in range(3):
        writer.upsert(pa.table({"id": [f"k{number}"], "n": [number]}, schema))
    read: list[str] = []
    load = WrittenGroups._load
    monkeypatch.setattr(metadata_files, "_identity", lambda _store: None)  # as in another process
    monkeypatch.setattr(WrittenGroups, "_load", lambda self, each: (read.append(each.time), load(self, each))[1])
    table = lakefmt.open_table(path)
    counts = []
    for _ in range(3):
        assert table.read(filter="id = 'k1'").num_rows == 1
        counts.append(len(read))
        first_records = sum(time.startswith("0" * 14) or len(time) > 17 for time in read)
        read.clear()
    assert counts[0] > 0
    assert counts[1:] == ([0, 0] if version == 9 else [first_records, first_records])
