"""An update of 1 % of the rows at random, as of a dimension table, by every index of lakefmt, pypaimon and deltalake.

    python -m benchmarks.index.bench_family [--rows 1000000] [--rounds 5] [--types mor,cow]

Keys are random and so are the rows that are updated: every file has some of them. Participants take turns within a round,
each in a process of its own; the first round is not counted. Every table is read at the end and compared with the rows
that pyarrow computes. pypaimon and deltalake need the environments of tools/bench_env.py; without them they are left out,
and the table says so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.harness.child import ROOT, Child, PeerFailed
from benchmarks.harness.data import KEY, ORDERING, PARTITION, make_rows, store_table
from benchmarks.harness.digest import digest
from benchmarks.harness.field import pythons

COLUMNS = {"key": KEY, "partition": PARTITION, "ordering": ORDERING}
#: A dimension table has no days: few partitions.
PARTITIONS = 4
RECORD_INDEX: dict[str, object] = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.index.column.stats.enable": False,
    "hoodie.metadata.global.record.level.index.enable": True,
}
INDEXES: dict[str, dict[str, Any]] = {
    "bloom": {},
    "simple": {},
    "record": {"settings": RECORD_INDEX},
    "bucket": {"properties": {"hoodie.bucket.index.num.buckets": "4"}},
}
PEERS = ("lakefmt", "pypaimon", "deltalake")


@dataclass(frozen=True)
class Participant:
    """A peer with options."""

    peer: str
    options: dict[str, Any]


def participants(types: Sequence[str], peers: Sequence[str] = PEERS) -> dict[str, Participant]:
    """Return those who take part, by their label."""
    own = {
        f"lakefmt, {kind}, {index}": Participant("lakefmt", {"table_type": kind, "index": index, **options})
        for kind in types
        for index, options in INDEXES.items()
    }
    return own | {peer: Participant(peer, {}) for peer in peers if peer != "lakefmt"}


def make_data(folder: Path, rows: int, rounds: int) -> str:
    """Store the rows and the updates of every round; return the digest of the rows after all of them."""
    days = np.random.default_rng(3).integers(0, PARTITIONS, rows)
    base = make_rows(days, 4)
    store_table(folder / "base.arrow", base)
    newest = base
    for number in range(rounds):
        chosen = np.sort(np.random.default_rng(100 + number).choice(rows, max(1, rows // 100), replace=False))
        update = make_rows(days[chosen], 200 + number, ts=(number + 1) * 10**12)
        update = update.set_column(0, KEY, base[KEY].take(pa.array(chosen)))
        store_table(folder / f"update_{number}.arrow", update)
        kept = newest.filter(pc.invert(pc.is_in(newest[KEY], value_set=update[KEY].combine_chunks())))
        newest = pa.concat_tables([kept, update])
    return digest(newest)


def measure(
    folder: Path, rows: int, rounds: int, asked: Mapping[str, Participant], interpreters: Mapping[str, str]
) -> dict[str, list[float] | str]:
    """Return the seconds of every participant's updates, or why it has none.

    Parameters:
        folder: for rows, tables and logs.
        rows: of the table.
        rounds: how many updates, the first one included, which is not counted.
        asked: who takes part.
        interpreters: by peer; who has none is left out.
    """
    expected = make_data(folder, rows, rounds)
    results: dict[str, list[float] | str] = {}
    children: dict[str, Child] = {}
    try:
        for number, (label, one) in enumerate(asked.items()):
            if one.peer not in interpreters:
                results[label] = "not installed"
                continue
            children[label] = Child(one.peer, interpreters[one.peer], folder / "logs" / f"{number}.log")
            path, schema = str(folder / f"table_{number}"), str(folder / "base.arrow")
            _ask(results, children, label, "use", path=path, columns=COLUMNS, options=one.options, schema=schema)
            _ask(results, children, label, "load", data=schema)
        for number in range(rounds):
            for label in asked:
                answer = _ask(results, children, label, "upsert", data=str(folder / f"update_{number}.arrow"))
                taken = results.setdefault(label, [])
                if answer and number and isinstance(taken, list):
                    taken.append(answer["seconds"])
        for label in asked:
            answer = _ask(results, children, label, "scan")
            if answer and answer["digest"] != expected:
                results[label] = f"wrong rows: {answer['digest']} instead of {expected}"
    finally:
        for child in children.values():
            child.close()
    return results


def _ask(
    results: dict[str, list[float] | str], children: Mapping[str, Child], label: str, op: str, **given: Any
) -> dict[str, Any]:
    """Return an answer; nothing from a participant that has failed, or fails now."""
    if isinstance(results.get(label), str):
        return {}
    try:
        return children[label].ask(op, **given)
    except PeerFailed as error:
        results[label] = str(error)
        return {}


def interpreters() -> dict[str, str]:
    """Return the interpreters of the peers that are installed; nothing is installed."""
    command = [sys.executable, str(ROOT / "tools" / "bench_env.py"), "--find"]
    environments = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return dict(pythons(list(PEERS), environments)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--types", default="mor,cow")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asked = participants(options.types.split(","))
        results = measure(Path(folder), options.rows, options.rounds + 1, asked, interpreters())
    print(f"1 % of {options.rows:,} rows at random, {PARTITIONS} partitions; medians of {options.rounds}")
    for label, taken in results.items():
        shown = taken if isinstance(taken, str) else f"{1e3 * median(taken):9.1f} ms"
        print(f"{label:32} {shown}")


if __name__ == "__main__":
    main()
