"""What the tests against other engines share: the exemptions, printed when the run is over."""

from tests.compat.exemptions import pytest_terminal_summary

__all__ = ["pytest_terminal_summary"]
