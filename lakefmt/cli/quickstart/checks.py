"""Saying whether two tables hold the same rows, and keeping what was said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from lakefmt.errors import InternalError, SchemaMismatch, UnsupportedFeature
from lakefmt.testing.multiset import multiset_difference, multiset_digest
from lakefmt.values import META_COLUMNS

__all__ = ["Check", "Checks", "read_with_hudi_rs", "require_hudi_rs"]


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison: what was compared with whom, how many rows each has, and the digest of each."""

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
            return f"✓ {self.what}: {self.rows:,} rows, as {self.judge} has it, sha256 {self.digest[:16]}…"
        return f"✗ {self.what}: {self.rows:,} rows, {self.judge} has {self.judge_rows:,}; {self.difference}"


@dataclass
class Checks:
    """The comparisons so far; each digest is reckoned once."""

    tell: Callable[[Check], None]
    done: list[Check] = field(default_factory=list)
    _digests: dict[int, tuple[pa.Table, str]] = field(default_factory=dict)

    @property
    def agree(self) -> bool:
        """Every judge agreed."""
        return all(check.agrees for check in self.done)

    def compare(self, what: str, ours: pa.Table, judge: str, theirs: pa.Table) -> None:
        """Compare our rows with a judge's as typed multisets, and tell the result."""
        digests = self._digest(ours), self._digest(theirs)
        difference = "" if digests[0] == digests[1] else _difference(ours, theirs)
        check = Check(what, judge, ours.num_rows, theirs.num_rows, *digests, difference)
        self.done.append(check)
        self.tell(check)

    def _digest(self, table: pa.Table) -> str:
        # The table is kept with its digest: an id is only unique among the living.
        if id(table) not in self._digests:
            self._digests[id(table)] = table, multiset_digest(table)
        return self._digests[id(table)][1]


def _difference(ours: pa.Table, theirs: pa.Table) -> str:
    try:
        found = multiset_difference(ours, theirs)
    except SchemaMismatch as error:
        return str(error)
    return f"{found.left_only.num_rows:,} rows are only ours, {found.right_only.num_rows:,} only theirs"


def require_hudi_rs() -> None:
    """Make sure that hudi-rs can be asked.

    Raises:
        UnsupportedFeature: it is not installed.
    """
    try:
        import hudi  # noqa: F401 - the question is whether it is there
    except ImportError:
        raise UnsupportedFeature(
            "hudi-rs is not installed, so it cannot judge: pip install 'lakefmt[demo]', or --no-judges"
        ) from None


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
        table = hudi.HudiTableBuilder.from_base_uri(str(path.resolve())).build()  # it takes no relative paths
        rows = pa.Table.from_batches(table.read(hudi.HudiReadOptions([], None, options)))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic of the Rust library is no Exception
        raise InternalError(f"hudi-rs cannot read what was written: {type(error).__name__}: {error}") from None
    return rows.drop_columns([name for name in META_COLUMNS if name in rows.column_names])
