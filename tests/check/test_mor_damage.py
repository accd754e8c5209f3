"""Each kind of damage to logs in turn: the check names it and nothing else, the repair mends it, hudi-rs reads the same rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel, open_table
from lakefmt._core.check.findings import Kind
from lakefmt._core.check.repair import repair_table
from lakefmt._core.check.run import check_table
from lakefmt._core.compaction.log_compact import run_log_compaction
from lakefmt._core.filegroups.log_reader import LogInspection, Standing, inspect_log
from lakefmt._core.filegroups.model import LogFile
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action
from lakefmt._core.timeline.timeline import timeline_from_names
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt.testing.multiset import multiset_difference
from tests.check.kit import OPTIONS, edit_commit, rows
from tests.check.mor_kit import LOG_SABOTAGE, compacted, logs, mor_scene, older_logs, writers, writers_of
from tests.check.test_check_and_repair import found, full, same
from tests.check.test_repair_dies import dying
from tests.compat.fixture_tables import RealTable
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.spark import JudgeError
from tests.kit import product_or_diagonal

DATA = Path(__file__).parents[1] / "data"
FOLD = {"hoodie.log.compaction.blocks.threshold": 2}
CHOICES: dict[str, Callable[[list[Any]], Any]] = {"first": lambda all_: all_[0], "last": lambda all_: all_[-1]}


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("level", ["fast", "full"])
def test_a_sound_table_has_nothing_wrong(version: int, level: str) -> None:
    scene = mor_scene(version)
    report = check_table(scene.open().client, level)
    assert (report.findings, report.notes, report.skipped) == ((), (), ()), str(report)
    files = len(logs(scene)) + (len(older_logs(scene)) if level == "full" else 0)
    assert files >= 6
    assert report.files > files, "logs are looked at, too"


@pytest.mark.slow
@product_or_diagonal(version=[6, 8], name=list(LOG_SABOTAGE))
def test_damage_to_logs_is_named_and_mended(
    name: str, version: int, hudi_rs_judge: HudiRsJudge, tmp_path: Path
) -> None:
    scene, choice = mor_scene(version), "first" if version == 6 else "last"
    before = scene.open().read()
    damage = LOG_SABOTAGE[name](scene, CHOICES[choice])
    seen = damage.rows if name == "spoiled_block" else scene.open().read()
    assert seen is not None
    client = scene.open().client
    report = check_table(client, damage.level)
    assert found(report) == damage.found, str(report)
    assert found(full(scene)) == damage.found
    assert report.notes == ()
    plan = report.plan
    assert bool(plan.losing) is damage.loses, str(plan)
    if damage.loses:
        refused = repair_table(client, plan, check_table)
        assert {outcome.state for outcome in refused.outcomes} == {"refused"}, str(refused)
        assert found(refused.after) == damage.found
    done = repair_table(client, plan, check_table, accept_loss=True)
    assert {outcome.state for outcome in done.outcomes} == {"done"}, str(done)
    assert found(full(scene)) == set(), str(done)
    again = repair_table(client, plan, check_table, accept_loss=True)
    assert {outcome.state for outcome in again.outcomes} == {"passed"}, str(again)
    after = scene.open().read()
    assert same(after, seen), "no row that readers saw is lost by the repair"
    assert same(after, before if damage.rows is None else damage.rows)
    assert same(hudi_rs_judge.snapshot(scene.dump(tmp_path / "t")), after)
    scene.open().upsert(rows(0, 18, ts=20))
    scene.open().compact()
    assert same(scene.open().read(query="read_optimized"), rows(0, 18, ts=20))
    assert found(full(scene)) == set()


@pytest.mark.parametrize("version", [6, 8])
def test_the_judge_refuses_what_was_not_repaired(version: int, hudi_rs_judge: HudiRsJudge, tmp_path: Path) -> None:
    scene = mor_scene(version)
    LOG_SABOTAGE["flipped_magic"](scene, CHOICES["first"])
    with pytest.raises(JudgeError):
        hudi_rs_judge.snapshot(scene.dump(tmp_path / "before"))


@pytest.mark.slow
@product_or_diagonal(
    name=["orphan_log", "stray_log", "missing_log", "missing_compacted_base", "flipped_magic", "spoiled_block"],
    version=[6, 8],
)
def test_dying_anywhere_and_again(name: str, version: int) -> None:
    scene = mor_scene(version)
    damage = LOG_SABOTAGE[name](scene, CHOICES["first"])
    wanted = damage.rows or scene.open().read()
    for died in dying(scene):
        if name != "spoiled_block":
            assert same(scene.open().read(), wanted), died.story
        client = scene.open().client
        done = repair_table(client, check_table(client, "full").plan, check_table, accept_loss=True)
        assert done.is_clean, f"{died.story}\n{done}"
        assert not multiset_difference(scene.open().read(), wanted), died.story


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_compacted_base_file_that_is_gone_hides_no_row(version: int) -> None:
    """The finding says what readers see, before and after an ordinary compaction, and until a clean has taken the logs."""
    scene = mor_scene(version)
    before = scene.open().read()
    LOG_SABOTAGE["missing_compacted_base"](scene, CHOICES["first"])
    assert same(scene.open().read(), before)
    (finding,) = check_table(scene.open().client).findings
    assert "none is missing" in finding.consequence
    assert not finding.loses
    scene.open().compact()
    (finding,) = check_table(scene.open().client).findings
    assert finding.consequence.startswith("none")
    done = scene.open().repair(check_table(scene.open().client).plan)
    assert done.is_clean, str(done)
    assert same(scene.open().read(), before)


@pytest.mark.parametrize("version", [6, 8])
def test_a_compacted_base_file_without_its_logs_is_a_loss(version: int) -> None:
    scene = mor_scene(version)
    before = scene.open().read()
    path = compacted(scene)[0]
    group = path.rpartition("/")[2].partition("_")[0]
    scene.store.delete([path, *(name for name in older_logs(scene) if group in name)])
    assert not same(scene.open().read(), before)
    assert all(finding.loses for finding in check_table(scene.open().client).findings)


# --------------------------------------------------------------------------------------------------- what is no damage


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 8, 9])
def test_every_verb_leaves_sound_logs(version: int) -> None:
    scene = mor_scene(version)
    table = scene.open()
    for write in (
        lambda: table.upsert(rows(0, 12, ts=30)),
        lambda: table.rollback(str(table.upsert(rows(0, 12, ts=31)).instant)),
        lambda: table.delete(["k001"]),
        lambda: run_log_compaction(table.client, FOLD),
        lambda: table.upsert(rows(0, 20, ts=32)),
        lambda: table.compact(),
        lambda: table.savepoint(),
        lambda: table.upsert(rows(0, 8, ts=33)),
        lambda: table.restore(table.savepoints()[-1].instant),
        lambda: table.upsert(rows(0, 8, ts=34)),
        lambda: table.compact(),
        lambda: table.delete_savepoint(table.savepoints()[-1].instant),
        lambda: table.clean(options={"hoodie.clean.commits.retained": 1}),
        lambda: table.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}),
        lambda: table.upsert(rows(0, 8, ts=35)),
    ):
        write()
        report = check_table(table.client, "full")
        assert (report.findings, report.notes) == ((), ()), str(report)
    state = table.client.at(table.client.load()).with_history().state
    assert Action.CLEAN in {instant.action for instant in state.timeline}
    assert len(state.timeline.archived) > 2


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("is_planned", [False, True])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_key_that_a_log_deletes_and_that_is_stored_again_elsewhere_is_no_duplicate(
    version: int, is_planned: bool
) -> None:
    table = lakefmt.create_table(
        f"memory://check-again-{version}-{is_planned}",
        schema=pa.schema([("id", pa.string()), ("v", pa.int64())]),
        record_key="id",
        table_type="mor",
        table_version=version,
        index="record",
        options={"lakefmt.durability": "none"},
    )
    table.upsert(pa.table({"id": ["a", "b", "c"], "v": [1, 2, 3]}))
    table.delete(["c"])
    if is_planned:  # in version 6 later logs lie beside those of the base file then
        table.compact(schedule=True)
    table.delete(["b"])
    table.upsert(pa.table({"id": ["b", "d"], "v": [5, 6]}))  # the index has forgotten b: another file group gets it
    assert len(table.file_groups()) == 2
    assert not table.check("full").findings
    for file_slice in table.file_groups():
        table.client.store.delete(log.path for log in file_slice.logs)  # nothing deletes b any more
    assert Kind.DUPLICATE_KEYS in {each.kind for each in table.check("full").findings}


@pytest.mark.parametrize("version", [6, 8])
def test_the_log_of_a_writer_at_work_is_no_damage(version: int) -> None:
    scene = mor_scene(version)
    now = MemoryStore(scene.name)  # whose heartbeats are of this moment
    table = Table(TableClient(now, {**OPTIONS, "hoodie.client.heartbeat.tolerable.misses": 2}))
    context = lowlevel.begin_write(table, "upsert")
    written = [
        lowlevel.write_files(context, one, batches) for one, batches in lowlevel.assign(context, rows(0, 18, ts=40))
    ]
    torn = f"city=sf/.00000000-torn-0_{context.instant}.log.1_9-9-9"
    now.put(torn, b"#HUDI#")
    assert check_table(table.client, "full").is_clean
    scene.store.delete([torn])
    lowlevel.commit(context, written)
    assert check_table(table.client, "full").is_clean


@pytest.mark.parametrize("version", [6, 8])
def test_an_old_plan_takes_no_log_that_is_named_by_now(version: int) -> None:
    """After the last look and before the lock the log's deltacommit appears, as after a clock that went wrong."""
    scene = mor_scene(version)
    damage = LOG_SABOTAGE["orphan_log"](scene, CHOICES["first"])
    ((_, name),) = damage.found
    stale = check_table(scene.open().client)
    (time,) = writers(scene, name)
    directory = scene.open().client.load().config.timeline_directory
    suffix = f"_{int(time) + 1}" if version > 6 else ""
    newest = scene.open().client.load().timeline.latest_commit
    assert newest is not None
    body = scene.store.read(f"{directory}/{newest.file_name}")
    scene.store.put(f"{directory}/{time}{suffix}.deltacommit", body)
    done = repair_table(scene.open().client, stale.plan, lambda *_: stale)
    assert scene.store.info(name) is not None, str(done)


