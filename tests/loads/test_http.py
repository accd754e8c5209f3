"""HTTP: what curl gets, what hostile clients get, and what a server that is killed leaves (T1 … T8, TX-1, TX-5, C.3)."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import os
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.loads import http
from lakefmt.client import StreamLoad
from lakefmt.errors import InvalidInputError
from lakefmt.server import HttpLimits, LoadOptions, LoadServer, hash_password, load_users, serve
from tests.example_counts import seed_of_run
from tests.judges.hudi_rs import HudiRsJudge

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("n", pa.float64())])
ROWS = b"1,a,1\n2,b,2\n3,\\N,3\n4,d,4\n"
QUICK = LoadOptions(durable=False, settings={"lakefmt.durability": "none"})
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@pytest.fixture
def base(tmp_path: Path) -> str:
    lakefmt.create_table(str(tmp_path / "db" / "t"), schema=SCHEMA, record_key="id")
    return str(tmp_path)


@pytest.fixture
def started(base: str) -> Iterator[Callable[..., LoadServer]]:
    servers: list[LoadServer] = []

    def start(**more: Any) -> LoadServer:
        servers.append(serve(base, port=0, **{"options": QUICK, **more}))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def rows_of(base: str) -> list[int]:
    return sorted(lakefmt.open_table(f"{base}/db/t").read()["id"].to_pylist())


# --- curl ------------------------------------------------------------------------------------------------------------------


def curl(*arguments: str, body: bytes = b"") -> dict[str, Any]:
    done = subprocess.run(["curl", "-s", "--max-time", "30", *arguments], input=body, capture_output=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def guide(url: str, operation: str, label: str, *more: str, table: bool = True) -> dict[str, Any]:
    """The command as the guide has it."""
    names = ["-H", f"label:{label}", "-H", "Expect:100-continue", "-H", "db:db", *(["-H", "table:t"] if table else [])]
    method = "PUT" if operation == "load" else "POST"
    return curl("--location-trusted", "-u", "root:", *names, *more, "-X", method, f"{url}/api/transaction/{operation}")


@pytest.mark.slow
@needs_curl
@pytest.mark.judge_rs
def test_t1_the_commands_of_the_guide(
    base: str, started: Callable[..., LoadServer], tmp_path: Path, hudi_rs_judge: HudiRsJudge
) -> None:
    url = started().url
    file = tmp_path / "rows.csv"
    file.write_bytes(ROWS)
    load = ("-H", "column_separator:,", "-T", str(file))
    assert guide(url, "begin", "l")["Status"] == "OK"
    assert guide(url, "load", "l", *load)["NumberLoadedRows"] == 4
    # T14: while it waits, nobody sees its rows.
    assert hudi_rs_judge.snapshot(f"{base}/db/t").num_rows == 0
    assert guide(url, "prepare", "l", table=False)["Status"] == "OK"
    assert curl(f"{url}/api/db/get_load_state?label=l")["state"] == "PREPARED"
    assert guide(url, "commit", "l", table=False)["Status"] == "OK"
    expected = [(1, "a", 1.0), (2, "b", 2.0), (3, None, 3.0), (4, "d", 4.0)]
    found = hudi_rs_judge.snapshot(f"{base}/db/t").to_pylist()
    assert sorted(tuple(row[name] for name in ("id", "v", "n")) for row in found) == expected
    assert guide(url, "begin", "m")["Status"] == "OK"
    assert guide(url, "load", "m", *load)["Status"] == "OK"
    assert guide(url, "rollback", "m", table=False)["Status"] == "OK"
    assert len(rows_of(base)) == 4


@pytest.mark.slow
@needs_curl
@pytest.mark.parametrize("compression", ["gzip", "bz2", "lz4", "zstd", "deflate", "", "chunked"])
def test_t8_compressed_and_chunked_bodies(base: str, started: Callable[..., LoadServer], compression: str) -> None:
    packed = {
        "gzip": gzip.compress(ROWS[:12]) + gzip.compress(ROWS[12:]),
        "bz2": bz2.compress(ROWS[:12]) + bz2.compress(ROWS[12:]),
        "lz4": bytes(pa.Codec("lz4").compress(ROWS, asbytes=True)),
        "zstd": bytes(pa.Codec("zstd").compress(ROWS, asbytes=True)),
        "deflate": zlib.compress(ROWS),
    }.get(compression, ROWS)
    more = ["-H", f"compression:{compression}"] if compression not in ("", "chunked") else []
    more += ["-H", "Transfer-Encoding: chunked"] if compression == "chunked" else []
    url = started().url
    arguments = ["-H", "column_separator:,", *more, "-T", "-", f"{url}/api/db/t/_stream_load"]
    if compression != "chunked":
        arguments[-3:-1] = ["--data-binary", "@-", "-X", "PUT"]
    assert curl(*arguments, body=packed)["Status"] == "Success"
    assert rows_of(base) == [1, 2, 3, 4]


# --- by hand ---------------------------------------------------------------------------------------------------------------


class Raw:
    """A connection on which a test writes what it likes."""

    def __init__(self, server: LoadServer) -> None:
        self.socket = socket.create_connection(server.address)
        self.socket.settimeout(10)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, text: str | bytes) -> None:
        self.socket.sendall(text.encode() if isinstance(text, str) else text)

    def head(self, method: str, path: str, **headers: str) -> None:
        lines = "".join(
            f"{name.replace('_', '-') if name[0].isupper() else name}: {value}\r\n" for name, value in headers.items()
        )
        self.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n")

    def receive(self, until: bytes = b"") -> bytes:
        """What comes until some bytes did, or the server ends the connection."""
        found = b""
        while not until or until not in found:
            try:
                block = self.socket.recv(65536)
            except ConnectionResetError:
                break
            if not block:
                break
            found += block
        return found

    def is_closed(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


LOAD = "/api/transaction/load"


def test_t7_a_refused_request_is_answered_before_its_body(started: Callable[..., LoadServer]) -> None:
    with Raw(started()) as raw:
        raw.head("PUT", LOAD, label="none", db="db", table="t", Expect="100-continue", Content_Length="1000000")
        reply = raw.receive()
        assert reply.startswith(b"HTTP/1.1 200")
        assert b"100 Continue" not in reply
        assert b"TXN_NOT_EXISTS" in reply
        assert b"Connection: close" in reply


@pytest.mark.slow
def test_t7_a_body_that_is_wanted_is_asked_for(base: str, started: Callable[..., LoadServer]) -> None:
    with Raw(started()) as raw:
        raw.head("PUT", "/api/db/t/_stream_load", column_separator=",", Expect="100-continue", Content_Length="6")
        assert raw.receive(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.send("1,a,1\n"[:6])
        assert b'"Status": "Success"' in raw.receive(b"}")
        # The connection is kept.
        raw.head("GET", "/api/health")
        assert b'"status": "OK"' in raw.receive(b"}")


@pytest.mark.parametrize(
    "headers",
    [
        {"Content_Length": "5", "Transfer_Encoding": "chunked"},
        {"Content_Length": "-5"},
        {"Content_Length": "5, 5"},
        {"Content_Length": "x"},
        {"Transfer_Encoding": "gzip, chunked"},
        {"Transfer_Encoding": "identity"},
        {"X": "y" * 70_000},
    ],
)
def test_c3_a_body_whose_length_is_not_clear_is_refused(
    started: Callable[..., LoadServer], headers: dict[str, str]
) -> None:
    with Raw(started()) as raw:
        raw.head("PUT", LOAD, **headers)
        assert raw.receive()[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 431")
        assert raw.is_closed()


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("path", [LOAD, "/api/db/t/_stream_load"])
def test_c3_a_load_that_does_not_tell_its_length_is_refused(
    base: str, started: Callable[..., LoadServer], version: str, path: str
) -> None:
    """It was an OK of no rows, and its rows were taken for the next request."""
    server = started()
    with Raw(server) as raw:
        raw.head("POST", "/api/transaction/begin", label="l", db="db", table="t")
        assert b'"OK"' in raw.receive(b"}")
    with Raw(server) as raw:
        raw.send(f"PUT {path} HTTP/{version}\r\nHost: x\r\nlabel: l\r\ndb: db\r\ntable: t\r\n\r\n1,a,1\n")
        reply = raw.receive()
        assert reply.startswith(b"HTTP/1.1 400")
        assert b"the length of the body is not told" in reply
    assert rows_of(base) == []


@pytest.mark.parametrize(
    ("request_text", "code"),
    [
        ("GET /" + "x" * 70_000 + " HTTP/1.1\r\n\r\n", 414),
        ("GET /api/health HTTP/1.1\r\nA: " + "x" * 70_000 + "\r\n\r\n", 431),
        ("GET /api/health HTTP/1.1\r\n" + "".join(f"A{n}: x\r\n" for n in range(300)) + "\r\n", 431),
        ("GET /api/health HTTP/3.0\r\n\r\n", 505),
        ("junk\r\n\r\n", 400),
        ("a b c d\r\n\r\n", 400),
    ],
)
def test_c3_what_is_no_request_is_refused_by_json(
    started: Callable[..., LoadServer], request_text: str, code: int
) -> None:
    server = started()
    with Raw(server) as raw:
        raw.send(request_text)
        head, _, body = raw.receive().rpartition(b"\r\n\r\n")
    assert json.loads(body)["Status"] == "FAILED"
    assert not head or head.startswith(f"HTTP/1.1 {code} ".encode())


@pytest.mark.parametrize("path", ["//[", "/api/health?" + "&".join("a=1" for _ in range(99))])
def test_c3_addresses_that_are_none(started: Callable[..., LoadServer], path: str) -> None:
    with Raw(started()) as raw:
        raw.head("GET", path)
        assert raw.receive(b"}")[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 404")


@pytest.mark.parametrize("twice", ["Content-Length: 5\r\nContent-Length: 6", "Host: a\r\nHost: b"])
def test_c3_headers_that_come_twice(started: Callable[..., LoadServer], twice: str) -> None:
    with Raw(started()) as raw:
        raw.send(f"PUT {LOAD} HTTP/1.1\r\n{twice}\r\n\r\n")
        assert raw.receive().startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "body",
    [
        b"zz\r\nhello\r\n0\r\n\r\n",
        b"-1\r\n",
        b"2\r\n1,a,1\n\r\n0\r\n\r\n",
        b"ffffffffffffffffff\r\n",
        b"6\r\n1,a,1\n\r\n0\r\nx",
    ],
)
def test_c4_chunks_that_lie_load_nothing(base: str, started: Callable[..., LoadServer], body: bytes) -> None:
    with Raw(started()) as raw:
        raw.head("PUT", "/api/db/t/_stream_load", column_separator=",", Transfer_Encoding="chunked")
        raw.send(body)
        raw.socket.shutdown(socket.SHUT_WR)
        assert raw.receive() == b""
    assert rows_of(base) == []


def test_c4_a_body_that_is_shorter_than_it_says_loads_nothing(base: str, started: Callable[..., LoadServer]) -> None:
    with Raw(started()) as raw:
        raw.head("PUT", "/api/db/t/_stream_load", column_separator=",", Content_Length="100")
        raw.send(b"1,a,1\n")
        raw.socket.shutdown(socket.SHUT_WR)
        assert raw.receive() == b""
    assert rows_of(base) == []


def test_c4_slow_clients_are_let_go_and_others_served(started: Callable[..., LoadServer]) -> None:
    server = started(limits=HttpLimits(read_seconds=0.2, header_seconds=0.2))
    with Raw(server) as header, Raw(server) as body, Raw(server) as other:
        header.send("PUT /api")
        body.head("PUT", "/api/db/t/_stream_load", column_separator=",", Content_Length="100")
        body.send(b"1,a")
        other.head("GET", "/api/health")
        assert b"OK" in other.receive(b"}")
        assert header.receive() == b""
        assert body.receive() == b""


@pytest.mark.slow
def test_c4_many_slow_connections_keep_nobody_out(started: Callable[..., LoadServer]) -> None:
    server = started(limits=HttpLimits(connections=4, header_seconds=60, read_seconds=60))
    slow = [Raw(server) for _ in range(60)]
    try:
        for raw in slow:
            raw.send("PUT /api")
        with Raw(server) as other:
            other.head("GET", "/api/health")
            assert b"OK" in other.receive(b"}")
    finally:
        for raw in slow:
            raw.socket.close()


@pytest.mark.slow
def test_c4_connections_that_are_slow_already_end_at_once_for_others(
    started: Callable[..., LoadServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many come: with two thousand a client had waited for five seconds, 20 ms for each one before it."""
    monkeypatch.setattr(http, "_SLOW_SECONDS", 0.0)
    monkeypatch.setattr(http, "_PLACE_SECONDS", 3_600.0)
    server = started(limits=HttpLimits(connections=4, header_seconds=3_600, read_seconds=3_600))
    slow = [Raw(server) for _ in range(200)]
    try:
        with Raw(server) as other:
            other.head("GET", "/api/health")
            assert b"OK" in other.receive(b"}")
    finally:
        for raw in slow:
            raw.socket.close()


