"""What only a store on this machine's disk can do wrong: crashes, full disks, sidecars, links, old file systems."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lakefmt._core.storage import LocalStore, MemoryStore, PutOutcome, atomic_files
from lakefmt._core.storage import atomic_files as _posix
from lakefmt._core.storage.api import TEMPORARY_PREFIX, SupportsTempCleanup
from lakefmt._core.storage.process_lock import SupportsProcessLocks
from lakefmt.errors import ObjectNotFound, StateError, StorageError
from lakefmt.testing.suites import listed_names, together
from tests.kit import SECONDS_FOR_A_CHILD


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path / "table")


@pytest.fixture
def root(store):
    return Path(store.url)


def files_under(root):
    """Return every file below a directory, the hidden ones too."""
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if not p.is_dir())


def failing(code):
    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    return fail


def python(script, *arguments):
    """Start a Python process that talks by its standard streams."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


# ------------------------------------------------------------------------------------------------ processes and crashes

RACE = """
import sys

from lakefmt._core.storage import LocalStore, MemoryStore, PutOutcome
store = LocalStore(sys.argv[1])
body = sys.argv[2].encode() * 20_000
print("ready", flush=True)
sys.stdin.readline()
won = [n for n in range(80) if store.put_if_absent(f"race/{n}", body) is PutOutcome.DONE]
print(*won)
"""


@pytest.mark.slow
def test_of_two_processes_one_is_done(store):
    processes = {letter: python(RACE, store.url, letter) for letter in "AB"}
    assert [process.stdout.readline() for process in processes.values()] == ["ready\n", "ready\n"]
    for process in processes.values():
        process.stdin.write("go\n")
        process.stdin.flush()
    won = {letter: process.communicate(timeout=SECONDS_FOR_A_CHILD)[0].split() for letter, process in processes.items()}
    assert sorted(map(int, won["A"] + won["B"])) == list(range(80))
    for letter, numbers in won.items():
        assert {store.read(f"race/{number}") for number in numbers} <= {letter.encode() * 20_000}
    assert len(files_under(Path(store.url))) == 80


KILLED_IN_A_SINK = """
import sys

from lakefmt._core.storage import LocalStore
store = LocalStore(sys.argv[1])
with store.create("d/big", durable=True) as sink:
    sink.file.write(b"x" * 3_000_000)
    sink.file.flush()
    print("written", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_temporary_files_only(store, root):
    process = python(KILLED_IN_A_SINK, store.url)
    assert process.stdout.readline() == "written\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=SECONDS_FOR_A_CHILD)
    assert listed_names(store) == []
    (left,) = files_under(root)
    assert Path(left).name.startswith(TEMPORARY_PREFIX)
    assert store.remove_leftovers(os.stat(root / left).st_mtime) == 0
    assert store.remove_leftovers(os.stat(root / left).st_mtime + 1) == 1
    assert files_under(root) == []


KILLED_BETWEEN_PUTS = """
import sys

from lakefmt._core.storage import LocalStore
store = LocalStore(sys.argv[1])
for n in range(1_000_000):
    store.put_if_absent(f"new/{n}", bytes([n % 256]) * 100_000)
    store.put("same", bytes([n % 256]) * 100_000)
    print(n, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 7, 20])
def test_whenever_a_writer_is_killed_what_is_seen_is_whole(store, rounds):
    process = python(KILLED_BETWEEN_PUTS, store.url)
    for _ in range(rounds):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=SECONDS_FOR_A_CHILD)
    bodies = [store.read(found.name) for found in store.list()]
    assert len(bodies) > rounds
    assert all(body == body[:1] * 100_000 for body in bodies)


def test_a_forked_copy_makes_other_temporary_names(store):
    files = store._files
    first = files.temporary_beside("/t/x")
    files._numbers = iter([0])  # what a fork would count again
    os_getpid = os.getpid
    try:
        os.getpid = lambda: 1
        assert files.temporary_beside("/t/x") != first
    finally:
        os.getpid = os_getpid


# ------------------------------------------------------------------------------------------------------------- sidecars


