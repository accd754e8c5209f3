"""What the properties of a table without keys say of the order of its rows (docs/append.md). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakefmt.data_classes import dataclass
from lakefmt.errors import CorruptFile

__all__ = [
    "BUCKETS",
    "BUCKET_KEY",
    "CONSUMER_MODE",
    "DELAY",
    "EVENT_TIME",
    "KIND",
    "MIN_FILES",
    "ORDER",
    "POLL_SECONDS",
    "SORTS_PARTITIONS",
    "STREAMS_OVERWRITES",
    "AppendLayout",
    "append_layout",
]

KIND: Final = "lakefmt.table.kind"
ORDER: Final = "lakefmt.append.order"
BUCKET_KEY: Final = "lakefmt.append.bucket.key"
BUCKETS: Final = "lakefmt.append.buckets"
EVENT_TIME: Final = "lakefmt.event.time.column"
DELAY: Final = "lakefmt.allowed.delay"
#: Files of one size that services pack together.
MIN_FILES: Final = "lakefmt.append.packed.files"
#: What ``Table.stream`` does where its arguments do not say.
POLL_SECONDS: Final = "lakefmt.stream.poll.seconds"
SORTS_PARTITIONS: Final = "lakefmt.stream.sort.partitions"
STREAMS_OVERWRITES: Final = "lakefmt.stream.overwrites"
CONSUMER_MODE: Final = "lakefmt.stream.consumer.mode"


@dataclass(frozen=True, slots=True)
class AppendLayout:
    """Where rows of an append table go.

    Attributes:
        ordered: rows of a bucket keep the order in which they were written.
        bucket_key: the columns that tell a row's bucket; none: there is one bucket.
        buckets: how many there are.
    """

    ordered: bool = False
    bucket_key: tuple[str, ...] = ()
    buckets: int = 1


def append_layout(properties: Mapping[str, str]) -> AppendLayout | None:
    """Return where rows of a table go; None: it is no append table.

    Raises:
        CorruptFile: the properties name an order or a number of buckets that there is not.

    Example:
        >>> append_layout({"lakefmt.table.kind": "append"}), append_layout({})
        (AppendLayout(ordered=False, bucket_key=(), buckets=1), None)
    """
    if properties.get(KIND) != "append":
        return None
    order, buckets = properties.get(ORDER, "none"), properties.get(BUCKETS, "1")
    if (
        order not in ("none", "per_bucket")
        or not buckets.isascii()
        or not buckets.isdigit()
        or not 0 < len(buckets) < 8
    ):
        raise CorruptFile(
            f"the table's properties {ORDER}={order[:40]} and {BUCKETS}={buckets[:40]} are not understood"
        )
    columns = tuple(filter(None, (name.strip() for name in properties.get(BUCKET_KEY, "").split(","))))
    return AppendLayout(order == "per_bucket", columns, max(1, int(buckets)))
