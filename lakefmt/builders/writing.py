"""Builders of batch writes: rows are collected, and one commit adds them or replaces partitions by them (effects)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from lakefmt.data_classes import dataclass
from lakefmt.errors import SchemaMismatch, StateError
from lakefmt.table import Table
from lakefmt.values import CommitResult

__all__ = ["BatchTableCommit", "BatchTableWrite", "BatchWriteBuilder", "CommitMessage"]


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """Rows that a write has prepared and no commit has made visible.

    Attributes:
        rows: the rows, in the order in which they came.
    """

    rows: pa.Table


class BatchWriteBuilder:
    """Makes the two halves of a batch write."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._replaced: Mapping[str, object] | None = None

    def overwrite(self, static_partition: Mapping[str, object] | None = None) -> BatchWriteBuilder:
        """Replace partitions instead of adding rows.

        Args:
            static_partition: the partition that is replaced; None: those that the rows are for, or all of an unpartitioned
                table.
        """
        self._replaced = dict(static_partition or {})
        return self

    def new_write(self) -> BatchTableWrite:
        """Return the half that takes rows."""
        return BatchTableWrite(self._table.schema)

    def new_commit(self) -> BatchTableCommit:
        """Return the half that makes them visible."""
        return BatchTableCommit(self._table, self._replaced)


class BatchTableWrite:
    """Collects the rows of one commit."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._tables: list[pa.Table] = []
        self._prepared = False

    def write_arrow(self, table: pa.Table) -> None:
        """Take rows.

        Raises:
            SchemaMismatch: their columns are not those of the table.
        """
        if set(table.column_names) != set(self._schema.names):
            raise SchemaMismatch(f"the rows have the columns {table.column_names}, the table {self._schema.names}")
        try:
            self._tables.append(table.select(self._schema.names).cast(self._schema))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatch(f"the rows do not fit the table: {error}") from None

    def write_arrow_batch(self, batch: pa.RecordBatch) -> None:
        """Take a batch of rows."""
        self.write_arrow(pa.Table.from_batches([batch]))

    def write_pandas(self, dataframe: object) -> None:
        """Take a pandas frame."""
        self.write_arrow(pa.Table.from_pandas(dataframe, preserve_index=False))

    def prepare_commit(self) -> list[CommitMessage]:
        """Return the rows for the commit; once.

        Raises:
            StateError: this was asked before.
        """
        if self._prepared:
            raise StateError("a batch write prepares one commit: make another write")
        self._prepared = True
        return [CommitMessage(pa.concat_tables(self._tables))] if self._tables else []

    def close(self) -> None:
        """Forget the rows."""
        self._tables.clear()


class BatchTableCommit:
    """Makes prepared rows visible in one commit."""

    def __init__(self, table: Table, replaced: Mapping[str, object] | None) -> None:
        self._table = table
        self._replaced = replaced
        self._committed = False

    def commit(self, commit_messages: Sequence[CommitMessage]) -> CommitResult:
        """Commit; once.

        Raises:
            StateError: this was asked before.
        """
        if self._committed:
            raise StateError("a batch commit commits once: make another one")
        self._committed = True
        rows = [message.rows for message in commit_messages]
        data = pa.concat_tables(rows) if rows else self._table.schema.empty_table()
        if self._replaced is None:
            return self._table.append(data)
        if not self._replaced:
            return self._table.overwrite(data)
        return self._table.overwrite(data, mode="static", partitions=self._replaced)

    def truncate_table(self) -> CommitResult:
        """Remove every row."""
        return self._table.overwrite(self._table.schema.empty_table(), mode="static")

    def truncate_partitions(self, partitions: Sequence[Mapping[str, object]]) -> CommitResult:
        """Remove every row of some partitions."""
        return self._table.delete_partitions(list(partitions))

    def abort(self, commit_messages: Sequence[CommitMessage]) -> None:
        """Forget prepared rows; nothing of them is stored."""
        self._committed = True

    def close(self) -> None:
        """End the commit."""
