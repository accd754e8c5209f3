"""Table properties, typed and checked (docs/format.md, Property keys; Before a write). Pure.

:func:`check_readable` and :func:`check_writable` refuse tables that lakefmt would read wrongly or
whose features it cannot maintain. They check the current properties: another engine may have
changed them.

:func:`append_layout` tells the order of rows of a table without keys (docs/append.md).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from datetime import UTC, tzinfo
from functools import cached_property, lru_cache
from typing import Final

from lakefmt._core.arguments import comma_separated
from lakefmt._core.config.merge_rule import (
    FUNCTION,
    MERGE_PROPERTIES,
    PAYLOAD_MODES,
    PAYLOAD_STRATEGY,
    MergeRule,
    find_merger,
    plan_merge_rule,
    strategy_id,
)
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.values import MergeMode, TableType, TableVersion
from lakefmt.errors import (
    CorruptFile,
    InvalidInputError,
    MetadataTablePresent,
    UnsafePath,
    UnsupportedFeature,
    UnsupportedVersion,
)

__all__ = [
    "BOOTSTRAP_PARTITIONS",
    "BUCKETS",
    "BUCKET_KEY",
    "CONSUMER_MODE",
    "DELAY",
    "EVENT_TIME",
    "KIND",
    "MIN_FILES",
    "ORDER",
    "PAYLOADS",
    "POLL_SECONDS",
    "SORTS_PARTITIONS",
    "STRATEGY_IDS",
    "STREAMS_OVERWRITES",
    "TABLE_PROPERTIES",
    "AppendLayout",
    "CdcMode",
    "TableConfig",
    "append_layout",
    "cdc_mode",
    "check_bootstrap_indexes",
    "check_merger",
    "check_readable",
    "check_writable",
    "merge_rule",
    "parse_table_config",
]

KIND: Final = "lakefmt.table.kind"
ORDER: Final = "lakefmt.append.order"
BUCKET_KEY: Final = "lakefmt.append.bucket.key"
BUCKETS: Final = "lakefmt.append.buckets"
EVENT_TIME: Final = "lakefmt.event.time.column"
DELAY: Final = "lakefmt.allowed.delay"
#: Files of one size that services pack together.
MIN_FILES: Final = "lakefmt.append.packed.files"
#: What ``Table.stream`` does where its arguments do not say.
POLL_SECONDS: Final = "lakefmt.stream.poll.seconds"
SORTS_PARTITIONS: Final = "lakefmt.stream.sort.partitions"
STREAMS_OVERWRITES: Final = "lakefmt.stream.overwrites"
CONSUMER_MODE: Final = "lakefmt.stream.consumer.mode"
#: Properties of tables that are neither settings nor published options; what ends with a dot is a beginning.
TABLE_PROPERTIES: Final = (
    KIND,
    ORDER,
    BUCKET_KEY,
    BUCKETS,
    EVENT_TIME,
    DELAY,
    MIN_FILES,
    POLL_SECONDS,
    SORTS_PARTITIONS,
    STREAMS_OVERWRITES,
    CONSUMER_MODE,
    "lakefmt.paimon.",
    "lakefmt.sql.types",
    *MERGE_PROPERTIES,
)
STRATEGY_IDS: Final[dict[MergeMode, str]] = {
    MergeMode.COMMIT_TIME_ORDERING: "ce9acb64-bde0-424c-9b91-f6ebba25356d",
    MergeMode.EVENT_TIME_ORDERING: "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
}
_PAYLOAD_PACKAGE = "org.apache.hudi.common.model."
PAYLOADS: Final[dict[MergeMode, str]] = {
    MergeMode.COMMIT_TIME_ORDERING: _PAYLOAD_PACKAGE + "OverwriteWithLatestAvroPayload",
    MergeMode.EVENT_TIME_ORDERING: _PAYLOAD_PACKAGE + "DefaultHoodieRecordPayload",
}
_MODE_OF_PAYLOAD: Final = {name.rsplit(".", 1)[-1]: mode for name, mode in PAYLOAD_MODES.items()}
#: Partitions of the metadata table that lakefmt keeps, and how the names of further ones begin.
#: Those that hold of a table with bootstrapped base files, whose other columns Hudi does not look at for the rest.
BOOTSTRAP_PARTITIONS: Final = frozenset({"files", "record_index"})
_KEPT_PARTITIONS = frozenset({"files", "column_stats", "bloom_filters", "record_index", "partition_stats"})
_KEPT_PREFIXES = ("secondary_index_", "expr_index_")


@dataclass(frozen=True)
class TableConfig:
    """Typed table properties.

    Attributes:
        ordering_fields: the larger value wins; empty: the later write wins.
        metadata_partitions: partitions of the metadata table that readers use, also those under
            construction.
        bootstrap_path: where the files with the rows of bootstrapped base files are; empty: the table has no such files.
        properties: all properties as text.
    """

    name: str
    database: str | None
    table_type: TableType
    version: TableVersion
    record_key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    ordering_fields: tuple[str, ...]
    merge_mode: MergeMode
    create_schema: str | None
    metadata_partitions: tuple[str, ...]
    utc_timeline: bool
    populate_meta_fields: bool
    drop_partition_columns: bool
    bootstrap_path: str
    properties: Mapping[str, str]

    @cached_property
    def timeline_directory(self) -> str:
        """The directory of the active timeline relative to the table."""
        if self.version.layout == 1:
            return ".hoodie"
        return f".hoodie/{self.properties.get('hoodie.timeline.path') or 'timeline'}"

    @property
    def history_directory(self) -> str:
        """The directory of the archived timeline relative to the table."""
        if self.version.layout == 1:
            return f".hoodie/{self.properties.get('hoodie.archivelog.folder') or 'archived'}"
        # Hudi's upgrade from version 6 does not write it (docs/format.md, Property keys).
        return f"{self.timeline_directory}/{self.properties.get('hoodie.timeline.history.path') or 'history'}"

    @property
    def zone(self) -> tzinfo | None:
        """The zone of instant times: UTC, or None for the machine's local zone."""
        return UTC if self.utc_timeline else None

    @cached_property
    def stores_every_column(self) -> bool:
        """Whether base files hold all columns: meta columns with values, and the partition columns."""
        return self.populate_meta_fields and not self.drop_partition_columns

    @property
    def is_partitioned(self) -> bool:
        """Whether the table has partition columns."""
        return bool(self.partition_fields)


