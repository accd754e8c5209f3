"""What changes a table is planned, shown and confirmed, runs once, only as it was shown, and is in the audit log."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest

from lakefmt._core.page.services import PageActions
from lakefmt.errors import InvalidInputError
from tests.page.kit import SCHEMA, TOKEN, id_of, make_table, served


@pytest.fixture
def acting(tmp_path):
    table = make_table(tmp_path / "t", commits=4)
    log = tmp_path / "audit.jsonl"
    with served(tmp_path / "t", actions=PageActions(log)) as page:
        yield page, f"/tables/{id_of(page)}/actions", table, log


def confirm_of(text: str) -> str:
    return re.search(r'name="confirm" value="([^"]+)"', text).group(1)


def states_of(log) -> list[str]:
    return [json.loads(line)["state"] for line in log.read_text().splitlines()]


@pytest.mark.slow
def test_an_action_is_planned_confirmed_run_and_logged(acting):
    page, actions, table, log = acting
    before = table.snapshot().instant
    planned = page.post(f"{actions}/plan", "action=clustering")
    assert planned.status == 200
    assert table.snapshot().instant == before, "a plan changes nothing"
    assert log.read_text() == ""
    done = page.post(f"{actions}/run", f"confirm={confirm_of(planned.text)}")
    assert ": done" in done.text
    assert table.snapshot().instant != before
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [entry["state"] for entry in entries] == ["begun", "done"]
    assert entries[0]["action"] == "clustering"
    assert entries[0]["plan"].startswith("cluster")


def test_what_was_confirmed_runs_once(acting):
    page, actions, _table, log = acting
    confirm = confirm_of(page.post(f"{actions}/plan", "action=clean").text)
    assert page.post(f"{actions}/run", f"confirm={confirm}").status == 200
    assert page.post(f"{actions}/run", f"confirm={confirm}").status == 400
    assert states_of(log) == ["begun", "done"]


def test_a_plan_that_has_changed_is_shown_again_and_not_run(acting):
    page, actions, table, log = acting
    newest = table.snapshot().instant
    confirm = confirm_of(page.post(f"{actions}/plan", "action=clustering").text)
    table.upsert(pa.table({"id": ["new"], "city": ["bergen"], "v": [1]}, SCHEMA))
    table.insert(pa.table({"id": ["newer"], "city": ["bergen"], "v": [1]}, SCHEMA))
    reply = page.post(f"{actions}/run", f"confirm={confirm}")
    assert "has changed since" in reply.text
    assert log.read_text() == ""
    assert newest != table.snapshot().instant


@pytest.mark.parametrize("action", ["rollback", "savepoint", "restore"])
def test_instants_are_undone_kept_and_restored(acting, action):
    page, actions, table, log = acting
    commits = [i.time for i in table.client.at().timeline.commits]
    kept = table.savepoints()[0].instant
    instant = {"rollback": commits[-1], "savepoint": commits[-1], "restore": kept}[action]
    planned = page.post(f"{actions}/plan", f"action={action}&instant={instant}")
    assert planned.status == 200, planned.text
    done = page.post(f"{actions}/run", f"confirm={confirm_of(planned.text)}")
    assert ": done" in done.text, done.text
    now = [i.time for i in table.client.at().timeline.commits]
    if action == "savepoint":
        assert instant in [each.instant for each in table.savepoints()]
    else:
        assert now == [time for time in commits if time < instant or action == "restore"][: len(now)]
        assert len(now) < len(commits)
    assert states_of(log) == ["begun", "done"]


@pytest.mark.parametrize(
    "form",
    ["", "action=drop", "action=rollback", "action=rollback&instant=../x", "action=packing", "action=clean&action=%ff"],
)
def test_a_form_that_is_wrong_is_refused(acting, form):
    page, actions, _table, log = acting
    assert page.post(f"{actions}/plan", form).status == 400
    assert log.read_text() == ""


def test_a_form_of_another_page_is_refused(acting):
    page, actions, table, _log = acting
    before = table.snapshot().instant
    confirm = confirm_of(page.post(f"{actions}/plan", "action=clustering").text)
    body = f"confirm={confirm}"
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    cookie = {"Cookie": f"{page.server.cookie}={TOKEN}"}
    for headers in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        reply = page.ask(
            f"{actions}/run", method="POST", token=None, headers={**kind, **cookie, **headers}, body=body.encode()
        )
        assert reply.status == 403
    other = page.ask(
        f"{actions}/run",
        method="POST",
        headers={"Origin": page.server.origin, "Content-Type": "text/plain"},
        body=body.encode(),
    )
    assert other.status == 415
    assert table.snapshot().instant == before


def test_what_fails_is_logged_and_told(acting, monkeypatch):
    from lakefmt._core.table import Table
    from lakefmt.errors import LockUnavailable

    page, actions, _table, log = acting
    confirm = confirm_of(page.post(f"{actions}/plan", "action=clustering").text)

    def refuses(*_args, **_options):
        raise LockUnavailable("somebody holds it")

    real = Table.cluster
    monkeypatch.setattr(Table, "cluster", lambda self, *a, **o: real(self, *a, **o) if o.get("dry_run") else refuses())
    reply = page.post(f"{actions}/run", f"confirm={confirm}")
    assert "somebody holds it" in reply.text
    assert states_of(log) == ["begun", "failed"]


def test_a_log_that_cannot_be_written_is_refused_at_the_start(tmp_path):
    with pytest.raises(InvalidInputError, match="cannot be written"):
        PageActions(tmp_path / "no" / "folder" / "log")
