"""Which keys came and went in the file groups that a commit changed: recorded by its writer, or read (effects on reading only).

The writer of a file knows which keys it has that the file before it had not, and the reverse; what it did not record (another
process wrote the file, or its keys were many) is found by comparing the file slices without and with the instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from threading import Lock
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.config.table_config import merge_rule
from lakefmt.data_classes import dataclass, replace
from lakefmt.filegroups.logs.reader import LogRows
from lakefmt.filegroups.merge.merged_slice import only_rows
from lakefmt.filegroups.model import FileSlice
from lakefmt.filegroups.reader import BaseFileReader
from lakefmt.metadata.changed_keys.record_index import (
    ChangedKeys,
    compared_keys,
    concatenated,
    lost_keys,
)
from lakefmt.metadata.collect import FactCollector, instant_millis
from lakefmt.metadata.records import RecordLocation
from lakefmt.metadata.updates import KeyChange
from lakefmt.sorting.written_keys import FileKeyChange, keys_of, without
from lakefmt.timeline.commit import CommitMetadata
from lakefmt.values import IS_DELETED, RECORD_KEY, FileId, PartitionPath, WriteOperation, WriteStat

__all__ = ["changed_file_groups"]

#: Operations that move rows to other files without changing them or where a key's file group is.
_SAME_GROUPS = frozenset({WriteOperation.COMPACT, WriteOperation.LOG_COMPACT})
#: Logs whose deletes are counted once; bytes of rows of file groups that are held, lest they be read a second time.
_MOST_LOGS, _MOST_BYTES = 100_000, 32 << 20

_Group = tuple[PartitionPath, FileId]
_num_deletes: WeakKeyDictionary[BaseFileReader, dict[str, int]] = WeakKeyDictionary()
_guard = Lock()


def changed_file_groups(
    collector: FactCollector,
    befores: Sequence[FileSlice],
    afters: Sequence[FileSlice],
    commit: CommitMetadata,
    columns: Sequence[str] = (),
) -> tuple[list[ChangedKeys], list[KeyChange]]:
    """Return which keys came and went in each file group that a commit changed, and its rows if columns are asked for.

    Parameters:
        collector: reads files of the table.
        befores: the slices without the commit.
        afters: the slices with it.
        commit: what it wrote and replaced.
        columns: columns with a secondary index, which are returned beside the keys.
    """
    if commit.operation in _SAME_GROUPS or commit.compacted:
        return [], []
    changed = _ChangedGroups(collector, befores, afters, commit, columns)
    by_group = {group: changed.compare(group, counted=commit.counts_new_keys) for group in changed.groups}
    changes = changed.with_kept(by_group)
    if commit.operation is not WriteOperation.DELETE and lost_keys([keys for keys, _ in changes]):
        # A key that was stored twice may be in a group with updates only.
        more = {group: changed.compare(group, counted=False) for group, each in by_group.items() if each is None}
        if any(each is not None for each in more.values()):
            changes = changed.with_kept(by_group | more)
    return [keys for keys, _ in changes], [rows for _, rows in changes if rows is not None and columns]


@dataclass(frozen=True, slots=True)
class _Compared:
    """What came and went in a file group, its rows as far as they are held, and its slice with the instant."""

    keys: ChangedKeys
    rows: KeyChange | None
    after: FileSlice | None


@dataclass
class _ChangedGroups:
    """The file groups that a commit changed, one after the other; arguments as for :func:`changed_file_groups`."""

    collector: FactCollector
    befores: Sequence[FileSlice]
    afters: Sequence[FileSlice]
    commit: CommitMetadata
    columns: Sequence[str]
    _stats: dict[_Group, list[WriteStat]] = field(default_factory=dict)
    _held_bytes: int = 0

    def __post_init__(self) -> None:
        self._old = {(each.partition, each.file_id): each for each in self.befores}
        self._new = {(each.partition, each.file_id): each for each in self.afters}
        for stat in self.commit.stats:
            self._stats.setdefault((stat.partition_path, stat.file_id), []).append(stat)
        self._millis = instant_millis(self.collector.time, self.collector.before)

    @property
    def groups(self) -> list[_Group]:
        """The file groups that the commit wrote, then those that it replaced."""
        replaced = {(path, file_id) for path, ids in self.commit.replaced_file_ids.items() for file_id in ids}
        return list(dict.fromkeys((*self._stats, *sorted(replaced))))

    def compare(self, group: _Group, *, counted: bool) -> _Compared | None:
        """Return what came and went in a file group; None: every key was there before, and is there now.

        Parameters:
            group: its data partition and file id.
            counted: what the commit counts tells whether there are new keys.
        """
        collector, location = self.collector, RecordLocation(*group, self._millis)
        before, after, stats = self._old.get(group), self._new.get(group), self._stats.get(group, ())
        only_updates = counted and stats and not any(stat.num_inserts or stat.num_deletes for stat in stats)
        # Rows of logs that are marked as deleted count as updates.
        marks = _marks_deletes(collector) and any(stat.log_files for stat in stats)
        is_whole = only_updates and not self.columns and not marks
        if is_whole and before is not None and not _may_have_deleted(collector, before):
            return None
        if not self.columns and (recorded := self._recorded(before, after)) is not None:
            return _Compared(ChangedKeys(location, recorded.added, recorded.left), None, after)
        keys = None
        if before is not None and after is not None and before.base == after.base:
            written = {stat.path for stat in stats}
            new = [collector.log_rows(log) for log in after.logs if log.path in written]
            keys = _keys_of_logs(new).unique()
            if not self.columns:
                keys = _without_kept(collector, keys, new, location)
                if not len(keys):
                    return None
        return self._read(location, before, after, keys)

    def _recorded(self, before: FileSlice | None, after: FileSlice | None) -> FileKeyChange | None:
        """Return the keys that came and went as the writer of a base file knew them; None: they have to be read."""
        written = self.collector.written_keys
        if written is None or after is None or after.base is None or after.logs:
            return None
        if before is not None and (before.base is None or before.logs):
            return None
        recorded = written.of_file(after.base.path)
        base = None if before is None or before.base is None else before.base.path
        return recorded if recorded is not None and recorded.base == base else None

    def _read(
        self, location: RecordLocation, before: FileSlice | None, after: FileSlice | None, keys: pa.Array | None
    ) -> _Compared:
        collector = self.collector
        old = collector.rows(collector.before, before, self.columns, keys)
        new = collector.rows(collector.after, after, self.columns, keys)
        added, left = compared_keys(keys_of(old.column(0)), keys_of(new.column(0)))
        size = old.nbytes + new.nbytes
        if self.columns or keys is not None or self._held_bytes + size <= _MOST_BYTES:
            self._held_bytes += size
            return _Compared(ChangedKeys(location, added, left), KeyChange(location, old, new), after)
        # Copies: parts of the file's keys would hold all of them.
        return _Compared(ChangedKeys(location, pa.concat_arrays([added]), pa.concat_arrays([left])), None, after)

    def with_kept(self, by_group: dict[_Group, _Compared | None]) -> list[tuple[ChangedKeys, KeyChange | None]]:
        """Return the changes, each with the keys that left another file group and that it had before and has now."""
        changes = [each for each in by_group.values() if each is not None]
        leaves = [number for number, each in enumerate(changes) if len(each.keys.left)]
        left = concatenated([changes[number].keys.left for number in leaves])
        kept = []
        for number, each in enumerate(changes):
            # What left this file group only is not in it.
            asked = bool(leaves) and leaves != [number] and each.after is not None
            keys = replace(each.keys, kept=self._kept(each, left)) if asked else each.keys
            kept.append((keys, each.rows))
        return kept

    def _kept(self, change: _Compared, left: pa.Array) -> pa.Array:
        held, collector = change.rows, self.collector
        rows = collector.rows(collector.after, change.after) if held is None else held.after
        column = rows.column(0)
        return without(keys_of(column.filter(pc.is_in(column, value_set=left))), change.keys.added)


def _without_kept(
    collector: FactCollector, keys: pa.Array, logs: Sequence[LogRows], location: RecordLocation
) -> pa.Array:
    """Return keys without those that are in a file group before and after logs: indexed, and not deleted by them.

    So the logs that the file group has had before are not read again with every commit.
    """
    if collector.indexed_keys is None or merge_rule(collector.before.config).custom is not None:
        return keys
    deleted = _keys_of_logs([only_rows(each, each.deletes) for each in logs])
    asked = without(keys, deleted)
    return without(keys, collector.indexed_keys(asked, location.partition, location.file_id))


def _marks_deletes(collector: FactCollector) -> bool:
    """Return whether rows of logs may delete their key without being counted as deletes."""
    rule = merge_rule(collector.before.config)
    return rule.custom is not None or rule.delete is not None or IS_DELETED in collector.schema.names


def _may_have_deleted(collector: FactCollector, file_slice: FileSlice) -> bool:
    """Return whether the logs of a slice may have deleted keys, which an update would bring back.

    Commits that are not archived tell, of logs that are named by them (from version 8 on); a handle remembers it.
    """
    if not file_slice.logs:
        return False
    timeline = collector.before.timeline
    if timeline.layout == 1 or _marks_deletes(collector):
        return True
    with _guard:
        num_deletes = _num_deletes.setdefault(collector.client.reader, {})
    asked = {log.path: log.instant for log in file_slice.logs if log.path not in num_deletes}
    active = {instant.time: instant for instant in timeline.commits} if asked else {}
    if any(time not in active for time in asked.values()):
        return True
    if len(num_deletes) > _MOST_LOGS:
        num_deletes.clear()
    for time in set(asked.values()):
        stats = collector.client.commit_metadata(collector.before, active[time]).stats
        num_deletes |= {stat.path: stat.num_deletes for stat in stats if stat.log_files}
    return any(num_deletes.get(log.path) != 0 for log in file_slice.logs)


def _keys_of_logs(logs: Sequence[LogRows]) -> pa.Array:
    return concatenated([chunk.cast(pa.string()) for each in logs for chunk in each.table.column(RECORD_KEY).chunks])
