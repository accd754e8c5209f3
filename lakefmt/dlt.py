"""A destination of dlt: its pipelines load into lakefmt tables (docs/dlt.md). Needs ``lakefmt[dlt]``.

``dlt.pipeline("shop", destination=lakefmt.dlt.destination("/lake"))`` puts each table of the dataset at ``<base_path>/<dataset>/<table>``.
Every table of a load is one commit: appended rows are stored once however often dlt repeats a job, a replaced table changes in one step,
and merges and slowly changing dimensions read only what they change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dlt.common import json
from dlt.common.configuration import configspec
from dlt.common.destination import Destination, DestinationCapabilitiesContext
from dlt.common.destination.client import (
    DestinationClientDwhConfiguration,
    FollowupJobRequest,
    JobClientBase,
    LoadJob,
    RunnableLoadJob,
    StateInfo,
    StorageSchemaInfo,
    WithStateSync,
)
from dlt.common.destination.exceptions import DestinationTerminalException, DestinationUndefinedEntity
from dlt.common.destination.utils import resolve_merge_strategy
from dlt.common.libs.pyarrow import columns_to_arrow
from dlt.common.schema import Schema, TSchemaTables
from dlt.common.schema.utils import (
    get_active_record_timestamp,
    get_columns_names_with_prop,
    get_dedup_sort_tuple,
    get_first_column_name_with_prop,
    get_nested_tables,
    get_validity_column_names,
    is_nested_table,
)
from dlt.common.storages import ParsedLoadJobFileName
from dlt.common.storages.load_package import LoadJobInfo, load_package_state
from dlt.common.time import ensure_datetime_in_tz
from dlt.destinations.job_impl import FinalizedLoadJobWithFollowupJobs, ReferenceFollowupJobRequest

from lakefmt._core.table import Table, create_table, open_table
from lakefmt.errors import LakefmtError, TableNotFound

__all__ = ["destination", "table_hints"]


#: A table of dlt's schema with all hints filled in; dlt's own types of it do not fit its own functions.
DltTable: TypeAlias = Any
#: The hint of a dlt table that names options of its lakefmt table.
OPTIONS_HINT: Final = "x-lakefmt-options"
_OPTIONS: Final = frozenset({"table_type", "table_version", "index", "ordering", "properties"})
#: The column of a merge's source that says that its row goes.
_GOES: Final = "_lakefmt_goes"


@configspec
class LakefmtClientConfiguration(DestinationClientDwhConfiguration):
    """What a pipeline says of the destination; dlt finds values in its arguments, its files and the environment.

    Attributes:
        base_path: the folder of all datasets, local or of a store.
        storage_options: credentials of the store.
    """

    destination_type: Final[str] = dataclasses.field(  # type: ignore[misc]
        default="lakefmt.dlt.destination", init=False, repr=False, compare=False
    )
    base_path: str = None  # type: ignore[assignment]  # dlt fills it, or refuses the configuration
    storage_options: dict[str, Any] | None = None

    def data_location(self) -> str:
        """Return the folder."""
        return self.base_path

    def __str__(self) -> str:
        return self.base_path


class destination(Destination[LakefmtClientConfiguration, "LakefmtClient"]):  # noqa: N801  (dlt's destinations are small words)
    """The destination.

    Args:
        base_path: the folder of all datasets, local or of a store such as ``s3://lake``.
        storage_options: credentials of the store.
        destination_name: the name under which dlt looks for its configuration; None: ``lakefmt``.
        environment: of dlt.

    Example:
        >>> import dlt
        >>> pipeline = dlt.pipeline("doc_dlt", destination=destination("memory://doc-dlt"), dataset_name="shop")
        >>> info = pipeline.run([{"id": 1, "city": "oslo"}], table_name="trips", write_disposition="merge", primary_key="id")
        >>> open_table("memory://doc-dlt/shop/trips").count()
        1
    """

    spec = LakefmtClientConfiguration

    def __init__(
        self,
        base_path: str | None = None,
        storage_options: Mapping[str, object] | None = None,
        destination_name: str | None = None,
        environment: str | None = None,
        **more: Any,
    ) -> None:
        super().__init__(
            base_path=base_path,
            storage_options=None if storage_options is None else dict(storage_options),
            destination_name=destination_name or "lakefmt",
            environment=environment,
            **more,
        )

    def _raw_capabilities(self) -> DestinationCapabilitiesContext:
        return DestinationCapabilitiesContext(
            preferred_loader_file_format="parquet",
            supported_loader_file_formats=["parquet", "reference"],
            supported_merge_strategies=["upsert", "insert-only", "scd2"],
            supported_replace_strategies=["truncate-and-insert"],
            supports_nested_types=True,
            supports_ddl_transactions=False,
            decimal_precision=(38, 9),
            wei_precision=(38, 0),
            timestamp_precision=6,
            max_identifier_length=200,
            max_column_identifier_length=1024,
            max_query_length=8 * 1024 * 1024,
            is_max_query_length_in_bytes=False,
            max_text_data_type_length=2**31 - 1,
            is_max_text_data_type_length_in_bytes=True,
        )

    @property
    def client_class(self) -> type[LakefmtClient]:
        """Return the class of its clients."""
        return LakefmtClient


def table_hints(**options: Any) -> dict[str, Any]:
    """Return a hint for ``additional_table_hints``: how the lakefmt table of a resource is made.

    Args:
        **options: `table_type`, `table_version`, `index`, `ordering` or `properties`, as ``lakefmt.create_table`` takes them.

    Raises:
        DestinationTerminalException: an option is none of them.

    Example:
        >>> table_hints(table_type="mor", index="record")
        {'x-lakefmt-options': {'table_type': 'mor', 'index': 'record'}}
    """
    if unknown := sorted(set(options) - _OPTIONS):
        raise DestinationTerminalException(f"unknown option {unknown[0]!r}: give {', '.join(sorted(_OPTIONS))}")
    return {OPTIONS_HINT: options}


# ------------------------------------------------------------------------------------------------------------ the client


class LakefmtClient(JobClientBase, WithStateSync):
    """Makes the tables of a dataset, and the jobs that load them."""

    config: LakefmtClientConfiguration

    def __init__(
        self, schema: Schema, config: LakefmtClientConfiguration, capabilities: DestinationCapabilitiesContext
    ) -> None:
        super().__init__(schema, config, capabilities)
        self.dataset_name = config.normalize_dataset_name(schema)
        self._tables: dict[str, Table] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._tables.clear()

    # --- storage and tables ------------------------------------------------------------------------------------------

    def path_of(self, table_name: str) -> str:
        """Return where a table of the dataset lies."""
        return f"{self.config.base_path.rstrip('/')}/{self.dataset_name}/{table_name}"

    def find_table(self, table_name: str) -> Table | None:
        """Return a table of the dataset; None: it is not there."""
        if table_name not in self._tables:
            try:
                self._tables[table_name] = open_table(
                    self.path_of(table_name), storage_options=self.config.storage_options
                )
            except TableNotFound:
                return None
        return self._tables[table_name]

    def initialize_storage(self, truncate_tables: Iterable[str] | None = None) -> None:
        """Make the table of loads; tables are replaced by the commit that brings their new rows, not before."""
        self._internal_table(self.schema.loads_table_name, "load_id")

    def is_storage_initialized(self) -> bool:
        """Return whether the dataset is there."""
        return self.find_table(self.schema.loads_table_name) is not None

    def drop_storage(self) -> None:
        """Remove the tables of the schema."""
        self.drop_tables(*self.schema.tables)

    def drop_tables(self, *tables: str, delete_schema: bool = True) -> None:
        """Remove tables, files and all.

        Args:
            *tables: their names in the schema.
            delete_schema: forget the stored versions of the schema, too.
        """
        for name in tables:
            table = self.find_table(name)
            if table is not None:
                table.client.store.delete_tree("")
                del self._tables[name]
        versions = self.find_table(self.schema.version_table_name) if delete_schema else None
        if versions is not None:
            hashes = versions.read(
                columns=[self._column("version_hash")], filter=[(self._column("schema_name"), "=", self.schema.name)]
            )
            if hashes.num_rows:
                versions.delete(hashes)

    def verify_schema(
        self, only_tables: Iterable[str] | None = None, new_jobs: Iterable[ParsedLoadJobFileName] | None = None
    ) -> list[DltTable]:
        """Refuse tables that cannot be merged, before anything is stored.

        Raises:
            DestinationTerminalException: a table has no primary key, or a merge key that its strategy does not have.
        """
        given: Any = (only_tables, new_jobs)  # dlt takes None, and its types do not say so
        tables: list[DltTable] = super().verify_schema(*given)
        for table in tables:
            if table["write_disposition"] != "merge" or is_nested_table(table):
                continue
            strategy = resolve_merge_strategy(self.schema.tables, table, self.capabilities)
            if strategy == "scd2":
                continue
            if not get_columns_names_with_prop(table, "primary_key"):
                raise DestinationTerminalException(f"table {table['name']!r} needs a primary_key to be merged")
            if get_columns_names_with_prop(table, "merge_key"):
                raise DestinationTerminalException(
                    f"table {table['name']!r} has a merge_key, which only scd2 has here: rows are merged by primary_key"
                )
        return tables

    def should_truncate_table_before_load(self, table_name: str) -> bool:
        """Return False: one commit replaces all rows."""
        return False

    def _column(self, name: str) -> str:
        return self.schema.naming.normalize_identifier(name)

    def _internal_table(self, table_name: str, key: str) -> Table:
        """Return a table of dlt's own, made if it is missing."""
        return self.find_table(table_name) or self.make_table(self.prepare_load_table(table_name), [self._column(key)])

    def make_table(self, load_table: DltTable, record_key: Sequence[str]) -> Table:
        """Make the table of a table in dlt's schema.

        Args:
            load_table: the table.
            record_key: the columns of its key; empty: rows are only appended.
        """
        schema = columns_to_arrow(load_table["columns"], self.capabilities, "UTC")
        schema = pa.schema([each.with_nullable(each.name not in record_key) for each in schema])
        options: dict[str, Any] = dict(load_table.get(OPTIONS_HINT) or {})
        key_options: dict[str, Any] = {"record_key": list(record_key)} if record_key else {"kind": "append"}
        table = create_table(
            self.path_of(load_table["name"]),
            schema=schema,
            partition_by=get_columns_names_with_prop(load_table, "partition") or None,
            name=load_table["name"],
            database=self.dataset_name,
            storage_options=self.config.storage_options,
            if_exists="open",
            **key_options,
            **options,
        )
        self._tables[load_table["name"]] = table
        return table

    def fit_table(self, load_table: DltTable, record_key: Sequence[str]) -> Table:
        """Return a table with the columns of dlt's schema, made or altered if need be.

        Raises:
            DestinationTerminalException: the table has another key than its write disposition needs.
        """
        table = self.find_table(load_table["name"])
        if table is None:
            return self.make_table(load_table, record_key)
        stored = _stored_key(table)
        if record_key and stored != list(record_key):
            raise DestinationTerminalException(
                f"table {load_table['name']!r} has {f'the key {stored}' if stored else 'no key'}, and its write disposition needs "
                f"{list(record_key)}: drop the table (refresh='drop_resources'), or keep the disposition that it was made for"
            )
        names = set(table.schema.names)
        for field in columns_to_arrow(load_table["columns"], self.capabilities, "UTC"):
            if field.name not in names:
                table.alter.add_column(field.name, field.type)
        return table

    # --- schemas, states, loads --------------------------------------------------------------------------------------

    def update_stored_schema(
        self,
        only_tables: Iterable[str] | None = None,
        expected_update: TSchemaTables | None = None,
        force: bool = False,
    ) -> TSchemaTables | None:
        """Store the schema if its version is new; jobs make and alter their tables."""
        given: Any = (only_tables, expected_update, force)  # dlt takes None, and its types do not say so
        update = super().update_stored_schema(*given)
        if self.get_stored_schema_by_hash(self.schema.stored_version_hash) is None:
            values = {
                "version": self.schema.version,
                "engine_version": self.schema.ENGINE_VERSION,
                "inserted_at": datetime.now(UTC),
                "schema_name": self.schema.name,
                "version_hash": self.schema.stored_version_hash,
                "schema": json.dumps(self.schema.to_dict()),
            }
            self._store(self._internal_table(self.schema.version_table_name, "version_hash"), values)
        return update or {}

    def get_stored_schema(self, schema_name: str | None = None) -> StorageSchemaInfo | None:
        """Return the newest stored version of a schema, or of any."""
        return self._stored_schema("schema_name", schema_name)

    def get_stored_schema_by_hash(self, version_hash: str) -> StorageSchemaInfo | None:  # type: ignore[override]  # as dlt's docs say
        """Return a stored version of a schema."""
        return self._stored_schema("version_hash", version_hash)

    def _stored_schema(self, column: str, value: str | None) -> StorageSchemaInfo | None:
        table = self.find_table(self.schema.version_table_name)
        if table is None:
            return None
        rows = table.read(filter=None if value is None else [(self._column(column), "=", value)])
        row = self._newest(rows, "inserted_at")
        return None if row is None else StorageSchemaInfo.from_normalized_mapping(row, self.schema.naming)

    def get_stored_state(self, pipeline_name: str) -> StateInfo | None:
        """Return the state of a pipeline after its newest completed load.

        Raises:
            DestinationUndefinedEntity: no pipeline has loaded into the dataset.
        """
        states, loads = self.find_table(self.schema.state_table_name), self.find_table(self.schema.loads_table_name)
        if states is None or loads is None:
            raise DestinationUndefinedEntity(f"no pipeline has loaded into {self.dataset_name!r}")
        done = loads.read(columns=[self._column("load_id")], filter=[(self._column("status"), "=", 0)]).column(0)
        rows = states.read(filter=[(self._column("pipeline_name"), "=", pipeline_name)])
        load_id = self.schema.naming.normalize_identifier("_dlt_load_id")
        row = self._newest(rows.filter(pc.is_in(rows.column(load_id), done)), "_dlt_load_id")
        return None if row is None else StateInfo.from_normalized_mapping(row, self.schema.naming)

    def _newest(self, rows: pa.Table, by: str) -> dict[str, Any] | None:
        """Return the row with the largest value of a column; None: there is no row."""
        if not rows.num_rows:
            return None
        row: dict[str, Any] = rows.sort_by([(self._column(by), "descending")]).slice(0, 1).to_pylist()[0]
        return row

    def complete_load(self, load_id: str) -> None:
        """Store that a load is complete."""
        values = {
            "load_id": load_id,
            "schema_name": self.schema.name,
            "status": 0,
            "inserted_at": datetime.now(UTC),
            "schema_version_hash": self.schema.version_hash,
        }
        self._store(self._internal_table(self.schema.loads_table_name, "load_id"), values)

    def _store(self, table: Table, values: Mapping[str, object]) -> None:
        table.upsert([{self._column(name): value for name, value in values.items()}])

    # --- jobs ----------------------------------------------------------------------------------------------------------

    def create_load_job(self, table: DltTable, file_path: str, load_id: str, restore: bool = False) -> LoadJob:
        """Return a job: a file waits for the other ones of its table, which are loaded together."""
        if ReferenceFollowupJobRequest.is_reference_job(file_path):
            return LakefmtLoadJob(file_path)
        return FinalizedLoadJobWithFollowupJobs(file_path)

    def create_table_chain_completed_followup_jobs(
        self,
        table_chain: Sequence[DltTable],
        completed_table_chain_jobs: Sequence[LoadJobInfo] | None = None,
    ) -> list[FollowupJobRequest]:
        """Return one job that loads all files of a table and of those nested in it."""
        paths = [job.file_path for job in completed_table_chain_jobs or ()]
        root = table_chain[0]["name"]
        first = next((path for path in paths if _table_of(path) == root), paths[0] if paths else None)
        if first is None:
            return []
        return [ReferenceFollowupJobRequest(first.replace("\\", "/").rpartition("/")[2], paths)]


