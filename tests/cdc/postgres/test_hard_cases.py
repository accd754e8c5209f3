"""What goes wrong with databases that are followed: tables that come, go and change, slots that are lost, readers that are slow."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
import time

import pytest

import lakefmt
from lakefmt import cdc
from lakefmt._core.cdc.events import Border, RowChanges, RowKind, SourceName, TableChanged
from lakefmt._core.cdc.postgres.source import PostgresSource
from lakefmt.errors import InvalidInputError, PositionLost, SourceRefused, SourceUnavailable
from tests.cdc.applier import Applied, rows_in
from tests.cdc.postgres.kit import follow, select, source_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("postgres")]

ITEMS, OTHERS = SourceName("public", "items"), SourceName("public", "others")
SECONDS = 20.0


def make_items(postgres, shop, rows: int = 3, more: str = "") -> None:
    postgres.execute(
        f"CREATE TABLE items (id int PRIMARY KEY, v text, big text) {more}",
        "ALTER TABLE items ALTER big SET STORAGE EXTERNAL",
        f"INSERT INTO items SELECT n, 'v' || n, repeat('x', 9000) FROM generate_series(1, {rows}) n",
        database=shop,
    )


def applied_until(events, applied: Applied, condition) -> None:
    """Apply events until a condition holds."""
    deadline = time.monotonic() + SECONDS
    for event in events:
        applied.apply(event)
        if condition():
            return
        assert time.monotonic() < deadline, "it never came"
    raise AssertionError("the events ended")


# ------------------------------------------------------------------------------------------------- large values and keys


def test_an_update_that_leaves_a_large_value_alone_does_not_send_it(postgres, shop):
    make_items(postgres, shop)
    applied = Applied()
    follow(postgres, shop, applied)
    postgres.execute("UPDATE items SET v = 'new' WHERE id = 1", database=shop)
    seen = []
    source = source_of(postgres, shop)
    for event in source.events(applied.positions, logs=False, until_now=True):
        applied.apply(event)
        seen += [event] if isinstance(event, RowChanges) else []
    source.close()
    (changes,) = seen
    assert changes.kinds.to_pylist() == [RowKind.UPDATE_AFTER.value]
    assert json.loads(changes.sent[0].as_py()) == ["id", "v"]
    assert changes.rows["big"].to_pylist() == [None]
    assert rows_in(applied, ITEMS) == select(postgres, shop)


def test_a_new_key_takes_its_large_value_from_the_row_of_the_old_key(postgres, shop):
    make_items(postgres, shop)
    applied = Applied()
    follow(postgres, shop, applied)
    connection = postgres.connect(shop)
    connection.autocommit = False
    with connection.cursor() as cursor:  # 1 → 9 → 8, and another row takes the key 1
        cursor.execute("UPDATE items SET id = 9 WHERE id = 1")
        cursor.execute("UPDATE items SET id = 8, v = 'moved' WHERE id = 9")
        cursor.execute("INSERT INTO items VALUES (1, 'other', repeat('y', 9000))")
    connection.commit()
    connection.close()
    follow(postgres, shop, applied)
    assert rows_in(applied, ITEMS) == select(postgres, shop)


def test_whole_rows_before_a_change_bring_the_large_value(postgres, shop):
    make_items(postgres, shop, more="")
    postgres.execute("ALTER TABLE items REPLICA IDENTITY FULL", database=shop)
    applied = Applied()
    follow(postgres, shop, applied, logs=True)
    postgres.execute("UPDATE items SET v = 'new' WHERE id = 1", "DELETE FROM items WHERE id = 2", database=shop)
    follow(postgres, shop, applied, logs=True)
    kinds = [(kind.short, row["id"], row["v"], len(row["big"])) for kind, row, _ in applied.log[ITEMS][3:]]
    assert kinds == [("-U", 1, "v1", 9000), ("+U", 1, "new", 9000), ("-D", 2, "v2", 9000)]


def test_an_identity_of_another_index_is_the_key(postgres, shop):
    postgres.execute(
        "CREATE TABLE items (id int PRIMARY KEY, code text NOT NULL, place int NOT NULL, v text)",
        "CREATE UNIQUE INDEX by_code ON items (place, code)",
        "ALTER TABLE items REPLICA IDENTITY USING INDEX by_code",
        "INSERT INTO items VALUES (1, 'a', 1, 'x'), (2, 'b', 1, 'y')",
        database=shop,
    )
    applied = Applied()
    follow(postgres, shop, applied)
    assert applied.tables[ITEMS].keys == ("place", "code")
    postgres.execute(
        "UPDATE items SET id = 7 WHERE code = 'a'",
        "UPDATE items SET code = 'c' WHERE code = 'b'",
        "DELETE FROM items WHERE code = 'a'",
        database=shop,
    )
    follow(postgres, shop, applied)
    assert rows_in(applied, ITEMS) == select(postgres, shop) != []
    assert len(applied.changed) == 2  # the snapshot's and the log's first; they say the same


def test_a_table_without_a_key_is_a_log_with_whole_rows(postgres, shop):
    postgres.execute(
        "CREATE TABLE items (v text) WITH (fillfactor = 10)",
        "ALTER TABLE items REPLICA IDENTITY FULL",
        "INSERT INTO items SELECT NULL FROM generate_series(1, 400)",
        database=shop,
    )
    applied = Applied()
    follow(postgres, shop, applied, logs=True, chunk_bytes=8192)
    postgres.execute("INSERT INTO items VALUES ('a'), ('a'), (NULL)", "DELETE FROM items WHERE v = 'a'", database=shop)
    follow(postgres, shop, applied, logs=True)
    assert applied.tables[ITEMS].keys == ()
    kinds = [kind for kind, _, _ in applied.log[ITEMS]]
    assert kinds.count(RowKind.INSERT) - kinds.count(RowKind.DELETE) == len(select(postgres, shop)) == 401


def test_names_and_keys_of_any_script_and_case_are_followed(postgres, shop):
    postgres.execute(
        'CREATE SCHEMA "Größe"',
        'CREATE TABLE "Größe"."o""d.d" ("ключ a" text, "B" int, "select" text, PRIMARY KEY ("B", "ключ a"))',
        """INSERT INTO "Größe"."o""d.d" VALUES ('a''b', 1, 'x'), ('ü', 2, NULL)""",
        database=shop,
    )
    name = SourceName("Größe", 'o"d.d')
    applied = Applied()
    follow(postgres, shop, applied, tables=["Gr*.*"], publication='odd "p', slot="odd_slot")
    assert applied.tables[name].keys == ("B", "ключ a")
    postgres.execute("""UPDATE "Größe"."o""d.d" SET "ключ a" = 'z' WHERE "B" = 1""", database=shop)
    follow(postgres, shop, applied, tables=["Gr*.*"], publication='odd "p', slot="odd_slot")
    assert rows_in(applied, name) == select(postgres, shop, 'SELECT * FROM "Größe"."o""d.d"')


# ------------------------------------------------------------------------------------------------------- tables that change


def test_columns_that_come_go_and_change_are_told_before_the_rows_that_have_them(postgres, shop):
    make_items(postgres, shop)
    applied = Applied()
    follow(postgres, shop, applied)
    postgres.execute(
        "INSERT INTO items VALUES (10, 'before', 'b')",
        "ALTER TABLE items ADD COLUMN n int DEFAULT 5",
        "INSERT INTO items VALUES (11, 'added', 'b', 6)",
        "ALTER TABLE items DROP COLUMN big",
        "INSERT INTO items VALUES (12, 'dropped', 7)",
        "ALTER TABLE items ALTER n TYPE bigint",
        "INSERT INTO items VALUES (13, 'widened', 8)",
        "ALTER TABLE items RENAME COLUMN n TO m",
        "INSERT INTO items VALUES (14, 'renamed', 9)",
        database=shop,
    )
    seen = len(applied.changed)
    follow(postgres, shop, applied)
    columns = [(event.before is None, event.table.columns.names) for event in applied.changed[seen:]]
    assert columns == [
        (True, ["id", "v", "big"]),
        (False, ["id", "v", "big", "n"]),
        (False, ["id", "v", "n"]),
        (False, ["id", "v", "n"]),
        (False, ["id", "v", "m"]),
    ]
    values = [row.get("n", row.get("m")) for kind, row, _ in applied.log[ITEMS] if row["id"] > 9]
    assert values == [None, 6, 7, 8, 9]


def test_a_truncation_is_told_in_its_place(postgres, shop):
    make_items(postgres, shop)
    applied = Applied()
    follow(postgres, shop, applied)
    postgres.execute(
        "INSERT INTO items VALUES (8, 'a', '')",
        "TRUNCATE items",
        "INSERT INTO items VALUES (9, 'b', '')",
        database=shop,
    )
    follow(postgres, shop, applied)
    assert rows_in(applied, ITEMS) == select(postgres, shop) == [(9, "b", "")]
    assert applied.truncated == [ITEMS]


def test_a_table_that_joins_is_read_while_the_others_go_on(postgres, shop):
    make_items(postgres, shop)
    applied, source = Applied(), source_of(postgres, shop)
    events = source.events({}, logs=False, until_now=False)
    applied_until(events, applied, lambda: ITEMS in applied.positions)
    postgres.execute(
        "CREATE TABLE others (id int PRIMARY KEY)",
        "INSERT INTO others VALUES (1), (2)",
        "ALTER PUBLICATION lakefmt ADD TABLE others",
        "INSERT INTO others VALUES (3)",
        "INSERT INTO items VALUES (9, 'z', '')",
        database=shop,
    )
    applied_until(events, applied, lambda: len(applied.rows.get(OTHERS, ())) == 3 and (9,) in applied.rows[ITEMS])
    postgres.execute("DELETE FROM others WHERE id = 1", database=shop)
    applied_until(events, applied, lambda: len(applied.rows[OTHERS]) == 2)
    events.close()
    source.close()
    assert [kind for kind, _, _ in applied.log[OTHERS]] == [RowKind.INSERT] * 3 + [RowKind.DELETE]


def test_a_table_that_joined_while_the_reader_was_down_is_read(postgres, shop):
    make_items(postgres, shop)
    applied = Applied()
    follow(postgres, shop, applied)
    postgres.execute(
        "CREATE TABLE others (id int PRIMARY KEY)",
        "INSERT INTO others VALUES (1)",
        "ALTER PUBLICATION lakefmt ADD TABLE others",
        "INSERT INTO others VALUES (2)",
        "INSERT INTO items VALUES (9, 'z', '')",
        database=shop,
    )
    follow(postgres, shop, applied)
    assert rows_in(applied, OTHERS) == [(1,), (2,)]
    assert rows_in(applied, ITEMS) == select(postgres, shop)
    assert len(applied.log[ITEMS]) == 4  # its rows were not read again


def test_a_table_that_is_dropped_or_renamed_is_told_after_its_last_change(postgres, shop):
    make_items(postgres, shop)
    postgres.execute("CREATE TABLE others (id int PRIMARY KEY)", database=shop)
    applied, source = Applied(), source_of(postgres, shop)
    events = source.events({}, logs=False, until_now=False)
    applied_until(events, applied, lambda: len(applied.positions) == 2)
    postgres.execute(
        "INSERT INTO others VALUES (1)",
        "DROP TABLE others",
        "INSERT INTO items VALUES (9, 'z', '')",
        "ALTER TABLE items RENAME TO things",
        database=shop,
    )
    applied_until(events, applied, lambda: len(applied.gone) == 2)
    things = SourceName("public", "things")
    assert {(gone.name, gone.new_name) for gone in applied.gone} == {(OTHERS, None), (ITEMS, things)}
    assert (rows_in(applied, OTHERS), len(applied.rows[ITEMS])) == ([(1,)], 4)
    applied_until(events, applied, lambda: things in applied.positions)  # it joins under its new name
    assert rows_in(applied, things) == select(postgres, shop, "SELECT * FROM things")
    events.close()
    source.close()


def test_a_table_that_was_made_again_begins_anew(postgres, shop):
    make_items(postgres, shop)
    applied = Applied()
    follow(postgres, shop, applied)
    postgres.execute(
        "DROP TABLE items",
        "CREATE TABLE items (id int PRIMARY KEY, v text)",
        "INSERT INTO items VALUES (7, 'again')",
        "ALTER PUBLICATION lakefmt ADD TABLE items",
        database=shop,
    )
    follow(postgres, shop, applied)
    assert rows_in(applied, ITEMS) == [(7, "again")]
    assert applied.truncated == [ITEMS]


@pytest.mark.parametrize(
    "change", ["ALTER TABLE items ALTER id TYPE bigint", "ALTER TABLE items DROP COLUMN v", "DROP TABLE items"]
)
def test_a_table_that_is_rewritten_while_it_is_read_is_read_anew(postgres, shop, change):
    make_items(postgres, shop, rows=200, more="WITH (fillfactor = 10)")
    applied = Applied()
    source = source_of(postgres, shop, chunk_bytes=8192)
    events = source.events({}, logs=False, until_now=True)
    applied_until(events, applied, lambda: ITEMS in applied.positions)
    postgres.execute(change, database=shop)
    with pytest.raises(SourceUnavailable, match="read anew"):
        applied.apply_all(events)
    source.close()
    follow(postgres, shop, applied)
    if change.startswith("DROP"):
        assert [gone.name for gone in applied.gone] == [ITEMS]
    else:
        assert rows_in(applied, ITEMS) == select(postgres, shop)


# ---------------------------------------------------------------------------------------------------- slots and positions


def test_an_idle_source_gives_borders_and_the_server_may_forget(postgres, shop):
    make_items(postgres, shop)
    postgres.execute("CREATE TABLE unwatched (id int)", database=shop)
    applied, source = Applied(), source_of(postgres, shop, tables=["items"])
    events = source.events({}, logs=False, until_now=False)
    applied_until(events, applied, lambda: ITEMS in applied.positions)
    confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 'lakefmt'"
    first = postgres.rows(confirmed, shop)
    times = []
    postgres.execute("INSERT INTO unwatched SELECT generate_series(1, 100)", database=shop)

    source.confirm(applied.positions)

    def is_forgotten() -> bool:
        times.append(time.monotonic())
        return len(times) > 2 and postgres.rows(confirmed, shop) != first

    applied_until(events, applied, is_forgotten)
    assert max(b - a for a, b in itertools.pairwise(times)) < 3
    assert source.lag()["bytes"] < 100_000
    events.close()
    source.close()


def test_the_slot_stands_still_until_it_is_told_what_is_durable(postgres, shop):
    make_items(postgres, shop)
    applied = Applied()
    follow(postgres, shop, applied)
    before = applied.committed()
    postgres.execute("INSERT INTO items VALUES (9, 'z', '')", database=shop)
    for _ in range(2):  # read twice, never confirmed
        again = before.committed()
        source = source_of(postgres, shop)
        again.apply_all(source.events(before.positions, logs=True, until_now=True))
        source.close()
        assert len(again.log[ITEMS]) == len(before.log[ITEMS]) + 1


def test_a_slot_that_is_gone_is_a_lost_position_and_a_new_start_makes_it_again(postgres, shop):
    make_items(postgres, shop)
    applied = Applied()
    follow(postgres, shop, applied)
    postgres.drop_slot("lakefmt", shop)
    with pytest.raises(PositionLost, match="slot"):
        follow(postgres, shop, applied)
    again = Applied()
    follow(postgres, shop, again)
    assert rows_in(again, ITEMS) == select(postgres, shop)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_follower_that_waits_for_an_open_transaction_ends_by_a_signal(postgres, shop, tmp_path, number):
    make_items(postgres, shop)
    waits = (
        "SELECT 1 FROM pg_stat_activity WHERE application_name = 'lakefmt' AND query LIKE 'CREATE_REPLICATION_SLOT%'"
    )
    url = f"postgresql://postgres@{postgres.host}:{postgres.port}/{shop}"
    connection = postgres.connect(shop)
    connection.autocommit = False
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO items VALUES (9, 'z', '')")
    command = [sys.executable, "-m", "lakefmt", "cdc", url, "--to", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not postgres.rows(waits, shop):
            assert process.poll() is None
        process.send_signal(number)
        process.wait(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
        connection.close()


def test_two_followers_of_one_database_take_nothing_from_each_other(postgres, shop, tmp_path):
    make_items(postgres, shop)
    url = f"postgresql://postgres@{postgres.host}:{postgres.port}/{shop}"
    for statement in ("SELECT 1", "INSERT INTO items VALUES (8, 'x', '')", "DELETE FROM items WHERE id = 1"):
        postgres.execute(statement, database=shop)
        for lake in ("first", "second"):
            cdc.follow(url, str(tmp_path / lake), tables=["public.items"], until_now=True)
    for lake in ("first", "second"):
        rows = lakefmt.open_table(tmp_path / lake / "public" / "items").read(columns=["id"])
        assert sorted(rows.column("id").to_pylist()) == sorted(row[0] for row in select(postgres, shop))
    assert len(postgres.rows("SELECT 1 FROM pg_replication_slots", shop)) == 2


@pytest.mark.parametrize("running", [False, True], ids=["after a restart", "in a follower that runs"])
def test_a_table_that_joins_is_read(postgres, shop, running):
    make_items(postgres, shop)
    applied = Applied()
    made = ("CREATE TABLE others (id int PRIMARY KEY)", "INSERT INTO others VALUES (1), (2)")
    if not running:
        follow(postgres, shop, applied)
        postgres.execute(*made, database=shop)
        follow(postgres, shop, applied)
    else:
        source = source_of(postgres, shop, look_seconds=0.0)
        events = source.events({}, logs=False, until_now=False)
        applied_until(events, applied, lambda: ITEMS in applied.positions)
        postgres.execute(*made, database=shop)
        applied_until(events, applied, lambda: len(applied.rows.get(OTHERS, ())) == 2)
        events.close()
        source.close()
    assert set(applied.rows[OTHERS]) == {(1,), (2,)}


def test_a_table_that_somebody_elses_publication_lacks_is_named(postgres, shop, caplog):
    make_items(postgres, shop)
    postgres.execute(
        "CREATE PUBLICATION lakefmt FOR TABLE items", "CREATE TABLE others (id int PRIMARY KEY)", database=shop
    )
    applied = Applied()
    with caplog.at_level("WARNING", logger="lakefmt.cdc"):
        follow(postgres, shop, applied)
    assert 'ALTER PUBLICATION "lakefmt" ADD TABLE "public"."others"' in caplog.text
    assert OTHERS not in applied.rows


def test_a_table_without_changes_keeps_no_log(postgres, shop):
    make_items(postgres, shop)
    postgres.execute("CREATE TABLE others (id int PRIMARY KEY)", "INSERT INTO others VALUES (1)", database=shop)
    applied, source = Applied(), source_of(postgres, shop)
    events = source.events({}, logs=False, until_now=False)
    applied_until(events, applied, lambda: len(applied.positions) == 2)
    first = dict(applied.positions)
    source.confirm(first)
    postgres.execute("INSERT INTO items VALUES (9, 'z', '')", database=shop)
    applied_until(events, applied, lambda: (9,) in applied.rows[ITEMS])
    applied_until(events, applied, lambda: True)  # its border
    position = "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots"
    deadline = time.monotonic() + 2  # what is not durable is kept
    while time.monotonic() < deadline:
        applied_until(events, applied, lambda: True)
        assert postgres.rows(position, shop)[0][0] <= first[ITEMS]["lsn"]
    source.confirm(
        {OTHERS: first[OTHERS], ITEMS: applied.positions[ITEMS]}
    )  # the other table has committed nothing since
    applied_until(
        events, applied, lambda: postgres.rows(position, shop)[0][0] >= applied.positions[ITEMS]["lsn"] - 1000
    )
    events.close()
    source.close()


def test_the_latest_position_leaves_out_what_came_before(postgres, shop):
    make_items(postgres, shop)
    applied = Applied()
    follow(postgres, shop, applied)
    postgres.drop_slot("lakefmt", shop)
    postgres.execute("INSERT INTO items VALUES (8, 'lost', '')", database=shop)
    source = source_of(postgres, shop)
    applied.positions[ITEMS] = source.latest()
    source.close()
    postgres.execute("INSERT INTO items VALUES (9, 'z', '')", database=shop)
    follow(postgres, shop, applied)
    assert sorted(applied.rows[ITEMS]) == [(1,), (2,), (3,), (9,)]


def test_a_slot_that_the_server_gave_up_is_a_lost_position_and_a_new_start_makes_it_again(postgres, shop):
    make_items(postgres, shop)
    applied = Applied()
    follow(postgres, shop, applied)
    postgres.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    postgres.execute("SELECT pg_reload_conf()")
    try:
        deadline = time.monotonic() + SECONDS
        while postgres.rows("SELECT wal_status FROM pg_replication_slots WHERE slot_name = 'lakefmt'", shop) != [
            ("lost",)
        ]:
            postgres.execute("INSERT INTO items VALUES (9, 'z', '')", "DELETE FROM items WHERE id = 9", database=shop)
            postgres.execute("SELECT pg_switch_wal()")
            postgres.execute("CHECKPOINT")
            assert time.monotonic() < deadline, "the server keeps the log"
        with pytest.raises(PositionLost, match="max_slot_wal_keep_size"):
            follow(postgres, shop, applied)
        source = source_of(postgres, shop)
        assert any("lost its log" in found.message and not found.stops for found in source.preflight())
        source.close()
        again = Applied()
        follow(postgres, shop, again)
        assert rows_in(again, ITEMS) == select(postgres, shop)
    finally:
        postgres.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
        postgres.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize(("name", "value"), [("system", "1"), ("database", "other"), ("slot", "other")])
def test_a_position_of_another_server_database_or_slot_is_lost(postgres, shop, name, value):
    make_items(postgres, shop)
    applied = Applied()
    follow(postgres, shop, applied)
    applied.positions[ITEMS][name] = value
    with pytest.raises(PositionLost, match=name):
        follow(postgres, shop, applied)


def test_a_position_ahead_of_the_log_is_lost(postgres, shop):
    make_items(postgres, shop)
    applied = Applied()
    follow(postgres, shop, applied)
    applied.positions[ITEMS]["lsn"] += 1 << 40
    with pytest.raises(PositionLost, match="ahead"):
        follow(postgres, shop, applied)


@pytest.mark.parametrize(
    "damage",
    [{"lsn": "1"}, {"lsn": -1}, {"version": 2}, {"source": "mariadb"}, {"table": "1"}, {"snapshot": {"page": 1}}],
)
def test_a_damaged_position_is_refused(postgres, shop, damage):
    make_items(postgres, shop)
    applied = Applied()
    follow(postgres, shop, applied)
    applied.positions[ITEMS] |= damage
    with pytest.raises(InvalidInputError, match="position"):
        follow(postgres, shop, applied)


def test_a_second_reader_of_a_slot_is_refused_for_now(postgres, shop):
    make_items(postgres, shop)
    applied, source = Applied(), source_of(postgres, shop)
    events = source.events({}, logs=False, until_now=False)
    applied_until(events, applied, lambda: applied.borders > 1)
    make_others(postgres, shop)
    published = "SELECT tablename::text FROM pg_publication_tables"
    with pytest.raises(SourceUnavailable, match="active"):
        follow(postgres, shop, Applied(), tables=["others"])
    assert postgres.rows(published, shop) == [("items",)], "it took the tables of the first one out"
    with pytest.raises(SourceUnavailable, match="active"):
        follow(postgres, shop, applied)
    events.close()
    source.close()


def test_a_server_that_dies_loses_nothing(postgres, shop):
    make_items(postgres, shop)
    applied, source = Applied(), source_of(postgres, shop)
    events = source.events({}, logs=True, until_now=False)
    applied_until(events, applied, lambda: ITEMS in applied.positions)
    postgres.execute("INSERT INTO items VALUES (9, 'z', '')", database=shop)
    postgres.stop()
    try:
        with pytest.raises(SourceUnavailable):
            applied.apply_all(events)
        source.close()
        with pytest.raises(SourceUnavailable):
            follow(postgres, shop, applied)
    finally:
        postgres.start()
    follow(postgres, shop, applied, logs=True)
    assert rows_in(applied, ITEMS) == select(postgres, shop)
    assert len(applied.log[ITEMS]) == 4


def test_another_thread_ends_the_events(postgres, shop):
    make_items(postgres, shop)
    applied, source = Applied(), source_of(postgres, shop)
    reader = threading.Thread(target=lambda: applied.apply_all(source.events({}, logs=False, until_now=False)))
    reader.start()
    deadline = time.monotonic() + SECONDS
    while applied.borders < 2:
        assert time.monotonic() < deadline
    source.close()
    reader.join(SECONDS)
    assert not reader.is_alive()
    source.close()  # a second call does nothing
    assert postgres.rows("SELECT count(*) FROM pg_replication_slots WHERE active", shop) == [(0,)]


def test_a_large_transaction_comes_in_parts_between_two_borders(postgres, shop):
    make_items(postgres, shop, rows=0)
    applied = Applied()
    follow(postgres, shop, applied)
    postgres.execute("INSERT INTO items SELECT n, 'v', '' FROM generate_series(1, 50000) n", database=shop)
    source = source_of(postgres, shop)
    sizes: list[int] = []
    for event in source.events(applied.positions, logs=False, until_now=True):
        sizes += [event.rows.num_rows] if isinstance(event, RowChanges) else []
        assert not (isinstance(event, Border) and 0 < sum(sizes) < 50_000)
    source.close()
    assert sum(sizes) == 50_000
    assert max(sizes) <= 20_000


def test_a_log_that_was_begun_as_last_states_is_refused(postgres, shop):
    make_items(postgres, shop, rows=200, more="WITH (fillfactor = 10)")
    applied, source = Applied(), source_of(postgres, shop, chunk_bytes=8192)
    events = source.events({}, logs=False, until_now=True)
    applied_until(events, applied, lambda: ITEMS in applied.positions)
    events.close()
    source.close()
    with pytest.raises(SourceRefused, match="last states"):
        follow(postgres, shop, applied, logs=True)


# --------------------------------------------------------------------------------------------------------------- secrets


def test_no_text_has_the_password(postgres, shop):
    secret = "pass-word-1234"
    source = PostgresSource(postgres.host, 1, "postgres", secret, shop)
    with pytest.raises(SourceUnavailable) as raised:
        list(source.events({}, logs=False, until_now=True))
    source.close()
    texts = [repr(source), source.identity, str(raised.value), repr(raised.value), repr(source._settings)]
    assert [text for text in texts if secret in text] == []


def test_a_url_names_the_server_and_never_a_password():
    source = PostgresSource.from_url("postgresql://me@db.example:5433/my%20shop?sslmode=require", password="x")
    assert source.identity == "postgresql://db.example:5433/my shop"
    assert source._settings.server.parameters == {"sslmode": "require"}
    source.close()
    url = "postgresql://db/shop?slot=s1&publication=p1&odd_values=null&text_columns=a.x,b.*"
    source = PostgresSource.from_url(url, tables=["*"])
    settings = source._settings
    assert (settings.slot, settings.publication, settings.odd_values, settings.text_columns) == (
        "s1",
        "p1",
        "null",
        ("a.x", "b.*"),
    )
    assert settings.matches(SourceName("any", "table"))
    source.close()
    for url in (
        "postgresql://me:secret-1@db/shop",
        "postgresql://me@db/shop?password=secret-1",
        "mysql://db/shop",
        "postgresql:///shop",
        "postgresql://db",
        "postgresql://db:x/shop",
    ):
        with pytest.raises(InvalidInputError) as raised:
            PostgresSource.from_url(url)
        assert "secret-1" not in str(raised.value)


@pytest.mark.parametrize(
    ("database", "user", "parameters"),
    [("nowhere", "postgres", {}), ("postgres", "nobody", {}), ("postgres", "postgres", {"no_such_option": "1"})],
)
def test_what_no_later_attempt_mends_is_refused(postgres, database, user, parameters):
    source = PostgresSource(postgres.host, postgres.port, user, "", database, parameters=parameters)
    with pytest.raises(SourceRefused):
        source.preflight()
    source.close()


def test_the_columns_of_a_table_are_those_of_its_events(postgres, shop):
    make_items(postgres, shop)
    applied, source = Applied(), source_of(postgres, shop)
    before = source.tables()
    applied.apply_all(source.events({}, logs=False, until_now=True))
    assert (
        list(before)
        == list(source.tables())
        == [event.table for event in applied.changed if isinstance(event, TableChanged)]
    )
    source.close()


# --------------------------------------------------------------------------------------------- followers beside each other


def url_of(postgres, shop, more: str = "") -> str:
    return f"postgresql://postgres@{postgres.host}:{postgres.port}/{shop}{more}"


def ids_of(folder, name: str) -> list[int]:
    return sorted(lakefmt.open_table(folder / "public" / name).read(columns=["id"]).column("id").to_pylist())


def make_others(postgres, shop) -> None:
    postgres.execute(
        "CREATE TABLE others (id int PRIMARY KEY, v text)", "INSERT INTO others VALUES (1), (2)", database=shop
    )


@pytest.mark.parametrize("others", [["public.items"], ["public.*", "!others"]], ids=["a name", "an exclusion"])
def test_a_table_that_was_left_out_for_a_while_loses_nothing_without_a_word(postgres, shop, tmp_path, others):
    make_items(postgres, shop)
    make_others(postgres, shop)
    url, both = url_of(postgres, shop), ["public.*"]
    cdc.follow(url, str(tmp_path), tables=both, until_now=True)
    postgres.execute(
        "INSERT INTO others VALUES (3, 'while it is left out')", "DELETE FROM others WHERE id = 1", database=shop
    )
    postgres.execute("INSERT INTO items VALUES (4, 'x', '')", database=shop)
    cdc.follow(url, str(tmp_path), tables=others, until_now=True)
    with pytest.raises(PositionLost, match=r"public\.others"):
        cdc.follow(url, str(tmp_path), tables=both, until_now=True)
    postgres.execute("INSERT INTO items VALUES (5, 'y', '')", database=shop)
    cdc.follow(url, str(tmp_path), tables=both, until_now=True, on_position_lost="resnapshot")
    assert (ids_of(tmp_path, "others"), ids_of(tmp_path, "items")) == ([2, 3], [1, 2, 3, 4, 5])


def test_followers_of_other_tables_into_one_folder_lose_nothing_without_a_word(postgres, shop, tmp_path):
    make_items(postgres, shop)
    make_others(postgres, shop)
    url = url_of(postgres, shop)
    cdc.follow(url, str(tmp_path), tables=["items"], until_now=True)
    cdc.follow(url, str(tmp_path), tables=["others"], until_now=True)
    postgres.execute("INSERT INTO items VALUES (4, 'x', '')", "INSERT INTO others VALUES (3), (4)", database=shop)
    with pytest.raises(PositionLost, match="items"):
        cdc.follow(url, str(tmp_path), tables=["items"], until_now=True)
    for name in ("first", "second"):  # with names of their own they may come in turns
        cdc.follow(url, str(tmp_path), tables=["items"], until_now=True, name="of-items", on_position_lost="resnapshot")
        cdc.follow(url, str(tmp_path), tables=["others"], until_now=True, name="of-others")
        postgres.execute(f"INSERT INTO others SELECT max(id) + 1, '{name}' FROM others", database=shop)
    assert (ids_of(tmp_path, "others"), ids_of(tmp_path, "items")) == ([1, 2, 3, 4, 5], [1, 2, 3, 4])


def test_a_second_follower_of_other_tables_starts_beside_the_first(postgres, shop, tmp_path):
    make_items(postgres, shop)
    make_others(postgres, shop)
    for lake, name in (("first", "items"), ("second", "others")):
        cdc.follow(url_of(postgres, shop), str(tmp_path / lake), tables=[name], until_now=True)
    assert (ids_of(tmp_path / "first", "items"), ids_of(tmp_path / "second", "others")) == ([1, 2, 3], [1, 2])


def test_two_databases_of_one_server_go_into_one_folder(postgres, shop, tmp_path):
    make_items(postgres, shop)
    other = postgres.database()
    try:
        make_others(postgres, other)
        for database in (shop, other, shop, other):
            cdc.follow(url_of(postgres, database), str(tmp_path), until_now=True)
        assert (ids_of(tmp_path, "items"), ids_of(tmp_path, "others")) == ([1, 2, 3], [1, 2])
    finally:
        postgres.drop(other)


def test_a_table_that_left_the_publication_for_a_while_loses_nothing_without_a_word(postgres, shop):
    make_items(postgres, shop)
    make_others(postgres, shop)
    postgres.execute("CREATE PUBLICATION mine FOR TABLE items, others", database=shop)
    applied = Applied()
    follow(postgres, shop, applied, publication="mine")
    postgres.execute(
        "ALTER PUBLICATION mine DROP TABLE others",
        "INSERT INTO others VALUES (3)",
        "ALTER PUBLICATION mine ADD TABLE others",
        database=shop,
    )
    with pytest.raises(PositionLost, match=r"public\.others"):
        follow(postgres, shop, applied, publication="mine")


def test_settings_of_tables_are_found_under_the_name_that_patterns_have(postgres, shop, tmp_path):
    make_items(postgres, shop)
    told = {"items": {"path": str(tmp_path / "elsewhere"), "rename": {"v": "text"}}}
    cdc.follow(url_of(postgres, shop), str(tmp_path), tables=told, until_now=True)
    assert lakefmt.open_table(tmp_path / "elsewhere").read().column_names == ["id", "text", "big"]
    assert not (tmp_path / "public").exists()


def test_a_slot_stays_the_followers_when_tables_and_settings_are_added(postgres, shop, tmp_path):
    make_items(postgres, shop)
    make_others(postgres, shop)
    told = {"public.items": {"path": str(tmp_path / "items")}}
    cdc.follow(url_of(postgres, shop), tables=told, until_now=True)
    postgres.execute("INSERT INTO items VALUES (4, 'x', '')", database=shop)
    told = {
        "public.items": {"path": f"{tmp_path}/items/", "rename": {"v": "text"}},
        "public.others": str(tmp_path / "others"),
    }
    cdc.follow(url_of(postgres, shop), tables=told, until_now=True)
    assert len(postgres.rows("SELECT 1 FROM pg_replication_slots", shop)) == 1
    assert sorted(lakefmt.open_table(tmp_path / "items").read().column("id").to_pylist()) == [1, 2, 3, 4]
