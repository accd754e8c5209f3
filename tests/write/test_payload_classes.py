"""Tables that are made with a payload class of Hudi's own say so as Hudi's own tables do; how they merge is judged elsewhere."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.config.merge_rule import PAYLOAD_MODES
from lakefmt.errors import InvalidInputError, UnsupportedFeature
from lakefmt.spark.options import parse_write_options
from tests.compat.payload_tables import COLUMNS, MODEL, NINE, PAYLOAD, batch, make_table, of_payload

CLASSES = [
    "AWSDmsAvroPayload",
    "OverwriteNonDefaultsWithLatestAvroPayload",
    "PartialUpdateAvroPayload",
    "ReverseOrderHoodieRecordPayload",
    "debezium.MySqlDebeziumAvroPayload",
    "debezium.PostgresDebeziumAvroPayload",
]


def properties_of(table: lakefmt.Table) -> dict[str, str]:
    """Return what a table says of itself, but its sum."""
    return {key: value for key, value in table.properties.properties.items() if key != "hoodie.table.checksum"}


def in_version_9(name: str) -> dict[str, str]:
    """Return what Hudi 1.2.0 says in a table of version 9 (test_spark_payloads.py asks it)."""
    return of_payload(name, 9) if name.startswith("Reverse") else NINE[name]


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("name", CLASSES)
def test_a_new_table_is_the_one_that_the_judged_tests_make(tmp_path, name, version):
    theirs = make_table(
        tmp_path / "t", version, "ts", in_version_9(name) if version == 9 else of_payload(name, version)
    )
    ours = lakefmt.create_table(
        tmp_path / "made" / "t",
        schema=COLUMNS,
        record_key="id",
        ordering="ts",
        table_version=version,
        properties={PAYLOAD: MODEL + name},
    )
    assert properties_of(ours) == properties_of(theirs)


def test_nulls_give_way_in_a_table_that_is_made_so(tmp_path):
    table = lakefmt.create_table(
        tmp_path / "t",
        schema=pa.schema([("id", pa.string()), ("ts", pa.int64()), ("a", pa.int64()), ("b", pa.int64())]),
        record_key="id",
        ordering="ts",
        properties={PAYLOAD: MODEL + "PartialUpdateAvroPayload"},
        table_version=8,
    )
    table.upsert([{"id": "k", "ts": 1, "a": 1, "b": 1}])
    table.upsert([{"id": "k", "ts": 2, "a": None, "b": 2}])
    assert table.read().to_pylist() == [{"id": "k", "ts": 2, "a": 1, "b": 2}]


@pytest.mark.parametrize("name", [name for name in CLASSES if name in NINE])
def test_a_job_says_its_class_and_its_order_again(tmp_path, name):
    """A class of Debezium has an order of its own, whatever the job names."""
    call = {
        "record_key": "id",
        "ordering": "ts",
        "table_version": 9,
        "properties": {PAYLOAD: MODEL + name},
        "mode": "upsert",
    }
    rows = batch(1, range(5))
    lakefmt.write_table(tmp_path / "t", rows, **call)
    assert lakefmt.write_table(tmp_path / "t", rows, **call).num_updates == 5


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"table_version": 9, "merge": "event_time"}, "both say how"),
        ({"table_version": 8, "merge": "event_time"}, "both say how"),
    ],
)
def test_a_payload_class_is_refused_where_it_has_no_meaning(tmp_path, arguments, says):
    how = {"schema": COLUMNS, "record_key": "id", "ordering": "ts", "properties": {PAYLOAD: MODEL + CLASSES[0]}}
    with pytest.raises(InvalidInputError, match=says):
        lakefmt.create_table(tmp_path / "t", **how, **arguments)
    assert not (tmp_path / "t").exists()


def test_a_class_that_nobody_knows_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="contradict the arguments"):
        lakefmt.create_table(
            tmp_path / "t", schema=COLUMNS, record_key="id", ordering="ts", properties={PAYLOAD: "com.shop.Mine"}
        )


@pytest.mark.parametrize("mode", [{}, {"hoodie.write.record.merge.mode": "CUSTOM"}])
def test_a_job_makes_such_a_table(mode):
    option = {"hoodie.datasource.write.payload.class": MODEL + CLASSES[0], **mode}
    call = parse_write_options({**option, "hoodie.datasource.write.precombine.field": "ts"})
    assert call.creation["properties"][PAYLOAD] == MODEL + CLASSES[0]
    assert call.creation["merge"] is None
    for name, merge in PAYLOAD_MODES.items():
        made = parse_write_options(
            {"hoodie.datasource.write.payload.class": name, "hoodie.table.ordering.fields": "ts"}
        )
        assert made.creation["merge"] == merge.value.partition("_ORDERING")[0].lower()


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({"hoodie.datasource.write.record.merger.impls": "org.apache.hudi.HoodieSparkRecordMerger"}, None),
        (
            {"hoodie.write.record.merge.custom.implementation.classes": "org.apache.hudi.DefaultSparkRecordMerger"},
            "EVENT_TIME_ORDERING",
        ),
        ({"hoodie.write.record.merge.strategy.id": "ce9acb64-bde0-424c-9b91-f6ebba25356d"}, "COMMIT_TIME_ORDERING"),
    ],
)
def test_hudis_own_mergers_say_a_mode(options, mode):
    assert parse_write_options(options).merging == mode


def test_mergers_of_java_and_contradictions_are_refused():
    merger = "hoodie.write.record.merge.custom.implementation.classes"
    with pytest.raises(UnsupportedFeature, match="do not run in Python"):
        parse_write_options({merger: "com.shop.Mine"})
    with pytest.raises(InvalidInputError, match="contradict each other"):
        parse_write_options({merger: "a.OverwriteWithLatestMerger", "hoodie.record.merge.mode": "EVENT_TIME_ORDERING"})