def parse_table_config(properties: Mapping[str, str]) -> TableConfig:
    """Return typed table properties.

    Raises:
        CorruptFile: name or type is missing or not valid.
        UnsupportedVersion: the version is not 6, 8 or 9, or the timeline layout does not match it.
        UnsafePath: a timeline directory leaves the table.

    Example:
        >>> parse_table_config({"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE",
        ...     "hoodie.table.version": "8", "hoodie.timeline.layout.version": "2"}).timeline_directory
        '.hoodie/timeline'
    """
    return _parse_properties(tuple(properties.items()))


@lru_cache(maxsize=16)
def _parse_properties(items: tuple[tuple[str, str], ...]) -> TableConfig:
    # Cached: a commit parses the same properties five times.
    properties = dict(items)
    name, type_name = properties.get("hoodie.table.name"), properties.get("hoodie.table.type")
    if not name or type_name not in TableType.__members__:
        raise CorruptFile("hoodie.properties lacks hoodie.table.name or a valid hoodie.table.type")
    version = TableVersion.parse(properties.get("hoodie.table.version", "0"))
    layout = properties.get("hoodie.timeline.layout.version", "1")
    if layout != str(version.layout):
        raise UnsupportedVersion(
            f"table version {version.value} with timeline layout {layout} is not supported: "
            f"version {version.value} has layout {version.layout}; restore hoodie.properties"
        )
    _check_directories(properties)
    ordering = _names_in(properties, "hoodie.table.ordering.fields") or _names_in(
        properties, "hoodie.table.precombine.field"
    )
    return TableConfig(
        name=name,
        database=properties.get("hoodie.database.name"),
        table_type=TableType(type_name),
        version=version,
        record_key_fields=_names_in(properties, "hoodie.table.recordkey.fields"),
        partition_fields=_names_in(properties, "hoodie.table.partition.fields"),
        ordering_fields=ordering,
        merge_mode=_merge_mode_of(properties, ordering),
        create_schema=properties.get("hoodie.table.create.schema") or None,
        metadata_partitions=_metadata_partitions_of(properties),
        utc_timeline=properties.get("hoodie.table.timeline.timezone", "LOCAL").upper() == "UTC",
        populate_meta_fields=_flag_in(properties, "hoodie.populate.meta.fields", True),
        drop_partition_columns=_flag_in(properties, "hoodie.datasource.write.drop.partition.columns", False),
        bootstrap_path=properties.get("hoodie.bootstrap.base.path") or "",
        properties=dict(properties),
    )


