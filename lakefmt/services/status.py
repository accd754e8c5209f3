"""The status of a process for services, as values, and for others to read: a page, JSON and metrics, in a file or over HTTP."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from lakefmt._core.data_classes import dataclass, replace
from lakefmt.errors import InvalidInputError

__all__ = [
    "RESULTS",
    "ServiceStep",
    "ServicesStatus",
    "TableStatus",
    "joined_steps",
    "metrics_text",
    "replace_text",
    "serve_pages",
    "serve_texts",
    "status_json",
    "with_steps",
    "write_status_file",
]

#: How a step may end.
RESULTS = ("done", "nothing", "busy", "failed")


@dataclass(frozen=True, slots=True)
class ServiceStep:
    """One service that was run for a table.

    Attributes:
        service: its name.
        result: ``done``, ``nothing`` (there was nothing to do), ``busy`` (a writer or another process is in the way; it is
            tried again) or ``failed``.
        instant: the requested time of what it completed; None: nothing.
        message: what it did, or why it did not.
        seconds: how long it took.
        bytes_written: bytes of new files.
        files_deleted: files that it removed.
    """

    service: str
    result: str
    instant: str | None = None
    message: str = ""
    seconds: float = 0.0
    bytes_written: int = 0
    files_deleted: int = 0

    def __str__(self) -> str:
        return f"{self.service}: {self.result}" + (f", {self.message}" if self.message else "")


@dataclass(frozen=True, slots=True)
class TableStatus:
    """What is known of one table.

    Attributes:
        table: its path or URL, without secrets.
        state: ``waiting`` (for the first round), ``idle``, ``working``, ``elsewhere`` (another process serves it) or
            ``failed``.
        looked_at: when its last round ended.
        message: why it failed.
        steps: the newest step of each service.
        counts: steps by service and result.
        seconds: of work, by service.
        bytes_written: by all steps.
        files_deleted: by all steps.
        commits: on its active timeline.
        pending: instants that are not completed.
    """

    table: str
    state: str = "waiting"
    looked_at: datetime | None = None
    message: str = ""
    steps: Mapping[str, ServiceStep] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    bytes_written: int = 0
    files_deleted: int = 0
    commits: int = 0
    pending: tuple[str, ...] = ()

    def __str__(self) -> str:
        when = "" if self.looked_at is None else f" at {self.looked_at:%Y-%m-%d %H:%M:%S %Z}"
        why = f": {self.message}" if self.message else ""
        lines = [f"{self.table}: {self.state}{when}, {self.commits:,} commits, {len(self.pending):,} pending{why}"]
        return "\n".join([*lines, *(f"  {step}" for step in self.steps.values())])


@dataclass(frozen=True, slots=True)
class ServicesStatus:
    """What a process for services has done; prints as a page.

    Attributes:
        owner: id of the process.
        rounds: how often it looked at all tables.
        tables: the tables, in the order in which they were given.
        is_stopping: it was asked to stop.
    """

    owner: str
    rounds: int = 0
    tables: tuple[TableStatus, ...] = ()
    is_stopping: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether the newest round of a table failed, or the newest step of one of its services."""
        newest = [step.result for table in self.tables for step in table.steps.values()]
        return "failed" in newest or any(table.state == "failed" for table in self.tables)

    def __str__(self) -> str:
        stopping = ", stopping" if self.is_stopping else ""
        head = f"lakefmt services {self.owner}: {len(self.tables):,} tables, {self.rounds:,} rounds{stopping}"
        return "\n".join([head, *map(str, self.tables)])


def joined_steps(steps: Sequence[ServiceStep]) -> ServiceStep:
    """Return several steps of one service as one.

    Example:
        >>> str(joined_steps([ServiceStep("packing", "done", "1", "a"), ServiceStep("packing", "done", "2", "b")]))
        'packing: done, a; b'
    """
    newest = steps[-1]
    return replace(
        newest,
        result="done" if any(step.result == "done" for step in steps) else newest.result,
        instant=next((step.instant for step in reversed(steps) if step.instant is not None), None),
        message="; ".join(step.message for step in steps if step.message),
        seconds=sum(step.seconds for step in steps),
        bytes_written=sum(step.bytes_written for step in steps),
        files_deleted=sum(step.files_deleted for step in steps),
    )


def with_steps(status: TableStatus, steps: Sequence[ServiceStep]) -> TableStatus:
    """Return the status of a table after some more steps.

    Example:
        >>> one = with_steps(TableStatus("t"), [ServiceStep("clean", "done", "1", "3 files", 0.5, files_deleted=3)])
        >>> one.counts, one.files_deleted
        ({'clean': {'done': 1}}, 3)
    """
    newest, seconds = dict(status.steps), dict(status.seconds)
    counts = {service: dict(results) for service, results in status.counts.items()}
    for step in steps:
        results = counts.setdefault(step.service, {})
        results[step.result] = results.get(step.result, 0) + 1
        seconds[step.service] = seconds.get(step.service, 0.0) + step.seconds
        # What was done last is worth more to a reader than that there was nothing to do since.
        if step.result != "nothing" or step.service not in newest or newest[step.service].result in ("busy", "failed"):
            newest[step.service] = step
    return replace(
        status,
        steps=newest,
        counts=counts,
        seconds=seconds,
        bytes_written=status.bytes_written + sum(step.bytes_written for step in steps),
        files_deleted=status.files_deleted + sum(step.files_deleted for step in steps),
    )


