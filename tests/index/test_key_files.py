"""Look-ups over real base files: which bytes of them are read, and which damage is named (spec 5.1)."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.filegroups.reader import BaseFileReader
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.index import IndexKeys, Located, key_files, key_reader, open_index
from lakefmt._core.index.key_reader import KeyFiles
from lakefmt._core.storage.local import LocalStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.values import RECORD_KEY, FileId, InstantTime, PartitionPath
from lakefmt.errors import CorruptFile, SnapshotExpired
from lakefmt.testing.stores import CountingStore

FILES, ROWS = 30, 3000
#: What Parquet readers fetch of a file's end to see its footer.
TAIL_BYTES = 64 * 1024


def meant_for(keys: list[str], partition: str = "") -> IndexKeys:
    return IndexKeys(pa.array(keys, pa.string()), pa.array([partition] * len(keys), pa.string()).dictionary_encode())


def ordered_key(number: int) -> str:
    return f"k{number:08d}"


@pytest.fixture(scope="module")
def ordered_table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of 30 files whose keys follow each other, as those of a stream with times in them do."""
    path = str(tmp_path_factory.mktemp("ordered") / "table")
    numbers = np.arange(FILES * ROWS)
    data = pa.table(
        {
            "id": pa.array([ordered_key(n) for n in numbers]),
            "noise": np.random.default_rng(1).random(len(numbers)),
            "more": np.random.default_rng(2).random(len(numbers)),
            "other": np.random.default_rng(3).random(len(numbers)),
        }
    )
    table = lakefmt.create_table(path, data=data, record_key="id", options={"lakefmt.durability": "none"})
    for start in range(0, len(numbers), ROWS):
        table.bulk_insert(data.slice(start, ROWS))
    return path


class Watched:
    """An open table whose reads are written down."""

    def __init__(self, path: str) -> None:
        self.store = CountingStore(LocalStore(path))
        self.client = TableClient(self.store)
        self.slices = self.client.at(self.client.load()).slices()
        self._key_chunks = {p.base.path: _key_chunk(f"{path}/{p.base.path}") for p in self.slices if p.base is not None}
        self.store.reset()

    def locate(self, name: str, keys: list[str]) -> Located:
        return open_index(name).locate(meant_for(keys), self.slices, key_files(self.client))

    def key_columns_read(self) -> set[str]:
        """The files of whose key column something was read."""
        return {
            client.name
            for client in self.store.log
            if client.kind == "range"
            and client.name in self._key_chunks
            and _overlap(client.offset, client.size, *self._key_chunks[client.name])
        }

    def bytes_read(self) -> int:
        return self.store.statistics().bytes_read


def _key_chunk(path: str) -> tuple[int, int]:
    begin, size = _key_pages(path)
    assert Path(path).stat().st_size - (begin + size) > TAIL_BYTES, "the tail hides the keys"
    return begin, size


def _key_pages(path: str) -> tuple[int, int]:
    metadata = pq.read_metadata(path)
    columns = metadata.row_group(0)
    chunk = next(c for c in map(columns.column, range(columns.num_columns)) if c.path_in_schema == RECORD_KEY)
    begin = min(p for p in (chunk.dictionary_page_offset, chunk.data_page_offset) if p)
    return begin, chunk.total_compressed_size


def _overlap(begin: int, size: int, other: int, other_size: int) -> bool:
    return begin < other + other_size and other < begin + size


@pytest.mark.parametrize("name", ["bloom", "global_bloom", "simple", "global_simple"])
def test_ordered_keys_that_touch_one_file_of_thirty_open_its_key_column_alone(ordered_table: str, name: str) -> None:
    table = Watched(ordered_table)
    stored = [ordered_key(7 * ROWS + n) for n in range(0, ROWS, 30)]
    located = table.locate(name, [*stored, ordered_key(7 * ROWS + 1) + "x", "zzz"])
    assert located.rows.tolist() == list(range(100))
    assert len(set(located.slices.tolist())) == 1
    assert len(table.key_columns_read()) == 1


