"""Scan base files: prune, open, project, filter, cast to the table schema (effects).

Arrow's datasets read files in parallel, project columns and skip row groups by statistics. Files
whose nested columns differ from the table schema use :func:`lakefmt._core.schema.reconcile`, because only
newer Arrow releases fill missing struct fields.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from lakefmt._core.arguments import check_flags, text_argument, texts_argument
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.filegroups.reader import SMALL_BYTES, dropped_values, parquet_file, reading, short_footer
from lakefmt._core.filegroups.stored_keys import paths_tell_times, trusts_paths
from lakefmt._core.filegroups.table_client import TableAt, TableClient
from lakefmt._core.formats.parquet.base_file import check_row_counts
from lakefmt._core.formats.parquet.duplicate_columns import parquet_schema
from lakefmt._core.formats.parquet.footers import LARGE_FOOTER
from lakefmt._core.keys import partition_guarantee, time_guarantees
from lakefmt._core.read.filter_terms import satisfiable
from lakefmt._core.read.filters import Filter, computing, filter_columns, keep_rows, parse_filter
from lakefmt._core.schema import is_mislabelled, join_tables, reconcile, with_meta_columns
from lakefmt._core.schema.avro import unknown_column
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.arrow_filesystem import arrow_view, track_arrow_use
from lakefmt._core.storage.parallel import map_concurrently
from lakefmt._core.values import META_COLUMNS, RECORD_KEY, PartitionPath
from lakefmt.errors import CorruptFile, InvalidInputError, SnapshotExpired, UnsupportedFeature

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    from lakefmt._core.read.filter_terms import Condition
    from lakefmt._core.schema.column_ids import ColumnIds

__all__ = [
    "BATCH_ROWS",
    "Query",
    "check_filled",
    "check_query_type",
    "chosen_row_groups",
    "count_files",
    "file_fragments",
    "names_partition_columns",
    "plain_scanner",
    "plan_query",
    "prune_partitions",
    "reads_by_name",
    "scan_batches",
    "scan_table",
]

BATCH_ROWS = 128 * 1024
_FOOTER_THREADS = 8
#: What Arrow reads ahead of what it has decoded, in batches of a file, and in files: of a local disk that is all that is needed to
#: keep the processors at work, and what is ahead takes memory. By itself Arrow reads 16 batches of 4 files.
_BATCHES_AHEAD, _FILES_AHEAD = 4, 2
#: Large files whose rows are scanned together: Arrow holds the footer of each until the last row of all has come, a megabyte or
#: more. Where one scan ends and the next begins the processors wait for each other: a small share of what so many files take.
_SCANNED_TOGETHER = 16
_LARGE_BYTES = 16 << 20
#: Of more files all rows are read, by several threads, even where a filter names a few texts.
_FEW_FILES = 4
#: Of fewer files Arrow may hold the footers.
_SEVERAL_FILES = 4
_ALL_FOOTERS = "_metadata"
_ARROW_SCHEMA = b"ARROW:schema"


@dataclass(frozen=True)
class Query:
    """What to read: the requested columns in order, the filter, and the schema of both."""

    columns: tuple[str, ...]
    condition: Condition | None
    schema: pa.Schema

    @cached_property
    def result_schema(self) -> pa.Schema:
        """The schema of the result."""
        return pa.schema([self.schema.field(name) for name in self.columns])

    @cached_property
    def filter_columns(self) -> frozenset[str]:
        """The columns that the filter uses: found once, Arrow is asked for them by trials."""
        return frozenset(() if self.condition is None else filter_columns(self.condition.exact, self.schema))


def plan_query(
    config: TableConfig, schema: pa.Schema, columns: Sequence[str] | None, filter: Filter, *, meta_columns: bool
) -> Query:
    """Return the query with checked columns and parsed filter. Pure.

    Raises:
        InvalidInputError: a column does not exist.
        InvalidFilter: the filter is not valid.
        UnsupportedFeature: a column to read has a type that is not known here, or the filter names one that the table
            leaves empty.
    """
    check_flags(meta_columns=meta_columns)
    columns = None if columns is None else texts_argument(columns, "columns")
    if columns is not None:
        columns = _names(columns)
    schema = _known_columns(schema, columns)
    full = with_meta_columns(schema)
    known = set(full.names)
    unknown = [name for name in columns or () if name not in known]
    if unknown:
        raise InvalidInputError(f"no column {', '.join(map(repr, unknown))}; the table has {schema.names}")
    everything = full.names if meta_columns else schema.names
    requested_columns = everything if columns is None else [*(META_COLUMNS if meta_columns else ()), *columns]
    query = Query(tuple(dict.fromkeys(requested_columns)), parse_filter(filter, full), full)
    check_filled(config, query)
    return query


def check_filled(config: TableConfig, query: Query) -> None:
    """Raise for a filter on meta columns that the table leaves empty: it would keep no row, and rows are updated and deleted by it.

    Raises:
        UnsupportedFeature: the filter names one.
    """
    if config.populate_meta_fields or not (empty := query.filter_columns.intersection(META_COLUMNS)):
        return
    keys = ", ".join(config.record_key_fields)
    raise UnsupportedFeature(
        f"the filter names {', '.join(sorted(empty))}, and this table does not fill meta columns: record keys are made of {keys}"
    )


def _known_columns(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the columns that have types known here.

    Raises:
        UnsupportedFeature: another one is to be read.
    """
    unknown = {field.name: why for field in schema if pa.types.is_null(field.type) and (why := unknown_column(field))}
    for name in unknown if columns is None else columns:
        if name in unknown:
            others = ", ".join(each for each in schema.names if each not in unknown)
            raise UnsupportedFeature(f"{unknown[name]}: name the columns to read, of {others[:500]}")
    return pa.schema([field for field in schema if field.name not in unknown]) if unknown else schema


