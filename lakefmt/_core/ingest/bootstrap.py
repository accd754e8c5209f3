"""A folder of Parquet files as a table that copies nothing: Hudi's bootstrap (effects).

The commit has base files with meta columns alone, and an index that says which files of the folder have the rest
(docs/format.md, Bootstrapped base files). The folder is read and never changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.base_writer import new_filter
from lakefmt._core.filegroups.bootstrap import BOOTSTRAP_INSTANT, SourceFile, encode_sources
from lakefmt._core.filegroups.reader import dropped_values, parquet_file, reading
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.formats.names import PARTITION_METADATA
from lakefmt._core.formats.parquet.base_file import KeySummary, key_footers, key_range
from lakefmt._core.formats.properties import encode_properties
from lakefmt._core.keys import KeySpec, build_partition_paths, build_record_keys, parse_partition_values, plan_key_spec
from lakefmt._core.schema import normalise_schema, with_spark_types
from lakefmt._core.storage.local import LocalStore
from lakefmt._core.storage.open import open_store
from lakefmt._core.table import Table
from lakefmt._core.timeline.commit import SCHEMA_KEY, CommitMetadata, encode_commit
from lakefmt._core.timeline.instant import Action
from lakefmt._core.timeline.store import update_properties
from lakefmt._core.transactions.client import open_write_client
from lakefmt._core.transactions.instant import InstantTransaction
from lakefmt._core.values import (
    META_COLUMNS,
    CommitResult,
    FileId,
    PartitionPath,
    TableType,
    WriteOperation,
    WriteStat,
)
from lakefmt.errors import InvalidInputError, StateError, UnsupportedFeature

__all__ = ["BootstrapPlan", "plan_bootstrap", "write_bootstrap"]

_INDEX_CLASS: Final = "org.apache.hudi.common.bootstrap.index.hfile.HFileBootstrapIndex"
#: Of base files with meta columns alone, as Hudi's bootstrap names it.
_KEY_SCHEMA: Final = (
    '{"type":"record","name":"HoodieRecordKey","doc":"","fields":['
    + ",".join(f'{{"name":"{name}","type":["null","string"],"doc":"","default":null}}' for name in META_COLUMNS)
    + "]}"
)
_META_SCHEMA: Final = pa.schema([pa.field(name, pa.string()) for name in META_COLUMNS])


@dataclass(frozen=True, slots=True)
class BootstrapPlan:
    """A folder whose files can stay where they are.

    Attributes:
        base: its path.
        schema: columns of the table.
        partition_fields: its partition columns, which the names of directories tell.
        url_encode: whether those names are URL-encoded.
        files: partition → its files, with their times in epoch seconds.
    """

    base: str
    schema: pa.Schema
    partition_fields: tuple[str, ...]
    url_encode: bool
    files: Mapping[PartitionPath, Sequence[tuple[SourceFile, float]]]

    def rows(self) -> Iterator[pa.Table]:
        """Yield the rows of the files, with the columns that only directories tell, as Arrow's own reader finds them."""
        spec = self.key_spec()
        for partition, files in self.files.items():
            values = dropped_values(spec, partition, self.schema) if self.partition_fields else {}
            for source, _ in files:
                path = f"{self.base}/{source.name}"
                with reading(path), pa.OSFile(path) as opened, pq.ParquetFile(opened) as parquet:
                    for batch in parquet.iter_batches():
                        rows = pa.Table.from_batches([batch]).replace_schema_metadata()
                        for name, value in values.items():
                            if name not in rows.column_names:
                                rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
                        yield rows.select(self.schema.names)

    def key_spec(self) -> KeySpec:
        """Return how the names of directories are made."""
        return plan_key_spec(
            self.schema.names[0],
            list(self.partition_fields) or None,
            hive_style=True,
            url_encode=self.url_encode,
            schema=self.schema,
        )


