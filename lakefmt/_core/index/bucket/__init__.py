"""Hudi's bucket indexes: a key's file group follows from the hash of the key, and nothing stored is read to find it.

``bucket_index`` hashes keys; it has a fixed number of buckets, or a ring of nodes for each partition (``ring``), whose nodes are split and merged.
``counts`` reads from settings and properties how many buckets there are, ``ring_files`` reads and writes
the rings that the table's own files keep.
"""
