"""The record index of the metadata table as the index of writes: keys none lost, none doubled, whatever happens to it."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
import lakefmt._core.write.transaction as transaction
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.index import record
from lakefmt._core.metadata.layout import METADATA_DIRECTORY
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.transactions.indexing import drop_metadata_index
from lakefmt.errors import CorruptFile, UnsafePath, UnsupportedFeature
from lakefmt.testing.stores import CountingStore
from tests.example_counts import examples
from tests.kit import product_or_diagonal
from tests.metadata.metadata_content import check_metadata_table
from tests.metadata.metadata_indexes import create_metadata_index

NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {
    "lakefmt.write.threads": 1,
    "lakefmt.durability": "none",
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.record.index.max.filegroup.count": 2,
}
MOVES: dict[str, object] = {"hoodie.record.index.update.partition.path": True}
DIRECTORY = f"{METADATA_DIRECTORY}/record_index"


def rows(first: int, last: int, v: int, shift: int = 0) -> pa.Table:
    numbers = range(first, last)
    cities = [("sf", "oslo")[(n + shift) % 2] for n in numbers]
    return pa.table({"id": [f"k{n}" for n in numbers], "city": cities, "v": [v] * len(numbers)})


def make(index: str = "record", version: int = 8, kind: str = "cow", **more: Any) -> Table:
    given = {"options": OPTIONS, "partition_by": "city", **more}
    url = f"memory://record-{next(NUMBERS)}"
    return lakefmt.create_table(
        url,
        schema=rows(0, 1, 0).schema,
        record_key="id",
        table_type=kind,
        table_version=version,
        index=index,
        **given,
    )


def values(table: Table) -> dict[str, int]:
    found = [(row["id"], row["v"]) for row in table.read().to_pylist()]
    assert len(dict(found)) == len(found), f"a key is there twice: {found}"
    return dict(found)


KINDS = [(kind, version) for kind in ("cow", "mor") for version in (6, 8, 9)]


@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_a_table_is_made_with_its_record_index(kind: str, version: int) -> None:
    table = make(version=version, kind=kind)
    assert table.properties.metadata_partitions == ("files", "record_index")
    assert table.index.name == "record"
    table.upsert(rows(0, 4, 1))
    assert table.upsert(rows(2, 6, 2)).num_updates == 2
    table.delete(["k0", "k5", "nowhere"])
    table.upsert(rows(0, 1, 3))
    assert values(table) == {"k0": 3, "k1": 1, "k2": 2, "k3": 2, "k4": 2}
    check_metadata_table(table)


def test_keys_are_found_without_reading_data_files() -> None:
    table = make(kind="mor")
    for v in range(4):
        table.upsert(rows(2 * v, 2 * v + 6, v))
    store = CountingStore(table.client.store)
    again = Table(TableClient(store, table.client.options, metadata_listing=table.client.metadata_listing))
    report = again.index.explain(["k0", "k11", "k99"])
    assert (report.index, report.found) == ("record", 2)
    assert [step.name for step in report.steps] == ["in the record index", "found"]
    read = [one.name for one in store.log if not one.name.startswith(".hoodie")]
    assert not read, "neither a data file nor a directory of one is touched"


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("moves", [False, True])
def test_a_key_is_unique_in_the_table(kind: str, moves: bool) -> None:
    table = make(kind=kind, options={**OPTIONS, **(MOVES if moves else {})})
    table.upsert(rows(0, 6, 1))
    result = table.upsert(rows(3, 9, 2, shift=1))
    assert values(table) == {f"k{n}": 1 if n < 3 else 2 for n in range(9)}
    places = {file.partition_path for file in result.files}
    assert places == {"city=sf", "city=oslo"}
    stored = table.read(columns=["id", "_hoodie_partition_path"]).to_pylist()
    homes = {row["id"]: row["_hoodie_partition_path"] for row in stored}
    assert homes["k4"] == ("city=oslo" if moves else "city=sf")
    check_metadata_table(table)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_key_that_an_overwrite_stored_twice_stays_in_the_index_when_one_of_the_two_goes(kind: str) -> None:
    table = make(kind=kind, options={**OPTIONS, **MOVES, "lakefmt.write.small.files": "fill"})
    here, there = (rows(0, 1, value, shift=shift) for value, shift in ((1, 0), (2, 1)))
    table.upsert(rows(0, 4, 1))
    table.insert_overwrite(there)
    assert table.read(["id"]).column("id").to_pylist().count("k0") == 2, "an overwrite looks no key up"
    table.upsert(here)
    assert table.index.check().is_clean
    table.upsert(there)
    assert table.read(["id"]).column("id").to_pylist().count("k0") == 1
    assert table.index.check().is_clean


def test_a_partitioned_index_keeps_a_key_for_each_partition() -> None:
    table = make("partitioned_record", 9)
    table.upsert(rows(0, 4, 1))
    table.upsert(rows(2, 6, 2, shift=1))
    assert table.read().num_rows == 8
    assert table.upsert(rows(0, 6, 3)).num_updates == 4
    assert table.delete(["k3"]).num_deletes == 2
    check_metadata_table(table)


def test_a_dropped_index_is_replaced_by_the_simple_one_and_the_write_says_so() -> None:
    table = make()
    table.upsert(rows(0, 4, 1))
    drop_metadata_index(table.client, "record_index")
    result = table.upsert(rows(2, 6, 2, shift=1))
    assert "no record_index" in result.warnings[0]
    assert "global_simple" in result.warnings[0]
    assert values(table) == {"k0": 1, "k1": 1, "k2": 2, "k3": 2, "k4": 2, "k5": 2}
    create_metadata_index(table.client, "record_index", options=OPTIONS)
    assert table.upsert(rows(4, 8, 3)).warnings == ()
    assert table.index.name == "record"
    check_metadata_table(table)


def test_an_index_whose_directory_is_gone_is_made_anew_and_no_key_doubles() -> None:
    table = make()
    table.upsert(rows(0, 4, 1))
    table.client.store.delete_tree(METADATA_DIRECTORY)
    assert "gone" in table.upsert(rows(2, 6, 2)).warnings[0]
    assert values(table) == {"k0": 1, "k1": 1, "k2": 2, "k3": 2, "k4": 2, "k5": 2}
    assert table.upsert(rows(4, 8, 3)).warnings == ()
    check_metadata_table(table)


def test_without_metadata_table_the_write_falls_back() -> None:
    table = make()
    table.upsert(rows(0, 4, 1))
    result = table.upsert(rows(2, 6, 2), options={"hoodie.metadata.enable": False})
    assert any("hoodie.metadata.enable=false" in text for text in result.warnings)
    assert len(values(table)) == 6
    made = table.upsert(
        rows(5, 7, 3), options={**OPTIONS, "hoodie.metadata.enable": True, "hoodie.metadata.record.index.enable": True}
    )
    assert made.warnings == (), "this commit makes the index"
    assert table.upsert(rows(5, 8, 4)).warnings == ()
    assert len(values(table)) == 8


def _lose(store: MemoryStore, which: str) -> None:
    names = [one.name for one in store.list(METADATA_DIRECTORY) if f"/{which}" in one.name or f"/.{which}" in one.name]
    assert names
    store.delete(names)


@pytest.mark.parametrize("which", ["record-index-0000", "record-index-0001", "record-index-"])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_missing_file_group_of_the_index_is_refused(which: str, compacted: bool) -> None:
    table = make(options={**OPTIONS, "hoodie.metadata.compact.max.delta.commits": 2 if compacted else 20})
    for v in range(3):
        table.upsert(rows(0, 4 + v, v))
    before = values(table)
    store = table.client.store
    assert isinstance(store, MemoryStore)
    _lose(store, which)
    again = lakefmt.open_table(store.url, options=OPTIONS)
    with pytest.raises(CorruptFile, match="record-index"):
        again.upsert(rows(0, 9, 9))
    assert values(again) == before


@pytest.mark.slow
@product_or_diagonal(
    fresh=[False, True], due=["nothing", "compaction"], which=["record-index-0001", "secondary-index-v-0001"]
)
def test_a_write_that_only_maintains_an_index_sees_its_last_file_group_missing(
    which: str, due: str, fresh: bool
) -> None:
    often = {**OPTIONS, "hoodie.metadata.compact.max.delta.commits": 4 if due == "compaction" else 20}
    table = make("bloom", indexes=["record_index", {"kind": "secondary_index", "columns": ["v"]}], options=often)
    for v in range(3):
        table.upsert(rows(0, 4 + v, v))
    before, store = values(table), table.client.store
    assert isinstance(store, MemoryStore)
    directory = f"{METADATA_DIRECTORY}/secondary_index_v" if which.startswith("secondary") else DIRECTORY
    store.put(f"{directory}/.{which}-0_x.log.1_0-0-0.crc", b"a foreign name")  # counts for nothing
    table.upsert(rows(0, 2, 0))
    _lose(store, which)
    writer = lakefmt.open_table(store.url, options=often) if fresh else table
    for _ in range(2):  # the second finds what the first left
        with pytest.raises(CorruptFile, match=f"lacks the file group {which}-0"):
            writer.upsert(rows(0, 40, 9))
    assert values(table) == {**before, "k0": 0, "k1": 0}
    name = "secondary_index_v" if which.startswith("secondary") else "record_index"
    writer.index.drop(name)
    writer.upsert(rows(0, 40, 9))
    writer.index.create("secondary_index", "v")  # and the record index, which it rests on
    writer.upsert(rows(30, 50, 10))
    check_metadata_table(writer)


def test_an_index_that_is_made_anew_with_fewer_file_groups_is_maintained() -> None:
    table = make("bloom", indexes=["record_index"])
    table.upsert(rows(0, 4, 1))
    table.index.drop("record_index")
    one = {**OPTIONS, "hoodie.metadata.record.index.min.filegroup.count": 1}
    fewer = lakefmt.open_table(
        table.client.store.url, options={**one, "hoodie.metadata.record.index.max.filegroup.count": 1}
    )
    fewer.index.create("record_index")
    for v in range(3):
        table.upsert(rows(2, 6, v))
    assert [each.file_groups for each in table.index.list() if each.name == "record_index"] == [1]
    check_metadata_table(table)


def test_a_partitioned_index_that_lost_all_is_refused() -> None:
    table = make("partitioned_record", 9)
    table.upsert(rows(0, 4, 1))
    store = table.client.store
    assert isinstance(store, MemoryStore)
    _lose(store, "record-index-")
    with pytest.raises(CorruptFile, match="record-index"):
        lakefmt.open_table(store.url, options=OPTIONS).upsert(rows(0, 9, 9))


def test_a_sharing_of_names_with_hudi() -> None:
    table = make("RECORD_INDEX")
    table.upsert(rows(0, 4, 1))
    for name in ("RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX", "record"):
        assert table.upsert(rows(2, 4, 2), options={"hoodie.index.type": name}).num_updates == 2
    with pytest.raises(UnsupportedFeature, match="RECORD_INDEX"):
        table.upsert(rows(2, 4, 2), options={"hoodie.index.type": "RECORD_LEVEL_INDEX"})


def test_a_global_look_up_works_in_a_partitioned_index() -> None:
    table = make("RECORD_LEVEL_INDEX", 9)
    table.upsert(rows(0, 4, 1))
    table.upsert(rows(2, 6, 2, shift=1), options={"hoodie.index.type": "RECORD_INDEX"})
    assert values(table) == {"k0": 1, "k1": 1, "k2": 2, "k3": 2, "k4": 2, "k5": 2}
    check_metadata_table(table)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"index": "partitioned_record"}, "table_version=9"),
        ({"properties": {"hoodie.populate.meta.fields": "false"}}, "global_simple"),
        ({"record_key": None}, "record key"),
    ],
)
def test_tables_that_cannot_have_one_are_refused(more: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"schema": rows(0, 1, 0).schema, "record_key": "id", "index": "record", **more}
    with pytest.raises(UnsupportedFeature, match=said):
        lakefmt.create_table(f"memory://record-{next(NUMBERS)}", **given)


# ------------------------------------------------------------------------------------------------- random histories

#: What one step does, with the keys it does it to and how far their cities are shifted.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["upsert", "upsert", "upsert", "delete", "insert_new", "overwrite", "compact", "rollback"]),
        st.sets(st.integers(0, 11), min_size=1, max_size=6),
        st.integers(0, 1),
    ),
    min_size=2,
    max_size=6,
)


def chosen(numbers: set[int], v: int, shift: int) -> pa.Table:
    return pa.concat_tables([rows(n, n + 1, v, shift) for n in sorted(numbers)])


class Model:
    """Rows by key, or by key and city, and the states before each commit."""

    def __init__(self, is_global: bool, moves: bool) -> None:
        self.is_global, self.moves = is_global, moves
        self.rows: dict[tuple[str, ...], tuple[str, int]] = {}
        self.before: list[dict[tuple[str, ...], tuple[str, int]]] = []

    def place(self, row: dict[str, Any]) -> tuple[str, ...]:
        return (row["id"],) if self.is_global else (row["id"], row["city"])

    def apply(self, verb: str, data: pa.Table) -> None:
        state = dict(self.rows)
        for row in data.to_pylist():
            place = self.place(row)
            if verb == "delete":
                for known in [one for one in state if one[0] == row["id"]]:
                    del state[known]
            elif verb == "upsert" or place not in state:
                stays = self.is_global and not self.moves and place in state
                state[place] = (state[place][0] if stays else row["city"], row["v"])
        if verb == "overwrite":
            state = {self.place(row): (row["city"], row["v"]) for row in data.to_pylist()}
        self.before.append(self.rows)
        self.rows = state

    def content(self) -> list[tuple[str, str, int]]:
        """Key, partition and value of every row."""
        return sorted((place[0], f"city={city}", v) for place, (city, v) in self.rows.items())


def perform(table: Table, model: Model, verb: str, data: pa.Table, kind: str) -> None:
    keys = data["id"].to_pylist()
    if verb == "compact":
        if kind == "mor":
            table.compact()
            model.before.clear()
        return
    if verb == "rollback":
        if model.before and len(table.timeline.entries) > 1:
            table.rollback(table.timeline.entries[-1].time)
            model.rows = model.before.pop()
            model.before.clear()
        return
    runs = {
        "upsert": lambda: table.upsert(data),
        "delete": lambda: table.delete(keys),
        "insert_new": lambda: table.insert(data, drop_duplicates=True),
        "overwrite": lambda: table.insert_overwrite_table(data),
    }
    committed = runs[verb]().instant is not None
    model.apply(verb, data)
    if not committed:
        model.before.pop()


@settings(max_examples=examples(20))
@given(
    STEPS,
    st.sampled_from([*itertools.product(("record",), ("cow", "mor"), (6, 8, 9)), ("partitioned_record", "cow", 9)]),
    st.booleans(),
    st.booleans(),
)
def test_random_histories_lose_and_double_no_key(
    steps: list[tuple[str, set[int], int]], shape: tuple[str, str, int], moves: bool, compacts: bool
) -> None:
    index, kind, version = shape
    options = {**OPTIONS, **(MOVES if moves else {}), "hoodie.clean.automatic": False}
    # A compaction of the metadata table ends rollbacks of what it took in.
    options["hoodie.metadata.compact.max.delta.commits"] = 2 if compacts else 100
    table, model = make(index, version, kind, options=options), Model(index == "record", moves)
    for v, (verb, numbers, shift) in enumerate(steps):
        if verb != "rollback" or not compacts:
            perform(table, model, verb, chosen(numbers, v, shift), kind)
        table = lakefmt.open_table(table.client.store.url, options=options)
        stored = table.read(columns=["id", "_hoodie_partition_path", "v"]).to_pylist()
        assert sorted((row["id"], row["_hoodie_partition_path"], row["v"]) for row in stored) == model.content()
    check_metadata_table(table)


def test_two_writers_of_one_new_key_bring_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one finds at its commit that the first has brought the key, begins anew, and updates it."""
    options: dict[str, object] = {
        **OPTIONS,
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.parquet.small.file.limit": 0,
    }
    table = make(options=options)
    table.upsert(rows(0, 2, 1))
    rivals = [lakefmt.open_table(table.client.store.url, options=options)]
    complete = transaction.complete_instant

    def after_the_rival(*given: Any, **named: Any) -> Any:
        while rivals:
            rivals.pop().upsert(rows(2, 6, 2, shift=1))
        return complete(*given, **named)

    monkeypatch.setattr(transaction, "complete_instant", after_the_rival)
    done = table.upsert(rows(4, 8, 3))
    assert (done.num_inserts, done.num_updates) == (2, 2)
    assert values(table) == {"k0": 1, "k1": 1, "k2": 2, "k3": 2, "k4": 3, "k5": 3, "k6": 3, "k7": 3}
    check_metadata_table(table)


