"""What an index that keeps something of its own is given of a table (effects: reads commits and base files)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from lakefmt.filegroups.model import BaseFile
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.formats.names import parse_base_file
from lakefmt.index.api import IndexCommit, IndexContext
from lakefmt.index.key_reader import key_files
from lakefmt.storage.redaction import printable_url
from lakefmt.timeline.conflict import adds_rows
from lakefmt.values import FileId, InstantTime, PartitionPath, WriteStat

__all__ = ["index_commit", "index_context"]


def index_commit(client: TableClient, state: TableState, time: InstantTime, stats: Sequence[WriteStat]) -> IndexCommit:
    """Return a commit for an index.

    Args:
        client: the table.
        state: its properties and timeline; the commit need not be on it yet.
        time: the requested time of the commit.
        stats: its files.
    """
    reader = key_files(client, state)

    def new_keys(number: int) -> pa.ChunkedArray | None:
        stat = stats[number]
        name = parse_base_file(stat.file_name)
        if name is None or not adds_rows(stat):
            return None
        size = stat.file_size_in_bytes
        return reader.keys(BaseFile(stat.partition_path, stat.file_name, stat.file_id, name.write_token, time, size))

    return IndexCommit(time, stats, new_keys)


def index_context(client: TableClient, state: TableState, options: Mapping[str, object]) -> IndexContext:
    """Return what an index may ask of the table as it is in `state`.

    Args:
        client: the table.
        state: its properties and timeline.
        options: the settings of the call.
    """
    timeline = state.timeline
    instants = {instant.time: instant for instant in timeline.commits}

    def commit(time: InstantTime) -> IndexCommit:
        return index_commit(client, state, time, client.commit_metadata(state, instants[time]).stats)

    def stored_keys() -> Iterator[tuple[PartitionPath, FileId, InstantTime, pa.ChunkedArray]]:
        reader = key_files(client, state)
        for file_slice in client.slices(state):
            if file_slice.base is not None:
                yield file_slice.partition, file_slice.file_id, file_slice.base.instant, reader.keys(file_slice.base)

    return IndexContext(
        printable_url(client.store.url),
        options,
        list(instants),
        min(timeline.pending_times, default=None),
        timeline.is_committed,
        commit,
        stored_keys,
    )
