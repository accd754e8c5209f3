"""Who was faster, who is at work, and can this write stand beside them (effects: reads timeline, markers, keys)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from lakefmt.errors import CommitConflict, InstantNotPending, LakefmtError, NotFoundError
from lakefmt.filegroups.missing_completions import pending_rollback_targets
from lakefmt.filegroups.model import BaseFile, FileSlice
from lakefmt.filegroups.pending_plans import PLANNING, groups_of_plan, is_clustering
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.formats.names import parse_base_file, parse_log_file
from lakefmt.index import IndexKeys, key_files, locate_everywhere, open_index
from lakefmt.schema import avro_to_arrow, evolve
from lakefmt.storage.parallel import map_concurrently
from lakefmt.timeline.commit import CommitMetadata
from lakefmt.timeline.conflict import (
    Changes,
    ConflictFinding,
    Reason,
    Verdict,
    changes_of,
    check_conflict,
    check_plan_conflict,
    merge_schemas,
)
from lakefmt.timeline.heartbeat import heartbeat_name
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant
from lakefmt.timeline.markers import list_marked
from lakefmt.transactions.client import WriteClient
from lakefmt.values import FileId, InstantTime, PartitionPath, WriteOperation, WriteStat
from lakefmt.write.commit.key_stats import KeySpan, key_hashes_of, key_ranges_of, ranges_disjoint, sharing_hashes
from lakefmt.write.context import WriteContext

__all__ = ["WRITER", "Footprint", "check_early", "clustered_groups", "pending_rollback_targets", "resolve_conflicts"]

#: Extra metadata of commits that were made beside others: who wrote them.
WRITER = "lakefmt.writer"

Group = tuple[PartitionPath, FileId]

_MAX_STAMP_BYTES = 64 * 1024
_SMALL_BYTES = 1 << 20
#: Their commits do not tell the table's schema (spec 3.12).
_SERVICES = frozenset(
    {WriteOperation.CLUSTER, WriteOperation.COMPACT, WriteOperation.LOG_COMPACT, WriteOperation.INDEX}
)


@dataclass(frozen=True)
class Footprint:
    """What a write's files do not tell and others may mind.

    Attributes:
        keys: keys that must not come in beside it, with the partition that each is meant for; None: wherever it is.
        keys_in: the partitions of those keys; None: anywhere.
        read: file groups that it relied on and left alone.
        covers: partitions that it replaces as a whole; None: all there are.
    """

    keys: tuple[tuple[pa.StringArray, pa.DictionaryArray | None], ...] = ()
    keys_in: frozenset[PartitionPath] | None = frozenset()
    read: frozenset[Group] = frozenset()
    covers: frozenset[PartitionPath] | None = frozenset()


def resolve_conflicts(
    write_client: WriteClient,
    context: WriteContext,
    begun: TableState,
    metadata: CommitMetadata,
    footprint: Footprint,
    now: TableState,
) -> CommitMetadata:
    """Return what to commit, given everything that happened since the write began; call under the lock.

    Args:
        write_client: the table.
        context: the write.
        begun: the state that it builds upon.
        metadata: what it would say.
        footprint: what else others may mind.
        now: the table as it is.

    Raises:
        CommitConflict: it cannot stand.
        InstantNotPending: somebody is rolling it back.
    """
    client = write_client.client
    if pending_rollback_targets(client, now, context.instant):
        raise InstantNotPending(f"instant {context.instant} is being rolled back by another writer")
    mine = changes_of(metadata, read=footprint.read, covers=footprint.covers, keys_in=footprint.keys_in)
    rivals, gone = _since(client, begun, now)
    if gone is not None:
        raise _conflict(write_client, context, ConflictFinding(Verdict.REBASE, Reason.UNDONE, gone), now)
    layout = now.timeline.layout
    said = map_concurrently(client.store, [partial(client.commit_metadata, now, rival) for rival in rivals])
    theirs = list(zip(rivals, said, strict=True))
    found = [check_conflict(mine, rival, changes_of(commit), layout=layout) for rival, commit in theirs]
    found += _plans(client, mine, context.instant, begun, now)
    certain = _separated_by_keys(footprint, [each for each in found if each is not None], dict(theirs))
    finding = _certain(client, footprint, certain, filters=now.config.populate_meta_fields)
    if finding is not None:
        raise _conflict(write_client, context, finding, now)
    return _with_schema(write_client, context, begun, metadata, theirs, now)


def _since(client: TableClient, begun: TableState, now: TableState) -> tuple[list[Instant], Instant | None]:
    """Return the commits that completed since `begun`, wherever they are by now, and one that was undone."""
    before, active = (state.timeline.completed_of(*COMMIT_ACTIONS) for state in (begun, now))
    same_start = begun.timeline.first_active == now.timeline.first_active
    if same_start and active[: len(before)] == before:  # what mostly is: nothing left, and who is new came last
        return [*active[len(before) :]], None
    seen = {(i.time, i.action) for i in before}
    rivals = [i for i in active if (i.time, i.action) not in seen]
    left = seen - {(i.time, i.action) for i in active}
    if not left and same_start:
        return rivals, None
    # An archive step came by: rivals that began before us may have left, and what we saw may have.
    history = client.with_history(now).history
    archived = () if history is None else history.instants
    floor, pending = begun.timeline.highest_time or "", {i.time for i in begun.timeline.pending}
    known = {(i.time, i.action) for i in active}
    rivals += [
        i
        for i in archived
        if i.action in COMMIT_ACTIONS
        and (i.time, i.action) not in seen | known
        and (i.order_time > floor or i.time in pending)
    ]
    lost = left - {(i.time, i.action) for i in archived}
    gone = next((i for i in begun.timeline.completed if (i.time, i.action) in lost), None)
    return rivals, gone


def _plans(
    client: TableClient, mine: Changes, time: InstantTime, begun: TableState, now: TableState
) -> Iterator[ConflictFinding | None]:
    known = {(i.time, i.action) for i in begun.timeline.pending}
    for pending in now.timeline.pending:
        if pending.action is Action.RESTORE:
            yield ConflictFinding(Verdict.REBASE, Reason.UNDONE, pending)
        if pending.action in PLANNING and pending.time != time:
            planned = groups_of_plan(client, now, pending)
            newly = (pending.time, pending.action) not in known
            yield check_plan_conflict(mine, pending, planned, newly=newly, layout=now.timeline.layout)


def _separated_by_keys(
    footprint: Footprint, found: Sequence[ConflictFinding], said: Mapping[Instant, CommitMetadata]
) -> list[ConflictFinding]:
    """Return the findings without the files whose commits tell that they hold none of the write's keys."""
    if not any(finding.doubtful for finding in found):
        return [*found]
    keys = [keys for keys, _ in footprint.keys]
    span = KeySpan.of(keys)
    left: list[ConflictFinding] = []
    told: list[tuple[WriteStat, bytes]] = []
    for finding in found:
        noted = key_ranges_of(said[finding.rival]) if finding.doubtful else {}
        doubtful = tuple(stat for stat in finding.doubtful if not ranges_disjoint(span, noted, stat))
        if doubtful:
            hashes = key_hashes_of(said[finding.rival])
            told += ((stat, hashes[stat.file_name]) for stat in doubtful if stat.file_name in hashes)
        if doubtful or not finding.doubtful:
            left.append(replace(finding, doubtful=doubtful))
    shared = sharing_hashes(keys, [hashes for _, hashes in told])
    apart = {stat.path for (stat, _), is_shared in zip(told, shared, strict=True) if not is_shared}
    return list(_without(left, apart)) if apart else left


