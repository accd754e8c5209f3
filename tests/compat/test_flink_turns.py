"""Hudi on Flink and lakefmt write one table in turns, at random, and each finds what the other left (version 6)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.config.hudi_options import find_published
from lakefmt._core.config.settings import SETTINGS
from lakefmt._core.table import Table
from lakefmt._core.values import OPERATION
from lakefmt.errors import UnsupportedFeature
from lakefmt.spark.options import find_option
from tests.example_counts import seed_of_run
from tests.judges.compare import assert_same_multiset
from tests.judges.flink import RELEASE, FlinkTable, HudiOnFlink, flink_missing
from tests.judges.plugin import LEDGER, _refuse

pytestmark = [pytest.mark.slow, pytest.mark.test_all, pytest.mark.xdist_group("hudi_flink"), pytest.mark.timeout(900)]

BUCKETS = 3
COLUMNS = {"id": "STRING NOT NULL", "city": "STRING", "ts": "BIGINT", "v": "STRING"}
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
#: How Flink finds the file groups of keys: by their bucket, or in its state, which each job fills from the table first.
INDEXES = {
    "bucket": {"index.type": "BUCKET", "hoodie.bucket.index.num.buckets": str(BUCKETS)},
    "simple": {"index.type": "FLINK_STATE", "index.bootstrap.enabled": "true"},
}
TURNS = 7

Row = dict[str, Any]


@pytest.fixture(scope="module")
def flink(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiOnFlink]:
    """Hudi on Flink, one JVM for all tests of this file."""
    if lacking := flink_missing():
        _refuse(request.config, "FLINK", lacking)
    with HudiOnFlink(tmp_path_factory.mktemp("flink")) as judge:
        yield judge
        request.config.stash[LEDGER].add("FLINK", RELEASE, judge.requests)


def arrow(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def literals(rows: Sequence[Row]) -> str:
    """Rows as SQL's VALUES."""

    def one(value: object) -> str:
        return "CAST(NULL AS STRING)" if value is None else f"'{value}'" if isinstance(value, str) else str(value)

    return "VALUES " + ", ".join(f"({', '.join(one(row[name]) for name in COLUMNS)})" for row in rows)


