"""Arrow data as rows of a stream: in the table's columns, with what each row does. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.arguments import shown
from lakefmt.errors import InvalidInputError, SchemaMismatch
from lakefmt.producers.stream.operators import DELETES, RowOperator, parse_operator
from lakefmt.producers.stream.rows import RowChecker, nullable
from lakefmt.schema import conform
from lakefmt.schema.types import field_at
from lakefmt.segments.codec import COLUMNS, OPERATOR
from lakefmt.segments.operators import STRICT, WHOLE_ROWS

__all__ = ["Numbers", "arrow_rows", "encode_columns", "has_strict", "operator_numbers", "without_column"]

Numbers: TypeAlias = npt.NDArray[np.int8]

_PARTIAL: Final = DELETES | {RowOperator.UPDATE}


def operator_numbers(column: pa.ChunkedArray, default: RowOperator) -> Numbers:
    """Return the number of each row's operator.

    Args:
        column: names of operators, in any letter case, or their numbers as failed rows have them; null: the default.
        default: of the stream.

    Raises:
        InvalidInputError: the column holds something else.

    Example:
        >>> operator_numbers(pa.chunked_array([["upsert", None, "Delete"]]), RowOperator.INSERT).tolist()
        [4, 1, 5]
    """
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pt.is_integer(column.type):
        column = pc.cast(column, pa.string())
        names_of = {str(kind.value): kind.name for kind in RowOperator}
    else:
        names_of = {}
    if not (pt.is_string(column.type) or pt.is_large_string(column.type)):
        raise InvalidInputError(f"the operator column holds {column.type}: names of operators are expected")
    coded = column.combine_chunks().dictionary_encode()
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    names = [names_of.get(name, name) for name in coded.dictionary.to_pylist()]  # distinct names, not rows
    numbers = np.array([*(parse_operator(name).value for name in names), default.value], np.int8)
    taken: Numbers = numbers[coded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)]
    return taken


def arrow_rows(
    rows: pa.Table, checker: RowChecker, operators: RowOperator | Numbers, allowed: Collection[RowOperator]
) -> pa.Table:
    """Return Arrow data with the columns of a segment.

    Args:
        rows: the data, without a column of operators; failed rows also say which columns an update sets.
        checker: of the table's columns.
        operators: what all rows do, or the number for each.
        allowed: the operators that the stream takes.

    Raises:
        SchemaMismatch: the data do not fit the table's columns.
        InvalidKey: a key is empty, or a partition path cannot be used.
        InvalidInputError: the stream does not take an operator.
    """
    if isinstance(operators, RowOperator):
        numbers, kinds = np.full(rows.num_rows, operators.value, np.int8), {operators}
    else:
        numbers, kinds = operators, {RowOperator(int(number)) for number in np.unique(operators)}
    refused = sorted(kind.name for kind in kinds - set(allowed))
    if refused:
        raise InvalidInputError(f"the stream does not take {', '.join(refused)}")
    if lacking := [name for name in checker.inner_keys if field_at(rows.schema, name) is None]:
        raise SchemaMismatch(f"the data lack {', '.join(map(repr, lacking))}, of which a key or a path is made")
    named = rows.column(COLUMNS) if COLUMNS in rows.column_names else None
    rows = rows if named is None else rows.drop_columns([COLUMNS])
    allow = checker.null_elements
    made = conform(rows, _wanted(checker, partial=bool(kinds & _PARTIAL)), allow_null_list_elements=allow)
    whole = np.isin(numbers, [kind.value for kind in WHOLE_ROWS])
    if kinds & _PARTIAL and whole.any():
        conform(rows.filter(pa.array(whole)), _wanted(checker, partial=False), allow_null_list_elements=allow)
    checker.refuse_odd_table(made, np.isin(numbers, [each.value for each in DELETES]))
    made = made.cast(nullable(made.schema)).append_column(OPERATOR, pa.array(numbers))
    if RowOperator.UPDATE not in kinds:
        return made
    text = encode_columns([name for name in checker.names if name in rows.column_names])
    is_update = pa.array(numbers == RowOperator.UPDATE.value)
    texts = pc.if_else(is_update, pa.scalar(text), pa.scalar(None, pa.string()))
    return made.append_column(COLUMNS, texts if named is None else pc.coalesce(named, texts))


def has_strict(rows: pa.Table) -> bool:
    """Return whether some rows have an operator that looks its key up."""
    return bool(np.isin(rows.column(OPERATOR).to_numpy(), [kind.value for kind in STRICT]).any())


def without_column(rows: pa.Table, name: str, checker: RowChecker) -> tuple[pa.Table, pa.ChunkedArray]:
    """Return data without the column of operators, and that column.

    Raises:
        InvalidInputError: it is a column of the table.
        SchemaMismatch: the data have no such column, or several.
    """
    if name in checker.names:
        raise InvalidInputError(f"operator_column={shown(name)} is a column of the table: give it another name")
    if rows.column_names.count(name) != 1:
        raise SchemaMismatch(f"the data have no column {shown(name)} of operators: they have {rows.column_names}")
    return rows.drop_columns([name]), rows.column(name)


def _wanted(checker: RowChecker, *, partial: bool) -> pa.Schema:
    """Return the columns that rows need: those of the key are never null."""
    keys = frozenset(checker.keys)
    return pa.schema(
        [field.with_nullable((partial or field.nullable) and field.name not in keys) for field in checker.schema]
    )


def encode_columns(columns: Sequence[str]) -> str:
    """Return the names of the columns that a row sets, as a segment stores them.

    Example:
        >>> encode_columns(("id", "v"))
        '["id","v"]'
    """
    return json.dumps(list(columns), separators=(",", ":"))
