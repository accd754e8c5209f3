"""A `write_table` that fails, or dies, at any of its effects leaves nothing that is in the way of the next one."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.storage import ObjectStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt.errors import LakefmtError, TableExists, TableNotFound
from lakefmt.spark.options import parse_write_options
from lakefmt.spark.writing.staging import write_and_commit
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at
from tests.crash.sweep import ENDINGS, Ending
from tests.example_counts import in_turn
from tests.kit import SECONDS_FOR_A_CHILD, THOROUGH

_NUMBERS = itertools.count()
#: A dead process's heartbeat counts for nothing at once: the simulated next process does not wait.
_OPTIONS = {"hoodie.client.heartbeat.tolerable.misses": 0}
ROWS = pa.table({"id": ["a", "b", "c"], "city": ["sf", "oslo", "sf"], "v": [1, 2, 3]})
KEYED = {"record_key": "id", "partition_by": "city"}
FRAME = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
}
CASES = {
    "plain": {},
    "merge on read with a metadata table": {"table_type": "mor", "indexes": ["column_stats"]},
    "bucket index, version 6": {"index": "bucket", "table_version": 6},
}


@contextmanager
def store_of_all(store: ObjectStore) -> Iterator[None]:
    """Give the calls inside this store, whatever URL they name; only the trial has its own."""

    def opened(url: object, options: object = None) -> ObjectStore:
        return MemoryStore(str(url).partition("://")[2]) if "lakefmt-trial" in str(url) else store

    with (
        mock.patch("lakefmt._core.table.open_store", opened),
        mock.patch("lakefmt._core.create_and_write.open_store", opened),
    ):
        yield


def write(store: ObjectStore, rows: pa.Table = ROWS, **more: object) -> object:
    with store_of_all(store):
        return lakefmt.write_table("memory://unfinished", rows, **KEYED, **more, options=_OPTIONS)


def stored(store: ObjectStore) -> list[dict[str, object]]:
    with store_of_all(store):
        return sorted(lakefmt.open_table("memory://unfinished").read().to_pylist(), key=lambda row: row["id"])


def endings() -> list[Ending]:
    return ENDINGS if THOROUGH else [Ending(FaultMode.BEFORE, False), *(e for e in ENDINGS if e.crash)][:3]


@pytest.mark.slow
@pytest.mark.parametrize("ending", endings(), ids=str)
@pytest.mark.parametrize("case", CASES)
def test_law_the_retry_works_after_every_effect(case: str, ending: Ending) -> None:
    healthy = FaultStore(MemoryStore(f"unfinished-{next(_NUMBERS)}"))
    write(healthy, **CASES[case])
    assert stored(healthy) == ROWS.sort_by("id").to_pylist()
    for number in in_turn(range(1, len(healthy.effects) + 1), 3):
        store = MemoryStore(f"unfinished-{next(_NUMBERS)}")
        store.put("notes-of-the-owner.txt", b"not ours")
        faulty = FaultStore(store, fail_at(number, ending.mode, crash=ending.crash))
        story = f"{case}, {ending}, effect {number}: {healthy.effects[number - 1]}"
        try:
            write(faulty, **CASES[case])
            finished = True
        except (LakefmtError, SimulatedCrash):
            finished = False
        if not finished and not ending.crash:
            with store_of_all(store), pytest.raises(TableNotFound):
                lakefmt.open_table("memory://unfinished")
        if not finished:
            try:
                write(store, **CASES[case])
            except TableExists:
                assert len(stored(store)) == 3, story  # it was committed, and the answer was lost
        assert stored(store) == ROWS.sort_by("id").to_pylist(), story
        assert store.read("notes-of-the-owner.txt") == b"not ours", story


def write_frame(store: ObjectStore) -> None:
    """Write as the process of a Spark job that commits does."""
    with store_of_all(store):
        call = parse_write_options({**FRAME, **{name: str(value) for name, value in _OPTIONS.items()}})
        write_and_commit("memory://unfinished", "append", call, ROWS.schema, lambda: [ROWS])


@pytest.mark.parametrize("ending", endings(), ids=str)
def test_law_a_frame_written_again_after_every_effect_makes_the_table_that_its_options_name(ending: Ending) -> None:
    healthy = FaultStore(MemoryStore(f"unfinished-{next(_NUMBERS)}"))
    write_frame(healthy)
    for number in in_turn(range(1, len(healthy.effects) + 1), 3):
        store = MemoryStore(f"unfinished-{next(_NUMBERS)}")
        with suppress(LakefmtError, SimulatedCrash):
            write_frame(FaultStore(store, fail_at(number, ending.mode, crash=ending.crash)))
        write_frame(store)
        story = f"{ending}, effect {number}: {healthy.effects[number - 1]}"
        with store_of_all(store):
            properties = lakefmt.open_table("memory://unfinished").properties
        assert (properties.name, properties.record_key_fields) == ("t", ("id",)), story
        assert properties.partition_fields == ("city",), story
        assert stored(store) == ROWS.sort_by("id").to_pylist(), story


def test_a_killed_call_is_followed_by_another_with_other_columns(tmp_path: Path) -> None:
    code = (
        "import sys, pyarrow as pa, lakefmt\n"
        "from lakefmt.testing.crash import die_at\n"
        "die_at(int(sys.argv[2]))\n"
        "lakefmt.write_table(sys.argv[1], pa.table({'id': ['a'], 'w': [1]}), record_key='id')\n"
    )
    for effect in (14, 24) if not THOROUGH else range(1, 40):
        path = tmp_path / str(effect)
        ended = subprocess.run([sys.executable, "-c", code, str(path), str(effect)], timeout=SECONDS_FOR_A_CHILD)
        assert ended.returncode in (0, -signal.SIGKILL)
        if ended.returncode == 0:
            continue
        try:
            lakefmt.write_table(path, ROWS, **KEYED)
        except TableExists:
            assert lakefmt.open_table(path).read().num_rows == 1  # it died behind its commit
        else:
            assert lakefmt.open_table(path).read().num_rows == 3


def test_a_table_that_a_live_call_makes_is_left_alone(tmp_path: Path) -> None:
    seen = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        with pytest.raises(TableExists):
            lakefmt.write_table(tmp_path / "t", ROWS, **KEYED)
        seen.append(True)

    reader = pa.RecordBatchReader.from_batches(ROWS.schema, batches())
    lakefmt.write_table(tmp_path / "t", reader, **KEYED, operation="bulk_insert")
    assert seen
    assert lakefmt.open_table(tmp_path / "t").read().num_rows == 3


def test_what_create_table_made_is_kept(tmp_path: Path) -> None:
    lakefmt.create_table(tmp_path / "t", data=ROWS, **KEYED)
    with pytest.raises(TableExists):
        lakefmt.write_table(tmp_path / "t", ROWS, **KEYED)


def test_a_table_that_was_emptied_is_kept(tmp_path: Path) -> None:
    first = lakefmt.write_table(tmp_path / "t", ROWS, **KEYED)
    table = lakefmt.open_table(tmp_path / "t")
    table.rollback(first.instant)
    with pytest.raises(TableExists):
        lakefmt.write_table(tmp_path / "t", ROWS, **KEYED)
    lakefmt.write_table(tmp_path / "t", ROWS, mode="upsert", **KEYED)
    assert table.read().num_rows == 3
