"""HTTP for a service of loads: who may load, a server on the standard library, and an ASGI application (effects).

The server speaks HTTP/1.1, with a thread for each connection and reads that block. A body is read when the service asks
for it. Only then a client that waits for ``100 Continue`` gets it; one that is refused by its headers gets the reply at
once, and its connection ends without its body. A slow server slows its clients down by itself: nothing is read ahead.

The application works on requests in threads; a body is asked for when the service wants it, which is also when servers such as uvicorn
and granian answer ``Expect: 100-continue``. Limits of connections and of slow senders are theirs.

Users have salted hashes of their passwords, and patterns of tables that they may load into.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import fnmatch
import hashlib
import hmac
import logging
import os
import re
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore, Condition, Event, Thread
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.loads.bodies import BodyBroken, Request, body_length
from lakefmt._core.loads.protocol import DENIED, Refusal, Reply
from lakefmt._core.loads.service import LoadService
from lakefmt.errors import InvalidInputError

__all__ = [
    "ANYBODY",
    "AsgiLoads",
    "HttpLimits",
    "LoadServer",
    "User",
    "Users",
    "hash_password",
    "is_loopback",
    "load_users",
    "sweep_until",
]

_log = logging.getLogger("lakefmt.loads.http")
_MAX_LINE: Final = 8_192
_MAX_HEADERS: Final = 100
#: Where all places are taken, a connection that has sent no whole request for this long is closed for a new one; a younger one
#: is closed only when no place becomes free while the new one waits.
_SLOW_SECONDS: Final = 1.0
_PLACE_SECONDS: Final = 0.02
#: A client that has sent nothing of its body for so long ends where all places are taken and another one needs one.
_SILENT_SECONDS: Final = 5.0
_LOOPBACK: Final = ("127.", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What clients may take.

    Attributes:
        connections: at a time; more wait.
        read_seconds: for which a client may send nothing.
        request_seconds: for a request with its body.
        header_seconds: for its headers.
        header_bytes: of all headers together.
    """

    connections: int = 256
    read_seconds: float = 30.0
    request_seconds: float = 3_600.0
    header_seconds: float = 20.0
    header_bytes: int = 65_536


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
        (True, False)
    """
    return host.startswith(_LOOPBACK[0]) or host in _LOOPBACK[1:]


class _TimedSocket:
    """What the handler reads from: a read ends when the client is silent for too long, or the whole request takes too long."""

    def __init__(self, connection: socket.socket, limits: HttpLimits) -> None:
        self._connection, self._limits = connection, limits
        self.deadline = float("inf")

    def readable(self) -> bool:
        return True

    def recv_into(self, buffer: memoryview) -> int:
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the request takes too long")
        self._connection.settimeout(min(self._limits.read_seconds, seconds))
        return self._connection.recv_into(buffer)


def _buffered(timed: _TimedSocket) -> Any:
    import io

    class Raw(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            return timed.recv_into(memoryview(buffer))

    return io.BufferedReader(Raw(), 1 << 16)


class _Body:
    """The bytes of a body, by its length or in chunks."""

    def __init__(self, handler: _Handler, length: int | None, *, waits: bool) -> None:
        self._handler, self._left, self._waits = handler, length, waits
        self._chunked = length is None
        self._in_chunk = 0
        self.ended = length == 0
        self.begun = False

    def read(self, size: int, /) -> bytes:
        if self.ended:
            return b""
        if not self.begun:
            self.begun = True
            if self._waits:
                self._handler.send_continue()
        try:
            with self._handler.server.waiting(self._handler.connection, for_body=True):
                return self._read_chunked(size) if self._chunked else self._read_plain(size)
        except (OSError, ValueError) as error:
            raise BodyBroken(f"the body ended: {error}") from None

    def _read_plain(self, size: int) -> bytes:
        assert self._left is not None  # noqa: S101  (else it has chunks)
        data: bytes = self._handler.rfile.read1(min(size, self._left, 1 << 20))
        if not data:
            raise BodyBroken(f"the connection ended {self._left} bytes before the body")
        self._left -= len(data)
        self.ended = self._left == 0
        return data

    def _read_chunked(self, size: int) -> bytes:
        rfile = self._handler.rfile
        if not self._in_chunk:
            line = rfile.readline(1_024)
            length_hex = line.split(b";")[0].strip()
            if (
                not line.endswith(b"\n")
                or not length_hex
                or len(length_hex) > 16
                or not set(length_hex) <= set(b"0123456789abcdefABCDEF")
            ):
                raise BodyBroken("the length of a chunk is no number")
            self._in_chunk = int(length_hex, 16)
            if not self._in_chunk:
                self._read_trailers()
                self.ended = True
                return b""
        data: bytes = rfile.read1(min(size, self._in_chunk, 1 << 20))
        if not data:
            raise BodyBroken("the connection ended inside a chunk")
        self._in_chunk -= len(data)
        if not self._in_chunk and rfile.readline(3) not in (b"\r\n", b"\n"):
            raise BodyBroken("a chunk is longer than it says")
        return data

    def _read_trailers(self) -> None:
        for _ in range(_MAX_HEADERS):
            line = self._handler.rfile.readline(_MAX_LINE)
            if line in (b"\r\n", b"\n"):
                return
            if not line.endswith(b"\n"):
                break
        raise BodyBroken("the body does not end")


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: _Server
    protocol_version = "HTTP/1.1"
    rfile: Any

    def setup(self) -> None:
        connection = self.request
        if self.server.tls is not None:
            connection.settimeout(self.server.limits.header_seconds)
            self.request = connection = self.server.tls.wrap_socket(connection, server_side=True)
        self.connection = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        self._timed = _TimedSocket(connection, self.server.limits)
        self.rfile = _buffered(self._timed)
        self.wfile = connection.makefile("wb", 0)

    def finish(self) -> None:
        # The server closes the socket that it accepted, which TLS has taken over.
        for opened in (self.wfile, self.rfile, *((self.connection,) if self.server.tls is not None else ())):
            with suppress(OSError):
                opened.close()

    def version_string(self) -> str:
        return "lakefmt"

    def log_message(self, format: str, *args: object) -> None:
        _log.debug(format, *args)

    def handle_one_request(self) -> None:
        self._timed.deadline = time.monotonic() + self.server.limits.header_seconds
        try:
            with self.server.waiting(self.connection):
                self.raw_requestline = self.rfile.readline(_MAX_LINE + 1)
                is_request = (
                    len(self.raw_requestline) <= _MAX_LINE and bool(self.raw_requestline) and self.parse_request()
                )
            if len(self.raw_requestline) > _MAX_LINE:
                self.requestline = self.request_version = self.command = ""
                self.send_error(414)
                self.close_connection = True
                return
            if not is_request:
                self.close_connection = True
                return
            self._timed.deadline = time.monotonic() + self.server.limits.request_seconds
            self._answer()
        except (TimeoutError, ConnectionError, ssl.SSLError, BodyBroken) as error:
            _log.info("a connection ended: %s", error)
            self.close_connection = True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no request, by JSON as every other reply: clients read nothing else."""
        status = HTTPStatus(code)
        self._send(Reply({"Status": "FAILED", "Message": message or status.phrase}, code, close=True))

    def handle_expect_100(self) -> bool:
        return True  # the body says when it is wanted

    def send_continue(self) -> None:
        """Let the client send its body."""
        self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # --- a request ---------------------------------------------------------------------------------------------------------

    def _answer(self) -> None:
        try:
            header_pairs = [(name.lower(), value) for name, value in self.headers.items()]
            is_old = self.request_version == "HTTP/1.0"
            length = body_length(header_pairs, self.server.limits.header_bytes, is_old=is_old)
            parts = urlsplit(self.path)
            is_told = length != 0 or any(name == "content-length" for name, _ in header_pairs)
            if not is_told and self.command == "PUT" and parts.path.endswith(("/load", "/_stream_load")):
                raise Refusal("the length of the body is not told")  # its rows would be taken for the next request
            query = dict(parse_qsl(parts.query, max_num_fields=50))
        except (Refusal, ValueError) as error:
            self._send(Reply({"Status": "FAILED", "Message": str(error)}, 400, close=True))
            return
        user = self._user()
        if user is None:
            self._send(replace(DENIED, close=length != 0))
            return
        waits = self.headers.get("Expect", "").lower() == "100-continue" and self.request_version != "HTTP/1.0"
        body_of = _Body(self, length, waits=waits)
        request = Request(
            self.command,
            unquote(parts.path),
            query,
            self._headers(),
            body_of,
            user,
            length,
            f"{self.server.scheme}://{self._host()}",
        )
        with self.server.working():
            reply = self.server.service.handle(request)
        # What the client has not been asked for it may send or not: the connection cannot be used again.
        unread = not body_of.ended
        self._send(Reply(reply.body, reply.status, reply.headers, unread))

    do_GET = do_POST = do_PUT = do_HEAD = _answer  # noqa: N815  (names of the standard library)

    def _host(self) -> str:
        host = self.headers.get("Host", "")
        plain = len(host) < 260 and all(sign.isalnum() or sign in ".-:[]_" for sign in host)
        return host if host and plain else "{}:{}".format(*self.server.server_address[:2])

    def _headers(self) -> Mapping[str, str]:
        """Return the headers by names in lower case; bytes that are no ASCII are UTF-8."""
        return {
            name.lower(): value.encode("latin-1", "replace").decode("utf-8", "surrogateescape").strip()
            for name, value in self.headers.items()
        }

    def _user(self) -> User | None:
        users = self.server.users
        return ANYBODY if users is None else users.authenticate(self.headers.get("Authorization", ""))

    def _send(self, reply: Reply) -> None:
        content_type, data = reply.content
        self.close_connection = self.close_connection or reply.close
        self.send_response(reply.status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        if reply.close:
            self._linger()

    def _linger(self) -> None:
        """Let the client read the reply before the connection is reset by bytes that it still sends."""
        with suppress(OSError, ValueError):
            self.connection.shutdown(socket.SHUT_WR)
            self._timed.deadline = time.monotonic() + 2.0
            num_bytes = 4 << 20
            while num_bytes > 0 and (data := self.rfile.read1(1 << 16)):
                num_bytes -= len(data)


class _Server(ThreadingHTTPServer):
    """The listening socket and its threads."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(
        self,
        address: tuple[str, int],
        service: LoadService,
        users: Users | None,
        tls: ssl.SSLContext | None,
        limits: HttpLimits,
    ) -> None:
        self.service, self.users, self.tls, self.limits = service, users, tls, limits
        self.scheme = "http" if tls is None else "https"
        self._places = BoundedSemaphore(limits.connections)
        #: Requests that are worked on.
        self.requests = 0
        #: Connections without a request, those that wait longest first.
        self._waiting: dict[int, tuple[socket.socket, float]] = {}
        #: Connections that send a body, since when they have sent nothing of it.
        self._silent: dict[int, tuple[socket.socket, float]] = {}
        self.changed = Condition()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        try:
            super().__init__(address, _Handler)
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}: {address[0]}:{address[1]}; port 0 is a free one") from error

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count a request while it is worked on."""
        with self.changed:
            self.requests += 1
        try:
            yield
        finally:
            with self.changed:
                self.requests -= 1
                self.changed.notify_all()

    @contextmanager
    def waiting(self, connection: socket.socket, *, for_body: bool = False) -> Iterator[None]:
        """Note a connection on which no whole request, or nothing of its body, has come: it may be ended for others."""
        key, noted = id(connection), self._silent if for_body else self._waiting
        with self.changed:
            noted[key] = connection, time.monotonic()
        try:
            yield
        finally:
            with self.changed:
                noted.pop(key, None)

    def process_request(self, request: Any, client_address: object) -> None:
        seconds = 0.0
        while not self._places.acquire(timeout=seconds):
            # One that is this slow goes at once: those that wait to be accepted are as many as one likes to open.
            if not self._end_longest(self._waiting, 0.0 if seconds else _SLOW_SECONDS):
                self._end_longest(self._silent, _SILENT_SECONDS)
            seconds = _PLACE_SECONDS
        super().process_request(request, client_address)

    def _end_longest(self, noted: dict[int, tuple[socket.socket, float]], seconds: float) -> bool:
        """End the connection that has waited longest, if that is so long; return whether one was."""
        with self.changed:
            key, (connection, since) = next(iter(noted.items()), (0, (None, 0.0)))
            if connection is None or since > time.monotonic() - seconds:
                return False
            del noted[key]
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        return True

    def process_request_thread(self, request: Any, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        _log.info("a connection ended with an error", exc_info=True)


def sweep_until(service: LoadService, ended: Event) -> None:
    """End transactions that ran out of time, each second until an event is set."""
    while not ended.wait(1.0):
        try:
            service.sweep()
        except Exception as error:  # noqa: BLE001  (the next one renews the lease)
            _log.warning("the sweep failed: %s", error)


class LoadServer:
    """A server of loads.

    Args:
        service: what it answers with.
        host: address; other than the loopback address it needs users.
        port: 0: a free one.
        users: who may load; None: everybody who reaches it.
        tls: certificate and key; None: plain HTTP.
        limits: what clients may take.

    Raises:
        InvalidInputError: others than this machine could load without a password.
        OSError: the port is taken.
    """

    def __init__(
        self,
        service: LoadService,
        host: str = "127.0.0.1",
        port: int = 8030,
        *,
        users: Users | None = None,
        tls: ssl.SSLContext | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        if users is None and not is_loopback(host):
            raise InvalidInputError(f"{host} is reached by others: give a file of users")
        self.service = service
        self._server = _Server((host, port), service, users, tls, limits or HttpLimits())
        self._ended = Event()
        self._threads: list[Thread] = []

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        """Where it is."""
        host, port = self.address
        return f"{self._server.scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def start(self) -> None:
        """Take the lease, go on with what an earlier server left, and answer in threads.

        Raises:
            StateError: another server has the lease.
        """
        self.service.start()
        serving = Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="lakefmt-loads", daemon=True
        )
        sweeping = Thread(target=sweep_until, args=(self.service, self._ended), name="lakefmt-loads-sweep", daemon=True)
        self._threads = [serving, sweeping]
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float = 60.0) -> None:
        """Begin nothing more, let running requests end, and answer nothing more; what is prepared stays.

        Args:
            seconds: for which running requests are waited for.
        """
        self.service.end(seconds)
        self._ended.set()
        if self._threads:
            self._server.shutdown()
            with self._server.changed:
                self._server.changed.wait_for(lambda: not self._server.requests, seconds)
        self._server.server_close()
        for thread in self._threads:
            thread.join(5)
        self.service.stop()


# ----------------------------------------------------------------------------------------------------------------- ASGI


Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_NOBODY_ELSE: Final = "without users only this machine may load: give a file of users"


class _AsgiBody:
    """The bytes of a body, which a thread reads while the server's loop gets them."""

    def __init__(self, receive: Receive, loop: asyncio.AbstractEventLoop, seconds: float, *, empty: bool) -> None:
        self._receive, self._loop, self._seconds = receive, loop, seconds
        self._left = b""
        self.ended = empty

    def read(self, size: int, /) -> bytes:
        while not self._left and not self.ended:
            future = asyncio.run_coroutine_threadsafe(self._next(), self._loop)
            try:
                message = future.result(self._seconds)
            except TimeoutError:
                future.cancel()
                raise BodyBroken("the client sends nothing") from None
            if message["type"] != "http.request":
                raise BodyBroken("the connection ended before the body")
            self._left = message.get("body", b"")
            self.ended = not message.get("more_body", False)
        data, self._left = self._left[:size], self._left[size:]
        return data

    async def _next(self) -> Message:
        return await self._receive()


class AsgiLoads:
    """An ASGI 3 application. The lifespan events of the server start and stop the service.

    Args:
        service: what it answers with.
        users: who may load; None: everybody on this machine.
        limits: threads (``connections``), silence (``read_seconds``) and headers.
    """

    def __init__(self, service: LoadService, *, users: Users | None = None, limits: HttpLimits | None = None) -> None:
        self._service, self._users, self._limits = service, users, limits or HttpLimits()
        self._threads = ThreadPoolExecutor(self._limits.connections, "lakefmt-loads")
        self._ended = Event()

    async def __call__(self, scope: Mapping[str, object], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            loop = asyncio.get_running_loop()
            try:
                reply = await loop.run_in_executor(self._threads, self._answer, scope, receive, loop)
            except BodyBroken as error:
                _log.info("a connection ended: %s", error)
                reply = Reply({"Status": "FAILED", "Message": str(error)}, 400, close=True)
            await self._send(send, reply, is_head=scope["method"] == "HEAD")

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await asyncio.to_thread(self._service.start)
                except Exception as error:  # noqa: BLE001  (the server says why, and ends)
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                Thread(
                    target=sweep_until, args=(self._service, self._ended), name="lakefmt-loads-sweep", daemon=True
                ).start()
                await send({"type": "lifespan.startup.complete"})
            else:
                self._ended.set()
                await asyncio.to_thread(self._service.stop)
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _answer(self, scope: Mapping[str, Any], receive: Receive, loop: asyncio.AbstractEventLoop) -> Reply:
        header_pairs = [
            (name.decode("latin-1"), value.decode("utf-8", "surrogateescape").strip())
            for name, value in scope["headers"]
        ]
        try:
            is_old = scope.get("http_version") == "1.0"
            length = body_length(header_pairs, self._limits.header_bytes, is_old=is_old)
            query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), max_num_fields=50))
        except (Refusal, ValueError) as error:
            return Reply({"Status": "FAILED", "Message": str(error)}, 400, close=True)
        headers = dict(header_pairs)
        host, port = scope.get("server") or ("", None)
        if self._users is None and not is_loopback(str(host)):
            return Reply({"Status": "FAILED", "Message": _NOBODY_ELSE}, 403, close=True)
        user = ANYBODY if self._users is None else self._users.authenticate(headers.get("authorization", ""))
        if user is None:
            return replace(DENIED, close=length != 0)
        body = _AsgiBody(receive, loop, self._limits.read_seconds, empty=length == 0)
        address = f"{scope.get('scheme', 'http')}://{host}:{port}"
        request = Request(scope["method"], scope["path"], query, headers, body, user, length, address)
        reply = self._service.handle(request)
        return replace(reply, close=not body.ended)

    async def _send(self, send: Send, reply: Reply, *, is_head: bool) -> None:
        content_type, data = reply.content
        headers = {"content-type": content_type, "content-length": str(len(data)), **reply.headers}
        if reply.close:
            headers["connection"] = "close"  # what the client still sends is nobody's
        pairs = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": pairs})
        await send({"type": "http.response.body", "body": b"" if is_head else data})


