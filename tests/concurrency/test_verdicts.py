"""Verdicts on two commits, as values: a table of cases, and laws."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.config.table_config import parse_table_config
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.conflict import (
    Changes,
    Reason,
    Verdict,
    changes_of,
    check_conflict,
    check_plan_conflict,
    merge_schemas,
)
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.transactions.client import FailedWrites, check_concurrency, check_non_blocking
from lakefmt._core.values import FileId, InstantTime, PartitionPath, WriteOperation, WriteStat
from lakefmt.errors import CommitConflict, InvalidInputError, UnknownSetting

RIVAL = Instant(InstantTime("20260101000000005"), Action.COMMIT, State.COMPLETED, InstantTime("20260101000000009"))
PLAN = Instant(InstantTime("20260101000000005"), Action.COMPACTION, State.INFLIGHT)
CLUSTERING = Instant(InstantTime("20260101000000005"), Action.CLUSTERING, State.REQUESTED)
OP = WriteOperation


def stat(group: str, *, log: str = "", new: bool = False, inserts: int = 0) -> WriteStat:
    """One file of a commit: ``p/f`` names partition and file group; `log` is the instant that a log's name tells."""
    partition, _, file_id = group.partition("/")
    name = f".{file_id}_1.log.1_0-0-0" if log else f"{file_id}_1-0-0_20260101000000001.parquet"
    return WriteStat(
        FileId(file_id),
        PartitionPath(partition),
        f"{partition}/{name}",
        prev_commit=log or ("null" if new else "20250101000000000"),
        num_writes=3,
        num_inserts=inserts,
        log_files=(name,) if log else None,
    )


def commit(operation: WriteOperation, *stats: WriteStat, replaced: tuple[str, ...] = ()) -> CommitMetadata:
    hidden: dict[PartitionPath, tuple[FileId, ...]] = {}
    for group in replaced:
        partition, _, file_id = group.partition("/")
        hidden[PartitionPath(partition)] = (*hidden.get(PartitionPath(partition), ()), FileId(file_id))
    return CommitMetadata(operation, stats, hidden)


def parts(*names: str) -> frozenset[PartitionPath]:
    return frozenset(map(PartitionPath, names))


UPDATE = changes_of(commit(OP.UPSERT, stat("p/a")), keys_in=parts("p"))
INSERT = changes_of(commit(OP.UPSERT, stat("p/n", new=True, inserts=3)), keys_in=parts("p"))
PLAIN = changes_of(commit(OP.INSERT, stat("p/n", new=True, inserts=3)))
EVERYWHERE = changes_of(commit(OP.UPSERT, stat("q/n", new=True, inserts=3)), keys_in=None)
LOG = changes_of(commit(OP.UPSERT, stat("p/a", log="20250101000000000")), keys_in=parts("p"))
LOG_ON_IT = changes_of(commit(OP.UPSERT, stat("p/a", log=RIVAL.time)), keys_in=parts("p"))
OVERWRITE = changes_of(commit(OP.INSERT_OVERWRITE, replaced=("p/a",)), covers=parts("p"))
OVERWRITE_ALL = changes_of(commit(OP.INSERT_OVERWRITE_TABLE, replaced=("p/a",)), covers=None)
DROPPED = changes_of(commit(OP.INSERT, stat("p/n", new=True, inserts=1)), read=UPDATE.groups, keys_in=parts("p"))

THEIRS = {
    "update a": commit(OP.UPSERT, stat("p/a")),
    "update b": commit(OP.UPSERT, stat("p/b")),
    "insert into p": commit(OP.INSERT, stat("p/m", new=True, inserts=2)),
    "insert into b": commit(OP.UPSERT, stat("p/b", inserts=2)),
    "delete partition p": commit(OP.DELETE_PARTITION, replaced=("p/a", "p/b")),
    "overwrite q": commit(OP.INSERT_OVERWRITE, stat("q/m", new=True, inserts=2), replaced=("q/z",)),
    "compact a": commit(OP.COMPACT, stat("p/a")),
    "compact new base of b": commit(OP.COMPACT, stat("p/b", new=True)),
    "cluster a": commit(OP.CLUSTER, stat("p/c", new=True, inserts=3), replaced=("p/a",)),
    "cluster b": commit(OP.CLUSTER, stat("p/c", new=True, inserts=3), replaced=("p/b",)),
}

