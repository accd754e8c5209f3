"""`lakefmt cluster` does what `Table.cluster` does."""

from __future__ import annotations

import json

import pyarrow as pa

import lakefmt


def made(path) -> lakefmt.Table:
    schema = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
    options = {"hoodie.parquet.small.file.limit": 0}
    table = lakefmt.create_table(str(path), schema=schema, record_key="id", partition_by="city", options=options)
    for number in range(3):
        table.insert(pa.table({"id": [f"{number}", f"{number}b"], "city": ["sf", "oslo"], "n": [3 - number, number]}))
    return table


def test_cluster_shows_its_plan_and_runs_it(run, tmp_path):
    table = made(tmp_path / "t")
    before = table.read().sort_by("id")
    shown = run("cluster", tmp_path / "t", "--column", "n", "--column", "id", "--order", "hilbert", "--plan").stdout
    assert "6 slices in 2 groups" in shown
    assert "hilbert by n, id" in shown
    assert len(table.file_groups()) == 6
    chosen = run("cluster", tmp_path / "t", "--partition", "sf", "--where", "n > 1", "--plan", "--json").stdout
    assert [group["partition"] for group in json.loads(chosen)["plan"]["groups"]] == ["city=sf"]
    said = json.loads(run("cluster", tmp_path / "t", "--column", "n", "--json").stdout)
    assert (said["rows"], len(said["files"])) == (6, 2)
    assert len(table.file_groups()) == 2
    assert table.read().sort_by("id").equals(before)


def test_plans_are_requested_run_and_removed(run, tmp_path):
    table = made(tmp_path / "t")
    assert "is requested" in run("cluster", tmp_path / "t", "--schedule").stdout
    (waiting,) = [i.time for i in table.client.load().timeline.pending]
    assert "became 2 files" in run("cluster", tmp_path / "t", "--run", waiting).stdout
    planned = json.loads(run("cluster", tmp_path / "t", "--column", "n", "--schedule", "--json").stdout)
    assert "removed" in run("cluster", tmp_path / "t", "--abandon", planned["instant"]).stdout
    assert table.client.load().timeline.pending == ()
    assert run("cluster", tmp_path / "t", "--run", "1", "--schedule", status=2).stdout == ""