#: Costs of scrypt: 16 MiB and some 40 ms for each password.
_N, _R, _P = 1 << 14, 8, 1
_MAX_FILE_BYTES: Final = 1 << 20
_MAX_PASSWORD: Final = 1_024
_LINE = re.compile(r"([^:\s]{1,128}):scrypt\$([0-9a-f]{32})\$([0-9a-f]{64}):(.*)")


@dataclass(frozen=True, slots=True)
class User:
    """A user, and the tables that may be loaded into: patterns of ``database.table``."""

    name: str
    patterns: tuple[str, ...] = ("*",)

    def may_load(self, database: str, table: str) -> bool:
        """Return whether the user may load into a table.

        Example:
            >>> User("u", ("sales.*",)).may_load("sales", "orders"), User("u", ("sales.*",)).may_load("hr", "pay")
            (True, False)
        """
        return any(fnmatch.fnmatchcase(f"{database}.{table}", pattern) for pattern in self.patterns)


#: Who asks a server without users.
ANYBODY: Final = User("")


def hash_password(name: str, password: str, patterns: str = "*") -> str:
    """Return the line of a file of users: the name, a salted hash of the password, and the patterns of tables.

    Raises:
        InvalidInputError: the name has a colon or blanks, or the password is too long.

    Example:
        >>> hash_password("anna", "secret", "sales.*").startswith("anna:scrypt$")
        True
    """
    salt = os.urandom(16)
    line = f"{name}:scrypt${salt.hex()}${_hashed(password.encode(), salt).hex()}:{patterns}"
    if not _LINE.fullmatch(line) or len(password.encode()) > _MAX_PASSWORD:
        raise InvalidInputError(
            "a user's name has 1 to 128 characters without colons and blanks, the password at most 1024"
        )
    return line


