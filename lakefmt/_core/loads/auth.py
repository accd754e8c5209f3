"""Who may load into which tables: users with salted hashes of their passwords, and patterns of tables."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lakefmt._core.data_classes import dataclass
from lakefmt.errors import InvalidInputError

__all__ = ["ANYBODY", "User", "Users", "hash_password", "load_users"]

#: Costs of scrypt: 16 MiB and some 40 ms for each password.
_N, _R, _P = 1 << 14, 8, 1
_MAX_FILE_BYTES: Final = 1 << 20
_MAX_PASSWORD: Final = 1_024
_LINE = re.compile(r"([^:\s]{1,128}):scrypt\$([0-9a-f]{32})\$([0-9a-f]{64}):(.*)")


@dataclass(frozen=True, slots=True)
class User:
    """A user, and the tables that may be loaded into: patterns of ``database.table``."""

    name: str
    patterns: tuple[str, ...] = ("*",)

    def may_load(self, database: str, table: str) -> bool:
        """Return whether the user may load into a table.

        Example:
            >>> User("u", ("sales.*",)).may_load("sales", "orders"), User("u", ("sales.*",)).may_load("hr", "pay")
            (True, False)
        """
        return any(fnmatch.fnmatchcase(f"{database}.{table}", pattern) for pattern in self.patterns)


#: Who asks a server without users.
ANYBODY: Final = User("")


def hash_password(name: str, password: str, patterns: str = "*") -> str:
    """Return the line of a file of users: the name, a salted hash of the password, and the patterns of tables.

    Raises:
        InvalidInputError: the name has a colon or blanks, or the password is too long.

    Example:
        >>> hash_password("anna", "secret", "sales.*").startswith("anna:scrypt$")
        True
    """
    salt = os.urandom(16)
    line = f"{name}:scrypt${salt.hex()}${_hashed(password.encode(), salt).hex()}:{patterns}"
    if not _LINE.fullmatch(line) or len(password.encode()) > _MAX_PASSWORD:
        raise InvalidInputError(
            "a user's name has 1 to 128 characters without colons and blanks, the password at most 1024"
        )
    return line


def _hashed(password: bytes, salt: bytes) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=_N, r=_R, p=_P, maxmem=64 << 20, dklen=32)


def load_users(path: str | os.PathLike[str]) -> Users:
    """Return the users of a file, a line for each as :func:`hash_password` makes it; lines with ``#`` are comments.

    Raises:
        InvalidInputError: a line is no user; the message has its number and nothing of it.
    """
    with Path(path).open("rb") as opened:
        data = opened.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise InvalidInputError(f"a file of users has at most {_MAX_FILE_BYTES} bytes")
    users = dict[str, tuple[User, bytes, bytes]]()
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parsed = _LINE.fullmatch(line.strip())
        if parsed is None or parsed[1] in users:
            raise InvalidInputError(f"line {number} of the file of users is none, or the second of one user")
        patterns = tuple(part.strip() for part in parsed[4].split(",") if part.strip())
        users[parsed[1]] = (User(parsed[1], patterns), bytes.fromhex(parsed[2]), bytes.fromhex(parsed[3]))
    return Users(users)


class Users:
    """Users by name.

    Args:
        users: name → user, salt and hash.
    """

    def __init__(self, users: Mapping[str, tuple[User, bytes, bytes]]) -> None:
        self._users = dict(users)
        #: A password that was right once is known again by a hash under a key that this process alone has.
        self._key = os.urandom(32)
        self._known: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._users)

    def authenticate(self, header: str) -> User | None:
        """Return the user of a header ``Authorization``; None: it is missing or wrong.

        An unknown user takes as long as a wrong password.
        """
        scheme, _, credentials = header.partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            name, colon, password = base64.b64decode(credentials.strip(), validate=True).decode("utf-8").partition(":")
        except (binascii.Error, ValueError):
            return None
        secret = password.encode()
        if not colon or len(secret) > _MAX_PASSWORD:
            return None
        user, salt, stored = self._users.get(name, (None, b"\x00" * 16, b"\x00" * 32))
        quick = hmac.digest(self._key, name.encode() + b"\x00" + secret, "sha256")
        if user is not None and hmac.compare_digest(self._known.get(name, b""), quick):
            return user
        right = hmac.compare_digest(_hashed(secret, salt), stored)
        if user is None or not right:
            return None
        self._known[name] = quick
        return user
