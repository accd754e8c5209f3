"""Spoiled files and foreign tables: told apart, refused by name, and never made worse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.storage.open import open_store
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt.errors import (
    CorruptFile,
    InvalidInputError,
    LakefmtError,
    MetadataTablePresent,
    TableExists,
    TableNotFound,
    UnknownSetting,
    UnsafePath,
    UnsupportedFeature,
    UnsupportedVersion,
)
from tests.bad_input.kit import OPTIONS, SCHEMA, Lake, changes, check_next_write, check_said, rows, same_rows

PROPERTIES = ".hoodie/hoodie.properties"
BACKUP = PROPERTIES + ".backup"
Spoil = Callable[[bytes], bytes]
Maker = Callable[[int], Lake]
LATER = "20991231235959000"


def refuses(lake: Lake, error: type[LakefmtError], *names: str, both: bool = True) -> None:
    """Reading (when `both`) and writing raise the error, and nothing changes by it."""
    before = lake.picture()
    calls = [lambda: lake.open().upsert(rows(0, 12, ts=9))]
    if both:
        calls.append(lambda: lake.open().read())
    for call in calls:
        with pytest.raises(error) as caught:
            call()
        check_said(caught.value, *names)
        assert changes(before, lake.picture()) == []


def sub(pattern: str, to: str) -> Spoil:
    return lambda data: re.sub(pattern.encode(), to.encode(), data)


# ------------------------------------------------------------------------------------------------------------ properties


def without_checksum_and_half(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[: len(lines) // 2])


DAMAGED: dict[str, Spoil] = {
    "binary": lambda d: b"\x00\xff\x13" * 40,
    "empty": lambda d: b"",
    "cut within a line": lambda d: d[: len(d) // 2],
    "cut within the checksum": lambda d: d[:-3],
    "checksum of another name": sub(r"checksum=\d+", "checksum=12"),
    "no name": sub(r"hoodie.table.name=.*\n", ""),
}


@pytest.mark.parametrize("damage", list(DAMAGED))
def test_damaged_properties_are_refused_until_a_good_copy_is_back(lake: Lake, damage: str) -> None:
    stored, path = lake.open().read(), lake.base / PROPERTIES
    good = path.read_bytes()
    path.write_bytes(DAMAGED[damage](good))
    refuses(lake, CorruptFile, "hoodie.properties", "put back a good copy")
    path.write_bytes(good)
    check_next_write(lake.open(), stored)


@pytest.mark.parametrize("damage", [*DAMAGED, "cut at the end of a line", "gone"])
def test_with_a_backup_the_table_reads_and_the_next_write_heals_it(lake: Lake, damage: str) -> None:
    stored, path = lake.open().read(), lake.base / PROPERTIES
    good = path.read_bytes()
    (lake.base / BACKUP).write_bytes(good)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({**DAMAGED, "cut at the end of a line": without_checksum_and_half}[damage](good))
    before = lake.picture()
    assert same_rows(lake.open().read(), stored)
    assert changes(before, lake.picture()) == []
    check_next_write(lake.open(), stored)
    assert path.read_bytes() == good
    assert not (lake.base / BACKUP).exists()


def test_a_damaged_backup_beside_good_properties_does_no_harm(lake: Lake) -> None:
    stored = lake.open().read()
    good = (lake.base / PROPERTIES).read_bytes()
    (lake.base / BACKUP).write_bytes(good[:100])
    check_next_write(lake.open(), stored)
    assert (lake.base / PROPERTIES).read_bytes() == good


# name → (how the properties read, error, named, whether reading is refused as well)
FOREIGN: dict[str, tuple[Spoil, type[LakefmtError], str, bool]] = {
    "from the future": (sub("table.version=8", "table.version=10"), UnsupportedVersion, "version 10", True),
    "version 7": (sub("table.version=8", "table.version=7"), UnsupportedVersion, "version 7", True),
    "no version": (sub("table.version=8", "table.version=new"), UnsupportedVersion, "new", True),
    "layout of another version": (sub("layout.version=2", "layout.version=1"), UnsupportedVersion, "layout 1", True),
    "layout missing": (sub(r"hoodie.timeline.layout.version=2\n", ""), UnsupportedVersion, "layout 1", True),
    "unknown type": (sub("COPY_ON_WRITE", "COPY_AND_PRAY"), CorruptFile, "hoodie.table.type", True),
    "timeline outside": (
        sub("timeline.path=timeline", "timeline.path=../../neighbour"),
        UnsafePath,
        "hoodie.timeline.path",
        True,
    ),
    "timeline from the root": (sub("timeline.path=timeline", "timeline.path=/etc"), UnsafePath, "/etc", True),
    "history outside": (
        sub("history.path=history", "history.path=../../../neighbour"),
        UnsafePath,
        "hoodie.timeline.history.path",
        True,
    ),
    "unknown key generator": (sub(r"keygenerator.type=\w+", "keygenerator.type=X"), UnsupportedFeature, "X", False),
    "ORC files": (sub("format=PARQUET", "format=ORC"), UnsupportedFeature, "ORC", True),
    "metadata table": (
        lambda d: b"hoodie.table.metadata.partitions=expr_index_day,files\n" + d,
        MetadataTablePresent,
        "hoodie.metadata.enable",
        False,
    ),
}


@pytest.mark.parametrize("case", list(FOREIGN))
def test_tables_of_another_kind_are_left_alone(lake: Lake, case: str) -> None:
    spoil, error, named, both = FOREIGN[case]
    stored, path = lake.open().read(), lake.base / PROPERTIES
    good = path.read_bytes()
    path.write_bytes(spoil(good))
    assert path.read_bytes() != good, "the case spoils nothing"
    refuses(lake, error, named, both=both)
    path.write_bytes(good)
    check_next_write(lake.open(), stored)


@pytest.mark.parametrize("notes", ["{", "[]", '{"index": "os:system"}'])
def test_damaged_notes_stop_writes_and_no_code_is_loaded(lake: Lake, notes: str) -> None:
    (lake.base / ".hoodie/.lakefmt/table.json").write_text(notes)
    refuses(lake, UnknownSetting if "index" in notes else CorruptFile, both=False)
    assert lake.open().read().num_rows == 6


# --------------------------------------------------------------------------------------------- commit bodies, data files


DAMAGED_BODIES: dict[str, Spoil] = {
    "binary": lambda d: b"\x00\xff\x13" * 40,
    "cut in the middle": lambda d: d[: len(d) // 2],
    "cut at its end": lambda d: d[:-1],
    "empty": lambda d: b"",
    "another JSON": lambda d: b"[1]",
    "broken JSON": lambda d: b"{]",
}


def newest_commit(lake: Lake) -> Path:
    found = [*lake.base.glob(".hoodie/*.commit"), *lake.base.glob(".hoodie/timeline/*.commit")]
    return max(found, key=lambda path: path.name)


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("damage", list(DAMAGED_BODIES))
def test_a_damaged_commit_stops_everybody_and_is_named(lake_of: Maker, version: int, damage: str) -> None:
    lake = lake_of(version)
    stored, path = lake.open().read(), newest_commit(lake)
    good = path.read_bytes()
    path.write_bytes(DAMAGED_BODIES[damage](good))
    refuses(lake, CorruptFile, path.name)
    path.write_bytes(good)
    check_next_write(lake.open(), stored)


DAMAGED_FILES: dict[str, Spoil] = {
    "half written": lambda d: d[: len(d) // 2],
    "empty": lambda d: b"",
    "footer of noise": lambda d: d[:-300] + b"\xff" * 292 + d[-8:],
    "footer without end": lambda d: d[:-8] + b"\xff\xff\xff\x7fPAR1",
    "another file": lambda d: b"PAR1 is not enough to be a table PAR1",
    "pages of noise": lambda d: d[:4] + b"\xff" * 3000 + d[3004:],
}


@pytest.mark.parametrize("damage", list(DAMAGED_FILES))
def test_a_damaged_data_file_is_named_and_its_rows_are_not_dropped(lake: Lake, damage: str) -> None:
    stored = lake.open().read()
    (piece,) = lake.open().file_groups(["city=sf"])
    assert piece.base is not None
    path = lake.base / piece.base.path
    good = path.read_bytes()
    path.write_bytes(DAMAGED_FILES[damage](good))
    before = lake.picture()
    with pytest.raises(CorruptFile) as caught:
        lake.open().read()
    check_said(caught.value, piece.base.name)
    with pytest.raises(CorruptFile):
        lake.open().upsert(rows(0, 12, ts=9))
    # The refused write may leave a note that it was undone; no data file is new, gone or changed.
    assert [line for line in changes(before, lake.picture()) if "/.hoodie/timeline/" not in line] == []
    assert lake.open().read(filter="city = 'oslo'").num_rows == 3
    path.write_bytes(good)
    check_next_write(lake.open(), stored)


# ------------------------------------------------------------------------------------------------- paths in stored files

OUTSIDE = ["../neighbour/precious.parquet", "/etc/passwd", "a/../../neighbour/precious.parquet", "a\0b.parquet"]


def spoiled_commit(version: int, place: str, outside: str) -> Spoil:
    """Return how a commit comes to name a file outside the table, in one of the places that name files."""
    directory = outside.rpartition("/")[0] or ".."

    def spoil(data: bytes) -> bytes:
        body: Any = json.loads(data) if version == 6 else decode_body(BodyKind.COMMIT, data)
        stats = next(iter(body["partitionToWriteStats"].values()))
        if place == "path":
            stats[0]["path"] = outside
        else:
            body["partitionToWriteStats"] = {directory: [{**stats[0], "partitionPath": directory, "path": outside}]}
        return json.dumps(body).encode() if version == 6 else encode_body(BodyKind.COMMIT, body)

    return spoil


@pytest.mark.parametrize("outside", OUTSIDE, ids=ascii)
@pytest.mark.parametrize("place", ["path", "partition"])
@pytest.mark.parametrize("version", [6, 8])
def test_a_commit_that_names_a_file_outside_is_refused(lake_of: Maker, version: int, place: str, outside: str) -> None:
    lake = lake_of(version)
    stored, path = lake.open().read(), newest_commit(lake)
    good = path.read_bytes()
    path.write_bytes(spoiled_commit(version, place, outside)(good))
    refuses(lake, UnsafePath)
    path.write_bytes(good)
    check_next_write(lake.open(), stored)


def pending(lake: Lake) -> None:
    """Leave a commit that somebody began and never ended: requested and inflight, without sign of life."""
    for state in ("commit.requested", "inflight"):
        (lake.base / f".hoodie/timeline/{LATER}.{state}").write_bytes(b"")


DEAD = {"hoodie.client.heartbeat.tolerable.misses": 0}


@pytest.mark.parametrize("outside", [*OUTSIDE[:3], "file:///etc/passwd", "s3://bucket/t/a.parquet"], ids=ascii)
def test_a_rollback_plan_of_another_place_deletes_nothing(lake: Lake, outside: str) -> None:
    pending(lake)
    request = {
        "partitionPath": "p",
        "fileId": "",
        "latestBaseInstant": "",
        "filesToBeDeleted": [str(lake.root / "neighbour" / "precious.parquet"), outside],
        "logBlocksToBeDeleted": {},
    }
    plan = {"instantToRollback": {"commitTime": LATER, "action": "commit"}, "RollbackRequests": [request], "version": 1}
    name = f"{LATER[:-1]}1.rollback"
    (lake.base / f".hoodie/timeline/{name}.requested").write_bytes(encode_body(BodyKind.ROLLBACK_PLAN, plan))
    (lake.base / f".hoodie/timeline/{name}.inflight").write_bytes(b"")
    stored, before = lake.open().read(), lake.picture()
    with pytest.raises(UnsafePath) as caught:
        lake.open(**DEAD).upsert(rows(10, 12))
    check_said(caught.value)
    assert changes(before, lake.picture()) == []
    assert same_rows(lake.open().read(), stored)
    for path in lake.base.glob(f".hoodie/timeline/{LATER[:-1]}*"):
        path.unlink()
    check_next_write(lake.open(), stored)


@pytest.mark.parametrize(
    "outside", ["../neighbour/precious.parquet", "/etc/passwd", "a/../../neighbour/precious.parquet"]
)
def test_markers_that_name_a_file_outside_delete_nothing(lake: Lake, outside: str) -> None:
    pending(lake)
    notes = lake.base / f".hoodie/.temp/{LATER}"
    notes.mkdir(parents=True)
    (notes / "MARKERS.type").write_text("TIMELINE_SERVER_BASED")
    (notes / "MARKERS0").write_text(f"city=sf/x-0_0-0-0_{LATER}.parquet.marker.CREATE\n{outside}.marker.CREATE\n")
    stored, before = lake.open().read(), lake.picture()
    with pytest.raises(UnsafePath) as caught:
        lake.open(**DEAD).upsert(rows(10, 12))
    check_said(caught.value, repr(outside)[1:-1])
    assert changes(before, lake.picture()) == []
    (notes / "MARKERS0").write_text(f"city=sf/x-0_0-0-0_{LATER}.parquet.marker.CREATE\n")
    check_next_write(lake.open(**DEAD), stored)
    assert (lake.root / "neighbour/precious.parquet").read_bytes() == b"precious"


# ------------------------------------------------------------------------------------------------------- path of a table


def test_paths_that_hold_no_table(lake: Lake) -> None:
    before = lake.picture()
    for path in (lake.root / "neighbour", lake.root / "neighbour" / "precious.parquet", lake.root / "nowhere"):
        with pytest.raises(TableNotFound) as caught:
            lakefmt.open_table(str(path))
        check_said(caught.value, str(path), "create_table")
    for text in ("", "unknown-scheme://x/y"):
        with pytest.raises(InvalidInputError) as refused:
            lakefmt.open_table(text)
        check_said(refused.value)
    assert changes(before, lake.picture()) == []


def test_a_table_is_not_made_over_a_file_or_a_table(lake: Lake) -> None:
    before = lake.picture()
    with pytest.raises(LakefmtError) as caught:
        lakefmt.create_table(str(lake.root / "neighbour" / "precious.parquet"), schema=SCHEMA, record_key="id")
    check_said(caught.value, "precious.parquet", "not a directory")
    with pytest.raises(TableExists) as exists:
        lakefmt.create_table(str(lake.base), schema=SCHEMA, record_key="id")
    check_said(exists.value, str(lake.base))
    assert changes(before, lake.picture()) == []
    assert lakefmt.create_table(str(lake.base), schema=SCHEMA, record_key="id", if_exists="open").read().num_rows == 6


@pytest.mark.parametrize("place", ["t/city=sf", "t/city=sf/inner", "t/inner", "."])
def test_no_table_is_made_in_another_one_or_around_it(lake: Lake, place: str) -> None:
    before = lake.picture()
    for partition_by in (None, "city"):
        with pytest.raises(InvalidInputError) as caught:
            lakefmt.create_table(str(lake.root / place), schema=SCHEMA, record_key="id", partition_by=partition_by)
        check_said(caught.value, "choose another path")
    assert changes(before, lake.picture()) == []
    check_next_write(lake.open(), lake.open().read())


def test_what_is_left_of_a_table_is_no_place_for_a_new_one(lake: Lake) -> None:
    (lake.base / PROPERTIES).unlink()
    before = lake.picture()
    with pytest.raises(InvalidInputError) as caught:
        lakefmt.create_table(str(lake.base), schema=SCHEMA, record_key="id", partition_by="city")
    check_said(caught.value, "hoodie.properties is gone")
    assert changes(before, lake.picture()) == []


def test_a_table_that_another_engine_put_deeper_is_not_read(lake: Lake, tmp_path: Path) -> None:
    """Below a partition nobody looks for partitions: the two tables go on side by side."""
    stored = lake.open().read()
    other = lakefmt.create_table(
        str(tmp_path / "o"), schema=SCHEMA, record_key="id", partition_by="city", options=OPTIONS
    )
    other.upsert(rows(50, 54))
    inner = lake.base / "city=sf" / "inner"
    (tmp_path / "o").rename(inner)
    check_next_write(lake.open(), stored)
    moved = lakefmt.open_table(str(inner), options=OPTIONS)
    assert same_rows(moved.read(), rows(50, 54))
    moved.upsert(rows(60, 61))
    assert same_rows(moved.read(), pa.concat_tables([rows(50, 54), rows(60, 61)]))
    assert lake.open().read().num_rows == stored.num_rows + 3
    assert {item.name for item in open_store(str(inner)).list("city=sf", recursive=False)}
