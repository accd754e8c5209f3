"""Read tables for Spark: a pinned state cut into splits, and DataFrames by functions on every release that lakefmt takes.

Where that gives the same rows, Spark's own Parquet reader reads exactly the pinned base files. It reads only the columns
that a query uses, which a data source in Python is never told. It serves slices without logs whose files have the table's
types under the table's names.

A pushed filter only leaves out what cannot match: Spark evaluates every filter again. So a filter whose meaning differs is
not pushed: Spark takes NaN as the largest number, and as equal to itself.

Images of changed rows are texts, as Hudi's Spark data source shows them: Avro's text of a record, which is JSON. Times are
numbers, and decimals lists of bytes, as they are stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from fnmatch import translate
from os import cpu_count
from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt import open_table
from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.filegroups.table_client import TableAt, TableState
from lakefmt._core.read.changes import ChangesPlan, plan_changes_read, read_planned_changes
from lakefmt._core.read.filters import Filter
from lakefmt._core.read.snapshot import (
    IncrementPlan,
    Snapshot,
    plan_increment_read,
    read_planned_increment,
    reopen_snapshot,
    scan_slices,
)
from lakefmt._core.read.splits import (
    ChangesSplit,
    ReadSplit,
    changes_of_split,
    choose_split_bytes,
    pack_changes,
    pack_slices,
    plan_splits,
)
from lakefmt._core.schema import avro_to_arrow
from lakefmt._core.schema.java_text import java_text
from lakefmt._core.values import META_COLUMNS, InstantTime
from lakefmt.spark.options import ReadCall, SparkReadOptions, log_notes, option_texts, parse_read_options
from lakefmt.spark.types import spark_schema, spark_types
from lakefmt.spark.workers import check_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "PlannedScan",
    "PushedFilter",
    "SparkScan",
    "SparkSplit",
    "choose_by_path",
    "fits_natively",
    "image_texts",
    "is_native_query",
    "native_dataframe",
    "native_paths",
    "native_rows",
    "open_scan",
    "read_dataframe",
    "translate_filters",
    "with_image_texts",
]

#: Names that Spark takes as they are: no patterns, no escapes, no hidden files.
_PLAIN_PATH: Final = re.compile(r"(/[A-Za-z0-9=@+,~-][A-Za-z0-9_.=@+,~%-]*)+")
_HADOOP_SCHEMES: Final = {"s3": "s3a", "gcs": "gs"}
_MOST_FOOTERS: Final = 256
_FOOTER_THREADS: Final = 8


def native_dataframe(spark: SparkSession, planned: PlannedScan) -> DataFrame | None:
    """Return the rows of a planned query as a scan of Spark's own; None: the rows would differ, or cannot be reached.

    Args:
        spark: the session.
        planned: the query.
    """
    paths = native_paths(planned)
    if not paths:
        return None
    reader = spark.read.schema(spark_types(planned.schema)).option("mergeSchema", "false")
    # Hudi writes dates and times of the proleptic calendar, without Spark's note that it does.
    reader = reader.option("datetimeRebaseMode", "CORRECTED").option("int96RebaseMode", "CORRECTED")
    return reader.parquet(*paths)


def native_paths(planned: PlannedScan) -> list[str]:
    """Return where Spark finds the base files that hold exactly the rows of a planned query; none: no files do."""
    call = planned.scan.call
    if not is_native_query(call):
        return []
    slices = [each for split in planned.splits if isinstance(split, ReadSplit) for each in split.slices]
    if call.query == "snapshot" and any(each.logs for each in slices):
        return []
    files = [each.base for each in slices if each.base is not None]
    table = planned.scan.snapshot.client.store.url
    candidates = [_path_for_spark(table, file.path, remote=call.native == "always") for file in files]
    paths = [path for path in candidates if path is not None]
    return paths if paths and len(paths) == len(candidates) and _have_table_schema(planned, files) else []


def is_native_query(call: ReadCall) -> bool:
    """Return whether a query may be read by Spark's own reader, as far as its options tell. Pure."""
    return call.native != "never" and not call.filter and call.query in ("snapshot", "read_optimized")


