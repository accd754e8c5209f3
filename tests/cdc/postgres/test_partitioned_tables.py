"""A partitioned table of PostgreSQL is one table, whatever happens to its partitions."""

from __future__ import annotations

import random

import pytest

import lakefmt
from lakefmt import cdc
from lakefmt._core.cdc.events import SourceName
from lakefmt.errors import SourceChanged
from tests.cdc.applier import Applied, rows_in
from tests.cdc.postgres.kit import follow, select, source_of
from tests.example_counts import seed_of_run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("postgres")]

SALES = SourceName("public", "sales")
MADE = (
    "CREATE TABLE sales (id int, at date, v text, big text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)",
    "CREATE TABLE sales_1 PARTITION OF sales FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
    # Another order of columns, and a partition of partitions.
    "CREATE TABLE sales_2 (v text, big text, id int NOT NULL, at date NOT NULL, PRIMARY KEY (id, at))",
    "ALTER TABLE sales ATTACH PARTITION sales_2 FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')",
    "CREATE TABLE sales_3 PARTITION OF sales FOR VALUES FROM ('2026-03-01') TO ('2026-04-01') PARTITION BY HASH (id)",
    "CREATE TABLE sales_3a PARTITION OF sales_3 FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
    "CREATE TABLE sales_3b PARTITION OF sales_3 FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
    "INSERT INTO sales SELECT n, '2026-01-01'::date + n % 90, 'v' || n, repeat('x', n * 40) FROM generate_series(1, 200) n",
)
ROWS = "SELECT * FROM sales"


@pytest.fixture
def followed(postgres, shop) -> Applied:
    postgres.execute(*MADE, database=shop)
    applied = Applied()
    follow(postgres, shop, applied, chunk_bytes=8192)
    return applied


def test_rows_and_changes_of_all_partitions_are_one_table(postgres, shop, followed):
    assert list(followed.tables) == [SALES]
    assert rows_in(followed, SALES) == select(postgres, shop, ROWS) != []
    postgres.execute(
        "INSERT INTO sales VALUES (900, '2026-01-31', 'new', ''), (901, '2026-03-31', 'new', '')",
        "UPDATE sales SET at = '2026-03-05' WHERE id IN (1, 2, 3)",  # to other partitions
        "UPDATE sales_2 SET v = 'by the name of the partition' WHERE id % 2 = 0",
        "DELETE FROM sales WHERE id % 7 = 0",
        database=shop,
    )
    follow(postgres, shop, followed)
    assert rows_in(followed, SALES) == select(postgres, shop, ROWS)


def test_a_column_with_a_default_has_it_in_older_rows_of_all_partitions(postgres, shop, followed):
    postgres.execute(
        "ALTER TABLE sales ADD COLUMN state text DEFAULT 'old'", "UPDATE sales SET v = 'u' WHERE id = 5", database=shop
    )
    follow(postgres, shop, followed)
    assert rows_in(followed, SALES) == select(postgres, shop, ROWS)


def test_a_new_partition_joins_without_a_word(postgres, shop, followed):
    postgres.execute(
        "CREATE TABLE sales_4 PARTITION OF sales FOR VALUES FROM ('2026-04-01') TO ('2026-05-01')",
        "INSERT INTO sales VALUES (950, '2026-04-04', 'new', '')",
        database=shop,
    )
    follow(postgres, shop, followed)
    assert followed.truncated == []
    assert rows_in(followed, SALES) == select(postgres, shop, ROWS)


MOVES = {
    "dropped": ["DROP TABLE sales_1"],
    "detached": ["ALTER TABLE sales DETACH PARTITION sales_2"],
    "emptied": ["TRUNCATE sales_3a"],
    "attached": [
        "CREATE TABLE more (LIKE sales INCLUDING ALL)",
        "INSERT INTO more VALUES (970, '2026-05-05', 'came along', '')",
        "ALTER TABLE sales ATTACH PARTITION more FOR VALUES FROM ('2026-05-01') TO ('2026-06-01')",
    ],
    "exchanged": [
        "ALTER TABLE sales DETACH PARTITION sales_1",
        "DELETE FROM sales_1 WHERE id % 2 = 0",
        "ALTER TABLE sales ATTACH PARTITION sales_1 FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
    ],
}


