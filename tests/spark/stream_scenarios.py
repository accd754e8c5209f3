"""What is asked of streams in one session of PySpark; `scenarios.py` runs these beside its own."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakefmt
import lakefmt.spark as lakefmt_spark

OPTIONS = {
    "hoodie.table.name": "events",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.streaming.retry.interval.ms": "0",
}
#: A query that does not come to its end says so.
SECONDS = 150
SCHEMA = "id string, v long, ts long"
FIRST_SECOND = 1_700_000_000
CHECKPOINT = "_hudi_streaming_sink_checkpoint"


def feed(folder: Path, number: int, rows: list[dict[str, Any]]) -> None:
    """Add one file, which is one batch of the stream that reads the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join(json.dumps(row) for row in rows)
    half = folder / f".half-{number}"
    half.write_text(text + "\n", "utf-8")
    # Spark takes files by their times, and file systems tell times of a few milliseconds.
    os.utime(half, (FIRST_SECOND + number, FIRST_SECOND + number))
    half.rename(folder / f"{number:04}.json")


def batches(folder: Path, count: int, start: int = 0) -> None:
    """Add `count` files of three new keys each, and one key that all of them change."""
    for number in range(start, start + count):
        rows = [{"id": f"{number}-{n}", "v": n, "ts": number} for n in range(3)]
        feed(folder, number, [*rows, {"id": "same", "v": number, "ts": number}])


def stream_of(spark: Any, folder: Path) -> Any:
    """Return a stream whose batches are the files of a folder."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))


def run(writer: Any, checkpoint: Path, path: str | None = None) -> str:
    """Run a query until nothing is left to read; return how it failed, or nothing."""
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    try:
        query = writer.start() if path is None else writer.start(path)
        if not query.awaitTermination(SECONDS):
            query.stop()
            return "the query did not end"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def commits(path: str) -> list[str]:
    """Return the operations of a table's commits, oldest first."""
    client = lakefmt.open_table(path).client
    state = client.load()
    return [client.at(state).commit_metadata(i).operation.value for i in state.timeline.commits]


def label_of(path: str) -> str:
    """Return the label of the newest commit."""
    client = lakefmt.open_table(path).client
    state = client.load()
    return client.at(state).commit_metadata(state.timeline.commits[-1]).extra_metadata.get(CHECKPOINT, "")


def rows(path: str) -> list[list[Any]]:
    """Return the rows of a table, in order."""
    return sorted(map(list, zip(*lakefmt.open_table(path).read(["id", "v"]).to_pydict().values(), strict=True)))


def methods(spark: Any) -> list[dict[str, Any]]:
    """Return the methods of the readers and writers of a session's kind."""
    frames = (spark.range(1).write, spark.read, spark.readStream, stream_writer(spark))
    return [dict(vars(type(frame))) for frame in frames]


def stream_writer(spark: Any) -> Any:
    """Return a writer of a stream that never runs."""
    return spark.readStream.format("rate").load().writeStream


