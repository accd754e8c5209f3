"""The few SQL statements that a cursor runs, from text to values. Pure.

sqlglot parses the text; everything that is not listed here is refused, so that no statement does less
than it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from lakefmt.arguments import shown, text_argument
from lakefmt.data_classes import dataclass
from lakefmt.realtime.errors import NotSupportedError, ProgrammingError
from lakefmt.realtime.sql_types import MOST_CHARACTERS, SqlField, SqlKind, SqlType

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["CreateTable", "DropTable", "Select", "Statement", "TableName", "parse_statement"]

_LONGEST: Final = 1_000_000
_RUNS: Final = (
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


def parse_statement(text: str, parameters: Sequence[object] | None = None) -> Statement:
    """Return what a text says.

    Args:
        text: one statement, with or without a semicolon behind it.
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

    if not text_argument(text, "operation").strip():
        raise ProgrammingError("the statement is empty")
    if len(text) > _LONGEST:
        raise NotSupportedError(f"the statement has {len(text):,} characters; at most {_LONGEST:,} are read")
    try:
        trees = [tree for tree in _dialect().parse(text) if tree is not None]
    except (errors.ParseError, errors.TokenError) as error:
        raise ProgrammingError(f"{text!r:.200} is not SQL: {str(error).splitlines()[0]}") from error
    except RecursionError:
        raise ProgrammingError(f"{text!r:.200} is nested too deeply") from None
    if len(trees) != 1:
        raise NotSupportedError(f"one statement at a time is run, and {text!r:.200} has {len(trees)}")
    tree = _with_parameters(trees[0], parameters, text)
    if isinstance(tree, exp.Create):
        return _create(tree)
    if isinstance(tree, exp.Drop):
        return _drop(tree)
    if isinstance(tree, exp.Select):
        return _select(tree)
    raise _refused(tree)


@cache
def _dialect() -> Any:
    """Return SQL with names in double quotes or in backquotes."""
    from sqlglot import tokens
    from sqlglot.dialects.dialect import Dialect

    class Quotes(Dialect):
        class Tokenizer(tokens.Tokenizer):
            IDENTIFIERS = ['"', "`"]  # noqa: RUF012 - read by the parser's metaclass

    return Quotes()


def _refused(tree: Any) -> NotSupportedError:
    return NotSupportedError(f"{tree.sql()!r:.200} is not supported: {_RUNS}")


def _check_parts(tree: exp.Expression, allowed: frozenset[str]) -> None:
    """Refuse a part of a statement that this module does not know."""
    unknown = [name for name, value in tree.args.items() if value and name not in allowed]
    if unknown:
        raise NotSupportedError(
            f"{tree.sql()!r:.200} has {', '.join(unknown).upper()}, which is not supported: {_RUNS}"
        )


def _with_parameters(tree: Any, parameters: Sequence[object] | None, text: str) -> Any:
    from sqlglot import exp

    # Depth first is the order in the text.
    marks = list(tree.find_all(exp.Placeholder, bfs=False))
    values = list(parameters or ())
    if len(marks) != len(values):
        raise ProgrammingError(f"{text!r:.200} has {len(marks)} question marks, and {len(values)} values are given")
    if not marks:
        return tree
    for mark, value in zip(marks, values, strict=True):
        mark.replace(_literal(value))
    return tree


def _literal(value: object) -> Any:
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


def _table_name(tree: Any) -> TableName:
    from sqlglot import exp

    if not isinstance(tree, exp.Table):
        raise _refused(tree)
    _check_parts(tree, frozenset({"this", "db", "catalog", "alias"}))
    # A workspace in front of the schema is dropped: a connection has one.
    return TableName(tree.db or None, tree.name)


# ------------------------------------------------------------------------------------------------ CREATE and DROP


def _create(tree: Any) -> CreateTable:
    from sqlglot import exp

    _check_parts(tree, frozenset({"this", "kind", "exists", "properties"}))
    if str(tree.args.get("kind")).upper() != "TABLE" or not isinstance(tree.this, exp.Schema):
        raise _refused(tree)
    columns: list[SqlField] = []
    key: list[str] = []
    for part in tree.this.expressions:
        if isinstance(part, exp.PrimaryKey):
            key += [each.name for each in part.expressions]
        elif isinstance(part, exp.ColumnDef):
            field, in_key = _column(part)
            columns.append(field)
            key += [field.name] if in_key else []
        else:
            raise _refused(part)
    partitions = _partitions(tree.args.get("properties"))
    _check_names(columns, key, partitions)
    required = frozenset(key)
    fields = tuple(SqlField(c.name, c.type, c.nullable and c.name not in required) for c in columns)
    return CreateTable(_table_name(tree.this.this), fields, tuple(key), partitions, bool(tree.args.get("exists")))


def _partitions(properties: Any) -> tuple[str, ...]:
    from sqlglot import exp

    names: list[str] = []
    for each in () if properties is None else properties.expressions:
        if isinstance(each, exp.SchemaCommentProperty):
            continue
        if not isinstance(each, exp.PartitionedByProperty):
            raise _refused(each)
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
    for what, given in (("columns", names), ("the primary key", key), ("PARTITIONED BY", partitions)):
        if len(set(given)) != len(given):
            raise ProgrammingError(f"a column appears twice in {what}: {', '.join(given)}")
    outside = [name for name in partitions if name not in key]
    if key and outside:
        raise ProgrammingError(
            f"partition columns must be part of the primary key, and {', '.join(outside)} "
            f"{'is' if len(outside) == 1 else 'are'} not"
        )


