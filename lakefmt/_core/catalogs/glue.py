"""AWS Glue as a catalog (docs/catalogs.md). Credentials come from where botocore finds them, never from settings.

botocore alone is asked for, as for locks: boto3 wants another release of it than the client of S3 takes.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from lakefmt._core.catalogs.entries import CatalogColumn, CatalogPartition, CatalogTable, request_batches
from lakefmt._core.storage.remote_clients import ask_service, import_extra
from lakefmt.errors import StorageError

__all__ = ["GlueCatalog", "open_glue_catalog"]

_NEEDS: Final = "AWS Glue"
_EXTERNAL: Final = "EXTERNAL_TABLE"
#: Glue accepts at most so many partitions in a request that adds or updates them, and in one that deletes them.
_CHANGED, _DROPPED = 100, 25
#: The fields of an answer that an update may send back; Glue sets the others.
_OF_TABLE: Final = (
    "Name",
    "Description",
    "Owner",
    "LastAccessTime",
    "LastAnalyzedTime",
    "Retention",
    "StorageDescriptor",
    "PartitionKeys",
    "ViewOriginalText",
    "ViewExpandedText",
    "TableType",
    "Parameters",
    "TargetTable",
)
_OF_PARTITION: Final = ("Values", "LastAccessTime", "StorageDescriptor", "Parameters", "LastAnalyzedTime")
_Record = Mapping[str, Any]


class GlueCatalog:
    """Glue, through a client of botocore.

    Args:
        client: of the service ``glue``.
        account: whose catalog is meant; None: that of the credentials.
        keeps_versions: whether Glue keeps the older version of an entry that is changed.
    """

    def __init__(self, client: Any, account: str | None = None, *, keeps_versions: bool = False) -> None:
        self._client = client
        self._account = {} if account is None else {"CatalogId": account}
        self._keeps_versions = keeps_versions

    @property
    def what(self) -> str:
        """The name of the catalog in messages: Glue and its region."""
        return f"AWS Glue in {self._client.meta.region_name}"

    def has_database(self, database: str) -> bool:
        """Return whether Glue has the database."""
        return self._ask("get_database", unless="EntityNotFoundException", Name=database) is not None

    def create_database(self, database: str) -> None:
        """Create a database."""
        described = {"Name": database, "Description": "made by lakefmt"}
        self._ask("create_database", unless="AlreadyExistsException", DatabaseInput=described)

    def load_table(self, database: str, name: str) -> CatalogTable | None:
        """Return the entry of a table; None: Glue has none."""
        answer = self._ask("get_table", unless="EntityNotFoundException", DatabaseName=database, Name=name)
        return None if answer is None else _table_of(answer["Table"])

    def create_table(self, table: CatalogTable) -> None:
        """Create the entry of an external table."""
        self._ask(
            "create_table", unless="AlreadyExistsException", DatabaseName=table.database, TableInput=_input_of(table)
        )

    def replace_table(self, table: CatalogTable) -> None:
        """Replace the entry."""
        self._ask(
            "update_table",
            DatabaseName=table.database,
            TableInput=_input_of(table),
            SkipArchive=not self._keeps_versions,
        )

    def list_tables(self, database: str | None = None) -> list[CatalogTable]:
        """Return the entries of all tables."""
        databases = [database] if database else [each["Name"] for each in self._pages("get_databases", "DatabaseList")]
        pages = (self._pages("get_tables", "TableList", DatabaseName=each) for each in databases)
        return [_table_of(record) for page in pages for record in page]

    def list_partitions(self, table: CatalogTable) -> list[CatalogPartition]:
        """Return all partitions of a table."""
        where = {"DatabaseName": table.database, "TableName": table.name}
        return [_partition_of(record) for record in self._pages("get_partitions", "Partitions", **where)]

    def add_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Add partitions; skip those that exist."""
        inputs = [_partition_input(table, partition) for partition in partitions]
        for batch in request_batches(inputs, _CHANGED):
            self._batch("batch_create_partition", table, "AlreadyExistsException", PartitionInputList=batch)

    def replace_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Replace the entries of partitions."""
        entries = [
            {"PartitionValueList": [*partition.values], "PartitionInput": _partition_input(table, partition)}
            for partition in partitions
        ]
        for batch in request_batches(entries, _CHANGED):
            self._batch("batch_update_partition", table, "", Entries=batch)

    def drop_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Drop the entries of partitions; their files stay."""
        values = [{"Values": [*partition.values]} for partition in partitions]
        for batch in request_batches(values, _DROPPED):
            self._batch("batch_delete_partition", table, "EntityNotFoundException", PartitionsToDelete=batch)

    def close(self) -> None:
        """The client is shared, and ends with the process."""

    # ----------------------------------------------------------------------------------------------------- the calls

    def _ask(self, call: str, *, unless: str = "", **arguments: Any) -> _Record | None:
        """Return the answer of a call; None: it raised `unless`."""

        def act() -> _Record | None:
            try:
                answer: _Record = getattr(self._client, call)(**self._account, **arguments)
            except self._client.exceptions.ClientError as error:
                if unless and error.response["Error"]["Code"] == unless:
                    return None
                raise
            return answer

        return ask_service(self.what, f"ask for {call} of", act)

    def _batch(self, call: str, table: CatalogTable, fine: str, **arguments: Any) -> None:
        """Call Glue for several partitions; raise the error of a partition unless it is `fine`."""
        answer = self._ask(call, DatabaseName=table.database, TableName=table.name, **arguments) or {}
        for error in answer.get("Errors") or []:
            detail = error.get("ErrorDetail") or {}
            code = str(detail.get("ErrorCode"))
            if code != fine:
                message = str(detail.get("ErrorMessage"))[:200]
                raise StorageError(f"{self.what} failed in {call}: {code}: {message}", transient=True)

    def _pages(self, call: str, key: str, **arguments: Any) -> Iterator[_Record]:
        token: dict[str, str] = {}
        while True:
            answer = self._ask(call, **arguments, **token) or {}
            yield from answer.get(key) or []
            if not answer.get("NextToken"):
                return
            token = {"NextToken": answer["NextToken"]}


