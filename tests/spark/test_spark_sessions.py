"""The data source in a session that has found it on its own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lakefmt.spark.registration import register_source


class Source:
    """Stands in for a data source."""


def session(said: str) -> SimpleNamespace:
    """A session whose Spark answers a registration with an error, if any."""
    taken: list[type] = []

    def register(source: type) -> None:
        if said:
            raise RuntimeError(said)
        taken.append(source)

    return SimpleNamespace(dataSource=SimpleNamespace(register=register), taken=taken)


def test_a_data_source_is_registered() -> None:
    spark = session("")
    register_source(spark, Source)
    assert spark.taken == [Source]


def test_what_spark_found_on_its_own_stays() -> None:
    register_source(
        session("[DATA_SOURCE_ALREADY_EXISTS] Data source 'lakefmt' already exists. SQLSTATE: 42710"), Source
    )


def test_another_error_is_told() -> None:
    with pytest.raises(RuntimeError, match="not a data source"):
        register_source(session("[DATA_SOURCE_INVALID] not a data source"), Source)
