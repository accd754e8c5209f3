"""Rewrite file groups and logs for a repair, and keep copies of replaced files (effects).

Rows keep their commit times and sequence numbers, so that increments do not return them again;
keys, names, filters and ranges are corrected. Nothing is merged or looked up. Memory: one file
group per thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.check.findings import RewriteFile, RewriteLog
from lakefmt.config.table_config import TableConfig
from lakefmt.errors import CorruptFile, SnapshotExpired, StateError, StorageError
from lakefmt.filegroups.base_writer import new_filter
from lakefmt.filegroups.logs.log_inspection import Standing, inspect_log
from lakefmt.filegroups.logs.reader import read_log_look
from lakefmt.filegroups.model import FileSlice, LogFile
from lakefmt.filegroups.table_client import TableClient
from lakefmt.formats.bloom.bloom_filter import BloomFilter
from lakefmt.formats.log.blocks import MAGIC, MAX_LOG_BYTES, BlockKind, scan_blocks
from lakefmt.formats.names import parse_log_file
from lakefmt.formats.parquet.base_file import BaseFileWriter, KeySummary, key_footers, key_range
from lakefmt.keys import DEFAULT_PARTITION, KeySpec, build_partition_paths, build_record_keys, with_sampled_key
from lakefmt.schema import reconcile
from lakefmt.storage.api import ObjectStore, PutOutcome
from lakefmt.timeline.store import MAX_BODY_BYTES, put_if_absent_confirmed
from lakefmt.timeline.timeline import Timeline
from lakefmt.transactions.client import WriteClient
from lakefmt.values import COMMIT_TIME, FILE_NAME, META_COLUMNS, PARTITION_PATH, RECORD_KEY, InstantTime, PartitionPath
from lakefmt.write.assign import new_file, rewrite_file
from lakefmt.write.bound_context import BoundContext, prepare
from lakefmt.write.context import FileAssignment, WriteStatus
from lakefmt.write.files.base_file import STAT_KEY, adopt
from lakefmt.write.files.cdc import log_no_changes, refuse_silent_rewrites

__all__ = ["KEPT", "find_free_logs", "keep_copy", "rewrite_files", "rewrite_log"]


#: The directory of copies.
KEPT = ".hoodie/.lakefmt/repaired"
_COPIES = 1000


def keep_copy(store: ObjectStore, name: str, data: bytes) -> None:
    """Keep a copy of an object before it is replaced; equal bytes are kept once."""
    for number in range(_COPIES):
        target = f"{KEPT}/{name.rpartition('/')[2]}.{number}"
        if put_if_absent_confirmed(store, target, data, durable=True) is PutOutcome.DONE:
            return
        if store.read(target, max(len(data), MAX_BODY_BYTES)) == data:
            return
    raise CorruptFile(f"{KEPT} holds {_COPIES} copies of {name} already: make room there first")


def rewrite_files(client: TableClient, bound: BoundContext, steps: Sequence[RewriteFile]) -> list[WriteStatus]:
    """Write the new slices of file groups, and new files for rows that belong into other partitions.

    Args:
        client: the table.
        bound: a write that has begun.
        steps: what to rewrite, one file group each.

    Raises:
        CorruptFile: a file is damaged, or its rows do not fit the table.
        InvalidKey: a key or partition path cannot be built.
        StateError: the plan is for another file.
        UnsupportedFeature: the table captures changes, and rows would be lost, moved or get other
            keys.
        StorageError: the store failed; nothing is visible.
    """
    if not all(step.keeps_rows for step in steps):
        refuse_silent_rewrites(bound)
    work = _Rewriting(client, bound)
    with ThreadPoolExecutor(min(bound.threads, max(1, len(steps)))) as pool:
        return [status for statuses in pool.map(work, steps) for status in statuses]


class _Rewriting:
    """Rewrites file groups one by one; thread-safe."""

    def __init__(self, client: TableClient, bound: BoundContext) -> None:
        self._client = client
        self._bound = bound
        self._schema = bound.file_schema
        self._spec = client.key_spec(bound.config)
        self._sequences = count()
        self._lock = Lock()

    def __call__(self, step: RewriteFile) -> list[WriteStatus]:
        source = step.source
        virtual = self._bound.virtual_columns
        reader = (
            self._client.reader if virtual is None or virtual.ids is None else self._client.reader.completing(virtual)
        )
        rows = reconcile(reader.rows(source), self._schema)
        stored = rows.num_rows
        if step.drop is not None and len(step.drop):
            if int(step.drop.max()) >= stored or int(step.drop.min()) < 0:
                raise StateError(f"the plan drops rows that {source.path} does not have: check the table again")
            keep = np.ones(rows.num_rows, dtype=bool)
            keep[step.drop] = False
            rows = rows.filter(pa.array(keep))
        if step.rekey and rows.num_rows:
            rows = _replaced(rows, RECORD_KEY, _made_keys(self._spec, rows))
        # A row cannot belong to a commit after the one that wrote its file.
        times = rows.column(COMMIT_TIME)
        is_sound = pc.fill_null(pc.less_equal(times, str(source.instant)), False)
        rows = _replaced(rows, COMMIT_TIME, pc.if_else(is_sound, times, str(source.instant)))
        moved = list(_leaving(self._spec, rows, source.partition)) if step.move else []
        if moved:
            stays = np.ones(rows.num_rows, dtype=bool)
            stays[np.concatenate([moved_rows for _, moved_rows in moved])] = False
            staying = rows.filter(pa.array(stays))
        else:
            staying = rows
        file_slice = FileSlice(source.partition, source.file_id, source.instant, source)
        assignment = rewrite_file(file_slice, self._bound.instant, self._number(), 0, match_keys=False)
        cdc_stats = log_no_changes(self._bound, assignment, staying) if step.keeps_rows else {}
        statuses = [self._write(assignment, staying, {"deletes": stored - staying.num_rows, **cdc_stats})]
        for partition, moved_rows in moved:
            instant, new_uuid = self._bound.instant, self._client.ids.new_uuid
            opened = new_file(partition, instant, self._number(), new_uuid, rows=len(moved_rows))
            statuses.append(self._write(opened, rows.take(pa.array(moved_rows)), {"inserts": len(moved_rows)}))
        return statuses

    def _number(self) -> int:
        with self._lock:
            return next(self._sequences)

    def _write(self, assignment: FileAssignment, rows: pa.Table, counts: dict[str, int]) -> WriteStatus:
        store, settings = self._client.store, self._bound.settings
        rows = _replaced(rows, FILE_NAME, pa.repeat(pa.scalar(assignment.file_name), rows.num_rows))
        rows = _replaced(rows, PARTITION_PATH, pa.repeat(pa.scalar(str(assignment.partition)), rows.num_rows))
        if self._bound.config.populate_meta_fields:
            keys = rows.column(RECORD_KEY)
            summary = KeySummary(*key_range(keys), self._filter(keys))
        else:
            summary = KeySummary(None, None, None)
            for name in META_COLUMNS:
                rows = _replaced(rows, name, pa.nulls(rows.num_rows, pa.string()))
        footers = key_footers(summary, self._bound.context.file_schema_text)
        counted = dict.fromkeys(("inserts", "updates", "deletes", "late", "ignored"), 0) | counts
        footers[STAT_KEY] = json.dumps({"rows_in": 0, "rows": rows.num_rows, **counted})
        prepare(self._bound, assignment)
        codec = settings.text("hoodie.parquet.compression.codec") or "zstd"
        with ExitStack() as stack:
            sink = stack.enter_context(store.create(assignment.path, durable=self._bound.durable))
            level = settings.integer("lakefmt.parquet.compression.level")
            writer = BaseFileWriter(sink.file, rows.schema, codec, level)
            stack.callback(writer.discard)
            writer.write(rows)
            writer.close(footers)
            sink.put_if_absent()
        # Whatever the store answered: what is there is read back.
        written = adopt(self._bound, assignment)
        if written is None:
            raise StorageError(f"the store does not say whether {assignment.path} was written", transient=True)
        return written

    def _filter(self, keys: pa.ChunkedArray) -> BloomFilter | None:
        settings = self._bound.settings
        if not settings.flag("hoodie.parquet.bloom.filter.enabled"):
            return None
        bloom = new_filter(settings, len(keys))
        bloom.add(keys)
        return bloom


def _replaced(rows: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    index = rows.schema.get_field_index(name)
    return rows.set_column(index, rows.schema.field(index), values)


def _made_keys(spec: KeySpec, rows: pa.Table) -> pa.Array:
    return build_record_keys(with_sampled_key(spec, str(rows.column(RECORD_KEY)[0])), rows)


def _leaving(
    spec: KeySpec, rows: pa.Table, partition: PartitionPath
) -> Iterator[tuple[PartitionPath, np.typing.NDArray[np.int64]]]:
    """Yield the partitions of rows in the wrong place, with their row numbers."""
    if not rows.num_rows:
        return
    paths = build_partition_paths(spec, rows)
    codes = paths.indices.to_numpy(zero_copy_only=False)
    for code in range(len(paths.dictionary)):  # partitions, not rows
        path = str(paths.dictionary[code])
        if partition not in (path, path.replace(DEFAULT_PARTITION, "default")):
            yield PartitionPath(path), np.flatnonzero(codes == code)


def find_free_logs(
    write_client: WriteClient, config: TableConfig, timeline: Timeline, paths: Iterable[str]
) -> frozenset[str]:
    """Return the logs without a commit, of which no reader sees a row and that no active writer may commit.

    Args:
        write_client: the write client; holds the table lock.
        config: the table properties.
        timeline: the current timeline.
        paths: the logs to examine.
    """
    client = write_client.client
    state = client.load()
    named = {stat.path for commit in timeline.commits for stat in client.commit_metadata(state, commit).stats}

    def is_taken(time: InstantTime) -> bool:
        return time in timeline.pending_times or write_client.is_claimed(config, timeline, time)

    def is_free(path: str) -> bool:
        place, _, name = path.rpartition("/")
        parsed = parse_log_file(name)
        if parsed is None:
            return False
        log = LogFile(PartitionPath(place), name, parsed.file_id, parsed.instant, parsed.version, 0)
        try:
            look = read_log_look(client.store, log)
        except SnapshotExpired:
            return False
        return inspect_log(log, look, timeline, is_taken=is_taken, is_busy=bool(timeline.pending)) is Standing.UNSEEN

    return frozenset(path for path in paths if path not in named and is_free(path))


def rewrite_log(write_client: WriteClient, config: TableConfig, step: RewriteLog) -> None:
    """Rewrite a log with its intact blocks and keep a copy; a log that is rewritten already stays."""
    store = write_client.client.store
    data = store.read(step.name, MAX_LOG_BYTES)
    if (len(data) != step.size) if step.drop else (not data or data.startswith(MAGIC)):
        return
    blocks = scan_blocks(lambda offset, count: data[offset : offset + count], len(data), step.name)
    sound = (block for block in blocks if block.kind is not BlockKind.CORRUPT and block.start not in step.drop)
    whole = [data[block.start : block.end] for block in sound]
    keep_copy(store, step.name, data)
    store.put(step.name, b"".join(whole), durable=write_client.durable)
