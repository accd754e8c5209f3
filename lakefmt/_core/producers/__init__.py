"""Doors for data that never stops: streams of single rows (``stream``), and tables without keys.

Both collect rows, and hand whole batches to the one way of writing in :mod:`lakefmt.write`; no rule of the format lives here.
"""
