"""A timeline as people read it: who did what when, one line per instant (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakefmt.timeline.instant import State
from lakefmt.values import InstantTime, printable, size_text

__all__ = ["TimelineEntry", "draw_lines", "sign_of"]

_SIGNS = {State.REQUESTED.value: "○", State.INFLIGHT.value: "◐", State.COMPLETED.value: "●"}
_FAILED = "✗"
#: Titles of the columns; numbers stand at the right.
_TITLES = ("", "instant", "action", "operation", "inserted", "updated", "deleted", "files", "written", "took", "")
_RIGHT = frozenset(range(4, 10))
_MAX_NOTE = 120


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One instant with what its commit says.

    Attributes:
        time: when it was requested.
        completion: when it completed; None while it is pending, and in version 6, which does not store it.
        action: commit, deltacommit, clean, rollback and so on.
        state: requested, inflight or completed.
        operation: what a commit did; empty for other actions.
        seconds: from requested to completed, None when that is not known.
        writer: who did it, where that was stored: by writers that work beside others, and by signs of life.
        note: what a service did, or what a pending instant waits for.
        failed: it is pending and its writer is dead: the next write undoes it.
        archived: it has left the active timeline.
    """

    time: InstantTime
    completion: InstantTime | None
    action: str
    state: str
    operation: str
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    files: int = 0
    bytes_written: int = 0
    seconds: float | None = None
    writer: str | None = None
    note: str = ""
    failed: bool = False
    archived: bool = False


def sign_of(entry: TimelineEntry) -> str:
    """Return the sign before an instant: ● completed, ◐ inflight, ○ requested, ✗ failed.

    Example:
        >>> sign_of(TimelineEntry("20260101000000000", None, "commit", "inflight", "", failed=True))
        '✗'
    """
    return _FAILED if entry.failed else _SIGNS[entry.state]


def draw_lines(entries: Sequence[TimelineEntry], *, titles: bool = True) -> Iterator[str]:
    """Yield a timeline's lines, oldest first: titles, then an instant each with a rail between them.

    Args:
        entries: the instants.
        titles: False: without the line above, for what continues a drawing.

    Example:
        >>> begun = TimelineEntry("20260101000000000", None, "commit", "requested", "", note="at work")
        >>> list(draw_lines([begun]))[1].split()
        ['○', '20260101000000000', 'commit', 'requested', 'at', 'work']
    """
    if not entries:
        yield "(no instants)"
        return
    rows = [_TITLES, *(_cells(entry) for entry in entries)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for place, row in enumerate(rows):
        padded = (
            cell.rjust(width) if at in _RIGHT else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        if place or titles:
            yield "  ".join(padded).rstrip()
        if 0 < place < len(rows) - 1:
            yield "│"


def _cells(entry: TimelineEntry) -> tuple[str, ...]:
    took = "" if entry.seconds is None else f"{entry.seconds:.3f} s"
    pending = "" if entry.state == State.COMPLETED.value else "failed" if entry.failed else entry.state
    head = (sign_of(entry), entry.time, entry.action, entry.operation or pending)
    numbers = ("", "", "", "", "")
    if entry.operation:
        counts = (f"{number:,}" if number else "·" for number in (entry.inserts, entry.updates, entry.deletes))
        numbers = (*counts, f"{entry.files:,}", size_text(entry.bytes_written))  # type: ignore[assignment]
    said = [entry.note, f"by {entry.writer}" if entry.writer else "", "archived" if entry.archived else ""]
    note = printable("; ".join(part for part in said if part))
    return (*head, *numbers, took, note if len(note) <= _MAX_NOTE else f"{note[:_MAX_NOTE]}…")
