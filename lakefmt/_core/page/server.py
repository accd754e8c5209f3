"""The door of the page: an HTTP server of the standard library that answers who has the token, on this machine unless told otherwise.

A request is refused unless its Host is one of the page's names (a name that another site lets point here is none), its Origin, when
it has one, is the page itself, and it has the token: in the address of the first request, then in a cookie, or as a bearer's token.
Answers carry a Content-Security-Policy without inline scripts and styles. Nothing is executed but what :mod:`actions` has
planned, and only when the page was started so.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from lakefmt._core.data_classes import dataclass
from lakefmt._core.page.html import STATIC, page_context, render, static_file, view_names
from lakefmt._core.page.routes import ROUTES, Parameters, Route, given_parameters, openapi_facts, table_address
from lakefmt._core.page.services import PageActions
from lakefmt._core.page.tables import PageTable, PageTables
from lakefmt.errors import (
    InvalidInputError,
    LakefmtError,
    NotFoundError,
    StorageError,
    TableNotFound,
)

__all__ = ["LOOPBACK", "PageAnswer", "PageServer"]

_log = logging.getLogger("lakefmt.page")

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_LEAST_TOKEN: Final = 16
_MOST_BODY: Final = 64 << 10
_MOST_PATH: Final = 64 << 10
#: Requests at a time, and browsers that are told of new commits; more are asked to come again.
_MOST_REQUESTS: Final = 64
_MOST_LISTENERS: Final = 16
_SOCKET_SECONDS: Final = 30.0
#: How often a timeline is looked at for those who listen.
_LOOK_SECONDS: Final = 2.0
#: How often the server looks whether it is to end.
_END_SECONDS: Final = 0.05

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_HTML: Final = "text/html; charset=utf-8"
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """The answer to a request."""

    status: int
    body: bytes
    type: str = _HTML
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _PageRequest:
    """A request: its method, path and query as they came, and headers in small letters."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes = b""


