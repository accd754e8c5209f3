"""Partition paths: encoding, checks, and values parsed from them (docs/format.md, Partition paths). Pure.

Any engine may have written a path, so only certain values are returned: pruning by a wrong
guarantee would hide rows.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.keys.spec import KeySpec, PartitionField, TimestampSpec
from lakefmt._core.schema.types import field_at
from lakefmt.errors import InvalidKey

__all__ = [
    "DEFAULT_PARTITION",
    "check_paths",
    "check_spark_reads",
    "decode_path_value",
    "divide_path",
    "encode_path_values",
    "parse_partition_values",
    "partition_guarantee",
    "path_tells",
    "time_ends",
    "time_guarantees",
    "with_path_values",
]

#: The partition of null and empty values.
DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
#: Its name in tables of older releases.
_OLD_DEFAULT: Final = "default"

_ENCODED: Final = [chr(code) for code in (*range(0x20), 0x7F)] + list("\"#'*/:=?\\{[]^")
_NEEDS_CODE: Final = r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]"
_CODE: Final = re.compile(r"%([0-9A-F]{2})")
_SLASHED_DATE: Final = re.compile(r"[0-9]{4}/[0-9]{2}(?:/[0-9]{2}){0,2}")
_MAX_PART_BYTES: Final = 255
_FEW_PATHS: Final = 256
_UNSAFE: Final = (
    (r"(?:^|/)\.{0,2}(?:/|$)", "an empty part, '.' or '..'"),
    (r"[\x00-\x1f\x7f\\]", "a control character or a backslash"),
    # Listings skip names with this beginning: rows there would never be read.
    (r"(?-i:^\.hoodie)|(?:^|/)\.hoodie(?:/|$)", "the table's own directory or a name that begins like it"),
)
_URL_ENCODE: Final = "hoodie.datasource.write.partitionpath.urlencode"
#: Hadoop takes what comes before it for the scheme of a URI, up to the first slash: Hudi writes no such path, and reads none of
#: a table with one.
_COLON: Final = (r"^[^/]*:", "a colon, with which Hudi on Spark cannot read the table")
#: Spark decodes parts of a path, also of those that nobody has encoded.
_DECODED: Final = (r"%[0-9A-Fa-f]{2}", "a percent sign with two digits behind it, which Spark reads as another value")
#: Spark takes what comes before it in a part for the name of the column.
_DIVIDED: Final = (r"=", "an equals sign, which Spark reads as another value or not at all")


def encode_path_values(values: pa.Array) -> pa.Array:
    """Percent-encode the characters that Hudi encodes in partition values (docs/format.md, Partition paths).

    Example:
        >>> encode_path_values(pa.array(["a/b c:d"]))[0]
        <pyarrow.StringScalar: 'a%2Fb c%3Ad'>
    """
    needed = pc.match_substring_regex(values, _NEEDS_CODE)
    if not needed.true_count:
        return values
    values = pc.replace_substring(values, "%", "%25")
    for char in _ENCODED:
        values = pc.replace_substring(values, char, f"%{ord(char):02X}")
    return values


def decode_path_value(encoded: str) -> str | None:
    """Return the value that :func:`encode_path_values` encodes as `encoded`, or None.

    Example:
        >>> decode_path_value("a%2Fb"), decode_path_value("a/b"), decode_path_value("100%")
        ('a/b', None, None)
    """
    value = _CODE.sub(lambda match: chr(int(match[1], 16)), encoded)
    return value if _encode(value) == encoded else None


def _encode(value: str) -> str:
    return re.sub(_NEEDS_CODE, lambda match: f"%{ord(match[0]):02X}", value)


def check_paths(paths: pa.Array) -> None:
    """Raise for partition paths that leave the table or that a file system cannot store.

    Raises:
        InvalidKey: names the first such path and the reason.
    """
    if len(paths) <= _FEW_PATHS:
        _check_few(tuple(paths.to_pylist()))  # partitions, not rows
    else:
        _check_all(paths)


def check_spark_reads(spec: KeySpec, paths: pa.Array) -> None:
    """Raise for partition paths of new rows that Hudi on Spark cannot read, or reads as other values.

    Args:
        spec: how they were made.
        paths: each once.

    Raises:
        InvalidKey: names the first such path and the reason.

    Example:
        >>> from lakefmt._core.keys import plan_key_spec
        >>> check_spark_reads(plan_key_spec("id", "at", url_encode=False), pa.array(["at=10:30"]))
        Traceback (most recent call last):
            ...
        lakefmt.errors.InvalidKey: 1 partition paths hold a colon, with which Hudi on Spark cannot read the table, the first is 'at=10:30': take another value, or a table with hoodie.datasource.write.partitionpath.urlencode=true
    """
    if len(paths) <= _FEW_PATHS:
        _check_few_read(tuple(paths.to_pylist()), spec.hive_style, spec.url_encode)  # partitions, not rows
    else:
        _check_all_read(paths, spec.hive_style, spec.url_encode)


@lru_cache(maxsize=64)
def _check_few(paths: tuple[str, ...]) -> None:
    # Cached for small commits to the same partitions; errors are not cached.
    _check_all(pa.array(paths, pa.string()))


@lru_cache(maxsize=64)
def _check_few_read(paths: tuple[str, ...], hive_style: bool, url_encode: bool) -> None:
    _check_all_read(pa.array(paths, pa.string()), hive_style, url_encode)


def _check_all_read(paths: pa.Array, hive_style: bool, url_encode: bool) -> None:
    hint = f": take another value, or a table with {_URL_ENCODE}=true"
    for pattern, what in (
        _COLON,
        *(() if url_encode else (_DECODED,)),
        *(() if url_encode or hive_style else (_DIVIDED,)),
    ):
        _refuse(paths, pc.match_substring_regex(paths, pattern), what, hint)


def _check_all(paths: pa.Array) -> None:
    for pattern, what in _UNSAFE:
        _refuse(paths, pc.match_substring_regex(paths, pattern, ignore_case=True), what)
    # Over bytes the expression counts bytes, as file systems do.
    long = pc.match_substring_regex(paths.cast(pa.binary()), f"[^/]{{{_MAX_PART_BYTES + 1}}}")
    _refuse(paths, long, f"a part of more than {_MAX_PART_BYTES} bytes")


def _refuse(paths: pa.Array, wrong: pa.Array, what: str, hint: str = "") -> None:
    if wrong.true_count:
        first = str(paths.filter(wrong)[0])
        raise InvalidKey(f"{wrong.true_count} partition paths hold {what}, the first is {first[:200]!r}{hint}")


# ---------------------------------------------------------------------------------------------------- reading a path


def partition_guarantee(spec: KeySpec, path: str, schema: pa.Schema) -> pc.Expression | None:
    """Return a condition that is true for every row in the partition `path`; None without one.

    `schema` has no meta columns. The condition consists of equalities, and of null for the default
    partition; fields whose text does not determine their value (times, floats, bytes) are left out.

    Example:
        >>> from lakefmt._core.keys import plan_key_spec
        >>> schema = pa.schema([("id", pa.int64()), ("year", pa.int32())])
        >>> partition_guarantee(plan_key_spec("id", "year"), "year=2024", schema)
        <pyarrow.compute.Expression (year == 2024)>
    """
    guarantees = [
        guarantee
        for field, text in _texts(spec, path) or []
        if (guarantee := _guarantee(field.name, text, schema)) is not None
    ]
    if not guarantees:
        return None
    whole = guarantees[0]
    for guarantee in guarantees[1:]:
        whole = whole & guarantee
    return whole


def time_guarantees(spec: KeySpec, paths: Sequence[str], schema: pa.Schema) -> list[pc.Expression | None]:
    """Return for each path a condition on the columns of times that is true for every row in the partition; None without one.

    It holds only where rows lie in the partition of their own time (``filegroups.stored_keys.paths_tell_times``).

    Example:
        >>> from lakefmt._core.keys import plan_key_spec
        >>> from lakefmt._core.keys.spec import day
        >>> schema = pa.schema([("id", pa.int64()), ("on", pa.date32())])
        >>> spec = plan_key_spec("id", day("on"), schema=schema)
        >>> str(time_guarantees(spec, ["on=2024%2F01%2F02"], schema)[0])
        '((on >= 2024-01-02) and (on < 2024-01-03))'
    """
    guarantees: list[pc.Expression | None] = [None] * len(paths)
    for field, timestamp, texts in _texts_of_times(spec, paths):
        column = field_at(schema, field.name)
        if column is None:
            continue
        from lakefmt._core.keys.timestamp import periods_of_texts  # few tables have partitions of times

        for index, period in enumerate(periods_of_texts(texts, timestamp, column.type)):  # partitions, not rows
            if period is not None:
                known, guarantee = guarantees[index], _between(field.name, period, column.type, schema)
                guarantees[index] = guarantee if known is None else known & guarantee
    return guarantees


def time_ends(spec: KeySpec, paths: Sequence[str]) -> list[dict[str, datetime.datetime]]:
    """Return for each path, by column of times, the last microsecond of the period that it names.

    Example:
        >>> from lakefmt._core.keys import plan_key_spec
        >>> from lakefmt._core.keys.spec import day
        >>> spec = plan_key_spec("id", day("on"), schema=pa.schema([("id", pa.int64()), ("on", pa.date32())]))
        >>> [str(ends.get("on")) for ends in time_ends(spec, ["on=2024%2F01%2F02", "x"])]
        ['2024-01-02 23:59:59.999999+00:00', 'None']
    """
    ends: list[dict[str, datetime.datetime]] = [{} for _ in paths]
    for field, timestamp, texts in _texts_of_times(spec, paths):
        from lakefmt._core.keys.timestamp import ends_of_texts  # few tables have partitions of times

        for of_path, end in zip(ends, ends_of_texts(texts, timestamp), strict=True):  # partitions, not rows
            if end is not None:
                of_path[field.name] = end - datetime.timedelta(microseconds=1)
    return ends


def _texts_of_times(
    spec: KeySpec, paths: Sequence[str]
) -> Iterator[tuple[PartitionField, TimestampSpec, pa.StringArray]]:
    """Yield the columns of times with how their texts are made, and the text of each path; empty: the path has none."""
    divided = [divide_path(spec, path) for path in paths]
    for field in [] if spec.unsupported else spec.partition_fields:
        if field.timestamp is not None:
            texts = [None if parts is None else _text(field, parts[field.name], spec) for parts in divided]
            yield field, field.timestamp, pa.array([text or "" for text in texts], pa.string())


def _between(name: str, period: tuple[int, int], data_type: pa.DataType, schema: pa.Schema) -> pc.Expression:
    column = pc.field(name) if name in schema.names else pc.field(*name.split("."))
    width = 32 if pt.is_date32(data_type) else data_type.bit_width
    first, last = period
    if not (-(1 << (width - 1)) <= first <= last < 1 << (width - 1)):
        return pc.scalar(True)  # hardly a partition of such a column
    stored = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[width]
    return (column >= pa.scalar(first, stored).cast(data_type)) & (column < pa.scalar(last, stored).cast(data_type))


def _guarantee(name: str, text: str, schema: pa.Schema) -> pc.Expression | None:
    field = field_at(schema, name)
    if field is None:
        return None
    column = pc.field(name) if name in schema.names else pc.field(*name.split("."))
    is_text = pt.is_string(field.type) or pt.is_large_string(field.type)
    if text in (DEFAULT_PARTITION, _OLD_DEFAULT):
        if is_text:
            # A row may have this text as its value: it is in the same directory.
            return column.is_null() | (column == _scalar("", field.type)) | (column == _scalar(text, field.type))
        # Rows with empty bytes are here, too.
        return column.is_null() if pt.is_primitive(field.type) or pt.is_decimal(field.type) else None
    value = _value(text, field.type)
    if is_text and _SLASHED_DATE.fullmatch(text):
        # Hudi writes dates so, too, by a setting that properties do not always have.
        return (column == value) | (column == _scalar(text.replace("/", "-"), field.type))
    return None if value is None else column == value


def parse_partition_values(spec: KeySpec, path: str, schema: pa.Schema) -> dict[str, object] | None:
    """Return the partition values in `path` by field name; None if it does not have the form of `spec`.

    The value of the default partition is None; fields whose text does not determine their value are
    left out.

    Example:
        >>> from lakefmt._core.keys import plan_key_spec
        >>> parse_partition_values(plan_key_spec("id", "city"), "city=s%2Ff", pa.schema([("city", pa.string())]))
        {'city': 's/f'}
    """
    texts = _texts(spec, path)
    if texts is None:
        return None
    values: dict[str, object] = {}
    for field, text in texts:
        column = field_at(schema, field.name)
        if text == DEFAULT_PARTITION:
            values[field.name] = None
        elif column is not None and (value := _python_value(text, column.type)) is not None:
            values[field.name] = value
    return values


def with_path_values(rows: pa.Table, spec: KeySpec, paths: pa.Array) -> pa.Table:
    """Return rows with the partition values that paths tell; a value that a path does not tell stays as it is.

    Parameters:
        rows: with the partition columns.
        spec: how partition paths are built.
        paths: one for each row; null: it keeps its values.

    Example:
        >>> from lakefmt._core.keys import plan_key_spec
        >>> rows = pa.table({"id": ["a", "b"], "city": ["sf", "sf"]})
        >>> with_path_values(rows, plan_key_spec("id", "city"), pa.array([None, "city=rio"]))["city"].to_pylist()
        ['sf', 'rio']
    """
    encoded = paths.dictionary_encode()
    values_of = [parse_partition_values(spec, path, rows.schema) or {} for path in encoded.dictionary.to_pylist()]
    codes = encoded.indices.fill_null(-1).to_numpy()
    for name in [field.name for field in spec.partition_fields if field.name in rows.column_names]:
        # The last one is that of rows without a path, whose code is -1.
        is_told = np.array([*(name in values for values in values_of), False])[codes]
        index = rows.schema.get_field_index(name)
        field = rows.schema.field(index)
        path_values = pa.array([values.get(name) for values in values_of], field.type)
        row_values = path_values.take(pa.array(codes, mask=~is_told))
        rows = rows.set_column(index, field, pc.if_else(pa.array(is_told), row_values, rows.column(index)))
    return rows


def _texts(spec: KeySpec, path: str) -> list[tuple[PartitionField, str]] | None:
    """Return the simple fields with their decoded texts; None if the path cannot be divided among the fields."""
    fields, parts = spec.partition_fields, divide_path(spec, path)
    if spec.unsupported or parts is None:
        return None
    texts = [_text(field, parts[field.name], spec) for field in fields]
    if any(text is None for text in texts):
        return None
    pairs = zip(fields, texts, strict=True)
    return [(field, text) for field, text in pairs if field.timestamp is None and text is not None]


def divide_path(spec: KeySpec, path: str) -> dict[str, str] | None:
    """Return each partition column's part of a path, undecoded; None if it cannot be divided.

    Example:
        >>> from lakefmt._core.keys import plan_key_spec
        >>> divide_path(plan_key_spec("id", ["a", "b"]), "a=1/b=x%2Fy")
        {'a': 'a=1', 'b': 'b=x%2Fy'}
    """
    fields = spec.partition_fields
    if not fields or not path:
        return None
    if len(fields) == 1 and fields[0].timestamp is None:
        # A single field owns the whole path: unencoded values may contain slashes.
        parts = [path]
    else:
        parts = _divide(path.split("/"), [_levels(field, spec) for field in fields])
    if len(parts) != len(fields):
        return None
    return {field.name: part for field, part in zip(fields, parts, strict=True)}


def _levels(field: PartitionField, spec: KeySpec) -> int:
    if field.timestamp is None or spec.url_encode:
        return 1
    from lakefmt._core.keys.joda import compile_pattern

    return 1 + compile_pattern(field.timestamp.output_format).slashes


def _divide(parts: list[str], levels: list[int]) -> list[str]:
    """Join the path's parts per field; None if unencoded slashes make it ambiguous."""
    if len(parts) != sum(levels):
        return []
    starts = [sum(levels[:number]) for number in range(len(levels))]
    return ["/".join(parts[start : start + count]) for start, count in zip(starts, levels, strict=True)]


