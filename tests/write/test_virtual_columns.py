"""Tables whose files lack something: partition columns that only paths keep, meta columns that nobody fills."""

from __future__ import annotations

import uuid
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.formats.log_blocks import BlockKind, LogBlockReader, WholeBlock
from lakefmt._core.formats.log_data_block import decode_avro_content
from lakefmt._core.schema import avro_to_arrow
from lakefmt._core.values import META_COLUMNS
from lakefmt.errors import InvalidInputError, InvalidKey, LakefmtError, UnsupportedFeature
from lakefmt.testing import invariants as laws
from tests.example_counts import examples
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge

DATA = Path(__file__).parents[1] / "data" / "unstored"
NO_META = {"hoodie.populate.meta.fields": "false"}
DROPPED = {"hoodie.datasource.write.drop.partition.columns": "true"}
QUICK = {"lakefmt.durability": "none"}
FOLD = {"hoodie.log.compaction.blocks.threshold": 2}
SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("n", pa.int32()), ("ts", pa.int64()), ("v", pa.float64())]
)
CITIES = ["a/b", "rio", "são", None]


def rows(count: int, ts: int, first: int = 0) -> pa.Table:
    """Rows whose partition columns follow from their keys."""
    numbers = range(first, first + count)
    made = [{"id": f"k{i}", "city": CITIES[i % 4], "n": i % 2, "ts": ts, "v": i / 2} for i in numbers]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def make(root: Path, properties: dict[str, str], **how: Any) -> lakefmt.Table:
    how = {"record_key": "id", "partition_by": "city", "ordering": "ts"} | how
    return lakefmt.create_table(str(root), schema=SCHEMA, properties=properties, options=QUICK, **how)


def by_key(*tables: pa.Table) -> dict[str, dict[str, object]]:
    return {row["id"]: row for table in tables for row in table.to_pylist()}


def check(table: lakefmt.Table, *, logs: bool = False) -> None:
    """The laws that need no meta columns; those that count what is in base files do not hold with `logs`."""
    view = laws.View.of(table)
    laws.check_meta_columns(view)
    laws.check_no_orphans(view)
    laws.check_partitions(view)
    if logs:
        return
    for law in (laws.check_visible, laws.check_reachable, laws.check_counts, laws.check_footers):
        law(view)
    laws.check_unique_keys(view)
    laws.check_file_ids(view)


# --------------------------------------------------------------------------------------------------------- every verb


