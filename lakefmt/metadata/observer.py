"""The metadata table takes part in every completion of an instant (effects, under the table lock).

What the table advertises is read from its properties for every instant anew: another engine deletes indexes that its own
settings do not ask for. An instant that is recorded twice, because its process died in between, is recorded anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakefmt.config.settings import Settings
from lakefmt.config.table_config import TableConfig
from lakefmt.errors import StateError
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.metadata.collect import FactCollector, timeline_with
from lakefmt.metadata.commit_updates import updates_of_clean, updates_of_commit, updates_of_rollback
from lakefmt.metadata.manage import (
    MetadataTableManager,
    expression_time_zone,
    load_definitions,
    wanted_partitions,
)
from lakefmt.metadata.services.run import run_metadata_services
from lakefmt.metadata.statistics import ColumnRange
from lakefmt.metadata.timeline import MetadataTimelineStore
from lakefmt.metadata.writer import MetadataTableWriter
from lakefmt.schema import avro_to_arrow, without_meta_columns
from lakefmt.timeline.instant import Action, Instant
from lakefmt.timeline.metadata_codec import BodyKind, decode_body
from lakefmt.timeline.observer import PendingCompletion

__all__ = ["MetadataTableObserver"]

#: They change no file that the metadata table lists.
_WITHOUT_FILES = frozenset({Action.SAVEPOINT, Action.INDEXING, Action.SCHEMA_COMMIT})


@dataclass
class MetadataTableObserver:
    """Keeps the metadata table of one table right; a table without one is left alone unless the settings ask for it.

    Attributes:
        client: the data table.
        settings: of the call.
    """

    client: TableClient
    settings: Settings
    _known_ranges: dict[tuple[str, int], Mapping[str, ColumnRange]] = field(default_factory=dict)

    @property
    def durable(self) -> bool:
        """Whether what is completed must reach the disk."""
        return self.settings.text("lakefmt.durability") == "fsync"

    def before_completion(self, pending: PendingCompletion) -> None:
        """Write what belongs to the instant.

        Raises:
            CorruptFile: the metadata table is damaged.
            UnsupportedFeature: it has a partition that lakefmt cannot keep.
        """
        config = pending.config
        asked = wanted_partitions(config, self.settings)
        if not (config.metadata_partitions or asked) or pending.action in _WITHOUT_FILES:
            return
        manager = MetadataTableManager(self.client, config, pending.timeline, self.settings, pending.proved_time)
        if pending.action is Action.RESTORE:
            # What was restored may be in the metadata table's base files already: nothing but a new one is right.
            if config.metadata_partitions:
                manager.rebuild()
            return
        if pending.action is not Action.ROLLBACK:
            missing = [name for name in asked if name not in config.metadata_partitions]
            if missing:
                config = manager.add(missing)
        if not config.metadata_partitions:
            return
        if not MetadataTimelineStore(self.client.store, config.version, durable=self.durable).load().completed():
            config = manager.rebuild()  # its directory is gone, or was never finished
        self._record(pending, config)

    def _record(self, pending: PendingCompletion, config: TableConfig) -> None:
        writer = MetadataTableWriter(self.client.store, config, self.durable)
        if pending.action is Action.ROLLBACK:
            self._record_rollback(writer, pending)
            return
        read_body = self.client.timeline_store(config).read_body
        run_metadata_services(writer, pending, self.settings, read_body)
        definitions = load_definitions(self.client, config)
        if pending.commit is not None:
            updates = updates_of_commit(
                config, writer.form, self._collector(config, pending), definitions, pending.commit
            )
        elif pending.action is Action.CLEAN:
            record = decode_body(BodyKind.CLEAN_METADATA, pending.body, what=f"the clean {pending.time}")
            updates = updates_of_clean(config, writer.form, self._collector(config, pending), definitions, record)
        else:
            return
        writer.write(pending.time, updates, pending.proved_time)

    def _record_rollback(self, writer: MetadataTableWriter, pending: PendingCompletion) -> None:
        """Remove what the metadata table has of instants that are rolled back."""
        record = decode_body(BodyKind.ROLLBACK_METADATA, pending.body, what=f"the rollback {pending.time}")
        timeline = writer.timeline_store.load()
        targets = record.get("commitsRollback")
        for time in targets if isinstance(targets, list) else ():
            if timeline.of_time(str(time)):
                writer.remove(str(time), timeline)
        updates = updates_of_rollback(record, writer.form)
        if updates:
            writer.write(pending.time, updates, pending.proved_time)

    def _collector(self, config: TableConfig, pending: PendingCompletion) -> FactCollector:
        before = TableState(config, pending.timeline)
        completed = timeline_with(pending.timeline, pending.time, pending.action, pending.next_time())
        text = None if pending.commit is None else pending.commit.schema_text
        schema = self.client.schema(before) if text is None else without_meta_columns(avro_to_arrow(text))
        after = TableState(config, completed)
        return FactCollector(
            self.client,
            before,
            after,
            pending.time,
            schema,
            known_ranges=self._known_ranges,
            time_zone=expression_time_zone(self.settings),
        )

    def before_rollback(self, config: TableConfig, targets: Sequence[Instant]) -> None:
        """Refuse the rollback of an instant that a compaction of the metadata table has taken in.

        Raises:
            StateError: an instant is in a base file of the metadata table, from which nothing can be taken away.
        """
        if not config.metadata_partitions:
            return
        timeline = MetadataTimelineStore(self.client.store, config.version, durable=False).load()
        compaction = timeline.last_compaction
        if compaction is None:
            return
        for target in targets:
            done = [one for one in timeline.of_time(target.time) if one.completion is not None]
            if any(one.completion is not None and one.completion < compaction.time for one in done):
                raise StateError(
                    f"{target.time} cannot be rolled back: the metadata table was compacted at {compaction.time}, after "
                    f"it had recorded {target.time}. Restore the table to an earlier commit instead, or drop the "
                    "metadata table first (hoodie.metadata.enable=false) and roll back then"
                )
