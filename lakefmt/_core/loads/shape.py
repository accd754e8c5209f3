"""Rows of a table made of what came: values converted, expressions computed, bad rows and unselected rows left out (pure).

Every rule works on whole columns. A text that cannot become the value of its column is null where the load is lenient; where it is strict
its row is bad. Null in a column that must not be null makes a row bad in both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass
from lakefmt._core.keys import KeySpec, build_partition_paths, build_record_keys
from lakefmt._core.loads.csv_rows import MOST_PROBLEMS, CsvReader, Mask, Problem, SourceRows
from lakefmt._core.loads.expressions import ColumnList, Computed, parse_columns
from lakefmt._core.loads.json_rows import JsonReader
from lakefmt._core.loads.protocol import LoadCounts, LoadParameters, Refusal
from lakefmt._core.segments.codec import OPERATOR
from lakefmt._core.segments.names import RowOperator
from lakefmt.errors import InvalidInputError

__all__ = ["OPERATION", "Shaped", "Shaper", "Target", "convert_texts"]

#: The field that says what a row does: 0 or UPSERT, 1 or DELETE.
OPERATION: Final = "__op"
_INTEGER: Final = r"^[+-]?[0-9]{1,38}$"
_NUMBER: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?$"
_FIXED: Final = r"^[+-]?([0-9]{0,38}\.?[0-9]{0,37})$"
_DATE: Final = r"^(?P<y>[0-9]{4})-(?P<m>[0-9]{1,2})-(?P<d>[0-9]{1,2})"
_TIME: Final = r"^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([ T][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(\.[0-9]{1,9})?)?$"


@dataclass(frozen=True, slots=True)
class Target:
    """The table that rows are for.

    Attributes:
        schema: its columns.
        keys: the columns that make record keys; empty: it has none.
        spec: how keys and partition paths are made.
    """

    schema: pa.Schema
    keys: tuple[str, ...]
    spec: KeySpec


@dataclass(frozen=True, slots=True)
class Shaped:
    """Rows of a table.

    Attributes:
        rows: with the table's columns, and an operator if the load has the field of one.
        counts: what became of those that came.
        problems: of the first bad rows.
    """

    rows: pa.Table
    counts: LoadCounts
    problems: Sequence[Problem] = field(default_factory=tuple)


class Shaper:
    """Makes rows of a table out of bodies; one for all loads of a table in a transaction.

    Args:
        parameters: of the load.
        target: the table.

    Raises:
        Refusal: a header names what the table does not have, or a column gets no value.
    """

    def __init__(self, parameters: LoadParameters, target: Target) -> None:
        self._parameters, self._target = parameters, target
        self._zone = _zone(parameters.timezone)
        columns = parse_columns(parameters.columns) if parameters.columns else self._columns_of_table()
        unknown = [name for name in columns.expressions if name not in target.schema.names and name != OPERATION]
        if unknown:
            raise Refusal(f"Invalid columns: the table has no column {unknown[0]!r}", rolls_back=True)
        self._direct = tuple(
            name for name in columns.names if name in target.schema.names and name not in columns.expressions
        )
        self.marked = OPERATION in columns.names or OPERATION in columns.expressions
        self._sources = pa.schema(
            [(name, target.schema.field(name).type if name in self._direct else pa.string()) for name in columns.names]
        )
        self._computed = {name: Computed(text, self._sources) for name, text in columns.expressions.items()}
        self._check_columns(columns)
        is_csv = parameters.format == "csv"
        types = {
            name: target.schema.field(name).type
            for name in self._direct
            if (_converts if is_csv else _is_scalar)(target.schema.field(name).type)
        }
        if self.marked or any(name not in target.schema.names for name in columns.names):
            types.update({name: pa.string() for name in columns.names if name not in self._direct})
        reads = CsvReader if is_csv else JsonReader
        self.reader: CsvReader | JsonReader = reads(parameters, columns.names, types)
        self._where = Computed(parameters.where, self._row_schema()) if parameters.where else None
        if self._where is not None and not (pt.is_boolean(self._where.type) or pt.is_null(self._where.type)):
            raise Refusal(f"Invalid where: {parameters.where[:200]!r} is no condition", rolls_back=True)

    def _columns_of_table(self) -> ColumnList:
        names = list(self._target.schema.names)
        if self._parameters.format == "json" and self._target.keys and not self._parameters.jsonpaths:
            names.append(OPERATION)  # a missing one is null, and null is an upsert
        return ColumnList(tuple(names), {})

    def _check_columns(self, columns: ColumnList) -> None:
        target, schema = self._target, self._target.schema
        there = {*self._direct, *columns.expressions}
        if self.marked and not target.keys:
            raise Refusal(f"{OPERATION} is for tables with record keys", rolls_back=True)
        if self._parameters.partial_update and not target.keys:
            raise Refusal("Only primary key table support partial update", rolls_back=True)
        if self._parameters.partial_update and self.marked and self._parameters.columns:
            raise Refusal(f"partial_update and {OPERATION} together are not supported", rolls_back=True)
        needed = set(target.keys) | {each.name.split(".", 1)[0] for each in target.spec.partition_fields}
        if not self._parameters.partial_update:
            needed |= {each.name for each in schema if not each.nullable}
        missing = [name for name in schema.names if name in needed and name not in there]
        if missing:
            raise Refusal(f"Invalid columns: column {missing[0]!r} gets no value and must have one", rolls_back=True)
        condition = self._parameters.merge_condition
        if condition and (condition not in schema.names or not target.keys):
            raise Refusal(
                f"Invalid merge_condition {condition[:100]!r}: it is a column of a table with keys", rolls_back=True
            )

    @property
    def stored_names(self) -> tuple[str, ...]:
        """The columns that rows have: all, or in a partial update those that are named."""
        schema = self._target.schema
        if not self._parameters.partial_update:
            return tuple(schema.names)
        return tuple(name for name in schema.names if name in self._direct or name in self._computed)

    def _row_schema(self) -> pa.Schema:
        fields = [self._target.schema.field(name).with_nullable(True) for name in self.stored_names]
        others = [each for each in self._sources if each.name not in self.stored_names]
        return pa.schema([*fields, *others])

    # --- rows ------------------------------------------------------------------------------------------------------------

    def shape(self, source: SourceRows) -> Shaped:
        """Return the rows of the table, what became of those that came, and why rows are bad.

        Raises:
            Refusal: an expression cannot be computed.
        """
        work = _Work(source)
        columns = {name: self._converted(work, source.rows.column(name), name) for name in self._direct}
        for name, computed in self._computed.items():
            values = computed.values(self._typed_sources(source.rows, columns))
            columns[name] = self._operators(work, values) if name == OPERATION else self._fitted(work, values, name)
        if OPERATION in self._sources.names and OPERATION not in self._computed:
            columns[OPERATION] = self._operators(work, source.rows.column(OPERATION))
        count = source.rows.num_rows
        for name in self.stored_names:
            if name not in columns:
                columns[name] = pa.chunked_array([pa.nulls(count, self._target.schema.field(name).type)])
        self._reject_nulls(work, columns)
        fields = [self._target.schema.field(name).with_nullable(True) for name in self.stored_names]
        rows = pa.table([columns[each.name] for each in fields], schema=pa.schema(fields))
        if self.marked:
            rows = rows.append_column(OPERATOR, columns[OPERATION])
        good = ~work.bad
        selected = self._selected(rows, source.rows, good)
        chosen = good & selected
        unselected = int(np.count_nonzero(good & ~selected))
        filtered = int(np.count_nonzero(work.bad)) + source.bad
        made = rows if chosen.all() else rows.filter(pa.array(chosen))
        self._check_keys(made)
        counts = LoadCounts(count + source.bad, made.num_rows, filtered, unselected)
        return Shaped(made, counts, work.problems)

    def _typed_sources(self, rows: pa.Table, columns: Mapping[str, pa.ChunkedArray]) -> pa.Table:
        return pa.table([columns.get(name, rows.column(name)) for name in self._sources.names], schema=self._sources)

    def _converted(self, work: _Work, values: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        data_type = self._target.schema.field(name).type
        if values.type.equals(data_type):
            return values
        made, bad = convert_texts(values, data_type, self._zone)
        if self._parameters.strict and bad.any():
            work.reject(bad, lambda row: f"column {name}: no {data_type}", values)
        return made

    def _fitted(self, work: _Work, values: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        """Return what an expression gives, as its column has it."""
        data_type = self._target.schema.field(name).type
        if values.type.equals(data_type) or pt.is_null(values.type):
            return values if values.type.equals(data_type) else values.cast(data_type)
        if not pt.is_string(values.type):
            try:
                return values.cast(data_type)
            except pa.ArrowException:
                values = values.cast(pa.string())
        return self._converted(work, values, name)

    def _operators(self, work: _Work, values: pa.ChunkedArray) -> pa.ChunkedArray:
        texts = pc.utf8_upper(pc.utf8_trim_whitespace(values.cast(pa.string())))
        deletes = pc.fill_null(pc.is_in(texts, pa.array(["1", "DELETE"])), False)
        known = pc.or_(pc.is_null(texts), pc.is_in(texts, pa.array(["0", "1", "UPSERT", "DELETE"])))
        work.reject(~known.to_numpy(), lambda row: f"{OPERATION} is 0 or 1", values)
        work.deletes = deletes.to_numpy()
        upsert, delete = RowOperator.UPSERT.value, RowOperator.DELETE_IGNORE.value
        codes = pc.if_else(deletes, pa.scalar(delete, pa.int8()), pa.scalar(upsert, pa.int8()))
        return codes if isinstance(codes, pa.ChunkedArray) else pa.chunked_array([codes])

    def _reject_nulls(self, work: _Work, columns: Mapping[str, pa.ChunkedArray]) -> None:
        target = self._target
        for name in self.stored_names:
            column, is_key = columns[name], name in target.keys
            if not is_key and (target.schema.field(name).nullable or self._parameters.partial_update):
                continue
            missing = column.is_null().to_numpy()
            if not is_key and work.deletes is not None:
                missing = missing & ~work.deletes
            if is_key and len(target.keys) == 1 and pt.is_string(column.type):
                missing = missing | pc.fill_null(pc.equal(column, ""), False).to_numpy()
            work.reject(missing, lambda row, name=name: f"column {name} must have a value", None)

    def _selected(self, rows: pa.Table, source: pa.Table, good: Mask) -> Mask:
        chosen = np.ones(rows.num_rows, bool)
        if self._where is not None and rows.num_rows:
            others = {name: source.column(name) for name in source.column_names if name not in rows.column_names}
            whole = pa.table({**{name: rows.column(name) for name in self.stored_names}, **others})
            whole = whole.select(self._row_schema().names)
            found = self._where.values(whole)
            chosen = pc.fill_null(found.cast(pa.bool_()), False).to_numpy()
        if self._parameters.partitions and rows.num_rows:
            fit = good & chosen
            paths = build_partition_paths(self._target.spec, rows.filter(pa.array(fit)))
            # Named by path, as city=sf, or by value.
            names, paths = pa.array(self._parameters.partitions), paths.cast(pa.string())
            values = pc.replace_substring_regex(paths, r"(^|/)[^=/]+=", r"\1")
            kept = pc.or_(pc.is_in(paths, names), pc.is_in(values, names))
            chosen[np.flatnonzero(fit)] = kept.to_numpy(zero_copy_only=False)
        return chosen

    def _check_keys(self, rows: pa.Table) -> None:
        """Refuse rows that no commit could store."""
        try:
            if self._target.keys:
                build_record_keys(self._target.spec, rows)
            if self._target.spec.partition_fields:
                build_partition_paths(self._target.spec, rows)
        except InvalidInputError:  # its message has the value
            raise Refusal("a row has a record key or a partition value that cannot be used", rolls_back=True) from None


class _Work:
    """What is known of the rows of a block while they are made.

    Attributes:
        bad: which are bad.
        problems: why, of the first.
        deletes: which delete their key; None: no row says so.
    """

    def __init__(self, source: SourceRows) -> None:
        self.bad: Mask = np.zeros(source.rows.num_rows, bool)
        self.problems = list(source.problems)
        self.deletes: Mask | None = None

    def reject(self, rows: Mask, reason: Any, values: pa.ChunkedArray | None) -> None:
        """Note bad rows."""
        new = rows & ~self.bad
        for row in np.flatnonzero(new)[: max(0, MOST_PROBLEMS - len(self.problems))]:
            shown = "" if values is None else str(values[int(row)].as_py())[:200]
            self.problems.append(Problem(reason(int(row)), shown))
        self.bad |= rows


def _zone(name: str) -> ZoneInfo | None:
    if not name:
        return None
    if name in ("CST",):
        name = "Asia/Shanghai"
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Refusal(f"Invalid timezone {name[:60]!r}", rolls_back=True) from None


def _converts(data_type: pa.DataType) -> bool:
    """Return whether Arrow's readers convert texts to a type by the rules of this module."""
    plain = pt.is_integer(data_type) or pt.is_floating(data_type) or pt.is_boolean(data_type) or pt.is_string(data_type)
    return plain or pt.is_date32(data_type) or (pt.is_timestamp(data_type) and data_type.tz is None)


