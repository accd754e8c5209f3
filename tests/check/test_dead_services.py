"""What ``check`` says of a service whose process died is what ends it: the verb that it names finishes the service."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.check.findings import Kind
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.testing.stores import Fault, FaultMode, FaultStore, SimulatedCrash

SERVICES: dict[str, tuple[str, Callable[[Table], object]]] = {
    "table.compact()": ("mor", lambda t: t.compact()),
    "table.compact(log=True)": (
        "mor",
        lambda t: t.compact(log=True, options={"hoodie.log.compaction.blocks.threshold": 1}),
    ),
    "table.cluster()": ("cow", lambda t: t.cluster(columns="n")),
}


# Tables of version 6 have no log compactions.
@pytest.mark.parametrize(
    ("verb", "version"),
    [(verb, version) for verb in SERVICES for version in (6, 8, 9) if version > 6 or "log" not in verb],
)
def test_the_remedy_for_a_service_that_died_finishes_it(verb: str, version: int) -> None:
    table_type, serve = SERVICES[verb]
    # A dead process: its heartbeat is over at once.
    options = {
        "hoodie.client.heartbeat.tolerable.misses": 0,
        "lakefmt.durability": "none",
        "hoodie.parquet.small.file.limit": 0,
    }
    store = MemoryStore(f"remedy-{verb}-{version}")
    rows = pa.table({"id": ["a", "b"], "n": [1, 2]})
    table = lakefmt.create_table(
        store.url, data=rows, record_key="id", table_type=table_type, table_version=version, options=options
    )
    for _ in range(3):
        table.upsert(rows)
    dies = Fault(FaultMode.BEFORE, crash=True)
    done = re.compile(r"\.hoodie/(timeline/)?\d+(_\d+)?\.(commit|deltacommit|replacecommit)")
    faulty = FaultStore(store, lambda effect: dies if done.fullmatch(effect.name) else None)
    with pytest.raises(SimulatedCrash):
        serve(Table(TableClient(faulty, options)))
    after = Table(TableClient(store, options))
    (finding,) = after.check("full").findings
    assert finding.kind is Kind.STUCK_INSTANT
    assert verb in finding.remedy
    serve(after)
    assert after.check("full").is_clean
    assert after.read().sort_by("id") == rows
