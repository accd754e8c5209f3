"""Opens the writing of a stream, and finishes what writers that died have left (effects; docs/streams.md, Recovery)."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.producers.stream.committing import KeyScope, SegmentCommit
from lakefmt._core.segments.codec import (
    ANONYMOUS,
    Claim,
    Committed,
    SegmentHeader,
    SegmentPosition,
    checksum,
    claim_name,
    data_name,
    delete_segments,
    list_positions,
    list_streams,
    note_name,
    stream_folder,
    write_header,
    write_segment_rows,
)
from lakefmt._core.segments.pending import (
    HeldClaim,
    StreamPlan,
    committed_of_streams,
    is_owned,
    list_epochs,
    load_decided,
    load_streams,
    next_sequence,
    plan_streams,
    take_claim,
)
from lakefmt._core.storage.process_lock import process_locks
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import CommitResult, InstantTime
from lakefmt._core.write.context import WriteRequest
from lakefmt.errors import LakefmtError, StreamUnavailable

__all__ = ["Finish", "Recovered", "SegmentWriter", "is_durable", "recover_others", "recover_stream"]

_log = logging.getLogger("lakefmt.streams")

#: How long who withdraws a segment waits for commits that have begun, and how long between two looks.
_PATIENCE_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.05
_DAY_SECONDS: Final = 24 * 3600.0
#: Milliseconds of the newest segment of this process; a clock that was set back by more than a second is followed.
_last = [0]
_last_lock = threading.Lock()
_MOST_AHEAD: Final = 1000

#: Runs a commit as the writing verbs of a table do: one at a time, and then the table services.
Finish = Callable[[Callable[[], CommitResult | None], WriteRequest], CommitResult]


@dataclass(frozen=True, slots=True)
class Recovered:
    """The outcome of the recovery of a stream whose writer is dead.

    Attributes:
        stream: its id.
        result: the commit of its rows; None: there were none.
        rows: how many rows were committed.
        dropped: segments that were deleted: never confirmed, in the table already, or sent again by their source.
        left: True when its writer is alive, or another process finishes what is there, and nothing was done.
    """

    stream: str
    result: CommitResult | None = None
    rows: int = 0
    dropped: int = 0
    left: bool = False


def is_durable(client: TableClient) -> bool:
    """Return whether a segment is on the disk before a flush returns."""
    settings = resolve_settings({}, client.options, client.load_config().properties)
    return settings.text("lakefmt.durability") == "fsync"


def recover_others(
    client: TableClient, options: Mapping[str, object], finish: Finish, left_out: str | None = None
) -> list[Recovered]:
    """Commit what writers that died have flushed; streams of living writers are left alone.

    A stream whose rows cannot be committed, such as one with a damaged segment, is not in the way of the others.

    Args:
        client: the table.
        options: settings of the commits.
        finish: runs each commit.
        left_out: the stream that is being opened, which is left out: what is wrong with others is a warning then.

    Raises:
        LakefmtError: the first failure, when all other streams are done.
    """
    recovered, failure = list[Recovered](), None
    for stream in list_streams(client.store):
        if stream == left_out:
            continue
        try:
            recovered.append(recover_stream(client, stream, options, finish))
        except LakefmtError as error:
            _log.warning("%s: stream %r cannot be recovered: %s", client.store.url, stream, error)
            if left_out is not None:
                warnings.warn(
                    f"rows that stream {stream!r} has flushed are durable and cannot be committed: {error}; nothing of them is "
                    "lost, and table.recover_streams() tries again",
                    RuntimeWarning,
                    stacklevel=6,
                )
            failure = failure or error
    if failure is not None and left_out is None:
        raise failure
    return recovered


def recover_stream(client: TableClient, stream: str, options: Mapping[str, object], finish: Finish) -> Recovered:
    """Commit what the writer of a stream has flushed, if it is dead.

    Args:
        client: the table.
        stream: the stream.
        options: settings of the commit.
        finish: runs the commit.
    """
    store = client.store
    (in_store,) = load_streams(client, [stream])
    newest = in_store.claims[-1] if in_store.claims else None
    if newest is not None and is_owned(store, stream, newest, client.clock.now().timestamp()):
        return Recovered(stream, left=True)
    if newest is None and not in_store.headers:
        return Recovered(stream)  # its writer is about to claim it, or it was just removed
    if newest is not None and newest.closed and not in_store.headers:
        _remove_old(client, stream, newest)
        return Recovered(stream)
    try:
        writer = SegmentWriter.open(client, stream, options, finish)
    except StreamUnavailable:
        return Recovered(stream, left=True)
    writer.end(is_owner=False)
    return writer.recovered


class SegmentWriter:
    """Writes the segments of one stream under one claim.

    Args:
        client: the table.
        held: the claim.
        committed: what the table has of the stream.
        sequence: number of the next segment.
        recovered: what was found when it was opened.
        tail: segments of this process behind its last mark, which are still to be committed.
    """

    def __init__(
        self,
        client: TableClient,
        held: HeldClaim,
        committed: Committed | None,
        sequence: int,
        recovered: Recovered,
        tail: Sequence[SegmentHeader] = (),
    ) -> None:
        self.client, self.held, self.committed, self.recovered, self.kept = client, held, committed, recovered, tail
        self.sequence = sequence
        self.durable = is_durable(client)
        #: A segment of which is not known whether it is durable.
        self.in_doubt: SegmentHeader | None = None

    @classmethod
    def open(
        cls,
        client: TableClient,
        stream: str,
        options: Mapping[str, object],
        finish: Finish,
        interval_ms: int = 60_000,
        confirmed: SegmentPosition | None = None,
    ) -> SegmentWriter:
        """Claim a stream, commit what earlier writers flushed, and return its writer.

        Args:
            client: the table.
            stream: the stream.
            options: settings of the commit.
            finish: runs the commit.
            interval_ms: pause between renewals of the claim.
            confirmed: the last segment that was confirmed, where the earlier writer is this process: of later ones of
                its claim it does not know, and has given up the rows. None: another process.
        """
        store = client.store
        (in_store,) = load_streams(client, [stream])
        state = client.load()
        before = committed_of_streams(client.at(state), {stream: in_store.since}).get(stream)
        since = in_store.since or ("" if before is not None else state.timeline.highest_time or "")
        claim = take_claim(
            store,
            stream,
            client.ids.new_uuid(),
            before,
            client.time_source,
            since=since,
            interval_ms=interval_ms,
            durable=is_durable(client),
        )
        try:
            return cls._taken_over(client, claim, options, finish, since, confirmed)
        except BaseException:
            claim.release()
            raise

    @classmethod
    def _taken_over(
        cls,
        client: TableClient,
        held_claim: HeldClaim,
        options: Mapping[str, object],
        finish: Finish,
        since: str,
        confirmed: SegmentPosition | None,
    ) -> SegmentWriter:
        store, stream = client.store, held_claim.stream
        in_store = load_decided(client, stream, held_claim.epoch)
        state = client.load()
        table_at = client.at(state)
        before = committed_of_streams(table_at, {stream: since}).get(stream)
        positions = [header.position for header in in_store.headers]
        earlier = [claim for claim in in_store.claims if claim.epoch < held_claim.epoch]
        held_claim.adopt(earlier, positions, before, durable=is_durable(client))
        (noted,) = load_streams(client, [stream])
        (plan,) = plan_streams(table_at, [noted])
        result = _commit(client, plan, options, finish, since)
        tail = () if confirmed is None else plan.tail  # a source that lives does not send them again
        dropped = [*plan.done, *plan.unconfirmed, *(header.position for header in plan.tail if not tail)]
        delete_segments(store, stream, [*dropped, *(header.position for header in plan.to_commit)])
        _remove_old_claims(client, held_claim)
        _, headless = list_positions(store, stream)
        store.delete([data_name(stream, position) for position in headless])
        now = committed_of_streams(client.at(client.load()), {stream: since}).get(stream)
        sequence = next_sequence([*headless, *(header.position for header in in_store.headers)], now)
        rows = sum(header.rows for header in plan.to_commit)
        return cls(client, held_claim, now, sequence, Recovered(stream, result, rows, len(dropped)), tail)

    @property
    def stream(self) -> str:
        """The stream."""
        return self.held.stream

    @property
    def is_anonymous(self) -> bool:
        """Whether the stream got no name from its program, so that no later start can ask for its offsets."""
        return self.stream.startswith(ANONYMOUS)

    @property
    def marks_offsets(self) -> bool:
        """Whether the table has an offset of the stream: its source asks for it, and sends again what comes after it."""
        return self.committed is not None and self.committed.offset is not None and not self.is_anonymous

    @property
    def since(self) -> str:
        """No commit requested up to this time holds an entry of the stream; empty: not known."""
        return self.held.claim.since

    def header(
        self, rows: int, data: bytes, *, offset: object, scope: KeyScope, tail: bool, columns: str
    ) -> SegmentHeader:
        """Return the header of the next segment; its number is used up when it is confirmed."""
        return SegmentHeader(
            self.stream,
            self.held.epoch,
            self.sequence,
            rows,
            len(data),
            checksum(data),
            _next_millisecond(int(self.client.clock.now().timestamp() * 1000)),
            offset,
            scope.across,
            tail,
            scope.stays,
            columns,
        )

    def write(self, header: SegmentHeader, data: bytes) -> None:
        """Write a segment, and confirm it: no other process had claimed the stream when it was durable.

        Raises:
            StreamUnavailable: another one had.
            StorageError: the store failed; the same segment can be written again.
        """
        store = self.client.store
        write_segment_rows(store, header, data, durable=self.durable)
        self.in_doubt = header
        write_header(store, header, durable=self.durable)
        self.held.check()
        self.sequence, self.in_doubt = header.sequence + 1, None

    def forget(self, header: SegmentHeader) -> None:
        """Skip the number of a segment that has no header, and delete its data file."""
        self.sequence = header.sequence + 1
        delete_segments(self.client.store, header.stream, [header.position])

    def settle(self) -> bool | None:
        """Find out what became of the segment that is in doubt, and use up its number.

        Where another process owns the stream now, its claim says whether the segment counts. Else the segment is withdrawn;
        a commit that has begun may have it already, so its end is awaited.

        Returns:
            Whether its rows are in the table or will be; None: it cannot be told now, and they may be.
        """
        header = self.in_doubt
        if header is None:
            return False
        self.sequence = max(self.sequence, header.sequence + 1)
        try:
            outcome = self._fate(header)
        except LakefmtError as error:
            _log.warning("stream %s: it is not known whether a segment is durable: %s", self.stream, error)
            return None
        if outcome is not None:
            self.in_doubt = None
        return outcome

    def _fate(self, header: SegmentHeader) -> bool | None:
        client, position = self.client, header.position
        in_store = load_decided(client, self.stream)
        newest = in_store.claims[-1] if in_store.claims else None
        if newest is not None and newest.epoch > position.epoch:
            if not newest.refuses(position):
                return True
            delete_segments(client.store, self.stream, [position])
            return False
        delete_segments(client.store, self.stream, [position])
        state = _after_begun_commits(client)
        if state is None:
            return None
        now = committed_of_streams(client.at(state), {self.stream: self.since}).get(self.stream)
        if now is None or now.position < position:
            return False
        return True if now.epoch == position.epoch else None

    def end(self, *, is_owner: bool = True) -> None:
        """Release the claim; of a stream without a writer id nothing is left when all is committed.

        Args:
            is_owner: False: the owner was taken for dead. Where it may only be slow, the claim stays for a day, so that what
                it writes yet does not count.
        """
        store, stream = self.client.store, self.stream
        headers, _ = list_positions(store, stream)
        newest = list_epochs(store, stream)
        certain = is_owner or process_locks(store) is not None
        if certain and stream.startswith(ANONYMOUS) and not headers and newest[-1:] == [self.held.epoch]:
            self.held.release()
            store.delete_tree(stream_folder(stream))
            return
        self.held.release(closed=newest[-1:] == [self.held.epoch])


def _remove_old(client: TableClient, stream: str, newest: Claim) -> None:
    """Remove what is left of a stream without a writer id that was recovered a day ago."""
    if stream.startswith(ANONYMOUS):
        info = client.store.info(claim_name(stream, newest.epoch))
        if info is not None and client.clock.now().timestamp() - info.modified > _DAY_SECONDS:
            client.store.delete_tree(stream_folder(stream))


def _next_millisecond(now: int) -> int:
    """Return a time that is later than that of each segment of this process so far: their order tells which row wins."""
    with _last_lock:
        ahead = _last[0] + 1 - now
        _last[0] = now + (ahead if 0 < ahead <= _MOST_AHEAD else 0)
        return _last[0]


def _commit(
    client: TableClient, plan: StreamPlan, options: Mapping[str, object], finish: Finish, since: str
) -> CommitResult | None:
    if not plan.to_commit:
        return None
    commit = SegmentCommit(client, plan.stream, plan.to_commit, options, since, confirmed=False)
    return finish(commit.run, commit.request)


def _after_begun_commits(client: TableClient) -> TableState | None:
    """Return the table when every commit that has begun by now is over; None: that takes too long."""
    time_source = client.time_source
    until = time_source.monotonic() + _PATIENCE_SECONDS
    state = client.load()
    running = _running_writes(state)
    while running & _running_writes(state):
        if time_source.monotonic() >= until:
            return None
        time_source.sleep(_LOOK_SECONDS)
        state = client.load()
    return state


def _running_writes(state: TableState) -> frozenset[InstantTime]:
    writes = (Action.COMMIT, Action.DELTA_COMMIT)
    return frozenset(instant.time for instant in state.timeline.pending if instant.action in writes)


def _remove_old_claims(client: TableClient, claim: HeldClaim) -> None:
    store, stream = client.store, claim.stream
    epochs = list_epochs(store, stream)
    if epochs and epochs[-1] != claim.epoch:
        raise StreamUnavailable(f"stream {stream!r} was claimed by another process while it was opened")
    old = [epoch for epoch in epochs if epoch != claim.epoch]
    store.delete([name for epoch in old for name in (claim_name(stream, epoch), note_name(stream, epoch))])
