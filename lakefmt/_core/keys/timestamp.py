"""Format timestamp columns as partition paths (docs/format.md, Timestamp key generator). Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.keys.joda import (
    Times,
    check_range,
    compile_pattern,
    format_times,
    parse_times,
    to_instants,
    to_local,
)
from lakefmt._core.keys.spec import TimestampSpec
from lakefmt._core.schema.java_text import distinct_values, plain_array
from lakefmt._core.schema.types import storage_type
from lakefmt.errors import InvalidKey, LakefmtError

__all__ = ["ends_of_texts", "periods_of_texts", "time_parts"]


#: Hudi reads a null number as 1 and a null text as the first millisecond after the epoch.
_MISSING_TIME: Final = 1


_UNITS_PER_MILLI: Final = {"NANOSECONDS": 1_000_000, "MICROSECONDS": 1_000}


_MILLIS_PER_UNIT: Final = {
    "MILLISECONDS": 1,
    "SECONDS": 1_000,
    "MINUTES": 60_000,
    "HOURS": 3_600_000,
    "DAYS": 86_400_000,
}


#: Beyond every printable time, and far from the limits of int64.
_FARTHEST_MILLIS: Final = 1 << 50


def time_parts(name: str, column: pa.ChunkedArray, spec: TimestampSpec, consistent: bool) -> tuple[Times, pa.Array]:
    """Return a code for every row of the column `name` and the formatted time of every code.

    Raises:
        InvalidKey: a type, text or number that is not a time.
        UnsupportedFeature: an unknown time zone.
    """
    data_type = storage_type(column.type)
    if not (pt.is_string(data_type) or pt.is_large_string(data_type)):
        rows = _instants_of_numbers(name, column, spec, consistent)
        return _formatted_times(rows, to_local(rows, spec.output_timezone or "UTC"), spec)
    codes, texts = distinct_values(column)
    if spec.unit is None:
        inner, times = _formatted_times(*_instants_of_texts(name, texts, spec), spec)
    else:
        # Another engine rewrote the numbers as decimal texts (Spark UPDATE does).
        numbers = pa.chunked_array([_texts_as_numbers(name, texts)])
        inner, times = time_parts(name, numbers, spec, consistent)
    return inner[codes], times


def _texts_as_numbers(name: str, texts: pa.Array) -> pa.Array:
    try:
        return texts.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise InvalidKey(f"partition column {name!r} holds texts where numbers are expected: {error}") from None


def _formatted_times(instants: Times, local: Times, spec: TimestampSpec) -> tuple[Times, pa.Array]:
    """Format each distinct step of the pattern: a million times of one day have one text."""
    pattern = compile_pattern(spec.output_format)
    check_range(local)
    if pattern.has_zone:
        return np.arange(len(local), dtype=np.int64), format_times(instants, local, pattern)
    steps = pa.array(local - local % pattern.step).dictionary_encode()
    distinct = np.asarray(steps.dictionary.to_numpy(zero_copy_only=False), np.int64)
    codes = np.asarray(steps.indices.to_numpy(zero_copy_only=False), np.int64)
    return codes, format_times(distinct, distinct, pattern)


def _instants_of_numbers(name: str, column: pa.ChunkedArray, spec: TimestampSpec, consistent: bool) -> Times:
    """Return the instant of every row in milliseconds, int64."""
    unit = spec.unit
    if unit is None:
        raise InvalidKey(
            f"partition column {name!r} of type {column.type} holds numbers, but {spec.type.name} reads texts"
        )
    chunks = [_stored_numbers(name, plain_array(chunk)) for chunk in column.chunks]
    instants = np.concatenate(chunks) if chunks else np.empty(0, np.int64)
    if consistent and pt.is_timestamp(column.type):
        unit = "MILLISECONDS" if column.type.unit == "ms" else "MICROSECONDS"
    return _to_millis(instants, unit)


def _stored_numbers(name: str, chunk: pa.Array) -> Times:
    data_type = chunk.type
    try:
        if pt.is_timestamp(data_type):
            chunk = (chunk if data_type.unit in ("ms", "us") else chunk.cast(pa.timestamp("us"))).cast(pa.int64())
        elif pt.is_date(data_type):
            chunk = chunk.cast(pa.date32()).cast(pa.int32())
        elif pt.is_floating(data_type):
            chunk = pc.trunc(chunk)
        elif pt.is_decimal(data_type):
            chunk = pc.trunc(chunk).cast(pa.decimal128(38, 0))
        elif not (pt.is_integer(data_type) or pt.is_null(data_type)):
            raise InvalidKey(f"partition column {name!r} of type {data_type} does not hold times")
        return np.asarray(pc.fill_null(chunk.cast(pa.int64()), _MISSING_TIME).to_numpy(zero_copy_only=False), np.int64)
    except pa.ArrowInvalid as error:
        raise InvalidKey(f"partition column {name!r} holds a value that is no time: {error}") from None


def _to_millis(numbers: Times, unit: str) -> Times:
    divisor = _UNITS_PER_MILLI.get(unit)
    if divisor is not None:
        # Java divides towards zero.
        whole = numbers // divisor
        whole = whole + ((numbers < 0) & (whole * divisor != numbers))
        return np.asarray(np.clip(whole, -_FARTHEST_MILLIS, _FARTHEST_MILLIS), np.int64)
    factor = _MILLIS_PER_UNIT[unit]
    bound = _FARTHEST_MILLIS // factor
    return np.asarray(np.clip(numbers, -bound, bound) * factor, np.int64)


def _instants_of_texts(name: str, texts: pa.Array, spec: TimestampSpec) -> tuple[Times, Times]:
    """Return the instants of `texts` and their local times in the output zone."""
    texts = pc.fill_null(texts.cast(pa.string()), _missing_text(spec))
    instants, own = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64)
    waiting = np.ones(len(texts), np.bool_)
    for pattern in spec.input_formats:
        parsed = parse_times(texts, compile_pattern(pattern))
        now = waiting & parsed.fits
        if parsed.offset is not None:
            instants[now] = (parsed.local - parsed.offset)[now]
        else:
            instants[now] = to_instants(parsed.local[now], spec.input_timezone or "UTC")
        own[now] = parsed.local[now]
        waiting &= ~parsed.fits
    if waiting.any():
        first = str(texts[int(np.flatnonzero(waiting)[0])])
        raise InvalidKey(
            f"{int(np.count_nonzero(waiting))} values of partition column {name!r} do not fit "
            f"{' or '.join(spec.input_formats)}, the first is {first[:100]!r}"
        )
    zone = spec.output_timezone or spec.input_timezone
    # Without zones in the settings a text keeps its own offset.
    return instants, own if zone is None else to_local(instants, zone)


def _missing_text(spec: TimestampSpec) -> str:
    instant = np.array([_MISSING_TIME], np.int64)
    local = to_local(instant, spec.input_timezone or spec.output_timezone or "UTC")
    return str(format_times(instant, local, compile_pattern(spec.input_formats[0]))[0])


# ------------------------------------------------------------------------------------------- what a partition path tells

#: Letters of patterns whose times lie side by side in a period, with the NumPy unit of the last one.
_PERIODS: Final = {
    "y": "Y",
    "yM": "M",
    "yMd": "D",
    "yD": "D",
    "yMdH": "h",
    "yDH": "h",
    "yMdHm": "m",
    "yDHm": "m",
    "yMdHms": "s",
    "yDHms": "s",
}
_HOUR_MILLIS: Final = 3_600_000
#: A zone's offset from UTC near a moment is one of those at as many hours from it.
_HOURS_AROUND: Final = np.array([-72, -48, -26, -14, -12, -6, -3, -2, -1, 0, 1, 2, 3, 6, 12, 14, 26, 48, 72])
#: The moments that Python's datetime can show, in milliseconds since the epoch.
_FIRST_DATETIME, _LAST_DATETIME = -62_135_596_800_000, 253_402_300_799_999
#: A missing number is a moment soon after the epoch: partitions of these hours may have such rows.
_MISSING_FROM, _MISSING_TO = -48 * _HOUR_MILLIS, 72 * _HOUR_MILLIS


def periods_of_texts(texts: pa.Array, spec: TimestampSpec, data_type: pa.DataType) -> list[tuple[int, int] | None]:
    """Return for the text of each partition the numbers that its rows have in the column: from the first up to the second.

    None: the text does not tell them, or rows without a number may be there, too. Both numbers are in the unit of the column;
    the second one is excluded.

    Parameters:
        texts: decoded texts of partition paths, without nulls.
        spec: how the texts are made.
        data_type: the column's type.

    Example:
        >>> from lakefmt._core.keys.spec import TimestampType
        >>> spec = TimestampSpec("yyyy/MM/dd", TimestampType.EPOCHMICROSECONDS)
        >>> periods_of_texts(pa.array(["2024/01/02", "x"]), spec, pa.timestamp("us"))
        [(1704153600000000, 1704240000000000), None]
    """
    unit = _unit_of_column(spec, data_type)
    instants = None if unit is None else _instants_of_texts_of_periods(texts, spec)
    if unit is None or instants is None:
        return [None] * len(texts)
    first, last, known_mask = instants
    bounds = zip(
        _first_numbers(first, unit).tolist(), _numbers_before(last, unit).tolist(), known_mask.tolist(), strict=True
    )
    return [(low, high) if is_told else None for low, high, is_told in bounds]  # partitions, not rows


def ends_of_texts(texts: pa.Array, spec: TimestampSpec) -> list[datetime | None]:
    """Return for the text of each partition the moment before which all of its times lie.

    None: as for :func:`periods_of_texts`, or the moment is beyond the year 9999.

    Parameters:
        texts: decoded texts of partition paths, without nulls.
        spec: how the texts are made.

    Example:
        >>> from lakefmt._core.keys.spec import TimestampType
        >>> spec = TimestampSpec("yyyy/MM", TimestampType.EPOCHMICROSECONDS)
        >>> [str(end) for end in ends_of_texts(pa.array(["2024/01", "x"]), spec)]
        ['2024-02-01 00:00:00+00:00', 'None']
    """
    instants = _instants_of_texts_of_periods(texts, spec)
    if instants is None:
        return [None] * len(texts)
    _, last, known_mask = instants
    known_mask = known_mask & (last >= _FIRST_DATETIME) & (last <= _LAST_DATETIME)
    shown = pa.array(np.where(known_mask, last, 0)).cast(pa.timestamp("ms", "UTC")).to_pylist()
    return [end if is_told else None for end, is_told in zip(shown, known_mask.tolist(), strict=True)]  # partitions


def _instants_of_texts_of_periods(
    texts: pa.Array, spec: TimestampSpec
) -> tuple[Times, Times, npt.NDArray[np.bool_]] | None:
    """Return the begin and end of each text's period and a mask of the texts that name one; None if no text does."""
    pattern = compile_pattern(spec.output_format)
    letters = "".join(letter for letter, _ in pattern.pieces).replace("Y", "y")
    period = _PERIODS.get(letters)
    if period is None:
        return None
    try:
        parsed = parse_times(texts, pattern)
        printed = format_times(parsed.local, parsed.local, pattern)
        first, last = _instants_of_periods(parsed.local, period, spec.output_timezone or "UTC")
    except LakefmtError:
        return None  # a text of another rule is among them
    known_mask = parsed.fits & pc.equal(printed, texts).to_numpy(zero_copy_only=False)
    return first, last, known_mask & ((last <= _MISSING_FROM) | (first >= _MISSING_TO))


