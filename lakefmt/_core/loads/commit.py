"""The rows of a transaction become one commit of a table (effects).

No instant is begun before that: another writer's rollback of what is pending cannot reach a prepared transaction, and nothing of it keeps the
table's timeline from being archived. The commit's metadata name the transaction. Under the table lock the commit looks for it, so that a
commit that is repeated, by this server or by one that took over, is done once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Lock
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.config.table_config import append_layout
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.loads.journal import TableLoad, Transaction
from lakefmt._core.loads.shape import Target
from lakefmt._core.loads.staging import StagedParts
from lakefmt._core.producers.stream.committing import KeyedCommit, has_record_keys, key_scope
from lakefmt._core.segments.resolve import (
    columns_since,
    fill_required,
    fitted,
    moved_rows,
    number_keys,
    places_since,
    row_identities,
)
from lakefmt._core.table import Table
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.values import CommitResult, InstantTime, WriteOperation
from lakefmt._core.write.commit.retry import retried
from lakefmt._core.write.context import AlreadyDone, CommitEntries, EntryView, WriteRequest
from lakefmt._core.write.merge import Merge, run_merge
from lakefmt._core.write.merge_rows import Clause, When
from lakefmt._core.write.verbs import run_write
from lakefmt.errors import InvalidInputError

__all__ = ["DATABASE_KEY", "LABEL_KEY", "TRANSACTION_KEY", "LoadTable"]

#: What the metadata of a commit say of its transaction. Not below ``lakefmt.txn.``: later commits repeat what is named so.
LABEL_KEY: Final = "lakefmt.load.label"
DATABASE_KEY: Final = "lakefmt.load.database"
TRANSACTION_KEY: Final = "lakefmt.load.transaction"
_OPERATIONS: Final = {
    "upsert": WriteOperation.UPSERT,
    "insert": WriteOperation.INSERT,
    "bulk_insert": WriteOperation.BULK_INSERT,
}


class LoadTable:
    """One table that is loaded into, and which transactions its commits have.

    Args:
        table: it.
    """

    def __init__(self, table: Table) -> None:
        self.client: TableClient = table.client
        self._lock = Lock()
        #: Commits of one server queue: side by side they would fill the same small files, and all but one begin again.
        self._writing = Lock()
        #: (database, label) → number of the transaction and instant of its commit.
        self._labels: dict[tuple[str, str], tuple[str, InstantTime]] = {}
        self._seen: set[InstantTime] = set()
        self._has_history = False

    @property
    def window_bytes(self) -> int:
        """How many bytes of rows a write holds in memory."""
        settings = resolve_settings({}, self.client.options, self.client.known_config.properties)
        return settings.integer("lakefmt.write.window.bytes")

    # --- what the table is -----------------------------------------------------------------------------------------------

    def at(self) -> TableAt:
        """Return the table as it is now.

        Raises:
            TableNotFound: it was dropped.
        """
        return self.client.at(self.client.load())

    def target(self, table_at: TableAt) -> Target:
        """Return what rows are made for."""
        keyed = has_record_keys(table_at) and append_layout(table_at.config.properties) is None
        spec = table_at.key_spec()
        return Target(table_at.schema(), tuple(spec.record_key_fields) if keyed else (), spec)

    def begin(self, table_at: TableAt, operation: str) -> TableLoad:
        """Return the record of rows that are made for the table as it is now.

        Args:
            table_at: it.
            operation: by which they are written; empty: an upsert where there are keys.
        """
        keyed = bool(self.target(table_at).keys)
        latest = table_at.timeline.latest_commit
        chosen = operation or ("upsert" if keyed else "insert")
        if chosen == "upsert" and not keyed:
            raise InvalidInputError("an upsert is for tables with record keys")
        return TableLoad(operation=chosen, columns=columns_since(table_at), since="" if latest is None else latest.time)

    # --- which transactions it has ---------------------------------------------------------------------------------------

    def find_label(self, database: str, label: str) -> tuple[str, InstantTime] | None:
        """Return the transaction that has a label in a commit of the table, and its instant; None: there is none."""
        with self._lock:
            self._look(self.at())
            return self._labels.get((database, label))

    def _look(self, table_at: TableAt) -> None:
        """Read the metadata of commits that were not seen yet, once also the archived ones."""
        if not self._has_history:
            table_at = table_at.with_history()
            self._has_history = True
        for instant in table_at.timeline.commits:
            if instant.time in self._seen:
                continue
            self._seen.add(instant.time)
            self._note(table_at.commit_metadata(instant), instant.time)

    def _note(self, metadata: CommitMetadata, instant: InstantTime) -> None:
        extra = metadata.extra_metadata
        label, database = extra.get(LABEL_KEY), extra.get(DATABASE_KEY)
        if label is not None and database is not None:
            self._labels[database, label] = (extra.get(TRANSACTION_KEY, ""), instant)

    # --- commit ------------------------------------------------------------------------------------------------------------

    def check(self, load: TableLoad) -> None:
        """Refuse rows that do not fit the table as it is now.

        Raises:
            SchemaMismatch: a column became what they do not fit.
            TableNotFound: the table was dropped.
        """
        table_at = self.at()
        if append_layout(table_at.config.properties) is not None and load.operation == "upsert":
            raise InvalidInputError("the table has no record keys any more")
        places_since(table_at, load.columns)

    def commit(self, transaction: Transaction, load: TableLoad, rows: StagedParts) -> InstantTime | None:
        """Commit the rows of a transaction, unless the table has them; return the instant.

        Raises:
            LakefmtError: nothing was committed, or the answer is not known: the same call again finds out.
        """
        request = WriteRequest(
            _OPERATIONS[load.operation],
            commit_metadata={
                LABEL_KEY: transaction.label,
                DATABASE_KEY: transaction.database,
                TRANSACTION_KEY: str(transaction.id),
            },
            schema_change="strict",
            partial=load.partial,
            entries=self._entries(transaction),
        )
        with self._writing:
            done = self._done(self.client.load(), transaction)
            if done is not None:
                return done
            result = retried(self.client, request, self._attempt_of(load, rows, request))
            if result is None:
                return None
            self._follow(request)
        return result.instant

    def _done(self, state: TableState, transaction: Transaction) -> InstantTime | None:
        with self._lock:
            self._look(self.client.at(state))
            found = self._labels.get((transaction.database, transaction.label))
        return found[1] if found is not None and found[0] == str(transaction.id) else None

    def _entries(self, transaction: Transaction) -> CommitEntries:
        def entries(view: EntryView) -> Mapping[str, str] | AlreadyDone:
            done = self._done(view.state, transaction)
            return {} if done is None else AlreadyDone(done)

        return entries

    def _attempt_of(
        self, load: TableLoad, rows: StagedParts, request: WriteRequest
    ) -> Callable[[], CommitResult | None]:
        def attempt() -> CommitResult | None:
            state = self.client.load()
            table_at = self.client.at(state)
            tables = _fitted_parts(table_at, load, rows)
            schema = _row_schema(table_at, load, tables)
            if load.merge_condition:
                return self._merge(table_at, load, request, _all(schema, tables))
            if load.marked:
                whole = _all(schema, tables)
                columns = table_at.internal_schema() or ""
                keyed = replace(request, columns=columns)
                return KeyedCommit(self.client).upsert(keyed, state, table_at.schema(), whole)
            made = self._window_or_stream(schema, tables)
            return run_write(self.client, request, schema, made)

        return attempt

    def _window_or_stream(self, schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Table | Iterable[pa.Table]:
        """Return rows as one table while they fit into a window; else as they are read."""
        most, size = self.window_bytes, 0
        for table in tables:
            size += table.nbytes
            if size > most:
                return (fill_required(each, schema) for each in tables)
        return fill_required(_all(schema, tables), schema)

    def _merge(self, table_at: TableAt, load: TableLoad, request: WriteRequest, rows: pa.Table) -> CommitResult | None:
        """Write rows each of which replaces the stored one only if a column is not smaller."""
        name = load.merge_condition
        identities = row_identities(table_at.key_spec(), rows, across=key_scope(table_at, request.options).across)[0]
        codes = number_keys(identities)[0]
        # Of rows with one key the last with the largest value is left.
        values = rows.column(name)
        there = values.is_valid().cast(pa.int8())  # null is less than any value
        keyed = pa.table({"key": codes, "there": there, "value": values, "place": np.arange(len(codes))})
        keys = [(each, "ascending") for each in keyed.column_names]
        order = pc.sort_indices(keyed, sort_keys=keys).to_numpy().astype(np.int64)
        last = np.flatnonzero(np.append(codes[order][1:] != codes[order][:-1], True)) if len(order) else order
        chosen = rows.take(from_numpy(np.sort(order[last])))
        quoted = '"' + name.replace('"', '""') + '"'
        condition = f"s.{quoted} >= t.{quoted} or t.{quoted} is null"
        clauses = (Clause(When.MATCHED, where=condition), Clause(When.NOT_MATCHED))
        return run_merge(self.client, request, Merge(chosen, None, clauses))

    def _follow(self, request: WriteRequest) -> None:
        """Run the services that the table wants after a commit; what fails of them changes nothing of the commit."""
        from lakefmt._core.compaction.scheduler import run_services  # slow import

        run_services(self.client, request.options)


def _fitted_parts(table_at: TableAt, load: TableLoad, rows: StagedParts) -> Iterable[pa.Table]:
    """Return the rows of a transaction with the columns that the table has now, as often as they are asked for."""
    places, schema = places_since(table_at, load.columns), table_at.schema()

    class Parts:
        def __iter__(self) -> Iterator[pa.Table]:
            for table in rows:
                moved = moved_rows(table, places)
                if load.partial:
                    names = [name for name in moved.column_names if name in schema.names]
                    yield fitted(moved.select(names), pa.schema([schema.field(name) for name in names]))
                else:
                    yield fitted(moved, schema)

    return Parts()


def _row_schema(table_at: TableAt, load: TableLoad, tables: Iterable[pa.Table]) -> pa.Schema:
    schema = table_at.schema()
    if not load.partial:
        return schema
    names = next((table.column_names for table in tables), schema.names)
    return pa.schema([schema.field(name) for name in names])


def _all(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Table:
    found = list(tables)
    if not found:
        return pa.schema([each.with_nullable(True) for each in schema]).empty_table()
    return pa.concat_tables(found)
