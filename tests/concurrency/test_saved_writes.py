"""Processes that end one write at the same time: one of them does, the others are told, and no row is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.markers import SAVED_WRITES
from lakefmt._core.write import transaction
from lakefmt.errors import CommitConflict, InstantNotPending, WriterActive
from lakefmt.testing.invariants import check_invariants, check_no_orphans
from tests.concurrency.green_threads import MANY, take_turns

NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
#: A heartbeat that was not renewed at once is dead: every process takes the write over from the one before.
HASTY: dict[str, object] = {**MANY, "hoodie.client.heartbeat.tolerable.misses": 0}
SCRIPTS = ["".join(script) for script in itertools.product("AB", repeat=5)]


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call is made by a process of its own: none finds the transaction of another one."""
    monkeypatch.setattr(transaction, "find_transaction", lambda context: None)


def rows(*ids: str, n: int = 1) -> pa.Table:
    return pa.table({"id": list(ids), "n": [n] * len(ids)}, schema=SCHEMA)


def pending(options: dict[str, object]) -> tuple[MemoryStore, lowlevel.WriteContext, list[lowlevel.WriteStatus]]:
    store = MemoryStore(f"ended-{next(NUMBERS)}")
    table = lakefmt.create_table(store.url, schema=SCHEMA, record_key="id", options=options)
    table.upsert(rows("a", "b"))
    context = lowlevel.begin_write(table)
    return (
        store,
        context,
        [lowlevel.write_files(context, a, b) for a, b in lowlevel.assign(context, rows("b", "c", n=2))],
    )


@pytest.mark.in_turn(4)
@pytest.mark.parametrize("options", [MANY, HASTY], ids=["alive", "dead"])
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("ending", ["commit", "abort", "upsert"])
def test_one_of_two_processes_ends_a_write(
    ending: str, script: str, options: dict[str, object], processes: None
) -> None:
    store, context, statuses = pending(options)

    def commit(table: Table) -> Any:
        return transaction.resume_transaction(table.client, context).commit(statuses)

    others: dict[str, Callable[[Table], Any]] = {
        "commit": commit,
        "abort": lambda table: transaction.abort_context(table.client, context),
        "upsert": lambda table: table.upsert(rows("z")),
    }
    first, second = take_turns(store, [commit, others[ending]], script, options)
    for writer in (first, second):
        # The rows of an upsert go to the small file that the write changes.
        expected = InstantNotPending | WriterActive | CommitConflict if ending == "upsert" else InstantNotPending
        assert writer.error is None or isinstance(writer.error, expected), script
    committed = first.error is None or (ending == "commit" and second.error is None)
    assert first.error is None or second.error is None, "one of them ends it"
    if ending == "commit":
        assert first.error is not None or second.error is not None, "only one of them"
    table = Table(TableClient(store, MANY))
    read = table.read()
    content = {"a": 1, "b": 2, "c": 2} if committed else {"a": 1, "b": 1}
    if ending == "upsert" and second.error is None:
        content["z"] = 1
    assert dict(zip(read["id"].to_pylist(), read["n"].to_pylist(), strict=True)) == content, script
    table.upsert(rows("y"), options={"hoodie.client.heartbeat.tolerable.misses": 0})
    assert not list(store.list(SAVED_WRITES))
    check_invariants(table)
    check_no_orphans(table)
