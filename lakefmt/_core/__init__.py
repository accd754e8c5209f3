"""The library itself: nothing below this package is promised. Users import from ``lakefmt`` and the packages beside this one."""
