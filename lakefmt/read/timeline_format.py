"""Format a timeline for people, one line per instant. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakefmt.data_classes import dataclass
from lakefmt.timeline.instant import State
from lakefmt.values import InstantTime, printable, size_text

__all__ = ["TimelineEntry", "draw_lines", "sign_of"]

_SIGNS = {State.REQUESTED.value: "○", State.INFLIGHT.value: "◐", State.COMPLETED.value: "●"}
_FAILED = "✗"
#: Column titles; numbers are right-aligned.
_TITLES = ("", "instant", "action", "operation", "inserted", "updated", "deleted", "files", "written", "took", "")
_RIGHT = frozenset(range(4, 10))
_MAX_NOTE = 120


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One instant with the main facts of its metadata.

    Attributes:
        time: requested time.
        completion: completion time; None while pending and in version 6, which does not store it.
        action: commit, deltacommit, clean, rollback and so on.
        state: requested, inflight or completed.
        operation: the operation of a commit; empty for other actions.
        seconds: time from requested to completed; None if unknown.
        writer: the writer's name, if a commit or heartbeat has it.
        note: the result of a table service, or what a pending instant waits for.
        failed: pending with a dead writer; the next write rolls it back.
        archived: in the archived timeline.
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
    """Return the symbol of an instant: ● completed, ◐ inflight, ○ requested, ✗ failed.

    Example:
        >>> sign_of(TimelineEntry("20260101000000000", None, "commit", "inflight", "", failed=True))
        '✗'
    """
    return _FAILED if entry.failed else _SIGNS[entry.state]


def draw_lines(entries: Sequence[TimelineEntry], *, titles: bool = True) -> Iterator[str]:
    """Yield a timeline's lines, oldest first: titles, then one line per instant with a rail between them.

    Args:
        titles: False: omit the titles, to continue a drawing.

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
            cell.rjust(width) if index in _RIGHT else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
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
    notes = [entry.note, f"by {entry.writer}" if entry.writer else "", "archived" if entry.archived else ""]
    note = printable("; ".join(part for part in notes if part))
    return (*head, *numbers, took, note if len(note) <= _MAX_NOTE else f"{note[:_MAX_NOTE]}…")