def test_sidecars_of_replaced_and_removed_objects_go(store, root):
    for name in ("a", "b", "d/c", "kept"):
        store.put(name, b"old")
        sidecar = root / name
        sidecar.with_name(f".{sidecar.name}.crc").write_bytes(b"crc")
    store.put("a", b"new")
    store.delete(["b", "d/c"])
    assert store.put_if_absent("kept", b"new") is PutOutcome.REFUSED
    assert files_under(root) == [".kept.crc", "a", "kept"]


def test_a_sidecar_goes_before_the_bytes_it_belongs_to(store, root, monkeypatch):
    store.put("a", b"old")
    (root / ".a.crc").write_bytes(b"crc")
    monkeypatch.setattr(os, "replace", failing(errno.EIO))
    with pytest.raises(StorageError):
        store.put("a", b"new")
    assert files_under(root) == ["a"]
    assert store.read("a") == b"old"


# ------------------------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("code", "said", "transient"),
    [
        (errno.ENOSPC, "the disk is full", False),
        (errno.EDQUOT, "quota", False),
        (errno.EROFS, "read-only", False),
        (errno.EACCES, "permission denied", False),
        (errno.ETIMEDOUT, "timed out", True),
        (errno.EAGAIN, "", True),
    ],
)
@pytest.mark.parametrize("call", ["open", "write", "fsync", "link", "replace"])
def test_a_failing_system_call_is_a_sentence_and_leaves_nothing(store, root, monkeypatch, call, code, said, transient):
    store.put("d/there", b"old")
    monkeypatch.setattr(os, call, failing(code))
    verbs = [lambda: store.put_if_absent("d/new", b"x", durable=True), lambda: store.put("d/there", b"x", durable=True)]
    for verb in {"link": verbs[:1], "replace": verbs[1:]}.get(call, verbs):
        with pytest.raises(StorageError) as caught:
            verb()
        assert "d/new" in str(caught.value) or "d/there" in str(caught.value)
        assert store.url in str(caught.value)
        assert said in str(caught.value).lower()
        assert caught.value.transient is transient
    monkeypatch.undo()
    assert files_under(root) == ["d/there"]
    assert store.read("d/there") == b"old"


def test_a_disk_that_fills_up_under_a_sink(store, root):
    def fill():
        with store.create("big") as sink:
            sink.file.write(b"x" * 1000)
            raise OSError(errno.ENOSPC, "what the write of an Arrow file would raise")

    with pytest.raises(StorageError, match=r"cannot write 'big' in .*: the disk is full"):
        fill()
    assert files_under(root) == []


def test_a_limit_on_file_sizes_is_met_for_real(store, root):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    body = b"x" * 4_000_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        for write in (
            lambda: store.put_if_absent("a", body),
            lambda: store.put("a", body),
            lambda: _sink(store, "a", body),
        ):
            with pytest.raises(StorageError, match="'a'"):
                write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files_under(root) == []


def _sink(store, name, body):
    with store.create(name) as sink:
        sink.file.write(body)
        return sink.put_if_absent()


def test_a_write_that_is_taken_in_pieces_is_whole(store, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data)[:7]))
    store.put("a", memoryview(b"0123456789" * 10))
    store.put("b", bytearray(b"0123456789" * 10))
    assert store.read("a") == store.read("b") == b"0123456789" * 10


def test_a_read_that_comes_in_pieces_is_whole(store, monkeypatch):
    store.put("a", b"0123456789" * 10)
    read = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, size: read(descriptor, min(size, 7)))
    assert store.read("a") == b"0123456789" * 10


def test_a_file_that_shrinks_while_it_is_read_ends_early(store, root, monkeypatch):
    store.put("a", b"0123456789")
    read = os.read

    def shrink(descriptor, size):
        os.truncate(root / "a", 4)
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", shrink)
    assert store.read("a") == b"0123"


def test_a_sum_of_failed_removals_names_one(store, monkeypatch):
    for name in ("a", "b", "c"):
        store.put(name, b"")
    unlink = os.unlink

    def refuse(path, *rest, **more):
        if os.path.basename(path) in ("a", "b"):
            raise PermissionError(errno.EACCES, "no")
        return unlink(path, *rest, **more)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(StorageError, match=r"cannot remove 'a' in .*permission denied.* \(and 1 more\)"):
        store.delete(["a", "b", "c"])
    assert listed_names(store) == ["a", "b"]


