"""Read delete blocks of content versions 1 and 2: Java objects of Kryo 4 (docs/format.md, Delete blocks). Pure.

Hudi wrote these up to table version 5: ``HoodieKey[]`` (key, partition) and ``DeleteRecord[]``
(key, partition, ordering value). Kryo names each class once, then numbers it, and refers back to
objects written before, so records are read one by one. Other classes are refused; nothing is
instantiated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from lakefmt.errors import UnsupportedFeature

__all__ = ["read_kryo_deletes"]

_KEY = "org.apache.hudi.common.model.HoodieKey"
_DELETE = "org.apache.hudi.common.model.DeleteRecord"
#: Kryo's registration ids plus two: 0 is null, 1 a class by name.
_INT, _STRING, _FLOAT, _BOOLEAN, _LONG, _DOUBLE = 2, 3, 4, 5, 9, 10
_MAX_CLASSES = 3


class MalformedKryo(ValueError):
    """The bytes are not those of Kryo for these classes; used by the readers of delete blocks only."""


#: Keys, partition paths and, by type, the ordering values, None where a value has another type.
_KryoDeletes = tuple[list[str], list[str], dict[str, list[object]]]


def read_kryo_deletes(data: bytes) -> _KryoDeletes:
    r"""Return the keys, partition paths and ordering values by type.

    Raises:
        MalformedKryo: the bytes are damaged.
        IndexError: the bytes end early.
        UnsupportedFeature: an ordering value of an unknown class.

    Example:
        >>> name = b"[Lorg.apache.hudi.common.model.HoodieKey" + bytes([ord(";") | 128])
        >>> read_kryo_deletes(b"\1\0" + name + b"\1\1")
        ([], [], {})
    """
    reader = _Reader(data)
    deletes = reader.array()
    if reader.at != len(data):
        raise MalformedKryo(f"{len(data) - reader.at} bytes behind the last record")
    return deletes


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.names: list[str] = []
        #: All objects that may be referred to, in order of their start.
        self.objects: list[object] = []

    # ------------------------------------------------------------------------------------------------ Kryo's values

    def number(self) -> int:
        """Return an unsigned varint."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise MalformedKryo("number of more than 64 bits")

    def signed(self) -> int:
        encoded = self.number()
        return (encoded >> 1) ^ -(encoded & 1)

    def text(self) -> str:
        """Return a string: ASCII with the high bit of its last byte set, or a count of UTF-16 units and UTF-8."""
        first = self.data[self.at]
        if first & 128 == 0:
            begin = self.at
            while self.data[self.at] < 128:
                self.at += 1
            self.at += 1
            return (self.data[begin : self.at - 1] + bytes([self.data[self.at - 1] & 127])).decode("ascii")
        self.at += 1
        count = first & 63
        shift = 6
        while first & (64 if shift == 6 else 128):
            first = self.data[self.at]
            self.at += 1
            count |= (first & 127) << shift
            shift += 7
        if not count:
            raise MalformedKryo("text is null")
        return self._units(count - 1)

    def _units(self, count: int) -> str:
        if count > len(self.data) - self.at:
            raise MalformedKryo(f"text of {count} characters, {len(self.data) - self.at} bytes left")
        begin = self.at
        for _ in range(count):
            byte = self.data[self.at]
            self.at += 1 if byte < 128 else 2 if byte < 224 else 3
        # Units beyond the basic plane are surrogates of three bytes each.
        raw = self.data[begin : self.at].decode("utf-8", "surrogatepass")
        return raw.encode("utf-16-le", "surrogatepass").decode("utf-16-le")

    def reference(self, make: Callable[[], object]) -> object:
        """Return an object written before, or the result of `make`."""
        mark = self.number()
        if mark == 0:
            return None
        if mark > 1:
            return self.objects[mark - 2]
        slot = len(self.objects)
        self.objects.append(None)
        self.objects[slot] = made = make()
        return made

    def class_name(self) -> str | None:
        """Return the class name of the next object, None for null."""
        mark = self.number()
        if mark == 0:
            return None
        if mark != 1:
            return f"#{mark}"
        number = self.number()
        if number == len(self.names) < _MAX_CLASSES:
            self.names.append(self.text())
        return self.names[number]

    # ------------------------------------------------------------------------------------------------ Hudi's objects

    def array(self) -> _KryoDeletes:
        name = self.class_name()
        if name not in (f"[L{_KEY};", f"[L{_DELETE};"):
            raise MalformedKryo(f"it holds {name!r:.80}")
        if self.number() != 1:
            raise MalformedKryo("no array of records")
        self.objects.append(None)
        count = self.number() - 1
        if not 0 <= count <= len(self.data) - self.at:
            raise MalformedKryo(f"{count} records announced, {len(self.data) - self.at} bytes left")
        keys, partitions, values = [], [], []
        for _ in range(count):
            (key, partition), value = self.record() if name == f"[L{_DELETE};" else (self.key(), None)
            keys.append(key)
            partitions.append(partition)
            values.append(value)
        return keys, partitions, _by_type(values)

    def record(self) -> tuple[tuple[str, str], object]:
        if self.class_name() != _DELETE:
            raise MalformedKryo("a record is no DeleteRecord")
        fields = self.reference(lambda: (self.key(), self.ordering()))
        if not isinstance(fields, tuple) or not isinstance(fields[0], tuple):
            raise MalformedKryo("a record is no DeleteRecord")
        return fields

    def key(self) -> tuple[str, str]:
        if self.class_name() != _KEY:
            raise MalformedKryo("a key is no HoodieKey")
        fields = self.reference(self._key_fields)
        if not isinstance(fields, tuple) or not isinstance(fields[0], str):
            raise MalformedKryo("a key is no HoodieKey")
        return fields

    def _key_fields(self) -> tuple[str, str]:
        partition, key = self.reference(self.text), self.reference(self.text)
        if not isinstance(key, str) or not isinstance(partition, str):
            raise MalformedKryo("a key or partition path is no text")
        return key, partition

    def ordering(self) -> object:
        name = self.class_name()
        if name is None:
            return None
        if name == f"#{_STRING}":
            return self.reference(self.text)
        if name == f"#{_INT}":
            return _Int(self.signed())
        if name == f"#{_LONG}":
            return self.signed()
        if name == f"#{_BOOLEAN}":
            self.at += 1
            return self.data[self.at - 1] == 1
        if name in (f"#{_FLOAT}", f"#{_DOUBLE}"):
            layout, size = (">f", 4) if name == f"#{_FLOAT}" else (">d", 8)
            self.at += size
            return float(struct.unpack_from(layout, self.data, self.at - size)[0])
        raise UnsupportedFeature(f"a delete block of an old table has ordering values of class {name!r:.80}")


class _Int(int):
    """A Java Integer, distinct from Long."""


_TYPES: tuple[tuple[type, str], ...] = (
    (_Int, "int"),
    (bool, "boolean"),
    (int, "long"),
    (float, "double"),
    (str, "string"),
)


def _by_type(values: list[object]) -> dict[str, list[object]]:
    names = [next((name for kind, name in _TYPES if isinstance(value, kind)), None) for value in values]
    return {
        name: [value if its == name else None for value, its in zip(values, names, strict=True)]
        for _, name in _TYPES
        if name in names
    }
