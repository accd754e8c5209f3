"""Test suites for implementations of a protocol, to be inherited.

Subclass :class:`StoreSuite` with a fixture ``store`` that returns an empty store to test the
contract of :mod:`lakefmt._core.storage.api`. Needs pytest; for readable failures put
``pytest.register_assert_rewrite("lakefmt.testing.suites")`` into a conftest.py above.
:func:`together` runs threads that start at the same moment and joins them all.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import TypeVar

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from lakefmt._core.storage.api import Buffer, ObjectStore, PutOutcome, SupportsTempCleanup
from lakefmt.errors import CorruptFile, InvalidInputError, ObjectNotFound, StateError, UnsafePath

__all__ = [
    "ODD_NAMES",
    "UNSAFE_NAMES",
    "StoreSuite",
    "together",
]

T = TypeVar("T")

_BEGIN_WITHIN_SECONDS = 30.0


def together(acts: list[Callable[[], T]]) -> list[T]:
    """Run every act in its own thread, all starting at the same moment, and return their results in order.

    Example:
        >>> together([lambda: 1, lambda: 2])
        [1, 2]
    """
    barrier = Barrier(len(acts))

    def run(act: Callable[[], T]) -> T:
        barrier.wait(_BEGIN_WITHIN_SECONDS)
        return act()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


# ruff: noqa: D102 - the names of tests are sentences


#: Names in use that need careful encoding.
ODD_NAMES: tuple[str, ...] = (
    "plain",
    "a/b/c/d/e",
    "city=san francisco/with space.parquet",
    " leading and trailing ",
    "50%/100%25/%2F",
    "a+b&c=d;e,f/x@y$z",
    "stars*/[brackets]?/{braces}",
    "ключ=значение/名前/é",
    "e\u0301 is not é",
    "emoji 🦆",
    "#hash/~tilde",
    "quote'\"quote",
    ".hidden/.file_20260101000000000.log.1_0-0-0",
    "-dash",
    "question?versionless=1",
)

#: Names that leave the base or are not valid.
UNSAFE_NAMES: tuple[str, ...] = (
    "",
    "/",
    "/absolute",
    "trailing/",
    "a//b",
    ".",
    "..",
    "./a",
    "a/.",
    "a/../b",
    "../a",
    "a/..",
    "nul\x00",
    "surrogate\udcff",
)

TEMPORARY_NAME = ".lakefmt-tmp-mine"


def listed_names(store: ObjectStore, prefix: str = "", *, recursive: bool = True) -> list[str]:
    """Return the sorted names of a listing, duplicates included."""
    return sorted(info.name for info in store.list(prefix, recursive=recursive))


class StoreSuite:
    """The contract of an :class:`~lakefmt._core.storage.api.ObjectStore`.

    Example:
        >>> from lakefmt._core.storage import MemoryStore
        >>> class TestMine(StoreSuite):
        ...     @pytest.fixture
        ...     def store(self):
        ...         return MemoryStore()
    """

    @pytest.fixture
    def store(self) -> ObjectStore:
        """Return an empty store, to be overridden."""
        raise NotImplementedError("override the fixture `store`")

    # --------------------------------------------------------------------------------------------------- identity

    def test_it_is_a_store(self, store: ObjectStore) -> None:
        assert isinstance(store, ObjectStore)

    def test_its_url_is_text_without_a_slash_at_the_end(self, store: ObjectStore) -> None:
        assert store.url
        assert not store.url.endswith("/")

    def test_it_is_not_pickled(self, store: ObjectStore) -> None:
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(store)

    # ------------------------------------------------------------------------------------------------------- names

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_an_odd_name_is_kept_letter_by_letter(self, store: ObjectStore, name: str) -> None:
        assert store.put_if_absent(name, b"one") is PutOutcome.DONE
        assert store.put_if_absent(name, b"two") is PutOutcome.REFUSED
        assert store.read(name) == b"one"
        assert listed_names(store) == [name]
        info = store.info(name)
        assert info is not None
        assert (info.name, info.size) == (name, 3)
        fs, prefix = store.arrow_filesystem()
        with fs.open_input_file(prefix + name) as file:
            assert file.read() == b"one"
        store.put(name, b"three")
        assert store.read(name) == b"three"
        store.delete([name])
        assert store.info(name) is None
        assert listed_names(store) == []

    @pytest.mark.parametrize("name", UNSAFE_NAMES)
    def test_an_unsafe_name_is_refused_by_every_verb(self, store: ObjectStore, name: str) -> None:
        verbs: list[Callable[[], object]] = [
            lambda: store.read(name),
            lambda: store.info(name),
            lambda: store.put(name, b""),
            lambda: store.put_if_absent(name, b""),
            lambda: store.create(name).__enter__(),
            lambda: store.delete(["fine", name]),
        ]
        if name:  # an empty prefix is the base
            verbs += [
                lambda: list(store.list(name)),
                lambda: store.list_directories(name),
                lambda: store.delete_tree(name),
                lambda: store.make_directories([name]),
            ]
        store.put("fine", b"")
        for verb in verbs:
            with pytest.raises(UnsafePath):
                verb()
        assert listed_names(store) == ["fine"]

    def test_temporary_names_are_not_for_objects(self, store: ObjectStore) -> None:
        for name in (TEMPORARY_NAME, f"a/{TEMPORARY_NAME}"):
            with pytest.raises(InvalidInputError):
                store.put(name, b"")
            with pytest.raises(InvalidInputError):
                store.put_if_absent(name, b"")

    def test_names_come_as_a_collection(self, store: ObjectStore) -> None:
        store.put("a", b"")
        with pytest.raises(InvalidInputError):
            store.delete("a")
        assert listed_names(store) == ["a"]

    # ------------------------------------------------------------------------------------------------------ reading

    def test_what_is_not_there(self, store: ObjectStore) -> None:
        for name in ("missing", "missing/deeper", "x" * 300):
            assert store.info(name) is None
            with pytest.raises(ObjectNotFound):
                store.read(name)
            with pytest.raises(ObjectNotFound):
                store.read(name, 10)

    def test_a_directory_is_no_object(self, store: ObjectStore) -> None:
        store.put("a/b", b"x")
        assert store.info("a") is None
        with pytest.raises(ObjectNotFound):
            store.read("a")
        store.delete(["a"])
        assert listed_names(store) == ["a/b"]

    def test_reading_is_bounded(self, store: ObjectStore) -> None:
        store.put("a", b"12345")
        assert store.read("a", 5) == b"12345"
        with pytest.raises(CorruptFile):
            store.read("a", 4)
        with pytest.raises(CorruptFile):
            store.read("a", 0)

    def test_an_empty_object_is_an_object(self, store: ObjectStore) -> None:
        assert store.put_if_absent("empty", b"") is PutOutcome.DONE
        assert store.put_if_absent("empty", b"") is PutOutcome.REFUSED
        assert store.read("empty") == b""
        assert store.read("empty", 0) == b""
        assert store.read("empty", 100) == b""
        assert [(info.name, info.size) for info in store.list()] == [("empty", 0)]

    def test_times_are_epoch_seconds(self, store: ObjectStore) -> None:
        store.put("a", b"")
        info = store.info("a")
        assert info is not None
        assert info.modified == 0.0 or 1.6e9 < info.modified < 1e10
        assert next(store.list()).modified == pytest.approx(info.modified, abs=2)

    # ------------------------------------------------------------------------------------------------------ writing

    def test_every_kind_of_buffer_is_written(self, store: ObjectStore) -> None:
        buffers: list[Buffer] = [b"abcd", bytearray(b"abcd"), memoryview(b"abcd"), memoryview(b"xabcdx")[1:5]]
        for number, data in enumerate(buffers):
            store.put(f"put{number}", data)
            store.put_if_absent(f"new{number}", data)
            assert store.read(f"put{number}") == store.read(f"new{number}") == b"abcd"

    def test_later_changes_of_a_buffer_change_nothing(self, store: ObjectStore) -> None:
        data = bytearray(b"before")
        store.put("a", data)
        data[:] = b"after!"
        assert store.read("a") == b"before"

    def test_durable_is_accepted(self, store: ObjectStore) -> None:
        assert store.put_if_absent("d/a", b"1", durable=True) is PutOutcome.DONE
        assert store.put_if_absent("d/a", b"2", durable=True) is PutOutcome.REFUSED
        store.put("d/b", b"3", durable=True)
        with store.create("d/c", durable=True) as sink:
            sink.file.write(b"4")
            assert sink.put_if_absent() is PutOutcome.DONE
        assert [store.read(f"d/{name}") for name in "abc"] == [b"1", b"3", b"4"]

    def test_put_replaces_by_longer_and_by_shorter(self, store: ObjectStore) -> None:
        for data in (b"x", b"longer", b"s", b""):
            store.put("a", data)
            assert store.read("a") == data
            info = store.info("a")
            assert info is not None
            assert info.size == len(data)

    def test_of_eight_that_put_if_absent_one_is_done(self, store: ObjectStore) -> None:
        if not store.capabilities.put_if_absent:
            pytest.skip("this store does not promise put-if-absent")
        for number in range(5):
            name = f"race/{number}"
            bodies = [bytes([65 + writer]) * 50_000 for writer in range(8)]
            outcomes = together([partial(store.put_if_absent, name, body) for body in bodies])
            assert sorted(outcome.value for outcome in outcomes) == ["done"] + ["refused"] * 7
            assert store.read(name) == bodies[outcomes.index(PutOutcome.DONE)]

    def test_of_eight_sinks_one_is_done(self, store: ObjectStore) -> None:
        if not store.capabilities.put_if_absent:
            pytest.skip("this store does not promise put-if-absent")

        def write(body: bytes) -> PutOutcome:
            with store.create("race") as sink:
                sink.file.write(body)
                return sink.put_if_absent()

        bodies = [bytes([65 + writer]) * 50_000 for writer in range(8)]
        outcomes = together([partial(write, body) for body in bodies])
        assert sorted(outcome.value for outcome in outcomes) == ["done"] + ["refused"] * 7
        assert store.read("race") == bodies[outcomes.index(PutOutcome.DONE)]
        assert listed_names(store) == ["race"]

    def test_nobody_sees_a_torn_object(self, store: ObjectStore) -> None:
        if not store.capabilities.put_if_absent:
            pytest.skip("this store does not promise whole objects")
        size = 200_000
        store.put("a", b"A" * size)

        def write() -> list[str]:
            for letter in b"BCDEFGHIJK":
                store.put("a", bytes([letter]) * size)
            return []

        def read() -> list[str]:
            seen = [store.read("a") for _ in range(20)]
            return [f"{len(data)} bytes of {len(set(data))} kinds" for data in seen if data != data[:1] * size]

        assert together([write, read, read]) == [[], [], []]

    def test_an_object_in_the_making_is_not_seen(self, store: ObjectStore) -> None:
        with store.create("a/b") as sink:
            sink.file.write(b"x" * 100_000)
            sink.file.flush()
            assert listed_names(store) == []
            assert store.info("a/b") is None
            assert sink.put_if_absent() is PutOutcome.DONE
            assert listed_names(store) == ["a/b"]
        assert store.read("a/b") == b"x" * 100_000

    # -------------------------------------------------------------------------------------------------------- sinks

    def test_a_sink_never_replaces(self, store: ObjectStore) -> None:
        store.put("a", b"first")
        with store.create("a") as sink:
            sink.file.write(b"second")
            assert sink.put_if_absent() is PutOutcome.REFUSED
        assert store.read("a") == b"first"
        assert listed_names(store) == ["a"]

    def test_a_sink_that_is_left_leaves_nothing(self, store: ObjectStore) -> None:
        with store.create("a") as sink:
            sink.file.write(b"x")

        def fail() -> None:
            with store.create("b") as sink:
                sink.file.write(b"x")
                raise KeyError("the writer failed")

        with pytest.raises(KeyError):
            fail()
        assert listed_names(store) == []

    def test_a_sink_counts_and_finishes_once(self, store: ObjectStore) -> None:
        with store.create("a") as sink:
            assert sink.size == 0
            sink.file.write(b"12345")
            assert sink.size == 5
            sink.put_if_absent()
            assert sink.size == 5
            with pytest.raises(StateError):
                sink.put_if_absent()
        assert store.read("a") == b"12345"

    def test_an_empty_sink_makes_an_empty_object(self, store: ObjectStore) -> None:
        with store.create("a") as sink:
            assert sink.put_if_absent() is PutOutcome.DONE
        assert store.read("a") == b""

    def test_a_writer_may_close_the_file_it_was_given(self, store: ObjectStore) -> None:
        with store.create("a") as sink:
            with pa.output_stream(sink.file) as stream:
                stream.write(b"12345")
            assert sink.size == 5
            assert sink.put_if_absent() is PutOutcome.DONE
        assert store.read("a") == b"12345"

    def test_a_big_sink(self, store: ObjectStore) -> None:
        chunk = bytes(range(256)) * 4096
        with store.create("big/one") as sink:
            for _ in range(20):
                sink.file.write(chunk)
            assert sink.size == 20 * len(chunk)
            assert sink.put_if_absent() is PutOutcome.DONE
        info = store.info("big/one")
        assert info is not None
        assert info.size == 20 * len(chunk)
        assert store.read("big/one") == chunk * 20

    # ------------------------------------------------------------------------------------------------------ listing

    def test_a_listing_stays_inside_its_directory(self, store: ObjectStore) -> None:
        for name in ("a/1", "a/b/2", "a/b/c/3", "ab/4", "a.b/5", "b/6", "top"):
            store.put(name, name.encode())
        assert listed_names(store) == ["a.b/5", "a/1", "a/b/2", "a/b/c/3", "ab/4", "b/6", "top"]
        assert listed_names(store, recursive=False) == ["top"]
        assert listed_names(store, "a") == ["a/1", "a/b/2", "a/b/c/3"]
        assert listed_names(store, "a", recursive=False) == ["a/1"]
        assert listed_names(store, "a/b") == ["a/b/2", "a/b/c/3"]
        assert listed_names(store, "a/b", recursive=False) == ["a/b/2"]
        assert listed_names(store, "top") == []
        assert listed_names(store, "missing") == []
        assert listed_names(store, "missing", recursive=False) == []
        assert {info.name: info.size for info in store.list("a")} == {"a/1": 3, "a/b/2": 5, "a/b/c/3": 7}

    def test_directories_are_those_directly_inside(self, store: ObjectStore) -> None:
        for name in ("a/1", "a/b/2", "a/b/c/3", "ab/4", "top"):
            store.put(name, b"")
        assert sorted(store.list_directories()) == ["a", "ab"]
        assert sorted(store.list_directories("a")) == ["a/b"]
        assert sorted(store.list_directories("a/b/c")) == []
        assert sorted(store.list_directories("missing")) == []

    def test_made_directories_hold_nothing(self, store: ObjectStore) -> None:
        store.make_directories(["p=1/q=2", "p=2"])
        store.make_directories(["p=1/q=2"])
        assert listed_names(store) == []
        expected = ["p=1", "p=2"] if store.capabilities.directories else []
        assert sorted(store.list_directories()) == expected
        store.put("p=1/q=2/x", b"1")
        assert listed_names(store) == ["p=1/q=2/x"]

    def test_a_listing_is_never_old(self, store: ObjectStore) -> None:
        assert listed_names(store, "d") == []
        store.put("d/a", b"1")
        assert listed_names(store, "d") == ["d/a"]
        store.put("d/b", b"1")
        assert store.list_directories() == ["d"]
        store.put("d/a", b"123")
        assert {info.name: info.size for info in store.list("d")} == {"d/a": 3, "d/b": 1}
        store.delete(["d/a"])
        assert listed_names(store, "d") == ["d/b"]
        store.delete_tree("d")
        assert listed_names(store) == []

    def test_a_listing_bears_removals_meanwhile(self, store: ObjectStore) -> None:
        names = [f"d{number % 3}/{number}" for number in range(12)]
        for name in names:
            store.put(name, b"x")
        listing = store.list()
        first = next(listing).name
        store.delete(names)
        assert set(names) >= {first, *(info.name for info in listing)}

    def test_many_writers_lose_no_name(self, store: ObjectStore) -> None:
        def write(writer: int) -> None:
            for number in range(5):
                store.put(f"w{writer}/{number}", b"x")

        together([partial(write, writer) for writer in range(4)])
        assert listed_names(store) == sorted(f"w{writer}/{number}" for writer in range(4) for number in range(5))

    def test_temporary_objects_are_hidden_until_they_are_swept(self, store: ObjectStore) -> None:
        if not isinstance(store, SupportsTempCleanup):
            pytest.skip("this store leaves no temporary objects")
        store.put("d/a", b"x")
        store.leave_temporary_object("d/b", b"half")
        store.leave_temporary_object("top", b"half")
        assert listed_names(store) == ["d/a"]
        assert store.info("d/b") is None
        assert store.remove_leftovers(0.0) == 0
        store.remove_leftovers(1e12)
        assert store.remove_leftovers(1e12) == 0
        assert store.read("d/a") == b"x"

    # ----------------------------------------------------------------------------------------------------- removing

    def test_removing_what_is_not_there_is_fine(self, store: ObjectStore) -> None:
        store.put("a", b"")
        store.delete([])
        store.delete(["missing", "a", "a", "also/missing"])
        store.delete(name for name in ("missing",))
        store.delete_tree("missing")
        assert listed_names(store) == []

    def test_stars_in_names_are_letters(self, store: ObjectStore) -> None:
        for name in ("a*", "ab", "d*/x", "dd/x", "q?", "qq"):
            store.put(name, b"")
        store.delete(["a*", "q?"])
        store.delete_tree("d*")
        assert listed_names(store) == ["ab", "dd/x", "qq"]

    def test_a_removed_tree_takes_nothing_else_along(self, store: ObjectStore) -> None:
        for name in ("a/1", "a/b/2", "ab/3", "a.b", "b/a/4"):
            store.put(name, b"")
        store.delete_tree("a")
        assert listed_names(store) == ["a.b", "ab/3", "b/a/4"]
        assert sorted(store.list_directories()) == ["ab", "b"]
        store.delete_tree("a.b")  # an object, not a directory
        assert listed_names(store) == ["a.b", "ab/3", "b/a/4"]
        store.delete_tree("")
        assert listed_names(store) == []
        store.put("again/1", b"x")
        assert store.read("again/1") == b"x"

    # -------------------------------------------------------------------------------------------------------- Arrow

    def test_arrow_reads_what_arrow_wrote(self, store: ObjectStore) -> None:
        table = pa.table({"key": [f"k{number}" for number in range(1000)], "value": pa.array(range(1000))})
        with store.create("city=sf/a b.parquet") as sink:
            pq.write_table(table, sink.file)
            assert sink.put_if_absent() is PutOutcome.DONE
        fs, prefix = store.arrow_filesystem()
        path = f"{prefix}city=sf/a b.parquet"
        assert pq.read_table(path, filesystem=fs, columns=["value"]).equals(table.select(["value"]))
        dataset = pads.FileSystemDataset.from_paths(
            [path], schema=table.schema, format=pads.ParquetFileFormat(), filesystem=fs
        )
        assert dataset.to_table(filter=pads.field("value") >= 990).num_rows == 10

    def test_arrow_reads_ranges(self, store: ObjectStore) -> None:
        store.put("a", b"0123456789")
        fs, prefix = store.arrow_filesystem()
        with fs.open_input_file(f"{prefix}a") as file:
            assert file.size() == 10
            assert file.read_at(3, 4) == b"456"
            assert file.read_at(100, 8) == b"89"
            file.seek(2)
            assert file.read(2) == b"23"

    def test_arrow_reads_nothing_from_a_cache(self, store: ObjectStore) -> None:
        fs, prefix = store.arrow_filesystem()
        path = f"{prefix}d/a"
        for data in (b"first version", b"2nd", b"a third version that is longer", b""):
            store.put("d/a", data)
            assert fs.get_file_info(path).size == len(data)
            with fs.open_input_file(path) as file:
                assert file.read() == data
        store.delete(["d/a"])
        assert fs.get_file_info(path).type == pafs.FileType.NotFound
        with pytest.raises((FileNotFoundError, ObjectNotFound)):
            fs.open_input_file(path).read()
