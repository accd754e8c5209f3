"""Compaction as people meet it: `table.compact()`, after a commit by itself, `lakefmt compact`; beside the other verbs."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from click.testing import CliRunner

import lakefmt
from lakefmt._core.cli.root import main
from lakefmt._core.compaction.compact_run import run_compaction
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action
from lakefmt.errors import InstantNotFound, WriterActive
from lakefmt.testing.stores import WatchStore
from tests.compaction.mor_tables import OPTIONS, SCHEMA, fresh_name, rows
from tests.judges.compare import assert_same_multiset


def mor_table(url: str, version: int = 8) -> lakefmt.Table:
    table = lakefmt.create_table(
        url,
        schema=SCHEMA,
        record_key="id",
        partition_by="p",
        ordering="ts",
        table_version=version,
        table_type="mor",
        options=OPTIONS,
    )
    table.upsert(rows("abc"))
    table.upsert(rows("ad", ts=2, v=2.5))
    table.delete(["b"])
    return table


def waiting(table: lakefmt.Table) -> list[str]:
    return [i.time for i in table.client.load().timeline.pending if i.action is Action.COMPACTION]


@pytest.mark.parametrize("version", [6, 8, 9])
def test_plan_schedule_write_run(version):
    table = mor_table(f"memory://{fresh_name()}", version)
    before = table.read()
    plan = table.compact(dry_run=True).plan
    assert plan.num_logs >= 1
    assert not waiting(table)
    planned = table.compact(schedule=True)
    assert waiting(table) == [planned.instant]
    table.upsert(rows("a", ts=5, v=5.5))
    assert_same_multiset(
        table.read(filter="id <> 'a'"), before.filter(pa.array([k != "a" for k in before["id"].to_pylist()]))
    )
    done = table.compact(run=planned.instant, verify=True)
    assert str(done).startswith(f"compact {planned.instant}: ")
    assert table.read(filter="id = 'a'")["v"].to_pylist() == [5.5]
    table.compact()
    assert_same_multiset(table.read(query="read_optimized"), table.read())


@pytest.mark.parametrize("version", [6, 8])
def test_what_a_compaction_leaves_alone(version):
    table = mor_table(f"memory://{fresh_name()}", version)
    first = table.timeline.timeline.commits[0]
    before = table.incremental(first.order_time)
    table.compact()
    assert_same_multiset(table.incremental(first.order_time), before, what="increments")
    keep = {"hoodie.clean.fileversions.retained": 1}
    table.compact(schedule=True)
    rows_now = table.read()
    table.clean(options=keep)
    assert_same_multiset(table.read(), rows_now, what="after a clean")


def test_a_clean_leaves_what_a_plan_needs():
    table = mor_table(f"memory://{fresh_name()}")
    planned = table.compact(schedule=True)
    table.upsert(rows("a", ts=5, v=5.5))
    assert table.clean(options={"hoodie.clean.fileversions.retained": 1}).files_deleted == 0
    table.compact(run=planned.instant, verify=True)
    assert table.clean(options={"hoodie.clean.fileversions.retained": 1}).files_deleted > 0
    assert sorted(table.read()["id"].to_pylist()) == ["a", "c", "d"]


def test_a_compaction_that_is_rolled_back_waits_again():
    table = mor_table(f"memory://{fresh_name()}")
    before = table.read()
    done = table.compact()
    table.rollback(done.instant)
    assert_same_multiset(table.read(), before)
    assert waiting(table) == [done.instant]
    table.compact(verify=True)
    assert not waiting(table)
    assert_same_multiset(table.read(query="read_optimized"), before)


class Later:
    """A clock by which every heartbeat has expired."""

    def now(self):
        return datetime.now(UTC) + timedelta(hours=1)


ONE_THREAD = {**OPTIONS, "lakefmt.write.threads": 1}


def unlocked_effects(version, act):
    """The numbers of the effects that `act` has outside the lock: those on data files and markers."""
    name, seen = fresh_name(), []
    mor_table(f"memory://{name}", version)
    act(Table(TableClient(WatchStore(MemoryStore(name), seen.append), ONE_THREAD)))
    return [e.number for e in seen if e.name.startswith(("p=", ".hoodie/.temp/")) and "delete" not in e.kind]


@pytest.mark.parametrize("version", [6, 8])
def test_writes_while_a_compaction_is_at_work_and_the_other_way_round(version):
    for n in unlocked_effects(version, lambda t: t.compact()):
        name = fresh_name()
        table = mor_table(f"memory://{name}", version)

        def write(effect, table=table, n=n):
            if effect.number == n:
                table.upsert(rows("an", ts=8, v=8.0))
                table.upsert(rows("m", ts=9, v=9.0, partition="y"))
                table.delete(["c"])

        run_compaction(TableClient(WatchStore(MemoryStore(name), write), ONE_THREAD), ONE_THREAD)
        assert values(table) == {"a": 8.0, "d": 2.5, "n": 8.0, "m": 9.0}, f"effect {n}"
        table.compact(verify=True)
        assert values(table, "read_optimized") == values(table), f"effect {n}"
    for n in unlocked_effects(version, lambda t: t.upsert(rows("an", ts=8, v=8.0))):
        name = fresh_name()
        table = mor_table(f"memory://{name}", version)

        def compact(effect, table=table, n=n):
            if effect.number == n:
                with pytest.raises(WriterActive) if version == 6 else nullcontext():
                    table.compact(verify=True)

        watched = TableClient(WatchStore(MemoryStore(name), compact), ONE_THREAD)
        Table(watched).upsert(rows("an", ts=8, v=8.0))
        assert values(table) == {"a": 8.0, "c": 0.0, "d": 2.5, "n": 8.0}, f"effect {n}"


def values(table, query="snapshot"):
    return {row["id"]: row["v"] for row in table.read(query=query).to_pylist()}


def test_after_a_commit_by_itself():
    table = mor_table(f"memory://{fresh_name()}")
    inline = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": 5}
    assert table.upsert(rows("a", ts=3), options=inline).warnings == ()
    assert not [i for i in table.timeline.timeline.commits if i.action is Action.COMMIT]
    table.upsert(rows("a", ts=4), options=inline)
    assert_same_multiset(table.read(query="read_optimized"), table.read())
    only_plan = {"hoodie.compact.schedule.inline": "true", "hoodie.compact.inline.max.delta.commits": 1}
    table.upsert(rows("a", ts=5), options=only_plan)
    planned = waiting(table)
    assert len(planned) == 1
    table.upsert(rows("a", ts=6), options=only_plan)
    assert waiting(table) == planned, "one plan at a time"
    table.upsert(rows("a", ts=7), options=inline)
    assert not waiting(table)


def test_withdrawing():
    table = mor_table(f"memory://{fresh_name()}")
    planned = table.compact(schedule=True)
    table.compact(abandon=planned.instant)
    assert not waiting(table)
    with pytest.raises(InstantNotFound):
        table.compact(abandon=planned.instant)


def test_the_command_shows_its_plan_and_does_not_ask(tmp_path):
    path = str(tmp_path / "t")
    table = mor_table(path)

    def run(*words, status=0):
        result = CliRunner().invoke(main, ["compact", path, *words])
        assert result.exit_code == status, result.output
        return result.output

    assert run("--plan").startswith("compact (LogFileSizeBased): 1 slices, ")
    assert len(json.loads(run("--plan", "--json"))["plan"]["operations"]) == 1
    assert "give one of" in run("--plan", "--schedule", status=2)
    assert "is requested" in run("--schedule")
    (planned,) = waiting(table)
    assert f"compact {planned}: " in run("--run", planned, "--verify")
    table.upsert(rows("a", ts=9))
    planned = json.loads(run("--schedule", "--yes", "--json"))["instant"]
    assert "removed" in run("--abandon", planned)
    assert json.loads(run("--json"))["rows"] == 2, "a and c; the file group of d has no logs"
    assert_same_multiset(table.read(query="read_optimized"), table.read())
