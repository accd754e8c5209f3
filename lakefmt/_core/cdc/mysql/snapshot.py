"""Rows of now: what SELECT says, in chunks of the primary key, each as of one place in the log.

The server sends text. Where its text is not the value (a FLOAT is rounded to six digits) the expression of :func:`expression` asks for
another one.

Each chunk is read in a transaction of its own, which sees the table as it was at one place of the log, and ends with the chunk: a long
transaction would hold up the statements that alter the table. Which key comes before another one is the server's to say: its
collations are not known here.
"""

from __future__ import annotations

import decimal
import importlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arguments import library, shown
from lakefmt._core.cdc.events import SourceName
from lakefmt._core.cdc.mysql.log import Account, Gtids, Session, parse_gtids, translated
from lakefmt._core.cdc.mysql.rows import calendar_days, times_of_day
from lakefmt._core.cdc.mysql.statements import SourceColumn, column_of_server, value_type
from lakefmt.errors import InvalidInputError, SourceUnavailable

__all__ = [
    "Chunk",
    "ServerTable",
    "describe_table",
    "expression",
    "keys_read",
    "quoted",
    "selected_column",
    "take_chunk",
]

_AS_TEXT: Final = frozenset(("date", "datetime", "timestamp", "time"))


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return "`" + name.replace("`", "``") + "`"


def expression(name: str, type: str) -> str:
    """Return the expression whose values :func:`selected_column` takes."""
    column = quoted(name)
    if type == "float":
        return f"cast({column} as double)"
    if type == "enum":
        return f"cast({column} as char)"
    if type == "set":
        return f"cast({column} as char)"
    return column


def selected_column(type: str, values: Sequence[object]) -> pa.Array:
    """Return the values of a column as the client gives them: strings, bytes for types of bytes, None."""
    if type in ("binary", "geometry"):
        return pa.array(values, pa.binary())
    if type.startswith("bit("):
        raw = pa.array(values, pa.binary())
        return pc.not_equal(raw, b"\0") if type == "bit(1)" else raw
    strings = pa.array(values, pa.string())
    if type in _AS_TEXT:
        return _time(type, strings)
    if type == "set":
        return _set(strings)
    if type == "year":
        return strings.cast(pa.int32())
    return strings.cast(value_type(type))


def _set(strings: pa.Array) -> pa.Array:
    # The server writes the members in their order, with commas, which no member has; "" is the empty set.
    lists = pc.split_pattern(strings, ",")
    empty = pc.fill_null(pc.equal(strings, ""), False)
    return pc.if_else(empty, pa.scalar([], pa.list_(pa.string())), lists)


def _time(type: str, strings: pa.Array) -> pa.Array:
    nulls = strings.is_null().to_numpy(zero_copy_only=False)
    if type == "time":
        pieces = pc.extract_regex(
            strings, r"^(?P<sign>-?)(?P<hour>\d+):(?P<minute>\d+):(?P<second>\d+)\.?(?P<fraction>\d*)$"
        )
        part = {name: pc.struct_field(pieces, name) for name in ("sign", "hour", "minute", "second", "fraction")}
        hours, minutes, seconds = (_numbers(part[name]) for name in ("hour", "minute", "second"))
        fraction = _numbers(pc.utf8_rpad(pc.fill_null(part["fraction"], "0"), 6, "0"))
        micros = times_of_day(hours, minutes, seconds) + fraction
        negative = pc.fill_null(pc.equal(part["sign"], "-"), False).to_numpy(zero_copy_only=False)
        return pa.array(np.where(negative, -micros, micros), mask=nulls)
    digits = _digits(strings)
    years, months, days = _number(digits, 0, 4), _number(digits, 5, 7), _number(digits, 8, 10)
    days_since_epoch, impossible = calendar_days(years, months, days)
    nulls = nulls | impossible
    if type == "date":
        return pa.array(days_since_epoch.astype(np.int32), pa.int32(), mask=nulls).cast(pa.date32())
    micros = days_since_epoch * 86_400_000_000
    micros += times_of_day(_number(digits, 11, 13), _number(digits, 14, 16), _number(digits, 17, 19))
    micros += _number(digits, 20, 26)
    return pa.array(micros, mask=nulls).cast(value_type(type))


