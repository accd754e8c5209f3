"""A table or query of an SQL database as a source, by a column that grows: for databases without a log that could be followed (effects).

Any module of Python's DB-API will do. Rows that have the largest value of the column are remembered by digests, so that others with the
same value, which appear later, are told from them. What is updated without a larger value, and what is deleted, is not seen.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from lakefmt._core.arguments import Raised, error_text, run_foreign, shown
from lakefmt._core.data_classes import dataclass
from lakefmt._core.ingest.api import SOURCE, Checkpoint, SourceBatch, check_source
from lakefmt._core.ingest.transforms import load_function
from lakefmt.errors import CorruptFile, InvalidInputError, SourceRefused, SourceUnavailable

__all__ = ["QuerySource", "open_query_source"]

_ROWS: Final = 10_000
#: Rows of one value that a commit remembers.
_MOST_REMEMBERED: Final = 100_000
_MOST_DIGITS: Final = 100
_VALUE: Final = "value"
_SEEN: Final = "seen"
_SINCE: Final = "since"
_PREFIXES: Final = ("hoodie.streamer.jdbc.", "hoodie.deltastreamer.jdbc.", "query.")
T = TypeVar("T")


class _Cursor(Protocol):
    """The methods of a DB-API cursor that lakefmt calls; `fetchone` only after a statement that returns one row."""

    @property
    def description(self) -> Any: ...
    def execute(self, sql: str, values: tuple[object, ...], /) -> object: ...
    def fetchone(self) -> Any: ...
    def fetchmany(self, rows: int, /) -> Iterable[Iterable[object]]: ...


class _Connection(Protocol):
    """The methods of a DB-API connection that lakefmt calls."""

    def cursor(self) -> _Cursor: ...
    def close(self) -> object: ...


class QuerySource:
    """Rows of a query, by a column that grows.

    Args:
        connect: opens a connection of the DB-API.
        query: a table's name, or a query.
        column: whose value grows with every row and every update.
        name: in messages.
        mark: of parameters in SQL: ``?`` or ``%s``.
        late: rows may come so far behind the largest value: seconds, or the unit of numbers.
        skips_nulls: rows without a value in the column are left out; False: they are an error.
    """

    def __init__(
        self,
        connect: Callable[[], _Connection],
        query: str,
        column: str,
        name: str,
        mark: str = "?",
        *,
        late: float = 0,
        skips_nulls: bool = False,
    ) -> None:
        if late < 0:
            raise InvalidInputError("query.late is not negative")
        self._connect, self._column, self._name, self._mark = connect, column, name, mark
        self._late, self._skips_nulls = late, skips_nulls
        self._query = f"({query})" if " " in query.strip() else ".".join(map(_quoted, query.split(".")))
        self._connection: _Connection | None = None

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

    def run(self, sql: str, values: Sequence[object]) -> _Cursor:
        """Return a cursor of a statement.

        Raises:
            SourceUnavailable: the database says no.
        """
        return self._ask(lambda: self._executed(sql, values))

    def _executed(self, sql: str, values: Sequence[object]) -> _Cursor:
        if self._connection is None:
            self._connection = self._connect()
        cursor = self._connection.cursor()
        cursor.execute(sql, tuple(values))
        return cursor

    def _ask(self, call: Callable[[], T]) -> T:
        """Return what the database answers; after an error it is asked by a new connection."""
        answer = run_foreign(call)
        if isinstance(answer, Raised):
            self._connection = None
            raise SourceUnavailable(f"{self._name}: {error_text(answer.error)}") from answer.error
        return answer

    @property
    def identity(self) -> str:
        """Return the name of this query in checkpoints."""
        return f"{self._name} {self._column}"

    def plan(self, after: Checkpoint | None, limit: int | None) -> _QueryRound | None:
        """Choose the rows that come next.

        Args:
            after: of the newest commit that has one; None: from the smallest value.
            limit: about how many rows a round has.

        Raises:
            SourceUnavailable: the database does not answer.
            SourceRefused: rows have no value in the column, so that they would never come; the checkpoint is of another source, or
                no value of the column; or its values cannot be compared.
        """
        column = _quoted(self._column)
        if after is not None:
            check_source(after, self.identity)
        position = _Position.of(after, self._late)
        if position.seen is None and position.value is not None:
            cursor = self.run(f"SELECT max({column}) FROM {self._query} AS q", ())  # noqa: S608 - as below
            if (largest := cursor.fetchone()[0]) is not None:
                position = self._typed(position.value, largest)
        if not self._skips_nulls:
            cursor = self.run(f"SELECT count(*) FROM {self._query} AS q WHERE {column} IS NULL", ())  # noqa: S608 - as below
            if (answer := cursor.fetchone()) is not None and answer[0]:
                raise SourceRefused(
                    f"{self._name}: {answer[0]:,} rows have no value in {self._column!r}, and would never be taken: fill it, or leave "
                    "them out with query.nulls=skip"
                )
        condition, values = (
            ("", []) if position.border is None else (f"WHERE {column} >= {self._mark}", [position.border])
        )
        inner = f"SELECT {column} AS v FROM {self._query} AS q {condition}"  # noqa: S608 - names are quoted, values are parameters
        if limit is not None:
            inner += f" ORDER BY {column} LIMIT {int(limit) + len(position.seen or ())}"
        cursor = self.run(f"SELECT max(v), count(v) FROM ({inner}) AS m", values)  # noqa: S608 - as above
        high, count = cursor.fetchone()
        if high is None:
            return None
        if self.is_at_least(position.value, high) and self._late:
            high = position.value
        rows = _QueryRound(self, position, high, _earlier(high, self._late), int(count))
        return rows if rows.has_news() else None

    def _typed(self, checkpoint: str, largest: object) -> _Position:
        """Return the position of a checkpoint that is a text alone: the user's, or another tool's.

        Args:
            checkpoint: the text.
            largest: value of the column.

        Raises:
            SourceRefused: the text is no value of the column's type.
        """
        value = _value_of(checkpoint, largest)
        if value is None:
            raise SourceRefused(
                f"{self._name}: the checkpoint {shown(checkpoint)} is no value of {self._column!r}, which has such as {shown(largest)}"
            )
        return _Position(value, value)

    def is_at_least(self, value: Any, other: Any) -> bool:
        """Return whether a value of the column is not smaller than another one; None is smaller than all.

        Raises:
            SourceRefused: they cannot be compared.
        """
        if value is None:
            return False
        try:
            is_ordered = value >= other or value < other
        except (TypeError, InvalidOperation):
            is_ordered = False
        if not is_ordered:
            raise SourceRefused(
                f"{self._name}: {shown(value)} and {shown(other)} of {self._column!r} cannot be compared: choose a column of one "
                "type, without NaN"
            )
        return bool(value >= other)

    def fetch(self, cursor: _Cursor) -> list[tuple[Any, ...]]:
        """Return the next rows of a cursor.

        Raises:
            SourceUnavailable: the database says no.
        """
        return self._ask(lambda: list(map(tuple, cursor.fetchmany(_ROWS))))

    def rows(self, low: object, high: object) -> _Cursor:
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
    """The rows between two values of the column, read as they are asked for, by one cursor: no row comes in between."""

    def __init__(self, source: QuerySource, position: _Position, high: Any, border: Any, count: int) -> None:
        self._source, self._place, self._high, self._count = source, position, high, count
        #: Rows from this value on are remembered.
        self._border = position.border if source.is_at_least(position.border, border) else border
        self._digests = set[bytes]()
        self._pages = self._read()
        self._first = next(self._pages, None)

    def _read(self) -> Iterator[tuple[list[str], list[tuple[Any, ...]]]]:
        """Yield the names of the columns and the rows, page by page, and remember the newest of them."""
        cursor = self._source.rows(self._place.border, self._high)
        names = [each[0] for each in cursor.description]
        column = _index_of(names, self._source.column)
        counts = dict[bytes, int]()
        while page := self._source.fetch(cursor):
            new_rows = [row for row in page if self._is_news(row, row[column], counts)]
            if new_rows:
                yield names, new_rows

    def _is_news(self, row: tuple[Any, ...], value: Any, counts: dict[bytes, int]) -> bool:
        """Return whether a row was not taken before; equal rows are counted."""
        remembered, was_read = self._source.is_at_least(value, self._border), self._place.covers(value)
        if not (was_read or remembered):
            return True
        digest = _digest(row)
        number = counts[digest] = counts.get(digest, 0) + 1
        if number > 1:
            digest = hashlib.blake2b(digest + number.to_bytes(8, "big"), digest_size=8).digest()
        if remembered:
            self._digests.add(digest)
            if len(self._digests) > _MOST_REMEMBERED:
                raise SourceRefused(
                    f"{self._source.name}: more than {_MOST_REMEMBERED:,} rows have the value {shown(self._high)} of "
                    f"{self._source.column!r}, or a value near it: choose a column that tells rows apart"
                )
        return not (was_read and digest in (self._place.seen or ()))

    def has_news(self) -> bool:
        """Return whether there is a row that was not taken before."""
        return self._first is not None

    @property
    def checkpoint(self) -> Checkpoint:
        """Return the largest value, and the rows that had it; it is known when all batches were read."""
        encoded_digests = base64.b64encode(b"".join(sorted(self._digests))).decode()
        details = {_VALUE: _encoded(self._high), _SEEN: encoded_digests, SOURCE: self._source.identity}
        if self._border != self._high:
            details[_SINCE] = _encoded(self._border)
        # An empty text would say that there is no checkpoint.
        return Checkpoint(str(self._high) or "''", details)

    @property
    def summary(self) -> str:
        """Return the range."""
        since = "the smallest" if self._place.value is None else str(self._place.value)
        return f"{self._source.column} from {since} to {self._high}"

    @property
    def expected_rows(self) -> int | None:
        """Return about how many rows there are."""
        return max(0, self._count - len(self._place.seen or ()))

    def batches(self) -> Iterator[SourceBatch]:
        """Read the rows; a second call asks the database again."""
        first, self._first = self._first, None
        pages = self._read() if first is None else itertools.chain([first], self._pages)
        for names, rows in pages:
            columns = dict(zip(names, zip(*rows, strict=True), strict=True))
            try:
                arrays = {name: pa.array(list(values)) for name, values in columns.items()}
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise InvalidInputError(
                    f"{self._source.name}: the values of a column do not go together: {error}"
                ) from error
            yield SourceBatch(pa.RecordBatch.from_pydict(arrays))


def _digest(row: tuple[object, ...]) -> bytes:
    hashable = tuple(bytes(each) if isinstance(each, memoryview | bytearray) else each for each in row)
    return hashlib.blake2b(repr(hashable).encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _earlier(value: Any, late: float) -> Any:
    """Return the value from which on rows may still come behind others.

    Raises:
        SourceRefused: there is none of such a type.
    """
    if not late:
        return value
    if isinstance(value, datetime):
        return value - timedelta(seconds=late)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value - (math.ceil(late) if isinstance(value, int) else late)
    if isinstance(value, Decimal):
        return value - Decimal(str(late))
    raise SourceRefused(f"query.late needs a column of numbers or of times, not of {type(value).__name__}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _index_of(names: list[str], column: str) -> int:
    indices = [number for number, name in enumerate(names) if name.lower() == column.lower()]
    if not indices:
        raise InvalidInputError(f"the query has no column {column!r}: it has {', '.join(names)}")
    return indices[0]


def _value_of(checkpoint: str, largest: object) -> object:
    """Return the value that a text stands for in a column; None: it stands for none of its type.

    Example:
        >>> _value_of("7", 12), _value_of("7", "12"), _value_of("7.5", 12), _value_of("x", 12)
        (7, '7', Decimal('7.5'), None)
    """
    if isinstance(largest, str):
        return checkpoint
    try:
        if isinstance(largest, datetime | date):
            value = datetime.fromisoformat(checkpoint)
            return value if isinstance(largest, datetime) else value.date()
        number = Decimal(checkpoint)
    except (ValueError, InvalidOperation):
        return None
    if not number.is_finite():
        return None
    if isinstance(largest, float):
        return float(number)
    return int(number) if number == number.to_integral_value() and abs(number.adjusted()) < _MOST_DIGITS else number


def _encoded(value: object) -> str:
    """Return a value with its type, so that the next round compares alike."""
    type_name = type(value).__name__
    if isinstance(value, bool | int | float | str):
        return json.dumps([type_name, value])
    if isinstance(value, Decimal | date | datetime):
        return json.dumps([type_name, str(value) if isinstance(value, Decimal) else value.isoformat()])
    raise SourceRefused(f"a column of {type_name} cannot be the one that grows: take numbers, texts or times")


_DECODERS: Final[Mapping[str, Callable[[Any], object]]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "Decimal": Decimal,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
}


@dataclass(frozen=True)
class _Position:
    """Where a query was.

    Attributes:
        value: the largest one that was taken; None: none.
        border: rows from this value on are read again; None: all.
        seen: the digests of those of them that were taken; None: not known, all of `value` count as new.
    """

    value: Any = None
    border: Any = None
    seen: frozenset[bytes] | None = None

    def covers(self, value: Any) -> bool:
        """Return whether rows with this value may have been taken."""
        return self.value is not None and (value == self.value or (self.border != self.value and value <= self.value))

    @classmethod
    def of(cls, after: Checkpoint | None, late: float) -> _Position:
        """Return what a checkpoint says.

        Raises:
            CorruptFile: its details are damaged.
        """
        if after is None:
            return cls()
        stated, encoded_digests = after.details.get(_VALUE), after.details.get(_SEEN)
        if stated is None or encoded_digests is None:
            return cls(after.text, after.text)
        try:
            type_name, stored = json.loads(stated)
            value = _DECODERS[type_name](stored)
            digests = np.frombuffer(base64.b64decode(encoded_digests, validate=True), "S8")
            type_name, stored = json.loads(after.details.get(_SINCE, stated))
            # Rows before what was remembered count as taken.
            border = max(_DECODERS[type_name](stored), _earlier(value, late))
        except (ValueError, KeyError, TypeError):
            raise CorruptFile(
                "what a checkpoint says of a query is damaged: begin with a checkpoint of your own"
            ) from None
        return cls(value, border, frozenset(each.ljust(8, b"\0") for each in digests.tolist()))


def open_query_source(location: str, options: Mapping[str, str]) -> QuerySource:
    """Return a query of a database.

    Args:
        location: ``sqlite:PATH``, or ``module:function``, a function that opens a connection of the DB-API, or of ADBC.
        options: ``query.table`` and ``query.column``, or Hudi's ``hoodie.streamer.jdbc.table.name`` and
            ``hoodie.streamer.jdbc.table.incr.column.name``; ``query.mark``: ``%s`` where the module has that; ``query.late`` and
            ``query.nulls``: see :class:`QuerySource`.

    Raises:
        InvalidInputError: an option is missing.
    """
    values = {
        name.removeprefix(prefix): value
        for prefix in _PREFIXES
        for name, value in options.items()
        if name.startswith(prefix)
    }
    query = values.get("table") or values.get("table.name")
    column = values.get("column") or values.get("table.incr.column.name")
    if not query or not column:
        raise InvalidInputError(
            "a query needs query.table, a table or a SELECT, and query.column, the column that grows"
        )
    try:
        late = float(values.get("late", 0))
    except ValueError:
        raise InvalidInputError(f"query.late is a number, not {shown(values['late'])}") from None
    skips = values.get("nulls", "error") == "skip"
    if location.startswith("sqlite:"):
        path = location.removeprefix("sqlite:").removeprefix("//")
        return QuerySource(lambda: _sqlite(path), query, column, f"sqlite:{path}", late=late, skips_nulls=skips)
    connect = load_function(location, "a connection")
    return QuerySource(connect, query, column, location, values.get("mark", "?"), late=late, skips_nulls=skips)


def _sqlite(path: str) -> _Connection:
    import sqlite3  # part of Python

    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
