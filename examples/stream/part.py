"""``python -m examples.stream.part``: one process of the demo."""

from __future__ import annotations

import sys
from pathlib import Path

from examples.stream.parts import follow, write_events

if __name__ == "__main__":
    if sys.argv[1] == "writer":
        write_events(Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
    else:
        follow(Path(sys.argv[2]))
