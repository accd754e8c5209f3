"""The archived timeline of both layouts: completed instants that have left the active one, and their bodies (effects).

Layout 2 keeps sorted Parquet files that a manifest names; layout 1 keeps log files with Avro blocks (spec 3.11). An index
of times and actions is read first; a body is read when somebody asks for it. Files never change under one name, so what
was read of them is kept by name and size. Whoever needs only the newest snapshot never comes here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt.errors import CorruptFile, FormatError, InstantNotFound, ObjectNotFound, StorageError
from lakefmt.formats.log_blocks import (
    BlockKind,
    HeaderKey,
    LogBlock,
    decode_avro_record,
    scan_blocks,
    split_avro_records,
)
from lakefmt.storage.api import ObjectInfo, ObjectStore
from lakefmt.timeline.bodies import body_kind, encode_body
from lakefmt.timeline.body_schemas import NAMESPACE, BodyKind, reader_schema
from lakefmt.timeline.instant import Action, Instant, State, comparable_action, instant_file_name
from lakefmt.values import InstantTime, check_instant_time

__all__ = ["History", "HistoryStore"]

_MAX_MANIFEST_BYTES = 16 * 1024 * 1024
_MAX_FILE_BYTES = 1 << 30
_MAX_BLOCK_BYTES = 512 * 1024 * 1024
_SORTED_FILE = re.compile(r"[0-9]{1,17}_[0-9]{1,17}_[0-9]{1,3}\.parquet", re.ASCII)
_MANIFEST = re.compile(r"manifest_([0-9]{1,9})", re.ASCII)
_ARCHIVE_FILE = re.compile(r"\.commits_\.archive\.([0-9]{1,9})(?:_[0-9-]+)?", re.ASCII)
_INDEX_COLUMNS = ("instantTime", "completionTime", "action")

#: Returns the bytes of one body.
_Fetch = Callable[[], bytes]
_Entries = list[tuple[Instant, _Fetch]]


@dataclass(frozen=True)
class History:
    """Completed instants that were archived, ordered by requested time.

    Example:
        >>> History().instants
        ()
    """

    instants: tuple[Instant, ...] = ()
    _fetch: Mapping[tuple[InstantTime, Action], _Fetch] = field(default_factory=dict, repr=False)

    def holds(self, instant: Instant) -> bool:
        """Return whether the instant was archived."""
        return (instant.time, comparable_action(instant.action)) in self._fetch

    def body(self, instant: Instant) -> bytes:
        """Return the content of the instant's completed file, in either of the forms that commits are stored in.

        Raises:
            InstantNotFound: it is not archived.
            ObjectNotFound: the archive was merged meanwhile; load the history again.
            CorruptFile: the archive is damaged.
        """
        fetch = self._fetch.get((instant.time, comparable_action(instant.action)))
        if fetch is None:
            raise InstantNotFound(f"no instant {instant.time} in the archived timeline")
        return fetch()


class HistoryStore:
    """The archive directory of one table."""

    def __init__(self, store: ObjectStore, directory: str, layout: int) -> None:
        self._store = store
        self._directory = directory
        self._layout = layout
        self._indexes: dict[tuple[str, int], _Entries] = {}

    def load(self) -> History:
        """Return what has been archived until now; empty when there is no archive.

        Raises:
            CorruptFile: a manifest or an archive file is damaged.
            StorageError: the store failed.
        """
        try:
            return self._load()
        except ObjectNotFound:
            # The archive was merged between its listing and its reading: the new files hold the same.
            return self._load()

    def _load(self) -> History:
        files = self._sorted_files() if self._layout == 2 else self._archive_files()
        read = self._index_sorted_file if self._layout == 2 else self._index_archive_file
        kept = {key: self._indexes.get(key) or read(*key) for key in files}
        self._indexes = kept
        found = {
            (instant.time, comparable_action(instant.action)): (instant, fetch)
            for entries in kept.values()
            for instant, fetch in entries
        }
        ordered = sorted((instant for instant, _ in found.values()), key=lambda i: (i.time, i.action.value))
        return History(tuple(ordered), {key: fetch for key, (_, fetch) in found.items()})

    @contextmanager
    def _opened(self, name: str) -> Iterator[pa.NativeFile]:
        """Open a file of the archive; what Arrow raises becomes a typed error."""
        filesystem, prefix = self._store.arrow_filesystem()
        path = f"{self._directory}/{name}"
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

    # ------------------------------------------------------------------------------------------------- layout 2: sorted

    def _sorted_files(self) -> list[tuple[str, int]]:
        number = self._manifest_number()
        if number is None:
            return []
        name = f"{self._directory}/manifest_{number}"
        try:
            manifest = json.loads(self._store.read(name, _MAX_MANIFEST_BYTES))
            files = [(entry["fileName"], entry["fileLen"]) for entry in manifest["files"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            # The errors of a store are key errors, too.
            if isinstance(error, ObjectNotFound | FormatError):
                raise
            raise CorruptFile(f"{name} is no manifest of archived files") from None
        for file, size in files:
            if not isinstance(file, str) or not _SORTED_FILE.fullmatch(file) or type(size) is not int or size < 0:
                raise CorruptFile(f"{name} names {file!r:.80} of {size!r:.20} bytes, which is no archived file")
        return files

    def _manifest_number(self) -> int | None:
        """Return the number of the current manifest, the largest where nothing says which one is current."""
        try:
            text = self._store.read(f"{self._directory}/_version_", 64).strip()
            if text.isdigit() and len(text) < 10:
                return int(text)
        except ObjectNotFound:
            pass
        names = (item.name.rpartition("/")[2] for item in self._store.list(self._directory, recursive=False))
        return max((int(found[1]) for name in names if (found := _MANIFEST.fullmatch(name))), default=None)

    def _index_sorted_file(self, name: str, size: int) -> _Entries:
        if size > _MAX_FILE_BYTES:
            raise CorruptFile(f"{self._directory}/{name} has {size:,} bytes; at most {_MAX_FILE_BYTES:,} are read")
        with self._opened(name) as source, pq.ParquetFile(source) as file:
            self._check_sorted_file(file, name, size)
            groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
            table = file.read(columns=list(_INDEX_COLUMNS))
            # One row per archived instant, three short texts each.
            rows = list(zip(*(table.column(each).to_numpy() for each in _INDEX_COLUMNS), strict=True))
        places = [(group, row) for group, count in enumerate(groups) for row in range(count)]
        if len(places) != len(rows):
            raise CorruptFile(f"{self._directory}/{name} announces {len(places):,} rows and has {len(rows):,}")
        column = _LastColumn(self, name)
        entries: _Entries = []
        for (time, completion, action), (group, at) in zip(rows, places, strict=True):
            instant = self._instant(time, action, completion, name)
            if instant is not None:
                entries.append((instant, _SortedBody(column, group, at, instant)))
        return entries

    def _check_sorted_file(self, file: pq.ParquetFile, name: str, size: int) -> None:
        schema, count = file.schema_arrow, file.metadata.num_rows
        wrong = [each for each in _INDEX_COLUMNS if each not in schema.names or schema.field(each).type != pa.string()]
        if "metadata" not in schema.names or schema.field("metadata").type != pa.binary():
            wrong.append("metadata")
        if wrong:
            raise CorruptFile(f"{self._directory}/{name} is no archive: {', '.join(wrong)} missing or of another type")
        # Each row has a time of its own, so it takes a byte at least.
        if not 0 <= count <= size:
            raise CorruptFile(f"{self._directory}/{name} announces {count:,} rows in {size:,} bytes")

    def _instant(self, time: object, action: object, completion: object, name: str) -> Instant | None:
        """Return a completed instant, None for an action that lakefmt does not know."""
        known = _ACTIONS.get(action) if isinstance(action, str) else None
        if known is None:
            return None
        try:
            start = check_instant_time(time if isinstance(time, str) else "")
            done = check_instant_time(completion if isinstance(completion, str) else "") if self._layout == 2 else None
        except ValueError:
            raise CorruptFile(
                f"{self._directory}/{name} holds a {known.value} at {time!r:.40}, completed at {completion!r:.40}: "
                "these are no instant times"
            ) from None
        file_name = instant_file_name(start, known, State.COMPLETED, self._layout, done)
        return Instant(start, known, State.COMPLETED, done, file_name)

    def read_bodies(self, name: str, group: int) -> pa.ChunkedArray:
        """Return the bodies in one row group of a sorted file."""
        with self._opened(name) as source, pq.ParquetFile(source) as file:
            stated = file.metadata.row_group(group).total_byte_size
            if not 0 <= stated <= _MAX_FILE_BYTES:
                raise CorruptFile(f"{self._directory}/{name}: a row group of {stated:,} bytes")
            return file.read_row_group(group, columns=["metadata"]).column(0)

    # --------------------------------------------------------------------------------------------------- layout 1: logs

    def _archive_files(self) -> list[tuple[str, int]]:
        found: list[tuple[int, ObjectInfo]] = []
        for item in self._store.list(self._directory, recursive=False):
            parsed = _ARCHIVE_FILE.fullmatch(item.name.rpartition("/")[2])
            if parsed:
                found.append((int(parsed[1]), item))
        return [(item.name.rpartition("/")[2], item.size) for _, item in sorted(found, key=lambda pair: pair[0])]

    def _index_archive_file(self, name: str, size: int) -> _Entries:
        what = f"{self._directory}/{name}"
        entries: _Entries = []
        with self._opened(name) as source:
            for block in scan_blocks(lambda at, count: source.read_at(count, at), size, what):
                if block.kind is not BlockKind.AVRO_DATA:
                    raise CorruptFile(f"{what} is damaged between bytes {block.start:,} and {block.end:,}")
                content = _content(source, block, what)
                schema = block.header.get(HeaderKey.SCHEMA, "")
                for at, datum in enumerate(split_avro_records(content, what)):
                    row = decode_avro_record(datum, schema, what, _INDEX_READER)
                    if row["actionState"] not in (None, State.COMPLETED.name):
                        continue
                    instant = self._instant(row["commitTime"], row["actionType"], None, name)
                    if instant is not None:
                        entries.append((instant, _ArchivedBody(self, name, block, at, instant)))
        return entries

    def read_block(self, name: str, block: LogBlock) -> bytes:
        """Return the content of a block of an archive file."""
        with self._opened(name) as source:
            return _content(source, block, f"{self._directory}/{name}")

    def path(self, name: str) -> str:
        """Return a file's name relative to the table."""
        return f"{self._directory}/{name}"


