"""The methods ``open_stream``, ``open_stream_async`` and ``recover_streams`` of a table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Unpack

from lakefmt._core.arguments import mapping_argument, text_argument
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.table_client import TableVerbs
from lakefmt._core.values import CommitResult
from lakefmt.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

    from lakefmt._core.producers.stream.opening import Recovered
    from lakefmt._core.producers.stream.options import StreamOptions, StreamSettings
    from lakefmt._core.producers.stream.stream import AsyncStream, Stream
    from lakefmt._core.write.context import OnCommit, WriteRequest

__all__ = ["ProducerVerbs"]

_OPERATIONS: Final = ("upsert", "append")

_log = logging.getLogger("lakefmt.streams")


class ProducerVerbs(TableVerbs):
    """Streams of rows into a table."""

    if TYPE_CHECKING:
        _finished: Callable[[CommitResult | None, WriteRequest, OnCommit | None], CommitResult]
        alter: Any

    def open_stream(
        self,
        operation: str | None = None,
        writer_id: str | None = None,
        *,
        options: StreamOptions | Mapping[str, object] | None = None,
        **settings: Unpack[StreamSettings],
    ) -> Stream:
        """Open a stream of rows into this table; what other streams left behind is committed first.

        Args:
            operation: ``"upsert"`` for tables with keys, ``"append"`` for tables without; None: what the table takes.
            writer_id: a name that is the same at every start of the program: rows are then written exactly once, and
                ``last_committed`` tells where to go on. A second process with the same name replaces the first. None: a
                name of its own for each stream.
            options: a :class:`StreamOptions`, or its fields.
            **settings: single fields of the options, such as ``flush_interval=1000``.

        Raises:
            InvalidInputError: the operation does not fit the table, or an option is not valid.
            StreamUnavailable: other processes open a stream of this name again and again.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-open-stream", schema=pa.schema([("v", pa.int64())]))
            >>> with t.open_stream(writer_id="w", commit_interval=0) as stream:
            ...     stream.extend([{"v": 1}, {"v": 2}])
            ...     stream.mark({"line": 2})
            >>> with t.open_stream(writer_id="w") as stream:
            ...     t.read().num_rows, stream.last_committed.offset
            (2, {'line': 2})
        """
        # Imported here: few programs open streams.
        from lakefmt._core.producers.stream.stream import open_row_stream

        stream_options = _options(options, settings)
        requested_operation = None if operation is None else text_argument(operation, "operation").lower()
        if requested_operation is not None and requested_operation not in _OPERATIONS:
            raise InvalidInputError(f"unknown operation {requested_operation!r}: expected 'upsert' or 'append'")
        return open_row_stream(
            self.client, requested_operation, writer_id, stream_options, self._run_commit, self._add_columns
        )

    def open_stream_async(
        self,
        operation: str | None = None,
        writer_id: str | None = None,
        *,
        options: StreamOptions | Mapping[str, object] | None = None,
        **settings: Unpack[StreamSettings],
    ) -> AsyncStream:
        """Return a stream whose methods are awaited; ``async with`` opens it.

        Args:
            operation: as for :meth:`open_stream`.
            writer_id: as for :meth:`open_stream`.
            options: as for :meth:`open_stream`.
            **settings: as for :meth:`open_stream`.

        Raises:
            InvalidInputError: the operation does not fit the table, or an option is not valid (when it is opened).
            StreamUnavailable: other processes open a stream of this name again and again (when it is opened).

        Example:
            >>> import asyncio, lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-async", schema=pa.schema([("v", pa.int64())]))
            >>> async def main():
            ...     async with t.open_stream_async() as stream:
            ...         await stream.insert({"v": 1})
            >>> asyncio.run(main()); t.read().num_rows
            1
        """
        from lakefmt._core.producers.stream.stream import AsyncStream

        return AsyncStream(lambda: self.open_stream(operation, writer_id, options=options, **settings))

    def recover_streams(self, options: Mapping[str, object] | None = None) -> list[Recovered]:
        """Commit what streams have flushed whose writers are dead; streams of living writers are left alone.

        Args:
            options: settings of the commits.

        Raises:
            LakefmtError: the first failure, when all other streams are done; nothing that was flushed is lost.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-recover", schema=pa.schema([("v", pa.int64())]))
            >>> t.recover_streams()
            []
        """
        from lakefmt._core.producers.stream.committing import commit_options
        from lakefmt._core.producers.stream.opening import recover_others

        settings = commit_options(self.client, mapping_argument(options, "options"))
        return recover_others(self.client, settings, self._run_commit)

    def _run_commit(self, run: Callable[[], CommitResult | None], request: WriteRequest) -> CommitResult:
        with self._writing:
            return self._finished(run(), request, None)

    def _add_columns(self, schema: pa.Schema) -> None:
        for field in schema:
            self.alter.add_column(field.name, field.type)


def _options(options: StreamOptions | Mapping[str, object] | None, settings: Mapping[str, Any]) -> StreamOptions:
    from lakefmt._core.producers.stream.options import FlushMode, StreamOptions

    mode = settings.get("flush_mode")
    if isinstance(mode, str) and mode.upper() in FlushMode.__members__:
        settings = {**settings, "flush_mode": FlushMode[mode.upper()]}
    try:
        if isinstance(options, StreamOptions):
            return replace(options, **settings) if settings else options
        return StreamOptions(**{**mapping_argument(options, "options"), **settings})
    except TypeError as error:
        raise InvalidInputError(f"options of a stream: {str(error).rpartition('()')[2].strip()}") from None
