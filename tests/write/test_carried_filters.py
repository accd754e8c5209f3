"""A rewritten file keeps its key filter's bits: byte for byte what all keys make, or it is built from all keys."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt import Table
from lakefmt._core.check.findings import Kind
from lakefmt._core.check.repair import repair_table
from lakefmt._core.check.run import check_table
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.filegroups.base_writer import filter_bytes, grown_filter, new_filter
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.bloom_filter import DYNAMIC, SIMPLE, BloomFilter, decode_bloom_filter
from lakefmt._core.formats.parquet.footers import BLOOM_KEY
from lakefmt._core.write.files import base_file
from tests.check.kit import OPTIONS, rows, scene, tamper
from tests.example_counts import examples

DATA = Path(__file__).parents[1] / "data"
DEFAULTS = resolve_settings({})


def keys_of(first: int, last: int) -> pa.Array:
    return pa.array([f"key-{number}" for number in range(first, last)], pa.string())


def stored(keys: pa.Array, options: Mapping[str, object] | None = None) -> BloomFilter:
    """A filter as it comes out of a file."""
    made = new_filter(resolve_settings(dict(options or {})), len(keys))
    made.add(keys)
    return decode_bloom_filter(made.encode(), DYNAMIC)


@pytest.mark.parametrize(
    ("num_keys", "options", "hashes", "bits_per_key"),
    [
        (14_563, {}, 30, 43.1),
        (14_565, {}, 10, 34.6),
        (1_000_000, {}, 10, 34.6),
        (14_565, {"hoodie.index.bloom.fpp": 1e-9}, 15, 51.9),
        (14_565, {"hoodie.index.bloom.fpp": 1e-3}, 5, 17.3),
        (14_565, {"hoodie.index.bloom.num_entries": 100_001}, 30, 43.1),
    ],
)
def test_a_large_filter_has_few_hashes(
    num_keys: int, options: Mapping[str, object], hashes: int, bits_per_key: float
) -> None:
    given = resolve_settings(options)
    made = new_filter(given, num_keys)
    planned = num_keys + num_keys // 8 if not options.get("hoodie.index.bloom.num_entries") else 100_001
    assert (made.k, round(made.m / planned, 1)) == (hashes, bits_per_key)
    assert filter_bytes(given, num_keys) == pytest.approx(len(made.encode()), rel=0.002)


def test_a_large_filter_is_carried_over_byte_for_byte() -> None:
    for stored_keys, more in ((20_000, 20_100), (90_000, 90_010)):
        grown = grown_filter(stored(keys_of(0, stored_keys)), stored_keys, more, keys_of(stored_keys, more), DEFAULTS)
        assert grown is not None
        whole = new_filter(DEFAULTS, stored_keys)
        whole.add(keys_of(0, more))
        assert grown.encode() == whole.encode()


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=80),
    st.lists(st.lists(st.text(max_size=9, alphabet="ab\u00e9\uffff\U0001f600"), max_size=30), max_size=4),
)
def test_what_is_carried_over_is_what_all_keys_make_byte_for_byte(old: list[str], batches: list[list[str]]) -> None:
    carried = stored(pa.array(old, pa.string()))
    everything = list(old)  # keys may come twice: plain inserts allow it, and every one counts
    for batch in batches:
        everything += batch
        grown = grown_filter(
            decode_bloom_filter(carried.encode(), DYNAMIC),
            len(everything) - len(batch),
            len(everything),
            pa.array(batch, pa.string()),
            DEFAULTS,
        )
        assert grown is not None
        anew = new_filter(DEFAULTS, len(everything))
        anew.add(pa.array(everything, pa.string()))
        assert grown.encode() == anew.encode()
        carried = grown


def test_the_room_is_used_and_then_a_fresh_filter_is_made() -> None:
    old, new = keys_of(0, 8_000), keys_of(8_000, 9_000)
    grown = grown_filter(stored(old), 8_000, 9_000, new, DEFAULTS)
    assert grown is not None
    anew = BloomFilter.sized(9_000, 1e-9)
    anew.add(pa.concat_arrays([old, new]))
    assert grown.encode() == anew.encode()
    assert grown_filter(stored(old), 8_000, 9_001, keys_of(8_000, 9_001), DEFAULTS) is None
    assert new_filter(resolve_settings({"hoodie.index.bloom.num_entries": 60_000}), 8_000).capacity == 120_000


def simple(keys: pa.Array) -> BloomFilter:
    made = BloomFilter.simple(9_000, 1e-9)
    made.add(keys)
    return decode_bloom_filter(made.encode(), SIMPLE)


def two_rows(keys: pa.Array) -> BloomFilter:
    made = BloomFilter.sized(5_000, 1e-9, 10_000)
    made.add(keys)
    return decode_bloom_filter(made.encode(), DYNAMIC)


OLD = keys_of(0, 8_000)
REFUSED = {
    "none": (None, {}),
    "simple": (simple(OLD), {}),
    "fewer keys than the file": (stored(OLD.slice(1)), {}),
    "two rows": (two_rows(OLD), {}),
    "another strength": (stored(OLD), {"hoodie.index.bloom.fpp": 1e-6}),
    "another size": (stored(OLD), {"hoodie.index.bloom.num_entries": 9_001}),
    "far too large": (stored(OLD, {"hoodie.index.bloom.num_entries": 60_000}), {}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_filter_that_does_not_fit_is_built_anew(name: str) -> None:
    old, options = REFUSED[name]
    assert grown_filter(old, 8_000, 8_001, keys_of(8_000, 8_001), resolve_settings(options)) is None


def test_a_filter_of_the_size_that_was_set_is_kept() -> None:
    options = {"hoodie.index.bloom.num_entries": 60_000}
    assert grown_filter(stored(OLD, options), 8_000, 8_000, OLD[:0], resolve_settings(options)) is not None


@pytest.mark.slow
def test_keys_that_went_count_so_that_their_bits_never_fill_a_filter() -> None:
    data = pa.table({"id": keys_of(0, 600), "v": pa.array(range(600))})
    table = lakefmt.create_table(
        "memory://carried-turnover", data=data, record_key="id", options={"lakefmt.write.small.files": "fill"}
    )
    for turn in range(1, 7):
        first = 600 + 100 * turn
        table.delete(keys_of(first - 700, first - 600))
        table.upsert(pa.table({"id": keys_of(first - 100, first), "v": pa.array(range(100))}))
        (piece,) = table.file_groups()
        assert piece.base is not None
        bloom = table.client.reader.bloom_filter(piece.base)
        assert bloom is not None
        assert bloom.num_keys is not None
        assert bloom.num_keys <= bloom.capacity
        assert bloom.contains(table.client.reader.keys(piece.base)).all()
    assert table.read().num_rows == 600


def files_of(table: Table) -> list[BaseFile]:
    return [piece.base for piece in table.file_groups() if piece.base is not None]


def filter_made_of(table: Table, file: BaseFile) -> tuple[BloomFilter, BloomFilter]:
    """The file's filter, and one of that size made from its keys."""
    found = table.client.reader.bloom_filter(file)
    assert found is not None
    anew = BloomFilter.sized(found.capacity, 1e-9)
    anew.add(table.client.reader.keys(file))
    return found, anew