class _Refused(Exception):
    """A request that is not answered; the message is for whoever sent it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class PageServer:
    """Serves the page of some tables.

    Example:
        >>> with PageServer(PageTables(["memory://doc-page"])) as page:
        ...     page.url.startswith("http://127.0.0.1:")
        True
    """

    def __init__(
        self,
        tables: PageTables,
        *,
        host: str = LOOPBACK[0],
        port: int = 0,
        token: str | None = None,
        names: Sequence[str] = (),
        actions: PageActions | None = None,
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        """Take the port; :meth:`start` answers.

        Args:
            tables: what may be asked for.
            host: address to listen at.
            port: 0: any free one.
            token: who has it may ask; None: a new one, which only this machine can be asked with.
            names: host names under which the page is reached beside `host`.
            actions: what may be run; None: the page only reads.
            look_seconds: how often a timeline is looked at for those who listen.

        Raises:
            InvalidInputError: the address is not of this machine and no token was given, the token is too short, or the port
                cannot be had.
        """
        if host not in LOOPBACK and token is None:
            raise InvalidInputError(f"a page at {host} can be asked by other machines: give a token of your own")
        if token is not None and (len(token) < _LEAST_TOKEN or not re.fullmatch(r"[\x21-\x7e]+", token)):
            raise InvalidInputError(f"a token has at least {_LEAST_TOKEN} characters, all of them visible ASCII")
        self.tables = tables
        self.actions = actions
        self.token = secrets.token_urlsafe(24) if token is None else token
        self.look_seconds = look_seconds
        self.ending = threading.Event()
        self.listeners = threading.BoundedSemaphore(_MOST_LISTENERS)
        try:
            self._server = _Server((host, port), self)
        except (OSError, OverflowError, UnicodeError) as error:
            raise InvalidInputError(f"the page cannot be served at {host}, port {port}: {error}") from None
        self.port = int(self._server.server_address[1])
        address = f"[{host}]" if ":" in host else host
        self._origin = f"http://{address}:{self.port}"
        known = {*names, host, *(("127.0.0.1", "localhost", "[::1]") if host in LOOPBACK else ())}
        self.hosts = frozenset(
            f"[{name}]:{self.port}" if ":" in name and not name.startswith("[") else f"{name}:{self.port}"
            for name in known
        ) | {name for name in names if ":" in name}
        self.cookie = f"lakefmt_ui_{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_END_SECONDS,), name="lakefmt-page", daemon=True
        )

    @property
    def url(self) -> str:
        """The address to open, with the token."""
        return f"{self._origin}/?token={self.token}"

    @property
    def origin(self) -> str:
        """The address without the token."""
        return self._origin

    def start(self) -> None:
        """Answer requests, in threads."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering requests."""
        self.ending.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> PageServer:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # --- who may ask ------------------------------------------------------------------------------------------

    def check_sender(self, request: _PageRequest) -> None:
        """Refuse a request that came by another name or from another page.

        Raises:
            _Refused: it did.
        """
        if request.headers.get("host", "").casefold() not in self.hosts:
            raise _Refused(421, "this page is not served under that name")
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.casefold() not in self.hosts:
            raise _Refused(403, "requests of other pages are refused")
        is_visit = request.method in ("GET", "HEAD") and request.headers.get("sec-fetch-mode") == "navigate"
        if request.headers.get("sec-fetch-site") == "cross-site" and not is_visit:
            raise _Refused(403, "requests of other pages are refused")
        if request.method == "POST" and origin is None:
            raise _Refused(403, "a request that changes something names its origin")

    def token_of(self, request: _PageRequest) -> str:
        """Return the token that a request has: of its cookie or its Authorization."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.casefold() == "bearer":
            return bearer.strip()
        try:
            cookies = SimpleCookie(request.headers.get("cookie", "")[:8192])
        except CookieError:
            return ""
        return cookies[self.cookie].value if self.cookie in cookies else ""

    def is_token(self, token: str) -> bool:
        """Return whether it is the token, in a time that does not tell how much of it is right."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())

    # --- what is answered -------------------------------------------------------------------------------------

    def answer(self, request: _PageRequest) -> PageAnswer:
        """Return the answer to a request; it never raises."""
        is_program = request.path.startswith("/api/v1")
        try:
            self.check_sender(request)
            entered = self._entered(request)
            return self._answer(request) if entered is None else entered
        except _Refused as refused:
            return _problem(refused.status, str(refused), is_program=is_program)
        except LakefmtError as error:
            return _problem(_status_of(error), self.tables.redact(str(error)), is_program=is_program)
        except Exception as error:  # a defect must not tell more than its kind  # noqa: BLE001
            _log.exception("the page could not answer %s", request.path[:200])
            message = f"an error of the page itself ({type(error).__name__}); its log has more"
            return _problem(500, message, is_program=is_program)

    def _entered(self, request: _PageRequest) -> PageAnswer | None:
        """Check the token; move a token in the address into a cookie, and redirect to the address without it."""
        if request.path.startswith("/static/"):
            return None  # the same for everyone, without a fact of any table
        fields = (
            parse_qs(request.query[:_MOST_PATH], keep_blank_values=True, max_num_fields=50) if request.query else {}
        )
        tokens = fields.get("token", [])
        if tokens:
            if request.method not in ("GET", "HEAD") or not self.is_token(tokens[0]):
                raise _Refused(401, "the token is not the one that was printed at the start")
            rest = "&".join(part for part in request.query.split("&") if not part.startswith("token="))
            location = (
                request.path
                if re.fullmatch(r"/[\x21-\x7e]*", request.path) and not request.path.startswith("//")
                else "/"
            )
            cookie = f"{self.cookie}={self.token}; HttpOnly; SameSite=Lax; Path=/"
            return PageAnswer(
                303, b"", headers=(("Location", f"{location}?{rest}" if rest else location), ("Set-Cookie", cookie))
            )
        if not self.is_token(self.token_of(request)):
            raise _Refused(401, "open the address that was printed at the start: it has the token")
        return None

    def _answer(self, request: _PageRequest) -> PageAnswer:
        parts = _path_parts(request.path)
        if parts[:1] == ["static"] and len(parts) == 2 and parts[1] in STATIC:
            return PageAnswer(200, static_file(parts[1]), STATIC[parts[1]], (("Cache-Control", "max-age=60"),))
        if request.method == "POST":
            return self._act(request, parts)
        if parts[:2] == ["api", "v1"]:
            return self._answer_program(request, parts[2:])
        if parts == ["api"]:
            return _page("api.html", {"facts": openapi_facts(), "table": None, "view": "api", "views": view_names})
        if parts[:1] == ["tables"] and len(parts) == 2:
            return PageAnswer(
                303, b"", headers=(("Location", f"{table_address(self.tables.find(parts[1]))}/timeline"),)
            )
        return self._answer_person(request, parts or ["tables"])

    def _answer_program(self, request: _PageRequest, parts: Sequence[str]) -> PageAnswer:
        if list(parts) == ["openapi.json"]:
            return _json(openapi_facts())
        route, table, parameters = self._routed(request, parts)
        return _json(route.facts(self.tables, table, parameters))

    def _answer_person(self, request: _PageRequest, parts: Sequence[str]) -> PageAnswer:
        route, table, parameters = self._routed(request, parts)
        if not route.template:
            raise _Refused(404, "there is no such page")
        shell: dict[str, object] = {"actions": self.actions is not None, "address_now": request.path}
        try:
            if _is_late(route, table, parameters):
                facts: dict[str, object] = {}
                template = "late.html"
                context = {
                    **page_context_of_shell(route, table),
                    "facts": facts,
                    "given": dict(parameters),
                    "late_source": f"{request.path}?{request.query + '&' if request.query else ''}part=main",
                }
            else:
                template, context = page_context(route, table, parameters, route.facts(self.tables, table, parameters))
        except NotFoundError:
            raise
        except LakefmtError as error:
            if table is None:
                raise
            # The page comes all the same, with its other views.
            context = {
                **page_context_of_shell(route, table),
                "message": table.redact(str(error)),
                "given": dict(parameters),
                "part": parameters.get("part", ""),
            }
            return _page("problem.html", {**context, **shell}, _status_of(error))
        return _page(template, {**context, **shell})

    def _routed(self, request: _PageRequest, parts: Sequence[str]) -> tuple[Route, PageTable | None, Parameters]:
        for route in ROUTES:
            pattern_parts = route.path.strip("/").split("/")
            if len(pattern_parts) == len(parts) and all(
                a == b or a.startswith("{") for a, b in zip(pattern_parts, parts, strict=True)
            ):
                in_path = {a.strip("{}"): b for a, b in zip(pattern_parts, parts, strict=True) if a.startswith("{")}
                parameters = given_parameters(route, request.query, in_path)
                return route, self.tables.find(in_path["table"]) if "table" in in_path else None, parameters
        raise _Refused(404, "there is no such page")

    def _act(self, request: _PageRequest, parts: Sequence[str]) -> PageAnswer:
        """Plan an action, or run what was planned and confirmed."""
        if self.actions is None:
            raise _Refused(403, "this page only reads: start it with --allow-actions")
        if len(parts) != 4 or parts[0] != "tables" or parts[2] != "actions" or parts[3] not in ("plan", "run"):
            raise _Refused(404, "there is no such action")
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
            raise _Refused(415, "a form is expected")
        table = self.tables.find(parts[1])
        try:
            fields = parse_qs(request.body.decode("ascii"), keep_blank_values=True, max_num_fields=10, errors="strict")
        except ValueError:
            raise _Refused(400, "the form cannot be read") from None
        form = {name: values[-1] for name, values in fields.items()}
        outcome = self.actions.plan(table, form) if parts[3] == "plan" else self.actions.run(table, form)
        context = {**page_context_of_shell(None, table), "action": outcome, "actions": True, "given": {}, "part": ""}
        return _page("action.html", context)

    # --- what is new ------------------------------------------------------------------------------------------

    def watch(self, table_id: str, send: Callable[[str, object], None]) -> None:
        """Tell one listener of the instants of a table as they change, until it or the page ends.

        Args:
            table_id: the table.
            send: takes the name of an event and its value; raises OSError when nobody listens any more.
        """
        table = self.tables.find(table_id)
        previous: tuple[object, ...] | None = None
        while not self.ending.is_set():
            try:
                timeline = table.refresh().timeline
                now = (timeline.highest_time, len(timeline.instants), len(timeline.pending))
                if previous is not None and now != previous:
                    latest = timeline.latest_commit
                    send(
                        "instants", {"latest": None if latest is None else str(latest.time), "instants": len(timeline)}
                    )
                else:
                    send("look", {})
                previous = now
            except LakefmtError as error:
                send("problem", {"message": table.redact(str(error))[:400]})
            self.ending.wait(self.look_seconds)


