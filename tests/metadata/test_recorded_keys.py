"""What the writer of a file records of its keys is what the files say: a comparison of both files finds the same keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lakefmt._core.filegroups import base_writer
from lakefmt._core.filegroups.model import FileSlice, parse_files
from lakefmt._core.metadata import commit_updates
from lakefmt._core.metadata.records import RecordLocation
from lakefmt._core.metadata.updates import ChangedKeys, compared_keys, lost_keys
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.table import Table
from lakefmt._core.timeline.observer import FileKeyChange, WrittenKeys
from lakefmt._core.values import PartitionPath
from lakefmt._core.write.files import bundles
from lakefmt.lowlevel import assign, begin_write, commit, write_files
from tests.example_counts import examples
from tests.metadata.metadata_content import check_metadata_table
from tests.metadata.test_keys_of_changed_groups import marked
from tests.metadata.test_metadata_table import make, rows

Keys = tuple[list[str], list[str]]


@contextmanager
def compared_with_files() -> Iterator[list[Keys]]:
    """Compare what is recorded of every file with what reading finds; yields what was recorded."""
    told: list[Keys] = []
    original = commit_updates._ChangedGroups._recorded

    def checked(self: Any, before: Any, after: Any) -> Any:
        found = original(self, before, after)
        if found is not None:
            read = self._read(RecordLocation("", "", 0), before, after, None).keys
            assert (found.added.to_pylist(), found.left.to_pylist()) == (read.added.to_pylist(), read.left.to_pylist())
            told.append((found.added.to_pylist(), found.left.to_pylist()))
        return found

    commit_updates._ChangedGroups._recorded = checked  # type: ignore[method-assign]
    try:
        yield told
    finally:
        commit_updates._ChangedGroups._recorded = original  # type: ignore[method-assign]


@contextmanager
def row_groups_of(size: int) -> Iterator[None]:
    """Write row groups of so few bytes that a rewrite merges several parts."""
    usual, base_writer._ROW_GROUP_BYTES = base_writer._ROW_GROUP_BYTES, size
    try:
        yield
    finally:
        base_writer._ROW_GROUP_BYTES = usual


VERBS: dict[str, Callable[[Table, pa.Table], object]] = {
    "upsert": lambda table, data: table.upsert(marked(data, False)),
    "mark": lambda table, data: table.upsert(marked(data, True)),
    "stream": lambda table, data: table.upsert(iter([marked(data, False).slice(n, 1) for n in range(data.num_rows)])),
    "delete": lambda table, data: table.delete(data["id"].to_pylist()),
    "insert": lambda table, data: table.insert(marked(data, False)),
    "bulk": lambda table, data: table.bulk_insert(marked(data, False)),
    "overwrite": lambda table, data: table.insert_overwrite(marked(data, False)),
    "cluster": lambda table, _: table.cluster(columns=["v"]),
    "compact": lambda table, _: table.compact() if table.properties.table_type.value == "MERGE_ON_READ" else None,
}
#: Verbs that append rows whose keys are stored.
TWICE = {"insert", "bulk"}
WRITES = st.lists(
    st.tuples(st.sampled_from(list(VERBS)), st.integers(0, 9), st.integers(1, 8), st.integers(0, 5), st.booleans()),
    min_size=1,
    max_size=6,
)
#: New rows go to stored files, as Hudi does it.
FILLS: dict[str, object] = {"lakefmt.write.small.files": "fill"}
INDEXES = ["BLOOM", "GLOBAL_BLOOM", "RECORD_INDEX"]


@pytest.mark.slow
@settings(max_examples=examples(25), phases=[Phase.generate])
@given(
    writes=WRITES,
    kind=st.sampled_from(["cow", "cow", "mor"]),
    version=st.sampled_from([6, 8, 9]),
    index=st.sampled_from(INDEXES),
    fills=st.booleans(),
    row_group=st.sampled_from([32 << 20, 100]),
)
def test_what_is_recorded_is_what_the_files_say(
    writes: list[tuple[str, int, int, int, bool]], kind: str, version: int, index: str, fills: bool, row_group: int
) -> None:
    more: dict[str, object] = {"hoodie.index.type": index, **(FILLS if fills else {})}
    more |= {f"hoodie.{each}.index.update.partition.path": "true" for each in ("bloom", "record")}
    with compared_with_files(), row_groups_of(row_group):
        table = make(kind, version, more=more)
        table.upsert(marked(rows(0, 9, 2), False))
        for verb, first, count, order, moved in writes:
            VERBS[verb](table, rows(first, first + count, order, shift=int(moved)))
    # A key may be in several places then, of which the record index has one.
    if index != "BLOOM" and not TWICE & {verb for verb, *_ in writes}:
        check_metadata_table(table)


def told_of_upsert(table: Table, data: pa.Table) -> list[Keys]:
    with compared_with_files() as told:
        table.upsert(data)
    return told


def test_an_upsert_tells_new_keys_and_marked_ones() -> None:
    table = make("cow", 8, FILLS, partition_by=None)
    table.upsert(marked(rows(0, 6, 1), False))
    data = pa.concat_tables([marked(rows(0, 2, 2), True), marked(rows(4, 8, 2), False)])
    assert told_of_upsert(table, data) == [(["k6", "k7"], ["k0", "k1"])]
    check_metadata_table(table)


def test_files_that_are_rewritten_together_record_their_own_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []
    original = bundles.rewrite_together

    def counted(bound: Any, assignments: Any, *rest: Any, **named: Any) -> Any:
        together.append(len(assignments))
        return original(bound, assignments, *rest, **named)

    monkeypatch.setattr(bundles, "rewrite_together", counted)
    table = make("cow", 8, FILLS)
    cities = pa.array([f"c{n % 12:02d}" for n in range(60)])
    data = rows(0, 60, 1).set_column(1, "city", cities)
    table.upsert(marked(data.slice(0, 48), False))
    # Of each city one row goes, one changes and one is new; of the first the one that goes is missing.
    told = told_of_upsert(
        table,
        pa.concat_tables(
            [marked(data.slice(1, 11), True), marked(data.slice(24, 12), False), marked(data.slice(48), False)]
        ),
    )
    assert sum(together) == 12
    assert sorted(told) == sorted(([f"k{48 + n}"], [f"k{n}"] if n else []) for n in range(12))
    check_metadata_table(table)


def test_a_row_that_moves_to_another_partition_is_told_by_both_files() -> None:
    table = make("cow", 8, more={"hoodie.index.type": "GLOBAL_BLOOM"})
    table.upsert(rows(0, 6, 1))
    told = told_of_upsert(table, rows(0, 2, 2, shift=1))
    added, left = [key for some, _ in told for key in some], [key for _, some in told for key in some]
    assert (sorted(added), sorted(left)) == (["k0", "k1"], ["k0", "k1"])
    check_metadata_table(table)


def test_a_key_that_is_stored_twice_and_removed_once_has_not_left() -> None:
    """The older row goes, the newer one wins over the delete and stays."""
    table = make("cow", 8, FILLS, partition_by=None)
    table.upsert(marked(rows(0, 3, 1), False))
    table.insert(marked(rows(0, 1, 9), False))
    assert told_of_upsert(table, marked(rows(0, 2, 5), True)) == [([], ["k1"])]
    assert sorted(table.read()["id"].to_pylist()) == ["k0", "k2"]


def test_a_rewrite_reads_no_file_for_the_record_index(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make("cow", 8, FILLS, partition_by=None)
    table.upsert(rows(0, 6, 1))
    monkeypatch.setattr(commit_updates._ChangedGroups, "_read", lambda *_: pytest.fail("a file was read"))
    table.upsert(rows(4, 9, 2))
    table.delete(["k1"])
    table.insert(rows(20, 21, 2))
    monkeypatch.undo()
    assert set(check_metadata_table(table)["record_index"]) == {f"k{n}" for n in (0, *range(2, 9), 20)}


def test_another_process_reads_what_it_was_not_told() -> None:
    table = make("cow", 8, FILLS, partition_by=None)
    table.upsert(rows(0, 6, 1))
    context = begin_write(table, "upsert")
    statuses = [write_files(context, *piece) for piece in assign(context, rows(4, 8, 2))]
    with compared_with_files() as told:
        result = commit(context, statuses)
    assert result is not None
    assert told == [(["k6", "k7"], [])]
    check_metadata_table(table)


@pytest.mark.parametrize("how", ["recorded", "held", "read again"])
def test_a_key_that_is_stored_twice_is_indexed_where_it_stays(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index finds one of two places; the file group with the other one is changed by the same delete."""
    if how != "recorded":
        monkeypatch.setattr(WrittenKeys, "keep", lambda *_: None)
    if how == "read again":
        monkeypatch.setattr(commit_updates, "_MOST_HELD_BYTES", 0)
    more = {"hoodie.index.type": "RECORD_INDEX", "hoodie.parquet.small.file.limit": 0}
    table = make("cow", 8, more, partition_by=None)
    table.upsert(rows(0, 6, 1))
    (stays,) = table.file_groups()
    table.bulk_insert(pa.concat_tables([rows(0, 1, 2), rows(6, 8, 2)]))
    table.delete(["k0", "k1"])
    assert table.read()["id"].to_pylist().count("k0") == 1
    records = check_metadata_table(table)["record_index"]
    assert {record.location.file_id for key, record in records.items() if key == "k0" and record.location} == {
        stays.file_id
    }


