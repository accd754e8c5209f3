"""``python -m examples.page``: what ``make demo-ui`` runs."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import threading
import urllib.request
import webbrowser
from collections.abc import Callable
from pathlib import Path

import click

from examples.page.year import daily_flights, make_table, write_day
from examples.quickstart.flights import extract_flights, read_flights
from examples.quickstart.output import Output
from lakefmt import Table
from lakefmt._core.page.html import write_report
from lakefmt._core.page.server import PageServer
from lakefmt._core.page.tables import PageTables
from lakefmt._core.values import SystemClock
from lakefmt.errors import LakefmtError

__all__ = ["main"]


@click.command("demo-ui")
@click.option(
    "--path",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo_output/page"),
    show_default=True,
    metavar="DIR",
    help="The table is created in DIR/flights; the table of an earlier demo there is replaced.",
)
@click.option("--months", type=click.IntRange(2, 12), default=12, show_default=True, help="How many months of 2013.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0: any free one.")
@click.option(
    "--chart", type=click.Path(dir_okay=False, path_type=Path), help="Write the picture of the timeline, and end."
)
@click.option(
    "--headless/--browser",
    default=os.environ.get("CI", "").lower() == "true",
    help="Look at the page by HTTP, and end; so it is with CI=true.",
)
def main(folder: Path, months: int, port: int, chart: Path | None, headless: bool) -> None:
    """Write a year of flights day by day, open the page, and write the last month while it is open."""
    out = Output()
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "flights", ignore_errors=True)
    try:
        raw = extract_flights(folder)
        days = list(daily_flights(read_flights(raw, range(1, months + 1))))
        table, clock = make_table(folder / "flights")
        last = next(place for place, (day, _) in enumerate(days) if day.month == months)
        out.heading(f"{last} days of 2013, a commit each")
        for day, flights in days[:last]:
            write_day(table, clock, day, flights)
        out.line(str(table.stats()).partition("\n")[0])
        if chart is not None:
            table.plot.timeline(limit=75).save(chart)
            out.line(f"{chart}: {chart.stat().st_size:,} bytes")
            return
        rest = ((day, flights) for day, flights in days[last:])
        if headless:
            newest = list(itertools.islice(rest, 3))
            agrees = _look(folder, table, lambda: [write_day(table, clock, *each) for each in newest], out)
            sys.exit(0 if agrees else 1)
        with PageServer(PageTables([str(folder)]), port=port) as page:
            out.heading(f"open {page.url}")
            out.line("the flights of the last month come in, one day every two seconds; Ctrl-C ends")
            webbrowser.open(page.url)
            pause = threading.Event()
            for day, flights in rest:
                out.line(f"{day}: {write_day(table, clock, day, flights)}")
                pause.wait(2.0)
            pause.wait()
    except LakefmtError as error:
        click.echo(f"error[{error.kind}]: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        out.line("ended")


def _look(folder: Path, table: Table, write: Callable[[], object], out: Output) -> bool:
    """Ask the page as a browser would, and compare what it says with the table; a report is written, too."""
    with PageServer(PageTables([str(folder)])) as page:
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

        def ask(path: str) -> bytes:
            with opener.open(path if path.startswith("http") else page.origin + path, timeout=60) as answer:
                return bytes(answer.read())

        ask(page.url)
        (facts,) = json.loads(ask("/api/v1/tables"))["tables"]
        base = f"/tables/{facts['id']}"
        size = sum(len(ask(f"{base}/{view}")) for view in ("timeline", "files", "rows", "services", "health"))
        out.heading(f"the page at {page.origin}")
        out.line(f"five views, {size:,} bytes; {facts['commits']} commits on the timeline")
        agrees: bool = facts["commits"] == table.stats().commits
        events = opener.open(f"{page.origin}/events?table={facts['id']}", timeout=60)
        events.readline()
        write()
        line = b""
        while b"instants" not in line:
            line = events.readline()
        told = json.loads(events.readline().partition(b":")[2])
        out.line(f"a writer beside it: the page says that {told['latest']} came")
        agrees = agrees and bool(json.loads(ask(f"/api/v1{base}/instants?limit=200"))["total"] == len(table.timeline))
        tables, _ = page.tables.listed()
        written = write_report(folder / "report.html", tables, SystemClock().now())
        out.line(f"{folder / 'report.html'}: {written:,} bytes")
        out.line("✓ the page says what the table says" if agrees else "✗ the page says something else")
        return agrees


if __name__ == "__main__":
    main()
