"""Tables to spoil: made once per version, copied for every test."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bad_input.kit import Lake, copy_lake, make_lake


@pytest.fixture(scope="session")
def lake_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Lake]:
    """Return a maker of fresh copies of the table of a version."""
    made: dict[int, Lake] = {}
    numbers = itertools.count()
    places: Path = tmp_path_factory.mktemp("bad-input")

    def copy(version: int) -> Lake:
        if version not in made:
            made[version] = make_lake(places / f"v{version}", version)
        return copy_lake(made[version], places / f"copy{next(numbers)}")

    return copy


@pytest.fixture
def lake(lake_of: Callable[[int], Lake]) -> Lake:
    """A fresh table of version 8."""
    return lake_of(8)
