"""What tests of every part use: how much of a law a run asks, and a small table with its rows and what it holds."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.table import Table

__all__ = [
    "SCHEMA",
    "SECONDS_FOR_A_CHILD",
    "THOROUGH",
    "content",
    "product_or_diagonal",
    "rows",
    "table",
    "values_of_run",
]

#: Whether this run asks all there is (`make test-all`); a usual one asks what differs most, to be quick.
THOROUGH = os.environ.get("LAKEFMT_HYPOTHESIS") in ("thorough", "explore")

#: What a process may take that a test starts: on a machine with other work its imports alone may take a minute.
SECONDS_FOR_A_CHILD = 240.0

#: Of the small table.
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
_NUMBERS = itertools.count()


def product_or_diagonal(**axes: Iterable[Any]) -> pytest.MarkDecorator:
    """Ask a test every combination of its parameters in a thorough run, every value of each of them once in a usual one.

    For a rule that does not depend on them all at once. The last values go together, and so on backwards: what is listed
    last is what matters most, as the newest version.

    Args:
        axes: the values of each parameter; one may be `pytest.param(value, id=..., marks=...)`.
    """
    return pytest.mark.parametrize(tuple(axes), cases_of(axes, thorough=THOROUGH))


def cases_of(axes: Mapping[str, Iterable[Any]], *, thorough: bool) -> list[Any]:
    """Return the cases of `product_or_diagonal`."""
    values = [list(each) for each in axes.values()]
    if thorough:
        chosen: Iterable[Sequence[Any]] = itertools.product(*values)
    else:
        longest = max(map(len, values))
        chosen = [[each[(place - longest) % len(each)] for each in values] for place in range(longest)]
    return [_together(case) for case in chosen]


def _together(case: Sequence[Any]) -> Any:
    """Return one case of several values, with the marks of all of them."""
    known = [each if hasattr(each, "marks") else pytest.param(each) for each in case]
    values = [each.values[0] for each in known]
    marks = [mark for each in known for mark in each.marks]
    named = [str(value if each.id is None else each.id) for each, value in zip(known, values, strict=True)]
    is_named = any(each.id is not None for each in known)
    return pytest.param(*values, marks=marks, id="-".join(named) if is_named else None)


def values_of_run(every: Iterable[Any], usual: int = 1) -> list[Any]:
    """Return all values of a parameter in a thorough run, the last ones in a usual run."""
    values = list(every)
    return values if THOROUGH else values[-usual:]


def rows(first: int, last: int, ts: int = 1, shift: int = 0) -> pa.Table:
    """Return rows with the keys from k`first` up to k`last`, in two cities in turn; `shift` moves each to the other one."""
    numbers = range(first, last)
    cities = [("sf", "oslo")[(n + shift) % 2] for n in numbers]
    return pa.table({"id": [f"k{n}" for n in numbers], "city": cities, "ts": [ts] * len(numbers)}, schema=SCHEMA)


def table(*batches: pa.Table, **more: Any) -> Table:
    """Make a table of `rows` in memory, by key, city and time, and upsert the batches.

    Args:
        batches: each a commit.
        more: what `lakefmt.create_table` takes, in place of the usual.
    """
    usual: dict[str, Any] = {"schema": SCHEMA, "record_key": "id", "partition_by": "city", "ordering": "ts"}
    options = {"lakefmt.durability": "none", **more.pop("options", {})}
    made = lakefmt.create_table(f"memory://kit-{next(_NUMBERS)}", **{**usual, **more}, options=options)
    for batch in batches:
        made.upsert(batch)
    return made


def content(found: Table | pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table in order, whichever order they are stored in; of some columns, or of all."""
    read = found if isinstance(found, pa.Table) else found.read()
    chosen = read.select(list(columns)) if columns else read
    return sorted(zip(*(column.to_pylist() for column in chosen.columns), strict=True), key=repr)
