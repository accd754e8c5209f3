"""Looking at the logs of a merge-on-read table for a check (effects: reads only): their blocks, not their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from lakefmt.errors import LakefmtError, SnapshotExpired
from lakefmt.filegroups.access import TableAccess, TableState
from lakefmt.filegroups.log_damage import LogLook
from lakefmt.filegroups.log_rows import find_unreadable_blocks, read_log_look
from lakefmt.filegroups.model import LogFile
from lakefmt.read.check_facts import TableFacts
from lakefmt.storage.failures import raise_if_transient
from lakefmt.timeline.instant import COMMIT_ACTIONS
from lakefmt.values import InstantTime, WriteStat

__all__ = ["with_logs"]

Run = Callable[..., Iterable[tuple[str, LogLook | None]]]


def with_logs(access: TableAccess, now: TableState, facts: TableFacts, level: str, run: Run) -> TableFacts:
    """Return the facts with what the logs' blocks tell.

    A fast check looks at the logs of the newest slices and at those that no commit names; a full one at all, and into
    the keys of the newest.

    Args:
        access: the table, without caches.
        now: the timeline after files were listed.
        facts: what is known so far, log files' names among it.
        level: ``"fast"`` or ``"full"``.
        run: maps a function over values, side by side.
    """
    unnamed = [log for log in facts.logs if log.path not in facts.log_owners]
    # Command blocks, which say what became of a log, may stand in any log of its group.
    groups = {(log.partition, log.file_id) for log in unnamed}
    wanted = [
        log
        for log in facts.logs
        if level == "full" or log.path in facts.latest_logs or (log.partition, log.file_id) in groups
    ]
    reads = facts.latest_logs if level == "full" else frozenset()
    found = run(lambda log: (log.path, _look(access, log, contents=log.path in reads)), wanted)
    looks = {path: look for path, look in found if look is not None}
    facts = replace(facts, log_looks=looks)
    doubtful = {log.path for log in unnamed if log.path in looks and _needs_archive(looks[log.path])}
    if not doubtful:
        return facts
    return replace(facts, archived_owners=_archived_owners(access, now, doubtful))


def _needs_archive(look: LogLook) -> bool:
    """Return whether only its commit could tell whose a log is."""
    return bool(look.damaged) or not (look.writers or look.targets)


def _look(access: TableAccess, log: LogFile, *, contents: bool) -> LogLook | None:
    """Return what a log's blocks tell; None when it was removed meanwhile."""
    try:
        look = read_log_look(access.store, log)
        if not contents or look.problem:
            return look
        return replace(look, unreadable=find_unreadable_blocks(access.store, log))
    except SnapshotExpired:
        return None
    except LakefmtError as error:
        raise_if_transient(error)
        return LogLook(log.size, problem=str(error))


def _archived_owners(
    access: TableAccess, now: TableState, paths: set[str]
) -> Mapping[str, Sequence[tuple[InstantTime, WriteStat]]]:
    known = access.with_history(now)
    owners: dict[str, list[tuple[InstantTime, WriteStat]]] = {}
    for instant in known.timeline.archived:
        if instant.action not in COMMIT_ACTIONS:
            continue
        for stat in access.commit_metadata(known, instant).stats:
            if stat.path in paths:
                owners.setdefault(stat.path, []).append((instant.time, stat))
    return owners
