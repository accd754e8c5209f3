"""Measure lakefmt beside deltalake, DuckLake, pypaimon, PyIceberg and plain pyarrow: ``python -m benchmarks.run``.

Prints the table, writes the figures to benchmarks/results, and the table into docs/dev/speed.md when asked. Every peer runs
in its own environment (tools/bench_env.py) and process on the same generated rows; see docs/dev/speed.md for the rules.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import charts, report
from benchmarks.charts import CHARTS
from benchmarks.harness import cold, commits, logs, machine, single
from benchmarks.harness.data import Dataset, prepare
from benchmarks.harness.field import HOMES, Field, pythons
from benchmarks.harness.measure import Referee
from benchmarks.harness.rounds import STEPS, Rounds

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "bench"
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "dev" / "speed.md"
ROUND_WORKS = {"load": "load", "upsert": "upsert", "scan": "scan", "lookup": "look_up", "small-upsert": "tiny"}
WORKS = (*ROUND_WORKS, "mor", "log-blocks", "append", "open", "bloom", "memory", "import", "cold")
PEERS = tuple(name for name in HOMES if name != "hudi-spark")
#: Charts that other pages show.
ELSEWHERE = frozenset({"appends", "choice", "day-files", "day-read", "many-commits", "many-commits-files", "services"})
MARKS = ("<!-- generated: measured -->\n", "<!-- end of generated: measured -->")
#: Around the figures of another number of rows.
OTHER_MARKS = ("<!-- generated: measured larger -->\n", "<!-- end of generated: measured larger -->")
#: Around the figures of default settings in a cold process.
COLD_MARKS = ("<!-- generated: measured cold -->\n", "<!-- end of generated: measured cold -->")
USUAL_ROWS = 1_000_000


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure lakefmt beside its peers.")
    parser.add_argument("--rows", type=int, default=USUAL_ROWS, help="rows of the generated table")
    parser.add_argument("--runs", type=int, default=5, help="runs after the warm-up")
    parser.add_argument("--works", default=",".join(WORKS), help=f"some of {','.join(WORKS)}")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"some of {','.join(PEERS)}")
    parser.add_argument("--commits", type=int, default=500, help="commits of the append work")
    parser.add_argument("--stream-rows", type=int, default=5_000_000, help="rows of the memory work's generator")
    parser.add_argument(
        "--quick", action="store_true", help="20,000 rows, 2 runs, 40 commits, no run repeated: a smoke run"
    )
    parser.add_argument("--attempts", type=int, default=3, help="how often a disturbed run is tried at most")
    parser.add_argument("--flights", action="store_true", help="the flights of the quickstart, too")
    parser.add_argument("--spark", action="store_true", help="Apache Hudi on Spark, too: slow")
    all_charts = ",".join(CHARTS)
    parser.add_argument("--charts", nargs="?", const=all_charts, default="", help="measure and draw them, too: slow")
    parser.add_argument("--page", action="store_true", help="write the table into docs/dev/speed.md")
    parser.add_argument("--name", help="name of the results file; default: by the number of rows")
    parser.add_argument("--work-dir", type=Path, help="a folder for the tables; default: .cache/bench")
    asked = parser.parse_args(given)
    for name, known in (("works", WORKS), ("peers", PEERS), ("charts", CHARTS)):
        values = [value for value in getattr(asked, name).split(",") if value]
        unknown = sorted(set(values) - set(known))
        if unknown:
            parser.error(f"--{name}: no {', '.join(unknown)}; there are {', '.join(known)}")
        setattr(asked, name, values)
    if asked.quick:
        asked.rows, asked.runs, asked.commits = min(asked.rows, 20_000), min(asked.runs, 2), min(asked.commits, 40)
        asked.stream_rows = min(asked.stream_rows, 100_000)
    asked.peers = ["lakefmt", *(peer for peer in asked.peers if peer != "lakefmt")]
    return asked


def environments() -> dict[str, Any]:
    """Make the peers' environments where they are not made, and return what there is."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "bench_env.py")], stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(json.loads(done.stdout))


def stage_for(asked: argparse.Namespace) -> Field:
    """Return the field of one run, its folder empty."""
    work = asked.work_dir / "lakefmt-bench" if asked.work_dir else CACHE / "work"  # it is emptied: never somebody's own
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    needs = {HOMES[peer] for peer in asked.peers} - {""}
    made = environments() if needs else {}
    found, missing = pythons(asked.peers, made)
    referee = Referee(attempts=1 if asked.quick else asked.attempts)
    stage = Field(
        work, found, {}, referee, asked.runs, _say(time.monotonic()), missing, made.get("python", {}).get("plain")
    )
    for peer, reason in missing.items():
        stage.say(f"{peer} takes no part: {reason}")
    return stage


def _say(begin: float) -> Any:
    return lambda text: print(f"{time.monotonic() - begin:6.0f} s  {text}", file=sys.stderr, flush=True)


