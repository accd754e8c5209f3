"""What a writing verb asks for, checked once (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lakefmt.errors import InvalidInputError, UnknownSetting
from lakefmt.schema_history import LATEST_SCHEMA
from lakefmt.timeline.commit import SCHEMA_KEY
from lakefmt.timeline.instant import Action
from lakefmt.values import CommitResult, WriteOperation
from lakefmt.values_python import flag_argument, mapping_argument, shown, text_argument

__all__ = ["ARGUMENTS", "EMPTY_PAYLOAD", "OnCommit", "WriteRequest", "honour_spark_options", "parse_call"]

OnCommit = Callable[[CommitResult], object]

#: The arguments that every writing verb takes beside its own.
ARGUMENTS: Final = frozenset({"options", "commit_metadata", "on_commit", "schema_change", "dry_run"})

#: The payload class by which an upsert becomes a delete of its keys.
EMPTY_PAYLOAD: Final = "EmptyHoodieRecordPayload"

_REPLACING = frozenset(
    {WriteOperation.INSERT_OVERWRITE, WriteOperation.INSERT_OVERWRITE_TABLE, WriteOperation.DELETE_PARTITION}
)
_SORTS = ("none", "partition", "global")


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """One call of a writing verb.

    Attributes:
        operation: what it does.
        options: settings of the call.
        commit_metadata: texts to keep in the commit.
        schema_change: ``"add"`` or ``"strict"``.
        partial: rows may lack columns; stored values stay.
        drop_duplicates: rows whose key is stored, or comes twice, are left out.
        sort: the order of a bulk insert.
    """

    operation: WriteOperation
    options: Mapping[str, object] = field(default_factory=dict)
    commit_metadata: Mapping[str, str] = field(default_factory=dict)
    schema_change: str = "add"
    partial: bool = False
    drop_duplicates: bool = False
    sort: str = "none"

    def __post_init__(self) -> None:
        if text_argument(self.schema_change, "schema_change") not in ("add", "strict"):
            raise InvalidInputError(f"unknown schema_change {self.schema_change!r}: expected 'add' or 'strict'")
        if text_argument(self.sort, "sort") not in _SORTS:
            raise InvalidInputError(f"unknown sort {self.sort!r}: expected {', '.join(map(repr, _SORTS))}")
        taken = sorted({SCHEMA_KEY, LATEST_SCHEMA} & set(self.commit_metadata))
        if taken:
            raise InvalidInputError(f"commit_metadata: the name {taken[0]!r} is taken")
        for name, text in mapping_argument(self.commit_metadata, "commit_metadata").items():
            text_argument(text, f"commit_metadata[{name!r}]")

    @property
    def action(self) -> Action:
        """The timeline action of a copy-on-write table."""
        return Action.REPLACE_COMMIT if self.operation in _REPLACING else Action.COMMIT

    @property
    def keeps_empty(self) -> bool:
        """True when a write without rows still has something to say."""
        # An overwrite with no rows empties what it overwrites; metadata may carry a checkpoint.
        return bool(self.commit_metadata) or self.operation in _REPLACING

    @property
    def streams(self) -> bool:
        """True when rows are written as they come, never held whole."""
        return self.operation is WriteOperation.BULK_INSERT and not self.drop_duplicates


def honour_spark_options(request: WriteRequest) -> WriteRequest:
    """Return the request with what Hudi's own option names ask for in place of arguments.

    Raises:
        UnknownSetting: the options name another operation than the verb.

    Example:
        >>> asked = WriteRequest(WriteOperation.INSERT, {"hoodie.datasource.write.insert.drop.duplicates": "true"})
        >>> honour_spark_options(asked).drop_duplicates
        True
    """
    options = request.options
    stated = str(options.get("hoodie.datasource.write.operation", request.operation.value)).upper()
    if stated != request.operation.value:
        raise UnknownSetting(f"hoodie.datasource.write.operation={stated.lower()} contradicts the verb that was called")
    drop = str(options.get("hoodie.datasource.write.insert.drop.duplicates", "false")).lower() == "true"
    if drop and request.operation in (WriteOperation.INSERT, WriteOperation.BULK_INSERT):
        request = replace(request, drop_duplicates=True)
    payload = str(options.get("hoodie.datasource.write.payload.class", "")).rsplit(".", 1)[-1]
    if payload == EMPTY_PAYLOAD and request.operation is WriteOperation.UPSERT:
        request = replace(request, operation=WriteOperation.DELETE, partial=True)
    return request


def parse_call(
    operation: WriteOperation, call: Mapping[str, Any], **asked: Any
) -> tuple[WriteRequest, OnCommit | None]:
    """Return what the keyword arguments of a writing verb ask for, and who wants to be told.

    Args:
        operation: what the verb does.
        call: the arguments that every writing verb takes.
        **asked: the verb's own arguments.

    Raises:
        TypeError: an argument that no writing verb takes.
        InvalidInputError: a value that an argument does not take.
    """
    if unknown := call.keys() - ARGUMENTS:
        raise TypeError(f"unexpected arguments {', '.join(sorted(unknown))}: a writing verb takes {sorted(ARGUMENTS)}")
    asked = {name: value if name == "sort" else flag_argument(value, name) for name, value in asked.items()}
    request = WriteRequest(
        operation,
        mapping_argument(call.get("options"), "options"),
        mapping_argument(call.get("commit_metadata"), "commit_metadata"),
        call.get("schema_change", "add"),
        **asked,
    )
    observer = call.get("on_commit")
    if observer is not None and not callable(observer):
        raise InvalidInputError(f"on_commit takes a function of the result, not {shown(observer)}")
    flag_argument(call.get("dry_run"), "dry_run")
    return honour_spark_options(request), observer
