"""The few SQL statements that a cursor runs, parsed to values, and the SQL types of their columns (pure).

sqlglot parses the text; everything that is not listed here is refused, so that no statement does less than it says.

A table stores fewer types than SQL names: ``INT8`` is stored as a 32-bit integer, ``VARCHAR(10)`` as text. The property
:data:`SQL_TYPES` of a table keeps the names, as JSON by column; a column without an entry has the SQL type that its stored
type suggests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.arguments import shown, text_argument
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import CorruptFile, UnsupportedFeature
from lakefmt.realtime.errors import NotSupportedError, ProgrammingError

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect

__all__ = [
    "MOST_CHARACTERS",
    "SQL_TYPES",
    "CreateTable",
    "DropTable",
    "Select",
    "SqlField",
    "SqlKind",
    "SqlType",
    "Statement",
    "TableName",
    "arrow_type",
    "decode_types",
    "encode_types",
    "parse_statement",
]

#: The property of a table that keeps the SQL types of its columns.
SQL_TYPES: Final = "lakefmt.sql.types"
#: The longest CHAR or VARCHAR, and the largest VECTOR.
MOST_CHARACTERS: Final = 1 << 30
_DEEPEST_SQL_TYPE: Final = 32


class SqlKind(StrEnum):
    """The name of an SQL type, without its parameters."""

    BOOLEAN = "BOOLEAN"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    STRING = "STRING"
    JSON = "JSON"
    BINARY = "BINARY"
    DATE = "DATE"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    TIMESTAMP_NTZ = "TIMESTAMP_NTZ"
    INTERVAL_DAY_TIME = "INTERVAL_DAY_TIME"
    INTERVAL_YEAR_MONTH = "INTERVAL_YEAR_MONTH"
    ARRAY = "ARRAY"
    MAP = "MAP"
    STRUCT = "STRUCT"
    VECTOR = "VECTOR"


@dataclass(frozen=True, slots=True)
class SqlType:
    """The SQL type of a column, a list element or a struct field.

    Attributes:
        kind: its name.
        length: the most characters of CHAR and VARCHAR, the dimension of VECTOR; 0 elsewhere.
        precision: digits of DECIMAL; 0 elsewhere.
        scale: digits of DECIMAL after the decimal point.
        inner: the element of ARRAY and VECTOR; key and value of MAP; the fields of STRUCT.
    """

    kind: SqlKind
    length: int = 0
    precision: int = 0
    scale: int = 0
    inner: tuple[SqlField, ...] = ()

    def __str__(self) -> str:
        if self.kind is SqlKind.DECIMAL:
            return f"DECIMAL({self.precision},{self.scale})"
        if self.kind in (SqlKind.CHAR, SqlKind.VARCHAR):
            return f"{self.kind.value}({self.length})"
        if self.kind is SqlKind.VECTOR:
            return f"VECTOR({self.inner[0].type}, {self.length})"
        if self.kind is SqlKind.STRUCT:
            return f"STRUCT<{', '.join(f'{field.name}: {field.type}' for field in self.inner)}>"
        if self.inner:
            return f"{self.kind.value}<{', '.join(str(field.type) for field in self.inner)}>"
        return str(self.kind.value)


@dataclass(frozen=True, slots=True)
class SqlField:
    """A column, an element or a field: its name, SQL type and whether it may be null."""

    name: str
    type: SqlType
    nullable: bool = True


#: Kinds without parameters and the Arrow types that lakefmt stores for them.
_PLAIN_ARROW_TYPES: Final = {
    SqlKind.BOOLEAN: pa.bool_(),
    SqlKind.INT8: pa.int32(),
    SqlKind.INT16: pa.int32(),
    SqlKind.INT32: pa.int32(),
    SqlKind.INT64: pa.int64(),
    SqlKind.FLOAT: pa.float32(),
    SqlKind.DOUBLE: pa.float64(),
    SqlKind.CHAR: pa.string(),
    SqlKind.VARCHAR: pa.string(),
    SqlKind.STRING: pa.string(),
    SqlKind.JSON: pa.string(),
    SqlKind.BINARY: pa.binary(),
    SqlKind.DATE: pa.date32(),
    SqlKind.TIMESTAMP_LTZ: pa.timestamp("us", "UTC"),
    # The wall clock is stored as if it were UTC: hudi-rs does not read Avro's local timestamps.
    SqlKind.TIMESTAMP_NTZ: pa.timestamp("us", "UTC"),
    SqlKind.INTERVAL_DAY_TIME: pa.int64(),
}


def arrow_type(sql_type: SqlType, path: str = "") -> pa.DataType:
    """Return the Arrow type that a table stores for an SQL type; `path` is the column in errors.

    Raises:
        UnsupportedFeature: no column can have that type.

    Example:
        >>> arrow_type(SqlType(SqlKind.DECIMAL, precision=10, scale=2))
        Decimal128Type(decimal128(10, 2))
        >>> arrow_type(SqlType(SqlKind.ARRAY, inner=(SqlField("element", SqlType(SqlKind.INT8)),)))
        ListType(list<element: int32>)
    """
    if sql_type.kind is SqlKind.INTERVAL_YEAR_MONTH:
        raise UnsupportedFeature(
            f"column {path!r} has type INTERVAL_YEAR_MONTH, which cannot be stored: store a number of months"
        )
    if sql_type.kind is SqlKind.DECIMAL:
        return pa.decimal128(sql_type.precision, sql_type.scale)
    if not sql_type.inner:
        return _PLAIN_ARROW_TYPES[sql_type.kind]
    fields = [
        pa.field(inner.name, arrow_type(inner.type, f"{path}.{inner.name}"), inner.nullable) for inner in sql_type.inner
    ]
    if sql_type.kind is SqlKind.STRUCT:
        return pa.struct(fields)
    if sql_type.kind is not SqlKind.MAP:
        return pa.list_(fields[0].with_name("element"))
    if pt.is_string(fields[0].type):
        return pa.map_(pa.string(), fields[1].with_name("value"))
    # Avro's maps have text keys only.
    return pa.list_(
        pa.field("element", pa.struct([fields[0].with_name("key").with_nullable(False), fields[1]]), nullable=False)
    )


def encode_types(fields: tuple[SqlField, ...]) -> str:
    """Return the value of :data:`SQL_TYPES` for a table with these columns.

    Example:
        >>> encode_types((SqlField("a", SqlType(SqlKind.VARCHAR, length=3)),))
        '{"a":{"kind":"VARCHAR","length":3}}'
    """
    return json.dumps({field.name: _document_of_type(field.type) for field in fields}, separators=(",", ":"))


def _document_of_type(sql_type: SqlType) -> dict[str, object]:
    document: dict[str, object] = {"kind": sql_type.kind.value}
    document |= {name: getattr(sql_type, name) for name in ("length", "precision", "scale") if getattr(sql_type, name)}
    if sql_type.inner:
        document["inner"] = [[field.name, _document_of_type(field.type), field.nullable] for field in sql_type.inner]
    return document


def decode_types(json_text: str | None, schema: pa.Schema) -> tuple[SqlField, ...]:
    """Return the SQL types of a table's columns: those remembered where they fit what is stored, else the stored type's.

    Args:
        json_text: the table's property :data:`SQL_TYPES`; None where it has none.
        schema: the columns of the table.

    Raises:
        CorruptFile: the text is not what :func:`encode_types` returns.
        UnsupportedFeature: a column has a stored type without an SQL type.

    Example:
        >>> schema = pa.schema([("a", pa.string()), ("b", pa.int64())])
        >>> [str(field.type) for field in decode_types('{"a":{"kind":"VARCHAR","length":3}}', schema)]
        ['VARCHAR(3)', 'INT64']
    """
    remembered = {} if json_text is None else _decode_remembered(json_text)
    return tuple(
        SqlField(field.name, _declared_or_stored(remembered.get(field.name), field), field.nullable) for field in schema
    )


def _decode_remembered(json_text: str) -> dict[str, SqlType]:
    try:
        document = json.loads(json_text)
        if not isinstance(document, Mapping):
            raise TypeError("not an object")
        return {name: _type_of_document(value, _DEEPEST_SQL_TYPE) for name, value in document.items()}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptFile(
            f"the table's property {SQL_TYPES} does not say the SQL types of its columns ({error}): mend or remove it"
        ) from None


def _type_of_document(document: object, depth: int) -> SqlType:
    if depth == 0:
        raise ValueError("nested too deeply")
    if not isinstance(document, Mapping):
        raise TypeError("a type is not an object")
    numbers = [document.get(name, 0) for name in ("length", "precision", "scale")]
    if not all(isinstance(number, int) and 0 <= number <= MOST_CHARACTERS for number in numbers):
        raise ValueError("a length, precision or scale is not a number in range")
    inner = tuple(
        SqlField(str(name), _type_of_document(each, depth - 1), bool(nullable))
        for name, each, nullable in document.get("inner", ())
    )
    length, precision, scale = numbers
    return SqlType(SqlKind(document["kind"]), length, precision, scale, inner)


def _declared_or_stored(declared: SqlType | None, field: pa.Field) -> SqlType:
    # A column that was dropped and added again, or widened by another engine, has the type that is stored now.
    if declared is not None and _is_stored_as(declared, field.type):
        return declared
    return _type_of_stored(field.type, field.name)


def _is_stored_as(declared: SqlType, stored: pa.DataType) -> bool:
    try:
        return bool(arrow_type(declared) == stored or _shape_of_type(arrow_type(declared)) == _shape_of_type(stored))
    except (UnsupportedFeature, KeyError, ValueError, IndexError, pa.ArrowInvalid):
        return False


def _shape_of_type(data_type: pa.DataType) -> str:
    """Return a type's text without names of elements and nullability, which engines write differently."""
    if pt.is_struct(data_type):
        return (
            "{"
            + ",".join(
                f"{data_type.field(i).name}:{_shape_of_type(data_type.field(i).type)}"
                for i in range(data_type.num_fields)
            )
            + "}"
        )
    if pt.is_map(data_type):
        return f"map<{_shape_of_type(data_type.item_type)}>"
    return f"[{_shape_of_type(data_type.value_type)}]" if pt.is_list(data_type) else str(data_type)


