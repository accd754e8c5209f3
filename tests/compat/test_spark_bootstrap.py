"""Tables that Spark and lakefmt bootstrapped: both read the same rows, and write in turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt._core.compaction.compact_run import run_compaction
from lakefmt._core.values import TableType
from tests.filegroups.test_bootstrap import COLUMNS, NEW, SOURCE, STORED, check_doors, digests, unpacked, values_of
from tests.ingest.test_in_place import make_source
from tests.judges.compare import assert_same_multiset
from tests.judges.spark import SparkJudge

pytestmark = [pytest.mark.judge_spark, pytest.mark.every_second_day(1)]

#: Of version 6 and later ones, copy-on-write and merge-on-read, each with partition values in paths alone and in files, too.
KINDS: dict[str, dict[str, Any]] = {
    "v9_cow_bootstrap_120": {},
    "v6_mor_bootstrap_120": {},
    "in place, cow": {"table_type": "cow", "table_version": 6},
    "in place, mor": {"table_type": "mor", "table_version": 9},
}


def make(kind: str, folder: Path) -> tuple[Path, list[tuple[Any, ...]]]:
    """Make a table; return its path and its rows."""
    if not KINDS[kind]:
        return unpacked(kind, folder), STORED
    source = make_source(folder / "source", with_city=KINDS[kind]["table_type"] == "mor")
    lakefmt.convert(source, folder / "table", record_key="id", ordering="ts", in_place=True, **KINDS[kind])
    return folder / "table", SOURCE


def rows_of(values: list[tuple[Any, ...]]) -> pa.Table:
    """Return rows as a table."""
    return pa.table({name: [row[n] for row in values] for n, name in enumerate(COLUMNS)})


@pytest.mark.parametrize("kind", list(KINDS))
def test_spark_and_lakefmt_read_and_write_in_turns(tmp_path: Path, spark_judge: SparkJudge, kind: str) -> None:
    path, rows = make(kind, tmp_path)
    before, table = digests(tmp_path / "source"), lakefmt.open_table(str(path))

    def check(what: str, now: dict[str, tuple[Any, ...]]) -> None:
        theirs = spark_judge.snapshot(path, meta_columns=True)
        ignored = ["_hoodie_file_name"] if table.properties.table_type is TableType.MERGE_ON_READ else []
        assert_same_multiset(table.read(meta_columns=True), theirs, ignored, what=f"{kind}, {what}")
        assert values_of(theirs) == sorted(now.values()), what
        check_doors(lakefmt.open_table(str(path)), list(now.values()))

    now = {row[0]: row for row in rows}
    check("as it was made", now)
    some = spark_judge.snapshot(path, where="city = 'rome' and v > 0")
    assert values_of(some) == sorted(row for row in rows if row[-1] == "rome" and row[1] > 0)
    spark_judge.write(path, rows_of([("rome10", 70, 700, "theirs", "rome"), ("new5", 7, 700, "theirs", "bern")]))
    now |= {"rome10": ("rome10", 70, 700, "theirs", "rome"), "new5": ("new5", 7, 700, "theirs", "bern")}
    check("after Spark's upsert", now)
    table.upsert(rows_of([*NEW, ("rome12", 80, 800, "ours", "rome")]))
    now |= {row[0]: row for row in [*NEW, ("rome12", 80, 800, "ours", "rome")]}
    table.delete("id = 'oslo20'")
    del now["oslo20"]
    check("after our upsert and delete", now)
    spark_judge.write(path, rows_of([now["oslo21"]]), "delete")
    del now["oslo21"]
    if table.properties.table_type is TableType.MERGE_ON_READ:
        table.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
        check("after our compaction", now)
    table.cluster()
    check("after our clustering", now)
    name = f"bootstrap_{list(KINDS).index(kind)}"
    spark_judge.sql(
        f"create table {name} using hudi location '{path}'",
        f"call run_clean(table => '{name}', retain_commits => 1)",
        settings={"hoodie.metadata.enable": "false"},
    )
    check("after Spark's clean", now)
    table.clean(options={"hoodie.clean.commits.retained": 1})
    check("after our clean", now)
    assert digests(tmp_path / "source") == before


@pytest.mark.parametrize("kind", ["in place, cow", "in place, mor"])
def test_each_carries_out_the_plans_of_the_other(tmp_path: Path, spark_judge: SparkJudge, kind: str) -> None:
    path, rows = make(kind, tmp_path)
    table, now = lakefmt.open_table(str(path)), {row[0]: row for row in rows}
    settings = {
        "hoodie.write.table.version": str(KINDS[kind]["table_version"]),
        "hoodie.write.auto.upgrade": "false",
        "hoodie.metadata.enable": "false",
        "hoodie.embed.timeline.server": "false",
        "hoodie.compact.inline.max.delta.commits": "1",
    }

    def check(what: str) -> None:
        assert values_of(spark_judge.snapshot(path)) == sorted(now.values()), what
        check_doors(lakefmt.open_table(str(path)), list(now.values()))

    def change(key: str) -> None:
        now[key] = (key, 50, 900, "changed", key[:4])
        table.upsert(rows_of([now[key]]))

    if kind == "in place, mor":
        change("oslo11")
        planned = run_compaction(table.client, settings, schedule=True)
        run = f"call run_compaction(op => 'run', path => '{path}', timestamp => {planned.instant})"
        spark_judge.sql(run, settings=settings)
        check("after Spark ran our compaction")
        change("oslo21")
        spark_judge.sql(f"call run_compaction(op => 'schedule', path => '{path}')", settings=settings)
        (waiting,) = (each.time for each in table.client.load().timeline.pending)
        assert run_compaction(table.client, settings, run=waiting, verify=True).plan.num_logs == 1
        check("after we ran Spark's compaction")
        table.cluster(schedule=True)
        spark_judge.sql(f"call run_clustering(path => '{path}', op => 'execute')", settings=settings)
        assert not table.client.load().timeline.pending
        check("after Spark ran our clustering")
    else:
        spark_judge.sql(f"call run_clustering(path => '{path}', op => 'schedule')", settings=settings)
        (waiting,) = (each.time for each in table.client.load().timeline.pending)
        assert len(table.cluster(run=waiting).plan.file_groups) == 4
        check("after we ran Spark's clustering")


def test_directories_of_many_kinds_are_read_as_spark_reads_them(tmp_path: Path, spark_judge: SparkJudge) -> None:
    for number, name in enumerate(("sao%2Fpaulo", "a b", "são", "__HIVE_DEFAULT_PARTITION__")):
        directory = tmp_path / "in" / f"city={name}" / f"month=0{number + 1}" / f"year={2020 + number}"
        if name == "são":
            continue  # Hudi encodes it, and this directory is not encoded
        directory.mkdir(parents=True)
        pq.write_table(pa.table({"id": [number], "ts": [1]}), directory / "a b.parquet")
    lakefmt.convert(tmp_path / "in", tmp_path / "t", record_key="id", in_place=True, table_version=9)
    ours, theirs = lakefmt.open_table(tmp_path / "t").read(), spark_judge.snapshot(tmp_path / "t")
    assert_same_multiset(ours, theirs, what="values of directories")
    assert sorted(map(str, ours["city"].to_pylist())) == ["None", "a b", "sao/paulo"]


def test_the_judge_sees_a_value_that_differs(tmp_path: Path, spark_judge: SparkJudge) -> None:
    """Sabotage: a source file with one other value, of the same rows and size."""
    path, _ = make("in place, cow", tmp_path)
    before = lakefmt.open_table(path).read()
    source = tmp_path / "source/city=oslo/part 1.parquet"
    size, rows = source.stat().st_size, pq.read_table(source, partitioning=None)
    values = pa.array([5, *rows["v"].to_pylist()[1:]], pa.int64())
    pq.write_table(rows.set_column(rows.column_names.index("v"), "v", values), source)
    data = source.read_bytes()
    assert abs(len(data) - size) < 64
    with pytest.raises(AssertionError):
        assert_same_multiset(before, spark_judge.snapshot(path))
