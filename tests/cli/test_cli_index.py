"""`lakefmt index`: makes, lists, checks, repairs and drops indexes of the metadata table, and says so."""

from __future__ import annotations

import json

import lakefmt


def test_an_index_is_made_listed_and_dropped(run, trips):
    assert run("index", "list", trips).stdout == "no metadata table\n"
    made = json.loads(run("index", "create", trips, "secondary_index", "--column", "city", "--json").stdout)
    assert {key: made[key] for key in ("name", "kind", "state", "columns", "records")} == {
        "name": "secondary_index_city",
        "kind": "secondary_index",
        "state": "complete",
        "columns": ["city"],
        "records": 3,
    }
    lines = run("index", "list", trips).stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["files", "record_index", "secondary_index_city on city"]
    listed = json.loads(run("index", "list", trips, "--json").stdout)
    assert [each["name"] for each in listed] == ["files", "record_index", "secondary_index_city"]
    assert run("index", "drop", trips, "record_index", "-y").stdout == "record_index is dropped; left: files\n"
    assert json.loads(run("index", "drop", trips, "files", "-y", "--json").stdout) == {
        "dropped": "files",
        "indexes": [],
    }
    assert not lakefmt.open_table(trips).properties.metadata_partitions
    assert not (trips / ".hoodie" / "metadata").exists()


def test_check_finds_and_repairs(run, trips):
    run("index", "create", trips, "record_index")
    clean = run("index", "check", trips)
    assert clean.stdout == f"{trips}: nothing differs (files, record_index)\n"
    groups = sorted((trips / ".hoodie" / "metadata" / "record_index").glob("*record-index-0003-0*"))
    assert groups
    for path in groups:
        path.unlink()
    lines = run("index", "check", trips, "--plan", status=1).stdout.splitlines()
    assert lines[0] == f"{trips}: 1 finding (files, record_index)"
    assert lines[1].startswith("  record_index missing_file_group: a file group of it is missing: ")
    assert lines[-1] == "  repair: drop the index record_index and make it anew"
    report = json.loads(run("index", "check", trips, "--json", status=1).stdout)
    assert [(one["kind"], one["index"], one["mendable"]) for one in report["findings"]] == [
        ("missing_file_group", "record_index", True)
    ]
    assert report["plan"] == [
        {"step": "rebuild", "index": "record_index", "does": "drop the index record_index and make it anew"}
    ]
    assert "confirm" in run("index", "check", trips, "--repair", status=1).stderr
    done = json.loads(run("index", "check", trips, "--repair", "--yes", "--json").stdout)
    assert done["done"] == ["rebuild"]
    assert done["after"]["is_clean"]
    run("index", "check", trips)


def test_wrong_words_change_nothing(run, trips):
    assert "the kinds are files, column_stats" in run("index", "create", trips, "hbase", status=1).stderr
    assert "one column" in run("index", "create", trips, "secondary_index", status=1).stderr
    assert "no column 'x'" in run("index", "create", trips, "column_stats", "--column", "x", status=1).stderr
    assert "no metadata partition" in run("index", "drop", trips, "files", "-y", status=1).stderr
    assert run("index", "list", trips).stdout == "no metadata table\n"


def test_a_table_is_created_with_indexes(run, tmp_path):
    path = tmp_path / "t"
    run("create", path, "--schema", "id:string!", "-k", "id", "--metadata-index", "record_index")
    assert [each["name"] for each in json.loads(run("index", "list", path, "--json").stdout)] == [
        "files",
        "record_index",
    ]