_PLAIN_SQL_KINDS: Final = {
    "bool": SqlKind.BOOLEAN,
    "int32": SqlKind.INT32,
    "int64": SqlKind.INT64,
    "float": SqlKind.FLOAT,
    "double": SqlKind.DOUBLE,
    "string": SqlKind.STRING,
    "binary": SqlKind.BINARY,
    "date32[day]": SqlKind.DATE,
}


def _type_of_stored(data_type: pa.DataType, path: str) -> SqlType:
    plain = _PLAIN_SQL_KINDS.get(str(data_type))
    if plain is not None:
        return SqlType(plain)
    if pt.is_fixed_size_binary(data_type) and not pt.is_decimal(data_type):
        return SqlType(SqlKind.BINARY)
    if pt.is_timestamp(data_type):
        return SqlType(SqlKind.TIMESTAMP_LTZ if data_type.tz else SqlKind.TIMESTAMP_NTZ)
    if pt.is_decimal(data_type):
        return SqlType(SqlKind.DECIMAL, precision=data_type.precision, scale=data_type.scale)
    if pt.is_list(data_type):
        return SqlType(SqlKind.ARRAY, inner=(_field_of_stored(data_type.value_field, f"{path}.element"),))
    if pt.is_map(data_type):
        return SqlType(
            SqlKind.MAP,
            inner=(
                _field_of_stored(data_type.key_field, path),
                _field_of_stored(data_type.item_field, f"{path}.value"),
            ),
        )
    if pt.is_struct(data_type):
        fields = (data_type.field(i) for i in range(data_type.num_fields))
        return SqlType(SqlKind.STRUCT, inner=tuple(_field_of_stored(field, f"{path}.{field.name}") for field in fields))
    raise UnsupportedFeature(
        f"column {path!r} has type {data_type}, for which rows have no SQL type: write it as Arrow data"
    )


