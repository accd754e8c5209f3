"""What statistics guarantee of slices: a row that a merge can make of their files is never ruled out."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.read.filter_terms import satisfiable
from lakefmt._core.read.filters import parse_filter
from lakefmt._core.read.partition_guarantees import SliceFiles, all_known, joined_ranges, range_guarantees

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])
VALUES = {"a": st.none() | st.integers(0, 4), "b": st.none() | st.sampled_from(["", "k", "kk", "z"])}


def stats_of(name: str, kind: pa.DataType, files: dict[str, list[Any]]) -> pa.Table:
    rows = []
    for file, values in files.items():
        present = [value for value in values if value is not None]
        ends = {"min": min(present, default=None), "max": max(present, default=None)}
        rows.append({"name": file, **ends, "value_count": len(values), "null_count": len(values) - len(present)})
    ends_schema = [("min", kind), ("max", kind), ("value_count", pa.int64()), ("null_count", pa.int64())]
    return pa.Table.from_pylist(rows, pa.schema([("name", pa.string()), *ends_schema]))


def kept(files: SliceFiles, stats: dict[str, pa.Table], condition: Any) -> list[bool]:
    parsed = parse_filter(condition, SCHEMA)
    assert parsed is not None
    assert parsed.pruning is not None
    known = [range_guarantees(pc.field(name), joined_ranges(each, files)) for name, each in stats.items()]
    return satisfiable(all_known(known), parsed.pruning, SCHEMA).tolist()


@given(
    files=st.lists(st.lists(st.tuples(VALUES["a"], VALUES["b"]), max_size=3), min_size=1, max_size=3),
    limit=st.integers(0, 4),
    word=st.sampled_from(["", "k", "kk", "z"]),
)
def test_no_row_that_a_merge_can_make_is_ruled_out(files: list[list[tuple[Any, Any]]], limit: int, word: str):
    """A merge takes every column from one of the rows of the slice's files, of the base file or of a log."""
    names = [f"f{number}" for number in range(len(files))]
    slices = SliceFiles(names, [0] * len(files), [number > 0 for number in range(len(files))], 1)
    columns = {
        name: stats_of(
            name, SCHEMA.field(name).type, {n: [row[at] for row in rows] for n, rows in zip(names, files, strict=True)}
        )
        for at, name in enumerate(SCHEMA.names)
    }
    stored = [row for rows in files for row in rows]
    possible = pa.Table.from_pylist(
        [{"a": first[0], "b": second[1]} for first, second in itertools.product(stored, stored)], SCHEMA
    )
    for condition in (
        f"a = {limit} and b = '{word}'",
        f"a < {limit} or b > '{word}'",
        "a is null",
        "b is not null and a is null",
    ):
        parsed = parse_filter(condition, SCHEMA)
        assert parsed is not None
        matches = possible.filter(parsed.exact).num_rows > 0
        assert not matches or kept(slices, columns, condition) == [True], condition


ONE = SliceFiles(["f"], [0], [False], 1)


def one_file(low: Any, high: Any, kind: pa.DataType, rows: int = 4, nulls: int = 0) -> bool:
    """Return whether the range of a file is believed."""
    ends = {"min": pa.array([low], kind), "max": pa.array([high], kind)}
    stats = pa.table({"name": ["f"], **ends, "value_count": [rows], "null_count": [nulls]})
    return bool(joined_ranges(stats, ONE)["is_known"][0].as_py())


@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [
        (0.0, 0.0, pa.float64()),
        (float("nan"), 1.0, pa.float64()),
        (1.0, float("nan"), pa.float32()),
        (2, 1, pa.int64()),
        ("a", "\ufffd", pa.string()),
        ("\U0001f600", "\U0001f600", pa.string()),
        (None, None, pa.int64()),
        (None, 3, pa.int64()),
    ],
)
def test_ends_that_may_be_wrong_are_not_believed(low: Any, high: Any, kind: pa.DataType):
    assert not one_file(low, high, kind)


def test_ends_that_are_right_are_believed():
    assert one_file(-0.5, 2.0, pa.float64())
    assert one_file("", "\ud7ff", pa.string())
    assert one_file(1, 1, pa.int64(), nulls=3)


def test_only_nulls_are_believed_where_footers_always_say_them():
    assert one_file(None, None, pa.int64(), nulls=4)
    for kind in (pa.string(), pa.timestamp("us", "UTC")):
        assert not one_file(None, None, kind, nulls=4)
    assert one_file(datetime.date(2024, 1, 1), datetime.date(2024, 1, 2), pa.date32(), nulls=1)


def test_a_log_of_deletes_adds_nothing_and_a_file_without_statistics_everything():
    files = SliceFiles(["base", "log", "alone", "absent"], [0, 0, 1, 1], [False, True, False, True], 2)
    stats = {"a": stats_of("a", pa.int64(), {"base": [1, 2], "log": [], "alone": [1]})}
    assert kept(files, stats, "a = 2") == [True, True]
    assert kept(files, stats, "a = 3") == [False, True]
    empty_base = SliceFiles(["log"], [0], [False], 1)
    assert kept(empty_base, stats, "a = 3") == [True]


def test_a_name_in_two_partitions_says_nothing():
    stats = pa.concat_tables([stats_of("a", pa.int64(), {"f": [1]}), stats_of("a", pa.int64(), {"f": [2]})])
    assert kept(ONE, {"a": stats}, "a = 9") == [True]