def _unit_of_column(spec: TimestampSpec, data_type: pa.DataType) -> str | None:
    """Return the unit of a column's numbers where every engine reads them alike; None: it does not."""
    if pt.is_timestamp(data_type):
        own = {"us": "MICROSECONDS", "ms": "MILLISECONDS"}.get(data_type.unit)
        return own if own == spec.unit else None
    if pt.is_date32(data_type):
        return "DAYS" if spec.unit == "DAYS" else None
    return spec.unit if pt.is_signed_integer(data_type) else None


def _instants_of_periods(local: Times, period: str, zone: str) -> tuple[Times, Times]:
    """Return the first instants that periods of local time may have, and those after them."""
    begin = local.astype("datetime64[ms]").astype(f"datetime64[{period}]")
    starts, ends = (each.astype("datetime64[ms]").astype(np.int64) for each in (begin, begin + 1))
    return starts - _offsets_around(starts, zone).max(axis=1), ends - _offsets_around(ends, zone).min(axis=1)


def _offsets_around(local: Times, zone: str) -> Times:
    moments = (local[:, None] + _HOURS_AROUND * _HOUR_MILLIS).reshape(-1)
    offsets: Times = (to_local(moments, zone) - moments).reshape(len(local), len(_HOURS_AROUND))
    return offsets


def _first_numbers(millis: Times, unit: str) -> Times:
    """Return the least numbers of moments not before some: before the epoch Java divides towards zero, others do not."""
    divisor = _UNITS_PER_MILLI.get(unit)
    if divisor is None:
        return _numbers_before(millis, unit)
    return np.where(millis > 0, millis, millis - 1) * divisor


def _numbers_before(millis: Times, unit: str) -> Times:
    """Return the least numbers that are not before some moments."""
    divisor = _UNITS_PER_MILLI.get(unit)
    return millis * divisor if divisor is not None else -(-millis // _MILLIS_PER_UNIT[unit])
