"""What Arrow's threads hold of Python's when the interpreter ends."""

from __future__ import annotations

import gc
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt._core.storage import ObjectStore
from lakefmt._core.storage import arrow_filesystem as lent_module
from lakefmt._core.storage.arrow_filesystem import ArrowHandler, track_arrow_use, wait_for_arrow
from lakefmt._core.storage.memory import MemoryStore
from lakefmt.testing.stores import CountingStore


class Thing:
    """Something that can be lent."""


@pytest.fixture(autouse=True)
def nothing_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lent_module, "_tracked", {})


def test_whoever_holds_it_is_waited_for() -> None:
    held = [track_arrow_use(Thing())]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            held.clear()

    assert wait_for_arrow(sleep, lambda: 0.0)
    assert len(slept) == 4
    assert wait_for_arrow(sleep, lambda: 0.0)
    assert len(slept) == 4, "nothing is in use any more"


def test_who_keeps_it_for_good_is_not_waited_for_for_ever() -> None:
    kept = track_arrow_use(Thing())
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    assert not wait_for_arrow(sleep, lambda: clock[0])
    assert 0.4 < clock[0] < 0.6
    assert kept is not None


@pytest.mark.parametrize("make", [MemoryStore, lambda name: CountingStore(MemoryStore(name))])
def test_a_file_of_a_store_in_python_is_lent_while_arrow_has_it(make: type[MemoryStore]) -> None:
    store: ObjectStore = make("arrow-lifetime")
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": [1]}), sink)
    store.put("a.parquet", sink.getvalue().to_pybytes())
    fs, prefix = store.arrow_filesystem()
    file = fs.open_input_file(prefix + "a.parquet")
    assert lent_module._tracked
    assert pq.read_table(file).num_rows == 1
    del file
    assert wait_for_arrow()


def test_what_is_dead_is_forgotten_when_there_is_much_of_it() -> None:
    for _ in range(1000):
        track_arrow_use(Thing())
    kept = [track_arrow_use(Thing()) for _ in range(300)]
    assert len(lent_module._tracked) <= 300 + 257
    assert len(kept) == 300


class Tracking:
    """Garbage whose end lends another thing."""

    def __init__(self, kept: list[Thing]) -> None:
        self.cycle, self.kept = self, kept

    def __del__(self) -> None:
        self.kept.append(track_arrow_use(Thing()))


def test_what_the_collector_runs_may_lend_more() -> None:
    held, kept, before = [track_arrow_use(Thing()) for _ in range(200)], [], gc.get_threshold()
    pairs = [(number, number) for number in range(5000)]  # Python has none left to use again: each new one counts
    gc.collect()
    try:
        Tracking(kept)
        gc.set_threshold(100)  # in the middle of the things that are held
        assert not wait_for_arrow(sleep=lambda _: None, now=iter([0.0, 1.0]).__next__)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert len(lent_module._tracked) == len(held) + len(kept) == 201
    assert len(pairs) == 5000


def test_a_scan_lends_its_file_system_for_as_long_as_it_lasts() -> None:
    table = lakefmt.create_table(
        "memory://arrow-lifetime-scan", schema=pa.schema([("id", pa.string())]), record_key="id"
    )
    table.upsert(pa.table({"id": ["a"]}))
    assert wait_for_arrow()
    reading = iter(table.scan())
    assert next(reading).num_rows == 1
    assert any(isinstance(known(), ArrowHandler) for known in lent_module._tracked.values())
    del reading
    assert wait_for_arrow(), "the table keeps none"


def test_the_interpreter_waits_when_it_ends() -> None:
    script = (
        "import atexit, os, threading; from lakefmt._core.storage import arrow_filesystem\n"
        "class Thing:\n"
        "    def __del__(self): os.write(1, b'let go\\n')\n"  # before anybody can see that it is gone
        "held, ending = [arrow_filesystem.track_arrow_use(Thing())], threading.Event()\n"
        "def drop(): ending.wait(); held.clear()\n"
        "threading.Thread(target=drop, daemon=True).start()\n"
        "atexit.register(ending.set)\n"  # registered last, it runs first
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "let go\n"
