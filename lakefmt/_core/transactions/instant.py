"""The life of one instant, for every action: claim, write, complete or abandon.

:class:`InstantTransaction` is the only caller of :meth:`lakefmt._core.timeline.store.TimelineStore.complete`, so everything that
has to happen before an instant becomes visible happens here: the instant is still inflight, the commit observers have
returned, and the table lock is proved to be held.

The newest commit also carries entries of streams, applications and the watermark (:func:`find_entries`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final

from lakefmt._core.config.settings import Settings
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.storage.api import PutOutcome
from lakefmt._core.storage.parallel import BegunRequest
from lakefmt._core.storage.table_directory import TableDirectory
from lakefmt._core.timeline.commit import LATE_ROWS_ENTRY, CommitMetadata, combine_entries, milliseconds_of
from lakefmt._core.timeline.heartbeat import Heartbeat, leave
from lakefmt._core.timeline.instant import Action, Instant, State, parse_instant_time
from lakefmt._core.timeline.locks.api import Lease
from lakefmt._core.timeline.markers import remove_markers
from lakefmt._core.timeline.observer import PendingCompletion, WrittenKeys
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.transactions.client import WriteAt, WriteClient
from lakefmt._core.values import InstantTime
from lakefmt.errors import InstantNotPending, InternalError, LakefmtError, StorageError
from lakefmt.events import emit

__all__ = [
    "META_PREFIXES",
    "EarlyClaim",
    "InstantTransaction",
    "find_entries",
    "newest_for_good",
    "with_carried_keys",
    "with_stored_entries",
]

#: How many instant times are tried.
_CLAIMS = 1000


class EarlyClaim:
    """A claim on an instant time that is made while the table is listed; at the end of its context it is withdrawn, unless taken.

    On a store with low latency nothing is claimed early: a request is as fast as the listing.

    Args:
        write_client: the writer, which holds the table lock.
        config: the table's properties, as they were read before.

    Attributes:
        time: the instant time; None: nothing is claimed.
    """

    def __init__(self, write_client: WriteClient, config: TableConfig) -> None:
        self.time: InstantTime | None = None
        if write_client.client.store.capabilities.low_latency:
            return
        timeline = write_client.timeline(config).seen
        zone = write_client.client.writing_zone(config, timeline)
        clock = write_client.client.instant_clock(config)
        self.time = clock.next(None if timeline is None else timeline.highest_time, zone)
        self._heartbeat = write_client.heartbeat(self.time)
        self._wait = BegunRequest(write_client.client.store, self._heartbeat.claim)

    def take(self, timeline: Timeline) -> Heartbeat | None:
        """Return the heartbeat; None: the time is taken, or not above everything on `timeline`.

        Raises:
            StorageError: the store does not say whether the time was claimed.
        """
        if self.time is None or not self._wait() or self.time <= (timeline.highest_time or ""):
            return None
        self.time = None
        return self._heartbeat

    def __enter__(self) -> EarlyClaim:
        return self

    def __exit__(self, *_: object) -> None:
        if self.time is not None:
            self.time = None
            with suppress(LakefmtError):  # the next writer removes it
                if self._wait():
                    self._heartbeat.stop()


@dataclass(frozen=True, slots=True)
class InstantTransaction:
    """One instant of this writer. As a context manager it abandons the instant when its block raises.

    Attributes:
        write_client: the table, its lock and the settings of the call.
        time: the requested time of the instant.
        action: what the instant does.
        heartbeat: shows that the writer lives. None: the whole life of the instant is under one hold of the table lock
            (rollbacks, savepoints), or the caller keeps the heartbeat itself.
    """

    write_client: WriteClient
    time: InstantTime
    action: Action
    heartbeat: Heartbeat | None = None

    @classmethod
    def claim(
        cls,
        write_at: WriteAt,
        action: Action,
        lease: Lease,
        requested_body: bytes = b"",
        *,
        start: bool = True,
        early: EarlyClaim | None = None,
    ) -> InstantTransaction:
        """Claim a new instant time and request the instant; call under the table lock.

        Args:
            write_at: the table and its writer, at one moment.
            action: what the instant will do.
            lease: of the table lock.
            requested_body: content of the requested file, such as an encoded plan.
            start: also move the instant to inflight. False: the caller starts it later, or leaves it to another process.
            early: a claim that was made beside the listing of the timeline.

        Raises:
            InternalError: every time that was tried is taken.
            LeaseLost: the lock was lost; the instant stays requested and counts as dead.
            MetadataTablePresent: the table has an index that lakefmt cannot keep.
        """
        if write_at.config.metadata_partitions:
            from lakefmt._core.metadata.manage import check_kept_indexes  # brings the metadata table along

            check_kept_indexes(write_at.client, write_at.config, write_at.timeline, write_at.settings)
        write_client, timeline_store = write_at.write_client, write_at.write_client.timeline(write_at.config)
        next_time = write_client.instant_time_generator(write_at.config, write_at.timeline)
        for _ in range(_CLAIMS):
            heartbeat = None if early is None else early.take(write_at.timeline)
            if heartbeat is None:
                heartbeat = write_client.heartbeat(next_time())
                if not heartbeat.claim():
                    continue
            with cls(write_client, heartbeat.time, action, heartbeat) as claimed:
                if timeline_store.request(heartbeat.time, action, requested_body) is not PutOutcome.DONE:
                    heartbeat.stop()
                    continue
                lease.check()
                if start:
                    claimed.start(write_at.config)
                    lease.check()  # who has lost the lock meanwhile may have lost the instant to another process, too
            return claimed
        raise InternalError(f"no free instant time was found in {_CLAIMS} attempts")

    @classmethod
    def take_over(cls, write_client: WriteClient, pending: Instant, lease: Lease) -> InstantTransaction:
        """Take over a pending instant whose writer is dead, or was only to plan it; call under the table lock.

        Raises:
            LeaseLost: the lock was lost; nothing was changed.
        """
        lease.check()
        heartbeat = write_client.heartbeat(pending.time)
        heartbeat.take_over()
        return cls(write_client, pending.time, pending.action, heartbeat)

    def __enter__(self) -> InstantTransaction:
        """Abandon the instant when the block raises."""
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Abandon the instant when the block raised."""
        if error_type is None:
            return
        if issubclass(error_type, (Exception, KeyboardInterrupt)):
            self.leave()
        else:
            self.abandon()

    def start(self, config: TableConfig) -> None:
        """Move the instant to inflight; an instant that is inflight already stays so."""
        self.write_client.timeline(config).start(self.time, self.action)

    def request(self, config: TableConfig, requested_body: bytes) -> None:
        """Request an instant that needs no heartbeat, and move it to inflight; call under the table lock."""
        self.write_client.timeline(config).request(self.time, self.action, requested_body)
        self.start(config)

    def is_held(self) -> bool:
        """Return whether no other process has taken the instant over, or ended it."""
        return self.heartbeat is None or self.heartbeat.is_ours()

    def check_held(self) -> None:
        """Raise when another process has taken the instant over, or ended it.

        A file that is written afterwards may count as one of a completed instant.

        Raises:
            InstantNotPending: the heartbeat is not that of this process any more.
        """
        if not self.is_held():
            raise InstantNotPending(f"instant {self.time} was taken over by another process")

    def check_inflight(self, timeline: Timeline) -> None:
        """Raise unless the instant is inflight.

        Args:
            timeline: the table's timeline, listed under this hold of the table lock.

        Raises:
            InstantNotPending: another writer rolled the instant back, or completed it: a table service that was taken over.
        """
        if any((i.time, i.action, i.state) == (self.time, self.action, State.INFLIGHT) for i in timeline.pending):
            return
        is_complete = any(i.time == self.time for i in timeline.completed_of(self.action))
        reason = "another process completed it" if is_complete else "another writer rolled it back"
        raise InstantNotPending(f"instant {self.time} is no longer pending: {reason}")

    def complete(
        self,
        lease: Lease | None,
        config: TableConfig,
        timeline: Timeline,
        body: bytes,
        commit: CommitMetadata | None = None,
        directory: TableDirectory | None = None,
        written_keys: WrittenKeys | None = None,
    ) -> Instant:
        """Make the instant visible; call under the table lock.

        Args:
            lease: of the table lock, checked after every observer has returned. None: losing the lock does no harm.
            config: the table's properties, read under this lock.
            timeline: the table's timeline, listed under this lock.
            body: content of the completed file.
            commit: the same as values, for commits, deltacommits, replacecommits and compactions.
            directory: what is below ``.hoodie``, listed under this lock with the timeline.
            written_keys: what this process recorded of the keys of files that it wrote for the instant.

        Returns:
            The completed instant.

        Raises:
            InstantNotPending: the instant is not inflight on `timeline`: another writer rolled it back.
            LeaseLost: the lock was lost; the instant is not completed.
            StateError: the instant was completed before.
        """
        self.check_inflight(timeline)
        next_time = self.write_client.instant_time_generator(config, timeline)
        if observers := self.write_client.observers(config):
            pending = PendingCompletion(
                self.time,
                self.action,
                config,
                timeline,
                body,
                commit,
                next_time,
                directory=directory,
                written_keys=written_keys,
            )
            if lease is not None:
                pending = replace(pending, prove_lock=lease.check)
            for observer in observers:
                observer.before_completion(pending)
        completion = next_time()
        if lease is not None:
            lease.check()  # observers may have taken longer than the lease lasts
        completed = self.write_client.timeline(config).complete(self.time, self.action, completion, body)
        _emit_completion(self.write_client.client.store.url, completed, self.action, commit)
        return completed

    def abandon(self) -> None:
        """Stop the heartbeat and leave everything else, as a process that dies would: the next writer recovers."""
        if self.heartbeat is not None:
            self.heartbeat.abandon()

    def leave(self) -> None:
        """Do the same in a process that goes on: its next write needs no expiry to know that nobody works on the instant."""
        if self.heartbeat is not None:
            self.heartbeat.leave()
        else:
            leave(self.write_client.client.store, self.time)

    def finish(self, *, has_markers: bool = True, markers: Sequence[str] | None = None) -> None:
        """Remove the heartbeat and the markers of an instant that is complete, or that another process will run.

        A failing store is no error: the next writer removes what is left.

        Args:
            has_markers: False skips looking for markers.
            markers: their names, where they have been listed.
        """
        store = self.write_client.client.store
        # Where there are directories, those of the markers go, too.
        listed = None if markers is None or store.capabilities.directories else markers
        with suppress(StorageError):
            if self.heartbeat is not None:
                self.heartbeat.stop(listed or ())
            elif listed:
                store.delete(listed)
            if has_markers and listed is None:
                remove_markers(store, self.time)


