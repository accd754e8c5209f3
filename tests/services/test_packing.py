"""Which files are packed: every byte a few times, no file for ever (AP-24)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.values import FileId, PartitionPath
from lakefmt.errors import InvalidInputError
from lakefmt.services.round import PackingRules, SliceSize, choose_packed

MIB = 1 << 20
RULES = PackingRules(small_bytes=300 * MIB, target_bytes=1024 * MIB)


class Partition:
    """Files of one partition, packed as a service would."""

    def __init__(self, rules: PackingRules, full_bytes: int | None = None) -> None:
        self.rules = rules
        self.full_bytes = full_bytes or rules.target_bytes
        self.files: dict[str, int] = {}
        self.appended = self.rewritten = self.number = 0

    def append(self, num_bytes: int) -> None:
        self._put(num_bytes)
        self.appended += num_bytes

    def _put(self, num_bytes: int) -> None:
        self.number += 1
        self.files[f"f{self.number}"] = num_bytes

    def pack(self, *, quiet: bool) -> bool:
        slices = [SliceSize(PartitionPath("p"), FileId(name), size) for name, size in self.files.items()]
        chosen = choose_packed(slices, self.rules, quiet=quiet)
        if not chosen:
            return False
        total = sum(self.files.pop(file_id) for _, file_id in chosen)
        self.rewritten += total
        while total > 0:
            self._put(min(total, self.full_bytes))
            total -= self.full_bytes
        return True


def pack_until_nothing_is_left(partition: Partition, *, quiet: bool) -> None:
    rounds = 0
    while partition.pack(quiet=quiet):
        rounds += 1
        assert rounds < 10, "nothing is rewritten for ever"


@given(st.lists(st.integers(1, 40 * MIB), min_size=1, max_size=400))
def test_ap_24_small_files_end_up_in_as_few_as_their_bytes_need_and_one(sizes: list[int]) -> None:
    partition = Partition(RULES)
    for size in sizes:
        partition.append(size)
    pack_until_nothing_is_left(partition, quiet=True)
    total = sum(sizes)
    assert len(partition.files) <= -(-total // RULES.target_bytes) + 1
    assert sum(partition.files.values()) == total


@pytest.mark.parametrize("quiet", [True, False])
@given(st.lists(st.integers(4 * MIB, 9 * MIB), min_size=80, max_size=120), st.sampled_from([15 / 16, 0.97, 1.0]))
def test_ap_24_full_files_stay_where_the_limit_is_above_the_target(quiet: bool, sizes: list[int], part: float) -> None:
    """Ten full files were a full level: they were rewritten in each round."""
    rules = PackingRules(small_bytes=300 * MIB, target_bytes=10 * MIB)
    partition = Partition(rules, full_bytes=int(rules.target_bytes * part))
    for size in sizes:
        partition.append(size)
    pack_until_nothing_is_left(partition, quiet=quiet)


@given(st.integers(2_000, 200_000), st.integers(1, 900), st.integers(1, 40))
def test_ap_24_write_amplification_is_bounded_while_rows_arrive(size: int, appends: int, pause: int) -> None:
    partition = Partition(RULES)
    for number in range(appends):
        partition.append(size + number % 7)
        if number % pause == 0:
            partition.pack(quiet=False)
    while partition.pack(quiet=True):
        pass
    # Once per level that is full, and once at the end: 900 files are below the third level.
    assert partition.rewritten <= 3 * partition.appended


@given(st.lists(st.integers(1, 2_000_000), min_size=1, max_size=300))
def test_ap_24_a_byte_only_rises_through_the_levels(sizes: list[int]) -> None:
    """Whatever the sizes, a byte is rewritten at most once for each of the six levels from 4 KiB to 300 MiB."""
    partition = Partition(RULES)
    for size in sizes:
        partition.append(size)
        partition.pack(quiet=False)
    assert partition.rewritten <= 6 * partition.appended


def test_ap_24_files_wait_until_a_level_has_enough_of_them() -> None:
    files = [SliceSize(PartitionPath("p"), FileId(f"f{n}"), 10_000) for n in range(9)]
    assert not choose_packed(files, RULES, quiet=False)
    tenth = SliceSize(PartitionPath("p"), FileId("f9"), 39_000)
    elsewhere = SliceSize(PartitionPath("q"), FileId("f9"), 39_000)
    large = SliceSize(PartitionPath("p"), FileId("large"), 301 * MIB)
    assert not choose_packed([*files, elsewhere, large], RULES, quiet=False)
    assert len(choose_packed([*files, tenth, large], RULES, quiet=False)) == 10


def test_rules_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="two or more"):
        PackingRules(min_files=1)
