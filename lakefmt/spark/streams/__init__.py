"""Streams of Spark: a table as sink of ``writeStream`` and as source of ``readStream``.

``labels`` decides whether a batch was written before, ``stored_labels`` finds the labels in the commits of a table, ``sink``
writes batches, ``offsets`` cuts a table's commits into batches, ``source`` reads them; ``options`` parses the options of both.
"""