def _check_directories(properties: Mapping[str, str]) -> None:
    for key in ("hoodie.timeline.path", "hoodie.timeline.history.path", "hoodie.archivelog.folder"):
        directory = properties.get(key) or "default"
        if "\x00" in directory or not {"", ".", ".."}.isdisjoint(directory.split("/")):
            raise UnsafePath(f"hoodie.properties: {key}={directory!r} is not a plain path below the table; correct it")


def _names_in(properties: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in properties.get(key, "").split(",") if part.strip())


def _flag_in(properties: Mapping[str, str], key: str, default: bool) -> bool:
    value = properties.get(key, "")
    return value.lower() == "true" if value else default


def _metadata_partitions_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    # An empty value means absent: a JVM write without metadata table leaves the key behind
    # (docs/format.md, Metadata table).
    ready = _names_in(properties, "hoodie.table.metadata.partitions")
    building = _names_in(properties, "hoodie.table.metadata.partitions.inflight")
    return tuple(dict.fromkeys((*ready, *building)))


def _merge_mode_of(properties: Mapping[str, str], ordering: tuple[str, ...]) -> MergeMode:
    stated = properties.get("hoodie.record.merge.mode", "").upper()
    if stated in MergeMode.__members__:
        return MergeMode(stated)
    payload = properties.get("hoodie.compaction.payload.class", "").rsplit(".", 1)[-1]
    if payload and payload not in _MODE_OF_PAYLOAD:
        return MergeMode.CUSTOM
    mode = _MODE_OF_PAYLOAD.get(payload, MergeMode.EVENT_TIME_ORDERING)
    return mode if ordering else MergeMode.COMMIT_TIME_ORDERING


def merge_rule(config: TableConfig) -> MergeRule:
    """Return the table's merge rule.

    Raises:
        UnsupportedFeature: lakefmt does not know the rule.
        MergerMissing: the merge function is not registered in this process.

    Example:
        >>> config = parse_table_config({"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE",
        ...     "hoodie.table.version": "6", "hoodie.table.precombine.field": "ts",
        ...     "hoodie.compaction.payload.class": "org.apache.hudi.common.model.PartialUpdateAvroPayload"})
        >>> merge_rule(config).partial.mode.value, merge_rule(config).stored.fields
        ('IGNORE_NULLS', ('ts',))
    """
    strategy = config.properties.get("hoodie.record.merge.strategy.id") or PAYLOAD_STRATEGY
    if config.merge_mode is MergeMode.CUSTOM and strategy != PAYLOAD_STRATEGY:
        keys = (*config.record_key_fields, *config.partition_fields)
        fixed = tuple(dict.fromkeys(name.split(":", 1)[0].split(".", 1)[0] for name in keys))
        return MergeRule(custom=replace(find_merger(strategy), fixed=fixed))
    return plan_merge_rule(config.properties, config.merge_mode, config.ordering_fields)


