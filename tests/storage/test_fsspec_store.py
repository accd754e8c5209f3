"""Services that can create only if absent, asked through fsspec, and what any other file system may do to us."""

from __future__ import annotations

import errno
import itertools
import tempfile
import threading
from datetime import UTC, datetime

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from lakefmt._core.storage import PutOutcome
from lakefmt._core.storage.remote import RemoteStore
from lakefmt.errors import ObjectNotFound, StorageError
from lakefmt.testing.suites import StoreSuite, listed_names

numbers = itertools.count()


class Bucket(MemoryFileSystem):
    """An object store in memory: flat names, a lock, and failures after the deed."""

    cachable = False

    def __init__(self, **options):
        super().__init__(**options)
        self.lock = threading.Lock()
        self.objects = {}
        self.fail_after = []
        self.times = {}

    def _create(self, path, value, only_new, metadata):
        with self.lock:
            if only_new and path in self.objects:
                raise FileExistsError(path)
            self.objects[path] = (bytes(value), metadata)
        if self.fail_after:
            raise self.fail_after.pop(0)

    def info(self, path, **_):
        if path not in self.objects:
            raise FileNotFoundError(path)
        data, metadata = self.objects[path]
        return {"name": path, "size": len(data), "type": "file", "metadata": metadata, **self.times}

    def find(self, path, detail=False, withdirs=False, **_):
        return {name: self.info(name) for name in list(self.objects) if name.startswith(f"{path}/")}

    def ls(self, path, detail=True, **_):
        below = [name[len(path) + 1 :] for name in self.objects if name.startswith(f"{path}/")]
        if not below:
            raise FileNotFoundError(path)
        directories = {f"{path}/{name.split('/')[0]}" for name in below if "/" in name}
        rows = [{"name": f"{name}/", "size": 0, "type": "directory"} for name in directories]
        return rows + [self.info(f"{path}/{name}") for name in below if "/" not in name]

    def cat_file(self, path, start=None, end=None, **_):
        self.info(path)
        data = self.objects[path][0]
        if start is not None and start >= len(data):
            raise ValueError("range cannot be satisfied")
        return data[start:end]

    def rm_file(self, path):
        del self.objects[self.info(path)["name"]]

    def open(self, path, mode="rb", **_):
        import io

        return io.BytesIO(self.cat_file(path))

    def isdir(self, path):
        return bool(self.find(path))

    def isfile(self, path):
        return path in self.objects


class Google(Bucket):
    protocol = ("gs", "gcs")

    def pipe_file(self, path, value, metadata=None, mode="overwrite", **_):
        self._create(path, value, mode == "create", metadata)

    def put_file(self, lpath, rpath, metadata=None, mode="overwrite", **_):
        with open(lpath, "rb") as file:
            self._create(rpath, file.read(), mode == "create", metadata)


class OldGoogle(Google):
    """A release that does not know the argument yet, and takes anything."""

    def pipe_file(self, path, value, **_):
        self._create(path, value, False, None)


class TestGoogleLikeStore(StoreSuite):
    @pytest.fixture
    def store(self):
        return RemoteStore(Google(), f"bucket/table-{next(numbers)}")


def test_a_repetition_by_the_client_is_told_from_a_refusal():
    fs = Google()
    store = RemoteStore(fs, "bucket/t")
    original = fs._create

    def twice(path, value, only_new, metadata):
        original(path, value, only_new, metadata)
        original(path, value, only_new, metadata)

    fs._create = twice
    assert store.put_if_absent("a", b"x") is PutOutcome.DONE
    assert store.put_if_absent("a", b"x") is PutOutcome.REFUSED


def test_a_refusal_by_what_is_gone_again_is_a_refusal():
    fs = Google()
    store = RemoteStore(fs, "bucket/t")

    def refuse(*_):
        raise FileExistsError

    fs._create = refuse
    assert store.put_if_absent("a", b"x") is PutOutcome.REFUSED


def test_a_refusal_that_cannot_be_looked_at_is_unknown():
    fs = Google()
    store = RemoteStore(fs, "bucket/t")
    store.put("a", b"x")

    def fail(*_, **__):
        raise TimeoutError

    fs.info = fail
    assert store.put_if_absent("a", b"x") is PutOutcome.UNKNOWN


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(), RuntimeError("who knows")])
def test_a_lost_answer_is_unknown(error, caplog):
    fs = Google()
    store = RemoteStore(fs, "bucket/t")
    fs.fail_after = [error]
    assert store.put_if_absent("a", b"x") is PutOutcome.UNKNOWN
    assert store.read("a") == b"x"
    assert "was lost" in caplog.text


