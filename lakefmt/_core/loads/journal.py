"""The states of a transaction, what is stored of it, and the lease of the server that may change it (effects).

The journal lies beside the tables, in ``<base path>/.lakefmt/loads``, not in a table: a label belongs to a database, a
transaction may have several tables, a dropped table must not take the record of its loads along, and one lease covers
all that a server answers for. Every record is one object that is replaced atomically, so any store that keeps tables
keeps it::

    lease                                   who answers; on a local disk a file that the system unlocks when its process ends
    <database>/transactions/<label>.json    the newest transaction of a label
    <database>/rows/<id>-<number>.arrow     rows of a transaction, an Arrow stream
    <database>/errors/<name>                reasons why rows were left out; the rows where a load asked for them

A record says PREPARE, PREPARED, COMMITTED, VISIBLE or ABORTED. Rows count only where a record names them.

Which operation may follow which state is a table (pure).
"""

from __future__ import annotations

import enum
import hashlib
import json
import logging
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from lakefmt._core.data_classes import dataclass
from lakefmt._core.loads.protocol import LoadCounts, check_label
from lakefmt._core.storage.api import ObjectStore, PutOutcome, with_versions
from lakefmt._core.storage.process_lock import ProcessLock, process_locks
from lakefmt.errors import CorruptFile, ObjectNotFound, StateError, StorageError

__all__ = [
    "FOLDER",
    "PART_BYTES",
    "TRANSITIONS",
    "Answer",
    "Journal",
    "LoadState",
    "Operation",
    "Part",
    "ServerLease",
    "Staged",
    "StagedParts",
    "TableLoad",
    "Times",
    "Transaction",
    "decode_transaction",
    "encode_transaction",
    "expiry",
    "rejected_name",
    "transition",
]

