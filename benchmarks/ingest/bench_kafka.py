"""Measure topics of Kafka as a source: ``python benchmarks/ingest/bench_kafka.py [--rows N] [--seconds N]``.

* Rows: messages of JSON in four partitions, read by the client's own bare loop, by the source into Arrow columns, and by ``lakefmt ingest`` into a
  table, each in turns; every result is counted. The same for Avro, whose registry is a dictionary here.
* Delays: 5,000 messages a second for some seconds into a continuous job; the delay of a message is the time from its making to the
  completion of the commit that has it.
* Nothing new: one round of a job whose topic has nothing new.
* Memory: the largest resident size of ``lakefmt ingest`` after one and four times the messages.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow.compute as pc
from confluent_kafka import Consumer, TopicPartition

import lakefmt
import lakefmt.ingest
from benchmarks.harness.machine import describe
from lakefmt._core.cdc.debezium_messages import SchemaRegistry
from lakefmt._core.ingest.kafka.source import open_kafka_source
from tests.judges.kafka import KafkaBroker, kafka_broker, send

RUNS = 3
PARTITIONS = 4
_JOB = """
import json, sys
import lakefmt.ingest
lakefmt.ingest.run(json.loads(sys.argv[1]), mode=sys.argv[2])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
_AVRO = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "long"},
        {"name": "kind", "type": "string"},
        {"name": "amount", "type": ["null", "double"]},
        {"name": "note", "type": ["null", "string"]},
    ],
}


def line(what: str, values: Sequence[float], unit: str) -> None:
    """Print the median and the spread of a measurement."""
    low, high, median = min(values), max(values), statistics.median(values)
    print(f"{what:<64} {median:>12,.0f} {unit} ({low:,.0f} to {high:,.0f})", flush=True)


def row(number: int) -> dict[str, Any]:
    """Return a row of some hundred bytes."""
    return {
        "id": number,
        "customer": number % 9973,
        "kind": f"kind {number % 7}",
        "amount": number % 1000 / 7,
        "note": f"note number {number} of a customer",
    }


def json_value(number: int) -> bytes:
    """Return a row as JSON."""
    return (
        b'{"id":%d,"customer":%d,"kind":"kind %d","amount":%.3f,"note":"note number %d of a customer","at":"2026-01-01T00:00:%02dZ"}'
        % (number, number % 9973, number % 7, number % 1000 / 7, number, number % 60)
    )


def avro_values(numbers: range) -> list[bytes]:
    """Return rows as Avro with the id of a schema."""
    schema = fastavro.parse_schema(_AVRO)
    values = []
    for number in numbers:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, row(number))
        values.append(b"\0" + struct.pack(">I", 1) + stream.getvalue())
    return values