@pytest.mark.parametrize("version", [6, 8])
def test_bytes_behind_what_a_commit_wrote_are_a_note(version: int, hudi_rs_judge: HudiRsJudge, tmp_path: Path) -> None:
    scene = mor_scene(version)
    path = logs(scene)[0].path
    data = scene.store.read(path)
    scene.store.put(path, data + data[:50])
    report = check_table(scene.open().client, "full")
    assert report.is_clean
    assert [(note.kind, note.where) for note in report.notes] == [(Kind.CORRUPT_FILE, path)]
    assert f"bytes {len(data):,} to" in report.notes[0].what
    assert same(hudi_rs_judge.snapshot(scene.dump(tmp_path / "t")), mor_scene(version).open().read())


def test_a_log_that_two_commits_wrote_to_tells_whose_block_is_torn() -> None:
    """Engines on stores that can append write several deltacommits of version 6 into one log."""
    scene = mor_scene(6)
    one, two = [log.path for log in logs(scene) if log.partition == "city=sf"][:2]
    first, second = scene.store.read(one), scene.store.read(two)
    scene.store.put(one, first + second)
    edit_commit(scene, two, lambda stat: stat.update(path=one, logOffset=len(first)))
    scene.store.delete([two])
    assert check_table(scene.open().client, "full").is_clean
    scene.store.put(one, (first + second)[:-1])
    (finding,) = check_table(scene.open().client, "full").findings
    (writer,) = writers_of(second)
    assert f"of commit {writer}: bytes {len(first):,} to" in finding.what
    assert not any(time in finding.what for time in writers_of(first))


