"""From file slices to rows (effects): prune, open, project, filter, cast to the table's schema.

Arrow's dataset machinery does the reading: files in parallel, columns projected, row groups skipped by statistics.
Files whose nested columns differ from the table's schema go through :func:`lakefmt.schema.reconcile` instead, because
datasets fill missing struct fields only in newer releases of Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from lakefmt.errors import InvalidInputError, UnsupportedFeature
from lakefmt.filegroups.access import TableAccess, TableState
from lakefmt.filegroups.model import BaseFile, FileSlice
from lakefmt.filegroups.reader import reading
from lakefmt.keys import KeySpec, partition_guarantee
from lakefmt.read.filters import Filter, parse_filter
from lakefmt.schema import reconcile, with_meta_columns
from lakefmt.values import META_COLUMNS, PartitionPath

__all__ = ["Query", "base_files", "plan_query", "prune_partitions", "scan_batches", "scan_table"]

_BATCH_ROWS = 128 * 1024


@dataclass(frozen=True, slots=True)
class Query:
    """What to read: the columns asked for, in order, the filter, and the schema both are over."""

    columns: tuple[str, ...]
    expression: pc.Expression | None
    schema: pa.Schema

    @property
    def result_schema(self) -> pa.Schema:
        """The schema of the answer."""
        return pa.schema([self.schema.field(name) for name in self.columns])


def plan_query(schema: pa.Schema, columns: Sequence[str] | None, filter: Filter, *, meta_columns: bool) -> Query:
    """Return the query: columns checked, filter parsed. Pure.

    Raises:
        InvalidInputError: a column is not there.
        InvalidFilter: the filter cannot be understood.
    """
    full = with_meta_columns(schema)
    unknown = [name for name in columns or () if name not in full.names]
    if unknown:
        raise InvalidInputError(f"no column {', '.join(map(repr, unknown))}; the table has {schema.names}")
    everything = full.names if meta_columns else schema.names
    wanted = everything if columns is None else [*(META_COLUMNS if meta_columns else ()), *columns]
    return Query(tuple(dict.fromkeys(wanted)), parse_filter(filter, full), full)


def prune_partitions(
    access: TableAccess, state: TableState, partitions: Iterable[PartitionPath], query: Query
) -> list[PartitionPath]:
    """Return the partitions that may hold rows of the query, by what their paths promise."""
    found = list(partitions)
    if query.expression is None or not state.config.is_partitioned:
        return found
    spec = access.key_spec(state.config)
    # Arrow simplifies the filter under each path's promise; a path whose filter becomes false is dropped.
    source, layout = pafs.LocalFileSystem(), ds.ParquetFileFormat()
    fragments = [
        layout.make_fragment(str(number), source, partition_expression=_promise(spec, path, query.schema))
        for number, path in enumerate(found)
    ]
    pruner = ds.FileSystemDataset(fragments, query.schema, layout, source)
    kept = {int(fragment.path) for fragment in pruner.get_fragments(filter=query.expression)}
    return [path for number, path in enumerate(found) if number in kept]


def _promise(spec: KeySpec, path: PartitionPath, schema: pa.Schema) -> pc.Expression:
    promise = partition_guarantee(spec, path, schema)
    return pc.scalar(True) if promise is None else promise


def base_files(slices: Iterable[FileSlice]) -> list[BaseFile]:
    """Return the base files of slices.

    Raises:
        UnsupportedFeature: a slice has logs, which lakefmt does not merge yet.
    """
    files = []
    for piece in slices:
        if piece.logs:
            raise UnsupportedFeature(
                f"file group {piece.file_id} has log files: only read_optimized queries work on this table yet"
            )
        if piece.base is not None:
            files.append(piece.base)
    return files


def scan_batches(access: TableAccess, files: Sequence[BaseFile], query: Query) -> Iterator[pa.RecordBatch]:
    """Yield the rows of base files in bounded memory, cast to the query's schema."""
    for group in _groups(access, files, query):
        if isinstance(group, BaseFile):
            with reading(group.path):
                yield from _reconciled(access, group, query).to_batches(max_chunksize=_BATCH_ROWS)
        else:
            with reading("a base file"):
                for batch in group.scanner(
                    columns=list(query.columns),
                    filter=query.expression,
                    batch_size=_BATCH_ROWS,
                    batch_readahead=4,
                    fragment_readahead=2,
                ).to_batches():
                    if batch.num_rows:
                        yield batch


def scan_table(access: TableAccess, files: Sequence[BaseFile], query: Query) -> pa.Table:
    """Return the rows of base files as one table."""
    parts = []
    for group in _groups(access, files, query):
        if isinstance(group, BaseFile):
            parts.append(_reconciled(access, group, query))
        else:
            with reading("a base file"):
                parts.append(group.to_table(columns=list(query.columns), filter=query.expression))
    schema = query.result_schema
    return pa.concat_tables([part.cast(schema) for part in parts]) if parts else schema.empty_table()


def _groups(access: TableAccess, files: Sequence[BaseFile], query: Query) -> list[ds.FileSystemDataset | BaseFile]:
    """Split files into one dataset of those Arrow can cast by itself, and single files that need more."""
    filesystem, prefix = access.store.arrow_filesystem()
    layout = ds.ParquetFileFormat()
    plain, special = [], []
    nested = [f for f in query.schema if pa.types.is_nested(f.type) and f.name in query.columns]
    for file in files:
        if nested and not _same_types(access, file, nested):
            special.append(file)
        else:
            plain.append(layout.make_fragment(prefix + file.path, filesystem))
    groups: list[ds.FileSystemDataset | BaseFile] = list(special)
    if plain:
        groups.insert(0, ds.FileSystemDataset(plain, query.schema, layout, filesystem))
    return groups


def _same_types(access: TableAccess, file: BaseFile, fields: Sequence[pa.Field]) -> bool:
    stored = access.reader.footer(file).schema
    return all(f.name not in stored.names or stored.field(f.name).type.equals(f.type) for f in fields)


def _reconciled(access: TableAccess, file: BaseFile, query: Query) -> pa.Table:
    table = reconcile(access.reader.rows(file), query.schema)
    if query.expression is not None:
        table = table.filter(query.expression)
    return table.select(list(query.columns))
