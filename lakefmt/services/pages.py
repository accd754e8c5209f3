"""The status of a process for services, for others to read: a file, and pages on this machine (effects)."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from lakefmt.errors import InvalidInputError
from lakefmt.services.status import ServicesStatus, metrics_text, status_json

__all__ = ["serve_pages", "write_status_file"]

_HOST = "127.0.0.1"


def write_status_file(path: Path, status: ServicesStatus) -> None:
    """Replace a local file by the status, as JSON when its name ends in ``.json``, else as text; readers see it whole.

    Args:
        path: the file.
        status: its new content.
    """
    text = json.dumps(status_json(status), indent=1) if path.suffix == ".json" else str(status)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        new.write_text(text + "\n", encoding="utf-8")
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def serve_pages(port: int, read_status: Callable[[], ServicesStatus]) -> Iterator[int]:
    """Serve ``/`` (text), ``/status.json`` and ``/metrics`` (Prometheus) to this machine inside the block.

    Args:
        port: of 127.0.0.1; 0: any free one.
        read_status: returns the present status.

    Yields:
        The port.

    Raises:
        InvalidInputError: the port cannot be had.
    """

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pages: dict[str, tuple[str, Callable[[ServicesStatus], str]]] = {
                "/": ("text/plain; charset=utf-8", lambda status: f"{status}\n"),
                "/status.json": ("application/json", lambda status: json.dumps(status_json(status))),
                "/metrics": ("text/plain; version=0.0.4; charset=utf-8", metrics_text),
            }
            page = pages.get(self.path.partition("?")[0])
            if page is None:
                self.send_error(404)
                return
            body = page[1](read_status()).encode()
            self.send_response(200)
            self.send_header("Content-Type", page[0])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the library never prints."""

    try:
        server = ThreadingHTTPServer((_HOST, port), Pages)
    except (OSError, OverflowError) as error:
        raise InvalidInputError(f"the status cannot be served on port {port} of {_HOST}: {error}") from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="lakefmt-status", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
