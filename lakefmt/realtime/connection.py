"""The connection and the cursor that programs for the SDK open, and where their tables are.

The properties of a stream are split here: which are about conversions, which are the SDK's, and which are settings of
commits. A cursor runs the few statements that programs for real-time streams bring along.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any, Final, Protocol, Unpack, runtime_checkable
from weakref import WeakSet
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.arguments import check_texts, mapping_argument, shown, text_argument
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.data_classes import replace
from lakefmt._core.producers.stream.options import FlushMode, NamedStreamSettings
from lakefmt._core.storage.open import location_text, open_store
from lakefmt._core.table import Table, create_table, open_table
from lakefmt._core.timeline.store import PROPERTIES
from lakefmt.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidInputError,
    LakefmtError,
    NotFoundError,
    StorageError,
    TableNotFound,
    UnsupportedError,
)
from lakefmt.errors import InternalError as BrokenInvariant
from lakefmt.realtime.errors import (
    DatabaseError,
    Error,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)
from lakefmt.realtime.rows import ConversionNotes, ConversionRules
from lakefmt.realtime.statements import (
    SQL_TYPES,
    CreateTable,
    DropTable,
    Select,
    SqlField,
    SqlKind,
    TableName,
    arrow_type,
    decode_types,
    encode_types,
    parse_statement,
)
from lakefmt.realtime.stream import CZSessionOptions, RealtimeOperation, RealtimeStream

__all__ = [
    "Connection",
    "Cursor",
    "FolderCatalog",
    "TableCatalog",
    "as_python",
    "connect",
    "conversion_rules",
    "split_properties",
    "typed_columns",
]

_LOG: Final = logging.getLogger("lakefmt.realtime")

#: A name becomes a part of a path, so it must not leave the folder.
_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_$-]{0,254}", re.ASCII)


@runtime_checkable
class TableCatalog(Protocol):
    """Says where a table is. A program may hand its own to ``connect(catalog=…)``."""

    def location(self, schema: str, table: str) -> str:
        """Return the path or URL of a table, whether it exists or not."""


class FolderCatalog:
    """Tables in folders: ``<base path>/<schema>/<table>``.

    Args:
        base_path: a local path or any fsspec URL.

    Example:
        >>> FolderCatalog("s3://lake/tables/").location("sales", "orders")
        's3://lake/tables/sales/orders'
    """

    def __init__(self, base_path: str) -> None:
        self._base = base_path.rstrip("/") or "/"

    def location(self, schema: str, table: str) -> str:
        """Return the path or URL of a table.

        Raises:
            ProgrammingError: a name has characters other than letters, digits, ``_``, ``-`` and ``$``.
        """
        for what, name in (("schema", schema), ("table", table)):
            if not _SAFE_NAME.fullmatch(name):
                raise ProgrammingError(f"{shown(name)} is no name of a {what}: letters, digits, _, - and $ are allowed")
        return f"{self._base}/{schema}/{table}"


_CONVERSION_PREFIX: Final = "lakefmt.realtime."
#: Keys that the SDK's client reads and that mean nothing here.
_SDK_PROPERTIES: Final = frozenset(
    {
        "client.rpc.retry.times",
        "client.rpc.retry.interval.ms",
        "arrow.row.format.check",
        "mutation.buffer.memory.strict.mode",
        "row.pool.support",
        "row.pool.max.size",
        "arrow.compression.type",
        "arrow.compression.level",
    }
)


def split_properties(properties: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """Return the settings of conversions, and those of commits; the SDK's own are dropped with a debug line.

    Example:
        >>> split_properties({"lakefmt.realtime.json": "validate", "row.pool.support": True})
        ({'lakefmt.realtime.json': 'validate'}, {})
    """
    conversion = {key: value for key, value in properties.items() if key.startswith(_CONVERSION_PREFIX)}
    unused = sorted(_SDK_PROPERTIES & properties.keys())
    if unused:
        _LOG.debug("properties %s mean nothing here: ignored", ", ".join(unused))
    return conversion, {
        key: value for key, value in properties.items() if key not in conversion and key not in _SDK_PROPERTIES
    }


def conversion_rules(properties: Mapping[str, object], table: str) -> ConversionRules:
    """Return how values become what a table stores.

    Args:
        properties: settings whose names begin with ``lakefmt.realtime.``.
        table: its name, for log lines.

    Raises:
        InvalidInputError: a setting is unknown or has another value than those it takes.
    """
    settings = resolve_settings(properties)

    def on_naive(zone: str) -> None:
        _LOG.warning("table %s: a TIMESTAMP_LTZ without a zone is taken in %s", table, zone)

    return ConversionRules(
        zone=_time_zone(settings.text("lakefmt.realtime.time.zone")),
        refuse_overlong=settings.text("lakefmt.realtime.overlong") == "refuse",
        validate_json=settings.text("lakefmt.realtime.json") == "validate",
        ignore_extra=settings.text("lakefmt.realtime.extra.fields") == "ignore",
        notes=ConversionNotes(on_naive=on_naive),
    )


def _time_zone(name: str | None) -> tzinfo:
    if name is None or name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInputError(
            f"lakefmt.realtime.time.zone: {name!r} is no time zone, such as Asia/Shanghai"
        ) from None


def typed_columns(rows: pa.Table, fields: Sequence[SqlField]) -> pa.Table:
    """Return rows whose columns have the types that their SQL types mean.

    A TIMESTAMP_NTZ loses the zone that it is stored with, and an INTERVAL_DAY_TIME becomes a duration.
    """
    columns = [_typed_column(column, field) for column, field in zip(rows.columns, fields, strict=True)]
    return pa.Table.from_arrays(columns, names=rows.column_names)


def _typed_column(column: pa.ChunkedArray, field: SqlField) -> pa.ChunkedArray:
    if field.type.kind is SqlKind.TIMESTAMP_NTZ and pt.is_timestamp(column.type) and column.type.tz:
        return column.cast(pa.timestamp(column.type.unit))
    if field.type.kind is SqlKind.INTERVAL_DAY_TIME and pt.is_int64(column.type):
        return column.cast(pa.duration("us"))
    return column


def as_python(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Return rows as tuples of Python values; maps as dicts."""
    columns = []
    for column in rows.columns:
        values = column.to_pylist()
        if pt.is_map(column.type):
            values = [None if value is None else dict(value) for value in values]
        columns.append(values)
    return list(zip(*columns, strict=True))


