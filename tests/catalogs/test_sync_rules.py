"""What a sync refuses, what it leaves alone, what each option says, and what follows a commit."""

from __future__ import annotations

import json
import logging
from uuid import uuid4

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.catalogs.entries import hive_columns
from lakefmt._core.catalogs.sync import catalog_tables, is_hudi
from lakefmt._core.data_classes import replace
from lakefmt.catalogs import CatalogColumn, CatalogPartition, CatalogTable, MemoryCatalog, open_catalog
from lakefmt.errors import AlreadyExistsError, InvalidInputError, NotFoundError, StorageError, UnsupportedFeature

SYNC = "hoodie.datasource.hive_sync."
ROWS = pa.table({"id": ["a", "b"], "day": ["2026/01/31", "2026/02/01"], "n": pa.array([1, 2], pa.int32())})


def trips(name, **how):
    how = {"partition_by": "day", "name": "trips", **how}
    table = lakefmt.create_table(f"memory://sync-{name}-{uuid4().hex}", schema=ROWS.schema, record_key="id", **how)
    table.upsert(ROWS)
    return table


def synced(table, options=None, catalog=None):
    catalog = catalog or MemoryCatalog()
    result = table.sync(
        catalog, options={SYNC + key if "." not in key else key: value for key, value in (options or {}).items()}
    )
    return catalog, result


# ------------------------------------------------------------------------------------------------- what is not ours


def test_an_entry_of_another_place_is_refused_and_stays():
    catalog, _ = synced(trips("place-1"))
    before = catalog.load_table("default", "trips")
    with pytest.raises(AlreadyExistsError, match="memory://sync-place-1"):
        synced(trips("place-2"), catalog=catalog)
    assert catalog.load_table("default", "trips") == before


def test_an_entry_of_another_format_or_with_other_keys_is_refused():
    table = trips("format")
    catalog, _ = synced(table)
    entry = catalog.load_table("default", "trips")
    plain = replace(entry, properties={"spark.sql.sources.provider": "parquet"}, input_format="org.apache.parquet")
    for other, said in ((plain, "no Hudi table"), (replace(entry, partition_keys=()), "partition keys are none")):
        catalog.replace_table(other)
        with pytest.raises(AlreadyExistsError, match=said):
            synced(table, catalog=catalog)
        assert catalog.load_table("default", "trips") == other


def test_partitions_and_properties_of_others_stay():
    table = trips("others")
    catalog, _ = synced(table)
    entry = catalog.load_table("default", "trips")
    catalog.replace_table(
        replace(entry, properties={**entry.properties, "owner": "me", "spark.sql.sources.schema.part.7": "old"})
    )
    foreign = CatalogPartition(("1999/01/01",), "s3://elsewhere/1999", entry.columns, entry.input_format)
    gone = CatalogPartition(("1999/01/02",), f"{entry.location}/day=1999", entry.columns, entry.input_format)
    moved = replace(catalog.list_partitions(entry)[0], location="s3://old/place")
    catalog.replace_partitions(entry, [foreign, gone, moved])
    _, result = synced(table, catalog=catalog)
    change = result.entries[0]
    assert (change.properties, change.partitions_changed, change.partitions_dropped) == (True, 1, 1)
    left = {each.values[0]: each.location for each in catalog.list_partitions(entry)}
    assert left["1999/01/01"] == "s3://elsewhere/1999"
    assert "1999/01/02" not in left
    assert left[moved.values[0]].startswith(entry.location)
    properties = catalog.load_table("default", "trips").properties
    assert properties["owner"] == "me"
    assert "spark.sql.sources.schema.part.7" not in properties


def test_a_database_is_made_only_where_that_is_wanted():
    table, catalog = trips("database"), MemoryCatalog()
    with pytest.raises(NotFoundError, match="no database db"):
        table.sync(catalog, database="db", options={f"{SYNC}auto_create_database": False})
    assert not catalog.has_database("db")
    assert table.sync(catalog, database="DB").entries[0].name == "db.trips"


# ------------------------------------------------------------------------------------------------------- the options


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, {"trips_ro": "ro", "trips_rt": "rt", "trips": "rt"}),
        ({"skip_ro_suffix": True}, {"trips": "ro", "trips_rt": "rt"}),
        ({"hoodie.meta.sync.sync_snapshot_with_table_name": False}, {"trips_ro": "ro", "trips_rt": "rt"}),
        ({"table.strategy": "RO"}, {"trips": "ro"}),
        ({"table.strategy": "rt"}, {"trips": "rt"}),
        ({"table": "Rides", "table.strategy": "RT"}, {"rides": "rt"}),
    ],
)
def test_a_merge_on_read_table_has_the_entries_that_the_strategy_says(options, names):
    table = trips("strategy", table_type="mor")
    catalog, _ = synced(table, {f"{SYNC}{k}" if not k.startswith("hoodie") else k: v for k, v in options.items()})
    formats = {"ro": "HoodieParquetInputFormat", "rt": "HoodieParquetRealtimeInputFormat"}
    found = {
        t.name: (t.input_format.rpartition(".")[2], t.serde_properties["hoodie.query.as.ro.table"])
        for t in catalog.list_tables()
    }
    assert found == {name: (formats[view], str(view == "ro").lower()) for name, view in names.items()}