#: The events of actions; those of commits are written by writers.
_EVENTS: Final = {
    Action.COMMIT: "commit",
    Action.DELTA_COMMIT: "commit",
    Action.REPLACE_COMMIT: "commit",
    Action.ROLLBACK: "rollback",
    Action.RESTORE: "rollback",
    Action.SAVEPOINT: "savepoint",
}


def _emit_completion(url: str, completed: Instant, action: Action, commit: CommitMetadata | None) -> None:
    facts: dict[str, str | int | float | None] = {"instant": completed.time, "action": action.value}
    if commit is not None:
        facts["operation"] = commit.operation.value.lower()
        facts["num_inserts"] = sum(stat.num_inserts for stat in commit.stats)
        facts["num_updates"] = sum(stat.num_update_writes for stat in commit.stats)
        facts["num_deletes"] = sum(stat.num_deletes for stat in commit.stats)
        late = commit.extra_metadata.get(LATE_ROWS_ENTRY, "")
        if late.isdecimal():
            facts["num_late"] = int(late)
        facts["num_files"] = len(commit.stats)
        facts["bytes_written"] = sum(stat.file_size_in_bytes for stat in commit.stats)
    if completed.completion is not None:
        took = parse_instant_time(completed.completion) - parse_instant_time(completed.time)
        facts["seconds"] = took.total_seconds()
    emit(_EVENTS.get(action, "service"), url, **facts)


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
