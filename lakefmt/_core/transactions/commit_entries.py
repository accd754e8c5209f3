"""The entries of streams, applications and the watermark in the newest commit of a table (effects)."""

from __future__ import annotations

from collections.abc import Mapping

from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.timeline.commit import CommitMetadata, combine_entries, milliseconds_of

__all__ = ["find_entries", "with_stored_entries"]


def find_entries(table_at: TableAt) -> Mapping[str, str]:
    """Return the entries of the newest commit that has any, however many commits of other engines followed it.

    Every commit with entries has all of them, so the search ends at the first. A handle remembers where its last search
    began, and the next one ends there.

    Raises:
        CorruptFile: a commit, or the archive, is damaged.
    """
    entries = _search(table_at, seen=frozenset())
    if entries is None:
        seen = frozenset(instant.time for instant in table_at.timeline.commits)
        entries = _search(table_at.with_history(), seen) or {}
    latest = table_at.timeline.latest_commit
    table_at.client.cache.entries_found = None if latest is None else (latest.file_name, entries)
    return entries


def _search(table_at: TableAt, seen: frozenset[str]) -> Mapping[str, str] | None:
    remembered = table_at.client.cache.entries_found
    for instant in reversed(table_at.timeline.commits_by_completion):
        if instant.time in seen:
            continue
        if remembered is not None and instant.file_name == remembered[0]:
            return remembered[1]
        entries = table_at.commit_metadata(instant).entries
        if entries:
            return entries
    return None


def with_stored_entries(table_at: TableAt, metadata: CommitMetadata) -> CommitMetadata:
    """Return the metadata of a commit with the entries of the newest commit; call under the table lock.

    Args:
        table_at: the table, at one moment.
        metadata: what the commit says so far.
    """
    stored = table_at.newest_entries()
    if not stored:
        return metadata
    entries = combine_entries(stored, {}, milliseconds_of(table_at.client.clock.now()))
    return replace(metadata, extra_metadata={**metadata.extra_metadata, **entries})
