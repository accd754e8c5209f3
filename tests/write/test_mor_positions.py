"""Record positions: written where the row is known, believed where the base file agrees, and the rows are the same."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.config.merge_rule import MergeRule
from lakefmt._core.filegroups import merged_slice
from lakefmt._core.filegroups.log_reader import LogRows
from lakefmt._core.filegroups.merged_slice import merge_logs
from lakefmt._core.formats.log_blocks import HeaderKey, LogBlockReader, WholeBlock
from lakefmt._core.formats.log_data_block import decode_positions
from lakefmt._core.values import RECORD_KEY, MergeMode, WriteStat
from tests.example_counts import examples
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.kit import product_or_diagonal

NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
OPTIONS: dict[str, object] = {"lakefmt.durability": "none"}


def rows(keys: list[int], ts: int = 1, v: int = 0) -> pa.Table:
    n = len(keys)
    return pa.table([[f"k{k:04d}" for k in keys], [f"p{k % 2}" for k in keys], [ts] * n, [v] * n], schema=SCHEMA)


def make(version: int = 8, url: str | None = None, **given_: Any) -> lakefmt.Table:
    return lakefmt.create_table(
        url or f"memory://positions-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="p",
        table_type="mor",
        table_version=version,
        **{"ordering": "ts", "options": OPTIONS, **given_},
    )


def blocks(table: lakefmt.Table, stat: WriteStat) -> list[WholeBlock]:
    reader = LogBlockReader(stat.path)
    reader.feed(table.client.store.read(stat.path))
    return [found for found in reader.finish() if isinstance(found, WholeBlock)]


def check_positions(table: lakefmt.Table, result: lakefmt.CommitResult) -> int:
    """Every block of a result's logs says its positions, and the base file has these keys there. Returns how many."""
    state, count = table.client.load(), 0
    slices = {piece.file_id: piece for piece in table.client.at(state).slices()}
    for stat in result.files:
        base = slices[stat.file_id].base
        keys = table.client.reader.keys(base).to_pylist()
        for found in blocks(table, stat):
            header = found.block.header
            assert header[HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS] == base.instant
            places = decode_positions(header[HeaderKey.RECORD_POSITIONS], 10_000)
            count += len(places)
            told = keys_of(table, stat, found)
            assert [keys[n] for n in places] == told
    return count


def keys_of(table: lakefmt.Table, stat: WriteStat, found: WholeBlock) -> list[str]:
    from lakefmt._core.formats.log_blocks import BlockKind
    from lakefmt._core.formats.log_data_block import decode_avro_content, decode_parquet_content
    from lakefmt._core.formats.log_delete_block import decode_delete_content

    if found.block.kind is BlockKind.DELETE:
        return list(decode_delete_content(found.content, what=stat.path).keys.to_pylist())
    if found.block.kind is BlockKind.PARQUET_DATA:
        return list(decode_parquet_content(found.content, [RECORD_KEY], what=stat.path)[RECORD_KEY].to_pylist())
    return list(
        decode_avro_content(found.content, found.block.schema or "", [RECORD_KEY], what=stat.path)[
            RECORD_KEY
        ].to_pylist()
    )


@product_or_diagonal(index=["bloom", "simple", "global_bloom", "global_simple"], version=[8, 9])
def test_every_block_says_where_its_rows_are(version: int, index: str) -> None:
    table = make(version, index=index)
    table.upsert(rows(list(range(100))))
    shuffled = [int(n) for n in np.random.default_rng(7).permutation(40)]
    assert check_positions(table, table.upsert(rows(shuffled, ts=2))) == 40
    assert check_positions(table, table.upsert(rows(shuffled[:9], ts=3).drop_columns(["v"]), partial=True)) == 9
    rolling = {"hoodie.logfile.data.block.max.size": 300, "hoodie.logfile.data.block.format": "parquet"}
    assert check_positions(table, table.upsert(rows(shuffled[5:], ts=4), options=rolling)) == 35
    assert check_positions(table, table.delete([f"k{n:04d}" for n in shuffled[:7]])) == 7
    assert check_positions(table, table.delete("ts = 4 and v = 0 and id > 'k0030'")) > 0
    expected = sorted(table.read()["id"].to_pylist())
    table.compact(verify=True)
    assert sorted(table.read(query="read_optimized")["id"].to_pylist()) == expected


