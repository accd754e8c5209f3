"""The MySQL port on which StarRocks' Flink sink asks for columns: what it says, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.loads.mysql_port import MySQLPort, column_rows
from lakefmt.server import serve

pymysql = pytest.importorskip("pymysql", reason="asks the port")
pytest.importorskip("mysql_mimic", reason="speaks the port's protocol")

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def test_what_is_said_of_columns() -> None:
    schema = pa.schema(
        [("id", pa.int32()), ("t", pa.timestamp("us")), ("f", pa.float32()), ("l", pa.list_(pa.int64()))]
    )
    said = column_rows(schema, ["id"])
    assert [row[:4] for row in said] == [
        ("id", 1, "PRI", "int"),
        ("t", 2, "", "datetime"),
        ("f", 3, "", "float"),
        ("l", 4, "", "json"),
    ]


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[tuple[MySQLPort, Any]]:
    """A port, and a connection of PyMySQL to it."""
    lakefmt.create_table(tmp_path / "db" / "t", schema=SCHEMA, record_key="id")
    server = serve(str(tmp_path), port=0)
    port = MySQLPort(server.service.target, "127.0.0.1", 0)
    with pymysql.connect(host="127.0.0.1", port=port.port, user="root", read_timeout=20) as connection:
        yield port, connection
    port.stop()
    server.stop()


def test_what_the_port_says_to_the_sink(asked: tuple[MySQLPort, Any]) -> None:
    _, connection = asked
    with connection.cursor() as cursor:
        # What the sink uses depends on it; drivers look at the number in the greeting, which is MySQL's.
        cursor.execute("select current_version() as ver;")
        assert (cursor.description[0][0], cursor.fetchall()) == ("ver", (("3.2.0 lakefmt",),))
        assert connection.get_server_info().startswith("8.")
        cursor.execute(
            "select `COLUMN_NAME` from `information_schema`.`COLUMNS` where `TABLE_SCHEMA`='db' and `TABLE_NAME`='t'"
        )
        assert [row[0] for row in cursor.fetchall()] == ["id", "v"]


def test_a_port_that_stops_ends_its_connections(asked: tuple[MySQLPort, Any]) -> None:
    port, connection = asked
    connection.ping(reconnect=False)
    port.stop()
    with pytest.raises(pymysql.err.OperationalError) as raised:
        connection.ping(reconnect=False)
    assert "timed out" not in str(raised.value)
