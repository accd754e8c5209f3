"""Files come in batch by batch, in the types of the table."""

from __future__ import annotations

import codecs
import io
import json
import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakefmt._core.ingest import inputs
from lakefmt._core.ingest.inputs import Input, open_batches, parse_texts, read_schema
from lakefmt.errors import InvalidInputError, SchemaMismatch

TYPED = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int32()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("clock", pa.time64("us")),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("ok", pa.bool_()),
    ]
)
ROW = {
    "id": "007",
    "n": 5,
    "price": Decimal("1.50"),
    "day": date(2026, 1, 2),
    "clock": time(10, 30),
    "at": datetime(2026, 1, 2, 9, tzinfo=UTC),
    "local": datetime(2026, 1, 2, 9),
    "ok": True,
}


def read(sources, schema=TYPED):
    batches = list(open_batches(sources, schema))
    return pa.Table.from_batches(batches).to_pylist()


@pytest.fixture
def source(tmp_path):
    def make(name, content, **how):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return Input(str(path), inputs.guess_format(name), **how)

    return make


def test_csv_in_the_types_of_the_table(source):
    text = "id,n,price,day,clock,at,local,ok\n007,5,1.50,2026-01-02,10:30:00,2026-01-02T10:00:00+01:00,2026-01-02 09:00:00,true\n"
    assert read([source("x.csv", text)]) == [ROW]


def test_json_lines_in_the_types_of_the_table(source):
    text = (
        '{"id": "007", "n": 5, "price": 1.50, "day": "2026-01-02", "clock": "10:30:00", '
        '"at": "2026-01-02T09:00:00Z", "local": "2026-01-02T09:00:00", "ok": true}'
    )
    assert read([source("x.jsonl", text)]) == [ROW]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-02", datetime(2026, 1, 2, tzinfo=UTC)),
        ("2026-01-02 10:00", datetime(2026, 1, 2, 10, tzinfo=UTC)),
        ("2026-01-02T10:00:00.5", datetime(2026, 1, 2, 10, 0, 0, 500000, tzinfo=UTC)),
        ("2026-01-02T10:00:00Z", datetime(2026, 1, 2, 10, tzinfo=UTC)),
        ("2026-01-02T10:00:00+02:00", datetime(2026, 1, 2, 8, tzinfo=UTC)),
        ("2026-01-02 10:00:00-0130", datetime(2026, 1, 2, 11, 30, tzinfo=UTC)),
    ],
)
def test_moments_without_a_zone_are_in_utc(text, moment):
    assert parse_texts("at", pa.array([text]), pa.timestamp("us", "UTC")).to_pylist() == [moment]


def test_csv_nulls_and_delimiters(source):
    where = source("x.csv", 'id;n\n"";NA\n;1\nNA;2\n"NA";3\n', delimiter=";", nulls=("NA",))
    assert read([where]) == [{"id": "", "n": None}, {"id": None, "n": 1}, {"id": None, "n": 2}, {"id": "NA", "n": 3}]


def test_csv_with_line_ends_in_cells(source):
    assert read([source("x.csv", 'id,n\n"a\nb",1\n')]) == [{"id": "a\nb", "n": 1}]


def test_absent_fields_are_null_unless_columns_may_be_missing(source):
    text = '{"id": "a"}\n{"n": 1}\n'
    schema = pa.schema([("id", pa.string()), ("n", pa.int32()), ("more", pa.string())])
    assert read([source("x.jsonl", text)], schema)[0] == {"id": "a", "n": None, "more": None}
    assert read([source("x.jsonl", text, absent_is_missing=True)], schema)[0] == {"id": "a", "n": None}


def test_json_lines_come_in_blocks(source, monkeypatch):
    monkeypatch.setattr(inputs, "_BLOCK_BYTES", 64)
    rows = [{"id": f"k{number}", "n": number} for number in range(50)]
    text = "\n\n".join(f'{{"id": "{row["id"]}", "n": {row["n"]}}}' for row in rows)
    seen = []
    batches = list(
        open_batches([source("x.jsonl", text)], pa.schema([("id", pa.string()), ("n", pa.int32())]), seen.append)
    )
    assert len(batches) > 10
    assert pa.Table.from_batches(batches).to_pylist() == rows
    assert sum(seen) == 50


def test_a_line_without_an_end_is_refused(source, monkeypatch):
    monkeypatch.setattr(inputs, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(inputs, "_MAX_LINE_BYTES", 1000)
    with pytest.raises(InvalidInputError, match="has a line of more than 1,000 bytes"):
        read([source("x.jsonl", '{"id": "' + "x" * 2000)])


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b'{"id": ', b"PAR1\x00\x00\x00\x7fPAR1", b'id,n\n1\n"2'])
def test_damaged_files_are_refused(source, suffix, content):
    with pytest.raises((InvalidInputError, SchemaMismatch), match=f"x.{suffix}"):
        read([source(f"x.{suffix}", content)], pa.schema([("id", pa.int32())]))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.csv", "at\nsoon\n", "column 'at' of type timestamp"),
        ("x.jsonl", '{"day": "soon"}', "column 'day' of type date32"),
        ("x.csv", "n\nx\n", "cannot be read as csv"),
        ("x.jsonl", '{"n": 99999999999}', "cannot be read as jsonl"),
    ],
)
def test_values_of_another_type_are_refused(source, name, text, said):
    with pytest.raises((InvalidInputError, SchemaMismatch), match=said):
        read([source(name, text)])


