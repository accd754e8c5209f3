"""StarRocks' own Java client, as it is released: it loads into our server and says whether it believes that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
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
    """Why the Java client, or Flink's sink, cannot be asked; empty: it can."""
    missing = starrocks_environment(flink=flink)["missing"]
    assert isinstance(missing, dict)
    return "; ".join(f"{name}: {reason}" for name, reason in missing.items() if name != "doris")


def python_client_missing() -> str:
    """Why the client in Python cannot be asked; empty: it can."""
    missing = starrocks_environment()["missing"]
    assert isinstance(missing, dict)
    return str(missing.get("doris", ""))


#: In a process of its own: the client sets up the logging of its process. Each line of its input is the rows of a load, as JSON.
_PYTHON_CLIENT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from DorisClient import DorisSession
session = DorisSession([sys.argv[2]], "db", "root", "secret")
for line in sys.stdin:
    table, rows = json.loads(line)
    print(json.dumps(session._streamload(table, rows)), flush=True)  # the same without waiting three seconds before it
"""


def python_client_loads(front: str, loads: Sequence[tuple[str, Sequence[dict[str, object]]]]) -> list[bool]:
    """Have DorisClient of PyPI load rows, and return what it says of each load.

    Args:
        front: host and port of a front end that sends the client on to the server.
        loads: table and rows of each.
    """
    done = subprocess.run(
        [sys.executable, "-c", _PYTHON_CLIENT, str(starrocks_environment()["doris"]), front],
        input="".join(f"{json.dumps(load)}\n" for load in loads),
        capture_output=True,
        text=True,
        check=True,
    )
    return [bool(json.loads(line)) for line in done.stdout.splitlines()]


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


def flink_sink(name: str, columns: str, url: str, mysql_port: int, how: str) -> str:
    """Return the statement that declares StarRocks' sink, exactly once, as ``sink_NAME``.

    Args:
        name: of the table in the database ``db``.
        columns: of Flink's SQL, and the primary key if there is one.
        url: of the server.
        mysql_port: where the sink asks for columns.
        how: ``"csv"``, of which no field may hold the bytes 1 and 2, or ``"json"``.
    """
    options = {
        "connector": "starrocks",
        "jdbc-url": f"jdbc:mysql://127.0.0.1:{mysql_port}?useSSL=false",
        "load-url": url.rpartition("/")[2],
        "database-name": "db",
        "table-name": name,
        "username": "root",
        "password": "",
        "sink.semantic": "exactly-once",
        "sink.label-prefix": "flink",
        "sink.buffer-flush.interval-ms": "2000",
        "sink.properties.format": how,
    }
    if how == "json":
        options["sink.properties.strip_outer_array"] = "true"
    else:
        options |= {"sink.properties.column_separator": r"\x01", "sink.properties.row_delimiter": r"\x02"}
    told = ", ".join(f"'{option}'='{value}'" for option, value in options.items())
    return f"create table sink_{name} ({columns}) with ({told})"


class FlinkJob:
    """A job of Flink in a JVM of its own; it goes on from the newest checkpoint in its folder.

    Args:
        statements: of Flink's SQL; its inserts are one job.
        folder: for its checkpoints and its log.
    """

    def __init__(self, statements: Sequence[str], folder: Path) -> None:
        environment = starrocks_environment(flink=True)
        newest = newest_checkpoint(folder)
        self._log = (folder / "flink.log").open("ab")
        opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("util", "lang")]
        command = [str(environment["java"]), "-Xmx700m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *opens]
        command += ["-cp", f"{environment['flink']}/*{os.pathsep}{environment['flink_cdc']}/*"]
        command += [str(ROOT / "tools/starrocks/FlinkJob.java"), str(folder / "checkpoints")]
        command += ["" if newest is None else str(newest), *statements]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)

    def __enter__(self) -> FlinkJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.communicate()
        self._log.close()

    def wait_until_submitted(self) -> None:
        """Wait until the sinks have asked for columns: before that the job does not know how to wait for a server."""
        assert self.process.stdout is not None
        for said in self.process.stdout:
            if said == "submitted\n":
                return
        raise AssertionError("the job ended before it began: see flink.log")


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the folder of the newest complete checkpoint of the jobs of a folder; their numbers go on from job to job."""
    complete = [found.parent for found in folder.glob("checkpoints/*/chk-*/_metadata")]
    return max(complete, key=lambda found: int(found.name.removeprefix("chk-")), default=None)
