"""What an error says: whether it may pass, whether the write may have happened, and its words."""

from __future__ import annotations

import errno

import pytest

from lakefmt.storage.answers import describe, is_transient, may_have_happened, status_of
from lakefmt.storage.failures import os_failure


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


class NoCredentialsError(Exception):
    """Named as botocore's."""


class EndpointConnectionError(Exception):
    """Named as botocore's."""


def caused_by(cause):
    error = OSError(errno.EINVAL, "translated")
    error.__cause__ = cause
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
    ],
)
def test_how_an_error_is_judged(error, status, transient, may_have):
    assert (status_of(error), is_transient(error), may_have_happened(error)) == (status, transient, may_have)


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
