"""Bytes of the log that nobody wrote: an error with a type, never another one, and no memory without end."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from lakefmt._core.cdc.mysql.log import (
    Gtid,
    covers,
    decompress,
    lost_position,
    lowest,
    parse_gtids,
    read_gtid,
    read_query,
    read_rows,
    text_of,
)
from lakefmt._core.cdc.mysql.rows import RowBuffer, read_table_map
from lakefmt.errors import InvalidInputError, LakefmtError, SourceRefused

#: What the loop turns into an error of the source.
OF_THE_LOOP = (IndexError, KeyError, ValueError, struct.error)
MAP = bytes.fromhex("120000000000 0100 01 64 00 01 74 00 03 03 0f fc 03 78 00 02 06".replace(" ", "")) + (
    b"\x01\x01\x00\x02\x01\x2d\x04\x07\x02id\x01v\x01w\x08\x01\x00"
)
ROWS = bytes.fromhex("120000000000 0100 03 07 00 01000000 01 61 0200 6262".replace(" ", ""))


def rows_of(table, rows):
    described = read_table_map(table, {})
    event = read_rows(23, rows)
    buffer = RowBuffer(described.columns, {45: "utf8mb4"})
    count = buffer.add(event.body, event.begin)
    return count, [array.to_pylist() for array in buffer.take()], described.keys


def test_the_bytes_of_this_test_are_rows():
    assert rows_of(MAP, ROWS) == (1, [[1], ["a"], ["bb"]], ("id",))


@pytest.mark.parametrize("seed", range(40))
def test_damaged_events_end_with_errors_that_are_known(seed):
    draw = random.Random(seed)
    for _ in range(50):
        table, rows = bytearray(MAP), bytearray(ROWS)
        for _ in range(draw.randrange(1, 4)):
            damaged = draw.choice((table, rows))
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        if draw.random() < 0.3:
            del rows[draw.randrange(len(rows)) :]
        try:
            rows_of(bytes(table), bytes(rows))
        except (LakefmtError, *OF_THE_LOOP):
            continue
        for read in (read_gtid, read_query):
            try:
                read(bytes(rows))
            except OF_THE_LOOP:
                continue


def test_what_is_compressed_is_no_larger_than_it_says():
    plain = b"x" * 1_000_000
    packed = b"\x83" + len(plain).to_bytes(3, "big") + zlib.compress(plain)
    assert decompress(packed) == plain
    for damaged in (
        b"\x81\x05" + zlib.compress(plain),
        b"\x84\xff\xff\xff\xff" + zlib.compress(plain),
        b"\x93" + packed[1:],
        b"\x83\x20\x00\x00" + zlib.compress(plain),
    ):
        with pytest.raises(SourceRefused):
            decompress(damaged)


class TestPositions:
    """Transactions by domain."""

    def test_a_text_and_back(self):
        gtids = parse_gtids("0-1-5, 7-2-12")
        assert gtids == {0: Gtid(1, 5), 7: Gtid(2, 12)}
        assert parse_gtids(text_of(gtids)) == gtids
        assert parse_gtids("") == {}
        with pytest.raises(InvalidInputError):
            parse_gtids("uuid:1-5")

    def test_what_is_read_from_is_before_all(self):
        first, second = parse_gtids("0-1-5,7-1-9"), parse_gtids("0-1-8,9-1-1")
        assert text_of(lowest([first, second])) == "0-1-5"
        assert covers(first, lowest([first, second]))
        assert covers(second, lowest([first, second]))
        assert not covers(first, second)

    def test_a_position_of_another_server_and_one_of_the_future(self):
        now = parse_gtids("0-1-5")
        assert lost_position(now, parse_gtids("0-1-5")) is None
        assert "ahead" in str(lost_position(now, parse_gtids("0-1-6")))
        assert "domain 3" in str(lost_position(now, parse_gtids("0-1-5,3-1-1")))