G, K, C = Reason.GROUPS, Reason.KEYS, Reason.COVERED
CASES: list[tuple[str, Changes, dict[str, Reason]]] = [
    (
        "update",
        UPDATE,
        {
            "update a": G,
            "insert into p": K,
            "insert into b": K,
            "delete partition p": G,
            "compact a": G,
            "cluster a": G,
        },
    ),
    ("insert of keys", INSERT, {"insert into p": K, "insert into b": K}),
    ("plain insert", PLAIN, {}),
    ("keys of the table", EVERYWHERE, {"insert into p": K, "insert into b": K, "overwrite q": K}),
    ("log", LOG, {"update a": G, "insert into p": K, "insert into b": K, "delete partition p": G, "cluster a": G}),
    (
        "overwrite",
        OVERWRITE,
        {
            "update a": G,
            "update b": C,
            "insert into p": C,
            "insert into b": C,
            "delete partition p": G,
            "compact a": G,
            "cluster a": G,
            "cluster b": C,
        },
    ),
    (
        "overwrite all",
        OVERWRITE_ALL,
        {
            "update a": G,
            "update b": C,
            "insert into p": C,
            "insert into b": C,
            "delete partition p": G,
            "overwrite q": C,
            "compact a": G,
            "cluster a": G,
            "cluster b": C,
        },
    ),
    (
        "insert without duplicates",
        DROPPED,
        {
            "update a": G,
            "insert into p": K,
            "insert into b": K,
            "delete partition p": G,
            "compact a": G,
            "cluster a": G,
        },
    ),
]


