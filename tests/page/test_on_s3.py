"""The page of a table on S3, GCS and Azure: it only reads, tells no secret, and on S3 what a look costs in requests is counted."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from benchmarks.storage import bench_requests
from tests.judges.azure import KEY, azure_options, azure_service
from tests.judges.gcs import gcs_options, gcs_service
from tests.page.kit import SCHEMA, id_of, served

pytestmark = [pytest.mark.slow]

#: The most requests of a first look at each view of a small table; the second look at a timeline costs a listing.
MOST = {"timeline": 16, "files": 12, "services": 16, "rows": 16}


VIEWS = ("timeline", "files", "rows", "services", "health")


def _show(folder: str, options: dict[str, Any], secret: str) -> None:
    """Make a table below a folder of a store, and assert that the page shows it as the library reads it, without an effect."""
    url = f"{folder}/trips"
    table = lakefmt.create_table(url, schema=SCHEMA, record_key="id", partition_by="city", storage_options=options)
    for number in range(3):
        table.upsert(pa.table({"id": [f"k{number}", "k"], "city": ["oslo", "são"], "v": [number, number]}, SCHEMA))
    before = {(each.name, each.size, each.mark) for each in table.client.store.list()}
    with served(folder, storage_options=options) as page:
        base = f"/tables/{id_of(page, 'trips')}"
        for view in VIEWS:
            reply = page.ask(f"{base}/{view}")
            assert (view, reply.status) == (view, 200)
            assert secret not in reply.text
        rows = page.facts(f"{base}/rows?limit=1000")
        assert sorted(json.loads(row[0]) for row in rows["values"]) == sorted(table.read()["id"].to_pylist())
        assert page.facts(f"{base}/files")["total"]["bytes"] == table.stats().size_bytes
        history = table.history().to_pylist()
        listed = page.facts(f"{base}/instants")["instants"][::-1]
        assert [(e["time"], e["inserts"]) for e in listed] == [(r["instant"], r["num_inserts"]) for r in history]
        assert all(each["inflight"] is not None for each in listed if each["action"] == "commit")
        assert page.facts(f"{base}/health")["is_clean"]
    assert {(each.name, each.size, each.mark) for each in table.client.store.list()} == before


@pytest.mark.gcs
@pytest.mark.newest_only("older releases of gcsfs know no conditions")
def test_a_table_on_gcs_is_shown():
    gcsfs = pytest.importorskip("gcsfs")
    with gcs_service() as endpoint:
        options = gcs_options(endpoint)
        fs = gcsfs.GCSFileSystem(**options, skip_instance_cache=True)
        fs.call("POST", "b", json={"name": "page"}, project="made-up", json_out=True)
        _show("gs://page/lake", options, endpoint)


@pytest.mark.azure
def test_a_table_on_azure_is_shown():
    adlfs = pytest.importorskip("adlfs")
    with azure_service() as endpoint:
        options = azure_options(endpoint)
        adlfs.AzureBlobFileSystem(**options, skip_instance_cache=True).mkdir("page")
        _show("abfs://page/lake", options, KEY)


@pytest.mark.s3
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
