"""What log blocks hold: rows as Avro or Parquet, changes, commands; and their headers (spec 7.3–7.7, 9). Pure.

Deletes are in :mod:`~lakefmt.formats.log.delete_block`. Contents of HFile blocks are left as bytes: they are found only in the
metadata table, and read there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt.errors import CorruptFile, InvalidInputError, UnsupportedFeature
from lakefmt.formats.avro.columnar.codec import decode_rows, encode_rows
from lakefmt.formats.avro.columnar.plan import plan_rows
from lakefmt.formats.log._positions import decode_positions, encode_positions
from lakefmt.formats.log._records import CONTENT_VERSION, record_spans
from lakefmt.formats.log.blocks import BlockKind, HeaderKey, LogBlock, encode_block
from lakefmt.formats.parquet.base_file import AVRO_SCHEMA_KEY, BaseFileWriter

__all__ = [
    "BlockHeader",
    "EncodedRows",
    "block_positions",
    "decode_avro_content",
    "decode_avro_contents",
    "decode_parquet_content",
    "encode_command_block",
    "encode_data_block",
    "encode_parquet_block",
    "encode_record_block",
    "encode_records",
]

I64 = npt.NDArray[np.int64]

_ROLLBACK = "0"
#: Rows of a Parquet block that are believed: record keys differ from row to row, so that some bits are stored for each.
_ROWS_PER_BYTE = 64
_FREE_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class BlockHeader:
    """What the header of a data or delete block says (spec 7.3).

    Attributes:
        instant_time: the instant that writes the block.
        schema: the Avro schema of the records, meta fields included, as JSON text; a delete block may do without.
        positions: row of each record in the base file, ascending; the records must be in this order (spec 7.8).
        base_instant_time: instant of that base file; together with `positions` from version 8 on.
        is_partial: the records hold some of the table's columns only (spec 7.10).
        block_identifier: ``<attempt>,<sequence>``, in version 6.
        compacted_block_times: instants whose blocks this one stands for (spec 7.9).

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
        """Return the entries for a block of so many records.

        Raises:
            InvalidInputError: there is not one position per record, or they do not ascend.
        """
        found = {HeaderKey.INSTANT_TIME: self.instant_time}
        if self.schema is not None:
            found[HeaderKey.SCHEMA] = self.schema
        if self.compacted_block_times:
            found[HeaderKey.COMPACTED_BLOCK_TIMES] = ",".join(self.compacted_block_times)
        if self.positions is not None:
            if len(self.positions) != rows:
                raise InvalidInputError(f"{len(self.positions)} positions for {rows} records: one for each, or none")
            found[HeaderKey.RECORD_POSITIONS] = encode_positions(self.positions)
        if self.block_identifier is not None:
            found[HeaderKey.BLOCK_IDENTIFIER] = self.block_identifier
        if self.is_partial:
            found[HeaderKey.IS_PARTIAL] = "true"
        if self.base_instant_time is not None:
            found[HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS] = self.base_instant_time
        return found


def block_positions(block: LogBlock, base_instant_time: str, rows: int, what: str) -> I64 | None:
    """Return the row of each record in the base file of an instant; None when the block does not say it for this one.

    Parameters:
        block: a data or delete block.
        base_instant_time: the instant of the base file that the records are merged with.
        rows: records of the block.
        what: how the file is named in errors.

    Raises:
        CorruptFile: the positions are damaged, or not as many as the records.

    Spec 7.8: positions in a block of version 6, which does not say for which base file they are, are not used.

    Example:
        >>> header = BlockHeader("20240102000000000", positions=np.array([3]), base_instant_time="20240101000000000")
        >>> block = LogBlock(BlockKind.DELETE, 0, 0, header.entries(1))
        >>> block_positions(block, "20240101000000000", 1, "a.log"), block_positions(block, "2023", 1, "a.log")
        (array([3]), None)
    """
    text = block.header.get(HeaderKey.RECORD_POSITIONS)
    if not text or block.header.get(HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS) != base_instant_time:
        return None
    found = decode_positions(text, rows, what)
    if len(found) != rows:
        raise CorruptFile(f"{what}: {len(found)} positions for the {rows} records of the block at byte {block.start:,}")
    return found


