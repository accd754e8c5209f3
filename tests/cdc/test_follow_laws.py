"""Tables that follow a database are equal to it, wherever the follower, the connection or the store fails."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lakefmt._core.cdc.sink as sinks
from lakefmt._core.cdc.events import SourceName
from lakefmt._core.cdc.follow import Follower
from lakefmt._core.cdc.options import CdcOptions
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.table import Table, create_table, open_table
from lakefmt.errors import LakefmtError, SchemaMismatch
from lakefmt.testing.stores import Fault, FaultMode, FaultStore, SimulatedCrash
from lakefmt.testing.virtual_time import Process, VirtualTime
from tests.cdc.scripted_source import ITEMS, ORDERS, Database, ScriptedSource
from tests.example_counts import examples
from tests.producers.stream.stream_kit import Clock, kill

NUMBERS = itertools.count()
#: A name that no column has here: its table stops, until it is renamed.
ODD = "größe"
KEYS = st.integers(0, 4)
NAMES = st.sampled_from([ORDERS, ITEMS])
STEP = st.one_of(
    st.tuples(st.just("put"), NAMES, KEYS, st.integers(0, 99)),
    st.tuples(st.just("put"), NAMES, KEYS, st.integers(0, 99)),
    st.tuples(st.just("delete"), NAMES, KEYS),
    st.tuples(st.just("move"), NAMES, KEYS, KEYS),
    st.tuples(st.just("move"), NAMES, KEYS, KEYS),
    st.tuples(st.just("alter"), NAMES, KEYS),
)
TRANSACTION = st.lists(STEP, min_size=1, max_size=8)
#: A run of the follower: it ends well, loses its connection after some events, or dies at an effect of the store.
RUN = st.one_of(
    st.just(("well", 0)),
    st.tuples(st.just("lost"), st.integers(0, 12)),
    st.tuples(st.just("dies"), st.integers(0, 12)),
    st.tuples(st.just("store"), st.integers(1, 60)),
)
STORY = st.lists(st.one_of(TRANSACTION, TRANSACTION, st.sampled_from(["alter", "more"]), RUN), min_size=1, max_size=10)


@pytest.fixture(autouse=True)
def _threads_die_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream writes in a thread of its own, which dies with its store."""
    told = threading.excepthook
    quiet = lambda what: None if what.exc_type is SimulatedCrash else told(what)  # noqa: E731
    monkeypatch.setattr(threading, "excepthook", quiet)


class Faults:
    """The stores of all tables of a run: the effect of that number dies, and every effect after it."""

    def __init__(self, number: int | None) -> None:
        self.left, self.dead = number, False

    def plan(self, effect: object) -> Fault | None:
        if self.left is None:
            return None
        self.left -= 1
        if self.left > 0:
            return None
        self.dead = True
        return Fault(FaultMode.BEFORE if self.left else FaultMode.AFTER, crash=True)


def run(
    database: Database,
    base: str,
    options: CdcOptions,
    what: tuple[str, int],
    time: VirtualTime | None = None,
    tables: Mapping[str, object] | None = None,
) -> None:
    """Run the follower once, with the fault of a story; a process that dies closes nothing."""
    kind, number = what
    faults = Faults(number if kind == "store" else None)

    def over(table: Table) -> Table:
        client = table.client
        given = {**client.options, "lakefmt.durability": "none", "lakefmt.write.threads": 1}
        faulty = TableClient(FaultStore(client.store, faults.plan), given)
        process = Process(time or VirtualTime())
        faulty.time_source, faulty.clock = process, Clock(process)  # type: ignore[misc]
        return Table(faulty)

    lost_after = number if kind in ("lost", "dies") else None
    source = ScriptedSource(database, lost_after=lost_after, batch_rows=database.batch_rows, forgets=True)
    if kind == "dies":
        source.dies = SimulatedCrash
    follower = Follower(lambda: source, base, tables or {}, options)
    died = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sinks, "open_table", lambda *a, **k: over(open_table(*a, **k)))
        patch.setattr(sinks, "create_table", lambda *a, **k: over(create_table(*a, **k)))
        closes, died_closing = follower._close_sinks, list[bool]()

        def close(*, discard: bool) -> None:
            streams = [sink.stream for sink in follower._sinks.values() if sink.is_open]
            try:
                if not discard or (kind == "lost" and not faults.dead):
                    closes(discard=discard)
                    return
            except SimulatedCrash:
                died_closing.append(True)
            for stream in streams:
                kill(stream)
            follower._sinks = {}
            if died_closing:
                raise SimulatedCrash("the process died while it closed its tables")

        patch.setattr(follower, "_close_sinks", close)
        stops = [SchemaMismatch] if ODD in database.columns[ITEMS].names and not tables else []
        with suppress(SimulatedCrash, *([LakefmtError] if kind != "well" else stops)):
            follower.run(until_now=True)
            died = False
    died = died and not (kind == "well" and stops)
    assert died or not faults.dead
    if time is not None:
        time.now += 3600.0  # what the run has left is dead for sure


