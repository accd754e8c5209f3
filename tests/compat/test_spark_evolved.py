"""Tables whose columns Spark and lakefmt changed, with column ids: each reads what the other changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakefmt
from lakefmt._core.check.index_contents import IndexDamage
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.read import file_selection
from tests.judges.compare import assert_same_multiset
from tests.judges.spark import JudgeError, SparkJudge

pytestmark = [pytest.mark.judge_spark, pytest.mark.every_second_day(1)]

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
#: What Spark does to a table, and whether files from before have to be read by column ids.
CHANGES: dict[str, tuple[list[str], bool]] = {
    "grown": (
        [
            "add columns (x string after id)",
            "alter column a type bigint",
            "alter column d type decimal(9,2)",
            "alter column b after s",
            "alter column n type double",
        ],
        False,
    ),
    "dropped": (["drop column b"], False),
    "renamed": (["rename column b to c"], True),
    "again": (["drop column b", "add columns (b string)"], True),
    "inside": (["rename column s.p to q", "add columns (s.x string after q)"], True),
    "shortest": (["alter column f type double", "alter column n type string"], True),
}
#: Each change on the table type where it says most: what a type does with base files and logs is one code in lakefmt.
ON = {"cow": ["grown", "dropped", "renamed", "again", "shortest"], "mor": ["grown", "renamed", "inside"]}


def first_instant(table: lakefmt.Table) -> str:
    return str(table.timeline.timeline.commits[0].time)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_what_spark_changed(
    tmp_path: Path, spark_judge: SparkJudge, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = []
    for name in ON[kind]:
        changes, by_ids = CHANGES[name]
        table = f"evolved_{kind}_{name}"
        statements += [
            f"create table {table} ({COLUMNS}) using hudi tblproperties (type='{kind}', primaryKey='id', "
            f"preCombineField='ts') location '{tmp_path / name}'",
            f"insert into {table} values {ROW.format(n=1)}, {ROW.format(n=2)}",
            *(f"alter table {table} {change}" for change in changes),
        ]
        if not by_ids or kind == "mor":  # of a copy-on-write table the one file would be written anew
            statements.append(f"update {table} set ts = 2 where id = 2")
    spark_judge.sql(*statements, settings=SETTINGS, seconds=300)
    for name in ON[kind]:
        table, theirs = lakefmt.open_table(str(tmp_path / name)), spark_judge.snapshot(tmp_path / name, options=READS)
        before = table.read(as_of=first_instant(table))
        assert before.column_names == ["id", "a", "n", "b", "f", "d", "s", "ts"]
        assert before["b"].to_pylist() == ["b1", "b2"], f"{name}: before the change names are right"
        assert_same_multiset(table.read(), theirs, what=name)
        if CHANGES[name][1]:
            with monkeypatch.context() as blind:
                blind.setattr(TableAt, "column_ids", lambda *_: None)
                read = lakefmt.open_table(str(tmp_path / name)).read()
            with pytest.raises(AssertionError):
                assert_same_multiset(read, theirs, what=f"{name}: read by names")
    for name in ("grown", "renamed"):
        _written_on(spark_judge, tmp_path / name, f"evolved_{kind}_{name}", compacts=kind == "mor")


def _written_on(judge: SparkJudge, root: Path, name: str, *, compacts: bool) -> None:
    """lakefmt writes and alters, Spark changes columns again, both read the same: the ids go on."""
    table = lakefmt.open_table(str(root))
    ours = table.read().sort_by("id").to_pylist()
    table.upsert(pa.Table.from_pylist([{**ours[0], "f": 0.5, "ts": 5}], schema=table.schema))
    if compacts:
        table.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
    assert_same_multiset(judge.snapshot(root, options=READS), table.read(), what="our write")
    table.alter.rename_column("f", "g")
    added = pa.Table.from_pylist([{**table.read().to_pylist()[1], "y": 1}], schema=table.schema.append(Y))
    table.upsert(added)
    assert_same_multiset(judge.snapshot(root, options=READS), table.read(), what="our alteration")
    judge.sql(
        f"refresh table {name}",
        f"alter table {name} add columns (z bigint)",
        f"alter table {name} rename column y to w",
        f"update {name} set z = 7, ts = 9 where id = 2",
        settings=SETTINGS,
    )
    assert_same_multiset(table.read(), judge.snapshot(root, options=READS), what="Spark's change after our write")
    table.upsert(table.read())
    assert_same_multiset(judge.snapshot(root, options=READS), table.read(), what="our second write")


Y = pa.field("y", pa.int64())
OURS = pa.table(
    {
        "id": ["a", "b", "c"],
        "n": pa.array([1, 2, 3], pa.int32()),
        "f": pa.array([1.1, 2.5, None], pa.float32()),
        "d": pa.array(["1.25", "2.50", "-3.75"]).cast(pa.decimal128(6, 2)),
        "s": pa.array(
            [{"p": 1, "r": "r1"}, {"p": 2, "r": None}, None], pa.struct([("p", pa.int32()), ("r", pa.string())])
        ),
        "l": pa.array([[{"e": 1}], [], None], pa.list_(pa.struct([("e", pa.int32())]))),
        "b": ["b1", "b2", "b3"],
        "ts": pa.array([1, 1, 1], pa.int64()),
    }
)


def altered(path: Path, kind: str, version: int, *, inside: bool = True) -> lakefmt.Table:
    """A table that lakefmt made and altered in every way between writes."""
    table = lakefmt.create_table(
        str(path), data=OURS, record_key="id", ordering="ts", table_type=kind, table_version=version, options=OPTIONS
    )
    table.upsert(OURS)
    table.alter.rename_column("b", "c")
    table.alter.add_column("x", pa.string(), after="id", comment="what was added")
    table.upsert([{**row, "x": "x"} for row in table.read(filter="id = 'a'").to_pylist()])
    table.alter.update_column("n", type=pa.int64())
    table.alter.update_column("f", type=pa.float64(), after="ts")
    table.alter.update_column("d", type=pa.decimal128(9, 2))
    if inside:
        table.alter.rename_column("s.p", "q")
        table.alter.add_column("l.element.more", pa.int64())
    table.update("id = 'b'", {"c": "updated"})
    table.alter.drop_column("c")
    table.alter.add_column("c", pa.string())
    return table


OPTIONS: dict[str, object] = {"lakefmt.durability": "none", "hoodie.clean.automatic": False, "lakefmt.write.threads": 1}
MADE = [("cow", 6), ("mor", 8), ("cow", 9), ("mor", 9)]


def test_what_we_changed(tmp_path: Path, spark_judge: SparkJudge) -> None:
    for kind, version in MADE:
        path = tmp_path / f"{kind}{version}"
        table = altered(path, kind, version)
        ours = table.read()
        theirs = spark_judge.snapshot(path, options=READS)
        assert_same_multiset(theirs, ours, what=f"{kind} {version}")
    name = f"ours_{kind}"
    spark_judge.sql(
        f"create table {name} using hudi location '{path}'",
        f"alter table {name} rename column c to e",
        f"update {name} set e = 'theirs', ts = 9 where id = 'c'",
        settings=SETTINGS,
    )
    assert table.read(columns=["id", "e"]).sort_by("id")["e"].to_pylist() == [None, None, "theirs"]
    assert_same_multiset(spark_judge.snapshot(path, options=READS), table.read(), what="Spark went on")
    # The judge goes by the history: with another name for a column of older files it finds no values there. A copy, for Hudi
    # keeps the history of a path in a cache of weak values: of the table itself until the JVM happens to collect.
    copy = shutil.copytree(path, tmp_path / "copy")
    for file in (copy / ".hoodie" / ".schema").glob("*.schemacommit"):
        file.write_text(file.read_text().replace('"name":"p"', '"name":"other"'))
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    with pytest.raises((AssertionError, JudgeError)):
        assert_same_multiset(
            spark_judge.snapshot(copy, options=READS), table.read(), what="a history with another name"
        )


def _read_by_an_older_release(tmp_path: Path, judge: SparkJudge, version: int) -> None:
    """Fields inside columns in base files only: in their own merge-on-read tables 1.0.2 loses such renames, and 0.15 fails.

    A float of a log whose column became double is 1.100000023841858 for these releases, and 1.1 for Hudi 1.2 and lakefmt.
    """
    judge.sql("set spark.sql.parquet.enableVectorizedReader=false")
    for kind in ("cow", "mor"):
        table = altered(tmp_path / kind, kind, version, inside=kind == "cow")
        theirs, ours = judge.snapshot(tmp_path / kind, options=READS), table.read()
        what, other = f"{kind} {version}", ("f",) if kind == "mor" else ()
        assert_same_multiset(theirs, ours, ignore_columns=other, what=what)
        floats = [pc.cast(rows.sort_by("id")["f"], pa.float32()).to_pylist() for rows in (theirs, ours)]
        assert floats[0] == floats[1], what
    with pytest.raises((AssertionError, JudgeError)):
        assert_same_multiset(judge.snapshot(tmp_path / "mor"), table.read(), what="read without the history")


def test_what_we_changed_is_read_by_hudi_1_0_2(tmp_path: Path, spark_judge_102: SparkJudge) -> None:
    _read_by_an_older_release(tmp_path, spark_judge_102, 8)


def test_what_we_changed_is_read_by_hudi_0_15(tmp_path: Path, spark_judge_0150: SparkJudge) -> None:
    _read_by_an_older_release(tmp_path, spark_judge_0150, 6)


COMPACT = {"hoodie.compact.inline.max.delta.commits": 1}


def test_services_across_an_alteration(tmp_path: Path, spark_judge: SparkJudge) -> None:
    """A compaction and a clustering that were planned before, and both once more behind another alteration."""

    def agreed(what: str) -> None:
        assert_same_multiset(spark_judge.snapshot(root, options=READS), table.read(), what=f"{root.name}: {what}")

    def changed(key: str, **values: object) -> None:
        stored = table.read(filter=f"id = '{key}'").to_pylist()
        table.upsert(pa.Table.from_pylist([{**row, **values} for row in stored], schema=table.schema))

    for service, kind, version in (("compaction", "mor", 9), ("clustering", "mor", 6), ("clustering", "cow", 9)):
        root = tmp_path / f"{service}{version}"
        table = lakefmt.create_table(
            str(root),
            data=OURS,
            record_key="id",
            ordering="ts",
            table_type=kind,
            table_version=version,
            options=OPTIONS,
        )
        table.upsert(OURS)
        changed("a", b="log", ts=2)
        if service == "compaction":
            table.compact(schedule=True, options=COMPACT)
        else:
            table.cluster(["b"], schedule=True)
        table.alter.rename_column("b", "c")
        table.alter.add_column("b", pa.int64())
        agreed("altered beside the plan")
        if service == "compaction":
            changed("b", c="new", ts=9)
            table.compact(options=COMPACT)
        else:
            table.cluster()
        agreed("planned before, done after")
        assert table.read().sort_by("id")["c"].to_pylist() == ["log", "new" if service == "compaction" else "b2", "b3"]
        changed("c", b=5, ts=10)
        table.alter.rename_column("c", "name")
        if service == "compaction":
            table.compact(options=COMPACT)
        else:
            table.cluster(["name"])
        agreed("behind another alteration")
    lost = next(piece.base for piece in table.file_groups() if piece.base is not None)
    expected = table.read()
    table.client.store.delete([lost.path, f"{lost.partition}/.{lost.name}.crc".lstrip("/")])
    with pytest.raises((AssertionError, JudgeError)):
        assert_same_multiset(spark_judge.snapshot(root, options=READS), expected, what="a file less")


NULLS = ("hoodie.write.set.null.for.missing.columns", "hoodie.datasource.write.reconcile.schema")
DROP = "hoodie.datasource.write.schema.allow.auto.evolution.column.drop"


def test_rows_that_lack_columns(tmp_path: Path, spark_judge: SparkJudge) -> None:
    """What becomes of columns that the rows of an upsert lack, by Hudi's settings: the same as where Spark writes them."""
    schema = pa.schema([("id", pa.string()), ("v", pa.int32()), ("w", pa.string()), ("ts", pa.int64())])
    data = pa.table({"id": ["a", "b"], "v": [1, 2], "w": ["x", "y"], "ts": [1, 1]}, schema=schema)
    lacking = pa.table({"id": ["a", "c"], "v": [7, 8], "ts": [2, 2]}, schema=schema.remove(2))
    more = lacking.append_column("new", pa.array([1, 2], pa.int64()))
    for setting, rows in ((NULLS[0], lacking), (NULLS[0], more), (NULLS[1], lacking), (DROP, more)):
        name = f"{setting.rpartition('.')[2]}{rows.num_columns}{setting == NULLS[0]}"
        for engine in ("ours", "theirs"):
            made = lakefmt.create_table(
                str(tmp_path / engine / name), data=data, record_key="id", ordering="ts", options=OPTIONS
            )
            made.upsert(data)
        ours, theirs = lakefmt.open_table(str(tmp_path / "ours" / name)), tmp_path / "theirs" / name
        ours.upsert(rows, options={setting: True, **OPTIONS})
        spark_judge.write(theirs, rows, "upsert", options={setting: "true"})
        assert ours.schema.names == lakefmt.open_table(str(theirs)).schema.names, setting
        assert_same_multiset(ours.read(), spark_judge.snapshot(theirs), what=f"{setting}, as Spark writes")
        assert_same_multiset(spark_judge.snapshot(tmp_path / "ours" / name), ours.read(), what=f"{setting}, ours")


