"""Base files in Parquet: the writer with Hudi's footers, the footer as a value, and columns by dictionary (docs/format.md, Parquet).

Traps that this module closes:

* ``store_schema=False`` silently drops key-value metadata that travels in the Arrow schema, so footers are added to
  the writer itself, and :func:`decode_footer` reads them back in the tests of every file kind.
* Decimals stay FIXED_LEN_BYTE_ARRAY, lists are the three-level form; Java understands nothing else.

A rewritten file takes most of its rows over from the file before. A column of few texts is stored there by a dictionary;
to spell its texts out, row by row, only to collect them again for the new file, is a tenth of an upsert.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakefmt._core.arrays import common_length, from_numpy, text_offsets
from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.bloom_filter import BloomFilter, decode_bloom_filter
from lakefmt._core.formats.parquet.duplicate_columns import (
    DuplicatePages,
    LongText,
    Pages,
    duplicate_key_column,
    leaf_paths,
    parquet_schema,
)
from lakefmt._core.formats.parquet.footers import BLOOM_KEY, LEGACY_BLOOM_KEY
from lakefmt._core.schema import check_required, fill_unseen
from lakefmt._core.values import COMMIT_SEQNO, RECORD_KEY
from lakefmt.errors import CorruptFile, InternalError, StorageError

__all__ = [
    "BaseFileFooter",
    "BaseFileWriter",
    "ColumnTraits",
    "KeySummary",
    "appended",
    "check_row_counts",
    "column_traits",
    "decode_footer",
    "decoded_dictionaries",
    "dictionary_column_names",
    "dictionary_schema",
    "key_footers",
    "key_range",
    "key_ranges",
    "leaves_with_nan",
    "outermost",
    "replaced_codes",
    "same_text",
    "with_dictionaries",
    "without_unused",
]

BLOOM_TYPE_KEY = "hoodie_bloom_filter_type_code"
MIN_KEY = "hoodie_min_record_key"
MAX_KEY = "hoodie_max_record_key"
AVRO_SCHEMA_KEY = "parquet.avro.schema"
_VECTORS = "hoodie.vector.columns"

# Unique in every row: a dictionary would be built, found too large and thrown away.
_NO_DICTIONARY = frozenset({RECORD_KEY, COMMIT_SEQNO})
#: The values of this many first rows are counted; a file of fewer rows than the second number gains nothing by it.
_SAMPLE_ROWS = 2048
_FEW_ROWS = 1024
#: Below this number of rows a dictionary is larger than what it saves (100 rows: 11.2 against 9.6 kB), and costs a third of the time.
_HARDLY_ANY_ROWS = 256
_DISTINCT_SHARE = 0.7
#: The first rows decide for most columns: up to the second number of different values, they repeat; from the third on, they do
#: not. A column of 2,700 different values, the most for which a dictionary pays, has some 244 in its first 256 rows.
_GLANCE_ROWS, _FEW_DISTINCT, _MOST_DISTINCT = 256, 128, 254
#: Values of a column that are encoded by one call: the more, the cheaper (a file of 33,000 rows: 8 % of the time), but a
#: page is ended only between two calls, so that it may pass its megabyte by these bytes.
_BATCH_BYTES, _BATCH_ROWS = 2 << 20, (1 << 10, 1 << 16)

#: Arrow makes two row groups of more rows.
_MOST_GROUP_ROWS = 1 << 20

#: Text of a key filter that Arrow is not given: it would hold the text of a large file, 35 MB, some six times.
_LONG_TEXT_BYTES = 1 << 20

#: Of columns with a value of so many bytes no ends are kept.
_HUGE_BYTES = 1 << 20

#: With fewer texts than this, comparing all of them is faster than choosing which to compare.
_MANY_TEXTS = 1000
_HEAD = np.dtype(">u8")

# UTF-8 order differs from Java's UTF-16 order only between U+E000..U+FFFF (lead bytes EE, EF) and the astral planes
# (F0..F4). Moving EE and EF above F4 turns one order into the other; continuation bytes never have these values.
_TO_UTF16_ORDER = bytes.maketrans(b"\xee\xef", b"\xfe\xff")
_FROM_UTF16_ORDER = bytes.maketrans(b"\xfe\xff", b"\xee\xef")


@dataclass(frozen=True, slots=True)
class ColumnTraits:
    """What the rows of small files that are written together have in common, so that it is not asked of each file.

    Attributes:
        repeating: the flat columns whose values repeat.
        with_nan: the columns that have NaN, or a field with NaN, in some of the files.
    """

    repeating: tuple[str, ...]
    with_nan: frozenset[str]


def column_traits(rows: pa.Table, most_rows: int) -> ColumnTraits:
    """Return what is to be known of the rows of several files.

    Args:
        rows: of all files.
        most_rows: of one file.

    Example:
        >>> column_traits(pa.table({"a": [1.0, float("nan")], "b": [1.0, 2.0]}), 2).with_nan
        frozenset({'a'})
    """
    repeating = _repeating(rows, _plain_columns(rows.schema)) if most_rows >= _FEW_ROWS else []
    with_nan = (
        name
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if _may_have_nan(column.type) and any(_leaves_with_nan(name, column))
    )
    return ColumnTraits(tuple(repeating), frozenset(with_nan))


class BaseFileWriter:
    """Writes one base file, batch by batch, into an open binary file.

    Columns of text may come as dictionaries, which are stored as they are: what such columns are in the first batch they
    are in all of them.
    """

    def __init__(self, sink: BinaryIO, schema: pa.Schema, codec: str = "zstd", level: int | None = 1) -> None:
        self._sink = sink
        self._schema = schema
        self._codec = codec
        self._level = level if codec in ("zstd", "gzip", "brotli") else None
        self._writer: pq.ParquetWriter | None = None
        self._copies: DuplicatePages | None = None
        self._num_groups = 0
        self.num_rows = 0

    def _open(self, first: pa.Table, traits: ColumnTraits | None = None) -> tuple[pq.ParquetWriter, DuplicatePages]:
        # Opened when the first rows are there: they tell which columns are worth a dictionary.
        if self._writer is None or self._copies is None:
            options = {
                "compression": self._codec,
                "compression_level": self._level,
                "store_schema": False,
                "use_compliant_nested_type": True,
                "write_batch_size": _batch_rows(first, whole=traits is not None),
                "write_page_checksum": True,  # a flipped bit in a page is an error, not another value
                "version": "2.6",
                "write_statistics": _leaves_with_statistics(self._schema, first),
            }
            self._copies = DuplicatePages(self._sink, {**options, "use_dictionary": False})
            coded = _worth_a_dictionary(first, traits) or False
            schema = with_dictionaries(self._schema, first.schema)
            self._writer = pq.ParquetWriter(self._copies.stream, schema, use_dictionary=coded, **options)
        return self._writer, self._copies

    def write(
        self,
        table: pa.Table,
        row_group_rows: int = _MOST_GROUP_ROWS,
        kept: Mapping[str, Pages] | None = None,
        traits: ColumnTraits | None = None,
    ) -> None:
        """Append rows; their columns are the file's, in its order.

        Args:
            table: the rows.
            row_group_rows: the most rows of a row group.
            kept: the pages of some of the columns, where they are encoded already; then the rows are one row group.
            traits: those of the rows, where they are known and these are all rows of the file.

        Raises:
            InternalError: pages are given for more rows than a row group takes.
            SchemaMismatch: a null where the file's schema allows none.
            StorageError: the file could not take them (disk full …).
        """
        check_required(table)
        rows, step = fill_unseen(table), min(row_group_rows, _MOST_GROUP_ROWS)
        if kept and rows.num_rows > step:
            raise InternalError(f"pages of {rows.num_rows:,} rows do not fit row groups of {step:,}")
        # Small files have too few bytes of keys: that is not asked of each.
        copy = None if traits or (kept and RECORD_KEY in kept) else duplicate_key_column(rows)
        try:
            writer, copies = self._open(table, traits)
            among = None if traits is None else traits.with_nan
            for start in range(0, max(1, rows.num_rows), step):
                group = rows.slice(start, step)
                pages = {**({} if copy is None else copies.twice(group, copy)), **(kept or {})}
                copies.leave_out_ends(leaves_with_nan(group, pages, among), self._num_groups)
                if pages:
                    copies.write(writer, group, pages, self._num_groups)
                else:
                    writer.write_table(group, row_group_size=step)
                self._num_groups += 1
            copies.stream.flush()  # the sink tells how large the file is
        except OSError as error:
            raise StorageError(f"writing a base file failed: {error}") from error
        self.num_rows += table.num_rows

    def close(self, footers: Mapping[str, str | BloomFilter]) -> None:
        """Add the footers and finish the file.

        Raises:
            StorageError: the file could not take them.
        """
        texts, long_text = dict[str, str](), None
        for name, value in footers.items():
            if isinstance(value, BloomFilter) and value.text_bytes >= _LONG_TEXT_BYTES:
                texts[name], long_text = "", LongText(name, value.text_bytes, value.text_parts())
            else:
                texts[name] = value if isinstance(value, str) else value.encode()
        try:
            # An empty table of many columns takes longer to make than to add the footers.
            writer, copies = self._writer, self._copies
            if writer is None or copies is None:
                writer, copies = self._open(self._schema.empty_table())
            writer.add_key_value_metadata(texts)
            copies.close(writer, self._num_groups, long_text)
            self._writer = None  # it would keep the footers as long as this is kept
        except OSError as error:
            raise StorageError(f"finishing a base file failed: {error}") from error

    def discard(self) -> None:
        """Let go of a file that will not be finished; after :meth:`close` there is nothing to do."""
        if self._copies is not None and self._writer is not None:
            self._copies.discard(self._writer)


def leaves_with_nan(
    rows: pa.Table, passed_over: Collection[str] = (), among: Collection[str] | None = None
) -> list[str]:
    """Return the columns, and fields of structs with dots, that have NaN.

    Arrow leaves NaN out of a column's ends. For Spark NaN is larger than every number: it would pass over such a row group.

    Args:
        rows: of a row group.
        passed_over: columns that are not looked at.
        among: the only columns that may have NaN; None: all.

    Example:
        >>> leaves_with_nan(pa.table({"a": [1.0, float("nan")], "s": [{"b": 1.0}, None], "n": [1, 2]}))
        ['a']
    """
    if among is not None and not among:
        return []
    return [
        leaf
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if name not in passed_over and (among is None or name in among) and _may_have_nan(column.type)
        for leaf in _leaves_with_nan(name, column)
    ]


@lru_cache(maxsize=1024)
def _may_have_nan(data_type: pa.DataType) -> bool:
    """Return whether values of a type, or fields of a struct, are floating point numbers."""
    if pt.is_struct(data_type):
        return any(_may_have_nan(data_type.field(number).type) for number in range(data_type.num_fields))
    return bool(pt.is_floating(data_type))


def _leaves_with_nan(name: str, column: pa.ChunkedArray) -> Iterator[str]:
    if pt.is_struct(column.type):
        for number, child in enumerate(column.flatten()):
            yield from _leaves_with_nan(f"{name}.{column.type.field(number).name}", child)
    elif pt.is_floating(column.type) and any(chunk.true_count for chunk in pc.is_nan(column).chunks):
        yield name


def _leaves_with_statistics(schema: pa.Schema, rows: pa.Table) -> Sequence[str] | bool:
    """Return the columns whose smallest and largest value a footer tells, by the first rows; True: all.

    Arrow holds two copies of values of any length while it writes, and tells none that is long.
    """
    huge = [name for name, column in zip(rows.column_names, rows.columns, strict=True) if _has_huge(column)]
    if not huge:
        return True
    with pq.ParquetWriter(io.BytesIO(), schema, store_schema=False, use_compliant_nested_type=True) as writer:
        pass
    return [path for path in leaf_paths(writer.writer.metadata) if path not in huge]


def _has_huge(column: pa.ChunkedArray) -> bool:
    data_type = column.type
    is_flat = pt.is_string(data_type) or pt.is_binary(data_type)
    if not is_flat or column.get_total_buffer_size() < _HUGE_BYTES or column.nbytes < _HUGE_BYTES:
        return False
    return bool((pc.max(pc.binary_length(column)).as_py() or 0) >= _HUGE_BYTES)


def _batch_rows(rows: pa.Table, *, whole: bool) -> int:
    """Return how many rows of a column are encoded together, by the widest column of the first rows, which may be all."""
    fewest, most = _BATCH_ROWS
    if rows.num_rows <= fewest:
        if whole:
            return fewest  # one batch in any case
        # All columns together are wider than the widest, and counted by one call, where most files are of so few rows.
        return int(min(most, max(fewest, _BATCH_BYTES * rows.num_rows // max(1, rows.nbytes))))
    first = rows.slice(0, _SAMPLE_ROWS)  # of many chunks, to count all bytes takes half a millisecond
    widest = max((column.nbytes for column in first.itercolumns()), default=0) / max(1, first.num_rows)
    return int(min(most, max(fewest, _BATCH_BYTES // max(1, widest))))


def _worth_a_dictionary(rows: pa.Table, traits: ColumnTraits | None = None) -> Sequence[str]:
    """Return the flat columns whose values repeat in the first rows.

    A dictionary of values that do not repeat is built, found too large and thrown away: that was half the time of
    writing a file of 33,000 rows with 19 columns (46 ms, 25 ms without), and the file was a sixth larger.
    """
    if rows.num_rows < _HARDLY_ANY_ROWS:
        return []
    if rows.num_rows < _FEW_ROWS:
        return _plain_columns(rows.schema)
    return _repeating(rows, _plain_columns(rows.schema)) if traits is None else traits.repeating


def _plain_columns(schema: pa.Schema) -> list[str]:
    return [f.name for f in schema if f.name not in _NO_DICTIONARY and not pa.types.is_nested(f.type)]


def _repeating(rows: pa.Table, names: Sequence[str]) -> list[str]:
    """Return those of some columns whose values repeat in the first rows."""
    first, sample = rows.slice(0, _GLANCE_ROWS), rows.slice(0, _SAMPLE_ROWS)
    most = _DISTINCT_SHARE * sample.num_rows

    def is_worth_it(name: str) -> bool:
        seen = len(first.column(name).unique())
        if _FEW_DISTINCT < seen < _MOST_DISTINCT:
            return bool(len(sample.column(name).unique()) <= most)
        return bool(seen <= _FEW_DISTINCT)

    return list(filter(is_worth_it, names))


@dataclass(frozen=True, slots=True)
class KeySummary:
    """What a file's footer says about its keys: the range and the filter."""

    minimum: str | None
    maximum: str | None
    bloom: BloomFilter | None


