"""What the tests of jobs share: files with times of their own, jobs on a clock that does not move by itself."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lakefmt
from lakefmt._core.ingest.options import resolve_table_job
from lakefmt._core.ingest.run import Ingester

NOW = 1_700_000_000.0
FAST = {"lakefmt.durability": "none", "lakefmt.write.threads": 1}


class Clock:
    """A clock in seconds since 1970 that also waits."""

    def __init__(self, now: float = NOW) -> None:
        self.seconds = now

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def write_rows(path: Path, rows: list[dict[str, Any]], modified: float = NOW - 100) -> Path:
    """Write JSON lines with a time of modification."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return touch(path, modified)


def touch(path: Path, modified: float = NOW - 100) -> Path:
    nanoseconds = round(modified * 1000) * 1_000_000
    os.utime(path, ns=(nanoseconds, nanoseconds))
    return path


def job(source: object, table: object, clock: Clock | None = None, **settings: Any) -> Ingester:
    """Return the job of one table, by the settings of a file."""
    clock = clock or Clock()
    settings.setdefault("key", "id")
    given: dict[str, Any] = {"source": source if not isinstance(source, Path) else str(source), "table": str(table)}
    merged = {**settings, "settings": {**FAST, **settings.get("settings", {})}}
    resolved, _ = resolve_table_job([("test", {**given, **merged})])
    return Ingester([resolved], clock=clock, time_source=clock, attempts=0)  # type: ignore[arg-type]


def ingest(source: object, table: object, mode: str = "until_idle", **settings: Any) -> int:
    """Run a job and return how many rows were written."""
    return job(source, table, **settings).run(mode).tables[0].rows


def rows_of(table: object, columns: list[str] | None = None) -> list[dict[str, Any]]:
    read = lakefmt.open_table(str(table)).read(columns=columns).to_pylist()
    return sorted(read, key=lambda row: json.dumps(row, sort_keys=True, default=str))


def extra_of(table: object) -> Mapping[str, str]:
    """Return the extra metadata of the newest commit."""
    client = lakefmt.open_table(str(table)).client
    table_at = client.at(client.load())
    latest = table_at.timeline.latest_commit
    assert latest is not None
    return table_at.commit_metadata(latest).extra_metadata


def commits_of(table: object) -> int:
    client = lakefmt.open_table(str(table)).client
    return len(client.load().timeline.commits)
