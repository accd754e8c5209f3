"""One driver for every table service: pending plans of others, then plan, request, execute, complete.

The table lock is held while a plan is made and requested, and again while the result is completed; it is free while files
are written or deleted, so that writers go on. A process that dies in between leaves a pending instant with its plan, and
the next run of the service executes that plan again, whichever engine made it: every step may be repeated.

A service (compaction, log compaction, clean) is a :class:`TableService`: a planner, an executor and an encoder.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.cdc import cdc_paths
from lakefmt._core.filegroups.table_client import TableAt, TableState
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.heartbeat import heartbeat_name
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant
from lakefmt._core.timeline.locks.api import Lease
from lakefmt._core.timeline.markers import list_marked, remove_markers
from lakefmt._core.timeline.rollback import is_of_attempt, list_data_files
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.transactions.client import WriteClient
from lakefmt._core.transactions.instant import InstantTransaction
from lakefmt._core.values import InstantTime, PartitionPath, WriteOperation
from lakefmt.errors import InstantNotFound, InstantNotPending, LakefmtError, StorageError

__all__ = [
    "PlanRun",
    "ServiceRun",
    "TableService",
    "find_pending",
    "finish_pending",
    "load_for_service",
    "run_all_pending",
    "run_pending",
    "run_service",
    "withdrawn_logs",
]

#: What the planner proposes, as it is shown to a user.
ProposalT = TypeVar("ProposalT")
#: What the requested file says, as it is executed.
PlanT = TypeVar("PlanT")
#: What the executor returns.
OutputT = TypeVar("OutputT")


class TableService(Protocol[ProposalT, PlanT, OutputT]):
    """The parts in which one table service differs from the others."""

    @property
    def write_client(self) -> WriteClient:
        """The table, its lock and the settings of the call."""
        ...

    @property
    def action(self) -> Action:
        """The action of the service's instants."""
        ...

    def check_table(self, config: TableConfig) -> None:
        """Raise when the service cannot run on such a table."""
        ...

    def propose(self, state: TableState) -> ProposalT:
        """Return what is to be done; nothing is changed."""
        ...

    def encode(self, state: TableState, proposal: ProposalT) -> tuple[PlanT, bytes] | None:
        """Return the plan and the content of its requested file; None: there is nothing to do."""
        ...

    def check_idle(self, state: TableState, pending: Instant) -> None:
        """Raise WriterActive when another process may be executing a pending instant."""
        ...

    def read_pending(self, state: TableState, pending: Instant, lease: Lease) -> PlanT | None:
        """Return the plan of a pending instant; None: there was none to execute, and the instant was removed."""
        ...

    def discard_attempt(self, state: TableState, time: InstantTime, plan: PlanT) -> None:
        """Delete what an earlier attempt at a plan wrote; call under the table lock."""
        ...

    def execute(self, transaction: InstantTransaction, state: TableState, plan: PlanT) -> OutputT:
        """Write or delete the files of a plan, without the table lock; may be repeated."""
        ...

    def finish_output(
        self, transaction: InstantTransaction, state: TableState, plan: PlanT, output: OutputT
    ) -> tuple[bytes, CommitMetadata | None]:
        """Check that the output can become visible, and return the content of the completed file, encoded and as values.

        Call under the table lock.

        Args:
            state: the table as it is under this lock.
        """
        ...

    def release_attempt(self, state: TableState, time: InstantTime, plan: PlanT) -> None:
        """Undo what a failed attempt of this process wrote, so that no writer has to wait until it counts as dead."""
        ...


@dataclass(frozen=True, slots=True)
class PlanRun(Generic[PlanT, OutputT]):
    """What became of one plan.

    Attributes:
        instant: requested time of its instant.
        plan: what the requested file says.
        completed: the completed instant; None: the plan is only requested.
        output: what the executor returned; None: the plan is only requested.
    """

    instant: InstantTime
    plan: PlanT
    completed: Instant | None = None
    output: OutputT | None = None


