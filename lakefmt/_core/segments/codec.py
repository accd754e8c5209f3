"""Segments of streams by their names, as bytes and as objects: encode, write, list, read, delete (docs/dev/streams.md, Files).

A segment is two objects: the rows, then the header that names them. Rows without a header are not durable, and no reader
sees them. A second write of one segment finds the first and succeeds.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from lakefmt._core.arguments import shown
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.storage.api import ObjectStore, PutOutcome
from lakefmt._core.storage.parallel import map_concurrently
from lakefmt._core.timeline.store import put_if_absent_confirmed
from lakefmt.errors import CorruptFile, InternalError, InvalidInputError, ObjectNotFound, StreamUnavailable

__all__ = [
    "ANONYMOUS",
    "COLUMNS",
    "DELETES",
    "MAX_HEADER_BYTES",
    "MAX_OFFSET_CHARACTERS",
    "MAX_SEGMENT_BYTES",
    "OPERATOR",
    "STREAMS",
    "STRICT",
    "UPDATES",
    "WHOLE_ROWS",
    "Claim",
    "Committed",
    "RowOperator",
    "SegmentHeader",
    "SegmentPosition",
    "check_writer_id",
    "checked_offset",
    "checksum",
    "claim_name",
    "claims_folder",
    "committed_of",
    "data_name",
    "decode_claim",
    "decode_header",
    "decode_note",
    "decode_segment",
    "delete_segments",
    "encode_claim",
    "encode_header",
    "encode_note",
    "encode_segment",
    "has_segments",
    "has_streams",
    "header_name",
    "is_claim_name",
    "list_headers",
    "list_positions",
    "list_streams",
    "note_name",
    "parse_claim_name",
    "parse_header_name",
    "parse_operator",
    "read_segments",
    "stream_folder",
    "write_header",
    "write_segment_rows",
]


class RowOperator(enum.Enum):
    """What a row does to its key; the values are stored in segments and never change."""

    #: Insert; a key that is stored already is refused at the flush.
    INSERT = 1
    #: Insert unless the key is stored.
    INSERT_IGNORE = 2
    #: Replace the columns that were set; a key that is not stored is refused at the flush.
    UPDATE = 3
    #: Insert, or replace the stored row.
    UPSERT = 4
    #: Delete; a key that is not stored is refused at the flush.
    DELETE = 5
    #: Delete if the key is stored.
    DELETE_IGNORE = 6
    #: Replace the columns that were set, if the key is stored.
    UPDATE_IGNORE = 7


#: They carry key columns only.
DELETES: Final = frozenset({RowOperator.DELETE, RowOperator.DELETE_IGNORE})
#: They carry the columns that were set.
UPDATES: Final = frozenset({RowOperator.UPDATE, RowOperator.UPDATE_IGNORE})
#: They look their key up at the flush, which costs a read of the table.
STRICT: Final = frozenset({RowOperator.INSERT, RowOperator.UPDATE, RowOperator.DELETE})
#: They carry every column.
WHOLE_ROWS: Final = frozenset({RowOperator.INSERT, RowOperator.INSERT_IGNORE, RowOperator.UPSERT})


def parse_operator(value: object) -> RowOperator:
    """Return an operator, or the one of that name in any letter case.

    Args:
        value: the operator or its name.

    Raises:
        InvalidInputError: there is none of that name.

    Example:
        >>> parse_operator("delete_ignore").name
        'DELETE_IGNORE'
    """
    if isinstance(value, RowOperator):
        return value
    if isinstance(value, str) and value.upper() in RowOperator.__members__:
        return RowOperator[value.upper()]
    raise InvalidInputError(f"Invalid operator {shown(value)}: expected one of {', '.join(RowOperator.__members__)}")


STREAMS: Final = ".hoodie/.lakefmt/streams"
#: How the id of a stream without a writer id begins.
ANONYMOUS: Final = "anonymous-"
_WRITER_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
_SEGMENT_NAME: Final = re.compile(r"([0-9]{8})-([0-9]{12})")
_CLAIMS_FOLDER: Final = "owners"


class SegmentPosition(NamedTuple):
    """The place of a segment in its stream; positions compare.

    Attributes:
        epoch: number of the opening of the stream.
        sequence: number of the segment; it goes on across openings.
    """

    epoch: int
    sequence: int


def check_writer_id(writer_id: object) -> str:
    """Return a writer id that names a folder.

    Raises:
        InvalidInputError: it does not.

    Example:
        >>> check_writer_id("kafka-7")
        'kafka-7'
    """
    if not isinstance(writer_id, str) or not _WRITER_ID.fullmatch(writer_id):
        raise InvalidInputError(
            f"{shown(writer_id)} is no writer id: give 1 to 128 letters, digits, dots, hyphens and underscores, "
            "the first no dot or hyphen"
        )
    return writer_id


def stream_folder(stream: str) -> str:
    """Return the folder of a stream.

    Example:
        >>> stream_folder("w")
        '.hoodie/.lakefmt/streams/w'
    """
    return f"{STREAMS}/{stream}"


def data_name(stream: str, position: SegmentPosition) -> str:
    """Return the name of a segment's rows.

    Example:
        >>> data_name("w", SegmentPosition(2, 7))
        '.hoodie/.lakefmt/streams/w/00000002-000000000007.arrow'
    """
    return f"{stream_folder(stream)}/{position.epoch:08d}-{position.sequence:012d}.arrow"


def header_name(stream: str, position: SegmentPosition) -> str:
    """Return the name of a segment's header; a segment without one is not durable."""
    return f"{stream_folder(stream)}/{position.epoch:08d}-{position.sequence:012d}.json"


