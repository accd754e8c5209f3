"""Hudi's bucket indexes: a key's file group follows from the hash of the key, and nothing stored is read to find it.

``fixed`` has a fixed number of buckets; ``consistent`` has a ring of nodes for each partition (``ring``), which ``resize`` splits
and merges. ``hashes`` hashes keys, ``counts`` reads from settings and properties how many buckets there are, ``ring_files`` and
``table_index`` read what the table's own files keep.
"""
