"""A rollback with its own instant: run a plan, or finish a rollback whose process died; under the table lock.

Every step may be repeated. A rollback that died half-way is finished by the next writer from its stored plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from lakefmt.config.table_config import TableConfig
from lakefmt.errors import StateError
from lakefmt.filegroups.table_client import TableState
from lakefmt.timeline.heartbeat import heartbeat_name
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.timeline.locks.api import Lease
from lakefmt.timeline.markers import list_marked, remove_markers, remove_saved_writes
from lakefmt.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt.timeline.rollback import (
    KEEP_PLAN,
    RollbackPlan,
    execute_rollback,
    parse_rollback_plan,
    plan_rollback_of,
    rollback_metadata_record,
    rollback_plan_record,
)
from lakefmt.transactions.client import WriteClient
from lakefmt.transactions.instant import InstantTransaction
from lakefmt.values import InstantTime

__all__ = ["check_rollback_allowed", "finish_rollback", "run_rollback"]


def check_rollback_allowed(
    write_client: WriteClient, config: TableConfig, targets: Sequence[Instant], *, restoring: bool = False
) -> None:
    """Ask every commit observer before instants are rolled back; whatever an observer raises refuses the rollback.

    Args:
        write_client: the table.
        config: its properties.
        targets: the instants.
        restoring: a restore undoes them, at the end of which the metadata table is made anew: it has no objection.
    """
    for observer in write_client.client.observers if restoring else write_client.observers(config):
        observer.before_rollback(config, targets)


def run_rollback(
    write_client: WriteClient, state: TableState, target: Instant, plan: RollbackPlan, lease: Lease | None
) -> InstantTime:
    """Roll back an instant; call under the table lock.

    Args:
        write_client: the table.
        state: its properties and timeline.
        target: the instant, pending or completed.
        plan: its files.
        lease: of the table lock.

    Returns:
        The rollback's own instant time.

    Raises:
        LeaseLost: the lock was lost; nothing is deleted.
    """
    check_rollback_allowed(write_client, state.config, [target])
    timeline_store = write_client.timeline(state.config)
    time = write_client.instant_time_generator(state.config, state.timeline)()
    rollback = InstantTransaction(write_client, time, Action.ROLLBACK)
    record = rollback_plan_record(write_client.client.store, plan)
    with rollback:
        rollback.request(state.config, encode_body(BodyKind.ROLLBACK_PLAN, record))
        if lease is not None:
            lease.check()  # a target that was completed while this process slept stays: the next writer drops the plan
        if target.is_completed:
            # After the plan is on the timeline, else a death in between would look like a completed file that was lost;
            # before any data file is deleted, else readers would miss rows.
            timeline_store.reopen(target)
        _execute_and_complete(rollback, state.config, plan, lease)
    return time


def finish_rollback(write_client: WriteClient, state: TableState, pending: Instant, lease: Lease | None) -> None:
    """Finish a rollback whose process died: execute its stored plan again; call under the table lock.

    Engines hide a completed target before they delete a file of it. A rollback whose target is still complete has
    deleted nothing, and others may have committed on top of the target since: it is removed from the timeline.

    Args:
        write_client: the table.
        state: its properties and timeline.
        pending: the rollback's own instant.
        lease: of the table lock.
    """
    timeline_store, timeline = write_client.timeline(state.config), state.timeline
    requested = next((f for f in timeline.files_of(pending) if f.state is State.REQUESTED), pending)
    body = timeline_store.read_body(requested)
    if not body:
        # It died before its plan was written, so nothing was deleted.
        timeline_store.remove_pending(pending.time, Action.ROLLBACK)
        return
    record = decode_body(BodyKind.ROLLBACK_PLAN, body, what=requested.file_name)
    plan = parse_rollback_plan(write_client.client.store, record)
    if any(commit.time == plan.target for commit in timeline.commits):
        timeline_store.remove_pending(pending.time, Action.ROLLBACK)
        return
    check_rollback_allowed(write_client, state.config, [Instant(plan.target, plan.action, State.INFLIGHT)])
    with InstantTransaction(write_client, pending.time, Action.ROLLBACK) as rollback:
        rollback.start(state.config)
        _execute_and_complete(rollback, state.config, plan, lease)


def _execute_and_complete(
    rollback: InstantTransaction, config: TableConfig, plan: RollbackPlan, lease: Lease | None
) -> None:
    write_client = rollback.write_client
    store = write_client.client.store
    command_sizes = execute_rollback(store, plan, rollback.time)
    # The target leaves the timeline before the rollback completes: when the process dies in between, the pending
    # rollback is found and finished; the other way round a pending instant without files would be rolled back again.
    _remove_target(write_client, config, plan)
    record = rollback_metadata_record(store, plan, rollback.time, command_sizes)
    timeline = write_client.timeline(config).load()
    # The caller has proved the lock before the first deletion. Only what observers wrote since can depend on it: without
    # them a completed rollback records what was done, whether the lock is still held or not.
    proof = lease if write_client.observers(config) else None
    # A writer that was taken for dead in the middle of its rollback may have completed it.
    with suppress(StateError):
        rollback.complete(proof, config, timeline, encode_body(BodyKind.ROLLBACK_METADATA, record))


def _remove_target(write_client: WriteClient, config: TableConfig, plan: RollbackPlan) -> None:
    """Remove an instant whose files are deleted from the timeline, with its markers and heartbeat; may be repeated.

    A writer that was only slow may have written on. Files with markers that are newer than the plan are deleted, too,
    because nothing else tells of them once the markers are removed.
    """
    store, timeline_store = write_client.client.store, write_client.timeline(config)
    if plan.action in KEEP_PLAN:
        timeline_store.revert_to_requested(plan.target, plan.action)
    else:
        timeline_store.remove_pending(plan.target, plan.action)
    late = {*(list_marked(store, plan.target) or ())}.difference(*plan.files.values())
    if late:
        target = Instant(plan.target, plan.action, State.INFLIGHT)
        late_plan = plan_rollback_of(store, target, timeline_store.layout, late)
        store.delete(name for names in late_plan.files.values() for name in names)
    remove_saved_writes(store, plan.target)
    remove_markers(store, plan.target)
    store.delete([heartbeat_name(plan.target)])
