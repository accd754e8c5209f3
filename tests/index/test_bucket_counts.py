"""Numbers of buckets by partition: the rule's reading, its file, and tables that have one."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.index.bucket_counts import (
    FIRST_CONFIG,
    MAX_BUCKETS,
    NUM_BUCKETS,
    PARTITION_EXPRESSIONS,
    PARTITION_RULE,
    BucketCounts,
    decode_hashing_config,
    encode_hashing_config,
)
from lakefmt._core.index.bucket_index import CONFIG_DIRECTORY
from lakefmt.errors import CorruptFile, UnknownSetting, UnsupportedFeature
from tests.example_counts import examples

FAST = {"lakefmt.durability": "none"}
RULE = "2024.*,2;2025.*,3"

patterns = st.lists(st.sampled_from(["a", "b", ".", "\\d", "[a-b]", "x*", "^a", "b$", "(?:ab)+", "a|b"]), max_size=3)
rules = st.lists(st.tuples(patterns.map("".join), st.integers(1, 9)), min_size=1, max_size=5)


@settings(max_examples=examples(25))
@given(rules, st.lists(st.text("abx1/", max_size=6), max_size=8), st.integers(1, 9))
def test_the_first_expression_found_counts(rule: list[tuple[str, int]], paths: list[str], default: int) -> None:
    counts = BucketCounts(default, ";".join(f" {pattern} , {number}" for pattern, number in rule))

    def expected(path: str) -> int:
        return next((number for pattern, number in rule if re.search(pattern, path)), default)

    assert counts.of(paths).tolist() == [expected(path) for path in paths]
    assert counts.most == max(default, *(number for _, number in rule))


def test_the_file_is_that_of_hudi() -> None:
    body = encode_hashing_config(BucketCounts(4, RULE), FIRST_CONFIG)
    assert body.decode() == (
        '{\n  "expressions" : "2024.*,2;2025.*,3",\n  "defaultBucketNumber" : 4,\n  "rule" : "regex",\n'
        '  "version" : 1,\n  "instant" : "00000000000000"\n}'
    )
    assert decode_hashing_config(body, "c") == BucketCounts(4, RULE)


@pytest.mark.parametrize(
    ("expressions", "error"),
    [
        ("a", UnknownSetting),
        ("a,", UnknownSetting),
        ("a,b,2", UnknownSetting),
        ("a,0", UnknownSetting),
        (f"a,{MAX_BUCKETS + 1}", UnknownSetting),
        ("a,٣", UnknownSetting),
        ("(a,2", UnknownSetting),
        (";".join(["a,2"] * 1001), UnknownSetting),
        ("[a&&b],2", UnsupportedFeature),
        ("[a[b]],2", UnsupportedFeature),
        ("(?=a),2", UnsupportedFeature),
        ("a++,2", UnsupportedFeature),
        ("(a)\\1,2", UnsupportedFeature),
        ("\\p{L},2", UnsupportedFeature),
        ("\\bz,2", UnsupportedFeature),
    ],
)
def test_rules_that_java_reads_otherwise_are_refused(expressions: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"partition\.expressions"):
        BucketCounts(4, expressions)


def test_other_rules_and_damaged_files_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="rule regex"):
        BucketCounts(4, RULE, "stddev")
    whole = encode_hashing_config(BucketCounts(4, RULE), FIRST_CONFIG)
    for body in (b"", b"[]", b"\xff", whole.replace(b": 4", b": 0"), whole.replace(b": 4", b": true"), b"[" * 9999):
        with pytest.raises((CorruptFile, UnsupportedFeature)):
            decode_hashing_config(body, "c")
    with pytest.raises(UnsupportedFeature, match="version 2"):
        decode_hashing_config(whole.replace(b'"version" : 1', b'"version" : 2'), "c")


# ----------------------------------------------------------------------------------------------------- the table


def rows(first: int, last: int, v: int) -> pa.Table:
    numbers = range(first, last)
    years = [f"{2024 + n % 3}-01" for n in numbers]
    return pa.table({"id": [f"k{7 * n}-{n // 3}" for n in numbers], "p": years, "v": [v] * len(numbers)})


def make(name: str, **properties: str) -> lakefmt.Table:
    return lakefmt.create_table(
        f"memory://counts-{name}",
        schema=rows(0, 1, 0).schema,
        record_key="id",
        partition_by="p",
        table_type="mor",
        index="bucket",
        properties={NUM_BUCKETS: "5", PARTITION_EXPRESSIONS: RULE, **properties},
        options=FAST,
    )


def buckets_by_partition(table: lakefmt.Table) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for group in table.file_groups():
        found.setdefault(group.partition, set()).add(int(group.file_id[:8]))
    return found


def test_each_partition_has_its_number_of_buckets() -> None:
    table = make("table")
    for turn in range(2):
        table.upsert(rows(0, 300 + turn, turn))
    expected = {f"p={year}-01": set(range(count)) for year, count in ((2024, 2), (2025, 3), (2026, 5))}
    assert buckets_by_partition(table) == expected
    assert table.read().num_rows == 301
    table.delete(rows(0, 30, 0)["id"].to_pylist())
    table.bulk_insert(rows(301, 400, 3))
    assert table.upsert(rows(30, 400, 4)).num_updates == 370
    assert buckets_by_partition(table) == expected


def test_a_table_keeps_its_rule_where_hudi_does() -> None:
    table = make("kept")
    store = table.client.store
    name = f"{CONFIG_DIRECTORY}/{FIRST_CONFIG}.hashing_config"
    assert decode_hashing_config(store.read(name), name) == BucketCounts(5, RULE)
    properties = store.read(".hoodie/hoodie.properties").decode()
    assert f"{PARTITION_RULE}=regex" in properties
    for option in ({PARTITION_EXPRESSIONS: "2024,9"}, {NUM_BUCKETS: 9}):
        with pytest.raises(UnknownSetting, match="contradicts the table"):
            table.upsert(rows(0, 9, 1), options=option)
    # A later rule of another engine counts instead, as soon as its instant is no longer pending.
    later = f"{CONFIG_DIRECTORY}/20260101000000000.hashing_config"
    store.put(later, encode_hashing_config(BucketCounts(1), "20260101000000000"))
    table.upsert(rows(0, 90, 1))
    assert buckets_by_partition(table) == {f"p={year}-01": {0} for year in (2024, 2025, 2026)}


def test_the_rule_of_a_table_of_spark_comes_with_the_call() -> None:
    """A writer of data frames keeps no file: without the rule, file groups beyond the number are refused."""
    table = make("spark")
    table.upsert(rows(0, 300, 1))
    store = table.client.store
    kept = store.read(".hoodie/hoodie.properties").decode().splitlines()
    unkept = ("hoodie.bucket", "hoodie.index", "hoodie.table.checksum")
    text = "\n".join(line for line in kept if not line.startswith(unkept))
    store.put(".hoodie/hoodie.properties", f"{text}\n".encode())
    store.delete([".hoodie/.lakefmt/table.json", f"{CONFIG_DIRECTORY}/{FIRST_CONFIG}.hashing_config"])
    named = {"hoodie.index.type": "BUCKET", NUM_BUCKETS: 2}
    with pytest.raises(UnsupportedFeature, match=r"is of bucket 2, but the partition has 2 buckets"):
        lakefmt.open_table(store.url, options={**FAST, **named}).upsert(rows(0, 300, 2))
    rule = {NUM_BUCKETS: 5, PARTITION_EXPRESSIONS: RULE}
    aware = lakefmt.open_table(store.url, options={**FAST, **named, **rule})
    assert aware.upsert(rows(0, 300, 2)).num_updates == 300
    assert aware.read().num_rows == 300
