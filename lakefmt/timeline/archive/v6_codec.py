"""Encode the archive logs of version 6 (docs/format.md, Archived timeline; Log blocks). Pure.

Each state of an instant is an entry with its body: plans of requested and inflight states, metadata
of the completed one. A block has ten entries.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from functools import cache

from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidInputError
from lakefmt.formats.avro.writer import Encode, compile_encoder
from lakefmt.formats.log.blocks import MAGIC, BlockKind, HeaderKey
from lakefmt.schema.avro import parse_avro_schema
from lakefmt.timeline._metadata_schemas import NAMESPACE, BodyKind, body_schema
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.timeline.metadata_codec import body_kind, decode_body
from lakefmt.values import InstantTime

__all__ = ["BODY_FIELDS", "LogRecord", "archive_schema", "encode_archive", "next_archive_name"]

#: Hudi's default of ``hoodie.commits.archival.batch``.
_ENTRIES_PER_BLOCK = 10
_FORMAT_VERSION = 1
_CONTENT_VERSION = 3
_MAX_BLOCK_BYTES = (1 << 31) - 1


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
_FIELDS: tuple[tuple[str, BodyKind | str], ...] = (
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
    for name, kind in _FIELDS:
        if kind == "int":
            fields.append({"name": name, "type": ["int", "null"], "default": 1})
            continue
        text = {"type": "string", "avro.java.string": "String"}
        held = _once(json.loads(body_schema(kind)), defined) if isinstance(kind, BodyKind) else text
        fields.append({"name": name, "type": ["null", held], "default": None})
    record = {"type": "record", "name": "HoodieArchivedMetaEntry", "namespace": NAMESPACE, "fields": fields}
    return json.dumps(record, separators=(",", ":"))


def _once(node: object, defined: set[str]) -> object:
    """Return a schema in which already defined records are only named."""
    if isinstance(node, list):
        return [_once(part, defined) for part in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "record":
        name = str(node["name"])
        if name in defined:
            return name
        defined.add(name)
        node = {key: value for key, value in node.items() if key != "namespace"}
    return {
        key: _once(value, defined) if key in ("type", "items", "values", "fields") else value
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
        >>> from lakefmt.timeline.instant import Action, State
        >>> begun = Instant(InstantTime("20260101000000000"), Action.COMMIT, State.REQUESTED)
        >>> [block[:6] for block in encode_archive([LogRecord(begun, b"", begun.time)])]
        [b'#HUDI#']
    """
    batch: list[bytes] = []
    for record in records:
        batch.append(_encode_entry(record))
        if len(batch) == _ENTRIES_PER_BLOCK:
            yield _block(batch)
            batch = []
    if batch:
        yield _block(batch)


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
        _encoder()(chunks.append, entry)
    except ValueError as error:
        raise InvalidInputError(f"{instant} cannot be archived: {error}") from None
    return b"".join(chunks)


@cache
def _encoder() -> Encode:
    return compile_encoder(parse_avro_schema(archive_schema()))


def _block(entries: list[bytes]) -> bytes:
    schema = archive_schema().encode()
    framed = b"".join(struct.pack(">i", len(entry)) + entry for entry in entries)
    content = struct.pack(">ii", _CONTENT_VERSION, len(entries)) + framed
    header = struct.pack(">iii", _FORMAT_VERSION, BlockKind.AVRO_DATA, 1)
    inner = (
        header + struct.pack(">ii", HeaderKey.SCHEMA, len(schema)) + schema + struct.pack(">q", len(content)) + content
    )
    length = len(inner) + 4 + 8
    if length > _MAX_BLOCK_BYTES:
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
