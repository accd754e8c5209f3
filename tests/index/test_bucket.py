"""The bucket index: Hudi's hash to the bit, one file group for each bucket, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.formats.properties import decode_properties
from lakefmt._core.index import IndexKeys, bucket_index
from lakefmt._core.index.bucket_index import MAX_BUCKETS, BucketIndex, bucket_numbers, bucket_of, list_hashes
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt.errors import InvalidInputError, InvalidKey, UnknownSetting, UnsupportedFeature

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "index" / "bucket_vectors.json").read_text("utf-8"))
FAST = {"lakefmt.durability": "none"}
OF_THE_INDEX = ("hoodie.index.", "hoodie.bucket.", "hoodie.table.checksum")
NUM, FIELD, TYPE = "hoodie.bucket.index.num.buckets", "hoodie.bucket.index.hash.field", "hoodie.index.type"


# ------------------------------------------------------------------------------------------------------ the hash


@pytest.mark.parametrize(("key", "fields", "expected"), VECTORS["vectors"])
def test_keys_have_the_buckets_of_hudi(key: str, fields: str, expected: list[int]) -> None:
    found = [int(bucket_numbers(pa.array([key]), fields.split(","), count)[0]) for count in (4, 8, 256)]
    assert found == expected


@pytest.mark.parametrize(("key", "fields", "theirs"), VECTORS["different_in_0.15.0"])
def test_keys_that_hudi_0_15_puts_elsewhere_are_refused_for_its_tables(
    key: str, fields: str, theirs: list[int]
) -> None:
    keys = pa.array(["id1", key])
    assert bucket_numbers(keys, fields.split(","), 256)[1] != theirs[2]
    with pytest.raises(InvalidKey, match=r"before 1\.0"):
        bucket_numbers(keys, fields.split(","), 256, strict=True)


def java_hash(text: str | None) -> int:
    """Java's ``String.hashCode``, unit by unit."""
    found = 0
    data = (text or "").encode("utf-16-le")
    for at in range(0, len(data), 2):
        found = (31 * found + int.from_bytes(data[at : at + 2], "little")) & 0xFFFFFFFF
    return found


def values_of(key: str, fields: list[str]) -> list[str | None]:
    """The values that are hashed, taken out of a record key from left to right."""
    if ":" not in key or "," not in key:
        return [key]
    values: list[str | None] = []
    position = 0
    while position < len(key):
        colon = key.index(":", position)
        name = key[position:colon]
        after, comma = key.find(":", colon + 1), -1
        while after >= 0 and comma < 0:
            comma = key.rfind(",", colon, after)
            after = key.find(":", after + 1) if comma < 0 else after
        value = key[colon + 1 : comma] if comma >= 0 else key[colon + 1 :]
        position = comma + 1 if comma >= 0 else len(key)
        if name in fields:
            values.append({"__null__": None, "__empty__": ""}.get(value, value))
    return values or [None]


def reference(key: str, fields: list[str]) -> int:
    found = 1
    for value in values_of(key, fields):
        found = (31 * found + java_hash(value)) & 0xFFFFFFFF
    return found


pieces = st.sampled_from(
    ["a", "b", "ab", ":", ",", "a:", ",b:", ",a:", "__null__", "__empty__", "é", "日", "😀", "", "x"]
)
keys = st.lists(st.lists(pieces, max_size=9).map("".join), max_size=12)


@given(keys, st.sampled_from([["a"], ["a", "b"], ["b", "a"], ["ab"], ["zz"]]), st.integers(1, 40))
def test_the_hash_over_columns_is_that_of_one_key_after_the_other(
    texts: list[str], fields: list[str], size: int
) -> None:
    expected = [reference(text, fields) for text in texts]
    column = pa.array(["cut", *texts, "off"])[1:-1]
    before = bucket_index._JAVA_PART_BYTES
    for part in (before, size):
        bucket_index._JAVA_PART_BYTES = part  # type: ignore[misc]
        try:
            assert list_hashes(column, fields).tolist() == expected
        finally:
            bucket_index._JAVA_PART_BYTES = before  # type: ignore[misc]
    assert bucket_numbers(column, fields, 7).tolist() == [(h & 0x7FFFFFFF) % 7 for h in expected]


def test_each_key_may_have_a_number_of_buckets_of_its_own() -> None:
    column = pa.array(["id1", "id1", "1"])
    assert bucket_numbers(column, ["id"], np.array([4, 8, 256])).tolist() == [1, 5, 80]


# ---------------------------------------------------------------------------------------------------- the placing

