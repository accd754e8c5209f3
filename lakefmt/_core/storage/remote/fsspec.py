"""Objects on any file system that fsspec knows, by the operations that all of them share.

Google Cloud Storage and Azure can create an object only if it is absent, and are asked to. For the others there is a
look before the put, which two writers at once can both pass: such a store says so in its capabilities.
"""

from __future__ import annotations

import inspect
import logging
import posixpath
import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.api import ObjectInfo, PutOutcome
from lakefmt._core.storage.remote.clients import Payload, may_have_happened

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

__all__ = ["PUT_STAMP", "FsspecObjects"]

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
            whole: bytes = self._fs.cat_file(path)
            return whole
        try:
            data: bytes = self._fs.cat_file(path, start=0, end=limit)
        except FileNotFoundError:
            raise
        except Exception:
            # An empty object has no first byte, and every library says that in its own way.
            info = self.head(name)
            if info is None or info.size:
                raise
            return b""
        return data

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
        try:
            self._upload(self._base + name, payload, arguments)
        except FileExistsError:
            return self._after_refusal(name, stamp)[0]
        except Exception as error:
            if not may_have_happened(error):
                raise
            _log.warning("the answer to a put of %r was lost (%s)", name, type(error).__name__)
            return PutOutcome.UNKNOWN
        return PutOutcome.DONE

    def _after_refusal(self, name: str, stamp: str) -> tuple[PutOutcome, Mapping[str, Any]]:
        """Tell a refusal from a repetition, by the client, of a put of ours that had arrived; return what is there, too."""
        try:
            info: Mapping[str, Any] = self._fs.info(self._base + name)
        except FileNotFoundError:
            return PutOutcome.REFUSED, {}
        except Exception as error:  # noqa: BLE001 - whatever it is, the outcome stays open
            _log.debug("cannot look at %r: %s", name, type(error).__name__)
            return PutOutcome.UNKNOWN, {}
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
        try:
            self._fs.rm_file(self._base + name)
        except FileNotFoundError:
            return ""
        except Exception as error:  # noqa: BLE001 - one that fails must not keep the others
            return "" if self.head(name) is None else type(error).__name__
        return ""

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
