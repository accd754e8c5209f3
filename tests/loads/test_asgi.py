"""The ASGI face, behind uvicorn: the same replies, bodies that are asked for, users, and clients that end early."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lakefmt
from lakefmt.client import StreamLoad
from lakefmt.server import LoadOptions, Users, asgi_app, hash_password, load_users
from tests.loads.loads_kit import KEYED

uvicorn = pytest.importorskip("uvicorn", reason="the ASGI server of the development environment")


@contextmanager
def running(base: Path, users: Users | None = None, host: str = "127.0.0.1") -> Iterator[str]:
    app = asgi_app(str(base), users=users, options=LoadOptions(durable=False))
    config = uvicorn.Config(app, host=host, port=0, lifespan="on", log_level="critical", http="h11")
    server = uvicorn.Server(config)
    begun = threading.Event()
    startup = server.startup

    async def started(sockets: list[socket.socket] | None = None) -> None:
        await startup(sockets)
        begun.set()

    server.startup = started
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert begun.wait(60)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    lakefmt.create_table(tmp_path / "db" / "t", schema=KEYED, record_key="id")
    return tmp_path


def rows(base: Path) -> int:
    return len(lakefmt.open_table(base / "db" / "t").read())


@pytest.mark.slow
def test_a_transaction_and_a_server_that_starts_again(base: Path) -> None:
    body = b"".join(b"%d,x,1\n" % number for number in range(100_000))
    with running(base) as url:
        load = StreamLoad(url, "db", "t", label="one")
        load.begin()
        load.load(body, column_separator=",")
        load.prepare()
    with running(base) as url:
        load = StreamLoad(url, "db", "t", label="one")
        assert load.state() == "PREPARED"
        load.commit()
    assert rows(base) == 100_000


@pytest.mark.slow
def test_a_body_that_is_refused_is_not_read_and_one_that_breaks_leaves_nothing(base: Path) -> None:
    with running(base) as url:
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as client:
            head = "PUT /api/transaction/load HTTP/1.1\r\nHost: x\r\nlabel: no\r\ndb: db\r\ntable: t\r\n"
            client.sendall(f"{head}Expect: 100-continue\r\nContent-Length: 9000000\r\n\r\n".encode())
            data = b""
            while block := client.recv(65_536):  # until the server ends the connection
                data += block
            assert data.startswith(b"HTTP/1.1 200")  # no 100 Continue came first
            assert b"TXN_NOT_EXISTS" in data
        with socket.create_connection(("127.0.0.1", port)) as client:
            head = "PUT /api/db/t/_stream_load HTTP/1.1\r\nHost: x\r\nlabel: broken\r\ncolumn_separator: ,\r\n"
            client.sendall(f"{head}Content-Length: 9000\r\n\r\n1,a,1\n".encode())
        load = StreamLoad(url, "db", "t", label="two")
        with load:
            load.load(b"2,b,2\n", column_separator=",")
        assert StreamLoad(url, "db", "t", label="broken").state() != "VISIBLE"
    assert rows(base) == 1


@pytest.mark.slow
def test_users_and_other_machines(base: Path, tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(hash_password("anna", "secret", "db.*") + "\n", "utf-8")
    with running(base, load_users(path)) as url:
        connection = http.client.HTTPConnection(url.removeprefix("http://"))
        connection.request("GET", "/api/transaction/list")
        reply = connection.getresponse()
        assert (reply.status, reply.getheader("WWW-Authenticate")) == (401, 'Basic realm=""')
        assert json.loads(reply.read())["Status"] == "FAILED"
        connection.close()
        with StreamLoad(url, "db", "t", user="anna", password="secret") as load:
            load.load(b"1,a,1\n", column_separator=",")
    assert rows(base) == 1


def test_without_users_another_address_than_this_machine_s_is_refused() -> None:
    import asyncio

    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    async def receive() -> dict[str, object]:
        raise AssertionError("nothing is read")

    scope = {"type": "http", "method": "GET", "path": "/api/health", "headers": [], "server": ("10.0.0.7", 80)}
    asyncio.run(asgi_app("memory://asgi-others")(scope, receive, send))
    assert sent[0]["status"] == 403