def check_query_type(query: str) -> None:
    """Raise for an unknown query type.

    Raises:
        InvalidInputError: it is neither ``snapshot`` nor ``read_optimized``.
    """
    if text_argument(query, "query") not in ("snapshot", "read_optimized"):
        raise InvalidInputError(f"unknown query {query!r}: expected 'snapshot' or 'read_optimized'")


def _names(columns: object) -> list[str]:
    """Return column names as a list.

    Raises:
        InvalidInputError: another type.
    """
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise InvalidInputError(f"columns={columns!r:.80}: a list of names is expected")
    names = list(columns)
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise InvalidInputError(f"columns hold {wrong[0]!r:.80}, which is not a name")
    return names


def names_partition_columns(table_at: TableAt, query: Query) -> bool:
    """Return whether the filter uses a column of which partition paths tell."""
    fields = table_at.key_spec().partition_fields
    return not query.filter_columns.isdisjoint(field.name.split(".", 1)[0] for field in fields)


def prune_partitions(table_at: TableAt, partitions: Iterable[PartitionPath], query: Query) -> list[PartitionPath]:
    """Return the partitions that may have matching rows, judged by their paths."""
    remaining = list(partitions)
    if query.condition is None or not table_at.config.is_partitioned:
        return remaining
    if not names_partition_columns(table_at, query):
        return remaining  # paths say nothing of other columns
    spec = table_at.key_spec()
    guarantees = [partition_guarantee(spec, path, query.schema) for path in remaining]
    with computing():
        mask = satisfiable(guarantees, query.condition.exact, query.schema)
    if not mask.all():
        if not trusts_paths(table_at):
            return remaining
        remaining = [remaining[index] for index in np.flatnonzero(mask).tolist()]
    return _pruned_by_times(table_at, remaining, query)


def _pruned_by_times(table_at: TableAt, partitions: list[PartitionPath], query: Query) -> list[PartitionPath]:
    """Return the partitions of days, hours, months or years that may have rows with the times of the filter."""
    spec, condition = table_at.key_spec(), query.condition
    names = {field.name.split(".", 1)[0] for field in spec.partition_fields if field.timestamp is not None}
    if condition is None or not partitions or not names & query.filter_columns:
        return partitions
    with computing():
        mask = satisfiable(time_guarantees(spec, partitions, query.schema), condition.exact, query.schema)
    if mask.all() or not paths_tell_times(table_at):
        return partitions
    return [partitions[index] for index in np.flatnonzero(mask).tolist()]


