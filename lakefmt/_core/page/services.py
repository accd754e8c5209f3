"""What the page says of a table, its services, locks, writers and health; and what it may change when it was started so.

An action is planned, shown, confirmed, and only then run; each run is logged.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from lakefmt._core.check.findings import CheckReport, Finding
from lakefmt._core.check.run import check_table
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.config.table_config import KIND
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.loads.journal import FOLDER, LoadState, TableLoad, decode_transaction
from lakefmt._core.page.contents import printed_plan, service_plans, size_facts
from lakefmt._core.page.tables import PageTable, PageTables
from lakefmt._core.page.timeline import label_facts, zone_of
from lakefmt._core.read.stats import EntryBuilder
from lakefmt._core.segments.codec import committed_of, has_streams
from lakefmt._core.segments.pending import is_owned, load_streams, plan_stream
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.process_lock import process_locks
from lakefmt._core.storage.time_source import SystemTimeSource, TimeSource
from lakefmt._core.timeline.commit import STREAM_PREFIX, TXN_PREFIX, decode_entry, stream_entry_name, watermark_of
from lakefmt._core.timeline.heartbeat import DIRECTORY, read_stamp, stamp_text
from lakefmt._core.timeline.instant import Action, Instant, parse_instant_time
from lakefmt._core.timeline.locks.local import LOCAL_LOCK_NAME
from lakefmt._core.timeline.locks.objects import (
    FILE_SYSTEM_LOCK_NAME,
    STORAGE_LOCK_NAME,
    decode_lock_record,
    decode_stamp,
)
from lakefmt._core.timeline.locks.open import default_lock_provider
from lakefmt._core.undo import plan_undo
from lakefmt._core.values import Clock, InstantTime, SystemClock, TableType, check_instant_time
from lakefmt.errors import CorruptFile, InvalidInputError, LakefmtError, ObjectNotFound, StateError
from lakefmt.services.round import needed_services

__all__ = [
    "ACTIONS",
    "PageActions",
    "advice_facts",
    "check_facts",
    "checked_facts",
    "health_words",
    "overview_facts",
    "service_facts",
    "settings_facts",
    "table_list_facts",
]

Facts = dict[str, Any]

_MOST_LISTED: Final = 200
#: Newest commits in which jobs are looked for.
_MOST_JOB_COMMITS: Final = 20
#: Records of loads over HTTP that are read, newest first: those of ended ones stay until their label expires.
_MOST_LOADS: Final = 500
_MOST_LOAD_BYTES: Final = 8 << 20
_DAMAGED_LOAD: Final[Facts] = {
    "label": "",
    "state": "",
    "committing": False,
    "rows": 0,
    "bytes": 0,
    "tables": 0,
    "age_seconds": 0.0,
    "owner": "",
    "problem": "a record of a transaction of this database cannot be read",
}
_ENDED: Final = (LoadState.VISIBLE, LoadState.ABORTED)
#: Pending instants whose writers are looked for.
_MOST_ASKED: Final = 8
_CHECKS: Final = threading.Lock()
_MOST_TEXT: Final = 4096
_MOST_LOCK_BYTES: Final = 1 << 16
#: Words in the names of settings whose values are never shown.
_SECRET_WORDS: Final = ("password", "secret", "token", "credential", "access.key", "accesskey", "sas", "private")


def table_list_facts(tables: PageTables, contains: str = "", offset: int = 0, limit: int = 100) -> Facts:
    """Return the tables of the page at a glance, without their files.

    Args:
        tables: what may be asked for.
        contains: only tables whose name or path has this text, in any letter case.
        offset: of the first one.
        limit: how many.
    """
    listed, problems = tables.listed()
    sought = contains.casefold()
    matches = [table for table in listed if sought in table.name.casefold() or sought in table.shown_path.casefold()]
    return {
        "matching": len(matches),
        "total": len(listed),
        "offset": offset,
        "tables": [overview_facts(table) for table in matches[offset : offset + limit]],
        "problems": [{"path": path, "problem": problem[:_MOST_TEXT]} for path, problem in problems.items()],
    }


def overview_facts(table: PageTable, *, sizes: bool = False) -> Facts:
    """Return a table at a glance; one that cannot be read says why.

    Args:
        table: the table.
        sizes: with the number and bytes of its files, for which they are listed.
    """
    facts: Facts = {"id": table.id, "name": table.name, "path": table.shown_path, "problem": ""}
    try:
        table_at = table.at()
        config, timeline = table_at.config, table_at.timeline
        latest = timeline.latest_commit
        facts |= {
            "table_type": "cow" if config.table_type is TableType.COPY_ON_WRITE else "mor",
            "kind": config.properties.get(KIND, ""),
            "version": config.version.value,
            "record_key": list(config.record_key_fields or ()),
            "instants": len(timeline),
            "commits": len(timeline.commits),
            "pending": len(timeline.pending),
            "latest": None if latest is None else str(latest.time),
            "latest_at": None if latest is None else _iso(table_at, latest.order_time),
            "health": health_words(table_at),
        }
        if sizes:
            facts["size"] = size_facts(table)
    except LakefmtError as error:
        facts["problem"] = table.redact(str(error))[:_MOST_TEXT]
        facts["health"] = [{"level": "bad", "words": "cannot be read"}]
    return facts


def _iso(table_at: TableAt, time: str) -> str | None:
    try:
        return parse_instant_time(time, zone_of(table_at)).astimezone(UTC).isoformat()
    except LakefmtError:
        return None


def health_words(table_at: TableAt) -> list[Facts]:
    """Return what the timeline alone tells of a table's health; no other file is read, but those of pending writers."""
    words = []
    pending = table_at.timeline.pending
    builder = EntryBuilder(table_at) if pending else None
    # A few of the oldest: whoever is dead has been so for a while.
    dead = sum(_is_dead(builder, i) for i in pending[:_MOST_ASKED]) if builder is not None else 0
    if dead:
        words.append({"level": "bad", "words": f"{dead:,} dead writer{_s(dead)}: the next write rolls back"})
    planned = [
        i for i in pending if i.action in (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING, Action.CLEAN)
    ]
    running = len(pending) - len(planned) - dead
    if running > 0:
        words.append({"level": "note", "words": f"{running:,} write{_s(running)} not completed"})
    if planned:
        words.append({"level": "note", "words": f"{len(planned):,} plan{_s(len(planned))} waiting"})
    if not table_at.timeline.commits:
        words.append({"level": "note", "words": "no commits"})
    return words or [{"level": "good", "words": "in order"}]