def plan_bootstrap(source: str, target: str, partition_by: Sequence[str]) -> BootstrapPlan:
    """Return how the files of a folder become a table without a copy.

    Args:
        source: path of the folder.
        target: path of the table.
        partition_by: its partition columns; none: as the names of directories say.

    Raises:
        InvalidInputError: there are no files, or they lie otherwise than the partition columns say.
        UnsupportedFeature: files, or columns, that Hudi would not read as they are: they have to be copied.
    """
    store, table_store = open_store(source), open_store(target)
    if not isinstance(store, LocalStore) or not isinstance(table_store, LocalStore):
        raise UnsupportedFeature("in_place=True takes a folder and a table on local disks: without it, rows are copied")
    base, place = os.path.realpath(store.url), os.path.realpath(table_store.url)
    if os.path.commonpath([base, place]) in (base, place):
        raise InvalidInputError(f"{target!r} and {source!r} lie in one another: the table needs a folder of its own")
    files: dict[PartitionPath, list[tuple[SourceFile, float]]] = {}
    schema: pa.Schema | None = None
    for info in sorted(store.list(), key=lambda each: each.name):
        parts = PurePosixPath(info.name).parts
        if any(part.startswith(("_", ".")) for part in parts):
            continue
        if not info.name.endswith(".parquet"):
            raise InvalidInputError(f"{source!r} has {info.name!r}, which is no Parquet file by its name")
        with reading(info.name), pa.OSFile(f"{base}/{info.name}") as opened, parquet_file(opened) as parquet:
            found = parquet.schema_arrow.remove_metadata()
        if schema is None:
            schema = found
        elif not schema.equals(found):
            raise UnsupportedFeature(
                f"{info.name!r} has other columns than the file before it: without in_place they fit"
            )
        partition = PartitionPath("/".join(parts[:-1]))
        files.setdefault(partition, []).append((SourceFile(info.name, info.size), info.modified))
    if schema is None:
        raise InvalidInputError(f"{source} has no Parquet files")
    fields = _partition_fields(list(files), partition_by)
    texts = {name: [dict(_pairs(path))[name] for path in files] for name in fields}
    added = [pa.field(name, _type_of(texts[name])) for name in fields if name not in schema.names]
    columns = pa.schema([*_plain(schema), *added])
    readable = with_spark_types(normalise_schema(columns))
    if readable != columns:
        wrong = [
            f"{before.name} ({before.type})"
            for before, after in zip(columns, readable, strict=True)
            if before.type != after.type
        ]
        raise UnsupportedFeature(
            f"{source!r} has columns that Spark does not read as they are stored: {', '.join(wrong)}; without in_place they are "
            "copied to others"
        )
    return BootstrapPlan(base, columns, fields, _is_encoded(list(files), fields, columns), files)


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return columns without the types that only Arrow has for texts and bytes: Parquet stores them alike."""
    plain = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    types = [field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in schema]
    return pa.schema([pa.field(field.name, plain.get(kept, kept)) for field, kept in zip(schema, types, strict=True)])


def _pairs(path: str) -> Iterator[tuple[str, str]]:
    for part in path.split("/") if path else ():
        name, separator, text = part.partition("=")
        if not separator or not name:
            raise InvalidInputError(f"directory {part!r} does not name a column and its value, as in city=oslo")
        yield name, text


def _partition_fields(paths: Sequence[str], partition_by: Sequence[str]) -> tuple[str, ...]:
    """Return the partition columns that directories name.

    Raises:
        InvalidInputError: they differ, or are others than those that were asked for.
    """
    fields = {tuple(name for name, _ in _pairs(path)) for path in paths}
    if len(fields) != 1:
        raise InvalidInputError(f"files lie in directories of {len(fields)} kinds: {sorted(map('/'.join, fields))}")
    (found,) = fields
    if partition_by and tuple(partition_by) != found:
        raise InvalidInputError(f"the directories name {list(found)}, and partition_by is {list(partition_by)}")
    return found


def _type_of(texts: Sequence[str]) -> pa.DataType:
    whole = all(text.lstrip("-").isascii() and text.lstrip("-").isdigit() and str(int(text)) == text for text in texts)
    return pa.int64() if whole and all(abs(int(text)) < 1 << 62 for text in texts) else pa.string()


def _is_encoded(paths: Sequence[PartitionPath], fields: tuple[str, ...], schema: pa.Schema) -> bool:
    """Return whether paths are URL-encoded; their values make the same paths again.

    Raises:
        UnsupportedFeature: they do not.
    """
    url_encode = any("%" in path for path in paths)  # Spark decodes each
    if fields:
        spec = plan_key_spec(schema.names[0], list(fields), hive_style=True, url_encode=url_encode, schema=schema)
        if wrong := [path for path in paths if not _is_path_of(spec, path, schema)]:
            raise UnsupportedFeature(f"directory {wrong[0]!r} is not the one that Hudi makes of its values")
    return url_encode


def _is_path_of(spec: KeySpec, path: str, schema: pa.Schema) -> bool:
    values = parse_partition_values(spec, path, schema) or {}
    if len(values) < len(spec.partition_fields):
        return False
    row = pa.table({name: pa.array([value], schema.field(name).type) for name, value in values.items()})
    return bool(build_partition_paths(spec, row).cast(pa.string()).equals(pa.array([path])))


def write_bootstrap(table: Table, plan: BootstrapPlan, compare: Callable[[TableAt], Mapping[str, str]]) -> CommitResult:
    """Commit the files of a folder to a new table.

    Args:
        table: has no commits, and the columns of the plan.
        plan: what to commit.
        compare: is given the table before its commit, with the files in it; returns entries of the commit, or raises.

    Raises:
        StateError: somebody else has begun to write to the table.
        InvalidKey: a row has no key.
        StorageError: the store failed.
    """
    client = table.client
    write_client = open_write_client(client)
    with write_client.lock.hold() as lease:
        if client.load().timeline.unbounded.instants:
            raise StateError(f"{client.store.url} is written to by somebody else")
        update_properties(
            client.store,
            {"hoodie.bootstrap.base.path": plan.base, "hoodie.bootstrap.index.class": _INDEX_CLASS},
            client.clock.now(),
            durable=write_client.durable,
        )
        state = client.load()
        is_mor = state.config.table_type is TableType.MERGE_ON_READ
        action = Action.DELTA_COMMIT if is_mor else Action.COMMIT
        heartbeat = write_client.heartbeat(BOOTSTRAP_INSTANT)
        if not heartbeat.claim():
            raise StateError(f"{client.store.url} is bootstrapped by somebody else")
        transaction = InstantTransaction(write_client, BOOTSTRAP_INSTANT, action, heartbeat)
        with transaction:
            timeline_store = write_client.timeline(state.config)
            timeline_store.request(BOOTSTRAP_INSTANT, action)
            lease.check()
            transaction.start(state.config)
    table_at = client.at(state)
    with transaction:
        stats, sources = _write_files(table_at, plan)
        now = int(client.clock.now().timestamp() * 1000)
        for name, data in encode_sources(plan.base, sources, now).items():
            client.store.put(name, data, durable=write_client.durable)
        texts = client.schema_texts(state.config, plan.schema)
        entries = {SCHEMA_KEY: texts[0], **compare(table_at)}
        commit = CommitMetadata(WriteOperation.BOOTSTRAP, tuple(stats), extra_metadata=entries)
        with write_client.lock.hold() as lease:
            now_state = client.load()
            body = encode_commit(commit, now_state.config.version, replace=False)
            done = transaction.complete(lease, now_state.config, now_state.timeline, body, commit)
    transaction.finish(has_markers=False)
    client.keep_commit(done, commit)
    return CommitResult(
        instant=BOOTSTRAP_INSTANT,
        operation=WriteOperation.BOOTSTRAP,
        num_inserts=sum(each.num_inserts for each in stats),
    )


def _write_files(
    table_at: TableAt, plan: BootstrapPlan
) -> tuple[list[WriteStat], dict[PartitionPath, dict[str, tuple[SourceFile, float]]]]:
    """Write the base files; return what the commit says of them, and their sources."""
    spec, settings = table_at.key_spec(), open_write_client(table_at.client).settings
    store, stats = table_at.client.store, list[WriteStat]()
    sources: dict[PartitionPath, dict[str, tuple[SourceFile, float]]] = {}
    for partition, files in plan.files.items():
        directory = f"{partition}/" if partition else ""
        depth = {"commitTime": BOOTSTRAP_INSTANT, "partitionDepth": str(len(plan.partition_fields))}
        store.put(f"{directory}{PARTITION_METADATA}", encode_properties(depth, ["partition metadata"]))
        paths = dropped_values(spec, partition, plan.schema) if plan.partition_fields else {}
        for source in files:
            file_id, number = str(uuid4()), len(stats)
            name = f"{file_id}_{number}-0-0_{BOOTSTRAP_INSTANT}.parquet"
            keys = _keys_of(f"{plan.base}/{source[0].name}", spec, paths)
            low, high = key_range(keys)
            bloom = new_filter(settings, len(keys)) if settings.flag("hoodie.parquet.bloom.filter.enabled") else None
            if bloom is not None:
                bloom.add(keys)
            rows, count = _meta_rows(keys, partition, name, number), len(keys)
            footers = key_footers(KeySummary(low, high, bloom), _KEY_SCHEMA)
            metadata = {key: text if isinstance(text, str) else text.encode() for key, text in footers.items()}
            sink = pa.BufferOutputStream()
            pq.write_table(rows.replace_schema_metadata(metadata), sink)
            data = sink.getvalue()
            store.put(f"{directory}{name}", memoryview(data), durable=settings.text("lakefmt.durability") == "fsync")
            sources.setdefault(partition, {})[file_id] = source
            stats.append(
                WriteStat(
                    FileId(file_id),
                    partition,
                    f"{directory}{name}",
                    num_writes=count,
                    num_inserts=count,
                    total_write_bytes=data.size,
                    file_size_in_bytes=data.size,
                )
            )
    return stats, sources


def _keys_of(path: str, spec: KeySpec, paths: Mapping[str, pa.Scalar]) -> pa.ChunkedArray:
    names = [name.split(".", 1)[0] for name in spec.record_key_fields]
    with reading(path), pa.OSFile(path) as opened, parquet_file(opened) as parquet:
        stored = parquet.read(columns=[name for name in names if name in parquet.schema_arrow.names])
        count = parquet.metadata.num_rows
    for name in names:
        if name not in stored.column_names and name in paths:
            stored = stored.append_column(name, pa.repeat(paths[name], count))
    return pa.chunked_array([build_record_keys(spec, stored)], pa.string())


def _meta_rows(keys: pa.ChunkedArray, partition: str, name: str, number: int) -> pa.Table:
    count = len(keys)
    prefix = pa.scalar(f"{BOOTSTRAP_INSTANT}_{number}_")
    places = pa.array(np.arange(count)).cast(pa.string())
    columns = [
        pa.repeat(str(BOOTSTRAP_INSTANT), count),
        pc.binary_join_element_wise(prefix, places, ""),
        keys,
        pa.repeat(str(partition), count),
        pa.repeat(name, count),
    ]
    return pa.table(columns, schema=_META_SCHEMA)