def _is_scalar(data_type: pa.DataType) -> bool:
    """Return whether a value of JSON for a type is no object and no array."""
    return not pt.is_nested(data_type)


def convert_texts(
    texts: pa.ChunkedArray, data_type: pa.DataType, zone: ZoneInfo | None = None
) -> tuple[pa.ChunkedArray, Mask]:
    """Return values made of texts, and which texts are no such values; those are null.

    Args:
        texts: null is null.
        data_type: of the values.
        zone: of times that name none; None: UTC.

    Example:
        >>> values, bad = convert_texts(pa.chunked_array([["1", "x", " 3", None]]), pa.int32())
        >>> values.to_pylist(), bad.tolist()
        ([1, None, 3, None], [False, True, False, False])
    """
    if (
        pt.is_string(data_type)
        or pt.is_large_string(data_type)
        or pt.is_binary(data_type)
        or pt.is_large_binary(data_type)
    ):
        return texts.cast(data_type), np.zeros(len(texts), bool)
    if pt.is_nested(data_type):
        return _from_json(texts, data_type)
    trimmed = pc.utf8_trim_whitespace(texts)
    made = _cast_texts(trimmed, data_type, zone)
    if isinstance(made, pa.Array):
        made = pa.chunked_array([made])
    bad = pc.and_(made.is_null(), texts.is_valid()).to_numpy()
    return made, bad


