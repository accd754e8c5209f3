"""The demo of ingestion on two months: the process is killed, and nothing is lost or comes twice; the proof can say no."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from examples.ingest.__main__ import prove, run_demo
from examples.quickstart.output import Output
from tests.judges.kafka import kafka_missing
from tests.judges.plugin import _refuse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.xdist_group("kafka")]


@pytest.fixture
def kafka_jars(request: pytest.FixtureRequest) -> None:
    lacking = kafka_missing()
    if lacking:
        _refuse(request.config, "KAFKA", lacking)


@pytest.mark.in_turn(2, "demonstrations")
def test_two_months_through_a_process_that_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kafka_jars: None
) -> None:
    assert run_demo(tmp_path, [1, 2], Output())
    shown = capsys.readouterr().out
    assert "kill -9 behind" in shown
    assert shown.count("✓") == 5

    # The sabotage twin: one row changes, and both judges say no.
    table = lakefmt.open_table(tmp_path / "flights")
    row = table.read().slice(0, 1)
    place = row.schema.get_field_index("dep_delay")
    table.upsert(row.set_column(place, row.schema.field(place), pa.array([9999], row.schema.field(place).type)))
    assert not prove(tmp_path, tmp_path / "flights.csv", [1, 2], Output())
    assert "DuckDB" in capsys.readouterr().out.split("✗", 1)[1]
