"""``python -m lakefmt``: the command line where the script is not on the path; ``spark-submit`` is given this file."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    # Run as a file: its folder is where modules are looked for first, and its own would hide others of their names, such as dlt and events.
    sys.path[:] = [each for each in sys.path if Path(each).resolve() != Path(__file__).resolve().parent]

from lakefmt._core.cli import main

if __name__ == "__main__":
    main()
