"""Hudi's bucket indexes: a key's file group follows from the hash of the key, and nothing stored is read to find it.

``fixed`` has a fixed number of buckets, whose numbers come from ``_java_hash`` and ``counts``; ``consistent`` has a ring of nodes
for each partition (``ring``, ``_xxhash32``), which ``resize`` splits and merges. ``settings`` reads what a call and a table say,
``ring_files`` and ``table_index`` what the table's own files keep.
"""
