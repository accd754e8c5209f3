"""The contract of a store, kept by every store there is and by the wrappers around them."""

from __future__ import annotations

import itertools

import pytest

from lakefmt._core.storage import LocalStore, MemoryStore, atomic_files, open_store
from lakefmt._core.storage.remote import RemoteStore
from lakefmt.testing.stores import CountingStore, DelayStore, FaultStore, FreezeStore, WrapperStore
from lakefmt.testing.suites import StoreSuite

numbers = itertools.count()


class TestLocalStore(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(tmp_path / "the table")


class TestLocalStoreByRename(StoreSuite):
    """A file system without hard links, as some network and removable disks are."""

    @pytest.fixture
    def store(self, tmp_path, monkeypatch):
        monkeypatch.setattr(atomic_files, "WAYS", atomic_files.WAYS[1:])
        return LocalStore(tmp_path / "table")


class TestLocalStoreByExclusiveCreate(StoreSuite):
    """A file system without hard links and without a rename that never replaces."""

    @pytest.fixture
    def store(self, tmp_path, monkeypatch):
        monkeypatch.setattr(atomic_files, "WAYS", atomic_files.WAYS[2:])
        return LocalStore(tmp_path / "table")


class TestMemoryStore(StoreSuite):
    @pytest.fixture
    def store(self):
        return MemoryStore()


class TestNamedMemoryStore(StoreSuite):
    @pytest.fixture
    def store(self):
        return open_store(f"memory://suite/table {next(numbers)}")


class TestFsspecMemory(StoreSuite):
    """Any fsspec file system without a conditional put."""

    @pytest.fixture
    def store(self):
        from fsspec.implementations.memory import MemoryFileSystem

        return RemoteStore(MemoryFileSystem(skip_instance_cache=True), f"/suite-{next(numbers)}")


class TestFsspecLocal(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path):
        from fsspec.implementations.local import LocalFileSystem

        return RemoteStore(LocalFileSystem(skip_instance_cache=True), str(tmp_path / "table"))


@pytest.mark.s3
class TestS3(StoreSuite):
    @pytest.fixture
    def store(self, s3_filesystem, s3_bucket):
        return RemoteStore(s3_filesystem, f"{s3_bucket}/some/table-{next(numbers)}")


@pytest.mark.gcs
class TestGcs(StoreSuite):
    @pytest.fixture
    def store(self, gcs_filesystem, gcs_bucket):
        return RemoteStore(gcs_filesystem, f"{gcs_bucket}/some/table-{next(numbers)}")


@pytest.mark.azure
class TestAzure(StoreSuite):
    @pytest.fixture
    def store(self, azure_filesystem, azure_container):
        return RemoteStore(azure_filesystem, f"{azure_container}/some/table-{next(numbers)}")


class TestWrapperStore(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path):
        return WrapperStore(LocalStore(tmp_path / "table"))


class TestCountingStore(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path):
        return CountingStore(LocalStore(tmp_path / "table"))


class TestFaultStore(StoreSuite):
    @pytest.fixture
    def store(self):
        return FaultStore(MemoryStore())


class TestFreezeStore(StoreSuite):
    @pytest.fixture
    def store(self):
        return FreezeStore(MemoryStore(), at=10**9)


class TestStackedStores(StoreSuite):
    @pytest.fixture
    def store(self):
        return CountingStore(DelayStore(FaultStore(MemoryStore()), lambda seconds: None))
