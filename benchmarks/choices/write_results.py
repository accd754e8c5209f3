"""Write what `lakefmt bench` measured into docs/dev/choices.md: a table for each suite, number of rows and workload.

    python -m benchmarks.choices.write_results RESULTS...

Each file holds the results of one suite with one number of rows, under the name ``choices-SUITE-ROWS.jsonl``. Tables on the page
of other suites and numbers of rows stay.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

from lakefmt._core.bench.cells import SUITES
from lakefmt._core.bench.run import BenchReport, columns_of, load_records, rows_by_workload

__all__ = ["joined", "main", "markdown"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "dev" / "choices.md"
_BEGIN, _END = "<!-- measured: results -->", "<!-- end of measured: results -->"
_HEADING = re.compile(r"^(### .+)\n((?:(?!### |<!--).*\n?)*)", re.MULTILINE)
_NAME = re.compile(rf"choices-({'|'.join(SUITES)})-(\d+)\.jsonl")


def markdown(paths: Iterable[Path]) -> str:
    """Return the tables of the files: by suite, then by number of rows.

    Raises:
        ValueError: the name of a file is not that of results.
    """
    named = []
    for path in paths:
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise ValueError(f"{path.name} is not called choices-SUITE-ROWS.jsonl")
        named.append((SUITES.index(match[1]), int(match[2]), path))
    lines: list[str] = []
    for number, rows, path in sorted(named):
        report = BenchReport(tuple(load_records(path)))
        machine = "; ".join(sorted({record.machine for record in report.records}))
        commits = "/".join(str(each) for each in sorted({record.cell.commits for record in report.records}))
        lines += [f"### {SUITES[number]}, {rows:,} rows", "", f"{commits} commits each; {machine}.", ""]
        for (workload, kind), texts in rows_by_workload(SUITES[number], report).items():
            titles = [name for name, _ in columns_of(SUITES[number], kind)]
            lines += [f"| {workload} | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|"]
            lines += [f"| {' | '.join(each)} |" for each in texts] + [""]
    return "\n".join(lines).rstrip("\n")


def joined(before: str, now: str) -> str:
    """Return two texts of tables as one, in order; where both have a suite with a number of rows, the second counts."""
    parts = {
        heading: f"{heading}\n{rest}".strip() for text in (before, now) for heading, rest in _HEADING.findall(text)
    }
    return "\n\n".join(parts[heading] for heading in sorted(parts, key=_place))


def _place(heading: str) -> tuple[int, int]:
    suite, rows = heading.removeprefix("### ").removesuffix(" rows").split(", ", 1)
    return SUITES.index(suite), int(rows.replace(",", ""))


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    text = markdown(parser.parse_args(given).results)
    page = PAGE.read_text("utf-8")
    part = re.compile(re.escape(_BEGIN) + ".*?" + re.escape(_END), re.DOTALL)
    PAGE.write_text(part.sub(lambda old: f"{_BEGIN}\n{joined(old[0], text)}\n{_END}", page), "utf-8")


if __name__ == "__main__":
    main()
