"""What is no damage, what is only worth a note, and how a check and a plan are asked."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.check.findings import (
    AcceptLoss,
    CheckReport,
    CorrectCounts,
    DeleteFiles,
    Finding,
    Kind,
    RewriteFile,
    plan_repair,
)
from lakefmt._core.check.repair import repair_table
from lakefmt._core.check.run import check_table
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.local import LocalStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.metadata_codec import BodyKind, encode_body
from lakefmt._core.timeline.store import update_properties
from lakefmt._core.values import RECORD_KEY, FileId, InstantTime, PartitionPath
from lakefmt.errors import InvalidInputError, TableNotFound, UnsafePath
from lakefmt.testing.multiset import multiset_difference
from tests.check.kit import (
    NUMBERS,
    OPTIONS,
    SABOTAGE,
    SCHEMA,
    STAT_KEY,
    VERSIONS,
    Scene,
    another,
    edit_commit,
    refoot,
    rows,
    scene,
    spoil_pages,
    tamper,
)
from tests.compat.fixture_tables import RealTable, real_tables
from tests.read.archiving import archive, archive_sorted, completed_files


def first(options: list[Any]) -> Any:
    return options[0]


def last(options: list[Any]) -> Any:
    return options[-1]


def made(version: int = 8, **how: Any) -> lakefmt.Table:
    asked = {"record_key": "id", "partition_by": "city", "ordering": "ts", "options": OPTIONS, **how}
    return lakefmt.create_table(f"memory://sound-{next(NUMBERS)}", schema=SCHEMA, table_version=version, **asked)


def full(table: lakefmt.Table) -> CheckReport:
    return check_table(table.client, "full")


# -------------------------------------------------------------------------------------------------- what is no damage


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_every_verb_leaves_a_sound_table(version: int) -> None:
    table = made(version)
    assert full(table).is_clean
    undone = None
    for write in (
        lambda: table.bulk_insert(rows(0, 20, ts=1)),
        lambda: table.insert(rows(20, 24, ts=1)),
        lambda: table.upsert(rows(10, 30, ts=2)),
        lambda: table.upsert(rows(0, 30, ts=0)),
        lambda: table.upsert(rows(0, 4, ts=5).select(["id", "city", "ts"]), partial=True),
        lambda: table.update("id = 'k001'", {"v": 7.5}),
        lambda: table.delete(["k002", "k003"]),
        lambda: table.delete("ts = 2 and city = 'oslo'"),
        lambda: table.insert_overwrite(rows(0, 1, ts=3)),
        lambda: table.upsert(rows(30, 40, ts=3)),
    ):
        undone = write()
        report = full(table)
        assert report.findings == (), str(report)
        assert report.notes == (), str(report)
    assert undone is not None
    table.rollback(str(undone.instant))
    table.delete_partitions(["city=oslo"])
    table.insert_overwrite_table(rows(50, 60, ts=4))
    report = full(table)
    assert report.findings == (), str(report)


@pytest.mark.parametrize(
    "how",
    [
        {"partition_by": None},
        {"record_key": ["id", "city"]},
        {"partition_by": ["city", "ts"]},
        {"ordering": None},
        {"index": "global_bloom"},
        {"index": "simple"},
        {"record_key": None, "ordering": None},
        {"properties": {"hoodie.datasource.write.hive_style_partitioning": "false"}},
    ],
    ids=str,
)
def test_every_form_of_table_is_sound(how: dict[str, Any]) -> None:
    table = made(**how)
    if how.get("record_key", "id") is None:
        table.insert(rows(0, 9, ts=1))
    else:
        table.upsert(rows(0, 9, ts=1))
        table.upsert(rows(3, 12, ts=2 if how.get("partition_by") != ["city", "ts"] else 1))
    report = full(table)
    assert report.findings == (), str(report)
    assert report.notes == ()


@pytest.mark.parametrize("real", real_tables(), ids=lambda real: real.name)
def test_tables_by_other_engines_are_sound(real: RealTable, tmp_path: Path) -> None:
    report = check_table(lakefmt.open_table(str(real.unpack(tmp_path))).client, "full")
    assert report.findings == (), str(report)


def test_cleaned_files_are_not_missed() -> None:
    table = made()
    for ts in range(1, 6):
        table.upsert(rows(0, 9, ts=ts))
    if not hasattr(table, "clean"):
        pytest.skip("there is no clean yet")
    table.clean(options={"hoodie.clean.commits.retained": 1})
    report = full(table)
    assert report.findings == (), str(report)
    older = table.client.load().timeline.commits[0].time
    assert all(older not in item.name for item in table.client.store.list() if item.name.endswith(".parquet"))


def test_what_was_archived_is_still_known(tmp_path: Path) -> None:
    root = tmp_path / "t"
    table = lakefmt.create_table(
        str(root), schema=SCHEMA, record_key="id", partition_by="city", ordering="ts", options=OPTIONS
    )
    for ts in range(1, 6):
        table.upsert(rows(0, 9, ts=ts))
    if not hasattr(table, "clean"):
        pytest.skip("there is no clean yet")
    table.clean(options={"hoodie.clean.commits.retained": 1})
    # Cleans are archived by themselves, before the commits whose files they removed.
    (clean,) = (path for path in completed_files(root) if path.suffix == ".clean")
    archive_sorted(root, [clean])
    for path in list(clean.parent.iterdir()):
        if path.name.startswith(clean.name[:17]):
            path.unlink()
    report = full(table)
    assert report.findings == (), str(report)
    archive(root, 3)
    report = full(table)
    assert report.findings == (), str(report)
    assert table.read().num_rows == 9


def test_a_writer_at_work_is_left_alone(tmp_path: Path) -> None:
    table = lakefmt.create_table(
        str(tmp_path / "t"), schema=SCHEMA, record_key="id", partition_by="city", ordering="ts", options=OPTIONS
    )
    table.upsert(rows(0, 9, ts=1))
    context = lowlevel.begin_write(table, "upsert")
    work = lowlevel.assign(context, rows(5, 20, ts=2))
    statuses = [lowlevel.write_files(context, assignment, batches) for assignment, batches in work]
    report = full(table)
    assert report.findings == (), str(report)
    # Beside a living writer something that is broken stays broken; nothing of the writer's is touched.
    store = LocalStore(str(tmp_path / "t"))
    gone = ".hoodie/.heartbeat/20200101000000000"
    store.put(gone, b"")
    done = repair_table(table.client, full(table).plan, check_table)
    assert [outcome.state for outcome in done.outcomes] == ["failed"]
    assert "may be alive" in done.outcomes[0].why
    assert lowlevel.commit(context, statuses).num_updates == 4
    assert repair_table(table.client, full(table).plan, check_table).is_clean
    assert table.read().num_rows == 20


@pytest.mark.slow
def test_checks_beside_writes_and_cleans_see_nothing_wrong(tmp_path: Path) -> None:
    options = {**OPTIONS, "hoodie.clean.commits.retained": 1}
    table = lakefmt.create_table(
        str(tmp_path / "t"), schema=SCHEMA, record_key="id", partition_by="city", ordering="ts", options=options
    )
    table.upsert(rows(0, 9, ts=1))
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for ts in range(2, 10):
                written = table.upsert(rows(0, 9 + ts, ts=ts))
                if ts % 4 == 0:
                    table.rollback(str(written.instant))
                elif hasattr(table, "clean"):
                    table.clean()
        except BaseException as error:
            failures.append(error)

    writer = Thread(target=write)
    writer.start()
    checks = 0
    while writer.is_alive() or not checks:
        report = check_table(lakefmt.open_table(str(tmp_path / "t")).client, "full" if checks % 2 else "fast")
        assert report.findings == (), str(report)
        checks += 1
    writer.join()
    assert not failures, failures
    assert full(table).findings == ()


def test_temporary_files_of_ended_processes_are_found_and_swept(tmp_path: Path) -> None:
    table = lakefmt.create_table(
        str(tmp_path / "t"), schema=SCHEMA, record_key="id", partition_by="city", options=OPTIONS
    )
    table.upsert(rows(0, 3, ts=1))
    store = LocalStore(str(tmp_path / "t"))
    store.leave_temporary_object("city=sf/x.parquet", b"half")
    (mine,) = (path for path in (tmp_path / "t/city=sf").iterdir() if "tmp" in path.name)
    assert full(table).is_clean  # this process lives
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    machine, token, _, number = mine.name.rsplit("-", 3)
    mine.rename(mine.with_name(f"{machine}-{token}-{ended.pid}-{number}"))
    report = full(table)
    assert [finding.kind for finding in report.findings] == [Kind.ORPHAN_TEMPORARY]
    assert repair_table(table.client, report.plan, check_table).is_clean
    assert not [path for path in (tmp_path / "t/city=sf").iterdir() if "tmp" in path.name]


def leave_dead(root: Path, place: str) -> Path:
    """Leave in a directory of a table what a process leaves that died while it wrote a file there."""
    store = LocalStore(str(root))
    store.leave_temporary_object(f"{place}/x", b"half")
    mine = next(path for path in (root / place).iterdir() if "lakefmt-tmp" in path.name)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    machine, token, _, number = mine.name.rsplit("-", 3)
    return mine.rename(mine.with_name(f"{machine}-{token}-{ended.pid}-{number}"))


INSIDE = (
    *(".hoodie", ".hoodie/timeline", ".hoodie/timeline/history"),
    *(".hoodie/.heartbeat", ".hoodie/.temp/20260101", ".hoodie/.lakefmt"),
)


@pytest.mark.parametrize("version", [6, 8, 9])
def test_what_a_killed_upgrade_leaves_is_found_and_the_next_upgrade_sweeps_it(tmp_path: Path, version: int) -> None:
    """Wherever it died: before the table was of the new version, or when it was."""
    table = lakefmt.create_table(
        str(tmp_path / "t"), schema=SCHEMA, record_key="id", table_version=version, options=OPTIONS
    )
    table.upsert(rows(0, 3, ts=1))
    left = [leave_dead(tmp_path / "t", place) for place in INSIDE]
    report = full(table)
    found = {finding.where for finding in report.findings if finding.kind is Kind.ORPHAN_TEMPORARY}
    assert found == {path.relative_to(tmp_path / "t").as_posix() for path in left}
    table.upgrade(9)
    assert [path for path in left if path.exists()] == []
    assert full(table).is_clean
    left = [leave_dead(tmp_path / "t", place) for place in INSIDE]
    assert repair_table(table.client, full(table).plan, check_table).is_clean
    assert [path for path in left if path.exists()] == []


# -------------------------------------------------------------------------------------------------- keys that come twice


def test_keys_that_inserts_store_twice_are_a_note() -> None:
    table = made()
    table.insert(rows(0, 6, ts=1))
    table.insert(rows(3, 9, ts=1))
    report = full(table)
    assert report.is_clean
    assert [note.kind for note in report.notes] == [Kind.DUPLICATE_KEYS] * 3
    assert report.plan.is_empty
    table.upsert(rows(3, 6, ts=2))
    assert full(table).is_clean


def test_a_row_written_twice_by_an_insert_is_damage() -> None:
    table = scene()
    table.open().bulk_insert(rows(60, 66, ts=1))
    newest = table.open().client.load().timeline.commits[-1].time
    path = next(f.path for f in table.files() if f.instant == newest)
    tamper(table, path, lambda content, _: pa.concat_tables([content, content.slice(1, 1)]))
    report = check_table(table.open().client, "full")
    assert [finding.kind for finding in report.findings] == [Kind.DUPLICATE_KEYS]
    assert not report.plan.losing
    assert repair_table(table.open().client, report.plan, check_table).is_clean


@pytest.mark.parametrize(("index", "expected"), [("global_bloom", [Kind.DUPLICATE_KEYS]), ("bloom", [])])
def test_a_key_in_two_partitions_is_damage_when_the_index_is_global(index: str, expected: list[Kind]) -> None:
    table = scene(index=index)
    # Written past the index, as an engine with another index would.
    simple = lakefmt.Table(TableClient(table.store, {**OPTIONS, "hoodie.index.type": "SIMPLE"}))
    moved = rows(0, 1, ts=9)
    simple.upsert(moved.set_column(1, "city", pa.array(["oslo"])))
    assert simple.read(filter="id = 'k000'").num_rows == 2
    report = check_table(table.open().client, "full")
    assert [finding.kind for finding in report.findings] == expected
    if expected:
        assert report.findings[0].where == "the table"
        done = repair_table(table.open().client, report.plan, check_table, accept_loss=True)
        assert done.is_clean, str(done)
        assert simple.read(["city", "ts"], filter="id = 'k000'").to_pylist() == [{"city": "oslo", "ts": 9}]


def test_a_key_made_anew_may_come_twice_and_the_next_plan_says_so() -> None:
    table = scene()
    place = table.files()[0].partition
    one, other = [f for f in table.files() if f.partition == place][:2]
    keys: list[str] = []
    tamper(table, one.path, lambda content, _: keys.append(content.column("id")[0].as_py()) or content)

    def steal(content: pa.Table, footers: dict[str, str]) -> pa.Table:
        return another(content, "id", keys[0])

    tamper(table, other.path, steal)
    report = check_table(table.open().client, "full")
    assert [finding.kind for finding in report.findings] == [Kind.RECORD_KEYS]
    done = repair_table(table.open().client, report.plan, check_table)
    assert [finding.kind for finding in done.after.findings] == [Kind.DUPLICATE_KEYS]
    assert done.after.plan.losing
    assert repair_table(table.open().client, done.after.plan, check_table, accept_loss=True).is_clean


def test_a_wrong_key_that_looks_like_another_row_costs_no_row() -> None:
    table = scene()
    before = table.open().read()
    place = table.files()[0].partition
    one, other = [f for f in table.files() if f.partition == place][:2]
    keys: list[str] = []
    tamper(table, one.path, lambda content, _: keys.append(content.column("id")[0].as_py()) or content)

    def steal(content: pa.Table, footers: dict[str, str]) -> pa.Table:
        changed = another(content, RECORD_KEY, keys[0])
        refoot(footers, changed.column(RECORD_KEY))
        return changed

    tamper(table, other.path, steal)
    client = table.open().client
    report = check_table(client, "full")
    assert {finding.kind for finding in report.findings} == {Kind.RECORD_KEYS, Kind.DUPLICATE_KEYS}
    assert repair_table(client, report.plan, check_table, accept_loss=True).is_clean
    assert not multiset_difference(table.open().read(), before)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("hoodie.table.recordkey.fields", "v", Kind.RECORD_KEYS),
        ("hoodie.datasource.write.hive_style_partitioning", "false", Kind.WRONG_PARTITION),
    ],
)
def test_settings_that_fit_no_row_are_not_believed(key: str, value: str, kind: Kind) -> None:
    table = scene()
    update_properties(table.store, {key: value}, datetime(2026, 1, 1, tzinfo=UTC), durable=False)
    report = check_table(table.open().client, "full")
    assert {finding.kind for finding in report.findings} == {kind}
    assert report.plan.is_empty
    assert "correct the key and partition settings" in report.findings[0].remedy


# --------------------------------------------------------------------------------------------------------- the past


@pytest.mark.parametrize("name", ["filter_denies", "wrong_partition", "meta_partition", "counted_rows"])
def test_a_repair_shows_in_no_increment_and_changes_no_past(name: str) -> None:
    table = scene()
    SABOTAGE[name](table, first)
    commits = table.open().client.load().timeline.commits
    then = {c.time: table.open().read(as_of=c.time) for c in commits}
    end = str(table.open().client.load().timeline.highest_time)
    client = table.open().client
    assert repair_table(client, check_table(client, "full").plan, check_table).is_clean
    assert table.open().incremental(end).num_rows == 0
    for time, rows_then in then.items():
        assert not multiset_difference(table.open().read(as_of=time), rows_then)


def test_rows_cut_from_a_foreign_file_are_not_made_right_without_a_yes() -> None:
    table = scene()
    path = table.files()[0].path
    old = {s["path"]: dict(s) for s in _stats(table, path)}

    def cut(content: pa.Table, footers: dict[str, str]) -> pa.Table:
        del footers[STAT_KEY]
        return content.slice(1)

    tamper(table, path, cut)
    edit_commit(table, path, lambda stat: stat.update(old[path]))
    report = check_table(table.open().client, "full")
    assert [(f.kind, f.where) for f in report.findings] == [(Kind.COUNTS, path)]
    assert "1 rows were cut" in report.findings[0].loses
    done = repair_table(table.open().client, report.plan, check_table)
    assert [outcome.state for outcome in done.outcomes] == ["refused"]
    assert repair_table(table.open().client, report.plan, check_table, accept_loss=True).is_clean


def _stats(table: Scene, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    edit_commit(table, path, found.append)
    return found


def test_the_old_bytes_of_what_was_replaced_are_kept() -> None:
    table = scene()
    (kind_and_path,) = SABOTAGE["counted_rows"](table, first).found
    name = edit_commit(table, kind_and_path[1], lambda stat: None)
    wrong = table.store.read(name)
    client = table.open().client
    assert repair_table(client, check_table(client).plan, check_table).is_clean
    assert table.store.read(f".hoodie/.lakefmt/repaired/{name.rpartition('/')[2]}.0") == wrong
    assert table.store.read(name) != wrong


def test_a_clustering_that_waits_is_not_stuck_and_one_that_died_is_not_ours() -> None:
    table = scene(6)
    time = str(int(str(table.open().client.load().timeline.highest_time)) + 1)
    plan = {"operationType": "CLUSTER", "clusteringPlan": {"inputGroups": []}}
    table.store.put(f".hoodie/{time}.replacecommit.requested", encode_body(BodyKind.REQUESTED_REPLACE, plan))
    assert check_table(table.open().client).is_clean
    table.store.put(f".hoodie/{time}.replacecommit.inflight", b"")
    report = check_table(table.open().client)
    assert [finding.kind for finding in report.findings] == [Kind.STUCK_INSTANT]
    assert report.plan.is_empty


# --------------------------------------------------------------------------------------------------------- many at once


def test_many_kinds_at_once_are_named_and_mended_together() -> None:
    names = [
        "stuck_requested",
        "orphan_file",
        "filter_denies",
        "counted_bytes",
        "orphan_markers",
        "notes",
        "backup_left",
    ]
    table = scene()
    before = table.open().read()
    wanted = set()
    for number, name in enumerate(names):
        wanted |= SABOTAGE[name](table, lambda options, at=number: options[at % len(options)]).found
    report = check_table(table.open().client, "full")
    assert {(f.kind, f.where) for f in report.findings} == wanted
    done = repair_table(table.open().client, report.plan, check_table)
    assert done.is_clean, str(done)
    assert not multiset_difference(table.open().read(), before)


def test_only_the_partitions_named_are_looked_at() -> None:
    table = scene()
    found = SABOTAGE["filter_denies"](table, first).found
    ((_, path),) = found
    place = path.rpartition("/")[0]
    others = sorted({f.partition for f in table.files()} - {place})
    client = table.open().client
    assert check_table(client, "full", others).is_clean
    report = check_table(client, "full", [place])
    assert {(f.kind, f.where) for f in report.findings} == found
    assert repair_table(client, report.plan, check_table).is_clean


# ------------------------------------------------------------------------------------------------------- plans that age


def test_a_commit_between_look_and_act_stops_the_rewriting() -> None:
    table = scene()
    SABOTAGE["twice_in_a_partition"](table, first)
    client = table.open().client
    plan = check_table(client, "full").plan
    calls: list[int] = []

    def slow_check(client: TableClient, level: str = "fast", partitions: Any = None) -> CheckReport:
        report = check_table(client, level, partitions)
        if not calls:
            table.open().upsert(rows(70, 71, ts=1))
        calls.append(1)
        return report

    done = repair_table(client, plan, slow_check, accept_loss=True)
    assert [outcome.state for outcome in done.outcomes] == ["passed"]
    assert "another commit" in done.outcomes[0].why
    assert not done.is_clean
    assert repair_table(client, done.after.plan, check_table, accept_loss=True).is_clean


def test_one_file_that_cannot_be_rewritten_does_not_keep_the_others() -> None:
    table = scene()
    broken, mended = (next(iter(SABOTAGE["footers_gone"](table, pick).found))[1] for pick in (first, last))
    spoil_pages(table, broken, "v")  # no check reads this column
    client = table.open().client
    report = check_table(client, "full")
    assert {finding.where for finding in report.findings} == {broken, mended}
    done = repair_table(client, report.plan, check_table)
    assert {o.step.source.path: o.state for o in done.outcomes} == {broken: "failed", mended: "done"}  # type: ignore[union-attr]
    assert [finding.where for finding in done.after.findings] == [broken]
    assert table.open().client.load().timeline.pending == ()


def test_a_plan_that_was_tampered_with_is_refused() -> None:
    table = scene()
    SABOTAGE["twice_in_a_file"](table, first)
    report = check_table(table.open().client, "full")
    (step,) = report.plan.steps
    assert isinstance(step, RewriteFile)
    foreign = replace(report.findings[0], steps=(replace(step, drop=np.array([10**6])),))

    def lying(client: TableClient, level: str = "fast", partitions: Any = None) -> CheckReport:
        return replace(check_table(client, level, partitions), findings=(foreign,))

    done = repair_table(table.open().client, report.plan, lying)
    assert [outcome.state for outcome in done.outcomes] == ["failed"]
    assert "check the table again" in done.outcomes[0].why


def test_what_somebody_has_is_not_deleted_whatever_a_plan_says() -> None:
    """Between the look and the lock a file may have become somebody's."""
    table = scene()
    named = table.files()[0].path
    stem = named.rpartition("_")[0]
    newest = int(str(table.open().client.load().timeline.highest_time))
    pending, claimed, free = (f"{newest + n}" for n in (11, 12, 13))
    names = {time: f"{stem}_{time}.parquet" for time in (pending, claimed, free, "20200101000000000")}
    for name in names.values():
        table.store.put(name, b"x")
    table.store.put(f".hoodie/timeline/{pending}.commit.requested", b"")
    patient = {**OPTIONS, "hoodie.client.heartbeat.tolerable.misses": 10}
    MemoryStore(table.name).put(f".hoodie/.heartbeat/{claimed}", b"")
    doomed = DeleteFiles((named, *names.values(), "city=sf/.hoodie_partition_metadata"))
    client = TableClient(table.store, patient)

    def lying(client: TableClient, level: str = "fast", partitions: Any = None) -> CheckReport:
        return CheckReport("x", level, (finding(doomed),))

    done = repair_table(client, lying(client).plan, lying)
    assert [outcome.state for outcome in done.outcomes] == ["done"]
    left = set(table.listed())
    assert names[free] not in left
    assert {named, "city=sf/.hoodie_partition_metadata", *names.values()} - left == {names[free]}


