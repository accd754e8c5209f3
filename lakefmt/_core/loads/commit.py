"""The rows of a transaction become one commit of a table (effects).

No instant is begun before that: another writer's rollback of what is pending cannot reach a prepared transaction, and nothing of it keeps the
table's timeline from being archived. The commit's metadata name the transaction. Under the table lock the commit looks for it, so that a
commit that is repeated, by this server or by one that took over, is done once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from threading import Lock
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy
from lakefmt._core.compaction.scheduler import run_services
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.config.table_config import append_layout, merge_rule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.ordering import to_mask
from lakefmt._core.filegroups.stored_keys import stored_key_spec
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.index import choose_index, moves_between_partitions
from lakefmt._core.loads.csv_rows import Mask
from lakefmt._core.loads.journal import StagedParts, TableLoad, Transaction
from lakefmt._core.loads.shape import Target
from lakefmt._core.producers.stream.committing import KeyedCommit, has_record_keys, key_scope, stored_rows
from lakefmt._core.segments.codec import COLUMNS, OPERATOR, RowOperator
from lakefmt._core.segments.resolve import (
    Resolved,
    StreamRules,
    codes_in,
    columns_since,
    fill_required,
    fitted,
    moved_rows,
    number_keys,
    places_since,
    row_identities,
    stored_identities,
)
from lakefmt._core.table import Table
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.values import CommitResult, InstantTime, WriteOperation
from lakefmt._core.write.commit.retry import retried
from lakefmt._core.write.context import AlreadyDone, CommitEntries, EntryView, WriteRequest
from lakefmt._core.write.ingest import memory_of_rows
from lakefmt._core.write.verbs import run_write
from lakefmt.errors import (
    CommitConflict,
    ConflictError,
    CorruptFile,
    InvalidInputError,
    LakefmtError,
    SchemaMismatch,
    StorageError,
)

__all__ = ["DATABASE_KEY", "LABEL_KEY", "TRANSACTIONS_KEY", "TRANSACTION_KEY", "LoadTable"]

#: What the metadata of a commit say of its transaction. Not below ``lakefmt.txn.``: later commits repeat what is named so.
LABEL_KEY: Final = "lakefmt.load.label"
DATABASE_KEY: Final = "lakefmt.load.database"
TRANSACTION_KEY: Final = "lakefmt.load.transaction"
#: Of several in one instant: a JSON list of database, label and number of each.
TRANSACTIONS_KEY: Final = "lakefmt.load.transactions"
#: Transactions that one instant takes, and bytes of their rows, packed.
_MOST_TOGETHER: Final = 256
_MOST_BYTES_TOGETHER: Final = 64 << 20
#: So many windows narrow rows may take with all that is made of them.
_WINDOWS_OF_MEMORY: Final = 4
#: What sorting rows with deletes or a condition holds, at least.
_LEAST_SORT_BYTES: Final = 128 << 20
_OPERATIONS: Final = {
    "upsert": WriteOperation.UPSERT,
    "insert": WriteOperation.INSERT,
    "bulk_insert": WriteOperation.BULK_INSERT,
}


@dataclass(eq=False, slots=True)
class _Member:
    """A transaction that waits for its commit, and what became of it."""

    transaction: Transaction
    load: TableLoad
    rows: StagedParts
    instant: InstantTime | None = None
    error: BaseException | None = None
    ended: bool = False


class LoadTable:
    """One table that is loaded into, and which transactions its commits have.

    Args:
        table: it.
        lengths: the most bytes of the texts of some columns.

    Attributes:
        writing: held while a commit is made: side by side they would fill the same small files, and all but one begin again.
        waiting: transactions whose commit nobody makes yet, in the order in which they came.
    """

    def __init__(self, table: Table, lengths: Mapping[str, int] | None = None) -> None:
        self._lengths = lengths or {}
        self.client: TableClient = table.client
        self._lock = Lock()
        self.writing = Lock()
        self.waiting: list[_Member] = []
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
        return Target(table_at.schema(), tuple(spec.record_key_fields) if keyed else (), spec, self._lengths)

    def begin(self, table_at: TableAt, operation: str) -> TableLoad:
        """Return the record of rows that are made for the table as it is now.

        Args:
            table_at: it.
            operation: by which they are written; empty: an upsert where there are keys.
        """
        keyed = bool(self.target(table_at).keys)
        latest = table_at.timeline.latest_commit
        load_operation = operation or ("upsert" if keyed else "insert")
        if load_operation == "upsert" and not keyed:
            raise InvalidInputError("an upsert is for tables with record keys")
        return TableLoad(
            operation=load_operation, columns=columns_since(table_at), since="" if latest is None else latest.time
        )

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
        for instant in table_at.timeline.commits:
            if instant.time in self._seen:
                continue
            self._note(table_at.commit_metadata(instant), instant.time)
            self._seen.add(instant.time)  # only now: a commit that could not be read is looked at again
        self._has_history = True

    def _note(self, metadata: CommitMetadata, instant: InstantTime) -> None:
        extra = metadata.extra_metadata
        label, database = extra.get(LABEL_KEY), extra.get(DATABASE_KEY)
        if label is not None and database is not None:
            self._labels[database, label] = (extra.get(TRANSACTION_KEY, ""), instant)
        if TRANSACTIONS_KEY in extra:
            for database, label, number in _named_transactions(extra[TRANSACTIONS_KEY]):
                self._labels[database, label] = (number, instant)

    # --- commit ------------------------------------------------------------------------------------------------------------

    def check(self, load: TableLoad, rows: Iterable[pa.Table] = ()) -> None:
        """Refuse rows that do not fit the table as it is now.

        Args:
            load: how they are written.
            rows: the first of them are looked at.

        Raises:
            SchemaMismatch: a column became what they do not fit.
            TableNotFound: the table was dropped.
        """
        table_at = self.at()
        if append_layout(table_at.config.properties) is not None and load.operation == "upsert":
            raise InvalidInputError("the table has no record keys any more")
        next(iter(_fitted_parts(table_at, load, rows)), None)  # raises where it does not fit

    def are_stored(self, table_at: TableAt, load: TableLoad, rows: pa.Table) -> Mask:
        """Return which rows have a key that is stored."""
        fitted_rows = next(iter(_fitted_parts(table_at, load, [rows])))
        options = self.client.options
        across = key_scope(table_at, options).across
        identities, keys, partitions = row_identities(stored_key_spec(table_at), fitted_rows, across=across)
        stored = stored_rows(table_at, options, keys, partitions, [])
        return to_mask(pc.is_in(identities, value_set=stored_identities(stored, across=across)))

    def commit(self, transaction: Transaction, load: TableLoad, rows: StagedParts) -> InstantTime | None:
        """Commit the rows of a transaction, unless the table has them; return the instant.

        Transactions that wait at the same time are committed in one instant, whose metadata name all of them.

        Raises:
            LakefmtError: nothing was committed, or the answer is not known: the same call again finds out.
        """
        member = _Member(transaction, load, rows)
        with self._lock:
            self.waiting.append(member)
        with self.writing:
            while not member.ended:
                self._commit_batch(self._next_batch())
        if member.error is not None:
            raise member.error
        return member.instant

    def _next_batch(self) -> list[_Member]:
        """Take those that are committed next: the one that has waited longest, and others that go with it."""
        with self._lock:
            others = list(self.waiting)
        joins = self._joins() if len(others) > 1 else lambda _: False
        batch, size = others[:1], others[0].rows.num_bytes
        if joins(batch[0]):
            for other in others[1:_MOST_TOGETHER]:
                if joins(other) and other.load.operation == batch[0].load.operation:
                    size += other.rows.num_bytes
                    if size > _MOST_BYTES_TOGETHER:
                        break
                    batch.append(other)
        with self._lock:
            for each in batch:
                self.waiting.remove(each)
        return batch

    def _joins(self) -> Callable[[_Member], bool]:
        """Return which transactions may be committed together: those that give the same rows as commits of their own would."""
        try:
            table_at = self.at()
            keyed, rule = bool(self.target(table_at).keys), merge_rule(table_at.config)
            marks = {"_hoodie_is_deleted", *(() if rule.delete is None else (rule.delete.field,))}
            plain = not rule.is_own and marks.isdisjoint(table_at.schema().names)
        except LakefmtError:
            return lambda _: False  # each of them finds out
        if keyed:
            # Inserts do not look for their keys, and parts of rows belong to what is stored just then.
            return lambda each: (
                plain and each.load.operation == "upsert" and not each.load.partial and not each.load.merge_condition
            )
        return lambda each: each.load.operation != "upsert"

    def _commit_batch(self, members: Sequence[_Member]) -> None:
        """Commit members in one instant; where one of them cannot be committed, each alone, so that it takes none along."""
        try:
            self._commit_together(members)
        except BaseException as error:  # noqa: BLE001  (each of them gets it)
            self._has_history = False  # its commit may be there, and archived before the next look
            is_of_one = isinstance(error, Exception) and not _is_of_all(error)
            if len(members) > 1 and is_of_one:
                for each in members:
                    self._commit_batch([each])
                return
            for each in members:
                each.error = error
        for each in members:
            each.ended = True

    def _commit_together(self, members: Sequence[_Member]) -> None:
        request = self._request(members)

        def attempt() -> CommitResult | None:
            state = self.client.load()
            for each in members:
                each.instant = self._done(state, each.transaction)
            unfinished = [each for each in members if each.instant is None]
            result = self._write(unfinished, self._request(unfinished), state) if unfinished else None
            for each in unfinished:
                each.instant = None if result is None else result.instant
            return result

        if retried(self.client, request, attempt) is not None:
            run_services(self.client, request.options)  # what fails of them changes nothing of the commit

    def _request(self, members: Sequence[_Member]) -> WriteRequest:
        transactions = [
            (each.transaction.database, each.transaction.label, str(each.transaction.id)) for each in members
        ]
        metadata = {TRANSACTIONS_KEY: json.dumps(transactions)}
        if len(transactions) == 1:
            metadata = dict(zip((DATABASE_KEY, LABEL_KEY, TRANSACTION_KEY), transactions[0], strict=True))
        load = members[0].load if members else TableLoad()
        return WriteRequest(
            _OPERATIONS[load.operation],
            commit_metadata=metadata,
            schema_change="strict",
            partial=load.partial and not load.marked,
            entries=self._entries([each.transaction for each in members]),
        )

    def _done(self, state: TableState, transaction: Transaction) -> InstantTime | None:
        with self._lock:
            self._look(self.client.at(state))
            label = self._labels.get((transaction.database, transaction.label))
        return label[1] if label is not None and label[0] == str(transaction.id) else None

    def _entries(self, transactions: Sequence[Transaction]) -> CommitEntries:
        def entries(view: EntryView) -> Mapping[str, str] | AlreadyDone:
            instants = [self._done(view.state, each) for each in transactions]
            if all(instants):
                return AlreadyDone(instants[0])
            if any(instants):
                raise CommitConflict("another process committed some of these transactions meanwhile")
            return {}

        return entries

    def _write(self, members: Sequence[_Member], request: WriteRequest, state: TableState) -> CommitResult | None:
        """Write the rows of members; those of a later one come after those of an earlier one."""
        table_at, load = self.client.at(state), members[0].load
        parts = [_fitted_parts(table_at, each.load, each.rows) for each in members]
        tables: Iterable[pa.Table] = _Chained(parts)
        row_schema, schema = _row_schema(table_at, load, tables), table_at.schema()
        updates = load.partial and any(not each.nullable and each.name not in row_schema.names for each in schema)
        commit: KeyedCommit | None = None
        if load.merge_condition:
            column = _condition_column(table_at, load)
            commit = _ConditionalCommit(self.client, column, updates=updates)
        elif updates or any(each.load.marked for each in members) or self._has_to_be_completed(table_at, load, tables):
            tables, row_schema = _Marked(tables, schema, partial=load.partial, updates=updates), schema
            commit = KeyedCommit(self.client)
        rows = self._window_or_stream(row_schema, tables)
        if commit is None:
            filled = (fill_required(each, row_schema) for each in ([rows] if isinstance(rows, pa.Table) else rows))
            return run_write(self.client, request, row_schema, next(filled) if isinstance(rows, pa.Table) else filled)
        request = replace(request, columns=table_at.internal_schema() or "", partial=False)
        if isinstance(rows, pa.Table):
            return commit.upsert(request, state, schema, rows)
        return commit.upsert_stream(request, schema, rows, max(self.window_bytes, _LEAST_SORT_BYTES))

    def _has_to_be_completed(self, table_at: TableAt, load: TableLoad, tables: Iterable[pa.Table]) -> bool:
        """Return whether partial rows exceed a window and may move to another partition: they are then written as whole rows."""
        if not load.partial or isinstance(self._window_or_stream(table_at.schema(), tables), pa.Table):
            return False
        settings = resolve_settings({}, self.client.options, table_at.config.properties)
        return moves_between_partitions(choose_index(self.client, settings, table_at.config, table_at.state))

    def _window_or_stream(self, schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Table | Iterable[pa.Table]:
        """Return rows as one table while they fit into a window; else as they are read."""
        most, size, memory = self.window_bytes, 0, 0
        for table in tables:
            size, memory = size + table.nbytes, memory + memory_of_rows(table)
            # Rows of a stream do not fill small files: a window of narrow ones, which is many, is not given up before it has to be.
            if size > most or memory > _WINDOWS_OF_MEMORY * most:
                return tables
        return _all(schema, tables)


def _is_of_all(error: Exception) -> bool:
    """Return whether an error is of the store or of other writers, not of a transaction's rows."""
    return isinstance(error, ConflictError | StorageError | OSError)


