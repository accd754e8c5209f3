"""What a server of loads answers: a function from request to reply, whichever face brings the requests (effects)."""

from __future__ import annotations

import json
import logging
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import field
from threading import Condition, Lock, Thread
from time import perf_counter
from typing import Final

from lakefmt._core.arguments import shown
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.loads.bodies import BodyBroken, BodyTooLarge, Request
from lakefmt._core.loads.commit import LoadTable
from lakefmt._core.loads.journal import Answer, LoadState, NextState, Operation, transition
from lakefmt._core.loads.protocol import (
    MAX_TIMEOUT,
    BeginParameters,
    DuplicateLabel,
    LoadCounts,
    LoadOptions,
    LoadParameters,
    Refusal,
    Reply,
    UnknownTransaction,
    check_folder_name,
    check_label,
    is_known_header,
    load_state_body,
    openapi_document,
    outcome_body,
    parse_begin,
    parse_load,
    plain_body,
    seconds_header,
)
from lakefmt._core.loads.shape import Target
from lakefmt._core.loads.transactions import Live, Loaded, Transactions
from lakefmt._core.producers.stream.committing import commit_options
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.local import LocalStore
from lakefmt._core.storage.messages import printable_url
from lakefmt._core.storage.open import is_missing_folder, local_path, open_store
from lakefmt._core.table import Table, open_table
from lakefmt._core.values import Clock, SystemClock
from lakefmt.errors import (
    ConflictError,
    InvalidInputError,
    LakefmtError,
    NotFoundError,
    ObjectNotFound,
    StateError,
    StorageError,
)

__all__ = [
    "LoadService",
    "MergeCommits",
]


_MOST_MS: Final = 600_000
Take = Callable[[Request, Live, str, LoadParameters], Loaded]


def _labelled(begin_parameters: BeginParameters, label_prefix: str) -> BeginParameters:
    """Return a begin with a label of the server's own."""
    return replace(begin_parameters, label=f"{label_prefix}_{secrets.token_hex(16)}")


class _Group:
    """Loads that are committed together."""

    def __init__(self, live: Live, ends: float) -> None:
        self.live, self.ends = live, ends
        self.closed = False
        self.outcome: dict[str, object] | None = None


