"""``python -m lakefmt.cli``."""

from lakefmt.cli import main

if __name__ == "__main__":
    main()
