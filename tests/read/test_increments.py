"""Increments: a puller that goes on until dry has the table, and nothing twice, whatever completes in which order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.read.incremental import plan_increment, visible_at_end
from lakefmt._core.storage import open_store
from lakefmt._core.table import Table
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.instant import Action, Instant, State, instant_file_name, parse_instant_file
from lakefmt._core.timeline.metadata_codec import BodyKind, encode_body
from lakefmt._core.timeline.timeline import Timeline, build_timeline, timeline_from_names
from lakefmt._core.values import FileId, InstantTime, PartitionPath, WriteOperation, WriteStat
from lakefmt.testing.stores import CountingStore
from tests.judges.compare import assert_same_multiset

# --- a table as a model: file groups of rows, each with the commit that wrote it -------------------------------------

Rows = dict[int, InstantTime]


def at(number: int) -> InstantTime:
    return InstantTime(f"2026010100000{number:04d}")


@dataclass
class Model:
    """A copy-on-write table in memory: commits are begun, complete in any order, and a puller looks in between."""

    layout: int
    clock: int = 0
    begun: list[Instant] = field(default_factory=list)
    done: dict[InstantTime, Instant] = field(default_factory=dict)
    contents: dict[InstantTime, CommitMetadata] = field(default_factory=dict)
    files: dict[str, Rows] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    touched: dict[str, InstantTime] = field(default_factory=dict)
    keys: int = 0

    def tick(self) -> InstantTime:
        self.clock += 1
        return at(self.clock)

    def begin(self) -> None:
        self.begun.append(Instant(self.tick(), Action.COMMIT, State.INFLIGHT))

    def complete(self, instant: Instant, choice: int) -> None:
        """Complete a commit: a new group, an updated one, an overwritten one, or a clustering of two."""
        self.begun.remove(instant)
        # Concurrent commits never touch the same group: one of them would be refused.
        known = sorted(group for group in self.groups if self.touched[group] < instant.time)
        wanted = choice % 4 if known else 0
        kind = [WriteOperation.INSERT, WriteOperation.UPSERT, WriteOperation.INSERT_OVERWRITE, WriteOperation.CLUSTER][
            wanted
        ]
        chosen = known[choice // 4 % len(known) :][:2] if known else []
        rows: Rows = {}
        if kind is WriteOperation.CLUSTER:
            rows = {key: time for group in chosen for key, time in self.files[self.groups[group]].items()}
        elif kind is WriteOperation.UPSERT:
            rows = dict(self.files[self.groups[chosen[0]]])
            rows |= dict.fromkeys(sorted(rows)[:1], instant.time)
        if kind is not WriteOperation.CLUSTER:
            rows |= {self.keys: instant.time}
            self.keys += 1
        group = chosen[0] if kind is WriteOperation.UPSERT else f"g{len(self.files)}-0"
        replaced = chosen if kind in (WriteOperation.INSERT_OVERWRITE, WriteOperation.CLUSTER) else []
        if kind is WriteOperation.INSERT_OVERWRITE:
            replaced = chosen[:1]
        for one in replaced:
            del self.groups[one]
        self._write(instant, kind, group, rows, replaced)

    def _write(self, instant: Instant, kind: WriteOperation, group: str, rows: Rows, replaced: list[str]) -> None:
        name = f"{group}_1-0-0_{instant.time}.parquet"
        self.files[name] = rows
        self.groups[group] = name
        partition = PartitionPath("p")
        stat = WriteStat(FileId(group), partition, f"p/{name}")
        hidden = {partition: tuple(map(FileId, replaced))} if replaced else {}
        self.contents[instant.time] = CommitMetadata(kind, (stat,), hidden)
        action = Action.REPLACE_COMMIT if replaced else Action.COMMIT
        completion = self.touched[group] = self.tick()
        done = completion if self.layout == 2 else None
        self.done[instant.time] = Instant(instant.time, action, State.COMPLETED, done)

    def timeline(self) -> Timeline:
        return build_timeline([*self.begun, *self.done.values()], self.layout)

    def snapshot(self) -> Rows:
        return {key: time for name in self.groups.values() for key, time in self.files[name].items()}

    def pull(self, start: str) -> tuple[list[tuple[int, InstantTime]], str]:
        found = plan_increment(self.timeline(), start, None, lambda i: self.contents[i.time])
        rows = [
            (key, time) for file in found.files for key, time in self.files[file.name].items() if time in found.commits
        ]
        return rows, found.next_start


@given(st.sampled_from([1, 2]), st.lists(st.integers(0, 40), max_size=40))
def test_pulling_until_dry_neither_skips_nor_repeats_a_row(layout: int, steps: list[int]) -> None:
    model, start = Model(layout), "000"
    pulled: list[tuple[int, InstantTime]] = []

    def pull() -> None:
        nonlocal start
        rows, start = model.pull(start)
        pulled.extend(rows)

    for step in steps:
        if step % 5 == 0:
            pull()
        elif step % 5 < 3 or not model.begun:
            model.begin()
        else:
            model.complete(model.begun[step % len(model.begun)], step)
    for instant in list(model.begun):
        model.complete(instant, 0)
    pull()
    rest, end = model.pull(start)
    assert (rest, end) == ([], start), "dry"
    assert len(pulled) == len(set(pulled)), "a row came twice from one commit"
    missing = set(model.snapshot().items()) - set(pulled)
    assert not missing


@given(st.lists(st.integers(1, 40), min_size=1, max_size=25))
def test_two_ranges_hold_what_one_range_holds(steps: list[int]) -> None:
    model = Model(2)
    for step in steps:
        model.begin()
        model.complete(model.begun[0], step)
    ends = [i.order_time for i in model.timeline().commits_by_completion]
    whole, _ = model.pull("000")
    middle = ends[len(ends) // 2]

    def rows(start: str, end: str | None) -> set[tuple[int, InstantTime]]:
        found = plan_increment(model.timeline(), start, end, lambda i: model.contents[i.time])
        assert found.next_start == max((e for e in ends if start < e <= (end or "9")), default=start)
        return {
            (key, time) for file in found.files for key, time in model.files[file.name].items() if time in found.commits
        }

    both = rows("000", middle) | rows(middle, None)
    assert set(whole) <= both
    assert rows(ends[-1], None) == set()


# --- single rules -------------------------------------------------------------------------------------------------


def timeline(*names: str, layout: int) -> Timeline:
    found = [parse_instant_file(name, layout) for name in names]
    return build_timeline((i for i in found if i is not None), layout)


def content(instant: Instant) -> CommitMetadata:
    name = f"g{instant.time[-1]}-0_1-0-0_{instant.time}.parquet"
    stat = WriteStat(FileId(name.partition("_")[0]), PartitionPath(""), name)
    return CommitMetadata(WriteOperation.INSERT, (stat,))


def test_without_completion_times_the_range_ends_before_the_first_pending_write() -> None:
    names = [f"{at(1)}.commit", f"{at(2)}.commit.requested", f"{at(3)}.commit", f"{at(4)}.replacecommit.requested"]
    line = timeline(*names, layout=1)
    assert plan_increment(line, "000", None, content).commits == (at(1),)
    assert plan_increment(line, "000", at(3), content).next_start == at(1)
    assert plan_increment(line, at(2), None, content).commits == (at(3),), "who starts behind it asked for that"
    services = [f"{at(1)}.commit", f"{at(2)}.compaction.requested", f"{at(2)}.clean.inflight", f"{at(3)}.commit"]
    assert plan_increment(timeline(*services, layout=1), "000", None, content).commits == (at(1), at(3))
    idle = plan_increment(timeline(names[0], names[3], f"{at(5)}.commit", layout=1), "000", None, content, {at(4)})
    assert idle.commits == (at(1), at(5))


def test_by_completion_a_pending_write_holds_nobody_up() -> None:
    names = [f"{at(1)}_{at(9)}.commit", f"{at(2)}.inflight", f"{at(3)}_{at(4)}.commit"]
    line = timeline(*names, layout=2)
    assert plan_increment(line, "000", None, content).commits == (at(3), at(1))
    assert plan_increment(line, at(4), None, content).commits == (at(1),)
    assert plan_increment(line, "000", at(8), content).next_start == at(4)


def test_groups_with_logs_are_told_from_those_whose_newest_base_file_has_all() -> None:
    def said(instant: Instant) -> CommitMetadata:
        base, log = f"f-0_0-0-0_{instant.time}.parquet", f".f-0_{instant.time}.log.1_0-0-0"
        name = base if instant.time == at(1) else log
        return CommitMetadata(WriteOperation.UPSERT, (WriteStat(FileId("f-0"), PartitionPath(""), name),))

    line = timeline(f"{at(1)}_{at(2)}.deltacommit", f"{at(3)}_{at(4)}.deltacommit", layout=2)
    everything = plan_increment(line, "000", None, said)
    assert (everything.groups, everything.has_logs, everything.files) == ({("", "f-0")}, True, ())
    first = plan_increment(line, "000", at(2), said)
    assert (first.has_logs, [file.name for file in first.files]) == (False, [f"f-0_0-0-0_{at(1)}.parquet"])


# --- on a table ---------------------------------------------------------------------------------------------------

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])


def rows(first: int, last: int, n: int) -> pa.Table:
    ids = range(first, last)
    return pa.table(
        {"id": [f"k{i}" for i in ids], "city": [f"c{i % 3}" for i in ids], "n": [n] * len(ids)}, schema=SCHEMA
    )


def make(root: Path, version: int = 8) -> Table:
    return lakefmt.create_table(str(root), schema=SCHEMA, record_key="id", partition_by="city", table_version=version)


def pulls(table: Table) -> Iterator[pa.Table]:
    start = "000"
    while True:
        found = table.incremental(start)
        following = found.schema.metadata[b"lakefmt.next_start"].decode()
        if following == start:
            assert found.num_rows == 0
            return
        yield found
        start = following


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_puller_has_the_table_in_the_end(tmp_path: Path, version: int) -> None:
    table = make(tmp_path / "t", version)
    table.insert(rows(0, 9, 1))
    seen = {row["id"]: row for found in pulls(table) for row in found.to_pylist()}
    table.upsert(rows(5, 12, 2))
    table.insert_overwrite(rows(3, 4, 3))
    seen |= {row["id"]: row for found in pulls(table) for row in found.to_pylist()}
    current = {row["id"]: row for row in table.read().to_pylist()}
    assert {key: row for key, row in seen.items() if key in current} == current


def test_only_files_that_the_selected_commits_name_are_opened(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.insert(rows(0, 9, 1))
    first = table.timeline.timeline.commits[0].order_time
    done = table.upsert(rows(0, 1, 2))
    store = CountingStore(open_store(str(tmp_path / "t")))
    found = Table(TableClient(store)).incremental(first)
    assert found.to_pylist() == rows(0, 1, 2).to_pylist()
    opened = {one.name for one in store.log if one.kind == "range"}
    assert opened == {stat.path for stat in done.files}
    assert len(opened) == 1
    outside = {one.kind for one in store.log if not one.name.startswith(".hoodie")}
    assert outside == {"range"}, "nothing is listed"


def test_columns_filters_and_bounds(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    one = table.insert(rows(0, 6, 1))
    two = table.upsert(rows(3, 9, 2))
    assert one.completion_time is not None
    assert two.completion_time is not None
    found = table.incremental(one.completion_time, columns=["id"], filter="city = 'c0'")
    assert sorted(found.column("id").to_pylist()) == ["k3", "k6"]
    assert_same_multiset(table.incremental("000", one.completion_time), rows(0, 6, 1))
    assert table.incremental(one.completion_time, two.completion_time).num_rows == 6
    assert table.incremental(one.instant).num_rows == 9, "by completion: the requested time starts before it"


def test_commits_that_complete_out_of_order_on_a_table(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    results = [table.insert(rows(0, 3, 1)), table.insert(rows(10, 13, 2)), table.insert(rows(20, 23, 3))]
    directory = tmp_path / "t/.hoodie/timeline"
    # The first commit completes last.
    late = results[0]
    (old,) = directory.glob(f"{late.instant}_*.commit")
    old.rename(directory / f"{late.instant}_{int(results[2].completion_time or 0) + 5}.commit")
    assert results[1].completion_time is not None
    found = table.incremental(results[1].completion_time)
    assert_same_multiset(found, pa.concat_tables([rows(0, 3, 1), rows(20, 23, 3)]))
    assert table.incremental("000", results[2].completion_time).num_rows == 6


def test_a_planned_clustering_of_version_6_holds_nobody_up(tmp_path: Path) -> None:
    table = make(tmp_path / "t", 6)
    table.insert(rows(0, 3, 1))
    time = InstantTime(str(int(table.timeline.timeline.commits[0].time) + 1))
    requested = tmp_path / "t/.hoodie" / instant_file_name(time, Action.REPLACE_COMMIT, State.REQUESTED, 1)
    requested.write_bytes(encode_body(BodyKind.REQUESTED_REPLACE, {"operationType": "CLUSTER"}))
    later = tmp_path / "t/.hoodie" / f"{int(time) + 5}.commit"
    first = tmp_path / "t/.hoodie" / f"{table.timeline.timeline.commits[0].time}.commit"
    later.write_bytes(first.read_bytes())
    assert table.incremental("000").schema.metadata[b"lakefmt.next_start"] == later.name[:17].encode()
    requested.write_bytes(encode_body(BodyKind.REQUESTED_REPLACE, {"operationType": "INSERT_OVERWRITE"}))
    assert table.incremental("000").schema.metadata[b"lakefmt.next_start"] == first.name[:17].encode()


def test_a_commit_that_completes_after_the_end_is_no_archived_one() -> None:
    """It was requested before every commit that is left, as those are that have left the active timeline."""
    slow, fast = "20260101000000000", "20260101000001000"
    names = [f"{slow}_20260101000009000.commit", f"{fast}_20260101000001500.commit"]
    then = visible_at_end(timeline_from_names(names, 2), "20260101000002000")
    assert [then.is_committed(InstantTime(time)) for time in (slow, fast)] == [False, True]
    assert not then.with_history(timeline_from_names(names, 2)).is_committed(InstantTime(slow))