class MergeCommits:
    """The groups that are open.

    Args:
        transactions: of the server.
        take: takes the rows of a request into a transaction.
        interval_ms: for how long others are waited for, where a load says nothing.
    """

    def __init__(self, transactions: Transactions, take: Take, interval_ms: int) -> None:
        self._transactions, self._take, self._interval_ms = transactions, take, interval_ms
        self._groups: dict[tuple[str, str, LoadParameters], _Group] = {}
        self._changed = Condition()
        #: Those that commit a group whose clients have their reply.
        self._finishing: set[Thread] = set()

    def end(self, seconds: float) -> None:
        """Commit what is gathered now: a client may have its reply already.

        Args:
            seconds: for which commits are waited for.
        """
        with self._changed:
            for group in self._groups.values():
                group.ends = 0
            self._changed.notify_all()
            finishing = list(self._finishing)
        for thread in finishing:
            thread.join(seconds)

    def load(self, request: Request, begin_parameters: BeginParameters, parameters: LoadParameters) -> Reply:
        """Take a load into the group of its kind; reply when that is committed, or at once if the client asks for it.

        Raises:
            Refusal: its rows are bad; the group is as it was.
        """
        if parameters.skip_header:
            raise Refusal("skip_header and enable_merge_commit do not go together")
        headers = request.headers
        milliseconds = headers.get("merge_commit_interval_ms", "")
        if milliseconds and not (
            milliseconds.isascii()
            and milliseconds.isdigit()
            and len(milliseconds) < 10
            and int(milliseconds) <= _MOST_MS
        ):
            raise Refusal("Invalid merge_commit_interval_ms")
        interval = int(milliseconds or self._interval_ms)
        key = (begin_parameters.database, begin_parameters.table, parameters)
        transactions = self._transactions
        alone = transactions.begin(_labelled(begin_parameters, "merge_part"), request.user.name, stored=False)
        try:
            with transactions.working(alone, waits=False):
                loaded = self._take(request, alone, begin_parameters.table, parameters)
                transactions.reject_new_keys(alone)
                if alone.record.counts.exceeds(parameters.max_filter_ratio):
                    raise Refusal("too many filtered rows")
            with self._changed:
                group = self._groups.get(key)
                leads = group is None
                if group is None:
                    live = transactions.begin(
                        _labelled(begin_parameters, "merge_commit"), request.user.name, stored=False
                    )
                    group = self._groups[key] = _Group(live, transactions.now() + interval)
                transactions.join(group.live, alone)
        except BaseException:
            with transactions.working(alone, waits=True):
                transactions.discard(alone)
            raise
        return self._reply(request, key, group, loaded, leads=leads)

    def _reply(
        self, request: Request, key: tuple[str, str, LoadParameters], group: _Group, loaded: Loaded, *, leads: bool
    ) -> Reply:
        record = group.live.record
        milliseconds = max(0, int(group.ends - self._transactions.now()))
        if request.headers.get("merge_commit_async", "").lower() == "true":
            if leads:
                thread = Thread(target=self._finish, args=(key, group), name="lakefmt-merge-commit", daemon=True)
                with self._changed:
                    self._finishing = {each for each in self._finishing if each.is_alive()} | {thread}
                    thread.start()
            return Reply(
                outcome_body("OK", "", record.label, record.id, LeftMergeTimeMs=milliseconds, **loaded.counts.body())
            )
        if leads:
            self._finish(key, group)
        with self._changed:
            self._changed.wait_for(lambda: group.outcome is not None)
        return Reply({**(group.outcome or {}), **loaded.counts.body(), "LeftMergeTimeMs": milliseconds})

    def _finish(self, key: tuple[str, str, LoadParameters], group: _Group) -> None:
        """Wait until the time of a group is over, and commit it."""
        transactions, live = self._transactions, group.live
        with self._changed:
            while not group.closed and (milliseconds := group.ends - transactions.now()) > 0:
                self._changed.wait(milliseconds / 1000)
            group.closed = True
            self._groups.pop(key, None)
        record = live.record
        status, message = "INTERNAL_ERROR", "the commit failed"
        try:
            with transactions.working(live, waits=True):
                transactions.commit(live, final=True)
            status, message = "OK", ""
        except LakefmtError as error:
            status, message = "FAILED", str(error)
        finally:  # whatever happened: the others wait for it
            outcome = outcome_body(status, message + live.doubt, record.label, record.id)
            with self._changed:
                group.outcome = outcome
                self._changed.notify_all()


_log = logging.getLogger("lakefmt.loads")
_audit = logging.getLogger("lakefmt.loads.audit")
_TRANSACTION = re.compile(r"/api/transaction/([\w-]{1,40})")
_OF_DATABASE = re.compile(r"/api/([^/]+)/(get_load_state|_load_state)")
_CANCEL = re.compile(r"/api/([^/]+)/([^/]+)/_cancel")
_PLAIN = re.compile(r"/api/([^/]+)/([^/]+)/_stream_load")
_NODES = re.compile(r"/api/([^/]+)/([^/]+)/_stream_load_meta")
_ERROR_LOG = re.compile(r"error_log_[0-9a-f]{16}_[0-9a-f]{16}")
_MAX_ERROR_LOG: Final = 16 << 20
#: Space that stays free on a local disk.
_SPARE_BYTES: Final = 64 << 20
#: Settings of commits that nobody names: a server has other requests beside them.
_SETTINGS: Final[Mapping[str, object]] = {"lakefmt.write.window.bytes": 32 << 20}
_OPERATIONS: Final = {"prepare": Operation.PREPARE, "commit": Operation.COMMIT, "rollback": Operation.ROLLBACK}


@dataclass(slots=True)
class Metrics:
    """Counters of a server."""

    requests: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=lambda: {"loaded": 0, "filtered": 0, "unselected": 0})
    lock: Lock = field(default_factory=Lock)

    def count(self, operation: str, status: str, seconds: float) -> None:
        """Count a reply."""
        with self.lock:
            key = f'operation="{operation}",status="{status}"'
            self.requests[key] = self.requests.get(key, 0) + 1
            self.seconds[operation] = self.seconds.get(operation, 0.0) + seconds

    def add_rows(self, counts: LoadCounts) -> None:
        """Count rows."""
        with self.lock:
            self.rows["loaded"] += counts.loaded
            self.rows["filtered"] += counts.filtered
            self.rows["unselected"] += counts.unselected


