"""The options of a follower: their defaults, which values are valid, and the names of the connector guide. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from types import MappingProxyType
from typing import Any, Final, TypedDict

from lakefmt._core.arguments import shown
from lakefmt._core.data_classes import dataclass, replace
from lakefmt.errors import InvalidInputError, UnknownSetting

__all__ = [
    "CdcOptions",
    "CdcSettings",
    "TableSettings",
    "connector_options",
    "effective_values",
    "parse_options",
    "table_settings",
]

_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "mode": ("upsert", "append_log"),
    "delete_mode": ("hard", "soft", "both"),
    "on_column_dropped": ("keep", "drop", "fail"),
    "on_column_renamed": ("rename", "add"),
    "on_type_changed": ("widen", "new_column", "fail"),
    "on_truncate": ("fail", "apply", "ignore"),
    "on_table_gone": ("keep", "fail"),
    "on_table_error": ("stop", "fail"),
    "on_position_lost": ("fail", "resnapshot", "latest"),
    "error_handler": ("terminate", "tolerate"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CdcOptions:
    """The options of a follower; they never change.

    Attributes:
        mode: ``"upsert"``: a table mirrors its source; ``"append_log"``: it keeps every change.
        name: of the follower; the position is stored under it. Two followers of one table need two names.
        commit_interval: seconds between commits, at the end of a transaction.
        idle_interval: seconds after which a table without changes commits the position alone.
        delete_mode: ``"hard"``: a deleted row goes; ``"soft"``: it stays, with the time in `deleted_at_column`; ``"both"``: it stays so
            for `deleted_retention`, and then goes.
        deleted_retention: with ``delete_mode="both"``, seconds for which a deleted row stays. Rows whose time is over go every
            `idle_interval` and when the follower ends.
        deleted_at_column: of soft deletes.
        operation_column: of a log: INSERT, UPDATE_BEFORE, UPDATE_AFTER or DELETE. None: not stored; then rows before updates are left
            out, and deletes are refused unless `log_without_operation`.
        log_without_operation: a log without that column stores deleted rows, too, and nothing tells them.
        event_time_column: of a log: when the change was committed in the source; None: not stored.
        position_column: of a log: a text that sorts as the changes happened; None: not stored.
        transaction_column: of a log: the id of the transaction in the source; None: not stored.
        on_column_dropped: a column that the source dropped is kept and null from then on, is dropped, or ends the follower.
        on_column_renamed: where the source tells, the column gets its new name; ``"add"``: a new column is added, and the old one stays.
        on_type_changed: the column gets a wider type; ``"new_column"``: where no wider type holds both, values go as text into
            ``<name>__v2``; ``"fail"``: it ends the follower.
        on_truncate: what a TRUNCATE of the source does.
        on_table_gone: what a dropped or renamed table does: the table here stays as it is, or the follower ends.
        on_table_error: a table whose columns cannot be made or altered here, or that the source cannot read, stops alone: the others go
            on, the error is raised when the follower ends, and the next one reads all rows of the table; ``"fail"``: it ends the
            follower. A log of changes always does.
        on_position_lost: the source has purged what comes next: end; ``"resnapshot"``: read all rows, and delete those that are not
            among them; ``"latest"``: go on with what comes from now on, and lose what was between.
        error_handler: a row that cannot be stored ends the follower, or goes to the dead letters.
        dead_letters: the folder for such rows below the table's private folder; None: they are lost, which needs
            `lose_rejected_rows`.
        lose_rejected_rows: rows that cannot be stored are counted and lost.
        max_error_rows: more rejected rows of a table end the follower; None: no limit.
        max_error_ratio: a larger part of a table's rows, of at least a thousand, ends the follower; None: no limit.
        reconnect_attempts: attempts after a lost connection, until one of them brings an event.
        reconnect_interval: seconds before the first of them; doubled each time, up to a minute.
        table_type: of tables that are made: ``"mor"`` or ``"cow"``.
        table_version: of tables that are made.
        index: of tables that are made.
        properties: of tables that are made.
        settings: of the commits, such as ``hoodie.*`` keys.
        buffer_rows: rows of a full buffer of a table.
        buffer_bytes: bytes of it.
        buffers: full buffers of a table that may wait.

    Example:
        >>> CdcOptions(mode="append_log").operation_column
        '_operation'
        >>> CdcOptions(mode="mirror")
        Traceback (most recent call last):
        lakefmt.errors.InvalidInputError: options of a follower: mode must be 'upsert' or 'append_log', not 'mirror'
    """

    mode: str = "upsert"
    name: str = "cdc"
    commit_interval: float = 60.0
    idle_interval: float = 600.0
    delete_mode: str = "hard"
    deleted_retention: float = 604_800.0
    deleted_at_column: str = "_deleted_at"
    operation_column: str | None = "_operation"
    log_without_operation: bool = False
    event_time_column: str | None = "_event_time"
    position_column: str | None = "_position"
    transaction_column: str | None = "_transaction"
    on_column_dropped: str = "keep"
    on_column_renamed: str = "rename"
    on_type_changed: str = "widen"
    on_truncate: str = "fail"
    on_table_gone: str = "keep"
    on_table_error: str = "stop"
    on_position_lost: str = "fail"
    error_handler: str = "terminate"
    dead_letters: str | None = None
    lose_rejected_rows: bool = False
    max_error_rows: int | None = None
    max_error_ratio: float | None = None
    reconnect_attempts: int = 10
    reconnect_interval: float = 1.0
    table_type: str = "mor"
    table_version: int = 8
    index: str = "bloom"
    properties: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    buffer_rows: int = 10_000
    buffer_bytes: int = 5 * 1024 * 1024
    buffers: int = 5

    def __post_init__(self) -> None:
        wrong = [
            f"{name} must be {' or '.join(map(repr, choices))}, not {shown(getattr(self, name))}"
            for name, choices in _CHOICES.items()
            if getattr(self, name) not in choices
        ]
        wrong += [
            f"{name} must be a number of at least {least:g}, not {shown(getattr(self, name))}"
            for name, least in _LEAST.items()
            if not _is_number(getattr(self, name), least, optional=name.startswith("max_"))
        ]
        if self.error_handler == "tolerate" and self.dead_letters is None and not self.lose_rejected_rows:
            wrong.append("error_handler='tolerate' needs dead_letters, a folder, or lose_rejected_rows=True")
        if wrong:
            raise InvalidInputError(f"options of a follower: {'; '.join(wrong)}")
        object.__setattr__(self, "properties", MappingProxyType(dict(self.properties)))
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    @property
    def logs(self) -> bool:
        """Whether every change is kept."""
        return self.mode == "append_log"

    @property
    def marks_deletes(self) -> bool:
        """Whether deleted rows stay with a mark, for ever or for a while."""
        return self.delete_mode != "hard"

    def to_dict(self) -> dict[str, object]:
        """Return every option by name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return values | {"properties": dict(self.properties), "settings": dict(self.settings)}


