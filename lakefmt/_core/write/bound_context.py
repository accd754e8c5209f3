"""A write's context together with the table's store, and the markers that tell of its files before they are written.

What the context's texts mean is parsed once per process. Any engine's rollback finds a file by its marker.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakefmt._core.config.merge_rule import adopt_merger
from lakefmt._core.config.settings import Settings, resolve_settings
from lakefmt._core.config.table_config import TableConfig, cdc_mode, merge_rule, parse_table_config
from lakefmt._core.filegroups.model import join_path
from lakefmt._core.filegroups.virtual_columns import virtual_columns_of
from lakefmt._core.formats.names import PARTITION_METADATA, MarkerType
from lakefmt._core.formats.properties import encode_properties
from lakefmt._core.schema import avro_to_arrow
from lakefmt._core.sorting.written_keys import WrittenKeys
from lakefmt._core.storage.api import ObjectStore, remove_abandoned
from lakefmt._core.storage.parallel import BegunRequest
from lakefmt._core.timeline.markers import OwnMarkers, create_marker, create_markers
from lakefmt._core.timeline.store import put_if_absent_confirmed
from lakefmt._core.transactions.concurrency import is_beside
from lakefmt._core.write.context import FileAssignment, WriteContext

if TYPE_CHECKING:
    from lakefmt._core.schema.column_ids import ColumnIds

__all__ = ["Announcements", "BoundContext", "announce", "marker_of", "prepare"]

#: With this number of files or more, their markers are written together: two requests, or two small files, not one each.
_MANY_MARKERS, _MANY_NEAR_MARKERS = 3, 16


class BoundContext:
    """What every step of a write in this process needs.

    Args:
        store: the store of the table.
        context: the write.
        config: the table's properties, when they are parsed already.
        settings: the settings of the write, when this process has resolved them, and adopted their merge function.

    Attributes:
        rule: how the table merges records that share a key.
        schema: columns of the table after this write, without meta columns.
        file_schema: columns of its files, meta columns first.
        own_markers: the markers of base files that this process has created.
        virtual_columns: what the table's files do not store, or store in another form; None: they store every column.
        cdc: what the table's change files record; None: it captures no changes.
        durable: files must reach the disk before a call returns.
        threads: how many threads the write may use in this process.
        codec: how column chunks of base files are compressed, and `codec_level`, how much.
        beside: the writer expects others at work.
        writes_filters: base files get a bloom filter of their keys.
        written_keys: which keys the files written in this process gained and lost; None: no index of the table asks for it.
        inflight: the request that makes the instant inflight, which is waited for before a file is written and at the end of the
            write; None: it is inflight.

    Raises:
        MergerMissing: this process does not have the function by which the table merges.
    """

    __slots__ = (
        "beside",
        "cdc",
        "codec",
        "codec_level",
        "config",
        "context",
        "durable",
        "file_schema",
        "inflight",
        "instant",
        "operation",
        "own_markers",
        "rule",
        "schema",
        "settings",
        "store",
        "threads",
        "virtual_columns",
        "writes_filters",
        "written_keys",
    )

    def __init__(
        self,
        store: ObjectStore,
        context: WriteContext,
        config: TableConfig | None = None,
        settings: Settings | None = None,
    ) -> None:
        if settings is None:
            adopt_merger(context.options)
        self.store = store
        self.context = context
        self.instant = context.instant
        self.operation = context.operation
        self.config = parse_table_config(context.properties) if config is None else config
        self.settings = resolve_settings(context.options, None, context.properties) if settings is None else settings
        self.own_markers = OwnMarkers()
        self.inflight: BegunRequest[None] | None = None
        self.rule = merge_rule(self.config)
        self.cdc = cdc_mode(self.config.properties)
        self.schema = avro_to_arrow(context.schema_text)
        self.file_schema = avro_to_arrow(context.file_schema_text)
        ids = _column_ids(context.schema_history) if context.schema_history else None
        in_files = self.config.stores_every_column and ids is None
        self.virtual_columns = None if in_files else virtual_columns_of(self.config, self.schema, ids)
        values = self.settings
        self.durable = values.text("lakefmt.durability") == "fsync"
        self.threads = values.integer("lakefmt.write.threads") or min(8, os.cpu_count() or 1)
        self.codec = values.text("hoodie.parquet.compression.codec") or "zstd"
        self.codec_level = values.integer("lakefmt.parquet.compression.level")
        self.beside = is_beside(values)
        has_index = "record_index" in self.config.metadata_partitions
        self.written_keys = WrittenKeys() if has_index else None
        self.writes_filters = values.flag("hoodie.parquet.bloom.filter.enabled")

    def wait_until_inflight(self) -> None:
        """Wait until the instant is inflight.

        Raises:
            StorageError: the store does not say whether it is.
        """
        if self.inflight is not None:
            self.inflight()


def _column_ids(history: str) -> ColumnIds:
    # Imported here: few tables have column ids.
    from lakefmt._core.schema.column_ids import ColumnIds
    from lakefmt._core.schema.history import parse_history

    return ColumnIds(parse_history(history, "the context of a write"))


def announce(bound: BoundContext, assignments: Sequence[FileAssignment], *, more: bool = False) -> bool | None:
    """Announce files together, before the first of them is written, where that takes less than a marker for each.

    The markers of an instant have one form: what is announced together once is announced so in the whole write.

    Args:
        bound: the write.
        assignments: the files.
        more: files of this write were announced together before.

    Returns:
        None where each file has to be announced by itself; else whether this is certainly the first attempt at them.

    Raises:
        StorageError: the store does not confirm the markers.
    """
    if bound.cdc is not None:
        return None  # the files of changes have markers of their own
    least = _MANY_NEAR_MARKERS if bound.store.capabilities.low_latency else _MANY_MARKERS
    if len(assignments) < least and not more:
        return None
    new = {each.partition for each in assignments if each.new_partition}
    if bound.durable and bound.store.capabilities.directories and len(new) >= least:
        # Many new directories are synced together; else each file syncs all that are above it.
        bound.store.make_directories(sorted(new), durable=True)
    marked = [(each.path, marker_of(bound, each)) for each in assignments]
    return create_markers(bound.store, bound.instant, marked, more=more, own=bound.own_markers)


class Announcements:
    """Announces the files of one write in several calls: all of its markers have one form."""

    def __init__(self, bound: BoundContext) -> None:
        self._bound = bound
        self._each_alone = self._together = False

    def announce(self, assignments: Sequence[FileAssignment]) -> bool | None:
        """Announce files as those before were, and return what :func:`announce` says."""
        if self._each_alone or not assignments:
            return None
        announced = announce(self._bound, assignments, more=self._together)
        self._together = announced is not None
        self._each_alone = not self._together
        return announced


def prepare(bound: BoundContext, assignment: FileAssignment, *, announced: bool | None = None) -> bool:
    """Announce the file by its marker, and make its partition one; False when an earlier attempt may have written it.

    Args:
        bound: the write.
        assignment: the file.
        announced: what :func:`announce` said of the write's files.
    """
    store = bound.store
    is_first = announced
    if is_first is None:
        own, marker = bound.own_markers, marker_of(bound, assignment)
        own.is_complete &= bound.cdc is None  # the files of changes have markers that are not told here
        is_first = create_marker(store, bound.instant, assignment.path, marker, own)
    if not is_first:
        # The earlier attempt may have died with its file half written.
        remove_abandoned(store, assignment.partition, recursive=False)
    bound.wait_until_inflight()  # a rollback removes no file of an instant that was only requested
    if assignment.new_partition:
        name = join_path(assignment.partition, PARTITION_METADATA)
        if store.capabilities.low_latency and store.info(name) is not None:
            return is_first  # a look costs less than a file that is written only to be refused
        depth = assignment.partition.count("/") + 1 if assignment.partition else 0
        content = {"commitTime": bound.instant, "partitionDepth": str(depth)}
        # Readers skip files in a directory without this one; another writer may have put it already.
        put_if_absent_confirmed(store, name, encode_properties(content, ["partition metadata"]), durable=False)
    return is_first


def marker_of(bound: BoundContext, assignment: FileAssignment) -> MarkerType:
    """Return the type of a file's marker."""
    if assignment.log is not None:
        # From version 8 on a log has one instant, in its name, and counts as a new file (docs/format.md, Markers).
        return "APPEND" if bound.config.version.layout == 1 else "CREATE"
    return "CREATE" if assignment.base is None else "MERGE"
