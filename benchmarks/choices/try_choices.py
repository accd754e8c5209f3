"""Try every choice for the ten profiles and for the profiles that costs are measured by; results are kept as JSON lines.

    python -m benchmarks.choices.try_choices --set check|training [--rows 100000] [--rounds 1]
        [--minutes 60] [--out FILE]

A run that was stopped goes on where it ended.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.choices.profiles import check_profiles, training_profiles
from lakefmt._core.advice.profile import TableChoice
from lakefmt._core.bench.cells import BenchCell, choices_to_try
from lakefmt._core.bench.run import run_cells

__all__ = ["RESULTS", "cells_of", "main"]

RESULTS = Path(__file__).resolve().parents[1] / "results"


def cells_of(kind: str, rows: int, commits: int = 10, rounds: int = 1) -> list[BenchCell]:
    """Return the cells of a set, round after round: every choice for every profile; only seconds are measured."""
    profiles = check_profiles(rows) if kind == "check" else training_profiles(rows)
    return [
        BenchCell("choice", name, profile, choice, _label(choice, number), commits, counted=False)
        for number in range(rounds)
        for name, profile in profiles.items()
        for choice in choices_to_try(profile)
    ]


def _label(choice: TableChoice, number: int) -> str:
    return f"{choice}, round {number + 1}" if number else ""


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", dest="kind", choices=("check", "training"), default="check")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1, help="how often each is measured, in turn; medians count")
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(given)
    out = asked.out or RESULTS / f"choices-{asked.kind}-{asked.rows}.jsonl"
    cells = cells_of(asked.kind, asked.rows, rounds=asked.rounds)

    def report(cell: BenchCell, number: int) -> None:
        print(f"{number + 1}/{len(cells)} {cell.workload}: {cell.name}", file=sys.stderr, flush=True)

    done = run_cells(cells, out, minutes=asked.minutes, report=report)
    failed = [record for record in done.records if record.error]
    for record in failed:
        print(f"failed: {record.cell.workload}: {record.cell.name}: {record.error}")
    print(f"{len(done.records) - len(failed)} of {len(cells)} cells in {out.name}, {len(done.left)} left")


if __name__ == "__main__":
    main()