def test_options_of_columns_and_properties_are_heeded():
    table = trips("columns", options={"hoodie.schema.on.read.enable": True})
    table.alter.add_column("at", pa.timestamp("us", "UTC"))
    table.alter.update_column("n", comment="how many")
    given = {
        f"{SYNC}support_timestamp": False,
        f"{SYNC}omit_metadata_fields": True,
        f"{SYNC}sync_comment": True,
        f"{SYNC}schema_string_length_thresh": 50,
        f"{SYNC}table_properties": "a=b\nc = d=e",
        f"{SYNC}serde_properties": "f=g",
        "hoodie.meta_sync.spark.version": "3.5.9",
    }
    catalog, _ = synced(table, given)
    entry = catalog.load_table("default", "trips")
    assert entry.columns == (
        CatalogColumn("id", "string"),
        CatalogColumn("n", "int", "how many"),
        CatalogColumn("at", "bigint"),
    )
    assert {key: entry.properties[key] for key in ("a", "c", "spark.sql.create.version")} == {
        "a": "b",
        "c": "d=e",
        "spark.sql.create.version": "3.5.9",
    }
    assert entry.serde_properties["f"] == "g"
    count = int(entry.properties["spark.sql.sources.schema.numParts"])
    parts = [entry.properties[f"spark.sql.sources.schema.part.{number}"] for number in range(count)]
    assert count > 3
    assert max(map(len, parts)) == 50
    assert [field["name"] for field in json.loads("".join(parts))["fields"]] == ["id", "n", "at", "day"]
    catalog, _ = synced(table, {f"{SYNC}sync_as_datasource": False})
    assert is_hudi(catalog.load_table("default", "trips"))
    assert "spark.sql.sources.provider" not in catalog.load_table("default", "trips").properties


@pytest.mark.parametrize(
    ("extractor", "url_encode", "values"),
    [
        (None, True, {"2026/01/31", "2026/02/01"}),
        ("SinglePartPartitionValueExtractor", True, {"2026/01/31", "2026/02/01"}),
        ("SlashEncodedDayPartitionValueExtractor", False, {"2026-01-31", "2026-02-01"}),
    ],
)
def test_values_are_taken_from_paths_as_the_extractor_says(extractor, url_encode, values):
    table = trips("extract", properties={"hoodie.datasource.write.partitionpath.urlencode": str(url_encode).lower()})
    options = {} if extractor is None else {f"{SYNC}partition_extractor_class": f"org.apache.hudi.hive.{extractor}"}
    catalog, _ = synced(table, options)
    (entry,) = catalog.list_tables()
    assert {each.values[0] for each in catalog.list_partitions(entry)} == values


def test_a_location_may_be_named_as_readers_name_it():
    table = trips("location")
    catalog, _ = synced(table, {"hoodie.datasource.meta.sync.base.path": "s3a://box/trips"})
    entry = catalog.load_table("default", "trips")
    assert (entry.location, entry.serde_properties["path"]) == ("s3a://box/trips", "s3a://box/trips")
    assert all(each.location.startswith("s3a://box/trips/day=") for each in catalog.list_partitions(entry))
    assert not synced(table, {"hoodie.datasource.meta.sync.base.path": "s3://box/trips"}, catalog)[1].is_change


def test_only_times_are_left_alone_where_that_is_wanted():
    table = trips("times")
    catalog, _ = synced(table)
    before = catalog.load_table("default", "trips")
    table.upsert(ROWS)
    synced(table, {"hoodie.datasource.meta_sync.condition.sync": True}, catalog)
    assert catalog.load_table("default", "trips") == before
    synced(table, {}, catalog)
    assert catalog.load_table("default", "trips") != before


def test_a_table_without_commits_or_partitions_has_an_entry():
    table = lakefmt.create_table(
        "memory://sync-empty", schema=ROWS.schema, record_key="id", name="trips", database="shop"
    )
    catalog, _ = synced(table)
    entry = catalog.load_table("shop", "trips")
    assert entry.partition_keys == ()
    assert "last_commit_time_sync" not in entry.properties


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({f"{SYNC}partition_fields": "id"}, InvalidInputError, "contradicts the table"),
        ({f"{SYNC}partition_extractor_class": "my.Own"}, UnsupportedFeature, "my.Own"),
        (
            {f"{SYNC}partition_extractor_class": "x.SlashEncodedHourPartitionValueExtractor"},
            InvalidInputError,
            "not of the form",
        ),
        ({f"{SYNC}table_properties": "nothing"}, InvalidInputError, "name=value"),
        ({f"{SYNC}mode": "jdbc"}, InvalidInputError, "hms"),
        ({f"{SYNC}create_managed_table": True}, UnsupportedFeature, "DROP TABLE"),
        ({f"{SYNC}schema_string_length_thresh": 0}, InvalidInputError, "1 or more"),
    ],
)
def test_options_that_cannot_be_heeded_are_refused_before_anything_is_made(options, error, said):
    table, catalog = trips("any"), MemoryCatalog()
    with pytest.raises(error, match=said):
        table.sync(catalog, options=options)
    assert catalog.list_tables() == []


