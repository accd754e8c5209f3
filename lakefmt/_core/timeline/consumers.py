"""Registered consumers of a table and what they have read, and the watermarks that commits carry.

Each consumer has a JSON file ``.hoodie/.lakefmt/consumers/<id>.json``, or one for each of its shards,
``<id>@<i>-of-<n>.json`` (docs/format.md, lakefmt's own files): ``next_start`` is the completion time (requested time in
version 6) up to which it has read, ``updated`` the ISO time at which it was last known to be alive. A clean and an archive
step keep what a consumer has not read; one that was not heard of for seven days is ignored, and a stream that runs without an
id, which has the mode ``running``, after ten minutes.

A watermark says up to which event time rows are complete (docs/consumers.md, Watermarks): a number of milliseconds since
1970-01-01 UTC. A commit keeps it as text in its extra metadata (:mod:`lakefmt._core.timeline.commit`). It never falls from one
commit to the next; a commit without one has that of the commit before it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.timeline.commit import watermark_of
from lakefmt.errors import CorruptFile, InvalidInputError

__all__ = [
    "ALLOWED_DELAY",
    "CONSUMERS",
    "CONSUMER_EXPIRY",
    "EVENT_TIME_COLUMN",
    "MAX_CONSUMER_BYTES",
    "RUNNING",
    "RUNNING_EXPIRY",
    "ConsumerRecord",
    "batch_watermark",
    "check_watermark",
    "consumed_until",
    "decode_consumer",
    "encode_consumer",
    "event_time_maximum",
    "expiry_of",
    "newest_watermark",
    "next_watermark",
    "watermark_of_rows",
]

_log = logging.getLogger("lakefmt.consumers")

#: The table property that names the column of event times.
EVENT_TIME_COLUMN: Final = "lakefmt.event.time.column"
#: The table property that says by how many milliseconds rows may be late.
ALLOWED_DELAY: Final = "lakefmt.allowed.delay"

_LOWEST_WATERMARK, _HIGHEST_WATERMARK = -(1 << 63), (1 << 63) - 1
_UNITS_PER_MILLISECOND = {"us": 1_000, "ns": 1_000_000}
_MILLISECONDS_PER_UNIT = {"s": 1_000, "ms": 1}
_DAY_MILLISECONDS = 86_400_000


def next_watermark(watermark: int | None, newest: int | None) -> int | None:
    """Return the watermark of a commit.

    Args:
        watermark: that of the writer, in milliseconds; None: it has none.
        newest: that of the newest completed commit; None: none has one.

    Example:
        >>> next_watermark(5, None), next_watermark(5, 9), next_watermark(None, 9), next_watermark(None, None)
        (5, 9, 9, None)
    """
    if watermark is None or newest is None:
        return newest if watermark is None else watermark
    return max(watermark, newest)


def batch_watermark(maximum: int | None, delay: int = 0) -> int | None:
    """Return what a writer promises after rows whose largest event time is `maximum`.

    Args:
        maximum: in milliseconds; None: no row has an event time.
        delay: by how many milliseconds later rows may be late.

    Example:
        >>> batch_watermark(10_000, 5_000), batch_watermark(None)
        (5000, None)
    """
    return None if maximum is None else max(_LOWEST_WATERMARK, maximum - delay)


def watermark_of_rows(properties: Mapping[str, str], rows: pa.Table) -> int | None:
    """Return what the commit of some rows promises by the properties of their table.

    Args:
        properties: they name the column of event times, and the delay of late rows.
        rows: in the table's columns, or some of them.

    Raises:
        InvalidInputError: the column holds no times, or the delay is no number of milliseconds.

    Example:
        >>> properties = {"lakefmt.event.time.column": "at", "lakefmt.allowed.delay": "5"}
        >>> watermark_of_rows(properties, pa.table({"at": [10, 30, 20]})), watermark_of_rows({}, pa.table({"at": [10]}))
        (25, None)
    """
    name, delay = properties.get(EVENT_TIME_COLUMN), properties.get(ALLOWED_DELAY) or "0"
    if name is None or name not in rows.column_names:
        return None
    if not (delay.isascii() and delay.isdigit()):
        raise InvalidInputError(f"{ALLOWED_DELAY}={delay[:40]!r}: milliseconds as a whole number are expected")
    return batch_watermark(event_time_maximum(rows.column(name), name), int(delay))


def check_watermark(value: object, name: str = "watermark") -> int:
    """Return a watermark that a caller gave.

    Raises:
        InvalidInputError: no number of milliseconds.

    Example:
        >>> check_watermark(0)
        0
    """
    if isinstance(value, bool) or not isinstance(value, int) or not _LOWEST_WATERMARK <= value <= _HIGHEST_WATERMARK:
        raise InvalidInputError(f"{name}={value!r:.60}: milliseconds since 1970 as a whole number are expected")
    return value


def newest_watermark(extras: Iterable[Mapping[str, str]]) -> int | None:
    """Return the watermark of the newest commit.

    Args:
        extras: the extra metadata of commits, the newest first; commits of other engines have none and are passed over.

    Example:
        >>> newest_watermark([{}, {"lakefmt.watermark": "4"}, {"lakefmt.watermark": "3"}])
        4
    """
    return next((value for value in map(watermark_of, extras) if value is not None), None)


def event_time_maximum(column: pa.Array | pa.ChunkedArray, name: str = "event time") -> int | None:
    """Return the largest event time of a column in milliseconds, rounded down; None: it holds nulls only.

    Args:
        column: timestamps, dates, or whole numbers of milliseconds.
        name: of the column, for messages.

    Raises:
        InvalidInputError: the column holds no times.

    Example:
        >>> event_time_maximum(pa.array([1_999, None, 2_500], pa.timestamp("us"))), event_time_maximum(pa.array([7]))
        (2, 7)
    """
    data_type = column.type
    if pa.types.is_date(data_type):
        column, unit = column.cast(pa.date32()).cast(pa.int32()), _DAY_MILLISECONDS
    elif pa.types.is_timestamp(data_type):
        column, unit = column.cast(pa.int64()), _MILLISECONDS_PER_UNIT.get(data_type.unit, 0)
    elif pa.types.is_integer(data_type):
        unit = 1
    else:
        raise InvalidInputError(
            f"the column {name!r} has the type {data_type}: event times are timestamps, dates or milliseconds"
        )
    largest = pc.max(column).as_py()
    if largest is None:
        return None
    return int(largest) * unit if unit else int(largest) // _UNITS_PER_MILLISECOND[data_type.unit]


#: The directory of the files, relative to the table.
CONSUMERS: Final = ".hoodie/.lakefmt/consumers"
#: A consumer that was not heard of for this long is ignored.
CONSUMER_EXPIRY: Final = timedelta(days=7)
#: The mode of a stream without an id, which is kept while it runs.
RUNNING: Final = "running"
#: A stream without an id that was not heard of for this long is ignored.
RUNNING_EXPIRY: Final = timedelta(minutes=10)
#: A larger file is damaged.
MAX_CONSUMER_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """What the file of a consumer says.

    Attributes:
        next_start: completion time (requested time in version 6) up to which it has read.
        updated: when it was last known to be alive; None: not stored, and it never expires.
        instant: requested time of the last commit that it has read to its end; "" for none.
        files: parts of later commits that it has read, by a short text → rows; -1: all of them.
        whole: it reads the table as of ``next_start`` first, and ``files`` are parts of that.
        filter: a short text for the columns and filter that ``files`` count rows of.
        mode: ``exactly_once`` or ``at_least_once``.
        owner: who reads at present; "" without a reader.
        process: the owner's process, as text, if its system tells it.
        in_turn: buckets are dealt out to its shards one after the other; False: as earlier releases did it.
    """

    next_start: str
    updated: datetime | None = None
    instant: str = ""
    files: Mapping[str, int] = field(default_factory=dict)
    whole: bool = False
    filter: str = ""
    mode: str = "exactly_once"
    owner: str = ""
    process: str = ""
    in_turn: bool = False


def consumed_until(store: ObjectStore, now: datetime) -> frozenset[str]:
    """Return up to which instant time each active consumer has read.

    Args:
        store: the table's store.
        now: current time, with a zone.

    Raises:
        CorruptFile: a consumer's file is not valid, so its needs are unknown.
    """
    names = [o.name for o in store.list(CONSUMERS, recursive=False) if o.name.endswith(".json")]
    needed = set()
    for name in names:
        record = decode_consumer(store.read(name, MAX_CONSUMER_BYTES), name)
        silent = timedelta(0) if record.updated is None else now - record.updated
        if silent <= expiry_of(record):
            needed.add(record.next_start)
        if record.mode == RUNNING:
            continue
        if CONSUMER_EXPIRY / 2 < silent <= CONSUMER_EXPIRY:
            _log.warning(
                "%s: the consumer was last heard of %s ago; after %s what it has not read may be cleaned away",
                name,
                timedelta(seconds=int(silent.total_seconds())),
                CONSUMER_EXPIRY,
            )
    return frozenset(needed)


def expiry_of(record: ConsumerRecord) -> timedelta:
    """Return the time without an update after which a consumer is ignored."""
    return RUNNING_EXPIRY if record.mode == RUNNING else CONSUMER_EXPIRY


def encode_consumer(record: ConsumerRecord) -> bytes:
    """Return the file of a consumer.

    Example:
        >>> encode_consumer(ConsumerRecord("20260101000000000"))
        b'{"next_start": "20260101000000000", "mode": "exactly_once"}'
    """
    document: dict[str, object] = {"next_start": record.next_start}
    if record.updated is not None:
        document["updated"] = record.updated.isoformat()
    fields = {
        name: getattr(record, name)
        for name in ("instant", "mode", "owner", "process", "whole", "files", "filter", "in_turn")
    }
    return json.dumps(document | {name: value for name, value in fields.items() if value}).encode()


def decode_consumer(data: bytes, name: str) -> ConsumerRecord:
    """Return what the file of a consumer says.

    Args:
        data: its bytes.
        name: of the file, for messages.

    Raises:
        CorruptFile: it does not say what the consumer has read.

    Example:
        >>> decode_consumer(b'{"next_start": "000"}', "c.json").next_start
        '000'
    """
    record = _decode_record(data)
    if record is None:
        raise CorruptFile(f"{name} does not say what this consumer has read; mend or delete it")
    return record


def _decode_record(data: bytes) -> ConsumerRecord | None:
    try:
        document = json.loads(data)
        if not isinstance(document, dict):
            return None
        updated = datetime.fromisoformat(document["updated"]) if "updated" in document else None
        texts = {name: document.get(name, "") for name in ("instant", "filter", "owner", "process")}
        record = ConsumerRecord(
            next_start=document["next_start"],
            updated=updated,
            files=document.get("files", {}),
            whole=document.get("whole", False),
            mode=document.get("mode", "exactly_once"),
            in_turn=document.get("in_turn", False),
            **texts,
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return record if _is_valid_record(record) else None


def _is_valid_record(record: ConsumerRecord) -> bool:
    """Return whether every value has its type: they come from a file."""
    whole: object = record.whole
    texts: tuple[object, ...] = (
        record.next_start,
        record.instant,
        record.filter,
        record.owner,
        record.process,
        record.mode,
    )
    in_turn: object = record.in_turn
    if not all(isinstance(text, str) for text in texts) or not isinstance(whole, bool) or not isinstance(in_turn, bool):
        return False
    if not (record.next_start.isascii() and record.next_start.isdigit()):
        return False
    if record.updated is not None and record.updated.tzinfo is None:
        return False
    return isinstance(record.files, dict) and all(
        isinstance(rows, int) and not isinstance(rows, bool) and -1 <= rows < 1 << 62 for rows in record.files.values()
    )
