"""The merge of a source into a table: ``table.merge(source, on).when_matched(...)….execute()`` (docs/merge.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Literal, Unpack

import pyarrow as pa

from lakefmt._core.arguments import check_keywords, flag_argument, mapping_argument, shown
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.schema.cast import plain_columns
from lakefmt._core.values import CommitResult, Filter, WriteOperation
from lakefmt._core.write.commit.retry import retried
from lakefmt._core.write.context import ARGUMENTS, OnCommit, WriteRequest, parse_call
from lakefmt._core.write.ingest import open_stream, read_all
from lakefmt._core.write.merge import Merge, plan_merge_write, run_merge
from lakefmt._core.write.merge_rows import Clause, Values, When
from lakefmt.errors import InvalidInputError
from lakefmt.options import WriteOptions

__all__ = ["MergeValues", "TableMerge"]

Finished = Callable[[CommitResult | None, WriteRequest, OnCommit | None, float], CommitResult]
#: What an update or insert stores: every column of the source, or column → SQL expression or value.
MergeValues = Literal["all"] | bool | Mapping[str, object]


@dataclass(frozen=True, slots=True)
class TableMerge:
    """A merge that is put together clause by clause, and runs with :meth:`execute`.

    Each method returns a new merge. In every clause ``t.<column>`` is the table's row and ``s.<column>`` the source's. A
    stored row and a source row that belong together are a match; the first clause whose condition holds decides about it.

    Values are ``"all"`` or True (every column that the source has), or a mapping of columns: a text is an SQL expression
    such as ``"t.fare * 2"`` (a text value is written ``"'sf'"``), an Arrow scalar, a number, a date or None is a value.

    Attributes:
        client: the open table.
        source: anything that holds Arrow data.
        on: names of columns, an SQL condition, or None: the record key.
        clauses: what was asked for so far.
    """

    client: TableClient
    writing: AbstractContextManager[object]
    finished: Finished
    source: object
    on: str | Sequence[str] | None = None
    clauses: tuple[Clause, ...] = ()

    def __repr__(self) -> str:
        return f"TableMerge({self.client.store.url!r}, {len(self.clauses)} clauses)"

    def when_matched(self, update: MergeValues = "all", *, where: Filter = None) -> TableMerge:
        """Update the stored row of a match.

        Args:
            update: what it gets: ``"all"``, or column → SQL expression or value; other columns stay.
            where: a condition over ``t`` and ``s``; None: always.

        Raises:
            InvalidInputError: `update` is neither.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a", "b"], "v": [1, 2]})
            >>> t = lakefmt.write_table("memory://doc-merge-update", data, record_key="id") and lakefmt.open_table(
            ...     "memory://doc-merge-update")
            >>> t.merge(pa.table({"id": ["a"], "v": [5]})).when_matched({"v": "t.v + s.v"}).execute().num_updates
            1
        """
        return self._with(Clause(When.MATCHED, False, _values(update, "update"), where))

    def when_matched_delete(self, *, where: Filter = None) -> TableMerge:
        """Delete the stored row of a match.

        Args:
            where: a condition over ``t`` and ``s``; None: always.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a", "b"]})
            >>> t = lakefmt.create_table("memory://doc-merge-delete", data=data, record_key="id")
            >>> _ = t.insert(data)
            >>> t.merge(pa.table({"id": ["a"]})).when_matched_delete().execute().num_deletes
            1
        """
        return self._with(Clause(When.MATCHED, True, None, where))

    def when_not_matched(self, insert: MergeValues = "all", *, where: Filter = None) -> TableMerge:
        """Insert a source row that no stored row belongs to.

        Args:
            insert: what is stored: ``"all"``, or column → SQL expression or value; other columns are null.
            where: a condition over ``s``; None: always.

        Raises:
            InvalidInputError: `insert` is neither.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a", "b"]})
            >>> t = lakefmt.create_table("memory://doc-merge-insert", data=data, record_key="id")
            >>> _ = t.insert(data)
            >>> t.merge(pa.table({"id": ["b", "c"]})).when_not_matched().execute().num_inserts
            1
        """
        return self._with(Clause(When.NOT_MATCHED, False, _values(insert, "insert"), where))

    def when_not_matched_by_source(
        self, *, update: Mapping[str, object] | None = None, delete: bool = False, where: Filter = None
    ) -> TableMerge:
        """Update or delete a stored row that no source row belongs to.

        Args:
            update: column → SQL expression over ``t``, or value.
            delete: True deletes the row.
            where: a condition over ``t``; None: always.

        Raises:
            InvalidInputError: neither `update` nor `delete`, or both.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a", "b"]})
            >>> t = lakefmt.create_table("memory://doc-merge-by-source", data=data, record_key="id")
            >>> _ = t.insert(data)
            >>> t.merge(pa.table({"id": ["b"]})).when_not_matched_by_source(delete=True).execute().num_deletes
            1
        """
        deletes = flag_argument(delete, "delete")
        if deletes == (update is not None):
            raise InvalidInputError("when_not_matched_by_source takes either update= or delete=True")
        values = None if update is None else mapping_argument(update, "update")
        return self._with(Clause(When.NOT_MATCHED_BY_SOURCE, deletes, values, where))

    def _with(self, clause: Clause) -> TableMerge:
        return replace(self, clauses=(*self.clauses, clause))

    def execute(self, **call: Unpack[WriteOptions]) -> CommitResult:
        """Run the merge as one commit.

        Args:
            **call: as for ``table.upsert``.

        Raises:
            InvalidInputError: there is no clause, or a column is not there.
            InvalidFilter: a condition cannot be understood.
            DuplicateKey: two source rows change one stored row, or two rows would have one record key.
            SchemaMismatch: a value does not fit its column.
            ConflictError: another writer is or was at work; nothing was changed.
            UnsupportedFeature: rows of an append table would be changed.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a", "b"], "v": [1, 2]})
            >>> t = lakefmt.create_table("memory://doc-merge", data=data, record_key="id")
            >>> _ = t.insert(data)
            >>> source = pa.table({"id": ["b", "c"], "v": [20, 30]})
            >>> result = t.merge(source).when_matched().when_not_matched().execute()
            >>> result.num_updates, result.num_inserts
            (1, 1)
        """
        check_keywords(self.execute, call, ARGUMENTS)
        if not self.clauses:
            raise InvalidInputError(
                "the merge has no clause: say what happens, such as when_matched() and when_not_matched()"
            )
        started = perf_counter()
        request, observer = parse_call(WriteOperation.UPSERT, call)
        merge = Merge(self._source_rows(request), self.on, self.clauses)
        with self.writing:
            if call.get("dry_run"):
                return plan_merge_write(self.client, request, merge)
            result = retried(self.client, request, lambda: run_merge(self.client, request, merge))
        return self.finished(result, request, observer, perf_counter() - started)

    def _source_rows(self, request: WriteRequest) -> pa.Table:
        """Return the source's rows; of a stream no more than the settings allow are held."""
        schema, tables = open_stream(self.source, table_schema=lambda: self.client.at(self.client.load()).schema())
        most = resolve_settings(request.options, self.client.options).integer("lakefmt.merge.source.bytes")
        held, size = list[pa.Table](), 0
        for table in tables:
            held.append(table)
            size += table.nbytes
            if size > most and not isinstance(self.source, pa.Table | pa.RecordBatch):
                raise InvalidInputError(
                    f"the source of the merge has more than {most:,} bytes, and is held in memory: merge it part by part, or "
                    "raise lakefmt.merge.source.bytes"
                )
        return plain_columns(read_all(schema, held))


def _values(given: MergeValues, name: str) -> Values:
    if given is True or given == "all":
        return None
    if isinstance(given, Mapping):
        return mapping_argument(given, name)
    raise InvalidInputError(f"{name} is 'all' or a mapping of columns to SQL expressions or values, not {shown(given)}")
