"""The table of a job: made when its first rows come, given the rows of each round in one commit, with the checkpoint of the round (effects).

Rejected rows go to a table of their own before that commit, by where they came from: a round that is repeated puts them there again.
Rounds with deletes are one commit, too: inserts, updates and deletes by their kinds, the last one of each key.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Generator, Mapping
from contextlib import closing
from functools import partial
from time import perf_counter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arguments import foreign, shown
from lakefmt._core.arrays import one_array
from lakefmt._core.cdc.events import RowKind
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.create_and_write import check_agreement
from lakefmt._core.filegroups.stored_keys import stored_key_spec
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.ingest.api import (
    REJECTED,
    Checkpoint,
    CheckpointCommit,
    CheckpointFinder,
    RoundRows,
    StoredCheckpoint,
    rejected_records,
    without_null_types,
)
from lakefmt._core.ingest.options import TableJob
from lakefmt._core.ingest.transforms import GOING, LEFT_OUT, load_function
from lakefmt._core.keys import KeySpec, build_record_keys
from lakefmt._core.producers.stream.committing import KeyedCommit, commit_options, has_record_keys, key_scope
from lakefmt._core.read.filters import columns_of_sql, keep_rows, parse_filter
from lakefmt._core.read.snapshot import Snapshot, planned_clusterings, rows_of_keys
from lakefmt._core.schema import conform
from lakefmt._core.schema.alter import evolve
from lakefmt._core.segments.codec import OPERATOR, RowOperator
from lakefmt._core.segments.resolve import number_keys, placed_rows, previous_rows
from lakefmt._core.storage.messages import printable_url
from lakefmt._core.table import Table, create_table, open_table
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import RECORD_KEY, CommitResult, WriteOperation
from lakefmt._core.write.commit.retry import retried
from lakefmt._core.write.context import CommitEntries, WriteRequest
from lakefmt._core.write.grouped_rows import parts_by_key
from lakefmt._core.write.ingest import KeyedBatch, in_no_partition
from lakefmt.errors import (
    InvalidFilter,
    InvalidInputError,
    RowsRejected,
    SchemaMismatch,
    SourceRefused,
    TableNotFound,
)

__all__ = ["KIND", "JobSink", "RoundBatch", "check_conditions", "without_kind", "write_kinds"]

_log = logging.getLogger("lakefmt.ingest")

#: A part of rejected rows is asked for from so many rows on.
_ROWS_OF_A_RATIO: Final = 1_000
_ERRORS_GO_ON: Final = "with errors = a path, or --errors, such rows go to a table of their own, and the others go on"
_ERRORS: Final = pa.schema(
    [
        pa.field("origin", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("payload", pa.binary()),
    ]
)

Mask = npt.NDArray[np.bool_]


def check_conditions(checks: Mapping[str, str]) -> None:
    """Check that conditions can be read, whatever types their columns have.

    Args:
        checks: SQL conditions by their names.

    Raises:
        InvalidInputError: one is no condition, or has what is not supported.
    """
    for name, condition in checks.items():
        columns = pa.schema([(each, pa.null()) for each in columns_of_sql(condition)])
        try:
            parse_filter(condition, columns)
        except InvalidFilter as error:
            raise InvalidInputError(f"check {name!r}: {error}") from None


class RoundBatch:
    """The rows of a round that are written, and those that are not.

    Args:
        job: of the table.
        source: its name.
        known: the schema of the table; None: there is no table yet.
        round_name: tells the round from others, for rows that have no origin of their own: a round that is repeated begins where the
            first one began, and has its rows.
        appends: the table has no key: of an update the new row is one more, and a delete has no row that it could find.
    """

    def __init__(
        self, job: TableJob, source: str, known: pa.Schema | None, round_name: str, *, appends: bool = False
    ) -> None:
        self._job, self.source, self._round, self._appends = job, source, round_name, appends
        self._has_table, self._schema = known is not None, known or pa.schema([])
        self.rows = RoundRows(job.memory_bytes)
        self.rejected = list[pa.RecordBatch]()
        self.rejected_rows = 0
        self.has_kinds = False
        self._numbered = 0
        self._checked_columns = sorted({name for check in job.checks.values() for name in columns_of_sql(check)})
        self._named_columns = set[str]()

    def close(self) -> None:
        """Let go of the rows."""
        self.rows.close()

    def take_rejected(self, rejected: pa.RecordBatch | None) -> None:
        """Take records that the source could not decode.

        Raises:
            RowsRejected: there is no table for them, or they are too many.
        """
        if rejected is None or not rejected.num_rows:
            return
        job = self._job
        first = rejected.slice(0, 1).to_pylist()[0]
        if job.errors is None:
            raise RowsRejected(f"{first['origin']}: {first['reason']} ({_ERRORS_GO_ON})")
        self.rejected.append(rejected)
        self.rejected_rows += rejected.num_rows

    def check_limits(self, written: int | None = None) -> None:
        """Raise when too many rows were rejected; call it when all came.

        Args:
            written: rows that are written; None: those that were added.

        Raises:
            RowsRejected: so it is.
        """
        job, bad = self._job, self.rejected_rows
        total = (self.rows.num_rows if written is None else written) + bad
        too_many = job.max_error_rows is not None and bad > job.max_error_rows
        ratio = job.max_error_ratio
        if ratio is not None and total >= _ROWS_OF_A_RATIO and bad > ratio * total:
            too_many = True
        if too_many:
            first = self.rejected[0].slice(0, 1).to_pylist()[0]
            raise RowsRejected(
                f"{bad:,} of {total:,} rows were rejected, more than the job allows; they are in {job.errors}. The first: "
                f"{first['origin']}: {first['reason']}"
            )

    def add(self, rows: pa.RecordBatch, kinds: npt.NDArray[np.int8] | None) -> None:
        """Take rows; those that cannot be written are rejected, or end the round.

        Raises:
            RowsRejected: a row cannot be written, and there is no table for such rows.
        """
        if not len(rows.schema):
            return
        if kinds is not None and (kinds == LEFT_OUT).any():
            rows, kinds = self._without_idle_deletes(rows, kinds)
        if kinds is not None and self._appends and not (kinds == RowKind.DELETE.value).any():
            rows, kinds = rows.filter(pa.array(kinds != RowKind.UPDATE_BEFORE.value)), None
        keep, reasons = self._judged(rows, kinds)
        if not keep.all():
            # Rows of a bad key or a check that does not hold; few.
            self.reject(rows.filter(pa.array(~keep)), [reasons[int(n)] for n in np.flatnonzero(~keep).tolist()])
            rows = rows.filter(pa.array(keep))
            kinds = None if kinds is None else kinds[keep]
        fitted = self._fitted(rows)
        if fitted is None:
            return
        if kinds is not None:
            self.has_kinds = True
            fitted = fitted.append_column(KIND, pa.array(kinds, pa.int8()))
        batches = fitted.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], fitted.schema)]
        for batch in batches:
            self.rows.add(batch)

    def _without_idle_deletes(
        self, rows: pa.RecordBatch, kinds: npt.NDArray[np.int8]
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.int8]]:
        """Drop rows that the condition left out and that can delete nothing: their key is null, or the job appends."""
        keep = np.ones(rows.num_rows, bool)
        for name in self._job.key:
            if name in rows.schema.names:
                keep &= rows.column(name).is_valid().to_numpy(zero_copy_only=False)
        keep = (kinds != LEFT_OUT) | (keep & (not self._appends))
        return rows.filter(pa.array(keep)), kinds[keep]

    def _judged(self, rows: pa.RecordBatch, kinds: npt.NDArray[np.int8] | None) -> tuple[Mask, dict[int, str]]:
        """Return which rows can be written, and for the others why not; what a check says of a row that goes does not matter."""
        job, keep, reasons = self._job, np.ones(rows.num_rows, bool), dict[int, str]()
        for name in job.key:
            if name in rows.schema.names and rows.column(name).null_count:
                self._mark(
                    keep, reasons, rows.column(name).is_null().to_numpy(zero_copy_only=False), f"key {name!r} is null"
                )
        # Checks are not asked of rows that go: of some only the key is known.
        goes = np.zeros(rows.num_rows, bool) if kinds is None else np.isin(kinds, GOING)
        if not job.checks or goes.all():
            return keep, reasons
        typed = self._typed(rows)
        numbered = typed.append_column(KIND, pa.array(np.arange(rows.num_rows)))
        for name, expression in job.checks.items():
            condition = parse_filter(expression, typed.schema)
            good = goes.copy()
            good[keep_rows(numbered, condition)[KIND].to_numpy()] = True
            if job.on_check_failed == "abort" and not good.all():
                bad = rows.slice(int(np.flatnonzero(~good)[0]), 1).to_pylist()[0]
                raise RowsRejected(
                    f"{self.source}: check {name!r} ({expression}) does not hold for {np.count_nonzero(~good):,} rows, such as "
                    f"{str(bad)[:200]}; nothing of the round was committed"
                )
            self._mark(keep, reasons, ~good, f"check {name!r} does not hold: {expression}")
        return keep, reasons

    def _typed(self, rows: pa.RecordBatch) -> pa.Table:
        """Return rows in which a column of nothing but nulls has the type of the rows before, and stays one of nulls where there is none.

        Sources leave out columns without a value: what a check names and the rows lack is such a column.
        """
        plain, known = pa.Table.from_batches([rows]).replace_schema_metadata(), self._schema
        names = {name.lower() for name in plain.column_names}
        for name in [each for each in self._checked_columns if each.lower() not in names]:
            plain = plain.append_column(name, pa.nulls(rows.num_rows))
            if name not in known.names and name not in self._named_columns:
                self._named_columns.add(name)
                _log.warning("%s: a check names the column %r, which has had no value so far", self.source, name)
        for number, each in enumerate(plain.schema):
            if pa.types.is_null(each.type) and each.name in known.names:
                field = known.field(each.name).with_nullable(True)
                plain = plain.set_column(number, field, pa.nulls(rows.num_rows, field.type))
        return plain

    @staticmethod
    def _mark(keep: Mask, reasons: dict[int, str], bad: Mask, reason: str) -> None:
        for number in np.flatnonzero(bad & keep):
            reasons[int(number)] = reason
        keep &= ~bad

    def _fitted(self, rows: pa.RecordBatch) -> pa.Table | None:
        """Return rows with the columns of the table and of the rows so far; None: they were rejected.

        Raises:
            SchemaMismatch: they do not go together, and the job stops then.
        """
        job = self._job
        unknown = [f.name for f in rows.schema if pa.types.is_null(f.type) and f.name not in self._schema.names]
        if unknown:  # the first value tells the type
            rows = rows.select([name for name in rows.schema.names if name not in unknown])
        try:
            wider = without_null_types(rows.schema.remove_metadata(), self._schema)
            if len(self._schema):
                wider = evolve(self._schema, wider, missing="null")
            if job.on_schema_change != "add" and self._has_table and not wider.equals(self._schema):
                known = self._schema.names
                new = [
                    each.name
                    for each in wider
                    if each.name not in known or not each.equals(self._schema.field(each.name))
                ]
                raise SchemaMismatch(f"the rows have other columns than the table: {', '.join(map(repr, new))}")
            fitted = conform(
                pa.Table.from_batches([rows]).replace_schema_metadata(), wider, allow_null_list_elements=True
            )
        except SchemaMismatch as error:
            if job.errors is None or job.on_schema_change == "stop":
                advice = f" ({_ERRORS_GO_ON})" if job.errors is None and job.on_schema_change != "stop" else ""
                where = printable_url(job.table)
                error.args = (f"{where}: {error}, where the rows of {self.source} go{advice}", *error.args[1:])
                raise
            self.reject(rows, [str(error)] * rows.num_rows)
            return None
        self._schema = wider
        return fitted

    def reject(self, rows: pa.RecordBatch, reasons: list[str]) -> None:
        """Reject rows of a batch: their payload is what they are as JSON.

        Raises:
            RowsRejected: there is no table for them.
        """
        payloads: list[bytes | None] = [json.dumps(each, default=str).encode() for each in rows.to_pylist()]
        origins = [f"{self.source}@{self._round}#{self._numbered + number}" for number in range(rows.num_rows)]
        self._numbered += rows.num_rows
        self.take_rejected(rejected_records(reasons, origins, payloads))


def without_kind(schema: pa.Schema) -> pa.Schema:
    """Return a schema without the column of kinds."""
    return pa.schema([each for each in schema if each.name != KIND])


class _Rows:
    """The rows of a round for a write, which may take them more than once: a write that conflicts is repeated."""

    def __init__(self, rows: RoundRows, schema: pa.Schema) -> None:
        self._rows, self.schema = rows, schema

    def __len__(self) -> int:
        return self._rows.num_rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        batches = (batch for table in self._rows.tables(self.schema) for batch in table.to_batches())
        return pa.RecordBatchReader.from_batches(self.schema, batches).__arrow_c_stream__(requested_schema)


def _write_input(rows: RoundRows, schema: pa.Schema, operation: WriteOperation) -> object:
    """Return rows for a write: as one table where they are in memory anyway, else as a stream, of which little is held."""
    if operation is WriteOperation.BULK_INSERT and rows.num_rows:
        return _Rows(rows, schema)
    if rows.are_many:
        return pa.RecordBatchReader.from_stream(_Rows(rows, schema))
    return pa.concat_tables([schema.empty_table(), *rows.tables(schema)])


class JobSink:
    """Writes the rounds of a job into its table.

    Args:
        job: of the table.
        storage_options: credentials of the store.
    """

    def __init__(self, job: TableJob, storage_options: Mapping[str, object] | None = None) -> None:
        self.job, self._storage_options = job, storage_options
        self._table: Table | None = None
        self._finder = CheckpointFinder(orders=job.checkpoint is not None or job.ignore_checkpoint is not None)

    @property
    def table(self) -> Table | None:
        """The table; None: there is none yet."""
        if self._table is None:
            try:
                self._use(open_table(self.job.table, storage_options=self._storage_options))
            except TableNotFound:
                return None
        return self._table

    def _use(self, table: Table) -> None:
        """Take a table for the rows.

        Raises:
            InvalidInputError: the job names another key or other partitions.
        """
        key, partition_by = list(self.job.key) or None, list(self.job.partition_by) or None
        check_agreement(table, record_key=key, partition_by=partition_by, ordering=None)
        settings = commit_options(table.client, self.job.settings)
        self._table = open_table(self.job.table, storage_options=self._storage_options, options=settings)

    @property
    def version(self) -> int:
        """The version of the table, or of the one that will be made."""
        table = self.table
        return self.job.table_version if table is None else int(table.properties.version.value)

    def look(self) -> tuple[StoredCheckpoint | None, TableAt | None]:
        """Return the newest checkpoint, and the table at the moment of the look; None: there is none."""
        table = self.table
        if table is None:
            return None, None
        table_at = table.client.at(table.client.load())
        return self._finder.find(table_at), table_at

    def initial_checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint that a table without one begins at; None: the job names none.

        Raises:
            InvalidInputError: the function that is named returns none.
            SourceRefused: the table that is named has none.
        """
        provider, _, name = (self.job.initial_checkpoint_provider or "").partition(":")
        if provider == "python":
            function = load_function(name, "a provider of a first checkpoint")
            checkpoint: object = foreign(function, f"{name!r} failed")
            if not isinstance(checkpoint, str) or not checkpoint:
                raise InvalidInputError(f"{name!r} returned {shown(checkpoint)}, no checkpoint")
            return Checkpoint(checkpoint)
        if provider != "table":
            return None
        client = open_table(name, storage_options=self._storage_options).client
        stored = CheckpointFinder().find(client.at(client.load()))
        if stored is None or stored.text is None:
            raise SourceRefused(f"{client.store.url} has no checkpoint that a first round could begin at")
        return Checkpoint(stored.text, stored.details)

    def waits_for(self, table_at: TableAt) -> str:
        """Return why a continuous job waits: more services are pending than it allows; empty: it does not wait."""
        timeline, job = table_at.timeline, self.job
        compactions = sum(each.action is Action.COMPACTION for each in timeline.pending)
        clusterings = sum(each.action is Action.CLUSTERING for each in timeline.pending)
        clusterings += len(planned_clusterings(table_at))
        for name, count, most in (
            ("compactions", compactions, job.max_pending_compactions),
            ("clusterings", clusterings, job.max_pending_clustering),
        ):
            if most is not None and count > most:
                return f"waits: {count} {name} are pending, and the job allows {most}"
        return ""

    def begin(self, source: str, table_at: TableAt | None, round_name: str) -> RoundBatch:
        """Return what takes the rows of a round."""
        table = self.table
        appends = not (self.job.key if table is None else table.properties.record_key_fields)
        known = None if table_at is None else table_at.schema()
        return RoundBatch(self.job, source, known, round_name, appends=appends)

    def write(
        self, batch: RoundBatch, before: StoredCheckpoint | None, entries: Mapping[str, str]
    ) -> CommitResult | None:
        """Commit a round; None: there is no table and no row that would make one.

        Args:
            batch: its rows.
            before: the checkpoint that it began from.
            entries: what its commit says.

        Raises:
            CheckpointMoved: another process of the job was faster.
            LakefmtError: the write failed, and nothing is visible.
        """
        if self.table is None and not batch.rows.schemas:
            return None
        table = self.ensure(without_kind(batch.rows.unified(pa.schema([]))))
        commit = self.entries_behind(before, entries)
        schema = without_kind(batch.rows.unified(table.schema))
        if batch.has_kinds:
            return write_kinds(table, batch.rows, schema, commit)
        operation, more = self._operation(table)
        return table._write(operation, _write_input(batch.rows, schema, operation), {}, commit, **more)

    def ensure(self, schema: pa.Schema) -> Table:
        """Return the table; make it where it is missing.

        Args:
            schema: of a table that is made.

        Raises:
            InvalidInputError: the job does not say enough.
        """
        table = self.table
        return self._make(schema) if table is None else table

    def entries_behind(self, before: StoredCheckpoint | None, entries: Mapping[str, str]) -> CheckpointCommit:
        """Return what a commit says, if the table is still where the round began."""
        return CheckpointCommit(self._finder, before, entries)

    def _operation(self, table: Table) -> tuple[WriteOperation, dict[str, Any]]:
        """Return how rows are written: into a table without keys they can only be inserted."""
        name = self.job.operation
        keyed = bool(table.properties.record_key_fields)
        if self.job.filter_dupes and name in ("upsert", "insert"):
            return WriteOperation.INSERT, {"drop_duplicates": keyed}
        if name == "upsert" and not keyed:
            return WriteOperation.INSERT, {}
        return WriteOperation(name.upper()), {}

    def check_key(self) -> None:
        """Check that the job says enough to make the table.

        Raises:
            InvalidInputError: rows would be updated, and it names no key.
        """
        if not self.job.key and self.job.operation == "upsert":
            raise InvalidInputError(
                f"{self.job.table} is not there, and the job has no key: give --key for a table whose rows are updated, or "
                "--operation insert for one without keys"
            )

    def _make(self, schema: pa.Schema) -> Table:
        """Make the table.

        Raises:
            InvalidInputError: the job does not say enough, or what does not fit.
        """
        job = self.job
        arguments: dict[str, Any] = {
            "record_key": list(job.key) or None,
            "partition_by": list(job.partition_by) or None,
            "ordering": list(job.ordering) or None,
            "table_type": job.table_type,
            "table_version": job.table_version,
            "index": job.index,
            "name": job.table_name,
        }
        self.check_key()
        table = create_table(
            job.table,
            schema=schema,
            properties=dict(job.properties),
            storage_options=self._storage_options,
            if_exists="open",
            **arguments,
        )
        self._use(table)
        _log.info("%s was made with the columns %s", job.table, ", ".join(schema.names))
        return table if self._table is None else self._table

    def write_rejected(self, batch: RoundBatch) -> None:
        """Put rejected rows into their table; call it before the round is committed, so that none is lost."""
        job = self.job
        if not batch.rejected or job.errors is None:
            return
        rejected = pa.Table.from_batches(batch.rejected, REJECTED)
        rows = pa.table(
            {
                "origin": rejected["origin"],
                "reason": rejected["reason"],
                "source": pa.repeat(pa.scalar(batch.source), rejected.num_rows),
                "payload": rejected["payload"],
            },
            schema=_ERRORS,
        )
        table = create_table(
            job.errors, schema=_ERRORS, record_key="origin", storage_options=self._storage_options, if_exists="open"
        )
        options = commit_options(table.client, job.settings)
        table.upsert(rows, options=options)


