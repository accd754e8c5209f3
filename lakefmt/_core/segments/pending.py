"""What the streams of a table have made durable and not committed, and which process may write their segments.

An opening of a stream claims the next epoch by creating a file that must not exist. A process whose epoch is not the newest
one must not confirm a segment any more. On a local disk the owner also holds an operating system lock on the file, so that
its death is seen at once; elsewhere it renews the file, and two missed renewals end it.

A process that claims a stream lists its segments and notes the last one it saw of each earlier claim (``adopted``). What an
earlier owner writes after that was never confirmed: an owner looks for newer claims between writing a segment and
confirming it.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableAt, TableClient
from lakefmt._core.segments.codec import (
    MAX_HEADER_BYTES,
    STREAMS,
    Claim,
    Committed,
    SegmentHeader,
    SegmentPosition,
    claim_name,
    claims_folder,
    committed_of,
    decode_claim,
    decode_note,
    delete_segments,
    encode_claim,
    encode_note,
    has_segments,
    list_headers,
    list_positions,
    list_streams,
    note_name,
    parse_claim_name,
    parse_header_name,
)
from lakefmt._core.storage.api import ObjectStore, PutOutcome, with_versions
from lakefmt._core.storage.parallel import map_concurrently
from lakefmt._core.storage.process_lock import ProcessLock, process_locks
from lakefmt._core.storage.time_source import TimeSource
from lakefmt._core.timeline.commit import decode_entry, stream_entry_name
from lakefmt._core.timeline.store import put_if_absent_confirmed
from lakefmt._core.values import InstantTime
from lakefmt.errors import LakefmtError, ObjectNotFound, StorageError, StreamUnavailable

__all__ = [
    "HeldClaim",
    "StreamPlan",
    "StreamState",
    "adopted_by",
    "committed_of_streams",
    "decide_adopted",
    "first_bytes",
    "forget_committed",
    "header_times",
    "in_order",
    "is_blank",
    "is_owned",
    "is_unchanged",
    "list_claims",
    "list_epochs",
    "load_decided",
    "load_others",
    "load_streams",
    "next_epoch",
    "next_sequence",
    "plan_stream",
    "plan_streams",
    "take_claim",
]

_log = logging.getLogger("lakefmt.streams")

#: Of so many earlier claims a claim says which segments count.
_MOST_EPOCHS: Final = 1000


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """What becomes of the segments of a stream.

    Attributes:
        stream: the stream.
        to_commit: durable and not in the table, in order.
        done: in the table; they can be deleted.
        unconfirmed: written by an owner that another one had replaced; they can be deleted.
        tail: durable, behind the last mark of a stream that marks offsets: its owner commits them with their mark, and
            where the owner is dead its source sends them again.
        committed: what the table has of the stream; None: nothing.
    """

    stream: str
    to_commit: tuple[SegmentHeader, ...] = ()
    done: tuple[SegmentPosition, ...] = ()
    unconfirmed: tuple[SegmentPosition, ...] = ()
    tail: tuple[SegmentHeader, ...] = ()
    committed: Committed | None = None


def plan_stream(
    stream: str, headers: Iterable[SegmentHeader], claims: Iterable[Claim], committed: Committed | None
) -> StreamPlan:
    """Return what becomes of a stream's segments.

    Args:
        stream: the stream.
        headers: of all its segments, in any order.
        claims: all claims on it.
        committed: the newest entry in a commit; None: there is none.

    Example:
        >>> headers = [SegmentHeader("w", 1, n, 1, 1, "", 0) for n in (1, 2, 3)]
        >>> plan = plan_stream("w", headers, [Claim(2, "o", "h", 1, adopts=SegmentPosition(1, 2))], Committed(1, 1))
        >>> [each.sequence for each in plan.to_commit], plan.done, plan.unconfirmed
        ([2], (SegmentPosition(epoch=1, sequence=1),), (SegmentPosition(epoch=1, sequence=3),))
    """
    noted = list(claims)
    to_commit, committed_positions, unconfirmed = [], [], []
    for header in sorted(headers, key=lambda each: each.position):
        position = header.position
        if committed is not None and position <= committed.position:
            committed_positions.append(position)
        elif any(claim.refuses(position) for claim in noted):
            unconfirmed.append(position)
        else:
            to_commit.append(header)
    marked = max((n + 1 for n, header in enumerate(to_commit) if not header.tail), default=0)
    marked_segments, tail = tuple(to_commit[:marked]), tuple(to_commit[marked:])
    return StreamPlan(stream, marked_segments, tuple(committed_positions), tuple(unconfirmed), tail, committed)


def adopted_by(claims: Sequence[Claim], existing: Iterable[SegmentPosition], committed: Committed | None) -> Claim:
    """Return the newest claim with the last segment that counts of each earlier claim; what was decided before stays so.

    Args:
        claims: on the stream, oldest first.
        existing: the segments that were there after the newest claim was made.
        committed: what the table has of the stream.

    Example:
        >>> claims = [Claim(2, "o", "h", 1, adopts=SegmentPosition(1, 4), adopted=(SegmentPosition(1, 4),)), Claim(3, "o", "h", 1)]
        >>> adopted_by(claims, [SegmentPosition(1, 5), SegmentPosition(2, 6)], None).adopted
        (SegmentPosition(epoch=1, sequence=4), SegmentPosition(epoch=2, sequence=6))
    """
    claim = claims[-1]
    earlier = [each for each in claims[:-1] if each.adopted is not None]
    positions = [*existing, *([] if committed is None else [committed.position])]
    since = earlier[-1].epoch if earlier else 0
    newest = {each.epoch: each for each in sorted(positions) if since <= each.epoch < claim.epoch}
    newest |= {each.epoch: each for each in (earlier[-1].adopted or () if earlier else ())}
    adopted = tuple(newest[epoch] for epoch in sorted(newest)[-_MOST_EPOCHS:])
    return replace(claim, adopts=max([*positions, *adopted, SegmentPosition(0, 0)]), adopted=adopted)


def in_order(
    streams: Iterable[Sequence[SegmentHeader]],
    times: Mapping[tuple[str, SegmentPosition], float],
    until: str | None = None,
) -> list[SegmentHeader]:
    """Return the segments of several streams in the order in which they became durable.

    The store's clock decides, then that of the writers. What stands behind a mark counts from its own mark on.

    Args:
        streams: the segments of each, in its order.
        times: when the store got the header of each, in epoch seconds.
        until: a stream: what became durable after its last segment is left out. None: nothing is.

    Example:
        >>> one, two = SegmentHeader("a", 1, 1, 1, 1, "", 7), SegmentHeader("b", 1, 1, 1, 1, "", 5)
        >>> [each.stream for each in in_order([[one], [two]], {})]
        ['b', 'a']
        >>> [each.stream for each in in_order([[one], [two]], {("a", one.position): 1.0, ("b", two.position): 2.0}, "a")]
        ['a']
    """
    placed, last = list[tuple[tuple[float, int], str, int, SegmentHeader]](), None
    for headers in streams:
        moments, latest = list[tuple[float, int]](), (0.0, 0)
        for header in headers:
            latest = max(latest, (times.get((header.stream, header.position), 0.0), header.at))
            moments.append(latest)
        for number in range(len(headers) - 2, -1, -1):
            if headers[number].tail:
                moments[number] = moments[number + 1]
        placed += [
            (moment, header.stream, n, header) for n, (moment, header) in enumerate(zip(moments, headers, strict=True))
        ]
        if headers and headers[0].stream == until:
            last = moments[-1]
    return [each[3] for each in sorted(placed, key=lambda each: each[:3]) if last is None or each[0] <= last]


def first_bytes(headers: Sequence[SegmentHeader], most_bytes: int) -> Sequence[SegmentHeader]:
    """Return the first of some segments: as many as have so many bytes, at least one, and none without its mark.

    Example:
        >>> headers = [SegmentHeader("a", 1, n, 1, 10, "", 0, tail=n == 1) for n in (1, 2, 3)]
        >>> [each.sequence for each in first_bytes(headers, 10)], len(first_bytes(headers, 30))
        ([1, 2], 3)
    """
    end, size = 0, 0
    unmarked = set[str]()
    for number, header in enumerate(headers, start=1):
        if end and size + header.bytes > most_bytes:
            break
        size += header.bytes
        (unmarked.add if header.tail else unmarked.discard)(header.stream)
        end = number if not unmarked else end
    return headers[:end] if end else headers


def next_epoch(claims: Iterable[int], positions: Iterable[SegmentPosition], committed: Committed | None) -> int:
    """Return the epoch of the next claim: above every one that was ever used.

    Example:
        >>> next_epoch([1, 2], [SegmentPosition(3, 1)], None)
        4
    """
    used = [*claims, *(each.epoch for each in positions), 0 if committed is None else committed.epoch]
    return max(used) + 1


def next_sequence(positions: Iterable[SegmentPosition], committed: Committed | None) -> int:
    """Return the number of the next segment: above every one that was ever used.

    Example:
        >>> next_sequence([SegmentPosition(1, 4)], Committed(1, 9))
        10
    """
    return max([*(each.sequence for each in positions), 0 if committed is None else committed.sequence]) + 1


_MISSED_RENEWALS = 2
_TRIES = 100


class HeldClaim:
    """A claim of this process, renewed until it is released.

    Args:
        store: the table's.
        stream: the stream.
        claim: what was claimed.
        time_source: renews it.
        lock: of the operating system on the claim's file; None: the store has none.
    """

    def __init__(
        self, store: ObjectStore, stream: str, claim: Claim, time_source: TimeSource, lock: ProcessLock | None = None
    ) -> None:
        self.claim = claim
        self.stream = stream
        self._store = store
        self._name = claim_name(stream, claim.epoch)
        self._locks = process_locks(store)
        self._held = lock
        self._stop: Callable[[], None] | None = time_source.schedule_periodic(
            claim.interval_ms / 1000, self._renew, f"lakefmt-stream-{stream[:20]}"
        )

    @property
    def epoch(self) -> int:
        """The claimed number."""
        return self.claim.epoch

    def adopt(
        self,
        claims: Sequence[Claim],
        existing: Iterable[SegmentPosition],
        committed: Committed | None,
        *,
        durable: bool,
    ) -> None:
        """Note the segments of earlier owners that count; what they write later does not. Arguments: :func:`decide_adopted`."""
        self.claim = decide_adopted(
            self._store, self.stream, [*claims, self.claim], existing, committed, durable=durable
        )

    def check(self) -> None:
        """Raise when a newer claim exists, or this one was removed; one request.

        Raises:
            StreamUnavailable: so it is.
        """
        epochs = list_epochs(self._store, self.stream)
        if not epochs or epochs[-1] != self.epoch:
            newer = f"epoch {epochs[-1]}" if epochs else "no process"
            raise StreamUnavailable(
                f"stream {self.stream!r} was taken over: its owner is now {newer}, and this process had {self.epoch}"
            )

    def _renew(self) -> None:
        try:
            if self._locks is not None and self._held is not None:
                self._locks.touch(self._name)
            elif (versions := with_versions(self._store)) is not None:
                version = versions.read_version(self._name, MAX_HEADER_BYTES)
                if version is not None:  # a claim that was removed does not come back
                    versions.put_if_match(self._name, encode_claim(self.claim), version.mark)
            elif self._store.info(self._name) is not None:
                self._store.put(self._name, encode_claim(self.claim))
        except LakefmtError:
            return  # a failed renewal is a missed one

    def release(self, *, closed: bool = False) -> None:
        """Stop renewing; `closed`: note that the stream was closed, so that no process waits for this process."""
        if self._stop is not None:
            self._stop()
            self._stop = None
        try:
            if closed:
                self.claim = replace(self.claim, closed=True)
                self._store.put(note_name(self.stream, self.epoch), encode_note(self.claim))
        finally:
            if self._held is not None:
                self._held.release()
                self._held = None


def decide_adopted(
    store: ObjectStore,
    stream: str,
    claims: Sequence[Claim],
    existing: Iterable[SegmentPosition],
    committed: Committed | None,
    *,
    durable: bool = False,
) -> Claim:
    """Return the newest claim with the segments of earlier owners that count. Who notes them first decides it for all.

    Args:
        store: the table's.
        stream: the stream.
        claims: on it, oldest first.
        existing: all segments that are there; they were listed after the newest claim was made.
        committed: what the table has of the stream, looked up after that.
        durable: the note is on the disk when this returns.

    Raises:
        StreamUnavailable: a process with a newer claim has removed the note.
        CorruptFile: what was noted is damaged.
    """
    claim = claims[-1]
    decided = adopted_by(claims, existing, committed)
    name = note_name(stream, claim.epoch)
    if put_if_absent_confirmed(store, name, encode_note(decided), durable=durable) is PutOutcome.DONE:
        return decided
    try:
        return decode_note(store.read(name, MAX_HEADER_BYTES), claim, name)
    except ObjectNotFound:
        raise StreamUnavailable(f"stream {stream!r} was taken over while it was opened") from None


def list_epochs(store: ObjectStore, stream: str) -> list[int]:
    """Return the epochs that are claimed, ascending."""
    names = (info.name.rpartition("/")[2] for info in store.list(claims_folder(stream), recursive=False))
    return sorted(epoch for epoch in map(parse_claim_name, names) if epoch is not None)


def list_claims(store: ObjectStore, stream: str) -> list[Claim]:
    """Return the claims on a stream, oldest first.

    Raises:
        CorruptFile: one is damaged.
    """
    looks = [partial(_load_claim, store, stream, epoch) for epoch in list_epochs(store, stream)]
    return [claim for claim in map_concurrently(store, looks) if claim is not None]


def _load_claim(store: ObjectStore, stream: str, epoch: int) -> Claim | None:
    name, note = claim_name(stream, epoch), note_name(stream, epoch)
    try:
        data = store.read(name, MAX_HEADER_BYTES)
    except ObjectNotFound:
        return None
    try:
        noted: bytes | None = store.read(note, MAX_HEADER_BYTES)
    except ObjectNotFound:
        noted = None
    if is_blank(data):
        # An older release could leave it: nobody has it, and the next process claims the stream.
        claim = Claim(epoch, "", "", 0)
        return claim if noted is None else decode_note(noted, claim, note)
    return decode_claim(data, noted, name)


def is_blank(data: bytes) -> bool:
    """Return whether a claim's file is empty: its name is taken, and it names no owner.

    Example:
        >>> is_blank(b""), is_blank(bytes(7)), is_blank(b"{}")
        (True, True, False)
    """
    return not data.strip(b"\0 \n")


def is_owned(store: ObjectStore, stream: str, claim: Claim, now: float) -> bool:
    """Return whether the owner of a claim may be alive.

    Args:
        store: the table's.
        stream: the stream.
        claim: its newest claim.
        now: epoch seconds.
    """
    if claim.closed:
        return False
    name, locks = claim_name(stream, claim.epoch), process_locks(store)
    if locks is not None and claim.host in (socket.gethostname(), ""):
        return locks.is_held(name)
    info = store.info(name)
    return info is not None and now - info.modified <= _MISSED_RENEWALS * claim.interval_ms / 1000


def take_claim(
    store: ObjectStore,
    stream: str,
    owner: str,
    committed: Committed | None,
    time_source: TimeSource,
    *,
    since: str = "",
    interval_ms: int = 60_000,
    durable: bool = False,
) -> HeldClaim:
    """Claim the next epoch of a stream; what its owner so far writes from now on is not confirmed.

    Args:
        store: the table's.
        stream: the stream.
        owner: id of the opening; unique.
        committed: the newest entry in a commit.
        time_source: renews the claim.
        since: no commit requested up to this time holds an entry of the stream.
        interval_ms: pause between renewals.
        durable: the claim is on the disk when this returns.

    Raises:
        StreamUnavailable: others claimed it again and again.
    """
    for _ in range(_TRIES):
        epochs, (headers, data) = list_epochs(store, stream), list_positions(store, stream)
        epoch = next_epoch(epochs, [*headers, *data], committed)
        claim = Claim(epoch, owner, socket.gethostname(), os.getpid(), since, None, interval_ms)
        name = claim_name(stream, epoch)
        locks, lock = process_locks(store), None
        if locks is None:
            outcome = put_if_absent_confirmed(store, name, encode_claim(claim), durable=durable)
        else:
            outcome, lock = locks.put_held(name, encode_claim(claim), durable=durable)
        if outcome is PutOutcome.DONE:
            return HeldClaim(store, stream, claim, time_source, lock)
    raise StreamUnavailable(f"stream {stream!r} is claimed by others again and again")


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
    return {(header[0], header[1]): modified for header, modified in parsed if header is not None and header[2]}


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
    states = list[StreamState]()
    for other in sorted({name for name, _ in times} - {stream}):
        try:
            state = load_decided(client, other)
            # What came after the listing is later than all that the commit has.
            listed = [header for header in state.headers if (other, header.position) in times]
            states.append(replace(state, headers=tuple(listed)))
        except StorageError:
            raise
        except LakefmtError as error:
            _log.warning("%s: stream %r is left for later: %s", client.store.url, other, error)
    return states


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
        committed = committed_of_streams(client.at(client.load()), {stream: state.since}).get(stream)
        with suppress(StreamUnavailable):  # a newer claim has replaced it
            decide_adopted(client.store, stream, state.claims[: number + 1], positions, committed)
    raise StreamUnavailable(f"stream {stream!r} is claimed by others again and again")


def is_unchanged(client: TableClient, state: StreamState, headers: Iterable[SegmentHeader]) -> bool:
    """Return whether segments of a stream are all there, and their owner is still the same."""
    epochs = list_epochs(client.store, state.stream)
    if epochs[-1:] != [claim.epoch for claim in state.claims[-1:]]:
        return False
    return has_segments(client.store, state.stream, headers)


def plan_streams(table_at: TableAt, streams: Iterable[StreamState]) -> list[StreamPlan]:
    """Return what becomes of the segments of streams, as of a state of the table that was loaded later.

    Raises:
        CorruptFile: the entry of a commit is damaged.
    """
    each = list(streams)
    committed = committed_of_streams(table_at, {stream.stream: stream.since for stream in each})
    return [plan_stream(s.stream, s.headers, s.claims, committed.get(s.stream)) for s in each]


def committed_of_streams(table_at: TableAt, streams: Mapping[str, str]) -> dict[str, Committed]:
    """Return the newest entry of each stream in the commits of a table.

    Args:
        table_at: the table, at one moment.
        streams: the streams, and for each a time: commits requested up to it hold no entry; empty: not known.

    Raises:
        CorruptFile: an entry, a commit or the archive is damaged.
    """
    committed = _committed_by_newest(table_at, streams)
    searched = _search_commits(table_at, streams, committed, frozenset())
    oldest = table_at.timeline.first_active
    unresolved = [
        stream for stream, since in streams.items() if stream not in committed and (not oldest or since < oldest)
    ]
    if unresolved and oldest:
        _search_commits(
            table_at.with_history(), {stream: streams[stream] for stream in unresolved}, committed, searched
        )
    return committed


def forget_committed(table_at: TableAt) -> int:
    """Delete segments that are in the table already; return how many there were.

    A rollback or a restore that takes their commit away must not bring their rows back: they would be committed again.

    Args:
        table_at: the table, at one moment.

    Raises:
        CorruptFile: a header or a claim is damaged.
    """
    count = 0
    if table_at.client.store.list_directories(STREAMS):
        for plan in plan_streams(table_at, load_streams(table_at.client)):
            delete_segments(table_at.client.store, plan.stream, plan.done)
            count += len(plan.done)
    return count


def _committed_by_newest(table_at: TableAt, streams: Iterable[str]) -> dict[str, Committed]:
    """Return the entries of streams in the newest commit that has any: it repeats those of earlier ones.

    A commit that had begun before a stream was claimed, and ended later, is found here only.
    """
    each = (table_at.commit_metadata(instant).entries for instant in reversed(table_at.timeline.commits_by_completion))
    entries = next(filter(None, each), {})
    fields = {stream: decode_entry(entries, stream_entry_name(stream)) for stream in streams}
    return {stream: committed_of(entry) for stream, entry in fields.items() if entry is not None}


def _search_commits(
    table_at: TableAt, streams: Mapping[str, str], committed: dict[str, Committed], searched: frozenset[InstantTime]
) -> frozenset[InstantTime]:
    searched_times = set(searched)
    for instant in reversed(table_at.timeline.commits_by_completion):
        unresolved = [stream for stream, since in streams.items() if stream not in committed and instant.time > since]
        if instant.time in searched_times:
            continue
        searched_times.add(instant.time)
        if not unresolved:
            continue
        entries = table_at.commit_metadata(instant).extra_metadata
        for stream in unresolved:
            fields = decode_entry(entries, stream_entry_name(stream))
            if fields is not None:
                committed[stream] = committed_of(fields)
    return frozenset(searched_times)
