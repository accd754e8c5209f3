"""Choose the file slices that a read opens, and report what left out the others.

In this order: partition values, a record index or a secondary index, the statistics of partitions, those of files,
expression indexes, key filters. What Parquet footers say of row groups is left to the scan; :func:`explain_read` opens
footers, but reads no rows.

What is said of files stays right as long as the files are there, so they serve every snapshot. An index of keys and the
statistics of partitions say what is stored now: they serve the newest state, and only when nothing was completed while
they were read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from math import prod
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakefmt._core.config.settings import Settings, resolve_settings
from lakefmt._core.config.table_config import TableConfig, merge_rule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.listing import FileListing
from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.filegroups.reader import parquet_file, reading
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.parquet.base_file import check_row_counts
from lakefmt._core.keys import KeySpec, build_record_keys
from lakefmt._core.metadata.index_definitions import IndexDefinition
from lakefmt._core.metadata.layout import EMPTY_PARTITION, PartitionKind, kind_of_partition
from lakefmt._core.metadata.reading.index_readers import lookup_locations, lookup_record_keys
from lakefmt._core.metadata.reading.listing import MetadataListing
from lakefmt._core.metadata.reading.reader import MetadataTable, ready_partitions
from lakefmt._core.read.filter_terms import Condition
from lakefmt._core.read.filters import Filter, computing
from lakefmt._core.read.scan import Query, check_query_type, chosen_row_groups, plan_query, prune_partitions
from lakefmt._core.read.skipping._by_statistics import listed_leaves, partitions_by_statistics, slices_by_statistics
from lakefmt._core.read.skipping.guarantees import Leaf, alterations, statistic_columns
from lakefmt._core.read.snapshot_files import covers_archived, pinned_slices
from lakefmt._core.schema.types import field_at
from lakefmt._core.storage.arrow_filesystem import track_arrow_use
from lakefmt._core.values import RECORD_KEY, PartitionPath, TableType
from lakefmt.errors import FormatError, SnapshotExpired, UnsupportedError

__all__ = [
    "Groups",
    "ReadReport",
    "Selection",
    "SkippingStep",
    "UnusedIndex",
    "chosen_by_statistics",
    "explain_read",
    "groups_of_keys",
    "groups_of_values",
    "indexed_values",
    "record_keys_of_condition",
    "secondary_indexes",
    "select_slices",
    "step_of",
]

#: File groups: partition path and file id of each.
Groups = frozenset[tuple[PartitionPath, str]]
T = TypeVar("T")
_log = logging.getLogger("lakefmt.read")


@dataclass(frozen=True, slots=True)
class SkippingStep:
    """What was left to be read after one step.

    Attributes:
        name: what left files out: ``partition values``, ``partition_stats``, ``column_stats``, ``record_index``, the name of
            a secondary index, or ``footers``; first ``stored``, everything that the query type reads.
        partitions: partitions with files.
        file_groups: file groups.
        files: base files and logs.
        size_bytes: their bytes; of base files after ``footers``, the bytes of the row groups.
    """

    name: str
    partitions: int
    file_groups: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class UnusedIndex:
    """Statistics or an index of the table that this read does not use, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReadReport:
    """What a read with a filter would open.

    Attributes:
        instant: the newest commit that is read; None for an empty table.
        steps: what was left after each step; the last one is what is read.
        unused: what did not take part.
    """

    instant: str | None
    steps: tuple[SkippingStep, ...]
    unused: tuple[UnusedIndex, ...] = ()

    def __str__(self) -> str:
        first, last = self.steps[0], self.steps[-1]
        lines = [
            f"reads {last.files:,} of {first.files:,} files, {last.size_bytes:,} of {first.size_bytes:,} bytes"
            + (f", as of {self.instant}" if self.instant else "")
        ]
        width = max(len(step.name) for step in self.steps)
        lines.append(f"  {'left by':{width}}  {'partitions':>10}  {'file groups':>11}  {'files':>9}  {'bytes':>15}")
        lines += [
            f"  {step.name:{width}}  {step.partitions:>10,}  {step.file_groups:>11,}  {step.files:>9,}  {step.size_bytes:>15,}"
            for step in self.steps
        ]
        lines += [f"  {index.name} not used: {index.reason}" for index in self.unused]
        return "\n".join(lines)


