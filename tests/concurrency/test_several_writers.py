"""Several writers of one table: what is refused, what is done again, what the dead leave, and what services do beside."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakefmt
import lakefmt._core.write.commit.transaction as conversation
from lakefmt import lowlevel
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import LocalStore, ObjectStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action
from lakefmt._core.timeline.metadata_codec import BodyKind, encode_body
from lakefmt._core.transactions.client import open_write_client
from lakefmt._core.transactions.instant import InstantTransaction
from lakefmt._core.write.transaction import find_transaction
from lakefmt.errors import (
    CommitConflict,
    InstantNotPending,
    InvalidInputError,
    LakefmtError,
    SchemaMismatch,
    WriterActive,
)
from lakefmt.testing.invariants import check_invariants, check_no_orphans
from lakefmt.testing.store_wrapper import Step, WrapperStore
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at
from tests.concurrency.green_threads import MANY, Gate, Writer, take_turns
from tests.kit import product_or_diagonal

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
NUMBERS = itertools.count()
T = TypeVar("T")
DEAD_AT_ONCE: dict[str, object] = {**MANY, "hoodie.client.heartbeat.tolerable.misses": 0}
APART: dict[str, object] = {"hoodie.parquet.small.file.limit": 0}


def rows(*keys: str, city: str = "sf", ts: int = 1) -> pa.Table:
    return pa.table({"id": [*keys], "city": [city] * len(keys), "ts": [ts] * len(keys)}, schema=SCHEMA)


def make(store: ObjectStore | None = None, options: dict[str, object] | None = None, **how: Any) -> Table:
    store = store or MemoryStore(f"several-{next(NUMBERS)}")
    made = lakefmt.create_table(
        store.url, schema=SCHEMA, record_key="id", partition_by="city", ordering="ts", options=MANY, **how
    )
    made.upsert(rows("a", "b"))
    made.upsert(rows("o", city="oslo"))
    return Table(TableClient(store, {**MANY, **(options or {})}))


def content(table: Table) -> dict[str, int]:
    found = table.read()
    assert found.num_rows == len(set(found["id"].to_pylist())), "a key is there twice"
    return dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True))


def written(table: Table, data: pa.Table, operation: str = "upsert") -> tuple[Any, list[Any]]:
    """Begin a write and write its files; it is pending."""
    context = lowlevel.begin_write(table, operation)
    return context, [lowlevel.write_files(context, a, b) for a, b in lowlevel.assign(context, data)]


def heartbeat_stops(context: Any) -> None:
    transaction = find_transaction(context)
    assert transaction is not None
    assert transaction._pending.instant.heartbeat is not None
    transaction._pending.instant.heartbeat.abandon()


# --- three writers ----------------------------------------------------------------------------------------------------


@product_or_diagonal(kind=["memory", "local"], script=["ABCABC", "ABCCBA", "ABCBCA", "CBACAB"])
def test_three_writers_of_one_key_and_keys_of_their_own(script: str, kind: str, tmp_path: Path) -> None:
    store: ObjectStore = MemoryStore(f"three-{next(NUMBERS)}") if kind == "memory" else LocalStore(tmp_path / "t")
    table = make(store)
    writers = take_turns(
        store,
        [lambda t, n=n: t.upsert(pa.concat_tables([rows("a", ts=10), rows(f"own{n}", ts=n)])) for n in range(3)],
        script,
    )
    assert [w.error for w in writers] == [None] * 3
    assert content(table) == {"a": 10, "b": 1, "o": 1, "own0": 0, "own1": 1, "own2": 2}
    check_invariants(table)
    check_no_orphans(table)


def test_five_writers_of_one_file_group_all_come_through() -> None:
    table = make()
    writers = take_turns(
        table.client.store, [lambda t, n=n: t.upsert(rows(f"w{n}", "a", ts=9)) for n in range(5)], "ABCDE"
    )
    assert [w.error for w in writers] == [None] * 5
    assert max(len(w.gate.waits) for w in writers) <= 4, "of those that meet one completes each time"
    assert set(content(table)) == {"a", "b", "o", "w0", "w1", "w2", "w3", "w4"}


def test_logs_of_two_writers_in_one_slice_of_version_6_have_names_of_their_own() -> None:
    table = make(table_type="mor", table_version=6)
    contexts = [lowlevel.begin_write(table) for _ in range(2)]
    work = [lowlevel.assign(context, rows("a", ts=2 + n)) for n, context in enumerate(contexts)]
    (first, second) = ([lowlevel.write_files(c, a, b) for a, b in w] for c, w in zip(contexts, work, strict=True))
    lowlevel.commit(contexts[1], second)
    with pytest.raises(CommitConflict, match="same file groups"):
        lowlevel.commit(contexts[0], first)
    lowlevel.abort(contexts[0])
    assert content(table) == {"a": 3, "b": 1, "o": 1}


def test_writers_of_different_partitions_never_wait_for_each_other() -> None:
    table = make()
    writers = take_turns(
        table.client.store,
        [lambda t: t.upsert(rows("a", "new", ts=2)), lambda t: t.upsert(rows("o", "new", city="oslo", ts=2))],
        "ABBA",
    )
    assert all(w.error is None and not w.gate.waits for w in writers)
    assert table.read().num_rows == 5


@pytest.mark.parametrize("stored", ["true", "false"])
def test_disjoint_keys_in_one_partition_are_compared_and_stand(stored: str) -> None:
    table = make(options=APART, properties={"hoodie.populate.meta.fields": stored})
    writers = take_turns(table.client.store, [lambda t, n=n: t.upsert(rows(f"n{n}")) for n in range(2)], "ABBA", APART)
    if stored == "true":
        assert [w.gate.waits for w in writers] == [[], []]
    again = take_turns(table.client.store, [lambda t: t.upsert(rows("x")) for _ in range(2)], "ABBA", APART)
    assert sorted(len(w.gate.waits) for w in again) == [0, 1], "one of them found the other's key and came again"
    assert set(content(table)) == {"a", "b", "o", "n0", "n1", "x"}


def test_a_global_index_keeps_a_key_once_in_the_table() -> None:
    table = make(index="global_simple")
    options = {"hoodie.simple.index.update.partition.path": "true"}
    writers = take_turns(
        table.client.store,
        [lambda t: t.upsert(rows("x", ts=5)), lambda t: t.upsert(rows("x", city="oslo", ts=5))],
        "ABAB",
        options,
    )
    assert sorted(len(w.gate.waits) for w in writers) == [0, 1]
    assert content(table)["x"] == 5


# --- what the error says ----------------------------------------------------------------------------------------------


def test_the_error_names_the_other_instant_its_writer_the_file_groups_and_the_way_out() -> None:
    table = make()
    context, statuses = written(table, rows("a", ts=2))
    other = table.upsert(rows("b", ts=3))
    with pytest.raises(CommitConflict, match="same file groups") as caught:
        lowlevel.commit(context, statuses)
    lowlevel.abort(context)
    error = caught.value
    assert error.other_instant == other.instant
    assert error.writer is not None
    assert "process" in error.writer
    assert error.file_groups == ((other.files[0].partition_path, other.files[0].file_id),)
    assert "partitions or keys of their own" in error.advice
    assert error.can_rebase
    assert error.writer in str(error)


def test_retries_are_bounded_and_a_stream_is_not_read_twice() -> None:
    table = make(options=APART)
    name: dict[str, object] = {
        "hoodie.write.num.retries.on.conflict.failures": 2,
        "lakefmt.write.turn.after.conflicts": 0,
    }

    class Faster(Gate):
        """Whoever asks for the lock to commit finds that somebody else was faster."""

        takes = 0

        def acquire_lock(self, lock: threading.Lock, seconds: float) -> bool:
            self.takes += 1
            if self.takes % 3 == 2:  # begin, commit, abort
                Table(TableClient(table.client.store, MANY)).upsert(rows("a", ts=self.takes))
            return lock.acquire(timeout=9)

        def sleep(self, seconds: float) -> None:
            self.waits.append(seconds)

    time_source = Faster()
    loser = Table(TableClient(table.client.store, {**MANY, **name}, time_source=time_source))
    with pytest.raises(CommitConflict, match="3 attempts were made"):
        loser.upsert(rows("a", ts=99))
    assert time_source.waits == [0.01, 0.02], "twice as long each time, jitter in the middle"
    wide = rows("s").append_column("more", pa.array([1]))

    def stream() -> Any:
        yield wide

    slow = Writer(table.client.store, lambda t: t.bulk_insert(stream()), dict(MANY))
    slow.step()
    table.upsert(rows("z").append_column("other", pa.array([1])))
    slow.finish()
    assert isinstance(slow.error, CommitConflict)
    assert "came as a stream" in str(slow.error)
    assert "s" not in content(table)
    check_no_orphans(table)


def test_a_single_writer_is_refused_as_before() -> None:
    table = make()
    context, _ = written(table, rows("a", ts=2))
    alone = Table(TableClient(table.client.store, {**MANY, "hoodie.write.concurrency.mode": "single_writer"}))
    with pytest.raises(WriterActive, match=context.instant):
        alone.upsert(rows("b"))
    lowlevel.abort(context)
    assert alone.upsert(rows("b")).num_updates == 1


class FarAway(WrapperStore):
    """A store without locks between processes, under the address of one."""

    @property
    def url(self) -> str:
        return "s3://bucket/table"

    def perform(self, step: Step[T]) -> T:
        return step.run()


def test_a_store_without_locks_between_processes_wants_a_provider() -> None:
    far = FarAway(make().client.store)
    with pytest.raises(InvalidInputError, match=r"lock\.provider"):
        Table(TableClient(far, MANY)).upsert(rows("a"))
    named = {**MANY, "hoodie.write.lock.provider": "InProcessLockProvider"}
    assert Table(TableClient(far, named)).upsert(rows("a")).num_updates == 1


# --- the dead, the slow, and what they leave --------------------------------------------------------------------------


def test_dead_writers_are_undone_beside_live_ones_and_slow_ones_are_not(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    table = make(store)
    slow, slow_statuses = written(table, rows("slow"))
    dead, _ = written(table, rows("dead", city="oslo"))
    heartbeat_stops(dead)
    table.upsert(rows("next", city="rome"))
    assert [i.time for i in table.timeline.timeline.pending] == [slow.instant]
    assert store.info(f".hoodie/.heartbeat/{slow.instant}") is not None
    assert any(True for _ in store.list(f".hoodie/.temp/{slow.instant}"))
    assert lowlevel.commit(slow, slow_statuses).num_inserts == 1
    assert set(content(table)) == {"a", "b", "o", "slow", "next"}
    check_no_orphans(table)
    never, _ = written(table, rows("never", city="rome"))
    heartbeat_stops(never)
    table.upsert(rows("next", city="sf"), options={"hoodie.clean.failed.writes.policy": "never"})
    assert [i.time for i in table.timeline.timeline.pending] == [never.instant]
    table.upsert(rows("next", city="sf"))
    assert not table.timeline.timeline.pending


def test_who_was_thought_dead_does_not_commit_and_leaves_no_file() -> None:
    table = make()
    context = lowlevel.begin_write(table)
    *early, late = lowlevel.assign(context, pa.concat_tables([rows("a", "z", ts=7), rows("late", city="rome")]))
    statuses = [lowlevel.write_files(context, *each) for each in early]
    impatient = Table(TableClient(table.client.store, DEAD_AT_ONCE))
    impatient.upsert(rows("b", ts=2))
    statuses.append(lowlevel.write_files(context, *late))
    with pytest.raises(InstantNotPending):
        lowlevel.commit(context, statuses)
    lowlevel.abort(context)
    assert content(table) == {"a": 1, "b": 2, "o": 1}
    check_no_orphans(table)


def test_files_of_a_zombie_that_died_are_swept_with_its_markers() -> None:
    table = make()
    context = lowlevel.begin_write(table)
    early, late = lowlevel.assign(context, pa.concat_tables([rows("a", ts=7), rows("late", city="rome")]))
    lowlevel.write_files(context, *early)
    impatient = Table(TableClient(table.client.store, DEAD_AT_ONCE))
    impatient.upsert(rows("b", ts=2))
    lowlevel.write_files(context, *late)  # then it dies, and tidies nothing up
    assert [i for i in table.client.store.list("city=rome") if context.instant in i.name]
    impatient.upsert(rows("b", ts=3))
    check_no_orphans(table)


def test_a_rollback_that_died_half_way_stops_its_target() -> None:
    table = make()
    context, statuses = written(table, rows("a", ts=7))
    state = table.client.load()
    timeline = table.client.timeline_store(state.config)
    plan = {
        "instantToRollback": {"commitTime": context.instant, "action": "commit"},
        "RollbackRequests": [],
        "version": 1,
    }
    time = table.client.instant_clock(state.config).next(state.timeline.highest_time)
    timeline.request(time, Action.ROLLBACK, encode_body(BodyKind.ROLLBACK_PLAN, plan))
    with pytest.raises(InstantNotPending, match="being rolled back"):
        lowlevel.commit(context, statuses)
    # A rollback that may be at work keeps its target for itself: here, a young one of another engine.
    table.upsert(rows("c", city="rome"))
    assert {i.time for i in table.timeline.timeline.pending} == {context.instant, time}


EFFECTS = 40


@pytest.mark.parametrize(
    ("mode", "crash"), [(FaultMode.AFTER, True), (FaultMode.BEFORE, False), (FaultMode.ANSWER_LOST, False)]
)
def test_every_effect_of_a_write_beside_a_pending_one(mode: FaultMode, crash: bool) -> None:
    for number in range(1, EFFECTS):
        table = make()
        store = table.client.store
        pending, statuses = written(table, rows("mine", city="rome", ts=4))
        faulty = FaultStore(store, fail_at(number, mode, crash=crash))
        failed = False
        try:
            Table(TableClient(faulty, MANY)).upsert(rows("a", "theirs", ts=5))
        except (LakefmtError, SimulatedCrash):
            failed = True
        story = f"effect {number} {mode}"
        if len(faulty.effects) < number:
            break
        assert lowlevel.commit(pending, statuses).num_inserts == 1, story
        found = content(table)
        before = {"a": 1, "b": 1, "o": 1, "mine": 4}
        after = {**before, "a": 5, "theirs": 5}
        assert found in (before, after), story
        assert failed or found == after, story
        next_one = Table(TableClient(store, DEAD_AT_ONCE))
        next_one.upsert(rows("a", "theirs", ts=6))
        assert content(table) == {**before, "a": 6, "theirs": 6}, story
        check_invariants(table)
        check_no_orphans(table)
    else:
        raise AssertionError("more effects than were tried")


# --- what happens meanwhile -------------------------------------------------------------------------------------------


def test_other_commits_are_not_archived_while_a_write_that_must_see_them_is_pending() -> None:
    table = make(options=APART)
    early, early_statuses = written(table, rows("x", ts=1))  # requested first, completed second
    context, statuses = written(table, rows("x", ts=2))
    lowlevel.commit(early, early_statuses)
    for n in range(6):
        table.upsert(rows(f"r{n}", city="rome"))
    table.archive(options={"hoodie.keep.min.commits": 1, "hoodie.keep.max.commits": 2})
    assert early.instant in {i.time for i in table.timeline.timeline.commits}
    with pytest.raises(CommitConflict, match="same keys"):
        lowlevel.commit(context, statuses)
    lowlevel.abort(context)
    assert content(table)["x"] == 1


def test_a_commit_that_is_undone_meanwhile_takes_what_built_on_it_along() -> None:
    table = make()
    last = table.upsert(rows("a", "gone", ts=5))
    assert last.instant is not None
    writer = Writer(table.client.store, lambda t: t.upsert(rows("b", ts=6)), dict(MANY))
    writer.step()  # has begun and written
    table.rollback(last.instant)
    writer.finish()
    assert writer.error is None
    assert content(table) == {"a": 1, "b": 6, "o": 1}


def plan_clustering(table: Table, group: tuple[str, str]) -> str:
    services = open_write_client(table.client)
    state = table.client.load()
    piece = {"partitionPath": group[0], "fileId": group[1], "dataFilePath": "", "deltaFilePaths": [], "version": 1}
    plan = {"inputGroups": [{"slices": [piece], "version": 1}], "version": 1}
    body = encode_body(BodyKind.REQUESTED_REPLACE, {"operationType": "CLUSTER", "clusteringPlan": plan, "version": 1})
    with services.lock.hold() as lease:
        transaction = InstantTransaction.claim(services.at(state), Action.CLUSTERING, lease, body, start=False)
    transaction.finish()
    return transaction.time


def test_a_file_group_that_is_being_clustered_is_not_written_to() -> None:
    table = make()
    group = next((p.partition, p.file_id) for p in table.file_groups() if "sf" in p.partition)
    context, statuses = written(table, rows("a", ts=2))
    time = plan_clustering(table, group)
    with pytest.raises(CommitConflict, match="pending clustering") as caught:
        lowlevel.commit(context, statuses)
    lowlevel.abort(context)
    assert (caught.value.other_instant, caught.value.can_rebase) == (time, False)
    with pytest.raises(CommitConflict, match="pending clustering"):
        table.upsert(rows("a", ts=2))
    assert table.insert(rows("beside")).num_inserts == 1, "new rows go to files of their own"
    assert table.upsert(rows("o", city="oslo", ts=3)).num_updates == 1
    assert content(table) == {"a": 1, "b": 1, "o": 3, "beside": 1}
    alone = Table(TableClient(table.client.store, {**MANY, "hoodie.write.concurrency.mode": "single_writer"}))
    assert alone.upsert(rows("o", city="oslo", ts=4)).num_updates == 1
    with pytest.raises(CommitConflict, match="pending clustering"):
        alone.upsert(rows("a", ts=2))


def test_early_detection_spares_the_work() -> None:
    early = {"hoodie.write.concurrency.early.conflict.detection.enable": True}
    table = make(options=early)
    context, statuses = written(table, rows("a", ts=2))
    other = lowlevel.begin_write(table)
    with pytest.raises(CommitConflict, match="is writing") as caught:
        lowlevel.assign(other, rows("b", ts=2))
    assert caught.value.other_instant == context.instant
    assert not any(True for _ in table.client.store.list(f".hoodie/.temp/{other.instant}"))
    lowlevel.commit(context, statuses)
    with pytest.raises(CommitConflict, match="completed meanwhile"):
        lowlevel.assign(other, rows("b", ts=2))
    lowlevel.abort(other)
    assert content(table) == {"a": 2, "b": 1, "o": 1}


def test_updates_by_filter_read_their_rows_again() -> None:
    table = make()
    one_more = {"ts": pc.field("ts") + 1}
    writer = Writer(table.client.store, lambda t: t.update("id = 'a'", one_more), dict(MANY))
    writer.step()  # has read, begun and written
    table.upsert(rows("a", ts=10))
    writer.finish()
    assert writer.error is None
    assert content(table) == {"a": 11, "b": 1, "o": 1}


def test_deletes_by_filter_read_their_rows_again() -> None:
    table = make()
    writer = Writer(table.client.store, lambda t: t.delete("id = 'a' and ts = 1"), dict(MANY))
    writer.step()
    table.upsert(rows("a", ts=10))
    writer.finish()
    assert writer.error is None
    assert content(table) == {"a": 10, "b": 1, "o": 1}


# --- schemas ----------------------------------------------------------------------------------------------------------


def test_a_column_that_a_rival_added_stays() -> None:
    table = make(options=APART)
    context, statuses = written(table, rows("mine", city="rome"))
    table.upsert(rows("wide").append_column("more", pa.array([1])))
    lowlevel.commit(context, statuses)
    found = {row["id"]: row["more"] for row in table.read().to_pylist()}
    assert found == {"a": None, "b": None, "o": None, "wide": 1, "mine": None}
    late = lowlevel.begin_write(table, schema=table.schema.append(pa.field("late", pa.int64())))
    data = rows("l", city="rome").append_column("more", pa.array([2])).append_column("late", pa.array([3]))
    statuses = [lowlevel.write_files(late, a, b) for a, b in lowlevel.assign(late, data)]
    table.upsert(rows("p", city="oslo").append_column("more", pa.array([4])))
    with pytest.raises(CommitConflict, match="schema"):  # its schema would hide behind the later instant's
        lowlevel.commit(late, statuses)
    lowlevel.abort(late)


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("verb", ["upsert", "insert_overwrite_table", "partial"])
def test_a_column_that_a_rival_adds_meanwhile_is_null_in_rows_that_are_written_again(kind: str, verb: str) -> None:
    table = make(table_type=kind)

    def call(mine: Table) -> Any:
        if verb == "partial":
            return mine.upsert(rows("a", ts=9), partial=True)
        return getattr(mine, verb)(rows("a", ts=9))

    writer = Writer(table.client.store, call, dict(MANY))
    writer.step()  # has begun and written
    more = pa.StructArray.from_arrays([pa.array([1])], fields=[pa.field("n", pa.int64(), nullable=False)])
    table.upsert(rows("a", ts=5).append_column("more", more))
    writer.finish()
    assert writer.error is None
    assert len(writer.gate.waits) == 1  # it was done again
    found = {row["id"]: row for row in table.read().to_pylist()}
    assert found["a"]["ts"] == 9
    assert found["a"]["more"] == ({"n": 1} if verb == "partial" else None)
    with pytest.raises(SchemaMismatch, match="more"):  # who comes later has to know it
        table.upsert(rows("a", ts=10))


# --- services and tables beside ---------------------------------------------------------------------------------------


def test_a_write_that_completes_while_a_compaction_clean_and_archive_run() -> None:
    table = make(table_type="mor")
    store = table.client.store
    for ts in (2, 3):
        table.upsert(rows("a", "b", ts=ts))
    keep = {"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 1, "hoodie.keep.max.commits": 2}
    services = [
        lambda t: t.compact(),
        lambda t: t.clean(options=keep),
        lambda t: t.archive(options=keep),
        lambda t: t.compact(schedule=True),
    ]
    ts = 3
    for service, script in itertools.product(services, ("ABAB", "ABBA", "BABA", "BAAB")):
        ts += 1
        data = pa.concat_tables([rows("a", f"n{ts}", ts=ts), rows("o", city="oslo", ts=ts)])
        writers = take_turns(store, [service, lambda t, data=data: t.upsert(data)], script)  # type: ignore[misc]
        assert [w.error for w in writers] == [None, None], script
        found = content(table)
        assert (found["a"], found["o"], found[f"n{ts}"], found["b"]) == (ts, ts, ts, 3)
    table.compact()
    assert content(table)["a"] == ts


def test_two_tables_never_wait_for_each_other() -> None:
    one, other = make(), make()
    holder = open_write_client(one.client)
    with holder.lock.hold():
        quick = Table(TableClient(other.client.store, {**MANY, "hoodie.write.lock.wait_time_ms": 0}))
        assert quick.upsert(rows("a", ts=2)).num_updates == 1
        blocked = Table(TableClient(one.client.store, {**MANY, "hoodie.write.lock.wait_time_ms": 0}))
        with pytest.raises(LakefmtError, match="lock"):
            blocked.upsert(rows("a", ts=2))


# --- sabotage ---------------------------------------------------------------------------------------------------------


def test_sabotage_without_the_check_rows_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "resolve_conflicts", lambda write_at, context, begun, metadata, *rest: metadata)
    table = make()
    take_turns(table.client.store, [lambda t: t.upsert(rows("a", ts=2)), lambda t: t.upsert(rows("b", ts=2))], "ABAB")
    assert content(table) != {"a": 2, "b": 2, "o": 1}


def test_sabotage_without_the_comparison_of_keys_a_key_is_there_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    import lakefmt._core.write.commit.conflict_resolution as resolution

    monkeypatch.setattr(resolution, "_file_with_key", lambda *given, **how: None)
    table = make(options=APART)
    take_turns(table.client.store, [lambda t: t.upsert(rows("x")) for _ in range(2)], "ABAB", APART)
    assert table.read()["id"].to_pylist().count("x") == 2
