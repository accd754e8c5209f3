"""Which properties of a stream are about conversions, which are the SDK's, and which are settings of commits (pure)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lakefmt.config.settings import resolve_settings
from lakefmt.errors import InvalidInputError
from lakefmt.realtime._scalar_converters import ConversionNotes, ConversionRules

__all__ = ["conversion_rules", "split_properties"]

_LOG: Final = logging.getLogger("lakefmt.realtime")
_PREFIX: Final = "lakefmt.realtime."
#: Keys that the SDK's client reads and that mean nothing here.
_OF_THE_SDK: Final = frozenset(
    {
        "client.rpc.retry.times",
        "client.rpc.retry.interval.ms",
        "arrow.row.format.check",
        "mutation.buffer.memory.strict.mode",
        "row.pool.support",
        "row.pool.max.size",
        "arrow.compression.type",
        "arrow.compression.level",
    }
)


def split_properties(properties: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """Return the settings of conversions, and those of commits; the SDK's own are dropped with a debug line.

    Example:
        >>> split_properties({"lakefmt.realtime.json": "validate", "row.pool.support": True})
        ({'lakefmt.realtime.json': 'validate'}, {})
    """
    conversion = {key: value for key, value in properties.items() if key.startswith(_PREFIX)}
    unused = sorted(_OF_THE_SDK & properties.keys())
    if unused:
        _LOG.debug("properties %s mean nothing here: ignored", ", ".join(unused))
    return conversion, {
        key: value for key, value in properties.items() if key not in conversion and key not in _OF_THE_SDK
    }


def conversion_rules(properties: Mapping[str, object], table: str) -> ConversionRules:
    """Return how values become what a table stores.

    Args:
        properties: settings whose names begin with ``lakefmt.realtime.``.
        table: its name, for log lines.

    Raises:
        InvalidInputError: a setting is unknown or has another value than those it takes.
    """
    settings = resolve_settings(properties)

    def on_naive(zone: str) -> None:
        _LOG.warning("table %s: a TIMESTAMP_LTZ without a zone is taken in %s", table, zone)

    return ConversionRules(
        zone=_zone(settings.text("lakefmt.realtime.time.zone")),
        refuse_overlong=settings.text("lakefmt.realtime.overlong") == "refuse",
        validate_json=settings.text("lakefmt.realtime.json") == "validate",
        ignore_extra=settings.text("lakefmt.realtime.extra.fields") == "ignore",
        notes=ConversionNotes(on_naive=on_naive),
    )


def _zone(name: str | None) -> tzinfo:
    if name is None or name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInputError(
            f"lakefmt.realtime.time.zone: {name!r} is no time zone, such as Asia/Shanghai"
        ) from None
