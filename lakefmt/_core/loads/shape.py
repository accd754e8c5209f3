"""Rows of a table made of what came: values converted, expressions computed, bad rows and unselected rows left out (pure).

Every rule works on whole columns. A text that cannot become the value of its column is null where the load is lenient; where it is strict
its row is bad. Null in a column that must not be null makes a row bad in both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import timedelta, timezone, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass
from lakefmt._core.keys import KeySpec, build_partition_paths, build_record_keys
from lakefmt._core.loads.csv_rows import CsvReader, Mask, Problem, SourceRows
from lakefmt._core.loads.expressions import ColumnList, Computed, convert_texts, fit_values, parse_columns
from lakefmt._core.loads.json_rows import JsonReader
from lakefmt._core.loads.protocol import MOST_CHARACTERS, LoadCounts, LoadParameters, Refusal
from lakefmt._core.segments.codec import OPERATOR, RowOperator
from lakefmt.errors import InvalidInputError

__all__ = ["OPERATION", "Shaped", "Shaper", "Target"]

#: The field that says what a row does: 0 or UPSERT, 1 or DELETE.
OPERATION: Final = "__op"
_OFFSET: Final = re.compile(r"([+-])(0[0-9]|1[0-4]):([0-5][0-9])")


@dataclass(frozen=True, slots=True)
class Target:
    """The table that rows are for.

    Attributes:
        schema: its columns.
        keys: the columns that make record keys; empty: it has none.
        spec: how keys and partition paths are made.
        lengths: the most bytes of the texts of some columns.
    """

    schema: pa.Schema
    keys: tuple[str, ...]
    spec: KeySpec
    lengths: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shaped:
    """Rows of a table.

    Attributes:
        rows: with the table's columns, and an operator where one of them deletes its key.
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
        self._computed = {
            name: Computed(expression, self._sources, self._zone) for name, expression in columns.expressions.items()
        }
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
        self._where = Computed(parameters.where, self._row_schema(), self._zone) if parameters.where else None
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
        if self._parameters.partial_update and not self._parameters.columns:
            raise Refusal("partial_update needs columns: those that are set", rolls_back=True)
        needed = set(target.keys) | {each.name.split(".", 1)[0] for each in target.spec.partition_fields}
        # A row of a key that is deleted before it is a new one.
        if not self._parameters.partial_update or self.marked:
            needed |= {each.name for each in schema if not each.nullable}
        names = [name for name in schema.names if name in needed and name not in there]
        if names:
            raise Refusal(f"Invalid columns: column {names[0]!r} gets no value and must have one", rolls_back=True)
        condition = self._parameters.merge_condition
        if condition and (condition not in schema.names or not target.keys):
            raise Refusal(
                f"Invalid merge_condition {condition[:100]!r}: it is a column of a table with keys", rolls_back=True
            )
        if condition and pt.is_nested(schema.field(condition).type):
            raise Refusal(f"merge_condition: values of column {condition[:100]!r} are not compared", rolls_back=True)
        if condition and condition not in there:
            raise Refusal(f"merge_condition: the rows have no column {condition[:100]!r}", rolls_back=True)

    @property
    def stored_names(self) -> tuple[str, ...]:
        """The columns that rows have: all, or in a partial update those that are named."""
        schema = self._target.schema
        if not self._parameters.partial_update:
            return tuple(schema.names)
        return tuple(name for name in schema.names if name in self._direct or name in self._computed)

    @property
    def missing_value(self) -> str:
        """A column that must have a value and that a partial update leaves out, so that it changes stored rows only."""
        lacking = (
            each.name for each in self._target.schema if not each.nullable and each.name not in self.stored_names
        )
        return next(lacking, "")

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
        work = _Work(source, self._parameters)
        columns = {name: self._converted(work, source.rows.column(name), name) for name in self._direct}
        for name, computed in self._computed.items():
            values, fails = computed.tried(self._typed_sources(source.rows, columns))
            if fails.any() and (self._parameters.strict or name == OPERATION):
                work.reject(fails, lambda row, name=name: f"column {name}: its expression cannot be computed", None)
            columns[name] = self._operators(work, values) if name == OPERATION else self._fitted(work, values, name)
        if OPERATION in self._sources.names and OPERATION not in self._computed:
            columns[OPERATION] = self._operators(work, source.rows.column(OPERATION))
        count = source.rows.num_rows
        for name in self.stored_names:
            if name not in columns:
                columns[name] = pa.chunked_array([pa.nulls(count, self._target.schema.field(name).type)])
        self._reject_nulls(work, columns)
        self._reject_long_texts(work, columns)
        fields = [self._target.schema.field(name).with_nullable(True) for name in self.stored_names]
        rows = pa.table([columns[each.name] for each in fields], schema=pa.schema(fields))
        selected = self._selected(work, rows, source.rows)
        good = ~work.bad
        row_mask = good & selected
        if work.deletes is not None and (work.deletes & row_mask).any():
            rows = rows.append_column(OPERATOR, columns[OPERATION])
        unselected = int(np.count_nonzero(good & ~selected))
        filtered = int(np.count_nonzero(work.bad)) + source.bad
        good_rows = rows if row_mask.all() else rows.filter(pa.array(row_mask))
        self._check_keys(good_rows)
        counts = LoadCounts(count + source.bad, good_rows.num_rows, filtered, unselected)
        return Shaped(good_rows, counts, work.problems)

    def _typed_sources(self, rows: pa.Table, columns: Mapping[str, pa.ChunkedArray]) -> pa.Table:
        return pa.table([columns.get(name, rows.column(name)) for name in self._sources.names], schema=self._sources)

    def _converted(self, work: _Work, values: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        data_type = self._target.schema.field(name).type
        if values.type.equals(data_type):
            return values
        column, bad = convert_texts(values, data_type, self._zone)
        if self._parameters.strict and bad.any():
            work.reject(bad, lambda row: f"column {name}: no {data_type}", values)
        return column

    def _fitted(self, work: _Work, values: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        """Return what an expression gives, as its column has it."""
        data_type = self._target.schema.field(name).type
        column, bad = fit_values(values, data_type, self._zone)
        if self._parameters.strict and bad.any():
            work.reject(bad, lambda row: f"column {name}: no {data_type}", values)
        return column

    def _operators(self, work: _Work, values: pa.ChunkedArray) -> pa.ChunkedArray:
        names = pc.utf8_upper(pc.utf8_trim_whitespace(values.cast(pa.string())))
        deletes = pc.fill_null(pc.is_in(names, pa.array(["1", "DELETE"])), False)
        is_operator = pc.or_(pc.is_null(names), pc.is_in(names, pa.array(["0", "1", "UPSERT", "DELETE"])))
        work.reject(~is_operator.to_numpy(), lambda row: f"{OPERATION} is 0 or 1", values)
        work.deletes = deletes.to_numpy()
        upsert, delete = RowOperator.UPSERT.value, RowOperator.DELETE_IGNORE.value
        codes = pc.if_else(deletes, pa.scalar(delete, pa.int8()), pa.scalar(upsert, pa.int8()))
        return codes if isinstance(codes, pa.ChunkedArray) else pa.chunked_array([codes])

    def _reject_nulls(self, work: _Work, columns: Mapping[str, pa.ChunkedArray]) -> None:
        target = self._target
        for name in self.stored_names:
            column, is_key = columns[name], name in target.keys
            if not is_key and target.schema.field(name).nullable:
                continue
            is_empty = column.is_null().to_numpy()
            if not is_key and work.deletes is not None:
                is_empty = is_empty & ~work.deletes
            if is_key and len(target.keys) == 1 and pt.is_string(column.type):
                is_empty = is_empty | pc.fill_null(pc.equal(column, ""), False).to_numpy()
            work.reject(is_empty, lambda row, name=name: f"column {name} must have a value", None)

    def _reject_long_texts(self, work: _Work, columns: Mapping[str, pa.ChunkedArray]) -> None:
        for name, most in self._target.lengths.items():
            if name in columns and name in self.stored_names:
                too_long = pc.fill_null(pc.greater(pc.binary_length(columns[name]), most), False).to_numpy()
                work.reject(too_long, lambda row, name=name, most=most: f"column {name}: more than {most} bytes", None)

    def _selected(self, work: _Work, rows: pa.Table, source: pa.Table) -> Mask:
        row_mask = np.ones(rows.num_rows, bool)
        if self._where is not None and rows.num_rows:
            others = {name: source.column(name) for name in source.column_names if name not in rows.column_names}
            whole = pa.table({**{name: rows.column(name) for name in self.stored_names}, **others})
            whole = whole.select(self._row_schema().names)
            answers, fails = self._where.tried(whole)
            work.reject(fails, lambda row: "where: it cannot be computed", None)
            row_mask = pc.fill_null(answers.cast(pa.bool_()), False).to_numpy()
        if self._parameters.partitions and rows.num_rows:
            fit = ~work.bad & row_mask
            paths = build_partition_paths(self._target.spec, rows.filter(pa.array(fit)))
            # Named by path, as city=sf, or by value.
            names, paths = pa.array(self._parameters.partitions), paths.cast(pa.string())
            values = pc.replace_substring_regex(paths, r"(^|/)[^=/]+=", r"\1")
            matches = pc.or_(pc.is_in(paths, names), pc.is_in(values, names))
            row_mask[np.flatnonzero(fit)] = matches.to_numpy(zero_copy_only=False)
        return row_mask

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

    def __init__(self, source: SourceRows, parameters: LoadParameters) -> None:
        self.bad: Mask = np.zeros(source.rows.num_rows, bool)
        self.problems = list(source.problems)
        self.deletes: Mask | None = None
        self._source, self._parameters = source.rows, parameters

    def reject(self, rows: Mask, reason: Any, values: pa.ChunkedArray | None) -> None:
        """Note bad rows."""
        new = rows & ~self.bad
        for row in np.flatnonzero(new)[: max(0, self._parameters.most_problems - len(self.problems))]:
            excerpt = "" if values is None else str(values[int(row)].as_py())[:MOST_CHARACTERS]
            if self._parameters.log_rejected:
                fields = (
                    "\\N" if each is None else str(each)
                    for each in self._source.slice(int(row), 1).to_pylist()[0].values()
                )
                excerpt = self._parameters.separator.decode("utf-8", "replace").join(fields)[
                    : self._parameters.most_characters
                ]
            self.problems.append(Problem(reason(int(row)), excerpt))
        self.bad |= rows


def _zone(name: str) -> tzinfo | None:
    if not name:
        return None
    if (offset := _OFFSET.fullmatch(name)) is not None:
        minutes = int(offset[2]) * 60 + int(offset[3])
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    if name in ("CST",):
        name = "Asia/Shanghai"
    try:
        zone = ZoneInfo(name)
        pc.assume_timezone(pa.array([0], pa.timestamp("s")), name)  # Arrow does not know all of them
        return zone
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Refusal(f"Invalid timezone {name[:60]!r}", rolls_back=True) from None


def _converts(data_type: pa.DataType) -> bool:
    """Return whether Arrow's readers convert texts to a type by the rules of this module."""
    plain = pt.is_integer(data_type) or pt.is_floating(data_type) or pt.is_boolean(data_type) or pt.is_string(data_type)
    return plain or pt.is_date32(data_type) or (pt.is_timestamp(data_type) and data_type.tz is None)


def _is_scalar(data_type: pa.DataType) -> bool:
    """Return whether a value of JSON for a type is no object and no array."""
    return not pt.is_nested(data_type)