def _field_of_stored(field: pa.Field, path: str) -> SqlField:
    return SqlField(field.name, _type_of_stored(field.type, path), field.nullable)


_LONGEST_STATEMENT: Final = 1_000_000
_SUPPORTED_STATEMENTS: Final = (
    "a cursor runs CREATE TABLE (columns, NOT NULL, PRIMARY KEY, PARTITIONED BY), DROP TABLE, and SELECT of columns or "
    "COUNT(*) from one table with WHERE"
)


@dataclass(frozen=True, slots=True)
class TableName:
    """A table in a statement; `schema` is None where the connection's is meant."""

    schema: str | None
    name: str


@dataclass(frozen=True, slots=True)
class CreateTable:
    """``CREATE TABLE``.

    Attributes:
        columns: in order; columns of the key are not nullable.
        key: columns of the primary key; empty: none.
        partitions: columns of ``PARTITIONED BY``.
        if_not_exists: a table that exists is left as it is.
    """

    table: TableName
    columns: tuple[SqlField, ...]
    key: tuple[str, ...]
    partitions: tuple[str, ...]
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropTable:
    """``DROP TABLE``; with `if_exists` a missing table is no error."""

    table: TableName
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Select:
    """``SELECT``.

    Attributes:
        columns: (name in the table, name in the result); None: all columns.
        count: the result's column of ``COUNT(*)``; None: rows are wanted.
        where: the condition as SQL text; None: all rows.
    """

    table: TableName
    columns: tuple[tuple[str, str], ...] | None
    count: str | None
    where: str | None