@pytest.mark.parametrize("version", [6, 8])
def test_a_folded_log_is_not_missed_by_the_newest_snapshot(version: int) -> None:
    scene = mor_scene(version)
    path = next(log.path for log in logs(scene) if log.partition == "city=sf")
    run_log_compaction(scene.open().client, FOLD)
    before = scene.open().read()
    scene.store.delete([path])
    (finding,) = check_table(scene.open().client, "full").findings
    assert (finding.kind, finding.where) == (Kind.MISSING_FILE, path)
    assert "the newest snapshot is whole" in finding.consequence
    assert same(scene.open().read(), before)


@pytest.mark.parametrize("version", [6, 8])
def test_a_block_of_an_unknown_kind_is_said_and_left_alone(version: int) -> None:
    scene = mor_scene(version)
    path = logs(scene)[0].path
    data = bytearray(scene.store.read(path))
    data[21] = 99  # the block's kind
    scene.store.put(path, bytes(data))
    report = check_table(scene.open().client)
    assert not report.findings
    assert any(path in why and "unknown kind 99" in why for why in report.skipped)


@pytest.mark.parametrize("version", [6, 8])
def test_a_commit_that_cannot_be_read_may_name_a_torn_log(version: int) -> None:
    scene = mor_scene(version)
    path = logs(scene)[-1].path
    name = edit_commit(scene, path, lambda stat: None)
    scene.store.put(name, b"{")
    scene.store.put(path, scene.store.read(path)[:100])
    report = check_table(scene.open().client, "full")
    assert {finding.kind for finding in report.findings} == {Kind.CORRUPT_INSTANT}, str(report)
    assert report.plan.is_empty


