"""Writes by tasks on a cluster of two hosts whose tasks fail, are slow and are killed, and whose drivers are lost.

Run by an interpreter with PySpark: python cluster_faults.py DIRECTORY ANSWERS [FAULT …]
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

import pyspark
from pyspark.sql import SparkSession
from write_scenarios import LOOK_UP, OPTIONS, frame_of  # beside this file

import lakefmt
import lakefmt.spark as lakefmt_spark
from lakefmt._core.transactions.instant import InstantTransaction
from lakefmt.errors import StorageError
from lakefmt.spark.writing import distributed

#: Fault → what a task does once, by which function its task is made, and more options.
FAULTS: dict[str, tuple[str, str, dict[str, str]]] = {
    "task fails": ("fail", "write_task", {}),
    "task is slow": ("wait", "write_task", {}),
    "executor is killed": ("kill", "write_task", {}),
    "executor is killed in the look-up": ("kill", "locate_task", LOOK_UP),
    "executor is killed after the look-up": ("kill", "group_task", LOOK_UP),
}
SECONDS_AFTER = 5
#: A writer that is dead counts as dead at once.
SOON_DEAD = {"hoodie.client.heartbeat.interval_in_ms": "1000", "hoodie.client.heartbeat.tolerable.misses": "1"}


@contextmanager
def cluster(logs: Path) -> Iterator[str]:
    """Run a master and two workers, each at an address of its own; yield the master's URL."""
    home = Path(pyspark.__file__).parent
    variables = {**os.environ, "SPARK_HOME": str(home), "SPARK_NO_DAEMONIZE": "1", "SPARK_DAEMON_MEMORY": "256m"}
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *command: str) -> Path:
        log = logs / f"{name}.log"
        with log.open("wb") as out:
            run = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{command[0]}", *command[1:]]
            started.append(subprocess.Popen(run, stdout=out, stderr=subprocess.STDOUT, env=variables))
        return log

    try:
        log = start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        url = ""
        while not url:
            time.sleep(0.5)
            found = [word for word in log.read_text("utf-8").split() if word.startswith("spark://127.0.0.1:")]
            url = found[0].rstrip(".,") if found else ""
        for host in ("127.0.0.2", "127.0.0.3"):
            work = ["--webui-port", "0", "-c", "1", "-m", "700m", "-d", str(logs / host), url]
            start(host, "worker.Worker", "--host", host, *work)
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)


def session(url: str, more: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """Return a session on the cluster in which slow tasks are doubled, with `more` settings."""
    builder = SparkSession.builder.master(url).appName("faults")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "500m",
        "spark.executor.cores": "1",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.sql.shuffle.partitions": "4",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.2",
        "spark.speculation.quantile": "0.3",
        **more,
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def once(kind: str, made: Any, marks: str) -> Any:
    """Return a task that does its work, and then fails, waits or dies, once in all."""

    def run(batches: Any) -> Any:
        answers = list(made(batches))
        mark = Path(marks, "done")
        try:
            first = bool(answers)
            if first:
                mark.touch(exist_ok=False)
        except FileExistsError:
            first = False
        if first and kind == "fail":
            raise RuntimeError("this task fails after its files")
        if first and kind == "wait":
            time.sleep(60)
        if first and kind.isdigit():
            os.kill(int(kind), signal.SIGKILL)  # the driver
            time.sleep(5)
        if first and kind == "kill":
            daemon = Path("/proc", str(os.getppid()), "stat").read_text("ascii")
            os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)  # this worker's executor
            time.sleep(5)
        yield from answers

    return run


def one_fault(spark: Any, root: Path, name: str) -> dict[str, Any]:
    """Upsert while one fault happens; return what is there afterwards."""
    kind, maker, more = FAULTS[name]
    options, path, marks = {**OPTIONS, **more}, root / name.replace(" ", "_"), root / f"marks {name}"
    marks.mkdir()
    lakefmt_spark.write(frame_of(spark, 0, 60), str(path), **options)
    made = getattr(distributed, maker)
    with mock.patch.object(distributed, maker, lambda *given: once(kind, made(*given), str(marks))):
        result = lakefmt_spark.write(frame_of(spark, 40, 80, 2.0), str(path), **options)
    return {"happened": len(list(marks.iterdir())), **left(path, result)}


