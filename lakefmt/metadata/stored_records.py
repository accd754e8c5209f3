"""What the metadata table holds of some keys before an instant is recorded in it (effects on reading only).

A handle that writes one commit after the other keeps what it wrote last, and reads nothing until another writer writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

import pyarrow as pa

from lakefmt.data_classes import dataclass
from lakefmt.filegroups.table_client import TableClient
from lakefmt.metadata.reading.handle_memory import handle_memory
from lakefmt.metadata.reading.reader import MetadataTable, newest_records
from lakefmt.metadata.record_schema import RecordFormat
from lakefmt.metadata.records import MetadataRecord, PartitionUpdate, decode_record
from lakefmt.metadata.timeline import MetadataTimeline
from lakefmt.timeline.instant import Action
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import InstantTime

__all__ = ["WrittenRecords", "stored_records", "written_records"]

#: Requested and completion time of a deltacommit.
_Deltacommit = tuple[str, str | None]
_MOST_RECORDS = 10_000


@dataclass
class WrittenRecords:
    """Records of one partition of the metadata table as one handle wrote them last.

    They count while the newest deltacommit is the one that this handle wrote, and its instant is complete.
    """

    _newest: _Deltacommit | None = None
    #: Values by key, and the schema of each: most handles write once, and decode none of them.
    _records: dict[str, tuple[bytes, str]] = field(default_factory=dict)

    def look_up(
        self, keys: Sequence[str], metadata: MetadataTimeline, data: Timeline
    ) -> dict[str, MetadataRecord] | None:
        """Return the records of keys; None: they have to be read.

        Parameters:
            keys: as they are stored.
            metadata: the metadata table's timeline.
            data: the data table's timeline.
        """
        newest = self._newest
        if newest is None or newest != _newest(metadata) or not data.is_committed(InstantTime(newest[0])):
            return None
        stored = {key: self._records.get(key) for key in keys}
        values = {key: value for key, value in stored.items() if value is not None}
        return None if len(values) < len(stored) else {key: decode_record(*value) for key, value in values.items()}

    def remember(
        self, update: PartitionUpdate | None, form: RecordFormat, before: MetadataTimeline, after: _Deltacommit
    ) -> None:
        """Note what a deltacommit wrote.

        Parameters:
            update: of the partition; None: the deltacommit left it as it was.
            form: how its records are written.
            before: the metadata table's timeline without the deltacommit.
            after: the deltacommit.
        """
        is_repeated = bool(before.of_time(after[0]))
        if is_repeated or self._newest != _newest(before) or len(self._records) > _MOST_RECORDS:
            self._records.clear()
        self._newest = None  # while the records of two deltacommits are mixed
        if update is not None and len(update) > _MOST_RECORDS:
            return
        if update is not None:
            for key in update.deleted.to_pylist():
                self._records.pop(key, None)
            for key, value in zip(update.keys.to_pylist(), update.values.to_pylist(), strict=True):
                self._records[key] = value, form.schema
        self._newest = after


def _newest(timeline: MetadataTimeline) -> _Deltacommit | None:
    completed = ((instant.time, instant.completion) for instant in timeline.completed(Action.DELTA_COMMIT))
    return max(completed, key=lambda times: (times[1] or "", times[0]), default=None)


def written_records(client: TableClient) -> WrittenRecords:
    """Return what a table's handle knows of ``partition_stats``."""
    return handle_memory(client).of(WrittenRecords)


def stored_records(table: MetadataTable, partition: str, keys: Iterable[str]) -> Mapping[str, MetadataRecord]:
    """Return the newest records of a few keys; keys without one are left out.

    Parameters:
        table: the metadata table.
        partition: of which newer records replace older ones.
        keys: as they are stored.

    Raises:
        CorruptFile: the metadata table is damaged.
        SnapshotExpired: a file was removed meanwhile.
    """
    wanted = pa.array([key.encode() for key in keys], pa.binary())
    newest, schemas = newest_records(table.lookup(partition, wanted, newest_only=True))
    rows = zip(newest["key"].to_pylist(), newest["value"].to_pylist(), newest["schema"].to_pylist(), strict=True)
    return {key.decode(): decode_record(value, schemas[number], partition) for key, value, number in rows}
