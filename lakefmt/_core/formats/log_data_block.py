"""Encode and decode data, command and change blocks (docs/format.md, Data blocks; Command blocks; Record positions; Change files). Pure.

Deletes are in :mod:`~lakefmt._core.formats.log_delete_block`. Contents of HFile blocks stay bytes: only
the metadata table has them.

The header of a data or delete block may have the positions of its records in the base file: 64-bit
numbers as Roaring bitmap in Base64. The bytes are those of
``Roaring64NavigableMap.serializePortable`` after ``runOptimize``: numbers are grouped by their upper
32 bits, then by the next 16 bits into containers of the lowest 16, each in the smallest of three
forms: numbers, bitmap, runs. A container is one array operation.

A change has an operation and, by logging mode, the record key and images. Images are rows of the
table without meta columns; both share one named type, as in Hudi.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakefmt._core.config.table_config import CdcMode
from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.avro.columnar.codec import decode_rows, encode_rows
from lakefmt._core.formats.avro.columnar.plan import plan_rows
from lakefmt._core.formats.log_blocks import CONTENT_VERSION, BlockKind, HeaderKey, LogBlock, encode_block, record_spans
from lakefmt._core.formats.parquet.base_file import AVRO_SCHEMA_KEY, BaseFileWriter
from lakefmt.errors import CorruptFile, InvalidInputError, UnsupportedFeature

__all__ = [
    "AFTER",
    "BEFORE",
    "KEY",
    "OP",
    "TS_MS",
    "BlockHeader",
    "EncodedRows",
    "block_positions",
    "build_cdc_schema",
    "decode_avro_content",
    "decode_avro_contents",
    "decode_cdc_content",
    "decode_parquet_content",
    "decode_positions",
    "encode_cdc_blocks",
    "encode_command_block",
    "encode_data_block",
    "encode_parquet_block",
    "encode_positions",
    "encode_record_block",
    "encode_records",
]

I64 = npt.NDArray[np.int64]


_ROLLBACK_COMMAND = "0"
#: Maximum rows of a Parquet block relative to its size: record keys differ, so every row takes some
#: bits.
_PARQUET_ROWS_PER_BYTE = 64
_FREE_PARQUET_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class BlockHeader:
    """The header of a data or delete block (docs/format.md, Block headers).

    Attributes:
        instant_time: requested time of the write.
        schema: Avro JSON of the records with meta columns; optional in a delete block.
        positions: row of each record in the base file, ascending; records have the same order
            (docs/format.md, Record positions).
        base_instant_time: instant of that base file; with `positions` from version 8 on.
        is_partial: the records have only some of the columns (docs/format.md, Partial updates).
        block_identifier: ``<attempt>,<sequence>``, in version 6.
        compacted_block_times: instants whose blocks this one replaces (docs/format.md, Reading a
            slice).

    Example:
        >>> header = BlockHeader("20240101000000000", positions=np.array([0]), base_instant_time="20231231235959000")
        >>> [key.name for key in header.entries(1)]
        ['INSTANT_TIME', 'RECORD_POSITIONS', 'BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS']
    """

    instant_time: str
    schema: str | None = None
    positions: I64 | None = None
    base_instant_time: str | None = None
    is_partial: bool = False
    block_identifier: str | None = None
    compacted_block_times: tuple[str, ...] = ()

    def entries(self, rows: int) -> dict[HeaderKey, str]:
        """Return the header entries of a block with `rows` records.

        Raises:
            InvalidInputError: the positions are not one per record or do not ascend.
        """
        values = {HeaderKey.INSTANT_TIME: self.instant_time}
        if self.schema is not None:
            values[HeaderKey.SCHEMA] = self.schema
        if self.compacted_block_times:
            values[HeaderKey.COMPACTED_BLOCK_TIMES] = ",".join(self.compacted_block_times)
        if self.positions is not None:
            if len(self.positions) != rows:
                raise InvalidInputError(f"{len(self.positions)} positions for {rows} records: one for each, or none")
            values[HeaderKey.RECORD_POSITIONS] = encode_positions(self.positions)
        if self.block_identifier is not None:
            values[HeaderKey.BLOCK_IDENTIFIER] = self.block_identifier
        if self.is_partial:
            values[HeaderKey.IS_PARTIAL] = "true"
        if self.base_instant_time is not None:
            values[HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS] = self.base_instant_time
        return values


def block_positions(block: LogBlock, base_instant_time: str, rows: int, what: str) -> I64 | None:
    """Return each record's row in the base file of an instant; None if the block has no positions for it.

    Parameters:
        block: a data or delete block.
        base_instant_time: instant of the base file.
        rows: number of records in the block.
        what: the file's name in errors.

    Raises:
        CorruptFile: the positions are damaged or differ in number from the records.

    Positions of version 6 do not name their base file and are not used. Source: docs/format.md,
    Record positions.

    Example:
        >>> header = BlockHeader("20240102000000000", positions=np.array([3]), base_instant_time="20240101000000000")
        >>> block = LogBlock(BlockKind.DELETE, 0, 0, header.entries(1))
        >>> block_positions(block, "20240101000000000", 1, "a.log"), block_positions(block, "2023", 1, "a.log")
        (array([3]), None)
    """
    encoded = block.header.get(HeaderKey.RECORD_POSITIONS)
    if not encoded or block.header.get(HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS) != base_instant_time:
        return None
    positions = decode_positions(encoded, rows, what)
    if len(positions) != rows:
        raise CorruptFile(
            f"{what}: {len(positions)} positions for the {rows} records of the block at byte {block.start:,}"
        )
    return positions


# ------------------------------------------------------------------------------------------------------------- Avro


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRows:
    """Rows as Avro records with their lengths; any run of them makes a block (docs/format.md, Data blocks).

    Attributes:
        schema: Avro JSON of the records.
        data: the records, each after its length.
        offsets: ``(n_rows + 1,)`` start of each record in `data`, and the end.
    """

    schema: str
    data: memoryview
    offsets: I64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def slice(self, start: int, rows: int) -> EncodedRows:
        """Return `rows` rows from row `start` on, fewer at the end, without copying."""
        return EncodedRows(self.schema, self.data, self.offsets[start : start + rows + 1])


def encode_records(table: pa.Table | pa.RecordBatch, schema: str) -> EncodedRows:
    """Return rows as records for one or more blocks.

    Parameters:
        table: the columns of the schema.
        schema: Avro JSON of a record.

    Raises:
        SchemaMismatch: the rows do not fit the schema.

    Source: docs/format.md, Data blocks.

    Example:
        >>> schema = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}'
        >>> rows = encode_records(pa.table({"id": [1, 2]}), schema)
        >>> encode_record_block(rows.slice(1, 1), BlockHeader("20240101000000000", schema))[-25:-12].hex(" ", -4)
        '00000003 00000001 00000001 04'
    """
    data, offsets = encode_rows(table, schema, framed=True)
    return EncodedRows(schema, memoryview(data), offsets)


def encode_record_block(rows: EncodedRows, header: BlockHeader, kind: BlockKind = BlockKind.AVRO_DATA) -> bytes:
    """Return encoded rows as a block; arguments and errors as for :func:`encode_data_block`."""
    if kind not in (BlockKind.AVRO_DATA, BlockKind.CDC_DATA):
        raise InvalidInputError(f"a block of kind {kind.name} does not hold Avro records")
    if rows.schema != _schema_in_header(header):
        raise InvalidInputError("the records are of another schema than the block's header names")
    lead = struct.pack(">ii", CONTENT_VERSION, len(rows))
    content = rows.data[int(rows.offsets[0]) : int(rows.offsets[-1])]
    return encode_block(kind, header.entries(len(rows)), lead, content)


def encode_data_block(
    table: pa.Table | pa.RecordBatch, header: BlockHeader, kind: BlockKind = BlockKind.AVRO_DATA
) -> bytes:
    """Return rows as a block of Avro records; with kind ``CDC_DATA`` as a change block.

    Parameters:
        table: the columns of the header's schema.
        header: has a schema.
        kind: ``AVRO_DATA`` or ``CDC_DATA``.

    Raises:
        SchemaMismatch: the rows do not fit the schema.
        InvalidInputError: the header lacks schema or positions, or the block would exceed 2 GiB.

    Example:
        >>> schema = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}'
        >>> encode_data_block(pa.table({"id": [1, 2]}), BlockHeader("20240101000000000", schema))[-30:-12].hex(" ", -4)
        '00000003 00000002 00000001 02000000 0104'
    """
    return encode_record_block(encode_records(table, _schema_in_header(header)), header, kind)


def decode_avro_content(
    content: bytes | memoryview, schema: str, columns: Sequence[str] | None = None, *, what: str
) -> pa.Table:
    """Return the records of an Avro data block or a change block.

    Parameters:
        content: the content of the block.
        schema: Avro JSON from its header.
        columns: the requested names; None: all.
        what: the file's name in errors.

    Raises:
        CorruptFile: content or schema is damaged.
        UnsupportedFeature: another content version or an unsupported type.
        InvalidInputError: see :func:`lakefmt._core.formats.avro.columnar.codec.decode_rows`.

    Source: docs/format.md, Data blocks.

    Example:
        >>> schema = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}'
        >>> decode_avro_content(bytes.fromhex("00000003 00000001 00000001 0e"), schema, what="a.log")["id"].to_pylist()
        [7]
    """
    return decode_avro_contents([content], schema, columns, what=[what])[0]


def decode_avro_contents(
    contents: Sequence[bytes | memoryview], schema: str, columns: Sequence[str] | None = None, *, what: Sequence[str]
) -> tuple[pa.Table, list[int]]:
    """Return the records of several blocks with one schema, and the number of records of each block.

    The fixed cost of a block is paid once for all of them.

    Parameters:
        contents: the contents of the blocks.
        schema: Avro JSON from their headers.
        columns: the requested names; None: all.
        what: the name of each block's file in errors.

    Raises:
        CorruptFile: as for :func:`decode_avro_content`, like all other errors.

    Source: docs/format.md, Data blocks.

    Example:
        >>> schema = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}'
        >>> one, two = (bytes.fromhex(f"00000003 00000001 00000001 {last}") for last in ("0e", "10"))
        >>> rows, counts = decode_avro_contents([one, two], schema, what=["a.log", "b.log"])
        >>> rows["id"].to_pylist(), counts
        ([7, 8], [1, 1])
    """
    spans = [record_spans(content, name) for content, name in zip(contents, what, strict=True)]
    counts = [len(starts) for starts, _ in spans]
    if len(spans) > 1:
        begins = np.cumsum([0, *(len(content) for content in contents[:-1])])
        starts, ends = (
            np.concatenate([part[side] + begin for part, begin in zip(spans, begins, strict=True)]) for side in (0, 1)
        )
        with suppress(CorruptFile, UnsupportedFeature):  # raised below, with the name of the damaged block
            return decode_rows(b"".join(contents), starts, ends, schema, columns, what=what[0]), counts
    tables = [
        decode_rows(content, *span, schema, columns, what=name)
        for content, span, name in zip(contents, spans, what, strict=True)
    ]
    return pa.concat_tables(tables), counts


def _schema_in_header(header: BlockHeader) -> str:
    if header.schema is None:
        raise InvalidInputError("a block of rows needs the Avro schema of its records in the header")
    return header.schema


# ---------------------------------------------------------------------------------------------------------- Parquet


def encode_parquet_block(table: pa.Table, header: BlockHeader, codec: str = "zstd", level: int | None = 1) -> bytes:
    """Return rows as a Parquet data block (docs/format.md, Data blocks).

    Parameters:
        table: the columns of the header's schema in order.
        header: has a schema.
        codec: compression codec.
        level: compression level, for zstd, gzip and brotli.

    Raises:
        InvalidInputError: columns and schema differ, the header lacks schema or positions, or the
            block would exceed 2 GiB.

    Example:
        >>> schema = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}'
        >>> encode_parquet_block(pa.table({"id": [1]}), BlockHeader("20240101000000000", schema)).count(b"PAR1")
        2
    """
    schema = _schema_in_header(header)
    names = [part.name for part in plan_rows(schema).parts]
    if table.column_names != names:
        raise InvalidInputError(
            f"columns {', '.join(table.column_names)} are not those of the schema: {', '.join(names)}"
        )
    sink = pa.BufferOutputStream()
    writer = BaseFileWriter(sink, table.schema, codec, level)
    writer.write(table)
    writer.close({AVRO_SCHEMA_KEY: schema})
    return encode_block(BlockKind.PARQUET_DATA, header.entries(table.num_rows), memoryview(sink.getvalue()))


def decode_parquet_content(
    content: bytes | memoryview | pa.Buffer, columns: Sequence[str] | None = None, *, what: str
) -> pa.Table:
    """Return the rows of a Parquet data block with the file's types.

    Parameters:
        content: the content of the block: a Parquet file.
        columns: the requested names; None: all.
        what: the file's name in errors.

    Raises:
        CorruptFile: not a Parquet file, or damaged.
        InvalidInputError: a requested column is not in the file.

    Source: docs/format.md, Data blocks.

    Example:
        >>> from lakefmt._core.formats.log_blocks import scan_blocks
        >>> schema = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}'
        >>> data = encode_parquet_block(pa.table({"id": [1]}), BlockHeader("20240101000000000", schema))
        >>> block, = scan_blocks(lambda at, n: data[at : at + n], len(data), "a.log")
        >>> decode_parquet_content(data[block.content_start :][: block.content_size], what="a.log").to_pydict()
        {'id': [1]}
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        known = set(file.schema_arrow.names)
        unknown = [name for name in columns or () if name not in known]
        if unknown:
            raise InvalidInputError(f"{what}: the block has no columns {', '.join(unknown)}")
        # Nothing else of the footer is read: pyarrow crashes on a damaged column chunk.
        stated = file.metadata.num_rows
        if not 0 <= stated <= _FREE_PARQUET_ROWS + _PARQUET_ROWS_PER_BYTE * len(memoryview(content)):
            raise CorruptFile(f"{what}: damaged Parquet block: {stated:,} rows in {len(memoryview(content)):,} bytes")
        table = file.read(columns=None if columns is None else list(columns), use_threads=False)
        if table.num_rows != stated:
            raise CorruptFile(f"{what}: damaged Parquet block: {table.num_rows:,} rows, the footer says {stated:,}")
        return table.replace_schema_metadata()
    except (pa.ArrowException, OSError, EOFError, OverflowError, MemoryError, UnicodeDecodeError) as error:
        raise CorruptFile(f"{what}: damaged Parquet block: {error}") from None


