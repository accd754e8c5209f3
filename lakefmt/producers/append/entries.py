"""Whether an append was done already, and what its commit says (docs/append.md, Once). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from lakefmt.arguments import shown
from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidInputError
from lakefmt.timeline.commit_entries import WATERMARK, decode_entry, encode_entry, milliseconds_of, txn_entry_name
from lakefmt.values import InstantTime
from lakefmt.write.commit.entries import AlreadyDone, EntryView

__all__ = ["AppendEntries", "parse_txn", "parse_watermark"]

_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class AppendEntries:
    """What the commit of an append says.

    Attributes:
        txn: the application and its number; None: the append may be repeated.
        watermark: event time up to which the rows are complete, in milliseconds since 1970; None: unknown.
    """

    txn: tuple[str, int] | None = None
    watermark: int | None = None

    def __call__(self, view: EntryView) -> Mapping[str, str] | AlreadyDone:
        """Return the entries of the commit, or the commit that has this number of the application, or a later one.

        Example:
            >>> entries = AppendEntries(("loader", 2), 1500)
            >>> view = EntryView(None, None, {}, now_ms=5, instant="20260101000000000")
            >>> told = entries(view)
            >>> told
            {'lakefmt.txn.loader': '{"number":2,"instant":"20260101000000000","at":5}', 'lakefmt.watermark': '1500'}
            >>> entries(EntryView(None, None, told, now_ms=6))
            AlreadyDone(instant='20260101000000000')
        """
        new: dict[str, str] = {}
        if self.txn is not None:
            application, number = self.txn
            name = txn_entry_name(application)
            last = decode_entry(view.entries, name)
            if last is not None and type(last.get("number")) is int and number <= last["number"]:
                instant = last.get("instant")
                return AlreadyDone(InstantTime(instant) if isinstance(instant, str) else None)
            new[name] = encode_entry({"number": number, "instant": view.instant}, view.now_ms)
        if self.watermark is not None:
            new[WATERMARK] = str(self.watermark)
        return new


def parse_txn(txn: object) -> tuple[str, int] | None:
    """Return the application and the number of an append; None: it has none.

    Raises:
        InvalidInputError: it is no pair of a name and a number.

    Example:
        >>> parse_txn(("loader", 17))
        ('loader', 17)
    """
    if txn is None:
        return None
    if not isinstance(txn, tuple | list) or len(txn) != 2:
        raise InvalidInputError(f"txn takes the name of an application and a number that grows, unlike {shown(txn)}")
    application, number = txn
    txn_entry_name(application)
    if type(number) is not int or not 0 <= number <= _MOST:
        raise InvalidInputError(f"the number of an append is an integer from 0 to 2^63-1, not {shown(number)}")
    return application, number


def parse_watermark(watermark: object) -> int | None:
    """Return a watermark in milliseconds since 1970.

    Args:
        watermark: a time with its zone, milliseconds since 1970, or None.

    Raises:
        InvalidInputError: it is neither.

    Example:
        >>> from datetime import UTC
        >>> parse_watermark(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)), parse_watermark(5)
        (2000, 5)
    """
    if watermark is None:
        return None
    if isinstance(watermark, datetime):
        if watermark.tzinfo is None:
            raise InvalidInputError("a watermark is a time with its zone: give it tzinfo, such as datetime.UTC")
        return milliseconds_of(watermark)
    if type(watermark) is not int or abs(watermark) > _MOST:
        raise InvalidInputError(f"a watermark is a time, or milliseconds since 1970, not {shown(watermark)}")
    return watermark
