"""Archive: move old instants from the active timeline into the archived timeline (docs/format.md, Archived timeline).

Everything happens under the table lock, in an order that loses nothing: the instants are written to the archive, then
their pending files are deleted, then the completed ones, oldest first. A process that dies in between leaves instants in
both places, which readers count once; the next run deletes them from the active timeline before it plans. A file of the
archive appears whole or not at all, in both layouts. An archive step has no instant of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import perf_counter

from lakefmt._core.compaction.clean_plan import CleanPolicy, clean_rules, consumers_floor
from lakefmt._core.compaction.compact_plan import CompactionTrigger
from lakefmt._core.compaction.compact_run import compaction_rules
from lakefmt._core.config.settings import Settings
from lakefmt._core.config.table_config import TableConfig, check_readable, check_writable
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.table_client import SCHEMAS, TableAt, TableClient, TableState, unneeded_history_files
from lakefmt._core.formats.names import parse_log_file
from lakefmt._core.metadata.timeline import MetadataTimelineStore
from lakefmt._core.notebook import NotebookText
from lakefmt._core.timeline.archive import ArchiveDirectory, ArchiveEdges, ArchivePlan, ArchiveRules, plan_archive
from lakefmt._core.timeline.consumers import consumed_until
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant, parse_instant_file
from lakefmt._core.timeline.locks.api import Lease
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body
from lakefmt._core.timeline.rollback import find_late_files, rolled_back_instants
from lakefmt._core.timeline.timeline import Timeline, build_timeline
from lakefmt._core.transactions.client import WriteAt, WriteClient, open_write_client
from lakefmt._core.values import FileId, InstantTime, PartitionPath, TableType, WriteOperation

__all__ = ["ArchiveResult", "archive_limits", "plan_archive_of", "run_archive"]

#: Digits of an instant time.
_TIME_DIGITS = 17
#: Compaction triggers that count deltacommits.
_COUNTING = (CompactionTrigger.NUM_COMMITS, CompactionTrigger.NUM_AND_TIME)


@dataclass(frozen=True, slots=True)
class ArchiveResult(NotebookText):
    """What an archive step did; prints as one line.

    Attributes:
        plan: the instants to move.
        done: False for a plan only.
        finished: instants that an earlier run had archived and not yet deleted from the active timeline.
        seconds: how long it took.
    """

    plan: ArchivePlan
    done: bool = False
    finished: tuple[InstantTime, ...] = ()
    seconds: float = 0.0

    def __str__(self) -> str:
        if not self.done:
            return str(self.plan)
        stopped = f"; stopped by {self.plan.barrier}" if self.plan.barrier else ""
        return f"{len(self.plan.instants)} instants archived, {self.seconds:.3f} s{stopped}"


def archive_limits(settings: Settings) -> tuple[int, int]:
    """Return the least and the most completed commits of the active timeline.

    Both grow where a clean is asked to retain more commits than archiving would leave: it counts commits of the active
    timeline, and would never find that many there. Hudi raises them by the same formula.

    Example:
        >>> from lakefmt._core.config.settings import resolve_settings
        >>> archive_limits(resolve_settings({})), archive_limits(resolve_settings({"hoodie.clean.commits.retained": 40}))
        ((20, 30), (41, 51))
    """
    least, most = settings.integer("hoodie.keep.min.commits"), settings.integer("hoodie.keep.max.commits")
    if settings.origins["hoodie.clean.commits.retained"] == "default":
        return least, most
    rules = clean_rules(settings)
    if rules.policy is not CleanPolicy.KEEP_LATEST_COMMITS or rules.commits < least or least >= most:
        return least, most
    return rules.commits + 1, rules.commits + 1 + most - least


def _archive_rules(write_client: WriteClient, config: TableConfig) -> ArchiveRules:
    """Return how long the active timeline of a table may be."""
    settings = write_client.settings
    counted = 0
    if config.table_type is TableType.MERGE_ON_READ:
        compaction = compaction_rules(settings)
        counted = compaction.max_delta_commits if compaction.trigger in _COUNTING else 0
    return ArchiveRules(*archive_limits(settings), counted)


def plan_archive_of(client: TableClient, options: Mapping[str, object] | None = None) -> ArchivePlan:
    """Return what :func:`run_archive` would move; nothing is changed."""
    write_client = open_write_client(client, options)
    config = client.load_config()
    return _plan(write_client.at(TableState(config, _load_timed(write_client, config))), force=True)


def run_archive(
    client: TableClient, options: Mapping[str, object] | None = None, *, force: bool = True
) -> ArchiveResult:
    """Move old instants into the archived timeline.

    Args:
        client: the table.
        options: settings of the call.
        force: False waits until the timeline is longer than ``hoodie.keep.max.commits``.

    Raises:
        LockUnavailable: the table lock could not be had in time.
    """
    begun = perf_counter()
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        config = client.load_config()
        _check_archivable(config)
        timeline_store = write_client.timeline(config)
        timeline = timeline_store.load()
        if not force and not _is_due(timeline, _archive_rules(write_client, config)):
            return ArchiveResult(ArchivePlan(), done=True, seconds=perf_counter() - begun)
        # Those that are archived and still on the active timeline.
        both = client.history_store(config).find(timeline.completed)
        if both:
            lease.check()
            _leave(write_client, config, timeline, both)
        timeline = _load_timed(write_client, config)
        plan = _plan(write_client.at(TableState(config, timeline)), force=force)
        if plan.instants:
            _remove_late_files(write_client.at(TableState(config, timeline)), plan, lease)
            _remove_files_of_lost_attempts(write_client.at(TableState(config, timeline)), plan, lease)
            _append(write_client.at(TableState(config, timeline)), plan.instants)
            lease.check()
            _leave(write_client, config, timeline, plan.instants)
            _drop_histories(client.at(TableState(config, timeline_store.load())))
    finished = tuple(instant.time for instant in both)
    return ArchiveResult(plan, done=True, finished=finished, seconds=perf_counter() - begun)


def _remove_late_files(write_at: WriteAt, plan: ArchivePlan, lease: Lease) -> None:
    """Delete files that slow writers put after their instants had been rolled back; call under the table lock.

    Files of instants before the first active commit count as committed, and after this step these would.
    """
    client, timeline = write_at.client, write_at.timeline
    leaving = {i.time for i in plan.instants if i.action in COMMIT_ACTIONS}
    first = next((i.time for i in timeline.commits if i.time not in leaving), "")
    here, last = {i.time for i in timeline}, timeline.first_active or ""
    for rollback in timeline.completed_of(Action.ROLLBACK):
        if rollback.time < last:
            continue  # an earlier step has looked
        record = decode_body(BodyKind.ROLLBACK_METADATA, write_at.read_body(rollback), what=rollback.file_name)
        for target in rolled_back_instants(record, write_at.config.table_type):
            if last <= target.time < first and target.time not in here:
                late = find_late_files(client.store, target, timeline.layout, rollback.modified)
                lease.check()
                client.store.delete(late)


def _remove_files_of_lost_attempts(write_at: WriteAt, plan: ArchivePlan, lease: Lease) -> None:
    """Delete files that slow processes put for clusterings that others completed; call under the table lock.

    They are of the clustering's instant, in file groups of their own. What its commit names is known only until it leaves.
    """
    client = write_at.client
    replacing = [i for i in plan.instants if i.action is Action.REPLACE_COMMIT]
    for instant, commit in ((i, write_at.commit_metadata(i)) for i in replacing):
        if commit.operation is WriteOperation.CLUSTER:
            committed = {stat.path for stat in commit.stats}
            bases, _ = client.storage_listing(write_at.config).files(sorted({s.partition_path for s in commit.stats}))
            lost = [base.path for base in bases if base.instant == instant.time and base.path not in committed]
            if lost:
                lease.check()
                client.store.delete(lost)


def _drop_histories(table_at: TableAt) -> None:
    """Delete the histories of the columns that archived commits stored: each of them holds what the newest one does."""
    first = table_at.timeline.first_active
    if first is not None and table_at.internal_schema() is not None:
        names = [item.name for item in table_at.client.store.list(SCHEMAS, recursive=False)]
        table_at.client.store.delete(unneeded_history_files(names, first))


def _check_archivable(config: TableConfig) -> None:
    # Nothing that a metadata table lists changes; the plan keeps the instants that the metadata table needs.
    if config.metadata_partitions:
        check_readable(config)
    else:
        check_writable(config)


def _load_timed(write_client: WriteClient, config: TableConfig) -> Timeline:
    """Return the timeline; in layout 1 with the modification times of its files, which the archive keeps."""
    if config.version.layout > 1:
        return write_client.timeline(config).load()
    listed = write_client.client.store.list(config.timeline_directory, recursive=False)
    files = (parse_instant_file(o.name.rpartition("/")[2], 1, o.size, o.modified) for o in listed)
    return build_timeline((i for i in files if i is not None), 1)


def _append(write_at: WriteAt, instants: Iterable[Instant]) -> None:
    """Write instants to the archive."""
    config, client = write_at.config, write_at.client
    read_body = write_at.write_client.timeline(config).read_body
    zone = client.reading_zone(config, write_at.timeline)
    archive = ArchiveDirectory(client.store, config.history_directory, read_body, zone, write_at.durable)
    archive.append(write_at.timeline, instants)


def _is_due(timeline: Timeline, rules: ArchiveRules) -> bool:
    return len(timeline.commits) > rules.max_commits


def _plan(write_at: WriteAt, *, force: bool) -> ArchivePlan:
    rules = _archive_rules(write_at.write_client, write_at.config)
    if not force and not _is_due(write_at.timeline, rules):
        return ArchivePlan()
    client = write_at.client
    edges = ArchiveEdges(
        write_at.retained_from(),
        _straddling(write_at, rules),
        _still_hiding(write_at, rules),
        bool(write_at.config.metadata_partitions),
        _metadata_compacted(client, write_at.config),
        _unread(write_at),
    )
    return plan_archive(write_at.timeline, rules, edges, force=force)


def _unread(table_at: TableAt) -> tuple[tuple[InstantTime, str], ...]:
    """Return the first commit that a registered consumer has not read, and why it stays."""
    first = consumers_floor(table_at.timeline, consumed_until(table_at.client.store, table_at.client.clock.now()))
    return () if first is None else ((first, f"a registered consumer has not read {first}"),)


def _metadata_compacted(client: TableClient, config: TableConfig) -> InstantTime | None:
    """Return the instant of the metadata table's last compaction, None without one or without a metadata table."""
    if not config.metadata_partitions:
        return None
    compaction = MetadataTimelineStore(client.store, config.version, durable=False).load().last_compaction
    # In version 6 its time is that of the last deltacommit, with three digits more.
    return None if compaction is None else InstantTime(compaction.time[:_TIME_DIGITS])


