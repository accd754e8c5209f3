"""Processes killed for real, two engines: Spark goes on after a dead lakefmt, lakefmt after a dead JVM.

Kills of the JVM come in two kinds. Once it is killed. For the other moments it is stopped (SIGSTOP), its table copied,
and let go on: what a copy holds is what a kill at that moment leaves, and one JVM serves for all of them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt.errors import LockUnavailable, WriterActive
from lakefmt.testing.invariants import check_invariants, check_no_orphans
from lakefmt.testing.model import ModelTable
from tests.judges.compare import assert_same_multiset
from tests.judges.spark import JudgeSilent, SparkJudge
from tests.judges.table_facts import completed_instants, writer_options

pytestmark = [pytest.mark.judge_spark, pytest.mark.every_second_day(0)]

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
QUICK = {"lakefmt.durability": "none", "lakefmt.write.threads": 1}
#: Whoever waits for a dead process of another engine to be dead long enough, waits no longer.
IMPATIENT = {**QUICK, "hoodie.client.heartbeat.tolerable.misses": 0}
#: How Spark undoes what others left: before its own write, or when it cleans after it, if the heartbeat has expired.
POLICIES: dict[str, dict[str, str]] = {
    "eager": {"hoodie.clean.failed.writes.policy": "EAGER"},
    "lazy": {"hoodie.clean.failed.writes.policy": "LAZY", "hoodie.clean.automatic": "true"},
    "beside others": {
        "hoodie.clean.failed.writes.policy": "LAZY",
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
        "hoodie.write.lock.filesystem.expire": "1",
    },
}
CITIES = 3


def rows(first: int, last: int, ts: int) -> pa.Table:
    numbers = range(first, last)
    columns = [
        [f"k{n:05d}" for n in numbers],
        [f"city {n % CITIES}" for n in numbers],
        [ts] * len(numbers),
        [n * ts / 4 for n in numbers],
    ]
    return pa.table(columns, schema=SCHEMA)


class Scene:
    """A table on the disk and the model of what it holds."""

    def __init__(self, root: Path, version: int = 8) -> None:
        self.root = root
        self.model = ModelTable("id", "city", "ts")
        table = lakefmt.create_table(
            str(root),
            schema=SCHEMA,
            record_key="id",
            partition_by="city",
            ordering="ts",
            table_version=version,
            options=QUICK,
        )
        table.upsert(self.told(rows(0, 60, ts=1)))

    def told(self, batch: pa.Table) -> pa.Table:
        """Upsert a batch into the model; give it back for the table."""
        self.model.upsert(batch.to_pylist())
        return batch

    def opened(self) -> lakefmt.Table:
        return lakefmt.open_table(str(self.root), options=IMPATIENT)

    def expected(self) -> pa.Table:
        return pa.Table.from_pylist([dict(row) for row in self.model.rows()], schema=SCHEMA)


# --- lakefmt dies, Spark goes on --------------------------------------------------------------------------------------

#: Reads jobs, one per line; for each a child upserts and dies before the effect with that number (0: lives, and counts).
VICTIMS = """
import json, os, sys
import lakefmt, pyarrow.parquet, pyarrow.dataset, lakefmt._core.write.pipeline
from lakefmt.testing.crash import count_effects, die_at

def upsert(root, batch, effect, told):
    table = lakefmt.open_table(root, options={"lakefmt.durability": "none", "lakefmt.write.threads": 1})
    rows = pyarrow.parquet.read_table(batch)
    counted = count_effects()
    die_at(effect or 10**9)
    table.upsert(rows)
    os.write(told, str(counted()).encode())

for line in sys.stdin:
    root, batch, effect = json.loads(line)
    listen, told = os.pipe()
    child = os.fork()
    if not child:
        upsert(root, batch, effect, told)
        os._exit(0)
    os.close(told)
    _, status = os.waitpid(child, 0)
    print(json.dumps([status, int(os.read(listen, 20) or 0)]), flush=True)
    os.close(listen)