def test_c4_bodies_of_which_nothing_comes_keep_nobody_out(
    base: str, started: Callable[..., LoadServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all places are taken; such a load leaves nothing."""
    monkeypatch.setattr(http, "_SILENT_SECONDS", 0.0)
    server = started(limits=HttpLimits(connections=4, header_seconds=3_600, read_seconds=3_600))
    silent = [Raw(server) for _ in range(8)]
    try:
        for number, raw in enumerate(silent):
            raw.head(
                "PUT", "/api/db/t/_stream_load", column_separator=",", label=f"silent-{number}", Content_Length="100"
            )
            raw.send("1,a,1\n")
        with StreamLoad(server.url, "db", "t", retries=0) as load:
            load.load(b"2,b,2\n", column_separator=",")
        assert rows_of(base) == [2]
    finally:
        for raw in silent:
            raw.socket.close()


def test_a_client_loads_in_a_process_of_many_open_files(started: Callable[..., LoadServer]) -> None:
    url = started().url
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, most[1]), most[1]))
    opened = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while opened[-1] < 1_100:
            opened.append(os.dup(opened[0]))
        with StreamLoad(url, "db", "t", retries=0) as load:
            assert load.load(b"1,a,1\n", column_separator=",").rows == 1
    finally:
        for number in opened:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, most)


def test_c4_a_request_takes_no_longer_than_it_may(started: Callable[..., LoadServer]) -> None:
    with Raw(started(limits=HttpLimits(request_seconds=0.2))) as raw:
        raw.head("PUT", "/api/db/t/_stream_load", column_separator=",", Transfer_Encoding="chunked")
        assert raw.receive() == b""


@pytest.mark.slow
def test_c4_bombs_are_bounded(base: str, started: Callable[..., LoadServer]) -> None:
    server = started(options=LoadOptions(durable=False, max_body_bytes=1 << 20))
    bomb = gzip.compress(b"1,a,1\n" * 2_000_000)
    with Raw(server) as raw:
        raw.head("PUT", "/api/db/t/_stream_load", column_separator=",", format="gzip", Content_Length=str(len(bomb)))
        raw.send(bomb)
        assert b"more than 1048576 bytes" in raw.receive(b"}")
    damaged = bytes(pa.Codec("lz4").compress(ROWS, asbytes=True))[:-3]
    for packed, name in ((damaged, "lz4"), (b"no gzip", "gzip"), (zlib.compress(ROWS)[:-2], "deflate")):
        with Raw(server) as raw:
            raw.head(
                "PUT", "/api/db/t/_stream_load", column_separator=",", format=name, Content_Length=str(len(packed))
            )
            raw.send(packed)
            assert b'"Status": "Fail"' in raw.receive(b"}")
    assert rows_of(base) == []


@pytest.mark.parametrize(
    "path", ["/api/../db/t/_stream_load", "/api/%2e%2e/t/_stream_load", "/api/db/.hoodie/_stream_load"]
)
def test_c4_paths_stay_below_the_base(started: Callable[..., LoadServer], path: str) -> None:
    with Raw(started()) as raw:
        raw.head("PUT", path, Content_Length="0")
        reply = raw.receive(b"}")
        assert b"Invalid" in reply or b"no such page" in reply


@pytest.mark.slow
def test_c4_noise_never_ends_the_server(base: str, started: Callable[..., LoadServer]) -> None:
    import random

    chance, server = random.Random(seed_of_run()), started(limits=HttpLimits(read_seconds=0.5, header_seconds=0.5))
    whole = b"PUT /api/db/t/_stream_load HTTP/1.1\r\nHost: x\r\ncolumn_separator: ,\r\nContent-Length: 6\r\n\r\n1,a,1\n"
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            place = chance.randrange(len(data))
            data[place : place + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
        with Raw(server) as raw:
            raw.send(bytes(data))
            raw.socket.shutdown(socket.SHUT_WR)
            raw.receive()
    with Raw(server) as raw:
        raw.head("GET", "/api/health")
        assert b'"status": "OK"' in raw.receive(b"}")


# --- who may -----------------------------------------------------------------------------------------------------------------


def test_tx1_other_addresses_need_users(base: str) -> None:
    with pytest.raises(InvalidInputError, match="reached by others"):
        serve(base, host="0.0.0.0", port=0)


@pytest.mark.slow
def test_tx5_users_and_passwords(base: str, started: Callable[..., LoadServer], tmp_path: Path) -> None:
    file = tmp_path / "users"
    lines = [hash_password("anna", "right"), hash_password("bob", "other", "hr.*")]
    file.write_text("# who\n" + "\n".join(lines) + "\n", "utf-8")
    assert "right" not in file.read_text("utf-8")
    server = started(users=load_users(file))

    def asked(user: str, password: str) -> bytes:
        with Raw(server) as raw:
            word = base64.b64encode(f"{user}:{password}".encode()).decode()
            how = {"Authorization": f"Basic {word}"} if user else {}
            raw.head("POST", "/api/transaction/begin", label="l", db="db", table="t", Content_Length="0", **how)
            return raw.receive(b"}")

    for user, password in (("", ""), ("anna", "wrong"), ("nobody", "right"), ("anna", "")):
        reply = asked(user, password)
        assert reply.startswith(b"HTTP/1.1 401")
        assert b'WWW-Authenticate: Basic realm=""' in reply
        assert b"Access denied" in reply
    assert b"Access denied" in asked("bob", "other")
    assert b'"OK"' in asked("anna", "right")
    assert b"LABEL_ALREADY_EXISTS" in asked("anna", "right")


def test_tx5_a_refused_user_is_told_before_the_body(
    base: str, started: Callable[..., LoadServer], tmp_path: Path
) -> None:
    file = tmp_path / "users"
    file.write_text(hash_password("anna", "right"), "utf-8")
    with Raw(started(users=load_users(file))) as raw:
        raw.head("PUT", LOAD, Expect="100-continue", Content_Length="1000000")
        reply = raw.receive()
        assert reply.startswith(b"HTTP/1.1 401")
        assert b"100 Continue" not in reply


@pytest.mark.parametrize("line", ["anna", "anna:right:*", "anna:scrypt$00$00:*"])
def test_a_file_of_users_that_is_none(tmp_path: Path, line: str) -> None:
    file = tmp_path / "users"
    file.write_text(line, "utf-8")
    with pytest.raises(InvalidInputError, match="line 1") as caught:
        load_users(file)
    assert "anna" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_tls(base: str, started: Callable[..., LoadServer], tmp_path: Path) -> None:
    made = [
        "-keyout",
        f"{tmp_path}/key.pem",
        "-out",
        f"{tmp_path}/cert.pem",
        "-days",
        "2",
        "-nodes",
        "-subj",
        "/CN=localhost",
    ]
    more = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", *made, *more], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    server = started(tls=context)
    assert server.url.startswith("https://")
    with Raw(server) as plain:
        plain.send("GET / HTTP/1.1\r\n\r\n")
        plain.receive()
    from lakefmt.client import StreamLoad

    trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    with StreamLoad(server.url, "db", "t", tls=trusting, retries=0) as load:
        load.load(ROWS, column_separator=",")
    assert rows_of(base) == [1, 2, 3, 4]


# --- a server that is killed ---------------------------------------------------------------------------------------------------


class Process:
    """`lakefmt serve` in a process of its own."""

    def __init__(self, base: str, port: int = 0) -> None:
        command = [sys.executable, "-m", "lakefmt", "serve", "--base-path", base, "--port", str(port), "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.slow
@needs_curl
def test_t4_kill_9_after_prepare(base: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(ROWS)
    load = ("-H", "column_separator:,", "-T", str(file))
    with Process(base) as first:
        guide(first.url, "begin", "l")
        guide(first.url, "load", "l", *load)
        assert guide(first.url, "prepare", "l")["Status"] == "OK"
        guide(first.url, "begin", "open")
        guide(first.url, "load", "open", *load)
        second = subprocess.run(
            [sys.executable, "-m", "lakefmt", "serve", "--base-path", base, "--port", "0"],
            capture_output=True,
            text=True,
        )
        assert second.returncode == 1
        assert "another server" in second.stderr
        first.kill()
    with Process(base) as again:
        assert curl(f"{again.url}/api/db/get_load_state?label=l")["state"] == "PREPARED"
        assert curl(f"{again.url}/api/db/get_load_state?label=open")["state"] == "ABORTED"
        assert guide(again.url, "commit", "l")["Status"] == "OK"
        again.process.send_signal(signal.SIGTERM)
        assert again.process.wait(20) == 0
    assert rows_of(base) == [1, 2, 3, 4]


def test_the_threads_of_a_server_end_with_it(base: str) -> None:
    import threading

    before = threading.active_count()
    server = serve(base, port=0, options=QUICK)
    server.stop()
    assert threading.active_count() <= before
    assert os.path.isdir(base)
