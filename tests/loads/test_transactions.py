"""Transactions: the rules of the interface by their numbers (TX-…), and its tests (T…) for which no HTTP is needed."""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.data_classes import replace
from lakefmt._core.loads import bodies, csv_rows, json_rows
from lakefmt._core.loads.bodies import BodyBroken, Request
from lakefmt._core.loads.commit import LABEL_KEY, LoadTable
from lakefmt._core.loads.http import User
from lakefmt._core.loads.journal import FOLDER, TRANSITIONS, Journal, LoadState, Operation, Times, expiry
from lakefmt._core.loads.protocol import LoadOptions
from lakefmt._core.loads.service import LoadService
from lakefmt._core.loads.transactions import Live, Transactions
from lakefmt._core.storage.open import open_store
from lakefmt.errors import StateError, StorageError
from lakefmt.testing.stores import Fault, FaultMode, SimulatedCrash
from tests.kit import THOROUGH
from tests.loads.loads_kit import KEYED, PLAIN, Base, Client, Faults, WallClock

ROWS = b"1,a,1\n2,b,2\n"
CSV = {"column_separator": ","}
NUMBERED = pa.schema([pa.field("id", pa.string(), nullable=False), ("v", pa.int64()), ("n", pa.float64())])
#: Loads of one row each in one transaction.
COUNT = 10_000 if THOROUGH else 1_000


def options(**more: Any) -> LoadOptions:
    return LoadOptions(durable=False, wait_seconds=0, **more)


@pytest.fixture
def base() -> Base:
    return Base()


@pytest.fixture
def client(base: Base) -> Client:
    return Client(base.service())


def test_every_state_answers_every_operation() -> None:
    assert set(TRANSITIONS) == set(LoadState)
    assert all(set(row) == set(Operation) for row in TRANSITIONS.values())


# --- replies ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_t1_the_sequence_of_the_guide(base: Base, client: Client) -> None:
    assert client.whole("l", ROWS, **CSV) == ["OK"] * 4
    assert base.rows() == [(1, "a", 1.0), (2, "b", 2.0)]
    client.transaction("begin", "m")
    client.transaction("load", "m", b"3,c,3\n", **CSV)
    assert client.transaction("rollback", "m")["Status"] == "OK"
    assert len(base.rows()) == 2


def test_tx9_replies_have_the_names_of_guide_and_server(client: Client) -> None:
    begun = client.transaction("begin", "l")
    assert begun.items() >= {"Status": "OK", "Message": "", "Label": "l"}.items()
    assert isinstance(begun["TxnId"], int)
    assert isinstance(begun["BeginTxnTimeMs"], int)
    first, second = (client.transaction("load", "l", ROWS, **CSV) for _ in range(2))
    assert (first["Seq"], second["Seq"]) == (0, 1)
    counted = ("NumberTotalRows", "NumberLoadedRows", "NumberFilteredRows", "NumberUnselectedRows", "LoadBytes")
    assert [first[name] for name in counted] == [2, 2, 0, 0, len(ROWS)]
    assert {"LoadTimeMs", "StreamLoadPutTimeMs", "StreamLoadPlanTimeMs", "ReceivedDataTimeMs"} <= first.keys()
    prepared = client.transaction("prepare", "l")
    assert [prepared[name] for name in counted] == [4, 4, 0, 0, 2 * len(ROWS)]
    assert {"WriteDataTimeMs", "CommitAndPublishTimeMs"} <= prepared.keys()


def test_t2_a_label_in_use_running_finished_and_free_again(client: Client) -> None:
    client.transaction("begin", "l")
    again = client.transaction("begin", "l")
    assert (again["Status"], again["ExistingJobStatus"]) == ("LABEL_ALREADY_EXISTS", "RUNNING")
    assert again["Message"] == "Label [l] has already been used."
    client.transaction("rollback", "l")
    assert client.whole("l", ROWS, **CSV) == ["OK"] * 4
    again = client.transaction("begin", "l")
    assert (again["Status"], again["ExistingJobStatus"]) == ("LABEL_ALREADY_EXISTS", "FINISHED")


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        ({"label": ""}, "FAILED", "Empty label."),
        ({"label": "a/b"}, "FAILED", "Invalid label"),
        ({"label": "ä"}, "FAILED", "Invalid label"),
        ({"label": "x" * 129}, "FAILED", "Invalid label"),
        ({"db": ""}, "FAILED", "No database selected."),
        ({"db": ".."}, "FAILED", "Invalid database name"),
        ({"db": "a/b"}, "FAILED", "Invalid database name"),
        ({"table": "../t"}, "FAILED", "Invalid table name"),
        ({"table": ".hoodie"}, "FAILED", "Invalid table name"),
        ({"table": "none"}, "FAILED", "unknown table 'none'"),
        ({"db": "none"}, "FAILED", "in database 'none'"),
        ({"timeout": "0"}, "FAILED", "Invalid timeout"),
        ({"timeout": "259201"}, "FAILED", "Invalid timeout"),
        ({"timeout": "x"}, "FAILED", "Invalid timeout"),
    ],
)
def test_t3_a_begin_that_is_refused(client: Client, headers: dict[str, str], status: str, message: str) -> None:
    given = {"label": "l", "db": "db", "table": "t", **headers}
    reply = client.ask("POST", "/api/transaction/begin", **given)
    assert reply["Status"] == status
    assert message in reply["Message"]


def test_a_label_of_128_signs_and_the_longest_timeout(client: Client) -> None:
    assert client.transaction("begin", "x" * 128, timeout=259_200)["Status"] == "OK"


def test_t3_loads_that_are_refused(base: Base, client: Client) -> None:
    unknown = client.transaction("load", "l", ROWS, **CSV)
    assert (unknown["Status"], unknown["Message"]) == ("TXN_NOT_EXISTS", "TXN_NOT_EXISTS")
    client.transaction("begin", "l")
    wrong = client.transaction("load", "l", ROWS, table="other", **CSV)
    assert wrong["Status"] == "FAILED"
    assert "is not that of the transaction" in wrong["Message"]
    assert client.state("l") == "PREPARE", "a stray client must not end a transaction"
    client.transaction("load", "l", ROWS, **CSV)
    client.transaction("prepare", "l")
    late = client.transaction("load", "l", ROWS, **CSV)
    assert late["Status"] == "FAILED"
    assert "Transcation State Invalid" in late["Message"]
    assert client.state("l") == "PREPARED"
    assert client.transaction("commit", "l")["Status"] == "OK"
    assert len(base.rows()) == 2


def test_tx7_other_parameters_end_the_transaction(client: Client) -> None:
    client.transaction("begin", "l")
    client.transaction("load", "l", ROWS, **CSV)
    # The same by other words is the same.
    assert client.transaction("load", "l", ROWS, column_separator="\\x2c", timeout=5)["Status"] == "OK"
    drifted = client.transaction("load", "l", ROWS, column_separator=";")
    assert drifted["Message"] == "load request not equal last."
    assert client.state("l") == "ABORTED"


