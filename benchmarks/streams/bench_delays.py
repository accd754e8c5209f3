"""From `apply` to durable, visible and committed, with the default options of a stream; and what follows a commit.

Usage::

    python -m benchmarks.streams.bench_delays [--seconds 130] [--poll 1.0]

One row every 50 ms goes into a merge-on-read table with keys. A second handle asks all the time for ``read`` with uncommitted
rows, a third for the committed ones, a fourth follows the table by ``stream`` with a poll interval. Each row holds when it was
applied; what is shown is how long it took until a reader saw it, in seconds. All rows have to be seen by every reader. Under three
minutes.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakefmt
from benchmarks.harness.machine import describe
from benchmarks.streams.asked import at_most, print_figures

SCHEMA = pa.schema([("id", pa.string()), ("at", pa.float64())])
STEP = 0.05
LOOK = 0.2


class Watch:
    """When a reader saw each row first."""

    def __init__(self) -> None:
        self.delays: dict[str, float] = {}

    def look(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Note the rows that are new."""
        now = time.time()
        for key, at in zip(rows.column("id").to_pylist(), rows.column("at").to_pylist(), strict=True):
            self.delays.setdefault(key, now - at)


def repeated(look: Callable[[], None], stop: threading.Event) -> threading.Thread:
    """Call `look` until the end, in a thread."""

    def run() -> None:
        while not stop.is_set():
            look()
            stop.wait(LOOK)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=130.0)
    parser.add_argument("--poll", type=float, default=1.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        print(describe(Path(work)))
        table = lakefmt.create_table(f"{work}/t", schema=SCHEMA, record_key="id", table_type="mor")
        visible, committed, followed = Watch(), Watch(), Watch()
        stop = threading.Event()
        uncommitted, plain = (lakefmt.open_table(f"{work}/t") for _ in range(2))
        threads = [
            repeated(lambda: visible.look(uncommitted.read(["id", "at"], include_uncommitted=True)), stop),
            repeated(lambda: committed.look(plain.read(["id", "at"])), stop),
        ]
        ready = threading.Event()

        def follow() -> None:
            with lakefmt.open_table(f"{work}/t").stream("earliest", poll_interval=asked.poll) as changes:
                ready.set()
                for batch in changes:
                    followed.look(batch.rows)
                    if stop.is_set() and len(followed.delays) >= number:
                        return

        number = 0
        threads.append(threading.Thread(target=follow, daemon=True))
        threads[-1].start()
        ready.wait()
        with table.open_stream(writer_id="bench") as stream:
            begun = time.monotonic()
            while time.monotonic() - begun < asked.seconds:
                stream.upsert({"id": f"k{number}", "at": time.time()})
                number += 1
                time.sleep(STEP)
        while min(len(each.delays) for each in (visible, committed, followed)) < number:
            time.sleep(0.2)
        stop.set()
        for thread in threads[:2]:
            thread.join()
    print(f"{number:,} rows; seconds from apply until{'':8}50 %      99 %       max")
    for name, watch in (("visible", visible), ("committed", committed), ("followed", followed)):
        values = list(watch.delays.values())
        print(f"{name:38}" + "".join(f"{float(np.percentile(values, each)):10.2f}" for each in (50, 99, 100)))
    # Both look when they look: what is told apart is no finer than the pause between two looks of the reader.
    later = [followed.delays[key] - committed.delays[key] for key in committed.delays]
    print_figures(
        [
            at_most("apply → visible: flush interval + 1 s", 11.0, max(visible.delays.values()), " s"),
            at_most("apply → committed: 60 s + flush + commit", 72.0, max(committed.delays.values()), " s"),
            at_most(
                "committed → followed: 1.2 × poll + look",
                1.2 * asked.poll + LOOK,
                float(np.percentile(later, 99)),
                " s",
            ),
        ]
    )


if __name__ == "__main__":
    main()
