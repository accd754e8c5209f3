"""Scaling charts: cost of a commit over commits, of an upsert over table size, memory of an upsert over batch size.

``python -m benchmarks.run --charts`` measures every point with peers in the same picture, keeps the points in
benchmarks/results/charts.json and draws them as SVG into docs/charts; the environment of
the peers that has matplotlib draws (``draw.py``).
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.draw import FOLDER, POINTS
from benchmarks.harness import commits
from benchmarks.harness.child import Child
from benchmarks.harness.data import Dataset, late_batch, load_table, prepare, store_table
from benchmarks.harness.field import Field

ROOT = Path(__file__).resolve().parents[1]
#: Points of one chart: by line, pairs of x and y.
Lines = dict[str, list[tuple[float, float]]]
UPSERTERS = ("lakefmt", "pyarrow", "deltalake", "ducklake", "pypaimon")
SIZES = (100_000, 300_000, 1_000_000, 3_000_000)
FIXED_BATCH = 10_000
BATCHES = (1_000, 10_000, 100_000, 300_000)
POINT_RUNS = 3


@dataclass(frozen=True)
class Plan:
    """How many points of what size: appends; sizes of tables for one batch; sizes of batches for one table."""

    cache: Path
    appends: int
    sizes: tuple[int, ...]
    batch: int
    batches: tuple[int, ...]


def measure(stage: Field, data: Dataset, plan: Plan) -> dict[str, Lines]:
    """Measure the points of all charts."""
    each = commits.run_appends(stage, data, plan.appends)
    stage.retire()
    lines: dict[str, Lines] = {"commits": {label: in_tens(values) for label, values in each.items()}}
    lines["upsert-size"] = {}
    for size in plan.sizes:
        table = prepare(plan.cache, size, small=50)
        _upserts(stage, lines["upsert-size"], table, _batch(table, plan.batch), size, _seconds)
    lines["memory-batch"] = {}
    for size in plan.batches:
        _upserts(stage, lines["memory-batch"], data, _batch(data, size), size, _rise)
    return lines


def in_tens(seconds: list[float]) -> list[tuple[float, float]]:
    """Return the median of every ten commits in milliseconds, over the number of the first of them."""
    return [(float(at + 1), 1e3 * median(seconds[at : at + 10])) for at in range(0, len(seconds) - 9, 10)]


def _batch(data: Dataset, rows: int) -> str:
    """Return the file of a late batch of `rows` rows for a dataset, made on first use."""
    path = Path(data.path(f"late-{rows}"))
    if not path.exists():
        store_table(path, late_batch(load_table(data.path("base")), rows, 77))
    return str(path)


def _upserts(stage: Field, lines: Lines, data: Dataset, batch: str, x: int, job: Callable[[Child, str], float]) -> None:
    """Add one point per peer: an upsert into a table just loaded, in a process of its own, a few times in turn."""
    values: dict[str, list[float]] = {}
    for number in range(POINT_RUNS):
        stage.say(f"chart point {x:,}, run {number + 1}")
        for peer in stage.peers(*UPSERTERS):
            with stage.attempt(f"chart point {x} of {job.__name__}", peer):
                label = f"chart {peer}"
                maker = stage.start(peer)
                try:
                    stage.fresh(maker, label, data)
                    maker.ask("load", data=data.path("base"))
                    maker.ask("close")
                finally:
                    maker.close()
                child = stage.start(peer)
                try:
                    child.ask("use", path=stage.table(label), columns=data.described(), options={})
                    values.setdefault(peer, []).append(job(child, batch))
                finally:
                    child.close()
    for peer, found in values.items():
        lines.setdefault(peer, []).append((float(x), median(found)))


def _seconds(child: Child, batch: str) -> float:
    return float(child.ask("upsert", data=batch)["seconds"])


def _rise(child: Child, batch: str) -> float:
    return float(child.ask("resident", job="upsert", data=batch)["rise"] or 0) / 1e6


def draw(python: str, points: Path, folder: Path) -> None:
    """Draw the points of a file into a folder, with the interpreter that has matplotlib."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [python, "-m", "benchmarks.draw", str(points), str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)


def run(stage: Field, asked: argparse.Namespace, cache: Path) -> None:
    """Measure, keep and draw."""
    plan, kept, folder = Plan(cache, 1000, SIZES, FIXED_BATCH, BATCHES), POINTS, FOLDER
    if asked.quick:  # a trial leaves the documentation alone
        plan = Plan(cache, 40, (5_000, 20_000), 100, (50, 200))
        kept, folder = cache.parent / "charts.json", cache.parent / "charts"
    stage.runs, stage.figures = 1, {}
    points = measure(stage, prepare(cache, asked.rows, small=plan.appends), plan)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(points) + "\n", "utf-8")
    if stage.has("deltalake"):
        draw(stage.pythons["deltalake"], kept, folder)
    else:
        stage.say("the charts were not drawn: the environment with matplotlib is missing")
