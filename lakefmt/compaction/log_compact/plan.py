"""Which file slices a log compaction merges, and when a log compaction is due (docs/format.md, Compaction). Pure.

A candidate is a slice whose logs have at least the threshold of visible blocks and whose file group is in no pending plan.
Hudi counts log files first, and blocks only when there are few files; counting visible blocks avoids that a slice is
merged again right after it was merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakefmt.compaction.compact.plan import CompactionPlan, GroupKey, plan_operation, since_last_compaction
from lakefmt.data_classes import dataclass
from lakefmt.filegroups.model import FileSlice
from lakefmt.timeline.instant import Action, Instant
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import InstantTime

__all__ = ["LogFacts", "find_newer_compaction", "is_log_compaction_due", "plan_log_compaction"]


@dataclass(frozen=True, slots=True)
class LogFacts:
    """Facts about the blocks of a slice's logs.

    Attributes:
        num_blocks: visible blocks.
        num_instants: number of instants that wrote them; blocks of one instant are not merged.
        is_partial: whether a block holds only some columns of the table; it cannot be merged without the base file.
    """

    num_blocks: int
    num_instants: int
    is_partial: bool = False


def plan_log_compaction(
    slices: Iterable[FileSlice],
    facts: Mapping[GroupKey, LogFacts],
    busy: frozenset[GroupKey],
    threshold: int,
    *,
    max_file_bytes: int = 0,
    due: bool = True,
) -> CompactionPlan:
    """Return what a log compaction merges.

    Args:
        slices: the latest committed slice of every file group.
        facts: for slices that have logs, by (partition, file id).
        busy: file groups in a pending compaction, log compaction or clustering plan.
        threshold: number of blocks from which on a slice is merged.
        max_file_bytes: expected size of a base file where there is none, for the metrics of the plan.
        due: from :func:`is_log_compaction_due`; it is passed on.

    Example:
        >>> from lakefmt.filegroups.model import LogFile
        >>> log = LogFile("p", ".f-0_20260101000000000.log.1_0-0-0", "f-0", "20260101000000000", 1, 9)
        >>> file_slice = FileSlice("p", "f-0", "20260101000000000", None, (log,))
        >>> print(plan_log_compaction([file_slice], {("p", "f-0"): LogFacts(2, 2)}, frozenset(), 2))
        log compact: 1 slices, 1 logs, 9 log bytes
          p: no base file + 1 logs
    """
    operations = []
    left = 0
    for file_slice in sorted(slices, key=lambda s: (s.partition, s.file_id)):
        group = (file_slice.partition, file_slice.file_id)
        slice_facts = facts.get(group)
        if slice_facts is None or group in busy or slice_facts.is_partial:
            continue
        if slice_facts.num_blocks >= threshold and slice_facts.num_instants > 1:
            operations.append(plan_operation(file_slice, max_file_bytes))
        else:
            left += 1
    return CompactionPlan(None, tuple(operations), left, due, log=True)


def is_log_compaction_due(timeline: Timeline, threshold: int) -> bool:
    """Return whether there are enough deltacommits since the last compaction and log compaction, counted as Hudi does.

    Example:
        >>> from lakefmt.timeline.timeline import timeline_from_names
        >>> names = [f"2026010100000{n}000_2026010100000{n}500.deltacommit" for n in range(3)]
        >>> folded = ["20260101000001000.logcompaction.requested"]
        >>> [is_log_compaction_due(timeline_from_names(n, 2), 3) for n in (names, names + folded)]
        [True, False]
    """
    if any(i.action is Action.LOG_COMPACTION for i in timeline.pending):
        return False
    commits, _ = since_last_compaction(timeline)
    last = max((i.time for i in timeline.commits if _folds(timeline, i)), default="")
    return min(commits, sum(_is_delta(i) and i.order_time > last for i in timeline.commits)) >= threshold


def _is_delta(instant: Instant) -> bool:
    return instant.action is Action.DELTA_COMMIT


def _folds(timeline: Timeline, instant: Instant) -> bool:
    """Return whether a deltacommit was a log compaction, by its requested file."""
    return _is_delta(instant) and any(f.action is Action.LOG_COMPACTION for f in timeline.files_of(instant))


def find_newer_compaction(timeline: Timeline, time: InstantTime) -> Instant | None:
    """Return a compaction, pending or done, that was planned after a log compaction; None when there is none.

    Hudi gives a log compaction up then: what it merged is in a new base file, or will be, and its log would lie on top.

    Example:
        >>> from lakefmt.timeline.timeline import timeline_from_names
        >>> view = timeline_from_names(["20260101000000700.compaction.requested"], 2)
        >>> [find_newer_compaction(view, time) is None for time in ("20260101000000600", "20260101000000800")]
        [False, True]
    """
    compactions = [i for i in timeline.pending if i.action is Action.COMPACTION]
    compactions += [i for i in timeline.commits if i.action is Action.COMMIT]
    return min((i for i in compactions if i.time > time), key=lambda i: i.time, default=None)
