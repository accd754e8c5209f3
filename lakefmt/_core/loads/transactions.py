"""Transactions: begin, load, prepare, commit, roll back, and what a server that starts again finds (effects).

What is decided of a state is in `states`; here it is done, in an order such that a process may end after every step. A
transaction is prepared when its record says so on the disk, and its rows lie there before. It is committed when a
commit of its table says so. Everything else can be lost.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from os import cpu_count
from threading import Lock
from typing import Final, NoReturn

import pyarrow as pa

from lakefmt._core.arrays import from_numpy
from lakefmt._core.data_classes import dataclass
from lakefmt._core.loads.bodies import Body, unpacked
from lakefmt._core.loads.commit import LoadTable
from lakefmt._core.loads.csv_rows import Decode, Problem
from lakefmt._core.loads.journal import (
    Answer,
    Journal,
    LoadState,
    Operation,
    ServerLease,
    Staged,
    StagedParts,
    TableLoad,
    Times,
    Transaction,
    expiry,
    rejected_name,
    transition,
)
from lakefmt._core.loads.protocol import (
    MOST_CHARACTERS,
    MOST_PROBLEMS,
    BeginParameters,
    DuplicateLabel,
    LoadCounts,
    LoadOptions,
    LoadParameters,
    Refusal,
)
from lakefmt._core.loads.shape import Shaped, Shaper
from lakefmt._core.segments.codec import OPERATOR
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.values import Clock
from lakefmt.errors import ConflictError, LakefmtError, NotFoundError, StateError, StorageError, TableNotFound

__all__ = [
    "Live",
    "Transactions",
]

_log = logging.getLogger("lakefmt.loads")
#: Characters of bad rows that a transaction keeps.
_MOST_PROBLEM_CHARACTERS: Final = 16 << 20
#: How many blocks of a body may be decoded while an earlier block is stored.
_DECODED_AHEAD: Final = 2
#: Reasons of rollbacks that are counted each by itself.
_MOST_CAUSES: Final = 50
_NOT_PREPARED: Final = "the server ended, or failed, before the transaction was prepared"
_OPEN = (LoadState.PREPARE, LoadState.PREPARED, LoadState.COMMITTED)


@dataclass(slots=True)
class _Loading:
    """How the loads of one table in a transaction are read, and their rows."""

    parameters: LoadParameters
    shaper: Shaper
    staged: Staged
    #: Rows that would need a stored key, and whose key is new, were rejected.
    has_stored_keys: bool = False


class Live:
    """A transaction in memory.

    Args:
        record: as it is stored.
    """

    def __init__(self, record: Transaction) -> None:
        self.record = record
        self.busy = Lock()
        self.loading: dict[str, _Loading] = {}
        self.numbers: Iterator[int] = itertools.count()
        self.loads = 0
        #: Replies by the table and the number that the client gave its load.
        self.replies: dict[tuple[str, int], dict[str, object]] = {}
        self.problems: list[Problem] = []
        #: Where its bad rows are; empty: nobody asked for them.
        self.rejected_name = ""
        #: What became of its commit, or of its end, is not known yet.
        self.in_doubt = False

    @property
    def doubt(self) -> str:
        """What a reply adds where the outcome is not known."""
        if not self.in_doubt:
            return ""
        return f" (whether its rows are there is not known yet: ask for the state of label {self.record.label})"

    @property
    def held_bytes(self) -> int:
        """Bytes of rows in memory."""
        return sum(each.staged.held_bytes for each in self.loading.values())

    @property
    def staged_bytes(self) -> int:
        """Bytes of rows in objects."""
        return sum(part.bytes for load in self.record.tables.values() for part in load.parts)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What became of a load."""

    counts: LoadCounts
    number: int
    plan_ms: int = 0


