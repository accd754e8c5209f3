"""The works on merge-on-read tables: late upserts in rounds, and what ten of them cost a scan and a compaction."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from benchmarks.harness import expected
from benchmarks.harness.child import Child
from benchmarks.harness.data import Dataset, further, late_batches, load_table
from benchmarks.harness.field import Field
from benchmarks.harness.rounds import Rounds, agreed

SUFFIX = " (MOR)"
#: lakefmt's table here: logs of Avro rows, small files not filled up.
OPTIONS: dict[str, Any] = {"table_type": "mor", "filling": False}
STEPS = ("load", "upsert", "tiny", "tenths")
HEAP = 10
COMPACTED = "lakefmt, compacted"


def run_upserts(stage: Field, data: Dataset) -> None:
    """1 % of late rows, 100 rows four times, 0.1 % ten times; beside the peers that the figures are asked against."""
    rows = load_table(data.path("base")).num_rows
    further(data, "tenths", lambda base: late_batches(base, 10, max(rows // 1000, 1), 4000, 40 * 10**12))
    peers = stage.peers("lakefmt", "pyarrow", "deltalake", "ducklake")
    Rounds(stage, data, peers, STEPS, SUFFIX, options={"lakefmt": OPTIONS}).run()


class Heaps:
    """Ten 1 % upserts on top of a load: scanned, compacted, scanned again, in rounds that begin from the same table."""

    def __init__(self, stage: Field, data: Dataset) -> None:
        self.stage, self.data = stage, data
        rows = load_table(data.path("base")).num_rows // 100
        self.path = further(data, "heap", lambda base: late_batches(base, HEAP, rows, 5000, 10**12))
        self.rows = load_table(self.path).num_rows // HEAP
        batches = [load_table(self.path).slice(n * self.rows, self.rows) for n in range(HEAP)]
        self.wanted = expected.after_upserts(data, batches)
        self.bare = Path(f"{stage.table('heap of pyarrow')}")

    def run(self) -> None:
        """Make the tables, then measure."""
        peers = self.stage.peers("lakefmt", "ducklake")
        for peer in peers:
            with self.stage.attempt("scan" + SUFFIX, peer):
                self._make(peer)
        for number in range(-1, self.stage.runs):
            self.stage.say(
                f"scan and compaction after ten upserts: {'warm-up' if number < 0 else f'round {number + 1}'}"
            )
            for peer in peers:
                self._measure(peer, "scan", peer, number)
            self._measure("lakefmt", "compact", "lakefmt", number)
            if self.stage.has("pyarrow"):
                self._measure("pyarrow", "compact", "pyarrow", number)
            self._measure("lakefmt", "scan", COMPACTED, number)

    def _make(self, peer: str) -> None:
        child, label = self._child(peer), self._label(peer)
        self.stage.fresh(child, label, self.data, **(OPTIONS if peer == "lakefmt" else {}))
        child.ask("load", data=self.data.path("base"))
        if peer == "lakefmt":  # its base files as they are loaded, for plain pyarrow
            shutil.rmtree(self.bare, ignore_errors=True)
            shutil.copytree(self.stage.table(label), self.bare)
        for n in range(HEAP):
            child.ask("upsert", data=self.path, start=n * self.rows, rows=self.rows)
        child.ask("close")
        self.stage.keep(label)

    def _measure(self, peer: str, step: str, label: str, number: int) -> None:
        work = step + SUFFIX
        if self.stage.is_done(work, label):
            return
        with self.stage.attempt(work, label):
            child = self._child(peer)
            self._take_up(child, peer, anew=step == "scan" and label == peer)
            answer, calm = self.stage.referee.run(
                lambda: self._checked(child, step), lambda: self._take_up(child, peer, anew=step == "compact")
            )
            if number >= 0:
                self.stage.figure(work, label).add(answer["seconds"], calm)

    def _checked(self, child: Child, step: str) -> dict[str, Any]:
        answer = child.ask(step)
        return agreed(answer, self.wanted, "rows after ten upserts") if step == "scan" else answer

    def _take_up(self, child: Child, peer: str, *, anew: bool) -> None:
        """Open a participant's table; with `anew` the one that was kept, with its logs."""
        child.ask("close")
        label = self._label(peer)
        if anew and peer != "pyarrow":
            self.stage.put_back(label)
        path, options = (str(self.bare), {}) if peer == "pyarrow" else (self.stage.table(label), OPTIONS)
        child.ask("use", path=path, columns=self.data.described(), options=options)

    def _label(self, peer: str) -> str:
        return f"heap {peer}"

    def _child(self, peer: str) -> Child:
        return self.stage.child(self._label(peer), peer)
