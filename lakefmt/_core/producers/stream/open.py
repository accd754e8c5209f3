"""Opens a stream (effects)."""

from __future__ import annotations

import logging

from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.producers.stream.committing import commit_options, has_record_keys
from lakefmt._core.producers.stream.core import StreamCore
from lakefmt._core.producers.stream.opening import Finish, SegmentWriter, recover_others
from lakefmt._core.producers.stream.options import FlushMode, StreamOptions
from lakefmt._core.producers.stream.rows import FollowedColumns
from lakefmt._core.producers.stream.stream import AddColumns, Stream
from lakefmt._core.segments.names import ANONYMOUS, RowOperator, check_writer_id
from lakefmt.errors import InvalidInputError

__all__ = ["open_row_stream"]

_log = logging.getLogger("lakefmt.streams")


def open_row_stream(
    client: TableClient,
    operation: str | None,
    writer_id: str | None,
    options: StreamOptions,
    finish: Finish,
    add_columns: AddColumns,
) -> Stream:
    """Open a stream; see ``Table.open_stream``."""
    state = client.load()
    table_at = client.at(state)
    keyed = has_record_keys(table_at)
    if keyed and operation == "append":
        raise InvalidInputError("the table has keys: a stream into it needs operation='upsert' (CDC), not 'append'")
    if keyed and options.flush_mode is FlushMode.AUTO_FLUSH_BACKGROUND:
        _log.info("%s has keys: buffers of a stream are written one after the other", client.store.url)
    stream = f"{ANONYMOUS}{client.ids.new_uuid()}" if writer_id is None else check_writer_id(writer_id)
    if writer_id is not None and writer_id.startswith(ANONYMOUS):
        raise InvalidInputError(f"a writer id must not begin with {ANONYMOUS!r}")
    settings = commit_options(client, options.properties)
    recover_others(client, settings, finish, left_out=stream)
    writer = SegmentWriter.open(client, stream, settings, finish, options.lease_interval_ms)
    columns = FollowedColumns(table_at, options, keyed=keyed)
    core = StreamCore(client, writer, options, columns, finish, settings)
    operators = frozenset(RowOperator) if keyed else frozenset({RowOperator.INSERT})
    return Stream(client, core, operators, RowOperator.UPSERT if keyed else RowOperator.INSERT, add_columns)