def test_guide_replies_are_a_choice(base: Base) -> None:
    client = Client(base.service(options(guide_replies=True)))
    assert client.transaction("load", "l")["Status"] == "FAILED"
    assert client.transaction("prepare", "l")["Message"] == "Transcation Not Exist"


def test_unknown_transactions(client: Client) -> None:
    assert client.transaction("prepare", "l").items() >= {"Status": "TXN_NOT_EXISTS"}.items()
    commit = client.transaction("commit", "l")
    assert commit["Status"] == "FAILED"
    assert "Transcation Not Exist" in commit["Message"]
    assert client.transaction("rollback", "l")["Status"] == "FAILED"
    assert client.state("l") == "UNKNOWN"
    assert client.transaction("frob", "l")["Message"] == "Unknown transaction operation: frob"


def test_t5_again_and_after_the_end(client: Client) -> None:
    client.transaction("begin", "l")
    client.transaction("load", "l", ROWS, **CSV)
    assert [client.transaction("prepare", "l")["Status"] for _ in range(2)] == ["OK", "OK"]
    assert client.transaction("commit", "l")["Message"] == ""
    again = client.transaction("commit", "l")
    assert again["Status"] == "OK"
    assert "already commited" in again["Message"]
    assert "has already committed" in again["Message"]
    refused = client.transaction("rollback", "l")
    assert refused["Status"] == "FAILED"
    assert "Can not abort" in refused["Message"]
    client.transaction("begin", "m")
    assert client.transaction("rollback", "m")["Status"] == "OK"
    assert "has already aborted" in client.transaction("rollback", "m")["Message"]
    refused = client.transaction("commit", "m")
    assert refused["Status"] == "FAILED"
    assert "Can not commit ABORTED transaction" in refused["Message"]


def test_a_commit_without_prepare_and_one_without_rows(base: Base, client: Client) -> None:
    client.transaction("begin", "l")
    client.transaction("load", "l", ROWS, **CSV)
    assert client.transaction("commit", "l")["Status"] == "OK"
    assert len(base.rows()) == 2
    client.transaction("begin", "m")
    empty = client.transaction("prepare", "m")
    assert empty["Status"] == "FAILED"
    assert "has not received data" in empty["Message"]
    assert client.state("m") == "ABORTED"


def test_an_empty_transaction_may_commit_where_that_is_allowed(base: Base) -> None:
    client = Client(base.service(options(allow_empty=True)))
    client.transaction("begin", "l")
    assert [client.transaction(name, "l")["Status"] for name in ("prepare", "commit")] == ["OK", "OK"]


def test_tx10_a_begin_leaves_the_earlier_one_alone_unless_told(base: Base) -> None:
    client = Client(base.service(options(begin_replaces_open=True)))
    client.transaction("begin", "l")
    client.transaction("load", "l", ROWS, **CSV)
    assert client.transaction("begin", "l")["Status"] == "OK"
    client.transaction("load", "l", b"9,z,9\n", **CSV)
    client.transaction("prepare", "l")
    assert client.transaction("begin", "l")["Status"] == "LABEL_ALREADY_EXISTS", "never a prepared one"
    client.transaction("commit", "l")
    assert base.rows() == [(9, "z", 9.0)]


def test_tx10_a_begin_never_replaces_what_was_prepared_meanwhile(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(base.service(options(begin_replaces_open=True)))
    client.transaction("begin", "l")
    client.transaction("load", "l", ROWS, **CSV)
    working = Transactions.working

    def late(transactions: Transactions, live: Live, *, waits: bool) -> Any:
        monkeypatch.undo()
        client.transaction("prepare", "l")
        return working(transactions, live, waits=waits)

    monkeypatch.setattr(Transactions, "working", late)
    assert client.transaction("begin", "l")["Status"] == "LABEL_ALREADY_EXISTS"
    assert (client.state("l"), client.transaction("commit", "l")["NumberLoadedRows"]) == ("PREPARED", 2)


def test_tx11_a_begin_with_the_same_id_is_the_same(client: Client) -> None:
    first = client.transaction("begin", "l", request_id="r1")
    assert client.transaction("begin", "l", request_id="r1") == first
    assert client.transaction("begin", "l", request_id="r2")["Status"] == "LABEL_ALREADY_EXISTS"
    client.transaction("load", "l", ROWS, **CSV)
    assert client.transaction("begin", "l", request_id="r1")["Status"] == "LABEL_ALREADY_EXISTS"


# --- time --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "seconds", "reason"),
    [({"timeout": 10}, 11, "timeout"), ({"idle_transaction_timeout": 5}, 6, "idle timeout")],
)
def test_t6_tx12_time_is_over_also_before_the_sweep(
    base: Base, client: Client, headers: dict[str, Any], seconds: int, reason: str
) -> None:
    client.transaction("begin", "l", **headers)
    client.transaction("load", "l", ROWS, **CSV)
    base.clock.pass_seconds(seconds)
    assert client.transaction("load", "l", ROWS, **CSV)["Status"] == "FAILED"
    state = client.ask("GET", "/api/db/get_load_state", query={"label": "l"})
    assert state["state"] == "ABORTED"
    assert state["reason"].startswith(reason)


def test_t6_the_sweep_ends_what_nobody_asks_for(base: Base, client: Client) -> None:
    client.transaction("begin", "l", timeout=10)
    base.clock.pass_seconds(11)
    client.service.sweep()
    assert client.service.transactions.live["db", "l"].record.state is LoadState.ABORTED


def test_t6_a_prepared_one_has_a_time_of_its_own(base: Base, client: Client) -> None:
    client.transaction("begin", "l", timeout=10)
    client.transaction("load", "l", ROWS, **CSV)
    client.transaction("prepare", "l", prepared_timeout=100)
    base.clock.pass_seconds(90)
    assert client.state("l") == "PREPARED"
    base.clock.pass_seconds(11)
    assert client.state("l") == "ABORTED"
    client.transaction("begin", "m")
    client.transaction("load", "m", ROWS, **CSV)
    assert client.transaction("prepare", "m", prepared_timeout="x")["Status"] == "FAILED"


def test_a_clock_that_steps_back_never_gives_more_than_the_whole_time() -> None:
    times = Times(begun=1_000_000, used=1_000_000, timeout=10).seen_at(400_000)
    assert expiry(LoadState.PREPARE, times, 409_000) is None
    assert expiry(LoadState.PREPARE, times, 411_000) is not None


def test_tx13_labels_are_kept_for_their_time_and_longer_by_the_table(base: Base) -> None:
    client = Client(base.service(options(label_keep_seconds=100, label_keep_num=3)))
    client.whole("l", ROWS, **CSV)
    base.clock.pass_seconds(101)
    client.service.sweep()
    assert not list(open_store(base.url).list(f"{FOLDER}/db/transactions"))
    assert client.state("l") == "VISIBLE"
    assert client.transaction("begin", "l")["ExistingJobStatus"] == "FINISHED"
    assert "has already committed" in client.transaction("commit", "l")["Message"]
    assert "Can not abort" in client.transaction("rollback", "l")["Message"]
    for number in range(5):
        client.transaction("begin", f"n{number}")
        client.transaction("rollback", f"n{number}")
        base.clock.pass_seconds(1)
    client.service.sweep()
    assert sorted(label for _, label in client.service.transactions.live) == ["n2", "n3", "n4"]