"""

#: Version, policy, and before which of its effects the process dies, as a share of all of them.
DEATHS = [
    *((8, "eager", share) for share in (0.05, 0.25, 0.35, 0.45, 0.7, 1.0)),
    *((8, "lazy", share) for share in (0.25, 0.7, 1.0)),
    *((6, "eager", share) for share in (0.25, 0.7)),
    *((9, "eager", share) for share in (0.7,)),
]


@contextmanager
def victims() -> Iterator[Callable[[Path, Path, int], int]]:
    """Give a function that lets a process of lakefmt upsert a batch and die; 0: not die, but return its effects."""
    with subprocess.Popen(
        [sys.executable, "-c", VICTIMS],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def die(root: Path, batch: Path, effect: int) -> int:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([str(root), str(batch), effect]) + "\n")
            process.stdin.flush()
            status, effects = json.loads(process.stdout.readline())
            assert status == (signal.SIGKILL if effect else 0), f"{root.name} ended with {status}"
            return int(effects)

        yield die
        assert process.stdin is not None
        process.stdin.close()


def spark_upserts(scene: Scene, batch: Path, policy: str) -> dict[str, Any]:
    options = writer_options(scene.root, "upsert", "BLOOM", POLICIES[policy])
    return {"op": "write", "path": str(scene.root), "input": str(batch), "options": options, "mode": "append"}


def data_files(root: Path, instant: str) -> list[str]:
    return sorted(p.name for p in root.rglob("*.parquet") if instant in p.name)


def test_spark_goes_on_after_a_lakefmt_that_was_killed(tmp_path: Path, spark_judge: SparkJudge) -> None:
    doomed, next_batch = tmp_path / "doomed.parquet", tmp_path / "next.parquet"
    pq.write_table(rows(30, 90, ts=2), doomed)
    pq.write_table(rows(50, 100, ts=3), next_batch)
    scenes: list[tuple[str, Scene, str]] = []
    left: set[str] = set()
    with victims() as die:
        effects = die(Scene(tmp_path / "counted").root, doomed, 0)
        for version, policy, share in DEATHS:
            number = max(1, round(effects * share))
            story = f"version {version}, {policy}, effect {number} of {effects}"
            scene = Scene(tmp_path / f"{version}-{policy}-{number}", version)
            die(scene.root, doomed, number)
            scenes.append((story, scene, policy))
    for story, scene, _ in scenes:
        stage = _traces(scene)
        left.add(stage)
        if stage == "committed":
            scene.told(rows(30, 90, ts=2))
        assert_same_multiset(scene.opened().read(), scene.expected(), what=f"{story}: before or after")
        for beat in (scene.root / ".hoodie/.heartbeat").glob("*"):
            os.utime(beat, (1, 1))  # it died long ago
    assert left == {"nothing yet", "pending", "files", "committed"}, f"the kills missed a stage: {left}"
    written = spark_judge.batch([spark_upserts(scene, next_batch, policy) for _, scene, policy in scenes])
    for (story, scene, _), answer in zip(scenes, written, strict=True):
        assert "error" not in answer, f"{story}: {answer}"
        scene.told(rows(50, 100, ts=3))
        assert_same_multiset(scene.opened().read(), scene.expected(), what=f"{story}: after Spark's write")
        _no_pending_files(scene, story)
        scene.opened().upsert(scene.told(rows(0, 1, ts=9)))
        check_invariants(scene.opened())
        check_no_orphans(scene.opened())
    _spark_agrees(spark_judge, [(story, scene) for story, scene, _ in scenes], tmp_path)


def _traces(scene: Scene) -> str:
    """How far the dead write had come."""
    timeline = scene.opened().timeline.timeline
    if not timeline.pending:
        return "committed" if len(timeline.commits) > 1 else "nothing yet"
    return "files" if data_files(scene.root, timeline.pending[-1].time) else "pending"


def _no_pending_files(scene: Scene, story: str) -> None:
    """Spark has undone the dead write: it is not pending, and its files are gone."""
    timeline = scene.opened().timeline.timeline
    assert not timeline.pending, f"{story}: {[str(i) for i in timeline.pending]}"
    known = {i.time for i in timeline.commits}
    strange = [p.name for p in scene.root.rglob("*.parquet") if p.stem.rsplit("_", 1)[-1] not in known]
    assert not strange, f"{story}: {strange}"


def _spark_agrees(judge: SparkJudge, scenes: list[tuple[str, Scene]], folder: Path) -> None:
    """Spark's own EXCEPT ALL, for all tables in one go."""
    asked = []
    for number, (_, scene) in enumerate(scenes):
        file = folder / f"expected-{number}.parquet"
        pq.write_table(scene.expected(), file)
        ignored = [name for name in scene.opened().read(meta_columns=True).column_names if name.startswith("_hoodie")]
        asked.append({"op": "except_all", "path": str(scene.root), "expected": str(file), "ignore": ignored})
    for (story, _), found in zip(scenes, judge.batch(asked), strict=True):
        assert (found.get("table_only"), found.get("expected_only")) == (0, 0), f"{story}: {found}"


