"""Consistent hashing: Hudi's rings and hashes to the bit, the laws of a ring, and tables whose rows lie by their rings."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.names import RING_DIRECTORY, ring_directory
from lakefmt._core.index import bucket_index
from lakefmt._core.index.bucket_index import joined_values, xxhash32
from lakefmt._core.index.bucket_ring import (
    FIRST_RING,
    LARGEST_HASH,
    HashNode,
    HashRing,
    decode_ring,
    encode_ring,
    first_ring,
)
from lakefmt._core.index.bucket_ring_files import RingFiles
from lakefmt._core.values import PartitionPath
from lakefmt.errors import (
    CommitConflict,
    CorruptFile,
    InvalidInputError,
    InvalidKey,
    UnknownSetting,
    UnsupportedFeature,
)
from tests.index.ring_tables import ENGINE, FAST, check, make, rows

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "index" / "bucket_vectors.json").read_text("utf-8"))
P = PartitionPath("p")

# ------------------------------------------------------------------------------------------------------ the hash


def test_hashes_are_those_of_hudi() -> None:
    texts = list(VECTORS["xxh32"])
    assert (xxhash32(pa.array(texts)) & 0x7FFFFFFF).tolist() == list(VECTORS["xxh32"].values())


def rotated(value: int, turn: int) -> int:
    return (value << turn | value >> (32 - turn)) & 0xFFFFFFFF


def reference(data: bytes) -> int:
    """XXH32 with seed 0, byte by byte."""
    one, two, three, four, five = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data) // 4 * 4, 4)]
    value, stripes = five, len(data) // 16
    if stripes:
        lanes = [(one + two) & 0xFFFFFFFF, two, 0, -one & 0xFFFFFFFF]
        for number, word in enumerate(words[: 4 * stripes]):
            lanes[number % 4] = rotated((lanes[number % 4] + word * two) & 0xFFFFFFFF, 13) * one & 0xFFFFFFFF
        value = sum(rotated(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True))
    value = (value + len(data)) & 0xFFFFFFFF
    for word in words[4 * stripes :]:
        value = rotated((value + word * three) & 0xFFFFFFFF, 17) * four & 0xFFFFFFFF
    for byte in data[len(words) * 4 :]:
        value = rotated((value + byte * five) & 0xFFFFFFFF, 11) * one & 0xFFFFFFFF
    for turn, factor in ((15, two), (13, three)):
        value = (value ^ value >> turn) * factor & 0xFFFFFFFF
    return value ^ value >> 16


@given(st.lists(st.text("aé日😀x1", max_size=40), max_size=12), st.integers(1, 5))
def test_the_hash_over_columns_is_that_of_one_text_after_the_other(texts: list[str], part: int) -> None:
    column = pa.array(["cut", *texts, "off"])[1:-1]
    before = bucket_index._XXHASH_PART_ROWS
    bucket_index._XXHASH_PART_ROWS = part  # type: ignore[misc]
    try:
        assert xxhash32(column).tolist() == [reference(text.encode()) for text in texts]
    finally:
        bucket_index._XXHASH_PART_ROWS = before  # type: ignore[misc]


@pytest.mark.parametrize(
    ("key", "fields", "expected"),
    [
        ("id1", "id", "id1"),
        ("a:b", "id", "a:b"),
        ("a:1,b:2", "a,b", "12"),
        ("a:1,b:2", "b", "2"),
        ("a:x,y,b:2", "a,b", "x,y2"),
        ("a:__null__,b:2", "a,b", "null2"),
        ("a:__empty__,b:日", "a,b", "日"),
    ],
)
def test_the_values_of_a_key_are_joined(key: str, fields: str, expected: str) -> None:
    column = pa.array(["whole", key, "", key, "last"])[1:]
    assert joined_values(column, fields.split(",")).to_pylist() == [expected, "", expected, "last"]


def test_keys_without_a_hashed_field_are_refused() -> None:
    with pytest.raises(InvalidKey, match="hash nothing"):
        joined_values(pa.array(["a:b,c"]), ["id"])
    with pytest.raises(InvalidKey, match=r"before 1\.0"):
        joined_values(pa.array(["a:b"]), ["id"], strict=True)


# ------------------------------------------------------------------------------------------------------- the ring


@pytest.mark.parametrize("partition", list(VECTORS["rings_of_4"]))
def test_rings_are_those_of_hudi(partition: str) -> None:
    stored = VECTORS["rings_of_4"][partition]
    ring = first_ring(PartitionPath(partition), 4)
    assert json.loads(encode_ring(ring)) == stored
    as_java_writes = json.dumps(stored, ensure_ascii=False).encode()
    assert decode_ring(as_java_writes, PartitionPath(partition), "r") == ring


def test_a_ring_is_written_as_java_does() -> None:
    assert encode_ring(first_ring(P, 1)).decode() == (
        '{\n  "version" : 0,\n  "partitionPath" : "p",\n  "instant" : "00000000000000",\n  "numBuckets" : 1,\n'
        '  "seqNo" : 0,\n  "nodes" : [ {\n    "value" : 2147483647,\n'
        '    "fileIdPrefix" : "' + first_ring(P, 1).nodes[0].prefix + '",\n    "tag" : "NORMAL"\n  } ]\n}'
    )


class Uuids:
    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> str:
        self.made += 1
        return str(UUID(int=self.made))


hashes = st.lists(st.integers(0, LARGEST_HASH), min_size=1, max_size=30)
steps = st.lists(st.tuples(st.sampled_from(["split", "merge", "renew"]), st.integers(0, 99)), max_size=12)


def changed(ring: HashRing, step: str, number: int, uuids: Uuids) -> HashRing:
    number %= len(ring.nodes)
    node, former = ring.nodes[number], ring.nodes[number - 1]
    if step == "renew":
        return ring.renewed("2", {node.file_id})
    if step == "split":
        parts = ring.split(number, uuids)
        return ring if parts is None else ring.replaced("2", {node.value}, parts)
    if len(ring.nodes) == 1:
        return ring
    return ring.replaced("2", {former.value, node.value}, [HashNode(node.value, uuids())])


@given(st.integers(1, 12), steps, hashes)
def test_a_change_of_nodes_moves_no_other_hash(count: int, changes: list[tuple[str, int]], some: list[int]) -> None:
    ring, uuids = first_ring(P, count), Uuids()
    values = np.array(some)
    for step, number in changes:
        before = [ring.nodes[at] for at in ring.node_numbers(values)]
        after_ring = changed(ring, step, number, uuids)
        after = [after_ring.nodes[at] for at in after_ring.node_numbers(values)]
        kept = set(ring.nodes) & set(after_ring.nodes)
        assert all(new == old for old, new in zip(before, after, strict=True) if old in kept or new in kept)
        assert {node.value for node in after_ring.nodes} == {
            n.value for n in sorted(after_ring.nodes, key=lambda n: n.value)
        }
        assert decode_ring(encode_ring(after_ring), P, "r") == after_ring
        ring = after_ring
    assert sorted({node.value for node in ring.nodes}) == [node.value for node in ring.nodes]
    assert len({node.file_id for node in ring.nodes}) == len(ring.nodes)


@given(st.integers(1, 40), hashes)
def test_every_hash_has_the_first_node_that_is_not_below_it(count: int, some: list[int]) -> None:
    ring = first_ring(P, count)
    for value, number in zip(some, ring.node_numbers(np.array(some)), strict=True):
        former = ring.nodes[number - 1].value if number else -1
        assert former < value <= ring.nodes[number].value
    gaps = [b.value - a.value for a, b in pairwise(ring.nodes)]
    assert not gaps or max(gaps) - min(gaps) <= count


def test_hashes_above_all_nodes_belong_to_the_first() -> None:
    ring = HashRing(P, "1", 2, 0, (HashNode(10, "a"), HashNode(20, "b")))
    assert ring.node_numbers(np.array([0, 10, 11, 20, 21, LARGEST_HASH])).tolist() == [0, 0, 1, 1, 0, 0]
    first, second = ring.split(0, Uuids()) or ()
    assert second.value == 10  # type: ignore[union-attr]
    assert first.value == (20 + (10 - 20 + 2**31) // 2) & LARGEST_HASH  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "change",
    [
        {"version": 1},
        {"partitionPath": "q"},
        {"nodes": []},
        {"nodes": [{"value": -1, "fileIdPrefix": "a", "tag": "NORMAL"}]},
        {"nodes": [{"value": 1, "fileIdPrefix": "../../a", "tag": "NORMAL"}]},
        {"nodes": [{"value": 1, "fileIdPrefix": "a", "tag": "DELETE"}]},
        {"nodes": [{"value": 1, "fileIdPrefix": "a"}] * 2},
        {"nodes": [7]},
        {"instant": 7},
        {"seqNo": -1},
        {"numBuckets": "4"},
    ],
)
def test_damaged_rings_are_refused(change: dict[str, object]) -> None:
    body = json.dumps({**json.loads(encode_ring(first_ring(P, 2))), **change}).encode()
    with pytest.raises((CorruptFile, UnsupportedFeature)):
        decode_ring(body, P, "r")


# ----------------------------------------------------------------------------------------------------- the table


def test_rows_lie_by_the_rings_of_their_partitions() -> None:
    table = make("rows")
    model: dict[str, int] = {}
    for turn, (first, last) in enumerate([(0, 60), (20, 90), (0, 90)]):
        table.upsert(rows(first, last, turn))
        model |= {f"k{n}": turn for n in range(first, last)}
        check(table, model)
    assert {one.file_id for one in table.file_groups() if one.partition == "p=p0"} == {
        node.file_id for node in first_ring(PartitionPath("p=p0"), 4).nodes
    }
    table.delete(["k1", "k2"])
    del model["k1"], model["k2"]
    check(table, model)
    table.compact()
    check(table, model)
    table.bulk_insert(iter([rows(90, 100, 9), rows(100, 110, 9)]))
    check(table, model := model | {f"k{n}": 9 for n in range(90, 110)})
    lakefmt.open_table(table.client.store.url, options=FAST).upsert(rows(0, 9, 10))
    check(table, model | {f"k{n}": 10 for n in range(9)})


def test_replaced_file_groups_get_other_ids() -> None:
    """Their ids stay hidden: the ring of the overwriting commit has others."""
    table = make("replaced")
    table.upsert(rows(0, 60, 1))
    first = {one.file_id for one in table.file_groups()}
    table.insert_overwrite(rows(0, 30, 2))
    check(table, {f"k{n}": 2 for n in range(30)})
    assert not first & {one.file_id for one in table.file_groups()}
    table.upsert(rows(20, 70, 3))
    model = {f"k{n}": 2 + (n >= 20) for n in range(70)}
    check(table, model)
    table.delete_partitions(["p=p0"])
    model = {f"k{n}": v for n, v in ((n, model[f"k{n}"]) for n in range(70)) if n // 3 % 2}
    check(table, model)
    table.upsert(rows(0, 70, 4))
    check(table, {f"k{n}": 4 for n in range(70)})
    table.insert_overwrite_table(rows(60, 80, 5))
    check(table, {f"k{n}": 5 for n in range(60, 80)})
    table.upsert(rows(0, 80, 6))
    check(table, {f"k{n}": 6 for n in range(80)})


def test_a_ring_of_an_undone_instant_does_not_count() -> None:
    table = make("undone")
    table.upsert(rows(0, 30, 1))
    done = table.insert_overwrite(rows(0, 12, 2))
    assert done.instant is not None
    table.rollback(done.instant)
    check(table, {f"k{n}": 1 for n in range(30)})
    directory = ring_directory(PartitionPath("p=p0"))

    def rings() -> set[str]:
        return {info.name.rpartition("/")[2] for info in table.client.store.list(directory)}

    assert rings() == {f"{FIRST_RING}.hashing_meta", f"{done.instant}.commit", f"{done.instant}.hashing_meta"}
    table.upsert(rows(0, 40, 3))
    check(table, {f"k{n}": 3 for n in range(40)})
    assert rings() == {f"{FIRST_RING}.hashing_meta"}, "Hudi 1.0 would believe the mark"


def test_two_writers_of_a_new_partition_use_one_ring() -> None:
    table = make("two")
    store = table.client.store
    ours, theirs = (RingFiles(TableClient(store).at(table.client.load()), count) for count in (4, 4))
    assert ours.ring(P) == theirs.ring(P)
    other = RingFiles(TableClient(store).at(table.client.load()), 8)
    other.ring(P)
    ours.keep("20260101000000000")  # type: ignore[arg-type]
    theirs.keep("20260101000000001")  # type: ignore[arg-type]
    with pytest.raises(CommitConflict, match="another number of buckets"):
        other.keep("20260101000000002")  # type: ignore[arg-type]
    again = RingFiles(TableClient(store).at(table.client.load()), 8)
    assert again.ring(P) == ours.ring(P)
    assert [info.name for info in store.list(ring_directory(P))] == [f"{RING_DIRECTORY}/p/{FIRST_RING}.hashing_meta"]


def test_fields_and_tables_without_partitions() -> None:
    table = make("fields", record_key=["id", "n"], partition_by=None)
    table.upsert(rows(0, 40, 1))
    check(table, {f"k{n}": 1 for n in range(40)}, ["id", "n"])
    name = f"{RING_DIRECTORY}/{FIRST_RING}.hashing_meta"
    assert json.loads(table.client.store.read(name))["partitionPath"] == ""


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ({"table_type": "cow"}, UnsupportedFeature, "merge-on-read"),
        (
            {"properties": {ENGINE: "CONSISTENT_HASHING", "hoodie.bucket.index.partition.expressions": "a,2"}},
            UnknownSetting,
            "does not go with",
        ),
    ],
)
def test_unfit_settings_are_refused(how: dict[str, object], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        make("refused", **how)


def test_what_does_not_go_with_rings_is_refused() -> None:
    table = make("unfit")
    table.upsert(rows(0, 12, 1))
    with pytest.raises(UnknownSetting, match="contradicts the table"):
        table.upsert(rows(0, 12, 2), options={ENGINE: "SIMPLE"})
    mode = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
    with pytest.raises(InvalidInputError, match="fixed number of buckets"):
        table.upsert(rows(0, 12, 2), options=mode)
    # As Spark leaves it: nothing but the rings tells the index.
    store = table.client.store
    kept = store.read(".hoodie/hoodie.properties").decode().splitlines()
    lines = [line for line in kept if not line.startswith(("hoodie.index.", "hoodie.bucket.", "hoodie.table.checksum"))]
    store.put(".hoodie/hoodie.properties", ("\n".join(lines) + "\n").encode())
    store.delete([".hoodie/.lakefmt/table.json"])
    unaware = lakefmt.open_table(store.url, options=FAST)
    for options in ({}, {"hoodie.index.type": "SIMPLE"}, {"hoodie.index.type": "BUCKET"}):
        with pytest.raises(UnsupportedFeature, match="consistent hashing"):
            unaware.upsert(rows(0, 20, 2), options=options)
    aware = {"hoodie.index.type": "BUCKET", ENGINE: "CONSISTENT_HASHING"}
    unaware.upsert(rows(0, 20, 2), options=aware)
    check(unaware, {f"k{n}": 2 for n in range(20)})


def test_a_key_at_a_wrong_node_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law can say no: with another hash rows lie in other file groups."""
    table = make("wrong")
    with monkeypatch.context() as wrong:
        wrong.setattr(bucket_index, "xxhash32", lambda texts: xxhash32(texts) ^ np.uint32(1 << 30))
        table.upsert(rows(0, 20, 1))
    with pytest.raises(AssertionError):
        check(table, {f"k{n}": 1 for n in range(20)})
