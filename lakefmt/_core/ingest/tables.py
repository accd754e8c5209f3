"""A lakefmt or Hudi table as a source: all its rows first, then what its commits changed, deletes among it (effects)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.cdc.events import RowKind
from lakefmt._core.ingest.api import Checkpoint, SourceBatch
from lakefmt._core.ingest.checkpoints import check_kind
from lakefmt._core.table import Table, open_table
from lakefmt._core.timeline.instant import Instant
from lakefmt._core.values import TableVersion
from lakefmt.errors import PositionLost, SnapshotExpired, SourceUnavailable, StorageError, TableNotFound

__all__ = ["TableSource"]

#: The completion time of the last commit, where the checkpoint is its requested time.
_COMPLETION: Final = "completion"
_BY_REQUEST: Final = "resumeFromInstantRequestTime:"
_BY_COMPLETION: Final = "resumeFromInstantCompletionTime:"
_COMMITS: Final = (
    "hoodie.streamer.source.hoodieincr.num_instants",
    "hoodie.deltastreamer.source.hoodieincr.num_instants",
)
_FALLS_BACK: Final = "hoodie.datasource.read.incr.fallback.fulltablescan.enable"
_OF_OPS: Final = {"i": RowKind.INSERT.value, "u": RowKind.UPDATE_AFTER.value, "d": RowKind.DELETE.value}


class _TableRound:
    """All rows of a table, or those that some commits changed."""

    def __init__(
        self, table: Table, start: str | None, last: Instant, checkpoint: Checkpoint, falls_back: bool
    ) -> None:
        self._table, self._start, self._last, self.checkpoint = table, start, last, checkpoint
        self._falls_back = falls_back

    @property
    def summary(self) -> str:
        """Return the range of commits."""
        return (
            f"changes behind {self._start} up to {self._last.time}"
            if self._start
            else f"all rows as of {self._last.time}"
        )

    @property
    def expected_rows(self) -> int | None:
        """Return None: only reading tells."""
        return None

    def batches(self) -> Iterator[SourceBatch]:
        """Read the rows.

        Raises:
            PositionLost: the commits of the range were cleaned away.
        """
        if self._start is None:
            yield from self._all_rows()
            return
        try:
            changes = self._table.changes(self._start, self._end)
        except SnapshotExpired as error:
            if self._falls_back:
                yield from self._all_rows()
                return
            raise PositionLost(
                f"{self._table.client.store.url}: what came behind {self._start} was cleaned away ({error}); begin anew with "
                f"--ignore-checkpoint (deletes of that time are not seen), or always then, with {_FALLS_BACK}=true"
            ) from error
        for batch in changes.combine_chunks().to_batches(max_chunksize=65_536):
            yield _as_rows(batch)

    @property
    def _end(self) -> str:
        return self._last.completion or self._last.time

    def _all_rows(self) -> Iterator[SourceBatch]:
        dataset = self._table.dataset(as_of=self._last.time)
        for batch in dataset.to_batches():
            yield SourceBatch(batch)


def _as_rows(changes: pa.RecordBatch) -> SourceBatch:
    """Return changes as rows with their kinds: of a delete the row before it."""
    ops = changes.column("op")
    deleted = pc.equal(ops, "d")
    images = pc.if_else(deleted, changes.column("before"), changes.column("after"))
    rows = pa.RecordBatch.from_struct_array(images)
    if not pc.any(deleted).as_py():
        return SourceBatch(rows)
    coded = ops.dictionary_encode()
    kinds = np.array([_OF_OPS[op] for op in coded.dictionary.to_pylist()], np.int8)[coded.indices.to_numpy()]
    return SourceBatch(rows, kinds)


class TableSource:
    """The changes of a table.

    Args:
        path: of the table.
        options: Hudi's properties of an incremental source.
        storage_options: credentials of the store.
    """

    def __init__(
        self, path: str, options: Mapping[str, str] | None = None, storage_options: Mapping[str, object] | None = None
    ) -> None:
        self._path, self._options, self._storage_options = path, dict(options or {}), storage_options
        self._opened: Table | None = None

    @property
    def name(self) -> str:
        """Return the path or URL."""
        return self._path

    @property
    def _table(self) -> Table:
        if self._opened is None:
            try:
                self._opened = open_table(self._path, storage_options=self._storage_options)
            except (TableNotFound, StorageError) as error:
                raise SourceUnavailable(f"{self._path}: {error}") from error
        return self._opened

    def schema(self) -> pa.Schema | None:
        """Return the columns of the table."""
        return self._table.schema

    def close(self) -> None:
        """Forget the table."""
        self._opened = None

    def checkpoint_version(self, table_version: int) -> int:
        """Return the generation of Hudi's keys: the second one from version 8 on."""
        return 2 if table_version >= TableVersion.EIGHT.value else 1

    def plan(self, after: Checkpoint | None, limit: int | None) -> _TableRound | None:
        """Choose the commits that come next.

        Args:
            after: of the newest commit that has one; None: all rows first.
            limit: without meaning here; ``hoodie.streamer.source.hoodieincr.num_instants`` limits commits.

        Raises:
            SourceRefused: the checkpoint is of another kind of source.
            SourceUnavailable: the table is not there.
        """
        start = None if after is None else self._start(after)
        table = self._table
        timeline = table.client.load().timeline
        commits = timeline.commits_by_completion
        new = [each for each in commits if start is None or (each.completion or each.time) > start]
        if not new:
            return None
        most = next((self._options[name] for name in _COMMITS if name in self._options), None)
        last = new[-1] if start is None or most is None else new[: max(1, int(most))][-1]
        details = {_COMPLETION: last.completion} if last.completion is not None else {}
        falls_back = self._options.get(_FALLS_BACK, "").lower() == "true"
        return _TableRound(table, start, last, Checkpoint(self._text(last), details), falls_back)

    def _text(self, last: Instant) -> str:
        return last.completion or last.time

    def _start(self, after: Checkpoint) -> str:
        """Return the time behind which commits are new."""
        check_kind(after.text, "a Hudi table", self.name)
        stated = after.details.get(_COMPLETION)
        if stated is not None:
            return stated
        if after.text.startswith(_BY_COMPLETION):
            return after.text.removeprefix(_BY_COMPLETION)
        text = after.text.removeprefix(_BY_REQUEST)
        found = next((each for each in self._table.client.load().timeline.commits if each.time == text), None)
        return text if found is None else found.completion or found.time
