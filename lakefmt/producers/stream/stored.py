"""The stored rows of the keys that a stream changes (effects: reads only)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.read.snapshot import Snapshot, scan_slices
from lakefmt.values import RECORD_KEY
from lakefmt.write.mutations import slices_of_keys

__all__ = ["stored_rows"]


def stored_rows(
    client: TableClient,
    state: TableState,
    options: Mapping[str, object],
    keys: pa.Array,
    partitions: pa.Array,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Return the stored rows of record keys: the table's index tells the files, and no other is read.

    Args:
        client: the table.
        state: as it is looked at.
        options: settings of the stream's commits.
        keys: record keys.
        partitions: the partition path of each.
        columns: that are read; None: all, with meta columns.
    """
    slices = slices_of_keys(client, state, options, keys, partitions)
    wanted = pc.field(RECORD_KEY).isin(keys.unique())
    return scan_slices(Snapshot(client, state), slices, columns, wanted, meta_columns=columns is None).read_all()
