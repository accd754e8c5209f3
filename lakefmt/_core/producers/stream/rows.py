"""Rows of a stream: checked when they are applied, turned into columns when their buffer is sealed.

A row is a list of values in the order of the columns. What can be refused is refused here, in the caller's thread. Arrow data come
in the table's columns, with what each row does (:func:`arrow_rows`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arguments import shown
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.filegroups.ordering import Mask
from lakefmt._core.filegroups.stored_keys import stored_key_spec
from lakefmt._core.filegroups.table_client import TableAt, TableState
from lakefmt._core.keys import KeySpec, build_new_partition_paths, build_partition_paths, build_record_keys
from lakefmt._core.producers.stream.options import DELETES, RowOperator, StreamOptions, parse_operator
from lakefmt._core.schema import conform
from lakefmt._core.schema.python_values import value_converter
from lakefmt._core.schema.types import all_nullable, field_at
from lakefmt._core.segments.codec import COLUMNS, OPERATOR, STRICT, UPDATES, WHOLE_ROWS
from lakefmt._core.segments.resolve import columns_since, key_columns_of
from lakefmt.errors import InvalidInputError, InvalidKey, SchemaMismatch

__all__ = [
    "FollowedColumns",
    "Numbers",
    "RowChecker",
    "Values",
    "arrow_rows",
    "encode_columns",
    "has_strict",
    "operator_numbers",
    "row_mapping",
    "without_column",
]

Values: TypeAlias = Sequence[Any]
_ValueCheck: TypeAlias = Callable[[Any], Any]
#: The position of a column, and the names of the fields inside it.
_ValuePath: TypeAlias = tuple[Any, ...]

#: Bytes of a row beside its texts, and of each of its values: an estimate.
_ROW_BYTES: Final = 16
_VALUE_BYTES: Final = 8
#: Texts that are part of a partition path as they are.
_PLAIN_PATH_PART: Final = re.compile(r"\w[\w.\- ]{0,60}", re.ASCII)


def row_mapping(row: object) -> Mapping[str, object]:
    """Return a row as a mapping: a mapping as it is, else the attributes of a dataclass or of an object with fields.

    Raises:
        InvalidInputError: the object has no named fields.

    Example:
        >>> from types import SimpleNamespace
        >>> row_mapping(SimpleNamespace(a=1))
        {'a': 1}
    """
    if isinstance(row, Mapping):
        return row
    if is_dataclass(row) and not isinstance(row, type):
        return {field.name: getattr(row, field.name) for field in fields(row)}
    # Of pydantic, msgspec and named tuples.
    attributes = ("model_fields", "__struct_fields__", "_fields")
    names = next(
        (field_names for attribute in attributes if (field_names := getattr(type(row), attribute, None))), None
    )
    if names is None:
        names = getattr(row, "__dict__", None)
    if names is None or isinstance(row, type):
        raise InvalidInputError(f"{shown(row)} is no row: give a mapping, a dataclass or an object with named fields")
    return {str(name): getattr(row, name) for name in names}


class RowChecker:
    """Checks rows against the columns of a table and makes columns of them.

    Args:
        schema: the table's columns.
        keys: the columns that make key and partition path: rows have them all, and those of the key are not null.
        strict: a row that lacks a nullable column is refused.
        spec: how keys and partition paths are made; None: they are checked when a segment is made.
        null_elements: lists may have null elements.
        since: the instant from which the table has these columns.
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        *,
        strict: bool = False,
        spec: KeySpec | None = None,
        since: str = "",
        null_elements: bool = True,
    ) -> None:
        self.schema = schema
        self.since = since
        self.names = tuple(schema.names)
        self.keys = tuple(keys)
        self._known = frozenset(self.names)
        self._strict = strict
        self._key_set = frozenset(keys)
        bound_keys = keys if spec is None else spec.record_key_fields if keys else ()
        #: Of `keys` those that make the key: the others may be null, which has a partition of its own.
        self.record_keys = frozenset(name.split(".", 1)[0] for name in bound_keys)
        required = [field.name in self.record_keys or not field.nullable for field in schema]
        self.null_elements = null_elements
        checks = [
            _value_check(field, needed=needed, null_elements=null_elements)
            for field, needed in zip(schema, required, strict=True)
        ]
        self._pairs = list(zip(self.names, checks, strict=True))
        self._sized = [n for n, field in enumerate(schema) if not _has_fixed_size(field.type)]
        self._fixed = _ROW_BYTES + _VALUE_BYTES * len(self.names)
        #: Columns of partitions alone, which a row names though their value may be null.
        self._path_names = self._key_set - self.record_keys
        self._spec = spec
        self._key_texts, self._path_texts = self._odd_places(spec)
        #: A key column of texts: where its value is there, the key is not empty.
        self._first_text = next((value_path[0] for value_path in self._key_texts if len(value_path) == 1), None)
        bound = [] if spec is None else [*spec.record_key_fields, *(each.name for each in spec.partition_fields)]
        #: Fields of structs of which a key or a path is made.
        self.inner_keys = tuple(dict.fromkeys(name for name in bound if "." in name)) if self.keys else ()
        inner_record_keys = [name for name in self.inner_keys if spec is not None and name in spec.record_key_fields]
        self._inner_places = [(name, self._path_indices(name)) for name in inner_record_keys]
        self._inner_path_names = [name.split(".") for name in self.inner_keys if name not in inner_record_keys]

    def _path_indices(self, path: str) -> _ValuePath:
        first, *rest = path.split(".")
        return self.names.index(first), *rest

    def _odd_places(self, spec: KeySpec | None) -> tuple[list[_ValuePath], list[_ValuePath]]:
        """Return the places of texts of which not all are keys, and of which not all are parts of a path."""
        if spec is None:
            return [], []
        fields = spec.record_key_fields if self.keys else ()
        keys = [self._path_indices(name) for name in fields if self._is_text(name)]
        paths = [
            self._path_indices(f.name) for f in spec.partition_fields if f.timestamp is None and self._is_text(f.name)
        ]
        # A key is empty when all its texts are; other values have a text.
        return (keys if len(keys) == len(fields) else []), paths

    def _is_text(self, path: str) -> bool:
        field = field_at(self.schema, path)
        return field is not None and (pt.is_string(field.type) or pt.is_large_string(field.type))

    def values(self, operator: RowOperator, row: Mapping[str, object]) -> tuple[list[object], tuple[str, ...] | None]:
        """Return the values of a row, and the columns that it sets (None: all).

        Raises:
            SchemaMismatch: a value does not fit its column, a required one is missing, or there is no such column.
            InvalidKey: a key column is missing or null.
        """
        if not row.keys() <= self._known:
            unknown = next(name for name in row if name not in self._known)
            raise SchemaMismatch(f"the table has no column {shown(unknown)}: it has {', '.join(self.names)}")
        for path in self._inner_path_names:
            _check_named(row, path)
        values, columns = self._checked(operator, row)
        if self._key_texts or self._path_texts or self._inner_places:
            self.refuse_odd(values, stores=operator not in DELETES)
        return values, columns

    def refuse_odd(self, values: Values, *, stores: bool = True) -> None:
        """Refuse a row whose key or partition path no commit could store; a look at texts, no key is made.

        Args:
            values: of the row.
            stores: the row is stored; False: it is deleted, wherever another engine has put it.

        Raises:
            InvalidKey: so it is.
        """
        for name, value_path in self._inner_places:
            if _value_at(values, value_path) is None:
                raise InvalidKey(f"column {name!r} must be set, and must not be null: a key is made of it")
        has_key = self._first_text is not None and values[self._first_text]
        if not has_key and self._key_texts and not any(_value_at(values, value_path) for value_path in self._key_texts):
            names = ", ".join(".".join((self.names[value_path[0]], *value_path[1:])) for value_path in self._key_texts)
            raise InvalidKey(f"the record key ({names}) must not be empty")
        for value_path in self._path_texts:
            value = _value_at(values, value_path)
            if value and not _PLAIN_PATH_PART.fullmatch(value) and self._spec is not None:
                build = build_new_partition_paths if stores else build_partition_paths
                build(self._spec, self.columns([values]))

    def refuse_odd_table(self, rows: pa.Table, deletes: Mask) -> None:
        """Refuse Arrow data with a key or a partition path that no commit could store.

        Args:
            rows: the data.
            deletes: which of them are deletes.

        Raises:
            InvalidKey: they have one.
        """
        if self.inner_keys and self._spec is not None:
            build_record_keys(self._spec, rows)
            _refuse_paths(self._spec, rows, deletes)
        elif self._key_texts:
            empty = [pc.fill_null(pc.equal(rows.column(value_path[0]), ""), True) for value_path in self._key_texts]
            count = sum(chunk.true_count for chunk in reduce(pc.and_, empty).chunks)
            if count:
                raise InvalidKey(f"{count} rows have an empty record key")
        if self._path_texts and self._spec is not None:
            _refuse_paths(self._spec, rows, deletes)

    def _checked(self, operator: RowOperator, row: Mapping[str, object]) -> tuple[list[object], tuple[str, ...] | None]:
        if operator in DELETES:
            return self._delete(row), None
        if operator in UPDATES:
            return self._update(row)
        get = row.get
        if not self._path_names <= row.keys():
            missing = next(name for name in self.names if name in self._path_names and name not in row)
            raise InvalidKey(f"column {missing!r} is not set, of which the partition is made; it may be null")
        if len(row) < len(self.names) and self._strict:
            missing = next(name for name in self.names if name not in row)
            raise SchemaMismatch(f"all columns must be set: column {missing!r} is missing")
        return [check(get(name)) for name, check in self._pairs], None

    def _delete(self, row: Mapping[str, object]) -> list[object]:
        values: list[object] = [None] * len(self.names)
        self._check_keys(row, "a delete")
        for column_number, (name, check) in enumerate(self._pairs):
            if row.get(name) is not None:
                values[column_number] = check(row[name])
        return values

    def _update(self, row: Mapping[str, object]) -> tuple[list[object], tuple[str, ...]]:
        values: list[object] = [None] * len(self.names)
        self._check_keys(row, "an update")
        for column_number, (name, check) in enumerate(self._pairs):
            if name in row:
                values[column_number] = check(row[name])
        return values, tuple(name for name in self.names if name in row)

    def _check_keys(self, row: Mapping[str, object], what: str) -> None:
        for name in self.keys:
            if name not in row or (row[name] is None and name in self.record_keys):
                raise InvalidKey(f"{what} needs its key: column {name!r} is not set")

    def size(self, values: Values) -> int:
        """Return about how many bytes a row takes."""
        total = self._fixed
        for column_number in self._sized:
            value = values[column_number]
            if value is not None:
                total += len(value) if type(value) is str or type(value) is bytes else _value_size(value)
        return total

    def columns(self, rows: Sequence[Values]) -> pa.Table:
        """Return rows as columns, all of them nullable: a delete has its key only.

        Raises:
            SchemaMismatch: a value does not fit after all.
        """
        columns = zip(*rows, strict=True)
        try:
            arrays = [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise SchemaMismatch(f"rows of a buffer do not fit the table's columns: {str(error)[:200]}") from None
        return pa.Table.from_arrays(arrays, schema=all_nullable(self.schema))


def _has_fixed_size(data_type: pa.DataType) -> bool:
    return bool(pt.is_primitive(data_type) or pt.is_decimal(data_type))


def _value_size(value: object) -> int:
    """Return about how many bytes a value takes."""
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    if isinstance(value, Mapping):
        return _ROW_BYTES + _sizes_of_all(value.keys()) + _sizes_of_all(value.values())
    if isinstance(value, list | tuple):
        return _ROW_BYTES + _sizes_of_all(value)
    return _VALUE_BYTES


def _value_at(values: Values, value_path: _ValuePath) -> Any:
    """Return a value of a row, or of a struct in it; None where the struct is null."""
    first, *rest = value_path
    value = values[first]
    for name in rest:
        value = None if value is None else value[name]
    return value


def _check_named(row: Mapping[str, object], path: Sequence[str]) -> None:
    """Check that a struct in a row has the field that its partition is made of; the value may be null.

    Raises:
        InvalidKey: the struct is there and lacks it.
    """
    value: object = row
    for name in path:
        if not isinstance(value, Mapping):
            return
        if name not in value:
            raise InvalidKey(f"field {'.'.join(path)!r} is not set, of which the partition is made; it may be null")
        value = value[name]


def _sizes_of_all(values: Iterable[object]) -> int:
    return sum(map(_value_size, values))


def _value_check(field: pa.Field, *, needed: bool, null_elements: bool) -> _ValueCheck:
    """Return the function that checks a value of a column and returns it as it is stored; most values pass at once."""
    name, data_type = field.name, field.type
    convert = value_converter(name, data_type, required=needed, null_elements=null_elements)

    def slow(value: object) -> object:
        try:
            return convert(value)
        except SchemaMismatch as error:
            if value is None:
                raise
            raise SchemaMismatch(f"Failed to cast value for column {name!r}: {error}") from None

    if pt.is_string(data_type) or pt.is_large_string(data_type):
        return lambda value: value if type(value) is str and value.isascii() else slow(value)
    if pt.is_integer(data_type):
        low, high = _integer_bounds(data_type)
        return lambda value: value if type(value) is int and low <= value <= high else slow(value)
    exact = _exact_type(data_type)
    if exact is not None:
        return lambda value: value if type(value) is exact else slow(value)
    return slow


def _exact_type(data_type: pa.DataType) -> type | None:
    """Return the type whose every value fits."""
    if pt.is_boolean(data_type):
        return bool
    if pt.is_float64(data_type):
        return float
    if pt.is_date32(data_type):
        return date
    return bytes if pt.is_binary(data_type) or pt.is_large_binary(data_type) else None


def _integer_bounds(data_type: pa.DataType) -> tuple[int, int]:
    if pt.is_unsigned_integer(data_type):
        return 0, 2**data_type.bit_width - 1
    return -(2 ** (data_type.bit_width - 1)), 2 ** (data_type.bit_width - 1) - 1


def _refuse_paths(spec: KeySpec, rows: pa.Table, deletes: Mask) -> None:
    """Refuse partition paths that cannot be used, and those of rows to be stored that Spark could not read."""
    build_partition_paths(spec, rows)
    build_new_partition_paths(spec, rows.filter(pa.array(~deletes)) if deletes.any() else rows)


Numbers: TypeAlias = npt.NDArray[np.int8]

_PARTIAL_OPERATORS: Final = DELETES | UPDATES


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
        names_of = {str(operator.value): operator.name for operator in RowOperator}
    else:
        names_of = {}
    if not (pt.is_string(column.type) or pt.is_large_string(column.type)):
        raise InvalidInputError(f"the operator column holds {column.type}: names of operators are expected")
    coded = column.combine_chunks().dictionary_encode()
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    names = [names_of.get(name, name) for name in coded.dictionary.to_pylist()]  # distinct names, not rows
    values = np.array([*(parse_operator(name).value for name in names), default.value], np.int8)
    row_numbers: Numbers = values[coded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)]
    return row_numbers


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
        operator_values, row_operators = np.full(rows.num_rows, operators.value, np.int8), {operators}
    else:
        operator_values, row_operators = operators, {RowOperator(int(number)) for number in np.unique(operators)}
    refused = sorted(operator.name for operator in row_operators - set(allowed))
    if refused:
        raise InvalidInputError(f"the stream does not take {', '.join(refused)}")
    needed = dict.fromkeys([*checker.inner_keys, *checker.keys])
    if lacking := [name for name in needed if field_at(rows.schema, name) is None]:
        raise SchemaMismatch(f"the data lack {', '.join(map(repr, lacking))}, of which a key or a path is made")
    column_sets = rows.column(COLUMNS) if COLUMNS in rows.column_names else None
    rows = rows if column_sets is None else rows.drop_columns([COLUMNS])
    allow = checker.null_elements
    table = conform(
        rows, _needed_columns(checker, partial=bool(row_operators & _PARTIAL_OPERATORS)), allow_null_list_elements=allow
    )
    is_complete = np.isin(operator_values, [operator.value for operator in WHOLE_ROWS])
    if row_operators & _PARTIAL_OPERATORS and is_complete.any():
        conform(
            rows.filter(pa.array(is_complete)), _needed_columns(checker, partial=False), allow_null_list_elements=allow
        )
    checker.refuse_odd_table(table, np.isin(operator_values, [each.value for each in DELETES]))
    table = table.cast(all_nullable(table.schema)).append_column(OPERATOR, pa.array(operator_values))
    if not row_operators & UPDATES:
        return table
    present = set(rows.column_names)
    encoded_columns = encode_columns([name for name in checker.names if name in present])
    is_update = pa.array(np.isin(operator_values, [operator.value for operator in UPDATES]))
    update_sets = pc.if_else(is_update, pa.scalar(encoded_columns), pa.scalar(None, pa.string()))
    return table.append_column(COLUMNS, update_sets if column_sets is None else pc.coalesce(column_sets, update_sets))