def fits_natively(stored: pa.Schema, table: pa.Schema) -> bool:
    """Return whether Spark reads a file with one schema as rows of another: the same types; columns may be missing. Pure.

    Example:
        >>> narrow, wide = pa.schema([("n", pa.int32())]), pa.schema([("n", pa.int64()), ("new", pa.string())])
        >>> fits_natively(narrow, wide), fits_natively(pa.schema([("n", pa.int64())]), wide)
        (False, True)
    """
    names = [name.lower() for name in table.names]
    plain = all(_is_read_alike(field.type) for field in table)
    present = set(stored.names)
    same = all(stored.field(f.name).type.equals(f.type) for f in table if f.name in present)
    return plain and same and len(set(names)) == len(names)


def _is_read_alike(data_type: pa.DataType) -> bool:
    if pt.is_timestamp(data_type):
        return data_type.tz is not None and data_type.unit in ("ms", "us")
    if pt.is_fixed_size_binary(data_type) or pt.is_time(data_type):
        return False
    return all(_is_read_alike(data_type.field(number).type) for number in range(data_type.num_fields))


def _path_for_spark(table: str, path: str, *, remote: bool) -> str | None:
    """Return where Spark finds a file; None: Spark would understand the name in another way, or may lack credentials."""
    scheme, divider, rest = table.rstrip("/").partition("://")
    if not divider:
        local = f"{table.rstrip('/')}/{path}"
        return f"file:{local}" if _PLAIN_PATH.fullmatch(local) else None
    full_path = f"/{rest.lstrip('/')}/{path}"
    if not _PLAIN_PATH.fullmatch(full_path):
        return None
    if scheme == "file":
        return f"file:{full_path}"
    return f"{_HADOOP_SCHEMES.get(scheme, scheme)}:/{full_path}" if remote else None


def _have_table_schema(planned: PlannedScan, files: Sequence[BaseFile]) -> bool:
    """Return whether all files hold the table's columns under their names, in their types."""
    snapshot = planned.scan.snapshot
    client, state, table = snapshot.client, snapshot.state, snapshot.schema
    table_at = client.at(state)
    config = state.config
    if config.drop_partition_columns or (planned.scan.call.meta_columns and not config.populate_meta_fields):
        return False
    if table_at.internal_schema() is not None:  # names may have moved from one column to another
        return False
    schemas, untold = _schemas_of_commits(table_at, {file.instant for file in files})
    unknown = [file for file in files if file.instant in untold]
    if len(unknown) > _MOST_FOOTERS or not all(fits_natively(schema, table) for schema in schemas):
        return False
    with ThreadPoolExecutor(_FOOTER_THREADS) as threads:
        footers = list(threads.map(client.reader.footer, unknown))
    return all(fits_natively(footer.schema, table) for footer in footers)


def _schemas_of_commits(table_at: TableAt, times: Iterable[InstantTime]) -> tuple[list[pa.Schema], set[InstantTime]]:
    """Return the schemas that commits wrote with, each once, and the commits that do not tell."""
    commits = {commit.time: commit for commit in table_at.timeline.commits}
    texts = {time: table_at.commit_metadata(commits[time]).schema_text if time in commits else None for time in times}
    schemas = [
        avro_to_arrow(avro_json)
        for avro_json in sorted({avro_json for avro_json in texts.values() if avro_json is not None})
    ]
    return schemas, {time for time, avro_json in texts.items() if avro_json is None}


