"""Several streams of rows into one table, in any order of steps, against a dictionary: what is read, what is not committed yet.

Streams are killed, taken over, left by exceptions, opened again after a refused row; others write and run services beside them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakefmt._core.producers.stream.options import FlushMode
from lakefmt._core.producers.stream.stream import Stream
from lakefmt._core.segments.codec import ANONYMOUS
from lakefmt._core.storage.memory import MemoryStore
from lakefmt.errors import FlushFailed
from lakefmt.testing.virtual_time import VirtualTime
from tests.example_counts import examples
from tests.producers.stream.stream_kit import durable, kill, make, table_over

SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), ("p", pa.string()), ("v", pa.int64()), ("s", pa.string())]
)
NUMBERS = itertools.count()
NAMES = ("a", "b", None)
#: The clock of a process in virtual time begins here.
EPOCH = 1_800_000_000.0
#: A buffer that has so many rows is sealed by the stream itself.
FULL = 3

Row = dict[str, Any]
Change = tuple[str, Row]

STEPS = st.tuples(
    st.sampled_from(
        [
            "rows",
            "rows",
            "rows",
            "strict",
            "mark",
            "flush",
            "commit",
            "kill",
            "leave",
            "refused",
            "recover",
            "other",
            "serve",
        ]
    ),
    st.sampled_from(NAMES),
    st.sampled_from(["upsert", "insert_ignore", "update_ignore", "delete_ignore", "insert", "update", "delete"]),
    st.lists(
        st.tuples(st.sampled_from(["k0", "k1", "k2", "k3"]), st.sampled_from(["p0", "p1"])), min_size=1, max_size=4
    ),
)


@dataclass
class Open:
    """An open stream, its open buffer, and how many rows of that came before its last mark."""

    stream: Stream
    buffer: list[Change] = field(default_factory=list)
    marked: int | None = None
    marks: bool = False


@dataclass
class Segment:
    """What a stream has made durable at once, and whether it is behind its last mark."""

    stream: str
    changes: list[Change]
    tail: bool = False


@dataclass
class Model:
    """The table, and what streams have made durable and not committed, in its order."""

    across: bool
    stored: dict[object, Row] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)

    def key(self, row: Row) -> object:
        return row["id"] if self.across else (row["id"], row["p"])

    def after(self, changes: list[Change], stored: dict[object, Row]) -> dict[object, Row]:
        rows = dict(stored)
        for operator, row in changes:
            key, there = self.key(row), self.key(row) in rows
            if operator in ("upsert", "insert") or (operator == "insert_ignore" and not there):
                rows[key] = {**dict.fromkeys(SCHEMA.names), **row}
            elif operator.startswith("update") and there:
                rows[key] = {**rows[key], **row}
            elif operator.startswith("delete"):
                rows.pop(key, None)
        return rows

    def in_order(self) -> list[Segment]:
        """Return what is not behind the last mark of its stream; what stands before a mark counts from it on."""
        moments = dict[str, int]()
        placed = []
        for number, segment in reversed([*enumerate(self.segments)]):
            if not segment.tail:
                moments[segment.stream] = number
            if segment.stream in moments:
                placed.append((moments[segment.stream], number, segment))
        return [segment for _, _, segment in sorted(placed, key=lambda each: each[:2])]

    def of(self, name: str) -> list[Change]:
        """Return what a stream has made durable and not committed."""
        return [change for each in self.segments if each.stream == name for change in each.changes]

    def commit(self, name: str, *, whole: bool = False, drops: bool = False) -> None:
        """Commit a stream, and what others made durable before its last segment; `drops`: not what is behind its last mark."""
        if whole:
            for each in self.segments:
                each.tail &= each.stream != name
        ordered = self.in_order()
        last = max((n + 1 for n, each in enumerate(ordered) if each.stream == name), default=0)
        self.stored = self.after([change for each in ordered[:last] for change in each.changes], self.stored)
        gone = {id(each) for each in ordered[:last]} | {id(e) for e in self.segments if drops and e.stream == name}
        self.segments = [each for each in self.segments if id(each) not in gone]

    def uncommitted(self) -> dict[object, Row]:
        return self.after([change for each in self.in_order() for change in each.changes], self.stored)


class Play:
    """Streams, other writers and the model side by side."""

    def __init__(self, index: str, table_type: str) -> None:
        self.time = VirtualTime()
        self.store = MemoryStore(f"random-streams-{next(NUMBERS)}", now=lambda: EPOCH + self.time.now)
        make(store=self.store, schema=SCHEMA, partition_by="p", index=index, table_type=table_type)
        self.model = Model(across=index.startswith("global"))
        self.open: dict[str | None, Open] = {}
        self.values = itertools.count()

    def table(self) -> Any:
        return table_over(self.store, self.time)

    def opened(self, name: str | None) -> Open:
        if name not in self.open:
            how = {"flush_mode": FlushMode.AUTO_FLUSH_SYNC, "flush_interval": 0, "commit_interval": 10**9}
            stream = self.table().open_stream(writer_id=name, mutation_buffer_lines_num=FULL, **how)
            self.open[name] = Open(stream)
            self.model.commit(stream.writer_id, drops=True)
        return self.open[name]

    def seal(self, given: Open, *, by_itself: bool) -> None:
        """Tell the model that the open buffer, or what of it is marked, is durable."""
        count = given.marked if by_itself and given.marked is not None else len(given.buffer)
        tail = by_itself and given.marks and given.marked is None
        if count or given.marked is not None:
            self.model.segments.append(Segment(given.stream.writer_id, given.buffer[:count], tail))
        given.buffer, given.marked = given.buffer[count:], None

    def apply(self, given: Open, operator: str, places: list[tuple[str, str]]) -> None:
        for key, place in places:
            row: Row = {"id": key, "p": place}
            if not operator.startswith("delete"):
                row |= {"v": next(self.values)} | ({} if operator.startswith("update") else {"s": operator})
            given.buffer.append((operator, row))
            given.stream.extend([row], operator)
            if len(given.buffer) >= FULL:
                self.seal(given, by_itself=True)

    def flush(self, given: Open) -> None:
        given.stream.flush()
        self.seal(given, by_itself=False)

    def is_refused(self, given: Open, operator: str, place: tuple[str, str]) -> bool:
        own = self.model.of(given.stream.writer_id)
        there = self.model.key({"id": place[0], "p": place[1]}) in self.model.after(
            [*own, *given.buffer], self.model.stored
        )
        return there == (operator == "insert")

    def step(self, act: str, name: str | None, operator: str, places: list[tuple[str, str]]) -> None:
        given = self.opened(name)
        strict = operator in ("insert", "update", "delete")
        writer = given.stream.writer_id
        if act == "rows" and not strict:
            self.apply(given, operator, places)
        elif act == "strict" and strict:
            self.flush(given)  # others may write before the next one, and make a row wrong that is right now
            if not self.is_refused(given, operator, places[0]):
                self.apply(given, operator, places[:1])
                self.flush(given)
        elif act == "refused" and strict and self.is_refused(given, operator, places[0]):
            with pytest.raises(FlushFailed):
                refuse(given.stream, operator, {"id": places[0][0], "p": places[0][1]})
            assert sum(batch.rows.num_rows for batch in given.stream.failed_rows()) == len(given.buffer) + 1
            given.buffer, given.marked = [], None
            given.stream.reopen()
            self.model.commit(writer)
        elif act == "mark":
            given.stream.mark(len(given.buffer))
            given.marked, given.marks = len(given.buffer), not writer.startswith(ANONYMOUS)
        elif act == "flush":
            self.flush(given)
        elif act == "commit":
            self.flush(given)
            given.stream.commit()
            self.model.commit(writer, whole=True)
        elif act in ("kill", "leave"):
            del self.open[name]
            if act == "kill":
                kill(given.stream)
            else:
                self.leave(given)
        elif act == "recover":
            self.recover()
        else:
            self.beside(act, operator, places)

    def leave(self, given: Open) -> None:
        """An exception leaves the block of a stream."""
        if given.buffer:
            with pytest.warns(RuntimeWarning, match="were dropped"):
                given.stream.close(discard=True)
        else:
            given.stream.close(discard=True)
        self.model.commit(given.stream.writer_id)

    def recover(self) -> None:
        """What nobody renews is dead by now; what is open is alive."""
        self.time.sleep(200.0)
        self.table().recover_streams()
        alive = {each.stream.writer_id for each in self.open.values()}
        for name in sorted({each.stream for each in self.model.segments} - alive):
            self.model.commit(name, drops=True)

    def beside(self, act: str, operator: str, places: list[tuple[str, str]]) -> None:
        table = self.table()
        if act == "serve":
            if operator == "insert" and table.client.load().config.table_type.value == "MERGE_ON_READ":
                table.compact()
            elif operator == "update":
                table.cluster()
            elif operator == "delete":
                table.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3})
            return
        row = {"id": places[0][0], "p": places[0][1], "v": next(self.values), "s": "other"}
        if operator.startswith("delete"):
            table.delete(pa.table({"id": [row["id"]]} | ({} if self.model.across else {"p": [row["p"]]})))
            self.model.stored = self.model.after([("delete", row)], self.model.stored)
        else:
            table.upsert([row])
            self.model.stored = self.model.after([("upsert", row)], self.model.stored)

    def check(self, story: object) -> None:
        def in_order(rows: Any) -> list[str]:
            return sorted(map(repr, rows))

        table = self.table()
        assert in_order(table.read().to_pylist()) == in_order(self.model.stored.values()), story
        seen = table.read(include_uncommitted=True).to_pylist()
        assert in_order(seen) == in_order(self.model.uncommitted().values()), story

    def end(self) -> None:
        for each in self.open.values():
            each.stream.close()
            self.seal(each, by_itself=False)
            self.model.commit(each.stream.writer_id, whole=True)
        self.open.clear()
        self.recover()
        self.check("the end")
        assert durable(self.store) == 0


def refuse(stream: Stream, operator: str, row: Row) -> None:
    """Give a stream a row that its table refuses."""
    stream.extend([row], operator)
    stream.flush()


@settings(max_examples=max(2, examples(2)), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.parametrize(("index", "table_type"), [("bloom", "cow"), ("global_bloom", "mor"), ("global_simple", "cow")])
@given(steps=st.lists(STEPS, min_size=8, max_size=16))
def test_random_streams_equal_a_dictionary(index: str, table_type: str, steps: list[Any]) -> None:
    play = Play(index, table_type)
    try:
        for number, step in enumerate(steps):
            play.step(*step)
            play.check((number, step, steps))
        play.end()
    finally:
        for each in play.open.values():
            kill(each.stream)
        play.store.delete([found.name for found in play.store.list()])
