"""Choose the file slices that a read opens, and report what left out the others.

Each way to leave something out is a :class:`Skipper`, a value; a read folds them, and its report is the same fold. In this
order: partition values, a record index or a secondary index, the statistics of partitions, those of files,
expression indexes, key filters. What Parquet footers say of row groups is left to the scan; :func:`explain_read` opens
footers, but reads no rows.

What is said of files stays right as long as the files are there, so they serve every snapshot. An index of keys and the
statistics of partitions say what is stored now: they serve the newest state, and only when nothing was completed while
they were read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from math import prod
from typing import Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.config.table_config import TableConfig, merge_rule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.listing import FileListing
from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.filegroups.reader import parquet_file, reading
from lakefmt._core.filegroups.table_client import TableAt, TableClient
from lakefmt._core.formats.parquet.base_file import check_row_counts
from lakefmt._core.keys import KeySpec, build_record_keys
from lakefmt._core.metadata.index_readers import lookup_locations, lookup_record_keys
from lakefmt._core.metadata.layout import EMPTY_PARTITION, IndexDefinition, PartitionKind, kind_of_partition
from lakefmt._core.metadata.listing import MetadataListing
from lakefmt._core.metadata.reader import MetadataTable, ready_partitions
from lakefmt._core.notebook import NotebookText
from lakefmt._core.read.filter_terms import Condition
from lakefmt._core.read.filters import Filter, computing
from lakefmt._core.read.partition_guarantees import Leaf, alterations, statistic_columns
from lakefmt._core.read.scan import (
    Query,
    check_query_type,
    chosen_row_groups,
    names_partition_columns,
    plan_query,
    prune_partitions,
)
from lakefmt._core.read.snapshot_files import covers_archived, pinned_slices
from lakefmt._core.read.statistics_selection import (
    MOST_FILTERS,
    helps,
    listed_leaves,
    partitions_by_statistics,
    slices_by_expression,
    slices_by_filters,
    slices_by_statistics,
)
from lakefmt._core.schema.types import field_at
from lakefmt._core.storage.arrow_filesystem import track_arrow_use
from lakefmt._core.values import RECORD_KEY, PartitionPath, TableType
from lakefmt.errors import FormatError, InternalError, SnapshotExpired, UnsupportedError

__all__ = [
    "Candidates",
    "Groups",
    "NotUsed",
    "ReadReport",
    "Selection",
    "Skipper",
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
class ReadReport(NotebookText):
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
    indices = np.indices([len(column) for column in named]).reshape(len(named), -1)
    rows = [column.take(pa.array(numbers)) for column, numbers in zip(named, indices, strict=True)]
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


@dataclass(frozen=True, slots=True)
class NotUsed:
    """Why a skipper leaves nothing out; empty: the filter does not concern it, which is not worth telling."""

    reason: str


@dataclass(frozen=True, slots=True)
class Candidates:
    """What may have rows of a read, before files are listed.

    Attributes:
        partitions: their paths; None: all.
        groups: file groups; None: all of the partitions.
        by: the index that named the file groups.
        without_matches: partitions that statistics left out: what a clean removes there is not missed.
    """

    partitions: list[PartitionPath] | None = None
    groups: Groups | None = None
    by: str = ""
    without_matches: frozenset[PartitionPath] = frozenset()

    def of(self, slices: list[FileSlice]) -> list[FileSlice]:
        """Return the slices that are among them."""
        groups, partitions = self.groups, None if self.partitions is None else frozenset(self.partitions)
        named = slices if groups is None else [each for each in slices if (each.partition, each.file_id) in groups]
        return named if partitions is None else [each for each in named if each.partition in partitions]


@dataclass(frozen=True, slots=True)
class Skipper(Generic[T]):
    """One way to leave out what has no rows of a read.

    Attributes:
        name: in the steps of a report.
        choose: returns what is left, a part of what it is given, or why it does not help. What it cannot read is not an error:
            the read opens more files.
        in_metadata: it reads the metadata table, and can be turned off.
        of_newest: it says what is stored now.
    """

    name: str
    choose: Callable[[_Read, T], T | NotUsed]
    in_metadata: bool = True
    of_newest: bool = False


class _Read:
    """A read of a table at one moment, as skippers see it."""

    def __init__(
        self, table_at: TableAt, plan: Query, query: str, listing: FileListing | None = None, *, newest: bool = True
    ) -> None:
        config = table_at.config
        self.table_at = table_at
        self.plan = plan
        self.condition = plan.condition
        self.query = query
        self.listing = table_at.client.listing(config, table_at.timeline) if listing is None else listing
        #: Partitions of the metadata table that readers may use.
        self.ready = ready_partitions(config) if isinstance(self.listing, MetadataListing) else ()
        #: Indexes that say what is stored now say it of this state.
        self.newest = newest and table_at.timeline.bound is None
        self.is_mor = config.table_type is TableType.MERGE_ON_READ
        client = table_at.client
        self.few_files = FEW_NEAR_FILES if client.store.capabilities.low_latency else FEW_FILES

    @cached_property
    def settings(self) -> Mapping[str, object]:
        """The settings of the handle and the table."""
        return resolve_settings({}, self.table_at.client.options, self.table_at.config.properties).values

    @cached_property
    def keys(self) -> pa.Array | None:
        """The record keys that the filter names; None: it names none."""
        if self.condition is None:
            return None
        return record_keys_of_condition(self.condition, self.table_at.key_spec(), self.plan.schema)

    def metadata(self) -> MetadataTable:
        """Return the metadata table.

        Raises:
            SnapshotExpired: it was dropped.
        """
        table = self.listing.metadata_table() if isinstance(self.listing, MetadataListing) else None
        if table is None:
            raise SnapshotExpired("the metadata table was dropped meanwhile")
        return table

    def attempt(self, name: str, look: Callable[[], T | NotUsed]) -> T | NotUsed:
        """Return what `look` returns, or why it cannot be read.

        Raises:
            CorruptFile, UnsupportedFeature: it cannot be read, and that is to be an error.
        """
        try:
            return look()
        except SnapshotExpired as error:
            return NotUsed(str(error))  # cleaned meanwhile
        except (FormatError, UnsupportedError) as error:
            if self.settings[_FAILURE_SETTING] == "strict":
                raise
            url = self.table_at.client.store.url
            _log.warning("%s: %s is not used, more files are read: %s", url, name, error)
            return NotUsed(f"it cannot be read: {error}")

    def apply(self, skipper: Skipper[T], left: T) -> T | NotUsed:
        """Return what a skipper leaves, or why it is not used."""
        if not skipper.in_metadata:
            return skipper.choose(self, left)
        if not self.settings[_SKIPPING_SETTING]:
            return NotUsed(f"{_SKIPPING_SETTING} is false")
        if skipper.of_newest and not self.newest:
            return NotUsed("it is of the newest state, and an earlier one is read")
        return self.attempt(skipper.name, lambda: skipper.choose(self, left))

    def leaves(self, *, merged: bool) -> list[Leaf] | NotUsed:
        """Return the columns whose statistics may leave out rows.

        Parameters:
            merged: rows are merged with those of logs.
        """
        config = self.table_at.config
        if merged and not _keeps_values(config):
            return NotUsed(_CUSTOM_MERGE)
        condition = self.condition
        if condition is not None and condition.may_fail and condition.pruning is None:
            return NotUsed(_FLOATS)
        leaves = statistic_columns(condition, self.plan.schema, config, merged=merged)
        since = alterations(self.table_at, [leaf.name for leaf in leaves])
        known = [(leaf, since[leaf.name]) for leaf in leaves]
        unaltered = [leaf._replace(since=each) for leaf, each in known if each is not None]
        return unaltered or NotUsed(_ALTERED if leaves else _NO_COLUMN)

    def footers_are_nearer(self, slices: list[FileSlice], by: str, *, merged: bool) -> NotUsed | None:
        """Return why files are chosen without the metadata table; None: they are not."""
        if by:
            return NotUsed(f"{by} names the file groups")
        if len(slices) <= self.few_files and not merged:
            return NotUsed(f"the footers of {len(slices)} files are read sooner")
        return None


def select_slices(
    table_at: TableAt,
    plan: Query,
    query: str,
    listing: FileListing | None = None,
    *,
    explained: bool = False,
    by_keys: bool = True,
) -> Selection:
    """Return the slices of a snapshot that may have rows of a read.

    Parameters:
        table_at: the table, at one moment.
        plan: columns and filter.
        query: ``snapshot`` or ``read_optimized``.
        listing: lists the files of the snapshot; None: it is chosen now.
        explained: also tell the steps; all files are listed for that.
        by_keys: also by the record index and secondary indexes, which know one place of a key that is stored twice.

    Raises:
        SnapshotExpired: files of the snapshot were cleaned.
    """
    selection = _selected(_Read(table_at, plan, query, listing, newest=by_keys), explained=explained)
    if selection is None:  # what is stored now is of another state: the read does without it
        selection = _selected(_Read(table_at, plan, query, newest=False), explained=explained)
    if selection is None:
        raise InternalError("a read relies on the newest state, of which no index was asked")
    return selection


def chosen_by_statistics(table_at: TableAt, slices: list[FileSlice], plan: Query) -> list[FileSlice]:
    """Return the slices that may have rows of a read, by the statistics of their files.

    Parameters:
        table_at: the table, at one moment.
        slices: of any snapshot.
        plan: columns and filter.
    """
    read = _Read(table_at, plan, "snapshot", newest=False)
    return _folded(read, _by_files(read, ""), slices, [])[0]


def _selected(read: _Read, *, explained: bool) -> Selection | None:
    """Return the selection; None: an index says what is stored now, and that is not this state."""
    unused: list[UnusedIndex] = []
    candidates, narrowed = _folded(read, _by_names(read, explained=explained), Candidates(), unused)

    def prune(partitions: Sequence[PartitionPath]) -> list[PartitionPath]:
        left = [path for path in partitions if path not in candidates.without_matches]
        return prune_partitions(read.table_at, left, read.plan)

    pin = partial(pinned_slices, read.table_at, listing=read.listing, prune=prune)
    slices = pin(None) if explained else pin(candidates.partitions, groups=candidates.groups)
    if not _is_current(read, candidates, slices, [skipper for skipper, _ in narrowed]):
        return None
    if read.query != "snapshot":
        slices = [replace(each, logs=()) for each in slices if each.base is not None]
    steps = [("stored", slices)] if explained else []
    for skipper, left in narrowed if explained else ():
        slices = left.of(slices)
        steps.append((skipper.name, slices))
    slices, by_files = _folded(read, _by_files(read, candidates.by), slices, unused)
    steps += [(skipper.name, left) for skipper, left in by_files] if explained else []
    return Selection(slices, tuple(steps), tuple(unused) if explained else ())


def _folded(
    read: _Read, skippers: Iterable[Skipper[T]], left: T, unused: list[UnusedIndex]
) -> tuple[T, list[tuple[Skipper[T], T]]]:
    """Apply skippers one after the other.

    Returns:
        What is left, and what was left after each of those that were used; `unused` gets the others.
    """
    used: list[tuple[Skipper[T], T]] = []
    for skipper in skippers:
        outcome = read.apply(skipper, left)
        if not isinstance(outcome, NotUsed):
            left = outcome
            used.append((skipper, left))
        elif outcome.reason:
            unused.append(UnusedIndex(skipper.name, outcome.reason))
    return left, used


def _is_current(
    read: _Read, candidates: Candidates, slices: list[FileSlice], used: Sequence[Skipper[Candidates]]
) -> bool:
    """Return whether what indexes say is stored now is what the state has."""
    if not any(skipper.of_newest for skipper in used):
        return True
    partitions = frozenset(candidates.partitions or ())
    named = {(path, file_id) for path, file_id in candidates.groups or () if path in partitions}
    if not named <= {(file_slice.partition, file_slice.file_id) for file_slice in slices}:
        return False
    table_at = read.table_at
    now = table_at.client.timeline_store(table_at.config).load()
    return [(i.time, i.action) for i in now.completed] == [(i.time, i.action) for i in table_at.timeline.completed]


# ---------------------------------------------------------------------------------------------- before files are listed


def _by_names(read: _Read, *, explained: bool) -> Iterator[Skipper[Candidates]]:
    """Yield what leaves out partitions and file groups.

    Parameters:
        read: the read.
        explained: also what is known to leave out nothing.
    """
    condition, is_partitioned = read.condition, read.table_at.config.is_partitioned
    if condition is None:
        return
    # Else all files are listed at once, which takes less time than to list the partitions before.
    if is_partitioned and (
        explained or _PARTITION_STATS in read.ready or names_partition_columns(read.table_at, read.plan)
    ):
        yield Skipper("partition values", _by_partition_values, in_metadata=False)
    if _RECORD_INDEX in read.ready and (condition.values or condition.may_fail):
        yield Skipper(_RECORD_INDEX, _by_record_index, of_newest=True)
        asks = read.newest and read.settings[_SKIPPING_SETTING] and not (read.is_mor and read.query != "snapshot")
        if condition.values and read.keys is None and asks:
            yield from _by_secondary_indexes(read, condition)
    if is_partitioned and _PARTITION_STATS in read.ready:
        yield Skipper(_PARTITION_STATS, _by_partition_stats, of_newest=True)


def _by_partition_values(read: _Read, candidates: Candidates) -> Candidates:
    return Candidates(prune_partitions(read.table_at, read.listing.candidates(), read.plan))


def _by_record_index(read: _Read, candidates: Candidates) -> Candidates | NotUsed:
    """Return the file groups of the rows with the keys that the filter names."""
    if read.condition is None or not read.condition.values:
        return NotUsed(_NO_VALUES)
    if read.is_mor and read.query != "snapshot":
        # Base files have rows that were deleted or moved since.
        return NotUsed("base files alone are read")
    if read.keys is None:
        return NotUsed("")
    return _within(candidates, groups_of_keys(read.metadata(), read.keys, candidates.partitions), _RECORD_INDEX)


def _by_secondary_indexes(read: _Read, condition: Condition) -> Iterator[Skipper[Candidates]]:
    """Yield the secondary indexes of columns of which the filter names values."""
    indexes = read.attempt("secondary indexes", lambda: secondary_indexes(read.table_at))
    if isinstance(indexes, NotUsed):
        yield _left_out("secondary indexes", indexes)
        return
    for number, index in enumerate(indexes):
        values = indexed_values(condition, index.columns[0], read.plan.schema)
        if values is not None:
            choose = partial(_by_values, index=index, values=values, is_first=not number)
            yield Skipper(index.name, choose, of_newest=True)


def _left_out(name: str, reason: NotUsed) -> Skipper[T]:
    def choose(read: _Read, left: T) -> T | NotUsed:
        return reason

    return Skipper(name, choose, in_metadata=False)


def _by_values(
    read: _Read, candidates: Candidates, *, index: IndexDefinition, values: pa.Array, is_first: bool
) -> Candidates | NotUsed:
    """Return the file groups of the rows with the indexed values that the filter names."""
    if candidates.groups is not None:
        return NotUsed("")
    if read.is_mor and not is_first:
        # Hudi 1.2.0 leaves the others as they were when it writes logs: they would lose rows.
        return NotUsed("of a merge-on-read table Hudi keeps the first secondary index only")
    return _within(candidates, groups_of_values(read.metadata(), index, values, candidates.partitions), index.name)


def _within(candidates: Candidates, groups: Groups, by: str) -> Candidates:
    paths = {path for path, _ in groups}
    return Candidates(
        sorted(paths if candidates.partitions is None else paths.intersection(candidates.partitions)), groups, by
    )


def _by_partition_stats(read: _Read, candidates: Candidates) -> Candidates | NotUsed:
    """Return the partitions that may have rows, by the statistics of partitions."""
    partitions, config = candidates.partitions, read.table_at.config
    if partitions is None or candidates.groups is not None:
        return NotUsed("")
    if len(partitions) <= FEW_PARTITIONS:
        return NotUsed(f"{len(partitions)} partitions are listed sooner")
    leaves = read.leaves(merged=read.is_mor and read.query == "snapshot")
    if isinstance(leaves, NotUsed):
        return leaves
    # Those of a partition do not say whether they have its older files.
    leaves = [leaf for leaf in leaves if leaf.since == 0]
    if not leaves:
        return NotUsed(_ALTERED)
    if not config.populate_meta_fields:
        return NotUsed(_NO_META_COLUMNS)
    leaves = listed_leaves(read.table_at.client, config, leaves)
    if not leaves:
        return NotUsed(_NOT_LISTED)
    chosen = partitions_by_statistics(read.metadata(), partitions, leaves, read.plan)
    return Candidates(chosen, without_matches=frozenset(partitions).difference(chosen))


# ----------------------------------------------------------------------------------------------- after files are listed


def _by_files(read: _Read, by: str) -> Iterator[Skipper[list[FileSlice]]]:
    """Yield what leaves out file slices.

    Parameters:
        read: the read.
        by: the index that has named the file groups.
    """
    if read.condition is None:
        return
    if _COLUMN_STATS in read.ready:
        yield Skipper(_COLUMN_STATS, partial(_by_column_stats, by=by))
    names = [name for name in read.ready if kind_of_partition(name) is PartitionKind.EXPRESSION_INDEX]
    if names:
        from lakefmt._core.metadata.manage import load_definitions  # needed only for these

        table_at = read.table_at
        definitions = read.attempt("expression indexes", lambda: load_definitions(table_at.client, table_at.config))
        if isinstance(definitions, NotUsed):
            yield _left_out("expression indexes", definitions)
        else:
            known = [definitions[name] for name in names if name in definitions]
            yield from (Skipper(each.name, partial(_by_expression, definition=each, by=by)) for each in known)
    if _BLOOM_FILTERS in read.ready:
        yield Skipper(_BLOOM_FILTERS, partial(_by_key_filters, by=by))


def _by_column_stats(read: _Read, slices: list[FileSlice], *, by: str) -> list[FileSlice] | NotUsed:
    """Return the slices that may have rows, by the statistics of their files."""
    if not slices:
        return slices
    merged = any(file_slice.logs for file_slice in slices)
    leaves = read.footers_are_nearer(slices, by, merged=merged) or read.leaves(merged=merged)
    if isinstance(leaves, NotUsed):
        return leaves
    return slices_by_statistics(read.metadata(), slices, leaves, read.plan)


def _by_expression(
    read: _Read, slices: list[FileSlice], *, definition: IndexDefinition, by: str
) -> list[FileSlice] | NotUsed:

    merged = any(file_slice.logs for file_slice in slices)
    nearer = read.footers_are_nearer(slices, by, merged=merged)
    if nearer is not None:
        return nearer
    reason = helps(definition, read.plan)
    if reason:
        return NotUsed(reason)
    if merged and not _keeps_values(read.table_at.config):
        return NotUsed(_CUSTOM_MERGE)
    return slices_by_expression(read.metadata(), definition, slices, read.plan)


def _by_key_filters(read: _Read, slices: list[FileSlice], *, by: str) -> list[FileSlice] | NotUsed:
    """Return the slices that may have rows with the record keys of the filter, by the key filters of base files."""
    if read.keys is None:
        may_fail = read.condition is not None and read.condition.may_fail
        return NotUsed(_NO_VALUES if may_fail else "the filter names no record keys")
    nearer = read.footers_are_nearer(slices, by, merged=False)
    if nearer is None and len(slices) > MOST_FILTERS:
        nearer = NotUsed(f"the filters of {len(slices)} files are too large")
    return nearer or slices_by_filters(read.metadata(), _BLOOM_FILTERS, slices, read.keys)


def _keeps_values(config: TableConfig) -> bool:
    """Return whether a merged row has no other values than the rows that it is made of."""
    try:
        return merge_rule(config).custom is None
    except UnsupportedError:
        return False


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
    plan = plan_query(table_at.config, table_at.schema(), None, filter, meta_columns=False)
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
        metadata, row_groups = (
            _row_groups_of_scan(table_at.client, file, plan)
            if choose is None
            else _row_groups_by_footer(table_at.client, file, choose)
        )
    if not metadata.num_rows:
        return 0  # a file whose rows were all deleted says nothing of its columns
    if len(row_groups) == metadata.num_row_groups:
        return file.size
    groups = [metadata.row_group(number) for number in row_groups]
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
    row_groups = fragment.subset(filter=condition, schema=plan.schema).row_groups
    return fragment.metadata, [group.id for group in row_groups]
