"""Log compaction: merging small log blocks into larger ones; ``plan`` decides, ``run`` executes."""