def scan_batches(table_at: TableAt, files: Sequence[BaseFile], query: Query) -> Iterator[pa.RecordBatch]:
    """Yield the rows of base files in bounded memory, cast to the query's schema."""
    for part in _parts(files):
        for group in _groups(table_at, part, query):
            if isinstance(group, BaseFile):
                with reading(group.path):
                    for rows in _reconciled(table_at, group, query):
                        yield from rows.to_batches(max_chunksize=BATCH_ROWS)
            else:
                yield from _scanned(table_at.client, part, group, query)


def scan_table(table_at: TableAt, files: Sequence[BaseFile], query: Query) -> pa.Table:
    """Return the rows of base files as one table."""
    named = _named_rows(table_at, files, query)
    if named is not None:
        return named
    return join_tables([rows for part in _parts(files) for rows in _tables(table_at, part, query)], query.result_schema)


def _parts(files: Sequence[BaseFile]) -> Iterator[Sequence[BaseFile]]:
    """Yield the files that are scanned together: all of them, unless many are large."""
    most = max(_SCANNED_TOGETHER, 4 * (os.cpu_count() or 1))
    if sum(file.size >= _LARGE_BYTES for file in files) <= most:
        yield files
        return
    for begin in range(0, len(files), most):
        yield files[begin : begin + most]


def _tables(table_at: TableAt, files: Sequence[BaseFile], query: Query) -> Iterator[pa.Table]:
    for group in _groups(table_at, files, query):
        if isinstance(group, BaseFile):
            yield from _reconciled(table_at, group, query)
        elif query.condition is None or query.condition.prunes_exactly:
            with _reading_many(table_at.client, files, group, query):
                exact = None if query.condition is None else query.condition.exact
                yield group.to_table(columns=list(query.columns), filter=exact, **_ahead(table_at.client))
        else:
            batches = list(_scanned(table_at.client, files, group, query))
            if batches:
                yield pa.Table.from_batches(batches)


def plain_scanner(table_at: TableAt, files: Sequence[BaseFile], query: Query, **options: Any) -> ds.Scanner | None:
    """Return a scanner of Arrow's own over base files; None where the rows of a file need more than Arrow does."""
    dataset = _only_plain(_groups(table_at, files, query, whole_footers=True))
    if dataset is None or not (query.condition is None or query.condition.prunes_exactly):
        return None
    exact = None if query.condition is None else query.condition.exact
    return dataset.scanner(columns=list(query.columns), filter=exact, **options)


def count_files(table_at: TableAt, files: Sequence[BaseFile], query: Query) -> int:
    """Return the number of rows of base files that a query keeps: by footers where no row must be read."""
    if query.condition is None:
        store = table_at.client.store
        return sum(map_concurrently(store, [partial(_rows_in_footer, store, file) for file in files]))
    total = 0
    for part in _parts(files):
        for group in _groups(table_at, part, query):
            if isinstance(group, BaseFile):
                total += sum(rows.num_rows for rows in _reconciled(table_at, group, query))
            elif query.condition.prunes_exactly:
                with _reading_many(table_at.client, part, group, query):
                    total += group.count_rows(filter=query.condition.exact)
            else:
                total += sum(batch.num_rows for batch in _scanned(table_at.client, part, group, query))
    return total


def _rows_in_footer(store: ObjectStore, file: BaseFile) -> int:
    filesystem, prefix = store.arrow_filesystem()
    with reading(file.path), filesystem.open_input_file(prefix + file.path) as source:
        short = short_footer(source, near=isinstance(filesystem, pafs.LocalFileSystem))
        if short is None:
            with parquet_file(source) as parquet:
                return _checked_rows(parquet.metadata)
        return _checked_rows(short.metadata)


def _checked_rows(metadata: pq.FileMetaData) -> int:
    check_row_counts(metadata)
    return int(metadata.num_rows)


