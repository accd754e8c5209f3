"""Rows of acknowledged commits are there once, those of failed ones never, wherever the server dies and whoever else writes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt._core.loads.commit import LoadTable
from lakefmt._core.loads.journal import Journal, Staged
from lakefmt._core.loads.protocol import LoadOptions
from lakefmt.testing.stores import FaultMode, SimulatedCrash
from tests.example_counts import count_in_turn, examples
from tests.loads.loads_kit import KEYED, PLAIN, Base, Client, Faults

OPTIONS = LoadOptions(durable=False, wait_seconds=0)
LABELS = st.sampled_from(["one", "two", "three"])
#: Names of tables: with keys, and without.
TABLES = st.sampled_from(["t", "a"])
STEP = st.one_of(
    st.tuples(st.just("begin"), LABELS, TABLES),
    st.tuples(st.just("load"), LABELS, st.integers(1, 3)),
    st.tuples(st.just("load"), LABELS, st.integers(1, 3)),
    st.tuples(st.just("prepare"), LABELS),
    st.tuples(st.just("commit"), LABELS),
    st.tuples(st.just("commit"), LABELS),
    st.tuples(st.just("rollback"), LABELS),
    st.tuples(st.just("together"), TABLES),
    st.tuples(st.just("plain"), TABLES, st.integers(1, 3)),
    st.tuples(st.just("foreign"), TABLES),
    st.tuples(st.just("service"), TABLES),
    st.tuples(
        st.just("dies"), st.integers(1, 40), st.sampled_from([FaultMode.BEFORE, FaultMode.AFTER, FaultMode.TORN])
    ),
    st.tuples(
        st.just("fails"),
        st.integers(0, 60),
        st.integers(1, 30),
        st.sampled_from([FaultMode.BEFORE, FaultMode.AFTER, FaultMode.ANSWER_LOST]),
    ),
    st.tuples(
        st.just("again"),
    ),
)


def commits_together(client: Client, table: str, labels: Sequence[str]) -> dict[str, dict[str, Any] | BaseException]:
    """The replies to commits that are asked at the same time, in the order of their labels; or how the server died."""
    replies: dict[str, dict[str, Any] | BaseException] = {}
    loaded = client.service.transactions.table("db", table)

    def ask(label: str) -> None:
        try:
            replies[label] = client.transaction("commit", label)
        except SimulatedCrash as death:
            replies[label] = death

    threads = [threading.Thread(target=ask, args=(label,)) for label in labels]
    with loaded.writing:
        for number, thread in enumerate(threads, 1):
            thread.start()
            while thread.is_alive() and len(loaded.waiting) < number:
                thread.join(0.001)
    for thread in threads:
        thread.join()
    return replies


class Story:
    """Clients, a server that dies, and other writers; beside them what has to be true."""

    def __init__(self) -> None:
        self.base = Base(t={"schema": KEYED, "record_key": "id"}, a={"schema": PLAIN, "kind": "append"})
        self.faults = Faults()
        self.client = Client(self.base.service(OPTIONS, self.faults))
        self.numbers = itertools.count(1)
        self.rows: dict[str, list[int]] = {}
        self.tables: dict[str, str] = {}
        #: Labels whose commit, prepare or rollback was acknowledged.
        self.prepared: set[str] = set()
        self.there: dict[str, list[int]] = {"t": [], "a": []}

    def play(self, step: tuple[Any, ...]) -> None:
        """Do a step; a server that dies is started again, and its client looks what became of its request."""
        try:
            getattr(self, step[0])(*step[1:])
        except SimulatedCrash:
            self.again(asked=step)
        if self.faults.hit:
            self.settle(step)

    def body(self, table: str, count: int) -> tuple[bytes, list[int]]:
        """Rows that never come twice."""
        numbers = [next(self.numbers) for _ in range(count)]
        lines = [f"{n},x,1\n" if table == "t" else f"{n}\n" for n in numbers]
        return "".join(lines).encode(), numbers

    def begin(self, label: str, table: str) -> None:
        if self.client.transaction("begin", label, table=table)["Status"] == "OK":
            self.rows[label], self.tables[label] = [], table
            self.prepared.discard(label)

    def load(self, label: str, count: int) -> None:
        if label not in self.tables:
            return
        body, numbers = self.body(self.tables[label], count)
        reply = self.client.transaction("load", label, body, table=self.tables[label], column_separator=",")
        if reply["Status"] == "OK":
            assert label not in self.prepared
            self.rows[label] += numbers

    def prepare(self, label: str) -> None:
        reply = self.client.transaction("prepare", label)
        if reply["Status"] == "OK":
            self.prepared.add(label)
        elif self.faults.hit:
            pass  # its client asks for the state
        elif label in self.prepared:
            assert self.client.state(label) == "VISIBLE", reply
        elif label in self.rows and not self.rows[label]:
            self.rows.pop(label)  # a transaction without rows is rolled back

    def together(self, table: str) -> None:
        """What is prepared of a table is committed at once: some threads ask while nothing can be written."""
        labels = sorted(label for label in self.prepared if self.tables[label] == table)
        replies = commits_together(self.client, table, labels)
        crashes = [each for each in replies.values() if isinstance(each, SimulatedCrash)]
        if crashes:
            self.again(asked=("commit", *labels))
            return
        for label, reply in replies.items():
            assert isinstance(reply, dict)
            if reply["Status"] == "OK":
                self._is_there(label)
            else:
                assert self.faults.hit, reply

    def commit(self, label: str) -> None:
        reply = self.client.transaction("commit", label)
        if reply["Status"] == "OK":
            self._is_there(label)
        else:
            assert label not in self.prepared or self.faults.hit, reply

    def _is_there(self, label: str) -> None:
        if label in self.rows:
            self.there[self.tables[label]] += self.rows.pop(label)
        self.prepared.discard(label)

    def rollback(self, label: str) -> None:
        reply = self.client.transaction("rollback", label)
        if reply["Status"] == "OK":
            self.rows.pop(label, None)
            self.prepared.discard(label)

    def plain(self, table: str, count: int) -> None:
        body, numbers = self.body(table, count)
        label = f"plain-{numbers[0]}"
        self.rows[label], self.tables[label] = numbers, table
        reply = self.client.ask("PUT", f"/api/db/{table}/_stream_load", body, label=label, column_separator=",")
        if reply["Status"] == "Success":
            self._is_there(label)

    def foreign(self, table: str) -> None:
        """Another program writes, as one that believes that it is alone."""
        number = next(self.numbers)
        made = KEYED if table == "t" else PLAIN
        row = made.empty_table().from_pylist([{"id": number, "n": number}], schema=made)
        writer = self.base.table(table)
        (writer.upsert if table == "t" else writer.append)(row)
        self.there[table].append(number)

    def service(self, table: str) -> None:
        """Table services of another program."""
        self.base.table(table).clean(options={"hoodie.clean.commits.retained": 1})
        self.base.table(table).archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3})

    def dies(self, number: int, mode: FaultMode) -> None:
        self.faults.left, self.faults.mode = number, mode

    def fails(self, quiet: int, failing: int, mode: FaultMode) -> None:
        """Some accesses of the store fail, and the server goes on."""
        self.faults.quiet, self.faults.failing, self.faults.mode = quiet, failing, mode

    def settle(self, asked: tuple[Any, ...]) -> None:
        """The store answers again: a client whose request failed looks what became of it."""
        self.faults.heal()
        self.client.service.sweep()
        self._look(asked)

    def again(self, asked: tuple[Any, ...] = ()) -> None:
        """Start the server again, long enough after it died; a request that was not answered is looked at."""
        self.base.clock.pass_seconds(60)
        self.faults = Faults()
        self.client = Client(self.base.service(OPTIONS, self.faults))
        self._look(asked)
        assert not self._open(), "an open transaction has outlived its server"

    def _open(self) -> list[str]:
        return [label for label in self.rows if self.client.state(label) == "PREPARE"]

    def _look(self, asked: tuple[Any, ...]) -> None:
        unanswered = asked[1:] if asked and asked[0] in ("begin", "load", "prepare", "commit", "rollback") else ()
        if asked and asked[0] == "plain":
            unanswered = tuple(self.rows)[-1:]
        for label in list(self.rows):
            state = self.client.state(label)
            if state == "VISIBLE":
                assert label in unanswered or label in self.prepared, "rows of a commit that nobody asked for"
                self._is_there(label)
            elif state == "PREPARED":
                assert label in unanswered or label in self.prepared
                self.prepared.add(label)
            elif state == "PREPARE":
                assert label not in self.prepared
            else:
                assert label in unanswered or label not in self.prepared, f"what was prepared is {state}"
                self.rows.pop(label)
                self.prepared.discard(label)

    def check(self) -> None:
        """In the end what is prepared is committed, and everything that has to be there is, once."""
        self.again()
        for label in sorted(self.prepared):
            reply = self.client.transaction("commit", label)
            assert reply["Status"] == "OK", reply
            self._is_there(label)
        assert sorted(row["id"] for row in self.base.table("t").read().to_pylist()) == sorted(self.there["t"])
        assert sorted(row["n"] for row in self.base.table("a").read().to_pylist()) == sorted(self.there["a"])


@pytest.mark.slow
@settings(max_examples=examples(150), derandomize=True, deadline=None)
@given(st.lists(STEP, min_size=2, max_size=14))
def test_rows_are_there_once_wherever_the_server_dies(steps: list[tuple[Any, ...]]) -> None:
    story = Story()
    for step in steps:
        story.play(step)
    story.check()


def _whole(story: Story) -> None:
    for step in (("begin", "one", "t"), ("load", "one", 2), ("prepare", "one"), ("foreign", "t"), ("commit", "one")):
        story.play(step)
    for step in (("plain", "a", 2), ("begin", "two", "a"), ("load", "two", 1), ("commit", "two"), ("rollback", "two")):
        story.play(step)


def _effects() -> int:
    story = Story()
    story.faults.count = 0
    _whole(story)
    return story.faults.count


def _joined_commits(story: Story) -> None:
    for label, table in (("one", "a"), ("two", "a"), ("three", "a")):
        for step in (("begin", label, table), ("load", label, 2), ("prepare", label)):
            story.play(step)
    for step in (("together", "a"), ("commit", "two"), ("plain", "a", 1)):
        story.play(step)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [FaultMode.BEFORE, FaultMode.AFTER, FaultMode.TORN])
def test_death_at_every_effect_of_a_joined_commit(mode: FaultMode) -> None:
    story = Story()
    _joined_commits(story)
    # One instant has all three; before, each had its own.
    assert len(story.base.table("a").timeline) == 2
    for number in range(1, story.faults.count + 1):
        story = Story()
        story.dies(number, mode)
        _joined_commits(story)
        story.check()


@pytest.mark.slow
@pytest.mark.parametrize("mode", [FaultMode.BEFORE, FaultMode.AFTER, FaultMode.TORN])
def test_death_at_every_effect(mode: FaultMode) -> None:
    for number in range(1, _effects() + 1):
        story = Story()
        story.dies(number, mode)
        _whole(story)
        story.check()


def _unanswered(first: int) -> Story:
    """A commit of which nothing is answered from an access on."""
    story = Story()
    for step in (("begin", "one", "a"), ("load", "one", 2), ("prepare", "one")):
        story.play(step)
    story.fails(first, 10_000, FaultMode.ANSWER_LOST)
    story.client.transaction("commit", "one")
    assert story.faults.hit, "the commit never landed without an answer"
    story.faults.heal()
    return story


@pytest.mark.slow
def test_a_commit_without_an_answer_is_found_whatever_fails_while_it_is_looked_for() -> None:
    lands = next(number for number in itertools.count() if _unanswered(number).base.table("a").read().num_rows == 2)
    for second in itertools.count():
        story = _unanswered(lands)
        story.fails(second, 1, FaultMode.BEFORE)
        story.client.transaction("commit", "one")
        failed = story.faults.hit
        story.faults.heal()
        story.commit("one")
        story.check()
        if not failed:
            break
    assert second > 3


def _with_rollbacks(story: Story) -> None:
    """Loads of several parts, and clients that give up whatever they are told."""
    for step in (("begin", "one", "a"), ("load", "one", 1), ("load", "one", 3), ("load", "one", 2), ("prepare", "one")):
        story.play(step)
    for step in (("commit", "one"), ("rollback", "one"), ("plain", "a", 2), ("begin", "one", "a"), ("load", "one", 2)):
        story.play(step)
    for step in (("commit", "one"), ("service", "a"), ("plain", "t", 1), ("rollback", "one")):
        story.play(step)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failing", "mode"), [(1, FaultMode.BEFORE), (1, FaultMode.ANSWER_LOST), (1_000, FaultMode.ANSWER_LOST)]
)
def test_a_store_that_fails_at_every_access(failing: int, mode: FaultMode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server lives on, and so do its transactions; what it answers then holds."""
    monkeypatch.setattr("lakefmt._core.loads.journal.PART_BYTES", 20)
    # A load has several blocks, the first of which are stored with rows of the load before.
    monkeypatch.setattr("lakefmt._core.loads.bodies.BLOCK_BYTES", 2)
    monkeypatch.setattr("lakefmt._core.loads.csv_rows._BLOCK_BYTES", 2)
    for number in count_in_turn(0, 3):
        story = Story()
        story.fails(number, failing, mode)
        _with_rollbacks(story)
        ended = story.faults.quiet is not None
        story.faults.heal()
        try:
            story.check()
        except AssertionError as error:
            raise AssertionError(f"access {number}: {error}") from error
        if ended:
            break
    assert number > 50


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["labels are not looked for", "records are not stored", "rows are not stored"])
def test_the_law_sees_what_breaks_it(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: a server that leaves something out does not pass."""
    if broken == "labels are not looked for":
        monkeypatch.setattr(LoadTable, "_note", lambda *_: None)
    elif broken == "records are not stored":
        monkeypatch.setattr(Journal, "save", lambda *_, **__: None)
    else:
        monkeypatch.setattr(Staged, "flush", lambda self: self._held.clear())
    with pytest.raises((AssertionError, KeyError)):
        test_death_at_every_effect(FaultMode.AFTER)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [FaultMode.BEFORE, FaultMode.AFTER, FaultMode.TORN])
def test_death_between_the_two_commits_of_a_row_that_comes_back(mode: FaultMode) -> None:
    """A key that is deleted and comes back with a smaller ordering value needs a commit before; only the second one has the label."""
    for number in count_in_turn(1, 2):
        base = Base(t={"schema": KEYED, "record_key": "id", "ordering": "n"})
        stored = KEYED.empty_table().from_pylist([{"id": 1, "v": "old", "n": 9.0}], schema=KEYED)
        base.table("t").upsert(stored)
        faults = Faults()
        client = Client(base.service(OPTIONS, faults))
        told = {"table": "t", "column_separator": ",", "columns": "id,v,n,__op"}
        assert client.transaction("begin", "one", table="t")["Status"] == "OK"
        assert client.transaction("load", "one", b"1,old,9,1\n1,new,1,0\n", **told)["Status"] == "OK"
        assert client.transaction("prepare", "one")["Status"] == "OK"
        faults.left, faults.mode = number, mode
        try:
            assert client.transaction("commit", "one")["Status"] == "OK"
        except SimulatedCrash:
            base.clock.pass_seconds(60)
            client = Client(base.service(OPTIONS, Faults()))
            assert client.transaction("commit", "one")["Status"] == "OK"
        else:
            break
        assert base.table("t").read().to_pylist() == [{"id": 1, "v": "new", "n": 1.0}], number
    assert number > 10