def _is_dead(builder: EntryBuilder, instant: Instant) -> bool:
    try:
        return builder.entry(instant, False).failed
    except LakefmtError:
        return False  # it was completed or rolled back meanwhile


def _s(number: int) -> str:
    return "" if number == 1 else "s"


def settings_facts(table: PageTable) -> list[Facts]:
    """Return the settings of writes with where each value comes from, and the table's properties; secrets are left out."""
    table_at = table.at()
    settings = resolve_settings({}, table.client.options, table_at.config.properties)
    rows = [
        {"name": name, "value": _printable_value(table, name, value), "origin": settings.origins[name]}
        for name, value in sorted(settings.values.items())
        if settings.origins[name] != "default"
    ]
    properties = table_at.config.properties
    rows += [
        {"name": name, "value": _printable_value(table, name, property_value), "origin": "property"}
        for name, property_value in sorted(properties.items())
        if name not in {row["name"] for row in rows}
    ]
    return rows


def _printable_value(table: PageTable, name: str, value: object) -> str:
    is_secret = any(word in name.casefold() for word in _SECRET_WORDS)
    return "***" if is_secret else table.redact(str(value))[:_MOST_TEXT]


# --- services -----------------------------------------------------------------------------------------------------


def service_facts(table: PageTable) -> Facts:
    """Return what services are due, what waits and runs, and who writes and reads; a part that cannot be read says why.

    Raises:
        LakefmtError: the table cannot be read.
    """
    table_at = table.at()
    parts: dict[str, Callable[[], Any]] = {
        "needs": lambda: [service.value for service in needed_services(table_at, {})],
        "last_runs": lambda: _last_runs(table_at),
        "lock": lambda: _lock_facts(table_at),
        "heartbeats": lambda: _heartbeats(table_at),
        "streams": lambda: _stream_facts(table_at),
        "applications": lambda: _application_facts(table_at),
        "jobs": lambda: _job_facts(table_at),
        "loads": lambda: _load_facts(table),
        "consumers": lambda: _consumer_facts(table),
        "savepoints": lambda: _savepoints(table),
        "watermark": lambda: watermark_of(table_at.newest_entries()),
    }
    facts: Facts = {"problems": {}}
    for name, part in parts.items():
        try:
            facts[name] = part()
        except LakefmtError as error:
            facts[name] = [] if name != "watermark" else None
            facts["problems"][name] = table.redact(str(error))[:_MOST_TEXT]
    facts["queue"] = [
        {"time": str(i.time), "action": i.action.value, "state": i.state.value} for i in table_at.timeline.pending
    ][:_MOST_LISTED]
    return facts