class Transactions:
    """All transactions of a server.

    Args:
        store: of the base path.
        options: of the server.
        open_table: opens a table by database and name.
        clock: tells the time.
        base_path: that the store is not of; empty: it is.
    """

    def __init__(
        self,
        store: ObjectStore,
        options: LoadOptions,
        open_table: Callable[[str, str], LoadTable],
        clock: Clock,
        base_path: str = "",
    ) -> None:
        self._base_path = base_path
        self.options, self._clock, self._open_table = options, clock, open_table
        self.journal = Journal(store, durable=options.durable)
        self.lease = ServerLease(store, secrets.token_hex(8), self.now)
        self.live: dict[tuple[str, str], Live] = {}
        #: Those of them that have not ended, by database: few, however many labels are remembered.
        self._open: dict[str, dict[str, Live]] = {}
        self.lock = Lock()
        #: Of all bodies together, so that as many blocks are in memory as are worked on; its threads begin with the first large body.
        self._decoders = ThreadPoolExecutor(max(2, cpu_count() or 1), "lakefmt-decode")
        self._tables: dict[tuple[str, str], LoadTable] = {}
        self._next_id = 0
        self.rollbacks: dict[str, int] = {}

    def now(self) -> int:
        """Return epoch milliseconds."""
        return int(self._clock.now().timestamp() * 1000)

    def table(self, database: str, name: str) -> LoadTable:
        """Return a table; it is opened once.

        Raises:
            Refusal: there is none.
        """
        key = (database, name)
        load_table = self._tables.get(key)
        if load_table is None:
            try:
                load_table = self._open_table(database, name)
            except (TableNotFound, NotFoundError):
                raise Refusal(f"unknown table {name!r} in database {database!r}") from None
            self._tables[key] = load_table
        return load_table

    # --- start and end ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the lease, and go on with what an earlier server left.

        Raises:
            StateError: another server has the lease, or the journal has transactions for tables of another base path.
            StorageError: the journal cannot be read.
        """
        self.lease.acquire()
        part_names = set[str]()
        records, unread = self.journal.load_all()
        if self._base_path:
            self._check_base_path(records)
        for record in records:
            self._next_id = max(self._next_id, record.id + 1)
            live = self.live[record.database, record.label] = Live(record)
            try:
                self._settle(live)
                self._verify(record)
            except Exception as error:  # noqa: BLE001  (one transaction keeps no server from its start)
                _log.warning(
                    "transaction %s of %s stays %s: %s", record.label, record.database, record.state.value, error
                )
            if record.state in _OPEN:
                self._open.setdefault(record.database, {})[record.label] = live
                part_names.update(part.name for load in record.tables.values() for part in load.parts)
        if unread:
            return  # rows that no other record names may be theirs
        with suppress(StorageError):
            self.journal.remove_unnamed_rows(frozenset(part_names))

    def _check_base_path(self, records: Sequence[Transaction]) -> None:
        """Check that open transactions are for this base path: tables of one name may be below another one, too."""
        stored = self.journal.base_path()
        if stored == self._base_path:
            return
        labels = [record.label for record in records if record.state in _OPEN]
        if stored is not None and labels:
            self.lease.release()
            raise StateError(
                f"the journal has {len(labels)} transactions that have not ended (label {labels[0]!r}) and load into {stored}, not into "
                f"{self._base_path}: start a server of that base path to end them, or name another journal"
            )
        self.journal.save_base_path(self._base_path)

    def _verify(self, record: Transaction) -> None:
        """Look whether the rows of a prepared transaction are there; it may be rolled back if they are not."""
        if record.state is LoadState.PREPARED:
            for load in record.tables.values():
                StagedParts(self.journal.store, load).verify()

    def _settle(self, live: Live) -> None:
        """Go on with a transaction that a server left, or whose commit was not answered; the caller works on it.

        Raises:
            LakefmtError: it stays in doubt.
        """
        record, live.in_doubt = live.record, True
        if record.state in _OPEN:
            committed_tables = self._find_committed(record)
            if record.tables and len(committed_tables) == len(record.tables):
                self._become_visible(live)
            elif record.state is LoadState.PREPARE:
                # Rows that were not prepared went with the server that had them, and nobody asks again for a commit that has failed.
                self._end(live, _NOT_PREPARED)
            elif record.committing or committed_tables:
                self._finish(live)
            elif (reason := expiry(record.state, record.times, self.now())) is not None:
                self._end(live, reason)
        live.in_doubt = False

    def _finish(self, live: Live) -> None:
        """Write the rows of a commit; if that fails and no table has rows, the transaction is prepared again."""
        try:
            self._write_tables(live)
        except (LakefmtError, OSError, MemoryError, pa.ArrowException) as error:
            if self._is_committed_after_all(live, str(error), final=False):
                return
            if live.record.committing or live.record.state is LoadState.COMMITTED:
                raise
            _log.warning("the commit of transaction %s is left to its client: %s", live.record.label, error)

    def _find_committed(self, record: Transaction) -> list[str]:
        """Note the commits that tables have of a transaction; return the names of those tables."""
        tables = []
        for name, load in record.tables.items():
            try:
                stored_label = self.table(record.database, name).find_label(record.database, record.label)
            except (Refusal, TableNotFound):
                continue
            if stored_label is not None and stored_label[0] == str(record.id):
                load.instant = stored_label[1]
                tables.append(name)
        return tables

    def stop(self) -> None:
        """Let another server have the lease."""
        self.lease.release()

    def sweep(self) -> None:
        """End transactions whose time is over, and forget old labels."""
        self.lease.renew()
        now = self.now()
        for live in list(self.live.values()):
            # One that has rows in some of its tables gets them into the others, whether its client asks again or not.
            unsettled = live.in_doubt or live.record.state is LoadState.COMMITTED
            if (unsettled or self._reason_to_end(live) is not None) and live.busy.acquire(blocking=False):
                try:
                    if live.in_doubt or live.record.state is LoadState.COMMITTED:
                        self._settle(live)
                    self.expire(live)
                except Exception as error:  # noqa: BLE001  (others have their time, too)
                    if not (isinstance(error, Refusal) and live.record.state is LoadState.COMMITTED):  # told once
                        _log.warning("a transaction could not be ended: %s", error)
                finally:
                    live.busy.release()
        self._forget_old(now)

    def _forget_old(self, now: int) -> None:
        finished = dict[str, list[Live]]()
        with self.lock:
            for live in self.live.values():
                if live.record.finished:
                    finished.setdefault(live.record.database, []).append(live)
        for lives in finished.values():
            lives.sort(key=lambda live: live.record.finished, reverse=True)
            oldest = now - self.options.label_keep_seconds * 1000
            for number, live in enumerate(lives):
                is_old = number >= self.options.label_keep_num or live.record.finished < oldest
                # Until its record is gone no other transaction writes one in its place.
                if is_old and live.busy.acquire(blocking=False):
                    try:
                        with suppress(StorageError):
                            self.journal.forget(live.record)
                        with self.lock:
                            if self.live.get((live.record.database, live.record.label)) is live:
                                del self.live[live.record.database, live.record.label]
                    finally:
                        live.busy.release()

    # --- finding one -----------------------------------------------------------------------------------------------------

    def find(self, database: str, label: str) -> Live | None:
        """Return a transaction; one whose time is over ends now."""
        live = self.live.get((database, label))
        # One that goes on is not held for a moment either: a load that comes just then would be refused.
        if live is not None and self._reason_to_end(live) is not None and live.busy.acquire(blocking=False):
            try:
                self.expire(live)
            finally:
                live.busy.release()
        return live

    def expire(self, live: Live) -> None:
        """End a transaction whose time is over; the caller works on it."""
        reason = self._reason_to_end(live)
        if reason is not None:
            self.abort(live, reason)

    def _reason_to_end(self, live: Live) -> str | None:
        """Return why the time of a transaction is over; None: it is not."""
        record, now = live.record, self.now()
        times = record.times.seen_at(now)
        if times != record.times:
            record.times = times  # the clock has stepped back
        return expiry(record.state, record.times, now)

    def state(self, database: str, label: str, table: str = "") -> tuple[LoadState, str]:
        """Return the state of a label, and why its transaction was aborted.

        Args:
            database: of the label.
            label: it.
            table: that is asked, too, where no record is left; empty: only those that were opened.
        """
        live = self.find(database, label)
        if live is not None:
            return live.record.state, live.record.reason
        if table:
            with suppress(Refusal, TableNotFound):
                self.table(database, table)
        for (name, _), opened in list(self._tables.items()):
            if name == database and opened.find_label(database, label) is not None:
                return LoadState.VISIBLE, ""
        return LoadState.UNKNOWN, ""

    @contextmanager
    def working(self, live: Live, *, waits: bool) -> Iterator[None]:
        """Be the only request that works on a transaction.

        Raises:
            Refusal: another one does.
        """
        seconds = self.options.wait_seconds if waits else 0
        if not (live.busy.acquire(timeout=seconds) if seconds else live.busy.acquire(blocking=False)):
            raise Refusal("Transaction is in processing", status="TXN_IN_PROCESSING")
        try:
            self.lease.check()
            if live.in_doubt:
                self._settle(live)
            self.expire(live)
            yield
        finally:
            live.busy.release()

    # --- begin -----------------------------------------------------------------------------------------------------------

    def begin(self, begin_parameters: BeginParameters, owner: str, *, stored: bool = True) -> Live:
        """Begin a transaction, or return the one that this very request has begun.

        Args:
            begin_parameters: what its headers say.
            owner: the user.
            stored: write its record; a transaction that ends with its request needs none.

        Raises:
            DuplicateLabel: the label has one.
            Refusal: there is no such table, or there are too many transactions.
        """
        self.lease.check()
        key = (begin_parameters.database, begin_parameters.label)
        while (earlier := self.find(*key)) is not None:
            is_open = transition(earlier.record.state, Operation.BEGIN).verdict is Answer.DUPLICATE
            request_id = begin_parameters.request_id
            if is_open and request_id and earlier.record.request_id == request_id and not earlier.loads:
                return earlier
            if is_open and not (self.options.begin_replaces_open and earlier.record.state is LoadState.PREPARE):
                self._refuse_label(earlier)
            # Its end may still be written: this one's record comes behind it.
            with self.working(earlier, waits=True):
                if self.live.get(key) is not earlier:
                    continue
                if earlier.record.state is LoadState.PREPARE:
                    self.abort(earlier, "another transaction began with its label")
                if earlier.record.state is not LoadState.ABORTED:
                    self._refuse_label(earlier)
                self.journal.remove_problems(earlier.record)
                return self._begun(begin_parameters, owner, earlier, stored=stored)
        return self._begun(begin_parameters, owner, None, stored=stored)

    def _refuse_label(self, live: Live) -> NoReturn:
        record = live.record
        is_finished = record.state in (LoadState.VISIBLE, LoadState.COMMITTED)
        raise DuplicateLabel(record.label, record.id, finished=is_finished)

    def _begun(self, begin_parameters: BeginParameters, owner: str, earlier: Live | None, *, stored: bool) -> Live:
        database, label = begin_parameters.database, begin_parameters.label
        if begin_parameters.table:
            stored_label = self.table(database, begin_parameters.table).find_label(database, label)
            if stored_label is not None:
                number = int(stored_label[0]) if stored_label[0].isdigit() else None
                raise DuplicateLabel(label, number, finished=True)
        live = self._new(begin_parameters, owner, earlier)
        if stored:
            try:
                self.journal.save(live.record, durable=False)
            except BaseException:
                self.forget(live)
                raise
        return live

    def _new(self, begin_parameters: BeginParameters, owner: str, earlier: Live | None) -> Live:
        key, now = (begin_parameters.database, begin_parameters.label), self.now()
        times = Times(
            now, now, 0, begin_parameters.timeout, self.options.prepared_timeout, begin_parameters.idle_timeout
        )
        with self.lock:
            if self.live.get(key) is not earlier:
                raise DuplicateLabel(begin_parameters.label, None, finished=False)
            running = len(self._open.get(begin_parameters.database, ()))
            if running >= self.options.max_running:
                raise Refusal(
                    f"current running txns on db {begin_parameters.database} is {running}, larger than limit {self.options.max_running}"
                )
            self._next_id = max(self._next_id + 1, now)
            record = Transaction(
                self._next_id,
                begin_parameters.label,
                begin_parameters.database,
                begin_parameters.table,
                LoadState.PREPARE,
                times,
                request_id=begin_parameters.request_id,
                owner=owner,
            )
            live = self.live[key] = Live(record)
            self._open.setdefault(begin_parameters.database, {})[begin_parameters.label] = live
        return live

    def _ended(self, live: Live) -> None:
        """Note that a transaction is not open any more."""
        for each in (live.loading, live.problems, live.replies):
            each.clear()
        with self.lock:
            of_database = self._open.get(live.record.database, {})
            if of_database.get(live.record.label) is live:
                del of_database[live.record.label]

    # --- load ------------------------------------------------------------------------------------------------------------

    def load(self, live: Live, table: str, parameters: LoadParameters, body: Body) -> Loaded:
        """Take the rows of a body; all of them or none.

        Args:
            live: the transaction; the caller works on it.
            table: that they are for.
            parameters: of the load.
            body: read once everything else is known to be right.

        Raises:
            Refusal: they cannot be taken; ``rolls_back`` says what becomes of the transaction.
            BodyBroken: the connection ended; the transaction is as it was.
            StorageError: they could not be stored; the transaction is as it was.
        """
        self._check_room()
        loading = self._loading(live, table, parameters)
        mark, warned = loading.staged.mark(), loading.shaper.reader.warnings
        counts, problems = LoadCounts(), list[Problem]()
        try:
            blocks = _CountedBlocks(unpacked(body, parameters.compression, self.options.max_body_bytes))
            for shaped in self._shaped(loading.shaper, blocks):
                self._note_operators(live.record.tables[table], shaped.rows)
                loading.staged.add(shaped.rows)
                counts += shaped.counts
                problems = _bounded(problems + list(shaped.problems), parameters.most_problems)
                if live.staged_bytes > self.options.max_staged_bytes:
                    raise Refusal("the transaction has more rows than may be staged", rolls_back=True)
        except BaseException:
            names = loading.staged.cut(mark)
            if names:
                with suppress(StorageError):
                    self.journal.store.delete(names)
            raise
        counts += LoadCounts(bytes=blocks.bytes, warnings=loading.shaper.reader.warnings - warned)
        record = live.record
        record.tables[table].counts += counts
        record.times = record.times._replace(used=self.now())
        if problems:
            live.problems = _bounded(live.problems + problems, parameters.most_problems)
            self._save_problems(live, parameters.log_rejected)
        number, live.loads = live.loads, live.loads + 1
        return Loaded(counts, number)

    def _shaped(self, shaper: Shaper, blocks: Iterable[bytes]) -> Iterator[Shaped]:
        """Yield the rows of a body, in their order; some blocks are decoded while the next come and earlier ones are stored."""
        futures, decodes = deque[Future[Shaped]](), list[Decode]()
        try:
            for decode in shaper.reader.read(blocks):
                if decodes:
                    futures.append(self._decoders.submit(_shape, shaper, decodes.pop()))
                decodes.append(decode)
                if len(futures) > _DECODED_AHEAD:
                    yield futures.popleft().result()
            while futures:
                yield futures.popleft().result()
            # The only block of a small body needs no other thread.
            yield from (shaper.shape(decode()) for decode in decodes)
        finally:
            for work in futures:
                work.cancel()

    @staticmethod
    def _note_operators(load: TableLoad, rows: pa.Table) -> None:
        """Note that rows have to be held at the commit, since some of them delete their keys."""
        if OPERATOR in rows.column_names:
            if load.operation != "upsert":
                raise Refusal("rows that delete their keys are upserts", rolls_back=True)
            if load.merge_condition:
                raise Refusal("merge_condition and rows that delete their keys do not go together", rolls_back=True)
            load.marked = True

    def join(self, live: Live, other: Live) -> None:
        """Move the rows of a transaction that has no record into another one.

        Args:
            live: which gets them.
            other: whose they were; it is forgotten.

        Raises:
            Refusal: the table was altered between their loads.
        """
        for name, loading in other.loading.items():
            load = other.record.tables[name]
            mine = live.record.tables.get(name)
            if mine is None:
                live.record.tables[name], live.loading[name] = load, loading
                continue
            if mine.columns != load.columns:
                raise Refusal("the table was altered meanwhile: try again", status="INTERNAL_ERROR")
            staged = live.loading[name].staged
            mark, theirs = staged.mark(), {part.name for part in load.parts}
            try:
                staged.take(loading.staged)
            except BaseException:
                names = [name for name in staged.cut(mark) if name not in theirs]
                with suppress(StorageError):
                    self.journal.store.delete(names)
                raise
            mine.counts, mine.marked = mine.counts + load.counts, mine.marked or load.marked
        live.problems = _bounded(live.problems + other.problems, MOST_PROBLEMS)
        self.forget(other)

    def discard(self, live: Live) -> None:
        """Drop the rows of a transaction that has no record, and forget it."""
        live.record.state = LoadState.ABORTED
        self.journal.remove_rows(live.record)
        self.forget(live)

    def forget(self, live: Live) -> None:
        """Forget a transaction that has no record."""
        self._ended(live)
        self.journal.remove_problems(live.record)
        with self.lock:
            self.live.pop((live.record.database, live.record.label), None)

    def _check_room(self) -> None:
        held_bytes = sum(live.held_bytes for lives in list(self._open.values()) for live in list(lives.values()))
        if held_bytes > self.options.max_memory_bytes:
            raise Refusal("the server holds as many rows in memory as it may: try again", status="INTERNAL_ERROR")

    def _loading(self, live: Live, table: str, parameters: LoadParameters) -> _Loading:
        loading = live.loading.get(table)
        if loading is not None:
            if loading.parameters != parameters:
                raise Refusal("load request not equal last.", rolls_back=True)
            return loading
        record = live.record
        load_table = self.table(record.database, table)
        if not record.table and load_table.find_label(record.database, record.label) is not None:
            raise DuplicateLabel(record.label, None, finished=True)
        table_at = load_table.at()
        shaper = Shaper(parameters, load_table.target(table_at))
        load = load_table.begin(table_at, parameters.operation)
        load.partial, load.merge_condition = parameters.partial_update, parameters.merge_condition
        if load.operation != "upsert" and (load.partial or load.merge_condition):
            raise Refusal("rows with parts or a condition are upserts", rolls_back=True)
        record.tables[table] = load
        staged = Staged(
            self.journal.store, record.database, record.id, load, live.numbers, durable=self.options.durable
        )
        loading = live.loading[table] = _Loading(parameters, shaper, staged)
        return loading

    def _save_problems(self, live: Live, rejected: int) -> None:
        """Store why rows are bad, and so many of those rows; -1: all that are known."""
        record = live.record
        if not record.error_log:
            record.error_log = f"error_log_{secrets.token_hex(8)}_{secrets.token_hex(8)}"
        shows = self.options.show_values
        lines = [
            f"Error: {each.reason}." + (f" Row: {each.row[:MOST_CHARACTERS]}" if shows and each.row else "")
            for each in live.problems[:MOST_PROBLEMS]
        ]
        names = [(record.error_log, lines)]
        if rejected:
            live.rejected_name = self.journal.error_name(record.database, rejected_name(record.error_log))
            rows = live.problems if rejected < 0 else live.problems[:rejected]
            names.append((rejected_name(record.error_log), [f"{each.row}\t{each.reason}" for each in rows]))
        for name, excerpts in names:
            with suppress(StorageError):
                data = ("\n".join(excerpts) + "\n").encode("utf-8", "replace")
                self.journal.store.put(self.journal.error_name(record.database, name), data)

    # --- prepare, commit, roll back ----------------------------------------------------------------------------------------

    def prepare(self, live: Live, prepared_timeout: int) -> None:
        """Make the rows of an open transaction durable: from now on only its client ends it, or its time.

        Raises:
            Refusal: there are too many bad rows, or none at all.
            StorageError: nothing was promised.
        """
        self._become_prepared(live, prepared_timeout, committing=False)

    def _check_rows(self, live: Live) -> None:
        """Store the rows of a transaction, and look whether they can be committed."""
        record = live.record
        self._check_ratio(live)
        if not record.counts.total and not self.options.allow_empty:
            raise Refusal("the transaction has not received data", rolls_back=True)
        for name, loading in live.loading.items():
            loading.staged.flush()
            self.table(record.database, name).check(record.tables[name])
        self.reject_new_keys(live)
        self._check_ratio(live)

    def _check_ratio(self, live: Live) -> None:
        for name, loading in live.loading.items():
            if live.record.tables[name].counts.exceeds(loading.parameters.max_filter_ratio):
                raise Refusal("too many filtered rows", rolls_back=True)

    def reject_new_keys(self, live: Live) -> None:
        """Reject rows that set some columns, lack one that must have a value, and whose key is not stored.

        Raises:
            StorageError: the other rows could not be stored; all are as they were.
        """
        for name, loading in live.loading.items():
            column, load = loading.shaper.missing_value, live.record.tables[name]
            if not column or loading.has_stored_keys:
                continue
            loading.staged.flush()
            before, counts, table = list(load.parts), load.counts, self.table(live.record.database, name)
            table_at, problems = table.at(), list[Problem]()
            load.parts = []
            try:
                for rows in StagedParts(self.journal.store, TableLoad(parts=before)):
                    stored = table.are_stored(table_at, load, rows)
                    loading.staged.add(rows.filter(from_numpy(stored)))
                    new = rows.filter(from_numpy(~stored))
                    load.counts += LoadCounts(loaded=-new.num_rows, filtered=new.num_rows)
                    problems += _problems(
                        new, f"column {column} must have a value, and the key is new", loading.parameters
                    )
                loading.staged.flush()
            except BaseException:
                part_names, load.parts, load.counts = [part.name for part in load.parts], before, counts
                loading.staged.drop_held()
                with suppress(StorageError):
                    self.journal.store.delete(part_names)
                raise
            loading.has_stored_keys = True
            with suppress(StorageError):
                self.journal.store.delete([part.name for part in before])
            if problems:
                live.problems = _bounded(live.problems + problems, loading.parameters.most_problems)
                self._save_problems(live, loading.parameters.log_rejected)

    def _become_prepared(self, live: Live, prepared_timeout: int, *, committing: bool) -> None:
        self._check_rows(live)
        record = live.record
        times = record.times
        record.times = times._replace(prepared=self.now(), prepared_timeout=prepared_timeout)
        record.state, record.committing = LoadState.PREPARED, committing
        try:
            self.journal.save(record, durable=True)
        except BaseException:
            # It may be stored: then a server that starts again has a prepared transaction that its client rolls back.
            record.state, record.committing, record.times = LoadState.PREPARE, False, times
            raise

    def commit(self, live: Live, *, final: bool = False) -> None:
        """Put the rows of a transaction into its tables.

        Args:
            live: it.
            final: nobody will ask again: a transaction whose commit fails ends.

        Raises:
            Refusal: there are too many bad rows, or none at all; or the transaction has ended meanwhile.
            LakefmtError: nothing was committed; unless it was the last word, the transaction is prepared, and may be committed again.
        """
        record = live.record
        if record.state not in _OPEN:
            raise Refusal(f"Can not commit {record.state.value} transaction {record.id}, reason: {record.reason}")
        if record.state is LoadState.PREPARE and final:
            self._check_rows(live)
            self.journal.save(record, durable=True)
        elif record.state is LoadState.PREPARE:
            self._become_prepared(live, record.times.prepared_timeout, committing=True)
        live.in_doubt = final
        try:
            self._write_tables(live)
        except (LakefmtError, OSError, MemoryError, pa.ArrowException) as error:
            if not self._is_committed_after_all(live, str(error), final=final):
                raise

    def _is_committed_after_all(self, live: Live, reason: str, *, final: bool) -> bool:
        """Look whether a commit whose answer was lost is there; one that is not is not finished by a server that starts again."""
        record = live.record
        if record.state is LoadState.COMMITTED:
            return False
        with suppress(LakefmtError, OSError):
            if len(self._find_committed(record)) == len(record.tables):
                self._become_visible(live)
            elif final:
                self._end(live, f"its commit failed: {reason}")
            elif record.committing:
                record.committing = False
                self.journal.save(record, durable=True)
        return record.state is LoadState.VISIBLE

    def _write_tables(self, live: Live) -> None:
        record = live.record
        if len(record.tables) > 1 and record.state is LoadState.PREPARED:
            # None of them gets its rows if those of another one do not fit any more.
            for name, load in record.tables.items():
                self.table(record.database, name).check(load, StagedParts(self.journal.store, load))
        reasons = dict[str, str]()
        for name, load in record.tables.items():
            if load.instant:
                continue
            rows = StagedParts(self.journal.store, load)
            try:
                load.instant = self.table(record.database, name).commit(record, load, rows) or ""
            except LakefmtError as error:
                # What is of the store or of other writers passes.
                if record.state is not LoadState.COMMITTED or isinstance(error, ConflictError | StorageError):
                    raise
                reasons[name] = f"{type(error).__name__}: {str(error)[:200]}"
                continue
            if len(record.tables) > 1:
                record.state = LoadState.COMMITTED
                self.journal.save(record, durable=True)
        if reasons:
            self._wait_for_tables(record, reasons)
        self._become_visible(live)

    def _wait_for_tables(self, record: Transaction, reasons: dict[str, str]) -> None:
        """Keep the rows of tables that were dropped or altered after others had theirs; give them up when its time is over.

        Raises:
            Refusal: it is not over.
        """
        problems = "; ".join(f"table {name!r} cannot take its rows: {why}" for name, why in reasons.items())
        seconds = record.times.prepared_timeout
        is_over = self.now() - record.times.prepared > seconds * 1000
        reason = f"{problems}. They were given up after {seconds} seconds" if is_over else problems
        if record.reason != reason:
            record.reason = reason
            _log.warning("transaction %s of %s: %s", record.label, record.database, reason)
            self.journal.save(record, durable=True)
        if not is_over:
            others = ", ".join(sorted(name for name, load in record.tables.items() if load.instant))
            raise Refusal(
                f"publish timeout: {others} got theirs; {problems}; they wait for it for {seconds} seconds from the prepare",
                status="PUBLISH_TIMEOUT",
            )

    def _become_visible(self, live: Live) -> None:
        """Note the end of a transaction; its commit says so itself, whatever becomes of this note."""
        record = live.record
        record.state, record.finished = LoadState.VISIBLE, self.now()
        if all(load.instant for load in record.tables.values()):
            record.reason = ""  # a table that was waited for is there
        live.in_doubt = False
        self._ended(live)
        try:
            self.journal.save(record, durable=False)
        except StorageError as error:
            _log.warning("the end of the transaction %s was not noted: %s", record.label, error)
            return
        self.journal.remove_rows(record)

    def abort(self, live: Live, reason: str) -> bool:
        """End a transaction without its rows. False: they are there already, by a commit whose answer was lost.

        Raises:
            LakefmtError: it is not known whether they are there, or a prepared transaction could not be ended.
        """
        record = live.record
        if record.state not in _OPEN:
            return record.state is LoadState.ABORTED
        if record.state is LoadState.PREPARED and (committed_tables := self._find_committed(record)):
            if len(committed_tables) == len(record.tables):
                self._become_visible(live)
            else:
                record.state = LoadState.COMMITTED  # what is left is to give the other tables theirs
            return False
        self._end(live, reason)
        return True

    def _end(self, live: Live, reason: str) -> None:
        record = live.record
        before = (record.state, record.reason, record.finished)
        was_stored = record.state is LoadState.PREPARED or live.in_doubt
        record.state, record.reason, record.finished = LoadState.ABORTED, reason[:1000], self.now()
        try:
            self.journal.save(record, durable=was_stored)
        except StorageError:
            if was_stored:
                record.state, record.reason, record.finished = before
                raise
        live.in_doubt = False
        cause = reason.partition(":")[0][:60]
        if cause not in self.rollbacks and len(self.rollbacks) >= _MOST_CAUSES:
            cause = "other"  # a reason may have a text of a client
        self.rollbacks[cause] = self.rollbacks.get(cause, 0) + 1
        self._ended(live)
        self.journal.remove_rows(record)


def _shape(shaper: Shaper, decode: Decode) -> Shaped:
    return shaper.shape(decode())


def _problems(rows: pa.Table, reason: str, parameters: LoadParameters) -> list[Problem]:
    """Return the same problem of the first of some rows."""
    bad_rows = rows.slice(0, parameters.most_problems).to_pylist()
    separator = parameters.separator.decode("utf-8", "replace")
    lines = (separator.join("\\N" if each is None else str(each) for each in row.values()) for row in bad_rows)
    return [Problem(reason, line[: parameters.most_characters]) for line in lines]


def _bounded(problems: list[Problem], most: int) -> list[Problem]:
    """Return the first problems, of so many rows and characters."""
    sizes = itertools.accumulate(len(each.row) + len(each.reason) for each in problems[:most])
    return [each for each, size in zip(problems, sizes, strict=False) if size <= _MOST_PROBLEM_CHARACTERS]


class _CountedBlocks:
    """Blocks, and how many bytes they have."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self.bytes = blocks, 0

    def __iter__(self) -> Iterator[bytes]:
        for block in self._blocks:
            self.bytes += len(block)
            yield block
