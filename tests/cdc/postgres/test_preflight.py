"""What a PostgreSQL lacks is said with the statement that mends it, and the statement mends it."""

from __future__ import annotations

import pytest

from tests.cdc.postgres.kit import source_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("postgres")]


def findings(server, database, **options):
    source = source_of(server, database, **options)
    try:
        return [found for found in source.preflight() if "max_slot_wal_keep_size" not in found.message]
    finally:
        source.close()


def test_a_server_that_has_all_lacks_nothing_but_a_limit_of_its_log(postgres, shop):
    postgres.execute("CREATE TABLE items (id int PRIMARY KEY)", database=shop)
    source = source_of(postgres, shop)
    (found,) = source.preflight()
    source.close()
    assert not found.stops
    assert "max_slot_wal_keep_size" in found.mend


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["CREATE TABLE items (v int)"], "no replica identity"),
        (
            ["CREATE TABLE items (id int PRIMARY KEY)", "ALTER TABLE items REPLICA IDENTITY NOTHING"],
            "no replica identity",
        ),
        (
            [
                "CREATE TABLE items (id int PRIMARY KEY)",
                "CREATE PUBLICATION lakefmt FOR TABLE items WITH (publish = 'insert')",
            ],
            "leaves out insertions, updates or deletions",
        ),
        (
            ["CREATE TABLE items (id int PRIMARY KEY)", "CREATE PUBLICATION lakefmt FOR TABLE items WHERE (id > 5)"],
            "leaves out rows or columns of public.items",
        ),
        (
            ["CREATE TABLE items (id int PRIMARY KEY, v int)", "CREATE PUBLICATION lakefmt FOR TABLE items (id)"],
            "leaves out rows or columns of public.items",
        ),
    ],
    ids=["no key", "identity of nothing", "only insertions", "rows", "columns"],
)
def test_what_would_lose_changes_stops_until_it_is_mended(postgres, shop, statements, message):
    postgres.execute(*statements, database=shop)
    (found,) = [found for found in findings(postgres, shop) if found.stops]
    assert message in found.message
    postgres.execute(found.mend, database=shop)
    assert findings(postgres, shop) == []


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (
            [
                "CREATE TABLE items (id int PRIMARY KEY)",
                "CREATE PUBLICATION lakefmt FOR TABLE items WITH (publish = 'insert, update, delete')",
            ],
            "truncations",
        ),
        (
            [
                "CREATE TABLE others (id int PRIMARY KEY)",
                "CREATE PUBLICATION lakefmt FOR TABLE others",
                "CREATE TABLE items (id int PRIMARY KEY)",
            ],
            "lacks tables",
        ),
    ],
    ids=["truncations", "tables"],
)
def test_what_may_be_meant_is_a_warning_with_its_statement(postgres, shop, statements, message):
    postgres.execute(*statements, database=shop)
    (found,) = findings(postgres, shop)
    assert message in found.message
    assert not found.stops
    postgres.execute(found.mend, database=shop)
    assert findings(postgres, shop) == []


def test_a_role_that_may_not_is_told_what_to_grant(postgres, shop):
    postgres.execute(
        "CREATE TABLE items (id int PRIMARY KEY)",
        "CREATE PUBLICATION lakefmt FOR TABLE items",
        f"CREATE ROLE reader_of_{shop} LOGIN",
        database=shop,
    )
    found = findings_of_role(postgres, shop)
    assert [part.message for part in found] == [
        f"the role reader_of_{shop} may not replicate",
        f"the role reader_of_{shop} may not read public.items",
    ]
    postgres.execute(*(part.mend for part in found), database=shop)
    assert findings_of_role(postgres, shop) == []
    postgres.execute("DROP PUBLICATION lakefmt", database=shop)
    (part,) = findings_of_role(postgres, shop)
    postgres.execute(part.mend, database=shop)
    assert findings_of_role(postgres, shop) == []


def findings_of_role(postgres, shop):
    from lakefmt._core.cdc.postgres.source import PostgresSource

    source = PostgresSource(postgres.host, postgres.port, f"reader_of_{shop}", "", shop)
    found = [part for part in source.preflight() if part.stops]
    source.close()
    return found


def test_a_pattern_without_tables_and_a_slot_of_another_stop(postgres, shop):
    postgres.execute("SELECT pg_create_logical_replication_slot('taken', 'test_decoding')", database=shop)
    messages = [found.message for found in findings(postgres, shop, tables=["nothing"], slot="taken")]
    assert len(messages) == 2
    assert "another's: one of test_decoding" in messages[0]
    assert "no table" in messages[1]


def test_a_policy_that_hides_rows_is_an_error_and_no_loss(postgres, shop):
    from lakefmt._core.cdc.postgres.source import PostgresSource
    from lakefmt.errors import SourceRefused

    role = f"hidden_from_{shop}"
    postgres.execute(
        "CREATE TABLE items (id int PRIMARY KEY)",
        "INSERT INTO items VALUES (1), (2)",
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY",
        f"CREATE ROLE {role} LOGIN REPLICATION",
        f"GRANT SELECT ON items TO {role}",
        f"CREATE POLICY first_only ON items TO {role} USING (id = 1)",
        "CREATE PUBLICATION lakefmt FOR TABLE items",
        database=shop,
    )
    source = PostgresSource(postgres.host, postgres.port, role, "", shop)
    with pytest.raises(SourceRefused, match="row-level security"):
        list(source.events({}, logs=False, until_now=True))
    source.close()
