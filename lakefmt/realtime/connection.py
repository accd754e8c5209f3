"""The connection that programs for the SDK open (effects)."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import pyarrow as pa

from lakefmt.arguments import check_texts, mapping_argument, shown, text_argument
from lakefmt.data_classes import replace
from lakefmt.errors import InvalidInputError, TableNotFound
from lakefmt.producers.stream.options import FlushMode
from lakefmt.realtime.catalog import FolderCatalog, TableCatalog
from lakefmt.realtime.errors import InterfaceError, NotSupportedError
from lakefmt.realtime.options import CZSessionOptions, RealtimeOperation
from lakefmt.realtime.settings import conversion_rules, split_properties
from lakefmt.realtime.sql_types import SQL_TYPES, SqlField, arrow_type, decode_types, encode_types
from lakefmt.realtime.statements import CreateTable, DropTable, TableName
from lakefmt.storage.open import location_text
from lakefmt.table import Table, create_table, open_table
from lakefmt.timeline.properties_store import PROPERTIES

if TYPE_CHECKING:
    from lakefmt.realtime.cursor import Cursor
    from lakefmt.realtime.stream import RealtimeStream

__all__ = ["Connection", "connect"]

_LOG: Final = logging.getLogger("lakefmt.realtime")
_METADATA: Final = ".hoodie"


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
    given = {
        "username": username,
        "password": password,
        "service": service,
        "instance": instance,
        "workspace": workspace,
        "vcluster": vcluster,
        "protocol": protocol,
        **ignored,
    }
    unused = sorted(name for name, value in given.items() if value is not None)
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
        from lakefmt.realtime.cursor import Cursor

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
        return open_table(self._place(TableName(schema, table)), storage_options=self._storage_options)

    def get_realtime_stream(
        self,
        operate: RealtimeOperation | str = RealtimeOperation.CDC,
        schema: str | None = None,
        table: str | None = None,
        options: CZSessionOptions | None = None,
        tablet: int = 1,
        **call: Any,
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
        from lakefmt.realtime.stream import RealtimeStream

        operation = _operation(operate)
        if not table:
            raise InvalidInputError("table= names the table of a stream")
        chosen = CZSessionOptions.default() if options is None else options
        if not isinstance(chosen, CZSessionOptions):
            raise InvalidInputError(f"options are made by RealtimeOptionsBuilder, and these are {shown(options)}")
        opened = self.open_table(table, schema)
        config = opened.client.load().config
        keyed = bool(config.record_key_fields)
        _check_operation(operation, table, keyed=keyed)
        conversion, rest = split_properties({**self._properties, **chosen.properties})
        rules = conversion_rules(conversion, table)
        sql_types = config.properties.get(SQL_TYPES)
        # Refused here rather than by the first row.
        decode_types(sql_types, opened.schema)
        options_used = replace(chosen, properties=rest)
        if keyed and chosen.flush_mode is FlushMode.AUTO_FLUSH_BACKGROUND:
            _LOG.info("table %s has a key: apply writes a full buffer itself (AUTO_FLUSH_SYNC)", table)
            options_used = replace(options_used, flush_mode=FlushMode.AUTO_FLUSH_SYNC)
        native = opened.open_stream(operation="upsert" if keyed else "append", options=options_used, **call)
        return RealtimeStream(native, table, sql_types, rules, chosen)

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
            self._place(statement.table),
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
        from lakefmt.storage.open import open_store

        self._check_open()
        store = open_store(self._place(statement.table), self._storage_options)
        if store.info(PROPERTIES) is None and _METADATA not in store.list_directories():
            if statement.if_exists:
                return
            raise TableNotFound(f"there is no table at {store.url}")
        store.delete([PROPERTIES])
        for directory in store.list_directories():
            if directory != _METADATA:
                store.delete_tree(directory)
        store.delete([each.name for each in store.list(recursive=False)])
        store.delete_tree(_METADATA)

    def open_for_reading(self, name: TableName) -> tuple[Table, tuple[SqlField, ...]]:
        """Return a table and the SQL types of its columns."""
        self._check_open()
        table = open_table(self._place(name), storage_options=self._storage_options)
        return table, decode_types(table.client.load().config.properties.get(SQL_TYPES), table.schema)

    def read(self, table: Table, columns: Sequence[str], where: str | None) -> pa.Table:
        """Return rows of a table; those that are flushed and not committed among them, unless the connection says no."""
        return table.read(list(columns), where, include_uncommitted=self._include_uncommitted)

    def _place(self, name: TableName) -> str:
        place = self._catalog.location(self._schema if name.schema is None else name.schema, name.name)
        return text_argument(place, "catalog.location(…)")

    def _check_open(self) -> None:
        if self._closed:
            raise InterfaceError("the connection is closed")


def _operation(given: RealtimeOperation | str) -> RealtimeOperation:
    try:
        return RealtimeOperation(str(given).lower())
    except ValueError:
        raise InvalidInputError(f"{shown(given)} is no operation of a stream: APPEND_ONLY and CDC are") from None


def _check_operation(operation: RealtimeOperation, table: str, *, keyed: bool) -> None:
    if keyed and operation is RealtimeOperation.APPEND_ONLY:
        raise InvalidInputError(
            f"table {table!r} has a key, and APPEND_ONLY is for tables without one: open the stream with "
            "operate=RealtimeOperation.CDC"
        )
