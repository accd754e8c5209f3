"""Which file slices hold some keys, told by the table's index as for an upsert (effects: reads only)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from lakefmt.config.settings import resolve_settings
from lakefmt.filegroups.model import FileSlice
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.index import IndexKeys, choose_index
from lakefmt.index.api import places_new_keys
from lakefmt.index.locations import partitions_to_list
from lakefmt.values import PartitionPath
from lakefmt.write._slice_state import find_stored

__all__ = ["slices_of_keys"]

_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


def slices_of_keys(
    client: TableClient, state: TableState, options: Mapping[str, object], keys: pa.StringArray, partitions: pa.Array
) -> list[FileSlice]:
    """Return the file slices in which some keys are, or were deleted.

    Args:
        client: the table.
        state: as it is looked at.
        options: settings of the call; they may name another index.
        keys: the keys.
        partitions: the partition path that each is meant for; a global index looks in all of them.

    Raises:
        SnapshotExpired: a file is gone.
        CorruptFile: a footer or a key column is damaged.
    """
    settings = resolve_settings({**client.options, **options}, None, state.config.properties)
    index = choose_index(client, settings, state.config, state)
    wanted = IndexKeys(keys, partitions.dictionary_encode())
    if places_new_keys(index):
        slices = client.slices(state, [PartitionPath(path) for path in wanted.partition_names()])
        groups = set(index.place(wanted, slices, lambda: _NO_UUID).file_groups)
        return [each for each in slices if (each.partition, each.file_id) in groups]
    slices = client.slices(state, partitions_to_list(index, wanted))
    located = find_stored(client, state, index, wanted, slices, alive=False)
    return [slices[number] for number in np.unique(located.slices)]