R = InstantTime("20260101000000000")
UUID = "3c1e4c0f-1111-4222-8333-444455556666"


def a_slice(partition: str, file_id: str) -> FileSlice:
    place = PartitionPath(partition)
    return FileSlice(place, FileId(file_id), R, BaseFile(place, file_id, FileId(file_id), "0-0-0", R, 1))


def keys_for(*rows: tuple[str, str]) -> IndexKeys:
    return IndexKeys(pa.array([k for k, _ in rows]), pa.array([p for _, p in rows]).dictionary_encode())


def test_stored_file_groups_are_kept_and_others_opened() -> None:
    slices = [a_slice("p", "00000001-aa-0"), a_slice("q", "00000002-bb-0")]
    placed = BucketIndex(4, ["id"]).place(keys_for(("id1", "p"), ("1", "p"), ("id1", "q")), slices, lambda: UUID)
    found = [placed.file_groups[number] for number in placed.groups.tolist()]
    assert found == [("p", "00000001-aa-0"), ("p", f"00000000{UUID[8:]}-0"), ("q", f"00000001{UUID[8:]}-0")]
    assert bucket_of(found[1][1]) == 0


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (["f3c1e4c0-aa-0"], "is not one of a bucket index"),
        (["00000004-aa-0"], "is of bucket 4"),
        (["00000001-aa-0", "00000001-bb-0"], "both of bucket 1"),
    ],
)
def test_file_groups_that_are_no_buckets_are_refused(ids: list[str], said: str) -> None:
    slices = [a_slice("p", file_id) for file_id in ids]
    index = BucketIndex(4, ["id"])
    with pytest.raises(UnsupportedFeature, match=said):
        index.place(keys_for(("id1", "p")), slices, lambda: UUID)
    with pytest.raises(UnsupportedFeature, match=said):
        index.locate(keys_for(("id1", "p")), slices, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, -1, MAX_BUCKETS + 1])
def test_numbers_of_buckets_that_cannot_be(count: int) -> None:
    with pytest.raises(UnknownSetting, match="buckets"):
        BucketIndex(count, ["id"])


# ----------------------------------------------------------------------------------------------------- the table


def make(name: str, **how: object) -> lakefmt.Table:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
    arguments = {
        "record_key": "id",
        "partition_by": "p",
        "index": "bucket",
        "properties": {NUM: "4"},
        "options": FAST,
        **how,
    }
    return lakefmt.create_table(f"memory://bucket-{name}", schema=schema, **arguments)  # type: ignore[arg-type]


def rows(first: int, last: int, v: int) -> pa.Table:
    numbers = range(first, last)
    columns = {"id": [f"k{n}" for n in numbers], "n": [n % 3 for n in numbers], "p": [f"p{n % 2}" for n in numbers]}
    return pa.table({**columns, "v": [v] * len(numbers)})


def stored_properties(table: lakefmt.Table) -> dict[str, str]:
    return dict(decode_properties(table.client.store.read(".hoodie/hoodie.properties")))


def test_a_table_keeps_its_buckets() -> None:
    table = make("kept", record_key=["id", "n"], properties={NUM: "8", FIELD: "id"})
    kept = stored_properties(table)
    assert (kept[TYPE], kept[NUM], kept[FIELD]) == ("BUCKET", "8", "id")
    assert lakefmt.open_table("memory://bucket-kept").index.name == "bucket"
    plain = stored_properties(make("defaults", properties={}))
    assert (plain[NUM], plain[FIELD]) == ("256", "id")
    named = make("named", index="bloom", properties={TYPE: "BUCKET", NUM: "2"})
    assert named.index.name == "bucket"


def test_keys_of_one_hash_field_share_a_file_group() -> None:
    table = make("one-field", record_key=["id", "n"], partition_by=None, properties={NUM: "8", FIELD: "n"})
    table.upsert(rows(0, 60, 1))
    assert len(table.file_groups()) == 3
    table.upsert(rows(0, 60, 2))
    assert table.read().num_rows == 60
    assert len(table.file_groups()) == 3


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_an_upsert_reads_no_data_file_to_find_its_keys(table_type: str) -> None:
    from lakefmt._core.filegroups.table_client import TableClient
    from lakefmt.testing.stores import CountingStore

    made = make(f"reads-{table_type}", table_type=table_type)
    made.upsert(rows(0, 40, 1))
    store = CountingStore(made.client.store)
    table = lakefmt.Table(TableClient(store, FAST))
    groups = {one.file_id for one in table.file_groups()}
    store.reset()
    table.upsert(rows(0, 2, 2))
    read = {one.name for one in store.log if one.name.endswith(".parquet") and one.kind == "read"}
    assert len(read) <= (0 if table_type == "mor" else 2), "a rewrite reads its own file"
    table.upsert(rows(0, 80, 3))
    assert groups == {one.file_id for one in table.file_groups()}
    assert table.read().num_rows == 80


