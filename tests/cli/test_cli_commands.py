"""Every command does what the verb of its name does."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt.testing.multiset import multiset_digest


def keys(path, **how):
    return sorted(lakefmt.open_table(str(path)).read(columns=["id"], **how)["id"].to_pylist())


def json_rows(text):
    return sorted((json.loads(line) for line in text.splitlines()), key=lambda row: row["id"])


# --------------------------------------------------------------------------------------------------------- create


def test_create_says_what_it_made(run, tmp_path):
    said = run(
        "create", tmp_path / "t", "--schema", "id:string!,n:int", "-k", "id", "--name", "things", "--json"
    ).stdout
    assert json.loads(said) == {
        "table": str(tmp_path / "t"),
        "name": "things",
        "version": 8,
        "columns": {"id": "string", "n": "int32"},
    }
    table = lakefmt.open_table(str(tmp_path / "t"))
    assert table.properties.record_key_fields == ("id",)
    assert not table.schema.field("id").nullable


@pytest.mark.parametrize("version", [6, 8, 9])
def test_create_passes_its_options_on(run, tmp_path, version):
    words = ["-k", "a", "-k", "b", "-p", "c", "-o", "n", "--table-version", version, "--index", "simple"]
    run("create", tmp_path / "t", "--schema", "a:string,b:string,c:string,n:int", *words, "--database", "db")
    table = lakefmt.open_table(str(tmp_path / "t"))
    assert table.properties.record_key_fields == ("a", "b")
    assert table.properties.ordering_fields == ("n",)
    assert table.properties.version.value == version
    assert table.properties.properties["hoodie.database.name"] == "db"
    assert table.client.load_notes()["index"] == "simple"


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.csv", b"id,n\na,1\n"), ("x.jsonl", b'{"id": "a", "n": 1}\n'), ("x.parquet", None)],
)
def test_create_takes_a_schema_from_a_file(run, tmp_path, name, content):
    file = tmp_path / name
    if content is None:
        pq.write_table(pa.table({"_hoodie_record_key": ["a"], "id": ["a"], "n": [1]}), file)
    else:
        file.write_bytes(content)
    run("create", tmp_path / "t", "--schema-from", file, "-k", "id")
    assert lakefmt.open_table(str(tmp_path / "t")).schema == pa.schema([("id", pa.string()), ("n", pa.int64())])


def test_create_where_there_is_one(run, trips):
    words = ["create", trips, "--schema", "id:string", "-k", "id"]
    assert run(*words, status=1).stderr.startswith("error[table_exists]: ")
    run(*words, "--if-exists", "open")
    assert keys(trips) == ["a", "b", "c"]


# ---------------------------------------------------------------------------------------------------------- write


def test_write_updates_and_inserts(run, trips):
    rows = '{"id": "a", "city": "sf", "fare": 9.0, "tags": null, "at": null}\n{"id": "d", "city": "sf"}\n'
    result = json.loads(run("write", trips, "--format", "jsonl", "--json", stdin=rows).stdout)
    assert (result["num_inserts"], result["num_updates"], result["operation"]) == (1, 1, "upsert")
    assert result["instant"] == lakefmt.open_table(str(trips)).snapshot().instant
    assert [(trips / name).is_file() for name in result["files"]] == [True]
    assert keys(trips, filter="fare = 9.0") == ["a"]
    assert keys(trips) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_write_without_looking_for_keys(run, trips, operation):
    rows = '{"id": "a", "city": "sf", "fare": 9.0}\n'
    said = run("write", trips, "-", "--format", "jsonl", "--operation", operation, stdin=rows).stdout
    assert said.startswith(f"{operation} ")
    assert "1 inserted" in said
    assert keys(trips) == ["a", "a", "b", "c"]


def test_write_overwrites_partitions_or_the_table(run, trips):
    rows = '{"id": "d", "city": "sf", "fare": 9.0}\n'
    run("write", trips, "--format", "jsonl", "--operation", "insert_overwrite", stdin=rows)
    assert keys(trips) == ["b", "d"]
    run("write", trips, "--format", "jsonl", "--operation", "insert_overwrite_table", stdin=rows)
    assert keys(trips) == ["d"]


def test_write_drops_duplicates(run, trips):
    rows = '{"id": "a", "city": "sf"}\n{"id": "d", "city": "sf"}\n{"id": "d", "city": "sf"}\n'
    run("write", trips, "--format", "jsonl", "--operation", "insert", "--drop-duplicates", stdin=rows)
    assert keys(trips) == ["a", "b", "c", "d"]


def test_partial_rows_keep_what_is_stored(run, trips):
    run("write", trips, "--format", "jsonl", "--partial", stdin='{"id": "a", "city": "sf", "fare": 9.0}\n')
    (row,) = lakefmt.open_table(str(trips)).read(["fare", "tags"], "id = 'a'").to_pylist()
    assert row == {"fare": 9.0, "tags": ["x", "y"]}


def test_write_takes_several_files_of_several_formats(run, trips, tmp_path):
    (tmp_path / "x.csv").write_text("id,city,fare,at\nd,sf,1,2026-01-01\n")
    pq.write_table(
        pa.table({"at": pa.array([None], pa.timestamp("us", "UTC")), "id": ["e"], "fare": [2.0], "city": ["sf"]}),
        tmp_path / "x.parquet",
    )
    run("write", trips, tmp_path / "x.csv", tmp_path / "x.parquet", "--partial")
    assert keys(trips) == ["a", "b", "c", "d", "e"]


def test_write_adds_columns_unless_told_not_to(run, trips):
    rows = '{"id": "d", "city": "sf", "new": 1}\n'
    words = ["write", trips, "--format", "jsonl"]
    assert "new" in run(*words, "--schema-change", "strict", stdin=rows, status=1).stderr
    run(*words, stdin=rows)
    assert "new" in lakefmt.open_table(str(trips)).schema.names


def test_write_keeps_commit_metadata(run, trips):
    words = ["--commit-metadata", "offset=7", "--commit-metadata", "who=me=you"]
    run("write", trips, "--format", "jsonl", *words, stdin='{"id": "d", "city": "sf"}\n')
    table = lakefmt.open_table(str(trips))
    state = table.client.load()
    extra = table.client.at(state).commit_metadata(state.timeline.latest_commit).extra_metadata
    assert (extra["offset"], extra["who"]) == ("7", "me=you")


def test_write_of_nothing_makes_no_instant(run, trips):
    before = len(lakefmt.open_table(str(trips)).timeline)
    result = json.loads(run("write", trips, "--format", "jsonl", "--json", stdin="").stdout)
    assert result["instant"] is None
    assert len(lakefmt.open_table(str(trips)).timeline) == before


def test_write_honours_and_refuses_settings(run, trips):
    words = ["write", trips, "--format", "jsonl", "--option"]
    row = '{"id": "d", "city": "sf"}\n'
    assert "unknown_setting" in run(*words, "hoodie.parquet.max.file.sice=1", stdin=row, status=1).stderr
    run(*words, "hoodie.parquet.compression.codec=snappy", stdin=row)
    newest = max(trips.rglob("city=sf/*.parquet"), key=lambda p: p.name.rsplit("_", 1)[-1])
    assert pq.ParquetFile(newest).metadata.row_group(0).column(0).compression == "SNAPPY"


def test_an_inert_setting_is_warned_of_on_stderr(run, trips):
    words = ["write", trips, "--format", "jsonl", "--option", "hoodie.upsert.shuffle.parallelism=2"]
    result = run(*words, stdin='{"id": "d", "city": "sf"}\n')
    assert result.stderr.startswith("warning: hoodie.upsert.shuffle.parallelism has no effect")


# ----------------------------------------------------------------------------------------------------------- read


def test_read_prints_a_table(run, trips):
    said = run("read", trips, "-c", "id,fare,tags", "-f", "city = 'sf'").stdout.splitlines()
    assert said[:2] == ["id  fare  tags", "──  ────  ──────────"]
    assert sorted(said[2:4]) == ['a    1.5  ["x", "y"]', "c   null  []"]
    assert said[4] == "(2 rows)"


def test_read_shows_twenty_rows_and_says_that_there_are_more(run, trips):
    run("write", trips, "--format", "jsonl", stdin="".join(f'{{"id": "k{n:02}", "city": "sf"}}\n' for n in range(30)))
    said = run("read", trips).stdout.splitlines()
    assert len(said) == 2 + 20 + 1
    assert said[-1] == "(first 20 rows; --limit shows more)"
    assert len(run("read", trips, "--limit", 33).stdout.splitlines()) == 2 + 33 + 1
    assert len(run("read", trips, "--json").stdout.splitlines()) == 33


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 2**63, 2**80])
def test_read_stops_at_a_limit(run, trips, limit):
    assert len(run("read", trips, "--json", "--limit", limit).stdout.splitlines()) == min(limit, 3)


def test_read_prints_json_lines(run, trips):
    rows = json_rows(run("read", trips, "--json").stdout)
    assert rows[0] == {"id": "a", "city": "sf", "fare": 1.5, "tags": ["x", "y"], "at": "2026-01-01T10:00:00.000000Z"}
    assert rows[2] == {"id": "c", "city": "sf", "fare": None, "tags": [], "at": None}


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_what_is_read_can_be_written(run, trips, tmp_path, suffix):
    file = tmp_path / f"out.{suffix}"
    run("read", trips, "--output", file, "--meta-columns")
    run("create", tmp_path / "copy", "--schema-from", file, "-k", "id")
    copy = tmp_path / "again"
    run("create", copy, "--schema", "id:string!,city:string,fare:double,tags:list<string>,at:timestamp", "-k", "id")
    run("write", copy, file, "--operation", "bulk_insert", "--schema-change", "strict")
    ours, theirs = (lakefmt.open_table(str(path)).read() for path in (trips, copy))
    assert multiset_digest(ours) == multiset_digest(theirs)
    assert not list(tmp_path.glob("*.partial"))


def test_csv_that_is_read_can_be_written(run, trips, tmp_path):
    run("read", trips, "-c", "id,city,fare,at", "-O", tmp_path / "out.csv")
    run("create", tmp_path / "copy", "--schema", "id:string,city:string,fare:double,at:timestamp", "-k", "id")
    run("write", tmp_path / "copy", tmp_path / "out.csv")
    columns = ["id", "city", "fare", "at"]
    ours, theirs = (lakefmt.open_table(str(path)).read(columns) for path in (trips, tmp_path / "copy"))
    assert ours.sort_by("id").to_pylist() == theirs.sort_by("id").to_pylist()


def test_read_as_of_an_instant(run, trips):
    first = lakefmt.open_table(str(trips)).snapshot().instant
    run("delete", trips, "--key", "a")
    assert len(json_rows(run("read", trips, "--json").stdout)) == 2
    assert len(json_rows(run("read", trips, "--json", "--as-of", first).stdout)) == 3
    assert len(json_rows(run("read", trips, "--json", "--as-of", "2020-01-01T00:00:00Z").stdout)) == 0


def test_a_failed_read_leaves_no_file(run, trips, tmp_path):
    for base in trips.rglob("city=nyc/*.parquet"):
        base.write_bytes(b"PAR1 no more PAR1")
    assert run("read", trips, "-O", tmp_path / "out.parquet", status=1).stderr.startswith("error[corrupt_file]: ")
    assert not list(tmp_path.glob("out*"))


def test_incremental_says_where_the_next_begins(run, trips):
    everything = run("incremental", trips, "--start", "000", "--json")
    assert len(json_rows(everything.stdout)) == 3
    start = everything.stderr.removeprefix("next start: ").strip()
    run("write", trips, "--format", "jsonl", stdin='{"id": "b", "city": "nyc"}\n{"id": "d", "city": "sf"}\n')
    later = run("incremental", trips, "--start", start, "--json", "-c", "id")
    assert json_rows(later.stdout) == [{"id": "b"}, {"id": "d"}]
    earlier = run("incremental", trips, "--start", "000", "--end", start, "--json", "-c", "id")
    assert json_rows(earlier.stdout) == [{"id": "a"}, {"id": "b"}, {"id": "c"}]
    assert earlier.stderr == f"next start: {start}\n"


def test_changes_tell_both_images_and_where_the_next_begin(run, trips):
    start = run("changes", trips, "--start", "000", "-n", "0", "--json").stderr.removeprefix("next start: ").strip()
    run("write", trips, "--format", "jsonl", stdin='{"id": "b", "city": "nyc"}\n{"id": "d", "city": "sf"}\n')
    run("delete", trips, "--key", "a")
    said = run("changes", trips, "--start", start, "--json", "-c", "id")
    images = [(row["op"], row["before"], row["after"]) for row in map(json.loads, said.stdout.splitlines())]
    assert sorted(images, key=str) == [
        ("d", {"id": "a"}, None),
        ("i", None, {"id": "d"}),
        ("u", {"id": "b"}, {"id": "b"}),
    ]
    lines = run("changes", trips, "--start", start, "--format", "csv", "-c", "id", "-f", "id = 'd'").stdout.splitlines()
    assert lines[0] == "op,ts_ms,before.id,after.id"
    assert len(lines) == 2
    assert lines[1].startswith("i,")


# --------------------------------------------------------------------------------------------------------- delete


def test_delete_by_key(run, trips):
    assert "2 deleted" in run("delete", trips, "--key", "a", "--key", "c", "--key", "nowhere").stdout
    assert keys(trips) == ["b"]


def test_delete_by_filter(run, trips):
    assert (
        json.loads(run("delete", trips, "--filter", "fare is null or city = 'nyc'", "--json").stdout)["num_deletes"]
        == 2
    )
    assert keys(trips) == ["a"]


def test_delete_looks_only_in_partitions_named(run, trips):
    run("delete", trips, "--key", "a", "--key", "b", "--partition", "city=nyc")
    assert keys(trips) == ["a", "c"]


def test_delete_of_whole_partitions(run, trips):
    assert run("delete", trips, "--partition", "city=sf").stdout.startswith("delete_partition ")
    assert keys(trips) == ["b"]
    assert run("delete", trips, "--partition", "city=la", status=1).stderr.startswith("error[invalid_input]: ")


@pytest.mark.parametrize(
    ("name", "content"), [("k.csv", "id,more\na,1\nb,2\n"), ("k.jsonl", '{"id": "a"}\n{"id": "b"}\n')]
)
def test_delete_by_a_file_of_keys(run, trips, tmp_path, name, content):
    (tmp_path / name).write_text(content)
    run("delete", trips, "--keys-file", tmp_path / name)
    assert keys(trips) == ["c"]


@pytest.mark.parametrize(
    ("name", "content", "left"),
    [
        ("k.csv", "id,city\n007,01\n", ["02"]),
        ("k.jsonl", '{"city": "02", "id": "007"}\n', ["01"]),
        ("k.csv", "id\n007\n", []),
        ("k.jsonl", '{"id": "007"}\n', []),
    ],
)
def test_delete_by_a_file_of_keys_and_partitions(run, tmp_path, name, content, left):
    path = tmp_path / "t"
    run("create", path, "--schema", "id:string,city:string", "-k", "id", "-p", "city")
    run("write", path, "--format", "csv", stdin="id,city\n007,01\n007,02\n")
    (tmp_path / name).write_text(content)
    run("delete", path, "--keys-file", tmp_path / name)
    assert lakefmt.open_table(path).read(["city"])["city"].to_pylist() == left


def test_delete_by_keys_on_standard_input(run, trips):
    run("delete", trips, "--keys-file", "-", "--format", "csv", stdin="id\nb\n")
    assert keys(trips) == ["a", "c"]


def test_delete_by_typed_and_composite_keys(run, tmp_path):
    path = tmp_path / "t"
    run("create", path, "--schema", "a:string,n:long,at:timestamp", "-k", "a", "-k", "n")
    rows = [{"a": "x", "n": 1}, {"a": "x", "n": 2}, {"a": "y", "n": 1}]
    run("write", path, "--format", "jsonl", stdin="\n".join(map(json.dumps, rows)))
    run("delete", path, "--key", '{"a": "x", "n": 1}', "--key", '{"n": "1", "a": "y"}')
    assert lakefmt.open_table(str(path)).read(["a", "n"]).to_pylist() == [{"a": "x", "n": 2}]
    for wrong in ("x", '["x", 1]', '{"a": "x"}', '{"a": "x", "n": null}', '{"a": "x", "n": [1]}'):
        assert "--key" in run("delete", path, "--key", wrong, status=2).stderr


def test_a_key_of_another_type_is_refused(run, tmp_path):
    run("create", tmp_path / "t", "--schema", "n:long", "-k", "n")
    assert run("delete", tmp_path / "t", "--key", "seven", status=1).stderr.startswith("error[schema_mismatch]: ")


# ------------------------------------------------------------------------------------------------- looking, undoing


def test_timeline_is_drawn_and_told(run, trips):
    run("delete", trips, "--key", "a")
    entries = json.loads(run("timeline", trips, "--json").stdout)
    assert [(e["action"], e["operation"], e["state"]) for e in entries] == [
        ("commit", "upsert", "completed"),
        ("commit", "delete", "completed"),
    ]
    assert entries[0]["inserts"] == 3
    drawn = run("timeline", trips).stdout
    assert drawn.count("●") == 2
    assert all(entry["time"] in drawn for entry in entries)
    newest = run("timeline", trips, "--limit", 1).stdout
    assert newest.count("●") == 1
    assert entries[1]["time"] in newest


def test_an_empty_timeline_is_drawn(run, tmp_path):
    run("create", tmp_path / "t", "--schema", "id:string", "-k", "id")
    assert run("timeline", tmp_path / "t").stdout.strip() == "(no instants)"
    assert json.loads(run("timeline", tmp_path / "t", "--json").stdout) == []


def test_files_are_those_on_disk(run, trips):
    told = json.loads(run("files", trips, "--json").stdout)
    assert {(piece["base_file"], piece["size_bytes"]) for piece in told} == {
        (path.relative_to(trips).as_posix(), path.stat().st_size) for path in trips.rglob("city=*/*.parquet")
    }
    drawn = run("files", trips).stdout
    assert all(piece["file_id"] in drawn for piece in told)
    assert "city=nyc" not in run("files", trips, "--partition", "city=sf").stdout


def test_stats_count(run, trips):
    found = json.loads(run("stats", trips, "--json").stdout)
    assert (found["rows"], found["partitions"], found["file_groups"], found["commits"]) == (3, 2, 2, 1)
    assert run("stats", trips).stdout.startswith("3 rows in 2 file groups of 2 partitions, ")


def test_rollback_shows_its_plan_and_needs_confirmation(run, trips):
    run("delete", trips, "--key", "a")
    instant = lakefmt.open_table(str(trips)).snapshot().instant
    plan = json.loads(run("rollback", trips, instant, "--plan", "--json").stdout)["plan"]
    assert plan["target"] == instant
    assert json.loads(run("rollback", trips, "latest", "--plan", "--json").stdout)["plan"] == plan
    assert len(plan["files"]) == 1
    refused = run("rollback", trips, instant, status=1)
    assert plan["files"][0] in refused.stdout
    assert refused.stderr.startswith("error[state]: ")
    assert keys(trips) == ["b", "c"]
    done = json.loads(run("rollback", trips, instant, "--yes", "--json").stdout)
    assert done["plan"] == plan
    assert keys(trips) == ["a", "b", "c"]
    assert not (trips / plan["files"][0]).exists()


def test_clean_shows_its_plan_and_needs_confirmation(run, trips):
    run("delete", trips, "--key", "a")
    run("delete", trips, "--key", "b")
    assert run("clean", trips, "--plan").stdout.startswith("clean (KEEP_LATEST_COMMITS): delete 0 files")
    plan = json.loads(run("clean", trips, "--retain-versions", "1", "--plan", "--json").stdout)["plan"]
    assert plan["policy"] == "KEEP_LATEST_FILE_VERSIONS"
    assert len(plan["files"]) == 2
    assert run("clean", trips, "--retain-versions", "1", status=1).stderr.startswith("error[state]: ")
    assert run("clean", trips, "--retain-versions", "1", "--retain-hours", "1", status=2)
    assert all((trips / name).exists() for name in plan["files"])
    done = json.loads(run("clean", trips, "--retain-versions", "1", "--yes", "--json").stdout)
    assert (done["plan"], done["deleted"]) == (plan, 2)
    assert not any((trips / name).exists() for name in plan["files"])
    assert keys(trips) == ["c"]


def test_explain_shows_what_a_read_opens(run, trips):
    lines = run("explain", trips, "-f", "city = 'sf'").stdout.splitlines()
    assert lines[0].startswith("reads 1 of 2 files, ")
    assert [line.split()[0] for line in lines[1:]] == ["left", "stored", "partition", "footers"]
    report = json.loads(run("explain", trips, "--filter", "fare > 1000000", "--json").stdout)
    assert [(step["name"], step["files"]) for step in report["steps"]] == [
        ("stored", 2),
        ("partition values", 2),
        ("footers", 0),
    ]
    assert json.loads(run("explain", trips, "--json").stdout)["steps"][-1]["name"] == "stored"
    assert run("explain", trips, "-f", "absent = 1", status=1).stderr.startswith("error[invalid_filter]: ")


def test_archive_shows_its_plan_and_does_not_ask(run, trips):
    run("delete", trips, "--key", "a")
    run("delete", trips, "--key", "b")
    plan = json.loads(run("archive", trips, "--keep", "1", "--plan", "--json").stdout)["plan"]
    assert plan["commits"] == 2
    assert json.loads(run("archive", trips, "--keep", "1", "--json").stdout) == {"plan": plan, "done": True}
    assert [i.time for i in lakefmt.open_table(str(trips)).timeline.timeline.commits] > plan["instants"]
    assert json.loads(run("archive", trips, "--keep", "1", "--plan", "--json").stdout)["plan"]["commits"] == 0
    assert keys(trips) == ["c"]


def test_rollback_of_what_is_not_there(run, trips):
    assert run("rollback", trips, "20200101000000000", "--yes", status=1).stderr.startswith(
        "error[instant_not_found]: "
    )


# ------------------------------------------------------------------------------------------------- write --create

_TWO = '{"id": "a", "city": "sf", "n": 1}\n{"id": "b", "city": "nyc", "n": 2}\n'


def test_write_creates_the_table_on_demand(run, tmp_path):
    words = [
        "write",
        tmp_path / "t",
        "--format",
        "jsonl",
        "--create",
        "-k",
        "id",
        "-p",
        "city",
        "-o",
        "n",
        "--type",
        "mor",
    ]
    assert "2 inserted" in run(*words, stdin=_TWO).stdout
    config = lakefmt.open_table(str(tmp_path / "t")).properties
    assert (config.record_key_fields, config.ordering_fields, config.table_type.value) == (
        ("id",),
        ("n",),
        "MERGE_ON_READ",
    )
    assert "2 updated" in run(*words, stdin=_TWO).stdout  # the second time there is one
    assert "record_key" in run(*words[:5], "-k", "n", stdin=_TWO, status=1).stderr


def test_write_without_a_table_says_how_to_create_one(run, tmp_path):
    said = run("write", tmp_path / "t", "--format", "jsonl", stdin=_TWO, status=1).stderr
    assert said.startswith("error[table_not_found]: ")
    assert "--create -k" in said
    assert not (tmp_path / "t").exists()


def test_creation_options_need_create(run, trips):
    assert "needs --create" in run("write", trips, "--format", "jsonl", "-k", "id", stdin=_TWO, status=2).stderr


def test_write_create_refuses_bad_rows_and_leaves_nothing(run, tmp_path):
    rows = '{"id": "a", "n": 1}\n{"id": null, "n": 2}\n'
    run("write", tmp_path / "t", "--format", "jsonl", "--create", "-k", "id", stdin=rows, status=1)
    assert not (tmp_path / "t").exists()


# ------------------------------------------------------------------------------------------------------- catalogs


@pytest.fixture
def catalog(monkeypatch):
    """The catalog that every address opens."""
    from lakefmt.catalogs import MemoryCatalog

    made = MemoryCatalog()
    monkeypatch.setattr("lakefmt._core.catalogs.sync.open_catalog", lambda address, settings=None: made)
    return made


def test_sync_makes_an_entry_and_tables_lists_it(run, tmp_path, catalog):
    rows = pa.table({"id": ["a", "b"], "city": ["sf", "oslo"]})
    made = lakefmt.write_table(str(tmp_path / "t"), rows, mode="upsert", record_key="id", partition_by="city")
    place = ["thrift://host:1", "--database", "rides", "--name", "trips"]
    assert run("sync", tmp_path / "t", *place).stdout == "rides.trips: created, partitions +2\n"
    said = json.loads(run("sync", tmp_path / "t", *place, "--json").stdout)
    assert said["entries"][0]["partitions_added"] == 0
    assert said["commit"] == made.instant
    assert catalog.load_table("rides", "trips").location == str(tmp_path / "t")
    (row,) = json.loads(run("tables", "thrift://host:1/rides", "--json").stdout)
    assert row == {"name": "rides.trips", "location": str(tmp_path / "t"), "synced": made.instant}
    assert "rides.trips" in run("tables", "thrift://host:1").stdout
    assert run("tables", "glue://region/empty").stdout == "no Hudi tables in glue://region/empty\n"


def test_what_is_no_catalog_is_said(run, tmp_path, catalog):
    lakefmt.create_table(str(tmp_path / "t"), schema=pa.schema([("id", pa.string())]), record_key="id")
    assert run("tables", "glue:", "--rows", status=2).stderr.count("a catalog does not count rows") == 1


def test_columns_that_are_named_one_by_one_are_all_read(run, trips):
    one_by_one = run("read", trips, "--columns", "id", "-c", "city", "--format", "csv").stdout
    assert one_by_one == run("read", trips, "--columns", "id,city", "--format", "csv").stdout
    assert one_by_one.splitlines()[0] == "id,city"