def _vector_columns(avro_schema: str) -> str:
    """Return what a footer of Hudi 1.2 says of the VECTOR columns of a schema.

    Example:
        >>> kind = {"type": "fixed", "name": "f", "size": 16, "logicalType": "vector", "dimension": 2, "elementType": "DOUBLE"}
        >>> _vector_columns(json.dumps({"type": "record", "name": "r", "fields": [{"name": "e", "type": ["null", kind]}]}))
        'e:VECTOR(2, DOUBLE)'
    """
    columns = []
    for member in json.loads(avro_schema)["fields"]:
        for avro_type in member["type"] if isinstance(member["type"], list) else [member["type"]]:
            if isinstance(avro_type, dict) and avro_type.get("logicalType") == "vector":
                element = str(avro_type.get("elementType", "FLOAT"))
                columns.append(
                    f"{member['name']}:VECTOR({avro_type['dimension']}{'' if element == 'FLOAT' else f', {element}'})"
                )
    return ",".join(columns)


def key_footers(summary: KeySummary, avro_schema: str) -> dict[str, str | BloomFilter]:
    """Return the footers of a base file (docs/format.md, Parquet footer).

    Example:
        >>> sorted(key_footers(KeySummary("a", "b", None), "{}"))
        ['hoodie_max_record_key', 'hoodie_min_record_key', 'parquet.avro.schema']
    """
    footers: dict[str, str | BloomFilter] = {AVRO_SCHEMA_KEY: avro_schema}
    if '"vector"' in avro_schema:
        footers[_VECTORS] = _vector_columns(avro_schema)
    if summary.minimum is not None and summary.maximum is not None:
        footers[MIN_KEY] = summary.minimum
        footers[MAX_KEY] = summary.maximum
    if summary.bloom is not None:
        footers[BLOOM_KEY] = summary.bloom
        footers[BLOOM_TYPE_KEY] = summary.bloom.type_code
    return footers


