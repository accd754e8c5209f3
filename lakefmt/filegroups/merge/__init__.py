"""How rows of one key become one.

``base`` merges incoming rows with a base file, ``merged_slice`` a base file with its logs, ``log_compaction_merge`` logs
with each other; ``precombine`` combines the rows of a batch, ``custom`` calls a registered merge function.
"""
