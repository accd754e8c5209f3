"""What the page may change when it was started so: an action is planned, shown, confirmed, and only then run; each run is logged."""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from lakefmt._core.data_classes import dataclass
from lakefmt._core.page.files import printed_plan, service_plans
from lakefmt._core.page.tables import PageTable
from lakefmt._core.storage.time_source import SystemTimeSource, TimeSource
from lakefmt._core.undo import plan_undo
from lakefmt._core.values import Clock, SystemClock, check_instant_time
from lakefmt.errors import InvalidInputError, LakefmtError

__all__ = ["ACTIONS", "PageActions"]

Facts = dict[str, Any]

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
_MOST_TEXT: Final = 4096


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