_SERVICE_OF: Final = {
    Action.CLEAN: "clean",
    Action.ROLLBACK: "rollback",
    Action.INDEXING: "indexing",
    Action.SAVEPOINT: "savepoint",
    Action.RESTORE: "restore",
}


def _last_runs(table_at: TableAt) -> list[Facts]:
    """Return the newest run of each service; of compactions and clusterings, which complete as commits, by their operation."""
    timeline = table_at.timeline
    newest_runs: dict[str, Instant] = {}
    for instant in timeline.completed_of(*_SERVICE_OF):
        newest_runs[_SERVICE_OF[instant.action]] = instant
    names = {"COMPACT": "compaction", "LOG_COMPACT": "log compaction", "CLUSTER": "clustering"}
    missing = set(names.values())
    # Those that are long ago are not worth the read of all commits between.
    for instant in reversed(timeline.commits[-_MOST_LISTED:]):
        if not missing:
            break
        name = names.get(table_at.commit_metadata(instant).operation.value)
        if name in missing:
            missing.discard(name)
            newest_runs[name] = instant
    rows = [
        {"service": name, "time": str(i.time), "at": _iso(table_at, i.order_time), "action": i.action.value}
        for name, i in newest_runs.items()
    ]
    return sorted(rows, key=lambda row: str(row["time"]), reverse=True)


def _lock_facts(table_at: TableAt) -> list[Facts]:
    """Return the provider of the table lock, and who holds it as far as a file tells."""
    client = table_at.client
    settings = resolve_settings({}, client.options, table_at.config.properties)
    provider = settings.text("hoodie.write.lock.provider") or default_lock_provider(client.store, shared=True) or "none"
    name = provider.rpartition(".")[2]
    return [
        {"provider": name, **(_lock_holder(client.store, client.clock.now()) or {"held": None, "by": "no file tells"})}
    ]


def _lock_holder(store: ObjectStore, now: datetime) -> Facts | None:
    locks = process_locks(store)
    if locks is not None and store.info(LOCAL_LOCK_NAME) is not None:
        is_held = locks.is_held(LOCAL_LOCK_NAME)
        return {"held": is_held, "by": "a process of this machine" if is_held else ""}
    for lock_name in (STORAGE_LOCK_NAME, FILE_SYSTEM_LOCK_NAME):
        try:
            data = store.read(lock_name, _MOST_LOCK_BYTES)
        except ObjectNotFound:
            continue
        if lock_name == STORAGE_LOCK_NAME:
            record = decode_lock_record(data)
            is_held = not record.expired and record.valid_until > now.timestamp() * 1000
            return {"held": is_held, "by": record.owner[:_MOST_TEXT] if is_held else ""}
        stamp = decode_stamp(data)
        return {
            "held": True,
            "by": "another engine" if stamp is None else f"{stamp.owner} on {stamp.host}, process {stamp.pid}",
        }
    return None


