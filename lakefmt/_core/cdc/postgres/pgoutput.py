"""The messages of PostgreSQL's logical replication, protocol version 1 of ``pgoutput`` (pure).

A value of a row is its text as bytes, None for null, or :data:`UNSENT` for a large value that an update did not change.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, Literal, NamedTuple, TypeAlias

from lakefmt.errors import FormatError

__all__ = ["UNSENT", "decode_message"]


class Unsent(enum.Enum):
    """The mark of a value that the server did not send because it did not change."""

    UNSENT = "unsent"


UNSENT: Final = Unsent.UNSENT
Value: TypeAlias = bytes | Literal[Unsent.UNSENT] | None
Values: TypeAlias = list[Value]

#: Seconds from 1970 to 2000, where PostgreSQL's clock begins.
_EPOCH_MICROS: Final = 946_684_800_000_000
#: A table has at most 1,600 columns.
_MOST_COLUMNS: Final = 1_664

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_BEGIN: Final = struct.Struct(">QqI")
_COMMIT: Final = struct.Struct(">BQQq")
_TYPE: Final = struct.Struct(">Ii")
_TRUNCATE: Final = struct.Struct(">IB")


class Begin(NamedTuple):
    """A transaction begins; they come whole, in the order of their commits.

    Attributes:
        lsn: where the record of its commit begins in the log.
        micros: when it was committed, in microseconds since 1970.
        xid: its number.
    """

    lsn: int
    micros: int
    xid: int


class Commit(NamedTuple):
    """A transaction is complete.

    Attributes:
        lsn: where the record of the commit begins in the log.
        end: where it ends.
        micros: when it was committed, in microseconds since 1970.
    """

    lsn: int
    end: int
    micros: int


class RelationColumn(NamedTuple):
    """A column as a message describes it.

    Attributes:
        name: its name.
        is_key: it belongs to the replica identity.
        type_id: the object id of its type.
        modifier: of its type, such as precision and scale; -1: none.
    """

    name: str
    is_key: bool
    type_id: int
    modifier: int


class Relation(NamedTuple):
    """The shape of a table from here on.

    Attributes:
        id: the object id of the table.
        schema: its schema.
        name: its name.
        identity: ``d`` the primary key, ``f`` the whole row, ``i`` an index, ``n`` nothing.
        columns: its columns.
    """

    id: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class Insert(NamedTuple):
    """A new row."""

    relation: int
    new: Values


class Update(NamedTuple):
    """A changed row; `old` is there if the identity is the whole row, or if its key changed and `is_key_only`."""

    relation: int
    old: Values | None
    is_key_only: bool
    new: Values


class Delete(NamedTuple):
    """A row that is gone; `old` is the whole row, or its key with nulls elsewhere if `is_key_only`."""

    relation: int
    old: Values
    is_key_only: bool


class Truncate(NamedTuple):
    """The tables of a truncate statement."""

    relations: tuple[int, ...]


class Other(NamedTuple):
    """A message that says nothing about rows: a type's name, a transaction's origin, a message of an application."""

    kind: str


Message: TypeAlias = Begin | Commit | Relation | Insert | Update | Delete | Truncate | Other


def decode_message(body: bytes) -> Message:
    """Return what one message of ``pgoutput`` says.

    Raises:
        FormatError: it is cut, has more bytes than it needs, or is none of the protocol's first version.
    """
    try:
        message, end = _decode(body)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise FormatError(f"a message of pgoutput of {len(body)} bytes cannot be read: {error}") from error
    if end != len(body):
        raise FormatError(f"a message of pgoutput has {len(body)} bytes, of which {end} were read")
    return message


def _decode(body: bytes) -> tuple[Message, int]:
    message_code = body[:1]
    if message_code == b"I":
        _expect(body, 5, b"N")
        new, end = _values(body, 6)
        return Insert(_U32.unpack_from(body, 1)[0], new), end
    if message_code == b"U":
        return _update(body)
    if message_code == b"D":
        _expect(body, 5, b"KO")
        old, end = _values(body, 6)
        return Delete(_U32.unpack_from(body, 1)[0], old, body[5:6] == b"K"), end
    if message_code == b"B":
        lsn, micros, xid = _BEGIN.unpack_from(body, 1)
        return Begin(lsn, micros + _EPOCH_MICROS, xid), 1 + _BEGIN.size
    if message_code == b"C":
        _, lsn, end_lsn, micros = _COMMIT.unpack_from(body, 1)
        return Commit(lsn, end_lsn, micros + _EPOCH_MICROS), 1 + _COMMIT.size
    if message_code == b"R":
        return _relation(body)
    if message_code == b"T":
        count, _ = _TRUNCATE.unpack_from(body, 1)
        ids = struct.unpack_from(f">{_bounded(count, (len(body) - 6) // 4)}I", body, 6)
        return Truncate(ids), 6 + 4 * count
    if message_code in (b"Y", b"O", b"M"):
        return Other(message_code.decode("ascii")), len(body)
    raise ValueError(f"unknown kind {message_code!r}")


def _update(body: bytes) -> tuple[Update, int]:
    _expect(body, 5, b"NKO")
    old, image_code, at = None, body[5:6], 5
    if image_code != b"N":
        old, at = _values(body, 6)
        _expect(body, at, b"N")
    new, end = _values(body, at + 1)
    return Update(_U32.unpack_from(body, 1)[0], old, image_code == b"K", new), end


def _values(body: bytes, at: int) -> tuple[Values, int]:
    count = _bounded(_U16.unpack_from(body, at)[0], len(body) - at)
    at += 2
    values: Values = []
    for _ in range(count):
        value_code = body[at]
        at += 1
        if value_code == 0x74:  # t
            start = at + 4
            at = start + int.from_bytes(body[at:start], "big")
            if at > len(body):
                raise ValueError("a value is longer than its message")
            values.append(body[start:at])
        elif value_code == 0x6E:  # n
            values.append(None)
        elif value_code == 0x75:  # u
            values.append(UNSENT)
        else:
            raise ValueError(f"unknown kind of value {value_code}")
    return values, at


def _relation(body: bytes) -> tuple[Relation, int]:
    schema, at = _string(body, 5)
    name, at = _string(body, at)
    identity = body[at : at + 1].decode("ascii")
    if identity not in ("d", "f", "i", "n"):
        raise ValueError(f"unknown replica identity {identity!r}")
    count = _bounded(_U16.unpack_from(body, at + 1)[0], len(body) - at)
    at += 3
    columns = []
    for _ in range(count):
        flags = body[at]
        column, at = _string(body, at + 1)
        type_id, modifier = _TYPE.unpack_from(body, at)
        at += _TYPE.size
        columns.append(RelationColumn(column, bool(flags & 1), type_id, modifier))
    # The server leaves out the name of its own catalog's schema.
    return Relation(_U32.unpack_from(body, 1)[0], schema or "pg_catalog", name, identity, tuple(columns)), at


def _string(body: bytes, at: int) -> tuple[str, int]:
    end = body.index(b"\0", at)
    return body[at:end].decode("utf-8"), end + 1


def _expect(body: bytes, at: int, kinds: bytes) -> None:
    if body[at] not in kinds:
        raise ValueError(f"unknown kind of row {body[at]}")


def _bounded(count: int, available: int) -> int:
    if count > min(available, _MOST_COLUMNS * 64):
        raise ValueError(f"a count of {count} with {available} bytes left")
    return int(count)
