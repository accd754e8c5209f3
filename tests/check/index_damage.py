"""A table with every index lakefmt makes, and damages of its metadata table, each with the finding that it must give."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

import lakefmt
from lakefmt._core.metadata.layout import bloom_filter_key, column_stats_key, secondary_index_keys
from lakefmt._core.metadata.records import (
    BloomFilterRecord,
    ColumnStats,
    FileInfo,
    MetadataRecord,
    PartitionUpdate,
    RecordFormat,
    RecordLocation,
    RecordType,
    encode_record,
)
from lakefmt._core.metadata.writer import MetadataTableWriter
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table

NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.record.index.max.filegroup.count": 2,
}
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64())])
OTHER_GROUP = "11111111-1111-1111-1111-111111111111-0"

#: What a finding is compared by: its kind, its index and the names that it is about.
Told = dict[tuple[str, str], set[str]]


def rows(first: int, last: int, v: int) -> pa.Table:
    ids = range(first, last)
    cities = [("sf", "a/b")[number % 2] for number in ids]
    return pa.table({"id": [f"k{n}" for n in ids], "city": cities, "v": [v + n for n in ids]}, SCHEMA)


def make_table(kind: str = "cow", version: int = 8, *, partitioned: bool = False, place: str = "") -> Table:
    """A small table of several commits with every index that its version has."""
    indexes: list[str | Mapping[str, object]] = ["column_stats", "bloom_filters"]
    indexes.append({"kind": "record_index", "partitioned": partitioned})
    if version > 6:
        indexes += ["partition_stats", {"kind": "secondary_index", "columns": ["v"]}]
    table = lakefmt.create_table(
        place or f"memory://index-check-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type=kind,
        table_version=version,
        options=OPTIONS,
        indexes=indexes,
    )
    table.upsert(rows(0, 8, 0))
    table.upsert(rows(2, 4, 100))
    table.insert(rows(20, 24, 0))
    table.delete(["k20"])
    return table


def copied(table: Table) -> Table:
    store = MemoryStore(f"index-check-copy-{next(NUMBERS)}")
    for item in table.client.store.list():
        store.put(item.name, table.client.store.read(item.name))
    return Table(type(table.client)(store, dict(OPTIONS)))


@dataclass
class Damage:
    """One deltacommit of false records, under an instant at which the table did nothing.

    Attributes:
        table: the table.
        partitioned: whether its record index is.
        told: the findings that a check must give.
    """

    table: Table
    partitioned: bool = False
    told: Told = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state = self.table.client.load()
        self.config = self.state.config
        self.form = RecordFormat.of_new_table(self.config.version)
        self.slices = self.table.client.at(self.state).slices()
        self._records: dict[str, dict[str, MetadataRecord]] = {}
        self._deleted: dict[str, list[str]] = {}
        self._routing: dict[str, str] = {}
        self._places: dict[str, str] = {}

    def _tell(self, kind: str, index: str, name: str) -> None:
        self.told.setdefault((kind, index), set()).add(name)

    def can(self, name: str) -> bool:
        """Whether the table's version has what is damaged."""
        return name != "forget_pair" or self.config.version.value > 6

    def target(self, name: str, number: int) -> tuple[str, object]:
        """What a damage is about: of two about one thing only one is done."""
        if name in ("invent_file", "invent_key"):
            return (name, number)
        if name in ("forget_key", "misplace_key", "forget_pair"):
            return ("pair" if name == "forget_pair" else "key", self._place_of(number)[0])
        subject = "file" if name in ("forget_file", "enlarge_file") else name
        return (subject, self._file(number).path)

    # ------------------------------------------------------------------------------------------------------- the damages

    def _file(self, number: int):
        file = self.slices[number % len(self.slices)].base
        assert file is not None
        return file

    def _change_file(self, path: str, name: str, info: FileInfo) -> None:
        files = self._records.setdefault("files", {})
        before = files.get(path)
        entries = {} if before is None else dict(before.files or {})
        files[path] = MetadataRecord(RecordType.FILES, files={**entries, name: info})

    def forget_file(self, number: int) -> None:
        file = self._file(number)
        self._change_file(file.partition, file.name, FileInfo(0, is_deleted=True))
        self._tell("missing", "files", file.path)

    def enlarge_file(self, number: int) -> None:
        file = self._file(number)
        self._change_file(file.partition, file.name, FileInfo(file.size + 1 + number))
        self._tell("size", "files", file.path)

    def invent_file(self, number: int) -> None:
        file = self._file(number)
        name = f"{OTHER_GROUP[:-1]}{number}_0-0-0_{file.instant}.parquet"
        self._change_file(file.partition, name, FileInfo(9))
        self._tell("unknown", "files", f"{file.partition}/{name}")

    def _location(self, key: str, file_id: str, partition: str) -> None:
        location = RecordLocation(partition, file_id, 0)
        self._records.setdefault("record_index", {})[key] = MetadataRecord(RecordType.RECORD_INDEX, location=location)
        self._places[key] = partition

    def _place_of(self, number: int) -> tuple[str, str, str]:
        stored = self.table.read(meta_columns=True)
        row = stored.slice(number % stored.num_rows, 1).to_pylist()[0]
        return row["_hoodie_record_key"], row["_hoodie_partition_path"], row["_hoodie_file_name"].split("_")[0]

    def forget_key(self, number: int) -> None:
        key, partition, _ = self._place_of(number)
        self._deleted.setdefault("record_index", []).append(key)
        self._places[key] = partition
        self._tell("missing", "record_index", key)

    def invent_key(self, number: int) -> None:
        self._location(f"never{number}", self.slices[0].file_id, self.slices[0].partition)
        self._tell("unknown", "record_index", f"never{number}")

    def misplace_key(self, number: int) -> None:
        key, partition, _ = self._place_of(number)
        self._location(key, OTHER_GROUP, partition)
        self._tell("wrong", "record_index", key)

    def narrow_range(self, number: int) -> None:
        file = self._file(number)
        wrapper = "LongWrapper"
        stats = ColumnStats(file.name, "v", wrapper, 10**9, 10**9, 1, 0)
        key = column_stats_key("v", file.partition, file.name)
        self._records.setdefault("column_stats", {})[key] = MetadataRecord(RecordType.COLUMN_STATS, column_stats=stats)
        self._tell("wrong", "column_stats", file.path)

    def forget_range(self, number: int) -> None:
        file = self._file(number)
        self._deleted.setdefault("column_stats", []).append(column_stats_key("id", file.partition, file.name))
        self._tell("missing", "column_stats", file.path)

    def change_filter(self, number: int) -> None:
        file = self._file(number)
        record = BloomFilterRecord("SIMPLE", file.instant, b"AAAA")
        key = bloom_filter_key(file.partition, file.name)
        self._records.setdefault("bloom_filters", {})[key] = MetadataRecord(
            RecordType.BLOOM_FILTER, bloom_filter=record
        )
        self._tell("wrong", "bloom_filters", file.path)

    def forget_pair(self, number: int) -> None:
        stored = self.table.read(["id", "v"])
        row = stored.slice(number % stored.num_rows, 1)
        (pair,) = secondary_index_keys(row["v"].combine_chunks(), row["id"].combine_chunks()).to_pylist()
        self._deleted.setdefault("secondary_index_v", []).append(pair)
        self._routing[pair] = f"{row['v'][0]}$"
        self._tell("missing", "secondary_index_v", pair)

    def delete(self, index: str, keys: list[str]) -> None:
        """Remove records by their keys."""
        self._deleted.setdefault(index, []).extend(keys)

    # --------------------------------------------------------------------------------------------------------------- act

    def apply(self) -> Table:
        """Write the deltacommit; return the table."""
        # Later than the last instant's requested time, and no later than anything that is known of the table.
        last = self.state.timeline.instants[-1].time
        free = f"{last}500" if self.config.version.layout == 1 else str(int(last) + 1)
        done = str(int(self.state.timeline.highest_time or last) + 1)
        assert free < done
        updates = [self._update(name) for name in {*self._records, *self._deleted}]
        writer = MetadataTableWriter(self.table.client.store, self.config, durable=False)
        writer.write(free, updates, lambda: done, writer.timeline_store.load())
        return self.table

    def _update(self, name: str) -> PartitionUpdate:
        records, deleted = self._records.get(name, {}), self._deleted.get(name, [])
        by_value = name.startswith("secondary_index") and self.config.version.value == 9
        keys = [*records, *deleted]
        in_partitions = self.partitioned and name == "record_index"
        return PartitionUpdate(
            name,
            pa.array([*records], pa.string()),
            pa.array([encode_record(one, self.form.schema_version) for one in records.values()], pa.binary()),
            pa.array(deleted, pa.string()),
            routing=pa.array([self._routing[key] for key in keys], pa.string()) if by_value else None,
            data_partitions=pa.array([self._places[key] for key in keys], pa.string()) if in_partitions else None,
        )


DAMAGES: dict[str, Callable[[Damage, int], None]] = {
    name: getattr(Damage, name)
    for name in (
        "forget_file",
        "enlarge_file",
        "invent_file",
        "forget_key",
        "invent_key",
        "misplace_key",
        "narrow_range",
        "forget_range",
        "change_filter",
        "forget_pair",
    )
}