# --------------------------------------------------------------------------------------------------------- commands


def encode_command_block(instant_time: str, target_instant_time: str) -> bytes:
    """Return the block that rolls back the blocks of an instant, version 6 (docs/format.md, Command blocks).

    Parameters:
        instant_time: the rollback's instant.
        target_instant_time: the instant to roll back.

    Example:
        >>> len(encode_command_block("20240101000000000", "20231231235959000"))
        105
    """
    header = {
        HeaderKey.INSTANT_TIME: instant_time,
        HeaderKey.TARGET_INSTANT_TIME: target_instant_time,
        HeaderKey.COMMAND_BLOCK_TYPE: _ROLLBACK_COMMAND,
    }
    return encode_block(BlockKind.COMMAND, header)


# ----------------------------------------------------------------------------------------------------- record positions

_U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
_COOKIE_WITHOUT_RUNS = 12346
_COOKIE_WITH_RUNS = 12347
#: With runs, container offsets are omitted below this number of containers.
_OFFSETS_FROM = 4
_MAX_ARRAY_VALUES = 4096
_BITMAP_BYTES = 8192
_MAX_POSITION = 1 << 62
#: Maximum number of decoded positions: no file has more rows, and runs make many from few bytes.
_MAX_POSITIONS = 1 << 31
_ARRAY_FORM, _BITMAP_FORM, _RUNS_FORM = range(3)


