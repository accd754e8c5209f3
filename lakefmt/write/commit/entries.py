"""What a commit says of streams, applications and the watermark, decided under the table lock.

A write is given a function (:class:`CommitEntries`). It is called when the table lock is held and the write is about to
complete, so it sees the newest commit of every process. It returns the entries of this commit, or that an earlier commit
has done the same: then the write is undone, and its result names the earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from lakefmt.data_classes import dataclass, replace
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.timeline.commit import WATERMARK, CommitMetadata, combine_entries, milliseconds_of
from lakefmt.transactions.commit_entries import find_entries, with_stored_entries
from lakefmt.values import CommitResult, InstantTime, WriteOperation

__all__ = [
    "AlreadyDone",
    "CommitEntries",
    "EntryView",
    "add_entries",
    "skipped_result",
    "view_entries",
]


@dataclass(frozen=True, slots=True)
class EntryView:
    """What a write sees of the entries of a table.

    Attributes:
        client: the table.
        state: properties and timeline; under the table lock those of now.
        entries: the entries of the newest commit that has any (:mod:`lakefmt.timeline.commit`).
        now_ms: the time of the table's clock, in milliseconds since 1970.
        instant: requested time of the write; None before it has begun.
    """

    client: TableClient
    state: TableState
    entries: Mapping[str, str]
    now_ms: int
    instant: InstantTime | None = None


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """An earlier commit has what a write brings.

    Attributes:
        instant: requested time of that commit; None: it is not known any more.
    """

    instant: InstantTime | None


class CommitEntries(Protocol):
    """What a commit says of streams, applications and the watermark."""

    def __call__(self, view: EntryView) -> Mapping[str, str] | AlreadyDone:
        """Return the entries of the commit, or that an earlier one has done the same.

        Called under the table lock; raising refuses the write, and nothing is changed. May be called several times for
        one write, since a write that conflicts is repeated.
        """
        ...


def view_entries(client: TableClient, state: TableState, instant: InstantTime | None = None) -> EntryView:
    """Return what is stored of streams, applications and the watermark."""
    return EntryView(client, state, find_entries(client, state), milliseconds_of(client.clock.now()), instant)


def add_entries(
    client: TableClient,
    state: TableState,
    metadata: CommitMetadata,
    asked: CommitEntries | None,
    instant: InstantTime,
    watermark: int | None = None,
) -> CommitMetadata | CommitResult:
    """Return the metadata of a commit with its entries, or the result of an earlier commit that has its rows.

    Call under the table lock.

    Args:
        client: the table.
        state: the table as it is under this lock.
        metadata: what the commit says so far.
        asked: what the write was given; None: the commit repeats what the one before it says.
        instant: requested time of the write.
        watermark: what the event times of its rows promise, where it is not given another one.
    """
    if asked is None and watermark is None:
        return with_stored_entries(client, state, metadata)
    view = view_entries(client, state, instant)
    new = {} if asked is None else asked(view)
    if isinstance(new, AlreadyDone):
        return skipped_result(state, new, metadata.operation)
    if watermark is not None:
        new = {WATERMARK: str(watermark), **new}
    entries = combine_entries(view.entries, new, view.now_ms)
    return replace(metadata, extra_metadata={**metadata.extra_metadata, **entries})


def skipped_result(state: TableState, done: AlreadyDone, operation: WriteOperation) -> CommitResult:
    """Return the result of a write that was left out, since an earlier commit has its rows."""
    earlier = next((each for each in state.timeline.commits if each.time == done.instant), None)
    if earlier is None:
        return CommitResult(done.instant, operation=operation, skipped=True)
    return CommitResult(done.instant, earlier.completion, earlier.action.value, operation, skipped=True)
