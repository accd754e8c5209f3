"""Columns as text: JSON lines, CSV cells and cells of a table on a terminal (pure, whole columns at a time).

Numbers are JSON numbers; not-a-number and the infinities are the texts ``"NaN"``, ``"Infinity"``, ``"-Infinity"``.
Moments are ISO 8601 (in UTC, with a ``Z``, where the column has a zone). Binary is base64. Maps are JSON objects.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.errors import UnsupportedFeature

__all__ = ["cell_texts", "csv_columns", "json_lines", "json_texts", "text_bytes"]

_TEXT = pa.large_string()
_CONTROL = r"[\x00-\x1f\x7f-\x9f]"
_CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]


def json_lines(batch: pa.RecordBatch) -> pa.Array:
    """Return one JSON object per row, each ending with a line feed.

    Example:
        >>> json_lines(pa.record_batch({"a": [1, None], "b": ["x", "\\n"]})).to_pylist()
        ['{"a": 1, "b": "x"}\\n', '{"a": null, "b": "\\\\u000a"}\\n']
    """
    if not batch.num_columns or not batch.num_rows:
        return pa.array([], _TEXT)
    return _object(batch.schema.names, [json_texts(column) for column in batch.columns], end="}\n")


def text_bytes(texts: pa.Array) -> memoryview:
    """Return the bytes of all texts, one behind the other, without copying."""
    flat = texts.cast(_TEXT)
    data = flat.buffers()[2]
    if data is None or not len(flat):
        return memoryview(b"")
    ends = np.frombuffer(flat.buffers()[1], np.int64)[flat.offset : flat.offset + len(flat) + 1]
    return memoryview(data)[int(ends[0]) : int(ends[-1])]


def json_texts(array: pa.Array) -> pa.Array:
    """Return each value as JSON; null is ``null``, so that no element of the result is null.

    Raises:
        UnsupportedFeature: the type has no form in JSON here.
    """
    return pc.fill_null(_json(_plain(array)), "null")


def _plain(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array.dictionary_decode() if pt.is_dictionary(array.type) else array


def _json(array: pa.Array) -> pa.Array:
    kind = array.type
    if pt.is_null(kind):
        return pa.nulls(len(array), _TEXT)
    if pt.is_boolean(kind) or pt.is_integer(kind) or pt.is_decimal(kind):
        return array.cast(_TEXT)
    if pt.is_floating(kind):
        return _floats(array)
    if pt.is_string(kind) or pt.is_large_string(kind):
        return _quoted(_escaped(array.cast(_TEXT)))
    if pt.is_struct(kind):
        children = [json_texts(child) for child in array.flatten()]
        return _masked(_object([kind.field(i).name for i in range(kind.num_fields)], children), array)
    if pt.is_map(kind):
        return _map(array)
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        return _masked(_bracketed(json_texts(array.flatten()), lengths, "[]"), array)
    return _quoted(_leaf_text(array))


def _leaf_text(array: pa.Array) -> pa.Array:
    """The text of a leaf that JSON writes in quotes and that needs no escapes."""
    kind = array.type
    if pt.is_timestamp(kind):
        moment = array if kind.tz is None else array.cast(pa.timestamp(kind.unit, "UTC"))
        return pc.replace_substring(moment.cast(_TEXT), " ", "T", max_replacements=1)
    if pt.is_date(kind) or pt.is_time(kind):
        return array.cast(_TEXT)
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return _base64(array.cast(pa.large_binary()))
    raise UnsupportedFeature(f"a column of type {kind} cannot be written as text: choose Parquet")


def _floats(array: pa.Array) -> pa.Array:
    kind = pa.float32() if pt.is_float16(array.type) else array.type
    texts = array.cast(kind).cast(_TEXT)
    words = (("nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"'))
    for found, meant in words:
        texts = pc.if_else(pc.equal(texts, found), meant, texts)
    return pc.replace_substring_regex(texts, "^-nan$", '"NaN"')


def _escaped(texts: pa.Array) -> pa.Array:
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return _without_controls(texts)


def _without_controls(texts: pa.Array) -> pa.Array:
    """Control characters as ``\\u001b``: JSON asks for some of them, and no terminal may be given orders by a table."""
    if not pc.any(pc.match_substring_regex(texts, _CONTROL), min_count=0).equals(pa.scalar(True)):
        return texts
    for control in _CONTROLS:
        texts = pc.replace_substring(texts, control, f"\\u{ord(control):04x}")
    return texts


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "").cast(_TEXT)


def _object(names: Sequence[str], columns: Sequence[pa.Array], end: str = "}") -> pa.Array:
    """Objects with one text per name and row."""
    if not columns:
        raise UnsupportedFeature("a struct without fields cannot be written as text")
    parts: list[pa.Array | pa.Scalar] = []
    for name, column in zip(names, columns, strict=True):
        sign = "{" if not parts else ", "
        parts += [pa.scalar(f"{sign}{json.dumps(name)}: ", _TEXT), column.cast(_TEXT)]
    return pc.binary_join_element_wise(*parts, pa.scalar(end, _TEXT), pa.scalar("", _TEXT))


def _map(array: pa.MapArray) -> pa.Array:
    whole = array.take(pa.array(np.arange(len(array))))  # keys and items of a slice are those of its parent
    ends = np.asarray(whole.offsets).astype(np.int64)
    keys, items = (child.slice(int(ends[0]), int(ends[-1] - ends[0])) for child in (whole.keys, whole.items))
    names = json_texts(keys)
    if not (pt.is_string(keys.type) or pt.is_large_string(keys.type)):
        names = _quoted(pc.replace_substring(names, '"', ""))
    pairs = pc.binary_join_element_wise(names, json_texts(items), ": ").cast(_TEXT)
    return _masked(_bracketed(pairs, pa.array(np.diff(ends)), "{}"), array)


def _bracketed(children: pa.Array, lengths: pa.Array, brackets: str) -> pa.Array:
    """Children joined by their parents, who have so many each."""
    ends = np.concatenate([[0], np.cumsum(np.asarray(lengths).astype(np.int64))])
    grouped = pa.LargeListArray.from_arrays(pa.array(ends), children.cast(_TEXT))
    joined = pc.binary_join(grouped, pa.scalar(", ", _TEXT))
    return pc.binary_join_element_wise(brackets[0], joined.cast(pa.string()), brackets[1], "").cast(_TEXT)


def _masked(texts: pa.Array, like: pa.Array) -> pa.Array:
    return pc.if_else(like.is_valid(), texts, pa.scalar(None, _TEXT))


def _base64(array: pa.Array) -> pa.Array:
    """Base64 of every value, in one go: padded to threes, values encode separately even when encoded together."""
    array = pc.fill_null(array, b"") if array.null_count else array
    starts = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    lengths = np.diff(starts)
    threes = -(-lengths // 3)
    ends = np.concatenate([[0], np.cumsum(threes)]) * 3
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)[starts[0] : starts[-1]]
    padded = np.zeros(ends[-1], np.uint8)
    padded[np.arange(len(data)) + np.repeat(ends[:-1] - (starts[:-1] - starts[0]), lengths)] = data
    text = np.frombuffer(base64.b64encode(padded.tobytes()), np.uint8).copy()
    ends = ends // 3 * 4
    missing = threes * 3 - lengths
    text[ends[1:][missing > 0] - 1] = ord("=")
    text[ends[1:][missing > 1] - 2] = ord("=")
    return pa.Array.from_buffers(_TEXT, len(array), [None, pa.py_buffer(ends), pa.py_buffer(text)])


# --- CSV and terminal ---------------------------------------------------------------------------------------------


def csv_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with every column as something that CSV can hold; nested values are JSON, null stays null."""
    return pa.record_batch({n: _csv(_plain(c)) for n, c in zip(batch.schema.names, batch.columns, strict=True)})


