"""`lakefmt advise` and `lakefmt bench`: which set-up of a table costs least, and what indexes and services cost here.

`lakefmt advise` says which index, table type, services and file sizes a table should have; `lakefmt bench` measures indexes,
compaction and clustering on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakefmt._core.cli.formatters import plain_console, print_json
from lakefmt._core.cli.options import Pair, as_mapping, json_option, open_for, table_argument, table_options
from lakefmt._core.cli.plans import progress

if TYPE_CHECKING:
    from lakefmt._core.advice.profile import TableProfile
    from lakefmt._core.bench.run import BenchReport

__all__ = [
    "advise",
    "bench",
]

_DEFAULT_ROWS = 100_000
_RESULTS_FILE = "lakefmt-bench.jsonl"


@click.command(short_help="Advise on index, table type, services and file sizes.")
@table_argument
@click.option(
    "--reads-per-commit",
    type=click.FloatRange(min=0, max=1e6),
    default=1.0,
    show_default=True,
    metavar="N",
    help="Full reads between two commits.",
)
@click.option(
    "--filter-column", "columns", multiple=True, metavar="COLUMN", help="Readers filter by COLUMN. Repeatable."
)
@table_options
def advise(
    table: str,
    as_json: bool,
    options: Mapping[str, str],
    storage_options: Mapping[str, object],
    reads_per_commit: float,
    columns: tuple[str, ...],
) -> None:
    """Say what TABLE should be by its commits and measured costs, with reasons and the settings to paste.

    No row is read and nothing is changed.
    """
    opened = open_for(table, options, storage_options)
    advice = opened.advise(reads_per_commit=reads_per_commit, filter_columns=list(columns))
    print_json(advice.as_json()) if as_json else click.echo(str(advice))


@click.command(short_help="Measure indexes, compaction or clustering on this machine.")
@click.argument("suite", type=click.Choice(["index", "compaction", "clustering"]))
@click.option("--like", metavar="TABLE", help="Imitate TABLE: a profile of its commits and footers; no row is read.")
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    type=click.Choice(["facts", "events", "dimension"]),
    help="Late updates to facts, de-duplication of events, or updates and deletes to a dimension. Repeatable; "
    "default: all three.",
)
@click.option("--rows", type=click.IntRange(min=100, max=1_000_000_000), metavar="N", help="Rows of the tables.")
@click.option("--commits", type=click.IntRange(min=1, max=1000), default=10, show_default=True, help="Commits of each.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, max=10_000),
    default=10.0,
    show_default=True,
    help="Stop after this time; what is not done is left.",
)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write a page.")
@click.option(
    "--resume",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"Keep results in FILE and go on where it ends; default: {_RESULTS_FILE}, begun anew.",
)
@click.option(
    "--storage-option",
    "storage_options",
    type=Pair(typed=True),
    multiple=True,
    callback=as_mapping,
    metavar="KEY=VALUE",
    help="Credential or setting of the store of --like, passed to fsspec; never shown. Repeatable.",
)
@json_option
def bench(
    suite: str,
    like: str | None,
    workloads: tuple[str, ...],
    rows: int | None,
    commits: int,
    minutes: float,
    html: Path | None,
    resume: Path | None,
    storage_options: Mapping[str, object],
    as_json: bool,
) -> None:
    """Measure every index, every kind of compaction or every order of clustering, in tables of its own.

    The tables are made in the temporary folder of this machine and removed. The costs that are measured are kept for
    `lakefmt advise`.
    """
    from lakefmt._core.advice.profiling import keep_curves, shipped_curves
    from lakefmt._core.bench.cells import plan_cells
    from lakefmt._core.bench.run import machine_factors, machine_text, run_cells

    if like is not None and workloads:
        raise click.UsageError("give --like or --workload, not both")
    cells = plan_cells(suite, _profiles_to_measure(like, workloads, rows, storage_options), commits)
    results_file = Path(_RESULTS_FILE) if resume is None else resume
    if resume is None:
        results_file.unlink(missing_ok=True)
    with progress(f"bench {suite}", len(cells), unit="cells") as advance:
        report = run_cells(
            cells, results_file, minutes=minutes, report=lambda _cell, number: advance(1 if number else 0)
        )
    # None where too little was measured.
    curves = machine_factors(report.records, shipped_curves(), machine_text())
    if curves is not None:
        keep_curves(curves)
    if html is not None:
        from lakefmt._core.bench.run import page_of

        html.write_text(page_of(suite, report), "utf-8")
    if as_json:
        print_json(
            {"suite": suite, "records": [record.as_json() for record in report.records], "left": len(report.left)}
        )
        return
    _print_report(suite, report, len(cells), results_file, html)


def _profiles_to_measure(
    like: str | None, workloads: tuple[str, ...], rows: int | None, storage_options: Mapping[str, object]
) -> dict[str, TableProfile]:
    from lakefmt._core.bench.cells import WORKLOADS, workload

    if like is None:
        return {name: workload(name, rows or _DEFAULT_ROWS) for name in workloads or tuple(WORKLOADS)}
    from lakefmt._core.advice.profiling import profile_table

    profile = profile_table(open_for(like, {}, storage_options).client)
    return {"your table": profile if rows is None else profile.scaled(rows)}


def _print_report(suite: str, report: BenchReport, cells: int, results_file: Path, html: Path | None) -> None:
    from lakefmt._core.bench.run import draw_table

    console = plain_console()
    for drawing in draw_table(suite, report):
        console.print(drawing)
    for record in report.records:
        if record.error:
            click.echo(f"{record.cell.workload}, {record.cell.name}: {record.error}", err=True)
    click.echo(f"{len(report.records)} of {cells} measured, {report.resumed} of them before; results in {results_file}")
    if report.left:
        click.echo(f"{len(report.left)} were left: `--resume {results_file}` goes on", err=True)
    if html is not None:
        click.echo(f"page in {html}")