def rows_here(base: str, name: SourceName, **more: Any) -> list[dict[str, Any]]:
    return sorted(open_table(f"{base}/{name.schema}/{name.table}").read(**more).to_pylist(), key=lambda row: row["id"])


def check_mirror(database: Database, base: str, *, stopped: bool = True) -> None:
    for name, rows in database.tables.items():
        columns = database.columns[name].names
        if ODD in columns and stopped:
            continue
        expected = [{**dict.fromkeys(columns), **rows[key]} for key in sorted(rows)]
        named = [{"odd" if column == ODD else column: value for column, value in row.items()} for row in expected]
        assert rows_here(base, name) == named, name


def check_log(database: Database, base: str) -> None:
    """Every image of every row is there once, in the order of the source for each key."""
    for name, history in database.history.items():
        table = open_table(f"{base}/{name.schema}/{name.table}").read()
        found = sorted(table.to_pylist(), key=lambda row: (row["_position"], row["id"]))
        by_key = dict[int, list[tuple[str, Any]]]()
        for row in found:
            by_key.setdefault(row["id"], []).append((row["_operation"], row["v"]))
        expected = dict[int, list[tuple[str, Any]]]()
        for kind, row in history:
            expected.setdefault(row["id"], []).append((kind, row["v"]))
        assert by_key == expected, name


def play(
    story: list[Any],
    options: CdcOptions,
    check: Any,
    *,
    sends_part: bool = False,
    first: int = 0,
    batch_rows: int = 100,
    tables: Mapping[str, object] | None = None,
    fills_columns: bool = False,
) -> None:
    time = VirtualTime()
    database = Database(sends_part=sends_part, batch_rows=batch_rows, fills_columns=fills_columns)
    base = f"memory://cdc-{next(NUMBERS)}"
    for key in range(first):
        database.commit([("put", ORDERS, key, key)])
    if options.logs or fills_columns:
        run(database, base, options, ("well", 0), time)  # what was there before the log begins has no history
    for step in story:
        if isinstance(step, list):
            database.commit(step)
        elif step == "alter":
            column = f"c{len(database.columns[ORDERS])}"
            database.add_column(ORDERS, column, None if len(story) % 2 else f"default of {column}")
        elif step == "odd":
            if ODD not in database.columns[ITEMS].names:
                database.add_column(ITEMS, ODD)
        elif step == "more":
            database.commit([("put", ITEMS, key, 7) for key in range(5)])
        else:
            run(database, base, options, step, time, tables)
    run(database, base, options, ("well", 0), time, tables)
    check(database, base)
    if ODD in database.columns[ITEMS].names:
        run(database, base, options, ("well", 0), time, {"shop.items": {"rename": {ODD: "odd"}}})
        check(database, base, stopped=False)


QUICK: dict[str, Any] = {"commit_interval": 0, "reconnect_attempts": 0, "settings": {"lakefmt.durability": "none"}}


@pytest.mark.slow
@pytest.mark.in_turn(2)
@pytest.mark.parametrize("table_type", ["mor", "cow"])
@pytest.mark.parametrize("sends_part", [False, True])
@settings(max_examples=examples(100), derandomize=True, deadline=None)
@given(story=STORY, first=st.integers(0, 5), batch_rows=st.sampled_from([1, 2, 100]))
def test_a_mirror_is_equal_to_its_source(
    table_type: str, sends_part: bool, story: list[Any], first: int, batch_rows: int
) -> None:
    options = CdcOptions(**QUICK, table_type=table_type)
    play(story, options, check_mirror, sends_part=sends_part, first=first, batch_rows=batch_rows)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*were dropped:RuntimeWarning")
@settings(max_examples=examples(100), derandomize=True, deadline=None)
@given(
    before=STORY, after=STORY, first=st.integers(0, 5), batch_rows=st.sampled_from([1, 100]), sends_part=st.booleans()
)
def test_a_table_that_stops_keeps_no_other_from_its_source_and_is_equal_when_it_is_mended(
    before: list[Any], after: list[Any], first: int, batch_rows: int, sends_part: bool
) -> None:
    story = [*before, "odd", *after]
    play(story, CdcOptions(**QUICK), check_mirror, sends_part=sends_part, first=first, batch_rows=batch_rows)