Statement = CreateTable | DropTable | Select


def parse_statement(sql: str, parameters: Sequence[object] | None = None) -> Statement:
    """Return what a text says.

    Args:
        sql: one statement, with or without a semicolon behind it.
        parameters: values for its question marks.

    Raises:
        ProgrammingError: the text is not SQL, or values and question marks are not equally many.
        NotSupportedError: the statement, or a part of it, is none that a cursor runs.

    Example:
        >>> parse_statement("SELECT COUNT(*) FROM sales.orders WHERE price > ?", [10])
        Select(table=TableName(schema='sales', name='orders'), columns=None, count='COUNT(*)', where='price > 10')
    """
    # Imported on first use: the import is slow, and most streams need no SQL.
    from sqlglot import errors, exp

    if not text_argument(sql, "operation").strip():
        raise ProgrammingError("the statement is empty")
    if len(sql) > _LONGEST_STATEMENT:
        raise NotSupportedError(f"the statement has {len(sql):,} characters; at most {_LONGEST_STATEMENT:,} are read")
    try:
        trees = [tree for tree in _cursor_dialect().parse(sql) if tree is not None]
    except (errors.ParseError, errors.TokenError) as error:
        raise ProgrammingError(f"{sql!r:.200} is not SQL: {str(error).splitlines()[0]}") from error
    except RecursionError:
        raise ProgrammingError(f"{sql!r:.200} is nested too deeply") from None
    if len(trees) != 1:
        raise NotSupportedError(f"one statement at a time is run, and {sql!r:.200} has {len(trees)}")
    tree = _with_parameters(trees[0], parameters, sql)
    if isinstance(tree, exp.Create):
        return _parse_create(tree)
    if isinstance(tree, exp.Drop):
        return _parse_drop(tree)
    if isinstance(tree, exp.Select):
        return _parse_select(tree)
    raise _unsupported(tree)


@cache
def _cursor_dialect() -> Dialect:
    """Return SQL with names in double quotes or in backquotes."""
    from sqlglot import tokens
    from sqlglot.dialects.dialect import Dialect

    class Quotes(Dialect):
        class Tokenizer(tokens.Tokenizer):
            IDENTIFIERS = ['"', "`"]  # noqa: RUF012 - read by the parser's metaclass

    return Quotes()


def _unsupported(tree: exp.Expr) -> NotSupportedError:
    return NotSupportedError(f"{tree.sql()!r:.200} is not supported: {_SUPPORTED_STATEMENTS}")


def _check_parts(tree: exp.Expr, allowed: frozenset[str]) -> None:
    """Refuse a part of a statement that this module does not know."""
    unknown = [name for name, value in tree.args.items() if value and name not in allowed]
    if unknown:
        raise NotSupportedError(
            f"{tree.sql()!r:.200} has {', '.join(unknown).upper()}, which is not supported: {_SUPPORTED_STATEMENTS}"
        )


def _with_parameters(tree: exp.Expr, parameters: Sequence[object] | None, sql: str) -> exp.Expr:
    from sqlglot import exp

    # Depth first is the order in the text.
    marks = list(tree.find_all(exp.Placeholder, bfs=False))
    values = list(parameters or ())
    if len(marks) != len(values):
        raise ProgrammingError(f"{sql!r:.200} has {len(marks)} question marks, and {len(values)} values are given")
    if not marks:
        return tree
    for mark, value in zip(marks, values, strict=True):
        mark.replace(_literal_tree(value))
    return tree


