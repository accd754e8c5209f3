"""A Hive metastore as a catalog, over Thrift and without Kerberos (docs/catalogs.md).

An entry is changed as the struct that the metastore sent, so that what is not understood here stays as it is.
"""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import Any, Final

from lakefmt._core.catalogs.entries import CatalogColumn, CatalogPartition, CatalogTable
from lakefmt._core.data_classes import replace
from lakefmt._core.timeline.locks.thrift_wire import (
    Struct,
    ThriftConnection,
    flag,
    int16,
    int32,
    metastore_addresses,
    struct,
    structs,
    text,
    text_map,
    texts,
)
from lakefmt.errors import CorruptFile, StorageError

__all__ = ["HiveCatalog", "open_hive_catalog"]

_SECONDS: Final = 60.0
_EXTERNAL: Final = "EXTERNAL_TABLE"
#: Partitions of one request for their entries.
_LISTED: Final = 500


class HiveCatalog:
    """A metastore over one connection; one thread at a time."""

    def __init__(self, connection: ThriftConnection) -> None:
        self._connection = connection

    @property
    def what(self) -> str:
        """The name of the metastore in messages: its address."""
        return self._connection.what

    def has_database(self, database: str) -> bool:
        """Return whether the metastore has the database."""
        return self._ask("get_database", {1: text(database)}, missing="NoSuchObject") is not None

    def create_database(self, database: str) -> None:
        """Create a database at the metastore's default location."""
        record: Struct = {1: text(database), 2: text("made by lakefmt"), 4: text_map({})}
        self._ask("create_database", {1: struct(record)}, missing="AlreadyExists")

    def load_table(self, database: str, name: str) -> CatalogTable | None:
        """Return the entry of a table; None: the metastore has none."""
        request: Struct = {1: text(database), 2: text(name)}
        answer = self._ask("get_table_req", {1: struct(request)}, missing="NoSuchObject")
        return None if answer is None else _table_of(_fields(answer, 1))

    def create_table(self, table: CatalogTable) -> None:
        """Create the entry of an external table."""
        record = _record_of(replace(table, record={3: text(getpass.getuser()), 12: text(_EXTERNAL)}))
        self._ask("create_table", {1: struct(record)}, missing="AlreadyExists")

    def replace_table(self, table: CatalogTable) -> None:
        """Replace the entry."""
        self._ask("alter_table", {1: text(table.database), 2: text(table.name), 3: struct(_record_of(table))})

    def list_tables(self, database: str | None = None) -> list[CatalogTable]:
        """Return the entries: the metastore lists their names, and each entry is a request."""
        databases = [database] if database is not None else self._names("get_all_databases", {})
        tables = [
            self.load_table(each, name) for each in databases for name in self._names("get_all_tables", {1: text(each)})
        ]
        return [table for table in tables if table is not None]

    def list_partitions(self, table: CatalogTable) -> list[CatalogPartition]:
        """Return the partitions: the metastore lists their names, and sends the entries in batches."""
        where: Struct = {1: text(table.database), 2: text(table.name)}
        names = self._names("get_partition_names", {**where, 3: int16(-1)})
        partitions: list[CatalogPartition] = []
        for start in range(0, len(names), _LISTED):
            request: Struct = {**where, 3: texts(names[start : start + _LISTED])}
            records = self._result("get_partitions_by_names", request)
            partitions += [_partition_of(record) for record in _items(records)]
        return partitions

    def add_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Add partitions; skip those that exist."""
        request: Struct = {
            1: text(table.database),
            2: text(table.name),
            3: structs(_partition_record(table, partition) for partition in partitions),
            4: flag(True),
            5: flag(False),
        }
        self._ask("add_partitions_req", {1: struct(request)})

    def replace_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Replace the entries of partitions."""
        records = structs(_partition_record(table, partition) for partition in partitions)
        self._ask("alter_partitions", {1: text(table.database), 2: text(table.name), 3: records})

    def drop_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Drop the entries of partitions; their files stay."""
        for partition in partitions:
            values = texts(partition.values)
            request: Struct = {1: text(table.database), 2: text(table.name), 3: values, 4: flag(False)}
            self._ask("drop_partition", request, missing="NoSuchObject")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    # ----------------------------------------------------------------------------------------------------- the calls

    def _ask(self, method: str, request: Struct, missing: str = "") -> Struct | None:
        """Return the struct that a call answers with; None: it raised what `missing` names.

        The numbers of exceptions differ from call to call, their kind is told by their place in the interface.
        """
        answer = self._connection.call(method, request)
        for number, (_, value) in answer.items():
            if number == 0:
                continue
            exception_name = _EXCEPTIONS[method].get(number, "an unknown exception")
            if missing and exception_name == missing:
                return None
            reason = _string_field(value, 1) if isinstance(value, dict) else ""
            raise StorageError(f"{self.what} failed in {method}: {exception_name}: {reason[:500]}")
        result = answer.get(0, (0, {}))[1]
        return result if isinstance(result, dict) else {}

    def _result(self, method: str, request: Struct) -> Any:
        """Return the value that a call answers with, whatever its type."""
        answer = self._connection.call(method, request)
        if 0 not in answer:
            reason = next((_string_field(value, 1) for _, value in answer.values() if isinstance(value, dict)), "")
            raise StorageError(f"{self.what} failed in {method}: {reason[:500]}")
        return answer[0][1]

    def _names(self, method: str, request: Struct) -> list[str]:
        _, names = self._result(method, request)
        return [str(name) for name in names]


#: What the calls raise, by the number in their answer (the metastore's Thrift interface).
_EXCEPTIONS: Final[dict[str, dict[int, str]]] = {
    "get_database": {1: "NoSuchObject", 2: "MetaException"},
    "create_database": {1: "AlreadyExists", 2: "InvalidObject", 3: "MetaException"},
    "get_table_req": {1: "MetaException", 2: "NoSuchObject"},
    "create_table": {1: "AlreadyExists", 2: "InvalidObject", 3: "MetaException", 4: "NoSuchObject"},
    "alter_table": {1: "InvalidOperation", 2: "MetaException"},
    "add_partitions_req": {1: "InvalidObject", 2: "AlreadyExists", 3: "MetaException"},
    "alter_partitions": {1: "InvalidOperation", 2: "MetaException"},
    "drop_partition": {1: "NoSuchObject", 2: "MetaException"},
}


def open_hive_catalog(address: str) -> HiveCatalog:
    """Return the metastore at an address.

    Raises:
        InvalidInputError: the address cannot be understood, or carries a password.
        UnsupportedFeature: the package thrift is missing.
        StorageError: it does not answer.
    """
    setting = "hoodie.datasource.hive_sync.metastore.uris"
    return HiveCatalog(ThriftConnection(metastore_addresses(address, setting), _SECONDS, "a Hive metastore"))


# ------------------------------------------------------------------------------------------------------------ structs
# Table: 1 name, 2 database, 7 storage, 8 partition keys, 9 properties, 12 type. Storage: 1 columns, 2 location,
# 3 input format, 4 output format, 7 decoder. Decoder: 2 class, 3 properties. Partition: 1 values, 2 database, 3 table,
# 6 storage, 7 properties. Column: 1 name, 2 type, 3 comment.


def _fields(record: Struct, number: int) -> Struct:
    value = record.get(number, (0, None))[1]
    if not isinstance(value, dict):
        raise CorruptFile(f"an entry of the Hive metastore has no field {number}")
    return value


def _string_field(record: Struct, number: int) -> str:
    value = record.get(number, (0, ""))[1]
    return value if isinstance(value, str) else ""


def _texts_by_text(record: Struct, number: int) -> dict[str, str]:
    value = record.get(number, (0, None))[1]
    return {str(key): str(item) for key, item in value[2]} if isinstance(value, tuple) and len(value) == 3 else {}


def _items(value: Any) -> list[Struct]:
    items = value[1] if isinstance(value, tuple) and len(value) == 2 else []
    return [item for item in items if isinstance(item, dict)]


def _columns_of(record: Struct, number: int) -> tuple[CatalogColumn, ...]:
    items = _items(record.get(number, (0, None))[1])
    return tuple(
        CatalogColumn(_string_field(item, 1), _string_field(item, 2), _string_field(item, 3)) for item in items
    )


def _table_of(record: Struct) -> CatalogTable:
    storage = record.get(7, (0, {}))[1]
    decoder = storage.get(7, (0, {}))[1]
    return CatalogTable(
        database=_string_field(record, 2),
        name=_string_field(record, 1),
        location=_string_field(storage, 2),
        columns=_columns_of(storage, 1),
        partition_keys=_columns_of(record, 8),
        input_format=_string_field(storage, 3),
        output_format=_string_field(storage, 4),
        serde=_string_field(decoder, 2),
        serde_properties=_texts_by_text(decoder, 3),
        properties=_texts_by_text(record, 9),
        is_external=_string_field(record, 12) == _EXTERNAL,
        record=record,
    )


def _record_of(table: CatalogTable) -> Struct:
    record = table.record if isinstance(table.record, dict) else {}
    storage = record.get(7, (0, {}))[1]
    return {
        **record,
        1: text(table.name),
        2: text(table.database),
        7: struct(_storage_of(storage, table, table.location)),
        8: structs(map(_column_record, table.partition_keys)),
        9: text_map(table.properties),
        12: text(_EXTERNAL),
    }


def _storage_of(storage: Struct, table: CatalogTable, location: str) -> Struct:
    decoder = storage.get(7, (0, {}))[1]
    return {
        **storage,
        1: structs(map(_column_record, table.columns)),
        2: text(location),
        3: text(table.input_format),
        4: text(table.output_format),
        5: storage.get(5, flag(False)),
        6: storage.get(6, int32(-1)),
        7: struct({**decoder, 2: text(table.serde), 3: text_map(table.serde_properties)}),
        8: storage.get(8, texts([])),
        9: storage.get(9, structs([])),
        10: storage.get(10, text_map({})),
    }


def _column_record(column: CatalogColumn) -> Struct:
    record: Struct = {1: text(column.name), 2: text(column.data_type)}
    return {**record, 3: text(column.comment)} if column.comment else record


def _partition_of(record: Struct) -> CatalogPartition:
    storage = record.get(6, (0, {}))[1]
    _, values = record.get(1, (0, (0, [])))[1]
    return CatalogPartition(
        tuple(str(value) for value in values),
        _string_field(storage, 2),
        _columns_of(storage, 1),
        _string_field(storage, 3),
        record,
    )


def _partition_record(table: CatalogTable, partition: CatalogPartition) -> Struct:
    record = partition.record if isinstance(partition.record, dict) else {}
    storage = record.get(6, (0, {}))[1]
    return {
        **record,
        1: texts(partition.values),
        2: text(table.database),
        3: text(table.name),
        6: struct(_storage_of(storage, table, partition.location)),
        7: record.get(7, text_map({})),
    }