PLACES = st.sampled_from([None, 0, 1])
PLACED_STEP = st.one_of(
    st.tuples(st.just("put"), st.just(ORDERS), KEYS, PLACES),
    st.tuples(st.just("delete"), st.just(ORDERS), KEYS),
    st.tuples(st.just("move"), st.just(ORDERS), KEYS, KEYS),
    st.tuples(st.just("alter"), st.just(ORDERS), KEYS),
)
PLACED_STORY = st.lists(
    st.one_of(st.lists(PLACED_STEP, min_size=1, max_size=8), st.just("alter"), RUN), min_size=1, max_size=8
)


@pytest.mark.slow
@pytest.mark.in_turn(2)
@pytest.mark.parametrize("how", [{}, {"delete_mode": "soft"}, {"index": "global_bloom"}, {"table_type": "cow"}])
@settings(max_examples=examples(30), derandomize=True, deadline=None)
@given(story=PLACED_STORY, sends_part=st.booleans(), batch_rows=st.sampled_from([1, 100]))
def test_rows_without_a_partition_value_are_mirrored_as_all_others(
    how: dict[str, Any], story: list[Any], sends_part: bool, batch_rows: int
) -> None:
    def check(database: Database, base: str) -> None:
        here = [row for row in rows_here(base, ORDERS) if row.pop("_deleted_at", None) is None]
        names = database.columns[ORDERS].names
        rows = database.tables[ORDERS]
        assert here == [{**dict.fromkeys(names), **rows[key]} for key in sorted(rows)]

    options = CdcOptions(**QUICK, **how)
    tables = {"shop.orders": {"partition_by": "v"}}
    play(story, options, check, sends_part=sends_part, batch_rows=batch_rows, tables=tables)


@pytest.mark.slow
@settings(max_examples=examples(100), derandomize=True, deadline=None)
@given(story=STORY)
def test_a_log_has_every_change_once_and_in_order(story: list[Any]) -> None:
    play(story, CdcOptions(**QUICK, mode="append_log"), check_log)


NAMED_STEP = st.one_of(
    st.tuples(st.just("put"), NAMES, KEYS, st.integers(0, 99)),
    st.tuples(st.just("put"), st.just(ORDERS), KEYS, st.integers(0, 99)),
    st.tuples(st.just("delete"), NAMES, KEYS),
    st.tuples(st.just("move"), NAMES, KEYS, KEYS),
    st.tuples(st.sampled_from(["alter", "rename", "rename", "drop"]), st.just(ORDERS), KEYS),
)
NAMED_STORY = st.lists(
    st.one_of(st.lists(NAMED_STEP, min_size=1, max_size=6), st.lists(NAMED_STEP, min_size=1, max_size=6), RUN),
    min_size=3,
    max_size=10,
)
#: A column that is renamed behind rows that are not committed when the process dies.
RENAMED: list[Any] = [
    [("alter", ORDERS, 0), ("put", ORDERS, 0, 1)],
    ("well", 0),
    [("put", ORDERS, 1, 2)],
    [("rename", ORDERS, 0), ("put", ORDERS, 2, 3)],
    ("dies", 5),
]


def check_values(database: Database, base: str) -> None:
    """The log has every image once, with its operation and all its values; columns that were dropped may have more."""
    for name, history in database.history.items():
        columns = database.columns[name].names
        table = open_table(f"{base}/{name.schema}/{name.table}").read()
        found = sorted(table.to_pylist(), key=lambda row: row["_position"])
        here, there = dict[int, list[Any]](), dict[int, list[Any]]()
        for row in found:
            here.setdefault(row["id"], []).append((row["_operation"], *map(row.get, columns)))
        for kind, row in history:
            there.setdefault(row["id"], []).append((kind, *map(row.get, columns)))
        assert here == there, name


def check_columns(database: Database, base: str) -> None:
    for name, rows in database.tables.items():
        columns = database.columns[name].names
        found = rows_here(base, name, columns=columns)
        assert found == [{**dict.fromkeys(columns), **rows[key]} for key in sorted(rows)], name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*were dropped:RuntimeWarning")
@pytest.mark.parametrize("mode", ["append_log", "upsert"])
@settings(max_examples=examples(60), deadline=None)
@given(
    story=NAMED_STORY,
    batch_rows=st.sampled_from([1, 2, 100]),
    dropped=st.sampled_from(["keep", "drop"]),
    interval=st.sampled_from([0, 10**6]),
    buffer_rows=st.sampled_from([1, 3, 10_000]),
)
@example(RENAMED, 100, "keep", 10**6, 10_000)
def test_columns_that_change_behind_rows_that_are_not_committed_keep_their_values(
    mode: str, story: list[Any], batch_rows: int, dropped: str, interval: int, buffer_rows: int
) -> None:
    how = {**QUICK, "commit_interval": interval, "buffer_rows": buffer_rows, "on_column_dropped": dropped}
    check = check_values if mode == "append_log" else check_columns
    play(story, CdcOptions(**how, mode=mode), check, batch_rows=batch_rows, fills_columns=True)
