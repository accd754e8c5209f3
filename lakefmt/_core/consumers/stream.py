"""A table read as a stream: batches of new rows or changes, one after the other (effects: reads, and a consumer's file).

It is opened from the arguments of ``Table.stream``. Streams of one :class:`WatermarkAlignment` wait for those that are
behind in event time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from types import TracebackType
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lakefmt._core.arguments import check_flags, instance_argument, number_argument
from lakefmt._core.config.table_config import CONSUMER_MODE, POLL_SECONDS, SORTS_PARTITIONS, STREAMS_OVERWRITES
from lakefmt._core.consumers.planning import CommitFinder, PartReader, is_keyed, read_lanes
from lakefmt._core.consumers.position import (
    WHOLE_PART,
    End,
    EndLike,
    PositionTracker,
    StartLike,
    StreamPart,
    StreamPosition,
    StreamStep,
    check_choice,
    check_consumer_id,
    check_shard,
    cut_at_watermark,
    encode_position,
    lanes_of,
    parse_buckets,
    parse_end,
    parse_start,
    position_behind,
    query_digest,
    split_by_drift,
)
from lakefmt._core.consumers.progress import ConsumerProgress, RunningHold, completion_moment, end_time, start_position
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.read.filters import Filter
from lakefmt._core.read.scan import plan_query
from lakefmt.errors import CorruptFile, DataExpired, InvalidInputError, SnapshotExpired

__all__ = [
    "FollowOptions",
    "Mark",
    "StreamBatch",
    "StreamCall",
    "StreamLag",
    "TableStream",
    "WatermarkAlignment",
    "is_held_back",
    "stream_of",
]

_log = logging.getLogger("lakefmt.consumers")
#: Commits that are read side by side at most.
_MOST_STEPS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """Some rows of one commit, in the order of the stream.

    Attributes:
        rows: the rows.
        partition: their partition path; "" for an unpartitioned table, and for changes of several partitions.
        bucket: the number of their bucket; None without a bucket index.
        instant: requested time of the commit.
        completion_time: when it completed (its requested time in version 6).
        watermark: of the commit, in milliseconds; None: there is none yet.
        offset: None: rows of a bucket are not counted.
    """

    rows: pa.RecordBatch
    partition: str
    bucket: int | None
    instant: str
    completion_time: str
    watermark: int | None = None
    offset: int | None = None

    @property
    def num_rows(self) -> int:
        """How many rows."""
        return int(self.rows.num_rows)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self.rows.schema

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        return self.rows.__arrow_c_array__(requested_schema)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class StreamLag:
    """How far a stream or consumer is behind the table.

    Attributes:
        instants: commits with rows that it has not read to their end.
        num_bytes: the bytes of their files.
        seconds: the age of the oldest of them; 0.0 when there is none.
    """

    instants: int
    num_bytes: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.instants} instants, {self.num_bytes:,} bytes, {self.seconds:.0f} s behind"


@dataclass(frozen=True)
class FollowOptions:
    """How a stream reads; see ``Table.stream``."""

    columns: Sequence[str] | None = None
    filter: Filter = None
    follow: bool = True
    end: End = field(default_factory=End)
    include_boundary: bool = False
    by_bucket: bool = False
    include_row_kind: bool = False
    mode: str = "exactly_once"
    on_expired: str = "fail"
    poll_interval: float = 10.0
    max_batches: int = 4
    threads: int = 4
    alignment: WatermarkAlignment | None = None
    max_drift: int | None = None


class TableStream(Iterator[StreamBatch], AsyncIterator[StreamBatch]):
    """The batches of a table as its commits complete; made by ``Table.stream``.

    It is an iterator, an async iterator and a context manager. One batch is taken at a time; ``close`` may be called from
    another thread, and ends a wait.

    Example:
        >>> import lakefmt
        >>> t = lakefmt.create_table("memory://doc-batches", schema=pa.schema([("id", pa.int64())]))
        >>> _ = t.insert(pa.table({"id": [1, 2]}))
        >>> with t.stream(follow=False) as stream:
        ...     [batch.rows["id"].to_pylist() for batch in stream]
        [[1, 2]]
    """

    def __init__(
        self,
        client: TableClient,
        finder: CommitFinder,
        options: FollowOptions,
        position: StreamPosition,
        progress: ConsumerProgress | None = None,
        hold: RunningHold | None = None,
    ) -> None:
        self._client, self._finder, self._options, self._progress = client, finder, options, progress
        finder.in_turn = position.in_turn
        position = finder.after_upgrade(position)
        self._tracker = PositionTracker(position)
        self._confirmed = position
        self._hold = hold
        if hold is not None:
            weakref.finalize(self, hold.drop)
        self._end = end_time(client, finder, options.end)
        self._watermark: int | None = None
        self._source: Generator[StreamBatch, None, None] | None = None
        self._taking = threading.Lock()
        #: Held until the stream is closed: who waits for the next commit waits for this lock.
        self._open = threading.Lock()
        self._open.acquire()
        self._is_closed = self._is_finished = False
        self._pending: asyncio.Future[StreamBatch | None] | None = None
        self._name = client.ids.new_uuid()
        if options.alignment is not None:
            options.alignment.join(self._name, client.time_source.monotonic())

    # ------------------------------------------------------------------------------------------------------- iterating

    def __iter__(self) -> TableStream:
        return self

    def __next__(self) -> StreamBatch:
        with self._taking:
            if self._is_closed or self._is_finished:
                raise StopIteration
            # Who asks for the next batch has dealt with the one before it.
            self._confirm()
            if self._source is None:
                self._source = self._batches()
            try:
                batch = next(self._source, None)
            except BaseException:
                self._source = None
                self._tracker.forget()
                raise
            if batch is None:
                self._is_finished = True
                if self._options.alignment is not None:
                    self._options.alignment.leave(self._name)
                self._confirm(ends=True)
                if self._hold is not None:
                    self._hold.end()
                raise StopIteration
            return batch

    def __aiter__(self) -> TableStream:
        return self

    async def __anext__(self) -> StreamBatch:
        loop = asyncio.get_running_loop()
        if self._pending is None:
            future: asyncio.Future[StreamBatch | None] = loop.create_future()
            self._pending = future
            # A daemon: a program that ends does not wait for the next commit.
            threading.Thread(target=self._answer, args=(loop, future), name="lakefmt-stream-next", daemon=True).start()
        try:
            # A caller that is cancelled leaves the batch to the next one who asks.
            batch = await asyncio.shield(self._pending)
        except Exception:
            self._pending = None  # who asks again reads again
            raise
        self._pending = None
        if batch is None:
            raise StopAsyncIteration
        return batch

    def _answer(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[StreamBatch | None]) -> None:
        batch: StreamBatch | None = None
        failure: BaseException | None = None
        try:
            batch = next(self, None)
        except BaseException as error:  # noqa: BLE001 - raised where the batch is awaited
            failure = error

        def settle() -> None:
            if failure is None:
                future.set_result(batch)
            else:
                future.set_exception(failure)

        if not loop.is_closed():
            loop.call_soon_threadsafe(settle)

    # --------------------------------------------------------------------------------------------------------- progress

    @property
    def position(self) -> dict[str, object]:
        """The position after the batches handed out so far, as a JSON object; ``start={"offset": position}`` goes on from there."""
        return encode_position(self._tracker.position)

    @property
    def watermark(self) -> int | None:
        """The watermark of the last commit of which rows were handed out, in milliseconds; None: there is none yet."""
        return self._watermark

    @property
    def consumer_id(self) -> str | None:
        """The consumer that keeps the progress; None without one."""
        return None if self._progress is None else self._progress.consumer_id

    def commit(self) -> None:
        """Keep the progress of the consumer: every batch that was handed out is dealt with.

        Raises:
            InvalidInputError: the stream has no consumer id.
            LeaseLost: another reader took the consumer over, or it was reset or deleted.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-stream-commit", schema=pa.schema([("id", pa.int64())]))
            >>> _ = t.insert(pa.table({"id": [1]}))
            >>> with t.stream(follow=False, consumer_id="report") as stream:
            ...     for batch in stream: stream.commit()
            >>> t.stream(follow=False, consumer_id="report").lag().instants
            0
        """
        if self._progress is None:
            raise InvalidInputError("commit() keeps the progress of a consumer: give consumer_id= to stream()")
        self._confirmed = self._tracker.position
        if self._confirmed != self._progress.stored:
            self._progress.store(self._confirmed)

    def lag(self) -> StreamLag:
        """Return how far the stream is behind the table: instants, bytes, and seconds; :meth:`commit` has an example."""
        instants, num_bytes, first = self._finder.lag(self._tracker.done)
        moment = completion_moment(self._client, first)
        seconds = 0.0 if moment is None else max(0.0, (self._client.clock.now() - moment).total_seconds())
        return StreamLag(instants, num_bytes, seconds)

    def _confirm(self, *, ends: bool = False) -> None:
        """Note what was dealt with; at least once: keep it when a commit was read to its end."""
        self._confirmed = self._tracker.position
        if self._hold is not None:
            self._hold.position = self._confirmed
        if self._progress is None or self._options.mode != "at_least_once":
            return
        stored = self._progress.stored
        if stored is None or stored.done != self._confirmed.done or (ends and stored != self._confirmed):
            self._progress.store(self._confirmed)

    def close(self) -> None:
        """End the stream, also while another thread waits for a batch. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._open.release()
        with self._taking:
            if self._source is not None:
                self._source.close()
                self._source = None
        if self._options.alignment is not None:
            self._options.alignment.leave(self._name)
        if self._hold is not None:
            self._hold.end()
        if self._progress is not None:
            try:
                if self._options.mode == "at_least_once" and self._confirmed != self._progress.stored:
                    self._progress.store(self._confirmed)
            finally:
                self._progress.close()

    async def aclose(self) -> None:
        """End the stream from a coroutine."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> TableStream:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> TableStream:
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # ---------------------------------------------------------------------------------------------------------- reading

    def _batches(self) -> Generator[StreamBatch, None, None]:
        bound = self._options.end.watermark
        if self._tracker.position.whole:
            self._check_end()
            yield from self._read_snapshot()
            if bound is not None and self._watermark is not None and self._watermark > bound:
                return
        while not self._is_closed:
            coming = self._finder.find(self._tracker.done, self._end)
            steps, is_cut = cut_at_watermark(coming.steps, bound, include_boundary=self._options.include_boundary)
            try:
                yield from self._of_steps(coming.state, steps)
            except SnapshotExpired as error:
                self._go_on_after(steps, error)
                if self._tracker.position.whole:
                    yield from self._read_snapshot()
                continue
            if is_cut:
                return
            if coming.is_all and (self._is_at_end(coming.state) or not self._wait()):
                return

    def _check_end(self) -> None:
        """Raise where the stream ends before the oldest state that can be read whole.

        Raises:
            DataExpired: it does.
        """
        completion_time = self._tracker.position.done
        if self._options.end.moment is not None and self._end is not None and self._end < completion_time:
            raise DataExpired(
                f"the stream ends at {self._end}, and of what was committed up to then some was cleaned away: the oldest state "
                f"that is whole is that of {completion_time}",
                oldest=completion_time,
            )

    def _read_snapshot(self) -> Iterator[StreamBatch]:
        """Hand out the table as of the position."""
        while self._tracker.position.whole:
            position = self._tracker.position
            try:
                state, step = self._finder.snapshot(position.done)
                if not position.parts.keys() <= {part.key for part in step.parts}:
                    raise SnapshotExpired("commits of which rows were handed out are undone")
                yield from self._of_group(PartReader(self._client, state, *self._read_arguments), [step])
            except SnapshotExpired as error:
                self._tracker.forget()
                newest = self._finder.newest(self._client.load())
                if self._tracker.position.parts and self._options.on_expired == "fail":
                    raise DataExpired(f"the table as of {position.done} was being read: {error}") from None
                self._tracker.move(StreamPosition(newest, whole=True))

    @property
    def _read_arguments(self) -> tuple[Sequence[str] | None, Filter, bool]:
        return self._options.columns, self._options.filter, self._options.include_row_kind

    def _of_steps(self, state: TableState, steps: Sequence[StreamStep]) -> Iterator[StreamBatch]:
        reader = PartReader(self._client, state, *self._read_arguments)
        changing = [step for step in steps if any(part.sources for part in step.parts)]
        if changing and is_keyed(state):
            if not self._may_read():
                return
            reader = reader.with_changes(self._tracker.done, changing)
        for group in split_by_drift(steps, self._options.max_drift, _MOST_STEPS_AT_ONCE):
            if not self._may_read():
                return
            yield from self._of_group(reader, group)

    def _of_group(self, reader: PartReader, group: Sequence[StreamStep]) -> Iterator[StreamBatch]:
        """Hand out some commits, side by side where the order allows it."""
        for step in group:
            self._tracker.expect(step.instant.order_time, step.instant.time, [part.key for part in step.parts])
        lanes = lanes_of(group, by_bucket=self._options.by_bucket)
        rows = {part.key: self._tracker.rows_of(part.key) for step in group for part in step.parts}
        unread_lanes = [[(step, part) for step, part in lane if rows[part.key] != WHOLE_PART] for lane in lanes]
        skips = dict(rows)

        def read(step: StreamStep, part: StreamPart) -> Iterator[pa.RecordBatch]:
            return reader.batches(step, part, skips[part.key])

        for read_batch in read_lanes(
            [lane for lane in unread_lanes if lane],
            read,
            threads=self._options.threads,
            ahead=self._options.max_batches,
        ):
            key = read_batch.part.key
            rows[key] += 0 if read_batch.rows is None else read_batch.rows.num_rows
            self._tracker.hand_out(key, rows[key], is_last=read_batch.is_last)
            if read_batch.rows is not None:
                self._watermark = read_batch.step.watermark
                yield _stream_batch(read_batch.step, read_batch.part, read_batch.rows)
            if self._is_closed:
                return
        self._watermark = group[-1].watermark if group else self._watermark
        if self._options.alignment is not None:
            self._options.alignment.advance(self._name, self._watermark, self._client.time_source.monotonic())

    def _may_read(self) -> bool:
        """Wait until the streams of the group have come near; False: the stream was closed."""
        alignment = self._options.alignment
        while alignment is not None and alignment.holds_back(self._name, self._client.time_source.monotonic()):
            if not self._wait():
                return False
        return True

    def _is_at_end(self, state: TableState) -> bool:
        if self._end is None:
            return False
        if self._options.end.newest:
            return True
        moment = completion_moment(self._client, self._end)
        passed = moment is None or self._client.clock.now() > moment
        passed = passed or any(i.order_time > self._end for i in state.timeline.commits)
        return passed and not self._finder.waits_for(state, self._end)

    def _wait(self) -> bool:
        """Wait for the next look at the timeline; False: the stream was closed."""
        self._confirm()
        if self._client.time_source.acquire_lock(self._open, self._options.poll_interval):
            self._open.release()
            return False
        return not self._is_closed

    def _go_on_after(self, steps: Sequence[StreamStep], error: SnapshotExpired) -> None:
        """Decide what follows when files of some commits are gone: cleaned away, or undone, since the commits were planned.

        Raises:
            DataExpired: the stream is to fail then.
        """
        self._tracker.forget()
        state = self._finder.load_again(self._tracker.done)
        there = {commit.time for commit in state.timeline.commits_by_completion}
        planned = [step for step in steps if step.instant.order_time > self._tracker.done]
        remaining = [step for step in planned if step.instant.time in there]
        position, oldest = self._finder.oldest_readable(state, remaining)
        if not position:
            if len(remaining) < len(planned):
                return  # what was undone hands out nothing
            raise error
        what = f"the stream has read up to {self._tracker.done}, and rows after it were cleaned away"
        if self._options.on_expired == "fail":
            hint = (
                f"the oldest instant that can be read is {oldest}" if oldest else "nothing of what is there can be read"
            )
            raise DataExpired(f"{what}; {hint}: on_expired= says how to go on", oldest=oldest) from None
        _log.warning("%s: %s; on_expired=%s", self._client.store.url, what, self._options.on_expired)
        if self._options.on_expired == "full":
            self._tracker.move(StreamPosition(self._finder.newest(state), whole=True))
        else:
            self._tracker.move(position_behind(position, state.timeline.layout))


def _stream_batch(step: StreamStep, part: StreamPart, rows: pa.RecordBatch) -> StreamBatch:
    return StreamBatch(rows, part.partition, part.bucket, step.instant.time, step.instant.order_time, step.watermark)


# --------------------------------------------------------------------------------------- streams that read side by side


@dataclass(frozen=True, slots=True)
class Mark:
    """How far one stream is.

    Attributes:
        watermark: of the commit that it read last; None: it has read none.
        at: when it said so, in seconds of a monotonic clock.
    """

    watermark: int | None
    at: float


def is_held_back(name: str, marks: Mapping[str, Mark], drift: int, now: float, idle: float | None) -> bool:
    """Return whether a stream waits before it reads its next commit: it is ahead of the slowest. Pure.

    Args:
        name: of the stream.
        marks: how far each stream of the group is.
        drift: the most milliseconds that a stream may be ahead.
        now: in seconds of the marks' clock.
        idle: streams that were silent for longer, in seconds, do not count; None: all count.

    Example:
        >>> marks = {"a": Mark(100, 0.0), "b": Mark(10, 0.0)}
        >>> is_held_back("a", marks, 50, 1.0, None), is_held_back("a", marks, 50, 9.0, 5.0)
        (True, False)
    """
    own_mark = marks.get(name)
    if own_mark is None or own_mark.watermark is None:
        return False
    other_marks = [mark for other, mark in marks.items() if other != name and (idle is None or now - mark.at <= idle)]
    return any(mark.watermark is None or own_mark.watermark > mark.watermark + drift for mark in other_marks)


class WatermarkAlignment:
    """A group of streams of one process, none of which runs ahead of the slowest by more than a number of milliseconds.

    Args:
        max_drift: how far a stream may be ahead, in milliseconds.
        idle_timeout: a stream without a new commit for longer, in seconds, holds no other back; None: it does.

    Example:
        >>> group = WatermarkAlignment(max_drift=60_000, idle_timeout=30.0)
        >>> group.join("a", 0.0); group.join("b", 0.0)
        >>> group.advance("a", 90_000, 1.0), group.advance("b", 10_000, 1.0)
        (None, None)
        >>> group.holds_back("a", 2.0), group.holds_back("b", 2.0)
        (True, False)
    """

    def __init__(self, max_drift: int, idle_timeout: float | None = None) -> None:
        self.max_drift = int(number_argument(max_drift, "max_drift", 0))
        self.idle_timeout = None if idle_timeout is None else number_argument(idle_timeout, "idle_timeout", 0)
        self._marks: dict[str, Mark] = {}
        self._lock = threading.Lock()

    def join(self, name: str, now: float) -> None:
        """Add a stream."""
        with self._lock:
            self._marks[name] = Mark(None, now)

    def advance(self, name: str, watermark: int | None, now: float) -> None:
        """Note the watermark that a stream has reached."""
        with self._lock:
            if watermark is not None and name in self._marks:
                self._marks[name] = Mark(watermark, now)

    def leave(self, name: str) -> None:
        """Remove a stream."""
        with self._lock:
            self._marks.pop(name, None)

    def holds_back(self, name: str, now: float) -> bool:
        """Return whether a stream waits before it reads its next commit."""
        with self._lock:
            return is_held_back(name, self._marks, self.max_drift, now, self.idle_timeout)


if TYPE_CHECKING:
    pass


#: The table property that says whether buckets keep the order of their rows.
ORDER: Final = "lakefmt.append.order"


_MOST_STREAM_THREADS: Final = 64


_MOST_BATCHES_AHEAD: Final = 1_000


@dataclass(frozen=True)
class StreamCall:
    """The arguments of ``Table.stream``, as they were given."""

    start: StartLike
    end: EndLike
    follow: bool
    columns: Sequence[str] | None
    filter: Filter
    order: str | None
    buckets: Iterable[int] | Callable[[int | None], bool] | None
    shard: tuple[int, int] | None
    consumer_id: str | None
    mode: str | None
    takeover: bool
    ignore_progress: bool
    on_expired: str
    include_boundary: bool
    include_row_kind: bool
    streaming_read_overwrite: bool | None
    plan_sort_partition: bool | None
    alignment: WatermarkAlignment | None
    poll_interval: float | None
    max_batches: int
    threads: int


def stream_of(client: TableClient, call: StreamCall) -> TableStream:
    """Return a stream; nothing is read before its first batch is taken.

    Raises:
        InvalidInputError: an argument that no stream takes.
        ConsumerActive: another reader uses the consumer's id.
    """
    state = client.load()
    call, mode = with_table_defaults(call, state.config.properties)
    start, options, shard = parse_start(call.start), _follow_options(client, call, mode), check_shard(call.shard)
    plan_query(state.config, client.at(state).schema(), call.columns, call.filter, meta_columns=False)
    finder = CommitFinder(
        client,
        overwrites=call.streaming_read_overwrite,
        by_value=bool(call.plan_sort_partition),
        buckets=parse_buckets(call.buckets),
        shard=shard,
        by_bucket=options.by_bucket,
        after_watermark=start.watermark,
    )

    # Where all shards begin is the same: what was cleaned away is asked of all buckets.
    of_all = CommitFinder(client, overwrites=call.streaming_read_overwrite, after_watermark=start.watermark)

    def first() -> StreamPosition:
        return start_position(client, of_all, start)

    if call.consumer_id is None:
        begin = first()
        hold = RunningHold(client, begin) if call.follow else None
        try:
            return TableStream(client, finder, options, begin, hold=hold)
        except BaseException:
            if hold is not None:
                hold.end()
            raise
    digest = query_digest(call.filter)
    progress = ConsumerProgress(client, check_consumer_id(call.consumer_id), shard, mode, digest)
    position = progress.open(first, takeover=call.takeover, ignores=call.ignore_progress)
    try:
        return TableStream(client, finder, options, position, progress)
    except BaseException:
        progress.close()
        raise


def with_table_defaults(call: StreamCall, properties: Mapping[str, str]) -> tuple[StreamCall, str]:
    """Return a call with what the table says where its arguments do not, and its mode."""

    def flag(value: bool | None, name: str) -> bool | None:
        stated = properties.get(name)
        return value if value is not None or stated is None else stated == "true"

    interval = call.poll_interval
    if interval is None:
        try:
            interval = float(properties.get(POLL_SECONDS, "10"))
        except ValueError:
            raise CorruptFile(f"the table's property {POLL_SECONDS} is no number of seconds") from None
    completed = replace(
        call,
        poll_interval=interval,
        plan_sort_partition=flag(call.plan_sort_partition, SORTS_PARTITIONS),
        streaming_read_overwrite=flag(call.streaming_read_overwrite, STREAMS_OVERWRITES),
    )
    return completed, properties.get(CONSUMER_MODE, "exactly_once") if call.mode is None else call.mode


def _follow_options(client: TableClient, call: StreamCall, mode: str) -> FollowOptions:
    check_flags(
        follow=call.follow,
        takeover=call.takeover,
        ignore_progress=call.ignore_progress,
        include_boundary=call.include_boundary,
        include_row_kind=call.include_row_kind,
        plan_sort_partition=False if call.plan_sort_partition is None else call.plan_sort_partition,
    )
    if call.streaming_read_overwrite is not None:
        check_flags(streaming_read_overwrite=call.streaming_read_overwrite)
    keeps_order = client.known_config.properties.get(ORDER) == "per_bucket"
    order = ("bucket" if keeps_order else "commit") if call.order is None else call.order
    if call.alignment is not None:
        instance_argument(call.alignment, WatermarkAlignment, "alignment")
    return FollowOptions(
        columns=call.columns,
        filter=call.filter,
        follow=call.follow,
        end=parse_end(call.end, follow=call.follow),
        include_boundary=call.include_boundary,
        by_bucket=check_choice(order, "order", ("commit", "bucket")) == "bucket",
        include_row_kind=call.include_row_kind,
        mode=check_choice(mode, "mode", ("exactly_once", "at_least_once")),
        on_expired=check_choice(call.on_expired, "on_expired", ("fail", "earliest", "full")),
        poll_interval=number_argument(call.poll_interval, "poll_interval", 0.001, 86_400),
        max_batches=int(number_argument(call.max_batches, "max_batches", 0, _MOST_BATCHES_AHEAD)),
        threads=int(number_argument(call.threads, "threads", 1, _MOST_STREAM_THREADS)),
        alignment=call.alignment,
        max_drift=None if call.alignment is None else call.alignment.max_drift,
    )
