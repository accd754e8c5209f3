"""Pictures are well-formed, draw each thing once and within their borders, and hold no markup of a name."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from datetime import UTC
from itertools import pairwise
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.drawing import (
    KINDS,
    LANES,
    Bar,
    CommitCost,
    CountColumn,
    Tile,
    TimelineSpan,
    cost_picture,
    layout_picture,
    ticks_of,
    timeline_picture,
)
from lakefmt.errors import InvalidInputError
from tests.page.kit import HOSTILE, make_table

SVG = "{http://www.w3.org/2000/svg}"
TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=30))
MOMENTS = st.floats(0, 4e9)


def shapes(markup: str, group: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(markup)
    return [each for each in root.iter() if group in (each.get("class") or "").split()]


def boxes(markup: str, group: str) -> list[tuple[float, float, float, float]]:
    found = [each.find(f"{SVG}rect") for each in shapes(markup, group)]
    return [tuple(float(each.get(name) or 0) for name in ("x", "y", "width", "height")) for each in found]


@st.composite
def bars(draw):
    start = draw(MOMENTS)
    end = draw(st.one_of(st.none(), st.floats(0, 1e6).map(lambda more: start + more)))
    operation = draw(st.sampled_from(["", *KINDS]))
    state = draw(st.sampled_from(["requested", "inflight", "completed", "failed"]))
    lane, words = draw(st.sampled_from(list(LANES))), draw(TEXTS)
    inflight = draw(st.one_of(st.none(), st.floats(0, 1e6).map(lambda more: start + more)))
    return Bar(draw(TEXTS), lane, start, end, operation, state, words, "/x?a=1&b=2", inflight=inflight)


@given(st.lists(bars(), max_size=30), MOMENTS, st.floats(0.01, 4e8), st.sampled_from([280, 390, 960, 4000]))
def test_a_timeline_draws_every_bar_once_and_inside(drawn, start, length, width):
    inside = [bar for bar in drawn if start <= bar.start <= start + length]
    span = TimelineSpan(start, start + length, UTC, "UTC", width)
    markup = timeline_picture(inside, [], span, "t").markup
    assert len(shapes(markup, "lf-bar")) == len(inside)
    for x, _y, wide, _high in boxes(markup, "lf-bar"):
        assert 0 <= x <= width
        assert wide > 0


@given(st.floats(0, 100), st.floats(0, 100), st.sampled_from(["commit", "compaction", "clean"]))
def test_a_wait_is_a_line_as_long_as_it_was_before_the_bar_of_the_work(waited, worked, lane):
    span = TimelineSpan(0.0, 250.0, UTC, "UTC", 960)
    bar = Bar("1", lane, 10.0, 10.0 + waited + worked, inflight=10.0 + waited)
    markup = timeline_picture([bar], [], span, "t").markup
    ((x, _y, wide, _high),) = [
        tuple(float(each.get(name) or 0) for name in ("x", "y", "width", "height"))
        for each in shapes(markup, "lf-shape")
    ]
    lines = [(float(each.get("x") or 0), float(each.get("width") or 0)) for each in shapes(markup, "lf-wait")]
    begin, end = span.x(10.0), span.x(10.0 + waited + worked)
    assert x + wide <= max(end, begin + 14)
    for start, length in lines:
        assert start == pytest.approx(begin + 1, abs=0.02)
        assert start + length == pytest.approx(x, abs=0.03)
        assert length <= span.x(10.0 + waited) - begin + 0.02
    if span.x(10.0 + waited) - begin >= 2 and end - span.x(10.0 + waited) >= 14:
        assert len(lines) == 1
        assert x - 1 == pytest.approx(span.x(10.0 + waited), abs=0.02)


@given(TEXTS)
def test_names_become_no_markup(text):
    tile = layout_picture([Tile(text, 1.0, text, 0.5, f"/x?{text}")], text).markup
    bar = timeline_picture(
        [Bar(text, "commit", 1.0, 2.0, words=text, href=text)], [], TimelineSpan(0.0, 3.0), text
    ).markup
    cost = cost_picture([CommitCost(text, text, 5, 0.1, href=text)], text).markup
    for markup in (tile, bar, cost):
        names = {each.tag.removeprefix(SVG) for each in ElementTree.fromstring(markup).iter()}
        assert names <= {"svg", "rect", "text", "title", "a", "g", "line", "polyline"}
        assert len(markup) < 20_000 + 4 * len(text)


@given(MOMENTS, st.floats(0.001, 4e9), st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"]))
def test_ticks_rise_inside_and_are_few(start, length, zone):
    ticks = ticks_of(start, start + length, ZoneInfo(zone), 8)
    places = [tick.at for tick in ticks]
    assert len(places) <= 10
    assert all(a < b for a, b in pairwise(places))
    assert all(start - 0.001 <= at <= start + length + 0.001 for at in places)


@pytest.mark.parametrize(("zone", "day"), [("Europe/Berlin", 1774652400), ("America/New_York", 1793505600)])
def test_a_day_is_one_of_the_calendar(zone, day):
    """Around the change of clocks days have 23 and 25 hours: a tick stays at midnight."""
    from datetime import datetime

    ticks = ticks_of(day - 3 * 86400, day + 4 * 86400, ZoneInfo(zone), 8)
    assert {datetime.fromtimestamp(tick.at, ZoneInfo(zone)).hour for tick in ticks} == {0}


@given(st.lists(st.floats(0, 1e12), max_size=60))
def test_a_treemap_fills_its_place_without_overlaps_in_proportion(values):
    tiles = [Tile(str(number), value, "") for number, value in enumerate(values)]
    found = boxes(layout_picture(tiles, "t", width=900, height=400).markup, "lf-tile")
    positive = sorted((value for value in values if value > 0), reverse=True)
    assert len(found) == len(positive)
    if positive:
        areas = [wide * high for _x, _y, wide, high in found]
        assert sum(areas) == pytest.approx(900 * 400, rel=0.02)
        for value, area in zip(positive, areas, strict=True):
            if value / sum(positive) > 0.01:
                assert area == pytest.approx(900 * 400 * value / sum(positive), rel=0.05)
        assert all(x + wide <= 900.5 and y + high <= 400.5 for x, y, wide, high in found)


def test_of_many_tiles_the_small_ones_are_one():
    markup = layout_picture([Tile(str(n), 1.0 + n, "") for n in range(1000)], "t").markup
    assert len(shapes(markup, "lf-tile")) == 160
    assert "841 smaller ones" in markup


def test_counts_are_drawn_for_many_instants():
    column = CountColumn("commit", 0.0, 10.0, 25, failed=1, href="/x")
    markup = timeline_picture([], [column], TimelineSpan(0.0, 100.0), "t").markup
    assert "25 commits" in markup
    assert "without a writer" in markup


def test_every_kind_differs_by_more_than_its_hue():
    titles: dict[str, str] = {}
    for kind in KINDS.values():
        assert titles.setdefault(kind.letter, kind.title) == kind.title, "one letter, one kind"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return make_table(tmp_path_factory.mktemp("plot") / "t")


def test_plots_are_svg_documents_that_files_take(table, tmp_path):
    for number, picture in enumerate([table.plot.timeline(), table.plot.layout(), table.plot.write_cost()]):
        picture.save(tmp_path / f"{number}.svg")
        root = ElementTree.parse(tmp_path / f"{number}.svg").getroot()
        assert root.tag == f"{SVG}svg"
        assert root.find(f"{SVG}style") is not None
        assert "<script" not in picture.svg
        assert picture._repr_svg_() in picture._repr_html_()
        assert len(repr(picture)) < 150


def test_plots_show_what_the_table_has(table):
    assert len(shapes(table.plot.timeline(limit=None).markup, "lf-bar")) == len(table.timeline)
    assert len(shapes(table.plot.layout().markup, "lf-tile")) == table.partition_stats().num_rows
    assert len(shapes(table.plot.layout("file_groups").markup, "lf-tile")) == table.partition_stats().num_rows
    commits = [entry for entry in table.timeline if entry.operation]
    assert len(shapes(table.plot.write_cost().markup, "lf-bar")) == len(commits)


@pytest.mark.parametrize(
    "call", ["layout('rows')", "timeline(width=10)", "write_cost(limit=0)", "timeline(width='wide')"]
)
def test_plots_refuse_what_is_no_argument(table, call):
    with pytest.raises(InvalidInputError):
        eval(f"table.plot.{call}", {"table": table})


def test_notebooks_show_tables_and_results(table, tmp_path):
    shown = [
        table,
        table.timeline,
        table.stats(),
        table.check(),
        table.check().plan,
        table.explain(),
        table.clean(dry_run=True),
    ]
    shown += [
        table.compact(dry_run=True),
        table.cluster(dry_run=True),
        table.savepoints()[0],
        table.advise(),
        table.archive(dry_run=True),
    ]
    for each in shown:
        text = each._repr_html_()
        ElementTree.fromstring(text.replace("<bdi>", "").replace("</bdi>", ""))
        assert text.startswith('<div class="lakefmt">')
        assert len(repr(each)) < 2000, type(each)


@pytest.mark.slow
def test_a_commit_into_365_partitions_is_shown_short(tmp_path):
    days = pa.table({"id": [f"k{n}" for n in range(365)], "day": [f"d{n:03}" for n in range(365)]})
    table = lakefmt.create_table(str(tmp_path / "t"), data=days, record_key="id", partition_by="day")
    done = table.insert(days)
    assert len(repr(done)) < 300
    assert len(done._repr_html_()) < 2000
    assert len(table.stats()._repr_html_()) < 10_000


def test_a_timeline_is_an_arrow_table(table):
    assert table.timeline.to_arrow().equals(table.history())


def test_a_table_that_is_gone_says_so(tmp_path):
    import shutil

    table = make_table(tmp_path / "t", commits=1)
    shutil.rmtree(tmp_path / "t")
    assert "no Hudi table" in table._repr_html_() or "hoodie" in table._repr_html_()
