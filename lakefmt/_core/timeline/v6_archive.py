"""Read and write the archive logs of version 6 (docs/format.md, Archived timeline; Log blocks).

Each state of an instant is an entry with its body: plans of requested and inflight states, metadata of the completed one. A
block has ten entries.

Entries are indexed first: time, action, state and the place of the record. Bodies are read on demand and returned as Avro
containers, as in layout 2. They are stored in the order of archiving, so the last blocks are cached.
"""

from __future__ import annotations

import json
import re
import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import cache

import pyarrow as pa

from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.avro.container import decode_container
from lakefmt._core.formats.avro.values import Encode, compile_encoder
from lakefmt._core.formats.log_blocks import (
    MAGIC,
    BlockKind,
    HeaderKey,
    decode_avro_record,
    scan_blocks,
    split_avro_records,
)
from lakefmt._core.schema.avro import parse_avro_schema
from lakefmt._core.storage.api import ObjectInfo, ObjectStore
from lakefmt._core.timeline.instant import Action, Instant, State, comparable_action, instant_file_name
from lakefmt._core.timeline.lsm_timeline import open_archived, place_archived
from lakefmt._core.timeline.metadata_codec import (
    NAMESPACE,
    BodyKind,
    body_kind,
    body_schema,
    decode_body,
    encode_body,
    reader_schema,
)
from lakefmt._core.values import InstantTime, check_instant_time
from lakefmt.errors import CorruptFile, InvalidInputError, ObjectNotFound

__all__ = [
    "BODY_FIELDS",
    "ArchivedInstant",
    "LogArchive",
    "LogEntry",
    "LogRecord",
    "archive_schema",
    "encode_archive",
    "next_archive_name",
]

