"""A folder of Parquet files as a table that copies nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt._core.storage.local import LocalStore
from lakefmt.errors import (
    CorruptFile,
    DuplicateKey,
    InternalError,
    InvalidInputError,
    InvalidKey,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
)
from lakefmt.testing.stores import SimulatedCrash
from tests.filegroups.test_bootstrap import COLUMNS, NEW, SOURCE, check_doors, digests, values_of
from tests.kit import THOROUGH


def make_source(folder: Path, *, with_city: bool = False) -> Path:
    """Make a folder with four files, in two partitions."""
    for part in sorted({row[0][:5] for row in SOURCE}):
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in SOURCE if row[0].startswith(part)]
        directory = folder / f"city={part[:4]}"
        directory.mkdir(parents=True, exist_ok=True)
        names = COLUMNS if with_city else COLUMNS[:-1]
        pq.write_table(pa.Table.from_pylist(rows).select(names), directory / f"part {part[4]}.parquet")
    return folder


@pytest.mark.parametrize(
    ("table_type", "version", "with_city"), [("cow", 6, True), ("mor", 8, False), ("cow", 9, False)]
)
def test_a_folder_becomes_a_table_that_goes_on(tmp_path: Path, table_type: str, version: int, with_city: bool) -> None:
    source, path = make_source(tmp_path / "in", with_city=with_city), tmp_path / "t"
    before = digests(source)

    def convert() -> Any:
        return lakefmt.convert(
            source, path, record_key="id", ordering="ts", table_type=table_type, table_version=version, in_place=True
        )

    done = convert()
    assert (done.rows, done.instant) == (len(SOURCE), "00000000000001")
    table = lakefmt.open_table(path)
    check_doors(table, SOURCE)
    assert table.history()["operation"].to_pylist() == ["bootstrap"]
    assert convert() == done
    table.upsert(pa.table({name: [row[n] for row in NEW] for n, name in enumerate(COLUMNS)}))
    check_doors(table, [*(row for row in SOURCE if row[0] != "oslo10"), *NEW])
    assert digests(source) == before
    with pytest.raises(TableExists):
        convert()
    (source / "city=rome" / "part 1.parquet").write_bytes(b"PAR1")
    with pytest.raises(CorruptFile, match="changed since"):
        table.read()


def test_a_folder_without_partitions_and_columns_of_many_types(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = pa.table(
        {
            "id": [3, 1, 2],
            "text": pa.array(["x", None, "y"], pa.large_string()),
            "code": pa.array(["x", None, "y"]).dictionary_encode(),
            "at": pa.array([1, 2, None], pa.timestamp("us", "UTC")),
            "many": [[1, None], [], None],
            "pair": [{"a": 1, "b": "z"}, None, {"a": None, "b": None}],
            "price": pa.array([1, 2, 3], pa.int32()).cast(pa.decimal128(20, 2)),
        }
    )
    pq.write_table(rows, tmp_path / "in/a.parquet", row_group_size=2)
    (tmp_path / "in/_SUCCESS").touch()
    lakefmt.convert(tmp_path / "in", tmp_path / "t", record_key="id", in_place=True)
    assert lakefmt.open_table(tmp_path / "t").read().to_pylist() == rows.to_pylist()


def test_names_of_directories_are_the_values(tmp_path: Path) -> None:
    for number, name in enumerate(("city=são%2Fpaulo/day=2024", "city=oslo/day=__HIVE_DEFAULT_PARTITION__")):
        (tmp_path / "in" / name.replace("são", "sao")).mkdir(parents=True)
        pq.write_table(pa.table({"id": [number]}), tmp_path / "in" / name.replace("são", "sao") / "a.parquet")
    lakefmt.convert(tmp_path / "in", tmp_path / "t", record_key=["id", "city"], in_place=True)
    found = lakefmt.open_table(tmp_path / "t").read(meta_columns=True).sort_by("id").to_pylist()
    assert [(row["city"], row["day"]) for row in found] == [("sao/paulo", "2024"), ("oslo", None)]
    assert found[0]["_hoodie_record_key"] == "id:0,city:sao/paulo"


def test_a_handle_follows_a_table_that_is_made_anew(tmp_path: Path) -> None:
    first, second = make_source(tmp_path / "first"), make_source(tmp_path / "second")
    (second / "city=rome" / "part 1.parquet").unlink()
    lakefmt.convert(first, tmp_path / "t", record_key="id", in_place=True)
    table = lakefmt.open_table(tmp_path / "t")
    for source, left in ((first, 12), (second, 9), (first, 12)):
        assert table.count() == table.read(filter="v >= 0").num_rows
        shutil.rmtree(tmp_path / "t")
        lakefmt.convert(source, tmp_path / "t", record_key="id", in_place=True)
        assert table.read(filter="v >= 0").num_rows == left


def _refused(files: dict[str, pa.Table], error: type[Exception], match: str, **call: Any) -> Any:
    return pytest.param(files, error, match, call, id=match)


ROWS = pa.table({"id": ["a", "b"], "city": ["x", "x"]})


@pytest.mark.parametrize(
    ("files", "error", "match", "call"),
    [
        _refused({"a.parquet": ROWS, "b.parquet": ROWS}, DuplicateKey, "2 record keys"),
        _refused({"a.parquet": pa.table({"id": ["a", None]})}, InvalidKey, "null"),
        _refused(
            {"a.parquet": pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns"))})}, UnsupportedFeature, "at "
        ),
        _refused({"a.parquet": pa.table({"id": [1], "n": pa.array([1], pa.int8())})}, UnsupportedFeature, "n .int8"),
        _refused({"a.parquet": ROWS, "b.parquet": pa.table({"id": ["c"]})}, UnsupportedFeature, "other columns"),
        _refused({"city=y/a.parquet": ROWS}, UnsupportedFeature, "other values of column 'city'"),
        _refused({"x/a.parquet": ROWS}, InvalidInputError, "does not name a column"),
        _refused({"city=x/a.parquet": ROWS, "b.parquet": ROWS}, InvalidInputError, "directories of 2 kinds"),
        _refused({"city=x/a.parquet": ROWS}, InvalidInputError, "partition_by", partition_by="id"),
        _refused(
            {"city=a b+%/a.parquet": ROWS.drop_columns("city")}, UnsupportedFeature, "not the one that Hudi makes"
        ),
        _refused({"a.parquet": ROWS}, InvalidInputError, "record_key", record_key=None),
        _refused({}, InvalidInputError, "no Parquet files"),
        _refused({"a.txt": ROWS}, InvalidInputError, "no Parquet file"),
    ],
)
def test_what_cannot_stay_in_place_is_refused_and_leaves_no_table(
    tmp_path: Path, files: dict[str, pa.Table], error: type[Exception], match: str, call: dict[str, Any]
) -> None:
    (tmp_path / "in").mkdir()
    for name, rows in files.items():
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True)
        pq.write_table(rows, tmp_path / "in" / name)
    with pytest.raises(error, match=match):
        lakefmt.convert(tmp_path / "in", tmp_path / "t", **{"record_key": "id", "in_place": True, **call})
    with pytest.raises(TableNotFound):
        lakefmt.open_table(tmp_path / "t")


def test_a_table_inside_the_folder_and_another_store_are_refused(tmp_path: Path) -> None:
    source = make_source(tmp_path / "in")
    for path in (source / "t", source, tmp_path):
        with pytest.raises(InvalidInputError, match="lie in one another"):
            lakefmt.convert(source, path, record_key="id", in_place=True)
    with pytest.raises(UnsupportedFeature, match="local disks"):
        lakefmt.convert(source, "memory://in-place", record_key="id", in_place=True)


def test_rows_that_differ_are_never_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: one value changes between the source and the table."""
    from lakefmt._core.filegroups import bootstrap

    source, joined = make_source(tmp_path / "in"), bootstrap.join_rows

    def one_value_else(*arguments: Any) -> pa.Buffer:
        rows = pq.read_table(pa.BufferReader(joined(*arguments)))
        sink = pa.BufferOutputStream()
        pq.write_table(rows.set_column(rows.column_names.index("v"), "v", pa.array(range(7, 7 + len(rows)))), sink)
        return sink.getvalue()

    monkeypatch.setattr(bootstrap, "join_rows", one_value_else)
    with pytest.raises(InternalError, match="nothing was committed"):
        lakefmt.convert(source, tmp_path / "t", record_key="id", in_place=True)
    monkeypatch.undo()
    with pytest.raises(TableNotFound):
        lakefmt.open_table(tmp_path / "t")


