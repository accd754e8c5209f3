"""The demo of streams on one month: the writer is killed, and nothing is lost or comes twice; the proof can say no."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from examples.quickstart.output import Output
from examples.stream.events import Events
from examples.stream.parts import take_note
from examples.stream.proof import prove
from examples.stream.replay import Replay, run_replay
from examples.stream.view import View

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.in_turn(2, "demonstrations")
def test_a_month_through_a_stream_whose_writer_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replay = Replay(tmp_path, (2,), seconds=4.0, commit_ms=500, limit=300.0)
    assert run_replay(replay, Output(), View())
    shown = capsys.readouterr().out
    assert "kill -9 of the writer after" in shown
    assert shown.count("✓") == 3
    writer, follower = take_note(tmp_path / "writer.json"), take_note(tmp_path / "follower.json")
    assert 0 < writer["resumed"] <= writer["applied"] == len(Events(tmp_path / "events.arrow"))
    assert follower["inserted"] * 2 == writer["applied"]

    # The sabotage twin: one row changes, and both judges and the count of the follower say no.
    raw = tmp_path / "flights.csv"
    assert not prove(tmp_path, raw, (2,), {**follower, "inserted": follower["inserted"] + 1}, Output())
    table = lakefmt.open_table(tmp_path / "flights")
    row = table.read().slice(0, 1)
    place = row.schema.get_field_index("dep_delay")
    table.upsert(row.set_column(place, row.schema.field(place), pa.array([9999], pa.int32())))
    assert not prove(tmp_path, raw, (2,), follower, Output())
    assert "DuckDB" in capsys.readouterr().out.split("✗", 1)[1]


def test_events_happen_in_their_order_and_at_their_time(tmp_path: Path) -> None:
    from examples.quickstart.flights import extract_flights
    from examples.stream.events import make_events

    total = make_events(extract_flights(tmp_path), tmp_path / "events.arrow", (2,))
    events = Events(tmp_path / "events.arrow")
    assert len(events) == total == 2 * 24_951
    assert events.happened(-1.0, 1000.0) == 0
    assert 0 < events.happened(1.0, 86_400.0) < events.happened(2.0, 86_400.0) < total
    assert events.happened(events.days + 0.001, 86_400.0) == total
    updated = events.rows["updated"].to_pylist()
    assert updated == sorted(updated)
