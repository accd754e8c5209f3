"""Keys and paths that another engine made by another rule than the properties say: a write finds the rows, or is refused."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakefmt
from lakefmt._core.filegroups.stored_keys import stored_key_spec, trusts_paths
from lakefmt.errors import LakefmtError, UnsupportedFeature
from lakefmt.testing.stores import CountingStore

DATA = Path(__file__).parents[1] / "data" / "keys"
FORMATTED = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
KINDS = [(version, kind) for version in (6, 8, 9) for kind in ("cow", "mor")]


def _unpacked(name: str, path: Path) -> Path:
    with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
        archive.extractall(path)
    return path


def _changed(rows: pa.Table) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index("v"), "v", pc.add(rows["v"], 10))


def _forget(path: Path, key: str) -> None:
    """Take a setting out of the properties, as a DataFrame's writer leaves it out."""
    properties = path / ".hoodie" / "hoodie.properties"
    lines = properties.read_text().splitlines(keepends=True)
    properties.write_text("".join(line for line in lines if not line.startswith(key)))


def _with_times(path: Path, version: int, kind: str, *, formatted: bool) -> pa.Table:
    millis = [1_483_005_240_000, 1_700_000_000_123]
    rows = pa.table(
        {
            "t": pa.array([n * 1000 for n in millis], pa.timestamp("us", "UTC")),
            "id": ["a", "b"],
            "p": ["x", "y"],
            "v": [1, 2],
        }
    )
    table = lakefmt.create_table(
        path,
        data=rows,
        record_key=["t", "id"],
        partition_by="p",
        table_version=version,
        table_type=kind,
        properties={FORMATTED: "true"} if formatted else None,
    )
    table.upsert(rows)
    table.upsert(rows.slice(0, 1))  # in a log of a merge-on-read table
    _forget(path, FORMATTED)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(("version", "kind"), KINDS)
@pytest.mark.parametrize("formatted", [True, False])
def test_the_form_of_times_is_that_of_stored_keys(tmp_path, version, kind, formatted):
    rows = _with_times(tmp_path / "t", version, kind, formatted=formatted)
    result = lakefmt.open_table(tmp_path / "t").upsert(_changed(rows))
    assert (result.num_inserts, result.num_updates) == (0, 2)
    table = lakefmt.open_table(tmp_path / "t")
    assert sorted(table.read()["v"].to_pylist()) == [11, 12]
    assert not table.check("full").findings
    assert table.delete(rows.slice(1, 1).select(["t", "id"])).num_deletes == 1
    assert lakefmt.open_table(tmp_path / "t").read()["id"].to_pylist() == ["a"]


def test_a_setting_that_contradicts_stored_keys_is_refused(tmp_path):
    rows = _with_times(tmp_path / "t", 9, "cow", formatted=False)
    with pytest.raises(UnsupportedFeature, match="stored keys have the other form"):
        lakefmt.open_table(tmp_path / "t").upsert(rows, options={FORMATTED: "true"})
    assert lakefmt.open_table(tmp_path / "t").read().num_rows == 2


def test_the_setting_counts_while_nothing_is_stored(tmp_path):
    rows = pa.table({"t": pa.array([1_483_005_240_000_000], pa.timestamp("us", "UTC")), "v": [1]})
    table = lakefmt.create_table(tmp_path / "t", data=rows, record_key="t")
    for _ in range(2):
        table.upsert(rows, options={FORMATTED: "true"})
    assert table.read(meta_columns=True)["_hoodie_record_key"].to_pylist() == ["2016-12-29 09:54:00.0"]


def test_keys_of_the_row_writer_are_found(tmp_path):
    table = lakefmt.open_table(_unpacked("v9_cow_row_writer_times_120", tmp_path / "t"))
    rows = table.read()
    assert table.upsert(_changed(rows.slice(0, 1))).num_inserts == 0
    assert lakefmt.open_table(tmp_path / "t").read().num_rows == rows.num_rows


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("v6_cow_slash_dates_120", "/"),
        ("v9_cow_row_writer_micros_120", "2016-12-29"),
        ("v9_mor_row_writer_bytes_120", r"\[B@"),
    ],
)
@pytest.mark.slow
@pytest.mark.parametrize("verb", ["upsert", "insert", "update", "delete", "overwrite"])
def test_what_cannot_be_made_again_is_refused(tmp_path, name, stored, verb):
    table = lakefmt.open_table(_unpacked(name, tmp_path / "t"))
    rows = table.read()
    keys = [*table.properties.record_key_fields]
    calls = {
        "upsert": lambda: table.upsert(rows),
        "insert": lambda: table.insert(rows),
        "update": lambda: table.update("v > 0", {"v": 7}),
        "delete": lambda: table.delete(rows.select(keys)),
        "overwrite": lambda: table.insert_overwrite(rows),
    }
    with pytest.raises(UnsupportedFeature, match=f"stored by another rule.*{stored}"):
        calls[verb]()
    again = lakefmt.open_table(tmp_path / "t")
    assert again.read().sort_by("v").equals(rows.sort_by("v"))


