"""A table as a lazy frame of Polars (effects): columns, predicates and limits are pushed down by its IO sources.

Polars trusts a source with the predicate that it hands over, so every batch is filtered by Polars with all of it. What is
known of the predicate prunes before: terms that compare a column with a value, whose meaning is the same in SQL. Polars takes
NaN for the largest number and equal to itself, so of floating point columns only ``<``, ``<=`` and ``=`` take part.

Polars reads base files itself where it would return the same rows: :func:`stored_files` checks their footers and pages, because Polars
neither compares the checksums of pages nor knows altered columns. Other files are read by :mod:`~lakefmt._core.read.scan`.

To count rows Polars asks a source for its first column. That is one of no values here, which is dropped from the frame that the caller
gets, so that footers tell the count.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from itertools import chain
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.types as pt
from polars.exceptions import PanicException, PolarsError

from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.filegroups.reader import parquet_file, reading
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.formats.parquet.base_file import check_row_counts
from lakefmt._core.formats.parquet.duplicate_columns import are_within, chunk_span, leaf_paths
from lakefmt._core.formats.parquet.page_search import are_whole
from lakefmt._core.read.dataset import SnapshotRows
from lakefmt._core.read.filter_terms import (
    Condition,
    all_of,
    any_of,
    compare,
    exactly,
    find_column,
    is_in,
    matches_like,
)
from lakefmt._core.read.scan import Query, reads_by_name
from lakefmt._core.read.snapshot import pinned_table, scan_files
from lakefmt.errors import InvalidFilter, UnsupportedFeature

__all__ = [
    "StoredFile",
    "implied_condition_of_polars",
    "scan_polars",
    "stored_files",
]

#: Types of which all readers make the same values.
_PLAIN_TYPES: Final = (
    pt.is_boolean,
    pt.is_integer,
    pt.is_float32,
    pt.is_float64,
    pt.is_string,
    pt.is_binary,
    pt.is_date32,
    pt.is_timestamp,
    pt.is_decimal128,
)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A local file from which any reader of Parquet gets the rows of a query.

    Attributes:
        path: of the file.
        decoded_bytes: of the columns of the query, about.
    """

    path: str
    decoded_bytes: int


def stored_files(
    table_at: TableAt, files: Sequence[BaseFile], query: Query
) -> Iterator[tuple[BaseFile, StoredFile | None]]:
    """Yield base files, each with what another reader needs of it; None: it has to be read here.

    Args:
        table_at: the table, at one moment.
        files: of it.
        query: the columns that are read, and the filter, which the other reader applies.

    Raises:
        SnapshotExpired: a file no longer exists.
        CorruptFile: a footer contradicts itself.
        StorageError: the store failed.
    """
    names = {*query.columns, *query.filter_columns}
    fields = [field for field in query.schema if field.name in names]
    filesystem, prefix = table_at.client.store.arrow_filesystem()
    are_plain = all(any(is_type(field.type) for is_type in _PLAIN_TYPES) for field in fields)
    if (
        not isinstance(filesystem, pafs.LocalFileSystem)
        or not are_plain
        or not fields
        or table_at.config.drop_partition_columns
    ):
        yield from ((file, None) for file in files)
        return
    has_names = reads_by_name(table_at, query)
    for file in files:
        yield file, _stored_file(filesystem, prefix + file.path, fields, file) if has_names(file) else None


def _stored_file(
    filesystem: pafs.FileSystem, path: str, fields: Sequence[pa.Field], file: BaseFile
) -> StoredFile | None:
    """Return a file if it has each column once, in its type, and all pages of these are whole."""
    decoded = 0
    with reading(file.path), filesystem.open_input_file(path) as source, parquet_file(source) as parquet:
        metadata, stored = parquet.metadata, parquet.schema_arrow
        check_row_counts(metadata)
        leaves = leaf_paths(metadata)
        numbers = [leaves.index(field.name) if leaves.count(field.name) == 1 else -1 for field in fields]
        if any(
            number < 0 or not stored.field(field.name).type.equals(field.type)
            for field, number in zip(fields, numbers, strict=True)
        ):
            return None
        for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
            for chunk in map(group.column, numbers):
                span = chunk_span(chunk)
                if not are_within([span], file.size):
                    return None
                if not are_whole(memoryview(source.read_at(span.size, span.offset))):
                    return None
                decoded += chunk.total_uncompressed_size
    return StoredFile(path, decoded)


