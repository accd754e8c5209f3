"""Apache Hudi on Spark as a judge: a client of the process that `spark_worker.py` is.

One process holds one bundle and one JVM. A judge starts it with the first request and may be closed and used again;
starting one judge closes the other of this session, and beyond two of this machine sessions wait a while for their turn:
a JVM keeps one core busy and the other one now and then. Every request has a time limit: a process that does not answer is killed, and the error
carries the end of its log.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from tests.judges.spark_settings import hudi_defaults
from tests.judges.table_facts import (
    META_COLUMNS,
    a_millisecond_later,
    completed_instants,
    table_properties,
    writer_options,
)

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("spark_worker.py")
SUMMARY = ROOT / ".cache" / "spark_env.json"
#: Below the time limit of a test, so that the judge's own error is the one that is seen.
#: Another session's JVM is waited for, not for ever: two at once are slow, not wrong.
START_SECONDS, REQUEST_SECONDS, TURN_SECONDS = 180.0, 180.0, 45.0

__all__ = [
    "META_COLUMNS",
    "JudgeError",
    "JudgeSilent",
    "SparkEnvironment",
    "SparkJudge",
    "completed_instants",
    "spark_environment",
    "table_properties",
    "writer_options",
]

Answer = dict[str, Any]


class JudgeError(Exception):
    """A judge refused: `error` is the class it named, `causes` the chain below, `log` the end of its log."""

    def __init__(self, error: str, message: str, causes: Sequence[str] = (), log: str = "") -> None:
        below = "".join(f"\n  caused by {cause}" for cause in causes)
        super().__init__(f"{error}: {message}{below}{_quoted(log)}")
        self.error, self.message, self.causes, self.log = error, message, tuple(causes), log


class JudgeSilent(Exception):
    """The judge is missing, ended or did not answer in time: nothing has been judged, so this is no JudgeError."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message + _quoted(log))


def _quoted(log: str) -> str:
    return f"\n--- end of the judge's log\n{log}" if log else ""


# --- where Spark is ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SparkEnvironment:
    """What `tools/spark_env.py` found."""

    python: str | None
    java: str | None
    bundles: Mapping[str, str]
    newest: str | None = None
    releases: Mapping[str, str] = field(default_factory=dict)
    connect: str | None = None

    def missing(self, bundle: str) -> str | None:
        """What keeps `bundle` from judging, or None."""
        lacking = [name for name, found in (("pyspark", self.python), ("Java 17", self.java)) if not found]
        lacking += [] if bundle in self.bundles else [f"the Hudi bundle {bundle}"]
        return f"{', '.join(lacking)} not found; run python tools/spark_env.py" if lacking else None


def spark_environment() -> SparkEnvironment:
    """What the last preparation found; looked for again (without installing) when it is not there any more."""
    found = _summary()
    several = (*found.get("bundles", {}).values(), *found.get("releases", {}).values())
    connect = [found["connect"]] if found.get("connect") else []  # few runs ask for it
    named = [*(found.get(name) for name in ("python", "newest", "java")), *several, *connect] if found else []
    if not found or not all(path and Path(path).exists() for path in named):
        subprocess.run(
            [sys.executable, str(ROOT / "tools" / "spark_env.py"), "--find"], capture_output=True, check=False
        )
        found = _summary()
    python, java, bundles = found.get("python"), found.get("java"), found.get("bundles", {})
    newest, releases = found.get("newest"), found.get("releases", {})
    return SparkEnvironment(python, java, bundles, newest, releases, found.get("connect"))


def _summary() -> dict[str, Any]:
    try:
        return dict(json.loads(SUMMARY.read_text()))
    except (OSError, ValueError):
        return {}


# --- the process ------------------------------------------------------------------------------------------------------