def encode_positions(positions: I64) -> str:
    """Return the text of a set of positions.

    Parameters:
        positions: row numbers in the base file, ascending without repetition.

    Raises:
        InvalidInputError: not ascending, or out of range.

    Source: docs/format.md, Record positions.

    Example:
        >>> encode_positions(np.array([1, 5, 9]))
        'AQAAAAAAAAAAAAAAOjAAAAEAAAAAAAIAEAAAAAEABQAJAA=='
    """
    if len(positions) and not (positions[0] >= 0 and positions[-1] < _MAX_POSITION and (np.diff(positions) > 0).all()):
        raise InvalidInputError("record positions must ascend from 0 on, none twice")
    if len(positions) and positions[-1] < 1 << 16:  # as in most base files: one container
        buckets = [_encode_containers(0, [(0, positions.astype("<u2"))])]
    else:
        buckets = [_encode_bitmap(key, low) for key, low in _split_by_upper_bits(positions, 32)]
    return base64.b64encode(struct.pack("<Q", len(buckets)) + b"".join(buckets)).decode()


def _split_by_upper_bits(numbers: npt.NDArray[np.integer], bits: int) -> list[tuple[int, npt.NDArray[np.integer]]]:
    """Return the runs of ascending numbers with equal upper bits, each with these bits."""
    keys = numbers >> bits
    bounds = np.flatnonzero(np.diff(keys)) + 1
    return [(int(part[0] >> bits), part & ((1 << bits) - 1)) for part in np.split(numbers, bounds) if len(part)]


