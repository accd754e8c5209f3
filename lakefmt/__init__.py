"""lakefmt: Apache Hudi tables from Python, without a cluster.

Three audiences: everyone uses ``lakefmt``; engines that spread work use ``lakefmt.lowlevel``; people who test against
tables use ``lakefmt.testing``.
"""

from typing import TYPE_CHECKING

from lakefmt import errors
from lakefmt.errors import LakefmtError

if TYPE_CHECKING:
    from lakefmt.config.mergers import register_merger
    from lakefmt.keys.periods import day, hour, month, year
    from lakefmt.read.snapshot import Snapshot
    from lakefmt.table import Table, create_table, open_table
    from lakefmt.values import CommitResult

__version__ = "0.1.0"

__all__ = [
    "CommitResult",
    "LakefmtError",
    "Snapshot",
    "Table",
    "create_table",
    "day",
    "errors",
    "hour",
    "month",
    "open_table",
    "register_merger",
    "year",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for (PEP 562).

    A command line that only shows its help, or a worker that gets its table later, pays for neither NumPy nor Arrow.
    """
    if name in ("Table", "create_table", "open_table"):
        from lakefmt import table

        found: object = getattr(table, name)
    elif name == "Snapshot":
        from lakefmt.read import snapshot

        found = snapshot.Snapshot
    elif name == "CommitResult":
        from lakefmt import values

        found = values.CommitResult
    elif name in ("day", "hour", "month", "year"):
        from lakefmt.keys import periods

        found = getattr(periods, name)
    elif name == "register_merger":
        from lakefmt.config import mergers

        found = mergers.register_merger
    else:
        raise AttributeError(f"module 'lakefmt' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted({*globals(), *__all__})
