"""Rows of a table as Avro records, by column: what log files hold (docs/format.md, Data blocks). Pure.

:func:`encode_rows` turns Arrow columns into the binary records of an Avro data block, :func:`decode_rows` turns them
back; no value becomes a Python object on the way. Both work on some ten thousand rows at a time, so that the columns of
a block stay in the processor's caches (:mod:`~lakefmt._core.formats.avro.columnar.encode`, :mod:`~lakefmt._core.formats.avro.columnar.decode`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.formats.avro.columnar.decode import ByteCursor, DamagedInput, read_columns
from lakefmt._core.formats.avro.columnar.encode import (
    Segment,
    length_segment,
    measure_record,
    place_records,
    total_sizes,
)
from lakefmt._core.formats.avro.columnar.plan import Node, nullable_type, plan_rows
from lakefmt._core.formats.avro.columnar.varint import I64, Out
from lakefmt._core.schema.types import struct_fields
from lakefmt.errors import CorruptFile, InvalidInputError, SchemaMismatch

__all__ = ["decode_rows", "encode_rows"]

#: Rows that are encoded together: few enough for the caches, and enough that the calls for each column hardly matter.
ENCODED_ROWS = 1 << 14
#: Rows that are decoded together: of fewer the calls count, of more the records fall out of the caches.
BLOCK_ROWS = 1 << 14
#: Bytes of records that are decoded together; a block has one record at least.
BLOCK_BYTES = 1 << 24
#: Chunks of a table are joined when they are shorter than this on average.
_LEAST_CHUNK = ENCODED_ROWS // 2
#: Java counts the bytes of a record in 32 bits.
_MAX_RECORD = (1 << 31) - 1


def encode_rows(table: pa.Table | pa.RecordBatch, schema: str, *, framed: bool = False) -> tuple[pa.Buffer, I64]:
    r"""Return the rows of `table` as Avro records, and where they begin.

    Parameters:
        table: the columns of the schema, by name, in any order; types that can be cast without loss are cast.
        schema: an Avro record schema as JSON text.
        framed: put the length of every record before it, as four bytes: then the buffer is what stands in an Avro data
            block behind its number of records.

    Returns:
        The bytes, and an array with one offset more than there are rows: record ``i`` with its length, if it has one, is
        the bytes from ``offsets[i]`` to ``offsets[i + 1]``.

    Raises:
        SchemaMismatch: a column is missing or too many, of another type, has nulls where the schema has none, or a value
            that is none of an enum's symbols.
        CorruptFile: `schema` is no schema of a record.
        UnsupportedFeature: a type that tables do not have.

    Example:
        >>> schema = '{"type":"record","name":"r","fields":[{"name":"id","type":["null","long"]}]}'
        >>> data, offsets = encode_rows(pa.table({"id": [1, None, 300]}), schema)
        >>> data.to_pybytes().hex(" "), offsets.tolist()
        ('02 02 00 02 d8 04', [0, 2, 3, 6])
    """
    root = plan_rows(schema)
    rows = _conformed(table, root)
    out, used, encoded_rows = Out(0), 0, 0
    sizes = [np.zeros(1, np.int64)]
    for batch in _batches(rows, ENCODED_ROWS):
        segments = measure_record(root, batch.columns)
        sizes.append(_record_sizes(segments, batch.num_rows))
        ends = used + np.cumsum(sizes[-1] + 4 * framed)
        encoded_rows += batch.num_rows
        out.reserve(int(ends[-1]), used, rows.num_rows / encoded_rows)
        begins = ends - sizes[-1]
        if framed:
            segments, begins = [length_segment(sizes[-1]), *segments], begins - 4
        place_records(segments, out, begins)
        used = int(ends[-1])
    offsets = np.cumsum(np.concatenate(sizes))
    return pa.py_buffer(out.data[:used]), offsets + 4 * np.arange(len(offsets)) if framed else offsets


def _record_sizes(segments: list[Segment], rows: int) -> I64:
    sizes = total_sizes(segments, rows)
    if int(sizes.max(initial=0)) > _MAX_RECORD:
        raise SchemaMismatch(
            f"a row takes {int(sizes.max()):,} bytes as a record; at most {_MAX_RECORD:,} can be stored"
        )
    return sizes


def _conformed(table: pa.Table | pa.RecordBatch, root: Node) -> pa.Table | pa.RecordBatch:
    """Return the columns of the schema, in its order and of its types."""
    names = [part.name for part in root.parts]
    if table.schema.names == names and all(
        _alike(column.type, part.arrow) for column, part in zip(table.schema, root.parts, strict=True)
    ):
        return table
    column_names = table.schema.names
    odd = sorted(set(names) ^ set(column_names)) or sorted(
        name for name, times in Counter(column_names).items() if times > 1
    )
    if odd:
        raise SchemaMismatch(f"columns of the data and of their Avro schema differ: {', '.join(odd)}")
    columns = [_cast(table.column(part.name), part) for part in root.parts]
    return type(table).from_arrays(columns, names=names)


def _cast(column: pa.Array | pa.ChunkedArray, part: Node) -> pa.Array | pa.ChunkedArray:
    if _alike(column.type, part.arrow):
        return column
    try:
        return column.cast(nullable_type(part.arrow))
    except (pa.ArrowException, ValueError) as error:
        raise SchemaMismatch(
            f"column {part.path!r} has type {column.type}, its Avro schema says {part.arrow}: {error}"
        ) from None


def _alike(first: pa.DataType, other: pa.DataType) -> bool:
    """Return whether two types have the same form in memory, whatever their items' names and nullability."""
    if pt.is_struct(first) and pt.is_struct(other):
        pairs = zip(struct_fields(first), struct_fields(other), strict=False)
        return first.num_fields == other.num_fields and all(
            a.name == b.name and _alike(a.type, b.type) for a, b in pairs
        )
    if pt.is_map(first) and pt.is_map(other):
        return _alike(first.key_type, other.key_type) and _alike(first.item_type, other.item_type)
    if pt.is_list(first) and pt.is_list(other):
        return _alike(first.value_type, other.value_type)
    return bool(first == other)