def test_none_are_written_where_they_would_say_too_little() -> None:
    def headers(table: lakefmt.Table, result: lakefmt.CommitResult) -> set[HeaderKey]:
        return {key for stat in result.files for found in blocks(table, stat) for key in found.block.header}

    doubled = make(8)
    doubled.insert(pa.concat_tables([rows([0, 2, 4]), rows([2], v=1)]))  # the same key twice in one base file
    assert HeaderKey.RECORD_POSITIONS not in headers(doubled, doubled.upsert(rows([0, 2], ts=2, v=5)))
    assert sorted(doubled.read()["v"].to_pylist()) == [0, 5, 5, 5], "every row of the key is updated"
    old = make(6)
    old.upsert(rows([0, 2]))
    assert HeaderKey.RECORD_POSITIONS not in headers(old, old.upsert(rows([0], ts=2)))
    off = make(8, options={**OPTIONS, "hoodie.write.record.positions": False})
    off.upsert(rows([0, 2]))
    assert HeaderKey.RECORD_POSITIONS not in headers(off, off.upsert(rows([0], ts=2)))


# ------------------------------------------------------------------------------------------------------------ reading


@st.composite
def slices(draw):
    """A base file's rows and logs on top of it, with the places of those that it has; perhaps a lie."""
    stored = draw(st.lists(st.integers(0, 30), min_size=1, max_size=20, unique=True))
    base = pa.table(
        {RECORD_KEY: [str(k) for k in stored], "ts": [draw(st.integers(0, 3)) for _ in stored], "v": stored}
    )
    count = draw(st.integers(1, 15))
    keys = draw(st.lists(st.sampled_from(stored), min_size=count, max_size=count))
    stamps = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    kinds = draw(st.lists(st.sampled_from(["row", "delete", "always"]), min_size=count, max_size=count))
    table = pa.table({RECORD_KEY: [str(k) for k in keys], "ts": stamps, "v": [100 + n for n in range(count)]})
    deletes, always = np.array([k != "row" for k in kinds]), np.array([k == "always" for k in kinds])
    places = np.array([stored.index(k) for k in keys], np.int64)
    if draw(st.booleans()):
        places[draw(st.integers(0, count - 1))] = draw(st.integers(0, 40))
    return base, LogRows(table, deletes, always, np.zeros(count, np.int64), (None,), positions=places)


@settings(max_examples=examples(60))
@given(slices(), st.sampled_from([(), ("ts",)]))
def test_by_position_or_by_key_the_rows_are_the_same(found, ordering) -> None:
    base, logs = found
    rule = MergeRule.plain(MergeMode.EVENT_TIME_ORDERING, ordering)
    without = LogRows(logs.table, logs.deletes, logs.always, logs.brings, logs.columns)
    assert merge_logs(base, logs, rule).equals(merge_logs(base, without, rule))


def test_positions_are_used_and_lies_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(8)
    table.upsert(rows(list(range(20))))
    table.upsert(rows([4, 2, 6], ts=2, v=7))
    table.delete(["k0008"])
    expected = table.read()
    used: list[bool] = []
    original = merged_slice._places_in_base

    def seen(*arguments: Any) -> Any:
        used.append(original(*arguments) is not None)
        return original(*arguments)

    monkeypatch.setattr(merged_slice, "_places_in_base", seen)
    assert_same_multiset(table.read(), expected)
    assert used == [True]
    monkeypatch.setattr(merged_slice, "_places_in_base", lambda *_: None)
    assert_same_multiset(table.read(), expected)
    monkeypatch.setattr(merged_slice, "_places_in_base", seen)
    (path,) = [o.name for o in table.client.store.list("p=p0") if ".log." in o.name][:1]
    store = table.client.store
    stored = store.read(path)
    from lakefmt._core.formats.log_data_block import encode_positions

    truth, lie = (encode_positions(np.array(n)).encode() for n in ([1, 2, 3], [1, 2, 9]))
    assert truth in stored
    store.put(path, stored.replace(truth, lie))
    used.clear()
    assert_same_multiset(table.read(), expected)
    assert used == [False]


def test_logs_above_another_base_file_are_merged_by_key(tmp_path, hudi_rs_judge: HudiRsJudge) -> None:
    """They were written beside a compaction, and say the rows of the file that it replaced."""
    table = make(8, str(tmp_path / "t"))
    table.upsert(rows(list(range(20))))
    table.delete(["k0000", "k0001"])
    planned = table.compact(schedule=True)
    table.upsert(rows([4, 5], ts=2, v=7))
    table.compact(run=planned.instant)
    expected = pa.concat_tables([rows([n for n in range(2, 20) if n not in (4, 5)]), rows([4, 5], ts=2, v=7)])
    assert_same_multiset(table.read(), expected)
    assert_same_multiset(hudi_rs_judge.snapshot(tmp_path / "t"), expected)
