"""The page of a table on S3: it only reads, tells no secret, and what a look costs in requests is counted."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakefmt
from benchmarks.storage import bench_requests
from tests.page.kit import SCHEMA, id_of, served

pytestmark = [pytest.mark.s3, pytest.mark.slow]

#: The most requests of a first look at each view of a small table; the second look at a timeline costs a listing.
MOST = {"timeline": 16, "files": 12, "services": 16, "rows": 16}


def test_a_table_on_s3_is_shown(tmp_path):
    pytest.importorskip("s3fs")
    with bench_requests.counted_service() as (options, requests):
        secret = str(options["secret"])
        url = f"s3://{bench_requests.BUCKET}/lake/trips"
        table = lakefmt.create_table(url, schema=SCHEMA, record_key="id", partition_by="city", storage_options=options)
        for number in range(3):
            table.upsert(pa.table({"id": [f"k{number}", "k"], "city": ["oslo", "rome"], "v": [number, number]}, SCHEMA))
        with served(f"s3://{bench_requests.BUCKET}/lake", storage_options=options) as page:
            base = f"/tables/{id_of(page)}"
            costs = {}
            for view, most in MOST.items():
                page.server.tables.find(id_of(page)).forget()
                before = len(requests)
                reply = page.ask(f"{base}/{view}")
                assert reply.status == 200
                assert secret not in reply.text
                costs[view] = requests[before:]
                assert len(costs[view]) <= most, (view, len(costs[view]), costs[view])
            assert page.facts(f"{base}/rows")["num_rows"] == table.read().num_rows
            page.server.tables.find(id_of(page)).forget()
            before = len(requests)
            page.facts(f"{base}/timeline")
            assert len(requests) - before <= 2
            assert not [
                each for cost in costs.values() for each in cost if str(each).startswith(("PUT", "POST", "DELETE"))
            ]
