"""Base files whose columns of text another writer has stored in another Arrow type are read and rewritten."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64())])
#: What Arrow writes down of such columns beside Parquet's own types, and makes of them when it reads.
KINDS = [pa.large_string(), pa.dictionary(pa.int32(), pa.string())]


def rows(*numbers: int, v: int) -> pa.Table:
    ids = [f"key-{number:04}" for number in numbers]
    return pa.table({"id": ids, "city": ["x"] * len(ids), "v": [v] * len(ids)}, schema=SCHEMA)


def store_anew(path: Path, kind: pa.DataType) -> None:
    """Store a file's rows and Hudi's entries as pyarrow would, with its own schema."""
    with pq.ParquetFile(path) as file:
        table, entries = file.read(), dict(file.metadata.metadata)
    texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
    for name in texts:
        table = table.set_column(table.column_names.index(name), name, table.column(name).cast(kind))
    entries.pop(b"lakefmt.write_stat", None)
    with pq.ParquetWriter(path, table.schema, store_schema=True) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(entries)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("index", ["bloom", "simple"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_rows_are_changed_deleted_and_found(table_type: str, index: str, kind: pa.DataType, tmp_path: Path) -> None:
    table = lakefmt.create_table(
        tmp_path / "t", schema=SCHEMA, record_key="id", index=index, table_type=table_type, ordering="v"
    )
    table.upsert(rows(*range(50), v=1))
    for piece in table.file_groups():
        store_anew(tmp_path / "t" / piece.base.path, kind)
    other = lakefmt.open_table(tmp_path / "t")
    assert other.upsert(rows(3, 70, v=2)).num_updates == 1
    assert other.delete(["key-0004"]).num_deletes == 1
    assert other.read(["v"], filter="id = 'key-0003'").to_pylist() == [{"v": 2}]
    found = {row["id"]: row["v"] for row in other.read().to_pylist()}
    assert found == {f"key-{n:04}": 2 if n in (3, 70) else 1 for n in (*range(50), 70) if n != 4}
    if table_type == "mor":
        other.compact()
        assert {row["id"]: row["v"] for row in other.read().to_pylist()} == found
