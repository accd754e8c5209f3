"""After a restore the table is what it was, and goes on; whoever reads meanwhile sees a state that there was."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action
from lakefmt.errors import InvalidInputError, LakefmtError, StateError
from lakefmt.testing.invariants import check_no_orphans
from lakefmt.testing.stores import Effect, FaultStore, WatchStore
from tests.crash.repeatable import Repeatable
from tests.crash.sweep import DIES, Ending, endings_of_run, numbers_of_run, sweep
from tests.example_counts import examples
from tests.kit import product_or_diagonal, rows
from tests.undo.scenarios import OPTIONS, copy, make, over, same

ACTS: dict[str, Callable[[Table, int], object]] = {
    "upsert": lambda t, n: t.upsert(rows(n % 3, n % 3 + 4, ts=n)),
    "insert": lambda t, n: t.insert(rows(100 + 3 * n, 103 + 3 * n, ts=n)),
    "delete": lambda t, n: t.delete([f"k{n % 5}"]),
    "overwrite": lambda t, n: t.insert_overwrite(rows(n % 2, n % 2 + 1, ts=n)),
    "overwrite_table": lambda t, n: t.insert_overwrite_table(rows(0, 3, ts=n)),
    "compact": lambda t, n: t.compact() if t.properties.table_type.value == "MERGE_ON_READ" else None,
    "plan": lambda t, n: t.compact(schedule=True) if t.properties.table_type.value == "MERGE_ON_READ" else None,
    "rollback": lambda t, n: None if (commit := newest(t)) is None else t.rollback(commit),
    "savepoint": lambda t, n: t.savepoint(),
    "clean": lambda t, n: t.clean(options={"hoodie.clean.commits.retained": 1}),
    "archive": lambda t, n: (
        t.archive(options={"hoodie.keep.min.commits": 2}) if t.properties.version.value > 6 else None
    ),
}


def newest(table: Table) -> str | None:
    commit = table.client.load().timeline.latest_commit
    return None if commit is None else commit.time


@settings(max_examples=examples(15))
@given(
    st.sampled_from([6, 8, 9]),
    st.sampled_from(["cow", "mor"]),
    st.lists(st.sampled_from(sorted(ACTS)), min_size=3, max_size=9),
    st.integers(0, 8),
)
@example(8, "cow", ["rollback", "rollback", "upsert"], 0)
def test_a_restored_table_is_what_it_was(version: int, table_type: str, acts: list[str], pick: int) -> None:
    table = make(version, table_type)
    table.upsert(rows(0, 5, ts=0))
    states: dict[str, pa.Table] = {str(newest(table)): table.read()}
    for number, act in enumerate(acts, 1):
        with contextlib.suppress(LakefmtError):
            ACTS[act](table, number)
        states.setdefault(str(newest(table)), table.read())
    there = {i.time for i in table.client.load().timeline.commits}
    kept = {one.instant for one in table.savepoints()}
    if not there:
        return  # everything was rolled back
    chosen = sorted(there & states.keys())[pick % len(there & states.keys())]
    newer_kept = {time for time in kept if time > chosen}
    try:
        table.restore(chosen)
    except StateError as error:
        said = str(error)
        cleaned = "needed, and the clean" in said and chosen not in kept
        assert cleaned or (newer_kept and "savepoint keeps" in said), said
        assert same(table.read(), states[str(newest(table))]), "refused, and nothing happened"
        return
    assert not newer_kept
    assert same(table.read(), states[chosen])
    assert kept == {one.instant for one in table.savepoints()}
    left = [i.time for i in table.client.load().timeline.commits]
    for time in left[left.index(chosen) :]:
        assert same(table.read(as_of=time), states[chosen]), "what is left after it changes no row"
    again = table.upsert(rows(2, 9, ts=99))
    expected = {row["id"]: row for row in (*states[chosen].to_pylist(), *rows(2, 9, ts=99).to_pylist())}
    assert same(table.read(), pa.Table.from_pylist(list(expected.values()), schema=table.read().schema))
    written = table.incremental(chosen if version == 6 else table.client.load().timeline.completion_of(chosen))
    assert set(written["id"].to_pylist()) >= set(rows(2, 9, ts=99)["id"].to_pylist())
    assert again.instant is not None
    if any(i.action is Action.COMPACTION for i in table.client.load().timeline.pending):
        table.compact()  # one that was planned before still waits, and still can be carried out
        assert same(table.read(), pa.Table.from_pylist(list(expected.values()), schema=table.read().schema))
    check_no_orphans(table)


class Past:
    """A table with four states, the second kept, and one plan that waits behind it."""

    def __init__(self, version: int, table_type: str) -> None:
        table = make(version, table_type)
        self.states = []
        for number in range(4):
            table.upsert(rows(number, number + 4, ts=number))
            self.states.append(table.read())
            if number == 1:
                table.savepoint()
            if number == 2 and table_type == "mor":
                table.compact(schedule=True)
        self.target = table.savepoints()[0].instant
        self.store = table.client.store
        self.origin = Repeatable(self.store)
        counted = FaultStore(self.origin.copy())
        self.origin.table(counted, OPTIONS).restore(self.target)
        self.effects = counted.effects

    def place(self, table: Table) -> int:
        """Return which state is read: a mix of two is none of them."""
        found = table.read()
        matching = [n for n, state in enumerate(self.states) if same(found, state)]
        assert matching, f"a state that never was: {sorted(found.to_pylist(), key=str)}"
        return matching[0]


PASTS: dict[tuple[int, str], Past] = {}


def past(version: int, table_type: str) -> Past:
    if (version, table_type) not in PASTS:
        PASTS[version, table_type] = Past(version, table_type)
    return PASTS[version, table_type]


KINDS = [(6, "mor"), (8, "cow"), (8, "mor")]
#: One process asks all endings of a kind: it knows the states that it has checked.
DYING_KINDS = [
    pytest.param(kind, id=f"{kind[0]}-{kind[1]}", marks=pytest.mark.xdist_group(f"restore-{kind[0]}-{kind[1]}"))
    for kind in [*KINDS, (9, "mor")]
]


@pytest.mark.parametrize(("version", "table_type"), KINDS)
def test_readers_meanwhile_walk_back_state_by_state(version: int, table_type: str) -> None:
    scene = past(version, table_type)
    inner = copy(scene.store)
    seen: list[int] = []

    def look(effect: Effect) -> None:
        seen.append(scene.place(over(inner)))

    over(WatchStore(inner, look)).restore(scene.target)
    assert seen == sorted(seen, reverse=True)
    assert (seen[0], seen[-1]) == (3, 1)
    assert 2 in seen


@pytest.mark.slow
@product_or_diagonal(kind=DYING_KINDS, ending=endings_of_run(also=[DIES]))
def test_dying_anywhere_is_resumed(kind: tuple[int, str], ending: Ending) -> None:
    scene, (_, table_type) = past(*kind), kind
    call = lambda store: scene.origin.table(store, OPTIONS).restore(scene.target)  # noqa: E731
    for left in sweep(scene.origin, call, numbers_of_run(scene.effects, ending), ending):
        store, story = left.store, left.story
        assert scene.place(over(store)) in (1, 2, 3), story
        again = copy(store)
        over(again).restore(scene.target)  # the next restore finishes it
        assert scene.place(over(again)) == 1, story
        assert not any(i.action is Action.RESTORE for i in over(again).client.load().timeline.pending), story
        began = any(".restore." in item.name for item in store.list(".hoodie"))
        over(store).upsert(rows(20, 22, ts=9))  # and so does the next write
        expected = pa.concat_tables([scene.states[1 if began else 3], rows(20, 22, ts=9)])
        assert same(over(store).read(), expected), story
        if not began and table_type == "mor":
            over(store).compact()  # the plan that the restore would have taken away
        check_sound(store, story)


def check_sound(store: MemoryStore, story: str) -> None:
    try:
        check_no_orphans(over(store))
    except AssertionError as error:
        raise AssertionError(f"{story}: {error}") from None
    assert over(store).check().is_clean, story


@pytest.mark.parametrize(("version", "table_type"), KINDS)
def test_a_mix_would_be_seen(version: int, table_type: str) -> None:
    """The readers' check can say no: one partition's files are gone while their commits still count."""
    scene = past(version, table_type)
    store = copy(scene.store)
    plan = over(store).restore(scene.target, dry_run=True).plan
    store.delete(path for path in plan.paths if path.startswith("city=sf"))
    with pytest.raises((AssertionError, LakefmtError)):
        scene.place(over(store))


def test_what_a_commit_returned_names_it_to_every_verb_of_undoing() -> None:
    table = make()
    first, second, third = (table.upsert(rows(n, n + 1)) for n in range(3))
    assert table.rollback(third, dry_run=True).plan == table.rollback(third.instant, dry_run=True).plan
    assert table.rollback(third).plan is not None
    assert table.savepoint(first).instant == first.instant
    table.delete_savepoint(first)
    assert table.savepoints() == ()
    assert table.restore(first, dry_run=True).plan == table.restore(first.instant, dry_run=True).plan
    table.restore(first)
    assert table.read(["id"])["id"].to_pylist() == ["k0"]
    nothing = table.delete(["nobody"])
    with pytest.raises(InvalidInputError, match="made no commit"):
        table.restore(nothing)
    assert second.instant is not None


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_savepoint_keeps_what_was_written_while_a_compaction_waited(version: int) -> None:
    """It was one of the compaction, which completed last; the restore undid the writes behind its plan."""
    table = make(version, "mor")
    for number in (1, 2):
        table.upsert(rows(0, 4, ts=number))
    planned = table.compact(schedule=True)
    table.upsert(rows(2, 6, ts=3))
    table.alter.add_column("more", pa.string())
    table.compact(run=planned.instant)
    kept, state = table.savepoint(), table.read()
    table.upsert(rows(0, 9, ts=4).append_column("more", pa.array(["x"] * 9)))
    table.compact()
    table.restore(kept.instant)
    assert same(table.read(), state)
    assert table.check("full").is_clean
