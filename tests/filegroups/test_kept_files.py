"""What a handle keeps of the files that it has listed: work is counted, and what others do is seen at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.filegroups import listing, model
from lakefmt._core.filegroups.listing import KeptFiles, StorageListing
from lakefmt._core.filegroups.model import FileSlice, all_slices, build_slices, parse_files
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.storage.local import LocalStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.timeline import Timeline, timeline_from_names
from lakefmt._core.values import InstantTime, PartitionPath

P = PartitionPath("p")
OPTIONS = {
    "lakefmt.durability": "none",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.clean.automatic": False,
    "hoodie.metadata.enable": False,
}


def time(number: int) -> str:
    return f"202601010000{number:05d}"


def base(number: int, group: str = "f-0", token: str = "0-0-0") -> str:
    return f"{group}_{token}_{time(number)}.parquet"


def log(number: int, version: int = 1) -> str:
    return f".f-0_{time(number)}.log.{version}_0-0-0"


def done(*numbers: int) -> Timeline:
    return timeline_from_names([f"{time(n)}_{time(n)}.commit" for n in numbers], 2)


class Counted(LocalStore):
    """Counts the files that are looked at one by one, and the listings with sizes."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.looks: list[str] = []
        self.listings = 0

    def info(self, name: str) -> ObjectInfo | None:
        self.looks.append(name.rpartition("/")[2])
        return super().info(name)

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[ObjectInfo]:
        self.listings += 1
        return super().list(prefix, recursive=recursive)

    def clear(self) -> None:
        self.looks, self.listings = [], 0


@pytest.fixture
def store(tmp_path: Path) -> Counted:
    store = Counted(tmp_path / "t")
    store.put("p/.hoodie_partition_metadata", b"")
    return store


def sizes(kept: KeptFiles, timeline: Timeline) -> dict[str, int]:
    bases, logs = kept.files(P, timeline)
    return {file.name: file.size for file in (*bases, *logs)}


def test_a_committed_file_is_looked_at_once(store: Counted) -> None:
    kept = KeptFiles(store)
    for number in (1, 2):
        store.put(f"p/{base(number)}", b"x" * number)
    assert sizes(kept, done(1, 2)) == {base(1): 1, base(2): 2}
    store.put(f"p/{base(3)}", b"xxx")
    store.put(f"p/{log(3)}", b"xxxx")
    store.put("p/readme.txt", b"")
    store.clear()
    expected = {base(1): 1, base(2): 2, base(3): 3, log(3): 4}
    assert sizes(kept, done(1, 2, 3)) == expected
    assert (sorted(store.looks), store.listings) == ([log(3), base(3)], 0)
    store.clear()
    assert sizes(kept, done(1, 2, 3)) == expected
    assert (store.looks, store.listings) == ([], 0)


def test_a_file_of_a_pending_instant_is_looked_at_each_time(store: Counted) -> None:
    """A writer of another engine writes under the name that the file will have."""
    kept = KeptFiles(store)
    store.put(f"p/{base(1)}", b"x")
    assert sizes(kept, done(1)) == {base(1): 1}
    pending = timeline_from_names(
        [f"{time(1)}_{time(1)}.commit", f"{time(2)}.commit.requested", f"{time(2)}.inflight"], 2
    )
    for size in (1, 20):
        store.put(f"p/{base(2)}", b"x" * size)
        assert sizes(kept, pending) == {base(1): 1, base(2): size}
    store.put(f"p/{base(2)}", b"x" * 30)
    assert sizes(kept, done(1, 2)) == {base(1): 1, base(2): 30}
    store.clear()
    assert sizes(kept, done(1, 2)) == {base(1): 1, base(2): 30}
    assert not store.looks


def test_logs_of_layout_1_grow(store: Counted) -> None:
    kept, timeline = KeptFiles(store), timeline_from_names([f"{time(1)}.deltacommit"], 1)
    for size in (1, 20, 30):
        store.put(f"p/{log(1)}", b"x" * size)
        assert sizes(kept, timeline) == {log(1): size}


