"""Results of cells, one JSON object per line of a file; a cell whose result is there is not run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from lakefmt.bench.cells import BenchCell
from lakefmt.data_classes import dataclass
from lakefmt.errors import CorruptFile, InvalidInputError

__all__ = ["CellRecord", "append_record", "load_records"]

_MOST_BYTES: Final = 256 << 20


@dataclass(frozen=True)
class CellRecord:
    """A cell with its figures, or with the reason why it has none.

    Attributes:
        cell: what was measured.
        figures: numbers by name; empty where it failed.
        error: why it failed; empty where it did not.
        machine: which machine measured.
    """

    cell: BenchCell
    figures: dict[str, Any]
    error: str = ""
    machine: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the record as JSON holds it."""
        return {
            "id": self.cell.id,
            "cell": self.cell.as_json(),
            "figures": self.figures,
            "error": self.error,
            "machine": self.machine,
        }


def append_record(path: Path, record: CellRecord) -> None:
    """Append a record as one line; a line that a process could not finish is closed first, and ignored by readers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(record.as_json(), sort_keys=True)
    with path.open("ab+") as file:
        size = file.seek(0, 2)
        torn = False
        if size:
            file.seek(size - 1)
            torn = file.read(1) != b"\n"
        file.write((b"\n" if torn else b"") + line.encode() + b"\n")


def load_records(path: Path) -> list[CellRecord]:
    """Return the records of a file, the newest of each cell; none if there is no file. Torn lines are ignored.

    Raises:
        CorruptFile: the file is larger than any that the suite writes, or has a line that is no record.
    """
    if not path.exists():
        return []
    if path.stat().st_size > _MOST_BYTES:
        raise CorruptFile(f"{path.name} is larger than {_MOST_BYTES:,} bytes: not a file of results")
    newest: dict[str, CellRecord] = {}
    for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1):
        try:
            given = json.loads(line)
        except (ValueError, RecursionError):
            continue  # the process ended while it wrote this line
        record = _record(given, f"{path.name}, line {number}")
        newest[record.cell.id] = record
    return list(newest.values())


def _record(given: object, place: str) -> CellRecord:
    if not isinstance(given, dict) or not isinstance(given.get("figures"), dict):
        raise CorruptFile(f"{place} is not a result of the suite")
    try:
        cell = BenchCell.from_json(given.get("cell"))
    except (InvalidInputError, TypeError) as error:
        raise CorruptFile(f"{place} is not a result of the suite: {error}") from None
    return CellRecord(cell, given["figures"], str(given.get("error", "")), str(given.get("machine", "")))