@pytest.mark.parametrize("first_is_partial", [False, True])
def test_partial_rows_of_keys_that_their_bucket_does_not_have(first_is_partial: bool) -> None:
    """They ended in a ValueError where the table has an ordering column and none of a bucket's keys was stored."""
    schema = pa.schema([("id", pa.string()), ("n", pa.int64()), ("v", pa.int64())])
    table = lakefmt.create_table(
        f"memory://bucket-partial-new-{first_is_partial}",
        schema=schema,
        record_key="id",
        ordering="n",
        table_type="mor",
        index="bucket",
        options={**FAST, "hoodie.bucket.index.num.buckets": 1},
    )
    table.upsert(pa.table({"id": ["a"], "n": [1], "v": [1]}))
    if first_is_partial:
        table.upsert(pa.table({"id": ["a"], "n": [2]}), partial=True)
    table.upsert(pa.table({"id": ["b", "c"], "n": [3, 3]}), partial=True)
    found = table.read().sort_by("id").to_pylist()
    assert found == [
        {"id": "a", "n": 2 if first_is_partial else 1, "v": 1},
        {"id": "b", "n": 3, "v": None},
        {"id": "c", "n": 3, "v": None},
    ]


def test_partial_rows_do_not_bring_back_what_a_log_has_deleted() -> None:
    table = make("partial", table_type="mor", partition_by=None)
    table.upsert(pa.table({"id": ["a", "b"], "n": [1, 2], "p": ["x", "y"], "v": [10, 20]}))
    table.delete(["a"])
    table.upsert(pa.table({"id": ["a", "b", "c"], "v": [11, 21, 31]}), partial=True)
    found = {row["id"]: (row["n"], row["v"]) for row in table.read().to_pylist()}
    assert found == {"a": (None, 11), "b": (2, 21), "c": (None, 31)}


def test_a_bulk_insert_has_one_file_for_each_bucket() -> None:
    table = make("bulk")
    done = table.bulk_insert(iter([rows(0, 20, 1), rows(20, 40, 1)]))
    assert len(done.files) == len(table.file_groups()) == 8
    table.bulk_insert(iter([rows(40, 60, 1)]))
    assert len(table.file_groups()) == 8
    assert table.upsert(rows(0, 60, 2)).num_updates == 60
    assert table.bulk_insert(iter([])).instant is None


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ({"record_key": None}, UnsupportedFeature, "record key"),
        ({"properties": {FIELD: "v"}}, UnknownSetting, "only fields of the record key"),
        ({"properties": {NUM: "0"}}, UnknownSetting, "num.buckets"),
        ({"properties": {NUM: "many"}}, UnknownSetting, "num.buckets"),
        ({"properties": {NUM: "100000"}}, UnknownSetting, "num.buckets"),
        ({"properties": {"hoodie.index.bucket.engine": "CONSISTENT_HASHING"}}, UnsupportedFeature, "merge-on-read"),
        ({"properties": {TYPE: "SIMPLE"}}, InvalidInputError, "contradicts"),
    ],
)
def test_unfit_settings_are_refused(how: dict[str, object], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        make("refused", **how)
    with pytest.raises(lakefmt.errors.TableNotFound):
        lakefmt.open_table("memory://bucket-refused").read()


@pytest.mark.parametrize(
    "options",
    [{TYPE: "BLOOM"}, {NUM: 8}, {FIELD: "n"}, {"hoodie.index.class": "lakefmt._core.index.bloom:SimpleIndex"}],
)
def test_a_call_that_contradicts_the_tables_buckets_is_refused(options: dict[str, object]) -> None:
    table = make(f"contradicted-{next(iter(options))}")
    table.upsert(rows(0, 4, 1))
    with pytest.raises(UnknownSetting, match="contradicts the table"):
        table.upsert(rows(0, 8, 2), options=options)
    table.upsert(rows(0, 8, 2), options={TYPE: "bucket", NUM: 4})
    assert table.read().num_rows == 8


@pytest.mark.parametrize("index", ["bucket", "bloom"])
def test_options_of_the_creation_name_the_buckets(index: str) -> None:
    table = make(f"asked-{index}", index=index, properties={}, options={TYPE: "BUCKET", NUM: 3})
    opened = lakefmt.open_table(table.client.store.url)
    opened.upsert(rows(0, 30, 1))
    assert stored_properties(table)[NUM] == "3"
    assert len(opened.file_groups()) == 6  # three in each of two partitions


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_other_indexes_open_no_file_group_beside_buckets(table_type: str) -> None:
    table = make(f"beside-{table_type}", table_type=table_type)
    table.upsert(rows(0, 8, 1))
    # As Spark leaves it: nothing tells the index.
    store = table.client.store
    text = store.read(".hoodie/hoodie.properties").decode()
    kept = [line for line in text.splitlines() if not line.startswith(OF_THE_INDEX)]
    store.put(".hoodie/hoodie.properties", ("\n".join(kept) + "\n").encode())
    store.delete([".hoodie/.lakefmt/table.json"])
    unaware = lakefmt.open_table(store.url, options={**FAST, "hoodie.parquet.small.file.limit": 0})
    for write in (unaware.upsert, unaware.insert, unaware.bulk_insert, unaware.insert_overwrite):
        with pytest.raises(UnsupportedFeature, match=r"hoodie\.index\.type=BUCKET"):
            write(rows(0, 30, 2))
    aware = lakefmt.open_table(store.url, options={**FAST, TYPE: "BUCKET", NUM: 4})
    aware.upsert(rows(0, 30, 2))
    assert aware.read().num_rows == 30


def test_a_table_with_another_index_does_not_get_buckets() -> None:
    table = make("other", index="simple", properties={})
    with pytest.raises(UnsupportedFeature, match="created with the index 'simple'"):
        table.upsert(rows(0, 4, 1), options={TYPE: "BUCKET", NUM: 4})
    assert not table.file_groups()


def test_version_6_refuses_keys_that_hudi_0_15_puts_elsewhere() -> None:
    table = make("six", table_version=6)
    with pytest.raises(InvalidKey, match=r"before 1\.0"):
        table.upsert(pa.table({"id": ["a:b"], "n": [1], "p": ["p0"], "v": [1]}))
    make("nine").upsert(pa.table({"id": ["a:b"], "n": [1], "p": ["p0"], "v": [1]}))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["SIMPLE", "CONSISTENT_HASHING"])
