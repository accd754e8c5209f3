"""A round does what the settings of a table ask for, verifies it, and leaves nothing else changed (issue 21, section 3)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import services
from lakefmt._core.compaction.compact_run import CompactionResult, run_compaction
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import PartitionPath, WriteStat
from lakefmt.errors import InvalidInputError
from lakefmt.services.loop import ServiceLoop
from tests.judges.hudi_rs import HudiRsJudge
from tests.services.served import append_table, keyed, process, rows


def sorted_rows(table: pa.Table) -> list[dict[str, object]]:
    return sorted(table.select(["id", "v"]).to_pylist(), key=str)


def test_a_write_only_writer_runs_and_plans_no_service(tmp_path: Path) -> None:
    table = keyed(str(tmp_path / "t"), process(), 40)
    timeline = table.client.load().timeline
    assert {instant.action for instant in timeline} == {Action.DELTA_COMMIT}
    assert len(timeline.commits) == 40, "nothing was archived"
    kept = lakefmt.open_table(str(tmp_path / "t"), options={"hoodie.compact.inline": True})
    kept.upsert(rows(range(2), 99))
    assert kept.client.load().timeline.completed_of(Action.COMMIT), "a writer with services compacts here"


def test_a_round_compacts_cleans_and_archives(tmp_path: Path, hudi_rs_judge: HudiRsJudge) -> None:
    url = str(tmp_path / "t")
    table = keyed(url, process(), 45)
    before = sorted_rows(table.read())
    status = services.run(table, once=True)
    steps = status.tables[0].steps
    assert [steps[name].result for name in ("compaction", "archive")] == ["done", "done"], str(status)
    assert sorted_rows(table.read()) == before
    assert sorted_rows(hudi_rs_judge.snapshot(url)) == before
    assert status.tables[0].pending == ()
    assert status.tables[0].commits <= 31
    assert not status.has_failed
    for number in range(20):
        table.upsert(rows(range(20), 100 + number))
        services.run(table, once=True, options={"hoodie.clean.commits.retained": 2})
    assert table.client.load().timeline.completed_of(Action.CLEAN)
    assert table.check().is_clean
    assert sorted_rows(hudi_rs_judge.snapshot(url)) == sorted_rows(table.read())


def test_a_plan_of_another_engine_is_executed(tmp_path: Path) -> None:
    table = keyed(str(tmp_path / "t"), process(), 3)
    planned = table.compact(schedule=True)
    status = services.run(table, once=True)
    assert planned.instant in status.tables[0].steps["compaction"].message
    assert not table.client.load().timeline.pending


def test_services_pack_small_files_of_append_tables(tmp_path: Path, hudi_rs_judge: HudiRsJudge) -> None:
    """The packing is a clustering; write amplification stays below three; in the end one file is left."""
    time = process()
    url = str(tmp_path / "t")
    table = append_table(url, time)
    loop = ServiceLoop(table, time_source=time)
    for number in range(30):
        time.sleep(1.0)
        table.bulk_insert(rows(range(number * 10, number * 10 + 10), number))
        loop.run(once=True)
    appended = sum(stat.file_size_in_bytes for commit in _inserts(table) for stat in commit)
    time.sleep(600.0)  # nothing is appended for a while: all that is left is packed
    for _ in range(4):
        loop.run(once=True)
        time.sleep(100.0)
    status = loop.status.tables[0]
    assert status.counts["packing"]["done"] >= 3, str(status)
    assert len(table.file_groups()) == 1
    assert status.bytes_written <= 3 * 30 * max(appended // 30, 1)
    assert table.read().num_rows == hudi_rs_judge.snapshot(url).num_rows == 300
    assert table.client.load().timeline.completed_of(Action.REPLACE_COMMIT)


def test_candidates_are_looked_for_in_some_partitions_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No listing is of more partitions than a part, every partition has its turn, nothing is remembered."""
    time = process()
    table = append_table(str(tmp_path / "t"), time, partition_by="v")
    for number in range(3):
        table.bulk_insert(pa.concat_tables([rows(range(n * 10 + number, n * 10 + number + 1), n) for n in range(7)]))
    asked: list[int] = []
    slices = TableAt.slices

    def counted(self: TableAt, partitions: Iterable[PartitionPath] | None = None) -> Any:
        asked.append(99 if partitions is None else len(list(partitions)))
        return slices(self, partitions)

    monkeypatch.setattr("lakefmt.services.round.PARTITIONS_AT_ONCE", 3)
    monkeypatch.setattr(TableAt, "slices", counted)
    time.sleep(600.0)
    step = ServiceLoop(table, time_source=time).run(once=True).tables[0].steps["packing"]
    assert step.result == "done", step
    assert max(asked) == 3
    monkeypatch.undo()
    assert len(table.file_groups()) == 7
    assert table.read().num_rows == 21


