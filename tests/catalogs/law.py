"""The law of a sync, for any catalog: after commits and syncs, some of which died, a last sync gives what the table says."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
from hypothesis import strategies as st

import lakefmt
from lakefmt.errors import StorageError

CITIES = ("sf", "oslo", "rio/x", "a b", "ü=1")
MOST_REQUESTS = 12

cities = st.sets(st.sampled_from(CITIES), min_size=1, max_size=3).map(sorted)
syncs = st.tuples(st.just("sync"), st.none() | st.tuples(st.integers(1, MOST_REQUESTS), st.booleans()))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), cities),
        st.tuples(st.just("drop"), st.sampled_from(CITIES)),
        st.tuples(st.just("overwrite"), cities),
        st.tuples(st.just("overwrite_table"), cities),
        st.tuples(st.just("add"), st.sampled_from(["bigint", "string", "double"])),
        st.tuples(st.just("widen"), st.none()),
        st.tuples(st.just("comment"), st.sampled_from(["of the trip", "another"])),
        syncs,
        syncs,
    ),
    min_size=2,
    max_size=7,
)
HIVE_OF_META = [
    (f"_hoodie_{name}", "string", "")
    for name in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
]
OPTIONS = {"hoodie.datasource.hive_sync.sync_comment": True, "hoodie.datasource.hive_sync.batch_num": 2}


class Dying:
    """A catalog that fails its n-th request, before it takes effect or after."""

    def __init__(self, catalog, number, after):
        self.catalog, self.left, self.after = catalog, number, after
        self.what = catalog.what

    def __getattr__(self, name):
        act = getattr(self.catalog, name)

        def request(*arguments):
            self.left -= 1
            if self.left == 0 and not self.after:
                raise StorageError("the request got lost")
            answer = act(*arguments)
            if self.left == 0:
                raise StorageError("the answer got lost")
            return answer

        return request


class Model:
    """What is written, in the words of a catalog, kept beside the table by the test alone."""

    def __init__(self, place, table_type="cow", version=8):
        self.columns = [("id", "string", ""), ("n", "int", "")]
        self.number = 0
        self.table = lakefmt.create_table(
            place,
            schema=pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int32())]),
            record_key="id",
            partition_by="city",
            table_type=table_type,
            table_version=version,
            options={"hoodie.schema.on.read.enable": True, "hoodie.clean.automatic": False},
        )

    def rows(self, chosen):
        self.number += 1
        kinds = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "double": pa.float64()}
        columns = {
            name: pa.array([None] * len(chosen), kinds[kind])
            for name, kind, _ in self.columns
            if name not in ("id", "n")
        }
        number = pa.array([self.number] * len(chosen), kinds[self.columns[1][1]])
        return pa.table({"id": [f"{self.number}-{city}" for city in chosen], "city": chosen, "n": number, **columns})

    def do(self, step, given):
        if step == "upsert":
            self.table.upsert(self.rows(given))
        elif step == "overwrite":
            self.table.insert_overwrite(self.rows(given))
        elif step == "overwrite_table":
            self.table.insert_overwrite_table(self.rows(given))
        elif step == "drop" and given in self.partitions():
            self.table.delete_partitions([{"city": given}])
        elif step == "add" and self.number:
            name = f"c{len(self.columns)}"
            self.table.alter.add_column(
                name, {"bigint": pa.int64(), "string": pa.string(), "double": pa.float64()}[given]
            )
            self.columns.append((name, given, ""))
        elif step == "widen" and self.number and self.columns[1][1] == "int":
            self.table.alter.update_column("n", type=pa.int64())
            self.columns[1] = ("n", "bigint", self.columns[1][2])
        elif step == "comment" and self.number:
            self.table.alter.update_column("n", comment=given)
            self.columns[1] = (*self.columns[1][:2], given)

    def partitions(self):
        return set(self.table.read(columns=["city"])["city"].to_pylist())


def is_same_but_for_slashes(first, second):
    return first.removeprefix("file://").removeprefix("file:") == second.removeprefix("file://").removeprefix("file:")


def check(model, catalog, names, database, location):
    """The catalog says what the model says, read by reads of the catalog alone."""
    for name in names:
        entry = catalog.load_table(database, name)
        assert [(c.name, c.data_type, c.comment) for c in entry.columns] == HIVE_OF_META + model.columns
        assert [(c.name, c.data_type) for c in entry.partition_keys] == [("city", "string")]
        assert is_same_but_for_slashes(entry.location, location)
        assert entry.is_external
        assert entry.properties["spark.sql.sources.provider"] == "hudi"
        assert entry.properties["team"] == "ours", "what others write into an entry stays"
        commits = model.table.timeline.timeline.commits
        assert entry.properties.get("last_commit_time_sync") == (commits[-1].time if commits else None)
        partitions = {each.values: each for each in catalog.list_partitions(entry)}
        assert set(partitions) == {(city,) for city in model.partitions()}
        assert len(partitions) == len(catalog.list_partitions(entry))
        by_city = {each.values[0]: each for each in partitions.values()}
        paths = set(model.table.partitions())
        for each in by_city.values():
            assert each.location.rpartition("/")[2] in paths
            assert [(c.name, c.data_type, c.comment) for c in each.columns] == HIVE_OF_META + model.columns


def play(model, catalog, played, names, database, location, dying=Dying, first_changes=True):
    """Commits and syncs, a last sync, and one more that must change nothing."""
    table = model.table
    bare = names[-1]
    first = table.sync(catalog, database=database, name=bare, options=OPTIONS)
    assert first_changes is None or first.is_change == first_changes
    for name in names:
        entry = catalog.load_table(database, name)
        catalog.replace_table(
            lakefmt._core.data_classes.replace(entry, properties={**entry.properties, "team": "ours"})
        )
    for step, given in played:
        if step != "sync":
            model.do(step, given)
            continue
        with suppress(StorageError):
            target = catalog if given is None else dying(catalog, *given)
            table.sync(target, database=database, name=bare, options=OPTIONS)
    table.sync(catalog, database=database, name=bare, options=OPTIONS)
    check(model, catalog, names, database, location)
    assert not table.sync(catalog, database=database, name=bare, options=OPTIONS).is_change
    check(model, catalog, names, database, location)
