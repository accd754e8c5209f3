"""Tables to damage, and the damage: each function breaks one thing and says what a check must name."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lakefmt
from lakefmt._core.check.findings import Kind
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.bloom_filter import BloomFilter
from lakefmt._core.formats.parquet.base_file import (
    BLOOM_KEY,
    BLOOM_TYPE_KEY,
    MAX_KEY,
    MIN_KEY,
    BaseFileWriter,
    key_range,
)
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body, encode_body, encode_json_commit
from lakefmt._core.values import FILE_NAME, PARTITION_PATH, RECORD_KEY
from lakefmt.testing.stores import Effect, Fault, FaultMode, FaultStore, SimulatedCrash

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
CITIES = ("sf", "oslo", "são paulo")
OPTIONS: dict[str, object] = {
    "lakefmt.write.threads": 1,
    "lakefmt.durability": "none",
    "hoodie.client.heartbeat.tolerable.misses": 0,
    # Several file groups in each partition.
    "hoodie.parquet.small.file.limit": 0,
}
VERSIONS = (6, 8, 9)
STAT_KEY = "lakefmt.write_stat"
NUMBERS = itertools.count()


def rows(first: int, last: int, ts: int) -> pa.Table:
    numbers = range(first, last)
    return pa.table(
        {
            "id": [f"k{n:03d}" for n in numbers],
            "city": [CITIES[n % 3] for n in numbers],
            "ts": [ts] * len(numbers),
            "v": [n * ts / 8 for n in numbers],
        },
        schema=SCHEMA,
    )


def new_table(name: str, version: int, **more: Any) -> Table:
    """A table in memory under a name, partitioned by city."""
    layout: dict[str, Any] = {"schema": SCHEMA, "record_key": "id", "partition_by": "city", "ordering": "ts"}
    return lakefmt.create_table(f"memory://{name}", table_version=version, **{"options": OPTIONS, **layout, **more})


def objects_of(name: str) -> dict[str, bytes]:
    """All objects of a table in memory."""
    store = MemoryStore(name)
    return {item.name: store.read(item.name) for item in store.list()}


@functools.cache
def _objects(version: int, index: str) -> dict[str, bytes]:
    """The objects of a table with three partitions, two groups in each, of several slices and of one."""
    name = f"check-original-{version}-{index}"
    table = new_table(name, version, index=index)
    table.upsert(rows(0, 18, ts=1))
    table.upsert(rows(12, 30, ts=2))
    table.upsert(rows(0, 6, ts=3))
    table.delete(["k005"])
    return objects_of(name)


@dataclass
class Scene:
    """A table of its own, in memory, whose objects were written long ago."""

    name: str
    version: int

    @property
    def store(self) -> MemoryStore:
        return MemoryStore(self.name, now=lambda: 1.0)

    def open(self, plan: Callable[[Effect], Fault | None] | None = None) -> Table:
        store = self.store if plan is None else FaultStore(self.store, plan)
        return Table(TableClient(store, OPTIONS))

    def over(self, plan: Callable[[Effect], Fault | None]) -> tuple[TableClient, FaultStore]:
        store = FaultStore(self.store, plan)
        return TableClient(store, OPTIONS), store

    def files(self) -> list[BaseFile]:
        """The newest file of every group."""
        return [piece.base for piece in self.open().file_groups() if piece.base is not None]

    def groups(self) -> dict[tuple[str, str], list[str]]:
        """The paths of every group's files, oldest first."""
        found: dict[tuple[str, str], list[str]] = {}
        for item in sorted(self.store.list(), key=lambda o: o.name.rpartition("_")[2]):
            partition, _, last = item.name.rpartition("/")
            if last.endswith(".parquet") and not partition.startswith(".hoodie"):
                found.setdefault((partition, last.partition("_")[0]), []).append(item.name)
        return found

    def dump(self, root: Path) -> Path:
        """The table on disk, for judges."""
        for item in self.store.list():
            target = root / item.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self.store.read(item.name))
        return root

    def listed(self) -> dict[str, bytes]:
        return objects_of(self.name)

    def put_back(self, objects: dict[str, bytes]) -> Scene:
        """Make the table as it was."""
        self.store.delete_tree("")
        for name, data in objects.items():
            self.store.put(name, data)
        return self


def scene(version: int = 8, index: str = "bloom") -> Scene:
    """A sound table to damage."""
    return Scene(f"check-{next(NUMBERS)}", version).put_back(_objects(version, index))