def test_a_tree_that_keeps_growing_is_given_up_in_the_end(store, monkeypatch):
    store.put("t/a", b"")
    monkeypatch.setattr(os, "rmdir", failing(errno.ENOTEMPTY))
    with pytest.raises(StorageError, match="something was added meanwhile"):
        store.delete_tree("t")


def test_a_tree_that_grows_once_is_removed(store, root, monkeypatch):
    store.put("t/a", b"")
    rmdir = os.rmdir
    calls = []

    def grow_once(path, *rest, **more):
        calls.append(path)
        if len(calls) == 1:
            (root / "t" / "late").write_bytes(b"")
        return rmdir(path, *rest, **more)

    monkeypatch.setattr(os, "rmdir", grow_once)
    store.delete_tree("t")
    assert not (root / "t").exists()
    assert len(calls) == 2


def test_a_file_in_the_place_of_a_directory(store):
    store.put("a", b"x")
    assert store.info("a/b") is None
    assert listed_names(store, "a") == []
    with pytest.raises(ObjectNotFound):
        store.read("a/b")
    store.delete(["a/b"])
    for verb in (store.put, store.put_if_absent):
        with pytest.raises(StorageError, match="'a/b'"):
            verb("a/b", b"x")
    with pytest.raises(StorageError, match="'a'"):
        store.make_directories(["a"])
    assert store.read("a") == b"x"


def test_a_directory_in_the_place_of_a_file(store, root):
    store.make_directories(["d"])
    assert store.put_if_absent("d", b"x") is PutOutcome.REFUSED
    with pytest.raises(StorageError, match="'d'"):
        store.put("d", b"x")
    assert files_under(root) == []


# ----------------------------------------------------------------------------------------------------------- durability


@pytest.fixture
def calls(monkeypatch):
    """Record the order of the calls that make bytes safe or visible."""
    seen = []

    def recorded(name, original):
        def call(*arguments, **named):
            what = arguments[0]
            if isinstance(what, int):
                what = os.readlink(f"/proc/self/fd/{what}")
            kind = "temporary" if TEMPORARY_PREFIX in str(what) else os.path.basename(str(what))
            seen.append(f"{name} {kind}")
            return original(*arguments, **named)

        return call

    for name in ("fsync", "link", "replace"):
        monkeypatch.setattr(os, name, recorded(name, getattr(os, name)))
    return seen


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to name descriptors")
def test_durable_bytes_reach_the_disk_before_the_name_and_the_name_after(store, tmp_path, calls):
    store.put_if_absent("p=1/a", b"x", durable=True)
    first = ["fsync temporary", "link temporary", "fsync p=1"]
    # The first time the directories above count, too: they may be as new as the file.
    assert calls == [*first, "fsync table", f"fsync {tmp_path.name}"]
    calls.clear()
    store.put_if_absent("p=1/b", b"x", durable=True)
    assert calls == first
    calls.clear()
    store.put("p=1/b", b"y", durable=True)
    assert calls == ["fsync temporary", "replace temporary", "fsync p=1"]
    calls.clear()
    _sink_durably(store, "p=1/c")
    assert calls == first


def _sink_durably(store, name):
    with store.create(name, durable=True) as sink:
        sink.file.write(b"x")
        assert sink.put_if_absent() is PutOutcome.DONE


def _batch_of(store, stack, names):
    batch = store.put_batch()
    for name in names:
        sink = stack.enter_context(store.create(name, durable=True))
        sink.file.write(name.encode())
        batch.add(sink)
    return batch


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to name descriptors")
def test_a_batch_reaches_the_disk_before_its_names_and_each_directory_after(store, root, tmp_path, calls):
    with contextlib.ExitStack() as stack:
        batch = _batch_of(store, stack, ["p=1/a", "p=2/a", "p=2/b"])
        assert calls == []
        assert batch.put_if_absent() == [PutOutcome.DONE] * 3
    first = [*["fsync temporary"] * 3, *["link temporary"] * 3]
    assert calls[:6] == first
    # Each directory once; the ones above are as new as the files.
    assert calls[6:] == ["fsync p=1", "fsync table", f"fsync {tmp_path.name}", "fsync p=2"]
    assert files_under(root) == ["p=1/a", "p=2/a", "p=2/b"]
    assert store.read("p=2/b") == b"p=2/b"