class Turns:
    """A table, the rows that it should hold, and the two writers.

    Args:
        flink: one of them.
        declared: the table as Flink knows it.
        index: as lakefmt names it.
        chance: what is drawn from.
    """

    def __init__(self, flink: HudiOnFlink, declared: FlinkTable, index: str, chance: random.Random) -> None:
        self.flink, self.declared, self.chance = flink, declared, chance
        self.index = index
        self.rows: dict[str, Row] = {}
        self.clock = 0
        self.deleted: set[str] = set()

    def ours(self) -> Table:
        buckets = {"hoodie.bucket.index.num.buckets": str(BUCKETS)} if self.index == "bucket" else {}
        options = {"hoodie.index.type": self.index.upper(), "lakefmt.durability": "none", **buckets}
        return lakefmt.open_table(self.declared.path, options=options)

    def draw(self, writer: str) -> list[Row]:
        """Rows of a few keys, one in three of them older than what is stored.

        Of a key that was deleted none is late: in logs of version 6 Flink 0.14 lets any later row follow a delete, Spark and lakefmt only one
        that is not older.
        """
        self.clock += 10
        numbers = self.chance.sample(range(12), self.chance.randint(1, 8))
        late = {number: 0 if f"k{number}" in self.deleted else self.chance.choice([0, 0, 15]) for number in numbers}
        return [
            {
                "id": f"k{number}",
                "city": f"c{number % 2}",
                "ts": self.clock - late[number],
                "v": self.chance.choice([f"{writer}{self.clock}", f"ü'\u00e9{writer}".replace("'", ""), None]),
            }
            for number in numbers
        ]

    def put(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if row["id"] not in self.rows or row["ts"] >= self.rows[row["id"]]["ts"]:
                self.rows[row["id"]] = row

    def flink_inserts(self) -> None:
        rows = self.draw("f")
        # A batch job sorts by key, and may see a row before the entry of the index that it fills from the table: it doubles rows then.
        self.flink.insert(self.declared, literals(rows), streaming=self.index == "simple")
        self.put(rows)

    def flink_changes(self) -> None:
        """Updates and deletes by a changelog; each is newer than what is stored."""
        rows = self.draw("s")
        changes: list[list[object]] = []
        for number, row in enumerate(rows):
            old = self.rows.get(row["id"])
            row["ts"] = self.clock + 1
            if old is not None and number % 2:
                changes += [["-D", *row.values()]]
                del self.rows[row["id"]]
                self.deleted.add(row["id"])
            else:
                changes += [["-U", *old.values()], ["+U", *row.values()]] if old else [["+I", *row.values()]]
                self.rows[row["id"]] = row
        self.flink.change(self.declared, changes)

    def we_upsert(self) -> None:
        rows = self.draw("o")
        self.ours().upsert(arrow(rows))
        self.put(rows)

    def we_delete(self) -> None:
        gone = self.chance.sample(sorted(self.rows), min(2, len(self.rows)))
        self.ours().delete(gone)
        for key in gone:
            del self.rows[key]
            self.deleted.add(key)

    def we_compact(self) -> None:
        if self.declared.options["table.type"] == "MERGE_ON_READ":
            self.ours().compact()

    def check(self, what: str) -> None:
        """Both read the rows of the model, each by its own means."""
        found = [dict(zip(COLUMNS, row[1:], strict=True)) for row in self.flink.read(self.declared)]
        assert_same_multiset(self.ours().read(SCHEMA.names), arrow(found), what=f"lakefmt beside Flink, {what}")
        assert_same_multiset(arrow(found), arrow(list(self.rows.values())), what=f"Flink, {what}")

    def run(self, first: str) -> None:
        verbs = ["flink_inserts", "flink_changes", "we_upsert", "we_delete", "we_compact"]
        later = [*verbs, *self.chance.choices(verbs, k=TURNS - len(verbs))]
        self.chance.shuffle(later)
        told = []
        for verb in [first, *later]:
            getattr(self, verb)()
            told.append(verb)
            self.check(" → ".join(told))
        report = self.ours().check("full")
        assert report.is_clean, report


def declared(path: Path, table_type: str, index: str, **more: str) -> FlinkTable:
    options = {"table.type": TYPES[table_type], "precombine.field": "ts", **INDEXES[index], **more}
    return FlinkTable(path, COLUMNS, options, partition=("city",))


def created_by_us(table: FlinkTable, table_type: str, index: str) -> None:
    buckets = {"hoodie.bucket.index.num.buckets": str(BUCKETS), "hoodie.bucket.index.hash.field": "id"}
    lakefmt.create_table(
        table.path,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        table_version=6,
        index=index,
        properties={
            "hoodie.datasource.write.hive_style_partitioning": "false",
            "hoodie.datasource.write.partitionpath.urlencode": "false",
            **(buckets if index == "bucket" else {}),
        },
    )


@pytest.mark.parametrize("first", ["flink_inserts", "we_upsert"])
@pytest.mark.parametrize("index", ["bucket", "simple"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_two_writers_in_turns(flink: HudiOnFlink, tmp_path: Path, table_type: str, index: str, first: str) -> None:
    table = declared(tmp_path / "t", table_type, index)
    if first == "we_upsert":
        created_by_us(table, table_type, index)
    Turns(flink, table, index, random.Random(f"{seed_of_run()} {table_type} {index} {first}")).run(first)


# ---------------------------------------------------------------------------------------------------------- changelogs


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_changelog_with_operations(flink: HudiOnFlink, tmp_path: Path, table_type: str) -> None:
    """Flink keeps `_hoodie_operation`; lakefmt writes between its changes, and compacts."""
    table = declared(tmp_path / "t", table_type, "bucket", **{"changelog.enabled": "true"})
    turns = Turns(flink, table, "bucket", random.Random(f"{seed_of_run()} {table_type}"))
    first = [["+I", f"k{n}", f"c{n % 2}", 1, "a"] for n in range(6)]
    flink.change(table, [*first, ["-U", "k0", "c0", 1, "a"], ["+U", "k0", "c0", 2, "b"], ["-D", "k1", "c1", 1, "a"]])
    turns.rows = {f"k{n}": {"id": f"k{n}", "city": f"c{n % 2}", "ts": 1, "v": "a"} for n in (2, 3, 4, 5)}
    turns.rows["k0"] = {"id": "k0", "city": "c0", "ts": 2, "v": "b"}
    turns.clock = 10
    turns.check("Flink's changes")
    logs = b"".join(path.read_bytes() for path in (tmp_path / "t").rglob("*.log.*"))
    assert (OPERATION.encode() in logs) == (table_type == "mor")
    verbs = ("we_upsert", "flink_changes", "we_delete", "flink_changes", "flink_inserts", "we_upsert", "we_delete")
    for before, verb in pairwise(("flink_changes", *verbs)):
        if table_type == "mor" and before.startswith("flink") and verb.startswith("we"):
            # Behind another commit Flink would see rows again that it has deleted.
            with pytest.raises(UnsupportedFeature, match="compact"):
                turns.ours().upsert(arrow(list(turns.rows.values())[:1]))
            turns.we_compact()
            turns.check(f"compacted before {verb}")
        getattr(turns, verb)()
        turns.check(f"{verb} at {turns.clock}")
    assert turns.ours().check("full").is_clean


# --------------------------------------------------------------------------------------------------------------- types

TYPED = {
    "id": "STRING NOT NULL",
    "b": "BOOLEAN",
    "i": "INT",
    "l": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "m": "DECIMAL(12, 3)",
    "day": "DATE",
    "ms": "TIMESTAMP(3)",
    "us": "TIMESTAMP(6)",
    "z": "TIMESTAMP_LTZ(6)",
    "raw": "BYTES",
    "list": "ARRAY<INT>",
    "map": "MAP<STRING, BIGINT>",
    "part": "ROW<x INT, y STRING>",
}
TYPED_VALUES = (
    "('a', TRUE, 1, 9007199254740993, CAST(1.5 AS FLOAT), 2.25E0, CAST(123.456 AS DECIMAL(12,3)), DATE '2026-01-31', "
    "TIMESTAMP '2026-01-31 10:11:12.123', TIMESTAMP '1969-12-31 23:59:59.999999', CAST(TIMESTAMP '2026-01-31 10:11:12.123456' AS "
    "TIMESTAMP_LTZ(6)), x'00ff', ARRAY[1, 2], MAP['k', CAST(5 AS BIGINT)], CAST(ROW(7, 'y') AS ROW<x INT, y STRING>))"
)
NULLS = "('b', " + ", ".join(f"CAST(NULL AS {kind})" for kind in list(TYPED.values())[1:]) + ")"


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_values_of_all_types_come_and_go(flink: HudiOnFlink, tmp_path: Path, table_type: str) -> None:
    table = FlinkTable(
        tmp_path / "t",
        TYPED,
        {
            "table.type": TYPES[table_type],
            "payload.class": "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
            **INDEXES["bucket"],
        },
    )
    flink.insert(table, f"VALUES {TYPED_VALUES}, {NULLS}")
    options = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": str(BUCKETS)}
    ours = lakefmt.open_table(tmp_path / "t", options=options)
    rows = ours.read(list(TYPED)).sort_by("id")
    first, second = rows.to_pylist()
    assert second == {"id": "b", **dict.fromkeys(list(TYPED)[1:])}
    assert first == {
        "id": "a",
        "b": True,
        "i": 1,
        "l": 9007199254740993,
        "f": 1.5,
        "d": 2.25,
        "m": Decimal("123.456"),
        "day": date(2026, 1, 31),
        "ms": datetime(2026, 1, 31, 10, 11, 12, 123000, first["ms"].tzinfo),
        "us": datetime(1969, 12, 31, 23, 59, 59, 999999, first["us"].tzinfo),
        "z": datetime(2026, 1, 31, 10, 11, 12, 123456, first["z"].tzinfo),
        "raw": b"\x00\xff",
        "list": [1, 2],
        "map": [("k", 5)],
        "part": {"x": 7, "y": "y"},
    }
    stored = sorted(flink.read(table))
    # The same values by our writer, under two new keys: Flink reads them as its own.
    renamed = rows.set_column(0, rows.schema.field("id"), pa.array(["c", "d"]))
    ours.upsert(renamed)
    found = sorted(flink.read(table))
    assert found[:2] == stored
    assert [row[2:] for row in found[2:]] == [row[2:] for row in stored]
    if table_type == "mor":
        ours.compact()
        assert sorted(flink.read(table)) == found


# ------------------------------------------------------------------------------------------------------------- services


def test_flink_compacts_what_both_wrote(flink: HudiOnFlink, tmp_path: Path) -> None:
    table = declared(tmp_path / "t", "mor", "bucket")
    turns = Turns(flink, table, "bucket", random.Random(seed_of_run()))
    for verb in ("flink_inserts", "we_upsert", "we_delete"):
        getattr(turns, verb)()
    compacts = {
        "compaction.async.enabled": "true",
        "compaction.schedule.enabled": "true",
        "compaction.delta_commits": "1",
    }
    rows = turns.draw("f")
    flink.insert(table, literals(rows), compacts)  # a batch job waits for it
    turns.put(rows)
    turns.check("Flink compacted")
    turns.we_upsert()
    turns.check("we wrote behind it")
    turns.we_compact()
    turns.check("we compacted")
    assert [entry.action for entry in turns.ours().timeline.entries].count("commit") == 2
    assert turns.ours().check("full").is_clean


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_rows_that_flink_appends(flink: HudiOnFlink, tmp_path: Path, operation: str) -> None:
    """Files without a look for keys; lakefmt updates and deletes in them."""
    unsorted = {"write.bulk_insert.sort_input": "false", "write.bulk_insert.shuffle_input": "false"}
    told = {"write.operation": operation, "hive_style_partitioning": "true", **unsorted}
    table = declared(tmp_path / "t", "cow", "simple", **told)
    rows = [{"id": f"k{n}", "city": f"c{n % 2}", "ts": 1, "v": None if n % 3 else "a"} for n in range(9)]
    flink.insert(table, literals(rows[:5]))
    flink.insert(table, literals(rows[5:]))
    turns = Turns(flink, table, "simple", random.Random(seed_of_run()))
    turns.put(rows)
    turns.check("appended")
    turns.we_upsert()
    turns.check("updated")
    turns.we_delete()
    turns.check("deleted")
    turns.ours().cluster(columns=["ts"])
    turns.check("clustered")
    assert turns.ours().check("full").is_clean


def test_every_option_of_flink_is_known(flink: HudiOnFlink) -> None:
    names = flink.option_names()
    assert len(names) > 110
    assert [
        name for name in names if name not in SETTINGS and find_published(name) is None and not find_option(name)
    ] == []
