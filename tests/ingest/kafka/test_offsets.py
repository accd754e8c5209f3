"""Rounds between offsets: every message once, whatever the limits, new partitions and kills; and checkpoints to the letter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.ingest.kafka.client import (
    begin_offsets,
    checkpoint_text,
    parse_offsets,
    parse_timestamp,
    plan_ranges,
    share_limit,
)
from lakefmt.errors import PositionLost, SourceRefused

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), st.integers(0, 5), st.integers(1, 40)),
        st.tuples(st.just("partitions"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("round"), st.integers(1, 25), st.sampled_from([True, True, False])),
        st.tuples(st.just("all"), st.just(0), st.sampled_from([True, False])),
    ),
    max_size=40,
)


@given(STEPS, st.integers(1, 4))
def test_every_message_comes_once_whatever_the_limits_new_partitions_and_kills(steps, partitions):
    ends = dict.fromkeys(range(partitions), 0)
    text = checkpoint_text("t", ends)
    seen: dict[int, list[tuple[int, int]]] = {}

    def run_round(limit, *, is_committed):
        nonlocal text
        begins = begin_offsets("t", parse_offsets(text, "t"), dict.fromkeys(ends, 0), ends, skips_lost=False)
        ranges = plan_ranges(begins, ends, limit)
        assert limit is None or sum(each.end - each.begin for each in ranges) <= limit
        if not is_committed:  # killed before its commit
            return
        text = checkpoint_text("t", {each.partition: each.end for each in ranges})
        for each in ranges:
            if each.end > each.begin:
                seen.setdefault(each.partition, []).append((each.begin, each.end))

    for word, number, more in steps:
        if word == "produce":
            ends[number % len(ends)] += more
        elif word == "partitions":
            ends |= dict.fromkeys(range(len(ends), len(ends) + number), 0)
        else:
            run_round(number or None, is_committed=more)
    run_round(None, is_committed=True)
    for partition, end in ends.items():
        parts = seen.get(partition, [])
        assert [offset for low, high in parts for offset in range(low, high)] == list(range(end))


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 50), min_size=1), st.integers(1, 120))
def test_a_limit_is_used_up_and_shared_evenly(available, limit):
    shares = share_limit(available, limit)
    assert list(shares) == sorted(available)
    assert sum(shares.values()) == min(limit, sum(available.values()))
    assert all(0 <= shares[each] <= available[each] for each in available)
    # Whoever got less than the largest share has nothing more, but for what is left in the last turn.
    hungry = [shares[each] for each in available if shares[each] < available[each]]
    with_news = sum(1 for count in available.values() if count)
    if limit >= with_news:
        turns = len(available)
        assert not hungry or max(shares.values()) - min(hungry) <= -(-limit // turns)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=30), st.integers(2, 6))
def test_no_partition_waits_for_ever_where_the_limit_is_smaller_than_their_number(arrivals, partitions):
    waiting = dict.fromkeys(range(partitions), 2)
    for count in arrivals:
        taken = share_limit(waiting, 1)
        waiting = {each: waiting[each] - taken[each] for each in waiting}
        waiting[0] += 0 * count
    served = [each for each in waiting if waiting[each] < 2]
    assert len(served) == min(len(arrivals), partitions)


@given(st.dictionaries(st.integers(0, 10**6), st.integers(0, 2**63 - 1), min_size=1, max_size=20))
def test_a_checkpoint_reads_as_it_was_written(offsets):
    assert parse_offsets(checkpoint_text("a.b-c_d", offsets), "a.b-c_d") == offsets


@pytest.mark.parametrize(
    "text",
    [
        "",
        "t",
        "t,",
        "1700000000000",  # of a source of files
        "20240101000000000",  # an instant
        "t,0:1,0:2",
        "t,0:-1",
        "t,x:1",
        "t,0:1;1:2",
        "t,0:99999999999999999999",
        "t,0:9223372036854775808",
        "t,0:1, 1:2",
        "t,٠:1",
    ],
)
def test_a_checkpoint_of_another_kind_of_source_is_refused(text):
    with pytest.raises(SourceRefused, match="none of a topic of Kafka"):
        parse_offsets(text, "t")


def test_a_checkpoint_of_another_topic_is_refused():
    with pytest.raises(SourceRefused, match=r"of the topic 'u', and the job reads 't'"):
        parse_offsets("u,0:1", "t")


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("1700000000", 1_700_000_000_000),
        ("1700000000123", 1_700_000_000_123),
        ("170000000", None),
        ("t,0:1", None),
        ("1700000000.1", None),
    ],
)
def test_a_time_has_ten_or_thirteen_digits(text, millis):
    assert parse_timestamp(text) == millis


def test_retention_that_passed_the_checkpoint_names_both_offsets():
    with pytest.raises(
        PositionLost,
        match=r"partition 1 of 't': the checkpoint is at offset 5, and the topic begins at 9: 4 offsets are gone",
    ):
        begin_offsets("t", {0: 5, 1: 5}, {0: 0, 1: 9}, {0: 20, 1: 20}, skips_lost=False)


def test_by_option_only_the_partition_that_lost_messages_goes_on_behind_them():
    assert begin_offsets("t", {0: 5, 1: 5}, {0: 0, 1: 9}, {0: 20, 1: 20}, skips_lost=True) == {0: 5, 1: 9}


@pytest.mark.parametrize("skips_lost", [True, False])
def test_a_checkpoint_ahead_of_the_end_is_never_moved(skips_lost):
    with pytest.raises(PositionLost, match=r"the checkpoint is at offset 30, and the topic ends at 20"):
        begin_offsets("t", {0: 30}, {0: 0}, {0: 20}, skips_lost=skips_lost)


def test_a_partition_of_the_checkpoint_that_the_topic_does_not_have_says_so():
    with pytest.raises(PositionLost, match="has no partition 3"):
        begin_offsets("t", {0: 1, 3: 7}, {0: 0}, {0: 20}, skips_lost=False)


def test_a_new_partition_begins_at_0_and_one_without_news_is_carried_on():
    begins = begin_offsets("t", {0: 12, 1: 7}, dict.fromkeys(range(3), 0), {0: 12, 1: 9, 2: 4}, skips_lost=False)
    ranges = plan_ranges(begins, {0: 12, 1: 9, 2: 4}, None)
    assert checkpoint_text("t", {each.partition: each.end for each in ranges}) == "t,0:12,1:9,2:4"
    assert [(each.begin, each.end) for each in ranges] == [(12, 12), (7, 9), (0, 4)]


@pytest.mark.parametrize(
    ("available", "limit", "shares"),
    [
        # What HoodieStreamer 0.14.0 takes.
        ({0: 10, 1: 10}, 6, {0: 3, 1: 3}),
        ({0: 0, 1: 10, 2: 10}, 5, {0: 0, 1: 3, 2: 2}),
        ({0: 0, 1: 10, 2: 10, 3: 10}, 7, {0: 0, 1: 3, 2: 2, 3: 2}),
        ({0: 10, 1: 10, 2: 10}, 7, {0: 3, 1: 3, 2: 1}),
        ({0: 2, 1: 3}, 100, {0: 2, 1: 3}),
    ],
)
def test_hudis_shares_of_a_limit(available, limit, shares):
    assert share_limit(available, limit) == shares