# ------------------------------------------------------------------------------------------------------------- Avro


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRows:
    """Rows as Avro records, each behind its length, as data blocks hold them; any run of them makes a block (spec 7.5).

    Attributes:
        schema: the Avro schema of the records, as JSON text.
        data: the records.
        offsets: where each begins in `data`, and where the last one ends.
    """

    schema: str
    data: memoryview
    offsets: I64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def slice(self, start: int, rows: int) -> EncodedRows:
        """Return `rows` of the rows, from row `start` on; fewer at the end. Nothing is copied."""
        return EncodedRows(self.schema, self.data, self.offsets[start : start + rows + 1])


def encode_records(table: pa.Table | pa.RecordBatch, schema: str) -> EncodedRows:
    """Return rows as records for one block or several.

    Parameters:
        table: the columns of the schema.
        schema: an Avro record schema as JSON text.

    Raises:
        SchemaMismatch: the rows do not fit the schema.

    Spec 7.5.

    Example:
        >>> schema = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}'
        >>> rows = encode_records(pa.table({"id": [1, 2]}), schema)
        >>> encode_record_block(rows.slice(1, 1), BlockHeader("20240101000000000", schema))[-25:-12].hex(" ", -4)
        '00000003 00000001 00000001 04'
    """
    data, offsets = encode_rows(table, schema, framed=True)
    return EncodedRows(schema, memoryview(data), offsets)


def encode_record_block(rows: EncodedRows, header: BlockHeader, kind: BlockKind = BlockKind.AVRO_DATA) -> bytes:
    """Return records as a block (spec 7.5); arguments and errors as for :func:`encode_data_block`."""
    if kind not in (BlockKind.AVRO_DATA, BlockKind.CDC_DATA):
        raise InvalidInputError(f"a block of kind {kind.name} does not hold Avro records")
    if rows.schema != _schema_of(header):
        raise InvalidInputError("the records are of another schema than the block's header names")
    lead = struct.pack(">ii", CONTENT_VERSION, len(rows))
    content = rows.data[int(rows.offsets[0]) : int(rows.offsets[-1])]
    return encode_block(kind, header.entries(len(rows)), lead, content)


def encode_data_block(
    table: pa.Table | pa.RecordBatch, header: BlockHeader, kind: BlockKind = BlockKind.AVRO_DATA
) -> bytes:
    """Return rows as a block of Avro records (spec 7.5); with kind ``CDC_DATA`` as a block of changes (spec 9).

    Parameters:
        table: the columns of the header's schema.
        header: with a schema.
        kind: ``AVRO_DATA`` or ``CDC_DATA``.

    Raises:
        SchemaMismatch: the rows do not fit the schema.
        InvalidInputError: the header lacks the schema or a position, or the block would pass 2 GiB.

    Example:
        >>> schema = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}'
        >>> encode_data_block(pa.table({"id": [1, 2]}), BlockHeader("20240101000000000", schema))[-30:-12].hex(" ", -4)
        '00000003 00000002 00000001 02000000 0104'
    """
    return encode_record_block(encode_records(table, _schema_of(header)), header, kind)


def decode_avro_content(
    content: bytes | memoryview, schema: str, columns: Sequence[str] | None = None, *, what: str
) -> pa.Table:
    """Return the records of an Avro data block, or of a block of changes.

    Parameters:
        content: the content of the block.
        schema: the schema in its header.
        columns: the names wanted; None: all.
        what: how the file is named in errors.

    Raises:
        CorruptFile: the content or the schema is damaged.
        UnsupportedFeature: another content version, or a type that tables do not have.
        InvalidInputError: see :func:`lakefmt.formats.avro.columnar.codec.decode_rows`.

    Spec 7.4, 7.5.

    Example:
        >>> schema = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}'
        >>> decode_avro_content(bytes.fromhex("00000003 00000001 00000001 0e"), schema, what="a.log")["id"].to_pylist()
        [7]
    """
    return decode_avro_contents([content], schema, columns, what=[what])[0]


