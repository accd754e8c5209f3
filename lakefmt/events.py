"""What lakefmt does, as log records and for a program's own hook: commits, services, rollbacks, conflicts, retries, lock waits.

Records go to the logger ``lakefmt`` at INFO, requests to a store at DEBUG; the logger has a handler that prints nothing, so a
program sees them only when it asks for them. A record has the facts as attributes: ``record.event`` and ``record.facts``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from lakefmt._core.data_classes import dataclass

__all__ = ["Event", "emit", "subscribe"]

_LOGGER: Final = logging.getLogger("lakefmt")
_LOGGER.addHandler(logging.NullHandler())
_HOOKS: Final[list[Callable[[Event], object]]] = []


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a table.

    Attributes:
        name: ``commit``, ``service``, ``rollback``, ``savepoint``, ``conflict``, ``retry`` or ``lock_wait``.
        table: the table's URL, without secrets.
        facts: texts and numbers by name, such as ``instant``, ``operation``, ``num_inserts``, ``seconds``.
    """

    name: str
    table: str
    facts: Mapping[str, str | int | float | None]

    def __str__(self) -> str:
        facts = " ".join(f"{name}={value}" for name, value in self.facts.items() if value is not None)
        return f"{self.name} {self.table}: {facts}"


def subscribe(hook: Callable[[Event], object]) -> Callable[[], None]:
    """Call a function with every event of this process, and return a function that ends this.

    The hook runs where the event happens, sometimes while the table's lock is held: it has to be quick. What it raises is
    logged and changes nothing.

    Args:
        hook: takes an event.

    Example:
        >>> import lakefmt, pyarrow as pa
        >>> seen = []
        >>> unsubscribe = subscribe(seen.append)
        >>> _ = lakefmt.write_table("memory://doc-events", pa.table({"id": ["a"]}), record_key="id")
        >>> unsubscribe()
        >>> [(event.name, event.facts["num_inserts"]) for event in seen]
        [('commit', 1)]
    """
    # An object of its own, so that one function may be subscribed twice.
    _HOOKS.append(own := lambda event: hook(event))

    def unsubscribe() -> None:
        if own in _HOOKS:
            _HOOKS.remove(own)

    return unsubscribe


def emit(name: str, table: str, **facts: str | int | float | None) -> None:
    """Log an event and hand it to the hooks.

    Args:
        name: of the event.
        table: the URL of its table.
        **facts: what is known about it.
    """
    if not _HOOKS and not _LOGGER.isEnabledFor(logging.INFO):
        return
    event = Event(name, table, facts)
    _LOGGER.info("%s", event, extra={"event": name, "table": table, "facts": facts})
    for hook in tuple(_HOOKS):
        try:
            hook(event)
        except Exception:
            _LOGGER.exception("a hook for events failed")