def _heartbeats(table_at: TableAt) -> list[Facts]:
    store = table_at.client.store
    now = table_at.client.clock.now().timestamp()
    rows = []
    for item in list(store.list(DIRECTORY, recursive=False))[:_MOST_LISTED]:
        time = item.name.rpartition("/")[2]
        stamp = read_stamp(store, InstantTime(time))
        rows.append(
            {
                "time": time[:40],
                "age_seconds": round(max(0.0, now - item.modified), 1),
                "writer": "another engine" if stamp is None else stamp_text(stamp)[:_MOST_TEXT],
            }
        )
    return rows


def _stream_facts(table_at: TableAt) -> list[Facts]:
    """Return the streams into a table: what they have committed, what waits, who owns them; followers of databases, too."""
    client = table_at.client
    entries = table_at.newest_entries()
    states = {state.stream: state for state in load_streams(client)} if has_streams(client.store) else {}
    noted_streams = {name.removeprefix(STREAM_PREFIX) for name in entries if name.startswith(STREAM_PREFIX)}
    now = client.clock.now().timestamp()
    rows = []
    for stream in sorted(noted_streams | set(states))[:_MOST_LISTED]:
        entry = decode_entry(entries, stream_entry_name(stream)) if stream in noted_streams else None
        committed = None if entry is None else committed_of(entry)
        state = states.get(stream)
        plan = plan_stream(stream, state.headers if state else (), state.claims if state else (), committed)
        waiting = (*plan.to_commit, *plan.tail)
        claim = state.claims[-1] if state is not None and state.claims else None
        rows.append(
            {
                "stream": stream,
                "what": _stream_kind(None if committed is None else committed.offset),
                "waiting_segments": len(waiting),
                "waiting_rows": sum(header.rows for header in waiting),
                "waiting_bytes": sum(header.bytes for header in waiting),
                "lag_seconds": round(max(0.0, now - min(header.at for header in waiting) / 1000), 1)
                if waiting
                else 0.0,
                "committed_at": None
                if committed is None
                else datetime.fromtimestamp(committed.at / 1000, UTC).isoformat(),
                "position": "" if committed is None else _position_text(committed.offset),
                "owner": "" if claim is None else f"process {claim.pid} on {claim.host}",
                "open": claim is not None and is_owned(client.store, stream, claim, now),
            }
        )
    return rows


#: A field of the position that a stream keeps → what writes the stream. Other jobs add theirs.
_STREAM_KINDS: Final = {"position": "CDC"}


def _stream_kind(offset: object) -> str:
    """Return what writes a stream, by the position it keeps: each kind of job has its own shape of it."""
    fields = offset if isinstance(offset, dict) else {}
    return next((what for field, what in _STREAM_KINDS.items() if field in fields), "stream")


def _position_text(offset: object) -> str:
    position = offset["position"] if isinstance(offset, dict) and "position" in offset else offset
    return "" if position is None else json.dumps(position, ensure_ascii=False, default=str)[:400]


def _application_facts(table_at: TableAt) -> list[Facts]:
    """Return programs that number their commits, with their last number."""
    entries = table_at.newest_entries()
    rows = []
    for name in sorted(entries):
        if name.startswith(TXN_PREFIX):
            fields = decode_entry(entries, name) or {}
            rows.append({"application": name.removeprefix(TXN_PREFIX), "number": fields.get("number")})
    return rows[:_MOST_LISTED]


