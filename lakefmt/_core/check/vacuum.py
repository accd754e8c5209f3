"""``table.vacuum``: remove files that nothing needs (docs/services.md, Vacuum).

A file is removed when a rule says why nothing needs it, it is old enough, and nothing names it. What names a file is asked
apart from the rules: commits of the active and the archived timeline, the metadata table, savepoints, tags, pending
instants, saved writes. So a rule that is wrong about a file that is needed removes nothing; and when any of these cannot be
read, nothing is removed either.

The rules of the check say which files are left over; :func:`plan_vacuum` and :func:`find_archived_orphans` are pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import partial
from time import perf_counter
from typing import Final

from lakefmt._core.arguments import shown
from lakefmt._core.check.collect import gather_facts, look_at_properties
from lakefmt._core.check.findings import Kind, TableFacts
from lakefmt._core.check.rules import find_damage
from lakefmt._core.compaction.clean_run import saved_files
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import BaseFile, LogFile
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.metadata.listing import MetadataListing, open_metadata_table
from lakefmt._core.notebook import NotebookText
from lakefmt._core.segments.codec import data_name, header_name
from lakefmt._core.segments.pending import load_streams, plan_streams
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.timeline.instant import COMMIT_ACTIONS
from lakefmt._core.timeline.markers import SAVED_WRITES
from lakefmt._core.values import InstantTime, PartitionPath
from lakefmt.errors import CorruptFile, InvalidInputError, LakefmtError, ObjectNotFound, StateError, StorageError

__all__ = [
    "Archived",
    "VacuumFacts",
    "VacuumItem",
    "VacuumPlan",
    "VacuumResult",
    "find_archived_orphans",
    "parse_age",
    "plan_vacuum",
    "vacuum_table",
]

_TAG_DIRECTORY: Final = ".hoodie/.lakefmt/tags"
_MAX_TAG_BYTES: Final = 1 << 20
_AGE_PATTERN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)")
_AGE_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_FILE_KINDS: Final = frozenset({Kind.ORPHAN_FILE, Kind.ORPHAN_TEMPORARY})
_DIRECTORY_KINDS: Final = frozenset({Kind.ORPHAN_MARKERS, Kind.ORPHAN_HEARTBEAT, Kind.ORPHAN_SAVED_WRITE})
#: With damage of these kinds it is not known what is needed.
_BLOCKING_KINDS: Final = frozenset({Kind.PROPERTIES, Kind.NOTES, Kind.CORRUPT_INSTANT, Kind.MISSING_COMPLETION})


@dataclass(frozen=True, slots=True)
class VacuumItem:
    """A file that nothing needs.

    Attributes:
        path: relative to the table.
        size: its bytes.
        why: why nothing needs it.
    """

    path: str
    size: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}, {self.size:,} bytes: {self.why}"


@dataclass(frozen=True, slots=True)
class VacuumPlan:
    """What a vacuum removes; prints one line per file.

    Attributes:
        items: the files.
        younger: files that nothing needs and that are not old enough yet.
        older_than: the least age in seconds.
    """

    items: tuple[VacuumItem, ...] = ()
    younger: int = 0
    older_than: float = 0.0

    @property
    def num_bytes(self) -> int:
        """Bytes of the files."""
        return sum(item.size for item in self.items)

    def __str__(self) -> str:
        wait = f"; {self.younger:,} younger than {self.older_than:,.0f} s stay" if self.younger else ""
        title = f"vacuum: remove {len(self.items):,} files, {self.num_bytes:,} bytes{wait}"
        return "\n".join([title, *(f"  {item}" for item in self.items)])


@dataclass(frozen=True, slots=True)
class VacuumResult(NotebookText):
    """What a vacuum removed; prints as one line.

    Attributes:
        plan: the files.
        done: False: it is only a plan.
        seconds: how long it took.
    """

    plan: VacuumPlan
    done: bool = False
    seconds: float = 0.0

    @property
    def files_deleted(self) -> int:
        """Files that were removed."""
        return len(self.plan.items) if self.done else 0

    def __str__(self) -> str:
        if not self.done:
            return str(self.plan)
        return f"vacuum: {self.files_deleted:,} files removed, {self.plan.num_bytes:,} bytes, {self.seconds:.3f} s"


@dataclass(frozen=True)
class VacuumFacts:
    """What is known of a table before a vacuum.

    Attributes:
        unneeded: path → why nothing needs the file, by the rules of the check and those of this module.
        objects: path → size and time, of the same files.
        named: files that something names.
        held: instants whose files stay, whatever a rule says: pending ones, living writers, saved writes.
        instants: path → the instant of a base file or log.
        now: the present in epoch seconds.
    """

    unneeded: Mapping[str, str]
    objects: Mapping[str, ObjectInfo]
    named: frozenset[str] = frozenset()
    held: frozenset[InstantTime] = frozenset()
    instants: Mapping[str, InstantTime] = field(default_factory=dict)
    now: float = 0.0


@dataclass(frozen=True)
class Archived:
    """What the archived timeline says.

    Attributes:
        times: its completed instants.
        named: files in its commits.
    """

    times: frozenset[InstantTime]
    named: frozenset[str]


def plan_vacuum(facts: VacuumFacts, older_than: float) -> VacuumPlan:
    """Return the files that are removed.

    Args:
        facts: of the table.
        older_than: the least age of a file in seconds. A file whose age is not known stays.

    Example:
        >>> objects = {"a": ObjectInfo("a", 5, 100.0), "b": ObjectInfo("b", 5, 100.0)}
        >>> facts = VacuumFacts(dict.fromkeys("ab", "left over"), objects, frozenset("b"), now=1000.0)
        >>> [item.path for item in plan_vacuum(facts, 60.0).items], plan_vacuum(facts, 3600.0).younger
        (['a'], 1)
    """
    items, younger = [], 0
    for path, why in sorted(facts.unneeded.items()):
        item = facts.objects.get(path)
        if item is None or path in facts.named or facts.instants.get(path) in facts.held:
            continue
        if not item.modified or facts.now - item.modified < older_than:
            younger += 1
        else:
            items.append(VacuumItem(path, item.size, why))
    return VacuumPlan(tuple(items), younger, older_than)


def find_archived_orphans(
    files: Iterable[BaseFile | LogFile], first_active: InstantTime | None, archived: Archived, named: frozenset[str]
) -> dict[str, str]:
    """Return files from before the active timeline that no commit wrote, with the reason.

    Readers take such a file for committed, because its instant has left the active timeline: rows of a failed write become
    visible. Only files of times that the archive covers are judged; what is older was perhaps archived and thrown away.

    Args:
        files: base files and logs whose names say the instant that wrote them.
        first_active: the oldest active commit.
        archived: the archived timeline.
        named: files in active commits.

    Example:
        >>> log = LogFile("p", "l", "f", "20260102000000000", 1, 9)
        >>> archive = Archived(frozenset(["20260101000000000", "20260103000000000"]), frozenset())
        >>> list(find_archived_orphans([log], "20260104000000000", archive, frozenset()))
        ['p/l']
    """
    begin = min(archived.times, default=None)
    if begin is None or first_active is None:
        return {}
    return {
        file.path: f"instant {file.instant} is older than the active timeline, and not among the archived ones"
        for file in files
        if begin <= file.instant < first_active
        and file.instant not in archived.times
        and file.path not in archived.named
        and file.path not in named
    }


def parse_age(age: object) -> float:
    """Return the seconds of an age such as ``1d``, ``90m`` or a number of seconds.

    Raises:
        InvalidInputError: it is none.

    Example:
        >>> parse_age("1d"), parse_age("90m"), parse_age(5)
        (86400.0, 5400.0, 5.0)
    """
    if isinstance(age, (int, float)) and not isinstance(age, bool) and 0 <= age < float("inf"):
        return float(age)
    match = _AGE_PATTERN.fullmatch(age.strip()) if isinstance(age, str) else None
    if match is None:
        raise InvalidInputError(
            f"{shown(age)} is no age: expected seconds, or a number with s, m, h, d or w such as '1d'"
        )
    return float(match[1]) * _AGE_UNITS[match[2]]


def vacuum_table(client: TableClient, older_than: float, *, dry_run: bool = False) -> VacuumResult:
    """Remove the files of a table that nothing needs.

    Args:
        client: the table; its caches are not used.
        older_than: the least age of a file in seconds.
        dry_run: True only plans.

    Raises:
        StateError: something that may name a file cannot be read; nothing was removed.
    """
    start = perf_counter()
    fresh = TableClient(client.store, client.options, client.clock, client.ids)
    plan = _plan_of_table(fresh, older_than)
    if dry_run:
        return VacuumResult(plan, seconds=perf_counter() - start)
    if plan.items:
        # An instant that has appeared since, or that a process has taken up again, keeps its files.
        again = {item.path for item in _plan_of_table(fresh, older_than).items}
        plan = replace(plan, items=tuple(item for item in plan.items if item.path in again))
        client.store.delete([item.path for item in plan.items])
    return VacuumResult(plan, done=True, seconds=perf_counter() - start)


def _plan_of_table(client: TableClient, older_than: float) -> VacuumPlan:
    try:
        return plan_vacuum(_vacuum_facts(client), older_than)
    except StorageError:
        raise
    except StateError:
        raise
    except LakefmtError as error:
        raise StateError(f"vacuum removes nothing, because it is not known what the table needs: {error}") from error


def _vacuum_facts(client: TableClient) -> VacuumFacts:
    properties = look_at_properties(client.store)
    if properties.problem or properties.values is None:
        raise CorruptFile(f".hoodie/hoodie.properties: {properties.problem}")
    now = client.clock.now().timestamp()
    facts, _ = gather_facts(client, properties, level="fast", partitions=None)
    findings = find_damage(facts)
    for finding in findings:
        if finding.kind in _BLOCKING_KINDS:
            raise StateError(f"vacuum removes nothing before this is repaired (table.check): {finding}")
    state = TableState(facts.config, facts.after)
    table_at = client.at(state)
    files: list[BaseFile | LogFile] = [*facts.bases, *facts.logs]
    unneeded: dict[str, str] = {}
    directories: dict[str, str] = {}
    for finding in findings:
        if finding.kind in _FILE_KINDS:
            unneeded[finding.where] = finding.what
        elif finding.kind in _DIRECTORY_KINDS:
            directories[finding.where] = finding.what
    archived = _archived_timeline(table_at)
    needed = frozenset(facts.stats) | archived.named | frozenset(saved_files(table_at))
    older = find_archived_orphans(_files_naming_their_writer(facts), facts.after.first_active, archived, needed)
    # A tag names an instant, and no files: what readers of that instant see, without files that no commit wrote.
    needed |= _tagged_files(table_at) - older.keys()
    unneeded |= older
    unneeded |= _left_of_streams(client)
    unneeded |= _left_in_directories(client, directories)
    listed = _listed_by_metadata(table_at, {path.rpartition("/")[0] for path in unneeded})
    return VacuumFacts(
        unneeded,
        _object_infos(client, unneeded),
        needed | listed,
        _held_instants(facts),
        {file.path: file.instant for file in files},
        now,
    )


def _files_naming_their_writer(facts: TableFacts) -> list[BaseFile | LogFile]:
    """Return the files whose names say who wrote them: in version 6 the name of a log says its base file's instant."""
    return [*facts.bases, *(facts.logs if facts.after.layout > 1 else ())]


