"""The model says what verbs must do; here it is held against rules that are written out by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt.testing.model import ModelTable, Row
from lakefmt.testing.strategies import shapes, verbs


def row(key: str, city: str = "sf", ts: int | None = 1, v: int = 0) -> Row:
    return {"id": key, "city": city, "ts": ts, "v": v}


def model(ordering: str | None = "ts", partition: str | None = "city", **how: bool) -> ModelTable:
    return ModelTable("id", partition, ordering, **how)


def content(table: ModelTable) -> list[tuple[object, ...]]:
    return sorted(tuple(r.get(name) for name in ("id", "city", "ts", "v")) for r in table.rows())


@pytest.mark.parametrize(
    ("ordering", "first", "second", "wins"),
    [
        ("ts", 1, 2, True),
        ("ts", 2, 1, False),
        ("ts", 1, 1, True),
        ("ts", None, 1, True),
        ("ts", 1, None, False),
        ("ts", None, None, True),
        (None, 2, 1, True),
    ],
)
def test_the_larger_ordering_value_wins_the_later_row_on_a_tie(
    ordering: str | None, first: int | None, second: int | None, wins: bool
) -> None:
    old, new = row("a", ts=first, v=1), row("a", ts=second, v=2)
    stored, batched = model(ordering), model(ordering)
    stored.upsert([old])
    stored.upsert([new])
    batched.upsert([old, new])
    expected = [("a", "sf", second if wins else first, 2 if wins else 1)]
    assert content(stored) == content(batched) == expected


def test_the_model_orders_floats_bytes_and_texts_as_hudi_does() -> None:
    nan = float("nan")
    values: list[object]
    for values in (
        [None, -1.0, -0.0, 0.0, float("inf"), nan],
        [b"", b"\x80", b"\x00", b"\x7f"],
        ["a", "\uff5e", "\U0001f600"],
    ):
        for mine, theirs in itertools.product(range(len(values)), repeat=2):
            table = model()
            for v, ts in enumerate((values[theirs], values[mine])):
                table.upsert([{**row("a", v=v), "ts": ts}])
            assert [one["v"] for one in table.rows()] == [int(mine >= theirs)]


def test_a_key_is_unique_in_its_partition_or_in_the_table() -> None:
    local, for_global_lookup, staying = model(), model(global_keys=True), model(global_keys=True, moves=False)
    for table in (local, for_global_lookup, staying):
        table.upsert([row("a", "sf")])
        table.upsert([row("a", "oslo", v=1)])
    assert content(local) == [("a", "oslo", 1, 1), ("a", "sf", 1, 0)]
    assert (content(for_global_lookup), content(staying)) == ([("a", "oslo", 1, 1)], [("a", "sf", 1, 1)])
    assert (for_global_lookup.places(), staying.places()) == ({"oslo"}, {"sf"}), (
        "a row that stays lies where its key was, and says so"
    )


def test_a_late_row_moves_nothing() -> None:
    table = model(global_keys=True)
    table.upsert([row("a", "sf", ts=5)])
    table.upsert([row("a", "oslo", ts=4)])
    assert content(table) == [("a", "sf", 5, 0)]


def test_partial_rows_keep_what_they_do_not_bring() -> None:
    table = model(global_keys=True)
    table.upsert([row("a", ts=5, v=7)])
    table.upsert([{"id": "a", "city": "sf"}, {"id": "b", "city": "sf"}], partial=True)
    assert content(table)[0] == ("a", "sf", 5, 7)
    table.upsert([{"id": "a", "city": "oslo", "ts": 6}], partial=True)
    assert content(table)[0] == ("a", "oslo", 6, 7), "also when it moves"
    table.upsert([{"id": "a", "city": "oslo", "v": 8}], partial=True)
    assert content(table)[0] == ("a", "oslo", 6, 8), "without the ordering column the later write wins"


def test_duplicates_of_plain_inserts_are_updated_and_deleted_together() -> None:
    table = model()
    table.insert([row("a", v=1), row("a", v=2), row("b")])
    assert table.has_duplicates
    table.upsert([row("a", v=3)])
    assert content(table) == [("a", "sf", 1, 3), ("a", "sf", 1, 3), ("b", "sf", 1, 0)]
    table.delete(["a"])
    assert content(table) == [("b", "sf", 1, 0)]
    table.insert_new([row("b", v=9), row("c", v=1), row("c", v=2)])
    assert content(table) == [("b", "sf", 1, 0), ("c", "sf", 1, 2)]


def test_deletes_updates_and_soft_deletes() -> None:
    table = model()
    table.upsert([row("a", "sf", v=1), row("a", "oslo", v=2), row("b", "sf", v=1)])
    table.delete_where(lambda r: r["v"] == 2)
    assert content(table) == [("a", "sf", 1, 1), ("b", "sf", 1, 1)]
    table.update(lambda r: r["id"] == "b", {"v": 5})
    table.soft_delete(["a"], ["v"])
    assert content(table) == [("a", "sf", 1, None), ("b", "sf", 1, 5)]


def test_overwrites_and_dropped_partitions() -> None:
    table = model()
    table.upsert([row("a", "sf"), row("b", "oslo"), row("c", "rio")])
    table.overwrite([row("d", "sf"), row("d", "sf")])
    assert [r[0] for r in content(table)] == ["b", "c", "d", "d"]
    table.delete_partitions(["oslo"])
    assert [r[0] for r in content(table)] == ["c", "d", "d"]
    table.overwrite_table([row("e")])
    assert [r[0] for r in content(table)] == ["e"]


def test_time_travel_increments_and_rollback() -> None:
    table = model()
    assert (table.rows(), table.commits, table.as_of(0)) == ([], 0, [])
    table.upsert([row("a"), row("b")])
    table.upsert([row("b", v=1), row("c")])
    table.upsert([row("c", ts=0, v=2)])  # late: nothing is written
    table.delete(["a"])
    assert table.commits == 4
    assert [r["id"] for r in table.as_of(1)] == ["a", "b"]
    assert table.history[0] == table.as_of(1)
    assert sorted((r["id"], r["v"]) for r in table.incremental(1)) == [("b", 1), ("c", 0)]
    assert [(r["id"], r["v"]) for r in table.incremental(0, 1)] == [("a", 0), ("b", 0)]
    assert table.incremental(2) == []
    assert (table.next_start(1), table.next_start(1, 2), table.next_start(4)) == (4, 2, 4)
    table.rollback()
    assert [r["id"] for r in table.rows()] == ["a", "b", "c"]
    for _ in range(5):
        table.rollback()
    assert (table.commits, table.rows()) == (0, [])


@given(st.data())
def test_whatever_is_done_a_puller_ends_with_the_table_and_rollbacks_lead_back(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    table = shape.model()
    seen: list[list[Row]] = [[]]
    for drawn in data.draw(st.lists(verbs(shape, max_rows=3), max_size=8)):
        verb = drawn.fitted(table)
        if verb is None:
            continue
        commits = table.commits
        verb.play(table)
        if verb.name == "rollback":
            seen.pop()
        else:
            seen.append(table.rows())
            assert table.commits == commits + 1
        assert table.as_of(table.commits) == table.rows() == table.incremental(0) == seen[-1]
        assert [table.as_of(n) for n in range(table.commits + 1)] == seen, "the past stays"
        if shape.is_global:
            assert not table.has_duplicates
    while table.commits:
        table.rollback()
        seen.pop()
        assert table.rows() == seen[-1]