def read_dataframe(spark: SparkSession, path: str, **options: Unpack[SparkReadOptions]) -> DataFrame:
    """Return the rows of a table as a DataFrame, which reads the state of this moment however often it is used.

    Args:
        spark: the session.
        path: the table.
        **options: Hudi's options for reads by their names, and ``storage.…`` for the store.

    Raises:
        TableNotFound: there is none.
        UnknownSetting: an option that is not known.
        UnsupportedFeature: Spark's workers do not run this release.

    Example::

        lakefmt.spark.read(spark, "/data/trips", **{"as.of.instant": "20260101000000000"})
    """
    planned = open_scan(str(path), option_texts(options)).plan(slots=_task_slots(spark))
    native = native_dataframe(spark, planned)
    if native is not None:
        return native
    check_workers(spark)
    splits = len(planned.splits)
    numbers = spark.range(0, splits, 1, max(1, splits))
    return numbers.mapInArrow(_split_reader(planned), spark_types(planned.schema))


def native_rows(spark: SparkSession, path: str, **options: Unpack[SparkReadOptions]) -> DataFrame | None:
    """Return the rows as a scan of Spark's own Parquet reader, where it reads the same rows; else None.

    Raises:
        TableNotFound: there is no table.
        UnknownSetting: an option that is not known.
    """
    scan = open_scan(path, option_texts(options))
    return native_dataframe(spark, scan.plan()) if is_native_query(scan.call) else None


def _split_reader(planned: PlannedScan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_numpy():  # splits, not rows
                yield from planned.read(planned.splits[number])

    return run


def _task_slots(spark: SparkSession) -> int | None:
    """Return how many tasks run at the same time; None: this kind of session does not tell."""
    slots = run_foreign(lambda: int(spark.sparkContext.defaultParallelism))  # Spark Connect raises errors of its own
    return None if isinstance(slots, Raised) else slots


#: A term of a filter of lakefmt: column, operator, value.
PushedFilter = tuple[str, str, Any]

_ESCAPES: Final = (
    ("\\", "\\\\"),
    ('"', '\\"'),
    ("\b", "\\b"),
    ("\f", "\\f"),
    ("\n", "\\n"),
    ("\r", "\\r"),
    ("\t", "\\t"),
)
#: Characters that Avro writes as ``\\uXXXX``.
_CODED_CHARACTERS: Final = (*range(0x20), *range(0x7F, 0xA0), *range(0x2000, 0x2100))
_ANY_CODED_CHARACTER: Final = r"[\x00-\x1f\x7f-\x{9f}\x{2000}-\x{20ff}]"


def with_image_texts(changes: pa.Table) -> pa.Table:
    """Return changes with ``before`` and ``after`` as texts; a missing image is the text ``null``, as in Hudi."""
    for name in ("before", "after"):
        number = changes.schema.get_field_index(name)
        texts = [image_texts(chunk) for chunk in changes.column(number).chunks]
        changes = changes.set_column(number, name, pa.chunked_array(texts, pa.string()))
    return changes


def image_texts(images: pa.Array) -> pa.Array:
    """Return the text of every value of a column, of any type.

    Example:
        >>> rows = pa.array([{"id": "a", "v": 1.0, "n": None}, None])
        >>> image_texts(rows).to_pylist()
        ['{"id": "a", "v": 1.0, "n": null}', 'null']
    """
    data_type = images.type
    if pt.is_struct(data_type):
        fields = [data_type.field(number).name for number in range(data_type.num_fields)]
        texts = _record_texts(fields, [image_texts(child) for child in images.flatten()], len(images))
    elif pt.is_map(data_type):
        texts = _map_texts(images)
    elif pt.is_list(data_type) or pt.is_large_list(data_type):
        texts = _enclosed_texts(_joined_lists(image_texts(images.flatten()), images), "[", "]")
    elif pt.is_floating(data_type):
        plain = java_text(images, "")
        texts = pc.if_else(pc.is_finite(images), plain, _enclosed_texts(plain, '"', '"'))
    elif pt.is_date(data_type):
        texts = images.cast(pa.int32()).cast(pa.string())
    elif pt.is_decimal(data_type):
        texts = _decimal_texts(images)
    elif pt.is_binary(data_type) or pt.is_large_binary(data_type):
        texts = _enclosed_texts(_escaped_texts(_latin_texts(images)), '"', '"')
    elif pt.is_string(data_type) or pt.is_large_string(data_type):
        texts = _enclosed_texts(_escaped_texts(images.cast(pa.string())), '"', '"')
    else:
        texts = java_text(images, "")
    return pc.if_else(images.is_valid(), texts, "null").cast(pa.string())


def _enclosed_texts(texts: pa.Array, before: str, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, texts, after, "")


def _record_texts(names: Sequence[str], values: Sequence[pa.Array], rows: int) -> pa.Array:
    if not names:
        return pa.repeat(pa.scalar("{}", pa.string()), rows)
    pairs = [_enclosed_texts(texts, f'"{name}": ', "") for name, texts in zip(names, values, strict=True)]
    return _enclosed_texts(pc.binary_join_element_wise(*pairs, ", "), "{", "}")


def _map_texts(maps: pa.Array) -> pa.Array:
    lists = maps.cast(pa.list_(pa.struct([maps.type.key_field, maps.type.item_field])))
    keys, values = lists.flatten().flatten()
    pairs = pc.binary_join_element_wise(image_texts(keys), image_texts(values), ": ")
    return _enclosed_texts(_joined_lists(pairs, lists), "{", "}")


def _joined_lists(texts: pa.Array, lists: pa.Array) -> pa.Array:
    """Return the texts of each list's elements, one after the other."""
    lengths = pc.fill_null(pc.list_value_length(lists).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), ", ")