@pytest.mark.parametrize("catalog", ["s3://box/trips", "", 7, None, "thrift://me:hunter22@host:1", "thrift://host:no"])
def test_what_is_no_catalog_is_refused_without_its_password(catalog):
    table = trips("any")
    with pytest.raises(InvalidInputError) as error:
        table.sync(catalog)
    assert "hunter22" not in str(error.value)


def test_names_that_differ_in_capitals_alone_are_refused():
    schema = pa.schema([("id", pa.string()), ("ID", pa.string())])
    with pytest.raises(InvalidInputError, match="capital letters"):
        hive_columns(schema, timestamps=True, comments=False)


# --------------------------------------------------------------------------------------------------- after a commit


@pytest.fixture
def opened(monkeypatch):
    """The catalogs that commits open, by their addresses."""
    catalogs = {}

    def open_by_address(address, settings=None):
        return catalogs.setdefault(address, MemoryCatalog())

    monkeypatch.setattr("lakefmt._core.catalogs.sync.open_catalog", open_by_address)
    return catalogs


@pytest.mark.parametrize("key", ["hoodie.datasource.hive_sync.enable", "hoodie.datasource.meta.sync.enable"])
def test_a_commit_is_followed_by_a_sync_where_that_is_asked(opened, key):
    table = trips(f"after-{key}")
    options = {key: "true", f"{SYNC}metastore.uris": "thrift://there:1", f"{SYNC}database": "db"}
    result = table.upsert(ROWS.set_column(1, "day", [["x", "y"]]), options=options)
    assert result.warnings == ()
    entry = opened["thrift://there:1"].load_table("db", "trips")
    assert entry.properties["last_commit_time_sync"] == result.instant
    assert len(opened["thrift://there:1"].list_partitions(entry)) == 4
    table.delete_partitions(["day=x"], options=options)
    assert len(opened["thrift://there:1"].list_partitions(entry)) == 3
    table.upsert(ROWS)
    assert entry.properties["last_commit_time_sync"] != table.timeline[-1].time


def test_both_catalogs_are_synced_where_both_are_named(opened):
    tools = "org.apache.hudi.hive.HiveSyncTool,org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool"
    options = {
        "hoodie.datasource.meta.sync.enable": True,
        "hoodie.meta.sync.client.tool.class": tools,
        "hoodie.datasource.meta.sync.glue.database_name": "lake",
    }
    trips("both").upsert(ROWS, options=options)
    assert opened["thrift://localhost:9083"].load_table("default", "trips")
    assert opened["glue:"].load_table("lake", "trips")


def test_a_sync_that_fails_after_a_commit_is_a_warning_of_it(opened, caplog):
    class Broken(MemoryCatalog):
        def create_table(self, table):
            raise StorageError("the catalog is away")

    opened["thrift://localhost:9083"] = Broken()
    table = trips("warning")
    result = table.upsert(ROWS, options={f"{SYNC}enable": True})
    assert [warning for warning in result.warnings if "sync to a catalog" in warning and "is away" in warning]
    assert table.timeline[-1].time == result.instant
    opened["thrift://localhost:9083"] = MemoryCatalog()
    with caplog.at_level(logging.INFO, "lakefmt.catalogs"):
        assert table.upsert(ROWS, options={f"{SYNC}enable": True}).warnings == ()
    assert any("default.trips: created" in record.getMessage() for record in caplog.records)


def test_an_unknown_tool_is_a_warning_after_the_commit(opened):
    options = {f"{SYNC}enable": True, "hoodie.meta.sync.client.tool.class": "my.Tool"}
    assert any("my.Tool" in warning for warning in trips("tool").upsert(ROWS, options=options).warnings)


# ---------------------------------------------------------------------------------------------------------- the list


def test_a_catalogs_hudi_tables_are_listed(monkeypatch):
    catalog, _ = synced(trips("list"))
    catalog.create_table(CatalogTable("default", "plain", "s3://x", ()))
    monkeypatch.setattr("lakefmt._core.catalogs.sync.open_catalog", lambda address: catalog)
    assert [table.name for table in catalog_tables("thrift://host:1")] == ["trips"]
    assert [table.name for table in catalog_tables("thrift://host:1/default")] == ["trips"]
    assert catalog_tables("glue://region/none") == []


def test_missing_packages_are_named(monkeypatch):
    import importlib

    def missing(name, package=None):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    for address, extra in (("thrift://host:1", "hive"), ("glue:", "glue")):
        with pytest.raises(UnsupportedFeature, match=rf"lakefmt\[{extra}\]"):
            open_catalog(address)
