"""Fit the shipped costs, ``lakefmt/_core/advice/curves.json``, to the results of the training profiles.

python -m benchmarks.choices.fit_costs RESULTS [--clock clock|processor] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from lakefmt._core.advice import profiling
from lakefmt._core.bench.run import fit_curves, load_records

__all__ = ["main"]


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--clock", choices=("clock", "processor"), default="clock")
    parser.add_argument("--out", type=Path, default=Path(profiling.__file__).with_name("curves.json"))
    asked = parser.parse_args(given)
    records = [record for path in asked.results for record in load_records(path)]
    machines = sorted({record.machine for record in records})
    curves = fit_curves(records, "; ".join(machines), asked.clock)
    asked.out.write_text(json.dumps(curves.as_json(), indent=1) + "\n", "utf-8")
    print(f"{len(records)} cells, costs of {', '.join(curves.seconds)} in {asked.out.name}")


if __name__ == "__main__":
    main()
