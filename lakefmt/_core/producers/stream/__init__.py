"""A stream of rows into a table: buffered, durable after a flush, committed once a minute.

``options`` are what a caller chooses, ``stream`` is what it holds; ``rows`` checks rows, ``flushing`` collects them and ``core`` empties
buffers and decides when to commit, ``flushing`` makes them durable as segments, ``committing`` makes one commit of segments,
``opening`` also finishes the work of writers that died.
"""