_LEAST: Final[Mapping[str, float]] = {
    "commit_interval": 0,
    "idle_interval": 0,
    "deleted_retention": 0,
    "max_error_rows": 0,
    "max_error_ratio": 0,
    "reconnect_attempts": 0,
    "reconnect_interval": 0,
    "buffer_rows": 1,
    "buffer_bytes": 1,
    "buffers": 1,
}


def _is_number(value: object, least: float, *, optional: bool) -> bool:
    if value is None:
        return optional
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= least


class CdcSettings(TypedDict, total=False):
    """Single fields of :class:`CdcOptions`, which tells what they mean, as keyword arguments of ``follow``."""

    mode: str
    name: str
    commit_interval: float
    idle_interval: float
    delete_mode: str
    deleted_retention: float
    deleted_at_column: str
    operation_column: str | None
    log_without_operation: bool
    event_time_column: str | None
    position_column: str | None
    transaction_column: str | None
    on_column_dropped: str
    on_column_renamed: str
    on_type_changed: str
    on_truncate: str
    on_table_gone: str
    on_table_error: str
    on_position_lost: str
    error_handler: str
    dead_letters: str | None
    lose_rejected_rows: bool
    max_error_rows: int | None
    max_error_ratio: float | None
    reconnect_attempts: int
    reconnect_interval: float
    table_type: str
    table_version: int
    index: str
    properties: Mapping[str, str]
    settings: Mapping[str, object]
    buffer_rows: int
    buffer_bytes: int
    buffers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """What is said of one table.

    Attributes:
        path: where it lies; None: below the base path, ``<schema>/<table>``.
        record_key: its key, for tables of the source without one.
        partition_by: the column or columns whose values make partition paths.
        ordering: a column, under its name here, whose larger value wins where changes of a key come out of order; None: the later one wins.
        rename: other names for columns: the source's name → the name here.
    """

    path: str | None = None
    record_key: tuple[str, ...] = ()
    partition_by: str | tuple[str, ...] | None = None
    ordering: str | None = None
    rename: Mapping[str, str] = field(default_factory=dict)


