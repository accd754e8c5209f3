"""A report of tables: one file without scripts and requests, to be sent and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from lakefmt import __version__
from lakefmt._core.drawing import cost_picture
from lakefmt._core.page.files import PartitionList, file_facts, layout_svg, plan_facts
from lakefmt._core.page.html import commit_costs, markup_of, render, static_file
from lakefmt._core.page.services import advice_facts, check_facts, overview_facts, service_facts
from lakefmt._core.page.tables import PageTable
from lakefmt._core.page.timeline import (
    InstantList,
    TimelineQuery,
    legend_facts,
    list_instants,
    timeline_facts,
    timeline_svg,
    zone_of,
)
from lakefmt.errors import LakefmtError

__all__ = ["report_facts", "report_html", "write_report"]

Facts = dict[str, Any]

_WIDTH: Final = 1100
_LISTED: Final = 50


def report_facts(table: PageTable) -> Facts:
    """Return all that a report says of a table; a part that cannot be read says why."""

    def part(read: Callable[[], Facts]) -> Facts:
        try:
            return read()
        except LakefmtError as error:
            return {"problem": table.redact(str(error))[:4096]}

    facts: Facts = {"overview": overview_facts(table, sizes=True)}
    if facts["overview"]["problem"]:
        return {**facts, "check": part(lambda: check_facts(table))}
    return {
        **facts,
        "timeline": part(lambda: _timeline(table)),
        "layout": part(lambda: _layout(table)),
        "services": part(lambda: service_facts(table)),
        "plans": plan_facts(table),
        "check": part(lambda: check_facts(table)),
        "advice": part(lambda: advice_facts(table)),
    }


def _timeline(table: PageTable) -> Facts:
    query = TimelineQuery(width=_WIDTH)
    facts = timeline_facts(table, query)
    listed = list_instants(table, InstantList(limit=_LISTED))["instants"]
    while not facts["complete"]:  # what is not read at once is read with the next questions
        facts = timeline_facts(table, query)
    costs = commit_costs(listed, "")
    return {
        "picture": markup_of(timeline_svg(facts, query, zone_of(table.at()), "", table.name[:80])),
        "legend": legend_facts(facts),
        "instants": listed,
        "cost": markup_of(cost_picture(costs, f"What {len(costs)} commits wrote", width=_WIDTH)) if costs else "",
    }


def _layout(table: PageTable) -> Facts:
    listed = file_facts(table, PartitionList(limit=20))
    return {
        "picture": markup_of(layout_svg(table, "bytes", _WIDTH, lambda _path: "")),
        "partitions": listed["partitions"],
    }


def report_html(tables: Sequence[PageTable], now: datetime) -> str:
    """Return the report of some tables, of many with an index.

    Args:
        tables: in the order of the report.
        now: when it is made.

    Raises:
        UnsupportedFeature: Jinja2 is not installed.
    """
    from markupsafe import Markup

    style = (static_file("picture.css") + static_file("page.css")).decode()
    return render(
        "report.html",
        {
            "tables": [report_facts(table) for table in tables],
            "made": f"{now:%Y-%m-%d %H:%M} {now.tzname() or ''}".strip(),
            "version": __version__,
            "style": Markup(style),  # noqa: S704 - the files of this package
        },
    )


def write_report(path: Path, tables: Sequence[PageTable], now: datetime) -> int:
    """Write the report of some tables; the file appears when it is complete. Return its bytes.

    Args:
        path: of the file.
        tables: in the order of the report.
        now: when it is made.
    """
    data = report_html(tables, now).encode("utf-8", "replace")
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return len(data)
