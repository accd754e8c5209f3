"""Which columns of a base file are stored by a dictionary, and how a key filter comes into its footer."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.formats.bloom_filter import BloomFilter
from lakefmt._core.formats.parquet import base_file, duplicate_columns
from lakefmt._core.formats.parquet.base_file import BaseFileWriter, KeySummary, key_footers
from lakefmt._core.values import RECORD_KEY
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


def file_with_filter(rows: pa.Table, bloom: BloomFilter, entries: dict[str, str], *, by_arrow: bool) -> bytes:
    """Write a file; its key filter is handed to Arrow or not, and the keys are encoded once or twice."""
    sink = io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicate_columns, "_LEAST_KEY_BYTES", 1)
        patch.setattr(base_file, "_LONG_TEXT_BYTES", 1 << 60 if by_arrow else 0)
        writer = BaseFileWriter(sink, rows.schema)
        writer.write(rows)
        writer.close({**key_footers(KeySummary("a", "b", bloom), "{}"), **entries})
    return sink.getvalue()


@given(
    keys=st.lists(st.text(max_size=3), max_size=20),
    columns=st.sampled_from(["plain", "a copy of the keys", "NaN"]),
    size=st.integers(1, 4_000),
    most=st.integers(1, 9_000),
    entries=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=20),
)
def test_a_filter_that_is_written_in_parts_gives_the_bytes_of_arrow(
    keys: list[str], columns: str, size: int, most: int, entries: dict[str, str]
) -> None:
    rows = pa.table({RECORD_KEY: pa.array(keys, pa.string())})
    if columns != "plain":
        values = keys if columns != "NaN" else [float("nan")] * len(keys)
        rows = rows.append_column("id", pa.array(values, pa.string() if columns != "NaN" else pa.float64()))
    bloom = BloomFilter.sized(size, 0.001, max(size, most))
    bloom.add(pa.array(keys, pa.string()))
    file = file_with_filter(rows, bloom, entries, by_arrow=False)
    assert file == file_with_filter(rows, bloom, entries, by_arrow=True)
    assert pq.read_table(io.BytesIO(file)).num_rows == len(keys)


#: In a process of its own, because the system knows the most memory of a process since it began; what Arrow copies nobody else counts.
CLOSES = """
import io, tracemalloc
from pathlib import Path
import pyarrow as pa
from lakefmt._core.formats.bloom_filter import BloomFilter
from lakefmt._core.formats.parquet.base_file import BaseFileWriter, KeySummary, key_footers

class Nowhere(io.RawIOBase):
    size = 0

    def writable(self):
        return True

    def write(self, data):
        self.size += len(data)
        return len(data)

def memory(name):
    status = Path("/proc/self/status")
    return int(status.read_text().split(name)[1].split()[0]) if status.exists() else 0

def closed(bloom):
    sink, rows = Nowhere(), pa.table({"n": [1]})
    writer = BaseFileWriter(sink, rows.schema)
    writer.write(rows)
    writer.close(key_footers(KeySummary("a", "b", bloom), "{}"))
    return sink.size

small, large = BloomFilter.sized(100, 0.01), BloomFilter.sized(5_000_000, 1e-6)
large.add(pa.array(["a"]))
small_bytes = closed(small)
before = memory("VmRSS:")
large_bytes = closed(large)
grown = memory("VmHWM:") - before
tracemalloc.start()
assert closed(large) == large_bytes
print(small_bytes, large_bytes, grown << 10, tracemalloc.get_traced_memory()[1])
"""


def test_a_large_filter_is_never_held_as_text() -> None:
    done = subprocess.run([sys.executable, "-c", CLOSES], capture_output=True, text=True, check=True)
    small, large, grown, python = map(int, done.stdout.split())
    assert large - small > 22 << 20
    # The bits of the filter are 17 MiB, which are paged in while they are read: most of them are zero.
    assert grown < 24 << 20, (grown, python)
    assert python < 2 << 20, (grown, python)