#: Hudi's default of ``hoodie.commits.archival.batch``.
_ENTRIES_PER_BLOCK = 10
_FORMAT_VERSION = 1
_CONTENT_VERSION = 3
_MAX_ENCODED_BYTES = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A state of an instant to archive.

    Attributes:
        instant: the instant in that state.
        body: the bytes of its file.
        transition: time of the state; in version 6 the modification time of the file.
    """

    instant: Instant
    body: bytes
    transition: InstantTime


_COMPLETED_FIELDS = {
    Action.COMMIT: "hoodieCommitMetadata",
    Action.DELTA_COMMIT: "hoodieCommitMetadata",
    Action.REPLACE_COMMIT: "hoodieReplaceCommitMetadata",
    Action.CLEAN: "hoodieCleanMetadata",
    Action.ROLLBACK: "hoodieRollbackMetadata",
    Action.SAVEPOINT: "hoodieSavePointMetadata",
    Action.INDEXING: "hoodieIndexCommitMetadata",
}
#: The entry field for the body of each state (docs/format.md, Avro records of the timeline).
BODY_FIELDS: dict[tuple[Action, State], str] = {
    (action, State.COMPLETED): name for action, name in _COMPLETED_FIELDS.items()
} | {
    (Action.CLEAN, State.REQUESTED): "hoodieCleanerPlan",
    (Action.CLEAN, State.INFLIGHT): "hoodieCleanerPlan",
    (Action.COMPACTION, State.REQUESTED): "hoodieCompactionPlan",
    (Action.LOG_COMPACTION, State.REQUESTED): "hoodieCompactionPlan",
    (Action.REPLACE_COMMIT, State.REQUESTED): "hoodieRequestedReplaceMetadata",
    (Action.REPLACE_COMMIT, State.INFLIGHT): "HoodieInflightReplaceMetadata",
    (Action.CLUSTERING, State.REQUESTED): "hoodieRequestedReplaceMetadata",
}

#: The fields of an entry in Hudi's order, and their types.
_ENTRY_FIELDS: tuple[tuple[str, BodyKind | str], ...] = (
    ("hoodieCommitMetadata", BodyKind.COMMIT),
    ("hoodieCleanMetadata", BodyKind.CLEAN_METADATA),
    ("hoodieRollbackMetadata", BodyKind.ROLLBACK_METADATA),
    ("hoodieSavePointMetadata", BodyKind.SAVEPOINT_METADATA),
    ("commitTime", "string"),
    ("actionType", "string"),
    ("version", "int"),
    ("hoodieCompactionPlan", BodyKind.COMPACTION_PLAN),
    ("hoodieCleanerPlan", BodyKind.CLEANER_PLAN),
    ("actionState", "string"),
    ("hoodieReplaceCommitMetadata", BodyKind.REPLACE_COMMIT),
    ("hoodieRequestedReplaceMetadata", BodyKind.REQUESTED_REPLACE),
    ("HoodieInflightReplaceMetadata", BodyKind.COMMIT),
    ("hoodieIndexCommitMetadata", BodyKind.INDEX_COMMIT_METADATA),
    ("stateTransitionTime", "string"),
)


@cache
def archive_schema() -> str:
    """Return the Avro schema of an entry; each record is defined at its first use.

    Example:
        >>> [field["name"] for field in json.loads(archive_schema())["fields"]][-1]
        'stateTransitionTime'
    """
    defined: set[str] = set()
    fields: list[dict[str, object]] = []
    for name, kind in _ENTRY_FIELDS:
        if kind == "int":
            fields.append({"name": name, "type": ["int", "null"], "default": 1})
            continue
        string_type = {"type": "string", "avro.java.string": "String"}
        field_type = (
            _defined_once(json.loads(body_schema(kind)), defined) if isinstance(kind, BodyKind) else string_type
        )
        fields.append({"name": name, "type": ["null", field_type], "default": None})
    record = {"type": "record", "name": "HoodieArchivedMetaEntry", "namespace": NAMESPACE, "fields": fields}
    return json.dumps(record, separators=(",", ":"))


def _defined_once(node: object, defined: set[str]) -> object:
    """Return a schema in which already defined records are only named."""
    if isinstance(node, list):
        return [_defined_once(part, defined) for part in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "record":
        name = str(node["name"])
        if name in defined:
            return name
        defined.add(name)
        node = {key: value for key, value in node.items() if key != "namespace"}
    return {
        key: _defined_once(value, defined) if key in ("type", "items", "values", "fields") else value
        for key, value in node.items()
    }


def encode_archive(records: Iterable[LogRecord]) -> Iterator[bytes]:
    """Yield the blocks of an archive file.

    Args:
        records: the states, grouped by instant, requested before inflight before completed.

    Raises:
        CorruptFile: a body is not valid for its file.
        InvalidInputError: a body does not fit into an entry.

    Example:
        >>> from lakefmt._core.timeline.instant import Action, State
        >>> begun = Instant(InstantTime("20260101000000000"), Action.COMMIT, State.REQUESTED)
        >>> [block[:6] for block in encode_archive([LogRecord(begun, b"", begun.time)])]
        [b'#HUDI#']
    """
    batch: list[bytes] = []
    for record in records:
        batch.append(_encode_entry(record))
        if len(batch) == _ENTRIES_PER_BLOCK:
            yield _encode_block(batch)
            batch = []
    if batch:
        yield _encode_block(batch)


def _encode_entry(record: LogRecord) -> bytes:
    instant = record.instant
    entry: dict[str, object] = {
        "commitTime": instant.time,
        "actionType": instant.action.value,
        "actionState": instant.state.name,
        "stateTransitionTime": record.transition,
        "version": 1,
    }
    kind, name = body_kind(instant.action, instant.state), BODY_FIELDS.get((instant.action, instant.state))
    if record.body and kind is not None and name is not None:
        body = decode_body(kind, record.body, what=instant.file_name or str(instant))
        entry[name] = body
    chunks: list[bytes] = []
    try:
        _entry_encoder()(chunks.append, entry)
    except ValueError as error:
        raise InvalidInputError(f"{instant} cannot be archived: {error}") from None
    return b"".join(chunks)


@cache
def _entry_encoder() -> Encode:
    return compile_encoder(parse_avro_schema(archive_schema()))


def _encode_block(entries: list[bytes]) -> bytes:
    schema = archive_schema().encode()
    framed = b"".join(struct.pack(">i", len(entry)) + entry for entry in entries)
    content = struct.pack(">ii", _CONTENT_VERSION, len(entries)) + framed
    header = struct.pack(">iii", _FORMAT_VERSION, BlockKind.AVRO_DATA, 1)
    inner = (
        header + struct.pack(">ii", HeaderKey.SCHEMA, len(schema)) + schema + struct.pack(">q", len(content)) + content
    )
    length = len(inner) + 4 + 8
    if length > _MAX_ENCODED_BYTES:
        raise InvalidInputError(f"archive entries of {length:,} bytes do not fit into one block")
    return MAGIC + struct.pack(">q", length) + inner + struct.pack(">iq", 0, length + len(MAGIC))


def next_archive_name(names: Iterable[str]) -> str:
    """Return the name of the next archive file.

    Args:
        names: the file names in the archive's directory.

    Example:
        >>> next_archive_name([".commits_.archive.9_1-0-1", ".commits_.archive.10_1-0-1", "mergeArchivePlan"])
        '.commits_.archive.11_1-0-1'
    """
    prefix = ".commits_.archive."
    numbers = (name.removeprefix(prefix).partition("_")[0] for name in names if name.startswith(prefix))
    last = max((int(number) for number in numbers if number.isdecimal() and number.isascii()), default=0)
    return f"{prefix}{last + 1}_1-0-1"


_MAX_READ_BLOCK_BYTES = 512 * 1024 * 1024
#: Maximum size of the cached blocks; a larger block is not cached.
_CACHED_BLOCK_BYTES = 16 * 1024 * 1024
#: Hudi 0.15 records the merge of small archive files in this file.
_MERGE_PLAN = "mergeArchivePlan"
_MAX_PLAN_BYTES = 16 * 1024 * 1024
_ARCHIVE_FILE = re.compile(r"\.commits_\.archive\.([0-9]{1,9})(?:_[0-9-]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the archive: a state of an instant and the place of its record.

    Attributes:
        instant: the instant in that state; its size is that of the record in bytes.
        transition: stored time of the state; empty before Hudi 0.14; not checked.
        name: the archive file.
        start: offset of the block content.
        size: size of the block content in bytes.
        row: index of the record in the block.
        schema: the Avro schema of the record.
    """

    instant: Instant
    transition: str
    name: str
    start: int
    size: int
    row: int
    schema: str


