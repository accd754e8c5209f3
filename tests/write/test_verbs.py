"""What verbs promise beyond their rows: plans, options of Hudi's names, callbacks, partial rows, moves, spilling."""

from __future__ import annotations

import http.server
import itertools
import json
import threading
from collections.abc import Iterator
from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.sorting import sort_stream
from lakefmt.errors import (
    CommitConflict,
    InvalidInputError,
    InvalidKey,
    SchemaMismatch,
    UnknownSetting,
    UnsupportedFeature,
)
from lakefmt.testing.invariants import check_invariants
from tests.kit import content
from tests.metadata.test_metadata_table import make as make_indexed
from tests.metadata.test_metadata_table import rows as numbered

NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])


def rows(*values: tuple[str, str, int, int | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in values], schema=SCHEMA)


def make(**arguments: object) -> lakefmt.Table:
    given: dict[str, object] = {"schema": SCHEMA, "record_key": "id", "partition_by": "city", "ordering": "ts"}
    return lakefmt.create_table(f"memory://verbs-{next(NUMBERS)}", **{**given, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "verb",
    [
        lambda t, **k: t.upsert(rows(("a", "sf", 2, 2), ("z", "sf", 1, 1)), **k),
        lambda t, **k: t.insert(rows(("z", "sf", 1, 1)), **k),
        lambda t, **k: t.bulk_insert(rows(("z", "rio", 1, 1)), **k),
        lambda t, **k: t.delete(["a"], **k),
        lambda t, **k: t.update("v = 1", {"v": 5}, **k),
        lambda t, **k: t.insert_overwrite(rows(("z", "sf", 1, 1)), **k),
        lambda t, **k: t.insert_overwrite_table(rows(("z", "sf", 1, 1)), **k),
        lambda t, **k: t.delete_partitions(["city=sf"], **k),
    ],
    ids=["upsert", "insert", "bulk_insert", "delete", "update", "overwrite", "overwrite_table", "delete_partitions"],
)
def test_a_dry_run_shows_the_plan_and_touches_nothing(verb) -> None:  # type: ignore[no-untyped-def]
    table = make()
    table.upsert(rows(("a", "sf", 1, 1), ("b", "oslo", 1, 1)))
    before = sorted((o.name, o.modified) for o in table.client.store.list())
    plan = verb(table, dry_run=True)
    assert plan.instant is None
    assert plan.assignments or plan.replaced
    assert sorted((o.name, o.modified) for o in table.client.store.list()) == before
    done = verb(table)
    assert done.instant is not None
    assert len(done.files) == len(plan.assignments)
    assert str(plan).startswith(plan.operation.value.lower())


def test_drop_duplicates_by_argument_and_by_hudis_option() -> None:
    for call in ({"drop_duplicates": True}, {"options": {"hoodie.datasource.write.insert.drop.duplicates": "true"}}):
        for verb in ("insert", "bulk_insert"):
            table = make()
            table.insert(rows(("a", "sf", 1, 1)))
            result = getattr(table, verb)(rows(("a", "sf", 9, 9), ("b", "sf", 1, 1), ("b", "sf", 2, 2)), **call)
            assert result.num_inserts == 1
            assert content(table) == [("a", "sf", 1, 1), ("b", "sf", 2, 2)]


def test_combine_before_insert() -> None:
    table = make()
    table.insert(rows(("a", "sf", 2, 2), ("a", "sf", 1, 1)), options={"hoodie.combine.before.insert": "true"})
    assert content(table) == [("a", "sf", 2, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("index", ["simple", "global_simple"])
@pytest.mark.parametrize("sort", ["none", "partition", "global", "linear:ts"])
def test_combine_before_a_bulk_insert(index: str, sort: str) -> None:
    """Batches of one row: rows of a key come together from all of the stream, as Hudi's bulk insert combines them."""
    table = make()
    given = [rows((f"k{n % 40}", "sf" if n % 3 else "oslo", n, n)) for n in range(120)]
    options = {"hoodie.combine.before.insert": "true", "hoodie.index.type": index, "lakefmt.write.window.bytes": 2_000}
    result = table.bulk_insert(iter(given), sort=sort, options=options)
    newest = {
        key: row
        for row in range(120)
        for key in [(f"k{row % 40}", "sf" if row % 3 else "oslo")[: 2 - (index != "simple")]]
    }
    expected = sorted((f"k{n % 40}", "sf" if n % 3 else "oslo", n, n) for n in newest.values())
    assert content(table) == expected
    assert result.num_inserts == len(expected)


@pytest.mark.parametrize("small", [0, 100 << 20])
@pytest.mark.parametrize("ordering", ["ts", None])
@pytest.mark.parametrize("window", [None, 1_024])
def test_an_upsert_that_combines_nothing_keeps_stored_keys_unique(
    small: int, ordering: str | None, window: int | None
) -> None:
    """A rewritten file takes one row of a key, by the table's rule; rows of new files stay apart, as Hudi leaves them."""
    table = make(ordering=ordering)
    table.upsert(rows(("s", "sf", 0, 0), ("u", "sf", 0, 0), ("w", "oslo", 0, 0)))
    given = [
        ("s", "sf", 5, 1),
        ("s", "sf", 4, 2),
        ("a", "sf", 3, 3),
        ("a", "sf", 2, 4),
        ("b", "rio", 1, 5),
        ("b", "rio", 1, 6),
    ]
    options: dict[str, object] = {"hoodie.combine.before.upsert": "false", "hoodie.parquet.small.file.limit": small}
    data = rows(*given) if window is None else iter([rows(row) for row in given])
    options |= {} if window is None else {"lakefmt.write.window.bytes": window}
    result = table.upsert(data, options=options)
    of_s, of_a = (given[0], given[2]) if ordering else (given[1], given[3])
    expected = [("u", "sf", 0, 0), ("w", "oslo", 0, 0), of_s, *([of_a] if small else given[2:4]), *given[4:]]
    assert content(table) == sorted(expected)
    assert (result.num_updates, result.num_inserts) == (1, len(expected) - 3)


def test_rows_of_one_key_that_leave_their_partition_are_taken_once() -> None:
    table = make(options={"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": "true"})
    table.upsert(rows(("s", "sf", 0, 0), ("u", "sf", 0, 0), ("w", "oslo", 0, 0)))
    options = {"hoodie.combine.before.upsert": "false"}
    table.upsert(rows(("s", "oslo", 5, 1), ("u", "sf", 2, 2), ("s", "oslo", 4, 2), ("u", "sf", 1, 3)), options=options)
    assert content(table) == [("s", "oslo", 5, 1), ("u", "sf", 2, 2), ("w", "oslo", 0, 0)]
    assert table.check("full").is_clean


def test_the_three_hard_deletes() -> None:
    flagged = pa.schema([*SCHEMA, pa.field("_hoodie_is_deleted", pa.bool_())])
    table = make(schema=flagged)
    base = rows(("a", "sf", 1, 1), ("b", "sf", 1, 1), ("c", "oslo", 1, 1), ("d", "oslo", 1, 1))
    table.upsert(base.append_column("_hoodie_is_deleted", pa.array([False] * 4)))
    assert table.delete(["a"]).num_deletes == 1
    empty = {"hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.EmptyHoodieRecordPayload"}
    assert table.upsert(rows(("b", "sf", 0, 0), ("nowhere", "sf", 0, 0)), options=empty).num_deletes == 1
    marked = rows(("c", "oslo", 2, 2), ("d", "oslo", 0, 0)).append_column("_hoodie_is_deleted", pa.array([True, True]))
    result = table.upsert(marked)
    assert result.num_deletes == 1, "a late delete loses like any late event"
    assert [row[0] for row in content(table)] == ["d"]


def test_partial_rows_keep_what_they_do_not_bring() -> None:
    table = make()
    table.upsert(rows(("a", "sf", 1, 10), ("b", "sf", 1, 20)))
    with pytest.raises(SchemaMismatch, match="partial=True"):
        table.upsert(rows(("a", "sf", 2, 0)).drop_columns(["v"]))
    result = table.upsert(rows(("a", "sf", 2, 0), ("new", "sf", 1, 0)).drop_columns(["v"]), partial=True)
    assert (result.num_updates, result.num_inserts) == (1, 1)
    assert content(table) == [("a", "sf", 2, 10), ("b", "sf", 1, 20), ("new", "sf", 1, None)]
    table.upsert(pa.table({"id": ["a"], "city": ["sf"], "v": [11]}), partial=True)
    assert ("a", "sf", 2, 11) in content(table), "without the ordering column the later write wins"


def test_updates_refuse_keys_and_partitions() -> None:
    table = make()
    table.upsert(rows(("a", "sf", 1, 1)))
    for name in ("id", "city"):
        with pytest.raises(InvalidInputError, match=name):
            table.update("v = 1", {name: "x"})
    with pytest.raises(InvalidInputError, match="nope"):
        table.update("v = 1", {"nope": 1})
    with pytest.raises(SchemaMismatch, match="v"):
        table.update("v = 1", {"v": "text"})
    assert table.update("v = 1", {"v": pa.compute.field("ts") + 41}).num_updates == 1
    assert content(table) == [("a", "sf", 1, 42)]


def test_callbacks_are_told_and_never_undo_a_commit() -> None:
    table, seen = make(), []
    assert table.upsert(rows(("a", "sf", 1, 1)), on_commit=seen.append).warnings == ()
    assert seen[0].num_inserts == 1

    def broken(_: object) -> None:
        raise RuntimeError("observer")

    result = table.upsert(rows(("b", "sf", 1, 1)), on_commit=broken)
    assert result.instant is not None
    assert "observer" in result.warnings[0]
    assert len(content(table)) == 2


@pytest.fixture
def callback_server() -> Iterator[tuple[str, list[tuple[dict[str, object], str | None]]]]:
    seen: list[tuple[dict[str, object], str | None]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((json.loads(body), self.headers.get("HUDI-CALLBACK-KEY")))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    thread.join()
    server.server_close()


def test_hudis_http_callback(callback_server: tuple[str, list[tuple[dict[str, object], str | None]]]) -> None:
    url, seen = callback_server
    options = {
        "hoodie.write.commit.callback.on": "true",
        "hoodie.write.commit.callback.http.url": url,
        "hoodie.write.commit.callback.http.api.key": "top-secret",
    }
    table = make()
    result = table.upsert(rows(("a", "sf", 1, 1)), options=options)
    assert result.warnings == ()
    assert seen[0][0]["commitTime"] == result.instant
    assert seen[0][1] == "top-secret"
    failed = table.upsert(
        rows(("b", "sf", 1, 1)), options={**options, "hoodie.write.commit.callback.http.url": "http://127.0.0.1:1/"}
    )
    assert failed.instant is not None
    assert "callback failed" in failed.warnings[0]
    assert "top-secret" not in repr(failed)


def test_commit_metadata_is_kept_and_an_empty_write_may_carry_it() -> None:
    table = make()
    assert table.upsert(rows()).instant is None
    assert len(table.timeline) == 0
    kept = table.upsert(rows(), commit_metadata={"checkpoint": "7"})
    assert kept.instant is not None
    state = table.client.load()
    commit = table.client.at(state).commit_metadata(state.timeline.commits[-1])
    assert commit.extra_metadata["checkpoint"] == "7"
    with pytest.raises(InvalidInputError, match="schema"):
        table.upsert(rows(("a", "sf", 1, 1)), commit_metadata={"schema": "x"})


@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("kind", ["bloom", "simple"])
def test_a_global_index_keeps_a_key_once_in_the_table(kind: str, moves: bool) -> None:
    table = make(index=f"global_{kind}")
    table.upsert(rows(("a", "sf", 2, 1), ("b", "sf", 2, 1)))
    options = {f"hoodie.{kind}.index.update.partition.path": moves}
    result = table.upsert(rows(("a", "oslo", 3, 9), ("b", "oslo", 1, 9)), options=options)
    assert sorted(table.read(["_hoodie_record_key"]).column(0).to_pylist()) == ["a", "b"]
    paths = dict(zip(*(table.read([n]).column(0).to_pylist() for n in ("id", "_hoodie_partition_path")), strict=True))
    assert paths == {"a": "city=oslo" if moves else "city=sf", "b": "city=sf"}, "a late row moves nothing"
    assert content(table) == [("a", "oslo" if moves else "sf", 3, 9), ("b", "sf", 2, 1)]
    assert (result.num_inserts, result.num_deletes) == ((1, 1) if moves else (0, 0))
    found = [table.read(["id"], f"city = '{city}'").num_rows for city in ("sf", "oslo")]
    assert found == ([1, 1] if moves else [2, 0]), "a filter, which goes by paths, finds every row that a read shows"
    check_invariants(table)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_row_that_stays_where_its_key_is_takes_over_what_the_path_tells(table_type: str) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("day", pa.date32()), ("n", pa.int32()), ("f", pa.float64()), ("v", pa.int64())]
    )
    table = lakefmt.create_table(
        f"memory://stays-{table_type}",
        schema=schema,
        record_key="id",
        partition_by=["day", "n", "f"],
        table_type=table_type,
        index="record",
    )
    old = {"day": date(2026, 1, 2), "n": None, "f": 0.5}
    table.upsert([{"id": 1, **old, "v": 1}, {"id": 2, "day": None, "n": 7, "f": 0.5, "v": 1}])
    table.upsert([{"id": each, "day": date(2026, 1, 3), "n": 8, "f": 1.5, "v": 2} for each in (1, 2, 3)])
    assert sorted(table.read().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, **old, "f": 1.5, "v": 2},  # the path of a floating point number does not tell its value
        {"id": 2, "day": None, "n": 7, "f": 1.5, "v": 2},
        {"id": 3, "day": date(2026, 1, 3), "n": 8, "f": 1.5, "v": 2},
    ]
    assert table.read(["id"], filter="n = 7 and v = 2")["id"].to_pylist() == [2]


def test_generated_keys_take_inserts_only() -> None:
    table = make(record_key=None, ordering=None)
    table.insert(rows(("a", "sf", 1, 1), ("a", "sf", 1, 1)))
    table.bulk_insert(rows(("a", "oslo", 1, 1)))
    table.insert(rows(("b", "sf", 1, 1)))
    keys = table.read(["_hoodie_record_key"]).column(0).to_pylist()
    assert len(set(keys)) == 4
    check_invariants(table)
    with pytest.raises(InvalidKey, match="generated"):
        table.upsert(rows(("a", "sf", 1, 1)))
    assert table.delete(["a"]).instant is None, "no generated key is called that"
    assert table.delete(keys[:1]).num_deletes == 1
    assert table.delete("id = 'b'").num_deletes == 1
    assert len(content(table)) == 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"hoodie.upsert.shufle.parallelism": 2}, UnknownSetting),
        ({"hoodie.datasource.hive_sync.create_managed_table": "true"}, UnsupportedFeature),
        ({"hoodie.datasource.write.recordkey.field": "other"}, UnknownSetting),
        ({"hoodie.datasource.write.operation": "delete"}, UnknownSetting),
        ({"hoodie.parquet.max.file.size": "large"}, UnknownSetting),
        ({"hoodie.index.type": "BTREE"}, UnknownSetting),
    ],
)
def test_wrong_settings_are_refused_and_nothing_happens(options: dict[str, object], error: type[Exception]) -> None:
    table = make()
    with pytest.raises(error):
        table.upsert(rows(("a", "sf", 1, 1)), options=options)
    assert not [e for e in table.timeline if e.state == "completed" and e.action == "commit"]
    table.upsert(rows(("a", "sf", 1, 1)), options={"hoodie.upsert.shuffle.parallelism": 2})


