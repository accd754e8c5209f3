"""Conflicts of a write with commits since it began, with pending writes and with plans of table services.

What a write does where it meets a pending clustering of its file groups is the table's choice
(``hoodie.clustering.updates.strategy``, :class:`UpdateStrategy`).
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa

from lakefmt._core.config.settings import Settings
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile
from lakefmt._core.filegroups.pending_plans import PLANNING, groups_left_behind, groups_of_plan, is_clustering
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.names import parse_base_file, parse_log_file
from lakefmt._core.index import IndexKeys, choose_index, key_files, locate_everywhere, open_index
from lakefmt._core.read.snapshot_files import cleaned_files, unseen_cleans
from lakefmt._core.schema import avro_to_arrow, evolve
from lakefmt._core.storage.parallel import map_concurrently
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.conflict import (
    Changes,
    ConflictFinding,
    Reason,
    Verdict,
    changes_of,
    check_conflict,
    check_plan_conflict,
    merge_schemas,
)
from lakefmt._core.timeline.heartbeat import read_stamp, stamp_text
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant, State
from lakefmt._core.timeline.markers import list_marked
from lakefmt._core.transactions.client import WriteAt, is_non_blocking
from lakefmt._core.values import FileId, InstantTime, PartitionPath, WriteOperation, WriteStat
from lakefmt._core.write.commit.key_stats import KeySpan, key_hashes_of, key_ranges_of, ranges_disjoint, sharing_hashes
from lakefmt._core.write.context import WriteContext
from lakefmt.errors import CommitConflict, InstantNotPending, LakefmtError, NotFoundError, UnknownSetting, WriterActive

__all__ = [
    "WRITER",
    "Footprint",
    "UpdateStrategy",
    "check_early",
    "check_not_cleaned",
    "clustered_groups",
    "resolve_conflicts",
    "update_strategy",
    "withdraw_for_overwrite",
    "withdrawn_for_update",
]

Group = tuple[PartitionPath, FileId]

_OVERWRITES = frozenset(
    {WriteOperation.INSERT_OVERWRITE, WriteOperation.INSERT_OVERWRITE_TABLE, WriteOperation.DELETE_PARTITION}
)


class UpdateStrategy(enum.Enum):
    """What becomes of a write to file groups of a pending clustering, with Hudi's names without the engine before them."""

    REJECT = "RejectUpdateStrategy"
    ALLOW = "AllowUpdateStrategy"
    DUPLICATE = "ConsistentBucketDuplicateUpdateStrategy"


def update_strategy(settings: Settings) -> UpdateStrategy:
    """Return the strategy that settings ask for.

    Raises:
        UnknownSetting: there is no such strategy.

    Example:
        >>> from lakefmt._core.config.settings import resolve_settings
        >>> update_strategy(resolve_settings({"hoodie.clustering.updates.strategy": "SparkAllowUpdateStrategy"})).name
        'ALLOW'
    """
    named = settings.text("hoodie.clustering.updates.strategy") or ""
    strategy_name = named.rpartition(".")[2].removeprefix("Spark").removeprefix("Flink").removeprefix("Java")
    try:
        return UpdateStrategy(strategy_name)
    except ValueError:
        names = ", ".join(f"Spark{strategy.value}" for strategy in UpdateStrategy)
        raise UnknownSetting(
            f"hoodie.clustering.updates.strategy does not take {named!r}: expected one of {names}"
        ) from None


def withdrawn_for_update(write_at: WriteAt, times: Collection[InstantTime]) -> bool:
    """Withdraw clusterings where the settings say that updates go before; False: one is at work, or they say no."""
    if update_strategy(write_at.settings) is not UpdateStrategy.ALLOW:
        return False
    # Imported here: few writes meet a clustering.
    from lakefmt._core.transactions.rollback_executor import withdraw_clusterings

    try:
        withdraw_clusterings(write_at, times)
    except WriterActive:
        return False
    return True


