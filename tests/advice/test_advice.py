"""The advice is the cheapest choice by the costs it was given, keeps guarantees, and says what to do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.advice.advise import (
    WORTH_IT,
    CostCurves,
    advise_choice,
    candidate_choices,
    expected_cost,
    needs_new_table,
    parse_curves,
    predict_amounts,
)
from lakefmt._core.advice.profile import TableChoice, TableProfile
from lakefmt._core.advice.profiling import cache_path, keep_curves, load_curves, shipped_curves
from lakefmt._core.config.settings import resolve_settings
from lakefmt.errors import CorruptFile, InvalidInputError

SHIPPED = shipped_curves()
PROFILES = st.builds(
    TableProfile,
    rows=st.integers(1, 10**9),
    row_bytes=st.floats(10, 1000),
    partitions=st.integers(1, 200),
    batch_rows=st.integers(1, 10**6),
    update_share=st.floats(0, 1),
    delete_share=st.floats(0, 0.2),
    batch_partitions=st.floats(1, 50),
    hot_share=st.floats(0, 1),
    reads_per_commit=st.floats(0, 50),
    filter_columns=st.sampled_from([(), ("n",), ("n", "m")]),
    today=st.sampled_from(
        [TableChoice(), TableChoice("mor", "simple", compact_after=5), TableChoice(index="global_bloom")]
    ),
)


@given(PROFILES)
def test_the_advice_is_the_cheapest_choice_or_today_where_that_is_nearly_as_cheap(profile):
    advice = advise_choice(profile, SHIPPED)
    costs = [expected_cost(profile, choice, SHIPPED).total for choice in candidate_choices(profile)]
    today = expected_cost(profile, profile.today, SHIPPED).total
    if advice.stays:
        assert min(costs) >= WORTH_IT * today or min(costs) == pytest.approx(today)
    else:
        assert advice.cost.total == min(costs)
        assert advice.cost.total <= WORTH_IT * today
    assert all(cost.total >= min(costs) for _, cost in advice.others)


@given(PROFILES)
def test_the_advice_keeps_where_a_key_is_unique(profile):
    for choice in candidate_choices(profile):
        assert profile.partitions == 1 or choice.is_global == profile.today.is_global


@given(PROFILES)
def test_every_amount_and_cost_is_a_number_of_at_least_nothing(profile):
    for choice in candidate_choices(profile)[:40]:
        for amounts in predict_amounts(profile, choice).values():
            assert all(0 <= amount < float("inf") for amount in amounts.values())


@given(PROFILES)
def test_more_updates_never_make_a_commit_cheaper(profile):
    less = replace(profile, update_share=profile.update_share / 2)
    for choice in (TableChoice(), TableChoice("cow", "simple")):
        more_mb = predict_amounts(profile, choice)["write"]["rewritten_mb"]
        assert predict_amounts(less, choice)["write"]["rewritten_mb"] <= more_mb + 1e-9


@given(PROFILES)
def test_the_settings_of_every_candidate_are_settings(profile):
    for choice in candidate_choices(profile):
        resolve_settings(choice.settings)


def test_reasons_are_three_sentences_and_the_advice_can_be_pasted(tmp_path):
    profile = TableProfile(rows=5_000_000, batch_rows=500, update_share=1.0, reads_per_commit=0.1)
    advice = advise_choice(profile, SHIPPED)
    assert len(advice.reasons) == 3
    assert all(reason.endswith(".") and reason[0].isupper() for reason in advice.reasons)
    assert not advice.stays
    compile(advice.paste, "paste", "exec")
    assert str(advice).splitlines()[0] == f"change to: {advice.choice}"
    assert json.loads(json.dumps(advice.as_json()))["needs_rewrite"] is advice.needs_rewrite


def test_what_is_pasted_makes_the_change(tmp_path):
    data = pa.table({"id": [str(n) for n in range(100)], "n": list(range(100))})
    lakefmt.create_table(tmp_path / "old", data=data, record_key="id").upsert(data)
    profile = TableProfile(rows=100, batch_rows=10)
    for choice in (TableChoice("mor", "bucket", buckets=2, compact_after=4), TableChoice("cow", "simple")):
        advice = advise_choice(
            profile, CostCurves({"write": {"commits": 9.0, "footers": 9.0, "delta_commits": 1.0}}), [choice]
        )
        text = advice.paste.replace("record_key=..., partition_by=..., ordering=...", "record_key='id'")
        names = {"lakefmt": lakefmt, "path": str(tmp_path / "old"), "new_path": str(tmp_path / f"new-{choice.index}")}
        exec(text, names)
        made = names.get("new", names.get("table"))
        assert made.read().sort_by("id").equals(data.sort_by("id"))
        assert made.properties.table_type.value == ("MERGE_ON_READ" if choice.table_type == "mor" else "COPY_ON_WRITE")


@pytest.mark.parametrize(
    ("before", "after", "rewrite"),
    [
        (TableChoice(), TableChoice(index="simple"), False),
        (TableChoice(), TableChoice("mor"), True),
        (TableChoice(), TableChoice(index="bucket", buckets=1), True),
        (TableChoice(index="bucket", buckets=1), TableChoice(index="bucket", buckets=2), True),
        (TableChoice("mor"), TableChoice("mor", compact_after=5), False),
    ],
)
def test_a_change_that_needs_a_new_table_is_named(before, after, rewrite):
    assert needs_new_table(before, after) is rewrite


@pytest.mark.parametrize(
    "wrong",
    [
        {"table_type": "row"},
        {"index": "hbase"},
        {"index": None},
        {"compact_after": -1},
        {"compact_after": True},
        {"file_bytes": 10},
        {"cluster_by": ["a"]},
        {"log_format": "orc"},
    ],
)
def test_a_choice_that_cannot_be_is_refused(wrong):
    with pytest.raises(InvalidInputError):
        TableChoice(**wrong)


def test_nothing_to_choose_from_is_refused():
    with pytest.raises(InvalidInputError):
        advise_choice(TableProfile(rows=1), SHIPPED, [])


# ------------------------------------------------------------------------------------------------------ kept costs


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"format": 1}',
        b'{"format": 1, "seconds": {"fly": {}}}',
        b'{"format": 1, "seconds": {"read": {"reads": -1}}}',
        b'{"format": 1, "seconds": {"read": {"reads": NaN}}}',
        b'{"format": 1, "seconds": {"read": {"reads": true}}}',
        b'{"format": 1, "seconds": {"read": []}}',
        b'{"format": 1, "seconds": {}, "clock": "sun"}',
        b'{"format": 1, "seconds": {}, "factors": {"read": 0}}',
        b"[" * 100_000,
    ],
)
def test_damaged_costs_are_refused_and_shipped_ones_taken(data, tmp_path, monkeypatch, caplog):
    with pytest.raises(InvalidInputError):
        parse_curves(data)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_path().parent.mkdir()
    cache_path().write_bytes(data)
    assert load_curves() == SHIPPED
    assert "costs of this machine are not used" in caplog.text
    with pytest.raises(CorruptFile):
        load_curves(cache_path())


def test_costs_of_this_machine_go_before_the_shipped_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert load_curves() == SHIPPED
    own = CostCurves({"write": {"commits": 0.5}}, "here", {"write": 2.0})
    assert keep_curves(own) == tmp_path / "lakefmt" / "curves.json"
    assert load_curves() == own
    assert own.of("write", {"commits": 2.0}) == 2.0
    assert [each.name for each in Path(tmp_path / "lakefmt").iterdir()] == ["curves.json"]


def test_a_relative_cache_folder_is_not_used(monkeypatch):
    assert cache_path({"XDG_CACHE_HOME": "here"}).is_absolute()


def test_a_file_of_costs_that_is_too_large_is_refused(tmp_path):
    path = tmp_path / "large.json"
    path.write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(CorruptFile, match="larger"):
        load_curves(path)