@dataclass(frozen=True)
class Damage:
    """What a check must say after something was broken.

    Attributes:
        found: kind and place of every finding.
        loses: whether mending it needs a yes.
        rows: the table's rows after the repair; None: those before the damage.
        level: the level whose findings are exactly these.
        mendable: whether a repair mends it.
        scars: whether older slices stay damaged behind the new ones.
    """

    found: set[tuple[Kind, str]]
    loses: bool = False
    rows: pa.Table | None = None
    level: str = "full"
    mendable: bool = True
    scars: bool = False


Sabotage = Callable[[Scene, Callable[[list[Any]], Any]], Damage]
SABOTAGE: dict[str, Sabotage] = {}


def sabotage(function: Sabotage) -> Sabotage:
    SABOTAGE[function.__name__] = function
    return function


# ------------------------------------------------------------------------------------------------------- bytes of files


def tamper(scene: Scene, path: str, change: Callable[[pa.Table, dict[str, str]], pa.Table]) -> None:
    """Write a base file with other rows or footers, and its commit so that it agrees: a writer with a bug."""
    data = scene.store.read(path)
    file = pq.ParquetFile(io.BytesIO(data))
    footers = {k.decode(): v.decode() for k, v in (file.metadata.metadata or {}).items() if k != b"ARROW:schema"}
    table = change(file.read(), footers)
    if STAT_KEY in footers:
        footers[STAT_KEY] = json.dumps({**json.loads(footers[STAT_KEY]), "rows": table.num_rows})
    sink = io.BytesIO()
    writer = BaseFileWriter(sink, table.schema)
    writer.write(table)
    writer.close(footers)
    new = sink.getvalue()
    scene.store.put(path, new)
    edit_commit(
        scene,
        path,
        lambda stat: stat.update(numWrites=table.num_rows, fileSizeInBytes=len(new), totalWriteBytes=len(new)),
    )


def refoot(footers: dict[str, str], keys: pa.ChunkedArray) -> None:
    """Give footers the filter and the range of keys."""
    bloom = BloomFilter.sized(1000, 1e-9)
    bloom.add(keys)
    low, high = key_range(keys)
    assert low is not None
    assert high is not None
    footers |= {BLOOM_KEY: bloom.encode(), BLOOM_TYPE_KEY: bloom.type_code, MIN_KEY: low, MAX_KEY: high}


def edit_commit(scene: Scene, path: str, change: Callable[[dict[str, Any]], object]) -> str:
    """Change what the commit of a file says about it; returns the commit's file."""
    state = scene.open().client.load()
    for instant in state.timeline.commits:
        name = f"{state.config.timeline_directory}/{instant.file_name}"
        data = scene.store.read(name)
        kind = BodyKind.REPLACE_COMMIT if instant.action is Action.REPLACE_COMMIT else BodyKind.COMMIT
        record: Any = decode_body(kind, data)
        stats = [s for part in record["partitionToWriteStats"].values() for s in part if s["path"] == path]
        if stats:
            change(stats[0])
            new = encode_json_commit(record) if data.lstrip()[:1] == b"{" else encode_body(kind, record)
            scene.store.put(name, new)
            return name
    raise AssertionError(f"no commit names {path}")


def with_column(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))


def another(table: pa.Table, name: str, value: str) -> pa.Table:
    """The table with another value in the first row of a column."""
    return with_column(table, name, [value, *table.column(name).to_pylist()[1:]])


# ------------------------------------------------------------------------------------------------- what nobody asks for


