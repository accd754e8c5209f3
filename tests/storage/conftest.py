"""What the tests of stores share: an S3 service on this machine that can be told to misbehave."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator

import pytest

from benchmarks.storage.s3_server import s3_server
from tests.judges.azure import azure_options, azure_service
from tests.judges.gcs import gcs_options, gcs_service

#: Sees a request (and the application behind) before the service does; None lets it pass.
Interference = Callable[[dict, Callable, Callable], object]


class Service:
    """moto's S3 behind a gate: one request at a time (its check and its put are two steps), and faults on demand."""

    def __init__(self, server, application) -> None:
        self._server = server
        self._application = application
        self._lock = threading.Lock()
        self.requests: list[tuple[str, str]] = []
        self.interference: Interference | None = None

    def __call__(self, environ, start_response):
        with self._lock:
            self.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
            if self.interference is not None:
                answer = self.interference(environ, start_response, self._application)
                if answer is not None:
                    return answer
            return list(self._application(environ, start_response))

    @property
    def endpoint(self) -> str:
        host, port = self._server.get_host_and_port()
        return f"http://{host}:{port}"


@pytest.fixture(scope="module")
def s3_service() -> Iterator[Service]:
    pytest.importorskip("s3fs")
    with s3_server() as server:
        service = Service(server, server._server.app)
        server._server.app = service
        yield service


@pytest.fixture(scope="module")
def s3_options(s3_service):
    """Return storage options with made-up keys; what the module before did to the service is over."""
    s3_service.interference = None
    return {
        "key": "AKIAMADEUPKEY",
        "secret": "made-up-secret-42",
        "endpoint_url": s3_service.endpoint,
        "client_kwargs": {"region_name": "us-east-1"},
    }


@pytest.fixture(scope="module")
def s3_filesystem(s3_options):
    """Return s3fs as open_store makes it, shared by a module: making a client takes long."""
    import s3fs

    return s3fs.S3FileSystem(**s3_options, skip_instance_cache=True, use_listings_cache=False)


_buckets = itertools.count()


@pytest.fixture(scope="module")
def s3_bucket(s3_filesystem):
    """Return the name of a new bucket."""
    bucket = f"bucket-{next(_buckets)}"
    s3_filesystem.call_s3("create_bucket", Bucket=bucket)
    return bucket


@pytest.fixture(scope="session")
def gcs_endpoint() -> Iterator[str]:
    """Return the address of a service like Google's on this machine."""
    with gcs_service() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def gcs_filesystem(gcs_endpoint):
    """Return gcsfs as open_store makes it."""
    import gcsfs

    return gcsfs.GCSFileSystem(**gcs_options(gcs_endpoint), skip_instance_cache=True, use_listings_cache=False)


@pytest.fixture(scope="module")
def gcs_bucket(gcs_filesystem):
    """Return the name of a new bucket."""
    bucket = f"bucket-{next(_buckets)}"
    gcs_filesystem.call("POST", "b", json={"name": bucket}, project="made-up", json_out=True)
    return bucket


@pytest.fixture(scope="session")
def azure_endpoint() -> Iterator[str]:
    """Return the address of Azurite on this machine."""
    with azure_service() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def azure_filesystem(azure_endpoint):
    """Return adlfs as open_store makes it."""
    import adlfs

    return adlfs.AzureBlobFileSystem(
        **azure_options(azure_endpoint), skip_instance_cache=True, use_listings_cache=False
    )


@pytest.fixture(scope="module")
def azure_container(azure_filesystem):
    """Return the name of a new container."""
    container = f"container-{next(_buckets)}"
    azure_filesystem.mkdir(container)
    return container
