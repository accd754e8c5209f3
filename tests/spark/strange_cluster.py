"""Writes and reads on a cluster whose workers have no lakefmt, another release of it, or may not write to the table.

Run by an interpreter with PySpark: python strange_cluster.py DIRECTORY ANSWERS
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster_faults import SOON_DEAD, cluster, session  # beside this file
from write_scenarios import OPTIONS, frame_of

import lakefmt
import lakefmt.spark as lakefmt_spark

HERE = Path(__file__).parent
#: Not by Spark's own Parquet reader, which needs no lakefmt.
BY_TASKS = {"lakefmt.spark.read.native": "never"}


def told(call: Callable[[], object]) -> dict[str, str]:
    """Return the error of a call, its first line."""
    try:
        call()
    except Exception as error:
        return {"type": type(error).__name__, "text": str(error).partition("\n")[0]}
    return {"type": "", "text": ""}


def state(path: Path) -> dict[str, Any]:
    """Return what there is at a path: rows, unfinished instants, findings."""
    if not path.exists():
        return {"rows": None}
    table = lakefmt.open_table(path)
    found = {"rows": table.read().num_rows, "commits": len(table.timeline.entries)}
    pending = [str(instant) for instant in table.client.load().timeline.pending]
    return {**found, "pending": pending, "findings": [str(finding) for finding in table.check().findings]}


def asked(spark: Any, root: Path) -> dict[str, Any]:
    """Write a new table, upsert one that is there and read it; return the errors, and what is there then."""
    new, old = root / "new", root / "old"
    rows = frame_of(spark, 40, 80, 2.0)
    return {
        "new": told(lambda: lakefmt_spark.write(rows, str(new), **OPTIONS, **SOON_DEAD)),
        "made": state(new),
        "upsert": told(lambda: lakefmt_spark.write(rows, str(old), **OPTIONS, **SOON_DEAD)),
        "save": told(lambda: rows.write.format("lakefmt").options(**OPTIONS).mode("append").save(str(old))),
        "read": told(lambda: lakefmt_spark.read(spark, str(old), **BY_TASKS).collect()),
        "left": state(old),
    }


def main() -> None:
    """Ask every kind of workers, and write the answers."""
    root, answers = Path(sys.argv[1]), Path(sys.argv[2])
    found: dict[str, Any] = {}
    with cluster(root) as url:
        for kind in ("without", "another", "denied"):
            place = root / kind
            place.mkdir()
            strange = {"STRANGE": kind, "DENIED": str(place)}
            strange["PYTHONPATH"] = os.pathsep.join([str(HERE / "strange_workers"), os.environ.get("PYTHONPATH", "")])
            spark = session(url, {f"spark.executorEnv.{name}": value for name, value in strange.items()})
            spark.sparkContext.setLogLevel("OFF")
            lakefmt_spark.register(spark)
            table = lakefmt.create_table(place / "old", **created(frame_of(spark, 0, 60)))
            table.upsert(frame_of(spark, 0, 60).toArrow())
            found[kind] = asked(spark, place)
            spark.stop()
            answers.write_text(json.dumps(found), "utf-8")
        # The tables are not broken: workers that have everything go on with them.
        spark = session(url)
        for kind in found:
            lakefmt_spark.write(frame_of(spark, 40, 80, 2.0), str(root / kind / "old"), **OPTIONS, **SOON_DEAD)
            found[kind]["after"] = state(root / kind / "old")
        spark.stop()
        answers.write_text(json.dumps(found), "utf-8")


def created(frame: Any) -> dict[str, Any]:
    """Return how a table with the options of the writes is made."""
    return {
        "name": "trips",
        "schema": frame.toArrow().schema,
        "record_key": "id",
        "partition_by": "city",
        "ordering": "ts",
    }


if __name__ == "__main__":
    main()