def key_range(keys: pa.ChunkedArray) -> tuple[str | None, str | None]:
    """Return the smallest and the largest key in Java's string order (UTF-16), None for no keys.

    Example:
        >>> key_range(pa.chunked_array([["b", "a", "c"]]))
        ('a', 'c')
    """
    ranges = [_chunk_range(chunk) for chunk in keys.chunks if len(chunk)]
    if not ranges:
        return None, None
    low = min(pair[0] for pair in ranges)
    high = max(pair[1] for pair in ranges)
    return _in_text(low), _in_text(high)


def key_ranges(keys: pa.ChunkedArray, counts: Sequence[int]) -> list[tuple[str, str]]:
    """Return the smallest and the largest key of each of some small files, as :func:`key_range` does of one.

    Args:
        keys: those of all files, one file's behind the other's.
        counts: how many are each one's, none of them 0.

    Example:
        >>> key_ranges(pa.chunked_array([["b", "a", "c", "d"]]), [3, 1])
        [('a', 'c'), ('d', 'd')]
    """
    texts = in_java_order(pa.concat_arrays(keys.chunks))
    order = pc.sort_indices(texts).to_numpy()
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), dtype=order.dtype)
    starts = np.cumsum([0, *counts[:-1]])
    lows, highs = (texts.take(from_numpy(order[end.reduceat(rank, starts)])) for end in (np.minimum, np.maximum))
    return [(_in_text(low), _in_text(high)) for low, high in zip(lows.to_pylist(), highs.to_pylist(), strict=True)]