def _cast_texts(texts: pa.ChunkedArray, data_type: pa.DataType, zone: ZoneInfo | None) -> pa.ChunkedArray:
    if pt.is_timestamp(data_type) and data_type.tz is not None:
        return _zoned(texts, data_type, zone)
    if not pt.is_boolean(data_type) and not pt.is_decimal(data_type):
        try:
            return texts.cast(data_type)
        except (pa.ArrowException, NotImplementedError):
            pass
    if pt.is_boolean(data_type):
        lower = pc.utf8_lower(texts)
        known = pc.is_in(lower, pa.array(["true", "false", "1", "0"]))
        return pc.if_else(known, pc.is_in(lower, pa.array(["true", "1"])), pa.scalar(None, pa.bool_()))
    if pt.is_integer(data_type):
        return _integers(texts, data_type)
    if pt.is_floating(data_type):
        made = _matching(texts, _NUMBER).cast(pa.float64())
        made = pc.if_else(pc.is_inf(made), pa.scalar(None, pa.float64()), made)
        return made.cast(data_type, safe=False)
    if pt.is_decimal(data_type):
        return _decimals(texts, data_type)
    if pt.is_date(data_type):
        return _moments(texts, "s").cast(pa.date32()).cast(data_type)
    if pt.is_timestamp(data_type):
        return _moments(texts, "us").cast(data_type, safe=False)
    if pt.is_time(data_type):
        clock = _matching(texts, r"^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?$")
        moments = _moments(pc.binary_join_element_wise("1970-01-01", clock, " "), "us")
        return moments.cast(pa.time64("us")).cast(data_type, safe=False)
    raise Refusal(f"a column of type {data_type} is not loaded from text", rolls_back=True)


