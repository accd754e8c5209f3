"""Where a judge cannot judge: the rows of ``exemptions.toml``, applied to comparisons and printed at the end of the run.

An exemption never skips: it says what has to be seen instead, and one that nothing needs fails the test of its table.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakefmt._core.values import META_COLUMNS
from lakefmt.errors import LakefmtError
from tests.compat.fixture_tables import SHARED, has_all_fixtures
from tests.judges.compare import assert_same_multiset
from tests.judges.spark import JudgeError

FILE = Path(__file__).with_name("exemptions.toml")
PROPERTY = "exempt"

Answer = pa.Table | str


@dataclass(frozen=True)
class Exemption:
    """One row of the file.

    Attributes:
        judge: ``hudi-rs`` or ``spark``.
        table: the table's name.
        queries: patterns of queries.
        until: only queries about the table at that time or before.
        reason: why.
        seen: ``lakefmt refuses``, ``judge refuses``, ``rows differ``, ``no meta columns`` or ``columns as text``.
        error: the error's name when lakefmt refuses.
        columns: those compared as text.
    """

    judge: str
    table: str
    queries: tuple[str, ...]
    reason: str
    seen: str
    error: str = ""
    columns: tuple[str, ...] = ()
    until: str = ""

    def covers(self, query: str) -> bool:
        """Return whether it is about that query."""
        end = query.replace("..", " ").rpartition(" ")[2]
        early = not self.until or "" < end <= self.until
        return early and any(fnmatch.fnmatchcase(query, pattern) for pattern in self.queries)

    def __str__(self) -> str:
        until = f" until {self.until}" if self.until else ""
        return f"{self.judge} · {self.table} · {', '.join(self.queries)}{until}: {self.seen} – {self.reason}"


def load() -> list[Exemption]:
    """Return the rows of the file."""
    rows = tomllib.loads(FILE.read_text("utf-8"))["exempt"]
    return [
        Exemption(**{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()})
        for row in rows
    ]


def outcome(run: Callable[[], pa.Table]) -> Answer:
    """Return the rows, or what was raised in words that begin with the error's name."""
    try:
        return run()
    except (LakefmtError, JudgeError) as error:
        return f"{type(error).__name__}: {error}"


@dataclass
class Comparison:
    """All comparisons of one table with one judge; every difference is kept, then told together."""

    judge: str
    table: str
    compared: int = 0
    differences: list[str] = field(default_factory=list)
    used: dict[str, Exemption] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.exemptions = [e for e in load() if e.judge == self.judge and e.table == self.table]

    def add(self, query: str, mine: Answer, theirs: Answer) -> None:
        """Compare the two answers to a query."""
        self.compared += 1
        exemption = next((e for e in self.exemptions if e.covers(query)), None)
        if exemption is not None:
            self.used[str(exemption)] = exemption
        try:
            if exemption is None:
                _equal(query, mine, theirs)
            else:
                _exempt(exemption, query, mine, theirs)
        except AssertionError as error:
            self.differences.append(f"{query}: {str(error)[:2000]}")

    def finish(self, record: Callable[[str, object], None]) -> None:
        """Fail with every difference and every exemption that was of no use."""
        for exemption in self.used.values():
            record(PROPERTY, str(exemption))
        unused = [f"exemption is not needed: {e}" for e in self.exemptions if str(e) not in self.used]
        problems = self.differences + unused
        assert not problems, f"{self.table} and {self.judge}, {len(problems)} problems:\n" + "\n".join(problems)
        assert self.compared, "nothing was compared"


def _equal(query: str, mine: Answer, theirs: Answer, ignore: tuple[str, ...] = ()) -> None:
    if isinstance(mine, str) and isinstance(theirs, str):
        return  # both refuse
    assert not isinstance(mine, str), f"lakefmt refuses: {mine}"
    assert not isinstance(theirs, str), f"the judge refuses: {theirs}"
    assert_same_multiset(mine, theirs, ignore_columns=ignore, what=query)


def _exempt(exemption: Exemption, query: str, mine: Answer, theirs: Answer) -> None:
    if exemption.seen == "lakefmt refuses":
        assert isinstance(mine, str), "lakefmt answers: the exemption is not needed"
        assert mine.startswith(exemption.error + ":"), mine
        assert not isinstance(theirs, str), "the judge refuses, too: the exemption is not needed"
    elif exemption.seen == "judge refuses":
        assert not isinstance(mine, str), f"lakefmt refuses: {mine}"
        assert isinstance(theirs, str), "the judge answers: the exemption is not needed"
    elif exemption.seen == "rows differ":
        with pytest.raises(AssertionError):
            _equal(query, mine, theirs)
        assert not isinstance(mine, str), mine
    elif exemption.seen == "no meta columns":
        _equal(query, mine, theirs, META_COLUMNS)
    elif exemption.seen == "columns as text":
        _equal(query, _as_text(mine, exemption.columns), _as_text(theirs, exemption.columns))
    else:
        raise ValueError(f"unknown exemption: {exemption.seen}")


def _as_text(rows: Answer, columns: tuple[str, ...]) -> Answer:
    if isinstance(rows, str):
        return rows
    for name in columns:
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, rows.column(name).cast(pa.string()))
    return rows


def _told(reports: Iterator[Any]) -> list[str]:
    return sorted({str(value) for report in reports for name, value in report.user_properties if name == PROPERTY})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the exemptions that were used, and whether all real tables were there."""
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, [])]
    judged = [r for r in reports if "test_fixtures" in getattr(r, "nodeid", "")]
    for line in _told(iter(judged)):
        terminalreporter.write_line(f"EXEMPT {line}")
    if judged and not has_all_fixtures():
        terminalreporter.write_line(
            f"NOT ALL REAL TABLES: {SHARED.parent.name}/{SHARED.name} is not there (LAKEFMT_REAL_TABLES names the folder); "
            "only the selection in tests/data was read",
            red=True,
        )
