"""Which record wins: against a dictionary, row by row (docs/format.md, Reading a slice)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.filegroups.merge import Incoming, choose_survivors, merge_into_base
from lakefmt._core.filegroups.ordering import incoming_wins
from lakefmt._core.formats.parquet.base_file import without_unused
from lakefmt._core.values import RECORD_KEY, MergeMode

keys = st.sampled_from("abcdef")
orders = st.one_of(st.none(), st.integers(0, 3))
rows = st.lists(st.tuples(keys, orders, st.integers(0, 99)), max_size=25)
modes = st.sampled_from([MergeMode.COMMIT_TIME_ORDERING, MergeMode.EVENT_TIME_ORDERING])


def _wins(new: int | None, old: int | None, mode: MergeMode) -> bool:
    if mode is MergeMode.COMMIT_TIME_ORDERING:
        return True
    smallest = -1
    return (smallest if new is None else new) >= (smallest if old is None else old)


@given(rows, modes)
def test_survivors_equal_a_fold_over_the_batch(batch: list[tuple[str, int | None, int]], mode: MergeMode) -> None:
    expected: dict[str, int] = {}
    for at, (key, order, _) in enumerate(batch):
        if key not in expected or _wins(order, batch[expected[key]][1], mode):
            expected[key] = at
    codes = np.array([ord(key) for key, _, _ in batch], dtype=np.int64)
    ordering = pa.chunked_array([pa.array([order for _, order, _ in batch], pa.int64())])
    kept = choose_survivors(codes, [ordering], mode)
    found = list(range(len(batch))) if kept is None else kept.tolist()
    assert found == sorted(expected.values())


def _table(batch: list[tuple[str, int | None, int]]) -> pa.Table:
    return pa.table(
        {
            RECORD_KEY: pa.array([k for k, _, _ in batch], pa.string()),
            "o": pa.array([o for _, o, _ in batch], pa.int64()),
            "v": pa.array([v for _, _, v in batch], pa.int64()),
            "text": pa.array([f"é{v}" * (v % 3) if v % 4 else None for _, _, v in batch], pa.string()),
            "nested": pa.array([[v, v] for _, _, v in batch], pa.list_(pa.int64())),
        }
    )


@given(rows, rows, modes, st.sets(keys), st.booleans())
def test_merging_equals_a_dictionary(
    stored: list[tuple[str, int | None, int]],
    batch: list[tuple[str, int | None, int]],
    mode: MergeMode,
    removed: set[str],
    coded: bool,
) -> None:
    incoming = list({key: (key, order, value) for key, order, value in batch}.values())
    deletes = np.array([key in removed for key, _, _ in incoming], dtype=bool)
    half = len(stored) // 2
    base = pa.concat_tables([_table(stored[:half]), _table(stored[half:])])  # a stored file comes in chunks
    if coded:  # its texts come as they are stored, each chunk by a list of its own
        base = base.set_column(3, "text", base.column("text").cast(pa.dictionary(pa.int32(), pa.string())))
    merged = merge_into_base(base, Incoming(_table(incoming), deletes), ["o"], mode)
    expected = []
    new = {row[0]: row for row in incoming}
    updated = deleted = late = 0
    for row in stored:
        rival = new.get(row[0])
        if rival is None:
            expected.append(row)
        elif not _wins(rival[1], row[1], mode) and not (row[0] in removed and rival[1] is None):
            late += 1  # a delete without an event time is never late
            expected.append(row)
        elif row[0] in removed:
            deleted += 1
        else:
            updated += 1
            expected.append(rival)
    known = {row[0] for row in stored}
    fresh = [row for row in incoming if row[0] not in known and row[0] not in removed]
    ignored = sum(row[0] not in known and row[0] in removed for row in incoming)
    assert merged.table.to_pylist() == _table(expected + fresh).to_pylist()
    counted = (merged.updated, merged.deleted, merged.late, merged.inserted, merged.ignored_deletes)
    assert counted == (updated, deleted, late, len(fresh), ignored)
    assert merged.inserted_keys.to_pylist() == [row[0] for row in fresh]
    tidy = without_unused(merged.table)
    assert tidy.to_pylist() == merged.table.to_pylist()
    if coded:
        texts = [text for text in tidy.column("text").to_pylist() if text is not None]
        held = [text for chunk in tidy.column("text").chunks for text in chunk.dictionary.to_pylist()]
        assert set(held) == set(texts)


def test_several_ordering_fields_are_compared_in_order() -> None:
    new = [pa.array([1, 1, 2, None]), pa.array(["b", "a", "a", "z"])]
    old = [pa.array([1, 1, 1, 1]), pa.array(["a", "b", "z", "a"])]
    assert incoming_wins(new, old).tolist() == [True, False, True, False]


def test_a_delete_by_key_needs_no_other_column() -> None:
    base = _table([("a", 5, 1), ("b", 5, 2)])
    incoming = Incoming(pa.table({RECORD_KEY: ["a", "x"]}), np.array([True, True]))
    merged = merge_into_base(base, incoming, ["o"], MergeMode.EVENT_TIME_ORDERING)
    assert merged.table.column(RECORD_KEY).to_pylist() == ["b"]
    assert (merged.deleted, merged.ignored_deletes) == (1, 1)
