"""The command line ``lakefmt``: one command for each verb of a table.

A command imports rich and the table when it runs, not before.
"""

from __future__ import annotations

from lakefmt._core.cli.root import main

__all__ = ["main"]
