"""Decide whether readers lose rows by missing base files of compactions (effects: reads plans).

A compaction merges a base file and its logs into a new base file. While the sources exist, readers
without the new file use the old files and later logs and see all rows.
"""

from __future__ import annotations

from lakefmt.check._facts import TableFacts
from lakefmt.compaction.compact.pending import read_plan_of
from lakefmt.compaction.compact.plan import CompactionPlan
from lakefmt.errors import LakefmtError
from lakefmt.filegroups.model import build_slices
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.values import InstantTime, WriteOperation

__all__ = ["find_spare_files"]


def find_spare_files(client: TableClient, now: TableState, facts: TableFacts) -> frozenset[str]:
    """Return the missing base files whose sources all exist, so that no row is missing.

    Without a newer base file, the newest slice must consist of these sources.

    Args:
        client: the table client, without caches.
        now: the timeline read after the listing.
        facts: the facts so far.
    """
    commits = {file.instant for file in facts.missing.values()}
    compactions = {t for t in commits if t in facts.commits and facts.commits[t].operation is WriteOperation.COMPACT}
    if not compactions:
        return frozenset()
    timeline = facts.before if facts.slicing is None else facts.slicing
    slices = build_slices(facts.bases, facts.logs, timeline, facts.replaced)
    newest = {(file_slice.partition, file_slice.file_id): file_slice for file_slice in slices}
    present = facts.present | {log.path for log in facts.logs}
    spare = set()
    for time in compactions:
        plan = _plan_of(client, now, time)
        merged = {(o.partition, o.file_id): o.paths for o in (() if plan is None else plan.operations)}
        for path, file in facts.missing.items():
            group = (file.partition, file.file_id)
            if file.instant != time or group not in merged or not present.issuperset(merged[group]):
                continue
            file_slice = newest.get(group)
            is_behind = file_slice is not None and file_slice.base is not None and file_slice.base.instant > time
            if is_behind or (file_slice is not None and set(file_slice.paths).issuperset(merged[group])):
                spare.add(path)
    return frozenset(spare)


def _plan_of(client: TableClient, now: TableState, time: InstantTime) -> CompactionPlan | None:
    """Return the plan of a completed compaction; None if it is archived or damaged."""
    completed = next((instant for instant in now.timeline.commits if instant.time == time), None)
    files: tuple[Instant, ...] = () if completed is None else tuple(now.timeline.files_of(completed))
    requested = next((f for f in files if f.action is Action.COMPACTION and f.state is State.REQUESTED), None)
    if requested is None:
        return None
    try:
        return read_plan_of(client, now.config, requested)
    except LakefmtError:
        return None
