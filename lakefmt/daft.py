"""DataFrames of Daft, read from tables and written into them (docs/daft.md). Needs ``lakefmt[daft]``."""

from __future__ import annotations

import operator
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, Unpack

import daft
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from daft.expressions.visitor import ExpressionVisitor, PredicateVisitor
from daft.io.sink import DataSink, WriteResult
from daft.io.source import DataSource, DataSourceTask
from daft.recordbatch import MicroPartition, RecordBatch
from daft.schema import Schema

from lakefmt._core.arguments import instance_argument
from lakefmt._core.read.dataset import TableDataset
from lakefmt._core.table import Table
from lakefmt._core.task_writes import bulk_insert_by_tasks, is_written_by_tasks, pickled_result
from lakefmt._core.values import CommitResult
from lakefmt._core.write.tasks import SharedWrite, TaskWriter
from lakefmt.options import WriteOptions

if TYPE_CHECKING:
    from daft import DataType, Expression
    from daft.io.pushdowns import Pushdowns

__all__ = ["read_daft", "write_daft"]


_Comparison: TypeAlias = Callable[[pc.Expression, pa.Scalar], pc.Expression]


# ------------------------------------------------------------------------------------------------------------------ read


def read_daft(table: Table, **query: Any) -> daft.DataFrame:
    """Return the rows of a table as a DataFrame; nothing is read before it is asked for.

    Daft's tasks read a file slice each, logs merged, with the columns that a query needs; slices without a row that the query's filter
    keeps are left out. The table's state is the one at this call.

    Args:
        table: an open table.
        **query: as ``table.dataset`` takes it, such as `as_of` or `filter`.

    Raises:
        InvalidInputError: an argument is not valid.

    Example:
        >>> import lakefmt, pyarrow as pa
        >>> t = lakefmt.create_table("memory://doc-daft", schema=pa.schema([("id", pa.int64())]), record_key="id")
        >>> _ = t.insert(pa.table({"id": [1, 2, 3]}))
        >>> read_daft(t).where(daft.col("id") > 1).count_rows()
        2
    """
    dataset = instance_argument(table, Table, "table").dataset(**query)
    return _TableSource(instance_argument(dataset, TableDataset, "dataset")).read()


class _TableSource(DataSource):
    """The rows of a dataset, a task for each fragment."""

    def __init__(self, dataset: TableDataset) -> None:
        self._dataset = dataset

    @property
    def name(self) -> str:
        return "lakefmt"

    @property
    def schema(self) -> Schema:
        return Schema.from_pyarrow_schema(self._dataset.schema)

    async def get_tasks(self, pushdowns: Pushdowns) -> AsyncIterator[DataSourceTask]:
        """Yield the tasks of a query; Daft itself applies its filter and its limit to what they read."""
        schema, condition = self._dataset.schema, None
        if pushdowns.columns is not None:
            names = {*pushdowns.columns, *(() if pushdowns.filters is None else _COLUMNS.visit(pushdowns.filters))}
            schema = pa.schema([each for each in schema if each.name in names])
        if pushdowns.filters is not None:
            condition = prunable(pushdowns.filters, self._dataset.schema)
        for fragment in self._dataset.get_fragments(filter=condition):
            yield _FragmentTask(fragment, schema)


class _FragmentTask(DataSourceTask):
    def __init__(self, fragment: ds.Fragment, schema: pa.Schema) -> None:
        self._fragment, self._schema = fragment, schema

    @property
    def schema(self) -> Schema:
        return Schema.from_pyarrow_schema(self._schema)

    async def read(self) -> AsyncIterator[RecordBatch]:
        for batch in self._fragment.to_batches(columns=self._schema.names):
            if batch.num_rows:
                yield RecordBatch.from_arrow_record_batches([batch], self._schema)


# ---------------------------------------------------------------------------------------------------------------- filters


class _Columns(ExpressionVisitor[frozenset[str]]):
    """The columns that an expression names."""

    def visit_col(self, name: str) -> frozenset[str]:
        return frozenset((name,))

    def visit_lit(self, value: object) -> frozenset[str]:
        return frozenset()

    def visit_alias(self, expr: Expression, alias: str) -> frozenset[str]:
        return self.visit(expr)

    def visit_cast(self, expr: Expression, dtype: DataType) -> frozenset[str]:
        return self.visit(expr)

    def visit_function(self, name: str, args: list[Expression]) -> frozenset[str]:
        return frozenset[str]().union(*(self.visit(each) for each in args if hasattr(each, "_expr")))

    def visit_coalesce(self, args: list[Expression]) -> frozenset[str]:
        return self.visit_function("coalesce", args)


