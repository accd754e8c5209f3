"""The updates of the metadata table for one instant, and the first records of its partitions (effects on reading only).

Reads the facts that each partition needs and hands them to the planners of :mod:`lakefmt.metadata.updates`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakefmt.config.table_config import TableConfig
from lakefmt.filegroups.model import FileSlice, join_path, parse_files
from lakefmt.metadata.changed_keys.file_groups import changed_file_groups
from lakefmt.metadata.changed_keys.record_index import ChangedKeys, record_index_update
from lakefmt.metadata.collect import FactCollector, files_of_commit, instant_millis
from lakefmt.metadata.expressions.index_updates import (
    expression_updates,
    first_expression_update,
    removed_expression_updates,
)
from lakefmt.metadata.first_keys import FirstKeys
from lakefmt.metadata.index_definitions import IndexDefinition
from lakefmt.metadata.keys import partition_stats_key
from lakefmt.metadata.layout import PartitionKind, kind_of_partition
from lakefmt.metadata.partition_growth import only_adds_files, only_opens_groups, widened_partition_stats
from lakefmt.metadata.record_schema import RecordFormat
from lakefmt.metadata.records import PartitionUpdate, RecordLocation
from lakefmt.metadata.statistics import indexed_columns, is_indexable
from lakefmt.metadata.updates import (
    DataFile,
    KeyChange,
    bloom_filters_update,
    column_stats_update,
    files_update,
    partition_stats_update,
    removed_files_update,
    secondary_index_update,
)
from lakefmt.schema.types import field_at
from lakefmt.storage.api import ObjectInfo
from lakefmt.timeline.commit import CommitMetadata
from lakefmt.timeline.instant import Action
from lakefmt.values import META_COLUMNS, InstantTime, PartitionPath

__all__ = [
    "copies_of_rollback",
    "first_update",
    "stats_columns",
    "updates_of_clean",
    "updates_of_commit",
    "updates_of_rollback",
]

Definitions = Mapping[str, IndexDefinition]

#: Actions of clusterings.
_CLUSTERINGS = frozenset({Action.CLUSTERING.value, Action.REPLACE_COMMIT.value})


def stats_columns(config: TableConfig, collector: FactCollector, definitions: Definitions) -> tuple[str, ...]:
    """Return the columns whose statistics a table's metadata table has.

    Parameters:
        config: the table's properties.
        collector: knows the table's columns.
        definitions: of its indexes; version 6 has none, and all columns are indexed.
    """
    definition = definitions.get(PartitionKind.COLUMN_STATS.value)
    if definition is None:
        names = indexed_columns(collector.schema, meta_columns=False, most=len(collector.schema))
        return (*META_COLUMNS, *names) if config.populate_meta_fields else names
    fields = {name: field_at(collector.schema, name) for name in definition.columns}
    indexable = {name for name, field in fields.items() if field is not None and is_indexable(field.type)} | {
        *META_COLUMNS
    }
    return tuple(name for name in definition.columns if name in indexable)


def updates_of_commit(
    config: TableConfig, form: RecordFormat, collector: FactCollector, definitions: Definitions, commit: CommitMetadata
) -> list[PartitionUpdate]:
    """Return the updates for a commit, deltacommit, replacecommit or compaction.

    Parameters:
        config: the table's properties, with the partitions that the metadata table has.
        form: how records are written.
        collector: reads what is not in the commit.
        definitions: of the table's indexes.
        commit: what the instant wrote.
    """
    kinds = {kind_of_partition(name) for name in config.metadata_partitions}
    written = files_of_commit(commit)
    updates = [files_update(written, form)]
    if kinds <= {PartitionKind.FILES}:
        return updates
    if PartitionKind.COLUMN_STATS in kinds:
        collector.columns = stats_columns(config, collector, definitions)
    collector.with_bloom_filters = PartitionKind.BLOOM_FILTERS in kinds
    adds = only_adds_files(commit)
    has_keys = bool(kinds & {PartitionKind.RECORD_INDEX, PartitionKind.SECONDARY_INDEX})
    befores: list[FileSlice] = []
    # Expression indexes have ranges of whole data partitions.
    if PartitionKind.EXPRESSION_INDEX not in kinds and (only_opens_groups(commit) or (adds and not has_keys)):
        afters, listed = collector.written_slices(commit), None
    else:
        befores, afters = collector.slices({*written, *commit.replaced_file_ids}, commit)
        listed = afters
    new = collector.new_files(afters, commit)
    if PartitionKind.COLUMN_STATS in kinds:
        updates.append(column_stats_update(new, collector.types, form))
    if PartitionKind.PARTITION_STATS in kinds:
        widened = _widened_stats(collector, form, commit) if adds else None
        updates.append(_whole_stats(collector, form, commit, listed) if widened is None else widened)
    if PartitionKind.BLOOM_FILTERS in kinds:
        updates.append(bloom_filters_update(new, form))
    if has_keys:
        columns = secondary_columns(config, definitions)
        keys, rows = changed_file_groups(collector, befores, afters, commit, sorted(set(columns.values())))
        updates += index_updates(config, form, definitions, keys, rows)
    return updates + expression_updates(config, form, collector, definitions, commit, afters)


def _widened_stats(collector: FactCollector, form: RecordFormat, commit: CommitMetadata) -> PartitionUpdate | None:
    """Return the update of ``partition_stats`` from what is stored; None: that does not tell."""
    if collector.stored_statistics is None:
        return None
    added = collector.partition_ranges(collector.written_slices(commit))
    keys = [partition_stats_key(column, path) for path, columns in added.items() for column in columns]
    new: frozenset[str] = frozenset()
    stored = None if collector.remembered_statistics is None else collector.remembered_statistics(keys)
    if stored is None:
        if _are_all_new(collector, added):
            return widened_partition_stats({}, added, collector.types, form, added)
        stored = collector.stored_statistics(keys) if keys else {}
    if collector.listed_partitions is not None and len(stored) < len(keys):
        without = [path for path, columns in added.items() if not _stored_keys(path, columns) & stored.keys()]
        new = frozenset(without).difference(collector.listed_partitions(without) if without else ())
    return widened_partition_stats(stored, added, collector.types, form, new)


def _are_all_new(collector: FactCollector, paths: Collection[str]) -> bool:
    """Return whether none of several data partitions was there before, as with a load: nothing is stored of them."""
    return len(paths) > 1 and collector.listed_partitions is not None and not collector.listed_partitions(paths)


def _stored_keys(path: str, columns: Iterable[str]) -> set[str]:
    return {partition_stats_key(column, path) for column in columns}


def _whole_stats(
    collector: FactCollector, form: RecordFormat, commit: CommitMetadata, listed: Sequence[FileSlice] | None
) -> PartitionUpdate:
    """Return the update of ``partition_stats`` from all files of the data partitions that a commit touched.

    They are the files of `listed`, the slices with the commit; None: they are listed now.
    """
    touched = {*files_of_commit(commit), *commit.replaced_file_ids}
    afters = collector.slices(touched, commit)[1] if listed is None else listed
    ranges = collector.partition_ranges(afters)
    # A partition that lost its last file has none: files that come later are not added to what was there before.
    empty = touched - {each.partition for each in afters}
    removed = [partition_stats_key(column, path) for path in sorted(empty) for column in collector.columns]
    return partition_stats_update(ranges, collector.types, form, removed=removed)


def secondary_columns(config: TableConfig, definitions: Definitions) -> dict[str, str]:
    """Return the secondary indexes of a table and the column that each is on. Pure."""
    return {
        name: definitions[name].columns[0]
        for name in config.metadata_partitions
        if kind_of_partition(name) is PartitionKind.SECONDARY_INDEX and name in definitions
    }


def index_updates(
    config: TableConfig,
    form: RecordFormat,
    definitions: Definitions,
    keys: Sequence[ChangedKeys],
    rows: Sequence[KeyChange],
) -> list[PartitionUpdate]:
    """Return the updates of the record index and of secondary indexes. Pure.

    Parameters:
        config: the table's properties, with the partitions that the metadata table has.
        form: how records are written.
        definitions: of the table's indexes.
        keys: which came and went in the file groups that changed.
        rows: of the same file groups, if there is a secondary index.
    """
    updates = []
    name = PartitionKind.RECORD_INDEX.value
    if name in config.metadata_partitions:
        partitioned = name in definitions and definitions[name].is_partitioned
        updates.append(record_index_update(keys, form, partitioned=partitioned))
    for index, column in secondary_columns(config, definitions).items():
        by_value = definitions[index].version not in (None, "V1")
        updates.append(secondary_index_update(index, column, rows, form, by_value=by_value))
    return updates


def updates_of_clean(
    config: TableConfig,
    form: RecordFormat,
    collector: FactCollector,
    definitions: Definitions,
    record: Mapping[str, Any],
) -> list[PartitionUpdate]:
    """Return the updates for a clean.

    Parameters:
        config: the table's properties, with the partitions that the metadata table has.
        form: how records are written.
        collector: knows the table's columns.
        definitions: of the table's indexes.
        record: the body of the completed clean; empty for one that removed nothing.
    """
    parts = record.get("partitionMetadata") or {}
    removed = {
        str(path): [str(name).rpartition("/")[2] for name in part["successDeleteFiles"]] for path, part in parts.items()
    }
    emptied = [str(path) for path, part in parts.items() if part.get("isPartitionDeleted")]
    updates = [removed_files_update(removed, emptied, form)]
    files = [(path, name) for path, names in removed.items() for name in names]
    if PartitionKind.COLUMN_STATS.value in config.metadata_partitions:
        collector.columns = stats_columns(config, collector, definitions)
        types = {name: collector.types[name] for name in collector.columns}
        updates.append(column_stats_update((), types, form, removed=files))
    if PartitionKind.BLOOM_FILTERS.value in config.metadata_partitions:
        bases = [(path, name) for path, name in files if not name.startswith(".")]
        updates.append(bloom_filters_update((), form, removed=bases))
    return updates + removed_expression_updates(config, form, definitions, files)


def updates_of_rollback(record: Mapping[str, Any], form: RecordFormat) -> list[PartitionUpdate]:
    """Return the updates for a rollback: the log files with command blocks that it wrote, in version 6 only. Pure.

    Parameters:
        record: the body of the completed rollback.
        form: how records are written.
    """
    written: dict[str, dict[str, int]] = {}
    for path, part in (record.get("partitionMetadata") or {}).items():
        logs = part.get("rollbackLogFiles") or {}
        if logs:
            written[str(path)] = {str(name).rpartition("/")[2]: int(size) for name, size in logs.items()}
    return [files_update(written, form)] if written else []


def copies_of_rollback(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the logs that the rollback of a clustering deleted, as a clean tells of files; empty: there were none. Pure.

    A clustering writes base files. Logs with its name are copies that writers had made for its new buckets: their own instants
    have recorded them, and stay.

    Parameters:
        record: the body of the completed rollback.
    """
    if not any(target.get("action") in _CLUSTERINGS for target in record.get("instantsRollback") or ()):
        return {}
    parts = (record.get("partitionMetadata") or {}).items()
    names = {
        path: [str(name).rpartition("/")[2] for name in part.get("successDeleteFiles") or ()] for path, part in parts
    }
    logs = {str(path): [name for name in of_part if name.startswith(".")] for path, of_part in names.items()}
    return {path: {"successDeleteFiles": of_part} for path, of_part in logs.items() if of_part}


