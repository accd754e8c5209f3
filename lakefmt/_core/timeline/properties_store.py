"""Read and update ``hoodie.properties`` (effects; docs/format.md, Properties update).

Properties are read before every write and never cached: another engine may have changed them. An
update runs under the table lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import cast

from lakefmt._core.formats.properties import (
    CHECKSUM_KEY,
    check_table_checksum,
    decode_properties,
    encode_properties,
    properties_comment_date,
    table_checksum,
)
from lakefmt._core.storage.api import ObjectInfo, ObjectStore, PutOutcome
from lakefmt._core.storage.parallel import map_concurrently
from lakefmt._core.timeline.store import put_if_absent_confirmed
from lakefmt.errors import CorruptFile, ObjectNotFound, StorageError, TableExists, TableNotFound

__all__ = ["BACKUP", "PROPERTIES", "create_properties", "load_mark", "load_properties", "update_properties"]

PROPERTIES = ".hoodie/hoodie.properties"
BACKUP = ".hoodie/hoodie.properties.backup"
_MAX_BYTES = 16 * 1024 * 1024
#: How the line of a mark begins.
_MARK = "#lakefmt: "


#: Reads an object up to a number of bytes.
Read = Callable[[str, int], bytes]


def load_properties(store: ObjectStore, read: Read | None = None) -> dict[str, str]:
    """Return the table properties: the original, or the backup if an update was interrupted.

    Args:
        store: the table's store.
        read: reads from it; None: its own method.

    Raises:
        TableNotFound: neither file exists.
        CorruptFile: neither file is valid.
    """
    return _load_whole(store, read)[0]


def _load_whole(store: ObjectStore, read: Read | None = None) -> tuple[dict[str, str], str]:
    """Return the properties and the name of the valid file."""
    doubtful: tuple[dict[str, str], str] | None = None
    failures: dict[str, str] = {}
    cached_read = read or store.read
    # Hudi's update removes the file, writes it anew and then removes the backup: it may have done so between the two looks.
    for name, look in ((PROPERTIES, cached_read), (BACKUP, cached_read), (PROPERTIES, store.read)):
        if look is not cached_read and doubtful is not None:
            break
        try:
            properties = _read_valid(look, name)
        except ObjectNotFound:
            continue
        except CorruptFile as error:
            failures[name] = str(error)
            continue
        if CHECKSUM_KEY in properties:
            return properties, name
        # Without a checksum the file may be truncated: a backup with one is better.
        doubtful = doubtful or (properties, name)
    if doubtful is not None:
        return doubtful
    if failures:
        raise CorruptFile(f"{'; '.join(failures.values())}; put back a good copy of {PROPERTIES}")
    raise TableNotFound(
        f"no table at {store.url}: {PROPERTIES} is missing; check the path, or create the table (create_table, `lakefmt create`)"
    )


def _read_valid(read: Read, name: str) -> dict[str, str]:
    return dict(_decode_valid(read(name, _MAX_BYTES), name))


@lru_cache(maxsize=16)
def _decode_valid(data: bytes, name: str) -> Mapping[str, str]:
    # The file is read every time; parsing equal bytes is cached, because a commit reads it four
    # times.
    properties = decode_properties(data, what=name)
    if not properties:
        raise CorruptFile(f"{name} is empty")
    if not data.endswith((b"\n", b"\r")):
        # The checksum covers only the table name and does not detect a truncated line.
        raise CorruptFile(f"{name} is incomplete: its last line has no end (if nothing is missing, end it)")
    if not check_table_checksum(properties):
        raise CorruptFile(f"{name} is incomplete: its checksum does not match the table's name")
    return properties


def create_properties(
    store: ObjectStore, properties: Mapping[str, str], now: datetime, *, durable: bool, mark: str = ""
) -> bytes:
    """Write the properties of a new table, the last step of its creation; return the content of the file.

    Args:
        store: the table's store.
        properties: of the table.
        now: the present, for a comment in the file.
        durable: sync to disk.
        mark: a further comment, for :func:`load_mark`; changes of the properties by lakefmt keep it.

    Raises:
        TableExists: the table exists.
    """
    data = _render(properties, now, "Properties saved on", mark)
    if put_if_absent_confirmed(store, PROPERTIES, data, durable=durable) is PutOutcome.REFUSED:
        raise TableExists(f"there is a table at {store.url} already")
    return data


def update_properties(
    store: ObjectStore,
    changes: Mapping[str, str | None],
    now: datetime,
    *,
    durable: bool,
    keep: Callable[[str, bytes], object] | None = None,
) -> dict[str, str]:
    """Change properties (None removes one) under the table lock; return the new content.

    Args:
        store: the table's store.
        changes: new values.
        now: the present, for a comment in the file.
        durable: sync to disk.
        keep: takes the name and the content of the file.

    Raises:
        StorageError: the new file differs when read back; the backup keeps the old one.
    """
    old = recover_properties(store, durable=durable)
    new = {key: value for key, value in {**old, **changes}.items() if value is not None}
    if new == old:
        return old
    before = store.read(PROPERTIES, _MAX_BYTES)
    store.put(BACKUP, before, durable=durable)
    data = _render(new, now, "Updated at", _mark_of(before))
    store.put(PROPERTIES, data, durable=durable)
    written = _read_valid(store.read, PROPERTIES)
    if len(written) < len(new):
        store.delete([PROPERTIES])
        raise StorageError(f"{PROPERTIES} did not read back as written; the backup holds the old content")
    store.delete([BACKUP])
    if keep is not None:
        keep(PROPERTIES, data)
    return written


def property_reads(store: ObjectStore, read: Read | None = None) -> list[Callable[[], object]]:
    """Return the reads whose results :func:`recover_properties` takes; run them with others, under the lock."""
    return [lambda: _load_whole(store, read), lambda: store.info(BACKUP)]


def backup_among(objects: Iterable[ObjectInfo]) -> ObjectInfo | None:
    """Return what :func:`property_reads` finds out of the backup, from a listing of ``.hoodie``."""
    return next((info for info in objects if info.name == BACKUP), None)


def recover_properties(store: ObjectStore, reads: Sequence[object] = (), *, durable: bool) -> dict[str, str]:
    """Complete or undo an interrupted update: afterwards the original is valid and the backup is gone.

    Args:
        store: the table's store.
        reads: the results of :func:`property_reads`; empty: read now.
        durable: sync to disk.
    """
    loaded, backup = reads or map_concurrently(store, property_reads(store))
    properties, source = cast("tuple[dict[str, str], str]", loaded)
    if backup is not None:
        if source == BACKUP:
            store.put(PROPERTIES, store.read(BACKUP, _MAX_BYTES), durable=durable)
        store.delete([BACKUP])
    return properties


def load_mark(store: ObjectStore) -> str:
    """Return the comment that :func:`create_properties` was given; empty: none, or another engine changed the properties.

    Raises:
        ObjectNotFound: there is no table.
    """
    return _mark_of(store.read(PROPERTIES, _MAX_BYTES))


def _mark_of(data: bytes) -> str:
    for line in data.decode("ascii", "replace").splitlines():
        if not line.startswith("#"):
            break
        if line.startswith(_MARK):
            return line.removeprefix(_MARK)
    return ""


def _render(properties: Mapping[str, str], now: datetime, verb: str, mark: str = "") -> bytes:
    checksum = table_checksum(properties.get("hoodie.database.name"), properties["hoodie.table.name"])
    content = {**properties, CHECKSUM_KEY: checksum}
    comments = [f"{verb} {now:%Y-%m-%dT%H:%M:%S.%f}Z", properties_comment_date(now)]
    return encode_properties(content, [*comments, f"{_MARK[1:]}{mark}"] if mark else comments)