#: Where everything lies, below the base path.
FOLDER: Final = ".lakefmt/loads"
_MAX_RECORD_BYTES: Final = 64 << 20
_BASE_PATH: Final = f"{FOLDER}/base_path"
_MAX_BASE_PATH_BYTES: Final = 64 << 10
_MAX_PARTS: Final = 100_000
_FORMAT: Final = 1
_LEASE: Final = f"{FOLDER}/lease"
#: A lease that was not renewed for so long is over.
_LEASE_MS: Final = 30_000
_DIGEST = re.compile(r"[0-9a-f]{8}|[0-9a-f]{32}")
_log = logging.getLogger("lakefmt.loads")


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a transaction in one object.

    Attributes:
        name: of the object, below the base path.
        rows: how many there are.
        bytes: its size.
        digest: of its bytes.
    """

    name: str
    rows: int
    bytes: int
    digest: str


@dataclass(slots=True)
class TableLoad:
    """The rows of a transaction for one table, and how they are written.

    Attributes:
        parts: in the order in which they came.
        operation: ``"upsert"``, ``"insert"`` or ``"bulk_insert"``.
        columns: the instant since when the table has the columns that the rows were made with.
        since: the newest completed instant when the first row came: no commit up to it has these rows.
        partial: columns that rows lack keep what is stored.
        merge_condition: a row replaces the stored one only if this column is not smaller.
        marked: rows carry an operator.
        instant: of the commit; empty: there is none yet.
        counts: of the rows.
    """

    parts: list[Part] = field(default_factory=list)
    operation: str = "upsert"
    columns: str = "0"
    since: str = ""
    partial: bool = False
    merge_condition: str = ""
    marked: bool = False
    instant: str = ""
    counts: LoadCounts = LoadCounts()


@dataclass(slots=True)
class Transaction:
    """A transaction as it is stored.

    Attributes:
        id: its number.
        label: unique in its database.
        database: of its tables.
        table: of one that has one table; empty: it has several.
        state: where it is.
        times: of it.
        tables: its rows by table.
        reason: why it was aborted.
        finished: epoch milliseconds of its end; 0: it has none.
        committing: the client has asked for the commit: a server that starts again finishes it.
        error_log: name of the list of bad rows.
        request_id: by which a begin that is repeated is known.
        owner: the user who began it.
    """

    id: int
    label: str
    database: str
    table: str
    state: LoadState
    times: Times
    tables: dict[str, TableLoad] = field(default_factory=dict)
    reason: str = ""
    finished: int = 0
    committing: bool = False
    error_log: str = ""
    request_id: str = ""
    owner: str = ""

    @property
    def counts(self) -> LoadCounts:
        """Of all tables together."""
        return sum((each.counts for each in self.tables.values()), LoadCounts())


def encode_transaction(transaction: Transaction) -> bytes:
    """Return a transaction as JSON."""
    tables = {
        name: {
            **{key: getattr(load, key) for key in _LOAD_FIELDS},
            "parts": [[part.name, part.rows, part.bytes, part.digest] for part in load.parts],
            "counts": asdict(load.counts),
        }
        for name, load in transaction.tables.items()
    }
    plain = {key: getattr(transaction, key) for key in _PLAIN_FIELDS}
    body = {"format": _FORMAT, **plain, "state": transaction.state.value, "times": list(transaction.times)}
    return json.dumps({**body, "tables": tables}, separators=(",", ":")).encode()


_LOAD_FIELDS: Final = ("operation", "columns", "since", "partial", "merge_condition", "marked", "instant")
_PLAIN_FIELDS: Final = (
    "id",
    "label",
    "database",
    "table",
    "reason",
    "finished",
    "committing",
    "error_log",
    "request_id",
    "owner",
)
_FIELD_TYPES: Final[Mapping[str, type]] = {
    **dict.fromkeys(("id", "finished"), int),
    **dict.fromkeys(("committing", "partial", "marked"), bool),
}


def decode_transaction(data: bytes, name: str) -> Transaction:
    """Return the transaction of a record.

    Args:
        data: its bytes.
        name: of it, for messages.

    Raises:
        CorruptFile: it is none.

    Example:
        >>> made = Transaction(7, "a", "d", "t", LoadState.PREPARE, Times(1, 2), {"t": TableLoad()})
        >>> decode_transaction(encode_transaction(made), "x") == made
        True
    """
    try:
        body = json.loads(data)
        if not isinstance(body, dict) or body.get("format") != _FORMAT:
            raise ValueError("it is of another format")
        plain = {key: _field(body, key) for key in _PLAIN_FIELDS}
        times = body["times"]
        if not isinstance(times, list) or len(times) != len(Times._fields) or not all(map(_is_count, times)):
            raise ValueError("times")
        tables = body["tables"]
        if not isinstance(tables, dict):
            raise ValueError("tables")  # noqa: TRY004  (as above)
        loads = {str(key): _decode_load(load, plain["database"]) for key, load in tables.items()}
        check_label(plain["label"])
        return Transaction(state=LoadState(body["state"]), times=Times(*times), tables=loads, **plain)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptFile(f"{name} is no record of a transaction: {str(error)[:200]}") from None


def _field(body: Mapping[str, Any], key: str) -> Any:
    value = body[key]
    if type(value) is not _FIELD_TYPES.get(key, str) or (isinstance(value, int) and value < 0):
        raise ValueError(f"{key} is {str(value)[:40]!r}")
    return value


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 53


def _decode_load(body: Any, database: str) -> TableLoad:
    parts, counts = body["parts"], body["counts"]
    if not isinstance(parts, list) or len(parts) > _MAX_PARTS or not isinstance(counts, dict):
        raise ValueError("parts")
    fields = {key: _field(body, key) for key in _LOAD_FIELDS}
    if not all(_is_count(value) for value in counts.values()):
        raise ValueError("counts")
    return TableLoad([_decode_part(part, database) for part in parts], counts=LoadCounts(**counts), **fields)


def _decode_part(part: Any, database: str) -> Part:
    name, rows, size, digest = part
    # A name that leads elsewhere is not followed.
    if not re.fullmatch(rf"{re.escape(FOLDER)}/{re.escape(database)}/rows/[0-9]+-[0-9]+\.arrow", str(name)):
        raise ValueError(f"part {str(name)[:80]!r}")
    if not _is_count(rows) or not _is_count(size) or not _DIGEST.fullmatch(str(digest)):
        raise ValueError("part")
    return Part(name, rows, size, digest)


class ServerLease:
    """The right of one process to change a journal. On a local disk the system ends it with the process.

    Args:
        store: of the base path.
        owner: name of the process, unique.
        now: returns epoch milliseconds.
    """

    def __init__(self, store: ObjectStore, owner: str, now: Callable[[], int]) -> None:
        self._store, self._owner, self._now = store, owner, now
        self._held: ProcessLock | None = None
        self._mark: str | None = None
        #: When it was written; 0: it was not.
        self._written = 0
        self._is_lost = False

    def acquire(self) -> None:
        """Take the lease.

        Raises:
            StateError: another server has it.
        """
        locks = process_locks(self._store)
        if locks is not None:
            self._store.make_directories([FOLDER])
            self._held = locks.hold(_LEASE)
            if self._held is None:
                raise StateError(f"another server answers for {self._store.url}: stop it, or give this one its address")
            return
        stored = self._read()
        if stored is not None and stored[0] + _LEASE_MS > self._now() and stored[1] != self._owner:
            raise StateError(
                f"another server answers for {self._store.url}; if it has died, its lease ends {_LEASE_MS // 1000} seconds later"
            )
        self._write()

    def _read(self) -> tuple[int, str] | None:
        versions = with_versions(self._store)
        try:
            if versions is not None:
                version = versions.read_version(_LEASE, 4096)
                data, self._mark = (b"", None) if version is None else (version.data, version.mark)
            else:
                data = self._store.read(_LEASE, 4096)
        except ObjectNotFound:
            return None
        try:
            body = json.loads(data)
            return int(body["at"]), str(body["owner"])
        except (ValueError, KeyError, TypeError):
            return None  # empty or damaged: nobody's

    def _write(self) -> None:
        now = self._now()
        data = json.dumps({"at": now, "owner": self._owner}).encode()
        versions = with_versions(self._store)
        if versions is None:
            self._store.put(_LEASE, data)
        else:
            result = versions.put_if_match(_LEASE, data, self._mark)
            if result.outcome is not PutOutcome.DONE and self._read() != (now, self._owner):
                self._is_lost = True
                self._refuse_lost()
            if result.mark is None:
                self._read()
            else:
                self._mark = result.mark
        self._written = now

    def _is_within(self, milliseconds: int) -> bool:
        """Return whether the lease was written so short a time ago; a clock that has stepped back does not know."""
        return self._held is not None or 0 <= self._now() - self._written <= milliseconds

    def renew(self) -> None:
        """Renew the lease when a third of it is over.

        Raises:
            StateError: another server has it.
        """
        self._refuse_lost()
        if not self._is_within(_LEASE_MS // 3):
            self._write()

    def _refuse_lost(self) -> None:
        if self._is_lost:
            raise StateError(f"another server took over {self._store.url}: this one answers for nothing any more")

    def check(self) -> None:
        """Refuse to go on without the lease.

        Raises:
            StateError: it is over.
        """
        self._refuse_lost()
        if not self._is_within(_LEASE_MS):
            self.renew()

    def release(self) -> None:
        """Let others have the lease."""
        if self._held is not None:
            self._held.release()
        elif self._written and not self._is_lost:
            self._store.delete([_LEASE])
        self._written = 0


def rejected_name(error_log: str) -> str:
    """Return the name of the rejected rows beside a list of bad ones.

    Example:
        >>> rejected_name("error_log_1_2")
        'rejected_record_1_2'
    """
    return error_log.replace("error_log_", "rejected_record_", 1)


class Journal:
    """The records of a base path.

    Args:
        store: of the base path.
        durable: what is prepared is on the disk before it is said to be.
    """

    def __init__(self, store: ObjectStore, *, durable: bool = True) -> None:
        self.store, self._durable = store, durable

    @staticmethod
    def record_name(database: str, label: str) -> str:
        """Return the name of a label's record."""
        return f"{FOLDER}/{database}/transactions/{label}.json"

    def save(self, transaction: Transaction, *, durable: bool) -> None:
        """Store a transaction in place of what there is of its label.

        Args:
            transaction: it.
            durable: its reply promises something: it has to be on the disk. An open transaction goes with its server anyway.

        Raises:
            StorageError: it may be stored or not.
        """
        name = self.record_name(transaction.database, transaction.label)
        self.store.put(name, encode_transaction(transaction), durable=durable and self._durable)

    def base_path(self) -> str | None:
        """Return the base path that its transactions load into; None: it is not known.

        Raises:
            StorageError: it cannot be read.
        """
        try:
            return self.store.read(_BASE_PATH, _MAX_BASE_PATH_BYTES).decode("utf-8", "replace")
        except ObjectNotFound:
            return None

    def save_base_path(self, base_path: str) -> None:
        """Store the base path that its transactions load into.

        Raises:
            StorageError: it may be stored or not.
        """
        self.store.put(_BASE_PATH, base_path.encode(), durable=self._durable)

    def load_all(self) -> tuple[list[Transaction], int]:
        """Return all transactions, and how many records cannot be read: those are told to the log and left where they are."""
        transactions, unread = list[Transaction](), 0
        for directory in self.store.list_directories(FOLDER):
            for info in list(self.store.list(f"{directory}/transactions", recursive=False)):
                if not info.name.endswith(".json"):
                    continue
                try:
                    transaction = decode_transaction(self.store.read(info.name, _MAX_RECORD_BYTES), info.name)
                except ObjectNotFound:
                    continue
                except CorruptFile as error:
                    _log.warning("%s", error)
                    unread += 1
                    continue
                if self.record_name(transaction.database, transaction.label) == info.name:
                    transactions.append(transaction)
        return transactions, unread

    def forget(self, transaction: Transaction) -> None:
        """Delete the record of a transaction, and its list of bad rows."""
        self.store.delete([self.record_name(transaction.database, transaction.label)])
        self.remove_problems(transaction)

    def remove_problems(self, transaction: Transaction) -> None:
        """Delete what is told of the bad rows of a transaction."""
        if transaction.error_log:
            logs = (transaction.error_log, rejected_name(transaction.error_log))
            with suppress(StorageError):
                self.store.delete([self.error_name(transaction.database, each) for each in logs])

    @staticmethod
    def error_name(database: str, name: str) -> str:
        """Return the name of a list of bad rows."""
        return f"{FOLDER}/{database}/errors/{name}"

    def remove_rows(self, transaction: Transaction) -> None:
        """Delete the rows of a transaction; what cannot be deleted now goes at the next start."""
        names = [part.name for load in transaction.tables.values() for part in load.parts]
        if not names:
            return
        try:
            self.store.delete(names)
        except StorageError as error:
            _log.warning("rows of the transaction %s stay for now: %s", transaction.label, error)

    def remove_unnamed_rows(self, part_names: frozenset[str]) -> int:
        """Delete rows that no record names: those of servers that have died. Return how many objects there were."""
        names = [
            info.name
            for directory in self.store.list_directories(FOLDER)
            for info in self.store.list(f"{directory}/rows", recursive=False)
            if info.name not in part_names
        ]
        if names:
            self.store.delete(names)
        return len(names)


