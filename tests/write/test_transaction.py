"""One write transaction: the same steps from ``Table`` and ``lowlevel``, rebuilt from the context alone in any process."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.markers import SAVED_WRITES, saved_keys_name, saved_write_name
from lakefmt._core.write import transaction
from lakefmt._core.write import transaction as saved_transaction
from lakefmt._core.write.transaction import find_transaction
from lakefmt.errors import (
    CommitConflict,
    CorruptFile,
    InstantNotPending,
    InvalidInputError,
    LakefmtError,
    StateError,
    WriterActive,
)
from lakefmt.testing.invariants import check_invariants, check_no_orphans
from tests.kit import SECONDS_FOR_A_CHILD, product_or_diagonal

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
MANY: dict[str, object] = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
NUMBERS = itertools.count()

Work = list[tuple[lowlevel.FileAssignment, list[pa.Table]]]
ContextCopy = Callable[[lowlevel.WriteContext], lowlevel.WriteContext]
COPIES: dict[str, ContextCopy] = {
    "pickle": lambda context: pickle.loads(pickle.dumps(context)),
    "json": lambda context: lowlevel.WriteContext.from_json(context.to_json()),
}


def rows(*ids: str, n: int = 1, city: str = "sf") -> pa.Table:
    return pa.table({"id": list(ids), "city": [city] * len(ids), "n": [n] * len(ids)}, schema=SCHEMA)


def make(url: str | None = None, **said: object) -> Table:
    given: dict[str, object] = {"record_key": "id", "partition_by": "city", "ordering": "n", **said}
    return lakefmt.create_table(url or f"memory://transaction-{next(NUMBERS)}", schema=SCHEMA, **given)  # type: ignore[arg-type]


def content(table: Table) -> dict[str, int]:
    read = table.read()
    assert read.num_rows == len(set(read["id"].to_pylist())), "a key is there twice"
    return dict(zip(read["id"].to_pylist(), read["n"].to_pylist(), strict=True))


def files_written(context: lowlevel.WriteContext, data: pa.Table) -> list[lowlevel.WriteStatus]:
    return [lowlevel.write_files(context, a, b) for a, b in lowlevel.assign(context, data)]


def forget(context: lowlevel.WriteContext, *, dies: bool = False) -> None:
    """Let this process be another one than that which began; with `dies` the latter is dead."""
    running = find_transaction(context)
    assert running is not None
    if dies:
        running._abandon()
    saved_transaction._running_transactions.pop(context.owner, None)


def saved_files(table: Table) -> list[str]:
    return sorted(item.name for item in table.client.store.list(SAVED_WRITES))


# --- one path ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_drop_duplicates_by_hudis_option_is_the_same_everywhere(operation: str) -> None:
    option: dict[str, object] = {"hoodie.datasource.write.insert.drop.duplicates": "true"}
    through_table, through_steps = make(), make()
    for table in (through_table, through_steps):
        table.insert(rows("a"))
    getattr(through_table, operation)(rows("a", "b", "b"), options=option)
    context = lowlevel.begin_write(through_steps, operation, option)
    assert lowlevel.commit(context, files_written(context, rows("a", "b", "b"))).num_inserts == 1
    assert content(through_table) == content(through_steps) == {"a": 1, "b": 1}


def test_a_partial_upsert_in_steps() -> None:
    table = make()
    table.upsert(rows("a", n=5))
    context = lowlevel.begin_write(table, partial=True)
    lowlevel.commit(context, files_written(context, rows("a").select(["id", "city"])))
    assert content(table) == {"a": 5}


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("operation", ["upsert", "insert", "delete"])
def test_the_steps_do_what_the_verbs_do(operation: str, table_type: str) -> None:
    through_table, through_steps = make(table_type=table_type), make(table_type=table_type)
    for table in (through_table, through_steps):
        table.upsert(rows("a", "b", "c"))
    data = rows("d", "e") if operation == "insert" else rows("b", "x", n=2)
    if operation == "delete":
        through_table.delete(["b", "x"])
    else:
        getattr(through_table, operation)(data)
    context = lowlevel.begin_write(through_steps, operation)
    lowlevel.commit(context, files_written(context, data))
    assert content(through_table) == content(through_steps)


# --- another process --------------------------------------------------------------------------------------------------


@product_or_diagonal(table_type=["cow", "mor"], version=[6, 8], copy=list(COPIES), dies=[False, True])
def test_a_context_is_committed_elsewhere(copy: str, dies: bool, version: int, table_type: str, tmp_path: Path) -> None:
    table = make(str(tmp_path), table_type=table_type, table_version=version)
    table.upsert(rows("a", "b"))
    context = lowlevel.begin_write(table, commit_metadata={"label": "l1"})
    statuses = files_written(context, rows("b", "c", n=2))
    assert saved_files(table) == [saved_write_name(context.instant), saved_keys_name(context.instant)]
    forget(context, dies=dies)
    elsewhere = COPIES[copy](context)
    assert elsewhere == context
    result = lowlevel.commit(elsewhere, statuses)
    assert (result.num_inserts + result.num_updates, result.instant) == (2, context.instant)
    assert content(table) == {"a": 1, "b": 2, "c": 2}
    assert saved_files(table) == []
    assert table.client.store.info(f".hoodie/.heartbeat/{context.instant}") is None
    check_invariants(table)
    check_no_orphans(table)


@pytest.mark.parametrize("dies", [False, True])
def test_a_context_is_aborted_elsewhere(dies: bool, tmp_path: Path) -> None:
    table = make(str(tmp_path))
    table.upsert(rows("a"))
    context = lowlevel.begin_write(table)
    files_written(context, rows("a", "b", n=2))
    forget(context, dies=dies)
    for _ in range(2):
        lowlevel.abort(COPIES["json"](context))
    assert not [item.name for item in table.client.store.list() if context.instant in item.name]
    assert table.client.load().timeline.pending == ()
    assert content(table) == {"a": 1}
    check_no_orphans(table)


def test_begun_here_assigned_there_committed_yet_elsewhere(tmp_path: Path) -> None:
    table = make(str(tmp_path), options=MANY)
    context = lowlevel.begin_write(table)
    forget(context, dies=True)
    statuses = files_written(COPIES["json"](context), rows("a"))
    forget(context, dies=True)
    assert lowlevel.commit(COPIES["pickle"](context), statuses).num_inserts == 1
    assert content(table) == {"a": 1}


def test_a_write_that_was_rolled_back_is_not_committed_elsewhere(tmp_path: Path) -> None:
    table = make(str(tmp_path))
    context = lowlevel.begin_write(table)
    statuses = files_written(context, rows("a"))
    forget(context, dies=True)
    table.upsert(rows("z"))
    assert saved_files(table) == []
    with pytest.raises(InstantNotPending, match="rolled it back"):
        lowlevel.commit(context, statuses)
    lowlevel.abort(context)
    assert content(table) == {"z": 1}
    check_no_orphans(table)


def test_the_second_committer_is_told_and_loses_nothing() -> None:
    table = make()
    context = lowlevel.begin_write(table)
    statuses = files_written(context, rows("a"))
    forget(context)
    copies = [COPIES["json"](context) for _ in range(2)]
    lowlevel.commit(copies[0], statuses)
    for given_statuses in (statuses, []):
        with pytest.raises(InstantNotPending, match="committed already"):
            lowlevel.commit(copies[1], given_statuses)
    lowlevel.abort(copies[1])
    assert content(table) == {"a": 1}
    check_invariants(table)


def test_two_committers_that_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one commits between the first one's look at the saved write and its lock."""
    table = make()
    context = lowlevel.begin_write(table)
    statuses = files_written(context, rows("a", "b"))
    forget(context)
    real, late = transaction.complete_instant, list[object]()

    def overtaken(*given: object, **named: object) -> object:
        if not late:
            late.append(None)
            saved_transaction._running_transactions.clear()
            lowlevel.commit(COPIES["pickle"](context), statuses)
        return real(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(transaction, "complete_instant", overtaken)
    with pytest.raises(InstantNotPending, match="committed already"):
        lowlevel.commit(context, statuses[:1])  # what it would call a stray is committed by now
    assert content(table) == {"a": 1, "b": 1}
    check_invariants(table)


def test_a_conflict_is_seen_elsewhere() -> None:
    """The keys and the timeline of the begin are what the commit elsewhere compares with."""
    table = make(options=MANY)
    table.upsert(rows("a"))
    changed, inserted = (lowlevel.begin_write(table) for _ in range(2))
    statuses = [files_written(changed, rows("a", n=2)), files_written(inserted, rows("new", city="oslo"))]
    table.upsert(rows("a", n=3))
    table.upsert(rows("new", n=3, city="oslo"))
    for context, written in zip((changed, inserted), statuses, strict=True):
        forget(context, dies=True)
        with pytest.raises(CommitConflict):
            lowlevel.commit(COPIES["json"](context), written)
        lowlevel.abort(context)
    assert content(table) == {"a": 3, "new": 3}
    check_no_orphans(table)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_write_whose_first_state_was_undone_is_a_conflict_also_elsewhere(elsewhere: bool) -> None:
    table = make(options=MANY)
    first = table.upsert(rows("a"))
    assert first.instant is not None
    context = lowlevel.begin_write(table)
    statuses = files_written(context, rows("b"))
    table.rollback(first.instant)
    if elsewhere:
        forget(context)
    with pytest.raises(CommitConflict, match="was undone meanwhile"):
        lowlevel.commit(COPIES["json"](context), statuses)
    lowlevel.abort(context)
    assert content(table) == {}
    check_no_orphans(table)


def test_a_commit_elsewhere_sees_no_conflict_with_what_was_there_before() -> None:
    table = make(options=MANY)
    for n in range(3):
        table.upsert(rows("a", "b", n=n))
    context = lowlevel.begin_write(table)
    statuses = files_written(context, rows("a", "b", n=9))
    table.upsert(rows("c", city="oslo"))
    forget(context, dies=True)
    lowlevel.commit(COPIES["json"](context), statuses)
    assert content(table) == {"a": 9, "b": 9, "c": 1}


def test_the_instant_of_another_writer_is_left_alone() -> None:
    table = make()
    context = lowlevel.begin_write(table)
    statuses = files_written(context, rows("a"))
    text = json.loads(context.to_json())
    foreign = lowlevel.WriteContext.from_json(json.dumps({**text, "owner": "somebody-else"}))
    for call in (lowlevel.abort, lambda c: lowlevel.commit(c, []), lambda c: lowlevel.assign(c, rows("b"))):
        with pytest.raises(WriterActive, match="belongs to another writer"):
            call(foreign)
    lowlevel.commit(context, statuses)
    assert content(table) == {"a": 1}


def test_a_heartbeat_ends_when_another_process_has_committed() -> None:
    table = make()
    context = lowlevel.begin_write(table)
    running = find_transaction(context)
    assert running is not None
    heartbeat = running._pending.instant.heartbeat
    assert heartbeat is not None
    forget(context)
    lowlevel.commit(COPIES["json"](context), [])
    heartbeat._beat()
    assert not heartbeat.is_beating
    assert table.client.store.info(f".hoodie/.heartbeat/{context.instant}") is None


COMMITTER = """
import pickle, sys
from lakefmt import lowlevel
context, statuses = pickle.load(open(sys.argv[1], "rb"))
if sys.argv[2] == "abort":
    lowlevel.abort(context)
else:
    print(lowlevel.commit(context, statuses).num_inserts)
"""

BEGINNER = """
import os, pickle, sys
import lakefmt
from lakefmt import lowlevel
sys.path.insert(0, sys.argv[3])
from tests.write.test_transaction import rows
table = lakefmt.open_table(sys.argv[1])
context = lowlevel.begin_write(table, "upsert")
statuses = [lowlevel.write_files(context, a, b) for a, b in lowlevel.assign(context, rows("a", "b"))]
pickle.dump((context, statuses), open(sys.argv[2], "wb"))
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["commit", "abort"])
def test_a_process_is_killed_and_another_one_ends_its_write(tmp_path: Path, ending: str) -> None:
    table = make(str(tmp_path / "t"))
    root, job = Path(__file__).parents[2], tmp_path / "job"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", *command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_FOR_A_CHILD,
        )

    begun = run(BEGINNER, str(tmp_path / "t"), str(job), str(root))
    assert begun.returncode == -signal.SIGKILL, begun.stderr
    (pending,) = table.client.load().timeline.pending
    assert (tmp_path / "t/.hoodie/.heartbeat" / pending.time).exists()
    ended = run(COMMITTER, str(job), ending)
    assert ended.returncode == 0, ended.stderr
    assert content(table) == ({"a": 1, "b": 1} if ending == "commit" else {})
    assert [p.name for p in (tmp_path / "t").rglob("*.parquet") if pending.time in p.name] == (
        [s.base.name for s in table.file_groups() if s.base]
    )
    again = run(COMMITTER, str(job), "commit")
    assert "InstantNotPending" in again.stderr
    check_no_orphans(table)


# --- results and rows that go astray ----------------------------------------------------------------------------------


def one_result_is_lost(table: Table, context: lowlevel.WriteContext, work: Work) -> None:
    statuses = [lowlevel.write_files(context, *each) for each in work]
    lowlevel.commit(context, statuses[1:])


def one_file_is_not_written(table: Table, context: lowlevel.WriteContext, work: Work) -> None:
    lowlevel.commit(context, [lowlevel.write_files(context, *work[0])])


def all_results_are_lost_elsewhere(table: Table, context: lowlevel.WriteContext, work: Work) -> None:
    forget(context, dies=True)
    lowlevel.commit(COPIES["json"](context), [])


def rows_of_two_files_are_exchanged(table: Table, context: lowlevel.WriteContext, work: Work) -> None:
    (one, some), (other, more) = work
    lowlevel.commit(context, [lowlevel.write_files(context, one, more), lowlevel.write_files(context, other, some)])


def a_second_attempt_has_fewer_rows(table: Table, context: lowlevel.WriteContext, work: Work) -> None:
    (one, some), (other, more) = work
    statuses = [lowlevel.write_files(context, one, some), lowlevel.write_files(context, other, more)]
    lowlevel.commit(context, [*statuses, lowlevel.write_files(context, one, [some[0].slice(1)])])


def more_rows_are_assigned(table: Table, context: lowlevel.WriteContext, work: Work) -> None:
    """They touch the same file, of which a commit has one version, or bring the same new key."""
    statuses = [lowlevel.write_files(context, *each) for each in work]
    lowlevel.commit(context, statuses + files_written(context, rows("b", "new", n=3)))


def more_rows_are_assigned_elsewhere(table: Table, context: lowlevel.WriteContext, work: Work) -> None:
    forget(context)
    more_rows_are_assigned(table, COPIES["json"](context), work)


def work_of_another_write_is_written(table: Table, context: lowlevel.WriteContext, work: Work) -> None:
    other = lowlevel.begin_write(table, options=MANY)
    try:
        lowlevel.write_files(other, *work[0])
    finally:
        lowlevel.abort(other)


def a_result_of_another_table(table: Table, context: lowlevel.WriteContext, work: Work) -> None:
    elsewhere = lowlevel.begin_write(make())
    strange = files_written(elsewhere, rows("strange"))
    lowlevel.commit(context, [*(lowlevel.write_files(context, *each) for each in work), *strange])


ASTRAY = (
    one_result_is_lost,
    one_file_is_not_written,
    all_results_are_lost_elsewhere,
    rows_of_two_files_are_exchanged,
    a_second_attempt_has_fewer_rows,
    more_rows_are_assigned,
    more_rows_are_assigned_elsewhere,
    work_of_another_write_is_written,
    a_result_of_another_table,
)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("operation", ["upsert", "insert", "delete"])
@pytest.mark.parametrize("astray", ASTRAY)
def test_what_goes_astray_between_processes_is_refused(
    astray: Callable[[Table, lowlevel.WriteContext, Work], None], operation: str, table_type: str
) -> None:
    """A commit has the rows that were assigned, all of them once, or is none."""
    table = make(table_type=table_type, options=MANY)
    stored = pa.concat_tables([rows("a", "b", "c"), rows("o", city="oslo")])
    table.upsert(stored)
    context = lowlevel.begin_write(table, operation)
    given = pa.concat_tables([rows("a", n=2), rows("o", n=2, city="oslo")])
    given = pa.concat_tables([rows("new", "d", n=2), rows("p", n=2, city="oslo")]) if operation == "insert" else given
    work = lowlevel.assign(context, given)
    assert len(work) == 2
    with pytest.raises((StateError, InvalidInputError)):
        astray(table, context, work)
    assert content(table) == {"a": 1, "b": 1, "c": 1, "o": 1}
    lowlevel.commit(context, [lowlevel.write_files(context, *each) for _ in range(2) for each in reversed(work)])
    new = {row["id"]: row["n"] for row in given.to_pylist()}
    expected = {"b": 1, "c": 1} if operation == "delete" else {"a": 1, "b": 1, "c": 1, "o": 1} | new
    assert content(table) == expected
    check_invariants(table)
    check_no_orphans(table)


# --- hostile bytes ----------------------------------------------------------------------------------------------------


def pending_elsewhere() -> tuple[Table, lowlevel.WriteContext, list[lowlevel.WriteStatus]]:
    table = make()
    context = lowlevel.begin_write(table)
    statuses = files_written(context, rows("a", "b"))
    forget(context)
    return table, context, statuses


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b'{"version": 1}', b"\xff\xfe", b"[" * 100_000, b'{"version": 2}'],
    ids=range(8),
)
def test_a_damaged_saved_write_is_an_error_and_can_be_aborted(data: bytes) -> None:
    table, context, statuses = pending_elsewhere()
    table.client.store.put(saved_write_name(context.instant), data)
    with pytest.raises(CorruptFile, match="abort the write"):
        lowlevel.commit(context, statuses)
    lowlevel.abort(context)
    assert table.client.load().timeline.pending == ()
    check_no_orphans(table)


@pytest.mark.parametrize("field", ["owner", "began", "timeline", "keys", "keys_in", "read", "covers", "null_elements"])
@pytest.mark.parametrize("value", [7, "x", [7], [[7]], {"a": 1}, [None], [["a"]], ["../x"], 1e999])
def test_a_wrong_field_is_an_error_or_harmless(field: str, value: object) -> None:
    table, context, statuses = pending_elsewhere()
    store = table.client.store
    body = json.loads(store.read(saved_write_name(context.instant)))
    store.put(saved_write_name(context.instant), json.dumps({**body, field: value}).encode())
    try:
        lowlevel.commit(context, statuses)
    except LakefmtError:
        lowlevel.abort(context)
    check_invariants(table)
    check_no_orphans(table)


@pytest.mark.slow
@given(st.data())
def test_no_byte_of_the_saved_keys_is_believed(data: st.DataObject) -> None:
    table, context, statuses = pending_elsewhere()
    store, name = table.client.store, saved_keys_name(context.instant)
    good = bytearray(store.read(name))
    at = data.draw(st.integers(0, len(good) - 1))
    good[at] ^= data.draw(st.integers(1, 255))
    store.put(name, bytes(good))
    with pytest.raises(CorruptFile):
        lowlevel.commit(context, statuses)
    lowlevel.abort(context)


@pytest.mark.slow
@given(st.data())
def test_keys_with_a_right_checksum_and_wrong_bytes(data: st.DataObject) -> None:
    """Whoever can write into the table can also make the checksum fit: then Arrow's own checks refuse."""
    import hashlib

    table, context, statuses = pending_elsewhere()
    store, name = table.client.store, saved_keys_name(context.instant)
    good = bytearray(store.read(name))
    for at in data.draw(st.lists(st.integers(0, len(good) - 1), min_size=1, max_size=4)):
        good[at] ^= data.draw(st.integers(1, 255))
    store.put(name, bytes(good))
    body = json.loads(store.read(saved_write_name(context.instant)))
    body["keys"][0]["sha256"] = hashlib.sha256(good).hexdigest()
    store.put(saved_write_name(context.instant), json.dumps(body).encode())
    try:
        lowlevel.commit(context, statuses)
    except LakefmtError:
        lowlevel.abort(context)
    check_no_orphans(table)


def test_missing_keys_and_a_missing_saved_write_are_errors() -> None:
    table, context, statuses = pending_elsewhere()
    table.client.store.delete([saved_keys_name(context.instant)])
    with pytest.raises(CorruptFile):
        lowlevel.commit(context, statuses)
    table.client.store.delete([saved_write_name(context.instant)])
    with pytest.raises(CorruptFile, match="is missing"):
        lowlevel.commit(context, statuses)
    lowlevel.abort(context)


# --- contexts as JSON -------------------------------------------------------------------------------------------------


def test_a_context_survives_json_with_every_option() -> None:
    options: dict[str, object] = {**MANY, "lakefmt.write.threads": 1, "hoodie.parquet.bloom.filter.enabled": False}
    context = lowlevel.begin_write(make(), "insert", options, commit_metadata={"é": "\U0001f600"}, drop_duplicates=True)
    assert COPIES["json"](context) == context
    lowlevel.abort(context)


def test_no_secret_is_saved() -> None:
    table = make()
    secret: dict[str, object] = {"hoodie.write.commit.callback.http.api.key": "s3cret"}
    context = lowlevel.begin_write(table, "upsert", secret)
    stored = table.client.store.read(saved_write_name(context.instant)).decode()
    assert "s3cret" not in context.to_json() + stored + repr(context)
    lowlevel.abort(context)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"version": 1}', '{"version": 2}', b"\xff", 7, None, "[" * 99_999]
)
def test_what_is_no_context_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        lowlevel.WriteContext.from_json(text)


@pytest.mark.slow
@given(st.data())
def test_a_context_with_a_wrong_field_is_refused_or_a_context(data: st.DataObject) -> None:
    body = json.loads(CONTEXT.to_json())
    name = data.draw(st.sampled_from(sorted(body)))
    values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=3)
    try:
        taken = lowlevel.WriteContext.from_json(json.dumps({**body, name: data.draw(values)}))
    except InvalidInputError:
        return
    assert taken.instant == CONTEXT.instant
    assert lowlevel.WriteContext.from_json(taken.to_json()) == taken


CONTEXT = lowlevel.WriteContext(
    url="/t",
    owner="o",
    instant=lakefmt._core.values.InstantTime("20260101000000000"),
    action="commit",
    operation=lakefmt._core.values.WriteOperation.UPSERT,
    schema_text="{}",
    file_schema_text="{}",
    properties={"hoodie.table.name": "t"},
    options={"a": 1, "b": None},
)


def test_the_store_of_these_tests_is_one_of_this_process() -> None:
    assert isinstance(make().client.store, MemoryStore)
