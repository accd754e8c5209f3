"""moto's S3 server on the loopback address, in threads of this process: for benchmarks and for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["options_of", "s3_server"]


@contextmanager
def s3_server() -> Iterator[Any]:
    """Run a server; it keeps the buckets of others of this process."""
    from moto import backends
    from moto.server import ThreadedMotoServer

    # It looks through the folder of all services at every request, for a tenth of the time of these tests.
    services = frozenset(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: services
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def options_of(server: Any) -> dict[str, Any]:
    """Return the storage options that reach a server, with made-up keys."""
    host, port = server.get_host_and_port()
    return {
        "key": "made-up",
        "secret": "very-secret-text",
        "client_kwargs": {"endpoint_url": f"http://{host}:{port}", "region_name": "us-east-1"},
    }