def file_fragments(
    table_at: TableAt, files: Sequence[BaseFile], query: Query
) -> dict[BaseFile, ds.ParquetFileFragment]:
    """Return the fragments of those base files that have the columns of a query as they are."""
    dataset = _only_plain(_groups(table_at, files, query, whole_footers=True)) if files else None
    if dataset is None:
        return {}
    _, prefix = table_at.client.store.arrow_filesystem()
    by_path = {prefix + file.path: file for file in files}
    schema = query.result_schema
    return {
        by_path[fragment.path]: fragment
        for fragment in dataset.get_fragments()
        if _has_columns(fragment.physical_schema, schema)
    }


def _has_columns(stored: pa.Schema, schema: pa.Schema) -> bool:
    """Return whether a file has each column once, in its type."""
    types_and_indices = ((field.type, stored.get_field_index(field.name)) for field in schema)
    return all(index >= 0 and stored.field(index).type.equals(held) for held, index in types_and_indices)


def _only_plain(groups: Sequence[ds.FileSystemDataset | BaseFile]) -> ds.FileSystemDataset | None:
    only = groups[0] if len(groups) == 1 else None
    return None if isinstance(only, BaseFile) else only


def _named_rows(table_at: TableAt, files: Sequence[BaseFile], query: Query) -> pa.Table | None:
    """Return the rows of base files where a filter names a few texts, by the pages that have those; None: all pages are read."""
    condition = query.condition
    if condition is None or condition.may_fail or not condition.values or not 0 < len(files) <= _FEW_FILES:
        return None
    # Imported here: few reads name texts.
    from lakefmt._core.filegroups.named_rows import MOST_TEXTS, NamedTexts, read_named_rows

    if table_at.config.drop_partition_columns or any(file.size < SMALL_BYTES for file in files):
        return None
    by_name = _by_name(table_at, query)
    fields = [field for field in query.schema if field.name in by_name.asked]
    texts = [
        NamedTexts(field.name, condition.values[field.name])
        for field in fields
        if field.name in condition.values and pa.types.is_string(field.type)
    ]
    texts = [each for each in texts if pa.types.is_string(each.texts.type) and len(each.texts) <= MOST_TEXTS]
    has_other_types = by_name.millis or any(pa.types.is_nested(field.type) for field in fields)
    if not texts or has_other_types or not all(map(by_name.covers, files)):
        return None
    asks_more = by_name.of_filter != {texts[0].column}
    parts: list[pa.Table] = []
    for file in files:
        choose = _chooser(table_at, file, query) if asks_more else None
        rows = read_named_rows(table_at.client.store, file, fields, texts[0], choose)
        if rows is None:
            return None
        parts.append(keep_rows(rows, condition).select(list(query.columns)))
    return join_tables(parts, query.result_schema)


