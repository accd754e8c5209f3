"""What Debezium 3.5.0 sent of two servers at work, and the rows that the servers had in the end (recorded by test_engine)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from lakefmt._core.cdc.debezium_decoder import DebeziumDecoder
from tests.cdc.applier import Applied, rows_in

RECORDED = json.loads(gzip.decompress((Path(__file__).parents[2] / "data/cdc/debezium.json.gz").read_bytes()))
LAST = 999_999


@pytest.mark.parametrize("name", RECORDED["messages"])
def test_the_rows_of_recorded_messages_are_those_that_the_server_had(name):
    applied, decoder = Applied(), DebeziumDecoder()
    messages = [
        (topic, *(None if part is None else part.encode() for part in parts))
        for topic, *parts in RECORDED["messages"][name]
    ]
    applied.apply_all(decoder.decode(messages))
    assert decoder.take_rejected() == []
    kind, mode = name.split("-")
    (table,) = applied.rows
    applied.rows[table].pop((LAST,))
    found = [[str(value) for value in row[:4]] for row in rows_in(applied, table)]
    expected = RECORDED["rows"][kind]
    if mode == "double":
        expected = [[*row[:3], str(float(row[3]))] for row in expected]
    assert sorted(found) == sorted(expected) != []
