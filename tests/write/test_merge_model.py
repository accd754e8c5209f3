"""A merge against a dictionary: the rows that it leaves, and what it refuses, for every kind of table."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt.errors import DuplicateKey
from lakefmt.testing.multiset import multiset_difference

Row = dict[str, Any]
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
NUMBERS = itertools.count()
FEW_COMMITS = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


@dataclass(frozen=True)
class Condition:
    """A condition as SQL and as Python; None of a comparison with null is no match."""

    text: str | None
    holds: Callable[[Row, Row], object]


@dataclass(frozen=True)
class Change:
    """What an update or insert stores, as SQL and as Python."""

    values: Any
    made: Callable[[Row, Row], Row]


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _less(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a < b


ONS = {
    "key": Condition(None, lambda t, s: t["id"] == s["id"]),
    "name": Condition("id", lambda t, s: t["id"] == s["id"]),
    "key and city": Condition(
        "t.id = s.id and s.city = t.city", lambda t, s: (t["id"], t["city"]) == (s["id"], s["city"])
    ),
    "more than the key": Condition(
        "t.id = s.id and t.v < s.v", lambda t, s: t["id"] == s["id"] and _less(t["v"], s["v"])
    ),
    "no key": Condition("t.v = s.v", lambda t, s: t["v"] is not None and t["v"] == s["v"]),
    "no equation": Condition("t.v + 1 < s.v", lambda t, s: t["v"] is not None and _less(t["v"] + 1, s["v"])),
}
BOTH = [
    Condition(None, lambda t, s: True),
    Condition("t.v < s.v", lambda t, s: _less(t["v"], s["v"])),
    Condition("s.v = 3", lambda t, s: s["v"] == 3),
    Condition("t.city = s.city", lambda t, s: t["city"] == s["city"]),
    Condition("s.v is null or t.v > 2", lambda t, s: s["v"] is None or (t["v"] is not None and t["v"] > 2)),
    Condition("null", lambda t, s: False),
]
OURS = [
    Condition(None, lambda t, s: True),
    Condition("t.v % 2 = 0", lambda t, s: t["v"] is not None and t["v"] % 2 == 0),
    Condition("t.city = 'sf'", lambda t, s: t["city"] == "sf"),
    Condition("case when t.v = 1 then null end", lambda t, s: False),
]
THEIRS = [
    Condition(None, lambda t, s: True),
    Condition("s.v > 1", lambda t, s: s["v"] is not None and s["v"] > 1),
    Condition("s.city <> 'sf'", lambda t, s: s["city"] != "sf"),
    Condition("not null", lambda t, s: False),
]
UPDATES = [
    Change("all", lambda t, s: dict(s)),
    Change({"v": "s.v"}, lambda t, s: {**t, "v": s["v"]}),
    Change({"v": "t.v + s.v", "ts": "s.ts"}, lambda t, s: {**t, "v": _plus(t["v"], s["v"]), "ts": s["ts"]}),
    Change({"v": 7}, lambda t, s: {**t, "v": 7}),
    Change({"v": None, "city": "'rome'"}, lambda t, s: {**t, "v": None, "city": "rome"}),
    Change({"city": "s.city"}, lambda t, s: {**t, "city": s["city"]}),
    Change({"id": "t.id || '+'"}, lambda t, s: {**t, "id": t["id"] + "+"}),
]
OWN_UPDATES = [
    Change({"v": "t.v * 10"}, lambda t, s: {**t, "v": None if t["v"] is None else t["v"] * 10}),
    Change({"city": pa.scalar("rome")}, lambda t, s: {**t, "city": "rome"}),
]
INSERTS = [
    Change("all", lambda t, s: dict(s)),
    Change(
        {"id": "s.id", "city": "s.city", "v": "s.v * 2"}, lambda t, s: {**s, "ts": None, "v": _plus(s["v"], s["v"])}
    ),
    Change(
        {"id": "s.id || '!'", "city": "'sf'", "ts": 1},
        lambda t, s: {"id": s["id"] + "!", "city": "sf", "ts": 1, "v": None},
    ),
]


@dataclass(frozen=True)
class Clause:
    """One clause of a drawn merge; `change` None deletes."""

    when: str
    where: Condition
    change: Change | None


@st.composite
def clauses(draw: st.DrawFn) -> list[Clause]:
    made = []
    for when in draw(st.lists(st.sampled_from(["matched", "not_matched", "by_source"]), min_size=1, max_size=4)):
        conditions, changes = {
            "matched": (BOTH, [*UPDATES, None]),
            "not_matched": (THEIRS, INSERTS),
            "by_source": (OURS, [*OWN_UPDATES, None]),
        }[when]
        made.append(Clause(when, draw(st.sampled_from(conditions)), draw(st.sampled_from(changes))))
    return made


KEYS, PLACES = ["a", "b", "c", "d"], ["sf", "oslo"]


def rows(most: int, *, unique: bool) -> st.SearchStrategy[list[Row]]:
    one = st.fixed_dictionaries(
        {
            "id": st.sampled_from(KEYS),
            "city": st.sampled_from(PLACES),
            "ts": st.integers(0, 2),
            "v": st.one_of(st.none(), st.integers(0, 4)),
        }
    )
    return st.lists(one, max_size=most, unique_by=(lambda row: row["id"]) if unique else None)


class Refused(Exception):
    """The model refuses the merge."""


def expected(
    stored: Sequence[Row],
    source: Sequence[Row],
    on: Condition,
    asked: Sequence[Clause],
    *,
    ordered: bool,
    across: bool,
    keyed: bool = True,
) -> list[Row]:
    """What a merge leaves: the law in the simplest way.

    Raises:
        Refused: two source rows change one stored row, or two rows would have one key.
    """

    def identity(row: Row) -> object:
        return row["id"] if across else (row["id"], row["city"])

    def first(when: str, t: Row, s: Row) -> Clause | None:
        return next((c for c in asked if c.when == when and c.where.holds(t, s)), None)

    kept, changed, left, arrived = list[Row](), list[Row](), list[Row](), list[Row]()
    for t in stored:
        partners = [s for s in source if on.holds(t, s)]
        done = [(c, s) for s in partners if (c := first("matched", t, s)) is not None]
        if not partners and (alone := first("by_source", t, {})) is not None:
            done = [(alone, {})]
        if len(done) > 1 and any(c.change is not None for c, _ in done):
            raise Refused
        if not done:
            kept.append(t)
            continue
        clause, s = done[0]
        if clause.change is None:
            left.append(t)
            continue
        new = clause.change.made(t, s)
        if ordered and (-1 if new["ts"] is None else new["ts"]) < (-1 if t["ts"] is None else t["ts"]):
            kept.append(t)  # late: the stored row stays
        elif identity(new) == identity(t):
            changed.append(new)
        else:
            left.append(t)
            arrived.append(new)
    for s in source:
        if not any(on.holds(t, s) for t in stored) and (clause := first("not_matched", {}, s)) is not None:
            assert clause.change is not None
            arrived.append(clause.change.made({}, s))
    result = [*kept, *changed, *arrived]
    if not keyed:
        return result
    if len({identity(row) for row in result}) < len(result):
        raise Refused
    if ordered and any(
        identity(t) == identity(row) and (row["ts"] or -1) < (t["ts"] or -1) for t in left for row in arrived
    ):
        raise Refused
    return result


def merged(table: lakefmt.Table, source: Sequence[Row], on: Condition, asked: Sequence[Clause]) -> lakefmt.CommitResult:
    merge = table.merge(pa.Table.from_pylist(list(source), schema=SCHEMA), on.text)
    for clause in asked:
        where = clause.where.text
        if clause.when == "matched":
            if clause.change is None:
                merge = merge.when_matched_delete(where=where)
            else:
                merge = merge.when_matched(clause.change.values, where=where)
        elif clause.when == "not_matched":
            assert clause.change is not None
            merge = merge.when_not_matched(clause.change.values, where=where)
        elif clause.change is None:
            merge = merge.when_not_matched_by_source(delete=True, where=where)
        else:
            merge = merge.when_not_matched_by_source(update=clause.change.values, where=where)
    return merge.execute()


INDEXES = ["bloom", "global_bloom", "bucket", "record"]
SHAPES = [
    *itertools.product(["cow", "mor"], [6, 8, 9], INDEXES, [None, "ts"]),
    *itertools.product(["cow", "mor"], [9], ["partitioned_record"], [None, "ts"]),
]


@given(
    shape=st.sampled_from(SHAPES),
    stored=rows(6, unique=True),
    later=rows(3, unique=True),
    merges=st.lists(st.tuples(rows(5, unique=False), st.sampled_from(sorted(ONS)), clauses()), min_size=1, max_size=3),
)
def test_a_merge_leaves_what_a_dictionary_would(
    shape: tuple[str, int, str, str | None],
    stored: list[Row],
    later: list[Row],
    merges: list[tuple[list[Row], str, list[Clause]]],
) -> None:
    """Rows, and refusals, of merges one after another; a refused merge changes nothing."""
    table_type, version, index, ordering = shape
    across = index in ("global_bloom", "record")
    table = lakefmt.create_table(
        f"memory://merge-law-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering=ordering,
        table_type=table_type,
        table_version=version,
        index=index,
        options=FEW_COMMITS,
    )
    for batch in (stored, later):
        table.upsert(pa.Table.from_pylist(batch, schema=SCHEMA))
    seen = list[Row]()
    for source, on, asked in merges:
        before = table.read()
        assert isinstance(before, pa.Table)
        seen += before.to_pylist()
        try:
            left = expected(before.to_pylist(), source, ONS[on], asked, ordered=ordering is not None, across=across)
        except Refused:
            with pytest.raises(DuplicateKey):
                merged(table, source, ONS[on], asked)
            left = before.to_pylist()
        else:
            merged(table, source, ONS[on], asked)
        after = table.read()
        if table_type == "mor" and ordering is not None:
            after, left = without_remembered(after, left, before.to_pylist(), seen)
        assert not multiset_difference(after, pa.Table.from_pylist(left, schema=SCHEMA))
    assert table.check("full").is_clean


def without_remembered(
    after: pa.Table, left: list[Row], before: list[Row], seen: list[Row]
) -> tuple[pa.Table, list[Row]]:
    """Leave out keys that come to a place where they were deleted, with a smaller event time: logs may remember the delete.

    A new row of that kind is late, as one that is upserted. One that moves stays where it was: its key is not lost.
    """
    stored = {(row["id"], row["city"]) for row in before}
    times: dict[tuple[str, str], int] = {}
    for row in seen:
        place = (row["id"], row["city"])
        times[place] = max(times.get(place, -1), -1 if row["ts"] is None else row["ts"])
    doubtful = {
        row["id"]
        for row in left
        if (place := (row["id"], row["city"])) not in stored
        and (-1 if row["ts"] is None else row["ts"]) < times.get(place, -1)
    }
    kept = [row for row in after.to_pylist() if row["id"] not in doubtful]
    return pa.Table.from_pylist(kept, schema=SCHEMA), [row for row in left if row["id"] not in doubtful]


def test_a_row_does_not_move_to_where_logs_remember_its_deletion() -> None:
    """It would be nowhere: its old place deletes it, and its new one finds it late."""
    for index, version in itertools.product(["bloom", "bucket"], [6, 8, 9]):
        table = lakefmt.create_table(
            f"memory://merge-law-{next(NUMBERS)}",
            schema=SCHEMA,
            record_key="id",
            partition_by="city",
            ordering="ts",
            table_type="mor",
            table_version=version,
            index=index,
        )
        stored = [{"id": "a", "city": "sf", "ts": 1, "v": 1}, {"id": "a", "city": "oslo", "ts": 5, "v": 2}]
        table.upsert(pa.Table.from_pylist(stored, schema=SCHEMA))
        table.delete("city = 'oslo'")
        source = pa.table({"id": ["a"], "city": ["oslo"]})
        table.merge(source).when_matched({"city": "s.city"}).execute()
        assert table.read().to_pylist() == stored[:1], (index, version)
        table.merge(source).when_matched({"city": "s.city", "ts": 6}).execute()
        assert table.read().to_pylist() == [{"id": "a", "city": "oslo", "ts": 6, "v": 1}], (index, version)


@given(
    stored=rows(6, unique=False),
    source=rows(5, unique=False),
    on=st.sampled_from(["name", "no key", "more than the key"]),
    asked=clauses(),
    kind=st.tuples(st.sampled_from(["cow", "mor"]), st.sampled_from([6, 8, 9])),
)
def test_a_table_without_keys_merges_as_a_list_would(
    stored: list[Row], source: list[Row], on: str, asked: list[Clause], kind: tuple[str, int]
) -> None:
    """Rows that are alike stay apart, and two new rows may be alike."""
    table = lakefmt.create_table(
        f"memory://merge-keyless-{next(NUMBERS)}",
        schema=SCHEMA,
        partition_by="city",
        table_type=kind[0],
        table_version=kind[1],
        options=FEW_COMMITS,
    )
    table.insert(pa.Table.from_pylist(stored, schema=SCHEMA))
    try:
        left = expected(stored, source, ONS[on], asked, ordered=False, across=False, keyed=False)
    except Refused:
        with pytest.raises(DuplicateKey):
            merged(table, source, ONS[on], asked)
        left = stored
    else:
        merged(table, source, ONS[on], asked)
    assert not multiset_difference(table.read(), pa.Table.from_pylist(left, schema=SCHEMA))
    assert table.check("full").is_clean