def _text(field: PartitionField, part: str, spec: KeySpec) -> str | None:
    if spec.hive_style:
        prefix = f"{field.name}="
        if not part.startswith(prefix):
            return None
        part = part[len(prefix) :]
    return decode_path_value(part) if spec.url_encode else part


def _value(text: str, data_type: pa.DataType) -> pa.Scalar | None:
    value = _python_value(text, data_type)
    return None if value is None else _scalar(value, data_type)


def _scalar(value: object, data_type: pa.DataType) -> pa.Scalar:
    return pa.scalar(value, data_type)


def _python_value(text: str, data_type: pa.DataType) -> object:
    """Return the only value of type `data_type` with the key text `text`; None if there is none or several."""
    if pt.is_string(data_type) or pt.is_large_string(data_type):
        return text
    if pt.is_boolean(data_type):
        return {"true": True, "false": False}.get(text)
    if pt.is_integer(data_type):
        return _integer(text, data_type)
    if pt.is_date32(data_type):
        return _date(text)
    if pt.is_decimal128(data_type):
        return _decimal(text, data_type)
    return None


def path_tells(data_type: pa.DataType) -> bool:
    """Return whether a path determines values of type `data_type` (:func:`parse_partition_values`).

    Example:
        >>> path_tells(pa.int32()), path_tells(pa.float64())
        (True, False)
    """
    is_number = pt.is_integer(data_type) or pt.is_decimal128(data_type)
    return bool(
        is_number
        or pt.is_string(data_type)
        or pt.is_large_string(data_type)
        or pt.is_boolean(data_type)
        or pt.is_date32(data_type)
    )


def _integer(text: str, data_type: pa.DataType) -> int | None:
    if not re.fullmatch(r"0|-?[1-9][0-9]{0,19}", text):
        return None
    low = 0 if pt.is_unsigned_integer(data_type) else -(1 << (data_type.bit_width - 1))
    high = (1 << (data_type.bit_width - (low < 0))) - 1
    return int(text) if low <= int(text) <= high else None


def _date(text: str) -> datetime.date | None:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text, re.ASCII):
        return None
    try:
        date = datetime.date.fromisoformat(text)
    except ValueError:
        return None
    # Java's two date classes differ before the Gregorian calendar.
    return date if date.year > 1582 else None


def _decimal(text: str, data_type: pa.DataType) -> decimal.Decimal | None:
    if len(text) > 50 or not re.fullmatch(r"-?[0-9]+(?:\.[0-9]+)?(?:E-?[0-9]{1,2})?", text):
        return None
    number = decimal.Decimal(text)
    _, digits, exponent = number.as_tuple()
    return (
        number if exponent == -data_type.scale and len(digits) <= data_type.precision and str(number) == text else None
    )
