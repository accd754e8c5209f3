"""The names of pypaimon over lakefmt tables: a program written for it changes its imports (docs/append.md, Builders).

``catalog`` has all of them: the catalog of a warehouse folder, the builders of batches and streams, and the conditions. Rows,
files and rules are those of :class:`lakefmt.Table`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakefmt.builders.catalog import CatalogFactory, Schema

__all__ = ["CatalogFactory", "Schema"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'lakefmt.builders' has no attribute {name!r}")
    # Imported here: `import lakefmt.builders` alone reads no table.
    from lakefmt.builders import catalog

    return getattr(catalog, name)
