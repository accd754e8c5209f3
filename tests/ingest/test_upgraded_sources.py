"""A job follows a table whose version changes, or whose commits are archived, between two rounds: nothing is lost, repeated or taken out of turn."""

from __future__ import annotations

import collections
import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt import lowlevel
from tests.example_counts import examples
from tests.ingest.ingest_kit import FAST, ingest, rows_of

NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
OPTIONS = {
    **FAST,
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.parquet.small.file.limit": "0",
}
ARCHIVED = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}


class Source:
    """A table that a job follows, with a writer that may end behind writers that began later."""

    def __init__(self, table_type: str, version: int, *, keyed: bool) -> None:
        self.url = f"memory://upgraded-source-{next(NUMBERS)}"
        self.target = f"memory://upgraded-target-{next(NUMBERS)}"
        key = {"record_key": "id"} if keyed else {}
        self.keyed, self.table_type = keyed, table_type
        self.table = lakefmt.create_table(
            self.url, schema=SCHEMA, table_type=table_type, table_version=version, options=OPTIONS, **key
        )
        #: The instants of the commits as they completed.
        self.order = list[str]()
        self._slow = list[tuple[Any, list[Any]]]()

    def write(self, rows: dict[str, int]) -> None:
        batch = pa.table({"id": list(rows), "n": list(rows.values())}, schema=SCHEMA)
        done = (self.table.upsert if self.keyed else self.table.insert)(batch)
        self.order.append(done.instant)

    def delete(self, *keys: str) -> None:
        self.order.append(self.table.delete(list(keys)).instant)

    def begin(self, rows: dict[str, int]) -> None:
        begun = lowlevel.begin_write(self.table, "upsert" if self.keyed else "insert")
        work = lowlevel.assign(begun, pa.table({"id": list(rows), "n": list(rows.values())}, schema=SCHEMA))
        self._slow.append((begun, [lowlevel.write_files(begun, each, part) for each, part in work]))

    def end(self) -> None:
        """Complete what began first."""
        if self._slow:
            self.order.append(lowlevel.commit(*self._slow.pop(0)).instant)

    def upgrade(self, version: int, *, by_completion: bool) -> None:
        """Upgrade the table, as Hudi does where commits keep the order in which they completed."""
        while self._slow:
            self.end()
        self.table.upgrade(version)
        if by_completion:
            client = lakefmt.open_table(self.url).client
            store, commits = client.store, {each.time: each for each in client.load().timeline.commits}
            last = ""
            for time in [time for time in self.order if time in commits]:
                commit = commits[time]
                last = max(commit.order_time, f"{int(last or 0) + 1}")
                if last != commit.order_time:
                    moved = commit.file_name.replace(commit.order_time, last)
                    store.put(f".hoodie/timeline/{moved}", store.read(f".hoodie/timeline/{commit.file_name}"))
                    store.delete([f".hoodie/timeline/{commit.file_name}"])
        self.table = lakefmt.open_table(self.url, options=OPTIONS)

    def follow(self, mode: str = "until_idle", **more: Any) -> None:
        key = {"key": "id"} if self.keyed else {"key": ()}
        how = {"source_kind": "table", "operation": "upsert" if self.keyed else "insert", **key, **more}
        ingest(self.url, self.target, mode, settings={"hoodie.parquet.small.file.limit": "0"}, **how)

    @property
    def difference(self) -> dict[str, Any]:
        """What the table that follows has too little or too much."""
        wanted, found = (collections.Counter(map(str, rows_of(url))) for url in (self.url, self.target))
        return {"lost": dict(wanted - found), "more": dict(found - wanted)}


NOTHING = {"lost": {}, "more": {}}


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_an_upgrade_by_completion_between_two_rounds_loses_and_repeats_nothing(keyed: bool, rounds: int) -> None:
    source = Source("cow", 6, keyed=keyed)
    source.write({"first": 0})
    source.follow()
    source.begin({"slow": 1})
    source.write({"fast": 2})
    source.end()
    source.write({"last": 3})
    for _ in range(rounds - 1):
        source.follow("once", source_limit=1)
    source.upgrade(8, by_completion=True)
    source.follow(source_limit=1)
    assert source.difference == NOTHING
    source.write({"behind": 4})
    source.follow(source_limit=1)
    assert source.difference == NOTHING


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_commits_that_were_archived_between_two_rounds_are_taken_one_by_one(table_type: str, version: int) -> None:
    """They were read as one range, and of that deletes came before the rows that they delete."""
    source = Source(table_type, version, keyed=True)
    source.write({"a": 0, "b": 0})
    source.follow()
    source.write({"c": 1})
    source.write({"a": 1})
    source.delete("a", "c")
    source.write({"b": 1})
    for n in range(6):
        source.write({"d": n})
    source.table.archive(options=ARCHIVED)
    source.follow()
    assert source.difference == NOTHING


def test_a_source_that_was_restored_before_its_first_round_is_followed_behind_an_upgrade() -> None:
    source = Source("cow", 6, keyed=True)
    source.write({"a": 0})
    source.table.savepoint(source.order[0])
    source.write({"b": 0})
    source.table.restore(source.order[0])
    source.follow()
    source.upgrade(8, by_completion=False)
    source.write({"c": 0})
    source.follow()
    assert source.difference == NOTHING


ACTS = st.one_of(
    st.tuples(st.sampled_from(["write", "begin"]), st.sets(st.integers(0, 4), min_size=1, max_size=3)),
    st.tuples(st.just("delete"), st.sets(st.integers(0, 4), min_size=1, max_size=2)),
    st.tuples(st.sampled_from(["end", "archive", "upgrade"]), st.just(set[int]())),
    st.tuples(st.just("follow"), st.sets(st.integers(1, 3), max_size=1)),
)


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(st.sampled_from(["cow", "mor"]), st.sampled_from([8, 9]), st.booleans(), st.lists(ACTS, min_size=4, max_size=14))
@example(
    "cow",
    8,
    True,
    [("begin", {0}), ("write", {1}), ("end", set()), ("follow", {1}), ("upgrade", set()), ("write", {0})],
)
def test_whatever_order_commits_have_a_table_that_follows_has_the_rows(
    table_type: str, version: int, by_completion: bool, acts: list[tuple[str, set[int]]]
) -> None:
    source = Source(table_type, 6, keyed=True)
    source.write({"k": 0})
    source.follow()
    upgraded = False
    for number, (act, values) in enumerate(acts, 1):
        keys = [f"k{value}" for value in sorted(values)]
        if act == "write":
            source.write(dict.fromkeys(keys, number))
        elif act == "begin":
            # Keys of its own: of two writers of one key only one commits.
            source.begin({f"{key}-{number}": number for key in keys})
        elif act == "delete":
            source.delete(*keys)
        elif act == "end":
            source.end()
        elif act == "archive":
            source.table.archive(options=ARCHIVED)
        elif act == "upgrade" and not upgraded:
            source.upgrade(version, by_completion=by_completion)
            upgraded = True
        elif act == "follow":
            source.follow("once", source_limit=max(values, default=1_000))
    while source._slow:
        source.end()
    if not upgraded:
        source.upgrade(version, by_completion=by_completion)
    source.follow(source_limit=1)
    assert source.difference == NOTHING