_OPERATORS: Final = {"Eq": "=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_FLIPPED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WHOLE_NUMBERS: Final = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
_UNITS: Final = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}
#: The name of the column without values.
_UNSTORED: Final = "_lakefmt_no_values"
#: Bytes of columns, once decoded, of files that Polars reads together; a larger file is read in batches.
_TOGETHER_BYTES: Final = 64 << 20
_CLOSED: Final = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}


def scan_polars(rows: SnapshotRows, name: str) -> pl.LazyFrame:
    """Return the rows of a table at one moment as a lazy frame.

    Args:
        rows: what is read.
        name: of the table, for ``LazyFrame.explain``.
    """
    try:
        from polars.io.plugins import register_io_source
    except ModuleNotFoundError:
        raise UnsupportedFeature(
            f"Polars {pl.__version__} takes no sources of other libraries: install a newer one, or use to_polars()"
        ) from None

    placeholder = _UNSTORED
    while placeholder in rows.schema.names:
        placeholder += "_"
    source = _Source(rows, placeholder)
    known = inspect.signature(register_io_source).parameters
    # The options of newer releases.
    options: dict[str, Any] = {"is_pure": True, "explain_name": "lakefmt", "explain_detail": name}
    options = {option: value for option, value in options.items() if option in known}
    schema: dict[str, Any] = {placeholder: pl.Null, **pl.DataFrame(rows.schema.empty_table()).schema}
    return register_io_source(source, schema=schema, **options).drop(placeholder)


