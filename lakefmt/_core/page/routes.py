"""The addresses of the page: which parameters each takes, which facts it gives, and their description for programs (OpenAPI)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from lakefmt import __version__
from lakefmt._core.data_classes import dataclass
from lakefmt._core.page.contents import (
    MEASURES,
    MOST_ROWS,
    PartitionList,
    RowQuery,
    change_facts,
    column_facts,
    explain_facts,
    file_facts,
    partition_facts,
    plan_facts,
    row_facts,
    schema_facts,
    size_facts,
)
from lakefmt._core.page.services import (
    advice_facts,
    check_facts,
    overview_facts,
    service_facts,
    settings_facts,
    table_list_facts,
)
from lakefmt._core.page.tables import PageTable, PageTables
from lakefmt._core.page.timeline import (
    InstantList,
    TimelineQuery,
    instant_facts,
    list_instants,
    timeline_facts,
)
from lakefmt.errors import InvalidInputError

__all__ = [
    "ROUTES",
    "Parameter",
    "Parameters",
    "Route",
    "given_parameters",
    "openapi_facts",
    "row_query",
    "table_address",
    "timeline_query",
    "with_parameters",
]

Facts = dict[str, Any]
_Number = TypeVar("_Number", int, float)

_MOST_QUERY: Final = 16 << 10
_MOST_FIELDS: Final = 40
_INSTANT: Final = re.compile(r"[0-9]{14}(?:[0-9]{3})?")
_ACTION: Final = re.compile(r"[a-z]{0,20}")


def table_address(table: PageTable) -> str:
    """Return the address of a table's pages."""
    return f"/tables/{quote(table.id)}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an address.

    Attributes:
        name: as in the query.
        parse: its text → its value; raises InvalidInputError.
        doc: one line.
        kind: its type in JSON schema.
    """

    name: str
    parse: Callable[[str], Any]
    doc: str
    kind: str = "string"


def _text_parser(most: int) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if len(value) > most or "\0" in value:
            raise InvalidInputError(f"a text of at most {most:,} characters is expected")
        return value

    return parse


def _integer_parser(least: int, most: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", value) or not value.isascii() or not least <= int(value) <= most:
            raise InvalidInputError(f"a whole number from {least:,} to {most:,} is expected")
        return int(value)

    return parse


def _moment(text: str) -> float:
    try:
        value = float(text) if len(text) <= 32 else math.nan
    except ValueError:
        value = math.nan
    # Years 1 to 9998, whatever the zone.
    if not -6.2e10 < value < 2.53e11:
        raise InvalidInputError("a moment in epoch seconds is expected")
    return value


def _instant(instant: str) -> str:
    if instant and not _INSTANT.fullmatch(instant):
        raise InvalidInputError("an instant of 14 or 17 digits is expected")
    return instant


def _action(action: str) -> str:
    if not _ACTION.fullmatch(action):
        raise InvalidInputError("the name of an action is expected")
    return action


def _flag(value: str) -> bool:
    if value not in ("", "0", "1", "true", "false", "on"):
        raise InvalidInputError("0 or 1 is expected")
    return value in ("1", "true", "on")


def _choice(*values: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in values:
            raise InvalidInputError(f"one of {', '.join(values)} is expected")
        return value

    return parse


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in _text_parser(4096)(text).split(",") if name.strip())


def _part(*names: str) -> Parameter:
    """Return the parameter for a part of a page, which has these and its main one."""
    return Parameter("part", _choice("", "main", *names), "a part of the page alone")


_WIDTH: Final = Parameter("width", _integer_parser(280, 4000), "of pictures, in CSS pixels", "integer")
_START: Final = Parameter("start", _moment, "epoch seconds; default: the first instant", "number")
_END: Final = Parameter("end", _moment, "epoch seconds; default: the last instant", "number")
_ARCHIVED: Final = Parameter("archived", _flag, "with the archived timeline", "boolean")
_BEFORE: Final = Parameter("before", _instant, "only instants requested before this one")
_LIMIT: Final = Parameter("limit", _integer_parser(1, MOST_ROWS), "how many", "integer")
_OFFSET: Final = Parameter("offset", _integer_parser(0, 100_000_000), "of the first one", "integer")
_AS_ACTION: Final = Parameter("action", _action, "only this action")
_CONTAINS: Final = Parameter("contains", _text_parser(1000), "only names with this text")
_MARKS: Final = (
    Parameter("from", _instant, "the earlier of two marked instants"),
    Parameter("to", _instant, "the later one"),
)
_BY: Final = Parameter("by", _choice(*MEASURES), "what orders partitions, and their area")
_PARTITION: Final = Parameter("partition", _text_parser(16 << 10), "path of a partition")
_WHERE: Final = Parameter("where", _text_parser(8192), "SQL text of a filter")
_COLUMNS: Final = Parameter("columns", _names, "names separated by commas")
_AS_OF: Final = Parameter("as_of", _text_parser(64), "an instant, or an ISO date and time with its zone")
_META: Final = Parameter("meta_columns", _flag, "with the columns _hoodie_*", "boolean")
_SIZES: Final = Parameter("sizes", _flag, "with the number and bytes of files", "boolean")


class Parameters(dict[str, Any]):
    """Parsed parameters by name; a parameter that the request lacks is absent."""


@dataclass(frozen=True, slots=True)
class Route:
    """An address.

    Attributes:
        path: below ``/api/v1`` for programs, below ``/`` for people; ``{table}`` and ``{instant}`` stand for one part.
        doc: what it gives.
        parameters: what it takes.
        facts: gives it; the table is None where the path has none.
        template: of its page; empty: for programs only.
    """

    path: str
    doc: str
    parameters: tuple[Parameter, ...]
    facts: Callable[[PageTables, PageTable | None, Parameters], Facts]
    template: str = ""


def given_parameters(route: Route, query: str, in_path: Mapping[str, str]) -> Parameters:
    """Return the parameters of a request.

    Args:
        route: what was asked for.
        query: behind the question mark.
        in_path: those that the path has.

    Raises:
        InvalidInputError: a parameter is unknown, given twice, or its value is not valid.

    Example:
        >>> dict(given_parameters(ROUTES[0], "contains=a%20b", {}))
        {'contains': 'a b'}
    """
    if len(query) > _MOST_QUERY:
        raise InvalidInputError(f"a query has at most {_MOST_QUERY:,} characters")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError as error:
        raise InvalidInputError(f"the query cannot be read: {error}") from None
    known = {parameter.name: parameter for parameter in route.parameters}
    parameters = Parameters()
    for name, value in pairs:
        if name not in known or name in parameters:
            raise InvalidInputError(
                f"parameter {name[:60]!r} is {'given twice' if name in parameters else 'not known here'}"
            )
        # An empty field of a form is one that was not filled in.
        if value != "" or name == "partition":
            try:
                parameters[name] = known[name].parse(value)
            except InvalidInputError as error:
                raise InvalidInputError(f"parameter {name}: {error}") from None
    for name, value in in_path.items():
        if name == "instant":
            parameters[name] = _instant(value)
    return parameters


def _of(table: PageTable | None) -> PageTable:
    if table is None:
        raise InvalidInputError("the address names no table")
    return table


def timeline_query(parameters: Parameters) -> TimelineQuery:
    """Return the part of a timeline that the parameters select."""
    return TimelineQuery(
        parameters.get("start"),
        parameters.get("end"),
        parameters.get("width", 960),
        parameters.get("archived", False),
        tuple(parameters[name] for name in ("from", "to") if parameters.get(name)),
    )


def _instant_list(parameters: Parameters) -> InstantList:
    return InstantList(
        parameters.get("before", ""),
        parameters.get("action", ""),
        parameters.get("limit", 50),
        parameters.get("archived", False),
        parameters.get("start"),
        parameters.get("end"),
    )


def _partition_list(parameters: Parameters) -> PartitionList:
    return PartitionList(
        parameters.get("by", "bytes"),
        parameters.get("offset", 0),
        parameters.get("limit", 50),
        parameters.get("contains", ""),
    )


def row_query(parameters: Parameters) -> RowQuery:
    """Return the rows that the parameters select."""
    return RowQuery(
        parameters.get("where", ""),
        parameters.get("columns", ()),
        parameters.get("limit", 50),
        parameters.get("as_of", ""),
        parameters.get("meta_columns", False),
    )


def _changes(_tables: PageTables, table: PageTable | None, parameters: Parameters) -> Facts:
    if not parameters.get("from") or not parameters.get("to"):
        raise InvalidInputError("from and to name two instants")
    return change_facts(_of(table), parameters["from"], parameters["to"], parameters.get("limit", 50))


def _partition(_tables: PageTables, table: PageTable | None, parameters: Parameters) -> Facts:
    return partition_facts(_of(table), parameters.get("partition", ""), _partition_list(parameters))


# --- what answers are, as JSON schema -------------------------------------------------------------------------------

_STRING: Final[Facts] = {"type": "string"}
_INTEGER: Final[Facts] = {"type": "integer"}
_NUMBER: Final[Facts] = {"type": "number"}
_BOOLEAN: Final[Facts] = {"type": "boolean"}


def _array(items: Facts) -> Facts:
    return {"type": "array", "items": items}


def _map(values: Facts) -> Facts:
    return {"type": "object", "additionalProperties": values}


def _or_null(schema: Facts) -> Facts:
    return {"anyOf": [schema, {"type": "null"}]}


def _record(types: Mapping[str, Facts], optional: Mapping[str, Facts] | None = None) -> Facts:
    """Return the schema of an object with these fields; those of `optional` may be absent."""
    return {"type": "object", "properties": {**types, **(optional or {})}, "required": [*types]}


def _fields(schema: Facts, names: str) -> dict[str, Facts]:
    return dict.fromkeys(names.split(), schema)


def _of_schema(name: str) -> Facts:
    return {"$ref": f"#/components/schemas/{name}"}


_SIZE_FIELDS: Final = _fields(_INTEGER, "file_groups log_files bytes log_bytes small oversized")
_PARTITION_FIELDS: Final = {"partition": _STRING, **_SIZE_FIELDS, "newest": _STRING}
_INSTANT_FIELDS: Final = {
    **_fields(_STRING, "time action state operation note sign letter hue problem"),
    **_fields(_INTEGER, "inserts updates deletes files bytes_written"),
    **_fields(_BOOLEAN, "failed archived known"),
    **_fields(_or_null(_STRING), "completion writer"),
    **_fields(_or_null(_NUMBER), "seconds inflight end requested_seconds inflight_seconds"),
    "start": _NUMBER,
}
_TABLE_ROWS: Final = {
    "columns": _array(_record(_fields(_STRING, "name type"))),
    "num_rows": _INTEGER,
    **_fields(_array(_array(_or_null(_STRING))), "cells values"),
}
_COSTS: Final = _record(_fields(_NUMBER, "write service read total"))
_COMMIT_FIELDS: Final = {
    "partitions": _array(
        _record({"partition": _STRING, **_fields(_INTEGER, "files inserts updates deletes bytes errors")})
    ),
    **_fields(_INTEGER, "num_partitions num_files"),
    "file_stats": _array(
        _record({**_fields(_STRING, "path file_id"), **_fields(_INTEGER, "writes inserts updates deletes bytes size")})
    ),
    "replaced": _map(_INTEGER),
    "metadata": _array(_record({**_fields(_STRING, "name value"), "characters": _INTEGER})),
    "labels": _array(_record(_fields(_STRING, "what name value"))),
    "schema_change": _or_null(_record(_fields(_array(_STRING), "added dropped changed"))),
    "body": _STRING,
}
#: Name → JSON schema of what answers are made of; :data:`_ANSWERS` says which address gives which.
_SCHEMAS: Final[dict[str, Facts]] = {
    "Size": _record({**_fields(_INTEGER, "partitions"), **_SIZE_FIELDS, "rows": _or_null(_INTEGER)}),
    "Table": _record(
        {
            **_fields(_STRING, "id name path problem"),
            "health": _array(_record(_fields(_STRING, "level words"))),
        },
        {
            **_fields(_STRING, "table_type kind"),
            **_fields(_INTEGER, "version instants commits pending"),
            "record_key": _array(_STRING),
            **_fields(_or_null(_STRING), "latest latest_at"),
            "size": _of_schema("Size"),
        },
    ),
    "Tables": _record(
        {
            **_fields(_INTEGER, "matching total offset"),
            "tables": _array(_of_schema("Table")),
            "problems": _array(_record(_fields(_STRING, "path problem"))),
        }
    ),
    "Instant": _record(_INSTANT_FIELDS),
    "Timeline": _record(
        {
            **_fields(_NUMBER, "start end"),
            **_fields(_or_null(_NUMBER), "first last"),
            "zone": _STRING,
            **_fields(_INTEGER, "total shown"),
            **_fields(_BOOLEAN, "archived has_archive complete"),
            "counts": _map(_INTEGER),
            "instants": _array(_of_schema("Instant")),
            "columns": _array(_record({"action": _STRING, **_fields(_NUMBER, "start end"), "count": _INTEGER})),
            "marks": _array(_record({"time": _STRING, "at": _NUMBER})),
        }
    ),
    "Instants": _record({"instants": _array(_of_schema("Instant")), "next": _STRING, "total": _INTEGER}),
    "InstantDetails": _record(
        {
            **_INSTANT_FIELDS,
            **_fields(_STRING, "zone"),
            "states": _array(_record(_fields(_STRING, "action state file"))),
            **_fields(_array(_STRING), "same_time waiting neighbours"),
        },
        {"plan": _STRING, **_COMMIT_FIELDS},
    ),
    "Changes": _record(
        {
            **_fields(_STRING, "start end"),
            **_fields(_INTEGER, "num_changes inserts updates deletes"),
            "rows": _record(_TABLE_ROWS),
        }
    ),
    "Files": _record(
        {
            "total": _of_schema("Size"),
            **_fields(_INTEGER, "matching offset small_bytes oversized_bytes"),
            "by": _STRING,
            "partitions": _array(_record(_PARTITION_FIELDS)),
        }
    ),
    "Partition": _record(
        {
            **_PARTITION_FIELDS,
            **_fields(_INTEGER, "offset matching replaced"),
            "groups": _array(
                _record(
                    {
                        **_fields(_STRING, "file_id mark"),
                        **_fields(_INTEGER, "bytes num_slices"),
                        "rows": _or_null(_INTEGER),
                        "slices": _array(
                            _record(
                                {
                                    "instant": _STRING,
                                    "base": _or_null(_record({"file": _STRING, "bytes": _INTEGER})),
                                    "logs": _array(_record({**_fields(_STRING, "file instant"), "bytes": _INTEGER})),
                                    **_fields(_INTEGER, "num_logs bytes"),
                                }
                            )
                        ),
                    }
                )
            ),
        }
    ),
    "Plans": _record(
        {
            "plans": _array(
                _record({**_fields(_STRING, "service title problem"), "steps": _array(_STRING), "num_steps": _INTEGER})
            )
        }
    ),
    "Rows": _record({"ended": _BOOLEAN, **_TABLE_ROWS}),
    "Explanation": _record(
        {
            "instant": _or_null(_STRING),
            "text": _STRING,
            "steps": _array(_record({"name": _STRING, **_fields(_INTEGER, "partitions file_groups files bytes")})),
            "unused": _array(_STRING),
        }
    ),
    "Schema": _record(
        {
            "columns": _array(
                _record(
                    {**_fields(_STRING, "name type"), **_fields(_BOOLEAN, "nullable is_key"), "id": _or_null(_INTEGER)}
                )
            ),
            "has_ids": _BOOLEAN,
            "history": _array(
                _record(
                    {
                        **_fields(_STRING, "instant operation"),
                        **_fields(_array(_STRING), "columns types added dropped changed"),
                    }
                )
            ),
        }
    ),
    "Columns": _record(
        {
            "columns": _array(
                _record(
                    {
                        "name": _STRING,
                        **_fields(_INTEGER, "nulls bytes plain_bytes"),
                        **_fields(_or_null(_STRING), "least largest"),
                        "known": _BOOLEAN,
                    }
                )
            ),
            **_fields(_INTEGER, "rows files all_files"),
            "problems": _array(_STRING),
        }
    ),
    "Services": _record(
        {
            "problems": _map(_STRING),
            "needs": _array(_STRING),
            "last_runs": _array(_record({**_fields(_STRING, "service time action"), "at": _or_null(_STRING)})),
            "lock": _array(_record({**_fields(_STRING, "provider by"), "held": _or_null(_BOOLEAN)})),
            "heartbeats": _array(_record({**_fields(_STRING, "time writer"), "age_seconds": _NUMBER})),
            "streams": _array(
                _record(
                    {
                        **_fields(_STRING, "stream what position owner"),
                        **_fields(_INTEGER, "waiting_segments waiting_rows waiting_bytes"),
                        "lag_seconds": _NUMBER,
                        "committed_at": _or_null(_STRING),
                        "open": _BOOLEAN,
                    }
                )
            ),
            "applications": _array(_record({"application": _STRING, "number": _or_null(_INTEGER)})),
            "jobs": _array(_record(_fields(_STRING, "what name value time"))),
            "loads": _array(
                _record(
                    {
                        **_fields(_STRING, "label state owner problem"),
                        **_fields(_INTEGER, "rows bytes tables"),
                        "committing": _BOOLEAN,
                        "age_seconds": _NUMBER,
                    }
                )
            ),
            "consumers": _array(
                _record(
                    {
                        **_fields(_STRING, "id shard state"),
                        "read_to": _or_null(_STRING),
                        **_fields(_INTEGER, "lag_instants lag_bytes"),
                        "lag_seconds": _NUMBER,
                    }
                )
            ),
            "savepoints": _array(
                _record({**_fields(_STRING, "instant user comment"), "created": _or_null(_STRING), "files": _INTEGER})
            ),
            "watermark": _or_null(_NUMBER),
            "queue": _array(_record(_fields(_STRING, "time action state"))),
        }
    ),
    "Advice": _record(
        {
            **_fields(_STRING, "choice_text today_text paste machine text"),
            **_fields(_BOOLEAN, "stays needs_rewrite"),
            **_fields(_map({}), "choice profile"),
            **_fields(_COSTS, "seconds_per_commit seconds_per_commit_today"),
            "reasons": _array(_STRING),
            "settings": _map(_STRING),
            "moving_seconds": _NUMBER,
            "others": _array(_record({"choice": _STRING, **_fields(_NUMBER, "write service read total")})),
        }
    ),
    "Settings": _record({"settings": _array(_record(_fields(_STRING, "name value origin")))}),
    "Finding": _record({**_fields(_STRING, "kind where what consequence remedy loses"), "mendable": _BOOLEAN}),
    "Health": _record(
        {
            "is_clean": _BOOLEAN,
            **_fields(_STRING, "level basis"),
            **_fields(_INTEGER, "files num_findings num_steps"),
            **_fields(_array(_of_schema("Finding")), "findings notes"),
            "skipped": _array(_STRING),
            "plan": _array(_record(_fields(_STRING, "step does loses"))),
        }
    ),
    "Error": _record({"error": _record({"status": _INTEGER, "message": _STRING})}),
}
#: The last part of an address → the schema of its answer.
_ANSWERS: Final[dict[str, str]] = {
    "/tables": "Tables",
    "{table}": "Table",
    "{instant}": "InstantDetails",
    "explain": "Explanation",
}
_T: Final = "/tables/{table}"

#: Every address that reads. What changes a table is in ``actions``, and is no part of what programs are offered.
ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "/tables",
        "the tables, at a glance",
        (_CONTAINS, _OFFSET, _LIMIT),
        lambda tables, _table, parameters: table_list_facts(
            tables, parameters.get("contains", ""), parameters.get("offset", 0), parameters.get("limit", 100)
        ),
        "tables.html",
    ),
    Route(
        _T,
        "a table at a glance",
        (_SIZES,),
        lambda _tables, table, parameters: overview_facts(_of(table), sizes=parameters.get("sizes", False)),
    ),
    Route(
        f"{_T}/timeline",
        "a part of the timeline: instants one by one, or of many their numbers by columns of time",
        (_START, _END, _WIDTH, _ARCHIVED, *_MARKS, _part("timeline", "instants", "cost"), _BEFORE, _AS_ACTION, _LIMIT),
        lambda _tables, table, parameters: (
            # The list alone needs no picture.
            {}
            if parameters.get("part") in ("instants", "cost")
            else timeline_facts(_of(table), timeline_query(parameters))
        ),
        "timeline.html",
    ),
    Route(
        f"{_T}/instants",
        "instants, newest first, page by page",
        (_BEFORE, _AS_ACTION, _LIMIT, _ARCHIVED, _START, _END),
        lambda _tables, table, parameters: list_instants(_of(table), _instant_list(parameters)),
    ),
    Route(
        f"{_T}/instants/{{instant}}",
        "all that is known of an instant",
        (_AS_ACTION,),
        lambda _tables, table, parameters: instant_facts(
            _of(table), parameters["instant"], parameters.get("action", "")
        ),
        "instant.html",
    ),
    Route(f"{_T}/changes", "what changed between two instants", (*_MARKS, _LIMIT), _changes, "changes.html"),
    Route(
        f"{_T}/files",
        "partitions with what they hold",
        (_BY, _OFFSET, _LIMIT, _CONTAINS, _WIDTH, _part("layout", "plans")),
        lambda _tables, table, parameters: file_facts(_of(table), _partition_list(parameters)),
        "files.html",
    ),
    Route(
        f"{_T}/size",
        "files and bytes of the newest state",
        (),
        lambda _tables, table, _parameters: size_facts(_of(table)),
    ),
    Route(
        f"{_T}/partition",
        "file groups of a partition, with their slices over time",
        (_PARTITION, _OFFSET, _LIMIT),
        _partition,
        "partition.html",
    ),
    Route(
        f"{_T}/plans",
        "what services would do now",
        (),
        lambda _tables, table, _parameters: {"plans": plan_facts(_of(table))},
    ),
    Route(
        f"{_T}/rows",
        "rows, as texts of JSON",
        (_WHERE, _COLUMNS, _LIMIT, _AS_OF, _META, _part("columns")),
        lambda _tables, table, parameters: row_facts(_of(table), row_query(parameters)),
        "rows.html",
    ),
    Route(
        f"{_T}/explain",
        "what a read opens, and what leaves out the rest",
        (_WHERE, _AS_OF),
        lambda _tables, table, parameters: explain_facts(_of(table), row_query(parameters)),
    ),
    Route(
        f"{_T}/schema", "columns and their history", (), lambda _tables, table, _parameters: schema_facts(_of(table))
    ),
    Route(
        f"{_T}/columns",
        "statistics of columns, from footers",
        (),
        lambda _tables, table, _parameters: column_facts(_of(table)),
    ),
    Route(
        f"{_T}/services",
        "services, locks, streams and consumers",
        (_part("advice"),),
        lambda _tables, table, _parameters: service_facts(_of(table)),
        "services.html",
    ),
    Route(
        f"{_T}/advice",
        "what the table should be, and its costs",
        (),
        lambda _t, table, _parameters: advice_facts(_of(table)),
    ),
    Route(
        f"{_T}/settings",
        "settings with their origin",
        (),
        lambda _tables, table, _parameters: {"settings": settings_facts(_of(table))},
    ),
    Route(
        f"{_T}/health",
        "findings of a quick check, and the plan of their repair",
        (_part("check"),),
        lambda _tables, table, _parameters: check_facts(_of(table)),
        "health.html",
    ),
)


def openapi_facts() -> Facts:
    """Return the description of all addresses below ``/api/v1``, as OpenAPI 3.1 has it.

    Example:
        >>> sorted(openapi_facts()["paths"])[0]
        '/tables'
    """
    paths = {}
    for route in ROUTES:
        in_path = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"\{(\w+)\}", route.path)
        ]
        in_query = [
            {"name": each.name, "in": "query", "description": each.doc, "schema": {"type": each.kind}}
            for each in route.parameters
            if each.name != "part"
        ]
        last = route.path.rpartition("/")[2]
        schema = _ANSWERS.get(route.path) or _ANSWERS.get(last) or last.capitalize()
        answers = {
            "200": _answer(route.doc, schema),
            "400": _answer("a parameter is not valid", "Error"),
            "404": _answer("there is no such table, instant or partition", "Error"),
        }
        paths[route.path] = {"get": {"summary": route.doc, "parameters": in_path + in_query, "responses": answers}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "lakefmt ui", "version": __version__, "description": "The facts of the page, for programs."},
        "servers": [{"url": "/api/v1"}],
        "components": {"schemas": _SCHEMAS, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
        "paths": paths,
    }


def _answer(doc: str, schema: str) -> Facts:
    return {"description": doc, "content": {"application/json": {"schema": _of_schema(schema)}}}


def with_parameters(address: str, **parameters: object) -> str:
    """Return an address with parameters; those that are None or empty are left out.

    Example:
        >>> with_parameters("/t", partition="a b", offset=None)
        '/t?partition=a+b'
    """
    query_parameters = {name.rstrip("_"): value for name, value in parameters.items() if value not in (None, "", False)}
    return f"{address}?{urlencode(query_parameters, errors='replace')}" if query_parameters else address
