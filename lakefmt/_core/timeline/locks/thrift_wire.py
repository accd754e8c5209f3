"""Thrift's binary protocol over one socket, without generated classes: what a Hive metastore is spoken to with.

A struct is a dictionary of its fields by number, each with its Thrift type, so that what is not understood here is sent back
unchanged. Text is kept byte by byte, also where it is no UTF-8.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from lakefmt._core.storage.remote_clients import ask_service, import_extra, without_password
from lakefmt.errors import InvalidInputError, LakefmtError, StorageError

__all__ = [
    "Struct",
    "ThriftConnection",
    "Value",
    "flag",
    "int16",
    "int32",
    "int64",
    "metastore_addresses",
    "read_struct",
    "struct",
    "structs",
    "text",
    "text_map",
    "texts",
    "write_struct",
]

#: A value on its way: its Thrift type and itself (of a struct its fields, of a list the type of its items and these).
Value = tuple[int, Any]
Struct = dict[int, Value]

_STOP, _BOOL, _BYTE, _DOUBLE, _I16, _I32, _I64, _STRING, _STRUCT, _MAP, _SET, _LIST = (
    0,
    2,
    3,
    4,
    6,
    8,
    10,
    11,
    12,
    13,
    14,
    15,
)
_CALL, _EXCEPTION = 1, 3
_MAX_DEPTH: Final = 12
_MAX_TEXT_BYTES: Final = 1 << 22
_MAX_ITEMS: Final = 1 << 20
_PORT: Final = 9083


def text(value: str) -> Value:
    """Return a text as a value."""
    return _STRING, value


def flag(value: bool) -> Value:
    """Return a truth value."""
    return _BOOL, value


def int16(value: int) -> Value:
    """Return a number of two bytes."""
    return _I16, value


def int32(value: int) -> Value:
    """Return a number of four bytes."""
    return _I32, value


def int64(value: int) -> Value:
    """Return a number of eight bytes."""
    return _I64, value


def struct(fields: Struct) -> Value:
    """Return fields as a value."""
    return _STRUCT, fields


def structs(items: Iterable[Struct]) -> Value:
    """Return a list of structs."""
    return _LIST, (_STRUCT, [*items])


def texts(items: Iterable[str]) -> Value:
    """Return a list of texts."""
    return _LIST, (_STRING, [*items])


def text_map(items: Mapping[str, str]) -> Value:
    """Return texts by text."""
    return _MAP, (_STRING, _STRING, [*items.items()])


class WireProtocol(Protocol):
    """What is asked of Thrift's ``TBinaryProtocol``."""

    def writeMessageBegin(self, name: str, type: int, seqid: int) -> None: ...  # noqa: N802  (Thrift's name, as all of these)
    def writeMessageEnd(self) -> None: ...  # noqa: N802
    def writeFieldBegin(self, name: str, type: int, id: int) -> None: ...  # noqa: N802
    def writeFieldStop(self) -> None: ...  # noqa: N802
    def writeListBegin(self, etype: int, size: int) -> None: ...  # noqa: N802
    def writeMapBegin(self, ktype: int, vtype: int, size: int) -> None: ...  # noqa: N802
    def writeBinary(self, str_val: bytes) -> None: ...  # noqa: N802
    def writeBool(self, bool_val: bool) -> None: ...  # noqa: N802
    def writeByte(self, byte: int) -> None: ...  # noqa: N802
    def writeDouble(self, dub: float) -> None: ...  # noqa: N802
    def writeI16(self, i16: int) -> None: ...  # noqa: N802
    def writeI32(self, i32: int) -> None: ...  # noqa: N802
    def writeI64(self, i64: int) -> None: ...  # noqa: N802
    def readMessageBegin(self) -> tuple[str, int, int]: ...  # noqa: N802
    def readMessageEnd(self) -> None: ...  # noqa: N802
    def readFieldBegin(self) -> tuple[str | None, int, int]: ...  # noqa: N802
    def readListBegin(self) -> tuple[int, int]: ...  # noqa: N802
    def readMapBegin(self) -> tuple[int, int, int]: ...  # noqa: N802
    def readBinary(self) -> bytes: ...  # noqa: N802
    def readBool(self) -> bool: ...  # noqa: N802
    def readByte(self) -> int: ...  # noqa: N802
    def readDouble(self) -> float: ...  # noqa: N802
    def readI16(self) -> int: ...  # noqa: N802
    def readI32(self) -> int: ...  # noqa: N802
    def readI64(self) -> int: ...  # noqa: N802