_ACTIONS = {action.value: action for action in Action}


def _content(source: pa.NativeFile, block: LogBlock, what: str) -> bytes:
    if block.content_size > _MAX_BLOCK_BYTES:
        raise CorruptFile(f"{what}: a block of {block.content_size:,} bytes; at most {_MAX_BLOCK_BYTES:,} are read")
    content: bytes = source.read_at(block.content_size, block.content_start)
    if len(content) != block.content_size:
        raise CorruptFile(f"{what} ends inside the block at byte {block.start:,}")
    return content


class _LastColumn:
    """The bodies of the row group that was read last: bodies are asked for in order."""

    def __init__(self, store: HistoryStore, name: str) -> None:
        self._store = store
        self._name = name
        self._last: tuple[int, pa.ChunkedArray] | None = None

    @property
    def path(self) -> str:
        return self._store.path(self._name)

    def value(self, group: int, row: int) -> bytes | None:
        last = self._last
        if last is None or last[0] != group:
            last = self._last = (group, self._store.read_bodies(self._name, group))
        found = last[1][row].as_buffer()
        return None if found is None else bytes(found)


@dataclass(frozen=True)
class _SortedBody:
    """Where the body of an instant is in a sorted file."""

    column: _LastColumn
    group: int
    row: int
    instant: Instant

    def __call__(self) -> bytes:
        found = self.column.value(self.group, self.row)
        if not found and self.instant.action is not Action.CLEAN:
            raise CorruptFile(f"{self.column.path} has no content for instant {self.instant}")
        return found or b""


