"""Anything that gives rows as a source: lists of dicts, Arrow tables, functions that return them, resources of dlt (effects).

It has no place in which a later run could go on: every run takes all of it, and a table with a key holds each row once all the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from lakefmt._core.arguments import foreign, foreign_items, shown
from lakefmt._core.ingest.api import Checkpoint, SourceBatch
from lakefmt._core.ingest.transforms import load_function
from lakefmt._core.write.ingest import is_pandas_frame, open_stream, rows_of_dicts
from lakefmt.errors import InvalidInputError, SourceRefused

__all__ = ["IterableSource", "named_source"]

_RUN: Final = re.compile(r"rows-run-([0-9]{1,12})")
_ROWS: Final = 10_000


class _IterableRound:
    def __init__(self, rows: Iterable[Any], name: str, number: int, table_schema: pa.Schema | None) -> None:
        self._rows, self._name, self._table_schema = rows, name, table_schema
        self.checkpoint = Checkpoint(f"rows-run-{number}")

    @property
    def summary(self) -> str:
        """Return that it is all of it."""
        return f"all rows of {self._name}"

    @property
    def expected_rows(self) -> int | None:
        """Return None: only reading tells."""
        return None

    def batches(self) -> Iterator[SourceBatch]:
        """Read the rows."""
        items = foreign_items(self._rows, f"the rows of {self._name} cannot be read")
        for batch in _batches(items, self._name, self._table_schema):
            yield SourceBatch(batch)


def _batches(items: Iterator[Any], name: str, table_schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """Yield what Arrow holds as it is, and dicts in batches."""
    rows = list[Mapping[str, Any]]()
    for item in items:
        if isinstance(item, Mapping):
            rows.append(item)
        elif isinstance(item, list):  # dlt hands rows over in pages
            rows += item
        else:
            yield from _of_dicts(rows, table_schema)
            rows = []
            yield from _arrow_batches(item, name)
        while len(rows) >= _ROWS:
            yield from _of_dicts(rows[:_ROWS], table_schema)
            rows = rows[_ROWS:]
    yield from _of_dicts(rows, table_schema)


def _of_dicts(rows: list[Mapping[str, Any]], table_schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    if rows:
        yield from rows_of_dicts(rows, None if table_schema is None else lambda: table_schema).to_batches()


def _arrow_batches(item: Any, name: str) -> Iterator[pa.RecordBatch]:
    if isinstance(item, pa.RecordBatch):
        yield item
        return
    if not hasattr(item, "__arrow_c_stream__"):
        raise InvalidInputError(f"{name} gave {shown(item)}: rows are dicts, lists of dicts, or Arrow data")
    if is_pandas_frame(item):  # its stream has its index by other rules than a write of it
        for table in open_stream(item)[1]:
            yield from table.to_batches()
        return
    yield from foreign(lambda: pa.RecordBatchReader.from_stream(item), f"the rows of {name} cannot be read")


class IterableSource:
    """Rows of the caller, all in one round.

    Args:
        given: an iterable, or a function that returns one.
        name: in messages.
    """

    def __init__(self, items: Iterable[Any] | Callable[[], Iterable[Any]], name: str) -> None:
        self._given, self._name = items, name
        self._number: int | None = None
        self.table_schema: pa.Schema | None = None

    @property
    def name(self) -> str:
        """Return what messages call it."""
        return self._name

    def schema(self) -> pa.Schema | None:
        """Return None: the rows tell."""
        return None

    def close(self) -> None:
        """Do nothing."""

    def plan(self, after: Checkpoint | None, limit: int | None) -> _IterableRound | None:
        """Take all rows, once.

        Args:
            after: of the newest commit that has one.
            limit: without meaning here.

        Raises:
            SourceRefused: the checkpoint is of another kind of source.
        """
        number = 0
        if after is not None:
            matched = _RUN.fullmatch(after.text)
            if matched is None:
                raise SourceRefused(
                    f"{self._name} gives rows that have no place, and the checkpoint is {shown(after.text)}"
                )
            number = int(matched[1])
        if self._number is not None and number >= self._number:
            return None  # this run's rows are committed
        self._number = number + 1
        rows = self._given() if callable(self._given) and not isinstance(self._given, Iterable) else self._given
        if not isinstance(rows, Iterable):
            raise InvalidInputError(f"{self._name} gave {shown(rows)}, no rows")
        single = isinstance(rows, pa.Table | pa.RecordBatch) or hasattr(rows, "__arrow_c_stream__")
        return _IterableRound([rows] if single else rows, self._name, self._number, self.table_schema)


def named_source(name: str) -> IterableSource:
    """Return the rows that a function ``module:function`` gives, such as a resource of dlt.

    Raises:
        InvalidInputError: there is none.
    """
    return IterableSource(load_function(name, "a source of rows"), name)
