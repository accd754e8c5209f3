"""Alter a schema, or evolve it by a write: add, drop, rename, move columns, change types (docs/schema.md). Pure.

Names have dots for nested fields, ``element`` for the elements of a list and ``value`` for the values of a map, as in
Spark's ``ALTER TABLE``. What would lose values, or change what keys and partition paths are made of, is refused.

Which type may become which is Hudi's matrix (SchemaChangeUtils). Values are converted as Hudi's readers convert them: a
double is the one of the float's shortest text, texts of numbers are Java's, and a text that is no number or date becomes
null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.schema.avro import AVRO_DEFAULT, AVRO_DOC
from lakefmt._core.schema.cast import conform, is_castable
from lakefmt._core.schema.history import Column, InternalSchema, decimal_of, kind_of
from lakefmt._core.schema.java_text import java_text
from lakefmt._core.schema.types import (
    check_avro_names,
    is_list_like,
    list_type,
    map_type,
    normalise_field,
    normalise_schema,
    spark_type,
    storage_type,
    struct_fields,
)
from lakefmt._core.values import META_COLUMNS
from lakefmt.errors import InvalidInputError, SchemaMismatch

__all__ = [
    "Alteration",
    "Missing",
    "Position",
    "add_column",
    "check_names",
    "check_type_change",
    "convert_stored",
    "drop_column",
    "evolve",
    "is_followed_by_name",
    "narrowed",
    "rename_column",
    "update_column",
]

#: Columns and nested fields that stay as they are, each with what the table makes of it.
Bound = Mapping[str, str]

_NUMERIC_KINDS: Final = ("int", "long", "float", "double")
#: Hudi allows these, and they keep every value, or round it as Hudi does.
_ALLOWED_CHANGES: Final = frozenset(
    {
        *(("int", wider) for wider in ("long", "float", "double", "string")),
        *(("long", wider) for wider in ("float", "double", "string")),
        *(("float", wider) for wider in ("double", "string")),
        ("double", "string"),
        ("date", "string"),
    }
)
_INTEGER_DIGITS: Final = {"int": 10, "long": 19}
#: Changes after which readers that go by names read the same values.
_FOLLOWED_BY_NAME: Final = frozenset({("int", "long"), ("int", "double")})
_DATE_TEXT: Final = r"^\d{4}-\d{2}-\d{2}$"
_NUMBER_TEXT: Final = r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$"


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
    if old == new or (old, new) in _ALLOWED_CHANGES:
        return
    before, after = decimal_of(old), decimal_of(new)
    if before is not None and (after is None and new == "string"):
        return
    if after is not None:
        integer_digits = after[0] - after[1]
        if before is not None and after[1] >= before[1] and integer_digits >= before[0] - before[1]:
            return
        if old in _INTEGER_DIGITS and integer_digits >= _INTEGER_DIGITS[old]:
            return
        if before is not None or old in (*_NUMERIC_KINDS, "string"):
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
    return old == new or (old, new) in _FOLLOWED_BY_NAME


def convert_stored(array: pa.Array, hudi_type: str) -> pa.Array:
    """Return stored values as the type that their column has now, as Hudi's readers convert them.

    Args:
        array: values of a file, not nested.
        hudi_type: the type in Hudi's words.

    Raises:
        pa.ArrowInvalid: a value does not fit.

    Example:
        >>> convert_stored(pa.array([1.1], pa.float32()), "double").to_pylist()
        [1.1]
        >>> convert_stored(pa.array(["2026-01-02", "?"]), "date").to_pylist()
        [datetime.date(2026, 1, 2), None]
    """
    have = array.type
    decimal = decimal_of(hudi_type)
    if decimal is not None:
        return _to_decimal(array, pa.decimal128(*decimal))
    if hudi_type == "double" and pt.is_float32(have):
        return array.cast(pa.string()).cast(pa.float64())
    if hudi_type in ("double", "float"):
        return array.cast(pa.float64() if hudi_type == "double" else pa.float32(), safe=False)
    if hudi_type == "long" and pt.is_integer(have):
        return array.cast(pa.int64())
    if hudi_type == "string" and not pt.is_string(have):
        return array.cast(pa.string()) if pt.is_binary(have) else java_text(array, "")
    if hudi_type == "date" and pt.is_string(have):
        return _matching_or_null(array, _DATE_TEXT).cast(pa.date32())
    return array


def _to_decimal(array: pa.Array, decimal_type: pa.DataType) -> pa.Array:
    have = array.type
    if pt.is_integer(have):
        return array.cast(pa.decimal128(38, 0)).cast(pa.decimal256(76, decimal_type.scale)).cast(decimal_type)
    if pt.is_floating(have):
        array = array.cast(pa.string())
    if pt.is_string(array.type):
        numbers = _matching_or_null(array, _NUMBER_TEXT).cast(pa.decimal256(76, 38))
        rounded = pc.round(numbers, ndigits=decimal_type.scale, round_mode="half_towards_infinity")
        return rounded.cast(pa.decimal256(76, decimal_type.scale)).cast(decimal_type)
    return array.cast(pa.decimal256(76, decimal_type.scale)).cast(decimal_type) if pt.is_decimal(have) else array


def _matching_or_null(texts: pa.Array, pattern: str) -> pa.Array:
    """Return the texts that match a pattern; others are null."""
    return pc.if_else(pc.match_substring_regex(texts, pattern), texts, None)


_Fields = list[pa.Field]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a column goes among those beside it: behind one, or before one; neither: at the end, or where it is."""

    after: str | None = None
    before: str | None = None

    @property
    def is_given(self) -> bool:
        """Whether the caller gave a position."""
        return self.after is not None or self.before is not None


