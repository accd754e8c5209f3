"""Opens a stream of a table from the arguments of ``Table.stream``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from lakefmt._core.arguments import check_flags, instance_argument, number_argument
from lakefmt._core.config.table_config import CONSUMER_MODE, POLL_SECONDS, SORTS_PARTITIONS, STREAMS_OVERWRITES
from lakefmt._core.consumers.planning import CommitFinder
from lakefmt._core.consumers.position import (
    EndLike,
    StartLike,
    StreamPosition,
    check_choice,
    check_consumer_id,
    check_shard,
    parse_buckets,
    parse_end,
    parse_start,
    query_digest,
)
from lakefmt._core.consumers.progress import ConsumerProgress, RunningHold, start_position
from lakefmt._core.consumers.stream import FollowOptions, TableStream, WatermarkAlignment
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.read.filters import Filter
from lakefmt._core.read.scan import plan_query
from lakefmt.errors import CorruptFile

if TYPE_CHECKING:
    pass

__all__ = ["ORDER", "StreamCall", "stream_of", "with_table_defaults"]


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
    plan_query(client.at(state).schema(), call.columns, call.filter, meta_columns=False)
    finder = CommitFinder(
        client,
        overwrites=call.streaming_read_overwrite,
        by_value=bool(call.plan_sort_partition),
        buckets=parse_buckets(call.buckets),
        shard=shard,
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

    def flag(given: bool | None, name: str) -> bool | None:
        stated = properties.get(name)
        return given if given is not None or stated is None else stated == "true"

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