def table_settings(value: object, table: str) -> TableSettings:
    """Return what a caller says of a table: a path, or a mapping with the fields of :class:`TableSettings`.

    Raises:
        InvalidInputError: it is neither.

    Example:
        >>> table_settings({"path": "/lake/orders", "record_key": "id"}, "shop.orders").record_key
        ('id',)
    """
    if value is None or isinstance(value, TableSettings):
        return value or TableSettings()
    if not isinstance(value, Mapping):
        return TableSettings(path=str(value))
    names = {each.name for each in fields(TableSettings)}
    if unknown := sorted(set(value) - names):
        raise InvalidInputError(f"table {shown(table)}: unknown {shown(unknown[0])}: give {', '.join(sorted(names))}")
    values: dict[str, Any] = dict(value)
    for name in ("record_key", "partition_by"):
        if isinstance(values.get(name), str) and name == "record_key":
            values[name] = (values[name],)
        elif isinstance(values.get(name), Sequence) and not isinstance(values[name], str):
            values[name] = tuple(values[name])
    return TableSettings(**values)


#: The guide's connectors → the mode.
_CONNECTORS: Final = {
    "igs-dynamic-table": "upsert",
    "igs-dynamic-table-append-only": "append_log",
    "upsert": "upsert",
    "append_log": "append_log",
}
#: The guide's option → the option here, and how its text is read.
_BUFFERS: Final = {
    "mutation.buffer.space": "buffer_bytes",
    "mutation.buffer.max.num": "buffers",
    "mutation.buffer.lines.num": "buffer_rows",
    "request.failed.retry.times": "reconnect_attempts",
}
_INTERVALS: Final = {
    "mutation.flush.interval": "commit_interval",
    "request.failed.retry.internal.ms": "reconnect_interval",
}
#: Options that are accepted and change nothing here, and why.
_WITHOUT_EFFECT: Final = {
    "curl": "a table has a path",
    "schema-name": "a table has a path",
    "table-name": "a table has a path",
    "workspace": "there is none",
    "properties": "they are of the vendor's connection",
    "sink.parallelism": "one process writes in the order of the source",
    "flush.mode": "a commit makes rows durable",
    "showDebugLog": "set the level of the logger 'lakefmt'",
    "request.failed.retry.enable": "failures that pass are tried again",
    "request.failed.retry.status": "failures that pass are tried again",
}


