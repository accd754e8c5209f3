"""The bloom index: key ranges, then filters, then keys (spec 5.1, 6).

A key's files are narrowed in three steps, cheapest first: the range in each footer, the filter in each footer, and at
last the key column of the few files that remain, so that a false positive of a filter never becomes a wrong update.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakefmt.filegroups.model import FileSlice
from lakefmt.index.api import IndexKeys, KeyReader, Located, LookUpStep
from lakefmt.index.lookup import Candidate, check_keys, partition_rows, prune_by_range, to_located

__all__ = ["BloomIndex"]


class BloomIndex:
    """Finds keys through the footers of base files."""

    def __init__(self, *, is_global: bool = False, prune_by_ranges: bool = True) -> None:
        self.is_global = is_global
        self.name = "global_bloom" if is_global else "bloom"
        self._prune_by_ranges = prune_by_ranges

    def locate(self, wanted: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        """Return where the wanted keys are stored among `slices`."""
        candidates = list(partition_rows(wanted, slices, self.is_global))
        steps = [LookUpStep("considered", len(candidates), sum(len(c.rows) for c in candidates))]
        if self._prune_by_ranges:
            candidates = prune_by_range(wanted, candidates, reader)
            steps.append(LookUpStep("left by key range", len(candidates), sum(len(c.rows) for c in candidates)))
        candidates = [left for c in candidates if (left := _filter(wanted, c, reader)) is not None]
        steps.append(LookUpStep("left by bloom filter", len(candidates), sum(len(c.rows) for c in candidates)))
        found = list(check_keys(wanted, candidates, reader))
        steps.append(LookUpStep("opened", len(candidates), sum(len(rows) for _, rows in found)))
        return to_located(iter(found), steps)


def _filter(wanted: IndexKeys, candidate: Candidate, reader: KeyReader) -> Candidate | None:
    bloom = reader.bloom_filter(candidate.file)
    if bloom is None:
        # A file without a filter is legal: its keys are read (spec 5.1).
        return candidate
    hit = bloom.contains(wanted.keys.take(pa.array(candidate.rows)))
    return Candidate(candidate.slice_number, candidate.file, candidate.rows[hit]) if hit.any() else None
