"""Options of a job that contradict the table are refused by both names; what repeats the table in other letters is none."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from click.testing import CliRunner

import lakefmt
from lakefmt._core.cli import main
from lakefmt._core.keys import KeyGeneratorType
from lakefmt._core.storage.open import open_store
from lakefmt.errors import InvalidInputError, InvalidKey, UnknownSetting, UnsupportedFeature
from lakefmt.spark.options import parse_write_options
from lakefmt.spark.writing.staging import write_and_commit

WRITE = "hoodie.datasource.write."
TIMED = "hoodie.keygen.timebased."
KEYGEN = "org.apache.hudi.keygen."
PAYLOAD = "org.apache.hudi.common.model."
PATH = "memory://spark-contradictions"
ROWS = pa.table({"id": ["a"], "city": ["sf"], "land": ["us"], "ts": pa.array([1], pa.int64())})
KEY = {f"{WRITE}recordkey.field": "id"}
PLACED = {**KEY, f"{WRITE}partitionpath.field": "city"}
ORDERED = {**KEY, f"{WRITE}precombine.field": "ts"}
BY_TIME = {
    **KEY,
    f"{WRITE}partitionpath.field": "ts",
    f"{WRITE}keygenerator.class": f"{KEYGEN}TimestampBasedKeyGenerator",
    f"{TIMED}timestamp.type": "EPOCHMILLISECONDS",
    f"{TIMED}output.dateformat": "yyyy",
}
ERRORS = (InvalidInputError, InvalidKey, UnknownSetting)


@pytest.fixture
def save() -> Callable[[dict[str, str]], lakefmt.CommitResult]:
    """Write one row as a DataFrame is written that has these options."""
    open_store(PATH).delete_tree("")

    def write(options: dict[str, str]) -> lakefmt.CommitResult:
        call = parse_write_options({"hoodie.table.name": "t", **options})
        return write_and_commit(PATH, "append", call, ROWS.schema, lambda: [ROWS])

    return write


@pytest.mark.parametrize(
    ("options", "again"),
    [
        ({**KEY, f"{WRITE}partitionpath.field": "land,city"}, None),
        ({f"{WRITE}recordkey.field": "id, land", f"{WRITE}partitionpath.field": " land , city"}, None),
        (
            {**KEY, f"{WRITE}partitionpath.field": "land:SIMPLE,city:simple"},
            {f"{WRITE}partitionpath.field": "land,city"},
        ),
        ({**PLACED, f"{WRITE}keygenerator.class": f"{KEYGEN}ComplexKeyGenerator"}, None),
        (
            {**PLACED, f"{WRITE}keygenerator.class": f"{KEYGEN}SimpleAvroKeyGenerator"},
            {f"{WRITE}keygenerator.type": "simple"},
        ),
        ({**PLACED, "hoodie.table.keygenerator.type": "SIMPLE"}, PLACED),
        ({**KEY, f"{WRITE}table.type": "merge_on_read"}, {f"{WRITE}table.type": "MERGE_ON_READ"}),
        ({**PLACED, f"{WRITE}hive_style_partitioning": "True"}, {f"{WRITE}hive_style_partitioning": "true"}),
        ({**KEY, f"{WRITE}keygenerator.class": f"{KEYGEN}NonpartitionedKeyGenerator"}, None),
        ({**KEY, f"{WRITE}keygenerator.class": f"{KEYGEN}GlobalDeleteKeyGenerator"}, None),
        (BY_TIME, None),
        (BY_TIME, KEY),
        ({**ORDERED, "hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}, None),
        ({**ORDERED, f"{WRITE}payload.class": f"{PAYLOAD}DefaultHoodieRecordPayload"}, None),
        ({**KEY, f"{WRITE}payload.class": f"{PAYLOAD}DefaultHoodieRecordPayload"}, None),
        ({**ORDERED, f"{WRITE}payload.class": f"{PAYLOAD}OverwriteWithLatestAvroPayload"}, None),
        ({**KEY, "hoodie.populate.meta.fields": "true", "hoodie.database.name": "d"}, None),
    ],
)
def test_a_job_that_repeats_its_options_goes_on(save, options, again):
    assert save(options).num_inserts == 1
    assert save(options if again is None else again).num_updates == 1


@pytest.mark.parametrize(
    ("options", "wrong", "names"),
    [
        (PLACED, {f"{WRITE}keygenerator.class": f"{KEYGEN}ComplexKeyGenerator"}, ["ComplexKeyGenerator", "SIMPLE"]),
        (PLACED, {"hoodie.table.keygenerator.class": f"{KEYGEN}CustomKeyGenerator"}, ["CustomKeyGenerator", "SIMPLE"]),
        (PLACED, {f"{WRITE}keygenerator.type": "NON_PARTITION"}, ["NON_PARTITION", "SIMPLE"]),
        (KEY, {f"{WRITE}keygenerator.class": "com.example.Mine"}, ["com.example.Mine"]),
        (BY_TIME, {f"{TIMED}output.dateformat": "yyyy/MM"}, ["yyyy/MM", "output.dateformat=yyyy,"]),
        (KEY, {"hoodie.populate.meta.fields": "false"}, ["=true", "false"]),
        (PLACED, {f"{WRITE}drop.partition.columns": "true"}, ["=false", "true"]),
        (KEY, {"hoodie.table.cdc.enabled": "true"}, ["=false", "true"]),
        ({**KEY, "hoodie.database.name": "a"}, {"hoodie.database.name": "b"}, ["=a", "b"]),
        (
            ORDERED,
            {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"},
            ["EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"],
        ),
        (ORDERED, {f"{WRITE}payload.class": f"{PAYLOAD}OverwriteWithLatestAvroPayload"}, ["EVENT_TIME", "COMMIT_TIME"]),
        (ORDERED, {f"{WRITE}payload.class": f"{PAYLOAD}PartialUpdateAvroPayload"}, ["EVENT_TIME", "PartialUpdate"]),
        (KEY, {f"{WRITE}recordkey.field": "land"}, ["=land", "=id"]),
        (KEY, {f"{WRITE}partitionpath.field": "city"}, ["=city", "no hoodie.table.partition.fields"]),
        (KEY, {f"{WRITE}precombine.field": "ts"}, ["=ts", "no hoodie.table.precombine.field"]),
        ({}, KEY, ["=id", "no hoodie.table.recordkey.fields"]),
        (PLACED, {f"{WRITE}hive_style_partitioning": "true"}, ["=true", "=false"]),
        (PLACED, {f"{WRITE}partitionpath.urlencode": "true"}, ["=true", "=false"]),
        (KEY, {f"{WRITE}table.type": "MERGE_ON_READ"}, ["MERGE_ON_READ", "COPY_ON_WRITE"]),
        (KEY, {"hoodie.write.table.version": "6"}, ["=6", "=8"]),
        (KEY, {"hoodie.table.name": "other"}, ["=other", "=t"]),
        ({**KEY, "hoodie.index.type": "BUCKET"}, {"hoodie.bucket.index.num.buckets": "9"}, ["=256", "=9"]),
    ],
)
def test_an_option_that_contradicts_the_table_is_refused(save, options, wrong, names):
    assert save(options).num_inserts == 1
    with pytest.raises(ERRORS) as refused:
        save(wrong)
    assert all(name in str(refused.value) for name in names), refused.value
    assert lakefmt.open_table(PATH).read().num_rows == 1


def test_a_payload_class_without_a_meaning_here_makes_no_table(save):
    with pytest.raises(UnsupportedFeature, match=r"com\.example\.Mine is not supported"):
        save({**KEY, f"{WRITE}payload.class": "com.example.Mine"})
    with pytest.raises(InvalidInputError, match="contradict each other"):
        save(
            {
                **ORDERED,
                f"{WRITE}payload.class": f"{PAYLOAD}OverwriteWithLatestAvroPayload",
                "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
            }
        )
    with pytest.raises(lakefmt.errors.TableNotFound):
        lakefmt.open_table(PATH)


FITTING = (KeyGeneratorType.SIMPLE, KeyGeneratorType.COMPLEX, KeyGeneratorType.CUSTOM)


@pytest.mark.parametrize(
    "name", [f"{WRITE}keygenerator.class", f"{WRITE}keygenerator.type", "hoodie.table.keygenerator.class"]
)
@pytest.mark.parametrize("generator", KeyGeneratorType)
def test_a_key_generator_is_taken_or_refused(tmp_path, name, generator):
    """At the creation it is the table's, or does not fit its columns; later it is the table's or refused by both names."""
    value = generator.name if name.endswith("type") else generator.class_name
    how = {"schema": ROWS.schema, "record_key": "id", "partition_by": "city"}
    if generator in FITTING:
        table = lakefmt.create_table(tmp_path / "made", properties={name: value}, **how)
        assert table.client.key_spec(table.properties).generator is generator
        assert not [key for key in table.properties.properties if key.startswith(f"{WRITE}keygenerator")]
        assert table.upsert(ROWS).num_inserts == 1
    else:
        with pytest.raises((InvalidKey, UnknownSetting, UnsupportedFeature)):
            lakefmt.create_table(tmp_path / "made", properties={name: value}, **how)
    if name.startswith("hoodie.table"):
        return
    table = lakefmt.create_table(tmp_path / "simple", **how)
    if generator is KeyGeneratorType.SIMPLE:
        assert table.upsert(ROWS, options={name: value}).num_inserts == 1
    else:
        for verb in (table.upsert, table.insert, table.bulk_insert, table.delete):
            with pytest.raises(InvalidKey, match=rf"{value}.*SIMPLE"):
                verb(ROWS, options={name: value})
        with pytest.raises(InvalidKey, match=rf"{value}.*SIMPLE"):
            lakefmt.write_table(tmp_path / "simple", ROWS, mode="append", properties={name: value})
        assert table.read().num_rows == 0


def test_two_key_generators_at_once_are_refused(tmp_path):
    names = {f"{WRITE}keygenerator.class": f"{KEYGEN}SimpleKeyGenerator", "hoodie.table.keygenerator.type": "COMPLEX"}
    with pytest.raises(InvalidKey, match=r"SimpleKeyGenerator.*|COMPLEX"):
        lakefmt.create_table(tmp_path, schema=ROWS.schema, record_key="id", partition_by="city", properties=names)


def test_the_command_line_refuses_another_key_generator(tmp_path):
    lakefmt.create_table(tmp_path / "t", schema=ROWS.schema, record_key="id", partition_by="city")
    row = '{"id": "a", "city": "sf", "land": "us", "ts": 1}'
    words = ["write", str(tmp_path / "t"), "--format", "jsonl", "--option", f"{WRITE}keygenerator.type=COMPLEX"]
    told = CliRunner().invoke(main, words, input=row)
    assert told.exit_code == 1
    assert "whose key generator is SIMPLE" in told.output


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table"])
def test_every_operation_makes_the_table_and_writes_to_it(save, operation):
    options = {**KEY, f"{WRITE}operation": operation}
    for _ in range(2):
        save(options)
        table = lakefmt.open_table(PATH)
        assert (table.properties.record_key_fields, table.properties.name) == (("id",), "t")
        assert set(table.read(["id"]).column("id").to_pylist()) == {"a"}