def page_context_of_shell(route: Route | None, table: PageTable | None) -> dict[str, object]:
    """Return what the frame of a page needs, without a fact of the table."""
    view = "" if route is None else route.path.rpartition("/")[2]
    context: dict[str, object] = {"view": view, "views": view_names, "part": ""}
    if table is not None:
        context["base"] = table_address(table)
    context["table"] = None if table is None else {"id": table.id, "name": table.name, "path": table.shown_path}
    return context


def _is_late(route: Route, table: PageTable | None, parameters: Parameters) -> bool:
    """Return whether a view lists or checks so many files that its frame comes first, and the facts when they are there."""
    if (
        table is None
        or parameters.get("part")
        or route.template not in ("files.html", "health.html", "partition.html", "rows.html")
    ):
        return False
    # Once listed, files are at hand; a check, or the plan of a read, takes its time whenever it is asked for.
    return table.is_large and not (table.has_slices and route.template in ("files.html", "partition.html"))


def _path_parts(path: str) -> list[str]:
    """Return the parts of a path, each decoded by itself: no part can lead out of its place.

    Raises:
        _Refused: it is no path of this page.
    """
    if len(path) > _MOST_PATH or not path.startswith("/") or not path.isascii():
        raise _Refused(404, "there is no such page")
    parts = [unquote(part, errors="replace") for part in path.strip("/").split("/")] if path.strip("/") else []
    if any(part in ("", ".", "..") or "/" in part or "\\" in part or "\0" in part for part in parts):
        raise _Refused(404, "there is no such page")
    return parts


