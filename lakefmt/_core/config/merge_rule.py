"""How two rows with one key are merged: the rule of a table, and registered merge functions (docs/format.md, Merge modes).

One rule serves batches and stored rows (docs/format.md, Partial updates). Hudi states it in three ways: payload classes (versions
6 and 8), a merge mode (8 and 9), and a merge mode with partial update mode and merge properties (9). A payload class can differ
slightly from its replacement in version 9, as noted below.

Merge functions are Python functions over Arrow tables. A table names its merger by an id derived from the function's name. Other
engines refuse the table, unless someone registered a merger with that id. Code is never stored. A process has a function because
it registered it, or because the caller's options name it as ``module:function``; nothing in a table is ever imported.
"""

from __future__ import annotations

import enum
import pkgutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final

import pyarrow as pa

from lakefmt._core.arguments import shown, text_argument
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.values import MergeMode
from lakefmt.errors import InvalidInputError, MergerMissing, UnsupportedFeature

__all__ = [
    "FUNCTION",
    "MERGE_PROPERTIES",
    "PAYLOAD_MODES",
    "PAYLOAD_STRATEGY",
    "CustomMerge",
    "DeleteMark",
    "MergeFunction",
    "MergeRule",
    "Order",
    "Partial",
    "PartialMode",
    "adopt_merger",
    "find_merger",
    "is_payload_class",
    "merger_name",
    "nine_of_payload",
    "plan_merge_rule",
    "register_merger",
    "strategy_id",
    "with_merger",
]

#: The option with the function's name, and its key in lakefmt's table file.
FUNCTION: Final = "lakefmt.merge.function"
#: The UUID namespace of merger ids; it never changes.
_MERGER_NAMESPACE: Final = uuid.UUID("5b0b5a0e-7c5c-5d2e-9a4f-8e1f3d6c2a71")
#: ``(older, newer) -> merged`` or ``-> (merged, deletes)``: tables of equal length and schema,
#: aligned by key.
MergeFunction = Callable[[pa.Table, pa.Table], "pa.Table | tuple[pa.Table, object]"]
_registered: dict[str, CustomMerge] = {}
_MERGE_PROPERTY: Final = "hoodie.record.merge.property."
_UNAVAILABLE_VALUE: Final = "hoodie.write.partial.update.unavailable.value"
_DELETE_FIELD: Final = "hoodie.payload.delete.field"
_DELETE_MARKER: Final = "hoodie.payload.delete.marker"
_RECORD_MERGE_MODE: Final = "hoodie.record.merge.mode"
_PARTIAL_MODE: Final = "hoodie.table.partial.update.mode"
_ORDERING_FIELDS: Final = "hoodie.table.ordering.fields"
#: Properties that say more of a merge than its mode; what ends with a dot is a beginning.
MERGE_PROPERTIES: Final = (_MERGE_PROPERTY, _DELETE_FIELD, _DELETE_MARKER)
#: The strategy id of tables that merge by a payload class.
PAYLOAD_STRATEGY: Final = "00000000-0000-0000-0000-000000000000"
_DEBEZIUM_UNAVAILABLE: Final = "__debezium_unavailable_value"
_PAYLOAD_PACKAGE: Final = "org.apache.hudi.common.model."
#: The payload classes that equal a merge mode.
PAYLOAD_MODES: Final[Mapping[str, MergeMode]] = {
    _PAYLOAD_PACKAGE + "OverwriteWithLatestAvroPayload": MergeMode.COMMIT_TIME_ORDERING,
    _PAYLOAD_PACKAGE + "DefaultHoodieRecordPayload": MergeMode.EVENT_TIME_ORDERING,
    _PAYLOAD_PACKAGE + "EventTimeAvroPayload": MergeMode.EVENT_TIME_ORDERING,
}


class PartialMode(enum.Enum):
    """When a column of the winning record takes the other record's value.

    The last two are values of ``hoodie.table.partial.update.mode``; the first is that of an older
    payload class, which ignores defaults.
    """

    IGNORE_NULLS = "IGNORE_NULLS"
    IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
    FILL_UNAVAILABLE = "FILL_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class Order:
    """How two records compare: the larger wins, the later on a tie; without fields the later wins.

    Attributes:
        fields: ordering columns, most significant first; dots for nested fields.
        numbered: values are texts ``file.position`` (a binary log position) and compare as two
            numbers.
        required: a null is an error instead of the smallest value.
        reverse: the smaller one wins.
    """

    fields: tuple[str, ...] = ()
    numbered: bool = False
    required: bool = False
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class Partial:
    """The partial update of records.

    Attributes:
        mode: which values of the winner are replaced.
        text: the placeholder of an unavailable value; None: no placeholder.
        in_batch: also between rows of one batch; rows of logs always are.
        from_late: a losing row fills the winner, too.
    """

    mode: PartialMode
    text: str | None = None
    in_batch: bool = True
    from_late: bool = True


