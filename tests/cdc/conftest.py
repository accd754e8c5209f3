"""One PostgreSQL for the tests of a process, and a database for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.judges.postgres import PostgresServer, postgres_service


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_service() as server:
        yield server


@pytest.fixture
def shop(postgres: PostgresServer) -> Iterator[str]:
    """The name of an empty database."""
    name = postgres.database()
    yield name
    postgres.drop(name)
