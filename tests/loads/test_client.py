"""Our own client (TX-26): lost replies of every operation, redirects, passwords; and the command `lakefmt load`."""

from __future__ import annotations

import io
import json
import os
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import lakefmt
from lakefmt._core.cli import main
from lakefmt.client import StreamLoad
from lakefmt.errors import InvalidInputError, LoadFailed
from lakefmt.server import LoadOptions, LoadServer, hash_password, load_users, serve
from tests.judges.starrocks import python_client_loads, python_client_missing
from tests.loads.proxies import LossyProxy

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
QUICK = LoadOptions(durable=False, settings={"lakefmt.durability": "none"})
ROWS = b"1,a\n2,b\n"


@pytest.fixture
def base(tmp_path: Path) -> str:
    lakefmt.create_table(str(tmp_path / "db" / "t"), schema=SCHEMA, record_key="id")
    return str(tmp_path)


@pytest.fixture
def server(base: str) -> Iterator[LoadServer]:
    started = serve(base, port=0, options=QUICK)
    yield started
    started.stop()


def ids(base: str) -> list[int]:
    return sorted(lakefmt.open_table(f"{base}/db/t").read()["id"].to_pylist())


def client_of(url: str, **more: Any) -> StreamLoad:
    return StreamLoad(url, "db", "t", retry_seconds=0, **more)


def test_a_transaction_with_everything_that_can_be_sent(base: str, server: LoadServer, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(b"5,e\n")
    with client_of(server.url, label="l") as load, file.open("rb") as opened:
        assert load.load(ROWS, column_separator=",").rows == 2
        assert load.load(opened, column_separator=",").rows == 1
        assert load.load(iter([b"6,f", b"\n7,g\n"]), column_separator=",").rows == 2
        assert load.load(io.BytesIO(b"8,h\n"), column_separator=",").rows == 1
        assert load.state() == "PREPARE"
    assert load.state() == "VISIBLE"
    assert ids(base) == [1, 2, 5, 6, 7, 8]
    with pytest.raises(LoadFailed, match="already been used") as caught:
        client_of(server.url, label="l").begin()
    assert caught.value.status == "LABEL_ALREADY_EXISTS"
    assert caught.value.body["ExistingJobStatus"] == "FINISHED"


def test_an_exception_rolls_back(base: str, server: LoadServer) -> None:
    load = client_of(server.url)

    def fails() -> None:
        with load:
            load.load(ROWS, column_separator=",")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert load.state() == "ABORTED"
    assert ids(base) == []


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["begin", "load", "prepare", "commit", "rollback"])
@pytest.mark.parametrize("times", [1, 2])
def test_5_2_a_lost_reply_of_any_operation(base: str, server: LoadServer, operation: str, times: int) -> None:
    with LossyProxy(server.address, lambda line, count: f"/{operation} " in line and count < times) as proxy:
        load = client_of(proxy.url)
        load.begin()
        load.state()  # by now it knows that the server takes numbered loads once
        load.load(ROWS, column_separator=",")
        if operation == "rollback":
            load.rollback()
        else:
            load.prepare()
            load.commit()
        assert len(proxy.lost) >= 1
    assert ids(base) == ([] if operation == "rollback" else [1, 2])


def test_a_load_whose_reply_is_lost_is_not_repeated_blindly(base: str, server: LoadServer) -> None:
    with LossyProxy(server.address, lambda line, count: "/load " in line) as proxy:
        load = client_of(proxy.url, retries=0)
        load.begin()
        with pytest.raises(LoadFailed, match="roll back and begin anew") as caught:
            load.load(ROWS, column_separator=",")
        assert caught.value.transient
        load.rollback()
    assert ids(base) == []


def test_nobody_answers() -> None:
    load = client_of("http://127.0.0.1:1", retries=0)
    for ask in (load.begin, load.state, lambda: load.load(b"")):
        with pytest.raises(LoadFailed) as caught:
            ask()
        assert caught.value.transient


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://u:p@host:1", "x"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(InvalidInputError):
        StreamLoad(url, "db", "t")


