"""The command line ``lakefmt``: one command for each verb of a table.

A command imports rich and the table when it runs, not before. Both click and rich come with the extra `cli`.
"""

from __future__ import annotations

import importlib.util
from typing import NoReturn

__all__ = ["main"]


def _without_packages() -> NoReturn:
    raise SystemExit("lakefmt: the command line needs click and rich: pip install 'lakefmt[cli]'")


if all(importlib.util.find_spec(name) is not None for name in ("click", "rich")):
    from lakefmt._core.cli.root import main
else:
    globals()["main"] = _without_packages
