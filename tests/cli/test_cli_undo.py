"""`lakefmt savepoint`, `lakefmt restore`, `lakefmt rollback`: shown, asked, done; the same in JSON."""

from __future__ import annotations

import json

import lakefmt


def test_keep_list_go_back_and_keep_no_longer(run, trips):
    table = lakefmt.open_table(str(trips))
    newest = table.snapshot().instant
    rows = table.read().num_rows
    shown = json.loads(run("savepoint", "create", trips, "--comment", "why", "--dry-run", "--json").stdout)
    assert (shown["done"], shown["savepoint"]["instant"], table.savepoints()) == (False, newest, ())
    run("savepoint", "create", trips, "--comment", "why", "--user", "ann")  # removes nothing, so it does not ask
    (said,) = json.loads(run("savepoint", "list", trips, "--json").stdout)
    assert (said["instant"], said["comment"], said["user"]) == (newest, "why", "ann")
    assert "by ann: why" in run("savepoint", "list", trips).stdout
    assert run("savepoint", "create", trips, "--yes", status=1).stderr.startswith("error[")

    table.delete(table.read()["id"].to_pylist()[:1])
    plan = run("restore", trips, "latest", "--plan").stdout
    assert plan.startswith(f"restore to savepoint {newest}: undo 1 instants")
    assert run("restore", trips, "latest", status=1).stderr.startswith("error[state]: aborted, nothing was changed")
    done = json.loads(run("restore", trips, str(newest), "--yes", "--json").stdout)
    assert (done["plan"]["target"], len(done["plan"]["instants"])) == (newest, 1)
    assert done["instant"]
    assert table.read().num_rows == rows
    assert run("restore", trips, str(newest), "--yes").stdout.startswith(f"restore to savepoint {newest}: undo 0")

    assert run("savepoint", "delete", trips, "20200101000000000", "--yes", status=1).stderr.startswith("error[")
    run("savepoint", "delete", trips, str(newest), "--yes")
    assert run("savepoint", "list", trips).stdout == "no savepoints\n"


def test_a_clean_that_waits_is_withdrawn(run, trips):
    table = lakefmt.open_table(str(trips))
    for _ in range(2):
        table.delete(table.read()["id"].to_pylist()[:1])
    planned = table.clean(schedule=True, options={"hoodie.clean.commits.retained": 1}).instant
    assert planned is not None
    assert run("rollback", trips, planned, "--yes").stdout.endswith(f"clean {planned}: plan removed\n")
