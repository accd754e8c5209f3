"""Apache Kafka and a schema registry on the loopback address, by the jars of tools/kafka_env.py.

Each broker is one process with a private folder and private ports, in KRaft mode, controller and broker in one.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from tests.judges.mariadb import free_port

ROOT = Path(__file__).parents[2]
SECONDS_TO_START = 90.0
_CLUSTER = "4L6g3nShT-eMCtK--X86sw"
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_numbers = count(1)

#: Key, value, and optionally a dictionary with partition, timestamp and headers.
Record = tuple[Any, ...]


@cache
def kafka_environment(*, registry: bool = False, spark: bool = False) -> dict[str, Any]:
    """What tools/kafka_env.py finds or fetches."""
    options = [name for name, asked in (("--registry", registry), ("--spark", spark)) if asked]
    script = [sys.executable, str(ROOT / "tools/kafka_env.py"), *options]
    found = subprocess.run(script, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    environment: dict[str, Any] = json.loads(found.stdout)
    return environment


def kafka_missing(*, registry: bool = False) -> str:
    """Why the broker, or the registry, cannot be asked; empty: it can."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        return "confluent-kafka is not installed: pip install 'lakefmt[kafka]'"
    missing = kafka_environment(registry=registry)["missing"]
    return "; ".join(f"{name}: {reason}" for name, reason in missing.items())


