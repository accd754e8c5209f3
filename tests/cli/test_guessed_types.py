"""Types that are guessed from CSV and JSON lines keep different keys different (docs/cli.md, write)."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.ingest import inputs
from lakefmt._core.ingest.inputs import Input, open_batches, read_schema
from lakefmt.errors import InvalidInputError, LakefmtError, SchemaMismatch

NUMBERS = [
    "7", "007", "+7", " 7", "7.0", "7.00", "-0", "0", "1e5", "100000", "9007199254740993", "9007199254740992.0", "0.1", "0.10",
    "9223372036854775807", "9223372036854775808", "9223372036854775809", "99999999999999999999999999999999999999", "1" * 39,
]  # fmt: skip
TEXTS = [
    *NUMBERS,
    "TRUE",
    "true",
    "False",
    "2026-01-01",
    "2026-01-01 00:00:00",
    "2026-01-01T00:00:00Z",
    "12:30",
    "12:30:00",
    "x",
    "nan",
]
JSON_NUMBERS = [text for text in NUMBERS if text[0] not in "+ " and text not in ("007",)]


def _csv(tmp_path: Path, texts: list[str], name: str = "x.csv") -> Input:
    (tmp_path / name).write_text("id,v\n" + "".join(f"{text},1\n" for text in texts))
    return Input(str(tmp_path / name), "csv")


def _json(tmp_path: Path, tokens: list[str], name: str = "x.jsonl") -> Input:
    (tmp_path / name).write_text("".join(f'{{"id": {token}}}\n' for token in tokens))
    return Input(str(tmp_path / name), "jsonl")


def _keys(*sources: Input) -> list[object]:
    return pa.Table.from_batches(list(open_batches(sources, pa.schema([]), keys=["id"]))).column("id").to_pylist()


@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=5), st.lists(st.sampled_from(TEXTS), max_size=2))
def test_different_texts_are_different_keys(
    tmp_path_factory: pytest.TempPathFactory, first: list[str], second: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("csv")
    more = [_csv(folder, second, "y.csv")] if second else []
    try:
        keys = _keys(_csv(folder, first), *more)
    except LakefmtError:
        assert second  # a first file always has a type
        return
    assert len(set(keys)) == len({*first, *second})
    assert [str(key) if not isinstance(key, bool) else key for key in keys] == [*first, *second]


@given(st.lists(st.sampled_from(JSON_NUMBERS), min_size=1, max_size=5))
def test_different_numbers_are_different_keys(tmp_path_factory: pytest.TempPathFactory, tokens: list[str]) -> None:
    try:
        keys = _keys(_json(tmp_path_factory.mktemp("json"), tokens))
    except LakefmtError:
        assert any("." in token or len(token) > 38 for token in tokens)
        return
    assert [Decimal(str(key)) for key in keys] == [Decimal(token) for token in tokens]


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "2"], "int64"),
        (["1", "9223372036854775808"], "decimal128(38, 0)"),
        (["1" * 39], "string"),
        (["1.5", "2"], "double"),
        (["1.5", "9007199254740993"], "string"),
        (["01234"], "string"),
        ([" 7", "8"], "int64"),
        (["true", "FALSE"], "bool"),
        (["2026-01-01 10:00"], "timestamp[s]"),
        ([""], "string"),
    ],
)
def test_the_type_of_a_column_that_makes_no_keys(tmp_path: Path, texts: list[str], kind: str) -> None:
    source = _csv(tmp_path, texts)
    assert str(read_schema(source).field("id").type) == kind
    values = pa.Table.from_batches(list(open_batches([source], pa.schema([])))).column("id")
    assert str(values.type) == kind
    assert values.null_count == texts.count("")


def test_a_later_block_has_the_types_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_BLOCK_BYTES", 64)
    for number, last in enumerate(("007", "x", "9223372036854775808")):
        with pytest.raises((SchemaMismatch, InvalidInputError), match="id"):
            _keys(_csv(tmp_path, [*map(str, range(100)), last], f"{number}.csv"))
        with pytest.raises(InvalidInputError):
            _keys(_json(tmp_path, [*map(str, range(100)), json.dumps(last) if last == "x" else "9223372036854775808"]))


def test_numbers_beyond_64_bits_in_structs_of_json_are_kept(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(
        '{"s": {"id": 9223372036854775809, "f": 1.5}, "l": [1.0, 9007199254740993], "t": "2026-01-01"}\n'
    )
    source = Input(str(tmp_path / "x.jsonl"), "jsonl")
    (row,) = pa.Table.from_batches(list(open_batches([source], pa.schema([]), keys=["s.id", "t"]))).to_pylist()
    assert row == {"s": {"id": Decimal(9223372036854775809), "f": 1.5}, "l": [1, 9007199254740993], "t": "2026-01-01"}
    with pytest.raises(InvalidInputError, match=r"'s\.f' makes keys"):
        list(open_batches([source], pa.schema([]), keys=["s.f"]))


def test_columns_of_a_table_keep_their_types(tmp_path: Path) -> None:
    target = lakefmt.create_table("memory://guessed-types", schema=pa.schema([("id", pa.string())]), record_key="id")
    for texts in (["007", "7"], ["8"]):
        target.upsert(open_batches([_csv(tmp_path, texts)], target.schema, keys=["id"]))
    assert sorted(target.read()["id"].to_pylist()) == ["007", "7", "8"]