def test_a_key_that_is_left_out_of_the_index_is_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotage: what the index says is what counts."""
    table = make(options={**OPTIONS, "hoodie.parquet.small.file.limit": 0})
    table.upsert(rows(0, 4, 1))
    look_up = record.lookup_locations
    monkeypatch.setattr(record, "lookup_locations", lambda *given: look_up(*given).slice(1))
    table.upsert(rows(0, 4, 2))
    with pytest.raises(AssertionError, match="twice"):
        values(table)


def test_an_index_that_names_a_place_outside_of_the_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    table.upsert(rows(0, 4, 1))
    look_up = record.lookup_locations

    def outside(*given: Any) -> pa.Table:
        places = look_up(*given)
        return places.set_column(1, "partition", pa.array(["../elsewhere"] * len(places)))

    monkeypatch.setattr(record, "lookup_locations", outside)
    with pytest.raises(UnsafePath):
        table.upsert(rows(0, 4, 2))


def test_a_place_whose_file_group_is_gone_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    table.upsert(rows(0, 4, 1))
    stale = record.lookup_locations(record.open_for_look_up(table.client, None), pa.array(["k0", "k2"]))
    table.insert_overwrite_table(rows(4, 6, 2))
    look_up = record.lookup_locations
    monkeypatch.setattr(record, "lookup_locations", lambda *given: pa.concat_tables([look_up(*given), stale]))
    assert table.upsert(rows(0, 6, 3)).num_inserts == 4
    assert values(table) == {f"k{n}": 3 for n in range(6)}


def test_the_index_is_made_once_beside_others_that_are_asked_for() -> None:
    names = {"files", "record_index", "column_stats", "secondary_index_city"}
    for more in (["record_index", "column_stats"], ["column_stats"]):
        table = make(indexes=[*more, {"kind": "secondary_index", "columns": ["city"]}])
        assert set(table.properties.metadata_partitions) == names
    partitioned = make("partitioned_record", 9, indexes=["record_index"])
    partitioned.upsert(rows(0, 4, 1))
    assert partitioned.upsert(rows(2, 6, 2, shift=1)).num_inserts == 4


def test_updates_in_logs_read_no_base_file_and_revived_keys_are_recorded() -> None:
    """Where no log has deleted a key, updates change no key; where one has, the file group is compared."""
    table = make(kind="mor", partition_by=None)
    table.upsert(rows(0, 8, 1))
    for v in range(2, 5):
        table.upsert(rows(0, 4, v))
    store = CountingStore(table.client.store)
    again = Table(TableClient(store, table.client.options, metadata_listing=table.client.metadata_listing))
    again.upsert(rows(2, 6, 9))
    assert not [one.name for one in store.log if one.name.endswith(".parquet")]
    check_metadata_table(again)
    again.delete(["k2"])
    again.upsert(rows(2, 3, 10), options={"hoodie.index.type": "BLOOM"})
    content = check_metadata_table(again)
    assert "k2" in content["record_index"]


def test_rows_of_logs_that_are_marked_as_deleted_leave_the_index() -> None:
    schema = pa.schema([("id", pa.string()), ("v", pa.int64()), ("_hoodie_is_deleted", pa.bool_())])
    table = lakefmt.create_table(
        f"memory://record-{next(NUMBERS)}",
        schema=schema,
        record_key="id",
        ordering="v",
        table_type="mor",
        index="record",
        options=OPTIONS,
    )
    table.upsert([{"id": f"k{n}", "v": 1, "_hoodie_is_deleted": False} for n in range(4)])
    for v in (2, 3):
        table.upsert([{"id": f"k{v}", "v": v, "_hoodie_is_deleted": True}])
    assert set(check_metadata_table(table)["record_index"]) == {"k0", "k1"}