def _inserts(table: lakefmt.Table) -> list[tuple[WriteStat, ...]]:
    client = table.client
    state = client.at(client.load()).with_history().state
    instants = [*state.timeline.archived, *state.timeline.commits]
    return [client.at(state).commit_metadata(each).stats for each in instants if each.action is Action.COMMIT]


def test_a_service_that_fails_keeps_no_other_from_running(tmp_path: Path) -> None:
    table = keyed(str(tmp_path / "t"), process(), 45)
    client = table.client
    planned = table.compact(schedule=True)
    assert planned.instant is not None
    requested = next(name for name in _names(tmp_path / "t") if name.startswith(planned.instant))
    Path(tmp_path / "t" / ".hoodie" / "timeline" / requested).write_bytes(b"no plan")
    status = services.run([table, str(tmp_path / "none")], once=True)
    assert status.tables[0].steps["compaction"].result == "failed"
    assert status.tables[0].steps["archive"].result == "done"
    assert status.tables[1].state == "failed"
    assert "no table" in status.tables[1].message
    assert status.has_failed
    assert client.load().timeline.pending


def _names(root: Path) -> list[str]:
    return [path.name for path in (root / ".hoodie" / "timeline").iterdir()]


def test_verification_tells_of_a_file_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotage twin of the verification: a file is lost between the completion and the look at it."""
    table = keyed(str(tmp_path / "t"), process(), 6)

    def losing(*args: Any, **named: Any) -> CompactionResult:
        result = run_compaction(*args, **named)
        table.client.store.delete([result.files[0].path])
        return result

    monkeypatch.setattr("lakefmt.services.round.run_compaction", losing)
    step = services.run(table, once=True).tables[0].steps["compaction"]
    assert step.result == "failed"
    assert "is missing, its commit says" in step.message


def test_a_loop_finishes_the_service_that_runs_and_begins_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = keyed(str(tmp_path / "t"), process(), 45)
    loop = ServiceLoop(table)

    def stopped(*args: Any, **named: Any) -> CompactionResult:
        loop.stop()
        return run_compaction(*args, **named)

    monkeypatch.setattr("lakefmt.services.round.run_compaction", stopped)
    status = loop.run()
    assert status.rounds == 1
    assert status.is_stopping
    assert {name: step.result for name, step in status.tables[0].steps.items()} == {"compaction": "done"}


def test_idle_tables_cost_a_look_at_the_timeline(tmp_path: Path) -> None:
    time = process()
    table = keyed(str(tmp_path / "t"), time, 6)
    loop = ServiceLoop(table, time_source=time)
    for _ in range(5):
        loop.run(once=True)
        time.sleep(1.0)
    lease = tmp_path / "t" / ".hoodie" / ".lakefmt" / "services.lease"
    before = lease.stat().st_mtime_ns
    for _ in range(20):
        loop.run(once=True)
        time.sleep(1.0)
    assert lease.stat().st_mtime_ns == before, "a round without work takes no lease"


def test_workers_execute_the_operations(tmp_path: Path) -> None:
    table = keyed(str(tmp_path / "t"), process(), 6)
    before = sorted_rows(table.read())
    status = services.run(str(tmp_path / "t"), once=True, workers=2)
    assert status.tables[0].steps["compaction"].result == "done", str(status)
    assert sorted_rows(table.read()) == before


@pytest.mark.parametrize(
    "wrong", [{"tables": []}, {"tables": [3]}, {"tables": "t", "interval": -1}, {"tables": "t", "workers": 0}]
)
def test_calls_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match="services"):
        services.run(**wrong)  # type: ignore[arg-type]


def test_the_services_commit_what_a_dead_stream_has_flushed(tmp_path: Path) -> None:
    """A process that died after a flush: the services commit its rows, and leave the streams of living writers alone."""
    url = str(tmp_path / "t")
    table = keyed(url, process(), 1)
    code = (
        "import os, sys, lakefmt\n"
        "stream = lakefmt.open_table(sys.argv[1]).open_stream(writer_id='dead', commit_interval=3600000)\n"
        "stream.extend([{'id': 'late', 'v': 1}]); stream.flush(); os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == -9, ended.stderr
    assert table.read().num_rows == 20
    with lakefmt.open_table(url).open_stream(writer_id="living", commit_interval=3_600_000) as living:
        living.extend([{"id": "mine", "v": 1}])
        living.flush()
        status = services.run(url, once=True).tables[0]
        assert {"late", "mine"} & set(table.read()["id"].to_pylist()) == {"late"}, str(status)
        again = services.run(url, once=True).tables[0]
        assert again.steps["recovery"].result == "nothing"
    assert table.read().num_rows == 22
