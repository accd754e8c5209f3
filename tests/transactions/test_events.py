"""What lakefmt does is logged, silent by default, and handed to hooks, which break nothing."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

import lakefmt
from lakefmt.errors import CommitConflict
from lakefmt.events import Event, subscribe
from tests.kit import SECONDS_FOR_A_CHILD

ROWS = pa.table({"id": ["a", "b"], "v": [1, 2]})


@pytest.fixture
def seen() -> Iterator[list[Event]]:
    events: list[Event] = []
    unsubscribe = subscribe(events.append)
    yield events
    unsubscribe()


def test_commits_services_and_rollbacks_are_events(seen: list[Event]) -> None:
    lakefmt.write_table("memory://events", ROWS, record_key="id")
    table = lakefmt.open_table("memory://events")
    second = table.upsert(ROWS.slice(1))
    table.upsert(ROWS)
    table.clean(options={"hoodie.clean.commits.retained": 1})
    table.upsert(ROWS)
    table.rollback(table.timeline[-1].time)
    assert [event.name for event in seen] == ["commit"] * 3 + ["service", "commit", "rollback"]
    facts = seen[1].facts
    assert (facts["instant"], facts["operation"], facts["num_updates"]) == (second.instant, "upsert", 1)
    assert facts["bytes_written"] == second.bytes_written
    assert seen[1].table == "memory://events"


def test_a_conflict_and_its_retry_are_events(seen: list[Event]) -> None:
    lakefmt.write_table("memory://events-retry", ROWS, record_key="id")
    options = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
    table = lakefmt.open_table("memory://events-retry", options=options)
    other = lakefmt.open_table("memory://events-retry", options=options)
    read, once = table.client.at, []

    def at(state: object = None) -> object:
        if not once:
            once.append(True)
            other.upsert(ROWS)
        return read(state)

    table.client.at = at  # type: ignore[method-assign, assignment]
    table.update("id = 'a'", {"v": 7})
    names = [event.name for event in seen[1:] if event.name != "rollback"]  # the attempt that lost undoes its files
    assert names == ["commit", "conflict", "retry", "commit"]
    facts = {event.name: event.facts for event in seen}
    assert facts["retry"]["attempt"] == 2
    assert facts["conflict"]["kind"] == CommitConflict.kind


def test_records_have_the_facts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "lakefmt"):
        lakefmt.write_table("memory://events-logged", ROWS, record_key="id")
    (record,) = [record for record in caplog.records if record.name == "lakefmt"]
    assert (record.event, record.table, record.facts["num_inserts"]) == ("commit", "memory://events-logged", 2)
    assert record.getMessage().startswith("commit memory://events-logged: instant=")


def test_nothing_is_printed_by_default() -> None:
    code = "import lakefmt, pyarrow as pa; lakefmt.write_table('memory://x', pa.table({'id': ['a']}), record_key='id')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=SECONDS_FOR_A_CHILD, check=True)
    assert (ended.stdout, ended.stderr) == (b"", b"")


def test_a_hook_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: Event) -> None:
        raise ValueError("not mine")

    unsubscribe = subscribe(fail)
    lakefmt.write_table("memory://events-failing", ROWS, record_key="id")
    unsubscribe()
    unsubscribe()
    assert lakefmt.open_table("memory://events-failing").read().num_rows == 2
    assert "a hook for events failed" in caplog.text


def test_events_become_metrics() -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from lakefmt.telemetry import instrument

    reader = InMemoryMetricReader()
    end = instrument(MeterProvider([reader]).get_meter("test"))
    lakefmt.write_table("memory://events-metrics", ROWS, record_key="id")
    end()
    lakefmt.open_table("memory://events-metrics").upsert(ROWS)
    data = reader.get_metrics_data()
    metrics = {m.name: m.data.data_points for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
    (inserted,) = metrics["lakefmt.rows.inserted"]
    assert inserted.value == 2
    assert inserted.attributes["operation"] == "upsert"
    assert metrics["lakefmt.events"][0].value == 1
    assert metrics["lakefmt.event.duration"][0].count == 1
