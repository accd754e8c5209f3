"""Terms of filters: one column against values, exactly. Pure.

A value that a column cannot hold is no error and is never rounded: the comparison becomes the one with the nearest value
below that means the same. ``fare_cents > 2.5`` on whole numbers is ``fare_cents > 2``, and what lies outside a type's
range is larger or smaller than every value. That keeps comparisons in the column's own type, where statistics prune.

Every term is true or not true: a comparison with null is not true, and neither is its opposite, as in SQL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.errors import InvalidFilter
from lakefmt.read._filter_conditions import Condition, all_of, exactly, holds_floats
from lakefmt.read._filter_values import double, grid_of, held, place, plain, plain_value

__all__ = ["compare", "compare_columns", "find_column", "is_in", "matches_like"]

_COMPARISONS: Final[dict[str, Callable[[Any, Any], pc.Expression]]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}

#: What holds when a comparison does not, between values that are not null.
_OPPOSITE: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


Column = tuple[pc.Expression, pa.DataType]


def _never() -> Condition:
    # Made when needed: the first scalar makes Arrow look for pandas, which takes most of a second.
    return exactly(pc.scalar(False))


def find_column(schema: pa.Schema, path: tuple[str, ...]) -> Column | None:
    """Return the column or nested field that `path` names, and its type; None when there is none.

    Example:
        >>> find_column(pa.schema([("a", pa.struct([("b", pa.int32())]))]), ("a", "b"))
        (<pyarrow.compute.Expression FieldRef.Nested(FieldRef.Name(a) FieldRef.Name(b))>, DataType(int32))
    """
    if schema.get_field_index(path[0]) < 0:
        return None
    kind = schema.field(path[0]).type
    for name in path[1:]:
        if not pt.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        kind = kind.field(kind.get_field_index(name)).type
    return (pc.field(path[0]) if len(path) == 1 else pc.field(*path)), kind


def compare(column: Column, operator: str, value: object, name: str, *, negated: bool = False) -> Condition:
    """Return ``column operator value``, or the opposite of it; the operator is one of ``= != < <= > >=``.

    Neither is true of a null. Of NaN no comparison but ``!=`` is true, and so the opposite of every other one is.

    Raises:
        InvalidFilter: values of that kind cannot be compared with the column.

    Example:
        >>> compare((pc.field("n"), pa.int32()), ">", 2.5, "n").exact
        <pyarrow.compute.Expression (n > 2)>
    """
    field, kind = column
    known = plain_value(value)
    if known is None:
        return _never()
    if pt.is_floating(kind):
        return _compare_floats(column, operator, *double(known, kind, name), negated=negated)
    operator = _OPPOSITE[operator] if negated else operator
    grid = grid_of(kind)
    if grid is None:
        known, kind = plain(known, kind, name)
        return exactly(_COMPARISONS[operator](field, pc.scalar(pa.scalar(known, kind))))
    wanted = place(known, kind, grid, name)
    if wanted > grid.high or wanted < grid.low:
        holds = operator == "!=" or (operator in ("<", "<=")) == (wanted > grid.high)
        return exactly(field.is_valid()) if holds and operator != "=" else _never()
    below = math.floor(wanted)
    if wanted != below:
        if operator in ("=", "!="):
            return exactly(field.is_valid()) if operator == "!=" else _never()
        operator = "<=" if operator in ("<", "<=") else ">"
    return exactly(_COMPARISONS[operator](field, pc.scalar(grid.array([below])[0])))


def compare_columns(left: Column, operator: str, right: Column, *, negated: bool = False) -> Condition:
    """Return ``left operator right``, or the opposite of it."""
    if not (holds_floats(left[1]) or holds_floats(right[1])):
        return exactly(_COMPARISONS[_OPPOSITE[operator] if negated else operator](left[0], right[0]))
    # The opposite of `<` is not `>=` where NaN can be.
    found = _COMPARISONS[operator](left[0], right[0])
    return Condition(~found if negated else found, None)


#: Comparisons that mean the same with infinity as with a number beyond all doubles.
_BEYOND: Final = {
    math.inf: {"<": "<", "<=": "<", ">": ">=", ">=": ">="},
    -math.inf: {"<": "<=", "<=": "<=", ">": ">", ">=": ">"},
}


def _compare_floats(column: Column, operator: str, value: float, beyond: bool, *, negated: bool) -> Condition:
    field = column[0]
    if beyond:
        if operator in ("=", "!="):
            return _never() if (operator == "=") != negated else exactly(field.is_valid())
        operator = _BEYOND[value][operator]
    holds = _COMPARISONS[operator](field, pc.scalar(pa.scalar(value, pa.float64())))
    if negated or operator == "!=":
        return Condition(~holds if negated else holds, field.is_valid())
    return Condition(holds, _bounded(column, operator, value)) if column[1] != pa.float64() else exactly(holds)


def _bounded(column: Column, operator: str, value: float) -> pc.Expression:
    """Return a comparison in the column's own type, where statistics are, that holds wherever the given one does."""
    if operator == "=":
        return _bounded(column, ">=", value) & _bounded(column, "<=", value)
    upwards = operator in ("<", "<=")
    with np.errstate(over="ignore"):
        bound = np.float32(value)
        # Rounded to the nearest it may lie on the wrong side.
        if upwards and float(bound) < value:
            bound = np.nextafter(bound, np.float32(np.inf))
        if not upwards and float(bound) > value:
            bound = np.nextafter(bound, np.float32(-np.inf))
    return _COMPARISONS["<=" if upwards else ">="](column[0], pc.scalar(pa.scalar(float(bound), pa.float32())))