def test_new_keys_in_order_open_no_key_column(ordered_table: str) -> None:
    for name in ("bloom", "simple"):
        table = Watched(ordered_table)
        assert not len(table.locate(name, [ordered_key(FILES * ROWS + n) for n in range(100)]).rows)
        assert table.key_columns_read() == set()


def test_filters_open_no_file_for_strangers_within_its_range(ordered_table: str) -> None:
    table = Watched(ordered_table)
    located = table.locate("bloom", [ordered_key(n * ROWS + 5) + "x" for n in range(FILES)])
    assert [(s.name, s.files, s.candidates) for s in located.steps] == [
        ("considered", 30, 900),
        ("left by key range", 30, 30),
        ("left by bloom filter", 0, 0),
        ("opened", 0, 0),
    ]
    assert located.filters is not None
    assert (located.filters.asked, located.filters.false, located.filters.false_rate) == (30, 0, 0.0)
    assert table.key_columns_read() == set()


def test_footers_are_read_once_for_all_look_ups(ordered_table: str) -> None:
    table = Watched(ordered_table)
    wanted = [ordered_key(7 * ROWS)]
    table.locate("bloom", wanted)
    first = table.bytes_read()
    table.store.reset()
    table.locate("bloom", wanted)
    chunk = next(iter(table._key_chunks.values()))[1]
    assert first > FILES * 1000
    assert table.bytes_read() < chunk + 1000


def test_a_look_up_reads_key_columns_and_nothing_else_of_the_rows(ordered_table: str) -> None:
    table = Watched(ordered_table)
    table.locate("bloom", [ordered_key(7 * ROWS)])
    table.store.reset()
    table.locate("simple", [ordered_key(n * ROWS) for n in range(FILES)])
    chunks = table._key_chunks
    assert table.key_columns_read() == set(chunks)
    for client in table.store.log:
        begin, size = chunks[client.name]
        assert begin <= client.offset
        assert client.offset + client.size <= begin + size


def test_an_upsert_of_ordered_keys_opens_one_key_column(ordered_table: str, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    shutil.copytree(ordered_table, path)
    watched = Watched(path)
    keys = [ordered_key(7 * ROWS + n) for n in range(100)]
    numbers = np.zeros(100)
    rows = pa.table({"id": keys, "noise": numbers, "more": numbers, "other": numbers})
    done = Table(watched.client).upsert(rows, options={"lakefmt.durability": "none"})
    assert (done.num_updates, done.num_inserts) == (100, 0)
    assert len(watched.key_columns_read()) == 1


# ------------------------------------------------------------------------------------------------ row groups

key_texts = st.text(alphabet="ab\ud7ff\ue000\uffff\U00010000\U0010ffff", min_size=1, max_size=3)
R = InstantTime("20260101000000000")


def stored_file(groups: list[list[str]], **options: object) -> tuple[MemoryStore, BaseFile]:
    """A Parquet file with these keys in its row groups."""
    store = MemoryStore()
    schema = pa.schema([pa.field(RECORD_KEY, pa.string()), pa.field("v", pa.int64())])
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, store_schema=False, **options) as writer:
        for keys in groups:
            if keys:
                writer.write_table(pa.table({RECORD_KEY: pa.array(keys, pa.string()), "v": range(len(keys))}, schema))
    return stored_bytes(store, sink.getvalue().to_pybytes())


def stored_bytes(store: MemoryStore, data: bytes) -> tuple[MemoryStore, BaseFile]:
    name = "f-0_0-0-0_20260101000000000.parquet"
    store.put(name, data)
    return store, BaseFile(PartitionPath(""), name, FileId("f-0"), "0-0-0", R, len(data))


def slices_of(file: BaseFile) -> list[FileSlice]:
    return [FileSlice(file.partition, file.file_id, file.instant, file)]


