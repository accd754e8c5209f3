"""Columns of few texts go from file to file as dictionaries: the same rows, and no text in the file that no row has."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt import Table
from lakefmt._core.filegroups import reader
from lakefmt._core.formats.parquet.base_file import MAX_KEY, MIN_KEY, key_range
from lakefmt._core.sorting import widened
from tests.example_counts import examples
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge

ROWS = 5_000
NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("city", pa.string()), ("code", pa.binary())])
QUICK = {"lakefmt.durability": "none", "lakefmt.write.threads": 1}


def _rows(numbers: range, ts: int, cities: list[str | None]) -> pa.Table:
    names = pa.array(cities, pa.string()).take(pa.array([number % len(cities) for number in numbers]))
    ids = [f"k{number:05}" for number in numbers]
    return pa.table({"id": ids, "ts": [ts] * len(ids), "city": names, "code": names.cast(pa.binary())}, schema=SCHEMA)


def _made(path: Path | str, **named: str) -> Table:
    table = lakefmt.create_table(
        str(path), schema=SCHEMA, record_key="id", ordering="ts", table_version=8, options=QUICK, **named
    )
    table.insert(_rows(range(ROWS), 1, ["oslo", "rome", None]))
    return table


def _files(path: Path, table: Table) -> list[str]:
    return [f"{path}/{piece.base.path}" for piece in table.file_groups() if piece.base is not None]


def _texts(path: str, name: str) -> set[str]:
    """The texts that a column's dictionary pages hold, whether a row has them or not."""
    column = pq.ParquetFile(path, read_dictionary=[name]).read(columns=[name]).column(0)
    return {text for chunk in column.chunks for text in chunk.dictionary.to_pylist()}


def test_rows_are_the_same_and_what_went_is_not_stored_on(
    tmp_path: Path, hudi_rs_judge: HudiRsJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    coded: list[list[str]] = []
    plain = reader.dictionary_column_names

    def spy(metadata: pq.FileMetaData, wanted: set[str]) -> list[str]:
        coded.append(plain(metadata, wanted))
        return coded[-1]

    monkeypatch.setattr(reader, "dictionary_column_names", spy)
    table = _made(tmp_path / "t")
    table.upsert(_rows(range(10, ROWS, 3), 2, ["paris"]))  # 10, 13 …: every row of rome
    table.upsert(_rows(range(ROWS - 5, ROWS + 40), 1, ["bergen"]))  # as old as what is stored, or new
    table.delete(["k00000"])
    table.upsert(_rows(range(10, 11), 0, ["too late"]))
    assert {"_hoodie_commit_time", "_hoodie_partition_path", "city", "code"} <= set(coded[0])
    expected = {f"k{n:05}": ("oslo", "rome", None)[n % 3] for n in range(1, ROWS)}
    expected |= {f"k{n:05}": "paris" for n in range(10, ROWS, 3)}
    expected |= {
        f"k{n:05}": "bergen" for n in range(ROWS - 5, ROWS + 40) if n >= ROWS or expected[f"k{n:05}"] != "paris"
    }
    found = lakefmt.open_table(tmp_path / "t").read()
    assert dict(zip(found["id"].to_pylist(), found["city"].to_pylist(), strict=True)) == expected
    assert found["code"].equals(found["city"].cast(pa.binary()))
    assert_same_multiset(hudi_rs_judge.snapshot(tmp_path / "t"), found, what="hudi-rs")
    (path,) = _files(tmp_path / "t", table)
    stored = set(pc.unique(found["city"]).drop_null().to_pylist())
    assert _texts(path, "city") == stored
    assert "too late" not in stored


def test_what_a_file_held_last_is_gone_with_its_rows(tmp_path: Path) -> None:
    table = _made(tmp_path / "t")
    table.delete(pc.field("city") == "rome")
    (path,) = _files(tmp_path / "t", table)
    assert _texts(path, "city") == {"oslo"}
    assert (
        b"rome" not in pq.ParquetFile(path).read(columns=["code"]).column(0).combine_chunks().buffers()[2].to_pybytes()
    )


def test_texts_that_overflowed_their_dictionary_are_read_as_texts(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("word", pa.string())])
    many = pa.table(
        {"id": [f"k{n}" for n in range(ROWS)], "word": [f"w{n // 2}" * 90 for n in range(ROWS)]}, schema=schema
    )
    table = lakefmt.create_table(str(tmp_path / "t"), schema=schema, record_key="id", options=QUICK)
    table.insert(many)
    (path,) = _files(tmp_path / "t", table)
    wanted = {"word", "_hoodie_commit_time"}
    assert reader.dictionary_column_names(pq.ParquetFile(path).metadata, wanted) == ["_hoodie_commit_time"]
    table.upsert(many.slice(0, 1))
    assert_same_multiset(table.read(), many, what="the rows written")


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
@given(
    st.sampled_from(["abc", "aé\uffff\U0001f600"]).flatmap(
        lambda letters: st.lists(
            st.lists(st.text(letters, min_size=1, max_size=2), min_size=1, max_size=6), min_size=2, max_size=5
        )
    ),
    st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_the_range_of_a_rewritten_file_is_that_of_its_keys(batches: list[list[str]], deleting: list[bool]) -> None:
    table = lakefmt.create_table(
        f"memory://ends-{next(NUMBERS)}", schema=SCHEMA, record_key="id", ordering="ts", options=QUICK
    )
    for number, (batch, deletes) in enumerate(zip(batches, [False, *deleting], strict=False)):
        ids = sorted(set(batch))
        if deletes:
            table.delete(ids)
        else:
            table.upsert(pa.table({"id": ids, "ts": [number] * len(ids), "city": ids, "code": ids}).cast(SCHEMA))
        for piece in table.file_groups():
            if piece.base is not None:
                footer = table.client.reader.footer(piece.base)
                low, high = key_range(table.client.reader.keys(piece.base))
                assert (footer.entries.get(MIN_KEY), footer.entries.get(MAX_KEY)) == (low, high)


def test_a_range_that_another_order_may_have_made_is_not_carried_over() -> None:
    new = ("b", "z")
    assert widened(("a", "c"), new) == ("a", "z")
    assert widened(("a", "c"), None) == ("a", "c")
    # Larger than any astral character by bytes, and smaller in Java.
    assert widened(("a", "\uffff"), new) is None
    assert widened(None, new) is None