class _Worker:
    """One running judge's process: lines in, lines out, killed with everything it started."""

    def __init__(
        self, environment: SparkEnvironment, bundle: str, memory: str, scratch: Path, log: Path, metastore: str
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
        variables |= {"JAVA_HOME": str(environment.java), "TZ": "UTC", "TMPDIR": str(scratch)}
        variables |= {"SPARK_LOCAL_IP": "127.0.0.1", "HUDI_CONF_DIR": str(hudi_defaults(scratch))}
        command = [str(environment.python), str(WORKER), environment.bundles[bundle], str(scratch), memory]
        command += [metastore] if metastore else []
        with open(log, "wb") as noise:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=noise,
                cwd=scratch,
                env=variables,
                start_new_session=True,
                text=True,
            )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                self._lines.put(line)
        self._lines.put(None)

    def send(self, request: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # then no answer comes: reported with the log
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()

    def receive(self, seconds: float) -> Answer:
        """The next answer; a process without one in time is killed."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            self.kill()
            raise JudgeSilent(f"no answer within {seconds:.1f} s", self.log_tail()) from None
        if line is None:
            self.kill()
            raise JudgeSilent(f"the process ended ({self._process.returncode})", self.log_tail())
        return dict(json.loads(line))

    def log_size(self) -> int:
        return self._log.stat().st_size

    def log_tail(self, start: int = 0, size: int = 6000) -> str:
        """The end of what was logged after byte `start`."""
        with open(self._log, "rb") as noise:
            noise.seek(max(start, self.log_size() - size))
            return noise.read().decode(errors="replace")

    def quit(self) -> None:
        self.send({"op": "quit"})
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(15)
        self.kill()

    def kill(self) -> None:
        """End the process and its JVM, which share a process group of their own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)
        with contextlib.suppress(BrokenPipeError):
            if self._process.stdin:
                self._process.stdin.close()


@contextlib.contextmanager
def _machine_turn() -> Iterator[None]:
    """Two judges' JVMs at a time on this machine, as far as this user goes; who waited long enough goes ahead."""
    deadline = time.monotonic() + TURN_SECONDS
    with contextlib.ExitStack() as handles:
        locks = [Path(tempfile.gettempdir()) / f"lakefmt-spark-judge-{os.getuid()}-{turn}.lock" for turn in range(2)]
        files = [handles.enter_context(open(lock, "w")) for lock in locks]
        while not any(map(_is_locked, files)) and time.monotonic() < deadline:
            time.sleep(0.5)
        yield


def _is_locked(file: IO[str]) -> bool:
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# --- the judge --------------------------------------------------------------------------------------------------------


