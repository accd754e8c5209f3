"""A load of few partitions writes several files side by side: every row once, in files of their own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.values import PartitionPath
from lakefmt._core.write import bulk_insert


@given(st.integers(0, 100), st.integers(0, 5), st.integers(1, 400))
def test_rows_are_split_in_order_and_few_stay_together(count: int, lanes: int, lane_bytes: int) -> None:
    rows = pa.table({"v": np.arange(count)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_insert, "_LANE_BYTES", lane_bytes)
        parts = bulk_insert._in_lanes(PartitionPath("p"), rows, lanes)
    assert pa.concat_tables([part for _, part in parts]).equals(rows)
    assert [lane for lane, _ in parts] == [("p", number) for number in range(len(parts))]
    assert len(parts) <= max(1, min(lanes, rows.nbytes // lane_bytes))
    assert all(part.num_rows for _, part in parts) or not count


@pytest.mark.parametrize(("sort", "files"), [("none", 3), ("partition", 1), ("global", 1)])
def test_an_unpartitioned_load_has_a_file_for_each_thread(
    sort: str, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_insert, "_LANE_BYTES", 1000)
    count = 3000
    data = pa.table({"id": [f"k{n}" for n in range(count)], "v": np.arange(count)})
    options: dict[str, object] = {"lakefmt.durability": "none", "lakefmt.write.threads": 3}
    table = lakefmt.create_table(f"memory://lanes-{sort}", data=data, record_key="id", options=options)
    done = table.bulk_insert(data, sort=sort)
    assert (len(done.files), done.num_inserts) == (files, count)
    assert len({stat.file_id for stat in done.files}) == files
    assert table.read().sort_by("v").equals(data)
    assert table.upsert(data.slice(0, 10)).num_updates == 10


def test_partitions_share_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_insert, "_LANE_BYTES", 1000)
    data = pa.table({"id": [f"k{n}" for n in range(2000)], "p": ["a", "b"] * 1000})
    options: dict[str, object] = {"lakefmt.durability": "none", "lakefmt.write.threads": 2}
    table = lakefmt.create_table("memory://lanes-p", data=data, record_key="id", partition_by="p", options=options)
    done = table.bulk_insert(iter([data.slice(0, 1000), data.slice(1000)]))
    assert table.read().sort_by("id").equals(data.sort_by("id"))
    assert len(done.files) <= 4


def test_a_row_that_is_worth_several_files_is_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_insert, "_LANE_BYTES", 1000)
    data = pa.table({"id": ["k"], "v": ["x" * 5000]})
    options: dict[str, object] = {"lakefmt.durability": "none", "lakefmt.write.threads": 3}
    table = lakefmt.create_table("memory://lanes-one", data=data, record_key="id", options=options)
    assert [stat.num_writes for stat in table.bulk_insert(data).files] == [1]
