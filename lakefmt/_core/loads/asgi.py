"""The service of loads as an ASGI application, for servers such as uvicorn and granian (effects).

Requests are worked on in threads; a body is asked for when the service wants it, which is also when these servers answer
``Expect: 100-continue``. Limits of connections and of slow senders are the server's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from typing import Any, Final
from urllib.parse import parse_qsl

from lakefmt._core.data_classes import replace
from lakefmt._core.loads.auth import ANYBODY, Users
from lakefmt._core.loads.bodies import BodyBroken, Request, body_length
from lakefmt._core.loads.http import HttpLimits, is_loopback, sweep_until
from lakefmt._core.loads.protocol import DENIED, Refusal, Reply
from lakefmt._core.loads.service import LoadService

__all__ = ["AsgiLoads"]

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_NOBODY_ELSE: Final = "without users only this machine may load: give a file of users"
_log = logging.getLogger("lakefmt.loads.http")


class _AsgiBody:
    """The bytes of a body, which a thread reads while the server's loop gets them."""

    def __init__(self, receive: Receive, loop: asyncio.AbstractEventLoop, seconds: float, *, empty: bool) -> None:
        self._receive, self._loop, self._seconds = receive, loop, seconds
        self._left = b""
        self.ended = empty

    def read(self, size: int, /) -> bytes:
        while not self._left and not self.ended:
            waiting = asyncio.run_coroutine_threadsafe(self._next(), self._loop)
            try:
                message = waiting.result(self._seconds)
            except TimeoutError:
                waiting.cancel()
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
    """An application of ASGI 3; the server's lifespan events start and stop the service.

    Args:
        service: what it answers with.
        users: who may load; None: everybody on this machine.
        limits: threads (``connections``), silence (``read_seconds``) and headers.
    """

    def __init__(self, service: LoadService, *, users: Users | None = None, limits: HttpLimits | None = None) -> None:
        self._service, self._users, self._limits = service, users, limits or HttpLimits()
        self._threads = ThreadPoolExecutor(self._limits.connections, "lakefmt-loads")
        self._ended = Event()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
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
        told = [
            (name.decode("latin-1"), value.decode("utf-8", "surrogateescape").strip())
            for name, value in scope["headers"]
        ]
        try:
            is_old = scope.get("http_version") == "1.0"
            length = body_length(told, self._limits.header_bytes, is_old=is_old)
            query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), max_num_fields=50))
        except (Refusal, ValueError) as error:
            return Reply({"Status": "FAILED", "Message": str(error)}, 400, close=True)
        headers = dict(told)
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
