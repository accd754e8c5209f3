"""One write from begin to end, in the process that began it (effects).

Contexts are plain values; what must stay alive between begin and commit (heartbeat, lock, table) is kept here, found
again by the context's owner stamp.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from time import perf_counter
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.config import resolve_settings
from lakefmt.errors import InvalidInputError, LakefmtError, UnsupportedFeature
from lakefmt.filegroups.access import TableAccess, TableState
from lakefmt.index import Index, open_index
from lakefmt.keys import KeyGeneratorType
from lakefmt.schema import avro_to_arrow, evolve, normalise_schema
from lakefmt.values import RECORD_KEY, CommitResult, PartitionPath, WriteOperation
from lakefmt.write.assign import Assigned, FileSizing
from lakefmt.write.conversation import (
    LiveWrite,
    WriteServices,
    abort_write,
    begin_write,
    commit_write,
    table_lock,
)
from lakefmt.write.incoming import KeyedBatch, key_batch, open_stream, read_all
from lakefmt.write.pipeline import assign, assign_deletes, combine, file_sizing, route, stream_files, write_all
from lakefmt.write.values import FileAssignment, WriteContext, WriteStatus

__all__ = ["WriteSession", "find_session"]

_sessions: dict[str, WriteSession] = {}
_guard = Lock()


def find_session(context: WriteContext) -> WriteSession | None:
    """Return the running write of a context, None when this process did not begin it or it has ended."""
    with _guard:
        return _sessions.get(context.owner)


class WriteSession:
    """A write that this process began."""

    def __init__(self, access: TableAccess, live: LiveWrite) -> None:
        self.access = access
        self._live = live
        settings = live.context.settings
        self._services = WriteServices(access, settings, table_lock(access, settings, live.context.owner))
        self._started = perf_counter()

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
        access: TableAccess,
        operation: WriteOperation,
        options: Mapping[str, object],
        *,
        incoming: pa.Schema | None = None,
        schema_change: str = "add",
        partial: bool = False,
        commit_metadata: Mapping[str, str] | None = None,
    ) -> WriteSession:
        """Begin a write; `incoming` may widen the table's schema."""
        def evolved(schema: pa.Schema) -> pa.Schema:
            if incoming is None or operation is WriteOperation.DELETE:
                return schema
            mode: Literal["add", "strict"] = "strict" if schema_change == "strict" else "add"
            return evolve(schema, normalise_schema(incoming), mode, partial=partial)

        session = cls(access, begin_write(access, operation, options, evolved, commit_metadata))
        with _guard:
            _sessions[session.context.owner] = session
        return session

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
        try:
            self.abort()
        except LakefmtError:
            # The first error is the one to report; the next writer undoes what is left.
            self._live.heartbeat.abandon()
            self._end()

    def assign(self, data: object) -> list[tuple[FileAssignment, list[pa.Table]]]:
        """Give every row of `data` its file."""
        schema, tables = open_stream(data)
        batch = self.key(read_all(schema, tables))
        return [(a.assignment, [route(batch, a)]) for a in self.assign_batch(batch)]

    def key(self, table: pa.Table) -> KeyedBatch:
        """Return rows in the table's schema, keyed, and combined where the operation asks for it."""
        settings = self.context.settings
        allow = settings.text("lakefmt.write.null_list_elements") == "allow"
        spec = self.access.key_spec(self.state.config)
        if spec.generator is KeyGeneratorType.AUTO_RECORD:
            raise UnsupportedFeature("tables with generated keys are not written yet")
        batch = key_batch(spec, table, avro_to_arrow(self.context.schema_text), allow_null_elements=allow)
        if not self._combines():
            return batch
        config = self.state.config
        across = self.index().is_global
        return combine(batch, config.ordering_fields, config.merge_mode, across_partitions=across)

    def _combines(self) -> bool:
        settings, operation = self.context.settings, self.context.operation
        if operation is WriteOperation.UPSERT:
            return settings.flag("hoodie.combine.before.upsert")
        return settings.flag("hoodie.combine.before.insert")

    def index(self) -> Index:
        """Return the index of this write: the call's, else the table's, else bloom."""
        chosen = self.context.settings.text("hoodie.index.type") or self.access.load_notes().get("index") or "bloom"
        return open_index(str(chosen))

    def assign_batch(self, batch: KeyedBatch) -> list[Assigned]:
        """Look the keys up (unless rows are only appended) and give every row its file."""
        index = self.index() if self.context.operation is WriteOperation.UPSERT else None
        sizing = file_sizing(self.access, self.state, self.context.settings, batch.table)
        return assign(self.access, self.context, self.state, batch, index, sizing)

    def write(self, batch: KeyedBatch, assigned: Sequence[Assigned]) -> list[WriteStatus]:
        """Write every assigned file in this process."""
        return write_all(self.access.store, self.context, batch, assigned)

    def stream(self, tables: Iterable[pa.Table], sort: str) -> tuple[list[WriteStatus], int]:
        """Write new files from a stream in bounded memory; returns also how many rows came."""
        if sort not in ("none", "partition", "global"):
            raise InvalidInputError(f"unknown sort {sort!r}: expected 'none', 'partition' or 'global'")
        spec = self.access.key_spec(self.state.config)
        schema = avro_to_arrow(self.context.schema_text)

        def sizing(sample: pa.Table) -> FileSizing:
            return file_sizing(self.access, self.state, self.context.settings, sample)

        return stream_files(self.access, self.context, spec, schema, tables, sizing, sort)

    def assign_deletes(self, keys: pa.StringArray, partitions: Sequence[PartitionPath] | None) -> list[Assigned]:
        """Find where keys are stored, in the partitions named or anywhere; keys that are nowhere are left out."""
        unique = pc.unique(keys)
        return assign_deletes(self.access, self.context, self.state, unique, partitions, self.index())

    def write_deletes(self, keys: pa.StringArray, assigned: Sequence[Assigned]) -> list[WriteStatus]:
        """Rewrite the files that hold the keys, without them."""
        unique = pc.unique(keys)
        nowhere = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(unique), np.int32)), pa.array([""]))
        batch = KeyedBatch(pa.table({RECORD_KEY: unique}).select([]), unique, nowhere)
        return write_all(self.access.store, self.context, batch, assigned)

    def commit(self, statuses: Sequence[WriteStatus]) -> CommitResult:
        """Make the write visible."""
        result = commit_write(self._services, self._live, statuses)
        self._end()
        return replace(result, seconds=perf_counter() - self._started, warnings=self.context.settings.notes)

    def abort(self) -> None:
        """Undo the write."""
        abort_write(self._services, self.context, self._live.heartbeat)
        self._end()

    def _end(self) -> None:
        with _guard:
            _sessions.pop(self.context.owner, None)
