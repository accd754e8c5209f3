"""The library itself; nothing below this package is promised.

Users import from ``lakefmt`` and from the packages beside this one. Floors and steps of a write are in docs/dev/architecture.md.
"""
