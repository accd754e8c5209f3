"""One PostgreSQL for the tests of a process, and a database for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.judges.plugin import LEDGER, _refuse
from tests.judges.postgres import PostgresServer, postgres_missing, postgres_service


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    lacking = postgres_missing()
    if lacking:
        _refuse(request.config, "POSTGRESQL", lacking)
    with postgres_service() as server:
        yield server
        request.config.stash[LEDGER].add("POSTGRESQL", str(server.rows("SHOW server_version", "postgres")[0][0]), 1)


@pytest.fixture
def shop(postgres: PostgresServer) -> Iterator[str]:
    """The name of an empty database."""
    name = postgres.database()
    yield name
    postgres.drop(name)
