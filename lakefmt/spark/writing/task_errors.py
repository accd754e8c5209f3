"""Errors of Spark's tasks as errors of lakefmt: Spark hands on their text alone (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lakefmt import errors

__all__ = ["error_in", "typed_errors"]

#: The last line of a traceback of Python, as Spark repeats it.
_RAISED: Final = re.compile(r"^lakefmt\.errors\.(\w+): (.*)$", re.MULTILINE)


def error_in(text: str) -> errors.LakefmtError | None:
    r"""Return the error of lakefmt that a text of Spark tells of; None: it tells of none.

    Example:
        >>> error_in("Traceback:\nlakefmt.errors.InvalidKey: 2 of 3 keys are null\n")
        InvalidKey('2 of 3 keys are null')
    """
    match = _RAISED.search(text)
    kind = None if match is None else getattr(errors, match[1], None)
    if match is None or not isinstance(kind, type) or not issubclass(kind, errors.LakefmtError):
        return None
    return kind(match[2])


@contextmanager
def typed_errors() -> Iterator[None]:
    """Raise what a task raised, where Spark says what it was."""
    try:
        yield
    except Exception as error:
        typed = None if isinstance(error, errors.LakefmtError) else error_in(str(error))
        if typed is None:
            raise
        raise typed from error
