"""Many small partitions with default settings: a load, an upsert that touches most files, and reads, beside deltalake.

Usage::

    python -m benchmarks.write.bench_partitions [--partitions 2500] [--runs 1] [--participants lakefmt-cow,lakefmt-mor,deltalake]

Every partition has 120 rows of 14 columns. The upsert brings two rows for each partition at random, so that six of seven
partitions are touched; one of ten has a new key. Each step runs in a process of its own, which has imported the library and
read its input, and done nothing else: opening the table counts. lakefmt has its default settings, durable writes
with them; deltalake does not sync. Printed are the seconds by the clock and of the processor, and the processor's
milliseconds for each file; of several runs the one with the least processor time. Rows are counted and digested
outside of what is timed, and must be the same everywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.harness.data import load_table, random_keys, store_table
from benchmarks.harness.digest import digest

ROOT = Path(__file__).resolve().parents[2]
PARTICIPANTS = ("lakefmt-cow", "lakefmt-mor", "deltalake")
STEPS = ("load", "upsert", "read all", "read one")
KEY, PLACE, ORDERING = "uuid", "place", "ts"
ROWS_OF_A_PARTITION, ROWS_TO_UPSERT = 120, 2
NEW_KEYS = 0.1


def rows_in(places: np.ndarray[Any, Any], partitions: int, seed: int, ts: int) -> pa.Table:
    """Return a row for each number of a partition in `places`."""
    random, count = np.random.default_rng(seed), len(places)
    names = pa.array([f"place-{number:05d}" for number in range(partitions)])
    columns: dict[str, Any] = {
        KEY: random_keys(count, random),
        PLACE: names.take(pa.array(places)),
        ORDERING: pa.array(ts + random.integers(0, 10**12, count)),
    }
    columns |= {f"f{number}": pa.array(random.random(count)) for number in range(5)}
    columns |= {f"i{number}": pa.array(random.integers(0, 10**6, count)) for number in range(4)}
    for name, different in (("name", 1000), ("city", 100)):
        texts = pa.array([f"{name}-{number}" for number in range(different)])
        columns[name] = texts.take(pa.array(random.integers(0, different, count)))
    return pa.table(columns)


def prepare(folder: Path, partitions: int) -> tuple[Path, Path]:
    """Make the rows to load, those of the partitions among each other, and the rows to upsert."""
    random = np.random.default_rng(22)
    places = random.permutation(np.repeat(np.arange(partitions), ROWS_OF_A_PARTITION))
    base = rows_in(places, partitions, 1, 0)
    chosen = random.choice(len(places), partitions * ROWS_TO_UPSERT, replace=False)
    late = rows_in(places[chosen], partitions, 2, 10**12)
    is_new = pa.array(random.random(len(chosen)) < NEW_KEYS)
    keys = base[KEY].combine_chunks().take(pa.array(chosen))
    late = late.set_column(0, KEY, pc.if_else(is_new, late[KEY], keys))
    store_table(folder / "base.arrow", base)
    store_table(folder / "late.arrow", late)
    return folder / "base.arrow", folder / "late.arrow"


def of_lakefmt(path: str, kind: str) -> dict[str, Callable[..., Any]]:
    """Return what lakefmt does at each step."""
    import lakefmt

    def load(data: pa.Table) -> None:
        lakefmt.create_table(
            path, schema=data.schema, record_key=KEY, partition_by=PLACE, ordering=ORDERING, table_type=kind
        )
        lakefmt.open_table(path).bulk_insert(data)

    return {
        "load": load,
        "upsert": lambda data: lakefmt.open_table(path).upsert(data),
        "read all": lambda: lakefmt.open_table(path).read(),
        "read one": lambda: lakefmt.open_table(path).read(filter=pc.field(PLACE) == "place-00007"),
    }


def of_deltalake(path: str) -> dict[str, Callable[..., Any]]:
    """Return what deltalake does at each step."""
    from deltalake import DeltaTable, write_deltalake

    def upsert(data: pa.Table) -> None:
        merged = DeltaTable(path).merge(
            data, predicate=f"s.{KEY} = t.{KEY} and s.{PLACE} = t.{PLACE}", source_alias="s", target_alias="t"
        )
        changed = merged.when_matched_update_all(predicate=f"s.{ORDERING} >= t.{ORDERING}")
        changed.when_not_matched_insert_all().execute()

    return {
        "load": lambda data: write_deltalake(path, data, partition_by=[PLACE]),
        "upsert": upsert,
        "read all": lambda: DeltaTable(path).to_pyarrow_table(),
        "read one": lambda: DeltaTable(path).to_pyarrow_table(filters=[(PLACE, "=", "place-00007")]),
    }


def do_step(participant: str, step: str, path: str, data: str | None) -> dict[str, Any]:
    """Do one step in this process; return its seconds, and the digest of rows that it read."""
    work = of_deltalake(path) if participant == "deltalake" else of_lakefmt(path, participant.removeprefix("lakefmt-"))
    given = [] if data is None else [load_table(data).combine_chunks()]
    begin, used = time.perf_counter(), time.process_time()
    answer = work[step](*given)
    figures: dict[str, Any] = {"clock": time.perf_counter() - begin, "processor": time.process_time() - used}
    if isinstance(answer, pa.Table):
        names = [name for name in answer.column_names if not name.startswith("_hoodie_")]
        figures["digest"] = digest(answer, sorted(names))
    return figures


def measure(participant: str, python: str, folder: Path, inputs: tuple[Path, Path]) -> dict[str, dict[str, Any]]:
    """Return the figures of all steps, one after the other on one table."""
    data = {"load": inputs[0], "upsert": inputs[1]}
    # As a user's: modules are compiled once, and not by every process.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    figures = {}
    # It stays to the end: for half a minute after many files were removed, ext4 takes longer to make one.
    home = tempfile.mkdtemp(dir=folder)
    for step in STEPS:
        command = [python, "-m", "benchmarks.write.bench_partitions", "--participants", participant]
        command += ["--step", step, "--path", f"{home}/t"]
        command += ["--data", str(data[step])] if step in data else []
        done = subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, check=True)
        figures[step] = json.loads(done.stdout)
    return figures


def pythons(participants: list[str]) -> dict[str, str]:
    """Return the Python of each participant whose environment is there (tools/bench_env.py)."""
    from benchmarks.harness import field

    peers = {name: name.split("-")[0] for name in participants}
    made: dict[str, Any] = {}
    if set(peers.values()) != {"lakefmt"}:
        command = [sys.executable, str(ROOT / "tools" / "bench_env.py"), "--find", "lake"]
        made = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    available, missing = field.pythons(sorted(set(peers.values())), made)
    for peer, reason in missing.items():
        print(f"{peer} is not measured: {reason}")
    return {name: available[peer] for name, peer in peers.items() if peer in available}


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=2500)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--participants", default=",".join(PARTICIPANTS))
    parser.add_argument("--step", help="do this step in this process, and print JSON")
    parser.add_argument("--path", default="")
    parser.add_argument("--data")
    asked = parser.parse_args(given)
    if asked.step:
        print(json.dumps(do_step(asked.participants, asked.step, asked.path, asked.data)))
        return
    names = asked.participants.split(",")
    results: dict[str, dict[str, dict[str, Any]]] = {}
    digests: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as work:
        inputs = prepare(Path(work), asked.partitions)
        environments = pythons(names)
        for _ in range(asked.runs):
            for name, python in environments.items():
                for step, figures in measure(name, python, Path(work), inputs).items():
                    if (rows := figures.get("digest")) and digests.setdefault(step, rows) != rows:
                        raise SystemExit(f"{name}, {step}: {rows}, where another read {digests[step]}")
                    best = results.setdefault(name, {}).setdefault(step, figures)
                    if figures["processor"] < best["processor"]:
                        results[name][step] = figures
    print(f"{asked.partitions} partitions, seconds by the clock, of the processor, and its milliseconds for each file")
    for name, steps in results.items():
        for step in STEPS:
            clock, processor = steps[step]["clock"], steps[step]["processor"]
            print(f"{name:12} {step:9}{clock:8.2f}{processor:8.2f}{1e3 * processor / asked.partitions:8.2f}")
    print(f"rows and digest: {digests}")


if __name__ == "__main__":
    main()
