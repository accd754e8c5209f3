"""What Hudi on Spark does with odd partition values (tests/data/keys/partition_values.jsonl): its paths, or no rows at all."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.keys import DEFAULT_PARTITION, build_new_partition_paths, build_partition_paths, plan_key_spec
from lakefmt._core.keys.partition_path import check_spark_reads
from lakefmt.errors import InvalidKey

DATA = Path(__file__).resolve().parents[1] / "data" / "keys" / "partition_values.jsonl"
CASES = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
#: Rows without a value are in this partition, and Spark reads null there.
NO_VALUE = (None, "", DEFAULT_PARTITION)
COLON = {"hoodie.datasource.write.partitionpath.urlencode": "false"}


def path_of(case: dict) -> str | None:
    """Return the path that a row to write gets; None: it is refused."""
    spec = plan_key_spec("id", "p", hive_style=case["hive_style"], url_encode=case["url_encode"])
    rows = pa.table({"id": ["k"], "p": pa.array([case["value"]], pa.string())})
    try:
        return build_new_partition_paths(spec, rows).dictionary[0].as_py()
    except InvalidKey:
        return None


def test_a_value_is_written_as_hudi_does_or_refused():
    """A value that Hudi refuses, or that Spark reads as another one or not at all, is refused; others have Hudi's path."""
    written = 0
    for case in CASES:
        path, value = path_of(case), case["value"]
        if value not in NO_VALUE and case.get("read") != [value]:
            assert path is None, case
        elif path is not None:
            assert path == case["path"], case
            written += 1
    assert written > 200


def test_what_is_refused_though_spark_reads_it():
    """Control characters and backslashes, which object stores and terminals do not take alike, and names like the table's own."""
    for case in CASES:
        value = case["value"] or ""
        if path_of(case) is None and case.get("read") == [value]:
            assert any(c < " " or c in "\x7f\\" for c in value) or value.startswith(".hoodie"), case
            assert not case["url_encode"] or not case["hive_style"], case


@pytest.mark.parametrize("value", ["10:30", ":", "a:b/c"])
def test_a_colon_is_refused_at_the_door_and_read_all_the_same(tmp_path, value):
    rows = pa.table({"id": ["k"], "p": [value]})
    table = lakefmt.create_table(
        tmp_path / "t", schema=rows.schema, record_key="id", partition_by="p", properties=COLON
    )
    for verb in (table.upsert, table.insert, table.bulk_insert, table.insert_overwrite):
        with pytest.raises(InvalidKey, match=r"colon.*partitionpath\.urlencode=true"):
            verb(rows)
    assert not table.partitions()
    # What an older release has written there is found and deleted.
    spec = plan_key_spec("id", "p", url_encode=False)
    assert build_partition_paths(spec, rows).dictionary[0].as_py() == f"p={value}"
    encoded = lakefmt.create_table(tmp_path / "encoded", schema=rows.schema, record_key="id", partition_by="p")
    encoded.upsert(rows)
    assert encoded.read(filter=f"p = '{value}'").num_rows == 1


def test_a_time_with_a_colon_is_refused(tmp_path):
    rows = pa.table({"id": ["k"], "at": pa.array([1_700_000_000_000], pa.int64())})
    kind = {"hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS", **COLON}
    table = lakefmt.create_table(
        tmp_path, schema=rows.schema, record_key="id", partition_by="at:timestamp(yyyy-MM-dd HH:mm)", properties=kind
    )
    with pytest.raises(InvalidKey, match="2023-11-14 22:13"):
        table.upsert(rows)


def test_a_colon_behind_the_first_part_is_a_path_of_spark() -> None:
    spec = plan_key_spec("id", ["a", "b"], hive_style=False, url_encode=False)
    check_spark_reads(spec, pa.array(["p0/10:30"]))
    with pytest.raises(InvalidKey, match="a colon"):
        check_spark_reads(spec, pa.array(["10:30/p0"]))
