"""What a read would open and what was left out by what, as values that print. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from lakefmt.data_classes import dataclass
from lakefmt.filegroups.model import FileSlice

__all__ = ["ReadReport", "SkippingStep", "UnusedIndex", "step_of"]


@dataclass(frozen=True, slots=True)
class SkippingStep:
    """What was left to be read after one step.

    Attributes:
        name: what left files out: ``partition values``, ``partition_stats``, ``column_stats``, ``record_index``, the name of
            a secondary index, or ``footers``; first ``stored``, everything that the query type reads.
        partitions: partitions with files.
        file_groups: file groups.
        files: base files and logs.
        size_bytes: their bytes; of base files after ``footers``, the bytes of the row groups.
    """

    name: str
    partitions: int
    file_groups: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class UnusedIndex:
    """Statistics or an index of the table that this read does not use, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReadReport:
    """What a read with a filter would open.

    Attributes:
        instant: the newest commit that is read; None for an empty table.
        steps: what was left after each step; the last one is what is read.
        unused: what did not take part.
    """

    instant: str | None
    steps: tuple[SkippingStep, ...]
    unused: tuple[UnusedIndex, ...] = ()

    def __str__(self) -> str:
        first, last = self.steps[0], self.steps[-1]
        lines = [
            f"reads {last.files:,} of {first.files:,} files, {last.size_bytes:,} of {first.size_bytes:,} bytes"
            + (f", as of {self.instant}" if self.instant else "")
        ]
        width = max(len(step.name) for step in self.steps)
        lines.append(f"  {'left by':{width}}  {'partitions':>10}  {'file groups':>11}  {'files':>9}  {'bytes':>15}")
        lines += [
            f"  {step.name:{width}}  {step.partitions:>10,}  {step.file_groups:>11,}  {step.files:>9,}  {step.size_bytes:>15,}"
            for step in self.steps
        ]
        lines += [f"  {index.name} not used: {index.reason}" for index in self.unused]
        return "\n".join(lines)


def step_of(name: str, slices: Sequence[FileSlice]) -> SkippingStep:
    """Return the step after which these slices are left."""
    groups = {(file_slice.partition, file_slice.file_id) for file_slice in slices}
    return SkippingStep(
        name,
        len({file_slice.partition for file_slice in slices}),
        len(groups),
        sum(len(file_slice.paths) for file_slice in slices),
        sum(file_slice.size_bytes for file_slice in slices),
    )