def test_a_file_that_went_and_came_back_is_looked_at_again(store: Counted) -> None:
    kept = KeptFiles(store)
    store.put(f"p/{base(1)}", b"x")
    store.put(f"p/{base(2)}", b"x")
    assert sizes(kept, done(1, 2)) == {base(1): 1, base(2): 1}
    store.delete([f"p/{base(1)}"])
    assert sizes(kept, done(1, 2)) == {base(2): 1}
    store.put(f"p/{base(1)}", b"xx")
    assert sizes(kept, done(1, 2)) == {base(1): 2, base(2): 1}


def test_without_its_metadata_file_a_directory_is_no_partition(store: Counted) -> None:
    kept = KeptFiles(store)
    store.put(f"p/{base(1)}", b"x")
    assert sizes(kept, done(1))
    store.delete(["p/.hoodie_partition_metadata"])
    assert sizes(kept, done(1)) == {}
    assert sizes(kept, done(1)) == {}
    store.put("p/.hoodie_partition_metadata.parquet", b"x")
    assert sizes(kept, done(1)) == {base(1): 1}


def test_directories_and_change_files_are_no_data(store: Counted, tmp_path: Path) -> None:
    kept = KeptFiles(store)
    store.put(f"p/{base(1)}", b"x")
    assert sizes(kept, done(1)) == {base(1): 1}
    (tmp_path / "t" / "p" / base(2)).mkdir()
    store.put(f"p/{log(1)}.cdc", b"x")
    for _ in range(2):
        assert sizes(kept, done(1, 2)) == {base(1): 1}
    assert f"{log(1)}.cdc" not in store.looks


def test_many_new_files_are_listed_with_their_sizes(store: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_MANY_NEW_FILES", 3)
    kept = KeptFiles(store)
    store.put(f"p/{base(0)}", b"x")
    assert len(sizes(kept, done(0))) == 1
    for number in range(1, 6):
        store.put(f"p/{base(number)}", b"x" * number)
    store.clear()
    assert sizes(kept, done(*range(6))) == {base(0): 1, **{base(number): number for number in range(1, 6)}}
    assert (store.looks, store.listings) == ([], 1)


def test_what_is_kept_is_bounded(store: Counted) -> None:
    kept = KeptFiles(store, most=4)
    for partition in ("p", "q", "r"):
        store.put(f"{partition}/.hoodie_partition_metadata", b"")
        store.put(f"{partition}/{base(1)}", b"x")
        assert len(kept.files(PartitionPath(partition), done(1))[0]) == 1
    for partition, listings in (("q", 0), ("r", 0), ("p", 1)):
        store.clear()
        assert len(kept.files(PartitionPath(partition), done(1))[0]) == 1
        assert store.listings == listings
    for number in range(2, 9):
        store.put(f"p/{base(number)}", b"x")
    for _ in range(2):
        assert len(kept.files(P, done(*range(9)))[0]) == 8, "too large to be kept"


steps = st.lists(
    st.tuples(st.sampled_from(["put", "grow", "delete", "commit", "undo", "list"]), st.integers(1, 6)), max_size=40
)


@given(steps)
def test_it_tells_what_a_listing_without_memory_tells(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """Writers begin, write, commit and undo; a name does not come back with other bytes between two listings."""
    store = LocalStore(tmp_path_factory.mktemp("kept"))
    store.put("p/.hoodie_partition_metadata", b"")
    kept, committed, written = KeptFiles(store), set[int](), dict[int, bytes]()
    for step, number in steps:
        name = f"p/{base(number, group=f'f-{number % 3}')}"
        if step in ("put", "grow") and not done(*committed).is_committed(InstantTime(time(number))):
            written[number] = written.get(number, b"") + b"x"
            store.put(name, written[number])
        elif step == "commit":
            committed.add(number)
        elif step in ("delete", "undo"):
            committed.discard(number)
            store.delete([name])
        timeline = done(*committed)
        if step != "list" and number % 2:
            continue
        told = kept.files(P, timeline)
        assert {(f.name, f.size) for f in told[0]} == {(f.name, f.size) for f in StorageListing(store).files([P])[0]}


# ------------------------------------------------------------------------------------------------------- through a table


def make(folder: Path, **more: Any) -> Table:
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    lakefmt.create_table(str(folder / "t"), schema=schema, record_key="id", options=OPTIONS, **more)
    return lakefmt.open_table(str(folder / "t"), options=OPTIONS)


def rows(number: int) -> pa.Table:
    return pa.table({"id": [f"k{number}"], "v": [number]})


def counted(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> tuple[list[str], int]:
    """Return the data files that were looked at, and how many names were parsed into files, while something was done."""
    looks: list[str] = []
    parsed = [0]
    info, parse, scan = LocalStore.info, model.parse_files, LocalStore.list

    def look(self: LocalStore, name: str) -> ObjectInfo | None:
        looks.append(name)
        return info(self, name)

    def list_all(self: LocalStore, prefix: str = "", *, recursive: bool = True) -> Iterator[ObjectInfo]:
        for each in scan(self, prefix, recursive=recursive):
            looks.append(each.name)
            yield each

    def parse_all(partition: PartitionPath, objects: Any) -> Any:
        listed = list(objects)
        parsed[0] += len(listed)
        return parse(partition, listed)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "info", look)
        patch.setattr(LocalStore, "list", list_all)
        patch.setattr("lakefmt._core.filegroups.listing.parse_files", parse_all)
        work()
    return [name for name in looks if name.endswith(".parquet")], parsed[0]


def test_the_work_of_a_write_does_not_grow_with_its_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path)
    amounts = []
    for number in range(60):
        looks, parsed = counted(monkeypatch, lambda number=number: table.insert(rows(number)))
        amounts.append((len(looks), parsed))
    assert max(amounts[10:]) <= (2, 2), amounts
    assert len(table.file_groups()) == 60
    assert table.read().num_rows == 60


def test_a_file_of_another_process_is_seen_at_once(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.insert(rows(0))
    assert table.read().num_rows == 1
    program = (
        "import sys, pyarrow as pa, lakefmt; "
        "lakefmt.open_table(sys.argv[1]).upsert(pa.table({'id': ['k0', 'other'], 'v': [7, 8]}))"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "t")], check=True, timeout=120)
    assert sorted(table.read()["v"].to_pylist()) == [7, 8]
    table.upsert(pa.table({"id": ["k0", "other"], "v": [9, 10]}))
    assert sorted(table.read()["v"].to_pylist()) == [9, 10]