def _decimal_texts(numbers: pa.Array) -> pa.Array:
    """Return the bytes of decimals, most significant first, as lists of signed numbers: they are stored in such bytes."""
    size = next(n for n in range(1, 17) if 10**numbers.type.precision <= 1 << (8 * n - 1))
    stored = np.frombuffer(numbers.buffers()[1], np.int8).reshape(-1, 16)
    decimal_bytes = stored[numbers.offset : numbers.offset + len(numbers), size - 1 :: -1]
    texts = pa.array(decimal_bytes.reshape(-1)).cast(pa.string())
    offsets = pa.array(np.arange(0, (len(numbers) + 1) * size, size, dtype=np.int32))
    return _enclosed_texts(pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ", "), "[", "]")


def _latin_texts(values: pa.Array) -> pa.Array:
    """Return bytes as the characters of the same numbers."""
    values = values.cast(pa.binary())
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    # Bytes from 0x80 on take two in UTF-8: 0xC2 or 0xC3, and their low bits.
    high = data >= 0x80
    ends = np.cumsum(1 + high)
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    out[ends - 1] = np.where(high, 0x80 | (data & 0x3F), data)
    out[(ends - 2)[high]] = 0xC0 | (data[high] >> 6)
    placed = np.concatenate(([0], ends))[offsets - offsets[0]].astype(np.int32)
    buffers = [None, pa.py_buffer(placed.tobytes()), pa.py_buffer(out.tobytes())]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _escaped_texts(texts: pa.Array) -> pa.Array:
    for plain, code in _ESCAPES:
        texts = pc.replace_substring(texts, plain, code)
    if pc.match_substring_regex(texts, _ANY_CODED_CHARACTER).true_count:
        for number in _CODED_CHARACTERS:
            texts = pc.replace_substring(texts, chr(number), f"\\u{number:04X}")
    return texts


_COMPARISONS: Final = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "In": "in",
    "IsNull": "is",
    "IsNotNull": "is not",
    "StringStartsWith": "like",
}
_OPPOSITES: Final = {"=": "!=", "in": "not in"}
#: Types whose values Spark and Arrow compare alike.
_COMPARED_ALIKE: Final = (
    pt.is_string,
    pt.is_integer,
    pt.is_date,
    pt.is_timestamp,
    pt.is_decimal,
    pt.is_boolean,
)