def test_no_death_leaves_a_temporary_file_beside_a_marker(tmp_path: Path, spark_judge: SparkJudge) -> None:
    """A temporary file there would make Spark overlook the markers and leave the data files that they announce."""
    doomed, next_batch = tmp_path / "doomed.parquet", tmp_path / "next.parquet"
    pq.write_table(rows(30, 90, ts=2), doomed)
    pq.write_table(rows(50, 100, ts=3), next_batch)
    chosen = None
    with victims() as die:
        effects = die(Scene(tmp_path / "counted").root, doomed, 0)
        for number in range(round(effects * 0.4), effects):
            scene = Scene(tmp_path / f"{number}")
            die(scene.root, doomed, number)
            assert not list((scene.root / ".hoodie/.temp").glob("**/.lakefmt-tmp-*")), f"effect {number}"
            if _traces(scene) == "files":
                chosen = scene
    assert chosen is not None
    (answer,) = spark_judge.batch([spark_upserts(chosen, next_batch, "eager")])
    assert "error" not in answer
    _no_pending_files(chosen, "the last death before the commit")


# --- the JVM dies, lakefmt goes on ------------------------------------------------------------------------------------

#: Stage → whether a table that Spark is writing to has come so far.
STAGES: dict[str, Callable[[Path], bool]] = {
    "requested": lambda root: _has(root / ".hoodie/timeline", ".requested"),
    "inflight": lambda root: _has(root / ".hoodie/timeline", ".inflight"),
    "marked": lambda root: any((root / ".hoodie/.temp").glob("*/*/*")),
    "half written": lambda root: _new_files(root) > 0,
    "all written": lambda root: _new_files(root) >= CITIES,
}
KILLED_AT = list(STAGES)[-1]
MOMENTS = {**STAGES, "locked": lambda root: (root / ".hoodie/lock").exists()}


def _has(folder: Path, ending: str) -> bool:
    """Whether the second commit has a file of that kind."""
    return sum(entry.name.endswith(ending) and not entry.name.startswith(".") for entry in os.scandir(folder)) > 1


def _new_files(root: Path) -> int:
    return sum(1 for _ in root.glob("city*/*.parquet")) - CITIES


@contextmanager
def writing(judge: SparkJudge, scene: Scene, batch: Path, policy: str = "eager") -> Iterator[Future[dict[str, Any]]]:
    """Spark upserts in the background."""
    request = spark_upserts(scene, batch, policy)
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(lambda: judge.request(**request))


def stopped_at(stage: str, scene: Scene, going: Future[dict[str, Any]], judge: SparkJudge) -> bool:
    """Watch the table until the stage is there and stop the JVM; False, and let it go on, when it was faster."""
    while not _is_at(stage, scene) and not going.done():
        pass
    os.killpg(_group(judge), signal.SIGSTOP)
    if not going.done() and _is_at(stage, scene) and len(completed_instants(scene.root)) == 1:
        return True
    os.killpg(_group(judge), signal.SIGCONT)
    return False