@pytest.mark.parametrize("kind", [pa.binary(), pa.list_(pa.binary()), pa.map_(pa.string(), pa.binary())])
def test_bytes_are_not_read_from_text(source, kind):
    schema = pa.schema([("x", kind)])
    for where in (source("x.jsonl", '{"x": "YQ=="}'), source("x.csv", "x\nYQ==\n")):
        with pytest.raises(SchemaMismatch, match="use JSON lines or Parquet"):
            read([where], schema)


def test_later_inputs_are_put_in_the_order_of_the_first(source, tmp_path):
    first = source("x.csv", "id,n\na,1\n")
    pq.write_table(pa.table({"n": [2], "id": ["b"]}), tmp_path / "y.parquet")
    second = Input(str(tmp_path / "y.parquet"), "parquet")
    assert read([first, second]) == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]
    third = source("z.csv", "id,other\nc,1\n")
    with pytest.raises(SchemaMismatch, match=r"z\.csv has the columns"):
        read([first, third])
    pq.write_table(pa.table({"n": ["two"], "id": ["b"]}), tmp_path / "y.parquet")
    with pytest.raises(SchemaMismatch, match="other column types than earlier inputs"):
        read([first, second])


def test_parquet_comes_from_standard_input(monkeypatch):
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": ["a"]}), sink)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(sink.getvalue())))
    assert read([Input("-", "parquet")]) == [{"id": "a"}]


def test_the_schema_of_an_empty_file(source):
    with pytest.raises(InvalidInputError, match="is empty: it has no schema"):
        read_schema(source("x.jsonl", ""))
    assert read_schema(source("x.csv", "id,n\n")).names == ["id", "n"]


# ------------------------------------------------------------------------------------------------------------ encodings

#: A mark and the encoding behind it; `utf-16` and `utf-32` write a mark of their own.
MARKED = {
    "utf-8": (b"", "utf-8"),
    "utf-8 with a mark": (b"", "utf-8-sig"),
    "utf-16": (b"", "utf-16"),
    "utf-16, large end first": (codecs.BOM_UTF16_BE, "utf-16-be"),
    "utf-32": (b"", "utf-32"),
    "utf-32, large end first": (codecs.BOM_UTF32_BE, "utf-32-be"),
}


class Pipe(io.RawIOBase):
    """Standard input that gives a few bytes at a time and cannot go back."""

    def __init__(self, data):
        self.data = data

    def readable(self):
        return True

    def readinto(self, room):
        count = min(len(room), 7, len(self.data))
        room[:count], self.data = self.data[:count], self.data[count:]
        return count


@pytest.mark.parametrize("piped", [False, True], ids=["file", "pipe"])
@pytest.mark.parametrize("format", ["csv", "jsonl"])
@pytest.mark.parametrize("encoding", list(MARKED))
def test_a_text_is_read_in_the_encoding_that_its_mark_tells(source, monkeypatch, encoding, format, piped):
    rows = [{"id": f"Zürich-東京-😀-{n}", "n": n} for n in range(40)]
    lines = ["id,n", *(f"{row['id']},{row['n']}" for row in rows)]
    if format == "jsonl":
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    mark, codec = MARKED[encoding]
    data = mark + ("\n".join(lines) + "\n").encode(codec)
    monkeypatch.setattr(inputs, "_BLOCK_BYTES", 64)  # characters fall apart between two blocks
    given = source(f"x.{format}", data)
    if piped:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Pipe(data))))
        given = Input("-", format)
    assert read([given], pa.schema([("id", pa.string()), ("n", pa.int32())])) == rows


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.jsonl", b'{"id": "a", "n\xff": 1}\n'),
        ("x.csv", b"id,n\xff\na,1\n"),
        ("x.csv", b"\xff\xfei\x00d"[:-1]),
        ("x.csv", codecs.BOM_UTF16_LE + "id\n\ud800\n".encode("utf-16-le", "surrogatepass")),
        ("x.jsonl", b'{"id": "\\ud800"}\n'),
        ("x.jsonl", b'{"\\ud800": 1}\n'),
    ],
    ids=ascii,
)
def test_what_is_in_no_known_encoding_is_refused(source, name, content):
    given = source(name, content)
    for act in (lambda: read([given], pa.schema([("id", pa.string())])), lambda: read_schema(given)):
        with pytest.raises(InvalidInputError, match="cannot be read as"):
            act()
