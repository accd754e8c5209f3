"""What a user meets who tunes nothing: default settings, a process that has done nothing yet, commits that reach the disk.

Every run starts a new process, which has imported the library and read its input; opening the table, what is imported
late, the job and the sync of files that a participant leaves in the page cache are one figure.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness.child import Child, NotOffered, PeerFailed
from benchmarks.harness.data import ORDERING, Dataset, further
from benchmarks.harness.field import Field

PEERS = ("lakefmt", "pyarrow", "deltalake", "ducklake")
#: Files of the table that a warm handle upserts into, and its rows.
FILES, SMALL_ROWS = 30, 100_000


@dataclass(frozen=True)
class ColdWork:
    """One work: on which table, what is done, with which rows.

    `kind` is the table type of lakefmt; the others have one kind, and their figure of a work `beside` is not taken again.
    """

    name: str
    job: str
    part: str = ""
    rows: int | None = None
    partitioned: bool = True
    kind: str = "cow"
    warm: bool = False
    beside: str = ""


WORKS = (
    ColdWork("cold, load", "load", "base", partitioned=False),
    ColdWork("cold, random update", "upsert", "random", partitioned=False),
    ColdWork("cold, random delete", "delete", "random", partitioned=False),
    ColdWork("cold, append", "append", "small", rows=100),
    ColdWork("cold, tiny", "upsert", "tiny", rows=100),
    ColdWork("cold, tiny (MOR)", "upsert", "tiny", rows=100, kind="mor", beside="cold, tiny"),
    ColdWork("cold, upsert (MOR)", "upsert", "late", kind="mor"),
    ColdWork("cold, warm upsert", "upsert", "hundredth", warm=True),
)


def random_rows(base: pa.Table) -> pa.Table:
    """Return 1 % of the rows, at random, with new values and a larger ordering value."""
    rng = np.random.default_rng(17)
    count = max(1, base.num_rows // 100)
    chosen = base.take(pa.array(np.sort(rng.choice(base.num_rows, count, replace=False))))
    for name in ("f0", "f1"):
        chosen = chosen.set_column(chosen.schema.get_field_index(name), name, pa.array(rng.random(count)))
    at = chosen.schema.get_field_index(ORDERING)
    return chosen.set_column(at, ORDERING, pa.array(np.full(count, 2 * 10**12)))


class Cold:
    """Runs the works in turn, each peer once a round."""

    def __init__(self, stage: Field, data: Dataset) -> None:
        self.stage, self.data = stage, data
        self.digests: dict[str, str] = {}
        further(data, "random", random_rows)
        further(data, "hundred", lambda base: base.slice(0, min(SMALL_ROWS, base.num_rows)))
        further(data, "hundredth", lambda base: random_rows(base.slice(0, min(SMALL_ROWS, base.num_rows))))

    def run(self) -> None:
        """Measure every work: one round that is not counted, in which modules are compiled, and `runs` that are."""
        for work in WORKS:
            peers = self.stage.peers(*(PEERS if not work.beside else ("lakefmt",)))
            for peer in peers:
                self._make(work, peer)
            for number in range(-1, self.stage.runs):
                self.stage.say(f"{work.name}: round {number + 1}")
                for peer in peers:
                    if not self.stage.is_done(work.name, peer):
                        with self.stage.attempt(work.name, peer):
                            self._round(work, peer, counted=number >= 0)
            for peer in self.stage.figures.get(work.beside, {}):
                if peer != "lakefmt":
                    self.stage.figures[work.name][peer] = self.stage.figures[work.beside][peer]
            shutil.rmtree(self.stage.work / "tables", ignore_errors=True)

    def _check(self, work: ColdWork, peer: str, child: Child) -> None:
        """Compare the rows of the table with those of the first peer.

        Raises PeerFailed when they differ.
        """
        child.ask(
            "use",
            path=self.stage.table(f"{work.name} {peer}"),
            columns=self._columns(work),
            options=self._options(work),
        )
        rows = child.ask("scan")["digest"]
        child.ask("close")
        wanted = self.digests.setdefault(work.name, rows)
        if rows != wanted:
            raise PeerFailed(f"{work.name}: {rows} instead of {wanted}")

    def _columns(self, work: ColdWork) -> dict[str, str]:
        return self.data.described() | ({} if work.partitioned else {"partition": ""})

    def _options(self, work: ColdWork) -> dict[str, Any]:
        return {"defaults": True, "table_type": work.kind}

    def _make(self, work: ColdWork, peer: str) -> None:
        """Make the table of a work, and keep it: every round begins with it."""
        part = "hundred" if work.warm else "base"
        label = f"{work.name} {peer}"
        child = self.stage.start_plain(peer)
        try:
            self.stage.versions.setdefault(peer, child.ask("versions"))
            path, columns = self.stage.table(label), self._columns(work)
            shutil.rmtree(path, ignore_errors=True)
            (self.stage.work / "tables").mkdir(parents=True, exist_ok=True)
            child.ask("use", path=path, columns=columns, options=self._options(work), schema=self.data.path(part))
            if work.job != "load":
                child.ask("load", data=self.data.path(part))
        finally:
            child.close()
        self.stage.keep(label)

    def _round(self, work: ColdWork, peer: str, *, counted: bool) -> None:
        label = f"{work.name} {peer}"
        given = {"job": work.job, "data": self.data.path(work.part), "rows": work.rows, "warm": work.warm}
        given |= {"path": self.stage.table(label), "columns": self._columns(work), "options": self._options(work)}
        children: list[Child] = []

        def prepare() -> None:
            self.stage.put_back(label)
            children.append(self.stage.start_plain(peer))
            children[-1].ask("versions")  # the library is imported

        def run() -> dict[str, Any]:
            return children[-1].ask("cold", **given)

        prepare()
        try:
            answer, calm = self.stage.referee.run(run, prepare)
            if not counted:
                self._check(work, peer, children[-1])
        except NotOffered:
            self.stage.figure(work.name, peer).note = "not offered"
            return
        finally:
            for child in children:
                child.close()
        if counted:
            self.stage.figure(work.name, peer).add(answer["seconds"], calm)
