"""Tables whose columns Spark changed by ALTER TABLE, with column ids: lakefmt reads what Spark reads, or refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt.errors import UnsupportedFeature
from lakefmt.filegroups import table_client
from lakefmt.schema.history import LATEST_SCHEMA
from tests.judges.compare import assert_same_multiset
from tests.judges.spark import SparkJudge

pytestmark = pytest.mark.judge_spark

READS = {"hoodie.schema.on.read.enable": "true", "spark.sql.parquet.enableVectorizedReader": "false"}
SETTINGS = READS | {
    "hoodie.metadata.enable": "false",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.compact.inline": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.index.bloom.num_entries": "1000",
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true",
}
COLUMNS = "id int, a int, n int, b string, f float, d decimal(6,2), s struct<p:int,r:string>, ts bigint"
ROW = "({n}, {n}0, 7, 'b{n}', cast(1.1 as float), cast(1.25 as decimal(6,2)), named_struct('p', {n}, 'r', 'r{n}'), 1)"
#: What is done to a table, and what lakefmt says; None: it reads and writes on.
CHANGES: dict[str, tuple[list[str], str | None]] = {
    "grown": (
        [
            "add columns (x string after id)",
            "alter column a type bigint",
            "alter column d type decimal(9,2)",
            "alter column b after s",
            "alter column n type double",
        ],
        None,
    ),
    "dropped": (["drop column b"], None),
    "renamed": (["rename column b to c"], "column 'c' was called 'b' before"),
    "again": (["drop column b", "add columns (b string)"], "column 'b' was dropped and added again"),
    "inside": (["rename column s.p to q"], "column 's.q' was called 's.p' before"),
    "shortest": (["alter column f type double"], "column 'f' was float before and is double now"),
}
#: Each change on the table type where it says most: what a type does with base files and logs is one code in lakefmt.
ON = {"cow": ["grown", "dropped", "renamed", "again", "shortest"], "mor": ["grown", "renamed", "inside"]}


def first_instant(table: lakefmt.Table) -> str:
    return str(table.timeline.timeline.commits[0].time)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_what_spark_changed(
    tmp_path: Path, spark_judge: SparkJudge, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = []
    for name in ON[kind]:
        changes, reason = CHANGES[name]
        table = f"evolved_{kind}_{name}"
        statements += [
            f"create table {table} ({COLUMNS}) using hudi tblproperties (type='{kind}', primaryKey='id', "
            f"preCombineField='ts') location '{tmp_path / name}'",
            f"insert into {table} values {ROW.format(n=1)}, {ROW.format(n=2)}",
            *(f"alter table {table} {change}" for change in changes),
        ]
        if reason is None or kind == "mor":  # of a copy-on-write table the one file would be written anew
            statements.append(f"update {table} set ts = 2 where id = 2")
    spark_judge.sql(*statements, settings=SETTINGS, seconds=300)
    for name in ON[kind]:
        reason = CHANGES[name][1]
        table, theirs = lakefmt.open_table(str(tmp_path / name)), spark_judge.snapshot(tmp_path / name, options=READS)
        before = table.read(as_of=first_instant(table))
        assert before.column_names == ["id", "a", "n", "b", "f", "d", "s", "ts"]
        assert before["b"].to_pylist() == ["b1", "b2"], f"{name}: before the change names are right"
        if reason is None:
            assert_same_multiset(table.read(), theirs, what=name)
            continue
        with pytest.raises(UnsupportedFeature, match=reason):
            table.read()
        with pytest.raises(UnsupportedFeature, match=reason):
            table.upsert(before)
        with monkeypatch.context() as blind:
            blind.setattr(table_client, "why_names_fail", lambda *_: None)
            read = lakefmt.open_table(str(tmp_path / name)).read()
        with pytest.raises(AssertionError):
            assert_same_multiset(read, theirs, what=f"{name}: read by names")
    _written_on(spark_judge, tmp_path / "grown", f"evolved_{kind}_grown", compacts=kind == "mor")


def _written_on(judge: SparkJudge, root: Path, name: str, *, compacts: bool) -> None:
    """lakefmt writes, Spark changes columns again, both read the same: lakefmt's commits keep the ids."""
    table = lakefmt.open_table(str(root))
    ours = table.read().to_pylist()
    table.upsert(pa.Table.from_pylist([{**ours[0], "b": "ours", "ts": 5}], schema=table.schema))
    if compacts:
        table.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
    state = table.client.load()
    for instant in state.timeline.commits[-2:]:
        told = table.client.commit_metadata(state, instant).extra_metadata[LATEST_SCHEMA]
        assert [field["id"] for field in json.loads(told)["fields"]][5:8] == [5, 15, 6], "x came later than a"
    assert_same_multiset(judge.snapshot(root, options=READS), table.read(), what="our write")
    added = pa.Table.from_pylist([{**ours[1], "y": 1}], schema=table.schema.append(pa.field("y", pa.int64())))
    with pytest.raises(UnsupportedFeature, match="change the columns with ALTER TABLE"):
        table.upsert(added)
    judge.sql(
        f"refresh table {name}",
        f"alter table {name} add columns (y bigint)",
        f"update {name} set y = 7, ts = 9 where id = 2",
        settings=SETTINGS,
    )
    assert_same_multiset(table.read(), judge.snapshot(root, options=READS), what="Spark's change after our write")
    table.upsert(added)
    assert_same_multiset(judge.snapshot(root, options=READS), table.read(), what="our second write")
