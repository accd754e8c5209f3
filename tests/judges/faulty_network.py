"""A network that fails on demand: an HTTP proxy on the loopback address that cuts, splits, delays, refuses and drops.

One connection carries one request. What happens to which request is told by a plan, so that every run is the same.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

PIECE_SECONDS = 0.002


@dataclass(frozen=True)
class Request:
    """The request line of what a client asks, and which one it is since the plan was made."""

    number: int
    method: str
    target: str


@dataclass(frozen=True)
class Fault:
    """What happens to one request.

    Attributes:
        forward: the service gets it.
        answer: is sent instead of the service's answer.
        pieces: the body is sent in so many pieces, with a pause between.
        cut: share of the body (with `in_head`: of everything) that is sent before the connection ends.
        in_head: the cut may lie in the head of the answer.
    """

    forward: bool = True
    answer: bytes | None = None
    pieces: int = 1
    cut: float | None = None
    in_head: bool = False


Plan = Callable[[Request], Fault | None]


def refusal(status: int, code: str) -> Fault:
    """Return the fault by which S3 says that it cannot do that now."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>told to</Message></Error>".encode()
    head = f"HTTP/1.1 {status} Told\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n"
    return Fault(forward=False, answer=head.encode() + b"Connection: close\r\n\r\n" + body)


FAULTS: dict[str, Fault] = {
    "in two pieces": Fault(pieces=2),
    "in many pieces": Fault(pieces=7),
    "request lost": Fault(forward=False, answer=b""),
    "answer lost": Fault(answer=b""),
    "cut in the head": Fault(cut=0.3, in_head=True),
    "cut before the body": Fault(cut=0.0),
    "cut in the body": Fault(cut=0.5),
    "cut before the end": Fault(cut=0.999),
    "400 RequestTimeout": refusal(400, "RequestTimeout"),
    "500 InternalError": refusal(500, "InternalError"),
    "503 SlowDown": refusal(503, "SlowDown"),
}
#: These change nothing but the time that an answer takes.
HARMLESS = ("in two pieces", "in many pieces")


class FaultyNetwork:
    """The proxy in front of the service at `host`:`port`."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._guard = threading.Lock()
        self._plan: Plan = lambda request: None
        self.requests: list[Request] = []
        threading.Thread(target=self._serve, name="faulty-network", daemon=True).start()

    @property
    def endpoint(self) -> str:
        """The address for clients."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @contextmanager
    def planned(self, plan: Plan) -> Iterator[list[Request]]:
        """Do as `plan` says inside the block, counting requests from 0; gives the list of requests."""
        with self._guard:
            self._plan, self.requests = plan, []
        try:
            yield self.requests
        finally:
            with self._guard:
                self._plan = lambda request: None

    def close(self) -> None:
        """Stop."""
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            head, body = _read_request(client)
            if not head:
                return
            method, target = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")[:2]
            with self._guard:
                request = Request(len(self.requests), method, target)
                self.requests.append(request)
                fault = self._plan(request) or Fault()
            if method == "HEAD" and b" 400 " in (fault.answer or b"")[:16]:
                fault = Fault()  # S3 misses the body of a request that has none, and its answer has no words, either
            answer = self._ask(head, body) if fault.forward else b""
            if fault.answer is not None:
                answer = fault.answer if method != "HEAD" else _head_only(fault.answer)
            _send(client, answer, fault)

    def _ask(self, head: bytes, body: bytes) -> bytes:
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith((b"connection:", b"expect:"))]
        with socket.create_connection(self._upstream) as service:
            service.sendall(b"\r\n".join([lines[0], b"Connection: close", *lines[1:]]) + b"\r\n\r\n" + body)
            return b"".join(iter(lambda: service.recv(1 << 16), b""))


def _head_only(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if answer else b""


def _read_request(client: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(1 << 16)
        if not more:
            return b"", b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    told = {k.strip().lower(): v.strip() for k, _, v in (line.partition(b":") for line in head.split(b"\r\n")[1:])}
    if told.get(b"expect", b"").lower() == b"100-continue":
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    if b"chunked" in told.get(b"transfer-encoding", b""):
        while not body.endswith(b"0\r\n\r\n"):
            body += client.recv(1 << 16)
        return head, body
    length = int(told.get(b"content-length", b"0"))
    while len(body) < length:
        body += client.recv(1 << 16)
    return head, body


def _send(client: socket.socket, answer: bytes, fault: Fault) -> None:
    head, limit, body = answer.partition(b"\r\n\r\n")
    head += limit
    if fault.cut is not None:
        if fault.in_head:
            client.sendall(head[: int(len(head) * fault.cut)])
            return
        body = body[: int(len(body) * fault.cut)]
    client.sendall(head)
    step = -(-len(body) // fault.pieces) or 1
    for start in range(0, len(body), step):
        if fault.pieces > 1:
            time.sleep(PIECE_SECONDS)
        client.sendall(body[start : start + step])


def one_of(number: int, fault: Fault) -> Plan:
    """Return the plan by which the fault meets that one request."""
    return lambda request: fault if request.number == number else None


def all_from(number: int, fault: Fault) -> Plan:
    """Return the plan by which the fault meets that request and all behind it."""
    return lambda request: fault if request.number >= number else None


def every(fault: Fault) -> Plan:
    """Return the plan by which the fault meets every request."""
    return all_from(0, fault)


def cut_anywhere(share: float) -> Fault:
    """Return the fault that cuts an answer, head or body, at this share of it."""
    return replace(Fault(), cut=share * 2, in_head=True) if share < 0.5 else replace(Fault(), cut=share * 2 - 1)