def test_a_commit_that_is_rolled_back_is_gone(tmp_path: Path) -> None:
    table, other = make(tmp_path), lakefmt.open_table(str(tmp_path / "t"), options=OPTIONS)
    table.insert(rows(0))
    undone = table.insert(rows(1)).instant
    assert table.read().num_rows == 2
    assert undone is not None
    other.rollback(undone)
    assert table.read()["v"].to_pylist() == [0]
    table.insert(rows(2))
    assert sorted(table.read()["v"].to_pylist()) == [0, 2]
    assert table.check().is_clean


# -------------------------------------------------------------------------------------------------------------- slices


def newest(found: list[FileSlice]) -> dict[tuple[str, str], FileSlice]:
    latest: dict[tuple[str, str], FileSlice] = {}
    for each in found:
        group = (each.partition, each.file_id)
        if group not in latest or latest[group].instant < each.instant:
            latest[group] = each
    return latest


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from(["f-0", "g-0", "h-0"]), st.sampled_from(["0-0-0", "1-0-0"])),
        unique=True,
    ),
    st.sets(st.integers(1, 5)),
    st.sets(st.sampled_from(["f-0", "g-0"])),
)
def test_slices_without_logs_are_the_newest_of_all_slices(
    files: list[tuple[int, str, str]], committed: set[int], hidden: set[str]
) -> None:
    bases, _ = parse_files(P, [ObjectInfo(f"p/{base(n, group, token)}", n) for n, group, token in files])
    timeline = done(*committed)
    replaced = {(P, group): time(9) for group in hidden}
    expected = newest(all_slices(bases, [], timeline))
    assert build_slices(bases, [], timeline, replaced) == [  # type: ignore[arg-type]
        expected[group] for group in sorted(expected) if group not in replaced
    ]