def _literal_tree(value: object) -> exp.Expr:
    from decimal import Decimal

    from sqlglot import exp

    if value is None or isinstance(value, bool):
        return exp.Null() if value is None else exp.Boolean(this=value)
    if isinstance(value, (int, float, Decimal)):
        number = exp.Literal.number(str(abs(value)))
        return exp.Neg(this=number) if value < 0 else number
    if hasattr(value, "isoformat"):
        return exp.Literal.string(value.isoformat())
    if isinstance(value, str):
        return exp.Literal.string(value)
    raise ProgrammingError(f"{shown(value)} cannot be a value of a statement: numbers, texts, dates and None can")


def _table_name(tree: exp.Expr) -> TableName:
    from sqlglot import exp

    if not isinstance(tree, exp.Table):
        raise _unsupported(tree)
    _check_parts(tree, frozenset({"this", "db", "catalog", "alias"}))
    # A workspace in front of the schema is dropped: a connection has one.
    return TableName(tree.db or None, tree.name)


# ------------------------------------------------------------------------------------------------ CREATE and DROP


def _parse_create(tree: exp.Expr) -> CreateTable:
    from sqlglot import exp

    _check_parts(tree, frozenset({"this", "kind", "exists", "properties"}))
    if str(tree.args.get("kind")).upper() != "TABLE" or not isinstance(tree.this, exp.Schema):
        raise _unsupported(tree)
    columns: list[SqlField] = []
    key: list[str] = []
    for part in tree.this.expressions:
        if isinstance(part, exp.PrimaryKey):
            key += [each.name for each in part.expressions]
        elif isinstance(part, exp.ColumnDef):
            field, in_key = _parse_column(part)
            columns.append(field)
            key += [field.name] if in_key else []
        else:
            raise _unsupported(part)
    partitions = _parse_partitions(tree.args.get("properties"))
    _check_names(columns, key, partitions)
    required = frozenset(key)
    fields = tuple(SqlField(c.name, c.type, c.nullable and c.name not in required) for c in columns)
    return CreateTable(_table_name(tree.this.this), fields, tuple(key), partitions, bool(tree.args.get("exists")))


def _parse_partitions(properties: exp.Properties | None) -> tuple[str, ...]:
    from sqlglot import exp

    names: list[str] = []
    for each in () if properties is None else properties.expressions:
        if isinstance(each, exp.SchemaCommentProperty):
            continue
        if not isinstance(each, exp.PartitionedByProperty):
            raise _unsupported(each)
        parts = each.this.expressions if isinstance(each.this, (exp.Schema, exp.Tuple)) else [each.this]
        for part in parts:
            if not isinstance(part, (exp.Identifier, exp.Column, exp.Paren)):
                raise NotSupportedError(f"PARTITIONED BY takes names of columns, not {part.sql()!r:.100}")
            names.append(part.name)
    return tuple(names)


def _check_names(columns: Sequence[SqlField], key: Sequence[str], partitions: Sequence[str]) -> None:
    names = [column.name for column in columns]
    for name in (*key, *partitions):
        if name not in names:
            raise ProgrammingError(f"column {name!r} is named as a key or partition, and the table has no such column")
    for what, column_list in (("columns", names), ("the primary key", key), ("PARTITIONED BY", partitions)):
        if len(set(column_list)) != len(column_list):
            raise ProgrammingError(f"a column appears twice in {what}: {', '.join(column_list)}")
    outside = [name for name in partitions if name not in key]
    if key and outside:
        raise ProgrammingError(
            f"partition columns must be part of the primary key, and {', '.join(outside)} "
            f"{'is' if len(outside) == 1 else 'are'} not"
        )


def _parse_column(tree: exp.Expr) -> tuple[SqlField, bool]:
    from sqlglot import exp

    nullable, in_key = True, False
    for constraint in tree.args.get("constraints") or ():
        constraint_kind = constraint.kind
        if isinstance(constraint_kind, exp.NotNullColumnConstraint):
            nullable = bool(constraint_kind.args.get("allow_null"))
        elif isinstance(constraint_kind, exp.PrimaryKeyColumnConstraint):
            in_key = True
        elif not isinstance(constraint_kind, exp.CommentColumnConstraint):
            raise _unsupported(constraint)
    return SqlField(tree.name, _parse_type(tree.args.get("kind"), tree.name), nullable), in_key


