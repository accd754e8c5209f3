"""Who is told of rounds is told of one at a time, however many tables run."""

from __future__ import annotations

import threading

import lakefmt.ingest


def test_tables_that_run_side_by_side_are_told_of_one_after_the_other():
    inside, most, states = 0, 0, []
    never = threading.Event()

    def told(progress):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        never.wait(0.02)  # as long as a status file takes on a busy disk
        states.append(sum(table.commits for table in progress.tables))
        inside -= 1

    tables = [
        {"source": [{"id": 1}], "source_kind": "rows", "table": f"memory://told-{number}", "key": "id"}
        for number in range(4)
    ]
    lakefmt.ingest.run({"table": tables}, on_round=told)
    assert most == 1
    assert states == sorted(states)
    assert states[-1] == 4