def _archived_timeline(table_at: TableAt) -> Archived:
    full = table_at.with_history().state
    times: set[InstantTime] = set()
    paths: set[str] = set()
    for instant in full.timeline.archived:
        times.add(instant.time)
        if instant.action in COMMIT_ACTIONS:
            paths.update(stat.path for stat in table_at.client.at(full).commit_metadata(instant).stats if stat.path)
    return Archived(frozenset(times), frozenset(paths))


def _tagged_files(table_at: TableAt) -> frozenset[str]:
    """Return the files of the states that tags name."""
    paths: set[str] = set()
    for info in table_at.client.store.list(_TAG_DIRECTORY, recursive=False):
        if info.name.endswith(".json"):
            time = _instant_of_tag(table_at.client, info.name)
            for file_slice in table_at.client.at(table_at.with_history().state.as_of(time)).slices():
                paths.update(file_slice.paths)
    return frozenset(paths)


def _instant_of_tag(client: TableClient, name: str) -> str:
    try:
        content = json.loads(client.store.read(name, _MAX_TAG_BYTES))
    except (ValueError, RecursionError):
        content = None
    time = content.get("instant") if isinstance(content, dict) else None
    if not isinstance(time, str) or not time.isdigit():
        raise CorruptFile(f"{name} does not say which instant it names")
    return time


