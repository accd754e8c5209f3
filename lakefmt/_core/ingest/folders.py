"""Folders of files to be read, on this machine or in a store, and patterns of names in them (effects)."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol, cast

from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.storage.open import local_path, location_text, open_store
from lakefmt.errors import (
    InvalidInputError,
    SourceUnavailable,
    StorageError,
)

_WILDCARDS: Final = re.compile(r"[*?\[]")


#: Files and folders that begin so are for the engines that wrote them: markers of success, checksums, temporary files.
_HIDDEN: Final = (".", "_")


class ListedFile(NamedTuple):
    """A file of a listing.

    Attributes:
        modified: milliseconds since 1970, as Hudi counts them.
        name: relative to the folder, with slashes.
        size: in bytes.
    """

    modified: int
    name: str
    size: int


class Folder(Protocol):
    """Files below one path or URL."""

    @property
    def url(self) -> str:
        """The path or URL, without secrets."""

    def list(self) -> Iterator[ListedFile]:
        """Yield all files that are not hidden, in no order.

        Raises:
            SourceUnavailable: they cannot be listed.
        """

    @property
    def tells_seconds(self) -> bool:
        """Whether :meth:`look` may return whole seconds where a listing returns fractions."""

    def look(self, name: str) -> ListedFile | None:
        """Return a file as it is now; None: it is gone."""

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading anywhere in it."""


def _is_hidden(name: str) -> bool:
    return any(part.startswith(_HIDDEN) for part in name.split("/"))


class _LocalFolder:
    """Files of a local path. Times are exact: a store's seconds would be off by one of Hudi's milliseconds now and then."""

    tells_seconds = False

    def __init__(self, path: str) -> None:
        self.url = path
        self._base = path.rstrip("/") or "/"

    def list(self) -> Iterator[ListedFile]:
        waiting = [("", self._base)]
        while waiting:
            prefix, folder = waiting.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if entry.name.startswith(_HIDDEN):
                            continue
                        if entry.is_dir():
                            if not (entry.is_symlink() and _is_above(self._base, prefix, entry.path)):
                                waiting.append((f"{prefix}{entry.name}/", entry.path))
                        elif (listed_file := self._listed(prefix + entry.name, entry)) is not None:
                            yield listed_file
            except FileNotFoundError:
                if not prefix:
                    raise SourceUnavailable(f"{self.url} does not exist") from None
            except OSError as error:
                raise SourceUnavailable(f"{self.url} cannot be listed: {error.strerror}") from error

    @staticmethod
    def _listed(name: str, entry: os.DirEntry[str] | Path) -> ListedFile | None:
        try:
            status = entry.stat()
        except FileNotFoundError:
            return None
        return ListedFile(status.st_mtime_ns // 1_000_000, name, status.st_size)

    def look(self, name: str) -> ListedFile | None:
        return self._listed(name, Path(self._base, name))

    def open(self, name: str) -> BinaryIO:
        return Path(self._base, name).open("rb")


def _is_above(base: str, prefix: str, link: str) -> bool:
    """Return whether a link leads to a folder on the way to it, below which the same files would be found again and again."""
    target, way = Path(link).resolve(), Path(base, prefix)
    return any(folder.resolve() == target for folder in (way, *way.parents) if folder.is_relative_to(base))


class _StoreFolder:
    """Files of a store."""

    tells_seconds = True

    def __init__(self, url: str, storage_options: Mapping[str, object] | None) -> None:
        self._store = open_store(url, storage_options)
        self.url = self._store.url

    def list(self) -> Iterator[ListedFile]:
        try:
            for info in self._store.list():
                if not _is_hidden(info.name):
                    yield self._listed(info)
        except StorageError as error:
            raise SourceUnavailable(f"{self.url} cannot be listed: {error}") from error

    def _listed(self, info: ObjectInfo) -> ListedFile:
        # A thousandth of a millisecond more than any rounding of seconds takes away.
        return ListedFile(int(info.modified * 1000 + 0.001), info.name, info.size)

    def look(self, name: str) -> ListedFile | None:
        try:
            info = self._store.info(name)
        except StorageError as error:
            raise SourceUnavailable(f"{self.url}/{name}: {error}") from error
        return None if info is None else self._listed(info)

    def open(self, name: str) -> BinaryIO:
        filesystem, prefix = self._store.arrow_filesystem()
        path = f"{prefix.rstrip('/')}/{name}" if prefix else name
        return cast("BinaryIO", io.BufferedReader(filesystem.open_input_file(path)))


def open_folder(location: str, storage_options: Mapping[str, object] | None = None) -> Folder:
    """Return the files below a path or URL.

    Raises:
        InvalidInputError: it is no path or URL of a store.
    """
    path_or_url = location_text(location)
    if path_or_url.startswith(("file:", "local:")):
        return _LocalFolder(local_path(path_or_url))
    if "://" not in path_or_url:
        return _LocalFolder(os.path.expanduser(path_or_url))  # noqa: PTH111 - a text, as of other locations
    return _StoreFolder(path_or_url, storage_options)


def split_location(location: str) -> tuple[str, str | None]:
    """Return the folder of a location and the pattern of the files in it; None: all of them.

    A local path of a file is its folder and its name.

    Example:
        >>> split_location("s3://lake/in/2026-*/x?.csv"), split_location("/in")
        (('s3://lake/in', '2026-*/x?.csv'), ('/in', None))
    """
    head, separator, rest = location.rpartition("://")
    parts = rest.split("/")
    first = next((number for number, part in enumerate(parts) if _WILDCARDS.search(part)), None)
    if first is not None:
        folder = "/".join(parts[:first])
        if not folder and not separator:
            folder = "/" if location.startswith("/") else "."
        return head + separator + folder, "/".join(parts[first:])
    if not separator and _is_file(location):
        return str(Path(location).parent), re.sub(r"([*?\[])", r"[\1]", Path(location).name)
    return location, None


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except OSError:  # no file system takes it
        return False


@dataclass(frozen=True)
class FilePattern:
    """Which files of a folder are read.

    Attributes:
        pattern: as a shell has it: ``*`` and ``?`` stay in one folder, ``**`` is any number of them; None: all files.

    Example:
        >>> FilePattern("**/*.csv").matches("a/b/c.csv"), FilePattern("*.csv").matches("a/c.csv")
        (True, False)
    """

    pattern: str | None

    def matches(self, name: str) -> bool:
        """Return whether a file is read."""
        return self.pattern is None or _expression(self.pattern).fullmatch(name) is not None


@lru_cache(maxsize=64)
def _expression(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern of a shell.

    Raises:
        InvalidInputError: a bracket is not closed.
    """
    expression = ""
    for token in re.split(r"(\*\*/|\*\*|\*|\?|\[[^/]+?\])", pattern):
        if token in ("**/", "**", "*", "?"):
            expression += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}[token]
        elif token.startswith("[") and token.endswith("]"):
            expression += (
                "[" + ("^" if token[1] == "!" else "") + re.sub(r"([\\\[])", r"\\\1", token[1:-1].lstrip("!")) + "]"
            )
        else:
            expression += re.escape(token)
    try:
        return re.compile(expression)
    except re.error:
        raise InvalidInputError(f"{pattern!r} is no pattern of files: close its brackets") from None
