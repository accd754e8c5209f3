"""Opens a stream, and follows the columns of its table (effects)."""

from __future__ import annotations

import logging

from lakefmt.config.settings import resolve_settings
from lakefmt.errors import InvalidInputError
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.producers.stream.committing import commit_options, has_record_keys
from lakefmt.producers.stream.core import StreamCore
from lakefmt.producers.stream.opening import Finish, SegmentWriter, recover_others
from lakefmt.producers.stream.options import FlushMode, StreamOptions
from lakefmt.producers.stream.rows import RowChecker
from lakefmt.producers.stream.stream import AddColumns, Stream
from lakefmt.segments.names import ANONYMOUS, RowOperator, check_writer_id
from lakefmt.segments.resolve import columns_since, key_columns_of

__all__ = ["FollowedColumns", "open_row_stream"]

_log = logging.getLogger("lakefmt.streams")


class FollowedColumns:
    """The columns that rows of a stream have now.

    Args:
        client: the table.
        state: of the table.
        options: of the stream.
        keyed: the table has record keys of its own.
    """

    def __init__(self, client: TableClient, state: TableState, options: StreamOptions, *, keyed: bool) -> None:
        self._client, self._options, self._keyed = client, options, keyed
        self.checker = self._checker(state)

    def _checker(self, state: TableState) -> RowChecker:
        spec = self._client.stored_keys.spec(state)
        keys = key_columns_of(spec) if self._keyed else ()
        since = columns_since(self._client, state)
        settings = resolve_settings(self._options.properties, self._client.options, state.config.properties)
        return RowChecker(
            self._client.schema(state),
            keys,
            strict=self._options.strict_columns,
            spec=spec,
            since=since,
            null_elements=settings.text("lakefmt.write.null_list_elements") == "allow",
        )

    def refresh(self, state: TableState | None = None) -> bool:
        """Look at the table's columns again; return whether they changed.

        Args:
            state: the table, where it was just loaded.
        """
        state = self._client.load() if state is None else state
        # A column may have gone, and another one of its name have come.
        is_same = columns_since(self._client, state) == self.checker.since
        if is_same and self._client.schema(state).equals(self.checker.schema):
            return False
        self.checker = self._checker(state)
        return True

    def see(self, state: TableState) -> None:
        """Follow the columns of the table as a segment is made, unless the stream is not to."""
        if self._options.auto_refresh:
            self.refresh(state)


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
    keyed = has_record_keys(client, state)
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
    columns = FollowedColumns(client, state, options, keyed=keyed)
    core = StreamCore(client, writer, options, columns, finish, settings)
    operators = frozenset(RowOperator) if keyed else frozenset({RowOperator.INSERT})
    return Stream(client, core, operators, RowOperator.UPSERT if keyed else RowOperator.INSERT, add_columns)
