"""Manifests and files of the LSM timeline (effects).

Arrow's errors become typed errors; sizes are checked before memory is allocated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt.errors import CorruptFile, ObjectNotFound, StorageError
from lakefmt.storage.api import ObjectStore, ObjectWriter, PutOutcome
from lakefmt.timeline.archive.lsm_timeline import HistoryFile, decode_manifest, parse_manifest_name

__all__ = ["check_group", "load_manifest", "manifest_numbers", "open_archived", "place_archived", "read_manifest"]

_MAX_MANIFEST_BYTES = 16 * 1024 * 1024

#: Maximum size of a row group in bytes: it is read at once.
_MAX_GROUP_BYTES = 1 << 30


def load_manifest(store: ObjectStore, directory: str) -> tuple[int, list[HistoryFile]]:
    """Return the number of the current manifest and its files; 0 and none without an archive.

    ``_version_`` names the current manifest; if it is not valid, the largest number counts.

    Args:
        store: the table.
        directory: the archive directory relative to the table.

    Raises:
        CorruptFile: the manifest is damaged.
        ObjectNotFound: the manifest that ``_version_`` names does not exist.
    """
    number = 0
    try:
        text = store.read(f"{directory}/_version_", 64).strip()
        number = int(text) if text.isdigit() and len(text) < 10 else 0
    except ObjectNotFound:
        pass
    if not number:
        names = (item.name.rpartition("/")[2] for item in store.list(directory, recursive=False))
        number = max(manifest_numbers(names), default=0)
    return number, read_manifest(store, directory, number) if number else []


def manifest_numbers(names: Iterable[str]) -> list[int]:
    """Return the numbers of the manifests among file names.

    Example:
        >>> manifest_numbers(["_version_", "manifest_3", "manifest_4"])
        [3, 4]
    """
    return [number for number in map(parse_manifest_name, names) if number is not None]


def read_manifest(store: ObjectStore, directory: str, number: int) -> list[HistoryFile]:
    """Return the files in the manifest `number`.

    Raises:
        CorruptFile: the manifest is damaged.
        ObjectNotFound: the manifest does not exist.
    """
    name = f"{directory}/manifest_{number}"
    return decode_manifest(store.read(name, _MAX_MANIFEST_BYTES), name)


@contextmanager
def open_archived(store: ObjectStore, path: str) -> Iterator[pa.NativeFile]:
    """Open a file of the archive for reading.

    Raises:
        ObjectNotFound: the file was merged away.
        CorruptFile: data read inside of the context is damaged.
        StorageError: the store failed.
    """
    filesystem, prefix = store.arrow_filesystem()
    try:
        with filesystem.open_input_file(prefix + path) as source:
            yield source
    except FileNotFoundError:
        raise ObjectNotFound(f"{path} is gone: the archive was merged meanwhile; read again") from None
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise CorruptFile(f"{path} cannot be read: {error}") from error
    except OSError as error:
        # Damaged pages come as OSError without errno.
        if error.errno is None:
            raise CorruptFile(f"{path} cannot be read: {error}") from error
        raise StorageError(f"{path} cannot be read: {error}", transient=True) from error


def check_group(file: pq.ParquetFile, number: int, what: str) -> None:
    """Check the size of a row group before reading it.

    Args:
        file: a file of the archive.
        number: the index of the row group.
        what: the file's name in errors.

    Raises:
        CorruptFile: the row group exceeds the maximum size.
    """
    stated = file.metadata.row_group(number).total_byte_size
    if not 0 <= stated <= _MAX_GROUP_BYTES:
        raise CorruptFile(f"{what}: a row group of {stated:,} bytes; at most {_MAX_GROUP_BYTES:,} are read")


def place_archived(store: ObjectStore, sink: ObjectWriter, path: str) -> int:
    """Commit a finished file under its name; return its size in bytes.

    Raises:
        StorageError: the file exists, or the store does not confirm it.
    """
    size = sink.size
    outcome = sink.put_if_absent()
    if outcome is PutOutcome.UNKNOWN:
        info = store.info(path)
        outcome = PutOutcome.DONE if info is not None and info.size == size else outcome
    if outcome is not PutOutcome.DONE:
        raise StorageError(f"{path} could not be written: the store answers {outcome.value}", transient=True)
    return size
