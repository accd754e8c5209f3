"""Registered consumers of a table: what each has read so far (append-tables note, AP-15 to AP-17; effects).

One file per consumer, ``.hoodie/.lakefmt/consumers/<id>.json``: a JSON object whose ``next_start`` is the completion time
(requested time in version 6) up to which it has read, and ``updated`` the ISO time of its last progress. A clean keeps
what it has not read; one that shows no progress for seven days no longer counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta

from lakefmt.errors import CorruptFile
from lakefmt.storage.api import ObjectStore

__all__ = ["consumed_until"]

_CONSUMERS = ".hoodie/.lakefmt/consumers"
_EXPIRY = timedelta(days=7)
_MAX_BYTES = 1 << 20


def consumed_until(store: ObjectStore, now: datetime) -> frozenset[str]:
    """Return how far each living consumer has read, as instant times.

    Args:
        store: the table's store.
        now: the present, aware.

    Raises:
        CorruptFile: a consumer's file cannot be understood, so nobody knows what it needs.
    """
    names = [o.name for o in store.list(_CONSUMERS, recursive=False) if o.name.endswith(".json")]
    found = (_progress(name, store.read(name, _MAX_BYTES)) for name in names)
    return frozenset(start for start, updated in found if updated is None or now - updated <= _EXPIRY)


def _progress(name: str, data: bytes) -> tuple[str, datetime | None]:
    try:
        said = json.loads(data)
        start = said["next_start"] if isinstance(said, Mapping) else None
        updated = datetime.fromisoformat(said["updated"]) if isinstance(said, Mapping) and "updated" in said else None
    except (ValueError, KeyError, TypeError, RecursionError):
        start, updated = None, None
    if not isinstance(start, str) or not start.isdigit() or (updated is not None and updated.tzinfo is None):
        raise CorruptFile(f"{name} does not say what this consumer has read; mend or delete it")
    return start, updated
