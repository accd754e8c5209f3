"""What several writers did to one table, and whether it may have happened.

The commits of a table have an order: that in which they completed. A history is right when

* every read saw the table as it was after some prefix of them, no older than when it began and no newer than when it ended;
* every acknowledged write is among them, once; every refused one is not; one whose answer was lost may be either;
* after the last one the table holds what the writes do one after the other: no key is lost, none doubled;
* nobody was undone who showed signs of life;
* once the next writer and the next clean came by, nothing is left of who died, and the laws of
  :mod:`lakefmt.testing.invariants` hold.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from lakefmt.errors import (
    CommitConflict,
    InstantNotPending,
    LeaseLost,
    LockUnavailable,
    SnapshotExpired,
    StorageError,
    WriterActive,
)
from lakefmt.table import Table
from lakefmt.testing.invariants import View, check_invariants, check_no_orphans
from lakefmt.testing.model import ModelTable
from lakefmt.testing.operations import TableShape, Verb
from lakefmt.testing.store_wrapper import SimulatedCrash
from lakefmt.values import InstantTime

__all__ = ["Read", "RecordedHistory", "Tried", "check_history"]

#: Names of the files that complete a write, in both timeline layouts.
_COMPLETED: Final = re.compile(r"^\.hoodie/(timeline/)?(\d{17})(_\d{17})?\.(commit|deltacommit|replacecommit)$")
#: Refusals: whoever gets one knows that nothing was written.
_REFUSED: Final = (CommitConflict, InstantNotPending, LeaseLost, LockUnavailable, SnapshotExpired, WriterActive)
_UNKNOWN: Final = (StorageError, SimulatedCrash)
_CLAIMED: Final = re.compile(r"(p\d+) put_if_absent \.hoodie/\.heartbeat/(\d{17})$", re.MULTILINE)
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class Read:
    """What a reader saw; how many commits had completed when it began and when it ended."""

    rows: pa.Table
    begun: int
    ended: int


@dataclass(slots=True)
class Tried:
    """One call of a writer.

    Attributes:
        name: of the call; commits are known by it.
        verb: what was written; None: a service.
        process: who called.
        acknowledged: it returned.
        error: what it raised.
        begun: when it was called, in seconds; `ended`: when it returned.
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
    """What happened to one table.

    Attributes:
        seed: what it was made from.
        shape: the table.
        scene_lock: the lock's name.
        trace: what everybody did, in order.
        completions: requested times of the writes that became visible, in that order.
        tried: every call.
        reads: what readers saw.
        unlucky: processes that lost a request or an answer, so that they may be taken for dead.
    """

    seed: int
    shape: TableShape
    scene_lock: str
    trace: list[str] = field(default_factory=list)
    completions: list[str] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    failed_reads: list[Exception] = field(default_factory=list)
    unlucky: set[int] = field(default_factory=set)
    table: Table | None = None

    def is_completion(self, name: str) -> bool:
        """Return whether an object's name makes a write visible."""
        return _COMPLETED.match(name) is not None

    def note(self, now: float, process: int, kind: str, name: str, applied: bool) -> None:
        """Take down one effect."""
        self.say(now, process, f"{kind} {name}{'' if applied else ' (refused)'}")
        completed = _COMPLETED.match(name) if applied and "put" in kind else None
        if completed is not None:
            self.completions.append(completed[2])

    def say(self, now: float, process: int, text: str) -> None:
        """Take down something."""
        self.trace.append(f"{now:9.3f} p{process} {text}")

    def load(self, verb: Verb, table: Table) -> None:
        """Write the first rows, while nobody is beside."""
        verb.run(self.shape, table)
        self.tried.append(Tried("load", verb, 1, acknowledged=True))
        self._of_setup(table, "load")

    def _of_setup(self, table: Table, name: str) -> None:
        # Nothing is noted of what happens while no program runs.
        newest = table.timeline.timeline.latest_commit
        assert newest is not None, f"{name} made no commit"
        self.completions.append(newest.time)

    def tidy(self, table: Table) -> None:
        """Do what the next writer, compaction and clean do, long after everybody is done or dead."""
        self.table = table
        last = {"id": "last", "city": "sf", "ts": 1, "v": 1}
        verb = Verb("upsert", rows=(last,), how={"commit_metadata": {"simulated": "last"}})
        verb.run(self.shape, table)
        self.tried.append(Tried("last", verb, 0, acknowledged=True))
        self._of_setup(table, "last")
        if self.shape.table_type == "mor":
            table.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
        table.clean(options={"hoodie.clean.commits.retained": 1})


