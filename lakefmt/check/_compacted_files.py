"""Base files of compactions that are gone, and whether readers miss a row (effects: reads plans).

A compaction writes the rows of a base file and its logs as one new base file. As long as the files that it merged are
there, readers without the new file take the old ones, with the logs that came later: they see every row.
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
    """Return the base files that are gone without a row missing: all that they were made of is there.

    Where no newer base file stands in its place, the newest slice has to consist of it.

    Args:
        client: the table, without caches.
        now: the timeline after files were listed.
        facts: what is known so far.
    """
    commits = {file.instant for file in facts.missing.values()}
    compactions = {t for t in commits if t in facts.commits and facts.commits[t].operation is WriteOperation.COMPACT}
    if not compactions:
        return frozenset()
    timeline = facts.before if facts.slicing is None else facts.slicing
    slices = build_slices(facts.bases, facts.logs, timeline, facts.replaced)
    newest = {(file_slice.partition, file_slice.file_id): file_slice for file_slice in slices}
    present = facts.present | {log.path for log in facts.logs}
    found = set()
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
                found.add(path)
    return frozenset(found)


def _plan_of(client: TableClient, now: TableState, time: InstantTime) -> CompactionPlan | None:
    """Return the plan of a completed compaction; None when it is archived or cannot be read."""
    completed = next((instant for instant in now.timeline.commits if instant.time == time), None)
    files: tuple[Instant, ...] = () if completed is None else tuple(now.timeline.files_of(completed))
    requested = next((f for f in files if f.action is Action.COMPACTION and f.state is State.REQUESTED), None)
    if requested is None:
        return None
    try:
        return read_plan_of(client, now.config, requested)
    except LakefmtError:
        return None