def _encode_bitmap(key: int, numbers: npt.NDArray[np.integer]) -> bytes:
    return _encode_containers(key, [(high, low.astype("<u2")) for high, low in _split_by_upper_bits(numbers, 16)])


def _encode_containers(key: int, parts: Sequence[tuple[int, _U16]]) -> bytes:
    bodies = [_encode_container(low) for _, low in parts]
    count = len(parts)
    has_runs = any(form == _RUNS_FORM for form, _ in bodies)
    if has_runs:
        are_runs = np.array([form == _RUNS_FORM for form, _ in bodies])
        head = (
            struct.pack("<I", _COOKIE_WITH_RUNS | count - 1 << 16) + np.packbits(are_runs, bitorder="little").tobytes()
        )
    else:
        head = struct.pack("<II", _COOKIE_WITHOUT_RUNS, count)
    head += b"".join(struct.pack("<HH", high, len(low) - 1) for high, low in parts)
    if count >= _OFFSETS_FROM or not has_runs:
        sizes = accumulate((len(body) for _, body in bodies[:-1]), initial=len(head) + 4 * count)
        head += struct.pack(f"<{count}I", *sizes)
    return struct.pack("<I", key) + head + b"".join(body for _, body in bodies)


def _encode_container(low: _U16) -> tuple[int, bytes]:
    """Return the smallest form of a container and its bytes."""
    breaks = low[1:] - low[:-1] != 1
    size = min(2 * len(low), _BITMAP_BYTES)
    if 2 + 4 * (1 + np.count_nonzero(breaks)) < size:
        starts = np.concatenate([[0], np.flatnonzero(breaks) + 1])
        first = low[starts]
        lengths = np.diff(np.concatenate([starts, [len(low)]])) - 1
        runs = np.stack([first, lengths.astype("<u2")], axis=1)
        return _RUNS_FORM, struct.pack("<H", len(starts)) + runs.tobytes()
    if len(low) <= _MAX_ARRAY_VALUES:
        return _ARRAY_FORM, low.tobytes()
    flags = np.zeros(1 << 16, np.bool_)
    flags[low] = True
    return _BITMAP_FORM, np.packbits(flags, bitorder="little").tobytes()


