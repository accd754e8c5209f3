"""Arrow columns as texts: JSON, CSV and cells for people. Columns in, columns out. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arrays import text_offsets
from lakefmt.errors import UnsupportedFeature

__all__ = ["cell_texts", "csv_head", "csv_lines", "json_lines", "json_texts", "text_bytes"]

_TEXT_TYPE = pa.large_string()
_CONTROL_PATTERN = r"[\x00-\x1f\x7f-\x9f]"
_CONTROL_CHARACTERS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]


def json_lines(batch: pa.RecordBatch) -> pa.Array:
    r"""Return one JSON object per row, each with a line feed at its end.

    Example:
        >>> json_lines(pa.record_batch({"a": [1, None], "b": ["x", "\n"]})).to_pylist()
        ['{"a": 1, "b": "x"}\n', '{"a": null, "b": "\\u000a"}\n']
    """
    if not batch.num_columns or not batch.num_rows:
        return pa.array([], _TEXT_TYPE)
    return _json_objects(batch.schema.names, [json_texts(column) for column in batch.columns], end="}\n")


def text_bytes(texts: pa.Array) -> memoryview:
    """Return the concatenated bytes of all texts, without copying."""
    flat = texts.cast(_TEXT_TYPE)
    data = flat.buffers()[2]
    if data is None or not len(flat):
        return memoryview(b"")
    ends = text_offsets(flat)
    return memoryview(data)[int(ends[0]) : int(ends[-1])]


def json_texts(array: pa.Array) -> pa.Array:
    """Return each value as JSON; null becomes the text ``null``.

    Raises:
        UnsupportedFeature: values of the type cannot be written as JSON.
    """
    return pc.fill_null(_json_or_null(_plain_array(array)), _text_scalar("null"))


def _text_scalar(text: str | None) -> pa.Scalar:
    return pa.scalar(text, _TEXT_TYPE)


def _concatenated(*parts: pa.Array | str) -> pa.Array:
    """Return the parts concatenated row by row; null where a part is null."""
    typed = [_text_scalar(part) if isinstance(part, str) else part.cast(_TEXT_TYPE) for part in parts]
    return pc.binary_join_element_wise(*typed, _text_scalar(""))


def _plain_array(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array.dictionary_decode() if pt.is_dictionary(array.type) else array


def _json_or_null(array: pa.Array) -> pa.Array:
    data_type = array.type
    if pt.is_null(data_type):
        return pa.nulls(len(array), _TEXT_TYPE)
    if pt.is_boolean(data_type) or pt.is_integer(data_type) or pt.is_decimal(data_type):
        return array.cast(_TEXT_TYPE)
    if pt.is_floating(data_type):
        return _json_floats(array)
    if pt.is_string(data_type) or pt.is_large_string(data_type):
        return _json_quoted(_json_escaped(array.cast(_TEXT_TYPE)))
    if pt.is_struct(data_type):
        children = [json_texts(child) for child in array.flatten()]
        return _null_where_null(
            _json_objects([data_type.field(i).name for i in range(data_type.num_fields)], children), array
        )
    if pt.is_map(data_type):
        return _json_maps(array)
    if pt.is_list(data_type) or pt.is_large_list(data_type) or pt.is_fixed_size_list(data_type):
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        return _null_where_null(_bracketed(json_texts(array.flatten()), lengths, "[]"), array)
    return _json_quoted(_leaf_text(array))


def _leaf_text(array: pa.Array) -> pa.Array:
    """Return values of a type without children as text that needs no escapes in JSON."""
    data_type = array.type
    if pt.is_timestamp(data_type):
        instant = array if data_type.tz is None else array.cast(pa.timestamp(data_type.unit, "UTC"))
        return pc.replace_substring(instant.cast(_TEXT_TYPE), " ", "T", max_replacements=1)
    if pt.is_date(data_type) or pt.is_time(data_type):
        return array.cast(_TEXT_TYPE)
    if pt.is_binary(data_type) or pt.is_large_binary(data_type) or pt.is_fixed_size_binary(data_type):
        return _null_where_null(_base64_texts(array.cast(pa.large_binary())), array)
    raise UnsupportedFeature(f"a column of type {data_type} cannot be written as text: use --format parquet")


def _decimal_texts(array: pa.Array) -> pa.Array:
    """Return floats as their shortest decimals; whole numbers end with ``.0``."""
    float_type = pa.float32() if pt.is_float16(array.type) else array.type
    return pc.replace_substring_regex(array.cast(float_type).cast(_TEXT_TYPE), "^(-?[0-9]+)$", r"\1.0")


def _json_floats(array: pa.Array) -> pa.Array:
    texts = _decimal_texts(array)
    words = (("nan", '"NaN"'), ("-nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"'))
    for arrow_text, json_text in words:
        texts = pc.if_else(pc.equal(texts, _text_scalar(arrow_text)), _text_scalar(json_text), texts)
    return texts


def _json_escaped(texts: pa.Array) -> pa.Array:
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return _without_controls(texts)


def _without_controls(texts: pa.Array) -> pa.Array:
    r"""Return texts with control characters as ``\u001b``: JSON requires it, and terminals would obey them."""
    if not pc.any(pc.match_substring_regex(texts, _CONTROL_PATTERN), min_count=0).equals(pa.scalar(True)):
        return texts
    for control in _CONTROL_CHARACTERS:
        texts = pc.replace_substring(texts, control, f"\\u{ord(control):04x}")
    return texts


def _json_quoted(texts: pa.Array) -> pa.Array:
    return _concatenated('"', texts, '"')


def _json_objects(names: Sequence[str], columns: Sequence[pa.Array], end: str = "}") -> pa.Array:
    """Return JSON objects: one column of texts for each name."""
    if not columns:
        raise UnsupportedFeature("a struct without fields cannot be written as text")
    parts: list[pa.Array | str] = []
    for name, column in zip(names, columns, strict=True):
        parts += [f"{', ' if parts else '{'}{json.dumps(name)}: ", column]
    return _concatenated(*parts, end)


def _json_maps(array: pa.MapArray) -> pa.Array:
    whole = array.take(pa.array(np.arange(len(array))))  # keys and items of a slice are those of its parent
    ends = np.asarray(whole.offsets).astype(np.int64)
    keys, items = (child.slice(int(ends[0]), int(ends[-1] - ends[0])) for child in (whole.keys, whole.items))
    names = json_texts(keys)
    if not (pt.is_string(keys.type) or pt.is_large_string(keys.type)):
        names = _json_quoted(pc.replace_substring(names, '"', ""))
    return _null_where_null(
        _bracketed(_concatenated(names, ": ", json_texts(items)), pa.array(np.diff(ends)), "{}"), array
    )


def _bracketed(children: pa.Array, lengths: pa.Array, brackets: str) -> pa.Array:
    """Return the elements of each list joined by commas, in brackets; `lengths` holds the number of elements."""
    ends = np.concatenate([[0], np.cumsum(np.asarray(lengths).astype(np.int64))])
    grouped = pa.LargeListArray.from_arrays(pa.array(ends), children.cast(_TEXT_TYPE))
    return _concatenated(brackets[0], pc.binary_join(grouped, _text_scalar(", ")), brackets[1])


def _null_where_null(texts: pa.Array, like: pa.Array) -> pa.Array:
    return pc.if_else(like.is_valid(), texts, _text_scalar(None))


def _base64_texts(array: pa.Array) -> pa.Array:
    """Return the base64 of each value. Padded to a multiple of three bytes, all values are encoded in one call."""
    array = pc.fill_null(array, b"") if array.null_count else array
    starts = text_offsets(array)
    lengths = np.diff(starts)
    threes = -(-lengths // 3)
    ends = np.concatenate([[0], np.cumsum(threes)]) * 3
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)[starts[0] : starts[-1]]
    padded = np.zeros(ends[-1], np.uint8)
    padded[np.arange(len(data)) + np.repeat(ends[:-1] - (starts[:-1] - starts[0]), lengths)] = data
    base64_bytes = np.frombuffer(base64.b64encode(padded.tobytes()), np.uint8).copy()
    ends = ends // 3 * 4
    missing = threes * 3 - lengths
    base64_bytes[ends[1:][missing > 0] - 1] = ord("=")
    base64_bytes[ends[1:][missing > 1] - 2] = ord("=")
    return pa.Array.from_buffers(_TEXT_TYPE, len(array), [None, pa.py_buffer(ends), pa.py_buffer(base64_bytes)])


# --- CSV and terminal ---------------------------------------------------------------------------------------------


def csv_lines(batch: pa.RecordBatch) -> pa.Array:
    r"""Return one line of CSV per row (RFC 4180, with line feeds); null is an empty cell, the empty string is quoted.

    Example:
        >>> csv_lines(pa.record_batch({"a": [1, None], "b": ["x, y", ""]})).to_pylist()
        ['1,"x, y"\n', ',""\n']
    """
    if not batch.num_columns or not batch.num_rows:
        return pa.array([], _TEXT_TYPE)
    cells = [pc.fill_null(_csv_cells(_plain_array(column)), _text_scalar("")) for column in batch.columns]
    between = [part for cell in cells for part in (",", cell)][1:]
    return _concatenated(*between, "\n")


def csv_head(schema: pa.Schema) -> str:
    """Return the header line of CSV."""
    names = _csv_quoted(pa.array(schema.names, _TEXT_TYPE))
    return ",".join(map(str, names)) + "\n"


def _csv_cells(array: pa.Array) -> pa.Array:
    """Return a column's values as CSV cells; null stays null."""
    data_type = array.type
    if pt.is_nested(data_type):
        return _csv_quoted(_json_or_null(array))
    texts = _value_texts(array)
    return _csv_quoted(texts) if pt.is_string(data_type) or pt.is_large_string(data_type) else texts