def failed_commit(spark: Any, root: Path) -> dict[str, Any]:
    """Upsert, and lose the answer of the commit before it is made; then upsert again."""
    path, fails = root / "commit_fails", StorageError("the store does not answer")
    lakefmt_spark.write(frame_of(spark, 0, 60), str(path), **OPTIONS)
    happened = 0
    with mock.patch.object(InstantTransaction, "complete", side_effect=fails):
        try:
            lakefmt_spark.write(frame_of(spark, 40, 80, 2.0), str(path), **OPTIONS, **SOON_DEAD)
        except StorageError:
            happened = 1
    unchanged = lakefmt.open_table(path).read().num_rows == 60
    time.sleep(SECONDS_AFTER)
    result = lakefmt_spark.write(frame_of(spark, 40, 80, 2.0), str(path), **OPTIONS, **SOON_DEAD)
    return {"happened": happened and int(unchanged), **left(path, result)}


def lost_driver(spark: Any, root: Path, url: str) -> dict[str, Any]:
    """Kill a driver while its tasks write; then another driver writes."""
    path, marks = root / "driver_lost", root / "marks driver"
    marks.mkdir()
    lakefmt_spark.write(frame_of(spark, 0, 60), str(path), **OPTIONS)
    spark.stop()  # the other driver needs the executors
    command = [sys.executable, __file__, "--driver", url, str(path), str(marks)]
    ended = subprocess.run(command, check=False, timeout=180).returncode
    unchanged = lakefmt.open_table(path).read().num_rows == 60
    time.sleep(SECONDS_AFTER)
    result = lakefmt_spark.write(frame_of(session(url), 40, 80, 2.0), str(path), **OPTIONS, **SOON_DEAD)
    return {"happened": int(ended == -signal.SIGKILL and unchanged), **left(path, result)}


def driver(url: str, path: str, marks: str) -> None:
    """Upsert, and be killed by the first task that has written its files."""
    made = distributed.write_task
    with mock.patch.object(distributed, "write_task", lambda *given: once(str(os.getpid()), made(*given), marks)):
        lakefmt_spark.write(frame_of(session(url), 40, 80, 3.0), path, **OPTIONS, **SOON_DEAD)


def left(path: Path, result: Any) -> dict[str, Any]:
    """Return what is there after an upsert of the later rows."""
    time.sleep(SECONDS_AFTER)  # late attempts write now, if they do
    files = [file.name for file in path.rglob(f"*_{result.instant}.parquet")]
    table = lakefmt.open_table(path)
    rows = dict(zip(*table.read(["id", "v"]).to_pydict().values(), strict=True))
    return {
        "rows": rows == {f"k{n}": n * (1.5 if n < 40 else 2.0) for n in range(80)},
        "files": sorted(files) == sorted(file.file_name for file in result.files),
        "groups": len({file.split("_")[0] for file in files}) == len(files) > 0,
        "pending": [str(instant) for instant in table.client.load().timeline.pending],
        "findings": [str(finding) for finding in table.check().findings],
    }


def main() -> None:
    """Run faults and write what they left, errors included."""
    root, answers, *names = sys.argv[1:]
    told: dict[str, Any] = {}
    with cluster(Path(root)) as url:
        spark = session(url)
        spark.sparkContext.setLogLevel("OFF")
        lost: dict[str, Any] = {
            "commit fails": lambda: failed_commit(spark, Path(root)),
            "driver is lost": lambda: lost_driver(spark, Path(root), url),
        }
        for name in names or (*FAULTS, *lost):
            try:
                told[name] = lost[name]() if name in lost else one_fault(spark, Path(root), name)
            except Exception as error:
                told[name] = {"failed": f"{type(error).__name__}: {error}"}
            Path(answers).write_text(json.dumps(told), "utf-8")
        SparkSession.builder.getOrCreate().stop()


if __name__ == "__main__":
    driver(*sys.argv[2:]) if sys.argv[1] == "--driver" else main()