def measure(stage: Field, asked: argparse.Namespace) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Run the works asked for; return the seconds of every commit of the append work, and the minutes of each work."""
    data = prepare(CACHE / "data", asked.rows, small=max(asked.commits, 50))
    stage.referee.settle()
    each: dict[str, list[float]] = {}
    minutes: dict[str, float] = {}
    for name, job in _jobs(stage, asked, data, each).items():
        begin = time.monotonic()
        job()
        stage.retire()
        shutil.rmtree(stage.work / "tables", ignore_errors=True)
        minutes[name] = round((time.monotonic() - begin) / 60, 2)
        stage.say(f"{name}: {minutes[name]:.1f} minutes")
    return each, minutes


def _jobs(
    stage: Field, asked: argparse.Namespace, data: Dataset, each: dict[str, list[float]]
) -> dict[str, Callable[[], object]]:
    """Return what was asked for, in its order; works that share their rounds are one job."""
    chosen = {ROUND_WORKS[work] for work in asked.works if work in ROUND_WORKS}
    steps = tuple(step for step in STEPS if step in chosen | {"load", "scan"})
    rounds = Rounds(stage, data, stage.peers(*asked.peers), steps) if chosen else None

    def flights() -> None:
        from benchmarks.harness.flights import prepare_flights

        found, works = prepare_flights(CACHE / "data"), ("load", "scan", "look_up", "upsert")
        Rounds(stage, found, stage.peers(*asked.peers), works, " (flights)").run()

    def logs_of() -> None:
        logs.run_upserts(stage, data)
        stage.retire()
        logs.Heaps(stage, data).run()

    def memory() -> None:
        single.run_memory(stage, data)
        single.run_streams(stage, data, asked.stream_rows)

    jobs: dict[str, Callable[[], object]] = {
        "mor": logs_of,
        "log-blocks": lambda: single.run_log_blocks(stage, min(asked.rows, 1_000_000)),
        "append": lambda: each.update(commits.run_appends(stage, data, asked.commits)),
        "open": lambda: commits.run_opens(stage, data, (20, 60) if asked.quick else (500, 2000)),
        "bloom": lambda: single.run_bloom(stage),
        "memory": memory,
        "import": lambda: single.run_imports(stage),
        "cold": lambda: cold.Cold(stage, data).run(),
    }
    wanted = {name: job for name, job in jobs.items() if name in asked.works}
    wanted = ({"flights": flights} if asked.flights else {}) | wanted
    return ({", ".join(work for work in asked.works if work in ROUND_WORKS): rounds.run} if rounds else {}) | wanted


def results(
    stage: Field, asked: argparse.Namespace, each: dict[str, list[float]], minutes: dict[str, float]
) -> dict[str, Any]:
    """Return everything measured as one JSON value."""
    return {
        "machine": machine.describe(asked.work_dir or CACHE),
        "options": {"rows": asked.rows, "runs": asked.runs, "commits": asked.commits, "stream_rows": asked.stream_rows},
        "versions": stage.versions,
        "missing": stage.missing,
        "calibration": stage.referee.quickest,
        "repeated": stage.referee.repeated,
        "minutes": minutes,
        "figures": {
            work: {label: figure.as_json() for label, figure in figures.items()}
            for work, figures in stage.figures.items()
        },
        "each_append": {label: [round(1e3 * seconds, 3) for seconds in values] for label, values in each.items()},
    }


def keep(found: dict[str, Any], path: Path) -> dict[str, Any]:
    """Write what was measured; when only charts were asked for, leave what was measured before and return that."""
    if found["figures"] or not path.exists():
        path.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        return found
    kept: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return kept


def write_page(text: str, page: Path = PAGE, marks: tuple[str, str] = MARKS) -> None:
    """Replace the measured part of the documentation that is between `marks`."""
    begin, end = marks
    before, rest = page.read_text("utf-8").split(begin)
    after = rest.split(end)[1]
    page.write_text(f"{before}{begin}{text}{end}{after}", "utf-8")


def write_figures(text: str, rows: int) -> None:
    """Write what was measured of so many rows to its place in the documentation, with the charts there are."""
    if rows == USUAL_ROWS:
        write_page(text + charts_shown(PAGE.parent / "charts"))
    else:
        write_page(text, marks=OTHER_MARKS)


def charts_shown(folder: Path) -> str:
    """Return the lines that show the charts there are."""
    lines = [
        f"\n![{path.stem}](charts/{path.name})\n" for path in sorted(folder.glob("*.svg")) if path.stem not in ELSEWHERE
    ]
    head = "\nScaling: every line is one participant of the same run; the points are in `benchmarks/results/charts.json`.\n"
    return head + "".join(lines) if lines else ""


def main() -> int:
    """Measure, print, write."""
    asked = arguments()
    stage = stage_for(asked)
    try:
        each, minutes = measure(stage, asked)
        if asked.spark:
            from benchmarks.harness.spark import run_spark

            begin = time.monotonic()
            run_spark(stage, prepare(CACHE / "data", asked.rows, small=max(asked.commits, 50)))
            minutes["Spark"] = round((time.monotonic() - begin) / 60, 2)
        found = results(stage, asked, each, minutes)
    finally:
        stage.retire()
        shutil.rmtree(stage.work / "tables", ignore_errors=True)
    of_cold = "cold-" if asked.works == ["cold"] else ""  # beside the other figures, not in their place
    name = asked.name or of_cold + ("quick" if asked.quick else f"rows-{asked.rows}")
    folder = CACHE if asked.quick else RESULTS  # a trial's figures are not kept
    folder.mkdir(parents=True, exist_ok=True)
    found = keep(found, folder / f"{name}.json")
    failed = stage.failures()
    for text in failed:
        stage.say(f"lakefmt failed: {text}")
    text, cold_text = report.page(found), report.cold_page(found)
    if asked.works == ["cold"]:
        text = cold_text
    print(text if text == cold_text else text + cold_text)
    if asked.page and cold_text:
        write_page(cold_text, marks=COLD_MARKS)
    if asked.works == ["cold"]:
        return 1 if failed else 0
    if asked.page:
        write_figures(text, asked.rows)
    if asked.charts:
        charts.run(stage, asked, CACHE / "data")
        stage.retire()
        shutil.rmtree(stage.work / "tables", ignore_errors=True)
        if asked.page:
            write_figures(text, asked.rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
