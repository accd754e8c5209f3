"""A killed holder of Hudi's lock file blocks nobody on its machine; a living one, another machine and a JVM keep it."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.storage import LocalStore, MemoryStore
from lakefmt._core.storage import process_lock as process_locks_module
from lakefmt._core.storage.process_lock import ProcessName, has_ended, process_locks, this_process
from lakefmt._core.timeline.locks import objects
from lakefmt._core.timeline.locks.api import RetryPolicy
from lakefmt._core.timeline.locks.objects import (
    FILE_SYSTEM_LOCK_NAME,
    FileSystemLock,
    Vouched,
    decode_stamp,
    encode_stamp,
)
from lakefmt.errors import LockUnavailable
from lakefmt.testing.suites import listed_names, together
from tests.kit import SECONDS_FOR_A_CHILD

numbers = itertools.count()
NOTES = ".hoodie/.lakefmt"
SOON = RetryPolicy(0.1)

pytestmark = pytest.mark.skipif(this_process() is None, reason="this system does not tell when a process was started")

HOLDER = """
import os, signal, sys, time
from lakefmt._core.storage import LocalStore
from lakefmt._core.timeline.locks.api import RetryPolicy
from lakefmt._core.timeline.locks.objects import FileSystemLock, HolderNotes

root, stage = sys.argv[1:]

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def say_and_wait():
    sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()

notes = HolderNotes
if stage == "before its note":
    notes.begin = die
if stage == "after its note":
    LocalStore.put_if_absent = die
if stage == "before it looks for old notes":
    notes.sweep = die
if stage == "before it removes its note":
    notes.end = die
if stage == "after it took the file over":
    LocalStore.delete = die
with FileSystemLock(LocalStore(root), "holder", RetryPolicy(60.0)).hold() as lease:
    lease.check()
    if stage == "at work":
        die()
    if stage in ("alive", "stopped"):
        say_and_wait()