def step_of(name: str, slices: Sequence[FileSlice]) -> SkippingStep:
    """Return the step after which these slices are left."""
    groups = {(file_slice.partition, file_slice.file_id) for file_slice in slices}
    return SkippingStep(
        name,
        len({file_slice.partition for file_slice in slices}),
        len(groups),
        sum(len(file_slice.paths) for file_slice in slices),
        sum(file_slice.size_bytes for file_slice in slices),
    )


#: Of as many keys the places are made distinct sooner one by one.
_FEW_LOOKED_UP_KEYS: Final = 64


def groups_of_keys(table: MetadataTable, keys: pa.Array, partitions: Sequence[PartitionPath] | None) -> Groups:
    """Return the file groups that have rows with these record keys.

    Parameters:
        table: the metadata table.
        keys: record keys, strings.
        partitions: the only data partitions that matter; None: all.

    Raises:
        CorruptFile: the record index is damaged, or a file group of it is missing.
    """
    locations = lookup_locations(table, keys, partitions)
    if len(locations) > _FEW_LOOKED_UP_KEYS:
        locations = locations.group_by(["partition", "file_id"], use_threads=False).aggregate([])
    pairs = zip(locations["partition"].to_pylist(), locations["file_id"].to_pylist(), strict=True)
    return frozenset((PartitionPath("" if path == EMPTY_PARTITION else path), file_id) for path, file_id in pairs)


def groups_of_values(
    table: MetadataTable, index: IndexDefinition, values: pa.Array, partitions: Sequence[PartitionPath] | None
) -> Groups:
    """Return the file groups that have rows in which the column of a secondary index has one of some values.

    Parameters:
        table: the metadata table.
        index: the secondary index.
        values: of the column's type.
        partitions: the only data partitions that matter; None: all.

    Raises:
        CorruptFile: an index is damaged, or a file group of it is missing.
    """
    return groups_of_keys(table, lookup_record_keys(table, index, values), partitions)


def secondary_indexes(table_at: TableAt) -> list[IndexDefinition]:
    """Return the secondary indexes that readers may use, in the order in which they were made."""
    names = {
        name for name in ready_partitions(table_at.config) if kind_of_partition(name) is PartitionKind.SECONDARY_INDEX
    }
    if not names:
        return []
    from lakefmt._core.metadata.manage import load_definitions  # needed only for these

    definitions = load_definitions(table_at.client, table_at.config)
    return [each for name, each in definitions.items() if name in names and len(each.columns) == 1]


#: More keys are not looked up: a scan costs less.
_MOST_LOOKED_UP_KEYS = 10_000


def record_keys_of_condition(condition: Condition, spec: KeySpec, schema: pa.Schema) -> pa.Array | None:
    """Return the record keys of which every selected row has one; None: any key may be selected.

    Parameters:
        condition: the filter.
        spec: how the table makes keys.
        schema: the table's columns.

    Example:
        >>> from lakefmt._core.keys import plan_key_spec
        >>> from lakefmt._core.read.filters import parse_filter
        >>> schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
        >>> condition = parse_filter("a in (1, 2) and b = 'x'", schema)
        >>> record_keys_of_condition(condition, plan_key_spec(["a", "b"], None), schema).to_pylist()
        ['a:1,b:x', 'a:2,b:x']
    """
    if RECORD_KEY in condition.values:
        return condition.values[RECORD_KEY].cast(pa.string())
    names = spec.record_key_fields
    if not names or spec.unsupported or spec.prefixed is None:
        return None
    # Engines differ in the texts of dates.
    columns = [
        None if values is None or pt.is_date(values.type) else values
        for values in (_lookable(condition, name, schema) for name in names)
    ]
    named = [column for column in columns if column is not None]
    if len(named) < len(names) or not 0 < prod(map(len, named)) <= _MOST_LOOKED_UP_KEYS:
        return None
    places = np.indices([len(column) for column in named]).reshape(len(named), -1)
    rows = [column.take(pa.array(numbers)) for column, numbers in zip(named, places, strict=True)]
    return build_record_keys(spec, pa.table(rows, names=list(names)))


def indexed_values(condition: Condition, column: str, schema: pa.Schema) -> pa.Array | None:
    """Return the values of an indexed column of which every selected row has one; None: any value may be selected.

    Parameters:
        condition: the filter.
        column: its name, with dots when it is nested.
        schema: the table's columns.
    """
    values = _lookable(condition, column, schema)
    return values if values is not None and len(values) <= _MOST_LOOKED_UP_KEYS else None


