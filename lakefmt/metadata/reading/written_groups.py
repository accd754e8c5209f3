"""Which file groups of the metadata table its commits have written: none of them may be missing (effects on reading only).

Hudi counts the file groups that it finds. A gap in their numbers shows which one is missing, but not when it is the last:
then every key is looked for, and stored, in a wrong place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from functools import partial

from lakefmt.data_classes import dataclass
from lakefmt.errors import CorruptFile, ObjectNotFound
from lakefmt.filegroups.table_client import TableClient
from lakefmt.formats.names import PARTITION_METADATA
from lakefmt.formats.properties import decode_properties
from lakefmt.metadata.layout import METADATA_DIRECTORY
from lakefmt.metadata.reading.handle_memory import handle_memory
from lakefmt.metadata.timeline import MetadataInstant, MetadataTimeline, MetadataTimelineStore
from lakefmt.storage.api import ObjectStore
from lakefmt.storage.parallel import map_concurrently
from lakefmt.timeline.commit import decode_commit
from lakefmt.timeline.instant import Action
from lakefmt.timeline.store import MAX_BODY_BYTES
from lakefmt.values import TableVersion

__all__ = ["KnownCommits", "WrittenGroups", "known_commits"]

#: More than a timeline holds between two archives.
_MOST_COMMITS = 512


@dataclass
class KnownCommits:
    """The file groups of commits of the metadata table, as one handle read or wrote them; a commit never changes."""

    _groups: dict[tuple[str, str | None], Mapping[str, frozenset[str]]] = field(default_factory=dict)

    def of(self, instant: MetadataInstant) -> Mapping[str, frozenset[str]] | None:
        """Return the file groups of a commit by partition; None: it has to be read."""
        return self._groups.get((instant.time, instant.completion))

    def remember(self, time: str, completion: str | None, files: Iterable[tuple[str, str]]) -> None:
        """Keep the file groups of a commit.

        Parameters:
            time: its requested time.
            completion: its completion time, as its name on the timeline says.
            files: partition and file group of each file that it wrote.
        """
        groups: dict[str, set[str]] = {}
        for partition, file_id in files:
            groups.setdefault(partition, set()).add(file_id)
        if len(self._groups) >= _MOST_COMMITS:
            self._groups = {}
        self._groups[time, completion] = {name: frozenset(ids) for name, ids in groups.items()}


def known_commits(client: TableClient) -> KnownCommits:
    """Return what a table's handle knows of the commits of its metadata table."""
    return handle_memory(client).of(KnownCommits)


@dataclass(frozen=True)
class WrittenGroups:
    """The file groups that the commits of a metadata table have written.

    Attributes:
        store: the data table's store.
        version: the table version.
        timeline: the metadata table's.
        known: commits that were read before.
    """

    store: ObjectStore
    version: TableVersion
    timeline: MetadataTimeline
    known: KnownCommits = field(default_factory=KnownCommits)

    def check(self, partition: str, present: Collection[str]) -> None:
        """Raise when commits wrote to file groups of a partition that are not there.

        Parameters:
            partition: the metadata table's partition.
            present: the ids of the file groups that its directory has.

        Raises:
            CorruptFile: a file group is missing.
        """
        # Where there are none at all, every commit is asked whether there ever was one.
        everything = not present
        lost = self._read("", everything=everything).get(partition, frozenset()).difference(present)
        if lost:  # unless it was dropped and made anew with fewer of them
            lost &= self._read(self._made_at(partition), everything=everything).get(partition, frozenset())
        if lost:
            raise CorruptFile(
                f"{METADATA_DIRECTORY}/{partition} lacks the file group {min(lost)}: keys would be looked for in wrong "
                "places; drop this index, a later write can build it again"
            )

    def _made_at(self, partition: str) -> str:
        """Return when a partition was made; the empty text where no instant on the timeline says so."""
        name = f"{METADATA_DIRECTORY}/{partition}/{PARTITION_METADATA}"
        try:
            maker = decode_properties(self.store.read(name, MAX_BODY_BYTES), what=name).get("commitTime", "")
        except ObjectNotFound:
            return ""
        commits = self.timeline.completed(Action.COMMIT, Action.DELTA_COMMIT)
        return max((_order_time(each) for each in commits if each.time == maker), default="")

    def _read(self, since: str, *, everything: bool) -> Mapping[str, frozenset[str]]:
        """Return the file groups by partition: the last compaction names all of them.

        Before the first compaction there are a few deltacommits, and all of those are read.

        Parameters:
            since: only commits that were completed at this time or later.
            everything: read all commits, also those before the last compaction.
        """
        deltas = [each for each in self.timeline.completed(Action.DELTA_COMMIT) if _order_time(each) >= since]
        compactions = [each for each in self.timeline.completed(Action.COMMIT) if _order_time(each) >= since]
        last = sorted(compactions, key=_order_time)[-1:]
        commits = [*compactions, *deltas] if everything else last or deltas
        unread = [each for each in commits if self.known.of(each) is None]
        map_concurrently(self.store, [partial(self._load, each) for each in unread])
        written: dict[str, frozenset[str]] = {}
        for commit in commits:
            for name, ids in (self.known.of(commit) or {}).items():
                written[name] = written.get(name, frozenset()) | ids
        return written

    def _load(self, instant: MetadataInstant) -> None:
        name = next(name for name in instant.file_names if not name.endswith((".requested", ".inflight")))
        try:
            body = MetadataTimelineStore(self.store, self.version, durable=False).read_body(name)
        except ObjectNotFound:
            return  # archived meanwhile
        stats = decode_commit(body, name).stats
        self.known.remember(instant.time, instant.completion, ((stat.partition_path, stat.file_id) for stat in stats))


def _order_time(instant: MetadataInstant) -> str:
    return instant.completion or instant.time