@dataclass(frozen=True, slots=True)
class ArchivedInstant:
    """The entries of one completed instant."""

    completed: LogEntry
    requested: LogEntry | None = None
    inflight: LogEntry | None = None


def _archived_instants(entries: Iterable[LogEntry]) -> list[ArchivedInstant]:
    """Return the completed instants among archive entries, by requested time. Pure.

    Instants without a completed entry are ignored; of two entries of one state the later counts.

    Example:
        >>> _archived_instants([])
        []
    """
    by_instant: dict[tuple[InstantTime, Action], dict[State, LogEntry]] = {}
    for entry in entries:
        key = (entry.instant.time, comparable_action(entry.instant.action))
        by_instant.setdefault(key, {})[entry.instant.state] = entry
    instants = [
        ArchivedInstant(states[State.COMPLETED], states.get(State.REQUESTED), states.get(State.INFLIGHT))
        for states in by_instant.values()
        if State.COMPLETED in states
    ]
    return sorted(
        instants, key=lambda archived: (archived.completed.instant.time, archived.completed.instant.action.value)
    )


class LogArchive:
    """The archive directory of a version 6 table."""

    def __init__(self, store: ObjectStore, directory: str) -> None:
        self._store = store
        self._directory = directory
        self._blocks: OrderedDict[tuple[str, int], list[bytes]] = OrderedDict()
        self._kept_bytes = 0
        # Each block repeats the schema, which is much longer than its records.
        self._schemas: dict[str, str] = {}
        self._entries: dict[tuple[str, int], list[LogEntry]] = {}

    def load(self) -> list[ArchivedInstant]:
        """Return the archived instants; files that were indexed before are not read again.

        Raises:
            CorruptFile: an archive file is damaged.
            StorageError: the store failed.
        """
        try:
            return self._load()
        except ObjectNotFound:
            # The archive was merged between listing and reading: the new files have the same
            # instants.
            return self._load()

    def _load(self) -> list[ArchivedInstant]:
        self._entries = {key: self._entries.get(key) or self.entries(*key) for key in self.files()}
        return _archived_instants(entry for entries in self._entries.values() for entry in entries)

    def files(self) -> list[tuple[str, int]]:
        """Return the names and sizes of the archive files, oldest first."""
        numbered: list[tuple[int, ObjectInfo]] = []
        for item in self._store.list(self._directory, recursive=False):
            parsed = _ARCHIVE_FILE.fullmatch(item.name.rpartition("/")[2])
            if parsed:
                numbered.append((int(parsed[1]), item))
        ordered = sorted(numbered, key=lambda pair: (pair[0], pair[1].name))
        return [(item.name.rpartition("/")[2], item.size) for _, item in ordered]

    def path(self, name: str) -> str:
        """Return a file's path relative to the table."""
        return f"{self._directory}/{name}"

    def entries(self, name: str, size: int) -> list[LogEntry]:
        """Return the entries of an archive file in order, without unknown actions.

        A damaged file has none if an interrupted merge was writing it: its sources still exist.

        Raises:
            CorruptFile: it is damaged.
            ObjectNotFound: it is gone.
        """
        try:
            return self._read_entries(name, size)
        except CorruptFile:
            if self._merging() == name:
                return []
            raise

    def _merging(self) -> str | None:
        """Return the file that an unfinished merge of archive files was writing."""
        try:
            plan = self._store.read(self.path(_MERGE_PLAN), _MAX_PLAN_BYTES)
            return str(decode_container(plan, what=_MERGE_PLAN).get("mergedArchiveFileName"))
        except (ObjectNotFound, CorruptFile):
            return None

    def _read_entries(self, name: str, size: int) -> list[LogEntry]:
        what = self.path(name)
        entries: list[LogEntry] = []
        with open_archived(self._store, what) as source:
            for block in scan_blocks(lambda offset, count: source.read_at(count, offset), size, what):
                if block.kind is not BlockKind.AVRO_DATA:
                    raise CorruptFile(f"{what} is damaged between bytes {block.start:,} and {block.end:,}")
                schema_text = block.header.get(HeaderKey.SCHEMA, "")
                schema = self._schemas.setdefault(schema_text, schema_text)
                content = _read_content(source, block.content_start, block.content_size, what)
                for row, datum in enumerate(split_avro_records(content, what)):
                    read = decode_avro_record(datum, schema, what, _INDEX_READER)
                    instant = _instant_of_entry(read, len(datum), what)
                    if instant is not None:
                        location = (name, block.content_start, block.content_size, row, schema)
                        entries.append(LogEntry(instant, str(read["stateTransitionTime"] or ""), *location))
        return entries

    def body(self, entry: LogEntry) -> bytes:
        """Return the body of an instant's state as an Avro container; empty if it was empty.

        Raises:
            CorruptFile: the archive is damaged.
            ObjectNotFound: the file is gone.
        """
        action, state = entry.instant.action, entry.instant.state
        kind, field_name = body_kind(action, state), BODY_FIELDS.get((action, state))
        if kind is None or field_name is None:
            return b""
        what = self.path(entry.name)
        records = self._records(entry, what)
        if entry.row >= len(records):
            raise CorruptFile(f"{what} has changed since it was looked through")
        record = decode_avro_record(records[entry.row], entry.schema, what, _entry_reader(field_name, kind))[field_name]
        return encode_body(kind, record) if isinstance(record, dict) else b""

    def append(self, records: Iterable[LogRecord], *, durable: bool = True) -> str:
        """Write a new archive file under the table lock; return its path relative to the table.

        Args:
            records: the states, grouped by instant; at most ten are held in memory.
            durable: sync the file to disk.

        Raises:
            StorageError: the store failed, or another writer created the file.
            CorruptFile: a body is not valid for its file.
        """
        listed = (item.name.rpartition("/")[2] for item in self._store.list(self._directory, recursive=False))
        path = self.path(next_archive_name(listed))
        with self._store.create(path, durable=durable) as sink:
            for block in encode_archive(records):
                sink.file.write(block)
            place_archived(self._store, sink, path)
        return path

    def _records(self, entry: LogEntry, what: str) -> list[bytes]:
        key = (entry.name, entry.start)
        records = self._blocks.get(key)
        if records is None:
            with open_archived(self._store, what) as source:
                records = split_avro_records(_read_content(source, entry.start, entry.size, what), what)
            self._keep(key, records)
        else:
            self._blocks.move_to_end(key)
        return records

    def _keep(self, key: tuple[str, int], records: list[bytes]) -> None:
        size = sum(map(len, records))
        if size > _CACHED_BLOCK_BYTES:
            return
        self._blocks[key] = records
        self._kept_bytes += size
        while self._kept_bytes > _CACHED_BLOCK_BYTES:
            _, dropped = self._blocks.popitem(last=False)
            self._kept_bytes -= sum(map(len, dropped))


