"""Hudi's quick-start guide in Python, and its guides for writes, queries and streams; the name of the format is the only change.

Run inside a session of PySpark by ``scenarios.py``. Commit times and file names differ from run to run: what a step answers
leaves them out, and where a step needs a time it takes that of this run's commit.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql.functions import col, lit

import lakefmt.spark as lakefmt_spark

COLUMNS = ["ts", "uuid", "rider", "driver", "fare", "city"]
#: Trips as the guide has them: five of four cities.
TRIPS = [
    (1695159649087, "334e26e9", "rider-A", "driver-K", 19.10, "san_francisco"),
    (1695091554788, "e96c4396", "rider-C", "driver-M", 27.70, "san_francisco"),
    (1695046462179, "9909a8b1", "rider-D", "driver-L", 33.90, "san_francisco"),
    (1695516137016, "e3cf430c", "rider-F", "driver-P", 34.15, "sao_paulo"),
    (1695115999911, "c8abbe79", "rider-J", "driver-T", 17.85, "chennai"),
]
NEW_TRIPS = [
    (1695376420876, "7a84095f", "rider-X", "driver-Q", 41.06, "chennai"),
    (1695173887231, "3eeb61f7", "rider-Y", "driver-S", 6.5, "austin"),
]
META = [
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
]
OPERATION = "hoodie.datasource.write.operation"
PARTITION = {"hoodie.datasource.write.partitionpath.field": "city"}
KEY = {"hoodie.datasource.write.recordkey.field": "uuid"}
ORDERING = {"hoodie.datasource.write.precombine.field": "ts"}
#: What the guides say in every write.
TUNING = {"hoodie.upsert.shuffle.parallelism": 2, "hoodie.insert.shuffle.parallelism": 2}
QUERY, FORMAT = "hoodie.datasource.query.type", "hoodie.datasource.query.incremental.format"
BEGIN, END = "hoodie.datasource.read.begin.instanttime", "hoodie.datasource.read.end.instanttime"
AS_OF = "as.of.instant"


class Guide:
    """A session, a format and a table: what the lines of a guide say in full each time."""

    def __init__(self, spark: Any, name: str, path: Path, **options: object) -> None:
        self.spark, self.name, self.path = spark, name, str(path)
        self.options: dict[str, object] = {"hoodie.table.name": path.name, **options}

    def trips(self, rows: list[tuple[object, ...]]) -> Any:
        return self.spark.createDataFrame(rows).toDF(*COLUMNS)

    def write(self, rows: Any, mode: str = "append", **more: object) -> None:
        rows.write.format(self.name).options(**{**self.options, **more}).mode(mode).save(self.path)

    def read(self, **options: object) -> Any:
        return self.spark.read.format(self.name).options(**options).load(self.path)

    def rows(self, frame: Any = None, columns: list[str] | None = None) -> list[list[object]]:
        frame = self.read() if frame is None else frame
        return sorted((list(row) for row in frame.select(columns or COLUMNS).collect()), key=repr)

    def commits(self) -> list[tuple[str, str]]:
        """Return the requested and the completion time of every commit, first to last."""
        timeline = Path(self.path) / ".hoodie" / "timeline"
        names = [file.name.partition(".")[0] for file in timeline.iterdir() if file.is_file()]
        return sorted((first, second) for first, _, second in (name.partition("_") for name in names) if second)


def _time_of(instant: str) -> dt.datetime:
    return dt.datetime.strptime(instant + "000", "%Y%m%d%H%M%S%f")


def _date_forms(instant: str, second: dt.datetime) -> dict[str, str]:
    """Return the forms in which the guide writes an instant.

    Args:
        instant: of a commit.
        second: of the forms without milliseconds: several commits may lie in one second, so it lies before all or after all.
    """
    time = _time_of(instant)
    return {
        "digits": instant,
        "seconds": second.strftime("%Y%m%d%H%M%S"),
        "blank": time.strftime("%Y-%m-%d %H:%M:%S.") + instant[-3:],
        "blank, seconds": second.strftime("%Y-%m-%d %H:%M:%S"),
        "tomorrow": (time + dt.timedelta(days=1)).strftime("%Y-%m-%d"),
        "T": time.strftime("%Y-%m-%dT%H:%M:%S.") + instant[-3:],
        "epoch": str(int(second.replace(tzinfo=dt.UTC).timestamp())),
        "epoch, milliseconds": str(round(time.replace(tzinfo=dt.UTC).timestamp() * 1000)),
    }


def told(step: Any) -> Any:
    """Return what a step gives, or that it is refused."""
    try:
        return step()
    except Exception as error:
        return f"refused: {type(error).__name__} {str(error)[:200]}"


def quick_start(guide: Guide, with_forms: bool) -> dict[str, Any]:
    """The guide of 1.x: a table without a record key, whose rows bring theirs when they are read and written back."""
    answers: dict[str, Any] = {}
    guide.write(guide.trips(TRIPS), "overwrite")
    guide.read().createOrReplaceTempView("trips_table")
    spark = guide.spark
    answers["query"] = guide.rows(spark.sql("select * from trips_table where fare > 20.0"))
    answers["meta"] = guide.rows(
        spark.sql("select _hoodie_partition_path, rider, driver, fare from trips_table"),
        ["_hoodie_partition_path", "rider", "driver", "fare"],
    )
    first = guide.commits()[-1]
    guide.write(guide.read().filter(col("rider") == "rider-D").withColumn("fare", col("fare") * 10))
    answers["update"] = guide.rows()
    guide.write(guide.read().limit(5).withColumn("fare", col("fare") * 10))
    answers["update of all"] = guide.rows()
    guide.write(guide.trips(NEW_TRIPS))
    answers["insert"] = guide.rows()
    guide.write(guide.read().filter(col("rider") == "rider-F"), **{OPERATION: "delete"})
    answers["delete"] = guide.rows()
    mixed = guide.read().filter(col("rider") == "rider-C").withColumn("fare", lit(1.0))
    mixed = mixed.unionByName(guide.trips([(5, "new", "rider-N", "driver-N", 5.0, "austin")]), allowMissingColumns=True)
    answers["mixed"] = told(lambda: (guide.write(mixed), guide.rows())[1])
    moved = guide.read().filter(col("rider") == "rider-A").withColumn("city", lit("austin"))
    answers["moved"] = told(lambda: (guide.write(moved), guide.rows())[1])
    answers["meta of moved"] = guide.rows(columns=["_hoodie_partition_path", "rider", "city"])
    answers["upsert said"] = told(
        lambda: (
            guide.write(
                guide.read().filter(col("rider") == "rider-J").withColumn("fare", lit(2.0)), **{OPERATION: "upsert"}
            ),
            guide.rows(),
        )[1]
    )
    incremental = {QUERY: "incremental", BEGIN: first[1]}
    answers["since the first"] = guide.rows(guide.read(**incremental))
    answers["from the beginning"] = guide.rows(guide.read(**{QUERY: "incremental", BEGIN: 0}))
    answers["point in time"] = guide.rows(
        guide.read(**{QUERY: "incremental", BEGIN: "000", END: guide.commits()[1][1]})
    )
    before, after = (
        _time_of(first[0]) - dt.timedelta(seconds=2),
        _time_of(guide.commits()[-1][1]) + dt.timedelta(seconds=2),
    )
    for form, value in _date_forms(first[0], after).items() if with_forms else ():
        answers[f"as of, {form}"] = told(lambda value=value: guide.rows(guide.read(**{AS_OF: value})))
    for form, value in _date_forms(first[1], before).items() if with_forms else ():
        since = {QUERY: "incremental", BEGIN: value}
        answers[f"since, {form}"] = told(lambda since=since: guide.rows(guide.read(**since)))
    return answers


def keyed(guide: Guide) -> dict[str, Any]:
    """The guide with a record key: soft and hard deletes, insert overwrite, the merge by the ordering column."""
    answers: dict[str, Any] = {}
    guide.write(guide.trips(TRIPS), "overwrite", **{OPERATION: "bulk_insert"})
    late = (1, "334e26e9", "rider-late", "driver-late", 1.0, "san_francisco")
    newer = (1695999999999, "e96c4396", "rider-newer", "driver-newer", 2.0, "san_francisco")
    guide.write(guide.trips([late, newer, *NEW_TRIPS]), **{OPERATION: "upsert"})
    answers["upsert"] = guide.rows()
    soft = guide.spark.createDataFrame(guide.read().where("uuid = '9909a8b1'").collect(), guide.read().schema)
    nullify = [
        (field.name, field.dataType) for field in soft.schema.fields if field.name not in [*META, "ts", "uuid", "city"]
    ]
    soft = reduce(
        lambda frame, column: frame.withColumn(column[0], lit(None).cast(column[1])),
        nullify,
        reduce(lambda frame, name: frame.drop(name), META, soft),
    )
    guide.write(soft, **{OPERATION: "upsert"})
    answers["soft delete"] = guide.rows()
    hard = guide.read().where("uuid = 'c8abbe79'").select("uuid", "city").withColumn("ts", lit(0.0))
    answers["hard delete"] = told(lambda: (guide.write(hard, **{OPERATION: "delete"}), guide.rows())[1])
    newest = guide.read().where("uuid = '7a84095f'")
    answers["delete of rows read"] = told(lambda: (guide.write(newest, **{OPERATION: "delete"}), guide.rows())[1])
    guide.write(
        guide.trips([(7, "only", "rider-O", "driver-O", 7.0, "san_francisco")]), **{OPERATION: "insert_overwrite"}
    )
    answers["insert overwrite"] = guide.rows()
    guide.write(
        guide.trips([(8, "all", "rider-A", "driver-A", 8.0, "austin")]), **{OPERATION: "insert_overwrite_table"}
    )
    answers["insert overwrite table"] = guide.rows()
    guide.write(guide.trips([(9, "all", "rider-A", "driver-A", 9.0, "austin")]), **{OPERATION: "insert"})
    answers["insert"] = guide.rows()
    answers["read optimized"] = guide.rows(guide.read(**{QUERY: "read_optimized"}))
    return answers


def capture(guide: Guide) -> dict[str, Any]:
    """The guide's query of changes."""
    guide.write(guide.trips(TRIPS), "overwrite")
    changed = guide.read().filter(col("rider") == "rider-A").withColumn("fare", col("fare") * 10).drop(*META)
    guide.write(changed)
    guide.write(guide.read().filter(col("rider") == "rider-J").drop(*META), **{OPERATION: "delete"})
    changes = guide.read(**{QUERY: "incremental", FORMAT: "cdc", BEGIN: 0})
    return {"changes": [list(row) for row in changes.select("op", "before", "after").collect()]}