def _is_at(stage: str, scene: Scene) -> bool:
    try:
        return MOMENTS[stage](scene.root)
    except FileNotFoundError:  # a directory of markers went while it was listed: the write is over
        return False


def _group(judge: SparkJudge) -> int:
    worker = judge._worker
    assert worker is not None
    return worker._process.pid


def test_lakefmt_goes_on_after_a_jvm_that_was_killed(tmp_path: Path, spark_judge: SparkJudge) -> None:
    batch = tmp_path / "batch.parquet"
    pq.write_table(rows(0, 90, ts=2), batch)
    spark_judge.request("ping")
    scenes = [(stage, caught(stage, tmp_path, batch, spark_judge)) for stage in STAGES]
    for stage, scene in scenes:
        _lakefmt_goes_on(stage, scene)
    _spark_agrees(spark_judge, scenes, tmp_path)


def caught(stage: str, folder: Path, batch: Path, judge: SparkJudge, policy: str = "eager") -> Scene:
    """Return a table as a JVM has left it that died at a stage of an upsert; at the last stage it does die."""
    for attempt in range(5):
        scene = Scene(folder / f"{stage} {attempt}" / "t")
        with writing(judge, scene, batch, policy) as going:
            if not stopped_at(stage, scene, going, judge):
                going.result()
                continue
            if stage == KILLED_AT:
                os.killpg(_group(judge), signal.SIGKILL)
                with pytest.raises(JudgeSilent):
                    going.result()
                return scene
            written, scene.root = scene.root, folder / f"{stage}, copied" / "t"
            shutil.copytree(written, scene.root)
            os.killpg(_group(judge), signal.SIGCONT)
            going.result()
            return scene
    raise AssertionError(f"Spark was never caught when its write was {stage}")


def _lakefmt_goes_on(stage: str, scene: Scene) -> None:
    (pending,) = scene.opened().timeline.timeline.pending
    assert_same_multiset(scene.opened().read(), scene.expected(), what=f"{stage}: nothing of it shows")
    with pytest.raises(WriterActive, match=pending.time):
        lakefmt.open_table(str(scene.root), options=QUICK).upsert(rows(0, 1, ts=3))
    scene.opened().upsert(scene.told(rows(40, 70, ts=3)))
    assert_same_multiset(scene.opened().read(), scene.expected(), what=f"{stage}: after our write")
    assert not data_files(scene.root, pending.time), stage
    check_invariants(scene.opened())
    check_no_orphans(scene.opened())


def test_a_lock_that_a_jvm_left_is_taken_over_once_it_has_expired(tmp_path: Path, spark_judge: SparkJudge) -> None:
    batch = tmp_path / "batch.parquet"
    pq.write_table(rows(0, 90, ts=2), batch)
    scene = caught("locked", tmp_path, batch, spark_judge, "beside others")
    lock = scene.root / ".hoodie/lock"
    beside = {key: value.lower() if value.isupper() else value for key, value in POLICIES["beside others"].items()}
    told = {**IMPATIENT, **beside, "hoodie.write.lock.filesystem.expire": 1, "hoodie.write.lock.wait_time_ms": 50}
    os.utime(lock)
    for expire in (0, 1):
        with pytest.raises(LockUnavailable, match="lock"):
            lakefmt.open_table(str(scene.root), options={**told, "hoodie.write.lock.filesystem.expire": expire}).upsert(
                rows(0, 1, ts=3)
            )
    os.utime(lock, (time.time() - 61, time.time() - 61))
    lakefmt.open_table(str(scene.root), options=told).upsert(scene.told(rows(40, 70, ts=3)))
    assert not lock.exists()
    assert_same_multiset(scene.opened().read(), scene.expected(), what="after the lock was taken over")
    assert not scene.opened().timeline.timeline.pending
    check_invariants(scene.opened())
    check_no_orphans(scene.opened())
    _spark_agrees(spark_judge, [("taken over", scene)], tmp_path)