_ACTIONS = {action.value: action for action in Action}
_STATES = {state.name: state for state in State}


def _instant_of_entry(read: dict[str, object], size: int, what: str) -> Instant | None:
    name, stated = read["actionType"], read["actionState"]
    action = _ACTIONS.get(name) if isinstance(name, str) else None
    # The first releases archived only completed instants and did not store the state.
    state = State.COMPLETED if stated is None else _STATES.get(str(stated))
    if action is None or state is None:
        return None
    time = read["commitTime"]
    try:
        start = check_instant_time(time if isinstance(time, str) else "")
    except ValueError:
        raise CorruptFile(f"{what} holds a {action.value} at {time!r:.40}, which is no instant time") from None
    return Instant(start, action, state, None, instant_file_name(start, action, state, 1), size)


def _read_content(source: pa.NativeFile, start: int, size: int, what: str) -> bytes:
    if size > _MAX_READ_BLOCK_BYTES:
        raise CorruptFile(f"{what}: a block of {size:,} bytes; at most {_MAX_READ_BLOCK_BYTES:,} are read")
    content: bytes = source.read_at(size, start)
    if len(content) != size:
        raise CorruptFile(f"{what} ends inside the block content at byte {start:,}")
    return content


def _entry_schema(fields: list[dict[str, object]]) -> str:
    return json.dumps({"type": "record", "name": "HoodieArchivedMetaEntry", "namespace": NAMESPACE, "fields": fields})


def _optional_field(name: str, avro_type: object) -> dict[str, object]:
    return {"name": name, "type": ["null", avro_type], "default": None}


_INDEX_READER = _entry_schema(
    [_optional_field(name, "string") for name in ("commitTime", "actionType", "actionState", "stateTransitionTime")]
)


@cache
def _entry_reader(field_name: str, kind: BodyKind) -> str:
    return _entry_schema([_optional_field(field_name, json.loads(reader_schema(kind)))])