def _without(found: Iterable[ConflictFinding], apart: Collection[str]) -> Iterator[ConflictFinding]:
    """Yield the findings without the files `apart`; one that has no other is none."""
    for finding in found:
        doubtful = tuple(stat for stat in finding.doubtful if stat.path not in apart)
        if doubtful or not finding.doubtful:
            yield replace(finding, doubtful=doubtful)


def _certain(
    client: TableClient, footprint: Footprint, found: Sequence[ConflictFinding], *, filters: bool
) -> ConflictFinding | None:
    """Return the worst finding that holds once keys are compared."""
    for finding in sorted(found, key=lambda f: f.verdict is not Verdict.ABORT):
        if not finding.doubtful:
            return finding
    doubtful = [(finding, stat) for finding in found for stat in finding.doubtful]
    hit = _file_with_key(client, footprint, [(finding.rival, stat) for finding, stat in doubtful], filters=filters)
    if hit is None:
        return None
    finding, stat = doubtful[hit]
    return replace(finding, partitions=(stat.partition_path,))


def _file_with_key(
    client: TableClient, footprint: Footprint, files: Sequence[tuple[Instant, WriteStat]], *, filters: bool
) -> int | None:
    """Return the number of a file that holds one of the write's keys; None: there is none."""
    slices = []
    for number, (rival, stat) in enumerate(files):
        name = parse_base_file(stat.file_name)
        if name is None:
            return number  # a log: its keys are not worth reading for this
        base = BaseFile(
            stat.partition_path, stat.file_name, stat.file_id, name.write_token, rival.time, stat.file_size_in_bytes
        )
        slices.append(FileSlice(stat.partition_path, stat.file_id, rival.time, base))
    if not filters and files:
        return 0  # files without meta columns: their keys are not stored, and not worth making for this
    # Small files at hand are looked at sooner than threads have handed them to each other.
    alone = client.store.capabilities.low_latency and all(stat.file_size_in_bytes <= _SMALL_BYTES for _, stat in files)
    threads = {"lakefmt.index.threads": 1} if alone else {}
    index = open_index("bloom", is_global=footprint.keys_in is None, options=threads)
    reader = key_files(client)
    for keys, homes in footprint.keys:
        try:
            if homes is None or index.is_global:
                located = locate_everywhere(index, keys, slices, reader)
            else:
                located = index.locate(IndexKeys(keys, homes), slices, reader)
        except NotFoundError:
            return 0  # cleaned away meanwhile: nobody can tell any more
        if len(located.slices):
            return int(located.slices[0])
    return None