def _job_facts(table_at: TableAt) -> list[Facts]:
    """Return the newest checkpoints of ingest jobs and labels of loads over HTTP, with the commits that noted them."""
    facts_by_label: dict[tuple[str, str], Facts] = {}
    for instant in reversed(table_at.timeline.commits[-_MOST_JOB_COMMITS:]):
        for label in label_facts(table_at.commit_metadata(instant).extra_metadata):
            if label["what"] in ("load", "checkpoint"):
                facts_by_label.setdefault((label["what"], label["name"]), {**label, "time": str(instant.time)})
    return list(facts_by_label.values())


def _load_facts(table: PageTable) -> list[Facts]:
    """Return the transactions of loads over HTTP that have rows for this table or wait for them, from the journal of its base path."""
    base = table.base()
    if base is None:
        return []
    store, database, name = base
    now = table.client.clock.now().timestamp() * 1000
    listed = store.list(f"{FOLDER}/{database}/transactions", recursive=False)
    records = sorted((each for each in listed if each.name.endswith(".json")), key=lambda each: -each.modified)
    rows = []
    for record in records[:_MOST_LOADS]:
        try:
            transaction = decode_transaction(store.read(record.name, _MOST_LOAD_BYTES), record.name)
        except ObjectNotFound:
            continue  # its label has expired
        except CorruptFile:
            rows.append(_DAMAGED_LOAD)  # whose it is cannot be told
            continue
        if (
            transaction.state in _ENDED
            or transaction.database != database
            or (transaction.table != name and name not in transaction.tables)
        ):
            continue
        load = transaction.tables.get(name, TableLoad())
        rows.append(
            {
                "label": transaction.label[:_MOST_TEXT],
                "state": transaction.state.value,
                "committing": transaction.committing,
                "rows": load.counts.loaded,
                "bytes": sum(part.bytes for part in load.parts),
                "tables": max(len(transaction.tables), 1),
                "age_seconds": round(max(0.0, now - transaction.times.begun) / 1000, 1),
                "owner": transaction.owner[:_MOST_TEXT],
                "problem": "",
            }
        )
    older = len(records) - _MOST_LOADS
    unread = [{**_DAMAGED_LOAD, "problem": f"{older:,} older records were not read"}] if older > 0 else []
    return [*rows[:_MOST_LISTED], *unread]


def _consumer_facts(table: PageTable) -> list[Facts]:
    return [
        {
            "id": info.id,
            "shard": "" if info.shard is None else f"{info.shard[0]} of {info.shard[1]}",
            "read_to": info.next_start,
            "state": "expired" if info.is_expired else "active" if info.is_active else "idle",
            "lag_instants": info.lag.instants,
            "lag_bytes": info.lag.num_bytes,
            "lag_seconds": round(info.lag.seconds, 1),
        }
        for info in table.table.consumers.list()[:_MOST_LISTED]
    ]


def _savepoints(table: PageTable) -> list[Facts]:
    return [
        {
            "instant": str(savepoint.instant),
            "user": savepoint.user[:_MOST_TEXT],
            "comment": savepoint.comment[:_MOST_TEXT],
            "created": None if savepoint.created is None else savepoint.created.isoformat(),
            "files": len(savepoint.files),
        }
        for savepoint in table.table.savepoints()[:_MOST_LISTED]
    ]


def advice_facts(table: PageTable) -> Facts:
    """Return what the table should be, with the cost of its next commit, as ``table.advise`` says.

    Raises:
        LakefmtError: the table has too little history, or cannot be read.
    """
    with table.alone():
        advice = table.table.advise()
    return {**advice.as_json(), "text": str(advice), "paste": advice.paste}


# --- health -------------------------------------------------------------------------------------------------------