@dataclass(frozen=True, slots=True)
class ServiceRun(Generic[ProposalT, PlanT, OutputT]):
    """What a run of a service did.

    Attributes:
        proposal: what the planner proposed.
        run: what became of it; None: nothing was to be done.
        finished: pending instants that were completed before planning.
    """

    proposal: ProposalT
    run: PlanRun[PlanT, OutputT] | None = None
    finished: tuple[InstantTime, ...] = ()


def run_service(
    service: TableService[ProposalT, PlanT, OutputT], *, schedule: bool = False
) -> ServiceRun[ProposalT, PlanT, OutputT]:
    """Execute pending plans, then make one and execute it.

    Args:
        service: what is run.
        schedule: execute nothing: only request a plan, which the next run, or another engine, executes.

    Raises:
        WriterActive: another process executes a pending plan.
        LockUnavailable: the table lock could not be taken in time.
        LakefmtError: what the parts of the service raise.
    """
    write_client = service.write_client
    finished = () if schedule else run_all_pending(service)
    with write_client.lock.hold() as lease:
        state = load_for_service(service)
        proposal = service.propose(state)
        encoded = service.encode(state, proposal)
        if encoded is None:
            return ServiceRun(proposal, finished=finished)
        plan, body = encoded
        transaction = InstantTransaction.claim(write_client.at(state), service.action, lease, body, start=not schedule)
    if schedule:
        transaction.finish(has_markers=False)
        return ServiceRun(proposal, PlanRun(transaction.time, plan), finished)
    return ServiceRun(proposal, _execute_and_complete(service, transaction, state, plan), finished)


def run_all_pending(service: TableService[ProposalT, PlanT, OutputT]) -> tuple[InstantTime, ...]:
    """Execute every pending plan of a service; return the instants that were completed."""
    runs = []
    for pending in load_for_service(service).timeline.pending:
        if pending.action is service.action:
            with suppress(InstantNotFound):  # another process has completed or withdrawn it in the meantime
                runs.append(run_pending(service, pending.time))
    return tuple(run.instant for run in runs if run is not None)


def run_pending(service: TableService[ProposalT, PlanT, OutputT], time: str) -> PlanRun[PlanT, OutputT] | None:
    """Execute the pending plan of one instant, whichever engine made it.

    Returns:
        What became of it; None: there was no plan to execute, and the instant was removed.

    Raises:
        InstantNotFound: no instant of the service is pending at `time`.
        WriterActive: another process executes it.
    """
    write_client = service.write_client
    with write_client.lock.hold() as lease:
        state = load_for_service(service)
        pending = find_pending(state.timeline, time, service.action)
        service.check_idle(state, pending)
        plan = service.read_pending(state, pending, lease)
        if plan is None:
            return None
        with InstantTransaction.take_over(write_client, pending, lease) as transaction:
            service.discard_attempt(state, pending.time, plan)
            transaction.start(state.config)
    return _execute_and_complete(service, transaction, state, plan)


def finish_pending(
    service: TableService[ProposalT, PlanT, OutputT], state: TableState, pending: Instant, lease: Lease
) -> bool:
    """Execute and complete a pending plan under one hold of the table lock; no other process may be executing it.

    Args:
        service: what is run.
        state: the table.
        pending: the instant.
        lease: of the table lock.

    Returns:
        False when there was no plan to execute and the instant was removed.
    """
    plan = service.read_pending(state, pending, lease)
    if plan is None:
        return False
    transaction = InstantTransaction(service.write_client, pending.time, pending.action)
    transaction.start(state.config)
    output = service.execute(transaction, state, plan)
    _complete(service, transaction, plan, output, lease)
    service.write_client.client.store.delete([heartbeat_name(pending.time)])
    return True


def load_for_service(service: TableService[ProposalT, PlanT, OutputT]) -> TableState:
    """Return the table as it is now.

    Raises:
        LakefmtError: the service cannot run on such a table.
    """
    config = service.write_client.client.load_config()
    service.check_table(config)
    return TableState(config, service.write_client.timeline(config).load())


def find_pending(timeline: Timeline, time: str, action: Action) -> Instant:
    """Return the pending instant of an action and a requested time.

    Raises:
        InstantNotFound: there is none.
    """
    pending = next((i for i in timeline.pending if i.action is action and i.time == time), None)
    if pending is None:
        raise InstantNotFound(f"no {action.value} is pending at {time}")
    return pending