def _in_text(key: bytes) -> str:
    return key.translate(_FROM_UTF16_ORDER).decode()


def _chunk_range(keys: pa.StringArray) -> tuple[bytes, bytes]:
    # Two scalars per file, not rows.
    ends = pc.min_max(_with_ends(in_java_order(keys)))
    return ends["min"].as_py(), ends["max"].as_py()


def _with_ends(texts: pa.BinaryArray) -> pa.BinaryArray:
    """Return some of the texts, the smallest and the largest among them.

    Texts of one length are first compared by their first eight bytes, as numbers; only those that begin like the smallest or
    the largest are compared whole.
    """
    if len(texts) < _MANY_TEXTS or texts.null_count:
        return texts
    offsets = text_offsets(texts)
    length = common_length(offsets)
    if length is None or length < _HEAD.itemsize:
        return texts
    heads = np.ndarray((len(texts),), _HEAD, texts.buffers()[2], int(offsets[0]), (length,)).astype(np.uint64)
    return texts.take(from_numpy(np.flatnonzero((heads == heads.min()) | (heads == heads.max()))))


def in_java_order(keys: pa.StringArray) -> pa.BinaryArray:
    """Return keys as bytes that sort the way Java's strings do (UTF-16 code units)."""
    binary = keys.cast(pa.binary())
    if _text_bytes(binary).max(initial=0) < 0xEE:
        return binary
    # Concatenating one array copies just its own rows, so that a slice does not drag its whole buffer along.
    binary = pa.concat_arrays([binary])
    valid, offsets, data = binary.buffers()
    moved = pa.py_buffer(data.to_pybytes().translate(_TO_UTF16_ORDER))
    return pa.Array.from_buffers(pa.binary(), len(binary), [valid, offsets, moved], binary.null_count, binary.offset)


