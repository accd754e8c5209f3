"""A client of HTTP two-phase loads (docs/http-loads.md): of ``lakefmt serve``, and of StarRocks.

It knows what may be repeated when a reply is lost.
"""

from __future__ import annotations

import base64
import http.client
import json
import secrets
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Final
from urllib.parse import quote, urlsplit

from lakefmt._core.arguments import shown
from lakefmt._core.data_classes import dataclass
from lakefmt._core.loads.protocol import check_label
from lakefmt.errors import InvalidInputError, LoadFailed, StateError

__all__ = ["LoadReply", "StreamLoad"]

_CONTINUE_SECONDS: Final = 3.0
_MAX_REPLY: Final = 16 << 20
_MOST_REDIRECTS: Final = 3
_BLOCK: Final = 1 << 20
_GOOD: Final = ("OK", "Success", "Publish Timeout")

Data = bytes | IO[bytes] | Iterable[bytes]


@dataclass(frozen=True, slots=True)
class LoadReply:
    """What a server said.

    Attributes:
        status: such as ``"OK"`` or ``"FAILED"``.
        message: why.
        body: all of it.
    """

    status: str
    message: str
    body: Mapping[str, Any]

    @property
    def rows(self) -> int:
        """How many rows were loaded, where the server says it."""
        return int(self.body.get("NumberLoadedRows", 0))


class _Lost(Exception):
    """No reply came: the server may have executed the request or not."""


