"""Record what several writers do to a table, and check that the history is serializable.

Commits are ordered by completion. A history is valid if

* every read saw the table after some prefix of them, between its own start and its own end;
* every acknowledged write is among them once, no refused one is, and one with a lost answer may be;
* the final table is the result of the writes in this order: no key is lost or doubled;
* no writer with signs of life was rolled back;
* after the next writer and the next clean nothing is left of dead writers, and the invariants of
  :mod:`lakefmt.testing.invariants` hold.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import field
from typing import Final

import pyarrow as pa

from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.pending_plans import pending_clusterings
from lakefmt._core.table import Table
from lakefmt._core.values import InstantTime
from lakefmt.errors import (
    CommitConflict,
    InstantNotPending,
    LeaseLost,
    LockUnavailable,
    SnapshotExpired,
    StorageError,
    WriterActive,
)
from lakefmt.testing.invariants import View, check_invariants, check_no_orphans
from lakefmt.testing.model import ModelTable
from lakefmt.testing.operations import TableShape, Verb
from lakefmt.testing.store_wrapper import SimulatedCrash

__all__ = ["Read", "RecordedHistory", "Tried", "check_history"]

_NUMBERED_STORE = re.compile(r"memory://#[0-9]+")

#: Name patterns of files that complete a write, in both timeline layouts.
_COMPLETED: Final = re.compile(r"^\.hoodie/(timeline/)?(\d{17})(_\d{17})?\.(commit|deltacommit|replacecommit)$")
#: Errors after which nothing was written.
_REFUSED: Final = (CommitConflict, InstantNotPending, LeaseLost, LockUnavailable, SnapshotExpired, WriterActive)
_UNKNOWN: Final = (StorageError, SimulatedCrash)
_CLAIMED: Final = re.compile(r"(p\d+) put_if_absent \.hoodie/\.heartbeat/(\d{17})$", re.MULTILINE)
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class Read:
    """The result of a read; the number of completed commits at its start and end."""

    rows: pa.Table
    begun: int
    ended: int


@dataclass(slots=True)
class Tried:
    """A call of a writer.

    Attributes:
        name: the name of the call, stored in its commit.
        verb: the operation; None: a table service.
        process: the caller.
        acknowledged: it returned.
        error: the raised error.
        begun: start of the call in seconds; `ended`: its end.
    """

    name: str
    verb: Verb | None
    process: int
    acknowledged: bool = False
    error: BaseException | None = None
    begun: float = 0.0
    ended: float = 0.0


@dataclass
class RecordedHistory:
    """The history of one table.

    Attributes:
        seed: the seed of the simulation.
        shape: the table.
        scene_lock: the name of the lock.
        trace: all steps in order.
        completions: requested times of completed writes, in order.
        tried: all calls.
        reads: the results of readers.
        differences: what the metadata table's listing did not give as that of storage.
        unlucky: processes that lost a request or an answer, and may be taken for dead.
    """

    seed: int
    shape: TableShape
    scene_lock: str
    trace: list[str] = field(default_factory=list)
    completions: list[str] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    failed_reads: list[Exception] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    unlucky: set[int] = field(default_factory=set)
    table: Table | None = None

    def is_completion(self, name: str) -> bool:
        """Return whether an object's name completes a write."""
        return _COMPLETED.match(name) is not None

    def note(self, now: float, process: int, kind: str, name: str, applied: bool) -> None:
        """Record an effect."""
        self.say(now, process, f"{kind} {name}{'' if applied else ' (refused)'}")
        completed = _COMPLETED.match(name) if applied and "put" in kind else None
        if completed is not None:
            self.completions.append(completed[2])

    def say(self, now: float, process: int, text: str) -> None:
        """Record a step."""
        # Stores in memory are numbered: the same seed gives the same text, however many there were before.
        self.trace.append(f"{now:9.3f} p{process} {_NUMBERED_STORE.sub('memory://', text)}")

    def load(self, verb: Verb, table: Table) -> None:
        """Write the first rows, before the other writers start."""
        verb.run(self.shape, table)
        self.tried.append(Tried("load", verb, 1, acknowledged=True))
        self._of_setup(table, "load")

    def _of_setup(self, table: Table, name: str) -> None:
        # Nothing is recorded while no program runs.
        newest = table.timeline.timeline.latest_commit
        assert newest is not None, f"{name} made no commit"
        self.completions.append(newest.time)

    def tidy(self, table: Table) -> None:
        """Run recovery, pending clusterings, compaction and clean, long after all writers have ended or died."""
        self.table = table
        last = {"id": "last", "city": "sf", "ts": 1, "v": 1}
        verb = Verb("upsert", rows=(last,), how={"commit_metadata": {"simulated": "last"}})
        verb.run(self.shape, table)
        self.tried.append(Tried("last", verb, 0, acknowledged=True))
        self._of_setup(table, "last")
        for pending in pending_clusterings(table.client.at(table.client.load())):
            table.cluster(run=pending.time)
        if self.shape.table_type == "mor":
            table.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
        table.clean(options={"hoodie.clean.commits.retained": 1})


