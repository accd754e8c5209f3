"""A stream for programs that await (effects)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from lakefmt.errors import StreamClosed
from lakefmt.producers.stream.core import GIVEN_UP
from lakefmt.producers.stream.stream import Stream
from lakefmt.segments.operators import RowOperator
from lakefmt.values import CommitResult

__all__ = ["AsyncStream"]

T = TypeVar("T")


class AsyncStream:
    """A stream whose methods are awaited: a row that has to wait for its place does not stop the event loop.

    A call that is cancelled, as by a timeout, leaves the order of rows as it is: its row stands before those of later calls, or
    is not taken at all; of several rows that holds for each.

    Args:
        opens: opens the stream.
    """

    def __init__(self, opens: Callable[[], Stream]) -> None:
        self._opens = opens
        self._stream: Stream | None = None

    async def __aenter__(self) -> Self:
        self._stream = await asyncio.to_thread(self._opens)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(discard=kind is not None)

    @property
    def stream(self) -> Stream:
        """The stream itself.

        Raises:
            StreamClosed: it is not open yet.
        """
        if self._stream is None:
            raise StreamClosed("the stream is not open: use it in `async with`")
        return self._stream

    async def apply(self, row: object, operator: RowOperator | str | None = None) -> None:
        """Take a row; waits while the buffers are full. `operator` None: upsert, or insert into a table without keys."""
        stream = self.stream
        if stream.may_wait:
            await self._in_thread(stream.extend, [row], operator)
        else:
            stream.extend([row], operator)

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        """Run a call that takes rows in a thread; when nobody waits for it any more, it takes no more of them."""
        given_up = threading.Event()

        def run() -> T:
            GIVEN_UP.set(given_up)  # in the context of this call only
            return call(*arguments)

        try:
            return await asyncio.to_thread(run)
        except asyncio.CancelledError:
            self.stream.give_up(given_up)
            raise

    async def insert(self, row: object) -> None:
        """Insert a row; see ``Stream.insert``."""
        await self.apply(row, RowOperator.INSERT)

    async def upsert(self, row: object) -> None:
        """Insert or replace a row; see ``Stream.upsert``."""
        await self.apply(row, RowOperator.UPSERT)

    async def update(self, row: object) -> None:
        """Replace the columns that are set; see ``Stream.update``."""
        await self.apply(row, RowOperator.UPDATE)

    async def delete(self, key: object) -> None:
        """Delete the row of a key; see ``Stream.delete``."""
        await self._in_thread(self.stream.delete, key)

    async def extend(
        self, rows: Iterable[object] | AsyncIterable[object], operator: RowOperator | str | None = None
    ) -> None:
        """Take rows one after the other."""
        if isinstance(rows, AsyncIterable):
            async for row in rows:
                await self.apply(row, operator)
            return
        for row in rows:
            await self.apply(row, operator)

    async def apply_tracked(self, row: object, operator: RowOperator | str, until: str = "committed") -> Any:
        """Take a row, and return an awaitable that is done when the row is durable or committed."""
        future = await self._in_thread(self.stream.apply_tracked, operator, row, until)
        return asyncio.wrap_future(future)

    async def write_arrow(self, data: object, operator: RowOperator | str | None = None) -> None:
        """Take Arrow data; see ``Stream.write_arrow``."""
        await self._in_thread(self.stream.write_arrow, data, operator)

    async def flush(self, wait: str = "durable") -> None:
        """Make everything durable that was applied so far."""
        await asyncio.to_thread(self.stream.flush, wait)

    async def commit(self) -> CommitResult | None:
        """Flush and commit."""
        return await asyncio.to_thread(self.stream.commit)

    async def close(self, discard: bool = False) -> None:
        """Flush, commit and release the stream."""
        if self._stream is not None:
            await asyncio.to_thread(self._stream.close, discard)

    def mark(self, offset: Any) -> None:
        """Associate a position in the source with the rows applied so far."""
        self.stream.mark(offset)
