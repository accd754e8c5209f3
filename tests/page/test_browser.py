"""Chromium drives every view: no error in its console, nothing serious for axe, by keyboard, in the dark, as narrow as a phone."""

from __future__ import annotations

import pytest

from tests.judges.plugin import LEDGER, _refuse
from tests.page.browser import Browser, chromium, missing
from tests.page.kit import TOKEN, id_of, make_hostile_table, make_table, served, unpack

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(request, tmp_path_factory):
    lacking = missing()
    if lacking:
        _refuse(request.config, "CHROMIUM", lacking)
    with chromium(tmp_path_factory.mktemp("profile")) as each:
        yield each
        request.config.stash[LEDGER].add("CHROMIUM", str(each.driver.capabilities["browserVersion"]), 1)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    root = tmp_path_factory.mktemp("shown")
    make_table(root / "own", commits=8)
    make_hostile_table(root / "hostile")
    unpack("judges/v6_cow_types_0150", root)
    unpack("read/v8_mor_archived_120", root)
    unpack("compaction/v8_mor_pending_compaction_120", root)
    make_table(root / "damaged", commits=2)
    newest = sorted((root / "damaged" / ".hoodie" / "timeline").glob("*commit"))[-1]
    newest.write_bytes(b"Obj\x01no commit")
    with served(root, look_seconds=0.05) as page:
        yield page, root


def enter(browser: Browser, page, width: int = 1280, scheme: str = "light") -> str:
    browser.resize(width)
    browser.scheme(scheme)
    browser.open(f"{page.server.origin}/?token={TOKEN}")
    return page.server.origin


VIEWS = ("timeline", "files", "rows", "services", "health")


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        ("own", 1280, "light"),
        ("hostile", 1280, "dark"),
        ("v6_cow_types_0150", 390, "light"),
        ("v8_mor_archived_120", 390, "dark"),
        ("v8_mor_pending_compaction_120", 1280, "light"),
        ("damaged", 820, "dark"),
    ],
)
def test_every_view_is_shown_without_errors(browser, shown, name, width, scheme):
    page, _root = shown
    origin = enter(browser, page, width, scheme)
    assert browser.violations() == []
    base = f"{origin}/tables/{id_of(page, name)}"
    instant = page.facts(f"/tables/{id_of(page, name)}")["latest"]
    paths = [*VIEWS, f"instants/{instant}"] if instant else VIEWS
    browser.errors()
    for path in paths:
        browser.open(f"{base}/{path}")
        browser.keep(f"{name}-{path.partition('/')[0]}-{width}-{scheme}")
        # A damaged table is answered with a status that says so, and Chromium notes that.
        errors = [
            each for each in browser.errors() if not (name == "damaged" and "responded with a status of 4" in each)
        ]
        assert errors == [], path
        assert browser.violations() == [], path
        wide = browser.run("return document.documentElement.scrollWidth")
        assert wide <= width, f"{path} is {wide} wide: nothing but tables may scroll sideways"
    assert browser.run("return window.alerted") is None


def test_the_judge_says_no(browser, shown):
    page, _root = shown
    enter(browser, page)
    browser.run("document.getElementById('contains').removeAttribute('id'); document.querySelector('label').remove()")
    assert any("label" in each for each in browser.violations())
    browser.run("const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)")
    assert browser.run("return window.ran") is None, "an inline script is not run"
    assert browser.errors() != []


def test_the_timeline_is_zoomed_moved_and_opened_by_keyboard_and_pointer(browser, shown):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    page, _root = shown
    origin = enter(browser, page)
    browser.open(f"{origin}/tables/{id_of(page, 'own')}/timeline")

    def window():
        return browser.run("const d = document.getElementById('timeline-picture').dataset; return [+d.start, +d.end]")

    def changed(before):
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(browser.driver, 20, poll_frequency=0.02).until(lambda _: window() != before)
        return window()

    whole = window()
    browser.run("document.querySelector('a.lf-bar[tabindex=\"0\"]').focus()")
    ActionChains(browser.driver).send_keys(Keys.ARROW_LEFT).perform()
    assert browser.run("return document.activeElement.dataset.instant") is not None
    ActionChains(browser.driver).send_keys("+").perform()
    near = changed(whole)
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2, rel=0.01)
    assert f"start={near[0]:.3f}" in browser.driver.current_url, "the address names what is seen"
    browser.run("document.querySelector('[data-step=later]').click()")
    later = changed(near)
    assert later[0] > near[0]
    browser.run("document.querySelector('[data-step=all]').click()")
    again = changed(later)
    assert again[1] - again[0] == pytest.approx(whole[1] - whole[0], rel=0.05)
    picture = browser.driver.find_element("id", "timeline-picture")
    ActionChains(browser.driver).move_to_element(picture).click_and_hold().move_by_offset(150, 0).release().perform()
    assert changed(again)[0] < again[0]
    browser.driver.get(browser.driver.current_url)  # a link that can be sent
    browser.settle()
    browser.run("document.querySelector('a.lf-bar').focus()")
    ActionChains(browser.driver).send_keys(Keys.ENTER).perform()
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(browser.driver, 20, poll_frequency=0.02).until(lambda driver: "/instants/" in driver.current_url)
    browser.driver.back()
    assert browser.errors() == []