# -------------------------------------------------------------------------------------------------- rounds with deletes

#: Column of row kinds (insert, update, delete); it is dropped before the commit.
KIND: Final = "_lakefmt_ingest_kind"

#: The operator of each kind, by its code. A row before an update is deleted unless its key comes again.
_OPERATORS: Final = np.array(
    [
        RowOperator.DELETE_IGNORE.value if code in GOING else RowOperator.UPSERT.value
        for code in range(max(*GOING, *(kind.value for kind in RowKind)) + 1)
    ],
    np.int8,
)


def write_kinds(table: Table, rows: RoundRows, schema: pa.Schema, entries: CommitEntries) -> CommitResult:
    """Commit the rows of a round by their kinds; many of them are put in the order of their keys on the disk, and written by parts.

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
    request = WriteRequest(WriteOperation.UPSERT, dict(client.options), entries=entries)

    def parts(table_at: TableAt) -> Generator[pa.Table]:
        settings = resolve_settings(client.options, None, table_at.config.properties)
        memory = settings.integer("lakefmt.write.window.bytes")
        keyed = partial(_keyed, stored_key_spec(table_at))
        with closing(parts_by_key(keyed, rows.tables(with_kinds), memory, across_partitions=True)) as ordered:
            for part in ordered:
                yield _with_operators(table_at, part.drop_columns([RECORD_KEY]))

    def attempt() -> CommitResult | None:
        if rows.are_many:
            return KeyedCommit(client).upsert_parts(request, client.at(client.load()).schema(), parts)
        state = client.load()
        round_rows = pa.concat_tables([*rows.tables(with_kinds), with_kinds.empty_table()])
        return KeyedCommit(client).upsert(
            request, state, client.at(state).schema(), _with_operators(client.at(state), round_rows)
        )

    return table._finished(retried(client, request, attempt), request, None, perf_counter() - started)


def _keyed(spec: KeySpec, rows: pa.Table) -> KeyedBatch:
    """Return rows with their record keys; rows of a key stay together in whatever partition they are."""
    if RECORD_KEY not in rows.column_names:
        rows = rows.append_column(RECORD_KEY, one_array(build_record_keys(spec, rows)))
    return KeyedBatch(rows, one_array(rows.column(RECORD_KEY)), in_no_partition(rows.num_rows))


def _with_operators(table_at: TableAt, round_rows: pa.Table) -> pa.Table:
    """Return rows with their operators; where a row went whose partition its source did not tell, it goes there.

    A deletion may have its key alone, and an update may come without the row before it: that row may be in another partition.

    Args:
        table_at: the table, at one moment.
        whole: rows of the round with their kinds; all of each of their keys.
    """
    kinds, rows = round_rows[KIND].fill_null(RowKind.UPDATE_AFTER.value).to_numpy(), round_rows.drop_columns([KIND])
    # A row without a kind is an upsert; it does not say whether its key was stored before.
    is_update = (kinds == RowKind.UPDATE_AFTER.value) & round_rows[KIND].is_valid().to_numpy()
    spec = stored_key_spec(table_at)
    names = [each.name for each in spec.partition_fields if each.name not in spec.record_key_fields]
    operators = _OPERATORS[kinds]
    if not names or key_scope(table_at, {}).across or any(name not in rows.column_names for name in names):
        return rows.append_column(OPERATOR, pa.array(operators, pa.int8()))
    keys = one_array(build_record_keys(spec, rows))
    deletes = operators == RowOperator.DELETE_IGNORE.value
    unknown = kinds == LEFT_OUT
    for name in names:
        unknown |= rows.column(name).is_null().to_numpy()
    previous = previous_rows(number_keys(keys)[0])
    lone = is_update & ((previous < 0) | ~deletes[previous])
    asks = (deletes & unknown) | lone
    if not asks.any():
        return rows.append_column(OPERATOR, pa.array(operators, pa.int8()))
    # Of each update without the row before it such a row, whose partition is looked up.
    order = np.sort(np.concatenate([np.arange(len(kinds)), np.flatnonzero(lone)]), kind="stable")
    is_added = np.zeros(len(order), bool)
    is_added[:-1] = order[1:] == order[:-1]
    operators, lacks = operators[order], (deletes & unknown)[order] | is_added
    operators[is_added] = RowOperator.DELETE_IGNORE.value
    first = previous[asks] < 0
    stored, stored_keys = _stored_anywhere(table_at, keys.filter(pa.array(asks)).filter(pa.array(first)), names)
    images = _keys_alone(rows.take(pa.array(order)), is_added, (*spec.record_key_fields, *names))
    placed, stays = placed_rows(
        images, keys.take(pa.array(order)), operators == RowOperator.DELETE_IGNORE.value, lacks, stored, stored_keys
    )
    # Where the row was, an update finds it.
    is_moved = np.zeros(len(order), bool)
    for name in names:
        was, now = (placed[name].filter(pa.array(each)) for each in (is_added, np.roll(is_added, 1)))
        is_same = pc.or_(pc.fill_null(pc.equal(was, now), False), pc.and_(pc.is_null(was), pc.is_null(now)))
        is_moved[is_added] |= ~is_same.to_numpy()
    stays &= ~is_added | is_moved
    return placed.append_column(OPERATOR, pa.array(operators, pa.int8())).filter(pa.array(stays))


def _keys_alone(rows: pa.Table, chosen: Mask, names: tuple[str, ...]) -> pa.Table:
    """Return rows of which some have no values but those of their key and partition."""
    for number, field in enumerate(rows.schema):
        if field.name not in names:
            values = pc.if_else(pa.array(chosen), pa.scalar(None, field.type), rows.column(number))
            rows = rows.set_column(number, field.with_nullable(True), values)
    return rows


def _stored_anywhere(table_at: TableAt, keys: pa.Array, names: list[str]) -> tuple[pa.Table, pa.Array]:
    """Return columns of the stored rows of record keys, in whatever partition they are, and their record keys."""
    stored = rows_of_keys(Snapshot(table_at.client, table_at.state), keys, names)
    return stored.select(names), one_array(stored[RECORD_KEY])


def _widen(table: Table, schema: pa.Schema) -> None:
    """Give the table the columns of the rows, each by a commit of its own: stored rows are read with them."""
    known = table.schema
    for field in schema:
        if field.name not in known.names:
            table.alter.add_column(field.name, field.type)
        elif not known.field(field.name).type.equals(field.type):
            table.alter.update_column(field.name, type=field.type)
