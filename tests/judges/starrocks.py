"""StarRocks' own Java client, as it is released: it loads into our server and says whether it believes that."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def starrocks_environment(*, flink: bool = False) -> dict[str, object]:
    """What tools/loads_env.py finds or fetches."""
    found = subprocess.run(
        [sys.executable, str(ROOT / "tools/loads_env.py"), *(["--flink"] if flink else [])],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    environment: dict[str, object] = json.loads(found.stdout)
    return environment


def starrocks_missing(*, flink: bool = False) -> str:
    """Why the client, or Flink's sink, cannot be asked; empty: it can."""
    missing = starrocks_environment(flink=flink)["missing"]
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


class FlinkJob:
    """A job of Flink that writes the numbers from 1 on, exactly once.

    Args:
        url: of the server.
        mysql_port: where its sink asks for columns.
        rows: how many there are.
        how: ``"csv"`` or ``"json"``.
        folder: for its checkpoints and its log.
    """

    def __init__(self, url: str, mysql_port: int, rows: int, how: str, folder: Path) -> None:
        environment = starrocks_environment(flink=True)
        self._log = (folder / "flink.log").open("wb")
        opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("util", "lang")]
        command = [str(environment["java"]), "-Xmx700m", *opens, "-cp", f"{environment['flink']}/*"]
        command += [
            str(ROOT / "tools/starrocks/FlinkJob.java"),
            url.rpartition("/")[2],
            str(mysql_port),
            str(rows),
            how,
        ]
        self.process = subprocess.Popen([*command, str(folder / "checkpoints")], stdout=self._log, stderr=self._log)

    def __enter__(self) -> FlinkJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()
