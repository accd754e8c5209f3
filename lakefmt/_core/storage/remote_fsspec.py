"""Objects on any file system that fsspec knows, by the operations that all share; on Azure and Google Cloud by conditions, too."""

from __future__ import annotations

import inspect
import json
import logging
import posixpath
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.api import CasResult, ObjectInfo, PutOutcome, Version
from lakefmt._core.storage.remote_clients import Payload, answer_of_put, check_length, status_of
from lakefmt.errors import StorageError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

__all__ = ["PUT_STAMP", "AzureObjects", "FsspecObjects", "GcsObjects"]

_log = logging.getLogger("lakefmt.storage")

#: The user metadata that tells whose put an object is.
PUT_STAMP: Final = "lakefmt-put"
_REMOVALS_AT_ONCE: Final = 8
_TIMES: Final = ("LastModified", "mtime", "last_modified", "updated", "modified")


@dataclass(frozen=True)
class _Condition:
    """How a file system is asked to create only."""

    argument: str
    value: object


_CONDITIONS: Final[Mapping[str, _Condition]] = {
    "gs": _Condition("mode", "create"),
    "gcs": _Condition("mode", "create"),
}


class FsspecObjects:
    """The operations below `root`, which is a path as the file system writes it. Raises whatever it raises."""

    def __init__(self, fs: AbstractFileSystem, root: str) -> None:
        self._fs = fs
        self._base = f"{root}/"
        protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
        self.directories = protocols.isdisjoint(_CONDITIONS)
        condition = next((_CONDITIONS[protocol] for protocol in sorted(protocols & _CONDITIONS.keys())), None)
        # A release that does not take the argument would pass it on, or drop it, and overwrite.
        self._condition = condition if condition is not None and _takes(fs, condition.argument) else None
        self.conditional = self._condition is not None

    # ------------------------------------------------------------------------------------------------------ reading

    def get(self, name: str, limit: int | None) -> bytes:
        """Return an object, or its first `limit` bytes."""
        path = self._base + name
        if limit is None:
            content: bytes = self._fs.cat_file(path)
            return content
        data: bytes | Raised = run_foreign(lambda: self._fs.cat_file(path, start=0, end=limit))
        if not isinstance(data, Raised):
            return data
        # An empty object has no first byte, and every library says that in its own way.
        info = None if isinstance(data.error, FileNotFoundError) else self.head(name)
        if info is None or info.size:
            raise data.error
        return b""

    def head(self, name: str) -> ObjectInfo | None:
        """Return an object's size and time, or None when there is none."""
        try:
            info = self._fs.info(self._base + name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return None if info.get("type") == "directory" else ObjectInfo(name, int(info["size"] or 0), _epoch(info))

    def pages(self, prefix: str, recursive: bool) -> Iterator[tuple[list[ObjectInfo], list[str]]]:
        """Yield one page: the objects and directories below a directory."""
        start = self._base + (f"{prefix}/" if prefix else "")
        self._fs.invalidate_cache()
        try:
            # Without the slash at the end, which some take for a part of the name.
            infos = self._find(start[:-1]) if recursive else self._fs.ls(start[:-1], detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return
        objects, directories = [], []
        for row in infos:
            path = str(row["name"]).rstrip("/")
            if not path.startswith(start):
                continue  # the directory itself, or an object that has the directory's name
            if row["type"] == "directory":
                directories.append(path[len(self._base) :])
            else:
                objects.append(ObjectInfo(path[len(self._base) :], int(row["size"] or 0), _epoch(row)))
        yield objects, directories

    def _find(self, path: str, *, directories: bool = False) -> list[Mapping[str, Any]]:
        infos: Mapping[str, Mapping[str, object]] = self._fs.find(path, detail=True, withdirs=directories)
        return list(infos.values())

    # ------------------------------------------------------------------------------------------------------ writing

    def put(self, name: str, payload: Payload) -> None:
        """Create or replace an object; whether readers may see a part of it is up to the file system."""
        self._upload(self._base + name, payload, {})

    def create(self, name: str, payload: Payload) -> PutOutcome:
        """Create an object unless the name is taken."""
        if self._condition is None:
            if self.head(name) is not None:
                return PutOutcome.REFUSED
            self.put(name, payload)
            return PutOutcome.DONE
        return self._create_if(self._condition, name, payload)

    def _create_if(self, condition: _Condition, name: str, payload: Payload) -> PutOutcome:
        stamp = secrets.token_hex(16)
        arguments: dict[str, object] = {condition.argument: condition.value, "metadata": {PUT_STAMP: stamp}}
        answer = run_foreign(lambda: self._upload(self._base + name, payload, arguments))
        if not isinstance(answer, Raised):
            return PutOutcome.DONE
        if isinstance(answer.error, FileExistsError):
            return self._after_refusal(name, stamp)[0]
        return answer_of_put(answer.error, name)

    def _after_refusal(self, name: str, stamp: str) -> tuple[PutOutcome, Mapping[str, Any]]:
        """Tell a refusal from a repetition, by the client, of a put of ours that had arrived; return what is there, too."""
        info: Mapping[str, Any] | Raised = run_foreign(lambda: self._fs.info(self._base + name))
        if isinstance(info, Raised):
            if isinstance(info.error, FileNotFoundError):
                return PutOutcome.REFUSED, {}
            _log.debug("cannot look at %r: %s", name, type(info.error).__name__)
            return PutOutcome.UNKNOWN, {}  # whatever it was, the outcome stays open
        is_ours = (info.get("metadata") or {}).get(PUT_STAMP) == stamp
        return (PutOutcome.DONE if is_ours else PutOutcome.REFUSED), info

    def _upload(self, path: str, payload: Payload, arguments: Mapping[str, object]) -> None:
        try:
            self._send(path, payload, arguments)
        except FileNotFoundError:
            if not self.directories:
                raise
            self._fs.makedirs(posixpath.dirname(path), exist_ok=True)
            self._send(path, payload, arguments)

    def _send(self, path: str, payload: Payload, arguments: Mapping[str, object]) -> None:
        if payload.path is not None:
            self._fs.put_file(payload.path, path, **arguments)
        else:
            self._fs.pipe_file(path, payload.data, **arguments)

    # ----------------------------------------------------------------------------------------------------- removing

    def remove(self, names: list[str]) -> dict[str, str]:
        """Remove objects, several at once; return those that could not be, each with the reason's class."""
        # One by one: the bulk call expands '*' in names and stops at the first that is missing.
        with ThreadPoolExecutor(_REMOVALS_AT_ONCE, thread_name_prefix="lakefmt-remove") as pool:
            return {name: why for name, why in zip(names, pool.map(self._remove, names), strict=True) if why}

    def _remove(self, name: str) -> str:
        # One that fails must not keep the others.
        answer = run_foreign(lambda: self._fs.rm_file(self._base + name))
        if not isinstance(answer, Raised) or isinstance(answer.error, FileNotFoundError) or self.head(name) is None:
            return ""
        return type(answer.error).__name__

    def remove_tree(self, prefix: str) -> dict[str, str]:
        """Remove everything below a directory, then the directories, deepest first."""
        top = (self._base + prefix).rstrip("/")
        self._fs.invalidate_cache()
        try:
            infos = self._find(top, directories=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        rows = [(str(row["name"]).rstrip("/"), row["type"] == "directory") for row in infos]
        inside = [(path, is_directory) for path, is_directory in rows if path.startswith(f"{top}/")]
        failed = self.remove([path[len(self._base) :] for path, is_directory in inside if not is_directory])
        if self.directories and not failed:
            directories = {path for path, is_directory in inside if is_directory}
            for path in [*sorted(directories, key=len, reverse=True), top]:
                # Some have directories only as long as something is inside.
                if self._fs.isdir(path):
                    self._fs.rmdir(path)
        return failed

    def make_directory(self, name: str) -> None:
        """Create a directory where there are such things."""
        if self.directories:
            self._fs.makedirs(self._base + name, exist_ok=True)


def _takes(fs: AbstractFileSystem, argument: str) -> bool:
    methods = [getattr(fs, name, None) for name in ("_pipe_file", "_put_file")]
    if None in methods:
        methods = [fs.pipe_file, fs.put_file]
    return all(argument in inspect.signature(method).parameters for method in methods if method is not None)


def _epoch(info: Mapping[str, object]) -> float:
    value = next((info[name] for name in _TIMES if info.get(name) is not None), None)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return 0.0
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return float(value) if isinstance(value, int | float) else 0.0


# ---------------------------------------------------------------------------------- Azure Blob Storage
#
# Conditional requests go to Azure's client directly: adlfs has no condition for replacing, and sets the user metadata itself,
# which here tell whose put an object is (a client repeats a request whose answer was lost).


T = TypeVar("T")

#: The user metadata that tells whose put an object is; Azure takes identifiers only.
_STAMP: Final = "lakefmt_put"
#: Accounts with a hierarchy list their directories as objects with this metadata.
_FOLDER_MARK: Final = "hdi_isfolder"
_NOTHING_THERE: Final = 416  # a range of an empty object
_REFUSED: Final = frozenset({409, 412})


class _BlobProperties(Protocol):
    etag: str | None
    metadata: Mapping[str, str] | None


class _Download(Protocol):
    properties: _BlobProperties

    async def readall(self) -> bytes: ...


class _Blob(Protocol):
    """What is asked of Azure's client of one object."""

    async def download_blob(self, *, offset: int, length: int) -> _Download: ...

    async def upload_blob(
        self, data: object, *, length: int, metadata: Mapping[str, str], **condition: object
    ) -> Mapping[str, object]: ...

    async def delete_blob(self) -> None: ...

    async def get_blob_properties(self) -> _BlobProperties: ...


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

        page: tuple[list[ObjectInfo], list[str]] | Raised = run_foreign(lambda: sync(self._fs.loop, collect))
        if not isinstance(page, Raised):
            yield page
        elif status_of(page.error) != 404:  # 404: there is no such container
            raise page.error

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

        async def download(blob: _Blob) -> Version:
            stream = await blob.download_blob(offset=0, length=limit)
            data = await stream.readall()
            return Version(bytes(data), _etag(stream.properties.etag, name))

        version: Version | Raised = run_foreign(lambda: self._ask(name, download))
        if not isinstance(version, Raised):
            return version
        if status_of(version.error) == 404:
            return None
        if status_of(version.error) != _NOTHING_THERE:
            raise version.error
        blob_properties = self._ask(name, _properties)
        return Version(b"", _etag(blob_properties.etag, name))

    def replace(self, name: str, payload: Payload, mark: str) -> CasResult:
        """Replace an object whole if its ETag is still `mark`."""
        from azure.core import MatchConditions

        condition = {"overwrite": True, "etag": mark, "match_condition": MatchConditions.IfNotModified}
        return self._put_if(name, payload, condition)

    def _put_if(self, name: str, payload: Payload, condition: Mapping[str, object]) -> CasResult:
        stamp = secrets.token_hex(16)
        answer = run_foreign(lambda: self._upload_blob(name, payload, condition, stamp))
        if not isinstance(answer, Raised):
            return CasResult(PutOutcome.DONE, _etag(answer.get("etag"), name))
        status = status_of(answer.error)
        if status == 404 and "etag" in condition:
            return CasResult(PutOutcome.REFUSED)  # it is gone
        if status in _REFUSED:
            return self._refused_or_own(name, stamp)
        return CasResult(answer_of_put(answer.error, name))

    def _refused_or_own(self, name: str, stamp: str) -> CasResult:
        """Tell a refusal from a repetition, by the client, of a put of this call that had arrived."""
        answer = run_foreign(lambda: self._ask(name, _properties))
        if isinstance(answer, Raised):  # whatever else it was, the outcome stays open
            return CasResult(PutOutcome.REFUSED if status_of(answer.error) == 404 else PutOutcome.UNKNOWN)
        if (answer.metadata or {}).get(_STAMP) == stamp:
            return CasResult(PutOutcome.DONE, _etag(answer.etag, name))
        return CasResult(PutOutcome.REFUSED)

    def _remove(self, name: str) -> str:
        # Not through adlfs, which expands '*' in names.
        async def delete(blob: _Blob) -> None:
            await blob.delete_blob()

        # One that fails must not keep the others.
        answer = run_foreign(lambda: self._ask(name, delete))
        return "" if not isinstance(answer, Raised) or status_of(answer.error) == 404 else type(answer.error).__name__

    def _upload_blob(
        self, name: str, payload: Payload, condition: Mapping[str, object], stamp: str
    ) -> Mapping[str, object]:
        with ExitStack() as opened:
            data = payload.data if payload.path is None else opened.enter_context(open(payload.path, "rb"))

            async def upload(blob: _Blob) -> Mapping[str, object]:
                return await blob.upload_blob(data, length=payload.size, metadata={_STAMP: stamp}, **condition)

            return self._ask(name, upload)

    def _ask(self, name: str, act: Callable[[_Blob], Awaitable[T]]) -> T:
        """Return what a coroutine over the client of one object returns; it runs in the event loop of adlfs."""
        from fsspec.asyn import sync

        container, _, key = (self._base + name).partition("/")

        async def run() -> T:
            async with self._fs.service_client.get_blob_client(container=container, blob=key) as blob:
                return await act(blob)

        result: T = sync(self._fs.loop, run)
        return result


async def _properties(blob: _Blob) -> _BlobProperties:
    return await blob.get_blob_properties()


def _etag(etag: object, name: str) -> str:
    if not isinstance(etag, str):
        raise StorageError(f"the service does not tell which ETag {name!r} has")
    return etag


# -------------------------------------------------------------------------------- Google Cloud Storage


class GcsObjects(FsspecObjects):
    """The operations below `root`, a bucket and a path in it."""

    def __init__(self, fs: AbstractFileSystem, root: str) -> None:
        super().__init__(fs, root)
        self._fs: Any = fs  # what gcsfs has beyond fsspec
        #: A driver that takes no condition on creating takes none on replacing.
        self.versioned = self.conditional and hasattr(fs, "call")

    def get_version(self, name: str, limit: int) -> Version | None:
        """Return an object, or its first `limit` bytes, with its generation, both of one answer; None when there is none."""
        url = self._fs.url(self._base + name)
        answer = run_foreign(lambda: self._fs.call("GET", url, headers={"Range": f"bytes=0-{limit - 1}"}))
        if isinstance(answer, Raised):
            if isinstance(answer.error, FileNotFoundError):
                return None
            if status_of(answer.error) != _NOTHING_THERE:
                raise answer.error
            about = self._about(name)
            return None if about is None else Version(b"", _generation(about, name))
        headers, data = answer
        lower_headers = {key.lower(): value for key, value in headers.items()}
        if lower_headers.get("content-length", "").isdecimal() and "content-encoding" not in lower_headers:
            check_length(data, int(lower_headers["content-length"]), name)
        return Version(bytes(data)[:limit], _generation({"generation": lower_headers.get("x-goog-generation")}, name))

    def replace(self, name: str, payload: Payload, mark: str) -> CasResult:
        """Replace an object whole if its generation is still `mark`."""
        if not (mark.isascii() and mark.isdigit()):
            return CasResult(PutOutcome.REFUSED)  # no generation, so not that of what is there
        stamp = secrets.token_hex(16)
        answer = run_foreign(lambda: self._upload_if(name, payload, mark, stamp))
        if not isinstance(answer, Raised):
            return CasResult(PutOutcome.DONE, _generation(answer, name))
        if isinstance(answer.error, FileNotFoundError):
            return CasResult(PutOutcome.REFUSED)  # it is gone
        if isinstance(answer.error, FileExistsError) or status_of(answer.error) == 412:
            outcome, info = self._after_refusal(name, stamp)
            return CasResult(outcome, _generation(info, name)) if outcome is PutOutcome.DONE else CasResult(outcome)
        return CasResult(answer_of_put(answer.error, name))

    def _upload_if(self, name: str, payload: Payload, mark: str, stamp: str) -> Mapping[str, object]:
        bucket, _, key = (self._base + name).partition("/")
        # gcsfs has a condition for creating only: the request is the one that it sends, with another number.
        url = f"{self._fs.url(self._base + name).partition('/download/')[0]}/upload/storage/v1/b/{bucket}/o"
        limit = secrets.token_hex(16)
        about = json.dumps({"name": key, "metadata": {PUT_STAMP: stamp}})
        head = (
            f"--{limit}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{about}\r\n"
            f"--{limit}\r\nContent-Type: application/octet-stream\r\n\r\n"
        )
        answer: Mapping[str, object] = self._fs.call(
            "POST",
            url,
            uploadType="multipart",
            ifGenerationMatch=mark,
            headers={"Content-Type": f'multipart/related; boundary="{limit}"'},
            data=head.encode() + payload.read(0, payload.size) + f"\r\n--{limit}--\r\n".encode(),
            json_out=True,
        )
        return answer

    def _about(self, name: str) -> Mapping[str, object] | None:
        try:
            info: Mapping[str, object] = self._fs.info(self._base + name)
        except FileNotFoundError:
            return None
        return None if info.get("type") == "directory" else info


def _generation(info: Mapping[str, object], name: str) -> str:
    generation = info.get("generation")
    if generation is None:
        raise StorageError(f"the service does not tell which generation {name!r} is")
    return str(generation)
