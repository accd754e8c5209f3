"""Real processes on one table under Hudi's file-system lock, one of them killed every now and then.

Four processes of lakefmt upsert, insert, delete and clean; in a test of its own Spark is the fifth, and dies, too: the JVM and
all that it started. It upserts in a partition of its own and inserts, in file groups of their own, into the partitions of
the others. Each writes down what it is about to do and what it was told – of Spark that is what its process answers once the
write has returned. Afterwards the table holds the union of what was acknowledged, of what a dead process was at all or
nothing, no pending instant, and no file that no commit names.

A dead process of lakefmt leaves a lock file that names it, and it is removed. That of a JVM names nobody: in the short form it
is removed, in the long one it expires (Hudi counts minutes; it neither touches its file nor proves it, so no JVM may hold it
for longer than that).

CI runs this for seconds; ``LAKEFMT_HYPOTHESIS=thorough`` (`make test-all`) for three minutes.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt.testing.invariants import check_invariants, check_no_orphans
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.spark import JudgeError, JudgeSilent, SparkJudge

THOROUGH = os.environ.get("LAKEFMT_HYPOTHESIS") == "thorough"
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
LOCK = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
MANY: dict[str, object] = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": LOCK,
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
}
SPARK = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": LOCK,
    "hoodie.write.lock.wait_time_ms": "20000",
    "hoodie.write.lock.num_retries": "200",
    "hoodie.write.lock.wait_time_ms_between_retry": "100",
    "hoodie.write.lock.client.num_retries": "3",
    "hoodie.write.num.retries.on.conflict.failures": "5",
    "hoodie.metadata.enable": "false",
    "hoodie.bulkinsert.shuffle.parallelism": "1",
    "hoodie.upsert.shuffle.parallelism": "1",
    "hoodie.insert.shuffle.parallelism": "1",
    # New rows in file groups of their own: with others at its files it would hardly ever come through.
    "hoodie.parquet.small.file.limit": "0",
}
#: With Spark beside: a dead JVM is told by its heartbeat, and its lock by the age of the file.
WITH_SPARK: dict[str, object] = {
    "hoodie.client.heartbeat.interval_in_ms": 5000,
    "hoodie.client.heartbeat.tolerable.misses": 3,
    "hoodie.write.lock.filesystem.expire": 1 if THOROUGH else 0,
    "hoodie.write.lock.wait_time_ms": 100_000,
}
#: Spark asks for the lock four times 20 s: longer than its file takes to expire.
SPARK |= {key: str(value) for key, value in WITH_SPARK.items() if key != "hoodie.write.lock.wait_time_ms"}
SHARED = 3
PROCESSES = 4

#: Reads names, one per line; for each a child begins to write, whose process id is the answer. It stops when told to.
NURSERY = """
import json, os, signal, sys, time
import pyarrow as pa, pyarrow.dataset, lakefmt, lakefmt._core.write.pipeline, lakefmt._core.compaction.clean_run
from lakefmt.errors import CommitConflict, LeaseLost, LockUnavailable, SnapshotExpired, WriterActive
sys.path.insert(0, sys.argv[3])
from test_many_processes import MANY, SHARED, rows
root, logs = sys.argv[1:3]
MANY |= json.loads(sys.argv[5])

def work(name, out):
    def tell(**what):
        os.write(out, (json.dumps(what) + chr(10)).encode())
    table = lakefmt.open_table(root, options=MANY)
    mine, number = [], 0
    while not os.path.exists(logs + "/stop"):
        time.sleep(float(sys.argv[4]))
        number += 1
        gone = mine.pop(0) if len(mine) > 6 else None
        new = [] if gone else [f"{name}.{number}"]
        shared = [] if gone or number % 3 == 0 else [f"shared{number % SHARED}"]
        v = int(time.time() * 1e6)
        tell(number=number, adds=new, removes=[gone] if gone else [], shared=shared, v=v)
        try:
            if gone:
                table.delete([gone])
            elif shared:
                table.upsert(rows(new + shared, v))
            else:
                table.insert(rows(new, v))
        except (CommitConflict, LeaseLost, LockUnavailable) as error:
            tell(refused=number, why=repr(error)[:300])
            mine += [gone] if gone else []
            continue
        tell(done=number)
        mine += new
        try:
            if number % 5 == 0:
                table.clean(options={"hoodie.clean.commits.retained": 3})
        except (WriterActive, LockUnavailable, LeaseLost) as error:
            tell(cleaned=repr(error)[:300])
    tell(ended=True)

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    name = line.strip()
    child = os.fork()
    if not child:
        os.dup2(os.open(f"{logs}/{name}.err", os.O_WRONLY | os.O_CREAT), 2)
        try:
            work(name, os.open(f"{logs}/{name}", os.O_WRONLY | os.O_CREAT))
        except BaseException:
            import traceback
            traceback.print_exc()
        os._exit(0)
    print(child, flush=True)
