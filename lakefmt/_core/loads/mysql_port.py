"""A port of MySQL's protocol on which StarRocks' Flink sink asks for the columns of a table, so that its jobs need no change (effects).

The sink asks ``information_schema.COLUMNS`` and the version, and nothing else is answered. mysql-mimic speaks the protocol.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.loads.http import is_loopback
from lakefmt._core.loads.protocol import check_folder_name
from lakefmt._core.loads.shape import Target
from lakefmt.errors import InvalidInputError, LakefmtError, UnsupportedFeature

__all__ = ["MySQLPort", "column_rows"]

_NAMES: Final = ("COLUMN_NAME", "ORDINAL_POSITION", "COLUMN_KEY", "DATA_TYPE", "COLUMN_SIZE", "DECIMAL_DIGITS")
_SCHEMA = re.compile(r"`?table_schema`?\s*=\s*'([^']{1,255})'", re.IGNORECASE)
_TABLE = re.compile(r"`?table_name`?\s*=\s*'([^']{1,255})'", re.IGNORECASE)
#: A release whose sink uses transactions.
_VERSION: Final = "3.2.0 lakefmt"

Row = tuple[str | int, ...]


def column_rows(schema: pa.Schema, keys: Sequence[str]) -> list[Row]:
    """Return the rows of ``information_schema.COLUMNS`` for a table.

    Example:
        >>> schema = pa.schema([("id", pa.int64()), ("price", pa.decimal128(9, 2))])
        >>> column_rows(schema, ["id"])
        [('id', 1, 'PRI', 'bigint', 19, 0), ('price', 2, '', 'decimal', 9, 2)]
    """
    return [
        (field.name, number, "PRI" if field.name in keys else "", *_described(field.type))
        for number, field in enumerate(schema, 1)
    ]


def _described(data_type: pa.DataType) -> tuple[str, int, int]:
    """Return StarRocks' name of a type, its size and its digits."""
    if pt.is_decimal(data_type):
        return "decimal", data_type.precision, data_type.scale
    if pt.is_boolean(data_type):
        return "boolean", 1, 0
    if pt.is_integer(data_type):
        return ("bigint", 19, 0) if data_type.bit_width > 32 else ("int", 10, 0)
    if pt.is_floating(data_type):
        return ("double", 15, 0) if data_type.bit_width > 32 else ("float", 7, 0)
    if pt.is_date(data_type):
        return "date", 10, 0
    if pt.is_timestamp(data_type):
        return "datetime", 26, 0
    return ("json", 0, 0) if pt.is_nested(data_type) else ("varchar", 65_533, 0)


class MySQLPort:
    """The port, in a thread of its own.

    Args:
        find: returns what rows of a table are made for, by database and name.
        host: address, which only this machine may reach: whoever does may ask.
        port: 0: a free one.

    Raises:
        InvalidInputError: others than this machine could ask.
        UnsupportedFeature: mysql-mimic is not installed.
        OSError: the port is taken.
    """

    def __init__(self, find: Callable[[str, str], Target], host: str, port: int) -> None:
        if not is_loopback(host):
            raise InvalidInputError("the MySQL port knows no users: it opens on a loopback address only")
        try:
            import mysql_mimic
        except ImportError:
            raise UnsupportedFeature("the MySQL port needs mysql-mimic: pip install 'lakefmt[flink]'") from None
        self._find = find
        self._mimic: Any = mysql_mimic
        self._loop = asyncio.new_event_loop()
        self._begun = Event()
        self._error: OSError | None = None
        self.port = port
        self._thread = Thread(target=self._run, args=(host, port), name="lakefmt-mysql-port", daemon=True)
        self._thread.start()
        self._begun.wait()
        if self._error is not None:
            raise self._error

    def _run(self, host: str, port: int) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._mimic.MysqlServer(session_factory=self._session)
        try:
            self._loop.run_until_complete(server.start_server(host=host, port=port))
            self.port = server.sockets()[0].getsockname()[1]
        except OSError as error:
            self._error = error
            self._begun.set()
            return
        self._begun.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(self._end_connections())  # newer Pythons wait for all that are open
        self._loop.run_until_complete(server.wait_closed())
        self._loop.close()

    async def _end_connections(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports close in the next turn

    def _session(self) -> Any:
        answer = self._answer

        async def release(query: Any) -> Any:
            """Say our release where StarRocks' is asked for: mysql-mimic says MySQL's, which stays in the greeting for drivers."""
            return answer(query.sql) if "current_version" in query.sql.lower() else await query.next()

        class Session(self._mimic.Session):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                super().__init__()
                # Its own tables of columns have no sizes.
                own: list[Any] = vars(self)["middlewares"]
                self.middlewares = [release, *(each for each in own if "info_schema" not in each.__name__)]

            async def query(self, expression: object, sql: str, attrs: object) -> tuple[list[Row], list[str]]:
                return answer(sql)

            async def schema(self) -> dict[str, object]:
                return {}

        return Session()

    def _answer(self, sql: str) -> tuple[list[Row], list[str]]:
        """Return rows and names of columns."""
        lowercase_sql = sql.lower()
        if "information_schema" in lowercase_sql and "columns" in lowercase_sql:
            database, table = _SCHEMA.search(sql), _TABLE.search(sql)
            if database is None or table is None:
                return [], list(_NAMES)
            try:
                names = check_folder_name(database[1], "database"), check_folder_name(table[1], "table")
                target = self._find(*names)
                return column_rows(target.schema, target.keys), list(_NAMES)
            except LakefmtError:
                return [], list(_NAMES)
        return ([(_VERSION,)], ["ver"]) if "version" in lowercase_sql else ([], [])  # the sink looks for this name

    def stop(self) -> None:
        """Answer nothing more."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