def _table_of(path: str) -> str:
    return ParsedLoadJobFileName.parse(path).table_name


def _stored_key(table: Table) -> list[str]:
    spec = table.client.at(table.client.load()).key_spec()
    return [] if spec.auto_keys else list(spec.record_key_fields)


# -------------------------------------------------------------------------------------------------------------- the load


class LakefmtLoadJob(RunnableLoadJob):
    """Loads the files of a table and of those nested in it: a commit for each table, the nested ones first."""

    _job_client: LakefmtClient

    def run(self) -> None:
        """Load the files."""
        client = self._job_client
        paths: dict[str, list[str]] = {}
        for path in ReferenceFollowupJobRequest.resolve_references(self._file_path):
            paths.setdefault(_table_of(path), []).append(path)
        tables: list[DltTable] = list(get_nested_tables(client.schema.tables, self.load_table_name))
        chain = [client.prepare_load_table(each["name"]) for each in tables]
        load = _ChainLoad(client, self._load_id, chain, paths)
        # The root's rows tell a merge what changes in the tables below: they are stored last.
        for load_table in reversed(chain):
            try:
                load.run(load_table)
            except LakefmtError as error:
                if error.kind in ("input", "unsupported"):
                    raise DestinationTerminalException(str(error)) from error
                raise


