"""What a commit tells of the keys in its files, so that who commits next need not open them. Pure.

The range of a file's keys stands in its footer; a write that has to be compared with a hundred commits would read a hundred
footers while it holds the table lock. Writers that work beside others therefore repeat the ranges of files with new rows in
the commit, under a name of lakefmt's own; where other engines wrote, or many files were, the footers are asked as before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lakefmt.formats.parquet import java_order_key, key_range
from lakefmt.timeline.commit import CommitMetadata
from lakefmt.timeline.conflict import adds_rows
from lakefmt.values import WriteStat
from lakefmt.write.values import WriteStatus

__all__ = ["KEY_NOTE", "KeySpan", "certainly_apart", "note_keys", "noted_ranges"]

#: Extra metadata of commits: file name → smallest and largest key, as JSON.
KEY_NOTE: Final = "lakefmt.keys"
_MOST_FILES: Final = 64
_MOST_CHARACTERS: Final = 16 * 1024


def note_keys(statuses: Iterable[WriteStatus]) -> dict[str, str]:
    """Return the extra metadata about the keys of new rows; empty when it would be long, or is not known.

    Example:
        >>> from lakefmt.values import WriteStat
        >>> stat = WriteStat("f-0", "p", "p/f-0_1-0-0_20260101000000000.parquet", num_inserts=3)
        >>> note_keys([WriteStatus("20260101000000000", stat, 3, keys=("a", "c"))])
        {'lakefmt.keys': '{"f-0_1-0-0_20260101000000000.parquet":["a","c"]}'}
    """
    told = [status for status in statuses if any(map(adds_rows, status.stats))]
    if not told or len(told) > _MOST_FILES or any(status.keys is None for status in told):
        return {}
    text = json.dumps(
        {status.stat.file_name: status.keys for status in told}, ensure_ascii=False, separators=(",", ":")
    )
    return {KEY_NOTE: text} if len(text) <= _MOST_CHARACTERS else {}


def noted_ranges(commit: CommitMetadata) -> Mapping[str, tuple[str, str]]:
    """Return file name → smallest and largest key, as far as the commit tells; what cannot be understood tells nothing.

    Example:
        >>> from lakefmt.values import WriteOperation
        >>> noted_ranges(CommitMetadata(WriteOperation.INSERT, extra_metadata={"lakefmt.keys": '{"f":["a","c"],"g":7}'}))
        {'f': ('a', 'c')}
    """
    text = commit.extra_metadata.get(KEY_NOTE)
    if text is None or len(text) > _MOST_CHARACTERS:
        return {}
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return (
        {name: (ends[0], ends[1]) for name, ends in said.items() if _is_range(ends)} if isinstance(said, dict) else {}
    )


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


def certainly_apart(span: KeySpan | None, noted: Mapping[str, tuple[str, str]], stat: WriteStat) -> bool:
    """Return whether a file holds no key of the write, by what its commit tells."""
    ends = noted.get(stat.file_name)
    return span is not None and ends is not None and span.misses(ends)
