"""Writing one assigned file, anywhere, any number of times (effects).

Retried and run twice freely: the name is fixed by the assignment, the file appears by put-if-absent, and whoever comes
second adopts what is there. It touches nothing but its own marker and its own new file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.errors import CorruptFile, InternalError, StorageError
from lakefmt.filegroups.base_writer import ROW_GROUP_BYTES, grown_filter, new_filter, repeated
from lakefmt.filegroups.log_writer import I64, LogRowsOut
from lakefmt.filegroups.merge import Incoming, Mask, Merged, merge_into_base
from lakefmt.filegroups.merge_values import has_order, marked_deletes, ordering_columns, refuse_nulls, to_mask
from lakefmt.filegroups.model import BaseFile, join_path
from lakefmt.filegroups.reader import BaseFileReader
from lakefmt.filegroups.unstored import unstored_of
from lakefmt.formats.bloom import BloomFilter
from lakefmt.formats.names import PARTITION_METADATA, MarkerType
from lakefmt.formats.parquet import BaseFileWriter, KeySummary, key_footers
from lakefmt.formats.properties import encode_properties
from lakefmt.keys import build_auto_keys
from lakefmt.schema import avro_to_arrow, reconcile, with_meta_columns
from lakefmt.storage.api import ObjectStore, PutOutcome
from lakefmt.storage.leftovers import remove_abandoned
from lakefmt.table_config import merge_rule
from lakefmt.timeline.markers import announce
from lakefmt.timeline.store import settle_put
from lakefmt.values import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    META_COLUMNS,
    PARTITION_PATH,
    RECORD_KEY,
    WriteOperation,
    WriteStat,
)
from lakefmt.write.cdc import cdc_stats, log_changes
from lakefmt.write.log_files import split_deletes, write_log
from lakefmt.write.spilling import FileKeys, row_memory
from lakefmt.write.values import MOVED_AWAY, FileAssignment, WriteContext, WriteStatus

__all__ = ["MOVED_AWAY", "POSITION", "FileInProgress", "write_assigned"]

#: A column of routed rows, never stored as such: the row of the base file that a log's row changes.
POSITION = "_lakefmt_position"
#: A filter takes its bits eight times over while it is made. Of so many keys that is 20 MB: what the rows took then goes
#: back to the system first. After every file that would cost a fifth of an upsert, in pages that are asked for again.
_MANY_KEYS = 500_000
#: A piece of spilled keys is this part of the memory, and the bits of a filter, as a byte each, are that part at most.
_KEY_PARTS, _FLAG_PARTS = 16, 2
#: Footer entry by which a second attempt learns what the first one counted.
STAT_KEY = "lakefmt.write_stat"


def write_assigned(
    store: ObjectStore,
    context: WriteContext,
    assignment: FileAssignment,
    batches: Iterable[pa.Table],
    *,
    alone: bool = False,
) -> WriteStatus:
    """Write the assigned file from routed rows (each with its record key column), or adopt the one that is there.

    Args:
        store: the table.
        context: the write.
        assignment: the file.
        batches: its rows.
        alone: no other file is written beside it, so that its columns may be read by several threads. Otherwise the
            files share the threads: each one's memory is then used again for the next.

    Raises:
        InternalError: more or fewer rows came than were assigned.
        StorageError: the store failed; the call may be repeated.
    """
    if assignment.log is not None:
        # It may have rolled over into several files: which of them are there is seen one by one.
        prepare(store, context, assignment)
        rows = _for_log(context, assignment, pa.concat_tables(batches))
        return write_log(store, context, assignment, rows, _marker(context, assignment))
    found = adopt(store, context, assignment)
    if found is not None:
        return found
    prepare(store, context, assignment)
    with ExitStack() as stack:
        file = FileInProgress(store, context, assignment, stack)
        if assignment.base is None:
            for batch in batches:
                file.append(batch)
        else:
            file.rewrite(pa.concat_tables(batches), use_threads=alone)
        return file.finish()


def prepare(store: ObjectStore, context: WriteContext, assignment: FileAssignment) -> None:
    """Announce the file by its marker, and make its partition one."""
    if not announce(store, context.instant, assignment.path, _marker(context, assignment)):
        # Not the first attempt: the earlier one may have died with its file half written.
        remove_abandoned(store, assignment.partition, recursive=False)
    if assignment.new_partition:
        name = join_path(assignment.partition, PARTITION_METADATA)
        if store.info(name) is not None:
            return  # a look costs less than a file that is written only to be refused
        depth = assignment.partition.count("/") + 1 if assignment.partition else 0
        content = {"commitTime": context.instant, "partitionDepth": str(depth)}
        # A file in a directory that is no partition would not be read: whoever put this one, it has to be there.
        settle_put(store, name, encode_properties(content, ["partition metadata"]), durable=False)


def _marker(context: WriteContext, assignment: FileAssignment) -> MarkerType:
    if assignment.log is not None:
        # From version 8 on a log has one instant, in its name, and counts as a new file (spec 8.1).
        return "APPEND" if context.config.version.layout == 1 else "CREATE"
    return "CREATE" if assignment.base is None else "MERGE"


def _for_log(context: WriteContext, assignment: FileAssignment, rows: pa.Table) -> LogRowsOut:
    """Return routed rows as a log file takes them."""
    if assignment.num_rows is not None and rows.num_rows != assignment.num_rows:
        raise InternalError(
            f"{assignment.path}: {assignment.num_rows} rows were assigned and {rows.num_rows} came; nothing is written"
        )
    rule, unstored = merge_rule(context.config), unstored_of(context.config, avro_to_arrow(context.schema_text))
    schema = avro_to_arrow(context.file_schema_text) if unstored is None else with_meta_columns(unstored.schema)
    rows, positions = _by_position(rows)
    deletes = _deletes(context, rows)
    if rule.stored.required and has_order(rule.stored, rows.column_names):
        refuse_nulls(ordering_columns(rows, rule.stored), rule.stored)  # nobody could merge what is in a log
    # A delete by key marks nothing, whatever its rows say.
    by_key = context.operation is WriteOperation.DELETE
    marked = np.zeros(rows.num_rows, dtype=bool) if by_key else marked_deletes(rows, rule)
    complete = _MetaColumns(context.instant, assignment).complete(rows, schema)
    # Version 6 knows no partial rows, a rule of the table's own neither: what they lack was brought from stored rows.
    whole = context.config.version.layout == 1 or rule.is_own
    brought = schema.names if whole else (*META_COLUMNS, *rows.column_names)
    out = split_deletes(complete, deletes, marked, rule, frozenset(brought), positions)
    if unstored is None:
        return out
    # Logs hold partition columns, even those that base files drop: so do Hudi's, and 0.15.0 shows nulls without them.
    held = pa.schema([field for field in schema if field.name in out.data.column_names])
    return replace(out, data=unstored.stored(out.data, assignment.partition, held))


def _by_position(rows: pa.Table) -> tuple[pa.Table, I64 | None]:
    """Return rows in the order of the base file's, with their places; as they came, when not every place is known."""
    if POSITION not in rows.column_names:
        return rows, None
    places = rows.column(POSITION).to_numpy()
    rows = rows.drop_columns([POSITION])
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    if not len(places) or ordered[0] < 0 or (np.diff(ordered) <= 0).any():
        return rows, None
    return rows if (np.diff(places) > 0).all() else rows.take(pa.array(order)), ordered