@dataclass(frozen=True, slots=True)
class DeleteMark:
    """A column and the value that marks a delete, in addition to ``_hoodie_is_deleted``."""

    field: str
    value: str
    any_case: bool = False


@dataclass(frozen=True, slots=True)
class MergeRule:
    """How a table merges records.

    Attributes:
        stored: order of a row of the batch and the stored row.
        batch: order of two rows of one batch.
        partial: partial update of the winner; None: none.
        delete: the delete marker; None: only ``_hoodie_is_deleted``.
        deletes_win: a row that marks itself deleted deletes the stored one in any order.
        custom: merge function for two rows in the order of arrival; replaces everything else.
        blocks_win: the same for delete blocks; a payload class does not see their ordering values.

    Example:
        >>> MergeRule.plain(MergeMode.EVENT_TIME_ORDERING, ("ts",)).stored.fields
        ('ts',)
    """

    stored: Order = Order()
    batch: Order = Order()
    partial: Partial | None = None
    delete: DeleteMark | None = None
    deletes_win: bool = False
    blocks_win: bool = False
    custom: CustomMerge | None = None

    @property
    def needs_stored(self) -> bool:
        """Whether the result of a merge depends on both rows."""
        return self.partial is not None or self.custom is not None

    @property
    def is_own(self) -> bool:
        """Whether the rule is more than a merge mode: then rows in logs are complete."""
        return self.needs_stored or self.deletes_win or self.stored != self.batch or self.stored.reverse

    @classmethod
    def plain(cls, mode: MergeMode, ordering: tuple[str, ...]) -> MergeRule:
        """Return the rule of a merge mode."""
        order = Order(ordering if mode is MergeMode.EVENT_TIME_ORDERING else ())
        return cls(order, order)

    def for_logs(self) -> MergeRule:
        """Return the rule for merging rows of logs: that for stored rows."""
        partial = None if self.partial is None else replace(self.partial, in_batch=True)
        return replace(self, batch=self.stored, partial=partial)

    def without_order(self) -> MergeRule:
        """Return the rule for rows without event time: the later wins."""
        return replace(self, stored=Order(), batch=Order())


def plan_merge_rule(properties: Mapping[str, str], mode: MergeMode, ordering: tuple[str, ...]) -> MergeRule:
    """Return the merge rule of table properties.

    Args:
        properties: the table properties.
        mode: the merge mode, stated or derived.
        ordering: the ordering fields.

    Raises:
        UnsupportedFeature: an unknown merger or payload class, or an incomplete setting.

    Example:
        >>> plan_merge_rule({"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
        ...     MergeMode.COMMIT_TIME_ORDERING, ()).partial.mode
        <PartialMode.IGNORE_DEFAULTS: 'IGNORE_DEFAULTS'>
    """
    delete = _delete_mark(properties)
    if mode is MergeMode.CUSTOM:
        return _payload_rule(properties, ordering, delete)
    rule = replace(MergeRule.plain(mode, ordering), delete=delete)
    stated = properties.get(_PARTIAL_MODE, "").upper()
    if not stated or properties.get("hoodie.table.version") in ("6", "8"):
        return rule  # Hudi reads the property from version 9 on
    if stated not in (PartialMode.IGNORE_DEFAULTS.value, PartialMode.FILL_UNAVAILABLE.value):
        raise UnsupportedFeature(
            f"hoodie.table.partial.update.mode={stated} is not known: tables of that mode are read"
        )
    unavailable_value = properties.get(_MERGE_PROPERTY + _UNAVAILABLE_VALUE) or None
    return replace(rule, partial=Partial(PartialMode(stated), unavailable_value))


def _delete_mark(properties: Mapping[str, str]) -> DeleteMark | None:
    field, marker = (
        properties.get(_MERGE_PROPERTY + key) or properties.get(key) for key in (_DELETE_FIELD, _DELETE_MARKER)
    )
    if not field and not marker:
        return None
    if not field or not marker:
        raise UnsupportedFeature(
            f"the table states only one of {_DELETE_FIELD} and {_DELETE_MARKER}: state both, or none"
        )
    return DeleteMark(field, marker)


def _payload_rule(properties: Mapping[str, str], ordering: tuple[str, ...], delete: DeleteMark | None) -> MergeRule:
    """Return the rule of a payload class in versions 6 and 8."""
    payload = properties.get("hoodie.compaction.payload.class", "")
    rules = _payload_rules(ordering, delete)
    if payload not in rules:
        raise UnsupportedFeature(
            f"the table merges records by {payload or 'a merger that it does not name'}, which lakefmt does not know: it is "
            "read, not written; write with Spark"
        )
    return rules[payload]


