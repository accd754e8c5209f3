"""Statistics of data partitions of altered columns: what is believed covers every live value, whoever wrote what, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakefmt.metadata.layout import PartitionKind
from lakefmt.metadata.reading import altered_stats
from lakefmt.metadata.reading.stats_reader import read_stats, stats_schema
from lakefmt.schema.history import Column, InternalSchema, SchemaHistory
from lakefmt.schema.statistic_names import NamesInPartitions, StatisticNames
from lakefmt.values import RECORD_KEY
from tests.metadata.metadata_fixtures import PARTITION_STATISTICS, client_of, metadata_of, unpack

NAMES = ("a", "b", "c")
#: Of the record keys and of the commit times.
WORLDS = 4_000
KEYS, TIMES = "keys", "times"

Range = tuple[int | str | None, int | str | None, int, int]


def range_of(values: Iterable[int | str | None]) -> Range:
    every = list(values)
    known = [value for value in every if value is not None]
    return min(known, default=None), max(known, default=None), len(every), len(every) - len(known)


def joined(ranges: Iterable[Range]) -> Range:
    every = list(ranges)
    lows, highs = ([each[end] for each in every if each[end] is not None] for end in (0, 1))
    return min(lows, default=None), max(highs, default=None), sum(e[2] for e in every), sum(e[3] for e in every)


@dataclass
class File:
    """A live file: its rows as commit time and values by column id, and what the metadata table has of it."""

    schema: int
    rows: list[tuple[int, dict[int, int]]]
    is_log: bool = False
    stats: dict[str, Range] = field(default_factory=dict)

    def true_range(self, number: int) -> Range:
        return range_of(values.get(number) for _, values in self.rows)

    def made(self, schemas: list[dict[str, int]], now: int, names: Iterable[str], maker: str) -> dict[str, Range]:
        """What a maker of statistics says of the file at a moment."""
        stored, then = schemas[self.schema], schemas[now]
        if maker == "ids":
            return {name: self.true_range(then[name]) for name in names}
        found = {name: self.true_range(stored[name]) for name in names if name in stored}
        if self.is_log:
            found |= {name: (None, None, len(self.rows), len(self.rows)) for name in names if name not in stored}
        return found


@dataclass
class World:
    """One data partition of a table whose columns change their names; whole statistics stand under a name until they are made anew."""

    random: Random
    merges: bool
    schemas: list[dict[str, int]]
    files: list[File] = field(default_factory=list)
    records: dict[str, Range] = field(default_factory=dict)
    indexed: dict[tuple[int, str], bool] = field(default_factory=dict)
    has_index: bool = True

    def names_now(self, now: int) -> list[str]:
        """The indexed columns: one that is indexed under a name stays so while it has that name."""
        names = []
        for name, number in self.schemas[now].items():
            key = (number, name)
            self.indexed[key] = self.indexed.get(key, False) or self.random.random() < 0.7
            names += [name] * self.indexed[key]
        return names

    def play(self, now: int, time: int) -> None:
        random = self.random
        kind = random.choice(["add", "add", "update", "delete", "nothing", "index"])
        maker = random.choice(["ids", "names"])
        names = self.names_now(now)
        if kind == "index":
            self.has_index, self.records = True, {}
            for file in self.files:
                file.stats = file.made(self.schemas, now, names, maker)
            self.record(now, names, maker)
            return
        if kind == "nothing":
            return
        numbers = self.schemas[now].values()
        rows = [(time, {n: random.randint(-9, 9) for n in numbers if random.random() < 0.9}) for _ in range(2)]
        if kind == "add" or not self.files:
            self.files.append(File(now, rows[: random.randint(1, 2)]))
        elif self.merges and kind == "update":
            self.files.append(File(now, rows[:1], is_log=True))
        else:
            # A file is written anew with the columns of today: one row is updated or goes, the others stay as they were.
            place = random.randrange(len(self.files))
            kept = [(t, {n: v for n, v in values.items() if n in numbers}) for t, values in self.files[place].rows]
            kept = kept[1:] + (rows[:1] if kind == "update" else [])
            self.files[place] = File(now, kept)
        if self.has_index:
            for file in self.files:
                if not file.stats and file.schema == now:
                    file.stats = file.made(self.schemas, now, names, "ids")
            self.record(now, names, maker)

    def record(self, now: int, names: list[str], maker: str) -> None:
        """Make the whole statistics of the partition, by ids or by the names under which files have theirs."""
        self.records[KEYS] = range_of("k" for file in self.files for _ in file.rows)
        self.records[TIMES] = range_of(
            None if file.is_log else f"{time:017}" for file in self.files for time, _ in file.rows
        )
        for name in names:
            if maker == "ids":
                number = self.schemas[now][name]
                self.records[name] = joined(file.true_range(number) for file in self.files)
            elif parts := [file.stats[name] for file in self.files if name in file.stats]:
                self.records[name] = joined(parts)

    def stats(self, name: str | None, kind: pa.DataType) -> pa.Table:
        if name not in self.records:
            return stats_schema(kind).empty_table()
        low, high, rows, nulls = self.records[name]
        columns = [["p"], [low], [high], [rows], [nulls], [True]]
        return pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, stats_schema(kind), strict=True)], schema=stats_schema(kind)
        )

    def believed(self, names: NamesInPartitions) -> list[dict[str, int | None]]:
        current = self.stats(names.current, pa.int64())
        first = self.stats(None if self.merges else names.first, pa.int64())
        times = self.stats(None if self.merges else TIMES, pa.string())
        keys = self.stats(KEYS, pa.string())
        return altered_stats.known_partitions(current, first, keys, times, names).to_pylist()


def histories(random: Random) -> list[dict[str, int]]:
    schemas = [{"a": 1, "b": 2}]
    most = 2
    for _ in range(random.randint(1, 3)):
        now = dict(schemas[-1])
        change = random.choice(["rename", "rename", "swap", "drop and add", "add"])
        name = random.choice(list(now))
        free = [each for each in NAMES if each not in now]
        if change == "rename" and free:
            now = {random.choice(free) if n == name else n: number for n, number in now.items()}
        elif change == "swap" and len(now) > 1:
            now = dict(zip(now, [*list(now.values())[1:], next(iter(now.values()))], strict=True))
        elif change == "drop and add" or (change == "add" and free):
            most += 1
            now[name if change == "drop and add" else free[0]] = most
        schemas.append(now)
    return schemas


def names_of(schemas: list[dict[str, int]]) -> StatisticNames:
    made = [
        InternalSchema(100 * place, tuple(Column(number, name, "int") for name, number in columns.items()), 9)
        for place, columns in enumerate(schemas)
    ]
    history = SchemaHistory("", tuple(reversed(made)))
    return StatisticNames(history, history)


def wrong(seeds: range) -> tuple[list[int], int]:
    """Return the seeds of worlds in which what is believed of a partition lacks a value, and how often something is believed."""
    failed, told = [], 0
    for seed in seeds:
        random = Random(seed)
        schemas = histories(random)
        world = World(random, random.random() < 0.3, schemas, has_index=random.random() < 0.7)
        for now in range(len(schemas)):
            for step in range(random.randint(0, 3)):
                world.play(now, 100 * now + step + 1)
        names = names_of(schemas)
        for name, number in schemas[-1].items():
            under = names.in_partitions(name)
            believed = [] if under is None or not world.has_index else world.believed(under)
            told += len(believed) if under is not None and under.since else 0
            low, high = joined(file.true_range(number) for file in world.files)[:2]
            for record in believed:
                covers = low is None or (record["min"] is not None and record["min"] <= low and record["max"] >= high)
                if not covers:
                    failed.append(seed)
    return failed, told


@pytest.mark.slow
def test_what_is_believed_covers_every_value() -> None:
    failed, told = wrong(range(WORLDS))
    assert not failed[:5]
    assert told > 300


def _all_usable(stats: pa.Table, keys: pa.Table) -> pa.Table:
    return stats


def _always(*given: object) -> pa.ChunkedArray:
    stats = given[1]
    assert isinstance(stats, pa.Table)
    return pa.chunked_array([pa.array([True] * stats.num_rows, pa.bool_())])


@pytest.mark.slow
@pytest.mark.parametrize(("what", "instead"), [("of_all_rows", _all_usable), ("_partitions_where", _always)])
def test_each_condition_is_needed(what: str, instead: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotage twins: without the count of rows, and without the time at which rows were written, values are missing."""
    monkeypatch.setattr(altered_stats, what, instead)
    assert wrong(range(WORLDS))[0]