def withdraw_for_overwrite(
    write_at: WriteAt, operation: WriteOperation, replaced: Mapping[PartitionPath, Collection[FileId]]
) -> None:
    """Withdraw the clusterings of file groups that an overwrite is about to replace, unless the settings refuse updates.

    Such a plan has nothing left to move, and rows that were copied for it go with those that it would have moved. A plan that a
    process executes stays, and the overwrite is refused.

    Args:
        write_client: the table.
        begun: the state that the write builds upon.
        operation: of the write.
        replaced: file groups by partition.

    Raises:
        UnknownSetting: the settings name no strategy.
    """
    if operation not in _OVERWRITES or not write_at.timeline.pending_clusterings:
        return
    if update_strategy(write_at.settings) is UpdateStrategy.REJECT:
        return
    clustered = clustered_groups(write_at)
    groups = {(partition, file_id) for partition, file_ids in replaced.items() for file_id in file_ids}
    times = {clustered[group].time for group in clustered.keys() & groups}
    if times:
        # Imported here: few writes meet a clustering.
        from lakefmt._core.transactions.rollback_executor import withdraw_clusterings

        with suppress(WriterActive):
            withdraw_clusterings(write_at, times)


def clustered_groups(table_at: TableAt) -> dict[Group, Instant]:
    """Return the file groups of pending clusterings, each with the clustering."""
    return {
        group: pending
        for pending in table_at.timeline.pending
        if pending.time in table_at.timeline.pending_clusterings and is_clustering(table_at, pending)
        for group in groups_of_plan(table_at, pending)
    }


#: Extra metadata of commits that were made beside others: who wrote them.
WRITER = "lakefmt.writer"


_SMALL_BASE_BYTES = 1 << 20
#: Operations whose commits do not change the table's schema (docs/format.md, Table schema).
_SCHEMA_KEEPING = frozenset(
    {WriteOperation.CLUSTER, WriteOperation.COMPACT, WriteOperation.LOG_COMPACT, WriteOperation.INDEX}
)


@dataclass(frozen=True)
class Footprint:
    """What other writers must not change beside a write, and its files do not show.

    Attributes:
        keys: keys that no other write may bring in, with the partition of each; None: any partition.
        keys_in: the partitions of those keys; None: anywhere.
        read: file groups that it relied on and left alone.
        covers: partitions that it replaces as a whole; None: all there are.
    """

    keys: tuple[tuple[pa.StringArray, pa.DictionaryArray | None], ...] = ()
    keys_in: frozenset[PartitionPath] | None = frozenset()
    read: frozenset[Group] = frozenset()
    covers: frozenset[PartitionPath] | None = frozenset()

    def __add__(self, other: Footprint) -> Footprint:
        """Return what must not change for both.

        Example:
            >>> one, other = Footprint(covers=frozenset({"p"})), Footprint(covers=None)
            >>> (one + one).covers, (one + other).covers
            (frozenset({'p'}), None)
        """
        return Footprint(
            (*self.keys, *other.keys),
            _union(self.keys_in, other.keys_in),
            self.read | other.read,
            _union(self.covers, other.covers),
        )

    def without_keys(self) -> Footprint:
        """Return this without the keys: they are too many to be held, and their partitions are covered in their place."""
        return Footprint(read=self.read, covers=self.covers)


def _union(
    one: frozenset[PartitionPath] | None, other: frozenset[PartitionPath] | None
) -> frozenset[PartitionPath] | None:
    return None if one is None or other is None else one | other


def resolve_conflicts(
    write_at: WriteAt,
    context: WriteContext,
    begun: TableState,
    metadata: CommitMetadata,
    footprint: Footprint,
    copies: Collection[str] = (),
) -> CommitMetadata:
    """Return what to commit, given what was committed since the write began; call under the table lock.

    Args:
        write_client: the table.
        context: the write.
        begun: the state that it builds upon.
        metadata: the commit as the write would make it.
        footprint: what else the write relies on.
        now: the table as it is.
        copies: its logs that are named by pending clusterings.

    Raises:
        CommitConflict: the write conflicts with a commit or a plan.
        InstantNotPending: another writer is rolling it back.
    """
    client = write_at.client
    if any(pending.action is Action.ROLLBACK for pending in write_at.timeline.pending):
        from lakefmt._core.filegroups.missing_completions import pending_rollback_targets

        if pending_rollback_targets(write_at, context.instant):
            raise InstantNotPending(f"instant {context.instant} is being rolled back by another writer")
    other_instants, undone = _commits_since(write_at, begun)
    undone = undone or (_ended_clustering(copies, write_at.state) if copies else None)
    if undone is not None:
        raise _conflict_error(write_at, context, ConflictFinding(Verdict.REBASE, Reason.UNDONE, undone))
    if not other_instants and write_at.timeline.pending_times <= {context.instant}:
        return metadata  # nothing else happened meanwhile, and nothing is planned
    changes = changes_of(metadata, read=footprint.read, covers=footprint.covers, keys_in=footprint.keys_in)
    layout = write_at.timeline.layout
    contents = map_concurrently(client.store, [partial(write_at.commit_metadata, other) for other in other_instants])
    other_commits = list(zip(other_instants, contents, strict=True))
    non_blocking = is_non_blocking(write_at.settings)
    findings = [
        check_conflict(changes, other, changes_of(commit), layout=layout, non_blocking=non_blocking)
        for other, commit in other_commits
    ]
    findings += _findings_of_plans(write_at, changes, context.instant, begun)
    findings.append(_finding_of_cleans(write_at, begun, other_commits))
    undecided = _separated_by_keys(footprint, [each for each in findings if each is not None], dict(other_commits))
    finding = _certain_finding(client, footprint, undecided, filters=write_at.config.populate_meta_fields)
    finding = finding or _brought_in_logs(write_at, footprint, dict(other_commits))
    if finding is not None:
        raise _conflict_error(write_at, context, finding)
    return _with_schema(write_at, context, begun, metadata, other_commits)


