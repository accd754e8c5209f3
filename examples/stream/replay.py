"""The replay: a writer, a follower, a view of both, and a kill -9 of the writer in the middle."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import lakefmt
from examples.quickstart.flights import KEY, SCHEMA, extract_flights
from examples.quickstart.output import Output
from examples.stream.events import make_events
from examples.stream.parts import take_note
from examples.stream.proof import prove
from examples.stream.view import View
from lakefmt.errors import InternalError, LakefmtError

__all__ = ["Replay", "run_replay"]

_LOOK_SECONDS = 0.25
_COUNT_SECONDS = 2.0


@dataclass(frozen=True)
class Replay:
    """What is replayed, and how.

    Attributes:
        folder: of the demo; what an earlier one left there is replaced.
        months: of 2013.
        seconds: how long the replay takes; 0: as `speed` says.
        speed: how many seconds of 2013 pass in one; 0: as `seconds` says.
        commit_ms: milliseconds between two commits.
        limit: seconds after which the demo gives up.
    """

    folder: Path
    months: Sequence[int] = tuple(range(1, 13))
    seconds: float = 25.0
    speed: float = 0.0
    commit_ms: int = 2_000
    limit: float = 600.0


def run_replay(replay: Replay, output: Output, view: View) -> bool:
    """Replay the flights, kill the writer in the middle, and compare the result; True when all agrees."""
    folder = replay.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("writer.json", "follower.json", "begun.json", "stop", "events.arrow"):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "flights", ignore_errors=True)
    raw = extract_flights(folder)
    total = make_events(raw, folder / "events.arrow", replay.months)
    lakefmt.create_table(
        folder / "flights",
        schema=SCHEMA,
        record_key=KEY,
        partition_by="month",
        ordering="updated",
        table_type="mor",
        index="bucket",
        properties={"hoodie.bucket.index.num.buckets": "1"},
    )
    speed = replay.speed or len(replay.months) * 31 * 86_400 / replay.seconds
    output.heading(f"{total:,} events of 2013, {speed:,.0f} times faster than they happened")
    parts = _Parts(replay, speed)
    try:
        _watch(replay, parts, total, view)
        (folder / "stop").touch()
        parts.follower.wait(replay.limit)
    finally:
        parts.end()
    return prove(folder, raw, replay.months, take_note(folder / "follower.json"), output)


class _Parts:
    """The processes of the demo."""

    def __init__(self, replay: Replay, speed: float) -> None:
        self._write = ("writer", str(replay.folder), repr(speed), str(replay.commit_ms))
        self.writer = _start(*self._write)
        self.follower = _start("follower", str(replay.folder))

    def kill_writer(self) -> None:
        """Kill the writer as a crash would, and start another one."""
        self.writer.send_signal(signal.SIGKILL)
        self.writer.wait()
        self.writer = _start(*self._write)

    def check(self) -> None:
        """Raise when a process has failed."""
        for each in (self.writer, self.follower):
            if each.poll():
                raise InternalError(f"a process of the demo ended with status {each.returncode}")

    def end(self) -> None:
        """Leave no process behind."""
        for each in (self.writer, self.follower):
            each.kill()
            each.wait()


def _start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "examples.stream.part", *arguments])


def _watch(replay: Replay, parts: _Parts, total: int, view: View) -> None:
    """Show how far the parts are until all events are committed; kill the writer in the middle."""
    folder, begun, killed = replay.folder, time.monotonic(), False
    with _VisibleCount(folder / "flights") as visible, view:
        while True:
            parts.check()
            note, seen = take_note(folder / "writer.json"), take_note(folder / "follower.json")
            now = time.monotonic() - begun
            view.show(now, total, note, seen, visible.flights)
            if note.get("done"):
                if not killed:
                    view.say("the writer was done before it could be killed: give the replay more --seconds")
                return
            if not killed and note.get("applied", 0) > total / 2 and note.get("durable", 0) > 0:
                parts.kill_writer()
                killed = True
                view.say(
                    f"kill -9 of the writer after {note['applied']:,} events, {note['committed']:,} of them committed"
                )
            if now > replay.limit:
                raise InternalError(f"the replay was not over after {replay.limit:g} s")
            time.sleep(_LOOK_SECONDS)


class _VisibleCount:
    """Counts, beside the view, the flights that a reader sees who asks for uncommitted rows, too."""

    def __init__(self, table: Path) -> None:
        self._table = lakefmt.open_table(table)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._count, daemon=True)
        self.flights = 0

    def _count(self) -> None:
        while not self._stop.is_set():
            # A read that meets the end of a commit is made again at the next look.
            with suppress(LakefmtError):
                self.flights = self._table.read(["flight"], include_uncommitted=True).num_rows
            self._stop.wait(_COUNT_SECONDS)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
