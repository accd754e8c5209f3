"""The profile of a table (its size, its keys, what a usual commit does), and how a table can be set up. Pure.

A choice is a table's type, its index, its logs, its services and the size of its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, Final

from lakefmt._core.arguments import number_argument
from lakefmt._core.data_classes import dataclass, replace
from lakefmt.errors import InvalidInputError

__all__ = [
    "DEFAULT_FILE_BYTES",
    "GLOBAL_INDEXES",
    "INDEXES",
    "TableChoice",
    "TableProfile",
]

#: What ``hoodie.parquet.max.file.size`` is unless it is set.
DEFAULT_FILE_BYTES: Final = 120 << 20
#: Indexes by which a key is unique in its partition.
INDEXES: Final = ("bloom", "simple", "bucket")
#: Indexes by which a key is unique in the table.
GLOBAL_INDEXES: Final = ("global_bloom", "global_simple", "record")
_OTHER_INDEXES: Final = ("partitioned_record",)
_TABLE_TYPES: Final = ("cow", "mor")
_LOG_FORMATS: Final = ("avro", "parquet")
_MOST_BUCKETS: Final = 65_536
_INDEX_SETTINGS: Final = {"record": "GLOBAL_RECORD_LEVEL_INDEX", "partitioned_record": "RECORD_LEVEL_INDEX"}
_MOST_COUNT: Final = 1 << 50
_SHARE_FIELDS: Final = ("update_share", "delete_share", "hot_share", "late_share")


@dataclass(frozen=True)
class TableChoice:
    """One way to set a table up.

    Attributes:
        table_type: ``"cow"`` or ``"mor"``.
        index: an index of docs/index.md.
        log_format: format of log blocks of a merge-on-read table, ``"avro"`` or ``"parquet"``.
        compact_after: deltacommits after which logs are compacted; 0: never.
        file_bytes: ``hoodie.parquet.max.file.size``.
        buckets: of each partition, for the index ``"bucket"``.
        metadata: whether the table has a metadata table with statistics and bloom filters that the index asks.
        cluster_by: columns that clustering orders rows by; empty: no clustering.
        cluster_order: ``"linear"``, ``"zorder"`` or ``"hilbert"``.
        cluster_after: commits after which a clustering runs.

    Raises:
        InvalidInputError: a value is none of these.

    Example:
        >>> print(TableChoice("mor", "bucket", compact_after=5, buckets=4))
        mor, bucket index of 4, Avro logs compacted after 5 commits
    """

    table_type: str = "cow"
    index: str = "bloom"
    log_format: str = "avro"
    compact_after: int = 0
    file_bytes: int = DEFAULT_FILE_BYTES
    buckets: int = 0
    metadata: bool = False
    cluster_by: tuple[str, ...] = ()
    cluster_order: str = "linear"
    cluster_after: int = 0

    def __post_init__(self) -> None:
        _check_one_of(self.table_type, _TABLE_TYPES, "table_type")
        _check_one_of(self.index, (*INDEXES, *GLOBAL_INDEXES, *_OTHER_INDEXES), "index")
        _check_one_of(self.log_format, _LOG_FORMATS, "log_format")
        _check_one_of(self.cluster_order, ("linear", "zorder", "hilbert"), "cluster_order")
        for name in ("compact_after", "buckets", "cluster_after"):
            check_count(getattr(self, name), name, 0, _MOST_BUCKETS)
        check_count(self.file_bytes, "file_bytes", 1024, 1 << 50)
        check_names_tuple(self.cluster_by, "cluster_by")

    def __str__(self) -> str:
        index = f"bucket index of {self.buckets}" if self.index == "bucket" else f"{self.index} index"
        parts = [self.table_type, index]
        if self.table_type == "mor":
            logs = "Avro logs" if self.log_format == "avro" else "Parquet logs"
            parts.append(f"{logs} compacted after {self.compact_after} commits" if self.compact_after else logs)
        if self.file_bytes != DEFAULT_FILE_BYTES and self.index != "bucket":
            parts.append(f"files of {self.file_bytes / (1 << 20):.3g} MiB")
        if self.metadata:
            parts.append("metadata table")
        if self.cluster_by:
            parts.append(f"clustered by {', '.join(self.cluster_by)} after {self.cluster_after} commits")
        return ", ".join(parts)

    @property
    def is_global(self) -> bool:
        """Whether a key is unique in the table, not only in its partition."""
        return self.index in GLOBAL_INDEXES

    @property
    def creation(self) -> dict[str, object]:
        """The arguments of :func:`lakefmt.create_table` that make such a table."""
        arguments: dict[str, object] = {"table_type": self.table_type, "index": self.index}
        if self.index == "bucket":
            arguments["properties"] = {"hoodie.bucket.index.num.buckets": str(self.buckets or 1)}
        if self.metadata:
            arguments["indexes"] = ["files", "column_stats", "bloom_filters"]
        return arguments

    @property
    def settings(self) -> dict[str, str]:
        """The settings of writes, by Hudi's names."""
        settings: dict[str, str] = {}
        if self.index != "bucket":
            settings["hoodie.index.type"] = _INDEX_SETTINGS.get(self.index, self.index.upper())
            settings["hoodie.parquet.max.file.size"] = str(self.file_bytes)
        if self.metadata:
            settings["hoodie.bloom.index.use.metadata"] = "true"
        if self.table_type == "mor":
            settings["hoodie.logfile.data.block.format"] = self.log_format
            settings["hoodie.compact.inline"] = "true" if self.compact_after else "false"
            if self.compact_after:
                settings["hoodie.compact.inline.max.delta.commits"] = str(self.compact_after)
        if self.cluster_by:
            settings["hoodie.clustering.inline"] = "true"
            settings["hoodie.clustering.inline.max.commits"] = str(max(1, self.cluster_after))
            settings["hoodie.clustering.plan.strategy.sort.columns"] = ",".join(self.cluster_by)
            settings["hoodie.layout.optimize.strategy"] = self.cluster_order
        return settings

    def as_json(self) -> dict[str, Any]:
        """Return the choice as JSON holds it."""
        return {
            field.name: list(value) if isinstance(value := getattr(self, field.name), tuple) else value
            for field in fields(self)
        }

    @classmethod
    def from_json(cls, document: object) -> TableChoice:
        """Return the choice that :meth:`as_json` wrote.

        Raises:
            InvalidInputError: it is not one.
        """
        values = checked_fields(cls, document, "a choice")
        if isinstance(values.get("cluster_by"), list):
            values["cluster_by"] = tuple(values["cluster_by"])
        return cls(**values)


