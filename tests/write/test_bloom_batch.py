"""Filters of a write's small new files are made together: byte for byte what each file's keys make alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.filegroups.base_writer import new_filter
from lakefmt._core.formats.bloom_filter import BloomFilter, add_to_filters
from lakefmt._core.formats.murmur import HashChain
from lakefmt._core.write.context import BoundContext
from lakefmt._core.write.files import bundles
from tests.example_counts import examples

NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("_hoodie_is_deleted", pa.bool_())])


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.lists(st.text("abé\U0001f600", max_size=9), max_size=12), min_size=1, max_size=6),
    st.lists(st.sampled_from([(1000, None), (1013, None), (8, None), (8, 20), (60_000, None)]), min_size=6, max_size=6),
    st.booleans(),
)
def test_together_as_alone(groups: list[list[str]], sizes: list[tuple[int, int | None]], same: bool) -> None:
    sizes = sizes[:1] * len(sizes) if same else sizes
    keys = [pa.array(group, pa.string()) for group in groups]
    together = [BloomFilter.sized(size, 1e-9, most) for _, (size, most) in zip(keys, sizes, strict=False)]
    add_to_filters(together, keys)
    for mine, (size, most), bloom in zip(keys, sizes, together, strict=False):
        alone = BloomFilter.sized(size, 1e-9, most)
        alone.add(mine)
        assert bloom.encode() == alone.encode()


def test_filters_of_several_sizes_are_hashed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []
    plain = HashChain.advance

    def counted(self: HashChain) -> object:
        rounds.append(self.block.size)
        return plain(self)

    monkeypatch.setattr(HashChain, "advance", counted)
    keys = [pa.array(["a", "b"]), pa.array(["c"])]
    blooms = [BloomFilter.sized(1000, 1e-9), BloomFilter.sized(2000, 1e-9)]
    add_to_filters(blooms, keys)
    assert rounds == [3] * blooms[0].k
    assert [bloom.contains(mine).all() for bloom, mine in zip(blooms, keys, strict=True)] == [True, True]
    assert [bloom.num_keys for bloom in blooms] == [2, 1]


def test_filters_of_several_rates_are_filled_one_by_one() -> None:
    keys = [pa.array(["a", "b"]), pa.array(["c"])]
    blooms = [BloomFilter.sized(1000, 1e-9), BloomFilter.sized(1000, 1e-6)]
    assert blooms[0].k != blooms[1].k
    add_to_filters(blooms, keys)
    assert [bloom.contains(mine).all() for bloom, mine in zip(blooms, keys, strict=True)] == [True, True]
    assert [bloom.num_keys for bloom in blooms] == [2, 1]


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_write_of_many_small_files(table_type: str, deletes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    plain = bundles.bloom_filters_of_parts

    def counted(bound: BoundContext, parts: Sequence[pa.Table]) -> list[BloomFilter | None]:
        found = plain(bound, parts)
        made.append(sum(bloom is not None for bloom in found))
        return found

    monkeypatch.setattr(bundles, "bloom_filters_of_parts", counted)
    table = lakefmt.create_table(
        f"memory://small-filters-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="day",
        table_type=table_type,
        options={"lakefmt.write.threads": 1},
    )
    rows = [{"id": f"k{n}", "day": f"d{n % 5}", "_hoodie_is_deleted": deletes and n == 7} for n in range(200)]
    table.upsert(pa.Table.from_pylist(rows, SCHEMA))
    assert made == ([] if deletes else [5])
    found = 0
    for piece in table.file_groups():
        assert piece.base is not None
        bloom, keys = table.client.reader.footer(piece.base).bloom_filter(), table.client.reader.keys(piece.base)
        alone = new_filter(resolve_settings({}), len(keys))
        alone.add(keys)
        assert bloom == alone
        found += len(keys)
    assert found == 200 - deletes  # the row that marks itself deleted is in no file, and its key in no filter
