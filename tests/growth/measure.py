"""How every line grows: ``python -m tests.growth.measure`` prints it, with ``--write`` it records it for the documentation.

With ``--times`` it prints seconds of processor time at larger sizes instead: work inside one call of Arrow is not counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import process_time

from tests.growth.kit import CONSTANT, MEASURES, Line, copy_of, exponent, measured, slope
from tests.growth.lines import AREAS

RECORDED = Path(__file__).parent / "slopes.json"


def recorded() -> dict[str, dict[str, dict[str, float]]]:
    """Return area → line → measure → exponent, as recorded."""
    found: dict[str, dict[str, dict[str, float]]] = json.loads(RECORDED.read_text("utf-8"))
    return found


def markdown(slopes: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Return the tables of the documentation: a row for each call, a column for what grows.

    Example:
        >>> print(markdown({"Reads": {"read / rows": {"steps": 0.0, "read": 1.0}, "head / files": {"steps": 0.97}}}))
        ## Reads
        <BLANKLINE>
        | | rows | files |
        |---|---|---|
        | read | bytes read 1.0 | |
        | head | | Python 0.97 |
    """
    parts = []
    for area, lines in slopes.items():
        pairs = [tuple(name.split(" / ")) for name in lines]
        verbs, things = (list(dict.fromkeys(pair[place] for pair in pairs)) for place in (0, 1))
        rows = [f"## {area}", "", f"| | {' | '.join(things)} |", "|---" * (len(things) + 1) + "|"]
        for verb in verbs:
            cells = [_cell(lines.get(f"{verb} / {thing}")) for thing in things]
            rows.append(f"| {verb} |" + "".join(f" {cell} |" if cell else " |" for cell in cells))
        parts.append("\n".join(rows))
    return "\n\n".join(parts)


def _cell(powers: Mapping[str, float] | None) -> str:
    if powers is None:
        return ""
    grown = [f"{MEASURES[name]} {power}" for name, power in powers.items() if power > CONSTANT]
    return ", ".join(grown) or "–"


def times(line: Line, factor: int) -> list[float]:
    """Return the seconds of processor time of a line at larger sizes, the better one of two runs each."""
    found = []
    for size in (line.sizes[0], *(size * factor for size in line.sizes)):
        seconds = []
        for _ in range(2):
            table, _ = copy_of(line.make(size))
            if line.warm is not None:
                line.warm(table, size)
            call, begin = line.call(table, size), process_time()
            call()
            seconds.append(process_time() - begin)
        found.append(min(seconds))
    return found[1:]


def main(arguments: Sequence[str]) -> int:
    """Count, or time, the lines whose names have one of the given parts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="record these lines")
    parser.add_argument("--times", type=int, default=0, metavar="FACTOR", help="time so many times the sizes")
    parser.add_argument("names", nargs="*", help="parts of names; none: all lines")
    given = parser.parse_args(arguments)
    slopes = recorded() if given.names and given.write else {}
    for area, lines in AREAS.items():
        for line in lines:
            if given.names and not any(part in line.name for part in given.names):
                continue
            if given.times:
                seconds = times(line, given.times)
                print(f"{area}: {line.name:40} {slope(line.sizes, [round(1e6 * s) for s in seconds]):5.2f} {seconds}")
                continue
            counts = measured(line)
            powers = {name: exponent(line.sizes, found) for name, found in counts.items()}
            slopes.setdefault(area, {})[line.name] = powers
            print(f"{area}: {line.name:40}", *(f"{name} {powers[name]} {counts[name]}" for name in counts), flush=True)
    if given.write:
        RECORDED.write_text(json.dumps(slopes, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