def _with_schema(
    write_client: WriteClient,
    context: WriteContext,
    begun: TableState,
    metadata: CommitMetadata,
    theirs: Iterable[tuple[Instant, CommitMetadata]],
    now: TableState,
) -> CommitMetadata:
    """Return the commit with the schema that the table has after it.

    Raises:
        CommitConflict: the write has to be made again upon another schema.
    """
    said = {i: c.schema_text for i, c in theirs if c.schema_text and c.operation not in _SERVICES}
    if all(text == context.schema_text for text in said.values()):
        return metadata
    names: list[tuple[pa.Schema, str]] = []

    def name_of(schema: pa.Schema, text: str) -> str:
        for known, name in names:
            if known.equals(schema):
                return name
        names.append((schema, text))
        return text

    parsed = {text: avro_to_arrow(text) for text in {context.schema_text, *said.values()}}
    mine = name_of(parsed[context.schema_text], context.schema_text)
    before = name_of(write_client.client.schema(begun), "begun")
    rivals = {i.time: name_of(parsed[text], text) for i, text in said.items()}
    settled = merge_schemas(mine, before, context.instant, rivals)
    if settled == mine:
        return metadata
    fits = settled is not None and settled in parsed and _fits(parsed[context.schema_text], parsed[settled])
    if settled is None or not fits:
        rival = next((i for i in said if rivals[i.time] != before), next(iter(said)))
        raise _conflict(write_client, context, ConflictFinding(Verdict.REBASE, Reason.SCHEMA, rival), now)
    return replace(metadata, extra_metadata={**metadata.extra_metadata, "schema": settled})


def _fits(mine: pa.Schema, table: pa.Schema) -> bool:
    """Return whether rows of one schema can lie in a table of the other."""
    try:
        return bool(evolve(table, mine, partial=True).equals(table))
    except LakefmtError:
        return False


# ------------------------------------------------------------------------------------------------------- who is at work


