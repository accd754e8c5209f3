"""Ask stored rows how their keys and paths were made, before keys are made or a path is trusted (effects: reads only).

A writer may have been given settings that the properties do not keep. Keys made by another rule would be stored twice, and a
filter would leave out rows by a path that does not have their values. Of a table that lakefmt alone writes nothing is read,
unless its keys have times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from posixpath import join
from typing import Final

import pyarrow as pa

from lakefmt._core.config.settings import Settings
from lakefmt._core.config.table_config import merge_rule
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.model import FileSlice, parse_files
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.keys import KeySpec, build_partition_paths, build_record_keys
from lakefmt._core.keys.properties import StoredRule, compare_stored_rows
from lakefmt._core.schema import reconcile
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import OPERATION, PARTITION_PATH, RECORD_KEY, WriteOperation, WriteStat
from lakefmt.errors import FormatError, NotFoundError, UnsupportedError, UnsupportedFeature

__all__ = [
    "asked_form",
    "check_operations",
    "key_columns",
    "keyed_rows",
    "note_rows_that_stay",
    "paths_tell_times",
    "rows_may_stay",
    "stored_key_spec",
    "trusts_paths",
]

_CONSISTENT: Final = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
#: Newest commits that are looked at, those only whose metadata is at hand; files of each that are tried; rows of one.
_MOST_COMMITS, _MOST_FILES, _MOST_ROWS = 50, 3, 100
#: Commits that are read where those at hand tell nothing.
_MOST_READ: Final = 10
#: The middle of a write token: lakefmt's files of rows have 0, Spark's the number of a stage or a task, Flink's a parallelism.
_TOKEN: Final = re.compile(r"_\d+-(\d+)-\d+(?:_|$|\.)")
_SERVICES: Final = frozenset({WriteOperation.CLUSTER, WriteOperation.COMPACT, WriteOperation.LOG_COMPACT})
_UNREADABLE: Final = (FormatError, NotFoundError, UnsupportedError)


def asked_form(settings: Settings) -> bool | None:
    """Return what a call or a handle says of times in keys; None: nothing."""
    return settings.flag(_CONSISTENT) if settings.is_asked(_CONSISTENT) else None


def key_columns(table_at: TableAt) -> list[str]:
    """Return the columns that tell a row's key and partition path: the meta columns, or what they are made from."""
    if table_at.config.populate_meta_fields:
        return [RECORD_KEY, PARTITION_PATH]
    spec = table_at.key_spec()
    names = (*spec.record_key_fields, *(field.name for field in spec.partition_fields))
    return list(dict.fromkeys(name.split(".", 1)[0] for name in names))


def keyed_rows(table_at: TableAt, rows: pa.Table) -> pa.Table:
    """Return stored rows with their record keys and partition paths; `rows` must have the :func:`key_columns`.

    A table without meta columns stores neither: both are made from the other columns.
    """
    if table_at.config.populate_meta_fields:
        return rows
    spec = stored_key_spec(table_at)
    made = {
        RECORD_KEY: build_record_keys(spec, rows),
        PARTITION_PATH: build_partition_paths(spec, rows).cast(pa.string()),
    }
    for name, values in made.items():
        index = rows.schema.get_field_index(name)
        rows = rows.append_column(name, values) if index < 0 else rows.set_column(index, name, values)
    return rows


def stored_key_spec(table_at: TableAt, consistent_timestamps: bool | None = None, *, anywhere: bool = False) -> KeySpec:
    """Return how keys and paths of the table are made, as its rows tell.

    Args:
        table_at: the table, at one moment.
        consistent_timestamps: what a setting of the call or the handle says of times in keys; None: nothing.
        anywhere: the index of the call is global.

    Raises:
        UnsupportedFeature: rows are stored by another rule than the properties, or the setting, say.
    """
    spec = table_at.key_spec()
    if spec.unsupported or (spec.prefixed is None and not spec.auto_keys):
        return spec
    rules = _known_rules(table_at, spec)
    # A global index finds a key in whatever partition: there a path may be that of a value that was changed since.
    anywhere = anywhere or "record_index" in table_at.config.metadata_partitions
    refused = [rule for rule in rules if rule.difference and not (anywhere and rule.may_have_moved)]
    different = refused[0].difference if refused else ""
    forms = {rule.consistent_timestamps for rule in rules} - {None}
    if not different and len(forms) > 1:
        different = "some rows have times as numbers in their keys or paths, and others as dates"
    elif not different and consistent_timestamps is not None and forms - {consistent_timestamps}:
        different = (
            f"the setting {_CONSISTENT} is {str(consistent_timestamps).lower()}, and stored keys have the other form"
        )
    if different:
        raise UnsupportedFeature(
            f"record keys or partition paths are stored by another rule than is known here: {different}. Nothing is written, "
            "because rows would be stored twice: write with the engine and the settings that stored them, or load the rows "
            "into a new table"
        )
    form = next(iter(forms), consistent_timestamps)
    if form is not None and form != spec.consistent_logical_timestamps:
        spec = replace(spec, consistent_logical_timestamps=form)
    return spec


