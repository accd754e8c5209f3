"""lakefmt: Apache Hudi tables from Python, without a cluster.

Applications use ``lakefmt``; engines that distribute work use ``lakefmt.lowlevel``; tests of
applications use ``lakefmt.testing``.
"""

import importlib
from typing import TYPE_CHECKING

from lakefmt import errors
from lakefmt.errors import LakefmtError

if TYPE_CHECKING:
    from lakefmt import builders as builders
    from lakefmt import catalogs as catalogs
    from lakefmt import cdc as cdc
    from lakefmt import client as client
    from lakefmt import events as events
    from lakefmt import index as index
    from lakefmt import ingest as ingest
    from lakefmt import locks as locks
    from lakefmt import lowlevel as lowlevel
    from lakefmt import options as options
    from lakefmt import realtime as realtime
    from lakefmt import server as server
    from lakefmt import services as services
    from lakefmt import storage as storage
    from lakefmt import telemetry as telemetry
    from lakefmt._core.config.merge_rule import register_merger
    from lakefmt._core.create_and_write import write_table
    from lakefmt._core.ingest.migrate import convert
    from lakefmt._core.keys.spec import day, hour, month, year
    from lakefmt._core.read.snapshot import Snapshot
    from lakefmt._core.table import Table, create_table, open_table
    from lakefmt._core.values import CommitResult

__version__ = "0.1.0"

__all__ = [
    "CommitResult",
    "LakefmtError",
    "Snapshot",
    "Table",
    "convert",
    "create_table",
    "day",
    "errors",
    "hour",
    "month",
    "open_table",
    "register_merger",
    "write_table",
    "year",
]

#: Public modules that need no other package: ``lakefmt.cdc`` is there after ``import lakefmt``.
_MODULES = frozenset(
    {
        "builders",
        "catalogs",
        "cdc",
        "client",
        "events",
        "index",
        "ingest",
        "locks",
        "lowlevel",
        "options",
        "realtime",
        "server",
        "services",
        "storage",
        "telemetry",
    }
)


def __getattr__(name: str) -> object:
    """Import a public name or module on first access (PEP 562).

    A command line that shows its help, or a worker that gets its table later, does not import NumPy
    and Arrow.
    """
    if name in _MODULES:
        return importlib.import_module(f"lakefmt.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'lakefmt' has no attribute {name!r}")
    value = globals()[name] = _imported(name)
    return value


def _imported(name: str) -> object:
    if name in ("Table", "create_table", "open_table"):
        from lakefmt._core import table

        value: object = getattr(table, name)
    elif name == "Snapshot":
        from lakefmt._core.read import snapshot

        value = snapshot.Snapshot
    elif name == "CommitResult":
        from lakefmt._core import values

        value = values.CommitResult
    elif name in ("day", "hour", "month", "year"):
        from lakefmt._core.keys import spec

        value = getattr(spec, name)
    elif name == "write_table":
        from lakefmt._core import create_and_write

        value = create_and_write.write_table
    elif name == "convert":
        from lakefmt._core.ingest import migrate

        value = migrate.convert
    else:
        from lakefmt._core.config import merge_rule

        value = merge_rule.register_merger
    return value


def __dir__() -> list[str]:
    """Return the public names and modules, imported or not."""
    return sorted({*globals(), *__all__, *_MODULES})
