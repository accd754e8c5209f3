"""Rows that a stream has made durable and not yet committed: files in the table's private folder.

``codec`` has their names, and encodes, reads and writes them. ``pending`` says which of them still have to be committed,
and which process may write those of a stream; ``resolve`` makes the rows that the table gets.
"""
