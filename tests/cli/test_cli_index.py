"""`lakefmt index`: makes, lists, checks, repairs and drops indexes of the metadata table, and says so."""

from __future__ import annotations

import json

import pyarrow as pa

import lakefmt

MORE = {"hoodie.bucket.index.max.num.buckets": 3}


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


def test_an_index_is_planned_and_made_later(run, trips):
    planned = json.loads(run("index", "schedule", trips, "record_index", "--json").stdout)["instant"]
    assert [each["action"] for each in json.loads(run("timeline", trips, "--json").stdout)][-1] == "indexing"
    assert "already" in run("index", "schedule", trips, "record_index", status=1).stderr
    assert [line.split(":")[0] for line in run("index", "list", trips).stdout.splitlines()] == ["files"]
    text = run("index", "schedule", trips, "secondary_index", "--column", "city", "--name", "town").stdout
    assert text.startswith("indexing ")
    assert text.endswith(" is planned; lakefmt index run makes it\n")
    assert json.loads(run("index", "run", trips, planned, "--json").stdout) == {"indexes": ["files", "record_index"]}
    assert run("index", "run", trips).stdout == "ready: files, record_index, secondary_index_town\n"
    assert "no indexing is pending" in run("index", "run", trips, planned, status=1).stderr
    assert lakefmt.open_table(trips).index.check().is_clean


def test_buckets_are_resized(run, tmp_path):
    path = tmp_path / "buckets"
    engine = {"hoodie.index.bucket.engine": "CONSISTENT_HASHING", "hoodie.bucket.index.num.buckets": "2"}
    data = pa.table({"id": [f"k{n}" for n in range(40)], "p": ["x", "y"] * 20})
    table = lakefmt.create_table(
        path, data=data, record_key="id", partition_by="p", table_type="mor", index="bucket", properties=engine
    )
    table.upsert(data)
    most = [f"--option={key}={value}" for key, value in {**MORE, "hoodie.parquet.max.file.size": 1024}.items()]
    plan = run("index", "resize-buckets", path, "--plan", "--partition", "x", *most).stdout.splitlines()
    assert plan[0] == "resize: 1 buckets split and 0 merged in 1 partitions, not done"
    assert plan[1].startswith("  p=x: 1 → 2 buckets, ")
    assert len(plan) == 2
    done = json.loads(run("index", "resize-buckets", path, "--json", *most).stdout)
    assert [(one["partition"], one["before"], one["after"]) for one in done["changes"]] == [
        ("p=x", 1, 2),
        ("p=y", 1, 2),
    ]
    assert done["instant"] == table.timeline.timeline.commits[-1].time
    assert sorted(table.read()["id"].to_pylist()) == sorted(data["id"].to_pylist())
    assert len(table.file_groups()) == 6
    assert run("index", "resize-buckets", path, *most).stdout == (
        "resize: 0 buckets split and 0 merged in 0 partitions, not done\n"
    )


def test_tables_without_rings_are_not_resized(run, trips):
    assert "consistent hashing" in run("index", "resize-buckets", trips, status=1).stderr


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