@dataclass(frozen=True)
class _ArchivedBody:
    """Where the body of an instant is in an archive file."""

    store: HistoryStore
    name: str
    block: LogBlock
    row: int
    instant: Instant

    def __call__(self) -> bytes:
        kind = body_kind(self.instant.action, State.COMPLETED)
        field_name = _BODY_FIELDS.get(self.instant.action)
        what = self.store.path(self.name)
        if kind is None or field_name is None:
            raise CorruptFile(f"{what} keeps no content of a {self.instant.action.value}")
        content = self.store.read_block(self.name, self.block)
        schema = self.block.header.get(HeaderKey.SCHEMA, "")
        datum = split_avro_records(content, what)[self.row]
        record = decode_avro_record(datum, schema, what, _entry_reader(field_name, kind))[field_name]
        if not isinstance(record, dict):
            raise CorruptFile(f"{what} has no content for instant {self.instant}")
        return encode_body(kind, record)


#: The field of an archive entry that holds the body (spec 3.4).
_BODY_FIELDS = {
    Action.COMMIT: "hoodieCommitMetadata",
    Action.DELTA_COMMIT: "hoodieCommitMetadata",
    Action.REPLACE_COMMIT: "hoodieReplaceCommitMetadata",
    Action.CLEAN: "hoodieCleanMetadata",
    Action.ROLLBACK: "hoodieRollbackMetadata",
    Action.SAVEPOINT: "hoodieSavePointMetadata",
    Action.INDEXING: "hoodieIndexCommitMetadata",
}


def _entry_schema(fields: list[dict[str, object]]) -> str:
    return json.dumps({"type": "record", "name": "HoodieArchivedMetaEntry", "namespace": NAMESPACE, "fields": fields})


def _optional(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": ["null", kind], "default": None}


_INDEX_READER = _entry_schema([_optional(name, "string") for name in ("commitTime", "actionType", "actionState")])


@cache
def _entry_reader(field_name: str, kind: BodyKind) -> str:
    return _entry_schema([_optional(field_name, json.loads(reader_schema(kind)))])