class _ChainLoad:
    """A load of a table and of those nested in it.

    Args:
        client: of the dataset.
        load_id: of the load package.
        chain: the tables, the root first.
        paths: the files of each.
    """

    def __init__(
        self, client: LakefmtClient, load_id: str, chain: Sequence[DltTable], paths: Mapping[str, list[str]]
    ) -> None:
        self._client, self._load_id, self._root, self._paths = client, load_id, chain[0], paths
        self._rows: dict[str, pa.Table] = {}

    def run(self, load_table: DltTable) -> None:
        """Load the files of one table as its write disposition says."""
        disposition = load_table["write_disposition"]
        has_rows = load_table["name"] in self._paths
        if disposition == "replace":
            self._replace(load_table)
        elif disposition == "merge":
            strategy = resolve_merge_strategy(self._client.schema.tables, load_table, self._client.capabilities)
            if strategy == "scd2":
                self._keep_versions(load_table) if load_table is self._root else self._insert_only(load_table)
            elif strategy == "insert-only":
                self._insert_only(load_table)
            else:
                self._upsert(load_table)
        elif has_rows:
            self._append(load_table)

    def _read(self, load_table: DltTable) -> pa.Table:
        """Return the rows of a table's files, with the columns of its schema."""
        name = load_table["name"]
        if name not in self._rows:
            schema = columns_to_arrow(load_table["columns"], self._client.capabilities, "UTC")
            parts = [pq.read_table(path) for path in self._paths.get(name, ())]
            parts = [part for part in parts if part.num_rows]
            rows = pa.concat_tables(parts, promote_options="permissive") if parts else schema.empty_table()
            self._rows[name] = rows
        return self._rows[name]

    def _append(self, load_table: DltTable) -> None:
        table = self._client.fit_table(load_table, ())
        if stored := _stored_key(table):
            raise DestinationTerminalException(
                f"table {load_table['name']!r} has the key {stored}, and appended rows would repeat its values: keep "
                "write_disposition='merge', or drop the table (refresh='drop_resources')"
            )
        table.append(self._read(load_table), txn=(f"dlt-{self._load_id}", 1))

    def _replace(self, load_table: DltTable) -> None:
        """Replace all rows by one commit; a nested table without a file is emptied."""
        if load_table["name"] not in self._paths and self._client.find_table(load_table["name"]) is None:
            return
        table = self._client.fit_table(load_table, ())
        table.insert_overwrite_table(self._read(load_table))

    # --- merges --------------------------------------------------------------------------------------------------------

    def _key(self, load_table: DltTable) -> list[str]:
        """Return the columns of a table's key.

        Raises:
            DestinationTerminalException: it has none.
        """
        prop = "row_key" if is_nested_table(load_table) else "primary_key"
        keys = get_columns_names_with_prop(load_table, prop)
        if not keys:
            raise DestinationTerminalException(f"table {load_table['name']!r} needs a primary_key to be merged")
        return keys

    def _upsert(self, load_table: DltTable) -> None:
        """Insert, update and delete rows by key, in one commit.

        Nested rows of a root that came, and that came no longer themselves, are deleted.
        """
        is_root = load_table is self._root
        if load_table["name"] not in self._paths and self._client.find_table(load_table["name"]) is None:
            return
        keys = self._key(load_table)
        table = self._client.fit_table(load_table, keys)
        rows = _last_of_each(self._read(load_table), keys, get_dedup_sort_tuple(load_table))
        if is_root:
            goes = _marked(rows, get_first_column_name_with_prop(load_table, "hard_delete"))
            rows = rows.append_column(_GOES, goes)
        else:
            rows = self._with_orphans(table, load_table, rows, keys)
        if rows.num_rows:
            self._merge(table, rows)

    def _with_orphans(self, table: Table, load_table: DltTable, rows: pa.Table, keys: list[str]) -> pa.Table:
        """Return nested rows, and the keys of stored ones whose root came without them."""
        root_key = get_first_column_name_with_prop(load_table, "root_key")
        if root_key is None:
            raise DestinationTerminalException(
                f"table {load_table['name']!r} has no column of its root's row: set root_key=True on the resource or source"
            )
        root_rows, row_key = self._read(self._root), get_first_column_name_with_prop(self._root, "row_key")
        if row_key is None:
            raise DestinationTerminalException(
                f"table {self._root['name']!r} has no row_key, which tables nested in it need"
            )
        gone = root_rows.filter(_marked(root_rows, get_first_column_name_with_prop(self._root, "hard_delete")))
        rows = rows.filter(pc.invert(pc.is_in(rows.column(root_key), gone.column(row_key))))
        stored = table.read(columns=keys, filter=[(root_key, "in", root_rows.column(row_key).unique())])
        orphans = stored.join(rows.select(keys), keys, join_type="left anti")
        rows = rows.append_column(_GOES, pa.repeat(False, rows.num_rows))
        orphans = orphans.append_column(_GOES, pa.repeat(True, orphans.num_rows))
        return pa.concat_tables([rows, orphans], promote_options="permissive")

    def _merge(self, table: Table, rows: pa.Table) -> None:
        columns = {name: f's."{name}"' for name in rows.column_names if name != _GOES}
        merge = table.merge(rows)
        merge = merge.when_matched_delete(where=f"s.{_GOES}").when_matched(columns)
        merge.when_not_matched(columns, where=f"not s.{_GOES}").execute()

    def _insert_only(self, load_table: DltTable) -> None:
        """Insert rows whose key is not stored."""
        if load_table["name"] not in self._paths:
            return
        keys = self._key(load_table)
        table = self._client.fit_table(load_table, keys)
        rows = _last_of_each(self._read(load_table), keys, get_dedup_sort_tuple(load_table))
        if rows.num_rows:
            table.merge(rows).when_not_matched().execute()

    def _keep_versions(self, load_table: DltTable) -> None:
        """Keep a row for each version: those that came no longer are closed, new ones are opened, in one commit."""
        valid_from, valid_to = get_validity_column_names(load_table)
        version = get_first_column_name_with_prop(load_table, "x-row-version")
        if valid_from is None or valid_to is None or version is None:
            raise DestinationTerminalException(
                f"table {load_table['name']!r} has no columns of versions and their times"
            )
        table = self._client.fit_table(load_table, [version, valid_from])
        rows = _last_of_each(self._read(load_table), [version], None)
        boundary, active = self._boundary(load_table), get_active_record_timestamp(load_table)
        is_active = f'"{valid_to}" is null' if active is None else [(valid_to, "=", active)]
        stored = table.read(filter=is_active)
        closed = stored.join(rows.select([version]), version, join_type="left anti")
        merge_keys = get_columns_names_with_prop(load_table, "merge_key")
        if merge_keys:
            closed = closed.join(
                rows.select(merge_keys).group_by(merge_keys).aggregate([]), merge_keys, join_type="left semi"
            )
        opened = rows.join(stored.select([version]), version, join_type="left anti")
        closed = _with_value(closed, valid_to, boundary, table.schema)
        opened = _with_value(_with_value(opened, valid_from, boundary, table.schema), valid_to, active, table.schema)
        changed = pa.concat_tables([closed, opened], promote_options="permissive")
        if changed.num_rows:
            table.upsert(changed)

    def _boundary(self, load_table: DltTable) -> datetime:
        given = load_table.get("x-boundary-timestamp")
        moment: Any = load_package_state()["state"]["created_at"] if given is None else given
        return ensure_datetime_in_tz(moment, UTC)