def _hashed(password: bytes, salt: bytes) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=_N, r=_R, p=_P, maxmem=64 << 20, dklen=32)


def load_users(path: str | os.PathLike[str]) -> Users:
    """Return the users of a file, a line for each as :func:`hash_password` makes it; lines with ``#`` are comments.

    Raises:
        InvalidInputError: a line is no user; the message has its number and nothing of it.
    """
    with Path(path).open("rb") as opened:
        data = opened.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise InvalidInputError(f"a file of users has at most {_MAX_FILE_BYTES} bytes")
    users = dict[str, tuple[User, bytes, bytes]]()
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parsed = _LINE.fullmatch(line.strip())
        if parsed is None or parsed[1] in users:
            raise InvalidInputError(f"line {number} of the file of users is none, or the second of one user")
        patterns = tuple(part.strip() for part in parsed[4].split(",") if part.strip())
        users[parsed[1]] = (User(parsed[1], patterns), bytes.fromhex(parsed[2]), bytes.fromhex(parsed[3]))
    return Users(users)


class Users:
    """Users by name.

    Args:
        users: name → user, salt and hash.
    """

    def __init__(self, users: Mapping[str, tuple[User, bytes, bytes]]) -> None:
        self._users = dict(users)
        #: A password that was right once is known again by a hash under a key that this process alone has.
        self._key = os.urandom(32)
        self._known: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._users)

    def authenticate(self, header: str) -> User | None:
        """Return the user of a header ``Authorization``; None: it is missing or wrong.

        An unknown user takes as long as a wrong password.
        """
        scheme, _, credentials = header.partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            name, colon, password = base64.b64decode(credentials.strip(), validate=True).decode("utf-8").partition(":")
        except (binascii.Error, ValueError):
            return None
        secret = password.encode()
        if not colon or len(secret) > _MAX_PASSWORD:
            return None
        user, salt, stored = self._users.get(name, (None, b"\x00" * 16, b"\x00" * 32))
        quick = hmac.digest(self._key, name.encode() + b"\x00" + secret, "sha256")
        if user is not None and hmac.compare_digest(self._known.get(name, b""), quick):
            return user
        right = hmac.compare_digest(_hashed(secret, salt), stored)
        if user is None or not right:
            return None
        self._known[name] = quick
        return user
