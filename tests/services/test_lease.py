"""Two processes share tables, never one table at once; the tables of a dead one are taken over by the clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefmt.errors import CorruptFile, LeaseLost
from lakefmt.services.loop import LEASE_NAME, ServiceLoop, hold_table
from lakefmt.testing.virtual_time import Process, VirtualTime
from tests.services.served import keyed, opened


def test_two_processes_serve_no_table_at_once(tmp_path: Path) -> None:
    time = VirtualTime()
    one, two = Process(time, 1), Process(time, 2)
    first = keyed(str(tmp_path / "t"), one, 6)
    second = opened(str(tmp_path / "t"), two)
    with hold_table(first.client, "one", 60.0) as held:
        assert held is not None
        held()
        with hold_table(second.client, "two", 60.0) as refused:
            assert refused is None
        loop = ServiceLoop(second, time_source=two)
        assert loop.run(once=True).tables[0].state == "elsewhere"
        assert not loop.status.tables[0].steps
        time.sleep(600.0)  # the first one renews
        with hold_table(second.client, "two", 60.0) as refused:
            assert refused is None
    assert loop.run(once=True).tables[0].steps["compaction"].result == "done"


def test_the_tables_of_a_dead_process_are_taken_over(tmp_path: Path) -> None:
    time = VirtualTime()
    dead, living = Process(time, 1), Process(time, 2)
    table = keyed(str(tmp_path / "t"), dead, 6)
    holding = hold_table(table.client, "dead", 60.0)
    still_ours = holding.__enter__()
    assert still_ours is not None
    dead.dead = True  # it renews nothing any more
    loop = ServiceLoop(opened(str(tmp_path / "t"), living), time_source=living)
    time.sleep(30.0)
    assert loop.run(once=True).tables[0].state == "elsewhere"
    time.sleep(31.0)
    assert loop.run(once=True).tables[0].steps["compaction"].result == "done"
    with pytest.raises(LeaseLost):
        still_ours()


def test_a_damaged_lease_is_named(tmp_path: Path) -> None:
    table = keyed(str(tmp_path / "t"), Process(VirtualTime()), 6)
    table.client.store.put(LEASE_NAME, b"{}")
    with pytest.raises(CorruptFile, match=r"services\.lease"), hold_table(table.client, "me", 60.0):
        pass
    status = ServiceLoop(table).run(once=True)
    assert status.tables[0].state == "failed"
    assert LEASE_NAME in status.tables[0].message
