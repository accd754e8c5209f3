"""Options of Spark's readers and writers as arguments of lakefmt's calls."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.config.hudi_options import find_published
from lakefmt._core.config.settings import SETTINGS, resolve_settings
from lakefmt.errors import InvalidInputError, UnknownSetting, UnsupportedFeature
from lakefmt.spark.options import ALIASES, SPARK_OPTIONS, find_option, parse_read_options, parse_write_options
from lakefmt.spark.types import spark_schema, table_schema
from lakefmt.spark.writing.plan import take_limits

WRITE = "hoodie.datasource.write."
READ = "hoodie.datasource.read."
QUERY = "hoodie.datasource.query.type"


def test_a_job_for_hudi_makes_the_table_that_hudi_would():
    call = parse_write_options(
        {
            "path": "/t",
            "hoodie.table.name": "trips",
            f"{WRITE}recordkey.field": "a, b",
            f"{WRITE}partitionpath.field": "city",
            f"{WRITE}precombine.field": "ts",
            f"{WRITE}table.type": "MERGE_ON_READ",
            f"{WRITE}operation": "BULK_INSERT",
            f"{WRITE}keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator",
            f"{WRITE}commitmeta.key.prefix": "job.",
            "job.run": "7",
            "storage.Key": "secret",
        }
    )
    made = dict(call.creation)
    properties = made.pop("properties")
    assert made == {
        "record_key": ["a", "b"],
        "partition_by": ["city"],
        "ordering": ["ts"],
        "table_type": "mor",
        "table_version": 8,
        "merge": None,
        "name": "trips",
        "database": None,
    }
    assert properties == {
        f"{WRITE}hive_style_partitioning": "false",
        f"{WRITE}partitionpath.urlencode": "false",
        "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator",
    }
    assert (call.operation, call.commit_metadata, call.storage) == ("bulk_insert", {"job.run": "7"}, {"Key": "secret"})
    assert "secret" not in repr(call)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({f"{WRITE}operatoin": "upsert"}, UnknownSetting, r"did you mean 'hoodie\.datasource\.write\.operation'"),
        ({f"{WRITE}operation": "merge"}, UnknownSetting, "does not take 'merge'"),
        ({f"{WRITE}table.type": "ROW"}, UnknownSetting, "expected COPY_ON_WRITE, MERGE_ON_READ"),
        ({"hoodie.write.table.version": "7"}, UnknownSetting, "expected 6, 8 or 9"),
        ({"hoodie.datasource.hive_sync.create_managed_table": "true"}, UnsupportedFeature, "DROP TABLE"),
        ({"hoodie.datasource.hive_sync.mode": "jdbc"}, UnknownSetting, "expected hms"),
        ({"hoodie.write.record.merge.mode": "CUSTOM"}, UnsupportedFeature, "COMMIT_TIME_ORDERING"),
        (
            {f"{WRITE}precombine.field": "a", "hoodie.table.ordering.fields": "b"},
            InvalidInputError,
            "given twice",
        ),
    ],
)
def test_what_a_write_refuses(options, error, text):
    with pytest.raises(error, match=text):
        parse_write_options(options)


def test_what_configures_a_catalog_reaches_the_sync_after_the_commit():
    given = {
        "hoodie.datasource.hive_sync.enable": "true",
        "hoodie.datasource.hive_sync.database": "d",
        "hoodie.datasource.meta.sync.glue.catalogid": "1234",  # as Spark hands it
        "hoodie.datasource.hive_sync.jdbcurl": "jdbc:hive2://me:hunter22@host",
        "hoodie.datasource.hive_sync.password": "hunter22",
    }
    call = parse_write_options(given)
    settings = resolve_settings(call.settings)
    assert settings.flag("hoodie.datasource.hive_sync.enable")
    assert settings.text("hoodie.datasource.hive_sync.database") == "d"
    assert settings.text("hoodie.datasource.meta.sync.glue.catalogId") == "1234"
    assert {note.split(" ", 1)[0].rpartition(".")[2] for note in call.notes} == {"jdbcurl", "password"}
    assert "hunter22" not in str(call.notes) + str(call.settings)


def test_small_files_are_filled_as_hudi_does_unless_asked_otherwise():
    name = "lakefmt.write.small.files"
    assert parse_write_options({}).settings[name] == "fill"
    assert parse_write_options({name: "tiers"}).settings[name] == "tiers"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("snapshot", None, "000", None)),
        ({QUERY: "READ_OPTIMIZED"}, ("read_optimized", None, "000", None)),
        ({"as.of.instant": "2026"}, ("snapshot", "2026", "000", None)),
        ({QUERY: "incremental", f"{READ}begin.instanttime": "earliest"}, ("incremental", None, "000", None)),
        (
            {
                QUERY: "incremental",
                f"{READ}begin.instanttime": "1",
                f"{READ}end.instanttime": "2",
                "hoodie.datasource.query.incremental.format": "cdc",
            },
            ("cdc", None, "1", "2"),
        ),
    ],
)
def test_queries(options, expected):
    call = parse_read_options(options)
    assert (call.query, call.as_of, call.start, call.end) == expected
    assert call.meta_columns


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({QUERY: "all"}, "does not take 'all'"),
        ({f"{READ}begin.instanttime": "1"}, "need hoodie.datasource.query.type=incremental"),
        ({QUERY: "incremental", "as.of.instant": "1"}, "do not go together"),
        ({"lakefmt.meta_columns": "maybe"}, "expected true, false"),
    ],
)
def test_what_a_read_refuses(options, text):
    with pytest.raises((UnknownSetting, InvalidInputError), match=text):
        parse_read_options(options)


HUDI = json.loads((Path(__file__).parents[1] / "data" / "spark" / "hudi_1_2_0_options.json").read_text("utf-8"))[
    "options"
]


@pytest.mark.parametrize("name", [*HUDI, *(old for row in HUDI.values() for old in row["older"])])
def test_every_option_of_hudi_is_known_and_its_default_asks_for_nothing_that_is_missing(name):
    default = next(row["default"] for key, row in HUDI.items() if name in (key, *row["older"]))
    lowered = name.lower()
    assert (
        find_option(lowered)
        or find_option(ALIASES.get(lowered, lowered))
        or lowered in (*SETTINGS, *ALIASES)
        or find_published(lowered)
    )
    if default is not None and "keygenerator.class" not in name:
        parse_read_options({name: default})
    if default is not None:
        parse_write_options({name: default})


@pytest.mark.parametrize("name", sorted(name for name, option in SPARK_OPTIONS.items() if option.kind == "refused"))
def test_what_is_refused_says_why(name):
    with pytest.raises(UnsupportedFeature, match=re.escape(SPARK_OPTIONS[name].meaning)):
        parse_write_options({name: "true"})
    with pytest.raises(UnsupportedFeature, match=re.escape(SPARK_OPTIONS[name].meaning)):
        parse_read_options({name: "true"})


def test_what_fills_missing_columns_and_drops_stored_keys():
    assert parse_write_options({f"{WRITE}reconcile.schema": "true"}).fills_missing
    assert parse_write_options({"hoodie.write.set.null.for.missing.columns": "TRUE"}).fills_missing
    assert not parse_write_options({}).fills_missing
    dropping = parse_write_options({"hoodie.datasource.insert.dup.policy": "drop"})
    assert dropping.settings[f"{WRITE}insert.drop.duplicates"] == "true"
    with pytest.raises(UnknownSetting, match="expected none, drop"):
        parse_write_options({"hoodie.datasource.insert.dup.policy": "fail"})


@given(st.sampled_from(sorted({*SETTINGS, *SPARK_OPTIONS})), st.booleans())
def test_names_are_known_in_every_case_of_letters(name, large):
    spelt = name.upper() if large else name
    with contextlib.suppress(UnsupportedFeature):
        with_refusal(spelt)


def with_refusal(name: str) -> None:
    """Parse an option; values that it does not take are no unknown names."""
    try:
        parse_write_options({name: "false"})
    except UnknownSetting as error:
        if "does not take" not in str(error):
            raise


def test_the_limit_of_staged_bytes_is_a_number():
    options = {"lakefmt.spark.stage.max.bytes": "10", "other": "1"}
    assert (take_limits(options).stage_bytes, options) == (10, {"other": "1"})
    with pytest.raises(InvalidInputError, match="takes a number"):
        take_limits({"lakefmt.spark.stage.max.bytes": "ten"})


def test_types_on_their_way_to_spark_and_back():
    zone = pa.timestamp("ns", "Asia/Kolkata")
    given = pa.schema(
        [
            pa.field("large", pa.large_string(), nullable=False),
            ("words", pa.dictionary(pa.int8(), pa.large_string())),
            ("deep", pa.struct([("list", pa.large_list(zone)), ("map", pa.map_(pa.string(), pa.timestamp("ms")))])),
            ("fixed", pa.binary(4)),
        ]
    )
    deep = pa.struct([("list", pa.list_(pa.timestamp("us", "UTC"))), ("map", pa.map_(pa.string(), pa.timestamp("us")))])
    shown = spark_schema(given)
    assert shown.types == [pa.string(), pa.string(), deep, pa.binary()]
    assert all(field.nullable for field in shown)
    session = pa.schema([("t", pa.timestamp("us", "America/New_York")), ("_hoodie_record_key", pa.string())])
    assert table_schema(session, ["_hoodie_record_key"]) == pa.schema([("t", pa.timestamp("us", "UTC"))])


@pytest.mark.parametrize("kind", [pa.time64("us"), pa.duration("us")])
def test_spark_has_no_such_type(kind):
    with pytest.raises(UnsupportedFeature, match="no type for column 'c'"):
        spark_schema(pa.schema([("c", kind)]))


#: Names of PySpark's module of data sources that release 4.0 does not have.
NEWER_THAN_4_0 = {
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxFiles",
    "SupportsTriggerAvailableNow",
}


def names_that_must_be_there(module: ast.Module) -> set[str]:
    """Return the names that the first import of a module needs: those that it takes without a way out."""
    return {
        alias.name for statement in module.body if isinstance(statement, ast.ImportFrom) for alias in statement.names
    }


def test_every_module_is_imported_where_pyspark_is_4_0():
    folder = Path(__file__).resolve().parents[2] / "lakefmt" / "spark"
    modules = {path.name: ast.parse(path.read_text("utf-8")) for path in folder.rglob("*.py")}
    needed = {name: names_that_must_be_there(module) & NEWER_THAN_4_0 for name, module in modules.items()}
    assert {name: names for name, names in needed.items() if names} == {}
    assert names_that_must_be_there(ast.parse("from pyspark.sql.datasource import ReadLimit")) == {"ReadLimit"}
