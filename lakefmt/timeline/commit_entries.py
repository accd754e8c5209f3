"""Entries that live on from commit to commit in the extra metadata: streams, applications, the watermark. Pure.

A commit says under ``lakefmt.stream.<writer>`` how far a stream's writer has come, under ``lakefmt.txn.<application>`` the
last number of an application, and under ``lakefmt.watermark`` up to which event time the rows are complete. Every commit
repeats what the commit before it said, so that the newest one tells all. A writer or an application without a commit for
seven days is left out; the watermark stays (docs/format.md, lakefmt's commit entries).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from lakefmt.errors import CorruptFile, InvalidInputError
from lakefmt.timeline.commit import ENTRY_PREFIXES

__all__ = [
    "RETENTION_MS",
    "STREAM_PREFIX",
    "TXN_PREFIX",
    "WATERMARK",
    "combine_entries",
    "decode_entry",
    "encode_entry",
    "milliseconds_of",
    "stream_entry_name",
    "txn_entry_name",
    "watermark_of",
]

STREAM_PREFIX, TXN_PREFIX, WATERMARK = ENTRY_PREFIXES
#: How long the entry of a writer or an application without commits is repeated.
RETENTION_MS: Final = 7 * 24 * 3600 * 1000

_ID = re.compile(r"[-\w.]{1,128}")
_WATERMARK = re.compile(r"-?[0-9]{1,19}")
_MAX_ENTRY_CHARACTERS: Final = 1 << 20


def stream_entry_name(writer: str) -> str:
    """Return the name of a stream writer's entry.

    Raises:
        InvalidInputError: the writer's id is not 1 to 128 letters, digits, ``_``, ``-`` and ``.``.

    Example:
        >>> stream_entry_name("orders-1")
        'lakefmt.stream.orders-1'
    """
    return STREAM_PREFIX + _checked_id(writer, "a writer id")


def txn_entry_name(application: str) -> str:
    """Return the name of an application's entry.

    Raises:
        InvalidInputError: the application's name is not 1 to 128 letters, digits, ``_``, ``-`` and ``.``.

    Example:
        >>> txn_entry_name("loader")
        'lakefmt.txn.loader'
    """
    return TXN_PREFIX + _checked_id(application, "the name of an application")


def _checked_id(text: object, what: str) -> str:
    if not isinstance(text, str) or not _ID.fullmatch(text):
        raise InvalidInputError(f"{what} has 1 to 128 letters, digits, '_', '-' and '.', unlike {str(text)[:140]!r}")
    return text


def milliseconds_of(now: datetime) -> int:
    """Return a time in milliseconds since 1970.

    Example:
        >>> from datetime import UTC
        >>> milliseconds_of(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC))
        2000
    """
    return int(now.timestamp() * 1000)


def encode_entry(fields: Mapping[str, Any], now_ms: int) -> str:
    """Return the text of a stream's or an application's entry.

    Args:
        fields: ``epoch``, ``sequence`` and ``offset`` of a stream, ``number`` of an application.
        now_ms: when it was committed, in milliseconds since 1970.

    Raises:
        InvalidInputError: the fields are no JSON values, or too long for a commit.

    Example:
        >>> encode_entry({"number": 17}, now_ms=5)
        '{"number":17,"at":5}'
    """
    try:
        text = json.dumps({**fields, "at": now_ms}, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"a commit keeps JSON values only: {error}") from None
    if len(text) > _MAX_ENTRY_CHARACTERS:
        raise InvalidInputError(f"a commit keeps at most {_MAX_ENTRY_CHARACTERS:,} characters of it, not {len(text):,}")
    return text


def decode_entry(entries: Mapping[str, str], name: str) -> dict[str, Any] | None:
    """Return what a stream's or an application's entry says; None: there is none.

    Raises:
        CorruptFile: it is no JSON object with its time.

    Example:
        >>> decode_entry({"lakefmt.txn.a": '{"number":17,"at":5}'}, "lakefmt.txn.a")
        {'number': 17, 'at': 5}
    """
    text = entries.get(name)
    if text is None:
        return None
    fields = _fields(text)
    if fields is None:
        raise CorruptFile(
            f"the entry {name} of the newest commit is damaged: {text[:80]!r}; delete nothing, roll it back"
        )
    return fields


def _fields(text: str) -> dict[str, Any] | None:
    if len(text) > 2 * _MAX_ENTRY_CHARACTERS:
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) and type(fields.get("at")) is int else None


def watermark_of(entries: Mapping[str, str]) -> int | None:
    """Return the watermark in milliseconds since 1970; None: no commit ever had one.

    Example:
        >>> watermark_of({"lakefmt.watermark": "1500"}), watermark_of({})
        (1500, None)
    """
    text = entries.get(WATERMARK)
    return int(text) if text is not None and _WATERMARK.fullmatch(text) else None


def combine_entries(stored: Mapping[str, str], new: Mapping[str, str], now_ms: int) -> dict[str, str]:
    """Return the entries of a commit: its own, and those of the commit before it that are still needed.

    Args:
        stored: those of the commit before it.
        new: those that this commit brings; its watermark counts only if it is larger than the stored one.
        now_ms: the time of the commit, in milliseconds since 1970.

    Example:
        >>> old = {"lakefmt.txn.a": '{"number":1,"at":0}', "lakefmt.watermark": "9"}
        >>> combine_entries(old, {"lakefmt.watermark": "7"}, now_ms=1000)
        {'lakefmt.txn.a': '{"number":1,"at":0}', 'lakefmt.watermark': '9'}
        >>> combine_entries(old, {}, now_ms=RETENTION_MS + 1)
        {'lakefmt.watermark': '9'}
    """
    if not stored and not new:
        return {}
    kept = {name: text for name, text in stored.items() if name == WATERMARK or _is_recent(text, now_ms)}
    merged = {**kept, **new}
    marks = [mark for mark in (watermark_of(stored), watermark_of(new)) if mark is not None]
    if marks:
        merged[WATERMARK] = str(max(marks))
    else:
        merged.pop(WATERMARK, None)
    return merged


def _is_recent(text: str, now_ms: int) -> bool:
    fields = _fields(text)
    # A damaged entry stays: the caller that asks for it gets an error and decides.
    return fields is None or int(fields["at"]) + RETENTION_MS >= now_ms
