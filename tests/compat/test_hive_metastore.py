"""A real Hive metastore holds what a sync says, and Spark with Hudi's JAR reads and syncs the same entries by name."""

from __future__ import annotations

import json
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

import lakefmt
from lakefmt.catalogs import open_catalog
from lakefmt.errors import AlreadyExistsError
from tests.catalogs.law import Model, play, steps
from tests.example_counts import examples

NAMES = {"cow": ["trips"], "mor": ["trips_ro", "trips_rt", "trips"]}
#: What a metastore, Spark or Hudi add of their own.
FOREIGN = (
    "transient_lastDdlTime",
    "numFiles",
    "totalSize",
    "numRows",
    "rawDataSize",
    "spark.sql.create.version",
    "EXTERNAL",
    "hudi_writer_version",
)
ROWS = pa.table(
    {
        "id": ["a", "b", "c"],
        "city": ["sf", "os lo", "rio"],
        "ts": pa.array([1, 2, 3], pa.int64()),
        "small": pa.array([1, None, 3], pa.int32()),
        "real": pa.array([1.5, None, 2.5], pa.float32()),
        "double": [1.5, 2.5, None],
        "yes": [True, None, False],
        "on": pa.array([1, 2, None], pa.date32()),
        "at": pa.array([1, None, 3], pa.timestamp("us", "UTC")),
        "price": pa.array([1, None, 3], pa.decimal128(12, 2)),
        "raw": pa.array([b"x", None, b""], pa.binary()),
        "tags": pa.array([["x"], [], None], pa.list_(pa.string())),
        "place": pa.array([{"lat": 1.5, "Name": "x"}, None, {"lat": None, "Name": None}]),
        "counts": pa.array([[("x", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    }
)


class DyingWire:
    """A metastore whose n-th request gets lost, before it takes effect or after."""

    def __init__(self, catalog, number, after):
        from lakefmt._core.catalogs.hive import HiveCatalog

        self.connection, self.left, self.after = catalog._connection, number, after
        self.catalog, self.what = HiveCatalog(self), catalog.what

    def call(self, method, request):
        from lakefmt.errors import StorageError

        self.left -= 1
        if self.left == 0 and not self.after:
            raise StorageError("the request got lost")
        answer = self.connection.call(method, request)
        if self.left == 0:
            raise StorageError("the answer got lost")
        return answer

    def __getattr__(self, name):
        return getattr(self.catalog, name)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_last_sync_gives_the_metastore_the_catalog_of_the_table(hive_metastore, table_type, tmp_path):
    catalog = open_catalog(hive_metastore)

    @settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
    @given(steps)
    def play_once(played):
        place, database = str(tmp_path / uuid4().hex), f"d{uuid4().hex}"
        play(Model(place, table_type), catalog, played, NAMES[table_type], database, place, DyingWire)

    play_once()
    catalog.close()


def test_what_lies_elsewhere_or_is_no_hudi_table_is_left_alone(hive_metastore, tmp_path, spark_with_metastore):
    database = f"d{uuid4().hex}"
    tables = [
        lakefmt.create_table(str(tmp_path / name), schema=ROWS.schema, record_key="id", name="trips") for name in "ab"
    ]
    tables[0].sync(hive_metastore, database=database)
    catalog = open_catalog(hive_metastore)
    before = catalog.load_table(database, "trips")
    with pytest.raises(AlreadyExistsError, match="another table named"):
        tables[1].sync(hive_metastore, database=database)
    assert catalog.load_table(database, "trips") == before
    spark_with_metastore.request(
        "sql", statements=[f"create table {database}.plain (id string) using parquet location '{tmp_path / 'a'}'"]
    )
    plain = catalog.load_table(database, "plain")
    with pytest.raises(AlreadyExistsError, match="no Hudi table"):
        tables[0].sync(hive_metastore, database=database, name="plain")
    assert catalog.load_table(database, "plain") == plain
    catalog.close()


def made(tmp_path, table_type="cow", **how):
    table = lakefmt.create_table(
        str(tmp_path / "t"),
        schema=ROWS.schema,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        name="trips",
        **how,
    )
    table.upsert(ROWS)
    return table


def ids(judge, query):
    (result,) = judge.request("sql", statements=[query])["results"]
    return sorted(tuple(row) for row in result["rows"])


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("version", [6, 8, 9])
def test_spark_reads_a_synced_table_by_name(hive_metastore, spark_with_metastore, tmp_path, version):
    database, table = f"d{uuid4().hex}", made(tmp_path, table_version=version)
    table.sync(hive_metastore, database=database)
    name = f"{database}.trips"
    assert ids(
        spark_with_metastore, f"select id, city, small, place.lat, tags[0], counts['x'] from {name} where city='sf'"
    ) == [("a", "sf", 1, 1.5, "x", 1)]
    table.upsert(ROWS.slice(0, 1).set_column(1, "city", [["berlin"]]).append_column("more", pa.array([7], pa.int64())))
    table.delete_partitions(["city=rio"])
    table.sync(hive_metastore, database=database)
    spark_with_metastore.request("sql", statements=[f"refresh table {name}"])
    assert ids(spark_with_metastore, f"select id, city, more from {name}") == [
        ("a", "berlin", 7),
        ("a", "sf", None),
        ("b", "os lo", None),
    ]
    shown = ids(spark_with_metastore, f"show partitions {name}")
    assert [row[0] for row in shown] == ["city=berlin", "city=os lo", "city=sf"]


def test_spark_reads_both_views_of_a_merge_on_read_table_by_name(hive_metastore, spark_with_metastore, tmp_path):
    database, table = f"d{uuid4().hex}", made(tmp_path, "mor", options={"hoodie.compact.inline": False})
    table.upsert(
        ROWS.slice(0, 1).set_column(3, "small", [pa.array([9], pa.int32())]).set_column(2, "ts", [pa.array([9])])
    )
    table.sync(hive_metastore, database=database)
    for suffix, expected in (("", 9), ("_rt", 9), ("_ro", 1)):
        assert ids(spark_with_metastore, f"select small from {database}.trips{suffix} where id = 'a'") == [(expected,)]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_hudis_own_sync_writes_the_same_entries(hive_metastore, spark_with_metastore, tmp_path, table_type):
    """One table, synced by Spark with Hudi's JAR after a commit of its own, and by us: the entries say the same."""
    database, table = f"d{uuid4().hex}", made(tmp_path, table_type)
    options = {
        "hoodie.datasource.hive_sync.enable": "true",
        "hoodie.datasource.hive_sync.mode": "hms",
        "hoodie.datasource.hive_sync.metastore.uris": hive_metastore,
        "hoodie.datasource.hive_sync.database": database,
        "hoodie.datasource.hive_sync.table": "by_spark",
        "hoodie.datasource.hive_sync.partition_fields": "city",
        "hoodie.datasource.hive_sync.support_timestamp": "true",
    }
    spark_with_metastore.write(table.client.store.url, ROWS.slice(0, 2), options=options)
    table.sync(hive_metastore, database=database, name="by_us")
    catalog = open_catalog(hive_metastore)
    for suffix in ("", "_ro", "_rt") if table_type == "mor" else ("",):
        theirs, ours = (catalog.load_table(database, f"{name}{suffix}") for name in ("by_spark", "by_us"))
        assert facts(ours) == facts(theirs)
        assert {p.values: p.location for p in catalog.list_partitions(ours)} == {
            p.values: p.location for p in catalog.list_partitions(theirs)
        }
    # Ours over theirs changes nothing, and theirs goes on from ours.
    before = catalog.load_table(database, "by_spark")
    result = table.sync(catalog, database=database, name="by_spark")
    assert not result.is_change, differences(before, catalog.load_table(database, "by_spark"))
    more = ROWS.slice(2, 1).set_column(1, "city", [["bergen"]])
    table.upsert(more)
    assert table.sync(catalog, database=database, name="by_us").entries[0].partitions_added == 1
    more = more.set_column(1, "city", [["trondheim"]])
    options["hoodie.datasource.hive_sync.table"] = "by_us"
    spark_with_metastore.write(table.client.store.url, more, options=options)
    assert not table.sync(catalog, database=database, name="by_us").is_change
    catalog.close()


def differences(before, after):
    """What two states of an entry say otherwise."""
    names = [name for name in type(before).__dataclass_fields__ if name != "record"]
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in names}
    return {
        name: (
            sorted(str(item) for item in set(old.items()) ^ set(new.items())) if isinstance(old, dict) else (old, new)
        )
        for name, (old, new) in pairs.items()
        if old != new
    }


def facts(entry):
    """What an entry says, but for its name and what its makers say of themselves; Spark's schema as one value."""
    parts = [
        entry.properties[f"spark.sql.sources.schema.part.{n}"]
        for n in range(int(entry.properties["spark.sql.sources.schema.numParts"]))
    ]
    rest = {
        key: value
        for key, value in entry.properties.items()
        if key not in FOREIGN and not key.startswith("spark.sql.sources.schema.part.")
    }
    storage = {key: value.removeprefix("file:") for key, value in entry.serde_properties.items()}
    formats = (entry.input_format, entry.output_format, entry.serde, entry.is_external, entry.location)
    return json.loads("".join(parts)), rest, storage, formats, entry.columns, entry.partition_keys