def translate_filters(filters: Iterable[Any], schema: pa.Schema) -> list[PushedFilter]:
    """Return the terms, all of which must hold, of Spark's filters; filters without a counterpart are left out.

    Args:
        filters: of ``pyspark.sql.datasource``; all must hold.
        schema: the columns as Spark sees them.

    Example:
        >>> from collections import namedtuple
        >>> EqualTo = namedtuple("EqualTo", "attribute value")
        >>> translate_filters([EqualTo(("city",), "sf"), EqualTo(("v",), 1.5)],
        ...     pa.schema([("city", pa.string()), ("v", pa.float64())]))
        [('city', '=', 'sf')]
    """
    terms = (_pushed_filter(each, schema) for each in filters)
    return [term for term in terms if term is not None]


def _pushed_filter(spark_filter: Any, schema: pa.Schema) -> PushedFilter | None:
    negated = type(spark_filter).__name__ == "Not"
    inner = spark_filter.child if negated else spark_filter
    operator = _COMPARISONS.get(type(inner).__name__)
    if negated and (type(inner).__name__ == "EqualNullSafe" or operator not in _OPPOSITES):
        return None
    path: tuple[str, ...] = inner.attribute if operator else ()
    if operator is None or len(path) != 1 or path[0] not in schema.names:
        return None
    if not any(is_kind(schema.field(path[0]).type) for is_kind in _COMPARED_ALIKE):
        return None
    value: Any = getattr(inner, "value", None)
    if operator == "like":
        return None if any(sign in value for sign in "%_\\") else (path[0], operator, f"{value}%")
    if operator == "in":
        value = list(value)
    elif value is None and operator not in ("is", "is not"):
        return (path[0], "is", None) if type(inner).__name__ == "EqualNullSafe" else None
    return path[0], _OPPOSITES[operator] if negated else operator, value


SparkSplit = ReadSplit | ChangesSplit


@dataclass(frozen=True)
class SparkScan:
    """A query with the state that it reads; pickles without open files.

    Attributes:
        path: the table.
        call: what the options ask for.
        schema: what Spark sees.
        state: the pinned state.
    """

    path: str
    call: ReadCall
    schema: pa.Schema
    state: TableState = field(repr=False)

    @property
    def snapshot(self) -> Snapshot:
        """The pinned state; contexts that travel carry no secrets of the store, so each process opens it anew."""
        return reopen_snapshot(self.path, self.call.settings, self.state, self.call.storage)

    def plan(
        self, filters: Sequence[PushedFilter] = (), columns: Sequence[str] | None = None, slots: int | None = None
    ) -> PlannedScan:
        """List what the tasks read.

        Args:
            filters: all must hold for a row to be of interest; others are left out as far as that costs nothing.
            columns: the columns to read; None: all.
            slots: the tasks that run at the same time; None: as many as this machine has processors.
        """
        slots, snapshot = slots or cpu_count() or 1, self.snapshot
        if self.call.query == "cdc":
            changes = plan_changes_read(snapshot.client.at(self.state), self.call.start, self.call.end)
            total = sum(base.size for group in changes.files.groups.values() for base in group.bases)
            sources = pack_changes(changes, self._split_bytes(total, slots))
            shared_changes = replace(changes, work=(), files=replace(changes.files, groups={}))
            return PlannedScan(self, tuple(sources), columns=columns, shared=shared_changes)
        where = self.call.filter or list(filters) or None
        if self.call.query == "incremental":
            increment = self._increment(snapshot, where)
            total = sum(file_slice.size_bytes for file_slice in increment.slices)
            splits = pack_slices(increment.slices, self._split_bytes(total, slots))
            planned = replace(increment, slices=())
            return PlannedScan(self, tuple(splits), tuple(filters), columns, shared=planned)
        (all_of_it,) = plan_splits(snapshot, where, self.call.query, target_bytes=1 << 62) or [ReadSplit((), 0)]
        splits = pack_slices(all_of_it.slices, self._split_bytes(all_of_it.num_bytes, slots))
        return PlannedScan(self, tuple(splits), tuple(filters), columns)

    def _increment(self, snapshot: Snapshot, filters: Filter) -> IncrementPlan:
        call, client = self.call, snapshot.client
        plan = plan_increment_read(client.at(self.state), call.start, call.end, filters, falls_back=call.falls_back)
        return replace(plan, slices=tuple(choose_by_path(plan.slices, call.path_glob)))

    def _split_bytes(self, total: int, slots: int) -> int:
        return self.call.split_bytes or choose_split_bytes(total, slots)


