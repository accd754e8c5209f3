"""Footers without their key filter: what Arrow tells of the whole one, whatever its bytes are."""

from __future__ import annotations

import datetime
import gc
import random
import tracemalloc
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.filegroups.reader import BaseFileReader, OpenBaseFile, parquet_file
from lakefmt._core.formats.parquet._compact import encode_number
from lakefmt._core.formats.parquet.base_file import decode_footer
from lakefmt._core.formats.parquet.footers import (
    BLOOM_KEY,
    LARGE_FOOTER,
    LEGACY_BLOOM_KEY,
    ShortFooter,
    in_memory,
    read_short_footer,
)
from lakefmt._core.read import scan
from lakefmt._core.read.scan import _short_fragments
from lakefmt._core.table import Table
from lakefmt._core.values import RECORD_KEY
from lakefmt.errors import LakefmtError

FILTER = "A" * (4 * LARGE_FOOTER)


def made(entries: dict[str, str], *, columns: int = 3, groups: int = 2, store_schema: bool = True) -> bytes:
    """A file with some entries in its footer."""
    names = [RECORD_KEY, *(f"c{number}" for number in range(columns - 1))]
    rows = pa.table(
        {name: pa.array(["a", "b"] * groups) for name in names} | {"day": [datetime.date(1970, 1, 1)] * 2 * groups}
    )
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, store_schema=store_schema) as writer:
        writer.write_table(rows, row_group_size=2)
        writer.add_key_value_metadata(entries)
    return bytes(sink.getvalue().to_pybytes())


def short_of(data: bytes, read: list[int] | None = None, *, far: bool = False) -> ShortFooter | None:
    """The footer of a file in memory; how many bytes each read took goes into a list."""

    def read_at(offset: int, count: int) -> bytes:
        found = data[max(0, offset) : offset + count]
        if read is not None:
            read.append(len(found))
        return found

    return (
        read_short_footer(in_memory(read_at, len(data)), len(data), 0) if far else read_short_footer(read_at, len(data))
    )


def _bytes_of(data: bytes, offset: int, count: int) -> bytes:
    return data[offset : offset + count]


def check_same(data: bytes, short: ShortFooter) -> None:
    """Compare a footer with what Arrow reads of the whole one."""
    whole = pq.ParquetFile(pa.BufferReader(data)).metadata
    assert short.metadata.schema.equals(whole.schema)
    assert short.metadata.to_dict() | {"serialized_size": 0} == whole.to_dict() | {"serialized_size": 0}
    texts = short.texts(lambda offset, count: data[offset : offset + count])
    kept = short.metadata.metadata or {}
    assert all(kept[name.encode()] == b"" for name in texts)
    assert kept | {name.encode(): text for name, text in texts.items()} == (whole.metadata or {})
    with parquet_file(pa.BufferReader(data), metadata=short.metadata) as parquet:
        footer, schema = decode_footer(parquet.metadata, parquet.schema_arrow, texts), parquet.schema_arrow
        found = parquet.read()
    with parquet_file(pa.BufferReader(data)) as parquet:
        entire = decode_footer(parquet.metadata, parquet.schema_arrow)
        assert schema.equals(parquet.schema_arrow)
        assert found.equals(parquet.read())
    assert (footer.num_rows, footer.schema, dict(footer.entries)) == (
        entire.num_rows,
        entire.schema,
        dict(entire.entries),
    )


@given(
    before=st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=300), max_size=20),
    after=st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=300), max_size=20),
    name=st.sampled_from([BLOOM_KEY, LEGACY_BLOOM_KEY]),
    columns=st.sampled_from([1, 3, 30]),
    store_schema=st.booleans(),
    far=st.booleans(),
)
def test_a_short_footer_and_its_filter_are_the_whole_footer(
    before: dict[str, str], after: dict[str, str], name: str, columns: int, store_schema: bool, far: bool
) -> None:
    data = made({**before, name: FILTER, **after}, columns=columns, store_schema=store_schema)
    short = short_of(data, far=far)
    if short is not None:
        assert [*short.left_out] == [name]
        check_same(data, short)
    else:  # only where two entries have the same name
        assert {*before} & {*after}


@pytest.mark.parametrize("far", [False, True])
def test_small_footers_are_arrows_unless_they_are_read_in_any_case(far: bool) -> None:
    data = made({BLOOM_KEY: "A" * 1000})
    short = short_of(data, far=far)
    assert (short is not None) == far
    if short is not None:
        assert not short.left_out
        check_same(data, short)


def test_little_is_read_of_a_near_file_and_a_far_one_is_asked_twice() -> None:
    data = made({"a": "b", BLOOM_KEY: FILTER, "c": "d"})
    near: list[int] = []
    far: list[int] = []
    for read in (near, far):
        short = short_of(data, read, far=read is far)
        assert short is not None
        check_same(data, short)
    assert sum(near) < len(FILTER) // 2
    assert len(far) == 2
    small: list[int] = []
    assert short_of(made({}), small, far=True) is not None
    assert len(small) == 1


