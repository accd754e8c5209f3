"""A write's context together with the table's store, and what the context's texts mean: parsed once per process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lakefmt.config.mergers import adopt_merger
from lakefmt.config.settings import Settings, resolve_settings
from lakefmt.config.table_config import TableConfig, cdc_mode, merge_rule, parse_table_config
from lakefmt.filegroups.virtual_columns import virtual_columns_of
from lakefmt.schema import avro_to_arrow
from lakefmt.sorting.written_keys import WrittenKeys
from lakefmt.storage.api import ObjectStore
from lakefmt.storage.parallel import BegunRequest
from lakefmt.timeline.markers import OwnMarkers
from lakefmt.transactions.concurrency import is_beside
from lakefmt.write.context import WriteContext

if TYPE_CHECKING:
    from lakefmt.schema.column_ids import ColumnIds

__all__ = ["BoundContext"]


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


def _column_ids(history: str) -> ColumnIds:
    # Imported here: few tables have column ids.
    from lakefmt.schema.column_ids import ColumnIds
    from lakefmt.schema.history import parse_history

    return ColumnIds(parse_history(history, "the context of a write"))
