"""Expression indexes: made, kept by every kind of write, dropped; what lakefmt cannot keep is refused before it writes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.metadata.collect import files_of_slice
from lakefmt._core.metadata.index_readers import read_expression_stats
from lakefmt._core.metadata.layout import (
    METADATA_DIRECTORY,
    expression_index_definition,
    parse_index_definitions,
    render_index_definitions,
)
from lakefmt._core.metadata.manage import load_definitions
from lakefmt._core.metadata.reader import MetadataTable
from lakefmt._core.table import Table
from lakefmt._core.transactions.indexing import drop_metadata_index
from lakefmt._core.values import TableVersion
from lakefmt.errors import InvalidInputError, MetadataTablePresent, UnsupportedFeature
from tests.example_counts import examples
from tests.metadata.metadata_content import check_metadata_table
from tests.metadata.metadata_indexes import create_expression_index, create_metadata_index
from tests.metadata.test_metadata_table import make, rows

PART = {"pos": "2", "len": "5"}
#: The rows below have keys that are in two data partitions, which a global record index does not know.
ONLY_FILES = {
    "hoodie.metadata.index.bloom.filter.enable": "false",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.record.index.enable": "false",
}
TABLES = [("cow", 8), ("cow", 9), ("mor", 8), ("mor", 9)]


def indexed(kind: str, version: int, partition_by: str | None = "city", **more: object) -> Table:
    table = make(kind, version, {**ONLY_FILES, **more}, partition_by)
    table.upsert(rows(0, 6, 1))
    create_expression_index(table.client, "expr_index_id", "id", "substring", function_options=PART)
    create_expression_index(table.client, "expr_index_v", "v", "from_unixtime", function_options={"format": "ss"})
    if kind == "cow":
        create_expression_index(table.client, "expr_index_up", "id", "upper", "bloom_filters")
        create_expression_index(table.client, "expr_index_same", "v", "identity", "bloom_filters")
    return table


@pytest.mark.parametrize(("kind", "version"), TABLES)
def test_every_kind_of_write_is_recorded(kind: str, version: int) -> None:
    table = indexed(kind, version)
    check_metadata_table(table)
    table.upsert(rows(3, 9, 2, shift=1))
    table.delete(["k1", "k2"])
    check_metadata_table(table)
    table.insert_overwrite(rows(20, 22, 3))
    table.upsert(rows(4, 8, 4))
    check_metadata_table(table)
    if kind == "mor":
        table.compact()
        check_metadata_table(table)
    table.rollback(table.timeline.entries[-1].time)
    table.upsert(rows(0, 3, 5))
    check_metadata_table(table)
    table.clean(options={"hoodie.clean.commits.retained": 1})
    table.upsert(rows(0, 1, 6))
    content = check_metadata_table(table)
    live = {file.name for one in table.client.at(table.client.load()).slices() for file in files_of_slice(one)}
    stored = {each.name.rpartition("/")[2] for each in table.client.store.list() if "metadata/" not in each.name}
    listed = {r.column_stats.file_name for r in content["expr_index_id"].values() if r.column_stats and r.type == 3}
    assert live & listed
    assert listed <= stored, "cleaned files are gone from the index"


def test_a_table_without_partitions_and_without_meta_columns() -> None:
    table = indexed("cow", 9, None)
    table.upsert(rows(3, 9, 2))
    check_metadata_table(table)


def test_the_metadata_table_is_made_anew_with_its_expression_indexes() -> None:
    table = indexed("cow", 8)
    table.client.store.delete_tree(METADATA_DIRECTORY)
    lakefmt.open_table(table.client.store.url).upsert(rows(2, 6, 2))
    assert "expr_index_id" in check_metadata_table(table)


def test_a_table_makes_and_lists_them() -> None:
    table = make("cow", 9)
    table.upsert(rows(0, 6, 1))
    made = table.index.create("expression_index", "id", name="tail", function="substring", function_options=PART)
    assert (made.name, made.state.value) == ("expr_index_tail", "complete")
    assert not table.index.check().findings
    table.upsert(rows(4, 9, 2))
    check_metadata_table(table)


def test_an_index_is_dropped() -> None:
    table = indexed("cow", 9)
    left = drop_metadata_index(table.client, "expr_index_id")
    assert "expr_index_id" not in left
    assert not list(table.client.store.list(f"{METADATA_DIRECTORY}/expr_index_id"))
    definitions = load_definitions(table.client, table.client.load_config())
    assert "expr_index_id" not in definitions
    assert definitions["expr_index_up"].options == {"expr": "upper"}
    table.upsert(rows(2, 6, 2))
    check_metadata_table(table)


@settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), kind=st.sampled_from(TABLES))
def test_random_writes_leave_the_index_right(data: st.DataObject, kind: tuple[str, int]) -> None:
    table = indexed(*kind)
    for ts in range(2, data.draw(st.integers(3, 5))):
        if data.draw(st.booleans()):
            first = data.draw(st.integers(0, 8))
            table.upsert(rows(first, first + data.draw(st.integers(1, 4)), ts, shift=data.draw(st.integers(0, 1))))
        else:
            table.delete([f"k{data.draw(st.integers(0, 8))}"])
    check_metadata_table(table)


def test_a_wrong_record_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check that closes every case can say no."""
    table = indexed("mor", 9)
    monkeypatch.setattr("lakefmt._core.metadata.expressions.value_range", lambda expression, file: None)
    table.upsert(rows(3, 9, 2))
    with pytest.raises((AssertionError, KeyError)):
        check_metadata_table(table)


