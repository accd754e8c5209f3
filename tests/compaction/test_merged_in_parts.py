"""A slice that is merged part by part has the rows, in their order, and the counts of one that is merged as a whole; it holds a part."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.compaction import compact_merge
from lakefmt._core.config.merge_rule import MergeRule, Order
from lakefmt._core.filegroups import base_writer
from lakefmt._core.filegroups.log_reader import LogRows
from lakefmt._core.filegroups.merged_slice import count_late, merge_logs
from lakefmt._core.values import COMMIT_SEQNO, META_COLUMNS, RECORD_KEY
from lakefmt.errors import CorruptFile

SCHEMA = pa.schema([*((name, pa.string()) for name in META_COLUMNS), ("ts", pa.int64()), ("v", pa.int64())])
KEYS = "abcdefgh"
RULES = [MergeRule(), MergeRule(Order(("ts",)), Order(("ts",)))]


def table(keys: list[str], times: list[int], first: int) -> pa.Table:
    """Return rows whose values and sequence numbers are `first` and the next ones."""
    numbers = range(first, first + len(keys))
    columns = {name: [None] * len(keys) for name in META_COLUMNS}
    columns |= {RECORD_KEY: keys, COMMIT_SEQNO: [str(number) for number in numbers]}
    return pa.table({**columns, "ts": times, "v": list(numbers)}, schema=SCHEMA)


@st.composite
def slices(draw: st.DrawFn) -> tuple[list[pa.Table], LogRows]:
    """Draw the parts of a base file and the rows of its logs: deletes, partial rows, positions that hold or do not."""
    keys = draw(st.lists(st.sampled_from(KEYS), max_size=8, unique=draw(st.booleans())))
    base = table(keys, draw(st.lists(st.integers(0, 3), min_size=len(keys), max_size=len(keys))), 0)
    cuts = sorted(draw(st.lists(st.integers(0, len(keys)), max_size=3)))
    parts = [base.slice(begin, end - begin) for begin, end in zip([0, *cuts], [*cuts, len(keys)], strict=True)]
    log_keys = draw(st.lists(st.sampled_from(KEYS), max_size=10))
    count = len(log_keys)

    def flags() -> np.ndarray:
        return np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), dtype=bool)

    deletes = flags()
    rows = table(log_keys, draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)), 100)
    is_partial = draw(st.booleans())
    kinds = (None, frozenset({*META_COLUMNS, "ts"})) if is_partial else (None,)
    brings = flags().astype(np.int64) if is_partial else np.zeros(count, np.int64)
    positions = None
    if draw(st.booleans()):
        truth = {key: number for number, key in enumerate(keys)}
        stale = draw(st.integers(0, 2))
        positions = np.array([truth.get(key, 0) + stale for key in log_keys], np.int64)
    known = frozenset({"ts", "v"})
    return parts, LogRows(rows, deletes, deletes & flags(), brings, kinds, positions=positions, known=known)


@given(slices(), st.sampled_from(RULES))
def test_parts_together_are_the_whole(drawn: tuple[list[pa.Table], LogRows], rule: MergeRule) -> None:
    parts, logs = drawn
    base = pa.concat_tables(parts)
    whole = merge_logs(base, logs, rule)
    in_parts = compact_merge._LogsInParts(logs, base.num_rows, is_cut=True)
    merged, late, changes = [], 0, np.zeros(3, np.int64)
    for part in parts:
        beside, new = in_parts.beside(part)
        merged.append(merge_logs(part, beside, rule))
        changes += compact_merge._count_changes(part, beside, merged[-1])
        counted = count_late(part, new, rule)
        late = None if late is None or counted is None else late + counted
    in_parts.check_complete("file")
    if base.num_rows:  # of a file without rows there is one part, which is not cut
        assert pa.concat_tables(merged).equals(whole)
    stored = base.column(RECORD_KEY).to_pylist()
    if stored and len(set(stored)) == len(stored):
        assert tuple(changes) == compact_merge._count_changes(base, logs, whole)
        whole_late = count_late(base, logs, rule)
        assert late == whole_late or logs.is_partial
    absent = in_parts.absent_keys().to_pylist()
    assert absent == [key for key in dict.fromkeys(logs.table.column(RECORD_KEY).to_pylist()) if key not in stored]


def test_a_base_file_that_has_fewer_rows_than_it_says_is_damaged() -> None:
    logs = LogRows(table(["a"], [1], 1), *(np.zeros(1, dtype=bool),) * 2, np.zeros(1, np.int64), (None,))
    in_parts = compact_merge._LogsInParts(logs, 3, is_cut=True)
    in_parts.beside(table(["a", "b"], [1, 1], 0))
    with pytest.raises(CorruptFile, match="2 rows came"):
        in_parts.check_complete("file")


def test_a_compaction_in_parts_writes_what_one_of_the_whole_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for part_bytes in (1, 1 << 30):
        monkeypatch.setattr(compact_merge, "row_group_bytes", lambda size=part_bytes: size)
        rows = pa.table({"id": [f"{n:04}" for n in range(100)], "ts": [5] * 100, "v": range(100)})
        made = lakefmt.create_table(
            f"memory://parts-{part_bytes}", schema=rows.schema, record_key="id", ordering="ts", table_type="mor"
        )
        made.bulk_insert(rows.slice(0, 90))
        made.upsert(rows.slice(80).set_column(2, "v", pa.array(range(200, 220))))
        made.upsert(rows.slice(0, 3).set_column(1, "ts", pa.array([4, 6, 4])))
        made.delete(["0050"])
        result = made.compact()
        found.append((made.read().select(rows.column_names).sort_by("id"), result.num_rows, result.num_late))
    assert found[0] == found[1]


#: Bytes of a row group, so that small files have many.
GROUP_BYTES = 1 << 20
#: In a process of its own: Arrow's pool knows its largest size since the process began.
PROGRAM = """
import sys
import pyarrow as pa
import lakefmt
from lakefmt._core.filegroups import base_writer

base_writer._ROW_GROUP_BYTES = int(sys.argv[2])
lakefmt.open_table(sys.argv[1]).compact()
print(pa.default_memory_pool().max_memory())
"""


@pytest.mark.slow
def test_a_compaction_does_not_hold_the_base_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_writer, "_ROW_GROUP_BYTES", GROUP_BYTES)
    peaks, row_bytes = [], []
    for count in (30_000, 120_000):
        rng = np.random.default_rng(count)
        columns = {f"f{number}": rng.random(count) for number in range(16)}
        rows = pa.table({"id": [f"{number:08}" for number in range(count)], **columns})
        table = lakefmt.create_table(tmp_path / str(count), schema=rows.schema, record_key="id", table_type="mor")
        table.bulk_insert(rows)
        table.upsert(rows.slice(0, 300))
        (base,) = tmp_path.glob(f"{count}/*.parquet")
        assert pq.read_metadata(base).num_row_groups > 4
        row_bytes.append(table.read().nbytes)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, table.client.store.url, str(GROUP_BYTES)],
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(done.stdout))
        assert table.count() == count
    grown, more = peaks[1] - peaks[0], row_bytes[1] - row_bytes[0]
    assert grown <= more / 4, f"Arrow held {grown:,} bytes more for {more:,} bytes more of rows: {peaks}"
