"""``lakefmt ingest --continuous`` as a process, killed by signal 9 again and again while files come: each row is there once.

In the usual run files come for some seconds; ``LAKEFMT_INGEST_SECONDS`` makes it longer, such as 1200. The seed is printed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakefmt
from tests.example_counts import seed_of_run
from tests.ingest.ingest_kit import touch
from tests.kit import SECONDS_FOR_A_CHILD

SECONDS = float(os.environ.get("LAKEFMT_INGEST_SECONDS", "8"))
#: Seconds between two kills, at most.
PAUSE = 20.0 if SECONDS > 60 else 4.0
#: Columns that come while it runs: each row has all of them, so more would make a long run one of gigabytes.
MOST_COLUMNS = 20

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * int(SECONDS) + 400)]


def begun(folder: Path, table: Path, *more: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "lakefmt",
        "ingest",
        "--source",
        str(folder),
        "--table",
        str(table),
        "--operation",
        "insert",
    ]
    command += [
        "--interval",
        "0.2",
        "--option",
        "min_age=0.3",
        "--option",
        "lakefmt.durability=none",
    ]
    return subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


class Writers:
    """Files that come: some with the time of another one, some late, some half-written for a while; columns that come."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self._folder, self._random = folder, draw
        self._ids = itertools.count()
        self._names = itertools.count()
        self.ids = Counter[int]()
        self._times = [time.time() - 100]
        self._columns = 0

    def step(self) -> None:
        draw = self._random
        if draw.random() < 0.01 and self._columns < MOST_COLUMNS:
            self._columns += 1
        rows = [self._row() for _ in range(draw.choice((1, 3, 200)))]
        name = f"{draw.choice(('', 'x/', 'x/y/'))}f{next(self._names):06}"
        path = self._folder / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        choice = draw.random()
        if choice < 0.3:  # with the time of another file, or late: moved into its place
            hidden = self._folder / f"_{path.name}"
            hidden.write_text(text)
            touch(hidden, draw.choice(self._times) + draw.choice((0.0, 0.0, 0.5)))
            hidden.rename(path)
        elif choice < 0.5:  # half-written for less than the least age
            with path.open("w") as file:
                file.write(text[: len(text) // 2])
                file.flush()
                time.sleep(draw.uniform(0, 0.05))
                file.write(text[len(text) // 2 :])
        else:
            path.write_text(text)
        self._times = [*self._times[-20:], path.stat().st_mtime]
        self.ids.update(int(row["id"]) for row in rows)

    def _row(self) -> dict[str, Any]:
        number = next(self._ids)
        return {"id": str(number), "text": "größe 🦀" * (number % 3), **{f"c{n}": n for n in range(self._columns)}}


@contextlib.contextmanager
def working(writers: Writers) -> Iterator[None]:
    ended, failures = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            while not ended.wait(0.02):
                writers.step()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.in_turn(2, "killed processes")
def test_a_job_that_is_killed_again_and_again_has_each_row_once(tmp_path):
    draw = random.Random(seed_of_run())
    folder, table = tmp_path / "in", tmp_path / "t"
    folder.mkdir()
    writers = Writers(folder, draw)
    end, kills = time.monotonic() + SECONDS, 0
    with working(writers):
        while time.monotonic() < end:
            process = begun(folder, table, "--continuous", "--source-limit", "20000" if SECONDS <= 60 else "2000000")
            with contextlib.suppress(subprocess.TimeoutExpired):
                _, said = process.communicate(timeout=draw.uniform(0.5, PAUSE))
                raise AssertionError(f"the job ended by itself: {said[-2000:]}")
            process.kill()
            process.communicate()
            kills += 1
    process = begun(folder, table, "--until-idle")
    _, said = process.communicate(timeout=SECONDS_FOR_A_CHILD * 4 + 2 * SECONDS)
    assert process.returncode == 0, said[-3000:]
    found = Counter(map(int, lakefmt.open_table(str(table)).read(columns=["id"])["id"].to_pylist()))
    print(
        f"{kills} kills, {len(writers.ids)} rows, {len(lakefmt.open_table(str(table)).client.load().timeline.commits)} commits"
    )
    assert kills > 1
    assert found == writers.ids
