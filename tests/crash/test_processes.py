"""Real processes: the seam run twice and dying half-way, and writers killed at random moments."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from tests.kit import SECONDS_FOR_A_CHILD, values_of_run

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])

WORKER = """
import os, pickle, sys
from lakefmt import lowlevel
context, assignment, batches = pickle.load(open(sys.argv[1], "rb"))
if sys.argv[2] == "die":
    import lakefmt._core.write.files.base_file as files
    real = files.FileInProgress.finish
    def finish(self):
        os.kill(os.getpid(), 9)
    files.FileInProgress.finish = finish
if sys.argv[2] == "wait":
    sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
status = lowlevel.write_files(context, assignment, batches)
pickle.dump(status, open(sys.argv[3], "wb"))
"""


def rows(ids: Sequence[int], ts: int = 1, cities: tuple[str, ...] = ("sf", "oslo")) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{i:05d}" for i in ids],
            "city": [cities[i % len(cities)] for i in ids],
            "ts": [ts] * len(ids),
            "v": [i * ts for i in ids],
        },
        schema=SCHEMA,
    )


def data_files(root: Path) -> set[str]:
    """Every file of the table that is not Hudi's own book-keeping, temporary ones included."""
    found = {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}
    return {n for n in found if not n.startswith(".hoodie/") and not n.endswith(".hoodie_partition_metadata")}


def test_workers_run_twice_at_once_and_die_half_way(tmp_path: Path) -> None:
    table = lakefmt.create_table(
        str(tmp_path / "t"), schema=SCHEMA, record_key="id", partition_by="city", ordering="ts"
    )
    table.upsert(rows(range(100)))
    context = lowlevel.begin_write(table, "upsert")
    assert pickle.loads(pickle.dumps(context)) == context
    work = lowlevel.assign(context, rows(range(50, 150), ts=2))
    assert len(work) == 2
    jobs = []
    for number, (assignment, batches) in enumerate(work):
        job = tmp_path / f"job{number}"
        job.write_bytes(pickle.dumps((context, assignment, batches)))
        jobs.append(job)
    with _worker(jobs[0], "die", tmp_path / "none") as dead:
        assert dead.wait(SECONDS_FOR_A_CHILD) == -signal.SIGKILL
    assert not (tmp_path / "none").exists()
    with ExitStack() as stack:
        repeated = stack.enter_context(_worker(jobs[0], "once", tmp_path / "s0"))
        twins = [stack.enter_context(_worker(jobs[1], "wait", tmp_path / f"s1{x}")) for x in "ab"]
        for twin in twins:
            assert twin.stdout is not None
            assert twin.stdout.readline() == "ready\n"
        for twin in twins:
            assert twin.stdin is not None
            twin.stdin.write("go\n")
            twin.stdin.flush()
        assert [p.wait(SECONDS_FOR_A_CHILD) for p in (repeated, *twins)] == [0, 0, 0]
    statuses = [pickle.loads((tmp_path / name).read_bytes()) for name in ("s0", "s1a", "s1b")]
    assert statuses[1].stat == statuses[2].stat
    result = lowlevel.commit(context, statuses)
    assert (result.num_inserts, result.num_updates) == (50, 50)
    expected = {**{f"k{i:05d}": i for i in range(50)}, **{f"k{i:05d}": i * 2 for i in range(50, 150)}}
    read = table.read()
    assert dict(zip(read["id"].to_pylist(), read["v"].to_pylist(), strict=True)) == expected
    assert read.num_rows == 150
    in_commits = {f.path for entry in (table.file_groups(),) for s in entry if s.base for f in [s.base]}
    stray = {n for n in data_files(tmp_path / "t") if n not in in_commits and context.instant in n}
    assert not stray
    assert not [n for n in data_files(tmp_path / "t") if "tmp" in n]


def _worker(job: Path, mode: str, out: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(job), mode, str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


#: Few of them get a file each; of many, files are written and put together.
MANY = tuple(f"city-{number}" for number in range(80))

VICTIM = """
import sys, pyarrow as pa, lakefmt
from lakefmt.testing.crash import die_at
die_at(int(sys.argv[2]))
sys.path.insert(0, sys.argv[3])
from test_processes import MANY, rows
table = lakefmt.open_table(sys.argv[1])
table.upsert(rows(range(50, 150), ts=2, cities=MANY[:int(sys.argv[4])]))
print("survived")
"""


@pytest.mark.parametrize(
    ("seed", "cities", "effects"),
    [
        *((seed, 2, 40) for seed in values_of_run(range(10), 2)),
        *((seed, 80, 460) for seed in values_of_run(range(10, 20))),
    ],
)
def test_a_killed_upsert_leaves_the_state_before_or_after(tmp_path: Path, seed: int, cities: int, effects: int) -> None:
    """With many partitions thirty files are new and fifty are rewritten."""
    root, among = tmp_path / "t", MANY[:cities]
    table = lakefmt.create_table(str(root), schema=SCHEMA, record_key="id", partition_by="city", ordering="ts")
    table.upsert(rows([number for number in range(100) if cities == 2 or number % 80 < 50], cities=among))
    before = sorted(zip(*(c.to_pylist() for c in table.read(["id", "v"]).columns), strict=True))
    effect = random.Random(seed).randint(1, effects)
    died = subprocess.run(
        [sys.executable, "-c", VICTIM, str(root), str(effect), str(Path(__file__).parent), str(cities)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=SECONDS_FOR_A_CHILD,
    )
    assert died.returncode == -signal.SIGKILL or "survived" in died.stdout, died.stderr
    new = {**dict(before), **{f"k{i:05d}": i * 2 for i in range(50, 150)}}
    after = sorted(new.items())
    found = sorted(zip(*(c.to_pylist() for c in table.read(["id", "v"]).columns), strict=True))
    assert found in (before, after)
    table.upsert(rows(range(50, 150), ts=3, cities=among))
    final = {**dict(before), **{f"k{i:05d}": i * 3 for i in range(50, 150)}}
    assert sorted(zip(*(c.to_pylist() for c in table.read(["id", "v"]).columns), strict=True)) == sorted(final.items())
    committed = {stat.path for i in table.timeline.timeline.commits for stat in _stats(table, i)}
    assert data_files(root) == committed, "no orphan and no temporary file is left"
    assert not list((root / ".hoodie/.temp").iterdir())
    assert not list((root / ".hoodie/.heartbeat").iterdir())


def _stats(table: lakefmt.Table, instant):  # type: ignore[no-untyped-def]
    return table.client.at(table.client.load()).commit_metadata(instant).stats