def _held_instants(facts: TableFacts) -> frozenset[InstantTime]:
    pending = {instant.time for instant in (*facts.before.pending, *facts.after.pending)}
    return frozenset(pending | {time for time, life in facts.alive.items() if life.alive})


def _left_in_directories(client: TableClient, directories: dict[str, str]) -> dict[str, str]:
    """Return the files of marker directories, heartbeats and saved writes of instants that are over."""
    leftovers = {}
    for where, why in directories.items():
        names = [info.name for info in client.store.list(where)]
        if where.startswith(SAVED_WRITES):
            names = [f"{where}.json", f"{where}.keys"]
        leftovers.update(dict.fromkeys(names or [where], why))
    return leftovers


def _left_of_streams(client: TableClient) -> dict[str, str]:
    """Return the segments whose rows are in the table, or were never confirmed; all others are kept."""
    leftovers: dict[str, str] = {}
    for plan in plan_streams(client.at(client.load()), load_streams(client)):
        for positions, why in (
            (plan.done, f"the rows of stream {plan.stream} are committed"),
            (plan.unconfirmed, f"stream {plan.stream} had another writer, and never confirmed them"),
        ):
            for position in positions:
                leftovers[data_name(plan.stream, position)] = why
                leftovers[header_name(plan.stream, position)] = why
    return leftovers


def _listed_by_metadata(table_at: TableAt, directories: Iterable[str]) -> frozenset[str]:
    """Return the files of partitions that the metadata table lists: readers that ask it see them."""
    if not table_at.config.metadata_partitions:
        return frozenset()
    partitions = [PartitionPath(directory) for directory in sorted(directories) if not directory.startswith(".hoodie")]
    if not partitions:
        return frozenset()
    opening = partial(open_metadata_table, table_at.client, table_at.config)
    listing = MetadataListing(
        table_at.client, opening, table_at.client.storage_listing(table_at.config), falls_back=False
    )
    if listing.metadata_table() is None:
        return frozenset()
    bases, logs = listing.files(partitions)
    return frozenset([*(base.path for base in bases), *(log.path for log in logs)])


def _object_infos(client: TableClient, paths: Iterable[str]) -> dict[str, ObjectInfo]:
    """Return size and time of files; those that have vanished since are left out."""
    infos = {}
    for path in paths:
        try:
            info = client.store.info(path)
        except ObjectNotFound:
            continue
        if info is not None:
            infos[path] = info
    return infos