@sabotage
def orphan_file(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    file = choose(scene.files())
    newest = scene.open().client.load().timeline.highest_time
    name = f"{file.partition}/{file.file_id}_9-9-9_{int(str(newest)) + 5}.parquet"
    scene.store.put(name, scene.store.read(file.path))
    return Damage({(Kind.ORPHAN_FILE, name)}, level="full")


@sabotage
def orphan_markers(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    time = choose([i.time for i in scene.open().client.load().timeline.commits])
    scene.store.put(f".hoodie/.temp/{time}/city=sf/x.parquet.marker.CREATE", b"")
    return Damage({(Kind.ORPHAN_MARKERS, f".hoodie/.temp/{time}")})


@sabotage
def orphan_heartbeat(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    time = choose([i.time for i in scene.open().client.load().timeline.commits])
    scene.store.put(f".hoodie/.heartbeat/{time}", b"")
    return Damage({(Kind.ORPHAN_HEARTBEAT, f".hoodie/.heartbeat/{time}")})


@sabotage
def orphan_saved_write(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    time = choose([i.time for i in scene.open().client.load().timeline.commits])
    scene.store.put(f".hoodie/.lakefmt/writes/{time}.json", b"{}")
    return Damage({(Kind.ORPHAN_SAVED_WRITE, f".hoodie/.lakefmt/writes/{time}")})


@sabotage
def stray_group(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    file = choose(scene.files())
    name = f"{file.partition}/00000000-stray-0_9-9-9_{file.instant}.parquet"
    scene.store.put(name, scene.store.read(file.path))
    return Damage({(Kind.STRAY_FILE, name)}, loses=True, level="fast")


@sabotage
def stray_attempt(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    file = choose(scene.files())
    name = f"{file.partition}/{file.file_id}_9-9-9_{file.instant}.parquet"
    scene.store.put(name, scene.store.read(file.path))
    return Damage({(Kind.STRAY_FILE, name)}, loses=True, level="fast")


@sabotage
def shadowed_attempt(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    file = choose([f for f in scene.files() if f.write_token > "0-0-0"])
    name = f"{file.partition}/{file.file_id}_0-0-0_{file.instant}.parquet"
    scene.store.put(name, scene.store.read(file.path))
    return Damage({(Kind.ORPHAN_FILE, name)})


# -------------------------------------------------------------------------------------------------- what is not there


@sabotage
def missing_newest(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    path = choose([paths[-1] for paths in scene.groups().values() if len(paths) > 1])
    scene.store.delete([path])
    return Damage({(Kind.MISSING_FILE, path)}, loses=True, rows=scene.open().read())


@sabotage
def missing_only(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    path = choose([paths[0] for paths in scene.groups().values() if len(paths) == 1])
    scene.store.delete([path])
    return Damage({(Kind.MISSING_FILE, path)}, loses=True, rows=scene.open().read())


@sabotage
def missing_older(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    older = [path for paths in scene.groups().values() for path in reversed(paths[:-1])]
    path = choose(sorted(older, key=lambda path: path not in {p[1] for p in scene.groups().values() if len(p) > 2}))
    scene.store.delete([path])
    return Damage({(Kind.MISSING_FILE, path)}, loses=True)


@sabotage
def partition_metadata(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    place = choose(sorted({f.partition for f in scene.files()}))
    scene.store.delete([f"{place}/.hoodie_partition_metadata"])
    return Damage({(Kind.PARTITION_METADATA, place)})


# ------------------------------------------------------------------------------------------------ what cannot be read


def _cut(scene: Scene, path: str) -> None:
    data = scene.store.read(path)
    scene.store.put(path, data[: len(data) // 2])


def spoil_pages(scene: Scene, path: str, name: str) -> None:
    """Damage the pages of one column of a file."""
    data = bytearray(scene.store.read(path))
    metadata = pq.ParquetFile(io.BytesIO(bytes(data))).metadata.row_group(0)
    column = next(c for c in map(metadata.column, range(metadata.num_columns)) if c.path_in_schema == name)
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + 8] = bytes(255 for _ in range(8))
    scene.store.put(path, bytes(data))


def _without(scene: Scene, *paths: str) -> pa.Table:
    """The rows when these files are not there."""
    kept = {path: scene.store.read(path) for path in paths}
    scene.store.delete(paths)
    found = scene.open().read()
    for path, data in kept.items():
        scene.store.put(path, data)
    return found


@sabotage
def cut_newest(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    path = choose([paths[-1] for paths in scene.groups().values() if len(paths) > 1])
    found = _without(scene, path)
    _cut(scene, path)
    return Damage({(Kind.CORRUPT_FILE, path)}, loses=True, rows=found)


@sabotage
def cut_only(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    path = choose([paths[0] for paths in scene.groups().values() if len(paths) == 1])
    found = _without(scene, path)
    _cut(scene, path)
    return Damage({(Kind.CORRUPT_FILE, path)}, loses=True, rows=found)


@sabotage
def cut_older(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    path = choose([paths[0] for paths in scene.groups().values() if len(paths) > 1])
    _cut(scene, path)
    return Damage({(Kind.CORRUPT_FILE, path)}, loses=True)


@sabotage
def key_pages(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    path = choose([paths[-1] for paths in scene.groups().values() if len(paths) > 1])
    found = _without(scene, path)
    spoil_pages(scene, path, RECORD_KEY)
    return Damage({(Kind.CORRUPT_FILE, path)}, loses=True, rows=found)


@sabotage
def commit_body(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    state = scene.open().client.load()
    instant = choose(list(state.timeline.commits))
    name = f"{state.config.timeline_directory}/{instant.file_name}"
    _cut(scene, name)
    return Damage({(Kind.CORRUPT_INSTANT, name)}, mendable=False)


# ------------------------------------------------------------------------------------------------------------- instants


def _die(scene: Scene, act: Callable[[Table], object], at: Callable[[Effect], bool], mode: FaultMode) -> None:
    with contextlib.suppress(SimulatedCrash):
        act(scene.open(lambda effect: Fault(mode) if at(effect) else None))
        raise AssertionError("nobody died")


def _pending(scene: Scene) -> set[tuple[Kind, str]]:
    state = scene.open().client.load()
    return {(Kind.STUCK_INSTANT, f"{state.config.timeline_directory}/{i.file_name}") for i in state.timeline.pending}


@sabotage
def stuck_inflight(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    at = choose([1, 2, 3])
    seen = itertools.count(1)

    def dies(effect: Effect) -> bool:
        return effect.name.endswith(".parquet") and "/.temp/" not in effect.name and next(seen) == at

    _die(scene, lambda t: t.upsert(rows(0, 30, ts=9)), dies, FaultMode.AFTER)
    return Damage(_pending(scene))


@sabotage
def stuck_requested(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    _die(scene, lambda t: t.delete(["k001"]), lambda e: e.name.endswith(".inflight"), FaultMode.BEFORE)
    time = next(iter(scene.open().client.load().timeline.pending)).time
    if choose([True, False]):
        scene.store.delete([f".hoodie/.heartbeat/{time}"])
    return Damage(_pending(scene))


@sabotage
def half_rollback(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    written = scene.open().upsert(rows(0, 30, ts=9))
    seen = itertools.count(1)
    at = choose([1, 2, 3])

    def dies(effect: Effect) -> bool:
        return effect.kind == "delete" and effect.name.endswith(".parquet") and next(seen) == at

    _die(scene, lambda t: t.rollback(str(written.instant)), dies, FaultMode.AFTER)
    return Damage(_pending(scene))


# -------------------------------------------------------------------------------------------------------------- numbers


@sabotage
def counted_rows(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    path = choose([f.path for f in scene.files()])
    edit_commit(scene, path, lambda stat: stat.update(numWrites=stat["numWrites"] + 7))
    return Damage({(Kind.COUNTS, path)})


@sabotage
def counted_inserts(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    path = choose([f.path for f in scene.files()])
    edit_commit(scene, path, lambda stat: stat.update(numInserts=stat["numInserts"] + 1, numUpdateWrites=0))
    return Damage({(Kind.COUNTS, path)})


@sabotage
def counted_bytes(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    path = choose([path for paths in scene.groups().values() for path in paths])
    edit_commit(scene, path, lambda stat: stat.update(fileSizeInBytes=stat["fileSizeInBytes"] - 1))
    return Damage({(Kind.COUNTS, path)})


# ------------------------------------------------------------------------------------------------- footers, filters, keys


def _with_footers(name: str, kind: Kind, change: Callable[[pa.Table, dict[str, str]], pa.Table]) -> None:
    def broken(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
        path = choose([f.path for f in scene.files()])
        tamper(scene, path, change)
        return Damage({(kind, path)}, scars=True)

    SABOTAGE[name] = broken


def _drop(*names: str) -> Callable[[pa.Table, dict[str, str]], pa.Table]:
    def change(table: pa.Table, footers: dict[str, str]) -> pa.Table:
        for name in names:
            del footers[name]
        return table

    return change


def _foreign_filter(table: pa.Table, footers: dict[str, str]) -> pa.Table:
    bloom = BloomFilter.sized(1000, 1e-9)
    bloom.add(table.column(RECORD_KEY).slice(1))
    bloom.add(pa.array(["another"]))
    footers[BLOOM_KEY] = bloom.encode()
    return table


def _damaged_filter(table: pa.Table, footers: dict[str, str]) -> pa.Table:
    footers[BLOOM_KEY] = "!!!!" + footers[BLOOM_KEY][4:]
    return table


def _narrow_range(table: pa.Table, footers: dict[str, str]) -> pa.Table:
    footers[MIN_KEY] = footers[MAX_KEY]
    return table


def _other_file_name(table: pa.Table, footers: dict[str, str]) -> pa.Table:
    return another(table, FILE_NAME, "b-0_0-0-0_20200101000000000.parquet")


def _other_partition_name(table: pa.Table, footers: dict[str, str]) -> pa.Table:
    return another(table, PARTITION_PATH, "city=nowhere")


def _other_key(table: pa.Table, footers: dict[str, str]) -> pa.Table:
    changed = another(table, RECORD_KEY, "zz")
    refoot(footers, changed.column(RECORD_KEY))
    return changed


_with_footers("footers_gone", Kind.FOOTERS, _drop(BLOOM_KEY, BLOOM_TYPE_KEY, MIN_KEY, MAX_KEY))
_with_footers("range_gone", Kind.FOOTERS, _drop(MIN_KEY))
_with_footers("filter_denies", Kind.BLOOM_FILTER, _foreign_filter)
_with_footers("filter_damaged", Kind.BLOOM_FILTER, _damaged_filter)
_with_footers("range_narrow", Kind.KEY_RANGE, _narrow_range)
_with_footers("meta_file_name", Kind.META_COLUMNS, _other_file_name)
_with_footers("meta_partition", Kind.META_COLUMNS, _other_partition_name)
_with_footers("record_key", Kind.RECORD_KEYS, _other_key)


@sabotage
def wrong_partition(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    path = choose([f.path for f in scene.files()])
    tamper(scene, path, lambda table, _: another(table, "city", choose(["rio", "a/b"])))
    return Damage({(Kind.WRONG_PARTITION, path)}, rows=scene.open().read(), scars=True)


@sabotage
def twice_in_a_file(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    file = choose(scene.files())
    tamper(scene, file.path, lambda table, _: pa.concat_tables([table, table.slice(0, 1)]))
    return Damage({(Kind.DUPLICATE_KEYS, str(file.partition))}, scars=True)


@sabotage
def twice_in_a_partition(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    """An older image of a row in another file of the partition: it loses."""
    place = choose(sorted({f.partition for f in scene.files()}))
    one, other = [f for f in scene.files() if f.partition == place][:2]
    old = pq.read_table(io.BytesIO(scene.store.read(one.path)), partitioning=None).slice(0, 1)
    old = with_column(with_column(old, "ts", [0]), "v", [-1.0])
    old = with_column(old, FILE_NAME, [other.name])

    def change(table: pa.Table, footers: dict[str, str]) -> pa.Table:
        joined = pa.concat_tables([table, old.cast(table.schema)])
        first = pc.min(joined.column("_hoodie_commit_time"))
        times = [*joined.column("_hoodie_commit_time").to_pylist()[:-1], first.as_py()]
        joined = with_column(joined, "_hoodie_commit_time", times)
        joined = with_column(
            joined, "_hoodie_commit_seqno", [*joined.column("_hoodie_commit_seqno").to_pylist()[:-1], "other"]
        )
        refoot(footers, joined.column(RECORD_KEY))
        return joined

    tamper(scene, other.path, change)
    return Damage({(Kind.DUPLICATE_KEYS, place)}, loses=True, scars=True)


# ------------------------------------------------------------------------------------------------ properties and notes

PROPERTIES = ".hoodie/hoodie.properties"


@sabotage
def checksum(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    lines = scene.store.read(PROPERTIES).splitlines(keepends=True)
    wrong = [b"hoodie.table.checksum=1\n" if x.startswith(b"hoodie.table.checksum") else x for x in lines]
    scene.store.put(PROPERTIES, b"".join(wrong))
    return Damage({(Kind.PROPERTIES, PROPERTIES)}, loses=True)


@sabotage
def properties_gone(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    data = scene.store.read(PROPERTIES)
    scene.store.put(f"{PROPERTIES}.backup", data)
    if choose([True, False]):
        scene.store.delete([PROPERTIES])
    else:
        scene.store.put(PROPERTIES, data[: len(data) // 2])
    return Damage({(Kind.PROPERTIES, PROPERTIES)})


@sabotage
def backup_left(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    scene.store.put(f"{PROPERTIES}.backup", scene.store.read(PROPERTIES))
    return Damage({(Kind.LEFT_BACKUP, f"{PROPERTIES}.backup")})


@sabotage
def properties_lost(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    data = scene.store.read(PROPERTIES)
    scene.store.put(PROPERTIES, choose([b"", data[:40], b"\x00" * 20]))
    return Damage({(Kind.PROPERTIES, PROPERTIES)}, mendable=False)


NOTES = ".hoodie/.lakefmt/table.json"


@sabotage
def notes(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    scene.store.put(NOTES, choose([b'{"index": "bloom", ', b'["index": "bloom"']))
    return Damage({(Kind.NOTES, NOTES)})


@sabotage
def notes_lost(scene: Scene, choose: Callable[[list[Any]], Any]) -> Damage:
    scene.store.put(NOTES, choose([b"", b"{", b"[]", b'{"index": "hazel"}']))
    return Damage({(Kind.NOTES, NOTES)}, loses=True)
