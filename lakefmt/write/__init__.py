"""Writes: from a batch of rows to a completed instant.

``transaction`` has the six steps of a write and ``saved_transaction`` rebuilds one in another process. ``ingest`` makes
keys and partition paths, ``pipeline`` locates, places and writes rows, ``assign`` gives each row a file; ``mutations``
are deletes and updates; ``context`` and ``bound_context`` are what every step knows. ``commit``, ``files`` and ``bulk``
are packages of their own.
"""
