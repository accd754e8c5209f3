"""Thrift's wire: what is read is sent back byte by byte, also where it is not understood; hostile answers end in an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("thrift")

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TTransport import TMemoryBuffer

from lakefmt._core.timeline.locks.thrift_wire import metastore_addresses, read_struct, write_struct
from lakefmt.errors import InvalidInputError

NUMBERS = st.integers(1, 30)
SCALARS = st.one_of(
    st.tuples(st.just(2), st.booleans()),
    st.tuples(st.just(3), st.integers(-128, 127)),
    st.tuples(st.just(4), st.floats(allow_nan=False)),
    st.tuples(st.just(6), st.integers(-(1 << 15), (1 << 15) - 1)),
    st.tuples(st.just(8), st.integers(-(1 << 31), (1 << 31) - 1)),
    st.tuples(st.just(10), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.tuples(st.just(11), st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape"))),
)
TEXTS = st.lists(st.text(max_size=5), max_size=3)
VALUES = st.recursive(
    SCALARS | TEXTS.map(lambda items: (15, (11, items))),
    lambda inner: st.one_of(
        st.dictionaries(NUMBERS, inner, max_size=3).map(lambda fields: (12, fields)),
        st.lists(st.dictionaries(NUMBERS, inner, max_size=2), max_size=2).map(lambda items: (15, (12, items))),
        st.dictionaries(st.text(max_size=3), st.dictionaries(NUMBERS, inner, max_size=2), max_size=2).map(
            lambda items: (13, (11, 12, [*items.items()]))
        ),
    ),
    max_leaves=6,
)


def written(fields):
    buffer = TMemoryBuffer()
    write_struct(TBinaryProtocol(buffer), fields)
    return buffer.getvalue()


def read(raw):
    return read_struct(TBinaryProtocol(TMemoryBuffer(raw), string_length_limit=1 << 20, container_length_limit=1 << 20))


@given(st.dictionaries(NUMBERS, VALUES, max_size=5))
def test_what_is_read_is_written_back_byte_by_byte(fields):
    raw = written(fields)
    again = read(raw)
    assert again == fields
    assert written(again) == raw


@given(st.binary(max_size=200))
def test_bytes_of_anybody_end_in_a_struct_or_an_error(raw):
    try:
        fields = read(raw)
    except (MemoryError, RecursionError):
        raise
    except Exception:  # every other one becomes a StorageError where answers are read
        return
    assert isinstance(fields, dict)


@pytest.mark.parametrize("opening", [b"\x0c\x00\x01", b"\x0f\x00\x01\x0f\x00\x00\x00\x01"])
def test_an_answer_that_is_nested_without_end_is_refused(opening):
    nested = opening * 100 if opening[0] == 12 else opening + b"\x0f\x00\x00\x00\x01" * 100
    with pytest.raises(ValueError, match="nested too deeply"):
        read(nested)


@pytest.mark.parametrize("uris", ["http://h:1", "thrift://h:no", "thrift://me:hunter22@h", "", "thrift://"])
def test_what_is_no_address_is_refused_without_its_password(uris):
    with pytest.raises(InvalidInputError) as error:
        metastore_addresses(uris, "uris")
    assert "hunter22" not in str(error.value)
