"""Whatever was loaded when: a query has exactly the rows of its state, or says that they are gone.

Random stories of writes, services, archives and rollbacks. Snapshots, increments and changes of every moment are asked again
while cleans go over their files and are archived themselves.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.read.snapshot import Snapshot
from lakefmt._core.timeline.instant import Action
from lakefmt.errors import CommitConflict, InstantNotFound, SnapshotExpired
from tests.example_counts import examples

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64())])
NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.parquet.small.file.limit": 0,
}
FEW_COMMITS: dict[str, object] = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
KINDS = [(kind, version) for kind in ("cow", "mor") for version in (6, 8, 9)]
Row = tuple[str, str, int]


def rows(ids: list[str], v: int) -> pa.Table:
    return pa.table({"id": ids, "p": [f"p{ord(i) % 2}" for i in ids], "v": [v] * len(ids)}, schema=SCHEMA)


@dataclass
class Moment:
    """What the table was after a commit: (row, the commit that wrote it) by key."""

    instant: str
    end: str
    stored: dict[str, tuple[Row, str]]
    pinned: Snapshot


@dataclass
class Story:
    """A table and what it was at each of its commits."""

    table: lakefmt.Table
    dice: random.Random
    moments: list[Moment] = field(default_factory=list)
    stored: dict[str, tuple[Row, str]] = field(default_factory=dict)
    plans: list[str] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    value: int = 0

    def commit(self, result: Any, change: Callable[[str], None]) -> None:
        if result.instant is None:
            return
        change(result.instant)
        # A snapshot of another handle: it shares no cache with the writer.
        pinned = lakefmt.open_table(self.table.client.store.url).snapshot()
        end = result.instant if self.table.properties.version.layout == 1 else result.completion_time
        self.moments.append(Moment(result.instant, end, dict(self.stored), pinned))

    def upsert(self) -> None:
        self.value += 1
        ids = self.dice.sample(sorted(set("abcdefghij") - self.deleted), self.dice.randint(1, 3))
        batch = rows(ids, self.value)
        new = {row["id"]: (row["id"], row["p"], row["v"]) for row in batch.to_pylist()}
        self.commit(
            self.table.upsert(batch), lambda instant: self.stored.update({i: (r, instant) for i, r in new.items()})
        )

    def delete(self) -> None:
        key = self.dice.choice("abcdef")
        if key in self.stored:
            self.deleted.add(key)
            self.commit(self.table.delete([key]), lambda _: self.stored.pop(key))

    def delete_partition(self) -> None:
        path = self.dice.choice([f"p={name}" for name in ("p0", "p1")])
        gone = [key for key, (row, _) in self.stored.items() if f"p={row[1]}" == path]
        if gone and len(gone) < len(self.stored) and not self.plans:
            self.commit(self.table.delete_partitions([path]), lambda _: [self.stored.pop(key) for key in gone])

    def service(self) -> None:
        """Plan or run a compaction (of copy-on-write tables a clustering)."""
        run = self.table.compact if self.table.properties.table_type.value == "MERGE_ON_READ" else self.table.cluster
        if self.plans and self.dice.random() < 0.7:
            run(run=self.plans.pop())
        elif not self.plans:
            planned = run(schedule=True, options={"hoodie.compact.inline.max.delta.commits": 1})
            self.plans += [planned.instant] if planned.instant else []

    def clean(self) -> None:
        self.table.clean(options={"hoodie.clean.commits.retained": self.dice.choice([1, 1, 2, 4])})

    def archive(self) -> None:
        if self.dice.random() < 0.5:
            self.table.archive(options={**FEW_COMMITS, "hoodie.clean.commits.retained": 1})

    def step(self) -> None:
        steps = [self.upsert] * 6 + [self.delete] * 2 + [self.delete_partition, self.service, self.service]
        with suppress(CommitConflict):  # a clustering that is planned has these rows
            self.dice.choice([*steps, self.clean, self.clean, self.archive])()

    def wrong(self) -> list[str]:
        """Ask moments, and ranges between them; return what was answered wrongly."""
        asked: list[tuple[str, Callable[[], list[Row]], list[Row]]] = []
        for moment in self.dice.sample(self.moments, min(3, len(self.moments))):
            now = sorted(row for row, _ in moment.stored.values())
            path = self.dice.choice(["p0", "p1"])
            of_path = [row for row in now if row[1] == path]
            pinned = moment.pinned
            asked += [
                (f"snapshot {moment.instant}", lambda pinned=pinned: told(pinned.read()), now),
                (
                    f"{path} of {moment.instant}",
                    lambda pinned=pinned, path=path: told(pinned.read(filter=f"p = '{path}'")),
                    of_path,
                ),
                (f"as of {moment.instant}", lambda i=moment.instant: told(self.table.read(as_of=i)), now),
            ]
        if len(self.moments) > 1:
            first, last = sorted(self.dice.sample(range(len(self.moments)), 2))
            start, end = self.moments[first], self.moments[last]
            within = {m.instant for m in self.moments[first + 1 : last + 1]}
            news = sorted(row for row, commit in end.stored.values() if commit in within)
            asked.append((f"{start.end}..{end.end}", lambda: told(self.table.incremental(start.end, end.end)), news))
            asked.append(
                (
                    f"changes {start.end}..{end.end}",
                    lambda: applied(start, self.table.changes(start.end, end.end)),
                    sorted(row for row, _ in end.stored.values()),
                )
            )
        return [fault for name, ask, right in asked if (fault := compared(name, ask, right))]


def told(table: pa.Table) -> list[Row]:
    return sorted((row["id"], row["p"], row["v"]) for row in table.to_pylist())


def applied(start: Moment, changes: pa.Table) -> list[Row]:
    left = {row[0]: row for row, _ in start.stored.values()}
    for change in changes.to_pylist():
        if change["op"] == "d":
            left.pop(change["before"]["id"])
        else:
            after = change["after"]
            left[after["id"]] = (after["id"], after["p"], after["v"])
    return sorted(left.values())


def compared(name: str, ask: Callable[[], list[Row]], right: list[Row]) -> str:
    try:
        found = ask()
    except (SnapshotExpired, InstantNotFound):
        return ""
    return "" if found == right else f"{name}: {found} instead of {right}"


def begin(kind: str, version: int, indexes: list[str] | None, seed: int) -> Story:
    table = lakefmt.create_table(
        f"memory://long-after-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="p",
        table_type=kind,
        table_version=version,
        indexes=indexes,
        options=OPTIONS,
    )
    return Story(table, random.Random(seed))


@pytest.mark.slow
@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_a_query_of_any_moment_has_its_rows_or_says_that_they_are_gone(kind: str, version: int) -> None:
    for seed in range(1, 1 + examples(1)):
        story = begin(kind, version, ["column_stats"] if seed % 4 == 3 else None, seed)
        for number in range(36):
            story.step()
            faults = story.wrong() if number % 4 == 3 else []
            assert not faults, f"seed {seed} after {number}: {faults}"


# --- the inputs that showed it ----------------------------------------------------------------------------------------

SMALL: dict[str, object] = {
    **OPTIONS,
    **FEW_COMMITS,
    "hoodie.clean.automatic": True,
    "hoodie.archive.automatic": True,
    "hoodie.clean.commits.retained": 1,
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "InProcessLockProvider",
}


def busy(url: str, commits: int = 9) -> None:
    """Write, clean and archive in one partition until nothing on the timeline tells of the cleans that took its first files."""
    merges = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 1}
    other = lakefmt.open_table(url, options={**SMALL, **merges})
    for value in range(commits):
        other.upsert(rows(["b"], 100 + value))
    archived = other.client.at(other.client.load()).with_history().timeline.archived
    assert any(i.action is Action.CLEAN for i in archived)


def two_partitions(kind: str, version: int) -> lakefmt.Table:
    made = begin(kind, version, None, 0).table
    made.upsert(rows(["b", "d"], 1))
    made.upsert(rows(["a"], 1))
    return lakefmt.open_table(
        made.client.store.url,
        options={**SMALL, "hoodie.compact.inline": kind == "mor", "hoodie.compact.inline.max.delta.commits": 1},
    )


@pytest.mark.parametrize(("kind", "version"), [("cow", 8), ("mor", 8), ("cow", 6)])
def test_a_snapshot_is_expired_although_the_clean_is_archived(kind: str, version: int) -> None:
    table = two_partitions(kind, version)
    pinned = table.snapshot()
    one_file = "d" if kind == "mor" else "b"
    for value in range(9):
        table.upsert(rows(["b", "d"], value))
    for ask in (pinned.read, lambda: pinned.read(filter=f"id = '{one_file}'"), lambda: pinned.read(filter="p = 'p0'")):
        with pytest.raises(SnapshotExpired):
            ask()
    assert told(pinned.read(filter="p = 'p1'")) == [("a", "p1", 1)]


@pytest.mark.parametrize("verb", ["read", "update", "delete"])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_call_that_stalled_after_it_loaded_the_timeline_acts_on_the_newest_state(
    kind: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, stalls = two_partitions(kind, 8), [True]
    load = TableClient.load

    def stall(client: TableClient, **how: bool) -> TableState:
        state = load(client, **how)
        if client is table.client and stalls.pop():
            stalls.append(False)
            busy(table.client.store.url)
        elif client is table.client:
            stalls.append(False)
        return state

    monkeypatch.setattr(TableClient, "load", stall)
    if verb == "update":
        table.update("id = 'd'", {"v": 99})
    elif verb == "delete":
        table.delete("id = 'd'")
    else:
        assert told(table.read(filter="id = 'd'")) == [("d", "p0", 1)]
    monkeypatch.undo()
    now = {row[0]: row[2] for row in told(lakefmt.open_table(table.client.store.url).read())}
    assert now == {"a": 1, "b": 108} | {"read": {"d": 1}, "update": {"d": 99}, "delete": {}}[verb]


@pytest.mark.parametrize("version", [8, 9])
def test_an_increment_that_ends_before_a_compaction_completed_misses_what_a_clean_took(version: int) -> None:
    table = begin("mor", version, None, 0).table
    first = table.upsert(rows(["b", "d"], 1))
    table.upsert(rows(["b", "d"], 2))
    plan = table.compact(schedule=True, options={"hoodie.compact.inline.max.delta.commits": 1})
    last = table.upsert(rows(["a"], 3))
    table.compact(run=plan.instant)
    news = [("a", "p1", 3), ("b", "p0", 2), ("d", "p0", 2)]
    assert first.completion_time is not None
    table.clean(options={"hoodie.clean.commits.retained": 2})
    assert told(table.incremental(first.completion_time, last.completion_time)) == news
    table.clean(options={"hoodie.clean.commits.retained": 1})
    with pytest.raises(SnapshotExpired):
        table.incremental(first.completion_time, last.completion_time)
    with pytest.raises(SnapshotExpired):
        table.changes(first.completion_time, last.completion_time)
    assert told(table.incremental(first.completion_time)) == news


def test_a_state_is_not_promised_by_the_newest_clean_alone() -> None:
    table = begin("cow", 8, None, 0).table
    done = [table.upsert(rows(["b"], value)) for value in range(5)]
    table.clean(options={"hoodie.clean.commits.retained": 1})
    table.upsert(rows(["b"], 5))
    table.clean(options={"hoodie.clean.commits.retained": 4})
    with pytest.raises(SnapshotExpired):
        table.read(as_of=done[2].instant)
    assert told(table.read(as_of=done[4].instant)) == [("b", "p0", 4)]


def test_a_commit_that_was_undone_is_missed_after_the_archive_went_over_it() -> None:
    table = two_partitions("cow", 8)
    undone = table.upsert(rows(["b", "d"], 2))
    pinned = lakefmt.open_table(table.client.store.url).snapshot()
    table.rollback(undone.instant)
    busy(table.client.store.url)
    with pytest.raises(SnapshotExpired, match="undone"):
        pinned.read()


def test_a_partition_that_is_gone_is_missed_by_a_filter_on_it() -> None:
    table = two_partitions("cow", 8)
    pinned = lakefmt.open_table(table.client.store.url).snapshot()
    table.delete_partitions(["p=p1"])
    busy(table.client.store.url)
    table.client.store.delete_tree("p=p1")
    with pytest.raises(SnapshotExpired):
        pinned.read(filter="p = 'p1'")
