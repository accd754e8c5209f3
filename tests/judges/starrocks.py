"""StarRocks' own Java client, as it is released: it loads into our server and says whether it believes that."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def starrocks_environment() -> dict[str, object]:
    """What tools/loads_env.py finds or fetches."""
    found = subprocess.run(
        [sys.executable, str(ROOT / "tools/loads_env.py")],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    environment: dict[str, object] = json.loads(found.stdout)
    return environment


def starrocks_missing() -> str:
    """Why the client cannot be asked; empty: it can."""
    missing = starrocks_environment()["missing"]
    return "; ".join(f"{name}: {reason}" for name, reason in missing.items()) if isinstance(missing, dict) else ""


class StarRocksClient:
    """The client in a JVM of its own; it loads one row with each request unless told otherwise.

    Args:
        url: of the server.
        how: ``"csv"``, ``"json"`` or ``"lz4"``, which is compressed JSON.
        table: that it loads into, in the database ``db``.
        columns: of the rows.
        folder: for its log.
        rows: of a request; None: one.
    """

    def __init__(
        self,
        url: str,
        how: str,
        table: str,
        columns: str,
        folder: Path,
        *,
        prefix: str = "judge",
        rows: int | None = None,
    ) -> None:
        environment = starrocks_environment()
        self._log = (folder / "starrocks.log").open("wb")
        self._path = folder / "starrocks.log"
        command = [str(environment["java"]), "-Xmx300m", "-XX:+UseSerialGC", "-cp", f"{environment['jars']}/*"]
        command += [str(ROOT / "tools/starrocks/Client.java"), url, how, "db", table, columns, prefix]
        command += [] if rows is None else [str(rows)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def __enter__(self) -> StarRocksClient:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.communicate("quit\n", timeout=20)
        except (subprocess.TimeoutExpired, BrokenPipeError, ValueError):
            self._process.kill()
            self._process.communicate()
        self._log.close()

    def do(self, line: str) -> str:
        """Let it do something; return what it says."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        while said := self._process.stdout.readline():
            if said.startswith("> "):
                return said[2:].rstrip("\n")
        raise AssertionError(f"the client ended: {self._path.read_text('utf-8', 'replace')[-3000:]}")