def _numbers(strings: pa.Array) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = pc.fill_null(strings, "0").cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


_LONGEST: Final = "0000-00-00 00:00:00.000000"


def _digits(strings: pa.Array) -> npt.NDArray[np.int64]:
    # A matrix of the characters less "0", each text filled up with zeros to microseconds.
    filled = pc.utf8_rpad(pc.fill_null(strings, _LONGEST), len(_LONGEST), "0")
    raw = filled.cast(pa.binary(len(_LONGEST)))
    return np.frombuffer(raw.buffers()[1], np.uint8).reshape(-1, len(_LONGEST))[: len(strings)].astype(np.int64) - 48


def _number(digits: npt.NDArray[np.int64], begin: int, end: int) -> npt.NDArray[np.int64]:
    total = np.zeros(len(digits), np.int64)
    for digit_number in range(begin, end):
        total = total * 10 + digits[:, digit_number]
    return total


#: What a chunk may come to in memory, by the server's own estimate of a row.
_CHUNK_BYTES: Final = 64 << 20
_BATCH_ROWS: Final = 20_000
_ATTEMPTS: Final = 20
#: A statement altered the table since the transaction began.
_ALTERED: Final = frozenset((1412, 1054, 1146))
#: Types of keys that literals can be written of; a table with another key is one chunk.
_LITERAL_TYPES: Final = frozenset(
    (
        "tinyint",
        "smallint",
        "mediumint",
        "int",
        "bigint",
        "string",
        "binary",
        "date",
        "datetime",
        "timestamp",
        "uuid",
        "inet4",
        "inet6",
    )
)


class KeyColumn(NamedTuple):
    """A column of the primary key: with its character set and collation, "" where it has none."""

    name: str
    type: str
    charset: str
    collation: str


class ServerTable(NamedTuple):
    """A table as the server describes it now."""

    columns: tuple[SourceColumn, ...]
    keys: tuple[KeyColumn, ...]
    bytes_per_row: int

    @property
    def shape(self) -> tuple[tuple[SourceColumn, ...], tuple[str, ...]]:
        """The columns and the key, as :class:`~lakefmt._core.cdc.mysql.rows.TableMap` has them."""
        return self.columns, tuple(key.name for key in self.keys)


class Chunk(NamedTuple):
    """Rows of a table as they were at a place of the log; :meth:`close` ends its transaction.

    Attributes:
        gtids: the newest transactions that the rows have.
        file: of the log.
        place: in the file.
        table: as it was there.
        rows: how many are asked for; None: all that there are.
        cursor: of the client.
        session: the transaction's.
        fetched: the rows, if there are not too many to keep; the transaction has ended then.
    """

    gtids: Gtids
    file: str
    place: int
    table: ServerTable
    rows: int | None
    cursor: Any
    session: Session
    fetched: tuple[tuple[pa.Table, tuple[object, ...]], ...] | None = None

    def batches(self) -> Iterator[tuple[pa.Table, tuple[object, ...]]]:
        """Return the rows, each batch with the key of its last one."""
        return self._fetch() if self.fetched is None else iter(self.fetched)

    def of_memory(self) -> Chunk:
        """Return the chunk with its rows fetched, and end its transaction, if its rows are not too many."""
        if self.rows is None:
            return self
        fetched = tuple(self._fetch())
        self.close()
        return self._replace(fetched=fetched)

    def _fetch(self) -> Iterator[tuple[pa.Table, tuple[object, ...]]]:
        names = [column.name for column in self.table.columns]
        fields = [pa.field(column.name, value_type(column.type), column.is_nullable) for column in self.table.columns]
        key_indices = [names.index(key.name) for key in self.table.keys]
        while True:
            with translated(self.session.account):
                rows = self.cursor.fetchmany(_BATCH_ROWS)
            if not rows:
                return
            arrays = [
                selected_column(column.type, values)
                for column, values in zip(self.table.columns, zip(*rows, strict=True), strict=True)
            ]
            last = tuple(_key_value(rows[-1][index]) for index in key_indices)
            yield pa.Table.from_arrays(arrays, schema=pa.schema(fields)), last

    def close(self) -> None:
        """End the transaction."""
        self.session.close()


