"""A Hudi table is not made in a table of another format, nor inside another Hudi table; opening one names the format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt._core.storage.memory import MemoryStore
from lakefmt.errors import InvalidInputError, TableNotFound

ROWS = pa.table({"id": ["a"], "v": [1]})


def delta(path: Path) -> None:
    (path / "_delta_log").mkdir(parents=True)
    (path / "_delta_log/00000000000000000000.json").write_text("{}")


def iceberg(path: Path) -> None:
    (path / "metadata").mkdir(parents=True)
    (path / "metadata/v1.metadata.json").write_text("{}")


def paimon(path: Path) -> None:
    for name in ("schema/schema-0", "snapshot/snapshot-1"):
        (path / name).parent.mkdir(parents=True)
        (path / name).write_text("{}")


def parquet(path: Path) -> None:
    path.mkdir()
    pq.write_table(ROWS, path / "part-0.parquet")


def hive(path: Path) -> None:
    (path / "day=1").mkdir(parents=True)
    pq.write_table(ROWS, path / "day=1/part-0.parquet")


FORMATS = [
    (delta, "a Delta table"),
    (iceberg, "an Iceberg table"),
    (paimon, "a Paimon table"),
    (parquet, "a folder of Parquet files of no Hudi table, such as part-0.parquet"),
    (hive, "a folder of Parquet files of no Hudi table, such as day=1/part-0.parquet"),
]


@pytest.mark.parametrize(("made", "name"), FORMATS)
def test_a_foreign_table_is_named(tmp_path: Path, made: Callable[[Path], None], name: str) -> None:
    path = tmp_path / "t"
    made(path)
    before = sorted(path.rglob("*"))
    with pytest.raises(TableNotFound, match=f"no Hudi table at .*: it is {name}"):
        lakefmt.open_table(path)
    for call in (
        lambda: lakefmt.write_table(path, ROWS, record_key="id"),
        lambda: lakefmt.create_table(path, data=ROWS, record_key="id", if_exists="open"),
    ):
        with pytest.raises(InvalidInputError, match=f"it is {name}"):
            call()
    assert sorted(path.rglob("*")) == before


@pytest.mark.parametrize(("made", "name"), FORMATS[:3])
def test_no_table_is_made_inside_one(tmp_path: Path, made: Callable[[Path], None], name: str) -> None:
    made(tmp_path / "t")
    with pytest.raises(InvalidInputError, match=f"it lies inside {name}"):
        lakefmt.write_table(tmp_path / "t/below/it", ROWS, record_key="id")


def test_no_table_is_made_inside_a_hudi_table(tmp_path: Path) -> None:
    lakefmt.write_table(tmp_path / "t", ROWS, record_key="id")
    with pytest.raises(InvalidInputError, match="it lies inside the Hudi table"):
        lakefmt.write_table(tmp_path / "t/below", ROWS, record_key="id")


def test_object_stores_are_looked_at_too() -> None:
    store = MemoryStore("foreign-delta")
    store.put("_delta_log/00000000000000000000.json", b"{}")
    with pytest.raises(InvalidInputError, match="a Delta table"):
        lakefmt.write_table("memory://foreign-delta", ROWS, record_key="id")


@pytest.mark.parametrize("name", ["notes.txt", "metadata/readme.md", "schema/other", "data/x.csv"])
def test_other_files_are_no_table(tmp_path: Path, name: str) -> None:
    (tmp_path / "t" / name).parent.mkdir(parents=True)
    (tmp_path / "t" / name).write_text("x")
    with pytest.raises(TableNotFound, match=r"hoodie\.properties is missing"):
        lakefmt.open_table(tmp_path / "t")
    lakefmt.write_table(tmp_path / "t", ROWS, record_key="id")
    assert lakefmt.open_table(tmp_path / "t").read().num_rows == 1


def test_deltalake_agrees(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(tmp_path / "t"), ROWS)
    with pytest.raises(InvalidInputError, match="a Delta table"):
        lakefmt.write_table(tmp_path / "t", ROWS, record_key="id")