def test_only_what_is_recorded_of_both_files_is_believed() -> None:
    """Logs beside a base file, or another base file than the one that was rewritten, have keys that were not recorded."""
    names = ("f-0_1-0-0_20260101000000000", "f-0_1-0-0_20260102000000000", "f-0_1-0-0_20260103000000000")
    bases, _ = parse_files(PartitionPath("p"), [ObjectInfo(f"p/{name}.parquet", 9) for name in names])
    _, (log,) = parse_files(PartitionPath("p"), [ObjectInfo("p/.f-0_20260103000000000.log.1_0-1-0", 9)])
    old, new, other = (FileSlice(base.partition, base.file_id, base.instant, base) for base in bases)
    written = WrittenKeys()
    some, nothing = pa.array(["k1"]), pa.array([], pa.string())
    change = FileKeyChange(bases[0].path, some, nothing)
    written.keep(bases[1].path, change)
    written.keep(bases[2].path, FileKeyChange(None, some, nothing))
    asking: Any = SimpleNamespace(collector=SimpleNamespace(written_keys=written))

    def recorded(before: FileSlice | None, after: FileSlice | None) -> FileKeyChange | None:
        return commit_updates._ChangedGroups._recorded(asking, before, after)

    assert recorded(old, new) is change
    assert recorded(None, other) is not None
    assert recorded(other, new) is None
    assert recorded(None, new) is None
    assert recorded(replace(old, logs=(log,)), new) is None
    assert recorded(replace(old, base=None, logs=(log,)), other) is None
    assert recorded(old, replace(new, logs=(log,))) is None
    assert recorded(old, None) is None
    asking.collector.written_keys = None
    assert recorded(old, new) is None