def test_a_long_head_is_read_in_more_parts() -> None:
    data = made({BLOOM_KEY: FILTER}, columns=300, groups=10)
    short = short_of(data)
    assert short is not None
    check_same(data, short)


@pytest.mark.parametrize("far", [False, True])
def test_changed_bytes_are_the_footer_that_arrow_reads_or_left_to_arrow(far: bool) -> None:
    data = made({"a": "b", BLOOM_KEY: FILTER, "after": "c"}, store_schema=False)
    length = int.from_bytes(data[-8:-4], "little")
    begin = len(data) - 8 - length
    dice = random.Random(2)
    same = 0
    for _ in range(600):
        place = begin + dice.choice([dice.randrange(1_000), length - 1 - dice.randrange(200), dice.randrange(length)])
        changed = data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :]
        short = short_of(changed, far=far)
        if short is None:
            continue
        try:
            whole = pq.read_metadata(pa.BufferReader(changed))
            entries = {name.decode(): text.decode() for name, text in (whole.metadata or {}).items()}
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            continue
        texts = short.texts(partial(_bytes_of, changed))
        kept = {name.decode(): text.decode() for name, text in (short.metadata.metadata or {}).items()}
        assert {**kept, **{name: text.decode() for name, text in texts.items()}} == entries
        assert short.metadata.num_rows == whole.num_rows
        same += 1
    assert same > 100


@pytest.mark.parametrize("beside", [{}, {BLOOM_KEY: FILTER}])
@pytest.mark.parametrize("ends_in_entry", [False, True])
def test_a_text_that_looks_like_the_filter_is_not_cut_out(beside: dict[str, str], ends_in_entry: bool) -> None:
    looks = b"\x18" + bytes([len(BLOOM_KEY)]) + BLOOM_KEY.encode() + b"\x18" + encode_number(1 << 16)
    text = looks + (b"t" * (1 << 17) if ends_in_entry else b"")
    entries = {
        b"text": text,
        **{name.encode(): value.encode() for name, value in beside.items()},
        b"z": FILTER.encode(),
    }
    assert short_of(made(entries)) is None  # type: ignore[arg-type]  # Arrow takes bytes, too


def hostile_footers() -> dict[str, bytes]:
    """Footers that claim much, or take long to go through, as long as a real one is."""
    head = b"\x15\x02\x19\x1c\x48\x06schema\x15\x00\x00\x16\x00\x19\x0c"
    size = 4 << 20
    return {
        "entries without end": head + b"\x19\xfc" + encode_number(1 << 40) + b"\0" * size,
        "empty entries": head + b"\x19\xfc" + encode_number(size) + b"\0" * size,
        "fields without end": head + b"\x19\x1c" + b"\x11" * size,
        "a number without end": head + b"\x19\xfc" + b"\xff" * size,
        "a head of a number": b"\x15" + b"\xff" * size,
        "a head of structs": b"\x1c" * size,
        "a long name": head + b"\x19\x1c\x18" + encode_number(size - 9) + b"n" * size,
        "a text beyond the end": head + b"\x19\x1c\x18\x01a\x18" + encode_number(1 << 62) + b"n" * size,
        "a list of lists": head + b"\x19\x19" + b"\x19" * size,
        "names that are no text": head + b"\x19\x1c\x18\x02\xff\xfe\x18\x01a\x00\x00" + b"\0" * size,
    }


@pytest.mark.parametrize("what", hostile_footers())
def test_a_hostile_footer_is_left_to_arrow_before_much_of_it_is_read(what: str) -> None:
    footer = hostile_footers()[what]
    data = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    read: list[int] = []
    tracemalloc.start()
    try:
        assert short_of(data, read) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(read) <= 20 << 20
    assert peak <= 40 << 20


@pytest.mark.parametrize("cut", [0, 4, 8, 11, 12, 40, 1_000])
def test_a_file_that_is_cut_is_left_to_arrow(cut: int) -> None:
    data = made({BLOOM_KEY: FILTER})
    assert short_of(data[:cut]) is None
    assert short_of(data[-cut:] if cut else b"") is None
    assert short_of(data[:-1]) is None


# ------------------------------------------------------------------------------------------------------------ of a table


