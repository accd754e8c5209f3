"""Files as a source: which are taken, when, and as what rows; the hard cases by name."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt._core.ingest.api import Checkpoint
from lakefmt._core.ingest.files import FileSource, FilesTaken
from lakefmt._core.ingest.folders import FilePattern, split_location
from lakefmt.errors import CorruptFile, InvalidInputError, RowsRejected, SourceRefused, SourceUnavailable
from lakefmt.storage import MemoryStore
from tests.ingest.ingest_kit import NOW, Clock, commits_of, extra_of, ingest, job, rows_of, touch, write_rows

V1 = "deltastreamer.checkpoint.key"
ROWS = pa.table({"id": ["a", "b"], "n": [1, 2]})


def ids(table: object) -> list[str]:
    return [row["id"] for row in rows_of(table)]


# ------------------------------------------------------------------------------------------------------------- formats


def _orc(path: Path) -> None:
    orc.write_table(ROWS, str(path))


def _avro(path: Path) -> None:
    import fastavro

    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": ["null", "long"]}],
    }
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), ROWS.to_pylist(), codec="deflate")


WRITERS = {
    "rows.parquet": lambda path: pq.write_table(ROWS, path),
    "rows.csv": lambda path: csv.write_csv(ROWS, path),
    "rows.jsonl": lambda path: path.write_text('{"id":"a","n":1}\n{"id":"b","n":2}\n'),
    "rows.json.gz": lambda path: path.write_bytes(
        gzip.compress(b'{"id":"a","n":1}\n') + gzip.compress(b'{"id":"b","n":2}')
    ),
    "rows.csv.bz2": lambda path: path.write_bytes(bz2.compress(b"id,n\r\na,1\r\nb,2\r\n")),
    "rows.csv.xz": lambda path: path.write_bytes(lzma.compress(b"id,n\na,1\nb,2\n")),
    "rows.csv.zst": lambda path: path.write_bytes(pa.compress(b"id,n\na,1\nb,2\n", "zstd", asbytes=True)),
    "rows.tsv": lambda path: path.write_text("id\tn\na\t1\nb\t2\n"),
    "rows.avro": _avro,
    "rows.orc": _orc,
    "bom.csv": lambda path: path.write_bytes(b"\xef\xbb\xbfid,n\na,1\nb,2\n"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_each_format_is_read_as_its_rows(tmp_path, name):
    (tmp_path / "in").mkdir()
    WRITERS[name](tmp_path / "in" / name)
    touch(tmp_path / "in" / name)
    assert ingest(tmp_path / "in", tmp_path / "t") == 2
    assert rows_of(tmp_path / "t") == ROWS.to_pylist()


def test_all_formats_come_together(tmp_path):
    (tmp_path / "in").mkdir()
    for name, write in WRITERS.items():
        write(tmp_path / "in" / name)
        touch(tmp_path / "in" / name)
    assert ingest(tmp_path / "in", tmp_path / "t", operation="insert", key=()) == 2 * len(WRITERS)
    assert ingest(tmp_path / "in", tmp_path / "t", operation="insert", key=()) == 0


def test_csv_without_a_header_has_the_names_of_the_job(tmp_path):
    (tmp_path / "in").mkdir()
    touch(tmp_path / "in/a.csv") if (tmp_path / "in/a.csv").write_text("a;1\nb;NA\n") else None
    how = {"header": False, "columns": ["id", "n"], "delimiter": ";", "nulls": ["NA"]}
    assert ingest(tmp_path / "in", tmp_path / "t", **how) == 2
    assert rows_of(tmp_path / "t") == [{"id": "a", "n": 1}, {"id": "b", "n": None}]


def test_an_empty_file_has_no_rows_and_is_no_error(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [])
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b", "n": 1}])
    assert ingest(tmp_path / "in", tmp_path / "t") == 1
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}], NOW - 20)  # filled later
    assert ingest(tmp_path / "in", tmp_path / "t") == 1


def test_folders_are_columns(tmp_path):
    write_rows(tmp_path / "in/day=2026-01-01/city=S%C3%A3o/a.jsonl", [{"id": "a"}])
    write_rows(tmp_path / "in/day=2026-01-02/city=__HIVE_DEFAULT_PARTITION__/b.jsonl", [{"id": "b"}])
    assert ingest(tmp_path / "in", tmp_path / "t", partition_by="day") == 2
    assert rows_of(tmp_path / "t", ["id", "day", "city"]) == [
        {"id": "a", "day": "2026-01-01", "city": "São"},
        {"id": "b", "day": "2026-01-02", "city": None},
    ]


def test_files_of_one_batch_may_have_other_columns(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b", "n": 2.5, "new": "x"}])
    pq.write_table(pa.table({"id": ["c"], "n": pa.array([3], pa.int32())}), tmp_path / "in/c.parquet")
    touch(tmp_path / "in/c.parquet")
    assert ingest(tmp_path / "in", tmp_path / "t") == 3
    assert rows_of(tmp_path / "t") == [
        {"id": "a", "n": 1.0, "new": None},
        {"id": "b", "n": 2.5, "new": "x"},
        {"id": "c", "n": 3.0, "new": None},
    ]


def test_a_column_without_values_gets_its_type_from_the_first_one(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": None, "m": None}], NOW - 90)
    (tmp_path / "in/b.csv").write_text("id,n,m\nb,,\n")
    touch(tmp_path / "in/b.csv", NOW - 80)
    write_rows(tmp_path / "in/c.jsonl", [{"id": "c", "n": 1.5}], NOW - 70)
    assert ingest(tmp_path / "in", tmp_path / "t", source_limit=1) == 3
    assert rows_of(tmp_path / "t") == [{"id": "a", "n": None}, {"id": "b", "n": None}, {"id": "c", "n": 1.5}]


def test_a_table_that_is_there_gives_texts_their_types(tmp_path):
    schema = pa.schema([("id", pa.string()), ("at", pa.timestamp("us", "UTC")), ("code", pa.string())])
    lakefmt.create_table(str(tmp_path / "t"), schema=schema, record_key="id")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("id,at,code\n007,2026-01-01T10:00:00,0042\n")
    touch(tmp_path / "in/a.csv")
    assert ingest(tmp_path / "in", tmp_path / "t") == 1
    row = rows_of(tmp_path / "t")[0]
    assert (row["id"], row["code"], row["at"].isoformat()) == ("007", "0042", "2026-01-01T10:00:00+00:00")


# --------------------------------------------------------------------------------------------------------- which, and when


def test_files_of_one_time_that_come_later_are_not_lost(tmp_path):
    """Hudi's own tool never takes f4."""
    for n in range(3):
        write_rows(tmp_path / f"in/f{n}.jsonl", [{"id": f"f{n}"}], NOW - 50)
    assert ingest(tmp_path / "in", tmp_path / "t") == 3
    checkpoint = extra_of(tmp_path / "t")[V1]
    write_rows(tmp_path / "in/f4.jsonl", [{"id": "f4"}], NOW - 50)
    assert ingest(tmp_path / "in", tmp_path / "t") == 1
    assert extra_of(tmp_path / "t")[V1] == checkpoint == str(int((NOW - 50) * 1000))
    assert ids(tmp_path / "t") == ["f0", "f1", "f2", "f4"]
    assert ingest(tmp_path / "in", tmp_path / "t") == 0


