"""Tables that are written, served, undone and read as streams in random order, against a list of their commits.

A stream hands out exactly the rows of the commits after its start, commit by commit, each once; a consumer goes on after the last
commit that it has kept. Where files were cleaned away it may say so, and nothing else.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.consumers.stream import StreamBatch, TableStream
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.memory import MemoryStore
from lakefmt.errors import CommitConflict, DataExpired, StateError

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
}
ARCHIVES = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
#: (record key, table type, table version)
TABLES = [(None, "cow", 8), (None, "cow", 6), ("id", "cow", 8), ("id", "mor", 9)]
ACTS = ["write"] * 6 + ["slow", "slow", "end slow", "compact", "cluster", "clean", "archive", "archive", "undo"]
ACTS += ["read"] * 4 + ["follow"] * 2 + ["pull"] * 3 + ["consume"] * 3

Change = tuple[str, int, str, int]
State = dict[tuple[int, str], int]


@dataclass
class Commit:
    """A commit as a reader is to see it."""

    instant: str
    time: str
    changes: list[Change]
    before: State
    after: State
    cleaned: bool = False


@dataclass
class Follower:
    """A stream that goes on, and what it is still to hand out: of the whole table first, then of commits after a time."""

    stream: TableStream
    after: str
    whole: Counter[Change] = field(default_factory=Counter)
    cleans: int = 0


class Walk:
    """A table and the list of its commits."""

    def __init__(self, seed: int, key: str | None, table_type: str, version: int) -> None:
        self.random = random.Random(f"{seed} {key} {table_type} {version}")
        self.keyed, self.table_type, self.version = key is not None, table_type, version
        self.store = MemoryStore(f"random-consumers-{next(NUMBERS)}")
        made: dict[str, Any] = {"record_key": key, "table_type": table_type} if key else {"kind": "append"}
        lakefmt.create_table(
            self.store.url, schema=SCHEMA, partition_by="p", table_version=version, options=OPTIONS, **made
        )
        self.commits: list[Commit] = []
        self.state: State = {}
        self.numbers = itertools.count(1)
        self.slow: list[tuple[lowlevel.WriteContext, list[lowlevel.WriteStatus], list[Change]]] = []
        self.followers: list[Follower] = []
        self.kept: str | None = None
        self.cleans = 0

    def table(self) -> lakefmt.Table:
        return lakefmt.Table(TableClient(self.store, dict(OPTIONS)))

    # --- writing -----------------------------------------------------------------------------------------------------

    def note(self, result: Any, changes: list[Change]) -> None:
        after = dict(self.state)
        for op, key, place, value in changes:
            after[key, place] = value
            if op == "d":
                del after[key, place]
        time = result.instant if self.version == 6 else result.completion_time
        self.commits.append(Commit(result.instant, time, changes, self.state, after))
        self.commits.sort(key=lambda commit: commit.time)
        self.state = after

    def new_rows(self) -> list[Change]:
        changes: dict[tuple[int, str], Change] = {}
        for _ in range(self.random.randint(1, 5)):
            number = next(self.numbers)
            key, place = self.random.randint(0, 6) if self.keyed else number, self.random.choice("abc")
            changes[key, place] = ("u" if self.keyed and (key, place) in self.state else "i", key, place, number)
        return list(changes.values())

    def write(self) -> None:
        stored = sorted(self.state)
        if self.keyed and stored and self.random.random() < 0.3:
            places = self.random.sample(stored, min(2, len(stored)))
            keys = pa.table({"id": [key for key, _ in places], "p": [place for _, place in places]})
            self.note(self.table().delete(keys), [("d", *place, self.state[place]) for place in places])
            return
        changes = self.new_rows()
        table = self.table()
        self.note((table.upsert if self.keyed else table.insert)(as_rows(changes)), changes)

    def begin_slow(self) -> None:
        if self.keyed or self.slow:
            return
        # Into a partition that no other writes to: it never conflicts.
        changes = [("i", next(self.numbers), "d", next(self.numbers)) for _ in range(2)]
        context = lowlevel.begin_write(self.table(), "insert")
        work = lowlevel.assign(context, as_rows(changes))
        self.slow.append((context, [lowlevel.write_files(context, *each) for each in work], changes))

    def end_slow(self) -> None:
        if self.slow:
            context, statuses, changes = self.slow.pop()
            try:
                self.note(lowlevel.commit(context, statuses), changes)
            except CommitConflict:  # with a clustering
                lowlevel.abort(context)

    def undo(self) -> None:
        if not self.commits or self.slow:
            return
        self.end_followers()
        try:
            if self.random.random() < 0.5:
                self.table().rollback(self.commits[-1].instant)
                self.state = self.commits.pop().before
            else:
                chosen = self.random.choice(self.commits)
                self.table().restore(chosen.instant)
                self.commits = [commit for commit in self.commits if commit.time <= chosen.time]
                self.state = chosen.after
        except StateError:
            return  # what was before it is archived or cleaned away
        finally:
            self.kept = None

    def serve(self, act: str) -> None:
        if act == "archive":
            self.table().archive(options=ARCHIVES)
        elif act == "clean":
            result = self.table().clean(options={"hoodie.clean.commits.retained": self.random.randint(1, 3)})
            if result.files_deleted:
                self.cleans += 1
                for commit in self.commits:
                    commit.cleaned = True
        elif act == "compact" and self.table_type == "cow":
            return
        else:
            result = getattr(self.table(), act)()
            if result.instant is not None:
                self.note(result, [])

    # --- reading -----------------------------------------------------------------------------------------------------

    def expected(self, after: str) -> list[Commit]:
        return [commit for commit in self.commits if commit.time > after and commit.changes]

    def newest(self) -> str:
        return self.commits[-1].time if self.commits else "000"

    def all_rows(self) -> Counter[Change]:
        return Counter(("i", *place, value) for place, value in self.state.items())

    @property
    def is_behind(self) -> bool:
        """In version 6 a commit waits for those that began before it."""
        return bool(self.slow) and self.version == 6

    def check(self, batches: list[StreamBatch], wanted: list[Commit]) -> None:
        taken = [(each.instant, list(rows)) for each, rows in ((each, changes_of(each)) for each in batches)]
        grouped = [
            (instant, [change for _, changes in group for change in changes])
            for instant, group in itertools.groupby(taken, key=lambda each: each[0])
        ]
        assert [instant for instant, _ in grouped] == [commit.instant for commit in wanted]
        for (_, changes), commit in zip(grouped, wanted, strict=True):
            assert Counter(changes) == Counter(commit.changes)

    def read(self) -> None:
        if self.is_behind:
            return
        start = self.random.choice(["earliest", "full", "latest", "000", *(commit.time for commit in self.commits)])
        how: dict[str, Any] = {"follow": False, "max_batches": self.random.choice([0, 3])}
        wanted = self.expected({"earliest": "000", "latest": self.newest(), "full": self.newest()}.get(start, start))
        batches: list[StreamBatch] = []
        position = None
        try:
            while True:
                stream = self.table().stream(start if position is None else {"offset": position}, **how)
                with stream:
                    stops = self.random.randint(1, 6)
                    some = list(itertools.islice(stream, stops))
                    batches, position = batches + some, stream.position
                if len(some) < stops:
                    break
        except DataExpired:
            assert start != "earliest"
            assert any(commit.cleaned for commit in wanted)
            return
        if start == "full":
            assert Counter(itertools.chain.from_iterable(map(changes_of, batches))) == self.all_rows()
            return
        if start == "earliest" and any(commit.cleaned for commit in wanted):
            instants = {batch.instant for batch in batches}
            wanted = list(itertools.dropwhile(lambda commit: commit.instant not in instants, wanted))
        self.check(batches, wanted)

    def follow(self) -> None:
        if len(self.followers) < 2 and not self.is_behind:
            start = self.random.choice(["latest", "full"])
            stream = self.table().stream(start, poll_interval=0.001, max_batches=self.random.choice([0, 2]))
            whole = self.all_rows() if start == "full" and self.commits else Counter[Change]()
            self.followers.append(Follower(stream, self.newest(), whole, self.cleans))
            if self.random.random() < 0.5:
                self.end_slow()  # before the stream has read the table

    def pull(self) -> None:
        if not self.followers or self.is_behind:
            return
        follower = self.random.choice(self.followers)
        if follower.cleans < self.cleans:  # nothing is kept for it
            self.followers.remove(follower)
            follower.stream.close()
            return
        take(follower.stream, follower.whole)
        follower.whole = Counter()
        for commit in self.expected(follower.after):
            take(follower.stream, Counter(commit.changes))
            follower.after = commit.time

    def end_followers(self) -> None:
        for follower in self.followers:
            follower.stream.close()
        self.followers.clear()

    def consume(self) -> None:
        """A consumer reads some batches, keeps its progress or not, and goes away; nothing is cleaned that it has not read."""
        if self.is_behind:
            return
        is_new = self.kept is None
        after = self.newest() if self.kept is None else self.kept
        wanted = self.expected(after)
        with self.table().stream(
            "latest", consumer_id="c", follow=False, takeover=True, ignore_progress=is_new, max_batches=0
        ) as stream:
            batches = []
            for commit in wanted[: self.random.randint(0, len(wanted))]:
                take(stream, Counter(commit.changes), batches)
                if self.random.random() < 0.7:
                    stream.commit()
                    after = commit.time
        self.kept = after

    def step(self) -> None:
        act = self.random.choice(ACTS)
        if act in ("compact", "cluster", "clean", "archive"):
            self.serve(act)
        else:
            acts = {"slow": self.begin_slow, "end slow": self.end_slow}
            (acts.get(act) or getattr(self, act))()


def as_rows(changes: list[Change]) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "p": place, "v": value} for _, key, place, value in changes], SCHEMA)


def changes_of(batch: StreamBatch) -> list[Change]:
    return [(row.get("op", "i"), row["id"], row["p"], row["v"]) for row in batch.rows.to_pylist()]


def take(stream: TableStream, wanted: Counter[Change], batches: list[StreamBatch] | None = None) -> None:
    """Take batches until all of some changes have come; no other one comes between them."""
    left = wanted.copy()
    while left:
        batch = next(stream)
        changes = Counter(changes_of(batch))
        assert changes <= left
        left -= changes
        if batches is not None:
            batches.append(batch)


@pytest.mark.parametrize(("key", "table_type", "version"), TABLES)
@pytest.mark.parametrize("seed", [0, 6, 7])
def test_streams_hand_out_each_commit_once(seed: int, key: str | None, table_type: str, version: int) -> None:
    walk = Walk(seed, key, table_type, version)
    try:
        for _ in range(30):
            walk.step()
    finally:
        walk.end_followers()
        for context, _, _ in walk.slow:
            lowlevel.abort(context)