def _lookable(condition: Condition, name: str, schema: pa.Schema) -> pa.Array | None:
    """Return the values that a condition names of a column whose values have one text each."""
    values, field = condition.values.get(name), field_at(schema, name)
    if values is None or field is None or not values.type.equals(field.type):
        return None
    if pt.is_string(field.type) or pt.is_large_string(field.type):
        # An empty text has another form in some keys.
        return None if pc.index(values, "").as_py() >= 0 else values.cast(pa.string())
    return values if pt.is_int32(field.type) or pt.is_int64(field.type) or pt.is_date32(field.type) else None


_SKIPPING_SETTING = "hoodie.enable.data.skipping"
_FAILURE_SETTING = "hoodie.fileIndex.dataSkippingFailureMode"
_COLUMN_STATS = PartitionKind.COLUMN_STATS.value
_PARTITION_STATS = PartitionKind.PARTITION_STATS.value
_RECORD_INDEX = PartitionKind.RECORD_INDEX.value
_BLOOM_FILTERS = PartitionKind.BLOOM_FILTERS.value
_CUSTOM_MERGE = "rows are merged by a function of one's own, which may return values that no file has"
_NO_META_COLUMNS = "record keys, which have no statistics here, tell whether those of a partition have all rows"
_NOT_LISTED = "other writers keep no statistics of the columns of the filter any more"
_NO_COLUMN = "the filter compares no column that statistics tell of"
_NO_VALUES = "an Arrow expression is applied by Arrow, and names no keys or values here: SQL text and tuples do"
_FLOATS = "Arrow would compare statistics with NaN in an Arrow expression on floating point numbers: SQL text and tuples do not"
_ALTERED = "the columns of the filter were altered since files were written"
#: The footers of as many files cost less than their statistics: on stores that take long to answer, and on others. A footer
#: holds a bloom filter of 400 KB as a rule, which a read of the footer reads as well.
FEW_FILES, FEW_NEAR_FILES = 8, 12
FEW_PARTITIONS = 8


@dataclass(frozen=True)
class Selection:
    """The slices that a read opens, and how they were chosen.

    Attributes:
        slices: with their logs, unless base files alone are read.
        steps: what was left after each step, when that was asked for.
        unused: statistics and indexes that the table has and that did not take part.
    """

    slices: list[FileSlice]
    steps: tuple[tuple[str, list[FileSlice]], ...] = ()
    unused: tuple[UnusedIndex, ...] = ()


def select_slices(
    table_at: TableAt, plan: Query, query: str, listing: FileListing | None = None, *, explained: bool = False
) -> Selection:
    """Return the slices of a snapshot that may have rows of a read.

    Parameters:
        table_at: the table, at one moment.
        plan: columns and filter.
        query: ``snapshot`` or ``read_optimized``.
        listing: lists the files of the snapshot; None: it is chosen now.
        explained: also tell the steps; all files are listed for that.

    Raises:
        SnapshotExpired: files of the snapshot were cleaned.
    """
    selector = _Selector(table_at.client, table_at.state, plan, query, listing=listing)
    selection = selector.select(explained=explained)
    if selector.is_outdated or (selector.relies_on_newest and not _is_newest(table_at)):
        return _Selector(table_at.client, table_at.state, plan, query, newest=False).select(explained=explained)
    return selection


def _is_newest(table_at: TableAt) -> bool:
    """Return whether nothing was completed since the state was loaded."""
    now = table_at.client.timeline_store(table_at.config).load()
    return [(i.time, i.action) for i in now.completed] == [(i.time, i.action) for i in table_at.timeline.completed]


def chosen_by_statistics(table_at: TableAt, slices: list[FileSlice], plan: Query) -> list[FileSlice]:
    """Return the slices that may have rows of a read, by the statistics of their files.

    Parameters:
        table_at: the table, at one moment.
        slices: of any snapshot.
        plan: columns and filter.
    """
    selector = _Selector(table_at.client, table_at.state, plan, "snapshot", newest=False)
    return selector.by_files(slices)