def _key_value(value: object) -> object:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def describe_table(session: Session, name: SourceName) -> ServerTable | None:
    """Return a table as it is now; None: there is none."""
    keys = session.rows(
        "select column_name from information_schema.statistics where table_schema = %s and table_name = %s "
        "and index_name = 'PRIMARY' order by seq_in_index",
        name,
    )
    rows = session.rows(
        "select column_name, data_type, column_type, is_nullable, ifnull(character_set_name, ''), ifnull(collation_name, '') "
        "from information_schema.columns where table_schema = %s and table_name = %s order by ordinal_position",
        name,
    )
    if not rows:
        return None
    columns = tuple(column_of_server(row[0], row[1], row[2], is_nullable=row[3] == "YES") for row in rows)
    by_name = {column.name: (column, row) for column, row in zip(columns, rows, strict=True)}
    key_columns = []
    for (key,) in keys:
        column, row = by_name[key]
        key_columns.append(KeyColumn(key, column.type, row[4], row[5]))
    sizes = session.rows(
        "select ifnull(avg_row_length, 0) from information_schema.tables where table_schema = %s and table_name = %s",
        name,
    )
    return ServerTable(columns, tuple(key_columns), int(sizes[0][0]) if sizes else 0)


def take_chunk(
    account: Account, session: Session, name: SourceName, last_key: Sequence[object] | None, chunk_rows: int
) -> Chunk | None:
    """Begin to read the rows after a key; None: the table was dropped.

    Args:
        account: for the connection of the chunk.
        session: a connection for questions.
        name: of the table.
        last_key: of the rows that were read; None: none was.
        chunk_rows: most rows of a chunk.

    Raises:
        SourceUnavailable: the table is altered all the time, or the connection is lost.
    """
    for _ in range(_ATTEMPTS):
        table = describe_table(session, name)
        if table is None:
            return None
        chunk_session = Session(account)
        chunk = None
        try:
            chunk = _begin(chunk_session, name, table, last_key, chunk_rows)
        finally:
            if chunk is None:
                chunk_session.close()
        # From its first statement on, the transaction holds back statements that alter the table.
        now = describe_table(session, name)
        if chunk is not None and now is not None and now.shape == table.shape:
            return chunk.of_memory()
        chunk_session.close()
    raise SourceUnavailable(f"{name} is altered again and again while its rows are read")