class SparkJudge:
    """Reads, writes and compares tables with one Hudi bundle; a context manager.

    Parameters:
        bundle: the bundle's version; it must be among the environment's.
        environment: where Spark is; found when not given.
        memory: the JVM's heap.
        seconds: time limit of a request unless it names its own.
        takes_turns: whether it waits for other judges and ends those of this session.
        metastore: the address of a Hive metastore whose tables it has by name; empty: it has no catalog.
    """

    _running: ClassVar[SparkJudge | None] = None

    def __init__(
        self,
        bundle: str = "1.2.0",
        environment: SparkEnvironment | None = None,
        memory: str = "1g",
        seconds: float = REQUEST_SECONDS,
        takes_turns: bool = True,
        metastore: str = "",
    ) -> None:
        self._metastore = metastore
        self.bundle, self.seconds, self.requests = bundle, seconds, 0
        self._environment = environment or spark_environment()
        self._memory, self._takes_turns = memory, takes_turns
        self._worker: _Worker | None = None
        self._process_holds = contextlib.ExitStack()
        self._turn = contextlib.ExitStack()
        self._numbers = 0

    def __enter__(self) -> SparkJudge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Whether its process is up."""
        return self._worker is not None

    # --- requests

    def start(self) -> _Worker:
        """Start the process unless it runs; close another judge that does."""
        if self._worker:
            return self._worker
        lacking = self._environment.missing(self.bundle)
        if lacking:
            raise JudgeSilent(lacking)
        if self._takes_turns and SparkJudge._running is not self:
            self._take_turn()
        self._scratch = Path(tempfile.mkdtemp(prefix="lakefmt-judge-"))
        self._process_holds.callback(shutil.rmtree, self._scratch, ignore_errors=True)
        log = ROOT / ".cache" / "judges" / f"spark-{self.bundle}{os.environ.get('PYTEST_XDIST_WORKER', '')}.log"
        self._worker = _Worker(self._environment, self.bundle, self._memory, self._scratch, log, self._metastore)
        self._answer(START_SECONDS)
        return self._worker

    def _take_turn(self) -> None:
        if SparkJudge._running:
            SparkJudge._running.close()
        self._turn.enter_context(_machine_turn())
        SparkJudge._running = self

    def close(self) -> None:
        """End the process; the next request starts a new one."""
        try:
            self._end()
        finally:
            if SparkJudge._running is self:
                SparkJudge._running = None
            self._turn.close()

    def _end(self) -> None:
        """End the process and keep the turn."""
        worker, self._worker = self._worker, None
        try:
            if worker:
                worker.quit()
        finally:
            self._process_holds.close()

    def request(self, op: str, seconds: float | None = None, **arguments: Any) -> Answer:
        """The worker's answer to one request.

        Raises:
            JudgeError: Spark refused.
            JudgeSilent: no answer in time.
        """
        worker = self.start()
        start = worker.log_size()
        self._numbers += 1
        self.requests += 1
        worker.send({"op": op, "id": self._numbers, **arguments})
        answer = self._answer(seconds or self.seconds)
        if answer["id"] != self._numbers:
            raise JudgeSilent(f"answer {answer['id']} came to request {self._numbers}")
        if "error" in answer:
            raise JudgeError(answer["error"], answer["message"], answer["causes"], worker.log_tail(start))
        return answer

    def _answer(self, seconds: float) -> Answer:
        assert self._worker is not None
        try:
            return self._worker.receive(seconds)
        except JudgeSilent:
            self._end()  # who begins it anew need not wait for its turn again
            raise

    def batch(self, requests: Sequence[Mapping[str, Any]], seconds: float | None = None) -> list[Answer]:
        """The answers to several requests, in one go; one that fails holds `error` and spares the others."""
        answers = self.request("batch", seconds or self.seconds * max(1, len(requests)), requests=list(requests))
        self.requests += len(requests) - 1
        return list(answers["answers"])

    # --- reading

    def snapshot(
        self,
        path: str | Path,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        meta_columns: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """The rows that Spark reads, typed as Spark has them.

        Parameters:
            path: the table.
            columns: names to read; None: all.
            where: a condition in Spark's SQL.
            meta_columns: with the five `_hoodie_` columns.
            options: for the reader.
        """
        self.start()
        out = Path(tempfile.mkdtemp(dir=self._scratch))
        told: dict[str, Any] = {
            "columns": list(columns) if columns else None,
            "filter": where,
            "options": dict(options or {}),
        }
        try:
            self.request("read", path=str(path), out=str(out), **told)
            table = pa.concat_tables([_bare(pq.read_table(part)) for part in sorted(out.glob("part-*.parquet"))])
        finally:
            shutil.rmtree(out, ignore_errors=True)
        hidden = [] if meta_columns or columns else [name for name in META_COLUMNS if name in table.column_names]
        return table.drop_columns(hidden)

    def read_optimized(self, path: str | Path, **how: Any) -> pa.Table:
        """The rows of the base files alone."""
        return self._query(path, {"hoodie.datasource.query.type": "read_optimized"}, how)

    def as_of(self, path: str | Path, instant: str, **how: Any) -> pa.Table:
        """The rows as they stood at an instant (requested or completion time)."""
        return self._query(path, {"as.of.instant": instant}, how)

    def incremental(self, path: str | Path, start: str, end: str | None = None, **how: Any) -> pa.Table:
        """The rows written after `start` up to `end`: completion times, in version 6 requested ones; "000": from the first."""
        return self._query(path, self._range(path, start, end), how)

    def changes(self, path: str | Path, start: str, end: str | None = None) -> pa.Table:
        """The change records of that range: `op`, `ts_ms`, `before`, `after` (images are JSON text)."""
        shape = {"hoodie.datasource.query.incremental.format": "cdc"}
        return self._query(path, {**self._range(path, start, end), **shape}, {})

    def _range(self, path: str | Path, start: str, end: str | None) -> dict[str, str]:
        if (
            self.bundle.startswith("1.0.")
            and len(start) == 17
            and int(table_properties(path)["hoodie.table.version"]) > 6
        ):
            start = a_millisecond_later(start)  # this release takes the start as part of the range
        bounds = {"begin": start} | ({"end": end} if end else {})
        told = {f"hoodie.datasource.read.{name}.instanttime": instant for name, instant in bounds.items()}
        return {"hoodie.datasource.query.type": "incremental", **told}

    def _query(self, path: str | Path, query: Mapping[str, str], how: Mapping[str, Any]) -> pa.Table:
        return self.snapshot(path, **{**how, "options": {**query, **(how.get("options") or {})}})

    # --- writing

    def write(
        self,
        path: str | Path,
        rows: pa.Table,
        operation: str = "upsert",
        options: Mapping[str, str] | None = None,
        *,
        index: str | None = None,
        mode: str = "append",
        hadoop: Mapping[str, str] | None = None,
    ) -> str:
        """Write `rows` to the table with Spark; returns the file name of the commit it completed last.

        `hadoop` are settings of Hadoop for this write.

        Raises:
            JudgeError: Spark refused, completed no commit, or turned the table to another version.
        """
        exists = (Path(path) / ".hoodie" / "hoodie.properties").exists()
        told = writer_options(path, operation, index, options) if exists else dict(options or {})
        before = completed_instants(path) if exists else []
        version = table_properties(path)["hoodie.table.version"] if exists else None
        with self._as_file(rows) as source:
            self.request("write", path=str(path), input=source, options=told, mode=mode, hadoop=dict(hadoop or {}))
        new = [name for name in completed_instants(path) if name not in before and name.endswith("commit")]
        now = table_properties(path)["hoodie.table.version"]
        if not new:
            raise JudgeError("no commit", f"the {operation} returned, but no commit of it completed")
        if version not in (None, now):
            raise JudgeError("upgraded", f"the {operation} turned table version {version} into {now}")
        return new[-1]

    def sql(
        self, *statements: str, settings: Mapping[str, str] | None = None, seconds: float | None = None
    ) -> list[list[dict[str, Any]]]:
        """The statements' rows, under session settings that hold for this call only; dates and the like as text."""
        answer = self.request("sql", seconds, statements=list(statements), settings=dict(settings or {}))
        return [[dict(zip(r["columns"], row, strict=True)) for row in r["rows"]] for r in answer["results"]]

    # --- judging

    def except_all(
        self,
        path: str | Path,
        expected: pa.Table,
        *,
        ignore_columns: Sequence[str] = META_COLUMNS,
        options: Mapping[str, str] | None = None,
    ) -> Answer:
        """Spark's own EXCEPT ALL both ways: `rows`, `table_only`, `expected_only` and samples, or `differs`."""
        told: dict[str, Any] = {"ignore": list(ignore_columns), "options": dict(options or {})}
        with self._as_file(expected) as source:
            return self.request("except_all", path=str(path), expected=source, **told)

    def assert_same_rows(
        self,
        path: str | Path,
        expected: pa.Table,
        *,
        ignore_columns: Sequence[str] = META_COLUMNS,
        options: Mapping[str, str] | None = None,
        what: str = "the table",
    ) -> None:
        """Spark finds exactly `expected` in the table, duplicates counted; 0.0 and -0.0 are one to Spark."""
        found = self.except_all(path, expected, ignore_columns=ignore_columns, options=options)
        if "differs" in found:
            raise AssertionError(f"{what}, as Spark {self.bundle} reads it: {found['differs']}")
        if found["table_only"] or found["expected_only"]:
            lines = [f"  {side}: {row}" for side in ("table_only", "expected_only") for row in found[f"{side}_sample"]]
            counts = f"{found['table_only']} rows only there, {found['expected_only']} rows only expected"
            raise AssertionError("\n".join([f"{what}, as Spark {self.bundle} reads it: {counts}", *lines]))

    @contextlib.contextmanager
    def _as_file(self, rows: pa.Table) -> Iterator[str]:
        self.start()
        file = self._scratch / f"rows-{self._numbers}.parquet"
        pq.write_table(_bare(rows), file)
        try:
            yield str(file)
        finally:
            file.unlink(missing_ok=True)


def _bare(rows: pa.Table) -> pa.Table:
    """`rows` without the notes of whoever wrote them: Spark believes its own old note more than the file's types."""
    return rows.replace_schema_metadata(None)
