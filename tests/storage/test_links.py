"""Links below a table: what they lead to counts, as Hadoop has it; what they lead to is never removed with them."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.storage import LocalStore
from lakefmt.errors import UnsafePath
from lakefmt.testing.invariants import check_invariants
from lakefmt.testing.suites import listed_names
from tests.example_counts import examples
from tests.judges.compare import assert_same_multiset

NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.string()), ("country", pa.string()), ("city", pa.string()), ("n", pa.int64())])


@pytest.fixture
def root(tmp_path):
    return tmp_path / "table"


@pytest.fixture
def store(root):
    return LocalStore(root)


def rows(first: int, last: int, n: int) -> pa.Table:
    ids = range(first, last)
    columns = {"id": [f"k{i}" for i in ids], "country": ["c"] * len(ids), "city": [f"p{i % 3}" for i in ids]}
    return pa.table({**columns, "n": [n] * len(ids)}, schema=SCHEMA)


def move_away(root: Path, name: str) -> None:
    """Put a directory elsewhere and a link in its place, as people do when a disk is full."""
    partition_changed = root.parent / f"partition_changed-{next(NUMBERS)}"
    if (root / name).is_dir() and not (root / name).is_symlink():
        (root / name).rename(partition_changed)
        (root / name).symlink_to(partition_changed)


# ---------------------------------------------------------------------------------------------------------------- tables

PARTITIONS = {("city",): ["p0", "p1", "p2"], ("country", "city"): ["c", "c/p0", "c/p1"]}


@pytest.mark.slow
@pytest.mark.parametrize("partition_by", PARTITIONS, ids="-".join)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@settings(max_examples=examples(3))
@given(data=st.data())
def test_a_table_with_links_is_the_table_without(tmp_path_factory, partition_by, table_type, data):
    tmp = tmp_path_factory.mktemp("links")
    directories = [*PARTITIONS[partition_by], ".hoodie"]
    made = [
        lakefmt.create_table(
            str(tmp / name / "t"),
            schema=SCHEMA,
            record_key="id",
            partition_by=list(partition_by),
            table_type=table_type,
            properties={"hoodie.datasource.write.hive_style_partitioning": "false"},
        )
        for name in ("plain", "linked")
    ]
    linked = tmp / "linked" / "t"
    verbs = {
        "upsert": lambda table, n: table.upsert(rows(n, n + 4, n)),
        "delete": lambda table, n: table.delete([f"k{n}", f"k{n + 1}"]),
        "update": lambda table, n: table.update([("n", "<", n)], {"n": n}),
        "compact": lambda table, n: table.compact() if table_type == "mor" else None,
        "clean": lambda table, n: table.clean(options={"hoodie.clean.commits.retained": 1}),
    }
    steps = ["upsert", *data.draw(st.lists(st.sampled_from(sorted(verbs)), min_size=2, max_size=4))]
    for number, verb in enumerate(steps):
        for table in made:
            verbs[verb](table, number)
        move_away(linked, data.draw(st.sampled_from(directories)))
        assert_same_multiset(made[1].read(), made[0].read(), what=f"{verb} beside links")
    assert made[1].check("full").is_clean
    if table_type == "cow":
        check_invariants(made[1])


def linked_table(tmp_path: Path) -> lakefmt.Table:
    table = lakefmt.create_table(str(tmp_path / "t"), schema=SCHEMA, record_key="id", partition_by="city")
    table.upsert(rows(0, 6, 1))
    for name in ("city=p0", "city=p1"):
        move_away(tmp_path / "t", name)
    return table


@pytest.mark.judge_rs
def test_rows_behind_a_link_are_read(tmp_path, hudi_rs_judge):
    table = linked_table(tmp_path)
    assert_same_multiset(table.read(), rows(0, 6, 1))
    assert table.upsert(rows(0, 3, 2)).num_updates == 3
    expected = pa.concat_tables([rows(0, 3, 2), rows(3, 6, 1)])
    assert_same_multiset(table.read(), expected)
    found = hudi_rs_judge.snapshot(tmp_path / "t")
    assert_same_multiset(found, expected.cast(found.schema), what="hudi-rs")
    assert table.partitions() == ["city=p0", "city=p1", "city=p2"]
    assert table.check("full").is_clean


def test_a_dead_write_behind_a_link_is_rolled_back(tmp_path):
    table = linked_table(tmp_path)
    before = listed_names(table.client.store)
    context = lowlevel.begin_write(table)
    for assignment, batches in lowlevel.assign(context, rows(0, 6, 2)):
        lowlevel.write_files(context, assignment, batches)
    lowlevel.abort(context)
    left = [name for name in listed_names(table.client.store) if not name.startswith(".hoodie/")]
    assert left == [name for name in before if not name.startswith(".hoodie/")]


def test_a_table_that_is_a_link_is_its_target(tmp_path):
    table = linked_table(tmp_path)
    (tmp_path / "also").symlink_to(tmp_path / "t")
    also = lakefmt.open_table(str(tmp_path / "also"))
    also.upsert(rows(5, 8, 2))
    assert_same_multiset(table.read(), also.read())
    assert also.check("full").is_clean
    assert (tmp_path / "also").is_symlink()


@pytest.mark.parametrize("target", ["", "country=c"], ids=["the table", "the directory of the link"])
def test_a_link_that_leads_back_is_told(tmp_path, target):
    table = lakefmt.create_table(str(tmp_path / "t"), schema=SCHEMA, record_key="id", partition_by=["country", "city"])
    table.upsert(rows(0, 6, 1))
    loop = tmp_path / "t" / "country=c" / "loop"
    loop.symlink_to(tmp_path / "t" / target)
    for read in (table.read, table.partitions, lambda: table.check("full"), lambda: table.delete(["k0"])):
        with pytest.raises(UnsafePath, match=r"'country=c/loop' in .* remove the link"):
            read()
    loop.unlink()
    assert_same_multiset(table.read(), rows(0, 6, 1))


# ----------------------------------------------------------------------------------------------------------------- store


def test_links_are_what_they_lead_to(store, root, tmp_path):
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "b").write_bytes(b"22")
    store.put("d/a", b"1")
    (root / "d" / "link").symlink_to(outside)
    (root / "d" / "file").symlink_to(outside / "deep" / "b")
    (root / "d" / "nowhere").symlink_to(outside / "missing")
    (root / "d" / "itself").symlink_to(root / "d" / "itself")
    assert listed_names(store) == ["d/a", "d/file", "d/link/deep/b"]
    assert listed_names(store, "d", recursive=False) == ["d/a", "d/file"]
    assert store.list_directories("d") == ["d/link"]
    assert store.list_directories("d/link") == ["d/link/deep"]
    assert store.read("d/link/deep/b") == store.read("d/file") == b"22"
    assert store.info("d/nowhere") is None


def test_nothing_behind_a_link_is_removed_with_it(store, root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"x")
    store.put("d/a", b"1")
    (root / "d" / "link").symlink_to(outside)
    (root / "d" / "file").symlink_to(outside / "precious")
    (root / "whole").symlink_to(outside)
    store.delete(["d/file"])
    store.delete_tree("whole")
    store.delete_tree("d")
    assert (outside / "precious").read_bytes() == b"x"
    assert listed_names(store) == []


def test_an_object_behind_a_link_is_removed_by_its_name(store, root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    store.put("a", b"1")
    (root / "link").symlink_to(outside)
    store.put("link/mine", b"2")
    store.delete(["link/mine"])
    assert list(outside.iterdir()) == []
    assert (root / "link").is_symlink()


@pytest.mark.parametrize("way", ["base", "parent", "ring"])
def test_links_in_a_ring_end_in_an_error(store, root, way):
    store.put("a/x", b"1")
    store.put("b/y", b"1")
    if way == "ring":
        (root / "a" / "to-b").symlink_to(root / "b")
        (root / "b" / "to-a").symlink_to(root / "a")
    else:
        (root / "a" / "up").symlink_to(root if way == "base" else root / "a")
    with pytest.raises(UnsafePath, match="leads to a directory above itself"):
        list(store.list())
    if way != "ring":
        with pytest.raises(UnsafePath):
            store.list_directories("a")
    assert store.remove_leftovers(2**40) == 0, "sweeping passes over it"


def test_leftovers_behind_links_are_swept(store, root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    store.put("a", b"1")
    (root / "link").symlink_to(outside)
    store.leave_temporary_object("link/x", b"half")
    assert len(os.listdir(outside)) == 1
    assert store.remove_leftovers(2**40) == 1
    assert os.listdir(outside) == []
