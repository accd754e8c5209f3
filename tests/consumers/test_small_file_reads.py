"""A stream reads small files at once: the same rows as by a scanner of Arrow, the same refusals, and no scanner is made."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.consumers import planning
from lakefmt._core.consumers.stream import StreamBatch
from lakefmt._core.filegroups import reader
from lakefmt._core.filegroups.model import BaseFile, parse_files
from lakefmt._core.filegroups.reader import read_small_file
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.storage.memory import MemoryStore
from lakefmt.errors import CorruptFile, DataExpired, InvalidFilter, LakefmtError
from tests.consumers.stream_tables import FAST, append_table, ids, keyed_table, read_all, rows
from tests.example_counts import examples

NAME = "00000000-0000-0000-0000-000000000000-0_0-1-2_20260101000000000.parquet"
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("small", pa.int32()),
        ("x", pa.float64()),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("cents", pa.decimal128(9, 2)),
        ("raw", pa.binary()),
        ("s", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
        ("m", pa.map_(pa.string(), pa.int64())),
    ]
)
#: One row of SCHEMA from a number.
ROW: dict[str, Callable[[int], Any]] = {
    "n": int,
    "small": lambda k: k % 100,
    "x": lambda k: (float("nan"), -0.0, 0.0, k / 3)[k % 4],
    "text": lambda k: f"t{k % 7}",
    "flag": lambda k: k % 2 == 0,
    "day": lambda k: date(2026, 1, 1 + k % 28),
    "at": lambda k: datetime(2026, 1, 1, k % 24, tzinfo=UTC),
    "cents": lambda k: Decimal(k) / 100,
    "raw": lambda k: bytes([k % 256]),
    "s": lambda k: {"a": k, "b": ["x"] * (k % 3)},
    "m": lambda k: [(str(k), k)] * (k % 2),
}
FILTERS: list[Any] = [
    None,
    "n > 3",
    "x > 1",
    "not (x > 1)",
    "text = 't3' or flag",
    "s.a = 4 and day < date '2026-01-20'",
    "small is null",
    pc.field("n") * 2 > 7,
]


def made(numbers: list[int | None], nulls: int) -> pa.Table:
    """Rows; the value of every `nulls`-th column is null."""
    out = []
    for row, k in enumerate(numbers):
        out.append(
            {
                name: None if k is None or (nulls and (row + place) % nulls == 0) else make(k)
                for place, (name, make) in enumerate(ROW.items())
            }
        )
    return pa.Table.from_pylist(out, schema=SCHEMA)


def both(table: lakefmt.Table, monkeypatch: pytest.MonkeyPatch, **asked: Any) -> list[list[tuple[object, ...]]]:
    """What a stream hands out, at once and by scanners: rows as text, because NaN is no other NaN."""
    found = []
    for limit in (1 << 20, 0):
        with monkeypatch.context() as patch:
            patch.setattr(reader, "SMALL_BYTES", limit)
            batches = read_all(table, **asked)
        found.append(
            [
                (batch.partition, batch.bucket, batch.instant, str(batch.schema), repr(row))
                for batch in batches
                for row in batch.rows.to_pylist()
            ]
        )
    return found


@pytest.mark.parametrize("by_bucket", [True, False])
@settings(
    max_examples=max(3, examples(6)),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    commits=st.lists(st.lists(st.none() | st.integers(0, 300), min_size=1, max_size=12), min_size=1, max_size=3),
    nulls=st.sampled_from([0, 2, 5]),
    columns=st.none() | st.lists(st.sampled_from(SCHEMA.names), min_size=1, unique=True),
    filter=st.sampled_from(range(len(FILTERS))),
)
def test_rows_are_those_of_a_scanner(
    by_bucket: bool,
    monkeypatch: pytest.MonkeyPatch,
    commits: list[list[int | None]],
    nulls: int,
    columns: list[str] | None,
    filter: int,
) -> None:
    queue = {"order": "per_bucket", "bucket_key": "n", "buckets": 3} if by_bucket else {}
    table = append_table(schema=SCHEMA, partition_by=None, kind="append", **queue)
    for numbers in commits:
        table.append(made(numbers, nulls))
    asked = {"columns": columns, "filter": FILTERS[filter], "order": "bucket" if by_bucket else "commit", "threads": 1}
    at_once, scanned = both(table, monkeypatch, **asked)
    assert at_once == scanned
    expected = [row for numbers in commits for row in made(numbers, nulls).to_pylist()]
    if asked["filter"] is None:
        assert sorted(row[-1] for row in at_once) == sorted(
            repr({name: row[name] for name in columns or SCHEMA.names}) for row in expected
        )


def scanners_of(monkeypatch: pytest.MonkeyPatch, read: Callable[[], object]) -> int:
    """How often files were handed to Arrow's scanners."""
    seen = []
    scan = planning.scan_batches

    def counted(*given: Any) -> Any:
        seen.append(given)
        return scan(*given)

    with monkeypatch.context() as patch:
        patch.setattr(planning, "scan_batches", counted)
        read()
    return len(seen)


