"""Stored rows tell the rule of their keys and paths, whatever the properties say: it is found, or the difference is told."""

from __future__ import annotations

import datetime as dt
import decimal
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.keys import build_partition_paths, build_record_keys, plan_key_spec
from lakefmt._core.keys.properties import compare_stored_rows

MILLIS = st.integers(-62_135_596_800_000, 253_402_300_799_999)
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[object]]] = {
    "text": (pa.string(), st.text(st.characters(codec="ascii", min_codepoint=32), min_size=1, max_size=6)),
    "whole": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "time": (pa.timestamp("us", "UTC"), MILLIS.map(lambda n: n * 1000)),
    "date": (pa.date32(), st.dates(dt.date(1900, 1, 1))),
    "decimal": (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3)),
    "double": (pa.float64(), st.floats(0.001, 1e6)),
    "flag": (pa.bool_(), st.booleans()),
    "bytes": (pa.binary(), st.binary(min_size=1, max_size=4)),
}


@st.composite
def _stored(draw: st.DrawFn) -> tuple[pa.Table, list[str], str, bool]:
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=2, max_size=4, unique=True))
    columns = {name: pa.array([draw(TYPES[name][1])], TYPES[name][0]) for name in names}
    return pa.table(columns), names[1:], names[0], draw(st.booleans())


@pytest.mark.slow
@given(_stored(), st.booleans(), st.booleans(), st.booleans())
def test_the_rule_is_found_or_the_difference_is_told(stored, is_slashed, says_formatted, is_object_id):
    rows, key, partition, is_formatted = stored
    spec = plan_key_spec(key, partition, hive_style=False, url_encode=True)
    true_spec = replace(spec, consistent_logical_timestamps=is_formatted)
    keys, path = build_record_keys(true_spec, rows), str(build_partition_paths(true_spec, rows).dictionary[0])
    stated = replace(spec, consistent_logical_timestamps=says_formatted)
    if is_object_id and "bytes" in key:
        keys = pa.array(["[B@3330d76e"])
    slashed = path.replace("-", "/") if is_slashed else path
    rule = compare_stored_rows(stated, rows, keys, slashed)
    if slashed != path:
        assert rule.difference
        assert not rule.path_fits
    elif is_object_id and "bytes" in key:
        assert "[B@3330d76e" in rule.difference
        assert rule.path_fits
    else:
        assert not rule.difference
        has_times = "time" in (*key, partition)
        assert rule.consistent_timestamps == (is_formatted if has_times else None)


@pytest.mark.parametrize("path", ["__HIVE_DEFAULT_PARTITION__", "default"])
def test_both_names_of_the_default_partition_fit(path):
    rows = pa.table({"id": [1], "city": pa.array([None], pa.string())})
    assert compare_stored_rows(plan_key_spec("id", "city", hive_style=False), rows, pa.array(["1"]), path).path_fits


def test_times_finer_than_keys_are_a_difference():
    rows = pa.table({"t": pa.array([1_700_000_000_123_456], pa.timestamp("us", "UTC")), "d": [decimal.Decimal("1.5")]})
    rule = compare_stored_rows(plan_key_spec("t", None), rows, pa.array(["2023-11-14 22:13:20.123456"]), "")
    assert "2023-11-14 22:13:20.123456" in rule.difference


def test_rows_that_stayed_when_their_partition_value_was_changed_are_no_other_rule() -> None:
    """As a global index leaves them; a filter does not trust such a path."""
    spec = plan_key_spec("id", "p")
    ids = pa.array(["a", "b"])
    some = compare_stored_rows(spec, pa.table({"id": ids, "p": ["x", "y"]}), ids, "p=x")
    assert (some.difference, some.path_fits) == ("", False)
    every = compare_stored_rows(spec, pa.table({"id": ids, "p": ["y", "y"]}), ids, "p=x")
    assert "p=x" in every.difference
    assert (every.path_fits, every.may_have_moved) == (False, True)
    dates = compare_stored_rows(spec, pa.table({"id": ids, "p": ["2016-12-29"] * 2}), ids, "2016/12/29")
    assert (bool(dates.difference), dates.may_have_moved) == (True, False)
    keys = compare_stored_rows(spec, pa.table({"id": ids, "p": ["y", "y"]}), pa.array(["id:a", "id:b"]), "p=x")
    assert not keys.may_have_moved
