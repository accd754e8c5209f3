"""What each commit costs as commits grow: copy-on-write, logs of Avro rows, Parquet logs, with and without compaction."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.harness import expected
from benchmarks.harness.child import Child
from benchmarks.harness.data import Dataset, further, late_batches, load_table
from benchmarks.harness.field import Field
from benchmarks.harness.rounds import agreed

PARQUET = {"hoodie.logfile.data.block.format": "parquet"}
#: By the line's label: the table's type, its settings, and after how many commits it is compacted.
KINDS: dict[str, tuple[str, dict[str, Any], int | None]] = {
    "copy-on-write": ("cow", {}, None),
    "Avro logs": ("mor", {}, None),
    "Avro logs, compacted": ("mor", {}, 5),
    "Parquet logs": ("mor", PARQUET, None),
    "Parquet logs, compacted": ("mor", PARQUET, 5),
}
PANELS = ("write", "written", "latency", "read", "bytes-read", "behind")
Panels = dict[str, dict[str, list[tuple[float, float]]]]


def measure(stage: Field, data: Dataset, commits: int) -> Panels:
    """Return the points of each panel: `commits` late upserts of 1 %, every state read in full and checked."""
    rows = max(load_table(data.path("base")).num_rows // 100, 1)
    # No new keys: they would be small files of their own in every kind of table, and hide what differs.
    path = further(data, f"growth-{commits}", lambda base: late_batches(base, commits, rows, 6000, 10**12, new=0.0))
    batches = [load_table(path).slice(n * rows, rows) for n in range(commits)]
    digests = [expected.after_upserts(data, batches[: n + 1]) for n in range(commits)]
    panels: Panels = {panel: {} for panel in PANELS}
    for label, kind in KINDS.items():
        stage.say(f"chart of {commits} commits: {label}")
        with stage.attempt("chart of growth", label), closing(stage.start("lakefmt")) as child:
            settings = {"table_type": kind[0], "filling": False, "archiving": False, "settings": kind[1]}
            stage.fresh(child, f"growth {label}", data, **settings)
            child.ask("load", data=data.path("base"))
            place = Path(stage.table(f"growth {label}"))
            points = _grow(child, place, path, [batch.nbytes for batch in batches], rows, digests, kind[2])
            for panel, pairs in points.items():
                panels[panel][label] = pairs
    return panels


def _grow(
    child: Child, place: Path, path: str, sizes: list[int], rows: int, digests: list[str], every: int | None
) -> dict[str, list[tuple[float, float]]]:
    points: dict[str, list[tuple[float, float]]] = {panel: [] for panel in PANELS}
    spent, taken_in, before = 0.0, 0, _stored(place)
    for n, digest in enumerate(digests):
        number = float(n + 1)
        latency = child.ask("upsert", data=path, start=n * rows, rows=rows)["seconds"]
        spent += latency
        taken_in += sizes[n]
        if every is not None and (n + 1) % every == 0:
            spent += child.ask("compact")["seconds"]
        found = agreed(child.ask("scan"), digest, f"rows after {n + 1} commits")
        points["write"].append((number, spent / number))
        points["written"].append((number, (_stored(place) - before) / taken_in))
        points["latency"].append((number, latency))
        points["read"].append((number, found["seconds"]))
        if found["read"] is not None:
            points["bytes-read"].append((number, found["read"] / found["returned"]))
        points["behind"].append((number, child.ask("behind")["commits"]))
    return points


def _stored(place: Path) -> int:
    """Return the bytes under a table; nothing is cleaned here, so that they only grow by what is written."""
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