# ----------------------------------------------------------------------------------------------------------- sabotage


def _told_wrong(monkeypatch: pytest.MonkeyPatch, change: Callable[[FileKeyChange], FileKeyChange]) -> None:
    original = WrittenKeys.keep
    monkeypatch.setattr(WrittenKeys, "keep", lambda self, path, told: original(self, path, change(told)))


@pytest.mark.parametrize("which", ["added", "left"])
def test_keys_that_are_not_told_are_seen(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make("cow", 8, FILLS, partition_by=None)
    table.upsert(marked(rows(0, 6, 1), False))
    nothing = pa.array([], pa.string())
    _told_wrong(
        monkeypatch,
        lambda told: FileKeyChange(
            told.base, nothing if which == "added" else told.added, nothing if which == "left" else told.left
        ),
    )
    data = pa.concat_tables([marked(rows(0, 2, 2), True), marked(rows(4, 8, 2), False)])
    with pytest.raises(AssertionError):
        told_of_upsert(table, data)
    _told_wrong(monkeypatch, lambda told: told)
    table = make("cow", 8, FILLS, partition_by=None)
    table.upsert(marked(rows(0, 6, 1), False))
    table.upsert(data)
    with pytest.raises(AssertionError):
        check_metadata_table(table)


# --------------------------------------------------------------------------------------------------------- pure parts


def test_what_does_not_fit_is_not_kept() -> None:
    keys, nothing = pa.array(["k1", "k2"]), pa.array([], pa.string())
    change = FileKeyChange(None, keys, nothing)
    written = WrittenKeys(most_bytes=change.num_bytes)
    written.keep("a", change)
    written.keep("b", change)
    assert (written.of_file("a"), written.of_file("b")) == (change, None)
    assert written.free_bytes == 0


KEYS = st.lists(st.sampled_from("abcdefgh"), max_size=8)


@given(before=KEYS, after=KEYS, grows=st.booleans())
def test_a_comparison_finds_what_sets_find(before: list[str], after: list[str], grows: bool) -> None:
    after = before + after if grows else after
    added, left = compared_keys(pa.array(before, pa.string()), pa.array(after, pa.string()))
    assert added.to_pylist() == [key for key in after if key not in before]
    assert left.to_pylist() == [key for key in before if key not in after]


@given(st.lists(st.tuples(st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from("abcd"))), max_size=3))
def test_keys_are_lost_that_no_file_group_has_any_more(groups: list[tuple[set[str], set[str]]]) -> None:
    left = set().union(*(before - after for before, after in groups))
    changes = [
        ChangedKeys(RecordLocation("", str(n), 0), *(pa.array(sorted(keys), pa.string()) for keys in some))
        for n, (before, after) in enumerate(groups)
        for some in [(after - before, before - after, before & after & left)]
    ]
    befores, afters = (set().union(*(group[n] for group in groups)) for n in (0, 1))
    assert lost_keys(changes) == bool(befores - afters)
