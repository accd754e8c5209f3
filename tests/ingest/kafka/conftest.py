"""One broker for the tests of a process; all tests that ask it run in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.judges.kafka import KafkaBroker, kafka_broker, kafka_missing, schema_registry
from tests.judges.plugin import LEDGER, _refuse
from tests.judges.streamer import RELEASE, HoodieStreamer, streamer_missing

_FOLDER = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"kafka", "registry", "streamer"} & set(getattr(item, "fixturenames", ())) and item.path.is_relative_to(
            _FOLDER
        ):
            item.add_marker(pytest.mark.xdist_group("kafka"))


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    """Apache Kafka, one broker."""
    lacking = kafka_missing()
    if lacking:
        _refuse(request.config, "KAFKA", lacking)
    with kafka_broker() as broker:
        yield broker
        request.config.stash[LEDGER].add("KAFKA", "Apache Kafka 4.4.0", broker.requests)


@pytest.fixture(scope="session")
def registry(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a schema registry."""
    lacking = kafka_missing(registry=True)
    if lacking:
        _refuse(request.config, "REGISTRY", lacking)
    with schema_registry() as url:
        yield url
        request.config.stash[LEDGER].add("REGISTRY", "Apicurio 3.3.3", 1)


@pytest.fixture
def streamer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., HoodieStreamer]]:
    """Make runs of Hudi's own tool on a table, with properties of its source."""
    lacking = streamer_missing()
    if lacking:
        _refuse(request.config, "STREAMER", lacking)
    made: list[HoodieStreamer] = []

    def make(table: Path, columns: Mapping[str, object], properties: Mapping[str, str]) -> HoodieStreamer:
        made.append(HoodieStreamer(tmp_path, table, columns, properties))
        return made[-1]

    yield make
    request.config.stash[LEDGER].add("STREAMER", RELEASE, sum(each.requests for each in made))