def withdrawn_logs(table_at: TableAt, paths: Collection[str]) -> set[str]:
    """Return the planned logs that are missing and that no commit names: slow writers put them, and deleted them when they lost.

    Of versions from 8 on the plan has no such log, as the name of a log tells its instant.

    Args:
        table_at: the table, at one moment.
        paths: the logs of a plan, relative to the table.
    """
    if table_at.timeline.layout > 1 or not paths:
        return set()
    partitions = sorted({PartitionPath(path.rpartition("/")[0]) for path in paths})
    _, logs = table_at.client.storage_listing(table_at.config).files(partitions)
    missing_logs = set(paths).difference(log.path for log in logs)
    if not missing_logs:
        return set()
    table_at = table_at.with_history()
    for instant in table_at.timeline.commits:
        # Its other logs are those of the slice, whoever put them.
        missing_logs.difference_update(stat.path for stat in table_at.commit_metadata(instant).stats)
    return missing_logs


def _execute_and_complete(
    service: TableService[ProposalT, PlanT, OutputT], transaction: InstantTransaction, state: TableState, plan: PlanT
) -> PlanRun[PlanT, OutputT]:
    try:
        with transaction:  # when it fails, the next run executes the plan again
            output = service.execute(transaction, state, plan)
            with service.write_client.lock.hold() as lease:
                completed = _complete(service, transaction, plan, output, lease)
    except LakefmtError as error:
        with suppress(LakefmtError):
            if isinstance(error, InstantNotPending) or not transaction.is_held():
                _remove_unnamed_files(service, transaction)
        # Not after a failure of the store: the completed file may still appear.
        if not isinstance(error, StorageError):
            with suppress(LakefmtError, LookupError, TypeError, ValueError):
                service.release_attempt(state, transaction.time, plan)
        raise
    transaction.finish()
    return PlanRun(transaction.time, plan, completed, output)


def _remove_unnamed_files(service: TableService[ProposalT, PlanT, OutputT], transaction: InstantTransaction) -> None:
    """Delete what this process wrote for a plan that another process has run or withdrawn.

    Files count by the instant in their names, at the latest when it is older than the active timeline: the rows would be there
    twice.
    """
    client, time = service.write_client.client, transaction.time
    own = [n for n in list_data_files(client.store) if is_of_attempt(n, time, service.write_client.attempt_number)]
    if own:
        state = load_for_service(service)
        commits = [
            client.at(state).commit_metadata(i) for i in state.timeline.completed_of(*COMMIT_ACTIONS) if i.time == time
        ]
        stats = [stat for commit in commits for stat in commit.stats]
        client.store.delete({*own}.difference(path for stat in stats for path in (stat.path, *cdc_paths(stat))))
    if time not in load_for_service(service).timeline.pending_times:
        remove_markers(client.store, time)


def _remove_files_of_other_attempts(
    service: TableService[ProposalT, PlanT, OutputT],
    transaction: InstantTransaction,
    commit: CommitMetadata,
    lease: Lease,
) -> None:
    """Delete what another process wrote for the same plan and died before it completed.

    Its file groups are others, and files count by the instant in their names: the rows would be there twice.
    """
    store = service.write_client.client.store
    committed = {stat.path for stat in commit.stats}
    others = [path for path in list_marked(store, transaction.time) or () if path not in committed]
    if others:
        lease.check()
        store.delete(others)


def _complete(
    service: TableService[ProposalT, PlanT, OutputT],
    transaction: InstantTransaction,
    plan: PlanT,
    output: OutputT,
    lease: Lease,
) -> Instant:
    state = load_for_service(service)
    transaction.check_inflight(state.timeline)
    body, commit = service.finish_output(transaction, state, plan, output)
    if commit is not None and commit.operation is WriteOperation.CLUSTER:
        _remove_files_of_other_attempts(service, transaction, commit, lease)
    return transaction.complete(lease, state.config, state.timeline, body, commit)
