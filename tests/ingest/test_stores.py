"""Files in buckets and containers: the same files as on a path, also where tables lie beside them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from benchmarks.storage.s3_server import s3_server
from lakefmt._core.ingest.options import resolve_table_job
from lakefmt._core.ingest.run import Ingester
from lakefmt.errors import SourceUnavailable
from tests.ingest.ingest_kit import Clock
from tests.judges.azure import azure_options, azure_service
from tests.judges.gcs import gcs_options, gcs_service


@pytest.fixture(params=["s3", "gs", "az"], scope="module")
def bucket(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """A bucket: its URL, the options, and its file system."""
    kind = request.param
    if kind == "s3":
        pytest.importorskip("s3fs")
        with s3_server() as server:
            host, port = server.get_host_and_port()
            options = {
                "key": "AKIA",
                "secret": "s",
                "endpoint_url": f"http://{host}:{port}",
                "client_kwargs": {"region_name": "us-east-1"},
            }
            files = fsspec.filesystem("s3", **options, skip_instance_cache=True, use_listings_cache=False)
            files.call_s3("create_bucket", Bucket="ingest")
            yield "s3://ingest", options, files
    elif kind == "gs":
        pytest.importorskip("gcsfs")
        with gcs_service() as endpoint:
            options = gcs_options(endpoint)
            files = fsspec.filesystem("gs", **options, skip_instance_cache=True, use_listings_cache=False)
            files.call("POST", "b", json={"name": "ingest"}, project="made-up", json_out=True)
            yield "gs://ingest", options, files
    else:
        pytest.importorskip("adlfs")
        with azure_service() as endpoint:
            options = azure_options(endpoint)
            files = fsspec.filesystem("az", **options, skip_instance_cache=True, use_listings_cache=False)
            files.mkdir("ingest")
            yield "az://ingest", options, files


@pytest.mark.slow
def test_files_of_a_bucket_come_into_a_table_of_it(bucket, tmp_path):
    url, options, files = bucket
    place = url.partition("://")[2]
    clock = Clock(time.time() + 100)

    def run(**more: Any) -> int:
        given = {"source": f"{url}/in/**/*.*", "table": f"{url}/trips", "key": "id", "late_window": 3600, **more}
        resolved, _ = resolve_table_job([("test", given)])
        ingester = Ingester([resolved], storage_options=options, clock=clock, time_source=clock, attempts=0)
        return ingester.run("until_idle").tables[0].rows

    files.pipe_file(f"{place}/in/day=1/a.jsonl", b'{"id":"a","n":1}\n{"id":"b","n":2}\n')
    files.pipe_file(f"{place}/in/_hidden/x.jsonl", b'{"id":"x","n":1}\n')
    pq.write_table(pa.table({"id": ["c"], "n": [3]}), tmp_path / "c.parquet")
    files.pipe_file(f"{place}/in/day=2/c.parquet", (tmp_path / "c.parquet").read_bytes())
    assert run() == 3
    assert run() == 0
    # S3's times are whole seconds: this one's may be that of files that were taken.
    files.pipe_file(f"{place}/in/day=2/d.csv", b"id,n\nd,4\n")
    assert run() == 1
    table = lakefmt.open_table(f"{url}/trips", storage_options=options)
    rows = sorted(table.read().to_pylist(), key=lambda row: row["id"])
    assert rows == [
        {"id": "a", "n": 1, "day": "1"},
        {"id": "b", "n": 2, "day": "1"},
        {"id": "c", "n": 3, "day": "2"},
        {"id": "d", "n": 4, "day": "2"},
    ]


def test_a_store_that_is_away_is_an_error_that_may_pass(tmp_path):
    pytest.importorskip("s3fs")
    options = {
        "key": "a",
        "secret": "b",
        "endpoint_url": "http://127.0.0.1:9",
        "config_kwargs": {"retries": {"max_attempts": 1}},
    }
    given = {"source": "s3://away/in", "table": str(tmp_path / "t"), "key": "id"}
    resolved, _ = resolve_table_job([("test", given)])
    clock = Clock()
    with pytest.raises(SourceUnavailable, match="s3://away/in cannot be listed"):
        Ingester([resolved], storage_options=options, clock=clock, time_source=clock, attempts=0).run()
