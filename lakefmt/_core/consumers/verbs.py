"""The methods ``stream`` and ``consumers`` of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from lakefmt._core.filegroups.table_client import TableVerbs
from lakefmt._core.read.filters import Filter

if TYPE_CHECKING:
    from lakefmt._core.consumers.position import (
        EndLike,
        StartLike,
    )
    from lakefmt._core.consumers.registry import TableConsumers
    from lakefmt._core.consumers.stream import TableStream, WatermarkAlignment

__all__ = ["ConsumerVerbs"]


class ConsumerVerbs(TableVerbs):
    """Reading a table as a stream, and who reads it so."""

    def stream(
        self,
        start: StartLike = "earliest",
        *,
        end: EndLike = None,
        follow: bool = True,
        columns: Sequence[str] | None = None,
        filter: Filter = None,
        order: str | None = None,
        buckets: Iterable[int] | Callable[[int | None], bool] | None = None,
        shard: tuple[int, int] | None = None,
        consumer_id: str | None = None,
        mode: str | None = None,
        takeover: bool = False,
        ignore_progress: bool = False,
        on_expired: str = "fail",
        include_boundary: bool = False,
        include_row_kind: bool = False,
        streaming_read_overwrite: bool | None = None,
        plan_sort_partition: bool | None = None,
        alignment: WatermarkAlignment | None = None,
        poll_interval: float | None = None,
        max_batches: int = 4,
        threads: int = 4,
    ) -> TableStream:
        """Read the table as a stream: the rows of its commits as they complete, batch by batch.

        A table without record keys gives rows; a table with record keys gives changes, with the column ``op`` (``i``, ``u``
        or ``d``; the row after it, of a delete before it). Commits of compactions and clusterings give nothing, so that no
        row comes twice. The result is an iterator, an async iterator and a context manager (docs/consumers.md).

        Args:
            start: ``"earliest"``: the oldest commit that can be read; ``"latest"``: what comes from now on; ``"full"``: the
                whole table, then what comes; an instant, aware datetime or ISO text: the commits completed after it;
                ``{"watermark": ms}``: the commits with a larger watermark; ``{"offset": …}``: a stream's ``position``.
            end: an instant or time, included; ``"latest"``: what is there now; ``{"watermark": ms}``: before the first
                commit with a larger watermark; None: no end.
            follow: False: end when everything that is there now was read.
            columns: names in the requested order; None: all.
            filter: as for :meth:`read`.
            order: ``"commit"``: one commit after the other; ``"bucket"``: buckets are read side by side, each in order;
                None: ``"bucket"`` for tables that keep an order in each bucket, else ``"commit"``.
            buckets: which buckets are read: numbers, or a function of one.
            shard: (i, n): the i-th of n parts of the buckets, from 0; without buckets of the file groups.
            consumer_id: keep the progress in the table under this id, and go on from there.
            mode: ``"exactly_once"``: the progress is kept by ``commit()`` only; ``"at_least_once"``: by itself, after a
                commit was handed out to its end; None: as the table says, else ``"exactly_once"``.
            takeover: read as a consumer that another reader, who is alive, reads as.
            ignore_progress: begin at `start` although the consumer has a progress.
            on_expired: what to do where rows were cleaned away: ``"fail"``, ``"earliest"``: go on with the oldest commit
                that is left; ``"full"``: read the whole table, then go on.
            include_boundary: with a watermark as `end`: hand out the commit that ends the stream, too.
            include_row_kind: add the column ``_row_kind``: ``+I``, ``-U``, ``+U``, ``-D``.
            streaming_read_overwrite: hand out what overwrites wrote; None: as the table says, else for tables with record
                keys.
            plan_sort_partition: of one commit the smaller partition value comes first, null before all; else the partition
                that was created earlier. None: as the table says, else False.
            alignment: wait for other streams of this group that are behind.
            poll_interval: how long to wait for new commits, in seconds; None: as the table says, else 10.
            max_batches: the most batches that are read ahead; 0: none.
            threads: how many buckets are read side by side.

        Raises:
            InvalidInputError: an argument that no stream takes.
            ConsumerActive: another reader uses `consumer_id`.
            DataExpired: rows were cleaned away (while iterating).

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-stream", schema=pa.schema([("id", pa.int64())]))
            >>> for n in range(2): _ = t.insert(pa.table({"id": [n, n + 10]}))
            >>> with t.stream(follow=False) as stream:
            ...     [batch.rows["id"].to_pylist() for batch in stream]
            [[0, 10], [1, 11]]
        """
        # Imported here: few programs read a table as a stream, and all wait for the import.
        from lakefmt._core.consumers.stream import StreamCall, stream_of

        call = StreamCall(
            start=start,
            end=end,
            follow=follow,
            columns=columns,
            filter=filter,
            order=order,
            buckets=buckets,
            shard=shard,
            consumer_id=consumer_id,
            mode=mode,
            takeover=takeover,
            ignore_progress=ignore_progress,
            on_expired=on_expired,
            include_boundary=include_boundary,
            include_row_kind=include_row_kind,
            streaming_read_overwrite=streaming_read_overwrite,
            plan_sort_partition=plan_sort_partition,
            alignment=alignment,
            poll_interval=poll_interval,
            max_batches=max_batches,
            threads=threads,
        )
        return stream_of(self.client, call)

    @property
    def consumers(self) -> TableConsumers:
        """Who reads this table as a stream and keeps progress in it: ``list``, ``reset``, ``delete``."""
        from lakefmt._core.consumers.registry import TableConsumers

        return TableConsumers(self.client)