def claims_folder(stream: str) -> str:
    """Return the folder of the claims on a stream."""
    return f"{stream_folder(stream)}/{_CLAIMS_FOLDER}"


def claim_name(stream: str, epoch: int) -> str:
    """Return the name of the claim on an epoch."""
    return f"{claims_folder(stream)}/{epoch:08d}.json"


def note_name(stream: str, epoch: int) -> str:
    """Return the name of what the owner of an epoch notes: what it has seen, and that it has closed."""
    return f"{claims_folder(stream)}/{epoch:08d}.note.json"


def parse_claim_name(name: str) -> int | None:
    """Return the epoch of a claim's name (its last part), None if it is none.

    Example:
        >>> parse_claim_name("00000003.json"), parse_claim_name("x.json")
        (3, None)
    """
    stem = name.removesuffix(".json")
    return int(stem) if len(stem) == 8 and stem != name and stem.isascii() and stem.isdigit() else None


def is_claim_name(name: str) -> bool:
    """Return whether a name below the table is of a claim on a stream.

    Example:
        >>> is_claim_name(claim_name("w", 3)), is_claim_name(note_name("w", 3))
        (True, False)
    """
    folder, _, last = name.rpartition("/")
    return (
        name.startswith(f"{STREAMS}/") and folder.endswith(f"/{_CLAIMS_FOLDER}") and parse_claim_name(last) is not None
    )


def parse_header_name(name: str) -> tuple[str, SegmentPosition, bool] | None:
    """Return the stream, the position and whether it is the header, of a name below the table; None: no segment's.

    Example:
        >>> parse_header_name(header_name("w", SegmentPosition(1, 2)))
        ('w', SegmentPosition(epoch=1, sequence=2), True)
    """
    folder, _, last = name.removeprefix(f"{STREAMS}/").rpartition("/")
    stem, _, suffix = last.rpartition(".")
    matched = _SEGMENT_NAME.fullmatch(stem)
    if (
        matched is None
        or suffix not in ("arrow", "json")
        or not _WRITER_ID.fullmatch(folder)
        or not name.startswith(STREAMS)
    ):
        return None
    return folder, SegmentPosition(int(matched[1]), int(matched[2])), suffix == "json"


