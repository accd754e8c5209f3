"""Merge-on-read tables to damage, and the damage to their logs: each function breaks one thing and says what a check must name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lakefmt._core.check.findings import Kind
from lakefmt._core.filegroups.model import LogFile
from lakefmt._core.formats.log_blocks import LogBlock, scan_blocks
from lakefmt._core.formats.names import parse_log_file
from lakefmt._core.values import WriteOperation
from tests.check.kit import NUMBERS, OPTIONS, Damage, Sabotage, Scene, new_table, objects_of, rows

#: Several blocks in each log.
SMALL_BLOCKS: dict[str, object] = {"hoodie.logfile.data.block.max.size": 300}
LOG_SABOTAGE: dict[str, Sabotage] = {}
Choose = Callable[[list[Any]], Any]


def log_sabotage(function: Sabotage) -> Sabotage:
    LOG_SABOTAGE[function.__name__] = function
    return function


@functools.cache
def _objects(version: int) -> dict[str, bytes]:
    """The objects of a table whose groups have logs below a compaction and above it."""
    name = f"check-logs-{version}"
    filling = {**OPTIONS, "hoodie.parquet.small.file.limit": 1 << 20}
    table = new_table(name, version, table_type="mor", options=filling)
    table.upsert(rows(0, 18, ts=1))
    table.upsert(rows(0, 9, ts=2))
    table.compact()
    table.upsert(rows(6, 18, ts=3), options=SMALL_BLOCKS)
    table.delete(["k005"])
    table.upsert(rows(0, 3, ts=4))
    return objects_of(name)


def mor_scene(version: int) -> Scene:
    """A sound merge-on-read table to damage."""
    return Scene(f"check-mor-{next(NUMBERS)}", version).put_back(_objects(version))


def logs(scene: Scene) -> list[LogFile]:
    """The logs of the newest slices, partition by partition, oldest first."""
    return [log for piece in scene.open().file_groups() for log in piece.logs]


def older_logs(scene: Scene) -> list[str]:
    """The paths of the logs that a compaction has left behind."""
    latest = {log.path for log in logs(scene)}
    named = (item.name for item in scene.store.list() if not item.name.startswith(".hoodie/"))
    return [name for name in named if parse_log_file(name.rpartition("/")[2]) is not None and name not in latest]


def blocks(data: bytes) -> list[LogBlock]:
    """The blocks of a log, without their contents."""
    return list(scan_blocks(lambda at, count: data[at : at + count], len(data), "a log"))


def long_logs(scene: Scene) -> list[LogFile]:
    """Those of several blocks."""
    return [log for log in logs(scene) if len(blocks(scene.store.read(log.path))) > 1]


def unknown(scene: Scene) -> str:
    """An instant that nobody has, newer than all others."""
    return str(int(str(scene.open().client.load().timeline.highest_time)) + 5)


def writers(scene: Scene, path: str) -> set[str]:
    return writers_of(scene.store.read(path))


def writers_of(data: bytes) -> set[str]:
    """The instants of a log's blocks."""
    return {block.instant_time for block in blocks(data) if block.instant_time}


def _foreign_name(scene: Scene, log: LogFile, time: str) -> str:
    """A name that a log of another deltacommit of the same group would have."""
    begin = str(log.instant) if scene.version == 6 else time
    return f"{log.partition}/.{log.file_id}_{begin}.log.9_9-9-9"


def _orphan(scene: Scene, log: LogFile, name: str, time: str) -> Damage:
    """A copy of a log that an instant seems to have written which is not there."""
    (writer,) = writers(scene, log.path)
    scene.store.put(name, scene.store.read(log.path).replace(writer.encode(), time.encode()))
    return Damage({(Kind.ORPHAN_FILE, name)}, level="fast")


# --------------------------------------------------------------------------------------------------------- nobody's logs


@log_sabotage
def orphan_log(scene: Scene, choose: Choose) -> Damage:
    log, time = choose(logs(scene)), unknown(scene)
    return _orphan(scene, log, _foreign_name(scene, log, time), time)


@log_sabotage
def orphan_log_of_unknown_base(scene: Scene, choose: Choose) -> Damage:
    log, time = choose(logs(scene)), unknown(scene)
    return _orphan(scene, log, f"{log.partition}/.{log.file_id}_{time}.log.1_9-9-9", time)


@log_sabotage
def orphan_log_of_unknown_group(scene: Scene, choose: Choose) -> Damage:
    log, time = choose(logs(scene)), unknown(scene)
    return _orphan(scene, log, f"{log.partition}/.00000000-orphan-0_{time}.log.1_9-9-9", time)


