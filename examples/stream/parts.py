"""The two processes of the demo: the writer of the stream, and a follower of the table's changes.

Each says what it has done in a small JSON file, which the process that shows the view reads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow.compute as pc

import lakefmt
from examples.stream.events import Events

__all__ = ["follow", "put_note", "take_note", "write_events"]

WRITER = "flights-of-2013"
_TICK_SECONDS = 0.1
#: Events that are applied between two looks at the clock.
_MOST_ROWS = 10_000


def put_note(path: Path, note: Mapping[str, object]) -> None:
    """Replace a note; a reader sees the old one or the new one."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(note))
    new.replace(path)


def take_note(path: Path) -> dict[str, int]:
    """Return a note; empty when there is none yet."""
    return json.loads(path.read_text()) if path.exists() else {}


def write_events(folder: Path, speed: float, commit_ms: int) -> None:
    """Apply the events to the stream as they happen; a second writer goes on where the table says that the first one was.

    Args:
        folder: of the demo.
        speed: of the replay.
        commit_ms: milliseconds between two commits.
    """
    events, note = Events(folder / "events.arrow"), folder / "writer.json"
    table = lakefmt.open_table(folder / "flights")
    options = {"flush_interval": 500, "commit_interval": commit_ms, "mutation_buffer_lines_num": 20_000}
    with table.open_stream("upsert", writer_id=WRITER, options=options) as stream:
        last = stream.last_committed
        first = place = 0 if last is None or last.offset is None else int(last.offset)
        begun = _begun(folder / "begun.json")
        while place < len(events):
            end = min(events.happened(time.time() - begun, speed), place + _MOST_ROWS)
            if end > place:
                stream.write_arrow(events.rows.slice(place, end - place), operator="upsert")
                place = end
                stream.mark(place)
            counts = stream.metrics()
            put_note(
                note,
                {
                    "resumed": first,
                    "applied": place,
                    "durable": first + counts["rows_durable"],
                    "committed": first + counts["rows_committed"],
                    "commits": counts["commits"],
                },
            )
            if end >= events.happened(time.time() - begun, speed):
                time.sleep(_TICK_SECONDS)
    done = {
        "applied": place,
        "durable": place,
        "committed": place,
        "commits": stream.metrics()["commits"],
        "resumed": first,
    }
    put_note(note, {**done, "done": 1})


def _begun(path: Path) -> float:
    """Return when the first event happens, by the clock on the wall: now, unless an earlier writer has begun."""
    if not path.exists():
        path.write_text(json.dumps(time.time()))
    return float(json.loads(path.read_text()))


def follow(folder: Path) -> None:
    """Count the changes of the table as its commits complete, until the file ``stop`` is there and nothing is left."""
    table, note, stop = lakefmt.open_table(folder / "flights"), folder / "follower.json", folder / "stop"
    counts = {"i": 0, "u": 0, "d": 0}
    position: object = None
    while True:
        last = stop.exists()
        start = {"offset": position} if position is not None else "earliest"
        with table.stream(start, follow=False, columns=["carrier"]) as changes:
            for batch in changes:
                for each in pc.value_counts(batch.rows["op"]).to_pylist():
                    counts[each["values"]] += each["counts"]
            position = changes.position
        put_note(note, {"inserted": counts["i"], "updated": counts["u"], "deleted": counts["d"]})
        if last:
            return
        time.sleep(_TICK_SECONDS)
