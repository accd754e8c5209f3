"""Where one request lists a whole small table: what a read asks for, and that it sees whole commits, whoever writes meanwhile."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import TypeVar

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.filegroups import listing
from lakefmt._core.filegroups.listing import KnownFiles
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.listing import ListingByMetadata
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.storage.table_directory import TableDirectory
from lakefmt._core.table import Table
from lakefmt._core.timeline.timeline import Timeline
from lakefmt.testing.store_wrapper import Step
from tests.example_counts import seeds_of_run
from tests.storage.tree_store import TreeStore

T = TypeVar("T")
Objects = dict[str, bytes]
Rows = tuple[tuple[str, int], ...]

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
#: The first one sorts before ``.hoodie``: a page has its files before the timeline.
CITIES = ("-1", "oslo")
OPTIONS: dict[str, object] = {"hoodie.cleaner.commits.retained": 1, "lakefmt.write.threads": 1}
#: As many requests and objects as an opening and a read come to.
STEPS = 40


def rows(ts: int, cities: Iterable[str] = CITIES) -> pa.Table:
    cities = list(cities)
    return pa.table({"id": [f"k{city}" for city in cities], "city": cities, "ts": [ts] * len(cities)}, SCHEMA)


def over(store: MemoryStore | TreeStore) -> Table:
    return Table(TableClient(store, OPTIONS, metadata_listing=ListingByMetadata()))


def make(name: str, *, metadata: bool = False, table_type: str = "cow") -> MemoryStore:
    store = MemoryStore(name)
    lakefmt.create_table(
        store.url,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        options={"hoodie.metadata.enable": metadata},
        properties={"hoodie.datasource.write.hive_style_partitioning": "false"},
    )
    return store


def content(store: MemoryStore) -> Objects:
    return {info.name: store.read(info.name) for info in store.list()}


class Recorder(TreeStore):
    """Keeps what is stored after every effect."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.states = [content(inner)]

    def perform(self, step: Step[T]) -> T:
        result = super().perform(step)
        self._record()
        return result

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            super().delete([name])
            self._record()

    def _record(self) -> None:
        assert isinstance(self.inner, MemoryStore)
        now = content(self.inner)
        if now != self.states[-1]:
            self.states.append(now)


@dataclass(frozen=True)
class Story:
    """What a writer did: all objects after each of its effects, and the rows that a reader sees then."""

    states: list[Objects]
    seen: list[Rows]


@cache
def story(table_type: str, *, metadata: bool) -> Story:
    """A writer replaces files twice, removes a partition, and cleans at once what is not needed any more."""
    store = make(f"story-{table_type}-{metadata}", table_type=table_type, metadata=metadata)
    over(store).upsert(rows(1))
    recorder = Recorder(store)
    writer = over(recorder)
    writer.upsert(rows(2))
    writer.upsert(rows(3, CITIES[1:]))
    writer.upsert(rows(4))
    writer.delete_partitions([CITIES[1]])
    writer.clean()
    seen = [seen_rows(over(filled(state))) for state in recorder.states]
    assert len(set(seen)) == 5
    return Story(recorder.states, seen)


def filled(state: Objects) -> MemoryStore:
    store = MemoryStore()
    for name, data in state.items():
        store.put(name, data)
    return store


def seen_rows(table: Table, filter: object = None) -> Rows:
    found = table.read(filter=filter)
    return tuple(sorted(zip(found["city"].to_pylist(), found["ts"].to_pylist(), strict=True)))


class Beside(TreeStore):
    """While it is asked, and between two names of a page, the writer of a story goes on; pages come in the order of names.

    Args:
        told: the story.
        effects: how far the story has come at which step.
    """

    def __init__(self, told: Story, effects: dict[int, int]) -> None:
        super().__init__(filled(told.states[0]))
        self._told = told
        self._effects = effects
        self._step = 0
        self.at = 0

    def _advance(self) -> None:
        self._step += 1
        while self.at < self._effects.get(self._step, 0):
            before, after = self._told.states[self.at : self.at + 2]
            self.at += 1
            for name, data in after.items():
                if before.get(name) != data:
                    self.inner.put(name, data)
            self.inner.delete(before.keys() - after.keys())

    def look(self, kind: str, name: str, run: object) -> object:  # type: ignore[override]
        self._advance()
        return super().look(kind, name, run)  # type: ignore[arg-type]

    def _tree(self, prefix: str) -> builtins.list[ObjectInfo] | None:
        page: builtins.list[ObjectInfo] = []
        start = f"{prefix}/" if prefix else ""
        while True:
            self._advance()
            last = page[-1].name if page else ""
            after = (i for i in self.inner.list(prefix) if i.name > last and i.name.startswith(start))
            info = min(after, key=lambda i: i.name, default=None)
            if info is None:
                return page
            page.append(replace(info, mark=self.mark_of(info.name)))