def _commits_since(table_at: TableAt, begun: TableState) -> tuple[list[Instant], Instant | None]:
    """Return the commits that completed since `begun`, wherever they are by now, and one that was undone."""
    before, active = (state.timeline.completed_of(*COMMIT_ACTIONS) for state in (begun, table_at.state))
    same_start = begun.timeline.first_active == table_at.timeline.first_active
    if same_start and active[: len(before)] == before:  # the usual case: no commit was archived, and new ones come last
        return [*active[len(before) :]], None
    seen = {(i.time, i.action) for i in before}
    other_instants = [i for i in active if (i.time, i.action) not in seen]
    left = seen - {(i.time, i.action) for i in active}
    if not left and same_start:
        return other_instants, None
    # Commits were archived meanwhile: those that this write has seen, and perhaps those that completed since.
    history = table_at.with_history().history
    archived = () if history is None else history.instants
    floor, pending = begun.timeline.highest_time or "", begun.timeline.pending_times
    still_active = {(i.time, i.action) for i in active}
    other_instants += [
        i
        for i in archived
        if i.action in COMMIT_ACTIONS
        and (i.time, i.action) not in seen | still_active
        and (i.order_time > floor or i.time in pending)
    ]
    lost = left - {(i.time, i.action) for i in archived}
    undone = next((i for i in begun.timeline.completed if (i.time, i.action) in lost), None)
    return other_instants, undone


def _ended_clustering(copies: Collection[str], now: TableState) -> Instant | None:
    """Return the clustering for whose new buckets a write has copies, when it is not pending any more."""
    named = {log.instant for path in copies if (log := parse_log_file(path.rpartition("/")[2])) is not None}
    ended = sorted(named - now.timeline.pending_clusterings)
    if not ended:
        return None
    completed = (instant for instant in now.timeline.completed if instant.time == ended[0])
    return next(completed, Instant(ended[0], Action.CLUSTERING, State.REQUESTED))


def _findings_of_plans(
    table_at: TableAt, changes: Changes, time: InstantTime, begun: TableState
) -> Iterator[ConflictFinding | None]:

    planned_before = {(i.time, i.action) for i in begun.timeline.pending}
    for pending in table_at.timeline.pending:
        if pending.action is Action.RESTORE:
            yield ConflictFinding(Verdict.REBASE, Reason.UNDONE, pending)
        if pending.action in PLANNING and pending.time != time:
            clusters = pending.time in table_at.timeline.pending_clusterings
            planned = (
                groups_left_behind(table_at, pending, changes.groups) if clusters else groups_of_plan(table_at, pending)
            )
            newly = (pending.time, pending.action) not in planned_before
            yield check_plan_conflict(changes, pending, planned, newly=newly, layout=table_at.timeline.layout)


def check_not_cleaned(write_at: WriteAt, context: WriteContext, begun: TableState) -> None:
    """Refuse a write that found nothing to change where a clean removed what it began with.

    Args:
        write_at: the table as it is now.
        context: the write.
        begun: the state that it builds upon.

    Raises:
        CommitConflict: it may not have seen rows that are there.
    """
    commits = [(other, write_at.commit_metadata(other)) for other in _commits_since(write_at, begun)[0]]
    finding = _finding_of_cleans(write_at, begun, commits)
    if finding is not None:
        raise _conflict_error(write_at, context, finding)