_DATABASE_ERRORS: Final[tuple[tuple[type[LakefmtError], type[DatabaseError]], ...]] = (
    (NotFoundError, ProgrammingError),
    (AlreadyExistsError, ProgrammingError),
    (InvalidInputError, ProgrammingError),
    (UnsupportedError, NotSupportedError),
    (ConflictError, OperationalError),
    (StorageError, OperationalError),
    (BrokenInvariant, InternalError),
)


class Cursor:
    """Runs statements and hands out their rows (PEP 249); made by ``connection.cursor``."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        #: Rows that `fetchmany` returns when it is not told.
        self.arraysize = 100
        self._closed = False
        self._rows: pa.Table | None = None
        self._fields: tuple[SqlField, ...] = ()
        self._next = 0

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def execute(
        self, operation: str, parameters: object = None, binding_params: Sequence[object] | None = None
    ) -> Cursor:
        """Run a statement: CREATE TABLE, DROP TABLE, or SELECT of columns or COUNT(*) from one table.

        Args:
            operation: the statement.
            parameters: values for its question marks, as a list or tuple.
            binding_params: the same, under the SDK's name.

        Raises:
            NotSupportedError: it is another statement.
            ProgrammingError: it is wrong, or names what does not exist.
            OperationalError: storage or another writer is in the way.
        """
        self._check_open()
        self._rows, self._fields, self._next = None, (), 0
        values = binding_params if binding_params is not None else parameters
        if values is not None and not isinstance(values, (list, tuple)):
            # The SDK's second argument holds hints to its engine.
            values = None
        statement = parse_statement(operation, values)
        try:
            if isinstance(statement, CreateTable):
                self.connection.run_creation(statement)
            elif isinstance(statement, DropTable):
                self.connection.run_drop(statement)
            else:
                self._select(statement)
        except Error:
            raise
        except LakefmtError as error:
            error_class = next((to for of, to in _DATABASE_ERRORS if isinstance(error, of)), DatabaseError)
            raise error_class(str(error)) from error
        return self

    def executemany(self, operation: str, seqparams: Sequence[Sequence[object]] = ()) -> Cursor:
        """Run a statement once for each sequence of values; the rows of the last one can be fetched."""
        for values in seqparams:
            self.execute(operation, list(values))
        return self

    def _select(self, statement: Select) -> None:
        table, fields = self.connection.open_for_reading(statement.table)
        by_name = {field.name: field for field in fields}
        names_and_aliases = (
            [(field.name, field.name) for field in fields] if statement.columns is None else statement.columns
        )
        missing = [name for name, _ in names_and_aliases if name not in by_name]
        if missing:
            raise ProgrammingError(
                f"table {statement.table.name!r} has no column {missing[0]!r}: it has {', '.join(by_name)}"
            )
        if statement.count is not None:
            smallest = [fields[0].name]
            number = self.connection.read(table, smallest, statement.where).num_rows
            self._rows = pa.table({"count": pa.array([number], pa.int64())}).rename_columns([statement.count])
            self._fields = ()
            return
        columns = list(dict.fromkeys(name for name, _ in names_and_aliases))
        rows = self.connection.read(table, columns, statement.where)
        selection = pa.Table.from_arrays(
            [rows.column(name) for name, _ in names_and_aliases], names=[alias for _, alias in names_and_aliases]
        )
        self._fields = tuple(by_name[name] for name, _ in names_and_aliases)
        self._rows = typed_columns(selection, self._fields)

    def _check_open(self) -> None:
        if self._closed or self.connection.closed:
            raise InterfaceError("the cursor or its connection is closed")

    def _result(self) -> pa.Table:
        self._check_open()
        if self._rows is None:
            raise ProgrammingError("no result: execute a SELECT first")
        return self._rows

    @property
    def rowcount(self) -> int:
        """The rows of the result; -1 when there is none."""
        return -1 if self._rows is None else int(self._rows.num_rows)

    @property
    def description(self) -> tuple[tuple[Any, ...], ...] | None:
        """One tuple per column of the result, name and SQL type first (PEP 249); None when there is none."""
        if self._rows is None:
            return None
        types = [str(field.type) for field in self._fields] or ["INT64"]
        nullable = [field.nullable for field in self._fields] or [False]
        names = self._rows.column_names
        return tuple(
            (name, *rest) for name, *rest in zip(names, types, *[[None] * len(names)] * 4, nullable, strict=True)
        )

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, None behind the last one."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next rows, as many as there are up to `size`."""
        result = self._result()
        num_rows = max(0, self.arraysize if size is None else size)
        part = result.slice(self._next, num_rows)
        self._next += part.num_rows
        return as_python(part)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows that were not fetched yet."""
        return self.fetchmany(self._result().num_rows)

    def fetch_arrow(self) -> pa.Table:
        """Return the result as an Arrow table."""
        return self._result()

    def fetch_pandas(self) -> Any:
        """Return the result as a pandas data frame."""
        return self._result().to_pandas()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while rows := self.fetchmany():
            yield from rows

    def setinputsizes(self, sizes: object) -> None:
        """Do nothing (PEP 249)."""

    def setoutputsize(self, size: object, column: object = None) -> None:
        """Do nothing (PEP 249)."""

    def close(self) -> None:
        """End the cursor; its rows are gone."""
        self._closed = True
        self._rows = None


_METADATA_FOLDER: Final = ".hoodie"


def connect(
    *,
    base_path: str | os.PathLike[str] | None = None,
    catalog: TableCatalog | None = None,
    schema: str = "default",
    storage_options: Mapping[str, object] | None = None,
    table_options: Mapping[str, object] | None = None,
    properties: Mapping[str, object] | None = None,
    include_uncommitted: bool = True,
    username: object = None,
    password: object = None,
    service: object = None,
    instance: object = None,
    workspace: object = None,
    vcluster: object = None,
    protocol: object = None,
    **ignored: object,
) -> Connection:
    """Open a connection to the tables of a folder or a catalog; all arguments by keyword.

    Args:
        base_path: the folder that holds a folder per schema; a local path or any fsspec URL.
        catalog: instead, an object whose ``location(schema, table)`` says where a table is.
        schema: where tables are that a call names without one.
        storage_options: credentials and settings of the store; never kept in a table.
        table_options: further arguments of ``create_table`` for tables that a cursor makes, such as
            ``{"table_type": "mor"}``.
        properties: settings of every stream of the connection (docs/realtime.md).
        include_uncommitted: whether a cursor's SELECT sees rows that are flushed and not committed yet.
        username: as the SDK has it, ignored; so are `password`, `service`, `instance`, `workspace`, `vcluster`,
            `protocol` and what else is given.
        password: see `username`.
        service: see `username`.
        instance: see `username`.
        workspace: see `username`.
        vcluster: see `username`.
        protocol: see `username`.
        **ignored: see `username`.

    Raises:
        InvalidInputError: neither or both of `base_path` and `catalog` are given.

    Example:
        >>> connection = connect(base_path="memory://doc-realtime", schema="sales")
        >>> _ = connection.cursor().execute("CREATE TABLE orders (id STRING NOT NULL, PRIMARY KEY (id))")
        >>> connection.cursor().execute("SELECT COUNT(*) FROM orders").fetchone()
        (0,)
    """
    unused_arguments = {
        "username": username,
        "password": password,
        "service": service,
        "instance": instance,
        "workspace": workspace,
        "vcluster": vcluster,
        "protocol": protocol,
        **ignored,
    }
    unused = sorted(name for name, value in unused_arguments.items() if value is not None)
    if unused:
        # Names only: values may be secrets.
        _LOG.debug("connect needs no %s: ignored", ", ".join(unused))
    if (base_path is None) == (catalog is None):
        raise InvalidInputError("give either base_path= or catalog=")
    check_texts(schema=schema)
    if catalog is None:
        catalog = FolderCatalog(location_text(base_path))
    elif not isinstance(catalog, TableCatalog):
        raise InvalidInputError(f"a catalog has a method location(schema, table), and {shown(catalog)} has none")
    return Connection(
        catalog,
        schema,
        storage_options=storage_options,
        table_options=mapping_argument(table_options, "table_options"),
        properties=mapping_argument(properties, "properties"),
        include_uncommitted=include_uncommitted,
    )


class Connection:
    """The tables of a catalog, as :func:`connect` opens it."""

    def __init__(
        self,
        catalog: TableCatalog,
        schema: str,
        *,
        storage_options: Mapping[str, object] | None,
        table_options: Mapping[str, object],
        properties: Mapping[str, object],
        include_uncommitted: bool,
    ) -> None:
        self._catalog = catalog
        self._schema = schema
        self._storage_options = storage_options
        self._table_options = table_options
        self._properties = properties
        self._include_uncommitted = include_uncommitted
        self._closed = False
        self._cursors: WeakSet[Cursor] = WeakSet()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Connection(schema={self._schema!r})"

    @property
    def closed(self) -> bool:
        """Whether the connection was closed."""
        return self._closed

    def cursor(self) -> Cursor:
        """Return a new cursor."""
        self._check_open()
        cursor = Cursor(self)
        self._cursors.add(cursor)
        return cursor

    def commit(self) -> None:
        """Do nothing (PEP 249): a stream commits by its own interval."""
        self._check_open()

    def close(self) -> None:
        """Close the connection and its cursors. Streams stay open: each is closed by its own ``close``."""
        self._closed = True
        for cursor in list(self._cursors):
            cursor.close()

    def get_schema(self) -> str:
        """Return the schema where tables are that a call names without one."""
        return self._schema

    def use_schema(self, schema: str) -> None:
        """Change the schema where tables are that a call names without one."""
        check_texts(schema=schema)
        self._schema = schema

    def use_workspace(self, workspace: str) -> None:
        """Accept a workspace; without effect."""

    def use_vcluster(self, vcluster: str) -> None:
        """Accept a virtual cluster; without effect."""

    def use_http(self) -> None:
        """Accept the SDK's call; without effect."""

    def create_bulkload_stream(self, **_: object) -> None:
        """Refuse: ``Table.bulk_insert`` loads large batches.

        Raises:
            NotSupportedError: always.
        """
        raise NotSupportedError("there are no bulk-load streams: Table.bulk_insert loads large batches")

    def get_bulkload_stream(self, *_: object, **__: object) -> None:
        """Refuse, as :meth:`create_bulkload_stream`.

        Raises:
            NotSupportedError: always.
        """
        self.create_bulkload_stream()

    def open_table(self, table: str, schema: str | None = None) -> Table:
        """Return a table of the connection with lakefmt's own interface.

        Args:
            table: its name.
            schema: None: the connection's.

        Raises:
            TableNotFound: there is none.
        """
        self._check_open()
        return open_table(self._location(TableName(schema, table)), storage_options=self._storage_options)

    def get_realtime_stream(
        self,
        operate: RealtimeOperation | str = RealtimeOperation.CDC,
        schema: str | None = None,
        table: str | None = None,
        options: CZSessionOptions | None = None,
        tablet: int = 1,
        **call: Unpack[NamedStreamSettings],
    ) -> RealtimeStream:
        """Open a stream of rows into a table.

        Args:
            operate: CDC for tables with a key; APPEND_ONLY for tables without one, which take CDC, too.
            schema: None: the connection's.
            table: the table's name.
            options: made by :class:`RealtimeOptionsBuilder`; None: the defaults. They are never changed.
            tablet: ignored.
            **call: further arguments of ``Table.open_stream``, such as ``writer_id``.

        Raises:
            TableNotFound: there is none.
            InvalidInputError: the operation does not fit the table, or an option is not valid.
            UnsupportedFeature: a column has a type that rows cannot hold.
        """
        operation = _parse_operation(operate)
        if not table:
            raise InvalidInputError("table= names the table of a stream")
        session_options = CZSessionOptions.default() if options is None else options
        if not isinstance(session_options, CZSessionOptions):
            raise InvalidInputError(f"options are made by RealtimeOptionsBuilder, and these are {shown(options)}")
        opened = self.open_table(table, schema)
        config = opened.client.load().config
        keyed = bool(config.record_key_fields)
        _check_operation(operation, table, keyed=keyed)
        conversion, rest = split_properties({**self._properties, **session_options.properties})
        rules = conversion_rules(conversion, table)
        sql_types = config.properties.get(SQL_TYPES)
        # Refused here rather than by the first row.
        decode_types(sql_types, opened.schema)
        options_used = replace(session_options, properties=rest)
        if keyed and session_options.flush_mode is FlushMode.AUTO_FLUSH_BACKGROUND:
            _LOG.info("table %s has a key: apply writes a full buffer itself (AUTO_FLUSH_SYNC)", table)
            options_used = replace(options_used, flush_mode=FlushMode.AUTO_FLUSH_SYNC)
        native = opened.open_stream(operation="upsert" if keyed else "append", options=options_used, **call)
        return RealtimeStream(native, table, sql_types, rules, session_options)

    # ------------------------------------------------------------------------------------- what a cursor asks for

    def run_creation(self, statement: CreateTable) -> None:
        """Create the table of a statement.

        Raises:
            TableExists: there is one, and the statement does not say IF NOT EXISTS.
        """
        self._check_open()
        columns = pa.schema(
            [pa.field(each.name, arrow_type(each.type, each.name), each.nullable) for each in statement.columns]
        )
        options = {"properties": {}, **self._table_options}
        properties = {
            **mapping_argument(options.pop("properties"), "properties"),
            SQL_TYPES: encode_types(statement.columns),
        }
        create_table(
            self._location(statement.table),
            schema=columns,
            record_key=list(statement.key) or None,
            partition_by=list(statement.partitions) or None,
            properties={name: str(value) for name, value in properties.items()},
            storage_options=self._storage_options,
            if_exists="open" if statement.if_not_exists else "error",
            **options,  # type: ignore[arg-type]
        )

    def run_drop(self, statement: DropTable) -> None:
        """Remove the table of a statement and everything below its path.

        Its properties go first, so that no reader opens it any more, and its metadata last: a drop that was interrupted
        is finished by the next one.

        Raises:
            TableNotFound: there is none, and the statement does not say IF EXISTS.
        """
        self._check_open()
        store = open_store(self._location(statement.table), self._storage_options)
        if store.info(PROPERTIES) is None and _METADATA_FOLDER not in store.list_directories():
            if statement.if_exists:
                return
            raise TableNotFound(f"there is no table at {store.url}")
        store.delete([PROPERTIES])
        for directory in store.list_directories():
            if directory != _METADATA_FOLDER:
                store.delete_tree(directory)
        store.delete([each.name for each in store.list(recursive=False)])
        store.delete_tree(_METADATA_FOLDER)

    def open_for_reading(self, name: TableName) -> tuple[Table, tuple[SqlField, ...]]:
        """Return a table and the SQL types of its columns."""
        self._check_open()
        table = open_table(self._location(name), storage_options=self._storage_options)
        return table, decode_types(table.client.load().config.properties.get(SQL_TYPES), table.schema)

    def read(self, table: Table, columns: Sequence[str], where: str | None) -> pa.Table:
        """Return rows of a table; those that are flushed and not committed among them, unless the connection says no."""
        return table.read(list(columns), where, include_uncommitted=self._include_uncommitted)

    def _location(self, name: TableName) -> str:
        location = self._catalog.location(self._schema if name.schema is None else name.schema, name.name)
        return text_argument(location, "catalog.location(…)")

    def _check_open(self) -> None:
        if self._closed:
            raise InterfaceError("the connection is closed")


def _parse_operation(operation: RealtimeOperation | str) -> RealtimeOperation:
    try:
        return RealtimeOperation(str(operation).lower())
    except ValueError:
        raise InvalidInputError(f"{shown(operation)} is no operation of a stream: APPEND_ONLY and CDC are") from None


def _check_operation(operation: RealtimeOperation, table: str, *, keyed: bool) -> None:
    if keyed and operation is RealtimeOperation.APPEND_ONLY:
        raise InvalidInputError(
            f"table {table!r} has a key, and APPEND_ONLY is for tables without one: open the stream with "
            "operate=RealtimeOperation.CDC"
        )
