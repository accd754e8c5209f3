"""Works of many small commits: appends of 100 rows, and opening a table that has many of them behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from benchmarks.harness import expected
from benchmarks.harness.child import PeerFailed
from benchmarks.harness.data import Dataset, load_table
from benchmarks.harness.field import Field
from benchmarks.harness.measure import slope

ROWS, BLOCK = 100, 10
#: Who has spent this much in one sequence of appends stops there; and who is shown beside what was asked stops sooner.
SEQUENCE_SECONDS, BESIDE_SECONDS = 40.0, 15.0
#: A sequence that took less is run again, up to so many times in all.
REPEATED_SECONDS, SEQUENCES = 12.0, 3
#: Participant, peer and options; "filling" is the setting hoodie.parquet.small.file.limit, 0 when off.
Entry = tuple[str, str, dict[str, Any]]
APPENDERS: tuple[Entry, ...] = (
    ("lakefmt, durability none", "lakefmt", {"durability": "none", "filling": False}),
    ("lakefmt, durability fsync", "lakefmt", {"durability": "fsync", "filling": False}),
    ("lakefmt, none, filling on", "lakefmt", {"durability": "none", "filling": True}),
    ("lakefmt, fsync, filling on", "lakefmt", {"durability": "fsync", "filling": True}),
    ("pyarrow", "pyarrow", {}),
    ("deltalake", "deltalake", {}),
    ("ducklake", "ducklake", {}),
    ("pypaimon", "pypaimon", {}),
    ("pyiceberg", "pyiceberg", {}),
)


#: Peers whose sequences are run to the end; the others, and filling, stand beside them.
WHOLE = frozenset({"lakefmt", "pyarrow", "deltalake", "ducklake"})


@dataclass
class Appender:
    """One participant's commits so far."""

    label: str
    peer: str
    options: dict[str, Any]
    each: list[float]
    most: float = SEQUENCE_SECONDS
    calm: bool = True

    @property
    def spent(self) -> float:
        """Seconds inside its commits."""
        return sum(self.each)

    @property
    def may_spend(self) -> float:
        """Seconds after which it stops."""
        beside = self.peer not in WHOLE or self.options.get("filling")
        return min(self.most, BESIDE_SECONDS if beside else SEQUENCE_SECONDS)


def run_appends(
    stage: Field, data: Dataset, commits: int, entries: Sequence[Entry] | None = None, most: float = SEQUENCE_SECONDS
) -> dict[str, list[float]]:
    """Append `commits` batches, blocks of ten in turn; return every commit's seconds of the first sequence.

    Nobody of `entries` (default: APPENDERS) appends for longer than `most` seconds.
    """
    first: dict[str, list[float]] = {}
    again = [entry for entry in (APPENDERS if entries is None else entries) if stage.has(entry[1])]
    for number in range(min(stage.runs, SEQUENCES)):
        stage.say(f"{commits} commits of {ROWS} rows: sequence {number + 1} of {len(again)} participants")
        done = _sequence(stage, data, again, commits, most)
        for one in done:
            if len(one.each) < 2:
                continue
            stage.figure("append", one.label, "ms").add(1e3 * median(one.each), one.calm)
            steep = slope(one.each)
            if steep is not None:
                stage.figure("append, last ten over first ten", one.label, "×").add(steep, one.calm)
            if len(one.each) < commits:
                stage.figure("append", one.label).note = f"stopped after {len(one.each)} commits"
            first.setdefault(one.label, one.each)
        again = [(one.label, one.peer, one.options) for one in done if 0 < one.spent < REPEATED_SECONDS]
        again = [entry for entry in again if not entry[2].get("filling")]
        if not again:
            break
    return first


def _sequence(stage: Field, data: Dataset, entries: Sequence[Entry], commits: int, most: float) -> list[Appender]:
    running = [Appender(label, peer, options, [], most) for label, peer, options in entries]
    for one in running:
        with stage.attempt("append", one.label):
            stage.fresh(stage.child(one.label, one.peer), one.label, data, "small", **one.options)
    for begin in range(0, commits, BLOCK):
        for one in running:
            if stage.is_done("append", one.label) or one.spent > one.may_spend or len(one.each) < begin:
                continue
            with stage.attempt("append", one.label):
                _block(stage, data, one, begin, min(BLOCK, commits - begin))
    for one in running:
        if one.each:
            with stage.attempt("append", one.label):
                wanted = expected.of_part(data, "small", len(one.each) * ROWS)
                found = stage.child(one.label).ask("scan")["digest"]
                if found != wanted:
                    one.each.clear()
                    raise PeerFailed(f"rows after the appends: {found} instead of {wanted}")
    return running


def _block(stage: Field, data: Dataset, one: Appender, begin: int, count: int) -> None:
    # A block changes the table, so it is not repeated: that it was disturbed is noted.
    child = stage.child(one.label)
    before = stage.referee.job()
    answer = child.ask("appends", data=data.path("small"), first=begin, count=count, rows=ROWS)
    stage.referee.quickest = min(stage.referee.quickest, before)
    one.calm = one.calm and before <= 1.25 * stage.referee.quickest
    one.each += answer["each"]


def run_opens(stage: Field, data: Dataset, levels: tuple[int, ...]) -> None:
    """Open tables that have as many commits on their timeline as `levels` say; peers only the first level."""
    rows = load_table(data.path("small")).num_rows
    made: dict[str, int] = {}
    for level in levels:
        peers = stage.peers("lakefmt", "deltalake", "ducklake")
        peers = peers if level == levels[0] else peers[:1]
        work = f"open, {level:,} commits"
        for peer in peers:
            with stage.attempt(work, peer):
                _commit_until(stage, data, peer, made, level, rows)
        for _ in range(stage.runs):
            for peer in peers:
                if made.get(peer) == level and not stage.is_done(work, peer):
                    with stage.attempt(work, peer):
                        job = partial(stage.child(f"open {peer}").ask, "reopen", times=5)
                        answer, calm = stage.referee.run(job)
                        stage.figure(work, peer, "ms").add(1e3 * median(answer["each"]), calm)


def _commit_until(stage: Field, data: Dataset, peer: str, made: dict[str, int], level: int, rows: int) -> None:
    label = f"open {peer}"
    child = stage.child(label, peer)
    if peer not in made:
        # What is archived is not on the timeline that an open reads.
        options = {"filling": False, "archiving": False} if peer == "lakefmt" else {}
        stage.fresh(child, label, data, "small", **options)
        made[peer] = 0
    stage.say(f"{level:,} commits of {peer} to open")
    spent = 0.0
    while made[peer] < level:
        count = min(50, level - made[peer])
        spent += sum(
            child.ask("appends", data=data.path("small"), first=made[peer] % (rows - 50), count=count, rows=1)["each"]
        )
        made[peer] += count
        if spent > SEQUENCE_SECONDS and peer != "lakefmt":
            raise PeerFailed(f"{made[peer]} commits took {spent:.0f} s: not opened")
