"""Compaction: merging logs into new base files; ``plan`` decides, ``run`` executes."""
