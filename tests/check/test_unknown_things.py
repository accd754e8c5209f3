"""What lakefmt does not know is never called damaged and never repaired: it is read as it is stored, or refused by name."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.formats.avro.columnar import plan
from lakefmt._core.schema import avro
from lakefmt.errors import LakefmtError, UnsupportedError

DATA = Path(__file__).parents[1] / "data" / "formats"
ROWS = pa.table({"id": ["a", "b"], "v": [1, 2], "t": pa.array([1, 2], pa.int64())})


def _unpacked(name: str, path: Path) -> lakefmt.Table:
    with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
        archive.extractall(path)
    return lakefmt.open_table(path)


def _assert_no_damage(path: Path) -> lakefmt.CheckReport:
    report = lakefmt.open_table(path).check("full")
    assert not report.findings, report
    return report


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "columns"), [("v9_mor_variant_120", ["v"]), ("v9_mor_vector_120", ["embedding1", "embedding3"])]
)
def test_columns_of_newer_types_are_passed_on_as_they_are_stored(tmp_path, name, columns):
    table = _unpacked(name, tmp_path / "t")
    _assert_no_damage(tmp_path / "t")
    before = table.read().sort_by("id")
    assert before.select(["id"]).equals(table.read(columns=["id"]).sort_by("id"))
    schema = table.properties.properties["hoodie.table.create.schema"]
    table.upsert(before.slice(0, 1))
    table.compact()
    table = lakefmt.open_table(tmp_path / "t")
    assert table.read().sort_by("id").equals(before)
    now = {
        field["name"]: field
        for field in json.loads(table.client.schema_texts(table.properties, table.schema)[0])["fields"]
    }
    then = {field["name"]: field for field in json.loads(schema)["fields"]}
    for column in columns:
        logical = {key: then[column]["type"][1][key] for key in ("logicalType",)}
        assert logical.items() <= now[column]["type"][1].items()
    _assert_no_damage(tmp_path / "t")


def test_values_of_a_vector_are_those_that_hudi_stores(tmp_path):
    rows = _unpacked("v9_mor_vector_120", tmp_path / "t").read(columns=["embedding1"])
    for value in rows["embedding1"].to_pylist():
        assert len(struct.unpack("<128f", value)) == 128


def _mor(path: Path, version: int = 9) -> lakefmt.Table:
    table = lakefmt.create_table(path, data=ROWS, record_key="id", table_type="mor", table_version=version)
    table.upsert(ROWS)
    table.upsert(ROWS.slice(0, 1))
    return table


def _log(path: Path) -> Path:
    return next(file for file in path.iterdir() if ".log." in file.name)


def _kind_of_block(path: Path) -> None:
    log = _log(path)
    content = bytearray(log.read_bytes())
    content[18:22] = struct.pack(">i", 9)
    log.write_bytes(content)


def _header_key(path: Path) -> None:
    log = _log(path)
    content = bytearray(log.read_bytes())
    content[26:30] = struct.pack(">i", 77)
    log.write_bytes(content)


def _version_of_block(path: Path) -> None:
    log = _log(path)
    content = bytearray(log.read_bytes())
    content[14:18] = struct.pack(">i", 2)
    log.write_bytes(content)


def _version_of_content(path: Path) -> None:
    log = _log(path)
    content = log.read_bytes()
    lead = content.index(struct.pack(">ii", 3, 1), 200)
    log.write_bytes(content[:lead] + struct.pack(">i", 4) + content[lead + 4 :])


@pytest.mark.slow
@pytest.mark.parametrize("change", [_kind_of_block, _header_key, _version_of_block, _version_of_content])
@pytest.mark.parametrize("version", [6, 9])
def test_blocks_of_a_newer_log_are_no_damage(tmp_path, change: Callable[[Path], None], version):
    path = tmp_path / "t"
    _mor(path, version)
    change(path)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    report = _assert_no_damage(path)
    assert _log(path).name in str(report)
    assert not report.plan.steps
    for attempt in (lambda t: t.read(), lambda t: t.compact()):
        with pytest.raises(UnsupportedError):
            attempt(lakefmt.open_table(path))
    assert before.items() <= {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}.items()


def _set(path: Path, **values: str) -> None:
    with (path / ".hoodie" / "hoodie.properties").open("a") as properties:
        properties.write("".join(f"{key.replace('__', '.')}={value}\n" for key, value in values.items()))


@pytest.mark.slow
def test_unknown_properties_and_indexes_are_no_damage(tmp_path):
    path = tmp_path / "t"
    _mor(path)
    _set(path, hoodie__table__quantum__mode="on", hoodie__table__metadata__partitions="vector_index_v")
    try:
        report = lakefmt.open_table(path).check("full")
    except LakefmtError as error:
        assert isinstance(error, UnsupportedError), error  # noqa: PT017  (either is right: nothing is called damaged)
    else:
        assert all("vector_index" not in str(finding) or not finding.steps for finding in report.findings)


def test_a_newer_version_of_the_table_is_no_damage(tmp_path):
    path = tmp_path / "t"
    _mor(path)
    _set(path, hoodie__table__version="10")
    with pytest.raises(UnsupportedError, match="10"):
        lakefmt.open_table(path).check("full")
    with pytest.raises(UnsupportedError, match="10"):
        lakefmt.open_table(path)


@pytest.fixture
def micros_are_unknown(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Microseconds stand for a type of tomorrow."""

    def forget() -> None:
        avro.avro_to_arrow.cache_clear()
        plan._compiled.cache_clear()

    monkeypatch.setattr(avro, "_UNREADABLE_LOGICAL", frozenset({"timestamp-micros"}))
    forget()
    yield
    monkeypatch.undo()
    forget()


@pytest.fixture(params=[(version, kind) for version in (6, 9) for kind in ("cow", "mor")], ids=str)
def with_unknown_column(tmp_path, request, micros_are_unknown) -> Path:
    avro._UNREADABLE_LOGICAL, unknown = frozenset[str](), avro._UNREADABLE_LOGICAL
    rows = pa.table({"id": ["a", "b"], "t": pa.array([1, 2], pa.timestamp("us", "UTC")), "v": [1, 2]})
    version, kind = request.param
    table = lakefmt.create_table(tmp_path / "t", data=rows, record_key="id", table_type=kind, table_version=version)
    table.upsert(rows)
    table.upsert(rows.slice(0, 1))
    avro._UNREADABLE_LOGICAL = unknown
    avro.avro_to_arrow.cache_clear()
    plan._compiled.cache_clear()
    return tmp_path / "t"


@pytest.mark.slow
def test_columns_that_are_known_are_readable_beside_one_that_is_not(with_unknown_column):
    table = lakefmt.open_table(with_unknown_column)
    assert sorted(table.read(columns=["id", "v"])["v"].to_pylist()) == [1, 2]
    assert table.read(columns=["id"], filter="v = 2")["id"].to_pylist() == ["b"]
    before = {file: file.read_bytes() for file in with_unknown_column.rglob("*") if file.is_file()}
    attempts: list[Callable[[], object]] = [
        table.read,
        lambda: table.read(columns=["t"]),
        lambda: table.upsert(pa.table({"id": ["c"]})),
        lambda: table.update("v = 1", {"v": 2}),
        table.cluster,
    ]
    for attempt in attempts:
        with pytest.raises(UnsupportedError, match=r"'t'.*timestamp-micros"):
            attempt()
    _assert_no_damage(with_unknown_column)
    assert (
        before.items() <= {file: file.read_bytes() for file in with_unknown_column.rglob("*") if file.is_file()}.items()
    )
