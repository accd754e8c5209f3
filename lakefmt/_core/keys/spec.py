"""Key generators and partition fields as values (docs/format.md, Key generators; Record keys). Pure.

Names and types only: ``properties`` parses table properties, ``generate`` reads columns. A property
that lakefmt does not support is kept as :attr:`KeySpec.unsupported`, so that the table can still be
read.

Partition fields by time are made by :func:`day` and its like: ``partition_by=lakefmt.day("ts")``.
"""

from __future__ import annotations

import enum
from dataclasses import field
from typing import Final, Literal

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.arguments import is_encodable, shown
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.schema.types import field_at, storage_type
from lakefmt.errors import InvalidKey, UnknownSetting

__all__ = [
    "KeyGeneratorType",
    "KeySpec",
    "PartitionField",
    "TimestampSpec",
    "TimestampType",
    "day",
    "hour",
    "month",
    "with_sampled_key",
    "year",
]

_KEYGEN_PACKAGE: Final = "org.apache.hudi.keygen."
_TIME_UNITS: Final = frozenset({"NANOSECONDS", "MICROSECONDS", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS"})


class KeyGeneratorType(enum.Enum):
    """Hudi's key generators; ``.value`` is the class without its package."""

    SIMPLE = "SimpleKeyGenerator"
    COMPLEX = "ComplexKeyGenerator"
    NON_PARTITION = "NonpartitionedKeyGenerator"
    TIMESTAMP = "TimestampBasedKeyGenerator"
    CUSTOM = "CustomKeyGenerator"
    GLOBAL_DELETE = "GlobalDeleteKeyGenerator"
    AUTO_RECORD = "AutoRecordGenWrapperKeyGenerator"
    USER_PROVIDED = "USER_PROVIDED_CLASS"

    @property
    def class_name(self) -> str:
        """The Java class in version 6 tables."""
        return str(self.value) if self is KeyGeneratorType.USER_PROVIDED else f"{_KEYGEN_PACKAGE}{self.value}"

    @classmethod
    def parse(cls, text: str) -> KeyGeneratorType:
        """Return the generator of a type (``SIMPLE``, ``SIMPLE_AVRO``) or a Java class, Avro forms included.

        Raises:
            UnknownSetting: not a generator of Hudi.

        Example:
            >>> KeyGeneratorType.parse("org.apache.hudi.keygen.ComplexAvroKeyGenerator").name
            'COMPLEX'
        """
        generator = cls.__members__.get(text.strip().upper().removesuffix("_AVRO"))
        if generator is None:
            # Avro classes have the word inside their name: GlobalAvroDeleteKeyGenerator.
            name = text.strip().removeprefix(_KEYGEN_PACKAGE).replace("Avro", "", 1)
            generator = next((each for each in cls if each.value == name), None)
        if generator is None:
            raise UnknownSetting(f"{text!r} is not a key generator of Hudi")
        return generator


class TimestampType(enum.Enum):
    """The content of a timestamp partition column (docs/format.md, Timestamp key generator)."""

    UNIX_TIMESTAMP = "SECONDS"
    EPOCHMILLISECONDS = "MILLISECONDS"
    EPOCHMICROSECONDS = "MICROSECONDS"
    SCALAR = ""
    DATE_STRING = "text"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class TimestampSpec:
    """How a timestamp partition formats values (docs/format.md, Timestamp key generator).

    Attributes:
        output_format: a Joda pattern.
        type: the content of the column.
        scalar_unit: Java ``TimeUnit`` of a ``SCALAR`` column.
        input_formats: Joda patterns of a ``DATE_STRING`` column; the first that matches is used.
        input_timezone: zone of texts without an offset; None: UTC.
        output_timezone: zone of the partitions; None: that of the input, or UTC.
    """

    output_format: str
    type: TimestampType
    scalar_unit: str = "SECONDS"
    input_formats: tuple[str, ...] = ()
    input_timezone: str | None = None
    output_timezone: str | None = None

    def __post_init__(self) -> None:
        from lakefmt._core.keys.joda import compile_pattern, find_zone

        if not self.output_format:
            raise UnknownSetting("hoodie.keygen.timebased.output.dateformat is missing: for example yyyy/MM/dd")
        if self.scalar_unit not in _TIME_UNITS:
            raise UnknownSetting(f"{self.scalar_unit!r} is no time unit: {', '.join(sorted(_TIME_UNITS))}")
        if self.unit is None and not self.input_formats:
            raise UnknownSetting(
                "hoodie.keygen.timebased.input.dateformat is missing: it says how the dates are written"
            )
        for pattern in (self.output_format, *self.input_formats):
            compile_pattern(pattern)
        for zone in self.zones:
            find_zone(zone)

    @property
    def zones(self) -> tuple[str, ...]:
        """The zone names of the settings."""
        return tuple(zone for zone in (self.input_timezone, self.output_timezone) if zone is not None)

    @property
    def unit(self) -> str | None:
        """Java ``TimeUnit`` of a numeric column; None for texts."""
        if self.type in (TimestampType.DATE_STRING, TimestampType.MIXED):
            return None
        return self.type.value or self.scalar_unit


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One level of the partition path: a column's value, or a formatted time."""

    name: str
    kind: Literal["simple", "timestamp"] = "simple"
    timestamp: TimestampSpec | None = None


@dataclass(frozen=True, slots=True)
class KeySpec:
    """How a table builds record keys and partition paths.

    Attributes:
        record_key_fields: empty if keys are generated.
        complex_single_prefixed: for a complex generator with one key field, whether keys are
            ``field:value``; None: unknown until a stored key is read (:func:`with_sampled_key`;
            docs/format.md, Complex keys of one field).
        consistent_logical_timestamps: timestamps in keys are formatted instead of numbers.
        unsupported: why lakefmt cannot build keys and paths; empty if it can.
        auto_keys: rows have no key columns and keys are generated.
        prefixed: keys are ``field:value``; None: only a stored key shows it.
    """

    record_key_fields: tuple[str, ...]
    partition_fields: tuple[PartitionField, ...]
    generator: KeyGeneratorType
    hive_style: bool = True
    url_encode: bool = True
    complex_single_prefixed: bool | None = None
    consistent_logical_timestamps: bool = False
    unsupported: str = ""
    auto_keys: bool = field(init=False, repr=False)
    prefixed: bool | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        is_complex = self.generator in (KeyGeneratorType.COMPLEX, KeyGeneratorType.GLOBAL_DELETE)
        of_one = self.complex_single_prefixed if is_complex else False
        object.__setattr__(self, "auto_keys", not self.record_key_fields)
        object.__setattr__(self, "prefixed", True if len(self.record_key_fields) > 1 else of_one)

    def has_times(self, schema: pa.Schema) -> bool:
        """Return whether keys or paths have times of `schema`: the properties may not tell the form of these."""
        names = (*self.record_key_fields, *(each.name for each in self.partition_fields))
        fields = [field_at(schema, name) for name in names]
        return any(each is not None and pt.is_timestamp(storage_type(each.type)) for each in fields)


def with_sampled_key(spec: KeySpec, stored_key: str) -> KeySpec:
    """Return `spec` with the form of single-field complex keys taken from a stored key.

    Example:
        >>> spec = KeySpec(("id",), (), KeyGeneratorType.COMPLEX)
        >>> with_sampled_key(spec, "id:7").complex_single_prefixed
        True
    """
    if len(spec.record_key_fields) != 1:
        return spec
    return replace(spec, complex_single_prefixed=stored_key.startswith(f"{spec.record_key_fields[0]}:"))


def year(column: str) -> str:
    """Return the partition field with one partition for each year of a timestamp or date column.

    Args:
        column: the column's name.

    Example:
        >>> year("ts")
        'ts:timestamp(yyyy)'
    """
    return _partition_by_period(column, "yyyy")


def month(column: str) -> str:
    """Return the partition field with one partition for each month: ``2026/01``.

    Args:
        column: the column's name.

    Example:
        >>> month("ts")
        'ts:timestamp(yyyy/MM)'
    """
    return _partition_by_period(column, "yyyy/MM")


def day(column: str) -> str:
    """Return the partition field with one partition for each day: ``2026/01/31``.

    Args:
        column: the column's name.

    Example:
        >>> day("ts")
        'ts:timestamp(yyyy/MM/dd)'
    """
    return _partition_by_period(column, "yyyy/MM/dd")


def hour(column: str) -> str:
    """Return the partition field with one partition for each hour: ``2026/01/31/23``.

    Args:
        column: the column's name.

    Example:
        >>> hour("ts")
        'ts:timestamp(yyyy/MM/dd/HH)'
    """
    return _partition_by_period(column, "yyyy/MM/dd/HH")


def _partition_by_period(column: object, pattern: str) -> str:
    is_name = isinstance(column, str) and is_encodable(column) and column.strip()
    if not is_name or any(mark in str(column) for mark in ":(),"):
        raise InvalidKey(f"{shown(column)} cannot be partitioned by time: the name of one column is expected")
    return f"{column}:timestamp({pattern})"