def _named_transactions(json_text: str) -> list[tuple[str, str, str]]:
    """Return database, label and number of the transactions that metadata name.

    Raises:
        CorruptFile: the text is no such list.
    """
    try:
        return [(str(database), str(label), str(number)) for database, label, number in json.loads(json_text)]
    except (ValueError, TypeError, RecursionError):
        raise CorruptFile(f"{TRANSACTIONS_KEY} of a commit is no list of transactions") from None


def _condition_column(table_at: TableAt, load: TableLoad) -> str:
    """Return the name that the column of a merge condition has now.

    Raises:
        SchemaMismatch: it was dropped.
    """
    column_places = places_since(table_at, load.columns)
    names = {load.merge_condition} if column_places is None else column_places.current_names([load.merge_condition])
    name = next(iter(names), "")
    if name not in table_at.schema().names:
        raise SchemaMismatch("the column of the merge_condition was dropped")
    return name


class _ConditionalCommit(KeyedCommit):
    """A commit of rows each of which replaces the stored one only if a column is not smaller.

    Args:
        client: the table.
        column: it.
        updates: rows whose key is new are left out: they lack columns that must have a value.
    """

    def __init__(self, client: TableClient, column: str, *, updates: bool) -> None:
        super().__init__(client)
        self._column, self._updates = column, updates

    def rules(self, request: WriteRequest, state: TableState, schema: pa.Schema) -> StreamRules:
        """Return that no row has to be committed before another."""
        return StreamRules()

    def reduced(self, request: WriteRequest, state: TableState, rows: pa.Table) -> pa.Table:
        """Keep one row for each key: the last of those with the largest value in the column."""
        table_at = self.client.at(state)
        across = key_scope(table_at, request.options).across
        codes = number_keys(row_identities(stored_key_spec(table_at), rows, across=across)[0])[0]
        values = rows.column(self._column)
        there = values.is_valid().cast(pa.int8())  # null is less than any value
        keyed = pa.table({"key": codes, "there": there, "value": values, "place": np.arange(len(codes))})
        keys = [(each, "ascending") for each in keyed.column_names]
        order = pc.sort_indices(keyed, sort_keys=keys).to_numpy().astype(np.int64)
        last = np.flatnonzero(np.append(codes[order][1:] != codes[order][:-1], True)) if len(order) else order
        return rows.take(from_numpy(np.sort(order[last])))

    def resolved(
        self, request: WriteRequest, state: TableState, schema: pa.Schema, rows: pa.Table
    ) -> tuple[Resolved, TableState | None]:
        """Return the rows that replace what is stored, or whose key is new; what they lack is as it is stored."""
        newest, table_at = self.reduced(request, state, rows), self.client.at(state)
        across = key_scope(table_at, request.options).across
        identities, keys, partitions = row_identities(stored_key_spec(table_at), newest, across=across)
        lacking = [name for name in schema.names if name not in newest.column_names]
        columns = [self._column, *lacking]
        stored = stored_rows(table_at, request.options, keys, partitions, columns)
        of_stored = codes_in(stored_identities(stored, across=across), identities)
        stored, of_stored = stored.filter(pa.array(of_stored >= 0)), of_stored[of_stored >= 0]
        there = np.full(newest.num_rows, -1, np.int64)
        there[of_stored] = np.arange(stored.num_rows)
        old = stored.column(self._column).cast(schema.field(self._column).type)
        new = newest.column(self._column).take(from_numpy(of_stored))
        replaces = pc.or_kleene(pc.is_null(old), pc.greater_equal(new, old))
        stays = there >= 0 if self._updates else np.ones(newest.num_rows, bool)
        stays[of_stored[~to_mask(pc.fill_null(replaces, False))]] = False
        source = np.flatnonzero(stays)
        merged = newest.take(from_numpy(source))
        stored_indices = pa.array(there[source], mask=there[source] < 0)
        for name in lacking:
            merged = merged.append_column(name, stored.column(name).cast(schema.field(name).type).take(stored_indices))
        return Resolved(merged.select(schema.names), np.zeros(len(source), bool), source), state


