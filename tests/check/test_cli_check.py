"""`lakefmt check`: says what is wrong, shows its plan, asks, repairs; exit status 1 while something is wrong."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import lakefmt
from lakefmt._core.cli import main
from tests.check.kit import OPTIONS, SCHEMA, rows

pytestmark = pytest.mark.skipif("check" not in main.commands, reason="the command is not registered yet")


@pytest.fixture
def run() -> Callable[..., Result]:
    apart = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    runner = CliRunner(**apart)

    def call(*words: object, status: int = 0) -> Result:
        result = runner.invoke(main, ["check", *map(str, words)])
        assert result.exit_code == status, f"{result.exit_code}: {result.stdout}{result.stderr}{result.exception!r}"
        return result

    return call


@pytest.fixture
def place(tmp_path: Path) -> Path:
    root = tmp_path / "trips"
    table = lakefmt.create_table(str(root), schema=SCHEMA, record_key="id", partition_by="city", options=OPTIONS)
    table.upsert(rows(0, 9, ts=1))
    table.upsert(rows(0, 9, ts=2))
    return root


def test_a_sound_table(run, place):  # type: ignore[no-untyped-def]
    assert "nothing wrong (full check of" in run(place, "--full").stdout
    said = json.loads(run(place, "--json").stdout)
    assert said["is_clean"] is True
    assert said["findings"] == said["plan"] == []
    assert "nothing wrong" in run(place, "--repair").stdout


def test_damage_is_told_planned_and_mended(run, place):  # type: ignore[no-untyped-def]
    (place / "city=sf/.hoodie_partition_metadata").unlink()
    said = run(place, status=1).stdout
    assert "partition_metadata city=sf: the directory holds committed files" in said
    found = json.loads(run(place, "--json", status=1).stdout)
    assert [f["kind"] for f in found["findings"]] == ["partition_metadata"]
    assert found["plan"][0]["step"] == "MarkPartition"
    planned = run(place, "--repair", "--plan", status=1).stdout
    assert "  put .hoodie_partition_metadata into city=sf" in planned
    refused = run(place, "--repair", status=1)
    assert refused.stderr.startswith("error[state]: aborted, nothing was changed")
    assert not (place / "city=sf/.hoodie_partition_metadata").exists()
    assert "done: put" in run(place, "--repair", "--yes").stdout
    assert "nothing wrong" in run(place, "--full").stdout
    assert lakefmt.open_table(str(place)).read().num_rows == 9


def test_a_loss_takes_two_words(run, place):  # type: ignore[no-untyped-def]
    newest = sorted((place / "city=sf").glob("*.parquet"), key=lambda p: p.name.rpartition("_")[2])[-1]
    newest.unlink()
    said = json.loads(run(place, "--repair", "--yes", "--json", status=1).stdout)
    assert [o["state"] for o in said["outcomes"]] == ["refused"]
    assert said["after"]["is_clean"] is False
    done = json.loads(run(place, "--repair", "--yes", "--accept-loss", "--json").stdout)
    assert [o["state"] for o in done["outcomes"]] == ["done"]
    assert done["after"]["is_clean"] is True


def test_a_table_that_cannot_be_opened_can_be_checked(run, place):  # type: ignore[no-untyped-def]
    properties = place / ".hoodie/hoodie.properties"
    whole = properties.read_bytes()
    properties.write_bytes(whole[:-5])
    assert "properties .hoodie/hoodie.properties: its last line has no end" in run(place, status=1).stdout
    (place / ".hoodie/hoodie.properties.backup").write_bytes(whole)
    run(place, "--repair", "--yes")
    assert properties.read_bytes() == whole
    run(place.parent / "nowhere", status=1)


def test_names_from_the_table_give_no_orders_to_the_terminal(run, place):  # type: ignore[no-untyped-def]
    time = lakefmt.open_table(str(place)).timeline.entries[-1].time
    name = f"f\x1b[31m-0_9-9-9_{int(time) + 5}.parquet"
    (place / "city=sf" / name).write_bytes(b"x")
    assert "\x1b" not in run(place).stdout
