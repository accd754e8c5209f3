"""The works on one large table, in rounds: load, scan, look up, upsert late rows, upsert few rows a few times.

In a round every peer does a step before anybody does the next one, and each round another peer begins. A peer is checked
after its load (the scan) and after its upserts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.harness import expected
from benchmarks.harness.child import Child, NotOffered, PeerFailed
from benchmarks.harness.data import Dataset, load_table
from benchmarks.harness.field import SLOW_SECONDS, Field

SAME_FILES = "pyarrow, lakefmt's files"
#: Of each step that upserts: how many batches of its part (one is the part as a whole), and which figure of them counts.
UPSERTS: dict[str, tuple[str, int, Callable[[list[float]], float]]] = {
    "upsert": ("late", 1, sum),
    "tiny": ("tiny", 4, median),
    "tenths": ("tenths", 10, sum),
}
#: The sides of the ratios that are asked for are measured in every round, slow or not.
ALWAYS = frozenset({"lakefmt", "pyarrow", "deltalake", SAME_FILES})
STEPS = ("load", "scan", "look_up", "upsert", "tiny")


@dataclass
class Rounds:
    """One dataset's rounds; figures go to the works ``load``, ``scan`` …, with the dataset's name where it is given."""

    stage: Field
    data: Dataset
    labels: list[str]
    steps: tuple[str, ...] = STEPS
    suffix: str = ""
    patient: bool = False  # slow peers are run as often as the others
    options: dict[str, dict[str, Any]] = field(default_factory=dict)  # of participants

    def __post_init__(self) -> None:
        self._loaded = expected.of_part(self.data, "base")
        self._found = expected.of_keys(self.data)
        asked = [each for step in self.steps if step in UPSERTS for each in self._batches(step)]
        batches = [load_table(each["data"]).slice(each["start"], each["rows"]) for each in asked]
        self._upserted = expected.after_upserts(self.data, batches)
        self._out: set[str] = set()

    def _batches(self, step: str) -> list[dict[str, Any]]:
        """Return what a peer is asked for each batch of a step that upserts."""
        part, count, _ = UPSERTS[step]
        path = self.data.path(part)
        size = self.data.tiny_rows if part == "tiny" else load_table(path).num_rows // count
        return [{"data": path, "start": n * size, "rows": size} for n in range(count)]

    def run(self) -> None:
        """Warm everybody up, then run the rounds."""
        for number in range(-1, self.stage.runs):
            self.stage.say(f"{self.data.name}: {'warm-up' if number < 0 else f'round {number + 1}'}")
            shift = max(number, 0) % len(self.labels)
            order = self.labels[shift:] + self.labels[:shift]
            for step in self.steps:
                for label in order:
                    self._step(step, label, number)
                if step in ("scan", "look_up"):
                    self._step_same_files(step, number)
            for label in order:
                self._check_upserts(label)

    def _step(self, step: str, label: str, number: int) -> None:
        work = step + self.suffix
        if label in self._out:
            return
        child = self.stage.child(label)
        if self.stage.is_done(work, label):
            if step == "load":  # too slow to be measured again, but the other steps need its table
                self._restore(child, label, "upsert")
            return
        failed = True
        with self.stage.attempt(work, label):
            if step == "load":
                self._fresh(child, label)
            if number < 0:
                answer, calm = self._ask(child, step), True
            else:
                answer, calm = self.stage.referee.run(
                    lambda: self._ask(child, step), lambda: self._restore(child, label, step)
                )
            self._note(work, label, number, answer, calm)
            failed = False
        if failed and step in ("load", "scan"):
            self._out.add(label)  # nothing to go on with

    def _ask(self, child: Child, step: str) -> dict[str, Any]:
        if step == "load":
            return child.ask("load", data=self.data.path("base"))
        if step == "scan":
            return agreed(child.ask("scan"), self._loaded, "rows after the load")
        if step == "look_up":
            return agreed(child.ask("look_up", keys=self.data.path("lookup")), self._found, "rows of 100 keys")
        each = [child.ask("upsert", **batch)["seconds"] for batch in self._batches(step)]
        return {"seconds": UPSERTS[step][2](each)}

    def _restore(self, child: Child, label: str, step: str) -> None:
        """Put the table back into the state in which the step began."""
        if step in ("scan", "look_up"):
            return
        self._fresh(child, label)
        if step in UPSERTS:
            child.ask("load", data=self.data.path("base"))
            for earlier in self.steps[: self.steps.index(step)] if step in self.steps else ():
                for each in self._batches(earlier) if earlier in UPSERTS else ():
                    child.ask("upsert", **each)

    def _fresh(self, child: Child, label: str) -> None:
        self.stage.fresh(child, label, self.data, **self.options.get(label, {}))

    def _note(self, work: str, label: str, number: int, answer: dict[str, Any], calm: bool) -> None:
        figure = self.stage.figure(work, label)
        slow = answer["seconds"] > SLOW_SECONDS and not self.patient and label not in ALWAYS
        if number >= 0 or slow:
            figure.add(answer["seconds"], calm)
        if slow:
            figure.note = f"took over {SLOW_SECONDS:.0f} s and was not repeated"

    def _check_upserts(self, label: str) -> None:
        steps = [step for step in self.steps if step in UPSERTS]
        works = [step + self.suffix for step in steps]
        if label in self._out or not works or any(self.stage.is_done(work, label) for work in works):
            return
        for work in works:
            agrees = False
            with self.stage.attempt(work, label):
                agreed(self.stage.child(label).ask("scan"), self._upserted, "rows after the upserts")
                agrees = True
            if agrees:
                break
            self.stage.figure(work, label).forget()  # rows that are wrong are no figure

    def _step_same_files(self, step: str, number: int) -> None:
        """Plain pyarrow on the files that lakefmt has just written."""
        if not {"pyarrow", "lakefmt"} <= set(self.labels) or "lakefmt" in self._out:
            return
        child = self.stage.child(SAME_FILES, "pyarrow")
        files = self.stage.child("lakefmt").ask("files")["files"]
        names = load_table(self.data.path("base")).column_names
        options = {"files": files, "columns": names}
        child.ask("use", path="", columns=self.data.described(), options=options)
        with self.stage.attempt(step + self.suffix, SAME_FILES):
            answer, calm = self.stage.referee.run(lambda: self._ask(child, step))
            self._note(step + self.suffix, SAME_FILES, number, answer, calm)


def agreed(answer: dict[str, Any], wanted: str, what: str) -> dict[str, Any]:
    """Return the answer when its digest is the wanted one; raises WrongRows."""
    if answer["digest"] != wanted:
        raise WrongRows(f"{what}: {answer['digest']} instead of {wanted}")
    return answer


class WrongRows(PeerFailed):
    """A peer returned other rows than the independent computation."""


__all__ = ["SAME_FILES", "STEPS", "NotOffered", "Rounds", "WrongRows", "agreed"]
