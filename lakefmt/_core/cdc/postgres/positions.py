"""Positions in the log of PostgreSQL, as commits store them (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from lakefmt._core.arguments import shown
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import InvalidInputError, PositionLost

__all__ = ["LogPosition", "Origin", "Progress", "decode_log_position", "encode_log_position"]

VERSION: Final = 1
_NAME: Final = "postgres"
_MOST_LSN: Final = 2**64


class Progress(NamedTuple):
    """How far the rows of a table were read.

    Attributes:
        page: the first page that was not read.
        file: the number of the file that has the pages.
    """

    page: int
    file: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where positions come from.

    Attributes:
        system: the number that the server's files have had since they were made.
        database: its name.
        slot: the slot that keeps the log.
    """

    system: str
    database: str
    slot: str


@dataclass(frozen=True, slots=True)
class LogPosition:
    """What a commit of a table has.

    Attributes:
        table_id: the table's object id: another one of the same name is another table; None: whichever has the name.
        lsn: the place in the log before which every transaction is in it.
        progress: its rows were read so far, and more are to come; None: all.
    """

    table_id: int | None
    lsn: int
    progress: Progress | None = None


def encode_log_position(origin: Origin, position: LogPosition) -> dict[str, Any]:
    """Return a position as a JSON value."""
    value: dict[str, Any] = {
        "source": _NAME,
        "version": VERSION,
        "system": origin.system,
        "database": origin.database,
        "slot": origin.slot,
        "table": position.table_id,
        "lsn": position.lsn,
    }
    if position.progress is not None:
        value["snapshot"] = {"page": position.progress.page, "file": position.progress.file}
    return value


def decode_log_position(value: object, origin: Origin) -> LogPosition:
    """Return what a commit stored.

    Args:
        value: the JSON value.
        origin: the server, database and slot that are followed now.

    Raises:
        InvalidInputError: it is no position of this version.
        PositionLost: it is one of another server, database or slot.
    """
    if not isinstance(value, Mapping) or value.get("source") != _NAME or value.get("version") != VERSION:
        raise InvalidInputError(f"{shown(value)} is no position of PostgreSQL of version {VERSION}")
    for name, now in (("system", origin.system), ("database", origin.database), ("slot", origin.slot)):
        if value.get(name) != now:
            raise PositionLost(f"the stored position is of {name} {shown(value.get(name))}, and this is {shown(now)}")
    progress = value.get("snapshot")
    table_id = value.get("table")
    numbers = [0 if table_id is None else table_id, value.get("lsn")]
    numbers += [progress.get("page"), progress.get("file")] if isinstance(progress, Mapping) else []
    if not all(type(number) is int and 0 <= number < _MOST_LSN for number in numbers):
        raise InvalidInputError(f"{shown(value)} is no position of PostgreSQL: its numbers are none")
    number, lsn, *rest = (int(number or 0) for number in numbers)
    return LogPosition(None if table_id is None else number, lsn, Progress(*rest) if rest else None)