def _column(tree: Any) -> tuple[SqlField, bool]:
    from sqlglot import exp

    nullable, in_key = True, False
    for constraint in tree.args.get("constraints") or ():
        kind = constraint.kind
        if isinstance(kind, exp.NotNullColumnConstraint):
            nullable = bool(kind.args.get("allow_null"))
        elif isinstance(kind, exp.PrimaryKeyColumnConstraint):
            in_key = True
        elif not isinstance(kind, exp.CommentColumnConstraint):
            raise _refused(constraint)
    return SqlField(tree.name, _sql_type(tree.args.get("kind"), tree.name), nullable), in_key


@cache
def _plain_types() -> dict[str, SqlKind]:
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
_NAMED: Final = {
    "INT16": SqlKind.INT16,
    "INT32": SqlKind.INT32,
    "INT64": SqlKind.INT64,
    "FLOAT32": SqlKind.FLOAT,
    "FLOAT64": SqlKind.DOUBLE,
    "BOOL": SqlKind.BOOLEAN,
    "INTERVAL_DAY_TIME": SqlKind.INTERVAL_DAY_TIME,
}


def _sql_type(tree: Any, path: str) -> SqlType:
    """Return the SQL type of a column, element or field; `path` is its name in errors."""
    from sqlglot import exp

    if not isinstance(tree, exp.DataType):
        raise ProgrammingError(f"column {path!r} has no type")
    if isinstance(tree.this, exp.Interval):
        return _interval(tree, path)
    name = str(getattr(tree.this, "value", tree.this)).upper()
    if name == "USER-DEFINED":
        kind = str(tree.args.get("kind")).upper()
        if kind in _NAMED:
            return SqlType(_NAMED[kind])
        name = kind if kind == "VECTOR" else name  # in the oldest sqlglot it is such a type
    numbers = [
        int(each.name) for each in tree.expressions if isinstance(each, exp.DataTypeParam) and each.name.isdigit()
    ]
    if name == "DECIMAL":
        return _decimal(numbers, path)
    if name in ("CHAR", "VARCHAR"):
        if name == "VARCHAR" and not numbers:
            return SqlType(SqlKind.STRING)
        length = numbers[0] if numbers else 1
        _check_range(length, f"the length of {path!r}")
        return SqlType(SqlKind(name), length=length)
    if name in ("ARRAY", "MAP", "STRUCT", "VECTOR"):
        return _nested(tree, name, numbers, path)
    plain = _plain_types().get(name)
    if plain is None or (tree.expressions and not name.startswith("TIMESTAMP")):
        raise NotSupportedError(f"column {path!r} has type {tree.sql()}, which rows cannot have")
    return SqlType(plain)


def _check_range(number: int, what: str) -> None:
    if not 1 <= number <= MOST_CHARACTERS:
        raise ProgrammingError(f"{what} must be from 1 to {MOST_CHARACTERS:,}")


def _decimal(numbers: list[int], path: str) -> SqlType:
    precision, scale = [*numbers, *(10, 0)[len(numbers) :]][:2] if len(numbers) <= 2 else (0, 0)
    if not 1 <= precision <= 38 or scale > precision:
        raise ProgrammingError(f"column {path!r}: DECIMAL takes 1 to 38 digits, and not more of them behind the point")
    return SqlType(SqlKind.DECIMAL, precision=precision, scale=scale)


def _interval(tree: Any, path: str) -> SqlType:
    text = tree.sql().upper()
    if "DAY" in text and ("SECOND" in text or "TIME" in text):
        return SqlType(SqlKind.INTERVAL_DAY_TIME)
    raise NotSupportedError(f"column {path!r} has type {text}: of intervals, INTERVAL DAY TO SECOND can be stored")


def _nested(tree: Any, name: str, numbers: list[int], path: str) -> SqlType:
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
            for field, _ in (_column_in(part, f"{path}.{part.name}") for part in parts)
        )
        return SqlType(SqlKind.STRUCT, inner=fields)
    types = [_sql_type(part, f"{path}.element") for part in parts if isinstance(part, exp.DataType)]
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


def _column_in(tree: Any, path: str) -> tuple[SqlField, bool]:
    field, in_key = _column(tree)
    if in_key:
        raise ProgrammingError(f"{path!r} is a field of a STRUCT, and cannot be a primary key")
    return field, in_key


def _drop(tree: Any) -> DropTable:
    _check_parts(tree, frozenset({"this", "kind", "exists", "tables"}))
    # Newer releases of the parser keep a list.
    tables = tree.args.get("tables") or [tree.this]
    if str(tree.args.get("kind")).upper() != "TABLE" or len(tables) != 1:
        raise _refused(tree)
    return DropTable(_table_name(tables[0]), bool(tree.args.get("exists")))


# --------------------------------------------------------------------------------------------------------- SELECT


def _select(tree: Any) -> Select:
    from sqlglot import exp

    # Newer releases of the parser call the part "from_".
    _check_parts(tree, frozenset({"expressions", "from", "from_", "where"}))
    source = tree.args.get("from") or tree.args.get("from_")
    if source is None:
        raise _refused(tree)
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
            raise _refused(each)
    if (everything or count is not None) and len(tree.expressions) != 1:
        raise _refused(tree)
    where = tree.args.get("where")
    # The condition goes on as text: tables take SQL conditions, and refuse what they do not know.
    condition = None if where is None else _without_tables(where.this).sql(dialect="duckdb")
    return Select(_table_name(source.this), tuple(columns) or None, count, condition)


def _without_tables(tree: Any) -> Any:
    """Return a condition with plain names of columns: there is one table."""
    from sqlglot import exp

    for column in list(tree.find_all(exp.Column)):
        for part in ("table", "db", "catalog"):
            column.set(part, None)
    return tree
