"""Rows that a stream has made durable and not yet committed: files in the table's private folder.

``names`` are their names; ``codec`` encodes, reads and writes them. ``pending`` says which of them still have to be committed,
and which process may write those of a stream; ``resolve`` makes the rows that the table gets.
"""
