"""Apache Hudi on Flink 0.14.0, the Flink that writes tables of version 6: one JVM answers many statements."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RELEASE = "Hudi 0.14.0 on Flink 1.17.2"
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.time", "java.util", "java.util.concurrent", "java.util.concurrent.atomic"),
)
#: One task of each kind, and no service that nobody asked for.
_QUIET = {
    "write.tasks": "1",
    "read.tasks": "1",
    "bucket_assign.tasks": "1",
    "index.bootstrap.enabled": "false",
    "compaction.tasks": "1",
    "compaction.async.enabled": "false",
    "compaction.schedule.enabled": "false",
    "clean.async.enabled": "false",
    "metadata.enabled": "false",
}


@cache
def flink_environment() -> dict[str, Any]:
    """What tools/kafka_env.py finds or fetches."""
    found = subprocess.run(
        [sys.executable, str(ROOT / "tools/kafka_env.py"), "--flink"],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    environment: dict[str, Any] = json.loads(found.stdout)
    return environment


def flink_missing() -> str:
    """Why Hudi on Flink cannot be asked; empty: it can."""
    missing = flink_environment()["missing"]
    return "; ".join(f"{name}: {reason}" for name, reason in missing.items() if name in ("java", "flink"))


@dataclass(frozen=True)
class FlinkTable:
    """A table as Flink's SQL declares it.

    Attributes:
        path: of the table.
        types: column → type of Flink's SQL.
        options: of the connector, over those of a quiet writer with one task.
        key: the record key's columns.
        partition: the partition columns.
    """

    path: Path
    types: Mapping[str, str]
    options: Mapping[str, str] = field(default_factory=dict)
    key: Sequence[str] = ("id",)
    partition: Sequence[str] = ()

    def declaration(self) -> str:
        """Return the statement that creates it, under the name ``t``."""
        columns = ", ".join(f"`{name}` {kind}" for name, kind in self.types.items())
        partitioned = f"PARTITIONED BY ({', '.join(self.partition)}) " if self.partition else ""
        options = {"connector": "hudi", "path": f"file://{self.path}", **_QUIET, **self.options}
        told = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
        key = ", ".join(self.key)
        return f"CREATE TABLE t ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) {partitioned}WITH ({told})"


class HudiOnFlink:
    """Flink's SQL in a JVM of its own.

    Args:
        folder: for its log.
    """

    def __init__(self, folder: Path) -> None:
        environment = flink_environment()
        self.requests = 0
        self._path = folder / "flink.log"
        self._log = self._path.open("wb")
        command = [str(environment["java"]), *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED)]
        command += ["-Xmx900m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC"]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{environment['flink_jars']}/*"]
        self._process = subprocess.Popen(
            [*command, str(ROOT / "tools/hudi_flink/Worker.java")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=folder,
        )

    def __enter__(self) -> HudiOnFlink:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=20)  # the end of its input ends it
        except (subprocess.TimeoutExpired, ValueError):
            self._process.kill()
            self._process.communicate()
        self._log.close()

    def insert(
        self, table: FlinkTable, rows: str, options: Mapping[str, str] | None = None, *, streaming: bool = False
    ) -> None:
        """Insert what stands behind VALUES, or a query, in batch mode unless told otherwise; Hudi's ``write.operation`` is upsert."""
        self._ask([table.declaration(), f"INSERT INTO t {_hints(options or {})}{rows}"], streaming=streaming)

    def change(self, table: FlinkTable, changes: Sequence[Sequence[object]]) -> None:
        """Write a changelog in streaming mode; each change begins with its kind: ``+I``, ``-U``, ``+U`` or ``-D``."""
        view = {"types": dict(table.types), "key": table.key[0], "changes": [list(change) for change in changes]}
        self._ask([table.declaration(), "INSERT INTO t SELECT * FROM changes"], streaming=True, **view)

    def read(self, table: FlinkTable) -> list[list[Any]]:
        """Return the rows, each behind its kind."""
        return self._ask([table.declaration(), "SELECT * FROM t"])

    def option_names(self) -> list[str]:
        """Return the names of its options, older ones too."""
        names: list[Any] = self._ask([], options=True)
        return [str(name) for name in names]

    def _ask(self, statements: list[str], **more: object) -> list[list[Any]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.requests += 1
        self._process.stdin.write(json.dumps({"statements": statements, **more}) + "\n")
        self._process.stdin.flush()
        while said := self._process.stdout.readline():
            if said.startswith("> "):
                answer = json.loads(said[2:])
                if "error" in answer:
                    raise AssertionError(f"{RELEASE}: {_reasons(answer['error'])}")
                rows: list[list[Any]] = answer["rows"]
                return rows
        raise AssertionError(f"{RELEASE} ended: {self._path.read_text('utf-8', 'replace')[-3000:]}")


def _hints(options: Mapping[str, str]) -> str:
    told = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    return f"/*+ OPTIONS({told}) */ " if told else ""


def _reasons(trace: str) -> str:
    lines = trace.splitlines()
    return " | ".join([lines[0], *(line.strip() for line in lines if "Caused by" in line)])[:3000]