def _straddling(table_at: TableAt, rules: ArchiveRules) -> list[InstantTime]:
    """Return archivable deltacommits that overlap a compaction request and whose log files still exist."""
    if table_at.timeline.layout == 1 or table_at.config.table_type is not TableType.MERGE_ON_READ:
        return []  # in version 6 the name of a log contains its base instant
    requested = [
        i.time for i in table_at.timeline if i.action in (Action.COMMIT, Action.COMPACTION, Action.REPLACE_COMMIT)
    ]
    overlapping = []
    for instant in table_at.timeline.commits[: -rules.min_commits]:
        beside = any(instant.time < time <= instant.order_time for time in requested)
        if instant.action is Action.DELTA_COMMIT and beside:
            paths = [s.path for s in table_at.commit_metadata(instant).stats if parse_log_file(s.file_name)]
            if any(table_at.client.store.info(path) is not None for path in paths):
                overlapping.append(instant.time)
    return overlapping


def _still_hiding(table_at: TableAt, rules: ArchiveRules) -> list[InstantTime]:
    """Return archivable replacecommits whose replaced file groups still have files."""
    candidates = table_at.timeline.commits[: -rules.min_commits]
    hiding = []
    for instant in candidates:
        if instant.action is not Action.REPLACE_COMMIT:
            continue
        replaced = table_at.commit_metadata(instant).replaced_file_ids
        if _any_file(table_at, replaced):
            hiding.append(instant.time)
    return hiding


def _any_file(table_at: TableAt, groups: Mapping[PartitionPath, Iterable[FileId]]) -> bool:
    bases, logs = table_at.client.storage_listing(table_at.config).files(list(groups))
    present = {(f.partition, f.file_id) for f in bases} | {(f.partition, f.file_id) for f in logs}
    return any((partition, file_id) in present for partition, ids in groups.items() for file_id in ids)


def _leave(write_client: WriteClient, config: TableConfig, timeline: Timeline, instants: Iterable[Instant]) -> None:
    """Delete instants from the active timeline: pending files first, else a completed instant would look pending."""
    ordered = sorted(instants, key=lambda i: i.time)
    files = [file for instant in ordered for file in timeline.files_of(instant)]
    timeline_store = write_client.timeline(config)
    timeline_store.remove_files(file for file in files if not file.is_completed)
    for instant in ordered:
        timeline_store.remove_files([instant])
