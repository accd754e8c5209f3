"""Files of the archived timeline: which ones count, and opening one of them (effects).

What Arrow raises becomes a typed error; sizes are checked before anything is allocated.
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

#: The most that one row group may say it has, in bytes: it is read at once.
_MAX_GROUP_BYTES = 1 << 30


def load_manifest(store: ObjectStore, directory: str) -> tuple[int, list[HistoryFile]]:
    """Return the number of the current manifest and the files it names; 0 and none when there is no archive.

    The current one is what ``_version_`` says, the largest where that says nothing.

    Args:
        store: the table.
        directory: the archive's, relative to the table.

    Raises:
        CorruptFile: the manifest is damaged.
        ObjectNotFound: ``_version_`` names a manifest that is not there.
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
    """Return the files that the manifest with that number names.

    Raises:
        CorruptFile: it is damaged.
        ObjectNotFound: there is none.
    """
    name = f"{directory}/manifest_{number}"
    return decode_manifest(store.read(name, _MAX_MANIFEST_BYTES), name)


@contextmanager
def open_archived(store: ObjectStore, path: str) -> Iterator[pa.NativeFile]:
    """Open a file of the archive for reading.

    Raises:
        ObjectNotFound: it is gone, because the archive was merged.
        CorruptFile: what was read inside the context is damaged.
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
        # Damaged pages come as OSError without an error number.
        if error.errno is None:
            raise CorruptFile(f"{path} cannot be read: {error}") from error
        raise StorageError(f"{path} cannot be read: {error}", transient=True) from error


def check_group(file: pq.ParquetFile, number: int, what: str) -> None:
    """Check what a row group says of its size, before it is read.

    Args:
        file: a file of the archive.
        number: which of its row groups.
        what: how the file is named in errors.

    Raises:
        CorruptFile: it says more than is ever read at once.
    """
    stated = file.metadata.row_group(number).total_byte_size
    if not 0 <= stated <= _MAX_GROUP_BYTES:
        raise CorruptFile(f"{what}: a row group of {stated:,} bytes; at most {_MAX_GROUP_BYTES:,} are read")


def place_archived(store: ObjectStore, sink: ObjectWriter, path: str) -> int:
    """Give a finished file its name; return its size in bytes.

    Raises:
        StorageError: the name is taken, or the answer was lost and no such file is there.
    """
    size = sink.size
    outcome = sink.put_if_absent()
    if outcome is PutOutcome.UNKNOWN:
        info = store.info(path)
        outcome = PutOutcome.DONE if info is not None and info.size == size else outcome
    if outcome is not PutOutcome.DONE:
        raise StorageError(f"{path} could not be written: the store answers {outcome.value}", transient=True)
    return size