def decode_avro_contents(
    contents: Sequence[bytes | memoryview], schema: str, columns: Sequence[str] | None = None, *, what: Sequence[str]
) -> tuple[pa.Table, list[int]]:
    """Return the records of several blocks with one schema, one after the other, and how many each block has.

    What a block costs, however few its records are, is paid once for all of them.

    Parameters:
        contents: the contents of the blocks.
        schema: the schema in their headers.
        columns: the names wanted; None: all.
        what: how the file of each block is named in errors.

    Raises:
        CorruptFile: as for :func:`decode_avro_content`, which also says of the rest what it raises.

    Spec 7.4, 7.5.

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
        with suppress(CorruptFile, UnsupportedFeature):  # said below, of the block that is damaged
            return decode_rows(b"".join(contents), starts, ends, schema, columns, what=what[0]), counts
    tables = [
        decode_rows(content, *span, schema, columns, what=name)
        for content, span, name in zip(contents, spans, what, strict=True)
    ]
    return pa.concat_tables(tables), counts


def _schema_of(header: BlockHeader) -> str:
    if header.schema is None:
        raise InvalidInputError("a block of rows needs the Avro schema of its records in the header")
    return header.schema


# ---------------------------------------------------------------------------------------------------------- Parquet


def encode_parquet_block(table: pa.Table, header: BlockHeader, codec: str = "zstd", level: int | None = 1) -> bytes:
    """Return rows as a block that holds a Parquet file (spec 7.5).

    Parameters:
        table: the columns of the header's schema, in its order.
        header: with a schema.
        codec: compression of the file.
        level: its level, for zstd, gzip and brotli.

    Raises:
        InvalidInputError: columns and schema differ, the header lacks the schema or a position, or the block would pass
            2 GiB.

    Example:
        >>> schema = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}'
        >>> encode_parquet_block(pa.table({"id": [1]}), BlockHeader("20240101000000000", schema)).count(b"PAR1")
        2
    """
    schema = _schema_of(header)
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
    """Return the rows of a Parquet data block, typed as the file says.

    Parameters:
        content: the content of the block: a Parquet file.
        columns: the names wanted; None: all.
        what: how the file is named in errors.

    Raises:
        CorruptFile: it is no Parquet file, or a damaged one.
        InvalidInputError: a name of `columns` is not in the file.

    Spec 7.5.

    Example:
        >>> from lakefmt.formats.log.blocks import scan_blocks
        >>> schema = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}'
        >>> data = encode_parquet_block(pa.table({"id": [1]}), BlockHeader("20240101000000000", schema))
        >>> block, = scan_blocks(lambda at, n: data[at : at + n], len(data), "a.log")
        >>> decode_parquet_content(data[block.content_start :][: block.content_size], what="a.log").to_pydict()
        {'id': [1]}
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        unknown = [name for name in columns or () if name not in file.schema_arrow.names]
        if unknown:
            raise InvalidInputError(f"{what}: the block has no columns {', '.join(unknown)}")
        # Nothing else of the footer is looked at: pyarrow ends the process when a damaged column chunk is asked for.
        stated = file.metadata.num_rows
        if not 0 <= stated <= _FREE_ROWS + _ROWS_PER_BYTE * len(memoryview(content)):
            raise CorruptFile(f"{what}: damaged Parquet block: {stated:,} rows in {len(memoryview(content)):,} bytes")
        table = file.read(columns=None if columns is None else list(columns), use_threads=False)
        if table.num_rows != stated:
            raise CorruptFile(f"{what}: damaged Parquet block: {table.num_rows:,} rows, the footer says {stated:,}")
        return table.replace_schema_metadata()
    except (pa.ArrowException, OSError, EOFError, OverflowError, MemoryError, UnicodeDecodeError) as error:
        raise CorruptFile(f"{what}: damaged Parquet block: {error}") from None


# --------------------------------------------------------------------------------------------------------- commands


def encode_command_block(instant_time: str, target_instant_time: str) -> bytes:
    """Return the block that takes back the blocks of an instant, in tables of version 6 (spec 7.7).

    Parameters:
        instant_time: the rollback's instant.
        target_instant_time: the instant taken back.

    Example:
        >>> len(encode_command_block("20240101000000000", "20231231235959000"))
        105
    """
    header = {
        HeaderKey.INSTANT_TIME: instant_time,
        HeaderKey.TARGET_INSTANT_TIME: target_instant_time,
        HeaderKey.COMMAND_BLOCK_TYPE: _ROLLBACK,
    }
    return encode_block(BlockKind.COMMAND, header)
