"""The verbs of ``table.alter``: change a table's columns (docs/schema.md).

An alteration is a commit without files (Hudi: ALTER_SCHEMA) that gives every column an id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from time import perf_counter
from typing import Any, Unpack

import pyarrow as pa

from lakefmt._core.arguments import check_flags, check_keywords, check_texts, text_argument
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.schema.alter import (
    Alteration,
    Position,
    add_column,
    drop_column,
    last_name,
    rename_column,
    update_column,
)
from lakefmt._core.schema.text import parse_type
from lakefmt._core.values import CommitResult, WriteOperation
from lakefmt._core.write.columns import bound_columns
from lakefmt._core.write.commit.retry import retried
from lakefmt._core.write.context import ARGUMENTS, OnCommit, WritePlan, WriteRequest, parse_call
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt.errors import InvalidInputError
from lakefmt.options import WriteOptions

__all__ = [
    "TableAlter",
    "plan_alteration",
    "run_alteration",
]

Finished = Callable[[CommitResult, WriteRequest, OnCommit | None, float], CommitResult]


def run_alteration(client: TableClient, request: WriteRequest) -> CommitResult:
    """Commit the alteration of a request.

    Raises:
        CommitConflict: another commit completed meanwhile.
        SchemaMismatch: what the alteration raises.
    """
    transaction = WriteTransaction.begin(client, request)
    with transaction.aborted_on_error():
        return transaction.commit([])


def plan_alteration(client: TableClient, request: WriteRequest) -> WritePlan:
    """Raise what the alteration of a request would raise; change nothing.

    Raises:
        SchemaMismatch: what the alteration raises.
    """
    WriteTransaction.plan_only(client, request)
    return WritePlan(None, operation=request.operation, assignments=(), replaced={}, rows=0)


class TableAlter:
    """The alterations of one table's columns; each is a commit of its own, without files.

    Names have dots for nested fields, ``element`` for the elements of a list and ``value`` for the values of a map.

    Args:
        client: the open table.
        writing: held while something is changed.
        finished: tells observers of a commit and runs the services that follow it.
    """

    def __init__(self, client: TableClient, writing: AbstractContextManager[object], finished: Finished) -> None:
        self._client = client
        self._writing = writing
        self._finished = finished

    def add_column(
        self,
        name: str,
        type: pa.DataType | str,
        after: str | None = None,
        *,
        before: str | None = None,
        comment: str | None = None,
        **call: Unpack[WriteOptions],
    ) -> CommitResult:
        """Add a column, which is null in all stored rows.

        Args:
            name: the new column.
            type: its type, of Arrow or as text: ``"long"``, ``"list<string>"``.
            after: the column behind which it goes; default: the end.
            before: the column before which it goes.
            comment: what it holds.
            **call: as for ``table.upsert``.

        Raises:
            SchemaMismatch: the name is taken or not allowed, or the type cannot be stored.
            InvalidInputError: the place does not exist.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-alter-add", data=pa.table({"id": ["a"]}), record_key="id")
            >>> t.alter.add_column("v", pa.int64(), before="id").operation.value
            'ALTER_SCHEMA'
            >>> t.schema.names
            ['v', 'id']
        """
        check_keywords(self.add_column, call, ARGUMENTS)
        position, data_type = _position(after, before), _type_argument(type)
        check_texts(comment=comment)
        name = text_argument(name, "name")
        return self._alter(lambda _: Alteration(partial(_with_column, name, data_type, position, comment)), call)

    def drop_column(self, name: str, **call: Unpack[WriteOptions]) -> CommitResult:
        """Drop a column; one that is added later under its name does not get its values.

        Args:
            name: the column.
            **call: as for ``table.upsert``.

        Raises:
            InvalidInputError: there is no such column.
            SchemaMismatch: the table is built on it: a key, partition or ordering column, or that of an index.

        Example:
            >>> import lakefmt
            >>> data = pa.table({"id": ["a"], "v": [1]})
            >>> t = lakefmt.create_table("memory://doc-alter-drop", data=data, record_key="id")
            >>> _ = t.upsert(data), t.alter.drop_column("v"), t.alter.add_column("v", pa.int64())
            >>> t.read().to_pylist()
            [{'id': 'a', 'v': None}]
        """
        check_keywords(self.drop_column, call, ARGUMENTS)
        name = text_argument(name, "name")
        return self._alter(lambda bound: Alteration(lambda schema: drop_column(schema, name, bound)), call)

    def rename_column(self, old: str, new: str, **call: Unpack[WriteOptions]) -> CommitResult:
        """Give a column another name; it keeps its values.

        Args:
            old: the column.
            new: its new name; of a nested field the last part, or the full name.
            **call: as for ``table.upsert``.

        Raises:
            InvalidInputError: there is no such column.
            SchemaMismatch: the name is taken or not allowed, or the table is built on the column.

        Example:
            >>> import lakefmt
            >>> data = pa.table({"id": ["a"], "v": [1]})
            >>> t = lakefmt.create_table("memory://doc-alter-rename", data=data, record_key="id")
            >>> _ = t.upsert(data), t.alter.rename_column("v", "w")
            >>> t.read().to_pylist()
            [{'id': 'a', 'w': 1}]
        """
        check_keywords(self.rename_column, call, ARGUMENTS)
        old, new = text_argument(old, "old"), text_argument(new, "new")
        renamed = old, last_name(old, new)
        return self._alter(
            lambda bound: Alteration(lambda schema: rename_column(schema, old, new, bound), renamed), call
        )

    def update_column(
        self,
        name: str,
        *,
        type: pa.DataType | str | None = None,
        nullable: bool | None = None,
        comment: str | None = None,
        after: str | None = None,
        before: str | None = None,
        **call: Unpack[WriteOptions],
    ) -> CommitResult:
        """Change a column's type, nullability, comment or place; what is None stays as it is.

        Args:
            name: the column.
            type: a wider type, of Arrow or as text: ``int`` → ``long`` → ``float`` → ``double`` → text, a decimal with more digits, and what
                else keeps every value (docs/schema.md).
            nullable: True lets a required column hold nulls; the reverse is refused.
            comment: what it holds.
            after: the column behind which it goes.
            before: the column before which it goes.
            **call: as for ``table.upsert``.

        Raises:
            InvalidInputError: there is no such column or place, or nothing is asked for.
            SchemaMismatch: Hudi does not allow the type, values could be lost, or the table is built on the column.

        Example:
            >>> import lakefmt
            >>> data = pa.table({"id": ["a"], "v": pa.array([1], pa.int32())})
            >>> t = lakefmt.create_table("memory://doc-alter-update", data=data, record_key="id")
            >>> _ = t.upsert(data), t.alter.update_column("v", type=pa.string())
            >>> t.read().to_pylist()
            [{'id': 'a', 'v': '1'}]
        """
        check_keywords(self.update_column, call, ARGUMENTS)
        position, data_type = _position(after, before), None if type is None else _type_argument(type)
        check_texts(comment=comment)
        if nullable is not None:
            check_flags(nullable=nullable)
        if all(value is None for value in (type, nullable, comment)) and not position.is_given:
            raise InvalidInputError("update_column needs what to change: type=, nullable=, comment=, after= or before=")
        name = text_argument(name, "name")

        def altered(bound: Mapping[str, str]) -> Alteration:
            changes: dict[str, Any] = {
                "kind": data_type,
                "nullable": nullable,
                "comment": comment,
                "position": position,
            }
            return Alteration(lambda schema: update_column(schema, name, bound, **changes))

        return self._alter(altered, call)

    def _alter(self, made: Callable[[Mapping[str, str]], Alteration], call: WriteOptions) -> CommitResult:
        started = perf_counter()
        request, observer = parse_call(WriteOperation.ALTER_SCHEMA, call)

        def asked() -> WriteRequest:
            return replace(request, alteration=made(bound_columns(self._client.at(self._client.load()))))

        with self._writing:
            plan = plan_alteration(self._client, asked())  # what is refused is refused before the first effect
            if call.get("dry_run"):
                return plan
            result = retried(self._client, request, lambda: run_alteration(self._client, asked()))
        return self._finished(result, request, observer, perf_counter() - started)


def _with_column(
    name: str, data_type: pa.DataType, position: Position, comment: str | None, schema: pa.Schema
) -> pa.Schema:
    return add_column(schema, name, data_type, position, comment)


def _position(after: str | None, before: str | None) -> Position:
    check_texts(after=after, before=before)
    if after is not None and before is not None:
        raise InvalidInputError("give after= or before=, not both")
    return Position(after, before)


def _type_argument(data_type: object) -> pa.DataType:
    if isinstance(data_type, str):
        return parse_type(data_type)
    if not isinstance(data_type, pa.DataType):
        raise InvalidInputError(f'type takes an Arrow type or its name, such as "long", not {type(data_type).__name__}')
    return data_type