def test_a_batch_replaces_nothing(store, root):
    store.put("p=1/b", b"old")
    with contextlib.ExitStack() as stack:
        batch = _batch_of(store, stack, ["p=1/a", "p=1/b", "p=1/c"])
        assert batch.put_if_absent() == [PutOutcome.DONE, PutOutcome.REFUSED, PutOutcome.DONE]
        assert batch.put_if_absent() == [], "each is put once"
    assert store.read("p=1/b") == b"old"
    assert files_under(root) == ["p=1/a", "p=1/b", "p=1/c"]


def test_a_batch_whose_bytes_may_be_lost_names_nothing(store, root, monkeypatch):
    calls = itertools.count()
    fsync = os.fsync

    def fail_later(descriptor):
        if next(calls) == 1:
            raise OSError(errno.EIO, "input/output error")
        return fsync(descriptor)

    with contextlib.ExitStack() as stack:
        batch = _batch_of(store, stack, ["p=1/a", "p=1/b"])
        monkeypatch.setattr(os, "fsync", fail_later)
        with pytest.raises(StorageError, match="'p=1/b'"):
            batch.put_if_absent()
    assert files_under(root) == []


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system cannot be asked to begin a flush")
@pytest.mark.parametrize("durable", [True, False])
def test_bytes_of_a_large_object_are_on_their_way_to_disk_before_it_is_finished(root, monkeypatch, durable):
    begun = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, start, size, __: begun.append((start, size)))
    store, many = LocalStore(root), b"x" * (5 << 20)
    with store.create("p=1/a", durable=durable) as writer:
        for number in range(3):
            writer.file.write(b"few")
            writer.begin_flush()
            assert len(begun) == number * durable, "few bytes are not worth a call"
            writer.file.write(many)
            writer.begin_flush()
        assert writer.put_if_absent() is PutOutcome.DONE
    # No byte is named twice: those on disk would leave the memory.
    assert begun == [(number * (len(many) + 3), len(many) + 3) for number in range(3)] * durable
    assert store.read("p=1/a") == (b"few" + many) * 3


def test_a_flush_that_cannot_begin_is_an_error_of_the_store(store, monkeypatch):
    with store.create("p=1/a", durable=True) as writer, monkeypatch.context() as patch:
        patch.setattr(type(writer), "file", property(lambda _: _FullFile()))
        with pytest.raises(StorageError, match="'p=1/a'"):
            writer.begin_flush()


class _FullFile:
    closed = False

    def tell(self):
        return 5 << 20

    def flush(self):
        raise OSError(errno.ENOSPC, "no space")


def test_a_batch_of_one_store_takes_no_object_of_another(store):
    with MemoryStore().create("a") as sink, pytest.raises(StateError, match="local files"):
        store.put_batch().add(sink)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to name descriptors")
def test_what_is_not_durable_waits_for_nothing(store, calls):
    store.put_if_absent("p=1/a", b"x")
    store.put("p=1/a", b"x")
    assert calls == ["link temporary", "replace temporary"]


@pytest.mark.parametrize("who", ["us", "somebody else"])
def test_a_directory_made_anew_is_flushed_anew(store, root, calls, who):
    store.put_if_absent("p=1/a", b"x", durable=True)
    if who == "us":
        store.delete_tree("p=1")
    else:
        shutil.rmtree(root / "p=1")
    calls.clear()
    store.put_if_absent("p=1/a", b"x", durable=True)
    assert "fsync table" in calls


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to name descriptors")
def test_entries_that_were_there_are_flushed_once_for_all_directories(store, root, calls):
    for name in ("p=1", "p=2", "p=2/q=1"):
        (root / name).mkdir(parents=True)
    expected = {
        "p=1/a": ["fsync p=1", "fsync table", f"fsync {root.parent.name}"],
        "p=2/a": ["fsync p=2"],
        "p=2/q=1/a": ["fsync q=1", "fsync p=2"],
        "p=3/a": ["fsync p=3", "fsync table"],
    }
    for name, directories in expected.items():
        calls.clear()
        store.put_if_absent(name, b"x", durable=True)
        assert calls == ["fsync temporary", "link temporary", *directories], name
    shutil.rmtree(root / "p=2")
    calls.clear()
    store.put_if_absent("p=2/q=1/a", b"x", durable=True)
    assert calls[2:] == ["fsync q=1", "fsync p=2", "fsync table"], "what was removed and made anew is flushed anew"


