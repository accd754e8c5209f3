"""Comparisons of two tables as typed multisets of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from lakefmt.errors import InternalError, SchemaMismatch, UnsupportedFeature
from lakefmt.testing.multiset import multiset_difference, multiset_digest

__all__ = ["Check", "Checks", "read_with_hudi_rs", "require_hudi_rs"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one comparison.

    Attributes:
        what: the rows that were compared.
        judge: the other reader.
        rows: number of rows that lakefmt read.
        judge_rows: number of rows of the other reader.
        digest: sha256 of the rows that lakefmt read.
        judge_digest: sha256 of the other reader's rows.
        difference: how many rows differ, when some do.
    """

    what: str
    judge: str
    rows: int
    judge_rows: int
    digest: str
    judge_digest: str
    difference: str = ""

    @property
    def agrees(self) -> bool:
        """Both hold the same typed rows."""
        return self.digest == self.judge_digest

    def __str__(self) -> str:
        if self.agrees:
            return f"✓ {self.what}: {self.rows:,} rows, equal to {self.judge}, sha256 {self.digest[:16]}…"
        return f"✗ {self.what}: {self.rows:,} rows, {self.judge} has {self.judge_rows:,}; {self.difference}"


@dataclass
class Checks:
    """The comparisons so far; the digest of a table is computed once."""

    show: Callable[[Check], None]
    done: list[Check] = field(default_factory=list)
    _digests: dict[int, tuple[pa.Table, str]] = field(default_factory=dict)

    @property
    def agree(self) -> bool:
        """No comparison differs."""
        return all(check.agrees for check in self.done)

    def compare(self, what: str, rows: pa.Table, judge: str, judge_rows: pa.Table) -> None:
        """Compare rows with those of another reader as typed multisets, and show the result."""
        digests = self._digest(rows), self._digest(judge_rows)
        difference = "" if digests[0] == digests[1] else _difference(rows, judge_rows)
        check = Check(what, judge, rows.num_rows, judge_rows.num_rows, *digests, difference)
        self.done.append(check)
        self.show(check)

    def _digest(self, table: pa.Table) -> str:
        # The table is kept with its digest: an id is unique only among objects that exist.
        if id(table) not in self._digests:
            self._digests[id(table)] = table, multiset_digest(table)
        return self._digests[id(table)][1]


def _difference(rows: pa.Table, judge_rows: pa.Table) -> str:
    try:
        difference = multiset_difference(rows, judge_rows)
    except SchemaMismatch as error:
        return str(error)
    return (
        f"{difference.left_only.num_rows:,} rows only in lakefmt, {difference.right_only.num_rows:,} only in the other"
    )


def require_hudi_rs() -> None:
    """Check that hudi-rs is installed.

    Raises:
        UnsupportedFeature: it is not installed.
    """
    try:
        import hudi  # noqa: F401 - imported to see whether it is installed
    except ImportError:
        raise UnsupportedFeature("hudi-rs is not installed: pip install 'lakefmt[demo]', or --no-judges") from None


def read_with_hudi_rs(path: Path, as_of: str | None = None) -> pa.Table:
    """Read a table with hudi-rs, without the meta columns.

    Raises:
        UnsupportedFeature: hudi-rs is not installed.
        InternalError: it refuses the table, which means that lakefmt wrote it wrongly.
    """
    require_hudi_rs()
    import hudi

    options = {} if as_of is None else {"hoodie.read.as.of.timestamp": as_of}
    try:
        table = hudi.HudiTableBuilder.from_base_uri(str(path.resolve())).build()  # hudi-rs accepts no relative paths
        rows = pa.Table.from_batches(table.read(hudi.HudiReadOptions([], None, options)))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic of the Rust library is no Exception
        raise InternalError(f"hudi-rs cannot read what was written: {type(error).__name__}: {error}") from None
    return rows.drop_columns([name for name in rows.column_names if name.startswith("_hoodie_")])
