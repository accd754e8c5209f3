"""What a source of rows is (pure): it plans a round from where the last commit left it, and reads the round by batches.

A source knows neither the table nor its commits. Rows leave it as Arrow columns; what cannot be decoded leaves it as rejected records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.data_classes import dataclass

__all__ = [
    "REJECTED",
    "Checkpoint",
    "HearsOfCommits",
    "KnowsTableSchema",
    "Round",
    "Source",
    "SourceBatch",
    "StoresInstants",
    "rejected_records",
]

#: The columns of records that could not be decoded or stored.
REJECTED: Final = pa.schema(
    [
        pa.field("reason", pa.string(), nullable=False),
        #: Where it came from: a path with its line, or a topic with its partition and offset.
        pa.field("origin", pa.string(), nullable=False),
        pa.field("payload", pa.binary()),
    ]
)


@dataclass(frozen=True)
class Checkpoint:
    """Where a source was after a commit.

    Args:
        text: Hudi's form, which its own tool reads: a time of files in milliseconds, ``topic,0:12,1:7``, or an instant.
        details: what that form cannot hold, by names of commit metadata that are lakefmt's own.
    """

    text: str
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceBatch:
    """Rows of a round, in the order in which they came.

    Args:
        rows: the decoded rows.
        kinds: the code of each row's :class:`~lakefmt.cdc.RowKind`; None: rows that the operation of the job writes.
        rejected: what could not be decoded, with the columns of :data:`REJECTED`.
    """

    rows: pa.RecordBatch
    kinds: npt.NDArray[np.int8] | None = None
    rejected: pa.RecordBatch | None = None


class Round(Protocol):
    """What one commit takes from a source."""

    @property
    def checkpoint(self) -> Checkpoint:
        """Return where the source is once the round is committed; asked for when all its batches were read."""

    @property
    def summary(self) -> str:
        """Return the range of the round for people."""

    @property
    def expected_rows(self) -> int | None:
        """Return how many rows will come; None: only reading tells."""

    def batches(self) -> Iterator[SourceBatch]:
        """Read the round; another call reads the same rows again."""


class Source(Protocol):
    """Rows that come from somewhere, read by rounds."""

    @property
    def name(self) -> str:
        """Return what messages call the source."""

    def schema(self) -> pa.Schema | None:
        """Return the schema of its rows if that is known before any is read."""

    def plan(self, after: Checkpoint | None, limit: int | None) -> Round | None:
        """Choose what comes next; None: there is nothing new.

        Args:
            after: of the newest commit that has one; None: from the source's beginning.
            limit: about how many rows or bytes a round has, as Hudi's ``--source-limit`` counts them for this source.

        Raises:
            SourceUnavailable: the source does not answer; the call may be repeated.
            PositionLost: what comes after the checkpoint is gone.
            SourceRefused: the checkpoint is of another kind of source, or a setting cannot be followed.
        """

    def close(self) -> None:
        """Release connections and files."""


@runtime_checkable
class KnowsTableSchema(Protocol):
    """A source whose data have no types of their own: before each plan it is told the columns of the table, None: there is none."""

    table_schema: pa.Schema | None


@runtime_checkable
class HearsOfCommits(Protocol):
    """A source that is notified of commits, such as a broker that shows consumer offsets; correctness does not depend on it."""

    def committed(self, checkpoint: Checkpoint) -> None:
        """Note that a round was committed."""


@runtime_checkable
class StoresInstants(Protocol):
    """A source whose checkpoints are instants of a table, which Hudi stores under keys of two generations."""

    def checkpoint_version(self, table_version: int) -> int:
        """Return the generation of keys, 1 or 2, for a version of the table that is written."""


def rejected_records(reasons: list[str], origins: list[str], payloads: list[bytes | None]) -> pa.RecordBatch:
    """Return rejected records as a batch of :data:`REJECTED`."""
    columns = [pa.array(reasons, pa.string()), pa.array(origins, pa.string()), pa.array(payloads, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=REJECTED)
