"""`lakefmt upgrade`: shows its plan, asks, does it, and says so."""

from __future__ import annotations

import json

import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.local import LocalStore
from lakefmt._core.upgrade import upgrade_table
from lakefmt.testing.stores import Fault, FaultMode, FaultStore, SimulatedCrash


@pytest.fixture
def old(run, tmp_path):
    """Return the path of a table of version 6 with two rows."""
    path = tmp_path / "old"
    run("create", path, "--schema", "id:string!, n:long", "-k", "id", "-o", "n", "--table-version", 6)
    run("write", path, "--format", "jsonl", stdin='{"id": "a", "n": 1}\n{"id": "b", "n": 2}\n')
    return path


def version(path) -> int:
    return lakefmt.open_table(str(path)).properties.version.value


def rows(path):
    return sorted(lakefmt.open_table(str(path)).read().to_pylist(), key=lambda row: row["id"])


ROWS = [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


def test_a_plan_changes_nothing(run, old):
    said = run("upgrade", old, "--to", "9", "--plan").stdout.splitlines()
    assert said[0] == "upgrade from version 6 to 9:"
    assert "  set hoodie.table.version=9" in said
    assert version(old) == 6


def test_without_a_yes_nothing_happens(run, old):
    failed = run("upgrade", old, "--to", "8", status=1)
    assert failed.stdout.startswith("upgrade from version 6 to 8:")
    assert failed.stderr.startswith("error[state]: aborted, nothing was changed")
    assert version(old) == 6


@pytest.mark.parametrize("target", [8, 9])
def test_yes_upgrades_and_the_table_goes_on(run, old, target):
    said = run("upgrade", old, "--to", target, "--yes").stdout.splitlines()
    assert said[-1] == f"upgraded to version {target}"
    assert version(old) == target
    assert rows(old) == ROWS
    run("write", old, "--format", "jsonl", stdin='{"id": "b", "n": 3}\n')
    assert rows(old) == [ROWS[0], {"id": "b", "n": 3}]


def test_json(run, old):
    shown = json.loads(run("upgrade", old, "--to", "8", "--plan", "--json").stdout)
    assert shown["done"] is False
    done = json.loads(run("upgrade", old, "--to", "8", "--yes", "--json").stdout)
    assert done == {"plan": shown["plan"], "done": True}
    assert (done["plan"]["source"], done["plan"]["target"]) == (6, 8)
    assert done["plan"]["properties"]["hoodie.timeline.layout.version"] == "2"
    assert sorted(done["plan"]["moves"]) == sorted(done["plan"]["leftovers"])
    assert not done["plan"]["drops_metadata_table"]


def test_twice_says_that_there_is_nothing_to_do(run, old):
    run("upgrade", old, "--to", "9", "--yes")
    assert run("upgrade", old, "--to", "9").stdout == "the table is of version 9 already: nothing to do\n"
    refused = run("upgrade", old, "--to", "8", "--yes", "--json", status=1)
    assert json.loads(refused.stderr)["error"]["kind"] == "invalid_input"


def test_what_a_dead_upgrade_left_is_removed_by_the_next(run, old):
    def no_removal(effect):
        return Fault(FaultMode.BEFORE) if effect.kind == "delete" and effect.name.startswith(".hoodie/2") else None

    # It dies at the first old timeline file that goes: the table is of the new version already.
    with pytest.raises(SimulatedCrash):
        upgrade_table(TableClient(FaultStore(LocalStore(str(old)), no_removal)), 8)
    assert version(old) == 8
    assert run("upgrade", old, "--to", "8", "--plan").stdout.startswith("upgrade from version 8 to 8:")
    run("upgrade", old, "--to", "8", "--yes")
    assert not list((old / ".hoodie").glob("*.commit*"))
    assert rows(old) == ROWS


@pytest.mark.parametrize("words", [[], ["--to", "7"], ["--to", "6"]])
def test_wrong_usage(run, old, words):
    assert "--to" in run("upgrade", old, *words, status=2).stderr
