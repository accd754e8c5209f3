"""What rows do to a table: operators, partial updates, a merge condition, partitions, tables without keys, streams of rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt._core.loads.bodies import Request
from lakefmt._core.loads.protocol import LoadOptions
from lakefmt.errors import InvalidInputError, UnsupportedFeature
from tests.example_counts import examples
from tests.loads.loads_kit import KEYED, PLAIN, Base, Client, Faults, WallClock
from tests.loads.test_load_laws import commits_together

CSV = {"column_separator": ","}
OPERATED = {"columns": "id,v,n,__op", **CSV}


def options(**more: Any) -> LoadOptions:
    return LoadOptions(durable=False, wait_seconds=0, **more)


@pytest.fixture(params=["cow", "mor"])
def base(request: pytest.FixtureRequest) -> Base:
    return Base(t={"schema": KEYED, "record_key": "id", "table_type": request.param})


def load(base: Base, *bodies: bytes, label: str = "l", **headers: Any) -> dict[str, Any]:
    """Load bodies in one transaction; the reply to its commit, or to the first step that failed."""
    base.clock.pass_seconds(60)
    client = Client(base.service(options()))
    reply = client.transaction("begin", label)
    for body in bodies:
        reply = client.transaction("load", label, body, **headers)
        if reply["Status"] != "OK":
            break
    else:
        reply = client.transaction("commit", label)
    client.service.stop()
    return reply


def test_the_last_row_of_a_key_is_left(base: Base) -> None:
    load(base, b"1,a,1\n2,b,2\n", b"1,c,3\n", **CSV)
    assert base.rows() == [(1, "c", 3.0), (2, "b", 2.0)]
    load(base, b"2,d,4\n", label="m", **CSV)
    assert base.rows() == [(1, "c", 3.0), (2, "d", 4.0)]


def test_operators_in_the_order_in_which_they_come(base: Base) -> None:
    load(base, b"1,a,1\n2,b,2\n3,c,3\n", **CSV)
    load(base, b"1,x,0,1\n2,y,5,0\n4,d,4,UPSERT\n", b"4,,0,delete\n1,z,9,0\n3,\\N,\\N,1\n", label="m", **OPERATED)
    assert base.rows() == [(1, "z", 9.0), (2, "y", 5.0)]


def test_a_delete_of_what_is_not_there_is_a_commit(base: Base) -> None:
    assert load(base, b"7,\\N,\\N,1\n", **OPERATED)["Status"] == "OK"
    assert base.rows() == []
    base.clock.pass_seconds(60)
    assert Client(base.service(options())).transaction("begin", "l")["ExistingJobStatus"] == "FINISHED"


def test_an_operator_that_is_none_ends_its_row(base: Base) -> None:
    assert load(base, b"1,a,1,7\n", **OPERATED)["Message"] == "too many filtered rows"


def test_only_deletes_have_operators() -> None:
    """Operators of upserts cost nothing; bodies with and without deletes go together."""
    base = Base()
    client = Client(base.service(options()))
    client.whole("l", b'{"id":1,"v":"a"}{"id":2,"v":"b","__op":0}', format="json")
    assert client.service.transactions.live["db", "l"].record.tables["t"].marked is False
    client.service.stop()
    client = Client(base.service(options()))
    client.transaction("begin", "m")
    for body in (b'{"id":3,"v":"c"}', b'{"id":1,"__op":1}', b'{"id":4,"v":"d"}'):
        client.transaction("load", "m", body, format="json")
    client.transaction("commit", "m")
    assert base.rows() == [(2, "b", None), (3, "c", None), (4, "d", None)]


def test_a_partial_update_names_its_columns() -> None:
    base = Base()
    reply = load(base, b'{"id":1,"v":"x"}', format="json", partial_update="true")
    assert "needs columns" in reply["Message"]


def test_a_partial_update_keeps_other_columns(base: Base) -> None:
    load(base, b"1,a,1\n2,b,2\n", **CSV)
    load(base, b"1,x\n3,z\n", label="m", columns="id,v", partial_update="true", **CSV)
    assert base.rows() == [(1, "x", 1.0), (2, "b", 2.0), (3, "z", None)]


def test_a_merge_condition_keeps_rows_that_are_newer(base: Base) -> None:
    load(base, b"1,a,5\n2,b,5\n", **CSV)
    load(base, b"1,old,4\n2,new,6\n2,newer,7\n2,older,6\n3,c,1\n", label="m", merge_condition="n", **CSV)
    assert base.rows() == [(1, "a", 5.0), (2, "newer", 7.0), (3, "c", 1.0)]


PLACED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("city", pa.string()), ("n", pa.float64())])
OF_A_PLACE = st.tuples(st.integers(1, 3), st.sampled_from(["sf", "oslo", None]), st.sampled_from([None, 1.0, 2.0, 3.0]))


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.lists(OF_A_PLACE, min_size=1, max_size=4), min_size=2, max_size=3),
    st.sampled_from(["cow", "mor"]),
    st.sampled_from(["bloom", "simple", "bucket", "global_simple"]),
)
def test_a_merge_condition_asks_the_row_that_an_upsert_would_replace(
    loads: list[list[tuple[int, str | None, float | None]]], table_type: str, index: str
) -> None:
    """That is the row of the key in the same partition; with a global index, wherever it is."""
    moves = {"hoodie.simple.index.update.partition.path": "true"} if index == "global_simple" else {}
    how = {"schema": PLACED, "record_key": "id", "partition_by": "city", "table_type": table_type, "index": index}
    base = Base(t={**how, "properties": moves})
    model: dict[object, tuple[int, str | None, float | None]] = {}
    for number, rows in enumerate(loads):
        asked = {"merge_condition": "n"} if number else {}
        if index == "global_simple":
            rows = list({row[0]: row for row in rows}.values())
        body = "".join(",".join("\\N" if each is None else str(each) for each in row) + "\n" for row in rows)
        reply = load(base, body.encode(), label=f"l{number}", **asked, **CSV)
        assert reply["Status"] == "OK", reply
        newest: dict[object, tuple[int, str | None, float | None]] = {}
        for row in rows:
            identity = row[0] if index == "global_simple" else row[:2]
            is_newer = identity not in newest or not number or (row[2] or 0) >= (newest[identity][2] or 0)
            newest[identity] = row if is_newer else newest[identity]
        for identity, row in newest.items():
            old = None if identity not in model else model[identity][2]
            if not number or old is None or (row[2] or 0) >= old:
                model[identity] = row
    assert base.rows() == sorted(model.values(), key=repr)


def test_a_table_with_an_event_time() -> None:
    base = Base(t={"schema": KEYED, "record_key": "id", "ordering": "n"})
    load(base, b"1,new,5\n1,old,4\n", **CSV)
    load(base, b"1,older,3,0\n2,b,1,0\n", label="m", **OPERATED)
    assert base.rows() == [(1, "new", 5.0), (2, "b", 1.0)]


def test_partitions_select_rows() -> None:
    base = Base(t={"schema": KEYED, "record_key": "id", "partition_by": "v"})
    reply = load(base, b"1,a,1\n2,b,2\n3,c,3\n", partitions="a, c", **CSV)
    assert (reply["NumberLoadedRows"], reply["NumberUnselectedRows"]) == (2, 1)
    assert sorted(row[0] for row in base.rows()) == [1, 3]


def test_a_table_without_keys() -> None:
    base = Base(t={"schema": PLAIN, "kind": "append"})
    load(base, b"1\n1\n2\n", **CSV)
    assert base.rows() == [(1,), (1,), (2,)]
    for headers, message in (
        ({"columns": "n,__op"}, "for tables with record keys"),
        ({"partial_update": "true", "columns": "n"}, "Only primary key table"),
        ({"lakefmt_operation": "upsert"}, ""),
    ):
        reply = load(base, b"3,0\n", label="m", **headers, **CSV)
        assert reply["Status"] == "FAILED"
        assert message in reply["Message"]


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_inserts_into_a_table_with_keys(operation: str) -> None:
    base = Base()
    load(base, b"1,a,1\n", **CSV)
    load(base, b"2,b,2\n", label="m", lakefmt_operation=operation, **CSV)
    assert len(base.rows()) == 2
    reply = load(base, b"2,b,2,1\n", label="n", lakefmt_operation=operation, **OPERATED)
    assert "are upserts" in reply["Message"], reply


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
def test_rows_that_are_more_than_a_window(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefmt._core.loads.journal.PART_BYTES", 1_000)
    monkeypatch.setattr("lakefmt._core.loads.commit.LoadTable.window_bytes", 2_000)
    base = Base()
    bodies = [b"".join(b"%d,v%d,1\n" % (n, n) for n in range(begin, begin + 50)) for begin in range(0, 300, 50)]
    assert load(base, *bodies, lakefmt_operation=operation, **CSV)["NumberLoadedRows"] == 300
    assert [row[0] for row in base.rows()] == sorted(range(300), key=repr) or len(base.rows()) == 300
    assert sorted(row[0] for row in base.rows()) == list(range(300))


def test_a_load_that_fails_leaves_no_part_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a load that are stored already, beside rows of the loads before, go when its end is bad."""
    monkeypatch.setattr("lakefmt._core.loads.journal.PART_BYTES", 300)
    base = Base()
    client = Client(base.service(options(rollback_on_internal_error=False)))
    client.transaction("begin", "l")
    client.transaction("load", "l", b"1,a,1\n", **CSV)

    class Broken:
        def __init__(self) -> None:
            self.left = 3

        def read(self, size: int, /) -> bytes:
            self.left -= 1
            if not self.left:
                raise MemoryError
            return b"".join(b"%d,x,1\n" % n for n in range(100, 200)) + b" " * (9 << 20) + b",x,1\n"

    headers = {"db": "db", "table": "t", "label": "l", **CSV}
    reply = client.service.handle(Request("PUT", "/api/transaction/load", {}, headers, Broken(), client.user))
    assert isinstance(reply.body, dict)
    assert reply.body["Status"] == "INTERNAL_ERROR"
    client.transaction("load", "l", b"2,b,2\n", **CSV)
    assert client.transaction("commit", "l")["NumberTotalRows"] == 2
    assert base.rows() == [(1, "a", 1.0), (2, "b", 2.0)]


