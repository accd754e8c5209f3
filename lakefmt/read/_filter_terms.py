"""Terms of filters: one column compared with values, exactly. Pure.

A value that a column cannot store is neither an error nor rounded: the comparison uses the nearest
lower value of the type with the same meaning. ``fare_cents > 2.5`` on integers is ``fare_cents >
2``, and a value outside the type's range is larger or smaller than all. So comparisons keep the
column's type, in which statistics prune.

A comparison with null is not true, and neither is its opposite, as in SQL.
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
from lakefmt.read._filter_conditions import Condition, all_of, exactly, holds_floats, one_of
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

_LAST_CHARACTER: Final = 0x10FFFF
_FIRST_SURROGATE, _AFTER_SURROGATES = 0xD800, 0xE000

#: The opposite of each comparison between non-null values.
_OPPOSITE: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


Column = tuple[pc.Expression, pa.DataType]


def _never() -> Condition:
    # Created on first use: the first scalar makes Arrow import pandas, which takes most of a
    # second.
    return exactly(pc.scalar(False))


def find_column(schema: pa.Schema, path: tuple[str, ...]) -> Column | None:
    """Return the expression and type of the column or nested field `path`; None if it does not exist.

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
    """Return ``column operator value`` or its opposite; operators are ``= != < <= > >=``.

    Neither is true for null. For NaN only ``!=`` is true, and the opposite of every other
    comparison.

    Raises:
        InvalidFilter: the value cannot be compared with the column.

    Example:
        >>> compare((pc.field("n"), pa.int32()), ">", 2.5, "n").exact
        <pyarrow.compute.Expression (n > 2)>
    """
    field, kind = column
    operand = plain_value(value)
    if operand is None:
        return _never()
    if pt.is_floating(kind):
        return _compare_floats(column, operator, *double(operand, kind, name), negated=negated)
    operator = _OPPOSITE[operator] if negated else operator
    grid = grid_of(kind)
    if grid is None:
        operand, stored = plain(operand, kind, name)
        condition = exactly(_COMPARISONS[operator](field, pc.scalar(pa.scalar(operand, stored))))
        return one_of(condition, name, pa.array([operand], stored)) if operator == "=" else condition
    wanted = place(operand, kind, grid, name)
    if wanted > grid.high or wanted < grid.low:
        holds = operator == "!=" or (operator in ("<", "<=")) == (wanted > grid.high)
        return exactly(field.is_valid()) if holds and operator != "=" else _never()
    below = math.floor(wanted)
    if wanted != below:
        if operator in ("=", "!="):
            return exactly(field.is_valid()) if operator == "!=" else _never()
        operator = "<=" if operator in ("<", "<=") else ">"
    only = grid.array([below])
    condition = exactly(_COMPARISONS[operator](field, pc.scalar(only[0])))
    return one_of(condition, name, only) if operator == "=" else condition


def compare_columns(left: Column, operator: str, right: Column, *, negated: bool = False) -> Condition:
    """Return ``left operator right`` or its opposite; beside floating point numbers whole numbers become doubles."""
    if not (holds_floats(left[1]) or holds_floats(right[1])):
        return exactly(_COMPARISONS[_OPPOSITE[operator] if negated else operator](left[0], right[0]))
    # Arrow's own cast fails for whole numbers that no double holds. With NaN the opposite of `<` is not `>=`.
    comparison = _COMPARISONS[operator](*(_as_double(column) for column in (left, right)))
    return Condition(~comparison if negated else comparison, None)


def _as_double(column: Column) -> pc.Expression:
    field, kind = column
    return field.cast(pa.float64(), safe=False) if pt.is_integer(kind) else field


#: Comparisons whose result for a number beyond all doubles is that for infinity.
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
    """Return a comparison in the column's own type that is true wherever the given one is."""
    if operator == "=":
        return _bounded(column, ">=", value) & _bounded(column, "<=", value)
    upwards = operator in ("<", "<=")
    with np.errstate(over="ignore"):
        bound = np.float32(value)
        # The nearest value may be on the wrong side.
        if upwards and float(bound) < value:
            bound = np.nextafter(bound, np.float32(np.inf))
        if not upwards and float(bound) > value:
            bound = np.nextafter(bound, np.float32(-np.inf))
    return _COMPARISONS["<=" if upwards else ">="](column[0], pc.scalar(pa.scalar(float(bound), pa.float32())))


