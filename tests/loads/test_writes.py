"""What rows do to a table: operators, partial updates, a merge condition, partitions, tables without keys, streams of rows."""

from __future__ import annotations

from typing import Any

import pytest

from lakefmt._core.loads.options import LoadOptions
from tests.loads.loads_kit import KEYED, PLAIN, Base, Client

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


def test_a_partial_update_keeps_other_columns(base: Base) -> None:
    load(base, b"1,a,1\n2,b,2\n", **CSV)
    load(base, b"1,x\n3,z\n", label="m", columns="id,v", partial_update="true", **CSV)
    assert base.rows() == [(1, "x", 1.0), (2, "b", 2.0), (3, "z", None)]


def test_a_merge_condition_keeps_rows_that_are_newer(base: Base) -> None:
    load(base, b"1,a,5\n2,b,5\n", **CSV)
    load(base, b"1,old,4\n2,new,6\n2,newer,7\n2,older,6\n3,c,1\n", label="m", merge_condition="n", **CSV)
    assert base.rows() == [(1, "a", 5.0), (2, "newer", 7.0), (3, "c", 1.0)]


def test_rows_with_operators_have_a_limit() -> None:
    base = Base()
    client = Client(base.service(options(max_row_bytes_in_memory=10)))
    client.transaction("begin", "l")
    client.transaction("load", "l", b"1,a,1,0\n", **OPERATED)
    assert "too many for one transaction" in client.transaction("prepare", "l")["Message"]


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
        ({"partial_update": "true"}, "Only primary key table"),
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
    assert "are upserts" in reply["Message"]


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
def test_rows_that_are_more_than_a_window(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefmt._core.loads.staging.PART_BYTES", 1_000)
    monkeypatch.setattr("lakefmt._core.loads.commit.LoadTable.window_bytes", 2_000)
    base = Base()
    bodies = [b"".join(b"%d,v%d,1\n" % (n, n) for n in range(begin, begin + 50)) for begin in range(0, 300, 50)]
    assert load(base, *bodies, lakefmt_operation=operation, **CSV)["NumberLoadedRows"] == 300
    assert [row[0] for row in base.rows()] == sorted(range(300), key=repr) or len(base.rows()) == 300
    assert sorted(row[0] for row in base.rows()) == list(range(300))


def test_a_load_that_fails_leaves_no_part_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a load that are stored already, beside rows of the loads before, go when its end is bad."""
    monkeypatch.setattr("lakefmt._core.loads.staging.PART_BYTES", 300)
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

    from lakefmt._core.loads.bodies import Request

    headers = {"db": "db", "table": "t", "label": "l", **CSV}
    reply = client.service.handle(Request("PUT", "/api/transaction/load", {}, headers, Broken(), client.user))
    assert isinstance(reply.body, dict)
    assert reply.body["Status"] == "INTERNAL_ERROR"
    client.transaction("load", "l", b"2,b,2\n", **CSV)
    assert client.transaction("commit", "l")["NumberTotalRows"] == 2
    assert base.rows() == [(1, "a", 1.0), (2, "b", 2.0)]
