"""The rules of a check: findings from facts. Pure.

Files of a writer that may be alive are not damage. A remedy that loses something says so.

Key rules compare footers, filters, ranges, meta columns, record keys and partitions, and find
duplicates.

Log rules find three kinds of damage: a log without a commit, bytes outside of blocks, and a missing
log. Readers ignore all three, as Hudi's do; only commits show that rows are missing. Their rows
cannot be restored.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice, takewhile

from lakefmt._core.check._collect_keys import DuplicateKeys, KeyFacts
from lakefmt._core.check.findings import (
    AcceptLoss,
    CorrectCounts,
    DeleteFiles,
    Finding,
    FooterFacts,
    Kind,
    MarkPartition,
    PropertiesFacts,
    RestoreNotes,
    RestoreProperties,
    RewriteFile,
    RewriteLog,
    SetAside,
    Step,
    SweepTemporary,
    TableFacts,
    UndoWrites,
)
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.log_reader import LogInspection, Standing, inspect_log
from lakefmt._core.filegroups.model import BaseFile, LogFile, join_path
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.markers import SAVED_WRITES
from lakefmt._core.values import InstantTime, WriteStat

__all__ = [
    "find_damage",
    "find_notes",
    "find_property_damage",
]


_Owner = tuple[InstantTime, WriteStat | None]
_PUT_BACK = "put a good copy back, or roll its commit back while it is the newest, or accept the loss"


def _find_log_damage(facts: TableFacts) -> Iterator[Finding]:
    """Yield findings about logs."""
    yield from _find_unreferenced_logs(facts)
    yield from _missing_log(facts)
    for log in facts.logs:
        look = facts.log_looks.get(log.path)
        if look is not None and log.path not in facts.lost:
            yield from _torn(facts, log, look)


def _note_log_damage(facts: TableFacts) -> Iterator[Finding]:
    """Yield torn blocks without an owner: a writer crashed and was rolled back, or bytes were appended."""
    for log in facts.logs:
        look = facts.log_looks.get(log.path)
        if look is None or _standing(facts, log, look) not in (None, Standing.SEEN, Standing.UNDONE):
            continue
        for start, end in look.damaged:
            if look.opens and not _owners_of(facts, log, look, start):
                yield Finding(
                    Kind.CORRUPT_FILE,
                    log.path,
                    f"{_byte_range(look, start, end)} are no block, and no completed commit wrote them",
                    "none: readers pass over them",
                    "nothing is needed; compaction leaves them behind",
                )


# ------------------------------------------------------------------------------------------------------- whose is a log


def _standing(facts: TableFacts, log: LogFile, look: LogInspection) -> Standing | None:
    """Return the state of a log that no commit names; None if one does."""
    if log.path in facts.log_owners:
        return None
    pending, living = facts.pending_times, facts.living
    undone = facts.targets_of.get((log.partition, log.file_id), frozenset())
    return inspect_log(
        log,
        look,
        facts.after,
        is_taken=lambda time: time in pending or time in living or facts.before.is_committed(time),
        # An unreadable commit may name a log whose blocks do not tell its writer.
        is_busy=bool(pending or living or facts.unreadable),
        undone=undone,
    )


def _find_unreferenced_logs(facts: TableFacts) -> Iterator[Finding]:
    for log in facts.logs:
        look = facts.log_looks.get(log.path)
        standing = None if look is None else _standing(facts, log, look)
        if look is None or standing is None or log.path in facts.lost:
            continue
        if standing is Standing.UNSEEN:
            yield _orphan_log(facts, log, look)
        elif standing is Standing.SEEN and (late := sorted(t for t in look.writers if _is_on_no_timeline(facts, t))):
            yield _late(log.path, *late)
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


def _orphan_log(facts: TableFacts, log: LogFile, look: LogInspection) -> Finding:
    if facts.after.layout > 1 and not facts.after.is_committed(log.instant):
        why = f"instant {log.instant} is not on the timeline"
    elif look.writers:
        why = f"deltacommit {', '.join(sorted(look.writers))} is not on the timeline"
    else:
        why = "no commit names it, and it holds no whole block"
    consequence = "it takes room; no reader sees it"
    return Finding(Kind.ORPHAN_FILE, log.path, why, consequence, "delete it", (DeleteFiles((log.path,)),))


# ------------------------------------------------------------------------------------------------------- what is not there


def _missing_log(facts: TableFacts) -> Iterator[Finding]:
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


def _torn(facts: TableFacts, log: LogFile, look: LogInspection) -> Iterator[Finding]:
    if look.problem == look.unknown != "":
        return  # the report says that it was not looked at
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
    facts_text = []
    for start, end in look.damaged:
        owners = _owners_of(facts, log, look, start)
        if owners or not look.opens:
            facts_text.append(f"{_byte_range(look, start, end)} are no block")
            hit += [owner for owner in owners if owner not in hit]
    bad = [(start, time, why) for start, time, why in look.unreadable if facts.after.is_committed(time)]
    for start, time, why in bad:
        facts_text.append(f"the block at byte {start:,} cannot be read ({why})")
        log_owners: list[_Owner] = [owner for owner in facts.log_owners.get(log.path, ()) if owner[0] == time]
        hit += [owner for owner in log_owners or [(time, None)] if owner not in hit]
    for time, stat in facts.log_owners.get(log.path, ()):
        end = _end(stat)
        if look.size < end:
            facts_text.append(f"the file ends at byte {look.size:,}, and commit {time} wrote up to byte {end:,}")
            hit += [(time, stat)] if (time, stat) not in hit else []
    if facts_text:
        yield _torn_finding(facts, log, look, facts_text, hit, tuple(start for start, _, _ in bad))


def _torn_finding(
    facts: TableFacts,
    log: LogFile,
    look: LogInspection,
    facts_text: Sequence[str],
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
    return Finding(Kind.CORRUPT_FILE, log.path, of + "; ".join(facts_text), consequence, _PUT_BACK, tuple(steps))


def _owners_of(facts: TableFacts, log: LogFile, look: LogInspection, start: int) -> list[_Owner]:
    """Return the completed commit that wrote the byte at `start`; empty if unknown."""
    owners = sorted(facts.log_owners.get(log.path, ()), key=lambda owner: owner[1].log_offset or 0)
    before = [owner for owner in owners if (owner[1].log_offset or 0) <= start]
    if before:
        time, stat = before[-1]
        return [(time, stat)] if not stat.file_size_in_bytes or start < _end(stat) else []
    if owners:
        return [owners[0]]  # appended to a file of an archived commit: reported for the oldest known one
    # In layout 2 the name has the instant, archived or not.
    return [(log.instant, None)] if facts.after.layout > 1 and facts.after.is_committed(log.instant) else []


def _end(stat: WriteStat) -> int:
    return (stat.log_offset or 0) + stat.file_size_in_bytes


# --------------------------------------------------------------------------------------------------------------- words


def _byte_range(look: LogInspection, start: int, end: int) -> str:
    return f"bytes {start:,} to {end:,}" + (", where the file ends," if end == look.size else "")


def _times(owners: Sequence[_Owner]) -> str:
    return ", ".join(dict.fromkeys(time for time, _ in owners))


def _changes_of_log(owners: Sequence[_Owner]) -> str:
    stats = [stat for _, stat in owners if stat is not None]
    if not stats:
        return "changes"
    rows, deletes = sum(s.num_writes for s in stats), sum(s.num_deletes for s in stats)
    return f"up to {rows:,} rows and {deletes:,} deletes"


def _is_needed(facts: TableFacts, log: LogFile, owners: Sequence[_Owner]) -> bool:
    """Return whether the newest snapshot needs a log and no log compaction replaces it."""
    looks = facts.looks_by_group.get((log.partition, log.file_id), {})
    folded = {time for path, other in looks.items() if path != log.path for time in other.stands_for}
    return log.path in facts.latest_logs and not (owners and all(time in folded for time, _ in owners))


def _consequence(facts: TableFacts, log: LogFile, owners: Sequence[_Owner]) -> str:
    if not owners:
        return "its bytes are nobody's"
    if _is_needed(facts, log, owners):
        return f"{_changes_of_log(owners)} of it are silently not seen"
    return f"the table as of {_times(owners)} is read without {_changes_of_log(owners)}; the newest snapshot is whole"


def _loss(facts: TableFacts, log: LogFile, owners: Sequence[_Owner]) -> str:
    if _is_needed(facts, log, owners):
        return f"{_changes_of_log(owners)} of commit {_times(owners)} in {log.path}, unless a good copy is put back"
    return f"the table as of {_times(owners)}, unless a good copy of {log.path} is put back"


def _find_key_damage(facts: TableFacts) -> Iterator[Finding]:
    """Yield findings about footers, filters, ranges, meta columns and keys."""
    merged = {(log.partition, log.file_id) for log in facts.logs if log.path in facts.latest_logs}
    for finding in chain(_footers(facts), _keys(facts), _find_duplicate_keys(facts, allowed=False)):
        yield _saying_what_is_merged(finding, merged) if merged else finding


def _saying_what_is_merged(finding: Finding, merged: Collection[tuple[str, str]]) -> Finding:
    """Return the finding; for a base file with logs its steps say that a compaction executes them."""
    steps = [
        replace(step, why=f"{step.why}; by compaction, with its logs")
        if isinstance(step, RewriteFile) and (step.source.partition, step.source.file_id) in merged
        else step
        for step in finding.steps
    ]
    return replace(finding, steps=tuple(steps))


def _footers(facts: TableFacts) -> Iterator[Finding]:
    for file in _readable(facts):
        footer = facts.footers[file.path]
        if not footer.has_meta or not facts.config.populate_meta_fields:
            continue
        absent = [] if (footer.low is not None and footer.high is not None) or not footer.rows else ["key range"]
        absent += ["key filter"] if facts.wants_filters and not footer.has_filter and not footer.filter_problem else []
        if absent:
            what, consequence = (
                f"the footer has no {' and no '.join(absent)}",
                "look-ups read its keys, or fail in Spark",
            )
            yield _rewritten(Kind.FOOTERS, file, what, consequence)
        if footer.filter_problem:
            yield _rewritten(Kind.BLOOM_FILTER, file, footer.filter_problem, "look-ups through it fail")


def _readable(facts: TableFacts) -> Iterator[BaseFile]:
    for file_slice in facts.latest:
        if file_slice.base is None or file_slice.base.path in facts.key_problems:
            continue
        if file_slice.base.path in facts.footers and not facts.footers[file_slice.base.path].problem:
            yield file_slice.base


def _rewritten(
    kind: Kind, file: BaseFile, what: str, consequence: str, *, rekey: bool = False, move: bool = False
) -> Finding:
    step = RewriteFile(file, file.path, what, rekey=rekey, move=move)
    return Finding(kind, file.path, what, consequence, "write its rows as a new slice", (step,))


def _keys(facts: TableFacts) -> Iterator[Finding]:
    # If no row matches the properties, the properties are wrong, and nothing may be rebuilt by
    # them.
    rows = sum(keys.rows for keys in facts.keys.values())
    all_keys = rows > 1 and sum(keys.wrong_keys.count for keys in facts.keys.values()) == rows
    all_places = rows > 1 and sum(keys.wrong_partition.count for keys in facts.keys.values()) == rows
    in_doubt = {kind for kind, is_all in ((Kind.RECORD_KEYS, all_keys), (Kind.WRONG_PARTITION, all_places)) if is_all}
    for file in _readable(facts):
        if file.path in facts.keys:
            yield from _keys_of(file, facts.keys[file.path], in_doubt)


def _keys_of(file: BaseFile, keys: KeyFacts, in_doubt: Collection[Kind]) -> Iterator[Finding]:
    twice = "an upsert does not find these keys and stores them a second time"
    if keys.denied:
        what = f"its filter denies {keys.denied.count:,} keys that it holds, such as {keys.denied.example!r:.80}"
        yield _rewritten(Kind.BLOOM_FILTER, file, what, twice)
    if keys.outside:
        what = f"{keys.outside.count:,} keys are outside the range in its footer, such as {keys.outside.example!r:.80}"
        yield _rewritten(Kind.KEY_RANGE, file, what, twice)
    for tally, what in (
        (keys.misnamed, "name another file"),
        (keys.misplaced, "name another partition"),
        (keys.too_new, "name a commit after the file's own"),
    ):
        if tally:
            description = f"{tally.count:,} rows {what}, such as {tally.example!r:.120}"
            yield _rewritten(Kind.META_COLUMNS, file, description, "engines that trust the meta columns go astray")
    for kind, tally, what, consequence in (
        (Kind.RECORD_KEYS, keys.wrong_keys, "have another record key than their columns make", twice),
        (Kind.WRONG_PARTITION, keys.wrong_partition, "belong into another partition", "filters miss these rows"),
    ):
        if not tally:
            continue
        description = f"{tally.count:,} rows {what}, such as {tally.example!r:.120}"
        if kind in in_doubt:
            remedy = "correct the key and partition settings of the properties: they fit no row of the table"
            yield Finding(kind, file.path, description, consequence, remedy)
        elif tally.is_mendable:
            yield _rewritten(
                kind, file, description, consequence, rekey=kind is Kind.RECORD_KEYS, move=kind is Kind.WRONG_PARTITION
            )
        else:
            yield Finding(kind, file.path, description, consequence, "correct the rows: delete and insert them anew")


def _find_duplicate_keys(facts: TableFacts, *, allowed: bool) -> Iterator[Finding]:
    """Yield duplicate keys: unexplained ones, or those that plain inserts may store."""
    for duplicate in facts.duplicates:
        if duplicate.allowed is allowed:
            key_facts = [facts.keys[file.path] for file in duplicate.files]
            yield _duplicate(duplicate, in_doubt=any(keys.wrong_keys or keys.wrong_partition for keys in key_facts))


def _duplicate(duplicate: DuplicateKeys, *, in_doubt: bool) -> Finding:
    """Return the finding; rows with a wrong key or place may not be duplicates, so these are repaired first."""
    count = sum(len(rows) for rows in duplicate.drop.values())
    loses = "" if duplicate.equal else f"{count:,} rows that lose against another one with their key"
    files = {file.path: file for file in duplicate.files}
    steps = tuple(
        RewriteFile(files[path], path, f"{len(rows):,} rows repeat a key", drop=rows, loses=loses)
        for path, rows in sorted(duplicate.drop.items())
    )
    origin = "plain inserts may store a key twice" if duplicate.allowed else "no verb stores a key twice here"
    return Finding(
        Kind.DUPLICATE_KEYS,
        duplicate.scope,
        f"{duplicate.keys:,} keys come more than once, such as {duplicate.example!r:.80}, in {len(duplicate.files)} files: {origin}",
        "readers see more than one row of a key",
        "mend keys and partitions, then check again" if in_doubt else "keep the row that the table's rule prefers",
        () if duplicate.allowed or in_doubt else steps,
    )


_PROPERTIES = ".hoodie/hoodie.properties"
_BACKUP = f"{_PROPERTIES}.backup"
_NOTES = ".hoodie/.lakefmt/table.json"
#: Pending services that the planning engine resumes; a requested one waits and is not stuck.
_RESUMED = frozenset(
    {
        Action.COMPACTION,
        Action.LOG_COMPACTION,
        Action.CLUSTERING,
        Action.CLEAN,
        Action.INDEXING,
        Action.SAVEPOINT,
    }
)


def find_damage(facts: TableFacts) -> list[Finding]:
    """Return what is wrong with a table."""
    rules = (
        _notes(facts),
        _instants(facts),
        _stuck(facts),
        _leftovers(facts),
        _find_unreferenced_files(facts),
        _partition_metadata(facts),
        _missing(facts),
        _corrupt(facts),
        _counts(facts),
        _find_log_damage(facts),
        _find_key_damage(facts),
    )
    return [*find_property_damage(facts.properties), *chain.from_iterable(rules)]


def find_notes(facts: TableFacts) -> list[Finding]:
    """Return what may be intended and is worth knowing."""
    return [*_find_duplicate_keys(facts, allowed=True), *_note_log_damage(facts)]


# ---------------------------------------------------------------------------------------------------------- properties


def find_property_damage(properties: PropertiesFacts) -> list[Finding]:
    """Return what is wrong with the table properties."""
    if properties.problem:
        return [_bad_properties(properties)]
    if properties.backup is None:
        return []
    return [
        Finding(
            Kind.LEFT_BACKUP,
            _BACKUP,
            "an update of the properties died after it was done",
            "none, as long as the properties are whole",
            "remove it",
            (RestoreProperties(from_backup=True),),
        )
    ]


def _bad_properties(properties: PropertiesFacts) -> Finding:
    if properties.backup == "":
        return Finding(
            Kind.PROPERTIES,
            _PROPERTIES,
            properties.problem,
            "readers fall back to the backup, engines without that rule fail",
            "put the backup in its place",
            (RestoreProperties(from_backup=True),),
        )
    loses = "the sign that a line may be missing: compare the properties with what the table should have"
    steps = (RestoreProperties(from_backup=False, loses=loses),) if properties.checksum_only else ()
    remedy = "write the checksum anew" if steps else "put back a good copy; there is none to restore from"
    return Finding(Kind.PROPERTIES, _PROPERTIES, properties.problem, "no engine opens the table", remedy, steps)


def _notes(facts: TableFacts) -> Iterator[Finding]:
    if facts.notes.problem:
        index = facts.notes.index
        loses = "" if index else "which index the table uses: bloom is written, wrong for a table with a global index"
        yield Finding(
            Kind.NOTES,
            _NOTES,
            facts.notes.problem,
            "writes are refused, because they could not tell where keys live",
            "write it anew; a copy is kept",
            (RestoreNotes(index or "bloom", loses),),
        )


# ------------------------------------------------------------------------------------------------------------ timeline


def _instants(facts: TableFacts) -> Iterator[Finding]:
    for instant, problem in facts.unreadable.items():
        if instant.file_name in facts.unknown:
            continue
        yield Finding(
            Kind.CORRUPT_INSTANT,
            f"{facts.config.timeline_directory}/{instant.file_name}",
            problem,
            "reads and writes that need this commit fail",
            "put back a good copy of the file",
        )


def _stuck(facts: TableFacts) -> Iterator[Finding]:
    for instant in facts.after.pending:
        if instant.time in facts.were_complete:
            yield _missing_completion(facts, instant)
            continue
        is_service = instant.action in _RESUMED or instant.time in facts.planned
        if (is_service and instant.state is State.REQUESTED) or _lives(facts, instant.time):
            continue
        is_ours = not is_service or instant.action is Action.SAVEPOINT
        steps: tuple[Step, ...] = (UndoWrites((instant.time,)),) if is_ours else ()
        yield Finding(
            Kind.STUCK_INSTANT,
            f"{facts.config.timeline_directory}/{instant.file_name}",
            f"a {instant.action.value} is {instant.state.value} and its writer is dead: {facts.alive[instant.time].reason}",
            _harm(instant, bool(steps)),
            _way_out(instant, bool(steps)),
            steps,
        )


def _missing_completion(facts: TableFacts, instant: Instant) -> Finding:
    loses = f"what {instant.action.value} {instant.time} did, unless its completed file is put back"
    return Finding(
        Kind.MISSING_COMPLETION,
        f"{facts.config.timeline_directory}/{instant.file_name}",
        f"the {instant.action.value} was complete, and its completed file is gone: its files are there, and its writer has "
        "removed its claim and its markers, as writers do after they complete",
        "what it did is not read, and lakefmt refuses to write; other engines roll it back",
        "put the completed file back, or accept the loss",
        (UndoWrites((instant.time,), loses),),
    )


#: Who finishes a service whose process died, and who withdraws it.
_FINISHERS = {
    Action.CLEAN: "clean the table: the next clean finishes this one",
    Action.COMPACTION: "compact the table (table.compact(), `lakefmt compact`): this one is finished first; abandon= withdraws it",
    Action.LOG_COMPACTION: "compact the logs (table.compact(log=True), `lakefmt compact --log`): this one is finished first; abandon= withdraws it",
    Action.CLUSTERING: "cluster the table (table.cluster(), `lakefmt cluster`): this one is finished first; abandon= withdraws it",
    Action.REPLACE_COMMIT: "cluster the table (table.cluster(), `lakefmt cluster`): this one is finished first; abandon= withdraws it",
    Action.INDEXING: "run the indexing again (`lakefmt index run`), or drop the index",
}


def _harm(instant: Instant, is_ours: bool) -> str:
    if is_ours:
        return "its files take room until the next write"
    if instant.action is Action.CLEAN:
        return "what it was to remove takes room"
    if instant.action in (Action.COMPACTION, Action.LOG_COMPACTION):
        return "its file groups are not merged, and their logs grow"
    return "writes of the same rows may be refused"


def _way_out(instant: Instant, is_ours: bool) -> str:
    if not is_ours:
        return _FINISHERS.get(instant.action, "finish it with the engine that made it")
    if instant.action in (Action.ROLLBACK, Action.RESTORE):
        return f"finish the {instant.action.value}"
    return "roll it back"


def _lives(facts: TableFacts, time: InstantTime) -> bool:
    life = facts.alive.get(time)
    return life is not None and life.alive


def _leftovers(facts: TableFacts) -> Iterator[Finding]:
    pending = {instant.time for instant in facts.after.pending}
    for times, kind, directory in (
        (facts.marked, Kind.ORPHAN_MARKERS, ".hoodie/.temp"),
        (facts.claims, Kind.ORPHAN_HEARTBEAT, ".hoodie/.heartbeat"),
        (facts.saved, Kind.ORPHAN_SAVED_WRITE, SAVED_WRITES),
    ):
        for time in sorted(times - pending):
            if not _lives(facts, time):
                yield Finding(
                    kind,
                    f"{directory}/{time}",
                    f"no pending instant has it: {facts.alive[time].reason}",
                    "it takes room until the next write",
                    "remove it",
                    (UndoWrites(),),
                )
    for name in facts.temporaries:
        yield Finding(
            Kind.ORPHAN_TEMPORARY,
            name,
            "a process died while it wrote this file",
            "it takes room; no reader sees it",
            "remove it",
            (SweepTemporary(),),
        )


# --------------------------------------------------------------------------------------------------- files and their names


def _find_unreferenced_files(facts: TableFacts) -> Iterator[Finding]:
    pending = facts.pending_times
    visible_paths = {file_slice.base.path for file_slice in facts.latest if file_slice.base is not None}
    for file in facts.bases:
        if file.path in facts.stats or file.instant in pending or _lives(facts, file.instant):
            continue
        if not (facts.before.is_committed(file.instant) or facts.after.is_committed(file.instant)):
            yield _orphan(file.path, f"instant {file.instant} is not on the timeline")
        elif _is_on_no_timeline(facts, file.instant):
            yield _late(file.path, file.instant, steps=() if _stands_alone(facts, file) else None)
        elif file.instant in facts.commits and file.path in visible_paths:
            yield _stray(facts, file)
        elif file.instant in facts.commits and any(
            other.instant == file.instant and other.write_token > file.write_token
            for other in facts.bases_of[file.partition, file.file_id]
        ):
            yield _orphan(file.path, f"commit {file.instant} does not name it, and a later attempt stands before it")


def _is_on_no_timeline(facts: TableFacts, time: InstantTime) -> bool:
    """Return whether an instant counts as committed by its age alone: the archive reaches back beyond it and does not have it."""
    oldest = facts.oldest_archived
    return time not in facts.known_times and oldest is not None and oldest < time < (facts.after.first_active or "")


def _stands_alone(facts: TableFacts, file: BaseFile) -> bool:
    """Return whether a clean has removed every other file of a group, so that its rows are in this one only."""
    group = (file.partition, file.file_id)
    if len(facts.bases_of[group]) > 1 or group in facts.groups_of_logs:
        return False
    names, begin = facts.sorted_removed, join_path(*group)
    after = islice(names, bisect_left(names, begin), None)
    alike = takewhile(lambda path: path.startswith(begin), after)
    return any(path.rpartition("/")[0] == file.partition for path in alike)


def _late(path: str, *times: str, steps: tuple[Step, ...] | None = None) -> Finding:
    """Return the finding of a file that a slow writer put after its instant had been undone.

    Args:
        path: the file.
        times: its instants.
        steps: the repair; None: it is moved away.
    """
    why = f"instant {', '.join(times)} is neither on the timeline nor in the archive: it was undone before this file was put"
    reads = "readers count everything older than the active timeline as committed, and read its rows"
    if steps is None:
        aside = SetAside(path, "", f"the rows of {path} that no commit names")
        return Finding(Kind.STRAY_FILE, path, why, reads, "move it out of the partition", (aside,))
    remedy = "a clean took what it replaced, so it stays: compare its rows with their source"
    return Finding(Kind.STRAY_FILE, path, why, reads, remedy, steps)


def _orphan(path: str, why: str) -> Finding:
    remedy = "delete it"
    return Finding(Kind.ORPHAN_FILE, path, why, "it takes room; no reader sees it", remedy, (DeleteFiles((path,)),))


def _stray(facts: TableFacts, file: BaseFile) -> Finding:
    loses = f"the rows of {file.path} that no commit names"
    source = _fallback(facts, file)
    step: Step
    if source is None:
        step, remedy = AcceptLoss((), ((file.partition, file.file_id),), loses), "hide its file group"
    elif source.instant == file.instant:
        # Engines differ in which of the two they read, and some refuse both.
        step, remedy = SetAside(file.path, source.path, loses), "move it out of the partition"
    else:
        step = RewriteFile(source, file.path, "a file that no commit names stands before it", loses=loses)
        remedy = "write what the commits name as a newer slice"
    return Finding(
        Kind.STRAY_FILE,
        file.path,
        f"commit {file.instant} does not name it",
        "readers that list directories see its rows all the same",
        remedy,
        (step,),
    )


def _fallback(facts: TableFacts, file: BaseFile) -> BaseFile | None:
    """Return the newest readable file of a group in commits, except `file`."""
    group = [f for f in facts.bases_of.get((file.partition, file.file_id), ()) if f != file]
    candidates = [
        f
        for f in group
        if facts.before.is_committed(f.instant)
        and f.instant <= file.instant
        and (f.path in facts.stats or f.instant not in facts.commits)
        and not facts.footers.get(f.path, FooterFacts()).problem
        and f.path not in facts.key_problems
    ]
    return max(candidates, key=lambda f: (f.instant, f.write_token), default=None)


def _partition_metadata(facts: TableFacts) -> Iterator[Finding]:
    for partition, instant in sorted(facts.misplaced_partitions.items()):
        yield Finding(
            Kind.PARTITION_METADATA,
            partition or ".",
            "the directory holds committed files and has no .hoodie_partition_metadata",
            "no reader takes it for a partition: its rows are not seen",
            "put the file back",
            (MarkPartition(partition, instant),),
        )


def _missing(facts: TableFacts) -> Iterator[Finding]:
    newest = _newest_named(facts)
    for path, file in facts.missing.items():
        group = (file.partition, file.file_id)
        is_latest = newest[group] == file.instant and group not in facts.replaced
        source = _fallback(facts, file) if is_latest else None
        time, stat = facts.stats[path]
        what, remedy = f"commit {time} names it and it is not there; no clean removed it", _LOST_REMEDY
        step: Step
        if not is_latest and path in facts.spare:
            consequence = "none: the table as of then is read from the older slice and its logs"
            step, remedy = AcceptLoss((path,)), "note that it is gone, or put the file back"
        elif not is_latest:
            consequence = f"the table as of {time} is read without its rows; the newest snapshot is whole"
            step = AcceptLoss((path,), loses=f"the table as of {time}, unless the file is put back")
        elif source is None:
            consequence = f"its {stat.num_writes:,} rows are silently missing from every read"
            step = AcceptLoss((path,), loses=f"{stat.num_writes:,} rows, unless the file is put back")
        elif path in facts.spare:
            consequence = (
                f"readers take the older slice {source.instant} and its logs, which hold every row; none is missing"
            )
            step = RewriteFile(source, source.path, f"{path} is gone, its logs are there", gives_up=(path,))
            remedy = "compact the file group, or put the file back"
        else:
            consequence = f"readers silently take the older slice {source.instant}: {_changes(stat)} are not seen"
            loses = f"{_changes(stat)} of commit {time}, unless the file is put back"
            step = RewriteFile(source, source.path, f"{path} is gone", gives_up=(path,), loses=loses)
        yield Finding(Kind.MISSING_FILE, path, what, consequence, remedy, (step,))


_LOST_REMEDY = "put the file back, or roll its commit back while it is the newest, or accept the loss"


def _changes(stat: WriteStat) -> str:
    return f"{stat.num_inserts:,} inserts, {stat.num_update_writes:,} updates, {stat.num_deletes:,} deletes"


def _newest_named(facts: TableFacts) -> dict[tuple[str, str], InstantTime]:
    """Return the newest instant of each group's files, existing or in commits."""
    newest: dict[tuple[str, str], InstantTime] = {}
    committed = [file for file in facts.bases if facts.before.is_committed(file.instant)]
    for file in (*facts.expected.values(), *committed):
        group = (file.partition, file.file_id)
        newest[group] = max(newest.get(group, file.instant), file.instant)
    return newest