@pytest.mark.slow
def test_users(base: str, tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(hash_password("anna", "right"), "utf-8")
    server = serve(base, port=0, options=QUICK, users=load_users(file))
    try:
        with pytest.raises(LoadFailed, match="Access denied"):
            client_of(server.url, user="anna", password="wrong").begin()
        with client_of(server.url, user="anna", password="right") as load:
            load.load(ROWS, column_separator=",")
        assert ids(base) == [1, 2]
    finally:
        server.stop()


@pytest.fixture
def front(server: LoadServer) -> Iterator[str]:
    """A front end that sends its clients to the server, as StarRocks' does."""

    class Front(BaseHTTPRequestHandler):
        def redirect(self) -> None:
            self.send_response(307)
            self.send_header("Location", f"{server.url}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_PUT = do_POST = redirect  # noqa: N815

        def handle_expect_100(self) -> bool:
            return True

        def log_message(self, *_: object) -> None:
            pass

    listening = HTTPServer(("127.0.0.1", 0), Front)
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}"
    listening.shutdown()
    thread.join()
    listening.server_close()


def test_a_front_end_sends_the_client_on(base: str, front: str) -> None:
    with client_of(front) as load:
        load.load(ROWS, column_separator=",")
    assert ids(base) == [1, 2]


def test_a_client_of_others_in_python_loads_through_a_front_end(base: str, front: str) -> None:
    if reason := python_client_missing():
        if os.environ.get("CI") == "true":
            pytest.fail(f"DorisClient is missing: {reason}")
        pytest.skip(f"DorisClient is missing: {reason}")
    texts = ['"quoted", \\back\nline\ttab', "ü 日本 \U0001f600", "", "\\N"]
    first: list[dict[str, object]] = [{"id": number, "v": text} for number, text in enumerate(texts)]
    loads = [
        ("t", first),
        ("t", [{"v": None, "id": 1}]),
        ("t", [{"id": 7, "v": "a"}, {"id": "x", "v": "b"}]),
        ("no", first),
    ]
    assert python_client_loads(front.removeprefix("http://"), loads) == [True, True, False, False]
    rows = lakefmt.open_table(f"{base}/db/t").read(["id", "v"]).sort_by("id").to_pylist()
    assert rows == [{"id": 0, "v": texts[0]}, {"id": 1, "v": None}, {"id": 2, "v": ""}, {"id": 3, "v": "\\N"}]


# --- commands ----------------------------------------------------------------------------------------------------------------

Run = Callable[..., Any]


def run(*arguments: str, body: bytes | None = None) -> Any:
    return CliRunner().invoke(main, list(arguments), input=body)


def test_the_command_load(base: str, server: LoadServer, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(ROWS)
    how = ["--url", server.url, "--table", "db.t", "--header", "column_separator=,"]
    done = run("load", str(file), *how, "--label", "l")
    assert done.exit_code == 0, done.output
    assert "2 rows, label l" in done.output
    again = run("load", str(file), *how, "--label", "l", "--json")
    assert again.exit_code == 1
    assert "load_failed" in again.output
    done = run("load", "-", *how, "--json", body=b"3,c\n")
    assert json.loads(done.output)["NumberLoadedRows"] == 1
    lines = tmp_path / "rows.jsonl"
    lines.write_bytes(b'{"id":4,"v":"d"}\n')
    assert run("load", str(lines), "--url", server.url, "--table", "db.t", "--quiet").exit_code == 0
    assert ids(base) == [1, 2, 3, 4]
    assert run("load", str(file), "--url", server.url, "--table", "t").exit_code == 2


def test_the_command_serve_refuses_what_it_cannot_do(base: str) -> None:
    assert run("serve").exit_code == 2
    assert "reached by others" in run("serve", "--base-path", base, "--host", "0.0.0.0").output
    assert "no option 'colour'" in run("serve", "--base-path", base, "--option", "colour=red").output
    assert "option timeout: 'x'" in run("serve", "--base-path", base, "--option", "timeout=x").output


@pytest.mark.slow
def test_the_command_serve_makes_lines_of_users(tmp_path: Path) -> None:
    done = run("serve", "--hash-password", "anna", "--patterns", "db.*", body=b"secret\nsecret\n")
    assert done.exit_code == 0, done.output
    line = next(each for each in done.output.splitlines() if each.startswith("anna:"))
    assert line.endswith(":db.*")
    file = tmp_path / "users"
    file.write_text(line, "utf-8")
    assert len(load_users(file)) == 1


def test_a_refused_load_says_where_the_reasons_are(base: str, server: LoadServer) -> None:
    with (
        pytest.raises(LoadFailed, match="too many filtered rows; their reasons are at http") as caught,
        client_of(server.url) as load,
    ):
        load.load(ROWS)  # commas, where tabs are expected
    with urllib.request.urlopen(str(caught.value).rpartition(" ")[2]) as answer:
        assert answer.read().strip()
    assert ids(base) == []
