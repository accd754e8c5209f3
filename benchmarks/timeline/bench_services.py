"""What services cost: planning a clean over many files, looking for services after a commit, and commits up to 10,000.

Usage::

    python -m benchmarks.timeline.bench_services [--files 10000] [--commits 10000] [--points FILE]

Commits upsert 100 rows into one file group of a local table, without syncing, with clean (two commits kept) and archive
(20 to 30) after each as they are due; their cost is theirs and their services', in processor milliseconds, beside that of
a young table. ``--points`` keeps a point for every hundred commits, for ``benchmarks.draw``: of means of ten, between two of
which one archive step comes, the median.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import uuid
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import pyarrow as pa

import lakefmt
from lakefmt._core.compaction.clean_run import plan_clean_of
from lakefmt._core.compaction.scheduler import run_services

OPTIONS = {"lakefmt.durability": "none", "hoodie.archive.automatic": "false"}
FOLLOWED = {
    "lakefmt.durability": "none",
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": 2,
    "hoodie.archive.automatic": "true",
}
BLOCK = 100
#: Commits from one archive step to the next.
ROUND = 10
OLD, YOUNG = "lakefmt, one table", "a young table beside it"


def many_files(root: Path, files: int) -> lakefmt.Table:
    """Make a table of 100 partitions with `files` base files, two slices in each file group."""
    parts = pa.table({"id": [f"k{n}" for n in range(100)], "p": [f"p{n:02d}" for n in range(100)]})
    table = lakefmt.create_table(str(root), schema=parts.schema, record_key="id", partition_by="p", options=OPTIONS)
    table.insert(parts)
    table.upsert(parts)
    for found in sorted(root.glob("p*")):
        slices = sorted(found.glob("*.parquet"))
        for _ in range(files // 200 - 1):
            group = f"{uuid.uuid4()}-0"
            for one in slices:
                # Nobody reads more of them than their names.
                os.link(one, found / f"{group}_{one.name.split('_', 1)[1]}")
    for _ in range(3):
        table.upsert(parts.slice(0, 1))
    return table


def plan_cleans(root: Path, files: int, repeat: int) -> None:
    """Print what planning the first clean of that table costs."""
    table, walls, works = many_files(root, files), [], []
    for _ in range(repeat):
        begun, worked = perf_counter(), process_time()
        plan = plan_clean_of(table.client, {"hoodie.clean.commits.retained": 1})
        walls.append(1e3 * (perf_counter() - begun))
        works.append(1e3 * (process_time() - worked))
    there = sum(1 for _ in root.glob("p*/*.parquet"))
    print(
        f"plan a clean over {there:,} files: {median(walls):.1f} ms, {median(works):.1f} ms of processor "
        f"(asked: <= 150 ms); {str(plan).splitlines()[0]}"
    )


def look_for_services(root: Path, repeat: int) -> None:
    """Print what a commit pays for asking whether a service is due."""
    rows = pa.table({"id": ["a"]})
    table = lakefmt.create_table(str(root), schema=rows.schema, record_key="id", options={"lakefmt.durability": "none"})
    for _ in range(20):
        table.upsert(rows)
    spent = []
    for _ in range(repeat):
        worked = process_time()
        run_services(table.client, {})
        spent.append(1e6 * (process_time() - worked))
    print(f"looking whether a service is due: {median(spent):.0f} us of processor")


def run_commits(root: Path, commits: int) -> dict[str, list[tuple[int, float]]]:
    """Upsert 100 rows so many times; return and print a figure for each hundred.

    After every fifth commit a young table gets one, which is made anew each hundred: what slows the machine slows both.
    """
    rows = pa.table({"id": [f"k{n:03d}" for n in range(100)], "v": list(range(100))})
    table = lakefmt.create_table(str(root / "old"), schema=rows.schema, record_key="id", options=FOLLOWED)
    lines: dict[str, list[tuple[int, float]]] = {OLD: [], YOUNG: []}
    for at in range(0, commits, BLOCK):
        young = lakefmt.create_table(str(root / f"young-{at}"), schema=rows.schema, record_key="id", options=FOLLOWED)
        young.upsert(rows)
        works: dict[str, list[float]] = {OLD: [], YOUNG: []}
        for number in range(BLOCK):
            works[OLD].append(_timed(table, rows))
            if number % 5 == 4:
                works[YOUNG].append(_timed(young, rows))
        for name, spent in works.items():
            lines[name].append((at + BLOCK, round(usual(spent), 3)))
        shutil.rmtree(root / f"young-{at}")
    ratios = [old / new for (_, old), (_, new) in zip(lines[OLD], lines[YOUNG], strict=True)]
    fifth = max(1, len(ratios) // 5)
    print(
        f"{commits:,} commits: {median(ms for _, ms in lines[OLD]):.2f} ms of processor each; beside a young table "
        f"{median(ratios[:fifth]):.2f} x in the first fifth, {median(ratios[-fifth:]):.2f} x in the last (asked: flat)"
    )
    files = sum(1 for _ in (root / "old").glob("*.parquet"))
    print(f"active at the end: {len(table.timeline)} instants, {files} data files")
    return lines


def usual(spent: list[float]) -> float:
    """Return the median of means of ten: an archive step counts, what the machine did beside it does not."""
    return median(sum(spent[at : at + ROUND]) / ROUND for at in range(0, len(spent), ROUND))


def _timed(table: lakefmt.Table, rows: pa.Table) -> float:
    worked = process_time()
    told = table.upsert(rows)
    spent = 1e3 * (process_time() - worked)
    assert not told.warnings, told.warnings
    return spent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--points", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        plan_cleans(Path(scratch) / "files", asked.files, asked.repeat)
        look_for_services(Path(scratch) / "looked", 50 * asked.repeat)
        lines = run_commits(Path(scratch) / "commits", asked.commits)
    if asked.points is not None:
        known = json.loads(asked.points.read_text("utf-8")) if asked.points.exists() else {}
        asked.points.write_text(json.dumps({**known, "services": lines}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