@log_sabotage
def orphan_torn_log(scene: Scene, choose: Choose) -> Damage:
    log, time = choose(logs(scene)), unknown(scene)
    name = _foreign_name(scene, log, time)
    scene.store.put(name, scene.store.read(log.path)[:100])
    return Damage({(Kind.ORPHAN_FILE, name)}, level="fast")


@log_sabotage
def orphan_attempt(scene: Scene, choose: Choose) -> Damage:
    """A second attempt at a completed deltacommit's log, which died in its first block."""
    log = choose(logs(scene))
    name = f"{log.partition}/.{log.file_id}_{log.instant}.log.9_9-9-9"
    scene.store.put(name, scene.store.read(log.path)[:100])
    return Damage({(Kind.ORPHAN_FILE, name)}, level="fast")


@log_sabotage
def stray_log(scene: Scene, choose: Choose) -> Damage:
    log = choose(logs(scene))
    name = f"{log.partition}/.{log.file_id}_{log.instant}.log.9_9-9-9"
    scene.store.put(name, scene.store.read(log.path))
    return Damage({(Kind.STRAY_FILE, name)}, loses=True, level="fast")


# ---------------------------------------------------------------------------------------------------------- missing logs


def _gone(scene: Scene, path: str, kind: Kind, new: bytes | None, level: str = "fast") -> Damage:
    """Damage a log; afterwards readers see what they see now."""
    scene.store.delete([path])
    if new is not None:
        scene.store.put(path, new)
    return Damage({(kind, path)}, loses=True, rows=scene.open().read(), level=level)


@log_sabotage
def missing_log(scene: Scene, choose: Choose) -> Damage:
    return _gone(scene, choose(logs(scene)).path, Kind.MISSING_FILE, None)


@log_sabotage
def missing_log_below_a_compaction(scene: Scene, choose: Choose) -> Damage:
    return _gone(scene, choose(older_logs(scene)), Kind.MISSING_FILE, None)


def compacted(scene: Scene) -> list[str]:
    """The base files that a compaction wrote and that readers take."""
    client = scene.open().client
    state = client.load()
    merging = {
        instant.time
        for instant in state.timeline.commits
        if client.at(state).commit_metadata(instant).operation is WriteOperation.COMPACT
    }
    return [file.path for file in scene.files() if file.instant in merging]


@log_sabotage
def missing_compacted_base(scene: Scene, choose: Choose) -> Damage:
    """Readers take the older slice and its logs: no row is missing."""
    path = choose(compacted(scene))
    scene.store.delete([path])
    return Damage({(Kind.MISSING_FILE, path)}, level="fast")


# ------------------------------------------------------------------------------------------------------------- torn logs


@log_sabotage
def torn_log(scene: Scene, choose: Choose) -> Damage:
    path = choose(logs(scene)).path
    return _gone(scene, path, Kind.CORRUPT_FILE, scene.store.read(path)[:-1])


@log_sabotage
def torn_at_a_block(scene: Scene, choose: Choose) -> Damage:
    """The last block is gone as a whole: only the commit tells."""
    path = choose(long_logs(scene)).path
    data = scene.store.read(path)
    return _gone(scene, path, Kind.CORRUPT_FILE, data[: blocks(data)[-1].start])


@log_sabotage
def emptied_log(scene: Scene, choose: Choose) -> Damage:
    return _gone(scene, choose(logs(scene)).path, Kind.CORRUPT_FILE, b"")


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


@log_sabotage
def flipped_end_of_a_block(scene: Scene, choose: Choose) -> Damage:
    path = choose(long_logs(scene)).path
    data = scene.store.read(path)
    return _gone(scene, path, Kind.CORRUPT_FILE, _flipped(data, choose(blocks(data)[:-1]).end - 1))


@log_sabotage
def flipped_magic(scene: Scene, choose: Choose) -> Damage:
    """Other engines refuse the whole file, with the blocks behind."""
    path = choose(long_logs(scene)).path
    return _gone(scene, path, Kind.CORRUPT_FILE, _flipped(scene.store.read(path), 2))


@log_sabotage
def spoiled_block(scene: Scene, choose: Choose) -> Damage:
    """A block that frames well, with a content that cannot be decoded: reads fail."""
    path = choose(long_logs(scene)).path
    data = scene.store.read(path)
    block = choose(blocks(data))
    damage = _gone(scene, path, Kind.CORRUPT_FILE, data[: block.start] + data[block.end :], level="full")
    first = block.content_start + 8  # behind the format's version and the number of rows
    scene.store.put(path, data[:first] + b"\x7f" * 12 + data[first + 12 :])
    return damage


@log_sabotage
def torn_log_below_a_compaction(scene: Scene, choose: Choose) -> Damage:
    path = choose(older_logs(scene))
    return _gone(scene, path, Kind.CORRUPT_FILE, scene.store.read(path)[:-1], level="full")