#: Rows that are more become an object.
PART_BYTES: Final = 8 << 20
#: So many batches are joined to one, since each costs as much memory as a small page.
_MOST_BATCHES: Final = 512


class StagedEnd(NamedTuple):
    """Where the rows of a place end: stored parts, rows in memory and their bytes."""

    parts: int
    held: tuple[pa.Table, ...]
    held_bytes: int


class Staged:
    """The rows of one table in one transaction.

    Args:
        store: of the journal.
        database: of the table.
        transaction: number of the transaction.
        load: where the parts are noted.
        numbers: yields numbers of objects, each once in the transaction.
        durable: objects are on the disk when they are written.
    """

    def __init__(
        self,
        store: ObjectStore,
        database: str,
        transaction: int,
        load: TableLoad,
        numbers: Iterator[int],
        *,
        durable: bool = True,
    ) -> None:
        self._store, self._load, self._numbers, self._durable = store, load, numbers, durable
        self._prefix = f"{FOLDER}/{database}/rows/{transaction}"
        self._held: list[pa.Table] = []
        self.held_bytes = 0

    def add(self, rows: pa.Table) -> None:
        """Take rows.

        Raises:
            StorageError: they could not be stored; :meth:`cut` drops them.
        """
        if rows.num_rows:
            self._held.append(rows)
            self.held_bytes += rows.nbytes
        if self.held_bytes >= PART_BYTES:
            self.flush()
        elif len(self._held) >= _MOST_BATCHES:
            self._held = [_joined(self._held)]

    def mark(self) -> StagedEnd:
        """Return a mark of the present rows, to which :meth:`cut` goes back."""
        return StagedEnd(len(self._load.parts), tuple(self._held), self.held_bytes)

    def cut(self, mark: StagedEnd) -> list[str]:
        """Drop the rows that came after a mark; return the names of objects that are not needed any more.

        Rows of earlier loads that were stored together with later ones are held again.
        """
        names = [part.name for part in self._load.parts[mark.parts :]]
        del self._load.parts[mark.parts :]
        self._held, self.held_bytes = list(mark.held), mark.held_bytes
        return names

    def drop_held(self) -> None:
        """Drop the rows that are in memory."""
        self._held, self.held_bytes = [], 0

    def take(self, other: Staged) -> None:
        """Append the rows of another transaction.

        Raises:
            StorageError: they could not be stored; :meth:`cut` drops them.
        """
        if other._load.parts:
            self.flush()  # what is here comes first
            self._load.parts += other._load.parts
        for table in other._held:
            self.add(table)
        other._held, other.held_bytes = [], 0

    def flush(self) -> None:
        """Store what is held.

        Raises:
            StorageError: it stays in memory.
        """
        if not self._held:
            return
        rows = _joined(self._held)
        sink = pa.BufferOutputStream()
        # Unpacked: LZ4 takes more of the processor's time than it saves of the disk's.
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=1 << 17)
        data = sink.getvalue()
        name = f"{self._prefix}-{next(self._numbers)}.arrow"
        outcome = self._store.put_if_absent(name, memoryview(data), durable=self._durable)
        if outcome is not PutOutcome.DONE and self._store.read(name, data.size + 1) != data.to_pybytes():
            raise StorageError(f"{name} could not be written", transient=True)
        digest = part_checksum(memoryview(data))
        self._load.parts.append(Part(name, rows.num_rows, data.size, digest))
        self._held, self.held_bytes = [], 0


