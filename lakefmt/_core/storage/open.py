"""Open the store of a path or URL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from lakefmt._core.arguments import Raised, foreign, mapping_argument, run_foreign, shown
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.local import LocalStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.storage.messages import Redactor, has_password, printable_url
from lakefmt.errors import InvalidInputError, LakefmtError, StorageError, UnsupportedFeature

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from lakefmt._core.storage.remote import RemoteStore

__all__ = ["is_missing_folder", "local_path", "location_text", "open_store"]

#: The package of each protocol, for the hint when it is missing.
_PACKAGES: Final = {
    "s3": "lakefmt[s3]",
    "s3a": "lakefmt[s3]",
    "gs": "lakefmt[gcs]",
    "gcs": "lakefmt[gcs]",
    "abfs": "lakefmt[azure]",
    "abfss": "lakefmt[azure]",
    "az": "lakefmt[azure]",
}
#: No caching, and no instance shared with other users of fsspec and their settings.
_UNCACHED: Final = {"use_listings_cache": False, "skip_instance_cache": True}


def open_store(url_or_path: str | os.PathLike[str], storage_options: Mapping[str, object] | None = None) -> ObjectStore:
    """Return the store whose base is a path or URL.

    `url_or_path` is a local path, ``file:///path``, ``memory://name`` or a URL of any fsspec
    protocol. Paths are not decoded; in ``file:`` URLs ``%20`` is a space. `storage_options` are
    passed to fsspec's file system, names that deltalake and Polars take under its own names; local paths and memory
    ignore them. Nothing is read or written; option values are never shown.

    Raises:
        InvalidInputError: fsspec does not know the protocol; the URL has no path, or a password, a
            query or a fragment; or the driver does not know an option.
        UnsupportedFeature: the package of the protocol is not installed.
        StorageError: the file system cannot be created with these options.

    Example:
        >>> open_store("/data/trips"), open_store("memory://trips").url
        (LocalStore('/data/trips'), 'memory://trips')
    """
    location = location_text(url_or_path)
    if not isinstance(storage_options, Mapping | None):  # its value may be a secret: the message has only its type
        raise InvalidInputError(
            f"storage_options takes a dict of names and values, not a {type(storage_options).__name__}"
        )
    options = mapping_argument(storage_options, "storage_options")
    protocol, separator, rest = location.partition("://")
    protocol = protocol.lower()
    if location.startswith("file:") or protocol == "local":
        return LocalStore(local_path(location))
    if not separator:
        return LocalStore(os.path.expanduser(location))
    if protocol == "memory":
        if not rest.strip("/"):
            raise InvalidInputError("memory:// needs a name: memory://name")
        return MemoryStore(rest)
    return _open_remote(f"{protocol}://{rest}", protocol, options)


def location_text(url_or_path: object) -> str:
    """Return a path or URL as text.

    Raises:
        InvalidInputError: not a text or path object, or an empty or blank one.

    Example:
        >>> from pathlib import PurePosixPath
        >>> location_text(PurePosixPath("/data/trips"))
        '/data/trips'
    """
    path = url_or_path
    location = foreign(lambda: os.fspath(path), "the path cannot be read") if isinstance(path, os.PathLike) else path
    if not isinstance(location, str):
        raise InvalidInputError(f"path takes a text or a path object, not {shown(path)}")
    try:
        os.fsencode(location)  # file names may be bytes that are not Unicode
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"{shown(location)} can be the name of no file: it holds half a surrogate pair"
        ) from None
    if not location.strip():
        raise InvalidInputError("an empty or blank path names no table")
    if "\x00" in location:
        raise InvalidInputError(f"{location!r} holds a NUL and names no table")
    return location


def local_path(url: str) -> str:
    """Return the path of ``file:/path``, ``file:///path``, ``file://localhost/path`` or ``local://path``.

    Raises:
        InvalidInputError: another host, no directory, or a query or fragment.

    Example:
        >>> local_path("file:///data/f%20v"), local_path("local:///data/f%20v")
        ('/data/f v', '/data/f%20v')
    """
    if url.startswith("local://"):
        return url.removeprefix("local://")
    _check_plain(url, url)
    path = url.removeprefix("file:")
    if path.startswith("//"):
        host, slash, below = path[2:].partition("/")
        if host not in ("", "localhost"):
            host = host.rpartition("@")[2]
            raise InvalidInputError(f"{printable_url(url)!r} names the host {host!r}: a file URL begins with file:///")
        path = slash + below
    path = os.fsdecode(unquote_to_bytes(os.fsencode(path)))
    if not path.strip("/"):
        raise InvalidInputError(f"{url!r} names no directory")
    if "\x00" in path:
        raise InvalidInputError(f"{url!r} holds a NUL and names no table")
    return path


def is_missing_folder(store: ObjectStore) -> bool:
    """Return whether a store is a local folder that is not there; object stores have no folders."""
    return isinstance(store, LocalStore) and not os.path.isdir(local_path(store.url))


def _check_plain(url: str, printable: str) -> None:
    """Raise for a query or fragment: some readers take it as part of the name, others drop it."""
    for sign, what, instead in (("?", "a query", "%3F"), ("#", "a fragment", "%23")):
        if sign in url:
            hint = (
                f"in a file URL {instead} is that sign"
                if url.startswith("file:")
                else "options go into storage_options"
            )
            raise InvalidInputError(f"{printable.partition(sign)[0]} was given with {what} ({sign}…): {hint}")


def _open_remote(url: str, protocol: str, storage_options: Mapping[str, object]) -> RemoteStore:
    from lakefmt._core.storage.remote import RemoteStore
    from lakefmt._core.storage.remote_clients import with_driver_names

    printable = printable_url(url)
    if "::" in url:
        raise InvalidInputError(
            f"chained URLs such as {printable.partition('::')[0]}:: answer from caches: give the last one"
        )
    if has_password(url):
        raise InvalidInputError(f"{printable} was given with a password: passwords belong into storage_options")
    _check_plain(url, printable)
    options = {**with_driver_names(protocol, storage_options), **_UNCACHED}
    opened = _make(url, protocol, printable, options)
    if isinstance(opened, LakefmtError):
        # Raised here so that the driver's error, which may contain secrets, is not chained.
        raise opened
    fs, root = opened
    if not root.strip("/"):
        raise InvalidInputError(f"{printable} names no bucket or directory")
    return RemoteStore(fs, root, url=printable)


def _make(
    url: str, protocol: str, printable: str, options: Mapping[str, object]
) -> tuple[AbstractFileSystem, str] | LakefmtError:
    # Imported here: users of local disks need no fsspec.
    import fsspec.core

    from lakefmt._core.storage.remote_clients import check_options, describe, is_transient, misspelt, unknown_option

    try:
        driver = fsspec.get_filesystem_class(protocol)
    except ValueError:
        return InvalidInputError(f"fsspec knows no protocol {protocol!r}")
    except ImportError:
        package = _PACKAGES.get(protocol, f"an fsspec driver for {protocol}")
        return UnsupportedFeature(f"{printable} needs {package}: install it with pip")

    def set_up() -> tuple[AbstractFileSystem, str]:
        check_options(driver, protocol, options)
        fs, root = fsspec.core.url_to_fs(url, **options)
        return fs, str(root)

    opened = run_foreign(set_up)
    if not isinstance(opened, Raised):
        return opened
    if isinstance(opened.error, InvalidInputError):
        return opened.error
    wrong = misspelt(opened.error, options)
    if wrong is not None:
        return unknown_option(wrong, frozenset(), protocol)
    why = Redactor(options)(describe(opened.error))
    return StorageError(f"cannot open {printable}: {why}", transient=is_transient(opened.error))
