"""``python -m lakefmt``: the command line where the script is not on the path."""

from __future__ import annotations

from lakefmt._core.cli import main

if __name__ == "__main__":
    main()
