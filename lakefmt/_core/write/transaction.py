"""One write in six steps: begin, key, locate, place, write, commit.

``Table`` runs them in one call (:mod:`lakefmt._core.write.verbs`); ``lakefmt.lowlevel`` offers them one by one, in one process or
in several. A :class:`~lakefmt._core.write.context.WriteContext` is a plain value. The process that keeps the heartbeat of a write
alive finds its transaction here; any other process rebuilds the transaction from the context and from what the write has
saved (:func:`resume_transaction`, :class:`SavedWrite`).

A write that any process may commit saves the timeline on which it began, the keys that no other write may bring in, and
the file groups that it relied on (docs/format.md, lakefmt's own files).

The file of keys holds one Arrow stream per call that remembered keys, one behind the other. The JSON file, which is
replaced after it, says how long each is and its SHA-256: a process that dies between the two leaves the older JSON file
and the streams that it speaks of.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from lakefmt._core.config.table_config import append_layout
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.stored_keys import asked_form, note_rows_that_stay, stored_key_spec
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.index import (
    Index,
    announce_commit,
    capabilities_of,
    choose_index,
    keeps_placement,
    key_files,
    moves_between_partitions,
    places_new_keys,
)
from lakefmt._core.index.registry import index_commit
from lakefmt._core.keys import KeySpec
from lakefmt._core.schema import null_element_columns
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.timeline.consumers import watermark_of_rows
from lakefmt._core.timeline.instant import Action
from lakefmt._core.timeline.locks.local import held_lock_of
from lakefmt._core.timeline.markers import saved_keys_name, saved_write_name
from lakefmt._core.timeline.timeline import Timeline, timeline_from_names
from lakefmt._core.transactions.client import check_non_blocking, write_client_of
from lakefmt._core.transactions.instant import InstantTransaction
from lakefmt._core.values import CommitResult, FileId, PartitionPath, WriteOperation, sum_of_known
from lakefmt._core.write.assign import (
    Assigned,
    FileSizing,
    Routes,
)
from lakefmt._core.write.commit.conflict_resolution import Footprint, check_early
from lakefmt._core.write.commit.transaction import (
    FirstSchema,
    PendingWrite,
    abort_instant,
    begin_instant,
    check_saw_all,
    complete_instant,
    concurrency_of,
    plan_instant,
    take_over_write,
)
from lakefmt._core.write.context import (
    APPENDING,
    REPLACING,
    Announcements,
    BoundContext,
    WriteContext,
    WritePlan,
    WriteRequest,
    WriteStatus,
)
from lakefmt._core.write.ingest import KeyedBatch, combine_in_files
from lakefmt._core.write.mutations import DeleteKeys
from lakefmt._core.write.pipeline import (
    LocatedRows,
    PlacedRows,
    combine_batch,
    combines_keys,
    file_sizing,
    key_in_schema,
    locate_batch,
    locate_deletes,
    place_rows,
    write_assigned_files,
)
from lakefmt.errors import (
    CommitConflict,
    CorruptFile,
    InstantNotPending,
    InvalidInputError,
    LakefmtError,
    LeaseLost,
    ObjectNotFound,
    StateError,
    StorageError,
)

if TYPE_CHECKING:
    from lakefmt._core.write.files.bucket_copies import BucketCopies

__all__ = [
    "WriteTransaction",
    "abort_context",
    "begin_saved",
    "find_transaction",
    "resume_transaction",
]


_VERSION: Final = 1
_MAX_JSON_BYTES: Final = 64 << 20
_MAX_KEY_BYTES: Final = 1 << 33
_KEY, _PARTITION = "key", "partition"

#: What hostile bytes raise: JSON, wrong types, Arrow (an OSError where a stream is cut).
_DAMAGE: Final = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
    OSError,
    pa.ArrowException,
)

KeysAndPartitions = tuple[pa.StringArray, pa.DictionaryArray | None]


@dataclass(slots=True)
class SavedWrite:
    """What one write remembers; :meth:`save` replaces the files.

    Attributes:
        timeline: the timeline on which the write began.
        began: when it began, in seconds since 1970.
        footprint: what other writers must leave alone.
        null_elements: columns of lists with null elements among its rows.
        left_out: late rows that are in no file; None: not known.
        files: the files that its rows were assigned to; a commit needs the status of each. None: not known.
    """

    timeline: Timeline
    began: float
    footprint: Footprint = field(default_factory=Footprint)
    null_elements: frozenset[str] = frozenset()
    left_out: int | None = 0
    files: frozenset[str] | None = frozenset()
    _streams: list[bytes] = field(default_factory=list)

    def save(
        self,
        store: ObjectStore,
        context: WriteContext,
        footprint: Footprint,
        null_elements: frozenset[str],
        left_out: int | None,
    ) -> None:
        """Save what the write remembers by now.

        Raises:
            StorageError: the store failed.
        """
        new = footprint.keys[len(self._streams) :]
        self.footprint, self.null_elements, self.left_out = footprint, null_elements, left_out
        if new:
            self._streams += [_encode(keys, partitions) for keys, partitions in new]
            store.put(saved_keys_name(context.instant), b"".join(self._streams))
        store.put(saved_write_name(context.instant), json.dumps(self._body(context)).encode())

    def _body(self, context: WriteContext) -> Mapping[str, object]:
        names = self.timeline.names or [each.file_name for files in self.timeline.files.values() for each in files]
        within, covers = self.footprint.keys_in, self.footprint.covers
        return {
            "version": _VERSION,
            "owner": context.owner,
            "began": self.began,
            "timeline": list(names),
            "keys": [{"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for data in self._streams],
            "keys_in": None if within is None else sorted(within),
            "read": sorted(self.footprint.read),
            "covers": None if covers is None else sorted(covers),
            "null_elements": sorted(self.null_elements),
            "left_out": self.left_out,
            "files": None if self.files is None else sorted(self.files),
        }


def load_saved_write(store: ObjectStore, context: WriteContext, layout: int) -> SavedWrite | None:
    """Return what a write has saved, None when there is no such file.

    Args:
        store: the store of the table.
        context: the write.
        layout: the timeline layout of the table.

    Raises:
        CorruptFile: the files do not say what a write saves.
    """
    name = saved_write_name(context.instant)
    try:
        data = store.read(name, _MAX_JSON_BYTES)
    except ObjectNotFound:
        return None
    try:
        body = json.loads(data)
        if body["version"] != _VERSION or body["owner"] != context.owner:
            raise ValueError("it is of another version or another write")
        keys_in, covers = body["keys_in"], body["covers"]
        streams = _load_streams(store, context, body["keys"]) if body["keys"] else []
        footprint = Footprint(
            tuple(map(_decode, streams)),
            None if keys_in is None else frozenset(map(_partition, keys_in)),
            frozenset((_partition(partition), FileId(_text(file_id))) for partition, file_id in body["read"]),
            None if covers is None else frozenset(map(_partition, covers)),
        )
        timeline = timeline_from_names([_file_name(each) for each in body["timeline"]], layout)
        null_elements = frozenset(_text(each) for each in body["null_elements"])
        left_out = body.get("left_out")  # an earlier release did not count them
        left_out = None if left_out is None else int(left_out)
        files = body.get("files")  # an earlier release did not name them
        files = None if files is None else frozenset(map(_text, files))
        return SavedWrite(timeline, float(body["began"]), footprint, null_elements, left_out, files, streams)
    except _DAMAGE as error:
        raise CorruptFile(
            f"{name} does not hold what a write saves ({type(error).__name__}): abort the write and begin it again"
        ) from None


def _load_streams(store: ObjectStore, context: WriteContext, parts: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Return the Arrow streams of the file of keys.

    Raises:
        CorruptFile: the file is larger than a file of keys may be.
        ValueError: the file is shorter than the JSON file says, or a stream has another checksum.
    """
    name, streams, start = saved_keys_name(context.instant), [], 0
    try:
        data = store.read(name, _MAX_KEY_BYTES)
    except ObjectNotFound:
        raise ValueError(f"{name} is missing") from None
    for part in parts:
        length = part["bytes"]
        if type(length) is not int or not 0 < length <= len(data) - start:
            raise ValueError(f"{name} is too short")
        streams.append(data[start : start + length])
        if hashlib.sha256(streams[-1]).hexdigest() != part["sha256"]:
            raise ValueError(f"{name} has another checksum")
        start += length
    return streams


