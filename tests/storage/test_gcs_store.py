"""What only Google Cloud Storage can do wrong while it compares and swaps: lost answers, repeated requests, no generation."""

from __future__ import annotations

import itertools
from unittest import mock

import pytest

from lakefmt._core.storage import PutOutcome
from lakefmt._core.storage.remote import RemoteStore
from lakefmt.errors import StorageError

pytestmark = [pytest.mark.gcs, pytest.mark.newest_only("older releases of gcsfs know no conditions")]

NAME = ".hoodie/.locks/table_lock.json"
numbers = itertools.count()


@pytest.fixture
def store(gcs_filesystem, gcs_bucket):
    made = RemoteStore(gcs_filesystem, f"{gcs_bucket}/swaps-{next(numbers)}")
    made.put(NAME, b"one")
    return made


def posts(fs, act):
    """Return a patch under which `act` carries out, or does not carry out, a conditional put."""
    ask = fs.call

    def call(method, *args, **told):
        send = lambda: ask(method, *args, **told)  # noqa: E731
        return act(send) if method == "POST" else send()

    return mock.patch.object(fs, "call", call)


def lost(send):
    send()
    raise ConnectionResetError("the answer is lost")


def never_sent(send):
    raise PermissionError("no")


def repeated(send):
    send()
    return send()


def mark(store):
    return store.read_version(NAME, 100).mark


def test_a_put_repeated_by_the_client_is_done(store, gcs_filesystem):
    with posts(gcs_filesystem, repeated):
        answer = store.put_if_match(NAME, b"two", mark(store))
    assert answer == (PutOutcome.DONE, mark(store))
    assert store.read(NAME) == b"two"


def test_a_lost_answer_is_told(store, gcs_filesystem):
    seen = mark(store)
    with posts(gcs_filesystem, lost):
        assert store.put_if_match(NAME, b"two", seen).outcome is PutOutcome.UNKNOWN
    assert store.read(NAME) == b"two"
    assert store.put_if_match(NAME, b"three", seen).outcome is PutOutcome.REFUSED


def test_what_was_turned_down_is_an_error(store, gcs_filesystem):
    with posts(gcs_filesystem, never_sent), pytest.raises(StorageError, match="cannot replace"):
        store.put_if_match(NAME, b"two", mark(store))
    assert store.read(NAME) == b"one"


def test_whoever_cannot_look_after_a_refusal_does_not_know(store, gcs_filesystem):
    seen = mark(store)
    with (
        posts(gcs_filesystem, repeated),
        mock.patch.object(gcs_filesystem, "info", side_effect=ConnectionResetError()),
    ):
        assert store.put_if_match(NAME, b"two", seen).outcome is PutOutcome.UNKNOWN


def test_an_empty_object_has_a_generation(store):
    store.put(NAME, b"")
    found = store.read_version(NAME, 100)
    assert found.data == b""
    assert store.put_if_match(NAME, b"two", found.mark).outcome is PutOutcome.DONE


def test_a_service_that_tells_no_generation_is_refused(store, gcs_filesystem):
    with (
        mock.patch.object(gcs_filesystem, "call", return_value=({}, b"one")),
        pytest.raises(StorageError, match="generation"),
    ):
        store.read_version(NAME, 100)


def test_bytes_that_look_like_the_request_arrive(store):
    data = b"\r\n--x--\r\nContent-Type: application/json\r\n\r\n{}" + bytes(range(256))
    assert store.put_if_match(NAME, data, mark(store)).outcome is PutOutcome.DONE
    assert store.read(NAME) == data
