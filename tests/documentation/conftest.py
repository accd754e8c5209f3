"""A page's examples are run as by a reader: no table of another test stands where they make theirs."""

from __future__ import annotations

import pytest

from lakefmt._core.storage import memory


@pytest.fixture(autouse=True)
def empty_memory(monkeypatch):
    """Give the test stores in memory of its own: their names belong to the process, and other tests use the same ones."""
    monkeypatch.setattr(memory, "_spaces", {})