def adopt(store: ObjectStore, context: WriteContext, assignment: FileAssignment) -> WriteStatus | None:
    """Return the status of a file that an earlier attempt wrote, None when there is none."""
    info = store.info(assignment.path)
    if info is None:
        return None
    written = BaseFile(assignment.partition, assignment.file_name, assignment.file_id, "", context.instant, info.size)
    footer = BaseFileReader(store).footer(written)
    try:
        counts = json.loads(footer.entries[STAT_KEY])
        found = _status(context, assignment, {k: int(v) for k, v in counts.items()}, info.size, adopted=True)
        return replace(found, keys=_ends(footer.min_key, footer.max_key))
    except (KeyError, ValueError, TypeError, AttributeError):
        raise CorruptFile(f"{assignment.path} exists and was not written by this write") from None


class FileInProgress:
    """A base file that is being written; nothing of it is visible before :meth:`finish`."""

    def __init__(self, store: ObjectStore, context: WriteContext, assignment: FileAssignment, stack: ExitStack) -> None:
        self._store = store
        self._context = context
        self._assignment = assignment
        self._settings = context.settings
        self._file_schema = self._schema = avro_to_arrow(context.file_schema_text)
        self._unstored = unstored_of(context.config, avro_to_arrow(context.schema_text))
        if self._unstored is not None:
            self._schema = with_meta_columns(self._unstored.schema)
        self._meta = _MetaColumns(context.instant, assignment)
        durable = self._settings.text("lakefmt.durability") == "fsync"
        self._sink = stack.enter_context(store.create(assignment.path, durable=durable))
        codec = self._settings.text("hoodie.parquet.compression.codec") or "zstd"
        level = self._settings.integer("lakefmt.parquet.compression.level")
        self._writer = BaseFileWriter(self._sink.file, self._file_schema, codec, level)
        stack.callback(self._writer.discard)
        self._keys = FileKeys()
        stack.callback(self._keys.close)
        self._rows_in = 0
        self._counts = dict.fromkeys(("inserts", "updates", "deletes", "late", "ignored"), 0)
        self._bloom: BloomFilter | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return self._sink.size

    @property
    def num_rows(self) -> int:
        """Rows written so far."""
        return self._writer.num_rows

    @property
    def held_bytes(self) -> int:
        """Bytes of keys that are held until the file is finished."""
        return self._keys.held_bytes

    def spill(self) -> None:
        """Let the keys wait on the disk.

        Raises:
            StorageError: the temporary directory could not take them.
        """
        self._keys.spill()

    def append(self, rows: pa.Table) -> None:
        """Write new rows; those that mark themselves deleted are counted and left out."""
        step = max(1, int(rows.num_rows * ROW_GROUP_BYTES / max(1, rows.nbytes)))
        for start in range(0, rows.num_rows, step):
            self._append_group(rows.slice(start, step))

    def _append_group(self, rows: pa.Table) -> None:
        self._rows_in += rows.num_rows
        deletes = _deletes(self._context, rows)
        if deletes.any():
            self._counts["ignored"] += int(deletes.sum())
            rows = rows.filter(pa.array(~deletes))
        self._counts["inserts"] += rows.num_rows
        complete = self._meta.complete(rows, self._schema)
        if self._has_keys:
            self._keys.add(complete.column(RECORD_KEY), copy=True)
        self._store_rows(complete)

    @property
    def _has_keys(self) -> bool:
        # Without meta columns a file holds neither keys nor footers about them (spec 4.5).
        return self._unstored is None or not self._unstored.makes_keys

    def _store_rows(self, rows: pa.Table) -> None:
        if self._unstored is not None:
            rows = self._unstored.stored(rows, self._assignment.partition, self._file_schema)
        self._writer.write(rows)

    def rewrite(self, rows: pa.Table, *, use_threads: bool = False) -> None:
        """Write the assigned base file's rows with the routed rows merged in."""
        base_file = self._assignment.base
        if base_file is None:
            raise InternalError("there is no base file to rewrite")
        reader = BaseFileReader(self._store, self._unstored)
        self._rows_in += rows.num_rows
        # Every row gets this file's name: the old one need not be read, and is as long as the rest of a row.
        kept = self._schema.remove(self._schema.get_field_index(FILE_NAME))
        stored, old_filter = reader.rows_and_filter(base_file, kept.names, use_threads=use_threads)
        base = reconcile(stored, kept)
        merged = self._merge(base, rows)
        told = log_changes(self._store, self._context, self._assignment, base, merged)
        del stored, base  # what is merged has values of its own
        self._counts = {
            "inserts": merged.inserted,
            "updates": merged.updated,
            "deletes": merged.deleted,
            "late": merged.late,
            "ignored": merged.ignored_deletes,
            **told,
        }
        if self._has_keys:
            keys = merged.table.column(RECORD_KEY)
            self._keys.add(keys)
            self._bloom = grown_filter(old_filter, len(keys), merged.inserted_keys)
        name = repeated(self._assignment.file_name, merged.table.num_rows)
        at = self._schema.get_field_index(FILE_NAME)
        self._store_rows(merged.table.add_column(at, self._schema.field(at), name))

    def _merge(self, base: pa.Table, rows: pa.Table) -> Merged:
        rule = merge_rule(self._context.config)
        deletes = _deletes(self._context, rows)
        complete = self._meta.complete(rows, self._schema)
        if not self._assignment.match_keys:
            kept = complete.filter(pa.array(~deletes)) if deletes.any() else complete
            joined = pa.concat_tables([base, kept.select(base.column_names)])
            ignored = int(deletes.sum())
            return Merged(joined, kept.num_rows, 0, 0, 0, ignored, kept.column(RECORD_KEY))
        if self._context.operation is WriteOperation.DELETE or not has_order(rule.stored, rows.column_names):
            rule = rule.without_order()  # without an event time the later write wins
        present = frozenset((*META_COLUMNS, *rows.column_names))
        columns = None if present.issuperset(self._schema.names) else present
        return merge_into_base(base, Incoming(complete, deletes, columns), rule=rule)

    def finish(self) -> WriteStatus:
        """Give the file its footers and its name.

        Raises:
            InternalError: rows were lost or doubled on the way.
            StorageError: the store does not say whether the file is there.
        """
        self._check_counts()
        footers = key_footers(KeySummary(*self._keys.range, self._filter()), self._context.file_schema_text)
        footers[STAT_KEY] = json.dumps({"rows_in": self._rows_in, "rows": self.num_rows, **self._counts})
        self._writer.close(footers)
        self._keys.close()
        outcome = self._sink.put_if_absent()
        if outcome is PutOutcome.DONE:
            counts = {"rows_in": self._rows_in, "rows": self.num_rows, **self._counts}
            status = _status(self._context, self._assignment, counts, self._sink.size, adopted=False)
            return replace(status, keys=_ends(*self._keys.range))
        found = adopt(self._store, self._context, self._assignment)
        if found is None:
            raise StorageError(f"the store does not say whether {self._assignment.path} was written", transient=True)
        return found

    def _filter(self) -> BloomFilter | None:
        if not self._has_keys or not self._settings.flag("hoodie.parquet.bloom.filter.enabled"):
            return None
        if self._bloom is not None:
            return self._bloom
        if len(self._keys) > _MANY_KEYS:
            pa.default_memory_pool().release_unused()
        bloom = new_filter(self._settings, len(self._keys))
        memory = row_memory(self._settings.integer("lakefmt.write.window.bytes"))
        bloom.add_pieces(self._keys.pieces(max(1, memory // _KEY_PARTS)), memory // _FLAG_PARTS)
        return bloom

    def _check_counts(self) -> None:
        expected = self._assignment.num_rows
        if expected is not None and self._rows_in != expected:
            raise InternalError(
                f"{self._assignment.path}: {expected} rows were assigned and {self._rows_in} came; nothing is written"
            )


def _deletes(context: WriteContext, rows: pa.Table) -> Mask:
    if context.operation is WriteOperation.DELETE:
        return np.ones(rows.num_rows, dtype=bool)
    if context.operation is WriteOperation.BULK_INSERT:
        return np.zeros(rows.num_rows, dtype=bool)  # writes rows as they are
    # Elsewhere a row may mark itself, or have moved to another partition.
    flags = marked_deletes(rows, merge_rule(context.config))
    if MOVED_AWAY in rows.column_names:
        flags |= to_mask(pc.fill_null(rows.column(MOVED_AWAY), False))
    return flags


class _MetaColumns:
    """Completes routed rows with the meta columns of one file; sequence numbers count on over batches."""

    def __init__(self, instant: str, assignment: FileAssignment) -> None:
        self._instant = instant
        self._assignment = assignment
        self._next = 0

    def complete(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Return the rows with every column of the file; columns that a delete does not carry are null."""
        count = rows.num_rows
        present = frozenset(rows.column_names)
        first = self._next
        self._next += count
        made: Mapping[str, Callable[[], pa.Array | pa.ChunkedArray]] = {
            COMMIT_TIME: lambda: repeated(self._instant, count),
            COMMIT_SEQNO: lambda: self._numbered(first, count),
            RECORD_KEY: lambda: rows.column(RECORD_KEY) if RECORD_KEY in present else self._numbered(first, count),
            PARTITION_PATH: lambda: repeated(str(self._assignment.partition), count),
            FILE_NAME: lambda: repeated(self._assignment.shown_file, count),
        }
        columns = []
        for field in schema:
            if field.name in META_COLUMNS:
                columns.append(made[field.name]())
            elif field.name in present:
                columns.append(rows.column(field.name))
            else:
                columns.append(pa.nulls(count, field.type))
        return pa.table(columns, schema=schema)

    def _numbered(self, first: int, count: int) -> pa.Array:
        # Sequence numbers and generated keys have one form (spec 4.5, 4.6).
        return build_auto_keys(self._instant, self._assignment.sequence, first, count)


def _ends(low: str | None, high: str | None) -> tuple[str, str] | None:
    return None if low is None or high is None else (low, high)


def _status(
    context: WriteContext, assignment: FileAssignment, counts: Mapping[str, int], size: int, *, adopted: bool
) -> WriteStatus:
    base = assignment.base
    stat = WriteStat(
        file_id=assignment.file_id,
        partition_path=assignment.partition,
        path=assignment.path,
        prev_commit="null" if base is None else base.instant,
        num_writes=counts["rows"],
        num_inserts=counts["inserts"],
        num_update_writes=counts["updates"],
        num_deletes=counts["deletes"],
        total_write_bytes=size,
        file_size_in_bytes=size,
        prev_base_file=None if base is None else base.name,
        extra=cdc_stats(context, assignment, counts),
    )
    return WriteStatus(context.instant, stat, counts["rows_in"], counts["late"], counts["ignored"], adopted)
