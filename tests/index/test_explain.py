"""What a look-up did, told without writing anything."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.formats.bloom_filter import BloomFilter
from lakefmt._core.formats.parquet.base_file import BLOOM_TYPE_KEY, MAX_KEY, MIN_KEY
from lakefmt._core.formats.parquet.footers import BLOOM_KEY
from lakefmt._core.index import LookUpStep
from lakefmt._core.storage.local import LocalStore
from lakefmt._core.table_accessors import IndexView
from lakefmt.errors import InvalidKey, UnknownSetting
from lakefmt.testing.store_wrapper import WrapperStore
from lakefmt.testing.stores import CountingStore


@pytest.fixture
def path(tmp_path) -> str:
    """A table of two partitions: p holds k00…k29 in three files, q holds k20…k39 in two."""
    path = str(tmp_path / "table")
    schema = pa.schema([("id", pa.string()), ("p", pa.string())])
    table = lakefmt.create_table(path, schema=schema, record_key="id", partition_by="p")
    for place, numbers in [("p", range(10)), ("p", range(10, 20)), ("p", range(20, 30)), ("q", range(20, 40))]:
        rows = pa.table({"id": [f"k{n:02d}" for n in numbers], "p": [place] * len(numbers)})
        table.bulk_insert(rows, options={"lakefmt.durability": "none"})
    return path


def view(path: str, **options: object) -> IndexView:
    return IndexView(TableClient(LocalStore(path), options))


def test_a_report_tells_every_step(path: str) -> None:
    report = view(path).explain(["k05", "k25", "k25x", "zzz"])
    assert (report.index, report.keys, report.found) == ("bloom", 4, 2)
    assert report.steps == (
        LookUpStep("considered", 4, 16),
        LookUpStep("left by key range", 3, 5),
        LookUpStep("left by bloom filter", 3, 3),
        LookUpStep("opened", 3, 3),
        LookUpStep("found", 3, 3),
    )
    assert report.false_positives == LookUpStep("opened in vain", 0, 0)
    assert report.filters is not None
    assert (report.filters.asked, report.filters.passed, report.filters.right) == (5, 3, 3)


def test_a_report_reads_as_a_table(path: str) -> None:
    assert str(view(path).explain(["k05", "k25", "k25x", "zzz"])).splitlines() == [
        "index bloom: 2 of 4 keys found",
        "  step                      files  keys in files",
        "  considered                    4             16",
        "  left by key range             3              5",
        "  left by bloom filter          3              3",
        "  opened                        3              3",
        "  found                         3              3",
        "  opened in vain                0              0",
        "  filters: of 2 keys that are not in a file, 0 passed its filter (rate 0)",
    ]


def test_partitions_narrow_the_look_up(path: str) -> None:
    report = view(path).explain(["k25"], partitions=["p=q"])
    assert (report.found, report.steps[0]) == (1, LookUpStep("considered", 1, 1))
    assert view(path).explain(["k05"], partitions=["p=q"]).found == 0


def test_the_simple_index_opens_what_row_groups_do_not_rule_out(path: str) -> None:
    report = view(path, **{"hoodie.index.type": "SIMPLE"}).explain(["k05", "k05x"])
    assert [(s.name, s.files) for s in report.steps] == [("considered", 4), ("opened", 1), ("found", 1)]
    assert report.filters is None
    assert "filters" not in str(report)


def test_range_pruning_can_be_switched_off(path: str) -> None:
    report = view(path, **{"hoodie.bloom.index.prune.by.ranges": "false"}).explain(["k05"])
    assert [(s.name, s.files) for s in report.steps][:2] == [("considered", 4), ("left by bloom filter", 1)]


def test_a_filters_false_answers_are_measured(path: str) -> None:
    store = LocalStore(path)
    client = TableClient(store)
    piece = next(s for s in client.at(client.load()).slices() if s.partition == "p=q")
    _give_a_bad_filter(f"{path}/{piece.base.path}")
    strangers = [f"k{n}x" for n in range(20, 39)]
    report = view(path).explain(["k20", "k39", *strangers], partitions=["p=q"])
    assert report.filters is not None
    assert report.filters.asked == 21
    assert report.filters.right == report.found == 2
    assert report.filters.false > 0
    assert report.filters.false_rate == report.filters.false / 19
    assert report.false_positives == LookUpStep("opened in vain", 0, report.filters.false)
    alone = view(path).explain(strangers, partitions=["p=q"])
    assert alone.false_positives == LookUpStep("opened in vain", 1, report.filters.false)


def _give_a_bad_filter(path: str) -> None:
    """Rewrite a base file with a filter of one false answer in two."""
    rows = pq.ParquetFile(path).read()
    keys = rows.column("_hoodie_record_key")
    bloom = BloomFilter.simple(len(keys), 0.5)
    bloom.add(keys)
    entries = {MIN_KEY: "k20", MAX_KEY: "k39", BLOOM_KEY: bloom.encode(), BLOOM_TYPE_KEY: bloom.type_code}
    with pq.ParquetWriter(path, rows.schema, store_schema=False) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata(entries)


def test_explaining_writes_nothing(path: str) -> None:
    store = CountingStore(LocalStore(path))
    IndexView(TableClient(store)).explain(["k05", "zzz"])
    assert {client.kind for client in store.log} <= {"read", "range", "list", "info", "exists", "list_directories"}
    assert isinstance(store, WrapperStore)
    assert store.statistics().bytes_written == 0


def test_the_tables_own_index_is_asked(tmp_path) -> None:
    path = str(tmp_path / "t")
    lakefmt.create_table(path, schema=pa.schema([("id", pa.string())]), record_key="id", index="simple")
    assert view(path).name == "simple"
    assert repr(view(path)) == "IndexView('simple')"
    report = view(path).explain("a")
    assert (report.keys, report.found) == (1, 0)
    with pytest.raises(UnknownSetting, match="btree"):
        _ = view(path, **{"hoodie.index.type": "btree"}).name


@pytest.mark.parametrize(
    "keys",
    [
        ["k05", "k06"],
        pa.array(["k05", "k06"]),
        pa.chunked_array([["k05"], ["k06"]]),
        pa.array(["k05", "k06"], pa.large_string()),
        pa.array(["k05", "k06"]).dictionary_encode(),
    ],
)
def test_keys_come_in_many_forms(path: str, keys: object) -> None:
    assert view(path).explain(keys).found == 2


@pytest.mark.parametrize("keys", [["a", None], [1, 2], 7, [["a"]], pa.array([1.5]).cast(pa.float64()).slice(0, 0)])
def test_keys_that_are_no_texts_are_refused_or_none(path: str, keys: object) -> None:
    if isinstance(keys, pa.Array):
        assert view(path).explain(keys).keys == 0
        return
    with pytest.raises(InvalidKey):
        view(path).explain(keys)


def test_whoever_hands_in_a_translator_may_ask_by_rows(path: str) -> None:
    def to_keys(state: TableState, what: object) -> pa.StringArray:
        assert state.config.record_key_fields == ("id",)
        assert isinstance(what, pa.Table)
        return what.column("id").combine_chunks()

    client = TableClient(LocalStore(path))
    assert IndexView(client, to_keys).explain(pa.table({"id": ["k05"]})).found == 1


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("index", ["bloom", "simple", "global_bloom", "bucket"])
def test_keys_that_logs_have_alone_or_delete_are_told(version: int, index: str) -> None:
    table = lakefmt.create_table(
        f"memory://explained-logs-{version}-{index}",
        schema=pa.schema([("id", pa.string()), ("v", pa.int64())]),
        record_key="id",
        table_type="mor",
        table_version=version,
        index=index,
        properties={"hoodie.bucket.index.num.buckets": "1"} if index == "bucket" else {},
    )
    table.upsert(pa.table({"id": ["a", "b"], "v": [1, 1]}))
    table.delete(["b"])
    assert table.index.explain(["a", "b", "c"]).found == 1
    table.compact()
    table.delete(["a"])
    table.compact(schedule=True)
    table.upsert(pa.table({"id": ["a", "c"], "v": [2, 2]}))
    keys = set(table.read()["id"].to_pylist())
    for key in ("a", "b", "c"):
        assert table.index.explain([key]).found == (key in keys)