@given(
    st.lists(st.lists(st.text("abcxyzé", max_size=4), max_size=30), max_size=6),
    st.sampled_from([1, 200, 5000, 1 << 20]),
)
def test_a_sort_that_spills_sorts_and_keeps_every_row(windows: list[list[str]], memory: int) -> None:
    numbered = itertools.count()
    tables = [pa.table({"k": pa.array(w, pa.string()), "n": [next(numbered) for _ in w]}) for w in windows]
    pieces = list(sort_stream(tables, lambda t: t.column("k").combine_chunks(), memory))
    found = [row for piece in pieces for row in zip(piece["k"].to_pylist(), piece["n"].to_pylist(), strict=True)]
    assert [k.encode() for k, _ in found] == sorted(k.encode() for w in windows for k in w)
    assert sorted(n for _, n in found) == list(range(sum(map(len, windows))))


def test_a_bulk_insert_sorted_globally_has_files_in_key_order() -> None:
    table = make(partition_by=None)
    names = [f"{(n * 7919) % 5000:05d}" for n in range(5000)]
    data = pa.table({"id": names, "city": ["x"] * 5000, "ts": range(5000), "v": range(5000)})
    options = {
        "lakefmt.write.window.bytes": 160_000,
        "hoodie.copyonwrite.record.size.estimate": 20,
        "hoodie.parquet.max.file.size": 20_000,
    }
    table.bulk_insert(data, sort="global", options=options)
    ranges = sorted(
        (f.min_key, f.max_key) for s in table.file_groups() if s.base for f in [table.client.reader.footer(s.base)]
    )
    assert len(ranges) > 3
    assert all(a[1] < b[0] for a, b in itertools.pairwise(ranges)), "no two files overlap"
    assert table.read().num_rows == 5000


