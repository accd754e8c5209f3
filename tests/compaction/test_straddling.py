"""A deltacommit that completes after a compaction was requested that it began before, and is archived later (spec 4.4).

Its log lies on top of the compaction's base file. Only the moment of its completion tells that, and that is in the history
by then: whoever takes the requested time instead reads the log into the slice below, and its rows are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakefmt import open_table
from lakefmt._core.check.run import check_table
from lakefmt._core.compaction import archive
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.table import Table
from lakefmt._core.timeline.timeline import Timeline
from tests.compaction.mor_tables import MorTable, rows
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge

KEEP: dict[str, object] = {
    "hoodie.keep.min.commits": 1,
    "hoodie.keep.max.commits": 2,
    "hoodie.compact.inline.max.delta.commits": 1,
    "hoodie.clean.automatic": False,
}


def made(root: Path) -> tuple[Table, str]:
    """A table whose key "a" has its newest value in a straddling log; and that log's instant."""
    mor = MorTable(f"{root}/t")
    mor.base(rows(["a", "b"]))
    mor.log(rows(["a"], ts=2, v=2.0))
    time = mor.begin()
    mor.table.compact()
    mor.complete(*mor.write_log(time, rows(["a"], ts=7, v=7.0)))
    for number in range(4):
        mor.base(rows([f"y{number}"], partition="y"), partition="y")
    return open_table(f"{root}/t"), time


def archive_as_others(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Archive as engines do that ask the history themselves."""
    with monkeypatch.context() as patched:
        patched.setattr(archive, "_straddling", lambda *_: [])
        table.archive(options=KEEP)


def test_the_archive_keeps_what_tells_where_a_log_lies(tmp_path: Path, hudi_rs_judge: HudiRsJudge) -> None:
    table, time = made(tmp_path)
    before = table.read()
    assert table.read(filter="id = 'a'")["v"].to_pylist() == [7.0]
    plan = table.archive(options=KEEP).plan
    assert time in plan.barrier
    assert "completed" in plan.barrier
    assert table.client.load().timeline.find(time).is_completed
    assert_same_multiset(open_table(f"{tmp_path}/t").read(), before)
    assert_same_multiset(hudi_rs_judge.snapshot(tmp_path / "t"), before)
    # Once its log is folded and cleaned away it may go.
    table.compact()
    for number in range(2):
        table.upsert(rows([f"z{number}"], partition="z"))
    table.clean(options={"hoodie.clean.commits.retained": 1})
    assert time in [instant.time for instant in table.archive(options=KEEP).plan.instants]


READS: dict[str, Callable[[Table], object]] = {
    "snapshot": lambda table: table.read().sort_by("id").to_pydict(),
    "scan": lambda table: table.scan().read_all().sort_by("id").to_pydict(),
    "slices": lambda table: [piece.paths for piece in table.file_groups()],
    "changes": lambda table: table.changes("000").num_rows,
}


@pytest.mark.parametrize("read", list(READS))
def test_what_others_archived_is_read_by_the_history(
    read: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, time = made(tmp_path)
    before = READS[read](table)
    archive_as_others(table, monkeypatch)
    table = open_table(f"{tmp_path}/t")
    assert time not in {instant.time for instant in table.client.load().timeline}
    assert READS[read](table) == before
    # The same with eyes shut is wrong, or else this test would see nothing.
    monkeypatch.setattr(Timeline, "tells_completion_of", lambda *_: True)
    if read != "changes":
        assert READS[read](open_table(f"{tmp_path}/t")) != before


def test_services_do_so_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = made(tmp_path)
    before = table.read()
    archive_as_others(table, monkeypatch)
    table = open_table(f"{tmp_path}/t")
    assert check_table(table.client, "full").is_clean
    table.clean(options={"hoodie.clean.commits.retained": 1})
    assert_same_multiset(table.read(), before)
    table.upsert(rows(["a"], ts=3, v=3.0))  # late against the straddling row
    assert_same_multiset(table.read(), before)
    done = table.compact()
    assert done.plan.num_logs >= 1
    assert_same_multiset(table.read(query="read_optimized"), before)
    assert check_table(Table(TableClient(table.client.store, {})).client, "full").is_clean
