"""Hudi's ``DynamoDBBasedLockProvider``: one item with a lease, as Amazon's lock client keeps it (docs/format.md, Locks).

The item carries a version that its holder changes with every beat. No clocks are compared: who sees one version for as
long as the item's lease says, by its own clock, may replace exactly that version.

Credentials come from where botocore finds them (environment, profile, role), never from settings. botocore alone is asked for:
boto3 wants another release of it than the client of S3 takes, and the two could not be installed together.
"""

from __future__ import annotations

import functools
import importlib
import secrets
from collections.abc import Callable
from typing import Any, Protocol

from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.remote.clients import ask_service, import_extra, without_password
from lakefmt._core.storage.time_source import TimeSource
from lakefmt._core.timeline.locks.api import LockHandle, LockOptions
from lakefmt.errors import CorruptFile, StorageError

__all__ = ["BotoLockTable", "DynamoDBLockBackend", "LockItem", "LockTable", "decode_lock_item", "open_dynamodb_backend"]

_KEY = "key"
_BEATS_PER_LEASE = 3
_MAX_LEASE_DIGITS = 12
_TABLE_POLL_SECONDS = 1.0
_VERSION_IS = "recordVersionNumber = :seen"


@dataclass(frozen=True, slots=True)
class LockItem:
    """The item: who has it, in which version, for how long from the moment that version was first seen."""

    owner: str
    version: str
    lease_ms: int
    released: bool = False


def decode_lock_item(item: object) -> LockItem:
    """Return what DynamoDB's answer says.

    Args:
        item: attributes by name, each ``{"S": text}``.

    Raises:
        CorruptFile: it is not an item of Amazon's lock client.

    Example:
        >>> said = {"ownerName": "a", "recordVersionNumber": "v", "leaseDuration": "20000"}
        >>> decode_lock_item({name: {"S": text} for name, text in said.items()})
        LockItem(owner='a', version='v', lease_ms=20000, released=False)
    """
    texts = (
        {name: value.get("S") for name, value in item.items() if isinstance(value, dict)}
        if isinstance(item, dict)
        else {}
    )
    owner, version, lease = (texts.get(name) for name in ("ownerName", "recordVersionNumber", "leaseDuration"))
    is_length = isinstance(lease, str) and lease.isdecimal() and len(lease) <= _MAX_LEASE_DIGITS
    if isinstance(owner, str) and isinstance(version, str) and is_length:
        return LockItem(owner, version, int(str(lease)), "isReleased" in texts)
    raise CorruptFile("the item of the DynamoDB lock is not of Amazon's lock client: choose another partition key")


class LockTable(Protocol):
    """The requests; everything may raise StorageError, which leaves open whether the request took effect."""

    @property
    def what(self) -> str:
        """Table and key, for people."""
        ...

    def get(self) -> LockItem | None:
        """Return the item as it is now."""
        ...

    def put(self, item: LockItem, seen: str | None) -> bool:
        """Put the item in the place of the version `seen` (None: of none); False when that is not there."""
        ...

    def delete(self, seen: str) -> bool:
        """Remove the item if its version is `seen`."""
        ...


