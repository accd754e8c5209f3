"""A source whose follower is killed after some events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Died(Exception):
    """A follower was killed."""


class Mortal:
    """A source that ends its follower after some events."""

    def __init__(self, source: Any, events: int) -> None:
        self._source, self._left = source, events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def events(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        for number, event in enumerate(self._source.events(*arguments, **options)):
            if number == self._left:
                raise Died
            yield event