_UNMOVED: Final = Position()


@dataclass(frozen=True, slots=True)
class Alteration:
    """One change of a table's columns.

    Attributes:
        change: makes the new columns of the table's, both without meta columns.
        renamed: the old full name and the new last name, of a column that keeps its id under another name.
    """

    change: Callable[[pa.Schema], pa.Schema]
    renamed: tuple[str, str] | None = None

    def keeping_ids(self, schema: InternalSchema) -> InternalSchema:
        """Return the internal schema with the new name of a renamed column.

        Example:
            >>> known = InternalSchema(0, (Column(0, "a", "int"),), 0)
            >>> Alteration(lambda schema: schema, ("a", "b")).keeping_ids(known).columns[0].name
            'b'
        """
        if self.renamed is None:
            return schema
        path, name = self.renamed
        return replace(schema, columns=_renamed_columns(schema.columns, path.split("."), name))


def _renamed_columns(columns: Sequence[Column], path: Sequence[str], name: str) -> tuple[Column, ...]:
    first, *rest = path
    return tuple(
        column
        if column.name != first
        else replace(column, fields=_renamed_columns(column.fields, rest, name))
        if rest
        else replace(column, name=name)
        for column in columns
    )


def add_column(
    schema: pa.Schema, name: str, data_type: pa.DataType, position: Position, comment: str | None = None
) -> pa.Schema:
    """Return the columns with a new one, which is null in all stored rows.

    Raises:
        SchemaMismatch: the name is taken or not allowed, or the type cannot be stored.
        InvalidInputError: the place does not exist.

    Example:
        >>> add_column(pa.schema([("a", pa.int32())]), "b", pa.string(), Position(before="a")).names
        ['b', 'a']
    """
    path = _column_path(name)
    _check_new_name(path[-1], name)
    new_field = normalise_field(pa.field(path[-1], data_type), name)
    check_names([new_field], name.removesuffix(path[-1]))
    notes = None if comment is None else {AVRO_DOC: comment.encode()}
    new_field = pa.field(new_field.name, spark_type(new_field.type), nullable=True, metadata=notes)

    def added(fields: _Fields) -> _Fields:
        _check_name_is_free(fields, path[-1], name)
        return _moved_field([*fields, new_field], new_field.name, position, name)

    return _edited_schema(schema, path, added)


def drop_column(schema: pa.Schema, name: str, bound: Bound) -> pa.Schema:
    """Return the columns without one; no later column gets its values.

    Raises:
        InvalidInputError: there is no such column.
        SchemaMismatch: it is the last one, or the table is built on it.

    Example:
        >>> drop_column(pa.schema([("a", pa.int32()), ("b", pa.int32())]), "b", {}).names
        ['a']
    """
    path = _column_path(name)
    _check_not_bound(name, bound, "dropped")

    def dropped(fields: _Fields) -> _Fields:
        _field_named(fields, path[-1], name)
        rest = [field for field in fields if field.name != path[-1]]
        if not rest:
            raise SchemaMismatch(
                f"column {name!r} is the last one of {'the table' if len(path) == 1 else 'its struct'}"
            )
        return rest

    return _edited_schema(schema, path, dropped)