def check_early(
    write_client: WriteClient, context: WriteContext, begun: TableState, groups: Collection[Group], *, look: bool
) -> None:
    """Raise when a write that is about to begin its files cannot stand: the work is not worth doing.

    Args:
        write_client: the table.
        context: the write.
        begun: the state that it builds upon.
        groups: stored file groups that it will change.
        look: ask for commits and live writers; False: only for clusterings that were pending when it began.

    Raises:
        CommitConflict: somebody is or was at the same file groups.
    """
    if not groups:
        return
    client = write_client.client
    clustered = clustered_groups(client, begun)
    shared = tuple(sorted(clustered.keys() & set(groups)))
    if shared:
        finding = ConflictFinding(Verdict.ABORT, Reason.CLUSTERING, clustered[shared[0]], shared)
        raise _conflict(write_client, context, finding, begun)
    if not look:
        return
    now = TableState(begun.config, write_client.timeline(begun.config).load())
    mine = Changes(context.operation, frozenset(groups), dict.fromkeys(groups, ""))
    for rival in _since(client, begun, now)[0]:
        found = check_conflict(mine, rival, changes_of(client.commit_metadata(now, rival)), layout=2)
        if found is not None and not found.doubtful:
            raise _conflict(write_client, context, found, now)
    for pending in now.timeline.pending:
        if pending.action in COMMIT_ACTIONS and pending.time != context.instant:
            _check_markers(write_client, context, now, pending, groups)


def _check_markers(
    write_client: WriteClient, context: WriteContext, now: TableState, pending: Instant, groups: Collection[Group]
) -> None:
    marked = {_group_of(path) for path in list_marked(write_client.client.store, pending.time) or ()}
    shared = tuple(sorted(marked & set(groups)))
    if not shared or not write_client.writer_liveness(now.config, now.timeline, pending).alive:
        return
    writer = _writer_of(write_client.client, now, pending)
    advice = Reason.GROUPS.advice
    raise CommitConflict(
        f"instant {context.instant} would change file groups that {pending}{_by(writer)} is writing "
        f"({'/'.join(shared[0])}). To avoid it: {advice}",
        rival=pending.time,
        writer=writer,
        file_groups=shared,
        advice=advice,
    )


def _group_of(path: str) -> Group:
    partition, _, name = path.rpartition("/")
    parsed = parse_base_file(name) or parse_log_file(name)
    return PartitionPath(partition), FileId("" if parsed is None else parsed.file_id)


def clustered_groups(client: TableClient, state: TableState) -> dict[Group, Instant]:
    """Return the file groups of pending clusterings, each with the clustering."""
    return {
        group: pending
        for pending in state.timeline.pending
        if pending.action in (Action.CLUSTERING, Action.REPLACE_COMMIT) and is_clustering(client, state, pending)
        for group in groups_of_plan(client, state, pending)
    }


# ------------------------------------------------------------------------------------------------------------ the error


def _conflict(
    write_client: WriteClient, context: WriteContext, finding: ConflictFinding, now: TableState
) -> CommitConflict:
    writer = _writer_of(write_client.client, now, finding.rival)
    again = ". Write it again" if finding.verdict is Verdict.REBASE else ""
    return CommitConflict(
        f"instant {context.instant} cannot be committed: {finding}{_by(writer)}{again}. "
        f"To avoid it: {finding.reason.advice}",
        rival=finding.rival.time,
        writer=writer,
        file_groups=finding.file_groups,
        partitions=finding.partitions,
        advice=finding.reason.advice,
        can_rebase=finding.verdict is Verdict.REBASE,
    )


def _by(writer: str | None) -> str:
    return f", by {writer}," if writer else ""


def _writer_of(client: TableClient, state: TableState, rival: Instant) -> str | None:
    """Return who wrote an instant, when it is told: by its commit, or by its heartbeat while it is pending."""
    try:
        if rival.is_completed and rival.action in COMMIT_ACTIONS:
            return client.commit_metadata(state, rival).extra_metadata.get(WRITER)
        stamp = json.loads(client.store.read(heartbeat_name(rival.time), _MAX_STAMP_BYTES))
        return f"{stamp['owner']} on {stamp['host']}, process {stamp['pid']}"
    except (LakefmtError, ValueError, KeyError, TypeError, RecursionError):
        return None
