"""What one handle leaves to the next of the same process: less is read, and nothing of another metadata table is believed."""

from __future__ import annotations

import gc
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.formats.hfile_container import HFileReader
from lakefmt._core.metadata import metadata_files as memories
from lakefmt._core.metadata.layout import METADATA_DIRECTORY
from lakefmt._core.metadata.metadata_files import MetadataFileCache, WrittenGroups, handle_memory
from lakefmt._core.metadata.timeline import MetadataInstant
from lakefmt._core.storage import LocalStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.archive import HistoryStore
from tests.metadata.metadata_content import check_metadata_table
from tests.metadata.test_metadata_table import OPTIONS, SCHEMA, rows

QUIET: dict[str, object] = {
    **OPTIONS,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline": "false",
    "hoodie.metadata.compact.max.delta.commits": 30,
}


@pytest.fixture(autouse=True)
def _nothing_is_kept() -> Iterator[None]:
    memories._by_table.clear()
    yield
    memories._by_table.clear()


def make(root: Path, options: Mapping[str, object] = QUIET, version: int = 8, kind: str = "mor") -> Table:
    return lakefmt.create_table(
        str(root),
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=kind,
        table_version=version,
        options=dict(options),
    )


def opened(root: Path, options: Mapping[str, object] = QUIET) -> Table:
    return lakefmt.open_table(str(root), options=dict(options))


@contextmanager
def another_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Handles that are opened here know of no handle before them."""
    with monkeypatch.context() as patch:
        patch.setattr(memories, "_identity", lambda _store: None)
        yield


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Yield how many HFiles are opened and files and commits of the metadata table are read."""
    counts: Counter[str] = Counter()
    init, load, read, history = (
        HFileReader.__init__,
        WrittenGroups._load,
        LocalStore.read,
        HistoryStore._index_sorted_file,
    )

    def open_hfile(self: HFileReader, read_at: object, size: int, what: str) -> None:
        counts["hfiles"] += 1
        init(self, read_at, size, what)  # type: ignore[arg-type]

    def load_commit(self: WrittenGroups, instant: MetadataInstant) -> None:
        counts["commits"] += 1
        load(self, instant)

    def read_object(self: LocalStore, name: str, max_bytes: int | None = None) -> bytes:
        counts["files"] += name.startswith(METADATA_DIRECTORY)
        return read(self, name, max_bytes)

    def index_file(self: HistoryStore, name: str, size: int) -> object:
        counts["archives"] += METADATA_DIRECTORY in self.path(name)
        return history(self, name, size)

    with monkeypatch.context() as patch:
        patch.setattr(HFileReader, "__init__", open_hfile)
        patch.setattr(WrittenGroups, "_load", load_commit)
        patch.setattr(LocalStore, "read", read_object)
        patch.setattr(HistoryStore, "_index_sorted_file", index_file)
        yield counts


@pytest.mark.slow
@pytest.mark.parametrize("version", [8, 9])
def test_a_new_handle_reads_what_was_written_since(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "t", version=version).upsert(rows(0, 20, 0))
    for number in range(12):
        opened(tmp_path / "t").upsert(rows(0, 6, number))
    with counted(monkeypatch) as after:
        opened(tmp_path / "t").upsert(rows(0, 6, 20))
    with another_process(monkeypatch), counted(monkeypatch) as before:
        opened(tmp_path / "t").upsert(rows(0, 6, 21))
    check_metadata_table(opened(tmp_path / "t"))
    # The last commit's logs, one of each partition that is looked into; not those of the commits before it.
    assert after["commits"] == 0
    assert after["files"] <= 4
    assert after["hfiles"] <= 4
    assert before["files"] >= 3 * after["files"]
    assert before["hfiles"] > after["hfiles"]
    with counted(monkeypatch) as later:
        opened(tmp_path / "t").upsert(rows(0, 6, 22))
    assert later["files"] <= before["files"]


@pytest.mark.slow
def test_a_new_handle_reads_the_archive_of_the_metadata_table_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        **QUIET,
        "hoodie.metadata.compact.max.delta.commits": 3,
        "hoodie.keep.min.commits": 4,
        "hoodie.keep.max.commits": 6,
    }
    options |= {"hoodie.clean.commits.retained": 2}
    make(tmp_path / "t", options).upsert(rows(0, 20, 0))
    archives = []
    for number in range(40):
        with counted(monkeypatch) as counts:
            opened(tmp_path / "t", options).upsert(rows(0, 6, number))
        archives.append(counts["archives"])
    check_metadata_table(opened(tmp_path / "t", options))
    assert 0 < sum(archives[20:]) <= 14  # each archive once: before, 41 in as many commits


