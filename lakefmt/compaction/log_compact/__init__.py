"""Log compaction: merging the small log blocks of a file slice into one log.

``plan`` chooses the slices, ``merge`` merges one and ``run`` executes; plans, and what a compaction does with pending ones, are those of
:mod:`lakefmt.compaction.compact`.
"""
