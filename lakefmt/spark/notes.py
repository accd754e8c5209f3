"""Say, once in a process, which options of a job change nothing here (effects)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from lakefmt._core.data_classes import replace
from lakefmt._core.values import CommitResult

__all__ = ["log_notes", "with_notes"]

_log = logging.getLogger("lakefmt.spark")
_said: Final[set[str]] = set()


def log_notes(notes: Sequence[str]) -> None:
    """Log what was not logged before, in one warning.

    Args:
        notes: of the options of a read or write, one for each option.
    """
    new = [note for note in notes if note not in _said]
    if new:
        _said.update(new)
        _log.warning("%d options change nothing: %s", len(new), "; ".join(new))


def with_notes(result: CommitResult, notes: Sequence[str]) -> CommitResult:
    """Return a result whose warnings have the notes, each once."""
    new = tuple(note for note in notes if note not in result.warnings)
    return replace(result, warnings=(*result.warnings, *new)) if new else result