def _begin(
    session: Session, name: SourceName, table: ServerTable, last_key: Sequence[object] | None, chunk_rows: int
) -> Chunk | None:
    session.rows("start transaction with consistent snapshot, read only")
    status = dict(session.rows("show status like 'binlog_snapshot_%'"))
    file, position = str(status["Binlog_snapshot_file"]), int(status["Binlog_snapshot_position"])
    ((gtids,),) = session.rows("select binlog_gtid_pos(%s, %s)", (file, position))
    columns = ", ".join(expression(column.name, column.type) for column in table.columns)
    statement = f"select {columns} from {quoted(name.schema)}.{quoted(name.table)}"  # noqa: S608 (names are quoted, keys are literals)
    rows = None
    if table.keys and all(_has_literals(key.type) for key in table.keys):
        rows = max(1, min(chunk_rows, _CHUNK_BYTES // max(1, table.bytes_per_row)))
        if last_key is not None:
            statement += f" where {_behind(table.keys, last_key)}"
        statement += f" order by {', '.join(quoted(key.name) for key in table.keys)} limit {rows}"
    cursors = library(lambda: importlib.import_module("pymysql.cursors"), "pymysql", "mysql")
    errors = importlib.import_module("pymysql.err")
    with translated(session.account):
        cursor = session.raw.cursor(cursors.SSCursor)
        try:
            cursor.execute(statement)
        except errors.MySQLError as error:
            if error.args and error.args[0] in _ALTERED:
                return None
            raise
    return Chunk(parse_gtids(gtids or ""), file, position, table, rows, cursor, session)


def _has_literals(type: str) -> bool:
    return type.removesuffix(" unsigned") in _LITERAL_TYPES or type.startswith("decimal(")


def _behind(keys: Sequence[KeyColumn], last_key: Sequence[object]) -> str:
    """The condition for rows after a key, written so that the server uses the index."""
    values = [literal(key, value) for key, value in zip(keys, last_key, strict=True)]
    choices = []
    for i, key in enumerate(keys):
        same = [f"{quoted(other.name)} = {value}" for other, value in zip(keys[:i], values[:i], strict=True)]
        choices.append(" and ".join([*same, f"{quoted(key.name)} > {values[i]}"]))
    return f"{quoted(keys[0].name)} >= {values[0]} and ({' or '.join(f'({choice})' for choice in choices)})"


_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?")


def literal(key: KeyColumn, value: Any) -> str:
    """Return a value of a key as SQL writes it.

    Raises:
        InvalidInputError: it is no value of the key's type.
    """
    shown_type = key.type.removesuffix(" unsigned")
    try:
        if isinstance(value, dict):
            return f"x'{bytes.fromhex(value['hex']).hex()}'"
        if shown_type in ("tinyint", "smallint", "mediumint", "int", "bigint"):
            return str(int(value))
        if shown_type.startswith("decimal("):
            return format(decimal.Decimal(value), "f")
        if shown_type == "string":
            sql = f"convert(_utf8mb4 x'{value.encode().hex()}' using {key.charset})"
            return f"{sql} collate {key.collation}"
        if shown_type in ("date", "datetime", "timestamp") and _TIME.fullmatch(value):
            return f"cast('{value}' as datetime(6))"
        if shown_type in ("uuid", "inet4", "inet6"):
            return f"cast(_utf8mb4 x'{value.encode().hex()}' as {shown_type})"
    except (ValueError, TypeError, KeyError, AttributeError, decimal.InvalidOperation):
        pass
    raise InvalidInputError(f"{shown(value)} is no value of the key {key.name} ({key.type})")


def keys_read(session: Session, table: ServerTable, rows: pa.Table, last_key: Sequence[object]) -> list[bool]:
    """Return for each row whether its key is not behind the last one that was read.

    The server compares: it knows its collations.
    """
    names = [f"k{i}" for i in range(len(table.keys))]
    columns = [_literals(key, rows[key.name]) for key in table.keys]
    selects = [
        f"select {row_number} n, {', '.join(f'{value} {name}' for value, name in zip(values, names, strict=True))}"
        for row_number, values in enumerate(zip(*columns, strict=True))
    ]
    bounds = [literal(key, value) for key, value in zip(table.keys, last_key, strict=True)]
    read_flags = [False] * rows.num_rows
    for begin in range(0, len(selects), 1000):
        of_rows = " union all ".join(selects[begin : begin + 1000])
        statement = f"select n, {_not_behind(names, bounds)} from ({of_rows}) t"  # noqa: S608 (all are literals)
        for row_number, is_read in session.rows(statement):
            read_flags[int(row_number)] = is_read == "1"
    return read_flags


def _not_behind(names: Sequence[str], bounds: Sequence[str]) -> str:
    first, *next_names = names
    if not next_names:
        return f"{first} <= {bounds[0]}"
    return f"({first} < {bounds[0]} or ({first} = {bounds[0]} and {_not_behind(next_names, bounds[1:])}))"


def _literals(key: KeyColumn, values: pa.ChunkedArray) -> list[str]:
    if values.type in (pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        values = values.cast(pa.timestamp("us")).cast(pa.string())
    elif not pa.types.is_binary(values.type):
        values = values.cast(pa.string())
    return [literal(key, _key_value(value)) for value in values.to_pylist()]
