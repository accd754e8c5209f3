"""Rows that a stream has made durable and not yet committed: files in the table's private folder.

``names`` and ``codec`` are their names and bytes, ``plan`` decides which of them still have to be committed, ``files``
reads and writes them, ``claims`` says which process may write those of a stream, ``pending`` puts the three together.
"""