@pytest.mark.slow
@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("kind", "version"), [("cow", 6), ("mor", 6), ("cow", 8), ("mor", 8), ("mor", 9)])
@pytest.mark.parametrize("seed", range(2))
def test_handles_of_two_processes_take_turns(
    kind: str, version: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    options = {
        **OPTIONS,
        "hoodie.metadata.compact.max.delta.commits": 4,
        "hoodie.metadata.index.bloom.filter.enable": "false",
    }
    make(tmp_path / "t", options, version, kind).upsert(rows(0, 8, 0))
    stored = {f"k{number}": 0 for number in range(8)}
    kept: list[Table] = []

    def change(ts: int) -> None:
        table = dice.choice(kept) if kept and dice.random() < 0.3 else opened(tmp_path / "t", options)
        kept[:] = [*kept[-2:], table]
        first = dice.randrange(12)
        if dice.random() < 0.2:
            table.delete([f"k{first}"])
            stored.pop(f"k{first}", None)
        else:
            table.upsert(rows(first, first + 4, ts))
            stored.update({f"k{number}": ts for number in range(first, first + 4)})

    for ts in range(1, 12):
        if dice.random() < 0.4:
            alive = list(kept)
            kept.clear()
            with another_process(monkeypatch):
                change(ts)
            kept[:] = alive
        else:
            change(ts)
        if version > 6 and dice.random() < 0.1:  # the metadata table is dropped, and the next write makes it anew
            opened(tmp_path / "t", {**options, "hoodie.metadata.enable": "false"}).upsert(rows(0, 1, ts))
            stored["k0"] = ts
        found = opened(tmp_path / "t", options).read(["id", "ts"]).to_pylist()
        assert {row["id"]: row["ts"] for row in found} == stored
        assert len(found) == len(stored)
    opened(tmp_path / "t", options).upsert(rows(0, 1, 20))
    check_metadata_table(opened(tmp_path / "t", options))


def test_a_table_in_the_place_of_another_is_read_anew(tmp_path: Path) -> None:
    """Copies keep the times of files; names and sizes are equal, too."""
    for name, shift in (("one", 0), ("two", 1)):
        make(tmp_path / name).upsert(rows(0, 20, 0, shift))
    place = tmp_path / "place"
    shutil.copytree(tmp_path / "one", place)
    assert opened(place).read().num_rows == 20
    first = handle_memory(opened(place).client)
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "two", place)
    again = opened(place)
    assert again.read(filter="id = 'k3'").to_pylist() == opened(tmp_path / "two").read(filter="id = 'k3'").to_pylist()
    assert handle_memory(again.client) is not first
    again.upsert(rows(0, 3, 5, 1))
    check_metadata_table(again)


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    for number in range(memories._MOST_TABLES + 2):
        make(tmp_path / str(number)).upsert(rows(0, 4, 0))
    assert len(memories._by_table) == memories._MOST_TABLES
    table = opened(tmp_path / "5")
    table.read(filter="id = 'k1'")
    small = handle_memory(table.client)
    del table
    gc.collect()
    table = opened(tmp_path / "5")
    assert handle_memory(table.client) is small
    small.of(MetadataFileCache)._bytes = memories._MOST_BYTES + 1
    del table
    gc.collect()
    assert handle_memory(opened(tmp_path / "5").client) is not small


def test_a_store_that_cannot_tell_objects_apart_shares_nothing() -> None:
    tables = [lakefmt.create_table("memory://alone", schema=SCHEMA, record_key="id", options=dict(QUIET))]
    tables[0].upsert(rows(0, 4, 0))
    tables.append(lakefmt.open_table("memory://alone", options=dict(QUIET)))
    assert handle_memory(tables[0].client) is not handle_memory(tables[1].client)
    assert not memories._by_table


def _written_in_a_fork(path: str, sent: pa.Table) -> int:
    opened(Path(path)).upsert(sent)
    return os.getpid()


def test_a_forked_process_begins_anew(tmp_path: Path) -> None:
    make(tmp_path / "t").upsert(rows(0, 8, 0))
    table = opened(tmp_path / "t")
    handle_memory(table.client)._lock.acquire()  # as a thread of the parent may hold it
    with get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_written_in_a_fork, (str(tmp_path / "t"), rows(0, 2, 3))).get(60) != os.getpid()
    handle_memory(table.client)._lock.release()
    assert table.read(filter="ts = 3").num_rows == 2
    check_metadata_table(opened(tmp_path / "t"))