def sinks(spark: Any, root: Path) -> dict[str, Any]:
    """Write batches, crash between the table's commit and Spark's, begin with another folder, replace everything."""
    source, path, checkpoint = root / "sinks-in", str(root / "sinks"), root / "sinks-checkpoint"
    before = methods(spark)
    lakefmt_spark.register(spark)
    try:
        batches(source, 2)
        sink = lakefmt_spark.stream_batch(path, **OPTIONS)
        crashed = run(stream_of(spark, source).writeStream.foreachBatch(crashing(sink, 1)), checkpoint)
        answers: dict[str, Any] = {
            "crashed": "stopped after the commit" in crashed,
            "before restart": [commits(path), label_of(path)],
        }
        batches(source, 1, start=2)
        feed(source, 9, [])
        failed = run(stream_of(spark, source).writeStream.format("lakefmt").options(**OPTIONS), checkpoint, path)
        answers["after restart"] = [failed, len(commits(path)), label_of(path), rows(path)]
        plain = root / "sinks-plain"
        failed = run(stream_of(spark, source).writeStream.format("json"), root / "plain-checkpoint", str(plain))
        answers["other formats"] = [failed, spark.read.json(str(plain)).count()]
        whole = spark.readStream.schema(SCHEMA).json(str(source))
        run(whole.writeStream.format("lakefmt").options(**OPTIONS), root / "other", path)
        answers["another folder"] = [len(commits(path)), label_of(path), len(rows(path))]
        counts = whole.groupBy("id").count().selectExpr("id", "count as v", "0L as ts")
        totals = str(root / "sinks-totals")
        complete = counts.writeStream.format("lakefmt").outputMode("complete").options(**OPTIONS)
        failed = run(complete, root / "totals-checkpoint", totals)
        answers["complete"] = [failed, commits(totals)[-1], dict(rows(totals)).get("same"), len(rows(totals))]
        answers["shared"] = shared_sink(spark, root)
        answers["collected"] = collected(spark, str(root / "sinks-collected"))
        answers["table"] = refusal(lambda: whole.writeStream.format("lakefmt").toTable("nowhere"))
        answers["source"] = refusal(lambda: spark.readStream.format("lakefmt").load(path))
    finally:
        lakefmt_spark.unregister()
    answers["restored"] = methods(spark) == before
    return answers


def shared_sink(spark: Any, root: Path) -> list[Any]:
    """Let two queries write through one function, one after the other, then both again at the same time."""
    path, names = str(root / "sinks-shared"), ("first", "second")
    sink = lakefmt_spark.stream_batch(path, **OPTIONS)

    def start(name: str) -> Any:
        stream = stream_of(spark, root / f"shared-{name}").selectExpr(f"concat('{name}-', id) id", "v", "ts")
        writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(root / f"shared-{name}-log"))
        return writer.trigger(availableNow=True).start()

    for name in names:
        batches(root / f"shared-{name}", 2)
        start(name).awaitTermination()
    one_by_one = len(commits(path))
    for name in names:
        batches(root / f"shared-{name}", 1, start=2)
    for query in [start(name) for name in names]:
        query.awaitTermination()
    return [one_by_one, len(commits(path)), len(rows(path))]


#: Columns of many types. Ten keys are in every partition, with one ordering value.
_KINDS = (
    "concat('k', id % 10) id",
    "7L ts",
    "timestamp_seconds(id) t",
    "date_add(date'2026-01-01', int(id)) d",
    "decimal(id) / 8 c",
    "array(named_struct('x', id)) a",
    "map('m', id) m",
    "to_binary(string(id), 'utf-8') b",
    "if(id > 35, null, 'n') n",
)


def collected(spark: Any, path: str) -> dict[str, Any]:
    """Write batches of four partitions: as one of many rows, by tasks that key few, and by the driver, which collects them."""
    from lakefmt.spark.writing import dataframe

    collect, zone = dataframe.collect_few, spark.conf.get("spark.sql.session.timeZone")
    sink = lakefmt_spark.stream_batch(path, **OPTIONS, **{"lakefmt.spark.driver.max.rows": "50"})
    sink.query = "q"
    jobs, counts, tables = [_num_jobs(spark)], list[int](), list[pa.Table]()
    dataframe.collect_few = lambda *given: counts.append(1) or collect(*given)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for number, (count, first) in enumerate([(40, 0)] * 4 + [(60, 100), (40, 200)]):
            sink(spark.range(0, count, 1, 4).selectExpr(*_KINDS, f"{first} + id v"), number)
            jobs.append(_num_jobs(spark))
            tables.append(lakefmt.open_table(path).read().drop_columns(["v"]).sort_by("id"))
    finally:
        dataframe.collect_few = collect
        spark.conf.set("spark.sql.session.timeZone", zone)
    return {
        "same": [table == tables[0] for table in tables[:4]],
        "collected": len(counts),
        "jobs": [after - before for before, after in itertools.pairwise(jobs)][2:4],
        "rows": dict(rows(path)),
        "commits": len(commits(path)),
    }


def _num_jobs(spark: Any) -> int:
    return int(spark._sc._jsc.sc().dagScheduler().numTotalJobs())