def test_a_filter_deletes_in_the_partitions_of_its_rows_only() -> None:
    table = make()
    table.upsert(rows(("a", "sf", 1, 1), ("a", "oslo", 1, 1), ("b", "sf", 1, 1)))
    assert table.delete("city = 'sf' and id = 'a'").num_deletes == 1
    assert content(table) == [("a", "oslo", 1, 1), ("b", "sf", 1, 1)]
    assert table.delete("v = 1", partitions=["city=oslo"]).num_deletes == 1
    assert content(table) == [("b", "sf", 1, 1)]


@pytest.mark.parametrize("verb", [lambda t: t.update("v = 1", {"v": 2}), lambda t: t.delete("v = 1")])
def test_a_commit_after_the_rows_were_read_is_not_undone(verb, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    table = make(ordering=None)
    table.upsert(rows(("a", "sf", 1, 1)))
    other = lakefmt.open_table(table.client.store.url)
    real = lakefmt.Snapshot._read

    def read_then_lose_the_race(self, *arguments, **named):  # type: ignore[no-untyped-def]
        found = real(self, *arguments, **named)
        monkeypatch.setattr(lakefmt.Snapshot, "_read", real)
        other.upsert(rows(("a", "sf", 1, 50)))
        return found

    monkeypatch.setattr(lakefmt.Snapshot, "_read", read_then_lose_the_race)
    with pytest.raises(CommitConflict, match="again"):
        verb(table)
    assert content(table) == [("a", "sf", 1, 50)]
    assert not table.timeline.timeline.pending


@pytest.mark.parametrize("index", ["global_bloom", "global_simple"])
def test_partial_rows_that_move_take_their_stored_values_along(index: str) -> None:
    schema = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
    table = lakefmt.create_table(
        f"memory://partial-moves-{index}",
        schema=schema,
        record_key="id",
        partition_by="city",
        ordering="ts",
        index=index,
        options={
            "hoodie.simple.index.update.partition.path": "true",
            "hoodie.bloom.index.update.partition.path": "true",
        },
    )
    rows = {"id": ["a", "b", "c"], "city": ["sf", "sf", "rio"], "ts": [1, 5, 1], "v": [10, 20, 30]}
    table.upsert(pa.table(rows, schema=schema))
    some = {"id": ["a", "b", "c", "d"], "city": ["oslo", "oslo", "rio", "rio"], "ts": [2, 2, 2, 2]}
    table.upsert(pa.table(some, schema=schema.remove(3)), partial=True)
    found = sorted(tuple(row.values()) for row in table.read().to_pylist())
    # b comes late and stays where it is; d is new and has no value.
    assert found == [("a", "oslo", 2, 10), ("b", "sf", 5, 20), ("c", "rio", 2, 30), ("d", "rio", 2, None)]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_late_row_whose_key_is_stored_in_two_partitions_changes_nothing_elsewhere(kind: str) -> None:
    """Beside the place in its own partition, where it is compared as ever, the newer row of the other one stays."""
    table = make_indexed(kind, 8, more={"hoodie.index.type": "GLOBAL_BLOOM"})
    table.upsert(numbered(0, 4, 1))
    table.bulk_insert(numbered(0, 2, 3, shift=1))
    table.upsert(numbered(0, 4, 2))
    places = {(each["id"], each["city"], each["ts"]) for each in table.read().to_pylist()}
    assert places == {
        *(("k0", "sf", 2), ("k1", "oslo", 2), ("k2", "sf", 2), ("k3", "oslo", 2)),
        *(("k0", "oslo", 3), ("k1", "sf", 3)),
    }


def test_an_update_takes_sql_expressions_and_keeps_texts_as_they_are() -> None:
    columns = pa.schema([("id", pa.string()), ("v", pa.int32()), ("note", pa.string())])
    table = lakefmt.create_table("memory://update-sql", schema=columns, record_key="id")
    table.upsert(pa.table({"id": ["a", "b"], "v": [1, 2], "note": ["x", None]}, schema=columns))
    table.update("v = 1", {"note": "v * 2"}, expressions={"v": "v * 2 + 1"})
    assert table.read().to_pylist() == [{"id": "a", "v": 3, "note": "v * 2"}, {"id": "b", "v": 2, "note": None}]
    table.update(None, expressions={"note": "upper(coalesce(note, id))"})
    assert table.read()["note"].to_pylist() == ["V * 2", "B"]
    for values, expressions, error in (
        ({"v": 1}, {"v": "2"}, "a value and an expression for 'v'"),
        ({}, {"v": "w + 1"}, "'w'"),
        ({}, {"id": "'z'"}, "makes the row's key"),
        ({}, {"v": 3}, "expressions"),
        ({}, {"v": "2.5"}, "v"),
    ):
        with pytest.raises(lakefmt.errors.InvalidInputError, match=error):
            table.update("v = 2", values, expressions=expressions)  # type: ignore[arg-type]
