"""A table in memory of which one object is damaged, read through the face."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa

from lakefmt import create_table, open_table
from lakefmt._core.storage.memory import MemoryStore
from lakefmt.testing.multiset import multiset_difference
from tests.fuzz.seeds import DATA, TIMELINE
from tests.read.archiving import archive

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
OPTIONS = {"lakefmt.write.threads": 1, "lakefmt.durability": "none"}
#: Requested and begun by somebody who is silent: readers pass over it.
PENDING = "20990101000000000"
#: What a writer of Spark plans to write.
_PROFILE = TIMELINE / "v8-1.0.2-commit-inflight.avro"


@dataclass(frozen=True)
class Lake:
    """The objects of a table, and what is read of it when they are whole."""

    objects: Mapping[str, bytes]
    reads: tuple[Callable[[str], pa.Table], ...]


def _rows(first: int, last: int, n: int) -> pa.Table:
    ids = [f"k{number}" for number in range(first, last)]
    return pa.table(
        {"id": ids, "city": [("oslo", "lima")[len(i) % 2] for i in ids], "n": [n] * len(ids)}, schema=SCHEMA
    )


def newest(url: str) -> pa.Table:
    """Read the newest snapshot."""
    return open_table(url).read()


def _written(version: int) -> Lake:
    """Return a table of three commits, the first archived, and a fourth one that somebody has begun."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "t"
        table = create_table(
            str(root), schema=SCHEMA, record_key="id", partition_by="city", table_version=version, options=OPTIONS
        )
        first = table.insert(_rows(8, 14, 1)).instant
        table.upsert(_rows(10, 16, 2))
        table.upsert(_rows(9, 11, 3))
        archive(root, 1)
        timeline = root / ".hoodie" / ("timeline" if version > 6 else "")
        for end in ("commit.requested", "inflight"):
            (timeline / f"{PENDING}.{end}").write_bytes(_PROFILE.read_bytes())
        objects = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return Lake(objects, (newest, lambda url: open_table(url).read(as_of=first)))


@cache
def lake(name: str) -> Lake:
    """Return a table: ``written`` by lakefmt and of a version, or a real one by its name."""
    if name.startswith("written"):
        return _written(int(name[-1]))
    (packed,) = DATA.glob(f"*/{name}.zip")
    with zipfile.ZipFile(packed) as real:
        whole = {
            each.partition("/")[2]: real.read(each) for each in real.namelist() if not each.endswith(("/", ".crc"))
        }
    return Lake(whole, (newest,))


def _objects(store: MemoryStore) -> dict[str, bytes]:
    return {item.name: store.read(item.name) for item in store.list()}


@cache
def answers(name: str) -> list[pa.Table]:
    """Return what is read of the whole table."""
    return [read(url) for read, url in ((read, put(name, {})) for read in lake(name).reads)]


def put(name: str, damage: Mapping[str, bytes]) -> str:
    """Put the table on a fresh store, some of its objects damaged; return its address."""
    MemoryStore("fuzz").delete_tree("t")
    store = MemoryStore("fuzz/t")
    for each, data in {**lake(name).objects, **damage}.items():
        store.put(each, data)
    return "memory://fuzz/t"


def read_damaged(name: str, damage: Mapping[str, bytes]) -> list[str]:
    """Read a table with damaged objects in every way; return what differs, per way ("" for the right rows).

    Raises:
        LakefmtError: as it should be.
        AssertionError: reading changed something on the store.
    """
    url = put(name, damage)
    before = {**lake(name).objects, **damage}
    try:
        found = [read(url) for read in lake(name).reads]
    finally:
        after = _objects(MemoryStore("fuzz/t"))
        changed = sorted(each for each in before.keys() | after.keys() if before.get(each) != after.get(each))
        assert not changed, f"reading changed {changed}"
    return [
        "" if got.equals(right) else multiset_difference(right, got) or "columns"
        for got, right in zip(found, answers(name), strict=True)
    ]
