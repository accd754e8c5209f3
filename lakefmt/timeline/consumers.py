"""Registered consumers of a table and what they have read (effects; docs/format.md, lakefmt's own files).

Each consumer has a JSON file ``.hoodie/.lakefmt/consumers/<id>.json``, or one for each of its shards,
``<id>@<i>-of-<n>.json``: ``next_start`` is the completion time (requested time in version 6) up to which it has read,
``updated`` the ISO time at which it was last known to be alive. A clean and an archive step keep what a consumer has not
read; one that was not heard of for seven days is ignored, and a stream that runs without an id, which has the mode ``running``,
after ten minutes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timedelta
from typing import Final

from lakefmt.data_classes import dataclass
from lakefmt.errors import CorruptFile
from lakefmt.storage.api import ObjectStore

__all__ = [
    "CONSUMERS",
    "CONSUMER_EXPIRY",
    "MAX_CONSUMER_BYTES",
    "RUNNING",
    "RUNNING_EXPIRY",
    "ConsumerRecord",
    "consumed_until",
    "decode_consumer",
    "encode_consumer",
    "expiry_of",
]

_log = logging.getLogger("lakefmt.consumers")

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
    named = {
        name: getattr(record, name)
        for name in ("instant", "mode", "owner", "process", "whole", "files", "filter", "in_turn")
    }
    return json.dumps(document | {name: value for name, value in named.items() if value}).encode()


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
    record = _record(data)
    if record is None:
        raise CorruptFile(f"{name} does not say what this consumer has read; mend or delete it")
    return record


def _record(data: bytes) -> ConsumerRecord | None:
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
    return record if _is_valid(record) else None


def _is_valid(record: ConsumerRecord) -> bool:
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
