"""A stream of rows into a table: buffered, durable after a flush, committed once a minute.

``options`` are what a caller chooses, ``stream`` is what it holds; ``rows`` checks rows, ``flushing`` collects them and makes them durable
as segments, ``core`` decides when to flush and when to commit, ``committing`` makes one commit of segments,
``opening`` also finishes the work of writers that died.
"""