# ------------------------------------------------------------------------------------------------------------- refusals


def test_what_cannot_be_asked() -> None:
    table = made()
    with pytest.raises(InvalidInputError, match="unknown level"):
        check_table(table.client, "deep")
    with pytest.raises(UnsafePath):
        check_table(table.client, "fast", ["../x"])
    with pytest.raises(TableNotFound):
        check_table(TableClient(MemoryStore(f"nothing-{next(NUMBERS)}")))


def test_a_table_without_properties_is_damaged_not_absent() -> None:
    table = scene()
    table.store.delete([".hoodie/hoodie.properties"])
    report = check_table(TableClient(table.store))
    assert [finding.kind for finding in report.findings] == [Kind.PROPERTIES]
    assert report.plan.is_empty
    assert report.skipped


def test_the_metadata_table_is_made_again_after_files_changed_in_their_place() -> None:
    table = scene()
    table.open().index.create("record_index", options=OPTIONS)
    SABOTAGE["range_narrow"](table, first)
    SABOTAGE["orphan_file"](table, first)
    client = table.open().client
    done = repair_table(client, check_table(client, "full").plan, check_table)
    assert {outcome.state for outcome in done.outcomes} == {"done"}
    assert str(done.outcomes[-1].step) == "make the metadata table anew: files, record_index"
    assert done.is_clean
    assert table.open().properties.metadata_partitions == ("files", "record_index")
    assert table.open().index.check().is_clean
    SABOTAGE["orphan_file"](table, first)
    dropping = TableClient(table.store, {**OPTIONS, "hoodie.metadata.enable": "false"})
    assert repair_table(dropping, check_table(dropping, "full").plan, check_table).is_clean
    assert not table.open().properties.metadata_partitions


