"""Writes: from a batch of rows to a completed instant.

``verbs`` are whole writes; ``transaction`` has their six steps, and rebuilds a write in another process; ``tasks`` spreads them
over a cluster. ``ingest`` makes keys and partition paths, ``pipeline`` locates, places and writes rows, ``assign`` gives each
row a file; ``mutations`` are deletes and updates; ``context`` is what every step knows, ``columns`` what
becomes of the table's. ``bulk_insert`` makes new files of a stream of rows in bounded memory, ``grouped_rows``
writes and deletes such rows file group by file group. ``commit`` and ``files`` are packages of their own.
"""