def check_facts(table: PageTable) -> Facts:
    """Return the findings of a quick check, and the plan of their repair; nothing is changed.

    Raises:
        StateError: another check is at work: one at a time, since each may read the footers of many files.
    """
    if not _CHECKS.acquire(blocking=False):
        raise StateError("another check of this page is at work: try again when it has ended")
    try:
        return checked_facts(table, check_table(table.client, "fast", None))
    finally:
        _CHECKS.release()


def checked_facts(table: PageTable, report: CheckReport) -> Facts:
    """Return a report of a check as JSON values."""
    plan = report.plan
    return {
        "is_clean": report.is_clean,
        "level": report.level,
        "files": report.files,
        "basis": report.basis,
        "num_findings": len(report.findings),
        "findings": _findings(table, report.findings),
        "notes": _findings(table, report.notes),
        "skipped": [table.redact(why)[:_MOST_TEXT] for why in report.skipped],
        "plan": [
            {"step": type(step).__name__, "does": str(step)[:_MOST_TEXT], "loses": step.loses}
            for step in plan.steps[:_MOST_LISTED]
        ],
        "num_steps": len(plan.steps),
    }


def _findings(table: PageTable, findings: Sequence[Finding]) -> list[Facts]:
    return [_finding(table, finding) for finding in findings[:_MOST_LISTED]]


def _finding(table: PageTable, finding: Finding) -> Facts:
    return {
        "kind": finding.kind.value,
        "where": finding.where[:_MOST_TEXT],
        "what": table.redact(finding.what)[:_MOST_TEXT],
        "consequence": finding.consequence[:_MOST_TEXT],
        "remedy": finding.remedy[:_MOST_TEXT],
        "loses": finding.loses,
        "mendable": bool(finding.steps),
    }


#: The actions, with what they need: an instant or nothing.
ACTIONS: Final = {
    "clean": False,
    "compaction": False,
    "clustering": False,
    "packing": False,
    "archive": False,
    "savepoint": True,
    "rollback": True,
    "restore": True,
}
_MOST_PLANS: Final = 32
_PLAN_SECONDS: Final = 600.0


@dataclass(frozen=True)
class _Planned:
    """An action that waits to be confirmed."""

    table_id: str
    action: str
    instant: str
    comment: str
    plan: Facts
    until: float