def _finding_of_cleans(
    write_at: WriteAt, begun: TableState, commits: Iterable[tuple[Instant, CommitMetadata]]
) -> ConflictFinding | None:
    """Return the conflict with a commit that changed a file group of which a clean removed what the write began with.

    The write may have listed the table when the old file was gone and the new one did not count for it, and taken the keys in
    them for new ones, or for ones that are not stored. What it did find in the table is no conflict.
    """
    changed: dict[Group, Instant] = {}
    for other, commit in commits:
        replaced = [(partition, each) for partition, ids in commit.replaced_file_ids.items() for each in ids]
        changed |= dict.fromkeys([*((s.partition_path, s.file_id) for s in commit.stats), *replaced], other)
    begun_at = write_at.client.at(begun)
    for _, record in unseen_cleans(write_at, begun):
        bases, logs = cleaned_files(record)
        files: list[BaseFile | LogFile] = [*bases, *logs]
        for file in files:
            group = file.partition, file.file_id
            found = file.name in begun.files_found.get(file.partition, ())
            if group in changed and not found and not _has_newer_file(begun_at, group, file.instant):
                return ConflictFinding(Verdict.REBASE, Reason.CLEANED, changed[group], (group,))
    return None


def _has_newer_file(table_at: TableAt, group: Group, instant: InstantTime) -> bool:
    """Return whether a file group has a newer file than that of an instant, at the moment of a state."""
    newer = [commit for commit in table_at.timeline.commits if commit.time > instant]
    stats = (stat for commit in newer for stat in table_at.commit_metadata(commit).stats)
    return any((stat.partition_path, stat.file_id) == group and not stat.log_files for stat in stats)


def _separated_by_keys(
    footprint: Footprint, findings: Sequence[ConflictFinding], commits: Mapping[Instant, CommitMetadata]
) -> list[ConflictFinding]:
    """Return the findings without files that hold none of the write's keys, as far as their commits say so."""
    if not any(finding.doubtful for finding in findings):
        return [*findings]
    keys = [keys for keys, _ in footprint.keys]
    span = KeySpan.of(keys)
    remaining: list[ConflictFinding] = []
    with_hashes: list[tuple[WriteStat, bytes]] = []
    for finding in findings:
        key_ranges = key_ranges_of(commits[finding.other]) if finding.doubtful else {}
        doubtful = tuple(stat for stat in finding.doubtful if not ranges_disjoint(span, key_ranges, stat))
        if doubtful:
            hashes = key_hashes_of(commits[finding.other])
            with_hashes += ((stat, hashes[stat.file_name]) for stat in doubtful if stat.file_name in hashes)
        if doubtful or not finding.doubtful:
            remaining.append(replace(finding, doubtful=doubtful))
    shared = sharing_hashes(keys, [hashes for _, hashes in with_hashes])
    without_keys = {stat.path for (stat, _), is_shared in zip(with_hashes, shared, strict=True) if not is_shared}
    return list(_without_files(remaining, without_keys)) if without_keys else remaining


def _without_files(findings: Iterable[ConflictFinding], apart: Collection[str]) -> Iterator[ConflictFinding]:
    """Yield the findings without the files `apart`; a finding without files is left out."""
    for finding in findings:
        doubtful = tuple(stat for stat in finding.doubtful if stat.path not in apart)
        if doubtful or not finding.doubtful:
            yield replace(finding, doubtful=doubtful)


def _certain_finding(
    client: TableClient, footprint: Footprint, findings: Sequence[ConflictFinding], *, filters: bool
) -> ConflictFinding | None:
    """Return the worst finding that holds once keys are compared."""
    for finding in sorted(findings, key=lambda f: f.verdict is not Verdict.ABORT):
        if not finding.doubtful:
            return finding
    doubtful = [(finding, stat) for finding in findings for stat in finding.doubtful]
    hit = _file_with_key(client, footprint, [(finding.other, stat) for finding, stat in doubtful], filters=filters)
    if hit is None:
        return None
    finding, stat = doubtful[hit]
    return replace(finding, partitions=(stat.partition_path,))


