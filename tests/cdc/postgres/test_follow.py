"""A table of PostgreSQL is followed: its rows, then its changes, across the death of the reader."""

from __future__ import annotations

import pytest

from lakefmt._core.cdc.events import SourceName
from tests.cdc.applier import Applied, rows_in
from tests.cdc.postgres.kit import follow, select

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("postgres")]

ITEMS = SourceName("public", "items")


def test_a_table_is_read_and_then_followed(postgres, shop):
    postgres.execute("CREATE TABLE items (id int PRIMARY KEY, v text)", database=shop)
    postgres.execute("INSERT INTO items VALUES (1, 'a'), (2, ''), (3, NULL)", database=shop)
    applied = Applied()
    follow(postgres, shop, applied)
    assert rows_in(applied, ITEMS) == select(postgres, shop) != []
    assert applied.read == [ITEMS]
    postgres.execute(
        "UPDATE items SET v = 'A' WHERE id = 1",
        "DELETE FROM items WHERE id = 2",
        "INSERT INTO items VALUES (4, 'd')",
        database=shop,
    )
    follow(postgres, shop, applied)
    assert rows_in(applied, ITEMS) == select(postgres, shop)
    before = applied.committed()
    follow(postgres, shop, applied)
    assert (applied.log, applied.rows) == (before.log, before.rows)  # nothing comes twice