def check_history(history: RecordedHistory) -> None:
    """Check a history.

    Raises:
        AssertionError: the history is not serializable; the message has the seed, the scene and the
            last steps.
    """
    try:
        _check(history)
    except AssertionError as error:
        shape = history.shape
        scene = f"version {shape.table_version}, {shape.table_type}, ordering {shape.ordering}, {history.scene_lock}"
        lines = "\n".join(compact_trace(history.trace)[-_SHOWN:])
        raise AssertionError(f"seed {history.seed} ({scene}): {error}\n{lines}") from None


def compact_trace(trace: list[str]) -> list[str]:
    """Return the main steps: calls, faults and timeline changes."""
    wanted = re.compile(r" p\d+ (begins|died|paused|answer|request|w\d|read)|\.(requested|inflight|commit|deltacommit)")
    return [line for line in trace if wanted.search(line) and "heartbeat" not in line]


def _check(history: RecordedHistory) -> None:
    table = history.table
    assert table is not None, "the history was not tidied up"
    assert not history.differences, "\n".join(history.differences)
    names = _check_calls(history, table)
    states = _states(history, names)
    for read in history.reads:
        seen = _content(read.rows)
        fits = any(states[number] == seen for number in range(read.begun, read.ended + 1))
        assert fits, f"a read saw {_difference(states[read.ended], seen)} against the state after {read.ended} commits"
    for error in history.failed_reads:
        assert isinstance(error, SnapshotExpired | StorageError), f"a read failed: {error!r}"
    content = _content(table.read())
    assert content == states[-1], f"in the end: {_difference(states[-1], content)}"
    if history.shape.table_type == "cow":  # the invariants do not cover logs
        check_invariants(table)
    _forgive(history, table)
    check_no_orphans(table)


def _forgive(history: RecordedHistory, table: Table) -> None:
    """Remove the files of writers that were paused, rolled back, continued and died: no writer can know of those."""
    paused, died = ({line.split()[1] for line in history.trace if f" {word} " in line} for word in ("paused", "died"))
    claimed = {time: who for who, time in _CLAIMED.findall("\n".join(history.trace)) if who in paused & died}
    # A service that such a writer began may have been finished while everything was tidied up.
    finished = {instant.time for instant in table.timeline.timeline.completed}
    undone = {time for time in claimed if time not in history.completions and time not in finished}
    names = [info.name for info in table.client.store.list() if not info.name.startswith(".hoodie/")]
    table.client.store.delete(name for name in names if any(time in name for time in undone))


def _check_calls(history: RecordedHistory, table: Table) -> list[str | None]:
    """Compare results of calls with completed commits; return the calls' names in order of completion."""
    view = View.of(table)
    calls_by_time = {i.time: commit.extra_metadata.get("simulated") for i, commit in view.commits}
    missing = [time for time in history.completions if time not in calls_by_time]
    assert not missing, f"instants {missing} completed and are on the timeline no more"
    names = [calls_by_time[InstantTime(time)] for time in history.completions]
    counted = Counter(name for name in names if name is not None)
    for tried in history.tried:
        times = counted[tried.name] if tried.verb is not None else 0
        assert times <= 1, f"{tried.name} was committed {times} times"
        if tried.verb is not None and tried.acknowledged:
            assert times == 1, f"{tried.name} was acknowledged, and is not on the timeline"
        if tried.error is None:
            continue
        assert isinstance(tried.error, _REFUSED + _UNKNOWN), f"{tried.name} failed: {tried.error!r}"
        if isinstance(tried.error, _REFUSED):
            assert times == 0, f"{tried.name} was refused ({tried.error!r}), and committed"
        if isinstance(tried.error, InstantNotPending):
            _check_was_silent(history, tried)
    return names


def _check_was_silent(history: RecordedHistory, tried: Tried) -> None:
    """Only a writer without signs of life for long enough may be rolled back.

    A process that took a table service over may find that the one before it woke and completed it.
    """
    if tried.verb is None and "another process completed it" in str(tried.error):
        return
    paused = any(f" p{tried.process} paused" in line for line in history.trace)
    assert paused or tried.process in history.unlucky, f"{tried.name} was undone while it showed signs of life"


def _states(history: RecordedHistory, names: list[str | None]) -> list[dict[object, int]]:
    """Return the table's content after each prefix of the commits; 0: before the first."""
    verbs = {tried.name: tried.verb for tried in history.tried}
    model: ModelTable = history.shape.model()
    states = [_rows(model)]
    for name in names:
        verb = None if name is None else verbs[name]
        if verb is not None:
            verb.play(model)
        states.append(_rows(model))
    return states


def _rows(model: ModelTable) -> dict[object, int]:
    return dict(Counter((r["id"], r["city"], r["ts"], r["v"]) for r in model.rows()))


def _content(rows: pa.Table) -> dict[object, int]:
    columns = [rows.column(name).to_pylist() for name in ("id", "city", "ts", "v")]
    return dict(Counter(zip(*columns, strict=True)))


def _difference(expected: dict[object, int], actual: dict[object, int]) -> str:
    missing, more = Counter(expected) - Counter(actual), Counter(actual) - Counter(expected)
    return f"missing {sorted(map(str, missing.elements()))}, too many {sorted(map(str, more.elements()))}"
