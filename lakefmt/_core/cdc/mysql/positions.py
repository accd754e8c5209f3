"""Where a table is in the log of its server, and where the reading of its rows is (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from lakefmt._core.arguments import shown
from lakefmt._core.cdc.mysql.columns import SourceColumn
from lakefmt.errors import InvalidInputError, PositionLost

__all__ = [
    "Gtids",
    "TablePosition",
    "covers",
    "is_covered",
    "lost_position",
    "lowest",
    "parse_gtids",
    "text_of",
]

_VERSION: Final = 1


class Gtid(NamedTuple):
    """The newest transaction of a domain: which server wrote it, and its number."""

    server: int
    number: int


#: The newest transaction of each domain.
Gtids = Mapping[int, Gtid]


def parse_gtids(gtid_list: str) -> dict[int, Gtid]:
    """Return the transactions that a text of the server names.

    Raises:
        InvalidInputError: it is no such text.

    Example:
        >>> parse_gtids("0-1-5,7-1-12")[7].number
        12
    """
    gtids = {}
    try:
        for part in filter(None, (part.strip() for part in gtid_list.split(","))):
            domain, server, number = map(int, part.split("-"))
            gtids[domain] = Gtid(server, number)
    except ValueError:
        raise InvalidInputError(f"{shown(gtid_list)} is no list of transactions such as 0-1-5") from None
    return gtids


def text_of(gtids: Gtids) -> str:
    """Return the text that :func:`parse_gtids` reads."""
    return ",".join(f"{domain}-{gtid.server}-{gtid.number}" for domain, gtid in sorted(gtids.items()))


def covers(gtids: Gtids, others: Gtids) -> bool:
    """Return whether everything in `others` came before `gtids`, or with it."""
    return all(is_covered(gtids, domain, gtid.number) for domain, gtid in others.items())


def is_covered(gtids: Gtids, domain: int, number: int) -> bool:
    """Return whether a transaction came before `gtids`, or with it."""
    newest = gtids.get(domain)
    return newest is not None and newest.number >= number


def lowest(all_gtids: Iterable[Gtids]) -> dict[int, Gtid]:
    """Return the oldest of all in each domain; a domain that one of them lacks has to be read from its begin."""
    first, *remaining = all_gtids
    minimum = dict(first)
    for gtids in remaining:
        minimum = {
            domain: min(gtid, gtids[domain], key=lambda each: each.number)
            for domain, gtid in minimum.items()
            if domain in gtids
        }
    return minimum


def lost_position(newest: Gtids, gtids: Gtids) -> PositionLost | None:
    """Return the error for a position that no server has whose newest transactions are `newest`; None: it may have it.

    A server sends its whole log to a reader whose position has none of its domains.
    """
    unknown = sorted(set(gtids) - set(newest))
    if unknown:
        domains = ", ".join(map(str, unknown))
        return PositionLost(
            f"position {text_of(gtids)} is of another server: this one has no transactions of the domain {domains}"
        )
    if not covers(newest, gtids):
        return PositionLost(
            f"position {text_of(gtids)} is ahead of the server, which has come to {text_of(newest)}: it was restored from a "
            "backup, or is a replica that lags"
        )
    return None


class TablePosition(NamedTuple):
    """A table up to a transaction.

    Attributes:
        gtids: the newest transactions that the table has.
        read_from: where the log must be read from: before `gtids` if a prepared transaction was open.
        server: which server it was read from, as it names itself.
        epoch: sorts before positions in the files of another server; seconds since 1970.
        is_read: all rows were read from the table.
        last_key: else the key of the last row that was read; None: none was.
        columns: of the table at `gtids`; empty: not known.
        keys: of its primary key.
        reads_again: the table has rows already, and all are read once more.
        renamed: columns that have other names by now, which no row has shown yet.
        dropped: columns that are no more, which no row has shown yet.
    """

    gtids: Gtids
    read_from: Gtids
    server: str
    epoch: int
    is_read: bool
    last_key: tuple[object, ...] | None
    columns: tuple[SourceColumn, ...]
    keys: tuple[str, ...]
    reads_again: bool = False
    renamed: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the value that a commit stores."""
        value: dict[str, Any] = {
            "source": "mariadb",
            "version": _VERSION,
            "server": self.server,
            "epoch": self.epoch,
            "gtid": text_of(self.gtids),
            "schema": {"columns": [column.to_json() for column in self.columns], "keys": list(self.keys)},
        }
        if dict(self.read_from) != dict(self.gtids):
            value["read_from"] = text_of(self.read_from)
        if not self.is_read:
            value["snapshot"] = {"last_key": None if self.last_key is None else list(self.last_key)}
            if self.reads_again:
                value["snapshot"]["again"] = True
        if self.renamed or self.dropped:
            value["names"] = {"renamed": [list(pair) for pair in self.renamed], "dropped": list(self.dropped)}
        return value

    @classmethod
    def of_json(cls, value: Any) -> TablePosition:
        """Return the position that a commit stored.

        Raises:
            InvalidInputError: it is none.
        """
        try:
            if value["source"] != "mariadb" or value["version"] != _VERSION:
                raise InvalidInputError(f"the stored position is not one of a MariaDB server: {shown(value)}")
            gtids = parse_gtids(value["gtid"])
            snapshot = value.get("snapshot")
            last = None if snapshot is None else snapshot["last_key"]
            names = value.get("names", {"renamed": [], "dropped": []})
            return cls(
                gtids,
                parse_gtids(value["read_from"]) if "read_from" in value else gtids,
                str(value["server"]),
                int(value["epoch"]),
                snapshot is None,
                None if last is None else tuple(last),
                tuple(SourceColumn.of_json(column) for column in value["schema"]["columns"]),
                tuple(map(str, value["schema"]["keys"])),
                snapshot is not None and snapshot.get("again") is True,
                tuple((str(old), str(new)) for old, new in names["renamed"]),
                tuple(map(str, names["dropped"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidInputError(f"the stored position cannot be read: {shown(value)}") from None
