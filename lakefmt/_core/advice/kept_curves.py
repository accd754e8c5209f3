"""Reads and keeps measured costs: those of this machine in the user's cache folder, else the shipped ones."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lakefmt._core.advice.advise import CostCurves, parse_curves
from lakefmt.errors import CorruptFile, InvalidInputError

__all__ = [
    "cache_path",
    "keep_curves",
    "load_curves",
    "shipped_curves",
]

_LOG: Final = logging.getLogger("lakefmt.advice")
_MOST_BYTES: Final = 1 << 20
_SHIPPED: Final = Path(__file__).with_name("curves.json")


def cache_path(environment: Mapping[str, str] | None = None) -> Path:
    """Return where the costs of this machine are kept: below ``XDG_CACHE_HOME``, else ``~/.cache``.

    Example:
        >>> cache_path({"XDG_CACHE_HOME": "/var/cache/me"}).as_posix()
        '/var/cache/me/lakefmt/curves.json'
    """
    variables = os.environ if environment is None else environment
    home = variables.get("XDG_CACHE_HOME", "")
    base = Path(home) if home and Path(home).is_absolute() else Path.home() / ".cache"
    return base / "lakefmt" / "curves.json"


def shipped_curves() -> CostCurves:
    """Return the costs that come with the package."""
    return parse_curves(_SHIPPED.read_bytes())


def load_curves(path: Path | None = None) -> CostCurves:
    """Return the costs that were measured on this machine, else the shipped ones.

    Args:
        path: a file of costs that must be there and readable; None: this machine's, where damage is logged and passed over.

    Raises:
        CorruptFile: the file `path` is missing or damaged.
    """
    if path is not None:
        return _read(path)
    try:
        return _read(cache_path())
    except FileNotFoundError:
        return shipped_curves()
    except (CorruptFile, OSError, RuntimeError) as error:
        _LOG.warning("costs of this machine are not used: %s", error)
        return shipped_curves()


def _read(path: Path) -> CostCurves:
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise CorruptFile(f"{path.name} is larger than {_MOST_BYTES:,} bytes: not a file of costs")
    try:
        return parse_curves(data)
    except InvalidInputError as error:
        raise CorruptFile(f"{path.name}: {error}") from None


def keep_curves(curves: CostCurves, path: Path | None = None) -> Path:
    """Keep the costs of this machine, as a whole or not at all; return the file."""
    target = cache_path() if path is None else path
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".curves-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(curves.as_json(), file, indent=1)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return target
