"""A commit that follows others without logs does not list the table to learn that a compaction has nothing to merge."""

from __future__ import annotations

import contextlib
import itertools

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.compaction.compact_run import commits_to_look_at, has_no_logs, moment_of, remember_logs
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.open import open_store
from lakefmt._core.timeline.instant import Action
from lakefmt._core.timeline.timeline import Timeline, timeline_from_names
from lakefmt.errors import LakefmtError
from lakefmt.testing.stores import CountingStore
from tests.example_counts import examples

_NUMBERS = itertools.count()
_FAST = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.clean.automatic": False,
    "hoodie.compact.schedule.inline": True,
    "hoodie.compact.inline.max.delta.commits": 1,
}


def rows(*keys: str, v: int = 0) -> pa.Table:
    return pa.table({"id": list(keys), "p": [key[0] for key in keys], "v": [v] * len(keys)})


def make(version: int = 8) -> lakefmt.Table:
    return lakefmt.create_table(
        f"memory://known-logs/{next(_NUMBERS)}",
        schema=rows("a").schema,
        record_key="id",
        partition_by="p",
        table_type="mor",
        table_version=version,
        options=_FAST,
    )


def compactions(table: lakefmt.Table) -> int:
    return sum(instant.action is Action.COMPACTION for instant in table.client.load().timeline.pending)


def listings(url: str, keys: list[str], **options: object) -> list[int]:
    """Return how many listings of data directories each insert takes."""
    store = CountingStore(open_store(url))
    table = lakefmt.Table(TableClient(store, {**_FAST, **options}))
    counts = []
    for key in keys:
        store.reset()
        table.insert(rows(key), options=_KEEP_SMALL)
        counts.append(sum("list" in each.kind and not each.name.startswith(".hoodie") for each in store.log))
    return counts


STEPS = st.sampled_from(
    ["upsert", "insert", "delete", "overwrite", "compact", "plan", "rollback", "cluster", "restore"]
)
_KEEP_SMALL = {"hoodie.parquet.small.file.limit": 0}


def take(table: lakefmt.Table, step: str, number: int) -> None:
    """Do one step; those that the table refuses do nothing."""
    if step == "upsert":
        table.upsert(rows("a", "b", v=number))
    elif step == "insert":
        table.insert(rows(f"a{number}"), options=_KEEP_SMALL)
    elif step == "delete":
        table.delete(["a"])
    elif step == "overwrite":
        table.insert_overwrite(rows("b", v=number))
    elif step == "compact":
        table.compact()
    elif step == "plan":
        table.compact(schedule=True)
    elif step == "cluster":
        table.cluster()
    elif step == "restore" and table.savepoints():
        table.restore(table.savepoints()[0].instant)
    elif step == "rollback" and table.snapshot().instant:
        table.rollback(str(table.snapshot().instant))
    if step == "overwrite" and not table.savepoints() and table.snapshot().instant:
        table.savepoint()


@pytest.mark.slow
@pytest.mark.parametrize("version", [8, 6])
@settings(max_examples=examples(20))
@given(steps=st.lists(st.tuples(st.integers(0, 1), STEPS), min_size=4, max_size=14))
def test_what_is_known_holds_however_writers_take_turns(version: int, steps: list[tuple[int, str]]) -> None:
    first = make(version)
    handles = [first, lakefmt.open_table(first.client.store.url, options=_FAST)]
    client = first.client
    for number, (which, step) in enumerate(steps):
        with contextlib.suppress(LakefmtError):
            take(handles[which], step, number)
        state = client.load()
        slices = client.at(state).slices()
        if has_no_logs(client.at(state)):
            assert not any(each.logs for each in slices)
        else:
            remember_logs(client.at(state), slices)


def test_appends_list_no_directory_for_a_plan() -> None:
    first, second = make(), make()
    for table in (first, second):
        table.insert(rows("a", "b"))
    keys = [f"a{number}" for number in range(6)]
    without = listings(second.client.store.url, keys, **{"hoodie.compact.schedule.inline": False})
    assert listings(first.client.store.url, keys)[1:] == without[1:]
    assert compactions(first) == 0


def test_a_log_is_seen_and_planned() -> None:
    table = make()
    table.insert(rows("a", "b"))
    table.insert(rows("c"))
    table.upsert(rows("a", v=1), options=_KEEP_SMALL)
    assert compactions(table) == 1


def test_a_log_of_another_writer_is_seen_and_planned() -> None:
    table = make()
    table.insert(rows("a", "b"))
    table.insert(rows("c"))
    other = lakefmt.open_table(table.client.store.url, options={**_FAST, "hoodie.compact.schedule.inline": False})
    other.upsert(rows("a", v=1), options=_KEEP_SMALL)
    table.insert(rows("d"))
    assert compactions(table) == 1


def timeline(*names: str) -> Timeline:
    return timeline_from_names([f"2026010100000{name}" for name in names], 2)


_SEEN = timeline(
    "1000_20260101000001500.deltacommit", "2000.deltacommit.requested", "3000_20260101000003500.deltacommit"
)


@pytest.mark.parametrize(
    ("more", "looked_at"),
    [
        ((), 0),
        (("4000_20260101000004500.deltacommit", "5000.deltacommit.requested"), 1),
        (("2000_20260101000004500.deltacommit", "4000_20260101000004600.clean", "5000_20260101000005000.savepoint"), 1),
        (("4000_20260101000004500.replacecommit", "5000_20260101000005500.commit"), 2),
        (("4000_20260101000004500.rollback",), None),
        (("4000_20260101000004500.restore",), None),
    ],
)
def test_which_commits_may_have_brought_logs(more: tuple[str, ...], looked_at: int | None) -> None:
    names = [name.removeprefix("2026010100000") for name in _SEEN.names]
    commits = commits_to_look_at(moment_of(_SEEN), timeline(*names, *more))
    assert (None if commits is None else len(commits)) == looked_at


def test_what_was_archived_meanwhile_is_not_known() -> None:
    seen = timeline("1000_20260101000001500.deltacommit")
    assert commits_to_look_at(moment_of(seen), timeline("4000_20260101000004500.deltacommit")) is None
    without_the_pending = timeline("3000_20260101000003500.deltacommit", "4000_20260101000004500.deltacommit")
    assert commits_to_look_at(moment_of(_SEEN), without_the_pending) is None
