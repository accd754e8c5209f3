"""Record keys by the value of another column, as a secondary index says (effects on reading only)."""

from __future__ import annotations

import pyarrow as pa

from lakefmt.errors import CorruptFile
from lakefmt.metadata.index_definitions import IndexDefinition
from lakefmt.metadata.keys import record_keys_of, secondary_index_prefixes
from lakefmt.metadata.reading.reader import MetadataTable, newest_records

__all__ = ["decode_index_keys", "lookup_record_keys"]


def lookup_record_keys(table: MetadataTable, index: IndexDefinition, values: pa.Array) -> pa.Array:
    """Return the record keys of the rows in which the indexed column has one of some values.

    Parameters:
        table: the metadata table.
        index: the secondary index.
        values: of the indexed column's type, without nulls.

    Raises:
        CorruptFile: the index is damaged, or a file group of it is missing.
    """
    prefixes = secondary_index_prefixes(values.unique())
    placed_by = None if index.version in (None, "V1") else prefixes
    runs = table.lookup_prefixes(index.name, prefixes.cast(pa.binary()), placed_by)
    records, _ = newest_records(runs)
    return decode_index_keys(records["key"].combine_chunks(), index.name)


def decode_index_keys(keys: pa.Array, what: str) -> pa.Array:
    """Return the record keys in keys of a secondary index.

    Parameters:
        keys: binary.
        what: how the index is named in errors.

    Raises:
        CorruptFile: some of them are no such keys.
    """
    try:
        return record_keys_of(keys.cast(pa.string()))
    except (ValueError, pa.ArrowInvalid) as error:
        raise CorruptFile(f"the secondary index {what} is damaged: {error}") from None
