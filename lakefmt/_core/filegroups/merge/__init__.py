"""Merge rows with equal keys.

``base`` merges incoming rows into a base file, by the table's rule or by a registered merge function; ``merged_slice`` merges logs
into a base file or with each other; ``precombine`` combines the rows of a batch.
"""
