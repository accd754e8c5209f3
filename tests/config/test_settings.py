"""Settings and checked paths are kept between calls: what is kept is exactly what would be worked out again."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.keys.partition_path import check_paths
from lakefmt.errors import InvalidKey, UnknownSetting

KEY = "hoodie.clean.trigger.max.commits"


def test_equal_values_of_different_types_are_different() -> None:
    assert resolve_settings({KEY: 1}).integer(KEY) == 1
    with pytest.raises(UnknownSetting):
        resolve_settings({KEY: True})


def test_who_said_it_is_kept_apart() -> None:
    assert resolve_settings({KEY: 7}, None).origins[KEY] == "call"
    assert resolve_settings({}, {KEY: 7}).origins[KEY] == "handle"
    assert resolve_settings({}, None, {KEY: "7"}).origins[KEY] == "table"


def test_values_that_cannot_be_kept_are_refused_as_settings() -> None:
    with pytest.raises(UnknownSetting):
        resolve_settings({KEY: ["7"]})


def test_a_refused_path_is_refused_again() -> None:
    for _ in range(2):
        with pytest.raises(InvalidKey, match="an empty part"):
            check_paths(pa.array(["fine", "a/../b"]))
        check_paths(pa.array(["fine"]))
