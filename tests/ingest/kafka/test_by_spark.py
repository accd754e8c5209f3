"""A topic by Spark's own source of Kafka: the same checkpoints, rows and rejected rows as without Spark, in turns on one table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.ingest.ingest_kit import rows_of
from tests.judges.kafka import KafkaBroker, kafka_environment
from tests.judges.spark import spark_environment

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def spark_kafka(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a Spark 3.5 with the connector of Kafka, and with this Python's client of Kafka, which plans."""
    environment, jars = spark_environment(), kafka_environment(spark=True)
    jars = jars["connector_jars"] if "spark" not in jars["missing"] else ""
    if not environment.python or not environment.java or not jars:
        pytest.skip("needs PySpark 3.5 (make spark-env) and its connector of Kafka (make kafka-env)")
    told = subprocess.run([environment.python, "-V"], capture_output=True, text=True, timeout=60, check=True).stdout
    if not told.startswith(f"Python {sys.version_info.major}.{sys.version_info.minor}."):
        pytest.skip(f"PySpark's {told.strip()} cannot load the client of Kafka of this Python")
    packages = tmp_path_factory.mktemp("packages")
    for package in Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka*"):
        (packages / package.name).symlink_to(package)
    names = ":".join(str(path) for path in sorted(Path(jars).glob("*.jar")))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHON", "COV"))}
    return kept | {
        "JAVA_HOME": str(environment.java),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(environment.python),
        "PYSPARK_SUBMIT_ARGS": f"--jars {names.replace(':', ',')} pyspark-shell",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/spark/preloaded"), str(packages)]),
        "PYTHONWARNINGS": "ignore",
    }


def run(spark_kafka: Mapping[str, str], jobs: list[dict[str, Any]]) -> list[list[Any]]:
    command = [spark_kafka["PYSPARK_PYTHON"], str(ROOT / "tests/spark/ingest_kafka_scenario.py"), json.dumps(jobs)]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(spark_kafka), timeout=400, check=False)
    lines = [line.partition("answers:")[2] for line in done.stdout.splitlines() if "answers:" in line]
    assert lines, done.stderr[-4000:]
    return json.loads(lines[0])  # type: ignore[no-any-return]


@pytest.mark.test_all
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_topic_by_spark_takes_turns_with_the_job_without_it(kafka: KafkaBroker, spark_kafka, tmp_path):
    """Two partitions, poison, tombstones, an aborted transaction: one table by both engines."""
    topic = kafka.create_topic(2)
    for part in (0, 1):
        kafka.send_values(topic, [json.dumps({"id": f"{part}-{n}", "n": n}).encode() for n in range(500)], part)
    kafka.send_values(topic, [b"no JSON", b'{"id": "0-7", "n": "wrong"}', b'{"id": "0-1", "n": 1000}'], 0)
    job: dict[str, Any] = {
        "source": f"kafka://{kafka.address}/{topic}",
        "table": str(tmp_path / "t"),
        "key": "id",
        "errors": str(tmp_path / "e"),
        "lakefmt.ingest.kafka.null.values": "delete",
        "lakefmt.ingest.kafka.key.column": "id",
        "by_spark": True,
    }
    assert run(spark_kafka, [job, job])[0] == [1001, 2, f"{topic},0:503,1:500"]
    table = rows_of(tmp_path / "t")
    assert (len(table), sum(row["n"] for row in table)) == (1000, 2 * sum(range(500)) - 1 + 1000)
    assert sorted(row["origin"] for row in rows_of(tmp_path / "e")) == [f"{topic}-0@500", f"{topic}-0@501"]

    producer = kafka.producer(**{"transactional.id": f"{topic}-t"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b'{"id": "aborted", "n": 0}', partition=1)
    producer.flush()
    producer.abort_transaction()
    for key, value in (
        (b"1-5", None),
        (b"1-6", None),
        (b"1-6", b'{"id": "1-6", "n": 66}'),
        (b"1-7", b'{"id": "1-7", "n": 77}'),
        (b"1-7", None),
    ):
        kafka.send(topic, [(key, value, {"partition": 1})])
    first, second = run(spark_kafka, [{**job, "source_limit": 4, "by_spark": False}, job])
    assert (first[1:], second[1:]) == ([0, f"{topic},0:503,1:504"], [0, f"{topic},0:503,1:507"])
    left = {row["id"]: row["n"] for row in rows_of(tmp_path / "t", ["id", "n"])}
    assert (len(left), left["1-6"]) == (998, 66)
    assert not {"1-5", "1-7", "aborted"} & left.keys()