@cache
def _rows(number: int) -> pa.Table:
    keys = [f"{number:03}-{key:09}" for key in range(20_000)]
    return pa.table({"id": keys, "part": [f"p{number}"] * 20_000, "v": range(20_000)})


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table of six files, each with a key filter of 430 kB."""
    path = tmp_path_factory.mktemp("filtered") / "t"
    rows = pa.concat_tables([_rows(number) for number in range(6)])
    table = lakefmt.create_table(
        str(path),
        schema=rows.schema,
        record_key="id",
        partition_by="part",
        index="bloom",
        properties={"hoodie.index.bloom.num_entries": "60000"},
    )
    table.bulk_insert(rows)
    return lakefmt.open_table(str(path))


def test_a_dataset_of_many_files_holds_no_key_filter(filtered: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = []
    plain = scan._groups

    def noted(*given: object, **named: object) -> object:
        groups = plain(*given, **named)  # type: ignore[arg-type]
        datasets.extend(groups)
        return groups

    monkeypatch.setattr(scan, "_groups", noted)
    wanted = [f"{number:03}-{7:09}" for number in range(6)]
    found = filtered.read(filter=[("id", "in", wanted)]).sort_by("id")
    assert found["id"].to_pylist() == wanted
    assert filtered.count() == 120_000  # by the footers alone
    assert sum(batch.num_rows for batch in filtered.scan(columns=["v"], filter="v < 10")) == 60
    assert len(datasets) == 2
    for dataset in datasets:
        assert isinstance(dataset, ds.FileSystemDataset)
        for fragment in dataset.get_fragments():
            assert fragment.num_row_groups
            assert not (fragment.metadata.metadata or {}).get(BLOOM_KEY.encode())


_VERBS: dict[str, Callable[[Table, pa.Table], object]] = {
    "bulk_insert": lambda table, rows: table.bulk_insert(rows),
    "upsert": lambda table, rows: table.upsert(rows),
    "upsert, merge-on-read": lambda table, rows: table.upsert(rows),
    "compact, merge-on-read": lambda table, rows: table.compact(),
    "cluster": lambda table, rows: table.cluster("v"),
    "read by keys": lambda table, rows: table.read(filter=[("id", "in", rows["id"].to_pylist())]),
    "scan": lambda table, rows: [*table.scan()],
    "delete": lambda table, rows: table.delete(rows["id"].slice(0, 2)),
    "check": lambda table, rows: table.check(),
}


@pytest.mark.parametrize("verb", _VERBS)
def test_no_footer_waits_for_the_collector(verb: str, tmp_path: Path) -> None:
    rows = pa.concat_tables([_rows(number).slice(0, 500) for number in range(6)])
    table = lakefmt.create_table(
        str(tmp_path / "t"),
        schema=rows.schema,
        record_key="id",
        partition_by="part",
        table_type="mor" if verb.endswith("merge-on-read") else "cow",
        indexes=["column_stats"],
        properties={"hoodie.index.bloom.num_entries": "60000"},
    )
    table.bulk_insert(rows)
    table.upsert(rows.slice(0, 2_000))
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        _VERBS[verb](table, rows.slice(0, 1_000))
        gc.collect()
        waited = [each for each in gc.garbage if isinstance(each, pq.FileMetaData)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not waited


def test_many_large_files_are_scanned_part_by_part(filtered: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = filtered.read().sort_by("id")
    monkeypatch.setattr(scan, "_LARGE_BYTES", LARGE_FOOTER)
    monkeypatch.setattr(scan, "_SCANNED_TOGETHER", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    together: list[int] = []
    plain = scan._groups

    def noted(table_at: object, files: Sequence[object], *more: object, **named: object) -> object:
        together.append(len(files))
        return plain(table_at, files, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(scan, "_groups", noted)
    assert filtered.read().sort_by("id").equals(whole)
    assert pa.Table.from_batches(filtered.scan(), whole.schema).sort_by("id").equals(whole)
    assert filtered.count("v >= 10") == filtered.read(filter="v >= 10").num_rows == whole.num_rows - 60
    assert [count for count in together if count] == [4, 2] * 4


def test_a_damaged_file_among_many_is_named(filtered: Table, tmp_path: Path) -> None:
    table = lakefmt.create_table(
        str(tmp_path / "t"), schema=_rows(0).schema, record_key="id", partition_by="part", index="bloom"
    )
    table.bulk_insert(pa.concat_tables([_rows(number) for number in range(6)]))
    file = next(piece.base for piece in table.file_groups() if piece.base is not None)
    where = tmp_path / "t" / file.path
    data = where.read_bytes()
    where.write_bytes(data[:-9] + b"\xff" + data[-8:])
    where.write_bytes(data[: len(data) // 2])
    with pytest.raises(LakefmtError, match=file.name):
        lakefmt.open_table(str(tmp_path / "t")).read()


def test_readers_take_the_filter_only_when_they_are_asked(filtered: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    plain = OpenBaseFile.footer

    def noted(opened: OpenBaseFile) -> object:
        asked.append(1)
        return plain(opened)

    monkeypatch.setattr(OpenBaseFile, "footer", noted)
    reader = BaseFileReader(filtered.client.store)
    file = next(piece.base for piece in filtered.file_groups() if piece.base is not None)
    assert reader.rows(file, ["v"]).num_rows == 20_000
    assert reader.keys(file)[7].as_py().endswith(f"{7:09}")
    assert not asked
    bloom = reader.bloom_filter(file)
    assert bloom is not None
    assert asked
    assert not _short_fragments(filtered.client.store, [file], None)