def bare_loop(broker: KafkaBroker, topic: str, rows: int) -> None:
    """Read a topic as the client's examples do: messages are taken and counted."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "bare",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "logger": logging.getLogger("bench"),
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    left = rows
    while left:
        left -= sum(message.error() is None and message.value() is not None for message in consumer.consume(5000, 1.0))
    consumer.close()


def properties(broker: KafkaBroker, topic: str, **more: str) -> dict[str, str]:
    """Return the settings of a source."""
    settings = {"hoodie.streamer.source.kafka.topic": topic, "bootstrap.servers": broker.address}
    return {**settings, "auto.offset.reset": "earliest", **more}


def source_alone(broker: KafkaBroker, topic: str, rows: int, **more: str) -> None:
    """Read a topic into Arrow columns, and forget them."""
    source = open_kafka_source(properties(broker, topic, **more))
    planned = source.plan(None, None)
    assert planned is not None
    assert sum(batch.rows.num_rows for batch in planned.batches()) == rows
    source.close()


def into_table(broker: KafkaBroker, topic: str, rows: int, folder: Path) -> None:
    """Take a topic into a new table."""
    shutil.rmtree(folder, ignore_errors=True)
    job = {
        "source": f"kafka://{broker.address}/{topic}",
        "table": str(folder),
        "key": ["id"],
        "operation": "bulk_insert",
    }
    lakefmt.ingest.run({**job, "auto.offset.reset": "earliest"})
    assert lakefmt.open_table(folder).read(columns=["id"]).num_rows == rows


def in_turns(rows: int, ways: dict[str, Callable[[], None]]) -> None:
    """Measure ways in turns and print each."""
    for way in ways.values():
        way()  # warm
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(RUNS):
        for name, way in ways.items():
            begun = time.perf_counter()
            way()
            rates[name].append(rows / (time.perf_counter() - begun))
    for name, values in rates.items():
        line(name, values, "rows/s")


def measure_rows(broker: KafkaBroker, root: Path, rows: int) -> None:
    topic, avro = broker.create_topic(PARTITIONS), broker.create_topic(PARTITIONS)
    broker.send(topic, [(b"%d" % number, json_value(number)) for number in range(rows)])
    broker.send(avro, [(None, value) for value in avro_values(range(rows))])
    SchemaRegistry.schema = lambda _self, _number: _AVRO  # type: ignore[method-assign]
    more = {"lakefmt.ingest.kafka.format": "avro", "schema.registry.url": "http://127.0.0.1:1"}
    in_turns(
        rows,
        {
            f"{rows:,} messages, the client's bare loop": lambda: bare_loop(broker, topic, rows),
            "JSON into Arrow columns, the source alone": lambda: source_alone(broker, topic, rows),
            "JSON into a table, lakefmt ingest": lambda: into_table(broker, topic, rows, root / "rows"),
            "Avro into Arrow columns, the source alone": lambda: source_alone(broker, avro, rows, **more),
        },
    )


def measure_nothing_new(broker: KafkaBroker, root: Path) -> None:
    topic = broker.create_topic(PARTITIONS)
    broker.send(topic, [(b"%d" % number, json_value(number)) for number in range(1000)])
    job = {"source": f"kafka://{broker.address}/{topic}", "table": str(root / "idle"), "key": ["id"]}
    lakefmt.ingest.run({**job, "auto.offset.reset": "earliest"})
    rounds: list[float] = []
    begun = time.perf_counter()

    class Enough(Exception):
        pass

    def note(_progress: object) -> None:
        nonlocal begun
        now = time.perf_counter()
        rounds.append((now - begun) * 1000)
        begun = now
        if len(rounds) == 40:
            raise Enough

    with contextlib.suppress(Enough):
        lakefmt.ingest.run({**job, "interval": 0.0, "auto.offset.reset": "earliest"}, mode="continuous", on_round=note)
    line("a round with nothing new, of a process that runs", rounds[1:], "ms")


def measure_delays(broker: KafkaBroker, root: Path, seconds: int, rate: int = 5_000) -> None:
    topic = broker.create_topic(PARTITIONS)
    producer = broker.producer(**{"linger.ms": 2})
    table = root / "delays"
    command = [
        *(sys.executable, "-m", "lakefmt", "ingest", "--source", f"kafka://{broker.address}/{topic}"),
        *("--table", str(table), "--key", "id", "--operation", "insert", "--table-type", "mor"),
        *("--hoodie-conf", "auto.offset.reset=earliest", "--continuous", "--interval", "0"),
        *("--hoodie-conf", "hoodie.archive.automatic=false"),  # the timeline tells when each commit ended
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    number = 0
    try:
        send(producer, topic, [(None, b'{"id":-1,"sent":0}')])
        producer.flush(30)
        while not (table / ".hoodie").exists():
            time.sleep(0.1)
        begun = time.time()
        while (passed := time.time() - begun) < seconds:
            due = int(passed * rate)
            now = int(time.time() * 1e6)
            send(producer, topic, [(b"%d" % each, b'{"id":%d,"sent":%d}' % (each, now)) for each in range(number, due)])
            number = max(number, due)
            producer.poll(0)
            time.sleep(0.004)
        producer.flush(30)
    finally:
        time.sleep(3)
        process.terminate()
        process.wait(60)
    opened = lakefmt.open_table(table)
    rows = opened.read(columns=["id", "sent", "_hoodie_commit_time"], filter="sent > 0")
    assert rows.num_rows == number, (rows.num_rows, number)
    completed = {entry.time: completion_micros(entry) for entry in opened.timeline.entries if entry.completion}
    times = pc.dictionary_encode(rows["_hoodie_commit_time"].combine_chunks())
    ends = np.array([completed[instant] for instant in times.dictionary.to_pylist()])[times.indices.to_numpy()]
    delays = (ends - rows["sent"].to_numpy()) / 1000
    p50, p99 = np.percentile(delays, (50, 99))
    what = f"from a message to the end of its commit, {rate:,} messages/s, {len(times.dictionary)} commits"
    print(f"{what:<64} {p50:>8,.0f} ms p50 {p99:>8,.0f} ms p99", flush=True)


def completion_micros(entry: Any) -> int:
    """Return when a commit was completed, in microseconds since 1970."""
    moment = datetime.strptime(entry.completion[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return int(moment.timestamp() * 1e6) + int(entry.completion[14:17] or 0) * 1000


def measure_memory(broker: KafkaBroker, root: Path, rows: int) -> None:
    import json

    for factor in (1, 4):
        topic = broker.create_topic(PARTITIONS)
        for part in range(factor):
            numbers = range(part * rows, (part + 1) * rows)
            broker.send(topic, [(b"%d" % number, json_value(number)) for number in numbers])
        job = {"source": f"kafka://{broker.address}/{topic}", "table": str(root / f"memory-{factor}"), "key": ["id"]}
        job |= {"operation": "bulk_insert", "auto.offset.reset": "earliest"}
        done = subprocess.run(
            [sys.executable, "-c", _JOB, json.dumps(job), "once"], capture_output=True, text=True, check=True
        )
        peak = int(done.stdout.split()[-2]) // 1024
        print(f"{f'largest resident size, {factor * rows:,} messages in one commit':<64} {peak:>12,} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--seconds", type=int, default=15)
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="lakefmt-bench-kafka-"))
    print(describe(root))
    try:
        with kafka_broker() as broker:
            measure_rows(broker, root, given.rows)
            measure_nothing_new(broker, root)
            measure_delays(broker, root, given.seconds)
            measure_memory(broker, root, given.rows)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