def has_strict(rows: pa.Table) -> bool:
    """Return whether some rows have an operator that needs the stored row of its key."""
    return bool(np.isin(rows.column(OPERATOR).to_numpy(), [operator.value for operator in STRICT]).any())


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


def _needed_columns(checker: RowChecker, *, partial: bool) -> pa.Schema:
    """Return the columns that rows need: those of the key are never null."""
    keys = checker.record_keys
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


class FollowedColumns:
    """The columns that rows of a stream have now.

    Args:
        table_at: the table, at one moment.
        options: of the stream.
        keyed: the table has record keys of its own.
    """

    def __init__(self, table_at: TableAt, options: StreamOptions, *, keyed: bool) -> None:
        self._client, self._options, self._keyed = table_at.client, options, keyed
        self.checker = self._checker(table_at.state)

    def _checker(self, state: TableState) -> RowChecker:
        table_at = self._client.at(state)
        spec = stored_key_spec(table_at)
        keys = key_columns_of(spec) if self._keyed else ()
        since = columns_since(table_at)
        settings = resolve_settings(self._options.properties, self._client.options, state.config.properties)
        return RowChecker(
            table_at.schema(),
            keys,
            strict=self._options.strict_columns,
            spec=spec,
            since=since,
            null_elements=settings.text("lakefmt.write.null_list_elements") == "allow",
        )

    def refresh(self, state: TableState | None = None) -> bool:
        """Look at the table's columns again; return whether they changed.

        Args:
            state: the table, where it was just loaded.
        """
        state = self._client.load() if state is None else state
        # A column may have gone, and another one of its name have come.
        is_same = columns_since(self._client.at(state)) == self.checker.since
        if is_same and self._client.at(state).schema().equals(self.checker.schema):
            return False
        self.checker = self._checker(state)
        return True

    def see(self, state: TableState) -> None:
        """Follow the columns of the table as a segment is made, unless the stream is not to."""
        if self._options.auto_refresh:
            self.refresh(state)
