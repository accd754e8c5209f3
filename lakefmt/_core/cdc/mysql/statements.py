"""Statements of the log: which of them change a table in a way that no event of rows tells (pure).

No grammar: the words at a statement's begin, the names behind them, and for ALTER the words that stand outside of brackets.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, NamedTuple, TypeAlias

from lakefmt._core.cdc.events import SourceName
from lakefmt._core.data_classes import dataclass

__all__ = [
    "Altered",
    "Created",
    "DatabaseDropped",
    "Dropped",
    "Meaning",
    "Renamed",
    "RowsAsText",
    "Truncated",
    "read_statement",
]


class Truncated(NamedTuple):
    """All rows of a table go."""

    name: SourceName


class Dropped(NamedTuple):
    """A table goes."""

    name: SourceName


class DatabaseDropped(NamedTuple):
    """All tables of a database go."""

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
        fills_rows: a new column has values in rows that are there.
        is_versioned: it keeps old rows from here on.
    """

    name: SourceName
    renamed: Mapping[str, str] = field(default_factory=dict)
    moves_rows: bool = False
    fills_rows: bool = False
    is_versioned: bool = False


class RowsAsText(NamedTuple):
    """Rows may change as the statement says, and no event of rows follows; `only`: of this table alone."""

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


class _Token(NamedTuple):
    word: str  # in capitals; "" for a quoted name
    name: str  # as it stands; "" where it is no name
    depth: int


def _tokens(text: str) -> list[_Token]:
    found, depth = [], 0
    for match in _TOKEN.finditer(text):
        group = match.lastgroup
        if group in ("space", "open", "close"):
            continue
        if group == "name":
            found.append(_Token("", match["name"].replace("``", "`"), depth))
        elif group == "word":
            found.append(_Token(match["word"].upper(), match["word"], depth))
        elif group == "string":
            quoted = match["string"]
            found.append(_Token("", quoted[1:-1].replace('""', '"') if quoted[0] == '"' else "", depth))
        else:
            mark = match["mark"]
            depth += (mark == "(") - (mark == ")")
            found.append(_Token(mark, "", depth))
    return found


class _Reader:
    """Goes through the tokens of a statement."""

    def __init__(self, tokens: list[_Token], schema: str) -> None:
        self.tokens, self.schema, self.at = tokens, schema, 0

    def word(self) -> str:
        return self.tokens[self.at].word if self.at < len(self.tokens) else ""

    def skip(self, *words: str) -> bool:
        """Go over these words if they come next."""
        end = self.at + len(words)
        found = [token.word for token in self.tokens[self.at : end]] == list(words)
        self.at = end if found else self.at
        return found

    def identifier(self) -> str:
        name = self.tokens[self.at].name if self.at < len(self.tokens) else ""
        self.at += 1
        return name

    def table(self) -> SourceName:
        first = self.identifier()
        return SourceName(first, self.identifier()) if self.skip(".") else SourceName(self.schema, first)

    def tables(self) -> list[SourceName]:
        found = [self.table()]
        while self.skip(","):
            found.append(self.table())
        return found


def read_statement(text: str, schema: str) -> list[Meaning]:
    """Return what a statement means for tables; nothing: it does not matter to any.

    Args:
        text: of the statement.
        schema: the database that names without one are of.

    Example:
        >>> read_statement("RENAME TABLE a TO b, `c` TO a", "shop")[1]
        Renamed(name=SourceName(schema='shop', table='c'), new_name=SourceName(schema='shop', table='a'))
    """
    reader = _Reader(_tokens(text), schema)
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
    found: list[Meaning] = []
    while True:
        name = reader.table()
        while reader.word() and not reader.skip("TO"):  # WAIT n, NOWAIT
            reader.at += 1
        found.append(Renamed(name, reader.table()))
        if not reader.skip(","):
            return found


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
    reader.skip("IGNORE")
    if not reader.skip("TABLE"):
        return []
    reader.skip("IF", "EXISTS")
    name = reader.table()
    tokens, begin = reader.tokens, reader.at
    outside = " ".join(token.word for token in tokens[reader.at :] if token.depth == 0)
    renamed: dict[str, str] = {}
    found: list[Meaning] = []
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
    moves = any(words in outside for words in _MOVES_ROWS)
    versioned = "ADD SYSTEM VERSIONING" in outside
    found.append(Altered(name, renamed, moves, _fills_rows(reader.tokens[begin:]), versioned))
    if new_name is not None:
        found.append(Renamed(name, new_name))
    return found


def _fills_rows(tokens: Sequence[_Token]) -> bool:
    """Return whether a clause adds a column that is not null in rows that are there; a wrong yes costs a reading of the table."""
    clauses: list[list[str]] = [[]]
    for token in tokens:
        if token.word == "," and token.depth == 0:
            clauses.append([])
        else:
            clauses[-1].append(token.word)
    for words in clauses:
        pairs = list(itertools.pairwise([*words, ""]))
        has_default = any(word == "DEFAULT" and after != "NULL" for word, after in pairs)
        if words[:1] == ["ADD"] and (has_default or ("NOT", "NULL") in pairs or {"AS", "AUTO_INCREMENT"} & set(words)):
            return True
    return False


_READERS: Final = {"TRUNCATE": _truncate, "DROP": _drop, "RENAME": _rename, "CREATE": _create, "ALTER": _alter}