@pytest.mark.parametrize(
    ("schemas", "column", "wanted"),
    [
        ([{"a": 1}], "a", NamesInPartitions("a")),
        ([{"a": 1}, {"b": 1}], "b", NamesInPartitions("b", f"{100:017}", "a", f"{100:017}")),
        ([{"a": 1}, {"b": 1}, {"c": 1}], "c", NamesInPartitions("c", f"{200:017}", "a", f"{100:017}")),
        # Under its name stands what it had before it had another one in between.
        ([{"a": 1}, {"b": 1}, {"a": 1}], "a", None),
        # The name was another column's.
        ([{"a": 1, "b": 2}, {"b": 1, "a": 2}], "a", None),
        ([{"a": 1}, {"b": 1, "a": 2}], "b", NamesInPartitions("b", f"{100:017}", None, f"{100:017}")),
        ([{"a": 1}, {"a": 2}], "a", None),
    ],
)
def test_names_in_partitions(schemas: list[dict[str, int]], column: str, wanted: NamesInPartitions | None) -> None:
    assert names_of(schemas).in_partitions(column) == wanted


@pytest.mark.parametrize(
    ("kinds", "is_told"), [(("int", "long"), True), (("int", "double"), False), (("date", "string"), False)]
)
def test_types_whose_ends_stay_ends(kinds: tuple[str, str], is_told: bool) -> None:
    schemas = [InternalSchema(100 * place, (Column(1, "a", kind),), 1) for place, kind in enumerate(kinds)]
    history = SchemaHistory("", tuple(reversed(schemas)))
    assert (StatisticNames(history, history).in_partitions("a") is not None) == is_told


@pytest.mark.parametrize("packed", PARTITION_STATISTICS, ids=lambda packed: packed.stem)
def test_spark_counts_every_row_under_every_column(packed: Path, tmp_path: Path) -> None:
    """What the comparison with record keys relies on, in tables by Spark of both types: nothing was altered in them."""
    root = unpack(packed, tmp_path)
    client = client_of(root)
    metadata, kind = metadata_of(root), PartitionKind.PARTITION_STATS

    def counted(column: str, of: pa.DataType) -> dict[str, int]:
        stats = read_stats(metadata, kind, column, of)
        assert pc.all(stats["is_tight"], min_count=0).as_py()
        return dict(zip(stats["name"].to_pylist(), stats["value_count"].to_pylist(), strict=True))

    keys = counted(RECORD_KEY, pa.string())
    columns = [field for field in client.at(client.load()).schema() if not pa.types.is_nested(field.type)]
    counts = {field.name: counted(field.name, field.type) for field in columns}
    assert keys
    assert {name: each for name, each in counts.items() if each not in (keys, {})} == {}