@pytest.mark.parametrize(("mine", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_verdicts_on_completed_rivals(mine: Changes, expected: dict[str, Reason]) -> None:
    found = {name: check_conflict(mine, RIVAL, changes_of(theirs), layout=2) for name, theirs in THEIRS.items()}
    assert {name: each.reason for name, each in found.items() if each is not None} == expected
    assert all(each is None or each.verdict is Verdict.REBASE for each in found.values())
    assert all(each is None or bool(each.doubtful) is (each.reason is K) for each in found.values())


def test_in_version_6_a_log_stands_on_the_compaction_that_names_it_only() -> None:
    compacted = changes_of(THEIRS["compact a"])
    assert check_conflict(LOG, RIVAL, compacted, layout=2) is None
    assert check_conflict(LOG_ON_IT, RIVAL, compacted, layout=1) is None
    found = check_conflict(LOG, RIVAL, compacted, layout=1)
    assert found is not None
    assert found.reason is G


@pytest.mark.parametrize(
    ("mine", "plan", "newly", "layout", "expected"),
    [
        (UPDATE, CLUSTERING, False, 2, Verdict.ABORT),
        (UPDATE, CLUSTERING, True, 2, Verdict.ABORT),
        (LOG, CLUSTERING, True, 2, Verdict.ABORT),
        (OVERWRITE, CLUSTERING, True, 2, Verdict.ABORT),
        (INSERT, CLUSTERING, True, 2, None),
        (UPDATE, PLAN, True, 2, Verdict.REBASE),
        (UPDATE, PLAN, False, 2, None),
        (LOG, PLAN, True, 2, None),
        (LOG, PLAN, True, 1, Verdict.REBASE),
        (LOG, PLAN, False, 1, None),
        (LOG_ON_IT, PLAN, True, 1, None),
    ],
)
def test_verdicts_on_plans(mine: Changes, plan: Instant, newly: bool, layout: int, expected: Verdict | None) -> None:
    found = check_plan_conflict(mine, plan, UPDATE.groups, newly=newly, layout=layout)
    assert (None if found is None else found.verdict) is expected
    assert check_plan_conflict(mine, plan, [(PartitionPath("z"), FileId("z"))], newly=newly, layout=layout) is None


# --- laws -------------------------------------------------------------------------------------------------------------

GROUPS = st.sampled_from([f"{p}/{f}" for p in "pqr" for f in "abc"])
PLAIN_WRITES = st.sampled_from([OP.UPSERT, OP.INSERT, OP.DELETE, OP.CLUSTER])


@st.composite
def commits(draw: st.DrawFn, operations: st.SearchStrategy[WriteOperation] = PLAIN_WRITES) -> CommitMetadata:
    made = [
        stat(group, new=draw(st.booleans()), inserts=draw(st.integers(0, 2)))
        for group in draw(st.sets(GROUPS, max_size=4))
    ]
    return commit(draw(operations), *made, replaced=tuple(draw(st.sets(GROUPS, max_size=2))))


SCOPES = st.one_of(st.none(), st.sets(st.sampled_from("pqr")).map(lambda names: parts(*names)))


@given(commits(), commits(), SCOPES, SCOPES)
def test_shared_file_groups_conflict_both_ways(one: CommitMetadata, other: CommitMetadata, a, b) -> None:  # type: ignore[no-untyped-def]
    there = check_conflict(changes_of(one, keys_in=a), RIVAL, changes_of(other), layout=2)
    back = check_conflict(changes_of(other, keys_in=b), RIVAL, changes_of(one), layout=2)
    shared = tuple(sorted(one.file_ids() & other.file_ids()))
    for found in (there, back):
        assert (found is not None and found.reason is G) is bool(shared)
    if there is not None and back is not None and shared:
        assert there.file_groups == back.file_groups == shared


@given(commits(), commits(st.sampled_from([*OP])), SCOPES, SCOPES)
def test_commits_in_different_partitions_are_clean(one: CommitMetadata, other: CommitMetadata, keys_in, covers) -> None:  # type: ignore[no-untyped-def]
    touched = {s.partition_path for s in other.stats} | set(other.replaced_file_ids)
    mine = {s.partition_path for s in one.stats} | set(one.replaced_file_ids)
    keys_in, covers = (None if s is None else s - touched for s in (keys_in, covers))
    found = check_conflict(changes_of(one, keys_in=keys_in, covers=covers), RIVAL, changes_of(other), layout=2)
    if not mine & touched and None not in (keys_in, covers):
        assert found is None
    if None in (keys_in, covers) and found is not None:
        assert mine & touched or found.reason in (K, C)


@given(commits(), commits(), SCOPES, SCOPES)
def test_who_minds_more_conflicts_more(one: CommitMetadata, other: CommitMetadata, keys_in, covers) -> None:  # type: ignore[no-untyped-def]
    modest = check_conflict(changes_of(one), RIVAL, changes_of(other), layout=2)
    minding = check_conflict(changes_of(one, keys_in=keys_in, covers=covers), RIVAL, changes_of(other), layout=2)
    assert modest is None or minding is not None


# --- schemas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "rivals", "expected"),
    [
        ("a", {}, "a"),
        ("a", {"2": "a", "4": "a"}, "a"),
        ("a", {"2": "a+b"}, "a+b"),
        ("a", {"2": "a+b", "4": "a"}, "a+b"),
        ("a+c", {}, "a+c"),
        ("a+c", {"2": "a"}, "a+c"),
        ("a+c", {"2": "a+c"}, "a+c"),
        ("a+c", {"2": "a+b"}, None),
        ("a+c", {"4": "a"}, None),
        ("a+c", {"4": "a+c"}, "a+c"),
    ],
)
def test_schemas(mine: str, rivals: dict[str, str], expected: str | None) -> None:
    said = {InstantTime(time): schema for time, schema in rivals.items()}
    assert merge_schemas(mine, "a", InstantTime("3"), said) == expected


# --- settings ---------------------------------------------------------------------------------------------------------

MODE, POLICY = "hoodie.write.concurrency.mode", "hoodie.clean.failed.writes.policy"
OCC = "optimistic_concurrency_control"
NBCC = "NON_BLOCKING_CONCURRENCY_CONTROL"


def test_settings_that_could_lose_rows_are_refused() -> None:
    for dangerous in (
        {MODE: OCC, POLICY: "EAGER"},
        {MODE: OCC.upper(), "hoodie.cleaner.policy.failed.writes": "eager"},
        {"lakefmt.write.services.background": "true", POLICY: "eager"},
    ):
        with pytest.raises(InvalidInputError, match="lazy"):
            check_concurrency(resolve_settings(dangerous), lock_reaches_all=True)
    with pytest.raises(InvalidInputError, match=r"lock\.provider"):
        check_concurrency(resolve_settings({MODE: OCC}), lock_reaches_all=False)
    with pytest.raises(InvalidInputError, match="lazy"):
        check_concurrency(resolve_settings({MODE: NBCC, POLICY: "eager"}), lock_reaches_all=True)


@pytest.mark.parametrize(
    ("table_type", "version", "places_keys", "is_fit"),
    [
        ("MERGE_ON_READ", 9, True, True),
        ("MERGE_ON_READ", 8, True, True),
        ("MERGE_ON_READ", 6, True, False),
        ("COPY_ON_WRITE", 9, True, False),
        ("MERGE_ON_READ", 9, False, False),
    ],
)
def test_the_non_blocking_mode_is_for_logs_and_buckets(
    table_type: str, version: int, places_keys: bool, is_fit: bool
) -> None:
    properties = {
        "hoodie.table.name": "t",
        "hoodie.table.type": table_type,
        "hoodie.table.version": str(version),
        "hoodie.timeline.layout.version": "1" if version == 6 else "2",
    }
    config = parse_table_config(properties)
    check_non_blocking(resolve_settings({MODE: OCC}), config, places_keys=places_keys)
    refusal = contextlib.nullcontext() if is_fit else pytest.raises(InvalidInputError, match="bucket index")
    with refusal:
        check_non_blocking(resolve_settings({MODE: NBCC}), config, places_keys=places_keys)


def test_two_writers_of_one_bucket_conflict_and_those_that_add_logs_need_not() -> None:
    p = PartitionPath("p")
    mine, theirs = (p, FileId("00000003-aa-0")), (p, FileId("00000003-bb-0"))
    opened = Changes(WriteOperation.INSERT, frozenset([theirs]))
    for others, found in ((frozenset([mine]), True), (frozenset([(p, FileId("00000004-aa-0"))]), False)):
        conflict = check_conflict(Changes(WriteOperation.INSERT, others), RIVAL, opened, layout=2)
        assert (conflict is not None) is found
    logs, theirs_too = (Changes(WriteOperation.UPSERT, frozenset([mine]), {mine: "1"}) for _ in range(2))
    assert check_conflict(logs, RIVAL, theirs_too, layout=2) is not None
    assert check_conflict(logs, RIVAL, theirs_too, layout=2, non_blocking=True) is None
    rewritten = Changes(WriteOperation.UPSERT, frozenset([mine]))
    assert check_conflict(logs, RIVAL, rewritten, layout=2, non_blocking=True) is not None
    assert check_conflict(rewritten, RIVAL, logs, layout=2, non_blocking=True) is not None


@pytest.mark.parametrize(
    ("given_settings", "beside", "policy", "retries"),
    [
        ({}, False, FailedWrites.EAGER, 0),
        ({MODE: OCC}, True, FailedWrites.LAZY, 20),
        ({MODE: NBCC}, True, FailedWrites.LAZY, 20),
        ({MODE: OCC, POLICY: "NEVER"}, True, FailedWrites.NEVER, 20),
        ({"lakefmt.write.services.background": True}, False, FailedWrites.LAZY, 20),
        ({MODE: OCC, "hoodie.write.num.retries.on.conflict.failures": 3}, True, FailedWrites.LAZY, 3),
    ],
)
def test_defaults(given_settings: dict[str, object], beside: bool, policy: FailedWrites, retries: int) -> None:
    rules = check_concurrency(resolve_settings(given_settings), lock_reaches_all=True)
    assert (rules.beside, rules.failed_writes, rules.retries, rules.early) == (beside, policy, retries, False)


def test_strategies_by_name() -> None:
    key = "hoodie.write.lock.conflict.resolution.strategy"
    place = "org.apache.hudi.client.transaction."
    for name in ("SimpleConcurrentFileWrites", "PreferWriter", "BucketIndexConcurrentFileWrites"):
        named = resolve_settings({MODE: OCC, key: f"{place}{name}ConflictResolutionStrategy"})
        assert check_concurrency(named, lock_reaches_all=True).beside
    with pytest.raises(UnknownSetting):
        check_concurrency(resolve_settings({key: "Mine"}), lock_reaches_all=True)


def test_a_conflict_travels_whole() -> None:
    import pickle

    made = CommitConflict(
        "no", other_instant="1", writer="w", file_groups=(("p", "f"),), advice="wait", can_rebase=False
    )
    made.add_note("seen")
    back = pickle.loads(pickle.dumps(made))
    assert (str(back), back.other_instant, back.writer, back.file_groups) == ("no", "1", "w", (("p", "f"),))
    assert (back.advice, back.can_rebase, back.partitions) == ("wait", False, ())
    assert replace(UPDATE, covers=None).covers is None