def check_history(history: RecordedHistory) -> None:
    """Judge a history.

    Raises:
        AssertionError: it cannot have happened if writers were kept apart; the seed, the scene and the last steps are told.
    """
    try:
        _check(history)
    except AssertionError as error:
        shape = history.shape
        scene = f"version {shape.table_version}, {shape.table_type}, ordering {shape.ordering}, {history.scene_lock}"
        lines = "\n".join(compact_trace(history.trace)[-_SHOWN:])
        raise AssertionError(f"seed {history.seed} ({scene}): {error}\n{lines}") from None


def compact_trace(trace: list[str]) -> list[str]:
    """Return the steps that people look at: calls, mishaps and what happens on the timeline."""
    wanted = re.compile(r" p\d+ (begins|died|paused|answer|request|w\d|read)|\.(requested|inflight|commit|deltacommit)")
    return [line for line in trace if wanted.search(line) and "heartbeat" not in line]


def _check(history: RecordedHistory) -> None:
    table = history.table
    assert table is not None, "the history was not tidied up"
    names = _check_calls(history, table)
    states = _states(history, names)
    for read in history.reads:
        seen = _content(read.rows)
        fits = any(states[number] == seen for number in range(read.begun, read.ended + 1))
        assert fits, f"a read saw {_difference(states[read.ended], seen)} against the state after {read.ended} commits"
    for error in history.failed_reads:
        assert isinstance(error, SnapshotExpired | StorageError), f"a read failed: {error!r}"
    found = _content(table.read())
    assert found == states[-1], f"in the end: {_difference(states[-1], found)}"
    if history.shape.table_type == "cow":  # the laws know nothing of logs
        check_invariants(table)
    _forgive(history, table)
    check_no_orphans(table)


def _forgive(history: RecordedHistory, table: Table) -> None:
    """Remove the files of writers that were paused, undone meanwhile, wrote on and died: nobody can know of those."""
    paused, died = ({line.split()[1] for line in history.trace if f" {word} " in line} for word in ("paused", "died"))
    claimed = {time: who for who, time in _CLAIMED.findall("\n".join(history.trace)) if who in paused & died}
    undone = {time for time in claimed if time not in history.completions}
    names = [found.name for found in table.client.store.list() if not found.name.startswith(".hoodie/")]
    table.client.store.delete(name for name in names if any(time in name for time in undone))


def _check_calls(history: RecordedHistory, table: Table) -> list[str | None]:
    """Compare what callers were told with what completed; return the calls' names in the order of completion."""
    view = View.of(table)
    said = {i.time: commit.extra_metadata.get("simulated") for i, commit in view.commits}
    gone = [time for time in history.completions if time not in said]
    assert not gone, f"instants {gone} completed and are on the timeline no more"
    names = [said[InstantTime(time)] for time in history.completions]
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
    """Only who showed no sign of life for long enough may be undone."""
    paused = any(f" p{tried.process} paused" in line for line in history.trace)
    assert paused or tried.process in history.unlucky, f"{tried.name} was undone while it showed signs of life"


def _states(history: RecordedHistory, names: list[str | None]) -> list[dict[object, int]]:
    """Return the table's content after each prefix of the commits; 0: before the first one."""
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


def _difference(expected: dict[object, int], found: dict[object, int]) -> str:
    missing, more = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    return f"missing {sorted(map(str, missing.elements()))}, too many {sorted(map(str, more.elements()))}"
