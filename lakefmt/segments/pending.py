"""What the streams of a table have made durable and not committed (effects)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress

from lakefmt.data_classes import dataclass, replace
from lakefmt.errors import LakefmtError, StorageError, StreamUnavailable
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.segments.claims import decide_adopted, list_claims, list_epochs
from lakefmt.segments.codec import Claim, Committed, SegmentHeader, committed_of
from lakefmt.segments.files import delete_segments, has_segments, list_headers, list_positions, list_streams
from lakefmt.segments.names import STREAMS, SegmentPosition, parse_header_name
from lakefmt.segments.plan import StreamPlan, plan_stream
from lakefmt.timeline.commit_entries import decode_entry, stream_entry_name
from lakefmt.values import InstantTime

__all__ = [
    "StreamState",
    "committed_of_streams",
    "forget_committed",
    "header_times",
    "is_unchanged",
    "load_decided",
    "load_others",
    "load_streams",
    "plan_streams",
]

_TRIES = 100

_log = logging.getLogger("lakefmt.streams")


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


def header_times(client: TableClient) -> dict[tuple[str, SegmentPosition], float]:
    """Return when the store got the header of each segment of a table, in epoch seconds; one listing."""
    parsed = ((parse_header_name(info.name), info.modified) for info in client.store.list(STREAMS))
    return {(found[0], found[1]): modified for found, modified in parsed if found is not None and found[2]}


def load_others(
    client: TableClient, stream: str, times: Mapping[tuple[str, SegmentPosition], float]
) -> list[StreamState]:
    """Return what the store has of the other streams that have segments; what is damaged is logged, and left out.

    Where a claim is new, and its owner has not noted yet which earlier segments count, this is decided for it: their
    order is not to depend on who is faster. Call it before the timeline is loaded.

    Args:
        client: the table.
        stream: the stream that is left out.
        times: what :func:`header_times` returned.
    """
    found = list[StreamState]()
    for other in sorted({name for name, _ in times} - {stream}):
        try:
            state = load_decided(client, other)
            # What came after the listing is later than all that the commit has.
            listed = [header for header in state.headers if (other, header.position) in times]
            found.append(replace(state, headers=tuple(listed)))
        except StorageError:
            raise
        except LakefmtError as error:
            _log.warning("%s: stream %r is left for later: %s", client.store.url, other, error)
    return found


def load_decided(client: TableClient, stream: str, before: int | None = None) -> StreamState:
    """Return what the store has of a stream, with every claim that had to be decided: which earlier segments count.

    The oldest is decided first, so that all processes come to the same.

    Args:
        client: the table.
        stream: the stream.
        before: an epoch: its claim and newer ones are left as they are.

    Raises:
        StreamUnavailable: others claim the stream again and again.
        CorruptFile: a header or a claim is damaged.
    """
    for _ in range(_TRIES):
        (state,) = load_streams(client, [stream])
        open_claims = (
            n
            for n, claim in enumerate(state.claims)
            if claim.adopts is None and (before is None or claim.epoch < before)
        )
        number = next(open_claims, None)
        if number is None:
            return state
        positions, _ = list_positions(client.store, stream)
        committed = committed_of_streams(client, client.load(), {stream: state.since}).get(stream)
        with suppress(StreamUnavailable):  # a newer claim has replaced it
            decide_adopted(client.store, stream, state.claims[: number + 1], positions, committed)
    raise StreamUnavailable(f"stream {stream!r} is claimed by others again and again")


def is_unchanged(client: TableClient, state: StreamState, headers: Iterable[SegmentHeader]) -> bool:
    """Return whether segments of a stream are all there, and their owner is still the same."""
    epochs = list_epochs(client.store, state.stream)
    if epochs[-1:] != [claim.epoch for claim in state.claims[-1:]]:
        return False
    return has_segments(client.store, state.stream, headers)


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
    committed = _repeated(client, state, wanted)
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


def _repeated(client: TableClient, state: TableState, wanted: Iterable[str]) -> dict[str, Committed]:
    """Return what the newest commit with entries says of streams: it repeats those before it.

    A commit that had begun before a stream was claimed, and ended later, is found here only.
    """
    each = (
        client.commit_metadata(state, instant).entries for instant in reversed(state.timeline.commits_by_completion)
    )
    entries = next(filter(None, each), {})
    fields = {stream: decode_entry(entries, stream_entry_name(stream)) for stream in wanted}
    return {stream: committed_of(found) for stream, found in fields.items() if found is not None}


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
