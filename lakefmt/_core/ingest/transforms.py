"""What is done with rows between the source and the table: SQL by DuckDB, flattening, a function of the caller (effects)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.arguments import foreign, shown
from lakefmt._core.schema.types import struct_fields
from lakefmt.errors import InvalidInputError, SchemaMismatch, UnsupportedFeature

__all__ = ["Transform", "open_transforms"]

Kinds = npt.NDArray[np.int8] | None

#: Hudi's placeholder for the rows.
_SOURCE: Final = re.compile(r"<SRC>", re.IGNORECASE)
_VIEW: Final = "lakefmt_source"
_KIND: Final = "_lakefmt_row_kind"
_MOST_SQL_BYTES: Final = 1 << 20


class Transform(Protocol):
    """Makes other rows of rows."""

    def __call__(self, rows: pa.RecordBatch, kinds: Kinds) -> tuple[pa.RecordBatch, Kinds]:
        """Return the rows, and the kind of each, where there are kinds."""


def open_transforms(names: Sequence[str]) -> tuple[Transform, ...]:
    """Return a chain of transformers.

    Args:
        names: ``flatten``, ``sql:SELECT … FROM <SRC>`` (``sql:`` may be left out), ``sql-file:PATH``, or ``python:module:function``.

    Raises:
        InvalidInputError: there is no such transformer.
        UnsupportedFeature: DuckDB is not installed.
    """
    return tuple(_opened(name) for name in names)


def _opened(name: str) -> Transform:
    kind, colon, rest = name.partition(":")
    if name == "flatten":
        return _flatten
    if kind == "python" and colon:
        return _Function(rest)
    if kind == "sql-file" and colon:
        path = Path(rest.removeprefix("file://"))
        if not path.is_file() or path.stat().st_size > _MOST_SQL_BYTES:
            raise InvalidInputError(f"the SQL of a transformer is not in {rest}")
        return _Sql(path.read_text(encoding="utf-8"))
    text = rest if kind == "sql" and colon else name
    if _SOURCE.search(text):
        return _Sql(text)
    raise InvalidInputError(
        f"{shown(name)} is no transformer: give 'flatten', SQL with <SRC>, 'sql-file:PATH' or 'python:module:function'"
    )


class _Sql:
    """A query over the rows of each batch, so aggregates are those of a batch."""

    def __init__(self, text: str) -> None:
        try:
            import duckdb  # the engine of the query; lakefmt's own expressions are no queries
        except ImportError:
            raise UnsupportedFeature("SQL over rows needs lakefmt[ingest]: install it with pip") from None
        self._duckdb = duckdb
        self._text = _SOURCE.sub(_VIEW, text.strip().rstrip(";"))

    def __call__(self, rows: pa.RecordBatch, kinds: Kinds) -> tuple[pa.RecordBatch, Kinds]:
        table = pa.Table.from_batches([rows])
        with self._duckdb.connect(":memory:", config={"enable_external_access": "false"}) as connection:
            # The rows of each kind on their own: what a query makes of a row says nothing of its kind.
            parts, made = list[pa.Table](), list[npt.NDArray[np.int8]]()
            for kind, part in _by_kind(table, kinds):
                connection.register(_VIEW, part)
                result = foreign(lambda: connection.sql(self._text).to_arrow_table(), "the SQL of a transformer failed")
                connection.unregister(_VIEW)
                parts.append(result)
                made.append(np.full(result.num_rows, kind, np.int8))
        return _one_batch(pa.concat_tables(parts)), None if kinds is None else np.concatenate(made)


def _by_kind(rows: pa.Table, kinds: Kinds) -> list[tuple[int, pa.Table]]:
    """Return runs of rows of one kind, in their order."""
    if kinds is None or not len(kinds):
        return [(0, rows)]
    borders = np.flatnonzero(np.diff(kinds)) + 1
    begins = [0, *borders.tolist()]
    ends = [*borders.tolist(), len(kinds)]
    return [(int(kinds[begin]), rows.slice(begin, end - begin)) for begin, end in zip(begins, ends, strict=True)]


class _Function:
    """A function of the caller over an Arrow table, which returns one."""

    def __init__(self, name: str) -> None:
        from lakefmt._core.ingest.functions import load_function

        self._name, self._function = name, load_function(name, "a transformer")

    def __call__(self, rows: pa.RecordBatch, kinds: Kinds) -> tuple[pa.RecordBatch, Kinds]:
        table = pa.Table.from_batches([rows])
        if kinds is not None:
            table = table.append_column(_KIND, pa.array(kinds, pa.int8()))
        made: Any = foreign(lambda: self._function(table), f"transformer {self._name!r} failed")
        if not isinstance(made, pa.Table):
            raise InvalidInputError(f"transformer {self._name!r} returned {shown(made)}, not a pyarrow.Table")
        if kinds is not None:
            if _KIND not in made.schema.names:
                raise SchemaMismatch(
                    f"transformer {self._name!r} dropped the column {_KIND}, which tells deletes from other rows"
                )
            kinds = made[_KIND].to_numpy().astype(np.int8)
            made = made.drop_columns([_KIND])
        return _one_batch(made), kinds


def _flatten(rows: pa.RecordBatch, kinds: Kinds) -> tuple[pa.RecordBatch, Kinds]:
    """Make a column of each field of structs, at any depth, with underscores in its name."""
    names, columns = list[str](), list[pa.Array]()
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        _flatten_column(name, column, names, columns)
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise SchemaMismatch(f"flattening makes two columns {sorted(doubled)[0]!r}")
    return pa.record_batch(columns, names=names), kinds


def _flatten_column(name: str, column: pa.Array, names: list[str], columns: list[pa.Array]) -> None:
    if not pa.types.is_struct(column.type):
        names.append(name)
        columns.append(column)
        return
    for each, part in zip(struct_fields(column.type), column.flatten(), strict=True):
        _flatten_column(f"{name}_{each.name}", part, names, columns)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