@pytest.mark.parametrize("name", ["v6_cow_types_0150", "v8_cow_evolved_102"])
def test_a_file_of_spark_keeps_its_filter(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(DATA / "judges" / f"{name}.zip") as packed:
        packed.extractall(tmp_path)
    table = lakefmt.open_table(str(tmp_path / name), options={"hoodie.metadata.enable": "false"})
    before = {file.file_id: file for file in files_of(table)}
    carried: list[BloomFilter | None] = []

    def seen(*given: object) -> BloomFilter | None:
        carried.append(grown_filter(*given))  # type: ignore[arg-type]  # handed on as it came
        return carried[-1]

    monkeypatch.setattr(base_file, "grown_filter", seen)
    some = table.read().slice(0, 1)
    fresh = some.set_column(some.schema.get_field_index("id"), "id", pa.array(["zz-new"]))
    table.upsert(pa.concat_tables([some, fresh]))
    changed = [file for file in files_of(table) if file.file_id not in before or file != before[file.file_id]]
    assert len(changed) == len(carried) == 1
    assert all(one is not None for one in carried)
    for file in changed:
        found, anew = filter_made_of(table, file)
        assert found.encode() == anew.encode()
    assert check_table(table.client, "full").findings == ()


@pytest.mark.slow
def test_a_damaged_filter_is_handed_on_and_the_repair_builds_it_anew() -> None:
    place = scene()
    path = place.files()[0].path

    def foreign(table: pa.Table, footers: dict[str, str]) -> pa.Table:
        # As many keys as the file has, but other ones: nothing short of asking for every key would tell.
        bloom = BloomFilter.sized(1000, 1e-9)
        bloom.add(pa.array([f"other-{number}" for number in range(table.num_rows)]))
        footers[BLOOM_KEY] = bloom.encode()
        return table

    tamper(place, path, foreign)
    (file,) = [file for file in place.files() if file.path == path]
    key = place.open().client.reader.keys(file)[0].as_py()
    before = place.open().read().num_rows
    by_keys = lakefmt.Table(TableClient(place.store, {**OPTIONS, "hoodie.index.type": "SIMPLE"}))
    by_keys.upsert(rows(int(key[1:]), int(key[1:]) + 1, ts=50))
    (rewritten,) = [found for found in place.files() if found.file_id == file.file_id]
    assert rewritten.path != path
    report = check_table(place.open().client, "full")
    assert [(finding.kind, finding.where) for finding in report.findings] == [(Kind.BLOOM_FILTER, rewritten.path)]
    assert repair_table(place.open().client, report.plan, check_table).is_clean
    (mended,) = [found for found in place.files() if found.file_id == file.file_id]
    found, anew = filter_made_of(place.open(), mended)
    assert found.encode() == anew.encode()
    assert place.open().read().num_rows == before
