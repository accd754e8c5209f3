"""From facts to findings: one small rule per kind of damage. Pure.

What belongs to a writer that may be alive is no damage. A remedy that gives something up says what.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from lakefmt.filegroups.damage import (
    AcceptLoss,
    CorrectCounts,
    DeleteFiles,
    Finding,
    Kind,
    MarkPartition,
    RestoreNotes,
    RestoreProperties,
    RewriteFile,
    SetAside,
    Step,
    SweepTemporary,
    UndoWrites,
)
from lakefmt.filegroups.model import BaseFile
from lakefmt.read.check_facts import FooterFacts, PropertiesFacts, TableFacts
from lakefmt.read.check_find_keys import find_duplicate_keys, find_key_damage
from lakefmt.read.check_find_logs import find_log_damage, note_log_damage
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.values import InstantTime, WriteStat

__all__ = ["find_damage", "find_notes", "find_property_damage"]

_PROPERTIES = ".hoodie/hoodie.properties"
_BACKUP = f"{_PROPERTIES}.backup"
_NOTES = ".hoodie/.lakefmt/table.json"
#: Pending services that the engine which planned them takes up again; a requested one waits and is not stuck.
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
        _files_nobody_names(facts),
        _partition_metadata(facts),
        _missing(facts),
        _corrupt(facts),
        _counts(facts),
        find_log_damage(facts),
        find_key_damage(facts),
    )
    return [*find_property_damage(facts.properties), *chain.from_iterable(rules)]


def find_notes(facts: TableFacts) -> list[Finding]:
    """Return what may be meant, and is worth knowing."""
    return [*find_duplicate_keys(facts, allowed=True), *note_log_damage(facts)]


# ---------------------------------------------------------------------------------------------------------- properties


def find_property_damage(properties: PropertiesFacts) -> list[Finding]:
    """Return what is wrong with the table's properties."""
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
        kept = facts.notes.index
        loses = "" if kept else "which index the table uses: bloom is written, wrong for a table with a global index"
        yield Finding(
            Kind.NOTES,
            _NOTES,
            facts.notes.problem,
            "writes are refused, because they could not tell where keys live",
            "write it anew; a copy is kept",
            (RestoreNotes(kept or "bloom", loses),),
        )


# ------------------------------------------------------------------------------------------------------------ timeline


def _instants(facts: TableFacts) -> Iterator[Finding]:
    for instant, problem in facts.unreadable.items():
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


def _harm(instant: Instant, is_ours: bool) -> str:
    if is_ours:
        return "its files take room until the next write"
    return "what it was to remove takes room" if instant.action is Action.CLEAN else "writes beside it may be refused"


def _way_out(instant: Instant, is_ours: bool) -> str:
    if instant.action is Action.CLEAN:
        return "clean the table: the next clean finishes this one"
    if not is_ours:
        return "finish it with the engine that made it"
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


def _files_nobody_names(facts: TableFacts) -> Iterator[Finding]:
    pending = {instant.time for instant in (*facts.before.pending, *facts.after.pending)}
    seen = {piece.base.path for piece in facts.latest if piece.base is not None}
    for file in facts.bases:
        if file.path in facts.stats or file.instant in pending or _lives(facts, file.instant):
            continue
        if not (facts.before.is_committed(file.instant) or facts.after.is_committed(file.instant)):
            yield _orphan(file.path, f"instant {file.instant} is not on the timeline")
        elif file.instant in facts.commits and file.path in seen:
            yield _stray(facts, file)
        elif file.instant in facts.commits and any(
            other.file_id == file.file_id and other.partition == file.partition and other.instant == file.instant
            for other in facts.bases
            if other.write_token > file.write_token
        ):
            yield _orphan(file.path, f"commit {file.instant} does not name it, and a later attempt stands before it")


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
        # Engines differ in which of the two they read, and some refuse to.
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
    """Return the newest file of a group that commits name and that can be read, `file` apart."""
    group = [f for f in facts.bases if (f.partition, f.file_id) == (file.partition, file.file_id) and f != file]
    known = [
        f
        for f in group
        if facts.before.is_committed(f.instant)
        and f.instant <= file.instant
        and (f.path in facts.stats or f.instant not in facts.commits)
        and not facts.footers.get(f.path, FooterFacts()).problem
        and f.path not in facts.key_problems
    ]
    return max(known, key=lambda f: (f.instant, f.write_token), default=None)


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
    """Return the newest instant that each group has a file of, there or named."""
    found: dict[tuple[str, str], InstantTime] = {}
    committed = [file for file in facts.bases if facts.before.is_committed(file.instant)]
    for file in (*facts.expected.values(), *committed):
        group = (file.partition, file.file_id)
        found[group] = max(found.get(group, file.instant), file.instant)
    return found


def _corrupt(facts: TableFacts) -> Iterator[Finding]:
    latest = {piece.base.path for piece in facts.latest if piece.base is not None}
    problems = {path: footer.problem for path, footer in facts.footers.items() if footer.problem}
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
        said = ", ".join(f"{name} {had:,} where {true:,} is right" for name, (had, true) in wrong.items())
        truth = {name: true for name, (_, true) in wrong.items() if true >= 0}
        yield Finding(
            Kind.COUNTS,
            path,
            f"{by_time[time].file_name} says {said}",
            "statistics and file sizing are wrong; engines that trust the size read past the end or too little",
            "write the commit's numbers anew; a copy is kept",
            (CorrectCounts(by_time[time], {path: truth}, _doubt(stat, sizes[path], footer)),),
        )


def _wrong_counts(stat: WriteStat, size: int, footer: FooterFacts) -> dict[str, tuple[int, int]]:
    """Return statistic → (what the commit says, what is true)."""
    pairs: dict[str, tuple[int, int]] = {}
    if stat.file_size_in_bytes:
        pairs["fileSizeInBytes"] = (stat.file_size_in_bytes, size)
    if stat.file_size_in_bytes and stat.file_size_in_bytes != size and stat.total_write_bytes:
        pairs["totalWriteBytes"] = (stat.total_write_bytes, size)
    if footer.rows >= 0:
        pairs["numWrites"] = (stat.num_writes, footer.rows)
        is_new = stat.prev_commit == "null"
        if footer.stat is not None:
            ours = (("numInserts", "inserts"), ("numUpdateWrites", "updates"), ("numDeletes", "deletes"))
            had = (stat.num_inserts, stat.num_update_writes, stat.num_deletes)
            pairs |= {
                name: (h, footer.stat[key]) for (name, key), h in zip(ours, had, strict=True) if key in footer.stat
            }
        elif stat.num_inserts + stat.num_update_writes > footer.rows:
            # Of a file by another engine only that of a new group is known: every row was inserted.
            inserts = footer.rows if is_new else min(stat.num_inserts, footer.rows)
            pairs["numInserts"] = (stat.num_inserts, inserts)
            pairs["numUpdateWrites"] = (stat.num_update_writes, footer.rows - inserts)
    return {name: (had, true) for name, (had, true) in pairs.items() if had != true}


def _doubt(stat: WriteStat, size: int, footer: FooterFacts) -> str:
    """Return what would be lost for good if it is the file that is wrong, not the commit."""
    own = footer.stat is not None and footer.stat.get("rows") == footer.rows
    if own or stat.file_size_in_bytes in (0, size) or footer.rows < 0 or footer.rows >= stat.num_writes:
        return ""
    return f"the sign that {stat.num_writes - footer.rows:,} rows were cut from {stat.path}"
