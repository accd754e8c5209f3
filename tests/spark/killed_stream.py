"""A stream whose driver is killed: run by an interpreter that has PySpark, again and again with one checkpoint folder.

python killed_stream.py DIRECTORY [EFFECT]

The process ends at once, without any cleaning up, before change EFFECT that it makes to the table's storage; without EFFECT
it runs until nothing is left to read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import stream_scenarios as streams  # beside this file
from scenarios import session

import lakefmt.spark as lakefmt_spark
from lakefmt.storage.local.store import LocalStore

#: What changes the table, and what closes a new file.
CHANGES = ("put", "put_if_absent", "delete", "delete_tree", "create")


def kill_before(effect: int) -> None:
    """Let this process die before a change of the table."""
    done = 0

    def counting(change: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            nonlocal done
            done += 1
            if done == effect:
                os._exit(137)
            return change(*given, **named)

        return run

    for name in CHANGES:
        setattr(LocalStore, name, counting(getattr(LocalStore, name)))


def main() -> None:
    """Run the stream."""
    root = Path(sys.argv[1])
    spark = session()
    spark.sparkContext.setLogLevel("OFF")
    if len(sys.argv) > 2:
        kill_before(int(sys.argv[2]))
    sink = lakefmt_spark.stream_batch(str(root / "table"), **streams.OPTIONS)
    failed = streams.run(streams.stream_of(spark, root / "in").writeStream.foreachBatch(sink), root / "checkpoint")
    spark.stop()
    sys.exit(failed or 0)


if __name__ == "__main__":
    main()
