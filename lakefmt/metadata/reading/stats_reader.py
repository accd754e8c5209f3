"""Column statistics as the metadata table has them: by file, and by data partition (effects on reading only)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.metadata.keys import column_key, partition_key
from lakefmt.metadata.layout import PartitionKind
from lakefmt.metadata.merge import combine_records
from lakefmt.metadata.reading._stats_columns import decode_stats, stats_schema
from lakefmt.metadata.reading.reader import MetadataTable, RecordRun, newest_records
from lakefmt.metadata.record_schema import record_schema
from lakefmt.metadata.records import MetadataRecord, decode_record, encode_record

__all__ = ["decode_statistics", "read_stats", "read_stats_of_keys"]


def read_stats(
    table: MetadataTable,
    where: PartitionKind,
    column: str,
    kind: pa.DataType,
    partitions: Iterable[str] | None = None,
) -> pa.Table:
    """Return what values of a column each file, or each data partition, has.

    Parameters:
        table: the metadata table.
        where: ``COLUMN_STATS`` or ``PARTITION_STATS``.
        column: the column's name, with dots when it is nested.
        kind: its type in the table.
        partitions: paths of data partitions; None: all.

    Returns:
        Columns ``name`` (of the file, without directory, or the partition's path), ``min`` and ``max`` (of `kind`; null: not
        known, or only nulls), ``value_count`` (rows, those with null included), ``null_count`` and ``is_tight``. A file that
        is missing is one of which nothing is known.

    Raises:
        CorruptFile: the metadata table is damaged.
    """
    first = column_key(column)
    prefixes = [first] if partitions is None else [first + partition_key(path) for path in partitions]
    return read_stats_of_keys(table, where.value, prefixes, kind)


def decode_statistics(values: pa.BinaryArray, schema: str, kind: pa.DataType) -> pa.Table:
    """Return records of one column as :func:`read_stats` would return them once they are written.

    Parameters:
        values: encoded records.
        schema: their Avro schema, as JSON text.
        kind: the column's type in the table.
    """
    return decode_stats(values, schema, kind, "statistics")


def read_stats_of_keys(
    table: MetadataTable, where: str, prefixes: Sequence[str], kind: pa.DataType, *, nulls_counted: bool = True
) -> pa.Table:
    """Return the statistics whose keys begin with one of some texts.

    Parameters:
        table: the metadata table.
        where: its partition.
        prefixes: how the keys begin.
        kind: the type of the values.
        nulls_counted: the rows that are counted include those with null.

    Returns:
        Columns as of :func:`read_stats`.

    Raises:
        CorruptFile: the metadata table is damaged.
    """
    if not prefixes:
        return stats_schema(kind).empty_table()
    runs = table.lookup_prefixes(where, pa.array([prefix.encode() for prefix in prefixes], pa.binary()))
    statistics = _decoded(runs, kind, nulls_counted)
    several = _keys_of_several(runs)
    # A tight record counts alone, as the newest one does; others are combined with those before them.
    if not len(several) or pc.all(statistics["is_tight"], min_count=0).as_py():
        return statistics
    return _decoded([*runs, _combined(runs, several, table)], kind, nulls_counted)


def _decoded(runs: Sequence[RecordRun], kind: pa.DataType, nulls_counted: bool) -> pa.Table:
    """Return the newest record of every key."""
    newest, schemas = newest_records(runs)
    parts = [
        decode_stats(
            newest.filter(pc.equal(newest["schema"], number))["value"].combine_chunks(),
            schema,
            kind,
            runs[0].what,
            nulls_counted=nulls_counted,
        )
        for number, schema in enumerate(schemas)
        if schema
    ]
    return pa.concat_tables([stats_schema(kind).empty_table(), *parts])


def _keys_of_several(runs: Sequence[RecordRun]) -> pa.Array:
    """Return the keys that were written more than once.

    They are few: files never change. But a log of version 6 grows, and a data partition is written to again and again.
    """
    chunks = [chunk for run in runs if run.values is not None for chunk in run.keys.chunks]
    counts = pa.chunked_array(chunks, pa.binary()).value_counts()
    return counts.field("values").filter(pc.greater(counts.field("counts"), 1))


def _combined(runs: Sequence[RecordRun], several: pa.Array, table: MetadataTable) -> RecordRun:
    """Return a run of what the records of keys that were written more than once say together."""
    combined: dict[bytes, MetadataRecord] = {}
    for run in runs:
        mask = pc.is_in(run.keys, value_set=several)
        keys = run.keys.filter(mask).to_pylist()
        if run.values is None:
            for key in keys:
                combined.pop(key, None)
            continue
        for key, value in zip(keys, run.values.filter(mask).to_pylist(), strict=True):
            record = decode_record(value, run.schema, f"a record of {run.what}")
            combined[key] = record if key not in combined else combine_records(combined[key], record)
    version = table.config.version
    values = [encode_record(record, version) for record in combined.values()]
    arrays = [pa.chunked_array([pa.array(each, pa.binary())]) for each in (list(combined), values)]
    return RecordRun(arrays[0], arrays[1], record_schema(version), runs[0].what)
