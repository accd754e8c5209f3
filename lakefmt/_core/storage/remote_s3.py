"""Objects in an S3 bucket, by plain requests through s3fs's client.

Requests are made one by one rather than through s3fs's file operations, because those expand ``*`` in names, read
``?versionId=`` out of them, forget the errors inside a bulk delete's answer and list for every missing name.

Put-if-absent is a PUT, or the completion of a multipart upload, with ``If-None-Match: *``. s3fs and botocore repeat a
request whose answer was lost, and the repetition meets our own object; so every object carries a stamp in its user
metadata, and a refusal is believed only after the stamp was looked at.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.storage.api import CasResult, ObjectInfo, PutOutcome, Version
from lakefmt._core.storage.remote_clients import (
    Payload,
    answer_of_put,
    check_length,
    describe,
    is_transient,
    status_of,
)
from lakefmt.errors import StorageError, UnsafePath

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

__all__ = ["S3Objects"]

_log = logging.getLogger("lakefmt.storage")

_STAMP: Final = "lakefmt-put"
_IF_NONE_MATCH_SINCE: Final = (1, 35, 20)
_IF_MATCH_SINCE: Final = (1, 35, 69)
_ONE_REQUEST_BYTES: Final = 100 * 2**20
_PART_BYTES: Final = 16 * 2**20
_MAX_PARTS: Final = 10_000
_UPLOADS_AT_ONCE: Final = 4
_CONFLICT_ATTEMPTS: Final = 5
_DELETE_AT_ONCE: Final = 1000
_READ_BYTES: Final = 2**24
_FIRST_PAUSE_SECONDS: Final = 0.1
_PAUSE_GROWTH: Final = 1.7
_LONGEST_PAUSE_SECONDS: Final = 5.0

#: An answer of the S3 API: its shape is the service's, so it is taken apart at once.
Answer = Mapping[str, Any]


class S3Objects:
    """The requests; `root` is ``bucket`` or ``bucket/some/prefix``. Raises whatever s3fs raises."""

    directories = False

    def __init__(self, fs: AbstractFileSystem, root: str) -> None:
        self._fs = fs
        bucket, key, _ = fs.split_path(root)
        self._bucket: str = bucket
        self._start: str = f"{key}/" if key else ""
        version = _botocore_version()
        self.conditional = version >= _IF_NONE_MATCH_SINCE
        self.versioned = version >= _IF_MATCH_SINCE

    def _call(self, method: str, **arguments: object) -> Answer:
        answer: Answer = self._fs.call_s3(method, Bucket=self._bucket, **arguments)
        return answer

    def _key(self, name: str) -> str:
        # Arrow reads through s3fs's own paths, where this would name another version of another object.
        if "?versionId=" in name:
            raise UnsafePath(f"path {name!r} would be read as a version of another object")
        return self._start + name

    # ------------------------------------------------------------------------------------------------------ reading

    def get(self, name: str, limit: int | None) -> bytes:
        """Return an object, or its first `limit` bytes; one request, so never a mix of two objects."""
        try:
            return self._fetched(name, None if limit is None else f"bytes=0-{limit - 1}", limit)[0]
        except OSError as error:
            # An empty object has no first byte: a range of it cannot be satisfied.
            if limit is None or status_of(error) != 416:
                raise
            return b""

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Return `length` bytes of an object from `start` on; fewer only where it ends."""
        return self._fetched(name, f"bytes={start}-{start + length - 1}", length)[0]

    def get_end(self, name: str, length: int) -> tuple[bytes, int]:
        """Return an object's last `length` bytes, or the whole of a smaller one, and its size: one request tells both."""
        try:
            data, answer = self._fetched(name, f"bytes=-{length}", length)
        except OSError as error:
            if status_of(error) != 416:
                raise
            return b"", 0
        if answer.get("ContentRange"):
            return data, int(str(answer["ContentRange"]).rpartition("/")[2])
        # A service that knows no range from the end sends the object from its beginning.
        size = int(answer.get("ContentLength", len(data)))
        return (data if len(data) == size else b""), size

    def _fetched(self, name: str, span: str | None, limit: int | None) -> tuple[bytes, Answer]:
        from fsspec.asyn import sync

        data, answer = sync(self._fs.loop, self._fetch, self._key(name), span, limit)
        return data, answer

    async def _fetch(self, key: str, span: str | None, limit: int | None) -> tuple[bytes, Answer]:
        """Return an object's first `limit` bytes with the answer; a body that was cut is asked for again, as often as s3fs asks."""
        range_option = {} if span is None else {"Range": span}
        attempts: int = self._fs.retries
        for attempt in range(attempts):
            # s3fs repeats this request by itself, but not the reading of the answer's body.
            answer = await self._fs._call_s3("get_object", Bucket=self._bucket, Key=key, **range_option)
            try:
                return await _whole_body(answer, limit, key), answer
            except Exception as error:
                if attempt + 1 == attempts or not is_transient(error):
                    raise
                await asyncio.sleep(min(_PAUSE_GROWTH**attempt * _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS))
        raise AssertionError("the last attempt returns or raises")

    def head(self, name: str) -> ObjectInfo | None:
        """Return an object's size and time, or None when there is none."""
        answer = self._head(name)
        return None if answer is None else ObjectInfo(name, answer["ContentLength"], _epoch(answer.get("LastModified")))

    def _head(self, name: str) -> Answer | None:
        try:
            return self._call("head_object", Key=self._key(name))
        except FileNotFoundError:
            return None

    def pages(self, prefix: str, recursive: bool) -> Iterator[tuple[list[ObjectInfo], list[str]]]:
        """Yield pages of objects and directories below a directory."""
        start = self._start + (f"{prefix}/" if prefix else "")
        arguments: dict[str, object] = {"Prefix": start} if recursive else {"Prefix": start, "Delimiter": "/"}
        while True:
            answer = self._call("list_objects_v2", **arguments)
            objects = [self._info(entry) for entry in answer.get("Contents", ())]
            directories = [entry["Prefix"] for entry in answer.get("CommonPrefixes", ())]
            cut = len(self._start)
            yield objects, [directory[cut:].rstrip("/") for directory in directories if len(directory) > len(start)]
            if not answer.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = answer["NextContinuationToken"]

    def tree(self, prefix: str) -> list[ObjectInfo] | None:
        """Return the objects below a directory; None: there are more than one answer holds."""
        answer = self._call("list_objects_v2", Prefix=f"{self._start}{prefix}/" if prefix else self._start)
        return None if answer.get("IsTruncated") else [self._info(entry) for entry in answer.get("Contents", ())]

    def _info(self, entry: Answer) -> ObjectInfo:
        name, mark = entry["Key"][len(self._start) :], str(entry.get("ETag", ""))
        return ObjectInfo(name, entry["Size"], _epoch(entry.get("LastModified")), mark)

    # ------------------------------------------------------------------------------------------------------ writing

    def put(self, name: str, payload: Payload) -> None:
        """Create or replace an object whole."""
        self._upload(self._key(name), payload, {}, {})

    def create(self, name: str, payload: Payload) -> PutOutcome:
        """Create an object whole unless the name is taken."""
        if not self.conditional:
            if self._head(name) is not None:
                return PutOutcome.REFUSED
            self.put(name, payload)
            return PutOutcome.DONE
        stamp = secrets.token_hex(16)
        for _ in range(_CONFLICT_ATTEMPTS):
            answer = run_foreign(
                lambda: self._upload(self._key(name), payload, {"Metadata": {_STAMP: stamp}}, {"IfNoneMatch": "*"})
            )
            if not isinstance(answer, Raised):
                return PutOutcome.DONE
            status = status_of(answer.error)
            if status != 409:  # 409: another write of this name is under way, and who is first is not settled
                return self._settle(answer.error, status, name, stamp)
        return PutOutcome.UNKNOWN

    def _settle(self, error: Exception, status: int | None, name: str, stamp: str) -> PutOutcome:
        if status == 412 or isinstance(error, FileExistsError):
            return self._refused_or_ours(name, stamp)
        if status == 501:
            raise StorageError(f"this S3 service does not know put-if-absent: {name!r} was not written") from None
        return answer_of_put(error, name)

    def _refused_or_ours(self, name: str, stamp: str) -> PutOutcome:
        head = run_foreign(lambda: self._head(name))
        if isinstance(head, Raised):  # whatever it was, the outcome stays open
            _log.debug("cannot look at %r: %s", name, type(head.error).__name__)
            return PutOutcome.UNKNOWN
        is_ours = head is not None and head.get("Metadata", {}).get(_STAMP) == stamp
        return PutOutcome.DONE if is_ours else PutOutcome.REFUSED

    def _upload(self, key: str, payload: Payload, stamp: Mapping[str, object], condition: Mapping[str, str]) -> None:
        if payload.size <= _ONE_REQUEST_BYTES:
            self._call("put_object", Key=key, Body=payload.read(0, payload.size), **stamp, **condition)
            return
        upload = self._call("create_multipart_upload", Key=key, **stamp)["UploadId"]
        try:
            parts = self._upload_parts(key, upload, payload)
            self._call(
                "complete_multipart_upload", Key=key, UploadId=upload, MultipartUpload={"Parts": parts}, **condition
            )
        except BaseException:
            self._abort(key, upload)
            raise

    def _upload_parts(self, key: str, upload: str, payload: Payload) -> list[dict[str, object]]:
        length = max(_PART_BYTES, -(-payload.size // _MAX_PARTS))

        def send(number: int) -> dict[str, object]:
            body = payload.read((number - 1) * length, length)
            answer = self._call("upload_part", Key=key, UploadId=upload, PartNumber=number, Body=body)
            return {"PartNumber": number, "ETag": answer["ETag"]}

        numbers = range(1, -(-payload.size // length) + 1)
        with ThreadPoolExecutor(_UPLOADS_AT_ONCE, thread_name_prefix="lakefmt-upload") as pool:
            return list(pool.map(send, numbers))

    def _abort(self, key: str, upload: str) -> None:
        # Of an upload that was completed after all, this removes nothing.
        answer = run_foreign(lambda: self._call("abort_multipart_upload", Key=key, UploadId=upload))
        if isinstance(answer, Raised):  # the error of the upload is the one to tell
            _log.debug("cannot abort the upload of %r: %s", key, describe(answer.error)[:80])

    # ----------------------------------------------------------------------------------------------------- versions

    def get_version(self, name: str, limit: int) -> Version | None:
        """Return an object, or its first `limit` bytes, with its ETag, both of one answer; None when there is none."""
        try:
            data, answer = self._fetched(name, None, limit)
        except FileNotFoundError:
            return None
        return Version(data, str(answer["ETag"]))

    def replace(self, name: str, payload: Payload, mark: str) -> CasResult:
        """Replace an object whole if its ETag is still `mark`."""
        answer = run_foreign(
            lambda: self._call("put_object", Key=self._key(name), Body=payload.read(0, payload.size), IfMatch=mark)
        )
        if not isinstance(answer, Raised):
            return CasResult(PutOutcome.DONE, str(answer["ETag"]))
        status = status_of(answer.error)
        if status == 412 or isinstance(answer.error, FileNotFoundError):
            return CasResult(PutOutcome.REFUSED)  # another one is there, or it is gone
        if status == 501:
            raise StorageError(f"this S3 service does not know If-Match: {name!r} was not written")
        return CasResult(answer_of_put(answer.error, name))

    # ----------------------------------------------------------------------------------------------------- removing

    def remove(self, names: list[str]) -> dict[str, str]:
        """Remove objects; return those that could not be, each with the store's reason."""
        return self._remove_keys([self._key(name) for name in names])

    def _remove_keys(self, keys: list[str]) -> dict[str, str]:
        failed: dict[str, str] = {}
        for first in range(0, len(keys), _DELETE_AT_ONCE):
            objects = [{"Key": key} for key in keys[first : first + _DELETE_AT_ONCE]]
            answer = self._call("delete_objects", Delete={"Objects": objects, "Quiet": True})
            errors = [error for error in answer.get("Errors", ()) if error.get("Code") != "NoSuchKey"]
            failed |= {error["Key"][len(self._start) :]: str(error.get("Code")) for error in errors}
        return failed

    def remove_tree(self, prefix: str) -> dict[str, str]:
        """Remove everything below a directory, the markers that other engines keep for directories included."""
        failed: dict[str, str] = {}
        for objects, _ in self.pages(prefix, recursive=True):
            # By key, not by name: a marker's name ends with a slash and is no object's name.
            failed |= self._remove_keys([self._start + info.name for info in objects])
        return failed

    def make_directory(self, name: str) -> None:
        """Do nothing: there are no directories."""


async def _whole_body(answer: Answer, limit: int | None, key: str) -> bytes:
    length: int | None = answer.get("ContentLength")
    most = sys.maxsize if limit is None else limit
    expected = most if length is None else min(length, most)
    data = bytearray()
    body = answer["Body"]
    try:
        # One read returns what has arrived by now, which may be a piece of the body.
        while len(data) < expected and (part := await body.read(min(expected - len(data), _READ_BYTES))):
            data += part
    finally:
        body.close()
    return bytes(data) if length is None else check_length(bytes(data), expected, key)


def _botocore_version() -> tuple[int, ...]:
    # A botocore older than a condition, or rather s3fs above it, would drop it in silence and overwrite.
    import importlib.metadata  # takes longer to import than the rest of this module

    try:
        version = importlib.metadata.version("botocore")
    except importlib.metadata.PackageNotFoundError:
        return ()
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _epoch(value: object) -> float:
    return value.timestamp() if isinstance(value, datetime) else 0.0