def crashing(sink: Callable[[Any, int], None], at: int) -> Callable[[Any, int], None]:
    """Return the sink of a driver that dies when batch `at` is in the table."""

    def write(frame: Any, number: int) -> None:
        sink(frame, number)
        if number == at:
            raise RuntimeError("stopped after the commit")

    return write


def refusal(call: Callable[[], Any]) -> str:
    """Return the text of what a call raises."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


# ------------------------------------------------------------------------------------------------------------- sources

QUERY, FORMAT = "hoodie.datasource.query.type", "hoodie.datasource.query.incremental.format"


NO_SERVICES = {"hoodie.clean.automatic": False}


def upsert(
    path: str, *keys: str, v: int, table_type: str | None = None, partition_by: Any = None, **options: Any
) -> None:
    """Commit some rows by plain lakefmt."""
    data = pa.table({"id": list(keys), "v": pa.array([v] * len(keys), pa.int64())})
    made = {} if table_type is None else {"table_type": table_type, "partition_by": partition_by}
    lakefmt.write_table(path, data, mode="append", record_key="id", name="read", options=options, **made)


def read_batches(
    spark: Any, path: str, checkpoint: Path, columns: tuple[str, ...] = ("id", "v"), **options: Any
) -> Any:
    """Return the rows of every batch of a query that reads a table until nothing is left, or how it failed."""
    told: list[list[list[Any]]] = []
    frame = spark.readStream.format("lakefmt").options(**options).load(path).selectExpr(*columns)
    failed = run(
        frame.writeStream.foreachBatch(lambda rows, _: told.append(sorted(map(list, rows.collect())))), checkpoint
    )
    return failed or told


def sources(spark: Any, root: Path) -> dict[str, Any]:
    """Read commits as batches: one by one, after a restart, as changes; copy a table without `register`."""
    path, checkpoint, limits = str(root / "sources"), root / "sources-checkpoint", {"maxFilesPerTrigger": 1}
    upsert(path, "a", "b", v=1)
    upsert(path, "b", "c", v=2)
    answers: dict[str, Any] = {"one by one": read_batches(spark, path, checkpoint, **limits)}
    if isinstance(answers["one by one"], str):  # this release has no limits, and was told so
        limits = {}
        answers["at once"] = read_batches(spark, path, checkpoint)
    upsert(path, "c", v=3)
    answers["restarted"] = read_batches(spark, path, checkpoint)
    changes = {QUERY: "incremental", FORMAT: "cdc"}
    key, value = "get_json_object({}, '$.id')", "cast(get_json_object({}, '$.v') as int)"
    images = (
        "op",
        f"coalesce({key.format('after')}, {key.format('before')})",
        value.format("before"),
        value.format("after"),
    )
    answers["changes"] = read_batches(spark, path, root / "cdc", images, **changes)
    copy, at = str(root / "copied"), root / "copy-checkpoint"
    keyed = {"hoodie.datasource.write.recordkey.field": "id", "path": copy}
    frame = spark.readStream.format("lakefmt").options(**limits).load(path)
    failed = run(frame.writeStream.format("lakefmt").options(**keyed), at)
    if failed:
        return {**answers, "copied": [failed, Path(copy).exists(), []]}
    answers["copied"] = [failed, rows(copy) == rows(path), commits(copy)]
    forget(at, len(commits(copy)) - 1)
    again = run(frame.writeStream.format("lakefmt").options(**keyed), at)
    answers["copied again"] = [again, rows(copy) == rows(path), len(commits(copy))]
    return answers


def offsets(spark: Any, root: Path) -> dict[str, Any]:
    """Ask the reader of a source what Spark asks, without a query: starts, limits, what a clean removed, refusals."""
    from lakefmt._core.read.incremental import EARLIEST, ReadPosition
    from lakefmt.spark.data_source import LakefmtDataSource
    from lakefmt.spark.streams.offsets import encode_offset

    path = str(root / "offsets")
    for v, keys in enumerate(("ab", "bc", "c"), 1):
        upsert(path, *keys, v=v)

    def reader(**options: Any) -> Any:
        source = LakefmtDataSource({"path": path, **{name: str(value) for name, value in options.items()}})
        return source.streamReader(source.schema())

    def read(found: Any, start: dict, end: dict) -> list[str]:
        parts = pickle.loads(pickle.dumps([*found.partitions(start, end)]))
        return sorted(key for part in parts for batch in found.read(part) for key in batch.column("id").to_pylist())

    def ends(found: Any) -> list[dict]:
        told = [found.initialOffset()]
        while (end := found.latestOffset(told[-1], found.getDefaultReadLimit())) != told[-1]:
            told.append(end)
        return told

    start = "hoodie.datasource.streaming.startOffset"
    done = lakefmt.open_table(path).client.load().timeline.commits_by_completion
    single = [encode_offset(ReadPosition(time)) for time in (EARLIEST, *(str(instant.order_time) for instant in done))]
    limited = refusal(lambda: reader(maxBytesPerTrigger=1))
    has_limits = limited == "nothing was raised"
    all_of_it = ends(reader())
    latest = ends(reader(**{start: "latest"}))
    answers: dict[str, Any] = {
        "at once": [len(all_of_it), read(reader(), *all_of_it)],
        "limited": ends(reader(maxBytesPerTrigger=1)) == single if has_limits else limited,
        "by commits": [read(reader(), *pair) for pair in itertools.pairwise(single)],
        "latest": [len(latest), latest[0] == all_of_it[-1]],
        "named": ends(reader(**{start: single[1]["completion"]})) == [single[1], single[-1]],
        "nothing": reader().partitions(single[1], single[1]),
        "refused": refusal(lambda: reader(maxFilesPerTrigger=0)),
        "foreign": refusal(lambda: reader().latestOffset({"commit": "1"}, None)),
    }
    limits = {"maxFilesPerTrigger": 1} if has_limits else {}
    bounded = reader(**limits)
    bounded.prepareForTriggerAvailableNow()
    small = {"hoodie.clean.commits.retained": 1}
    for v in range(5, 9):
        upsert(path, "a", v=v, **small)
    lakefmt.open_table(path).clean(options=small)
    answers["now"] = ends(bounded)[-1] == single[-1]
    left = ends(reader(**limits))
    answers["after a clean"] = [len(left) < 5, read(reader(), left[0], left[1])]
    answers["lost"] = refusal(lambda: read(reader(), *single[:2]))
    answers["left out"] = read(reader(failOnDataLoss="false"), *single[:2])
    return answers


# ------------------------------------------------------------------------------------------------------------ services


def services(spark: Any, root: Path) -> dict[str, Any]:
    """Compact, fold logs and clean by tasks; a task that fails; a stream with a compaction beside it."""
    path = str(root / "services")
    upsert(path, *"abcdef", v=1, table_type="mor", partition_by="v")
    for _ in range(3):
        upsert(path, *"abcdef", v=1, **NO_SERVICES)
    folded = lakefmt_spark.compact(spark, path, log=True, **{"hoodie.log.compaction.blocks.threshold": 2})
    before = rows(path)
    scheduled = lakefmt_spark.compact(spark, path, schedule=True)
    (pending,) = lakefmt.open_table(path).client.load().timeline.pending
    done = lakefmt_spark.compact(spark, path, run=pending.time, verify=True)
    upsert(path, "a", v=1, **NO_SERVICES)
    lakefmt_spark.compact(spark, path)
    cleaned = lakefmt_spark.clean(spark, path, **{"hoodie.clean.commits.retained": 1})
    upsert(path, "b", v=1, **NO_SERVICES)
    lakefmt_spark.compact(spark, path, schedule=True)
    lost = max(Path(path).glob("v=1/.*.log.*_*"), key=lambda file: file.name)
    lost.rename(root / "lost.log")
    failed = refusal(lambda: lakefmt_spark.compact(spark, path))
    (root / "lost.log").rename(lost)
    again = lakefmt_spark.compact(spark, path)
    source, streamed = root / "services-in", str(root / "services-streamed")
    batches(source, 5)
    # A small file that is filled is rewritten with its updates: there would be no logs.
    options = {**OPTIONS, "hoodie.datasource.write.table.type": "MERGE_ON_READ", "hoodie.parquet.small.file.limit": 0}
    sink = lakefmt_spark.stream_batch(streamed, **options, **{"hoodie.compact.inline.max.delta.commits": 2})
    stream = stream_of(spark, source).writeStream
    beside = run(stream.foreachBatch(lambda frame, number: (sink(frame, number), sink.wait())), root / "services-at")
    return {
        "folded": [folded.plan.log, len(folded.files)],
        "scheduled": [scheduled.completion_time, pending.action.value],
        "compacted": [len(done.files), done.num_rows, rows(path) == before],
        "cleaned": cleaned.files_deleted > 0,
        "failed": failed,
        "again": [len(again.finished), rows(path) == before],
        "beside": beside or [commits(streamed).count("COMPACT") > 0, len(rows(streamed))],
    }


def clustering(spark: Any, root: Path) -> dict[str, Any]:
    """Pack and order by tasks; a plan that waits; a task that fails; nothing shows in an increment."""
    path = str(root / "clustered")
    apart = {**NO_SERVICES, "hoodie.parquet.small.file.limit": 0, "lakefmt.write.small.files": "fill"}
    for part in range(4):
        upsert(path, *(f"{part}-{n}" for n in range(30)), v=part % 2, table_type="cow", partition_by="v", **apart)
    before, since = rows(path), lakefmt.open_table(path).client.load().timeline.latest_commit.order_time
    planned = lakefmt_spark.cluster(spark, path, ["id"], schedule=True)
    done = lakefmt_spark.cluster(spark, path, run=planned.instant)
    again = lakefmt_spark.cluster(spark, path, ["id", "v"], order="zorder", partitions="v=0", **apart)
    upsert(path, "0-0", v=0, **apart)
    lost = max(Path(path).glob("v=0/*.parquet"), key=lambda file: file.stat().st_mtime)
    lakefmt_spark.cluster(spark, path, ["v"], schedule=True)
    lost.rename(root / "lost.parquet")
    failed = refusal(lambda: lakefmt_spark.cluster(spark, path))
    (root / "lost.parquet").rename(lost)
    finished = lakefmt_spark.cluster(spark, path)
    table = lakefmt.open_table(path)
    source = root / "clustered-in"
    batches(source, 4)
    asked = {"hoodie.clustering.async.enabled": True, "hoodie.clustering.async.max.commits": 2}
    beside = {}
    for kind in ("COPY_ON_WRITE", "MERGE_ON_READ"):
        place, at = str(root / f"clustered-{kind}"), root / f"clustered-{kind}-at"
        options = {**OPTIONS, "hoodie.datasource.write.table.type": kind, "hoodie.parquet.small.file.limit": 0, **asked}
        sink = lakefmt_spark.stream_batch(place, **options)
        stream = stream_of(spark, source).writeStream
        error = run(stream.foreachBatch(sink), at)  # every batch after the second changes a row that is being clustered
        sink.wait()
        streamed = lakefmt.open_table(place)
        beside[kind] = error or [commits(place).count("CLUSTER") > 0, rows(place), not streamed.check("full").findings]
    try:
        from lakefmt.spark.data_source import StagedStreamWriter
    except ImportError:  # before 4.1
        staged = ""
    else:
        given = {name: str(value).lower() for name, value in asked.items()}
        staged = refusal(lambda: StagedStreamWriter(path, given, False, pa.schema([])))
    return {
        "beside": beside,
        "staged": staged,
        "planned": [planned.completion_time, len(planned.plan.groups)],
        "done": [len(done.files), done.num_rows],
        "again": [len(again.files), again.num_rows],
        "failed": failed,
        "finished": len(finished.finished),
        "rows": rows(path) == before,
        "increment": table.incremental(since).num_rows,
        "clean": not table.check("full").findings,
    }


# -------------------------------------------------------------------------------------------------------- beside Hudi


def followed(spark: Any, root: Path) -> dict[str, Any]:
    """Changes with row kinds, and Debezium's envelopes, become tables by foreachBatch."""
    schema = "op STRING, id STRING, v LONG, seq LONG"
    first = [
        ["+I", "a", 1, 1],
        ["+I", "b", 1, 2],
        ["-U", "a", 1, 3],
        ["+U", "a", 2, 4],
        ["-D", "b", 1, 5],
        ["+I", "c", 1, 6],
    ]
    second = [["UPDATE_BEFORE", "a", 2, 7], ["UPDATE_AFTER", "d", 2, 8], ["delete", "c", 1, 9], ["insert", "c", 7, 10]]
    named = {"hoodie.table.name": "followed", "hoodie.datasource.write.streaming.retry.interval.ms": "0"}
    kinds = {"record_key": "id", "row_kind_column": "op", "order_column": "seq"}
    answers: dict[str, Any] = {}

    def apply(name: str, *batches: list[list[Any]]) -> str:
        """Apply batches to a table, one file each; return how the query failed."""
        for number, changes in enumerate(batches):
            feed(
                root / f"{name}-in", number, [dict(zip(("op", "id", "v", "seq"), row, strict=True)) for row in changes]
            )
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(root / f"{name}-in"))
        sink = lakefmt_spark.change_batch(str(root / name), **kinds, **named)
        return run(stream.writeStream.foreachBatch(sink), root / f"{name}-checkpoint")

    path = str(root / "followed")
    answers["followed"] = apply("followed", first, second)
    forget(root / "followed-checkpoint", 1)  # the second one comes twice
    answers["again"] = apply("followed", first, second)
    answers |= {"kinds": kept(path), "commits": len(commits(path))}
    answers["odd kind"] = apply("odd", [["sideways", "a", 1, 1]])
    answers["shuffled"] = apply("shuffled", [*second, *first])
    answers["any order"] = kept(str(root / "shuffled"))

    def envelope(op: str, before: Any, after: Any, wrapped: bool = False) -> str:
        payload = {"op": op, "before": before, "after": after, "source": {"lsn": 1}}
        return json.dumps({"schema": {}, "payload": payload} if wrapped else payload)

    old, new = {"id": "a", "v": 1}, {"id": "a", "v": 2}
    messages = [
        envelope("r", None, old),
        envelope("c", None, {"id": "b", "v": 1}, wrapped=True),
        envelope("u", old, new),
        envelope("u", None, {"id": "b", "v": 5}),
        envelope("c", None, {"id": "x", "v": 1}),
        envelope("d", {"id": "x", "v": None}, None),
        None,
        envelope("m", None, None),
        envelope("u", new, {"id": "z", "v": 3}),
    ]
    source, path = root / "envelopes", str(root / "debezium")
    source.mkdir()
    lines = spark.createDataFrame([[text] for text in messages], "value STRING").coalesce(1)
    lines.write.mode("append").parquet(str(source))
    stream = spark.readStream.schema("value STRING").parquet(str(source))
    rows_of_stream = lakefmt_spark.debezium_rows(stream, "id STRING, v LONG")
    sink = lakefmt_spark.change_batch(path, record_key="id", **named)
    answers["failed"] = run(rows_of_stream.writeStream.foreachBatch(sink), root / "debezium-checkpoint")
    answers["debezium"] = kept(path)
    truncated = spark.createDataFrame([[envelope("t", None, None)]], "value STRING")
    answers["truncate"] = refusal(lambda: lakefmt_spark.debezium_rows(truncated, "id STRING, v LONG").collect())
    return answers


