"""Small new files are written together: each is what it would be if it had been written alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.formats.parquet.base_file import column_traits, key_range, key_ranges
from lakefmt._core.keys import build_auto_keys, build_auto_keys_of_many
from lakefmt._core.write.files import bundles

INSTANT = "20260101000000000"
PARTITIONS = 100
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])


def rows(first: int, count: int) -> pa.Table:
    """Return rows of all partitions; one partition has NaN."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [f"k{n}é" for n in numbers],
            "part": [f"p{n % PARTITIONS}" for n in numbers],
            "ts": list(numbers),
            "v": [float("nan") if n % PARTITIONS == 3 and n % 2 else n / 2 for n in numbers],
        },
        schema=SCHEMA,
    )


def stored(table: lakefmt.Table, folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return of each partition's files rows, footers and what the footers tell of columns, without what names the write."""
    found: dict[str, list[tuple[object, ...]]] = {}
    for piece in sorted(table.file_groups(), key=lambda each: (each.partition, each.base.name)):
        path = folder / piece.base.path
        table_of_file, metadata = pq.read_table(path, partitioning=None), pq.read_metadata(path)
        assert set(table_of_file["_hoodie_file_name"].to_pylist()) == {piece.base.name}
        named = table_of_file.drop_columns(["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name"])
        columns = [metadata.row_group(0).column(number) for number in range(metadata.num_columns)]
        told = [
            (c.path_in_schema, c.encodings, c.statistics and (c.statistics.has_min_max, c.statistics.null_count))
            for c in columns
        ]
        sequence = [text.rpartition("_")[2] for text in table_of_file["_hoodie_commit_seqno"].to_pylist()]
        footers = {key: value for key, value in metadata.metadata.items() if key != b"lakefmt.write_stat"}
        found.setdefault(piece.partition, []).append((str(named.to_pylist()), sequence, footers, told))
    return found


def made(path: Path, kind: str = "cow", **options: Any) -> lakefmt.Table:
    return lakefmt.create_table(
        str(path),
        schema=SCHEMA,
        record_key="id",
        partition_by="part",
        ordering="ts",
        table_type=kind,
        options={"lakefmt.durability": "none", **options},
    )


@pytest.mark.parametrize("verb", ["bulk_insert", "insert", "upsert"])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_each_file_is_what_it_would_be_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, kind: str
) -> None:
    together, calls = made(tmp_path / "together" / "t", kind), []
    plain = bundles.write_small_files

    def seen(*given: Any, **named: Any) -> Any:
        calls.append(len(given[1]))
        return plain(*given, **named)

    for module in ("bulk_insert", "files.bundles"):
        monkeypatch.setattr(f"lakefmt._core.write.{module}.write_small_files", seen)
    first = getattr(together, verb)(rows(0, 1_500))
    assert sum(calls) == PARTITIONS
    for module in ("bulk_insert", "files.bundles"):
        monkeypatch.setattr(f"lakefmt._core.write.{module}.MOST_NEW_ROWS", 0)
    alone = made(tmp_path / "alone" / "t", kind)
    other = getattr(alone, verb)(rows(0, 1_500))
    assert sum(calls) == PARTITIONS
    assert stored(together, tmp_path / "together" / "t") == stored(alone, tmp_path / "alone" / "t")
    assert (first.num_inserts, other.num_inserts) == (1_500, 1_500)
    assert together.read().num_rows == 1_500


def test_a_second_attempt_adopts_what_the_first_one_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, plain, seen = made(tmp_path / "t"), bundles.write_small_files, []

    def twice(*given: Any, announced: bool | None) -> Any:
        first = plain(*given, announced=announced)
        second = plain(*given, announced=False)  # as if the markers of another attempt had been there
        seen.extend(zip(first, second, strict=True))
        return second

    monkeypatch.setattr("lakefmt._core.write.bulk_insert.write_small_files", twice)
    table.bulk_insert(rows(0, 400))
    assert len(seen) == PARTITIONS
    for first, second in seen:
        assert (first.adopted, second.adopted) == (False, True)
        assert (first.stat, first.rows_in) == (second.stat, second.rows_in)
    assert table.read().num_rows == 400


