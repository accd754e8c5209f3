"""What the headers of a request and the options of a server mean, what replies look like, and an OpenAPI document (pure).

Names, defaults and texts are those that StarRocks documents for its Stream Load transactions; where its guide, its server and its Java
client differ, the server is followed and all are accepted (docs/http-loads.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from lakefmt._core.arguments import shown
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import (
    InvalidInputError,
)

__all__ = [
    "DEFAULT_TIMEOUT",
    "DENIED",
    "MAX_TIMEOUT",
    "MOST_CHARACTERS",
    "MOST_PROBLEMS",
    "BeginParameters",
    "DuplicateLabel",
    "LoadCounts",
    "LoadOptions",
    "LoadParameters",
    "Refusal",
    "Reply",
    "UnknownTransaction",
    "check_folder_name",
    "check_label",
    "existing_status",
    "is_known_header",
    "load_state_body",
    "openapi_document",
    "outcome_body",
    "parse_begin",
    "parse_load",
    "plain_body",
    "seconds_header",
    "separator_bytes",
]

DEFAULT_TIMEOUT: Final = 600
MAX_TIMEOUT: Final = 259_200
_LABEL = re.compile(r"[-\w]{1,128}", re.ASCII)
_NAME = re.compile(r"[\w][-\w. $]{0,254}")
#: Bad rows of which a reason is kept, and how much of each.
MOST_PROBLEMS: Final = 50
MOST_CHARACTERS: Final = 200
#: The same where a load asks for its rejected rows.
_MOST_REJECTED: Final = 10_000
_MOST_REJECTED_CHARACTERS: Final = 64 << 10
_MAX_SEPARATOR: Final = 50
_MAX_COLUMNS_TEXT: Final = 100_000
#: Formats that mean compressed CSV.
_COMPRESSED_CSV: Final = ("gzip", "bz2", "bzip2", "lz4", "lz4_frame", "zstd", "deflate")
_COMPRESSIONS: Final = {
    "": "",
    "none": "",
    "identity": "",
    "gzip": "gzip",
    "x-gzip": "gzip",
    "bz2": "bz2",
    "bzip2": "bz2",
    "lz4": "lz4",
    "lz4_frame": "lz4",
    "zstd": "zstd",
    "deflate": "deflate",
}


class Refusal(InvalidInputError):
    """A request is refused. ``status`` is the reply's Status, ``rolls_back`` says whether its transaction goes with it."""

    def __init__(self, message: str, *, status: str = "FAILED", rolls_back: bool = False) -> None:
        super().__init__(message)
        self.status, self.rolls_back = status, rolls_back


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply.

    Attributes:
        body: a JSON object, or a text.
        status: of HTTP.
        headers: beside those of the body.
        close: the connection ends with it.
    """

    body: Mapping[str, object] | str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    close: bool = False

    @property
    def content(self) -> tuple[str, bytes]:
        """The type of the content and its bytes."""
        if isinstance(self.body, str):
            return "text/plain; charset=utf-8", self.body.encode()
        return "application/json", json.dumps(dict(self.body)).encode()


#: What a request without the right password gets.
DENIED: Final = Reply(
    {"Status": "FAILED", "Message": "Access denied: the user or the password is wrong"},
    401,
    {"WWW-Authenticate": 'Basic realm=""'},
)


@dataclass(frozen=True, slots=True)
class LoadCounts:
    """What was made of rows.

    Attributes:
        total: rows that came.
        loaded: rows that are staged.
        filtered: bad rows.
        unselected: rows that ``where`` or the list of partitions leaves out.
        bytes: of bodies.
        warnings: bodies whose last row had no delimiter, and the like.
    """

    total: int = 0
    loaded: int = 0
    filtered: int = 0
    unselected: int = 0
    bytes: int = 0
    warnings: int = 0

    def __add__(self, other: LoadCounts) -> LoadCounts:
        return LoadCounts(
            self.total + other.total,
            self.loaded + other.loaded,
            self.filtered + other.filtered,
            self.unselected + other.unselected,
            self.bytes + other.bytes,
            self.warnings + other.warnings,
        )

    def exceeds(self, ratio: float) -> bool:
        """Return whether too many of the selected rows are bad.

        Example:
            >>> LoadCounts(total=100, filtered=29).exceeds(0.29), LoadCounts(total=10, filtered=1, unselected=5).exceeds(0.1)
            (False, True)
        """
        # Division rounds 29 / 100 to the same double as the ratio 0.29; multiplying 0.29 by 100 gives less than 29.
        return self.filtered > 0 and self.filtered / (self.total - self.unselected) > ratio

    def body(self) -> dict[str, object]:
        """Return the counts by the names of a reply."""
        return {
            "NumberTotalRows": self.total,
            "NumberLoadedRows": self.loaded,
            "NumberFilteredRows": self.filtered,
            "NumberUnselectedRows": self.unselected,
            "LoadBytes": self.bytes,
        }


@dataclass(frozen=True, slots=True)
class BeginParameters:
    """What the headers of a begin say. ``table`` is empty in a transaction over several tables."""

    label: str
    database: str
    table: str
    timeout: int = DEFAULT_TIMEOUT
    idle_timeout: int = 0
    multi: bool = False
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class LoadParameters:
    """What the headers of a load say of its body; every load of a table in a transaction has the same.

    Attributes:
        format: ``"csv"`` or ``"json"``.
        compression: ``"gzip"``, ``"bz2"``, ``"lz4"``, ``"zstd"``, ``"deflate"`` or empty.
        separator: between fields.
        delimiter: behind rows.
        columns: the list of fields and expressions; empty: the table's columns.
        where: which rows are selected.
        partitions: which partitions are selected; empty: all.
        max_filter_ratio: how large a part of the rows may be bad.
        strict: a value that cannot be converted makes its row bad; else it becomes null.
        timezone: of times without one; empty: the server's.
        jsonpaths: JSON text of a list of paths.
        json_root: path to what is read of a document.
        strip_outer_array: a document is an array of rows.
        ignore_json_size: a body may be larger than 100 MB.
        partial_update: columns that are not named keep what is stored.
        merge_condition: a row replaces the stored one only if this column is not smaller.
        skip_header: rows at the start of each body that are left out.
        trim_space: blanks around fields are left out.
        enclose: the byte around fields; empty: there is none.
        escape: the byte that protects the next one; empty: there is none.
        log_rejected: how many bad rows are written down whole; -1: as many as the server takes.
        operation: ``"upsert"``, ``"insert"`` or ``"bulk_insert"``; empty: what the table says.
    """

    format: str = "csv"
    compression: str = ""
    separator: bytes = b"\t"
    delimiter: bytes = b"\n"
    columns: str = ""
    where: str = ""
    partitions: tuple[str, ...] = ()
    max_filter_ratio: float = 0.0
    strict: bool = False
    timezone: str = ""
    jsonpaths: str = ""
    json_root: str = ""
    strip_outer_array: bool = False
    ignore_json_size: bool = False
    partial_update: bool = False
    merge_condition: str = ""
    skip_header: int = 0
    trim_space: bool = False
    enclose: bytes = b""
    escape: bytes = b""
    log_rejected: int = 0
    operation: str = ""

    @property
    def most_problems(self) -> int:
        """Of how many bad rows a reason is kept."""
        limit = _MOST_REJECTED if self.log_rejected < 0 else min(self.log_rejected, _MOST_REJECTED)
        return max(MOST_PROBLEMS, limit)

    @property
    def most_characters(self) -> int:
        """How much of a bad row is kept."""
        return _MOST_REJECTED_CHARACTERS if self.log_rejected else MOST_CHARACTERS


def check_label(label: str) -> str:
    """Return a label.

    Raises:
        Refusal: it is none.

    Example:
        >>> check_label("batch-7")
        'batch-7'
    """
    if not label:
        raise Refusal("Empty label.")
    if not _LABEL.fullmatch(label):
        raise Refusal(
            f"Invalid label {shown(label)}: 1 to 128 letters of ASCII, digits, '-' and '_' make one", status="FAILED"
        )
    return label


def check_folder_name(name: str, what: str) -> str:
    """Return the name of a database or table, which is also the name of a folder.

    Raises:
        Refusal: it could leave the base path, or is hidden.

    Example:
        >>> check_folder_name("sales", "table")
        'sales'
    """
    if not _NAME.fullmatch(name) or name.endswith("."):
        raise Refusal(f"Invalid {what} name {shown(name)}")
    return name


def _flag(headers: Mapping[str, str], name: str) -> bool:
    value = headers.get(name, "false").lower()
    if value not in ("true", "false", "1", "0", ""):
        raise Refusal(f"Invalid {name}: {shown(value)} is neither true nor false", rolls_back=True)
    return value in ("true", "1")


def seconds_header(headers: Mapping[str, str], name: str, default: int, most: int = MAX_TIMEOUT) -> int:
    """Return a number of seconds.

    Raises:
        Refusal: it is no number from 1 on.
    """
    value = headers.get(name, "")
    if not value:
        return default
    if not value.isascii() or not value.isdigit() or len(value) > 9 or not 1 <= int(value) <= most:
        raise Refusal(f"Invalid {name}: {shown(value)} is no number of seconds from 1 to {most}")
    return int(value)


def _count(headers: Mapping[str, str], name: str, default: int, least: int = 0) -> int:
    value = headers.get(name, "")
    if not value:
        return default
    if not re.fullmatch(r"-?[0-9]{1,9}", value, re.ASCII) or int(value) < least:
        raise Refusal(f"Invalid {name}: {shown(value)}", rolls_back=True)
    return int(value)


def separator_bytes(separator: str, default: bytes, name: str) -> bytes:
    r"""Return the bytes of a separator: as they are, with escapes such as ``\t``, or in hexadecimal, ``\x01`` or ``0x01``.

    Args:
        separator: of the header; empty: it was not given.
        default: what it is then.
        name: of the header.

    Raises:
        Refusal: it is longer than 50 bytes, or no hexadecimal number.

    Example:
        >>> [separator_bytes(text, b",", "column_separator") for text in ("", "||", r"\x01\x02", "0x0102", r"\t")]
        [b',', b'||', b'\x01\x02', b'\x01\x02', b'\t']
    """
    if not separator:
        return default
    raw: bytes
    if separator[:2].lower() in ("\\x", "0x"):
        digits = re.sub(r"\\[xX]", "", separator[2:])
        if not digits or len(digits) % 2 or not re.fullmatch(r"[0-9a-fA-F]+", digits):
            raise Refusal(f"Invalid {name}: {shown(separator)} is no sequence of bytes in hexadecimal", rolls_back=True)
        raw = bytes.fromhex(digits)
    else:
        escapes = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\\\": "\\"}
        raw = re.sub(r"\\[tnr\\]", lambda match: escapes[match[0]], separator).encode("utf-8", "surrogateescape")
    if len(raw) > _MAX_SEPARATOR:
        raise Refusal(f"Invalid {name}: {len(raw)} bytes are more than {_MAX_SEPARATOR}", rolls_back=True)
    return raw


def _single_byte(headers: Mapping[str, str], name: str) -> bytes:
    raw = separator_bytes(headers.get(name, ""), b"", name)
    if len(raw) > 1:
        raise Refusal(f"Invalid {name}: it is one byte", rolls_back=True)
    return raw


def parse_begin(headers: Mapping[str, str], default_timeout: int = DEFAULT_TIMEOUT) -> BeginParameters:
    """Return what the headers of a begin say.

    Args:
        headers: names in lower case, values trimmed.
        default_timeout: of a transaction that names none.

    Raises:
        Refusal: one is missing or invalid.

    Example:
        >>> parse_begin({"label": "a", "db": "d", "table": "t", "timeout": "5"}).timeout
        5
    """
    label = check_label(headers.get("label", ""))
    if not headers.get("db"):
        raise Refusal("No database selected.")
    multi = headers.get("transaction_type", "").lower() == "multi"
    if not headers.get("table") and not multi:
        raise Refusal("No table selected.")
    return BeginParameters(
        label,
        check_folder_name(headers["db"], "database"),
        "" if multi else check_folder_name(headers["table"], "table"),
        seconds_header(headers, "timeout", default_timeout),
        seconds_header(headers, "idle_transaction_timeout", 0),
        multi,
        headers.get("request_id", "")[:128],
    )


def _ratio(headers: Mapping[str, str]) -> float:
    value = headers.get("max_filter_ratio", "") or "0"
    if not re.fullmatch(r"[0-9]{0,3}\.?[0-9]{0,15}", value, re.ASCII) or value == "." or not 0 <= float(value) <= 1:
        raise Refusal(f"Invalid max_filter_ratio: {shown(value)} is no number from 0 to 1", rolls_back=True)
    return float(value)


def _format_of(headers: Mapping[str, str]) -> tuple[str, str]:
    """Return format and compression."""
    name = (headers.get("format", "") or "csv").lower()
    compressions = [headers[key].lower() for key in ("compression", "content-encoding") if headers.get(key)]
    if len(compressions) > 1:
        raise Refusal("compression and content-encoding: give one of them", rolls_back=True)
    if name in _COMPRESSED_CSV:
        compressions, name = [name], "csv"
    if name not in ("csv", "json"):
        raise Refusal(f"Unknown data format: {shown(name)}: csv and json are read", rolls_back=True)
    compression = compressions[0] if compressions else ""
    if compression not in _COMPRESSIONS:
        raise Refusal(f"Unsupported compression {shown(compression)}", rolls_back=True)
    return name, _COMPRESSIONS[compression]


def parse_load(headers: Mapping[str, str]) -> LoadParameters:
    """Return what the headers of a load say of its body.

    Raises:
        Refusal: one is invalid.

    Example:
        >>> parse_load({"column_separator": ",", "format": "gzip"}).compression
        'gzip'
    """
    name, compression = _format_of(headers)
    partitions = headers.get("partitions", "")
    if partitions and headers.get("temporary_partitions"):
        raise Refusal("partitions and temporary_partitions: give one of them", rolls_back=True)
    if headers.get("temporary_partitions"):
        raise Refusal("temporary_partitions: a Hudi table has none", rolls_back=True)
    columns, where = headers.get("columns", ""), headers.get("where", "")
    if len(columns) > _MAX_COLUMNS_TEXT or len(where) > _MAX_COLUMNS_TEXT:
        raise Refusal("columns or where is too long", rolls_back=True)
    mode = headers.get("partial_update_mode", "row").lower()
    if mode not in ("row", "auto", "column", "column_update", "column_upsert"):
        raise Refusal(f"Invalid partial_update_mode {shown(mode)}", rolls_back=True)
    operation = headers.get("lakefmt_operation", "").lower()
    if operation not in ("", "upsert", "insert", "bulk_insert"):
        raise Refusal(f"Invalid lakefmt_operation {shown(operation)}", rolls_back=True)
    parameters = LoadParameters(
        name,
        compression,
        separator_bytes(headers.get("column_separator", ""), b"\t", "column_separator"),
        separator_bytes(headers.get("row_delimiter", ""), b"\n", "row_delimiter"),
        columns,
        where,
        tuple(part.strip() for part in partitions.split(",") if part.strip()),
        _ratio(headers),
        _flag(headers, "strict_mode"),
        headers.get("timezone", ""),
        headers.get("jsonpaths", ""),
        headers.get("json_root", ""),
        _flag(headers, "strip_outer_array"),
        _flag(headers, "ignore_json_size"),
        _flag(headers, "partial_update"),
        headers.get("merge_condition", ""),
        _count(headers, "skip_header", 0),
        _flag(headers, "trim_space"),
        _single_byte(headers, "enclose"),
        _single_byte(headers, "escape"),
        _count(headers, "log_rejected_record_num", 0, -1),
        operation,
    )
    special = [
        mark for mark in (parameters.separator, parameters.delimiter, parameters.enclose, parameters.escape) if mark
    ]
    if name == "csv" and len(set(special)) < len(special):
        raise Refusal("column_separator, row_delimiter, enclose and escape have to differ", rolls_back=True)
    return parameters


def outcome_body(
    status: str, message: str, label: str = "", transaction_id: int | None = None, **more: object
) -> dict[str, object]:
    """Return the body of a reply to an operation of a transaction; empty fields are left out.

    Example:
        >>> outcome_body("OK", "", "a", 7, ErrorURL="")
        {'Status': 'OK', 'Message': '', 'Label': 'a', 'TxnId': 7}
    """
    body: dict[str, object] = {"Status": status, "Message": message}
    if label:
        body["Label"] = label
    if transaction_id is not None:
        body["TxnId"] = transaction_id
    body.update((name, value) for name, value in more.items() if value not in (None, ""))
    return body


def plain_body(body: Mapping[str, Any]) -> dict[str, object]:
    """Return the body of a load in one request: it has other names for the outcome of a transaction.

    Example:
        >>> plain_body({"Status": "OK", "Message": ""}), plain_body({"Status": "TIMEOUT", "Message": "late"})
        ({'Status': 'Success', 'Message': 'OK'}, {'Status': 'Fail', 'Message': 'late'})
    """
    words = {"OK": "Success", "LABEL_ALREADY_EXISTS": "Label Already Exists"}
    status = words.get(str(body["Status"]), "Fail")
    return {**body, "Status": status, "Message": "OK" if status == "Success" else body["Message"]}


def existing_status(*, finished: bool) -> str:
    """Return the name of the state of the transaction that has the label already."""
    return "FINISHED" if finished else "RUNNING"


def load_state_body(state: str, reason: str = "") -> dict[str, object]:
    """Return the body of a reply that tells the state of a label."""
    return {"state": state, "reason": reason, "status": "OK", "code": "0", "msg": "Success", "message": "OK"}


#: Headers of an operation, and what they say.
_BEGIN_HEADERS: Final = {
    "label": "name of the transaction, unique in its database",
    "db": "database",
    "table": "table; not in a transaction over several",
    "timeout": "seconds until it has to be prepared",
    "idle_transaction_timeout": "seconds without a load",
    "transaction_type": "multi: loads name their tables",
    "request_id": "a begin with the id of an earlier one gets its reply",
}
_ROW_HEADERS: Final = {
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
_LOAD_HEADERS: Final = {
    "label": "of the transaction",
    "db": "database",
    "table": "table",
    "load_seq": "a load is taken once",
    **_ROW_HEADERS,
}
_END_HEADERS: Final = {"label": "of the transaction", "db": "database"}
_PLAIN_HEADERS: Final = {
    "label": "made by the server if it is missing",
    **_ROW_HEADERS,
    "enable_merge_commit": "commit together with others",
    "merge_commit_interval_ms": "for how long others are waited for",
    "merge_commit_async": "reply before the commit",
}


#: Headers of HTTP, and those that StarRocks knows and that mean nothing here.
_IGNORED_HEADERS: Final = frozenset(
    (
        *(
            "accept",
            "accept-encoding",
            "authorization",
            "connection",
            "content-length",
            "content-type",
            "expect",
            "host",
        ),
        *("transfer-encoding", "user-agent", "content-encoding", "two_phase_commit", "warehouse", "source_type"),
        *("negative", "load_mem_limit", "exec_mem_limit", "load_dop", "transmission_compression_type", "channel_num"),
        *("channel_id", "temporary_partitions", "partial_update_mode", "prepared_timeout", "merge_commit_parallel"),
    )
)


def is_known_header(name: str) -> bool:
    """Return whether the server reads a header or ignores it on purpose; `name` is in lower case.

    Example:
        >>> is_known_header("column_separator"), is_known_header("column-separator")
        (True, False)
    """
    return name in _IGNORED_HEADERS or any(name in names for names in (_BEGIN_HEADERS, _LOAD_HEADERS, _PLAIN_HEADERS))


def _operation(
    summary: str, headers: dict[str, str], *, body: bool = False, paths: tuple[str, ...] = ()
) -> dict[str, Any]:
    needed = {"label", "db"} & set(headers) if not paths else set[str]()
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in paths
    ]
    parameters += [
        {
            "name": name,
            "in": "header",
            "required": name in needed,
            "description": description,
            "schema": {"type": "string"},
        }
        for name, description in headers.items()
    ]
    operation: dict[str, Any] = {
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
        operation["requestBody"] = {
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        }
    return operation


def openapi_document() -> dict[str, Any]:
    """Return the document.

    Example:
        >>> sorted(openapi_document()["paths"])[:2]
        ['/api/health', '/api/transaction/begin']
    """
    database_and_table = ("db", "table")
    state = _operation("State of a label", {}, paths=("db",))
    state["parameters"].append({"name": "label", "in": "query", "required": True, "schema": {"type": "string"}})
    return {
        "openapi": "3.1.0",
        "info": {"title": "lakefmt loads", "version": "1", "description": "Two-phase loads into Apache Hudi tables."},
        "components": {"securitySchemes": {"basic": {"type": "http", "scheme": "basic"}}},
        "security": [{"basic": []}],
        "paths": {
            "/api/transaction/begin": {"post": _operation("Begin a transaction", _BEGIN_HEADERS)},
            "/api/transaction/load": {"put": _operation("Add rows to a transaction", _LOAD_HEADERS, body=True)},
            "/api/transaction/prepare": {
                "post": _operation(
                    "Make its rows durable", {**_END_HEADERS, "prepared_timeout": "seconds until its commit"}
                )
            },
            "/api/transaction/commit": {"post": _operation("Make its rows visible", _END_HEADERS)},
            "/api/transaction/rollback": {"post": _operation("Drop it", _END_HEADERS)},
            "/api/transaction/list": {"get": _operation("All transactions", {})},
            "/api/{db}/get_load_state": {"get": state},
            "/api/{db}/{label}/_cancel": {"post": _operation("Drop a transaction", {}, paths=("db", "label"))},
            "/api/{db}/{table}/_stream_load": {
                "put": _operation("Load and commit in one request", _PLAIN_HEADERS, body=True, paths=database_and_table)
            },
            "/api/health": {"get": _operation("Whether the server answers", {})},
            "/metrics": {"get": _operation("Counters, as Prometheus reads them", {})},
        },
    }


_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Limits and defaults of a load server.

    Attributes:
        tables: ``"database.table"`` → path or URL, for tables that do not lie at ``<base path>/<database>/<table>``.
        lengths: ``"database.table.column"`` → the most bytes of a text, as ``VARCHAR(n)`` has them; a row with a longer one is bad.
        journal: where transactions are stored; None: below the base path.
        settings: ``lakefmt.*`` and ``hoodie.*`` settings of commits.
        timeout: seconds from a begin to its prepare, where the client says nothing.
        prepared_timeout: seconds from there to the commit.
        max_running: open and prepared transactions of a database.
        label_keep_seconds: how long the end of a transaction is remembered.
        label_keep_num: how many ends are remembered in a database. Commits are remembered by the tables themselves, longer.
        max_body_bytes: of one body, unpacked.
        max_staged_bytes: of rows that wait for a commit.
        max_memory_bytes: of rows that are not stored yet, in all transactions together.
        allow_empty: a transaction without rows may commit.
        begin_replaces_open: a begin with the label of an open transaction ends that one, as the guide has it.
        rollback_on_internal_error: a load that fails for a while ends its transaction, as StarRocks does.
        guide_replies: an unknown transaction is a FAILED, as the guide has it, not a TXN_NOT_EXISTS.
        show_values: lists of bad rows show how those begin.
        wait_seconds: how long a prepare, commit or rollback waits for a load that is running.
        merge_interval_ms: how long small loads are gathered for one commit, where they say nothing.
        durable: what is prepared is on the disk; False is for tests.
    """

    tables: Mapping[str, str] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    journal: str | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    timeout: int = 600
    prepared_timeout: int = 86_400
    max_running: int = 1_000
    label_keep_seconds: int = 259_200
    label_keep_num: int = 1_000
    max_body_bytes: int = 10 * _GIB
    max_staged_bytes: int = 100 * _GIB
    max_memory_bytes: int = _GIB
    allow_empty: bool = False
    begin_replaces_open: bool = False
    rollback_on_internal_error: bool = False
    guide_replies: bool = False
    show_values: bool = False
    wait_seconds: float = 30.0
    merge_interval_ms: int = 1_000
    durable: bool = True


class DuplicateLabel(Refusal):
    """The label has a transaction already; ``existing`` says in which state."""

    def __init__(self, label: str, transaction_id: int | None, *, finished: bool) -> None:
        super().__init__(f"Label [{label}] has already been used.", status="LABEL_ALREADY_EXISTS")
        self.transaction_id, self.existing = transaction_id, existing_status(finished=finished)


class UnknownTransaction(Refusal):
    """There is no transaction of that label."""
