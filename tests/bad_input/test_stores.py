"""Stores that refuse, fill up or tear, and clocks that step back: a typed error, and nothing is left of the write."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.open import open_store
from lakefmt._core.table import Table
from lakefmt.errors import LakefmtError, StorageError
from lakefmt.testing.stores import FaultMode, FaultStore, Step, WrapperStore, fail_at
from tests.bad_input.kit import OPTIONS, Lake, changes, check_next_write, check_said, rows, same_rows

T = TypeVar("T")
#: Writers that failed are taken for dead at once.
DEAD = {"hoodie.client.heartbeat.tolerable.misses": 0}
WRITES: dict[str, Callable[[Table], object]] = {
    "upsert": lambda t: t.upsert(rows(3, 9, ts=5)),
    "bulk_insert": lambda t: t.bulk_insert(rows(20, 24)),
    "delete": lambda t: t.delete(["k1", "k2"]),
    "delete_partitions": lambda t: t.delete_partitions(["city=sf"]),
}


class FullStore(WrapperStore):
    """Takes `room` objects; then every further one finds the disk full, while removing still works."""

    def __init__(self, inner: ObjectStore, room: int) -> None:
        super().__init__(inner)
        self.room = room

    def perform(self, step: Step[T]) -> T:
        if "put" in step.kind:
            self.room -= 1
            if self.room < 0:
                raise StorageError(f"no space left for {step.name!r}: make room and try again")
        return step.run()


def over(lake: Lake, wrap: Callable[[ObjectStore], ObjectStore], **options: object) -> Table:
    return Table(TableClient(wrap(open_store(str(lake.base))), {**OPTIONS, **options}))


def no_orphans(lake: Lake) -> bool:
    """Whether every data file belongs to a commit, and nothing is pending or noted any more."""
    client = lake.open().client
    state = client.load()
    known = {stat.path for i in state.timeline.commits for stat in client.at(state).commit_metadata(i).stats}
    found = {str(path.relative_to(lake.base)) for path in lake.base.glob("*/*.parquet")}
    notes = [p for place in (".temp", ".heartbeat") for p in lake.base.glob(f".hoodie/{place}/2*")]
    return found <= known and not notes and not state.timeline.pending


def refuse_at(monkeypatch: pytest.MonkeyPatch, lake: Lake, number: int, *, reading: bool) -> None:
    """Let the operating system refuse to open files of the table, for writing or altogether."""
    real = os.open

    def opened(path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if str(path).startswith(str(lake.base)) and (writes or reading):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, flags, *arguments, **named)

    monkeypatch.setattr(os, "open", opened)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT], ids=errno.errorcode.get)
@pytest.mark.parametrize("verb", ["upsert", "bulk_insert", "delete"])
def test_no_permission_read_only_and_full_disks(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, number: int, verb: str
) -> None:
    """The tests may run as root, whom permissions do not stop: the system call refuses instead."""
    stored, before = lake.open().read(), lake.picture()
    table = lake.open(**DEAD)
    with monkeypatch.context() as patched:
        refuse_at(patched, lake, number, reading=False)
        with pytest.raises(StorageError) as caught:
            WRITES[verb](table)
        check_said(caught.value, str(lake.base))
        assert same_rows(lake.open().read(), stored), "reading needs no permission to write"
    assert changes(before, lake.picture()) == []
    check_next_write(table, stored)


def test_no_permission_to_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    stored, before = lake.open().read(), lake.picture()
    with monkeypatch.context() as patched:
        refuse_at(patched, lake, errno.EACCES, reading=True)
        with pytest.raises(StorageError) as caught:
            lake.open()
        check_said(caught.value, "hoodie.properties")
    assert changes(before, lake.picture()) == []
    check_next_write(lake.open(), stored)


@pytest.mark.parametrize("verb", ["upsert", "delete", "delete_partitions"])
def test_a_disk_that_fills_up_at_any_moment_shows_and_loses_nothing(lake_of: Callable[[int], Lake], verb: str) -> None:
    """Undoing needs room for its plan, too: what is left then is invisible, and the next write removes it."""
    for room in range(40):
        lake = lake_of(8)
        stored, before = lake.open().read(), lake.picture()
        try:
            WRITES[verb](over(lake, lambda inner, room=room: FullStore(inner, room)))  # type: ignore[misc]
        except StorageError as error:
            check_said(error, "no space left")
        else:
            assert room > 2
            return
        assert same_rows(lake.open().read(), stored), room
        assert [line for line in changes(before, lake.picture()) if not line.startswith("new t/")] == [], room
        lake.open(**DEAD).insert(rows(100, 101))
        assert same_rows(lake.open().read(), pa.concat_tables([stored, rows(100, 101)])), room
        assert no_orphans(lake), room
    raise AssertionError("40 objects are not enough for one write")


@pytest.mark.parametrize("verb", ["upsert", "delete"])
def test_a_half_written_file_is_never_seen(lake_of: Callable[[int], Lake], verb: str) -> None:
    lake = lake_of(8)
    counting: list[FaultStore] = []

    def count(inner: ObjectStore) -> ObjectStore:
        counting.append(FaultStore(inner))
        return counting[0]

    WRITES[verb](over(lake, count))
    after = lake.open().read()
    for effect in (e for e in counting[0].effects if "put" in e.kind):
        lake = lake_of(8)
        stored = lake.open().read()
        plan = fail_at(effect.number, FaultMode.TORN, crash=False)
        try:
            WRITES[verb](over(lake, lambda inner, plan=plan: FaultStore(inner, plan)))  # type: ignore[misc]
        except LakefmtError as error:
            check_said(error)
        seen = lake.open().read()
        assert same_rows(seen, stored) or same_rows(seen, after), effect
        lake.open(**DEAD).insert(rows(100, 101))
        assert same_rows(lake.open().read(), pa.concat_tables([seen, rows(100, 101)])), effect
        assert no_orphans(lake), effect


class BackwardClock:
    """Every look at it shows an earlier day."""

    def __init__(self) -> None:
        self._now = datetime(2001, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        self._now -= timedelta(days=1)
        return self._now


@pytest.mark.parametrize("version", [6, 8])
def test_a_clock_that_goes_backwards_makes_no_time_go_backwards(lake_of: Callable[[int], Lake], version: int) -> None:
    lake = lake_of(version)
    stored = lake.open().read()
    old = lake.open().client.load().timeline.commits[-1]
    results = []
    for number in range(3):
        # Each write from a process of its own, whose clock is behind everything on the timeline.
        client = TableClient(open_store(str(lake.base)), OPTIONS, BackwardClock())
        results.append(Table(client).upsert(rows(20 + number, 21 + number)))
    times = [str(old.time), *(str(r.instant) for r in results)]
    assert times == sorted(set(times))
    assert all(r.completion_time is None or str(r.completion_time) > str(r.instant) for r in results)
    added = rows(20, 23)
    assert same_rows(lake.open().read(), pa.concat_tables([stored, added]))
    since = str(old.completion or old.time)
    assert same_rows(lake.open().incremental(since).replace_schema_metadata(None), added)
    check_next_write(lake.open(), lake.open().read())


def test_nothing_outside_was_touched(lake: Lake, tmp_path: Path) -> None:
    neighbour = {name: digest for name, digest in lake.picture().items() if name.startswith("neighbour")}
    with pytest.raises(StorageError):
        WRITES["upsert"](over(lake, lambda inner: FullStore(inner, 3)))
    assert {name: d for name, d in lake.picture().items() if name.startswith("neighbour")} == neighbour