class DynamoDBLockBackend:
    """The item of one table's lock."""

    longest_pause = 0.25

    def __init__(
        self,
        table: LockTable,
        owner: str,
        lease_seconds: float,
        time_source: TimeSource,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self._table = table
        self._owner = owner
        self._lease_ms = int(lease_seconds * 1000)
        self._time_source = time_source
        self._seen: tuple[str, float] | None = None
        self._prepare = prepare

    @property
    def what(self) -> str:
        """Table and key."""
        return self._table.what

    @property
    def hint(self) -> str:
        """A dead holder's lease ends by itself."""
        return "a dead holder's lease ends by itself"

    def acquire(self) -> LockHandle | None:
        """Put our item where there is none, where it was released, or where its lease is over."""
        if self._prepare is not None:
            self._prepare()
            self._prepare = None
        item = self._table.get()
        # Ours: a request that was given up for lost arrived after all.
        if item is not None and not item.released and item.owner != self._owner and not self._is_over(item):
            return None
        handle = DynamoDBLockHandle(self._table, self._owner, self._lease_ms)
        return handle if handle.put(None if item is None else item.version) else None

    def _is_over(self, item: LockItem) -> bool:
        now = self._time_source.monotonic()
        if self._seen is None or self._seen[0] != item.version:
            self._seen = (item.version, now)
        return now - self._seen[1] >= item.lease_ms / 1000

    def close(self) -> None:
        """What was seen, and when, is remembered: a lease may be longer than one wait."""


class DynamoDBLockHandle:
    """Our item."""

    def __init__(self, table: LockTable, owner: str, lease_ms: int) -> None:
        self._table = table
        self._owner = owner
        self._lease_ms = lease_ms
        self.token = ""
        self.valid_seconds: float | None = lease_ms / 1000
        self.beat_seconds: float | None = lease_ms / 1000 / _BEATS_PER_LEASE

    def put(self, seen: str | None) -> bool:
        """Put a new version of our item in the place of `seen`."""
        item = LockItem(self._owner, secrets.token_hex(16), self._lease_ms)
        if not self._table.put(item, seen):
            # botocore repeats a request whose answer was lost: the refusal may have met our own item.
            stored = self._table.get()
            if stored is None or stored.version != item.version:
                return False
        self.token = item.version
        return True

    def renew(self) -> bool:
        """Change the version, if it is still ours; after a lost answer ours may be another than the last one known."""
        return self.put(self.token) or (self.prove() and self.put(self.token))

    def prove(self) -> bool:
        """Read the item."""
        item = self._table.get()
        if item is None or item.owner != self._owner or item.released:
            return False
        self.token = item.version
        return True

    def release(self) -> None:
        """Remove the item, if it is ours."""
        if not self._table.delete(self.token) and self.prove():
            self._table.delete(self.token)


class BotoLockTable:
    """The item over botocore's client of DynamoDB."""

    def __init__(self, client: Any, table: str, key: str) -> None:
        self._client = client
        self._table = table
        self._key = key

    @property
    def what(self) -> str:
        """Table and key."""
        return f"the lock {self._key!r} in DynamoDB's table {self._table!r}"

    def get(self) -> LockItem | None:
        """Return the item as it is now (a consistent read)."""
        item = self._ask("read", self._client.get_item, Key={_KEY: {"S": self._key}}, ConsistentRead=True).get("Item")
        return None if item is None else decode_lock_item(item)

    def put(self, item: LockItem, seen: str | None) -> bool:
        """Put the item in the place of the version `seen` (None: of none)."""
        values = {
            _KEY: self._key,
            "ownerName": item.owner,
            "leaseDuration": str(item.lease_ms),
            "recordVersionNumber": item.version,
        }
        attributes = {name: {"S": value} for name, value in values.items()}
        if seen is None:
            condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(#key)"}
            condition["ExpressionAttributeNames"] = {"#key": _KEY}
        else:
            condition = {"ConditionExpression": _VERSION_IS, "ExpressionAttributeValues": {":seen": {"S": seen}}}
        return self._conditional("write", self._client.put_item, Item=attributes, **condition)

    def delete(self, seen: str) -> bool:
        """Remove the item if its version is `seen`."""
        values = {":seen": {"S": seen}}
        return self._conditional(
            "release",
            self._client.delete_item,
            Key={_KEY: {"S": self._key}},
            ConditionExpression=_VERSION_IS,
            ExpressionAttributeValues=values,
        )

    def make_table(self, billing_mode: str, capacity: tuple[int, int], seconds: float, time_source: TimeSource) -> None:
        """Create the table unless it is there, and wait until it can be used.

        Raises:
            StorageError: it cannot be made, or is not ready after `seconds`.
        """
        deadline = time_source.monotonic() + seconds
        while (status := self._status()) != "ACTIVE":
            if status is None:
                self._create(billing_mode, capacity)
            if time_source.monotonic() >= deadline:
                raise StorageError(f"DynamoDB's table {self._table!r} is not ready after {seconds:g} s", transient=True)
            time_source.sleep(_TABLE_POLL_SECONDS)

    def _status(self) -> str | None:
        def look() -> str | None:
            try:
                return str(self._client.describe_table(TableName=self._table)["Table"]["TableStatus"])
            except self._client.exceptions.ResourceNotFoundException:
                return None

        return ask_service(self.what, "look for", look)

    def _create(self, billing_mode: str, capacity: tuple[int, int]) -> None:
        more: dict[str, Any] = {}
        if billing_mode == "PROVISIONED":
            more["ProvisionedThroughput"] = {"ReadCapacityUnits": capacity[0], "WriteCapacityUnits": capacity[1]}

        def make() -> None:
            try:
                self._client.create_table(
                    TableName=self._table,
                    KeySchema=[{"AttributeName": _KEY, "KeyType": "HASH"}],
                    AttributeDefinitions=[{"AttributeName": _KEY, "AttributeType": "S"}],
                    BillingMode=billing_mode,
                    **more,
                )
            except self._client.exceptions.ResourceInUseException:
                return  # another writer was first

        ask_service(self.what, "make the table of", make)

    def _conditional(self, doing: str, call: Callable[..., Any], **arguments: Any) -> bool:
        def act() -> bool:
            try:
                call(TableName=self._table, **arguments)
            except self._client.exceptions.ConditionalCheckFailedException:
                return False
            return True

        return ask_service(self.what, doing, act)

    def _ask(self, doing: str, call: Callable[..., Any], **arguments: Any) -> Any:
        return ask_service(self.what, doing, functools.partial(call, TableName=self._table, **arguments))


def open_dynamodb_backend(options: LockOptions, owner: str, time_source: TimeSource) -> DynamoDBLockBackend:
    """Return the keeper that ``hoodie.write.lock.dynamodb.*`` describes; its table is made when it is missing.

    Raises:
        UnsupportedFeature: a setting or the package botocore is missing.
        InvalidInputError: the address carries a password.
        StorageError: no client can be made of these settings.
    """
    table, key = options.required("dynamodb.table"), options.text("dynamodb.partition_key") or options.table_name()
    endpoint = options.text("dynamodb.endpoint_url")
    if endpoint is not None:
        endpoint = without_password("hoodie.write.lock.dynamodb.endpoint_url", endpoint)
        endpoint = endpoint if "://" in endpoint else f"https://{endpoint}"
    import_extra(lambda: importlib.import_module("botocore"), options.short_name, "dynamodb")
    region = options.text("dynamodb.region")
    lock_table = BotoLockTable(ask_service("DynamoDB", "open", lambda: _client(region, endpoint)), table, key)
    capacity = (int(options.number("dynamodb.read_capacity", 20)), int(options.number("dynamodb.write_capacity", 10)))
    seconds = options.number("dynamodb.table_creation_timeout", 600_000) / 1000
    mode = options.text("dynamodb.billing_mode") or "PAY_PER_REQUEST"

    def prepare() -> None:
        lock_table.make_table(mode, capacity, seconds, time_source)

    return DynamoDBLockBackend(lock_table, owner, options.retry_policy.seconds, time_source, prepare)


@functools.lru_cache(maxsize=8)
def _client(region: str | None, endpoint: str | None) -> Any:
    # Kept: making one takes a tenth of a second, and threads may share it.
    session = import_extra(
        lambda: importlib.import_module("botocore.session"), "DynamoDBBasedLockProvider", "dynamodb"
    ).get_session()
    where = region or session.get_config_variable("region") or "us-east-1"
    return session.create_client("dynamodb", region_name=where, endpoint_url=endpoint)