@dataclass(frozen=True)
class _Source:
    """What Polars calls for rows; it pickles.

    Attributes:
        rows: what is read.
        placeholder: the name of the first column, which has no values.
    """

    rows: SnapshotRows
    placeholder: str

    def __call__(
        self, columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        """Yield frames of the rows that a predicate keeps, no more than the limit."""
        columns = [self.placeholder, *self.rows.schema.names] if columns is None else list(columns)
        left = math.inf if limit is None else limit
        if left <= 0:
            return
        for frame in self._frames(columns, predicate, limit):
            if frame.height > left:
                frame = frame.head(int(left))
            left -= frame.height
            yield frame
            if left <= 0:
                return  # before the next file is read

    def _frames(self, columns: Sequence[str], predicate: pl.Expr | None, limit: int | None) -> Iterator[pl.DataFrame]:
        names = [name for name in columns if name != self.placeholder]
        if not names and (predicate is None or not predicate.meta.root_names()):
            count = self.rows.count(None)
            frame = pl.DataFrame([pl.repeat(None, count, dtype=pl.Null, eager=True).alias(self.placeholder)])
            yield frame if predicate is None else frame.filter(predicate)
            return
        condition = None if predicate is None else implied_condition_of_polars(predicate, self.rows.schema)
        plan = self.rows.plan(names or self.rows.schema.names[:1], condition)
        frames = _Scan(self.rows, plan, predicate, limit).frames()
        if len(names) == len(columns):
            yield from frames
            return
        for frame in frames:
            yield frame.select(pl.lit(None, pl.Null).alias(self.placeholder), pl.all()).select(columns)


@dataclass(frozen=True)
class _Scan:
    """One read of a source.

    Attributes:
        rows: what is read.
        plan: its columns, and what is known of the predicate.
        predicate: what rows fulfil; None: all do.
        limit: how many rows are asked for; None: all.
    """

    rows: SnapshotRows
    plan: Query
    predicate: pl.Expr | None
    limit: int | None

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield the rows; with a limit files are opened when the rows before them have been taken."""
        files, logged = self.rows.files(self.plan)
        if self.limit is None:
            yield from self._frames_of(files, logged)
            return
        start = 0
        while start < max(len(files), len(logged)):  # twice as many each time: a predicate may keep few rows
            stop = max(2 * start, 1)
            yield from self._frames_of(files[start:stop], [])
            yield from self._frames_of([], logged[start:stop])
            start = stop

    def _frames_of(self, files: Sequence[BaseFile], logged: Sequence[FileSlice]) -> Iterator[pl.DataFrame]:
        """Yield the rows of base files that Polars reads as they are, then those of others and of merged slices."""
        snapshot, others = self.rows.snapshot, [] if self.rows.filter is None else list(files)
        checked = () if others else stored_files(pinned_table(snapshot), files, self.plan)
        for group in _in_groups(checked):
            stored = [each for _, each in group if each is not None]
            frames = self._by_polars(stored) if stored else None
            if frames is None:
                others += [file for file, _ in group]
            else:
                yield from frames
        if not others and not logged:
            return
        for batch in scan_files(snapshot, self.plan, others, logged):
            frame = pl.DataFrame(batch)
            yield frame if self.predicate is None else frame.filter(self.predicate)

    def _by_polars(self, files: Sequence[StoredFile]) -> Iterator[pl.DataFrame] | None:
        """Return the rows of files as Polars reads them; None: it does not read them, or has other types."""
        schema = pl.DataFrame(self.plan.result_schema.empty_table()).schema
        options: dict[str, Any] = {
            "schema": schema,
            "hive_partitioning": False,
            "glob": False,
            "extra_columns": "ignore",
        }
        try:
            frame = pl.scan_parquet([each.path for each in files], **options)
            if self.predicate is not None:
                frame = frame.filter(self.predicate)
            if self.limit is not None:
                frame = frame.head(self.limit)
            are_large = sum(each.decoded_bytes for each in files) > _TOGETHER_BYTES
            frames = iter(frame.collect_batches() if are_large else [frame.collect()])
            first = next(frames, None)
        except (PolarsError, PanicException, OSError, TypeError, AttributeError):
            # A release without these options, a file that was just removed, an encoding that Polars does not know.
            return None
        if first is None:
            return iter(())
        return self._rest(first, frames) if first.schema == schema else None

    def _rest(self, first: pl.DataFrame, frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        with reading("a base file"):
            yield from chain([first], frames)


def _in_groups(
    files: Iterable[tuple[BaseFile, StoredFile | None]],
) -> Iterator[list[tuple[BaseFile, StoredFile | None]]]:
    """Yield files that are read together, those that Polars reads apart from the others."""
    group: list[tuple[BaseFile, StoredFile | None]] = []
    size = 0
    for file, stored in files:
        decoded = 0 if stored is None else stored.decoded_bytes
        if group and (size + decoded > _TOGETHER_BYTES or (stored is None) != (group[-1][1] is None)):
            yield group
            group, size = [], 0
        group.append((file, stored))
        size += decoded
    if group:
        yield group


def implied_condition_of_polars(predicate: pl.Expr, schema: pa.Schema) -> Condition | None:
    """Return a condition that holds for every row that a predicate keeps; None: none is known.

    Example:
        >>> import polars as pl
        >>> schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
        >>> implied_condition_of_polars((pl.col("a") > 1) & pl.col("b").str.contains("x"), schema).exact
        <pyarrow.compute.Expression (a > 1)>
    """
    try:
        return _implied(json.loads(predicate.meta.serialize(format="json")), schema)
    except (InvalidFilter, ValueError, TypeError, KeyError, AttributeError, RecursionError, pa.ArrowException):
        return None  # another form than is known here: nothing is pruned
    except PolarsError:
        return None  # an expression that does not serialise


def _implied(tree: Any, schema: pa.Schema) -> Condition | None:
    (name, body), *_ = tree.items()
    if name == "BinaryExpr":
        return _of_binary(body, schema)
    if name == "Function":
        return _of_function(body["function"], body["input"], schema)
    if name == "Column" and pt.is_boolean(schema.field(body).type):
        return _compared(tree, "=", True, schema)
    return None


def _of_binary(body: Any, schema: pa.Schema) -> Condition | None:
    left, operator, right = body["left"], body["op"], body["right"]
    if operator in ("And", "LogicalAnd"):
        known = [part for side in (left, right) if (part := _implied(side, schema)) is not None]
        return all_of(known) if known else None
    if operator in ("Or", "LogicalOr"):
        both = [_implied(side, schema) for side in (left, right)]
        known = [part for part in both if part is not None]
        return any_of(known) if len(known) == 2 else None
    if operator not in _OPERATORS:
        return None
    plain = _OPERATORS[operator]
    if "Literal" in left:
        left, right, plain = right, left, _FLIPPED[plain]
    value = _literal(right)
    return None if value is None else _compared(left, plain, value, schema)


def _of_function(function: Any, inputs: Sequence[Any], schema: pa.Schema) -> Condition | None:
    (family, name), *_ = function.items()
    details: Any = None
    if isinstance(name, dict):
        ((name, details),) = name.items()
    if (family, name) in (("Boolean", "IsNull"), ("Boolean", "IsNotNull")):
        column = find_column(schema, (inputs[0]["Column"],))
        if column is None:
            return None
        return exactly(column[0].is_null() if name == "IsNull" else column[0].is_valid())
    if (family, name) == ("Boolean", "IsBetween"):
        ends = zip(_CLOSED[details["closed"]], inputs[1:], strict=True)
        parts = [_compared(inputs[0], operator, _literal(end), schema) for operator, end in ends]
        known = [part for part in parts if part is not None]
        return all_of(known) if known else None
    if (family, name) == ("Boolean", "IsIn") and details == {"nulls_equal": False}:
        return _one_of(inputs[0]["Column"], inputs[1], schema)
    if (family, name) == ("StringExpr", "StartsWith"):
        prefix, column = _literal(inputs[1]), find_column(schema, (inputs[0]["Column"],))
        if not isinstance(prefix, str) or column is None:
            return None
        pattern = "".join(f"!{letter}" if letter in "%_!" else letter for letter in prefix)
        return matches_like(column, f"{pattern}%", "!", inputs[0]["Column"], any_case=False)
    return None


def _one_of(name: str, values: Any, schema: pa.Schema) -> Condition | None:
    stored = pa.ipc.open_stream(bytes(values["Literal"]["Scalar"]["List"])).read_all().column(0).combine_chunks()
    column = find_column(schema, (name,))
    if column is None or pt.is_floating(column[1]) or pt.is_nested(stored.type):
        return None
    items = stored
    if pt.is_string_view(items.type) or pt.is_large_string(items.type):
        items = items.cast(pa.string())
    return is_in(column, [value for value in items if value.is_valid], name, negated=False)


def _literal(tree: Any) -> object:
    """Return the value of a literal; None: it is none that is known here."""
    literal = tree["Literal"]
    if "Dyn" in literal:  # a number of Python, before Polars has given it a type
        number = literal["Dyn"].get("Int")
        return number if isinstance(number, int) else None
    ((name, value),) = literal["Scalar"].items()
    if name in _WHOLE_NUMBERS and isinstance(value, int):
        return value
    if name == "String" and isinstance(value, str):
        return value
    if name == "Boolean" and isinstance(value, bool):
        return value
    if name == "Float64" and isinstance(value, float) and math.isfinite(value):
        return value
    if name == "Date" and isinstance(value, int):
        return date(1970, 1, 1) + timedelta(days=value)
    if name == "Datetime":
        ticks, unit, zone = value
        return pa.scalar(ticks, pa.timestamp(_UNITS[unit], None if zone is None else "UTC"))
    if name == "Decimal":
        number, _, scale = value
        return Decimal(number).scaleb(-scale) if abs(number) < 10**27 else None
    return None


def _compared(left: Any, operator: str, value: object, schema: pa.Schema) -> Condition | None:
    if value is None:
        return None
    if "Function" in left and left["Function"]["function"] == {"TemporalExpr": "Date"}:
        return _of_day(left["Function"]["input"][0]["Column"], operator, value, schema)
    if "Column" not in left:
        return None
    column = find_column(schema, (left["Column"],))
    if column is None or pt.is_float32(column[1]) or pt.is_float16(column[1]):
        return None
    if pt.is_float64(column[1]) and (operator not in ("=", "<", "<=") or not isinstance(value, float)):
        return None
    return compare(column, operator, value, left["Column"])


def _of_day(name: str, operator: str, value: object, schema: pa.Schema) -> Condition | None:
    """Return the range of a timestamp whose day compares so with one."""
    column = find_column(schema, (name,))
    if column is None or not pt.is_timestamp(column[1]) or column[1].tz not in (None, "UTC"):
        return None
    if not isinstance(value, date):
        return None
    first = datetime(value.year, value.month, value.day)
    after = first + timedelta(days=1)
    ends = {"=": ((">=", first), ("<", after)), "<": (("<", first),), "<=": (("<", after),)}
    bounds = {**ends, ">": ((">=", after),), ">=": ((">=", first),)}[operator]
    return reduce(lambda a, b: a & b, [compare(column, end, moment, name) for end, moment in bounds])
