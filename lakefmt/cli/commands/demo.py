"""`lakefmt quickstart`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from lakefmt.cli.options import json_option
from lakefmt.cli.results import result_as_json, say_json
from lakefmt.errors import InternalError

__all__ = ["quickstart"]


@click.command(short_help="A year of real flights through every verb, judged.")
@click.option(
    "--path",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo_output"),
    show_default=True,
    metavar="DIR",
    help="Where: the table is made in DIR/flights; that of an earlier quickstart is replaced.",
)
@click.option("--no-judges", is_flag=True, help="Do without DuckDB and hudi-rs: nothing is checked.")
@json_option
def quickstart(folder: Path, no_judges: bool, as_json: bool) -> None:
    """Load the 336,776 flights that left New York in 2013, change them, travel back, and have the result judged.

    DuckDB reckons from the raw file what the table must hold; hudi-rs reads the same directory. Any difference ends
    with status 1.
    """
    from lakefmt.cli.quickstart.narrator import Printed, Silent
    from lakefmt.cli.quickstart.story import run_quickstart

    report = run_quickstart(folder, judges=not no_judges, narrator=Silent() if as_json else Printed())
    if as_json:
        checks = [{**dataclasses.asdict(check), "agrees": check.agrees} for check in report.checks]
        commits = [result_as_json(result) for result in report.commits]
        said = {"table": report.path, "rows": report.rows, "digest": report.digest, "seconds": round(report.seconds, 3)}
        say_json({**said, "agrees": report.agrees, "commits": commits, "checks": checks})
    if not report.agrees:
        wrong = [check for check in report.checks if not check.agrees]
        raise InternalError(f"{len(wrong)} of {len(report.checks)} comparisons disagree, first: {wrong[0]}")
