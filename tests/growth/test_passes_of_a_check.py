"""The rules of a check pass over all files a fixed number of times, however much is wrong: a law that counted lines do not show.

A comprehension on one line is one line, whatever it passes over. So here the passes over what grows are counted.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow.parquet as pq
import pytest

from lakefmt._core.check import findings
from lakefmt._core.check.collect import gather_facts, look_at_properties
from lakefmt._core.check.findings import TableFacts
from lakefmt._core.check.rules import find_damage
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.model import BaseFile, LogFile
from lakefmt._core.formats.names import parse_base_file
from lakefmt._core.table import Table
from lakefmt._core.values import InstantTime
from tests.growth import tables


class _Passes:
    def __init__(self) -> None:
        self.count = 0


_Values = TypeVar("_Values", tuple[BaseFile, ...], tuple[LogFile, ...], frozenset[str], frozenset[InstantTime])


def _watched(values: _Values, passes: _Passes) -> _Values:
    """Return the values as a tuple or set that counts how often somebody begins to pass over it."""

    class Watched(type(values)):  # type: ignore[misc]
        def __iter__(self) -> Iterator[object]:
            passes.count += 1
            return iter([*super().__iter__()])

    return Watched(values)


def _facts(table: Table) -> TableFacts:
    return gather_facts(table.client, look_at_properties(table.client.store), level="fast", partitions=None)[0]


def _passes(table: Table) -> tuple[int, int]:
    """Return the passes over files, logs and times of the archive, and the number of findings."""
    facts, passes = _facts(table), _Passes()
    archived = facts.archived_times | {file.instant for file in facts.bases} | {facts.before.commits[0].time}
    facts = replace(
        facts,
        bases=_watched(facts.bases, passes),
        logs=_watched(facts.logs, passes),
        archived_times=_watched(archived, passes),
        removed=_watched(facts.removed, passes),
    )
    return len(find_damage(facts)), passes.count


@pytest.mark.parametrize("make", [tables.damaged, tables.unnamed])
def test_the_rules_pass_over_files_as_often_for_many_findings_as_for_few(make: Callable[[int], Table]):
    (few, passes_of_few), (many, passes_of_many) = _passes(make(8)), _passes(make(64))
    assert many >= 4 * few > 0
    assert passes_of_many == passes_of_few


def test_names_are_parsed_once_for_all_facts(monkeypatch: pytest.MonkeyPatch):
    parsed = []

    def parse(name: str) -> object:
        parsed.append(name)
        return parse_base_file(name)

    monkeypatch.setattr(findings, "parse_base_file", parse)
    assert tables.files(8).check().is_clean
    assert len(parsed) == 8


def test_a_quick_check_does_not_hold_the_footers_it_has_looked_at():
    table = tables.files(64)
    before = _footers()
    gc.disable()
    try:
        assert table.check().is_clean
        assert _footers() - before <= 8  # those that threads look at
    finally:
        gc.enable()


def _footers() -> int:
    return sum(isinstance(each, pq.FileMetaData) for each in gc.get_objects())