def test_a_late_file_is_taken_as_long_as_the_window_says(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a"}], NOW - 50)
    assert ingest(tmp_path / "in", tmp_path / "t", late_window=100) == 1
    write_rows(tmp_path / "in/late.jsonl", [{"id": "late"}], NOW - 149)
    write_rows(tmp_path / "in/too_late.jsonl", [{"id": "too late"}], NOW - 151)
    assert ingest(tmp_path / "in", tmp_path / "t", late_window=100) == 1
    assert ids(tmp_path / "t") == ["a", "late"]


def test_a_file_that_is_replaced_under_its_name_is_taken_again(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}], NOW - 50)
    assert ingest(tmp_path / "in", tmp_path / "t") == 1
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 22}], NOW - 50)  # of another size, at the same time
    assert ingest(tmp_path / "in", tmp_path / "t") == 1
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 33}], NOW - 40)  # of the same size, at another time
    assert ingest(tmp_path / "in", tmp_path / "t") == 1
    assert rows_of(tmp_path / "t") == [{"id": "a", "n": 33}]


def test_a_young_file_waits_and_so_does_the_run_that_has_nothing_else(tmp_path):
    clock = Clock()
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a"}], NOW - 0.4)
    assert job(tmp_path / "in", tmp_path / "t", clock).run().tables[0].rows == 1
    assert clock.seconds == pytest.approx(NOW + 0.6, abs=0.01)