def is_in(column: Column, values: Iterable[object], name: str, *, negated: bool) -> Condition:
    """Return whether the column equals a value of a list, or none; a null in the list makes *not in* never true, as in SQL.

    Raises:
        InvalidFilter: a value cannot be compared with the column.

    Example:
        >>> is_in((pc.field("n"), pa.int32()), [1, 2.5], "n", negated=False).exact
        <pyarrow.compute.Expression is_in(n, {value_set=int32:[
          1
        ], null_matching_behavior=MATCH})>
    """
    field, kind = column
    given = [plain_value(value) for value in values]
    present = [value for value in given if value is not None]
    if negated and len(present) < len(given):
        return _never()
    if pt.is_floating(kind):
        return _float_is_in(column, [double(value, kind, name) for value in present], negated=negated)
    found = field.isin(held(present, kind, name))
    return exactly((~found & field.is_valid()) if negated else found)


def _float_is_in(column: Column, given: Sequence[tuple[float, bool]], *, negated: bool) -> Condition:
    """Return what a chain of ``=`` means: the two zeros are equal, and NaN equals nothing, not even itself."""
    field = column[0]
    values = np.unique([value + 0.0 for value, beyond in given if not (beyond or math.isnan(value))])
    if not len(values):
        return exactly(field.is_valid()) if negated else _never()
    # A set tells 0.0 from -0.0; to add 0.0 makes one of them, and changes nothing else.
    normal = pc.add(field.cast(pa.float64()), pc.scalar(pa.scalar(0.0)))
    found = normal.isin(pa.array(values, pa.float64()))
    if negated:
        return Condition(~found & field.is_valid(), field.is_valid())
    ends = [compare(column, ">=", float(values[0]), ""), compare(column, "<=", float(values[-1]), "")]
    return Condition(found, all_of(ends).pruning)


def matches_like(
    column: Column, pattern: object, escape: str | None, name: str, *, any_case: bool, negated: bool = False
) -> Condition:
    r"""Return whether a text matches an SQL pattern, or does not: ``%`` any characters, ``_`` one.

    Raises:
        InvalidFilter: the column is no text, or the pattern is none.

    Example:
        >>> matches_like((pc.field("s"), pa.string()), "a%", None, "s", any_case=False).exact
        <pyarrow.compute.Expression match_substring_regex(s, {pattern="^(?s:a.*)$", ignore_case=false})>
    """
    field, kind = column
    if not (pt.is_string(kind) or pt.is_large_string(kind)):
        raise InvalidFilter(f"like needs a text column, and {name!r} is of type {kind}")
    pattern = plain_value(pattern)
    if pattern is None:
        return _never()
    if not isinstance(pattern, str) or (escape is not None and len(escape) != 1):
        raise InvalidFilter(f"like needs a pattern in quotes and at most one escape character, not {pattern!r:.80}")
    # Arrow's own LIKE always takes a backslash for an escape.
    found = pc.match_substring_regex(field, f"^(?s:{_regex(pattern, escape)})$", ignore_case=any_case)
    return exactly(~found if negated else found)


def _regex(pattern: str, escape: str | None) -> str:
    pieces = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            letter = next(letters, "")
            if letter not in ("%", "_", escape):
                raise InvalidFilter(f"the pattern {pattern!r:.80} escapes something that is neither % nor _")
            pieces.append(_quoted(letter))
        else:
            pieces.append({"%": ".*", "_": "."}.get(letter) or _quoted(letter))
    return "".join(pieces)


def _quoted(letter: str) -> str:
    return f"\\x{{{ord(letter):x}}}" if not letter.isalnum() else letter
