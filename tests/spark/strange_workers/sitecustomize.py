"""Makes a worker of Spark strange: Python runs this at its start, where the folder is on the path.

STRANGE says how: "without" lakefmt, of "another" release, or "denied": files under DENIED cannot be written.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Nothing(MetaPathFinder):
    """Finds no lakefmt, as where it is not installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] == "lakefmt":
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


def _deny(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or len(arguments) < 3 or not isinstance(arguments[2], int):
        return
    path, flags = arguments[0], arguments[2]
    if isinstance(path, str) and path.startswith(os.environ["DENIED"]) and flags & (os.O_WRONLY | os.O_RDWR):
        raise PermissionError(13, "Permission denied", path)


_kind = os.environ.get("STRANGE", "") if "pyspark.daemon" in sys.orig_argv else ""
if _kind == "without":
    sys.meta_path.insert(0, _Nothing())
elif _kind == "another":
    import lakefmt

    lakefmt.__version__ = "0.0.9"
elif _kind == "denied":
    sys.addaudithook(_deny)