def open_glue_catalog(region: str | None, account: str | None = None, *, keeps_versions: bool = False) -> GlueCatalog:
    """Return Glue's catalog in a region.

    Args:
        region: None: that of the environment or the profile.
        account: as for :class:`GlueCatalog`, and ``keeps_versions``.

    Raises:
        UnsupportedFeature: the package botocore is missing.
        StorageError: no client can be made.
    """
    load: Callable[[], Any] = functools.partial(importlib.import_module, "botocore.session")
    session = import_extra(load, _NEEDS, "glue").get_session()

    def make() -> Any:
        where = region or session.get_config_variable("region") or "us-east-1"
        return session.create_client("glue", region_name=where)

    return GlueCatalog(ask_service(_NEEDS, "open", make), account, keeps_versions=keeps_versions)


# ------------------------------------------------------------------------------------------------------------- records


def _columns_of(records: Sequence[_Record] | None) -> tuple[CatalogColumn, ...]:
    return tuple(
        CatalogColumn(each["Name"], each.get("Type") or "", each.get("Comment") or "") for each in records or []
    )


def _table_of(record: _Record) -> CatalogTable:
    storage = record.get("StorageDescriptor") or {}
    decoder = storage.get("SerdeInfo") or {}
    return CatalogTable(
        database=record.get("DatabaseName") or "",
        name=record["Name"],
        location=storage.get("Location") or "",
        columns=_columns_of(storage.get("Columns")),
        partition_keys=_columns_of(record.get("PartitionKeys")),
        input_format=storage.get("InputFormat") or "",
        output_format=storage.get("OutputFormat") or "",
        serde=decoder.get("SerializationLibrary") or "",
        serde_properties=decoder.get("Parameters") or {},
        properties=record.get("Parameters") or {},
        is_external=record.get("TableType") == _EXTERNAL,
        record=record,
    )


def _input_of(table: CatalogTable) -> dict[str, Any]:
    record = table.record if isinstance(table.record, Mapping) else {}
    return {
        **{key: record[key] for key in _OF_TABLE if key in record},
        "Name": table.name,
        "TableType": _EXTERNAL,
        "Parameters": {**table.properties},
        "PartitionKeys": [*map(_column_record, table.partition_keys)],
        "StorageDescriptor": _storage_of(record.get("StorageDescriptor") or {}, table, table.location),
    }


def _storage_of(storage: _Record, table: CatalogTable, location: str) -> dict[str, Any]:
    decoder = storage.get("SerdeInfo") or {}
    return {
        **storage,
        "Columns": [*map(_column_record, table.columns)],
        "Location": location,
        "InputFormat": table.input_format,
        "OutputFormat": table.output_format,
        "SerdeInfo": {
            **decoder,
            "SerializationLibrary": table.serde,
            "Parameters": {**table.serde_properties},
        },
    }


def _column_record(column: CatalogColumn) -> dict[str, str]:
    record = {"Name": column.name, "Type": column.data_type}
    return {**record, "Comment": column.comment} if column.comment else record


def _partition_of(record: _Record) -> CatalogPartition:
    storage = record.get("StorageDescriptor") or {}
    return CatalogPartition(
        tuple(record["Values"]),
        storage.get("Location") or "",
        _columns_of(storage.get("Columns")),
        storage.get("InputFormat") or "",
        record,
    )


def _partition_input(table: CatalogTable, partition: CatalogPartition) -> dict[str, Any]:
    record = partition.record if isinstance(partition.record, Mapping) else {}
    return {
        **{key: record[key] for key in _OF_PARTITION if key in record},
        "Values": [*partition.values],
        "StorageDescriptor": _storage_of(record.get("StorageDescriptor") or {}, table, partition.location),
    }
