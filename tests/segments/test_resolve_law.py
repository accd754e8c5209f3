"""What operators come to, by columns, is what they come to row by row; and which segments are committed (laws)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt._core.segments.codec import (
    COLUMNS,
    OPERATOR,
    UPDATES,
    Claim,
    Committed,
    RowOperator,
    SegmentHeader,
    SegmentPosition,
)
from lakefmt._core.segments.pending import plan_stream
from lakefmt._core.segments.resolve import resolve_rows, strict_violations
from tests.example_counts import examples

KEYS = 4
SETS = (None, '["id","a"]', '["id","b"]', '["id"]')
ROWS = st.lists(
    st.tuples(st.sampled_from(list(RowOperator)), st.integers(0, KEYS - 1), st.sampled_from(SETS)),
    min_size=1,
    max_size=20,
)
STORED = st.sets(st.integers(0, KEYS - 1))


def by_rows(rows: list, stored: set[int]) -> dict[int, tuple[object, object]]:
    """The same, one row after the other."""
    state: dict[int, tuple[object, object]] = {key: (f"s{key}", f"s{key}") for key in stored}
    for number, (operator, key, names) in enumerate(rows):
        value = f"r{number}"
        if operator in (RowOperator.DELETE, RowOperator.DELETE_IGNORE):
            state.pop(key, None)
        elif operator in UPDATES:
            if key in state:
                old = state[key]
                state[key] = tuple(  # type: ignore[assignment]
                    value if names is None or f'"{name}"' in names else old[place] for place, name in enumerate("ab")
                )
        elif operator is not RowOperator.INSERT_IGNORE or key not in state:
            state[key] = (value, value)
    return state


@settings(max_examples=examples(300), derandomize=True)
@given(ROWS, STORED)
def test_columns_and_rows_agree(rows: list, stored: set[int]) -> None:
    rows = [(op, key, names if op in UPDATES else None) for op, key, names in rows]
    incoming = pa.table(
        {
            "id": [key for _, key, _ in rows],
            "a": [f"r{n}" for n in range(len(rows))],
            "b": [f"r{n}" for n in range(len(rows))],
            OPERATOR: pa.array([op.value for op, _, _ in rows], pa.int8()),
            COLUMNS: pa.array([names for _, _, names in rows], pa.string()),
        }
    )
    keys = sorted({key for _, key, _ in rows})
    codes = np.array([keys.index(key) for _, key, _ in rows])
    there = sorted(stored & set(keys))
    below = pa.table(
        {"id": pa.array(there, pa.int64()), **{c: pa.array([f"s{k}" for k in there], pa.string()) for c in "ab"}}
    )
    got = resolve_rows(incoming, codes, below, np.array([keys.index(key) for key in there], np.int64))
    state = {key: (f"s{key}", f"s{key}") for key in stored}
    for row, deletes in zip(got.rows.to_pylist(), got.deletes.tolist(), strict=True):
        if deletes:
            del state[row["id"]]
        else:
            state[row["id"]] = (row["a"], row["b"])
    assert state == by_rows(rows, stored)


@settings(max_examples=examples(200), derandomize=True)
@given(ROWS, STORED)
def test_strict_operators_refuse_what_they_would_one_by_one(rows: list, stored: set[int]) -> None:
    operators = np.array([op.value for op, _, _ in rows], np.int8)
    codes = np.array([key for _, key, _ in rows])
    present = np.array([key in stored for key in range(KEYS)])
    state, refused = set(stored), []
    for operator, key, _ in rows:
        wrong = (operator is RowOperator.INSERT and key in state) or (
            operator in (RowOperator.UPDATE, RowOperator.DELETE) and key not in state
        )
        refused.append(wrong)
        if not wrong and operator in (RowOperator.DELETE, RowOperator.DELETE_IGNORE):
            state.discard(key)
        elif not wrong and operator not in UPDATES:
            state.add(key)
    assert strict_violations(operators, codes, present).tolist() == refused


@settings(max_examples=examples(200), derandomize=True)
@given(st.data())
def test_no_segment_is_committed_twice_and_none_that_was_confirmed_is_lost(data: st.DataObject) -> None:
    """Owners follow one another; each adopts what it sees, and may write one more segment after it was replaced."""
    headers, claims, confirmed, sequence = [], [], [], 0
    late_ones: list[SegmentPosition] = []
    for epoch in range(1, data.draw(st.integers(1, 4)) + 1):
        seen = max((header.position for header in headers), default=SegmentPosition(0, 0))
        adopts = data.draw(st.booleans())
        if adopts:
            claims.append(Claim(epoch, "o", "h", 1, adopts=seen, adopted=newest(headers)))
        late = None
        for _ in range(data.draw(st.integers(0, 3))):
            sequence += 1
            headers.append(SegmentHeader("w", epoch, sequence, 1, 1, "", 0))
            confirmed.append(headers[-1].position)
        if data.draw(st.booleans()):
            sequence += 1
            late = SegmentHeader("w", epoch, sequence, 1, 1, "", 0)
        if late is not None:
            # It appears after the next owner has looked, so the next claim does not adopt it.
            claims.append(Claim(epoch + 1, "o", "h", 1, adopts=max([seen, *confirmed]), adopted=newest(headers)))
            headers.append(late)
            late_ones.append(late.position)
    done = data.draw(st.sampled_from([None, *confirmed]))
    plan = plan_stream("w", headers, claims, None if done is None else Committed(*done))
    places = [header.position for header in plan.to_commit]
    assert places == sorted(set(places))
    assert not set(places) & set(plan.done)
    assert set(places) | set(plan.done) | set(plan.unconfirmed) == {header.position for header in headers}
    assert {place for place in confirmed if done is None or place > done} <= set(places)
    assert not set(late_ones) & set(places)


def newest(headers: list[SegmentHeader]) -> tuple[SegmentPosition, ...]:
    """Return the last segment of each epoch."""
    return tuple({position.epoch: position for position in sorted(header.position for header in headers)}.values())


def test_a_late_segment_of_a_writer_before_the_last_one_is_not_committed() -> None:
    """The newest claim has seen a segment of the second owner, and a first one writes its next one after that."""
    seen, late = SegmentHeader("w", 2, 7, 1, 1, "", 0), SegmentHeader("w", 1, 6, 1, 1, "", 0)
    claims = [Claim(3, "o", "h", 1, adopts=seen.position, adopted=newest([seen]))]
    plan = plan_stream("w", [late, seen], claims, None)
    assert (plan.to_commit, plan.unconfirmed) == ((seen,), (late.position,))