def partition_by(make: Callable[[str], Guide]) -> dict[str, Any]:
    """Columns that ``partitionBy`` names: of a new table, of one that is there, and beside the option that says the same."""

    def save(name: str, rows: list[tuple[object, ...]], *columns: str, **more: object) -> Any:
        def run() -> Any:
            guide = make(name)
            writer = guide.trips(rows).write.format(guide.name).partitionBy(*columns)
            writer.options(**{**guide.options, **more}).mode("append").save(guide.path)
            return guide.rows(columns=["_hoodie_partition_path", "uuid"])

        return told(run)

    option = {"hoodie.datasource.write.partitionpath.field": "rider"}
    return {
        "created": save("by_city", TRIPS, "city"),
        "appended": save("by_city", NEW_TRIPS, "city"),
        "other column": save("by_city", NEW_TRIPS, "rider"),
        "option": save("by_rider", TRIPS, "city", **option),
        "two": save("by_two", TRIPS, "city", "rider"),
    }


def sort_modes(guide: Guide) -> dict[str, Any]:
    """The published sort modes of a bulk insert; files are not compared, rows are."""
    answers = {}
    for mode in ("PARTITION_PATH_REPARTITION", "PARTITION_PATH_REPARTITION_AND_SORT"):
        more = {OPERATION: "bulk_insert", "hoodie.bulkinsert.sort.mode": mode}
        answers[mode] = told(lambda more=more: (guide.write(guide.trips(TRIPS), "overwrite", **more), guide.rows())[1])
    return answers


