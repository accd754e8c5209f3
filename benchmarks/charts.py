"""Charts: cost of a commit over commits, of an upsert over table size, memory over batch size; how tables grow.

``python -m benchmarks.run --charts`` measures every point with peers in the same picture, keeps the points in
benchmarks/results/charts.json and draws them as SVG into docs/charts; the environment of
the peers that has matplotlib draws (``draw.py``).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.draw import FOLDER, POINTS
from benchmarks.harness import commits, growth
from benchmarks.harness.child import Child
from benchmarks.harness.data import Dataset, further, late_batch, prepare
from benchmarks.harness.field import Field

ROOT = Path(__file__).resolve().parents[1]
#: Points of one chart: by line, pairs of x and y. A chart of several panels has lines by panel.
Lines = dict[str, list[tuple[float, float]]]
#: Participant, peer and options.
LOGS = {"table_type": "mor", "filling": False}
UPSERTERS: tuple[commits.Entry, ...] = (
    ("lakefmt", "lakefmt", {}),
    ("lakefmt, merge-on-read", "lakefmt", LOGS),
    ("pyarrow", "pyarrow", {}),
    ("deltalake", "deltalake", {}),
    ("ducklake", "ducklake", {}),
    ("pypaimon", "pypaimon", {}),
)
#: Filling rewrites a file per commit; the line without it is the one to compare with the peers.
APPENDERS = tuple(entry for entry in commits.APPENDERS if not entry[2].get("filling"))
CHARTS = ("commits", "upsert-size", "memory-batch", "choice")
SIZES = (100_000, 300_000, 1_000_000, 3_000_000)
#: Nearly half of a late batch is of the newest day, which has a thirtieth of the table's rows: no batch may ask for more.
FIXED_BATCH = 5_000
BATCHES = (1_000, 5_000, 20_000, 60_000)
POINT_RUNS = 2
#: A participant that has spent this much on its appends stops there, and its line says so.
APPEND_SECONDS = 20.0


@dataclass(frozen=True)
class Plan:
    """How many points of what size: appends; sizes of tables for one batch; sizes of batches for one table; commits."""

    cache: Path
    appends: int
    sizes: tuple[int, ...]
    batch: int
    batches: tuple[int, ...]
    growth_rows: int
    growth_commits: int


def measure(stage: Field, data: Dataset, plan: Plan, names: Sequence[str] = CHARTS) -> dict[str, object]:
    """Measure the points of the charts `names`."""
    jobs: dict[str, Callable[[], object]] = {
        "commits": lambda: _commits(stage, data, plan),
        "upsert-size": lambda: _sizes(stage, plan),
        "memory-batch": lambda: _batches(stage, data, plan),
        "choice": lambda: _growth(stage, plan),
    }
    shown: dict[str, object] = {}
    for name in names:
        began = time.monotonic()
        shown[name] = jobs[name]()
        stage.retire()
        shutil.rmtree(stage.work / "tables", ignore_errors=True)
        stage.say(f"chart {name}: {(time.monotonic() - began) / 60:.1f} minutes")
    return shown


def _commits(stage: Field, data: Dataset, plan: Plan) -> Lines:
    each = commits.run_appends(stage, data, plan.appends, APPENDERS, APPEND_SECONDS)
    return in_tens(each, plan.appends)


def _sizes(stage: Field, plan: Plan) -> Lines:
    lines: Lines = {}
    for size in plan.sizes:
        table = prepare(plan.cache, size, small=50)
        _upserts(stage, lines, table, {size: _batch(table, plan.batch)}, _seconds, warm=True)
    return lines


def _batches(stage: Field, data: Dataset, plan: Plan) -> Lines:
    lines: Lines = {}
    _upserts(stage, lines, data, {size: _batch(data, size) for size in plan.batches}, _rise, warm=False)
    return lines


def _growth(stage: Field, plan: Plan) -> dict[str, object]:
    panels = growth.measure(stage, prepare(plan.cache, plan.growth_rows, small=50), plan.growth_commits)
    return {"about": f"{plan.growth_rows:,} rows, {plan.growth_commits} commits of 1 % late rows", **panels}


def in_tens(each: dict[str, list[float]], wanted: int) -> Lines:
    """Return the median of every ten commits in milliseconds, over the number of the first of them."""
    lines: Lines = {}
    for label, seconds in each.items():
        label = label if len(seconds) >= wanted else f"{label} (stopped after {len(seconds)})"
        lines[label] = [(float(at + 1), 1e3 * median(seconds[at : at + 10])) for at in range(0, len(seconds) - 9, 10)]
    return lines


def _batch(data: Dataset, rows: int) -> str:
    """Return the file of a late batch of `rows` rows for a dataset, made on first use."""
    return further(data, f"late-{rows}", lambda base: late_batch(base, rows, 77))


def _upserts(
    stage: Field,
    lines: Lines,
    data: Dataset,
    batches: dict[int, str],
    job: Callable[[Child, str], float],
    *,
    warm: bool,
) -> None:
    """Add a point per participant and batch: an upsert into the table as it was loaded, in a process of its own.

    The first upsert of a process imports what a participant has not imported yet: `warm`, the second one counts.
    """
    values: dict[tuple[str, int], list[float]] = {}
    entries = [entry for entry in UPSERTERS if stage.has(entry[1])]
    work = f"chart of {data.name}, {job.__name__}"
    for label, peer, options in entries:
        with stage.attempt(work, label), closing(stage.start(peer)) as maker:
            stage.fresh(maker, label, data, **options)
            maker.ask("load", data=data.path("base"))
            maker.ask("close")
            stage.keep(label)
    for size, batch in batches.items():
        stage.say(f"{work}: batch of {size:,}" if len(batches) > 1 else work)
        for _ in range(POINT_RUNS):
            for label, peer, options in entries:
                if stage.is_done(work, label):
                    continue
                with stage.attempt(work, label), closing(stage.start(peer)) as child:
                    for _ in range(2 if warm else 1):
                        stage.put_back(label)
                        child.ask("use", path=stage.table(label), columns=data.described(), options=options)
                        point = job(child, batch)
                    values.setdefault((label, size), []).append(point)
    for (label, size), found in values.items():
        lines.setdefault(label, []).append((float(size), median(found)))


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
    plan, kept, folder = Plan(cache, 1000, SIZES, FIXED_BATCH, BATCHES, min(asked.rows, 200_000), 30), POINTS, FOLDER
    if asked.quick:  # a trial leaves the documentation alone
        plan = Plan(cache, 40, (5_000, 20_000), 100, (50, 200), 5_000, 11)
        kept, folder = cache.parent / "charts.json", cache.parent / "charts"
    stage.runs, stage.figures = 1, {}
    points = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    points |= measure(stage, prepare(cache, asked.rows, small=plan.appends), plan, asked.charts)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({name: points[name] for name in CHARTS if name in points}) + "\n", "utf-8")
    if stage.has("deltalake"):
        draw(stage.pythons["deltalake"], kept, folder)
    else:
        stage.say("the charts were not drawn: the environment with matplotlib is missing")