def _text_bytes(texts: pa.BinaryArray) -> npt.NDArray[np.uint8]:
    """Return the bytes of an array's own texts, as they lie in its buffer."""
    data = texts.buffers()[2]
    offsets = text_offsets(texts)
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]


def outermost(keys: Iterable[str]) -> tuple[str, str]:
    """Return the smallest and the largest of some keys in Java's string order.

    Example:
        >>> outermost(["b", "a", "c"])
        ('a', 'c')
    """
    ordered = sorted(keys, key=java_order_key)
    return ordered[0], ordered[-1]


def java_order_key(key: str) -> bytes:
    """Return one key as bytes that sort the way Java's strings do."""
    return key.encode().translate(_TO_UTF16_ORDER)


@dataclass(frozen=True, slots=True)
class BaseFileFooter:
    """A base file's footer: rows, schema and Hudi's entries.

    Attributes:
        min_key: the smallest record key, when the file says so.
        max_key: the largest record key, when the file says so.
    """

    num_rows: int
    schema: pa.Schema
    entries: Mapping[str, str]
    min_key: str | None = field(init=False)
    max_key: str | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "min_key", self.entries.get(MIN_KEY))
        object.__setattr__(self, "max_key", self.entries.get(MAX_KEY))

    def bloom_filter(self) -> BloomFilter | None:
        """Decode the file's filter; None when it has none.

        Raises:
            CorruptFile: the entry is damaged.
        """
        encoded = self.entries.get(BLOOM_KEY) or self.entries.get(LEGACY_BLOOM_KEY)
        return None if encoded is None else decode_bloom_filter(encoded, self.entries.get(BLOOM_TYPE_KEY))


