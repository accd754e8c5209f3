"""Schema evolution: the table schema after a write (docs/format.md, Table schema). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.schema.cast import conform, is_castable
from lakefmt._core.schema.types import (
    is_list_like,
    list_type,
    map_type,
    normalise_field,
    normalise_schema,
    spark_type,
    storage_type,
    struct_fields,
)
from lakefmt.errors import SchemaMismatch

__all__ = ["Missing", "check_names", "evolve", "narrowed"]

_DIGITS: Final = {"int32": 10, "int64": 19}
_ADVICE_FOR_MISSING: Final = (
    "add them, write partial rows with upsert(…, partial=True), which keeps what is stored, or store nulls with the option "
    "hoodie.write.set.null.for.missing.columns=true"
)
Missing = Literal["refuse", "null", "drop"]


def evolve(
    table_schema: pa.Schema,
    incoming: pa.Schema,
    mode: Literal["add", "strict"] = "add",
    partial: bool = False,
    missing: Missing = "refuse",
) -> pa.Schema:
    """Return the table schema after a write of data with the schema `incoming`, both without meta columns.

    ``add``: new columns and nested fields are appended as nullable; int → long → double, float →
    double and decimals of one scale are widened. Integers and floats become double, which can store
    both. Narrower data are cast by :func:`~lakefmt._core.schema.conform`. ``strict``: nothing changes.
    `partial` data may lack columns.

    Args:
        table_schema: the table's.
        incoming: the data's.
        mode: what new and wider columns do.
        partial: the data leave stored values of columns that they lack.
        missing: what becomes of columns and nested fields that other data lack: ``"null"``: they are null in the data's
            rows; ``"drop"``: the table loses the columns.

    Raises:
        SchemaMismatch: a column is missing, cannot be stored, or would change the schema in strict
            mode.

    Example:
        >>> evolve(pa.schema([("id", pa.int32())]), pa.schema([("id", pa.int64()), ("new", pa.string())]))
        id: int64
        new: string
    """
    if mode not in ("add", "strict"):
        raise SchemaMismatch(f"schema_change {mode!r} is neither 'add' nor 'strict'")
    if incoming.equals(table_schema):
        return table_schema  # 5 % of the time of a small commit
    normalise_schema(incoming)
    brought, known = set(incoming.names), set(table_schema.names)
    lacking = [name for name in table_schema.names if name not in brought]
    if lacking and not partial and missing == "refuse":
        spelt = {name.casefold(): name for name in incoming.names}
        otherwise = [f"{spelt[name.casefold()]} as {name}" for name in lacking if name.casefold() in spelt]
        hint = f"rename {', '.join(otherwise)}" if otherwise else _ADVICE_FOR_MISSING
        raise SchemaMismatch(f"the data lack the table's columns {', '.join(lacking)}: {hint}")
    remaining_fields = [field for field in table_schema if partial or missing != "drop" or field.name in brought]
    fields = [
        _merged(field, incoming.field(field.name), field.name, missing)
        if field.name in brought
        else field.with_nullable(field.nullable or not partial)
        for field in remaining_fields
    ]
    fields += [_new(field, field.name) for field in incoming if field.name not in known]
    if len(fields) > len(table_schema):
        _check_alike(fields, table_schema.names, "")
    evolved = pa.schema(fields, metadata=table_schema.metadata)
    if mode == "strict" and not evolved.equals(table_schema):
        changed = [f.name for f in evolved if f.name not in known or f != table_schema.field(f.name)]
        still = set(evolved.names)
        changed += [name for name in table_schema.names if name not in still]
        raise SchemaMismatch(f"the data would change the table's columns {', '.join(changed)}, and the mode is strict")
    return evolved


def narrowed(rows: pa.Table, table_schema: pa.Schema) -> pa.Schema:
    """Return the schema of rows with the table's type for each column that it would widen, and whose values it holds.

    A null among whole numbers makes floating point numbers of them in pandas.

    Example:
        >>> rows = pa.table({"n": [1.0, None], "f": [1.5, None]})
        >>> narrowed(rows, pa.schema([("n", pa.int64()), ("f", pa.int64())])).types
        [DataType(int64), DataType(double)]
    """
    fields = []
    for number, field in enumerate(rows.schema):
        index = table_schema.get_field_index(field.name)  # none for a name that is there twice
        stored = table_schema.field(index) if index >= 0 else None
        if stored is not None and _would_widen(stored, field) and _fits(rows.select([number]), stored):
            fields.append(field.with_type(stored.type))
        else:
            fields.append(field)
    return pa.schema(fields, metadata=rows.schema.metadata)


def _would_widen(stored: pa.Field, field: pa.Field) -> bool:
    if stored.type == field.type:
        return False
    try:
        return bool(evolve(pa.schema([stored]), pa.schema([field])).field(0).type != stored.type)
    except SchemaMismatch:
        return False


def _fits(rows: pa.Table, stored: pa.Field) -> bool:
    try:
        conform(rows, pa.schema([stored.with_nullable(True)]), allow_null_list_elements=True)
    except SchemaMismatch:
        return False
    return True


def check_names(fields: Iterable[pa.Field], prefix: str = "") -> None:
    """Raise if two columns, or two fields of a struct, have names that differ only in case.

    Spark and Hive ignore case by default and cannot read such a table.

    Raises:
        SchemaMismatch: two names differ only in case.

    Example:
        >>> check_names(pa.schema([("id", pa.int32()), ("v", pa.int32())]))
    """
    collected = list(fields)
    _check_alike(collected, [], prefix)
    for field in collected:
        data_type = field.type
        if pt.is_struct(data_type):
            check_names(struct_fields(data_type), f"{prefix}{field.name}.")
        elif is_list_like(data_type):
            check_names([data_type.value_field], f"{prefix}{field.name}.")
        elif pt.is_map(data_type):
            check_names([data_type.item_field], f"{prefix}{field.name}.")


def _check_alike(fields: Sequence[pa.Field], stored: Sequence[str], prefix: str) -> None:
    """Compare the names of new fields with all others; stored names are not compared with each other."""
    by_lower_name = {name.lower(): name for name in stored}
    for field in fields:
        other = by_lower_name.setdefault(field.name.lower(), field.name)
        if other != field.name and field.name not in stored:
            raise SchemaMismatch(
                f"column {prefix + field.name!r} differs from {prefix + other!r} by case only, and Spark takes both for one: "
                "spell it as the table does, or give it another name"
            )


def _new(field: pa.Field, path: str) -> pa.Field:
    # Older rows have no value for it. Its type is one that Spark can upsert, as in new tables.
    check_names([field], path.removesuffix(field.name))
    stored = normalise_field(field, path)
    return stored.with_type(spark_type(stored.type)).with_nullable(True)


def _merged(have: pa.Field, data: pa.Field, path: str, missing: Missing) -> pa.Field:
    return have.with_type(_merged_type(have.type, storage_type(data.type), path, missing))


def _merged_type(have: pa.DataType, data: pa.DataType, path: str, missing: Missing) -> pa.DataType:
    if have == data or pt.is_null(data):
        return have
    if pt.is_struct(have) and pt.is_struct(data):
        return _merged_struct(have, data, path, missing)
    if pt.is_list(have) and is_list_like(data):
        return list_type(_merged(have.value_field, data.value_field, f"{path}.element", missing))
    if pt.is_map(have) and pt.is_map(data):
        return map_type(_merged(have.item_field, data.item_field, f"{path}.value", missing))
    merged = None if pt.is_nested(have) or pt.is_nested(data) else _merged_plain(have, data, path)
    if merged is None:
        raise SchemaMismatch(f"column {path!r} is {have} in the table, and {data} cannot be stored in it")
    return merged


def _merged_struct(have: pa.DataType, data: pa.DataType, path: str, missing: Missing) -> pa.DataType:
    stored_fields = {field.name: field for field in struct_fields(have)}
    data_fields = {field.name: field for field in struct_fields(data)}
    lacking = [name for name in stored_fields if name not in data_fields]
    if lacking and missing == "refuse":
        raise SchemaMismatch(f"the data lack the fields {', '.join(lacking)} of the table's column {path!r}")
    fields = [
        _merged(field, data_fields[name], f"{path}.{name}", missing)
        if name in data_fields
        else field.with_nullable(True)
        for name, field in stored_fields.items()
        if missing != "drop" or name in data_fields
    ]
    fields += [_new(field, f"{path}.{name}") for name, field in data_fields.items() if name not in stored_fields]
    if len(fields) > len(stored_fields):
        _check_alike(fields, list(stored_fields), f"{path}.")
    return pa.struct(fields)


def _merged_plain(have: pa.DataType, data: pa.DataType, path: str) -> pa.DataType | None:
    data = normalise_field(pa.field(path, data), path).type
    if have == data:
        return have
    if pt.is_decimal(have):
        return _merged_decimal(have, data)
    if _is_integer_or_float(have) and _is_integer_or_float(data):
        return _wider(have, data)
    # Times keep the table's unit and zone: another unit would change the meaning of stored numbers.
    return have if is_castable(data, have) and not _is_integer_or_float(have) and not pt.is_decimal(data) else None


def _is_integer_or_float(data_type: pa.DataType) -> bool:
    return bool(pt.is_integer(data_type) or pt.is_floating(data_type))


def _wider(have: pa.DataType, data: pa.DataType) -> pa.DataType:
    if pt.is_integer(have) and pt.is_integer(data):
        return pa.int64() if pt.is_int64(data) else have
    if pt.is_integer(data):
        return have
    return have if pt.is_float32(have) and pt.is_float32(data) else pa.float64()


def _merged_decimal(have: pa.DataType, data: pa.DataType) -> pa.DataType | None:
    integer_digits = have.precision - have.scale
    if pt.is_integer(data):
        return have if _DIGITS[str(data)] <= integer_digits else None
    if not pt.is_decimal(data):
        return None
    if data.scale <= have.scale and data.precision - data.scale <= integer_digits:
        return have
    return pa.decimal128(data.precision, have.scale) if data.scale == have.scale else None
