"""A cursor that runs the few statements programs for real-time streams bring along (effects)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakefmt.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidInputError,
    LakefmtError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from lakefmt.errors import InternalError as BrokenInvariant
from lakefmt.realtime.errors import (
    DatabaseError,
    Error,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)
from lakefmt.realtime.results import as_python, typed_columns
from lakefmt.realtime.sql_types import SqlField
from lakefmt.realtime.statements import CreateTable, DropTable, Select, parse_statement

if TYPE_CHECKING:
    from lakefmt.realtime.connection import Connection

__all__ = ["Cursor"]

_ERRORS: Final[tuple[tuple[type[LakefmtError], type[DatabaseError]], ...]] = (
    (NotFoundError, ProgrammingError),
    (AlreadyExistsError, ProgrammingError),
    (InvalidInputError, ProgrammingError),
    (UnsupportedError, NotSupportedError),
    (ConflictError, OperationalError),
    (StorageError, OperationalError),
    (BrokenInvariant, InternalError),
)


class Cursor:
    """Runs statements and hands out their rows (PEP 249); made by ``connection.cursor``."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        #: Rows that `fetchmany` returns when it is not told.
        self.arraysize = 100
        self._closed = False
        self._rows: pa.Table | None = None
        self._fields: tuple[SqlField, ...] = ()
        self._next = 0

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def execute(
        self, operation: str, parameters: object = None, binding_params: Sequence[object] | None = None
    ) -> Cursor:
        """Run a statement: CREATE TABLE, DROP TABLE, or SELECT of columns or COUNT(*) from one table.

        Args:
            operation: the statement.
            parameters: values for its question marks, as a list or tuple.
            binding_params: the same, under the SDK's name.

        Raises:
            NotSupportedError: it is another statement.
            ProgrammingError: it is wrong, or names what does not exist.
            OperationalError: storage or another writer is in the way.
        """
        self._check_open()
        self._rows, self._fields, self._next = None, (), 0
        values = binding_params if binding_params is not None else parameters
        if values is not None and not isinstance(values, (list, tuple)):
            # The SDK's second argument holds hints to its engine.
            values = None
        statement = parse_statement(operation, values)
        try:
            if isinstance(statement, CreateTable):
                self.connection.run_creation(statement)
            elif isinstance(statement, DropTable):
                self.connection.run_drop(statement)
            else:
                self._select(statement)
        except Error:
            raise
        except LakefmtError as error:
            kind = next((to for of, to in _ERRORS if isinstance(error, of)), DatabaseError)
            raise kind(str(error)) from error
        return self

    def executemany(self, operation: str, seqparams: Sequence[Sequence[object]] = ()) -> Cursor:
        """Run a statement once for each sequence of values; the rows of the last one can be fetched."""
        for values in seqparams:
            self.execute(operation, list(values))
        return self

    def _select(self, statement: Select) -> None:
        table, fields = self.connection.open_for_reading(statement.table)
        by_name = {field.name: field for field in fields}
        wanted = [(field.name, field.name) for field in fields] if statement.columns is None else statement.columns
        missing = [name for name, _ in wanted if name not in by_name]
        if missing:
            raise ProgrammingError(
                f"table {statement.table.name!r} has no column {missing[0]!r}: it has {', '.join(by_name)}"
            )
        if statement.count is not None:
            smallest = [fields[0].name]
            number = self.connection.read(table, smallest, statement.where).num_rows
            self._rows = pa.table({"count": pa.array([number], pa.int64())}).rename_columns([statement.count])
            self._fields = ()
            return
        columns = list(dict.fromkeys(name for name, _ in wanted))
        rows = self.connection.read(table, columns, statement.where)
        taken = pa.Table.from_arrays([rows.column(name) for name, _ in wanted], names=[alias for _, alias in wanted])
        self._fields = tuple(by_name[name] for name, _ in wanted)
        self._rows = typed_columns(taken, self._fields)

    def _check_open(self) -> None:
        if self._closed or self.connection.closed:
            raise InterfaceError("the cursor or its connection is closed")

    def _result(self) -> pa.Table:
        self._check_open()
        if self._rows is None:
            raise ProgrammingError("no result: execute a SELECT first")
        return self._rows

    @property
    def rowcount(self) -> int:
        """The rows of the result; -1 when there is none."""
        return -1 if self._rows is None else int(self._rows.num_rows)

    @property
    def description(self) -> tuple[tuple[Any, ...], ...] | None:
        """One tuple per column of the result, name and SQL type first (PEP 249); None when there is none."""
        if self._rows is None:
            return None
        types = [str(field.type) for field in self._fields] or ["INT64"]
        nullable = [field.nullable for field in self._fields] or [False]
        names = self._rows.column_names
        return tuple(
            (name, *rest) for name, *rest in zip(names, types, *[[None] * len(names)] * 4, nullable, strict=True)
        )

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, None behind the last one."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next rows, as many as there are up to `size`."""
        result = self._result()
        wanted = max(0, self.arraysize if size is None else size)
        part = result.slice(self._next, wanted)
        self._next += part.num_rows
        return as_python(part)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows that were not fetched yet."""
        return self.fetchmany(self._result().num_rows)

    def fetch_arrow(self) -> pa.Table:
        """Return the result as an Arrow table."""
        return self._result()

    def fetch_pandas(self) -> Any:
        """Return the result as a pandas data frame."""
        return self._result().to_pandas()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while rows := self.fetchmany():
            yield from rows

    def setinputsizes(self, sizes: object) -> None:
        """Do nothing (PEP 249)."""

    def setoutputsize(self, size: object, column: object = None) -> None:
        """Do nothing (PEP 249)."""

    def close(self) -> None:
        """End the cursor; its rows are gone."""
        self._closed = True
        self._rows = None