def decode_positions(encoded: str, most: int, what: str = "record positions") -> I64:
    """Return the positions in a header's text, ascending.

    Parameters:
        encoded: the header's value.
        most: maximum number of positions, such as the records of the block.
        what: the file's name in errors.

    Raises:
        CorruptFile: the text is damaged or has more positions.

    Source: docs/format.md, Record positions.

    Example:
        >>> decode_positions("AgAAAAAAAAAAAAAAOjAAAAEAAAAAAAAAEAAAAAMAAQAAADowAAABAAAAAAAAABAAAAAHAA==", 2).tolist()
        [3, 4294967303]
    """
    try:
        data = base64.b64decode(encoded, validate=True)
        return _PositionsReader(data, min(most, _MAX_POSITIONS)).read()
    except (binascii.Error, ValueError, struct.error) as error:
        raise CorruptFile(f"{what}: damaged record positions: {error}") from None


class _PositionsReader:
    """Reads one set; lengths are checked against the remaining bytes and the expected number of positions."""

    def __init__(self, data: bytes, most: int) -> None:
        self._data = data
        self._at = 0
        self._left = most

    def read(self) -> I64:
        (buckets,) = struct.unpack("<Q", self._take(8))
        if buckets > len(self._data) // 8:
            raise ValueError(f"{buckets} bitmaps in {len(self._data)} bytes")
        parts = [np.empty(0, np.int64)]
        last = -1
        for _ in range(buckets):
            (key,) = struct.unpack("<I", self._take(4))
            if not last < key < _MAX_POSITION >> 32:
                raise ValueError(f"bitmap {key} is out of order")
            last = key
            parts += [(key << 32) + low for low in self._bitmap()]
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes are left")
        return np.concatenate(parts)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError("it ends too early")
        chunk = self._data[self._at : end]
        self._at = end
        return chunk

    def _bitmap(self) -> list[I64]:
        (cookie,) = struct.unpack("<I", self._take(4))
        if cookie & 0xFFFF == _COOKIE_WITH_RUNS:
            count = (cookie >> 16) + 1
            flags = np.unpackbits(np.frombuffer(self._take(-(-count // 8)), np.uint8), bitorder="little")[:count]
        elif cookie == _COOKIE_WITHOUT_RUNS:
            (count,) = struct.unpack("<I", self._take(4))
            if count > 1 << 16:
                raise ValueError(f"{count} containers")
            flags = np.zeros(count, np.uint8)
        else:
            raise ValueError(f"cookie {cookie:#x}")
        keys = np.frombuffer(self._take(4 * count), "<u2").astype(np.int64).reshape(-1, 2)
        if (np.diff(keys[:, 0]) <= 0).any():
            raise ValueError("containers are out of order")
        if count >= _OFFSETS_FROM or cookie == _COOKIE_WITHOUT_RUNS:
            self._take(4 * count)
        pairs = zip(keys, flags, strict=True)
        return [(int(key) << 16) + self._container(int(size) + 1, bool(is_run)) for (key, size), is_run in pairs]

    def _container(self, count: int, is_run: bool) -> I64:
        self._left -= count
        if self._left < 0:
            raise ValueError("there are more positions than records")
        if is_run:
            values = self._runs(count)
        elif count <= _MAX_ARRAY_VALUES:
            values = np.frombuffer(self._take(2 * count), "<u2").astype(np.int64)
        else:
            bits = np.unpackbits(np.frombuffer(self._take(_BITMAP_BYTES), np.uint8), bitorder="little")
            values = np.flatnonzero(bits)
        if len(values) != count or (np.diff(values) <= 0).any():
            raise ValueError("a container does not hold what it says")
        return values

    def _runs(self, count: int) -> I64:
        (number,) = struct.unpack("<H", self._take(2))
        runs = np.frombuffer(self._take(4 * number), "<u2").astype(np.int64).reshape(-1, 2)
        lengths = runs[:, 1] + 1
        if int(lengths.sum()) != count or (runs.sum(axis=1) >= 1 << 16).any():
            raise ValueError("runs do not hold what their container says")
        return np.repeat(runs[:, 0] - (np.cumsum(lengths) - lengths), lengths) + np.arange(count)


OP, KEY, TS_MS, BEFORE, AFTER = "op", "record_key", "ts_ms", "before", "after"

#: Arrow bytes of changes per block; Hudi's default.
_BLOCK_BYTES = 256 << 20
_TEXTS = (OP, KEY, TS_MS)
_IMAGES = (BEFORE, AFTER)


def build_cdc_schema(table_schema: str, mode: CdcMode) -> str:
    """Return the Avro schema of a table's changes.

    Parameters:
        table_schema: Avro JSON without meta columns.
        mode: the supplemental logging mode.

    Source: docs/format.md, Change files.

    Example:
        >>> table = '{"type":"record","name":"t_record","namespace":"hoodie.t","fields":[]}'
        >>> [field["name"] for field in json.loads(build_cdc_schema(table, CdcMode.DATA_BEFORE))["fields"]]
        ['op', 'record_key', 'before']
    """
    if mode is CdcMode.OP_KEY_ONLY:
        texts = [{"name": name, "type": ["string", "null"]} for name in (OP, KEY)]
        return json.dumps({"type": "record", "name": "Record", "fields": texts}, separators=(",", ":"))
    image = json.loads(table_schema)
    namespace = image.get("namespace")
    full_name = f"{namespace}.{image['name']}" if namespace else image["name"]
    has_both = mode is CdcMode.DATA_BEFORE_AFTER
    fields = [_field(OP, "string"), _field(TS_MS if has_both else KEY, "string"), _field(BEFORE, image)]
    if has_both:
        fields.append(_field(AFTER, full_name))
    record = {"type": "record", "name": "CDC", **({"namespace": namespace} if namespace else {}), "fields": fields}
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


def _field(name: str, avro_type: object) -> dict[str, object]:
    return {"name": name, "type": ["null", avro_type], "doc": "", "default": None}


def encode_cdc_blocks(changes: pa.Table, instant: str, schema: str) -> Iterator[bytes]:
    """Yield changes as blocks: at least one, as Hudi does, so that an empty file means no changes.

    Parameters:
        changes: the columns of `schema`.
        instant: requested time of the write.
        schema: a result of :func:`build_cdc_schema`.

    Raises:
        SchemaMismatch: the columns do not fit the schema.

    Source: docs/format.md, Data blocks; Change files.

    Example:
        >>> from lakefmt._core.formats.log_blocks import scan_blocks
        >>> rows = pa.table({"op": ["d"], "record_key": ["a"]})
        >>> schema = build_cdc_schema("{}", CdcMode.OP_KEY_ONLY)
        >>> data, = encode_cdc_blocks(rows, "20260101000000000", schema)
        >>> [block.kind.name for block in scan_blocks(lambda at, n: data[at : at + n], len(data), "a.cdc")]
        ['CDC_DATA']
    """
    header = BlockHeader(instant, schema)
    step = max(1, int(changes.num_rows * _BLOCK_BYTES / max(_BLOCK_BYTES, changes.nbytes)))
    for start in range(0, max(1, changes.num_rows), step):
        yield encode_data_block(changes.slice(start, step), header, BlockKind.CDC_DATA)


def decode_cdc_content(content: bytes | memoryview, schema: str, *, what: str) -> pa.Table:
    """Return the changes of a block: ``op``, and if present ``record_key``, ``before``, ``after``.

    Parameters:
        content: the content of the block.
        schema: Avro JSON from its header.
        what: the file's name in errors.

    Raises:
        CorruptFile: content or schema is damaged, or an operation is not ``i``, ``u`` or ``d``.
        UnsupportedFeature: an unsupported type.

    Source: docs/format.md, Change files.

    Example:
        >>> content = bytes.fromhex("00000003 00000001 00000006 0002 75 0002 6b".replace(" ", ""))
        >>> decode_cdc_content(content, build_cdc_schema("{}", CdcMode.OP_KEY_ONLY), what="a.cdc").to_pylist()
        [{'op': 'u', 'record_key': 'k'}]
    """
    rows = decode_avro_content(content, schema, what=what)
    for field in rows.schema:
        sound = pt.is_string(field.type) if field.name in _TEXTS else pt.is_struct(field.type)
        if field.name not in (*_TEXTS, *_IMAGES) or not sound:
            raise CorruptFile(f"{what}: a block of changes has the column {field.name!r} of type {field.type}")
    if OP not in rows.column_names or not ({KEY} & set(rows.column_names) or set(_IMAGES) <= set(rows.column_names)):
        raise CorruptFile(f"{what}: a block of changes says neither keys nor images: {rows.column_names}")
    is_operation = pc.is_in(rows.column(OP), value_set=pa.array(["i", "u", "d"]))
    if not pc.all(is_operation, min_count=0).equals(pa.scalar(True)):
        raise CorruptFile(f"{what}: a change is none of i, u, d")
    return rows
