"""The wires: DynamoDB as moto plays it, Thrift on a loopback socket, and what happens without a package or a setting."""

from __future__ import annotations

import importlib
import itertools
import socket
import threading

import pytest

from lakefmt._core.storage import MemoryStore
from lakefmt._core.storage.time_source import SystemTimeSource
from lakefmt._core.timeline.locks.api import RetryPolicy
from lakefmt._core.timeline.locks.lease import LeasedLock
from lakefmt._core.timeline.locks.open import LockOptions, open_lock
from lakefmt._core.timeline.locks.services import BotoLockTable, DynamoDBLockBackend, LockItem, decode_lock_item
from lakefmt.errors import CorruptFile, InvalidInputError, LeaseLost, LockUnavailable, StorageError, UnsupportedFeature
from lakefmt.testing.virtual_time import Process, VirtualTime

numbers = itertools.count()


# ------------------------------------------------------------------------------------------------------------ DynamoDB


@pytest.fixture
def dynamo(monkeypatch):
    session = pytest.importorskip("botocore.session")
    from moto import mock_aws

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAMADEUP")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret-text")
    with mock_aws():
        yield session.get_session().create_client("dynamodb", region_name="us-east-1")


def writer(client, time, retry_policy=None):
    process = Process(time, next(numbers))
    table = BotoLockTable(client, "locks", "trips")
    prepare = lambda: table.make_table("PAY_PER_REQUEST", (1, 1), 5.0, process)  # noqa: E731
    backend = DynamoDBLockBackend(table, f"w{process.number}", 20.0, process, prepare)
    return process, LeasedLock(backend, f"dynamo-{process.number}", retry_policy or RetryPolicy(0.2, 0.1), process)


@pytest.mark.slow
def test_the_item_is_that_of_amazons_client(dynamo):
    time = VirtualTime()
    (_, one), (_, two) = writer(dynamo, time), writer(dynamo, time)
    with one.hold() as lease:
        item = dynamo.get_item(TableName="locks", Key={"key": {"S": "trips"}})["Item"]
        assert {*item} == {"key", "ownerName", "leaseDuration", "recordVersionNumber"}
        assert item["leaseDuration"] == {"S": "20000"}
        assert lease.token == item["recordVersionNumber"]["S"]
        with pytest.raises(LockUnavailable, match="trips"), two.hold():
            pass
        time.sleep(60.0)
        lease.check()
        assert lease.token != item["recordVersionNumber"]["S"], "its beats change the version"
    assert "Item" not in dynamo.get_item(TableName="locks", Key={"key": {"S": "trips"}}), "it is removed in the end"
    schema = dynamo.describe_table(TableName="locks")["Table"]["KeySchema"]
    assert schema == [{"AttributeName": "key", "KeyType": "HASH"}]
    with two.hold() as lease:
        lease.check()


@pytest.mark.slow
def test_an_item_of_a_dead_java_writer_is_taken_over_after_its_own_lease(dynamo):
    time = VirtualTime()
    process, lock = writer(dynamo, time, RetryPolicy(30.0, 1.0))
    with lock.hold():
        pass
    said = {"key": "trips", "ownerName": "jvm", "leaseDuration": "25000", "recordVersionNumber": "v1"}
    dynamo.put_item(TableName="locks", Item={name: {"S": text} for name, text in said.items()})
    with lock.hold() as lease:
        lease.check()
        assert 25.0 <= process.monotonic() <= 30.0
        dynamo.put_item(TableName="locks", Item={name: {"S": text} for name, text in said.items()})
        with pytest.raises(LeaseLost):
            lease.check()
    assert dynamo.get_item(TableName="locks", Key={"key": {"S": "trips"}})["Item"]["ownerName"] == {"S": "jvm"}
    said |= {"isReleased": "1"}
    dynamo.put_item(TableName="locks", Item={name: {"S": text} for name, text in said.items()})
    before = process.monotonic()
    with lock.hold():
        assert process.monotonic() - before < 2


@pytest.mark.parametrize(
    "item",
    [
        None,
        {},
        {"ownerName": {"S": "a"}, "recordVersionNumber": {"S": "v"}},
        {"ownerName": {"S": "a"}, "recordVersionNumber": {"S": "v"}, "leaseDuration": {"S": "-1"}},
        {"ownerName": {"S": "a"}, "recordVersionNumber": {"S": "v"}, "leaseDuration": {"S": "9" * 40}},
        {"ownerName": {"N": "1"}, "recordVersionNumber": {"S": "v"}, "leaseDuration": {"S": "1"}},
    ],
)
def test_a_strange_item_is_refused(item):
    with pytest.raises(CorruptFile):
        decode_lock_item(item)


def test_secrets_of_a_service_do_not_show():
    class Angry:
        class exceptions:  # noqa: N801 - as botocore has it
            ConditionalCheckFailedException = KeyError

        def put_item(self, **arguments):
            raise RuntimeError("cannot reach https://AKIA:very-secret-text@host/?X-Amz-Signature=abc")

    with pytest.raises(StorageError) as error:
        BotoLockTable(Angry(), "locks", "trips").put(LockItem("w", "v", 1), None)
    assert "very-secret" not in str(error.value)
    assert "abc" not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__context__ is None


# ---------------------------------------------------------------------------------------------------------------- Hive


