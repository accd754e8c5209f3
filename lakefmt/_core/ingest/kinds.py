"""Rounds with deletes: inserts, updates and deletes of one round in one commit, the last one of each key (effects)."""

from __future__ import annotations

from time import perf_counter
from typing import Final

import numpy as np
import pyarrow as pa

from lakefmt._core.cdc.events import RowKind
from lakefmt._core.ingest.rows import RoundRows
from lakefmt._core.producers.stream.committing import KeyedCommit, has_record_keys
from lakefmt._core.segments.codec import OPERATOR
from lakefmt._core.segments.names import RowOperator
from lakefmt._core.table import Table
from lakefmt._core.values import CommitResult, WriteOperation
from lakefmt._core.write.commit.retry import retried
from lakefmt._core.write.context import CommitEntries, WriteRequest
from lakefmt.errors import InvalidInputError

__all__ = ["KIND", "write_kinds"]

#: The column that tells inserts, updates and deletes on their way into the commit.
KIND: Final = "_lakefmt_ingest_kind"

#: The operator of each kind, by its code. A row before an update is deleted unless its key comes again.
_OPERATORS: Final = np.array(
    [
        RowOperator.DELETE_IGNORE.value if kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE) else RowOperator.UPSERT.value
        for kind in sorted(RowKind, key=lambda each: each.value)
    ],
    np.int8,
)


def write_kinds(table: Table, rows: RoundRows, schema: pa.Schema, entries: CommitEntries) -> CommitResult:
    """Commit the rows of a round by their kinds; they are held in memory.

    Args:
        table: that is written.
        rows: of the round, with their kinds.
        schema: of the table and of the rows, without the kinds.
        entries: what the commit says.

    Raises:
        InvalidInputError: the table has no keys by which rows could be deleted.
        CheckpointMoved: another process of the job was faster.
    """
    client = table.client
    if not has_record_keys(client.at(client.load())):
        raise InvalidInputError(
            f"{client.store.url} has no record key, and the source deletes rows: give the table a key"
        )
    _widen(table, schema)
    started = perf_counter()
    with_kinds = schema.append(pa.field(KIND, pa.int8()))
    whole = pa.concat_tables([*rows.tables(with_kinds), with_kinds.empty_table()])
    kinds = whole[KIND].fill_null(RowKind.UPDATE_AFTER.value).to_numpy()
    operators = pa.array(_OPERATORS[kinds], pa.int8())
    given = whole.drop_columns([KIND]).append_column(OPERATOR, operators)
    request = WriteRequest(WriteOperation.UPSERT, dict(client.options), entries=entries)

    def attempt() -> CommitResult | None:
        state = client.load()
        return KeyedCommit(client).upsert(request, state, client.at(state).schema(), given)

    return table._finished(retried(client, request, attempt), request, None, perf_counter() - started)


def _widen(table: Table, schema: pa.Schema) -> None:
    """Give the table the columns of the rows, each by a commit of its own: stored rows are read with them."""
    known = table.schema
    for field in schema:
        if field.name not in known.names:
            table.alter.add_column(field.name, field.type)
        elif not known.field(field.name).type.equals(field.type):
            table.alter.update_column(field.name, type=field.type)