class StreamLoad:
    r"""One transaction: several loads that become visible at once.

    As a context manager it begins, and at the end prepares and commits; an exception rolls back.

    Args:
        url: of the server, such as ``"http://127.0.0.1:8030"``.
        database: of the table.
        table: it.
        label: of the transaction, unique in its database: a load that is repeated under it is done once. None: a new one.
        user: None: no user is sent.
        password: of the user.
        timeout: seconds until the transaction has to be prepared; None: what the server says.
        retries: how often what may be repeated is.
        retry_seconds: between attempts.
        connect_seconds: for which a server may say nothing.
        tls: for ``https`` addresses; None: the system's certificates.

    Raises:
        InvalidInputError: the address or the label is none.

    Example:
        >>> import lakefmt, pyarrow as pa
        >>> from lakefmt.server import serve
        >>> _ = lakefmt.create_table("memory://doc-load/shop/items", schema=pa.schema([("id", pa.int64())]), record_key="id")
        >>> server = serve("memory://doc-load", port=0)
        >>> with StreamLoad(server.url, "shop", "items", label="morning-1") as load:
        ...     load.load(b"1\n2\n").rows, load.load(b"3\n").rows
        (2, 1)
        >>> load.state(), lakefmt.open_table("memory://doc-load/shop/items").read().num_rows
        ('VISIBLE', 3)
        >>> server.stop()
    """

    def __init__(
        self,
        url: str,
        database: str,
        table: str,
        *,
        label: str | None = None,
        user: str | None = None,
        password: str = "",
        timeout: int | None = None,
        retries: int = 3,
        retry_seconds: float = 1.0,
        connect_seconds: float = 60.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.password is not None:
            raise InvalidInputError(
                "the address of a server is http://host:port or https://host:port, without a password"
            )
        self.label = check_label(label if label is not None else f"lakefmt-{secrets.token_hex(16)}")
        self._url = f"{parts.scheme}://{parts.netloc}"
        self._database, self._table = database, table
        self._timeout, self._retries, self._pause, self._seconds = timeout, retries, retry_seconds, connect_seconds
        self._tls = tls
        self._authorization = ""
        if user is not None:
            self._authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self._request_id = secrets.token_hex(8)
        self._loads = 0
        #: The server repeats the reply to a load that it has taken.
        self._repeats = False

    def __enter__(self) -> StreamLoad:
        self.begin()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error_type is None:
            self.prepare()
            self.commit()
            return
        with suppress(LoadFailed):  # the first error is told
            self.rollback()

    # --- operations --------------------------------------------------------------------------------------------------------

    def begin(self) -> LoadReply:
        """Begin.

        Raises:
            LoadFailed: the label is in use, or the server refuses.
        """
        headers = {"request_id": self._request_id}
        if self._timeout is not None:
            headers["timeout"] = str(self._timeout)

        def after_loss() -> LoadReply | None:
            # A begin that arrived has a transaction, and nothing was loaded into it.
            return LoadReply("OK", "", {}) if self.state() == "PREPARE" else None

        return self._checked("begin", headers, after_loss)

    def load(self, data: Data, **headers: str | int | bool) -> LoadReply:
        """Add rows.

        Args:
            data: bytes, an open file, or blocks of bytes, which are sent in chunks and not repeated.
            **headers: of the format, such as ``column_separator=","`` or ``format="json"``.

        Raises:
            LoadFailed: the server refuses, or did not answer and may have the rows: roll back and begin anew.
        """
        load_headers = {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in headers.items()
        }
        load_headers["load_seq"] = str(self._loads)
        begin = data.tell() if hasattr(data, "tell") and not isinstance(data, bytes) else 0
        reply = LoadReply("", "", {})
        for attempt in range(self._retries + 1):
            try:
                reply = self._request("PUT", "/api/transaction/load", {**self._named(), **load_headers}, data)
                again = reply.status in ("INTERNAL_ERROR", "TXN_IN_PROCESSING", "Fail")
            except _Lost as error:
                if not self._repeats or attempt == self._retries:
                    raise LoadFailed(
                        f"the load may be done or not: roll back and begin anew ({error})", transient=True
                    ) from None
                reply, again = LoadReply("", str(error), {}), True
            if reply.status in _GOOD:
                self._loads += 1
                return reply
            if not again or attempt == self._retries or not _rewound(data, begin):
                break
            time.sleep(self._pause)
        raise LoadFailed(f"the load failed: {_reason(reply)}", status=reply.status, body=reply.body)

    def prepare(self, prepared_timeout: int | None = None) -> LoadReply:
        """Make the rows durable.

        Args:
            prepared_timeout: seconds until the commit; None: what the server says.

        Raises:
            LoadFailed: the server refuses.
        """
        headers = {} if prepared_timeout is None else {"prepared_timeout": str(prepared_timeout)}

        def after_loss() -> LoadReply | None:
            return LoadReply("OK", "", {}) if self.state() == "PREPARED" else None

        return self._checked("prepare", headers, after_loss)

    def commit(self) -> LoadReply:
        """Make the rows visible.

        Raises:
            LoadFailed: the server refuses.
        """

        def after_loss() -> LoadReply | None:
            return LoadReply("OK", "", {}) if self.state() in ("COMMITTED", "VISIBLE") else None

        return self._checked("commit", {}, after_loss)

    def rollback(self) -> LoadReply:
        """Drop the transaction.

        Raises:
            LoadFailed: it is committed, or the server does not know it.
        """

        def after_loss() -> LoadReply | None:
            return LoadReply("OK", "", {}) if self.state() in ("ABORTED", "UNKNOWN") else None

        return self._checked("rollback", {}, after_loss)

    def state(self) -> str:
        """Return the state of the label: UNKNOWN, PREPARE, PREPARED, COMMITTED, VISIBLE or ABORTED.

        Raises:
            LoadFailed: the server does not say.
        """
        path = f"/api/{quote(self._database)}/get_load_state?label={quote(self.label)}"
        for attempt in range(self._retries + 1):
            try:
                reply = self._request("GET", path, {}, None)
                return str(reply.body.get("state", "UNKNOWN"))
            except _Lost as error:
                if attempt == self._retries:
                    raise LoadFailed(f"the server does not answer: {error}", transient=True) from None
                time.sleep(self._pause)
        raise StateError("retries are fewer than none")

    # --- requests ----------------------------------------------------------------------------------------------------------

    def _named(self) -> dict[str, str]:
        return {"label": self.label, "db": self._database, "table": self._table}

    def _checked(
        self, operation: str, headers: Mapping[str, str], after_loss: Callable[[], LoadReply | None]
    ) -> LoadReply:
        """Send a request until it is answered; a request may be sent twice."""
        reply = LoadReply("", "", {})
        for attempt in range(self._retries + 1):
            try:
                reply = self._request("POST", f"/api/transaction/{operation}", {**self._named(), **headers}, None)
            except _Lost as error:
                reply = after_loss() or LoadReply("INTERNAL_ERROR", str(error), {})
            if reply.status in _GOOD:
                return reply
            if reply.status not in ("INTERNAL_ERROR", "TXN_IN_PROCESSING"):
                break
            if attempt < self._retries:
                time.sleep(self._pause)
        raise LoadFailed(
            f"{operation} failed: {_reason(reply)}",
            status=reply.status,
            body=reply.body,
            transient=reply.status in ("INTERNAL_ERROR", "TXN_IN_PROCESSING"),
        )

    def _request(self, method: str, path: str, headers: Mapping[str, str], data: Data | None) -> LoadReply:
        url = self._url
        for _ in range(_MOST_REDIRECTS + 1):
            try:
                answer = self._send(url, method, path, headers, data)
            except (OSError, http.client.HTTPException) as error:
                raise _Lost(f"{type(error).__name__}: {error}") from None
            if isinstance(answer, LoadReply):
                return answer
            # The front end of StarRocks sends its clients to a node; the body was not read yet.
            parts = urlsplit(answer)
            if parts.scheme not in ("http", "https") or (url.startswith("https") and parts.scheme == "http"):
                break
            url, path = (
                f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}",
                parts.path + (f"?{parts.query}" if parts.query else ""),
            )
        raise LoadFailed("the server sends its client from one address to the next")

    def _send(self, url: str, method: str, path: str, headers: Mapping[str, str], data: Data | None) -> LoadReply | str:
        """Return the reply, or where the client is sent."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            context = self._tls or ssl.create_default_context()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, parts.port, timeout=self._seconds, context=context
            )
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=self._seconds)
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value.encode("utf-8"))
            if self._authorization:
                connection.putheader("Authorization", self._authorization)
            self._send_body(connection, data)
            response = connection.getresponse()
            if response.status == 307:
                return response.headers.get("Location", "")
            self._repeats = self._repeats or response.headers.get("Server", "").startswith("lakefmt")
            return _reply_of(response.status, response.read(_MAX_REPLY))
        finally:
            connection.close()

    def _send_body(self, connection: http.client.HTTPConnection, data: Data | None) -> None:
        """Send the rest of the headers, and the body once the server wants it."""
        if data is None:
            connection.putheader("Content-Length", "0")
            connection.endheaders()
            return
        size = _size_of(data)
        connection.putheader("Expect", "100-continue")
        if size is None:
            connection.putheader("Transfer-Encoding", "chunked")
        else:
            connection.putheader("Content-Length", str(size))
        connection.endheaders()
        if not _wants_body(connection.sock):
            return
        try:
            for block in _blocks(data):
                connection.send(b"%x\r\n%s\r\n" % (len(block), block) if size is None else block)
            if size is None:
                connection.send(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server has replied before it had everything


def _reply_of(status: int, data: bytes) -> LoadReply:
    try:
        body = json.loads(data)
    except ValueError:
        body = {}
    body = body if isinstance(body, dict) else {}
    if status == 401:
        return LoadReply("FAILED", "Access denied: the user or the password is wrong", body)
    name = body.get("Status", body.get("status"))
    if status >= 500 or name is None:
        return LoadReply("INTERNAL_ERROR", f"HTTP {status}: {shown(data[:200].decode('utf-8', 'replace'))}", body)
    return LoadReply(str(name), str(body.get("Message", body.get("msg", ""))), body)


def _wants_body(sock: socket.socket) -> bool:
    """Wait until the server wants the body, has refused it, or says nothing."""
    if isinstance(sock, ssl.SSLSocket):
        return True  # its bytes cannot be looked at without being taken
    # `select` fails in a process with more than a thousand open files.
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        if not selector.select(_CONTINUE_SECONDS):
            return True
    return sock.recv(12, socket.MSG_PEEK)[9:12] in (b"", b"1", b"10", b"100")


def _reason(reply: LoadReply) -> str:
    """Return what a reply says of its failure, with the address that lists the bad rows."""
    bad_rows = reply.body.get("ErrorURL")
    return f"{reply.message}; their reasons are at {bad_rows}" if bad_rows else reply.message


def _size_of(data: Data) -> int | None:
    if isinstance(data, bytes):
        return len(data)
    if hasattr(data, "seek") and hasattr(data, "tell"):
        begin = data.tell()
        end = data.seek(0, 2)
        data.seek(begin)
        return int(end - begin)
    return None


def _rewound(data: Data, begin: int) -> bool:
    """Return whether data can be sent again, from where it began."""
    if isinstance(data, bytes):
        return True
    if hasattr(data, "seek"):
        data.seek(begin)
        return True
    return False


def _blocks(data: Data) -> Iterable[bytes]:
    if isinstance(data, bytes):
        yield data
    elif hasattr(data, "read"):
        while block := data.read(_BLOCK):
            yield block
    else:
        yield from (block for block in data if block)
