"""Key statistics in commits: later writers compare keys without opening the files.

The range of a file's keys stands in its footer; a write that has to be compared with a hundred commits would read a hundred
footers while it holds the table lock. Writers that work beside others therefore repeat the ranges of files with new rows in
the commit, under a name of lakefmt's own, and a hash of each key when they are few: random keys have one range everywhere. Where
other engines wrote, or many files were, the files are asked as before.

Which file slices may have keys in their logs that their base files do not have (a pure rule, and its look at commits).

Indexes that look keys up put new ones into base files; bucket indexes put all of them into logs, and count them as updates.
lakefmt's own commits say that their logs got stored keys only, so that these need not be read for others. A key that a log
deleted is stored until a compaction drops it: writes that saw the plan do not bring it back in a log, those that began
before the plan may have.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.config.table_config import merge_rule
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.formats.murmur import murmur_hadoop
from lakefmt._core.formats.names import parse_base_file
from lakefmt._core.formats.parquet.base_file import java_order_key, key_range
from lakefmt._core.timeline.commit import LOG_KEYS_ENTRY, LOG_KEYS_LIVE, CommitMetadata
from lakefmt._core.timeline.conflict import adds_rows
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import IS_DELETED, FileId, PartitionPath, WriteOperation, WriteStat
from lakefmt._core.write.context import WriteStatus
from lakefmt.errors import InvalidKey

__all__ = [
    "KEY_HASHES_ENTRY",
    "KEY_RANGES_ENTRY",
    "MOST_HASHES",
    "KeySpan",
    "groups_given_keys",
    "hash_keys",
    "key_hashes_of",
    "key_ranges_of",
    "key_stats_of",
    "log_key_coverage_of",
    "may_hold_own_keys",
    "ranges_disjoint",
    "sharing_hashes",
    "slices_with_deletes",
    "slices_with_own_keys",
]


U32 = npt.NDArray[np.uint32]

#: Extra metadata of commits: file name → smallest and largest key, as JSON.
KEY_RANGES_ENTRY: Final = "lakefmt.keys"
#: Extra metadata of commits: file name → sorted hashes of its keys, four bytes each, as JSON of Base64.
KEY_HASHES_ENTRY: Final = "lakefmt.key.hashes"
#: Keys of a commit that are few: they take 22 kB.
MOST_HASHES: Final = 4096
_MOST_FILES: Final = 64
_MOST_CHARACTERS: Final = 16 * 1024
_MOST_HASH_CHARACTERS: Final = 48 * 1024
_HASH: Final = np.dtype("<u4")


def key_stats_of(statuses: Iterable[WriteStatus]) -> dict[str, str]:
    """Return the extra metadata about the keys of new rows; empty when it would be long, or is not known.

    Example:
        >>> from lakefmt._core.values import WriteStat
        >>> stat = WriteStat("f-0", "p", "p/f-0_1-0-0_20260101000000000.parquet", num_inserts=3)
        >>> key_stats_of([WriteStatus("20260101000000000", stat, 3, keys=("a", "c"))])
        {'lakefmt.keys': '{"f-0_1-0-0_20260101000000000.parquet":["a","c"]}'}
    """
    with_new_rows = [status for status in statuses if any(map(adds_rows, status.stats))]
    if not with_new_rows or len(with_new_rows) > _MOST_FILES or any(status.keys is None for status in with_new_rows):
        return {}
    json_text = json.dumps(
        {status.stat.file_name: status.keys for status in with_new_rows}, ensure_ascii=False, separators=(",", ":")
    )
    return {KEY_RANGES_ENTRY: json_text, **_note_hashes(with_new_rows)} if len(json_text) <= _MOST_CHARACTERS else {}


def _note_hashes(statuses: Sequence[WriteStatus]) -> dict[str, str]:
    hashes = {status.stat.file_name: status.hashes for status in statuses if status.hashes is not None}
    if not 0 < sum(map(len, hashes.values())) <= MOST_HASHES * _HASH.itemsize:
        return {}
    encoded = {name: base64.b64encode(data).decode() for name, data in hashes.items()}
    json_text = json.dumps(encoded, ensure_ascii=False, separators=(",", ":"))
    return {KEY_HASHES_ENTRY: json_text} if len(json_text) <= _MOST_HASH_CHARACTERS else {}


def hash_keys(keys: pa.ChunkedArray) -> bytes | None:
    """Return the sorted hashes of keys (docs/format.md, Bloom filter hash), 4 bytes each, little-endian; None: a key is too long.

    Four bytes are enough: where two keys have one hash, the file is opened, and says that it was for nothing.

    Example:
        >>> hash_keys(pa.chunked_array([["id1", "a"]])).hex()
        '314146735e5f6892'
    """
    try:
        return np.sort(murmur_hadoop(keys)).astype(_HASH, copy=False).tobytes()
    except InvalidKey:  # longer than is hashed
        return None


def key_ranges_of(commit: CommitMetadata) -> Mapping[str, tuple[str, str]]:
    """Return file name → smallest and largest key, as far as the commit tells; what cannot be understood tells nothing.

    Example:
        >>> from lakefmt._core.values import WriteOperation
        >>> key_ranges_of(CommitMetadata(WriteOperation.INSERT, extra_metadata={"lakefmt.keys": '{"f":["a","c"],"g":7}'}))
        {'f': ('a', 'c')}
    """
    ranges = _entry(commit, KEY_RANGES_ENTRY, _MOST_CHARACTERS)
    return {name: (ends[0], ends[1]) for name, ends in ranges.items() if _is_range(ends)}


def key_hashes_of(commit: CommitMetadata) -> Mapping[str, bytes]:
    """Return file name → hashes of its keys, as far as the commit tells; what cannot be understood tells nothing.

    Hashes that are not as many as the file's rows are not those of its keys.

    Example:
        >>> from lakefmt._core.values import WriteOperation, WriteStat
        >>> stat = WriteStat("f-0", "p", "p/f", num_writes=2)
        >>> said = {"lakefmt.key.hashes": '{"f":"MUFGc15faJI=","g":7}'}
        >>> key_hashes_of(CommitMetadata(WriteOperation.INSERT, (stat,), extra_metadata=said))["f"].hex()
        '314146735e5f6892'
    """
    rows = {stat.file_name: stat.num_writes for stat in commit.stats}
    hashes = {
        name: _unpacked(encoded) for name, encoded in _entry(commit, KEY_HASHES_ENTRY, _MOST_HASH_CHARACTERS).items()
    }
    return {name: data for name, data in hashes.items() if data and len(data) == rows.get(name, 0) * _HASH.itemsize}


def _entry(commit: CommitMetadata, name: str, most: int) -> dict[str, Any]:
    json_text = commit.extra_metadata.get(name)
    if json_text is None or len(json_text) > most:
        return {}
    try:
        entry = json.loads(json_text)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _unpacked(encoded: object) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else b""
    except (binascii.Error, ValueError):
        return b""


def _is_range(ends: object) -> bool:
    # What is not printable may be no text at all (half a surrogate pair); the footers tell of such keys.
    return isinstance(ends, list) and len(ends) == 2 and all(isinstance(end, str) and end.isprintable() for end in ends)


@dataclass(frozen=True, slots=True)
class KeySpan:
    """The ends of the keys of a write, in the order of Java's strings."""

    low: bytes
    high: bytes

    @classmethod
    def of(cls, keys: Sequence[pa.StringArray]) -> KeySpan | None:
        """Return the span of all keys, None when there are none.

        Example:
            >>> KeySpan.of([pa.array(["b", "d"]), pa.array(["c"])]).misses(("e", "f"))
            True
        """
        low, high = key_range(pa.chunked_array(keys, pa.string()))
        return None if low is None or high is None else cls(java_order_key(low), java_order_key(high))

    def misses(self, ends: tuple[str, str]) -> bool:
        """Return whether no key of the write can lie between two ends, these included."""
        return java_order_key(ends[1]) < self.low or java_order_key(ends[0]) > self.high


