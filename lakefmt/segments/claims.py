"""Claims: which process may write the segments of a stream (effects).

An opening of a stream claims the next epoch by creating a file that must not exist. A process whose epoch is not the newest
one must not confirm a segment any more. On a local disk the owner also holds an operating system lock on the file, so that
its death is seen at once; elsewhere it renews the file, and two missed renewals end it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from lakefmt.data_classes import replace
from lakefmt.errors import LakefmtError, ObjectNotFound, StreamUnavailable
from lakefmt.segments.codec import (
    MAX_HEADER_BYTES,
    Claim,
    Committed,
    decode_claim,
    decode_note,
    encode_claim,
    encode_note,
)
from lakefmt.segments.files import list_positions
from lakefmt.segments.names import SegmentPosition, claim_name, claims_folder, note_name, parse_claim_name
from lakefmt.segments.plan import adopted_by, next_epoch
from lakefmt.storage.api import ObjectStore, PutOutcome, with_versions
from lakefmt.storage.local.process_lock import ProcessLock, process_locks
from lakefmt.storage.parallel import map_concurrently
from lakefmt.storage.time_source import TimeSource
from lakefmt.timeline.store import put_if_absent_confirmed

__all__ = ["HeldClaim", "decide_adopted", "is_blank", "is_owned", "list_claims", "list_epochs", "take_claim"]

_MISSES = 2
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
        self, claims: Sequence[Claim], seen: Iterable[SegmentPosition], committed: Committed | None, *, durable: bool
    ) -> None:
        """Note the segments of earlier owners that count; what they write later does not. Arguments: :func:`decide_adopted`."""
        self.claim = decide_adopted(self._store, self.stream, [*claims, self.claim], seen, committed, durable=durable)

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
    seen: Iterable[SegmentPosition],
    committed: Committed | None,
    *,
    durable: bool = False,
) -> Claim:
    """Return the newest claim with the segments of earlier owners that count. Who notes them first decides it for all.

    Args:
        store: the table's.
        stream: the stream.
        claims: on it, oldest first.
        seen: all segments that are there; they were listed after the newest claim was made.
        committed: what the table has of the stream, looked up after that.
        durable: the note is on the disk when this returns.

    Raises:
        StreamUnavailable: a process with a newer claim has removed the note.
        CorruptFile: what was noted is damaged.
    """
    claim = claims[-1]
    decided = adopted_by(claims, seen, committed)
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
    looks = [partial(_claim, store, stream, epoch) for epoch in list_epochs(store, stream)]
    return [claim for claim in map_concurrently(store, looks) if claim is not None]


def _claim(store: ObjectStore, stream: str, epoch: int) -> Claim | None:
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
    """Return whether a claim's file has no content: its name is taken, and it tells nothing of an owner.

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
    return info is not None and now - info.modified <= _MISSES * claim.interval_ms / 1000


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