#: Column of a segment: the number of each row's operator.
OPERATOR: Final = "_lakefmt_operator"
#: Column of a segment: the names of the columns that a row sets, as a JSON list; null: all.
COLUMNS: Final = "_lakefmt_columns"
MAX_HEADER_BYTES: Final = 4 * 1024 * 1024
MAX_SEGMENT_BYTES: Final = 1 << 31
#: A little less than a commit keeps of it with what stands beside it.
MAX_OFFSET_CHARACTERS: Final = 1_000_000
_HEADER_FORMAT: Final = 1
_MOST_COUNT: Final = 1 << 53
_MOST_INSTANT_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What is known of a segment without reading its rows.

    Attributes:
        stream: the stream.
        epoch: number of the opening that wrote it.
        sequence: its number in the stream.
        rows: how many there are.
        bytes: size of the file of rows.
        digest: of the bytes of that file.
        at: epoch milliseconds when it was written.
        offset: what the program said of the position in its source; None: nothing.
        across: a key is one row of the whole table (its index is global); False: of its partition.
        tail: it was sealed by itself behind the last mark of a stream that marks offsets: its source sends it again.
        stays: a row whose key is stored in another partition is written there, with the values of that partition.
        columns: the instant from which the table had the columns of its rows; empty: an older release did not say so.
    """

    stream: str
    epoch: int
    sequence: int
    rows: int
    bytes: int
    digest: str
    at: int
    offset: Any = None
    across: bool = False
    tail: bool = False
    stays: bool = False
    columns: str = ""

    @property
    def position(self) -> SegmentPosition:
        """Where it stands in its stream."""
        return SegmentPosition(self.epoch, self.sequence)


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a process on a stream: none but the newest may write.

    Attributes:
        epoch: its number.
        owner: id of the opening.
        host: name of the machine.
        pid: number of the process.
        since: no commit requested up to this time holds an entry of this stream; empty: not known.
        adopts: the last segment of earlier claims that this one has seen; None: it has not looked yet.
        interval_ms: pause between renewals.
        closed: the stream was closed.
        adopted: the last segment that this one has seen of each earlier claim; None: an older release has noted `adopts` only.
    """

    epoch: int
    owner: str
    host: str
    pid: int
    since: str = ""
    adopts: SegmentPosition | None = None
    interval_ms: int = 60_000
    closed: bool = False
    adopted: tuple[SegmentPosition, ...] | None = None

    def refuses(self, position: SegmentPosition) -> bool:
        """Return whether an earlier owner wrote a segment after this claim had looked: it was never confirmed.

        Example:
            >>> claim = Claim(3, "o", "h", 7, adopts=SegmentPosition(2, 7), adopted=(SegmentPosition(2, 7),))
            >>> claim.refuses(SegmentPosition(1, 6)), claim.refuses(SegmentPosition(2, 7)), claim.refuses(SegmentPosition(3, 8))
            (True, False, False)
        """
        if self.adopts is None or position.epoch >= self.epoch:
            return False
        if self.adopted is None:
            return position > self.adopts
        return not any(position.epoch == last.epoch and position.sequence <= last.sequence for last in self.adopted)


@dataclass(frozen=True, slots=True)
class Committed:
    """The entry of a stream in a commit: everything up to this segment is in the table.

    Attributes:
        epoch: of the newest committed segment.
        sequence: of the newest committed segment.
        offset: the newest offset that was marked.
        at: epoch milliseconds of the commit.
    """

    epoch: int
    sequence: int
    offset: Any = None
    at: int = 0

    @property
    def position(self) -> SegmentPosition:
        """Where that segment stands."""
        return SegmentPosition(self.epoch, self.sequence)


def checked_offset(offset: object) -> Any:
    """Return an offset as a commit will keep it.

    Raises:
        InvalidInputError: it is no JSON value, or too long for a commit.

    Example:
        >>> checked_offset({"line": (1, 2)})
        {'line': [1, 2]}
    """
    try:
        json_text = json.dumps(offset, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"an offset is a JSON value, which this is not: {error}") from None
    if len(json_text) > MAX_OFFSET_CHARACTERS:
        raise InvalidInputError(
            f"an offset has at most {MAX_OFFSET_CHARACTERS:,} characters as JSON, and this one has {len(json_text):,}"
        )
    return json.loads(json_text)


def checksum(data: bytes | memoryview) -> str:
    """Return the digest of a segment's bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def encode_segment(table: pa.Table) -> bytes:
    """Return rows as an Arrow stream; not compressed, since compressed buffers say themselves how much memory they take."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def decode_segment(data: bytes, header: SegmentHeader) -> pa.Table:
    """Return the rows of a segment.

    Raises:
        CorruptFile: the bytes are not those that the header names.
    """
    subject = f"segment {header.epoch}-{header.sequence} of stream {header.stream}"
    if len(data) != header.bytes or checksum(data) != header.digest:
        raise CorruptFile(f"{subject} is damaged: its bytes are not those that were flushed")
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(f"{subject} is damaged: {str(error)[:200]}") from None
    if table.num_rows != header.rows:
        raise CorruptFile(f"{subject} is damaged: it has {table.num_rows} rows, not {header.rows}")
    return table


def encode_header(header: SegmentHeader) -> bytes:
    """Return a header as JSON."""
    return json.dumps({"format": _HEADER_FORMAT, **asdict(header)}, separators=(",", ":")).encode()


