"""How a table makes record keys and partition paths, as a value (spec 4.6–4.9). Pure.

Rules of residence: names and types; neither properties (``keys_properties``) nor columns (``keys_build``) are looked
at here. Whatever a table says that cannot be reproduced is kept as :attr:`KeySpec.unsupported`: such a table can still
be read.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final, Literal

from lakefmt.errors import UnknownSetting
from lakefmt.keys._time_zones import find_zone
from lakefmt.keys.joda import compile_pattern

__all__ = ["KeyGeneratorType", "KeySpec", "PartitionField", "TimestampSpec", "TimestampType", "with_sampled_key"]

_PACKAGE: Final = "org.apache.hudi.keygen."
_UNITS: Final = frozenset({"NANOSECONDS", "MICROSECONDS", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS"})


class KeyGeneratorType(enum.Enum):
    """Which of Hudi's generators makes the keys; ``.value`` is the class without its package."""

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
        """The Java class that version 6 tables name."""
        return str(self.value) if self is KeyGeneratorType.USER_PROVIDED else f"{_PACKAGE}{self.value}"

    @classmethod
    def parse(cls, text: str) -> KeyGeneratorType:
        """Return the generator named `text`: a type (``SIMPLE``, ``SIMPLE_AVRO``) or a Java class, Avro twins too.

        Raises:
            UnknownSetting: it is none of Hudi's.

        Example:
            >>> KeyGeneratorType.parse("org.apache.hudi.keygen.ComplexAvroKeyGenerator").name
            'COMPLEX'
        """
        found = cls.__members__.get(text.strip().upper().removesuffix("_AVRO"))
        if found is None:
            # The Avro twins have the word somewhere inside: GlobalAvroDeleteKeyGenerator.
            name = text.strip().removeprefix(_PACKAGE).replace("Avro", "", 1)
            found = next((each for each in cls if each.value == name), None)
        if found is None:
            raise UnknownSetting(f"{text!r} is not a key generator of Hudi")
        return found


class TimestampType(enum.Enum):
    """What the column of a timestamp based partition holds (spec 4.9)."""

    UNIX_TIMESTAMP = "SECONDS"
    EPOCHMILLISECONDS = "MILLISECONDS"
    EPOCHMICROSECONDS = "MICROSECONDS"
    SCALAR = ""
    DATE_STRING = "text"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class TimestampSpec:
    """How a timestamp based partition turns values into text (spec 4.9).

    Attributes:
        output_format: a Joda pattern.
        type: what the column holds.
        scalar_unit: Java's time unit of a ``SCALAR`` column.
        input_formats: Joda patterns of a ``DATE_STRING`` column; the first that fits counts.
        input_timezone: the zone of texts without an offset; None: UTC.
        output_timezone: the zone of the partitions; None: the input's own, or UTC.
    """

    output_format: str
    type: TimestampType
    scalar_unit: str = "SECONDS"
    input_formats: tuple[str, ...] = ()
    input_timezone: str | None = None
    output_timezone: str | None = None

    def __post_init__(self) -> None:
        if not self.output_format:
            raise UnknownSetting("hoodie.keygen.timebased.output.dateformat is missing: for example yyyy/MM/dd")
        if self.scalar_unit not in _UNITS:
            raise UnknownSetting(f"{self.scalar_unit!r} is no time unit: {', '.join(sorted(_UNITS))}")
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
        """The names of the zones, as the settings have them."""
        return tuple(zone for zone in (self.input_timezone, self.output_timezone) if zone is not None)

    @property
    def unit(self) -> str | None:
        """Java's time unit of a column of numbers; None for one of texts."""
        if self.type in (TimestampType.DATE_STRING, TimestampType.MIXED):
            return None
        return self.type.value or self.scalar_unit


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One level of the partition path: a column's own value, or the time it stands for."""

    name: str
    kind: Literal["simple", "timestamp"] = "simple"
    timestamp: TimestampSpec | None = None


@dataclass(frozen=True, slots=True)
class KeySpec:
    """How a table makes record keys and partition paths.

    Attributes:
        record_key_fields: empty when keys are generated.
        complex_single_prefixed: for a complex generator with one key field: keys are ``field:value``; None: not known,
            a stored key has to be looked at (:func:`with_sampled_key`; spec 4.7).
        consistent_logical_timestamps: times in keys are formatted, not numbers.
        unsupported: why keys and paths cannot be made here; empty when they can.
    """

    record_key_fields: tuple[str, ...]
    partition_fields: tuple[PartitionField, ...]
    generator: KeyGeneratorType
    hive_style: bool = True
    url_encode: bool = True
    complex_single_prefixed: bool | None = None
    consistent_logical_timestamps: bool = False
    unsupported: str = ""

    @property
    def auto_keys(self) -> bool:
        """True when rows have no key of their own and one is generated."""
        return not self.record_key_fields

    @property
    def prefixed(self) -> bool | None:
        """Whether keys read ``field:value``; None when only a stored key can tell."""
        if len(self.record_key_fields) > 1:
            return True
        is_complex = self.generator in (KeyGeneratorType.COMPLEX, KeyGeneratorType.GLOBAL_DELETE)
        return self.complex_single_prefixed if is_complex else False


def with_sampled_key(spec: KeySpec, stored_key: str) -> KeySpec:
    """Return `spec` with the form of single-field complex keys as `stored_key` shows it (spec 4.7).

    Example:
        >>> spec = KeySpec(("id",), (), KeyGeneratorType.COMPLEX)
        >>> with_sampled_key(spec, "id:7").complex_single_prefixed
        True
    """
    if len(spec.record_key_fields) != 1:
        return spec
    return replace(spec, complex_single_prefixed=stored_key.startswith(f"{spec.record_key_fields[0]}:"))
