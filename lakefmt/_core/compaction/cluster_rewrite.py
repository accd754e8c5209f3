"""Rewrite one clustering group: merge the logs of its slices, order the rows, write new file groups (effects).

Slices are read one after the other, base files without logs row group by row group. Rows that are put in an order wait in
temporary files; what is held is the memory of the settings, or one slice with logs if that is more. Rows keep their commit
time and sequence number; only the file name in them changes.

The rings of consistent hashing that a clustering changes are checked, stored before it completes, and marked behind it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import field
from functools import cached_property
from uuid import UUID, uuid5

import numpy as np
import pyarrow as pa

from lakefmt._core.arrays import from_numpy
from lakefmt._core.compaction.cluster_plan import FULL, ClusteringGroup, ClusteringPlan, ClusteringSlice
from lakefmt._core.config.settings import Settings
from lakefmt._core.config.table_config import merge_rule
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.base_writer import NewBaseFile, columns_but_name, named_rows
from lakefmt._core.filegroups.log_reader import read_log_rows
from lakefmt._core.filegroups.merged_slice import merge_logs
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile, join_path
from lakefmt._core.filegroups.reader import BaseFileReader, VirtualColumns
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.names import (
    base_file_name,
    has_bucket_number,
    queue_bucket_of,
    queue_file_id,
    queue_position_of,
)
from lakefmt._core.index import choose_index
from lakefmt._core.index.bucket_ring import HashRing, SplittingIndex, ring_with, splits_buckets
from lakefmt._core.index.bucket_ring_files import RingFiles, mark_ring
from lakefmt._core.schema import avro_to_arrow, reconcile, with_meta_columns
from lakefmt._core.sorting import (
    ColumnScale,
    Layout,
    RowOrder,
    column_scale,
    gather_windows,
    order_column,
    order_columns,
    sort_keys,
    sort_stream,
)
from lakefmt._core.timeline.markers import create_marker
from lakefmt._core.values import RECORD_KEY, FileId, InstantTime, PartitionPath, WriteStat
from lakefmt.errors import CommitConflict, CorruptFile, SnapshotExpired, StorageError, UnsupportedFeature

__all__ = [
    "ORDER_ENTRY",
    "GroupRewrite",
    "changed_rings",
    "index_of_buckets",
    "keep_rings",
    "mark_rings",
    "order_entry",
    "ordered_groups",
]

#: Footer entry of a base file whose rows were ordered by a clustering.
ORDER_ENTRY = "lakefmt.order"
#: Rows of a group that has no order are written in windows of this part of the memory.
_WINDOWS_IN_MEMORY = 8
_BY_SAMPLE = "sample"


def order_entry(order: RowOrder) -> str:
    """Return the order of rows that a base file's footer names.

    Example:
        >>> order_entry(RowOrder(("a", "b")))
        '{"columns": ["a", "b"], "layout": "linear"}'
    """
    return json.dumps({"columns": list(order.columns), "layout": order.layout.value})


def ordered_groups(
    table_at: TableAt, slices: Collection[FileSlice], order: RowOrder
) -> frozenset[tuple[PartitionPath, FileId]]:
    """Return the file groups whose rows have an order already: a clustering wrote it, and nothing changed them since."""
    if not order.columns:
        return frozenset()
    # A footer names the columns as they were called then.
    expected_entry, ids, tops = order_entry(order), table_at.column_ids(), order_columns(order)
    return frozenset(
        (each.partition, each.file_id)
        for each in slices
        if each.base is not None
        and not each.logs
        and (ids is None or ids.keeps(tops, each.base.instant))
        and table_at.client.reader.footer(each.base).entries.get(ORDER_ENTRY) == expected_entry
    )


@dataclass(frozen=True)
class GroupRewrite:
    """What the groups of one clustering have in common.

    Attributes:
        table_at: the table, at one moment.
        settings: codec, filter, memory and durability of the new files.
        time: the clustering's requested time.
        schema_text: the schema of the new files, meta columns included, as Avro JSON.
        order: how the rows of a group are ordered.
        target_bytes: a new file is full at this size.
        attempt: a number that no other attempt at this clustering has.
        memory_bytes: what may be held.
        files: base files and logs of the partitions, by path.
        group_ids: a UUID for each group of the plan, from which the ids of its files are made.
        rings: of the partitions whose buckets are split, merged or renewed, as they are afterwards.
        before_put: called before a file is written; raises when it must not be.
        adopts: a file of the name that another attempt at the group wrote is taken as it is.
    """

    client: TableClient
    state: TableState
    settings: Settings
    time: InstantTime
    schema_text: str
    order: RowOrder
    target_bytes: int
    attempt: int
    memory_bytes: int
    files: Mapping[str, BaseFile | LogFile] = field(default_factory=dict)
    group_ids: Sequence[str] = ()
    rings: Mapping[PartitionPath, HashRing] = field(default_factory=dict)
    before_put: Callable[[], None] | None = None
    adopts: bool = False

    @cached_property
    def _virtual(self) -> VirtualColumns | None:
        return self.client.at(self.state).columns_at(self.time).virtual_columns()

    @cached_property
    def _file_schema(self) -> pa.Schema:
        return avro_to_arrow(self.schema_text)

    @cached_property
    def _schema(self) -> pa.Schema:
        return self._file_schema if self._virtual is None else with_meta_columns(self._virtual.schema)

    @cached_property
    def _reader(self) -> BaseFileReader:
        return self.client.reader.completing(self._virtual)

    def run(self, number: int, group: ClusteringGroup) -> list[WriteStat]:
        """Write the new files of a group.

        Args:
            number: index of the group in its plan.
            group: the slices.

        Raises:
            SnapshotExpired: a file of the plan does not exist any more.
            CorruptFile: a file or block is damaged.
        """
        slices = [self._found(each) for each in group.slices]
        with ExitStack() as stack:
            rows = stack.enter_context(closing(self._ordered(slices)))
            if group.buckets is not None:
                return self._write_buckets(number, group, rows)
            return self._write(number, group, rows)

    # ----------------------------------------------------------------------------------------------------------- reading

    def _found(self, each: ClusteringSlice) -> FileSlice:
        paths = [path for path in each.paths if path not in self.files]
        if paths:
            raise SnapshotExpired(
                f"{paths[0]} is gone, and a pending clustering needs it: withdraw that clustering, then cluster again"
            )
        files = [self.files[path] for path in each.paths]
        base = next((file for file in files if isinstance(file, BaseFile)), None)
        logs = sorted(
            (file for file in files if isinstance(file, LogFile)), key=lambda log: (log.instant, log.version, log.name)
        )
        instant = base.instant if base is not None else logs[0].instant
        return FileSlice(each.partition, each.file_id, instant, base, tuple(logs))

    def _rows(self, file_slice: FileSlice) -> Iterator[pa.Table]:
        if file_slice.logs:
            yield self._merged(file_slice)
        elif file_slice.base is not None:
            for rows in self._reader.row_groups(file_slice.base, columns_but_name(self._schema)):
                yield reconcile(rows, self._schema)

    def _merged(self, file_slice: FileSlice) -> pa.Table:
        base, schema, rule = self._schema.empty_table(), self._schema, merge_rule(self.state.config)
        if file_slice.base is not None:
            names = columns_but_name(schema) if rule.custom is None else schema.names
            base = reconcile(self._reader.rows(file_slice.base, names), schema)
        timeline = self.state.timeline
        logs = read_log_rows(
            self.client.store,
            file_slice,
            schema,
            rule,
            layout=timeline.layout,
            is_committed=lambda time: timeline.is_committed(InstantTime(time)),
            bound=self.time,
            positions=True,
            unstored=self._virtual,
        )
        return merge_logs(base, logs, rule)

    def _ordered(self, slices: list[FileSlice]) -> Generator[pa.Table]:
        stream = (rows for file_slice in slices for rows in self._rows(file_slice))
        if not self.order.columns:
            for window, _ in gather_windows(stream, max(1, self.memory_bytes // _WINDOWS_IN_MEMORY)):
                yield window
            return
        scales = self._scales(slices)
        with closing(sort_stream(stream, lambda rows: sort_keys(rows, self.order, scales), self.memory_bytes)) as rows:
            yield from rows

    def _scales(self, slices: list[FileSlice]) -> dict[str, ColumnScale] | None:
        """Return the scales of the columns of a curve, from a sample of the base files; None: values count as they are."""
        method = self.settings.text("hoodie.layout.optimize.curve.build.method") or ""
        if self.order.layout is Layout.LINEAR or len(self.order.columns) < 2 or method.lower() != _BY_SAMPLE:
            return None
        bases = [file_slice.base for file_slice in slices if file_slice.base is not None]
        sample_size = self.settings.integer("hoodie.layout.optimize.build.curve.sample.size")
        schema = pa.schema([self._schema.field(name) for name in order_columns(self.order)])
        samples = [
            _sampled_rows(reconcile(self._reader.rows(base, schema.names), schema), max(1, sample_size // len(bases)))
            for base in bases
        ]
        if not samples:
            return None
        sample = pa.concat_tables(samples)
        return {name: column_scale(order_column(sample, name)) for name in self.order.columns}

    # ----------------------------------------------------------------------------------------------------------- writing

    def _write(self, number: int, group: ClusteringGroup, tables: Iterable[pa.Table]) -> list[WriteStat]:
        row_bytes = self._row_bytes(group)
        stats: list[WriteStat] = []
        with ExitStack() as stack:
            file: _NewFile | None = None
            for table in tables:
                rows = table
                while rows.num_rows:
                    if file is None:
                        file_id = self._new_file_id(group, number, len(stats))
                        file = self._opened(stack, group.partition, file_id, number, len(stats))
                    room = max(1, int((self.target_bytes - file.size) / row_bytes))
                    file.append(rows.slice(0, room))
                    rows = rows.slice(room)
                    if file.size >= self.target_bytes * FULL:
                        stats.append(file.finish())
                        file = None
            if file is not None:
                stats.append(file.finish())
        return stats

    def _write_buckets(self, number: int, group: ClusteringGroup, tables: Iterable[pa.Table]) -> list[WriteStat]:
        """Write the rows of a group into one file for each of its new buckets that has rows."""
        index, ring = index_of_buckets(self.client.at(self.state), self.settings), self.rings[group.partition]
        nodes = () if group.buckets is None else group.buckets.nodes
        counts = {node.file_id: count for count, node in enumerate(nodes)}
        files: dict[FileId, _NewFile] = {}
        with ExitStack() as stack:
            for rows in tables:
                keys = rows.column(RECORD_KEY).combine_chunks().cast(pa.string())
                for file_id, row_indices in index.rows_by_node(keys, ring):
                    if file_id not in counts:
                        raise CorruptFile(f"a file group of {group.partition!r} has rows of another bucket: {file_id}")
                    if file_id not in files:
                        files[file_id] = self._opened(stack, group.partition, file_id, number, counts[file_id])
                    files[file_id].append(rows.take(from_numpy(row_indices)))
            return [file.finish() for file in files.values()]

    def _row_bytes(self, group: ClusteringGroup) -> float:
        """Return about how many bytes a row takes in a file."""
        bases = [self.files[path] for each in group.slices for path in each.paths]
        footers = [(base.size, self._reader.footer(base).num_rows) for base in bases if isinstance(base, BaseFile)]
        size, rows = sum(size for size, _ in footers), sum(rows for _, rows in footers)
        return max(1.0, size / rows) if rows else 64.0

    def _new_file_id(self, group: ClusteringGroup, number: int, count: int) -> FileId:
        uuid = str(uuid5(UUID(self.group_ids[number]), str(count)))
        if has_bucket_number(uuid):  # one in some ten thousand: it would be taken for a bucket's
            uuid = "f" + uuid[1:]
        bucket = queue_bucket_of(group.slices[0].file_id)
        position = queue_position_of(group.slices[0].file_id)
        if (
            bucket is not None
            and position is not None
            and all(queue_bucket_of(each.file_id) == bucket for each in group.slices)
        ):
            return queue_file_id(bucket, position[0], uuid[-6:], position[1] + count)
        return FileId(f"{uuid}-0")

    def _opened(self, stack: ExitStack, partition: PartitionPath, file_id: FileId, number: int, count: int) -> _NewFile:
        name = base_file_name(file_id, f"{number}-{self.attempt}-{count}", self.time)
        path = join_path(partition, name)
        create_marker(self.client.store, self.time, path, "CREATE")
        return _NewFile(self, stack, partition, file_id, name)


def _sampled_rows(rows: pa.Table, count: int) -> pa.Table:
    if rows.num_rows <= count:
        return rows
    return rows.take(from_numpy(np.linspace(0, rows.num_rows - 1, count).astype(np.int64)))


class _NewFile:
    """A base file of a new file group that is being written; nothing of it is visible before :meth:`finish`."""

    def __init__(
        self, rewrite: GroupRewrite, stack: ExitStack, partition: PartitionPath, file_id: FileId, name: str
    ) -> None:
        self._rewrite, self._partition, self._file_id, self._name = rewrite, partition, file_id, name
        self._path = join_path(partition, name)
        virtual = rewrite._virtual
        self._file = NewBaseFile(
            stack,
            rewrite.client.store,
            self._path,
            rewrite._file_schema,
            rewrite.schema_text,
            rewrite.settings,
            keyed=virtual is None or not virtual.makes_keys,
            adopts=rewrite.adopts,
            memory_bytes=rewrite.memory_bytes,
        )

    @property
    def size(self) -> int:
        """Bytes written so far, with what the key filter will take."""
        return self._file.size

    def append(self, rows: pa.Table) -> None:
        """Write rows that have all their columns."""
        file_rows, virtual = named_rows(rows, self._name), self._rewrite._virtual
        if virtual is not None:
            file_rows = virtual.stored(file_rows, self._partition, self._rewrite._file_schema)
        self._file.append(file_rows)

    def finish(self) -> WriteStat:
        """Give the file its footers and its name.

        Raises:
            StateError: a file of this name exists.
            StorageError: the store does not say whether the file is there.
        """
        order, count = self._rewrite.order, self._file.num_rows
        footers = {ORDER_ENTRY: order_entry(order)} if order.columns else {}
        size = self._file.finish(footers=footers, before_put=self._rewrite.before_put)
        return WriteStat(
            file_id=self._file_id,
            partition_path=self._partition,
            path=self._path,
            num_writes=count,
            num_inserts=count,
            total_write_bytes=size,
            file_size_in_bytes=size,
        )


# ------------------------------------------------------------------------------------------ rings of consistent hashing


def index_of_buckets(table_at: TableAt, settings: Settings) -> SplittingIndex:
    """Return the index of a table whose buckets a plan splits or merges.

    Raises:
        UnsupportedFeature: neither the table nor the call says that it has one.
    """
    index = choose_index(table_at.client, settings, table_at.config, table_at.state)
    if not splits_buckets(index):
        raise UnsupportedFeature(
            "a pending clustering splits or merges the buckets of consistent hashing: name hoodie.index.type=BUCKET and "
            "hoodie.index.bucket.engine=CONSISTENT_HASHING, which the table does not keep"
        )
    return index


def changed_rings(rings: RingFiles, time: InstantTime, plan: ClusteringPlan) -> dict[PartitionPath, HashRing]:
    """Return the rings of a plan's partitions as they are after it; none of a plan without buckets.

    Args:
        rings: the table's.
        time: the requested time of the clustering.
        plan: its groups.

    Raises:
        CommitConflict: the ring of a partition was changed after the plan was made.
        CorruptFile: the plan does not fit the ring, or a ring is damaged.
    """
    after: dict[PartitionPath, HashRing] = {}
    for partition in plan.partitions:
        groups = [group for group in plan.groups if group.partition == partition]
        changes = [group.buckets for group in groups if group.buckets is not None]
        if not changes:
            continue
        ring = rings.stored_ring(partition)
        if ring is None or any(change.sequence != ring.sequence for change in changes):
            raise CommitConflict(
                f"the buckets of partition {partition!r} were changed after the clustering {time} was planned: withdraw it "
                f"(table.cluster(abandon={time!r})), then cluster again"
            )
        sources = [{each.file_id for each in group.slices} for group in groups]
        after[partition] = ring_with(ring, changes, sources, f"the clustering {time}")
    return after


def keep_rings(table_at: TableAt, time: InstantTime, plan: ClusteringPlan) -> None:
    """Store the rings that a clustering brings, before it completes; call under the table lock.

    Raises:
        CommitConflict: the ring of a partition was changed after the plan was made.
        CorruptFile: the plan does not fit the ring, or a ring is damaged.
    """
    rings = RingFiles(table_at, 1)  # every partition of a plan has a ring
    for ring in changed_rings(rings, time, plan).values():
        rings.change(ring)
    rings.keep(time)


def mark_rings(client: TableClient, time: InstantTime, plan: ClusteringPlan) -> None:
    """Mark the rings of a clustering that has completed; when the store fails, the next writer does."""
    for partition in {group.partition for group in plan.groups if group.buckets is not None}:
        with suppress(StorageError):
            mark_ring(client.store, partition, time)
