"""Which pages of a base file its rewrite stores as they are (effects): those of columns in which no value has changed."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lakefmt.filegroups.merge.base import Merged
from lakefmt.filegroups.model import BaseFile
from lakefmt.filegroups.reader import BaseFileReader, KnownFooter
from lakefmt.formats.parquet.duplicate_columns import Pages, keepable_chunks

__all__ = ["KeptColumns"]


class KeptColumns:
    """The pages of a base file that may go on into the file that replaces it.

    Args:
        reader: reads the base file.
        base: the base file, written by lakefmt.
        footer: its footer.
        schema: the columns of the new file.
        codec: the compression of the new file.
    """

    def __init__(
        self, reader: BaseFileReader, base: BaseFile, footer: KnownFooter, schema: pa.Schema, codec: str
    ) -> None:
        self._reader, self._base = reader, base
        self._rows = [footer.metadata.row_group(n).num_rows for n in range(footer.metadata.num_row_groups)]
        self._chunks = keepable_chunks(footer.metadata, schema, codec, base.size) if reader.is_local else []

    def pages(self, merged: Merged) -> Mapping[str, Pages]:
        """Return the pages of the columns that a merge has left as they are.

        Raises:
            CorruptFile: the base file ends before they do.
        """
        if merged.group is None or not merged.unchanged or not self._chunks:
            return {}
        if self._rows[merged.group] != merged.table.num_rows:  # never pages beside other rows
            return {}
        notes = {name: note for name, note in self._chunks[merged.group].items() if name in merged.unchanged}
        return self._reader.pages(self._base, notes)
