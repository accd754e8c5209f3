"""Registered consumers of a table and what they have read (effects; docs/format.md, lakefmt's own files).

Each consumer has a JSON file ``.hoodie/.lakefmt/consumers/<id>.json``: ``next_start`` is the
completion time (requested time in version 6) up to which it has read, ``updated`` the ISO time of
its last progress. A clean keeps what a consumer has not read; one without progress for seven days
is ignored.
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
    """Return up to which instant time each active consumer has read.

    Args:
        store: the table's store.
        now: current time, with a zone.

    Raises:
        CorruptFile: a consumer's file is not valid, so its needs are unknown.
    """
    names = [o.name for o in store.list(_CONSUMERS, recursive=False) if o.name.endswith(".json")]
    progress = (_progress(name, store.read(name, _MAX_BYTES)) for name in names)
    return frozenset(start for start, updated in progress if updated is None or now - updated <= _EXPIRY)


def _progress(name: str, data: bytes) -> tuple[str, datetime | None]:
    try:
        document = json.loads(data)
        start = document["next_start"] if isinstance(document, Mapping) else None
        updated = (
            datetime.fromisoformat(document["updated"])
            if isinstance(document, Mapping) and "updated" in document
            else None
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        start, updated = None, None
    if not isinstance(start, str) or not start.isdigit() or (updated is not None and updated.tzinfo is None):
        raise CorruptFile(f"{name} does not say what this consumer has read; mend or delete it")
    return start, updated
