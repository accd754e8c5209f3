"""``hoodie.properties`` on a store: read with its backup, update by Hudi's protocol (spec 1.9; effects).

Properties are read before every write and never cached: another engine may have changed them meanwhile.
An update runs under the table lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import cast

from lakefmt.errors import CorruptFile, ObjectNotFound, StorageError, TableExists, TableNotFound
from lakefmt.formats.properties import (
    CHECKSUM_KEY,
    check_table_checksum,
    decode_properties,
    encode_properties,
    properties_comment_date,
    table_checksum,
)
from lakefmt.storage.api import ObjectStore, PutOutcome
from lakefmt.storage.parallel import map_concurrently
from lakefmt.timeline.store import put_if_absent_confirmed

__all__ = ["PROPERTIES", "create_properties", "load_properties", "update_properties"]

PROPERTIES = ".hoodie/hoodie.properties"
BACKUP = ".hoodie/hoodie.properties.backup"
_MAX_BYTES = 16 * 1024 * 1024


def load_properties(store: ObjectStore) -> dict[str, str]:
    """Return the table's properties: the original, or its backup when an update died half-way.

    Raises:
        TableNotFound: there is neither.
        CorruptFile: neither can be read.
    """
    return _load_whole(store)[0]


def _load_whole(store: ObjectStore) -> tuple[dict[str, str], str]:
    """Return the properties and the name of the file that holds them whole."""
    doubtful: tuple[dict[str, str], str] | None = None
    failures = []
    for name in (PROPERTIES, BACKUP):
        try:
            properties = _read_valid(store, name)
        except ObjectNotFound:
            continue
        except CorruptFile as error:
            failures.append(str(error))
            continue
        if CHECKSUM_KEY in properties:
            return properties, name
        # Without a checksum nothing tells that no line is missing at the end: a backup that has one is better.
        doubtful = doubtful or (properties, name)
    if doubtful is not None:
        return doubtful
    if failures:
        raise CorruptFile(f"{'; '.join(failures)}; put back a good copy of {PROPERTIES}")
    raise TableNotFound(f"no table at {store.url}: {PROPERTIES} is missing; create_table makes one")


def _read_valid(store: ObjectStore, name: str) -> dict[str, str]:
    return dict(_decode_valid(store.read(name, _MAX_BYTES), name))


@lru_cache(maxsize=16)
def _decode_valid(data: bytes, name: str) -> Mapping[str, str]:
    # The file is read every time; what its bytes mean never changes, and a commit reads it four times.
    properties = decode_properties(data, what=name)
    if not properties:
        raise CorruptFile(f"{name} is empty")
    if not data.endswith((b"\n", b"\r")):
        # The checksum covers the table's name only: a half line, such as half of a key column's name, passes by it.
        raise CorruptFile(f"{name} is incomplete: its last line has no end (if nothing is missing, end it)")
    if not check_table_checksum(properties):
        raise CorruptFile(f"{name} is incomplete: its checksum does not match the table's name")
    return properties


def create_properties(store: ObjectStore, properties: Mapping[str, str], now: datetime, *, durable: bool) -> None:
    """Write the properties of a new table: the act by which it exists.

    Raises:
        TableExists: another table is already there.
    """
    data = _render(properties, now, "Properties saved on")
    if put_if_absent_confirmed(store, PROPERTIES, data, durable=durable) is PutOutcome.REFUSED:
        raise TableExists(f"there is a table at {store.url} already")


def update_properties(
    store: ObjectStore, changes: Mapping[str, str | None], now: datetime, *, durable: bool
) -> dict[str, str]:
    """Change properties (None removes one); call it under the table lock. Returns the new content.

    Raises:
        StorageError: the new file did not read back as written; the backup keeps the old one.
    """
    old = recover_properties(store, durable=durable)
    new = {key: value for key, value in {**old, **changes}.items() if value is not None}
    if new == old:
        return old
    store.put(BACKUP, store.read(PROPERTIES, _MAX_BYTES), durable=durable)
    store.put(PROPERTIES, _render(new, now, "Updated at"), durable=durable)
    written = _read_valid(store, PROPERTIES)
    if len(written) < len(new):
        store.delete([PROPERTIES])
        raise StorageError(f"{PROPERTIES} did not read back as written; the backup holds the old content")
    store.delete([BACKUP])
    return written


def property_reads(store: ObjectStore) -> list[Callable[[], object]]:
    """Return the looks whose findings :func:`recover_properties` takes; to be taken beside others, under the lock."""
    return [lambda: _load_whole(store), lambda: store.info(BACKUP)]


def recover_properties(store: ObjectStore, found: Sequence[object] = (), *, durable: bool) -> dict[str, str]:
    """Finish or undo an update that died: afterwards the original is whole and there is no backup.

    Args:
        store: the table's.
        found: what :func:`property_reads` found just now; looked at here when it is empty.
        durable: what is written reaches the disk.
    """
    loaded, backup = found or map_concurrently(store, property_reads(store))
    properties, whole = cast("tuple[dict[str, str], str]", loaded)
    if backup is not None:
        if whole == BACKUP:
            store.put(PROPERTIES, store.read(BACKUP, _MAX_BYTES), durable=durable)
        store.delete([BACKUP])
    return properties


def _render(properties: Mapping[str, str], now: datetime, verb: str) -> bytes:
    checksum = table_checksum(properties.get("hoodie.database.name"), properties["hoodie.table.name"])
    content = {**properties, CHECKSUM_KEY: checksum}
    return encode_properties(content, [f"{verb} {now:%Y-%m-%dT%H:%M:%S.%f}Z", properties_comment_date(now)])
