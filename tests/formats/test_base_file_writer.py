"""Which columns of a base file are stored by a dictionary."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt._core.formats.parquet.base_file import BaseFileWriter
from lakefmt.errors import UnknownSetting

ROWS = 10_000


def is_coded(values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bool:
    """Write a column of numbers and say whether its pages point into a dictionary."""
    table, sink = pa.table({"n": values}), io.BytesIO()
    writer = BaseFileWriter(sink, table.schema)
    writer.write(table)
    writer.close({})
    stored = pq.ParquetFile(sink)
    assert stored.read().equals(table)
    return bool(stored.metadata.row_group(0).column(0).has_dictionary_page)


@pytest.mark.parametrize(
    ("distinct", "coded"), [(1, True), (10, True), (200, True), (1_500, True), (5_000, False), (ROWS, False)]
)
@pytest.mark.parametrize("seed", range(5))
def test_values_that_repeat_are_stored_by_a_dictionary(distinct: int, coded: bool, seed: int) -> None:
    values = np.random.default_rng(seed).permutation(ROWS) % distinct
    assert is_coded(values.astype(np.int64)) == coded


def test_few_values_that_repeat_later_only_are_not() -> None:
    assert not is_coded(np.concatenate([np.arange(2_048), np.zeros(ROWS - 2_048, np.int64)]))


@pytest.mark.parametrize("rows", [100, 300, 1_023])
def test_of_few_rows_nothing_is_counted(rows: int) -> None:
    assert is_coded(np.arange(rows, dtype=np.int64)) == (rows >= 256)


@pytest.mark.parametrize(
    ("said", "stored"), [("ZSTD", "ZSTD"), ("GZIP", "GZIP"), ("UNCOMPRESSED", "UNCOMPRESSED"), ("none", "UNCOMPRESSED")]
)
def test_the_codec_is_that_of_hudis_setting_in_either_case(tmp_path: Path, said: str, stored: str) -> None:
    data = pa.table({"id": ["a", "b"]})
    options = {"hoodie.parquet.compression.codec": said}
    table = lakefmt.create_table(str(tmp_path / "t"), data=data, record_key="id", options=options)
    table.upsert(data)
    (file,) = (tmp_path / "t").glob("*.parquet")
    assert pq.read_metadata(file).row_group(0).column(0).compression == stored
    with pytest.raises(UnknownSetting, match="expected zstd"):
        table.upsert(data, options={"hoodie.parquet.compression.codec": "lz5"})