_COLUMNS: Final = _Columns()


class _Literal(NamedTuple):
    value: object


#: A column, a literal, or a condition; None: anything else, of which nothing is known.
_Part: TypeAlias = pa.Field | _Literal | pc.Expression | None


def prunable(filter: Expression, schema: pa.Schema) -> pc.Expression | None:
    """Return a condition that every row fulfils which Daft's filter keeps; None: none is known.

    Only what Arrow and Daft decide alike is taken: comparisons, also with several values and with null, of columns of whole numbers, texts,
    days and times with literals.

    Args:
        filter: Daft's expression.
        schema: the columns.

    Example:
        >>> schema = pa.schema([("id", pa.int64()), ("v", pa.float64())])
        >>> print(prunable((daft.col("id") > 2) & (daft.col("v") > 1.5), schema))
        (id > 2)
    """
    found = _Pruning(schema).visit(filter)
    return found if isinstance(found, pc.Expression) else None


class _Pruning(PredicateVisitor[_Part]):
    """Turns the parts of a filter that are known into Arrow's expressions."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def visit_col(self, name: str) -> _Part:
        index = self._schema.get_field_index(name)
        return self._schema.field(index) if index >= 0 and _is_alike(self._schema.field(index).type) else None

    def visit_lit(self, value: object) -> _Part:
        return _Literal(value)

    def visit_and(self, left: Expression, right: Expression) -> _Part:
        parts = [part for part in map(self.visit, (left, right)) if isinstance(part, pc.Expression)]
        return reduce(operator.and_, parts) if parts else None

    def visit_or(self, left: Expression, right: Expression) -> _Part:
        parts = [part for part in map(self.visit, (left, right)) if isinstance(part, pc.Expression)]
        return parts[0] | parts[1] if len(parts) == 2 else None

    def _compare(self, left: Expression, right: Expression, compare: _Comparison, mirrored: _Comparison) -> _Part:
        one, other = self.visit(left), self.visit(right)
        if isinstance(one, _Literal):
            one, other, compare = other, one, mirrored
        if not isinstance(one, pa.Field) or not isinstance(other, _Literal):
            return None
        value = _scalar(other.value, one.type)
        return None if value is None else compare(pc.field(one.name), value)

    def visit_equal(self, left: Expression, right: Expression) -> _Part:
        return self._compare(left, right, operator.eq, operator.eq)

    def visit_not_equal(self, left: Expression, right: Expression) -> _Part:
        return self._compare(left, right, operator.ne, operator.ne)

    def visit_less_than(self, left: Expression, right: Expression) -> _Part:
        return self._compare(left, right, operator.lt, operator.gt)

    def visit_less_than_or_equal(self, left: Expression, right: Expression) -> _Part:
        return self._compare(left, right, operator.le, operator.ge)

    def visit_greater_than(self, left: Expression, right: Expression) -> _Part:
        return self._compare(left, right, operator.gt, operator.lt)

    def visit_greater_than_or_equal(self, left: Expression, right: Expression) -> _Part:
        return self._compare(left, right, operator.ge, operator.le)

    def visit_between(self, expr: Expression, lower: Expression, upper: Expression) -> _Part:
        bounds = self.visit_greater_than_or_equal(expr, lower), self.visit_less_than_or_equal(expr, upper)
        parts = [part for part in bounds if isinstance(part, pc.Expression)]
        return reduce(operator.and_, parts) if parts else None

    def visit_is_in(self, expr: Expression, items: list[Expression]) -> _Part:
        equal = [self.visit_equal(expr, item) for item in items]
        parts = [part for part in equal if isinstance(part, pc.Expression)]
        return reduce(operator.or_, parts) if parts and len(parts) == len(equal) else None

    def visit_is_null(self, expr: Expression) -> _Part:
        field = self.visit(expr)
        return pc.field(field.name).is_null() if isinstance(field, pa.Field) else None

    def visit_not_null(self, expr: Expression) -> _Part:
        field = self.visit(expr)
        return pc.field(field.name).is_valid() if isinstance(field, pa.Field) else None

    def visit_not(self, expr: Expression) -> _Part:
        return None  # less is known of what is left out than of what is kept

    def visit_alias(self, expr: Expression, alias: str) -> _Part:
        return self.visit(expr)

    def visit_cast(self, expr: Expression, dtype: DataType) -> _Part:
        return None

    def visit_function(self, name: str, args: list[Expression]) -> _Part:
        return None

    def visit_coalesce(self, args: list[Expression]) -> _Part:
        return None


def _is_alike(column_type: pa.DataType) -> bool:
    """Return whether Arrow and Daft compare values of a type alike: not floats, whose NaN they order in their own ways."""
    kinds = (
        pa.types.is_integer,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_date32,
        pa.types.is_timestamp,
    )
    return any(is_kind(column_type) for is_kind in kinds)


def _scalar(value: object, column_type: pa.DataType) -> pa.Scalar | None:
    """Return a literal in the type of its column; None: it is not exactly one."""
    kinds = {
        int: pa.types.is_integer(column_type),
        str: pa.types.is_string(column_type) or pa.types.is_large_string(column_type),
        date: pa.types.is_date32(column_type),
        datetime: pa.types.is_timestamp(column_type),
    }
    if not kinds.get(type(value)) or (
        isinstance(value, datetime) and (value.tzinfo is None) != (column_type.tz is None)
    ):
        return None
    try:
        return pa.scalar(value, column_type)
    except (pa.ArrowInvalid, OverflowError):
        return None


# ------------------------------------------------------------------------------------------------------------------ write


def write_daft(
    frame: daft.DataFrame,
    table: Table,
    operation: str = "upsert",
    *,
    storage_options: Mapping[str, object] | None = None,
    **call: Unpack[WriteOptions],
) -> CommitResult:
    """Write the rows of a DataFrame into a table, as one commit.

    ``bulk_insert`` lets Daft's tasks write the files, for its rows make new ones; other operations look keys up, and one writer stores
    the rows as Daft's tasks make them.

    Args:
        frame: the rows.
        table: an open table.
        operation: ``upsert``, ``insert``, ``bulk_insert``, ``insert_overwrite``, ``insert_overwrite_table``, or ``append``.
        storage_options: credentials of the store for the tasks of a ``bulk_insert``.
        **call: as for ``table.upsert``.

    Raises:
        InvalidInputError: an argument is not valid.
        SchemaMismatch: the rows do not fit.
        CommitConflict: another writer changed the same file groups meanwhile.

    Example:
        >>> import lakefmt, pyarrow as pa
        >>> t = lakefmt.create_table("memory://doc-daft-write", schema=pa.schema([("id", pa.int64())]), record_key="id")
        >>> write_daft(daft.from_pydict({"id": [1, 2]}), t).num_inserts
        2
    """
    instance_argument(frame, daft.DataFrame, "frame")
    instance_argument(table, Table, "table")
    is_bulk = is_written_by_tasks(operation)
    schema = frame.schema().to_pyarrow_schema()
    if is_bulk:

        def run(shared: SharedWrite) -> Sequence[bytes]:
            stored = frame.write_sink(_FilesSink(shared, schema, storage_options or {})).to_pydict()
            results: Sequence[bytes] = stored["result"]
            return results

        return bulk_insert_by_tasks(table, schema, run, call, "a DataFrame")
    rows = pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in frame.to_arrow_iter()))
    result: CommitResult = getattr(table, operation)(rows, **call)
    return result


class _FilesSink(DataSink[bytes]):
    """Writes the files of a bulk insert, each task those of the rows that it has."""

    def __init__(self, shared: SharedWrite, schema: pa.Schema, storage_options: Mapping[str, object]) -> None:
        self._shared, self._rows, self._storage_options = shared, schema, storage_options

    def name(self) -> str:
        return "lakefmt"

    def schema(self) -> Schema:
        return Schema.from_pyarrow_schema(pa.schema([("result", pa.binary())]))

    def write(self, micropartitions: Iterator[MicroPartition]) -> Iterator[WriteResult[bytes]]:
        writer = TaskWriter(self._shared, random.getrandbits(60), self._storage_options)
        rows = 0
        for part in micropartitions:
            table = part.to_arrow().cast(self._rows)
            if table.num_rows:
                writer.write(table, in_order=False)
                rows += table.num_rows
        yield WriteResult(pickled_result(writer), 0, rows)

    def finalize(self, write_results: list[WriteResult[bytes]]) -> MicroPartition:
        results = pa.array([each.result for each in write_results], pa.binary())
        return MicroPartition.from_arrow(pa.table({"result": results}))
