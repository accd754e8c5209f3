"""Make the updates of the metadata table for one instant, and the first records of its partitions (effects on reading only).

Reads the facts that each partition needs and hands them to the planners of :mod:`lakefmt._core.metadata.updates`.

Statistics of a data partition to which a commit only added files are what was stored, widened by the new files: the cost of a
commit does not grow with the files that are there already (:func:`widened_partition_stats`).

Which keys came and went in a file group is recorded by its writer, who knows which keys a file has that the file before it had not,
and the reverse. What it did not record (another process wrote the file, or its keys were many) is found by comparing the file
slices without and with the instant (:func:`changed_file_groups`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import one_array
from lakefmt._core.config.table_config import TableConfig, merge_rule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.log_reader import LogRows
from lakefmt._core.filegroups.merged_slice import only_rows
from lakefmt._core.filegroups.model import FileSlice, join_path, parse_files
from lakefmt._core.filegroups.reader import BaseFileReader
from lakefmt._core.metadata.collect import FactCollector, IndexedKeys, files_of_commit, instant_millis
from lakefmt._core.metadata.expressions import (
    expression_updates,
    first_expression_update,
    removed_expression_updates,
)
from lakefmt._core.metadata.layout import (
    IndexDefinition,
    PartitionKind,
    kind_of_partition,
    partition_identifier,
    partition_stats_key,
)
from lakefmt._core.metadata.records import (
    ColumnStats,
    MetadataRecord,
    PartitionUpdate,
    RecordFormat,
    RecordLocation,
    RecordType,
    combine_records,
    update_of,
)
from lakefmt._core.metadata.statistics import ColumnRange, column_stats_of, indexed_columns, is_indexable
from lakefmt._core.metadata.updates import (
    ChangedKeys,
    DataFile,
    FirstKeys,
    KeyChange,
    bloom_filters_update,
    column_stats_update,
    compared_keys,
    concatenated,
    files_update,
    lost_keys,
    partition_stats_update,
    record_index_update,
    removed_files_update,
    secondary_index_update,
)
from lakefmt._core.schema.types import field_at
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.instant import Action
from lakefmt._core.timeline.observer import FileKeyChange, keys_of, without
from lakefmt._core.values import (
    IS_DELETED,
    META_COLUMNS,
    RECORD_KEY,
    FileId,
    InstantTime,
    PartitionPath,
    WriteOperation,
    WriteStat,
)

__all__ = [
    "changed_file_groups",
    "first_update",
    "logs_of_rollback",
    "only_adds_files",
    "only_opens_groups",
    "stats_columns",
    "updates_of_clean",
    "updates_of_commit",
    "updates_of_rollback",
    "widened_partition_stats",
]

_SERVICE_OPERATIONS = frozenset({WriteOperation.COMPACT, WriteOperation.LOG_COMPACT, WriteOperation.CLUSTER})
_NO_PREVIOUS_COMMIT = frozenset({"", "null"})


Definitions = Mapping[str, IndexDefinition]
#: Actions of clusterings.
_CLUSTERING_ACTIONS = frozenset({Action.CLUSTERING.value, Action.REPLACE_COMMIT.value})


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
        widened = _stats_update_from_stored(collector, form, commit) if adds else None
        updates.append(_stats_update_from_files(collector, form, commit, listed) if widened is None else widened)
    if PartitionKind.BLOOM_FILTERS in kinds:
        updates.append(bloom_filters_update(new, form))
    if has_keys:
        columns = secondary_columns(config, definitions)
        keys, rows = changed_file_groups(collector, befores, afters, commit, sorted(set(columns.values())))
        updates += index_updates(config, form, definitions, keys, rows)
    return updates + expression_updates(config, form, collector, definitions, commit, afters)


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


def _stats_update_from_stored(
    collector: FactCollector, form: RecordFormat, commit: CommitMetadata
) -> PartitionUpdate | None:
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
        without = [path for path, columns in added.items() if not _partition_stats_keys(path, columns) & stored.keys()]
        new = frozenset(without).difference(collector.listed_partitions(without) if without else ())
    return widened_partition_stats(stored, added, collector.types, form, new)


def _are_all_new(collector: FactCollector, paths: Collection[str]) -> bool:
    """Return whether none of several data partitions was there before, as with a load: nothing is stored of them."""
    return len(paths) > 1 and collector.listed_partitions is not None and not collector.listed_partitions(paths)


def _partition_stats_keys(path: str, columns: Iterable[str]) -> set[str]:
    return {partition_stats_key(column, path) for column in columns}


def _stats_update_from_files(
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


def logs_of_rollback(record: Mapping[str, Any], *, named_by_slice: bool) -> dict[str, list[str]]:
    """Return the logs that a rollback deleted and that other records than its instants' may hold, by data partition. Pure.

    A clustering writes base files: logs with its name are copies that writers had made for its new buckets, and whose own instants
    recorded them. A log of version 6 is named by its file slice: whoever made the metadata table while its instant was pending,
    took it for a committed one.

    Parameters:
        record: the body of the completed rollback.
        named_by_slice: whether the table's logs do not tell their instants.
    """
    targets = record.get("instantsRollback") or ()
    if not named_by_slice and not any(target.get("action") in _CLUSTERING_ACTIONS for target in targets):
        return {}
    logs: dict[str, list[str]] = {}
    for path, part in (record.get("partitionMetadata") or {}).items():
        names = [str(name).rpartition("/")[2] for name in part.get("successDeleteFiles") or ()]
        logs[str(path)] = [name for name in names if name.startswith(".")]
    return {path: names for path, names in logs.items() if names}


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
            first.add(_location_of_slice(each, collector), one_array(keys))
        return first
    column = definitions[name].columns
    changes = [
        KeyChange(
            _location_of_slice(each, collector),
            collector.rows(collector.before, None, column),
            collector.rows(collector.before, each, column),
        )
        for each in newest
    ]
    by_value = definitions[name].version not in (None, "V1")
    return secondary_index_update(name, column[0], changes, form, by_value=by_value)


def _copied_logs(collector: FactCollector, listed: Mapping[str, Mapping[str, int]]) -> list[DataFile]:
    """Return what the metadata table keeps of the logs that a pending clustering will make visible."""
    waiting = collector.before.timeline.pending_clusterings
    files: list[DataFile] = []
    for path, sizes in listed.items() if waiting else ():
        objects = (ObjectInfo(join_path(path, name), size) for name, size in sizes.items())
        logs = parse_files(PartitionPath(path), objects)[1]
        files += [collector.data_file(log) for log in logs if log.instant in waiting]
    return files


def _location_of_slice(file_slice: FileSlice, collector: FactCollector) -> RecordLocation:
    millis = instant_millis(InstantTime(file_slice.instant), collector.before)
    return RecordLocation(file_slice.partition, file_slice.file_id, millis)


# ----------------------------------------------------------------------------------- statistics of partitions that grow


def only_adds_files(commit: CommitMetadata) -> bool:
    """Return whether every file that was live before a commit is live after it.

    Parameters:
        commit: its metadata.

    Example:
        >>> only_adds_files(CommitMetadata(WriteOperation.INSERT)), only_adds_files(CommitMetadata(WriteOperation.COMPACT))
        (True, False)
    """
    if commit.compacted or commit.replaced_file_ids or commit.operation in _SERVICE_OPERATIONS:
        return False
    return all(stat.log_files or stat.prev_commit in _NO_PREVIOUS_COMMIT for stat in commit.stats)


def only_opens_groups(commit: CommitMetadata) -> bool:
    """Return whether a commit wrote base files of new file groups and nothing else."""
    return only_adds_files(commit) and not any(stat.log_files for stat in commit.stats)


def widened_partition_stats(
    stored: Mapping[str, MetadataRecord],
    added: Mapping[str, Mapping[str, ColumnRange]],
    types: Mapping[str, pa.DataType],
    form: RecordFormat,
    new: Collection[str] = (),
) -> PartitionUpdate | None:
    """Return the update of ``partition_stats`` for files that were added; None: all files have to be asked.

    Parameters:
        stored: records of the partition by key, as they were before the commit.
        added: by data partition and column the values of the new files.
        types: the indexed columns' types in the table.
        form: how records are written.
        new: data partitions that had no file before the commit.
    """
    records: dict[str, MetadataRecord] = {}
    for path, columns in added.items():
        for column, values in columns.items():
            key = partition_stats_key(column, path)
            name = partition_identifier(path)
            newer = column_stats_of(values, types[column], name, form.version, is_tight=True)
            older = stored[key].column_stats if key in stored else None
            if older is None:
                widened = newer if path in new else None
            else:
                widened = _widened_record(older, newer)
            if widened is None:
                return None
            records[key] = MetadataRecord(RecordType.PARTITION_STATS, column_stats=widened)
    return update_of(PartitionKind.PARTITION_STATS.value, records, form)


def _widened_record(older: ColumnStats, newer: ColumnStats) -> ColumnStats | None:
    """Return the range of both; None where the older one is no range of live rows, or is of another type."""
    kinds = {stats.value_type for stats in (older, newer) if stats.value_count}
    wrappers = {stats.wrapper for stats in (older, newer) if stats.wrapper is not None}
    if older.is_deleted or not older.is_tight or len(kinds) > 1 or len(wrappers) > 1:
        return None
    value_type = next(iter(kinds), newer.value_type)
    records = [
        MetadataRecord(RecordType.PARTITION_STATS, column_stats=replace(stats, is_tight=False, value_type=value_type))
        for stats in (older, newer)
    ]
    both = combine_records(*records).column_stats
    return None if both is None else replace(both, is_tight=True)


# ---------------------------------------------------------------------------------------------- keys that came and went

#: Operations that move rows to other files without changing them or where a key's file group is.
_OPERATIONS_WITHIN_GROUPS = frozenset({WriteOperation.COMPACT, WriteOperation.LOG_COMPACT})
#: Logs whose deletes are counted once; bytes of rows of file groups that are held, lest they be read a second time.
_MOST_COUNTED_LOGS, _MOST_HELD_BYTES = 100_000, 32 << 20

_FileGroup = tuple[PartitionPath, FileId]
_num_deletes_by_reader: WeakKeyDictionary[BaseFileReader, dict[str, int]] = WeakKeyDictionary()
_num_deletes_guard = Lock()


def changed_file_groups(
    collector: FactCollector,
    befores: Sequence[FileSlice],
    afters: Sequence[FileSlice],
    commit: CommitMetadata,
    columns: Sequence[str] = (),
) -> tuple[list[ChangedKeys], list[KeyChange]]:
    """Return which keys came and went in each file group that a commit changed, and its rows if columns are asked for.

    Parameters:
        collector: reads files of the table.
        befores: the slices without the commit.
        afters: the slices with it.
        commit: what it wrote and replaced.
        columns: columns with a secondary index, which are returned beside the keys.
    """
    if commit.operation in _OPERATIONS_WITHIN_GROUPS or commit.compacted:
        return [], []
    changed = _ChangedGroups(collector, befores, afters, commit, columns)
    by_group = {group: changed.compare(group, counted=commit.counts_new_keys) for group in changed.groups}
    changes = changed.with_kept(by_group)
    if commit.operation is not WriteOperation.DELETE and lost_keys([keys for keys, _ in changes]):
        # A key that was stored twice may be in a group with updates only.
        more = {group: changed.compare(group, counted=False) for group, each in by_group.items() if each is None}
        if any(each is not None for each in more.values()):
            changes = changed.with_kept(by_group | more)
    if collector.indexed_keys is not None and collector.before.config.is_partitioned:
        changes = _without_other_copies(changes, collector.indexed_keys)
    return [keys for keys, _ in changes], [rows for _, rows in changes if rows is not None and columns]


def _without_other_copies(
    changes: Sequence[tuple[ChangedKeys, KeyChange | None]], indexed_keys: IndexedKeys
) -> list[tuple[ChangedKeys, KeyChange | None]]:
    """Return the changes without keys that left a file group while the record index has them in another one.

    A key may be stored in several partitions, of which a global record index names one: that copy stays in the indexes.
    """
    stays = concatenated([keys for change, _ in changes for keys in (change.added, change.kept)])
    left = []
    for change, rows in changes:
        gone = without(change.left, stays)
        location = change.location
        elsewhere = without(gone, indexed_keys(gone, location.partition, location.file_id)) if len(gone) else gone
        if len(elsewhere):
            change = replace(change, left=without(change.left, elsewhere))
            if rows is not None:
                others = pc.invert(pc.is_in(rows.before.column(0), value_set=elsewhere))
                rows = replace(rows, before=rows.before.filter(others))
        left.append((change, rows))
    return left


@dataclass(frozen=True, slots=True)
class _ComparedGroup:
    """What came and went in a file group, its rows as far as they are held, and its slice with the instant."""

    keys: ChangedKeys
    rows: KeyChange | None
    after: FileSlice | None


@dataclass
class _ChangedGroups:
    """The file groups that a commit changed, one after the other; arguments as for :func:`changed_file_groups`."""

    collector: FactCollector
    befores: Sequence[FileSlice]
    afters: Sequence[FileSlice]
    commit: CommitMetadata
    columns: Sequence[str]
    _stats: dict[_FileGroup, list[WriteStat]] = field(default_factory=dict)
    _held_bytes: int = 0

    def __post_init__(self) -> None:
        self._old = {(each.partition, each.file_id): each for each in self.befores}
        self._new = {(each.partition, each.file_id): each for each in self.afters}
        for stat in self.commit.stats:
            self._stats.setdefault((stat.partition_path, stat.file_id), []).append(stat)
        self._millis = instant_millis(self.collector.time, self.collector.before)

    @property
    def groups(self) -> list[_FileGroup]:
        """The file groups that the commit wrote, then those that it replaced."""
        replaced = {(path, file_id) for path, ids in self.commit.replaced_file_ids.items() for file_id in ids}
        return list(dict.fromkeys((*self._stats, *sorted(replaced))))

    def compare(self, group: _FileGroup, *, counted: bool) -> _ComparedGroup | None:
        """Return what came and went in a file group; None: every key was there before, and is there now.

        Parameters:
            group: its data partition and file id.
            counted: what the commit counts tells whether there are new keys.
        """
        collector, location = self.collector, RecordLocation(*group, self._millis)
        before, after, stats = self._old.get(group), self._new.get(group), self._stats.get(group, ())
        only_updates = counted and stats and not any(stat.num_inserts or stat.num_deletes for stat in stats)
        # Rows of logs that are marked as deleted count as updates.
        marks = _marks_deletes(collector) and any(stat.log_files for stat in stats)
        is_whole = only_updates and not self.columns and not marks
        if is_whole and before is not None and not _may_have_deleted(collector, before):
            return None
        if not self.columns and (recorded := self._recorded(before, after)) is not None:
            return _ComparedGroup(ChangedKeys(location, recorded.added, recorded.left), None, after)
        keys = None
        if before is not None and after is not None and before.base == after.base:
            written = {stat.path for stat in stats}
            new = [collector.log_rows(log) for log in after.logs if log.path in written]
            keys = _keys_of_logs(new).unique()
            if not self.columns:
                keys = _without_unchanged_keys(collector, keys, new, location)
                if not len(keys):
                    return None
        return self._read(location, before, after, keys)

    def _recorded(self, before: FileSlice | None, after: FileSlice | None) -> FileKeyChange | None:
        """Return the keys that came and went as the writer of a base file knew them; None: they have to be read."""
        written = self.collector.written_keys
        if written is None or after is None or after.base is None or after.logs:
            return None
        if before is not None and (before.base is None or before.logs):
            return None
        recorded = written.of_file(after.base.path)
        base = None if before is None or before.base is None else before.base.path
        return recorded if recorded is not None and recorded.base == base else None

    def _read(
        self, location: RecordLocation, before: FileSlice | None, after: FileSlice | None, keys: pa.Array | None
    ) -> _ComparedGroup:
        collector = self.collector
        old = collector.rows(collector.before, before, self.columns, keys)
        new = collector.rows(collector.after, after, self.columns, keys)
        added, left = compared_keys(keys_of(old.column(0)), keys_of(new.column(0)))
        size = old.nbytes + new.nbytes
        if self.columns or keys is not None or self._held_bytes + size <= _MOST_HELD_BYTES:
            self._held_bytes += size
            return _ComparedGroup(ChangedKeys(location, added, left), KeyChange(location, old, new), after)
        # Copies: parts of the file's keys would hold all of them.
        return _ComparedGroup(ChangedKeys(location, pa.concat_arrays([added]), pa.concat_arrays([left])), None, after)

    def with_kept(
        self, by_group: dict[_FileGroup, _ComparedGroup | None]
    ) -> list[tuple[ChangedKeys, KeyChange | None]]:
        """Return the changes, each with the keys that left another file group and that it had before and has now."""
        changes = [each for each in by_group.values() if each is not None]
        leaves = [number for number, each in enumerate(changes) if len(each.keys.left)]
        left = concatenated([changes[number].keys.left for number in leaves])
        changes_with_kept = []
        for number, each in enumerate(changes):
            # What left this file group only is not in it.
            is_affected = bool(leaves) and leaves != [number] and each.after is not None
            keys = replace(each.keys, kept=self._kept(each, left)) if is_affected else each.keys
            changes_with_kept.append((keys, each.rows))
        return changes_with_kept

    def _kept(self, change: _ComparedGroup, left: pa.Array) -> pa.Array:
        held, collector = change.rows, self.collector
        rows = collector.rows(collector.after, change.after) if held is None else held.after
        column = rows.column(0)
        return without(keys_of(column.filter(pc.is_in(column, value_set=left))), change.keys.added)


def _without_unchanged_keys(
    collector: FactCollector, keys: pa.Array, logs: Sequence[LogRows], location: RecordLocation
) -> pa.Array:
    """Return keys without those that are in a file group before and after logs: indexed, and not deleted by them.

    So the logs that the file group has had before are not read again with every commit.
    """
    if collector.indexed_keys is None or merge_rule(collector.before.config).custom is not None:
        return keys
    deleted = _keys_of_logs([only_rows(each, each.deletes) for each in logs])
    undeleted_keys = without(keys, deleted)
    return without(keys, collector.indexed_keys(undeleted_keys, location.partition, location.file_id))


def _marks_deletes(collector: FactCollector) -> bool:
    """Return whether rows of logs may delete their key without being counted as deletes."""
    rule = merge_rule(collector.before.config)
    return rule.custom is not None or rule.delete is not None or IS_DELETED in collector.schema.names


def _may_have_deleted(collector: FactCollector, file_slice: FileSlice) -> bool:
    """Return whether the logs of a slice may have deleted keys, which an update would bring back.

    Commits that are not archived tell, of logs that are named by them (from version 8 on); a handle remembers it.
    """
    if not file_slice.logs:
        return False
    timeline = collector.before.timeline
    if timeline.layout == 1 or _marks_deletes(collector):
        return True
    with _num_deletes_guard:
        num_deletes = _num_deletes_by_reader.setdefault(collector.client.reader, {})
    uncounted_logs = {log.path: log.instant for log in file_slice.logs if log.path not in num_deletes}
    active = {instant.time: instant for instant in timeline.commits} if uncounted_logs else {}
    if any(time not in active for time in uncounted_logs.values()):
        return True
    if len(num_deletes) > _MOST_COUNTED_LOGS:
        num_deletes.clear()
    for time in set(uncounted_logs.values()):
        stats = collector.client.at(collector.before).commit_metadata(active[time]).stats
        num_deletes |= {stat.path: stat.num_deletes for stat in stats if stat.log_files}
    return any(num_deletes.get(log.path) != 0 for log in file_slice.logs)


def _keys_of_logs(logs: Sequence[LogRows]) -> pa.Array:
    return concatenated([chunk.cast(pa.string()) for each in logs for chunk in each.table.column(RECORD_KEY).chunks])