@pytest.mark.parametrize(
    ("kind", "version", "how", "partition_by"),
    [
        ("cow", 6, NO_META, "n"),
        ("cow", 8, DROPPED, "n"),
        ("cow", 9, NO_META, "n"),
        ("cow", 9, DROPPED, "city"),
        ("mor", 6, NO_META, "city"),
        ("mor", 6, DROPPED, "city"),
        ("mor", 8, NO_META, "city"),
        ("mor", 9, DROPPED, "n"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_every_verb(tmp_path: Path, kind: str, version: int, how: dict[str, str], partition_by: str) -> None:
    table = make(tmp_path / "t", how, partition_by=partition_by, table_version=version, table_type=kind)
    table.insert(rows(20, 1))
    done = table.upsert(rows(10, 2, 15))
    assert (done.num_inserts, done.num_updates) == (5, 5)
    assert table.delete(["k3"]).num_deletes == 1
    assert table.delete("v > 11").num_deletes == 2
    table.upsert(rows(4, 1))  # k3 comes back, the others win as equals
    table.update("id = 'k1'", {"v": 99.0})
    table.upsert(rows(2, 3).drop_columns(["v"]), partial=True)
    table.upsert(rows(2, 0))  # late
    expected = by_key(rows(20, 1), rows(8, 2, 15))
    expected["k1"]["v"] = 99.0
    for key in ("k0", "k1"):
        expected[key]["ts"] = 3
    assert by_key(table.read()) == expected
    check(table, logs=kind == "mor")
    assert not table.check(level="full").findings
    if kind == "mor":
        assert by_key(table.read(query="read_optimized")) != expected
        table.compact(verify=True)
        assert by_key(table.read()) == by_key(table.read(query="read_optimized")) == expected
        check(table, logs=kind == "mor")
    moved = rows(3, 9).set_column(1, SCHEMA.field("city"), pa.array(["oslo"] * 3))
    moved = moved.set_column(2, SCHEMA.field("n"), pa.array([7] * 3, pa.int32()))
    table.upsert(moved, options={"hoodie.index.type": "GLOBAL_SIMPLE"})
    assert by_key(table.read()) == {**expected, **by_key(moved)}
    table.bulk_insert(rows(9, 1, 100), sort="global")
    table.insert(rows(3, 1, 100), drop_duplicates=True)
    assert table.read().num_rows == len(expected) + 9
    table.insert_overwrite_table(rows(2, 1))
    assert_same_multiset(table.read(), rows(2, 1))
    check(table, logs=kind == "mor")


KEYS = st.integers(0, 8)
VERBS = ["upsert", "marked", "delete", "where", "fold"]
STEPS = st.lists(st.tuples(st.sampled_from(VERBS), st.sets(KEYS, min_size=1)), max_size=7)
MARKED = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))


@pytest.mark.parametrize("how", [NO_META, DROPPED], ids=["no meta", "dropped"])
@settings(max_examples=examples(8), deadline=None)
@given(steps=STEPS, kind=st.sampled_from(["mor", "cow"]), ordering=st.sampled_from([None, "ts"]))
def test_a_table_is_a_dictionary(
    how: dict[str, str], steps: list[tuple[str, set[int]]], kind: str, ordering: str | None
) -> None:
    table = lakefmt.create_table(
        f"memory://{uuid.uuid4()}",
        schema=MARKED,
        record_key=["id", "v"],
        partition_by="city",
        ordering=ordering,
        properties=how,
        table_type=kind,
    )
    model: dict[str, dict[str, object]] = {}
    for ts, (verb, keys) in enumerate(steps):
        batch = pa.concat_tables([rows(1, ts, n) for n in sorted(keys)])
        if verb == "fold":
            if kind == "mor":
                table.compact(log=True, options=FOLD)
            continue
        if verb in ("upsert", "marked"):
            table.upsert(batch.append_column(MARKED.field(5), pa.array([verb == "marked"] * len(batch))))
        if verb == "upsert":
            model |= by_key(batch)
            continue
        if verb == "delete":
            table.delete(batch.select(["id", "v"]))
        elif verb == "where":
            table.delete(" or ".join(f"id = 'k{n}'" for n in sorted(keys)))
        for n in keys:
            model.pop(f"k{n}", None)
    shown = [*SCHEMA.names]
    assert by_key(table.read(shown)) == model
    if kind == "mor":
        table.compact(log=True, options=FOLD)
        assert by_key(table.read(shown)) == model
        table.compact()
        assert by_key(table.read(shown, query="read_optimized")) == model
    laws.check_meta_columns(table)
    laws.check_footers(table)


# -------------------------------------------------------------------------------------------------------------- bytes


def test_files_without_meta_columns_are_as_hudi_writes_them(tmp_path: Path) -> None:
    table = make(tmp_path / "t", NO_META)
    table.insert(rows(8, 1))
    table.upsert(rows(2, 2))
    assert table.index.name == "simple"
    for file in (tmp_path / "t").rglob("*.parquet"):
        content = pq.read_table(file, partitioning=None)
        assert content.schema.names == [*META_COLUMNS, *SCHEMA.names]
        assert all(content.column(name).null_count == content.num_rows for name in META_COLUMNS)
        entries = pq.read_metadata(file).metadata
        assert {name for name in entries if not name.startswith(b"lakefmt")} == {b"parquet.avro.schema"}


def test_files_lack_dropped_columns_and_the_commit_keeps_their_types(tmp_path: Path) -> None:
    table = make(tmp_path / "t", DROPPED, partition_by=["city", "n"], record_key=["id", "v"])
    table.insert(rows(8, 1))
    assert table.schema.equals(SCHEMA)
    for file in (tmp_path / "t").rglob("*.parquet"):
        footer = pq.read_metadata(file)
        assert footer.schema.names == [*META_COLUMNS, "id", "ts", "v"]
        assert b'"city"' not in footer.metadata[b"parquet.avro.schema"]
        assert b"org.apache.hudi.bloomfilter" in footer.metadata


def test_laws_see_a_filled_meta_column_and_a_missing_one(tmp_path: Path) -> None:
    table = make(tmp_path / "t", NO_META)
    table.insert(rows(1, 1))
    (file,) = (tmp_path / "t").rglob("*.parquet")
    content = pq.read_table(file, partitioning=None)
    at = content.schema.get_field_index("_hoodie_record_key")
    pq.write_table(content.set_column(at, content.schema.field(at), pa.array(["k0"])), file, store_schema=False)
    with pytest.raises(AssertionError, match="_hoodie_record_key"):
        laws.check_meta_columns(lakefmt.open_table(str(tmp_path / "t")))


# -------------------------------------------------------------------------------------------------- tables of others


@pytest.mark.parametrize(
    ("name", "city_last"), [("v9_cow_dropped_partitions_120", "city"), ("v6_cow_dropped_partitions_0150", "n")]
)
def test_sparks_dropped_columns_come_back_and_are_written_on(tmp_path: Path, name: str, city_last: str) -> None:
    with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    (root,) = tmp_path.iterdir()
    table = lakefmt.open_table(str(root), options=QUICK)
    # Nothing in such a table tells the type of the column: it is text, as in Spark.
    assert table.schema.names[-1] == city_last
    assert table.schema.field(city_last).type == pa.string()

    def as_theirs(count: int, ts: int, first: int = 0) -> list[dict[str, Any]]:
        made = []
        for row in rows(count, ts, first).to_pylist():
            number = int(row["id"][1:])
            row["city"] = ["a/b", "rio", "são"][number % 3]
            made.append({**row, "n": str(row["n"])} if city_last == "n" else row)
        return made

    expected = {row["id"]: row for row in as_theirs(6, 1) + as_theirs(4, 2, 6)}
    assert by_key(table.read()) == expected
    done = table.upsert(pa.Table.from_pylist(as_theirs(3, 5, 8), schema=table.schema))
    assert (done.num_inserts, done.num_updates) == (1, 2)
    table.delete(["k0"])
    expected |= {row["id"]: row for row in as_theirs(3, 5, 8)}
    del expected["k0"]
    assert by_key(table.read()) == expected


def data_blocks(path: Path) -> list[pa.Table]:
    """The rows of a log's data blocks, as they are stored."""
    reader = LogBlockReader(str(path))
    reader.feed(path.read_bytes())
    found = []
    for whole in reader.finish():
        assert isinstance(whole, WholeBlock)
        if whole.block.kind is BlockKind.AVRO_DATA:
            text = whole.block.schema or ""
            found.append(decode_avro_content(whole.content, text, avro_to_arrow(text).names, what=path.name))
    return found


def test_marks_say_the_same_when_logs_without_meta_columns_are_folded(tmp_path: Path) -> None:
    """The int 0 stands for no event time, and takes whatever is stored; another event time may be late."""
    table = lakefmt.create_table(
        str(tmp_path / "t"), schema=MARKED, record_key="id", ordering="n", properties=NO_META, table_type="mor"
    )

    def row(key: str, n: int, *, gone: bool) -> dict[str, object]:
        return {"id": key, "city": "rio", "n": n, "ts": 1, "v": 1.0, "_hoodie_is_deleted": gone}

    table.insert(pa.Table.from_pylist([row(key, 5, gone=False) for key in "abc"], schema=MARKED))
    table.upsert(pa.Table.from_pylist([row("a", 0, gone=True), row("c", 3, gone=True)], schema=MARKED))
    table.upsert(pa.Table.from_pylist([row("b", 9, gone=True)], schema=MARKED))
    assert table.read(["id"])["id"].to_pylist() == ["c"]
    assert table.compact(log=True, options=FOLD).files
    assert table.read(["id"])["id"].to_pylist() == ["c"]


@pytest.mark.parametrize(
    "name",
    [
        "v6_mor_no_meta_120",
        "v8_mor_no_meta_two_keys_120",
        "v9_mor_no_meta_120",
        "v6_mor_dropped_partitions_120",
        "v9_mor_dropped_partitions_120",
    ],
)
def test_sparks_logs_are_merged_written_on_and_compacted(tmp_path: Path, hudi_rs_judge: HudiRsJudge, name: str) -> None:
    with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    table = lakefmt.open_table(str(tmp_path / name), options=QUICK)

    def theirs(ts: int, *numbers: int) -> list[dict[str, Any]]:
        names = ["a/b", "rio", "são"]
        return [{"id": f"k{n}", "city": names[n % 3], "n": n % 2, "ts": ts, "v": n / 2} for n in numbers]

    # k3 came late, k0 was deleted; some files of Hudi's have the dropped column, with nulls.
    expected = {row["id"]: row for row in theirs(5, 3, 4, 5) + theirs(6, 1, 2, 6, 7)}
    assert by_key(table.read()) == expected
    assert [*table.partitions()] == ["a%2Fb", "rio", "são"]
    assert by_key(table.read(filter="city = 'a/b'", columns=["id"])).keys() == {"k3", "k6"}
    streamed = pa.Table.from_batches(list(table.scan(columns=["v", "city"])), schema=None)
    assert sorted(streamed.column("v").to_pylist()) == sorted(row["v"] for row in expected.values())
    found = table.read(meta_columns=True).column("_hoodie_record_key")
    assert found.null_count == (0 if "dropped" in name else len(expected))
    done = table.upsert(pa.Table.from_pylist(theirs(7, 3, 8, 1) + theirs(1, 2), schema=table.schema))
    assert (done.num_inserts, done.num_updates) == (1, 3)
    table.delete("id = 'k4'")
    expected |= {row["id"]: row for row in theirs(7, 3, 8, 1)}
    del expected["k4"]
    assert by_key(table.read()) == expected
    if name in ("v6_mor_no_meta_120", "v9_mor_no_meta_120"):  # it makes no keys of numbers, and no paths into columns
        assert by_key(hudi_rs_judge.snapshot(tmp_path / name).select(SCHEMA.names)) == expected
    folded = table.compact(log=True, options=FOLD)
    assert sum(len(operation.log_names) for operation in folded.plan.operations) > len(folded.files) > 0
    assert by_key(table.read()) == expected
    for stat in folded.files:
        for held in data_blocks(tmp_path / name / stat.path):
            # As Hudi's own logs: every column of the table, and no meta column where there are none.
            assert {*SCHEMA.names} <= {*held.column_names}
            assert held.column("_hoodie_record_key").null_count == (0 if "dropped" in name else held.num_rows)
    if name in ("v6_mor_no_meta_120", "v9_mor_no_meta_120"):
        assert by_key(hudi_rs_judge.snapshot(tmp_path / name).select(SCHEMA.names)) == expected
    table.upsert(pa.Table.from_pylist(theirs(8, 1), schema=table.schema))
    expected |= {row["id"]: row for row in theirs(8, 1)}
    done = table.compact(verify=True)
    assert sum(stat.num_update_writes for stat in done.files) > 0
    for stat in done.files:
        found = pq.read_table(tmp_path / name / stat.path, partitioning=None)
        entries = pq.read_metadata(tmp_path / name / stat.path).metadata
        assert (
            (b"hoodie_min_record_key" in entries) == (b"org.apache.hudi.bloomfilter" in entries) == ("dropped" in name)
        )
        assert ("city" in found.column_names) == ("dropped" not in name)
        assert found.column("_hoodie_record_key").null_count == (0 if "dropped" in name else found.num_rows)
    assert by_key(table.read(query="read_optimized")) == expected


# ----------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("properties", "how", "error", "said"),
    [
        (NO_META, {"record_key": None}, UnsupportedFeature, "record key"),
        (NO_META, {"partition_by": ["city", "n"]}, UnsupportedFeature, "CUSTOM"),
        (NO_META, {"index": "global_bloom"}, UnsupportedFeature, "global_simple"),
        (NO_META | DROPPED, {}, UnsupportedFeature, "do not go together"),
        (DROPPED, {"partition_by": None}, InvalidInputError, "partition columns"),
        (DROPPED, {"partition_by": "v"}, UnsupportedFeature, "path does not tell"),
        (DROPPED, {"partition_by": "n", "ordering": "n"}, InvalidInputError, "order of rows"),
    ],
)
def test_what_could_not_be_read_back_is_refused(
    tmp_path: Path, properties: dict[str, str], how: dict[str, Any], error: type[LakefmtError], said: str
) -> None:
    with pytest.raises(error, match=said):
        make(tmp_path / "t", properties, **how)
    assert not (tmp_path / "t/.hoodie/hoodie.properties").exists()