def _csv_quoted(texts: pa.Array) -> pa.Array:
    quoted = _concatenated('"', pc.replace_substring(texts, '"', '""'), '"')
    needed = pc.or_(pc.match_substring_regex(texts, '[",\r\n]'), pc.equal(texts, _text_scalar("")))
    return pc.if_else(needed, quoted, texts.cast(_TEXT_TYPE))


def _value_texts(array: pa.Array) -> pa.Array:
    """Return values of a type without children as text without quotes; null stays null."""
    data_type = array.type
    if pt.is_floating(data_type):
        return _decimal_texts(array)
    if pt.is_null(data_type):
        return pa.nulls(len(array), _TEXT_TYPE)
    if (
        pt.is_string(data_type)
        or pt.is_large_string(data_type)
        or pt.is_boolean(data_type)
        or pt.is_integer(data_type)
        or pt.is_decimal(data_type)
    ):
        return array.cast(_TEXT_TYPE)
    return _leaf_text(array)


def cell_texts(array: pa.Array, widest: int) -> pa.Array:
    """Return values for a table on the terminal: no quotes, no control characters, at most `widest` characters."""
    array = _plain_array(array)
    texts = _json_or_null(array) if pt.is_nested(array.type) else _without_controls(_value_texts(array))
    texts = pc.fill_null(texts, _text_scalar("null"))
    cut = _concatenated(pc.utf8_slice_codeunits(texts, 0, widest - 1), "…")
    return pc.if_else(pc.greater(pc.utf8_length(texts), widest), cut, texts)