#: Tables of which a key is one row of its partition, or of the whole table; several times of one day make one partition path.
MOVES: dict[str, dict[str, str]] = {
    "by partition": {"hoodie.datasource.write.partitionpath.field": "city"},
    "logs": {
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    },
    "global": {"hoodie.datasource.write.partitionpath.field": "city", "hoodie.index.type": "GLOBAL_BLOOM"},
    "by day": {
        "hoodie.datasource.write.partitionpath.field": "at",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
        "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
        "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
    },
}


def moved(spark: Any, root: Path) -> dict[str, Any]:
    """Rows change their partitions, several times in a batch, and come in any order; a dictionary says what is left."""
    chance, seq, now = random.Random(20_261), itertools.count(), dict[str, dict[str, Any]]()
    for number in range(3):
        changes: list[dict[str, Any]] = []
        for _ in range(20):
            key, at = chance.choice("abcde"), chance.randrange(3) * 86_400 + chance.randrange(3)
            old, new = now.pop(key, None), {"id": key, "city": f"c{at // 86_400}", "at": at, "v": chance.randrange(100)}
            if old is None:
                changes.append({"op": "+I", **new, "seq": next(seq)})
            elif chance.random() < 0.4:
                changes.append({"op": "-D", **old, "seq": next(seq)})
                continue
            else:
                one_order = next(seq)  # the rows before and after an update may have one
                changes += [{"op": "-U", **old, "seq": one_order}, {"op": "+U", **new, "seq": one_order}]
            now[key] = new
        chance.shuffle(changes)
        feed(root / "moved-in", number, changes)
    named = {"hoodie.table.name": "moved", "hoodie.datasource.write.streaming.retry.count": "1"}
    kinds = {"record_key": "id", "row_kind_column": "op", "order_column": "seq"}
    sinks = [lakefmt_spark.change_batch(str(root / f"moved {name}"), **kinds, **named, **MOVES[name]) for name in MOVES]

    def apply(df: Any, number: int) -> None:
        for sink in sinks:
            sink(df, number)

    schema = "op string, id string, city string, at long, v long, seq long"
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(root / "moved-in"))
    answers: dict[str, Any] = {"failed": run(stream.writeStream.foreachBatch(apply), root / "moved-checkpoint")}
    answers["expected"] = sorted([key, row["v"]] for key, row in now.items())
    answers["kept"] = {name: kept(str(root / f"moved {name}")) for name in MOVES}
    lost = {"op": "-D", "id": "a", "city": None, "at": None, "v": None, "seq": next(seq)}
    feed(root / "moved-in", 3, [lost])
    answers["placeless"] = run(stream.writeStream.foreachBatch(sinks[0]), root / "moved-checkpoint")
    return answers


