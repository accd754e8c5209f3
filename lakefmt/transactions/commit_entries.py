"""The entries of streams, applications and the watermark in the newest commit of a table (effects)."""

from __future__ import annotations

from collections.abc import Mapping

from lakefmt.data_classes import replace
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.timeline.commit import CommitMetadata, combine_entries, milliseconds_of

__all__ = ["find_entries", "with_stored_entries"]


def find_entries(client: TableClient, state: TableState) -> Mapping[str, str]:
    """Return the entries of the newest commit that has any, however many commits of other engines followed it.

    Every commit with entries has all of them, so the search ends at the first. A handle remembers where its last search
    began, and the next one ends there.

    Raises:
        CorruptFile: a commit, or the archive, is damaged.
    """
    entries = _search(client, state, seen=frozenset())
    if entries is None:
        seen = frozenset(instant.time for instant in state.timeline.commits)
        entries = _search(client, client.with_history(state), seen) or {}
    latest = state.timeline.latest_commit
    client.entries_found = None if latest is None else (latest.file_name, entries)
    return entries


def _search(client: TableClient, state: TableState, seen: frozenset[str]) -> Mapping[str, str] | None:
    remembered = client.entries_found
    for instant in reversed(state.timeline.commits_by_completion):
        if instant.time in seen:
            continue
        if remembered is not None and instant.file_name == remembered[0]:
            return remembered[1]
        entries = client.commit_metadata(state, instant).entries
        if entries:
            return entries
    return None


def with_stored_entries(client: TableClient, state: TableState, metadata: CommitMetadata) -> CommitMetadata:
    """Return the metadata of a commit with the entries of the newest commit; call under the table lock.

    Args:
        client: the table.
        state: the table as it is under this lock.
        metadata: what the commit says so far.
    """
    stored = client.newest_entries(state)
    if not stored:
        return metadata
    entries = combine_entries(stored, {}, milliseconds_of(client.clock.now()))
    return replace(metadata, extra_metadata={**metadata.extra_metadata, **entries})
