"""The rows of several logs, made ready together: byte for byte what each log alone would take."""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt._core.write.context import MOVED_AWAY, BoundContext, FileAssignment, LogTarget
from lakefmt._core.write.files.log_payloads import build_log_payloads
from lakefmt._core.write.files.meta_columns import POSITION
from lakefmt.errors import InternalError

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int32()),
        ("v", pa.float64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
TIME = InstantTime("20260101000000000")
PLACES = st.lists(st.integers(-1, 9), max_size=6)


@functools.cache
def bound(version: int, operation: str) -> BoundContext:
    table = lakefmt.create_table(
        f"memory://log-works-{version}-{operation}",
        schema=SCHEMA,
        record_key="id",
        ordering="ts",
        table_type="mor",
        table_version=version,
        if_exists="open",
    )
    return BoundContext(table.client.store, lowlevel.begin_write(table, operation))


def assignment(number: int, rows: int) -> FileAssignment:
    file_id = FileId(f"f{number}-0")
    name = f".{file_id}_{TIME}.log.1_{number}-0-0"
    return FileAssignment(PartitionPath(f"p{number}"), file_id, name, None, True, rows, number, log=LogTarget(TIME, 1))


def routed(counts: list[int], seed: int, names: list[str]) -> pa.Table:
    rng, rows = np.random.default_rng(seed), sum(counts)
    table = pa.table(
        {
            "_hoodie_record_key": [f"k{n}" for n in range(rows)],
            "id": [f"k{n}" for n in range(rows)],
            "ts": pa.array(rng.integers(0, 3, rows), pa.int32(), mask=rng.random(rows) < 0.3),
            "v": rng.random(rows),
            "_hoodie_is_deleted": pa.array(rng.random(rows) < 0.4, mask=rng.random(rows) < 0.2),
        }
    )
    return table.select(["_hoodie_record_key", *names])


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("operation", ["upsert", "delete"])
@pytest.mark.parametrize("names", [["id", "ts", "v", "_hoodie_is_deleted"], ["id", "v"]], ids=["whole", "partial"])
@given(
    logs=st.lists(PLACES, min_size=1, max_size=5), seed=st.integers(0, 99), moved=st.booleans(), placed=st.booleans()
)
def test_together_as_alone(
    version: int, operation: str, names: list[str], logs: list[list[int]], seed: int, moved: bool, placed: bool
) -> None:
    write, counts = bound(version, operation), [len(places) for places in logs]
    rows = routed(counts, seed, names)
    if moved:
        rows = rows.append_column(MOVED_AWAY, pa.array([n % 3 == 0 for n in range(sum(counts))], pa.bool_()))
    if placed:
        rows = rows.append_column(POSITION, pa.array([place for places in logs for place in places], pa.int64()))
    files = [assignment(number, count) for number, count in enumerate(counts)]
    together = build_log_payloads(write, files, counts, rows)
    ends = np.cumsum([0, *counts])
    for number, (file, work) in enumerate(zip(files, together, strict=True)):
        mine = rows.slice(int(ends[number]), counts[number])
        (alone,) = build_log_payloads(write, [file], [counts[number]], mine)
        assert work.assignment == file
        assert work.form == alone.form
        assert work.out.data.equals(alone.out.data)
        assert work.out.deletes.equals(alone.out.deletes)
        assert work.out.partial == alone.out.partial
        assert np.array_equal(work.out.data_positions, alone.out.data_positions)  # type: ignore[arg-type]
        assert np.array_equal(work.out.delete_positions, alone.out.delete_positions)  # type: ignore[arg-type]
        assert work.out.records is not None
        assert alone.out.records is not None
        one, other = work.out.records, alone.out.records
        assert len(one) == work.out.data.num_rows
        assert bytes(one.data[one.offsets[0] : one.offsets[-1]]) == bytes(other.data[: other.offsets[-1]])
        known = placed and logs[number] and min(logs[number]) >= 0 and len(set(logs[number])) == len(logs[number])
        assert (work.out.data_positions is not None) == bool(known)


def test_every_row_goes_where_it_was_assigned() -> None:
    write = bound(9, "upsert")
    with pytest.raises(InternalError, match="3 rows were assigned and 2 came"):
        build_log_payloads(write, [assignment(0, 1), assignment(1, 3)], [1, 2], routed([1, 2], 0, ["id", "v"]))