@given(st.lists(st.lists(key_texts, max_size=4), max_size=4), st.lists(key_texts, max_size=6), st.booleans())
def test_row_groups_are_left_out_only_when_no_key_is_in_them(
    groups: list[list[str]], wanted: list[str], statistics: bool
) -> None:
    store, file = stored_file(groups, write_statistics=statistics)
    found = KeyFiles(store).keys_with_positions(file, pa.array(wanted, pa.string()))
    read = set() if found is None else set(found[0].to_pylist())
    stored = {key for group in groups for key in group}
    assert read & set(wanted) == stored & set(wanted)
    assert read <= stored


def test_only_row_groups_that_can_hold_a_key_are_read() -> None:
    store, file = stored_file([["a", "c"], ["d", "f"], ["x", "z"]])
    files = KeyFiles(store)
    some = files.keys_with_positions(file, pa.array(["e"]))
    assert some is not None
    assert (some[0].to_pylist(), some[1].tolist()) == (["d", "f"], [2, 3])
    ends = files.keys_with_positions(file, pa.array(["b", "y"]))
    assert ends is not None
    assert (ends[0].to_pylist(), ends[1].tolist()) == (["a", "c", "x", "z"], [0, 1, 4, 5])
    assert files.keys_with_positions(file, pa.array(["g"])) is None
    assert files.keys(file).to_pylist() == ["a", "c", "d", "f", "x", "z"]


def test_files_without_statistics_are_read_whole() -> None:
    store, file = stored_file([["a"], ["b"]], write_statistics=False)
    found = KeyFiles(store).keys_with_positions(file, pa.array(["zz"]))
    assert found is not None
    assert found[0].to_pylist() == ["a", "b"]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary()])
def test_keys_of_another_arrow_type_are_texts_all_the_same(kind: pa.DataType) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({RECORD_KEY: pa.array(["a", "b"]).cast(kind)}), sink)
    store, file = stored_bytes(MemoryStore(), sink.getvalue().to_pybytes())
    located = open_index("simple").locate(meant_for(["b", "c"]), slices_of(file), KeyFiles(store))
    assert located.rows.tolist() == [0]


# ---------------------------------------------------------------------------------------------------- damage


def test_a_file_that_is_gone_is_an_expired_snapshot(tmp_path: Path) -> None:
    _, file = stored_file([["a"]])
    store = LocalStore(str(tmp_path))
    for name in ("bloom", "simple"):
        with pytest.raises(SnapshotExpired, match=file.name):
            open_index(name).locate(meant_for(["a"]), slices_of(file), KeyFiles(store))


@pytest.mark.parametrize("data", [b"", b"PAR1", b"x" * 100, b"PAR1" + b"\xff" * 50 + b"PAR1"])
def test_a_file_that_is_no_parquet_is_named(data: bytes) -> None:
    store, file = stored_bytes(MemoryStore(), data)
    with pytest.raises(CorruptFile, match=file.name):
        open_index("bloom").locate(meant_for(["a"]), slices_of(file), KeyFiles(store))