"""


def rows(keys: list[str], v: int) -> pa.Table:
    cities = [key[:6] if key.startswith(("shared", "spark.")) else f"city {sum(key.encode()) % 3}" for key in keys]
    return pa.table({"id": keys, "city": cities, "ts": [1] * len(keys), "v": [v] * len(keys)}, schema=SCHEMA)


@dataclass
class Fleet:
    """The processes, what they said, and who died."""

    root: Path
    logs: Path
    dice: random.Random
    nursery: subprocess.Popen[str]
    spark: SparkWriter | None = None
    alive: dict[str, int] = field(default_factory=dict)
    begun: int = 0
    killed: int = 0
    due: list[str] = field(default_factory=list)
    owed: bool = False

    def begin(self) -> None:
        self.begun += 1
        name = f"p{self.begun}"
        assert self.nursery.stdin is not None
        assert self.nursery.stdout is not None
        self.nursery.stdin.write(f"{name}\n")
        self.nursery.stdin.flush()
        self.alive[name] = int(self.nursery.stdout.readline())

    def kill_one(self) -> None:
        """Kill one that is at work, Spark in its turn, and let another one begin."""
        if self.spark is not None and not self.due:
            self.due = [*["lakefmt"] * (PROCESSES - 1 if THOROUGH else 1), "spark"]
            self.dice.shuffle(self.due)
        self.owed |= bool(self.due) and self.due.pop() == "spark"
        if self.owed and self.spark is not None and self.spark.dies():
            self.owed = False
        else:
            self._kill_ours()

    def _kill_ours(self) -> None:
        busy = [name for name in self.alive if (self.logs / name).exists() and (self.logs / name).stat().st_size]
        if not busy:
            return
        pid = self.alive.pop(self.dice.choice(busy))
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid))
        self.killed += 1
        remove_lock(self.root, lambda stamp: stamp.get("pid") == pid)
        self.begin()

    def finish(self) -> None:
        (self.logs / "stop").touch()
        for name, pid in self.alive.items():
            wait_until(lambda pid=pid: not is_alive(pid))
            assert '"ended"' in (self.logs / name).read_text(), (self.logs / f"{name}.err").read_text()[-3000:]
        self.alive.clear()

    def stop(self) -> None:
        for pid in self.alive.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def said(self) -> list[list[dict[str, Any]]]:
        found = []
        for path in sorted(self.logs.glob("p*")):
            if path.suffix != ".err":  # a last line may be torn
                lines = path.read_text().splitlines()
                found.append([json.loads(line) for line in lines if line.endswith("}")])
        return found

    def acknowledged(self) -> int:
        """How many writes of lakefmt's processes have returned."""
        return sum("done" in step for said in self.said() for step in said)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(told: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not told():
        assert time.monotonic() < deadline, "a process does not end"
        time.sleep(0.01)


@contextlib.contextmanager
def fleet_at(root: Path, logs: Path, seed: int, spark: SparkWriter | None = None) -> Iterator[Fleet]:
    """Begin the processes; whoever is left at the end is killed."""
    logs.mkdir()
    beside: list[object] = [0.0, json.dumps({})] if spark is None else [0.3, json.dumps(WITH_SPARK)]
    with subprocess.Popen(
        [sys.executable, "-c", NURSERY, str(root), str(logs), str(Path(__file__).parent), *map(str, beside)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as nursery:
        fleet = Fleet(root, logs, random.Random(seed), nursery, spark)
        try:
            for _ in range(PROCESSES):
                fleet.begin()
            yield fleet
        finally:
            fleet.stop()
            nursery.kill()


def remove_lock(root: Path, is_dead: Callable[[dict[str, Any]], bool]) -> None:
    """Do what the message of those who wait says: remove the file of a dead holder, known by what it says."""
    lock = root / ".hoodie/lock"
    try:
        said = json.loads(lock.read_bytes() or b"{}")
    except FileNotFoundError:
        return
    except ValueError:
        said = {}  # the words of a JVM
    if is_dead(said):
        lock.unlink(missing_ok=True)


@dataclass
class SparkWriter:
    """The writer that Spark is: one write after the other, killed and begun anew.

    Attributes:
        told: what it was about to do, and what its process has acknowledged.
        errors: what it refused.
        killed: how often it was killed, always in a write, after it had acknowledged another.
        locked: how often it held the lock when it died.
    """

    judge: SparkJudge
    root: Path
    told: list[dict[str, Any]] = field(default_factory=list)
    errors: list[JudgeError] = field(default_factory=list)
    number: int = 0
    written: int = 0
    at_work: bool = False
    killed: int = 0
    locked: int = 0

    def write(self) -> None:
        """Insert among the others, or upsert in its own partition: among quicker writers of one group it would starve."""
        self.judge.request("ping")  # a new process after a death
        self.number += 1
        n, v = self.number, int(time.time() * 1e6)
        verb = "insert" if n % 2 else "upsert"
        new = [f"shared.{n}", *(f"jvm.{n}.{i}" for i in range(3))] if n % 2 else [f"spark.{n}"]
        old = [] if n % 2 else ["spark.first"]
        self.told.append({"number": n, "adds": new, "removes": [], "shared": old, "v": v})
        killed, self.at_work = self.killed, self.written > 0
        try:
            self.judge.write(self.root, rows(new + old, v), verb, index="BLOOM", options=SPARK)
        except JudgeSilent:
            assert self.killed > killed, "nobody killed it"
            self.written = 0
        except JudgeError as error:
            self.errors.append(error)
        else:
            self.told.append({"done": n})
            self.written += 1
        finally:
            self.at_work = False

    def dies(self) -> bool:
        """Kill the process and all that it started, if it is at a write; tell whether it was."""
        worker = self.judge._worker
        if not self.at_work or worker is None:
            return False
        group = worker._process.pid
        self.killed += 1
        os.killpg(group, signal.SIGKILL)
        wait_until(lambda: not any(alive_in(group)))
        lock = self.root / ".hoodie/lock"
        with contextlib.suppress(FileNotFoundError):
            self.locked += b'"pid"' not in lock.read_bytes()
        if not THOROUGH:
            remove_lock(self.root, lambda stamp: "pid" not in stamp)
        return True

    def acknowledged(self) -> int:
        return sum("done" in step for step in self.told)


def alive_in(group: int) -> Iterator[int]:
    """Yield the processes of a group; those that have ended and are not collected yet are none."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, process_group = path.read_text().rpartition(")")[2].split()[:3]
            if int(process_group) == group and state not in "ZX":
                yield int(path.parent.name)


@dataclass
class Union:
    """What must be there, what may be there, and what a key may say."""

    must: set[str] = field(default_factory=set)
    may: set[str] = field(default_factory=set)
    values: dict[str, set[int]] = field(default_factory=dict)
    acknowledged: int = 0
    torn: list[dict[str, Any]] = field(default_factory=list)

    def take(self, said: list[dict[str, Any]]) -> None:
        """Take in what one process said: its keys are its own, and it did one thing after the other."""
        outcomes = {
            **{s["done"]: True for s in said if "done" in s},
            **{s["refused"]: False for s in said if "refused" in s},
        }
        for step in (s for s in said if "number" in s):
            done = outcomes.get(step["number"])
            self.acknowledged += done is True
            for key in step["shared"] if done is not False else ():
                self.values.setdefault(key, set()).add(step["v"])
            if done is True:
                self.must |= set(step["adds"])
                self.must -= set(step["removes"])
                self.must |= set(step["shared"])
            elif done is None:  # it died over it
                self.may |= {*step["adds"], *step["removes"], *step["shared"]}
                self.must -= set(step["removes"])
                self.torn += [step]

    def check(self, table: pa.Table) -> None:
        found = table["id"].to_pylist()
        assert len(found) == len(set(found)), "a key is there twice"
        assert self.must <= set(found), f"lost: {sorted(self.must - set(found))}"
        assert set(found) <= self.must | self.may, f"from nowhere: {sorted(set(found) - self.must - self.may)}"
        for key, v in zip(found, table["v"].to_pylist(), strict=True):
            assert v in self.values.get(key, {v}), f"{key} says {v}, which nobody wrote"
        says = dict(zip(found, table["v"].to_pylist(), strict=True))
        for step in self.torn:
            there = set(step["adds"]) & says.keys()
            assert there in (set(), set(step["adds"])), f"half of it: {step}"
            if step["adds"] and not there:
                assert step["v"] not in [says.get(key) for key in step["shared"]], f"half of it: {step}"


def make(root: Path) -> lakefmt.Table:
    return lakefmt.create_table(
        str(root), schema=SCHEMA, record_key="id", partition_by="city", ordering="ts", options=MANY
    )


def run(fleet: Fleet, seconds: float, every: float, is_enough: Callable[[], bool]) -> None:
    """Let the processes work, Spark among them, and kill one every now and then, until what is wanted has happened."""
    begin, spark = time.monotonic(), fleet.spark

    def goes_on() -> bool:
        passed = time.monotonic() - begin
        return passed < seconds or (not is_enough() and passed < 2 * seconds + 60)

    def repeat() -> None:
        while spark is not None and goes_on():
            spark.write()

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(repeat)
        while goes_on() and not (working.done() and spark):
            time.sleep(every * (0.5 + fleet.dice.random()))
            fleet.kill_one()
        working.result(240)
    fleet.finish()


def settle(root: Path, fleet: Fleet, union: Union) -> lakefmt.Table:
    """Let one more writer and a clean come by, long after everybody is done or dead; compare, and return the table."""
    for said in fleet.said():
        union.take(said)
    others = {} if fleet.spark is None else WITH_SPARK
    table = lakefmt.open_table(str(root), options={**MANY, **others, "hoodie.client.heartbeat.tolerable.misses": 0})
    table.upsert(rows(["last"], 1))
    union.must.add("last")
    table.clean(options={"hoodie.clean.commits.retained": 1})
    union.check(table.read())
    assert not table.timeline.timeline.pending
    check_invariants(table)
    check_no_orphans(table)
    return table


@pytest.mark.slow
@pytest.mark.timeout(400 if THOROUGH else 150)
def test_the_table_is_the_union_of_what_was_acknowledged(tmp_path: Path, hudi_rs_judge: HudiRsJudge) -> None:
    seconds = 180.0 if THOROUGH else 4.0
    root = tmp_path / "t"
    make(root)
    union = Union()
    with fleet_at(root, tmp_path / "logs", seed=7) as fleet:
        run(fleet, seconds, 3.0 if THOROUGH else 1.0, lambda: fleet.killed >= 3 and fleet.acknowledged() >= 20)
    table = settle(root, fleet, union)
    assert fleet.killed >= 3
    assert union.acknowledged >= 20, fleet.said()
    assert_same_multiset(hudi_rs_judge.snapshot(root), table.read(), what="hudi-rs")


@pytest.mark.slow
@pytest.mark.judge_spark
@pytest.mark.every_second_day(1)
@pytest.mark.timeout(700 if THOROUGH else 420)
def test_with_a_spark_writer_beside(tmp_path: Path, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge) -> None:
    seconds, wanted = (180.0, 2) if THOROUGH else (12.0, 1)
    root = tmp_path / "t"
    make(root).upsert(rows(["spark.first"], 0))
    union = Union(must={"spark.first"}, values={"spark.first": {0}})
    spark = SparkWriter(spark_judge, root)
    spark_judge.request("ping")
    with fleet_at(root, tmp_path / "logs", seed=8, spark=spark) as fleet:
        run(fleet, seconds, 4.0, lambda: spark.killed >= wanted)
    union.take(spark.told)
    by_spark = union.acknowledged
    table = settle(root, fleet, union)
    print(
        f"killed: {fleet.killed} of lakefmt, {spark.killed} of Spark, {spark.locked} of these with the lock; "
        f"acknowledged: {union.acknowledged - by_spark} commits of lakefmt, {by_spark} of Spark; "
        f"refused by Spark: {len(spark.errors)}"
    )
    assert spark.killed >= wanted
    assert by_spark >= wanted, spark.errors
    for error in spark.errors:
        assert "oncurren" in str(error) or "lock" in str(error).lower(), str(error)
    done = {step["done"] for step in spark.told if "done" in step}
    lasting = [s["v"] for s in spark.told if s.get("number") in done and s["shared"]]
    (first,) = table.read(filter="id = 'spark.first'")["v"].to_pylist()
    assert first >= max(lasting, default=0), "an acknowledged update of Spark is lost"
    spark_judge.assert_same_rows(root, table.read(), what="Spark")
    assert_same_multiset(hudi_rs_judge.snapshot(root), table.read(), what="hudi-rs")
