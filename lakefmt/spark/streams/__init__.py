"""Streams of Spark: a table as sink of ``writeStream`` and as source of ``readStream``.

``sink`` writes every batch once, by labels in the commits of the table, changes included; ``source`` cuts a
table's commits into batches and reads them.
"""
