"""A file of the metadata table that is gone, empty, cut or changed: nobody reads fewer rows for it, and no key is stored twice.

``LAKEFMT_HYPOTHESIS=thorough`` (`make test-all`) harms every file of every table.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.metadata.layout import METADATA_DIRECTORY, parse_metadata_file
from lakefmt._core.storage import ObjectStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt.errors import CorruptFile, LakefmtError

THOROUGH = os.environ.get("LAKEFMT_HYPOTHESIS") == "thorough"
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.record.index.max.filegroup.count": 2,
    "hoodie.metadata.compact.max.delta.commits": 5,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
}
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64())])
#: Table type and version, index, pairs of commits: with four of them the metadata table has been compacted.
TABLES = [
    ("cow", 9, "record", 2),
    ("mor", 9, "bloom", 4),
    ("cow", 6, "record", 2),
    ("mor", 6, "record", 4),
    ("mor", 8, "global_bloom", 2),
]
NUMBERS = itertools.count()
Rows = list[tuple[str, str, int]]


def rows(first: int, last: int, v: int) -> pa.Table:
    ids = range(first, last)
    cities = [("sf", "oslo")[n % 2] for n in ids]
    return pa.table({"id": [f"k{n}" for n in ids], "city": cities, "v": [v + n for n in ids]}, SCHEMA)


def made(table_type: str, version: int, index: str, pairs: int) -> MemoryStore:
    """Return a table with every index of its version."""
    indexes: list[object] = ["column_stats", "bloom_filters", {"kind": "record_index"}]
    if version > 6:
        indexes += ["partition_stats", {"kind": "secondary_index", "columns": ["v"]}]
    store = MemoryStore(f"lost-files-{next(NUMBERS)}")
    table = lakefmt.create_table(
        store.url,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type=table_type,
        table_version=version,
        index=index,
        indexes=indexes,
        options=OPTIONS,
    )
    for n in range(pairs):
        table.upsert(rows(0, 4, 100 * n))
        table.insert(rows(4 + 2 * n, 6 + 2 * n, 100 * n), options={"hoodie.parquet.small.file.limit": 0})
    table.delete(["k4"])
    return store


def copied(store: ObjectStore) -> MemoryStore:
    copy = MemoryStore(f"lost-files-{next(NUMBERS)}")
    for item in store.list():
        copy.put(item.name, store.read(item.name))
    return copy


def opened(store: MemoryStore, **options: object) -> lakefmt.Table:
    return lakefmt.open_table(store.url, options={**OPTIONS, **options})


def content(table: lakefmt.Table, condition: str | None = None) -> Rows:
    return sorted((row["id"], row["city"], row["v"]) for row in table.read(filter=condition).to_pylist())


def files_of(store: ObjectStore) -> list[str]:
    """The base files and logs of the metadata table."""
    names = (info.name for info in store.list(METADATA_DIRECTORY))
    return sorted(name for name in names if parse_metadata_file(name.rpartition("/")[2]) is not None)


def harms(data: bytes, dice: random.Random) -> Iterator[tuple[str, bytes | None]]:
    """Yield what may become of a file; None: it is gone."""
    yield "gone", None
    yield "empty", b""
    yield "torn", data[: dice.randrange(1, len(data))]
    yield "without its last byte", data[:-1]
    changed = bytearray(data)
    changed[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    yield "changed", bytes(changed)


def harmed(store: ObjectStore, name: str, data: bytes | None) -> MemoryStore:
    copy = copied(store)
    if data is None:
        copy.delete([name])
    else:
        copy.put(name, data)
    return copy


FILTERS = (None, "v >= 100", "v = 101", "id = 'k1'")


@pytest.mark.slow
@pytest.mark.timeout(3000 if THOROUGH else 150)
def test_law_whatever_a_file_loses_rows_are_those_of_storage(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.CRITICAL)
    dice = random.Random(7)
    for table in TABLES if THOROUGH else TABLES[:1]:
        store = made(*table)
        expected = {each: content(opened(store, **{"hoodie.metadata.enable": False}), each) for each in FILTERS}
        updated = copied(store)
        opened(updated).upsert(rows(0, 6, 9000))
        after = content(opened(updated, **{"hoodie.metadata.enable": False}))
        names = files_of(store)
        for name in names if THOROUGH else dice.sample(names, 4):
            for how, data in harms(store.read(name), dice):
                _check_rows(harmed(store, name, data), expected, after, f"{table} {name} {how}")


def _check_rows(store: MemoryStore, expected: dict[str | None, Rows], after: Rows, where: str) -> None:
    for condition, right in expected.items():
        found = _or_error(partial(content, opened(store), condition))
        assert found in (right, "refused"), (where, condition)
    if _or_error(lambda: opened(store).upsert(rows(0, 6, 9000))) != "refused":
        assert content(opened(store, **{"hoodie.metadata.enable": False})) == after, where
    assert _or_error(lambda: content(opened(store))) in (after, expected[None], "refused"), where


def _or_error(call: Callable[[], object]) -> object:
    try:
        return call()
    except LakefmtError:
        return "refused"


# --------------------------------------------------------------------------------------------------- the file listing


@pytest.mark.slow
@pytest.mark.parametrize(("table_type", "version"), [("cow", 9), ("mor", 6), ("mor", 8)])
def test_a_listing_that_lost_a_log_is_passed_over_named_and_made_anew(
    table_type: str, version: int, caplog: pytest.LogCaptureFixture
):
    store = made(table_type, version, "bloom", 2)
    right = content(opened(store))
    name = [each for each in files_of(store) if "/files/." in each][-2]
    for data in (None, b"", store.read(name)[:-5]):
        lost = harmed(store, name, data)
        caplog.clear()
        assert content(opened(lost)) == right
        assert "storage is listed" in caplog.text
        (finding,) = opened(lost).check().findings
        assert (finding.kind.value, finding.where) == ("metadata_table", f"{METADATA_DIRECTORY}/files")
        assert name in finding.what
        assert opened(lost).repair(opened(lost).check().plan).is_clean
        caplog.clear()
        assert content(opened(lost)) == right
        assert not caplog.text


@pytest.mark.slow
def test_writes_go_on_beside_a_damaged_listing_and_it_is_never_compacted(caplog: pytest.LogCaptureFixture):
    store = made("cow", 9, "bloom", 2)
    name = [each for each in files_of(store) if "/files/." in each][-2]
    store.delete([name])
    for n in range(8):
        assert opened(store).upsert(rows(0, 6, 1000 * n)).num_inserts == (n == 0)  # k4 was deleted
    assert "is not compacted" in caplog.text
    assert len(content(opened(store))) == 8
    assert [each.where for each in opened(store).check("full").findings] == [f"{METADATA_DIRECTORY}/files"]


def without_newest_deltacommit(store: MemoryStore, *, rolled_back: bool) -> None:
    """Take the newest commit away from the metadata table: its completed file alone, or all that there is of it."""
    names = [item.name for item in store.list(METADATA_DIRECTORY)]
    stems = {name: name.rpartition("/")[2].partition(".")[0].partition("_")[0] for name in names}
    deltas = {stems[name] for name in names if "/.hoodie/" in name and ".deltacommit" in name}
    newest = max(time for time in deltas if time.isdecimal() and not time.startswith("0000"))
    own = [name for name in names if stems[name] == newest and "/.hoodie/" in name]
    if rolled_back:
        logs = [name for name in names if f"_{newest}.log." in name]  # in version 6 logs are named by their base file
    else:
        own, logs = [name for name in own if not name.endswith(("requested", "inflight"))], []
    store.delete([*own, *logs])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table_type", "version", "rolled_back"), [("cow", 6, False), ("cow", 8, True), ("mor", 8, False), ("mor", 9, True)]
)
def test_a_metadata_table_that_lacks_a_commit_is_passed_over_and_never_compacted(
    table_type: str, version: int, rolled_back: bool, caplog: pytest.LogCaptureFixture
):
    """A commit that was rolled back there and not in the data table, or recorded half: its rows are read, no key comes twice."""
    store = made(table_type, version, "bloom", 2)
    opened(store).upsert(rows(20, 22, 5))
    right = content(opened(store, **{"hoodie.metadata.enable": False}))
    without_newest_deltacommit(store, rolled_back=rolled_back)
    assert content(opened(store)) == right
    assert "has no deltacommit of the commit" in caplog.text
    archives = {"hoodie.archive.automatic": True, "hoodie.keep.min.commits": 4, "hoodie.keep.max.commits": 5}
    for n in range(8):
        assert opened(store, **archives).upsert(rows(20, 23, 100 * n)).num_inserts == (n == 0)
    assert "is not compacted" in caplog.text
    assert len(content(opened(store))) == len(right) + 1
    assert {each.kind.value for each in opened(store).index.check().findings} >= {"unseen_commit"}
    caplog.clear()
    assert opened(store).index.check(repair=True).is_clean
    assert len(content(opened(store))) == len(right) + 1
    assert not caplog.text


@pytest.mark.slow
def test_the_indexes_of_a_metadata_table_that_lacks_a_commit_are_refused():
    store = made("mor", 9, "record", 2)
    opened(store).upsert(rows(20, 22, 5))
    without_newest_deltacommit(store, rolled_back=True)
    with pytest.raises(CorruptFile, match=r"has no deltacommit.*index check --repair"):
        opened(store).upsert(rows(20, 22, 6))


# ------------------------------------------------------------------------------------------------------------- the indexes


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 9])
def test_a_record_index_that_lost_a_log_stores_no_key_twice(version: int):
    store = made("cow", version, "record", 2)
    right = content(opened(store))
    logs = [each for each in files_of(store) if "/record_index/." in each and "_0-0-0" not in each]
    for name in (logs[0], logs[-1]):
        lost = harmed(store, name, None)
        with pytest.raises(LakefmtError, match=r"is gone.*index check --repair"):
            opened(lost).upsert(rows(0, 6, 9000))
        assert content(opened(lost, **{"hoodie.metadata.enable": False})) == right
        opened(lost).repair(opened(lost).check().plan)
        assert opened(lost).upsert(rows(0, 6, 9000)).num_inserts == 1  # k4 was deleted
        assert opened(lost).check("full").is_clean


@pytest.mark.slow
def test_a_log_cut_where_a_block_ends_is_seen():
    """Its blocks are whole: only the commit that wrote it tells that there were more."""
    store = made("cow", 9, "record", 1)
    opened(store).upsert(rows(0, 4, 5000))
    right = content(opened(store), "v = 5001")
    cut = 0
    for name in [each for each in files_of(store) if "/secondary_index_v/." in each]:
        data = store.read(name)
        end = data.find(b"#HUDI#", 1)
        if end > 0:
            cut += 1
            lost = harmed(store, name, data[:end])
            assert content(opened(lost), "v = 5001") == right
            assert content(opened(lost), "v = 101") == []
            assert any(name in each.what for each in opened(lost).check().findings)
    assert cut


@pytest.mark.slow
def test_what_a_check_did_not_ask_is_said():
    table = opened(made("cow", 9, "bloom", 1))
    assert "not asked: the records of files, column_stats" in str(table.check())
    assert "not asked: the records of column_stats" in str(table.check("full"))
