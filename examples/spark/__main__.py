"""``python -m examples.spark``: what ``make demo-spark`` runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from examples.quickstart.output import Output
from examples.spark.demo import find_spark, run_demo
from lakefmt.errors import LakefmtError

__all__ = ["main"]


@click.command("spark")
@click.option(
    "--path",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo_output/spark"),
    show_default=True,
    metavar="DIR",
    help="The table is created in DIR/flights; one that is there is replaced.",
)
def main(folder: Path) -> None:
    """Write the 336,776 flights that left New York in 2013 by PySpark and lakefmt, without a JAR, and change them.

    DuckDB computes what the table must hold; plain lakefmt, hudi-rs, PySpark and Apache Hudi's own Spark reader read it.
    Exit status 1 if any of them differs.
    """
    output = Output()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        checks = run_demo(folder.resolve(), find_spark(), months=tuple(range(1, 13)), output=output)
    except LakefmtError as error:
        click.echo(f"error[{error.kind}]: {error}", err=True)
        sys.exit(1)
    wrong = [check for check in checks if not check.agrees]
    output.heading(f"{checks[0].rows:,} rows; {len(checks) - len(wrong)} of {len(checks)} readers agree")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