def _csv(array: pa.Array) -> pa.Array:
    kind = array.type
    if pt.is_null(kind):
        return array.cast(pa.string())
    if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_boolean(kind) or pt.is_integer(kind):
        return array
    if pt.is_floating(kind) or pt.is_decimal(kind):
        return array.cast(pa.float32() if pt.is_float16(kind) else kind).cast(pa.string())
    return _masked(json_texts(array) if pt.is_nested(kind) else _leaf_text(array), array).cast(pa.string())


def cell_texts(array: pa.Array, widest: int) -> pa.Array:
    """Return the values as a person reads them in a table: no quotes, no control characters, cut to `widest`."""
    array = _plain(array)
    kind = array.type
    if pt.is_string(kind) or pt.is_large_string(kind):
        texts = _without_controls(array.cast(_TEXT))
    elif pt.is_nested(kind) or pt.is_null(kind) or pt.is_floating(kind):
        texts = pc.replace_substring_regex(json_texts(array), '^"(NaN|-?Infinity)"$', r"\1")
    else:
        texts = _csv(array).cast(_TEXT)
    texts = pc.fill_null(texts, "null")
    cut = pc.binary_join_element_wise(pc.utf8_slice_codeunits(texts, 0, widest - 1), pa.scalar("…", _TEXT), "")
    return pc.if_else(pc.greater(pc.utf8_length(texts), widest), cut.cast(_TEXT), texts)
