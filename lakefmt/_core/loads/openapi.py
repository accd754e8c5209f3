"""The description of the interface, as OpenAPI has it (pure)."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["openapi_document"]

#: Headers of an operation, and what they say.
_BEGIN: Final = {
    "label": "name of the transaction, unique in its database",
    "db": "database",
    "table": "table; not in a transaction over several",
    "timeout": "seconds until it has to be prepared",
    "idle_transaction_timeout": "seconds without a load",
    "transaction_type": "multi: loads name their tables",
    "request_id": "a begin with the id of an earlier one gets its reply",
}
_ROWS: Final = {
    "format": "csv, json, or a compression of CSV",
    "compression": "gzip, bz2, lz4, zstd or deflate",
    "column_separator": "up to 50 bytes; hexadecimal as \\x01",
    "row_delimiter": "up to 50 bytes",
    "columns": "names of fields, and expressions",
    "where": "rows that are selected",
    "partitions": "partitions that are selected",
    "max_filter_ratio": "how large a part of the rows may be bad",
    "strict_mode": "a value that cannot be converted makes its row bad",
    "timezone": "of times without one",
    "jsonpaths": "paths of the fields",
    "json_root": "path to the rows of a document",
    "strip_outer_array": "a document is an array of rows",
    "ignore_json_size": "more than 100 MB are allowed",
    "partial_update": "columns that are not named keep what is stored",
    "merge_condition": "a column that must not become smaller",
    "skip_header": "rows at the start of each body that are left out",
    "trim_space": "blanks around fields are left out",
    "enclose": "the byte around fields",
    "escape": "the byte that protects the next one",
    "log_rejected_record_num": "how many bad rows are noted",
    "lakefmt_operation": "upsert, insert or bulk_insert",
}
_LOAD: Final = {
    "label": "of the transaction",
    "db": "database",
    "table": "table",
    "load_seq": "a load is taken once",
    **_ROWS,
}
_END: Final = {"label": "of the transaction", "db": "database"}
_PLAIN: Final = {
    "label": "made by the server if it is missing",
    **_ROWS,
    "enable_merge_commit": "commit together with others",
    "merge_commit_interval_ms": "for how long others are waited for",
    "merge_commit_async": "reply before the commit",
}


def _operation(
    summary: str, headers: dict[str, str], *, body: bool = False, paths: tuple[str, ...] = ()
) -> dict[str, Any]:
    needed = {"label", "db"} & set(headers) if not paths else set[str]()
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in paths
    ]
    parameters += [
        {"name": name, "in": "header", "required": name in needed, "description": text, "schema": {"type": "string"}}
        for name, text in headers.items()
    ]
    made: dict[str, Any] = {
        "summary": summary,
        "parameters": parameters,
        "responses": {
            "200": {
                "description": "the outcome: Status says whether it is good",
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
            "401": {"description": "the user or the password is wrong"},
        },
    }
    if body:
        made["requestBody"] = {
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        }
    return made


def openapi_document() -> dict[str, Any]:
    """Return the document.

    Example:
        >>> sorted(openapi_document()["paths"])[:2]
        ['/api/health', '/api/transaction/begin']
    """
    database_and_table = ("db", "table")
    state = _operation("LoadState of a label", {}, paths=("db",))
    state["parameters"].append({"name": "label", "in": "query", "required": True, "schema": {"type": "string"}})
    return {
        "openapi": "3.1.0",
        "info": {"title": "lakefmt loads", "version": "1", "description": "Two-phase loads into Apache Hudi tables."},
        "components": {"securitySchemes": {"basic": {"type": "http", "scheme": "basic"}}},
        "security": [{"basic": []}],
        "paths": {
            "/api/transaction/begin": {"post": _operation("Begin a transaction", _BEGIN)},
            "/api/transaction/load": {"put": _operation("Add rows to a transaction", _LOAD, body=True)},
            "/api/transaction/prepare": {
                "post": _operation("Make its rows durable", {**_END, "prepared_timeout": "seconds until its commit"})
            },
            "/api/transaction/commit": {"post": _operation("Make its rows visible", _END)},
            "/api/transaction/rollback": {"post": _operation("Drop it", _END)},
            "/api/transaction/list": {"get": _operation("All transactions", {})},
            "/api/{db}/get_load_state": {"get": state},
            "/api/{db}/{label}/_cancel": {"post": _operation("Drop a transaction", {}, paths=("db", "label"))},
            "/api/{db}/{table}/_stream_load": {
                "put": _operation("Load and commit in one request", _PLAIN, body=True, paths=database_and_table)
            },
            "/api/health": {"get": _operation("Whether the server answers", {})},
            "/metrics": {"get": _operation("Counters, as Prometheus reads them", {})},
        },
    }