class KafkaBroker:
    """One broker; ``with KafkaBroker(folder) as broker`` starts and kills it.

    Attributes:
        address: where it listens, the same after a restart.
    """

    def __init__(self, folder: Path, **properties: str) -> None:
        self.folder = folder
        self.port, self._controller_port = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._properties = properties
        self._process: subprocess.Popen[bytes] | None = None
        self._producer: Any = None
        self._admin: Any = None
        self.requests = 0

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the broker and wait until it answers."""
        environment = kafka_environment()
        java = [str(environment["java"]), *_JVM, "-cp", f"{environment['jars']}/*"]
        configuration = self.folder / "server.properties"
        with (self.folder / "server.log").open("ab") as log:
            if not configuration.exists():
                configuration.write_text(self._configuration(), "ascii")
                form = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(configuration)]
                subprocess.run(form, check=True, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            self._process = subprocess.Popen(
                [*java, "kafka.Kafka", str(configuration)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + SECONDS_TO_START
        while True:
            with contextlib.suppress(Exception):
                self.admin().list_topics(timeout=1)
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self.folder / "server.log").read_text("utf-8", "replace")[-3000:]
                raise RuntimeError(f"Kafka does not start: {said}")

    def _configuration(self) -> str:
        listeners = f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self._controller_port}"
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "2",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            # Messages of tests have times of years ago, which retention would remove at its next check.
            "log.retention.ms": "-1",
            "log.retention.check.interval.ms": "500",
            "log.initial.task.delay.ms": "500",
            "log.cleaner.backoff.ms": "300",
            "log.cleaner.dedupe.buffer.size": "8388608",
            # A broker that comes back waits until its former self is given up.
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "400",
            "num.network.threads": "2",
            "num.io.threads": "2",
            **self._properties,
        }
        return "".join(f"{name}={value}\n" for name, value in values.items())

    def kill(self) -> None:
        """End the broker at once."""
        self._producer = self._admin = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    # ------------------------------------------------------------------------------------------ what tests do with it

    def admin(self) -> Any:
        """Return the client for topics; while it answers somebody has to hold it."""
        import logging

        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.address, "logger": logging.getLogger("tests.kafka")})
        return self._admin

    def create_topic(self, partitions: int = 1, *, name: str | None = None, **configuration: str) -> str:
        """Create a topic of a name of its own; return the name."""
        from confluent_kafka.admin import NewTopic

        self.requests += 1
        topic = name or f"topic-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in configuration.items()}
        made = self.admin().create_topics([NewTopic(topic, partitions, 1, config=settings)])
        made[topic].result(30)
        self._await_partitions(topic, partitions)
        return topic

    def _await_partitions(self, topic: str, partitions: int) -> None:
        """Wait until the broker itself knows what its controller has decided."""
        from confluent_kafka import KafkaException, TopicCollection

        deadline = time.monotonic() + SECONDS_TO_START
        while time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                found = self.admin().describe_topics(TopicCollection([topic]))[topic].result(30)
                if len(found.partitions) >= partitions and all(each.leader is not None for each in found.partitions):
                    return
        raise RuntimeError(f"the topic {topic} does not get {partitions} partitions")

    def wait_for_end(self, topic: str, offset: int) -> None:
        """Wait until what is committed in the first partition ends at an offset: marks of transactions come a moment after them."""
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        deadline = time.monotonic() + SECONDS_TO_START
        asked, found = {TopicPartition(topic, 0): OffsetSpec.latest()}, -1
        while time.monotonic() < deadline and found != offset:
            (answer,) = self.admin().list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED).values()
            found = answer.result(30).offset
        assert found == offset, f"the committed end of {topic} is {found}, not {offset}"

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and wait until its name is free."""
        admin = self.admin()
        self._producer = None
        admin.delete_topics([topic])[topic].result(30)
        deadline = time.monotonic() + SECONDS_TO_START
        while topic in admin.list_topics(timeout=10).topics:
            assert time.monotonic() < deadline, f"the topic {topic} does not go"

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Raise the number of a topic's partitions."""
        from confluent_kafka.admin import NewPartitions

        admin = self.admin()
        self._producer = None  # it remembers how many there were
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        self._await_partitions(topic, partitions)

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Have the topic forget what precedes some offsets, as retention does."""
        from confluent_kafka import TopicPartition

        places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        for attempt in range(3):  # an older client now and then never hears the answer; to delete again changes nothing
            try:
                for future in self.admin().delete_records(places).values():
                    future.result(10)
                return
            except TimeoutError:
                if attempt == 2:
                    raise

    def producer(self, **settings: object) -> Any:
        """Return a new producer."""
        import logging

        from confluent_kafka import Producer

        usual = {
            "bootstrap.servers": self.address,
            "linger.ms": 5,
            # Without it a batch that is sent again, as the first one of a new topic may be, is stored behind its successor.
            "enable.idempotence": True,
            "logger": logging.getLogger("tests.kafka"),
        }
        return Producer({**usual, **settings})

    def send(self, topic: str, records: Iterable[Record]) -> None:
        """Store records, each a key, a value and optionally more arguments of `produce`, and wait until they are stored."""
        if self._producer is None:
            self._producer = self.producer()
        send(self._producer, topic, records)
        assert self._producer.flush(30) == 0

    def send_values(self, topic: str, values: Sequence[bytes | None], partition: int = 0) -> None:
        """Store values without keys in one partition."""
        self.send(topic, [(None, value, {"partition": partition}) for value in values])


def send(producer: Any, topic: str, records: Iterable[Record]) -> None:
    """Hand records to a producer; it waits where its queue is full."""
    for key, value, *rest in records:
        while True:
            try:
                producer.produce(topic, key=key, value=value, **(rest[0] if rest else {}))
                break
            except BufferError:
                producer.poll(0.1)


@contextlib.contextmanager
def kafka_broker(**properties: str) -> Iterator[KafkaBroker]:
    """Run a broker in a folder of its own that goes with it."""
    folder = tempfile.mkdtemp(prefix="lakefmt-kafka-")
    try:
        with KafkaBroker(Path(folder), **properties) as broker:
            yield broker
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def schema_registry() -> Iterator[str]:
    """Run Apicurio, a registry with Confluent's API; return the API's URL."""
    environment = kafka_environment(registry=True)
    port, management = free_port(), free_port()
    told = ["-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1"]
    told += [
        f"-Dquarkus.http.port={port}",
        "-Dquarkus.management.host=127.0.0.1",
        f"-Dquarkus.management.port={management}",
    ]
    folder = Path(tempfile.mkdtemp(prefix="lakefmt-registry-"))
    jar = next(Path(environment["registry"]).rglob("quarkus-run.jar"))
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(environment["registry_java"]), *told, "-jar", str(jar)], stdout=log, stderr=log, cwd=folder
        )
    try:
        deadline = time.monotonic() + SECONDS_TO_START
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/subjects", timeout=5):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                said = (folder / "log").read_text("utf-8", "replace")[-3000:]
                raise RuntimeError(f"the registry does not start: {said}")
            time.sleep(0.1)
        yield url
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