def _encode(keys: pa.StringArray, partitions: pa.DictionaryArray | None) -> bytes:
    # Not compressed: what hostile bytes say of the size of a decompressed buffer would be believed.
    columns = {_KEY: keys} if partitions is None else {_KEY: keys, _PARTITION: partitions}
    batch = pa.record_batch(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _decode(data: bytes) -> KeysAndPartitions:
    """Return the keys of one stream, and the partition that each is meant for.

    Raises:
        ValueError: the stream does not hold one batch of keys.
    """
    batches = list(pa.ipc.open_stream(data))
    if len(batches) != 1:
        raise ValueError("a stream of keys holds one batch")
    (batch,) = batches
    batch.validate(full=True)
    keys = batch.column(_KEY)
    partitions = batch.column(_PARTITION) if _PARTITION in batch.schema.names else None
    is_dictionary = partitions is None or isinstance(partitions, pa.DictionaryArray)
    if keys.type != pa.string() or keys.null_count or not is_dictionary:
        raise ValueError("a stream of keys has a column of another type")
    if partitions is not None and (partitions.null_count or partitions.dictionary.type != pa.string()):
        raise ValueError("a stream of keys has partitions of another type")
    return keys, partitions


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is expected")
    return value


def _partition(value: object) -> PartitionPath:
    return PartitionPath(_text(value))


def _file_name(value: object) -> str:
    name = _text(value)
    if "/" in name or "\x00" in name:
        raise ValueError("a file name is expected")
    return name


#: Seconds between attempts to undo a write that failed, while the store does not answer.
_UNDO_PAUSES = (0.05, 0.2, 0.5)


class WriteTransaction:
    """A write whose instant is inflight, or that is only planned.

    Args:
        pending: the write.
        saved: what is saved of it for other processes; None: only this process can commit it.
    """

    def __init__(self, pending: PendingWrite, saved: SavedWrite | None = None) -> None:
        self.client = pending.write_client.client
        self.bound = pending.bound
        self.context = pending.context
        self.state = pending.state
        #: The table as this write found it.
        self.table_at = self.client.at(self.state)
        self._pending = pending
        self._saved = saved
        self._started = perf_counter()
        self._footprint = Footprint() if saved is None else saved.footprint
        #: Up to which event times the rows of its parts let it promise completeness.
        self._promised = list[int]()
        self._null_elements = set[str]() if saved is None else set(saved.null_elements)
        #: Late rows that are in no file; None: not known.
        self._left_out: int | None = 0 if saved is None else saved.left_out
        #: How many files the parts of a stream have opened so far, where every commit opens its own.
        self._files_opened = 0
        #: Whether what follows a write by this process, such as a merge of small files, can be done after it.
        self.is_followed = False
        self._index: Index | None = None
        self._bucket_copies: BucketCopies | None = None

    @classmethod
    def begin(
        cls,
        client: TableClient,
        request: WriteRequest,
        incoming: pa.Schema | None = None,
        based_on: TableState | None = None,
        first: FirstSchema | None = None,
        *,
        waits: bool = True,
    ) -> Self:
        """Begin a write.

        Args:
            client: the table.
            request: what is asked for.
            incoming: the schema of the data; it may widen the table's.
            based_on: the state that the rows were read from, when they were.
            first: remembers the table's schema from attempt to attempt.
            waits: until the instant is inflight; False: only who writes a file waits.

        Raises:
            CommitConflict: another commit completed since the rows were read; the write would undo it. Beside other
                writers only those commits matter that changed what this write changes, and :meth:`commit` asks for them.
        """
        pending = begin_instant(client, request, incoming, first, waits=waits)
        alone = not pending.rules.beside
        if not alone:
            pending = replace(pending, based_on=based_on)
        transaction = cls(pending)
        if alone and based_on is not None and based_on.timeline.commits != pending.state.timeline.commits:
            transaction.abort()
            raise CommitConflict("another commit completed after the rows to change were read; do it again")
        return transaction

    @classmethod
    def plan_only(
        cls, client: TableClient, request: WriteRequest, incoming: pa.Schema | None = None
    ) -> WriteTransaction:
        """Return a write that can be planned, not run; nothing in the store changes."""
        transaction = cls(plan_instant(client, request, incoming))
        transaction.is_followed = True  # it plans what the verb of a table does
        return transaction

    @contextmanager
    def aborted_on_error(self) -> Iterator[None]:
        """Abort the write when the block fails; if the process dies in it, the next writer rolls the write back."""
        try:
            yield
        except (Exception, KeyboardInterrupt):
            self._abort_quietly()
            raise
        except BaseException:
            # The process ends: the next writer finds a dead heartbeat and rolls back what is left.
            self._abandon()
            raise

    def _abort_quietly(self) -> None:
        for pause in (*_UNDO_PAUSES, None):
            try:
                self._abort_without_held_lock()
            except LakefmtError as error:
                # A rollback may have deleted the markers: then only this write knows its files.
                if pause is not None and isinstance(error, StorageError) and error.transient:
                    self.client.time_source.sleep(pause)
                    continue
                # The first error is the one to report; the next writer rolls back what is left.
                self._pending.instant.leave()
            return

    def _abort_without_held_lock(self) -> None:
        try:
            self.abort()
        except LeaseLost:
            # The lock was lost: its next holder may have rolled this write back before its last file appeared.
            held_lock = held_lock_of(self.client.store.url)
            if held_lock is None:
                raise
            held_lock.end()
            self.abort()

    @property
    def key_spec(self) -> KeySpec:
        """How record keys and partition paths are made, as stored rows tell.

        Raises:
            UnsupportedFeature: they are stored by another rule.
        """
        return stored_key_spec(self.table_at, asked_form(self.bound.settings), anywhere=self.index.is_global)

    # --- key -----------------------------------------------------------------------------------------------------

    def key(self, table: pa.Table, *, durable: bool = False, promises: bool = True) -> KeyedBatch:
        """Return rows in the table's schema, keyed, and combined where the operation asks for it.

        Args:
            table: the rows.
            durable: they passed a door before, and are committed whatever partition values new rows may have.
            promises: the commit has a watermark of these rows.

        Raises:
            SchemaMismatch: the rows do not fit the table.
            InvalidKey: a key or partition value cannot be used.
        """
        spec = self.key_spec
        batch = self.keyed(spec, table, durable=durable, promises=promises)
        return combine_batch(self.table_at, self.bound, spec, batch, self.index)

    def keyed(self, spec: KeySpec, table: pa.Table, *, durable: bool = False, promises: bool = True) -> KeyedBatch:
        """Return rows in the table's schema with their keys; remember what the commit and its warnings say of them."""
        batch = key_in_schema(self.bound, spec, table, durable=durable)
        self._null_elements.update(null_element_columns(batch.table))
        if promises and self.context.operation not in REPLACING:
            promised = watermark_of_rows(self.state.config.properties, batch.table)
            self._promised += [] if promised is None else [promised]
        return batch

    @property
    def combines(self) -> bool:
        """True when rows of one key become one before they are written."""
        return combines_keys(self.bound, self.index)

    # --- locate --------------------------------------------------------------------------------------------------

    @property
    def index(self) -> Index:
        """The index of this write: the call's, else the table's, else bloom."""
        if self._index is None:
            index = self._index = choose_index(self.client, self.bound.settings, self.state.config, self.state)
            keeps = keeps_placement(index)
            check_non_blocking(self.bound.settings, self.state.config, places_keys=not keeps and places_new_keys(index))
            if self.context.operation in REPLACING and keeps_placement(index):
                index.on_replace()
        return self._index

    def locate(self, batch: KeyedBatch) -> LocatedRows:
        """Look up where the keys of a batch are stored, unless its rows are only appended."""
        if self.keeps_order:
            return LocatedRows(batch, [], Routes(None), None, self.sizing(batch.table))
        located = locate_batch(self.table_at, self.bound, batch, self.index, self.sizing)
        if located.routes.late is not None and self.context.operation is not WriteOperation.DELETE:
            self.leave_out(len(located.routes.late))  # of a delete they are keys that are nowhere
        return located

    def leave_out(self, num_late: int | None) -> None:
        """Count late rows that are in no file.

        Args:
            num_late: how many; None: not known.
        """
        self._left_out = sum_of_known([self._left_out, num_late])

    @property
    def left_out(self) -> int | None:
        """Late rows that are in no file; None: not known."""
        return self._left_out

    def locate_deletes(self, keys: DeleteKeys) -> LocatedRows:
        """Look up where keys are stored that are to be deleted."""
        return locate_deletes(self.table_at, self.bound, keys, self.index)

    def rely_on(self, footprint: Footprint) -> None:
        """Remember what other writers must not change, for the detection of conflicts at the commit."""
        self._footprint += footprint

    def sizing(self, sample: pa.Table) -> FileSizing:
        """Return how large files should be, learnt from commits or guessed from rows."""
        is_followed = self.is_followed and not self.keeps_order
        return file_sizing(self.table_at, self.bound, sample, self._index, is_followed, keeps_order=self.keeps_order)

    # --- place ---------------------------------------------------------------------------------------------------

    def place(self, located: LocatedRows) -> PlacedRows:
        """Give every row its file.

        Raises:
            CommitConflict: another writer is at work on one of the file groups, or a clustering replaces it.
            StateError: other rows of a write that is saved have files already: the two would not know of each other.
        """
        if self._saved is not None and self._saved.files:
            raise StateError(
                f"rows of the write {self.context.instant} have files already, and may have keys and files in common with "
                "these: give all rows of a write in one call, or abort it and begin it again"
            )
        self.rely_on(located.footprint)
        if self.keeps_order:
            placed = self._placed_by_bucket(located)
            self._save_placed(placed.assigned)
            return placed
        assigned = place_rows(self.table_at, self.bound, located)
        assigned += self._copies(located.batch, assigned)
        self.check_early(assigned)
        if keeps_placement(self._index):
            self.bound.wait_until_inflight()
            self.rely_on(Footprint(covers=frozenset(self._index.on_place(self.context.instant))))
        self._save_placed(assigned)
        return PlacedRows(located.batch, assigned)

    def _save_placed(self, assigned: Sequence[Assigned]) -> None:
        if self._saved is not None:
            before = self._saved
            try:
                self.save_for_others(replace(before, files=frozenset(each.assignment.path for each in assigned)))
            except StorageError:
                self._saved = before  # the rows may be given files again
                raise

    def _copies(self, batch: KeyedBatch, assigned: Sequence[Assigned]) -> list[Assigned]:
        """Return the logs for the new buckets of pending clusterings, where the settings ask for them."""
        if not self.state.timeline.pending_clusterings or self._saved is not None:
            return []  # what other processes place is not known here
        from lakefmt._core.write.files.bucket_copies import copies_of_write  # few writes meet a clustering

        copies = self._bucket_copies or copies_of_write(self._pending, self.index)
        self._bucket_copies = copies
        return copies.of(batch, assigned)

    @property
    def keeps_order(self) -> bool:
        """Whether rows keep their order in a bucket: then every commit that brings rows opens file groups of its own."""
        brings = self.bound.operation is not WriteOperation.DELETE
        return brings and self.state.config.properties.get("lakefmt.append.order") == "per_bucket"

    def _placed_by_bucket(self, located: LocatedRows) -> PlacedRows:
        from lakefmt._core.write.bulk_insert import assign_queue_rows

        layout, size = append_layout(self.state.config.properties), located.sizing.rows_per_file
        if layout is None:
            raise CorruptFile("the table's properties name an order of rows, but not that it is an append table")
        new_uuid = self.client.ids.new_uuid
        assigned = assign_queue_rows(located.batch, layout, size, self.context.instant, self._files_opened, new_uuid)
        self._files_opened += len(assigned)
        return PlacedRows(located.batch, assigned)

    def check_early(self, assigned: Sequence[Assigned]) -> None:
        """Raise when files that are about to be written cannot stand; a clustering is withdrawn where settings say so.

        Raises:
            CommitConflict: another writer is at work on one of the file groups, or a clustering replaces it.
        """
        files = [each.assignment for each in assigned]
        groups = {(file.partition, file.file_id) for file in files if not file.opens_file_group}
        begun = self._pending.based_on or self.state
        held_lock = held_lock_of(self.client.store.url)
        # While we hold the table lock no other writer can commit, so early conflict detection is unnecessary.
        look = self._pending.rules.early and (held_lock is None or held_lock.lease is None)
        copied = () if self._bucket_copies is None else self._bucket_copies.copied
        check_early(self._pending.write_client.at(begun), self.context, groups, look=look, copied=copied)

    def save_for_others(self, saved: SavedWrite) -> None:
        """Save what the write remembers now and after every placement, so that any process may take it over."""
        self._saved = saved
        saved.save(self.client.store, self.context, self._footprint, frozenset(self._null_elements), self._left_out)

    # --- write ---------------------------------------------------------------------------------------------------

    def write(self, placed: PlacedRows, announcements: Announcements | None = None) -> list[WriteStatus]:
        """Write every file of a placement, which is one of several if there are announcements."""
        batch, assigned = placed.batch, placed.assigned
        if self.context.operation is WriteOperation.UPSERT and not self.combines:
            batch, assigned = combine_in_files(batch, assigned, self.bound.rule)
        return write_assigned_files(
            self.bound, batch, assigned, key_files(self.client, self.state).known, announcements
        )

    def cover(self, partitions: Sequence[PartitionPath] | None) -> dict[PartitionPath, tuple[FileId, ...]]:
        """Return the file groups of partitions that this write replaces as a whole; None: of all there are."""
        self.rely_on(Footprint(covers=None if partitions is None else frozenset(partitions)))
        groups: dict[PartitionPath, list[FileId]] = {}
        for file_slice in self.table_at.slices(partitions):
            groups.setdefault(file_slice.partition, []).append(file_slice.file_id)
        return {partition: tuple(ids) for partition, ids in groups.items()}

    def _overwritten(self, touched: Iterable[PartitionPath]) -> Mapping[PartitionPath, tuple[FileId, ...]]:
        if self.context.operation is WriteOperation.INSERT_OVERWRITE_TABLE:
            return self.cover(None)
        if self.context.operation is WriteOperation.INSERT_OVERWRITE:
            paths, named = set(touched), set(self._pending.replaces)
            if named and not paths <= named:
                stray = sorted(paths - named)[0]
                raise InvalidInputError(
                    f"a row is for the partition {stray or '.'}, which is not among those to replace"
                )
            return self.cover(sorted(paths | named))
        return {}

    def plan(self, located: LocatedRows) -> WritePlan:
        """Return what the write would do with rows."""
        placed = self.place(located).assigned if self.keeps_order else place_rows(self.table_at, self.bound, located)
        files = tuple(a.assignment for a in placed)
        replaced, rows = self._overwritten(file.partition for file in files), located.batch.num_rows
        return WritePlan(None, operation=self.context.operation, assignments=files, replaced=replaced, rows=rows)

    def plan_delete_partitions(self, partitions: Sequence[PartitionPath]) -> WritePlan:
        """Return what the write would hide."""
        replaced = self.cover(partitions)
        return WritePlan(None, operation=self.context.operation, assignments=(), replaced=replaced, rows=0)

    # --- commit or abort -----------------------------------------------------------------------------------------

    def commit(
        self, statuses: Sequence[WriteStatus], replaced: Mapping[PartitionPath, tuple[FileId, ...]] | None = None
    ) -> CommitResult:
        """Make the write visible; or undo it, when an earlier commit has its rows: the result is ``skipped`` then.

        Raises:
            CommitConflict: the write conflicts with one that was committed meanwhile.
            InstantNotPending: the write was committed, aborted or rolled back already.
            StateError: statuses are missing, or not of this write.
        """
        if self._saved is not None and self._saved.files is not None:
            _check_all_written(self._saved.files, statuses)
        hidden = self._overwritten(s.stat.partition_path for s in statuses) if replaced is None else replaced
        if self._index is not None and capabilities_of(self._index).on_commit:
            stats = [stat for status in statuses for stat in status.stats]
            announce_commit(self._index, index_commit(self.table_at, self.context.instant, stats))
        if self.context.operation not in APPENDING:
            self._note_rows_that_stay()
        # Attempts at one file count once.
        late = {status.stat.path: status.num_late for status in statuses if not status.is_copy}
        watermark, num_late = max(self._promised, default=None), sum_of_known([self._left_out, *late.values()])
        result = complete_instant(
            self._pending,
            statuses,
            hidden,
            self._footprint,
            is_saved=self._saved is not None,
            watermark=watermark,
            num_late=num_late,
        )
        if result.skipped:
            self._abort_quietly()
        if keeps_placement(self._index):
            self._index.on_completed(self.context.instant)
        seconds = perf_counter() - self._started
        if self._saved is not None:
            seconds = max(seconds, self.client.clock.now().timestamp() - self._saved.began)
        notes = (*self.bound.settings.notes, *getattr(self._index, "notes", ()))
        warnings = (*result.warnings, *notes, *_widened_columns(self._pending), *_null_warning(self._null_elements))
        return replace(result, seconds=seconds, warnings=warnings, num_late=0 if result.skipped else num_late)

    def _note_rows_that_stay(self) -> None:
        """Note when the index leaves rows in their partition whose time is changed: readers go by the paths of times."""
        if any(field.timestamp is not None for field in self.table_at.key_spec().partition_fields):
            index = choose_index(self.client, self.bound.settings, self.state.config, self.state)
            if index.is_global and not moves_between_partitions(index):
                note_rows_that_stay(self.table_at)

    def commit_unless_empty(self, statuses: Sequence[WriteStatus]) -> CommitResult | None:
        """Commit; when there are no files and nothing to remember, abort and return None."""
        if statuses or self.context.keeps_empty or self._pending.entries is not None:
            return self.commit(statuses)
        try:
            check_saw_all(self._pending)
        finally:
            self.abort()
        return None

    def abort(self) -> None:
        """Undo the write; twice is fine."""
        if self.bound.inflight is not None:
            self.bound.inflight.end()
        abort_instant(self._pending.instant, is_saved=self._saved is not None)

    def _abandon(self) -> None:
        """End the heartbeat, and leave the rest to the next writer."""
        self._pending.instant.abandon()

    @property
    def null_elements(self) -> frozenset[str]:
        """Columns of lists with null elements among the rows that were keyed."""
        return frozenset(self._null_elements)

    def take_over(self, null_elements: Iterable[str], covers: frozenset[PartitionPath] | None) -> None:
        """Remember what other processes found in the rows of this write.

        Args:
            null_elements: columns of lists with null elements.
            covers: partitions in which no other write may have changed anything, since the keys are not known here.
        """
        self._null_elements.update(null_elements)
        self.rely_on(Footprint(covers=covers))

    @property
    def is_alive(self) -> bool:
        """True while this process keeps the write alive."""
        heartbeat = self._pending.instant.heartbeat
        return heartbeat is not None and heartbeat.is_beating


def _check_all_written(files: frozenset[str], statuses: Sequence[WriteStatus]) -> None:
    """Raise if a file that rows were assigned to has no status: the commit would lose these rows."""
    missing = files.difference(status.stat.path for status in statuses)
    if missing:
        raise StateError(
            f"{len(missing)} of {len(files)} files of this write have no status (first: {min(missing)}): commit would lose "
            "their rows. Write them, again if need be, and give what write_files returned for each; nothing was committed"
        )


def _null_warning(null_elements: Collection[str]) -> list[str]:
    if not null_elements:
        return []
    return [
        f"lists with null elements were written ({', '.join(sorted(null_elements))}): Hudi on Spark rewrites such a file only "
        "with parquet.avro.write-old-list-structure=false in its Hadoop configuration; "
        "lakefmt.write.null_list_elements=refuse refuses such rows"
    ]


def _widened_columns(pending: PendingWrite) -> list[str]:
    """Return what a write made of the types of columns."""
    before, after = pending.before, pending.bound.schema
    if before is None or before is after:
        return []
    names = set(after.names)
    return [
        f"column {name!r} is {after.field(name).type} from now on, and was {before.field(name).type}, which does not hold all "
        "values of these rows: cast them to keep a column's type"
        for name in before.names
        if name in names and after.field(name).type != before.field(name).type
    ]


#: The transactions that this process keeps alive, by owner.
_running_transactions: dict[str, WriteTransaction] = {}
_running_lock = Lock()


def begin_saved(client: TableClient, request: WriteRequest, incoming: pa.Schema | None = None) -> WriteTransaction:
    """Begin a write that any process may commit or abort which has its context.

    Args:
        client: the table.
        request: what is asked for.
        incoming: the schema of the data; it may widen the table's.
    """
    transaction = WriteTransaction.begin(client, request, incoming)
    with transaction.aborted_on_error():
        transaction.save_for_others(SavedWrite(transaction.state.timeline, client.clock.now().timestamp()))
    _register_running(transaction)
    return transaction


def find_transaction(context: WriteContext) -> WriteTransaction | None:
    """Return the running write of a context, None when this process does not keep it alive."""
    with _running_lock:
        transaction = _running_transactions.get(context.owner)
    return transaction if transaction is not None and transaction.is_alive else None


def _register_running(transaction: WriteTransaction) -> None:
    with _running_lock:
        for owner in [owner for owner, other in _running_transactions.items() if not other.is_alive]:
            del _running_transactions[owner]  # it has ended, here or in another process
        if transaction.is_alive:
            _running_transactions[transaction.context.owner] = transaction


def resume_transaction(client: TableClient, context: WriteContext) -> WriteTransaction:
    """Rebuild a write that another process began; the heartbeat of a process that died is taken over.

    Args:
        client: the table of the context.
        context: the write.

    Raises:
        InstantNotPending: the write was committed, aborted or rolled back.
        WriterActive: the instant belongs to another writer.
        CorruptFile: what the write saved is damaged.
    """
    bound = BoundContext(client.store, context)
    write_client = write_client_of(client, bound.settings, context.owner)
    with take_over_write(write_client, context) as instant:
        saved = load_saved_write(client.store, context, bound.config.version.layout)
        if saved is None:
            raise CorruptFile(f"{saved_write_name(context.instant)} is missing: abort the write and begin it again")
        state = TableState(bound.config, saved.timeline)
        pending = PendingWrite(write_client, bound, state, concurrency_of(write_client), instant)
        transaction = WriteTransaction(pending, saved)
    _register_running(transaction)
    return transaction


def abort_context(client: TableClient, context: WriteContext) -> None:
    """Undo the write of a context, whichever process began it; may be repeated.

    Raises:
        WriterActive: the instant belongs to another writer.
    """
    running = find_transaction(context)
    if running is not None:
        running.abort()
        return
    bound = BoundContext(client.store, context)
    write_client = write_client_of(client, bound.settings, context.owner)
    try:
        instant = take_over_write(write_client, context)
    except InstantNotPending:
        instant = InstantTransaction(write_client, context.instant, Action(context.action))
    abort_instant(instant, is_saved=True)
