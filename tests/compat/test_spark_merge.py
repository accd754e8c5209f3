"""Hudi's MERGE INTO and a merge by lakefmt, of tables alike: equal rows; and Spark reads what a merge has written.

Where Hudi is stricter or contradicts itself is no case here (docs/merge.md): it joins by the record key alone, wants the
ordering column set by every update, tries updates before deletes in whatever order they stand, leaves rows without a source
row as they are, and deletes late matches in copy-on-write tables only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakefmt
from lakefmt._core.table_verbs import TableMerge
from lakefmt.testing.multiset import multiset_difference
from tests.judges.spark import SparkJudge
from tests.kit import product_or_diagonal

pytestmark = [pytest.mark.judge_spark, pytest.mark.every_second_day(0)]

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
KEEP = {"hoodie.write.auto.upgrade": "false"}


@dataclass(frozen=True)
class Case:
    """Clauses for both; `sql` is what follows the condition.

    `reads_target`: values or conditions name columns of the table. Of a merge-on-read table Hudi refuses or ignores it.
    `late`: source rows may be older than stored ones; where they delete, Hudi's two table types contradict each other.
    """

    sql: str
    merge: Any
    reads_target: bool = False
    late: bool = True

    def run(self, merge: TableMerge) -> lakefmt.CommitResult:
        result = self.merge(merge).execute()
        assert isinstance(result, lakefmt.CommitResult)
        return result


CASES = {
    "upsert": Case(
        "when matched then update set * when not matched then insert *", lambda m: m.when_matched().when_not_matched()
    ),
    "conditions": Case(
        "when matched and s.v > 3 then update set v = t.v + s.v, ts = s.ts "
        "when matched and s.v = 1 then update set v = 0, ts = t.ts when not matched and s.city = 'sf' then insert *",
        lambda m: (
            m.when_matched({"v": "t.v + s.v", "ts": "s.ts"}, where="s.v > 3")
            .when_matched({"v": 0}, where="s.v = 1")
            .when_not_matched(where="s.city = 'sf'")
        ),
        reads_target=True,
    ),
    "insert only": Case("when not matched then insert *", lambda m: m.when_not_matched()),
    "case": Case(
        "when matched then update set v = case when s.v > 2 then s.v else t.v end, ts = greatest(t.ts, s.ts)",
        lambda m: m.when_matched({"v": "case when s.v > 2 then s.v else t.v end", "ts": "greatest(t.ts, s.ts)"}),
        reads_target=True,
    ),
    "conditions on both": Case(
        "when matched and s.v > t.v then update set v = s.v * 10, ts = s.ts when matched and s.v = 1 then delete "
        "when not matched and s.city = 'sf' then insert *",
        lambda m: (
            m.when_matched({"v": "s.v * 10", "ts": "s.ts"}, where="s.v > t.v")
            .when_matched_delete(where="s.v = 1")
            .when_not_matched(where="s.city = 'sf'")
        ),
        reads_target=True,
        late=False,
    ),
    "delete first": Case(
        "when matched and s.v < 3 and s.ts >= t.ts then delete "
        "when matched and not (s.v < 3 and s.ts >= t.ts) then update set * "
        "when not matched then insert (id, city, ts, v) values (s.id, s.city, s.ts, s.v * 2)",
        lambda m: (
            m.when_matched_delete(where="s.v < 3 and s.ts >= t.ts")
            .when_matched(where="not (s.v < 3 and s.ts >= t.ts)")
            .when_not_matched({"id": "s.id", "city": "s.city", "ts": "s.ts", "v": "s.v * 2"})
        ),
        reads_target=True,
    ),
    "delete some": Case(
        "when matched and s.v < 3 then delete when matched and s.v >= 3 then update set * "
        "when not matched then insert (id, city, ts, v) values (s.id, s.city, s.ts, s.v * 2)",
        lambda m: (
            m.when_matched_delete(where="s.v < 3")
            .when_matched(where="s.v >= 3")
            .when_not_matched({"id": "s.id", "city": "s.city", "ts": "s.ts", "v": "s.v * 2"})
        ),
        late=False,
    ),
}


def drawn(generator: np.random.Generator, size: int) -> pa.Table:
    keys = generator.choice(12, size, replace=False)
    cities = [
        "sf" if key % 2 else "oslo" for key in keys
    ]  # the partition of a key does not change: Hudi would add a row
    columns = [[f"k{key}" for key in keys], cities, generator.integers(0, 4, size), generator.integers(0, 6, size)]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def as_sql(rows: pa.Table) -> str:
    return "values " + ", ".join(
        f"('{r['id']}', '{r['city']}', bigint({r['ts']}), bigint({r['v']}))" for r in rows.to_pylist()
    )


@pytest.mark.in_turn(2)
@product_or_diagonal(
    ordering=[None, "ts"], partition_by=[None, "city"], table_type=["cow", "mor"], table_version=[6, 8, 9]
)
def test_hudi_merges_alike(
    tmp_path: Path,
    spark_judge: SparkJudge,
    ordering: str | None,
    partition_by: str | None,
    table_type: str,
    table_version: int,
) -> None:
    """Every case once, one after another, on two tables alike; at the end Spark and lakefmt read both.

    Deletes come last: in a merge-on-read table Hudi takes a key for matched that a log has deleted, and inserts it no more.
    """
    generator = np.random.default_rng([table_version, len(table_type), ordering is None])
    tables = {}
    first, second = drawn(generator, 8), drawn(generator, 4)
    for name in ("ours", "theirs"):
        tables[name] = lakefmt.create_table(
            str(tmp_path / name),
            schema=SCHEMA,
            record_key="id",
            ordering=ordering,
            partition_by=partition_by,
            table_type=table_type,
            table_version=table_version,
            index="simple",
        )
        tables[name].upsert(first)
        tables[name].upsert(second)
    view = f"merged_{tmp_path.name.replace('-', '_')}"
    spark_judge.sql(f"create table {view} using hudi location '{tmp_path / 'theirs'}'", settings=KEEP)
    newest = 0
    for case in CASES.values():
        if (case.reads_target and table_type == "mor") or (case is CASES["insert only"] and ordering is None):
            continue  # without an ordering column Hudi inserts what is stored already
        source = drawn(generator, 6)
        newest += 5
        if not case.late or table_type == "mor":  # a delete in a log would be met by late rows
            source = source.set_column(2, SCHEMA.field("ts"), pc.add(source["ts"], newest))
        case.run(tables["ours"].merge(source))
        text = f"merge into {view} t using ({as_sql(source)} as s(id, city, ts, v)) s on t.id = s.id {case.sql}"
        spark_judge.sql(text, settings=KEEP)
        left = lakefmt.open_table(str(tmp_path / "theirs")).read(columns=SCHEMA.names)
        assert not multiset_difference(tables["ours"].read(columns=SCHEMA.names), left), case.sql
    assert tables["ours"].check("full").is_clean
    read = spark_judge.snapshot(tmp_path / "ours").select(SCHEMA.names)
    assert not multiset_difference(read, tables["ours"].read(columns=SCHEMA.names))
    # The judge can say no: one more merge by one side, and they differ.
    CASES["case"].run(tables["ours"].merge(tables["ours"].read().set_column(3, "v", pa.array([9] * read.num_rows))))
    assert multiset_difference(spark_judge.snapshot(tmp_path / "ours").select(SCHEMA.names), left)


def test_what_hudi_does_with_late_rows_and_rows_that_match_twice(tmp_path: Path, spark_judge: SparkJudge) -> None:
    """What docs/merge.md says of Hudi's MERGE INTO, so that it is noticed when it changes."""
    found: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    cases = {
        "late update": ("'a', 1, 10", "when matched then update set *"),
        "late delete": ("'a', 1, 10", "when matched then delete"),
        "twice": ("'a', 6, 10), ('a', 7, 11", "when matched then update set *"),
        "a delete before an update": (
            "'a', 6, 10",
            "when matched and s.v = 10 then delete when matched then update set *",
        ),
        "no source row": ("'a', 6, 10", "when not matched by source then delete"),
    }
    columns = pa.schema([("id", pa.string()), ("ts", pa.int32()), ("v", pa.int32())])
    for number, (name, (values, clause)) in enumerate(cases.items()):
        for table_type in ("cow", "mor"):
            path = tmp_path / f"{table_type}{number}"
            table = lakefmt.create_table(
                str(path), schema=columns, record_key="id", ordering="ts", table_type=table_type, table_version=9
            )
            table.upsert(pa.table({"id": ["a", "b"], "ts": [5, 5], "v": [1, 2]}, schema=columns))
            view = f"facts_{table_type}{number}"
            spark_judge.sql(
                f"create table {view} using hudi location '{path}'",
                f"merge into {view} t using (values ({values}) as s(id, ts, v)) s on t.id = s.id {clause}",
                settings=KEEP,
            )
            left = lakefmt.open_table(str(path)).read(columns=columns.names)
            found[name, table_type] = sorted(tuple(row.values()) for row in left.to_pylist())
    stored = [("a", 5, 1), ("b", 5, 2)]
    assert found == {
        ("late update", "cow"): stored,
        ("late update", "mor"): stored,
        ("late delete", "cow"): stored[1:],
        ("late delete", "mor"): stored,
        ("twice", "cow"): [("a", 7, 11), stored[1]],
        ("twice", "mor"): [("a", 7, 11), stored[1]],
        ("a delete before an update", "cow"): [("a", 6, 10), stored[1]],
        ("a delete before an update", "mor"): [("a", 6, 10), stored[1]],
        ("no source row", "cow"): stored,
        ("no source row", "mor"): stored,
    }
