"""Everybody who takes part in a run: who they are, where their processes and tables are."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.child import Child, PeerFailed
from benchmarks.harness.data import Dataset
from benchmarks.harness.measure import Figure, Referee

#: The environment each peer runs in; "" is the one of lakefmt itself.
HOMES = {
    "lakefmt": "",
    "pyarrow": "",
    "deltalake": "lake",
    "ducklake": "duck",
    "pypaimon": "paimon",
    "pyiceberg": "lake",
    "hudi-spark": "spark",
}
#: A job that took longer than this once is not repeated: its figure is that one run.
SLOW_SECONDS = 15.0
Figures = dict[str, dict[str, Figure]]


@dataclass
class Field:
    """The participants, their processes, the figures so far. A participant is a peer with options, under a label."""

    work: Path
    pythons: dict[str, str]
    environ: dict[str, dict[str, str]]
    referee: Referee
    runs: int
    say: Any
    missing: dict[str, str] = field(default_factory=dict)
    #: The interpreter of an environment with nothing but lakefmt and what it needs.
    plain: str | None = None
    figures: Figures = field(default_factory=dict)
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    _children: dict[str, Child] = field(default_factory=dict)

    def figure(self, work: str, label: str, unit: str = "s") -> Figure:
        """Return the figure of a participant in a work, made on first use."""
        return self.figures.setdefault(work, {}).setdefault(label, Figure(unit=unit))

    def has(self, peer: str) -> bool:
        """Return whether a peer can take part."""
        return peer in self.pythons and peer not in self.missing

    def peers(self, *names: str) -> list[str]:
        """Return those of `names` that take part."""
        return [name for name in names if self.has(name)]

    def start(self, peer: str) -> Child:
        """Start a process of a peer, to be closed by the caller."""
        return self._started(peer, self.pythons[peer])

    def start_plain(self, peer: str) -> Child:
        """Start a process of a peer; those that live in lakefmt's own environment are without its extras and tests."""
        plain = self.plain if not HOMES[peer] else None
        return self._started(peer, plain or self.pythons[peer])

    def _started(self, peer: str, python: str) -> Child:
        return Child(peer, python, self.work / "logs" / f"{peer}.log", self.environ.get(peer))

    def child(self, label: str, peer: str | None = None) -> Child:
        """Return the process of a participant, started on first use."""
        if label not in self._children:
            peer = peer or label
            child = self._children[label] = self.start(peer)
            self.versions.setdefault(peer, child.ask("versions"))
        return self._children[label]

    def failures(self) -> list[str]:
        """Return the works in which lakefmt itself failed."""
        return [
            f"{work}: {figure.note}"
            for work, figures in self.figures.items()
            for label, figure in figures.items()
            if label.startswith("lakefmt") and (figure.note and not figure.values)
        ]

    def retire(self, *labels: str) -> None:
        """Close processes of participants; of all, without labels."""
        for label in labels or tuple(self._children):
            if label in self._children:
                self._children.pop(label).close()

    def table(self, label: str) -> str:
        """Return where a participant's table is."""
        return str(self.work / "tables" / "".join(letter if letter.isalnum() else "-" for letter in label))

    def fresh(self, child: Child, label: str, data: Dataset, part: str = "base", **options: Any) -> None:
        """Make an empty table for a participant, over an earlier one, with the schema of `part`."""
        child.ask("close")
        shutil.rmtree(self.table(label), ignore_errors=True)
        Path(self.table(label)).parent.mkdir(parents=True, exist_ok=True)
        child.ask("use", path=self.table(label), columns=data.described(), options=options, schema=data.path(part))

    def keep(self, label: str) -> None:
        """Copy a participant's table aside, for :meth:`put_back`."""
        kept = f"{self.table(label)}.kept"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.table(label), kept)

    def put_back(self, label: str) -> None:
        """Put the table that was kept in the place of what has become of it."""
        shutil.rmtree(self.table(label), ignore_errors=True)
        shutil.copytree(f"{self.table(label)}.kept", self.table(label))

    def is_done(self, work: str, label: str) -> bool:
        """Return whether a participant need not run a work again: it failed, is not offered, or is slow."""
        return bool(self.figures.get(work, {}).get(label, Figure()).note)

    @contextlib.contextmanager
    def attempt(self, work: str, label: str) -> Iterator[None]:
        """Note why a participant failed in a work, and go on with the others."""
        try:
            yield
        except PeerFailed as error:
            self.say(f"  {label} failed in {work}: {error}")
            self.figure(work, label).note = f"{type(error).__name__}: {error}"[:200]


def pythons(asked: list[str], environments: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the interpreter of each peer, and of those that cannot take part the reason."""
    found: dict[str, str] = {}
    missing: dict[str, str] = {}
    for peer in asked:
        home = HOMES[peer]
        if not home:
            found[peer] = sys.executable
        elif home in environments.get("python", {}):
            found[peer] = environments["python"][home]
        else:
            missing[peer] = environments.get("missing", {}).get(home, "its environment was not made")
    return found, missing
