"""Options of a stream, for the sink and for the source (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidInputError, UnknownSetting

__all__ = ["SinkOptions", "take_sink_options", "without_spark_options"]

_STREAMING: Final = "hoodie.datasource.write.streaming."
#: The names of one option.
_CLUSTERS: Final = ("hoodie.clustering.async.enabled", "hoodie.datasource.clustering.async.enable")
#: Options of a stream that are Spark's own.
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "failondataloss"})


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How the sink writes a batch.

    Attributes:
        identifier: tells the streams that write one table apart.
        attempts: how often a batch is tried.
        interval_ms: pause before the second attempt; each later one is twice as long.
        ignore_failed: a batch that fails every time is left out with a warning.
        compacts: merge-on-read tables are compacted beside the stream.
        clusters: tables are clustered beside the stream.
    """

    identifier: str = "default_single_writer"
    attempts: int = 3
    interval_ms: int = 2000
    ignore_failed: bool = False
    compacts: bool = True
    clusters: bool = False


def take_sink_options(options: Mapping[str, str]) -> tuple[SinkOptions, dict[str, str]]:
    """Return the sink's own options, and those of the write of each batch.

    Args:
        options: names in any case of letters.

    Raises:
        UnknownSetting: a value that an option does not take.
        InvalidInputError: an option is given twice, with two values.

    Example:
        >>> took, rest = take_sink_options({"checkpointLocation": "/c", "hoodie.table.name": "t",
        ...     "hoodie.datasource.write.streaming.retry.count": "5"})
        >>> took.attempts, rest
        (5, {'hoodie.table.name': 't'})
    """
    rest = without_spark_options(options)
    lowered = {name.lower(): name for name in rest}

    def take(name: str, default: str) -> str:
        written = lowered.get(name)
        return default if written is None else rest.pop(written)

    given = SinkOptions()
    identifier = take(f"{_STREAMING}checkpoint.identifier", given.identifier)
    attempts = _number(f"{_STREAMING}retry.count", take(f"{_STREAMING}retry.count", str(given.attempts)))
    interval = _number(f"{_STREAMING}retry.interval.ms", take(f"{_STREAMING}retry.interval.ms", str(given.interval_ms)))
    ignore = _flag(f"{_STREAMING}ignore.failed.batch", take(f"{_STREAMING}ignore.failed.batch", "false"))
    disabled = _flag(f"{_STREAMING}disable.compaction", take(f"{_STREAMING}disable.compaction", "false"))
    beside = _flag(
        "hoodie.datasource.compaction.async.enable", take("hoodie.datasource.compaction.async.enable", "true")
    )
    clusters = {_flag(name, take(name, "")) for name in _CLUSTERS if name in lowered}
    if len(clusters) > 1:
        raise InvalidInputError(f"the option {_CLUSTERS[0]} is given twice, with two values")
    if not identifier:
        raise UnknownSetting(f"{_STREAMING}checkpoint.identifier does not take an empty text")
    return SinkOptions(identifier, max(1, attempts), interval, ignore, beside and not disabled, any(clusters)), rest


def without_spark_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options but those by which Spark runs a query.

    Example:
        >>> without_spark_options({"checkpointLocation": "/c", "path": "/t"})
        {'path': '/t'}
    """
    return {name: value for name, value in options.items() if name.lower() not in _OF_SPARK}


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise UnknownSetting(f"{name} takes a number, not {text[:40]!r}")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise UnknownSetting(f"{name} takes true or false, not {text[:40]!r}")
    return text.lower() == "true"