@dataclass(frozen=True)
class PlannedScan:
    """A query whose files are listed.

    Attributes:
        scan: the query.
        splits: what each task reads; tasks get their own split alone.
        filters: what was pushed.
        columns: the columns to read; None: all.
        shared: of an incremental query or a query of changes: what all its tasks share, without files.
    """

    scan: SparkScan
    splits: tuple[SparkSplit, ...]
    filters: tuple[PushedFilter, ...] = ()
    columns: Sequence[str] | None = None
    shared: IncrementPlan | ChangesPlan | None = field(default=None, repr=False)

    @property
    def schema(self) -> pa.Schema:
        """What the tasks yield."""
        full_schema = self.scan.schema
        return full_schema if self.columns is None else pa.schema([full_schema.field(name) for name in self.columns])

    def read(self, split: SparkSplit) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split, in Spark's types."""
        schema = self.schema
        for batch in self._batches(split, schema.names):
            yield batch.select(schema.names).cast(schema)

    def _batches(self, split: SparkSplit, names: list[str]) -> pa.RecordBatchReader:
        snapshot, where, shared = self.scan.snapshot, self.scan.call.filter or list(self.filters) or None, self.shared
        if isinstance(split, ChangesSplit) and isinstance(shared, ChangesPlan):
            part = changes_of_split(shared, split)
            changes = read_planned_changes(snapshot.client, part, filter=self.scan.call.filter)
            return in_form_of(self.scan.call, changes).to_reader()
        slices = split.slices if isinstance(split, ReadSplit) else ()
        if isinstance(shared, IncrementPlan):
            return read_planned_increment(snapshot.client, shared, slices, names, where).to_reader()
        return scan_slices(snapshot, slices, names, where, self.scan.call.query)


def in_form_of(call: ReadCall, changes: pa.Table) -> pa.Table:
    """Return changes with images in the form that a call asks for. Pure."""
    return with_image_texts(changes) if call.images == "json" else changes


def choose_by_path(slices: Iterable[FileSlice], glob: str | None) -> list[FileSlice]:
    """Return the slices with a file whose path ends as a glob says; None: all. Pure.

    Example:
        >>> choose_by_path([], "/sf/*")
        []
    """
    if not glob:
        return list(slices)
    # As Hudi has it: the glob may begin anywhere in the path.
    matches = re.compile(translate(f"*{glob}")).match
    return [each for each in slices if any(matches(f"/{path}") for path in each.paths)]


def open_scan(path: str, options: Mapping[str, str]) -> SparkScan:
    """Open a table for one query of Spark; every task reads the state of this moment.

    Raises:
        TableNotFound: there is no table.
        UnknownSetting: an option that is not known.
    """
    call = parse_read_options(options)
    log_notes(call.notes)
    table = open_table(path, options=call.settings, storage_options=call.storage)
    snapshot = table.snapshot(call.as_of)
    if call.query == "cdc":
        nothing = replace(plan_changes_read(snapshot.client.at(snapshot.state), call.start, call.end), work=())
        columns = in_form_of(call, read_planned_changes(snapshot.client, nothing)).schema
    elif call.meta_columns:
        columns = pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *snapshot.schema])
    else:
        columns = snapshot.schema
    return SparkScan(path, call, spark_schema(columns), snapshot.state)