def test_rows_that_mark_themselves_deleted_are_left_out(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    table = lakefmt.create_table(
        str(tmp_path / "t"), schema=schema, record_key="id", partition_by="part", options={"lakefmt.durability": "none"}
    )
    data = rows(0, 400).append_column(schema.field(4), pa.array([n % 5 == 0 for n in range(400)]))
    result = table.upsert(data)
    assert result.num_inserts == table.read().num_rows == 320


def test_large_rows_are_written_file_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, groups = made(tmp_path / "t"), []
    monkeypatch.setattr(bundles, "row_group_bytes", lambda: 1_000)
    monkeypatch.setattr(
        bundles,
        "write_assigned",
        lambda *a, _plain=bundles.write_assigned, **k: groups.append(1) or _plain(*a, **k),
    )
    table.bulk_insert(rows(0, 400))
    assert len(groups) == PARTITIONS
    assert table.read().num_rows == 400


def test_large_partitions_are_written_beside_small_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with an open file of an earlier window, too; a partition may be small in one write and not in another."""
    together, plain = [], bundles.write_small_files

    def seen(*given: Any, **named: Any) -> Any:
        together.append(len(given[1]))
        return plain(*given, **named)

    monkeypatch.setattr("lakefmt._core.write.bulk_insert.write_small_files", seen)
    data = rows(0, 3_000)
    parts = [f"p{n % 40}" if n % 3 else f"p{n % 2}" for n in range(3_000)]
    data = data.set_column(1, "part", pa.array(parts))
    table = made(tmp_path / "t", **{"lakefmt.write.window.bytes": 60_000})
    table.bulk_insert(iter(data.slice(start, 500) for start in range(0, 3_000, 500)))
    assert sum(together) == 0  # all partitions have open files before the last window
    assert table.read().num_rows == 3_000
    table = made(tmp_path / "u")
    monkeypatch.setattr("lakefmt._core.write.bulk_insert.MOST_NEW_ROWS", 400)
    table.bulk_insert(data)
    assert sum(together) == 38
    read = table.read().sort_by("ts")
    assert str(read.to_pylist()) == str(data.to_pylist())  # NaN equals nothing
    assert sorted(each.partition for each in table.file_groups()) == sorted({f"part={name}" for name in parts})


def test_few_partitions_are_written_together_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together, plain = [], bundles.write_small_files

    def seen(*given: Any, **named: Any) -> Any:
        together.append(len(given[1]))
        return plain(*given, **named)

    monkeypatch.setattr("lakefmt._core.write.bulk_insert.write_small_files", seen)
    data = rows(0, 300)
    made(tmp_path / "t", **{"lakefmt.write.threads": 2}).bulk_insert(
        data.set_column(1, "part", pa.array([f"p{n % 30}" for n in range(300)]))
    )
    assert together == [15, 15]


def test_partitions_without_a_value_are_written_beside_the_others(tmp_path: Path) -> None:
    data = rows(0, 400)
    parts = pa.array([None if n % PARTITIONS == 2 else f"p{n % PARTITIONS}" for n in range(400)], pa.string())
    table = made(tmp_path / "t")
    table.bulk_insert(data.set_column(1, "part", parts))
    read = table.read()
    assert sorted(read["id"].to_pylist()) == sorted(data["id"].to_pylist())
    assert read["part"].null_count == parts.null_count


@given(
    st.lists(
        st.lists(st.text(st.sampled_from("ab\uffff\U00010000\x7f"), max_size=3), min_size=1, max_size=5),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 4),
)
def test_ranges_of_many_are_those_of_each(files: list[list[str]], chunk: int) -> None:
    keys = pa.chunked_array([[key for file in files for key in file]])
    parts = [keys.slice(first, chunk).chunk(0) for first in range(0, len(keys), chunk)]
    ranges = key_ranges(pa.chunked_array(parts), [len(file) for file in files])
    assert ranges == [key_range(pa.chunked_array([file])) for file in files]
    assert ranges == [(min(f, key=in_java), max(f, key=in_java)) for f in files]


def in_java(text: str) -> bytes:
    return text.encode("utf-16-be")


def test_columns_with_nan_go_by_their_own_names() -> None:
    """A name with a dot is not that of a field."""
    nan = float("nan")
    data = pa.table({"a.b": [1.0, nan], "a": [1.0, 2.0], "s": [{"x": nan, "y": 1.0}, None], "n": [1, 2]})
    assert column_traits(data, 2).with_nan == {"a.b", "s"}


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 1_200)), min_size=1, max_size=8))
def test_keys_of_many_are_those_of_each(given: list[tuple[int, int]]) -> None:
    ids, counts = [number for number, _ in given], [count for _, count in given]
    expected = [key for number, count in given for key in build_auto_keys(INSTANT, number, 0, count).to_pylist()]
    assert build_auto_keys_of_many(INSTANT, ids, counts).to_pylist() == expected
