"""A driver of PySpark that is killed with its JVM, again and again, writes every batch of its stream once.

`make test-all` asks for it. ``test_spark_stream_kills.py`` has the same without Spark, at more moments.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import lakefmt
from lakefmt.spark.streams.sink import list_labels
from tests.judges.spark import spark_environment
from tests.spark.stream_scenarios import feed

HERE = Path(__file__).parent
THOROUGH = os.environ.get("LAKEFMT_HYPOTHESIS") == "thorough"
#: Moment of a kill (see ``killed_driver.py``) → how often it is chosen.
MOMENTS = {"commit": 7, "effect": 7, "time": 5, "task": 3}
#: So many batches wait for a driver: more than it writes before it is killed.
AHEAD = 10
FEW, MANY = 4, 40
SECONDS = 240


def rows_of_batch(batch: int) -> list[str]:
    return [f"{batch}-{n}" for n in range(MANY if batch % 3 == 1 else FEW)]


class Stream:
    """One stream in a folder: its files, its checkpoint and its table.

    Args:
        python: an interpreter with PySpark.
        root: the folder.
    """

    def __init__(self, python: str, root: Path) -> None:
        self.python, self.root, self.fed = python, root, 0
        self.log = root / "log"

    @property
    def committed(self) -> int:
        """How many batches Spark's own log has."""
        log = self.root / "checkpoint" / "commits"
        return (
            1 + max((int(file.name) for file in log.iterdir() if file.name.isdigit()), default=-1)
            if log.exists()
            else 0
        )

    @property
    def labelled(self) -> list[int]:
        """The numbers of the batches that commits of the table have, newest first."""
        with suppress(lakefmt.errors.TableNotFound):
            client = lakefmt.open_table(self.root / "table").client
            return [label.batch for label in list_labels(client, "default_single_writer")]
        return []

    def add_batches(self, ahead: int) -> None:
        """Let so many batches wait."""
        for batch in range(self.fed, self.committed + ahead):
            # Spark sorts files by their times, and its log of files that it has seen ends with the batches that it has planned.
            feed(
                self.root / "in",
                batch,
                [{"id": key, "v": n % 2, "ts": batch} for n, key in enumerate(rows_of_batch(batch))],
            )
            self.fed = batch + 1

    @contextmanager
    def driver(self, moment: str, number: int = 0, *, looks: bool = True) -> Iterator[subprocess.Popen[str]]:
        """Start a driver; yield it when its query is about to start, and see that nothing of it is left."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHON", "COV"))}
        kept |= {"JAVA_HOME": str(spark_environment().java), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONWARNINGS": "ignore"}
        kept |= {"PYTHONPATH": os.pathsep.join(map(str, (HERE.parents[1], HERE, HERE / "preloaded")))}
        command = [self.python, str(HERE / "killed_driver.py"), str(self.root), moment, str(number), str(looks)]
        with (
            self.log.open("a") as log,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=kept, cwd=self.root, start_new_session=True
            ) as driver,
        ):
            try:
                assert driver.stdout is not None
                jvm = int(driver.stdout.readline() or 0)
                assert jvm, self.log.read_text("utf-8")[-4000:]
                assert os.getpgid(jvm) == driver.pid
                yield driver
                driver.wait(SECONDS)
                wait_for_end(jvm)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(driver.pid, signal.SIGKILL)

    def run(self, moment: str, number: int = 0, *, looks: bool = True) -> int:
        """Run a driver until it ends by itself; return its exit code."""
        with self.driver(moment, number, looks=looks) as driver:
            pass
        return driver.returncode

    def rows(self) -> list[str]:
        """The rows of the table."""
        return sorted(lakefmt.open_table(self.root / "table").read(["id"]).column("id").to_pylist())

    def expected(self) -> list[str]:
        """The rows of all batches."""
        return sorted(key for batch in range(self.fed) for key in rows_of_batch(batch))

    def pending(self) -> list[str]:
        """What is begun and not done in the table."""
        with suppress(lakefmt.errors.TableNotFound):
            return [str(instant) for instant in lakefmt.open_table(self.root / "table").client.load().timeline.pending]
        return []


def wait_for_end(process: int) -> None:
    """Return when a process that was killed is gone, or waits for nothing but its parent."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            state = Path("/proc", str(process), "stat").read_text("ascii").rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":
            return
        time.sleep(0.05)
    raise AssertionError("the JVM lives on")


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not THOROUGH, reason="takes a quarter of an hour and 23 JVMs: make test-all asks for it")
def test_a_driver_that_is_killed_with_its_jvm_writes_every_batch_once(python_newest, tmp_path):
    stream, chosen = Stream(python_newest, tmp_path), random.Random(19)
    moments = [moment for moment, often in MOMENTS.items() for _ in range(often)]
    chosen.shuffle(moments)
    between = unfinished = 0
    for moment in moments:
        stream.add_batches(AHEAD)
        if moment == "time":
            with stream.driver(moment) as driver:
                assert driver.stdout.readline(), stream.log.read_text("utf-8")[-4000:]
                time.sleep(chosen.uniform(0, 6))
                os.killpg(driver.pid, signal.SIGKILL)
            code = driver.returncode
        else:
            code = stream.run(moment, chosen.randint(1, 80 if moment == "effect" else 3))
        assert code == -signal.SIGKILL, (moment, stream.log.read_text("utf-8")[-4000:])
        between += max(stream.labelled, default=-1) >= stream.committed
        unfinished += bool(stream.pending())
    stream.add_batches(2)
    assert stream.run("end") == 0, stream.log.read_text("utf-8")[-4000:]
    print(f"{len(moments)} kills, {between} between the two commits, {unfinished} in a write; {stream.fed} batches")
    assert between >= MOMENTS["commit"]
    assert unfinished >= MOMENTS["task"]
    assert stream.rows() == stream.expected()
    assert stream.labelled == list(reversed(range(stream.fed)))
    table = lakefmt.open_table(tmp_path / "table")
    assert [str(finding) for finding in table.check("full").findings] == []
    assert stream.pending() == []


@pytest.mark.skipif(not THOROUGH, reason="takes two JVMs each: make test-all asks for it")
@pytest.mark.parametrize("looks", [True, False], ids=["looks", "does not look"])
def test_a_driver_that_does_not_look_for_labels_doubles_a_batch(python_newest, tmp_path, looks):
    """The sabotage twin."""
    stream = Stream(python_newest, tmp_path)
    stream.add_batches(2)
    assert stream.run("commit", 1) == -signal.SIGKILL
    assert stream.run("end", looks=looks) == 0, stream.log.read_text("utf-8")[-4000:]
    doubled = [] if looks else rows_of_batch(0)
    assert stream.rows() == sorted([*stream.expected(), *doubled])
