"""Which rows changed between two states of a file group, and how changes look in a change file."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakefmt._core.config.table_config import CdcMode
from lakefmt._core.filegroups.cdc import build_cdc_rows, changes_of_merge, compare_rows, match_keys
from lakefmt._core.filegroups.merge import Incoming, merge_into_base
from lakefmt._core.formats.log_blocks import scan_blocks
from lakefmt._core.formats.log_data_block import build_cdc_schema, decode_cdc_content, encode_cdc_blocks
from lakefmt._core.schema import arrow_to_avro, without_meta_columns
from lakefmt._core.values import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY
from lakefmt.errors import CorruptFile

SCHEMA = pa.schema(
    [
        (COMMIT_TIME, pa.string()),
        (COMMIT_SEQNO, pa.string()),
        (RECORD_KEY, pa.string()),
        ("v", pa.float64()),
        ("deep", pa.struct([("xs", pa.list_(pa.int32())), ("name", pa.string())])),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)


def rows(*found: tuple[str, str, float | None]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                COMMIT_TIME: seq[:1],
                COMMIT_SEQNO: seq,
                RECORD_KEY: key,
                "v": v,
                "deep": {"xs": [1], "name": key} if v else None,
                "tags": [(key, 1)],
            }
            for key, seq, v in found
        ],
        schema=SCHEMA,
    )


def told(before: pa.Table, after: pa.Table, **how: Any) -> tuple[list[object], ...]:
    found = compare_rows(before, after, **how)
    assert found.before[RECORD_KEY].to_pylist() == found.after[RECORD_KEY].to_pylist()
    pairs = list(zip(found.before["v"].to_pylist(), found.after["v"].to_pylist(), strict=True))
    return found.deleted[RECORD_KEY].to_pylist(), pairs, found.inserted[RECORD_KEY].to_pylist()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([], [], ([], [], [])),
        ([], [("a", "1", 1)], ([], [], ["a"])),
        ([("a", "1", 1)], [], (["a"], [], [])),
        ([("a", "1", 1)], [("a", "1", 1)], ([], [], [])),
        ([("a", "1", 1), ("b", "2", 2)], [("b", "2", 2), ("a", "3", 9)], ([], [(1, 9)], [])),
        # a key that is stored twice: both places updated, one more inserted, one gone
        ([("a", "1", 1), ("a", "2", 2)], [("a", "3", 7), ("a", "3", 7)], ([], [(1, 7), (2, 7)], [])),
        ([("a", "1", 1)], [("a", "1", 1), ("a", "2", 2)], ([], [], ["a"])),
        ([("a", "1", 1), ("b", "1", 1), ("a", "2", 2)], [("b", "1", 1)], (["a", "a"], [], [])),
    ],
)
def test_rows_are_compared_by_key_and_writing(before: Any, after: Any, expected: Any) -> None:
    assert told(rows(*before), rows(*after)) == expected


def test_a_merge_that_removes_and_updates_pairs_the_right_rows() -> None:
    base = rows(("a", "1", 1), ("b", "1", 2), ("c", "1", 3), ("d", "1", 4))
    coming = Incoming(rows(("c", "2", 9), ("a", "2", None), ("e", "2", 5)), np.array([False, True, False]))
    found = changes_of_merge(base, merge_into_base(base, coming))
    assert found.deleted[RECORD_KEY].to_pylist() == ["a"]
    assert (found.before["v"].to_pylist(), found.after["v"].to_pylist()) == ([3], [9])
    assert found.after[RECORD_KEY].to_pylist() == ["c"]
    assert found.inserted[RECORD_KEY].to_pylist() == ["e"]


def test_rows_that_kept_their_number_are_compared_by_value_when_asked() -> None:
    before = rows(("a", "1", math.nan), ("b", "1", 0.0), ("c", "1", 1.0))
    after = rows(("a", "1", math.nan), ("b", "1", None), ("c", "1", 1.0))
    assert told(before, after) == ([], [], [])
    assert told(before, after, by_value=True) == ([], [(0.0, None)], [])
    deep = after.set_column(4, "deep", pa.array([{"xs": [2], "name": "a"}, None, None], SCHEMA.field("deep").type))
    assert compare_rows(after, deep, by_value=True).after[RECORD_KEY].to_pylist() == ["a", "c"]


def test_keys_find_the_rows_that_have_them() -> None:
    column = lambda *keys: pa.chunked_array([list(keys)], pa.string())  # noqa: E731
    assert match_keys(column(), column("a")).to_pylist() == []
    assert match_keys(column("a", "b"), column()).to_pylist() == [None, None]
    assert match_keys(column("b", "a", "b"), column("a", "b")).to_pylist() == [1, 0, None]


@pytest.mark.parametrize("mode", list(CdcMode))
def test_changes_come_back_from_their_block(mode: CdcMode) -> None:
    before = rows(("a", "1", 1), ("b", "1", 2), ("c", "1", None))
    changes = compare_rows(before, rows(("b", "2", 3), ("c", "1", None), ("d", "2", 4)))
    table = build_cdc_rows(changes, mode, "20260101000000000")
    schema = build_cdc_schema(arrow_to_avro(without_meta_columns(SCHEMA), "t"), mode)
    (data,) = encode_cdc_blocks(table, "20260101000000000", schema)
    (block,) = scan_blocks(lambda at, count: data[at : at + count], len(data), "a.cdc")
    content = data[block.content_start : block.content_start + block.content_size]
    back = decode_cdc_content(content, schema, what="a.cdc")
    assert back.to_pylist() == table.to_pylist()
    assert back["op"].to_pylist() == ["d", "u", "i"]
    wrong = bytearray(content)
    wrong[wrong.index(b"d", 12)] = ord("x")
    with pytest.raises(CorruptFile, match="none of i, u, d"):
        decode_cdc_content(bytes(wrong), schema, what="a.cdc")


def test_the_schema_is_the_one_that_spark_writes() -> None:
    from pathlib import Path

    data = (Path(__file__).parents[1] / "data/formats/log/v9-1.2.0-changes.cdc.log").read_bytes()
    (block,) = scan_blocks(lambda at, count: data[at : at + count], len(data), "a.cdc")
    theirs = json.loads(block.schema or "")
    image = theirs["fields"][2]["type"][1]
    # On its own the image carries the namespace that it takes from the change's record.
    alone = json.dumps({**image, "namespace": theirs["namespace"]})
    ours = json.loads(build_cdc_schema(alone, CdcMode.DATA_BEFORE_AFTER))
    ours["fields"][2]["type"][1].pop("namespace")
    assert ours["fields"][3]["type"] == ["null", f"{theirs['namespace']}.{image['name']}"]
    ours["fields"][3]["type"] = theirs["fields"][3]["type"]
    assert {**ours, "doc": ""} == {**theirs, "doc": ""}


@pytest.mark.parametrize(
    "fields",
    [
        [{"name": "op", "type": "string"}],
        [{"name": "op", "type": "string"}, {"name": "before", "type": "string"}],
        [{"name": "record_key", "type": "string"}],
        [{"name": "op", "type": "string"}, {"name": "record_key", "type": "string"}, {"name": "x", "type": "string"}],
    ],
)
def test_other_records_are_no_changes(fields: list[dict[str, str]]) -> None:
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    with pytest.raises(CorruptFile, match="a block of changes"):
        decode_cdc_content(bytes.fromhex("0000000300000000"), schema, what="a.cdc")
