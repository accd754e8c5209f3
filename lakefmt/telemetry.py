"""Metrics of OpenTelemetry from lakefmt's events (``lakefmt[otel]``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from lakefmt.errors import UnsupportedFeature
from lakefmt.events import Event, subscribe

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

__all__ = ["instrument"]

#: Facts of events that are added up, with the metric's name and unit.
_SUMS: Final = {
    "num_inserts": ("lakefmt.rows.inserted", "{row}"),
    "num_updates": ("lakefmt.rows.updated", "{row}"),
    "num_deletes": ("lakefmt.rows.deleted", "{row}"),
    "num_late": ("lakefmt.rows.late", "{row}"),
    "num_files": ("lakefmt.files.written", "{file}"),
    "bytes_written": ("lakefmt.bytes.written", "By"),
}
#: Facts that tell events apart in a metric. Instants would make one series each.
_LABELS: Final = ("action", "operation")


def instrument(meter: Meter | None = None) -> Callable[[], None]:
    """Count the events of this process as metrics of OpenTelemetry, and return a function that ends this.

    ``lakefmt.events`` counts them by name and table, ``lakefmt.event.duration`` has their seconds, and ``lakefmt.rows.*``,
    ``lakefmt.files.written`` and ``lakefmt.bytes.written`` what commits wrote.

    Args:
        meter: makes the instruments; None: that of the global provider.

    Raises:
        UnsupportedFeature: ``opentelemetry-api`` is not installed.

    Example:
        >>> import lakefmt.telemetry
        >>> end = lakefmt.telemetry.instrument()
        >>> end()
    """
    if meter is None:
        try:
            from opentelemetry.metrics import get_meter
        except ImportError:
            raise UnsupportedFeature(
                "metrics of OpenTelemetry need lakefmt[otel]: pip install 'lakefmt[otel]'"
            ) from None
        meter = get_meter("lakefmt")
    events = meter.create_counter("lakefmt.events", "{event}")
    durations = meter.create_histogram("lakefmt.event.duration", "s")
    sums = {fact: meter.create_counter(name, unit) for fact, (name, unit) in _SUMS.items()}

    def record(event: Event) -> None:
        labels = _labels(event)
        events.add(1, labels)
        seconds = event.facts.get("seconds")
        if isinstance(seconds, int | float):
            durations.record(seconds, labels)
        for fact, counter in sums.items():
            value = event.facts.get(fact)
            if isinstance(value, int):
                counter.add(value, labels)

    return subscribe(record)


def _labels(event: Event) -> Mapping[str, str]:
    facts = {name: str(event.facts[name]) for name in _LABELS if event.facts.get(name) is not None}
    return {"event": event.name, "table": event.table, **facts}