def test_no_scanner_is_made_for_small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    table = append_table(schema=SCHEMA, partition_by=None, kind="append", order="per_bucket", bucket_key="n", buckets=4)
    for first in (0, 50, 100):
        table.append(made(list(range(first, first + 50)), 0))

    def read(**asked: Any) -> int:
        return scanners_of(monkeypatch, lambda: read_all(table, **asked))

    assert read() == read(columns=["n"]) == read(filter="n > 70", columns=["text"]) == read(start="full") == 0
    monkeypatch.setattr(reader, "SMALL_BYTES", 100)
    assert read() == 12


@pytest.mark.parametrize("limit", ["_SMALL_ROWS", "_SMALL_DECODED_BYTES"])
def test_a_file_of_few_bytes_and_many_values_is_not_small(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = append_table(kind="append")
    table.append(rows(*[7] * 5000))
    monkeypatch.setattr(reader, limit, 4999 if limit == "_SMALL_ROWS" else 100)
    assert scanners_of(monkeypatch, lambda: read_all(table)) == 1
    monkeypatch.setattr(reader, limit, 5000 if limit == "_SMALL_ROWS" else 1 << 20)
    assert scanners_of(monkeypatch, lambda: read_all(table)) == 0


def test_several_row_groups_come_as_batches_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pa.BufferOutputStream()
    pq.write_table(rows(*range(100)), data, row_group_size=30)
    store, file = stored(data.getvalue().to_pybytes())
    read = read_small_file(store, file, list(rows().schema))
    assert read is not None
    assert read["id"].to_pylist() == list(range(100))


# ------------------------------------------------------------------------------------------------- columns that changed

OLD = pa.schema([("id", pa.int32()), ("p", pa.string()), ("v", pa.float32())])


def evolved(name: str) -> lakefmt.Table:
    table = append_table(schema=OLD, kind="append", order="per_bucket", bucket_key="id", buckets=2)
    table.append(pa.table({"id": [1, 2, 3], "p": ["a", "a", "b"], "v": [1.1, None, 3.3]}, schema=OLD))
    change = table.alter
    if name == "added":
        change.add_column("w", pa.int64())
    elif name == "renamed":
        change.rename_column("v", "w")
    elif name == "swapped":
        change.add_column("w", pa.float32())
        for one, to in (("v", "x"), ("w", "v"), ("x", "w")):
            change.rename_column(one, to)
    elif name == "dropped and added":
        change.drop_column("v")
        change.add_column("v", pa.float32())
    else:
        change.update_column("v", type=pa.float64())
    schema = table.schema
    values = {"id": 4, "p": "a", "v": 4.4, "w": 7, "x": 8}
    table.append(pa.Table.from_pylist([{key: values[key] for key in schema.names}], schema=schema))
    return table


@pytest.mark.parametrize("columns", [None, ["id"], ["v"]])
@pytest.mark.parametrize("name", ["added", "renamed", "swapped", "dropped and added", "widened"])
def test_files_from_before_a_change_of_columns(
    name: str, columns: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = evolved(name)
    if columns is not None and columns[0] not in table.schema.names:
        columns = ["w"]
    at_once, scanned = both(table, monkeypatch, columns=columns, threads=1)
    assert at_once == scanned
    stored = table.read(columns=columns).to_pylist()
    assert sorted(row[-1] for row in at_once) == sorted(map(repr, stored))
    # The two files from before are left to scanners, unless the columns that are asked for have stayed.
    stays = columns == ["id"] or (name == "added" and columns == ["v"])
    assert scanners_of(monkeypatch, lambda: read_all(table, columns=columns)) == (0 if stays else 2)


def test_a_narrower_type_without_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    table = append_table(schema=OLD, kind="append")
    table.append(pa.table({"id": [1, 2], "p": ["a", "a"], "v": [1.0, None]}, schema=OLD))
    wide = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.float32())])
    table.append(pa.table({"id": [1 << 40], "p": ["a"], "v": [2.0]}, schema=wide))
    at_once, scanned = both(table, monkeypatch, threads=1)
    assert at_once == scanned
    assert {row[3] for row in at_once} == {str(wide)}