def check_row_counts(metadata: pq.FileMetaData) -> None:
    """Refuse a footer whose row groups do not hold the rows that the file announces.

    Arrow believes a row group: one that claims 2^31 rows makes it reserve 30 GB for a file of two kilobytes, one that
    claims too few loses the others without a word. Takes half a microsecond per row group.

    Raises:
        CorruptFile: the numbers disagree.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    # Arrow ends the process when a column is asked of a row group that does not have it.
    if any(group.num_columns != metadata.num_columns for group in groups):
        raise CorruptFile(f"a Parquet footer announces {metadata.num_columns} columns, its row groups have others")
    counts = [group.num_rows for group in groups]
    if sum(counts) != metadata.num_rows or min(counts, default=0) < 0:
        raise CorruptFile(
            f"a Parquet footer announces {metadata.num_rows:,} rows and {sum(counts):,} in {len(counts)} row groups"
        )


def decode_footer(
    metadata: pq.FileMetaData, schema: pa.Schema | None = None, left_out: Mapping[str, bytes] | None = None
) -> BaseFileFooter:
    """Return a Parquet footer as Hudi sees it.

    Args:
        metadata: the footer.
        schema: its schema, where that is known: to ask `metadata` leaves a cycle of objects, which keeps the whole footer until
            the collector comes, and that may be after a hundred thousand others.
        left_out: the entries that it was read without.

    Raises:
        CorruptFile: an entry is not text, or the numbers of rows disagree.
    """
    check_row_counts(metadata)
    raw = metadata.metadata or {}
    try:
        entries = {key.decode(): value.decode() for key, value in raw.items() if key != b"ARROW:schema"}
        entries |= {name: value.decode() for name, value in (left_out or {}).items()}
    except UnicodeDecodeError:
        raise CorruptFile("a footer entry of a base file is not UTF-8") from None
    if schema is None:
        schema = parquet_schema(metadata).to_arrow_schema()
    # The metadata of the Arrow schema repeats the entries.
    return BaseFileFooter(metadata.num_rows, schema.remove_metadata(), entries)


#: With fewer rows than this, the calls cost more than the texts.
_MANY_ROWS = 4096
#: Bytes of each value, in the file but before compression, of a column whose dictionary did not overflow: a dictionary with
#: a number for each row takes less, texts take more.
_FEW_BYTES = 4


def dictionary_column_names(metadata: pq.FileMetaData, names: Collection[str]) -> list[str]:
    """Return which of the columns `names` a file stores by dictionaries that are small beside its rows."""
    if metadata.num_rows < _MANY_ROWS:
        return []
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [
        path
        for leaf, path in enumerate(leaf_paths(metadata))
        if path in names and all(_is_coded(group.column(leaf), group.num_rows) for group in groups)
    ]


def _is_coded(chunk: pq.ColumnChunkMetaData, num_rows: int) -> bool:
    return bool(chunk.has_dictionary_page) and chunk.total_uncompressed_size <= _FEW_BYTES * num_rows


def with_dictionaries(schema: pa.Schema, columns: Iterable[pa.Array | pa.ChunkedArray | pa.Field | None]) -> pa.Schema:
    """Return `schema` with dictionaries where `columns`, in its order, have them of the same texts."""
    given = list(columns)
    if len(given) != len(schema):
        raise ValueError(f"{len(given)} columns for a schema of {len(schema)}")
    for number, column in enumerate(given):
        # Most files have no such column: fields are looked at where one is.
        if column is not None and isinstance(column.type, pa.DictionaryType):
            field = schema.field(number)
            if column.type.value_type == field.type:
                schema = schema.set(number, field.with_type(column.type))
    return schema


def dictionary_schema(schema: pa.Schema, stored: pa.Schema) -> pa.Schema:
    """Return `schema` with dictionaries where `stored` has them of the same texts."""
    names = set(stored.names)
    return with_dictionaries(schema, [stored.field(name) if name in names else None for name in schema.names])


def decoded_dictionaries(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with texts where it has dictionaries of them."""
    for number, column_field in enumerate(schema):
        if pt.is_dictionary(column_field.type):
            schema = schema.set(number, column_field.with_type(column_field.type.value_type))
    return schema