def part_checksum(data: bytes | memoryview, like: str = "") -> str:
    """Return the checksum of a part.

    CRC-32, as in the pages of Parquet: a tenth of the time of a cryptographic digest, and nobody is kept from writing a part.

    Args:
        data: of the part.
        like: as the part's record has it: those that an earlier version has prepared have a BLAKE2b.
    """
    return hashlib.blake2b(data, digest_size=16).hexdigest() if len(like) == 32 else f"{zlib.crc32(data):08x}"


def _joined(tables: list[pa.Table]) -> pa.Table:
    if len(tables) == 1:
        return tables[0]
    names = {name for table in tables for name in table.column_names}
    same = all(len(table.column_names) == len(names) for table in tables)
    joined = pa.concat_tables(tables) if same else pa.concat_tables(tables, promote_options="default")
    return joined.combine_chunks()


def read_part(store: ObjectStore, part: Part) -> pa.Table:
    """Return the rows of an object.

    Raises:
        CorruptFile: its bytes are not those that were written.
        ObjectNotFound: it is gone.
    """
    data = store.read(part.name, part.bytes)
    if len(data) != part.bytes or part_checksum(data, like=part.digest) != part.digest:
        raise CorruptFile(f"{part.name} is damaged: its bytes are not those that were staged")
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            rows = reader.read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(f"{part.name} is damaged: {str(error)[:200]}") from None
    if rows.num_rows != part.rows:
        raise CorruptFile(f"{part.name} is damaged: it has {rows.num_rows} rows, not {part.rows}")
    return rows