def test_an_object_in_place_that_may_not_survive_is_an_error(store, monkeypatch):
    store.make_directories(["d"])
    fsync = os.fsync

    def fail_for_directories(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "input/output error")
        return fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_for_directories)
    with pytest.raises(StorageError, match="may not survive a power failure"):
        store.put_if_absent("d/a", b"x", durable=True)
    assert store.read("d/a") == b"x"


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_flushes_no_directories_is_fine(store, monkeypatch, code):
    fsync = os.fsync

    def refuse_directories(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(code, "no")
        return fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_directories)
    assert store.put_if_absent("d/a", b"x", durable=True) is PutOutcome.DONE


# --------------------------------------------------------------------------------------------------------- ways to place


def test_without_hard_links_a_rename_places(store, root, monkeypatch):
    monkeypatch.setattr(atomic_files, "WAYS", (failing(errno.EPERM), *atomic_files.WAYS[1:]))
    assert store.put_if_absent("a", b"1") is PutOutcome.DONE
    assert store.put_if_absent("a", b"2") is PutOutcome.REFUSED
    assert store.capabilities.put_if_absent
    assert files_under(root) == ["a"]


def test_without_either_the_store_promises_less_but_one_wins(store, root, monkeypatch):
    monkeypatch.setattr(atomic_files, "WAYS", (failing(errno.EOPNOTSUPP), failing(errno.EINVAL), atomic_files.WAYS[2]))
    store.put("d/x", b"")
    assert not store.capabilities.put_if_absent
    bodies = [bytes([65 + n]) * 1000 for n in range(8)]
    outcomes = together([lambda body=body: store.put_if_absent("d/a", body) for body in bodies])
    assert [outcome for outcome in outcomes if outcome is PutOutcome.DONE] == [PutOutcome.DONE]
    assert store.read("d/a") == bodies[outcomes.index(PutOutcome.DONE)]
    assert files_under(root) == ["d/a", "d/x"]


def test_the_promise_is_tried_out_before_the_first_put(tmp_path, monkeypatch):
    store = LocalStore(tmp_path)
    monkeypatch.setattr(atomic_files, "WAYS", (failing(errno.EPERM), failing(errno.ENOSYS), atomic_files.WAYS[2]))
    assert not store.capabilities.put_if_absent
    assert files_under(tmp_path) == []


def test_a_base_that_is_not_there_yet_is_not_made_by_a_question(store, root):
    assert store.capabilities.put_if_absent
    assert not root.exists()


def test_a_real_failure_of_a_link_is_not_taken_for_a_missing_call(store, monkeypatch):
    monkeypatch.setattr(os, "link", failing(errno.EIO))
    with pytest.raises(StorageError):
        store.put_if_absent("a", b"x")
    assert store._files.way == 0


def test_a_link_whose_answer_came_twice_is_ours(store, monkeypatch):
    link = os.link

    def answer_twice(source, target, **named):
        link(source, target, **named)
        raise FileExistsError(errno.EEXIST, "the repeated request")

    monkeypatch.setattr(os, "link", answer_twice)
    assert store.put_if_absent("a", b"x") is PutOutcome.DONE


def test_an_exclusive_create_that_cannot_finish_gives_the_name_back(store, root, monkeypatch):
    monkeypatch.setattr(atomic_files, "WAYS", atomic_files.WAYS[2:])
    monkeypatch.setattr(os, "replace", failing(errno.EIO))
    with pytest.raises(StorageError):
        store.put_if_absent("a", b"x")
    assert files_under(root) == []