def rename_column(schema: pa.Schema, old: str, new: str, bound: Bound) -> pa.Schema:
    """Return the columns with another name for one, which keeps its values.

    Args:
        schema: the table's columns.
        old: the full name.
        new: the new name: of a nested field its last part, or the full name.
        bound: columns that stay as they are.

    Raises:
        InvalidInputError: there is no such column.
        SchemaMismatch: the new name is taken or not allowed, or the table is built on the column.

    Example:
        >>> rename_column(pa.schema([("a", pa.int32())]), "a", "b", {}).names
        ['b']
    """
    path, last = _column_path(old), last_name(old, new)
    _check_not_bound(old, bound, "renamed")
    _check_new_name(last, new)

    def renamed(fields: _Fields) -> _Fields:
        named_field = _field_named(fields, path[-1], old)
        remaining = [field for field in fields if field is not named_field]
        _check_name_is_free(remaining, last, new)
        return [field.with_name(last) if field is named_field else field for field in fields]

    return _edited_schema(schema, path, renamed)


def last_name(old: str, new: str) -> str:
    """Return the last part of a column's new name.

    Raises:
        SchemaMismatch: the new name is one in another struct.

    Example:
        >>> last_name("s.a", "b"), last_name("s.a", "s.b")
        ('b', 'b')
    """
    inside, _, last = new.rpartition(".")
    if inside and inside != old.rpartition(".")[0]:
        raise SchemaMismatch(f"column {old!r} cannot become {new!r}: a field stays in its struct")
    return last


def update_column(
    schema: pa.Schema,
    name: str,
    bound: Bound,
    *,
    kind: pa.DataType | None = None,
    nullable: bool | None = None,
    comment: str | None = None,
    position: Position = _UNMOVED,
) -> pa.Schema:
    """Return the columns with another type, nullability, comment or place of one; None leaves it as it is.

    Raises:
        InvalidInputError: there is no such column or place.
        SchemaMismatch: Hudi does not allow the type, values could be lost, or the table is built on the column.

    Example:
        >>> update_column(pa.schema([("a", pa.int32())]), "a", {}, kind=pa.int64()).field("a").type
        DataType(int64)
    """
    path = _column_path(name)
    if kind is not None or nullable is not None:
        _check_not_bound(name, bound, "changed")

    def updated(fields: _Fields) -> _Fields:
        named_field = _field_named(fields, path[-1], name)
        changed = named_field if kind is None else _with_type(named_field, kind, name)
        if nullable is not None:
            changed = changed.with_nullable(_checked_nullable(named_field, nullable, name))
        if comment is not None:
            changed = changed.with_metadata({**(changed.metadata or {}), AVRO_DOC: comment.encode()})
        result = [changed if field is named_field else field for field in fields]
        return _moved_field(result, named_field.name, position, name) if position.is_given else result

    return _edited_schema(schema, path, updated, in_struct=position.is_given)


def _with_type(field: pa.Field, data_type: pa.DataType, name: str) -> pa.Field:
    changed_field = normalise_field(pa.field(field.name, data_type), name)
    changed_field = changed_field.with_type(spark_type(changed_field.type))
    if changed_field.type == field.type:
        return field
    if pt.is_nested(field.type) or pt.is_nested(changed_field.type):
        raise SchemaMismatch(f"column {name!r} is {field.type}: change the fields in it, not the whole")
    check_type_change(name, kind_of(field), kind_of(changed_field))
    notes = {key: note for key, note in (field.metadata or {}).items() if key == AVRO_DOC}
    return pa.field(
        field.name, changed_field.type, field.nullable or AVRO_DEFAULT in (field.metadata or {}), notes or None
    )


def _checked_nullable(field: pa.Field, nullable: bool, name: str) -> bool:
    if field.nullable and not nullable:
        raise SchemaMismatch(
            f"column {name!r} may hold nulls, and stored rows may have them: it cannot become required"
        )
    return nullable


# -------------------------------------------------------------------------------------------------------------- checks