class StagedParts:
    """The stored rows of one table in one transaction, object by object; they can be iterated more than once.

    Args:
        store: of the journal.
        load: with the parts.
    """

    def __init__(self, store: ObjectStore, load: TableLoad) -> None:
        self._store, self._load = store, load

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return sum(part.rows for part in self._load.parts)

    @property
    def num_bytes(self) -> int:
        """How many bytes they take, packed."""
        return sum(part.bytes for part in self._load.parts)

    def __iter__(self) -> Iterator[pa.Table]:
        for part in self._load.parts:
            yield read_part(self._store, part)

    def verify(self) -> None:
        """Look whether all parts are there and whole.

        Raises:
            CorruptFile: one is not.
            ObjectNotFound: one is gone.
        """
        for part in self._load.parts:
            read_part(self._store, part)


class LoadState(enum.Enum):
    """The state of a transaction, by the names that clients read.

    UNKNOWN: there is none of that label. PREPARE: it is open and takes rows. PREPARED: its rows are durable and wait for a commit.
    COMMITTED: its first table has its rows and others not yet. VISIBLE: its rows are in its tables. ABORTED: its rows are gone.
    """

    UNKNOWN = "UNKNOWN"
    PREPARE = "PREPARE"
    PREPARED = "PREPARED"
    COMMITTED = "COMMITTED"
    VISIBLE = "VISIBLE"
    ABORTED = "ABORTED"


class Operation(enum.Enum):
    """What may be done to a transaction; TIMEOUT comes from its clock."""

    BEGIN = "begin"
    LOAD = "load"
    PREPARE = "prepare"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    TIMEOUT = "timeout"


class Answer(enum.Enum):
    """What becomes of an operation: it is done, was done before, or is refused for a reason."""

    DO = "do"
    AGAIN = "again"
    DUPLICATE = "duplicate"
    MISSING = "missing"
    REFUSED = "refused"