def payloads(make: Callable[[str], Guide]) -> dict[str, Any]:
    """Payload classes of Hudi's own, each in a table of its own: a row that is late, one with nulls, and one as it is stored."""
    answers = {}
    late = (1, "334e26e9", "rider-late", None, 1.0, "san_francisco")
    nulls = (1695999999999, "e96c4396", "rider-newer", None, None, "san_francisco")
    for name in ("PartialUpdateAvroPayload", "OverwriteNonDefaultsWithLatestAvroPayload", "EventTimeAvroPayload"):
        guide, more = make(name), {"hoodie.datasource.write.payload.class": f"org.apache.hudi.common.model.{name}"}
        trips = guide.trips(TRIPS)
        guide.write(trips, "overwrite", **more)
        guide.write(guide.spark.createDataFrame([late, nulls, TRIPS[4]], trips.schema), **more)
        answers[name] = guide.rows()
    return answers


def streams(guide: Guide, folder: Path) -> dict[str, Any]:
    """The guides' streams: rows of files into a table, and a table into another one, once each."""
    folder.mkdir(parents=True)
    lines = [json.dumps(dict(zip(COLUMNS, row, strict=True))) for row in (*TRIPS, *NEW_TRIPS, (1, *TRIPS[0][1:]))]
    (folder / "rows.json").write_text("\n".join(lines), "utf-8")
    schema = "ts long, uuid string, rider string, driver string, fare double, city string"

    def run(rows: Any, path: str, *columns: str) -> str:
        writer = rows.writeStream.format(guide.name).options(**{**guide.options, "hoodie.table.name": "streamed"})
        if columns:
            writer = writer.partitionBy(*columns)
        writer = writer.outputMode("append").option("path", path).option("checkpointLocation", f"{path}_checkpoint")
        query = writer.trigger(once=True).start()
        query.awaitTermination(300)
        return str(query.exception() or "")

    answers: dict[str, Any] = {"failed": run(guide.spark.readStream.schema(schema).json(str(folder)), guide.path)}
    answers["written"] = told(guide.rows)
    source = told(lambda: guide.spark.readStream.format(guide.name).load(guide.path))
    if not isinstance(source, str):
        copy = Guide(guide.spark, guide.name, Path(f"{guide.path}_copy"))
        answers["copied"] = [run(source, copy.path), told(copy.rows)]
    return answers


