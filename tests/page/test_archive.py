"""A large archive is shown part by part: the parts say what the whole says, and only a part is held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import lakefmt
from lakefmt._core.page import timeline
from lakefmt._core.timeline.archive import HistoryStore
from tests.growth import tables as growth_tables
from tests.page.kit import Page, id_of, served, unpack


@pytest.fixture(scope="module", params=["read/v8_mor_archived_120", "read/v6_cow_archived_0150", "own"])
def table(request, tmp_path_factory) -> lakefmt.Table:
    if request.param == "own":
        return growth_tables.archived(48)
    return lakefmt.open_table(unpack(request.param, tmp_path_factory.mktemp("archive")))


@pytest.fixture
def pages(table, monkeypatch) -> Iterator[tuple[Page, Page]]:
    """A page that holds the whole archive, and one that holds a part of it."""
    with served(table.client.store.url) as whole, served(table.client.store.url) as parts:
        ask = parts.facts

        def facts(path: str) -> Any:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(timeline, "_MOST_ARCHIVED", 0)
                return ask(path)

        monkeypatch.setattr(parts, "facts", facts)
        yield whole, parts


def _whole(page: Page, path: str) -> dict[str, Any]:
    facts = page.facts(path)
    while not facts.get("complete", True):
        facts = page.facts(path)
    return dict(facts)


def _names(facts: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted((each["time"], each["action"]) for each in facts["instants"])


def test_a_window_of_the_archive_is_that_of_the_whole(pages):
    whole, parts = pages
    base = f"/tables/{id_of(whole)}/timeline?archived=1"
    all_of_it = _whole(whole, base)
    assert _whole(parts, base) == all_of_it
    starts = [each["start"] for each in all_of_it["instants"]]
    for place in range(0, len(starts), 7):
        for length in (0.5, 5.0, (starts[-1] - starts[0]) / 3):
            address = f"{base}&start={starts[place] - 0.1:.3f}&end={starts[place] + length:.3f}"
            assert _whole(parts, address) == _whole(whole, address)


def test_columns_of_many_are_those_of_the_whole(pages, monkeypatch):
    whole, parts = pages
    monkeypatch.setattr(timeline, "MOST_BARS", 3)
    base = f"/tables/{id_of(whole)}/timeline?archived=1"
    found = [page.facts(f"{base}&width=400") for page in (whole, parts)]
    assert found[0]["columns"]
    sums = [sum(each["count"] for each in facts["columns"]) for facts in found]
    assert sums == [facts["shown"] for facts in found] == [found[0]["total"]] * 2
    by_action = [
        {name: sum(e["count"] for e in facts["columns"] if e["action"] == name) for name in facts["counts"]}
        for facts in found
    ]
    assert by_action[0] == by_action[1]
    assert found[0]["counts"] == found[1]["counts"]


@pytest.mark.in_turn(4)
@pytest.mark.parametrize("action", ["", "commit", "clean", "deltacommit"])
@pytest.mark.parametrize("limit", [1, 2, 7, 1000])
def test_pages_of_the_list_are_those_of_the_whole(pages, action, limit):
    whole, parts = pages
    before, seen = "", []
    while True:
        path = f"/tables/{id_of(whole)}/instants?archived=1&action={action}&limit={limit}&before={before}"
        one, other = whole.facts(path), parts.facts(path)
        assert other == one
        seen += _names(other)
        before = other["next"]
        if not before:
            break
    assert len(seen) == len(set(seen))


def test_an_archived_instant_has_its_details(pages):
    whole, parts = pages
    base = f"/tables/{id_of(whole)}/instants"
    for each in whole.facts(f"{base}?archived=1&limit=1000")["instants"][::3]:
        path = f"{base}/{each['time']}?action={each['action']}"
        assert parts.facts(path) == whole.facts(path)
        if each["completion"]:
            assert (
                parts.facts(f"{base}/{each['completion']}")["time"]
                == whole.facts(f"{base}/{each['completion']}")["time"]
            )


def test_what_a_log_repeats_of_an_earlier_one_is_counted_once(tmp_path, monkeypatch):
    path = unpack("read/v6_cow_archived_0150", tmp_path)
    (folder,) = {log.parent for log in path.rglob(".commits_.archive.*") if "metadata" not in log.parts}
    newest = max(folder.glob(".commits_.archive.*"), key=lambda log: int(log.name.split(".")[3].partition("_")[0]))
    # As after an archive step that died behind its log: the next one has the same instants.
    (folder / ".commits_.archive.999_1-0-1").write_bytes(newest.read_bytes())
    with served(path) as page:
        told = _whole(page, f"/tables/{id_of(page)}/timeline?archived=1")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(timeline, "_MOST_ARCHIVED", 0)
            parts = _whole(page, f"/tables/{id_of(page)}/timeline?archived=1")
        assert parts == told
        assert parts["total"] == len(parts["instants"]) == len(set(_names(parts)))


@pytest.mark.parametrize("name", ["read/v6_cow_archived_0150", "own"])
def test_an_archive_of_either_layout_is_shown_in_parts(name, tmp_path, monkeypatch):
    table = growth_tables.archived(48) if name == "own" else lakefmt.open_table(unpack(name, tmp_path))
    monkeypatch.setattr(timeline, "_MOST_ARCHIVED", 0)
    monkeypatch.setattr(HistoryStore, "load", lambda store: pytest.fail("the whole archive was loaded"))
    with served(table.client.store.url) as page:
        base = f"/tables/{id_of(page)}"
        assert page.facts(f"{base}/timeline?archived=1")["instants"]
        assert page.facts(f"{base}/instants?archived=1&limit=4")["instants"]


def test_only_a_part_of_the_archive_becomes_instants(monkeypatch):
    table = growth_tables.archived(48)
    total = len(table.client.at().with_history().timeline.archived)
    made: list[int] = []
    load = HistoryStore.load_between

    def counted(store: HistoryStore, *given: Any) -> Any:
        history = load(store, *given)
        made.append(len(history.instants))
        return history

    monkeypatch.setattr(HistoryStore, "load_between", counted)
    monkeypatch.setattr(HistoryStore, "load", lambda store: pytest.fail("the whole archive was loaded"))
    monkeypatch.setattr(timeline, "_MOST_ARCHIVED", 10)
    monkeypatch.setattr(timeline, "MOST_BARS", 8)
    with served(table.client.store.url) as page:
        base = f"/tables/{id_of(page)}"
        oldest = page.facts(f"{base}/timeline?archived=1")["first"]
        assert made == []  # all of it: numbers by columns
        page.facts(f"{base}/timeline?archived=1&start={oldest - 1}&end={oldest + 0.05}")
        listed = page.facts(f"{base}/instants?archived=1&limit=4")
        page.facts(f"{base}/instants/{listed['instants'][-1]['time']}")
        assert made
        assert max(made) <= 20 < total
