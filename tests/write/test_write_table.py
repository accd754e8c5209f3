"""`lakefmt.write_table`: create where nothing is, then write; the law first, then a table of modes and refusals."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.storage.memory import MemoryStore
from lakefmt.errors import InvalidInputError, InvalidKey, LakefmtError, SchemaMismatch, TableExists, UnknownSetting

_NUMBERS = itertools.count()
_KEYED = {"record_key": "id", "ordering": "v"}


def place() -> str:
    return f"memory://write-table/{next(_NUMBERS)}"


def rows(*pairs: tuple[str, int]) -> pa.Table:
    columns = {"id": [key for key, _ in pairs], "v": [value for _, value in pairs]}
    return pa.table(columns, schema=pa.schema([("id", pa.string()), ("v", pa.int64())]))


def stored(url: str) -> dict[str, int]:
    found = lakefmt.open_table(url).read(columns=["id", "v"])
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["error", "append", "upsert", "overwrite", "ignore"]),
            st.lists(
                st.tuples(st.sampled_from("abc"), st.integers(0, 9)), min_size=1, max_size=4, unique_by=lambda r: r[0]
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_law_modes_do_what_a_dict_does(calls: list[tuple[str, list[tuple[str, int]]]]) -> None:
    url, expected = place(), None
    for mode, pairs in calls:
        if expected is not None and mode == "error":
            with pytest.raises(TableExists):
                lakefmt.write_table(url, rows(*pairs), mode=mode, **_KEYED)
        else:
            lakefmt.write_table(url, rows(*pairs), mode=mode, **_KEYED)
            if expected is None or mode == "overwrite":
                expected = dict(pairs)
            elif mode in ("append", "upsert"):
                expected |= {key: value for key, value in pairs if value >= expected.get(key, value)}
        assert stored(url) == expected


def test_the_table_has_what_was_asked_for(tmp_path: Path) -> None:
    done = lakefmt.write_table(
        tmp_path / "trips",
        rows(("a", 1)),
        record_key="id",
        partition_by="v",
        table_type="mor",
        table_version=9,
        options={"lakefmt.durability": "none"},
        properties={"hoodie.datasource.write.hive_style_partitioning": "false"},
    )
    config = lakefmt.open_table(tmp_path / "trips").properties
    assert (config.name, config.version.value, config.record_key_fields) == ("trips", 9, ("id",))
    assert [stat.partition_path for stat in done.files] == ["1"]


def test_rows_that_come_once_are_written_once() -> None:
    url = place()
    batches = iter([rows(("a", 1)), rows(("b", 2))])
    assert lakefmt.write_table(url, batches, operation="bulk_insert", record_key="id").num_inserts == 2
    assert lakefmt.write_table(url, (part for part in [rows(("c", 3))]), mode="append").num_inserts == 1
    assert stored(url) == {"a": 1, "b": 2, "c": 3}


class Held:
    """Batches of rows, and how many of those that were handed out are still held."""

    def __init__(self, batches: int) -> None:
        self.most = 0
        self._batches = batches
        self._alive: list[weakref.ref[pa.Table]] = []

    def __iter__(self) -> Iterator[pa.Table]:
        for number in range(self._batches):
            table = pa.table({"id": [f"{number:03d}{n:05d}" for n in range(1000)], "v": np.full(1000, number)})
            self._alive.append(weakref.ref(table))
            yield table
            del table
            self._alive = [each for each in self._alive if each() is not None]
            self.most = max(self.most, len(self._alive))


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
def test_a_stream_that_makes_the_table_is_not_held(operation: str) -> None:
    url, few = place(), {"lakefmt.write.window.bytes": 100_000}  # of 24,000 bytes a batch
    held = Held(20)
    done = lakefmt.write_table(url, iter(held), operation=operation, record_key="id", options=few)
    assert done.num_inserts == 20_000
    assert held.most < 10
    assert pc.sum(lakefmt.open_table(url).read(columns=["v"]).column("v")).as_py() == 1000 * sum(range(20))


def test_a_late_row_of_a_stream_that_does_not_fit_leaves_no_table() -> None:
    url, few = place(), {"lakefmt.write.window.bytes": 1024}
    batches = [
        rows(*((f"k{n}", n) for n in range(100))),
        rows(("d", 4)),
        pa.table({"id": [None], "v": [1]}, rows(("a", 1)).schema),
    ]
    with pytest.raises(InvalidKey):
        lakefmt.write_table(url, iter(batches), record_key="id", options=few)
    assert list(MemoryStore(url.removeprefix("memory://")).list()) == []
    with pytest.raises(InvalidKey):  # all of them are tried where they fit
        lakefmt.write_table(other := place(), iter(batches), record_key="id")
    assert list(MemoryStore(other.removeprefix("memory://")).list()) == []


@pytest.mark.parametrize("index", ["bloom", "simple", "record"])
def test_a_key_is_unique_in_its_partition_or_in_the_table(index: str) -> None:
    orders = pa.table({"id": ["1"], "status": ["open"]})
    paid = pa.table({"id": ["1"], "status": ["paid"]})
    keyed = {"record_key": "id", "partition_by": "status", "index": index}
    for unique, count in (("partition", 1 if index == "record" else 2), ("table", 1)):
        url = place()
        for data in (orders, paid):
            lakefmt.write_table(url, data, mode="upsert", unique=unique, **keyed)
        found = lakefmt.open_table(url).read()["status"].to_pylist()
        assert len(found) == count
        assert unique == "partition" or found == ["paid"]
    with pytest.raises(InvalidInputError, match="unique='table' needs an index"):
        lakefmt.write_table(place(), orders, unique="table", **{**keyed, "index": "bucket"})
    with pytest.raises(InvalidInputError, match="unknown unique 'key'"):
        lakefmt.write_table(place(), orders, unique="key", **keyed)


def test_without_a_key_rows_are_inserted() -> None:
    url = place()
    lakefmt.write_table(url, rows(("a", 1)))
    assert lakefmt.write_table(url, rows(("a", 1)), mode="append").num_inserts == 1
    assert lakefmt.open_table(url).read().num_rows == 2


@pytest.mark.parametrize(
    ("data", "asked", "error"),
    [
        (pa.table({"id": ["a", None], "v": [1, 2]}), _KEYED, InvalidKey),
        (rows(("a", 1)), {"record_key": "gone"}, LakefmtError),
        (rows(("a", 1)), {**_KEYED, "table_version": 7}, LakefmtError),
        (rows(("a", 1)), {**_KEYED, "mode": "replace"}, InvalidInputError),
        (rows(("a", 1)), {**_KEYED, "mode": "upsert", "operation": "insert"}, InvalidInputError),
        (rows(("a", 1)), {**_KEYED, "operation": "delete"}, InvalidInputError),
        (rows(("a", 1)), {**_KEYED, "mode": "overwrite", "operation": "insert"}, InvalidInputError),
        (5, _KEYED, InvalidInputError),
        ([rows(("a", 1)), pa.table({"id": ["b"]})], _KEYED, SchemaMismatch),
    ],
)
def test_a_refused_first_write_creates_nothing(
    data: object, asked: dict[str, object], error: type[LakefmtError]
) -> None:
    url = place()
    with pytest.raises(error):
        lakefmt.write_table(url, data, **asked)  # type: ignore[arg-type]
    assert list(MemoryStore(url.removeprefix("memory://")).list()) == []
    assert list(MemoryStore("lakefmt-trial").list()) == []


def test_a_plan_creates_nothing() -> None:
    url = place()
    plan = lakefmt.write_table(url, rows(("a", 1), ("b", 2)), **_KEYED, dry_run=True)
    assert "2 rows" in str(plan)
    assert list(MemoryStore(url.removeprefix("memory://")).list()) == []


@pytest.mark.parametrize(
    "other",
    [{"record_key": "v"}, {"ordering": "id"}, {"partition_by": "v"}, {"record_key": ["id", "v"]}],
    ids=str,
)
def test_arguments_that_contradict_the_table_are_refused(other: dict[str, object]) -> None:
    url = place()
    lakefmt.write_table(url, rows(("a", 1)), **_KEYED)
    with pytest.raises(InvalidInputError, match=next(iter(other))):
        lakefmt.write_table(url, rows(("a", 2)), mode="append", **{**_KEYED, **other})  # type: ignore[arg-type]
    assert stored(url) == {"a": 1}


def test_partitions_by_time_must_agree() -> None:
    url = place()
    data = pa.table({"id": ["a"], "at": pa.array([0], pa.timestamp("us", "UTC"))})
    lakefmt.write_table(url, data, record_key="id", partition_by=lakefmt.day("at"))
    lakefmt.write_table(url, data, mode="append", partition_by=lakefmt.day("at"))
    with pytest.raises(InvalidInputError, match="'at'"):
        lakefmt.write_table(url, data, mode="append", partition_by=lakefmt.month("at"))


def test_ignore_leaves_the_table_and_says_so() -> None:
    url = place()
    lakefmt.write_table(url, rows(("a", 1)), **_KEYED)
    done = lakefmt.write_table(url, rows(("b", 2)), mode="ignore")
    assert (done.instant, str(done)) == (None, "upsert: no rows, no instant")
    assert len(lakefmt.open_table(url).timeline.entries) == 1


# What makes a table, and for each what another table would have.
_CREATION: dict[str, tuple[object, ...]] = {
    "table_type": ("cow", "mor"),
    "table_version": (6, 8, 9),
    "index": ("bloom", "simple", "global_bloom", "bucket"),
    "unique": ("partition", "table"),
    "merge": ("event_time", "commit_time"),
    "indexes": (("column_stats",), ("column_stats", "bloom_filters")),
    "name": ("one", "two"),
    "database": ("d", "e"),
    "properties": (
        {"hoodie.clean.commits.retained": "7"},
        {"hoodie.clean.commits.retained": "8"},
        {"hoodie.table.cdc.enabled": "true"},
    ),
}


def _creations() -> st.SearchStrategy[dict[str, object]]:
    each = {name: st.sampled_from(values) for name, values in _CREATION.items()}
    return st.fixed_dictionaries({}, optional=each).filter(
        lambda made: not (made.get("index") == "bucket" and made.get("unique") == "table")
    )


@given(_creations(), st.data())
def test_law_what_makes_a_table_is_refused_when_the_table_is_another(
    made: dict[str, object], data: st.DataObject
) -> None:
    url = place()
    lakefmt.write_table(url, rows(("a", 1)), **_KEYED, **made)
    lakefmt.write_table(url, rows(("b", 1)), mode="upsert", **_KEYED, **made)
    config = lakefmt.open_table(url).properties
    argument = data.draw(st.sampled_from(sorted(set(_CREATION) - {"indexes", "unique"})))
    other = data.draw(st.sampled_from(_CREATION[argument]))
    there = {
        "table_type": {"COPY_ON_WRITE": "cow", "MERGE_ON_READ": "mor"}[config.table_type.value],
        "table_version": config.version.value,
        "index": lakefmt.open_table(url).index.name,
        "merge": made.get("merge", "event_time"),
        "name": config.name,
        "database": made.get("database"),
        "properties": None,
    }[argument]
    if argument == "properties":
        same = all(
            config.properties.get(name, {"hoodie.clean.commits.retained": "10"}.get(name)) == value
            for name, value in other.items()
        )
    else:
        same = other == there
    if same:
        lakefmt.write_table(url, rows(("c", 1)), mode="upsert", **_KEYED, **{argument: other})
    else:
        with pytest.raises(InvalidInputError, match=r"has .*, not "):
            lakefmt.write_table(url, rows(("c", 1)), mode="upsert", **_KEYED, **{argument: other})
    assert set(stored(url)) == ({"a", "b", "c"} if same else {"a", "b"})


@pytest.mark.parametrize(
    ("made", "given"),
    [
        ({}, {"unique": "table"}),
        ({"unique": "table"}, {"unique": "partition"}),
        ({"indexes": ("column_stats",)}, {"indexes": ("record_index",)}),
        ({}, {"indexes": ("files",)}),
        ({"unique": "table"}, {"index": "bloom"}),
    ],
)
def test_uniqueness_and_indexes_of_a_table_are_not_changed_by_a_write(
    made: dict[str, object], given: dict[str, object]
) -> None:
    url = place()
    lakefmt.write_table(url, rows(("a", 1)), **_KEYED, **made)
    with pytest.raises(InvalidInputError, match=r"has .*, not "):
        lakefmt.write_table(url, rows(("b", 1)), mode="upsert", **_KEYED, **given)
    assert set(stored(url)) == {"a"}


def test_an_unknown_property_of_a_table_that_is_there_is_refused() -> None:
    url = place()
    lakefmt.write_table(url, rows(("a", 1)), **_KEYED)
    with pytest.raises(UnknownSetting, match="did you mean"):
        lakefmt.write_table(
            url, rows(("b", 1)), mode="upsert", **_KEYED, properties={"hoodie.clean.comits.retained": "3"}
        )