def _copied_logs(collector: FactCollector, listed: Mapping[str, Mapping[str, int]]) -> list[DataFile]:
    """Return what the metadata table keeps of the logs that a pending clustering will make visible."""
    waiting = collector.before.timeline.pending_clusterings
    files: list[DataFile] = []
    for path, sizes in listed.items() if waiting else ():
        objects = (ObjectInfo(join_path(path, name), size) for name, size in sizes.items())
        logs = parse_files(PartitionPath(path), objects)[1]
        files += [collector.data_file(log) for log in logs if log.instant in waiting]
    return files


def first_update(
    name: str,
    config: TableConfig,
    form: RecordFormat,
    collector: FactCollector,
    definitions: Definitions,
    listed: Mapping[str, Mapping[str, int]],
    slices: Iterable[FileSlice],
) -> PartitionUpdate | FirstKeys:
    """Return the first records of a partition that is made from what the table has.

    Parameters:
        name: the metadata table's partition.
        config: the table's properties.
        form: how records are written.
        collector: reads files.
        definitions: of the table's indexes, that of this partition among them.
        listed: committed files by data partition, with their sizes in bytes.
        slices: the newest file slices.
    """
    kind = kind_of_partition(name)
    newest = list(slices)
    if kind is PartitionKind.FILES:
        return files_update(listed, form)
    if kind in (PartitionKind.COLUMN_STATS, PartitionKind.PARTITION_STATS):
        collector.columns = stats_columns(config, collector, definitions)
    if kind is PartitionKind.COLUMN_STATS:
        return column_stats_update(
            [*collector.files_of(newest), *_copied_logs(collector, listed)], collector.types, form
        )
    if kind is PartitionKind.PARTITION_STATS:
        return partition_stats_update(collector.partition_ranges(newest), collector.types, form)
    if kind is PartitionKind.BLOOM_FILTERS:
        collector.with_bloom_filters = True
        return bloom_filters_update(collector.files_of(newest), form)
    if kind is PartitionKind.EXPRESSION_INDEX:
        return first_expression_update(config, form, collector, definitions[name], newest)
    if kind is PartitionKind.RECORD_INDEX:
        first = FirstKeys(form, partitioned=name in definitions and definitions[name].is_partitioned)
        for each in newest:
            keys = collector.rows(collector.before, each).column(0)
            first.add(_place_of(each, collector), _one_array(keys))
        return first
    column = definitions[name].columns
    changes = [
        KeyChange(
            _place_of(each, collector),
            collector.rows(collector.before, None, column),
            collector.rows(collector.before, each, column),
        )
        for each in newest
    ]
    by_value = definitions[name].version not in (None, "V1")
    return secondary_index_update(name, column[0], changes, form, by_value=by_value)


def _place_of(file_slice: FileSlice, collector: FactCollector) -> RecordLocation:
    millis = instant_millis(InstantTime(file_slice.instant), collector.before)
    return RecordLocation(file_slice.partition, file_slice.file_id, millis)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.string())
