"""Changes that the logs of a slice tell, read together for all commits, are those that each commit's two states tell."""

from __future__ import annotations

import itertools
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.read import changes as changes_module
from lakefmt._core.read.changes import FileHistory
from lakefmt._core.read.mor_scan import SliceStates
from lakefmt._core.table import Table
from tests.example_counts import examples

NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.int64()), ("_hoodie_is_deleted", pa.bool_())])
OPTIONS = {"lakefmt.durability": "none", "lakefmt.write.only": "true"}


def larger(older: pa.Table, newer: pa.Table) -> pa.Table:
    """Merge by a function: the sum of all values so far, which a fold would not know."""
    total = pc.add(older["v"], newer["v"])
    return newer.set_column(newer.schema.get_field_index("v"), newer.schema.field("v"), total)


RULES: dict[str, dict[str, Any]] = {
    "event_time": {"ordering": "ts"},
    "commit_time": {"merge": "commit_time"},
    "function": {"merge": larger},
    "reversed": {
        "ordering": "ts",
        "properties": {
            "hoodie.compaction.payload.class": "org.apache.hudi.common.model.ReverseOrderHoodieRecordPayload"
        },
    },
    "partial": {
        "ordering": "ts",
        "properties": {"hoodie.compaction.payload.class": "org.apache.hudi.common.model.PartialUpdateAvroPayload"},
    },
}
ROWS = st.lists(
    st.tuples(st.sampled_from("abcde"), st.integers(0, 3), st.none() | st.integers(0, 99), st.booleans()),
    min_size=1,
    max_size=4,
    unique_by=lambda row: row[0],
)
COMMITS = st.one_of(
    ROWS,
    ROWS,
    ROWS,
    st.lists(st.sampled_from("abcde"), min_size=1, max_size=3, unique=True).map(tuple),
    st.sampled_from(["compact", "fold"]),
)


def written(rule: str, version: int, commits: list[Any]) -> Table:
    table = lakefmt.create_table(
        f"memory://slice-states-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        table_type="mor",
        table_version=version,
        options=OPTIONS,
        **RULES[rule],
    )
    for commit in commits:
        if isinstance(commit, str):
            every = {"hoodie.compact.inline.max.delta.commits": "1", "hoodie.log.compaction.blocks.threshold": "2"}
            if commit == "compact" or rule in ("event_time", "commit_time"):
                table.compact(log=commit == "fold", options=every)
        elif isinstance(commit, tuple):
            table.delete(list(commit))
        else:
            rows = [
                dict(zip(SCHEMA.names, (key, ts, v or 0, dead and ts == 2), strict=True)) for key, ts, v, dead in commit
            ]
            table.upsert(pa.Table.from_pylist(rows, SCHEMA))
    return table


@pytest.mark.parametrize(
    ("version", "rule"), [(8, "reversed"), (8, "partial"), (8, "function"), (9, "event_time"), (9, "commit_time")]
)
@settings(max_examples=examples(30), deadline=None)
@given(commits=st.lists(COMMITS, min_size=2, max_size=9))
def test_changes_of_a_slice_are_those_of_each_commit(version: int, rule: str, commits: list[Any]) -> None:
    table = written(rule, version, commits)
    together = table.changes("000")
    with patch.object(FileHistory, "chains", lambda *_: iter(())):
        apart = table.changes("000")
    assert together.to_pylist() == apart.to_pylist()


def test_commits_asked_backwards_have_the_same_states():
    table = written(
        "event_time", 8, [[("a", 1, 1, False), ("b", 1, 1, False)], [("a", 3, 2, False)], ("a",), [("a", 2, 3, False)]]
    )
    states = slices_of(table)
    times = sorted(states._order, key=states._order.__getitem__)
    forward = [tuple(map(pa.Table.to_pylist, states.around(time))) for time in times]
    assert [tuple(map(pa.Table.to_pylist, states.around(time))) for time in reversed(times)] == forward[::-1]
    assert len({str(each) for each in forward}) == len(forward) == 3


def slices_of(table: Table) -> SliceStates:
    """Return the states that reading a table's changes makes."""
    made = []

    def keep(*given: Any, **more: Any) -> Any:
        made.append(slice_states(*given, **more))
        return made[-1]

    slice_states = changes_module.slice_states
    with patch.object(changes_module, "slice_states", keep):
        table.changes("000")
    return made[0]


@pytest.mark.parametrize("rule", ["event_time", "function"])
def test_a_slice_is_read_once_for_all_of_its_commits(rule: str):
    table = written(rule, 8, [[("a", number, number, False)] for number in range(6)])
    with patch.object(changes_module, "merged_tables", side_effect=AssertionError("read again")):
        assert table.changes("000").num_rows == 6
