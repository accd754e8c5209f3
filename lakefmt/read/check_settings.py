"""The files that say what a table is: Hudi's properties with their backup, and lakefmt's notes (effects: reads only)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from lakefmt.errors import CorruptFile, ObjectNotFound
from lakefmt.filegroups.access import NOTES
from lakefmt.formats.properties import CHECKSUM_KEY, check_table_checksum, decode_properties, table_checksum
from lakefmt.index import INDEX_NAMES
from lakefmt.read.check_facts import NotesFacts, PropertiesFacts
from lakefmt.storage.api import ObjectStore
from lakefmt.timeline.properties_store import BACKUP, PROPERTIES

__all__ = ["look_at_notes", "look_at_properties"]

_MAX_PROPERTIES = 16 * 1024 * 1024
_MAX_NOTES = 1 << 20
_INDEX_NAMED = re.compile(rb'"index"\s*:\s*"([a-z_]{1,40})"')


def look_at_properties(store: ObjectStore) -> PropertiesFacts:
    """Return the state of the table's properties and their backup."""
    original, backup = _judged(store, PROPERTIES), _judged(store, BACKUP)
    left = None if backup.is_absent else backup.problem
    if not original.problem:
        # Without a checksum nothing tells that no line is missing: a backup that has one is better.
        better = left == "" and CHECKSUM_KEY not in original.values and CHECKSUM_KEY in backup.values
        problem = "it has no checksum, and its backup has one" if better else ""
        return PropertiesFacts(problem, False, left, backup.values if better else original.values)
    if left == "":
        return PropertiesFacts(original.problem, False, left, backup.values)
    return PropertiesFacts(
        original.problem, original.checksum_only, left, original.values if original.checksum_only else None
    )


@dataclass(frozen=True)
class _Judged:
    values: dict[str, str]
    problem: str = ""
    checksum_only: bool = False
    is_absent: bool = False


def _judged(store: ObjectStore, name: str) -> _Judged:
    try:
        data = store.read(name, _MAX_PROPERTIES)
        values = decode_properties(data, what=name)
    except ObjectNotFound:
        return _Judged({}, "it is missing", is_absent=True)
    except CorruptFile as error:
        return _Judged({}, str(error))
    if not values:
        return _Judged({}, "it is empty")
    if not data.endswith((b"\n", b"\r")):
        return _Judged(values, "its last line has no end")
    if not check_table_checksum(values):
        right = table_checksum(values.get("hoodie.database.name"), values.get("hoodie.table.name", ""))
        problem = f"its checksum is {values[CHECKSUM_KEY]:.40}, its table's name gives {right}"
        return _Judged(values, problem, checksum_only="hoodie.table.name" in values)
    return _Judged(values)


def look_at_notes(store: ObjectStore) -> NotesFacts:
    """Return the state of lakefmt's notes; a table without any has nothing wrong."""
    try:
        data = store.read(NOTES, _MAX_NOTES)
    except ObjectNotFound:
        return NotesFacts()
    except CorruptFile as error:
        return NotesFacts(str(error))
    named = _INDEX_NAMED.search(data)
    found = named[1].decode() if named and named[1].decode() in INDEX_NAMES else None
    try:
        notes = json.loads(data)
    except (ValueError, RecursionError) as error:
        return NotesFacts(f"it cannot be read ({error})", found)
    if not isinstance(notes, dict):
        return NotesFacts("it is no JSON object", found)
    index = notes.get("index")
    if index is not None and str(index).lower() not in INDEX_NAMES:
        return NotesFacts(f"it names the index {index!r:.60}, which lakefmt does not have")
    return NotesFacts()