def test_a_file_of_the_future_waits_until_its_time(tmp_path):
    """The clock of the store is ahead; taking it would hide what comes before its time."""
    clock = Clock()
    write_rows(tmp_path / "in/future.jsonl", [{"id": "future"}], NOW + 500)
    write_rows(tmp_path / "in/now.jsonl", [{"id": "now"}], NOW - 5)
    assert job(tmp_path / "in", tmp_path / "t", clock).run().tables[0].rows == 1
    clock.seconds += 600
    assert job(tmp_path / "in", tmp_path / "t", clock).run().tables[0].rows == 1
    assert ids(tmp_path / "t") == ["future", "now"]


def test_a_file_that_grows_after_the_listing_is_left_for_the_next_round(tmp_path):
    source = FileSource(str(tmp_path / "in"), clock=Clock(), time_source=Clock())
    path = write_rows(tmp_path / "in/a.jsonl", [{"id": "a"}], NOW - 50)
    first = source.plan(None, None)
    assert first is not None
    write_rows(path, [{"id": "a"}, {"id": "b"}], NOW - 40)
    assert list(first.batches()) == []
    second = source.plan(first.checkpoint, None)
    assert second is not None
    assert sum(batch.rows.num_rows for batch in second.batches()) == 2


def test_a_file_that_grows_while_it_is_read_is_left_for_the_next_round(tmp_path):
    source = FileSource(str(tmp_path / "in"), clock=Clock(), time_source=Clock())
    path = write_rows(tmp_path / "in/a.jsonl", [{"id": "a"}], NOW - 50)
    first = source.plan(None, None)
    assert first is not None
    opened = source.folder.open

    def open_and_grow(name):
        file = opened(name)
        write_rows(path, [{"id": "a"}, {"id": "b"}], NOW - 40)
        return file

    source.folder.open = open_and_grow
    assert list(first.batches()) == []
    source.folder.open = opened
    assert source.plan(first.checkpoint, None) is not None


@pytest.mark.parametrize(
    "name", [".a.jsonl", "_a.jsonl", "_temporary/a.jsonl", ".hoodie/a.jsonl", "a.txt", "a.jsonl.crc"]
)
def test_hidden_files_and_those_of_no_format_are_not_read(tmp_path, name):
    write_rows(tmp_path / "in" / name, [{"id": "x"}])
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b"}])
    assert ingest(tmp_path / "in", tmp_path / "t") == 1