@pytest.mark.parametrize("city", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_value_that_its_path_would_not_give_back_is_refused(tmp_path: Path, city: str) -> None:
    table = make(tmp_path / "t", DROPPED)
    table.insert(rows(4, 1))
    lost = rows(1, 2).set_column(1, SCHEMA.field("city"), pa.array([city]))
    with pytest.raises(InvalidKey, match="would come back as"):
        table.upsert(lost)
    assert_same_multiset(table.read(), rows(4, 1))
    table.upsert(rows(1, 2))
    check(table)


def test_filters_and_increments_need_meta_columns(tmp_path: Path) -> None:
    table = make(tmp_path / "t", NO_META)
    table.insert(rows(4, 1))
    with pytest.raises(UnsupportedFeature, match="SIMPLE or GLOBAL_SIMPLE"):
        table.upsert(rows(1, 2), options={"hoodie.index.type": "BLOOM"})
    with pytest.raises(UnsupportedFeature, match="meta columns"):
        table.incremental("000")
    report = table.index.explain(["k0", "x"])
    assert (report.index, report.found) == ("simple", 1)


# ------------------------------------------------------------------------------------ verbs that look stored rows up

PLACED = pa.table({"id": ["a", "b", "c"], "city": ["rio", "rio", "oslo"], "n": pa.array([1, 2, 3], pa.int32())})
NEWS = pa.table({"id": ["a", "c", "z"], "city": ["oslo", "oslo", "rio"], "n": pa.array([10, 30, 90], pa.int32())})
ALL = {"n": "t.n + s.n", "city": "s.city"}


def merged(table: lakefmt.Table, clauses: str) -> None:
    merge = table.merge(NEWS)
    for clause in clauses.split():
        if clause == "moves":
            merge = merge.when_matched(ALL)
        elif clause == "deletes":
            merge = merge.when_matched_delete()
        elif clause == "inserts":
            merge = merge.when_not_matched()
        else:
            merge = merge.when_not_matched_by_source(delete=True)
    merge.execute()


def streamed(table: lakefmt.Table, verb: str, row: dict[str, object]) -> list[dict[str, object]]:
    """What a reader sees before a stream commits one row."""
    with table.open_stream() as stream:
        getattr(stream, verb)(row)
        stream.flush()
        return table.snapshot(include_uncommitted=True).read().to_pylist()


LOOK_UPS = {
    "merge moves": lambda table: merged(table, "moves"),
    "merge moves inserts": lambda table: merged(table, "moves inserts"),
    "merge deletes": lambda table: merged(table, "deletes"),
    "merge deletes inserts": lambda table: merged(table, "deletes inserts"),
    "merge leaves": lambda table: merged(table, "leaves moves"),
    "insert of a stored key": lambda table: streamed(table, "insert", PLACED.to_pylist()[0] | {"n": 7}),
    "insert of a new key": lambda table: streamed(table, "insert", {"id": "y", "city": "rio", "n": 7}),
    "update of some columns": lambda table: streamed(table, "update", {"id": "a", "city": "rio", "n": 7}),
    "update of a key that is not stored": lambda table: streamed(table, "update", {"id": "y", "city": "rio", "n": 7}),
    "upsert": lambda table: streamed(table, "upsert", {"id": "b", "city": "rio", "n": 7}),
    "delete": lambda table: streamed(table, "delete", {"id": "b", "city": "rio"}),
    "erase by a filter": lambda table: [{"looked for": table.erase("id = 'a'").traces}],
    "delete of a key that is not stored": lambda table: streamed(table, "delete", {"id": "y", "city": "rio"}),
}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("verb", LOOK_UPS)
def test_a_verb_that_looks_stored_rows_up_finds_them_without_meta_columns(kind: str, verb: str) -> None:
    """It does what it does in a table with meta columns, or is refused as there."""
    outcomes = []
    for name, properties in (("with", {}), ("without", NO_META)):
        path = f"memory://looked-up-{kind}-{verb.replace(' ', '-')}-{name}"
        table = lakefmt.create_table(
            path,
            data=PLACED,
            record_key="id",
            partition_by="city",
            index="simple",
            table_type=kind,
            properties=properties,
        )
        table.upsert(PLACED)
        table.upsert(PLACED.slice(1, 1))
        try:
            seen = LOOK_UPS[verb](table)
        except LakefmtError as error:
            seen = type(error).__name__
        if isinstance(seen, list):
            seen = sorted(seen, key=str)
        outcomes.append((seen, sorted(table.read().to_pylist(), key=str)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_an_alteration_changes_no_statistics_of_dropped_columns(kind: str, version: int) -> None:
    """A check compares the statistics of files from before with what it computes of them by their column ids."""
    table = lakefmt.create_table(
        f"memory://altered-without-{kind}-{version}",
        data=PLACED,
        record_key="id",
        partition_by="city",
        table_type=kind,
        table_version=version,
        indexes=["column_stats"],
        properties=DROPPED,
    )
    table.upsert(PLACED)
    table.upsert(PLACED.slice(0, 1))
    table.alter.rename_column("n", "m")
    assert table.index.check().is_clean
    table.upsert(PLACED.rename_columns(["id", "city", "m"]).slice(1, 1))
    assert table.index.check().is_clean


# ----------------------------------------------------------------------------------------- filters on empty columns

EMPTY_FILTERS = {
    "text": "_hoodie_record_key = 'a'",
    "expression": pc.field("_hoodie_record_key").isin(["a", "c"]),
    "null": pc.field("_hoodie_partition_path").is_null(),
    "one of two": "_hoodie_commit_time > '0' or n = 1",
}
FILTERED = {
    "read": lambda table, given: table.read(filter=given),
    "columns": lambda table, given: table.read(["_hoodie_record_key"], given),
    "read optimized": lambda table, given: table.read(filter=given, query="read_optimized"),
    "as of": lambda table, given: table.read(filter=given, as_of=table.snapshot().instant),
    "scan": lambda table, given: table.scan(filter=given).read_all(),
    "count": lambda table, given: table.count(given),
    "snapshot": lambda table, given: table.snapshot().read(filter=given),
    "uncommitted": lambda table, given: table.snapshot(include_uncommitted=True).read(filter=given),
    "dataset": lambda table, given: table.dataset(filter=given).to_table(),
    "pandas": lambda table, given: table.to_pandas(filter=given),
    "explain": lambda table, given: table.explain(given),
    "changes": lambda table, given: table.changes("000", filter=given),
    "incremental": lambda table, given: table.incremental("000", filter=given),
    "stream": lambda table, given: list(table.stream(filter=given, follow=False)),
    "update": lambda table, given: table.update(given, {"n": 9}),
    "delete": lambda table, given: table.delete(given),
    "erase": lambda table, given: table.erase(given),
    "cluster": lambda table, given: table.cluster(where=given, columns=["n"]),
}


@pytest.mark.in_turn(4)
@pytest.mark.parametrize("given", EMPTY_FILTERS)
@pytest.mark.parametrize("door", FILTERED)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_filter_on_a_column_that_nobody_fills_is_refused(kind: str, door: str, given: str) -> None:
    """Rows in logs and rows in base files would answer it differently, and a delete by it would delete nothing."""
    path = f"memory://empty-filter-{uuid.uuid4()}"
    table = lakefmt.create_table(
        path, data=PLACED, record_key="id", partition_by="city", table_type=kind, properties=NO_META
    )
    table.upsert(PLACED)
    table.upsert(PLACED.slice(1, 1))
    with pytest.raises(UnsupportedFeature, match="meta columns"):
        FILTERED[door](table, EMPTY_FILTERS[given])
    assert_same_multiset(table.read(), PLACED)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_engines_see_empty_columns_and_cannot_push_a_filter_on_them(kind: str) -> None:
    table = lakefmt.create_table(
        f"memory://empty-pushed-{uuid.uuid4()}",
        data=PLACED,
        record_key="id",
        partition_by="city",
        table_type=kind,
        properties=NO_META,
    )
    table.upsert(PLACED)
    table.upsert(PLACED.slice(1, 1))
    dataset = table.dataset(meta_columns=True)
    for name in META_COLUMNS:
        assert dataset.to_table([name]).column(name).null_count == table.read([name]).column(name).null_count == 3
        condition = pc.field(name) == "a"
        for refused in (
            lambda condition=condition: dataset.to_table(filter=condition),
            lambda condition=condition: dataset.filter(condition).to_table(),
            lambda condition=condition: dataset.count_rows(condition),
            lambda condition=condition: list(dataset.get_fragments(condition)),
            lambda condition=condition: dataset.head(1, filter=condition),
        ):
            with pytest.raises(UnsupportedFeature, match="meta columns"):
                refused()
