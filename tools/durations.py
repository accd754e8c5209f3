"""Name the test files that take more than twice as long as they did: ``python tools/durations.py``, or ``--write`` to record.

Compares the report of the last whole run (`make test`) with `tests/durations.json`, the seconds of each test file in one
quiet run. A machine with other work is slower at everything: growth counts beyond the median growth of all files.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / ".cache" / "reports"
RECORDED = ROOT / "tests" / "durations.json"
#: The stages whose reports count: others ask the same tests again.
STAGES = ("fast", "spark")
#: A file is named when it takes so many times as long.
GROWTH = 2.0
#: What a file takes at least to be named: below it a start of a process or a collection of garbage decides.
SECONDS = 3.0


def seconds_of(report: Path) -> dict[str, float]:
    """Return the seconds of each test file in a JUnit report of pytest."""
    found: defaultdict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        # tests.write.test_verbs.TestOfAClass: what follows the file's name is a class.
        parts = (case.get("classname") or "").split(".")
        named = next((place for place, part in enumerate(parts) if part.startswith("test_")), None)
        if named is not None:
            found["/".join(parts[: named + 1]) + ".py"] += float(case.get("time") or 0)
    return dict(found)


def grown(before: Mapping[str, float], now: Mapping[str, float]) -> list[str]:
    """Return a line for each file that takes more than twice as long, beyond what all files take longer."""
    both = [name for name in now if before.get(name, 0) >= 0.5]
    usual = statistics.median([now[name] / before[name] for name in both]) if both else 1.0
    rate = max(usual, 0.1)
    lines = []
    for name in sorted(now, key=lambda name: -now[name]):
        seconds, was = now[name] / rate, before.get(name)
        if seconds >= SECONDS and was is not None and seconds > GROWTH * max(was, SECONDS / GROWTH):
            lines.append(f"{name}: {seconds:.0f} s, was {was:.0f} s")
        elif was is None and seconds >= SECONDS:
            lines.append(f"{name}: {seconds:.0f} s, not recorded yet")
    return lines


def main(arguments: Sequence[str]) -> int:
    """Compare, or record what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="record this run, which was a quiet one")
    parser.add_argument(
        "reports", nargs="*", type=Path, help="JUnit reports; those of the last run where none is named"
    )
    given = parser.parse_args(arguments)
    reports = given.reports or [path for stage in STAGES if (path := REPORTS / f"{stage}.xml").exists()]
    now: defaultdict[str, float] = defaultdict(float)
    for report in reports:
        for name, seconds in seconds_of(report).items():
            now[name] += seconds
    before: dict[str, float] = json.loads(RECORDED.read_text("utf-8")) if RECORDED.exists() else {}
    if given.write:
        kept = {name: seconds for name, seconds in before.items() if (ROOT / name).exists()}
        RECORDED.write_text(
            json.dumps({**kept, **{n: round(s, 1) for n, s in now.items()}}, indent=0, sort_keys=True) + "\n"
        )
        return 0
    for line in grown(before, now):
        print(f"grown: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