def test_tx13_the_table_knows_a_label_when_the_journal_is_lost(base: Base) -> None:
    client = Client(base.service())
    client.whole("l", ROWS, **CSV)
    open_store(base.url).delete_tree(FOLDER)
    base.clock.pass_seconds(60)
    client = Client(base.service())
    assert client.transaction("begin", "l")["ExistingJobStatus"] == "FINISHED"
    assert client.state("l") == "VISIBLE"


def test_the_commit_names_its_transaction(base: Base, client: Client) -> None:
    client.whole("l", ROWS, **CSV)
    table = base.table()
    table_at = table.client.at(table.client.load())
    extra = table_at.commit_metadata(table_at.timeline.commits[-1]).extra_metadata
    assert extra[LABEL_KEY] == "l"
    # Later commits of others do not repeat it.
    table.upsert(pa.table({"id": [5], "v": ["x"], "n": [1.0]}, schema=KEYED))
    table_at = table.client.at(table.client.load())
    assert LABEL_KEY not in table_at.commit_metadata(table_at.timeline.commits[-1]).extra_metadata


def test_too_many_transactions(base: Base) -> None:
    client = Client(base.service(options(max_running=2)))
    assert [client.transaction("begin", f"l{n}")["Status"] for n in range(2)] == ["OK", "OK"]
    assert "current running txns on db" in client.transaction("begin", "l2")["Message"]


# --- errors, retries -----------------------------------------------------------------------------------------------------------


class Broken:
    """A body whose connection breaks."""

    def __init__(self) -> None:
        self.sent = False

    def read(self, size: int, /) -> bytes:
        if self.sent:
            raise BodyBroken("the connection ended")
        self.sent = True
        return ROWS


def test_tx14_a_broken_body_leaves_nothing_and_the_transaction_goes_on(base: Base, client: Client) -> None:
    client.transaction("begin", "l")
    client.transaction("load", "l", b"7,x,7\n", **CSV)
    headers = {"db": "db", "table": "t", "label": "l", **CSV}
    with pytest.raises(BodyBroken):
        client.service.handle(Request("PUT", "/api/transaction/load", {}, headers, Broken(), client.user))
    assert client.state("l") == "PREPARE"
    assert client.transaction("load", "l", ROWS, **CSV)["Status"] == "OK"
    client.transaction("commit", "l")
    assert len(base.rows()) == 3
    with pytest.raises(BodyBroken):
        client.service.handle(
            Request("PUT", "/api/db/t/_stream_load", {}, {**headers, "label": "p"}, Broken(), client.user)
        )
    assert client.state("p") == "ABORTED"


def test_tx14_a_load_with_a_number_is_taken_once(base: Base, client: Client) -> None:
    client.transaction("begin", "l")
    first = client.transaction("load", "l", ROWS, load_seq=0, **CSV)
    assert client.transaction("load", "l", ROWS, load_seq=0, **CSV) == first
    assert client.transaction("prepare", "l")["NumberTotalRows"] == 2


class Fails:
    """A store whose effects fail for a while."""

    def __init__(self) -> None:
        self.on = False

    def plan(self, effect: object) -> Fault | None:
        return Fault(FaultMode.BEFORE, crash=False) if self.on else None