def status_json(status: ServicesStatus) -> dict[str, object]:
    """Return the status as JSON values."""
    tables = []
    for table in status.tables:
        document = asdict(table)
        document["looked_at"] = None if table.looked_at is None else table.looked_at.isoformat()
        document["steps"] = {service: asdict(step) for service, step in table.steps.items()}
        tables.append(document)
    return {"owner": status.owner, "rounds": status.rounds, "stopping": status.is_stopping, "tables": tables}


def metrics_text(status: ServicesStatus) -> str:
    r"""Return the status in the text format of Prometheus.

    Example:
        >>> page = metrics_text(ServicesStatus("me", 2, (TableStatus('a"b', "idle", commits=3),)))
        >>> [line for line in page.splitlines() if "commits{" in line]
        ['lakefmt_services_commits{table="a\\"b"} 3']
    """
    lines: list[str] = []

    def metric(name: str, metric_type: str, help_text: str, samples: Sequence[tuple[Mapping[str, str], float]]) -> None:
        lines.append(f"# HELP lakefmt_services_{name} {help_text}")
        lines.append(f"# TYPE lakefmt_services_{name} {metric_type}")
        lines.extend(f"lakefmt_services_{name}{_label_text(labels)} {value:.15g}" for labels, value in samples)

    tables = status.tables
    labelled = [({"table": table.table}, table) for table in tables]
    metric("rounds_total", "counter", "Rounds over all tables.", [({}, status.rounds)])
    steps = [
        ({**label, "service": service, "result": result}, float(count))
        for label, table in labelled
        for service, results in table.counts.items()
        for result, count in results.items()
    ]
    metric("steps_total", "counter", "Services that were run, by result.", steps)
    seconds = [
        ({**label, "service": name}, spent) for label, table in labelled for name, spent in table.seconds.items()
    ]
    metric("seconds_total", "counter", "Seconds of work.", seconds)
    metric("bytes_written_total", "counter", "Bytes of new files.", [(la, t.bytes_written) for la, t in labelled])
    metric("files_deleted_total", "counter", "Files that were removed.", [(la, t.files_deleted) for la, t in labelled])
    metric("commits", "gauge", "Commits of the active timeline.", [(la, t.commits) for la, t in labelled])
    metric("pending", "gauge", "Instants that are not completed.", [(la, len(t.pending)) for la, t in labelled])
    metric("failed", "gauge", "1 when the last round failed.", [(la, t.state == "failed") for la, t in labelled])
    looked = [(label, table.looked_at.timestamp()) for label, table in labelled if table.looked_at is not None]
    metric("looked_at_seconds", "gauge", "When the last round ended, in epoch seconds.", looked)
    return "\n".join([*lines, ""])


def _label_text(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = (
        (name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for name, value in labels.items()
    )
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"


_LOCAL_HOST = "127.0.0.1"


def write_status_file(path: Path, status: ServicesStatus) -> None:
    """Replace a local file by the status, as JSON when its name ends in ``.json``, else as text; readers see it whole.

    Args:
        path: the file.
        status: its new content.
    """
    replace_text(path, (json.dumps(status_json(status), indent=1) if path.suffix == ".json" else str(status)) + "\n")


def replace_text(path: Path, text: str) -> None:
    """Replace a local file by a text; readers see the old one or the new one, whole.

    Args:
        path: the file.
        text: its new content.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        new.write_text(text, encoding="utf-8")
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
    pages: dict[str, tuple[str, Callable[[], str]]] = {
        "/": ("text/plain; charset=utf-8", lambda: f"{read_status()}\n"),
        "/status.json": ("application/json", lambda: json.dumps(status_json(read_status()))),
        "/metrics": ("text/plain; version=0.0.4; charset=utf-8", lambda: metrics_text(read_status())),
    }
    with serve_texts(port, pages) as bound:
        yield bound


@contextmanager
def serve_texts(port: int, pages: Mapping[str, tuple[str, Callable[[], str]]]) -> Iterator[int]:
    """Serve some pages to this machine inside the block.

    Args:
        port: of 127.0.0.1; 0: any free one.
        pages: path → type and content.

    Yields:
        The port.

    Raises:
        InvalidInputError: the port cannot be had.
    """

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            if page is None:
                self.send_error(404)
                return
            body = page[1]().encode()
            self.send_response(200)
            self.send_header("Content-Type", page[0])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the library never prints."""

    try:
        server = ThreadingHTTPServer((_LOCAL_HOST, port), Pages)
    except (OSError, OverflowError) as error:
        raise InvalidInputError(f"the status cannot be served on port {port} of {_LOCAL_HOST}: {error}") from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="lakefmt-status", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