class _Chained:
    """The rows of several transactions, concatenated, which can be iterated more than once."""

    def __init__(self, parts: Sequence[Iterable[pa.Table]]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[pa.Table]:
        return chain.from_iterable(self._parts)


class _Marked:
    """Rows with operators; they can be iterated more than once.

    Args:
        tables: they come without one where no row of a load deletes its key.
        schema: the table's.
        partial: they may set some columns only.
        updates: they change stored rows only.
    """

    def __init__(self, tables: Iterable[pa.Table], schema: pa.Schema, *, partial: bool, updates: bool) -> None:
        self._tables, self._schema, self._partial, self._updates = tables, schema, partial, updates

    def __iter__(self) -> Iterator[pa.Table]:
        for table in self._tables:
            marked = _with_operators(table)
            yield _as_parts(marked, self._schema, updates=self._updates) if self._partial else marked


def _fitted_parts(table_at: TableAt, load: TableLoad, rows: Iterable[pa.Table]) -> Iterable[pa.Table]:
    """Return the rows of a transaction with the present columns of the table; they can be iterated more than once."""
    column_places, schema = places_since(table_at, load.columns), table_at.schema()

    class Parts:
        def __iter__(self) -> Iterator[pa.Table]:
            for table in rows:
                moved = moved_rows(table, column_places)
                unknown = [name for name in moved.column_names if name not in {*schema.names, OPERATOR}]
                if unknown:  # one that was dropped is not among them: the table was made anew
                    raise SchemaMismatch(f"the table has no column {unknown[0]!r} any more")
                names = [name for name in schema.names if name in moved.column_names or not load.partial]
                yield fitted(moved, pa.schema([schema.field(name) for name in names]))

    return Parts()


def _with_operators(rows: pa.Table) -> pa.Table:
    """Return rows each of which has an operator: of those that came without one no row deletes its key."""
    upsert = pa.scalar(RowOperator.UPSERT.value, pa.int8())
    if OPERATOR not in rows.column_names:
        return rows.append_column(OPERATOR, pa.repeat(upsert, rows.num_rows))
    index = rows.schema.get_field_index(OPERATOR)
    return rows.set_column(index, OPERATOR, pc.fill_null(rows.column(OPERATOR), upsert))


def _as_parts(rows: pa.Table, schema: pa.Schema, *, updates: bool) -> pa.Table:
    """Return two rows for each row that sets some columns: an insert if its key is new, and then an update of those columns.

    Args:
        rows: with operators.
        schema: the table's.
        updates: a row whose key is new comes to nothing.
    """
    names = [name for name in schema.names if name in rows.column_names]
    deletes = pc.equal(rows.column(OPERATOR), RowOperator.DELETE_IGNORE.value).to_numpy()
    row_indices = np.repeat(np.arange(len(deletes)), np.where(deletes | updates, 1, 2))
    is_update = np.append(False, row_indices[1:] == row_indices[:-1]) | updates
    operators = np.where(is_update, RowOperator.UPDATE_IGNORE.value, RowOperator.INSERT_IGNORE.value)
    operators = np.where(deletes[row_indices], RowOperator.DELETE_IGNORE.value, operators).astype(np.int8)
    parts = fitted(rows.drop_columns([OPERATOR]).take(from_numpy(row_indices)), schema)
    columns = pc.if_else(from_numpy(is_update & ~deletes[row_indices]), json.dumps(names), pa.scalar(None, pa.string()))
    return parts.append_column(OPERATOR, from_numpy(operators)).append_column(COLUMNS, columns)


def _row_schema(table_at: TableAt, load: TableLoad, tables: Iterable[pa.Table]) -> pa.Schema:
    """Return the columns that rows have, without their operators."""
    schema = table_at.schema()
    first = next(iter(tables), None) if load.partial else None
    return schema if first is None else pa.schema([each for each in schema if each.name in first.column_names])


def _all(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Table:
    parts = list(tables)
    if not parts:
        return pa.schema([each.with_nullable(True) for each in schema]).empty_table()
    return pa.concat_tables(parts)