@pytest.mark.parametrize(
    ("pattern", "taken"),
    [
        ("*.jsonl", ["a"]),
        ("**/*.jsonl", ["a", "b", "c"]),
        ("x/*.jsonl", ["b"]),
        ("*/y/*", ["c"]),
        ("[ab].jsonl", ["a"]),
        ("?.jsonl", ["a"]),
        ("a.jsonl", ["a"]),
        ("x/**", ["b", "c"]),
        ("[!a].jsonl", []),
    ],
)
def test_patterns_are_those_of_a_shell(tmp_path, pattern, taken):
    for name, place in (("a", "a.jsonl"), ("b", "x/b.jsonl"), ("c", "x/y/c.jsonl")):
        write_rows(tmp_path / "in" / place, [{"id": name}])
    count = ingest(f"{tmp_path}/in/{pattern}", tmp_path / "t")
    assert count == len(taken)
    assert not taken or ids(tmp_path / "t") == taken


def test_a_pattern_with_an_open_bracket_is_refused():
    assert FilePattern("a[b").matches("a[b")
    assert split_location("/in/x[ab]/y.csv") == ("/in", "x[ab]/y.csv")
    assert split_location("*.csv") == (".", "*.csv")


@pytest.mark.parametrize(("limit", "rounds"), [(1, 3), (40, 2), (10_000, 1)])
def test_a_limit_makes_rounds_and_never_parts_files_of_one_time(tmp_path, limit, rounds):
    for n, modified in enumerate((NOW - 50, NOW - 50, NOW - 40, NOW - 30)):
        write_rows(tmp_path / f"in/f{n}.jsonl", [{"id": f"f{n}"}], modified)
    assert ingest(tmp_path / "in", tmp_path / "t", source_limit=limit) == 4
    assert commits_of(tmp_path / "t") == rounds


def test_files_come_in_the_order_of_their_times(tmp_path):
    """Of two rows of one key the one of the newer file stays."""
    for name, modified, n in (("z", NOW - 50, 1), ("a", NOW - 30, 3), ("m", NOW - 40, 2)):
        write_rows(tmp_path / f"in/{name}.jsonl", [{"id": "x", "n": n}], modified)
    ingest(tmp_path / "in", tmp_path / "t")
    assert rows_of(tmp_path / "t") == [{"id": "x", "n": 3}]


def test_a_folder_that_is_not_there_is_an_error_that_may_pass(tmp_path):
    with pytest.raises(SourceUnavailable, match="does not exist"):
        ingest(tmp_path / "none", tmp_path / "t")


def test_stores_are_read_as_folders_are(tmp_path):
    store = MemoryStore("ingest-files")
    store.put("day=1/a.jsonl", b'{"id":"a"}\n')
    store.put("_b.jsonl", b'{"id":"b"}\n')
    clock = Clock(4e9)
    assert job("memory://ingest-files", tmp_path / "t", clock).run().tables[0].rows == 1
    store.put("c.parquet", b"no parquet")
    with pytest.raises(InvalidInputError, match=r"c.parquet cannot be read as parquet"):
        job("memory://ingest-files", tmp_path / "t", clock).run()


# ------------------------------------------------------------------------------------------------------------- bad files


BAD = {
    "bad.parquet": b"PAR1 nothing",
    "half.csv.gz": gzip.compress(b"id,n\n" + b"a,1\n" * 100_000)[:200],
    "bad.avro": b"Obj\x01 nothing",
    "bad.orc": b"ORC",
    "bad.csv": b"id,n\na,1,2,3\n",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_ends_the_round_or_is_quarantined(tmp_path, name):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}], NOW - 50)
    (tmp_path / "in" / name).write_bytes(BAD[name])
    touch(tmp_path / "in" / name, NOW - 60)
    write_rows(tmp_path / "in/z.jsonl", [{"id": "z", "n": 2}], NOW - 40)
    with pytest.raises(InvalidInputError, match=name):
        ingest(tmp_path / "in", tmp_path / "t")
    assert not (tmp_path / "t").exists()
    how = {"errors": str(tmp_path / "errors")}
    assert ingest(tmp_path / "in", tmp_path / "t", **how) == 2
    assert ids(tmp_path / "t") == ["a", "z"]
    rejected = rows_of(tmp_path / "errors")
    assert [row["origin"] for row in rejected] == [f"{tmp_path}/in/{name}"]
    assert "cannot be read" in rejected[0]["reason"]
    assert ingest(tmp_path / "in", tmp_path / "t", **how) == 0