def _column_path(name: str) -> list[str]:
    path = name.split(".")
    if not all(path):
        raise InvalidInputError(f"no column {name!r}: an empty name")
    if path[0] in META_COLUMNS:
        raise SchemaMismatch(f"column {name!r} is one of Hudi's own: it stays as it is")
    return path


def _check_new_name(last: str, name: str) -> None:
    check_avro_names([last], name.rpartition(".")[0])
    if last.startswith("_hoodie_"):
        raise SchemaMismatch(f"column name {name!r} begins with _hoodie_, as Hudi's own columns do: take another one")


def _check_name_is_free(fields: Sequence[pa.Field], last: str, name: str) -> None:
    conflict = next((field.name for field in fields if field.name.lower() == last.lower()), None)
    if conflict is not None:
        raise SchemaMismatch(
            f"there is a column {conflict!r} already, and Spark takes {name!r} for the same: take another name"
        )


def _check_not_bound(name: str, bound: Bound, action: str) -> None:
    for column, what in bound.items():
        if column == name or column.startswith(f"{name}.") or name.startswith(f"{column}."):
            raise SchemaMismatch(f"column {name!r} cannot be {action}: it is {what}")


def _field_named(fields: Sequence[pa.Field], last: str, name: str) -> pa.Field:
    named_field = next((field for field in fields if field.name == last), None)
    if named_field is None:
        raise InvalidInputError(f"no column {name!r}; there are {', '.join(repr(field.name) for field in fields)}")
    return named_field


def _moved_field(fields: _Fields, last: str, position: Position, name: str) -> _Fields:
    """Return the fields with one of them moved to a place."""
    if not position.is_given:
        return fields
    if position.after is not None and position.before is not None:
        raise InvalidInputError(f"column {name!r}: give after= or before=, not both")
    neighbour = position.after if position.after is not None else position.before
    beside = str(neighbour)
    inside = name.rpartition(".")[0]
    if inside and beside.startswith(f"{inside}."):
        beside = beside[len(inside) + 1 :]
    moved = next(field for field in fields if field.name == last)
    rest = [field for field in fields if field is not moved]
    names = [field.name for field in rest]
    if beside not in names:
        raise InvalidInputError(f"column {name!r} cannot be placed beside {neighbour!r}: there are {names}")
    index = names.index(beside) + (position.after is not None)
    return [*rest[:index], moved, *rest[index:]]


# -------------------------------------------------------------------------------------------------------------- editing


def _edited_schema(
    schema: pa.Schema, path: Sequence[str], edit: Callable[[_Fields], _Fields], *, in_struct: bool | None = None
) -> pa.Schema:
    """Return a schema whose struct around the last part of a path was edited.

    Args:
        schema: the columns.
        path: the parts of a full name.
        edit: makes the new fields of the struct, or the new element or value.
        in_struct: False where an element of a list or a value of a map may be edited, too; None: as for True.
    """
    fields = _edited_fields(list(schema), path, edit, list(path), in_struct is not False)
    return pa.schema(fields, metadata=schema.metadata)


def _edited_fields(
    fields: _Fields, path: Sequence[str], edit: Callable[[_Fields], _Fields], full_path: Sequence[str], in_struct: bool
) -> _Fields:
    if len(path) == 1:
        return edit(fields)
    name = ".".join(full_path)
    named_field = _field_named(fields, path[0], ".".join(full_path[: len(full_path) - len(path) + 1]))
    data_type = named_field.type
    if pt.is_struct(data_type):
        new_type = pa.struct(_edited_fields(struct_fields(data_type), path[1:], edit, full_path, in_struct))
    elif pt.is_list(data_type) or pt.is_map(data_type):
        part = (
            data_type.value_field.with_name("element")
            if pt.is_list(data_type)
            else data_type.item_field.with_name("value")
        )
        if path[1] != part.name or (in_struct and len(path) == 2):
            raise InvalidInputError(
                f"no column {name!r}: {named_field.name!r} is {data_type}, its part is {part.name!r}"
            )
        (part,) = _edited_fields([part], path[1:], edit, full_path, in_struct)
        new_type = list_type(part) if pt.is_list(data_type) else map_type(part)
    else:
        raise InvalidInputError(f"no column {name!r}: {named_field.name!r} is {data_type}, which has no fields")
    return [field.with_type(new_type) if field is named_field else field for field in fields]


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
