"""Orders of rows, and sorts that need little memory.

``orders`` makes sort keys: by columns, along a z-order curve or a Hilbert curve. ``external_sort`` sorts any number of
rows through temporary files, and keeps the keys of a growing file there.
"""
