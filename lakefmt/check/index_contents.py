"""What indexes of the metadata table say and what is stored, side by side (effects: reads)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.check.index_comparison import (
    FILES_SCHEMA,
    PLACES_SCHEMA,
    IndexDamage,
    IndexFinding,
    compare_files,
    compare_names,
    compare_places,
    compare_ranges,
    compare_read_ranges,
    compare_texts,
    excludes_values,
)
from lakefmt.config.settings import resolve_settings
from lakefmt.data_classes import dataclass, replace
from lakefmt.filegroups.model import FileSlice, join_path
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.formats.names import parse_base_file
from lakefmt.metadata.collect import FactCollector, files_of_commit
from lakefmt.metadata.commit_updates import stats_columns
from lakefmt.metadata.expressions.index_updates import first_expression_update
from lakefmt.metadata.index_definitions import IndexDefinition, check_secondary_column
from lakefmt.metadata.keys import ALL_PARTITIONS, bloom_filter_key, secondary_index_keys
from lakefmt.metadata.layout import (
    EMPTY_PARTITION,
    PartitionKind,
    escape_partition,
    file_group_numbers,
    kind_of_partition,
    partition_identifier,
)
from lakefmt.metadata.manage import committed_files, expression_time_zone
from lakefmt.metadata.reading.listing import listed_files
from lakefmt.metadata.reading.reader import MetadataTable, RecordRun, newest_records
from lakefmt.metadata.reading.record_index_reader import locations_of
from lakefmt.metadata.reading.stats_reader import decode_statistics, read_stats
from lakefmt.metadata.record_schema import RecordFormat
from lakefmt.metadata.records import PartitionUpdate, decode_record
from lakefmt.metadata.statistics import ColumnRange, indexed_columns
from lakefmt.metadata.updates import DataFile, column_stats_update, partition_stats_update
from lakefmt.read.skipping.altered_columns import altered_ranges, names_of_columns
from lakefmt.values import RECORD_KEY, InstantTime, PartitionPath

__all__ = ["IndexContents"]


@dataclass
class IndexContents:
    """The metadata table of one table beside the table itself; a method for each kind of index returns the differences.

    Attributes:
        client: the data table.
        state: its properties and timeline.
        table: its metadata table.
        definitions: of its indexes.
    """

    client: TableClient
    state: TableState
    table: MetadataTable
    definitions: Mapping[str, IndexDefinition]

    def findings_of(self, name: str) -> list[IndexFinding]:
        """Return the differences between an index and what is stored.

        Parameters:
            name: the metadata table's partition, of a kind that lakefmt keeps.

        Raises:
            CorruptFile: a file of the index or of the table is damaged.
        """
        kind = kind_of_partition(name)
        findings: list[IndexFinding] = []
        if kind is PartitionKind.FILES:
            findings = [*self._files(name), *self._partitions(name)]
        elif kind is PartitionKind.COLUMN_STATS:
            findings = self._column_stats(name)
        elif kind is PartitionKind.PARTITION_STATS:
            findings = self._partition_stats(name)
        elif kind is PartitionKind.BLOOM_FILTERS:
            findings = self._bloom_filters(name)
        elif kind is PartitionKind.EXPRESSION_INDEX:
            findings = self._expression_index(name)
        elif kind is PartitionKind.RECORD_INDEX:
            return self._record_index(name)
        elif kind is PartitionKind.SECONDARY_INDEX:
            return self._secondary_index(name)
        return [*findings, *_misplaced(name, self._scanned_keys(name))]

    # ------------------------------------------------------------------------------------------------------ what is stored

    @cached_property
    def _committed(self) -> tuple[dict[str, dict[str, int]], list[FileSlice]]:
        return committed_files(self.client, self.state.config, self.state.timeline)

    @cached_property
    def _stored_files(self) -> pa.Table:
        paths = [join_path(path, name) for path, sizes in self._committed[0].items() for name in sizes]
        sizes = [size for sizes in self._committed[0].values() for size in sizes.values()]
        return pa.table([pa.array(paths, pa.string()), pa.array(sizes, pa.int64())], FILES_SCHEMA)

    @cached_property
    def _paths(self) -> dict[str, str]:
        """The committed files by name."""
        return {name: join_path(path, name) for path, sizes in self._committed[0].items() for name in sizes}

    @cached_property
    def _collector(self) -> FactCollector:
        state = self.state
        settings = resolve_settings({}, self.client.options, state.config.properties)
        schema, zone = self.client.schema(state), expression_time_zone(settings)
        collector = FactCollector(self.client, state, state, InstantTime(""), schema, time_zone=zone, stored_only=True)
        if PartitionKind.COLUMN_STATS.value in state.config.metadata_partitions:
            columns = stats_columns(state.config, collector, self.definitions)
            collector.columns = tuple(dict.fromkeys((*columns, *self._altered)))
        return collector

    @property
    def _form(self) -> RecordFormat:
        return RecordFormat.of_new_table(self.state.config.version)

    # ------------------------------------------------------------------------------------------------------------- files

    def _files(self, name: str) -> Iterator[IndexFinding]:
        entries = listed_files(self.table.scan(name))
        keys = entries["key"].cast(pa.string())
        inside = pc.not_equal(keys, ALL_PARTITIONS)
        keys, entries = keys.filter(inside), entries.filter(inside)
        at_top = pc.equal(keys, EMPTY_PARTITION)
        paths = pc.if_else(at_top, entries["name"], pc.binary_join_element_wise(keys, entries["name"], "/"))
        listed = pa.table([paths, entries["size"]], FILES_SCHEMA)
        for each in compare_files(name, listed, self._stored_files):
            excused = self._excused(each)
            names, details = each.names, each.details
            if excused:
                kept = pc.invert(pc.is_in(names, value_set=pa.array(sorted(excused), pa.string())))
                names, details = names.filter(kept), None if details is None else details.filter(kept)
            if len(names):
                yield replace(each, names=names, details=details)

    def _excused(self, finding: IndexFinding) -> set[str]:
        """Return files that differ for another reason than the metadata table: those that no commit names.

        Logs of version 6 are named by the instant of their file slice: of writes that are at work they hold blocks that are
        not committed yet.
        """
        old_layout, pending = self.state.timeline.layout == 1, bool(self.state.timeline.pending_times)
        paths = finding.names.to_pylist()
        logs = {path for path in paths if path.rpartition("/")[2].startswith(".")}
        if finding.kind is IndexDamage.SIZE:
            return logs if old_layout and pending else set()
        if finding.kind is not IndexDamage.MISSING:
            return set()
        active = {instant.time for instant in self.state.timeline.commits}
        named = self._named
        excused = {path for path in paths if path not in named and path in logs and old_layout}
        for path in paths:
            parsed = parse_base_file(path.rpartition("/")[2])
            is_active = parsed.instant in active if parsed is not None else not old_layout
            if path not in named and is_active:
                excused.add(path)
        return excused

    @cached_property
    def _named(self) -> set[str]:
        """The files that commits on the active timeline name."""
        commits = [self.client.commit_metadata(self.state, each) for each in self.state.timeline.commits]
        return {
            join_path(path, name) for each in commits for path, names in files_of_commit(each).items() for name in names
        }

    def _partitions(self, name: str) -> list[IndexFinding]:
        entries = listed_files(self.table.lookup(name, pa.array([ALL_PARTITIONS.encode()], pa.binary())))
        names = entries["name"].combine_chunks()
        stored = [partition_identifier(path) for path, files in self._committed[0].items() if files]
        findings = compare_names(name, names, pa.array(stored, pa.string()), names)
        return [replace(each, details=pa.array(["(data partition)"] * len(each), pa.string())) for each in findings]

    # -------------------------------------------------------------------------------------------------------- statistics

    def _column_stats(self, name: str) -> list[IndexFinding]:
        files = self._collector.files_of(self._committed[1])
        findings: list[IndexFinding] = []
        indexed_names: set[str] = set()
        for column in self._comparable:
            kind = self._collector.types[column]
            indexed = read_stats(self.table, PartitionKind.COLUMN_STATS, column, kind)
            indexed_names |= set(indexed["name"].to_pylist())
            for counts in (True, False):
                some = [each for each in files if column in each.ranges and each.name.startswith(".") is not counts]
                stored = self._expected(
                    column_stats_update(_only(column, some), self._collector.types, self._form), kind
                )
                findings += compare_ranges(name, column, indexed, stored, counts=counts)
        absent = sorted(indexed_names - self._paths.keys())
        findings += self._altered_stats(name, files)
        findings = [replace(each, names=self._as_paths(each.names)) for each in findings]
        if absent:
            findings.append(IndexFinding(IndexDamage.UNKNOWN, name, pa.array(absent, pa.string())))
        return findings

    def _altered_stats(self, name: str, files: list[DataFile]) -> list[IndexFinding]:
        """Return where a read of a column that was altered takes values for impossible that are stored."""
        names = names_of_columns(self.client, self.state)
        findings: list[IndexFinding] = []
        if names is None:
            return findings
        for column in self._altered:
            some = [each for each in files if column in each.ranges]
            kind, layout = self._collector.types[column], self.state.timeline.layout
            taken = altered_ranges(self.table, column, kind, names, self._committed[1], layout, by_file=True)
            update = column_stats_update(_only(column, some), self._collector.types, self._form)
            every = pa.array([each.name for each in files], pa.string())
            findings += compare_read_ranges(name, column, every, taken, self._expected(update, kind))
        return findings

    @cached_property
    def _comparable(self) -> list[str]:
        """The columns whose statistics are compared as they are.

        Those of a column that was renamed, or whose type was changed, go by its name when they were made.
        """
        return [column for column in self._collector.columns if column not in self._altered]

    @cached_property
    def _altered(self) -> tuple[str, ...]:
        """The columns, and fields of structs, that were altered: their statistics may stand under names of before."""
        ids, names = self.client.column_ids(self.state), names_of_columns(self.client, self.state)
        if ids is None or names is None:
            return ()
        asked = [name for name in names.columns if name.split(".", 1)[0] in ids.changed]
        return indexed_columns(self.client.schema(self.state), asked, meta_columns=False)

    def _as_paths(self, names: pa.Array) -> pa.Array:
        return pa.array([self._paths.get(name, name) for name in names.to_pylist()], pa.string())

    def _expected(self, update: PartitionUpdate, kind: pa.DataType) -> pa.Table:
        """Return statistics as they would be written now, decoded as they are read."""
        return decode_statistics(update.values, self._form.schema, kind)

    def _partition_stats(self, name: str) -> list[IndexFinding]:
        ranges = self._collector.partition_ranges(self._committed[1])
        findings: list[IndexFinding] = []
        for column in self._comparable:
            kind = self._collector.types[column]
            some: dict[str, dict[str, ColumnRange]] = {
                path: {column: columns[column]} for path, columns in ranges.items() if column in columns
            }
            stored = self._expected(partition_stats_update(some, self._collector.types, self._form), kind)
            findings += compare_ranges(
                name, column, read_stats(self.table, PartitionKind.PARTITION_STATS, column, kind), stored, counts=False
            )
        return findings

    def _bloom_filters(self, name: str) -> list[IndexFinding]:
        collector = FactCollector(
            self.client, self.state, self.state, InstantTime(""), self._collector.schema, with_bloom_filters=True
        )
        files = [each for each in collector.files_of(self._committed[1]) if each.bloom_filter is not None]
        keys = {
            bloom_filter_key(path, each): join_path(path, each)
            for path, sizes in self._committed[0].items()
            for each in sizes
        }
        newest, schemas = newest_records(self.table.scan(name))
        indexed: dict[str, str] = {}
        for key, value, schema in zip(*(newest[column].to_pylist() for column in newest.schema.names), strict=True):
            record = decode_record(value, schemas[schema], f"a record of {name}").bloom_filter
            if record is not None and not record.is_deleted:
                indexed[keys.get(key.decode(), key.decode())] = record.content.decode("latin-1")
        stored = {join_path(each.partition, each.name): each.bloom_filter[1] for each in files if each.bloom_filter}
        older = {path: text for path, text in indexed.items() if path in {*keys.values()} - stored.keys()}
        return compare_texts(name, _texts(indexed), _texts({**stored, **older}))

    def _expression_index(self, name: str) -> list[IndexFinding]:
        """Return the records that are missing, or whose ends exclude values; entries of older files may be there."""
        definition = self.definitions[name]
        update = first_expression_update(self.state.config, self._form, self._collector, definition, self._committed[1])
        newest, schemas = newest_records(self.table.scan(name))
        columns = [newest[column].to_pylist() for column in newest.schema.names]
        indexed = {
            key.decode(): decode_record(value, schemas[schema], f"a record of {name}").column_stats
            for key, value, schema in zip(*columns, strict=True)
        }
        stored = {
            key: decode_record(value, self._form.schema).column_stats
            for key, value in zip(update.keys.to_pylist(), update.values.to_pylist(), strict=True)
        }
        missing = sorted(stored.keys() - indexed.keys())
        wrong = sorted(key for key, stats in stored.items() if key in indexed and excludes_values(indexed[key], stats))
        return [
            IndexFinding(kind, name, pa.array(keys, pa.string()))
            for kind, keys in ((IndexDamage.MISSING, missing), (IndexDamage.WRONG, wrong))
            if keys
        ]

    # ------------------------------------------------------------------------------------------------------------ indexes

    def _rows(self, column: str | None = None) -> Iterator[tuple[FileSlice, pa.Table]]:
        """Yield the record keys of every newest file slice, and a column beside them."""
        for each in self._committed[1]:
            yield each, self._collector.rows(self.state, each, () if column is None else (column,))

    def _record_index(self, name: str) -> list[IndexFinding]:
        definition = self.definitions.get(name)
        partitioned = definition is not None and definition.is_partitioned
        indexed, wandering = [], []
        for group in self.table.scan_groups(name):
            places = locations_of(group.records)
            keys, scope = _flat(places["key"]), group.run or ""
            indexed.append(_places(keys, scope, _flat(places["partition"]), _flat(places["file_id"])))
            wandering.append((group.number, group.count, keys))
        stored = [
            _places(
                _flat(rows.column(RECORD_KEY)),
                escape_partition(each.partition) if partitioned else "",
                each.partition,
                each.file_id,
            )
            for each, rows in self._rows()
        ]
        nothing = PLACES_SCHEMA.empty_table()
        findings = compare_places(name, pa.concat_tables([nothing, *indexed]), pa.concat_tables([nothing, *stored]))
        return [*findings, *_misplaced(name, wandering)]

    def _secondary_index(self, name: str) -> list[IndexFinding]:
        check_secondary_column(self.definitions[name], self._collector.schema)
        column = self.definitions[name].columns[0]
        indexed = [keys for _, _, keys in self._scanned_keys(name)]
        stored, nulls = [], []
        for _, rows in self._rows(column):
            values = _flat(rows.column(column))
            pairs = _flat(secondary_index_keys(values, _flat(rows.column(RECORD_KEY))))
            stored.append(pairs.filter(pc.is_valid(values)))
            # Hudi 1.0 has no entries of nulls, later releases have.
            nulls.append(pairs.filter(pc.is_null(values)))
        texts = [pa.concat_arrays([pa.array([], pa.string()), *parts]) for parts in (indexed, stored, nulls)]
        return compare_names(name, *texts)

    def _scanned_keys(self, name: str) -> Iterator[tuple[int, int, pa.Array]]:
        """Yield the number of every file group, how many there are, and its keys."""
        for group in self.table.scan_groups(name):
            yield group.number, group.count, _newest_keys(group.records)


def _newest_keys(runs: list[RecordRun]) -> pa.Array:
    return _flat(newest_records(runs)[0]["key"].cast(pa.string()))


def _misplaced(name: str, groups: Iterable[tuple[int, int, pa.Array]]) -> list[IndexFinding]:
    """Return the keys that are in another file group than their hash names."""
    parts = [keys.filter(pa.array(file_group_numbers(keys, count) != number)) for number, count, keys in groups]
    keys = pa.concat_arrays([pa.array([], pa.string()), *parts])
    return [IndexFinding(IndexDamage.MISPLACED, name, keys)] if len(keys) else []


def _only(column: str, files: Iterable[DataFile]) -> list[DataFile]:
    return [replace(each, ranges={column: each.ranges[column]}) for each in files]


def _texts(by_name: Mapping[str, str]) -> pa.Table:
    return pa.table({"name": pa.array([*by_name], pa.string()), "text": pa.array([*by_name.values()], pa.string())})


def _places(keys: pa.Array, scope: str, partition: pa.Array | PartitionPath, file_id: pa.Array | str) -> pa.Table:
    columns = [
        each if isinstance(each, pa.Array) else _repeated(each, len(keys)) for each in (scope, partition, file_id)
    ]
    return pa.table([keys, *columns], PLACES_SCHEMA)


def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
