"""Erasing leaves nothing of a row in any byte of the table, and the proof finds what is left where something is."""

from __future__ import annotations

import contextlib
import itertools
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import lakefmt
from lakefmt._core.cli.root import main
from lakefmt._core.erase import find_traces
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.listing import ListingByMetadata
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.errors import LakefmtError, StateError
from lakefmt.testing.stores import FaultStore, SimulatedCrash, fail_at
from tests.crash.sweep import DIES, PER_CHANGE, Ending
from tests.kit import THOROUGH, product_or_diagonal

_NUMBERS = itertools.count()
ANN, BOB = "ann.smith@example.org", "bob.jones@example.org"


def table(**more: object) -> lakefmt.Table:
    rows = pa.table({"id": [f"user-{ANN}", f"user-{BOB}"], "mail": [ANN, BOB], "n": [1, 1]})
    url = f"memory://erase-{next(_NUMBERS)}"
    keyed = {"record_key": "id", "ordering": "n", **more}
    lakefmt.write_table(url, rows, **keyed)
    made = lakefmt.open_table(url)
    for number in range(2, 5):
        made.upsert(rows.set_column(2, "n", pa.array([number, number])))
    return made


def searched(made: lakefmt.Table, *texts: str) -> set[str]:
    """Return the objects that hold a text, by an eye of their own: pyarrow, gzip and raw bytes over all of the store."""
    return {name for name, data in _all_bytes(made) if any(text.encode() in data for text in texts)}


def _all_bytes(made: lakefmt.Table) -> Iterator[tuple[str, bytes]]:
    store = made.client.store
    for info in list(store.list()):
        data = store.read(info.name)
        yield info.name, data
        if info.name.endswith(".parquet"):
            rows = pq.read_table(pa.BufferReader(data))
            yield info.name, repr(rows.to_pylist()).encode()
        for start in range(len(data)):
            if data[start : start + 3] == b"\x1f\x8b\x08":
                try:
                    yield info.name, zlib.decompressobj(31).decompress(data[start:])
                except zlib.error:
                    continue


@product_or_diagonal(
    table_version=(6, 8, 9),
    table_type=("cow", "mor", "cow"),
    indexes=(None, ["column_stats", "bloom_filters"], ["record_index"]),
    captures=(True, False, True),
)
def test_law_nothing_is_left(table_version: int, table_type: str, indexes: list[str] | None, captures: bool) -> None:
    if table_version == 6 and indexes:
        indexes = None
    changes = {"hoodie.table.cdc.enabled": "true"} if captures else None
    made = table(table_version=table_version, table_type=table_type, indexes=indexes, properties=changes)
    assert len(searched(made, ANN)) > 1
    report = made.erase([f"user-{ANN}"], traces=[ANN])
    assert report.num_deletes == 1
    assert report.is_clean, str(report)
    assert searched(made, ANN) == set()
    assert [row["mail"] for row in made.read().to_pylist()] == [BOB]
    assert searched(made, BOB)
    assert made.check("full").is_clean
    made.upsert(pa.table({"id": ["c"], "mail": ["c"], "n": [9]}))
    assert made.read().num_rows == 2


@pytest.mark.slow
@pytest.mark.parametrize("ending", [DIES, PER_CHANGE], ids=str)
def test_law_a_call_that_fails_or_dies_is_made_again(ending: Ending) -> None:
    options = {"hoodie.client.heartbeat.tolerable.misses": 0}
    origin = table(table_type="mor", indexes=["column_stats"]).client.store

    def copy() -> MemoryStore:
        made = MemoryStore(f"erase-{next(_NUMBERS)}")
        for info in origin.list():
            made.put(info.name, origin.read(info.name))
        return made

    healthy = FaultStore(copy())
    Table(TableClient(healthy, options, metadata_listing=ListingByMetadata())).erase([f"user-{ANN}"], traces=[ANN])
    step = 1 if THOROUGH else 7
    for number in range(1, len(healthy.effects) + 1, step):
        store = copy()
        faulty = FaultStore(store, fail_at(number, ending.mode, crash=ending.crash))
        with contextlib.suppress(LakefmtError, SimulatedCrash):
            Table(TableClient(faulty, options, metadata_listing=ListingByMetadata())).erase(
                [f"user-{ANN}"], traces=[ANN]
            )
        made = Table(TableClient(store, options, metadata_listing=ListingByMetadata()))
        report = made.erase([f"user-{ANN}"], traces=[ANN])
        story = f"effect {number} ({healthy.effects[number - 1]}): {report}"
        assert report.is_clean, story
        assert searched(made, ANN) == set(), story
        assert [row["mail"] for row in made.read().to_pylist()] == [BOB], story


