"""Which files nothing needs, and may be removed (docs/services.md, Vacuum). Pure.

A file is removed when a rule says why nothing needs it, it is old enough, and nothing names it. What names a file is asked
apart from the rules: commits of the active and the archived timeline, the metadata table, savepoints, tags, pending
instants, saved writes. So a rule that is wrong about a file that is needed removes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from lakefmt.data_classes import dataclass
from lakefmt.filegroups.model import BaseFile, LogFile
from lakefmt.storage.api import ObjectInfo
from lakefmt.values import InstantTime

__all__ = ["Archived", "VacuumFacts", "VacuumItem", "VacuumPlan", "find_archived_orphans", "plan_vacuum"]


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
