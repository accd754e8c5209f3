"""Small loads of several clients become one transaction (effects).

Every body is read and checked alone before its rows join: a bad one fails only itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from threading import Condition, Thread
from typing import Final

from lakefmt._core.data_classes import replace
from lakefmt._core.loads.bodies import Request
from lakefmt._core.loads.protocol import BeginParameters, LoadParameters, Refusal, Reply, outcome_body
from lakefmt._core.loads.transactions import Live, Loaded, Transactions
from lakefmt.errors import LakefmtError

__all__ = ["MergeCommits"]

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
            milliseconds.isascii() and milliseconds.isdigit() and int(milliseconds[:7]) <= _MOST_MS
        ):
            raise Refusal("Invalid merge_commit_interval_ms")
        interval = int(milliseconds or self._interval_ms)
        key = (begin_parameters.database, begin_parameters.table, parameters)
        transactions = self._transactions
        alone = transactions.begin(_labelled(begin_parameters, "merge_part"), request.user.name, stored=False)
        try:
            with transactions.working(alone, waits=False):
                done = self._take(request, alone, begin_parameters.table, parameters)
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
        return self._reply(request, key, group, done, leads=leads)

    def _reply(
        self, request: Request, key: tuple[str, str, LoadParameters], group: _Group, done: Loaded, *, leads: bool
    ) -> Reply:
        record = group.live.record
        left = max(0, int(group.ends - self._transactions.now()))
        if request.headers.get("merge_commit_async", "").lower() == "true":
            if leads:
                thread = Thread(target=self._finish, args=(key, group), name="lakefmt-merge-commit", daemon=True)
                with self._changed:
                    self._finishing = {each for each in self._finishing if each.is_alive()} | {thread}
                    thread.start()
            return Reply(outcome_body("OK", "", record.label, record.id, LeftMergeTimeMs=left, **done.counts.body()))
        if leads:
            self._finish(key, group)
        with self._changed:
            self._changed.wait_for(lambda: group.outcome is not None)
        return Reply({**(group.outcome or {}), **done.counts.body(), "LeftMergeTimeMs": left})

    def _finish(self, key: tuple[str, str, LoadParameters], group: _Group) -> None:
        """Wait until the time of a group is over, and commit it."""
        transactions, live = self._transactions, group.live
        with self._changed:
            while not group.closed and (left := group.ends - transactions.now()) > 0:
                self._changed.wait(left / 1000)
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