def test_a_bulk_insert_of_a_long_stream_holds_no_more_than_its_window(engine: str) -> None:
    """Rows wait on the disk, sorted by file group; each file group is written once, stored ones by one log."""
    from lakefmt._core.write import grouped_rows

    properties = {NUM: "16", "hoodie.index.bucket.engine": engine}
    table = make(f"stream-{engine}", table_type="mor", properties=properties)
    table.upsert(rows(0, 2000, 1))
    window = 2 << 20
    parts: list[int] = []
    before = grouped_rows._joined_and_emptied

    def measured(waiting: list[pa.Table]) -> pa.Table:
        parts.append(sum(part.nbytes for part in waiting))
        return before(waiting)

    grouped_rows._joined_and_emptied = measured
    try:
        stream = (rows(first, first + 5000, 2) for first in range(2000, 82_000, 5000))
        done = table.bulk_insert(stream, options={"lakefmt.write.window.bytes": window})
    finally:
        grouped_rows._joined_and_emptied = before
    assert len(parts) > 4
    assert max(parts) < window // 2
    assert done.num_inserts + done.num_updates == 80_000
    groups = {(file.partition_path, file.file_id) for file in done.files}
    assert len(done.files) == len(groups) == len(table.file_groups()) == 32
    assert table.read().num_rows == 82_000
    assert table.upsert(rows(0, 82_000, 3)).num_updates == 82_000
    assert table.read().num_rows == 82_000


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["SIMPLE", "CONSISTENT_HASHING"])
def test_a_record_index_learns_keys_that_come_in_logs(engine: str) -> None:
    """Nobody looks them up, so the commit counts them as updates."""
    properties = {NUM: "2", "hoodie.index.bucket.engine": engine}
    table = make(f"record-{engine}", table_type="mor", properties=properties, indexes=["record_index"])
    for turn, (first, last) in enumerate([(0, 20), (10, 40)]):
        table.upsert(rows(first, last, turn))
        assert table.index.check().is_clean
    if engine == "CONSISTENT_HASHING":
        table.index.resize_buckets(
            options={"hoodie.bucket.index.max.num.buckets": 4, "hoodie.bucket.index.split.threshold": 0}
        )
        assert table.index.check().is_clean
    table.delete(["k1"])
    table.insert_overwrite(rows(0, 9, 3))
    table.upsert(rows(5, 60, 4))
    assert table.index.check().is_clean
