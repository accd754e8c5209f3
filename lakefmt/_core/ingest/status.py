"""The progress of jobs for others to read: a page, JSON, and metrics in the text format of Prometheus (pure)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

from lakefmt._core.ingest.run import IngestProgress

__all__ = ["page_texts", "progress_json", "progress_metrics", "status_text"]

_COUNTERS = {
    "rounds": "Rounds in which the source was asked.",
    "commits": "Commits.",
    "rows": "Rows written.",
    "rejected_rows": "Rows rejected.",
    "failures": "Rounds that failed.",
    "seconds": "Seconds of rounds that committed.",
}


def progress_json(progress: IngestProgress) -> dict[str, object]:
    """Return the progress as JSON values."""
    return {"stopping": progress.is_stopping, "tables": [asdict(table) for table in progress.tables]}


def status_text(progress: IngestProgress, *, as_json: bool) -> str:
    """Return the content of a status file."""
    return (json.dumps(progress_json(progress), indent=1) if as_json else str(progress)) + "\n"


def progress_metrics(progress: IngestProgress) -> str:
    r"""Return the progress in the text format of Prometheus.

    Example:
        >>> from lakefmt._core.ingest.run import JobProgress
        >>> page = progress_metrics(IngestProgress((JobProgress("a", "/lake/a", rows=3),)))
        >>> [line for line in page.splitlines() if line.startswith("lakefmt_ingest_rows_total")]
        ['lakefmt_ingest_rows_total{table="/lake/a"} 3']
    """
    lines = list[str]()
    for name, help_text in _COUNTERS.items():
        lines += [f"# HELP lakefmt_ingest_{name}_total {help_text}", f"# TYPE lakefmt_ingest_{name}_total counter"]
        lines += [
            f'lakefmt_ingest_{name}_total{{table="{_label(table.table)}"}} {getattr(table, name):.15g}'
            for table in progress.tables
        ]
    lines += ["# HELP lakefmt_ingest_failed 1 when the last round failed.", "# TYPE lakefmt_ingest_failed gauge"]
    lines += [
        f'lakefmt_ingest_failed{{table="{_label(table.table)}"}} {int(table.state == "failed")}'
        for table in progress.tables
    ]
    return "\n".join([*lines, ""])


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def page_texts(read: Callable[[], IngestProgress]) -> Mapping[str, tuple[str, Callable[[], str]]]:
    """Return the pages of a process: path → type and content."""
    return {
        "/": ("text/plain; charset=utf-8", lambda: f"{read()}\n"),
        "/status.json": ("application/json", lambda: json.dumps(progress_json(read()))),
        "/metrics": ("text/plain; version=0.0.4; charset=utf-8", lambda: progress_metrics(read())),
    }