def _corrupt(facts: TableFacts) -> Iterator[Finding]:
    latest = {file_slice.base.path for file_slice in facts.latest if file_slice.base is not None}
    problems = {
        path: footer.problem for path, footer in facts.footers.items() if footer.problem and not footer.is_unknown
    }
    problems |= facts.key_problems
    for file in facts.bases:
        problem = problems.get(file.path)
        if problem is None or problem == "it is gone" or (file.path in facts.lost and file.path not in latest):
            continue
        rows = facts.stats[file.path][1].num_writes if file.path in facts.stats else 0
        source = _fallback(facts, file)
        step: Step
        if file.path not in latest:
            consequence, loses = f"the table as of {file.instant} cannot be read", f"the table as of {file.instant}"
            step = AcceptLoss((file.path,), loses=f"{loses}, unless a good copy is put back")
        elif source is None:
            consequence = "reads and writes that need it fail"
            loses = f"{rows:,} rows, unless a good copy is put back"
            step = AcceptLoss((file.path,), ((file.partition, file.file_id),), loses)
        else:
            consequence = "reads and writes that need it fail"
            loses = f"what changed in {file.path} after {source.instant}, unless a good copy is put back"
            step = RewriteFile(source, file.path, "the newer file is damaged", gives_up=(file.path,), loses=loses)
        yield Finding(
            Kind.CORRUPT_FILE, file.path, problem, consequence, "put back a good copy, or accept the loss", (step,)
        )