# ---------------------------------------------------------------------------------------------------------- refusals


def test_a_function_that_lakefmt_does_not_compute_is_refused_before_anything_is_written() -> None:
    table = indexed("cow", 9)
    store, path = table.client.store, ".hoodie/.index_defs/index.json"
    definitions = parse_index_definitions(store.read(path))
    one = definitions["expr_index_id"]
    other = type(one)(
        one.name, one.index_type, "regexp_extract", one.columns, {"pattern": "a", "idx": "0"}, one.version
    )
    store.put(path, render_index_definitions({**definitions, "expr_index_id": other}))
    before = {each.name for each in store.list()}
    with pytest.raises(MetadataTablePresent, match=r"regexp_extract.*hoodie\.metadata\.enable"):
        table.upsert(rows(3, 9, 2))
    with pytest.raises(MetadataTablePresent, match="regexp_extract"):
        table.delete(["k1"])
    assert {each.name for each in store.list()} == before
    drop_metadata_index(table.client, "expr_index_id")
    table.upsert(rows(3, 9, 2))
    check_metadata_table(table)


@pytest.mark.parametrize(
    ("kind", "version", "arguments", "said"),
    [
        ("cow", 6, ("id", "upper"), "version 6"),
        ("cow", 9, ("id", "split"), "split"),
        ("cow", 9, ("v", "upper"), "upper of a column of type int64"),
        ("cow", 9, ("id", "identity"), "column_stats"),
        ("cow", 9, ("id", "substring"), "needs a number pos"),
        ("cow", 9, ("id", "upper", "other"), "other"),
        ("mor", 9, ("id", "upper", "bloom_filters"), "merge-on-read"),
        ("cow", 9, ("id", "upper", "bloom_filters", {"fpp": "2"}), "fpp"),
        ("cow", 9, ("id", "upper", "bloom_filters", {"numentries": "x"}), "numentries"),
        ("cow", 9, ("id", "upper", "bloom_filters", {"numentries": "900000000"}), "numentries"),
        ("cow", 9, ("v", "from_unixtime", "column_stats", {"format": "EEE"}), "EEE"),
        ("cow", 9, ("id", "upper", "column_stats", {"format": "yyyy"}), "no option format"),
    ],
)
def test_what_cannot_be_made_is_refused(kind: str, version: int, arguments: tuple[str, ...], said: str) -> None:
    table = make(kind, version)
    table.upsert(rows(0, 3, 1))
    before = {each.name: each.size for each in table.client.store.list()}
    with pytest.raises(UnsupportedFeature, match=said):
        create_expression_index(table.client, "expr_index_x", *arguments)  # type: ignore[arg-type]
    assert {each.name: each.size for each in table.client.store.list()} == before


def test_names_and_zones_are_checked() -> None:
    table = indexed("cow", 9)
    with pytest.raises(InvalidInputError, match="already"):
        create_expression_index(table.client, "expr_index_id", "id", "upper")
    with pytest.raises(InvalidInputError, match="no column 'none'"):
        create_expression_index(table.client, "expr_index_x", "none", "upper")
    with pytest.raises(InvalidInputError, match="begins with expr_index_"):
        expression_index_definition("upper", "column_stats", "upper", "id", {}, TableVersion.NINE)
    for arguments in ({"columns": ["id"]}, {"columns": ["id", "v"], "function": "upper"}, {"function": "upper"}):
        with pytest.raises(InvalidInputError, match="expression index"):
            table.index.create("expression_index", **arguments)
    with pytest.raises(InvalidInputError, match="expression_index"):
        table.index.create("bloom_filters", function="upper")
    for name in ("Nowhere", "EST"):
        zone = {"lakefmt.expression.timezone": name}
        with pytest.raises(UnsupportedFeature, match=name):
            create_expression_index(table.client, "expr_index_z", "id", "upper", options=zone)
    with pytest.raises(UnsupportedFeature):
        create_metadata_index(table.client, "expr_index_z")


# ----------------------------------------------------------------------------------------------------------- reading


def test_the_reader_says_what_each_file_has() -> None:
    table = indexed("mor", 9)
    table.upsert(rows(0, 12, 2))
    state = table.client.load()
    metadata = MetadataTable.open(table.client.store, state.config, state.timeline)
    assert metadata is not None
    paths = sorted({one.partition for one in table.client.at(state).slices()})
    files = read_expression_stats(metadata, "expr_index_id", "id", pa.string())
    some = read_expression_stats(metadata, "expr_index_id", "id", pa.string(), paths[:1])
    assert 0 < some.num_rows < files.num_rows
    assert pc.max(files["max"]).as_py() == "9"
