"""What a compaction plans: strategies against their definitions, triggers, the record and what is refused of one."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.arguments import parse_member
from lakefmt._core.compaction.compact_plan import (
    CompactionRules,
    CompactionStrategy,
    CompactionTrigger,
    compaction_plan_record,
    is_due,
    parse_compaction_plan,
    plan_compaction,
    since_last_compaction,
)
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile
from lakefmt._core.storage import MemoryStore
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt._core.timeline.timeline import timeline_from_names
from lakefmt.errors import CorruptFile, InvalidInputError, UnknownSetting, UnsafePath, UnsupportedFeature

TODAY = date(2026, 1, 20)
MIB = 1 << 20


def piece(partition: str, number: int, base_bytes: int | None, log_bytes: list[int]) -> FileSlice:
    group, time = f"f{number}-0", f"20260101{number:09d}"
    base = None
    if base_bytes is not None:
        base = BaseFile(partition, f"{group}_0-0-0_{time}.parquet", group, "0-0-0", time, base_bytes)
    logs = tuple(
        LogFile(partition, f".{group}_{time}.log.{n}_0-0-0", group, time, n, size)
        for n, size in enumerate(log_bytes, 1)
    )
    return FileSlice(partition, group, time, base, logs)


PARTITIONS = ["2026/01/20", "2026/01/15", "2026-01-05", "day=2025-12-31", "2026/01/25", "20260110", "other", ""]


@st.composite
def slices(draw):
    drawn = draw(
        st.lists(
            st.tuples(
                st.sampled_from(PARTITIONS),
                st.none() | st.integers(0, 40 * MIB),
                st.lists(st.integers(1, 9 * MIB), max_size=4),
            ),
            max_size=12,
        )
    )
    return [piece(*one[:1], number, *one[1:]) for number, one in enumerate(drawn)]


def rules():
    return st.builds(
        CompactionRules,
        st.sampled_from(list(CompactionStrategy)),
        target_io_mb=st.integers(0, 200),
        min_log_bytes=st.integers(0, 10 * MIB),
        min_log_files=st.integers(0, 4),
        partitions=st.integers(1, 12),
    )


@given(slices(), rules(), st.sets(st.integers(0, 11), max_size=3))
def test_a_plan_holds_candidates_once_and_keeps_to_its_strategy(found, rules, taken):
    busy = frozenset((s.partition, s.file_id) for n, s in enumerate(found) if n in taken)
    plan = plan_compaction(found, busy, rules, TODAY)
    by_group = {(s.partition, s.file_id): s for s in found}
    groups = [(o.partition, o.file_id) for o in plan.operations]
    assert len(set(groups)) == len(groups)
    assert not busy & set(groups)
    candidates = [s for key, s in by_group.items() if s.logs and key not in busy]
    assert plan.left == len(candidates) - len(groups)
    for operation in plan.operations:
        source = by_group[operation.partition, operation.file_id]
        assert operation.log_names == tuple(log.name for log in source.logs) != ()
        assert operation.base_name == (source.base.name if source.base else None)
        assert operation.metrics["TOTAL_LOG_FILES_SIZE"] == sum(log.size for log in source.logs)
        assert operation.metrics["TOTAL_LOG_FILES"] == len(source.logs)
        io = operation.metrics["TOTAL_IO_READ_MB"] + operation.metrics["TOTAL_IO_WRITE_MB"]
        assert operation.metrics["TOTAL_IO_MB"] == io
        assert set(map(type, operation.metrics.values())) == {float}
    check_strategy(plan, candidates, rules)


def check_strategy(plan, candidates, rules):
    chosen = plan.operations
    sizes = [o.log_bytes for o in chosen]
    counts = [len(o.log_names) for o in chosen]
    match rules.strategy:
        case CompactionStrategy.UNBOUNDED:
            assert plan.left == 0
        case CompactionStrategy.LOG_FILE_SIZE_BASED:
            assert sizes == sorted(sizes, reverse=True)
            assert all(size >= rules.min_log_bytes for size in sizes)
        case CompactionStrategy.LOG_FILE_NUM_BASED:
            assert counts == sorted(counts, reverse=True)
            assert all(number >= rules.min_log_files for number in counts)
        case CompactionStrategy.DAY_BASED:
            assert len({o.partition for o in chosen}) <= rules.partitions
        case CompactionStrategy.BOUNDED_PARTITION_AWARE:
            assert {"other", "", "day=2025-12-31"}.isdisjoint(o.partition for o in chosen)
        case CompactionStrategy.UNBOUNDED_PARTITION_AWARE:
            assert {"2026/01/20", "2026/01/25"}.isdisjoint(o.partition for o in chosen)
            assert plan.left == 0 or len(chosen) < len(candidates)
    if rules.strategy.value.startswith(("Log", "BoundedIO")) and chosen:
        assert sum(o.io_mb for o in chosen[:-1]) < max(rules.target_io_mb, 1), "what goes beyond the limit is the last"


def test_the_two_partition_aware_strategies_share_the_candidates():
    found = [piece(name, n, MIB, [MIB]) for n, name in enumerate(PARTITIONS)]
    chosen = [
        {o.partition for o in plan_compaction(found, frozenset(), CompactionRules(s, partitions=10), TODAY).operations}
        for s in (CompactionStrategy.BOUNDED_PARTITION_AWARE, CompactionStrategy.UNBOUNDED_PARTITION_AWARE)
    ]
    assert chosen[0] == {"2026/01/20", "2026/01/15", "2026/01/25", "20260110"}
    assert chosen[0] | chosen[1] == set(PARTITIONS)
    assert not chosen[0] & chosen[1]


def test_the_newest_days_come_first():
    found = [piece(name, n, MIB, [MIB]) for n, name in enumerate(PARTITIONS)]
    plan = plan_compaction(found, frozenset(), CompactionRules(CompactionStrategy.DAY_BASED, partitions=3), TODAY)
    assert [o.partition for o in plan.operations] == ["2026/01/25", "2026/01/20", "2026/01/15"]
    assert plan.left == 5
    assert "DayBased" in str(plan)
    assert "5 left for later" in str(plan)


def test_metrics_are_counted_as_hudi_counts_them():
    rules = CompactionRules()
    one, two = plan_compaction(
        [piece("p", 1, 3 * MIB + 5, [MIB - 1, 2 * MIB]), piece("p", 2, None, [7])], frozenset(), rules, TODAY
    ).operations
    assert one.metrics == {
        "TOTAL_LOG_FILES": 2.0,
        "TOTAL_IO_READ_MB": 6.0,
        "TOTAL_IO_WRITE_MB": 3.0,
        "TOTAL_IO_MB": 9.0,
        "TOTAL_LOG_FILES_SIZE": 3.0 * MIB - 1,
    }
    assert two.metrics["TOTAL_IO_WRITE_MB"] == 120.0


# ------------------------------------------------------------------------------------------------------------ triggers


def delta(n: int, done: int | None = None) -> str:
    return f"20260101{n:09d}_20260101{n + 5 if done is None else done:09d}.deltacommit"


HISTORY = [delta(n) for n in (10, 20, 30)] + ["20260101000000035_20260101000000038.commit"]


@pytest.mark.parametrize(
    ("names", "done", "requested"),
    [
        ([], 0, 0),
        ([delta(10), delta(20)], 2, 2),
        ([*HISTORY, delta(40)], 1, 1),
        ([*HISTORY, delta(33, 50)], 1, 1),  # begun before the compaction, completed after it
        ([*HISTORY, delta(40), "20260101000000045.compaction.requested", delta(50)], 2, 1),
    ],
)
def test_deltacommits_since_the_last_compaction(names, done, requested):
    timeline = timeline_from_names(names, 2)
    assert since_last_compaction(timeline)[0] == done
    assert since_last_compaction(timeline, requested=True)[0] == requested


@pytest.mark.parametrize("commits", [0, 1, 4, 5])
@pytest.mark.parametrize("age", [10, 3600])
@pytest.mark.parametrize("trigger", list(CompactionTrigger))
def test_triggers(trigger, age, commits):
    base = datetime(2026, 1, 1, tzinfo=UTC)
    timeline = timeline_from_names([*HISTORY, *(delta(100 + 10 * n) for n in range(commits))], 2)
    due = is_due(timeline, CompactionRules(trigger=trigger), base + timedelta(seconds=age, milliseconds=35), UTC)
    enough, late = commits >= 5, commits > 0 and age >= 3600
    expected = {"TIME_ELAPSED": late, "NUM_AND_TIME": enough and late, "NUM_OR_TIME": enough or late}
    assert due == expected.get(trigger.value, enough)


def test_names_that_hudi_does_not_know_are_refused():
    with pytest.raises(UnknownSetting, match="LogFileSizeBasedCompactionStrategy"):
        parse_member(CompactionStrategy, "Quick", "compaction strategy")
    with pytest.raises(UnknownSetting, match="NUM_OR_TIME"):
        parse_member(CompactionTrigger, "ALWAYS", "compaction trigger")
    with pytest.raises(InvalidInputError):
        CompactionRules(partitions=0)
    with pytest.raises(InvalidInputError):
        CompactionRules(target_io_mb=-1)


# ------------------------------------------------------------------------------------------------------------- records


@given(slices())
def test_a_plan_survives_its_record(found):
    plan = plan_compaction(found, frozenset(), CompactionRules(CompactionStrategy.UNBOUNDED), TODAY)
    body = encode_body(BodyKind.COMPACTION_PLAN, compaction_plan_record(plan))
    record = decode_body(BodyKind.COMPACTION_PLAN, body, what="plan")
    assert record["version"] == 2
    assert parse_compaction_plan(MemoryStore(), record, "plan").operations == plan.operations


GOOD = {
    "baseInstantTime": "20260101000000001",
    "deltaFilePaths": [".f-0_20260101000000001.log.1_0-0-0"],
    "dataFilePath": "f-0_0-0-0_20260101000000001.parquet",
    "fileId": "f-0",
    "partitionPath": "p",
    "metrics": None,
    "bootstrapFilePath": None,
}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"partitionPath": "../p"}, UnsafePath),
        ({"partitionPath": "/etc"}, UnsafePath),
        ({"dataFilePath": "/etc/f-0_0-0-0_20260101000000001.parquet"}, UnsafePath),
        ({"dataFilePath": "q/f-0_0-0-0_20260101000000001.parquet"}, CorruptFile),
        ({"dataFilePath": "p/../f-0_0-0-0_20260101000000001.parquet"}, UnsafePath),
        ({"dataFilePath": "g-0_0-0-0_20260101000000001.parquet"}, CorruptFile),
        ({"dataFilePath": "f-0_0-0-0_20260101000000002.parquet"}, CorruptFile),
        ({"dataFilePath": "hoodie.properties"}, CorruptFile),
        ({"deltaFilePaths": [".g-0_20260101000000001.log.1_0-0-0"]}, CorruptFile),
        ({"deltaFilePaths": [".f-0_20260101000000001.log.1_0-0-0.cdc"]}, CorruptFile),
        ({"deltaFilePaths": [""]}, CorruptFile),
        ({"deltaFilePaths": [".."]}, UnsafePath),
        ({"baseInstantTime": "now"}, CorruptFile),
        ({"baseInstantTime": None}, CorruptFile),
        ({"fileId": None}, CorruptFile),
        ({"bootstrapFilePath": "x"}, UnsupportedFeature),
    ],
)
def test_a_plan_that_names_other_things_is_refused(change, error):
    store = MemoryStore()
    assert parse_compaction_plan(store, {"operations": [GOOD]}, "plan").num_logs == 1
    with pytest.raises(error):
        parse_compaction_plan(store, {"operations": [{**GOOD, **change}]}, "plan")


def test_a_group_twice_is_refused_and_whole_paths_are_understood():
    store = MemoryStore("whole")
    with pytest.raises(CorruptFile, match="twice"):
        parse_compaction_plan(store, {"operations": [GOOD, GOOD]}, "plan")
    whole = {**GOOD, "dataFilePath": f"{store.url}/p/{GOOD['dataFilePath']}"}
    assert parse_compaction_plan(store, {"operations": [whole]}, "plan").operations[0].base_name == GOOD["dataFilePath"]
    assert parse_compaction_plan(store, {"operations": None}, "plan").operations == ()
