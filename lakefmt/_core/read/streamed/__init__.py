"""Reads that also show what streams of rows have made durable and not committed.

``uncommitted`` merges the segments of streams with a snapshot of the table, by the table's own rule.
"""