def test_rows_of_a_load_that_fails_go_also_when_the_store_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the load before lie in one object with some of the load that fails, and nothing can be read."""
    monkeypatch.setattr("lakefmt._core.loads.journal.PART_BYTES", 300)
    monkeypatch.setattr("lakefmt._core.loads.csv_rows._BLOCK_BYTES", 10)
    base, faults = Base(), Faults()
    client = Client(base.service(options(), faults))
    client.transaction("begin", "l")
    client.transaction("load", "l", b"1,a,1\n", **CSV)

    blocks = [b"".join(b"%d,x,1\n" % n for n in range(100, 200)), b"2,y,1\n"]

    class Body:
        def read(self, size: int, /) -> bytes:
            if blocks:
                return blocks.pop(0)
            faults.quiet, faults.failing = 0, 1_000
            raise MemoryError

    headers = {"db": "db", "table": "t", "label": "l", **CSV}
    reply = client.service.handle(Request("PUT", "/api/transaction/load", {}, headers, Body(), client.user))
    assert isinstance(reply.body, dict)
    assert reply.body["Status"] == "INTERNAL_ERROR"
    faults.heal()
    assert client.transaction("commit", "l")["Status"] == "OK"
    assert base.rows() == [(1, "a", 1.0)]


ROW = st.tuples(
    st.integers(1, 3), st.sampled_from(["a", "b", "\\N"]), st.sampled_from(["1", "2", "\\N"]), st.integers(0, 3)
)


@pytest.mark.slow
@settings(max_examples=examples(60), derandomize=True, deadline=None)
@given(
    st.lists(st.lists(ROW, min_size=1, max_size=3), min_size=2, max_size=4),
    st.sampled_from(["cow", "mor"]),
    st.sampled_from([None, "n"]),
    st.booleans(),
)
def test_commits_in_one_instant_come_to_the_same_as_one_after_the_other(
    bodies: list[list[tuple[Any, ...]]], table_type: str, ordering: str | None, operated: bool
) -> None:
    found = []
    for joined in (False, True):
        how = {} if ordering is None else {"ordering": ordering}
        base = Base(t={"schema": KEYED, "record_key": "id", "table_type": table_type, **how})
        load(base, b"1,s,1\n2,s,2\n", label="first", **CSV)
        base.clock.pass_seconds(60)
        client = Client(base.service(options()))
        labels = [f"l{number}" for number in range(len(bodies))]
        for label, rows in zip(labels, bodies, strict=True):
            lines = [f"{key},{v},{n}" + (f",{int(op == 3)}" if operated else "") for key, v, n, op in rows]
            client.transaction("begin", label)
            told = OPERATED if operated else CSV
            assert client.transaction("load", label, "\n".join(lines).encode(), **told)["Status"] == "OK"
            assert client.transaction("prepare", label)["Status"] == "OK"
        before = len(base.table().timeline)
        if joined:
            replies = commits_together(client, "t", labels)
            assert all(isinstance(each, dict) and each["Status"] == "OK" for each in replies.values()), replies
            assert len(base.table().timeline) - before <= 2
        else:
            assert all(client.transaction("commit", label)["Status"] == "OK" for label in labels)
        found.append(base.rows())
    assert found[0] == found[1]


def test_one_that_cannot_be_committed_takes_no_other_along() -> None:
    base = Base(t={"schema": PLAIN, "kind": "append"})
    client = Client(base.service(options()))
    for label in ("a", "b", "c"):
        client.transaction("begin", label)
        client.transaction("load", label, f"{ord(label)}\n".encode())
        client.transaction("prepare", label)
    (part,) = client.service.transactions.live["db", "b"].record.tables["t"].parts
    client.service.transactions.journal.store.delete([part.name])
    replies = commits_together(client, "t", ["a", "b", "c"])
    assert {label: reply["Status"] for label, reply in replies.items() if isinstance(reply, dict)} == {
        "a": "OK",
        "b": "INTERNAL_ERROR",
        "c": "OK",
    }
    assert base.rows() == [(97,), (99,)]
    assert client.state("b") == "PREPARED"


def test_a_group_of_small_loads_whose_time_is_over_is_not_said_to_be_committed() -> None:
    base = Base()

    class Late(WallClock):
        """Each look is a second later."""

        def now(self) -> datetime:
            self.pass_seconds(1)
            return super().now()

    base.clock = Late()
    client = Client(base.service(options()))
    told: dict[str, Any] = {"enable_merge_commit": "true", "timeout": "3", "merge_commit_interval_ms": "5000", **CSV}
    reply = client.ask("PUT", "/api/db/t/_stream_load", b"1,a,1\n", **told)
    assert (reply["Status"], base.rows()) in (("Fail", []), ("Success", [(1, "a", 1.0)]))
    assert "timeout" in reply["Message"]


NAMED = st.tuples(st.integers(1, 4), st.sampled_from(["a", "b", None]), st.booleans())


@pytest.mark.slow
@settings(max_examples=examples(60), derandomize=True, deadline=None)
@given(st.lists(NAMED, min_size=1, max_size=6), st.sampled_from(["cow", "mor"]), st.integers(0, 3))
def test_a_partial_update_with_operators_acts_in_its_order(
    rows: list[tuple[int, str | None, bool]], table_type: str, cut: int
) -> None:
    """A model: a delete takes the row, an upsert sets its columns, and a row of a new key has no others."""
    base = Base(t={"schema": KEYED, "record_key": "id", "table_type": table_type})
    load(base, b"1,s,1\n2,s,2\n", label="first", **CSV)
    model: dict[int, tuple[str | None, float | None]] = {1: ("s", 1.0), 2: ("s", 2.0)}
    for key, value, deletes in rows:
        if deletes:
            model.pop(key, None)
        else:
            model[key] = (value, model.get(key, (None, None))[1])
    lines = [f"{key},{value or chr(92) + 'N'},{int(deletes)}\n".encode() for key, value, deletes in rows]
    bodies = [body for body in (b"".join(lines[:cut]), b"".join(lines[cut:])) if body]
    reply = load(base, *bodies, label="l", columns="id,v,__op", partial_update="true", **CSV)
    assert reply["Status"] == "OK", reply
    assert base.rows() == sorted(((key, *values) for key, values in model.items()), key=repr)


NEEDED = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string(), nullable=False), ("n", pa.float64())]
)


def test_a_partial_update_sets_no_null_where_a_value_must_be() -> None:
    base = Base(t={"schema": NEEDED, "record_key": "id"})
    load(base, b"1,a,1\n", **CSV)
    reply = load(base, b"1,\\N\n", label="m", columns="id,v", partial_update="true", **CSV)
    assert reply["Message"] == "too many filtered rows"
    assert base.rows() == [(1, "a", 1.0)]
    reply = load(base, b"1,3,0\n", label="n", columns="id,n,__op", partial_update="true", **CSV)
    assert "'v' gets no value" in reply["Message"]


UPDATED = st.tuples(st.integers(1, 6), st.sampled_from([None, 1.0, 2.0, 3.0]))


@pytest.mark.slow
@settings(max_examples=examples(40), derandomize=True, deadline=None)
@given(
    st.sets(st.integers(1, 6), min_size=1),
    st.lists(st.lists(UPDATED, min_size=1, max_size=4), min_size=1, max_size=3),
    st.sets(st.integers(1, 6)),
    st.sets(st.integers(1, 6), max_size=2),
    st.sampled_from(["cow", "mor"]),
    st.booleans(),
    st.booleans(),
)
def test_a_partial_update_without_a_value_that_must_be_changes_stored_rows_only(
    stored: set[int],
    loads: list[list[tuple[int, float | None]]],
    deleted: set[int],
    inserted: set[int],
    table_type: str,
    conditional: bool,
    with_ratio: bool,
) -> None:
    """A row whose key is new at the prepare is bad; what others do before the commit makes it fail never."""
    base = Base(t={"schema": NEEDED, "record_key": "id", "table_type": table_type})
    load(base, "".join(f"{key},a,1\n" for key in stored).encode(), label="first", **CSV)
    base.clock.pass_seconds(60)
    client = Client(base.service(options()))
    client.transaction("begin", "l")
    told = {"columns": "id,n", "partial_update": "true", "max_filter_ratio": "1" if with_ratio else "0", **CSV}
    told |= {"merge_condition": "n"} if conditional else {}
    for rows in loads:
        body = "".join(f"{key},{chr(92) + 'N' if n is None else n}\n" for key, n in rows).encode()
        assert client.transaction("load", "l", body, **told)["Status"] == "OK"
    rows = [row for some in loads for row in some]
    new = [row for row in rows if row[0] not in stored]
    reply = client.transaction("prepare", "l")
    if new and not with_ratio:
        assert (reply["Message"], client.state("l")) == ("too many filtered rows", "ABORTED")
        return
    assert (reply["Status"], reply["NumberFilteredRows"], reply["NumberLoadedRows"]) == (
        "OK",
        len(new),
        len(rows) - len(new),
    )
    model: dict[int, tuple[str, float | None]] = dict.fromkeys(stored, ("a", 1.0))
    if deleted:
        base.table().delete(sorted(deleted))
    for key in inserted - stored:
        base.table().upsert(pa.table({"id": [key], "v": ["z"], "n": [9.0]}, schema=NEEDED))
        model[key] = ("z", 9.0)
    for key in deleted - (inserted - stored):
        model.pop(key, None)
    base.clock.pass_seconds(60)
    assert client.transaction("commit", "l")["Status"] == "OK"
    newest: dict[int, float | None] = {}
    for key, n in rows:
        if key in stored and (not conditional or key not in newest or (n or 0) >= (newest[key] or 0)):
            newest[key] = n
    for key, n in newest.items():
        if key in model and (not conditional or model[key][1] is None or (n or 0) >= (model[key][1] or 0)):
            model[key] = (model[key][0], n)
    assert base.rows() == sorted(((key, *values) for key, values in model.items()), key=repr)


def test_of_small_loads_one_with_a_new_key_that_lacks_a_value_fails_alone() -> None:
    base = Base(t={"schema": NEEDED, "record_key": "id"})
    load(base, b"1,a,1\n", label="first", **CSV)
    client = Client(base.service(options()))
    told = {"enable_merge_commit": "true", "merge_commit_interval_ms": "0", "columns": "id,n", "partial_update": "true"}
    assert client.ask("PUT", "/api/db/t/_stream_load", b"2,5\n", **told, **CSV)["Message"] == "too many filtered rows"
    assert client.ask("PUT", "/api/db/t/_stream_load", b"1,5\n", **told, **CSV)["Status"] == "Success"
    assert base.rows() == [(1, "a", 5.0)]
    reply = client.ask("PUT", "/api/db/t/_stream_load", b"3,5\n", columns="id,n", partial_update="true", **CSV)
    assert (reply["Message"], reply["NumberFilteredRows"]) == ("too many filtered rows", 1)
    text = client.ask("GET", "/api/_load_error_log", query={"file": reply["ErrorURL"].rpartition("=")[2]})["text"]
    assert "column v must have a value, and the key is new" in text


@pytest.mark.parametrize(
    ("body", "headers", "message"),
    [
        (b"1,x\n", {"columns": "id,v", "partial_update": "true"}, "no column 'n'"),
        (b"1,x,1,1\n", OPERATED, "do not go together"),
    ],
)
def test_a_merge_condition_that_cannot_be_asked_is_refused_at_the_load(
    body: bytes, headers: dict[str, Any], message: str
) -> None:
    reply = load(Base(), body, merge_condition="n", **{**CSV, **headers})
    assert reply["Status"] == "FAILED"
    assert message in reply["Message"]


@pytest.mark.parametrize("change", ["rename", "drop"])
def test_a_merge_condition_whose_column_is_altered_before_the_commit(change: str) -> None:
    base = Base()
    load(base, b"1,old,5\n2,old,5\n", **CSV)
    client = Client(base.service(options()))
    client.transaction("begin", "m")
    client.transaction("load", "m", b"1,new,4\n2,new,6\n", merge_condition="n", **CSV)
    client.transaction("prepare", "m")
    table = base.table()
    if change == "rename":
        table.alter.rename_column("n", "m")
    else:
        table.alter.drop_column("n")
    reply = client.transaction("commit", "m")
    if change == "rename":
        assert (reply["Status"], base.rows()) == ("OK", [(1, "old", 5.0), (2, "new", 6.0)])
    else:  # nothing can be asked any more
        assert (reply["Status"], client.state("m")) == ("FAILED", "PREPARED")
        assert base.rows() == [(1, "old"), (2, "old")]


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_text_that_is_longer_than_its_column_ends_its_row(strict: str) -> None:
    base = Base()
    client = Client(base.service(options(lengths={"db.t.v": 3})))
    client.transaction("begin", "l")
    told = {"strict_mode": strict, "max_filter_ratio": "0.5", **CSV}
    reply = client.transaction("load", "l", "1,abc,1\n2,abcd,2\n3,éé,3\n4,,4\n5,\\N,5\n".encode(), **told)
    assert (reply["NumberLoadedRows"], reply["NumberFilteredRows"]) == (3, 2), reply
    assert client.transaction("commit", "l")["Status"] == "OK"
    assert [row[0] for row in base.rows()] == [1, 4, 5]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"1,z,9\n3,c,1\n", {}),
        (b"1,z,9,1\n3,c,1,0\n", OPERATED),
        (b"1,z\n", {"columns": "id,v", "partial_update": "true"}),
        (b"1,z,1\n3,c,0\n", {"columns": "id,v,__op", "partial_update": "true"}),
        (b"1,z,9\n3,c,1\n", {"merge_condition": "n"}),
        (b"7,z,9\n", {"lakefmt_operation": "insert"}),
    ],
)
def test_tx13_every_way_to_commit_says_its_label_which_outlives_the_record(
    base: Base, body: bytes, headers: dict[str, Any]
) -> None:
    load(base, b"1,a,1\n2,b,2\n", label="first", **CSV)
    assert load(base, body, label="l", **{**CSV, **headers})["Status"] == "OK"
    rows = base.rows()
    client = Client(base.service(options()))
    client.service.transactions.journal.forget(client.service.transactions.live["db", "l"].record)
    client.service.stop()
    client = Client(base.service(options()))
    # A server that has opened no table yet asks the one that the client names, as StarRocks' client does.
    assert "has already committed" in client.transaction("commit", "l", table="t")["Message"]
    assert client.transaction("begin", "l")["ExistingJobStatus"] == "FINISHED"
    assert client.state("l") == "VISIBLE"
    assert base.rows() == rows


@pytest.mark.parametrize("operation", ["upsert", "insert"])
def test_keys_that_come_again_in_a_later_window(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefmt._core.loads.journal.PART_BYTES", 1_000)
    monkeypatch.setattr("lakefmt._core.loads.commit.LoadTable.window_bytes", 2_000)
    base = Base()
    bodies = [b"".join(b"%d,v%d,1\n" % (n, part) for n in range(50)) for part in range(6)]
    load(base, *(bodies if operation == "upsert" else bodies[:1]), lakefmt_operation=operation, **CSV)
    assert [row[0] for row in base.rows()] == sorted(range(50), key=repr) or len(base.rows()) == 50
    assert {row[1] for row in base.rows()} == {"v5" if operation == "upsert" else "v0"}


ANY_TYPE = [pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary(), pa.date32()]
ANY_TYPE += [pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.time64("us"), pa.decimal128(10, 2)]
ANY_TYPE += [pa.list_(pa.int64()), pa.struct([("x", pa.int64())]), pa.map_(pa.string(), pa.int64())]
KEY_TYPE = [pa.int64(), pa.string(), pa.date32(), pa.timestamp("us"), pa.decimal128(10, 2), pa.bool_()]
ANY_TEXT = [
    "",
    "0",
    "1",
    "-1",
    "\\N",
    "x",
    "1e300",
    "9223372036854775807",
    "2026-01-01",
    "0001-01-01",
    "9999-12-31 23:59:59.999999",
]
ANY_TEXT += [
    "true",
    "-0.0",
    "é",
    "a/b",
    "a=b",
    "..",
    "%20",
    " ",
    "__HIVE_DEFAULT_PARTITION__",
    "null",
    "[1]",
    "{}",
    "12:00:00",
]


TABLE_TYPES = st.sampled_from(["cow", "mor"])


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_what_is_prepared_is_committed(data: st.DataObject) -> None:
    """Whatever the rows and the table are: what no commit could store is refused before."""
    types = data.draw(st.lists(st.sampled_from(ANY_TYPE), min_size=1, max_size=3))
    names = [f"c{number}" for number in range(len(types))]
    fields = [
        pa.field(name, type_, nullable=data.draw(st.booleans())) for name, type_ in zip(names, types, strict=True)
    ]
    schema = pa.schema([pa.field("id", data.draw(st.sampled_from(KEY_TYPE)), nullable=False), *fields])
    column = st.sampled_from([None, *names])
    chosen = {"ordering": data.draw(column), "partition_by": data.draw(column), "table_type": data.draw(TABLE_TYPES)}
    try:
        base = Base(t={"schema": schema, "record_key": "id", **{key: name for key, name in chosen.items() if name}})
    except (InvalidInputError, UnsupportedFeature):
        return  # a column of that type is no such column
    client = Client(base.service(options()))
    way = data.draw(st.sampled_from(["rows", "operators", "condition"]))
    read = [*schema.names, *(["__op"] if way == "operators" else [])]
    told = {"column_separator": ";", "max_filter_ratio": "1", "columns": ",".join(read)}
    told |= {"merge_condition": data.draw(st.sampled_from(names))} if way == "condition" else {}
    for label in ("one", "two"):
        texts = st.tuples(*(st.sampled_from(["0", "1"] if name == "__op" else ANY_TEXT) for name in read))
        body = "".join(";".join(row) + "\n" for row in data.draw(st.lists(texts, min_size=1, max_size=4)))
        client.transaction("begin", label)
        assert "internal" not in client.transaction("load", label, body.encode(), **told)["Message"]
        if client.transaction("prepare", label)["Status"] == "OK":
            base.clock.pass_seconds(1)
            assert client.transaction("commit", label)["Status"] == "OK"
            base.table().read()


def test_deletes_that_are_bad_rows_are_none() -> None:
    base = Base()
    reply = load(base, b"\\N,a,1,1\n", columns="id,v,n,__op", max_filter_ratio="1", **CSV)
    assert (reply["Status"], reply["NumberFilteredRows"], base.rows()) == ("OK", 1, [])


def test_a_merge_condition_over_values_that_are_not_compared_is_refused_at_the_load() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.list_(pa.int64()))])
    reply = load(Base(t={"schema": schema, "record_key": "id"}), b"1,[1]\n", merge_condition="v", **CSV)
    assert "are not compared" in reply["Message"]
