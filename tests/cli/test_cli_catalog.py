"""`lakefmt tables` lists what is below a folder, `lakefmt sql` asks it; `lakefmt services` takes folders."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.storage.local import LocalStore
from lakefmt.errors import StorageError
from lakefmt.find_tables import find_tables, list_tables
from lakefmt.services import ServiceLoop

ROWS = pa.table({"id": ["a", "b"], "city": ["sf", "nyc"], "n": [1, 2]})


@pytest.fixture
def folder(tmp_path):
    lakefmt.write_table(tmp_path / "trips", ROWS, record_key="id", partition_by="city")
    lakefmt.create_table(tmp_path / "eu" / "rides", data=ROWS, record_key="id", table_type="mor", table_version=9)
    (tmp_path / "notes").mkdir()
    (tmp_path / "_hidden").mkdir()
    (tmp_path / "damaged" / ".hoodie").mkdir(parents=True)
    (tmp_path / "damaged" / ".hoodie" / "hoodie.properties").write_text("hoodie.table.version=99\n")
    return tmp_path


def test_tables_are_listed_with_what_they_are(run, folder):
    listed = {each["name"]: each for each in json.loads(run("tables", folder, "--rows", "--json").stdout)}
    assert sorted(listed) == ["damaged", "eu/rides", "trips"]
    trips, rides = listed["trips"], listed["eu/rides"]
    assert (trips["table_type"], trips["version"], trips["rows"]) == ("cow", 8, 2)
    assert trips["latest_commit"] == lakefmt.open_table(trips["path"]).snapshot().instant
    assert (rides["table_type"], rides["version"], rides["latest_commit"]) == ("mor", 9, None)
    assert "hoodie.table.name" in listed["damaged"]["problem"]
    drawn = run("tables", folder).stdout
    assert drawn.splitlines()[0].split() == ["table", "type", "version", "newest", "commit"]
    assert "eu/rides  mor   9        none" in drawn


def test_a_folder_without_tables_has_none(run, tmp_path):
    assert run("tables", tmp_path).stdout.startswith("no tables below")
    assert json.loads(run("tables", tmp_path, "--json").stdout) == []


def test_a_table_is_found_by_itself_and_partitions_are_not_looked_into(folder):
    assert list(find_tables(folder / "trips")) == [(str(folder / "trips"), "trips")]
    (folder / "trips" / "city=sf" / ".hoodie").mkdir()
    assert [found.name for found in list_tables(folder)] == ["damaged", "eu/rides", "trips"]


@pytest.fixture
def forbidden(monkeypatch):
    """Folders that may not be listed, and tables whose properties may not be looked at, by their names."""
    names: set[str] = set()

    def refusing(real):
        def guarded(store, name="", **more):
            if {*f"{store.url}/{name}".split("/")} & names:
                raise StorageError(f"cannot look at {name!r}: permission denied")
            return real(store, name, **more)

        return guarded

    for method in ("list_directories", "info"):
        monkeypatch.setattr(LocalStore, method, refusing(getattr(LocalStore, method)))
    return names


def test_what_may_not_be_read_hides_no_other_table(run, folder, forbidden):
    (folder / "damaged" / ".hoodie" / "hoodie.properties").unlink()
    (folder / "lost+found").mkdir()
    forbidden.add("lost+found")
    listed = {each.name: each.problem for each in list_tables(folder)}
    assert listed == {"eu/rides": "", "lost+found": listed["lost+found"], "trips": ""}
    assert "permission denied" in listed["lost+found"]
    assert "permission denied" in run("tables", folder).stdout
    assert [name for _, name in find_tables(folder)] == ["eu/rides", "trips"]
    served = ServiceLoop(str(folder)).run(once=True)
    assert sorted(each.table.rpartition("/")[2] for each in served.tables) == ["rides", "trips"]
    assert not served.has_failed
    forbidden.add("trips")
    assert [name for _, name in find_tables(folder)] == ["eu/rides"]
    forbidden.add(folder.name)
    with pytest.raises(StorageError, match="permission denied"):
        list(find_tables(folder))


def test_sql_does_not_guess_which_of_two_tables_is_meant(run, folder, monkeypatch):
    lakefmt.write_table(folder / "us" / "trips", ROWS.slice(1), record_key="id")
    monkeypatch.chdir(folder)
    refused = run("sql", "SELECT count(*) FROM trips", status=2).stderr
    assert "trips is ./trips and ./us/trips: say which, such as trips=./trips" in " ".join(refused.split())
    assert "2" in run("sql", "SELECT count(*) FROM trips", "trips=./trips").stdout


def test_sql_asks_one_table_as_t(run, folder):
    said = run(
        "sql", "SELECT city, sum(n) AS n FROM t GROUP BY city ORDER BY city", folder / "trips", "--format", "csv"
    )
    assert said.stdout.splitlines() == ["city,n", "nyc,2", "sf,1"]


def test_sql_joins_tables_by_name(run, folder, monkeypatch):
    lakefmt.open_table(folder / "eu" / "rides").insert(ROWS)
    query = "SELECT a.id, b.n FROM trips a JOIN other b USING (id) WHERE b.n > 1"
    said = run("sql", query, folder / "trips", f"other={folder / 'eu' / 'rides'}", "--json")
    assert [json.loads(line) for line in said.stdout.splitlines()] == [{"id": "b", "n": 2}]
    monkeypatch.chdir(folder)
    assert "2" in run("sql", "SELECT count(*) FROM rides").stdout


@pytest.mark.parametrize(("query", "said"), [("SELECT nothing FROM t", "nothing"), ("SELEC 1", "SELEC")])
def test_what_duckdb_refuses_is_one_line(run, folder, query, said):
    error = run("sql", query, folder / "trips", status=1).stderr
    assert error.startswith("error[")
    assert said in error


def test_services_serve_the_tables_of_a_folder_and_later_ones(folder):
    (folder / "damaged" / ".hoodie" / "hoodie.properties").unlink()
    loop = ServiceLoop(str(folder))
    first = loop.run(once=True)
    assert sorted(each.table.rpartition("/")[2] for each in first.tables) == ["rides", "trips"]
    assert not first.has_failed
    lakefmt.write_table(folder / "later", ROWS, record_key="id")
    second = loop.run(once=True)
    assert sorted(each.table.rpartition("/")[2] for each in second.tables) == ["later", "rides", "trips"]


def test_a_type_is_text_or_object_and_the_table_type_has_one_word(run, tmp_path):
    run("create", tmp_path / "t", "--schema", "id:string,n:int", "-k", "id", "--table-type", "mor")
    table = lakefmt.open_table(tmp_path / "t")
    assert table.properties.table_type.value == "MERGE_ON_READ"
    table.alter.update_column("n", type="long")
    table.alter.add_column("tags", "list<string>")
    assert table.schema.field("n").type == pa.int64()
    assert table.schema.field("tags").type == pa.list_(pa.string())
    with pytest.raises(lakefmt.errors.InvalidInputError, match="unknown type"):
        table.alter.add_column("x", "nonsense")


def test_services_streams_and_undo_are_the_verbs_of_the_table(folder):
    table = lakefmt.open_table(folder / "trips")
    table.upsert(ROWS)
    assert table.services.clean(dry_run=True).plan == table.clean(dry_run=True).plan
    assert table.undo.rollback(table.snapshot().instant).instant
    with table.services() as running:
        assert running is table.services()
    assert table.streams.recover_streams() == []
    assert table.streams.consumers.list() == table.consumers.list()
