"""One cell in a process of its own: a cell as JSON on standard input, its figures as JSON on standard output.

python -m lakefmt._core.bench.child FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from lakefmt._core.bench.cells import BenchCell
from lakefmt._core.bench.measure import measure_cell

__all__ = ["answer_cell"]


def answer_cell() -> int:
    """Measure the cell that standard input names."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not look like an answer
    figures = measure_cell(BenchCell.from_json(json.loads(sys.stdin.read())), Path(sys.argv[1]))
    answers.write(json.dumps(figures))
    answers.close()
    return 0


if __name__ == "__main__":
    sys.exit(answer_cell())