def trusts_paths(table_at: TableAt) -> bool:
    """Return whether the paths of partitions tell the values of partition columns, as far as stored rows show it."""
    spec = table_at.key_spec()
    if spec.unsupported or not spec.partition_fields or table_at.config.drop_partition_columns:
        return True
    return all(rule.path_fits for rule in _known_rules(table_at, spec))


#: It is there once a row may lie in another partition than that of its time.
_ROWS_STAY: Final = ".hoodie/.lakefmt/rows_that_stay"


def note_rows_that_stay(table_at: TableAt) -> None:
    """Record that rows may lie in the partition of another time, before a commit makes such rows visible.

    A global index leaves a row in its partition when its time is changed. Where a path tells the value of a column, the row gets
    that value; the day of a time does not tell the time.
    """
    client = table_at.client
    if client.cache.rows_stay is not table_at.config:
        client.store.put_if_absent(_ROWS_STAY, b"{}")
        client.cache.rows_stay = table_at.config


def rows_may_stay(table_at: TableAt) -> bool:
    """Return whether rows may lie in partitions of other times than their own (effects: a request unless it is cached).

    Writes by a global record index leave rows where they are by default, also those of other engines.
    """
    client, config = table_at.client, table_at.config
    if client.cache.rows_stay is config:
        return True
    if "record_index" in config.metadata_partitions and client.load_notes().get("index") != "partitioned_record":
        return True
    if client.store.info(_ROWS_STAY) is None:
        return False
    client.cache.rows_stay = config
    return True


def paths_tell_times(table_at: TableAt) -> bool:
    """Return whether rows lie in the partitions of their own times (effects: as those of :func:`rows_may_stay`)."""
    is_known = table_at.client.cache.rows_stay is table_at.config
    return not is_known and trusts_paths(table_at) and not rows_may_stay(table_at)


def check_operations(table_at: TableAt) -> None:
    """Refuse a write that would hide from Flink which rows of its changelog delete.

    Flink takes the column that says it (``_hoodie_operation``) from the newest commit's files: behind a commit whose files lack it, the
    deleted rows of older logs come back in Flink's reading. A compaction leaves none.

    Raises:
        UnsupportedFeature: the newest commit is such a changelog.
    """
    newest = table_at.timeline.latest_commit
    if newest is None or newest.action is not Action.DELTA_COMMIT:
        return
    stats = table_at.commit_metadata(newest).stats
    logs = [stat for stat in stats if ".log." in stat.path and _is_foreign(stat)]
    if logs and _has_operations(table_at, logs[0]):
        raise UnsupportedFeature(
            f"the logs of {table_at.client.store.url} are a changelog of Flink: behind a write of lakefmt Flink would not see any more "
            "which of their rows are deleted. Call table.compact() first, which leaves no such row, then write"
        )


def _has_operations(table_at: TableAt, stat: WriteStat) -> bool:
    """Return whether the rows of a log say what they do."""
    from lakefmt._core.formats.log_blocks import scan_blocks  # few tables have logs of other engines

    file_system, root = table_at.client.store.arrow_filesystem()
    try:
        with closing(file_system.open_input_file(join(root, stat.path))) as source:
            blocks = scan_blocks(lambda offset, count: source.read_at(count, offset), source.size(), stat.path)
            schema = next((block.schema for block in blocks if block.schema is not None), "")
    except (OSError, *_UNREADABLE):
        return False  # it was cleaned, or is damaged: what needs it says so
    return f'"{OPERATION}"' in schema


