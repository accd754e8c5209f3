"""A stream of rows into a table: buffered, durable after a flush, committed once a minute.

``options`` and ``operators`` are what a caller chooses, ``stream`` is what it holds; ``rows`` checks rows, ``buffer`` and ``core``
collect them, ``flushing`` makes them durable as segments, ``committer`` decides when and ``committing`` how segments become
one commit, ``opening`` also finishes the work of writers that died, ``verbs`` are the methods of a table.
"""