@dataclass
class _Selector:
    """Makes one selection; collects how."""

    client: TableClient
    state: TableState
    plan: Query
    query: str
    newest: bool = True
    listing: FileListing | None = None
    relies_on_newest: bool = False
    is_outdated: bool = False
    unused: list[UnusedIndex] = field(default_factory=list)
    steps: list[tuple[str, Callable[[FileSlice], bool]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = self.state.config
        self._listing = self.listing or self.client.listing(config, self.state.timeline)
        self._ready = ready_partitions(config) if isinstance(self._listing, MetadataListing) else ()
        self._settings: Settings | None = None
        #: The index that named the file groups.
        self._by_key = ""

    @property
    def table_at(self) -> TableAt:
        """The table as it is read."""
        return self.client.at(self.state)

    def select(self, *, explained: bool) -> Selection:
        """Return the selection."""
        partitions, groups = self._narrowed()
        prune = partial(prune_partitions, self.table_at, query=self.plan) if partitions is not None else None
        pin = partial(pinned_slices, self.table_at, listing=self._listing, prune=prune)
        if not explained:
            slices = pin(partitions, groups=groups)
            self._check_places(slices, partitions, groups)
            return Selection(self.by_files(self._as_queried(slices)))
        slices = pin(None)
        self._check_places(slices, partitions, groups)
        slices = self._as_queried(slices)
        left = [("stored", slices)]
        for name, keeps in self.steps:
            slices = [file_slice for file_slice in slices if keeps(file_slice)]
            left.append((name, slices))
        kept = self.by_files(slices, left)
        return Selection(kept, tuple(left), tuple(self.unused))

    def _check_places(
        self, slices: list[FileSlice], partitions: list[PartitionPath] | None, groups: Groups | None
    ) -> None:
        """Note when an index names a file group that the snapshot does not have: what it says of keys is not current."""
        kept = frozenset(partitions or ())
        named = {(path, file_id) for path, file_id in groups or () if path in kept}
        self.is_outdated = not named <= {(file_slice.partition, file_slice.file_id) for file_slice in slices}

    def _as_queried(self, slices: list[FileSlice]) -> list[FileSlice]:
        if self.query == "snapshot":
            return slices
        return [replace(each, logs=()) for each in slices if each.base is not None]

    # ------------------------------------------------------------------------------------------ before files are listed

    def _narrowed(self) -> tuple[list[PartitionPath] | None, Groups | None]:
        """Return the partitions and the file groups that may have rows; None: all of them."""
        if self.plan.condition is None:
            return None, None
        partitions: list[PartitionPath] | None = None
        if self.state.config.is_partitioned:
            partitions = prune_partitions(self.table_at, self._listing.candidates(), self.plan)
            self._note_partitions("partition values", partitions)
        groups = self._groups_by_key(partitions)
        if groups is not None:
            paths = {path for path, _ in groups}
            return sorted(paths if partitions is None else paths.intersection(partitions)), groups
        return self._by_partition_stats(partitions), None

    def _note_partitions(self, name: str, partitions: list[PartitionPath]) -> None:
        kept = frozenset(partitions)
        self.steps.append((name, lambda file_slice: file_slice.partition in kept))

    def _groups_by_key(self, partitions: list[PartitionPath] | None) -> Groups | None:
        """Return the file groups of the rows with the keys, or the indexed values, that the filter names."""
        condition, config = self.plan.condition, self.state.config
        if condition is not None and condition.may_fail and not condition.values and self._is_on(_RECORD_INDEX):
            self._leave_out(_RECORD_INDEX, _NO_VALUES)
            return None
        if condition is None or not condition.values or not self._serves_newest(_RECORD_INDEX):
            return None
        if self.query != "snapshot" and config.table_type is TableType.MERGE_ON_READ:
            # Base files have rows that were deleted or moved since.
            self._leave_out(_RECORD_INDEX, "base files alone are read")
            return None
        keys = record_keys_of_condition(condition, self.client.key_spec(config), self.plan.schema)
        if keys is not None:
            return self._looked_up(_RECORD_INDEX, lambda table: groups_of_keys(table, keys, partitions))
        indexes = self._attempt("secondary indexes", lambda: secondary_indexes(self.table_at)) or ()
        for number, index in enumerate(indexes):
            values = indexed_values(condition, index.columns[0], self.plan.schema)
            if values is None:
                continue
            if number and config.table_type is TableType.MERGE_ON_READ:
                # Hudi 1.2.0 leaves the others as they were when it writes logs: they would lose rows.
                self._leave_out(index.name, "of a merge-on-read table Hudi keeps the first secondary index only")
                continue
            groups = self._looked_up(
                index.name, partial(_groups_by_values, index=index, values=values, partitions=partitions)
            )
            if groups is not None:
                return groups
        return None

    def _looked_up(self, name: str, look: Callable[[MetadataTable], Groups]) -> Groups | None:
        groups = self._of_metadata(name, look)
        if groups is not None:
            self.relies_on_newest, self._by_key = True, name
            self.steps.append((name, lambda file_slice: (file_slice.partition, file_slice.file_id) in groups))
        return groups

    def _by_partition_stats(self, partitions: list[PartitionPath] | None) -> list[PartitionPath] | None:
        if partitions is None or not self._serves_newest(_PARTITION_STATS):
            return partitions
        leaves: list[Leaf] = []
        merges = self.state.config.table_type is TableType.MERGE_ON_READ
        reason = f"{len(partitions)} partitions are listed sooner"
        if len(partitions) > FEW_PARTITIONS:
            leaves, reason = self._leaves(merged=merges and self.query == "snapshot")
            # Those of a partition do not say whether they have its older files.
            leaves = [leaf for leaf in leaves if leaf.since == 0]
            if leaves and not self.state.config.populate_meta_fields:
                leaves, reason = [], _NO_META_COLUMNS
            elif leaves:
                listed = partial(listed_leaves, self.client, self.state.config, leaves)
                leaves, reason = self._attempt(_PARTITION_STATS, listed) or [], _NOT_LISTED
        if not leaves:
            self._leave_out(_PARTITION_STATS, reason)
            return partitions
        kept = self._of_metadata(
            _PARTITION_STATS, lambda table: partitions_by_statistics(table, partitions, leaves, self.plan)
        )
        if kept is None:
            return partitions
        self.relies_on_newest = True
        self._note_partitions(_PARTITION_STATS, kept)
        return kept

    # ------------------------------------------------------------------------------------------- after files are listed

    def by_files(
        self, slices: list[FileSlice], left: list[tuple[str, list[FileSlice]]] | None = None
    ) -> list[FileSlice]:
        """Return the slices that may have rows, by what the metadata table says of their files.

        Parameters:
            slices: of any snapshot.
            left: gets what was left after each step.
        """
        if self.plan.condition is None:
            return slices
        steps = [(_COLUMN_STATS, self.by_column_stats)] if _COLUMN_STATS in self._ready else []
        steps += [(each.name, partial(self._by_expression, each)) for each in self._expression_indexes()]
        steps += [(_BLOOM_FILTERS, self._by_key_filters)] if _BLOOM_FILTERS in self._ready else []
        for name, choose in steps:
            count = len(self.unused)
            slices = choose(slices)
            if left is not None and len(self.unused) == count:
                left.append((name, slices))
        return slices

    def _expression_indexes(self) -> list[IndexDefinition]:
        names = [name for name in self._ready if kind_of_partition(name) is PartitionKind.EXPRESSION_INDEX]
        if not names:
            return []
        from lakefmt._core.metadata.manage import load_definitions  # needed only for these

        definitions = self._attempt("expression indexes", lambda: load_definitions(self.client, self.state.config))
        return [] if definitions is None else [definitions[name] for name in names if name in definitions]

    def _by_expression(self, definition: IndexDefinition, slices: list[FileSlice]) -> list[FileSlice]:
        # Imported here: few tables have such an index.
        from lakefmt._core.read.skipping.by_expression import helps, slices_by_expression

        if not self._is_on(definition.name):
            return slices
        merged = any(file_slice.logs for file_slice in slices)
        reason = self._sooner(slices, merged=merged) or self._attempt(
            definition.name, lambda: helps(definition, self.plan) or ""
        )
        if not reason and merged and not _keeps_values(self.state.config):
            reason = _CUSTOM_MERGE
        if reason:
            self._leave_out(definition.name, reason)
        if reason != "":
            return slices
        kept = self._of_metadata(
            definition.name, lambda table: slices_by_expression(table, definition, slices, self.plan)
        )
        return slices if kept is None else kept

    def _by_key_filters(self, slices: list[FileSlice]) -> list[FileSlice]:
        """Return the slices that may have rows with the record keys of the filter, by the key filters of base files."""
        from lakefmt._core.read.skipping.by_expression import MOST_FILTERS, slices_by_filters

        if self.plan.condition is None or not self._is_on(_BLOOM_FILTERS):
            return slices
        keys = record_keys_of_condition(self.plan.condition, self.client.key_spec(self.state.config), self.plan.schema)
        reason = self._sooner(slices, merged=False)
        if keys is None:
            reason = _NO_VALUES if self.plan.condition.may_fail else "the filter names no record keys"
        elif not reason and len(slices) > MOST_FILTERS:
            reason = f"the filters of {len(slices)} files are too large"
        if keys is None or reason:
            self._leave_out(_BLOOM_FILTERS, reason)
            return slices
        kept = self._of_metadata(_BLOOM_FILTERS, lambda table: slices_by_filters(table, _BLOOM_FILTERS, slices, keys))
        return slices if kept is None else kept

    def _sooner(self, slices: list[FileSlice], *, merged: bool) -> str:
        """Return why files are chosen without the metadata table; the empty text: they are not."""
        if self._by_key:
            return f"{self._by_key} names the file groups"
        if len(slices) <= self._few_files and not merged:
            return f"the footers of {len(slices)} files are read sooner"
        return ""

    def by_column_stats(self, slices: list[FileSlice]) -> list[FileSlice]:
        """Return the slices that may have rows, by the statistics of their files."""
        if self.plan.condition is None or not slices or not self._is_on(_COLUMN_STATS):
            return slices
        merged = any(file_slice.logs for file_slice in slices)
        leaves: list[Leaf] = []
        reason = self._sooner(slices, merged=merged)
        if not reason:
            leaves, reason = self._leaves(merged=merged)
        if not leaves:
            self._leave_out(_COLUMN_STATS, reason)
            return slices
        kept = self._of_metadata(_COLUMN_STATS, lambda table: slices_by_statistics(table, slices, leaves, self.plan))
        return slices if kept is None else kept

    def _leaves(self, *, merged: bool) -> tuple[list[Leaf], str]:
        """Return the columns whose statistics may leave out rows, or why there are none.

        Parameters:
            merged: rows are merged with those of logs.
        """
        if merged and not _keeps_values(self.state.config):
            return [], _CUSTOM_MERGE
        condition = self.plan.condition
        if condition is not None and condition.may_fail and condition.pruning is None:
            return [], _FLOATS
        leaves = statistic_columns(condition, self.plan.schema, self.state.config, merged=merged)
        since = alterations(self.table_at, [leaf.name for leaf in leaves])
        known = [(leaf, since[leaf.name]) for leaf in leaves]
        return [
            leaf._replace(since=each) for leaf, each in known if each is not None
        ], _ALTERED if leaves else _NO_COLUMN

    @property
    def _few_files(self) -> int:
        return FEW_NEAR_FILES if self.client.store.capabilities.low_latency else FEW_FILES

    # ------------------------------------------------------------------------------------------------ what may be used

    def _is_on(self, name: str) -> bool:
        """Return whether the metadata table has an index that readers may use, and data skipping is not turned off."""
        if name not in self._ready:
            return False
        if not self._setting(_SKIPPING_SETTING):
            self._leave_out(name, f"{_SKIPPING_SETTING} is false")
        return bool(self._setting(_SKIPPING_SETTING))

    def _serves_newest(self, name: str) -> bool:
        """Return whether an index may be used that says what is stored now."""
        if not self._is_on(name):
            return False
        if not self.newest or self.state.timeline.bound is not None:
            self._leave_out(name, "it is of the newest state, and an earlier one is read")
            return False
        return True

    def _setting(self, key: str) -> object:
        if self._settings is None:
            self._settings = resolve_settings({}, self.client.options, self.state.config.properties)
        return self._settings.values[key]

    def _leave_out(self, name: str, reason: str) -> None:
        self.unused.append(UnusedIndex(name, reason))

    def _of_metadata(self, name: str, look: Callable[[MetadataTable], T]) -> T | None:
        """Return what the metadata table says; None where it cannot be read."""

        def looked() -> T | None:
            table = self._listing.metadata_table() if isinstance(self._listing, MetadataListing) else None
            return None if table is None else look(table)

        return self._attempt(name, looked)

    def _attempt(self, name: str, look: Callable[[], T | None]) -> T | None:
        """Return what `look` returns; what it cannot read is left out, and the read opens more files.

        Raises:
            CorruptFile, UnsupportedFeature: it cannot be read, and that is to be an error.
        """
        try:
            return look()
        except SnapshotExpired as error:
            reason = str(error)  # cleaned meanwhile
        except (FormatError, UnsupportedError) as error:
            if self._setting(_FAILURE_SETTING) == "strict":
                raise
            _log.warning("%s: %s is not used, more files are read: %s", self.client.store.url, name, error)
            reason = f"it cannot be read: {error}"
        self._leave_out(name, reason)
        return None


def _keeps_values(config: TableConfig) -> bool:
    """Return whether a merged row has no other values than the rows that it is made of."""
    try:
        return merge_rule(config).custom is None
    except UnsupportedError:
        return False


def _groups_by_values(
    table: MetadataTable, index: IndexDefinition, values: pa.Array, partitions: list[PartitionPath] | None
) -> Groups:
    return groups_of_values(table, index, values, partitions)


def explain_read(table_at: TableAt, filter: Filter, query: str) -> ReadReport:
    """Return what a read of a state with a filter would open.

    Parameters:
        table_at: the table, at one moment.
        filter: as for ``Table.read``.
        query: ``snapshot`` or ``read_optimized``.

    Raises:
        InvalidFilter: the filter is not valid.
        SnapshotExpired: files of the state were cleaned.
    """
    check_query_type(query)
    table_at = table_at.client.at(covers_archived(table_at))
    plan = plan_query(table_at.schema(), None, filter, meta_columns=False)
    selection = select_slices(table_at, plan, query, explained=True)
    steps = [step_of(name, slices) for name, slices in selection.steps]
    if plan.condition is not None and plan.condition.pruning is not None:
        steps.append(_step_of_footers(table_at, selection.slices, plan))
    latest = table_at.timeline.latest_commit
    return ReadReport(None if latest is None else latest.time, tuple(steps), selection.unused)


def _step_of_footers(table_at: TableAt, slices: Sequence[FileSlice], plan: Query) -> SkippingStep:
    """Return what is left where the footers of base files leave out row groups; slices with logs are read whole."""
    left, saved = [], 0
    for file_slice in slices:
        size = (
            file_slice.size_bytes
            if file_slice.base is None or file_slice.logs
            else _bytes_to_read(table_at, file_slice.base, plan)
        )
        left += [file_slice] if size else []
        saved += file_slice.size_bytes - size if size else 0
    step = step_of("footers", left)
    return replace(step, size_bytes=step.size_bytes - saved)


def _bytes_to_read(table_at: TableAt, file: BaseFile, plan: Query) -> int:
    """Return the bytes of the row groups that may have rows; of all of them the size of the file."""
    with reading(file.path), computing():
        choose = chosen_row_groups(table_at, file, plan)
        metadata, kept = (
            _row_groups_of_scan(table_at.client, file, plan)
            if choose is None
            else _row_groups_by_footer(table_at.client, file, choose)
        )
    if not metadata.num_rows:
        return 0  # a file whose rows were all deleted says nothing of its columns
    if len(kept) == metadata.num_row_groups:
        return file.size
    groups = [metadata.row_group(number) for number in kept]
    return sum(group.column(number).total_compressed_size for group in groups for number in range(group.num_columns))


def _row_groups_by_footer(
    client: TableClient, file: BaseFile, choose: Callable[[pq.ParquetFile], list[int]]
) -> tuple[pq.FileMetaData, list[int]]:
    """Return a file's footer and the row groups that are left of a file that Arrow does not read by names."""
    filesystem, prefix = client.store.arrow_filesystem()
    with filesystem.open_input_file(prefix + file.path) as source, parquet_file(source) as parquet:
        check_row_counts(parquet.metadata)
        return parquet.metadata, choose(parquet)


def _row_groups_of_scan(client: TableClient, file: BaseFile, plan: Query) -> tuple[pq.FileMetaData, list[int]]:
    """Return a file's footer and the row groups that Arrow's scan reads."""
    import pyarrow.dataset as ds

    filesystem, prefix = client.store.arrow_filesystem()
    if isinstance(filesystem, pafs.PyFileSystem):
        track_arrow_use(filesystem.handler)
    fragment = ds.ParquetFileFormat().make_fragment(prefix + file.path, filesystem)
    if not fragment.metadata.num_rows:
        return fragment.metadata, []
    condition = None if plan.condition is None else plan.condition.pruning
    kept = fragment.subset(filter=condition, schema=plan.schema).row_groups
    return fragment.metadata, [group.id for group in kept]