def ranges_disjoint(span: KeySpan | None, noted: Mapping[str, tuple[str, str]], stat: WriteStat) -> bool:
    """Return whether a file holds no key of the write, by what its commit tells."""
    ends = noted.get(stat.file_name)
    return span is not None and ends is not None and span.misses(ends)


def sharing_hashes(keys: Sequence[pa.StringArray], hashes_of_files: Sequence[bytes]) -> list[bool]:
    """Return, for the hashes of each file, whether some key of a write may be among the file's keys.

    Args:
        keys: the write's.
        hashes_of_files: hashes of the files' keys, of one key places least each.

    Example:
        >>> others = [hash_keys(pa.chunked_array([[key, "x"]])) for key in "ab"]
        >>> sharing_hashes([pa.array(["b", "c"])], others)
        [False, True]
    """
    hashes = hash_keys(pa.chunked_array(keys, pa.string())) if hashes_of_files else None
    if hashes is None:
        return [True] * len(hashes_of_files)
    own: U32 = np.frombuffer(hashes, _HASH)
    others: U32 = np.frombuffer(b"".join(hashes_of_files), _HASH)
    positions = np.searchsorted(own, others)
    shared_each = (
        own.take(np.minimum(positions, len(own) - 1)) == others if len(own) else np.zeros(len(others), dtype=bool)
    )
    begins = np.cumsum([0, *(len(data) // _HASH.itemsize for data in hashes_of_files[:-1])])
    shared: list[bool] = np.logical_or.reduceat(shared_each, begins).tolist()
    return shared


def slices_with_own_keys(table_at: TableAt, slices: Sequence[FileSlice]) -> list[int]:
    """Return the numbers of the slices whose logs have to be asked for keys that no base file has.

    Raises:
        CorruptFile: a commit is damaged.
    """
    if not any(file_slice.logs and file_slice.base is not None for file_slice in slices):
        return [number for number, file_slice in enumerate(slices) if file_slice.logs]
    given = groups_given_keys(_delta_commits(table_at))
    first = table_at.timeline.first_active
    return [number for number, file_slice in enumerate(slices) if may_hold_own_keys(file_slice, first, given)]


def _delta_commits(table_at: TableAt) -> Iterable[CommitMetadata]:
    deltas = (i for i in table_at.timeline.commits if i.action is Action.DELTA_COMMIT)
    return (table_at.commit_metadata(instant) for instant in deltas)


def slices_with_deletes(table_at: TableAt, slices: Sequence[FileSlice]) -> list[int]:
    """Return the numbers of the slices whose logs may have deleted keys that are in their base files.

    Commits tell; logs of archived ones, and what a log compaction folded, may have.

    Raises:
        CorruptFile: a commit is damaged.
    """
    with_logs = [number for number, file_slice in enumerate(slices) if file_slice.logs]
    rule = merge_rule(table_at.config)
    if not with_logs or rule.custom is not None or rule.delete is not None or IS_DELETED in table_at.schema().names:
        return with_logs  # rows that delete their key count as updates
    commits = (each for each in _delta_commits(table_at) if each.operation is not WriteOperation.LOG_COMPACT)
    stats = [stat for commit in commits for stat in commit.stats if _is_log(stat)]
    without = {stat.path for stat in stats} - {stat.path for stat in stats if stat.num_deletes}
    return [number for number in with_logs if any(log.path not in without for log in slices[number].logs)]


def log_key_coverage_of(stats: Iterable[WriteStat]) -> dict[str, str]:
    """Return the extra metadata of a commit that looked its keys up and counted those that logs got as new ones.

    Example:
        >>> stat = WriteStat(FileId("f-0"), PartitionPath(""), ".f-0_1.log.1_0-0-0", num_writes=2, num_update_writes=2)
        >>> log_key_coverage_of([stat])
        {'lakefmt.log.keys': 'live'}
    """
    return {LOG_KEYS_ENTRY: LOG_KEYS_LIVE} if any(map(_is_log, stats)) else {}


def groups_given_keys(commits: Iterable[CommitMetadata]) -> frozenset[tuple[PartitionPath, FileId]]:
    """Return the file groups whose logs some of these commits may have given new keys.

    Example:
        >>> from lakefmt._core.values import WriteOperation
        >>> stat = WriteStat(FileId("f-0"), PartitionPath(""), ".f-0_1.log.1_0-0-0", num_writes=2, num_update_writes=2)
        >>> ours = CommitMetadata(WriteOperation.UPSERT, (stat,), extra_metadata=log_key_coverage_of([stat]))
        >>> groups_given_keys([ours]), len(groups_given_keys([CommitMetadata(WriteOperation.UPSERT, (stat,))]))
        (frozenset(), 1)
    """
    return frozenset(
        (stat.partition_path, stat.file_id)
        for commit in commits
        for stat in commit.stats
        if _is_log(stat) and (stat.num_inserts or commit.extra_metadata.get(LOG_KEYS_ENTRY) != LOG_KEYS_LIVE)
    )


def may_hold_own_keys(
    file_slice: FileSlice, first_active: str | None, given: Collection[tuple[PartitionPath, FileId]]
) -> bool:
    """Return whether a slice's logs may have keys that its base file lacks.

    Args:
        file_slice: the slice.
        first_active: the oldest commit that is not archived; older ones are not asked, so that their logs have to be.
        given: the file groups that were given new keys since.
    """
    if not file_slice.logs:
        return False
    if file_slice.base is None or first_active is None or (file_slice.partition, file_slice.file_id) in given:
        return True
    oldest_log = min(log.instant for log in file_slice.logs)
    # A write that began before the compaction was planned did not know what this would drop.
    return oldest_log < file_slice.base.instant or file_slice.base.instant < first_active


def _is_log(stat: WriteStat) -> bool:
    return parse_base_file(stat.file_name) is None
