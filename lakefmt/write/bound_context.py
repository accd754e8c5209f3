"""A write's context together with the table's store, and what the context's texts mean: parsed once per process."""

from __future__ import annotations

import os

from lakefmt.config.mergers import adopt_merger
from lakefmt.config.settings import Settings, resolve_settings
from lakefmt.config.table_config import TableConfig, cdc_mode, merge_rule, parse_table_config
from lakefmt.filegroups.virtual_columns import virtual_columns_of
from lakefmt.schema import avro_to_arrow
from lakefmt.storage.api import ObjectStore
from lakefmt.write.context import WriteContext

__all__ = ["BoundContext"]


class BoundContext:
    """What every step of a write in this process needs.

    Args:
        store: the store of the table.
        context: the write.
        config: the table's properties, when they are parsed already.
        settings: the settings of the write, when they are resolved already.

    Attributes:
        rule: how the table merges records that share a key.
        schema: columns of the table after this write, without meta columns.
        file_schema: columns of its files, meta columns first.
        virtual_columns: what the table's files do not store; None: they store every column.
        cdc: what the table's change files record; None: it captures no changes.

    Raises:
        MergerMissing: this process does not have the function by which the table merges.
    """

    __slots__ = (
        "cdc",
        "config",
        "context",
        "file_schema",
        "instant",
        "operation",
        "rule",
        "schema",
        "settings",
        "store",
        "virtual_columns",
    )

    def __init__(
        self,
        store: ObjectStore,
        context: WriteContext,
        config: TableConfig | None = None,
        settings: Settings | None = None,
    ) -> None:
        adopt_merger(context.options)
        self.store = store
        self.context = context
        self.instant = context.instant
        self.operation = context.operation
        self.config = parse_table_config(context.properties) if config is None else config
        self.settings = resolve_settings(context.options, None, context.properties) if settings is None else settings
        self.rule = merge_rule(self.config)
        self.cdc = cdc_mode(self.config.properties)
        self.schema = avro_to_arrow(context.schema_text)
        self.file_schema = avro_to_arrow(context.file_schema_text)
        self.virtual_columns = virtual_columns_of(self.config, self.schema)

    @property
    def durable(self) -> bool:
        """True when files must reach the disk before a call returns."""
        return self.settings.text("lakefmt.durability") == "fsync"

    @property
    def threads(self) -> int:
        """How many threads the write may use in this process."""
        return self.settings.integer("lakefmt.write.threads") or min(8, os.cpu_count() or 1)