@cache
def _kinds_by_sqlglot_type() -> dict[str, SqlKind]:
    """Return kinds by sqlglot's names of types without parameters."""
    return {
        "BOOLEAN": SqlKind.BOOLEAN,
        "TINYINT": SqlKind.INT8,
        "SMALLINT": SqlKind.INT16,
        "INT": SqlKind.INT32,
        "BIGINT": SqlKind.INT64,
        "FLOAT": SqlKind.FLOAT,
        "DOUBLE": SqlKind.DOUBLE,
        "TEXT": SqlKind.STRING,
        "JSON": SqlKind.JSON,
        "BINARY": SqlKind.BINARY,
        "VARBINARY": SqlKind.BINARY,
        "DATE": SqlKind.DATE,
        "TIMESTAMP": SqlKind.TIMESTAMP_LTZ,
        "TIMESTAMPTZ": SqlKind.TIMESTAMP_LTZ,
        "TIMESTAMPLTZ": SqlKind.TIMESTAMP_LTZ,
        "TIMESTAMPNTZ": SqlKind.TIMESTAMP_NTZ,
    }


#: Names that sqlglot does not know as types.
_KINDS_BY_OTHER_NAMES: Final = {
    "INT16": SqlKind.INT16,
    "INT32": SqlKind.INT32,
    "INT64": SqlKind.INT64,
    "FLOAT32": SqlKind.FLOAT,
    "FLOAT64": SqlKind.DOUBLE,
    "BOOL": SqlKind.BOOLEAN,
    "INTERVAL_DAY_TIME": SqlKind.INTERVAL_DAY_TIME,
}


def _parse_type(tree: object, path: str) -> SqlType:
    """Return the SQL type of a column, element or field; `path` is its name in errors."""
    from sqlglot import exp

    if not isinstance(tree, exp.DataType):
        raise ProgrammingError(f"column {path!r} has no type")
    if isinstance(tree.this, exp.Interval):
        return _parse_interval(tree, path)
    name = str(getattr(tree.this, "value", tree.this)).upper()
    if name == "USER-DEFINED":
        type_name = str(tree.args.get("kind")).upper()
        if type_name in _KINDS_BY_OTHER_NAMES:
            return SqlType(_KINDS_BY_OTHER_NAMES[type_name])
        name = type_name if type_name == "VECTOR" else name  # in the oldest sqlglot it is such a type
    numbers = [
        int(each.name) for each in tree.expressions if isinstance(each, exp.DataTypeParam) and each.name.isdigit()
    ]
    if name == "DECIMAL":
        return _parse_decimal(numbers, path)
    if name in ("CHAR", "VARCHAR"):
        if name == "VARCHAR" and not numbers:
            return SqlType(SqlKind.STRING)
        length = numbers[0] if numbers else 1
        _check_range(length, f"the length of {path!r}")
        return SqlType(SqlKind(name), length=length)
    if name in ("ARRAY", "MAP", "STRUCT", "VECTOR"):
        return _parse_nested(tree, name, numbers, path)
    plain = _kinds_by_sqlglot_type().get(name)
    if plain is None or (tree.expressions and not name.startswith("TIMESTAMP")):
        raise NotSupportedError(f"column {path!r} has type {tree.sql()}, which rows cannot have")
    return SqlType(plain)


def _check_range(number: int, what: str) -> None:
    if not 1 <= number <= MOST_CHARACTERS:
        raise ProgrammingError(f"{what} must be from 1 to {MOST_CHARACTERS:,}")


def _parse_decimal(numbers: list[int], path: str) -> SqlType:
    precision, scale = [*numbers, *(10, 0)[len(numbers) :]][:2] if len(numbers) <= 2 else (0, 0)
    if not 1 <= precision <= 38 or scale > precision:
        raise ProgrammingError(f"column {path!r}: DECIMAL takes 1 to 38 digits, and not more of them behind the point")
    return SqlType(SqlKind.DECIMAL, precision=precision, scale=scale)


def _parse_interval(tree: exp.Expr, path: str) -> SqlType:
    type_name = tree.sql().upper()
    if "DAY" in type_name and ("SECOND" in type_name or "TIME" in type_name):
        return SqlType(SqlKind.INTERVAL_DAY_TIME)
    raise NotSupportedError(f"column {path!r} has type {type_name}: of intervals, INTERVAL DAY TO SECOND can be stored")


