"""Ask stored rows how their keys and paths were made, before keys are made or a path is trusted (effects: reads only).

A writer may have been given settings that the properties do not keep. Keys made by another rule would be stored twice, and a
filter would leave out rows by a path that does not have their values. Of a table that lakefmt alone writes nothing is read,
unless its keys have times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lakefmt.config.settings import Settings
from lakefmt.config.table_config import TableConfig, merge_rule
from lakefmt.data_classes import replace
from lakefmt.errors import FormatError, NotFoundError, UnsupportedError, UnsupportedFeature
from lakefmt.filegroups.model import FileSlice, parse_files
from lakefmt.keys import KeySpec
from lakefmt.schema import reconcile
from lakefmt.storage.api import ObjectInfo
from lakefmt.timeline.commit import CommitMetadata
from lakefmt.values import RECORD_KEY, WriteOperation, WriteStat

if TYPE_CHECKING:
    from lakefmt.filegroups.table_client import TableClient, TableState
    from lakefmt.keys.properties import StoredRule

__all__ = ["StoredKeys", "asked_form"]

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


class StoredKeys:
    """What the stored rows of one table tell; asked once for every operation of other engines.

    Args:
        client: the table.
    """

    def __init__(self, client: TableClient) -> None:
        self._client = client
        self._config: TableConfig | None = None
        self._rules: dict[WriteOperation | None, StoredRule] = {}

    def spec(self, state: TableState, consistent_timestamps: bool | None = None, *, anywhere: bool = False) -> KeySpec:
        """Return how keys and paths of the table are made, as its rows tell.

        Args:
            state: properties and timeline.
            consistent_timestamps: what a setting of the call or the handle says of times in keys; None: nothing.
            anywhere: the index of the call is global.

        Raises:
            UnsupportedFeature: rows are stored by another rule than the properties, or the setting, say.
        """
        spec = self._client.key_spec(state.config)
        if spec.unsupported or (spec.prefixed is None and not spec.auto_keys):
            return spec
        rules = self._asked(state, spec)
        # A global index finds a key in whatever partition: there a path may be that of a value that was changed since.
        anywhere = anywhere or "record_index" in state.config.metadata_partitions
        refused = [rule for rule in rules if rule.difference and not (anywhere and rule.may_have_moved)]
        different = refused[0].difference if refused else ""
        forms = {rule.consistent_timestamps for rule in rules} - {None}
        if not different and len(forms) > 1:
            different = "some rows have times as numbers in their keys or paths, and others as dates"
        elif not different and consistent_timestamps is not None and forms - {consistent_timestamps}:
            different = f"the setting {_CONSISTENT} is {str(consistent_timestamps).lower()}, and stored keys have the other form"
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

    def trusts_paths(self, state: TableState) -> bool:
        """Return whether the paths of partitions tell the values of partition columns, as far as stored rows show it."""
        spec = self._client.key_spec(state.config)
        if spec.unsupported or not spec.partition_fields or state.config.drop_partition_columns:
            return True
        return all(rule.path_fits for rule in self._asked(state, spec))

    def _asked(self, state: TableState, spec: KeySpec) -> list[StoredRule]:
        if self._config is not state.config:
            self._config, self._rules = state.config, {}
        if not state.timeline.commits:
            return []
        schema = self._client.at(state).columns()  # the commit that tells it is at hand then
        told_nothing = False
        for commit, asked_as in self._commits(state, spec, schema):
            if asked_as not in self._rules:
                rule = self._compared(state, spec, schema, commit)
                told_nothing |= rule is None
                if rule is not None:
                    self._rules[asked_as] = rule
        if told_nothing and not self._rules:  # a commit of deletes, or of files that are gone: those before it are read
            for instant in reversed(state.timeline.commits[-_MOST_READ:]):
                self._client.at(state).commit_metadata(instant)
            found = ((self._compared(state, spec, schema, c), a) for c, a in self._commits(state, spec, schema))
            self._rules.update({asked_as: rule for rule, asked_as in found if rule is not None})
        return list(self._rules.values())

    def _commits(
        self, state: TableState, spec: KeySpec, schema: pa.Schema
    ) -> Iterator[tuple[CommitMetadata, WriteOperation | None]]:
        """Yield the newest commits that brought rows by another engine, each with its operation, or by lakefmt (None)."""
        timed: bool | None = None
        for instant in reversed(state.timeline.commits[-_MOST_COMMITS:]):
            commit = self._client.known_commit(instant)
            if commit is None or commit.operation in _SERVICES or not commit.stats:
                continue
            if _is_foreign(commit.stats[0]):
                yield commit, commit.operation
                continue
            timed = spec.has_times(schema) if timed is None else timed
            if timed:
                yield commit, None

    def _compared(
        self, state: TableState, spec: KeySpec, schema: pa.Schema, commit: CommitMetadata
    ) -> StoredRule | None:
        """Compare the first rows of a file with their keys and its partition; None: no file of the commit can tell."""
        from lakefmt.keys.properties import StoredRule, compare_stored_rows  # tables of lakefmt alone need it not

        names = dict.fromkeys(
            name.split(".", 1)[0] for name in (*spec.record_key_fields, *(f.name for f in spec.partition_fields))
        )
        wanted = pa.schema([field.with_nullable(True) for field in schema if field.name in names])
        has_keys = state.config.populate_meta_fields and not spec.auto_keys
        if not has_keys and not spec.partition_fields:
            return StoredRule()
        stats = [stat for stat in commit.stats if stat.num_writes]
        for stat in islice(sorted(stats, key=lambda each: not each.file_name.endswith(".parquet")), _MOST_FILES):
            try:
                rows = self._first_rows(state, stat, wanted)
                if rows is None or not rows.num_rows:
                    continue
                keys = (
                    rows.column(RECORD_KEY).combine_chunks() if has_keys and RECORD_KEY in rows.column_names else None
                )
                columns = reconcile(rows, wanted)
            except _UNREADABLE:
                continue  # it was cleaned, or is damaged: what needs it says so
            return compare_stored_rows(spec, columns, keys, str(stat.partition_path))
        return None

    def _first_rows(self, state: TableState, stat: WriteStat, columns: pa.Schema) -> pa.Table | None:
        bases, logs = parse_files(stat.partition_path, [ObjectInfo(stat.path, stat.file_size_in_bytes)])
        if bases:
            reader = self._client.at(state).row_reader()
            return reader.first_rows(bases[0], [RECORD_KEY, *columns.names], _MOST_ROWS)
        if not logs:
            return None
        from lakefmt.filegroups.logs.reader import read_log_rows  # most tables have base files

        rule = merge_rule(state.config)
        ordering = [name.split(".", 1)[0] for name in rule.stored.fields]
        table = self._client.at(state).columns()
        more = [
            table.field(name) for name in dict.fromkeys(ordering) if name in table.names and name not in columns.names
        ]
        read = read_log_rows(
            self._client.store,
            FileSlice(logs[0].partition, logs[0].file_id, logs[0].instant, None, (logs[0],)),
            pa.schema([pa.field(RECORD_KEY, pa.string()), *columns, *more]),
            rule,
            layout=state.timeline.layout,
            is_committed=lambda _: True,
            unstored=self._client.at(state).virtual_columns(),
        )
        whole = read.table.filter(pa.array(~read.deletes))
        return None if read.is_partial else whole.slice(0, _MOST_ROWS)


def _is_foreign(stat: WriteStat) -> bool:
    token = _TOKEN.search(stat.file_name)
    return token is not None and int(token[1]) != 0
