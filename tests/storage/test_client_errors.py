"""What an error says: whether it may pass, whether the write may have happened, and its words."""

from __future__ import annotations

import errno
import http.client
import json
import socket
from typing import ClassVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from lakefmt._core.storage import remote as _checked_files
from lakefmt._core.storage.messages import os_failure
from lakefmt._core.storage.remote import RemoteStore
from lakefmt._core.storage.remote_clients import (
    BodyCut,
    describe,
    is_throttled,
    is_transient,
    may_have_happened,
    status_of,
)
from lakefmt.errors import StorageError


class ClientError(Exception):
    """Shaped as botocore's: the answer rides along."""

    def __init__(self, status):
        super().__init__("told")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


class HttpError(Exception):
    """Shaped as gcsfs's and aiohttp's: a number beside the words."""

    def __init__(self, code):
        super().__init__("told")
        self.code = code


class Answered(Exception):
    """Shaped as botocore's, with the word that S3 answers with."""

    def __init__(self, status, code):
        super().__init__("told")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": code}}


class HttpProcessingError(Exception):
    """Shaped as aiohttp's: what it could not read of an answer gets a number of its own."""

    code = 400


class ContentLengthError(HttpProcessingError):
    """Named as aiohttp's."""


class ClientPayloadError(Exception):
    """Named as aiohttp's."""


class ClientResponseError(Exception):
    """Shaped as aiohttp's, which takes the status from the cause."""

    status = 400


class LibraryError(Exception):
    """A client whose errors carry a number that no store told."""

    code = 403
    status = 110


class NoCredentialsError(Exception):
    """Named as botocore's."""


class EndpointConnectionError(Exception):
    """Named as botocore's."""


def caused_by(cause, error=None):
    error = error or OSError(errno.EINVAL, "translated")
    error.__cause__ = cause
    return error


def unreadable_json():
    try:
        json.loads("{")
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    ("error", "status", "transient", "may_have"),
    [
        (ClientError(412), 412, False, False),
        (ClientError(403), 403, False, False),
        (ClientError(429), 429, True, True),
        (ClientError(500), 500, True, True),
        (caused_by(ClientError(503)), 503, True, True),
        (HttpError(404), 404, False, False),
        (HttpError(502), 502, True, True),
        (HttpError("strange"), None, False, True),
        (TimeoutError(), None, True, True),
        (ConnectionResetError(errno.ECONNRESET, "reset"), None, True, True),
        (EndpointConnectionError(), None, True, True),
        (OSError(errno.ETIMEDOUT, "slow"), None, True, True),
        (OSError(errno.ENOSPC, "full"), None, False, False),
        (OSError("no number"), None, False, True),
        (PermissionError(), None, False, False),
        (FileNotFoundError(), None, False, False),
        (NoCredentialsError(), None, False, False),
        (TypeError("a driver's bug"), None, False, False),
        (RuntimeError("nobody knows"), None, False, True),
        # What came was cut: the number, if there is one, is the client's own.
        (caused_by(ContentLengthError(), ClientPayloadError()), None, True, True),
        (ContentLengthError(), None, True, True),
        (caused_by(ContentLengthError(), ClientResponseError()), None, True, True),
        (ClientResponseError(), 400, False, False),
        (http.client.IncompleteRead(b""), None, True, True),
        (BodyCut("3 of 4 bytes"), None, True, True),
        (unreadable_json(), None, True, True),
        (LibraryError(), None, False, True),
        (socket.gaierror(socket.EAI_NONAME, "no such host"), None, False, True),
        # S3's answers of status 400 that are no refusal.
        (Answered(400, "RequestTimeout"), 400, True, True),
        (caused_by(Answered(400, "RequestTimeout")), 400, True, True),
        (Answered(400, "IncompleteBody"), 400, True, True),
        (Answered(400, "BadDigest"), 400, True, True),
        (Answered(400, "InvalidRequest"), 400, False, False),
        (Answered(403, "AccessDenied"), 403, False, False),
        (Answered(503, "SlowDown"), 503, True, True),
    ],
)
def test_how_an_error_is_judged(error, status, transient, may_have):
    assert (status_of(error), is_transient(error), may_have_happened(error)) == (status, transient, may_have)


@pytest.mark.parametrize(
    ("error", "throttled"),
    [
        (ClientError(429), True),
        (caused_by(ClientError(503)), True),
        (Answered(400, "Throttling"), True),
        (type("ThrottledError", (Exception,), {})(), True),
        (ClientError(500), False),
        (TimeoutError("429 of 503 throttled: slow down"), False),
        (FileNotFoundError("t/00000429-000000000503.arrow"), False),
    ],
)
def test_whether_a_store_asks_for_fewer_requests(error, throttled):
    """By its answer, never by words: an object's name may hold any number."""
    assert is_throttled(error) is throttled


def test_a_ring_of_causes_ends():
    one, other = OSError("a"), OSError("b")
    one.__cause__, other.__cause__ = other, one
    assert status_of(one) is None


def test_words_are_one_bounded_line():
    assert describe(ClientError(403)) == "ClientError (status 403): told"
    assert describe(ValueError("a\n  b\t" + "x" * 1000)) == "ValueError: a b " + "x" * 496
    assert describe(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EXDEV, "x"), "cannot write 'a' in /t: Invalid cross-device link"),
        (OSError("words only"), "cannot write 'a' in /t: words only"),
        (OSError(), "cannot write 'a' in /t: OSError"),
        (OSError(errno.EACCES, "x"), "cannot write 'a' in /t: permission denied; check who owns the table's directory"),
    ],
)
def test_what_the_system_says(error, said):
    assert str(os_failure(error, "write", "a", "/t")) == said


def test_the_base_has_a_name_too():
    assert "cannot list the base directory in /t" in str(os_failure(OSError(errno.EIO, "x"), "list", "", "/t"))


class ShortFiles(MemoryFileSystem):
    """A driver whose reads return less than was asked for, a while or for good."""

    protocol = "short"
    store: ClassVar = {}
    pseudo_dirs: ClassVar = [""]
    short = 0

    def _open(self, path, mode="rb", **more):
        return ShortFile(self, super()._open(path, mode, **more))


class ShortFile:
    def __init__(self, fs, file):
        self.fs, self.file = fs, file

    def __getattr__(self, name):
        return getattr(self.file, name)

    def read(self, length=-1):
        if self.fs.short > 0:
            self.fs.short -= 1
            return b""
        return self.file.read(min(length, 3))


@pytest.mark.parametrize("short", [0, 2, 100])
def test_a_range_that_comes_short_is_asked_for_again(short, monkeypatch):
    monkeypatch.setattr(_checked_files, "_SHORT_READ_PAUSES", (0.0,) * 3)
    fs = ShortFiles(skip_instance_cache=True)
    store = RemoteStore(fs, "/t", url="short://t")
    fs.pipe_file("/t/a", b"0123456789")
    arrow, prefix = store.arrow_filesystem()
    with arrow.open_input_file(f"{prefix}a") as file:
        assert file.size() == 10
        fs.short = short
        if short < 3:
            assert file.read_at(8, 1) == b"12345678"
            assert file.read_at(100, 8) == b"89", "no more than there is"
            return
        with pytest.raises(StorageError, match="0 of 8 bytes") as caught:
            file.read_at(8, 1)
        assert caught.value.transient