def schedules(told: Story) -> Iterator[dict[int, int]]:
    """Yield when a writer does how much: in one to four bursts, many of them up to the end of a commit."""
    random = Random(22)
    last = len(told.states) - 1
    commits = [number for number in range(1, last) if told.seen[number] != told.seen[number - 1]]

    def moment() -> int:
        return random.randint(1, STEPS if len(told.states[0]) < STEPS // 2 else 3 * STEPS)

    def effects() -> int:
        return random.choice((random.randint(1, last), random.choice(commits) + random.randint(0, 3)))

    while True:
        yield {moment(): min(effects(), last) for _ in range(random.randint(1, 4))}


def wrong_reads(told: Story, numbers: range) -> Iterator[dict[int, int]]:
    """Yield the schedules, of those with these numbers, at which a read does not see the table as it was at some moment of it."""
    for effects in itertools.islice(schedules(told), numbers.start, numbers.stop):
        store = Beside(told, effects)
        table = over(store)
        table.client.open()
        for condition in (None, [("ts", ">", 0)]):
            begun = store.at
            if seen_rows(table, condition) not in told.seen[begun : store.at + 1]:
                yield effects


CASES = [("cow", False), ("mor", False), ("cow", True)]


@pytest.mark.slow
@pytest.mark.parametrize(("table_type", "metadata"), CASES)
@pytest.mark.timeout(300)
def test_a_read_sees_the_table_at_one_moment(table_type: str, metadata: bool) -> None:
    told = story(table_type, metadata=metadata)
    every = 400 if table_type == "cow" and not metadata else 100
    assert not [*wrong_reads(told, seeds_of_run(every // 4, every))]


def _believed(first: tuple[Timeline, TableDirectory], timeline: Timeline, directory: TableDirectory) -> KnownFiles:
    return KnownFiles(directory.outside(), timeline)


def _second(first: tuple[Timeline, TableDirectory], timeline: Timeline, directory: TableDirectory) -> KnownFiles | None:
    return KnownFiles(directory.outside(), timeline) if first[0] == timeline else None


def _first(first: tuple[Timeline, TableDirectory], timeline: Timeline, directory: TableDirectory) -> KnownFiles | None:
    return KnownFiles(first[1].outside(), timeline) if first[0] == timeline else None


@pytest.mark.slow
@pytest.mark.parametrize("joined", [_believed, _second, _first])
@pytest.mark.timeout(300)
def test_less_than_two_listings_would_lose_rows(joined: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotage twins: one listing alone, and the files of one of two."""
    told = story("cow", metadata=False)
    monkeypatch.setattr(listing, "_files_of_two_listings", joined)
    assert next(wrong_reads(told, range(1000)), None)


def asked_by(store: TreeStore, table: Table) -> builtins.list[str]:
    store.requests.clear()
    table.read()
    return [asked for asked in store.requests if not asked.endswith(".parquet")]


@pytest.mark.parametrize("metadata", [False, True], ids=["without", "with the metadata table"])
def test_a_small_table_is_listed_once_by_each_read(metadata: bool) -> None:
    below = make(f"once-{metadata}", metadata=metadata)
    over(TreeStore(below)).upsert(rows(1))
    store = TreeStore(below)
    table = over(store)
    table.client.open()
    assert [asked.partition(" ")[0] for asked in store.requests] == ["read_version", "tree"]
    first, second = asked_by(store, table), asked_by(store, table)
    assert first[0] == "tree "
    assert [asked.rpartition(".")[2] for asked in first[1:]] == ["commit"], "the newest commit tells the schema"
    assert second == ["tree "]
    over(TreeStore(below)).upsert(rows(2))
    assert asked_by(store, table)[:1] == ["tree "]
    assert table.read()["ts"].to_pylist() == [2, 2]


def test_after_a_commit_the_table_is_listed_twice() -> None:
    """The one listing might have come to the timeline before the commit was there, and to the files after it."""
    below = make("twice")
    store = TreeStore(below)
    table = over(store)
    table.upsert(rows(1))
    assert [asked for asked in asked_by(store, table) if not asked.startswith("read ")] == ["tree ", "tree "]
    assert asked_by(store, table) == ["tree "]


def test_a_held_snapshot_is_looked_at_again() -> None:
    """What two listings told counts for one read."""
    below = make("held")
    over(below).upsert(rows(1))
    store = TreeStore(below)
    table = over(store)
    table.client.open()
    snapshot = table.snapshot()
    assert snapshot.read()["ts"].to_pylist() == [1, 1]
    store.requests.clear()
    assert snapshot.read()["ts"].to_pylist() == [1, 1]
    assert [asked for asked in store.requests if asked.startswith(("tree", "list"))]


def test_a_large_table_is_listed_by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    below = make("large")
    over(below).upsert(rows(1))
    for number in range(1000):
        below.put(f"oslo/other-{number}.txt", b"")
    store = TreeStore(below)
    table = over(store)
    table.client.open()
    assert store.requests[1:] == ["tree "], "asked in vain once, it is not asked again"
    for _ in range(2):
        assert "tree " not in asked_by(store, table)
        assert table.read()["ts"].to_pylist() == [1, 1]


@pytest.mark.parametrize("partition_by", [None, "city", ["city", "id"]])
def test_files_are_found_as_directories_tell_them(partition_by: str | list[str] | None) -> None:
    store = MemoryStore(f"found-{partition_by}")
    lakefmt.create_table(store.url, schema=SCHEMA, record_key="id", partition_by=partition_by, ordering="ts")
    over(store).upsert(rows(1))
    store.put("oslo/not-a-partition/x.parquet", b"x")
    store.put("elsewhere/x.parquet", b"x")
    table = over(TreeStore(store))
    table.client.open()
    assert table.read().num_rows == 2
    assert table.read(filter=[("city", "=", "oslo")]).num_rows == 1
