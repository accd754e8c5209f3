"""Statistics of base files that this process has just put on a store (effects on reading only)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt.filegroups.model import BaseFile
from lakefmt.filegroups.reader import reading
from lakefmt.formats.parquet.base_file import check_row_counts
from lakefmt.metadata.statistics import ColumnRange, footer_ranges
from lakefmt.storage.api import ObjectStore, SupportsWrittenFooters

__all__ = ["written_ranges"]


def written_ranges(
    store: ObjectStore, file: BaseFile, columns: Iterable[str], types: Mapping[str, pa.DataType]
) -> dict[str, ColumnRange] | None:
    """Return the statistics of a file whose footer its writer kept; None: the file has to be read.

    Parameters:
        store: the data table's store.
        file: written by the instant that is recorded.
        columns: whose statistics are asked for.
        types: of the columns in the table.

    Raises:
        CorruptFile: the footer is damaged.
    """
    footer = store.take_footer(file.path) if isinstance(store, SupportsWrittenFooters) else None
    if footer is None:
        return None
    with reading(file.path):
        metadata = pq.read_metadata(pa.BufferReader(footer))
    check_row_counts(metadata)
    ranges, unknown = footer_ranges(metadata, columns, types)
    return None if unknown else ranges