def check_merger(config: TableConfig, options: Mapping[str, object]) -> None:
    """Raise if the options name another merge function than the table.

    Raises:
        InvalidInputError: the names differ.
    """
    name = options.get(FUNCTION)
    stated = config.properties.get("hoodie.record.merge.strategy.id", "")
    if name and stated != strategy_id(str(name)):
        how = f"by merger {stated}" if config.merge_mode is MergeMode.CUSTOM else f"by {config.merge_mode.value}"
        raise InvalidInputError(f"{FUNCTION}={name} is merger {strategy_id(str(name))}; the table merges {how}")


def check_readable(config: TableConfig) -> None:
    """Raise if lakefmt would read this table wrongly.

    Raises:
        UnsupportedFeature: another base file format, native logs, or a bootstrap table.
    """
    properties = config.properties
    base_format = properties.get("hoodie.table.base.file.format", "PARQUET").upper()
    if base_format != "PARQUET":
        raise UnsupportedFeature(f"base files of format {base_format} are not supported, only PARQUET")
    if config.bootstrap_path and not _has_bootstrap_index(properties):
        raise UnsupportedFeature(
            "the table is bootstrapped, and which files have its rows is not told by Hudi's index of HFiles "
            "(hoodie.bootstrap.index.enable, hoodie.bootstrap.index.class, hoodie.bootstrap.index.type)"
        )
    if properties.get("hoodie.table.storage.layout"):
        raise UnsupportedFeature("hoodie.table.storage.layout belongs to table version 10, which is not supported")
    if _flag_in(properties, "hoodie.table.multiple.base.file.formats.enable", False):
        raise UnsupportedFeature("tables with several base file formats are not supported")


def check_writable(config: TableConfig) -> None:
    """Raise if lakefmt cannot maintain a feature that other readers rely on.

    Raises:
        MetadataTablePresent: the table has a metadata table or index.
        UnsupportedFeature: another feature that lakefmt does not write.
    """
    check_readable(config)
    properties = config.properties
    unkept = [name for name in config.metadata_partitions if not _is_kept_partition(name)]
    if unkept:
        raise MetadataTablePresent(
            f"the table's metadata table has {', '.join(unkept)}, which lakefmt does not keep; rows written past it would "
            "be missed by readers that use it. Drop that index with the engine that made it, or write with "
            "options={'hoodie.metadata.enable': 'false'} to drop the whole metadata table first, as Hudi itself does"
        )
    check_bootstrap_indexes(config, config.metadata_partitions)
    merge_rule(config)
    if config.table_type is TableType.MERGE_ON_READ:
        _check_logs_writable(config)
    _check_keys_stored(config)
    if cdc_mode(properties) is not None and not config.stores_every_column:
        raise UnsupportedFeature(
            "hoodie.table.cdc.enabled=true is not written for tables without meta columns or with dropped partition columns"
        )


def _has_bootstrap_index(properties: Mapping[str, str]) -> bool:
    """Return whether Hudi's index of HFiles says which files have the rows of bootstrapped base files."""
    class_name = properties.get("hoodie.bootstrap.index.class", "")
    return (
        _flag_in(properties, "hoodie.bootstrap.index.enable", True)
        and class_name.rpartition(".")[2] in ("", "HFileBootstrapIndex")
        and properties.get("hoodie.bootstrap.index.type", "HFILE").upper() == "HFILE"
    )


def _is_kept_partition(partition: str) -> bool:
    return partition in _KEPT_PARTITIONS or partition.startswith(_KEPT_PREFIXES)


