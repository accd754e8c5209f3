"""Cleaning a table: gather, plan, request, delete, complete (spec 10.8; effects).

The plan is made and requested under the table lock; the deletions run without it; the completion takes it again. Whoever
dies in between leaves a pending clean with its plan, and the next clean carries that out once more: deleting twice is
fine. Before a stored plan is carried out, what has become reachable again meanwhile (by a rollback) is taken off it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from time import perf_counter
from typing import Any

from lakefmt.compaction.clean.plan import (
    CleanPlan,
    CleanPolicy,
    CleanRules,
    GroupKey,
    Needs,
    earliest_to_retain,
    plan_clean,
    with_change_files,
)
from lakefmt.compaction.clean.records import (
    FLOOR,
    SAVEPOINTS_SEEN,
    CleanJob,
    clean_metadata_record,
    clean_plan_record,
    parse_clean_plan,
)
from lakefmt.config.settings import Settings
from lakefmt.config.table_config import TableConfig, cdc_mode, check_writable
from lakefmt.errors import WriterActive
from lakefmt.filegroups.cdc.files import list_change_files
from lakefmt.filegroups.model import all_slices, build_slices, join_path
from lakefmt.filegroups.pending_plans import groups_of_plan
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.formats.names import parse_base_file, parse_log_file
from lakefmt.timeline.consumers import consumed_until
from lakefmt.timeline.heartbeat import heartbeat_name
from lakefmt.timeline.instant import Action, Instant, State, format_instant_time
from lakefmt.timeline.locks.open import Lease
from lakefmt.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt.timeline.savepoint import Savepoint, parse_savepoint, savepoints_of
from lakefmt.transactions.client import WriteClient, open_write_client, request_service, take_over_instant
from lakefmt.values import FileId, InstantTime, PartitionPath, TableType

__all__ = [
    "CleanResult",
    "clean_rules",
    "finish_clean",
    "plan_clean_of",
    "planned_groups",
    "run_clean",
    "run_waiting_cleans",
]


@dataclass(frozen=True, slots=True)
class CleanResult:
    """What a clean did; prints as one readable line. ``instant`` None: nothing was to be removed, or it is a plan only."""

    instant: InstantTime | None
    plan: CleanPlan
    completion_time: InstantTime | None = None
    finished: tuple[InstantTime, ...] = ()
    seconds: float = 0.0

    @property
    def files_deleted(self) -> int:
        """Files that are gone."""
        return 0 if self.completion_time is None else self.plan.num_files

    def __str__(self) -> str:
        if self.completion_time is None:
            return str(self.plan)
        return (
            f"clean {self.instant}: {self.plan.num_files:,} files deleted, {self.plan.num_bytes:,} bytes, "
            f"{self.seconds:.3f} s"
        )


def clean_rules(settings: Settings) -> CleanRules:
    """Return the rules that settings ask for; without a policy the count that somebody set decides (as in Hudi).

    Example:
        >>> from lakefmt.config.settings import resolve_settings
        >>> clean_rules(resolve_settings({"hoodie.clean.hours.retained": 5})).policy.value
        'KEEP_LATEST_BY_HOURS'
    """
    named = settings.text("hoodie.clean.policy")
    policy = CleanPolicy.KEEP_LATEST_COMMITS
    if named is not None:
        policy = CleanPolicy.parse(named)
    elif settings.origins["hoodie.clean.commits.retained"] == "default":
        if settings.origins["hoodie.clean.hours.retained"] != "default":
            policy = CleanPolicy.KEEP_LATEST_BY_HOURS
        elif settings.origins["hoodie.clean.fileversions.retained"] != "default":
            policy = CleanPolicy.KEEP_LATEST_FILE_VERSIONS
    return CleanRules(
        policy,
        settings.integer("hoodie.clean.commits.retained"),
        settings.integer("hoodie.clean.fileversions.retained"),
        settings.integer("hoodie.clean.hours.retained"),
    )


def plan_clean_of(client: TableClient, options: Mapping[str, object] | None = None) -> CleanPlan:
    """Return what :func:`run_clean` would remove; nothing is changed."""
    write_client = open_write_client(client, options)
    config = client.load_config()
    check_writable(config)
    return _plan(write_client, TableState(config, write_client.timeline(config).load()))


def run_clean(
    client: TableClient, options: Mapping[str, object] | None = None, *, schedule: bool = False
) -> CleanResult:
    """Remove the file slices that nobody can ask for any more.

    Args:
        client: the table.
        options: settings of the call.
        schedule: only request the plan; the next clean, or another engine's, carries it out.

    Raises:
        WriterActive: another clean is at work.
        CorruptFile: a pending clean's plan, a savepoint or a consumer's file cannot be understood.
        LockUnavailable: the table lock could not be had in time.
    """
    begun = perf_counter()
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        config = client.load_config()
        check_writable(config)
        finished = _finish_pending(write_client, config, lease)
        state = TableState(config, write_client.timeline(config).load())
        plan = _plan(write_client, state)
        if not plan.num_files:
            return CleanResult(None, plan, finished=finished, seconds=perf_counter() - begun)
        record = clean_plan_record(client.store, plan, _extra(state, plan))
        body = encode_body(BodyKind.CLEANER_PLAN, record)
        heartbeat, time = request_service(write_client, state, Action.CLEAN, body, lease, start=not schedule)
    if schedule:
        heartbeat.stop()
        return CleanResult(time, plan, finished=finished, seconds=perf_counter() - begun)
    job = parse_clean_plan(client.store, record, f"the clean {time}")
    try:
        client.store.delete(job.paths)
        with write_client.lock.hold() as lease:
            completion = _complete(write_client, config, time, job, lease)
    except BaseException:
        heartbeat.abandon()  # the next clean carries the plan out again
        raise
    heartbeat.stop()
    return CleanResult(time, plan, completion, finished, perf_counter() - begun)


def run_waiting_cleans(client: TableClient, options: Mapping[str, object] | None = None) -> tuple[InstantTime, ...]:
    """Carry out the cleans that somebody requested or died in, and plan none; return those that were done.

    Args:
        client: the table.
        options: settings of the call.

    Raises:
        WriterActive: another process is at one of them.
        CorruptFile: a plan cannot be understood.
        LockUnavailable: the table lock could not be had in time.
    """
    write_client = open_write_client(client, options)
    config = client.load_config()
    check_writable(config)
    waiting = [pending for pending in write_client.timeline(config).load().pending if pending.action is Action.CLEAN]
    return tuple(pending.time for pending in waiting if _run_waiting(write_client, config, pending))


def _run_waiting(write_client: WriteClient, config: TableConfig, waiting: Instant) -> bool:
    """Carry out one clean: taken up under the lock, files deleted without it; False when somebody else has done it."""
    client = write_client.client
    with write_client.lock.hold() as lease:
        timeline = write_client.timeline(config).load()
        pending = next((i for i in timeline.pending if (i.time, i.action) == (waiting.time, Action.CLEAN)), None)
        if pending is None:
            return False
        _check_idle(write_client, config, pending)
        job = _job(write_client, config, pending)
        if job is None:
            return False
        lease.check()
        heartbeat = take_over_instant(write_client, pending)
    try:
        write_client.timeline(config).start(pending.time, Action.CLEAN)
        client.store.delete(job.paths)
        with write_client.lock.hold() as lease:
            _complete(write_client, config, pending.time, job, lease)
    except BaseException:
        heartbeat.abandon()  # the next clean carries the plan out again
        raise
    heartbeat.stop()
    return True


def _complete(
    write_client: WriteClient, config: TableConfig, time: InstantTime, job: CleanJob, lease: Lease
) -> InstantTime:
    timeline_store = write_client.timeline(config)
    timeline_store.check_pending(time, Action.CLEAN)
    completion = write_client.instant_time_generator(config, timeline_store.load())()
    body = encode_body(BodyKind.CLEAN_METADATA, clean_metadata_record(time, job, 0))
    lease.check()
    return timeline_store.complete(time, Action.CLEAN, completion, body).order_time


def _finish_pending(write_client: WriteClient, config: TableConfig, lease: Lease) -> tuple[InstantTime, ...]:
    """Carry out the plans of cleans that somebody requested or died in; call under the lock."""
    done = []
    for pending in write_client.timeline(config).load().pending:
        if pending.action is not Action.CLEAN:
            continue
        _check_idle(write_client, config, pending)
        if finish_clean(write_client, config, pending, lease):
            done.append(pending.time)
    return tuple(done)


def _check_idle(write_client: WriteClient, config: TableConfig, pending: Instant) -> None:
    """Raise when somebody may be carrying the clean out."""
    life = write_client.writer_liveness(config, write_client.timeline(config).load(), pending)
    if pending.state is State.INFLIGHT and life.alive:
        raise WriterActive(f"the clean {pending.time} is at work ({life.reason}); try again later")


def finish_clean(write_client: WriteClient, config: TableConfig, pending: Instant, lease: Lease) -> bool:
    """Carry out the plan of one pending clean, whoever made it; False: it had none yet and was removed.

    Call under the lock, and only when nobody is at work on it.
    """
    client = write_client.client
    job = _job(write_client, config, pending)
    if job is None:
        return False
    write_client.timeline(config).start(pending.time, Action.CLEAN)
    client.store.delete(job.paths)
    _complete(write_client, config, pending.time, job, lease)
    client.store.delete([heartbeat_name(pending.time)])
    return True


def _job(write_client: WriteClient, config: TableConfig, pending: Instant) -> CleanJob | None:
    """Return what is still to delete of a pending clean; None: it had no plan yet and was removed."""
    client, timeline_store = write_client.client, write_client.timeline(config)
    state = TableState(config, timeline_store.load())
    requested = next((f for f in state.timeline.files_of(pending) if f.state is State.REQUESTED), pending)
    body = timeline_store.read_body(requested)
    if not body:
        # It died before its plan was written: nothing was deleted, so it never was.
        timeline_store.remove_pending(pending.time, Action.CLEAN)
        return None
    record = decode_body(BodyKind.CLEANER_PLAN, body, what=requested.file_name)
    return _without_reachable(client, state, parse_clean_plan(client.store, record, requested.file_name))


def _without_reachable(client: TableClient, state: TableState, job: CleanJob) -> CleanJob:
    """Take off what the newest snapshot consists of and what savepoints keep: both may be younger than the plan."""
    bases, logs = client.listing(state.config).files(list(job.files))
    slices = build_slices(bases, logs, client.slicing(state, bases, logs), client.replaced(state))
    kept = {path for file_slice in slices for path in file_slice.paths} | _saved(client, state)
    if cdc_mode(state.config.properties) is not None:
        current = {(base.partition, base.file_id, base.instant) for base in bases if base.path in kept}
        changes = list_change_files(client.store, list(job.files))
        kept |= {file.path for file in changes if (file.partition, file.file_id, file.instant) in current}
    files = {p: tuple(n for n in names if join_path(p, n) not in kept) for p, names in job.files.items()}
    return replace(job, files={p: names for p, names in files.items() if names})


# --- what is known before planning ----------------------------------------------------------------------------------


def _plan(write_client: WriteClient, state: TableState) -> CleanPlan:
    client, timeline = write_client.client, state.timeline
    rules = clean_rules(write_client.settings)
    needs = _needs(write_client, state)
    moment = client.clock.now()
    zone = state.config.zone or moment.astimezone().tzinfo or UTC
    earliest = earliest_to_retain(timeline, rules, format_instant_time(moment, zone), zone)
    if earliest is None and rules.policy is not CleanPolicy.KEEP_LATEST_FILE_VERSIONS:
        return CleanPlan(rules, None, timeline.commits[-1].time if timeline.commits else None)
    partitions = _changed_partitions(write_client, state, rules, earliest)
    bases, logs = client.listing(state.config).files(partitions)
    slices = all_slices(bases, logs, client.slicing(state, bases, logs))
    plan = plan_clean(timeline, slices, client.replaced(state), rules, needs, earliest)
    if cdc_mode(state.config.properties) is None:
        return plan
    return with_change_files(plan, list_change_files(client.store, plan.files))


def _needs(write_client: WriteClient, state: TableState) -> Needs:
    client = write_client.client
    planned = frozenset(planned_groups(write_client, state))
    return Needs(frozenset(_saved(client, state)), planned, consumed_until(client.store, client.clock.now()))


def _saved(client: TableClient, state: TableState) -> set[str]:
    """Return the files that savepoints name, and those that a restore to them will want besides."""
    saved: set[str] = set()
    for instant in savepoints_of(state.timeline):
        record = decode_body(BodyKind.SAVEPOINT_METADATA, client.read_body(state, instant), what=instant.file_name)
        kept = parse_savepoint(instant.time, record, instant.file_name)
        saved.update(kept.files)
        if state.config.table_type is TableType.MERGE_ON_READ:
            saved.update(_compacted_since(client, state, kept))
    return saved


def _compacted_since(client: TableClient, state: TableState, kept: Savepoint) -> Iterable[str]:
    """Yield base files of compactions that were pending when a savepoint was made: a restore to it leaves them."""
    bases: dict[GroupKey, str] = {}
    for path in kept.files:
        partition, _, name = path.rpartition("/")
        base, log = parse_base_file(name), parse_log_file(name)
        if log is not None:
            bases.setdefault((PartitionPath(partition), log.file_id), "")
        elif base is not None:
            bases[PartitionPath(partition), base.file_id] = base.instant
    for instant in state.timeline.commits:
        if instant.action is not Action.COMMIT or instant.time > kept.instant:
            continue
        for stat in client.commit_metadata(state, instant).stats:
            if bases.get((stat.partition_path, stat.file_id), instant.time) < instant.time:
                yield stat.path


def planned_groups(write_client: WriteClient, state: TableState) -> Iterable[tuple[PartitionPath, FileId]]:
    """Yield the file groups that pending compactions, log compactions and clusterings will read."""
    for pending in state.timeline.pending:
        yield from groups_of_plan(write_client.client, state, pending)


def _changed_partitions(
    write_client: WriteClient, state: TableState, rules: CleanRules, earliest: Instant | None
) -> list[PartitionPath] | None:
    """Return the partitions in which something may have become removable since the last clean; None: all of them.

    A slice becomes removable when the commit that took its place falls behind the floor, so it lies in a partition that
    a commit between the last clean's floor and this one's has touched.
    """
    if earliest is None or not write_client.settings.flag("hoodie.clean.incremental.enabled"):
        return None
    client, timeline = write_client.client, state.timeline
    before = _last_floor(write_client, state, rules)
    if before is None:
        return None
    if before < (timeline.first_active or "") and (before or _has_archive(client, state.config)):
        return None
    touched: set[PartitionPath] = set()
    for instant in timeline.commits:
        if before <= instant.time < earliest.time:
            commit = client.commit_metadata(state, instant)
            touched |= {s.partition_path for s in commit.stats if s.prev_commit not in (None, "", "null")}
            touched |= set(commit.replaced_file_ids)
    return sorted(touched)


def _last_floor(write_client: WriteClient, state: TableState, rules: CleanRules) -> str | None:
    """Return the floor of the last clean: "" when there was none, None when it does not help."""
    cleans = state.timeline.completed_of(Action.CLEAN)
    if not cleans:
        return ""
    body = write_client.client.read_body(state, cleans[-1])
    if not body:
        return None
    said: Mapping[str, Any] = decode_body(BodyKind.CLEAN_METADATA, body, what=cleans[-1].file_name)
    policies = {part["policy"] for part in said["partitionMetadata"].values()}
    extra = said.get("extraMetadata") or {}
    seen = {time for time in str(extra.get(SAVEPOINTS_SEEN) or "").split(",") if time}
    if policies - {rules.policy.value} or not seen <= {i.time for i in savepoints_of(state.timeline)}:
        return None
    return str(extra.get(FLOOR) or "") or None


def _has_archive(client: TableClient, config: TableConfig) -> bool:
    return any(True for _ in client.store.list(config.history_directory, recursive=False))


def _extra(state: TableState, plan: CleanPlan) -> dict[str, str]:
    found = {SAVEPOINTS_SEEN: ",".join(i.time for i in savepoints_of(state.timeline)), FLOOR: plan.floor or ""}
    return {key: value for key, value in found.items() if value}
