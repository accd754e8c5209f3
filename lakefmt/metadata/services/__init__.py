"""Services of the metadata table.

``run`` calls them when they are due; ``compaction`` merges logs into new base files, ``log_compaction`` merges logs into
one log, ``clean`` removes what compactions replaced (``clean_plan`` decides), ``archive`` shortens the timeline.
"""
