"""``python -m examples.quickstart``: what ``make demo`` runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from examples.quickstart.output import Output
from examples.quickstart.quickstart import run_quickstart
from lakefmt.errors import LakefmtError

__all__ = ["main"]


@click.command("quickstart")
@click.option(
    "--path",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo_output"),
    show_default=True,
    metavar="DIR",
    help="The table is created in DIR/flights; the table of an earlier quickstart there is replaced.",
)
@click.option("--no-judges", is_flag=True, help="Skip the comparison with DuckDB and hudi-rs.")
def main(folder: Path, no_judges: bool) -> None:
    """Load the 336,776 flights that left New York in 2013, change them, read an old state, and compare the result.

    DuckDB computes from the raw file what the table must hold; hudi-rs reads the same directory. Exit status 1 if any
    comparison differs.
    """
    try:
        report = run_quickstart(folder, judges=not no_judges, output=Output())
    except LakefmtError as error:
        click.echo(f"error[{error.kind}]: {error}", err=True)
        sys.exit(1)
    wrong = [check for check in report.checks if not check.agrees]
    if wrong:
        click.echo(f"{len(wrong)} of {len(report.checks)} comparisons differ, first: {wrong[0]}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