def _marked(rows: pa.Table, column: str | None) -> pa.Array | pa.ChunkedArray:
    """Return which rows a column marks as deleted: true, or anything but null where it is no boolean."""
    if column is None or column not in rows.column_names:
        return pa.repeat(False, rows.num_rows)
    values = rows.column(column)
    return pc.fill_null(values, False) if pa.types.is_boolean(values.type) else pc.is_valid(values)


def _last_of_each(rows: pa.Table, keys: list[str], order: tuple[str, str] | None) -> pa.Table:
    """Return one row of each key: the last one, or the first one by an order.

    Args:
        rows: the rows.
        keys: the columns of the key.
        order: a column and ``"asc"`` or ``"desc"``, as dlt's hint `dedup_sort` says; nulls come last.
    """
    number = "_lakefmt_number"
    if order is not None:
        direction = "ascending" if order[1] == "asc" else "descending"
        rows = rows.take(pc.sort_indices(rows, sort_keys=[(order[0], direction)]))
    numbered = rows.select(keys).append_column(number, pa.array(range(rows.num_rows), pa.int64()))
    last_rows = numbered.group_by(keys).aggregate([(number, "max" if order is None else "min")])
    if last_rows.num_rows == rows.num_rows:
        return rows
    return rows.take(
        last_rows.column(last_rows.column_names.index(f"{number}_{'max' if order is None else 'min'}")).sort()
    )


def _with_value(rows: pa.Table, name: str, value: object, schema: pa.Schema) -> pa.Table:
    """Return rows with one value in a column."""
    column = pa.repeat(pa.scalar(value, schema.field(name).type), rows.num_rows)
    if name in rows.column_names:
        return rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows.append_column(name, column)
