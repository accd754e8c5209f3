"""The completed file of an instant is gone: a finding, a refusal and a consent, never a silent rollback.

A writer leaves its claim or its markers until its instant is complete. An instant that has neither, and whose files are
there, was completed; what a dead writer left is still undone without a question (tests/crash).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest

from lakefmt._core.check.findings import Kind, UndoWrites
from lakefmt._core.check.run import check_table
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action, State
from lakefmt._core.timeline.metadata_codec import BodyKind, encode_body
from lakefmt.errors import CompletedFileMissing
from lakefmt.testing.multiset import multiset_difference
from tests.check.kit import NUMBERS, VERSIONS, Scene, new_table, objects_of, rows
from tests.kit import product_or_diagonal

#: The last write of a table: every kind of commit, with files and without.
LAST: dict[str, Callable[[Table], object]] = {
    "upsert": lambda t: t.upsert(rows(3, 9, ts=5)),
    "bulk_insert": lambda t: t.bulk_insert(rows(40, 44, ts=5)),
    "delete": lambda t: t.delete(["k001", "k002"]),
    "insert_overwrite": lambda t: t.insert_overwrite(rows(0, 2, ts=5)),
    "insert_overwrite_table": lambda t: t.insert_overwrite_table(rows(0, 2, ts=5)),
    "overwrite_by_nothing": lambda t: t.insert_overwrite_table(rows(0, 0, ts=5)),
    "delete_partitions": lambda t: t.delete_partitions(["city=oslo"]),
}
#: Services: what is done twice there loses nothing, so it asks nothing.
SERVICES: dict[str, Callable[[Table], object]] = {
    "compact": lambda t: t.compact(),
    "clean": lambda t: t.clean(options={"hoodie.clean.commits.retained": 1}),
    "rollback": lambda t: t.rollback(t.timeline.entries[-1].time),
    "restore": lambda t: t.restore(t.timeline.entries[0].time),
}


@dataclass
class Damaged:
    """A table whose newest instant is complete, and the name of the file that says so."""

    scene: Scene
    completed: str
    time: str
    before: pa.Table
    after: pa.Table

    def lose(self) -> Scene:
        """Remove the completed file."""
        self.body = self.scene.store.read(self.completed)
        self.scene.store.delete([self.completed])
        return self.scene

    def put_back(self) -> None:
        """Put the completed file back."""
        self.scene.store.put(self.completed, self.body)


@functools.cache
def _made(kind: str, version: int, last: str) -> tuple[str, dict[str, bytes], str, str, pa.Table, pa.Table]:
    name = f"lost-{next(NUMBERS)}"
    table = new_table(name, version, table_type=kind)
    table.upsert(rows(0, 18, ts=1))
    table.upsert(rows(6, 18, ts=2))
    table.upsert(rows(6, 12, ts=3))
    before, known = table.read(), set(objects_of(name))
    {**LAST, **SERVICES}[last](table)
    directory = table.client.load().config.timeline_directory
    timeline = table.client.load().timeline
    new = [i for i in timeline.completed if f"{directory}/{i.file_name}" not in known]
    assert len(new) == 1, new
    return name, objects_of(name), f"{directory}/{new[0].file_name}", str(new[0].time), before, table.read()


def damaged(kind: str, version: int, last: str) -> Damaged:
    name, objects, completed, time, before, after = _made(kind, version, last)
    # Under its own name: plans of services hold whole paths.
    return Damaged(Scene(name, version).put_back(objects), completed, time, before, after)


def same(left: pa.Table, right: pa.Table) -> bool:
    return not multiset_difference(left, right)


def check(scene: Scene, level: str = "fast"):  # type: ignore[no-untyped-def]
    return check_table(scene.open().client, level)


CASES = [
    pytest.param(kind, version, last, id=f"{kind}-{version}-{last}", marks=() if version == 8 else pytest.mark.slow)
    for kind in ("cow", "mor")
    for version in VERSIONS
    for last in LAST
]


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(("kind", "version", "last"), CASES)
def test_a_completed_file_that_vanished_is_found_and_nothing_is_rolled_back(kind: str, version: int, last: str) -> None:
    case = damaged(kind, version, last)
    scene = case.lose()
    report = check(scene, "full")
    assert [finding.kind for finding in report.findings] == [Kind.MISSING_COMPLETION], str(report)
    assert case.time in report.findings[0].where
    assert "put" in report.findings[0].remedy
    assert report.findings[0].loses
    listed = scene.listed()
    for write in (
        lambda t: t.upsert(rows(0, 3, ts=9)),
        lambda t: t.delete(["k000"]),
        lambda t: t.insert_overwrite_table(rows(0, 1, ts=9)),
    ):
        with pytest.raises(CompletedFileMissing, match=case.time):
            write(scene.open())
    refused = scene.open().repair(report.plan)
    assert [outcome.state for outcome in refused.outcomes] == ["refused"]
    assert scene.listed() == listed, "a refusal changes nothing"
    case.put_back()
    assert check(scene, "full").is_clean
    assert same(scene.open().read(), case.after)
    scene.open().upsert(rows(0, 30, ts=9))


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(("kind", "version", "last"), CASES)
def test_who_agrees_to_the_loss_gets_the_state_before(kind: str, version: int, last: str) -> None:
    case = damaged(kind, version, last)
    scene = case.lose()
    outcome = scene.open().repair(check(scene).plan, accept_loss=True)
    assert outcome.is_clean, str(outcome)
    assert same(scene.open().read(), case.before)
    scene.open().upsert(rows(0, 30, ts=9))
    assert check(scene, "full").is_clean


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_the_rollback_of_that_instant_by_name_is_a_consent(kind: str, version: int) -> None:
    case = damaged(kind, version, "upsert")
    scene = case.lose()
    scene.open().rollback(case.time, force=True)
    assert check(scene, "full").is_clean
    assert same(scene.open().read(), case.before)


@pytest.mark.parametrize("version", VERSIONS)
def test_consent_to_one_instant_is_none_to_another(version: int) -> None:
    first = damaged("cow", version, "upsert")
    scene = first.scene
    second = scene.open().upsert(rows(0, 3, ts=9))
    state = scene.open().client.load()
    name = next(i.file_name for i in state.timeline.completed if i.time == second.instant)
    scene.store.delete([f"{state.config.timeline_directory}/{name}"])
    plan = check(scene).plan
    assert [step.instants for step in plan.steps if isinstance(step, UndoWrites)] == [(second.instant,)]
    first.lose()
    outcome = scene.open().repair(plan, accept_loss=True)
    assert [finding.kind for finding in outcome.after.findings] == [Kind.MISSING_COMPLETION]
    assert first.time in outcome.after.findings[0].where
    first.put_back()
    assert same(scene.open().read(), first.after)


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("kind", "last"),
    [("mor", "compact"), ("cow", "clean"), ("cow", "rollback"), ("mor", "rollback"), ("cow", "restore")],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_service_whose_completed_file_vanished_is_done_again_and_loses_nothing(
    kind: str, version: int, last: str
) -> None:
    case = damaged(kind, version, last)
    scene = case.lose()
    assert not check(scene).is_clean
    assert same(scene.open().read(), case.after)
    assert not check(scene).plan.losing
    scene.open().repair(check(scene).plan)
    table = scene.open()
    if last == "compact":
        table.compact()
    if last == "clean":
        table.clean(options={"hoodie.clean.commits.retained": 1})
    assert same(table.read(), case.after)
    table.upsert(rows(0, 30, ts=9))
    assert check(scene, "full").is_clean


def test_a_compaction_of_which_nothing_else_is_left_is_not_taken_away() -> None:
    """Its logs were cleaned: what it wrote is the only copy of its rows."""
    case = damaged("mor", 8, "compact")
    scene = case.scene
    scene.open().upsert(rows(0, 18, ts=7))
    scene.open().clean(options={"hoodie.clean.commits.retained": 1})
    expected = scene.open().read()
    case.lose()
    listed = {name for name in scene.listed() if name.endswith(".parquet")}
    with pytest.raises(CompletedFileMissing, match=case.time):
        scene.open().compact()
    assert {name for name in scene.listed() if name.endswith(".parquet")} == listed
    case.put_back()
    assert same(scene.open().read(), expected)


# ------------------------------------------------------------------------------------------------ what is no such thing


def dead(scene: Scene, action: Action, state: State, **files: bytes) -> str:
    """Put what another engine's writer leaves that died: timeline files, and whatever is named besides."""
    loaded = scene.open().client.load()
    time = str(int(str(loaded.timeline.highest_time)) + 10)
    where = loaded.config.timeline_directory
    body = b""
    if action is Action.REPLACE_COMMIT:
        nothing = {"operationType": None, "clusteringPlan": None, "extraMetadata": None, "version": 1}
        body = encode_body(BodyKind.REQUESTED_REPLACE, nothing)
    scene.store.put(f"{where}/{time}.{action.value}.requested", body)
    if state is State.INFLIGHT:
        short = scene.version == 6 and action is Action.COMMIT
        scene.store.put(f"{where}/{time}.{'inflight' if short else f'{action.value}.inflight'}", b"")
    for name, data in files.items():
        scene.store.put(name.replace("TIME", time), data)
    return time