"""


def run_holder(root, stage):
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", HOLDER, str(root), stage], stdin=pipe, stdout=pipe, text=True)


def die_at(root, stage):
    with run_holder(root, stage) as process:
        assert process.wait(SECONDS_FOR_A_CHILD) == -signal.SIGKILL


def lock_at(root, retry_policy=SOON):
    return FileSystemLock(LocalStore(root), f"writer-{next(numbers)}", retry_policy)


def assert_free(root):
    """Check that the lock is had by the first request, and that nothing is left of whoever had it."""
    with lock_at(root, RetryPolicy(0.0, attempts=1)).hold() as lease:
        lease.check()
        assert len(listed_names(LocalStore(root), NOTES)) == 1, "the holder's own note, and no other"
    assert listed_names(LocalStore(root)) == []


STAGES = ["before its note", "after its note", "before it looks for old notes", "at work", "before it removes its note"]


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_holder_blocks_nobody(tmp_path, stage):
    die_at(tmp_path, stage)
    assert_free(tmp_path)


@pytest.mark.slow
def test_who_takes_over_may_be_killed_too(tmp_path):
    die_at(tmp_path, "at work")
    die_at(tmp_path, "after it took the file over")
    die_at(tmp_path, "at work")
    assert_free(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["alive", "stopped"])
def test_a_living_holder_keeps_it(tmp_path, stage):
    with run_holder(tmp_path, stage) as process:
        assert process.stdout.readline() == "ready\n"
        if stage == "stopped":
            process.send_signal(signal.SIGSTOP)
        for _ in range(2):
            with pytest.raises(LockUnavailable, match=f"its holder is process {process.pid} of lakefmt on "):
                lock_at(tmp_path).hold().__enter__()
        process.send_signal(signal.SIGCONT)
        process.communicate("\n")
        assert process.returncode == 0, "its lease stood to the end"
    assert_free(tmp_path)


@pytest.mark.slow
def test_of_many_that_find_a_dead_holder_one_at_a_time_has_the_lock(tmp_path):
    die_at(tmp_path, "at work")
    inside, seen = [], []

    def work():
        # Each with a queue of its own, as processes have: threads of one process would wait for each other first.
        store = LocalStore(tmp_path)
        lock = FileSystemLock(store, f"writer-{next(numbers)}", RetryPolicy(100.0))
        lock._turn = ExitStackLock()
        with lock.hold() as lease:
            inside.append(1)
            seen.append(len(inside))
            lease.check()
            inside.pop()

    together([work] * 6)
    assert seen == [1] * 6
    assert listed_names(LocalStore(tmp_path)) == []


class ExitStackLock:
    def hold(self):
        return ExitStack()


@pytest.mark.slow
def test_a_killed_writer_of_a_table_blocks_nobody(tmp_path):
    named = {"hoodie.write.lock.provider": "FileSystemBasedLockProvider", "hoodie.write.lock.wait_time_ms": 100}
    table = lakefmt.create_table(str(tmp_path), data=pa.table({"id": ["a"]}), record_key="id", options=named)
    die_at(tmp_path, "at work")
    assert table.upsert(pa.table({"id": ["a"]})).num_inserts == 1
    assert table.check("full").is_clean


# --------------------------------------------------------------------------------------------------- who keeps the lock


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory):
    root = tmp_path_factory.mktemp("left")
    die_at(root, "at work")
    return root


@pytest.fixture
def left(left_behind, tmp_path):
    """Return what a killed process left: the store, and what its lock file says."""
    store = LocalStore(shutil.copytree(left_behind, tmp_path / "t"))
    return store, json.loads(store.read(FILE_SYSTEM_LOCK_NAME))


def of_a_jvm(store, said):
    return b""


def of_a_jvm_with_words(store, said):
    return json.dumps({"lockCreateTime": "2026-01-01", "lockThreadName": "main"}).encode()


def of_an_older_lakefmt(store, said):
    return json.dumps({name: said[name] for name in ("owner", "host", "pid")}).encode()


def with_process(**changes):
    def change(store, said):
        return json.dumps({**said, "process": {**said["process"], **changes}}).encode()

    change.__name__ = f"of another {next(iter(changes))}"
    return change


def of_a_living_process(store, said):
    return with_process(pid=os.getpid(), started=this_process().started)(store, said)


def without_its_note(store, said):
    store.delete([f"{NOTES}/{said['note']}"])
    return json.dumps(said).encode()


def with_a_note_elsewhere(store, said):
    store.put("x", b"")
    return json.dumps({**said, "note": "../../x"}).encode()


def with_a_strange_process(store, said):
    return json.dumps({**said, "process": {**said["process"], "pid": "1"}}).encode()


STRANGERS = [
    of_a_jvm,
    of_a_jvm_with_words,
    of_an_older_lakefmt,
    with_process(machine="another-host 0000"),
    with_process(space="pid:[1]"),
    of_a_living_process,
    without_its_note,
    with_a_note_elsewhere,
    with_a_strange_process,
]


@pytest.mark.parametrize("stranger", STRANGERS, ids=lambda stranger: stranger.__name__)
def test_without_both_checks_nobody_takes_it(left, stranger):
    store, said = left
    store.put(FILE_SYSTEM_LOCK_NAME, text := stranger(store, said))
    with pytest.raises(LockUnavailable, match=r"remove the file \(or set hoodie.write.lock.filesystem.expire"):
        lock_at(store.url).hold().__enter__()
    assert store.read(FILE_SYSTEM_LOCK_NAME) == text


def test_a_note_that_is_locked_is_a_sign_of_life(left):
    """As where two copies of one virtual machine share a disk: the process seems to have ended, its note is locked."""
    store, said = left
    with store.hold(f"{NOTES}/{said['note']}"), pytest.raises(LockUnavailable):
        lock_at(store.url).hold().__enter__()
    assert_free(store.url)


@pytest.mark.parametrize("check", ["process", "note"])
def test_the_tests_see_a_missing_check(left, check, monkeypatch):
    """Sabotage: without one of the two checks the lock is taken from a living holder."""
    store, said = left
    if check == "process":
        monkeypatch.setattr(objects, "has_ended", lambda process: True)
        text = of_a_living_process(store, said)
        store.put(FILE_SYSTEM_LOCK_NAME, text)
        with lock_at(store.url).hold():
            assert store.read(FILE_SYSTEM_LOCK_NAME) != text
    else:
        with store.hold(f"{NOTES}/{said['note']}"):
            monkeypatch.setattr(LocalStore, "hold", lambda self, name: process_locks_module.ProcessLock(os.dup(0)))
            with lock_at(store.url).hold():
                pass


# ---------------------------------------------------------------------------------------------------------------- pieces


def test_where_nothing_can_vouch_the_file_is_as_before():
    store = MemoryStore()
    assert process_locks(store) is None
    with FileSystemLock(store, "me", SOON).hold():
        assert decode_stamp(store.read(FILE_SYSTEM_LOCK_NAME)).vouched is None
    assert listed_names(store) == []


def test_a_system_that_tells_nothing_vouches_for_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(objects, "this_process", lambda: None)
    with lock_at(tmp_path).hold():
        assert decode_stamp((tmp_path / FILE_SYSTEM_LOCK_NAME).read_bytes()).vouched is None
    assert listed_names(LocalStore(tmp_path)) == []


@given(st.text(), st.booleans(), st.integers(0, 2**31), st.integers(0, 2**53), st.text())
def test_what_a_stamp_says_comes_back(owner, is_vouched, pid, started, machine):
    vouched = Vouched(ProcessName(machine, "pid:[7]", pid, started), "lock_holder-1") if is_vouched else None
    found = decode_stamp(encode_stamp(owner, vouched))
    assert (found.owner, found.pid, found.vouched) == (owner, os.getpid(), vouched)


@given(st.binary() | st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(st.sampled_from(
    ["owner", "host", "pid", "process", "note"]), inner)).map(lambda said: json.dumps(said).encode()))  # fmt: skip
def test_any_text_is_a_stamp_or_none(data):
    found = decode_stamp(data)
    assert found is None or found.vouched is None


def test_a_process_that_ended_is_told_from_a_living_one():
    mine = this_process()
    assert not has_ended(mine)
    assert has_ended(replace(mine, started=mine.started - 1)), "the number was given out again"
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        theirs = replace(mine, pid=child.pid, started=process_locks_module._start_of(str(child.pid)))
        assert not has_ended(theirs)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(theirs), "it has ended, and nobody has asked how"
    assert has_ended(theirs)
    assert not has_ended(replace(theirs, machine="another"))
    assert not has_ended(replace(theirs, space="pid:[1]"))
