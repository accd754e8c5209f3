"""Columns of a table of MariaDB by their types, and the statements of the log that change a table (pure).

A statement matters where it changes a table in a way that no event of rows tells. It is read without a grammar: the words at its
begin, the names behind them, and for ALTER the words that stand outside of brackets.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

from lakefmt._core.cdc.events import SourceName, SourceTable
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import SourceRefused

__all__ = [
    "HINTS",
    "Altered",
    "Created",
    "DatabaseDropped",
    "Dropped",
    "Meaning",
    "Renamed",
    "RowsAsText",
    "SourceColumn",
    "Truncated",
    "column_of_server",
    "is_whole_number",
    "read_statement",
    "source_table",
    "value_type",
]


class Truncated(NamedTuple):
    """A statement that deletes all rows of a table."""

    name: SourceName


class Dropped(NamedTuple):
    """A table goes."""

    name: SourceName


class DatabaseDropped(NamedTuple):
    """A statement that drops all tables of a database."""

    schema: str


class Renamed(NamedTuple):
    """A table gets another name."""

    name: SourceName
    new_name: SourceName


class Created(NamedTuple):
    """A table comes; `replaces`: one of its name goes."""

    name: SourceName
    replaces: bool


@dataclass(frozen=True, slots=True)
class Altered:
    """A table changes.

    Attributes:
        name: the table.
        renamed: columns: the old name → the new one.
        moves_rows: rows come or go with a partition or a file.
        fills_rows: a new column has values in rows that are there, or values that are there change.
        added: names of new columns.
        dropped: names of columns that go.
        whole_numbers: columns that may have been something else, and become whole numbers: their names before.
        is_versioned: it keeps old rows from here on.
    """

    name: SourceName
    renamed: Mapping[str, str] = field(default_factory=dict)
    moves_rows: bool = False
    fills_rows: bool = False
    is_versioned: bool = False
    added: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()
    whole_numbers: frozenset[str] = frozenset()


class RowsAsText(NamedTuple):
    """A statement that may change rows without events of rows; `only`: of this table alone."""

    word: str
    only: SourceName | None


Meaning: TypeAlias = Truncated | Dropped | DatabaseDropped | Renamed | Created | Altered | RowsAsText

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|\#[^\n]*|--(?=[\s]|$)[^\n]*|/\*(?!!|M!).*?\*/)
    |(?P<open>/\*M?!\d*)|(?P<close>\*/)
    |`(?P<name>(?:[^`]|``)*)`
    |(?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<word>[\w$@]+)
    |(?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
#: Statements that change no row of a table: what they are about is looked at below, or does not matter.
_HARMLESS: Final = frozenset(
    (
        "ANALYZE",
        "BEGIN",
        "CHECK",
        "COMMIT",
        "DENY",
        "FLUSH",
        "GRANT",
        "INSTALL",
        "OPTIMIZE",
        "RELEASE",
        "REPAIR",
        "REVOKE",
        "SAVEPOINT",
        "SET",
        "START",
        "UNINSTALL",
        "XA",
    )
)
#: Things whose creation and removal do not matter.
_OTHER_OBJECTS: Final = frozenset(
    [
        "AGGREGATE",
        "ALGORITHM",
        "CATALOG",
        "DEFINER",
        "EVENT",
        "FULLTEXT",
        "FUNCTION",
        "INDEX",
        "LOGFILE",
        "PACKAGE",
        "PREPARE",
        "PROCEDURE",
        "ROLE",
        "SEQUENCE",
        "SERVER",
        "SPATIAL",
        "SQL",
        "TABLESPACE",
        "TRIGGER",
        "UNIQUE",
        "USER",
        "VIEW",
    ]
)
_MOVES_ROWS: Final = (
    "DROP PARTITION",
    "TRUNCATE PARTITION",
    "EXCHANGE PARTITION",
    "CONVERT PARTITION",
    "CONVERT TABLE",
    "IMPORT TABLESPACE",
)


#: What a clause may add or drop that is no column.
_NO_COLUMNS: Final = frozenset(
    (
        "CHECK",
        "CONSTRAINT",
        "FOREIGN",
        "FULLTEXT",
        "INDEX",
        "KEY",
        "PARTITION",
        "PERIOD",
        "PRIMARY",
        "SPATIAL",
        "SYSTEM",
        "UNIQUE",
    )
)
#: Types to which a strict session changes whole numbers as they are, or not at all. Others round, pad, cut spaces or spell anew.
_WHOLE_NUMBERS: Final = frozenset(
    [
        "BIGINT",
        "BOOL",
        "BOOLEAN",
        "INT",
        "INT1",
        "INT2",
        "INT3",
        "INT4",
        "INT8",
        "INTEGER",
        "MEDIUMINT",
        "MIDDLEINT",
        "SMALLINT",
        "TINYINT",
    ]
)


class _Token(NamedTuple):
    word: str  # in capitals; "" for a quoted name
    name: str  # as it stands; "" where it is no name
    depth: int


def _tokens(sql: str) -> list[_Token]:
    tokens, depth = [], 0
    for match in _TOKEN.finditer(sql):
        group = match.lastgroup
        if group in ("space", "open", "close"):
            continue
        if group == "name":
            tokens.append(_Token("", match["name"].replace("``", "`"), depth))
        elif group == "word":
            tokens.append(_Token(match["word"].upper(), match["word"], depth))
        elif group == "string":
            quoted = match["string"]
            tokens.append(_Token("", quoted[1:-1].replace('""', '"') if quoted[0] == '"' else "", depth))
        else:
            mark = match["mark"]
            depth += (mark == "(") - (mark == ")")
            tokens.append(_Token(mark, "", depth))
    return tokens


class _Reader:
    """Goes through the tokens of a statement."""

    def __init__(self, tokens: list[_Token], schema: str) -> None:
        self.tokens, self.schema, self.at = tokens, schema, 0

    def word(self) -> str:
        return self.tokens[self.at].word if self.at < len(self.tokens) else ""

    def skip(self, *words: str) -> bool:
        """Go over these words if they come next."""
        end = self.at + len(words)
        is_match = [token.word for token in self.tokens[self.at : end]] == list(words)
        self.at = end if is_match else self.at
        return is_match

    def identifier(self) -> str:
        name = self.tokens[self.at].name if self.at < len(self.tokens) else ""
        self.at += 1
        return name

    def table(self) -> SourceName:
        first = self.identifier()
        return SourceName(first, self.identifier()) if self.skip(".") else SourceName(self.schema, first)

    def tables(self) -> list[SourceName]:
        tables = [self.table()]
        while self.skip(","):
            tables.append(self.table())
        return tables


def read_statement(sql: str, schema: str) -> list[Meaning]:
    """Return what a statement means for tables; nothing: it does not matter to any.

    Args:
        sql: of the statement.
        schema: the database that names without one are of.

    Example:
        >>> read_statement("RENAME TABLE a TO b, `c` TO a", "shop")[1]
        Renamed(name=SourceName(schema='shop', table='c'), new_name=SourceName(schema='shop', table='a'))
    """
    reader = _Reader(_tokens(sql), schema)
    word = reader.word()
    if word == "SET" and reader.skip("SET", "STATEMENT"):  # SET STATEMENT variable = value FOR the statement
        while reader.word() and not reader.skip("FOR"):
            reader.at += 1
        word = reader.word()
    reader.at += 1
    if word in _READERS:
        return _READERS[word](reader)
    if word in _HARMLESS or not word:
        return []
    if word == "ROLLBACK":
        return [RowsAsText(word, None)]
    only = reader.table() if word == "DELETE" and reader.skip("FROM") and reader.at < len(reader.tokens) else None
    return [RowsAsText(word, only if reader.at == len(reader.tokens) else None)]


def _truncate(reader: _Reader) -> list[Meaning]:
    reader.skip("TABLE")
    return [Truncated(reader.table())]


def _drop(reader: _Reader) -> list[Meaning]:
    if reader.skip("DATABASE") or reader.skip("SCHEMA"):
        reader.skip("IF", "EXISTS")
        return [DatabaseDropped(reader.identifier())]
    if reader.word() in _OTHER_OBJECTS or reader.skip("TEMPORARY"):
        return []
    if not (reader.skip("TABLE") or reader.skip("TABLES")):
        return []
    reader.skip("IF", "EXISTS")
    return [Dropped(name) for name in reader.tables()]


def _rename(reader: _Reader) -> list[Meaning]:
    if not (reader.skip("TABLE") or reader.skip("TABLES")):
        return []
    reader.skip("IF", "EXISTS")
    renames: list[Meaning] = []
    while True:
        name = reader.table()
        while reader.word() and not reader.skip("TO"):  # WAIT n, NOWAIT
            reader.at += 1
        renames.append(Renamed(name, reader.table()))
        if not reader.skip(","):
            return renames


def _create(reader: _Reader) -> list[Meaning]:
    replaces = reader.skip("OR", "REPLACE")
    if not reader.skip("TABLE"):
        return []
    reader.skip("IF", "NOT", "EXISTS")
    name = reader.table()
    if any(token.word == "SELECT" for token in reader.tokens):  # a row log has the rows apart from the statement
        return [Created(name, replaces), RowsAsText("CREATE … SELECT", name)]
    return [Created(name, replaces)]


def _alter(reader: _Reader) -> list[Meaning]:
    reader.skip("ONLINE")
    drops_rows = reader.skip("IGNORE")  # those that are twice in a new index
    if not reader.skip("TABLE"):
        return []
    reader.skip("IF", "EXISTS")
    name = reader.table()
    tokens, begin = reader.tokens, reader.at
    outside = " ".join(token.word for token in tokens[reader.at :] if token.depth == 0)
    renamed: dict[str, str] = {}
    meanings: list[Meaning] = []
    new_name = None
    while reader.at < len(tokens):
        begins = tokens[reader.at].depth == 0
        if reader.skip("RENAME", "COLUMN"):
            reader.skip("IF", "EXISTS")
            old = reader.identifier()
            reader.skip("TO")
            renamed[old] = reader.identifier()
        elif reader.skip("RENAME", "INDEX") or reader.skip("RENAME", "KEY"):
            pass
        elif begins and reader.skip("CHANGE"):
            reader.skip("COLUMN")
            reader.skip("IF", "EXISTS")
            old, new = reader.identifier(), reader.identifier()
            if old != new:
                renamed[old] = new
        elif begins and reader.skip("RENAME"):
            reader.skip("TO") or reader.skip("AS") or reader.skip("=")
            new_name = reader.table()
        else:
            reader.at += 1
    moves = drops_rows or any(words in outside for words in _MOVES_ROWS)
    versioned = "ADD SYSTEM VERSIONING" in outside
    clauses = _clauses(tokens[begin:])
    added = frozenset(itertools.chain.from_iterable(map(_added_columns, clauses)))
    dropped = frozenset(filter(None, map(_dropped_column, clauses)))
    positions = frozenset(filter(None, map(_whole_number, clauses)))
    meanings.append(Altered(name, renamed, moves, any(map(_fills_rows, clauses)), versioned, added, dropped, positions))
    if new_name is not None:
        meanings.append(Renamed(name, new_name))
    return meanings


def _clauses(tokens: Sequence[_Token]) -> list[list[_Token]]:
    """Return the clauses of an ALTER."""
    clauses: list[list[_Token]] = [[]]
    for token in tokens:
        if token.word == "," and token.depth == 0:
            clauses.append([])
        else:
            clauses[-1].append(token)
    return clauses


def _behind(clause: Sequence[_Token], *words: str) -> Sequence[_Token]:
    """Return the tokens of a clause after some optional words."""
    begin = 0
    for word in words:
        begin += clause[begin : begin + 1] != [] and clause[begin].word == word
    return clause[begin:]


def _added_columns(clause: Sequence[_Token]) -> list[str]:
    """Return the names of the columns that a clause adds."""
    if [token.word for token in clause[:1]] != ["ADD"]:
        return []
    rest = _behind(clause, "ADD", "COLUMN", "IF", "NOT", "EXISTS")
    if rest and rest[0].word == "(":
        pairs = itertools.pairwise(rest)
        return [
            token.name
            for before, token in pairs
            if token.depth == 1 and before.depth == 1 and before.word in ("(", ",")
        ]
    return [rest[0].name] if rest and rest[0].word not in _NO_COLUMNS else []


def _dropped_column(clause: Sequence[_Token]) -> str:
    """Return the name of the column that a clause drops; "": it drops none."""
    if [token.word for token in clause[:1]] != ["DROP"]:
        return ""
    rest = _behind(clause, "DROP", "COLUMN", "IF", "EXISTS")
    return rest[0].name if rest and rest[0].word not in _NO_COLUMNS else ""


def _redefined(clause: Sequence[_Token]) -> tuple[str, Sequence[_Token]]:
    """Return the name of the column that a clause defines anew, and its definition; "": it defines none."""
    word = clause[0].word if clause else ""
    if word not in ("MODIFY", "CHANGE"):
        return "", ()
    rest = _behind(clause, word, "COLUMN", "IF", "EXISTS")
    return (rest[0].name, rest[1 + (word == "CHANGE") :]) if rest else ("", ())


def _whole_number(clause: Sequence[_Token]) -> str:
    """Return the name of the column that becomes one of whole numbers by a clause, and of nothing else; "": there is none."""
    name, definition = _redefined(clause)
    words = [token.word for token in definition]
    is_whole = words[:1] != [] and words[0] in _WHOLE_NUMBERS and not {"AS", "AUTO_INCREMENT"} & set(words)
    return name if is_whole else ""


def _fills_rows(clause: Sequence[_Token]) -> bool:
    """Return whether a clause may change values of stored rows without an event; a wrong yes costs a reading of the table.

    It adds a column that is not null, or gives a column another expression or type, but for whole numbers.
    """
    words = [token.word for token in clause]
    pairs = list(itertools.pairwise([*words, ""]))
    if words[:1] == ["ADD"]:
        has_default = any(word == "DEFAULT" and after != "NULL" for word, after in pairs)
        return has_default or ("NOT", "NULL") in pairs or bool({"AS", "AUTO_INCREMENT"} & set(words))
    if words[:2] == ["CONVERT", "TO"]:
        return True
    return words[:1] in (["MODIFY"], ["CHANGE"]) and not _whole_number(clause)


_READERS: Final = {"TRUNCATE": _truncate, "DROP": _drop, "RENAME": _rename, "CREATE": _create, "ALTER": _alter}


#: Types that the log shows as bytes: only the server says what they are.
HINTS: Final = frozenset(("uuid", "inet4", "inet6"))
#: Decimals of more digits are strings: neither Avro nor Parquet's readers know them.
_MOST_DIGITS: Final = 38
_STRINGS: Final = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json"))
_BINARIES: Final = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"))
_GEOMETRIES: Final = frozenset(
    (
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
    )
)
_INTEGERS: Final = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint"))
_ARROW_TYPES: Final = {
    **{name: pa.int32() for name in ("tinyint", "smallint", "mediumint", "int", "year")},
    **{f"{name} unsigned": pa.int32() for name in ("tinyint", "smallint", "mediumint")},
    "int unsigned": pa.int64(),
    "bigint": pa.int64(),
    "bigint unsigned": pa.decimal128(20, 0),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "time": pa.int64(),
    "enum": pa.string(),
    "set": pa.list_(pa.string()),
    "string": pa.string(),
    "binary": pa.binary(),
    "geometry": pa.binary(),
    "uuid": pa.string(),
    "inet4": pa.string(),
    "inet6": pa.string(),
}


class SourceColumn(NamedTuple):
    """A column; `type` is a name of this module: one of the server's, without what changes no value's type."""

    name: str
    type: str
    is_nullable: bool

    def to_json(self) -> list[object]:
        """Return what :meth:`of_json` makes a column of."""
        return [self.name, self.type, int(self.is_nullable)]

    @classmethod
    def of_json(cls, value: Sequence[object]) -> SourceColumn:
        """Return the column of a position."""
        name, type_name, is_nullable = value
        return cls(str(name), str(type_name), bool(is_nullable))


def value_type(type: str) -> pa.DataType:
    """Return the type that values of a column have here.

    Example:
        >>> value_type("decimal(10,2)"), value_type("bit(1)"), value_type("bit(9)")
        (Decimal128Type(decimal128(10, 2)), DataType(bool), DataType(binary))
    """
    if type.startswith("decimal("):
        digits, scale = map(int, type[8:-1].split(","))
        return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else pa.string()
    if type.startswith("bit("):
        return pa.bool_() if type == "bit(1)" else pa.binary()
    return _ARROW_TYPES[type]


def is_whole_number(type: str) -> bool:
    """Return whether the values of a column are whole numbers to the server, too: a time is one here alone.

    Example:
        >>> is_whole_number("int unsigned"), is_whole_number("time")
        (True, False)
    """
    return type.removesuffix(" unsigned") in _INTEGERS or type == "year"


def column_of_server(name: str, data_type: str, column_type: str, *, is_nullable: bool) -> SourceColumn:
    """Return a column as `information_schema.columns` describes it.

    Raises:
        SourceRefused: its type is not known.

    Example:
        >>> column_of_server("n", "int", "int(8) unsigned zerofill", is_nullable=False).type
        'int unsigned'
    """
    type_name = data_type.lower()
    if type_name in _INTEGERS:
        type_name += " unsigned" * ("unsigned" in column_type.lower())
    elif type_name in ("decimal", "bit"):
        digits = re.search(r"\(([\d,]+)\)", column_type)
        type_name += f"({digits[1] if digits else '1'})"
    elif type_name in _STRINGS:
        type_name = "string"
    elif type_name in _BINARIES:
        type_name = "binary"
    elif type_name in _GEOMETRIES:
        type_name = "geometry"
    elif type_name not in _ARROW_TYPES:
        raise SourceRefused(f"column {name} has the type {column_type}, which cannot be read")
    return SourceColumn(name, type_name, is_nullable)


def source_table(name: SourceName, columns: Sequence[SourceColumn], keys: Sequence[str]) -> SourceTable:
    """Return the table that a sink sees."""
    fields = [pa.field(column.name, value_type(column.type), column.is_nullable) for column in columns]
    return SourceTable(name, pa.schema(fields), tuple(keys))