def decode_header(data: bytes, name: str) -> SegmentHeader:
    """Return a header.

    Args:
        data: its bytes.
        name: its file, for messages.

    Raises:
        CorruptFile: it is none.

    Example:
        >>> header = SegmentHeader("w", 1, 2, 3, 4, "0" * 32, 5, {"part": 0})
        >>> decode_header(encode_header(header), "x") == header
        True
    """
    body = _decode_mapping(data, name)
    try:
        return SegmentHeader(
            _text_field(body, "stream"),
            _count_field(body, "epoch"),
            _count_field(body, "sequence"),
            _count_field(body, "rows"),
            _count_field(body, "bytes"),
            _text_field(body, "digest"),
            _count_field(body, "at"),
            body.get("offset"),
            body.get("across") is True,
            body.get("tail") is True,
            body.get("stays") is True,
            _instant_field(body, "columns"),
        )
    except ValueError as error:
        raise CorruptFile(f"{name} is no header of a segment: {error}") from None


def encode_claim(claim: Claim) -> bytes:
    """Return a claim as JSON, without what its owner notes later."""
    fields = {key: value for key, value in asdict(claim).items() if key not in ("adopts", "adopted", "closed")}
    return json.dumps({"format": _HEADER_FORMAT, **fields}, separators=(",", ":")).encode()


def encode_note(claim: Claim) -> bytes:
    """Return what the owner of a claim notes."""
    noted = {"adopts": claim.adopts, "adopted": claim.adopted, "closed": claim.closed}
    return json.dumps({"format": _HEADER_FORMAT, **noted}).encode()


def decode_claim(data: bytes, note: bytes | None, name: str) -> Claim:
    """Return a claim.

    Args:
        data: its bytes.
        note: what its owner noted; None: nothing yet.
        name: its file, for messages.

    Raises:
        CorruptFile: it is none.

    Example:
        >>> claim = Claim(3, "o", "h", 7, adopts=SegmentPosition(2, 9), adopted=(SegmentPosition(2, 9),))
        >>> decode_claim(encode_claim(claim), encode_note(claim), "x") == claim
        True
    """
    body = _decode_mapping(data, name)
    try:
        claim = Claim(
            _count_field(body, "epoch"),
            _text_field(body, "owner"),
            _text_field(body, "host"),
            _count_field(body, "pid"),
            _text_field(body, "since"),
            None,
            _count_field(body, "interval_ms"),
        )
    except ValueError as error:
        raise CorruptFile(f"{name} is no claim on a stream: {error}") from None
    return claim if note is None else decode_note(note, claim, name)


def decode_note(note: bytes, claim: Claim, name: str) -> Claim:
    """Return a claim with its note.

    Args:
        note: the bytes.
        claim: it.
        name: its file, for messages.

    Raises:
        CorruptFile: the note is damaged.
    """
    noted = _decode_mapping(note, name)
    try:
        adopts, adopted = noted.get("adopts"), noted.get("adopted")
        if adopted is not None and not isinstance(adopted, list):
            raise ValueError("adopted is no list")
        return replace(
            claim,
            adopts=None if adopts is None else _decode_position(adopts),
            closed=noted.get("closed") is True,
            adopted=None if adopted is None else tuple(map(_decode_position, adopted)),
        )
    except ValueError as error:
        raise CorruptFile(f"what is noted beside {name} is damaged: {error}") from None


def committed_of(fields: Mapping[str, object]) -> Committed:
    """Return what the fields of a commit's entry say of a stream.

    Raises:
        CorruptFile: they say nothing of the kind.

    Example:
        >>> committed_of({"epoch": 1, "sequence": 2, "offset": [3], "at": 4})
        Committed(epoch=1, sequence=2, offset=[3], at=4)
    """
    try:
        epoch, sequence = _count_field(fields, "epoch"), _count_field(fields, "sequence")
        return Committed(epoch, sequence, fields.get("offset"), _count_field(fields, "at"))
    except ValueError as error:
        raise CorruptFile(f"a commit's entry of a stream is damaged: {error}") from None


def _decode_mapping(data: bytes, what: str) -> Mapping[str, object]:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise CorruptFile(f"{what} is damaged: it is no JSON mapping")
    if body.get("format", _HEADER_FORMAT) != _HEADER_FORMAT:
        raise CorruptFile(f"{what} is of a format that this version does not know: {str(body['format'])[:40]}")
    return body


def _count_field(body: Mapping[str, object], key: str) -> int:
    return _checked_count(body.get(key), key)


