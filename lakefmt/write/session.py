"""One write from begin to end, in the process that began it (effects).

Contexts are plain values; what must stay alive between begin and commit (heartbeat, lock, table) is kept here, found
again by the context's owner stamp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Literal

import numpy as np
import pyarrow as pa

from lakefmt.config.table_config import merge_rule
from lakefmt.errors import CommitConflict, LakefmtError, LeaseLost, StorageError
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.index import Index, IndexKeys, choose_index, key_files, locate_everywhere, moves_between_partitions
from lakefmt.keys import KeySpec, check_colliding_keys
from lakefmt.schema import avro_to_arrow, evolve, null_element_columns
from lakefmt.timeline.locks.reentrant import held_lock_of
from lakefmt.transactions.client import write_client_of
from lakefmt.values import CommitResult, FileId, PartitionPath, TableType, WriteOperation
from lakefmt.write._partition_path_updates import fill_from_stored, partition_changed
from lakefmt.write._slice_state import SliceReader, apply_log_deletes, find_stored
from lakefmt.write.assign import Assigned, FileSizing
from lakefmt.write.bulk.bulk_insert import stream_files
from lakefmt.write.commit.conflict_resolution import Footprint, check_early, clustered_groups
from lakefmt.write.commit.retry import FirstSchema
from lakefmt.write.commit.transaction import LiveWrite, abort_write, begin_write, commit_write, rehearse_write
from lakefmt.write.context import FileAssignment, WriteContext, WritePlan, WriteRequest, WriteStatus
from lakefmt.write.ingest import KeyedBatch, combine, key_batch, open_stream, read_all, record_keys
from lakefmt.write.mutations import DeleteKeys
from lakefmt.write.pipeline import (
    append_files,
    assign_batch,
    assign_deletes,
    file_sizing,
    ignores_deleted_keys,
    route,
    write_assigned_files,
)

__all__ = ["WriteSession", "find_session"]

_sessions: dict[str, WriteSession] = {}
_guard = Lock()

#: Seconds between attempts to undo a write that failed, while the store does not answer.
_UNDO_PAUSES = (0.05, 0.2, 0.5)

_OVERWRITES = frozenset({WriteOperation.INSERT_OVERWRITE, WriteOperation.INSERT_OVERWRITE_TABLE})
_APPENDS = frozenset({WriteOperation.INSERT, WriteOperation.BULK_INSERT, *_OVERWRITES})


def find_session(context: WriteContext) -> WriteSession | None:
    """Return the running write of a context, None when this process did not begin it or it has ended."""
    with _guard:
        return _sessions.get(context.owner)


class WriteSession:
    """A write that this process began."""

    def __init__(self, client: TableClient, request: WriteRequest, live: LiveWrite) -> None:
        self.client = client
        self._request = request
        self._live = live
        self._settings = live.context.settings
        self._write_client = write_client_of(client, self._settings, live.context.owner)
        self._started = perf_counter()
        self._keys: list[tuple[pa.StringArray, pa.DictionaryArray | None]] = []
        self._keys_in: set[PartitionPath] | None = set()
        self._read: set[tuple[PartitionPath, FileId]] = set()
        self._covers: Sequence[PartitionPath] | None = ()
        self._null_elements: set[str] = set()

    @property
    def context(self) -> WriteContext:
        """The write's context."""
        return self._live.context

    @property
    def state(self) -> TableState:
        """The table when the write began."""
        return self._live.state

    @classmethod
    def begin(
        cls,
        client: TableClient,
        request: WriteRequest,
        incoming: pa.Schema | None = None,
        based_on: TableState | None = None,
        first: FirstSchema | None = None,
    ) -> WriteSession:
        """Begin a write.

        Args:
            client: the table.
            request: what is asked for.
            incoming: the data's schema; it may widen the table's.
            based_on: the state that the rows were read from, when they were.
            first: remembers the table's schema from attempt to attempt.

        Raises:
            CommitConflict: somebody committed since the rows were read; the write would undo that. Beside other writers
                only those commits matter that changed what this write changes, and the commit asks for them.
        """
        live = begin_write(client, request, _evolution(request, incoming, first))
        alone = not live.rules.beside
        session = cls(client, request, live if alone else replace(live, based_on=based_on))
        with _guard:
            _sessions[session.context.owner] = session
        if alone and based_on is not None and based_on.timeline.commits != session.state.timeline.commits:
            session.abort()
            raise CommitConflict("another commit completed after the rows to change were read; do it again")
        return session

    @classmethod
    def rehearse(cls, client: TableClient, request: WriteRequest, incoming: pa.Schema | None = None) -> WriteSession:
        """Return a write that can be planned, not run; nothing in the store is touched."""
        return cls(client, request, rehearse_write(client, request, _evolution(request, incoming)))

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Abort the write when the block fails; a process that dies in it is undone by the next writer."""
        try:
            yield
        except (Exception, KeyboardInterrupt):
            self._undo_quietly()
            raise
        except BaseException:
            # The process is on its way out: whatever is left, the next writer finds a dead heartbeat.
            self._live.heartbeat.abandon()
            self._end()
            raise

    def _undo_quietly(self) -> None:
        for pause in (*_UNDO_PAUSES, None):
            try:
                self._abort_out_of_turn()
            except LakefmtError as error:
                # A rollback may have taken the markers away: then nobody but this write knows its files.
                if pause is not None and isinstance(error, StorageError) and error.transient:
                    self.client.time_source.sleep(pause)
                    continue
                # The first error is the one to report; the next writer undoes what is left.
                self._live.heartbeat.abandon()
                self._end()
            return

    def _abort_out_of_turn(self) -> None:
        try:
            self.abort()
        except LeaseLost:
            # Its turn was lost: who took the lock may have undone this write before its last file came, and knows of none.
            held_lock = held_lock_of(self.client.store.url)
            if held_lock is None:
                raise
            held_lock.end()
            self.abort()

    # --- whole verbs ---------------------------------------------------------------------------------------------

    def run(self, data: pa.Table | Iterable[pa.Table]) -> CommitResult | None:
        """Write rows and commit; None when there was nothing to write and nothing to remember.

        Args:
            data: all rows, or a stream of tables for a bulk insert.
        """
        with self.undone_on_error():
            if isinstance(data, pa.Table):
                batch = self.key(data)
                statuses = self._write_batch(batch)
                some = bool(statuses)
            else:
                statuses, rows = self._stream(data)
                some = rows > 0
            if not some and not self._request.keeps_empty:
                self.abort()
                return None
            return self.commit(statuses)

    def run_delete(self, delete_keys: DeleteKeys) -> CommitResult | None:
        """Remove keys and commit; None when none of them was there."""
        with self.undone_on_error():
            if not delete_keys.selected:
                # Given by key they are gone afterwards: nobody may bring one in meanwhile.
                listed = delete_keys.listed()
                self._keys.append((delete_keys.keys, delete_keys.homes))
                self._keys_in = None if listed is None else set(listed)
            assigned = assign_deletes(self.client, self.context, self.state, delete_keys, self.index())
            self._rely_on_deletes(delete_keys.keys, delete_keys.homes)
            if not assigned and not self._request.commit_metadata:
                self.abort()
                return None
            self._early_conflict_check(assigned)
            batch = KeyedBatch(pa.table({}), delete_keys.keys, _nowhere(len(delete_keys.keys)))
            return self.commit(self._write_all(batch, assigned))

    def run_delete_partitions(self, partitions: Sequence[PartitionPath]) -> CommitResult | None:
        """Hide every file group of the partitions and commit; None when there was none."""
        with self.undone_on_error():
            self._covers = partitions
            replaced = self._groups_in(partitions)
            if not replaced and not self._request.commit_metadata:
                self.abort()
                return None
            return self.commit([], replaced)

    # --- plans ---------------------------------------------------------------------------------------------------

    def plan(self, data: pa.Table) -> WritePlan:
        """Return what :meth:`run` would write."""
        batch = self.key(data)
        if self._request.drop_duplicates:
            batch = self._without_stored(batch)
        assigned = self._assign_batch(batch)
        touched = sorted({a.assignment.partition for a in assigned})
        return self._plan(assigned, self._overwritten(touched), batch.num_rows)

    def plan_delete(self, delete_keys: DeleteKeys) -> WritePlan:
        """Return what :meth:`run_delete` would write."""
        assigned = assign_deletes(self.client, self.context, self.state, delete_keys, self.index())
        return self._plan(assigned, {}, len(delete_keys.keys))

    def plan_delete_partitions(self, partitions: Sequence[PartitionPath]) -> WritePlan:
        """Return what :meth:`run_delete_partitions` would hide."""
        return self._plan([], self._groups_in(partitions), 0)

    def _plan(
        self, assigned: Sequence[Assigned], replaced: Mapping[PartitionPath, tuple[FileId, ...]], rows: int
    ) -> WritePlan:
        files = tuple(a.assignment for a in assigned)
        return WritePlan(None, operation=self._request.operation, assignments=files, replaced=replaced, rows=rows)

    # --- rooms ---------------------------------------------------------------------------------------------------

    def assign(self, data: object) -> list[tuple[FileAssignment, list[pa.Table]]]:
        """Give every row of `data` its file."""
        schema, tables = open_stream(data)
        batch = self.key(read_all(schema, tables))
        self._record_footprint(batch)
        assigned = self._assign_batch(batch)
        self._early_conflict_check(assigned)
        return [(a.assignment, [route(batch, a)]) for a in assigned]

    def key(self, table: pa.Table) -> KeyedBatch:
        """Return rows in the table's schema, keyed, and combined where the operation asks for it."""
        spec = self.client.key_spec(self.state.config)
        schema = avro_to_arrow(self.context.schema_text)
        if self._request.partial:
            schema = pa.schema([field for field in schema if field.name in table.column_names])
        batch = self._keyed(spec, schema, table)
        if self._request.operation not in _APPENDS:
            record_keys(batch)
        if self._combines() or self._request.operation is WriteOperation.UPSERT:
            self._check_collisions(spec, batch)
        if self._combines():
            rule = merge_rule(self.state.config)
            if self._request.operation is WriteOperation.DELETE:
                rule = replace(rule, custom=None)  # keys to delete are no rows
            whole = not self._request.partial
            batch = combine(batch, rule, across_partitions=self.index().is_global, whole=whole)
        if self._request.partial and moves_between_partitions(self.index()):
            return self._completed(batch)
        return batch

    def _check_collisions(self, spec: KeySpec, batch: KeyedBatch) -> None:
        """Refuse different rows that would be merged because their record keys read the same."""
        if self._settings.text("lakefmt.write.colliding_keys") == "merge" or batch.keys is None:
            return
        if self._request.operation is not WriteOperation.DELETE:
            within = None if self.index().is_global else batch.partitions
            check_colliding_keys(spec, batch.table, batch.keys, within)

    def _keyed(self, spec: KeySpec, schema: pa.Schema, table: pa.Table) -> KeyedBatch:
        """Return rows in a schema with their keys; remember what is to be said of them when they are committed."""
        allow = self._settings.text("lakefmt.write.null_list_elements") == "allow"
        batch = key_batch(spec, table, schema, allow_null_elements=allow)
        self._null_elements.update(null_element_columns(batch.table))
        return batch

    def _completed(self, batch: KeyedBatch) -> KeyedBatch:
        """Give partial rows the stored values they lack, when some of them move to another partition."""
        slices = self.client.slices(self.state)
        wanted = IndexKeys(record_keys(batch), batch.partitions)
        located = find_stored(self.client, self.state, self.index(), wanted, slices, alive=True)
        if not partition_changed(batch, located, slices).any():
            return batch
        reader = SliceReader(self.client, self.state, slices)
        return fill_from_stored(batch, located, slices, avro_to_arrow(self.context.schema_text), reader)

    def _combines(self) -> bool:
        operation = self._request.operation
        if operation in (WriteOperation.UPSERT, WriteOperation.DELETE):
            return self._settings.flag(f"hoodie.combine.before.{operation.value.lower()}")
        return self._request.drop_duplicates or self._settings.flag("hoodie.combine.before.insert")

    def index(self) -> Index:
        """Return the index of this write: the call's, else the table's, else bloom."""
        return choose_index(self.client, self._settings, self.state.config)

    def _write_batch(self, batch: KeyedBatch) -> list[WriteStatus]:
        self._record_footprint(batch)
        if self._request.drop_duplicates:
            batch = self._without_stored(batch)
        assigned = self._assign_batch(batch)
        self._early_conflict_check(assigned)
        return self._write_all(batch, assigned)

    def _write_all(self, batch: KeyedBatch, assigned: Sequence[Assigned]) -> list[WriteStatus]:
        known = key_files(self.client, self.state).known
        return write_assigned_files(self.client.store, self.context, batch, assigned, known)

    def _record_footprint(self, batch: KeyedBatch) -> None:
        """Remember the keys that must not come in beside this write: what it promises is one row for each."""
        if self._request.operation in _APPENDS and not self._request.drop_duplicates:
            return
        self._keys.append((record_keys(batch), batch.partitions))
        if self._keys_in is None or self.index().is_global:
            self._keys_in = None
        else:
            self._keys_in.update(map(PartitionPath, batch.partitions.dictionary.to_pylist()))  # partitions, not rows

    def _early_conflict_check(self, assigned: Sequence[Assigned]) -> None:
        """Raise when a rival is at the file groups that are to be changed, or a clustering takes them in."""
        opened = {(a.assignment.partition, a.assignment.file_id) for a in assigned if _opens(a.assignment)}
        groups = {(a.assignment.partition, a.assignment.file_id) for a in assigned} - opened
        begun = self._live.based_on or self.state
        held_lock = held_lock_of(self.client.store.url)
        # In its turn nobody completes before it: whoever is at the same file groups will have to give way.
        look = self._live.rules.early and (held_lock is None or held_lock.lease is None)
        check_early(self._write_client, self.context, begun, groups, look=look)

    def _without_stored(self, batch: KeyedBatch) -> KeyedBatch:
        """Leave out rows whose key is stored already."""
        index = self.index()
        listed = batch.partitions.dictionary.to_pylist()  # partitions, not rows
        slices = self.client.slices(self.state, None if index.is_global else [PartitionPath(p) for p in listed])
        wanted = IndexKeys(record_keys(batch), batch.partitions)
        located = find_stored(self.client, self.state, index, wanted, slices, alive=True)
        self._read |= {(slices[n].partition, slices[n].file_id) for n in np.unique(located.slices)}
        fresh = np.ones(batch.num_rows, dtype=bool)
        fresh[located.rows] = False
        self._rely_on_deletes(wanted.keys, batch.partitions)
        return batch.take(pa.array(np.flatnonzero(fresh)))

    def _rely_on_deletes(self, keys: pa.StringArray, homes: pa.DictionaryArray | None) -> None:
        """Remember the file groups whose logs have deleted keys that this write takes for absent: a rival may revive them.

        A row that goes to such a log counts as an update: the rival's commit does not tell that it brought a key.
        """
        if not self._live.rules.beside or self.state.config.table_type is not TableType.MERGE_ON_READ:
            return
        index, reader = self.index(), key_files(self.client, self.state)
        slices = [file_slice for file_slice in self.client.slices(self.state) if file_slice.logs]
        if homes is None or index.is_global:
            located, places = locate_everywhere(index, keys, slices, reader), None
        else:
            located, places = index.locate(IndexKeys(keys, homes), slices, reader), homes
        located = apply_log_deletes(self.client, self.state, keys, places, located, slices, alive=False)
        self._read |= {(slices[n].partition, slices[n].file_id) for n in np.unique(located.slices)}

    def _assign_batch(self, batch: KeyedBatch) -> list[Assigned]:
        """Look the keys up (unless rows are only appended) and give every row its file."""
        sizing = self._sizing(batch.table)
        if self._request.operation in _OVERWRITES or self._request.operation is WriteOperation.BULK_INSERT:
            return append_files(self.context, batch, sizing, self.client.ids)
        index = None if self._request.operation in _APPENDS else self.index()
        if index is not None and (index.is_global or ignores_deleted_keys(self.context, self.state, batch)):
            self._rely_on_deletes(record_keys(batch), batch.partitions)
        return assign_batch(self.client, self.context, self.state, batch, index, sizing)

    def _sizing(self, sample: pa.Table) -> FileSizing:
        sizing = file_sizing(self.client, self.state, self._settings, sample)
        # New rows keep out of files that a pending clustering is about to replace.
        return replace(sizing, small_bytes=0) if clustered_groups(self.client, self.state) else sizing

    def _stream(self, tables: Iterable[pa.Table]) -> tuple[list[WriteStatus], int]:
        spec = self.client.key_spec(self.state.config)
        schema = avro_to_arrow(self.context.schema_text)
        keyed = partial(self._keyed, spec, schema)
        return stream_files(self.client, self.context, spec, schema, tables, keyed, self._sizing, self._request.sort)

    # --- the end -------------------------------------------------------------------------------------------------

    def commit(
        self, statuses: Sequence[WriteStatus], replaced: Mapping[PartitionPath, tuple[FileId, ...]] | None = None
    ) -> CommitResult:
        """Make the write visible."""
        touched = sorted({s.stat.partition_path for s in statuses})
        if self._request.operation in _OVERWRITES:
            self._covers = None if self._request.operation is WriteOperation.INSERT_OVERWRITE_TABLE else touched
        hidden = self._overwritten(touched) if replaced is None else replaced
        footprint = Footprint(
            tuple(self._keys),
            None if self._keys_in is None else frozenset(self._keys_in),
            frozenset(self._read),
            None if self._covers is None else frozenset(self._covers),
        )
        result = commit_write(self._write_client, self._live, statuses, hidden, footprint)
        self._end()
        return replace(result, seconds=perf_counter() - self._started, warnings=self._warnings())

    def _warnings(self) -> tuple[str, ...]:
        if not self._null_elements:
            return self._settings.notes
        names = ", ".join(sorted(self._null_elements))
        return (
            *self._settings.notes,
            f"lists with null elements were written ({names}): Hudi on Spark rewrites such a file only with "
            "parquet.avro.write-old-list-structure=false in its Hadoop configuration; "
            "lakefmt.write.null_list_elements=refuse refuses such rows",
        )

    def _overwritten(self, touched: Sequence[PartitionPath]) -> Mapping[PartitionPath, tuple[FileId, ...]]:
        if self._request.operation is WriteOperation.INSERT_OVERWRITE_TABLE:
            return self._groups_in(None)
        if self._request.operation is WriteOperation.INSERT_OVERWRITE:
            return self._groups_in(touched)
        return {}

    def _groups_in(self, partitions: Sequence[PartitionPath] | None) -> dict[PartitionPath, tuple[FileId, ...]]:
        found: dict[PartitionPath, list[FileId]] = {}
        for file_slice in self.client.slices(self.state, partitions):
            found.setdefault(file_slice.partition, []).append(file_slice.file_id)
        return {partition: tuple(ids) for partition, ids in found.items()}

    def abort(self) -> None:
        """Undo the write."""
        abort_write(self._write_client, self.context, self._live.heartbeat)
        self._end()

    def _end(self) -> None:
        with _guard:
            _sessions.pop(self.context.owner, None)


def _evolution(
    request: WriteRequest, incoming: pa.Schema | None, first: FirstSchema | None = None
) -> Callable[[pa.Schema], pa.Schema]:
    """Return how a write changes the table's schema."""

    def evolved(schema: pa.Schema) -> pa.Schema:
        if incoming is None or request.operation in (WriteOperation.DELETE, WriteOperation.DELETE_PARTITION):
            return schema
        mode: Literal["add", "strict"] = "strict" if request.schema_change == "strict" else "add"
        brought = incoming if first is None or request.partial else first.completed(incoming, schema)
        return evolve(schema, brought, mode, partial=request.partial)

    return evolved


def _opens(assignment: FileAssignment) -> bool:
    """Return whether an assignment opens a file group."""
    return assignment.base is None and (assignment.log is None or not assignment.log.older)


def _nowhere(count: int) -> pa.DictionaryArray:
    """Return partitions for rows that are meant for none in particular."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([""]))
