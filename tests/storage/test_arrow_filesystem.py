"""Stores shown to Arrow."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from lakefmt._core.storage import MemoryStore
from lakefmt._core.storage.arrow_filesystem import ArrowHandler, arrow_view
from lakefmt.errors import ObjectNotFound, StorageError, UnsupportedError
from lakefmt.testing.stores import SimulatedCrash


@pytest.fixture
def store():
    store = MemoryStore(now=lambda: 1_700_000_000.0)
    for name in ("top", "d/a", "d/e/b", "dd/c"):
        store.put(name, name.encode())
    store.leave_temporary_object("d/a", b"half")
    return store


@pytest.fixture
def fs(store):
    return arrow_view(store)


def test_infos(fs):
    found = fs.get_file_info(["top", "d", "d/", "missing", "d/a/x", "", "../up"])
    kinds = [info.type.name for info in found]
    assert kinds == ["File", "Directory", "Directory", "NotFound", "NotFound", "Directory", "NotFound"]
    assert found[0].size == 3
    assert found[0].mtime.timestamp() == 1_700_000_000.0


def test_temporary_objects_are_not_there_for_arrow(store, fs):
    (hidden,) = [name for name in store._space.objects if "tmp" in name]
    assert fs.get_file_info(hidden).type == pafs.FileType.NotFound


@pytest.mark.parametrize(
    ("base", "recursive", "names"),
    [
        ("", False, ["d", "dd", "top"]),
        ("", True, ["d", "d/a", "d/e", "d/e/b", "dd", "dd/c", "top"]),
        ("d", False, ["d/a", "d/e"]),
        ("d", True, ["d/a", "d/e", "d/e/b"]),
        ("d/", True, ["d/a", "d/e", "d/e/b"]),
        ("dd", True, ["dd/c"]),
    ],
)
def test_selectors(fs, base, recursive, names):
    found = fs.get_file_info(pafs.FileSelector(base, recursive=recursive))
    assert sorted(info.path for info in found) == names
    assert {info.path for info in found if info.type == pafs.FileType.Directory} <= {"d", "d/e", "dd"}


def test_a_selector_of_nothing(fs):
    with pytest.raises(FileNotFoundError):
        fs.get_file_info(pafs.FileSelector("missing"))
    assert fs.get_file_info(pafs.FileSelector("missing", allow_not_found=True)) == []


def test_streams_and_files(fs):
    with fs.open_input_stream("d/a") as stream:
        assert stream.read() == b"d/a"
    with fs.open_input_file("d/e/b") as file:
        assert (file.size(), file.read_at(2, 1)) == (5, b"/e")
    with pytest.raises(ObjectNotFound):
        fs.open_input_file("missing")


def test_a_discovered_dataset(store, fs):
    for city in ("sf", "la"):
        with store.create(f"t/city={city}/a.parquet") as sink:
            pq.write_table(pa.table({"x": [1, 2]}), sink.file)
            sink.put_if_absent()
    dataset = pads.dataset("t", filesystem=fs, partitioning="hive")
    assert sorted(dataset.to_table()["city"].to_pylist()) == ["la", "la", "sf", "sf"]


def test_nothing_is_written_through_it(fs):
    verbs = [
        lambda: fs.create_dir("x"),
        lambda: fs.delete_dir("d"),
        lambda: fs.delete_dir_contents("d"),
        lambda: fs.delete_file("top"),
        lambda: fs.move("top", "x"),
        lambda: fs.copy_file("top", "x"),
        lambda: fs.open_output_stream("x"),
        lambda: fs.open_append_stream("x"),
    ]
    for verb in verbs:
        with pytest.raises(UnsupportedError):
            verb()


@pytest.mark.parametrize("error", [StorageError("the store failed"), SimulatedCrash("dead")])
def test_errors_of_the_store_come_out_of_arrow_as_they_are(store, error):
    def fail(name):
        raise error

    fs = arrow_view(store, fail)
    with pytest.raises(type(error), match=str(error)):
        fs.open_input_file("top")
    with pytest.raises(type(error), match=str(error)):
        pads.FileSystemDataset.from_paths(
            ["top"], schema=pa.schema([("x", pa.int64())]), format=pads.ParquetFileFormat(), filesystem=fs
        ).to_table()


def test_what_is_read_from_memory_is_not_copied(store, fs):
    store.put("big", bytes(1_000_000))
    with fs.open_input_file("big") as file:
        before = pa.total_allocated_bytes()
        buffer = file.read_buffer(1_000_000)
        assert pa.total_allocated_bytes() == before
        assert buffer.size == 1_000_000


def test_views_of_one_store_are_equal(store):
    assert arrow_view(store) == arrow_view(store)
    assert arrow_view(store) != arrow_view(MemoryStore())
    assert len({ArrowHandler(store), ArrowHandler(store)}) == 1
    assert arrow_view(store).type_name == "py::lakefmt"
