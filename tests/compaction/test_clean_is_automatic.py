"""A commit is followed by a clean where it left something to delete, and costs next to nothing where it did not."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.compaction.clean_plan import is_clean_due
from lakefmt._core.compaction.clean_run import plan_clean_of
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.timeline.instant import Action
from lakefmt.errors import SnapshotExpired
from tests.example_counts import examples

_NUMBERS = itertools.count()
_FAST = {"lakefmt.durability": "none", "lakefmt.write.threads": 1}
_BY_HAND = {**_FAST, "hoodie.clean.automatic": False, "hoodie.clean.commits.retained": 2}


def make(table_type: str = "cow", options: dict[str, object] = _FAST, **asked: object) -> lakefmt.Table:
    return lakefmt.create_table(
        f"memory://automatic-clean/{next(_NUMBERS)}",
        schema=rows("a").schema,
        record_key="id",
        partition_by="p",
        table_type=table_type,
        options=options,
        **asked,  # type: ignore[arg-type]
    )


def rows(*keys: str, v: int = 0) -> pa.Table:
    return pa.table({"id": list(keys), "p": [key[0] for key in keys], "v": [v] * len(keys)})


def cleans(table: lakefmt.Table) -> int:
    return len(table.client.load().timeline.completed_of(Action.CLEAN))


def register(table: lakefmt.Table, read_until: str) -> None:
    content = f'{{"next_start": "{read_until}"}}'.encode()
    table.client.store.put(".hoodie/.lakefmt/consumers/feed.json", content)


STEPS = st.sampled_from(
    ["upsert", "insert", "delete", "overwrite", "drop", "savepoint", "forget", "compact", "register", "clean"]
)


def take(table: lakefmt.Table, step: str, number: int) -> None:
    """Do one step; those that need something that is not there do nothing."""
    keep_small = {"hoodie.parquet.small.file.limit": 0}
    if step == "upsert":
        table.upsert(rows("a", "b", v=number))
    elif step == "insert":
        table.insert(rows(f"a{number}"), options=keep_small)
    elif step == "delete":
        table.delete(["a"])
    elif step == "overwrite":
        table.insert_overwrite(rows("b", v=number))
    elif step == "drop" and "p=a" in table.partitions():
        table.delete_partitions(["p=a"])
    elif step == "savepoint" and not table.savepoints() and table.snapshot().instant:
        table.savepoint()
    elif step == "forget" and table.savepoints():
        table.delete_savepoint(table.savepoints()[0].instant)
    elif step == "compact" and table.properties.table_type.value == "MERGE_ON_READ":
        table.compact()
    elif step == "register" and table.snapshot().instant:
        register(table, str(table.snapshot().instant))
    elif step == "clean":
        table.clean()


@pytest.mark.slow
@pytest.mark.parametrize(("table_type", "version"), [("cow", 8), ("mor", 8), ("mor", 6), ("cow", 6)])
@settings(max_examples=examples(30))
@given(steps=st.lists(STEPS, min_size=1, max_size=12))
def test_law_a_clean_that_is_not_due_would_delete_nothing(table_type: str, version: int, steps: list[str]) -> None:
    table = make(table_type, _BY_HAND, table_version=version)
    asked = resolve_settings(_BY_HAND)
    for number, step in enumerate(["upsert", *steps]):
        take(table, step, number)
        state = table.client.load()
        if not is_clean_due(table.client.at(state), asked):
            assert plan_clean_of(table.client).num_files == 0, (step, number)


def test_by_default_the_last_ten_states_stay_readable() -> None:
    table = make()
    instants = [str(table.upsert(rows("a", v=number)).instant) for number in range(14)]
    assert [table.read(as_of=time)["v"].to_pylist() for time in instants[-10:]] == [[n] for n in range(4, 14)]
    with pytest.raises(SnapshotExpired):
        table.read(as_of=instants[0])
    assert cleans(table) > 0
    assert len([item for item in table.client.store.list() if item.name.endswith(".parquet")]) <= 11


def test_a_table_that_only_grows_is_never_cleaned_and_no_directory_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(options={**_FAST, "hoodie.parquet.small.file.limit": 0})
    for number in range(12):
        table.insert(rows(f"a{number}"))
    monkeypatch.setattr("lakefmt._core.compaction.clean_run.run_clean", lambda *_, **__: pytest.fail("a clean ran"))
    for number in range(12, 16):
        table.insert(rows(f"a{number}"))
    assert cleans(table) == 0


def test_what_a_savepoint_keeps_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(options=_BY_HAND)
    table.upsert(rows("a", v=0))
    table.savepoint()
    table.upsert(rows("a", v=1))
    table.upsert(rows("b", v=2))
    table.upsert(rows("b2", v=3), options={"hoodie.parquet.small.file.limit": 0})
    asked = resolve_settings(_BY_HAND)
    assert is_clean_due(table.client.at(table.client.load()), asked)
    assert table.clean().instant is None, "the savepoint keeps the slice"
    assert not is_clean_due(table.client.at(table.client.load()), asked)
    table.delete_savepoint(table.savepoints()[0].instant)
    assert is_clean_due(table.client.at(table.client.load()), asked)
    assert table.clean().files_deleted == 1


def test_it_can_be_switched_off() -> None:
    table = make(options={**_FAST, "hoodie.clean.automatic": False})
    first = str(table.upsert(rows("a", v=0)).instant)
    for number in range(1, 13):
        table.upsert(rows("a", v=number))
    assert table.read(as_of=first)["v"].to_pylist() == [0]
    assert cleans(table) == 0


def test_a_consumer_that_holds_slices_back_does_not_start_a_clean_at_every_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = make(options={**_FAST, "hoodie.clean.commits.retained": 2})
    first = str(table.upsert(rows("a")).instant)
    register(table, first)
    for number in range(4):
        table.upsert(rows("a", v=number))
    with monkeypatch.context() as patched:
        patched.setattr("lakefmt._core.compaction.clean_run.run_clean", lambda *_, **__: pytest.fail("a clean ran"))
        for number in range(4, 7):
            last = str(table.upsert(rows("a", v=number)).instant)
        assert lakefmt.open_table(table.client.store.url).read(as_of=first).num_rows == 1
    register(table, last)
    table.upsert(rows("a", v=7))
    assert cleans(table) > 0
    with pytest.raises(SnapshotExpired):
        table.read(as_of=first)


def test_archiving_leaves_as_many_commits_as_a_clean_is_asked_to_retain() -> None:
    limits = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 4, "hoodie.clean.commits.retained": 6}
    table = make(options={**_FAST, **limits})
    instants = [str(table.upsert(rows("a", v=number)).instant) for number in range(12)]
    assert [table.read(as_of=time)["v"].to_pylist() for time in instants[-6:]] == [[n] for n in range(6, 12)]
    assert cleans(table) > 0, "with four commits at most it would never find six to retain"
    assert 7 <= len(table.client.load().timeline.commits) <= 9