@pytest.mark.slow
def test_a_filter_does_not_trust_a_path_without_the_value(tmp_path):
    table = lakefmt.open_table(_unpacked("v6_cow_slash_dates_120", tmp_path / "t"))
    rows = table.read()
    for day in rows["ds"].unique().to_pylist():
        expected = sorted(rows.filter(pc.equal(rows["ds"], day))["k"].to_pylist())
        assert (
            sorted(lakefmt.open_table(tmp_path / "t").read(filter=pc.field("ds") == day)["k"].to_pylist()) == expected
        )
        assert sorted(table.read(filter=f"ds = '{day}'")["k"].to_pylist()) == expected


@pytest.mark.slow
def test_paths_of_a_foreign_rule_prune_nothing(tmp_path):
    """A whole number's path is a formatted day, as Flink writes it, and nothing says so."""
    path = tmp_path / "t"
    rows = pa.table({"id": ["a", "b"], "at": [20161229, 20170102], "v": [1, 2]})
    lakefmt.create_table(path, data=rows, record_key="id", partition_by="at").upsert(rows)
    real = {20161229: 1_482_969_600, 20170102: 1_483_315_200}
    _as_another_engine(
        path,
        lambda table: table.set_column(
            table.schema.get_field_index("at"),
            table.schema.field("at"),
            pa.array([real[n] for n in table["at"].to_pylist()]),
        ),
    )
    table = lakefmt.open_table(path)
    assert table.read(filter=pc.field("at") == 1_482_969_600)["id"].to_pylist() == ["a"]
    assert table.read(filter=pc.field("at") == 20161229).num_rows == 0
    with pytest.raises(LakefmtError, match="stored by another rule"):
        table.upsert(table.read())


def _as_another_engine(path: Path, edit: Callable[[pa.Table], pa.Table]) -> None:
    """Change the rows of base files, and give files and commits the write tokens of another engine."""
    import pyarrow.parquet as pq

    for file in [*path.rglob("*.parquet")]:
        rows = pq.read_table(file, partitioning=None)
        entries = pq.read_metadata(file).metadata
        changed = edit(rows).replace_schema_metadata({k: v for k, v in entries.items() if k != b"ARROW:schema"})
        pq.write_table(changed, file.with_name(file.name.replace("-0-0_", "-7-9_")))
        file.unlink()
    for commit in (path / ".hoodie").rglob("*commit"):
        commit.write_bytes(commit.read_bytes().replace(b"-0-0_", b"-7-9_"))


def test_a_table_of_lakefmt_is_asked_nothing(tmp_path):
    rows = pa.table({"id": ["a", "b"], "p": ["x", "y"], "v": [1, 2]})
    lakefmt.create_table(tmp_path / "t", data=rows, record_key="id", partition_by="p").upsert(rows)
    table = lakefmt.open_table(tmp_path / "t")
    table.client.store = CountingStore(table.client.store)
    assert trusts_paths(table.client.at())
    before = len(table.client.store.log)
    stored_key_spec(table.client.at(table.client.seen()))
    assert len(table.client.store.log) == before


def test_stored_rows_are_asked_once(tmp_path):
    table = lakefmt.open_table(_unpacked("v9_cow_row_writer_times_120", tmp_path / "t"))
    state = table.client.load()
    table.client.reader = _CountedReader(table.client.reader)
    specs = [stored_key_spec(table.client.at(state)) for _ in range(3)]
    assert table.client.reader.count == 1
    assert specs[0] == specs[2]


class _CountedReader:
    def __init__(self, reader) -> None:
        self._reader, self.count = reader, 0

    def first_rows(self, *arguments):
        self.count += 1
        return self._reader.first_rows(*arguments)