def _scanned(
    client: TableClient, files: Sequence[BaseFile], dataset: ds.FileSystemDataset, query: Query
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a dataset; conditions that statistics cannot evaluate run after reading."""
    condition, columns = query.condition, list(query.columns)
    after = condition is not None and not condition.prunes_exactly
    read = [*columns, *sorted(query.filter_columns - {*columns})] if after else columns
    with _reading_many(client, files, dataset, query):
        scanner = dataset.scanner(
            columns=read,
            filter=None if condition is None else condition.pruning,
            batch_size=BATCH_ROWS,
            batch_readahead=_BATCHES_AHEAD,
            fragment_readahead=_FILES_AHEAD,
        )
        for batch in scanner.to_batches():
            if not after and batch.num_rows:
                yield batch
            elif batch.num_rows:
                yield from keep_rows(pa.Table.from_batches([batch]), condition).select(columns).to_batches()


@contextmanager
def _reading_many(
    client: TableClient, files: Sequence[BaseFile], dataset: ds.FileSystemDataset, query: Query
) -> Iterator[None]:
    """Translate Arrow's errors; of missing files the first is named."""
    try:
        with reading(f"one of {len(files)} base files"):
            yield
    except SnapshotExpired:
        missing = next((file.path for file in files if client.store.info(file.path) is None), None)
        raise SnapshotExpired(
            f"{missing or 'a base file'} is gone: a clean removed it after this snapshot was taken; read again"
        ) from None
    except CorruptFile:
        if query.condition is not None and query.condition.may_fail:
            _check_filter(dataset, query)
        raise


def _check_filter(dataset: ds.FileSystemDataset, query: Query) -> None:
    """Raise InvalidFilter if rows are readable and the filter fails: Arrow does both at once.

    Raises:
        InvalidFilter: the filter cannot be evaluated for some row.
    """
    looked_at = sorted(query.filter_columns)
    with suppress(pa.ArrowException, OSError):
        for batch in dataset.scanner(columns=looked_at, batch_size=BATCH_ROWS).to_batches():
            keep_rows(pa.Table.from_batches([batch]), query.condition)


def _groups(
    table_at: TableAt, files: Sequence[BaseFile], query: Query, *, whole_footers: bool = False
) -> list[ds.FileSystemDataset | BaseFile]:
    """Split files into one dataset that Arrow can cast, and single files that need more.

    Args:
        table_at: the table.
        files: the files.
        query: what is read of them.
        whole_footers: the fragments are for others, who may send them to other processes.
    """
    import pyarrow.dataset as ds

    config, by_name = table_at.config, _by_name(table_at, query)

    filesystem, prefix = table_at.client.store.arrow_filesystem()
    if isinstance(filesystem, pafs.PyFileSystem):
        track_arrow_use(filesystem.handler)
    layout = ds.ParquetFileFormat(default_fragment_scan_options=_scan_options())
    plain: dict[BaseFile, ds.ParquetFileFragment] = {}
    special: list[BaseFile] = []
    promises = _promises(table_at.client, config, files, query.schema) if config.drop_partition_columns else {}
    short = {} if whole_footers or promises else _short_fragments(table_at.client.store, files, layout)
    for file in files:
        if not by_name.covers(file):
            special.append(file)
        else:
            promise = promises.get(file.partition)
            plain[file] = short.get(file) or layout.make_fragment(
                prefix + file.path, filesystem, partition_expression=promise
            )
    _check_footers(table_at.client, [each for file, each in plain.items() if file not in short], prefix)
    # Arrow refuses a whole number that a double rounds; Spark and Hudi's other readers round it.
    rounded = [field for field in query.schema if pa.types.is_floating(field.type) and field.name in by_name.asked]
    for file, fragment in list(plain.items()):
        if (by_name.millis and _has_mislabelled(fragment.physical_schema, query.schema, by_name.millis)) or (
            rounded and _is_rounded(fragment.physical_schema, rounded)
        ):
            special.append(file)
            del plain[file]
    groups: list[ds.FileSystemDataset | BaseFile] = list(special)
    if plain:
        groups.insert(0, ds.FileSystemDataset(list(plain.values()), query.schema, layout, filesystem))
    return groups


def _has_mislabelled(stored: pa.Schema, schema: pa.Schema, names: Sequence[str]) -> bool:
    held = set(stored.names)
    return any(name in held and is_mislabelled(stored.field(name).type, schema.field(name).type) for name in names)


def _is_rounded(stored: pa.Schema, fields: Sequence[pa.Field]) -> bool:
    """Return whether a file has whole numbers where the table has floating point numbers that do not hold all of them."""
    # A name that a file has twice has no index.
    types_and_indices = [(field.type, stored.get_field_index(field.name)) for field in fields]
    own = [(now, stored.field(index).type) for now, index in types_and_indices if index >= 0]
    return any(pa.types.is_integer(have) and have.bit_width * 2 > now.bit_width for now, have in own)


@dataclass(frozen=True, slots=True)
class _ByName:
    """Tells which files Arrow can read by the names and types of today.

    Attributes:
        client: the table.
        ids: its columns by id, where files are read by them.
        asked: the columns of the read and of its filter.
        of_filter: those of its filter.
        nested: the nested ones.
        millis: those of milliseconds, which files may have under another label.
    """

    client: TableClient
    ids: ColumnIds | None
    asked: frozenset[str]
    of_filter: frozenset[str]
    nested: Sequence[pa.Field]
    millis: Sequence[str]

    def covers(self, file: BaseFile) -> bool:
        """Return whether a file has the columns so, or not at all."""
        if self.ids is not None and not self.ids.keeps(self.asked, file.instant):
            return False
        return not self.nested or _same_types(self.client, file, self.nested)


def _by_name(table_at: TableAt, query: Query) -> _ByName:
    of_filter = query.filter_columns
    used_columns = of_filter.union(query.columns)
    millis = [
        f.name for f in query.schema if f.name in used_columns and pa.types.is_timestamp(f.type) and f.type.unit == "ms"
    ]
    return _ByName(table_at.client, _ids(table_at), used_columns, of_filter, _nested_fields(query), millis)


def _ids(table_at: TableAt) -> ColumnIds | None:
    return table_at.column_ids() if table_at.client.cache.has_seen_column_ids else None


def reads_by_name(table_at: TableAt, query: Query) -> Callable[[BaseFile], bool]:
    """Return what tells of a base file whether the columns of a query are in it by their names of today, or not at all."""
    return _by_name(table_at, query).covers


def chosen_row_groups(table_at: TableAt, file: BaseFile, query: Query) -> Callable[[pq.ParquetFile], list[int]] | None:
    """Return what chooses the row groups of a base file that a read decodes; None: Arrow does."""
    return None if _by_name(table_at, query).covers(file) else _chooser(table_at, file, query)


def _chooser(table_at: TableAt, file: BaseFile, query: Query) -> Callable[[pq.ParquetFile], list[int]]:
    ids = _ids(table_at)
    column_places = None if ids is None else ids.at(file.instant)

    def choose(parquet: pq.ParquetFile) -> list[int]:
        condition = query.condition
        if condition is None:
            return list(range(parquet.num_row_groups))
        from lakefmt._core.read.partition_guarantees import row_groups_left  # brings the metadata table along

        return row_groups_left(
            parquet.metadata, parquet.schema_arrow, column_places, condition, query.schema, table_at.config
        )

    return choose


def _ahead(client: TableClient) -> dict[str, int]:
    """Return how far a scan reads ahead: Arrow's usual where the store is far away."""
    if not client.store.capabilities.low_latency:
        return {}
    return {"batch_readahead": _BATCHES_AHEAD, "fragment_readahead": max(_FILES_AHEAD, os.cpu_count() or 1)}


def _scan_options() -> ds.ParquetFragmentScanOptions:
    import pyarrow.dataset as ds

    # Verify page checksums where present: a flipped bit is an error.
    return ds.ParquetFragmentScanOptions(page_checksum_verification=True)


def _check_footers(client: TableClient, fragments: Sequence[ds.ParquetFileFragment], prefix: str) -> None:
    """Raise for files whose footers contradict themselves; the scan uses the footers loaded here."""

    def check(fragment: ds.ParquetFileFragment) -> None:
        with reading(fragment.path.removeprefix(prefix)):
            check_row_counts(fragment.metadata)

    if len(fragments) == 1:
        check(fragments[0])
    elif fragments:
        # Of footers that are at hand more threads than processors take turns, and each takes memory of its own.
        most = (os.cpu_count() or 1) if client.store.capabilities.low_latency else _FOOTER_THREADS
        with ThreadPoolExecutor(min(most, _FOOTER_THREADS, len(fragments))) as pool:
            list(pool.map(check, fragments))


def _nested_fields(query: Query) -> list[pa.Field]:
    """Return the requested nested columns; all of them if the filter uses one."""
    nested = [field for field in query.schema if pa.types.is_nested(field.type)]
    if not nested:
        return nested
    condition = query.condition
    if condition is not None and filter_columns(condition.exact, pa.schema(nested), query.schema):
        return nested
    columns = set(query.columns)
    return [field for field in nested if field.name in columns]


def _same_types(client: TableClient, file: BaseFile, fields: Sequence[pa.Field]) -> bool:
    stored = client.reader.footer(file).schema
    held = set(stored.names)
    return all(f.name not in held or stored.field(f.name).type.equals(f.type) for f in fields)


def _reconciled(table_at: TableAt, file: BaseFile, query: Query) -> Iterator[pa.Table]:
    """Yield the rows of a file that Arrow cannot read by names, row group by row group."""
    config, ids, choose = table_at.config, _ids(table_at), _chooser(table_at, file, query)
    if ids is not None and ids.at(file.instant) is not None:
        used_columns = {*query.columns, *query.filter_columns}
        schema = pa.schema([field for field in query.schema if field.name in used_columns])
        names = [RECORD_KEY, *(n for n in schema.names if n != RECORD_KEY)]
        for rows in table_at.row_reader().row_groups(file, names, choose):
            yield keep_rows(reconcile(rows, schema), query.condition).select(list(query.columns))
        return
    made = (
        dropped_values(table_at.client.key_spec(config), file.partition, query.schema)
        if config.drop_partition_columns
        else {}
    )
    for rows in table_at.client.reader.row_groups(file, None, choose):
        for name, value in made.items():
            if name not in rows.column_names:
                rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        yield keep_rows(reconcile(rows, query.schema), query.condition).select(list(query.columns))


# ---------------------------------------------------------------------------------- dropped
# partition columns


def _promises(
    client: TableClient, config: TableConfig, files: Sequence[BaseFile], schema: pa.Schema
) -> dict[PartitionPath, pc.Expression]:
    """Return per partition the column values of its path, with which Arrow fills missing columns."""
    promises = {}
    spec = client.key_spec(config)
    for partition in {file.partition for file in files}:
        values = dropped_values(spec, partition, schema)
        conditions = [
            pc.field(name) == value if value.is_valid else pc.field(name).is_null() for name, value in values.items()
        ]
        promises[partition] = reduce(lambda a, b: a & b, conditions)
    return promises


def _short_fragments(
    store: ObjectStore, files: Sequence[BaseFile], layout: ds.ParquetFileFormat
) -> dict[BaseFile, ds.ParquetFileFragment]:
    """Return fragments of those files that have a large key filter, without it; their row counts are checked.

    An Arrow dataset reads the whole footer of each file and holds it as long as it lives: 6 MB for a file of 400,000 rows, whose
    key filter has 2.6 MB. A dataset that is made from a ``_metadata`` file takes the footers from there; that file is written to
    memory only.

    Args:
        store: the table's.
        files: of other files none is returned.
        layout: how they are read.

    Raises:
        SnapshotExpired: a file no longer exists.
        CorruptFile: a footer contradicts itself.
    """
    filesystem, prefix = store.arrow_filesystem()
    large = [file for file in files if file.size > LARGE_FOOTER]
    if len(large) < _SEVERAL_FILES or not isinstance(filesystem, pafs.LocalFileSystem):
        return {}
    alike: list[tuple[pq.FileMetaData, dict[str, BaseFile]]] = []
    for file in large:
        with reading(file.path):
            with filesystem.open_input_file(prefix + file.path) as source:
                short = short_footer(source, near=True)
            if short is None or not short.metadata.num_row_groups:
                continue
            check_row_counts(short.metadata)
        short.metadata.set_file_path(file.path)
        for metadata, named in alike:
            if _same_columns(metadata, short.metadata):
                metadata.append_row_groups(short.metadata)
                named[file.path] = file
                break
        else:
            alike.append((short.metadata, {file.path: file}))
    found: dict[BaseFile, ds.ParquetFileFragment] = {}
    for metadata, named in alike:
        fragments = _fragments_of(store, filesystem, prefix, metadata, layout)
        found |= {named[each.path]: each for each in fragments if each.path in named}
    return found


def _same_columns(metadata: pq.FileMetaData, other: pq.FileMetaData) -> bool:
    declared = [(each.metadata or {}).get(_ARROW_SCHEMA) for each in (metadata, other)]
    return declared[0] == declared[1] and bool(parquet_schema(metadata).equals(parquet_schema(other)))


def _fragments_of(
    store: ObjectStore,
    filesystem: pafs.LocalFileSystem,
    prefix: str,
    metadata: pq.FileMetaData,
    layout: ds.ParquetFileFormat,
) -> list[ds.ParquetFileFragment]:
    import pyarrow.dataset as ds

    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    footers = sink.getvalue()

    def opened(path: str) -> pa.NativeFile:
        return pa.BufferReader(footers) if path == _ALL_FOOTERS else filesystem.open_input_file(prefix + path)

    view = arrow_view(store, opened)
    track_arrow_use(view.handler)
    return list(ds.ParquetDatasetFactory(_ALL_FOOTERS, view, layout).finish().get_fragments())
