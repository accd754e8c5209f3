"""Rounds that delete rows, by Spark and without it: ``python ingest_deletes_scenario.py FOLDER SEED``; prints what they came to as JSON.

The messages are those of a topic, from a list in place of a broker: what is asked is what becomes of them.
"""

import json
import pathlib
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession

import lakefmt
import lakefmt._core.ingest.sink as sinks
import lakefmt.spark.ingest as engines
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.ingest.api import Checkpoint, SourceBatch
from lakefmt._core.ingest.kafka.client import MessageBatch, OffsetRange
from lakefmt._core.ingest.kafka.options import KafkaOptions, parse_kafka_options
from lakefmt._core.ingest.kafka.source import KafkaRound, MessageRows
from lakefmt._core.ingest.options import resolve_table_job
from lakefmt._core.ingest.run import Ingester
from lakefmt._core.table import Table, create_table, open_table
from lakefmt.errors import LakefmtError
from lakefmt.testing.stores import Effect, Fault, FaultMode, FaultStore, SimulatedCrash

base, draw = pathlib.Path(sys.argv[1]), random.Random(int(sys.argv[2]))
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
Message = tuple[bytes | None, bytes | None]


class Topic:
    """A topic of one partition, as the source of a job."""

    name = "kafka://none/t"

    def __init__(self, messages: list[Message], settings: dict[str, str]) -> None:
        self.options: KafkaOptions = parse_kafka_options(
            {"hoodie.streamer.source.kafka.topic": "t", "bootstrap.servers": "none:1", **settings}
        )
        self.messages, self.rows, self.table_schema = messages, MessageRows(self.options), None

    def schema(self) -> None:
        return None

    def plan(self, after: Checkpoint | None, _limit: int | None) -> KafkaRound | None:
        begin = 0 if after is None else int(after.text.rpartition(":")[2])
        end = len(self.messages)
        rounds = KafkaRound(self, Checkpoint(f"t,0:{end}", {}), (OffsetRange(0, begin, end),))  # type: ignore[arg-type]
        return None if begin == end else rounds

    def batch(self, ranges: tuple[OffsetRange, ...]) -> MessageBatch:
        (each,) = ranges
        keys, values = zip(*self.messages[each.begin : each.end], strict=True)
        count = len(keys)
        return MessageBatch([0] * count, list(range(each.begin, each.end)), [*keys], [*values], [0] * count, [])

    def read(self, ranges: tuple[OffsetRange, ...]) -> Iterator[SourceBatch]:
        self.rows.table_schema = self.table_schema
        yield from self.rows.decode(self.batch(ranges))

    def close(self) -> None:
        """Nothing is open."""


def messages_by_spark(spark: SparkSession, _options: KafkaOptions, planned: KafkaRound) -> DataFrame:
    found = planned.source.batch(planned.ranges)  # type: ignore[attr-defined]
    rows = list(zip(*found[:5], [None] * len(found[0]), strict=True))
    types = "partition int, offset long, key binary, value binary, timestamp long, headers string"
    return spark.createDataFrame(rows, types)


engines._messages = messages_by_spark
FAST = {"lakefmt.durability": "none", "hoodie.client.heartbeat.tolerable.misses": 0}


def ingest(spark: bool, topic: Topic, name: str, **more: object) -> None:
    given = {"source": topic, "table": str(base / name), "key": "id", "settings": FAST, **more}
    job, _ = resolve_table_job([("test", given)])
    Ingester([job], engine=engines.SparkEngine(session) if spark else None, attempts=0).run()


def result_of(name: str) -> list[object]:
    """Return the rows of a table, and the checkpoint of each commit."""
    table = lakefmt.open_table(str(base / name))
    table_at = table.client.at(table.client.load())
    said = [table_at.commit_metadata(each).extra_metadata for each in table_at.timeline.commits]
    rows = sorted(table.read().to_pylist(), key=lambda row: json.dumps(row, sort_keys=True))
    return [rows, [each.get("deltastreamer.checkpoint.key") for each in said]]


def json_messages(count: int) -> list[Message]:
    """Return rows and deletions of a few keys, some with a column more."""
    made: list[Message] = [(b"a", b'{"id": "a", "n": 0, "v": -1}')]
    for number in range(count):
        key = draw.choice("abcdef")
        row = {"id": key, "n": draw.randrange(5), "v": number, **({"new": "é"} if draw.random() < 0.1 else {})}
        made.append((key.encode(), None if draw.random() < 0.35 else json.dumps(row).encode()))
    return made


