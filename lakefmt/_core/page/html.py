"""Facts as HTML: pages, and a report in one file; templates with every text escaped, no script and no style within markup."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lakefmt import __version__
from lakefmt._core.drawing import STYLE, CommitCost, Picture, cost_picture, moment_text, short_text
from lakefmt._core.page.contents import (
    PartitionList,
    column_facts,
    explain_facts,
    file_facts,
    layout_svg,
    plan_facts,
    schema_facts,
)
from lakefmt._core.page.routes import Parameters, Route, row_query, table_address, timeline_query, with_parameters
from lakefmt._core.page.services import advice_facts, check_facts, overview_facts, service_facts, settings_facts
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
from lakefmt._core.values import size_text
from lakefmt.errors import LakefmtError, UnsupportedFeature

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

__all__ = [
    "STATIC",
    "commit_costs",
    "markup_of",
    "page_context",
    "render",
    "report_facts",
    "report_html",
    "static_file",
    "view_names",
    "write_report",
]


Facts = dict[str, Any]

_HERE: Final = Path(__file__).parent
#: Files that are served as they are: name → its type.
STATIC: Final[dict[str, str]] = {
    "page.css": "text/css; charset=utf-8",
    "picture.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_CONTROLS: Final = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_MOST_NAME: Final = 80
_FEW_GROUPS: Final = 2000

#: The views of a table, in the order of the page.
view_names: Final = {
    "timeline": "Timeline",
    "files": "Files",
    "rows": "Rows",
    "services": "Services",
    "health": "Health",
}


@cache
def static_file(name: str) -> bytes:
    """Return the bytes of a file of :data:`STATIC`."""
    return STYLE.encode() if name == "picture.css" else (_HERE / "static" / name).read_bytes()


@cache
def _environment() -> jinja2.Environment:
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError:
        raise UnsupportedFeature("pages need Jinja2: pip install 'lakefmt[ui]'") from None

    def shown(name: object, most: int = _MOST_NAME) -> Markup:
        name_text = str(name)
        title = f' title="{escape(_CONTROLS.sub("�", name_text[:400]))}"' if len(name_text) > most else ""
        return Markup(f'<bdi class="name"{title}>{short_text(name_text, most)}</bdi>')  # noqa: S704 - both parts are escaped

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Names of any origin: characters that no markup may have are replaced.
        finalize=lambda value: _CONTROLS.sub("�", value) if type(value) is str else value,
    )
    environment.filters |= {
        "bytes": lambda value: "–" if value is None else size_text(int(value)),
        "count": lambda value: "–" if value is None else f"{value:,}",
        "seconds": _seconds_text,
        "name": shown,
        "instant": _instant_text,
    }
    environment.globals["address"] = with_parameters
    return environment


def _seconds_text(value: float | None) -> str:
    if value is None:
        return "–"
    if value < 120:
        return f"{value:.3f} s" if value < 10 else f"{value:.1f} s"
    minutes = value / 60
    return (
        f"{minutes:.1f} min"
        if minutes < 120
        else f"{minutes / 60:.1f} h"
        if minutes < 2880
        else f"{minutes / 1440:.1f} d"
    )


def _instant_text(time: str) -> str:
    """Return an instant time as people read it: its date and time, in the zone of the table."""
    if len(time) < 14 or not time.isdigit():
        return time
    date_and_time = f"{time[:4]}-{time[4:6]}-{time[6:8]} {time[8:10]}:{time[10:12]}:{time[12:14]}"
    return f"{date_and_time}.{time[14:17]}" if len(time) >= 17 else date_and_time


def render(template: str, context: Mapping[str, Any]) -> str:
    """Return a template filled with values.

    Raises:
        UnsupportedFeature: Jinja2 is not installed.
    """
    return _environment().get_template(template).render(**context)


def markup_of(picture: Picture) -> Markup:
    """Return a picture as markup of a template: it has escaped what it draws."""
    from markupsafe import Markup

    return Markup(picture.markup)  # noqa: S704 - pictures escape what they draw


def page_context(route: Route, table: PageTable | None, parameters: Parameters, facts: Facts) -> tuple[str, Facts]:
    """Return the template of a page, or of the asked part of it, with its values.

    Args:
        route: what was asked for.
        table: of the route.
        parameters: its parameters.
        facts: what the route gave.
    """
    view = route.path.rpartition("/")[2]
    context: Facts = {
        "facts": facts,
        "given": dict(parameters),
        "view": view,
        "table": None,
        "views": view_names,
        "part": parameters.get("part", ""),
    }
    if table is None:
        return route.template, context
    context |= {"table": {"id": table.id, "name": table.name, "path": table.shown_path}, "base": table_address(table)}
    extra = _EXTRA.get(route.template)
    if extra is not None:
        context |= extra(table, parameters, facts)
    part = context["part"]
    return (f"_{part}.html" if part and part != "main" else route.template), context


def _timeline_extra(table: PageTable, parameters: Parameters, facts: Facts) -> Facts:
    query, base, part = timeline_query(parameters), table_address(table), parameters.get("part", "")
    extra: Facts = {"query": query}
    if part not in ("instants", "cost"):
        zone = zone_of(table.at())
        extra["legend"] = legend_facts(facts)
        extra["picture"] = markup_of(timeline_svg(facts, query, zone, base, table.name[:80]))
        extra["span_text"] = f"{moment_text(facts['start'], zone)[:19]} to {moment_text(facts['end'], zone)[:19]}"
        extra["steps"] = _window_steps(facts)
    if part == "timeline":
        return extra
    # A list of a window is that of the picture; without one it begins with the newest.
    instant_list = InstantList(
        parameters.get("before", ""),
        parameters.get("action", ""),
        parameters.get("limit", 50),
        query.archived,
        query.start,
        query.end,
    )
    extra["instants"] = list_instants(table, instant_list)
    if part != "instants":
        costs = commit_costs(extra["instants"]["instants"], base)
        words = f"What {len(costs)} commits wrote"
        extra["cost"] = markup_of(cost_picture(costs, words, width=query.width)) if costs else ""
        extra["overview"] = overview_facts(table)
    return extra


def commit_costs(entries: Sequence[Facts], base: str) -> list[CommitCost]:
    """Return what the commits among listed instants cost, oldest first.

    Args:
        entries: newest first.
        base: the address of the table's pages; empty: without links.
    """
    return [
        CommitCost(
            each["time"],
            each["operation"],
            each["bytes_written"],
            each["seconds"],
            each["inserts"] + each["updates"] + each["deletes"],
            f"{base}/instants/{each['time']}?action={each['action']}" if base else "",
        )
        for each in reversed(entries)
        if each["operation"]
    ]


def _window_steps(facts: Facts) -> dict[str, tuple[float, float]]:
    """Return the windows that the buttons lead to."""
    start, end = facts["start"], facts["end"]
    span, middle = end - start, (start + end) / 2
    closer = min(max(span / 3, 0.05), span)
    return {
        "earlier": (start - span / 2, end - span / 2),
        "later": (start + span / 2, end + span / 2),
        "in": (middle - closer / 2, middle + closer / 2),
        "out": (middle - span * 1.5, middle + span * 1.5),
    }


def _files_extra(table: PageTable, parameters: Parameters, facts: Facts) -> Facts:
    base = table_address(table)

    def link(partition: str) -> str:
        return (
            with_parameters(f"{base}/partition", partition=partition) if partition else f"{base}/partition?partition="
        )

    extra: Facts = {"link": link, "is_large": facts["total"]["file_groups"] > _FEW_GROUPS}
    if parameters.get("part") in (None, "", "layout", "main"):
        picture = layout_svg(table, parameters.get("by", "bytes"), parameters.get("width", 960), link)
        extra["picture"] = markup_of(picture)
    if parameters.get("part") == "plans":
        extra["plans"] = plan_facts(table)
    return extra


def _or_problem(table: PageTable, part: Callable[[], Facts]) -> Facts:
    """Return a part of a page, or why it cannot be had: the rest is shown all the same."""
    try:
        return part()
    except LakefmtError as error:
        return {"problem": table.redact(str(error))}


def _rows_extra(table: PageTable, parameters: Parameters, _facts: Facts) -> Facts:
    extra: Facts = {"query": row_query(parameters)}
    if parameters.get("part") == "columns":
        return extra | {"columns": column_facts(table)}
    extra["explain"] = _or_problem(table, lambda: explain_facts(table, row_query(parameters)))
    extra["schema"] = _or_problem(table, lambda: schema_facts(table))
    return extra


def _services_extra(table: PageTable, parameters: Parameters, _facts: Facts) -> Facts:
    if parameters.get("part") == "advice":
        return {"advice": _or_problem(table, lambda: advice_facts(table))}
    return {"settings": settings_facts(table)}


def _health_extra(table: PageTable, _parameters: Parameters, _facts: Facts) -> Facts:
    return {"overview": overview_facts(table)}


_EXTRA: Final[dict[str, Callable[[PageTable, Parameters, Facts], Facts]]] = {
    "timeline.html": _timeline_extra,
    "files.html": _files_extra,
    "rows.html": _rows_extra,
    "services.html": _services_extra,
    "health.html": _health_extra,
}


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