def test_an_index_that_cannot_be_made_again_keeps_files_in_their_place() -> None:
    table = scene()
    SABOTAGE["orphan_file"](table, first)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    update_properties(table.store, {"hoodie.table.metadata.partitions": "files,expr_index_x"}, now, durable=False)
    client = table.open().client
    done = repair_table(client, check_table(client, "full").plan, check_table)
    assert {outcome.state for outcome in done.outcomes} == {"failed"}
    assert all("expr_index_x" in outcome.why for outcome in done.outcomes)


# ------------------------------------------------------------------------------------------------------ plans, as values

FILE = BaseFile(PartitionPath("p"), "f-0_0-0-0_20260101000000000.parquet", FileId("f-0"), "0-0-0", InstantTime("2"), 9)
COMMIT = Instant(InstantTime("20260101000000000"), Action.COMMIT, State.COMPLETED, None, "20260101000000000.commit")


def finding(*steps: Any) -> Finding:
    return Finding(Kind.COUNTS, "x", "what", "so", "then", tuple(steps))


def test_a_plan_joins_what_hits_one_file_group_and_one_commit() -> None:
    plan = plan_repair(
        [
            finding(RewriteFile(FILE, FILE.path, "one", drop=np.array([3, 1]))),
            finding(RewriteFile(FILE, FILE.path, "two", rekey=True, drop=np.array([1, 2]), loses="rows")),
            finding(CorrectCounts(COMMIT, {"a": {"numWrites": 1}})),
            finding(CorrectCounts(COMMIT, {"a": {"numInserts": 2}, "b": {"numWrites": 3}})),
            finding(DeleteFiles(("b",)), DeleteFiles(("a",))),
            finding(AcceptLoss(("y",), loses="y's rows"), AcceptLoss(("x",), (("p", "g"),), "x's rows")),  # type: ignore[arg-type]
        ]
    )
    deleted, corrected, rewritten, lost = plan.steps
    assert deleted == DeleteFiles(("a", "b"))
    assert isinstance(corrected, CorrectCounts)
    assert corrected.counts == {"a": {"numWrites": 1, "numInserts": 2}, "b": {"numWrites": 3}}
    assert isinstance(rewritten, RewriteFile)
    assert (rewritten.why, rewritten.rekey, rewritten.loses) == ("one; two", True, "rows")
    assert rewritten.drop is not None
    assert rewritten.drop.tolist() == [1, 2, 3]
    assert lost == AcceptLoss(("x", "y"), (("p", "g"),), "y's rows; x's rows")  # type: ignore[arg-type]
    assert plan.losing == (rewritten, lost)
    assert str(plan).count("LOSES") == 2
