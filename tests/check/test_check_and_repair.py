"""Each kind of damage in turn: the check names it and nothing else, the repair mends it, hudi-rs reads the same rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakefmt._core.check.findings import CheckReport
from lakefmt._core.check.repair import repair_table
from lakefmt._core.check.run import check_table
from lakefmt.testing.invariants import (
    check_footers,
    check_invariants,
    check_meta_columns,
    check_partitions,
    check_unique_keys,
)
from lakefmt.testing.multiset import multiset_difference
from tests.check.kit import SABOTAGE, VERSIONS, Damage, Scene, rows, scene
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.spark import JudgeError
from tests.kit import THOROUGH


def same(left: pa.Table, right: pa.Table) -> bool:
    return not multiset_difference(left, right)


def full(table: Scene) -> CheckReport:
    return check_table(table.open().client, "full")


def found(report: CheckReport) -> set[tuple[Any, str]]:
    return {(finding.kind, finding.where) for finding in report.findings}


def damaged(name: str, version: int, choose: Callable[[list[Any]], Any]) -> tuple[Scene, Damage, pa.Table]:
    table = scene(version)
    before = table.open().read()
    return table, SABOTAGE[name](table, choose), before


def lawful(table: Scene, damage: Damage) -> None:
    """Every law holds again; files that were given up stay away, and the laws of the past do not know that."""
    if damage.scars:
        return  # its older slices are as they were
    if not damage.loses:
        check_invariants(table.open())
        return
    for law in (check_meta_columns, check_footers, check_unique_keys, check_partitions):
        law(table.open())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("level", ["fast", "full"])
def test_a_sound_table_has_nothing_wrong(version: int, level: str) -> None:
    report = check_table(scene(version).open().client, level)
    assert report.findings == ()
    assert report.notes == ()
    assert report.skipped == ()
    assert report.plan.is_empty
    assert report.files >= 6


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SABOTAGE))
@settings(
    max_examples=20 if THOROUGH else 1,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_damage_is_named_and_mended(name: str, hudi_rs_judge: HudiRsJudge, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(VERSIONS))
    table, damage, before = damaged(name, version, lambda options: data.draw(st.sampled_from(options)))
    client = table.open().client
    report = check_table(client, damage.level)
    assert found(report) == damage.found, str(report)
    plan = report.plan
    assert plan.is_empty is not damage.mendable, str(plan)
    assert bool(plan.losing) is damage.loses, str(plan)
    if not damage.mendable:
        return
    if damage.loses:
        refused = repair_table(client, plan, check_table)
        assert {o.state for o in refused.outcomes if o.step.loses} == {"refused"}
        assert found(refused.after) >= damage.found
    done = repair_table(client, plan, check_table, accept_loss=True)
    assert {outcome.state for outcome in done.outcomes} <= {"done", "passed"}, str(done)
    assert found(full(table)) == set(), str(done)
    again = repair_table(client, plan, check_table, accept_loss=True)
    assert {outcome.state for outcome in again.outcomes} == {"passed"}, str(again)
    after = table.open().read()
    assert same(after, before if damage.rows is None else damage.rows)
    lawful(table, damage)
    with tempfile.TemporaryDirectory() as folder:
        judged = hudi_rs_judge.snapshot(table.dump(Path(folder) / "t"))
        assert same(judged, after)
    table.open().upsert(rows(0, 40, ts=20))
    assert same(table.open().read().filter(pa.compute.equal(table.open().read()["ts"], 20)), rows(0, 40, ts=20))


@pytest.mark.parametrize("name", ["cut_newest", "stray_attempt"])
def test_the_judge_refuses_what_was_not_repaired(name: str, hudi_rs_judge: HudiRsJudge, tmp_path: Path) -> None:
    table, _, _ = damaged(name, 8, lambda options: options[0])
    with pytest.raises(JudgeError):
        hudi_rs_judge.snapshot(table.dump(tmp_path / "before"))
    client = table.open().client
    repair_table(client, check_table(client, "full").plan, check_table, accept_loss=True)
    assert same(hudi_rs_judge.snapshot(table.dump(tmp_path / "after")), table.open().read())
