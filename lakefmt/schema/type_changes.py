"""Changes of a column's type: which Hudi allows, which keep every value, and how stored values follow (docs/schema.md). Pure.

The matrix is Hudi's (SchemaChangeUtils). Values are converted as Hudi's readers convert them: a double is the one of the
float's shortest text, texts of numbers are Java's, and a text that is no number or date becomes null.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.errors import SchemaMismatch
from lakefmt.schema.history import decimal_of
from lakefmt.schema.java_text import java_text

__all__ = ["check_type_change", "convert_stored", "is_followed_by_name"]

_NUMBERS: Final = ("int", "long", "float", "double")
#: Hudi allows these, and they keep every value, or round it as Hudi does.
_WIDER: Final = frozenset(
    {
        *(("int", wider) for wider in ("long", "float", "double", "string")),
        *(("long", wider) for wider in ("float", "double", "string")),
        *(("float", wider) for wider in ("double", "string")),
        ("double", "string"),
        ("date", "string"),
    }
)
_DIGITS: Final = {"int": 10, "long": 19}
#: Changes after which readers that go by names read the same values.
_BY_NAME: Final = frozenset({("int", "long"), ("int", "double")})
_DATE: Final = r"^\d{4}-\d{2}-\d{2}$"
_NUMBER: Final = r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$"


def check_type_change(name: str, old: str, new: str) -> None:
    """Raise unless a column may get another type: Hudi's matrix, without the changes that lose values.

    Args:
        name: the column, for errors.
        old: its type in Hudi's words.
        new: the wanted type.

    Raises:
        SchemaMismatch: Hudi does not allow the change, or stored values could be lost.

    Example:
        >>> check_type_change("n", "int", "long")
        >>> check_type_change("n", "long", "int")
        Traceback (most recent call last):
            ...
        lakefmt.errors.SchemaMismatch: column 'n' is long, and Hudi does not let it become int: add a column and fill it
    """
    if old == new or (old, new) in _WIDER:
        return
    before, after = decimal_of(old), decimal_of(new)
    if before is not None and (after is None and new == "string"):
        return
    if after is not None:
        whole = after[0] - after[1]
        if before is not None and after[1] >= before[1] and whole >= before[0] - before[1]:
            return
        if old in _DIGITS and whole >= _DIGITS[old]:
            return
        if before is not None or old in (*_NUMBERS, "string"):
            raise SchemaMismatch(
                f"column {name!r} is {old}, and not all of its values fit {new}: take a decimal with more digits, or add a "
                "column and fill it"
            )
    if (old, new) == ("string", "date"):
        raise SchemaMismatch(
            f"column {name!r} holds texts, and those that are no dates would be lost: add a column and fill it"
        )
    raise SchemaMismatch(f"column {name!r} is {old}, and Hudi does not let it become {new}: add a column and fill it")


def is_followed_by_name(old: str, new: str) -> bool:
    """Return whether stored values of an older type read the same where readers know nothing of the change.

    Example:
        >>> is_followed_by_name("int", "long"), is_followed_by_name("float", "double")
        (True, False)
    """
    before, after = decimal_of(old), decimal_of(new)
    if before is not None and after is not None:
        return before[1] == after[1] and before[0] <= after[0]
    return old == new or (old, new) in _BY_NAME


def convert_stored(array: pa.Array, kind: str) -> pa.Array:
    """Return stored values as the type that their column has now, as Hudi's readers convert them.

    Args:
        array: values of a file, not nested.
        kind: the type in Hudi's words.

    Raises:
        pa.ArrowInvalid: a value does not fit.

    Example:
        >>> convert_stored(pa.array([1.1], pa.float32()), "double").to_pylist()
        [1.1]
        >>> convert_stored(pa.array(["2026-01-02", "?"]), "date").to_pylist()
        [datetime.date(2026, 1, 2), None]
    """
    have = array.type
    decimal = decimal_of(kind)
    if decimal is not None:
        return _to_decimal(array, pa.decimal128(*decimal))
    if kind == "double" and pt.is_float32(have):
        return array.cast(pa.string()).cast(pa.float64())
    if kind in ("double", "float"):
        return array.cast(pa.float64() if kind == "double" else pa.float32(), safe=False)
    if kind == "long" and pt.is_integer(have):
        return array.cast(pa.int64())
    if kind == "string" and not pt.is_string(have):
        return array.cast(pa.string()) if pt.is_binary(have) else java_text(array, "")
    if kind == "date" and pt.is_string(have):
        return _matching(array, _DATE).cast(pa.date32())
    return array


def _to_decimal(array: pa.Array, kind: pa.DataType) -> pa.Array:
    have = array.type
    if pt.is_integer(have):
        return array.cast(pa.decimal128(38, 0)).cast(pa.decimal256(76, kind.scale)).cast(kind)
    if pt.is_floating(have):
        array = array.cast(pa.string())
    if pt.is_string(array.type):
        numbers = _matching(array, _NUMBER).cast(pa.decimal256(76, 38))
        rounded = pc.round(numbers, ndigits=kind.scale, round_mode="half_towards_infinity")
        return rounded.cast(pa.decimal256(76, kind.scale)).cast(kind)
    return array.cast(pa.decimal256(76, kind.scale)).cast(kind) if pt.is_decimal(have) else array


def _matching(texts: pa.Array, pattern: str) -> pa.Array:
    """Return the texts that match a pattern; others are null."""
    return pc.if_else(pc.match_substring_regex(texts, pattern), texts, None)