def check_bootstrap_indexes(config: TableConfig, partitions: Iterable[str]) -> None:
    """Raise for partitions of the metadata table that Hudi fills from bootstrapped base files as if meta columns were all they had.

    Args:
        config: the table's properties.
        partitions: that it has, or is to have.

    Raises:
        UnsupportedFeature: the table is bootstrapped, and has one.
    """
    if config.bootstrap_path and (wrong := [name for name in partitions if name not in BOOTSTRAP_PARTITIONS]):
        raise UnsupportedFeature(
            f"the table is bootstrapped, and {', '.join(wrong)} of its metadata table knows only the meta columns of bootstrapped "
            "base files: drop it with the engine that made it, or write with options={'hoodie.metadata.enable': 'false'} to "
            "drop the whole metadata table first, as Hudi itself does"
        )


class CdcMode(enum.Enum):
    """The supplemental logging modes of change files (docs/format.md, Change files)."""

    OP_KEY_ONLY = "OP_KEY_ONLY"
    DATA_BEFORE = "DATA_BEFORE"
    DATA_BEFORE_AFTER = "DATA_BEFORE_AFTER"


def cdc_mode(properties: Mapping[str, str]) -> CdcMode | None:
    """Return the supplemental logging mode; None without change capture (docs/format.md, Change files).

    Raises:
        UnsupportedFeature: an unknown logging mode.

    Example:
        >>> cdc_mode({"hoodie.table.cdc.enabled": "true"}).value, cdc_mode({})
        ('DATA_BEFORE_AFTER', None)
    """
    if not _flag_in(properties, "hoodie.table.cdc.enabled", False):
        return None
    mode_name = properties.get("hoodie.table.cdc.supplemental.logging.mode") or CdcMode.DATA_BEFORE_AFTER.value
    try:
        return CdcMode(mode_name.upper())  # lower case in tables of old releases
    except ValueError:
        modes = ", ".join(mode.value for mode in CdcMode)
        raise UnsupportedFeature(
            f"hoodie.table.cdc.supplemental.logging.mode={mode_name!r} is not known: expected one of {modes}"
        ) from None


def _check_keys_stored(config: TableConfig) -> None:
    if not config.populate_meta_fields and not config.record_key_fields:
        raise UnsupportedFeature(
            "hoodie.populate.meta.fields=false needs a record key: generated keys are stored in a meta column only"
        )


def _check_logs_writable(config: TableConfig) -> None:
    log_format = config.properties.get("hoodie.table.log.file.format") or "HOODIE_LOG"
    if log_format.upper() != "HOODIE_LOG":
        raise UnsupportedFeature(f"logs of format {log_format} are not written, only HOODIE_LOG")


# -------------------------------------------------------------------------------------------------- tables without keys


@dataclass(frozen=True, slots=True)
class AppendLayout:
    """Where rows of an append table go.

    Attributes:
        ordered: rows of a bucket keep the order in which they were written.
        bucket_key: the columns that tell a row's bucket; none: there is one bucket.
        buckets: how many there are.
    """

    ordered: bool = False
    bucket_key: tuple[str, ...] = ()
    buckets: int = 1


def append_layout(properties: Mapping[str, str]) -> AppendLayout | None:
    """Return where rows of a table go; None: it is no append table.

    Raises:
        CorruptFile: the properties name an order or a number of buckets that there is not.

    Example:
        >>> append_layout({"lakefmt.table.kind": "append"}), append_layout({})
        (AppendLayout(ordered=False, bucket_key=(), buckets=1), None)
    """
    if properties.get(KIND) != "append":
        return None
    order, buckets = properties.get(ORDER, "none"), properties.get(BUCKETS, "1")
    if (
        order not in ("none", "per_bucket")
        or not buckets.isascii()
        or not buckets.isdigit()
        or not 0 < len(buckets) < 8
    ):
        raise CorruptFile(
            f"the table's properties {ORDER}={order[:40]} and {BUCKETS}={buckets[:40]} are not understood"
        )
    columns = comma_separated(properties.get(BUCKET_KEY, ""))
    return AppendLayout(order == "per_bucket", columns, max(1, int(buckets)))