@pytest.mark.parametrize("column", [pa.table({"v": ["a"]}), pa.table({RECORD_KEY: [1]})])
def test_a_file_without_text_keys_is_named(column: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(column, sink, write_statistics=False)
    store, file = stored_bytes(MemoryStore(), sink.getvalue().to_pybytes())
    for read in (KeyFiles(store).keys, lambda f: KeyFiles(store).keys_with_positions(f, pa.array(["a"]))):
        with pytest.raises(CorruptFile, match=RECORD_KEY):
            read(file)


def test_a_damaged_key_column_is_named() -> None:
    store, file = stored_file([[uuid.UUID(int=n).hex for n in range(200)]], compression="zstd")
    data = bytearray(store.read(file.path))
    data[30:400] = bytes(370)
    store.delete([file.path])
    _, file = stored_bytes(store, bytes(data))
    with pytest.raises(CorruptFile, match=file.name):
        KeyFiles(store).keys(file)


def test_a_flipped_bit_among_the_keys_is_no_stranger(tmp_path: Path) -> None:
    """Not seen, the key that it hits would be stored a second time."""
    data = pa.table({"id": [f"{n:036}" for n in range(100)], "v": range(100)})
    options = {"lakefmt.durability": "none", "hoodie.parquet.compression.codec": "none"}
    table = lakefmt.create_table(str(tmp_path / "t"), data=data, record_key="id", options=options)
    table.bulk_insert(data)
    (file,) = (tmp_path / "t").glob("*.parquet")
    begin, size = _key_pages(str(file))
    raw = bytearray(file.read_bytes())
    raw[begin + size - 5] ^= 1
    file.write_bytes(raw)
    with pytest.raises(CorruptFile, match=file.name):
        lakefmt.open_table(str(tmp_path / "t")).upsert(data)


def test_an_upsert_asks_for_each_footer_once(tmp_path: Path) -> None:
    """The rewrite takes it from the look-up; the rows are asked for anew."""
    data = pa.table({"id": [f"k{n:05}" for n in range(1_000)], "v": range(1_000)})
    made = lakefmt.create_table(str(tmp_path / "t"), data=data, record_key="id", options={"lakefmt.durability": "none"})
    made.bulk_insert(data)
    (file,) = (tmp_path / "t").glob("*.parquet")
    store = CountingStore(LocalStore(tmp_path / "t"))
    Table(TableClient(store, {"lakefmt.durability": "none"})).upsert(data.slice(0, 10))
    size = file.stat().st_size
    ends = [a for a in store.log if a.kind == "range" and a.name == file.name and a.offset + a.size == size]
    assert len(ends) == 1


# ---------------------------------------------------------------------------------------------------- keeping


def test_kept_footers_are_bounded_in_bytes() -> None:
    store = MemoryStore()
    data = stored_file([["a"]])[0].read("f-0_0-0-0_20260101000000000.parquet")
    files = []
    for n in range(10):
        name = f"f{n}-0_0-0-0_20260101000000000.parquet"
        store.put(name, data)
        files.append(BaseFile(PartitionPath(""), name, FileId(f"f{n}-0"), "0-0-0", R, len(data)))
    counting = CountingStore(store)
    key_reader = KeyFiles(counting, kept_bytes=60_000)
    for file in [*files, *files[-2:]]:
        assert key_reader.footer(file).num_rows == 1
    read = [client.name for client in counting.log if client.kind == "range"]
    assert set(read) == {file.name for file in files}
    counting.reset()
    key_reader.footer(files[-1])
    assert not counting.log
    key_reader.footer(files[0])
    assert {client.name for client in counting.log if client.kind == "range"} == {files[0].name}


def test_kept_keys_are_read_once_and_bounded_in_bytes() -> None:
    store = MemoryStore()
    keys = [f"key-{n:06d}" for n in range(1000)]
    data = stored_file([keys])[0].read("f-0_0-0-0_20260101000000000.parquet")
    files = []
    for n in range(4):
        name = f"f{n}-0_0-0-0_20260101000000000.parquet"
        store.put(name, data)
        files.append(BaseFile(PartitionPath(""), name, FileId(f"f{n}-0"), "0-0-0", R, len(data)))
    counting = CountingStore(store)
    size = KeyFiles(store).keys(files[0]).nbytes
    key_reader = KeyFiles(counting, kept_key_bytes=2 * size)

    def read_by(file: BaseFile) -> bool:
        counting.reset()
        assert key_reader.keys(file).to_pylist() == keys
        placed = key_reader.keys_with_positions(file, pa.array(["key-000007"]))
        assert placed is not None
        assert placed[0].to_pylist() == keys
        return any(client.kind == "range" for client in counting.log)

    assert [read_by(file) for file in files[:2]] == [True, True]
    assert [read_by(file) for file in files[:2]] == [False, False]
    assert read_by(files[2]), "the third pushes the first out"
    assert [read_by(file) for file in (files[2], files[1])] == [False, False]
    assert read_by(files[0])
    none = KeyFiles(counting, kept_key_bytes=size - 1)
    for _ in range(2):
        counting.reset()
        none.keys(files[3])
        assert any(client.kind == "range" for client in counting.log), "what does not fit is not kept"


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_keys_are_kept_until_their_file_is_replaced(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / kind)
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    lakefmt.create_table(path, schema=schema, record_key="id", table_type=kind, options={"lakefmt.durability": "none"})
    counting = CountingStore(LocalStore(path))
    table = Table(TableClient(counting, {"lakefmt.durability": "none", "hoodie.parquet.small.file.limit": 0}))
    rows = pa.table({"id": [f"k{n}" for n in range(500)], "v": range(500)}, schema=schema)
    table.insert(rows)
    opened = []
    for v in range(2):
        counting.reset()
        table.upsert(rows.slice(0, 3).set_column(1, "v", pa.array([v] * 3)))
        opened.append(sum(a.kind == "range" and a.name.endswith(".parquet") for a in counting.log))
    assert opened[0] > 0
    assert (opened[1] == 0) is (kind == "mor")
    assert len(key_files(table.client)._keys) == (kind == "mor"), "a rewrite takes them"
    assert table.read().num_rows == 500


@pytest.mark.parametrize("verb", ["upsert", "delete"])
def test_the_keys_of_a_rewritten_file_are_decoded_once(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    table = lakefmt.create_table(str(tmp_path / "t"), schema=schema, record_key="id")
    table.insert(pa.table({"id": [f"k{n}" for n in range(500)], "v": range(500)}, schema=schema))
    columns: list[str] = []
    for name in ("read", "read_row_groups"):
        original = getattr(pq.ParquetFile, name)

        def watched(self: Any, *given: Any, original: Any = original, **named: Any) -> Any:
            columns.extend(named["columns"] or self.schema_arrow.names)
            return original(self, *given, **named)

        monkeypatch.setattr(pq.ParquetFile, name, watched)
    if verb == "upsert":
        table.upsert(pa.table({"id": ["k7", "new"], "v": [-1, -2]}, schema=schema))
    else:
        table.delete(["k7"])
    assert columns.count(RECORD_KEY) == 1
    assert columns.count("v") == 1
    monkeypatch.undo()
    values = dict(zip(*table.read(["id", "v"]).to_pydict().values(), strict=True))
    wanted = {f"k{n}": n for n in range(500)}
    if verb == "upsert":
        wanted |= {"k7": -1, "new": -2}
    else:
        del wanted["k7"]
    assert values == wanted
    assert not table.check("full").findings


def test_one_table_has_one_cache_of_footers(ordered_table: str) -> None:
    one, two = TableClient(LocalStore(ordered_table)), TableClient(LocalStore(ordered_table))
    assert key_files(one) is key_files(one)
    assert key_files(one) is not key_files(two)


@pytest.mark.parametrize("index", ["bloom", "simple"])
def test_keys_that_are_too_long_for_a_footer_are_found(index: str) -> None:
    keys = ["a", "a" * 5_000 + "x", "a" * 5_000 + "y"]
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    table = lakefmt.create_table(f"memory://long-keys-{index}", schema=schema, record_key="id", index=index)
    table.upsert(pa.table({"id": keys, "v": [1, 1, 1]}))
    table.upsert(pa.table({"id": keys[1:], "v": [2, 2]}))
    assert sorted(table.read()["v"].to_pylist()) == [1, 2, 2]


def small_table(path: Path) -> tuple[Table, BaseFile]:
    data = pa.table({"id": pa.array(["a", "b", "c"], pa.string())})
    table = lakefmt.create_table(str(path), data=data, record_key="id", options={"lakefmt.durability": "none"})
    table.bulk_insert(data)
    (piece,) = table.file_groups()
    assert piece.base is not None
    return table, piece.base


@pytest.mark.parametrize("keeps", [True, False])
def test_a_small_local_file_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool) -> None:
    table, file = small_table(tmp_path / "t")
    opened: list[str] = []
    plain = key_reader.open_base_file

    def counted(filesystem: Any, prefix: str, file: BaseFile, *given: Any) -> Any:
        opened.append(file.name)
        return plain(filesystem, prefix, file, *given)

    monkeypatch.setattr(key_reader, "open_base_file", counted)
    files = KeyFiles(table.client.store, kept_bytes=1 << 20, kept_key_bytes=(1 << 20) if keeps else 0)
    assert files.footer(file).num_rows == 3
    placed = files.keys_with_positions(file, pa.array(["b"], pa.string()))
    assert placed is not None
    assert (placed[0].to_pylist(), placed[1].tolist()) == (["a", "b", "c"], [0, 1, 2])
    assert len(opened) == (1 if keeps else 2)


def test_damaged_keys_of_a_small_file_are_named_by_who_asks_for_them(tmp_path: Path) -> None:
    table, file = small_table(tmp_path / "t")
    where = tmp_path / "t" / file.path
    metadata = pq.ParquetFile(where).metadata
    column = next(n for n in range(metadata.num_columns) if metadata.schema.column(n).path == RECORD_KEY)
    chunk = metadata.row_group(0).column(column)
    raw = bytearray(where.read_bytes())
    raw[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 0xFF
    where.write_bytes(raw)
    files = KeyFiles(table.client.store, kept_bytes=1 << 20, kept_key_bytes=1 << 20)
    assert files.footer(file).num_rows == 3
    with pytest.raises(CorruptFile):
        files.keys_with_positions(file, pa.array(["b"], pa.string()))


@pytest.mark.parametrize("others", [0, 3, 40])
def test_a_large_filter_is_held_once_and_counted(others: int) -> None:
    """Arrow holds two copies of each entry of a footer, in memory that Python does not see."""
    name, text = "org.apache.hudi.bloomfilter", "A" * 100_000
    entries = {f"entry {number}": "x" for number in range(others)}
    sink, rows = pa.BufferOutputStream(), pa.table({RECORD_KEY: ["a", "b"], "v": [1, 2]})
    # With a schema of Arrow's among the entries, and without: then all entries are in the schema that Arrow reads.
    with pq.ParquetWriter(sink, rows.schema, store_schema=others == 0) as writer:
        writer.write_table(rows, row_group_size=1)
        writer.add_key_value_metadata({**entries, name: text})
    whole = pq.ParquetFile(sink.getvalue()).metadata
    store, file = stored_bytes(MemoryStore(), sink.getvalue().to_pybytes())
    reader = KeyFiles(store, kept_bytes=1 << 20)
    assert reader.footer(file).entries[name] == text
    known = reader.known(file)
    assert known is not None
    assert known.metadata.metadata == whole.metadata | {name.encode(): b""}
    assert whole.serialized_size - known.metadata.serialized_size >= len(text)
    assert known.metadata.to_dict() | {"serialized_size": 0} == whole.to_dict() | {"serialized_size": 0}
    assert known.metadata.schema.equals(whole.schema)
    assert known.footer.schema.metadata is None
    assert known.footer.schema.equals(whole.schema.to_arrow_schema())
    assert len(text) <= reader.kept[0].weight <= len(text) + (32 << 10)
    assert reader.keys(file).to_pylist() == ["a", "b"]


def test_footers_of_a_reader_are_counted_with_their_filters() -> None:
    """A clustering reads one of each file: 120 filters of 2.6 MB were held twice, and decoded, until it ended."""
    text = "A" * 100_000
    sink, rows = pa.BufferOutputStream(), pa.table({RECORD_KEY: ["a"]})
    with pq.ParquetWriter(sink, rows.schema) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({"org.apache.hudi.bloomfilter": text})
    store, file = stored_bytes(MemoryStore(), sink.getvalue().to_pybytes())
    reader = BaseFileReader(store)
    assert reader.footer(file) is reader.footer(file)
    (kept,) = reader.kept
    assert len(text) <= kept.weight <= len(text) + (32 << 10)
    assert reader.completing(None).kept is reader.kept
