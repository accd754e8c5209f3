"""Key specs: from a user's words, from properties, and back to properties."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from lakefmt._core.keys import (
    KeyGeneratorType,
    PartitionField,
    TimestampSpec,
    TimestampType,
    build_record_keys,
    key_properties,
    key_spec_from_properties,
    plan_key_spec,
    with_sampled_key,
)
from lakefmt.errors import InvalidKey, UnknownSetting, UnsupportedFeature

KEYGEN = "org.apache.hudi.keygen."
TIME = "hoodie.keygen.timebased."
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int64()),
        ("city", pa.string()),
        ("us", pa.timestamp("us", "UTC")),
        ("ms", pa.timestamp("ms", "UTC")),
        ("day", pa.date32()),
        ("s", pa.struct([("id", pa.string())])),
    ]
)


# --------------------------------------------------------------------------------------------------------- generators


@pytest.mark.parametrize(
    ("name", "class_name", "avro_class"),
    [
        ("SIMPLE", "SimpleKeyGenerator", "SimpleAvroKeyGenerator"),
        ("COMPLEX", "ComplexKeyGenerator", "ComplexAvroKeyGenerator"),
        ("NON_PARTITION", "NonpartitionedKeyGenerator", "NonpartitionedAvroKeyGenerator"),
        ("TIMESTAMP", "TimestampBasedKeyGenerator", "TimestampBasedAvroKeyGenerator"),
        ("CUSTOM", "CustomKeyGenerator", "CustomAvroKeyGenerator"),
        ("GLOBAL_DELETE", "GlobalDeleteKeyGenerator", "GlobalAvroDeleteKeyGenerator"),
        ("AUTO_RECORD", "AutoRecordGenWrapperKeyGenerator", "AutoRecordGenWrapperAvroKeyGenerator"),
    ],
)
def test_a_generator_has_many_names(name, class_name, avro_class):
    generator = KeyGeneratorType[name]
    assert generator.class_name == KEYGEN + class_name
    for text in (name, name.lower(), f"{name}_AVRO", KEYGEN + class_name, KEYGEN + avro_class, class_name):
        assert KeyGeneratorType.parse(text) is generator


def test_other_generators_are_not_hudis():
    assert KeyGeneratorType.parse("USER_PROVIDED") is KeyGeneratorType.USER_PROVIDED
    for text in ("", "com.example.MyKeyGenerator", "HOODIE_TABLE_METADATA", "SPARK_SQL"):
        with pytest.raises(UnknownSetting):
            KeyGeneratorType.parse(text)


# ------------------------------------------------------------------------------------------------------- a new table


@pytest.mark.parametrize(
    ("key", "partitions", "generator"),
    [
        ("id", None, "NON_PARTITION"),
        ("id", "", "NON_PARTITION"),
        ("id", [], "NON_PARTITION"),
        (["id", "n"], None, "NON_PARTITION"),
        ("id,n", None, "NON_PARTITION"),
        ("id", "city", "SIMPLE"),
        (["id"], ["city"], "SIMPLE"),
        ("id", ["city", "n"], "CUSTOM"),
        ("id", "city,n", "CUSTOM"),
        (["id", "n"], "city", "COMPLEX"),
        (["id", "n"], ["city", "day"], "COMPLEX"),
        ("id", "city:SIMPLE", "CUSTOM"),
        ("id", "us:timestamp(yyyy/MM/dd)", "TIMESTAMP"),
        ("id", ["city:simple", "us:TIMESTAMP(yyyy)"], "CUSTOM"),
        (["id", "n"], "us:timestamp(yyyy)", "CUSTOM"),
        (None, None, "NON_PARTITION"),
        ("", "city", "SIMPLE"),
        (None, ["city", "day"], "COMPLEX"),
        ("s.id", "city", "SIMPLE"),
    ],
)
def test_the_generator_follows_from_the_fields(key, partitions, generator):
    spec = plan_key_spec(key, partitions, schema=SCHEMA)
    assert spec.generator.name == generator
    assert spec.hive_style
    assert spec.url_encode
    assert not spec.unsupported
    # Single key fields are never COMPLEX by themselves (docs/format.md, Complex keys of one field).
    assert spec.complex_single_prefixed is None


@pytest.mark.parametrize(
    ("column", "kind", "unit"),
    [
        ("us", TimestampType.EPOCHMICROSECONDS, "MICROSECONDS"),
        ("ms", TimestampType.EPOCHMILLISECONDS, "MILLISECONDS"),
        ("day", TimestampType.SCALAR, "DAYS"),
    ],
)
def test_the_schema_tells_what_a_time_is(column, kind, unit):
    spec = plan_key_spec("id", f"{column}:timestamp(yyyy/MM/dd)", schema=SCHEMA)
    timestamp = spec.partition_fields[0].timestamp
    assert spec.partition_fields[0].kind == "timestamp"
    assert (timestamp.type, timestamp.unit, timestamp.output_format) == (kind, unit, "yyyy/MM/dd")


def test_a_number_needs_a_word_about_its_meaning():
    for options in ({}, {"schema": SCHEMA}):
        with pytest.raises(UnknownSetting, match=r"timestamp\.type is missing"):
            plan_key_spec("id", "n:timestamp(yyyy)", **options)
    inline = plan_key_spec("id", "n:timestamp(yyyy, EPOCHMILLISECONDS)")
    stated = plan_key_spec(
        "id",
        "n:TIMESTAMP",
        properties={TIME + "timestamp.type": "EPOCHMILLISECONDS", TIME + "output.dateformat": "yyyy"},
    )
    assert inline == stated
    texts = plan_key_spec("id", "city:timestamp(yyyy)", properties={TIME + "input.dateformat": "yyyy-MM-dd, yyyy/MM"})
    assert texts.partition_fields[0].timestamp.type is TimestampType.DATE_STRING
    assert texts.partition_fields[0].timestamp.input_formats == ("yyyy-MM-dd", "yyyy/MM")


def test_a_named_generator_is_taken():
    for key in ("hoodie.datasource.write.keygenerator.class", "hoodie.table.keygenerator.type"):
        spec = plan_key_spec("id", ["city", "n"], properties={key: "COMPLEX"})
        assert (spec.generator, spec.complex_single_prefixed) == (KeyGeneratorType.COMPLEX, True)
        assert build_record_keys(spec, pa.table({"id": ["a"]})).to_pylist() == ["id:a"]
    timed = plan_key_spec(
        "id",
        "us",
        schema=SCHEMA,
        properties={"hoodie.table.keygenerator.type": "TIMESTAMP", TIME + "output.dateformat": "yyyy"},
    )
    assert timed == plan_key_spec("id", "us:timestamp(yyyy)", schema=SCHEMA)


@pytest.mark.parametrize(
    ("key", "partitions", "properties", "error"),
    [
        ("nope", None, {}, InvalidKey),
        ("s.nope", None, {}, InvalidKey),
        ("id", "nope", {}, InvalidKey),
        (["id", "id"], None, {}, InvalidKey),
        ("id", ["city", "city"], {}, InvalidKey),
        ("_hoodie_record_key", None, {}, InvalidKey),
        ("id", "_hoodie_partition_path", {}, InvalidKey),
        ("id", "city:BUCKET", {}, InvalidKey),
        ("id", "city:SIMPLE(x)", {}, InvalidKey),
        ("id", "us:timestamp(", {}, InvalidKey),
        ("id", ["us:timestamp(yyyy)", "ms:timestamp(MM)"], {}, InvalidKey),
        ("id", "us:timestamp", {}, UnknownSetting),
        ("id", "us:timestamp(EEE)", {}, UnsupportedFeature),
        ("id", "us:timestamp(yy)", {}, UnsupportedFeature),
        ("id", "n:timestamp(yyyy)", {TIME + "timestamp.type": "FORTNIGHTS"}, UnknownSetting),
        ("id", "n:timestamp(yyyy)", {TIME + "timestamp.type": "SCALAR", TIME + "timestamp.scalar.time.unit": "x"}, UnknownSetting),
        ("id", "n:timestamp(yyyy)", {TIME + "timestamp.type": "DATE_STRING"}, UnknownSetting),
        ("id", "city:timestamp(yyyy)", {TIME + "input.dateformat": "yyyy", TIME + "input.dateformat.list.delimiter.regex": "(a+)+"}, UnsupportedFeature),
        (["id", "n"], "city", {"hoodie.table.keygenerator.type": "SIMPLE"}, InvalidKey),
        ("id", None, {"hoodie.table.keygenerator.type": "SIMPLE"}, InvalidKey),
        ("id", "city", {"hoodie.table.keygenerator.type": "NON_PARTITION"}, InvalidKey),
        ("id", "us:timestamp(yyyy)", {"hoodie.table.keygenerator.type": "COMPLEX"}, InvalidKey),
        ("id", None, {"hoodie.table.keygenerator.type": "AUTO_RECORD"}, InvalidKey),
        ("id", None, {"hoodie.table.keygenerator.type": "USER_PROVIDED"}, UnsupportedFeature),
        ("id", None, {"hoodie.datasource.write.keygenerator.class": "com.example.Mine"}, UnknownSetting),
        ("id", "day", {"hoodie.datasource.write.slash.separated.date.partitioning": "true"}, UnsupportedFeature),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(key, partitions, properties, error):
    with pytest.raises(error):
        plan_key_spec(key, partitions, properties=properties, schema=SCHEMA)


# -------------------------------------------------------------------------------------------------- there and back


SPECS = [
    plan_key_spec("id", None),
    plan_key_spec("id", "city", hive_style=False, url_encode=False),
    plan_key_spec(["id", "n"], ["city", "day"], url_encode=False),
    plan_key_spec("id", ["city", "n"]),
    plan_key_spec(None, "city"),
    plan_key_spec("id", "us:timestamp(yyyy/MM/dd HH:00)", schema=SCHEMA),
    plan_key_spec("id", "day:timestamp(yyyy)", schema=SCHEMA),
    plan_key_spec(["id", "n"], "ms:timestamp(yyyy)", schema=SCHEMA),
    plan_key_spec("id", "us:timestamp(yyyy)", schema=SCHEMA, properties={TIME + "timezone": "Asia/Tokyo"}),
    plan_key_spec("id", "us:timestamp(yyyy)", schema=SCHEMA, properties={TIME + "output.timezone": "GMT+8:00"}),
    plan_key_spec("id", "city:timestamp(yyyy)", properties={TIME + "input.dateformat": "yyyy-MM-dd'T'HH:mm:ss.SSSZ,yyyy"}),
    plan_key_spec("id", "city:timestamp(yyyy)", properties={TIME + "input.dateformat": "yyyy, MM;yyyy", TIME + "input.dateformat.list.delimiter.regex": ";"}),
    plan_key_spec("id", "us", properties={"hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": "true"}),
]  # fmt: skip


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.generator.name)
def test_what_is_stored_is_read_back(spec, version):
    found = key_properties(spec, version) | {"hoodie.table.version": str(version)}
    again = key_spec_from_properties(found)
    if version == 6 and any(
        f.timestamp and f.timestamp.type is TimestampType.EPOCHMICROSECONDS for f in spec.partition_fields
    ):
        # The releases that write version 6 do not know the word.
        assert found[TIME + "timestamp.type"] == "SCALAR"
        assert again.partition_fields[0].timestamp.unit == spec.partition_fields[0].timestamp.unit
    else:
        assert again == spec
    assert ("hoodie.table.keygenerator.class" in found) is (version == 6)
    assert ("hoodie.table.keygenerator.type" in found) is (version > 6)
    assert ("hoodie.table.recordkey.fields" in found) is bool(spec.record_key_fields)
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_the_kinds_of_several_partitions_are_stored_from_version_8_on():
    spec = plan_key_spec("id", ["city", "us:timestamp(yyyy)"], schema=SCHEMA)
    assert key_properties(spec, 8)["hoodie.table.partition.fields"] == "city:SIMPLE,us:TIMESTAMP"
    assert key_spec_from_properties(key_properties(spec, 8)) == spec
    with pytest.raises(UnsupportedFeature, match="version 6"):
        key_properties(spec, 6)
    plain = plan_key_spec("id", ["city", "n"])
    assert key_properties(plain, 6)["hoodie.table.partition.fields"] == "city,n"
    assert key_properties(plain, 9)["hoodie.table.partition.fields"] == "city:SIMPLE,n:SIMPLE"


# -------------------------------------------------------------------------------------------------- tables of others


def stored(generator: str, key: str = "id", partitions: str = "", **more: str):
    names = {"hoodie.table.recordkey.fields": key, "hoodie.table.partition.fields": partitions}
    return key_spec_from_properties({**names, "hoodie.table.keygenerator.type": generator, **more})


def test_absent_properties_mean_hudis_defaults():
    spec = key_spec_from_properties({})
    assert (spec.record_key_fields, spec.partition_fields, spec.generator.name) == ((), (), "NON_PARTITION")
    assert (spec.hive_style, spec.url_encode) == (False, False)
    assert spec.auto_keys


@pytest.mark.parametrize(
    ("key", "partitions", "generator"),
    [("id", "", "NON_PARTITION"), ("id", "a", "SIMPLE"), ("id", "a,b", "COMPLEX"), ("id,n", "a", "COMPLEX"), ("id", "a:SIMPLE", "CUSTOM")],
)  # fmt: skip
def test_a_table_without_a_generator_has_the_one_hudi_infers(key, partitions, generator):
    names = {"hoodie.table.recordkey.fields": key, "hoodie.table.partition.fields": partitions}
    assert key_spec_from_properties(names).generator.name == generator


@pytest.mark.parametrize(
    ("version", "new_encoding", "prefixed"),
    [("9", None, True), ("9", "true", True), ("8", None, None), ("6", None, None), ("8", "true", False), ("8", "false", True)],
)  # fmt: skip
def test_the_single_field_complex_key_question(version, new_encoding, prefixed):
    more = {"hoodie.table.version": version}
    if new_encoding is not None:
        more["hoodie.write.complex.keygen.new.encoding"] = new_encoding
    for generator in ("COMPLEX", "COMPLEX_AVRO", "GLOBAL_DELETE"):
        assert stored(generator, "id", "a,b", **more).prefixed is prefixed
    assert stored("COMPLEX", "id,n", "a", **more).prefixed is True
    assert stored("SIMPLE", "id", "a", **more).prefixed is False


def test_generators_without_partitions_have_none_whatever_is_stored():
    for generator in ("NON_PARTITION", "GLOBAL_DELETE"):
        assert stored(generator, "id", "a,b").partition_fields == ()


def test_the_old_prefix_is_read():
    old = {
        "hoodie.deltastreamer.keygen.timebased." + key: text
        for key, text in {
            "timestamp.type": "UNIX_TIMESTAMP",
            "output.dateformat": "yyyy",
            "timezone": "Asia/Tokyo",
        }.items()
    }
    field = stored("TIMESTAMP", "id", "ts", **old).partition_fields[0]
    assert field == PartitionField(
        "ts",
        "timestamp",
        TimestampSpec("yyyy", TimestampType.UNIX_TIMESTAMP, input_timezone="Asia/Tokyo", output_timezone="Asia/Tokyo"),
    )


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (stored("USER_PROVIDED"), "somebody's own"),
        (stored("SPARK_SQL"), "SPARK_SQL"),
        (key_spec_from_properties({"hoodie.table.keygenerator.class": "com.example.Mine"}), "com.example.Mine"),
        (stored("TIMESTAMP", "id", "ts"), "timestamp.type is missing"),
        (stored("TIMESTAMP", "id", "ts", **{TIME + "timestamp.type": "UNIX_TIMESTAMP"}), "output.dateformat is missing"),
        (stored("TIMESTAMP", "id", "ts", **{TIME + "timestamp.type": "UNIX_TIMESTAMP", TIME + "output.dateformat": "EEE"}), "EEE"),
        (stored("CUSTOM", "id", "a,b", **{TIME + "timestamp.type": "UNIX_TIMESTAMP", TIME + "output.dateformat": "yyyy"}), "which of its partition"),
        (stored("CUSTOM", "id", "a:NEW_KIND"), "a:NEW_KIND"),
        (stored("SIMPLE", "id", "a", **{"hoodie.datasource.write.slash.separated.date.partitioning": "true"}), "slash"),
    ],
)  # fmt: skip
def test_what_cannot_be_reproduced_is_kept_as_a_reason(spec, reason):
    assert reason in spec.unsupported
    with pytest.raises(UnsupportedFeature):
        key_properties(spec, 8)


def test_long_and_strange_properties_are_read_in_no_time():
    for text in ("," * 1_000_000, "(" + "," * 1_000_000, "a" + " " * 1_000_000 + "(", "a:TIMESTAMP(" * 100_000):
        spec = key_spec_from_properties({"hoodie.table.partition.fields": text, "hoodie.table.recordkey.fields": text})
        assert isinstance(spec.partition_fields, tuple)


def test_patterns_may_hold_commas():
    properties = {TIME + "timestamp.type": "UNIX_TIMESTAMP"}
    spec = plan_key_spec("id", "city, n:timestamp(yyyy,MM)", properties=properties)
    assert [field.name for field in spec.partition_fields] == ["city", "n"]
    assert spec.partition_fields[1].timestamp.output_format == "yyyy,MM"


def test_a_sampled_key_says_nothing_about_composite_keys():
    spec = plan_key_spec(["id", "n"], "city")
    assert with_sampled_key(spec, "id:1,n:2") == spec
