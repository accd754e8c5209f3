"""What the metadata table of a table holds, decoded, and whether that is what the files and rows say."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.table_client import TableState
from lakefmt._core.formats.bloom_filter import decode_bloom_filter
from lakefmt._core.formats.names import parse_base_file, parse_log_file
from lakefmt._core.metadata.collect import FactCollector, files_of_slice
from lakefmt._core.metadata.commit_updates import stats_columns
from lakefmt._core.metadata.compaction import base_entries, log_entries, merge_entries, newest_slices
from lakefmt._core.metadata.expressions import find_expression
from lakefmt._core.metadata.layout import (
    METADATA_DIRECTORY,
    IndexDefinition,
    bloom_filter_key,
    check_file_groups,
    column_stats_key,
    expression_partition_stats_key,
    file_group_numbers,
    partition_stats_key,
    secondary_index_keys,
)
from lakefmt._core.metadata.manage import load_definitions
from lakefmt._core.metadata.records import MetadataRecord, decode_record
from lakefmt._core.metadata.statistics import column_stats_of
from lakefmt._core.metadata.writer import MetadataTableWriter
from lakefmt._core.table import Table
from lakefmt._core.values import RECORD_KEY, InstantTime

Content = dict[str, dict[str, MetadataRecord]]


def metadata_content(table: Table) -> Content:
    """The records of every partition by key, in the file group that Java's hash names."""
    client = table.client
    state = client.load()
    writer = MetadataTableWriter(client.store, state.config, durable=False)
    timeline = writer.timeline_store.load()
    done = {one.time for one in timeline.completed()} - state.timeline.pending_times
    found: Content = {}
    for partition in state.config.metadata_partitions:
        records = found.setdefault(partition, {})
        files = writer.files(partition)
        groups = check_file_groups(partition, [file.file_id for file in files])
        slices = newest_slices(files, timeline, state.config.version.layout)
        for ids in groups.values():
            for number, file_id in enumerate(ids):
                each = slices[file_id]
                where = f"{METADATA_DIRECTORY}/{partition}"
                read = client.store.read
                entries = [base_entries(read(f"{where}/{each.base.name}"), each.base.name)] if each.base else []
                logs = [(log, read(f"{where}/{log.name}")) for log in each.logs]
                entries += log_entries(partition, logs, state.config.version.layout, done.__contains__)
                keys, values = merge_entries(partition, entries, writer.form)
                texts = keys.cast(pa.string())
                if not partition.startswith("secondary_index_"):
                    assert set(file_group_numbers(texts, len(ids)).tolist()) <= {number}, f"{file_id} has others' keys"
                for key, value in zip(texts.to_pylist(), values.to_pylist(), strict=True):
                    place = f"{file_id}/{key}" if len(groups) > 1 or None not in groups else key
                    assert place not in records, f"{place} is in two file groups of {partition}"
                    records[place] = decode_record(value, writer.form.schema)
    return found


def check_metadata_table(table: Table) -> Content:
    """Every record is what the files and rows say, and none is missing."""
    content = metadata_content(table)
    state = table.client.load()
    assert_files(table, state, content["files"])
    definitions = load_definitions(table.client, state.config)
    collector = FactCollector(table.client, state, state, InstantTime(""), table.client.at(state).schema())
    slices = table.client.at(state).slices()
    files = [file for each in slices for file in files_of_slice(each)]
    if "column_stats" in content:
        collector.columns = stats_columns(state.config, collector, definitions)
        for file in files:
            for name, one in collector.ranges(file).items():
                record = content["column_stats"].get(column_stats_key(name, file.partition, file.name))
                expected = column_stats_of(one, collector.types[name], file.name, state.config.version)
                assert record is not None, f"{name} of {file.path} has no statistics"
                assert record.column_stats == expected, f"{name} of {file.path}"
    if "partition_stats" in content:
        for path, columns in collector.partition_ranges(slices).items():
            for name, one in columns.items():
                record = content["partition_stats"][partition_stats_key(name, path)]
                kind = collector.types[name]
                assert record.column_stats == column_stats_of(one, kind, path, state.config.version, is_tight=True)
    if "bloom_filters" in content:
        bases = [each.base for each in slices if each.base is not None]
        assert {bloom_filter_key(file.partition, file.name) for file in bases} <= set(content["bloom_filters"])
    assert_indexes(table, state, content)
    assert_expressions(collector, content, definitions, slices)
    return content