def _checked_count(value: object, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST_COUNT:
        raise ValueError(f"{key} is no count")
    return value


def _decode_position(value: object) -> SegmentPosition:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("a noted segment is no position")
    return SegmentPosition(*(_checked_count(each, "a noted segment") for each in value))


def _instant_field(body: Mapping[str, object], key: str) -> str:
    """Return the number of an instant; empty where there is none."""
    value = body.get(key, "")
    if (
        not isinstance(value, str)
        or len(value) > _MOST_INSTANT_DIGITS
        or not ((value.isascii() and value.isdigit()) or not value)
    ):
        raise ValueError(f"{key} is no instant")
    return value


def _text_field(body: Mapping[str, object], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or len(value) > 1000:
        raise ValueError(f"{key} is no text")
    return value


def write_segment_rows(store: ObjectStore, header: SegmentHeader, data: bytes, *, durable: bool) -> None:
    """Write the rows of a segment; they count from when :func:`write_header` names them. Arguments and errors as there."""
    _put_object(store, data_name(header.stream, header.position), data, durable=durable)


def write_header(store: ObjectStore, header: SegmentHeader, *, durable: bool) -> None:
    """Write the header of a segment; it is durable when this returns.

    Args:
        store: the table's.
        header: the segment.
        durable: also on the disk.

    Raises:
        StreamUnavailable: another process wrote a segment of this name.
        StorageError: the store failed; the segment may be there or not, and may be written again.
    """
    _put_object(store, header_name(header.stream, header.position), encode_header(header), durable=durable)


def _put_object(store: ObjectStore, name: str, data: bytes, *, durable: bool) -> None:
    if put_if_absent_confirmed(store, name, data, durable=durable) is PutOutcome.DONE:
        return
    # An earlier attempt of this process, whose answer was lost, or another process.
    if store.read(name, MAX_SEGMENT_BYTES) != data:
        raise StreamUnavailable(f"{name} was written by another process: this stream is not its owner any more")


def has_streams(store: ObjectStore) -> bool:
    """Return whether a table has the folder of any stream; one request."""
    return bool(store.list_directories(STREAMS))


def list_streams(store: ObjectStore) -> list[str]:
    """Return the ids of the streams that a table has a folder of."""
    return sorted(name.rpartition("/")[2] for name in store.list_directories(STREAMS))


def list_positions(store: ObjectStore, stream: str) -> tuple[list[SegmentPosition], list[SegmentPosition]]:
    """Return the segments of a stream with a header, and those that have rows but no header."""
    headers, data = set[SegmentPosition](), set[SegmentPosition]()
    for info in store.list(stream_folder(stream), recursive=False):
        parsed = parse_header_name(info.name)
        if parsed is not None:
            (headers if parsed[2] else data).add(parsed[1])
    return sorted(headers), sorted(data - headers)


def has_segments(store: ObjectStore, stream: str, headers: Iterable[SegmentHeader]) -> bool:
    """Return whether segments of a stream are all there."""
    return {header.position for header in headers} <= set(list_positions(store, stream)[0])


def list_headers(store: ObjectStore, stream: str) -> list[SegmentHeader]:
    """Return the headers of a stream's segments; one that is deleted meanwhile is left out.

    Raises:
        CorruptFile: a header is damaged.
    """
    positions, _ = list_positions(store, stream)
    headers = map_concurrently(store, [partial(_load_header, store, stream, position) for position in positions])
    return [header for header in headers if header is not None]


def _load_header(store: ObjectStore, stream: str, position: SegmentPosition) -> SegmentHeader | None:
    name = header_name(stream, position)
    try:
        header = decode_header(store.read(name, MAX_HEADER_BYTES), name)
    except ObjectNotFound:
        return None
    if (header.stream, header.position) != (stream, position):
        raise CorruptFile(f"{name} is the header of another segment")
    return header


def read_segments(store: ObjectStore, headers: Sequence[SegmentHeader]) -> list[pa.Table]:
    """Return the rows of segments.

    Raises:
        ObjectNotFound: one was committed and deleted meanwhile.
        CorruptFile: one is damaged.
    """

    def read(header: SegmentHeader) -> pa.Table:
        if header.bytes > MAX_SEGMENT_BYTES:
            raise CorruptFile(f"{header_name(header.stream, header.position)} names a segment of {header.bytes} bytes")
        return decode_segment(store.read(data_name(header.stream, header.position), header.bytes), header)

    return map_concurrently(store, [partial(read, header) for header in headers])


def delete_segments(store: ObjectStore, stream: str, positions: Iterable[SegmentPosition]) -> None:
    """Delete segments, headers first: what is left of a deletion that ends half-way is no segment."""
    each = list(positions)
    if not all(isinstance(position, SegmentPosition) for position in each):
        raise InternalError("only positions name segments")
    if each:
        store.delete([header_name(stream, position) for position in each])
        store.delete([data_name(stream, position) for position in each])