def _file_with_key(
    client: TableClient, footprint: Footprint, files: Sequence[tuple[Instant, WriteStat]], *, filters: bool
) -> int | None:
    """Return the number of a file that holds one of the write's keys; None: there is none."""
    if not files:
        return None
    slices = []
    for number, (other, stat) in enumerate(files):
        name = parse_base_file(stat.file_name)
        if name is None:
            return number  # a log: its keys are not worth reading for this
        base = BaseFile(
            stat.partition_path, stat.file_name, stat.file_id, name.write_token, other.time, stat.file_size_in_bytes
        )
        slices.append(FileSlice(stat.partition_path, stat.file_id, other.time, base))
    if not filters:
        return 0  # files without meta columns: their keys are not stored, and not worth making for this
    # Small files on a fast store are read faster than threads start.
    alone = client.store.capabilities.low_latency and all(
        stat.file_size_in_bytes <= _SMALL_BASE_BYTES for _, stat in files
    )
    threads = {"lakefmt.index.threads": 1} if alone else {}
    index = open_index("bloom", is_global=footprint.keys_in is None, options=threads)
    reader = key_files(client)
    for keys, partitions in footprint.keys:
        try:
            if partitions is None or index.is_global:
                located = locate_everywhere(index, keys, slices, reader)
            else:
                located = index.locate(IndexKeys(keys, partitions), slices, reader)
        except NotFoundError:
            return 0  # cleaned meanwhile: the keys cannot be compared any more
        if len(located.slices):
            return int(located.slices[0])
    return None


def _brought_in_logs(
    write_at: WriteAt, footprint: Footprint, commits: Mapping[Instant, CommitMetadata]
) -> ConflictFinding | None:
    """Return the conflict with a commit that brought one of the write's keys back by a log, as the record index says.

    A row on top of a delete in a log counts as an update, so that such a commit does not say that it brought a key. Writes
    by other indexes remember those file groups; the record index does not know them.
    """
    from lakefmt._core.index.record import RecordIndex, bringing_instants
    from lakefmt._core.metadata.collect import instant_millis

    with_logs = [other for other, commit in commits.items() if any(stat.log_files for stat in commit.stats)]
    if not with_logs or not footprint.keys:
        return None
    index = choose_index(write_at.client, write_at.settings, write_at.config, write_at.state)
    if not isinstance(index, RecordIndex):
        return None
    partitions = footprint.keys_in
    brought = [bringing_instants(write_at, keys, partitions) for keys, _ in footprint.keys]
    for other in with_logs:
        if any(instant_millis(other.time, write_at.state) in instants for instants in brought):
            return ConflictFinding(Verdict.REBASE, Reason.KEYS, other, partitions=tuple(sorted(partitions or ())))
    return None


def _with_schema(
    write_at: WriteAt,
    context: WriteContext,
    begun: TableState,
    metadata: CommitMetadata,
    other_commits: Iterable[tuple[Instant, CommitMetadata]],
) -> CommitMetadata:
    """Return the commit with the schema that the table has after it.

    Raises:
        CommitConflict: the write has to be made again upon another schema.
    """
    schema_texts = {i: c.schema_text for i, c in other_commits if c.schema_text and c.operation not in _SCHEMA_KEEPING}
    if all(schema_text == context.schema_text for schema_text in schema_texts.values()):
        return metadata
    names: list[tuple[pa.Schema, str]] = []

    def name_of(schema: pa.Schema, schema_text: str) -> str:
        for named, name in names:
            if named.equals(schema):
                return name
        names.append((schema, schema_text))
        return schema_text

    parsed = {schema_text: avro_to_arrow(schema_text) for schema_text in {context.schema_text, *schema_texts.values()}}
    own_name = name_of(parsed[context.schema_text], context.schema_text)
    before = name_of(write_at.client.at(begun).schema(), "begun")
    other_schemas = {i.time: name_of(parsed[schema_text], schema_text) for i, schema_text in schema_texts.items()}
    merged = merge_schemas(own_name, before, context.instant, other_schemas)
    if merged == own_name:
        return metadata
    fits = merged is not None and merged in parsed and _schema_fits(parsed[context.schema_text], parsed[merged])
    if merged is None or not fits:
        other = next((i for i in schema_texts if other_schemas[i.time] != before), next(iter(schema_texts)))
        raise _conflict_error(write_at, context, ConflictFinding(Verdict.REBASE, Reason.SCHEMA, other))
    return replace(metadata, extra_metadata={**metadata.extra_metadata, "schema": merged})


