"""What the streams of a table have made durable and not committed (effects)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from lakefmt.data_classes import dataclass
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.schema.history import kind_of
from lakefmt.segments.claims import list_claims
from lakefmt.segments.codec import COLUMNS, OPERATOR, Claim, Committed, SegmentHeader, committed_of
from lakefmt.segments.files import delete_segments, list_headers, list_streams
from lakefmt.segments.names import STREAMS
from lakefmt.segments.plan import StreamPlan, plan_stream
from lakefmt.timeline.commit_entries import decode_entry, stream_entry_name
from lakefmt.values import InstantTime

__all__ = [
    "StreamState",
    "committed_of_streams",
    "forget_committed",
    "load_streams",
    "new_column_names",
    "plan_streams",
    "without_dropped",
]


@dataclass(frozen=True, slots=True)
class StreamState:
    """What the store has of a stream.

    Attributes:
        stream: its id.
        headers: of its segments.
        claims: on it, oldest first.
    """

    stream: str
    headers: tuple[SegmentHeader, ...]
    claims: tuple[Claim, ...]

    @property
    def since(self) -> str:
        """No commit requested up to this time holds an entry of the stream; empty: not known."""
        return self.claims[-1].since if self.claims else ""


def load_streams(client: TableClient, streams: Iterable[str] | None = None) -> list[StreamState]:
    """Return what the store has of streams; None: of all.

    Call it before the timeline is loaded: a segment that is listed and then committed is committed in the commit.

    Raises:
        CorruptFile: a header or a claim is damaged.
    """
    store = client.store
    return [
        StreamState(stream, tuple(list_headers(store, stream)), tuple(list_claims(store, stream)))
        for stream in (list_streams(store) if streams is None else streams)
    ]


def plan_streams(client: TableClient, state: TableState, streams: Iterable[StreamState]) -> list[StreamPlan]:
    """Return what becomes of the segments of streams, as of a state of the table that was loaded later.

    Raises:
        CorruptFile: the entry of a commit is damaged.
    """
    each = list(streams)
    committed = committed_of_streams(client, state, {stream.stream: stream.since for stream in each})
    return [plan_stream(s.stream, s.headers, s.claims, committed.get(s.stream)) for s in each]


def committed_of_streams(client: TableClient, state: TableState, wanted: Mapping[str, str]) -> dict[str, Committed]:
    """Return the newest entry of each stream in the commits of a table.

    Args:
        client: the table.
        state: where to look.
        wanted: the streams, and for each a time: commits requested up to it hold no entry; empty: not known.

    Raises:
        CorruptFile: an entry, a commit or the archive is damaged.
    """
    committed: dict[str, Committed] = {}
    seen = _search(client, state, wanted, committed, frozenset())
    oldest = state.timeline.first_active
    missing = [stream for stream, since in wanted.items() if stream not in committed and (not oldest or since < oldest)]
    if missing and oldest:
        _search(client, client.with_history(state), {stream: wanted[stream] for stream in missing}, committed, seen)
    return committed


def forget_committed(client: TableClient, state: TableState) -> int:
    """Delete segments that are in the table already; return how many there were.

    A rollback or a restore that takes their commit away must not bring their rows back: they would be committed again.

    Args:
        client: the table.
        state: the table before that.

    Raises:
        CorruptFile: a header or a claim is damaged.
    """
    count = 0
    if client.store.list_directories(STREAMS):
        for plan in plan_streams(client, state, load_streams(client)):
            delete_segments(client.store, plan.stream, plan.done)
            count += len(plan.done)
    return count


def _search(
    client: TableClient,
    state: TableState,
    wanted: Mapping[str, str],
    committed: dict[str, Committed],
    seen: frozenset[InstantTime],
) -> frozenset[InstantTime]:
    looked = set(seen)
    for instant in reversed(state.timeline.commits_by_completion):
        missing = [stream for stream, since in wanted.items() if stream not in committed and instant.time > since]
        if instant.time in looked:
            continue
        looked.add(instant.time)
        if not missing:
            continue
        entries = client.commit_metadata(state, instant).extra_metadata
        for stream in missing:
            fields = decode_entry(entries, stream_entry_name(stream))
            if fields is not None:
                committed[stream] = committed_of(fields)
    return frozenset(looked)


def new_column_names(client: TableClient, state: TableState, tables: Sequence[pa.Table]) -> dict[str, str]:
    """Return the new names of columns that were renamed after rows were flushed.

    Args:
        client: the table.
        state: its columns now.
        tables: rows of segments.
    """
    current = client.schema(state).names
    vanished = {name for table in tables for name in table.column_names} - {*current, OPERATOR, COLUMNS}
    history = client.schema_history(state) if vanished else None
    if history is None:
        return {}
    names: dict[int, str] = {column.number: column.name for column in history.latest.columns}
    return {
        column.name: names[column.number]
        for schema in history.schemas
        for column in schema.columns
        if column.name in vanished and column.number in names
    }


def without_dropped(client: TableClient, state: TableState, tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Return rows of segments without columns that were dropped since, where another column has their name now.

    Args:
        client: the table.
        state: its columns now.
        tables: rows of segments.
    """
    now = client.schema(state)
    current = {field.name: field.type for field in now}
    odd = {
        field.name
        for table in tables
        for field in table.schema
        if field.name in current and field.type != current[field.name]
    }
    history = client.schema_history(state) if odd else None
    if history is None:
        return list(tables)
    numbers = {column.name: column.number for column in history.latest.columns}
    kinds: dict[tuple[str, bool], set[str]] = {}
    for column in (column for schema in history.schemas for column in schema.columns if column.name in odd):
        kinds.setdefault((column.name, column.number == numbers.get(column.name)), set()).add(column.kind)
    left = []
    for table in tables:
        dropped = [
            field.name
            for field in table.schema
            if field.name in odd
            and kind_of(field) in kinds.get((field.name, False), ())
            and kind_of(field) not in kinds.get((field.name, True), ())
        ]
        left.append(table.drop_columns(dropped) if dropped else table)
    return left
