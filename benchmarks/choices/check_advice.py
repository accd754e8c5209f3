"""Compare the advice with the best choice found by trying all, and write the result into docs/dev/choices.md.

    python -m benchmarks.choices.check_advice RESULTS... [--clock clock|processor] [--write]

For each profile: the choice that was measured to be cheapest, the one that is advised by the shipped costs, and how much
more that one was measured to cost. A ratio over 1.2 is a miss. Exit status 1: a profile was not tried in full.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from lakefmt._core.advice.advise import CostCurves, advise_choice
from lakefmt._core.advice.profile import TableChoice
from lakefmt._core.advice.profiling import shipped_curves
from lakefmt._core.bench.measure import seconds_per_commit
from lakefmt._core.bench.run import CellRecord, load_records

__all__ = ["LIMIT", "CheckedAdvice", "check", "main", "markdown"]

LIMIT = 1.2
PAGE = Path(__file__).resolve().parents[2] / "docs" / "dev" / "choices.md"
_BEGIN, _END = "<!-- measured: advice -->", "<!-- end of measured: advice -->"


@dataclass(frozen=True)
class CheckedAdvice:
    """One profile: the measured seconds per commit of the best choice, of the advised one and of the default."""

    workload: str
    best: TableChoice
    best_seconds: float
    advised: TableChoice
    advised_seconds: float
    default_seconds: float
    tried: int

    @property
    def ratio(self) -> float:
        """What the advised choice costs over the best one."""
        return self.advised_seconds / self.best_seconds

    @property
    def is_miss(self) -> bool:
        """Whether the advised choice costs more than 1.2 times the best one."""
        return self.ratio > LIMIT


def check(records: Iterable[CellRecord], curves: CostCurves, clock: str) -> list[CheckedAdvice]:
    """Return the checked advice of each profile among the records, in their order."""
    rounds: dict[str, dict[TableChoice, list[float]]] = {}
    profiles = {}
    for record in records:
        cell = record.cell
        profiles[cell.workload] = cell.profile
        seconds = seconds_per_commit(record.figures, cell.profile.reads_per_commit, 0 if clock == "clock" else 1)
        rounds.setdefault(cell.workload, {}).setdefault(cell.choice, []).append(seconds["total"])
    checked = []
    for workload, each in rounds.items():
        measured = {choice: median(seconds) for choice, seconds in each.items()}
        best = min(measured, key=lambda choice: measured[choice])
        chosen = advise_choice(profiles[workload], curves, list(measured)).choice
        default = measured.get(TableChoice(), float("nan"))
        checked.append(CheckedAdvice(workload, best, measured[best], chosen, measured[chosen], default, len(measured)))
    return checked


def markdown(checked: Sequence[CheckedAdvice], clock: str, machine: str) -> str:
    """Return the table of docs/dev/choices.md."""
    seconds = "seconds of the processor over all threads" if clock == "processor" else "seconds by the clock"
    kept = sum(not each.is_miss for each in checked)
    lines = [
        f"{kept} of {len(checked)} within {LIMIT}; {seconds} per commit with its services and reads; {machine}.",
        "",
        "| profile | best of all tried | s | advised | s | ratio | the default (cow, bloom) over the best |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in checked:
        ratio = f"**{each.ratio:.2f}: a miss**" if each.is_miss else f"{each.ratio:.2f}"
        lines.append(
            f"| {each.workload} | {each.best} | {each.best_seconds:.3f} | {each.advised} | {each.advised_seconds:.3f} | "
            f"{ratio} | {each.default_seconds / each.best_seconds:.2f} |"
        )
    return "\n".join(lines)


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--clock", choices=("clock", "processor"), default="clock")
    parser.add_argument("--write", action="store_true", help="write the table into docs/dev/choices.md")
    asked = parser.parse_args(given)
    records = [record for path in asked.results for record in load_records(path)]
    checked = check(records, shipped_curves(), asked.clock)
    text = markdown(checked, asked.clock, "; ".join(sorted({record.machine for record in records})))
    print(text)
    if asked.write:
        page = PAGE.read_text("utf-8")
        part = re.compile(re.escape(_BEGIN) + ".*?" + re.escape(_END), re.DOTALL)
        PAGE.write_text(part.sub(lambda _: f"{_BEGIN}\n{text}\n{_END}", page), "utf-8")
    most = max((each.tried for each in checked), default=0)
    return int(any(each.tried < most for each in checked))


if __name__ == "__main__":
    sys.exit(main())
