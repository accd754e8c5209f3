"""The entries of streams, applications and the watermark in the newest commit of a table (effects)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakefmt._core.config.settings import Settings
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.timeline.commit import CommitMetadata, combine_entries, milliseconds_of
from lakefmt._core.timeline.instant import Instant
from lakefmt._core.timeline.timeline import Timeline

__all__ = ["META_PREFIXES", "find_entries", "newest_for_good", "with_carried_keys", "with_stored_entries"]

#: The setting that names what commits carry on of the one before them.
META_PREFIXES: Final = "hoodie.write.meta.key.prefixes"
#: The place of a job has other names from one release of Hudi to another: a commit tells it under some, and older ones are past.
_CHECKPOINTS: Final = ("deltastreamer.checkpoint.", "streamer.checkpoint.")


def find_entries(table_at: TableAt) -> Mapping[str, str]:
    """Return the entries of the newest commit that has any, however many commits of other engines followed it.

    Every commit with entries has all of them, so the search ends at the first. A handle remembers where its last search
    began, and the next one ends there.

    Raises:
        CorruptFile: a commit, or the archive, is damaged.
    """
    entries = _search(table_at, searched=frozenset())
    if entries is None:
        searched = frozenset(instant.time for instant in table_at.timeline.commits)
        entries = _search(table_at.with_history(), searched) or {}
    latest = newest_for_good(table_at.timeline)
    table_at.client.cache.entries_found = None if latest is None else (latest.file_name, entries)
    return entries


def newest_for_good(timeline: Timeline) -> Instant | None:
    """Return the newest commit, where no other one can come before it any more: a search may end there next time.

    In version 6 a commit that began earlier than the newest one, and is not done yet, will come before it.

    Example:
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> names = ["20260101000000000.inflight", "20260102000000000.commit"]
        >>> newest_for_good(timeline_from_names(names, 1)) is None
        True
    """
    latest = timeline.latest_commit
    waits = latest is not None and timeline.layout == 1 and any(each.time < latest.time for each in timeline.pending)
    return None if waits else latest


def _search(table_at: TableAt, searched: frozenset[str]) -> Mapping[str, str] | None:
    remembered = table_at.client.cache.entries_found
    for instant in reversed(table_at.timeline.commits_by_completion):
        if instant.time in searched:
            continue
        if remembered is not None and instant.file_name == remembered[0]:
            return remembered[1]
        entries = table_at.commit_metadata(instant).entries
        if entries:
            return entries
    return None


def with_stored_entries(
    table_at: TableAt, metadata: CommitMetadata, settings: Settings | None = None
) -> CommitMetadata:
    """Return the metadata of a commit with the entries of the newest commit; call under the table lock.

    Args:
        table_at: the table, at one moment.
        metadata: what the commit says so far.
        settings: of the call, which may name entries of other tools that are carried on, too.
    """
    if settings is not None:
        metadata = with_carried_keys(table_at, metadata, settings)
    stored = table_at.newest_entries()
    if not stored:
        return metadata
    entries = combine_entries(stored, {}, milliseconds_of(table_at.client.clock.now()))
    return replace(metadata, extra_metadata={**metadata.extra_metadata, **entries})


def with_carried_keys(table_at: TableAt, metadata: CommitMetadata, settings: Settings) -> CommitMetadata:
    """Return the metadata of a commit with the entries of other tools that it carries on; call under the table lock.

    ``hoodie.write.meta.key.prefixes`` names them by how they begin, such as ``deltastreamer.checkpoint.key``. A tool that looks at few
    commits finds its place then, whoever wrote them. What the commit says itself is not touched.

    Args:
        table_at: the table, at one moment.
        metadata: what the commit says so far.
        settings: of the call.
    """
    prefixes = filter(None, (each.strip() for each in (settings.text(META_PREFIXES) or "").split(",")))
    missing = [each for each in prefixes if not any(name.startswith(each) for name in metadata.extra_metadata)]
    carried = dict[str, str]()
    told: Mapping[str, str] = metadata.extra_metadata
    commits = reversed(table_at.timeline.commits_by_completion)
    while True:
        if any(name.startswith(_CHECKPOINTS) for name in told):
            missing = [each for each in missing if not each.startswith(_CHECKPOINTS)]
        instant = next(commits, None) if missing else None
        if instant is None:
            break
        told = table_at.commit_metadata(instant).extra_metadata
        matching = [each for each in missing if any(name.startswith(each) for name in told)]
        carried |= {name: entry for name, entry in told.items() if name.startswith(tuple(matching))}
        missing = [each for each in missing if each not in matching]
    return replace(metadata, extra_metadata={**metadata.extra_metadata, **carried}) if carried else metadata
