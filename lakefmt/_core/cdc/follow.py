"""Follow a database: events of a source go to the tables, which commit at borders between transactions (effects).

Every table stores its own position with its own commits. After a lost connection, or a crash, the source begins at the positions that are
stored, so what was not committed comes again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from lakefmt._core.arguments import Raised, run_foreign, shown
from lakefmt._core.cdc.events import (
    Border,
    ChangeEndsFollower,
    LeavesTablesOut,
    RowChanges,
    RowKind,
    RowsComeAgain,
    SourceFinding,
    SourceName,
    SourceReader,
    TableChanged,
    TableGone,
    TableLoaded,
    TableTruncated,
    matches_pattern,
    whole_pattern,
)
from lakefmt._core.cdc.options import CdcOptions, TableSettings, effective_values, table_settings
from lakefmt._core.cdc.sink import TableSink
from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.open import location_text
from lakefmt._core.storage.time_source import SystemTimeSource, TimeSource
from lakefmt._core.values import SystemClock
from lakefmt.errors import (
    ConflictError,
    InvalidInputError,
    LakefmtError,
    PositionLost,
    SchemaMismatch,
    SourceChanged,
    SourceRefused,
    SourceUnavailable,
)

__all__ = [
    "PASSWORD_VARIABLE",
    "CdcProgress",
    "Follower",
    "TableProgress",
    "follower_text",
    "slot_name_of",
    "source_opener",
    "whole_names",
]


#: The environment variable that has the password of a source.
PASSWORD_VARIABLE: Final = "LAKEFMT_CDC_PASSWORD"  # noqa: S105  (a name)
_SCHEMES: Final = ("mysql", "mariadb", "postgres", "postgresql")


def source_opener(
    url: str, tables: Sequence[str], password: str | None, follower: str = ""
) -> Callable[[], SourceReader]:
    """Return a function that opens a source.

    Args:
        url: with the user, the host, the port and the database; never with a password.
        tables: names or patterns of names; empty: all tables of the database.
        password: None: that of the environment.
        follower: what tells it from others that follow the same database: a server that keeps its log for one reader keeps it for this one.

    Raises:
        InvalidInputError: there is no such source, or the URL has a password.
    """
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise InvalidInputError(f"{shown(parts.scheme)} is no source: give mysql://, mariadb:// or postgresql://")
    if parts.password is not None:
        raise InvalidInputError(
            f"a URL with a password ends up in logs: give it as password=, or in the environment variable {PASSWORD_VARIABLE}"
        )
    secret = password if password is not None else os.environ.get(PASSWORD_VARIABLE, "")
    patterns = list(tables) or ["*"]
    if parts.scheme in ("mysql", "mariadb"):
        from lakefmt._core.cdc.mysql.source import MySQLSource

        return lambda: MySQLSource.from_url(url, password=secret, tables=patterns)
    from lakefmt._core.cdc.postgres.source import PostgresSource

    # A slot delivers each change once, so every follower needs its own. Slots of all databases of a server share one namespace.
    default_slot = slot_name_of(f"{follower} {unquote(parts.path.strip('/'))}")
    slot = {} if "slot" in dict(parse_qsl(parts.query)) else {"slot": default_slot}
    return lambda: PostgresSource.from_url(url, password=secret, tables=patterns, **slot)


def whole_names(source: object, tables: Mapping[str, object]) -> dict[str, object]:
    """Return settings of tables by whole names: those without a dot are of the URL's database, or of the schema ``public``.

    Args:
        source: the URL; anything else knows whole names alone.
        tables: names or patterns of names → what is said of them.

    Example:
        >>> whole_names("mysql://me@db/shop", {"orders": "/lake/o", "!audit": None, "other.*": None})
        {'shop.orders': '/lake/o', '!shop.audit': None, 'other.*': None}
    """
    parts = urlsplit(source) if isinstance(source, str) else None
    if parts is None or parts.scheme not in _SCHEMES:
        return dict(tables)
    is_mysql = parts.scheme in ("mysql", "mariadb")
    schema = unquote(parts.path.strip("/")) if is_mysql else "public"
    # In PostgreSQL "*" means all schemas of the database.
    return {
        name if name.removeprefix("!") == "*" and not is_mysql else whole_pattern(name, schema): settings
        for name, settings in tables.items()
    }


def slot_name_of(follower: str) -> str:
    """Return the name of a follower's slot where the URL names none.

    Example:
        >>> slot_name_of("cdc /lake"), slot_name_of("cdc /other")
        ('lakefmt_b8bdd5c5', 'lakefmt_a9e9a1e3')
    """
    return f"lakefmt_{hashlib.sha256(follower.encode()).hexdigest()[:8]}"


def follower_text(name: str, base_path: str | None, tables: Mapping[str, object]) -> str:
    """Return the identity of a follower: its name, and the path of its tables, or of the first one."""
    paths = [base_path, *(table_settings(settings, table).path for table, settings in tables.items())]
    first = next((location_text(path) for path in paths if path is not None), "")
    root = first if "://" in first or not first else os.path.abspath(first)  # noqa: PTH100  (a text, also of a bytes path)
    return f"{name} {root.rstrip('/')}"


_log = logging.getLogger("lakefmt.cdc")

_LONGEST_PAUSE: Final = 60.0
#: How often the rows of a table are read again for its columns, in one run.
_MOST_READINGS: Final = 20
#: What a path may have for the names of a table.
_FIELDS: Final = re.compile(r"(\{schema\}|\{table\})")


@dataclass(frozen=True, slots=True)
class TableProgress:
    """What a follower has done for one table since it began.

    Attributes:
        path: where the table lies.
        rows: changes taken.
        kinds: how many of them of each kind, by its name.
        rejected_rows: rows that could not be stored.
        commits: commits.
        schema_changes: alterations of columns.
        position: what the newest commit stores.
        error: why it stopped while others go on; None: it did not.
    """

    path: str
    rows: int
    kinds: Mapping[str, int]
    rejected_rows: int
    commits: int
    schema_changes: int
    position: Any
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CdcProgress:
    """What a follower has done since it began.

    Attributes:
        tables: by the table's name in the source.
        lag_seconds: how old the newest change was when it was taken; 0: everything was read; None: not known.
        transactions: borders with changes before them.
        reconnects: connections that were lost.
        source: what the source tells: bytes of log behind, chunks read and left.
        commit_seconds: time spent in commits.
    """

    tables: Mapping[str, TableProgress] = field(default_factory=dict)
    lag_seconds: float | None = None
    transactions: int = 0
    reconnects: int = 0
    source: Mapping[str, float] = field(default_factory=dict)
    commit_seconds: float = 0.0

    def as_dict(self) -> dict[str, float | int | None]:
        """Return the numbers by the names that users of Flink CDC and Debezium know, tables added up."""
        counts = {kind.name: sum(table.kinds[kind.name] for table in self.tables.values()) for kind in RowKind}
        return {
            "currentFetchEventTimeLag": self.lag_seconds,
            "events": sum(table.rows for table in self.tables.values()),
            **{f"events.{name.lower()}": count for name, count in counts.items()},
            "commits": sum(table.commits for table in self.tables.values()),
            "schema_changes": sum(table.schema_changes for table in self.tables.values()),
            "dead_letter_rows": sum(table.rejected_rows for table in self.tables.values()),
            "tables_stopped": sum(table.error is not None for table in self.tables.values()),
            "transactions": self.transactions,
            "reconnects": self.reconnects,
            "commit_seconds": self.commit_seconds,
            **self.source,
        }


class Follower:
    """Carries the events of a source to tables.

    Args:
        open_source: opens the source; called again after a lost connection.
        base_path: the folder of tables without a path of their own; None: each has one.
        tables: what is said of tables: names or patterns of names such as ``"shop.*"`` → settings.
        options: of the follower.
        storage_options: credentials of the store.
        time_source: the clock.
        on_commit: called with the progress after commits.
    """

    def __init__(
        self,
        open_source: Callable[[], SourceReader],
        base_path: str | None,
        tables: Mapping[str, object],
        options: CdcOptions,
        *,
        storage_options: Mapping[str, object] | None = None,
        time_source: TimeSource | None = None,
        on_commit: Callable[[CdcProgress], None] | None = None,
    ) -> None:
        self._open_source, self._base_path, self._options = open_source, base_path, options
        self._tables = {name: table_settings(settings, name) for name, settings in tables.items()}
        self._storage_options, self._time = storage_options, time_source or SystemTimeSource()
        self._clock = SystemClock()
        self._on_commit = on_commit
        self._stop = threading.Event()
        self._source: SourceReader | None = None
        self._sinks: dict[SourceName, TableSink] = {}
        self._ended: set[SourceName] = set()
        #: Tables that cannot be made or altered here, or read there, while others go on.
        self._stopped: dict[SourceName, LakefmtError] = {}
        #: Those of them that the source is read without.
        self._refused: dict[SourceName, SourceRefused] = {}
        #: Tables whose rows are to be read again.
        self._again: set[SourceName] = set()
        self._readings: dict[SourceName, int] = {}
        self._read: list[SourceName] = []
        self._done: dict[SourceName, TableProgress] = {}
        self._lag: float | None = None
        self._transactions = self._reconnects = 0
        self._commit_seconds = 0.0
        self._has_rows = False
        self._attempts = 0

    def stop(self) -> None:
        """Let :meth:`run` commit at the next border and return; another thread or a signal handler may call it."""
        self._stop.set()

    def run(self, *, until_now: bool = False) -> CdcProgress:
        """Follow the source until it ends, or :meth:`stop` is called.

        Args:
            until_now: end when everything that was committed in the source at the beginning is committed here.

        Raises:
            SourceRefused: the source cannot be followed.
            SourceUnavailable: it cannot be reached, after all attempts.
            SourceChanged: a table cannot follow; where others go on, at the end.
            PositionLost: the source does not have what comes next.
            LakefmtError: a table cannot be written.
        """
        _log.info("options: %s", ", ".join(effective_values(self._options)) or "defaults")
        lost: PositionLost | None = None
        while True:
            try:
                self._run_once(until_now=until_now, lost=lost)
                break
            except (SourceUnavailable, ConflictError) as error:
                lost = None
                self._pause(error)
            except RowsComeAgain as error:
                lost = None
                _log.warning("%s: all its rows are read again", error)
            except PositionLost as error:
                if lost is not None or self._options.on_position_lost == "fail":
                    raise
                lost = error
                _log.warning("%s; on_position_lost=%s", error, self._options.on_position_lost)
            except SourceRefused as error:
                names = {SourceName(*name) for name in error.tables} - self._refused.keys()
                if not names or self._options.on_table_error == "fail" or self._options.logs or self._stop.is_set():
                    raise
                self._refused |= dict.fromkeys(names, error)
        errors = list(self._stopped.values())
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise SourceChanged(f"{len(errors)} tables stopped: {'; '.join(map(str, errors))}")
        return self.progress()

    def _pause(self, error: LakefmtError) -> None:
        """Wait before the next attempt.

        Raises:
            LakefmtError: there were too many attempts.
        """
        self._attempts += 1
        self._reconnects += 1
        if self._attempts > self._options.reconnect_attempts or self._stop.is_set():
            raise error
        seconds = min(_LONGEST_PAUSE, self._options.reconnect_interval * 2.0 ** (self._attempts - 1))
        _log.warning("%s; next attempt in %.1f s", error, seconds)
        self._time.sleep(seconds)

    def _run_once(self, *, until_now: bool, lost: PositionLost | None) -> None:
        source = self._source = self._open_source()
        self._ended.clear()
        self._stopped.clear()
        clean = False
        try:
            self._check(source.preflight())
            self._leave_out(source)
            for table in source.tables():
                self._sink(table.name)
            if lost is not None:
                self._skip_lost(source, [SourceName(*name) for name in lost.tables] or list(self._sinks))
            for name in self._again & self._sinks.keys():
                self._sinks[name].begin_again()
            self._again.clear()
            positions = {name: sink.position for name, sink in self._sinks.items() if sink.position is not None}
            events = source.events(positions, logs=self._options.logs, until_now=until_now)
            self._carry(source, events)
            clean = True
        finally:
            self._close_sinks(discard=not clean)
            source.close()
            self._source = None

    def _close_sinks(self, *, discard: bool) -> None:
        """Close all tables; the first failure is raised when all are closed, unless another error is on its way."""
        failure: Exception | None = None
        for name, sink in self._sinks.items():
            closed = run_foreign(partial(sink.close, discard=discard))
            if isinstance(closed, Raised):  # the others are closed all the same
                failure = failure or closed.error
            self._done[name] = self._table_progress(sink)
        self._sinks = {}
        if failure is not None and not discard:
            raise failure

    def _check(self, findings: Sequence[SourceFinding]) -> None:
        """Refuse a source that would lose changes, as a whole or of some tables; say what else is wrong.

        Raises:
            SourceRefused: so it would.
        """
        for finding in findings:
            if not finding.stops:
                _log.warning("%s", finding.message)
        stopping = [finding for finding in findings if finding.stops]
        names = {finding.table for finding in stopping} - self._refused.keys()
        sentences = {name: "; ".join(str(each) for each in stopping if each.table == name) for name in names}
        # A log of changes goes on where it is or not at all: rows that are read anew would be in it twice.
        if None in names or (names and (self._options.on_table_error == "fail" or self._options.logs)):
            raise SourceRefused("; ".join(map(str, stopping)))
        self._refused |= {
            name: SourceRefused(sentence, tables=[name]) for name, sentence in sentences.items() if name is not None
        }

    def _leave_out(self, source: SourceReader) -> None:
        """Read the source without tables that it cannot be read with, if there are others; the next follower reads all their rows.

        Raises:
            SourceRefused: there are no others, or it can only be read as a whole.
        """
        if not self._refused:
            return
        error = next(iter(self._refused.values()))
        if not isinstance(source, LeavesTablesOut):
            raise error
        source.leave_out(list(self._refused))
        readable_tables = [table.name for table in source.tables()]
        if not readable_tables:
            raise error
        for name, refusal in self._refused.items():
            _log.error("%s stops, %d others go on: %s", name, len(readable_tables), refusal)
            self._sink(name).stop()
            self._stopped[name] = refusal

    def _skip_lost(self, source: SourceReader, names: Sequence[SourceName]) -> None:
        """Let tables begin anew, or at the present position."""
        sinks = [self._sinks[name] for name in names if name in self._sinks]
        if self._options.on_position_lost == "resnapshot":
            for sink in sinks:
                sink.begin_again()
            return
        latest = source.latest()
        for sink in sinks:
            if sink.position is not None:
                sink.mark(latest)
                sink.commit()

    # --- tables ----------------------------------------------------------------------------------------------------------

    def _sink(self, name: SourceName) -> TableSink:
        """Return the sink of a table, opened if the table is there."""
        sink = self._sinks.get(name)
        if sink is None:
            settings = self._settings_of(name)
            sink = TableSink(name, self._path(name, settings), settings, self._options, self._storage_options)
            self._sinks[name] = sink  # closed with the others, also where opening it fails half-way
            sink.open()
        return sink

    def _settings_of(self, name: SourceName) -> TableSettings:
        """Return the settings of a table: those of its name, or those of the first pattern that matches it."""
        settings = self._tables.get(str(name))
        if settings is not None:
            return settings
        return next((each for pattern, each in self._tables.items() if matches_pattern(name, pattern)), TableSettings())

    def _path(self, name: SourceName, settings: TableSettings) -> str:
        """Return where a table lies.

        Raises:
            InvalidInputError: neither it nor the base path is given, or the name is no name of a folder.
        """
        template = settings.path
        if template is None:
            if self._base_path is None:
                raise InvalidInputError(f"{name} has no path, and there is no base_path")
            template = f"{self._base_path.rstrip('/')}/{{schema}}/{{table}}"
        # Nothing but these two is replaced: a path may have braces of its own.
        for field_name, part in zip(("{schema}", "{table}"), name, strict=True):
            if field_name in template and (not part or part.startswith(".") or "/" in part or "\\" in part):
                raise InvalidInputError(f"{name} makes no name of a folder: give the table a path")
        path = "".join(
            {"{schema}": name.schema, "{table}": name.table}.get(each, each) for each in _FIELDS.split(template)
        )
        other = next((each.name for each in self._sinks.values() if _is_same_place(each.path, path)), name)
        if other != name:
            raise InvalidInputError(
                f"{other} and {name} would be one table at {path}: put {{schema}} and {{table}} into its path"
            )
        return path

    # --- events ----------------------------------------------------------------------------------------------------------

    def _carry(self, source: SourceReader, events: Any) -> None:
        """Apply events to the tables until the source ends or the follower must stop, and commit the rest."""
        last_commit = last_idle = self._time.monotonic()
        took = 0.0
        border: Border | None = None
        for event in events:
            self._attempts = 0
            if not isinstance(event, Border):
                border = None
                self._take(event)
                continue
            border = event
            self._pass_border(event)
            now = self._time.monotonic()
            if self._stop.is_set():
                break
            # Who is behind reads for as long as the last commit took: else short intervals leave no time to catch up.
            interval = max(self._options.commit_interval, 0.0 if event.caught_up else took)
            if now - last_commit >= interval:
                idle = now - last_idle >= self._options.idle_interval
                self._commit(source, event, idle=idle)
                last_commit = self._time.monotonic()
                took = last_commit - now
                last_idle = last_commit if idle else last_idle
        if border is not None:
            self._commit(source, border, idle=True)
        elif any(sink.is_dirty for sink in self._sinks.values()):
            raise SourceUnavailable("the source ended in the middle of a transaction")

    def _take(self, event: RowChanges | TableChanged | TableLoaded | TableTruncated | TableGone) -> None:
        """Hand an event to its table."""
        name = event.table.name if isinstance(event, TableChanged) else event.name
        if name in self._stopped or (name in self._ended and not isinstance(event, TableChanged)):
            return
        is_late = name not in self._sinks
        sink = self._sink(name)
        if name in self._ended or (is_late and sink.position is not None):
            # The source has it again, with other rows: nothing tells which of those here are gone.
            self._ended.discard(name)
            sink.truncate("was dropped or left out, and is there again")
        if isinstance(event, RowChanges):
            self._has_rows = True
            sink.write(event)
        elif isinstance(event, TableChanged):
            self._follow_columns(sink, event)
        elif isinstance(event, TableTruncated):
            sink.truncate()
        elif isinstance(event, TableLoaded):
            self._read.append(name)
        elif isinstance(event, TableGone):
            self._end_table(event)

    def _follow_columns(self, sink: TableSink, event: TableChanged) -> None:
        """Apply a change of columns to a table; a table that cannot store it stops, and all others go on."""
        try:
            sink.follow_columns(event)
        except (SourceChanged, SchemaMismatch, InvalidInputError) as caught:
            error: LakefmtError = caught
            if isinstance(caught, RowsComeAgain):
                self._readings[sink.name] = self._readings.get(sink.name, 0) + 1
                if self._readings[sink.name] <= _MOST_READINGS:
                    self._again.add(sink.name)
                    raise
                error = SourceChanged(str(caught))
            is_to_end = self._options.on_table_error == "fail" or isinstance(error, ChangeEndsFollower)
            active_tables = self._sinks.keys() - self._stopped.keys() - self._ended - {sink.name}
            # A log of changes goes on where it is or not at all: rows that are read anew would be in it twice.
            if is_to_end or self._options.logs or not active_tables:
                raise error from caught
            _log.error("%s stops, %d others go on: %s", sink.name, len(active_tables), error)
            sink.stop()
            self._stopped[sink.name] = error

    def _end_table(self, event: TableGone) -> None:
        outcome = "was dropped" if event.new_name is None else f"was renamed to {event.new_name}"
        if self._options.on_table_gone == "fail":
            raise SourceChanged(f"{event.name} {outcome}")
        _log.warning("%s %s: the table here stays as it is", event.name, outcome)
        self._ended.add(event.name)

    def _pass_border(self, border: Border) -> None:
        """Note the position in the tables that changed since the last border."""
        self._lag = None if border.at is None else max(0.0, self._clock.now().timestamp() - border.at)
        if border.caught_up:
            self._lag = 0.0
        self._transactions += self._has_rows
        self._has_rows = False
        for name, sink in self._sinks.items():
            if sink.is_dirty and sink.is_open:
                sink.mark(border.position_of(name))
        read, self._read = self._read, []
        for name in read:
            if name not in self._stopped:
                self._sinks[name].end_reading()

    def _commit(self, source: SourceReader, border: Border, *, idle: bool) -> None:
        """Commit the tables with changes, and tell the source what it may forget.

        Args:
            source: the source.
            border: the border that was passed last.
            idle: tables without changes commit the position, too.
        """
        start = self._time.monotonic()
        committed = False
        for name, sink in self._sinks.items():
            if not sink.is_open or name in self._ended:
                continue
            position = border.position_of(name)
            if not sink.is_dirty and not (idle and position != sink.position):
                continue
            sink.mark(position)
            sink.commit()
            committed = True
        for sink in self._sinks.values() if idle else ():
            if sink.is_open:
                sink.remove_marked()
        self._commit_seconds += self._time.monotonic() - start
        if committed:
            positions = {name: sink.position for name, sink in self._sinks.items() if sink.position is not None}
            # Whose rows are read anew needs no log.
            stopped = self._stopped.keys() - self._refused.keys()
            source.confirm(positions | {name: border.position_of(name) for name in stopped})
            if self._on_commit is not None:
                self._on_commit(self.progress())

    # --- progress --------------------------------------------------------------------------------------------------------

    def progress(self) -> CdcProgress:
        """Return what was done since the follower began."""
        tables = {str(name): progress for name, progress in self._done.items()}
        tables |= {str(name): self._table_progress(sink) for name, sink in self._sinks.items()}
        source = {} if self._source is None else dict(self._source.lag())
        return CdcProgress(
            tables, self._lag, self._transactions, self._reconnects, source, round(self._commit_seconds, 6)
        )

    def _table_progress(self, sink: TableSink) -> TableProgress:
        """Return the progress of a table: of its sink, and of those before a lost connection."""
        counts = {kind.name: int(sink.rows_of_kinds[kind.value]) for kind in RowKind}
        progress = TableProgress(
            sink.path,
            sink.rows,
            counts,
            sink.rejected_rows,
            sink.commits,
            sink.schema_changes,
            sink.position,
            str(self._stopped[sink.name]) if sink.name in self._stopped else None,
        )
        before = self._done.get(sink.name)
        if before is None:
            return progress
        return TableProgress(
            progress.path,
            before.rows + progress.rows,
            {name: before.kinds[name] + count for name, count in counts.items()},
            before.rejected_rows + progress.rejected_rows,
            before.commits + progress.commits,
            before.schema_changes + progress.schema_changes,
            progress.position,
            progress.error,
        )


def _is_same_place(path: str, other: str) -> bool:
    """Return whether two paths or URLs name one folder."""
    if "://" in path or "://" in other:
        return path.rstrip("/") == other.rstrip("/")
    return os.path.abspath(path) == os.path.abspath(other)  # noqa: PTH100  (texts, nothing is asked of the disk)
