"""``python -m examples.stream``: what ``make demo-stream`` runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from examples.quickstart.output import Output
from examples.stream.replay import Replay, run_replay
from examples.stream.view import View
from lakefmt.errors import LakefmtError

__all__ = ["main"]


@click.command("demo-stream")
@click.option(
    "--path",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo_output/stream"),
    show_default=True,
    metavar="DIR",
    help="The table is created in DIR/flights; the table of an earlier demo there is replaced.",
)
@click.option("--months", type=click.IntRange(1, 12), default=12, show_default=True, help="How many months of 2013.")
@click.option("--seconds", type=click.FloatRange(1), default=25.0, show_default=True, help="How long the replay takes.")
@click.option(
    "--speed", type=click.FloatRange(0), default=0.0, help="Instead: seconds of 2013 that pass in one, such as 2000."
)
def main(folder: Path, months: int, seconds: float, speed: float) -> None:
    """Replay the flights of 2013 as events through a stream, follow the table, and kill the writer in the middle.

    In the end DuckDB computes from the raw file what the table must hold, and hudi-rs reads the same directory. Exit status
    1 when anything differs.
    """
    replay = Replay(folder, tuple(range(1, months + 1)), seconds, speed)
    try:
        agrees = run_replay(replay, Output(), View())
    except LakefmtError as error:
        click.echo(f"error[{error.kind}]: {error}", err=True)
        sys.exit(1)
    sys.exit(0 if agrees else 1)


if __name__ == "__main__":
    main()
