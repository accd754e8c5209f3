"""`table.index.check`: whatever differs between the metadata table and what is stored is found, all of it and nothing else."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.check.run import IndexReport
from lakefmt._core.metadata.index_readers import lookup_locations, read_stats
from lakefmt._core.metadata.layout import METADATA_DIRECTORY, PartitionKind
from lakefmt._core.metadata.listing import open_metadata_table
from lakefmt._core.metadata.reader import newest_records
from lakefmt._core.table import Table
from lakefmt.errors import CorruptFile, InvalidInputError
from tests.check.index_damage import DAMAGES, Damage, Told, copied, make_table, rows
from tests.example_counts import examples
from tests.metadata.metadata_content import check_metadata_table
from tests.metadata.metadata_fixtures import TABLES, unpacked
from tests.metadata.metadata_indexes import create_expression_index

pytestmark = pytest.mark.slow

OTHER_TYPE = "sample_table__cow__v9_timebasedkeygen_epochmillis"


@lru_cache
def made(kind: str, version: int, partitioned: bool) -> Table:
    return make_table(kind, version, partitioned=partitioned)


def told(report: IndexReport) -> Told:
    return {(finding.kind.value, finding.index): set(finding.names.to_pylist()) for finding in report.findings}


_TABLES = st.sampled_from([("cow", 8, False), ("cow", 9, False), ("cow", 8, True), ("cow", 6, False)])
#: Each on a file or key of its own: damages of one name would hide each other.
_DAMAGES = st.lists(st.tuples(st.sampled_from(sorted(DAMAGES)), st.integers(0, 20)), min_size=2, max_size=8)


@settings(max_examples=examples(5), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(table=_TABLES, damages=_DAMAGES)
def test_every_damage_is_found_and_mended(table: tuple[str, int, bool], damages: list[tuple[str, int]]) -> None:
    damage = Damage(copied(made(*table)), partitioned=table[2])
    taken: set[tuple[str, object]] = set()
    for name, number in damages:
        if damage.can(name) and (target := damage.target(name, number)) not in taken:
            taken.add(target)
            DAMAGES[name](damage, number)
    if not taken:
        return
    broken = damage.apply()
    report = broken.index.check()
    assert told(report) == damage.told
    done = broken.index.check(repair=True)
    assert done.is_clean, done
    assert done.done == report.plan
    check_metadata_table(broken)


@pytest.mark.parametrize(("kind", "version"), [("cow", 8), ("mor", 9), ("mor", 6)])
def test_nothing_differs_after_every_kind_of_write(kind: str, version: int) -> None:
    table = copied(made(kind, version, False))
    assert str(table.index.check()).endswith(")"), table.index.check()
    table.insert_overwrite(rows(0, 2, 7))
    table.clean(options={"hoodie.clean.commits.retained": 1})
    table.delete_partitions("a/b")
    table.upsert(rows(30, 40, 7))
    if kind == "mor":
        table.compact()
    assert not table.index.check().findings
    table.rollback(table.timeline.entries[-1].time)
    table.restore(table.timeline.entries[-2].time)
    report = table.index.check()
    assert not report.findings, report
    assert not report.skipped


def test_a_commit_that_the_metadata_table_never_saw_is_found() -> None:
    table = copied(made("cow", 8, False))
    store = table.client.store
    kept = {item.name: store.read(item.name) for item in store.list(".hoodie/metadata")}
    instant = table.upsert(rows(50, 52, 1)).instant
    store.delete_tree(METADATA_DIRECTORY)
    for name, data in kept.items():
        store.put(name, data)
    report = table.index.check()
    findings = told(report)
    assert findings["unseen_commit", "files"] == {instant}
    assert findings["missing", "record_index"] == {"k50", "k51"}
    assert table.index.check(repair=True).is_clean
    assert table.read(filter="id = 'k50'").num_rows == 1


@pytest.mark.parametrize("shard", ["record-index-0000-0", "record-index-0001-0"])
def test_a_missing_shard_is_found_and_refused_elsewhere(shard: str) -> None:
    table = copied(made("cow", 8, False))
    client = table.client
    directory = f"{METADATA_DIRECTORY}/record_index"
    client.store.delete([item.name for item in client.store.list(directory) if shard in item.name])
    metadata = open_metadata_table(client, client.load_config())
    assert metadata is not None
    with pytest.raises(CorruptFile, match=shard):
        lookup_locations(metadata, pa.array(["k1"]))
    if shard == "record-index-0000-0":
        with pytest.raises(CorruptFile, match=shard):
            table.upsert(rows(60, 70, 1))
    assert told(table.index.check()) == {("missing_file_group", "record_index"): {directory}}
    assert [one.state.value for one in table.index.list() if one.name == "record_index"] == ["damaged"]
    assert table.index.check(repair=True).is_clean
    table.upsert(rows(60, 70, 1))
    check_metadata_table(table)


@pytest.mark.parametrize("name", ["files", "column_stats", "record_index"])
def test_what_cannot_be_read_is_found(name: str) -> None:
    table = copied(made("cow", 8, False))
    store = table.client.store
    files = [item.name for item in store.list(f"{METADATA_DIRECTORY}/{name}") if item.name.endswith(".hfile")]
    logs = [item.name for item in store.list(f"{METADATA_DIRECTORY}/{name}") if ".log." in item.name]
    victim = sorted(files or logs)[-1]
    store.put(victim, store.read(victim)[:-9] if victim.endswith(".hfile") else b"#HUDI#" + b"\x7f" * 30)
    report = table.index.check()
    assert report.findings
    assert {finding.index for finding in report.findings} == {name}
    assert table.index.check(repair=True).is_clean
    check_metadata_table(table)


def test_the_metadata_table_is_gone_or_left_over() -> None:
    table = copied(made("cow", 8, False))
    store = table.client.store
    kept = {item.name: store.read(item.name) for item in store.list(f"{METADATA_DIRECTORY}/record_index")}
    store.delete_tree(METADATA_DIRECTORY)
    planned = table.index.check(repair=True, dry_run=True)
    assert told(planned) == {("absent", ""): {METADATA_DIRECTORY}}
    assert [str(step) for step in planned.plan] == ["make the metadata table anew, with all its indexes"]
    assert not list(store.list(METADATA_DIRECTORY))
    assert table.index.check(repair=True).is_clean
    check_metadata_table(table)
    table.index.drop("record_index")
    for name, data in kept.items():
        store.put(name, data)
    assert told(table.index.check()) == {("not_advertised", "record_index"): {f"{METADATA_DIRECTORY}/record_index"}}
    assert table.index.check(repair=True).is_clean
    assert not list(store.list(f"{METADATA_DIRECTORY}/record_index"))


def test_a_key_in_two_file_groups_is_found_and_no_rebuild_is_planned() -> None:
    table = copied(made("cow", 8, False))
    twice = rows(3, 4, 0).set_column(1, "city", pa.array(["sf"]))
    table.insert(twice)
    report = table.index.check()
    assert told(report) == {("duplicate_key", "record_index"): {"k3"}}
    assert not report.plan
    assert not table.index.check(repair=True).is_clean
    in_partitions = copied(made("cow", 8, True))
    in_partitions.insert(twice)
    assert not in_partitions.index.check().findings


def test_records_of_an_expression_index_are_compared() -> None:
    table = copied(made("cow", 8, False))
    create_expression_index(table.client, "expr_index_up", "id", "upper")
    table.upsert(rows(70, 74, 1))
    assert table.index.check().is_clean
    damage = Damage(table)
    metadata = open_metadata_table(table.client, damage.config)
    assert metadata is not None
    keys = newest_records(metadata.scan("expr_index_up"))[0]["key"].cast(pa.string()).to_pylist()
    damage.delete("expr_index_up", keys)
    findings = told(damage.apply().index.check())
    assert findings.keys() == {("missing", "expr_index_up")}
    assert findings["missing", "expr_index_up"] <= set(keys)
    assert table.index.check(repair=True).is_clean


def test_a_dry_run_is_of_a_repair() -> None:
    with pytest.raises(InvalidInputError, match="repair=True"):
        made("cow", 8, False).index.check(dry_run=True)


@pytest.mark.judge_rs
def test_hudi_rs_lists_a_repaired_table(tmp_path: Path, hudi_rs_judge) -> None:
    table = make_table(place=str(tmp_path / "t"))
    damage = Damage(table)
    damage.forget_file(0)
    damage.apply()
    real = {path.name for path in (tmp_path / "t").rglob("*.parquet") if ".hoodie" not in path.parts}
    forgotten = {name.rpartition("/")[2] for name in damage.told["missing", "files"]}
    # The judge reads our listing: it misses the file that was forgotten.
    assert forgotten.isdisjoint(hudi_rs_judge.base_files(tmp_path / "t"))
    assert table.index.check(repair=True).is_clean
    whole = lakefmt.open_table(tmp_path / "t")
    slices = whole.client.at(whole.client.load()).slices()
    expected = sorted(one.base.name for one in slices if one.base is not None)
    assert hudi_rs_judge.base_files(tmp_path / "t") == expected
    assert forgotten <= set(expected) <= real


@pytest.mark.skipif(OTHER_TYPE not in TABLES, reason="the folder of tables by Apache Hudi is not there")
def test_statistics_of_a_column_that_files_store_in_another_type(tmp_path: Path) -> None:
    """Hudi made a number's column text: footers and its statistics have numbers, the table's rows texts."""
    table = lakefmt.open_table(unpacked(OTHER_TYPE, tmp_path))
    report = table.index.check()
    assert report.skipped == ()
    assert {finding.kind.value for finding in report.findings} == {"duplicate_key"}
    plain = lakefmt.open_table(table.client.store.url, options={"hoodie.enable.data.skipping": "false"})
    for query in ("ts_millis = '1705367700000'", "ts_millis < '1705315500001'", "ts_millis >= '17054'"):
        assert table.read(filter=query).equals(plain.read(filter=query))
    table.index.drop("column_stats")
    table.index.create("partition_stats")
    assert table.index.check().skipped == ()
    metadata = open_metadata_table(table.client, table.properties)
    assert metadata is not None
    ends = read_stats(metadata, PartitionKind.COLUMN_STATS, "ts_millis", pa.string())
    assert {len(end) for end in ends["min"].to_pylist() + ends["max"].to_pylist() if end} == {13}, (
        "texts of the numbers"
    )


def test_a_log_from_before_a_column_lacks_no_statistics_of_it(tmp_path: Path) -> None:
    """Base files from before a column have no statistics of it, and neither have logs (found on a table of version 6)."""
    old = pa.table({"id": ["a"], "ts": [1], "v": [1]})
    indexes = ["files", "column_stats"]
    table = lakefmt.create_table(
        tmp_path / "t",
        schema=old.schema,
        record_key="id",
        ordering="ts",
        table_type="mor",
        table_version=6,
        indexes=indexes,
    )
    for _ in range(2):
        table.upsert(old)
    table.alter.add_column("added", pa.int64())
    assert table.index.check().findings == ()
    table.upsert(pa.table({"id": ["a"], "ts": [3], "v": [1], "added": [4]}))
    assert table.index.check().findings == ()


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("indexes", [["files"], ["files", "bloom_filters"]])
def test_a_metadata_table_that_is_made_beside_a_waiting_compaction_has_seen_every_commit(
    version: int, indexes: list[str]
) -> None:
    """In version 6 the compaction that completes later has an earlier time than the beginning of the metadata table."""
    data = pa.table({"id": ["a", "b"], "v": [1, 2]})
    path = f"memory://made-beside-{version}-{len(indexes)}"
    table = lakefmt.create_table(path, data=data, record_key="id", table_type="mor", table_version=version)
    table.upsert(data)
    table.upsert(data)
    table.compact(schedule=True)
    table.upsert(data)
    for index in indexes:
        table.index.create(index)
    table.compact()
    assert table.index.check().is_clean
    table.upsert(data)
    assert table.index.check().is_clean
    assert lakefmt.open_table(path).read().num_rows == 2