class PageActions:
    """Plans and runs actions, one at a time; what was confirmed is run only while its plan is still the same."""

    def __init__(self, log: Path, *, clock: Clock | None = None, time_source: TimeSource | None = None) -> None:
        """Take the audit log, which must be writable.

        Args:
            log: a line of JSON is added before and after each run.
            clock: tells the time in the log.
            time_source: when a plan is too old to be confirmed.

        Raises:
            InvalidInputError: the log cannot be written.
        """
        self._log = log
        self._clock = clock or SystemClock()
        self._time_source = time_source or SystemTimeSource()
        self._planned: dict[str, _Planned] = {}
        self._lock = threading.Lock()
        try:
            with log.open("ab"):
                pass
        except OSError as error:
            raise InvalidInputError(f"the audit log {log} cannot be written: {error.strerror or error}") from None

    def plan(self, table: PageTable, form: Mapping[str, str]) -> Facts:
        """Return the plan of an action, with what confirms it; nothing is changed.

        Args:
            table: the table.
            form: ``action``, and ``instant`` and ``comment`` where it takes them.

        Raises:
            InvalidInputError: there is no such action, or it cannot be planned.
            LakefmtError: the table cannot be read.
        """
        action, instant, comment = _checked(form)
        plan, _ = self._planned_call(table, action, instant, comment)
        now = self._time_source.monotonic()
        key = secrets.token_urlsafe(18)
        with self._lock:
            self._planned = {k: p for k, p in self._planned.items() if p.until > now}
            if len(self._planned) >= _MOST_PLANS:
                self._planned.pop(next(iter(self._planned)))
            self._planned[key] = _Planned(table.id, action, instant, comment, plan, now + _PLAN_SECONDS)
        return {"state": "planned", "action": action, "instant": instant, "plan": plan, "confirm": key, "message": ""}

    def run(self, table: PageTable, form: Mapping[str, str]) -> Facts:
        """Run what was planned and confirmed, and return what it did, or why not.

        Args:
            table: the table.
            form: ``confirm``, what :meth:`plan` gave.

        Raises:
            InvalidInputError: nothing was planned under it, or too long ago.
        """
        with self._lock:
            planned = self._planned.pop(form.get("confirm", ""), None)
        if planned is None or planned.table_id != table.id or planned.until <= self._time_source.monotonic():
            raise InvalidInputError("this was not planned, or too long ago, or it was run already: plan it again")
        table.forget()
        plan, call = self._planned_call(table, planned.action, planned.instant, planned.comment)
        facts: Facts = {
            "action": planned.action,
            "instant": planned.instant,
            "plan": plan,
            "confirm": "",
            "message": "",
        }
        if plan != planned.plan:
            # Somebody wrote meanwhile: what would run now is not what was read.
            form = {"action": planned.action, "instant": planned.instant, "comment": planned.comment}
            return {
                **self.plan(table, form),
                "message": "The table has changed since: this is the plan now.",
            }
        entry = {"table": table.shown_path, "action": planned.action, "instant": planned.instant, "plan": plan["title"]}
        self._note("begun", entry)
        try:
            result = str(call())
        except LakefmtError as error:
            message = table.redact(str(error))[:_MOST_TEXT]
            self._note("failed", {**entry, "message": message})
            return {**facts, "state": "failed", "message": message}
        except BaseException as error:
            self._note("failed", {**entry, "message": type(error).__name__})
            raise
        finally:
            table.forget()
        self._note("done", {**entry, "result": result.partition("\n")[0][:_MOST_TEXT]})
        return {**facts, "state": "done", "message": result[:_MOST_TEXT]}

    def _planned_call(
        self, table: PageTable, action: str, instant: str, comment: str
    ) -> tuple[Facts, Callable[[], object]]:
        opened = table.table
        if not ACTIONS[action]:
            plans = service_plans(table)
            if action not in plans:
                raise InvalidInputError(f"this table has no {action}")
            runs: dict[str, Callable[[], object]] = {
                "clean": opened.clean,
                "compaction": opened.compact,
                "clustering": opened.cluster,
                "packing": opened.cluster,
                "archive": opened.archive,
            }
            return printed_plan(action, plans[action]()), runs[action]
        if action == "savepoint":
            savepoint = opened.savepoint(instant, comment=comment, dry_run=True)
            plan = printed_plan(action, f"keep the files of {savepoint.instant}: {len(savepoint.files):,} files")
            return plan, lambda: opened.savepoint(instant, comment=comment)
        if action == "rollback":
            return printed_plan(action, plan_undo(opened.client, instant)), lambda: opened.rollback(instant)
        return printed_plan(action, opened.restore(instant, dry_run=True).plan), lambda: opened.restore(instant)

    def _note(self, state: str, entry: Mapping[str, object]) -> None:
        """Add a line to the audit log; it is on disk before anything is done."""
        now: datetime = self._clock.now()
        line = json.dumps({"at": now.isoformat(), "state": state, "pid": os.getpid(), **entry})
        with self._lock, self._log.open("ab") as file:
            file.write(f"{line}\n".encode())
            file.flush()
            os.fsync(file.fileno())


def _checked(form: Mapping[str, str]) -> tuple[str, str, str]:
    action, instant, comment = form.get("action", ""), form.get("instant", ""), form.get("comment", "")
    if action not in ACTIONS:
        raise InvalidInputError(f"there is no action {action[:40]!r}: it is one of {', '.join(ACTIONS)}")
    if len(comment) > 1000:
        raise InvalidInputError("a comment has at most 1,000 characters")
    if not ACTIONS[action]:
        return action, "", ""
    return action, str(check_instant_time(instant)), comment
