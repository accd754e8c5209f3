"""Objects on Azure Blob Storage, through adlfs and Azure's client: created and replaced only under a condition on their ETag.

Conditional requests go to Azure's client directly: adlfs has no condition for replacing, and sets the user metadata itself,
which here tell whose put an object is (a client repeats a request whose answer was lost).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lakefmt._core.storage.api import CasResult, ObjectInfo, PutOutcome, Version
from lakefmt._core.storage.remote.clients import Payload, may_have_happened, status_of
from lakefmt._core.storage.remote.fsspec import FsspecObjects
from lakefmt.errors import StorageError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

__all__ = ["AzureObjects"]

_log = logging.getLogger("lakefmt.storage")
T = TypeVar("T")

#: The user metadata that tells whose put an object is; Azure takes identifiers only.
_STAMP: Final = "lakefmt_put"
#: Accounts with a hierarchy list their directories as objects with this metadata.
_FOLDER_MARK: Final = "hdi_isfolder"
_NOTHING_THERE: Final = 416  # a range of an empty object
_REFUSED: Final = frozenset({409, 412})


class AzureObjects(FsspecObjects):
    """The operations below `root`, a container and a path in it."""

    def __init__(self, fs: AbstractFileSystem, root: str) -> None:
        super().__init__(fs, root)
        self._fs: Any = fs  # what adlfs has beyond fsspec
        self.directories = False
        self.conditional = self.versioned = hasattr(fs, "service_client")

    def pages(self, prefix: str, recursive: bool) -> Iterator[tuple[list[ObjectInfo], list[str]]]:
        """Yield one page: the objects and directories below a directory."""
        from fsspec.asyn import sync

        container, _, start = (self._base + (f"{prefix}/" if prefix else "")).partition("/")
        skipped = len(self._base.partition("/")[2])

        async def collect() -> tuple[list[ObjectInfo], list[str]]:
            objects, directories = list[ObjectInfo](), list[str]()
            async with self._fs.service_client.get_container_client(container) as client:
                listing = client.list_blobs if recursive else client.walk_blobs
                async for item in listing(name_starts_with=start, include=["metadata"]):
                    name = item.name[skipped:]
                    if name.endswith("/"):
                        directories.append(name[:-1])
                    elif (getattr(item, "metadata", None) or {}).get(_FOLDER_MARK) != "true":
                        objects.append(ObjectInfo(name, int(item.size or 0), item.last_modified.timestamp()))
            return objects, directories

        try:
            page: tuple[list[ObjectInfo], list[str]] = sync(self._fs.loop, collect)
        except Exception as error:
            if status_of(error) == 404:
                return  # there is no such container
            raise
        yield page

    def remove_tree(self, prefix: str) -> dict[str, str]:
        """Remove everything below a directory."""
        names = [info.name for objects, _ in self.pages(prefix, recursive=True) for info in objects]
        return self.remove(names)

    def create(self, name: str, payload: Payload) -> PutOutcome:
        """Create an object unless the name is taken."""
        return self._put_if(name, payload, {"overwrite": False}).outcome

    def put(self, name: str, payload: Payload) -> None:
        """Create or replace an object."""
        self._upload_blob(name, payload, {"overwrite": True}, secrets.token_hex(16))

    def get_version(self, name: str, limit: int) -> Version | None:
        """Return an object, or its first `limit` bytes, with its ETag, both of one answer; None when there is none."""

        async def download(blob: Any) -> Version:
            stream = await blob.download_blob(offset=0, length=limit)
            data = await stream.readall()
            return Version(bytes(data), _etag(stream.properties.etag, name))

        try:
            return self._ask(name, download)
        except Exception as error:
            if status_of(error) == 404:
                return None
            if status_of(error) != _NOTHING_THERE:
                raise
        found = self._ask(name, _properties)
        return Version(b"", _etag(found.etag, name))

    def replace(self, name: str, payload: Payload, mark: str) -> CasResult:
        """Replace an object whole if its ETag is still `mark`."""
        from azure.core import MatchConditions

        condition = {"overwrite": True, "etag": mark, "match_condition": MatchConditions.IfNotModified}
        return self._put_if(name, payload, condition)

    def _put_if(self, name: str, payload: Payload, condition: Mapping[str, object]) -> CasResult:
        stamp = secrets.token_hex(16)
        try:
            answer = self._upload_blob(name, payload, condition, stamp)
        except Exception as error:
            if status_of(error) == 404 and "etag" in condition:
                return CasResult(PutOutcome.REFUSED)  # it is gone
            if status_of(error) in _REFUSED:
                return self._refused_or_own(name, stamp)
            if not may_have_happened(error):
                raise
            _log.warning("the answer to a conditional put of %r was lost (%s)", name, type(error).__name__)
            return CasResult(PutOutcome.UNKNOWN)
        return CasResult(PutOutcome.DONE, _etag(answer.get("etag"), name))

    def _refused_or_own(self, name: str, stamp: str) -> CasResult:
        """Tell a refusal from a repetition, by the client, of a put of this call that had arrived."""
        try:
            found = self._ask(name, _properties)
        except Exception as error:  # noqa: BLE001 - whatever it is, the outcome stays open
            return CasResult(PutOutcome.REFUSED if status_of(error) == 404 else PutOutcome.UNKNOWN)
        if (found.metadata or {}).get(_STAMP) == stamp:
            return CasResult(PutOutcome.DONE, _etag(found.etag, name))
        return CasResult(PutOutcome.REFUSED)

    def _remove(self, name: str) -> str:
        # Not through adlfs, which expands '*' in names.
        async def delete(blob: Any) -> None:
            await blob.delete_blob()

        try:
            self._ask(name, delete)
        except Exception as error:  # noqa: BLE001 - one that fails must not keep the others
            return "" if status_of(error) == 404 else type(error).__name__
        return ""

    def _upload_blob(
        self, name: str, payload: Payload, condition: Mapping[str, object], stamp: str
    ) -> Mapping[str, object]:
        with ExitStack() as opened:
            data = payload.data if payload.path is None else opened.enter_context(open(payload.path, "rb"))

            async def upload(blob: Any) -> Mapping[str, object]:
                answer: Mapping[str, object] = await blob.upload_blob(
                    data, length=payload.size, metadata={_STAMP: stamp}, **condition
                )
                return answer

            return self._ask(name, upload)

    def _ask(self, name: str, act: Callable[[Any], Awaitable[T]]) -> T:
        """Return what a coroutine over the client of one object returns; it runs in the event loop of adlfs."""
        from fsspec.asyn import sync

        container, _, key = (self._base + name).partition("/")

        async def run() -> T:
            async with self._fs.service_client.get_blob_client(container=container, blob=key) as blob:
                return await act(blob)

        result: T = sync(self._fs.loop, run)
        return result


async def _properties(blob: Any) -> Any:
    return await blob.get_blob_properties()


def _etag(etag: object, name: str) -> str:
    if not isinstance(etag, str):
        raise StorageError(f"the service does not tell which ETag {name!r} has")
    return etag
