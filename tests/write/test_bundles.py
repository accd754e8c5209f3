"""The files of a write in bundles: each file in one of them, files of one type together, each bundle bounded."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt._core.write.assign import Assigned
from lakefmt._core.write.context import FileAssignment, LogTarget
from lakefmt._core.write.files.bundles import FEWEST_FILES, MOST_NEW_ROWS, BundleLimits, joined, plan_bundles

TIME = InstantTime("20260101000000000")
LOG_ROWS = 1000
BUNDLE_BYTES, SMALL_BYTES, FILES = 4 << 20, 512 << 10, 64


def assigned_file(position: int, form: str, rows: int, size: int, stored: str) -> Assigned:
    name, partition, file_id = f"f{position}", PartitionPath("p"), FileId(f"f{position}-0")
    base = BaseFile(partition, name, file_id, "", TIME, size) if form == "rewrite" else None
    log = LogTarget(TIME, 1) if form == "log" else None
    file = FileAssignment(partition, file_id, name, base, form == "rewrite", rows, position, log=log)
    columns = {stored: pa.nulls(rows, pa.int8())} if stored else None
    return Assigned(file, np.arange(rows), stored=None if columns is None else pa.table(columns))


FILE = st.tuples(
    st.sampled_from(["log", "new", "rewrite"]),
    st.one_of(st.integers(0, 20), st.integers(0, 2 * LOG_ROWS)),
    st.one_of(st.integers(1, 100_000), st.integers(1, 2 * SMALL_BYTES)),
    st.sampled_from(["", "", "", "a", "b"]),
)


@given(st.lists(FILE, max_size=150), st.integers(1, 8), st.booleans(), st.booleans())
def test_each_file_is_in_one_bundle_and_each_bundle_is_bounded(
    files: list[tuple[str, int, int, str]], threads: int, joins_new: bool, joins_rewrites: bool
) -> None:
    assigned = [assigned_file(position, *file) for position, file in enumerate(files)]
    bundles = plan_bundles(assigned, BundleLimits(threads, LOG_ROWS, joins_new, joins_rewrites))
    assert sorted(position for bundle in bundles for position in bundle.positions) == list(range(len(files)))
    for bundle in bundles:
        assert list(bundle.positions) == sorted(bundle.positions)
        assert [assigned[position] for position in bundle.positions] == list(bundle.assigned)
        assert len(joined(bundle.assigned).rows) == sum(len(each.rows) for each in bundle.assigned)
        some = [files[position] for position in bundle.positions]
        if len(some) == 1:
            continue
        assert len(some) <= FILES
        assert len({(form, stored) for form, _, _, stored in some}) == 1
        form, stored = some[0][0], some[0][3]
        if form == "log":
            assert sum(rows for _, rows, _, _ in some) <= LOG_ROWS
            continue
        assert not stored
        if form == "new":
            assert joins_new
            assert all(0 < rows <= MOST_NEW_ROWS for _, rows, _, _ in some)
        else:
            assert joins_rewrites
            assert all(size <= SMALL_BYTES for _, _, size, _ in some)
            assert sum(size for _, _, size, _ in some) <= BUNDLE_BYTES


@given(st.integers(0, 200), st.integers(1, 8), st.sampled_from(["log", "new", "rewrite"]))
def test_every_thread_has_its_share(count: int, threads: int, form: str) -> None:
    assigned = [assigned_file(position, form, 1, 1, "") for position in range(count)]
    bundles = plan_bundles(assigned, BundleLimits(threads, LOG_ROWS, True, True))
    largest = max((len(bundle.positions) for bundle in bundles), default=0)
    assert largest <= max(FEWEST_FILES if form == "rewrite" else 1, -(-count // threads))
    if count >= 2 * FEWEST_FILES * threads:  # a write of many files has fewer bundles than files
        assert len(bundles) <= count // 2