@product_or_diagonal(
    left=["nothing", "marker", "heartbeat"],
    action=[Action.COMMIT, Action.REPLACE_COMMIT],
    state=[State.REQUESTED, State.INFLIGHT],
    version=VERSIONS,
)
def test_what_a_dead_writer_of_any_engine_leaves_is_undone_without_a_question(
    version: int, state: State, action: Action, left: str
) -> None:
    """Hudi's eager writers have no heartbeat: one that died before its first file has no marker either."""
    scene = damaged("cow", version, "upsert").scene
    file = "city=sf/0000-0_1-0-0_TIME.parquet"
    more = {
        "nothing": {},
        "marker": {f".hoodie/.temp/TIME/{file}.marker.CREATE": b"", file: b"PAR1"},
        "heartbeat": {".hoodie/.heartbeat/TIME": b"", file: b"PAR1"},
    }[left]
    before = scene.open().read()
    time = dead(scene, action, state, **more)
    report = check(scene)
    assert Kind.MISSING_COMPLETION not in {finding.kind for finding in report.findings}, str(report)
    assert not report.plan.losing
    scene.open().upsert(rows(50, 51, ts=9))
    assert not any(time in name and not name.endswith(".rollback") for name in scene.listed() if "parquet" in name)
    assert scene.open().read().num_rows == before.num_rows + 1


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_hidden", [True, False], ids=["its target is inflight", "its target is complete"])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_rollback_of_a_commit_that_died(kind: str, version: int, is_hidden: bool) -> None:
    """Engines write the plan first, then hide the commit, then delete: what is still complete has lost nothing."""
    case = damaged(kind, version, "upsert")
    scene = case.scene
    state = scene.open().client.load()
    where, time = state.config.timeline_directory, str(int(str(state.timeline.highest_time)) + 10)
    plan = scene.open().rollback(case.time, dry_run=True).plan
    requests = [
        {
            "partitionPath": partition,
            "fileId": "",
            "latestBaseInstant": "",
            "filesToBeDeleted": [f"{scene.store.url}/{name}" for name in names],
            "logBlocksToBeDeleted": {},
        }
        for partition, names in plan.files.items()
    ]
    action = "commit" if kind == "cow" else "deltacommit"
    record = {
        "instantToRollback": {"commitTime": case.time, "action": action},
        "RollbackRequests": requests,
        "version": 1,
    }
    scene.store.put(f"{where}/{time}.rollback.requested", encode_body(BodyKind.ROLLBACK_PLAN, record))
    scene.store.put(f"{where}/{time}.rollback.inflight", b"")
    if is_hidden:
        case.lose()
    report = check(scene)
    assert [finding.kind for finding in report.findings if finding.kind is Kind.MISSING_COMPLETION] == []
    scene.open().upsert(rows(50, 51, ts=9))
    expected = pa.concat_tables([case.before if is_hidden else case.after, rows(50, 51, ts=9)])
    assert same(scene.open().read(), expected)
    assert check(scene, "full").is_clean
