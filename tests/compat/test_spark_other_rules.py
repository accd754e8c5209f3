"""Tables that Spark writes under another rule than the properties say: Spark reads what we leave, and goes on writing."""

from __future__ import annotations

import datetime as dt
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakefmt
from tests.judges.compare import assert_same_multiset
from tests.judges.spark import META_COLUMNS, SparkJudge

pytestmark = [pytest.mark.judge_spark, pytest.mark.every_second_day(1)]

FORMATS = Path(__file__).parents[1] / "data" / "formats"
KINDS = [(version, kind) for version in ("6", "8", "9") for kind in ("COPY_ON_WRITE", "MERGE_ON_READ")]


def _options(version: str, kind: str, **more: str) -> dict[str, str]:
    return {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.write.table.version": version,
        "hoodie.write.auto.upgrade": "false",
        "hoodie.metadata.enable": "false",
        "hoodie.index.bloom.num_entries": "1000",
        "hoodie.embed.timeline.server": "false",
        "hoodie.write.markers.type": "DIRECT",
        **{name.replace("__", "."): value for name, value in more.items()},
    }


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch, spark_judge: SparkJudge) -> Iterator[None]:
    """This process is nine hours ahead of the JVM, which is in UTC."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("version", "kind"), KINDS)
def test_two_zones_on_a_local_timeline(spark_judge: SparkJudge, tmp_path: Path, in_tokyo, version, kind):
    path = tmp_path / "t"
    rows = pa.table({"id": ["a"], "v": [1]})
    options = _options(
        version,
        kind,
        hoodie__datasource__write__recordkey__field="id",
        hoodie__table__timeline__timezone="LOCAL",
        hoodie__timeline__timezone="LOCAL",
    )
    spark_judge.write(path, rows, "upsert", options, mode="overwrite")
    moments = []
    for number in range(2, 6):
        changed = pa.table({"id": ["a"], "v": [number]})
        if number % 2:
            spark_judge.write(path, changed)
        else:
            lakefmt.open_table(path).upsert(changed)
        moments.append((number, dt.datetime.now(dt.UTC)))
        assert lakefmt.open_table(path).read()["v"].to_pylist() == [number]
        assert spark_judge.snapshot(path)["v"].to_pylist() == [number]
    for number, moment in moments:
        assert lakefmt.open_table(path).snapshot(as_of=moment).read()["v"].to_pylist() == [number]


def test_times_of_the_row_writer_as_keys(spark_judge: SparkJudge, tmp_path: Path):
    path = tmp_path / "t"
    millis = [1_483_005_240_000, 1_700_000_000_123]
    rows = pa.table({"t": pa.array([n * 1000 for n in millis], pa.timestamp("us", "UTC")), "v": [1, 2]})
    options = _options("9", "COPY_ON_WRITE", hoodie__datasource__write__recordkey__field="t")
    spark_judge.write(path, rows, "bulk_insert", options, mode="overwrite")
    changed = rows.set_column(1, "v", pc.add(rows["v"], 10))
    assert lakefmt.open_table(path).upsert(changed).num_inserts == 0
    assert sorted(spark_judge.snapshot(path)["v"].to_pylist()) == [11, 12]
    spark_judge.write(path, rows, "upsert")
    assert sorted(spark_judge.snapshot(path)["v"].to_pylist()) == [1, 2]
    assert sorted(lakefmt.open_table(path).read()["v"].to_pylist()) == [1, 2]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("version", "kind"), [(6, "cow"), (6, "mor"), (9, "cow"), (9, "mor")])
def test_mislabelled_times_are_what_spark_reads(spark_judge: SparkJudge, tmp_path: Path, version, kind):
    path = tmp_path / "t"
    rows = pa.table({"id": ["a", "b"], "t": pa.array([1641092645678, -1], pa.timestamp("us", "UTC"))})
    table = lakefmt.create_table(path, data=rows, record_key="id", table_version=version, table_type=kind)
    table.upsert(rows)
    table.upsert(rows.slice(1, 1))
    for file in [*(path / ".hoodie").rglob("*commit"), path / ".hoodie" / "hoodie.properties"]:
        file.write_bytes(file.read_bytes().replace(b"timestamp-micros", b"timestamp-millis"))

    def both() -> list[str]:
        ours = sorted(str(t) for t in lakefmt.open_table(path).read()["t"].cast(pa.timestamp("us", "UTC")).to_pylist())
        theirs = spark_judge.snapshot(path)["t"].cast(pa.timestamp("us", "UTC"))
        assert sorted(map(str, theirs.to_pylist())) == ours
        return ours

    assert len(both()) == 2
    lakefmt.open_table(path).upsert(pa.table({"id": ["c"], "t": pa.array([1], pa.timestamp("ms", "UTC"))}))
    assert len(both()) == 3


def test_vectors_that_we_rewrite_are_vectors_for_spark(spark_judge: SparkJudge, tmp_path: Path):
    path = tmp_path / "t"
    with zipfile.ZipFile(FORMATS / "v9_mor_vector_120.zip") as archive:
        archive.extractall(path)
    before = spark_judge.snapshot(path)
    table = lakefmt.open_table(path)
    table.upsert(table.read())
    assert_same_multiset(spark_judge.snapshot(path), before, META_COLUMNS)
    table.compact()
    assert_same_multiset(spark_judge.snapshot(path), before, META_COLUMNS)
    changed = before.set_column(before.schema.get_field_index("name"), "name", pa.array(["x"] * before.num_rows))
    with pytest.raises(AssertionError):  # the judge would see another value
        assert_same_multiset(changed, before, META_COLUMNS)
