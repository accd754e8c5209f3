"""Column ids in commits: what a write's commit says of them, and which commit it may not follow (docs/format.md, Schema history).

A table has column ids from its first alteration on. Then every commit repeats the internal schema and stores the history.
"""

from __future__ import annotations

import pyarrow as pa

from lakefmt.data_classes import replace
from lakefmt.errors import CommitConflict
from lakefmt.filegroups.table_client import TableClient, TableState, store_schema_history
from lakefmt.schema import with_meta_columns
from lakefmt.schema.history import LATEST_SCHEMA, SchemaHistory, first_history, number_columns, parse_history
from lakefmt.timeline.commit import CommitMetadata
from lakefmt.transactions.client import WriteClient
from lakefmt.values import META_COLUMNS, InstantTime, TableVersion, WriteOperation
from lakefmt.write.context import WriteContext, WriteRequest

__all__ = ["history_after", "with_column_ids"]


def history_after(
    client: TableClient, state: TableState, request: WriteRequest, schema: pa.Schema, instant: InstantTime
) -> str:
    """Return the content of the history file after a write; empty where the table's columns have no ids.

    Args:
        client: the table.
        state: the table when the write begins.
        request: what is asked for; an alteration gives ids to a table that has none.
        schema: the table's columns after the write, without meta columns.
        instant: of the write.
    """
    config, before = state.config, client.schema(state)
    # Version 8 is read by releases that do not know the newer name of decimals.
    fixed = config.version >= TableVersion.NINE

    history, has_meta = client.schema_history(state), config.populate_meta_fields
    if history is None and request.alteration is None:
        return ""
    if history is not None:
        has_meta = any(column.name in META_COLUMNS for column in history.latest.columns)

    def with_meta(columns: pa.Schema) -> pa.Schema:
        return with_meta_columns(columns) if has_meta else columns

    history = history or first_history(with_meta(before), fixed_decimals=fixed)
    alteration = request.alteration
    if alteration is None and schema.equals(before, check_metadata=True):
        return history.text
    before_it = history.latest if alteration is None else alteration.keeping_ids(history.latest)
    return history.with_schema(number_columns(before_it, with_meta(schema), int(instant), fixed_decimals=fixed)).text


def with_column_ids(
    write_client: WriteClient, context: WriteContext, begun: TableState, metadata: CommitMetadata, now: TableState
) -> CommitMetadata:
    """Return a commit with its internal schema; the history is stored first, and counts once the commit is completed.

    Args:
        write_client: the table, whose lock is held.
        context: the write.
        begun: the table when it began.
        metadata: its commit.
        now: the table as it is.

    Raises:
        CommitConflict: the columns were altered since the write began, and its files have the names and types from before;
            or commits completed while the columns were altered.
    """
    client = write_client.client
    if client.internal_schema(begun) != client.internal_schema(now):
        raise CommitConflict(
            "the table's columns were altered while this write was at work: write the rows again, in the new columns"
        )
    if context.operation is WriteOperation.ALTER_SCHEMA and begun.timeline.commits != now.timeline.commits:
        raise CommitConflict("another commit completed while the columns were altered; alter them again")
    if not context.schema_history:
        return metadata
    history: SchemaHistory = parse_history(context.schema_history, "the context of a write")
    config = now.config
    completion = None if config.version.layout == 1 else write_client.instant_time_generator(config, now.timeline)()
    store_schema_history(client.store, history, context.instant, completion)
    return replace(metadata, extra_metadata={**metadata.extra_metadata, LATEST_SCHEMA: history.latest.text()})