def test_bad_lines_are_quarantined_alone(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text('{"id":"a","n":1}\n{"id":"b"\n{"id":"c","n":3}\nnothing\n{"id":"d","n":4}')
    touch(tmp_path / "in/a.jsonl")
    assert ingest(tmp_path / "in", tmp_path / "t", errors=str(tmp_path / "e")) == 3
    assert ids(tmp_path / "t") == ["a", "c", "d"]
    assert [(row["origin"].rpartition("/")[2], row["payload"]) for row in rows_of(tmp_path / "e")] == [
        ("a.jsonl:2", b'{"id":"b"'),
        ("a.jsonl:4", b"nothing"),
    ]


def test_more_bad_rows_than_the_job_allows_end_the_round(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text('{"id":"a"}\nx\ny\nz\n')
    touch(tmp_path / "in/a.jsonl")
    with pytest.raises(RowsRejected, match="3 of 4 rows were rejected"):
        ingest(tmp_path / "in", tmp_path / "t", errors=str(tmp_path / "e"), max_error_rows=2)
    assert len(rows_of(tmp_path / "e")) == 3  # to be looked at
    assert ingest(tmp_path / "in", tmp_path / "t", errors=str(tmp_path / "e"), max_error_rows=3) == 1


# ---------------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize(
    "details", [{"files": "!", "since": "1"}, {"files": "AAA=", "since": "1"}, {"files": "", "since": "x"}]
)
def test_damaged_details_are_an_error(details):
    with pytest.raises(CorruptFile, match="damaged"):
        FilesTaken.of(Checkpoint("5", details))


def test_hudis_checkpoint_is_gone_on_from_as_hudi_would(tmp_path):
    """Without details, files up to its time count as taken."""
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a"}], NOW - 50)
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b"}], NOW - 50)
    write_rows(tmp_path / "in/c.jsonl", [{"id": "c"}], NOW - 40)
    source = FileSource(str(tmp_path / "in"), clock=Clock(), time_source=Clock())
    planned = source.plan(Checkpoint(str(int((NOW - 50) * 1000))), None)
    assert planned is not None
    assert [file.name for file in planned.files] == ["c.jsonl"]
    # From now on files of that time are told apart.
    write_rows(tmp_path / "in/d.jsonl", [{"id": "d"}], NOW - 50)
    later = source.plan(planned.checkpoint, None)
    assert later is not None
    assert [file.name for file in later.files] == ["d.jsonl"]


def test_many_files_are_remembered_in_few_bytes(tmp_path, monkeypatch):
    import lakefmt._core.ingest.files as module

    monkeypatch.setattr(module, "_MOST_REMEMBERED", 10)
    for n in range(30):
        write_rows(tmp_path / f"in/f{n:02}.jsonl", [{"id": f"f{n}"}], NOW - 100 + n)
    source = FileSource(str(tmp_path / "in"), clock=Clock(), time_source=Clock())
    planned = source.plan(None, None)
    assert planned is not None
    taken = FilesTaken.of(planned.checkpoint)
    assert taken.digests is not None
    assert len(taken.digests) == 10
    assert source.plan(planned.checkpoint, None) is None
    write_rows(tmp_path / "in/g.jsonl", [{"id": "g"}], NOW - 85)  # too late for what is remembered
    write_rows(tmp_path / "in/h.jsonl", [{"id": "h"}], NOW - 75)
    late = source.plan(planned.checkpoint, None)
    assert late is not None
    assert [file.name for file in late.files] == ["h.jsonl"]
    monkeypatch.setattr(module, "_MOST_OF_ONE_TIME", 3)
    with pytest.raises(SourceRefused, match="times too near"):
        source.plan(None, None)
