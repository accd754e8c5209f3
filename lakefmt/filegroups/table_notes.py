"""Table properties that Hudi does not have: lakefmt's own small file beside them (docs/format.md, lakefmt's own files)."""

from __future__ import annotations

import json
from collections.abc import Callable

from lakefmt.errors import CorruptFile, ObjectNotFound

__all__ = ["NOTES", "read_notes"]

NOTES = ".hoodie/.lakefmt/table.json"
_MAX_BYTES = 1 << 20


def read_notes(read: Callable[[str, int], bytes]) -> dict[str, object]:
    """Return the content of lakefmt's table file; empty if the file does not exist.

    Args:
        read: reads an object of at most that many bytes.

    Raises:
        CorruptFile: the file is not a JSON object.
    """
    try:
        notes = json.loads(read(NOTES, _MAX_BYTES))
    except ObjectNotFound:
        return {}
    except (ValueError, RecursionError):
        raise CorruptFile(f"{NOTES} is not JSON") from None
    if not isinstance(notes, dict):
        raise CorruptFile(f"{NOTES} is not a JSON object")
    return notes