@dataclass(frozen=True)
class TableProfile:
    """What a table holds and how it is written and read.

    Attributes:
        rows: of the table.
        row_bytes: bytes of a row in base files.
        partitions: of the table.
        key_bytes: length of a record key.
        rising_keys: whether later rows have larger keys, so that files have different key ranges.
        batch_rows: rows of a usual commit.
        update_share: the share of these whose keys are stored already.
        delete_share: keys that a usual commit deletes, as a share of its rows.
        batch_partitions: partitions that a usual commit writes to.
        hot_share: the share of a commit's rows in the partition that gets most of them (skew).
        late_share: the share of a commit's rows outside of the newest partition.
        commits_per_day: how often rows come.
        reads_per_commit: full reads between two commits; no commit tells it.
        filter_columns: columns that filters of readers name; no commit tells them.
        filter_share: the share of rows that such a filter keeps.
        today: how the table is set up.
        version: table version.

    Raises:
        InvalidInputError: a number is outside of what it can be.

    Example:
        >>> profile = TableProfile(rows=1_000_000, batch_rows=10_000, update_share=0.9)
        >>> profile.scaled(100_000).batch_rows
        1000
    """

    rows: int
    row_bytes: float = 100.0
    partitions: int = 1
    key_bytes: int = 36
    rising_keys: bool = False
    batch_rows: int = 1000
    update_share: float = 0.5
    delete_share: float = 0.0
    batch_partitions: float = 1.0
    hot_share: float = 1.0
    late_share: float = 0.0
    commits_per_day: float = 24.0
    reads_per_commit: float = 1.0
    filter_columns: tuple[str, ...] = ()
    filter_share: float = 0.01
    today: TableChoice = field(default_factory=TableChoice)
    version: int = 8

    def __post_init__(self) -> None:
        check_count(self.rows, "rows", 0, _MOST_COUNT)
        check_count(self.partitions, "partitions", 1, _MOST_COUNT)
        check_count(self.key_bytes, "key_bytes", 1, 1 << 20)
        check_count(self.batch_rows, "batch_rows", 1, _MOST_COUNT)
        number_argument(self.row_bytes, "row_bytes", 0.01, float(1 << 40))
        for name in (*_SHARE_FIELDS, "filter_share"):
            number_argument(getattr(self, name), name, 0.0, 1.0)
        number_argument(self.batch_partitions, "batch_partitions", 1.0, float(_MOST_COUNT))
        number_argument(self.commits_per_day, "commits_per_day", 0.0, 1e9)
        number_argument(self.reads_per_commit, "reads_per_commit", 0.0, 1e6)
        if not isinstance(self.rising_keys, bool):
            raise InvalidInputError("rising_keys must be true or false")
        check_names_tuple(self.filter_columns, "filter_columns")
        if not isinstance(self.today, TableChoice):
            raise InvalidInputError("today must be a TableChoice")

    def scaled(self, rows: int) -> TableProfile:
        """Return the profile of a table of `rows` rows that is written and read likewise."""
        check_count(rows, "rows", 1, _MOST_COUNT)
        factor = rows / max(1, self.rows)
        return replace(self, rows=rows, batch_rows=max(1, round(self.batch_rows * factor)))

    @property
    def spread(self) -> list[tuple[float, float]]:
        """How a usual commit meets partitions: pairs of a number of partitions and the rows that each of them gets."""
        other_partitions = min(self.batch_partitions, float(self.partitions)) - 1.0
        if other_partitions <= 0:
            return [(1.0, float(self.batch_rows))]
        hot = max(self.hot_share, 1.0 / (other_partitions + 1.0))
        rest = self.batch_rows * (1.0 - hot) / other_partitions
        return [(1.0, self.batch_rows * hot), (other_partitions, rest)]

    def as_json(self) -> dict[str, Any]:
        """Return the profile as JSON holds it."""
        document: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        return document | {"filter_columns": list(self.filter_columns), "today": self.today.as_json()}

    @classmethod
    def from_json(cls, document: object) -> TableProfile:
        """Return the profile that :meth:`as_json` wrote.

        Raises:
            InvalidInputError: it is not one.
        """
        values = checked_fields(cls, document, "a profile")
        if "rows" not in values:
            raise InvalidInputError("a profile needs rows")
        if isinstance(values.get("filter_columns"), list):
            values["filter_columns"] = tuple(values["filter_columns"])
        if "today" in values:
            values["today"] = TableChoice.from_json(values["today"])
        return cls(**values)


def _check_one_of(value: object, allowed: tuple[str, ...], name: str) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidInputError(f"unknown {name} {value!r}: expected one of {', '.join(allowed)}")


def check_count(value: object, name: str, least: int, most: int) -> int:
    """Return a whole number within bounds.

    Raises:
        InvalidInputError: it is none, or outside.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidInputError(f"{name} must be a whole number from {least:,} to {most:,}")
    return value


def check_names_tuple(value: object, name: str) -> None:
    """Raise unless a value is a tuple of texts."""
    if not isinstance(value, tuple) or not all(isinstance(each, str) for each in value):
        raise InvalidInputError(f"{name} must be a tuple of column names")


def checked_fields(data_class: type, document: object, what: str) -> dict[str, Any]:
    """Return the fields of a JSON object for a dataclass.

    Raises:
        InvalidInputError: it is no object, or has other fields.
    """
    if not isinstance(document, Mapping):
        raise InvalidInputError(f"{what} must be a JSON object")
    names = {field.name for field in fields(data_class)}
    unknown = sorted(str(name) for name in document if name not in names)
    if unknown:
        raise InvalidInputError(f"{what} has unknown fields: {', '.join(unknown[:5])}")
    return dict(document)
