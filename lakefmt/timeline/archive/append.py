"""Move completed instants into the archive of a timeline directory, of either layout (effects).

The instants stay on the active timeline: the caller deletes them there once they are archived (docs/format.md, Archived
timeline).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, tzinfo

from lakefmt.data_classes import dataclass
from lakefmt.storage.api import ObjectStore
from lakefmt.timeline.archive.lsm_timeline import HistoryEntry, plan_of
from lakefmt.timeline.archive.lsm_writer import HistoryWriter
from lakefmt.timeline.archive.v6_codec import LogRecord
from lakefmt.timeline.archive.v6_log import LogArchive
from lakefmt.timeline.instant import Instant, State, format_instant_time
from lakefmt.timeline.timeline import Timeline

__all__ = ["ArchiveDirectory"]


@dataclass(frozen=True, slots=True)
class ArchiveDirectory:
    """The archive of one timeline, and how that timeline's files are read.

    Attributes:
        store: the table's store.
        directory: of the archive.
        read_body: returns the content of a file of the active timeline.
        zone: the table's time zone; None: the machine's.
        durable: whether the archive must reach the disk before a call returns.
    """

    store: ObjectStore
    directory: str
    read_body: Callable[[Instant], bytes]
    zone: tzinfo | None
    durable: bool

    def append(self, timeline: Timeline, instants: Iterable[Instant]) -> None:
        """Write instants to the archive.

        Parameters:
            timeline: the active timeline; of layout 1 with the modification times of its files.
            instants: completed ones of it.

        Raises:
            StorageError: the store failed; the call may be repeated.
        """
        if timeline.layout == 1:
            LogArchive(self.store, self.directory).append(self._records(timeline, instants), durable=self.durable)
            return
        writer = HistoryWriter(self.store, self.directory, durable=self.durable)
        writer.append(self._entries(timeline, instants))
        writer.merge()

    def _entries(self, timeline: Timeline, instants: Iterable[Instant]) -> Iterator[HistoryEntry]:
        """Yield the archive entry of each instant, for layout 2."""
        for instant in instants:
            pending = {f.state: f for f in timeline.files_of(instant) if not f.is_completed}
            bodies = {s: self.read_body(f) for s, f in pending.items()}
            begun = next((f.action for f in pending.values()), instant.action)
            plan = plan_of(begun, bodies.get(State.REQUESTED, b""), bodies.get(State.INFLIGHT, b""))
            yield HistoryEntry(instant, self.read_body(instant) or None, plan)

    def _records(self, timeline: Timeline, instants: Iterable[Instant]) -> Iterator[LogRecord]:
        """Yield the archive records of each instant, for layout 1: one for each state, with the time of its file."""
        for instant in instants:
            for file in sorted(timeline.files_of(instant), key=lambda f: f.state.rank):
                since = datetime.fromtimestamp(file.modified, UTC)
                # In the machine's time zone every moment has its own offset, because of daylight saving.
                modified = format_instant_time(since, self.zone or since.astimezone().tzinfo or UTC)
                # Several instants of one millisecond get later times than the clock that stamps their files.
                yield LogRecord(file, self.read_body(file), max(modified, instant.time))
