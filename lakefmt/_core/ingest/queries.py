"""A table or query of an SQL database as a source, by a column that grows: for databases without a log that could be followed (effects).

Any module of Python's DB-API will do. Rows that have the largest value of the column are remembered by digests, so that others with the
same value, which appear later, are told from them. What is updated without a larger value, and what is deleted, is not seen.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lakefmt._core.arguments import error_text, shown
from lakefmt._core.ingest.api import Checkpoint, SourceBatch
from lakefmt._core.ingest.functions import load_function
from lakefmt.errors import CorruptFile, InvalidInputError, SourceRefused, SourceUnavailable

__all__ = ["QuerySource", "open_query_source"]

_ROWS: Final = 10_000
#: Rows of one value that a commit remembers.
_MOST_REMEMBERED: Final = 100_000
_VALUE: Final = "value"
_SEEN: Final = "seen"
_PREFIXES: Final = ("hoodie.streamer.jdbc.", "hoodie.deltastreamer.jdbc.", "query.")


class QuerySource:
    """Rows of a query, by a column that grows.

    Args:
        connect: opens a connection of the DB-API.
        query: a table's name, or a query.
        column: whose value grows with every row and every update.
        name: in messages.
        mark: of parameters in SQL: ``?`` or ``%s``.
    """

    def __init__(self, connect: Callable[[], Any], query: str, column: str, name: str, mark: str = "?") -> None:
        self._connect, self._column, self._name, self._mark = connect, column, name, mark
        self._query = f"({query})" if " " in query.strip() else ".".join(map(_quoted, query.split(".")))
        self._connection: Any = None

    @property
    def name(self) -> str:
        """Return what messages call it."""
        return self._name

    def schema(self) -> pa.Schema | None:
        """Return None: the rows tell."""
        return None

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def run(self, sql: str, values: Sequence[object]) -> Any:
        """Return a cursor of a statement.

        Raises:
            SourceUnavailable: the database says no.
        """
        try:
            if self._connection is None:
                self._connection = self._connect()
            cursor = self._connection.cursor()
            cursor.execute(sql, tuple(values))
            return cursor
        except Exception as error:
            self._connection = None
            raise SourceUnavailable(f"{self._name}: {error_text(error)}") from error

    def plan(self, after: Checkpoint | None, limit: int | None) -> _QueryRound | None:
        """Choose the rows that come next.

        Args:
            after: of the newest commit that has one; None: from the smallest value.
            limit: about how many rows a round has.

        Raises:
            SourceUnavailable: the database does not answer.
        """
        column = _quoted(self._column)
        low, seen = (None, None) if after is None else _place_of(after)
        condition, values = ("", []) if low is None else (f"WHERE {column} >= {self._mark}", [low])
        inner = f"SELECT {column} AS v FROM {self._query} AS q {condition}"  # noqa: S608 - names are quoted, values are parameters
        if limit is not None:
            inner += f" ORDER BY {column} LIMIT {int(limit) + (0 if seen is None else len(seen))}"
        cursor = self.run(f"SELECT max(v), count(v) FROM ({inner}) AS m", values)  # noqa: S608 - as above
        high, count = cursor.fetchone()
        if high is None:
            return None
        rows = _QueryRound(self, low, high, seen, int(count))
        return rows if rows.has_news() else None

    def rows(self, low: object, high: object) -> Any:
        """Return a cursor over the rows between two values, both included, in order."""
        column = _quoted(self._column)
        condition, values = (f"{column} <= {self._mark}", [high])
        if low is not None:
            condition, values = f"{column} >= {self._mark} AND {condition}", [low, high]
        return self.run(f"SELECT * FROM {self._query} AS q WHERE {condition} ORDER BY {column}", values)  # noqa: S608 - as above

    @property
    def column(self) -> str:
        """The column that grows."""
        return self._column


class _QueryRound:
    """The rows between two values of the column."""

    def __init__(
        self, source: QuerySource, low: object, high: object, seen: frozenset[bytes] | None, count: int
    ) -> None:
        self._source, self._low, self._high, self._seen, self._count = source, low, high, seen or frozenset(), count
        self._digests = set[bytes]()
        self._rows: list[tuple[list[str], list[tuple[Any, ...]]]] | None = None
        self._read()

    def _read(self) -> None:
        """Read the rows, once: those that come between two reads would be in the rows and not in the checkpoint."""
        cursor = self._source.rows(self._low, self._high)
        names = [each[0] for each in cursor.description]
        place = _index_of(names, self._source.column)
        pages = list[tuple[list[str], list[tuple[Any, ...]]]]()
        while page := cursor.fetchmany(_ROWS):
            kept = list[tuple[Any, ...]]()
            for row in map(tuple, page):
                if row[place] in (self._low, self._high):
                    digest = _digest(row)
                    if row[place] == self._high:
                        self._digests.add(digest)
                    if row[place] == self._low and digest in self._seen:
                        continue
                kept.append(row)
            if kept:
                pages.append((names, kept))
        if len(self._digests) > _MOST_REMEMBERED:
            raise SourceRefused(
                f"{self._source.name}: {len(self._digests):,} rows have the value {shown(self._high)} of {self._source.column!r}: "
                "choose a column that tells rows apart"
            )
        self._rows = pages

    def has_news(self) -> bool:
        """Return whether there is a row that was not taken before."""
        return bool(self._rows)

    @property
    def checkpoint(self) -> Checkpoint:
        """Return the largest value, and which rows had it."""
        seen = base64.b64encode(b"".join(sorted(self._digests))).decode()
        return Checkpoint(str(self._high), {_VALUE: _encoded(self._high), _SEEN: seen})

    @property
    def summary(self) -> str:
        """Return the range."""
        since = "the smallest" if self._low is None else str(self._low)
        return f"{self._source.column} from {since} to {self._high}"

    @property
    def expected_rows(self) -> int | None:
        """Return how many rows there are."""
        return sum(len(rows) for _, rows in self._rows or ())

    def batches(self) -> Iterator[SourceBatch]:
        """Return the rows."""
        for names, rows in self._rows or ():
            columns = dict(zip(names, zip(*rows, strict=True), strict=True))
            try:
                arrays = {name: pa.array(list(values)) for name, values in columns.items()}
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise InvalidInputError(
                    f"{self._source.name}: the values of a column do not go together: {error}"
                ) from error
            yield SourceBatch(pa.RecordBatch.from_pydict(arrays))


def _digest(row: tuple[Any, ...]) -> bytes:
    return hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _index_of(names: list[str], column: str) -> int:
    found = [number for number, name in enumerate(names) if name.lower() == column.lower()]
    if not found:
        raise InvalidInputError(f"the query has no column {column!r}: it has {', '.join(names)}")
    return found[0]


def _encoded(value: object) -> str:
    """Return a value with its type, so that the next round compares alike."""
    kind = type(value).__name__
    if isinstance(value, bool | int | float | str):
        return json.dumps([kind, value])
    if isinstance(value, Decimal | date | datetime):
        return json.dumps([kind, str(value) if isinstance(value, Decimal) else value.isoformat()])
    raise SourceRefused(f"a column of {kind} cannot be the one that grows: take numbers, texts or times")


_DECODERS: Final[Mapping[str, Callable[[Any], object]]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "Decimal": Decimal,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
}


def _place_of(after: Checkpoint) -> tuple[object, frozenset[bytes] | None]:
    """Return the value of a checkpoint, and the digests of the rows that had it."""
    stated, seen = after.details.get(_VALUE), after.details.get(_SEEN)
    if stated is None or seen is None:
        text = after.text
        return (int(text) if text.lstrip("-").isdigit() else text), None
    try:
        kind, value = json.loads(stated)
        digests = np.frombuffer(base64.b64decode(seen, validate=True), "S8")
        return _DECODERS[kind](value), frozenset(each.ljust(8, b"\0") for each in digests.tolist())
    except (ValueError, KeyError, TypeError):
        raise CorruptFile("what a checkpoint says of a query is damaged: begin with a checkpoint of your own") from None


def open_query_source(location: str, options: Mapping[str, str]) -> QuerySource:
    """Return a query of a database.

    Args:
        location: ``sqlite:PATH``, or ``module:function``, a function that opens a connection of the DB-API, or of ADBC.
        options: ``query.table`` and ``query.column``, or Hudi's ``hoodie.streamer.jdbc.table.name`` and
            ``hoodie.streamer.jdbc.table.incr.column.name``; ``query.mark``: ``%s`` where the module has that.

    Raises:
        InvalidInputError: an option is missing.
    """
    values = {
        name.removeprefix(prefix): text
        for prefix in _PREFIXES
        for name, text in options.items()
        if name.startswith(prefix)
    }
    query = values.get("table") or values.get("table.name")
    column = values.get("column") or values.get("table.incr.column.name")
    if not query or not column:
        raise InvalidInputError(
            "a query needs query.table, a table or a SELECT, and query.column, the column that grows"
        )
    if location.startswith("sqlite:"):
        path = location.removeprefix("sqlite:").removeprefix("//")
        return QuerySource(lambda: _sqlite(path), query, column, f"sqlite:{path}")
    return QuerySource(load_function(location, "a connection"), query, column, location, values.get("mark", "?"))


def _sqlite(path: str) -> Any:
    import sqlite3  # part of Python

    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
