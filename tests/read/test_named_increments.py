"""Increments on an object store: one listing of a small table in the place of the commits, and the same rows as by those."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.names import parse_base_file
from lakefmt._core.metadata.listing import ListingByMetadata
from lakefmt._core.read import incremental
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Instant
from lakefmt._core.timeline.timeline import Timeline, timeline_from_names
from lakefmt.errors import SnapshotExpired
from tests.read.test_listed_at_once import Beside, filled, schedules, story
from tests.storage.tree_store import LargeTreeStore, TreeStore

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
CITIES = ("-1", "oslo", "rom")
OPTIONS: dict[str, object] = {"hoodie.cleaner.commits.retained": 1, "lakefmt.write.threads": 1}

Rows = list[tuple[int, str, int]]


def over(store: MemoryStore | TreeStore) -> Table:
    return Table(TableClient(store, OPTIONS, metadata_listing=ListingByMetadata()))


def opened(store: TreeStore) -> Table:
    table = over(store)
    table.client.open()
    return table


def rows(first: int, count: int, ts: int) -> pa.Table:
    ids = [number % 12 for number in range(first, first + count)]
    return pa.table({"id": ids, "city": [CITIES[i % 3] for i in ids], "ts": [ts] * count}, SCHEMA)


def make(
    name: str, *, table_type: str = "cow", metadata: bool = False, properties: dict[str, str] | None = None
) -> Table:
    store = MemoryStore(name)
    lakefmt.create_table(
        store.url,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        options={"hoodie.metadata.enable": metadata},
        properties=properties or {},
    )
    return over(store)


def pulled(table: Table, start: str) -> Rows | str:
    try:
        found = table.incremental(start)
    except SnapshotExpired:
        return "expired"
    return sorted(zip(*(found[name].to_pylist() for name in SCHEMA.names), strict=True))


def commits_read(store: TreeStore) -> int:
    return sum(asked.startswith("read ") and asked.endswith("commit") for asked in store.requests)


ORDINARY = ["upsert", "upsert", "insert", "delete", "clean", "undo"]
REPLACING = ["drop", "overwrite", "cluster"]


def act(table: Table, random: Random, kinds: list[str], ts: int) -> None:
    """Do one thing to a table; a rollback undoes the newest commit, if nothing came behind that."""
    first, count = random.randrange(12), random.randint(1, 6)
    match random.choice(kinds):
        case "upsert":
            table.upsert(rows(first, count, ts))
        case "insert":
            table.insert(rows(first, count, ts))
        case "delete":
            table.delete(rows(first, count, ts).select(["id", "city"]))
        case "drop":
            table.delete_partitions([CITIES[first % 3]])
        case "overwrite":
            table.insert_overwrite(rows(first, count, ts))
        case "cluster":
            table.cluster()
        case "clean":
            table.clean()
        case _:
            timeline = table.client.load().timeline
            if timeline.latest_commit is timeline.completed[-1]:
                table.rollback(timeline.completed[-1].time)


@pytest.mark.slow
@pytest.mark.parametrize(("table_type", "metadata"), [("cow", False), ("cow", True), ("mor", False)])
@pytest.mark.timeout(300)
def test_increments_by_names_are_those_by_commits(table_type: str, metadata: bool) -> None:
    """Random histories: from every start the same rows, and the same ones are expired."""
    by_names = 0
    for seed in range(12 if table_type == "cow" else 4):
        random = Random(seed)
        kinds = ORDINARY + REPLACING * (seed % 2)
        table = make(f"law-{table_type}-{metadata}-{seed}", table_type=table_type, metadata=metadata)
        table.upsert(rows(0, 12, 0))
        for ts in range(1, random.randint(4, 10)):
            act(table, random, kinds, ts)
        commits = [i.order_time for i in table.client.load().timeline.commits]
        for number, start in enumerate(["000", *commits]):
            store = TreeStore(table.client.store)
            found, expected = pulled(opened(store), start), pulled(over(table.client.store), start)
            assert found == expected, (seed, start)
            by_names += len(commits) - number > 2 and commits_read(store) == 1
    assert by_names > 10 or table_type == "mor"


def grown(name: str, **options: object) -> Table:
    """Return a table with four commits: the second and third rewrite files of the first."""
    table = make(name, **options)
    for ts in range(4):
        table.upsert(rows(0, 12 - 3 * ts, ts))
    return table


def requests_of(store: TreeStore, table: Table, end: str | None = None) -> list[str]:
    store.requests.clear()
    table.incremental("000", end)
    return [asked for asked in store.requests if not asked.endswith(".parquet")]


def test_one_listing_stands_for_the_commits() -> None:
    store = TreeStore(grown("one").client.store)
    table = opened(store)
    first, again = requests_of(store, table), requests_of(store, table)
    assert first[0] == "tree "
    assert [asked.rpartition(".")[2] for asked in first[1:]] == ["commit"], "the newest commit tells the schema"
    assert again == ["tree "]


def test_where_files_do_not_tell_it_the_commits_are_read() -> None:
    """A bound, a table of many files, a replaced group, and another attempt of a task."""
    below = grown("others")
    before_newest = below.client.load().timeline.commits[-2].order_time
    store = TreeStore(below.client.store)
    table = opened(store)
    requests_of(store, table, before_newest)
    assert commits_read(store) == 4, "three, and the newest for the schema"
    large = LargeTreeStore(below.client.store)
    requests_of(large, over(large))
    assert commits_read(large) == 4
    file = next(i.name for i in below.client.store.list() if i.name.endswith(".parquet") and ".hoodie/" not in i.name)
    base = parse_base_file(file.rpartition("/")[2])
    assert base is not None
    stray = file.replace(f"_{base.write_token}_", "_9-9-9_")
    below.client.store.put(stray, b"another attempt of the task")
    attempts = TreeStore(below.client.store)
    assert pulled(opened(attempts), "000") == pulled(over(below.client.store), "000")
    below.client.store.delete([stray])
    below.delete_partitions([CITIES[1]])
    replaced = TreeStore(below.client.store)
    assert pulled(opened(replaced), "000") == pulled(over(below.client.store), "000")
    assert commits_read(replaced) == 5


@pytest.mark.parametrize("action", ["rollback", "restore"])
def test_while_something_is_undone_the_commits_are_read(action: str) -> None:
    names = ["20260101000000000.commit.requested", "20260101000000000_20260101000000009.commit"]
    timeline = timeline_from_names(names, 2)
    assert incremental.are_told_by_names(timeline, timeline.commits)
    undoing = timeline_from_names([*names, f"20260101000000010.{action}.requested"], 2)
    assert not incremental.are_told_by_names(undoing, undoing.commits)


def test_an_archived_commit_is_read() -> None:
    """Whether it was a compaction is told by its files alone, and those are gone."""
    timeline = timeline_from_names(["20260101000000000_20260101000000009.commit"], 2)
    assert not incremental.are_told_by_names(timeline, timeline.commits)


def _every(timeline: Timeline, selected: Sequence[Instant]) -> bool:
    return len(selected) > 0


def test_replaced_groups_are_the_reason_to_read_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotage twin: rows of a dropped partition would come back."""
    below = grown("twin")
    below.delete_partitions([CITIES[1]])
    monkeypatch.setattr(incremental, "are_told_by_names", _every)
    assert pulled(opened(TreeStore(below.client.store)), "000") != pulled(over(below.client.store), "000")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_increment_sees_the_table_at_one_moment() -> None:
    """A writer upserts, drops a partition and cleans between any two requests, and between the names of a page."""
    told = story("cow", metadata=False)
    expected = [pulled_cities(over(filled(state))) for state in told.states]
    assert len({str(each) for each in expected}) > 3
    made = schedules(told)
    for _ in range(300):
        effects = next(made)
        store = Beside(told, effects)
        table = opened(store)
        for _ in range(2):
            begun = store.at
            assert pulled_cities(table) in expected[begun : store.at + 1], effects


def pulled_cities(table: Table) -> list[tuple[str, int]]:
    found = table.incremental("000")
    return sorted(zip(found["city"].to_pylist(), found["ts"].to_pylist(), strict=True))
