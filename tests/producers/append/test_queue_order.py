"""Rows of a bucket keep their order across commits and clusterings, and the buckets are stable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.compaction.cluster_plan import ClusteringRules, plan_queue_clustering
from lakefmt._core.config.table_config import append_layout
from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.formats.names import has_bucket_number, queue_bucket_of, queue_file_id, queue_position_of
from lakefmt._core.keys.generate import check_bucket_key, key_buckets, murmur3
from lakefmt._core.read import file_selection
from lakefmt._core.sorting import RowOrder
from lakefmt.builders import ReadBuilder
from lakefmt.errors import CorruptFile, InvalidInputError, SchemaMismatch, UnsupportedFeature
from tests.example_counts import examples

SCHEMA = pa.schema([("product", pa.string()), ("n", pa.int64())])
QUEUE = {
    "lakefmt.table.kind": "append",
    "lakefmt.append.order": "per_bucket",
    "lakefmt.append.bucket.key": "product",
    "lakefmt.append.buckets": "4",
}


def rows(*products: str, start: int = 0) -> pa.Table:
    return pa.table({"product": list(products), "n": list(range(start, start + len(products)))}, schema=SCHEMA)


def in_order(table: lakefmt.Table) -> dict[int, list[int]]:
    """Return the numbers of every bucket in the order that file ids and rows tell."""
    state = table.client.load()
    slices = [each for each in table.client.at(state).slices() if each.base is not None]

    def place(each: FileSlice) -> tuple[str, int]:
        position = queue_position_of(each.file_id)
        assert position is not None
        return state.timeline.completion_of(position[0]), position[1]

    buckets: dict[int, list[int]] = {}
    for each in sorted(slices, key=place):
        bucket = queue_bucket_of(each.file_id)
        assert bucket is not None and each.base is not None  # noqa: PT018
        buckets.setdefault(bucket, []).extend(table.client.reader.rows(each.base, ["n"])["n"].to_pylist())
    return buckets


#: The published vectors of MurmurHash3 (x86, 32 bits).
VECTORS = [
    (b"", 0, 0),
    (b"", 1, 0x514E28B7),
    (b"", 0xFFFFFFFF, 0x81F16F39),
    (b"\xff\xff\xff\xff", 0, 0x76293B50),
    (b"\x21\x43\x65\x87", 0, 0xF55B516B),
    (b"\x21\x43\x65", 0, 0x7E4A8634),
    (b"\x21\x43", 0, 0xA0F7B07A),
    (b"\x21", 0, 0x72661CF4),
    (b"hello, world", 0, 0x149BBB7F),
    (b"The quick brown fox jumps over the lazy dog", 0x9747B28C, 0x2FA826CD),
]


@pytest.mark.parametrize(("data", "seed", "expected"), VECTORS)
def test_the_hash_is_murmur3(data: bytes, seed: int, expected: int) -> None:
    buffer = np.frombuffer(data, np.uint8)
    hashes = murmur3(buffer, np.array([0]), np.array([len(data)]), np.full(1, seed, np.uint32))
    assert int(hashes[0]) == expected


def test_values_of_one_column_hash_as_each_alone() -> None:
    texts = [data for data, seed, _ in VECTORS if seed == 0]
    starts = np.cumsum([0, *map(len, texts)])[:-1]
    buffer = np.frombuffer(b"".join(texts), np.uint8)
    hashes = murmur3(buffer, starts, np.array(list(map(len, texts))), np.zeros(len(texts), np.uint32))
    assert hashes.tolist() == [expected for _, seed, expected in VECTORS if seed == 0]


#: Buckets of a hundred, as the first release gave them: data on disk depend on them.
FIRST = {"t": [20, 5, 0, 0, 6], "n": [56, 12, 76, 0, 6], "tn": [12, 21, 76, 0, 41]}


def test_buckets_are_those_of_the_first_release() -> None:
    table = pa.table(
        {"t": ["apple", "pear", "", None, "x" * 9], "n": pa.array([1, -1, 0, None, 2**31 - 1], pa.int32())}
    )
    assert key_buckets(table, ["t"], 100).tolist() == FIRST["t"]
    assert key_buckets(table, ["n"], 100).tolist() == FIRST["n"]
    assert key_buckets(table, ["t", "n"], 100).tolist() == FIRST["tn"]


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (pa.array([1, -5, None], pa.int8()), pa.array([1, -5, None], pa.int64())),
        (pa.array(["a", None]), pa.array(["a", None], pa.large_string())),
        (pa.array(["a", None]), pa.array([b"a", None], pa.binary())),
        (pa.array([1, None], pa.timestamp("ms")), pa.array([1000, None], pa.timestamp("us"))),
        (pa.array(["a", "b", "a"]).dictionary_encode(), pa.array(["a", "b", "a"])),
    ],
)
def test_a_wider_type_keeps_the_buckets(narrow: pa.Array, wide: pa.Array) -> None:
    some, same = (key_buckets(pa.table({"k": each}), ["k"], 97).tolist() for each in (narrow, wide))
    assert some == same


@given(st.lists(st.text(), min_size=1), st.integers(0, 5))
def test_a_part_of_the_rows_has_the_same_buckets(texts: list[str], start: int) -> None:
    table = pa.table({"k": texts})
    assert key_buckets(table.slice(start), ["k"], 11).tolist() == key_buckets(table, ["k"], 11).tolist()[start:]


def test_what_has_no_buckets_is_refused() -> None:
    for column, kind in (("k", pa.float64()), ("k", pa.list_(pa.int64())), ("other", pa.string())):
        with pytest.raises(SchemaMismatch, match="bucket_key"):
            check_bucket_key(pa.schema([("k", kind)]), [column], 4)
    for columns, buckets in (([], 4), (["k"], 0), (["k"], 10_000_000)):
        with pytest.raises(InvalidInputError):
            check_bucket_key(pa.schema([("k", pa.string())]), columns, buckets)


@given(st.integers(0, 9_999_999), st.integers(0, 10**17 - 1), st.integers(0, 999_999_999))
def test_a_file_id_tells_bucket_commit_and_number(bucket: int, time: int, number: int) -> None:
    file_id = queue_file_id(bucket, f"{time:017d}", "0a1b2c", number)  # type: ignore[arg-type]
    assert queue_bucket_of(file_id) == bucket
    assert queue_position_of(file_id) == (f"{time:017d}", number)
    assert not has_bucket_number(file_id)


def test_ids_of_other_writers_name_no_bucket() -> None:
    for file_id in ("b0000003-2026-4010-8030-405678abcdef-0", "00000003-2026-8010-2030-405678abcdef-0", "f-0", ""):
        assert queue_bucket_of(file_id) is None
        assert queue_position_of(file_id) is None


@settings(max_examples=examples(15))
@given(
    st.lists(st.one_of(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6), st.just("cluster")), max_size=8)
)
def test_every_bucket_keeps_the_order_of_writing(steps: list[list[str] | str]) -> None:
    table = lakefmt.create_table("memory://queue-order", schema=SCHEMA, properties=QUEUE)
    try:
        expected: dict[int, list[int]] = {}
        count = 0
        for step in steps:
            if isinstance(step, str):
                table.cluster()
                continue
            data = rows(*step, start=count)
            table.insert(data)
            for bucket, n in zip(key_buckets(data, ["product"], 4).tolist(), data["n"].to_pylist(), strict=True):
                expected.setdefault(bucket, []).append(n)
            count += len(step)
        assert in_order(table) == expected
        assert sorted(table.read()["n"].to_pylist()) == list(range(count))
    finally:
        store = table.client.store
        store.delete([each.name for each in store.list("", recursive=True)])


def test_a_stream_of_parts_keeps_the_order(tmp_path: Path) -> None:
    table = lakefmt.create_table(str(tmp_path / "t"), schema=SCHEMA, properties=QUEUE)
    parts = [rows(*"abcdefgh" * 20, start=160 * n) for n in range(6)]
    table.bulk_insert(iter(parts), options={"lakefmt.write.window.bytes": 1024})
    for numbers in in_order(table).values():
        assert numbers == sorted(numbers)
    keys = table.read(meta_columns=True)["_hoodie_record_key"].to_pylist()
    assert len(set(keys)) == len(keys) == 960


def test_another_order_is_refused() -> None:
    table = lakefmt.create_table("memory://queue-refuse", schema=SCHEMA, properties=QUEUE)
    table.insert(rows("a"))
    with pytest.raises(UnsupportedFeature, match="order in which they were written"):
        table.cluster(columns=["n"])
    with pytest.raises(UnsupportedFeature, match="order in which they come"):
        table.bulk_insert(rows("a"), sort="global")


def test_two_writers_of_one_bucket_do_not_conflict(tmp_path: Path) -> None:
    options = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
    lakefmt.create_table(str(tmp_path / "t"), schema=SCHEMA, properties=QUEUE)
    first, second = (lakefmt.open_table(str(tmp_path / "t"), options=options) for _ in range(2))
    slow = lowlevel.begin_write(first, "insert")
    second.insert(rows("a", start=1))
    work = lowlevel.assign(slow, rows("a", start=2))
    done = [lowlevel.write_files(slow, each, some) for each, some in work]
    second.insert(rows("a", start=3))
    lowlevel.commit(slow, done)
    # The order is that in which the commits became visible, not that in which they began.
    assert list(in_order(second).values()) == [[1, 3, 2]]
    second.cluster()
    assert list(in_order(second).values()) == [[1, 3, 2]]


def test_the_whole_queue_is_read_in_the_order_in_which_its_commits_completed(tmp_path: Path) -> None:
    options = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
    table = lakefmt.create_table(str(tmp_path / "t"), schema=SCHEMA, properties=QUEUE, options=options)
    slow = lowlevel.begin_write(table, "insert")
    done = [lowlevel.write_files(slow, each, some) for each, some in lowlevel.assign(slow, rows("a", start=2))]
    table.insert(rows("a", start=1))
    lowlevel.commit(slow, done)
    table.insert(rows("a", start=3))

    def whole() -> list[int]:
        with table.stream("full", follow=False) as stream:
            return [n for batch in stream for n in batch.rows["n"].to_pylist()]

    assert whole() == [1, 2, 3]
    table.archive(options={"hoodie.keep.min.commits": 1, "hoodie.keep.max.commits": 2})
    assert [each.time for each in table.timeline.timeline.commits] == [table.timeline.timeline.commits[-1].time]
    assert whole() == [1, 2, 3]
    builder = ReadBuilder(table)
    splits = builder.new_scan().plan().splits()
    assert builder.new_read().to_arrow(splits)["n"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("buckets", ["1", "4"])
def test_a_delete_by_filter_takes_rows_out_of_their_buckets(buckets: str, table_type: str) -> None:
    properties = {**QUEUE, "lakefmt.append.buckets": buckets}
    if buckets == "1":
        del properties["lakefmt.append.bucket.key"]
    url = f"memory://queue-delete-{buckets}-{table_type}"
    table = lakefmt.create_table(url, schema=SCHEMA, properties=properties, table_type=table_type)
    for start in (0, 10):
        table.insert(rows(*"abcab", start=start))
    gone = table.delete("product = 'a' and n <> 13")
    assert gone.num_deletes == 3
    assert sorted(table.read()["n"].to_pylist()) == [1, 2, 4, 11, 12, 13, 14]
    for _ in range(2):
        with table.stream("full", follow=False) as stream:
            found: dict[str, list[int]] = {}
            for row in (row for batch in stream for row in batch.rows.to_pylist()):
                found.setdefault(row["product"], []).append(row["n"])
        assert found == {"a": [13], "b": [1, 4, 11, 14], "c": [2, 12]}
        table.cluster()
    assert table.delete("n = 99").num_deletes == 0


def files(*sizes: int) -> list[FileSlice]:
    found = []
    for number, size in enumerate(sizes):
        file_id = queue_file_id(0, f"{20260101000000000 + number}", "abcdef", 0)  # type: ignore[arg-type]
        base = BaseFile("", f"{file_id}_0-0-0_20260101000000000.parquet", file_id, "", "20260101000000000", size)  # type: ignore[arg-type]
        found.append(FileSlice(base.partition, file_id, base.instant, base))
    return found


@pytest.mark.parametrize(
    ("sizes", "all_small", "expected"),
    [
        ([1] * 15, False, []),
        ([1] * 16, False, [16]),
        ([500, *[1] * 16], False, [16]),
        ([1] * 5, True, [5]),
        ([1, 1, 1000, 1, 1], True, [2, 2]),
        ([1], True, []),
        ([1000, 1000], True, []),
        ([600, 600, 600], True, [3]),
    ],
)
def test_which_neighbours_are_packed(sizes: list[int], all_small: bool, expected: list[int]) -> None:
    rules = ClusteringRules(small_bytes=700, target_bytes=1000, group_bytes=2000)
    plan = plan_queue_clustering(files(*sizes), (), rules, lambda time: time, all_small=all_small)
    assert [len(group.slices) for group in plan.groups] == expected


def test_a_file_in_a_pending_plan_keeps_its_neighbours_apart() -> None:
    some = files(*[1] * 5)
    busy = [(some[2].partition, some[2].file_id)]
    plan = plan_queue_clustering(some, busy, ClusteringRules(), lambda time: time, all_small=True)
    assert [[each.file_id for each in group.slices] for group in plan.groups] == [
        [each.file_id for each in some[:2]],
        [each.file_id for each in some[3:]],
    ]
    with pytest.raises(UnsupportedFeature):
        plan_queue_clustering(some, (), ClusteringRules(order=RowOrder(("n",))), lambda time: time, all_small=True)


def test_files_that_a_filter_leaves_out_keep_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("FEW_FILES", "FEW_NEAR_FILES", "FEW_PARTITIONS"):
        monkeypatch.setattr(file_selection, limit, 0)  # the filter looks at the statistics of any file
    table = lakefmt.create_table("memory://queue-where", schema=SCHEMA, properties=QUEUE, indexes=["column_stats"])
    for n in range(6):
        table.insert(rows("a", start=n))
    expected = in_order(table)
    packed = table.compact(where="n < 2 or n > 3")
    assert packed.num_rows == 4
    assert list(in_order(table).values()) == list(expected.values()) == [[0, 1, 2, 3, 4, 5]]
    assert len(table.file_groups()) == 4


@given(st.lists(st.integers(1, 2000), max_size=60))
def test_a_call_leaves_few_files_and_comes_to_an_end(sizes: list[int]) -> None:
    rules = ClusteringRules(small_bytes=1000, target_bytes=1000, group_bytes=10**9, max_groups=10**6)
    small = [size for size in sizes if size < 1000]
    current, written = list(sizes), 0
    for _ in range(10):
        slices = files(*current)
        plan = plan_queue_clustering(slices, (), rules, lambda time: time, all_small=True)
        if not plan.groups:
            break
        written += plan.num_bytes
        starts = {each.file_id: group for group in plan.groups for each in group.slices[:1]}
        after: list[int] = []
        for each in slices:
            group = starts.get(each.file_id)
            if group is not None:
                total = group.num_bytes
                after += [1000] * (total // 1000) + ([total % 1000] if total % 1000 else [])
            elif (each.partition, each.file_id) not in plan.file_groups:
                assert each.base is not None
                after.append(each.base.size)
        assert sum(after) == sum(current)
        current = after
    else:
        raise AssertionError("packing does not end")
    assert written <= 3 * sum(small)
    if len(small) == len(sizes):
        assert len(current) <= -(-sum(sizes) // 1000) + 1


def test_after_commits_a_row_is_written_once_more_per_sixteenfold_size() -> None:
    rules = ClusteringRules(small_bytes=16**4, target_bytes=16**4, group_bytes=10**9)
    current: list[int] = []
    written = 0
    for _ in range(16**3):
        current.append(1)
        plan = plan_queue_clustering(files(*current), (), rules, lambda time: time, all_small=False)
        for group in plan.groups:
            first = next(n for n, each in enumerate(files(*current)) if each.file_id == group.slices[0].file_id)
            current[first : first + len(group.slices)] = [group.num_bytes]
            written += group.num_bytes
    assert written <= 3 * 16**3
    assert len(current) <= 3 * 15


def test_properties_that_name_no_order_are_damage() -> None:
    for key, value in (
        ("lakefmt.append.order", "random"),
        ("lakefmt.append.buckets", "x"),
        ("lakefmt.append.buckets", "9" * 99),
    ):
        with pytest.raises(CorruptFile):
            append_layout({**QUEUE, key: value})