@contextmanager
def dying(at: int) -> Iterator[list[int]]:
    """Let the process die before an effect on local files, counted from one."""
    count = [0]

    def wrapped(effect: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **more: Any) -> Any:
            count[0] += 1
            if count[0] == at:
                raise SimulatedCrash
            return effect(*arguments, **more)

        return act

    with pytest.MonkeyPatch.context() as patched:
        for name in ("put", "put_if_absent", "delete", "delete_tree", "make_directories"):
            patched.setattr(LocalStore, name, wrapped(getattr(LocalStore, name)))
        yield count


def test_a_process_that_dies_leaves_no_rows_or_all_of_them(tmp_path: Path) -> None:
    source = make_source(tmp_path / "in")

    def convert(path: Path) -> lakefmt.ingest.Migration:
        return lakefmt.convert(source, path, record_key="id", table_version=9, in_place=True)

    with dying(0) as effects:
        convert(tmp_path / "whole")
    assert effects[0] > 15
    for number in range(1, effects[0] + 1, 1 if THOROUGH else 3):
        path = tmp_path / f"t{number}"
        with dying(number), pytest.raises(SimulatedCrash):
            convert(path)
        with suppress(TableNotFound):
            assert lakefmt.open_table(path).count() in (0, len(SOURCE))
        assert convert(path).rows == len(SOURCE)
        assert values_of(lakefmt.open_table(path).read()) == sorted(SOURCE)
        assert len([*path.rglob("*.parquet")]) == 4