def test_a_table_that_drops_its_partition_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lakefmt.create_table(f"{tmp_path}/t", schema=rows().schema, partition_by="p", kind="append", options=FAST)
    table.append(rows(1, 2))
    table.append(rows(3, p="b"))
    for number, file in enumerate(sorted(tmp_path.rglob("*.parquet"), key=str)):
        content = pq.read_table(file, partitioning=None)
        # Some files of Hudi have the column with nulls: the path decides.
        lost = pa.nulls(content.num_rows, pa.string())
        without = content.drop_columns(["p"])
        pq.write_table(without.append_column("p", lost) if number else without, file, store_schema=False)
    properties = tmp_path / "t/.hoodie/hoodie.properties"
    properties.write_text(properties.read_text() + "hoodie.datasource.write.drop.partition.columns=true\n")
    table = lakefmt.open_table(f"{tmp_path}/t")
    at_once, scanned = both(table, monkeypatch, threads=1)
    assert at_once == scanned
    assert [row[-1] for row in at_once] == ["{'id': 1, 'p': 'a'}", "{'id': 2, 'p': 'a'}", "{'id': 3, 'p': 'b'}"]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_keyed_table_as_it_is(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = keyed_table(schema=OLD, table_type=kind)
    for ids_, value in (([1, 2, 3], 1.0), ([2, 4], 2.0)):
        table.upsert(pa.table({"id": ids_, "p": ["a"] * len(ids_), "v": [value] * len(ids_)}, schema=OLD))
    at_once, scanned = both(table, monkeypatch, start="full", include_row_kind=True, threads=1)
    assert sorted(at_once) == sorted(scanned)
    assert sorted(batch.rows["v"][0].as_py() for batch in read_all(table, "full", filter="id in (1, 2)")) != [1.0, 1.0]
    assert len(at_once) == 4


# ------------------------------------------------------------------------------------------------------------ refusals


def stored(data: bytes, size: int | None = None) -> tuple[MemoryStore, BaseFile]:
    store = MemoryStore()
    store.put(NAME, data)
    (file,), _ = parse_files("", [ObjectInfo(NAME, len(data) if size is None else size, 0.0)])
    return store, file


def test_a_commit_that_names_another_size_does_not_make_a_file_small() -> None:
    data = pa.BufferOutputStream()
    pq.write_table(rows(*range(120_000)), data, compression="none", use_dictionary=False)
    store, file = stored(data.getvalue().to_pybytes(), 1000)
    assert read_small_file(store, file, list(rows().schema)) is None


@pytest.mark.parametrize(
    ("write", "fields"),
    [
        (pa.table({"id": [1]}), [("id", pa.int64()), ("p", pa.string())]),
        (pa.table({"id": pa.array([1], pa.int32())}), [("id", pa.int64())]),
        (pa.table([[1], [2]], names=["id", "id"]), [("id", pa.int64())]),
        (pa.table({"id": ["1"]}), [("id", pa.int64())]),
        (pa.table({"id": pa.array(["1"], pa.large_string())}), [("id", pa.string())]),
        (pa.table({"id": pa.array(["1"]).dictionary_encode()}), [("id", pa.string())]),
        (pa.table({"s": [{"a": 1}]}), [("s", pa.struct([("a", pa.int64()), ("b", pa.int64())]))]),
    ],
)
def test_columns_otherwise_than_asked_are_left_to_a_scanner(write: pa.Table, fields: list[Any]) -> None:
    data = pa.BufferOutputStream()
    pq.write_table(write, data)
    store, file = stored(data.getvalue().to_pybytes())
    assert read_small_file(store, file, list(pa.schema(fields))) is None
    assert read_small_file(store, file, [write.schema.field(0)]) is not None or write.schema.names == ["id", "id"]


def test_a_column_whose_name_begins_like_another_ones() -> None:
    """Arrow takes a name with a dot for a field of a struct, too."""
    table = pa.table({"a": [1], "a.b": [2], "s": [{"a": 3}], "s.a": [4]})
    data = pa.BufferOutputStream()
    pq.write_table(table, data)
    store, file = stored(data.getvalue().to_pybytes())
    for names in (["a"], ["a.b"], ["s"], ["s.a"], ["s.a", "a", "s"]):
        read = read_small_file(store, file, [table.schema.field(name) for name in names])
        assert read is not None
        assert read.equals(table.select(names))


def _with_another_byte(data: bytes) -> bytes:
    """The file with a changed byte in the values of the column ``id``."""
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    chunk = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "id")
    at = chunk.data_page_offset + chunk.total_compressed_size - 3
    return data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "no Parquet": lambda data: b"x" * len(data),
    "a page": lambda data: _with_another_byte(data),
    "a footer": lambda data: data[:-60] + b"\xff" * 40 + data[-20:],
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_refused_as_by_a_scanner(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lakefmt.create_table(
        f"{tmp_path}/t",
        schema=rows().schema,
        kind="append",
        order="per_bucket",
        bucket_key="id",
        buckets=1,
        options={**FAST, "hoodie.parquet.compression.codec": "uncompressed"},
    )
    table.append(rows(*range(20)))
    table.append(rows(*range(20, 40)))
    second = max(tmp_path.rglob("*.parquet"), key=lambda path: path.name.rpartition("_")[2])
    second.write_bytes(DAMAGE[name](second.read_bytes()))
    errors: list[type[LakefmtError]] = []
    for limit in (1 << 20, 0):
        monkeypatch.setattr(reader, "SMALL_BYTES", limit)
        got: list[StreamBatch] = []
        with table.stream("earliest", follow=False) as stream, pytest.raises(CorruptFile) as caught:
            got.extend(stream)
        errors.append(type(caught.value))
        assert ids(got) == list(range(20))  # what comes before it is handed out, and nothing after it
        if limit:
            assert second.name in str(caught.value)
    assert errors[0] is errors[1]


def test_a_file_that_was_cleaned_away(tmp_path: Path) -> None:
    table = lakefmt.create_table(f"{tmp_path}/t", schema=rows().schema, kind="append", options=FAST)
    table.append(rows(1))
    (file,) = tmp_path.rglob("*.parquet")
    file.unlink()
    with pytest.raises(DataExpired):
        read_all(table)


def test_a_filter_that_fails_is_a_wrong_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    table = append_table(kind="append")
    table.append(rows(0, 1))
    for limit in (1 << 20, 0):
        monkeypatch.setattr(reader, "SMALL_BYTES", limit)
        with pytest.raises(InvalidFilter):
            read_all(table, filter=pc.divide(pc.field("id"), pc.field("id")) > 0)


def test_batches_are_those_of_pyarrow(tmp_path: Path) -> None:
    """The judge is a plain read of the files by pyarrow."""
    table = lakefmt.create_table(
        f"{tmp_path}/t", schema=SCHEMA, kind="append", order="per_bucket", bucket_key="n", buckets=3, options=FAST
    )
    for first in (0, 30):
        table.append(made(list(range(first, first + 30)), 5))
    files = [str(path) for path in tmp_path.rglob("*.parquet")]
    plain = ds.dataset(files).to_table(columns=SCHEMA.names)
    streamed = pa.Table.from_batches([batch.rows for batch in read_all(table)])
    assert sorted(map(repr, streamed.to_pylist())) == sorted(map(repr, plain.to_pylist()))