def run_guides(spark: Any, name: str, root: Path) -> dict[str, Any]:
    """Run all guides with one format."""
    answers: dict[str, Any] = {}
    mor = {"hoodie.datasource.write.table.type": "MERGE_ON_READ"}
    for kind, options in (("cow", {}), ("mor", mor)):
        guide = Guide(spark, name, root / f"quick_{kind}", **PARTITION, **options)
        answers[f"quick start, {kind}"] = told(lambda guide=guide, kind=kind: quick_start(guide, kind == "cow"))
    answers["keyed"] = told(lambda: keyed(Guide(spark, name, root / "keyed", **PARTITION, **KEY, **ORDERING, **TUNING)))
    cdc = {"hoodie.table.cdc.enabled": "true"}
    answers["changes"] = told(
        lambda: capture(Guide(spark, name, root / "changes", **PARTITION, **KEY, **ORDERING, **cdc))
    )
    answers["streams"] = told(
        lambda: streams(Guide(spark, name, root / "streamed", **PARTITION, **KEY, **ORDERING), root / "files")
    )
    answers["payloads"] = told(
        lambda: payloads(lambda table: Guide(spark, name, root / table, **PARTITION, **KEY, **ORDERING))
    )
    answers["partitionBy"] = partition_by(lambda table: Guide(spark, name, root / table, **KEY, **ORDERING))
    answers["sort modes"] = sort_modes(Guide(spark, name, root / "sorted", **PARTITION, **KEY, **ORDERING))
    return answers


def guides_of_lakefmt(spark: Any, root: Path) -> dict[str, Any]:
    """The guides by lakefmt."""
    lakefmt_spark.register(spark)
    try:
        return run_guides(spark, "lakefmt", root / "guides" / "lakefmt")
    finally:
        lakefmt_spark.unregister()


def guides_of_hudi(spark: Any, root: Path) -> dict[str, Any]:
    """The guides as they are written."""
    return run_guides(spark, "hudi", root / "guides" / "hudi")


SCENARIOS = [guides_of_lakefmt]
WITH_HUDI = [guides_of_hudi]