def _status_of(error: LakefmtError) -> int:
    if isinstance(error, NotFoundError | TableNotFound):
        return 404
    if isinstance(error, InvalidInputError):
        return 400
    return 502 if isinstance(error, StorageError) else 422


def _page(template: str, context: Mapping[str, object], status: int = 200) -> PageAnswer:
    return PageAnswer(status, render(template, context).encode("utf-8", "replace"))


def _json(facts: object, status: int = 200) -> PageAnswer:
    return PageAnswer(status, json.dumps(facts, default=str).encode(), _JSON)


def _problem(status: int, message: str, *, is_program: bool) -> PageAnswer:
    if is_program:
        return _json({"error": {"status": status, "message": message[:4096]}}, status)
    context = {"table": None, "view": "", "views": view_names, "message": message[:4096], "part": "", "status": status}
    return _page("refused.html", context, status)


# --- HTTP ---------------------------------------------------------------------------------------------------------


class _Server(ThreadingHTTPServer):
    """A bounded number of threads; a request without a free thread is closed."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], page: PageServer) -> None:
        self.page = page
        self._room = threading.BoundedSemaphore(_MOST_REQUESTS)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: object) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: object, client_address: object) -> None:
        _log.debug("a connection ended", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """Parses requests up to a size limit and writes responses."""

    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "lakefmt"
    sys_version = ""
    timeout = _SOCKET_SECONDS

    def do_GET(self) -> None:
        self._handle(b"")

    def do_HEAD(self) -> None:
        self._handle(b"")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        is_doubtful = "Transfer-Encoding" in self.headers or len(self.headers.get_all("Content-Length", [])) > 1
        # A proxy before the page and the page must not differ in where a request ends.
        if is_doubtful or not length.isascii() or not length.isdigit() or len(length) > 8 or int(length) > _MOST_BODY:
            self.close_connection = True
            self._write(_problem(413, "a form of at most 64 KiB with its length is expected", is_program=False))
            return
        self._handle(self.rfile.read(int(length)))

    def _handle(self, body: bytes) -> None:
        if self.command != "POST" and (self.headers.get("Content-Length") or self.headers.get("Transfer-Encoding")):
            self.close_connection = True  # a body that nobody reads would be taken for the next request
        path, _, query = self.path.partition("?")
        headers = {name.casefold(): value for name, value in self.headers.items()}
        request = _PageRequest(self.command, path, query, headers, body)
        page = self.server.page
        if path == "/events" and self.command == "GET":
            self._listen(page, request)
            return
        self._write(page.answer(request))

    def _listen(self, page: PageServer, request: _PageRequest) -> None:
        """Send events as they come; the connection ends with them."""
        self.close_connection = True
        try:
            page.check_sender(request)
            if not page.is_token(page.token_of(request)):
                raise _Refused(401, "the token is missing")
            table_id = parse_qs(request.query[:2000]).get("table", [""])[0]
            page.tables.find(table_id)
            if not page.listeners.acquire(blocking=False):
                raise _Refused(503, "too many pages listen")
        except (_Refused, LakefmtError) as refused:
            status = refused.status if isinstance(refused, _Refused) else 404
            self._write(_problem(status, str(refused), is_program=True))
            return
        try:
            self._send_head(200, "text/event-stream", ())
            page.watch(table_id, self._send_event)
        except OSError:
            _log.debug("a listener has gone")
        finally:
            page.listeners.release()

    def _send_event(self, name: str, value: object) -> None:
        self.wfile.write(f"event: {name}\ndata: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()

    def _send_head(
        self, status: int, content_type: str, more: Sequence[tuple[str, str]], length: int | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        for name, value in ({**_HEADERS, **dict(more)}).items():
            self.send_header(name, value)
        if length is None or self.close_connection:
            self.send_header("Connection", "close")
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _write(self, answer: PageAnswer) -> None:
        with suppress(OSError):
            self._send_head(answer.status, answer.type, answer.headers, len(answer.body))
            if self.command != "HEAD":
                self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the library never prints, and an address may have the token."""
