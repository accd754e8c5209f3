"""Keys and paths as Hudi makes them: vectors from its own generators, and rows of real tables."""

from __future__ import annotations

import base64
import decimal
import json
from pathlib import Path

import pyarrow as pa
import pytest

from lakefmt._core.keys import (
    build_partition_paths,
    build_record_keys,
    key_spec_from_properties,
    parse_partition_values,
    partition_guarantee,
)
from lakefmt._core.schema import avro_to_arrow
from lakefmt.errors import LakefmtError

DATA = Path(__file__).resolve().parents[1] / "data" / "keys"


def lines(name: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


VECTORS = lines("java_keys.jsonl")
STORED = lines("stored_keys.jsonl")


def arrow(avro: object, value: str | None) -> pa.Array:
    """Return the vector's value as a column of the Avro type."""
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "k", "type": ["null", avro]}]})
    kind = avro_to_arrow(text).field("k").type
    if value is None or pa.types.is_string(kind):
        return pa.array([value], kind)
    if pa.types.is_boolean(kind):
        return pa.array([value == "true"])
    if pa.types.is_binary(kind):
        return pa.array([base64.b64decode(value)])
    if pa.types.is_decimal(kind):
        unscaled = int.from_bytes(base64.b64decode(value), "big", signed=True)
        return pa.array([decimal.Decimal(unscaled).scaleb(-kind.scale)], kind)
    if pa.types.is_floating(kind):
        return pa.array([float(value)], kind)
    whole = pa.array([int(value)], pa.int32() if kind.bit_width == 32 else pa.int64())
    return whole.cast(kind)


def spec_of(vector: dict):
    options = vector["options"]
    return key_spec_from_properties(
        {
            **options,
            "hoodie.table.recordkey.fields": options.get("hoodie.datasource.write.recordkey.field", "k"),
            "hoodie.table.partition.fields": options.get("hoodie.datasource.write.partitionpath.field", "k"),
            "hoodie.table.keygenerator.class": f"org.apache.hudi.keygen.{vector['generator']}",
            "hoodie.table.version": "9",
        }
    )


def answer(build, spec, table: pa.Table) -> str | None:
    try:
        return build(spec, table).to_pylist()[0]
    except LakefmtError:
        return None


def is_stricter_here(vector: dict) -> bool:
    """Say whether lakefmt refuses on purpose what Java accepts."""
    return (
        # years outside 1 to 9999
        vector["value"] in {"2932897", "-719163", "-719528", "253402300800000", "-62135596800001", "12023-04-03"}
        # paths that leave the table or hold control characters
        or vector["path"] in {"..", ".", "\t\x00\x7f\x01x", "\"#%'*/:=?\\{[]^"}
        # finer than a millisecond, where Hudi's writers differ
        or (vector["value"] in {"1", "-1", "1700000000123456"} and "consistent" in str(vector["options"]))
        # words in patterns
        or any(word in str(vector["options"]) for word in ("K k", "''q''"))
    )


def is_more_lenient_here(vector: dict) -> bool:
    """Say whether a text column holds the digits of a number: Java refuses, but a Spark UPDATE leaves such columns."""
    return vector["type"] == "string" and "EPOCHMILLISECONDS" in str(vector["options"])


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v['generator'][:8]}-{v['type']}-{v['value']}"[:60])
def test_keys_and_paths_are_those_of_java(vector):
    spec = spec_of(vector)
    table = pa.table({"k": arrow(vector["type"], vector["value"]), "z": ["zz"]})
    key, path = answer(build_record_keys, spec, table), answer(build_partition_paths, spec, table)
    if is_stricter_here(vector):
        assert key in (None, vector["key"])
        assert path is None
    elif is_more_lenient_here(vector):
        assert path == ("k=2023%2F11%2F14" if spec.hive_style else "2023/11/14")
    else:
        assert key == vector["key"]
        assert path == vector["path"]


@pytest.mark.parametrize("sample", STORED, ids=lambda sample: sample["table"])
def test_keys_and_paths_are_those_that_real_tables_store(sample):
    schema = avro_to_arrow(json.dumps(sample["schema"]))
    table = pa.Table.from_pylist(sample["rows"], schema)
    spec = key_spec_from_properties(sample["properties"])
    assert not spec.unsupported
    assert build_record_keys(spec, table).to_pylist() == sample["keys"]
    assert build_partition_paths(spec, table).to_pylist() == sample["paths"]
    for number, path in enumerate(sample["paths"]):
        promise = partition_guarantee(spec, path, schema)
        values = parse_partition_values(spec, path, schema)
        if promise is not None:
            assert table.slice(number, 1).filter(promise).num_rows == 1
            assert values == {field.name: sample["rows"][number][field.name] for field in spec.partition_fields}