def _batches(table: pa.Table | pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    if isinstance(table, pa.RecordBatch):
        yield from (table.slice(start, rows) for start in range(0, table.num_rows, rows))
        return
    chunks = max((column.num_chunks for column in table.columns), default=0)
    if chunks > 1 and table.num_rows < chunks * _LEAST_CHUNK:
        table = table.combine_chunks()
    yield from table.to_batches(max_chunksize=rows)


# --------------------------------------------------------------------------------------------------------- decoding


def decode_rows(
    data: pa.Buffer | bytes | memoryview,
    starts: npt.NDArray[np.integer],
    ends: npt.NDArray[np.integer],
    schema: str,
    columns: Sequence[str] | None = None,
    *,
    what: str = "Avro records",
) -> pa.Table:
    r"""Return Avro records as a table; each block of some ten thousand rows is a chunk of it.

    Parameters:
        data: the bytes that hold the records, and others between them perhaps.
        starts: offset of each record, ascending.
        ends: offset behind each record.
        schema: the Avro record schema they were written with, as JSON text.
        columns: the names wanted, in the order wanted; None: all. What stands behind the last of them in a record is not
            looked at.
        what: how the file is named in errors.

    Raises:
        CorruptFile: a record does not fit the schema, or the schema is none.
        UnsupportedFeature: a type that tables do not have, or nulls that would take far more memory than the file.
        InvalidInputError: a name of `columns` is not in the schema, or is there twice.

    Example:
        >>> schema = '{"type":"record","name":"r","fields":[{"name":"id","type":["null","long"]}]}'
        >>> starts = np.array([0, 2, 3])
        >>> decode_rows(bytes.fromhex("020200 02d804"), starts, np.array([2, 3, 6]), schema)["id"].to_pylist()
        [1, None, 300]
    """
    root = plan_rows(schema, what)
    column_numbers = _column_numbers(root, columns)
    begins, stops = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    raw = np.frombuffer(data, np.uint8) if len(data) else np.empty(0, np.uint8)
    _check_spans(begins, stops, len(raw), what)
    fields = {field.name: field for field in struct_fields(root.arrow)}
    shape = pa.schema([fields[root.parts[number].name].remove_metadata() for number in column_numbers])
    batches = []
    for low, high in _ranges(begins, stops):
        try:
            source = ByteCursor(raw, int(begins[low]), int(stops[high - 1]))
            arrays = read_columns(source, root, begins[low:high], stops[low:high], column_numbers)
            batches.append(pa.record_batch(arrays, schema=shape))
        except DamagedInput as error:
            raise CorruptFile(f"{what}: damaged record among rows {low:,} to {high - 1:,}: {error}") from None
    return pa.Table.from_batches(batches, shape)


def _column_numbers(root: Node, columns: Sequence[str] | None) -> list[int]:
    names = [part.name for part in root.parts]
    if columns is None:
        return list(range(len(names)))
    numbers_by_name = {name: number for number, name in reversed([*enumerate(names)])}
    unknown = [name for name in columns if name not in numbers_by_name]
    if not columns or unknown or len(set(columns)) < len(columns):
        raise InvalidInputError(
            f"columns {', '.join(unknown or columns)!r} cannot be read: at least one, each of the schema and once"
        )
    return [numbers_by_name[name] for name in columns]


def _check_spans(begins: I64, stops: I64, size: int, what: str) -> None:
    if begins.shape != stops.shape or begins.ndim != 1:
        raise InvalidInputError(f"{len(begins)} records begin, {len(stops)} end")
    fits = len(begins) == 0 or (
        begins[0] >= 0 and stops[-1] <= size and (begins <= stops).all() and (stops[:-1] <= begins[1:]).all()
    )
    if not fits:
        raise CorruptFile(f"{what}: the records overlap or leave the {size:,} bytes there are")


def _ranges(begins: I64, stops: I64) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows to be decoded together, bounded in rows and bytes."""
    low = 0
    while low < len(begins):
        most = int(np.searchsorted(stops, begins[low] + BLOCK_BYTES, side="right"))
        high = max(low + 1, min(low + BLOCK_ROWS, most))
        yield low, high
        low = high