def is_in(column: Column, values: Iterable[object], name: str, *, negated: bool) -> Condition:
    """Return whether the column equals a listed value; with a null in the list, *not in* is never true, as in SQL.

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
    storable = held(present, kind, name)
    condition = field.isin(storable)
    return exactly(~condition & field.is_valid()) if negated else one_of(exactly(condition), name, storable)


def _float_is_in(column: Column, given: Sequence[tuple[float, bool]], *, negated: bool) -> Condition:
    """Return the chain of ``=`` over floats: both zeros are equal, and NaN equals nothing."""
    field = column[0]
    values = np.unique([value + 0.0 for value, beyond in given if not (beyond or math.isnan(value))])
    if not len(values):
        return exactly(field.is_valid()) if negated else _never()
    # A set distinguishes 0.0 from -0.0; adding 0.0 maps both to 0.0 and changes nothing else.
    normal = pc.add(field.cast(pa.float64()), pc.scalar(pa.scalar(0.0)))
    condition = normal.isin(pa.array(values, pa.float64()))
    if negated:
        return Condition(~condition & field.is_valid(), field.is_valid())
    ends = [compare(column, ">=", float(values[0]), ""), compare(column, "<=", float(values[-1]), "")]
    return Condition(condition, all_of(ends).pruning)


def matches_like(
    column: Column, pattern: object, escape: str | None, name: str, *, any_case: bool, negated: bool = False
) -> Condition:
    r"""Return whether a text matches an SQL pattern: ``%`` any characters, ``_`` one.

    Raises:
        InvalidFilter: the column or the pattern is not a text.

    Example:
        >>> matches_like((pc.field("s"), pa.string()), "%a", None, "s", any_case=False).exact
        <pyarrow.compute.Expression match_substring_regex(s, {pattern="^(?s:.*a)$", ignore_case=false})>
    """
    field, kind = column
    if not (pt.is_string(kind) or pt.is_large_string(kind)):
        raise InvalidFilter(f"like needs a text column, and {name!r} is of type {kind}")
    pattern = plain_value(pattern)
    if pattern is None:
        return _never()
    if not isinstance(pattern, str) or (escape is not None and len(escape) != 1):
        raise InvalidFilter(f"like needs a pattern in quotes and at most one escape character, not {pattern!r:.80}")
    # Arrow's LIKE always treats a backslash as an escape.
    condition = pc.match_substring_regex(field, f"^(?s:{_regex(pattern, escape)})$", ignore_case=any_case)
    if negated:
        return exactly(~condition)
    begins = None if any_case else _begins_with(field, _literal_prefix(pattern, escape))
    return exactly(condition if begins is None else begins & condition)


def _literal_prefix(pattern: str, escape: str | None) -> str:
    """Return what every text that matches a pattern begins with."""
    prefix = ""
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            letter = next(letters, "")
        elif letter in ("%", "_"):
            break
        prefix += letter
    return prefix


def _begins_with(field: pc.Expression, prefix: str) -> pc.Expression | None:
    """Return a comparison that statistics can evaluate and that is true for texts with a prefix."""
    if not prefix:
        return None
    bound = prefix.rstrip(chr(_LAST_CHARACTER))
    least = field >= pc.scalar(prefix)
    if not bound:
        return least
    following = ord(bound[-1]) + 1
    # Surrogates are no characters.
    behind = bound[:-1] + chr(_AFTER_SURROGATES if following == _FIRST_SURROGATE else following)
    return least & (field < pc.scalar(behind))


def _regex(pattern: str, escape: str | None) -> str:
    parts = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            letter = next(letters, "")
            if letter not in ("%", "_", escape):
                raise InvalidFilter(f"the pattern {pattern!r:.80} escapes something that is neither % nor _")
            parts.append(_quoted(letter))
        else:
            parts.append({"%": ".*", "_": "."}.get(letter) or _quoted(letter))
    return "".join(parts)


def _quoted(letter: str) -> str:
    return f"\\x{{{ord(letter):x}}}" if not letter.isalnum() else letter
