"""Two processes with other settings on one table: the rows are those of a dictionary, or the call is refused and changes nothing."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.table import Table
from lakefmt.errors import LakefmtError
from tests.example_counts import examples

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64())])
NUMBERS = itertools.count()
QUICK: dict[str, object] = {"lakefmt.durability": "none", "lakefmt.write.threads": 1}
#: Settings of a handle or of a call.
SETTINGS: dict[str, tuple[object, ...]] = {
    "hoodie.metadata.enable": (True, False),
    "hoodie.metadata.record.index.enable": (True, False),
    "hoodie.metadata.record.level.index.enable": (True,),
    "hoodie.metadata.index.column.stats.enable": (True, False),
    "hoodie.metadata.index.bloom.filter.enable": (True, False),
    "hoodie.parquet.small.file.limit": (0, 100 << 20),
    "hoodie.index.type": ("BLOOM", "SIMPLE", "GLOBAL_BLOOM", "GLOBAL_SIMPLE", "RECORD_INDEX", "BUCKET"),
    "hoodie.bucket.index.num.buckets": (2, 5),
    "hoodie.bloom.index.use.metadata": (True,),
    "hoodie.table.recordkey.fields": ("id", "city", "id,city"),
    "hoodie.datasource.write.recordkey.field": ("id", "v"),
    "hoodie.table.partition.fields": ("city", "v", ""),
    "hoodie.datasource.write.partitionpath.field": ("city", "v", ""),
    "hoodie.datasource.write.hive_style_partitioning": (True, False),
    "hoodie.datasource.write.keygenerator.class": ("org.apache.hudi.keygen.NonpartitionedKeyGenerator",),
    "hoodie.table.keygenerator.class": ("org.apache.hudi.keygen.NonpartitionedKeyGenerator",),
    "hoodie.table.precombine.field": ("v", "city"),
    "hoodie.datasource.write.precombine.field": ("v",),
    "hoodie.table.ordering.fields": ("v",),
    "hoodie.record.merge.mode": ("COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"),
    "hoodie.datasource.write.payload.class": ("org.apache.hudi.common.model.DefaultHoodieRecordPayload",),
    "hoodie.compaction.payload.class": ("org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",),
    "hoodie.populate.meta.fields": (True, False),
    "hoodie.table.version": (6, 8, 9),
    "hoodie.write.table.version": (6, 8, 9),
    "hoodie.table.type": ("COPY_ON_WRITE", "MERGE_ON_READ"),
    "hoodie.datasource.write.table.type": ("COPY_ON_WRITE", "MERGE_ON_READ"),
    "hoodie.table.base.file.format": ("PARQUET", "ORC"),
    "hoodie.table.cdc.enabled": (True, False),
    "hoodie.datasource.write.drop.partition.columns": (True, False),
    "hoodie.table.timeline.timezone": ("UTC", "LOCAL"),
    "hoodie.table.metadata.partitions": ("files", ""),
    "hoodie.table.name": ("other",),
    "hoodie.timeline.layout.version": (1, 2),
    "hoodie.compact.inline": (True,),
    "hoodie.clustering.inline": (True,),
    "hoodie.schema.on.read.enable": (True, False),
}
ONE = st.sampled_from(list(SETTINGS)).flatmap(lambda name: st.tuples(st.just(name), st.sampled_from(SETTINGS[name])))
SOME = st.lists(ONE, max_size=2).map(dict)
KEYS = st.sets(st.sampled_from(list("abcdefgh")), min_size=1, max_size=4).map(sorted)
ACT = st.tuples(
    st.sampled_from(["upsert", "upsert", "delete", "insert", "compact", "cluster", "read"]),
    KEYS,
    st.integers(0, 2),
    SOME,
)
TABLES = st.sampled_from(["bloom", "simple", "global_bloom", "record", "bucket", "partitioned_record"])


def home(key: str) -> str:
    return ("sf", "oslo")["abcdefgh".index(key) % 2]


def act(table: Table, verb: str, keys: list[str], number: int, options: dict[str, object]) -> None:
    if verb == "compact":
        table.compact(options=options)
    elif verb == "cluster":
        table.cluster(options=options)
    elif verb == "delete":
        table.delete(keys, options=options)
    elif keys and verb in ("upsert", "insert"):
        rows = {"id": keys, "city": [home(key) for key in keys], "v": [number] * len(keys)}
        (table.upsert if verb == "upsert" else table.insert)(pa.table(rows, schema=SCHEMA), options=options)


def is_done(table: Table, verb: str, keys: list[str], number: int, options: dict[str, object]) -> bool:
    """Call a verb, and return whether it was not refused."""
    try:
        act(table, verb, keys, number, options)
    except LakefmtError:
        return False
    return True


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in SCHEMA.names) for row in table.read().to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@settings(max_examples=examples(30), deadline=None)
@given(
    version=st.sampled_from([6, 8, 9]),
    index=TABLES,
    handles=st.lists(SOME, min_size=3, max_size=3),
    acts=st.lists(ACT, min_size=3, max_size=10),
)
def test_calls_with_other_settings_are_right_or_refused(
    table_type: str, version: int, index: str, handles: list[dict[str, object]], acts: list[Any]
) -> None:
    if index == "partitioned_record" and version < 9:
        index = "record"
    url = f"memory://settings-{next(NUMBERS)}"
    properties = {"hoodie.bucket.index.num.buckets": "2"} if index == "bucket" else {}
    first = lakefmt.create_table(
        url,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        index=index,
        table_type=table_type,
        table_version=version,
        properties=properties,
        options=QUICK,
    )
    opened: list[Table] = [first]
    for options in handles:
        try:
            opened.append(lakefmt.open_table(url, options={**QUICK, **options}))
        except LakefmtError:
            opened.append(lakefmt.open_table(url, options=QUICK))
    model = dict[str, tuple[str, str, int]]()
    for number, (verb, keys, which, options) in enumerate(acts):
        # An insert of a stored key may store it twice.
        new = [key for key in keys if verb != "insert" or key not in model]
        if is_done(opened[which], verb, new, number, options):
            for key in new:
                if verb in ("upsert", "insert"):
                    model[key] = (key, home(key), number)
                elif verb == "delete":
                    model.pop(key, None)
        expected = sorted(model.values())
        story = (number, verb, new, handles, options)
        assert rows_of(lakefmt.open_table(url, options=QUICK)) == expected, story
        for table in opened:
            try:
                found = rows_of(table)
            except LakefmtError:
                continue
            assert found == expected, story
        some = sorted(model)[:1]
        for key in some:
            found = lakefmt.open_table(url, options=QUICK).read(filter=f"id = '{key}'")
            assert found["v"].to_pylist() == [model[key][2]], story