def _parse_nested(tree: exp.Expr, name: str, numbers: list[int], path: str) -> SqlType:
    from sqlglot import exp

    parts = [
        exp.DataType.build(each.name, udt=True)  # an element's type, to the oldest sqlglot a word
        if isinstance(each, exp.DataTypeParam) and isinstance(each.this, exp.Var)
        else each
        for each in tree.expressions
    ]
    parts = [each for each in parts if isinstance(each, (exp.DataType, exp.ColumnDef))]
    if name == "STRUCT" and parts and all(isinstance(part, exp.ColumnDef) for part in parts):
        fields = tuple(
            SqlField(field.name, field.type, field.nullable)
            for field, _ in (_parse_struct_field(part, f"{path}.{part.name}") for part in parts)
        )
        return SqlType(SqlKind.STRUCT, inner=fields)
    types = [_parse_type(part, f"{path}.element") for part in parts if isinstance(part, exp.DataType)]
    if name == "MAP" and len(types) == 2:
        return SqlType(SqlKind.MAP, inner=(SqlField("key", types[0], nullable=False), SqlField("value", types[1])))
    if name == "ARRAY" and len(types) == 1:
        return SqlType(SqlKind.ARRAY, inner=(SqlField("element", types[0]),))
    if (
        name == "VECTOR"
        and len(types) == 1
        and types[0].kind in (SqlKind.FLOAT, SqlKind.INT8, SqlKind.INT32)
        and numbers
    ):
        _check_range(numbers[0], f"the dimension of {path!r}")
        return SqlType(SqlKind.VECTOR, length=numbers[0], inner=(SqlField("element", types[0]),))
    raise ProgrammingError(f"column {path!r} has type {tree.sql()}, whose parts are missing or wrong")


def _parse_struct_field(tree: exp.Expr, path: str) -> tuple[SqlField, bool]:
    field, in_key = _parse_column(tree)
    if in_key:
        raise ProgrammingError(f"{path!r} is a field of a STRUCT, and cannot be a primary key")
    return field, in_key


def _parse_drop(tree: exp.Expr) -> DropTable:
    _check_parts(tree, frozenset({"this", "kind", "exists", "tables"}))
    # Newer releases of the parser keep a list.
    tables = tree.args.get("tables") or [tree.this]
    if str(tree.args.get("kind")).upper() != "TABLE" or len(tables) != 1:
        raise _unsupported(tree)
    return DropTable(_table_name(tables[0]), bool(tree.args.get("exists")))


# --------------------------------------------------------------------------------------------------------- SELECT


def _parse_select(tree: exp.Expr) -> Select:
    from sqlglot import exp

    # Newer releases of the parser call the part "from_".
    _check_parts(tree, frozenset({"expressions", "from", "from_", "where"}))
    source = tree.args.get("from") or tree.args.get("from_")
    if source is None:
        raise _unsupported(tree)
    columns: list[tuple[str, str]] = []
    everything, count = False, None
    for each in tree.expressions:
        inner = each.this if isinstance(each, exp.Alias) else each
        if isinstance(inner, exp.Star) and not any(inner.args.values()):
            everything = True
        elif isinstance(inner, exp.Count) and isinstance(inner.this, exp.Star):
            count = each.alias or "COUNT(*)"
        elif isinstance(inner, exp.Column) and isinstance(inner.this, exp.Identifier):
            columns.append((inner.name, each.alias or inner.name))
        else:
            raise _unsupported(each)
    if (everything or count is not None) and len(tree.expressions) != 1:
        raise _unsupported(tree)
    where = tree.args.get("where")
    # The condition goes on as text: tables take SQL conditions, and refuse what they do not know.
    condition = None if where is None else _without_tables(where.this).sql(dialect="duckdb")
    return Select(_table_name(source.this), tuple(columns) or None, count, condition)


def _without_tables(tree: exp.Expr) -> exp.Expr:
    """Return a condition with plain names of columns: there is one table."""
    from sqlglot import exp

    for column in list(tree.find_all(exp.Column)):
        for part in ("table", "db", "catalog"):
            column.set(part, None)
    return tree
