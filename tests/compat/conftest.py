"""Which judged tables have pages stored twice, or taken from the file before, and which as Arrow alone writes them."""

from __future__ import annotations

import pytest

from lakefmt._core.filegroups import merge as merge_base
from lakefmt._core.formats.parquet import duplicate_columns
from lakefmt._core.write.files import base_file

#: In these files tables of a few rows are written as those of many are; in the others as small ones are.
_LIKE_LARGE = {
    "test_hudi_rs_reads",
    "test_spark_reads_and_upserts",
    "test_spark_keys_and_types",
    "test_spark_types_upserted",
    "test_spark_0150",
    "test_spark_102",
    "test_spark_compaction",
    "test_spark_versions",
}


@pytest.fixture(autouse=True)
def _written_like_large_tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.path.stem in _LIKE_LARGE:
        monkeypatch.setattr(duplicate_columns, "_LEAST_KEY_BYTES", 1)
        monkeypatch.setattr(base_file, "_LARGE_FILE_BYTES", 1)
        monkeypatch.setattr(merge_base, "_MANY_ROWS", 1)