def envelopes(count: int) -> list[Message]:
    """Return changes of a few rows as Debezium sends them; keys and partitions change, too."""
    made: list[Message] = []
    rows: dict[str, dict[str, object]] = {}
    for number in range(count):
        key = draw.choice("abcdef")
        before = rows.pop(key, None)
        after = None if before and draw.random() < 0.4 else {"id": key, "p": draw.choice("xy"), "n": 1, "v": number}
        kind = "d" if after is None else "u" if before else "c"
        if after is not None:
            rows[key] = after
        text = {"op": kind, "before": before, "after": after, "source": {"connector": "mysql", "db": "d", "table": "t"}}
        made.append((json.dumps({"id": key}).encode(), json.dumps(text).encode()))
    return made


DELETES = {"lakefmt.ingest.kafka.null.values": "delete", "lakefmt.ingest.kafka.key.column": "id"}
DEBEZIUM = {"lakefmt.ingest.kafka.format": "debezium"}
WAYS: dict[str, tuple[dict[str, str], dict[str, object]]] = {
    "cow_ordering": (DELETES, {"ordering": "n"}),
    "mor_ordering": (DELETES, {"table_type": "mor", "ordering": "n"}),
    "checks": (DELETES, {"checks": {"few": "n IS NULL OR n < 4"}, "on_check_failed": "quarantine"}),
    "debezium": (DEBEZIUM, {"partition_by": "p"}),
    "append": (DEBEZIUM, {"key": (), "operation": "insert"}),
}


def compare(name: str) -> list[object]:
    """Return what a few rounds by Spark, without it, and in turns come to."""
    settings, how = WAYS[name]
    drawn = (envelopes if settings is DEBEZIUM else json_messages)(60)
    if name == "append":  # rows that nothing deletes
        drawn = [each for each in drawn if b'"op": "d"' not in (each[1] or b"")]
    answers: list[object] = []
    for turns, by_spark in (("spark", (True,) * 3), ("python", (False,) * 3), ("turns", (False, True, False))):
        if turns == "turns" and name != "mor_ordering":
            continue
        more = {**how, **({"errors": str(base / f"{name}_{turns}_e")} if name == "checks" else {})}
        topic = Topic([], settings)
        for number, spark in enumerate(by_spark):
            topic.messages = drawn[: 1 if number == 0 else len(drawn) * number // 2]
            ingest(spark, topic, f"{name}_{turns}", **more)
        answers.append(result_of(f"{name}_{turns}"))
    return answers


def deaths(mode: FaultMode, each: int) -> list[object]:
    """Return what is there where a round by Spark died at an effect of its store, for one in so many effects."""
    settings, first = DELETES, [(b"a", b'{"id": "a", "n": 1}'), (b"b", b'{"id": "b", "n": 1}')]
    then: list[Message] = [(b"a", None), (b"b", b'{"id": "b", "n": 2}'), (b"c", b'{"id": "c", "n": 2}'), (b"c", None)]
    answers, number, effects = [], 0, 0
    while number <= effects:
        name, topic, left = f"deaths_{mode.name}_{number}", Topic([*first], settings), [number]
        ingest(False, topic, name)
        topic.messages += then

        def plan(_effect: Effect, left: list[int] = left) -> Fault | None:
            left[0] -= 1
            return Fault(mode, crash=True) if left[0] == 0 else None

        def over(table: Table, plan: object = plan) -> Table:
            return Table(TableClient(FaultStore(table.client.store, plan), table.client.options))  # type: ignore[arg-type]

        with ExitStack() as patched, suppress(SimulatedCrash, LakefmtError):
            patched.enter_context(
                patch.object(sinks, "open_table", lambda *a, over=over, **k: over(open_table(*a, **k)))
            )
            patched.enter_context(
                patch.object(sinks, "create_table", lambda *a, over=over, **k: over(create_table(*a, **k)))
            )
            ingest(True, topic, name)
        effects = effects or -left[0]
        ingest(bool(number % 2), topic, name)
        answers.append(result_of(name))
        number += each if number else draw.randint(1, each)
    return [effects, answers]


answers: dict[str, object] = {name: compare(name) for name in WAYS}
answers["deaths"] = [deaths(mode, int(sys.argv[3])) for mode in (FaultMode.BEFORE, FaultMode.AFTER, FaultMode.TORN)]
print("answers:" + json.dumps(answers))