class PlayedMetastore:
    """Speaks the four calls on a loopback socket, with thrift's own codec on its side."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.held = []
        self.asked = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(connection,), daemon=True).start()

    def talk(self, connection):
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.transport import TSocket, TTransport

        wire = TSocket.TSocket()
        wire.setHandle(connection)
        protocol = TBinaryProtocol(TTransport.TBufferedTransport(wire))
        from lakefmt._core.timeline.locks.thrift_wire import read_struct, write_struct

        try:
            while True:
                method, _, number = protocol.readMessageBegin()
                request = read_struct(protocol)[1][1]
                protocol.readMessageEnd()
                protocol.writeMessageBegin(method, 2, number)
                write_struct(protocol, self.answer(method, request))
                protocol.writeMessageEnd()
                protocol.trans.flush()
        except (EOFError, OSError, TTransport.TTransportException):
            connection.close()

    def answer(self, method, request):
        self.asked.append((method, request))
        if method == "lock":
            self.held.append(len(self.asked))
            return {0: (12, {1: (10, self.held[-1]), 2: (8, 1 if len(self.held) == 1 else 2)})}
        number = request[1][1]
        if number not in self.held:
            return {1: (12, {1: (11, "no such lock")})}
        if method == "check_lock":
            return {0: (12, {1: (10, number), 2: (8, 1 if self.held[0] == number else 2)})}
        if method == "unlock":
            self.held.remove(number)
        return {}


@pytest.fixture
def metastore():
    pytest.importorskip("thrift")
    played = PlayedMetastore()
    yield played
    played.listener.close()


def hive(played, retry_policy=RetryPolicy(0.2)):  # noqa: B008 - a constant
    settings = {
        "hoodie.write.lock.hivemetastore.database": "default",
        "hoodie.write.lock.hivemetastore.table": "trips",
        "hoodie.write.lock.hivemetastore.uris": f"thrift://127.0.0.1:{played.port}",
    }
    return open_lock(MemoryStore(), LockOptions("HiveMetastoreBasedLockProvider", True, retry_policy, settings), "w")


def test_a_metastore_is_asked_for_an_exclusive_lock(metastore):
    with hive(metastore).hold() as lease:
        lease.check()
        with pytest.raises(LockUnavailable, match=r"default\.trips"), hive(metastore).hold():
            pass
        assert len(metastore.held) == 1, "who gives up leaves the queue"
        metastore.held.clear()
        with pytest.raises(LeaseLost):
            lease.check()
    methods = [method for method, _ in metastore.asked]
    assert methods[0] == "lock"
    assert {*methods} == {"lock", "check_lock", "unlock"}
    assert metastore.asked[0][1][3], "the user is named"


def test_a_metastore_that_is_not_there_is_named():
    pytest.importorskip("thrift")
    with socket.socket() as bound:  # bound, but nobody listens
        bound.bind(("127.0.0.1", 0))
        played = type("Nobody", (), {"port": bound.getsockname()[1]})
        with pytest.raises(StorageError, match=f"127.0.0.1:{played.port}"), hive(played).hold():
            pass


# ------------------------------------------------------------------------------------------------ packages, settings


@pytest.mark.parametrize(
    ("provider", "settings", "extra"),
    [
        ("ZookeeperBasedLockProvider", {"zookeeper.url": "h", "zookeeper.base_path": "/b"}, "zookeeper"),
        ("DynamoDBBasedLockProvider", {"dynamodb.table": "t"}, "dynamodb"),
        (
            "HiveMetastoreBasedLockProvider",
            {"hivemetastore.database": "d", "hivemetastore.table": "t", "hivemetastore.uris": "thrift://h:1"},
            "hive",
        ),
    ],
)
def test_what_is_missing_is_named(provider, settings, extra, monkeypatch):
    def missing(name, package=None):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    said = {f"hoodie.write.lock.{key}": value for key, value in settings.items()}
    with pytest.raises(UnsupportedFeature, match=rf"lakefmt\[{extra}\]"):
        open_lock(MemoryStore(), LockOptions(f"some.package.{provider}", settings=said), "w")
    for key in said:
        rest = {k: v for k, v in said.items() if k != key}
        with pytest.raises(UnsupportedFeature, match=key):
            open_lock(MemoryStore(), LockOptions(provider, settings=rest), "w")


@pytest.mark.parametrize(
    ("provider", "key", "address"),
    [
        ("DynamoDBBasedLockProvider", "dynamodb.endpoint_url", "https://me:hunter22@host"),
        ("ZookeeperBasedLockProvider", "zookeeper.url", "me:hunter22@host:2181"),
        ("HiveMetastoreBasedLockProvider", "hivemetastore.uris", "thrift://me:hunter22@host:1"),
        ("HiveMetastoreBasedLockProvider", "hivemetastore.uris", "http://host:1"),
        ("HiveMetastoreBasedLockProvider", "hivemetastore.uris", "thrift://host:no"),
    ],
)
def test_an_address_that_is_none_or_carries_a_password_is_refused(provider, key, address):
    needed = ["dynamodb.table", "zookeeper.base_path", "hivemetastore.database", "hivemetastore.table"]
    said = {f"hoodie.write.lock.{name}": "x" for name in needed} | {f"hoodie.write.lock.{key}": address}
    options = LockOptions(provider, settings=said)
    with pytest.raises(InvalidInputError) as error:
        open_lock(MemoryStore(), options, "w")
    assert "hunter22" not in str(error.value) + repr(options)


def test_an_unknown_provider_is_named():
    with pytest.raises(UnsupportedFeature, match="EtcdLockProvider"):
        open_lock(MemoryStore(), LockOptions("EtcdLockProvider"), "w", SystemTimeSource())
