"""Hudi's bucket indexes: a key's file group follows from its hash.

``fixed`` has a number of buckets for each partition (``counts``, ``settings``); ``consistent`` has rings that can change
(``ring``, ``ring_files``, ``resize``). ``table_index`` is the index of a table, with what the table's own files say of it.
"""