# ----------------------------------------------------------------------------------------------- what lies around on disk


def test_a_pipe_hangs_nobody(store, root):
    root.mkdir()
    os.mkfifo(root / "pipe")
    assert store.info("pipe") is None
    assert listed_names(store) == []
    with pytest.raises(ObjectNotFound):
        store.read("pipe")


def test_names_that_are_no_text_are_not_shown(store, root):
    root.mkdir()
    (root / os.fsdecode(b"bad\xff")).write_bytes(b"")
    (root / os.fsdecode(b"worse\xfe")).mkdir()
    store.put("good", b"")
    assert listed_names(store) == ["good"]
    assert store.list_directories() == []
    store.delete_tree("")
    assert not root.exists()


def test_entries_that_vanish_while_listed_are_left_out(store, monkeypatch):
    for number in range(20):
        store.put(str(number), b"")
    real = _posix._entries_of

    @contextlib.contextmanager
    def slow(path):
        with real(path) as entries:
            found = list(entries)
            store.delete(str(number) for number in range(1, 20))
            yield iter(found)

    monkeypatch.setattr(_posix, "_entries_of", slow)
    assert listed_names(store) == ["0"]


# ---------------------------------------------------------------------------------------------------------------- others


def test_the_base_stays_when_the_working_directory_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = LocalStore("relative")
    (tmp_path / "partition_changed").mkdir()
    monkeypatch.chdir(tmp_path / "partition_changed")
    store.put("a", b"x")
    assert (tmp_path / "relative" / "a").read_bytes() == b"x"
    assert store.url == str(tmp_path / "relative")


def test_objects_get_the_permissions_that_the_user_asks_for(store, root):
    before = os.umask(0o027)
    try:
        store.put("a", b"")
        store.put_if_absent("b", b"")
        _sink(store, "c", b"")
    finally:
        os.umask(before)
    assert {name: (root / name).stat().st_mode & 0o777 for name in "abc"} == dict.fromkeys("abc", 0o640)


def test_a_sink_outside_its_block_is_an_error(store):
    sink = store.create("a")
    with pytest.raises(StateError):
        sink.file.write(b"x")


def test_it_sweeps_and_locks(store):
    assert isinstance(store, SupportsTempCleanup)
    assert isinstance(store, SupportsProcessLocks)


def test_a_held_object_is_held_until_released(store):
    store.put("d/lock", b"stamp")
    held = store.hold("d/lock")
    assert held is not None
    assert store.is_held("d/lock")
    assert store.hold("d/lock") is None
    held.release()
    assert not store.is_held("d/lock")
    assert store.read("d/lock") == b"stamp"


def test_touching_makes_young_and_never_makes(store, root):
    store.put("a", b"x")
    os.utime(root / "a", (1, 1))
    store.touch("a")
    found = store.info("a")
    assert found is not None
    assert found.modified > 1e9
    store.touch("missing")
    assert listed_names(store) == ["a"]


def test_a_failing_lock_or_touch_is_a_sentence(store, monkeypatch):
    store.put("a", b"x")
    monkeypatch.setattr(os, "utime", failing(errno.EROFS))
    with pytest.raises(StorageError, match="read-only"):
        store.touch("a")
    monkeypatch.setattr(os, "open", failing(errno.EROFS))
    with pytest.raises(StorageError, match="cannot lock 'a'"):
        store.hold("a")


def test_sweeping_spares_the_young_and_bears_a_race(store, root, monkeypatch):
    store.put("keep/x", b"")
    store.leave_temporary_object("keep/x", b"old")
    (left,) = [name for name in files_under(root) if TEMPORARY_PREFIX in name]
    os.utime(root / left, (1000, 1000))
    store.leave_temporary_object("x", b"young")
    assert store.remove_leftovers(1000.0) == 0
    assert store.remove_leftovers(1001.0) == 1
    monkeypatch.setattr(os, "unlink", failing(errno.ENOENT))
    assert store.remove_leftovers(1e12) == 0
    monkeypatch.setattr(os, "unlink", failing(errno.EACCES))
    with pytest.raises(StorageError, match="permission"):
        store.remove_leftovers(1e12)
