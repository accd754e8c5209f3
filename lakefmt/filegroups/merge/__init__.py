"""Merge rows with equal keys.

``base`` merges incoming rows into a base file, ``merged_slice`` logs into a base file,
``log_compaction_merge`` logs with each other; ``precombine`` combines the rows of a batch,
``_custom`` calls a registered merge function.
"""
