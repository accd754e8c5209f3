"""Objects on Google Cloud Storage, through gcsfs: replaced only if their generation is still the one that was seen."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lakefmt._core.storage.api import CasResult, PutOutcome, Version
from lakefmt._core.storage.remote.clients import Payload, check_length, may_have_happened, status_of
from lakefmt._core.storage.remote.fsspec import PUT_STAMP, FsspecObjects
from lakefmt.errors import StorageError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

__all__ = ["GcsObjects"]

_log = logging.getLogger("lakefmt.storage")

_NOTHING_THERE: Final = 416  # a range of an empty object


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
        try:
            headers, data = self._fs.call("GET", url, headers={"Range": f"bytes=0-{limit - 1}"})
        except FileNotFoundError:
            return None
        except Exception as error:
            if status_of(error) != _NOTHING_THERE:
                raise
            about = self._about(name)
            return None if about is None else Version(b"", _generation(about, name))
        lower_headers = {key.lower(): value for key, value in headers.items()}
        if lower_headers.get("content-length", "").isdecimal() and "content-encoding" not in lower_headers:
            check_length(data, int(lower_headers["content-length"]), name)
        return Version(bytes(data)[:limit], _generation({"generation": lower_headers.get("x-goog-generation")}, name))

    def replace(self, name: str, payload: Payload, mark: str) -> CasResult:
        """Replace an object whole if its generation is still `mark`."""
        if not (mark.isascii() and mark.isdigit()):
            return CasResult(PutOutcome.REFUSED)  # no generation, so not that of what is there
        stamp = secrets.token_hex(16)
        try:
            answer = self._upload_if(name, payload, mark, stamp)
        except FileNotFoundError:
            return CasResult(PutOutcome.REFUSED)  # it is gone
        except Exception as error:
            if isinstance(error, FileExistsError) or status_of(error) == 412:
                outcome, info = self._after_refusal(name, stamp)
                return CasResult(outcome, _generation(info, name)) if outcome is PutOutcome.DONE else CasResult(outcome)
            if not may_have_happened(error):
                raise
            _log.warning("the answer to a conditional put of %r was lost (%s)", name, type(error).__name__)
            return CasResult(PutOutcome.UNKNOWN)
        return CasResult(PutOutcome.DONE, _generation(answer, name))

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