def is_payload_class(name: str) -> bool:
    """Return whether tables of versions 6 and 8 that merge by a payload class are written here.

    Example:
        >>> is_payload_class("org.apache.hudi.common.model.PartialUpdateAvroPayload"), is_payload_class("com.shop.Mine")
        (True, False)
    """
    return name in _payload_rules((), None)


_MARKED_CHANGES: Final[Mapping[str, str]] = {
    _MERGE_PROPERTY + _DELETE_FIELD: "_change_operation_type",
    _MERGE_PROPERTY + _DELETE_MARKER: "d",
}
#: What a table of version 9 says in place of a payload class: merge mode, partial update mode, what deletes, and the order.
_NINE_OF_PAYLOAD: Final[Mapping[str, Mapping[str, str]]] = {
    "AWSDmsAvroPayload": {
        _RECORD_MERGE_MODE: MergeMode.COMMIT_TIME_ORDERING.value,
        _MERGE_PROPERTY + _DELETE_FIELD: "Op",
        _MERGE_PROPERTY + _DELETE_MARKER: "D",
    },
    "OverwriteNonDefaultsWithLatestAvroPayload": {
        _RECORD_MERGE_MODE: MergeMode.COMMIT_TIME_ORDERING.value,
        _PARTIAL_MODE: PartialMode.IGNORE_DEFAULTS.value,
    },
    "PartialUpdateAvroPayload": {
        _RECORD_MERGE_MODE: MergeMode.EVENT_TIME_ORDERING.value,
        _PARTIAL_MODE: PartialMode.IGNORE_DEFAULTS.value,
    },
    "debezium.MySqlDebeziumAvroPayload": {
        _RECORD_MERGE_MODE: MergeMode.EVENT_TIME_ORDERING.value,
        _ORDERING_FIELDS: "_event_bin_file,_event_pos",
        **_MARKED_CHANGES,
    },
    "debezium.PostgresDebeziumAvroPayload": {
        _RECORD_MERGE_MODE: MergeMode.EVENT_TIME_ORDERING.value,
        _ORDERING_FIELDS: "_event_lsn",
        _PARTIAL_MODE: PartialMode.FILL_UNAVAILABLE.value,
        _MERGE_PROPERTY + _UNAVAILABLE_VALUE: _DEBEZIUM_UNAVAILABLE,
        **_MARKED_CHANGES,
    },
}


def nine_of_payload(name: str) -> Mapping[str, str]:
    """Return the properties by which a table of version 9 merges, where it was asked for a payload class that Hudi turns into a mode.

    Args:
        name: of the class; one that Hudi keeps as it is, or that is no more than a mode, gives none.

    Example:
        >>> nine_of_payload("org.apache.hudi.common.model.PartialUpdateAvroPayload")["hoodie.table.partial.update.mode"]
        'IGNORE_DEFAULTS'
    """
    return _NINE_OF_PAYLOAD.get(name.removeprefix(_PAYLOAD_PACKAGE), {})


def _payload_rules(ordering: tuple[str, ...], delete: DeleteMark | None) -> dict[str, MergeRule]:
    order = Order(ordering)
    oldest = Order(ordering, required=True, reverse=True)
    changed = DeleteMark("_change_operation_type", "d", any_case=True)
    plain = {name: replace(MergeRule.plain(mode, ordering), delete=delete) for name, mode in PAYLOAD_MODES.items()}
    return {
        **plain,
        # A batch is combined by order, then replaces stored rows in any order.
        _PAYLOAD_PACKAGE + "OverwriteNonDefaultsWithLatestAvroPayload": MergeRule(
            Order(), order, Partial(PartialMode.IGNORE_DEFAULTS, in_batch=False, from_late=False)
        ),
        _PAYLOAD_PACKAGE + "ReverseOrderHoodieRecordPayload": MergeRule(oldest, oldest, delete=delete),
        _PAYLOAD_PACKAGE + "AWSDmsAvroPayload": MergeRule(Order(), order, delete=DeleteMark("Op", "D", any_case=True)),
        _PAYLOAD_PACKAGE + "PartialUpdateAvroPayload": MergeRule(
            order, order, Partial(PartialMode.IGNORE_NULLS), deletes_win=True, blocks_win=True
        ),
        _PAYLOAD_PACKAGE + "debezium.MySqlDebeziumAvroPayload": MergeRule(
            Order(("_event_seq",), numbered=True, required=True),
            Order(ordering, numbered=True),
            delete=changed,
            blocks_win=True,
        ),
        _PAYLOAD_PACKAGE + "debezium.PostgresDebeziumAvroPayload": MergeRule(
            Order(("_event_lsn",), required=True),
            order,
            Partial(PartialMode.FILL_UNAVAILABLE, _DEBEZIUM_UNAVAILABLE, in_batch=False, from_late=False),
            delete=changed,
            blocks_win=True,
        ),
    }


