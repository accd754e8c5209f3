"""Services of the metadata table.

``run`` calls them when they are due, and removes what compactions replaced; ``compaction`` merges logs into new base files, or
into one log.
"""
