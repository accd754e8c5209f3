"""A large table once: load, scan of two columns, 100 keys, 1 % late upsert, compaction and clustering beside deltalake and DuckLake.

    python -m benchmarks.write.bench_large [--rows 50000000] [--peers lakefmt,lakefmt-mor,deltalake,ducklake]

120 partitions, whose rows come in random order; the source is read batch by batch, so that the peak is the participant's own.
Every job runs once in a process of its own, with the settings of `make bench`; seconds are those of the job, the peak is that of the
process. After the load and at the end the rows of each partition are counted and two columns are added up; they have to be
what the source has. ``lakefmt-mor`` is a merge-on-read table.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from benchmarks.harness.child import NotOffered, PeerFailed
from benchmarks.harness.data import Dataset, load_table, prepare_large
from benchmarks.harness.digest import digest
from benchmarks.harness.field import Field
from benchmarks.harness.machine import describe
from benchmarks.run import CACHE, arguments, stage_for

#: Participants by label: the peer and its options.
PARTICIPANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "lakefmt": ("lakefmt", {}),
    "lakefmt-mor": ("lakefmt", {"table_type": "mor"}),
    "deltalake": ("deltalake", {}),
    "ducklake": ("ducklake", {}),
}
JOBS = {
    "load_streamed": "load from a stream",
    "two_columns": "scan of two columns",
    "look_up": "look-up of 100 random keys",
    "upsert": "1 % late upsert",
    "two_columns after": "scan of two columns behind it",
    "compact": "compaction",
    "cluster": "clustering of all partitions by a column",
}
Figures = dict[str, dict[str, tuple[float, float]]]


def measure(stage: Field, data: Dataset, labels: list[str]) -> Figures:
    """Return the seconds and the peak in MB of each job of each participant.

    Raises:
        PeerFailed: a participant's rows are not the right ones.
    """
    expected = json.loads((data.folder / "totals.json").read_text("utf-8"))
    given: dict[str, dict[str, Any]] = {
        "load_streamed": {"data": data.path("base")},
        "look_up": {"keys": data.path("lookup")},
        "upsert": {"data": data.path("late")},
    }
    figures: Figures = {}
    for label in labels:
        if not stage.has(PARTICIPANTS[label][0]):
            continue
        for job in JOBS:
            if job == "compact" and label == "lakefmt":
                continue
            stage.say(f"{label}: {job}")
            try:
                answer = _alone(stage, data, label, job.partition(" ")[0], given.get(job, {}))
            except NotOffered:
                continue
            except PeerFailed as error:
                stage.say(f"{label} failed in {job}: {error}")
                continue
            stage.say(f"{label}: {job}: {answer['seconds']:.1f} s, {(answer['peak'] or 0) / 1e6:,.0f} MB")
            figures.setdefault(job, {})[label] = (answer["seconds"], (answer["peak"] or 0) / 1e6)
            state = "base" if job in ("load_streamed", "two_columns", "look_up") else "after"
            if job == "look_up":
                _require(label, job, answer["digest"], digest(load_table(data.path("lookup"))))
            if job.startswith("two_columns"):
                _require(label, job, answer["sum"], sum(each[1] for each in expected[state].values()))
            if job in ("load_streamed", "upsert", "compact", "cluster"):
                _require(label, job, _alone(stage, data, label, "totals", {}, counted=False)["totals"], expected[state])
        shutil.rmtree(stage.table(f"large {label}"), ignore_errors=True)
    return figures


def _require(label: str, job: str, found: object, expected: object) -> None:
    if found != expected:
        raise PeerFailed(f"{label} has other rows after {job}: {found!r:.300}, where the source has {expected!r:.300}")


def _alone(
    stage: Field, data: Dataset, label: str, job: str, given: dict[str, Any], *, counted: bool = True
) -> dict[str, Any]:
    peer, options = PARTICIPANTS[label]
    child, name = stage.start(peer), f"large {label}"
    try:
        if job == "load_streamed":
            stage.fresh(child, name, data, part="lookup", **options)
        else:
            child.ask("use", path=stage.table(name), columns=data.described(), options=options)
        return child.ask("resident", job=job, **given) if counted else child.ask(job, **given)
    finally:
        child.close()


def markdown(figures: Figures, labels: list[str]) -> str:
    """Return the table."""
    lines = [f"| work | {' | '.join(labels)} |", "|---" * (len(labels) + 1) + "|"]
    for job, each in figures.items():
        cells = (f"{each[label][0]:.2f} s, {each[label][1]:,.0f} MB" if label in each else "–" for label in labels)
        lines.append(f"| {JOBS[job]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def keep_chart(figures: Figures, path: Path) -> None:
    """Keep seconds and peaks for a chart."""
    panels: dict[str, dict[str, dict[str, float]]] = {"seconds": {}, "peak": {}}
    for job, each in figures.items():
        for label, values in each.items():
            for panel, value in zip(panels, values, strict=True):
                panels[panel].setdefault(label, {})[JOBS[job]] = round(value, 3)
    path.write_text(json.dumps({"large": panels}, indent=1, ensure_ascii=False) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--peers", default=",".join(PARTICIPANTS))
    parser.add_argument("--folder", type=Path, default=CACHE / "data", help="where the source is made, 160 bytes a row")
    parser.add_argument("--points", type=Path, help="where the points of the chart are kept")
    asked = parser.parse_args()
    labels = asked.peers.split(",")
    peers = dict.fromkeys(PARTICIPANTS[label][0] for label in labels)
    stage = stage_for(arguments(["--peers", ",".join(peers), "--runs", "1"]))
    try:
        print(describe(stage.work))
        figures = measure(stage, prepare_large(asked.folder, asked.rows), labels)
        print(markdown(figures, labels))
        if asked.points is not None:
            keep_chart(figures, asked.points)
    except PeerFailed as error:
        raise SystemExit(str(error)) from None
    finally:
        stage.retire()
        shutil.rmtree(stage.work / "tables", ignore_errors=True)


if __name__ == "__main__":
    main()
