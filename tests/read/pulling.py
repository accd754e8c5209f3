"""Somebody who only ever sees the changes of a table, and has to know the table by them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa


def text(row: Any) -> str:
    return repr(row)


class Pulled:
    """What somebody knows of a table who only ever sees its changes."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()

    def apply(self, changes: pa.Table) -> None:
        for row in changes.to_pylist():
            assert row["op"] in ("i", "u", "d")
            assert (row["before"] is None, row["after"] is None) == (row["op"] == "i", row["op"] == "d")
            if row["before"] is not None:
                before = text(row["before"])
                assert self.rows[before] > 0, f"{row['op']} of a row that the changes before it did not leave: {before}"
                self.rows[before] -= 1
            if row["after"] is not None:
                self.rows[text(row["after"])] += 1

    def check(self, rows: pa.Table, what: str) -> None:
        assert +self.rows == Counter(map(text, rows.to_pylist())), what
