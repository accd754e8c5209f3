"""Compare and swap: an object is replaced only if it is still the one that was seen."""

from __future__ import annotations

import itertools

import pytest

from lakefmt._core.storage import LocalStore, MemoryStore, PutOutcome
from lakefmt._core.storage.api import with_versions
from lakefmt._core.storage.remote import RemoteStore
from lakefmt.errors import CorruptFile, StorageError, UnsupportedFeature
from lakefmt.testing.stores import FaultMode, FaultStore, WrapperStore, fail_at
from lakefmt.testing.suites import together

NAME = ".hoodie/.locks/table_lock.json"
numbers = itertools.count()


def memory(request, tmp_path):
    return MemoryStore()


def local(request, tmp_path):
    return LocalStore(tmp_path / "t")


def wrapped(request, tmp_path):
    return WrapperStore(WrapperStore(LocalStore(tmp_path / "t")))


def s3(request, tmp_path):
    fs, bucket = request.getfixturevalue("s3_filesystem"), request.getfixturevalue("s3_bucket")
    return RemoteStore(fs, f"{bucket}/versions-{next(numbers)}")


def gcs(request, tmp_path):
    fs, bucket = request.getfixturevalue("gcs_filesystem"), request.getfixturevalue("gcs_bucket")
    return RemoteStore(fs, f"{bucket}/versions-{next(numbers)}")


STORES = [memory, local, wrapped, pytest.param(s3, marks=pytest.mark.s3), pytest.param(gcs, marks=pytest.mark.gcs)]


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    made = with_versions(request.param(request, tmp_path))
    if made is None:
        pytest.skip("an older botocore or gcsfs knows no condition")
    return made


def mark(store):
    return store.read_version(NAME, 100).mark


def test_one_after_the_other(store):
    assert store.read_version(NAME, 100) is None
    assert store.put_if_match(NAME, b"never", "some mark").outcome is PutOutcome.REFUSED
    assert store.read_version(NAME, 100) is None
    assert store.put_if_match(NAME, b"one", None).outcome is PutOutcome.DONE
    assert store.put_if_match(NAME, b"again", None).outcome is PutOutcome.REFUSED
    first = mark(store)
    done = store.put_if_match(NAME, b"two", first)
    assert done == (PutOutcome.DONE, mark(store)), "the new mark comes with the answer"
    assert store.put_if_match(NAME, b"late", first).outcome is PutOutcome.REFUSED
    assert store.read_version(NAME, 3).data == b"two"
    store.put(NAME, b"three")
    assert mark(store) != first
    store.delete([NAME])
    assert store.put_if_match(NAME, b"late", first).outcome is PutOutcome.REFUSED
    assert [found.name for found in store.list()] == [], "and nothing is left beside it"


def test_a_large_object_is_refused(store):
    store.put(NAME, b"x" * 101)
    with pytest.raises(CorruptFile):
        store.read_version(NAME, 100)


def test_of_eight_that_replace_one_state_one_is_done(store):
    store.put(NAME, b"state")
    seen = mark(store)
    answers = together([lambda n=n: store.put_if_match(NAME, b"%d" % n, seen) for n in range(8)])
    assert sorted(answer.outcome.value for answer in answers) == ["done"] + 7 * ["refused"]
    assert store.read_version(NAME, 10).data == b"%d" % [answer.outcome for answer in answers].index(PutOutcome.DONE)


def test_a_store_that_cannot_says_so(tmp_path):
    from fsspec.implementations.memory import MemoryFileSystem

    plain = RemoteStore(MemoryFileSystem(skip_instance_cache=True), "/t")
    assert with_versions(plain) is None
    assert with_versions(WrapperStore(plain)) is None
    for store in (plain, WrapperStore(plain)):
        with pytest.raises(UnsupportedFeature):
            store.read_version(NAME, 10)


@pytest.mark.parametrize("mode", FaultMode)
def test_faults_pass_through(mode):
    inner = MemoryStore()
    inner.put(NAME, b"one")
    store = FaultStore(inner, fail_at(1, mode, crash=False))
    seen = store.read_version(NAME, 10).mark
    lost = mode in (FaultMode.ANSWER_LOST, FaultMode.REQUEST_LOST)
    if lost:
        assert store.put_if_match(NAME, b"two", seen).outcome is PutOutcome.UNKNOWN
    else:
        with pytest.raises(StorageError):
            store.put_if_match(NAME, b"two", seen)
    done = mode in (FaultMode.AFTER, FaultMode.ANSWER_LOST)
    assert inner.read(NAME) == (b"two" if done else b"one")
