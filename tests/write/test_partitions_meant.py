"""Partitions are named by path or by value: one rule for every verb, in Python and on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.cli import main
from lakefmt._core.keys import build_partition_paths
from lakefmt._core.table import Table
from lakefmt._core.write import ingest
from lakefmt.errors import InvalidInputError, LakefmtError, UnsafePath

PLAIN = {
    "hoodie.datasource.write.hive_style_partitioning": "false",
    "hoodie.datasource.write.partitionpath.urlencode": "false",
}
BARE = {"hoodie.datasource.write.hive_style_partitioning": "false"}
TIMES = [datetime(2026, 1, 1, 5, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC), None]


def made(name: str, columns: dict[str, pa.Array], **how: Any) -> Table:
    rows = pa.table({"id": [f"k{n}" for n in range(len(next(iter(columns.values()))))], **columns})
    how.setdefault("partition_by", list(columns))
    table = lakefmt.create_table(f"memory://meant/{name}", schema=rows.schema, record_key="id", **how)
    with (
        pytest.MonkeyPatch.context() as lenient
    ):  # another writer's paths may have an equals sign; a new one is refused
        lenient.setattr(ingest, "build_new_partition_paths", build_partition_paths)
        table.upsert(rows)
    return table


def cities(**how: Any) -> Callable[[str], Table]:
    values = ["sf", "a/b", "x=y", "", None, "city=sf", "50%", "ü"]
    if how.get("properties") == PLAIN:
        values = ["sf", "oslo", "", None, "city=sf", "50%", "ü", "a=b"]
    return lambda name: made(name, {"city": pa.array(values)}, **how)


TABLES: dict[str, Callable[[str], Table]] = {
    "text": cities(),
    "text, bare": cities(properties=BARE),
    "text, plain": cities(properties=PLAIN),
    "int": lambda name: made(name, {"n": pa.array([1, 2, 10, None], pa.int32())}),
    "date": lambda name: made(name, {"day": pa.array([date(2026, 1, 1), date(2026, 1, 2), None], pa.date32())}),
    "bool": lambda name: made(name, {"yes": pa.array([True, False, None])}),
    "float": lambda name: made(name, {"x": pa.array([1.0, 0.5, None])}),
    "decimal": lambda name: made(name, {"amt": pa.array([Decimal("1.50"), Decimal("2.00")], pa.decimal128(6, 2))}),
    "time": lambda name: made(
        name, {"ts": pa.array(TIMES, pa.timestamp("us", "UTC"))}, partition_by="ts:timestamp(yyyy/MM/dd)"
    ),
    "several": lambda name: made(
        name,
        {
            "city": pa.array(["sf", "sf", "oslo", None, "a/b"]),
            "day": pa.array(
                [date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 1), date(2026, 1, 1), None], pa.date32()
            ),
        },
    ),
    "several, bare": lambda name: made(
        name, {"city": pa.array(["sf", "sf", "oslo"]), "n": pa.array([1, 2, 1], pa.int64())}, properties=BARE
    ),
    "none": lambda name: made(name, {"n": pa.array([1, 2])}, partition_by=None),
}

MISSING = "__HIVE_DEFAULT_PARTITION__"
#: table, what is asked, the paths that are meant
CASES: list[tuple[str, Any, list[str]]] = [
    ("text", "city=sf", ["city=sf"]),
    ("text", "sf", ["city=sf"]),
    ("text", ["sf"], ["city=sf"]),
    ("text", {"city": "sf"}, ["city=sf"]),
    ("text", ("sf", "ü"), ["city=sf", "city=ü"]),
    ("text", [("sf",)], ["city=sf"]),
    ("text", "a/b", ["city=a%2Fb"]),
    ("text", "city=a/b", ["city=a%2Fb"]),
    ("text", "city=a%2Fb", ["city=a%2Fb"]),
    ("text", "a%2Fb", ["city=a%2Fb"]),
    ("text", "x=y", ["city=x%3Dy"]),
    ("text", "50%", ["city=50%25"]),
    ("text", "ü", ["city=ü"]),
    ("text", {"city": "city=sf"}, ["city=city%3Dsf"]),
    ("text", "city=city=sf", ["city=city%3Dsf"]),
    ("text", [None], [f"city={MISSING}"]),
    ("text", MISSING, [f"city={MISSING}"]),
    ("text", [{"city": None}], [f"city={MISSING}"]),
    ("text", np.array(["sf", "ü"]), ["city=sf", "city=ü"]),
    ("text", pa.array(["sf"]), ["city=sf"]),
    ("text", ["sf", "city=sf", {"city": "sf"}], ["city=sf"]),
    ("text, bare", "sf", ["sf"]),
    ("text, bare", "city=sf", ["sf"]),
    ("text, bare", "city%3Dsf", ["city%3Dsf"]),
    ("text, bare", {"city": "city=sf"}, ["city%3Dsf"]),
    ("text, bare", "a/b", ["a%2Fb"]),
    ("text, plain", "sf", ["sf"]),
    ("text, plain", "city=sf", ["city=sf"]),  # a path of the table goes before a value
    ("text, plain", {"city": "sf"}, ["sf"]),
    ("text, plain", "city=oslo", ["oslo"]),
    ("text, plain", "50%", ["50%"]),
    ("text, plain", "a=b", ["a=b"]),
    ("int", 1, ["n=1"]),
    ("int", "1", ["n=1"]),
    ("int", "n=1", ["n=1"]),
    ("int", [1, 10], ["n=1", "n=10"]),
    ("int", range(1, 3), ["n=1", "n=2"]),
    ("int", np.int64(10), ["n=10"]),
    ("int", pa.scalar(10), ["n=10"]),
    ("int", {"n": "10"}, ["n=10"]),
    ("int", [None], [f"n={MISSING}"]),
    ("int", MISSING, [f"n={MISSING}"]),
    ("date", date(2026, 1, 1), ["day=2026-01-01"]),
    ("date", "2026-01-01", ["day=2026-01-01"]),
    ("date", {"day": date(2026, 1, 2)}, ["day=2026-01-02"]),
    ("date", np.array(["2026-01-01"], "datetime64[D]"), ["day=2026-01-01"]),
    ("bool", True, ["yes=true"]),
    ("bool", "false", ["yes=false"]),
    ("float", 1.0, ["x=1.0"]),
    ("float", "1", ["x=1.0"]),
    ("float", 1, ["x=1.0"]),
    ("decimal", Decimal("1.5"), ["amt=1.50"]),
    ("decimal", "2", ["amt=2.00"]),
    ("time", "2026/01/01", ["ts=2026%2F01%2F01"]),
    ("time", datetime(2026, 1, 1, 23, tzinfo=UTC), ["ts=2026%2F01%2F01"]),
    ("time", "2026-01-02T10:00:00Z", ["ts=2026%2F01%2F02"]),
    ("time", {"ts": "2026/02/01"}, ["ts=2026%2F02%2F01"]),
    ("several", [("sf", date(2026, 1, 1))], ["city=sf/day=2026-01-01"]),
    ("several", [("sf", "2026-01-02")], ["city=sf/day=2026-01-02"]),
    ("several", {"city": "sf"}, ["city=sf/day=2026-01-01", "city=sf/day=2026-01-02"]),
    (
        "several",
        {"day": date(2026, 1, 1)},
        [f"city={MISSING}/day=2026-01-01", "city=oslo/day=2026-01-01", "city=sf/day=2026-01-01"],
    ),
    ("several", {"day": "2026-01-01", "city": "oslo"}, ["city=oslo/day=2026-01-01"]),
    ("several", "city=sf", ["city=sf/day=2026-01-01", "city=sf/day=2026-01-02"]),
    ("several", "city=sf/day=2026-01-02", ["city=sf/day=2026-01-02"]),
    ("several", "day=2026-01-02", ["city=sf/day=2026-01-02"]),
    ("several", [(None, date(2026, 1, 1))], [f"city={MISSING}/day=2026-01-01"]),
    ("several", [("a/b", None)], [f"city=a%2Fb/day={MISSING}"]),
    ("several, bare", "sf/1", ["sf/1"]),
    ("several, bare", [("sf", 2)], ["sf/2"]),
    ("several, bare", "city=sf/n=1", ["sf/1"]),
    ("several, bare", {"n": 1}, ["oslo/1", "sf/1"]),
    ("none", "", [""]),
]

REFUSED: list[tuple[str, Any]] = [
    ("text", ""),
    ("text", "city="),
    ("text", {"city": ""}),
    ("text", [("",)]),
    ("text", "nowhere"),
    ("text", "city=nowhere"),
    ("text", {"city": "nowhere"}),
    ("text", {"town": "sf"}),
    ("text", {}),
    ("text", 5),
    ("text", [("sf", "x")]),
    ("text", b"sf"),
    ("text", object()),
    ("text", ["sf", "nowhere"]),
    ("text", {"city": ["sf"]}),
    ("text", "\ud800"),
    ("text", {"city": "\ud800"}),
    ("text", {"\ud800": 1}),
    ("text", {5: "sf"}),
    ("text", "../neighbour"),
    ("text, plain", {"city": "../neighbour"}),
    ("int", "sf"),
    ("int", 3),
    ("int", 1.5),
    ("int", True),
    ("int", 10**30),
    ("int", date(2026, 1, 1)),
    ("date", "yesterday"),
    ("date", 20454),
    ("several", "sf"),
    ("several", date(2026, 1, 1)),
    ("several", [("sf",)]),
    ("several", [("sf", date(2027, 1, 1))]),
    ("several", {"city": "sf", "other": 1}),
    ("several", "city=sf/day=2027-01-01"),
    ("none", "n=1"),
    ("none", {"n": 1}),
    ("none", 1),
]


@pytest.fixture(scope="module")
def table() -> Callable[[str], Table]:
    known: dict[str, Table] = {}

    def of(name: str) -> Table:
        if name not in known:
            known[name] = TABLES[name](name)
        return known[name]

    return of


@pytest.mark.parametrize(("name", "asked", "paths"), CASES, ids=range(len(CASES)))
def test_what_is_meant(table: Callable[[str], Table], name: str, asked: Any, paths: list[str]) -> None:
    one = table(name)
    assert sorted({piece.partition for piece in one.file_groups(asked)}) == sorted(paths)
    plan = one.delete_partitions(asked, dry_run=True)
    assert sorted({str(path) for path in plan.replaced}) == sorted(paths)
    there = [key for key, path in keys_of(one) if path in paths]
    assert one.check(partitions=asked).is_clean
    assert one.index.explain(there, partitions=asked).found == len(there)


def keys_of(table: Table) -> list[tuple[str, str]]:
    rows = table.read(["id"], meta_columns=True)
    return list(zip(rows["id"].to_pylist(), rows["_hoodie_partition_path"].to_pylist(), strict=True))


@pytest.mark.parametrize(("name", "asked"), REFUSED, ids=range(len(REFUSED)))
def test_what_means_no_partition_is_refused(table: Callable[[str], Table], name: str, asked: Any) -> None:
    one = table(name)
    before = keys_of(one)
    with pytest.raises((InvalidInputError, UnsafePath)) as refused:
        one.delete_partitions(asked)
    assert len(str(refused.value)) < 1000
    assert keys_of(one) == before


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (["nowhere"], None),
        ({"city": "nowhere"}, None),
        (["../neighbour"], UnsafePath),
        ({"town": "sf"}, InvalidInputError),
    ],
    ids=range(4),
)
def test_where_a_partition_is_not_there_nothing_is_found(
    table: Callable[[str], Table], asked: Any, error: type[LakefmtError] | None
) -> None:
    one = table("text")
    if error is None:
        assert one.delete(["k0"], partitions=asked).num_deletes == 0
        assert one.delete("id = 'k0'", partitions=asked).num_deletes == 0
        assert one.file_groups(asked) == []
        return
    with pytest.raises(error):
        one.delete(["k0"], partitions=asked)


@given(value=st.one_of(st.text(st.characters(codec="utf-8"), max_size=6), st.none()), how=st.integers(0, 2))
def test_every_value_finds_the_partition_that_it_was_written_to(value: str | None, how: int) -> None:
    from lakefmt._core.keys import build_partition_paths, choose_partitions, plan_key_spec

    schema = pa.schema([("id", pa.string()), ("city", pa.string())])
    spec = plan_key_spec("id", "city", [None, BARE, PLAIN][how])
    try:
        path = str(build_partition_paths(spec, pa.table({"city": pa.array([value], pa.string())})).dictionary[0])
    except LakefmtError:
        return
    known = [path, "other"] if path != "other" else [path]
    if value == "":  # no partition of its own
        assert choose_partitions(spec, schema, known, {"city": value}) == [path]
        with pytest.raises(InvalidInputError, match="no partition of its own"):
            choose_partitions(spec, schema, known, {"city": value}, must_exist=True)
        return
    assert choose_partitions(spec, schema, known, {"city": value}, must_exist=True) == [path]
    assert choose_partitions(spec, schema, known, [path], must_exist=True) == [path]
    assert choose_partitions(spec, schema, known, [(value,)], must_exist=True) == [path]


def test_partitions_go_by_value(tmp_path: Any) -> None:
    table = TABLES["several"]("gone")
    assert table.delete_partitions({"city": "sf"}).action == "replacecommit"
    assert {path for _, path in keys_of(table)} == {
        "city=oslo/day=2026-01-01",
        f"city={MISSING}/day=2026-01-01",
        f"city=a%2Fb/day={MISSING}",
    }
    assert table.delete("id >= 'k0'", partitions=[("oslo", date(2026, 1, 1))]).num_deletes == 1
    assert table.delete(["k3", "k4"], partitions={"city": "a/b"}).num_deletes == 1
    assert table.read()["id"].to_pylist() == ["k3"]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["sf"], ["oslo"]),
        (["city=sf"], ["oslo"]),
        ([json.dumps({"city": "sf"})], ["oslo"]),
        (["sf", "oslo"], []),
        ([json.dumps({"city": "sf", "n": 2})], ["oslo", "sf"]),
    ],
    ids=range(5),
)
def test_on_the_command_line(tmp_path: Any, words: list[str], left: list[str]) -> None:
    several = "n" in words[0] and words[0].startswith("{") and '"n"' in words[0]
    rows = pa.table({"id": ["a", "b", "c"], "city": ["sf", "sf", "oslo"], "n": [1, 2, 1]})
    place = str(tmp_path / "t")
    table = lakefmt.create_table(
        place, schema=rows.schema, record_key="id", partition_by=["city", "n"] if several else "city"
    )
    table.upsert(rows)
    options = [word for each in words for word in ("--partition", each)]

    def run(*command: str) -> str:
        done = CliRunner().invoke(main, list(command))
        assert done.exit_code == 0, done.output
        return done.stdout

    shown = json.loads(run("files", place, "--json", *options))
    assert len(shown) == (2 if len(words) == 2 else 1)
    run("check", place, *options)
    run("delete", place, *options)
    assert sorted(set(table.read()["city"].to_pylist())) == left


def test_a_wrong_partition_on_the_command_line_is_told(tmp_path: Any) -> None:
    rows = pa.table({"id": ["a"], "city": ["sf"]})
    lakefmt.create_table(str(tmp_path / "t"), schema=rows.schema, record_key="id", partition_by="city").upsert(rows)
    for words, status in (("nowhere", 1), ('{"town": "sf"}', 1), ("{city: sf}", 2)):
        done = CliRunner().invoke(main, ["delete", str(tmp_path / "t"), "--partition", words])
        assert done.exit_code == status, done.output
