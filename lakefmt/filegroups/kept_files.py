"""The files of partitions that a handle has listed, so that the next listing looks at new names only (effects on reading only).

A directory's names are listed each time: a file of another process is seen at once, and one that is removed is gone. What a name
says never changes. Nor does the size of a file whose instant counts as committed: it was written before its commit completed, and
later writes make files of other names. So the size of such a file is asked for once, while its name stays in the listing. Sizes of other
files may still grow, and those of logs of layout 1, to which later commits are appended: they are asked for again each time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Lock

from lakefmt.filegroups.model import BaseFile, LogFile, join_path, parse_files
from lakefmt.formats.names import PARTITION_METADATA_NAMES, parse_log_file, split_base_file
from lakefmt.storage.api import ObjectStore, SupportsNames
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import PartitionPath

__all__ = ["KeptFiles"]

#: Names that a handle keeps of all partitions together: some megabytes.
_MOST_NAMES = 1 << 14
#: Above this number of new files all are looked at: one file by its path takes longer than one of a listing.
_MANY_NEW = 64


@dataclass(frozen=True, slots=True)
class _Partition:
    """What is kept of one partition.

    Attributes:
        names: those of the files below, and those that are no data files.
        bases: committed base files.
        logs: committed log files of layout 2.
    """

    names: frozenset[str] = frozenset()
    bases: tuple[BaseFile, ...] = ()
    logs: tuple[LogFile, ...] = ()


_Files = tuple[list[BaseFile], list[LogFile]]


class KeptFiles:
    """The files that one handle has listed; thread-safe.

    Args:
        store: the table.
        most: names that are kept of all partitions together, those listed last first.

    Example:
        >>> import tempfile
        >>> from lakefmt.storage.local.store import LocalStore
        >>> from lakefmt.timeline.timeline import timeline_from_names
        >>> store = LocalStore(tempfile.mkdtemp())
        >>> for name in (".hoodie_partition_metadata", "f-0_0-0-0_20260101000000000.parquet"):
        ...     store.put(f"p/{name}", b"x")
        >>> timeline = timeline_from_names(["20260101000000000_20260101000000500.commit"], 2)
        >>> KeptFiles(store).files(PartitionPath("p"), timeline)[0][0].size
        1
    """

    def __init__(self, store: ObjectStore, most: int = _MOST_NAMES) -> None:
        self._store = store
        self._names = store if isinstance(store, SupportsNames) else None
        self._most = most
        self._partitions: OrderedDict[PartitionPath, _Partition] = OrderedDict()
        self._num_names = 0
        self._lock = Lock()

    def of(self, timeline: Timeline | None) -> Callable[[PartitionPath], _Files] | None:
        """Return :meth:`files` for a timeline; None without one, and where listings bring the sizes anyway."""
        return None if self._names is None or timeline is None else partial(self.files, timeline=timeline)

    def files(self, partition: PartitionPath, timeline: Timeline) -> _Files:
        """Return the files of a partition, committed or not, as a listing of now tells them.

        Args:
            partition: its path.
            timeline: was loaded before; it tells whose files cannot change any more.
        """
        before = self._partitions.get(partition)
        if before is None or self._names is None:
            return self._all_files(partition, timeline)
        listed = frozenset(self._names.list_names(partition))
        new = listed - before.names
        data = [name for name in sorted(new) if _is_data(name)]
        if len(data) > _MANY_NEW:
            return self._all_files(partition, timeline)
        if listed.isdisjoint(PARTITION_METADATA_NAMES):
            self._keep(partition, _Partition())
            return [], []
        if len(before.names) + len(new) > len(listed):  # some are gone
            bases = tuple(file for file in before.bases if file.name in listed)
            logs = tuple(file for file in before.logs if file.name in listed)
            before = _Partition(before.names & listed, bases, logs)
        if not new:
            self._keep(partition, before)
            return [*before.bases], [*before.logs]
        infos = (self._store.info(join_path(partition, name)) for name in data)
        files = parse_files(partition, [info for info in infos if info is not None])  # others were removed meanwhile
        self._keep(partition, _committed(before, new.difference(data), files, timeline))
        return [*before.bases, *files[0]], [*before.logs, *files[1]]

    def _all_files(self, partition: PartitionPath, timeline: Timeline) -> _Files:
        objects = list(self._store.list(partition, recursive=False))
        names = frozenset(info.name.rpartition("/")[2] for info in objects)
        if names.isdisjoint(PARTITION_METADATA_NAMES):
            return [], []
        files = parse_files(partition, objects)
        others = names.difference(file.name for each in files for file in each)
        self._keep(partition, _committed(_Partition(), others, files, timeline))
        return files

    def _keep(self, partition: PartitionPath, files: _Partition) -> None:
        with self._lock:
            earlier = self._partitions.pop(partition, _Partition())
            self._num_names -= len(earlier.names)
            if not files.names or len(files.names) > self._most:
                return
            self._partitions[partition] = files
            self._num_names += len(files.names)
            while self._num_names > self._most:
                _, dropped = self._partitions.popitem(last=False)
                self._num_names -= len(dropped.names)


def _committed(before: _Partition, others: frozenset[str], files: _Files, timeline: Timeline) -> _Partition:
    """Return what is kept after files were looked at whose names were new; `others` are new names of no data files."""
    bases = [file for file in files[0] if timeline.is_committed(file.instant)]
    logs = [file for file in files[1] if timeline.layout > 1 and timeline.is_committed(file.instant)]
    names = before.names.union(others, (file.name for file in bases), (file.name for file in logs))
    return _Partition(names, (*before.bases, *bases), (*before.logs, *logs))


def _is_data(name: str) -> bool:
    if split_base_file(name) is not None:
        return True
    log = parse_log_file(name)
    return log is not None and not log.is_cdc