@pytest.mark.parametrize("layout", [1, 2])
def test_what_a_log_is_that_nobody_names(layout: int) -> None:
    done = {1: "20260101000000001.deltacommit", 2: "20260101000000001_20260101000000002.deltacommit"}[layout]
    timeline = timeline_from_names([done, "20260101000000005.deltacommit.inflight"], layout)
    one, five, nine = (InstantTime(f"2026010100000000{n}") for n in (1, 5, 9))
    how = {"is_taken": lambda time: time == five, "is_busy": False}
    log = LogFile(PartitionPath(""), "x", FileId("f-0"), one, 1, 9)

    def judged(*writers: InstantTime, **more: Any) -> Standing:
        look = LogInspection(9, frozenset(writers), frozenset(more.pop("targets", ())))
        return inspect_log(log, look, timeline, **{**how, **more})

    assert judged(one) is Standing.SEEN
    assert judged(one, nine) is Standing.SEEN
    assert judged(five) is Standing.TAKEN
    assert judged(five, nine) is Standing.TAKEN
    assert judged(nine) is Standing.UNSEEN
    assert judged(nine, undone={nine}) is Standing.UNDONE
    assert judged(targets=[nine]) is Standing.UNDONE
    assert judged() is Standing.UNSEEN
    assert judged(is_busy=True) is Standing.TAKEN


# ------------------------------------------------------------------------------------------------------ tables by Spark

SPARKS = [DATA / "check" / "v6_mor_late_rollback_0150.zip", DATA / "read" / "v8_mor_archived_120.zip"]


@pytest.mark.parametrize("packed", SPARKS, ids=lambda packed: packed.stem)
@pytest.mark.parametrize("how", ["sound", "cut", "gone", "undone"])
def test_logs_by_spark(packed: Path, how: str, hudi_rs_judge: HudiRsJudge, tmp_path: Path) -> None:
    """A commit's log cut or gone is named and nothing else; what a rollback explains is no damage, or else an orphan."""
    base = RealTable(packed, None, None).unpack(tmp_path)
    table = open_table(str(base))
    paths = [log.path for piece in table.file_groups() for log in piece.logs]
    # All logs of the other table lie below compactions.
    path = next(path for path in paths or sorted(log_names(base)) if is_named(table, path))
    expected: set[tuple[Kind, str]] = set()
    if how == "cut":
        (base / path).write_bytes((base / path).read_bytes()[:-9])
        expected = {(Kind.CORRUPT_FILE, path)}
    elif how == "gone":
        (base / path).unlink()
        expected = {(Kind.MISSING_FILE, path)}
    elif how == "undone" and packed.stem.startswith("v6"):
        # Without its command block nothing tells why a log of an instant is there that never was.
        (command,) = (log for log in table.client.store.list() if log.size == 105 and ".log." in log.name)
        (base / command.name).unlink()
        expected = {(Kind.ORPHAN_FILE, command.name.replace(".log.3_1-0-1", ".log.2_0-75-84"))}
    for level in ("fast", "full") if paths or how != "cut" else ("full",):
        report = check_table(open_table(str(base)).client, level)
        assert found(report) == expected, str(report)
    table = open_table(str(base), options={"hoodie.metadata.enable": False})
    rows_seen = table.read()
    done = repair_table(table.client, report.plan, check_table, accept_loss=True)
    assert done.is_clean, str(done)
    assert same(table.read(), rows_seen)
    assert same(hudi_rs_judge.snapshot(base), rows_seen)


def log_names(base: Path) -> list[str]:
    """The paths of a table's logs, relative to it."""
    return [str(path.relative_to(base)) for path in base.rglob(".*.log.*") if ".hoodie/" not in str(path)]


def is_named(table: Table, path: str) -> bool:
    state = table.client.load()
    return any(s.path == path for i in state.timeline.commits for s in table.client.at(state).commit_metadata(i).stats)
