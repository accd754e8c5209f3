"""Tell what a read would open, and what left out the rest (effects: reads the metadata table and footers, no rows)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefmt.data_classes import replace
from lakefmt.filegroups.model import BaseFile, FileSlice
from lakefmt.filegroups.reader import parquet_file, reading
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.formats.parquet.base_file import check_row_counts
from lakefmt.read.filters import Filter, computing
from lakefmt.read.scan import Query, check_query_type, chosen_row_groups, plan_query
from lakefmt.read.skipping.file_selection import select_slices
from lakefmt.read.skipping.report import ReadReport, SkippingStep, step_of
from lakefmt.read.snapshot_files import covers_archived
from lakefmt.storage.arrow_lifetime import track_arrow_use

__all__ = ["explain_read"]


def explain_read(client: TableClient, state: TableState, filter: Filter, query: str) -> ReadReport:
    """Return what a read of a state with a filter would open.

    Parameters:
        client: the table.
        state: properties and timeline.
        filter: as for ``Table.read``.
        query: ``snapshot`` or ``read_optimized``.

    Raises:
        InvalidFilter: the filter is not valid.
        SnapshotExpired: files of the state were cleaned.
    """
    check_query_type(query)
    state = covers_archived(client, state)
    plan = plan_query(client.schema(state), None, filter, meta_columns=False)
    selection = select_slices(client, state, plan, query, explained=True)
    steps = [step_of(name, slices) for name, slices in selection.steps]
    if plan.condition is not None and plan.condition.pruning is not None:
        steps.append(_after_footers(client, state, selection.slices, plan))
    latest = state.timeline.latest_commit
    return ReadReport(None if latest is None else latest.time, tuple(steps), selection.unused)


def _after_footers(client: TableClient, state: TableState, slices: Sequence[FileSlice], plan: Query) -> SkippingStep:
    """Return what is left where the footers of base files leave out row groups; slices with logs are read whole."""
    left, saved = [], 0
    for file_slice in slices:
        size = (
            file_slice.size_bytes
            if file_slice.base is None or file_slice.logs
            else _bytes_to_read(client, state, file_slice.base, plan)
        )
        left += [file_slice] if size else []
        saved += file_slice.size_bytes - size if size else 0
    step = step_of("footers", left)
    return replace(step, size_bytes=step.size_bytes - saved)


def _bytes_to_read(client: TableClient, state: TableState, file: BaseFile, plan: Query) -> int:
    """Return the bytes of the row groups that may have rows; of all of them the size of the file."""
    with reading(file.path), computing():
        choose = chosen_row_groups(client, state, file, plan)
        metadata, kept = _by_names(client, file, plan) if choose is None else _chosen(client, file, choose)
    if not metadata.num_rows:
        return 0  # a file whose rows were all deleted says nothing of its columns
    if len(kept) == metadata.num_row_groups:
        return file.size
    groups = [metadata.row_group(number) for number in kept]
    return sum(group.column(number).total_compressed_size for group in groups for number in range(group.num_columns))


def _chosen(
    client: TableClient, file: BaseFile, choose: Callable[[pq.ParquetFile], list[int]]
) -> tuple[pq.FileMetaData, list[int]]:
    """Return a file's footer and the row groups that are left of a file that Arrow does not read by names."""
    filesystem, prefix = client.store.arrow_filesystem()
    with filesystem.open_input_file(prefix + file.path) as source, parquet_file(source) as parquet:
        check_row_counts(parquet.metadata)
        return parquet.metadata, choose(parquet)


def _by_names(client: TableClient, file: BaseFile, plan: Query) -> tuple[pq.FileMetaData, list[int]]:
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