def same_text(text: str, count: int) -> pa.DictionaryArray:
    """Return a column of one text.

    Example:
        >>> same_text("a", 2).to_pylist()
        ['a', 'a']
    """
    return pa.DictionaryArray.from_arrays(from_numpy(np.zeros(count, np.int32)), pa.array([text], pa.string()))


def replaced_codes(
    column: pa.ChunkedArray, values: pa.Array, replace: Callable[[pa.ChunkedArray, pa.ChunkedArray], pa.Array]
) -> pa.DictionaryArray:
    """Return a column with the texts `values` in some rows.

    Args:
        column: texts by a dictionary.
        values: texts, spelt out.
        replace: puts the second column's numbers, one for each of `values`, in some rows of the first one.

    Example:
        >>> kind = pa.dictionary(pa.int32(), pa.string())
        >>> first_goes = lambda old, new: pa.concat_arrays([*new.chunks, *old.slice(len(new)).chunks])
        >>> replaced_codes(pa.chunked_array([["a", "b"]], kind), pa.array(["c"]), first_goes).to_pylist()
        ['c', 'b']
    """
    old, new = _joined(column), values.dictionary_encode()
    old_codes = pc.index_in(new.dictionary, value_set=old.dictionary)
    added = new.dictionary.filter(pc.is_null(old_codes))
    dictionary = pa.concat_arrays([old.dictionary, added]) if len(added) else old.dictionary
    numbers = pc.index_in(new.dictionary, value_set=dictionary).take(new.indices)
    indices = replace(pa.chunked_array([old.indices]), pa.chunked_array([numbers.cast(old.indices.type)]))
    return pa.DictionaryArray.from_arrays(indices, dictionary)


def appended(rows: pa.Table, more: pa.Table) -> pa.Table:
    """Return rows with `more` behind them, whose texts are spelt out."""
    for number, column_field in enumerate(rows.schema):
        if pt.is_dictionary(column_field.type):
            more = more.set_column(number, column_field, more.column(number).cast(column_field.type))
    return pa.concat_tables([rows, more])


def without_unused(rows: pa.Table) -> pa.Table:
    """Return rows whose dictionaries hold no text that no row has: what was replaced or deleted must not be stored on."""
    for number, column_field in enumerate(rows.schema):
        if pt.is_dictionary(column_field.type):
            rows = rows.set_column(number, column_field, _tidy(_joined(rows.column(number))))
    return rows


def _tidy(column: pa.DictionaryArray) -> pa.DictionaryArray:
    indices = column.indices.drop_null() if column.indices.null_count else column.indices
    used = np.bincount(indices.to_numpy(zero_copy_only=True), minlength=len(column.dictionary)) > 0
    if used.all():
        return column
    new_indices = from_numpy((np.cumsum(used) - 1).astype(np.int32))
    dictionary = column.dictionary.filter(from_numpy(used))
    return pa.DictionaryArray.from_arrays(new_indices.take(column.indices), dictionary)


def _joined(column: pa.ChunkedArray) -> pa.DictionaryArray:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
