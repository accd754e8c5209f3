"""Snapshots that also show what streams have made durable and not committed yet (effects: reads only).

Only lakefmt shows these rows, and only to who asks. Rows of a table without keys are added to the stored ones. Where a
table has keys, the rows of the streams and the stored rows are merged by the table's rule, as the next commit will do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.config.table_config import merge_rule
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.merge import Incoming, merge_into_base
from lakefmt._core.filegroups.stored_keys import key_columns, keyed_rows, stored_key_spec
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.keys import KeySpec, with_path_values
from lakefmt._core.read.filters import Filter, keep_rows
from lakefmt._core.read.scan import Query, check_query_type, plan_query
from lakefmt._core.read.snapshot import Snapshot, rows_of_keys
from lakefmt._core.schema import with_meta_columns
from lakefmt._core.segments.codec import COLUMNS, OPERATOR, SegmentHeader, read_segments
from lakefmt._core.segments.pending import header_times, in_order, load_streams, plan_streams
from lakefmt._core.segments.resolve import (
    codes_in,
    current_rows,
    fill_required,
    fitted_together,
    joined_rows,
    needs_stored,
    number_keys,
    resolve_rows,
    row_identities,
    stored_identities,
    stream_rules,
)
from lakefmt._core.values import META_COLUMNS, PARTITION_PATH, RECORD_KEY, TableType
from lakefmt.errors import ObjectNotFound, SnapshotExpired

__all__ = ["UncommittedSnapshot", "load_uncommitted"]

Mask = npt.NDArray[np.bool_]


def load_uncommitted(client: TableClient) -> UncommittedSnapshot:
    """Return a snapshot of now with the rows of all streams.

    Raises:
        SnapshotExpired: a segment was committed and deleted meanwhile; read again.
        CorruptFile: a segment is damaged.
    """
    streams = load_streams(client)
    times = header_times(client) if sum(bool(each.headers) for each in streams) > 1 else {}
    state = client.load()
    plans = plan_streams(client.at(state), streams)
    return UncommittedSnapshot(client, state, tuple(in_order([plan.to_commit for plan in plans], times)))


@dataclass(frozen=True)
class UncommittedSnapshot(Snapshot):
    """A snapshot with the segments of streams that were not committed at that moment."""

    headers: tuple[SegmentHeader, ...] = ()

    def read(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter = None,
        query: str = "snapshot",
        *,
        meta_columns: bool = False,
    ) -> pa.Table:
        """Read rows; arguments as for ``Table.read``."""
        return self.scan(columns, filter, query, meta_columns=meta_columns).read_all()

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter = None,
        query: str = "snapshot",
        *,
        meta_columns: bool = False,
    ) -> pa.RecordBatchReader:
        """Stream rows in bounded memory; arguments as for ``Table.read``."""
        check_query_type(query)
        plan = plan_query(self.state.config, self.schema, columns, filter, meta_columns=meta_columns)
        if not self.headers or query != "snapshot":
            return super().scan(columns, filter, query, meta_columns=meta_columns)
        changed = self._changed
        rows = keep_rows(changed.rows, plan.condition).select(list(plan.columns))
        below = super().scan(self._with_identity(plan, changed), filter, meta_columns=False)
        schema = plan.result_schema

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in below:
                yield from self._kept(batch, changed, plan).cast(schema).to_batches()
            yield from rows.cast(schema).to_batches()

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _with_identity(self, plan: Query, changed: _Changed) -> list[str]:
        identity = () if changed.identities is None else key_columns(self._known_at)
        return list(dict.fromkeys([*plan.columns, *identity]))

    def _kept(self, batch: pa.RecordBatch, changed: _Changed, plan: Query) -> pa.Table:
        """Return the stored rows whose keys no stream changes."""
        rows = pa.Table.from_batches([batch])
        if changed.identities is not None and rows.num_rows:
            identity_texts = stored_identities(keyed_rows(self._known_at, rows), across=changed.across)
            rows = rows.filter(pc.invert(pc.is_in(identity_texts, value_set=changed.identities)))
        return rows.select(list(plan.columns))

    @cached_property
    def _changed(self) -> _Changed:
        try:
            segments = read_segments(self.client.store, self.headers)
        except ObjectNotFound as error:
            raise SnapshotExpired(f"{error} is gone: it was committed meanwhile") from None
        tables = current_rows(self._known_at, self.headers, segments)
        spec = self.client.key_spec(self._known.config)
        if spec.auto_keys or not spec.record_key_fields:
            incoming = fitted_together(tables, self.schema)
            plain = incoming.drop_columns([name for name in (OPERATOR, COLUMNS) if name in incoming.column_names])
            return _Changed(_with_meta(plain, self.schema, None, None), None, across=True)
        # The next commit takes those of all streams, in this order.
        return self._merged([fitted_together(tables, self.schema)])

    def _merged(self, streams: Sequence[pa.Table]) -> _Changed:
        """Return what the rows of the streams, one after the other, and the stored rows of their keys come to."""
        spec = self.client.key_spec(self._known.config)
        across = any(header.across for header in self.headers)
        identities, keys, _ = row_identities(spec, joined_rows(list(streams)), across=across)
        distinct = number_keys(identities)[1]
        stored = rows_of_keys(Snapshot(self.client, self._known_at.state), keys)
        merged = stored.filter(pa.array(codes_in(stored_identities(stored, across=across), distinct) >= 0))
        for incoming in streams:
            merged = self._with_stream(merged, incoming, across=across)
        return _Changed(merged, distinct, across=across)

    def _with_stream(self, stored: pa.Table, incoming: pa.Table, *, across: bool) -> pa.Table:
        """Return stored rows after the next commit of a stream."""
        config = self._known.config
        spec, rule = stored_key_spec(self._known_at), merge_rule(config)
        numbers, distinct = number_keys(row_identities(spec, incoming, across=across)[0])
        rules = stream_rules(rule, self.schema, has_logs=config.table_type is TableType.MERGE_ON_READ)
        below, of_below = None, np.array([], np.int64)
        if needs_stored(incoming, numbers, rules).any():
            of_stored = codes_in(stored_identities(stored, across=across), distinct)
            below, of_below = stored.filter(pa.array(of_stored >= 0)), of_stored[of_stored >= 0]
        resolved = resolve_rows(incoming, numbers, below, of_below, rules)
        if resolved.first is not None:
            # Deletes of rows that came back; the rows that came and went are nowhere to be seen.
            gone = resolved.first.rows.filter(pa.array(resolved.first.deletes))
            of_gone = row_identities(spec, gone, across=across)[0]
            stored = stored.filter(pa.array(codes_in(stored_identities(stored, across=across), of_gone) < 0))
        identity_texts, new_keys, new_partitions = row_identities(spec, resolved.rows, across=across)
        rows = _with_meta(fill_required(resolved.rows, self.schema), self.schema, new_keys, new_partitions)
        # A key of the whole table, or of its partition: what tells rows apart stands for the key while they are merged.
        base = _replaced(stored, stored_identities(stored, across=across))
        with_deletes = Incoming(_replaced(rows, identity_texts), resolved.deletes)
        merged = merge_into_base(base.cast(rows.schema), with_deletes, rule=rule).table
        plain_keys = merged.column(RECORD_KEY).combine_chunks()
        indices = codes_in(plain_keys, pa.concat_arrays([identity_texts, base.column(RECORD_KEY).combine_chunks()]))
        originals = pa.concat_arrays([new_keys, stored.column(RECORD_KEY).combine_chunks()])
        merged = _replaced(merged, originals.take(pa.array(indices)))
        if any(header.stays for header in self.headers):
            merged = _in_stored_partitions(merged, plain_keys, base, spec)
        return merged


@dataclass(frozen=True, slots=True)
class _Changed:
    """The rows of all keys that streams change, and what tells the keys; None: the table has none."""

    rows: pa.Table
    identities: pa.Array | None
    across: bool


def _with_meta(rows: pa.Table, schema: pa.Schema, keys: pa.Array | None, partitions: pa.Array | None) -> pa.Table:
    """Return rows with meta columns: those that only a commit can tell are null."""
    full = with_meta_columns(schema)
    made = {RECORD_KEY: keys, PARTITION_PATH: partitions}
    columns = [
        rows.column(field.name)
        if field.name not in META_COLUMNS
        else made.get(field.name)
        if made.get(field.name) is not None
        else pa.nulls(rows.num_rows, field.type)
        for field in full
    ]
    return pa.table(columns, schema=pa.schema([field.with_nullable(True) for field in full]))


def _in_stored_partitions(rows: pa.Table, identities: pa.Array, stored: pa.Table, spec: KeySpec) -> pa.Table:
    """Return rows with the partition of the stored row of their key, and its values, as the commit will write them."""
    indices = pc.index_in(identities, value_set=stored.column(RECORD_KEY).combine_chunks())
    paths = stored.column(PARTITION_PATH).combine_chunks().take(indices)
    index = rows.schema.get_field_index(PARTITION_PATH)
    own = rows.column(index).combine_chunks()
    rows = rows.set_column(index, rows.schema.field(index), pc.coalesce(paths, own))
    return with_path_values(rows, spec, paths)


def _replaced(rows: pa.Table, keys: pa.Array) -> pa.Table:
    index = rows.schema.get_field_index(RECORD_KEY)
    return rows.set_column(index, pa.field(RECORD_KEY, pa.string()), keys)
