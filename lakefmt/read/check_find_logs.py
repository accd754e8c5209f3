"""From facts to findings: the logs of merge-on-read tables. Pure.

Three things go wrong with a log: nobody names it, bytes of it are no blocks, or it is gone. Readers pass over all three in
silence, as Hudi's do; only the commits tell that rows are not seen. None of these rows can be made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakefmt.filegroups.damage import AcceptLoss, DeleteFiles, Finding, Kind, RewriteLog, SetAside, Step
from lakefmt.filegroups.log_damage import LogLook, Standing, judge_log
from lakefmt.filegroups.model import LogFile
from lakefmt.read.check_facts import TableFacts
from lakefmt.values import InstantTime, WriteStat

__all__ = ["find_log_damage", "note_log_damage"]

_Owner = tuple[InstantTime, WriteStat | None]
_PUT_BACK = "put a good copy back, or roll its commit back while it is the newest, or accept the loss"


def find_log_damage(facts: TableFacts) -> Iterator[Finding]:
    """Yield what is wrong with logs."""
    yield from _nobody_names(facts)
    yield from _missing(facts)
    for log in facts.logs:
        look = facts.log_looks.get(log.path)
        if look is not None and log.path not in facts.lost:
            yield from _torn(facts, log, look)


def note_log_damage(facts: TableFacts) -> Iterator[Finding]:
    """Yield what is torn and nobody's: a writer died there and was undone, or somebody added bytes."""
    for log in facts.logs:
        look = facts.log_looks.get(log.path)
        if look is None or _standing(facts, log, look) not in (None, Standing.SEEN, Standing.UNDONE):
            continue
        for start, end in look.damaged:
            if look.opens and not _owners_of(facts, log, look, start):
                yield Finding(
                    Kind.CORRUPT_FILE,
                    log.path,
                    f"{_place(look, start, end)} are no block, and no completed commit wrote them",
                    "none: readers pass over them",
                    "nothing is needed; compaction leaves them behind",
                )


# ------------------------------------------------------------------------------------------------------- whose is a log


def _standing(facts: TableFacts, log: LogFile, look: LogLook) -> Standing | None:
    """Return what a log is that no commit names; None when one does."""
    if log.path in facts.log_owners:
        return None
    pending = {instant.time for instant in (*facts.before.pending, *facts.after.pending)}
    living = {time for time, life in facts.alive.items() if life.alive}
    looks = facts.looks_by_group.get((log.partition, log.file_id), {})
    undone = {time for other in looks.values() for time in other.targets}
    return judge_log(
        log,
        look,
        facts.after,
        is_taken=lambda time: time in pending or time in living or facts.before.is_committed(time),
        # A commit that cannot be read may name a log that does not tell whose it is.
        is_busy=bool(pending or living or facts.unreadable),
        undone=undone,
    )


def _nobody_names(facts: TableFacts) -> Iterator[Finding]:
    for log in facts.logs:
        look = facts.log_looks.get(log.path)
        standing = None if look is None else _standing(facts, log, look)
        if look is None or standing is None or log.path in facts.lost:
            continue
        if standing is Standing.UNSEEN:
            yield _orphan(facts, log, look)
        elif standing is Standing.SEEN and (unnamed := sorted(look.writers & facts.commits.keys())):
            loses = f"the rows of {log.path} that no commit names"
            yield Finding(
                Kind.STRAY_FILE,
                log.path,
                f"commit {', '.join(unnamed)} does not name it",
                "readers that list directories see its rows all the same",
                "move it out of the partition",
                (SetAside(log.path, "", loses),),
            )


def _orphan(facts: TableFacts, log: LogFile, look: LogLook) -> Finding:
    if facts.after.layout > 1 and not facts.after.is_committed(log.instant):
        why = f"instant {log.instant} is not on the timeline"
    elif look.writers:
        why = f"deltacommit {', '.join(sorted(look.writers))} is not on the timeline"
    else:
        why = "no commit names it, and it holds no whole block"
    consequence = "it takes room; no reader sees it"
    return Finding(Kind.ORPHAN_FILE, log.path, why, consequence, "delete it", (DeleteFiles((log.path,)),))


# ------------------------------------------------------------------------------------------------------- what is not there


def _missing(facts: TableFacts) -> Iterator[Finding]:
    for path, log in facts.missing_logs.items():
        owners: list[_Owner] = [*facts.log_owners[path]]
        yield Finding(
            Kind.MISSING_FILE,
            path,
            f"deltacommit {_times(owners)} names it and it is not there; no clean removed it",
            _consequence(facts, log, owners),
            _PUT_BACK,
            (AcceptLoss((path,), loses=_loss(facts, log, owners)),),
        )