def _schema_fits(written: pa.Schema, table: pa.Schema) -> bool:
    """Return whether rows of one schema can lie in a table of the other."""
    try:
        return bool(evolve(table, written, partial=True).equals(table))
    except LakefmtError:
        return False


# ------------------------------------------------------------------------------------------------------- who is at work


def check_early(
    write_at: WriteAt, context: WriteContext, groups: Collection[Group], *, look: bool, copied: Collection[Group] = ()
) -> None:
    """Raise when a write that is about to begin its files cannot stand: the work is not worth doing.

    Args:
        write_client: the table.
        context: the write.
        begun: the state that it builds upon.
        groups: stored file groups that it will change.
        look: ask for commits and live writers; False: only for clusterings that were pending when it began.
        copied: those of them whose new rows go to the new buckets of a clustering, too.

    Raises:
        CommitConflict: another writer changes or has changed the same file groups.
    """
    if not groups:
        return
    client = write_at.client
    clustered = clustered_groups(write_at) if write_at.timeline.pending_clusterings else {}
    shared = tuple(sorted((clustered.keys() & set(groups)).difference(copied)))
    if shared and not withdrawn_for_update(write_at, {clustered[group].time for group in shared}):
        finding = ConflictFinding(Verdict.ABORT, Reason.CLUSTERING, clustered[shared[0]], shared)
        raise _conflict_error(write_at, context, finding)
    if not look or is_non_blocking(write_at.settings):
        return  # what others do to these file groups is no conflict as a rule; the commit looks again
    now = TableState(write_at.config, write_at.write_client.timeline(write_at.config).load())
    table_at = client.at(now)
    changes = Changes(context.operation, frozenset(groups), dict.fromkeys(groups, ""))
    for other in _commits_since(table_at, write_at.state)[0]:
        conflict = check_conflict(changes, other, changes_of(table_at.commit_metadata(other)), layout=2)
        if conflict is not None and not conflict.doubtful:
            raise _conflict_error(write_at.write_client.at(now), context, conflict)
    for pending in now.timeline.pending:
        if pending.action in COMMIT_ACTIONS and pending.time != context.instant:
            _check_markers(write_at.write_client.at(now), context, pending, groups)


def _check_markers(write_at: WriteAt, context: WriteContext, pending: Instant, groups: Collection[Group]) -> None:
    marked = {_group_of(path) for path in list_marked(write_at.client.store, pending.time) or ()}
    shared = tuple(sorted(marked & set(groups)))
    if not shared or not write_at.write_client.writer_liveness(write_at.config, write_at.timeline, pending).alive:
        return
    writer = _writer_of(write_at, pending)
    advice = Reason.GROUPS.advice
    raise CommitConflict(
        f"instant {context.instant} would change file groups that {pending}{_by_writer(writer)} is writing "
        f"({'/'.join(shared[0])}). To avoid it: {advice}",
        other_instant=pending.time,
        writer=writer,
        file_groups=shared,
        advice=advice,
    )


def _group_of(path: str) -> Group:
    partition, _, name = path.rpartition("/")
    parsed = parse_base_file(name) or parse_log_file(name)
    return PartitionPath(partition), FileId("" if parsed is None else parsed.file_id)


# ------------------------------------------------------------------------------------------------------------ the error


def _conflict_error(write_at: WriteAt, context: WriteContext, finding: ConflictFinding) -> CommitConflict:
    writer = _writer_of(write_at, finding.other)
    again = ". Write it again" if finding.verdict is Verdict.REBASE else ""
    return CommitConflict(
        f"instant {context.instant} cannot be committed: {finding}{_by_writer(writer).rstrip(',')}{again}. "
        f"To avoid it: {finding.reason.advice}",
        other_instant=finding.other.time,
        writer=writer,
        file_groups=finding.file_groups,
        partitions=finding.partitions,
        advice=finding.reason.advice,
        can_rebase=finding.verdict is Verdict.REBASE,
    )


def _by_writer(writer: str | None) -> str:
    return f", by {writer}," if writer else ""


def _writer_of(table_at: TableAt, other: Instant) -> str | None:
    """Return who wrote an instant: as its commit says, or its heartbeat while it is pending; None: neither does."""
    try:
        if other.is_completed and other.action in COMMIT_ACTIONS:
            return table_at.commit_metadata(other).extra_metadata.get(WRITER)
        stamp = read_stamp(table_at.client.store, other.time)
        return None if stamp is None else stamp_text(stamp)
    except LakefmtError:
        return None