class LoadService:
    """Answers the requests of clients.

    Args:
        base_path: tables lie at ``<base path>/<database>/<table>``.
        options: of the server.
        storage_options: credentials of the store.
        clock: tells the time.
        open_store: opens the store of the journal.
        open_table: opens a table by its path.

    Raises:
        InvalidInputError: the base path is none.
    """

    def __init__(
        self,
        base_path: str,
        options: LoadOptions | None = None,
        *,
        storage_options: Mapping[str, object] | None = None,
        clock: Clock | None = None,
        store: ObjectStore | None = None,
        open_at: Callable[[str], Table] | None = None,
    ) -> None:
        self.options = options or LoadOptions()
        self._base_path = base_path.rstrip("/") or "/"
        self._storage_options = storage_options
        self._open_at = open_at or self._open_with_settings
        if open_at is None and is_missing_folder(open_store(base_path, storage_options)):
            raise InvalidInputError(f"{base_path} is not there: name the folder whose tables are loaded into")
        store = store or open_store(self.options.journal or base_path, storage_options)
        self._disk = local_path(store.url) if isinstance(store, LocalStore) else None
        # A journal of its own does not move with the tables.
        apart = printable_url(open_store(base_path, storage_options).url) if self.options.journal else ""
        self.transactions = Transactions(store, self.options, self._open, clock or SystemClock(), apart)
        self.metrics = Metrics()
        self._merges = MergeCommits(self.transactions, self.take, self.options.merge_interval_ms)
        self._unknown_headers: set[str] = set()
        self.stopping = False

    # --- tables ------------------------------------------------------------------------------------------------------------

    def _open(self, database: str, name: str) -> LoadTable:
        table_path = self.options.tables.get(f"{database}.{name}")
        path = (
            table_path
            or f"{self._base_path}/{check_folder_name(database, 'database')}/{check_folder_name(name, 'table')}"
        )
        prefix = f"{database}.{name}."
        lengths = {
            key.removeprefix(prefix): most for key, most in self.options.lengths.items() if key.startswith(prefix)
        }
        return LoadTable(self._open_at(path), lengths)

    def _open_with_settings(self, path: str) -> Table:
        table = open_table(path, storage_options=self._storage_options)
        settings = commit_options(table.client, {**_SETTINGS, **self.options.settings})
        return open_table(path, storage_options=self._storage_options, options=settings)

    def target(self, database: str, name: str) -> Target:
        """Return what rows of a table are made for.

        Raises:
            Refusal: there is no such table.
        """
        table = self.transactions.table(database, name)
        return table.target(table.at())

    # --- life --------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the lease, and go on with what an earlier server left.

        Raises:
            StateError: another server has the lease.
        """
        self.transactions.start()

    def end(self, seconds: float = 60.0) -> None:
        """Refuse new transactions, and commit what small loads have gathered.

        Args:
            seconds: for which commits are waited for.
        """
        self.stopping = True
        self._merges.end(seconds)

    def stop(self) -> None:
        """Refuse new transactions, and let another server have the lease."""
        self.end()
        self.transactions.stop()

    def sweep(self) -> None:
        """End transactions that timed out, and forget old labels."""
        self.transactions.sweep()

    # --- requests ----------------------------------------------------------------------------------------------------------

    def handle(self, request: Request) -> Reply:
        """Return the reply to a request.

        Raises:
            BodyBroken: the connection ended in the middle of the body: nobody waits for a reply.
        """
        begun = perf_counter()
        self._tell_unknown_headers(request)
        operation, answer = self._route(request)
        reply = answer(request)
        status = str(reply.body.get("Status", reply.status)) if isinstance(reply.body, Mapping) else str(reply.status)
        self.metrics.count(operation, status, perf_counter() - begun)
        if request.method != "GET":
            _audit.info(
                "user=%s operation=%s db=%s table=%s label=%s status=%s",
                *(shown(each) for each in (request.user.name, operation)),
                *(shown(request.headers.get(each, "")) for each in ("db", "table", "label")),
                status,
            )
        return reply

    def _tell_unknown_headers(self, request: Request) -> None:
        """Tell the log of headers that mean nothing, each once: one may be misspelt."""
        for name in request.headers:
            if not is_known_header(name) and name not in self._unknown_headers and len(self._unknown_headers) < 1_000:
                self._unknown_headers.add(name)
                _log.info("header %s means nothing here", shown(name))

    def _route(self, request: Request) -> tuple[str, Callable[[Request], Reply]]:
        path, method = request.path, request.method
        match = _TRANSACTION.fullmatch(path)
        if match is not None and match[1] == "list" and method == "GET":
            return "list", self._list
        if match is not None and method in ("POST", "PUT"):
            operations = {"begin": self._begin, "load": self._load, **dict.fromkeys(_OPERATIONS, self._end)}
            return (match[1], operations[match[1]]) if match[1] in operations else ("unknown", self._unknown_operation)
        if _PLAIN.fullmatch(path) and method in ("PUT", "POST"):
            return "stream_load", self._plain
        if _CANCEL.fullmatch(path) and method == "POST":
            return "cancel", self._cancel
        reading = {
            "/api/health": self._health,
            "/api/openapi.json": lambda request: Reply(openapi_document()),
            "/metrics": self._metrics,
            "/api/_load_error_log": self._error_log,
        }
        if method in ("GET", "HEAD"):
            if path in reading:
                return path.rpartition("/")[2], reading[path]
            if _OF_DATABASE.fullmatch(path):
                return "state", self._state
            if _NODES.fullmatch(path):
                return "nodes", self._nodes
        return "unknown", lambda request: Reply({"Status": "FAILED", "Message": "no such page"}, 404, close=True)

    def _unknown_operation(self, request: Request) -> Reply:
        name = request.path.rpartition("/")[2]
        return Reply(outcome_body("FAILED", f"Unknown transaction operation: {name}"), close=True)

    # --- operations of a transaction -----------------------------------------------------------------------------------------

    def _begin(self, request: Request) -> Reply:
        def begin() -> Reply:
            self._check_running()
            begin_parameters = parse_begin(request.headers, self.options.timeout)
            self._check_grant(request, begin_parameters.database, begin_parameters.table)
            live = self.transactions.begin(begin_parameters, request.user.name)
            more = {"BeginTxnTimeMs": live.record.times.begun}
            return Reply(outcome_body("OK", "", live.record.label, live.record.id, **more))

        return self._guarded(request, None, begin)

    def _check_running(self) -> None:
        if self.stopping:
            raise Refusal("the server is stopping", status="INTERNAL_ERROR")

    def _check_grant(self, request: Request, database: str, table: str) -> None:
        if table and not request.user.may_load(database, table):
            raise Refusal(f"Access denied; you need the INSERT privilege on {database}.{table} for this operation")

    def _find(self, request: Request) -> tuple[Live | None, str]:
        """Return the transaction that a request names, and its label.

        Raises:
            Refusal: the request names no label or no database, or is not for a user of its tables.
        """
        label = check_label(request.headers.get("label", ""))
        database = request.headers.get("db", "")
        if not database:
            raise Refusal("No database selected.")
        live = self.transactions.find(check_folder_name(database, "database"), label)
        if live is not None:
            for table in list(live.record.tables) or [live.record.table]:
                self._check_grant(request, database, table)
        return live, label

    def _step(self, live: Live, operation: Operation) -> NextState:
        """Return what an operation does to a transaction.

        Raises:
            Refusal: it may not follow.
        """
        record = live.record
        step = transition(record.state, operation)
        if step.verdict is not Answer.REFUSED:
            return step
        if operation is Operation.COMMIT:
            raise Refusal(f"Can not commit {record.state.value} transaction {record.id}, reason: {record.reason}")
        if operation is Operation.ROLLBACK:
            suffix = f": {record.reason}" if record.reason else ""
            raise Refusal(f"Can not abort {record.state.value} transaction {record.id}{suffix}")
        reason = f", {record.reason}" if record.reason else ""
        raise Refusal(f"Transcation State Invalid: transaction {record.id} is {record.state.value}{reason}")

    def _unknown(self, operation: Operation, label: str, database: str) -> Refusal:
        spelt = {
            Operation.LOAD: "TXN_NOT_EXISTS",
            Operation.COMMIT: f"Transcation Not Exist: label {label} in db {database}",
        }
        message = spelt.get(operation, "Transcation Not Exist")
        keeps = self.options.guide_replies or operation in (Operation.COMMIT, Operation.ROLLBACK)
        return UnknownTransaction(message, status="FAILED" if keeps else "TXN_NOT_EXISTS")

    def _load(self, request: Request) -> Reply:
        lives: list[Live] = []

        def load() -> Reply:
            begun = perf_counter()
            live, label = self._find(request)
            database, table = request.headers["db"], request.headers.get("table", "")
            if live is None:
                raise self._unknown(Operation.LOAD, label, database)
            self._step(live, Operation.LOAD)
            table = table or live.record.table
            if not table or (live.record.table and table != live.record.table):
                raise Refusal(f"table {shown(table)} is not that of the transaction, {shown(live.record.table)}")
            self._check_grant(request, database, check_folder_name(table, "table"))
            sequence = self._sequence(request)
            with self.transactions.working(live, waits=False):
                self._step(live, Operation.LOAD)
                if sequence is not None and (table, sequence) in live.replies:
                    return Reply(live.replies[table, sequence], close=True)
                lives.append(live)
                loaded = self.take(request, live, table, parse_load(request.headers))
                self.transactions.expire(live)  # it may have taken too long
                self._step(live, Operation.LOAD)
                body = self._loaded_body(request, live, loaded, begun)
                if sequence is not None:
                    live.replies[table, sequence] = body
                return Reply(body)

        return self._guarded(request, lives, load)

    def _sequence(self, request: Request) -> int | None:
        value = request.headers.get("load_seq", "")
        if value and not (value.isascii() and value.isdigit() and len(value) < 10):
            raise Refusal(f"Invalid load_seq {shown(value)}")
        return int(value) if value else None

    def take(self, request: Request, live: Live, table: str, parameters: LoadParameters) -> Loaded:
        """Take the rows of a request's body.

        Raises:
            Refusal: they cannot be taken.
            BodyBroken: the connection ended.
        """
        most = self.options.max_body_bytes
        if request.length is not None and request.length > most:
            raise BodyTooLarge(f"the body has {request.length} bytes, more than {most}", rolls_back=True)
        if self._disk is not None:
            free = shutil.disk_usage(self._disk).free
            if free < (request.length or 0) + _SPARE_BYTES:
                raise Refusal("there is no space left for the rows", status="INTERNAL_ERROR")
        loaded = self.transactions.load(live, table, parameters, request.body)
        self.metrics.add_rows(loaded.counts)
        return loaded

    def _loaded_body(self, request: Request, live: Live, loaded: Loaded, begun: float) -> dict[str, object]:
        spent = int((perf_counter() - begun) * 1000)
        names = ("LoadTimeMs", "StreamLoadPutTimeMs", "ReceivedDataTimeMs")
        more = {
            "Seq": loaded.number,
            **loaded.counts.body(),
            **dict.fromkeys(names, spent),
            "StreamLoadPlanTimeMs": loaded.plan_ms,
        }
        return outcome_body(
            "OK", "", live.record.label, live.record.id, **more, **self._lists_of_bad_rows(request, live)
        )

    def _lists_of_bad_rows(self, request: Request, live: Live) -> dict[str, object]:
        name = live.record.error_log
        url = f"{request.address}/api/_load_error_log?file={name}" if name else ""
        return {"ErrorURL": url, "RejectedRecordPath": live.rejected_name}

    def _end(self, request: Request) -> Reply:
        """Prepare, commit or roll back."""
        operation = _OPERATIONS[request.path.rpartition("/")[2]]
        lives: list[Live] = []

        def end() -> Reply:
            live, label = self._find(request)
            if live is None:
                return self._end_unknown(request, operation, label)
            self._step(live, operation)
            self._check_table(request, live)
            with self.transactions.working(live, waits=True):
                step = self._step(live, operation)
                lives.append(live)
                return self._ended(request, live, operation, again=step.verdict is Answer.AGAIN)

        return self._guarded(request, lives, end)

    def _check_table(self, request: Request, live: Live) -> None:
        table = request.headers.get("table", "")
        if table and live.record.table and table != live.record.table:
            raise Refusal(f"table {shown(table)} is not that of the transaction, {shown(live.record.table)}")

    def _end_unknown(self, request: Request, operation: Operation, label: str) -> Reply:
        """Answer for a label whose record is forgotten: the commits of tables know it longer."""
        database = request.headers["db"]
        table = request.headers.get("table", "")
        self._check_grant(request, database, table)
        state, _ = self._state_of(database, label, check_folder_name(table, "table") if table else "")
        if state is LoadState.VISIBLE and operation is Operation.COMMIT:
            return Reply(outcome_body("OK", _ALREADY.format("", label), label))
        if state is LoadState.VISIBLE and operation is Operation.ROLLBACK:
            raise Refusal("Can not abort VISIBLE transaction")
        raise self._unknown(operation, label, database)

    def _ended(self, request: Request, live: Live, operation: Operation, *, again: bool) -> Reply:
        record, begun, message = live.record, perf_counter(), ""
        if operation is Operation.ROLLBACK:
            if not again and not self.transactions.abort(live, "rolled back by its client"):
                raise Refusal(f"Can not abort {record.state.value} transaction {record.id}")
            message = f"Transaction {record.id} has already aborted, label is {record.label}" if again else ""
            return Reply(outcome_body("OK", message, record.label, record.id))
        if operation is Operation.PREPARE and not again:
            timeout = seconds_header(
                request.headers, "prepared_timeout", self.options.prepared_timeout, 10 * MAX_TIMEOUT
            )
            self.transactions.prepare(live, timeout)
        elif operation is Operation.COMMIT:
            if not again:
                self.transactions.commit(live)
            message = _ALREADY.format(f"{record.id} ", record.label) if again else ""
            message += f" ({record.reason})" if record.reason else ""
        spent = int((perf_counter() - begun) * 1000)
        names = ("LoadTimeMs", "StreamLoadPutTimeMs", "WriteDataTimeMs", "CommitAndPublishTimeMs")
        times = {**dict.fromkeys(names, spent), "StreamLoadPlanTimeMs": 0, "ReceivedDataTimeMs": 0}
        more = {**record.counts.body(), **times, **self._lists_of_bad_rows(request, live)}
        return Reply(outcome_body("OK", message, record.label, record.id, **more))

    # --- what goes wrong ---------------------------------------------------------------------------------------------------

    def _guarded(self, request: Request, lives: list[Live] | None, work: Callable[[], Reply]) -> Reply:
        """Return the reply of a function, or that of its error.

        Args:
            request: the request.
            lives: the transaction, once the request worked on it: an error that ends a transaction ends this one.
            work: answers the request.
        """
        label = request.headers.get("label", "")
        try:
            return work()
        except DuplicateLabel as error:
            body = outcome_body(error.status, str(error), label, error.transaction_id, ExistingJobStatus=error.existing)
            return Reply(body, close=True)
        except Refusal as error:
            status, message, rolls_back = error.status, str(error), error.rolls_back
        except BodyBroken:
            raise
        except (ConflictError, StorageError, OSError, MemoryError, ObjectNotFound) as error:
            status, message, rolls_back = "INTERNAL_ERROR", self._safe_message(error), False
        except StateError as error:
            status, message, rolls_back = "INTERNAL_ERROR", str(error), False
        except LakefmtError as error:
            status, message, rolls_back = "FAILED", self._safe_message(error), True
        except Exception as error:  # noqa: BLE001 - a client gets a reply, whatever it is
            _log.exception("a request failed")
            status, message, rolls_back = "INTERNAL_ERROR", f"internal error: {type(error).__name__}", False
        live = lives[0] if lives else None
        if status == "INTERNAL_ERROR" and self.options.rollback_on_internal_error:
            rolls_back = True
        more: dict[str, object] = {}
        if live is not None:
            more = {**live.record.counts.body(), **self._lists_of_bad_rows(request, live)}
            message += live.doubt
            if not live.in_doubt and rolls_back and live.record.state is LoadState.PREPARE:
                self._abort_after(live, message)
        return Reply(outcome_body(status, message, label, None if live is None else live.record.id, **more), close=True)

    def _abort_after(self, live: Live, message: str) -> None:
        with self.transactions.working(live, waits=True):
            if live.record.state is LoadState.PREPARE:
                self.transactions.abort(live, f"{message}")

    def _safe_message(self, error: BaseException) -> str:
        """Return the message of an error; of one about rows only its kind, since it may have a value."""
        if isinstance(error, InvalidInputError) and not self.options.show_values:
            return f"{error.kind}: the rows cannot be stored"
        return str(error) or type(error).__name__

    # --- load in one request -----------------------------------------------------------------------------------------------

    def _plain(self, request: Request) -> Reply:
        match = _PLAIN.fullmatch(request.path)
        assert match is not None  # noqa: S101  (the route has looked)
        names = {"db": match[1], "table": match[2]}
        label = request.headers.get("label") or f"lakefmt-{secrets.token_hex(16)}"
        headers = {**request.headers, **names, "label": label}
        inner = Request(
            request.method,
            request.path,
            request.query,
            headers,
            request.body,
            request.user,
            request.length,
            request.address,
        )
        lives: list[Live] = []

        def load() -> Reply:
            self._check_running()
            begin_parameters = parse_begin({**headers, "transaction_type": ""}, self.options.timeout)
            self._check_grant(request, begin_parameters.database, begin_parameters.table)
            parameters = parse_load(headers)
            if headers.get("enable_merge_commit", "").lower() == "true":
                return self._merges.load(inner, begin_parameters, parameters)
            return self.load_at_once(inner, begin_parameters, parameters, lives)

        reply = self._guarded(inner, lives, load)
        for live in lives:
            if live.record.state is LoadState.PREPARE and not live.in_doubt:
                self._abort_after(live, str(reply.body["Message"]) if isinstance(reply.body, Mapping) else "")
        body = plain_body(reply.body) if isinstance(reply.body, Mapping) else reply.body
        return Reply(body, reply.status, reply.headers, reply.close)

    def load_at_once(
        self, request: Request, begin_parameters: BeginParameters, parameters: LoadParameters, lives: list[Live]
    ) -> Reply:
        """Begin, load and commit."""
        begun = perf_counter()
        live = self.transactions.begin(begin_parameters, request.user.name, stored=False)
        lives.append(live)
        try:
            with self.transactions.working(live, waits=True):
                loaded = self.take(request, live, begin_parameters.table, parameters)
                self.transactions.commit(live, final=True)
        except BodyBroken:
            with self.transactions.working(live, waits=True):
                self.transactions.abort(live, "the connection of its client broke")
            raise
        body = self._loaded_body(request, live, loaded, begun)
        body.pop("Seq")
        return Reply({**body, "BeginTxnTimeMs": 0, "WriteDataTimeMs": 0, "CommitAndPublishTimeMs": 0})

    # --- states and lists --------------------------------------------------------------------------------------------------

    def _state_of(self, database: str, label: str, table: str = "") -> tuple[LoadState, str]:
        return self.transactions.state(database, label, table)

    def _state(self, request: Request) -> Reply:
        match = _OF_DATABASE.fullmatch(request.path)
        assert match is not None  # noqa: S101  (the route has looked)

        def state() -> Reply:
            label = check_label(request.query.get("label", "") or request.headers.get("label", ""))
            state, reason = self._state_of(check_folder_name(match[1], "database"), label)
            return Reply(load_state_body(state.value, reason))

        return self._guarded(request, None, state)

    def _cancel(self, request: Request) -> Reply:
        match = _CANCEL.fullmatch(request.path)
        assert match is not None  # noqa: S101  (the route has looked)
        headers = {"label": request.query.get("label") or match[2], "db": match[1]}
        inner = Request(
            "POST", "/api/transaction/rollback", {}, headers, request.body, request.user, address=request.address
        )
        reply = self._end(inner)
        if not isinstance(reply.body, Mapping):
            return reply
        status = "OK" if reply.body["Status"] == "OK" else "FAILED"
        return Reply({**reply.body, "status": status, "msg": reply.body["Message"]}, close=reply.close)

    def _list(self, request: Request) -> Reply:
        database = request.query.get("db", "")
        transactions = []
        for (of, label), live in sorted(self.transactions.live.items()):
            record = live.record
            tables = list(record.tables) or [record.table]
            if (database and of != database) or not all(request.user.may_load(of, each) for each in tables if each):
                continue
            transactions.append(
                {
                    "Label": label,
                    "Db": of,
                    "Tables": tables,
                    "TxnId": record.id,
                    "State": record.state.value,
                    "Reason": record.reason,
                    "BeginTxnTimeMs": record.times.begun,
                    **record.counts.body(),
                }
            )
        return Reply({"Status": "OK", "Message": "", "Transactions": transactions})

    def _nodes(self, request: Request) -> Reply:
        return Reply({"status": "OK", "code": "0", "msg": "Success", "nodes": [request.address.rpartition("//")[2]]})

    def _error_log(self, request: Request) -> Reply:
        name = request.query.get("file", "")
        live = next((each for each in list(self.transactions.live.values()) if each.record.error_log == name), None)
        tables = [] if live is None else list(live.record.tables)
        if not _ERROR_LOG.fullmatch(name) or live is None:
            return Reply({"Status": "FAILED", "Message": "there is no such list"}, 404)
        if not all(request.user.may_load(live.record.database, table) for table in tables):
            return Reply({"Status": "FAILED", "Message": "Access denied"}, 403)
        journal = self.transactions.journal
        try:
            data = journal.store.read(journal.error_name(live.record.database, name), _MAX_ERROR_LOG)
        except NotFoundError:
            return Reply({"Status": "FAILED", "Message": "there is no such list"}, 404)
        return Reply(data.decode("utf-8", "replace"))

    def _health(self, request: Request) -> Reply:
        try:
            self.transactions.lease.check()
        except (StateError, StorageError) as error:
            return Reply({"status": "FAILED", "msg": str(error)}, 503)
        return Reply({"status": "OK", "code": "0", "msg": "Success", "stopping": self.stopping})

    def _metrics(self, request: Request) -> Reply:
        """Return metrics in the text format of Prometheus."""
        states = dict.fromkeys(LoadState, 0)
        lives = list(self.transactions.live.values())
        for live in lives:
            states[live.record.state] += 1
        lines = ["# TYPE lakefmt_load_requests_total counter"]
        with self.metrics.lock:
            lines += [f"lakefmt_load_requests_total{{{key}}} {count}" for key, count in self.metrics.requests.items()]
            lines += ["# TYPE lakefmt_load_seconds_total counter"]
            lines += [
                f'lakefmt_load_seconds_total{{operation="{key}"}} {spent:.6f}'
                for key, spent in self.metrics.seconds.items()
            ]
            lines += ["# TYPE lakefmt_load_rows_total counter"]
            lines += [f'lakefmt_load_rows_total{{class="{key}"}} {count}' for key, count in self.metrics.rows.items()]
        lines += ["# TYPE lakefmt_load_transactions gauge"]
        lines += [f'lakefmt_load_transactions{{state="{state.value}"}} {count}' for state, count in states.items()]
        staged = sum(
            live.staged_bytes for live in lives if live.record.state in (LoadState.PREPARE, LoadState.PREPARED)
        )
        lines += ["# TYPE lakefmt_load_staged_bytes gauge", f"lakefmt_load_staged_bytes {staged}"]
        lines += ["# TYPE lakefmt_load_rollbacks_total counter"]
        lines += [
            f"lakefmt_load_rollbacks_total{{reason={json.dumps(reason)}}} {count}"
            for reason, count in list(self.transactions.rollbacks.items())
        ]
        return Reply("\n".join(lines) + "\n")


#: Clients look for either spelling.
_ALREADY: Final = "Transaction already commited: Transaction {0}has already committed, label is {1}"
