"""A large table once: load, scan, look-up of 100 keys and 1 % late upsert beside deltalake and DuckLake, with peak memory.

    python -m benchmarks.write.bench_large [--rows 10000000]

Every job runs once in a process of its own, with the settings of `make bench`; seconds are those of the job. The peak is that
of the process, with the job's input: of a load all rows, mapped into memory. Rows are compared with what DuckDB works out
from the data files.
"""

from __future__ import annotations

import argparse
import shutil
from typing import Any

from benchmarks.harness import expected
from benchmarks.harness.child import PeerFailed
from benchmarks.harness.data import Dataset, load_table, prepare
from benchmarks.harness.field import Field
from benchmarks.harness.rounds import agreed
from benchmarks.run import CACHE, arguments, stage_for

PEERS = ("lakefmt", "deltalake", "ducklake")
JOBS = {
    "load": "bulk load",
    "scan": "full scan to Arrow",
    "look_up": "look-up of 100 random keys",
    "upsert": "1 % late upsert",
}
Figures = dict[str, dict[str, tuple[float, float]]]


def measure(stage: Field, data: Dataset) -> Figures:
    """Return the seconds and the peak in MB of each job of each participant.

    Raises:
        PeerFailed: a participant's rows are not the right ones.
    """
    wanted = {"scan": expected.of_part(data, "base"), "look_up": expected.of_keys(data)}
    last = expected.after_upserts(data, [load_table(data.path("late"))])
    given = {"load": {"data": data.path("base")}, "upsert": {"data": data.path("late")}}
    given |= {"scan": {}, "look_up": {"keys": data.path("lookup")}}
    figures: Figures = {}
    for peer in stage.peers(*PEERS):
        for job in JOBS:
            stage.say(f"{peer}: {job}")
            answer = _alone(stage, data, peer, job, given[job])
            if job in wanted:
                agreed(answer, wanted[job], job)
            figures.setdefault(job, {})[peer] = (answer["seconds"], (answer["peak"] or 0) / 1e6)
        agreed(_alone(stage, data, peer, "scan", {}), last, "rows after the upsert")
        shutil.rmtree(stage.table(f"large {peer}"), ignore_errors=True)
    return figures


def _alone(stage: Field, data: Dataset, peer: str, job: str, given: dict[str, Any]) -> dict[str, Any]:
    child, label = stage.start(peer), f"large {peer}"
    try:
        if job == "load":
            stage.fresh(child, label, data)
        else:
            child.ask("use", path=stage.table(label), columns=data.described(), options={})
        # Of a scan the peak is taken before the rows are digested.
        return child.ask("scan") if job == "scan" else child.ask("resident", job=job, **given)
    finally:
        child.close()


def markdown(figures: Figures) -> str:
    """Return the table."""
    lines = [f"| work | {' | '.join(PEERS)} |", "|---" * (len(PEERS) + 1) + "|"]
    for job, each in figures.items():
        texts = (f"{each[peer][0]:.2f} s, {each[peer][1]:,.0f} MB" if peer in each else "–" for peer in PEERS)
        lines.append(f"| {JOBS[job]} | {' | '.join(texts)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    rows = parser.parse_args().rows
    stage = stage_for(arguments(["--rows", str(rows), "--peers", ",".join(PEERS), "--runs", "1"]))
    try:
        print(markdown(measure(stage, prepare(CACHE / "data", rows, small=50))))
    except PeerFailed as error:
        raise SystemExit(str(error)) from None
    finally:
        stage.retire()
        shutil.rmtree(stage.work / "tables", ignore_errors=True)


if __name__ == "__main__":
    main()