def test_tx22_an_internal_error_leaves_the_transaction_open(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefmt._core.loads.journal.PART_BYTES", 1)
    faults = Faults()
    fails = Fails()
    faults.plan = fails.plan  # type: ignore[method-assign]
    client = Client(base.service(faults=faults))
    client.transaction("begin", "l")
    client.transaction("load", "l", b"7,x,7\n", **CSV)
    fails.on = True
    assert client.transaction("load", "l", ROWS, **CSV)["Status"] == "INTERNAL_ERROR"
    assert client.transaction("prepare", "l")["Status"] == "INTERNAL_ERROR"
    fails.on = False
    assert client.state("l") == "PREPARE"
    assert client.transaction("load", "l", ROWS, **CSV)["Status"] == "OK"
    assert client.transaction("prepare", "l")["NumberTotalRows"] == 3
    fails.on = True
    assert client.transaction("commit", "l")["Status"] == "INTERNAL_ERROR"
    assert client.transaction("rollback", "l")["Status"] == "INTERNAL_ERROR"
    assert client.state("l") == "PREPARED"
    fails.on = False
    assert client.transaction("commit", "l")["Status"] == "OK"
    assert len(base.rows()) == 3


def test_an_internal_error_ends_the_transaction_where_that_is_asked_for(
    base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(base.service(options(rollback_on_internal_error=True)))
    client.transaction("begin", "l")

    def fail(*_: object) -> None:
        raise StorageError("no", transient=True)

    monkeypatch.setattr(client.service.transactions, "load", fail)
    assert client.transaction("load", "l", ROWS, **CSV)["Status"] == "INTERNAL_ERROR"
    assert client.state("l") == "ABORTED"


def test_two_requests_in_one_transaction(base: Base, client: Client) -> None:
    client.transaction("begin", "l")
    answers: list[dict[str, Any]] = []

    class Asks:
        def read(self, size: int, /) -> bytes:
            if answers:
                return b""
            answers.extend([client.transaction("load", "l", ROWS, **CSV), client.transaction("prepare", "l")])
            return ROWS

    headers = {"db": "db", "table": "t", "label": "l", **CSV}
    reply = client.service.handle(Request("PUT", "/api/transaction/load", {}, headers, Asks(), client.user))
    assert isinstance(reply.body, dict)
    assert reply.body["Status"] == "OK"
    assert [each["Status"] for each in answers] == ["TXN_IN_PROCESSING"] * 2
    assert client.transaction("prepare", "l")["NumberTotalRows"] == 2


def test_a_question_for_the_state_is_in_nobodys_way(client: Client) -> None:
    client.transaction("begin", "l")
    live = client.service.transactions.live["db", "l"]

    class Locked:
        def acquire(self, **_: object) -> bool:
            raise AssertionError("a state query held the transaction")

    live.busy, busy = Locked(), live.busy  # type: ignore[assignment]
    assert client.state("l") == "PREPARE"
    live.busy = busy


def test_tx19_bad_rows_are_told_at_once_and_fail_at_prepare(client: Client) -> None:
    client.transaction("begin", "l")
    reply = client.transaction("load", "l", b"1,a,1\n2\n", **CSV)
    assert (reply["Status"], reply["NumberFilteredRows"]) == ("OK", 1)
    failed = client.transaction("prepare", "l")
    assert (failed["Status"], failed["Message"]) == ("FAILED", "too many filtered rows")
    name = failed["ErrorURL"].partition("file=")[2]
    assert client.ask("GET", "/api/_load_error_log", query={"file": name})["text"] == "Error: 1 fields instead of 3.\n"
    assert client.state("l") == "ABORTED"
    for wrong in ("../../x", "error_log_0000000000000000_0000000000000000", ""):
        assert client.ask("GET", "/api/_load_error_log", query={"file": wrong})["Status"] == "FAILED"


def test_lists_of_bad_rows_show_them_only_where_asked(base: Base) -> None:
    client = Client(base.service(options(show_values=True)))
    client.transaction("begin", "l")
    reply = client.transaction("load", "l", b"secret\n", **CSV)
    text = client.ask("GET", "/api/_load_error_log", query={"file": reply["ErrorURL"].partition("file=")[2]})["text"]
    assert "secret" in text


def test_a_ratio_of_bad_rows_may_be_allowed(base: Base, client: Client) -> None:
    assert client.whole("l", b"1,a,1\n2\n", max_filter_ratio="0.5", **CSV) == ["OK"] * 4
    assert len(base.rows()) == 1


def test_rows_over_the_quota(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefmt._core.loads.journal.PART_BYTES", 1)
    client = Client(base.service(options(max_staged_bytes=10)))
    client.transaction("begin", "l")
    assert "more rows than may be staged" in client.transaction("load", "l", ROWS, **CSV)["Message"]
    client.service.stop()
    client = Client(base.service(options(max_body_bytes=3)))
    client.transaction("begin", "m")
    assert "more than 3" in client.transaction("load", "m", ROWS, **CSV)["Message"]


def test_tx20_a_full_disk_is_told_and_the_client_tries_again(
    base: Base, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    client.transaction("begin", "l")
    monkeypatch.setattr(client.service, "_disk", "/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1})())
    reply = client.transaction("load", "l", ROWS, **CSV)
    assert (reply["Status"], reply["Message"]) == ("INTERNAL_ERROR", "there is no space left for the rows")
    monkeypatch.undo()
    assert client.transaction("load", "l", ROWS, **CSV)["Status"] == "OK"


# --- recovery ------------------------------------------------------------------------------------------------------------------


def test_t4_tx24_what_is_prepared_outlives_the_server(base: Base, client: Client) -> None:
    client.transaction("begin", "l")
    client.transaction("load", "l", ROWS, **CSV)
    client.transaction("prepare", "l")
    client.transaction("begin", "open")
    client.transaction("load", "open", ROWS, **CSV)
    base.clock.pass_seconds(60)
    client = Client(base.service())
    assert client.state("l") == "PREPARED"
    assert client.state("open") == "ABORTED"
    assert "has already aborted" in client.transaction("rollback", "open")["Message"]
    assert client.transaction("commit", "l")["Status"] == "OK"
    assert len(base.rows()) == 2
    assert not list(open_store(base.url).list(f"{FOLDER}/db/rows"))


@pytest.mark.slow
def test_t15_others_write_compact_and_alter_while_it_is_prepared(base: Base, client: Client) -> None:
    client.transaction("begin", "l")
    client.transaction("load", "l", b"1,new,1\n2,b,2\n", **CSV)
    client.transaction("prepare", "l")
    base.clock.pass_seconds(23 * 3600)
    for number in range(4):
        base.table().upsert(pa.table({"id": [1, 10 + number], "v": ["old", "x"], "n": [0.0, 0.0]}, schema=KEYED))
    table = base.table()
    table.alter.rename_column("v", "w")
    table.alter.add_column("more", pa.int64())
    table.cluster()
    table.clean(options={"hoodie.clean.commits.retained": 1})
    assert client.transaction("commit", "l")["Status"] == "OK"
    assert base.rows()[:2] == [(1, "new", 1.0, None), (10, "x", 0.0, None)]
    assert len(base.rows()) == 6


def test_a_table_that_is_dropped_or_altered_so_that_the_rows_do_not_fit(base: Base, client: Client) -> None:
    client.transaction("begin", "l")
    client.transaction("load", "l", ROWS, **CSV)
    client.transaction("prepare", "l")
    open_store(f"{base.url}/db/t").delete_tree(".hoodie")
    reply = client.transaction("commit", "l")
    assert reply["Status"] == "FAILED"
    assert "t" in reply["Message"]
    assert client.state("l") == "PREPARED"
    assert client.transaction("rollback", "l")["Status"] == "OK"


@pytest.mark.parametrize("marked", [False, True])
def test_a_table_that_was_made_anew_gets_no_rows_without_some_of_their_columns(
    base: Base, client: Client, marked: bool
) -> None:
    client.transaction("begin", "l")
    told = {"columns": "id,v,n,__op", **CSV} if marked else CSV
    client.transaction("load", "l", b"1,a,1,0\n2,b,2,1\n" if marked else ROWS, **told)
    client.transaction("prepare", "l")
    open_store(f"{base.url}/db/t").delete_tree("")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("other", pa.string())])
    lakefmt.create_table(f"{base.url}/db/t", schema=schema, record_key="id")
    assert client.transaction("commit", "l")["Status"] == "FAILED"
    assert (client.state("l"), base.rows()) == ("PREPARED", [])


def test_parts_that_are_damaged_are_not_committed(base: Base, client: Client) -> None:
    client.transaction("begin", "l")
    client.transaction("load", "l", ROWS, **CSV)
    client.transaction("prepare", "l")
    store = open_store(base.url)
    name = next(info.name for info in store.list(f"{FOLDER}/db/rows"))
    data = bytearray(store.read(name))
    data[len(data) // 2] ^= 1
    store.put(name, bytes(data))
    reply = client.transaction("commit", "l")
    assert reply["Status"] == "FAILED"
    assert "damaged" in reply["Message"]
    assert base.rows() == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_transaction_whose_rows_are_damaged_may_be_rolled_back(base: Base, client: Client, restarts: bool) -> None:
    client.transaction("begin", "l")
    client.transaction("load", "l", ROWS, **CSV)
    client.transaction("prepare", "l")
    store = open_store(base.url)
    store.delete([info.name for info in store.list(f"{FOLDER}/db/rows")])
    if restarts:
        base.clock.pass_seconds(60)
        client = Client(base.service())
    assert client.state("l") == "PREPARED"
    assert client.transaction("commit", "l")["Status"] != "OK"
    assert client.transaction("rollback", "l")["Status"] == "OK"
    assert client.whole("l", ROWS, **CSV) == ["OK"] * 4


def test_a_commit_that_was_asked_for_and_cannot_be_finished_is_left_to_its_client(base: Base) -> None:
    """The server died in it, and the table was dropped: the next one starts, and the label is not stuck."""
    faults = Faults()
    client = Client(base.service(faults=faults))
    client.transaction("begin", "l")
    client.transaction("load", "l", ROWS, **CSV)
    faults.left = 3
    with pytest.raises(SimulatedCrash):
        client.transaction("commit", "l")
    open_store(f"{base.url}/db/t").delete_tree("")
    lakefmt.create_table(
        f"{base.url}/db/t", schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]), record_key="id"
    )
    base.clock.pass_seconds(60)
    client = Client(base.service())
    assert client.state("l") == "PREPARED"
    assert client.transaction("commit", "l")["Status"] == "FAILED"
    assert client.transaction("rollback", "l")["Status"] == "OK"


def test_one_transaction_that_cannot_be_ended_is_in_nobodys_way(
    base: Base, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for label in ("a", "b"):
        client.transaction("begin", label)
        client.transaction("load", label, ROWS, **CSV)
        client.transaction("prepare", label)
    find = LoadTable.find_label

    def breaks(table: LoadTable, database: str, label: str) -> Any:
        if label == "a":
            raise KeyError(label)
        return find(table, database, label)

    monkeypatch.setattr(LoadTable, "find_label", breaks)
    base.clock.pass_seconds(60)
    client = Client(base.service())
    assert client.transaction("commit", "b")["Status"] == "OK"
    base.clock.pass_seconds(90_000)
    client.service.sweep()
    monkeypatch.undo()
    client.service.sweep()
    assert (client.state("a"), client.state("b")) == ("ABORTED", "VISIBLE")


def test_rows_stay_while_a_record_cannot_be_read(base: Base, client: Client) -> None:
    """A record of a later version: when that is back, what it had prepared is there."""
    client.transaction("begin", "l")
    client.transaction("load", "l", ROWS, **CSV)
    client.transaction("prepare", "l")
    store, name = open_store(base.url), Journal.record_name("db", "l")
    data = store.read(name)
    store.put(name, data.replace(b'"format":1', b'"format":2'))
    base.clock.pass_seconds(60)
    assert Client(base.service()).state("l") == "UNKNOWN"
    store.put(name, data)
    base.clock.pass_seconds(60)
    client = Client(base.service())
    assert client.transaction("commit", "l")["Status"] == "OK"
    assert len(base.rows()) == 2


def test_records_that_are_damaged_are_left_alone(base: Base, client: Client) -> None:
    client.transaction("begin", "l")
    name = Journal.record_name("db", "l")
    store = open_store(base.url)
    store.put(name, store.read(name)[:-5])
    base.clock.pass_seconds(60)
    client = Client(base.service())
    assert client.state("l") == "UNKNOWN"
    assert store.info(name) is not None


def test_10_4_one_server_for_a_journal(base: Base, client: Client) -> None:
    with pytest.raises(StateError, match="another server"):
        base.service()
    base.clock.pass_seconds(60)
    other = Client(base.service())
    reply = client.transaction("begin", "l")
    assert reply["Status"] == "INTERNAL_ERROR"
    assert "another server" in reply["Message"]
    assert other.transaction("begin", "l")["Status"] == "OK"
    assert client.ask("GET", "/api/health")["status"] == "FAILED"


def test_10_4_a_server_whose_clock_steps_back_does_not_answer_beside_another_one(base: Base, client: Client) -> None:
    other_clock = WallClock()
    base.clock.pass_seconds(-3600)
    other_clock.pass_seconds(31)
    store = open_store(base.url)
    other = LoadService(
        base.url, options(), clock=other_clock, store=store, open_at=lambda path: base._open(path, None)
    )
    other.start()
    with pytest.raises(StateError, match="another server"):
        client.service.sweep()
    assert client.transaction("begin", "l")["Status"] == "INTERNAL_ERROR"
    assert Client(other).transaction("begin", "l")["Status"] == "OK"


def test_a_journal_with_open_transactions_is_of_one_base_path() -> None:
    """Else a prepared transaction went into the table of the same name below another one."""
    here, there = Base(), Base()
    journal = f"{here.url}-journal"

    def service(base: Base) -> LoadService:
        made = LoadService(
            base.url, replace(options(), journal=journal), clock=here.clock, open_at=lambda path: base._open(path, None)
        )
        made.start()
        return made

    client = Client(service(here))
    client.transaction("begin", "l")
    client.transaction("load", "l", b"1,a,1\n", **CSV)
    assert client.transaction("prepare", "l")["Status"] == "OK"
    client.service.stop()
    with pytest.raises(StateError, match=r"label 'l'.* load into memory://"):
        service(there)
    client = Client(service(here))
    assert client.transaction("commit", "l")["Status"] == "OK"
    assert len(here.rows()) == 1
    client.service.stop()
    client = Client(service(there))  # what has ended is in nobody's way
    client.transaction("begin", "m")
    client.transaction("load", "m", b"1,a,1\n", **CSV)
    assert client.transaction("commit", "m")["Status"] == "OK"
    assert (len(here.rows()), len(there.rows())) == (1, 1)


def test_a_server_that_goes_on_renews_its_lease(base: Base, client: Client) -> None:
    for _ in range(5):
        base.clock.pass_seconds(20)
        client.service.sweep()
    with pytest.raises(StateError, match="another server"):
        base.service()
    client.service.stop()
    assert Client(base.service()).ask("GET", "/api/health")["status"] == "OK"


# --- tables, users, other operations -------------------------------------------------------------------------------------------


def test_tx2_cancel_by_either_spelling_and_operations_with_and_without_table(client: Client) -> None:
    for label, path, query in (("a", "/api/db/a/_cancel", {}), ("b", "/api/db/t/_cancel", {"label": "b"})):
        client.transaction("begin", label)
        reply = client.ask("POST", path, query=query)
        assert (reply["status"], reply["Status"]) == ("OK", "OK")
        assert client.state(label) == "ABORTED"
    client.transaction("begin", "c")
    client.transaction("load", "c", ROWS, **CSV)
    assert client.transaction("prepare", "c", table="t")["Status"] == "OK"
    assert client.transaction("commit", "c", table="other")["Status"] == "FAILED"
    assert client.transaction("commit", "c", table="t")["Status"] == "OK"


def test_tx3_unknown_headers_are_ignored(client: Client) -> None:
    client.transaction("begin", "l")
    more = {"load_mem_limit": "1", "negative": "false", "warehouse": "w", "whatever": "x", **CSV}
    assert client.transaction("load", "l", ROWS, **more)["Status"] == "OK"


def test_tx4_a_table_may_lie_elsewhere() -> None:
    base = Base()
    lakefmt.create_table(f"{base.url}-elsewhere", schema=KEYED, record_key="id")
    client = Client(base.service(options(tables={"shop.items": f"{base.url}-elsewhere"})))
    assert client.ask("PUT", "/api/shop/items/_stream_load", ROWS, label="l", **CSV)["Status"] == "Success"
    assert lakefmt.open_table(f"{base.url}-elsewhere").read().num_rows == 2


def test_tx5_users_load_into_their_tables() -> None:
    base = Base(t={"schema": KEYED, "record_key": "id"}, pay={"schema": KEYED, "record_key": "id"})
    service = base.service()
    anna, bob = Client(service, User("anna", ("db.t",))), Client(service, User("bob", ("db.pay",)))
    assert anna.transaction("begin", "l")["Status"] == "OK"
    assert "Access denied" in anna.transaction("begin", "m", table="pay")["Message"]
    for operation in ("load", "prepare", "commit", "rollback"):
        assert "Access denied" in bob.transaction(operation, "l", ROWS, **CSV)["Message"]
    assert anna.state("l") == "PREPARE"
    assert "Access denied" in bob.ask("PUT", "/api/db/t/_stream_load", ROWS, **CSV)["Message"]
    assert [each["Label"] for each in anna.ask("GET", "/api/transaction/list")["Transactions"]] == ["l"]
    assert anna.ask("GET", "/api/transaction/list")["Transactions"][0]["State"] == "PREPARE"
    assert bob.ask("GET", "/api/transaction/list")["Transactions"] == []


def test_plain_loads(base: Base, client: Client) -> None:
    reply = client.ask("PUT", "/api/db/t/_stream_load", ROWS, label="l", **CSV)
    assert (reply["Status"], reply["Message"], reply["NumberLoadedRows"]) == ("Success", "OK", 2)
    again = client.ask("PUT", "/api/db/t/_stream_load", ROWS, label="l", **CSV)
    assert (again["Status"], again["ExistingJobStatus"]) == ("Label Already Exists", "FINISHED")
    assert client.ask("PUT", "/api/db/t/_stream_load", b"3,c,3\n", **CSV)["Label"]
    bad = client.ask("PUT", "/api/db/t/_stream_load", b"4\n", label="m", **CSV)
    assert (bad["Status"], bad["Message"]) == ("Fail", "too many filtered rows")
    assert client.ask("PUT", "/api/db/t/_stream_load", b"4,d,4\n", label="m", **CSV)["Status"] == "Success"
    assert len(base.rows()) == 4


def test_10_3_a_transaction_over_several_tables() -> None:
    base = Base(t={"schema": KEYED, "record_key": "id"}, a={"schema": PLAIN, "kind": "append"})
    client = Client(base.service())
    assert client.transaction("begin", "l", table=None, transaction_type="multi")["Status"] == "OK"
    client.transaction("load", "l", ROWS, **CSV)
    client.transaction("load", "l", b"5\n6\n", table="a", **CSV)
    assert client.transaction("commit", "l")["NumberLoadedRows"] == 4
    assert (len(base.rows()), base.rows("a")) == (2, [(5,), (6,)])


@pytest.mark.parametrize("other", [{"schema": PLAIN, "kind": "append"}, {"schema": NUMBERED, "record_key": "id"}, None])
def test_10_3_no_table_gets_its_rows_where_those_of_another_one_do_not_fit(other: dict[str, Any] | None) -> None:
    base = Base(t={"schema": KEYED, "record_key": "id"}, u={"schema": KEYED, "record_key": "id"})
    client = Client(base.service())
    client.transaction("begin", "l", table=None, transaction_type="multi")
    for table in ("t", "u"):
        client.transaction("load", "l", ROWS, table=table, **CSV)
    assert client.transaction("prepare", "l")["Status"] == "OK"
    open_store(f"{base.url}/db/u").delete_tree("")
    if other is not None:
        lakefmt.create_table(f"{base.url}/db/u", **other)
    assert client.transaction("commit", "l")["Status"] == "FAILED"
    assert (client.state("l"), base.rows()) == ("PREPARED", [])
    assert client.transaction("rollback", "l")["Status"] == "OK"


@pytest.mark.parametrize("change", ["dropped", "made anew", "there again"])
@pytest.mark.parametrize("restarts", [False, True])
def test_10_3_a_table_that_is_dropped_after_another_one_has_its_rows(
    change: str, restarts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows wait for it as long as a prepared transaction would; state, replies and reason say so."""
    base = Base(t={"schema": KEYED, "record_key": "id"}, u={"schema": KEYED, "record_key": "id"})
    client = Client(base.service())
    client.transaction("begin", "l", table=None, transaction_type="multi")
    for table in ("t", "u"):
        client.transaction("load", "l", ROWS, table=table, **CSV)
    assert client.transaction("prepare", "l", prepared_timeout=1_000)["Status"] == "OK"
    commit = LoadTable.commit

    def drops(self: LoadTable, *given: Any) -> Any:
        try:
            return commit(self, *given)
        finally:
            monkeypatch.undo()
            open_store(f"{base.url}/db/u").delete_tree("")
            if change == "made anew":
                lakefmt.create_table(f"{base.url}/db/u", schema=PLAIN, kind="append")

    monkeypatch.setattr(LoadTable, "commit", drops)
    for _ in range(2):
        reply = client.transaction("commit", "l")
        assert (reply["Status"], client.state("l"), len(base.rows())) == ("PUBLISH_TIMEOUT", "COMMITTED", 2)
        assert "table 'u' cannot take its rows" in reply["Message"]
        asked = client.ask("GET", "/api/db/get_load_state", query={"label": "l"})
        assert "table 'u' cannot take its rows" in asked["reason"]
        reply = client.transaction("rollback", "l")
        assert reply["Status"] == "FAILED"
        assert "table 'u'" in reply["Message"]
        assert client.transaction("begin", "l")["ExistingJobStatus"] == "FINISHED"
        if restarts:
            client.service.stop()
            client = Client(base.service())
    if change == "there again":
        lakefmt.create_table(f"{base.url}/db/u", schema=KEYED, record_key="id")
    else:
        client.service.sweep()
        assert client.state("l") == "COMMITTED"
        base.clock.pass_seconds(1_001)
    client.service.sweep()
    asked = client.ask("GET", "/api/db/get_load_state", query={"label": "l"})
    assert asked["state"] == "VISIBLE"
    assert ("given up" in asked["reason"]) == (change != "there again")
    reply = client.transaction("commit", "l")
    assert ("already" in reply["Message"], "given up" in reply["Message"]) == (True, change != "there again")
    if change == "there again":
        assert base.rows("u") == base.rows()
    names = [each.name for each in client.service.transactions.journal.store.list("")]
    assert not any(name.endswith(".arrow") for name in names)


def test_tx14_a_number_is_that_of_a_load_of_its_table() -> None:
    base = Base(t={"schema": KEYED, "record_key": "id"}, u={"schema": KEYED, "record_key": "id"})
    client = Client(base.service())
    client.transaction("begin", "l", table=None, transaction_type="multi")
    for _ in range(2):
        for table, rows in (("t", b"1,a,1\n"), ("u", ROWS)):
            reply = client.transaction("load", "l", rows, table=table, load_seq=0, **CSV)
            assert reply["NumberLoadedRows"] == rows.count(b"\n")
    assert client.transaction("commit", "l")["Status"] == "OK"
    assert (len(base.rows()), len(base.rows("u"))) == (1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [FaultMode.BEFORE, FaultMode.AFTER])
def test_10_3_a_death_between_the_commits_of_two_tables_is_finished_by_the_next_server(mode: FaultMode) -> None:
    from lakefmt.testing.stores import SimulatedCrash

    outcomes = set[tuple[int, int]]()
    for number in range(1, 200):
        base = Base(t={"schema": KEYED, "record_key": "id"}, a={"schema": PLAIN, "kind": "append"})
        faults = Faults()
        client = Client(base.service(faults=faults))
        client.transaction("begin", "l", table=None, transaction_type="multi")
        client.transaction("load", "l", ROWS, **CSV)
        client.transaction("load", "l", b"5\n6\n", table="a", **CSV)
        faults.left, faults.mode = number, mode
        try:
            client.transaction("commit", "l")
            break
        except SimulatedCrash:
            pass
        base.clock.pass_seconds(60)
        client = Client(base.service())
        rows = (len(base.rows()), len(base.rows("a")))
        assert (client.state("l"), rows) in (("ABORTED", (0, 0)), ("VISIBLE", (2, 2)))
        outcomes.add(rows)
    assert outcomes == {(0, 0), (2, 2)}


def test_tx21_small_loads_are_committed_together(base: Base, client: Client) -> None:
    from threading import Thread

    how = {"enable_merge_commit": "true", "merge_commit_interval_ms": "0", **CSV}
    reply = client.ask("PUT", "/api/db/t/_stream_load", ROWS, label="mine", **how)
    assert reply["Status"] == "Success"
    assert reply["Label"].startswith("merge_commit_")
    before = len(base.table().timeline.entries)
    how["merge_commit_interval_ms"] = "600000"
    replies: list[dict[str, Any]] = []

    def load(body: bytes) -> None:
        replies.append(client.ask("PUT", "/api/db/t/_stream_load", body, **how))

    threads = [Thread(target=load, args=(b"%d,x,1\n" % (10 + number),)) for number in range(3)]
    for thread in threads:
        thread.start()
    merges = client.service._merges
    while sum(live.record.counts.total for live in list(client.service.transactions.live.values())) < 3 + 2:
        threads[0].join(0.001)
    bad = client.ask("PUT", "/api/db/t/_stream_load", b"77\n", **how)
    assert (bad["Status"], bad["Message"]) == ("Fail", "too many filtered rows")
    with merges._changed:
        for group in merges._groups.values():
            group.ends = 0
        merges._changed.notify_all()
    for thread in threads:
        thread.join()
    assert [each["Status"] for each in replies] == ["Success"] * 3
    assert len({each["Label"] for each in replies}) == 1
    assert len(base.rows()) == 5
    assert len(base.table().timeline.entries) == before + 1


def test_state_health_metrics_openapi_and_nodes(client: Client) -> None:
    client.whole("l", ROWS, **CSV)
    state = client.ask("GET", "/api/db/get_load_state", query={"label": "l"})
    assert state == {
        "state": "VISIBLE",
        "reason": "",
        "status": "OK",
        "code": "0",
        "msg": "Success",
        "message": "OK",
    }
    assert client.ask("GET", "/api/health")["status"] == "OK"
    text = client.ask("GET", "/metrics")["text"]
    assert 'lakefmt_load_rows_total{class="loaded"} 2' in text
    assert 'lakefmt_load_transactions{state="VISIBLE"} 1' in text
    document = client.ask("GET", "/api/openapi.json")
    assert document["openapi"].startswith("3.")
    assert client.ask("GET", "/api/db/t/_stream_load_meta", query={"type": "nodes"})["nodes"] == ["127.0.0.1:1"]
    assert client.ask("GET", "/api/nothing")["Status"] == "FAILED"


@pytest.mark.slow
def test_ten_thousand_loads_of_one_row_are_one_object(base: Base, client: Client) -> None:
    client.transaction("begin", "l")
    for number in range(COUNT):
        client.transaction("load", "l", b"%d,x,1\n" % number, **CSV)
    client.transaction("prepare", "l")
    assert len(list(open_store(base.url).list(f"{FOLDER}/db/rows"))) == 1
    assert client.transaction("commit", "l")["NumberLoadedRows"] == COUNT


def test_what_has_ended_keeps_no_rows_in_memory(base: Base, client: Client) -> None:
    told = {"log_rejected_record_num": "-1", "max_filter_ratio": "1", "load_seq": "0", **CSV}
    for label, operation in (("a", "commit"), ("b", "rollback")):
        client.transaction("begin", label)
        client.transaction("load", label, ROWS + b"bad\n", **told)
        client.transaction(operation, label)
        live = client.service.transactions.live["db", label]
        assert (live.problems, live.replies, live.loading) == ([], {}, {})


def test_lists_of_bad_rows_go_with_what_they_tell_of(base: Base, client: Client) -> None:
    store = open_store(base.url)
    told = {"enable_merge_commit": "true", "merge_commit_interval_ms": "0", "log_rejected_record_num": "5", **CSV}
    assert client.ask("PUT", "/api/db/t/_stream_load", ROWS + b"bad\n", **told)["Status"] == "Fail"
    for _ in range(2):
        client.transaction("begin", "l")
        client.transaction("load", "l", ROWS + b"bad\n", log_rejected_record_num="5", **CSV)
        assert client.transaction("prepare", "l")["Status"] == "FAILED"
    assert len(list(store.list(f"{FOLDER}/db/errors"))) == 2


@pytest.mark.parametrize("milliseconds", ["600001", "00000009999999999", "9" * 5000, "-1", "1.5", "²", "x"])
def test_tx21_an_interval_beyond_ten_minutes_is_refused(client: Client, milliseconds: str) -> None:
    told = {
        "enable_merge_commit": "true",
        "merge_commit_async": "true",
        "merge_commit_interval_ms": milliseconds,
        **CSV,
    }
    reply = client.ask("PUT", "/api/db/t/_stream_load", ROWS, **told)
    assert (reply["Status"], reply["Message"]) == ("Fail", "Invalid merge_commit_interval_ms")


def test_tx21_a_server_that_ends_commits_what_its_clients_were_told_is_taken(base: Base, client: Client) -> None:
    told = {"enable_merge_commit": "true", "merge_commit_async": "true", "merge_commit_interval_ms": "600000", **CSV}
    replies = [client.ask("PUT", "/api/db/t/_stream_load", b"%d,x,1\n" % number, **told) for number in range(2)]
    assert [each["Status"] for each in replies] == ["Success"] * 2
    assert base.rows() == []
    client.service.stop()
    assert (len(base.rows()), client.state(replies[0]["Label"])) == (2, "VISIBLE")


def test_reasons_of_rollbacks_are_counted_in_bounded_memory(client: Client) -> None:
    for number in range(100):
        client.transaction("begin", "l")
        client.transaction("load", "l", ROWS, timezone=f"zone{number}", **CSV)
    rollbacks = client.service.transactions.rollbacks
    assert (len(rollbacks) <= 51, sum(rollbacks.values())) == (True, 100)


def test_tx21_a_group_whose_commit_is_not_answered_is_not_said_to_have_failed(
    base: Base, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise StorageError("no answer", transient=True)

    looks = [LoadTable.find_label]
    monkeypatch.setattr(LoadTable, "commit", lambda *_: (monkeypatch.setattr(LoadTable, "find_label", fails), fails()))
    told = {"enable_merge_commit": "true", "merge_commit_interval_ms": "0", **CSV}
    reply = client.ask("PUT", "/api/db/t/_stream_load", ROWS, **told)
    assert (reply["Status"], "not known yet" in reply["Message"]) == ("Fail", True)
    monkeypatch.setattr(LoadTable, "find_label", looks[0])
    client.service.sweep()
    assert client.state(reply["Label"]) == "ABORTED"


class Interruption(Faults):
    """Lets another client act before the effect of a number."""

    def __init__(self) -> None:
        super().__init__()
        self.number, self.act = 0, lambda: None

    def plan(self, effect: object) -> Fault | None:
        self.number -= 1
        if self.number == 0:
            self.act()
        return None


@pytest.mark.slow
@pytest.mark.parametrize(
    "operation", ["rollback", "rollback of rows in memory", "bad load", "timeout", "forget", "commit"]
)
def test_what_is_prepared_stays_when_its_label_is_used_again_at_any_effect(operation: str) -> None:
    acknowledged = set[bool]()
    for number in range(1, 100):
        base, interruption = Base(), Interruption()
        client = Client(base.service(options(label_keep_num=0), interruption))
        prepared = list[bool]()

        def again(client: Client = client, prepared: list[bool] = prepared) -> None:
            if client.transaction("begin", "l")["Status"] == "OK":
                client.transaction("load", "l", b"7,x,7\n", **CSV)
                prepared.append(client.transaction("prepare", "l")["Status"] == "OK")

        client.transaction("begin", "l")
        client.transaction("load", "l", ROWS, **CSV)
        if operation in ("rollback", "timeout", "commit"):
            client.transaction("prepare", "l")
        if operation == "forget":
            client.transaction("rollback", "l")
        interruption.number, interruption.act = number, again
        if operation == "bad load":
            client.transaction("load", "l", ROWS, **CSV, timezone="nowhere")
        elif operation in ("timeout", "forget"):
            base.clock.pass_seconds(90_000 if operation == "timeout" else 0)
            client.service.sweep()
        else:
            client.transaction("commit" if operation == "commit" else "rollback", "l")
        base.clock.pass_seconds(60)
        client = Client(base.service())
        if any(prepared):
            assert client.state("l") == "PREPARED"
            assert client.transaction("commit", "l")["Status"] == "OK"
            assert base.rows() == [(7, "x", 7.0)]
        acknowledged.update(prepared)
        if interruption.number > 0:
            break
    assert number > 1
    assert acknowledged <= {True}


def test_a_stopping_server_begins_nothing_and_commits_what_is_prepared(base: Base, client: Client) -> None:
    client.transaction("begin", "l")
    client.transaction("load", "l", ROWS, **CSV)
    client.service.stopping = True
    assert client.transaction("begin", "m")["Status"] == "INTERNAL_ERROR"
    assert client.transaction("commit", "l")["Status"] == "OK"


def test_an_unexpected_error_is_a_reply(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(client.service.transactions, "begin", fail)
    reply = client.transaction("begin", "l")
    assert (reply["Status"], reply["Message"]) == ("INTERNAL_ERROR", "internal error: RuntimeError")


def test_the_service_is_a_function_of_a_request() -> None:
    assert LoadService.handle.__annotations__["return"] == "Reply"


@pytest.mark.parametrize("form", ["csv", "json"])
def test_rows_of_blocks_that_are_decoded_at_once_stay_in_their_order(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later rows of a key win, and bad rows are told in the order in which they came, however the threads take turns."""
    monkeypatch.setattr(csv_rows, "_BLOCK_BYTES", 400)
    monkeypatch.setattr(json_rows, "_BLOCK_BYTES", 400)
    monkeypatch.setattr(bodies, "BLOCK_BYTES", 100)
    base = Base()
    client = Client(base.service(LoadOptions(durable=False, wait_seconds=0, show_values=True)))
    numbers = range(600)
    if form == "csv":
        body = "".join(f"{number % 7},{number},{'x' if number % 100 == 99 else number}\n" for number in numbers)
        how = {"column_separator": ",", "strict_mode": "true"}
    else:
        texts = {number: '"x"' if number % 100 == 99 else number for number in numbers}
        body = "\n".join(f'{{"id": {number % 7}, "v": {number}, "n": {texts[number]}}}' for number in numbers)
        how = {"format": "json", "strict_mode": "true"}
    client.transaction("begin", "l")
    reply = client.transaction("load", "l", body.encode(), max_filter_ratio="0.5", **how)
    assert (reply["NumberTotalRows"], reply["NumberFilteredRows"]) == (600, 6)
    assert client.transaction("commit", "l")["Status"] == "OK"
    good = [number for number in numbers if number % 100 != 99]
    last = {number % 7: number for number in good}
    assert base.rows() == [(key, str(last[key]), float(last[key])) for key in range(7)]


def test_a_block_that_is_refused_leaves_nothing_of_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks behind it may be decoded already, and ones before it stored."""
    monkeypatch.setattr(csv_rows, "_BLOCK_BYTES", 400)
    monkeypatch.setattr(bodies, "BLOCK_BYTES", 100)
    monkeypatch.setattr("lakefmt._core.loads.journal.PART_BYTES", 500)
    monkeypatch.setattr(csv_rows, "_MAX_ROW_BYTES", 300)
    base = Base()
    client = Client(base.service())
    body = "".join(f"{number},{'a' * (5_000 if number == 300 else 1)},1\n" for number in range(600)).encode()
    client.transaction("begin", "l")
    reply = client.transaction("load", "l", body, column_separator=",")
    assert reply["Status"] == "FAILED"
    assert "a row has more than 300 bytes" in reply["Message"]
    assert client.state("l") == "ABORTED"
    assert not list(open_store(base.url).list(f"{FOLDER}/db/rows"))
    assert base.rows() == []


def test_parts_that_an_earlier_version_has_prepared_are_committed(base: Base, client: Client) -> None:
    """Their records have a BLAKE2b of the bytes; those of now have a CRC-32."""
    client.transaction("begin", "l")
    client.transaction("load", "l", ROWS, **CSV)
    client.transaction("prepare", "l")
    store = open_store(base.url)
    name = Journal.record_name("db", "l")
    part = next(info.name for info in store.list(f"{FOLDER}/db/rows"))
    data = store.read(part)
    old = hashlib.blake2b(data, digest_size=16).hexdigest()
    record = store.read(name).decode()
    assert record.count(f'"{zlib.crc32(data):08x}"') == 1
    changed = record.replace(f"{zlib.crc32(data):08x}", old)
    store.put(name, changed.encode())
    base.clock.pass_seconds(60)
    client = Client(base.service())
    assert client.state("l") == "PREPARED"
    assert client.transaction("commit", "l")["Status"] == "OK"
    assert len(base.rows()) == len(ROWS.splitlines())