# -------------------------------------------------------------------------------------------------------------- numbers


def _counts(facts: TableFacts) -> Iterator[Finding]:
    sizes = {file.path: file.size for file in facts.bases}
    by_time = {instant.time: instant for instant in facts.before.commits}
    for path, (time, stat) in facts.stats.items():
        footer = facts.footers.get(path, FooterFacts(rows=-1))
        is_known = path in sizes and time in by_time and path not in facts.lost
        if not is_known or footer.problem or path in facts.key_problems:
            continue
        wrong = _wrong_counts(stat, sizes[path], footer)
        if not wrong:
            continue
        differences = ", ".join(f"{name} {had:,} where {true:,} is right" for name, (had, true) in wrong.items())
        truth = {name: true for name, (_, true) in wrong.items() if true >= 0}
        yield Finding(
            Kind.COUNTS,
            path,
            f"{by_time[time].file_name} says {differences}",
            "statistics and file sizing are wrong; engines that trust the size read past the end or too little",
            "write the commit's numbers anew; a copy is kept",
            (CorrectCounts(by_time[time], {path: truth}, _doubt(stat, sizes[path], footer)),),
        )


def _wrong_counts(stat: WriteStat, size: int, footer: FooterFacts) -> dict[str, tuple[int, int]]:
    """Return name of the count → (stored, right)."""
    pairs: dict[str, tuple[int, int]] = {}
    if stat.file_size_in_bytes:
        pairs["fileSizeInBytes"] = (stat.file_size_in_bytes, size)
    if stat.file_size_in_bytes and stat.file_size_in_bytes != size and stat.total_write_bytes:
        pairs["totalWriteBytes"] = (stat.total_write_bytes, size)
    if footer.rows >= 0:
        pairs["numWrites"] = (stat.num_writes, footer.rows)
        is_new = stat.prev_commit == "null"
        if footer.stat is not None:
            count_names = (("numInserts", "inserts"), ("numUpdateWrites", "updates"), ("numDeletes", "deletes"))
            had = (stat.num_inserts, stat.num_update_writes, stat.num_deletes)
            pairs |= {
                name: (h, footer.stat[key])
                for (name, key), h in zip(count_names, had, strict=True)
                if key in footer.stat
            }
        elif stat.num_inserts + stat.num_update_writes > footer.rows + stat.num_deletes:
            # Flink counts a row that a changelog deletes as updated, too. For another engine's file only a new group is certain: every
            # row was inserted.
            inserts = footer.rows if is_new else min(stat.num_inserts, footer.rows)
            pairs["numInserts"] = (stat.num_inserts, inserts)
            pairs["numUpdateWrites"] = (stat.num_update_writes, footer.rows - inserts)
    return {name: (had, true) for name, (had, true) in pairs.items() if had != true}


def _doubt(stat: WriteStat, size: int, footer: FooterFacts) -> str:
    """Return what would be lost if the file is wrong and not the commit."""
    is_certified = footer.stat is not None and footer.stat.get("rows") == footer.rows
    if is_certified or stat.file_size_in_bytes in (0, size) or footer.rows < 0 or footer.rows >= stat.num_writes:
        return ""
    return f"the sign that {stat.num_writes - footer.rows:,} rows were cut from {stat.path}"