def assert_files(table: Table, state: TableState, records: Mapping[str, MetadataRecord]) -> None:
    """The listing has the committed files with their sizes, and no others."""
    listed = {
        ("" if key == "." else key): {
            name: one.size for name, one in (record.files or {}).items() if not one.is_deleted
        }
        for key, record in records.items()
        if key != "__all_partitions__"
    }
    real: dict[str, dict[str, int]] = {}
    for each in table.client.store.list():
        path, _, name = each.name.rpartition("/")
        parsed = parse_base_file(name) or parse_log_file(name)
        if parsed is None or path.startswith(".hoodie"):
            continue
        pending = {one.time for one in state.timeline.pending}
        if parsed.instant not in pending:
            real.setdefault(path, {})[name] = each.size
    assert {path: files for path, files in listed.items() if files} == real
    known = {
        ("" if name == "." else name)
        for name, one in (records["__all_partitions__"].files or {}).items()
        if not one.is_deleted
    }
    assert real.keys() <= known


def assert_indexes(table: Table, state: TableState, content: Content) -> None:
    """The record index has every key at its file group; secondary indexes have every pair."""
    rows = {
        (each.partition, each.file_id): FactCollector(
            table.client, state, state, InstantTime(""), table.client.at(state).schema()
        ).rows(state, each, table.client.at(state).schema().names)
        for each in table.client.at(state).slices()
    }
    if "record_index" in content:
        expected = {(key, *group) for group, part in rows.items() for key in part.column(RECORD_KEY).to_pylist()}
        found = {
            (key.rpartition("/")[2], record.location.partition, record.location.file_id)
            for key, record in content["record_index"].items()
            if record.location is not None
        }
        assert found == expected
    definitions = load_definitions(table.client, state.config)
    for name in content:
        if name.startswith("secondary_index_"):
            column = definitions[name].columns[0]
            pairs = {
                pair
                for part in rows.values()
                for pair in secondary_index_keys(
                    part.column(column).combine_chunks(), part.column(RECORD_KEY).combine_chunks()
                ).to_pylist()
            }
            assert set(content[name]) == pairs


def assert_expressions(
    collector: FactCollector, content: Content, definitions: Mapping[str, IndexDefinition], slices: list[FileSlice]
) -> None:
    """Every expression index has what its function gives for the rows of each file, and of each data partition."""
    for name in content:
        if not name.startswith("expr_index_"):
            continue
        expression = find_expression(definitions[name], collector.schema, collector.time_zone)
        parts: dict[str, list[tuple[list[object], int]]] = {}
        for file in [file for each in slices for file in files_of_slice(each)]:
            values = expression.values(collector.column(file, expression.column)).to_pylist()
            if definitions[name].index_type == "bloom_filters":
                stored = content[name][bloom_filter_key(file.partition, file.name)].bloom_filter
                assert stored is not None
                bloom = decode_bloom_filter(stored.content, stored.type_code)
                texts = pa.array([str(value) for value in values if value is not None], pa.string())
                assert bloom.contains(texts).all()
                assert not bloom.contains(pa.array(["not there"])).any()
                continue
            key = column_stats_key(expression.column, file.partition, file.name)
            parts.setdefault(file.partition, []).append((values, file.size if values else 0))
            if not values:
                assert key not in content[name]
                continue
            _assert_range(content[name][key], file.name, values, file.size, is_tight=False)
        for path, found in parts.items():
            together = [value for values, _ in found for value in values]
            if together:
                record = content[name][expression_partition_stats_key(expression.column, path)]
                _assert_range(record, path or ".", together, sum(size for _, size in found), is_tight=True)


def _assert_range(record: MetadataRecord, name: str, values: list[object], size: int, *, is_tight: bool) -> None:
    """For values that are stored as they are: texts and whole numbers."""
    stats = record.column_stats
    assert stats is not None
    known = [value for value in values if value is not None]
    # Texts are ordered by their bytes.
    ordered = sorted(known, key=lambda value: value.encode() if isinstance(value, str) else value)  # type: ignore[arg-type,return-value]
    assert (stats.minimum, stats.maximum) == ((ordered[0], ordered[-1]) if ordered else (None, None))
    counts = (stats.file_name, stats.value_count, stats.null_count, stats.total_size, stats.total_uncompressed_size)
    assert counts == (name, len(known), len(values) - len(known), size, 2 * size)
    assert stats.is_tight == is_tight