def _matching(texts: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    good = pc.fill_null(pc.match_substring_regex(texts, pattern), False)
    return pc.if_else(good, texts, pa.scalar(None, pa.string()))


def _integers(texts: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray:
    wide = _matching(texts, _INTEGER).cast(pa.decimal128(38, 0))
    bits = data_type.bit_width
    signed = pt.is_signed_integer(data_type)
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    bounds = [pa.scalar(Decimal(bound), pa.decimal128(38, 0)) for bound in (least, most)]
    fits = pc.and_(pc.greater_equal(wide, bounds[0]), pc.less_equal(wide, bounds[1]))
    return pc.if_else(pc.fill_null(fits, False), wide, pa.scalar(None, wide.type)).cast(data_type)


def _decimals(texts: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray:
    """Return decimals, rounded half away from zero; those that do not fit are null."""
    plain = _matching(texts, _FIXED)
    plain = pc.if_else(
        pc.fill_null(pc.match_substring_regex(plain, "[0-9]"), False), plain, pa.scalar(None, pa.string())
    )
    wide = pc.round(plain.cast(pa.decimal256(76, 37)), data_type.scale, "half_towards_infinity")
    most = Decimal(10) ** (data_type.precision - data_type.scale)
    limit = pa.scalar(most, pa.decimal256(76, 37)) if most < Decimal(10) ** 38 else None
    if limit is not None:
        fits = pc.less(pc.abs(wide), limit)
        wide = pc.if_else(pc.fill_null(fits, False), wide, pa.scalar(None, wide.type))
    return wide.cast(data_type)


def _moments(texts: pa.ChunkedArray, unit: str) -> pa.ChunkedArray:
    """Return timestamps without a zone of dates and times; days that there are not are null."""
    good = _matching(texts, _TIME)
    spaced = pc.replace_substring(good, "T", " ")
    head = pc.struct_field(pc.extract_regex(spaced, r"^(?P<head>[^.]*)"), "head")
    has_time = pc.fill_null(pc.match_substring(head, " "), False)
    whole = pc.if_else(has_time, head, pc.binary_join_element_wise(head, "00:00:00", " "))
    made = pc.strptime(whole, "%Y-%m-%d %H:%M:%S", "s", error_is_null=True)
    # A day that there is not becomes one of the next month: it is another day of the month then.
    parts = pc.extract_regex(whole, _DATE)
    day = pc.struct_field(parts, "d").cast(pa.int64())
    made = pc.if_else(pc.equal(pc.day(made), day), made, pa.scalar(None, made.type)).cast(pa.timestamp(unit))
    if unit == "s":
        return made
    digits = pc.struct_field(pc.extract_regex(spaced, r"\.(?P<part>[0-9]{1,9})$"), "part")
    micros = pc.utf8_slice_codeunits(pc.utf8_rpad(digits, 6, "0"), 0, 6).cast(pa.int64())
    return pc.add(made, pc.fill_null(micros, 0).cast(pa.duration("us")))


def _zoned(texts: pa.ChunkedArray, data_type: pa.DataType, zone: ZoneInfo | None) -> pa.ChunkedArray:
    """Return moments: texts that name no zone are of the load's."""
    parts = pc.extract_regex(texts, r"^(?P<t>.*?) ?(?P<s>[+-])(?P<h>[0-9]{2}):?(?P<m>[0-9]{2})$")
    has_offset = parts.is_valid()
    in_utc = pc.fill_null(pc.match_substring_regex(texts, "Z$"), False)
    plain = pc.if_else(has_offset, pc.struct_field(parts, "t"), pc.if_else(in_utc, pc.utf8_rtrim(texts, "Z"), texts))
    local = _moments(plain, "us")
    minutes = pc.add(
        pc.multiply(pc.struct_field(parts, "h").cast(pa.int64()), 60), pc.struct_field(parts, "m").cast(pa.int64())
    )
    minutes = pc.if_else(pc.equal(pc.struct_field(parts, "s"), "-"), pc.negate(minutes), minutes)
    shift = pc.multiply(pc.fill_null(minutes, 0), 60_000_000).cast(pa.duration("us"))
    with_zone = pc.subtract(local, shift).cast(pa.timestamp("us", "UTC"))
    placed = pc.assume_timezone(local, str(zone or "UTC"), ambiguous="earliest", nonexistent="latest")
    named = pc.or_(has_offset, in_utc)
    return pc.if_else(named, with_zone, placed.cast(pa.timestamp("us", "UTC"))).cast(data_type, safe=False)


def _from_json(texts: pa.ChunkedArray, data_type: pa.DataType) -> tuple[pa.ChunkedArray, Mask]:
    """Return lists, structs and maps made of JSON; one by one, since Arrow has no function for it."""
    values, bad = list[Any](), np.zeros(len(texts), bool)
    for number, text in enumerate(texts.to_pylist()):
        try:
            value = None if text is None else json.loads(text)
            if isinstance(value, dict) and pt.is_map(data_type):
                value = list(value.items())
            pa.scalar(value, data_type)
            values.append(value)
        except (ValueError, TypeError, RecursionError, pa.ArrowException):
            values.append(None)
            bad[number] = True
    return pa.chunked_array([pa.array(values, data_type)]), bad