# ------------------------------------------------------------------------------------------------------ merge functions


@dataclass(frozen=True, slots=True)
class CustomMerge:
    """A registered merge function.

    Attributes:
        name: its registered name.
        function: the function; two with one name are equal.
        fixed: the key and partition columns, which it must not change.
    """

    name: str
    function: MergeFunction = field(compare=False, repr=False)
    fixed: tuple[str, ...] = ()


def strategy_id(name: str) -> str:
    """Return the strategy id of a merger's name, the same everywhere.

    Example:
        >>> strategy_id("shop:add") == strategy_id("shop:add") != strategy_id("shop:keep")
        True
    """
    return str(uuid.uuid5(_MERGER_NAMESPACE, name))


def register_merger(name: str, function: MergeFunction) -> None:
    """Register a merge function under a name that tables store.

    Args:
        name: not empty; a new behaviour needs a new name, because tables written with the old one
            are merged by it.
        function: called with two tables of equal length and schema, aligned by key, the older and
            the newer rows; returns the merged rows, or these and a mask of rows to delete.

    Raises:
        InvalidInputError: the name is not valid, or `function` is not callable.

    Example:
        >>> register_merger("doc-keep-old", lambda older, newer: older)
        >>> find_merger(strategy_id("doc-keep-old")).name
        'doc-keep-old'
    """
    if not text_argument(name, "name") or not name.isprintable() or len(name) > 200 or not callable(function):
        raise InvalidInputError(f"{shown(name)} and {type(function).__name__}: a merger is a short name and a function")
    _registered[strategy_id(name)] = CustomMerge(name, function)


def merger_name(merge: str | MergeFunction) -> str:
    """Return the name of the caller's merger, and register it.

    Args:
        merge: a module level function, a registered name, or ``module:function``.

    Raises:
        InvalidInputError: a function without an importable name (a lambda, or a nested function).
        MergerMissing: the name is neither registered nor importable.

    Example:
        >>> register_merger("doc-add", lambda older, newer: newer)
        >>> merger_name("doc-add")
        'doc-add'
    """
    if isinstance(merge, str):
        text_argument(merge, "merge")
        if strategy_id(merge) not in _registered:
            register_merger(merge, _imported_function(merge))
        return merge
    name = f"{getattr(merge, '__module__', '')}:{getattr(merge, '__qualname__', '')}"
    registered = next((merger.name for merger in _registered.values() if merger.function is merge), None)
    if registered is None and ("<" in name or name.startswith(":") or name.endswith(":")):
        raise InvalidInputError(
            "the merge function has no name of its own: register_merger(name, function) gives it one"
        )
    register_merger(registered or name, merge)
    return registered or name


def with_merger(options: Mapping[str, object], merge: str | MergeFunction | None) -> dict[str, object]:
    """Return the options with the merger's name, by which worker processes find the function.

    Raises:
        InvalidInputError: `merge` is neither a mode nor a merger.

    Example:
        >>> with_merger({}, "event_time"), with_merger({}, "os:getcwd")
        ({}, {'lakefmt.merge.function': 'os:getcwd'})
    """
    if merge is None or (isinstance(merge, str) and merge in ("event_time", "commit_time")):
        return dict(options)
    try:
        return {**options, FUNCTION: merger_name(merge)}
    except MergerMissing as error:
        raise InvalidInputError(
            f"unknown merge {shown(merge)}: neither 'event_time' nor 'commit_time', and {error}"
        ) from None


def adopt_merger(options: Mapping[str, object]) -> None:
    """Register the function in the caller's options, if there is one.

    Raises:
        MergerMissing: it cannot be imported.

    Example:
        >>> adopt_merger({})
    """
    name = options.get(FUNCTION)
    if name:
        merger_name(str(name))


def find_merger(identifier: str) -> CustomMerge:
    """Return the merger of a strategy id.

    Raises:
        MergerMissing: it is not registered in this process.
    """
    if identifier not in _registered:
        raise MergerMissing(
            f"the table merges records by merger {identifier}, which this process does not have: its base files are read, "
            f"logs are not merged and nothing is written. If lakefmt made the table, .hoodie/.lakefmt/table.json names "
            f"the function: register_merger(name, function), or options={{'{FUNCTION}': 'module:function'}}; else use "
            "the engine that made it"
        )
    return _registered[identifier]


def _imported_function(name: str) -> MergeFunction:
    """Import the function ``module:function`` that the caller names."""
    try:
        if ":" not in name:
            raise ValueError("no registered name, and not module:function")
        function: MergeFunction = pkgutil.resolve_name(name)
        if not callable(function):
            raise TypeError("not a function")
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise MergerMissing(f"the merge function {name!r} is not there: {error}") from None
    return function