def test_a_refused_permission_is_an_error():
    fs = Google()
    store = RemoteStore(fs, "bucket/t")
    fs.fail_after = [PermissionError("no")]
    with pytest.raises(StorageError, match="cannot create 'a' in gs://bucket/t: PermissionError: no"):
        store.put_if_absent("a", b"x")


def test_a_client_that_does_not_know_the_condition_is_not_trusted(caplog):
    store = RemoteStore(OldGoogle(), "bucket/t")
    assert not store.capabilities.put_if_absent
    assert "one writer at a time" in caplog.text
    assert store.put_if_absent("a", b"x") is PutOutcome.DONE
    assert store.put_if_absent("a", b"y") is PutOutcome.REFUSED


def test_the_promise_can_be_proved():
    store = RemoteStore(Google(), "bucket/t")
    assert store.prove_put_if_absent()
    assert store._fs.objects == {}


@pytest.mark.parametrize(
    ("times", "modified"),
    [
        ({"LastModified": datetime(2026, 1, 1, tzinfo=UTC)}, 1767225600.0),
        ({"last_modified": datetime(2026, 1, 1)}, 1767225600.0),
        ({"updated": "2026-01-01T00:00:00.000Z"}, 1767225600.0),
        ({"mtime": 12.5}, 12.5),
        ({"mtime": None, "updated": "yesterday"}, 0.0),
        ({}, 0.0),
    ],
)
def test_times_come_in_many_shapes(times, modified):
    fs = Google()
    store = RemoteStore(fs, "bucket/t")
    store.put("a", b"x")
    fs.times = times
    assert store.info("a").modified == modified


def test_what_cannot_be_removed_is_told_and_the_rest_is_removed():
    fs = Google()
    store = RemoteStore(fs, "bucket/t")
    for name in ("a", "b", "c", "d"):
        store.put(name, b"")
    remove = fs.rm_file

    def refuse(path):
        if path.endswith(("/b", "/c")):
            raise PermissionError(path)
        remove(path)

    fs.rm_file = refuse
    with pytest.raises(StorageError, match=r"cannot remove 'b' in gs://bucket/t: PermissionError \(and 1 more\)"):
        store.delete(["a", "b", "c", "d"])
    assert listed_names(store) == ["b", "c"]


def test_a_removal_that_fails_on_what_is_gone_is_fine():
    fs = Google()
    store = RemoteStore(fs, "bucket/t")

    def fail(path):
        raise RuntimeError("some driver's word for missing")

    fs.rm_file = fail
    store.delete(["missing"])


def test_whatever_a_driver_raises_is_a_storage_error():
    fs = Google()
    store = RemoteStore(fs, "bucket/t")
    store.put("a", b"x")

    class Strange(Exception):
        pass

    def fail(*_, **__):
        raise Strange("no reason")

    for method in ("cat_file", "info", "find", "ls", "pipe_file", "put_file", "invalidate_cache"):
        setattr(fs, method, fail)
    verbs = [
        lambda: store.read("a"),
        lambda: store.read("a", 5),
        lambda: store.info("a"),
        lambda: list(store.list()),
        lambda: store.list_directories(),
        lambda: store.put("a", b""),
        lambda: store.delete_tree("a"),
    ]
    for verb in verbs:
        with pytest.raises(StorageError, match="Strange: no reason") as caught:
            verb()
        assert caught.value.__context__ is None


def test_a_temporary_directory_that_fills_up_is_a_sentence():
    store = RemoteStore(Google(), "bucket/t")

    def fill():
        with store.create("big") as sink:
            sink.file.write(b"x")
            raise OSError(errno.ENOSPC, "what the write of an Arrow file would raise")

    with pytest.raises(StorageError, match=r"cannot buffer 'big' in .*: the disk is full"):
        fill()
    assert listed_names(store) == []


def test_a_sink_leaves_nothing_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = RemoteStore(Google(), "bucket/t")
    with store.create("big") as sink:
        sink.file.write(b"x")
        assert len(list(tmp_path.iterdir())) == 1
        assert sink.put_if_absent() is PutOutcome.DONE
    assert list(tmp_path.iterdir()) == []


def test_a_base_can_be_any_path_and_objects_outside_are_not_seen():
    fs = Google()
    store = RemoteStore(fs, "bucket/t")
    RemoteStore(fs, "bucket/t2").put("a", b"x")
    RemoteStore(fs, "bucket").put("t", b"x")
    assert listed_names(store) == []
    with pytest.raises(ObjectNotFound):
        store.read("a")