def test_what_streams_have_flushed_is_committed_first_and_goes_too() -> None:
    made = table()
    stream = made.open_stream(writer_id="w", commit_interval=3_600_000)
    stream.extend([{"id": f"user-{ANN}", "mail": ANN, "n": 9}])
    stream.flush()
    with pytest.raises(StateError, match="close w first"):
        made.erase([f"user-{ANN}"])
    stream.close()
    assert made.erase([f"user-{ANN}"], traces=[ANN]).is_clean
    assert searched(made, ANN) == set()
    made.open_stream(writer_id="w").close()
    assert made.read()["mail"].to_pylist() == [BOB]


def test_every_copy_of_a_key_goes_whatever_a_record_index_names() -> None:
    rows = pa.table({"id": [f"user-{ANN}", f"user-{BOB}"], "city": ["sf", "sf"]})
    url = f"memory://erase-{next(_NUMBERS)}"
    lakefmt.write_table(url, rows, record_key="id", partition_by="city", index="record_index")
    made = lakefmt.open_table(url)
    made.insert_overwrite(rows.set_column(1, "city", pa.array(["oslo", "oslo"])))
    report = made.erase([f"user-{ANN}"])
    assert (report.num_deletes, report.is_clean, searched(made, ANN)) == (2, True, set())
    assert made.read()["id"].to_pylist() == [f"user-{BOB}"] * 2


def test_a_filter_names_the_rows_and_their_keys_are_looked_for() -> None:
    made = table()
    report = made.erase(f"mail = '{ANN}'")
    assert report.num_deletes == 1
    assert report.traces == 1
    assert report.is_clean
    assert searched(made, ANN) == set()


def test_a_delete_alone_is_not_enough_and_the_proof_says_so() -> None:
    made = table()
    made.delete([f"user-{ANN}"])
    found, *_ = find_traces(made.client.store, {ANN})
    assert found
    assert set(found) == searched(made, ANN)


@pytest.mark.parametrize("name", ["left.txt", ".hoodie/.temp/left"])
def test_what_others_left_is_found(name: str) -> None:
    made = table()
    made.client.store.put(name, b"mail " + ANN.encode())
    report = made.erase([f"user-{ANN}"], traces=[ANN])
    assert not report.is_clean
    assert report.found == (name,)
    assert name in str(report)


def test_savepoints_are_in_the_way() -> None:
    made = table()
    made.savepoint()
    with pytest.raises(StateError, match="savepoints keep older files"):
        made.erase([f"user-{ANN}"])
    assert made.read().num_rows == 2


def test_short_texts_are_compared_with_whole_values() -> None:
    store = MemoryStore(f"erase-{next(_NUMBERS)}")
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": ["7", "17"], "n": [7, 8]}), sink)
    store.put("a.parquet", sink.getvalue().to_pybytes())
    assert find_traces(store, {"7"})[0] == ["a.parquet"]
    assert find_traces(store, {"1"})[0] == []


def test_the_shell_erases(tmp_path: Path) -> None:
    rows = pa.table({"id": [f"user-{ANN}", f"user-{BOB}"], "mail": [ANN, BOB]})
    for _ in range(3):
        lakefmt.write_table(tmp_path / "t", rows, record_key="id", mode="upsert")
    place = str(tmp_path / "t")
    asked = CliRunner().invoke(main, ["erase", place, "--key", f"user-{ANN}"])
    assert asked.exit_code != 0
    assert lakefmt.open_table(place).read().num_rows == 2
    done = CliRunner().invoke(main, ["erase", place, "--key", f"user-{ANN}", "--trace", ANN, "--yes", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["clean"] is True
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and ANN.encode() in path.read_bytes()]
    (tmp_path / "t" / "left.txt").write_text(BOB)
    left = CliRunner().invoke(main, ["erase", place, "--filter", f"mail = '{BOB}'", "--trace", BOB, "--yes"])
    assert left.exit_code == 1
    assert "still holds one: left.txt" in left.output