class NextState(NamedTuple):
    """A verdict, and the state afterwards."""

    verdict: Answer
    state: LoadState


_S, _O, _V = LoadState, Operation, Answer


def _row(state: LoadState, **steps: NextState) -> dict[Operation, NextState]:
    """Return the steps of a state; what is not named is refused and changes nothing."""
    return {each: steps.get(each.value, NextState(_V.REFUSED, state)) for each in Operation}


#: For every state and operation what happens.
TRANSITIONS: Final[dict[LoadState, dict[Operation, NextState]]] = {
    _S.UNKNOWN: {
        each: NextState(_V.DO, _S.PREPARE) if each is _O.BEGIN else NextState(_V.MISSING, _S.UNKNOWN)
        for each in Operation
    },
    _S.PREPARE: _row(
        _S.PREPARE,
        begin=NextState(_V.DUPLICATE, _S.PREPARE),
        load=NextState(_V.DO, _S.PREPARE),
        prepare=NextState(_V.DO, _S.PREPARED),
        commit=NextState(_V.DO, _S.VISIBLE),
        rollback=NextState(_V.DO, _S.ABORTED),
        timeout=NextState(_V.DO, _S.ABORTED),
    ),
    _S.PREPARED: _row(
        _S.PREPARED,
        begin=NextState(_V.DUPLICATE, _S.PREPARED),
        prepare=NextState(_V.AGAIN, _S.PREPARED),
        commit=NextState(_V.DO, _S.VISIBLE),
        rollback=NextState(_V.DO, _S.ABORTED),
        timeout=NextState(_V.DO, _S.ABORTED),
    ),
    # One of its tables has its rows: all that is left is to give the others theirs.
    _S.COMMITTED: _row(_S.COMMITTED, begin=NextState(_V.DUPLICATE, _S.COMMITTED), commit=NextState(_V.DO, _S.VISIBLE)),
    _S.VISIBLE: _row(_S.VISIBLE, begin=NextState(_V.DUPLICATE, _S.VISIBLE), commit=NextState(_V.AGAIN, _S.VISIBLE)),
    _S.ABORTED: _row(_S.ABORTED, begin=NextState(_V.DO, _S.PREPARE), rollback=NextState(_V.AGAIN, _S.ABORTED)),
}


def transition(state: LoadState, operation: Operation) -> NextState:
    """Return what happens to a transaction.

    Example:
        >>> transition(LoadState.PREPARED, Operation.COMMIT)
        NextState(verdict=<Answer.DO: 'do'>, state=<LoadState.VISIBLE: 'VISIBLE'>)
    """
    return TRANSITIONS[state][operation]


class Times(NamedTuple):
    """The times of a transaction, in epoch milliseconds, and its limits in seconds.

    Attributes:
        begun: when it began.
        used: when its last load ended.
        prepared: when it was prepared; 0: it is not.
        timeout: from its begin until it is prepared.
        prepared_timeout: from then until it is committed.
        idle_timeout: without a load; 0: for as long as it likes.
    """

    begun: int
    used: int
    prepared: int = 0
    timeout: int = 600
    prepared_timeout: int = 86_400
    idle_timeout: int = 0

    def seen_at(self, now: int) -> Times:
        """Return the times by a clock that may have stepped back: nothing has happened later than now."""
        return self._replace(begun=min(self.begun, now), used=min(self.used, now), prepared=min(self.prepared, now))


def expiry(state: LoadState, times: Times, now: int) -> str | None:
    """Return why the time of a transaction is over; None: it is not.

    Args:
        state: of the transaction.
        times: of it.
        now: epoch milliseconds.

    Example:
        >>> expiry(LoadState.PREPARE, Times(begun=0, used=0, timeout=10), 10_001)
        'timeout: it was not prepared within 10 seconds'
        >>> expiry(LoadState.PREPARED, Times(begun=0, used=0, prepared=9_000, timeout=10), 10_001) is None
        True
    """
    if state is LoadState.PREPARED:
        if now - times.prepared > times.prepared_timeout * 1000:
            return f"prepared timeout: it was not committed within {times.prepared_timeout} seconds"
        return None
    if state is not LoadState.PREPARE:
        return None
    if now - times.begun > times.timeout * 1000:
        return f"timeout: it was not prepared within {times.timeout} seconds"
    if times.idle_timeout and now - times.used > times.idle_timeout * 1000:
        return f"idle timeout: nothing was loaded for {times.idle_timeout} seconds"
    return None