def _torn(facts: TableFacts, log: LogFile, look: LogLook) -> Iterator[Finding]:
    if look.problem:
        standing = _standing(facts, log, look)
        if standing in (None, Standing.SEEN):
            yield Finding(
                Kind.CORRUPT_FILE,
                log.path,
                look.problem,
                "reads and writes that need it fail",
                "put a good copy back; if another engine wrote it so, read it with that one",
            )
        return
    if _standing(facts, log, look) not in (None, Standing.SEEN):
        return
    hit: list[_Owner] = []
    said = []
    for start, end in look.damaged:
        owners = _owners_of(facts, log, look, start)
        if owners or not look.opens:
            said.append(f"{_place(look, start, end)} are no block")
            hit += [owner for owner in owners if owner not in hit]
    bad = [(start, time, why) for start, time, why in look.unreadable if facts.after.is_committed(time)]
    for start, time, why in bad:
        said.append(f"the block at byte {start:,} cannot be read ({why})")
        named: list[_Owner] = [owner for owner in facts.log_owners.get(log.path, ()) if owner[0] == time]
        hit += [owner for owner in named or [(time, None)] if owner not in hit]
    for time, stat in facts.log_owners.get(log.path, ()):
        end = _end(stat)
        if look.size < end:
            said.append(f"the file ends at byte {look.size:,}, and commit {time} wrote up to byte {end:,}")
            hit += [(time, stat)] if (time, stat) not in hit else []
    if said:
        yield _torn_finding(facts, log, look, said, hit, tuple(start for start, _, _ in bad))


def _torn_finding(
    facts: TableFacts,
    log: LogFile,
    look: LogLook,
    said: Sequence[str],
    owners: Sequence[_Owner],
    unreadable: tuple[int, ...],
) -> Finding:
    of = f"of commit {_times(owners)}: " if owners else ""
    steps: list[Step] = []
    consequence = _consequence(facts, log, owners)
    if not look.opens or unreadable:
        loses = f"the damaged bytes of {log.path} in their place; a copy is kept"
        steps.append(RewriteLog(log.path, loses, unreadable, look.size))
        who = "reads and writes that need it fail" if unreadable else "engines other than lakefmt refuse the file"
        consequence = who if unreadable else f"{consequence}; {who}"
    if owners:
        steps.append(AcceptLoss((log.path,), loses=_loss(facts, log, owners)))
    return Finding(Kind.CORRUPT_FILE, log.path, of + "; ".join(said), consequence, _PUT_BACK, tuple(steps))


def _owners_of(facts: TableFacts, log: LogFile, look: LogLook, start: int) -> list[_Owner]:
    """Return the completed commit that wrote the byte at `start`; none when nobody did that anybody knows."""
    known = sorted(facts.log_owners.get(log.path, ()), key=lambda owner: owner[1].log_offset or 0)
    before = [owner for owner in known if (owner[1].log_offset or 0) <= start]
    if before:
        time, stat = before[-1]
        return [(time, stat)] if not stat.file_size_in_bytes or start < _end(stat) else []
    if known:
        return [known[0]]  # appended to what an older commit wrote, which is archived: said of the oldest that is known
    # In layout 2 the name tells whose it is, archived or not.
    return [(log.instant, None)] if facts.after.layout > 1 and facts.after.is_committed(log.instant) else []


def _end(stat: WriteStat) -> int:
    return (stat.log_offset or 0) + stat.file_size_in_bytes


# --------------------------------------------------------------------------------------------------------------- words


def _place(look: LogLook, start: int, end: int) -> str:
    return f"bytes {start:,} to {end:,}" + (", where the file ends," if end == look.size else "")


def _times(owners: Sequence[_Owner]) -> str:
    return ", ".join(dict.fromkeys(time for time, _ in owners))


def _changes(owners: Sequence[_Owner]) -> str:
    stats = [stat for _, stat in owners if stat is not None]
    if not stats:
        return "changes"
    rows, deletes = sum(s.num_writes for s in stats), sum(s.num_deletes for s in stats)
    return f"up to {rows:,} rows and {deletes:,} deletes"


def _is_needed(facts: TableFacts, log: LogFile, owners: Sequence[_Owner]) -> bool:
    """Return whether the newest snapshot is read from a log, and no log compaction stands for it."""
    looks = facts.looks_by_group.get((log.partition, log.file_id), {})
    folded = {time for path, other in looks.items() if path != log.path for time in other.stands_for}
    return log.path in facts.latest_logs and not (owners and all(time in folded for time, _ in owners))


def _consequence(facts: TableFacts, log: LogFile, owners: Sequence[_Owner]) -> str:
    if not owners:
        return "its bytes are nobody's"
    if _is_needed(facts, log, owners):
        return f"{_changes(owners)} of it are silently not seen"
    return f"the table as of {_times(owners)} is read without {_changes(owners)}; the newest snapshot is whole"


def _loss(facts: TableFacts, log: LogFile, owners: Sequence[_Owner]) -> str:
    if _is_needed(facts, log, owners):
        return f"{_changes(owners)} of commit {_times(owners)} in {log.path}, unless a good copy is put back"
    return f"the table as of {_times(owners)}, unless a good copy of {log.path} is put back"