def kept(path: str) -> list[list[Any]]:
    """Return the rows of a table of changes."""
    return sorted(
        map(list, zip(*(lakefmt.open_table(path).read()[name].to_pylist() for name in ("id", "v")), strict=True))
    )


def takeovers(spark: Any, root: Path) -> dict[str, Any]:
    """Hudi goes on with a stream of lakefmt, and lakefmt with one of Hudi: a batch that is in the table stays out."""
    source, path, checkpoint = root / "takeovers-in", str(root / "takeovers"), root / "takeovers-checkpoint"
    hudi = {**OPTIONS, "hoodie.metadata.enable": "false", "hoodie.write.table.version": "8"}
    hudi |= {"hoodie.write.auto.upgrade": "false"}
    batches(source, 2)
    sink = lakefmt_spark.stream_batch(path, **OPTIONS)
    run(stream_of(spark, source).writeStream.foreachBatch(crashing(sink, 1)), checkpoint)
    answers: dict[str, Any] = {"ours": [len(commits(path)), label_of(path)]}
    batches(source, 1, start=2)
    answers["failed"] = run(stream_of(spark, source).writeStream.format("hudi").options(**hudi), checkpoint, path)
    answers["by Hudi"] = [len(commits(path)), label_of(path)]
    forget(checkpoint, 2)
    batches(source, 1, start=3)
    run(stream_of(spark, source).writeStream.foreachBatch(lakefmt_spark.stream_batch(path, **OPTIONS)), checkpoint)
    answers["again ours"] = [len(commits(path)), label_of(path), len(rows(path))]
    read = spark.read.format("hudi").load(path).selectExpr("id", "v").collect()
    answers["read by Hudi"] = sorted(map(list, read)) == rows(path)
    return answers


def forget(checkpoint: Path, batch: int) -> None:
    """Let Spark's own log lack a batch, as after a crash between the table's commit and Spark's."""
    done = checkpoint / "commits" / str(batch)
    done.unlink()
    done.with_name(f".{done.name}.crc").unlink(missing_ok=True)


SCENARIOS = (sinks, sources, offsets, services, clustering, followed, moved)
WITH_HUDI = (takeovers,)