def connector_options(guide_options: Mapping[str, str]) -> tuple[CdcOptions, tuple[str, ...]]:
    """Return the options of a follower from those of the connector guide, and what had no effect, a sentence each.

    Args:
        guide_options: the guide's option names → their texts.

    Raises:
        UnknownSetting: an option is not of the guide, or its text has no meaning.

    Example:
        >>> options, notes = connector_options({"connector": "igs-dynamic-table-append-only", "mapping.operation.type.to": "op"})
        >>> options.mode, options.operation_column, notes
        ('append_log', 'op', ())
    """
    values: dict[str, Any] = {}
    notes = []
    for name, value in guide_options.items():
        if name == "connector":
            values["mode"] = _parsed(name, value, _CONNECTORS.__getitem__)
        elif name == "mapping.operation.type.to":
            values["operation_column"] = value
        elif name == "error.type.handler":
            values |= _error_handler(name, value)
        elif name in _BUFFERS:
            values[_BUFFERS[name]] = _parsed(name, value, int)
        elif name in _INTERVALS:
            values[_INTERVALS[name]] = _parsed(name, value, int) / 1000
        elif name in _WITHOUT_EFFECT:
            notes.append(f"{name} has no effect: {_WITHOUT_EFFECT[name]}")
        else:
            raise UnknownSetting(f"{shown(name)} is no option of the connectors")
    if values.get("mode") == "append_log":
        values.setdefault("operation_column", None)
    elif "operation_column" in values:
        notes.append("mapping.operation.type.to has no effect: an upsert table has no column of operations")
    return CdcOptions(**values), tuple(notes)


def parse_options(given: Mapping[str, str]) -> tuple[CdcOptions, tuple[str, ...]]:
    """Return the options of a follower from texts, and what had no effect.

    Args:
        given: names of options, names of the connector guide, and settings that begin with ``hoodie.`` or ``lakefmt.``.

    Raises:
        UnknownSetting: there is no such option, or its text has no meaning.
        InvalidInputError: a value is not valid.

    Example:
        >>> options, _ = parse_options({"commit_interval": "5", "connector": "upsert", "hoodie.clean.automatic": "false"})
        >>> options.commit_interval, options.settings["hoodie.clean.automatic"]
        (5.0, 'false')
    """
    usual = CdcOptions()
    fields_by_name = usual.to_dict()
    values: dict[str, Any] = {}
    settings = {name: value for name, value in given.items() if name.startswith(("hoodie.", "lakefmt."))}
    guide = {name: value for name, value in given.items() if name not in settings and name not in fields_by_name}
    for name, value in given.items():
        if name in fields_by_name and name not in ("properties", "settings"):
            values[name] = _parsed(name, value, _parser(fields_by_name[name], name))
    options, notes = connector_options(guide) if guide else (usual, ())
    return replace(options, **values, settings=settings), notes


def _parser(usual: object, name: str) -> Any:
    if isinstance(usual, bool):
        return {"true": True, "false": False}.__getitem__
    if isinstance(usual, float) or name == "max_error_ratio":
        return float
    if isinstance(usual, int) or name == "max_error_rows":
        return int
    return lambda text: text or None


def _error_handler(name: str, value: str) -> dict[str, object]:
    """Return the options of an error handler, given its class name; the last part of the name decides."""
    if value.endswith("TerminateErrorTypeHandler") or value == "terminate":
        return {"error_handler": "terminate"}
    if value.endswith("DefaultErrorTypeHandler") or value == "tolerate":
        return {"error_handler": "tolerate", "dead_letters": "cdc"}
    raise UnknownSetting(f"{name}={shown(value)}: expected a TerminateErrorTypeHandler or a DefaultErrorTypeHandler")


def _parsed(name: str, value: str, parse: Any) -> Any:
    try:
        return parse(value)
    except (KeyError, ValueError):
        raise UnknownSetting(f"{name}={shown(value)} is not valid") from None


def effective_values(options: CdcOptions) -> list[str]:
    """Return the options that differ from their defaults, as ``name=value``, for the line at the start.

    Example:
        >>> effective_values(CdcOptions(commit_interval=5))
        ['commit_interval=5']
    """
    usual = CdcOptions().to_dict()
    values = {name: value for name, value in options.to_dict().items() if value != usual[name]}
    # A setting may be the credential of a lock's store.
    shown_values = {**values, **({"settings": sorted(options.settings)} if options.settings else {})}
    return [f"{name}={value}" for name, value in shown_values.items()]
