"""The command line ``lakefmt``: one command for each verb of a table.

Only click is imported here; a command imports Arrow, rich and the table when it runs.
"""

from __future__ import annotations

from lakefmt.cli.root import main

__all__ = ["main"]
