"""The command line: ``lakefmt``, the same words as the Python face.

Only click is loaded here; Arrow, rich and the table's roads come with the command that needs them.
"""

from __future__ import annotations

from lakefmt.cli.root import main

__all__ = ["main"]