STATISTICS = {"hoodie.metadata.enable": "true", "hoodie.metadata.index.column.stats.enable": "true"}
FILTERS = ["c = 'b2'", "c is null", "a = 20", "a > 35", "n = 7", "n is null", "n = 9", "b = 50", "f < 1.2"]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_statistics_by_spark_of_columns_that_spark_altered(
    tmp_path: Path, spark_judge: SparkJudge, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark makes them with every commit, or of all files behind the alterations: by the names in the files."""
    for name in ("FEW_FILES", "FEW_NEAR_FILES", "FEW_PARTITIONS"):
        monkeypatch.setattr(file_selection, name, 0)
    changes = [
        "rename column b to c",
        "alter column a type bigint",
        "drop column n",
        "add columns (n int)",
        "add columns (b int)",
    ]
    for name, indexed_first in (("with", True), ("behind", False)):
        table = f"stats_{kind}_{name}"
        before = SETTINGS | (STATISTICS if indexed_first else {})
        # Each insert opens a file group; of merge on read the updates are logs.
        rows = [f"insert into {table} values {ROW.format(n=number)}" for number in (1, 2, 3, 4)]
        spark_judge.sql(
            f"create table {table} ({COLUMNS}) using hudi tblproperties (type='{kind}', primaryKey='id', "
            f"preCombineField='ts') location '{tmp_path / name}'",
            *rows,
            f"update {table} set ts = 2 where id = 3",
            *(f"alter table {table} {change}" for change in changes),
            settings=before,
            seconds=300,
        )
        spark_judge.sql(
            f"refresh table {table}",
            f"update {table} set n = 9, b = 50, ts = 3 where id = 4",
            settings=SETTINGS | STATISTICS,
            seconds=300,
        )
        ours = lakefmt.open_table(str(tmp_path / name))
        plain = lakefmt.open_table(str(tmp_path / name), options={"hoodie.enable.data.skipping": "false"})
        assert "column_stats" in ours.client.load().config.metadata_partitions
        assert_same_multiset(plain.read(), spark_judge.snapshot(tmp_path / name, options=READS), what=name)
        left = {}
        for query in FILTERS:
            assert_same_multiset(ours.read(filter=query), plain.read(filter=query), what=f"{name}: {query}")
            left[query] = {step.name: step.file_groups for step in ours.explain(query).steps}["column_stats"]
        altered = [left[query] for query in ("c = 'b2'", "a = 20", "n = 9", "b = 50")]
        assert min(altered) >= 3, "files from before an alteration are opened"
        assert left["f < 1.2"] == 4, "every file has such a row"
        assert not [each for each in ours.index.check().findings if each.kind is IndexDamage.WRONG]
