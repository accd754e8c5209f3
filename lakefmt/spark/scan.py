"""Read a table for Spark: the driver pins a state and cuts it into splits, each task reads one (effects)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from fnmatch import translate
from os import cpu_count

import pyarrow as pa

from lakefmt import open_table
from lakefmt.data_classes import dataclass, replace
from lakefmt.filegroups.model import FileSlice
from lakefmt.filegroups.table_client import TableState
from lakefmt.read.changes import ChangesPlan, plan_changes_read, read_planned_changes
from lakefmt.read.filters import Filter
from lakefmt.read.snapshot import (
    IncrementPlan,
    Snapshot,
    plan_increment_read,
    read_planned_increment,
    reopen_snapshot,
    scan_slices,
)
from lakefmt.read.splits import (
    ChangesSplit,
    ReadSplit,
    changes_of_split,
    choose_split_bytes,
    pack_changes,
    pack_slices,
    plan_splits,
)
from lakefmt.spark.image_text import with_image_texts
from lakefmt.spark.options import ReadCall, parse_read_options
from lakefmt.spark.pushdown import PushedFilter
from lakefmt.spark.types import spark_schema
from lakefmt.values import META_COLUMNS

__all__ = ["PlannedScan", "SparkScan", "SparkSplit", "choose_by_path", "open_scan"]

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
            changes = plan_changes_read(snapshot.client, self.state, self.call.start, self.call.end)
            total = sum(base.size for group in changes.files.groups.values() for base in group.bases)
            sources = pack_changes(changes, self._split_bytes(total, slots))
            left = replace(changes, work=(), files=replace(changes.files, groups={}))
            return PlannedScan(self, tuple(sources), columns=columns, shared=left)
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
        plan = plan_increment_read(client, self.state, call.start, call.end, filters, falls_back=call.falls_back)
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
        whole = self.scan.schema
        return whole if self.columns is None else pa.schema([whole.field(name) for name in self.columns])

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
    table = open_table(path, options=call.settings, storage_options=call.storage)
    snapshot = table.snapshot(call.as_of)
    if call.query == "cdc":
        nothing = replace(plan_changes_read(snapshot.client, snapshot.state, call.start, call.end), work=())
        columns = in_form_of(call, read_planned_changes(snapshot.client, nothing)).schema
    elif call.meta_columns:
        columns = pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *snapshot.schema])
    else:
        columns = snapshot.schema
    return SparkScan(path, call, spark_schema(columns), snapshot.state)