class ThriftConnection:
    """Calls over one socket to the first of some addresses that answers.

    Args:
        addresses: host and port of each.
        seconds: how long a connection or an answer is waited for.
        needs: what wants it, for the message when the package thrift is missing.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]], seconds: float, needs: str) -> None:
        sockets: Any = import_extra(lambda: importlib.import_module("thrift.transport.TSocket"), needs, "hive")
        transports: Any = import_extra(lambda: importlib.import_module("thrift.transport.TTransport"), needs, "hive")
        protocols: Any = import_extra(lambda: importlib.import_module("thrift.protocol.TBinaryProtocol"), needs, "hive")
        self.what = f"the Hive metastore at {addresses[0][0]}:{addresses[0][1]}"
        self._calls = 0
        failure: LakefmtError | None = None
        for host, port in addresses:
            wire = sockets.TSocket(host, port)
            wire.setTimeout(int(seconds * 1000))
            self._transport = transports.TBufferedTransport(wire)
            self._protocol: WireProtocol = protocols.TBinaryProtocol(
                self._transport, string_length_limit=_MAX_TEXT_BYTES, container_length_limit=_MAX_ITEMS
            )
            try:
                ask_service(self.what, "connect to", self._transport.open)
            except StorageError as error:
                failure = error
            else:
                return
        raise failure or StorageError(f"{self.what} has no address")

    def call(self, method: str, request: Struct) -> Struct:
        """Return the fields of the answer: 0 is the result, others are exceptions that the call declares.

        Raises:
            StorageError: no answer came, or the service does not know the call or failed in it.
        """

        def exchange() -> tuple[int, Struct]:
            protocol = self._protocol
            self._calls += 1
            protocol.writeMessageBegin(method, _CALL, self._calls)
            write_struct(protocol, request)
            protocol.writeMessageEnd()
            self._transport.flush()
            _, code, sequence = protocol.readMessageBegin()
            answer = read_struct(protocol)
            protocol.readMessageEnd()
            if sequence != self._calls:
                raise ConnectionError("an answer to another call came")
            return code, answer

        try:
            code, answer = ask_service(self.what, f"ask for {method} of", exchange)
        except StorageError:
            self.close()  # half an answer may be on its way: nothing after it would be understood
            raise
        if code == _EXCEPTION:
            reason = answer.get(1, text(""))[1]
            raise StorageError(f"{self.what} failed in {method}: {str(reason)[:200]}", transient=True)
        return answer

    def close(self) -> None:
        """End the connection."""
        self._transport.close()


def write_struct(protocol: WireProtocol, fields: Struct) -> None:
    """Write fields and the mark of their end."""
    for field, (code, value) in fields.items():
        protocol.writeFieldBegin("", code, field)
        _write(protocol, code, value)
    protocol.writeFieldStop()


def _write(protocol: WireProtocol, code: int, value: Any) -> None:
    if code == _STRUCT:
        write_struct(protocol, value)
    elif code in (_LIST, _SET):
        item_type, items = value
        protocol.writeListBegin(item_type, len(items))  # a set is written as a list is
        for item in items:
            _write(protocol, item_type, item)
    elif code == _MAP:
        key_type, value_type, pairs = value
        protocol.writeMapBegin(key_type, value_type, len(pairs))
        for key, item in pairs:
            _write(protocol, key_type, key)
            _write(protocol, value_type, item)
    elif code == _STRING:
        protocol.writeBinary(value.encode("utf-8", "surrogateescape"))
    else:
        _writers(protocol)[code](value)


def _writers(protocol: WireProtocol) -> dict[int, Callable[[Any], None]]:
    return {
        _BOOL: protocol.writeBool,
        _BYTE: protocol.writeByte,
        _DOUBLE: protocol.writeDouble,
        _I16: protocol.writeI16,
        _I32: protocol.writeI32,
        _I64: protocol.writeI64,
    }


def read_struct(protocol: WireProtocol, depth: int = 0) -> Struct:
    """Return the fields that come next.

    Raises:
        ValueError: they are nested too deeply, or of a type that Thrift does not have.
    """
    if depth > _MAX_DEPTH:
        raise ValueError("the answer is nested too deeply")
    fields: Struct = {}
    while True:
        _, code, field = protocol.readFieldBegin()
        if code == _STOP:
            return fields
        fields[field] = code, _read(protocol, code, depth)


def _read(protocol: WireProtocol, code: int, depth: int) -> Any:
    if code == _STRUCT:
        return read_struct(protocol, depth + 1)
    if code in (_LIST, _SET):
        item_type, size = protocol.readListBegin()
        if depth >= _MAX_DEPTH:
            raise ValueError("the answer is nested too deeply")
        return item_type, [_read(protocol, item_type, depth + 1) for _ in range(size)]
    if code == _MAP:
        key_type, value_type, size = protocol.readMapBegin()
        if depth >= _MAX_DEPTH:
            raise ValueError("the answer is nested too deeply")
        pairs = [(_read(protocol, key_type, depth + 1), _read(protocol, value_type, depth + 1)) for _ in range(size)]
        return key_type, value_type, pairs
    if code == _STRING:
        return protocol.readBinary().decode("utf-8", "surrogateescape")
    readers = {
        _BOOL: protocol.readBool,
        _BYTE: protocol.readByte,
        _DOUBLE: protocol.readDouble,
        _I16: protocol.readI16,
        _I32: protocol.readI32,
        _I64: protocol.readI64,
    }
    if code not in readers:
        raise ValueError(f"the answer holds a value of the unknown type {code}")
    return readers[code]()


def metastore_addresses(uris: str, setting: str) -> list[tuple[str, int]]:
    """Return host and port of each address of a text such as ``thrift://a:9083,thrift://b``.

    Raises:
        InvalidInputError: an address cannot be understood, or carries a password.

    Example:
        >>> metastore_addresses("thrift://a:1,thrift://b", "uris")
        [('a', 1), ('b', 9083)]
    """
    return [_address(uri.strip(), setting) for uri in uris.split(",")]


def _address(uri: str, setting: str) -> tuple[str, int]:
    parts = urlsplit(without_password(setting, uri))
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme != "thrift" or not host:
        raise InvalidInputError(f"{setting} is thrift://host:port, or several with commas between them")
    return host, port or _PORT
