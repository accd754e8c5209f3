"""Services of the metadata table.

``run`` calls them when they are due; ``compaction`` merges logs into new base files, ``clean`` removes what these
replaced (``clean_plan`` decides), ``archive`` shortens the timeline.
"""
