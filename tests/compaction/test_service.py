"""The driver of table services: the order of its steps, and what it leaves when one of them fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from lakefmt._core.compaction.service import run_pending, run_service
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.filegroups.table_client import TableState
from lakefmt._core.timeline.heartbeat import heartbeat_name
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.locks.api import Lease
from lakefmt._core.transactions.client import WriteClient, open_write_client
from lakefmt._core.transactions.instant import InstantTransaction
from lakefmt._core.values import InstantTime
from lakefmt.errors import InstantNotFound, LakefmtError, StorageError, UnsupportedFeature
from tests.kit import rows
from tests.undo.scenarios import make


@dataclass
class RecordingService:
    """A service that only records its calls; `act` is called at each of them."""

    write_client: WriteClient
    has_work: bool = True
    act: Callable[[str], object] = lambda step: None
    calls: list[str] = field(default_factory=list)

    @property
    def action(self) -> Action:
        return Action.CLEAN

    def _record(self, step: str) -> None:
        self.calls.append(step)
        self.act(step)

    def check_table(self, config: TableConfig) -> None:
        self._record("check table")

    def propose(self, state: TableState) -> str:
        self._record("propose")
        return "proposal"

    def encode(self, state: TableState, proposal: str) -> tuple[str, bytes] | None:
        return (f"plan of {proposal}", b"requested") if self.has_work else None

    def check_idle(self, state: TableState, pending: Instant) -> None:
        self._record("check idle")

    def read_pending(self, state: TableState, pending: Instant, lease: Lease) -> str | None:
        self._record("read pending")
        return "pending plan"

    def discard_attempt(self, state: TableState, time: InstantTime, plan: str) -> None:
        self._record("discard")

    def execute(self, transaction: InstantTransaction, state: TableState, plan: str) -> str:
        self._record(f"execute {plan}")
        return "output"

    def finish_output(
        self, transaction: InstantTransaction, state: TableState, plan: str, output: str
    ) -> tuple[bytes, None]:
        self._record("finish output")
        return b"completed", None

    def release_attempt(self, state: TableState, time: InstantTime, plan: str) -> None:
        self._record("release")


def service_over_new_table() -> RecordingService:
    table = make()
    table.upsert(rows(0, 4, ts=1))
    return RecordingService(open_write_client(table.client))


def cleans(service: RecordingService) -> list[State]:
    return [i.state for i in service.write_client.client.load().timeline if i.action is Action.CLEAN]


def fail_at(step: str, error: Exception) -> Callable[[str], None]:
    def act(called: str) -> None:
        if called == step:
            raise error

    return act


FIRST_RUN = ["check table", "check table", "propose", "execute plan of proposal", "check table", "finish output"]


def test_a_run_plans_executes_and_completes() -> None:
    service = service_over_new_table()
    run = run_service(service)
    assert service.calls == FIRST_RUN
    assert run.proposal == "proposal"
    assert run.run is not None
    assert (run.run.plan, run.run.output, run.finished) == ("plan of proposal", "output", ())
    assert cleans(service) == [State.COMPLETED]
    assert service.write_client.client.store.info(heartbeat_name(run.run.instant)) is None


def test_nothing_to_do_leaves_no_instant() -> None:
    service = service_over_new_table()
    service.has_work = False
    assert run_service(service).run is None
    assert cleans(service) == []


def test_a_scheduled_plan_is_executed_by_the_next_run_before_it_plans() -> None:
    service = service_over_new_table()
    scheduled = run_service(service, schedule=True).run
    assert scheduled is not None
    assert scheduled.completed is None
    assert cleans(service) == [State.REQUESTED]
    assert service.calls == ["check table", "propose"]
    service.calls.clear()
    service.has_work = False
    assert run_service(service).finished == (scheduled.instant,)
    execution = ["check table", "check idle", "read pending", "discard", "execute pending plan"]
    assert service.calls == [*FIRST_RUN[:1], *execution, "check table", "finish output", "check table", "propose"]
    assert cleans(service) == [State.COMPLETED]


def test_the_table_lock_is_free_while_files_are_written_and_held_around_it() -> None:
    service = service_over_new_table()
    free: dict[str, bool] = {}
    options = {"hoodie.write.lock.wait_time_ms": 1, "hoodie.write.lock.client.num_retries": 0}
    other = open_write_client(service.write_client.client, options)

    def try_lock(step: str) -> None:
        try:
            with other.lock.hold():
                free[step] = True
        except LakefmtError:
            free[step] = False

    service.act = try_lock
    run_service(service)
    assert free == {
        "check table": False,
        "propose": False,
        "execute plan of proposal": True,
        "finish output": False,
    }


@pytest.mark.parametrize(
    ("error", "is_released"), [(UnsupportedFeature("no"), True), (StorageError("no"), False), (KeyError("no"), False)]
)
@pytest.mark.parametrize("step", ["execute plan of proposal", "finish output"])
def test_a_failed_attempt_stays_pending_and_is_executed_again(step: str, error: Exception, is_released: bool) -> None:
    service = service_over_new_table()
    service.act = fail_at(step, error)
    with pytest.raises(type(error)):
        run_service(service)
    assert ("release" in service.calls) is is_released
    assert cleans(service) == [State.INFLIGHT]
    service.act = lambda called: None
    assert len(run_service(service).finished) == 1
    assert cleans(service) == [State.COMPLETED, State.COMPLETED]


def test_a_table_that_the_service_refuses_by_now_is_not_completed_on() -> None:
    """The properties may change while files are written: they are read again under the lock that completes."""
    service = service_over_new_table()

    def refuse_after_execution(step: str) -> None:
        if step == "check table" and "execute plan of proposal" in service.calls:
            raise UnsupportedFeature("the table has a metadata table by now")

    service.act = refuse_after_execution
    with pytest.raises(UnsupportedFeature):
        run_service(service)
    assert cleans(service) == [State.INFLIGHT]


def test_a_pending_instant_that_is_not_there_is_an_error() -> None:
    with pytest.raises(InstantNotFound):
        run_pending(service_over_new_table(), "20260101000000000")
