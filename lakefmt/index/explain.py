"""Asking a table's index without writing: which files would be opened for these keys, and why (effects: reads)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from lakefmt.arguments import foreign
from lakefmt.arrays import distinct
from lakefmt.config.settings import resolve_settings
from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidKey
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.index.api import FilterTally, Index, Located, LookUpStep
from lakefmt.index.key_reader import key_files
from lakefmt.index.locations import locate_everywhere, partitions_of_keys
from lakefmt.index.registry import choose_index
from lakefmt.values import Partitions

__all__ = ["IndexView", "LookUpReport", "ToKeys"]

#: Turns what a caller calls keys into record keys.
ToKeys = Callable[[TableState, object], pa.StringArray]


@dataclass(frozen=True, slots=True)
class LookUpReport:
    """What one look-up did.

    Attributes:
        index: the index's name.
        keys: keys that were looked up.
        found: keys of these that are stored.
        steps: files, and pairs of key and file, left after each step; the last one is what was found.
        filters: what key filters said; None when none was asked.
    """

    index: str
    keys: int
    found: int
    steps: tuple[LookUpStep, ...]
    filters: FilterTally | None = None

    @property
    def false_positives(self) -> LookUpStep | None:
        """Files whose keys were read and none was found, and pairs that were compared for nothing; None: not told."""
        by_name = {step.name: step for step in self.steps}
        opened, stored = by_name.get("opened"), by_name["found"]
        if opened is None:
            return None
        return LookUpStep("opened in vain", opened.files - stored.files, opened.candidates - stored.candidates)

    def __str__(self) -> str:
        lines = [f"index {self.index}: {self.found:,} of {self.keys:,} keys found"]
        steps = [*self.steps, self.false_positives] if self.false_positives else [*self.steps]
        width = max(len(step.name) for step in steps)
        lines.append(f"  {'step':{width}}  {'files':>9}  {'keys in files':>13}")
        lines += [f"  {step.name:{width}}  {step.files:>9,}  {step.candidates:>13,}" for step in steps]
        if self.filters is not None:
            lines.append(f"  filters: {_tally_text(self.filters)}")
        return "\n".join(lines)


def _tally_text(tally: FilterTally) -> str:
    absent = tally.asked - tally.right
    text = f"of {absent:,} keys that are not in a file, {tally.false:,} passed its filter"
    return text if tally.false_rate is None else f"{text} (rate {tally.false_rate:.2g})"


class IndexView:
    """A table's index, to be asked.

    Args:
        client: the open table.
        to_keys: turns rows or values into record keys; None: keys are given as they are stored.
    """

    def __init__(self, client: TableClient, to_keys: ToKeys | None = None) -> None:
        self._client = client
        self._to_keys = to_keys

    def __repr__(self) -> str:
        return f"IndexView({self.name!r})"

    @property
    def name(self) -> str:
        """The name of the index that a write with this handle's settings would use."""
        return self._index(self._client.load()).name

    def explain(self, keys: object, partitions: Partitions | None = None) -> LookUpReport:
        """Look keys up as a write would, and tell what was done; nothing is written.

        Args:
            keys: one key or many, as texts.
            partitions: look only in these, paths or values (docs/partitions.md); None: in all of them.

        Raises:
            InvalidKey: a key is null or no text.
            SnapshotExpired: a file was cleaned away meanwhile.

        Example:
            >>> import lakefmt
            >>> data = pa.table({"id": ["a", "b", "c"]})
            >>> table = lakefmt.create_table("memory://doc-explain", data=data, record_key="id")
            >>> _ = table.insert(data)
            >>> report = IndexView(table.client).explain(["b", "x"])
            >>> print(report)
            index bloom: 1 of 2 keys found
              step                      files  keys in files
              considered                    1              2
              left by key range             1              1
              left by bloom filter          1              1
              opened                        1              1
              found                         1              1
              opened in vain                0              0
              filters: of 0 keys that are not in a file, 0 passed its filter
        """
        state = self._client.load()
        index = self._index(state)
        wanted = _texts(keys) if self._to_keys is None else self._to_keys(state, keys)
        chosen = None if partitions is None else self._client.chosen_partitions(state, partitions)
        places = partitions_of_keys(index, wanted) if chosen is None else chosen
        slices = self._client.slices(state, places)
        located = locate_everywhere(index, wanted, slices, key_files(self._client, state))
        return _report(index, len(wanted), located)

    def _index(self, state: TableState) -> Index:
        settings = resolve_settings({}, self._client.options, state.config.properties)
        return choose_index(self._client, settings, state.config, state)


def _report(index: Index, num_keys: int, located: Located) -> LookUpReport:
    stored = LookUpStep("found", len(distinct(located.slices)), len(located.slices))
    return LookUpReport(index.name, num_keys, len(distinct(located.rows)), (*located.steps, stored), located.filters)


def _texts(keys: Any) -> pa.StringArray:
    given: Any = [keys] if isinstance(keys, str) else keys
    arrow = isinstance(given, pa.Array | pa.ChunkedArray)
    texts = foreign(
        lambda: given.cast(pa.string()) if arrow else pa.array(given, pa.string()), "keys are texts", InvalidKey
    )
    if isinstance(texts, pa.ChunkedArray):
        texts = pa.concat_arrays(texts.chunks) if texts.num_chunks else pa.array([], pa.string())
    if texts.null_count:
        raise InvalidKey(f"{texts.null_count} of {len(texts)} keys are null")
    return texts