def test_two_marked_commits_lead_to_their_changes(browser, shown):
    page, _root = shown
    origin = enter(browser, page)
    browser.open(f"{origin}/tables/{id_of(page, 'own')}/timeline")
    browser.run(
        "const f = document.querySelectorAll('input[name=from]'), t = document.querySelectorAll('input[name=to]');"
        "f[3].checked = true; t[1].checked = true; document.querySelector('form.marks button').click()"
    )
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(browser.driver, 20, poll_frequency=0.02).until(lambda driver: "/changes?" in driver.current_url)
    browser.settle()
    assert "Changes between two commits" in browser.text()
    assert browser.violations() == []


def test_two_bars_marked_by_keys_lead_to_their_changes(browser, shown):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.wait import WebDriverWait

    page, _root = shown
    origin = enter(browser, page)
    browser.open(f"{origin}/tables/{id_of(page, 'v8_mor_archived_120')}/timeline")
    shown_before = browser.run("return document.querySelectorAll('a.lf-bar').length")
    browser.run("document.querySelector('[data-step=out]').click()")
    WebDriverWait(browser.driver, 20, poll_frequency=0.02).until(
        lambda driver: driver.execute_script("return document.querySelectorAll('a.lf-bar').length") > shown_before,
        "beyond the active timeline the archive is shown",
    )
    browser.open(f"{origin}/tables/{id_of(page, 'own')}/timeline")
    browser.run("document.querySelector('a.lf-bar[href*=deltacommit]').focus()")
    ActionChains(browser.driver).send_keys("m").send_keys(Keys.ARROW_RIGHT).send_keys("m").perform()
    WebDriverWait(browser.driver, 20, poll_frequency=0.02).until(lambda driver: "/changes?from=" in driver.current_url)
    browser.settle()
    assert "Changes between two commits" in browser.text()
    assert browser.errors() == []


def test_a_new_commit_appears_by_itself(browser, shown):
    import pyarrow as pa

    import lakefmt
    from tests.page.kit import SCHEMA

    page, root = shown
    origin = enter(browser, page)
    browser.open(f"{origin}/tables/{id_of(page, 'own')}/timeline")
    rows = pa.table({"id": ["late"], "city": ["rome"], "v": [1]}, SCHEMA)
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(browser.driver, 30, poll_frequency=0.05).until(
        lambda _: page.server.listeners._value < 16, "the page listens"
    )
    done = lakefmt.open_table(str(root / "own")).upsert(rows)
    WebDriverWait(browser.driver, 30, poll_frequency=0.05).until(
        lambda driver: driver.execute_script(
            "return document.getElementById('instants').innerHTML.includes(arguments[0])"
            " && document.getElementById('live').textContent !== ''",
            done.instant,
        )
    )
    assert browser.errors() == []


def test_an_action_is_confirmed_in_the_browser(browser, tmp_path):
    from selenium.webdriver.support.wait import WebDriverWait

    from lakefmt._core.page.services import PageActions

    table = make_table(tmp_path / "t", commits=3)
    before = table.snapshot().instant
    with served(tmp_path / "t", actions=PageActions(tmp_path / "audit.jsonl")) as page:
        origin = enter(browser, page)
        browser.open(f"{origin}/tables/{id_of(page)}/files")
        browser.run("document.querySelector('input[value=clustering]').form.querySelector('button').click()")
        WebDriverWait(browser.driver, 20, poll_frequency=0.02).until(lambda d: d.current_url.endswith("/actions/plan"))
        browser.settle()
        assert browser.violations() == []
        browser.keep("action-planned")
        assert table.snapshot().instant == before
        browser.run("document.querySelector('button.danger').click()")
        WebDriverWait(browser.driver, 20, poll_frequency=0.02).until(lambda d: d.current_url.endswith("/actions/run"))
        browser.settle()
        assert ": done" in browser.text()
        assert browser.errors() == []
    assert table.snapshot().instant != before


def test_tables_are_read_without_the_script(browser, shown):
    page, _root = shown
    origin = enter(browser, page)
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        for view in VIEWS:
            browser.driver.get(f"{origin}/tables/{id_of(page, 'own')}/{view}")
            assert browser.driver.find_elements("css selector", "table tbody tr, dl.facts")
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_report_is_read_without_a_server(browser, shown, tmp_path):
    from datetime import UTC, datetime

    from lakefmt._core.page.html import write_report

    page, _root = shown
    tables, _ = page.server.tables.listed()
    write_report(tmp_path / "report.html", tables, datetime(2026, 1, 1, tzinfo=UTC))
    browser.resize(1280)
    browser.driver.get(f"file://{tmp_path}/report.html")
    browser.keep("report")
    assert browser.violations() == []
    assert browser.errors() == []
