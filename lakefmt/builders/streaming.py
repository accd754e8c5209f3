"""Builders of stream reads over ``table.stream`` (effects)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.builders.predicates import PredicateBuilder
from lakefmt.builders.reading import Plan, Split, TableRead
from lakefmt.consumers.stream import StreamBatch, TableStream
from lakefmt.errors import InvalidInputError
from lakefmt.table import Table

__all__ = ["StreamReadBuilder", "StreamingTableScan"]


class StreamReadBuilder:
    """Makes the two halves of a stream read."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._columns: list[str] | None = None
        self._filter: pc.Expression | None = None
        self._poll_seconds = 1.0
        self._consumer: str | None = None
        self._buckets: Sequence[int] | Callable[[int | None], bool] | None = None
        self._row_kind = False

    def with_filter(self, predicate: pc.Expression | None) -> StreamReadBuilder:
        """Read only rows for which a condition holds."""
        self._filter = predicate
        return self

    def with_projection(self, projection: Sequence[str]) -> StreamReadBuilder:
        """Read only some columns."""
        self._columns = list(projection)
        return self

    def with_poll_interval_ms(self, poll_interval_ms: int) -> StreamReadBuilder:
        """Look for commits so often."""
        if type(poll_interval_ms) is not int or poll_interval_ms < 1:
            raise InvalidInputError("a poll interval is a number of milliseconds from 1 on")
        self._poll_seconds = poll_interval_ms / 1000
        return self

    def with_consumer_id(self, consumer_id: str) -> StreamReadBuilder:
        """Keep how far this reader has come under a name."""
        self._consumer = consumer_id
        return self

    def with_buckets(self, bucket_ids: Sequence[int]) -> StreamReadBuilder:
        """Read only some buckets."""
        self._buckets = list(bucket_ids)
        return self

    def with_bucket_filter(self, bucket_filter: Callable[[int], bool]) -> StreamReadBuilder:
        """Read only buckets that a function picks."""
        self._buckets = lambda bucket: bucket_filter(bucket or 0)
        return self

    def with_include_row_kind(self, include_row_kind: bool = True) -> StreamReadBuilder:
        """Give every row the column of its kind."""
        self._row_kind = include_row_kind
        return self

    def new_predicate_builder(self) -> PredicateBuilder:
        """Return what makes conditions on the columns of the table."""
        return PredicateBuilder(self._table.schema)

    def new_streaming_scan(self) -> StreamingTableScan:
        """Return the half that waits for commits: the whole table first, then what comes."""
        stream = self._table.stream(
            "full",
            order="bucket" if self._table.properties.properties.get("lakefmt.append.order") == "per_bucket" else None,
            buckets=self._buckets,
            consumer_id=self._consumer,
            mode="exactly_once" if self._consumer is None else "at_least_once",
            poll_interval=self._poll_seconds,
        )
        return StreamingTableScan(stream)

    def new_read(self) -> TableRead:
        """Return the half that reads."""
        return TableRead(self._table, self._columns, self._filter, None)


class StreamingTableScan:
    """Yields a plan for every part of a commit as it completes."""

    def __init__(self, stream: TableStream) -> None:
        self._stream = stream

    @property
    def next_snapshot_id(self) -> object:
        """How far the scan has come: what ``table.stream`` takes as ``{"offset": …}``."""
        return self._stream.position

    def stream_sync(self) -> Iterator[Plan]:
        """Yield plans until the scan is closed."""
        for batch in self._stream:
            yield _plan(batch)

    async def stream(self) -> AsyncIterator[Plan]:
        """Yield plans until the scan is closed."""
        async for batch in self._stream:
            yield _plan(batch)

    def close(self) -> None:
        """End the scan."""
        self._stream.close()


def _plan(batch: StreamBatch) -> Plan:
    rows = pa.Table.from_batches([batch.rows])
    return Plan((Split(batch.partition, batch.bucket or 0, (), rows),), batch.instant)