def _known_rules(table_at: TableAt, spec: KeySpec) -> list[StoredRule]:
    cache = table_at.client.cache
    if cache.stored_rules is None or cache.stored_rules[0] is not table_at.config:
        cache.stored_rules = (table_at.config, {})
    known = cache.stored_rules[1]
    if not table_at.timeline.commits:
        return []
    schema = table_at.columns()  # the commit that tells it is at hand then
    told_nothing = False
    for commit, asked_as in _commits_of_rows(table_at, spec, schema):
        if asked_as not in known:
            rule = _compared_rule(table_at, spec, schema, commit)
            told_nothing |= rule is None
            if rule is not None:
                known[asked_as] = rule
    if told_nothing and not known:  # a commit of deletes, or of files that are gone: those before it are read
        for instant in reversed(table_at.timeline.commits[-_MOST_READ:]):
            table_at.commit_metadata(instant)
        found = ((_compared_rule(table_at, spec, schema, c), a) for c, a in _commits_of_rows(table_at, spec, schema))
        known.update({asked_as: rule for rule, asked_as in found if rule is not None})
    return list(known.values())


def _commits_of_rows(
    table_at: TableAt, spec: KeySpec, schema: pa.Schema
) -> Iterator[tuple[CommitMetadata, WriteOperation | None]]:
    """Yield the newest commits that brought rows by another engine, each with its operation, or by lakefmt (None)."""
    timed: bool | None = None
    for instant in reversed(table_at.timeline.commits[-_MOST_COMMITS:]):
        commit = table_at.client.known_commit(instant)
        if commit is None or commit.operation in _SERVICES or not commit.stats:
            continue
        if _is_foreign(commit.stats[0]):
            yield commit, commit.operation
            continue
        timed = spec.has_times(schema) if timed is None else timed
        if timed:
            yield commit, None


def _compared_rule(table_at: TableAt, spec: KeySpec, schema: pa.Schema, commit: CommitMetadata) -> StoredRule | None:
    """Compare the first rows of a file with their keys and its partition; None: no file of the commit can tell."""
    names = dict.fromkeys(
        name.split(".", 1)[0] for name in (*spec.record_key_fields, *(f.name for f in spec.partition_fields))
    )
    key_schema = pa.schema([field.with_nullable(True) for field in schema if field.name in names])
    has_keys = table_at.config.populate_meta_fields and not spec.auto_keys
    if not has_keys and not spec.partition_fields:
        return StoredRule()
    stats = [stat for stat in commit.stats if stat.num_writes]
    for stat in islice(sorted(stats, key=lambda each: not each.file_name.endswith(".parquet")), _MOST_FILES):
        try:
            rows = _first_rows(table_at, stat, key_schema)
            if rows is None or not rows.num_rows:
                continue
            keys = rows.column(RECORD_KEY).combine_chunks() if has_keys and RECORD_KEY in rows.column_names else None
            columns = reconcile(rows, key_schema)
        except _UNREADABLE:
            continue  # it was cleaned, or is damaged: what needs it says so
        return compare_stored_rows(spec, columns, keys, str(stat.partition_path))
    return None


def _first_rows(table_at: TableAt, stat: WriteStat, columns: pa.Schema) -> pa.Table | None:
    bases, logs = parse_files(stat.partition_path, [ObjectInfo(stat.path, stat.file_size_in_bytes)])
    if bases:
        reader = table_at.row_reader()
        return reader.first_rows(bases[0], [RECORD_KEY, *columns.names], _MOST_ROWS)
    if not logs:
        return None
    from lakefmt._core.filegroups.log_reader import read_log_rows  # most tables have base files

    rule = merge_rule(table_at.config)
    ordering = [name.split(".", 1)[0] for name in rule.stored.fields]
    table = table_at.columns()
    more = [table.field(name) for name in dict.fromkeys(ordering) if name in table.names and name not in columns.names]
    read = read_log_rows(
        table_at.client.store,
        FileSlice(logs[0].partition, logs[0].file_id, logs[0].instant, None, (logs[0],)),
        pa.schema([pa.field(RECORD_KEY, pa.string()), *columns, *more]),
        rule,
        layout=table_at.timeline.layout,
        is_committed=lambda _: True,
        unstored=table_at.virtual_columns(),
    )
    whole = read.table.filter(pa.array(~read.deletes))
    return None if read.is_partial else whole.slice(0, _MOST_ROWS)


def _is_foreign(stat: WriteStat) -> bool:
    token = _TOKEN.search(stat.path, stat.path.rfind("/") + 1)
    return token is not None and int(token[1]) != 0