@pytest.mark.parametrize("statements", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("running", [False, True], ids=["after a restart", "in a follower that runs"])
def test_rows_that_move_with_a_partition_are_read(postgres, shop, followed, statements, running):
    postgres.execute("INSERT INTO sales VALUES (960, '2026-01-01', 'before', '')", database=shop)
    if not running:
        postgres.execute(*statements, "INSERT INTO sales VALUES (961, '2026-03-01', 'behind', '')", database=shop)
        follow(postgres, shop, followed)
    else:
        source = source_of(postgres, shop, look_seconds=0.0)
        events = source.events(followed.positions, logs=False, until_now=False)
        for event in events:
            followed.apply(event)
            if statements and any(key[0] == 960 for key in followed.rows[SALES]):
                postgres.execute(
                    *statements, "INSERT INTO sales VALUES (961, '2026-03-01', 'behind', '')", database=shop
                )
                statements = []
            elif not statements and rows_in(followed, SALES) == select(postgres, shop, ROWS):
                break
        events.close()
        source.close()
    assert followed.truncated == [SALES]
    assert rows_in(followed, SALES) == select(postgres, shop, ROWS)


def test_all_rows_that_go_at_once_are_told_once(postgres, shop, followed):
    postgres.execute("TRUNCATE sales", "INSERT INTO sales VALUES (1, '2026-01-01', 'again', '')", database=shop)
    follow(postgres, shop, followed)
    assert SALES in followed.truncated
    assert rows_in(followed, SALES) == select(postgres, shop, ROWS)


def test_a_random_workload_over_partitions_ends_equal(postgres, shop, followed):
    draw = random.Random(seed_of_run())
    for _ in range(12):
        for _ in range(draw.randrange(1, 30)):
            day = f"2026-0{draw.randrange(1, 4)}-{draw.randrange(1, 29):02d}"
            key = draw.randrange(1, 60)
            postgres.execute(
                draw.choice(
                    (
                        f"INSERT INTO sales VALUES ({key}, '{day}', 'x', repeat('y', {draw.choice((0, 9000))})) ON CONFLICT DO NOTHING",
                        f"UPDATE sales SET v = v || 'u' WHERE id = {key}",
                        f"UPDATE sales SET at = '{day}' WHERE (id, at) = (SELECT id, at FROM sales WHERE id = {key} ORDER BY at LIMIT 1) AND NOT EXISTS (SELECT 1 FROM sales WHERE id = {key} AND at = '{day}')",
                        f"DELETE FROM sales WHERE id = {key}",
                    )
                ),
                database=shop,
            )
        follow(postgres, shop, followed)
        assert rows_in(followed, SALES) == select(postgres, shop, ROWS)


def test_a_partitioned_table_is_a_table_here(postgres, shop, tmp_path):
    postgres.execute(*MADE, database=shop)
    url = f"postgresql://postgres@{postgres.host}:{postgres.port}/{shop}"
    cdc.follow(url, str(tmp_path), until_now=True)
    postgres.execute("UPDATE sales SET at = '2026-03-09' WHERE id = 1", "DROP TABLE sales_2", database=shop)
    with pytest.raises(SourceChanged, match=r"public\.sales"):
        cdc.follow(url, str(tmp_path), until_now=True)
    cdc.follow(url, str(tmp_path), until_now=True, on_truncate="apply")
    table = lakefmt.open_table(tmp_path / "public" / "sales").read(columns=["id", "at", "v", "big"])
    assert sorted((tuple(row.values()) for row in table.to_pylist()), key=repr) == select(postgres, shop, ROWS)
    assert [path.name for path in (tmp_path / "public").iterdir()] == ["sales"]


def test_a_publication_that_sends_partitions_apart_is_named(postgres, shop):
    postgres.execute(*MADE, "CREATE PUBLICATION mine FOR TABLE sales", database=shop)
    source = source_of(postgres, shop, publication="mine", tables=["sales"])
    findings = source.preflight()
    source.close()
    assert any("publish_via_partition_root = true" in each.mend for each in findings)
    assert any(each.stops for each in findings)
