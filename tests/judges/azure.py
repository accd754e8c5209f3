"""Azurite: Azure Blob Storage's API on the loopback address, by Microsoft; `make azurite-env` installs it with npm."""

from __future__ import annotations

import os
import shutil
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
_INSTALLED = Path(__file__).parents[2] / ".cache/azurite/node_modules/.bin/azurite-blob"
#: The account that Azurite documents; everybody knows its key.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def azure_options(endpoint: str) -> dict[str, Any]:
    """Storage options that reach the service."""
    text = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={endpoint}/{ACCOUNT};"
    return {"connection_string": text}


@contextmanager
def azure_service() -> Iterator[str]:
    """Run the service, empty and in memory, and give its address; skip the test where it is not installed."""
    pytest.importorskip("adlfs")
    program = shutil.which("azurite-blob") or (str(_INSTALLED) if _INSTALLED.exists() else None)
    if program is None or shutil.which("node") is None:
        pytest.skip("Azurite is not installed: make azurite-env")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    told = [
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        str(port),
        "--inMemoryPersistence",
        "--silent",
        "--skipApiVersionCheck",
    ]
    environment = {**os.environ, "AZURITE_DISABLE_TELEMETRY": "true"}
    with subprocess.Popen(
        [program, *told, "--disableTelemetry"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as process:
        try:
            _wait_for(endpoint, process)
            yield endpoint
        finally:
            process.kill()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while True:
        try:
            urllib.request.urlopen(url, timeout=1)
        except urllib.error.HTTPError:
            return  # it answers
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("Azurite does not start") from None
            time.sleep(0.05)
        else:
            return
